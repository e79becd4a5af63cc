"""faults(): every bad frame of many files, told once, and nothing of the good ones."""
import pyarrow.parquet as pq
import pytest
from conftest import batch, segment

import wirescan
from wirescan import lumberjack
from wirescan.errors import MEANING
from wirescan.faults import SCHEMA
from wirescan.spark import read, to_parquet
from wirescan.spark.faults import faults

pytestmark = pytest.mark.spark


@pytest.fixture
def mixed(tmp_path):
    """Six files; in the first, third and fifth are a batch of another checksum, one that claims another count, and
    noise: (the directory, [(file, start, size, format, fault)])."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    wanted = []
    for number in range(6):
        path = directory / f"{number * 600:020}.log"
        segment(path, base=number * 600)
        if number % 2 == 0:
            good = path.read_bytes()
            starts = wirescan.scan(good, "kafka.batches")["start"].tolist()
            data = bytearray(good)
            data[starts[8] - 1] ^= 1
            fewer = bytearray(batch(7, 20))
            fewer[60] -= 1                                          # the last byte of the count
            noise = b"\xfe" * 400
            between = batch(27)
            path.write_bytes(data + fewer + between + noise + batch(47))
            wanted += [(str(path), starts[7], starts[8] - starts[7], "kafka.batches", "BAD_CHECKSUM"),
                       (str(path), len(good), len(fewer), "kafka.batches", "BAD_CHECKSUM"),
                       (str(path), len(good + fewer + between), 400, "kafka.batches", "BAD_LENGTH")]
    return str(directory), wanted


def rows(frame):
    return sorted((row.file, row.start, row.size, row.format, row.fault) for row in frame.collect())


def test_all_are_told(spark, mixed):
    path, wanted = mixed
    frame = faults(spark, path, bytes_per_partition=1500)
    found = frame.collect()
    assert frame.columns == SCHEMA.names and frame.rdd.getNumPartitions() > 6
    assert rows(frame) == wanted
    for row in found:
        with open(row.file, "rb") as file:
            file.seek(row.start)
            assert row.near == file.read(16)
        assert row.meaning == MEANING[wirescan.Fault[row.fault]]


def test_frames_inside_good_ones(spark, mixed):
    """Without the checksum the batch whose count lies opens, and its last record is one too many."""
    path, wanted = mixed
    found = {row.file: row for row in faults(spark, path, check=False).where("format = 'kafka.records'").collect()}
    assert sorted(found) == sorted({file for file, *_ in wanted})
    for file, start, size, *_ in wanted[1::3]:
        assert found[file].fault == "BAD_COUNT" and found[file].start + found[file].size == start + size


def test_the_same_as_what_is_written(spark, mixed, tmp_path):
    path, wanted = mixed
    for errors in ("mark", "skip"):
        done = to_parquet(spark, path, tmp_path / errors, errors=errors, bytes_per_partition=1500)
        assert done.faults == len(wanted) == pq.read_table(tmp_path / errors / "_faults").num_rows
        assert rows(spark.read.parquet(str(tmp_path / errors / "_faults"))) == wanted
        assert pq.read_table(tmp_path / errors / "_faults").schema.remove_metadata() == SCHEMA
    assert read(spark, path, errors="skip").count() == pq.read_table(tmp_path / "skip").num_rows


def test_none_and_other_formats(spark, log, tmp_path):
    assert faults(spark, log).collect() == []
    path = tmp_path / "a.lumberjack"
    path.write_bytes(bytes(lumberjack.encode_batches([b"{}"] * 3, window=3)) + b"2Z????")
    (row,) = faults(spark, path, "lumberjack.events").collect()
    assert (row.format, row.near) == ("lumberjack.frames", b"2Z????")
    with pytest.raises(ValueError, match="no format"):
        faults(spark, log, "kafka.nothing")
