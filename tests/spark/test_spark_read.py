"""read(): the same frames as without Spark, whatever the way in."""
import os

import pytest
from conftest import CORPUS, ORDERS, batch, collected, expected, segment
from pyspark.errors import PythonException

import wirescan
from wirescan.spark import read

pytestmark = pytest.mark.spark


def test_all_columns_of_a_partition_directory(spark, log):
    assert collected(read(spark, log)) == expected(log)


def test_small_slices_give_the_same(spark, log):
    frame = read(spark, log, bytes_per_partition=2000)
    assert frame.rdd.getNumPartitions() > 20
    assert collected(frame) == expected(log)


def test_a_real_partition(spark):
    assert collected(read(spark, ORDERS, bytes_per_partition=200_000)) == sorted(expected(str(ORDERS)))


def test_columns_are_those_asked_for_in_that_order(spark, log):
    frame = read(spark, log, columns=["value", "offset"])
    assert frame.columns == ["value", "offset"]
    assert sorted((r.offset, r.value) for r in frame.collect()) == [(r[0], r[3]) for r in expected(log)]


def test_paths_of_every_kind(spark, log, tmp_path):
    names = sorted(os.path.join(log, name) for name in os.listdir(log) if name.endswith(".log"))
    rows = expected(log)
    assert collected(read(spark, names)) == rows
    assert collected(read(spark, log + "/*.log")) == rows
    assert collected(read(spark, [names[0], log + "/*1200.log"])) == rows[:600] + rows[1200:]


def test_relative_paths(spark, tmp_path, monkeypatch):
    segment(tmp_path / "one.log")
    monkeypatch.chdir(tmp_path)
    assert read(spark, "one.log", columns=["offset"]).count() == 600


def test_batches_as_well_as_records(spark, log):
    frame = read(spark, log, "kafka.batches", columns=["base_offset", "record_count"])
    table = wirescan.scan(log, "kafka.batches")
    assert sorted(map(tuple, frame.collect())) == list(zip(table["base_offset"].tolist(),
                                                           table["record_count"].tolist()))


@pytest.mark.parametrize("name", ["live-0", "open-0", "compacted-0", "appended-0"])
def test_segments_as_brokers_leave_them(spark, name):
    source = str(CORPUS / name)
    table = wirescan.scan(source, "kafka.records")
    frame = read(spark, source, columns=["offset", "value"], bytes_per_partition=50_000)
    assert sorted(frame.selectExpr("offset", "length(value)").collect()) == sorted(
        (offset, None if size < 0 else size)
        for offset, size in zip(table["offset"].tolist(), table["value_size"].tolist()))


def test_a_file_that_ends_inside_a_batch(spark, cut):
    path, _ = cut
    for errors in "strict", "mark", "skip":
        rows = collected(read(spark, path, errors=errors))
        assert rows == expected(path, errors) and len(rows) == 20


def test_a_file_that_grows_after_it_was_planned(spark, cut):
    path, _ = cut
    frame = read(spark, path, columns=["offset"])
    with open(path, "r+b") as file:
        file.write(batch(0) + batch(20))
    assert sorted(r.offset for r in frame.collect()) == list(range(20))
    assert read(spark, path, columns=["offset"]).count() == 40


def test_empty_input(spark, tmp_path):
    (tmp_path / "empty.log").write_bytes(b"")
    assert read(spark, tmp_path / "empty.log").collect() == []
    (tmp_path / "zeros.log").write_bytes(bytes(5000))
    assert read(spark, tmp_path / "zeros.log").collect() == []


def test_bad_bytes_in_each_mode(spark, damaged):
    path, at = damaged
    assert collected(read(spark, path, errors="skip")) == expected(path, "skip")
    bad = [r for r in read(spark, path, errors="mark").collect() if r.fault]
    assert [r.fault for r in bad] == [wirescan.Fault.BAD_CHECKSUM]
    assert read(spark, path, errors="mark").count() == 181
    assert read(spark, path, check=False).count() == 200
    with pytest.raises(PythonException) as caught:
        read(spark, path).collect()
    assert f"at byte {at} of {path}" in str(caught.value) and "BAD_CHECKSUM" in str(caught.value)


def test_what_there_is_not(spark, log, tmp_path):
    with pytest.raises(ValueError, match="no format"):
        read(spark, log, "kafka.nothing")
    with pytest.raises(ValueError, match="colour"):
        read(spark, log, columns=["offset", "colour"])
    with pytest.raises(ValueError, match="strict"):
        read(spark, log, errors="ignore")
    with pytest.raises(FileNotFoundError):
        read(spark, tmp_path / "nothing")
