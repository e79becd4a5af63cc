"""One log line for each task: what it read, and how long it took.

The logger is `wirescan.spark.tasks`, with the level INFO, in the Python workers. Nothing is counted
unless that level is on. The environment variable WIRESCAN_TASK_LOG=1 of the workers turns it on,
and writes the lines to their standard error, which Spark stores with the logs of the executors:

    session(**{"spark.executorEnv.WIRESCAN_TASK_LOG": "1"})

Each record of the log has a `TaskReport` as its only argument, for handlers that want numbers.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext

from wirescan.frames.escape import make_visible
from wirescan.frames.table import FrameTable

VARIABLE = "WIRESCAN_TASK_LOG"
LISTED_SLICES = 5  # of a task, in its line

logger = logging.getLogger("wirescan.spark.tasks")


class ByteRange(Protocol):
    """The bytes of a file from `start` to `stop`."""

    @property
    def path(self) -> str:
        """The path or URL of the file."""

    @property
    def start(self) -> int:
        """The first byte."""

    @property
    def stop(self) -> int:
        """The end."""


Result = TypeVar("Result")


@dataclass
class TaskReport:
    """What a task read.

    Attributes:
        slices: the parts of files.
        task: the number of the task in its stage; -1 outside of a task.
        rows: of the results.
        faults: bad rows among them; -1 where the results do not show them.
        seconds: from the start of the task to its end. It includes the time in which Spark and the
            caller's functions use the results.
        processor_seconds: of this process, in that time.
        outcome: "" for a whole task, otherwise why it ended before.
    """

    slices: Sequence[ByteRange]
    task: int = -1
    rows: int = 0
    faults: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    outcome: str = ""

    @property
    def bytes(self) -> int:
        """The bytes of all slices."""
        return sum(part.stop - part.start for part in self.slices)

    def __str__(self) -> str:
        listed = [
            f"{make_visible(part.path)} {part.start}-{part.stop}"
            for part in self.slices[:LISTED_SLICES]
        ]
        more = len(self.slices) - len(listed)
        if more:
            listed.append(f"and {more} more")
        faults = "faults not counted" if self.faults < 0 else f"{self.faults} faults"
        outcome = f", {self.outcome}" if self.outcome else ""
        return (
            f"task {self.task}: {self.rows} rows, {self.bytes} bytes, {faults}, "
            f"{self.seconds:.3f} s, {self.processor_seconds:.3f} s of the processor{outcome}: "
            f"{', '.join(listed)}"
        )


def log_batches(
    slices: Sequence[ByteRange], batches: Iterator[pa.RecordBatch], errors: str
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task, and log a line when they end.

    errors: the mode. Faults are counted under "strict", and where the batches have a column
        `fault`.
    """

    def count_faults(batch: pa.RecordBatch) -> int:
        if "fault" in batch.schema.names and errors != "skip":
            return batch.num_rows - int(batch.column("fault").null_count)
        return 0 if errors == "strict" else -1

    return _log(slices, batches, lambda batch: (batch.num_rows, count_faults(batch)))


def log_tables(
    slices: Sequence[ByteRange], tables: Iterator[tuple[Any, FrameTable]], errors: str
) -> Iterator[tuple[Any, FrameTable]]:
    """Yield the tables of a task, and log a line when they end. errors: as in `log_batches`."""

    def count(item: tuple[Any, FrameTable]) -> tuple[int, int]:
        _, table = item
        return len(table), -1 if errors == "skip" else int(table.bad.sum())

    return _log(slices, tables, count)


def _log(
    slices: Sequence[ByteRange],
    results: Iterator[Result],
    count: Callable[[Result], tuple[int, int]],
) -> Iterator[Result]:
    """Yield results, and log what `count` says of them: (rows, faults or -1)."""
    set_up_logger()
    if not logger.isEnabledFor(logging.INFO):
        yield from results
        return
    context: Any = TaskContext.get()
    report = TaskReport(slices, -1 if context is None else int(context.partitionId()))
    begun = time.perf_counter()
    used = time.process_time()
    try:
        for result in results:
            rows, faults = count(result)
            report.rows += rows
            report.faults = -1 if faults < 0 else report.faults + faults
            yield result
    except GeneratorExit:
        report.outcome = "ended before its end, because no more rows were needed"
        raise
    except BaseException as error:
        report.outcome = f"failed with {type(error).__name__}"
        raise
    finally:
        report.seconds = time.perf_counter() - begun
        report.processor_seconds = time.process_time() - used
        logger.info("%s", report)


@cache
def set_up_logger() -> None:
    """Write the lines to the standard error if the environment variable asks for it."""
    if os.environ.get(VARIABLE) == "1":
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
