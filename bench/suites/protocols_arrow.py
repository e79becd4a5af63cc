"""Frames of NATS, Liftbridge, Lumberjack and Thrift to Arrow, beside a reader of Parquet."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import wirescan
from bench.report import Report, format_number, format_table
from bench.timing import Contender, Times, interleave, time_call
from bench.workloads import nats_messages, records_and_events, thrift_calls
from wirescan.export.batches import iter_batches

FULL = {"frames": 400_000, "rounds": 9}
QUICK = {"frames": 5_000, "rounds": 2}
ROW_GROUPS = 8  # of a Parquet file
COPY = "copy"
ROWS = "rows"
VIEWS = "Arrow, views"
COPIES = "Arrow, copies"
PARQUET = "pyarrow, Parquet"
BOUND = 1.0  # the largest ratio of the times of views and pyarrow


class Workload(NamedTuple):
    """Frames in memory, and the columns that are read of them."""

    raw: np.ndarray
    format: str
    columns: list[str]


def run(frames: int, rounds: int) -> str:
    """Return the section as markdown. frames: the number of frames of each protocol, about."""
    report = Report("Other protocols to Arrow", threads="1")
    rows = []
    works = make_workloads(frames)
    for name, work in works.items():
        times, count = measure(work, rounds)
        report.at_most(f"{name}: views, of pyarrow and Parquet", BOUND, times.ratio(VIEWS, PARQUET))
        figures = (format_number(times.median(reader)) for reader in times.contenders)
        rows.append([name, work.format, f"{len(work.raw) / count:,.0f}", *figures])
    report.say(
        "Bytes in memory to some columns: numbers, and byte strings as views or as copies. `rows` "
        "is the scan alone. A Parquet file in memory has the same columns as plain values, "
        f"uncompressed and in {ROW_GROUPS} row groups; it has no bytes of the other columns. "
        "All read on one thread. Compressed frames of Lumberjack have zlib streams of events. "
        + " ".join(f"{name}: {', '.join(work.columns)}." for name, work in works.items()),
        "",
        format_table(
            ["ns per row", "format", "bytes", COPY, ROWS, VIEWS, COPIES, PARQUET],
            rows,
        ),
    )
    return report.markdown(["numpy", "pyarrow"])


def make_workloads(frames: int) -> dict[str, Workload]:
    """Return the workloads by name. frames: the number of frames, about."""
    message = ["subject", "sid", "reply", "payload"]
    entry = ["offset", "timestamp", "key", "value"]
    event = ["sequence", "json"]
    call = ["method", "seqid", "arguments"]
    files = {
        "NATS": (nats_messages.write_capture("capture", frames), "nats.messages", message),
        "NATS, headers": (nats_messages.write_capture("headers", frames), "nats.messages", message),
        "Liftbridge": (nats_messages.write_log(frames), "liftbridge.entries", entry),
        "Lumberjack": (records_and_events.write_stream("json", frames), "lumberjack.events", event),
        "Lumberjack, compressed": (
            records_and_events.write_stream("compressed", frames),
            "lumberjack.events",
            event,
        ),
    }
    works = {
        name: Workload(np.fromfile(path, np.uint8), format, columns)
        for name, (path, format, columns) in files.items()
    }
    works["Thrift, headers"] = Workload(
        thrift_calls.make_header_frames(frames), "thrift.messages", call
    )
    works["Thrift, framed"] = Workload(
        thrift_calls.make_framed_calls(frames), "thrift.messages", call
    )
    return works


def measure(work: Workload, rounds: int) -> tuple[Times, int]:
    """Return the times of all readers, and the number of rows."""
    table = pa.Table.from_batches(read_batches(work, "binary"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "frames.parquet")
        pq.write_table(
            table,
            path,
            compression="none",
            use_dictionary=False,
            row_group_size=-(-len(table) // ROW_GROUPS),
        )
        parquet = path.read_bytes()
    calls = {
        COPY: partial(np.copy, work.raw),
        ROWS: partial(wirescan.scan, work.raw, work.format, workers=1),
        VIEWS: partial(read_batches, work, "view"),
        COPIES: partial(read_batches, work, "binary"),
        PARQUET: lambda: pq.read_table(pa.BufferReader(parquet), use_threads=False),
    }
    contenders = [
        Contender(name, time_call(call), len(table), len(work.raw)) for name, call in calls.items()
    ]
    return interleave(contenders, rounds), len(table)


def read_batches(work: Workload, binary: str) -> list[pa.RecordBatch]:
    """Return all batches, so that all columns exist at the same time."""
    return list(
        iter_batches(work.raw, format=work.format, columns=work.columns, binary=binary, workers=1)
    )
