"""The data source `wirescan`, with spark.read and with SQL."""

import os

import pytest
from pyspark.errors import PySparkException

from tests.spark.frames import load_frames
from tests.spark.records import collect_rows, read_expected_rows
from wirescan.reading.splits import SLICE_BYTES
from wirescan.spark import read
from wirescan.spark.datasource_options import parse_paths, parse_reading, parse_size

pytestmark = pytest.mark.spark


def test_the_same_as_read(spark, log):
    frame = load_frames(spark, log)
    assert frame.schema == read(spark, log).schema
    assert collect_rows(frame) == read_expected_rows(log)
    frame = load_frames(spark, log, bytesPerPartition="2k", format="kafka.records", check="TRUE")
    assert collect_rows(frame) == read_expected_rows(log)


def test_partitions_follow_bytesPerPartition(spark, log):
    assert load_frames(spark, log, bytesPerPartition="2000").rdd.getNumPartitions() > 20


def test_several_paths_and_globs(spark, log):
    names = sorted(os.path.join(log, name) for name in os.listdir(log) if name.endswith(".log"))
    assert collect_rows(load_frames(spark, names)) == read_expected_rows(log)
    assert collect_rows(load_frames(spark, log + "/*.log")) == read_expected_rows(log)


def test_a_schema_chooses_and_orders_the_columns(spark, log):
    frame = spark.read.format("wirescan").schema("value binary, offset bigint").load(log)
    assert frame.columns == ["value", "offset"]
    expected = [(row[0], row[3]) for row in read_expected_rows(log)]
    assert sorted((row.offset, row.value) for row in frame.collect()) == expected
    frame = load_frames(spark, log, columns="value, offset")
    assert sorted(map(tuple, frame.select("offset", "value").collect())) == expected


def test_not_null_columns_and_headers_by_schema(spark, log):
    schema = "offset bigint not null, headers array<struct<key: binary, value: binary>>"
    frame = spark.read.format("wirescan").schema(schema).load(log)
    assert not frame.schema["offset"].nullable
    rows = sorted((row.offset, [tuple(h) for h in row.headers]) for row in frame.collect())
    assert rows == [(row[0], row[4]) for row in read_expected_rows(log)]


def test_sql_reads_the_source(spark, log):
    spark.sql(
        f"create or replace temp view records using wirescan options (path '{log}', errors 'mark')"
    )
    rows = spark.sql("select count(*), max(offset) from records where fault is null")
    assert rows.first() == (1800, 1799)


@pytest.mark.parametrize(
    "schema, message",
    [
        ("offset bigint, colour binary", "colour"),
        ("offset string", "column offset of kafka.records is bigint, not string"),
        ("value string", "column value of kafka.records is binary, not string"),
    ],
)
def test_a_schema_that_does_not_fit(spark, log, schema, message):
    with pytest.raises(PySparkException, match=message):
        spark.read.format("wirescan").schema(schema).load(log).collect()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"format": "kafka.nothing"}, "no format 'kafka.nothing'"),
        ({"error": "mark"}, "no option 'error'"),
        ({"errors": "ignore"}, "errors must be one of strict, mark, skip"),
        ({"check": "maybe"}, "check must be true or false"),
        ({"bytesPerPartition": "many"}, "bytesPerPartition must be a size"),
        ({"maxInflated": "many"}, "maxInflated must be a size"),
        ({"maxRowBytes": "0"}, "maxRowBytes must be a size"),
        ({"columns": "offset,colour"}, "colour"),
    ],
)
def test_invalid_options_are_refused(spark, log, options, message):
    with pytest.raises(PySparkException, match=message):
        load_frames(spark, log, **options).collect()


def test_no_path_and_no_file(spark, tmp_path):
    with pytest.raises(PySparkException, match="needs a path"):
        spark.read.format("wirescan").load().collect()
    with pytest.raises(PySparkException, match="nothing-here"):
        load_frames(spark, str(tmp_path / "nothing-here")).collect()


def test_a_file_that_ends_inside_a_batch(spark, cut):
    path, _ = cut
    assert collect_rows(load_frames(spark, path)) == read_expected_rows(path)


def test_empty_input_gives_no_rows(spark, tmp_path):
    (tmp_path / "empty.log").write_bytes(b"")
    assert load_frames(spark, str(tmp_path / "empty.log")).collect() == []


def test_bad_bytes_in_each_mode(spark, damaged):
    path, position = damaged
    assert collect_rows(load_frames(spark, path, errors="skip")) == read_expected_rows(path, "skip")
    bad = load_frames(spark, path, errors="mark").where("fault is not null").collect()
    assert [row.fault for row in bad] == ["BAD_CHECKSUM"]
    assert load_frames(spark, path, check="false").count() == 200
    with pytest.raises(PySparkException) as caught:
        load_frames(spark, path).collect()
    assert f"at byte {position} of {path}" in str(caught.value)
    assert "BAD_CHECKSUM" in str(caught.value)


def test_paths_are_one_path_or_a_json_list():
    assert parse_paths({"path": "a,b"}) == ["a,b"]
    assert parse_paths({"paths": '["a", "b"]'}) == ["a", "b"]
    for text in ("/data", "5", '"a"', "[1]", "{}"):
        with pytest.raises(ValueError, match="option paths must be a JSON list of strings"):
            parse_paths({"paths": text})
    for options in ({}, {"paths": "[]"}):
        with pytest.raises(ValueError, match="needs a path"):
            parse_paths(options)


def test_sizes_have_units():
    sizes = [parse_size(text) for text in (None, "5", "2k", "64M", "1gb")]
    assert sizes == [SLICE_BYTES, 5, 2048, 64 << 20, 1 << 30]
    for text in ("", "0", "-1", "1.5m", "5 miles", "1" * 5000):
        with pytest.raises(ValueError, match="option bytesPerPartition must be a size"):
            parse_size(text)


@pytest.mark.parametrize(("name", "largest"), [("maxFrame", 2**32 - 1), ("maxInflated", 2**31 - 1)])
def test_errors_of_large_limits_name_the_option_and_the_value(name, largest):
    parse_reading({name: str(largest)})
    with pytest.raises(ValueError, match=f"option {name} must be at most {largest}, not '4096m'"):
        parse_reading({name: "4096m"})
