"""Kafka records of regular and irregular shapes: to rows and to four Arrow columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.report import Report, format_number, format_table
from bench.timing import Contender, interleave, time_call
from bench.workloads.irregular_records import SHAPES, make_segment
from wirescan import kafka
from wirescan.core.parallel import FixedWorkers
from wirescan.frames.table import FrameTable
from wirescan.frames.to_arrow import to_batch

COLUMNS = ["offset", "timestamp", "key", "value"]
FULL = {"records": 800_000, "rounds": 15}
QUICK = {"records": 20_000, "rounds": 2}
REGULAR = "regular"
IRREGULAR = "lognormal"
THREADS = 2
# The readings of a segment, by their names in the table.
CALLS = {
    "copy": np.copy,
    "records": lambda raw: kafka.records(kafka.scan(raw, check=False), check=False),
    "records, checksums": lambda raw: kafka.records(kafka.scan(raw)),
    "Arrow, checksums": lambda raw: to_batch(kafka.records(kafka.scan(raw)), COLUMNS),
}
# Calls that several threads make too.
CALLS_ON_THREADS = {
    "records": lambda batches: kafka.records(batches, check=False),
    "records, checksums": lambda batches: kafka.records(batches),
    "batches and records, checksums": lambda batches: kafka.records(kafka.scan(batches.buffers[0])),
}


def run(records: int, rounds: int) -> str:
    """Return the section as markdown. records: in the regular workload."""
    report = Report("Kafka records of irregular shapes", threads=f"1, and {THREADS} where stated")
    rows = []
    per_byte = {}
    for shape in SHAPES:
        raw, count = make_segment(shape, records)
        contenders = [
            Contender(name, time_call(partial(call, raw)), count, len(raw))
            for name, call in CALLS.items()
        ]
        times = interleave(contenders, rounds)
        per_byte[shape] = times.median("records") * count / len(raw)
        ratio = times.ratio("records, checksums", "copy")
        report.at_most(f"{shape}: records with checksums, of `numpy.copy`", 1.0, ratio)
        figures = [times.median(name) for name in CALLS]
        rows.append([shape, f"{len(raw) / count:,.0f}", *map(format_number, figures)])
    for shape, cost in per_byte.items():
        if shape != REGULAR:
            ratio = cost / per_byte[REGULAR]
            report.at_most(f"{shape}: records, of regular ones, by byte", 1.2, (ratio,))
    report.say(
        "Each segment is uncompressed, in warm memory, and read by one thread. "
        "bench/workloads/irregular_records.py describes the shapes. `records` has the time of "
        "batches and records. `Arrow` adds one record batch of offset, timestamp, key and value, "
        "with views of the payloads.",
        "",
        format_table(["ns per record", "bytes", *CALLS], rows),
    )
    measure_threads(report, records, rounds)
    return report.markdown(["numpy", "pyarrow"])


def measure_threads(report: Report, records: int, rounds: int) -> None:
    """Compare two threads with one thread, in turns."""
    rows = []
    for shape in (REGULAR, IRREGULAR):
        raw, count = make_segment(shape, records)
        batches = kafka.scan(raw, check=False)
        contenders = [
            Contender(
                f"{name} {workers}",
                time_call(partial(call_on_threads, call, batches, workers)),
                count,
                len(raw),
            )
            for name, call in CALLS_ON_THREADS.items()
            for workers in (1, THREADS)
        ]
        times = interleave(contenders, rounds)
        for name in CALLS_ON_THREADS:
            ratio = times.ratio(f"{name} 1", f"{name} {THREADS}")
            report.at_least(f"{shape}: {name}, times as fast on {THREADS} threads", 1.5, ratio)
            figures = [times.median(f"{name} {workers}") for workers in (1, THREADS)]
            rows.append([f"{shape}: {name}", *map(format_number, figures)])
    report.say(
        "",
        f"The same segments, read by one thread and by {THREADS} threads. The threads share the "
        "bandwidth of the memory, so fast calls gain least.",
        "",
        format_table(["ns per record", "1 thread", f"{THREADS} threads"], rows),
    )


def call_on_threads(
    call: Callable[[FrameTable], FrameTable], batches: FrameTable, workers: int
) -> FrameTable:
    with FixedWorkers(workers):
        return call(batches)
