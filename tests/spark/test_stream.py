"""Streams of the data source `wirescan`, over files that grow."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from tests.spark.records import collect_rows, make_batch, read_expected_rows, write_segment
from tests.support.log_files import append_bytes
from wirescan import lumberjack
from wirescan.spark import datasource_stream as stream
from wirescan.spark.datasource import WirescanSource

pytestmark = pytest.mark.spark
limited = pytest.mark.skipif(not stream.HAS_LIMITS, reason="needs Spark 4.2")


@pytest.fixture
def run(spark, tmp_path):
    """Return a function that writes all available frames to Parquet, and returns the output.

    Each call is a new query with the same checkpoint.
    """

    def run(path, out=str(tmp_path / "out"), **options):
        query = (
            spark.readStream.format("wirescan")
            .options(**options)
            .load(str(path))
            .writeStream.format("parquet")
            .option("checkpointLocation", out + ".checkpoint")
            .trigger(availableNow=True)
            .start(out)
        )
        query.awaitTermination(120)
        return spark.read.parquet(out), query

    return run


@limited
def test_the_same_rows_as_the_batch_source(spark, log, run):
    most = sum(path.stat().st_size for path in Path(log).glob("*.log")) // 4
    frame, query = run(log, maxBytesPerTrigger=most, bytesPerPartition="2k")
    assert collect_rows(frame) == read_expected_rows(log)
    counts = [progress["numInputRows"] for progress in query.recentProgress]
    counts = [count for count in counts if count]
    assert 4 <= len(counts) <= 7
    assert sum(counts) == 1800
    backlogs = [progress["sources"][0]["latestOffset"] for progress in query.recentProgress]
    assert all("backlog" in str(backlog) for backlog in backlogs), backlogs
    assert run(log)[0].count() == 1800  # no frames are added


@limited
def test_files_that_change_between_two_queries(log, run):
    directory = Path(log)
    run(log)
    last = directory / f"{1800:020}.log"
    last.write_bytes(make_batch(1800) + make_batch(1820)[:-5])
    assert run(log, maxFilesPerTrigger=1)[0].count() == 1820
    append_bytes(last, make_batch(1820)[-5:] + make_batch(1840))
    last.rename(directory / (last.name + ".deleted"))
    (directory / f"{0:020}.log").unlink()  # the first query has read it
    write_segment(directory / f"{1860:020}.log", batches=2, base=1860)
    frame, _ = run(log, maxBytesPerTrigger="1k")
    assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(1900))


def test_a_query_continues_while_a_file_grows(spark, log, tmp_path):
    query = (
        spark.readStream.format("wirescan")
        .option("columns", "offset,_file")
        .load(log)
        .writeStream.format("memory")
        .queryName("growing")
        .start()
    )
    try:
        path = Path(log) / f"{1800:020}.log"
        for i in range(3):
            append_bytes(path, make_batch(1800 + 20 * i))
            query.processAllAvailable()
            assert spark.table("growing").count() == 1820 + 20 * i
        assert spark.table("growing").where(f"_file = '{path}'").count() == 60
    finally:
        query.stop()


def test_files_of_the_receiver(spark, tmp_path, run):
    """The name of an unfinished file begins with _. Only a glob reads it before it is renamed."""
    events = tmp_path / "events"
    events.mkdir()
    unfinished = events / "_20260101T000000.000000Z-000001.lumberjack"
    windows = [
        bytes(lumberjack.encode_batch([b'{"n":%d}' % i, b'{"n":%d}' % (i + 1)]))
        for i in range(0, 8, 2)
    ]
    unfinished.write_bytes(windows[0] + windows[1][:9])

    def numbers(path, out):
        frame, _ = run(path, str(tmp_path / out), format="lumberjack.events", columns="json")
        return sorted(json.loads(row.json)["n"] for row in frame.collect())

    assert numbers(events / "*.lumberjack", "glob") == [0, 1]
    assert numbers(events, "directory") == []
    append_bytes(unfinished, windows[1][9:] + windows[2])
    unfinished.rename(events / unfinished.name[1:])
    (events / "_20260101T000001.000000Z-000002.lumberjack").write_bytes(windows[3])
    assert numbers(events / "*.lumberjack", "glob") == list(range(8))
    assert numbers(events, "directory") == list(range(6))


def test_damage_in_each_mode(spark, damaged, run, tmp_path):
    path, position = damaged
    for errors in ("mark", "skip"):
        expected = collect_rows(spark.read.format("wirescan").option("errors", errors).load(path))
        frame, _ = run(path, str(tmp_path / errors), errors=errors)
        assert sorted(collect_rows(frame), key=str) == sorted(expected, key=str)
    with pytest.raises(PySparkException) as caught:
        run(path, str(tmp_path / "strict"))
    assert f"at byte {position} of {path}" in str(caught.value)
    assert "BAD_CHECKSUM" in str(caught.value)


def test_removed_files_are_an_error(log, run, tmp_path):
    out = str(tmp_path / "lost")
    run(log, out)
    commits = sorted(Path(out + ".checkpoint", "commits").glob("[0-9]*"))
    commits[-1].unlink()  # a query that dies in its last batch leaves this state
    for path in Path(out + ".checkpoint", "commits").glob(".*.crc"):
        path.unlink()
    shutil.rmtree(out)
    removed = Path(log) / f"{600:020}.log"
    removed.unlink()
    with pytest.raises(PySparkException, match=removed.name):
        run(log, out)
    frame, _ = run(log, out, failOnDataLoss="false")
    assert sorted(row.offset for row in frame.collect()) == [*range(600), *range(1200, 1800)]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"path": "/", "failOnDataLoss": "perhaps"}, "failOnDataLoss must be true or false"),
        ({"path": "/", "maxBytesPerTrigger": "much"}, "maxBytesPerTrigger must be a number"),
        ({"path": "/", "maxFilesPerTrigger": "0"}, "maxFilesPerTrigger must be a number"),
        ({"path": "/", "maxRowsPerTrigger": "1"}, "no option 'maxRowsPerTrigger'"),
        ({"bootstrap.servers": "localhost:1", "topic": "t"}, "streams files"),
        ({}, "needs a path"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        source = WirescanSource(options)
        source.streamReader(source.schema())


def test_older_spark_reads_without_limits(log, monkeypatch):
    """Spark 4.0 and 4.1 ask for the latest offset without a limit."""
    monkeypatch.setattr(stream, "HAS_LIMITS", False)
    source = WirescanSource({"path": log})
    reader = source.streamReader(source.schema())
    end = reader.latestOffset()
    assert reader.latestOffset() == end
    assert source.streamReader(source.schema()).latestOffset() == end
    append_bytes(Path(log) / f"{1200:020}.log", make_batch(1800))
    second = source.streamReader(source.schema())  # the next query
    parts = second.partitions(end, second.latestOffset())
    assert sum(rows.num_rows for part in parts for rows in second.read(part)) == 20
    with pytest.raises(ValueError, match="need Spark 4.2"):
        WirescanSource({"path": log, "maxFilesPerTrigger": "1"}).streamReader(source.schema())


@limited
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.nightly)])
def test_a_driver_that_is_killed(spark, tmp_path, kills):
    """Every frame is read once. The kill happens at a random time, mostly within a batch.

    Files grow, are rolled and renamed, and are removed after they are read.
    """
    chance = random.Random(20)
    directory = tmp_path / "topic-0"
    out = tmp_path / "out"
    directory.mkdir()
    writer = Writer(directory, chance)
    killed = 0
    while killed < kills:
        child = start_child(directory, out)
        try:
            has_batch = write_until_a_batch(writer, child, out, chance)
            if child.poll() is not None and "failed to connect back" in read_output(out):
                # Spark gives a worker ten seconds to start. A busy machine may need more.
                continue
            assert child.poll() is None, read_output(out)
            assert has_batch, read_output(out)
        finally:
            kill_driver(child)
        killed += 1
        writer.remove_one(out)
    writer.finish()
    child = start_child(directory, out, "once")
    try:
        assert child.wait(300) == 0, read_output(out)
    finally:
        kill_driver(child)
    offsets = [row.offset for row in spark.read.parquet(str(out)).select("offset").collect()]
    assert sorted(offsets) == list(range(writer.count))
    assert writer.removed


def write_until_a_batch(writer, child, out, chance):
    """Write until the query plans a new batch, and a little longer. Return whether it did."""
    batches = count_planned_batches(out)
    has_batch = False
    end = time.monotonic() + 180
    while time.monotonic() < end and child.poll() is None:
        writer.write()
        time.sleep(0.05 if has_batch else 0.2)
        if not has_batch and count_planned_batches(out) > batches:
            has_batch = True
            end = time.monotonic() + chance.uniform(0, 1.5)
    return has_batch


def count_planned_batches(out):
    return len(list(Path(f"{out}.checkpoint", "offsets").glob("[0-9]*")))


def start_child(*arguments):
    program = Path(__file__).with_name("stream_child.py")
    with open(f"{arguments[1]}.output", "wb") as file:
        return subprocess.Popen(
            [sys.executable, *map(str, (program, *arguments))],
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )


def read_output(out):
    return Path(f"{out}.output").read_text()[-3000:]


def kill_driver(child):
    """Kill the driver and its JVM."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


class Writer:
    """Writes batches of 20 records to segments.

    A batch may be incomplete for some time. A segment is rolled, and may be renamed when it is
    complete.
    """

    def __init__(self, directory, chance):
        self.directory = directory
        self.chance = chance
        self.count = 0
        self.removed = 0
        self.held = b""
        self.active = directory / f"{0:020}.log"

    def write(self):
        self.held += make_batch(self.count, codec=self.chance.choice(["none", "zstd"]))
        self.count += 20
        cut = self.chance.randrange(len(self.held) + 1)
        append_bytes(self.active, self.held[:cut])
        self.held = self.held[cut:]
        if self.chance.random() < 0.05:
            self.finish()
            if self.chance.random() < 0.5:
                self.active.rename(self.directory / f"{10**19 + self.count:020}.log")
            self.active = self.directory / f"{self.count:020}.log"

    def finish(self):
        append_bytes(self.active, self.held)
        self.held = b""

    def remove_one(self, out):
        """Remove a file that a committed batch has read to its end."""
        checkpoint = Path(f"{out}.checkpoint")
        commits = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()]
        if not commits:
            return
        offsets = (checkpoint / "offsets" / str(max(commits))).read_text()
        files = json.loads(offsets.splitlines()[-1])["files"]
        for path, file in files.items():
            if path == str(self.active) or not os.path.exists(path):
                continue
            if (os.path.getsize(path), os.stat(path).st_ino) == (file["end"], file["node"]):
                os.unlink(path)
                self.removed += 1
                return
