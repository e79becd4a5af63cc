"""to_parquet(): the same files as without Spark, all of them or none, and each row once."""
import os

import pyarrow.parquet as pq
import pytest
from conftest import ORDERS, batch
from pyspark.errors import PySparkException

from wirescan import kafka
from wirescan.parquet import convert
from wirescan.spark import parquet as module
from wirescan.spark import read, to_parquet

pytestmark = pytest.mark.spark

both = pytest.mark.parametrize("writer", ["task", "spark"])


def parts(directory):
    return sorted(name for name in os.listdir(directory) if not name.startswith((".", "_")))


def counts(summary):
    return summary.files, summary.frames, summary.records, summary.bytes, summary.faults, summary.tail


@pytest.mark.parametrize("writer, size", [("task", 200_000), ("spark", 64 << 20)])
def test_the_same_as_the_local_engine(spark, tmp_path, writer, size):
    source = str(ORDERS)
    local = convert(source, tmp_path / "local", size=size, file_bytes=1)
    summary = to_parquet(spark, source, tmp_path / "spark", writer=writer, bytes_per_partition=size, file_bytes=1)
    assert counts(summary) == counts(local)
    assert summary.seconds > 0 and summary.written == sum(p.stat().st_size for p in (tmp_path / "spark").glob("p*"))
    if writer == "task":
        assert parts(tmp_path / "spark") == parts(tmp_path / "local")
    frames = [pq.read_table(tmp_path / engine).sort_by("offset") for engine in ("spark", "local")]
    assert frames[0].equals(frames[1]) and len(frames[0]) == summary.records


def test_columns_and_compression(spark, log, tmp_path):
    out = tmp_path / "out"
    summary = to_parquet(spark, [log], out, columns=["value", "offset"], compression="snappy", bytes_per_partition=3000,
                         file_bytes=1)
    assert summary.records == 1800 and summary.files == 3 and len(parts(out)) > 10
    file = pq.ParquetFile(out / parts(out)[0])
    assert file.schema_arrow.names == ["value", "offset"]
    assert file.metadata.row_group(0).column(0).compression == "SNAPPY"


@both
def test_bad_bytes_in_each_mode(spark, damaged, tmp_path, writer):
    path, at = damaged
    for errors, records in ("mark", 181), ("skip", 180):
        out = tmp_path / errors
        summary = to_parquet(spark, path, out, errors=errors, writer=writer)
        assert (summary.records, summary.faults) == (records, 1)
        assert spark.read.parquet(str(out)).where("fault = 0").count() == 180
        told = pq.read_table(out / "_faults")
        assert told.select(["file", "start", "format", "fault"]).to_pylist() == [
            {"file": path, "start": at, "format": "kafka.batches", "fault": "BAD_CHECKSUM"}]
        assert told.to_pylist() == [row.asDict() for row in spark.read.parquet(str(out / "_faults")).collect()]
    with pytest.raises(PySparkException, match=f"at byte {at} of {path}"):
        to_parquet(spark, path, tmp_path / "strict", writer=writer)
    assert not (tmp_path / "strict").exists() or parts(tmp_path / "strict") == []
    good = tmp_path / "good"
    to_parquet(spark, path, good, errors="mark", check=False, writer=writer)
    assert spark.read.parquet(str(good / "_faults")).count() == 0           # it is there, with its columns
    assert to_parquet(spark, path, tmp_path / "unchecked", check=False, writer=writer).records == 200


@both
def test_a_cut_tail_is_reported(spark, cut, tmp_path, writer):
    path, tail = cut
    summary = to_parquet(spark, path, tmp_path / "out", writer=writer)
    assert counts(summary) == (1, 1, 20, os.path.getsize(path), 0, tail)
    assert pq.read_table(tmp_path / "out", columns=["offset"])["offset"].to_pylist() == list(range(20))


@both
def test_a_directory_with_files_is_left_alone_unless_told(spark, log, tmp_path, writer):
    out = tmp_path / "out"
    out.mkdir()
    assert to_parquet(spark, log, out, writer=writer).records == 1800
    before = parts(out)
    with pytest.raises(FileExistsError, match="overwrite"):
        to_parquet(spark, log, out, writer=writer)
    assert parts(out) == before
    to_parquet(spark, log, out, columns=["offset"], writer=writer, overwrite=True)
    assert spark.read.parquet(str(out)).columns == ["offset"] and spark.read.parquet(str(out)).count() == 1800


def test_a_task_that_is_tried_again_leaves_its_rows_once(spark, log, tmp_path, monkeypatch):
    once = str(tmp_path / "tried")
    real = module.write_parts

    def failing(*arguments, **options):
        done = real(*arguments, **options)
        try:
            os.close(os.open(once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return done
        raise OSError("the first try fails after it has written its file")
    monkeypatch.setattr(module, "write_parts", failing)
    assert to_parquet(spark, log, tmp_path / "out").records == 1800
    assert pq.read_table(tmp_path / "out")["offset"].to_pylist() == list(range(1800))


def test_only_an_earlier_output_is_overwritten(spark, log, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "letters.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="letters.txt"):
        to_parquet(spark, log, out, overwrite=True)
    assert os.listdir(out) == ["letters.txt"]
    (out / "letters.txt").unlink()
    for engine in ("spark", "task", "local", "task"):          # each replaces what the other left
        if engine == "local":
            convert(log, out, columns=["offset"], overwrite=True)
        else:
            to_parquet(spark, log, out, columns=["offset"], writer=engine, overwrite=True)
        assert pq.read_table(out).num_rows == 1800


@both
@pytest.mark.parametrize("raw", [b"", kafka.encode_batch([]), bytes(5000)], ids=["empty", "no records", "zeros"])
def test_input_without_records_gives_one_file_with_the_schema(spark, tmp_path, writer, raw):
    (tmp_path / "empty.log").write_bytes(raw)
    summary = to_parquet(spark, tmp_path / "empty.log", tmp_path / "out", writer=writer)
    assert (summary.records, summary.faults, summary.bytes) == (0, 0, len(raw))
    assert len(parts(tmp_path / "out")) == 1
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert frame.schema == read(spark, tmp_path / "empty.log").schema and frame.count() == 0
    assert not list((tmp_path / "out").glob("_temporary*"))


@both
def test_directories_by_values(spark, log, tmp_path, writer):
    """The layout of both writers is that of the local engine, and Spark finds the columns in it."""
    by = ["codec", "timestamp:hour"]
    local = convert(log, tmp_path / "local", partition_by=by)
    summary = to_parquet(spark, log, tmp_path / "out", partition_by=by, writer=writer, bytes_per_partition=10_000)
    assert counts(summary) == counts(local)
    wanted = pq.read_table(tmp_path / "local", partitioning="hive").sort_by("offset")
    assert pq.read_table(tmp_path / "out", partitioning="hive").sort_by("offset").equals(wanted)
    directories = [sorted({str(path.parent.relative_to(out)) for path in out.rglob("*.parquet")})
                   for out in (tmp_path / "local", tmp_path / "out")]
    assert directories[0] == directories[1] == [f"codec={codec}/timestamp_hour=2023-11-14T22" for codec in range(5)]
    if writer == "task":
        assert len(list((tmp_path / "out").rglob("*.parquet"))) == 5        # of 6 tasks
    assert spark.read.parquet(str(tmp_path / "out")).where("codec = 3").count() == 360
    with pytest.raises(FileExistsError, match="overwrite"):
        to_parquet(spark, log, tmp_path / "out", writer=writer)
    to_parquet(spark, log, tmp_path / "out", writer=writer, overwrite=True)
    assert not [name for name in os.listdir(tmp_path / "out") if "=" in name]


@both
def test_filters(spark, log, tmp_path, writer):
    wanted = [("offset", ">=", 700), ("offset", "<", 1100)]
    summary = to_parquet(spark, log, tmp_path / "out", filters=wanted, writer=writer, bytes_per_partition=5000)
    assert pq.read_table(tmp_path / "out")["offset"].to_pylist() == list(range(700, 1100))
    assert (summary.records, summary.files, summary.tail) == (400, 2, 0)


def test_small_inputs_make_few_files(spark, tmp_path):
    """300 files, read by tasks of a few each: one file of Parquet, in the order of the names."""
    for number in range(300):
        (tmp_path / f"{number:020}.log").write_bytes(batch(number * 20))
    summary = to_parquet(spark, str(tmp_path), tmp_path / "out", bytes_per_partition=20_000)
    assert summary.files == 300 and parts(tmp_path / "out") == ["part-00000.parquet"]
    assert pq.read_table(tmp_path / "out")["offset"].to_pylist() == list(range(6000))
    assert summary.written == os.path.getsize(tmp_path / "out" / "part-00000.parquet")


def test_what_does_not_fit(spark, log, tmp_path):
    with pytest.raises(ValueError, match="task, spark"):
        to_parquet(spark, log, tmp_path / "out", writer="java")
    with pytest.raises(ValueError, match="writer='spark'"):
        to_parquet(spark, log, "s3://bucket/out")
    with pytest.raises(ValueError, match="no format"):
        to_parquet(spark, log, tmp_path / "out", "kafka.nothing")
    with pytest.raises(ValueError, match="partition_by"):
        to_parquet(spark, log, tmp_path / "out", columns=["offset"], partition_by="offset")
    assert not (tmp_path / "out").exists()
