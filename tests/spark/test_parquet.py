"""to_parquet() writes the same files as without Spark: all of them or none, each row once."""

import os

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from tests.spark.records import ORDERS, make_batch
from wirescan import kafka
from wirescan.export.parquet import convert
from wirescan.spark import parquet_tasks as module
from wirescan.spark import read, to_parquet

pytestmark = pytest.mark.spark

both = pytest.mark.parametrize("writer", ["task", "spark"])


def list_parts(directory):
    return sorted(name for name in os.listdir(directory) if not name.startswith((".", "_")))


def list_counts(summary):
    return (
        summary.files,
        summary.frames,
        summary.records,
        summary.bytes,
        summary.faults,
        summary.tail,
    )


@pytest.mark.parametrize("writer, size", [("task", 200_000), ("spark", 64 << 20)])
def test_the_same_as_the_local_engine(spark, tmp_path, writer, size):
    source = str(ORDERS)
    local = convert(source, tmp_path / "local", "kafka.records", size=size, file_bytes=1)
    summary = to_parquet(
        spark, source, tmp_path / "spark", writer=writer, bytes_per_partition=size, file_bytes=1
    )
    assert list_counts(summary) == list_counts(local)
    assert summary.seconds > 0
    sizes = [path.stat().st_size for path in (tmp_path / "spark").glob("p*")]
    assert summary.written == sum(sizes)
    if writer == "task":
        assert list_parts(tmp_path / "spark") == list_parts(tmp_path / "local")
    by_spark = pq.read_table(tmp_path / "spark").sort_by("offset")
    assert by_spark.equals(pq.read_table(tmp_path / "local").sort_by("offset"))
    assert len(by_spark) == summary.records


def test_columns_and_compression_are_options(spark, log, tmp_path):
    out = tmp_path / "out"
    summary = to_parquet(
        spark,
        [log],
        out,
        columns=["value", "offset"],
        compression="snappy",
        bytes_per_partition=3000,
        file_bytes=1,
    )
    assert summary.records == 1800
    assert summary.files == 3
    assert len(list_parts(out)) > 10
    file = pq.ParquetFile(out / list_parts(out)[0])
    assert file.schema_arrow.names == ["value", "offset"]
    assert file.metadata.row_group(0).column(0).compression == "SNAPPY"


@both
def test_a_value_too_long_for_a_directory_is_named(spark, tmp_path, writer):
    """Spark's writer raised an error of Java that has no cause."""
    path = tmp_path / "0.log"
    path.write_bytes(kafka.encode_batch([kafka.Record(0, 1, b"x" * 300, b"v")]))
    with pytest.raises(PySparkException, match="too long for the name of a directory: key=xxx"):
        to_parquet(spark, path, tmp_path / "out", partition_by="key", writer=writer)


@both
@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_directories_are_spelled_as_spark_spells_them(spark, log, tmp_path, writer, scheme):
    """They were made below the current directory."""
    summary = to_parquet(spark, log, f"{scheme}{tmp_path}/out", columns=["offset"], writer=writer)
    assert summary.records == 1800
    assert pq.read_table(tmp_path / "out").num_rows == 1800
    assert set(os.listdir(tmp_path)) == {"topic-0", "out"}


@both
def test_bad_bytes_in_each_mode(spark, damaged, tmp_path, writer):
    path, position = damaged
    for errors, records in ("mark", 181), ("skip", 180):
        out = tmp_path / errors
        summary = to_parquet(spark, path, out, errors=errors, writer=writer)
        assert (summary.records, summary.faults) == (records, 1)
        assert spark.read.parquet(str(out)).where("fault is null").count() == 180
        faults = pq.read_table(f"{out}.faults")
        assert faults.select(["file", "start", "format", "fault"]).to_pylist() == [
            {"file": path, "start": position, "format": "kafka.batches", "fault": "BAD_CHECKSUM"}
        ]
        rows = spark.read.parquet(f"{out}.faults").collect()
        assert faults.to_pylist() == [row.asDict() for row in rows]
    with pytest.raises(PySparkException, match=f"at byte {position} of {path}"):
        to_parquet(spark, path, tmp_path / "strict", writer=writer)
    assert not (tmp_path / "strict").exists() or list_parts(tmp_path / "strict") == []
    good = tmp_path / "good"
    to_parquet(spark, path, good, errors="mark", check=False, writer=writer)
    assert not (tmp_path / "good.faults").exists()
    to_parquet(spark, path, tmp_path / "mark", check=False, writer=writer, overwrite=True)
    assert not (tmp_path / "mark.faults").exists()  # it belongs to the earlier output
    summary = to_parquet(spark, path, tmp_path / "unchecked", check=False, writer=writer)
    assert summary.records == 200


@both
def test_a_cut_tail_is_reported(spark, cut, tmp_path, writer):
    path, tail = cut
    summary = to_parquet(spark, path, tmp_path / "out", writer=writer)
    assert list_counts(summary) == (1, 1, 20, os.path.getsize(path), 0, tail)
    table = pq.read_table(tmp_path / "out", columns=["offset"])
    assert table["offset"].to_pylist() == list(range(20))


@both
def test_a_directory_with_files_needs_overwrite(spark, log, tmp_path, writer):
    out = tmp_path / "out"
    out.mkdir()
    assert to_parquet(spark, log, out, writer=writer).records == 1800
    before = list_parts(out)
    with pytest.raises(FileExistsError, match="overwrite"):
        to_parquet(spark, log, out, writer=writer)
    assert list_parts(out) == before
    to_parquet(spark, log, out, columns=["offset"], writer=writer, overwrite=True)
    frame = spark.read.parquet(str(out))
    assert frame.columns == ["offset"]
    assert frame.count() == 1800


def test_a_repeated_task_writes_its_rows_once(spark, log, tmp_path, monkeypatch):
    marker = str(tmp_path / "tried")
    write_parts = module.write_parts

    def fail_once(*arguments, **options):
        result = write_parts(*arguments, **options)
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return result
        raise OSError("the first try fails after it has written its file")

    monkeypatch.setattr(module, "write_parts", fail_once)
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
    for engine in ("spark", "task", "local", "task"):  # each replaces the output before it
        if engine == "local":
            convert(log, out, "kafka.records", columns=["offset"], overwrite=True)
        else:
            to_parquet(spark, log, out, columns=["offset"], writer=engine, overwrite=True)
        assert pq.read_table(out).num_rows == 1800


@both
@pytest.mark.parametrize(
    "raw", [b"", kafka.encode_batch([]), bytes(5000)], ids=["empty", "no records", "zeros"]
)
def test_input_without_records_gives_one_file_with_the_schema(spark, tmp_path, writer, raw):
    (tmp_path / "empty.log").write_bytes(raw)
    summary = to_parquet(spark, tmp_path / "empty.log", tmp_path / "out", writer=writer)
    assert (summary.records, summary.faults, summary.bytes) == (0, 0, len(raw))
    assert len(list_parts(tmp_path / "out")) == 1
    frame = spark.read.parquet(str(tmp_path / "out"))
    assert frame.schema == read(spark, tmp_path / "empty.log").schema
    assert frame.count() == 0
    assert not list((tmp_path / "out").glob("_temporary*"))


@both
def test_directories_are_those_of_the_local_engine(spark, log, tmp_path, writer):
    """Both writers use the directories of the local engine. Spark reads columns from the names."""
    by = ["codec", "timestamp:hour"]
    local = convert(log, tmp_path / "local", "kafka.records", partition_by=by)
    summary = to_parquet(
        spark, log, tmp_path / "out", partition_by=by, writer=writer, bytes_per_partition=10_000
    )
    assert list_counts(summary) == list_counts(local)
    expected = pq.read_table(tmp_path / "local", partitioning="hive").sort_by("offset")
    assert pq.read_table(tmp_path / "out", partitioning="hive").sort_by("offset").equals(expected)
    names = [f"codec={codec}/timestamp_hour=2023-11-14T22" for codec in range(5)]
    for out in (tmp_path / "local", tmp_path / "out"):
        assert (
            sorted({str(path.parent.relative_to(out)) for path in out.rglob("*.parquet")}) == names
        )
    if writer == "task":
        assert len(list((tmp_path / "out").rglob("*.parquet"))) == 5  # written by 6 tasks
    assert spark.read.parquet(str(tmp_path / "out")).where("codec = 3").count() == 360
    with pytest.raises(FileExistsError, match="overwrite"):
        to_parquet(spark, log, tmp_path / "out", writer=writer)
    to_parquet(spark, log, tmp_path / "out", writer=writer, overwrite=True)
    assert not [name for name in os.listdir(tmp_path / "out") if "=" in name]


@both
def test_filters_select_rows(spark, log, tmp_path, writer):
    filters = [("offset", ">=", 700), ("offset", "<", 1100)]
    summary = to_parquet(
        spark, log, tmp_path / "out", filters=filters, writer=writer, bytes_per_partition=5000
    )
    assert pq.read_table(tmp_path / "out")["offset"].to_pylist() == list(range(700, 1100))
    assert (summary.records, summary.files, summary.tail) == (400, 2, 0)


def test_small_inputs_make_few_files(spark, tmp_path):
    """Each task reads a few of 300 files. One file has all rows, in the order of the names."""
    for number in range(300):
        (tmp_path / f"{number:020}.log").write_bytes(make_batch(number * 20))
    summary = to_parquet(spark, str(tmp_path), tmp_path / "out", bytes_per_partition=20_000)
    assert summary.files == 300
    assert list_parts(tmp_path / "out") == ["part-00000.parquet"]
    assert pq.read_table(tmp_path / "out")["offset"].to_pylist() == list(range(6000))
    assert summary.written == os.path.getsize(tmp_path / "out" / "part-00000.parquet")


def test_invalid_arguments_are_refused(spark, log, tmp_path):
    with pytest.raises(ValueError, match="task, spark"):
        to_parquet(spark, log, tmp_path / "out", writer="java")
    with pytest.raises(ValueError, match="no format"):
        to_parquet(spark, log, tmp_path / "out", "kafka.nothing")
    with pytest.raises(ValueError, match="not 'rar'"):
        to_parquet(spark, log, tmp_path / "out", compression="rar")
    with pytest.raises(ValueError, match="partition_by"):
        to_parquet(spark, log, tmp_path / "out", columns=["offset"], partition_by="offset")
    assert not (tmp_path / "out").exists()
