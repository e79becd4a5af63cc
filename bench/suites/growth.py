"""How the time per byte grows with the bytes of a file, and with the bytes of a value."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import wirescan
from bench.report import Report, format_number, format_table
from bench.timing import Contender, Times, interleave, time_call
from bench.workloads import records_and_events
from wirescan import kafka
from wirescan.files.source import MappedFile

MIB = 1 << 20
GIB = 1 << 30
FULL = {"largest": GIB, "total": 64 * MIB, "rounds": 5}
HUGE = {"largest": 8 * GIB, "total": 64 * MIB, "rounds": 3}
QUICK = {"largest": 4 * MIB, "total": MIB, "rounds": 2}
SEGMENT = 64 * MIB  # the workload that a file repeats
IN_ROUND = 16 * MIB  # bytes that a contender reads at least, because one short call is not precise
BATCH = 16384  # bytes of a batch, unless one value is larger
VALUES = [20, 100, 512, 4 << 10, 32 << 10, 256 << 10, 2 * MIB, 16 * MIB]
UNITS = {"GiB": GIB, "MiB": MIB, "KiB": 1 << 10, "B": 1}
BATCHES = "batches"
CHECKED = "batches, checksums"
RECORDS = "batches and records, checksums"
CALLS = [BATCHES, CHECKED, RECORDS]
TITLE = "Growth"
BY_SIZE = "Bytes of the file"
BY_VALUE = "Bytes of a value"
BOUND = 1.5  # of the time per byte of one file to that of another


def run(largest: int, total: int, rounds: int) -> str:
    """Return the section as markdown.

    largest: bytes of the largest file. total: bytes of the values in each measurement by the size
    of a value, or one value.
    """
    report = Report(TITLE)
    report.say(
        "Nanoseconds per byte of `kafka.scan` without checksums, of `kafka.scan`, and of "
        "`wirescan.scan` of records. One thread; the bytes are uncompressed and warm. "
        "bench/growth.svg draws these figures (`python -m bench.growth_picture`). "
        "`python -m bench growth --huge` measures up to 8 GiB."
    )
    measure_sizes(report, largest, rounds)
    measure_values(report, total, rounds)
    return report.markdown(["numpy"])


def measure_sizes(report: Report, largest: int, rounds: int) -> None:
    """Read mapped files of growing size, with the same records again and again."""
    sizes = list_sizes(largest)
    contenders: list[Contender] = []
    segment = records_and_events.write_segment(2, "none", min(SEGMENT, largest)).path
    with tempfile.TemporaryDirectory(dir=records_and_events.find_directory()) as folder:
        path = Path(folder, "growth.log")
        lengths = write_repeated(segment, path, sizes)
        for size, length in zip(sizes, lengths):
            contenders += list_calls(format_size(size), MappedFile(str(path), length), length)
        times = interleave(contenders, rounds)
    first = format_size(min(SEGMENT, largest))
    last = format_size(largest)
    for call in (CHECKED, RECORDS):
        report.at_most(
            f"{call}: time per byte of {last}, of that of {first}",
            BOUND,
            times.ratio(name_call(last, call), name_call(first, call)),
        )
    report.say(
        f"### {BY_SIZE}",
        "",
        "A mapped file, with records of 127 bytes in batches of 16 KiB.",
        "",
        format_growth(times, [format_size(size) for size in sizes]),
    )


def list_sizes(largest: int) -> list[int]:
    """Return 1 MiB, 4 MiB and so on by factors of 4, and the largest size."""
    sizes = []
    size = MIB
    while size < largest:
        sizes.append(size)
        size *= 4
    return [*sizes, largest]


def write_repeated(segment: Path, path: Path, sizes: Sequence[int]) -> list[int]:
    """Write a segment again and again, until a file has the largest size.

    Returns the largest length of whole batches within each size. The same offsets come again.
    """
    data = segment.read_bytes()
    table = kafka.scan(data, check=False)
    ends = np.r_[0, table["start"] + table["size"]]
    repeats = -(-max(sizes) // len(data))
    with open(path, "wb") as file:
        for _ in range(repeats):
            file.write(data)
    lengths = []
    for size in sizes:
        whole, rest = divmod(size, len(data))
        end = ends[np.searchsorted(ends, rest, "right") - 1]
        lengths.append(whole * len(data) + int(end))
    return lengths


def measure_values(report: Report, total: int, rounds: int) -> None:
    """Read batches in memory whose values have one size."""
    contenders = []
    for size in VALUES:
        data = encode_values(size, max(1, total // size))
        contenders += list_calls(format_size(size), data, len(data))
    times = interleave(contenders, rounds)
    report.say(
        f"### {BY_VALUE}",
        "",
        f"Batches in memory with {format_size(total)} of values, or with one value that is "
        f"larger. A batch has at most {format_size(BATCH)}, or one larger record. Keys are null.",
        "",
        format_growth(times, [format_size(size) for size in VALUES]),
    )


def encode_values(size: int, count: int) -> np.ndarray:
    """Return batches with values of random letters."""
    letters = np.random.default_rng(5).integers(97, 123, size * count, np.uint8)
    offsets = np.arange(count + 1, dtype=np.int64) * size
    return np.frombuffer(kafka.encode_batches((offsets, letters), batch_bytes=BATCH), np.uint8)


def list_calls(label: str, data: Any, size: int) -> list[Contender]:
    """Return a contender for each of CALLS over `size` bytes. Its unit is a byte."""
    calls: dict[str, Callable[[], Any]] = {
        BATCHES: lambda: kafka.scan(data, check=False),
        CHECKED: lambda: kafka.scan(data),
        RECORDS: lambda: wirescan.scan(data, "kafka.records", workers=1),
    }
    turns = max(1, IN_ROUND // size)

    def repeat(call: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(turns):
                call()

        return run

    return [
        Contender(name_call(label, name), time_call(repeat(call)), turns * size, turns * size)
        for name, call in calls.items()
    ]


def name_call(label: str, call: str) -> str:
    return f"{label}: {call}"


def format_growth(times: Times, labels: Sequence[str]) -> str:
    """Return a table with a row for each size, and a column for each call."""
    rows = [
        [label, *(format_number(times.median(name_call(label, call))) for call in CALLS)]
        for label in labels
    ]
    return format_table(["ns per byte", *CALLS], rows)


def format_size(size: int) -> str:
    """Return a number of bytes as text: 64 MiB, 20 B."""
    unit = next(unit for unit, factor in UNITS.items() if size % factor == 0)
    return f"{size // UNITS[unit]} {unit}"


def parse_size(text: str) -> int:
    """Return the number of bytes in a text of `format_size`."""
    number, unit = text.split()
    return int(number) * UNITS[unit]
