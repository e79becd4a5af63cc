"""The data source `wirescan`, by spark.read and by SQL."""
import os

import pytest
from conftest import collected, expected
from pyspark.errors import PySparkException

import wirescan
from wirescan.partition import SLICE_BYTES
from wirescan.spark import read
from wirescan.spark.source import paths_of, size_of

pytestmark = pytest.mark.spark


def load(spark, path, **options):
    return spark.read.format("wirescan").options(**options).load(path)


def test_the_same_as_read(spark, log):
    frame = load(spark, log)
    assert frame.schema == read(spark, log).schema
    assert collected(frame) == expected(log)
    assert collected(load(spark, log, bytesPerPartition="2k", format="kafka.records", check="TRUE")) == expected(log)


def test_partitions_follow_bytesPerPartition(spark, log):
    assert load(spark, log, bytesPerPartition="2000").rdd.getNumPartitions() > 20


def test_several_paths_and_globs(spark, log):
    names = sorted(os.path.join(log, name) for name in os.listdir(log) if name.endswith(".log"))
    assert collected(load(spark, names)) == expected(log)
    assert collected(load(spark, log + "/*.log")) == expected(log)


def test_a_schema_chooses_and_orders_the_columns(spark, log):
    frame = spark.read.format("wirescan").schema("value binary, offset bigint").load(log)
    assert frame.columns == ["value", "offset"]
    assert sorted((r.offset, r.value) for r in frame.collect()) == [(r[0], r[3]) for r in expected(log)]
    named = load(spark, log, columns="value, offset")
    assert sorted(map(tuple, named.select("offset", "value").collect())) == [(r[0], r[3]) for r in expected(log)]


def test_not_null_columns_and_headers_by_schema(spark, log):
    wanted = "offset bigint not null, headers array<struct<key: binary, value: binary>>"
    frame = spark.read.format("wirescan").schema(wanted).load(log)
    assert not frame.schema["offset"].nullable
    assert sorted((r.offset, [tuple(h) for h in r.headers]) for r in frame.collect()) == [
        (r[0], r[4]) for r in expected(log)]


def test_sql(spark, log):
    spark.sql(f"create or replace temp view records using wirescan options (path '{log}', errors 'mark')")
    assert spark.sql("select count(*), max(offset) from records where fault = 0").first() == (1800, 1799)


@pytest.mark.parametrize("schema, message", [
    ("offset bigint, colour binary", "colour"),
    ("offset string", "column offset of kafka.records is bigint, not string"),
    ("value string", "column value of kafka.records is binary, not string"),
])
def test_a_schema_that_does_not_fit(spark, log, schema, message):
    with pytest.raises(PySparkException, match=message):
        spark.read.format("wirescan").schema(schema).load(log).collect()


@pytest.mark.parametrize("options, message", [
    ({"format": "kafka.nothing"}, "no format 'kafka.nothing'"),
    ({"error": "mark"}, "no option 'error'"),
    ({"errors": "ignore"}, "errors must be one of strict, mark, skip"),
    ({"check": "maybe"}, "check must be true or false"),
    ({"bytesPerPartition": "many"}, "bytesPerPartition must be a size"),
    ({"columns": "offset,colour"}, "colour"),
])
def test_unfit_options(spark, log, options, message):
    with pytest.raises(PySparkException, match=message):
        load(spark, log, **options).collect()


def test_no_path_and_no_file(spark, tmp_path):
    with pytest.raises(PySparkException, match="needs a path"):
        spark.read.format("wirescan").load().collect()
    with pytest.raises(PySparkException, match="nothing-here"):
        load(spark, str(tmp_path / "nothing-here")).collect()


def test_a_file_that_ends_inside_a_batch(spark, cut):
    path, _ = cut
    assert collected(load(spark, path)) == expected(path)


def test_empty_input(spark, tmp_path):
    (tmp_path / "empty.log").write_bytes(b"")
    assert load(spark, str(tmp_path / "empty.log")).collect() == []


def test_bad_bytes_in_each_mode(spark, damaged):
    path, at = damaged
    assert collected(load(spark, path, errors="skip")) == expected(path, "skip")
    assert [r.fault for r in load(spark, path, errors="mark").where("fault != 0").collect()] == [
        wirescan.Fault.BAD_CHECKSUM]
    assert load(spark, path, check="false").count() == 200
    with pytest.raises(PySparkException) as caught:
        load(spark, path).collect()
    assert f"at byte {at} of {path}" in str(caught.value) and "BAD_CHECKSUM" in str(caught.value)


def test_paths():
    assert paths_of({"path": "a,b"}) == ["a,b"] and paths_of({"paths": '["a", "b"]'}) == ["a", "b"]
    for text in ("/data", "5", '"a"', '[1]', "{}"):
        with pytest.raises(ValueError, match="option paths must be a list of texts in JSON"):
            paths_of({"paths": text})
    for options in ({}, {"paths": "[]"}):
        with pytest.raises(ValueError, match="needs a path"):
            paths_of(options)


def test_sizes():
    assert [size_of(text) for text in (None, "5", "2k", "64M", "1gb")] == [SLICE_BYTES, 5, 2048, 64 << 20, 1 << 30]
    for text in ("", "0", "-1", "1.5m", "5 miles"):
        with pytest.raises(ValueError, match="bytesPerPartition"):
            size_of(text)
