"""What the Python workers of Spark do around a task: garbage collection and the log."""

import gc
import logging
import os
import subprocess
import sys
import time
import weakref
from types import ModuleType

import pytest

from tests.spark.records import make_batch
from wirescan.reading.splits import Slice
from wirescan.spark import map_partitions, ranges, read, task_log, worker_setup
from wirescan.spark.run import Reading

pytestmark = pytest.mark.spark


class Cycle:
    """An object that only a garbage collection removes."""

    def __init__(self):
        self.itself = self


@pytest.fixture
def daemon():
    """Return a function that collects garbage as the loop of PySpark's daemon does."""
    module = ModuleType(worker_setup.DAEMON)
    module.__spec__ = type("Spec", (), {"name": worker_setup.DAEMON})
    exec("import gc\ndef collect():\n    gc.collect()", module.__dict__)
    frozen = gc.get_freeze_count()
    # A reader of another test may have set up this process.
    while worker_setup.freeze_between_tasks in gc.callbacks:
        gc.callbacks.remove(worker_setup.freeze_between_tasks)
    gc.callbacks.append(worker_setup.freeze_between_tasks)
    yield module.collect
    if worker_setup.freeze_between_tasks in gc.callbacks:
        gc.callbacks.remove(worker_setup.freeze_between_tasks)
    if not frozen:
        gc.unfreeze()


def test_objects_are_frozen_after_a_task_and_not_within(daemon):
    frozen = gc.get_freeze_count()
    gc.collect()  # a function of a user collects garbage
    assert gc.get_freeze_count() <= frozen  # a frozen object may be removed
    removed = weakref.ref(Cycle())
    daemon()
    assert removed() is None
    assert gc.get_freeze_count() > frozen
    assert worker_setup.freeze_between_tasks not in gc.callbacks
    later = weakref.ref(Cycle())
    gc.collect()
    assert later() is None


def test_the_last_collection_of_a_process_says_nothing():
    program = (
        "import gc\n"
        "from wirescan.spark import worker_setup\n"
        "gc.callbacks.append(worker_setup.freeze_between_tasks)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stderr == b""


def test_the_objects_of_a_users_function_are_not_kept(spark, log, tmp_path):
    """They are in a cycle, so only a garbage collection after the task removes them."""
    removed = str(tmp_path / "removed")

    class Data:
        def __init__(self):
            self.itself = self

        def __del__(self):
            with open(removed, "a") as file:
                file.write("x")

    def count(tables):
        data = Data()
        yield from ({"rows": [len(table)], "same": [data.itself is data]} for table in tables)

    rows = map_partitions(ranges(spark, log), count, "rows bigint, same boolean").collect()
    assert sum(row.rows for row in rows) == 1800
    end = time.monotonic() + 60
    while not os.path.exists(removed) and time.monotonic() < end:
        read(spark, log, columns=["offset"]).count()
    assert os.path.exists(removed)


def list_reports(caplog):
    return [record.args[0] for record in caplog.records if record.name == task_log.logger.name]


def test_a_task_logs_what_it_read(damaged, caplog):
    path, position = damaged
    size = os.path.getsize(path)
    slices = [Slice(path, 0, position), Slice(path, position, size, last=True)]
    with caplog.at_level(logging.INFO, task_log.logger.name):
        rows = sum(b.num_rows for b in Reading("kafka.records", errors="mark").read_batches(slices))
        tables = list(Reading("kafka.records", errors="mark").read_tables(slices))
        list(Reading("kafka.records", ["offset"], errors="skip").read_batches(slices))
        with pytest.raises(ValueError, match="BAD_CHECKSUM"):
            list(Reading("kafka.records").read_batches(slices))
        next(iter(Reading("kafka.records").read_batches(slices[:1])))
    whole, opened, skipped, failed, ended = list_reports(caplog)
    assert (whole.rows, whole.bytes, whole.faults, whole.outcome) == (rows, size, 1, "")
    assert (opened.rows, opened.faults) == (sum(len(table) for _, table in tables), 1)
    assert skipped.faults == -1
    assert "faults not counted" in str(skipped)
    assert failed.outcome == "failed with FrameError"
    assert ended.outcome.startswith("ended before its end")
    assert f"{rows} rows, {size} bytes, 1 faults" in str(whole)
    assert f": {path} 0-{position}, {path} {position}-{size}" in str(whole)
    assert 0 < whole.seconds < 60


def test_a_line_lists_some_slices_only():
    report = task_log.TaskReport([Slice(f"f{number}", 0, 1) for number in range(8)], task=3)
    assert str(report).startswith("task 3: 0 rows, 8 bytes")
    assert str(report).endswith("f4 0-1, and 3 more")


def test_nothing_is_counted_unless_it_is_asked_for(damaged, caplog, monkeypatch):
    path, _ = damaged
    monkeypatch.setattr(task_log, "TaskReport", None)  # would raise TypeError
    list(Reading("kafka.records", errors="skip").read_batches([Slice(path, 0, 100)]))
    assert list_reports(caplog) == []


def test_an_environment_variable_of_the_workers_writes_the_lines(tmp_path):
    """In a session of its own, because the variable is read when workers start."""
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(make_batch(0))
    program = (
        "from wirescan.spark import read, session\n"
        "spark = session('log', 'local[1]', **{'spark.executorEnv.WIRESCAN_TASK_LOG': '1'})\n"
        f"assert read(spark, {str(path)!r}).count() == 20\n"
        f"assert spark.read.format('wirescan').load({str(path)!r}).count() == 20\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "wirescan.spark.tasks task 0" in line]
    assert len(lines) == 2, done.stderr
    assert all(f"20 rows, {path.stat().st_size} bytes, 0 faults" in line for line in lines)
