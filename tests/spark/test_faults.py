"""faults(): one row for each bad frame of many files, and none for good frames."""

import pyarrow.parquet as pq
import pytest

import wirescan
from tests.spark.records import make_batch, write_segment
from wirescan import lumberjack
from wirescan.export.fault_report import SCHEMA
from wirescan.frames.fault_names import MEANING
from wirescan.spark import read, to_parquet
from wirescan.spark.fault_rows import faults

pytestmark = pytest.mark.spark


@pytest.fixture
def mixed(tmp_path):
    """Six files: (directory, [(file, start, size, format, fault)]).

    The first, third and fifth have a batch with a wrong checksum, one with a wrong count, and
    noise.
    """
    directory = tmp_path / "orders-0"
    directory.mkdir()
    expected = []
    for number in range(6):
        path = directory / f"{number * 600:020}.log"
        write_segment(path, base=number * 600)
        if number % 2 == 0:
            good = path.read_bytes()
            starts = wirescan.scan(good, "kafka.batches")["start"].tolist()
            data = bytearray(good)
            data[starts[8] - 1] ^= 1
            fewer = bytearray(make_batch(7, 20))
            fewer[60] -= 1  # the last byte of the count
            noise = b"\xfe" * 400
            between = make_batch(27)
            path.write_bytes(data + fewer + between + noise + make_batch(47))
            expected += [
                (str(path), starts[7], starts[8] - starts[7], "kafka.batches", "BAD_CHECKSUM"),
                (str(path), len(good), len(fewer), "kafka.batches", "BAD_CHECKSUM"),
                (str(path), len(good + fewer + between), 400, "kafka.batches", "BAD_LENGTH"),
            ]
    return str(directory), expected


def list_rows(frame):
    return sorted((row.file, row.start, row.size, row.format, row.fault) for row in frame.collect())


def test_all_faults_are_reported(spark, mixed):
    path, expected = mixed
    frame = faults(spark, path, bytes_per_partition=1500)
    assert frame.columns == SCHEMA.names
    assert frame.rdd.getNumPartitions() > 6
    assert list_rows(frame) == expected
    for row in frame.collect():
        with open(row.file, "rb") as file:
            file.seek(row.start)
            assert row.near == file.read(16)
        assert row.meaning == MEANING[wirescan.Fault[row.fault]]


def test_frames_inside_good_ones(spark, mixed):
    """Without the check of the checksum, the batch with a wrong count is read.

    Its last record is one too many.
    """
    path, expected = mixed
    records = faults(spark, path, check=False).where("format = 'kafka.records'").collect()
    row_of_file = {row.file: row for row in records}
    assert sorted(row_of_file) == sorted({file for file, *_ in expected})
    for file, start, size, *_ in expected[1::3]:
        row = row_of_file[file]
        assert row.fault == "BAD_COUNT"
        assert row.start + row.size == start + size


def test_to_parquet_writes_the_same_faults(spark, mixed, tmp_path):
    path, expected = mixed
    for errors in ("mark", "skip"):
        out = tmp_path / errors
        summary = to_parquet(spark, path, out, errors=errors, bytes_per_partition=1500)
        table = pq.read_table(f"{out}.faults")
        assert summary.faults == len(expected)
        assert table.num_rows == len(expected)
        assert list_rows(spark.read.parquet(f"{out}.faults")) == expected
        assert table.schema.remove_metadata() == SCHEMA
    assert read(spark, path, errors="skip").count() == pq.read_table(tmp_path / "skip").num_rows


def test_no_faults_and_other_formats(spark, log, tmp_path):
    assert faults(spark, log).collect() == []
    path = tmp_path / "a.lumberjack"
    path.write_bytes(bytes(lumberjack.encode_batches([b"{}"] * 3, window=3)) + b"2Z????")
    (row,) = faults(spark, path, "lumberjack.events").collect()
    assert (row.format, row.near) == ("lumberjack.frames", b"2Z????")
    with pytest.raises(ValueError, match="no format"):
        faults(spark, log, "kafka.nothing")
