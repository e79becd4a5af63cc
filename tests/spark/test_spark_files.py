"""Files that are not as they should be, and very many of them: a line says what is wrong, and where."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import batch, segment
from pyspark.errors import PySparkException

from wirescan.spark import read

pytestmark = pytest.mark.spark
IN_FOLDER = 1000
# So that root too is denied what others are.
WITHOUT_POWERS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
# One session without the powers of root: what each way into Spark says of the files named, and what the JVM logs.
DENIED = """
import json, sys
sys.path.insert(0, sys.argv[1])
from conftest import JAVA_OPTIONS
from wirescan.spark import read, session
spark = session("denied", "local[1,2]", **{"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": JAVA_OPTIONS})
for path in sys.argv[2:]:
    for way in (lambda: read(spark, path), lambda: spark.read.format("wirescan").load(path)):
        try:
            print(json.dumps(way().count()))
        except Exception as error:
            print(json.dumps(f"{type(error).__name__}: {error}"))
spark.stop()
"""


def source(spark, path, **options):
    return spark.read.format("wirescan").options(**options).load(str(path))


WAYS = pytest.mark.parametrize("way", [read, source])


def line(call):
    """What a call raises, as a line. Spark's own words may stand before and behind it, in lines of their own."""
    with pytest.raises((OSError, EOFError, ValueError, PySparkException)) as caught:
        call()
    lines = str(caught.value).strip().splitlines()
    assert len(lines) <= 3 and "Traceback" not in str(caught.value), caught.value
    return " ".join(lines)


@WAYS
def test_paths_that_cannot_be_read(spark, tmp_path, way):
    for path, words in ((tmp_path / "none.log", "No such file or directory"), (tmp_path, "no file to read in "),
                        (tmp_path / "*.log", "no file to read in "), ("/dev/zero", "not a regular file"),
                        ("nope://bucket/a.log", "no file system for nope://bucket")):
        told = line(lambda: way(spark, path).count())
        assert words in told and str(path).removesuffix("/a.log") in told


@WAYS
def test_files_in_which_nothing_is(spark, tmp_path, way):
    (tmp_path / "empty.log").touch()
    assert way(spark, tmp_path / "empty.log").collect() == []
    segment(tmp_path / f"{0:020}.log")
    (tmp_path / f"{600:020}.log").touch()
    assert way(spark, tmp_path).count() == 600


@WAYS
def test_a_file_that_shrinks_between_plan_and_read(spark, tmp_path, way):
    path = segment(tmp_path / "shrinks.log")
    whole = os.path.getsize(path)
    frame = way(spark, path)
    assert frame.rdd.getNumPartitions() == 1        # it is planned by now
    os.truncate(path, 3000)
    assert f"EOFError: {path} ends at 3000, before {whole}" in line(frame.collect)
    os.unlink(path)
    assert f"No such file or directory: '{path}'" in line(frame.collect)


@WAYS
def test_damage_is_told_in_a_line(spark, damaged, way):
    path, at = damaged
    assert f"(BAD_CHECKSUM) at byte {at} of {path}" in line(way(spark, path).count)


def test_what_users_call_keeps_its_traceback(spark, log):
    def fails(batches):
        for _ in batches:
            raise ValueError("of one's own")
        yield from ()
    frame = read(spark, log)
    with pytest.raises(PySparkException, match=r"(?s)Traceback.*in fails.*of one's own"):
        frame.mapInArrow(fails, frame.schema).collect()


def test_permission_denied(tmp_path):
    """In files, in directories, and by which way one comes there; and the JVM logs no long stack of it."""
    file, directory = tmp_path / "file.log", tmp_path / "directory"
    segment(file)
    directory.mkdir()
    segment(directory / f"{0:020}.log")
    file.chmod(0)
    directory.chmod(0)
    powers = WITHOUT_POWERS if os.geteuid() == 0 else ()
    arguments = [str(Path(__file__).parent), str(file), str(directory)]
    done = subprocess.run([*powers, sys.executable, "-c", DENIED, *arguments], capture_output=True, text=True,
                          timeout=300)
    directory.chmod(0o700)
    told = [json.loads(one) for one in done.stdout.splitlines()]
    assert len(told) == 4, done.stderr
    for text, path in zip(told, (file, file, directory, directory)):
        assert "PermissionError: " in text and f"Permission denied: '{path}'" in text and text.count("\n") < 3
    assert len(done.stderr.splitlines()) < 50 and "\tat " not in done.stderr


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_many_tiny_files(spark, tmp_path, count):
    """Every file is read, in tasks of many files each, by both ways; the last of them is damaged, and is named."""
    folders = [tmp_path / f"{number:03}" for number in range(count // IN_FOLDER)]
    names = [folder / f"{base:020}.log" for folder in folders for base in range(IN_FOLDER)]
    kinds = [tmp_path / f"kind {base}" for base in range(5)]
    for base, path in enumerate(kinds):
        path.write_bytes(batch(base, 1))
    for number, name in enumerate(names):
        if number % IN_FOLDER == 0:
            name.parent.mkdir()
        os.link(kinds[number % 5], name)
    total = count // 5 * sum(range(5))
    for frame in (read(spark, tmp_path, "kafka.batches", ["base_offset"]),
                  source(spark, tmp_path, format="kafka.batches", columns="base_offset")):
        assert count // 2000 <= frame.rdd.getNumPartitions() <= count // 500
        assert tuple(frame.selectExpr("count(*)", "sum(base_offset)").first()) == (count, total)
    names[-1].unlink()
    names[-1].write_bytes(batch(0, 1)[:-1] + b"?")
    frame = read(spark, folders[-1], "kafka.batches", ["base_offset"])
    assert f"(BAD_CHECKSUM) at byte 0 of {names[-1]}" in line(frame.count)
    shutil.rmtree(tmp_path)
