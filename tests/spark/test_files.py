"""Missing, empty, damaged and unreadable files, and very many files.

The error is one line with the reason and the place.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
from pyspark.errors import PySparkException

from tests.spark.records import make_batch, write_segment
from wirescan.spark import read

pytestmark = pytest.mark.spark
FILES_IN_FOLDER = 1000
# A command prefix. Root loses the capability to read all files.
DROP_CAPABILITIES = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
# Prints the error of each file and function, in a session without the capabilities of root.
DENIED = """
import json, sys
from wirescan.spark import read, session
spark = session("denied", "local[1,2]", **{"spark.driver.memory": "1g"})
for path in sys.argv[1:]:
    for way in (lambda: read(spark, path), lambda: spark.read.format("wirescan").load(path)):
        try:
            print(json.dumps(way().count()))
        except Exception as error:
            print(json.dumps(f"{type(error).__name__}: {error}"))
spark.stop()
"""


def load_paths(spark, path, **options):
    return spark.read.format("wirescan").options(**options).load(str(path))


WAYS = pytest.mark.parametrize("way", [read, load_paths])


def format_error(call):
    """Return the error of a call as one line. Spark may add a line before it and one after it."""
    with pytest.raises((OSError, EOFError, ValueError, PySparkException)) as caught:
        call()
    lines = str(caught.value).strip().splitlines()
    assert len(lines) <= 3, caught.value
    assert "Traceback" not in str(caught.value), caught.value
    return " ".join(lines)


@WAYS
def test_paths_that_cannot_be_read(spark, tmp_path, way):
    for path, reason in (
        (tmp_path / "none.log", "No such file or directory"),
        (tmp_path, "no file to read in "),
        (tmp_path / "*.log", "no file to read in "),
        ("/dev/zero", "not a regular file"),
        ("nope://bucket/a.log", "no file system for nope://bucket"),
    ):
        text = format_error(lambda: way(spark, path).count())
        assert reason in text
        assert str(path).removesuffix("/a.log") in text


@WAYS
def test_empty_files_have_no_rows(spark, tmp_path, way):
    (tmp_path / "empty.log").touch()
    assert way(spark, tmp_path / "empty.log").collect() == []
    write_segment(tmp_path / f"{0:020}.log")
    (tmp_path / f"{600:020}.log").touch()
    assert way(spark, tmp_path).count() == 600


@WAYS
def test_a_file_that_shrinks_between_plan_and_read(spark, tmp_path, way):
    path = write_segment(tmp_path / "shrinks.log")
    whole = os.path.getsize(path)
    frame = way(spark, path)
    assert frame.rdd.getNumPartitions() == 1  # this makes the plan
    os.truncate(path, 3000)
    assert f"EOFError: {path} ends at 3000, before {whole}" in format_error(frame.collect)
    os.unlink(path)
    assert f"No such file or directory: '{path}'" in format_error(frame.collect)


@WAYS
def test_damage_is_reported_in_a_line(spark, damaged, way):
    path, position = damaged
    assert f"(BAD_CHECKSUM) at byte {position} of {path}" in format_error(way(spark, path).count)


def test_errors_of_user_functions_have_a_traceback(spark, log):
    def fails(batches):
        for _ in batches:
            raise ValueError("an error of the user")
        yield from ()

    frame = read(spark, log)
    with pytest.raises(PySparkException, match=r"(?s)Traceback.*in fails.*an error of the user"):
        frame.mapInArrow(fails, frame.schema).collect()


def test_unreadable_files_are_named(tmp_path):
    """A file or a directory may be unreadable. The JVM logs no long stack for the error."""
    file = tmp_path / "file.log"
    directory = tmp_path / "directory"
    write_segment(file)
    directory.mkdir()
    write_segment(directory / f"{0:020}.log")
    file.chmod(0)
    directory.chmod(0)
    prefix = DROP_CAPABILITIES if os.geteuid() == 0 else ()
    arguments = [str(file), str(directory)]
    done = subprocess.run(
        [*prefix, sys.executable, "-c", DENIED, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )
    directory.chmod(0o700)
    texts = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(texts) == 4, done.stderr
    for text, path in zip(texts, (file, file, directory, directory)):
        assert "PermissionError: " in text
        assert f"Permission denied: '{path}'" in text
        assert len(text.splitlines()) < 4
    assert len(done.stderr.splitlines()) < 50
    assert "\tat " not in done.stderr


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_a_task_reads_many_tiny_files(spark, tmp_path, count):
    """A task reads many files, by `read` and by the data source. A damaged file is named."""
    folders = [tmp_path / f"{number:03}" for number in range(count // FILES_IN_FOLDER)]
    names = [folder / f"{base:020}.log" for folder in folders for base in range(FILES_IN_FOLDER)]
    kinds = [tmp_path / f"kind {base}" for base in range(5)]
    for base, path in enumerate(kinds):
        path.write_bytes(make_batch(base, 1))
    for number, name in enumerate(names):
        if number % FILES_IN_FOLDER == 0:
            name.parent.mkdir()
        os.link(kinds[number % 5], name)
    total = count // 5 * sum(range(5))
    for frame in (
        read(spark, tmp_path, "kafka.batches", ["base_offset"]),
        load_paths(spark, tmp_path, format="kafka.batches", columns="base_offset"),
    ):
        assert count // 2000 <= frame.rdd.getNumPartitions() <= count // 500
        assert tuple(frame.selectExpr("count(*)", "sum(base_offset)").first()) == (count, total)
    names[-1].unlink()
    names[-1].write_bytes(make_batch(0, 1)[:-1] + b"?")
    frame = read(spark, folders[-1], "kafka.batches", ["base_offset"])
    assert f"(BAD_CHECKSUM) at byte 0 of {names[-1]}" in format_error(frame.count)
    shutil.rmtree(tmp_path)
