"""What a Python worker of Spark does before its first task: threads and garbage collection."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa

from wirescan.core.parallel import WORKERS_VARIABLE

DAEMON = "pyspark.daemon"  # the module whose loop runs the tasks of a worker


def set_up_for_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Set up this worker of Spark, and yield the batches of its task."""
    set_up()
    yield from batches


@cache
def set_up() -> None:
    """Set up this worker of Spark, at its first task.

    One thread is the default, because Spark runs one task on each core. The environment variable
    WIRESCAN_WORKERS of the executors takes precedence. The garbage collections after the tasks
    become short: see `freeze_between_tasks`.
    """
    os.environ.setdefault(WORKERS_VARIABLE, "1")
    gc.callbacks.append(freeze_between_tasks)


def freeze_between_tasks(phase: str, info: dict[str, Any]) -> None:
    """Exclude the objects that outlive a task from later collections, once in a worker.

    Spark collects all garbage of a worker after each task. That takes 20 to 70 ms in a worker that
    has imported pyarrow and pandas, and a task of wirescan may take 50 ms. After the first of these
    collections, the modules are what is left, and they are frozen. The functions and the data of
    the task are not among them: the collection has already removed those.

    It is a callback of the module gc. phase, info: see `gc.callbacks`.
    """
    caller = sys._getframe().f_back
    # The interpreter's last collection has no caller.
    module = None if caller is None else caller.f_globals.get("__spec__")
    if phase == "stop" and getattr(module, "name", None) == DAEMON:
        gc.callbacks.remove(freeze_between_tasks)
        gc.freeze()
