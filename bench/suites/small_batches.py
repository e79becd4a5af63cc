"""Batches of few records, and messages of middling size: what each header costs."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

import wirescan
from bench.report import Report, format_number, format_table
from bench.suites.kafka_arrow import (
    C_PROGRAM,
    CHECKED,
    MEMORY,
    PARQUET,
    add_memory_targets,
    measure_memory,
    read_batches,
    write_parquet,
)
from bench.timing import Contender, interleave, time_call
from bench.workloads import records_and_events
from bench.workloads.irregular_records import RandomColumns, write_lognormal
from wirescan import kafka

FULL = {"records": 200_000, "size": 128 << 20, "rounds": 9}
QUICK = {"records": 5_000, "size": 1 << 20, "rounds": 2}
BATCH_BYTES = [1, 600, 1_200, 2_500, 16_384]  # at most; but a batch has at least one record
MEDIANS = [60, 150, 300, 600, 1_500]  # bytes of a payload
LARGEST = 20_000  # bytes of a payload
SPREAD = 0.6  # standard deviation of the logarithm of a size
COPY = "copy"
SCAN = "nats.scan"
ROWS = "wirescan, rows"


def run(records: int, size: int, rounds: int) -> str:
    """Return the section as markdown. size: bytes of the messages of each kind."""
    report = Report("Small batches", threads="1")
    rows = [measure_batches(report, records, most, rounds) for most in BATCH_BYTES]
    report.say(
        "### Batches of few records",
        "",
        "Records of the shape lognormal, in memory, to offset, timestamp, key and value, as in "
        "'Kafka records to Arrow'. A producer that does not linger sends batches of one record.",
        "",
        format_table(
            ["records in a batch", "bytes of a batch", C_PROGRAM, MEMORY, CHECKED, PARQUET], rows
        ),
    )
    rows = [measure_magic_1(size, rounds)]
    report.say(
        "### Messages of magic 1",
        "",
        "Each uncompressed message is a batch of one record.",
        "",
        format_table(["bytes of a message", ROWS, MEMORY, CHECKED], rows),
    )
    rows = [measure_messages(median, size, rounds) for median in MEDIANS]
    report.say(
        "### Messages of middling size",
        "",
        "Messages of NATS with lognormal payloads, together larger than the caches. `nats.scan` "
        "reads their headers only, and the copy is `numpy.copy` of all bytes.",
        "",
        format_table(["median of a payload, bytes", COPY, SCAN], rows),
    )
    return report.markdown(["numpy", "pyarrow"])


def measure_batches(report: Report, records: int, batch_bytes: int, rounds: int) -> list[str]:
    """Return a row of the table of batches, in ns per record."""
    written = write_lognormal(RandomColumns(records), batch_bytes=batch_bytes)
    raw = np.frombuffer(written, np.uint8)
    batches = len(kafka.scan(raw, check=False))
    with tempfile.TemporaryDirectory() as folder:
        parquet = Path(folder, "records.parquet")
        table = write_parquet(raw, parquet)
        times = measure_memory(raw, table, parquet.read_bytes(), rounds)
    per_batch = f"{records / batches:,.0f}"
    add_memory_targets(report, f"batches of {per_batch}", times)
    figures = (format_number(times.median(name)) for name in times.contenders)
    return [per_batch, f"{len(raw) / batches:,.0f}", *figures]


def measure_magic_1(size: int, rounds: int) -> list[str]:
    """Return the row of the table of messages of magic 1, in ns per message."""
    work = records_and_events.write_segment(1, "none", size)
    raw = work.path.read_bytes()
    calls = {
        ROWS: partial(wirescan.scan, raw, "kafka.records", workers=1, check=False),
        MEMORY: partial(read_batches, raw, workers=1, check=False),
        CHECKED: partial(read_batches, raw, workers=1, check=True),
    }
    contenders = [
        Contender(name, time_call(call), work.records, len(raw)) for name, call in calls.items()
    ]
    times = interleave(contenders, rounds)
    figures = (format_number(times.median(name)) for name in calls)
    return [f"{len(raw) / work.records:,.0f}", *figures]


def measure_messages(median: int, size: int, rounds: int) -> list[str]:
    """Return a row of the table of messages, in ns per message."""
    raw = np.frombuffer(make_messages(median, size), np.uint8)
    count = len(wirescan.scan(raw, "nats.messages"))
    calls = {COPY: np.copy, SCAN: partial(wirescan.scan, format="nats.messages")}
    contenders = [
        Contender(name, time_call(partial(call, raw)), count, len(raw))
        for name, call in calls.items()
    ]
    times = interleave(contenders, rounds)
    return [str(median), *(format_number(times.median(name)) for name in calls)]


def make_messages(median: int, size: int) -> bytes:
    """Return messages of about `size` bytes together."""
    generator = np.random.default_rng(3)
    sizes = generator.lognormal(np.log(median), SPREAD, size // median)
    sizes = np.minimum(sizes, LARGEST).astype(np.int64)
    sizes = sizes[: np.searchsorted(np.cumsum(sizes), size)]
    payload = generator.bytes(LARGEST)
    return b"".join(b"MSG orders.eu 7 %d\r\n%b\r\n" % (n, payload[:n]) for n in sizes.tolist())
