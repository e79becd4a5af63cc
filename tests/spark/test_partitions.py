"""A user's functions over the tables of each partition, from files or a DataFrame's values."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PythonException

import wirescan
from tests.spark.records import ORDERS, make_batch, write_segment
from wirescan.frames import to_arrow
from wirescan.spark.partition_mapping import conform_batches, map_partitions
from wirescan.spark.ranges import Ranges, ranges

pytestmark = pytest.mark.spark

COUNTS = "rows bigint, last bigint"


def make_count():
    """Return a function that is pickled by value. A task cannot import this module."""

    def count(tables):
        rows, last = 0, -1
        for table in tables:
            rows += len(table)
            last = max(last, int(table["offset"].max(initial=-1)))
        return {"rows": np.array([rows]), "last": np.array([last])}

    return count


count = make_count()


def test_a_function_is_called_once_in_each_partition(spark, log):
    parts = ranges(spark, log, bytes_per_partition=15_000)
    rows = map_partitions(parts, count, COUNTS).collect()
    assert len(rows) == len(parts.plan)
    assert len(rows) > 3
    assert sum(row.rows for row in rows) == 1800
    assert max(row["last"] for row in rows) == 1799
    tables = [table for task in range(len(parts.plan)) for table in parts.read_tables(task)]
    assert sum(map(len, tables)) == 1800


def make_workers():
    """Return a function that is pickled by value and counts the threads of a worker."""

    def count_workers(tables):
        from wirescan.core.parallel import choose_workers

        rows = sum(len(table) for table in tables)
        return {"rows": np.array([rows]), "last": np.array([choose_workers()])}

    return count_workers


def test_a_task_uses_one_thread(spark, log):
    rows = map_partitions(ranges(spark, log), make_workers(), COUNTS).collect()
    assert [(row.rows, row["last"]) for row in rows] == [(1800, 1)]


def test_the_text_of_ranges(spark, log):
    parts = ranges(spark, log, bytes_per_partition=15_000)
    assert repr(parts) == f"kafka.records: {parts.plan}"
    assert str(parts) == repr(parts)


def test_ranges_can_be_pickled_without_the_session(spark, log):
    parts = ranges(spark, log, bytes_per_partition=15_000)
    copy = pickle.loads(pickle.dumps(parts))
    assert copy == Ranges(None, parts.reading, parts.plan)
    assert sum(map(len, copy.read_tables(0))) == sum(map(len, parts.read_tables(0)))
    with pytest.raises(IndexError, match="out of range"):
        list(parts.read_tables(len(parts.plan)))


def test_ranges_are_filtered(spark, log):
    parts = ranges(spark, log, filters=[("offset", ">=", 1700)])
    assert map_partitions(parts, count, COUNTS).first().asDict() == {"rows": 100, "last": 1799}
    with pytest.raises(ValueError, match="nothing_such"):
        ranges(spark, log, filters=[("nothing_such", "==", 1)])


@pytest.mark.parametrize(
    "schema",
    ["offset bigint, size int", pa.schema([("offset", pa.int64()), ("size", pa.int32())])],
    ids=["ddl", "arrow"],
)
@pytest.mark.parametrize(
    "made",
    [
        lambda table: table.rows[["offset", "size"]],
        lambda table: {"size": table["size"], "offset": table["offset"]},
        lambda table: to_arrow.to_batch(table, ["size", "offset"]),
        lambda table: table.to_arrow(["size", "offset"]),
        lambda table: table[["size", "offset"]],
    ],
    ids=["structured", "mapping", "batch", "table", "columns"],
)
def test_results_may_have_several_types(spark, made, schema):
    expected = wirescan.scan(str(ORDERS / "*.log"), "kafka.records")
    parts = ranges(spark, str(ORDERS))
    rows = map_partitions(parts, lambda tables: map(made, tables), schema).collect()
    assert sorted(map(tuple, rows)) == sorted(expected.rows[["offset", "size"]].tolist())


def test_tables_of_the_values_of_a_dataframe(spark):
    values = [bytearray(make_batch(0)), None, bytearray(make_batch(20, codec="zstd")), bytearray()]
    df = spark.createDataFrame([(value,) for value in values], "`a b` binary").coalesce(1)
    row = map_partitions(df, count, COUNTS, column="a b").first()
    assert row.asDict() == {"rows": 40, "last": 39}
    bad = spark.createDataFrame([(bytearray(make_batch(0)[:-3]),)], "v binary")
    with pytest.raises(PythonException, match="FrameError.*column v, row 0 of partition"):
        map_partitions(bad, count, COUNTS, column="v").collect()
    assert map_partitions(bad, count, COUNTS, column="v", errors="skip").first().rows == 0
    for options, message in (
        ({"column": "w"}, "no column 'w'"),
        ({"column": "v", "cut": "x"}, "cut must be one of"),
        ({"column": "v", "format": "no"}, "no format 'no'"),
        ({}, "no column None"),
    ):
        with pytest.raises(ValueError, match=message):
            map_partitions(bad, count, COUNTS, **options)
    numbers = spark.range(1).withColumnRenamed("id", "n")
    with pytest.raises(ValueError, match="column n is bigint, not binary"):
        map_partitions(numbers, count, COUNTS, column="n")


def test_an_empty_file_has_at_most_one_partition(spark, tmp_path):
    (tmp_path / "00000000000000000000.log").touch()
    rows = map_partitions(ranges(spark, str(tmp_path)), count, COUNTS).collect()
    assert rows in ([(0, -1)], [])


def test_damage_fails_the_job_and_names_the_file(spark, damaged):
    path, position = damaged
    with pytest.raises(PythonException, match=f"BAD_CHECKSUM.*at byte {position} of {path}"):
        map_partitions(ranges(spark, path), count, COUNTS).collect()
    assert map_partitions(ranges(spark, path, errors="skip"), count, COUNTS).first().rows == 180


def test_invalid_arguments_are_refused(spark, log):
    parts = ranges(spark, log)
    with pytest.raises(TypeError, match="function must be callable"):
        map_partitions(parts, "count", COUNTS)
    with pytest.raises(TypeError, match="or a DataFrame, not list"):
        map_partitions([parts], count, COUNTS)
    with pytest.raises(ValueError, match="Ranges have their own"):
        map_partitions(parts, count, COUNTS, errors="skip")
    for schema in (3, "bigint"):
        with pytest.raises(TypeError, match="schema must be DDL"):
            map_partitions(parts, count, schema)
    with pytest.raises(FileNotFoundError, match="nothing"):
        ranges(spark, log + "/nothing")


def test_errors_of_invalid_results(spark, log):
    parts = ranges(spark, log)
    message = "ValueError: the function returned the columns n, and the schema has rows"
    with pytest.raises(PythonException, match=message):
        map_partitions(
            parts, lambda tables: {"n": [sum(map(len, tables))]}, "rows bigint"
        ).collect()
    with pytest.raises(PythonException, match="TypeError: the function returned int, not Arrow"):
        map_partitions(parts, lambda tables: sum(map(len, tables)), "rows bigint").collect()


# ---- one result

FIELDS = {
    "long": pa.int64(),
    "double": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "flag": pa.bool_(),
    "time": pa.timestamp("us", "UTC"),
}


@pytest.mark.parametrize(
    "field, values, expected",
    [
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
    ],
)
def test_columns_are_cast_where_no_value_changes(field, values, expected):
    schema = pa.schema([(field, FIELDS[field])])
    batches = list(conform_batches({field: values}, schema))
    assert all(batch.schema == schema for batch in batches)
    assert [row[field] for batch in batches for row in batch.to_pylist()] == expected


def test_times_are_instants():
    schema = pa.schema([("time", FIELDS["time"])])
    (result,) = conform_batches({"time": np.array([1_000_000_000], "M8[ns]")}, schema)
    assert result.column(0).cast(pa.int64()).to_pylist() == [1_000_000]
    with pytest.raises(ValueError, match="column time does not fit"):
        list(conform_batches({"time": np.array([1], "M8[ns]")}, schema))


@pytest.mark.parametrize(
    "field, values, error, message",
    [
        ("long", np.array([2**63], np.uint64), ValueError, "column long does not fit int64"),
        ("long", np.array([1.0]), TypeError, "column long as double, and the schema says int64"),
        ("text", pa.array([b"a"]), TypeError, "column text as binary"),
        ("long", np.ones((2, 2)), TypeError, "column long cannot be converted"),
        ("long", [1, "a"], TypeError, "column long cannot be converted"),
        ("long", 1, TypeError, "column long cannot be converted"),
    ],
)
def test_columns_that_do_not_fit(field, values, error, message):
    with pytest.raises(error, match=message) as caught:
        list(conform_batches({field: values}, pa.schema([(field, FIELDS[field])])))
    assert "\n" not in str(caught.value)


def test_rows_that_do_not_fit():
    two = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    with pytest.raises(ValueError, match="unequal length: 1 in a, 2 in b"):
        list(conform_batches({"a": [1], "b": [1, 2]}, two))
    with pytest.raises(ValueError, match="two columns of one name: a, b, b"):
        list(conform_batches(pa.table([[1], [2], [3]], ["a", "b", "b"]), two))
    with pytest.raises(ValueError, match="has nulls"):
        list(conform_batches({"a": [None]}, pa.schema([pa.field("a", pa.int64(), nullable=False)])))
    for made in (np.arange(3), [1], "a", None):
        with pytest.raises(TypeError, match="not Arrow, a mapping or a structured array"):
            list(conform_batches(made, two))
    large = {"a": np.arange(200_000), "b": np.zeros(200_000, "i1")}
    assert sum(map(len, conform_batches(large, two))) == 200_000
    assert list(conform_batches({"a": [], "b": []}, two)) in (
        [],
        [pa.RecordBatch.from_pylist([], two)],
    )


def test_all_records_of_a_segment_are_read(spark, tmp_path):
    path = write_segment(tmp_path / "00000000000000000000.log", batches=5)

    def offsets(tables):
        return ({"offset": table["offset"]} for table in tables)

    rows = map_partitions(ranges(spark, path), offsets, "offset bigint").collect()
    assert [row.offset for row in rows] == list(range(100))
