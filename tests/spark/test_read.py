"""read(): the same frames as without Spark."""

import json
import os

import pytest
from pyspark.errors import PythonException

import wirescan
from tests.spark.records import (
    KAFKA_CORPUS,
    ORDERS,
    collect_rows,
    make_batch,
    read_expected_rows,
    write_segment,
)
from tests.support.paths import AIVEN_STORAGE
from wirescan.spark import read

pytestmark = pytest.mark.spark


def test_all_columns_of_a_partition_directory(spark, log):
    assert collect_rows(read(spark, log)) == read_expected_rows(log)


def test_small_slices_give_the_same(spark, log):
    frame = read(spark, log, bytes_per_partition=2000)
    assert frame.rdd.getNumPartitions() > 20
    assert collect_rows(frame) == read_expected_rows(log)


def test_a_recorded_partition_is_read(spark):
    rows = collect_rows(read(spark, ORDERS, bytes_per_partition=200_000))
    assert rows == sorted(read_expected_rows(str(ORDERS)))


def test_columns_are_chosen_and_ordered(spark, log):
    frame = read(spark, log, columns=["value", "offset"])
    assert frame.columns == ["value", "offset"]
    rows = sorted((row.offset, row.value) for row in frame.collect())
    assert rows == [(row[0], row[3]) for row in read_expected_rows(log)]


def test_paths_of_every_kind(spark, log, tmp_path):
    names = sorted(os.path.join(log, name) for name in os.listdir(log) if name.endswith(".log"))
    rows = read_expected_rows(log)
    assert collect_rows(read(spark, names)) == rows
    assert collect_rows(read(spark, log + "/*.log")) == rows
    assert collect_rows(read(spark, [names[0], log + "/*1200.log"])) == rows[:600] + rows[1200:]


def test_relative_paths_are_read(spark, tmp_path, monkeypatch):
    write_segment(tmp_path / "one.log")
    monkeypatch.chdir(tmp_path)
    assert read(spark, "one.log", columns=["offset"]).count() == 600


def test_batches_are_read(spark, log):
    frame = read(spark, log, "kafka.batches", columns=["base_offset", "record_count"])
    table = wirescan.scan(log, "kafka.batches")
    expected = list(zip(table["base_offset"].tolist(), table["record_count"].tolist()))
    assert sorted(map(tuple, frame.collect())) == expected


@pytest.mark.parametrize("name", ["live-0", "open-0", "compacted-0", "appended-0"])
def test_segments_of_brokers_are_read(spark, name):
    source = str(KAFKA_CORPUS / name)
    table = wirescan.scan(source, "kafka.records")
    frame = read(spark, source, columns=["offset", "value"], bytes_per_partition=50_000)
    sizes = [None if size < 0 else size for size in table["value_size"].tolist()]
    expected = sorted(zip(table["offset"].tolist(), sizes))
    assert sorted(frame.selectExpr("offset", "length(value)").collect()) == expected


def test_a_file_that_ends_inside_a_batch(spark, cut):
    path, _ = cut
    for errors in "strict", "mark", "skip":
        rows = collect_rows(read(spark, path, errors=errors))
        assert rows == read_expected_rows(path, errors)
        assert len(rows) == 20


def test_a_file_that_grows_after_the_plan(spark, cut):
    path, _ = cut
    frame = read(spark, path, columns=["offset"])
    with open(path, "r+b") as file:
        file.write(make_batch(0) + make_batch(20))
    assert sorted(row.offset for row in frame.collect()) == list(range(20))
    assert read(spark, path, columns=["offset"]).count() == 40


def test_segments_that_are_stored_in_chunks(spark):
    path = str(AIVEN_STORAGE / "compressed")
    columns = ["topic", "partition", "offset"]
    table = read(spark, path, format="kafka.records", columns=columns)
    rows = table.where("offset >= 240 and offset < 243").collect()
    assert [tuple(row) for row in rows] == [("orders", 0, offset) for offset in (240, 241, 242)]
    expected = json.loads((AIVEN_STORAGE / "expected.json").read_text())
    assert table.count() >= expected["compressed"]["read_uncommitted"]["records"]


def test_empty_input_gives_no_rows(spark, tmp_path):
    (tmp_path / "empty.log").write_bytes(b"")
    assert read(spark, tmp_path / "empty.log").collect() == []
    (tmp_path / "zeros.log").write_bytes(bytes(5000))
    assert read(spark, tmp_path / "zeros.log").collect() == []


def test_bad_bytes_in_each_mode(spark, damaged):
    path, position = damaged
    assert collect_rows(read(spark, path, errors="skip")) == read_expected_rows(path, "skip")
    faults = [row.fault for row in read(spark, path, errors="mark").collect() if row.fault]
    assert faults == ["BAD_CHECKSUM"]
    assert read(spark, path, errors="mark").count() == 181
    assert read(spark, path, check=False).count() == 200
    with pytest.raises(PythonException) as caught:
        read(spark, path).collect()
    assert f"at byte {position} of {path}" in str(caught.value)
    assert "BAD_CHECKSUM" in str(caught.value)


def test_invalid_arguments_are_refused(spark, log, tmp_path):
    with pytest.raises(ValueError, match="no format"):
        read(spark, log, "kafka.nothing")
    with pytest.raises(ValueError, match="colour"):
        read(spark, log, columns=["offset", "colour"])
    for schema in (None, "kafka"):  # Spark's reader of Arrow refused the batches
        with pytest.raises(ValueError, match="column 'offset' is named twice"):
            read(spark, log, columns=["offset", "key", "offset"], schema=schema)
    with pytest.raises(ValueError, match="strict"):
        read(spark, log, errors="ignore")
    with pytest.raises(FileNotFoundError, match="nothing"):
        read(spark, tmp_path / "nothing")
