"""A cluster that loses executors, workers and Python processes, that repeats tasks and runs them twice: the same rows,
each once, in DataFrames and in Parquet files."""
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cluster import Cluster, Driver, both_there, executors, pythons, signalled, waited

from wirescan import kafka
from wirescan.arrow import to_batch
from wirescan.spark import read, to_parquet
from wirescan.spark.aggregation import aggregate
from wirescan.spark.ranges import ranges

pytestmark = pytest.mark.spark

FILES, IN_FILE = 40, 4000       # records
SLICE = 1 << 20                 # bytes for one task: about a file
SOON = 4                        # tasks that have ended when something happens to the others
KILL_INTERVAL = 2               # seconds
SPECULATION = {"spark.speculation": True, "spark.speculation.quantile": 0.1, "spark.speculation.minTaskRuntime": "1s"}
FAILURES = {"spark.task.maxFailures": 1000}         # of one task, while its file is away


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def driver(cluster):
    with Driver(cluster, sys.executable, SPECULATION | FAILURES) as driver:
        yield driver


@pytest.fixture
def victim(cluster, driver):
    """The pid of a worker: both are there, and have an executor each; this one's has run Python."""
    cluster.mend()
    driver(settled)
    return waited(lambda: next((one.pid for one in cluster.workers.values() if pythons(one.pid)), None), "Python")


def settled(spark):
    both_there(spark)
    spark.range(0, 20, 1, 20).mapInArrow(lambda batches: batches, "id long").collect()


@pytest.fixture(scope="module")
def segments(tmp_path_factory):
    """Segments of one partition, a megabyte each."""
    folder = tmp_path_factory.mktemp("many-0")
    random = np.random.default_rng(7)
    for base in range(0, FILES * IN_FILE, IN_FILE):
        values = pa.Array.from_buffers(pa.binary(220), IN_FILE, [None, pa.py_buffer(random.bytes(220 * IN_FILE))])
        raw = kafka.encode_batches(values, base_offset=base, timestamps=base, batch_bytes=100_000)
        (folder / f"{base:020}.log").write_bytes(raw)
    return folder


@pytest.fixture(scope="module")
def rows(segments):
    return pa.table(to_batch(kafka.records(kafka.scan(str(segments))), types="spark"))


# ---------------------------------------------------------------------------- what is done to a job

def executor_killed(spark, stage, worker, source, out):
    return _killed(spark, stage, lambda: executors(worker))


def worker_killed(spark, stage, worker, source, out):
    signalled(worker, signal.SIGKILL)
    return _failed(spark, stage)


def python_killed(spark, stage, worker, source, out):
    return _killed(spark, stage, lambda: pythons(worker))


def file_away(spark, stage, worker, source, out):
    """A file is away until the task that reads it has failed three times."""
    last = max(source.glob("*.log"))
    away = last.rename(last.with_suffix(".away"))
    waited(lambda: _status(spark, stage).numFailedTasks() >= 3, "a failed task")
    away.rename(last)
    return _failed(spark, stage)


def part_away(spark, stage, worker, source, out):
    """A file that a task has written is away until the job that merges small ones has failed to read it."""
    part = min(out.glob("_temporary*/*.parquet"), key=lambda path: path.stat().st_mtime)
    away = part.rename(part.with_suffix(".away"))
    tracker = spark.sparkContext.statusTracker()
    waited(lambda: any(_status(spark, one).numFailedTasks() for one in tracker.getActiveStageIds() if one != stage),
           "a failed task of the merging job")
    away.rename(part)
    return lambda: None


def python_stopped(spark, stage, worker, source, out):
    """The tasks of a worker stand still: only second attempts elsewhere can end the job. When they have, and Spark has
    given the first ones up, what is left of these goes on."""
    stopped = pythons(worker)
    for pid in stopped:
        signalled(pid, signal.SIGSTOP)

    def undone():
        waited(lambda: _status(spark, stage).numKilledTasks() > 0, "a task with a second attempt")
        for pid in stopped:
            signalled(pid, signal.SIGCONT)
        waited(lambda: not _status(spark, stage).numActiveTasks(), "the end of all attempts")
    return undone


HARMS = [executor_killed, worker_killed, python_killed, file_away, python_stopped]


def _killed(spark, stage, processes):
    """Kill processes, and kill again if no task of theirs has failed some seconds later: they were between two tasks."""
    next_kill = 0.0

    def has_failed():
        nonlocal next_kill
        if time.monotonic() >= next_kill:
            for pid in processes():
                signalled(pid, signal.SIGKILL)
            next_kill = time.monotonic() + KILL_INTERVAL
        return _status(spark, stage).numFailedTasks() > 0

    waited(has_failed, "a task that failed because its process was killed")
    return lambda: None


def _failed(spark, stage):
    """What is to be seen afterwards: that a task has failed, and so was repeated."""
    return lambda: waited(lambda: _status(spark, stage).numFailedTasks() > 0, "a failed task")


def _status(spark, stage):
    return spark.sparkContext._jsc.sc().statusStore().lastStageAttempt(stage)


def disturbed(spark, job, source, out, harm, worker):
    """What a job returns that something happens to when some of its tasks have ended."""
    tracker = spark.sparkContext.statusTracker()

    def under_way():
        assert not result.done(), result.result()
        stages = filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds()))
        return next((one for one in stages if SOON <= one.numCompletedTasks < one.numTasks - SOON), None)

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(job, spark, source, out)
        afterwards = harm(spark, waited(under_way, "a job under way").stageId, worker, source, out)
        found = result.result()
        afterwards()
        return found


# ---------------------------------------------------------------------------- jobs

def collected(spark, source, out):
    return read(spark, str(source), bytes_per_partition=SLICE).toArrow()


def loaded(spark, source, out):
    return spark.read.format("wirescan").option("bytesPerPartition", SLICE).load(str(source)).toArrow()


def written(spark, source, out):
    return to_parquet(spark, str(source), out, bytes_per_partition=SLICE)


def written_by_spark(spark, source, out):
    return to_parquet(spark, str(source), out, bytes_per_partition=SLICE, writer="spark")


def aggregated(spark, source, out):
    part = ranges(spark, str(source), bytes_per_partition=SLICE)
    return aggregate(part, ["_file"], [("offset", "min"), ("offset", "sum")]).orderBy("_file").toArrow()


@pytest.mark.parametrize("harm, job", [*((harm, collected) for harm in HARMS), (executor_killed, loaded)])
def test_the_same_rows(driver, victim, segments, rows, harm, job):
    found = driver(disturbed, job, segments, None, harm, victim)
    assert found.cast(rows.schema).equals(rows)


def test_frames_are_counted_once(driver, victim, segments):
    """What an executor held for others, which is gone with it, is made again."""
    found = driver(disturbed, aggregated, segments, None, executor_killed, victim)
    firsts = range(0, FILES * IN_FILE, IN_FILE)
    assert found.to_pydict() == {
        "_file": [str(path) for path in sorted(segments.iterdir())], "count": [IN_FILE] * FILES,
        "offset_min": list(firsts), "offset_sum": [sum(range(first, first + IN_FILE)) for first in firsts]}


@pytest.mark.parametrize("harm, job", [*((harm, written) for harm in (*HARMS, part_away)),
                                       (executor_killed, written_by_spark)])
def test_every_record_is_written_once(driver, victim, segments, rows, harm, job, tmp_path):
    out = tmp_path / "out"
    summary = driver(disturbed, job, segments, out, harm, victim)
    assert (summary.records, summary.files, summary.faults) == (len(rows), FILES, 0)
    parts = [path for path in sorted(out.iterdir()) if not path.name.startswith((".", "_SUCCESS"))]
    assert [path.name[:10] for path in parts] == [f"part-{number:05}" for number in range(len(parts))]
    assert sum(path.stat().st_size for path in parts) == summary.written
    assert pq.read_table(out).cast(rows.schema).equals(rows)
