"""`to_parquet` in the tasks to an object store: moto's S3 server on the loopback."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import wirescan
from tests.spark.records import ORDERS, make_batch
from wirescan.export.parquet_writer import FAULTS, WrittenFile
from wirescan.files.store_connection import set_default_options
from wirescan.spark import to_parquet
from wirescan.spark.store_output import StoreOutput

pytestmark = pytest.mark.spark
COLUMNS = ["offset", "key", "value"]


@pytest.fixture(scope="module")
def objects():
    from tests.support.object_store import ObjectStore

    with ObjectStore() as store:
        yield store


def list_names(objects, directory):
    """The objects below a directory of the bucket, relative to it, in their order."""
    selector = fs.FileSelector(f"bucket/{directory}", recursive=True, allow_not_found=True)
    infos = [info for info in objects.files.get_file_info(selector) if info.is_file]
    return sorted(info.path.removeprefix(f"bucket/{directory}/") for info in infos)


def read_rows(objects, directory):
    table = pq.read_table(f"bucket/{directory}", filesystem=objects.files)
    return table.sort_by("offset").select(COLUMNS).to_pylist()


@pytest.fixture(scope="module")
def expected():
    table = wirescan.scan(str(ORDERS), "kafka.records").to_arrow(COLUMNS, binary="binary")
    return table.sort_by("offset").to_pylist()


@pytest.mark.parametrize("file_bytes", [1, 128 << 20])
def test_rows_of_a_log(spark, objects, expected, file_bytes):
    directory = f"rows-{file_bytes}"
    summary = to_parquet(
        spark,
        str(ORDERS),
        objects.url(directory),
        columns=COLUMNS,
        bytes_per_partition=200_000,
        file_bytes=file_bytes,
    )
    assert read_rows(objects, directory) == expected
    names = list_names(objects, directory)
    sizes = objects.files.get_file_info([f"bucket/{directory}/{name}" for name in names])
    assert summary.records == len(expected)
    assert summary.written == sum(info.size for info in sizes)
    parts = names[1:] if names[0] == "_SUCCESS" else None
    assert parts and all(name.startswith("part-") for name in parts)
    # Small files of several tasks are merged.
    assert (len(parts) == 1) == (file_bytes > 1)


def test_directories_of_a_column(spark, objects, expected):
    to_parquet(
        spark, str(ORDERS), objects.url("by"), columns=[*COLUMNS, "codec"], partition_by="codec"
    )
    assert read_rows(objects, "by") == expected
    names = list_names(objects, "by")
    assert {name.partition("/")[0] for name in names} > {"_SUCCESS", "codec=0"}


def test_a_job_that_fails_leaves_the_output_as_it_was(spark, objects, damaged, log):
    path, _ = damaged
    url = objects.url("kept")
    to_parquet(spark, log, url, columns=COLUMNS)
    before = list_names(objects, "kept")
    with pytest.raises(Exception, match="BAD_CHECKSUM"):
        to_parquet(spark, path, url, columns=COLUMNS, overwrite=True, bytes_per_partition=5000)
    assert list_names(objects, "kept") == before


def test_files_are_replaced_only_on_request(spark, objects, tmp_path, log):
    url = objects.url("replaced")
    to_parquet(spark, log, url, columns=COLUMNS)
    segment = tmp_path / f"{0:020}.log"
    segment.write_bytes(make_batch(0))
    with pytest.raises(FileExistsError, match="s3://bucket/replaced has files in it"):
        to_parquet(spark, str(segment), url, columns=COLUMNS)
    to_parquet(spark, str(segment), url, columns=COLUMNS, overwrite=True)
    assert [row["offset"] for row in read_rows(objects, "replaced")] == list(range(20))
    objects.put("replaced/codec=0/notes.txt", b"mine")
    with pytest.raises(FileExistsError, match=r"holds codec=0/notes\.txt"):
        to_parquet(spark, str(segment), url, columns=COLUMNS, overwrite=True)


def test_bad_frames_are_beside_the_output(spark, objects, damaged):
    path, _ = damaged
    to_parquet(spark, path, objects.url("marked"), columns=COLUMNS, errors="skip")
    faults = pq.read_table(f"bucket/marked{FAULTS}", filesystem=objects.files)
    assert faults["fault"].to_pylist() == ["BAD_CHECKSUM"]
    assert list_names(objects, "marked")[0] == "_SUCCESS"


def test_the_settings_of_the_session_are_those_of_the_store(spark, objects, log, tmp_path):
    configuration = spark._jsc.hadoopConfiguration()
    settings = {
        "fs.s3a.access.key": "wirescan",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.endpoint": objects.address,
        "fs.s3a.endpoint.region": "us-east-1",
    }
    for name, value in settings.items():
        configuration.set(name, value)
    try:
        to_parquet(spark, log, "s3a://bucket/by-settings", columns=COLUMNS)
        objects.put_directory(Path(log), "topic-0")
        set_default_options(None)
        to_parquet(spark, "s3a://bucket/topic-0", tmp_path / "out", columns=COLUMNS)
    finally:
        set_default_options(None)
        for name in settings:
            configuration.unset(name)
    assert len(read_rows(objects, "by-settings")) == 1800
    assert len(pq.read_table(tmp_path / "out")) == 1800


# ---- without Spark


class Refusing:
    """A file system that copies no object to a path with a certain end."""

    def __init__(self, files, end):
        self.files = files
        self.end = end

    def __getattr__(self, name):
        return getattr(self.files, name)

    def copy_file(self, source, target):
        if target.endswith(self.end):
            raise OSError("no space")
        self.files.copy_file(source, target)


def write_part(output, number, text=b"rows"):
    path = f"{output.make_part_path(number, '0')}.parquet"
    with output.open_file(path) as file:
        file.write(text)
    return WrittenFile("", path, 1, len(text))


def make_output(objects, directory, end="nothing", **options):
    files = Refusing(objects.files, end)
    return StoreOutput(f"s3://bucket/{directory}", file_system=files, **options)


def test_only_committed_files_appear(objects):
    with make_output(objects, "chosen") as output:
        parts = [write_part(output, number) for number in range(3)]
        assert all(name.startswith("_temporary-") for name in list_names(objects, "chosen"))
        assert output.commit(parts[1:]) == 8
    names = list_names(objects, "chosen")
    assert [Path(name).name[:10] for name in names] == ["_SUCCESS", "part-00000", "part-00001"]


def test_a_copy_that_fails_changes_nothing(objects):
    with make_output(objects, "failing") as output:
        output.commit([write_part(output, 0)])
    before = list_names(objects, "failing")
    second = make_output(objects, "failing", overwrite=True)
    second._files.file_system.end = f"part-00001-{second._files.job}.parquet"
    with pytest.raises(OSError, match="no space"), second as output:
        output.commit([write_part(output, number, b"new") for number in range(3)])
    assert list_names(objects, "failing") == before


def test_a_second_output_replaces_the_first(objects):
    for number in range(2):
        with make_output(objects, "second", overwrite=number > 0) as output:
            output.commit([write_part(output, 0)])
    assert len(list_names(objects, "second")) == 2


def test_an_output_that_was_faster_is_kept(objects):
    with make_output(objects, "raced") as slow:
        part = write_part(slow, 0)
        with make_output(objects, "raced", overwrite=True) as fast:
            fast.commit([write_part(fast, 0, b"faster")])
        with pytest.raises(FileExistsError, match="files of another conversion"):
            slow.commit([part])
    assert len(list_names(objects, "raced")) == 2
