"""Kafka records of regular and irregular shapes: to rows and to four Arrow columns."""

from __future__ import annotations

from functools import partial

import numpy as np

from bench.report import Report, format_number, format_table
from bench.timing import Contender, interleave, time_call
from bench.workloads.irregular_records import SHAPES, make_segment
from wirescan import kafka
from wirescan.frames.to_arrow import to_batch

COLUMNS = ["offset", "timestamp", "key", "value"]
FULL = {"records": 800_000, "rounds": 15}
QUICK = {"records": 20_000, "rounds": 2}
REGULAR = "regular"
# The readings of a segment, by their names in the table.
CALLS = {
    "copy": np.copy,
    "records": lambda raw: kafka.records(kafka.scan(raw, check=False), check=False),
    "records, checksums": lambda raw: kafka.records(kafka.scan(raw)),
    "Arrow, checksums": lambda raw: to_batch(kafka.records(kafka.scan(raw)), COLUMNS),
}


def run(records: int, rounds: int) -> str:
    """Return the section as markdown. records: in the regular workload."""
    report = Report("Kafka records of irregular shapes")
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
    return report.markdown(["numpy", "pyarrow"])
