"""Files that grow as a stream of the data source `wirescan`."""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import batch, collected, expected, segment
from pyspark.errors import PySparkException

from wirescan import lumberjack
from wirescan.spark import stream
from wirescan.spark.source import WirescanSource

pytestmark = pytest.mark.spark
limited = pytest.mark.skipif(not stream.HAS_LIMITS, reason="needs Spark 4.2")


@pytest.fixture
def run(spark, tmp_path):
    """Reads what there is into Parquet, as one query after another with the same checkpoint would; gives its rows."""
    def run(path, keep=str(tmp_path / "out"), **options):
        query = (spark.readStream.format("wirescan").options(**options).load(str(path))
                 .writeStream.format("parquet").option("checkpointLocation", keep + ".checkpoint")
                 .trigger(availableNow=True).start(keep))
        query.awaitTermination(120)
        return spark.read.parquet(keep), query
    return run


def append(path, data):
    with open(path, "ab") as file:
        file.write(data)


@limited
def test_the_same_rows_as_the_batch_source(spark, log, run):
    most = sum(path.stat().st_size for path in Path(log).glob("*.log")) // 4
    frame, query = run(log, maxBytesPerTrigger=most, bytesPerPartition="2k")
    assert collected(frame) == expected(log)
    with_rows = [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]
    assert 4 <= len(with_rows) <= 7 and sum(with_rows) == 1800
    assert run(log)[0].count() == 1800                          # there is nothing more


@limited
def test_what_comes_between_two_queries(log, run):
    directory = Path(log)
    run(log)
    last = directory / f"{1800:020}.log"
    last.write_bytes(batch(1800) + batch(1820)[:-5])
    assert run(log, maxFilesPerTrigger=1)[0].count() == 1820
    append(last, batch(1820)[-5:] + batch(1840))
    last.rename(directory / (last.name + ".deleted"))
    (directory / f"{0:020}.log").unlink()                       # it was read
    segment(directory / f"{1860:020}.log", batches=2, base=1860)
    frame, _ = run(log, maxBytesPerTrigger="1k")
    assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(1900))


def test_a_stream_that_goes_on(spark, log, tmp_path):
    query = (spark.readStream.format("wirescan").option("columns", "offset,_file").load(log)
             .writeStream.format("memory").queryName("going_on").start())
    try:
        grown = Path(log) / f"{1800:020}.log"
        for i in range(3):
            append(grown, batch(1800 + 20 * i))
            query.processAllAvailable()
            assert spark.table("going_on").count() == 1820 + 20 * i
        assert spark.table("going_on").where(f"_file = '{grown}'").count() == 60
    finally:
        query.stop()


def test_what_receive_leaves(spark, tmp_path, run):
    """A file under a name that begins with _, until it is full: read when it gets its own; or earlier, by a glob."""
    events = tmp_path / "events"
    events.mkdir()
    begun = events / "_20260101T000000.000000Z-000001.lumberjack"
    windows = [bytes(lumberjack.encode_batch([b'{"n":%d}' % i, b'{"n":%d}' % (i + 1)])) for i in range(0, 8, 2)]
    begun.write_bytes(windows[0] + windows[1][:9])
    everything, named = str(tmp_path / "all"), str(tmp_path / "named")

    def numbers(path, keep):
        frame, _ = run(path, keep, format="lumberjack.events", columns="json")
        return sorted(json.loads(row.json)["n"] for row in frame.collect())

    assert (numbers(events / "*.lumberjack", everything), numbers(events, named)) == ([0, 1], [])
    append(begun, windows[1][9:] + windows[2])
    begun.rename(events / begun.name[1:])
    (events / "_20260101T000001.000000Z-000002.lumberjack").write_bytes(windows[3])
    assert (numbers(events / "*.lumberjack", everything), numbers(events, named)) == (list(range(8)), list(range(6)))


def test_damage_in_each_mode(spark, damaged, run, tmp_path):
    path, at = damaged
    for errors in ("mark", "skip"):
        wanted = collected(spark.read.format("wirescan").option("errors", errors).load(path))
        seen = collected(run(path, str(tmp_path / errors), errors=errors)[0])
        assert sorted(seen, key=str) == sorted(wanted, key=str)
    with pytest.raises(PySparkException) as caught:
        run(path, str(tmp_path / "strict"))
    assert f"at byte {at} of {path}" in str(caught.value) and "BAD_CHECKSUM" in str(caught.value)


def test_files_that_were_lost(log, run, tmp_path):
    keep = str(tmp_path / "lost")
    run(log, keep)
    commits = sorted(Path(keep + ".checkpoint", "commits").glob("[0-9]*"))
    commits[-1].unlink()                                        # as if the query had died in its last batch
    for path in Path(keep + ".checkpoint", "commits").glob(".*.crc"):
        path.unlink()
    shutil.rmtree(keep)
    gone = Path(log) / f"{600:020}.log"
    gone.unlink()
    with pytest.raises(PySparkException, match=gone.name):
        run(log, keep)
    frame, _ = run(log, keep, failOnDataLoss="false")
    assert sorted(row.offset for row in frame.collect()) == [*range(600), *range(1200, 1800)]


@pytest.mark.parametrize("options, message", [
    ({"path": "/", "failOnDataLoss": "perhaps"}, "failOnDataLoss must be true or false"),
    ({"path": "/", "maxBytesPerTrigger": "much"}, "maxBytesPerTrigger must be a number"),
    ({"path": "/", "maxFilesPerTrigger": "0"}, "maxFilesPerTrigger must be a number"),
    ({"path": "/", "maxRowsPerTrigger": "1"}, "no option 'maxRowsPerTrigger'"),
    ({"bootstrap.servers": "localhost:1", "topic": "t"}, "streams files"),
    ({}, "needs a path"),
])
def test_unfit_options(options, message):
    with pytest.raises(ValueError, match=message):
        source = WirescanSource(options)
        source.streamReader(source.schema())


def test_spark_before_limits(log, monkeypatch):
    """4.0 and 4.1 ask for the latest offset without telling any."""
    monkeypatch.setattr(stream, "HAS_LIMITS", False)
    source = WirescanSource({"path": log})
    reader = source.streamReader(source.schema())
    end = reader.latestOffset()
    assert reader.latestOffset() == end == source.streamReader(source.schema()).latestOffset()
    append(Path(log) / f"{1200:020}.log", batch(1800))
    again = source.streamReader(source.schema())                # a query that goes on
    more = again.latestOffset()
    parts = again.partitions(end, more)
    assert sum(b.num_rows for one in parts for b in again.read(one)) == 20
    with pytest.raises(ValueError, match="need Spark 4.2"):
        WirescanSource({"path": log, "maxFilesPerTrigger": "1"}).streamReader(source.schema())


@limited
@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.nightly)])
def test_a_driver_that_is_killed(spark, tmp_path, kills):
    """At random moments, mostly within a batch, while files grow, are rolled, renamed, and removed when they were read:
    every frame once."""
    chance, directory, out = random.Random(20), tmp_path / "topic-0", tmp_path / "out"
    directory.mkdir()
    writer = Writer(directory, chance)
    killed = 0
    while killed < kills:
        child = start_child(directory, out)
        try:
            begun, end = planned(out), time.monotonic() + 180
            while time.monotonic() < end and child.poll() is None:
                writer.write()
                time.sleep(.05 if begun is None else .2)
                if begun is not None and planned(out) > begun:          # a batch was planned: now, or a little later
                    begun, end = None, time.monotonic() + chance.uniform(0, 1.5)
            if child.poll() is not None and "failed to connect back" in said(out):
                continue                # on a busy machine Spark's ten seconds for the start of a worker may not do
            assert child.poll() is None and begun is None, said(out)
        finally:
            kill(child)
        killed += 1
        writer.remove_one(out)
    writer.finish()
    child = start_child(directory, out, "once")
    try:
        assert child.wait(300) == 0, said(out)
    finally:
        kill(child)
    offsets = [row.offset for row in spark.read.parquet(str(out)).select("offset").collect()]
    assert sorted(offsets) == list(range(writer.count)) and writer.removed


def planned(out):
    return len([path for path in Path(f"{out}.checkpoint", "offsets").glob("[0-9]*")])


def start_child(*arguments):
    program = Path(__file__).with_name("stream_child.py")
    with open(f"{arguments[1]}.said", "wb") as file:
        return subprocess.Popen([sys.executable, *map(str, (program, *arguments))], stdout=file,
                                stderr=subprocess.STDOUT, start_new_session=True,
                                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


def said(out):
    return Path(f"{out}.said").read_text()[-3000:]


def kill(child):
    """The driver, with its JVM, at once."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


class Writer:
    """Batches of 20 records, some of them torn for a while; segments that are rolled, and renamed when full."""

    def __init__(self, directory, chance):
        self.directory, self.chance = directory, chance
        self.count = self.removed = 0
        self.held, self.active = b"", directory / f"{0:020}.log"

    def write(self):
        self.held += batch(self.count, codec=self.chance.choice(["none", "zstd"]))
        self.count += 20
        cut = self.chance.randrange(len(self.held) + 1)
        append(self.active, self.held[:cut])
        self.held = self.held[cut:]
        if self.chance.random() < .05:
            self.finish()
            if self.chance.random() < .5:
                self.active.rename(self.directory / f"{10**19 + self.count:020}.log")
            self.active = self.directory / f"{self.count:020}.log"

    def finish(self):
        append(self.active, self.held)
        self.held = b""

    def remove_one(self, out):
        """A file that was read to its end by a batch that was committed."""
        checkpoint = Path(f"{out}.checkpoint")
        done = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()]
        if not done:
            return
        files = json.loads((checkpoint / "offsets" / str(max(done))).read_text().splitlines()[-1])["files"]
        for path, told in files.items():
            if path != str(self.active) and os.path.exists(path) and (
                    os.path.getsize(path), os.stat(path).st_ino) == (told["end"], told["node"]):
                os.unlink(path)
                self.removed += 1
                return
