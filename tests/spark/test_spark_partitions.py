"""Own functions over the tables of each partition, of files and of a DataFrame's values."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from conftest import ORDERS, batch, segment
from pyspark.errors import PythonException

import wirescan
from wirescan import arrow
from wirescan.spark.partitions import conformed, map_partitions
from wirescan.spark.ranges import Ranges, ranges

pytestmark = pytest.mark.spark

COUNTED = "rows bigint, last bigint"


def counting():
    """A function that travels as it is, since a task cannot import this module."""
    def counted(tables):
        rows, last = 0, -1
        for table in tables:
            rows += len(table)
            last = max(last, int(table["offset"].max(initial=-1)))
        return {"rows": np.array([rows]), "last": np.array([last])}
    return counted


counted = counting()


def test_a_function_is_called_once_in_each_partition(spark, log):
    found = ranges(spark, log, bytes_per_partition=15_000)
    rows = map_partitions(found, counted, COUNTED).collect()
    assert len(rows) == len(found.plan) > 3
    assert sum(row.rows for row in rows) == 1800 and max(row["last"] for row in rows) == 1799
    assert sum(len(table) for task in range(len(found.plan)) for table in found.tables(task)) == 1800


def test_ranges_say_what_they_are_and_travel_without_the_session(spark, log):
    found = ranges(spark, log, bytes_per_partition=15_000)
    assert repr(found) == str(found) == f"kafka.records: {found.plan}"
    again = pickle.loads(pickle.dumps(found))
    assert again == Ranges(None, found.reading, found.plan)
    assert sum(map(len, again.tables(0))) == sum(map(len, found.tables(0)))
    with pytest.raises(IndexError):
        list(found.tables(len(found.plan)))


def test_ranges_are_filtered(spark, log):
    found = ranges(spark, log, filters=[("offset", ">=", 1700)])
    assert map_partitions(found, counted, COUNTED).first().asDict() == {"rows": 100, "last": 1799}
    with pytest.raises(ValueError, match="nothing_such"):
        ranges(spark, log, filters=[("nothing_such", "==", 1)])


@pytest.mark.parametrize("schema", [
    "offset bigint, size int", pa.schema([("offset", pa.int64()), ("size", pa.int32())])], ids=["ddl", "arrow"])
@pytest.mark.parametrize("made", [
    lambda table: table.rows[["offset", "size"]],
    lambda table: {"size": table["size"], "offset": table["offset"]},
    lambda table: arrow.to_batch(table, ["size", "offset"]),
    lambda table: pa.table(table).select(["offset", "size"]),
], ids=["structured", "mapping", "batch", "table"])
def test_what_a_function_may_give(spark, made, schema):
    expected = wirescan.scan(str(ORDERS / "*.log"), "kafka.records")
    rows = map_partitions(ranges(spark, str(ORDERS)), lambda tables: map(made, tables), schema).collect()
    assert sorted(map(tuple, rows)) == sorted(expected.rows[["offset", "size"]].tolist())


def test_tables_of_the_values_of_a_dataframe(spark):
    values = [bytearray(batch(0)), None, bytearray(batch(20, codec="zstd")), bytearray()]
    df = spark.createDataFrame([(value,) for value in values], "`a b` binary").coalesce(1)
    assert map_partitions(df, counted, COUNTED, column="a b").first().asDict() == {"rows": 40, "last": 39}
    bad = spark.createDataFrame([(bytearray(batch(0)[:-3]),)], "v binary")
    with pytest.raises(PythonException, match="FrameError.*column v, row 0 of partition"):
        map_partitions(bad, counted, COUNTED, column="v").collect()
    assert map_partitions(bad, counted, COUNTED, column="v", errors="skip").first().rows == 0
    for options, message in (({"column": "w"}, "no column 'w'"), ({"column": "v", "cut": "x"}, "cut must be one of"),
                             ({"column": "v", "format": "no"}, "no format 'no'"), ({}, "no column None")):
        with pytest.raises(ValueError, match=message):
            map_partitions(bad, counted, COUNTED, **options)
    with pytest.raises(ValueError, match="column n is bigint, not binary"):
        map_partitions(spark.range(1).withColumnRenamed("id", "n"), counted, COUNTED, column="n")


def test_no_file_has_one_partition_without_tables(spark, tmp_path):
    (tmp_path / "00000000000000000000.log").touch()
    assert map_partitions(ranges(spark, str(tmp_path)), counted, COUNTED).collect() in ([(0, -1)], [])


def test_damage_fails_the_job_and_names_the_file(spark, damaged):
    path, offset = damaged
    with pytest.raises(PythonException, match=f"BAD_CHECKSUM.*at byte {offset} of {path}"):
        map_partitions(ranges(spark, path), counted, COUNTED).collect()
    assert map_partitions(ranges(spark, path, errors="skip"), counted, COUNTED).first().rows == 180


def test_unfit_arguments(spark, log):
    found = ranges(spark, log)
    with pytest.raises(TypeError, match="a function of an iterator"):
        map_partitions(found, "count", COUNTED)
    with pytest.raises(TypeError, match="not of list"):
        map_partitions([found], counted, COUNTED)
    with pytest.raises(ValueError, match="ranges say themselves"):
        map_partitions(found, counted, COUNTED, errors="skip")
    for schema in (3, "bigint"):
        with pytest.raises(TypeError, match="a schema is DDL"):
            map_partitions(found, counted, schema)
    with pytest.raises(FileNotFoundError):
        ranges(spark, log + "/nothing")


def test_what_a_function_must_not_give_is_one_line(spark, log):
    found = ranges(spark, log)
    with pytest.raises(PythonException, match="ValueError: the function gave the columns n, and the schema has rows"):
        map_partitions(found, lambda tables: {"n": [sum(map(len, tables))]}, "rows bigint").collect()
    with pytest.raises(PythonException, match="TypeError: the function gave int, not Arrow"):
        map_partitions(found, lambda tables: sum(map(len, tables)), "rows bigint").collect()


# ---------------------------------------------------------------------------- one result

FIELDS = {"long": pa.int64(), "double": pa.float64(), "text": pa.string(), "bytes": pa.binary(), "flag": pa.bool_(),
          "time": pa.timestamp("us", "UTC")}


@pytest.mark.parametrize("field, values, expected", [
    ("long", np.array([1, 2], ">u2"), [1, 2]),
    ("long", np.array([1, 0, 2], "i4")[::2], [1, 2]),
    ("long", np.ma.MaskedArray([1, 2], [False, True]), [1, None]),
    ("long", pa.chunked_array([[1], [None]]), [1, None]),
    ("long", [None, None], [None, None]),
    ("double", np.array([1, 2]), [1.0, 2.0]),
    ("double", np.array([1, 2], "f4"), [1.0, 2.0]),
    ("text", pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
    ("text", np.array(["a", "b"]), ["a", "b"]),
    ("bytes", pa.array([b"a", None], pa.binary_view()), [b"a", None]),
    ("bytes", np.array([b"a", b"bc"]), [b"a", b"bc"]),
    ("flag", np.array([True, False]), [True, False]),
])
def test_columns_are_cast_where_no_value_changes(field, values, expected):
    wanted = pa.schema([(field, FIELDS[field])])
    batches = list(conformed({field: values}, wanted))
    assert all(one.schema == wanted for one in batches)
    assert [row[field] for one in batches for row in one.to_pylist()] == expected


def test_times_are_instants():
    wanted = pa.schema([("time", FIELDS["time"])])
    (found,) = conformed({"time": np.array([1_000_000_000], "M8[ns]")}, wanted)
    assert found.column(0).cast(pa.int64()).to_pylist() == [1_000_000]
    with pytest.raises(ValueError, match="column time does not fit"):
        list(conformed({"time": np.array([1], "M8[ns]")}, wanted))


@pytest.mark.parametrize("field, values, error, message", [
    ("long", np.array([2**63], np.uint64), ValueError, "column long does not fit int64"),
    ("long", np.array([1.0]), TypeError, "column long as double, and the schema says int64"),
    ("text", pa.array([b"a"]), TypeError, "column text as binary"),
    ("long", np.ones((2, 2)), TypeError, "column long is no array"),
    ("long", [1, "a"], TypeError, "column long is no array"),
    ("long", 1, TypeError, "column long is no array"),
])
def test_columns_that_do_not_fit(field, values, error, message):
    with pytest.raises(error, match=message) as caught:
        list(conformed({field: values}, pa.schema([(field, FIELDS[field])])))
    assert "\n" not in str(caught.value)


def test_rows_that_do_not_fit():
    two = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    with pytest.raises(ValueError, match="unequal length: 1 in a, 2 in b"):
        list(conformed({"a": [1], "b": [1, 2]}, two))
    with pytest.raises(ValueError, match="two columns of one name: a, b, b"):
        list(conformed(pa.table([[1], [2], [3]], ["a", "b", "b"]), two))
    with pytest.raises(ValueError, match="has nulls"):
        list(conformed({"a": [None]}, pa.schema([pa.field("a", pa.int64(), nullable=False)])))
    for made in (np.arange(3), [1], "a", None):
        with pytest.raises(TypeError, match="not Arrow, a mapping or a structured array"):
            list(conformed(made, two))
    large = {"a": np.arange(200_000), "b": np.zeros(200_000, "i1")}
    assert sum(len(one) for one in conformed(large, two)) == 200_000
    assert list(conformed({"a": [], "b": []}, two)) in ([], [pa.RecordBatch.from_pylist([], two)])


def test_segments_made_here_are_all_read(spark, tmp_path):
    path = segment(tmp_path / "00000000000000000000.log", batches=5)
    rows = map_partitions(ranges(spark, path), lambda tables: ({"offset": t["offset"]} for t in tables),
                          "offset bigint").collect()
    assert [row.offset for row in rows] == list(range(100))
