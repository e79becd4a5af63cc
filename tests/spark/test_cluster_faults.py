"""A cluster loses executors, workers, Python processes and files while a job runs.

Spark repeats tasks and runs some of them twice. Every row is still there once, in DataFrames and in
Parquet files.
"""

import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.cluster import (
    Driver,
    list_executors,
    list_python_processes,
    send_signal,
    wait_for,
    wait_for_executors,
)
from wirescan import kafka
from wirescan.frames.to_arrow import to_batch
from wirescan.spark import read, to_parquet
from wirescan.spark.aggregation import aggregate
from wirescan.spark.ranges import ranges

pytestmark = pytest.mark.spark

FILES = 40
RECORDS_IN_FILE = 4000
SLICE_BYTES = 1 << 20  # for one task: about a file
FINISHED_TASKS = 4  # a disturbance starts after so many tasks
KILL_INTERVAL = 0.5  # seconds
SPECULATION = {
    "spark.speculation": True,
    "spark.speculation.quantile": 0.1,
    "spark.speculation.minTaskRuntime": "1s",
}
FAILURES = {"spark.task.maxFailures": 1000}  # a task fails often while its file is away


@pytest.fixture(scope="module")
def driver(cluster):
    with Driver(cluster, sys.executable, SPECULATION | FAILURES) as driver:
        yield driver


@pytest.fixture
def victim(cluster, driver):
    """The pid of a worker whose executor has run Python. Both workers have an executor."""
    cluster.start_missing_workers()
    driver(run_python)

    def worker_with_python():
        pids = (worker.pid for worker in cluster.workers.values())
        return next((pid for pid in pids if list_python_processes(pid)), None)

    return wait_for(worker_with_python, "a Python process of a worker")


def run_python(spark):
    """Run Python in both executors."""
    wait_for_executors(spark)
    spark.range(0, 20, 1, 20).mapInArrow(lambda batches: batches, "id long").collect()


@pytest.fixture(scope="module")
def segments(tmp_path_factory):
    """Segments of one partition, a megabyte each."""
    folder = tmp_path_factory.mktemp("many-0")
    random = np.random.default_rng(7)
    for base in range(0, FILES * RECORDS_IN_FILE, RECORDS_IN_FILE):
        buffer = pa.py_buffer(random.bytes(220 * RECORDS_IN_FILE))
        values = pa.Array.from_buffers(pa.binary(220), RECORDS_IN_FILE, [None, buffer])
        raw = kafka.encode_batches(values, base_offset=base, timestamps=base, batch_bytes=100_000)
        (folder / f"{base:020}.log").write_bytes(raw)
    return folder


@pytest.fixture(scope="module")
def rows(segments):
    return pa.table(to_batch(kafka.records(kafka.scan(str(segments))), types="spark"))


# ---- disturbances of a job; each returns a function that runs after the job


def kill_executor(spark, stage, worker, source, out):
    return _kill(spark, stage, lambda: list_executors(worker))


def kill_worker(spark, stage, worker, source, out):
    send_signal(worker, signal.SIGKILL)
    return _wait_for_failed_task(spark, stage)


def kill_python(spark, stage, worker, source, out):
    return _kill(spark, stage, lambda: list_python_processes(worker))


def move_file(spark, stage, worker, source, out):
    """Move a file away until the task that reads it has failed three times."""
    last = max(source.glob("*.log"))
    away = last.rename(last.with_suffix(".away"))
    wait_for(lambda: _get_status(spark, stage).numFailedTasks() >= 3, "a failed task")
    away.rename(last)
    return _wait_for_failed_task(spark, stage)


def move_part(spark, stage, worker, source, out):
    """Move a written file away until the job that merges small files has failed to read it."""
    part = min(out.glob("_temporary*/*.parquet"), key=lambda path: path.stat().st_mtime)
    away = part.rename(part.with_suffix(".away"))
    tracker = spark.sparkContext.statusTracker()

    def has_failed():
        others = (other for other in tracker.getActiveStageIds() if other != stage)
        return any(_get_status(spark, other).numFailedTasks() for other in others)

    wait_for(has_failed, "a failed task of the merging job")
    away.rename(part)
    return lambda: None


def stop_python(spark, stage, worker, source, out):
    """Stop the tasks of a worker. Only second attempts on the other host can end the job.

    The stopped processes continue after Spark has abandoned the first attempts.
    """
    stopped = list_python_processes(worker)
    for pid in stopped:
        send_signal(pid, signal.SIGSTOP)

    def resume():
        wait_for(
            lambda: _get_status(spark, stage).numKilledTasks() > 0, "a task with a second attempt"
        )
        for pid in stopped:
            send_signal(pid, signal.SIGCONT)
        wait_for(lambda: not _get_status(spark, stage).numActiveTasks(), "the end of all attempts")

    return resume


DISTURBANCES = [kill_executor, kill_worker, kill_python, move_file, stop_python]


def _kill(spark, stage, processes):
    """Kill processes until a task of theirs fails. A process may be between two tasks."""
    next_kill = 0.0

    def has_failed():
        nonlocal next_kill
        if time.monotonic() >= next_kill:
            pids = list(processes())
            for pid in pids:
                send_signal(pid, signal.SIGKILL)
            if pids:  # else the first one has not started yet, and must not be missed
                next_kill = time.monotonic() + KILL_INTERVAL
        return _get_status(spark, stage).numFailedTasks() > 0

    wait_for(has_failed, "a task that failed because its process was killed")
    return lambda: None


def _wait_for_failed_task(spark, stage):
    """Return a function that waits for a failed task. Spark repeats such a task."""
    return lambda: wait_for(lambda: _get_status(spark, stage).numFailedTasks() > 0, "a failed task")


def _get_status(spark, stage):
    return spark.sparkContext._jsc.sc().statusStore().lastStageAttempt(stage)


def run_disturbed(spark, job, source, out, disturb, worker):
    """Run a job, and disturb it after some of its tasks. Return the job's result."""
    tracker = spark.sparkContext.statusTracker()

    def is_in_progress(stage):
        return FINISHED_TASKS <= stage.numCompletedTasks < stage.numTasks - FINISHED_TASKS

    def stage_in_progress():
        assert not future.done(), future.result()
        stages = filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds()))
        return next(filter(is_in_progress, stages), None)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(job, spark, source, out)
        stage = wait_for(stage_in_progress, "a job in progress").stageId
        finish = disturb(spark, stage, worker, source, out)
        result = future.result()
        finish()
        return result


# ---- jobs


def collect(spark, source, out):
    return read(spark, str(source), bytes_per_partition=SLICE_BYTES).toArrow()


def collect_from_source(spark, source, out):
    reader = spark.read.format("wirescan").option("bytesPerPartition", SLICE_BYTES)
    return reader.load(str(source)).toArrow()


def write(spark, source, out):
    return to_parquet(spark, str(source), out, bytes_per_partition=SLICE_BYTES)


def write_by_spark(spark, source, out):
    return to_parquet(spark, str(source), out, bytes_per_partition=SLICE_BYTES, writer="spark")


def aggregate_by_file(spark, source, out):
    parts = ranges(spark, str(source), bytes_per_partition=SLICE_BYTES)
    groups = aggregate(parts, ["_file"], [("offset", "min"), ("offset", "sum")])
    return groups.orderBy("_file").toArrow()


def list_runs(disturbances, job, *, first):
    """Return disturbances with a job. Only the nightly run has every second one after `first`."""
    return [
        pytest.param(disturb, job, marks=[pytest.mark.nightly] if (number + first) % 2 else [])
        for number, disturb in enumerate(disturbances)
    ]


@pytest.mark.parametrize(
    "disturb, job",
    [*list_runs(DISTURBANCES, collect, first=0), (kill_executor, collect_from_source)],
)
def test_disturbed_jobs_have_the_same_rows(driver, victim, segments, rows, disturb, job):
    result = driver(run_disturbed, job, segments, None, disturb, victim)
    assert result.cast(rows.schema).equals(rows)


def test_frames_are_counted_once(driver, victim, segments):
    """An executor that ends loses its results for other tasks. Spark computes them again."""
    result = driver(run_disturbed, aggregate_by_file, segments, None, kill_executor, victim)
    bases = range(0, FILES * RECORDS_IN_FILE, RECORDS_IN_FILE)
    assert result.to_pydict() == {
        "_file": [str(path) for path in sorted(segments.iterdir())],
        "count": [RECORDS_IN_FILE] * FILES,
        "offset_min": list(bases),
        "offset_sum": [sum(range(base, base + RECORDS_IN_FILE)) for base in bases],
    }


@pytest.mark.parametrize(
    "disturb, job",
    [
        *list_runs((*DISTURBANCES, move_part), write, first=1),
        (kill_executor, write_by_spark),
    ],
)
def test_every_record_is_written_once(driver, victim, segments, rows, disturb, job, tmp_path):
    out = tmp_path / "out"
    summary = driver(run_disturbed, job, segments, out, disturb, victim)
    assert (summary.records, summary.files, summary.faults) == (len(rows), FILES, 0)
    parts = [path for path in sorted(out.iterdir()) if not path.name.startswith((".", "_SUCCESS"))]
    names = [f"part-{number:05}" for number in range(len(parts))]
    assert [path.name[:10] for path in parts] == names
    assert sum(path.stat().st_size for path in parts) == summary.written
    assert pq.read_table(out).cast(rows.schema).equals(rows)
