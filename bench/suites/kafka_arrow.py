"""Kafka records to four Arrow columns, beside Parquet readers and a bound written in C."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.one_pass import OnePass
from bench.peers.polars_reader import PolarsReader
from bench.report import Report, format_number, format_table
from bench.timing import Contender, Times, interleave, time_call
from bench.workloads.irregular_records import SHAPES, make_segment
from wirescan.export.batches import iter_batches

COLUMNS = ["offset", "timestamp", "key", "value"]
FULL = {"records": 400_000, "rounds": 9}
QUICK = {"records": 20_000, "rounds": 2}
ROW_GROUPS = 8  # of a Parquet file, so that its readers have work for two threads
C_PROGRAM = "C program"
MEMORY = "wirescan"
CHECKED = "wirescan, checksums"
PARQUET = "pyarrow, Parquet"
# Readers of files, by their number of threads: 1 or 2.
THREADS = {1: "1 thread", 2: "2 threads"}
COPIED = {n: f"wirescan, {threads}" for n, threads in THREADS.items()}
MAPPED = {n: f"wirescan mapped, {threads}" for n, threads in THREADS.items()}
PARQUET_COPIED = {n: f"pyarrow, {threads}" for n, threads in THREADS.items()}
PARQUET_MAPPED = {n: f"pyarrow mapped, {threads}" for n, threads in THREADS.items()}
POLARS_FILE = {n: f"polars, {threads}" for n, threads in THREADS.items()}
FILE_BOUNDS = {1: 0.7, 2: 0.45}  # of pyarrow with as many threads, which reads in the same way


def run(records: int, rounds: int) -> str:
    """Return the section as markdown. records: in the regular workload."""
    report = Report("Kafka records to Arrow", threads="1, and 2 where a column says so")
    in_memory = []
    from_file = []
    for shape in SHAPES:
        raw, count = make_segment(shape, records)
        with tempfile.TemporaryDirectory() as folder:
            segment = Path(folder, f"{0:020}.log")
            parquet = Path(folder, "records.parquet")
            raw.tofile(segment)
            table = write_parquet(raw, parquet)
            times = measure_memory(raw, table, parquet.read_bytes(), rounds)
            in_memory.append(make_row(shape, times))
            add_memory_targets(report, shape, times)
            del table
            times = measure_file(segment, parquet, count, len(raw), rounds)
            from_file.append(make_row(shape, times))
            add_file_targets(report, shape, times)
    describe(report, in_memory, from_file)
    polars = ["polars"] if has_polars() else []
    return report.markdown(["numpy", "pyarrow", *polars])


def add_memory_targets(report: Report, shape: str, times: Times) -> None:
    report.at_most(
        f"{shape}: memory, no checksums, of the C program", 1.4, times.ratio(MEMORY, C_PROGRAM)
    )
    report.at_most(
        f"{shape}: memory, checksums, of pyarrow and Parquet in memory",
        0.5,
        times.ratio(CHECKED, PARQUET),
    )


def add_file_targets(report: Report, shape: str, times: Times) -> None:
    for kind, ours, parquet in (
        ("file", COPIED, PARQUET_COPIED),
        ("mapped file", MAPPED, PARQUET_MAPPED),
    ):
        for threads, bound in FILE_BOUNDS.items():
            report.at_most(
                f"{shape}: {kind}, checksums, of pyarrow and Parquet, threads: {threads}",
                bound,
                times.ratio(ours[threads], parquet[threads]),
            )


def describe(report: Report, in_memory: list[list[str]], from_file: list[list[str]]) -> None:
    report.say(
        "Uncompressed segments to offset, timestamp, key and value, the payloads as binary views. "
        "Parquet files have the same rows as plain values, which pyarrow reads faster than "
        f"dictionaries, uncompressed and in {ROW_GROUPS} row groups. "
        "bench/workloads/irregular_records.py describes the shapes."
    )
    report.say(
        "### Bytes in memory",
        "",
        "One thread. All inputs are `bytes`, which have small pages. The C program "
        "(bench/peers/one_pass.c) checks nothing, writes no validity, and writes into the same "
        "memory each time.",
        "",
        format_table(["ns per record", C_PROGRAM, MEMORY, CHECKED, PARQUET], in_memory),
    )
    report.say(
        "### Files",
        "",
        "The files are in the page cache. wirescan verifies checksums. pyarrow has as many threads "
        "to decode, and as many again to read the file. polars runs in a separate process. "
        "Mapped files are not copied: `mapped=True` of wirescan, and `memory_map=True` of pyarrow.",
        "",
        format_table(["ns per record", *list_file_readers()], from_file),
    )


def make_row(shape: str, times: Times) -> list[str]:
    return [shape, *(format_number(times.median(name)) for name in times.contenders)]


def list_file_readers() -> list[str]:
    polars = POLARS_FILE.values() if has_polars() else []
    ours = [*COPIED.values(), *MAPPED.values()]
    return [*ours, *PARQUET_COPIED.values(), *PARQUET_MAPPED.values(), *polars]


def has_polars() -> bool:
    return importlib.util.find_spec("polars") is not None


def write_parquet(raw: np.ndarray, path: Path) -> pa.Table:
    """Write the records of a segment as an uncompressed Parquet file, and return them."""
    table = pa.Table.from_batches(read_batches(raw, binary="binary"))
    group = -(-len(table) // ROW_GROUPS)
    pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=group)
    return table


def read_batches(
    source: np.ndarray | str, *, binary: str = "view", **options: Any
) -> list[pa.RecordBatch]:
    """Return all batches of a segment, so that all columns exist at the same time."""
    batches = iter_batches(
        source, format="kafka.records", columns=COLUMNS, binary=binary, **options
    )
    return list(batches)


def measure_memory(raw: np.ndarray, table: pa.Table, parquet: bytes, rounds: int) -> Times:
    """Time the readers of bytes in memory.

    table: the records of the segment `raw`. parquet: a Parquet file with the same records.
    """
    one_pass = OnePass(raw, len(table))
    compare_columns(one_pass(), one_pass.raw, table)
    calls = {
        C_PROGRAM: one_pass,
        MEMORY: partial(read_batches, raw, workers=1, check=False),
        CHECKED: partial(read_batches, raw, workers=1, check=True),
        PARQUET: lambda: pq.read_table(pa.BufferReader(parquet), use_threads=False),
    }
    contenders = [
        Contender(name, time_call(call), len(table), len(raw)) for name, call in calls.items()
    ]
    return interleave(contenders, rounds)


def measure_file(segment: Path, parquet: Path, count: int, size: int, rounds: int) -> Times:
    """Time the readers of files, with one thread and with two.

    count: the number of records in each file. size: the bytes of the segment.
    """
    seconds: dict[str, Callable[[], float]] = {}
    for names, mapped in ((COPIED, False), (MAPPED, True)):
        for threads, name in names.items():
            read = partial(read_batches, str(segment), workers=threads, mapped=mapped)
            seconds[name] = time_call(read)
    for names, mapped in ((PARQUET_COPIED, False), (PARQUET_MAPPED, True)):
        for threads, name in names.items():
            read = partial(pq.read_table, parquet, use_threads=threads > 1, memory_map=mapped)
            seconds[name] = limit_pyarrow(threads, time_call(read))
    before = pa.cpu_count(), pa.io_thread_count()
    with ExitStack() as stack:
        stack.callback(set_pyarrow_threads, *before)
        if has_polars():
            for threads, name in POLARS_FILE.items():
                reader = stack.enter_context(PolarsReader(parquet, count, threads))
                seconds[name] = reader.seconds
        contenders = [Contender(name, call, count, size) for name, call in seconds.items()]
        return interleave(contenders, rounds)


def limit_pyarrow(threads: int, seconds: Callable[[], float]) -> Callable[[], float]:
    """Return `seconds` with as many threads of pyarrow. Changing the number is not timed."""

    def run() -> float:
        set_pyarrow_threads(threads, threads)
        return seconds()

    return run


def set_pyarrow_threads(decoding: int, reading: int) -> None:
    pa.set_cpu_count(decoding)
    pa.set_io_thread_count(reading)


def compare_columns(columns: list[np.ndarray], data: np.ndarray, table: pa.Table) -> None:
    """Raise ValueError if the C program's columns differ from wirescan's.

    columns: those of the C program, whose views point into `data`. It writes nulls as empty.
    """
    for name, column in zip(COLUMNS, columns):
        expected = table.column(name).combine_chunks()
        if column.ndim == 2:
            buffers = [None, pa.py_buffer(column), pa.py_buffer(data)]
            found = pa.Array.from_buffers(pa.binary_view(), len(column), buffers)
            same = found.cast(pa.binary()).equals(expected.fill_null(b""))
        else:
            same = np.array_equal(column, expected.cast(pa.int64()).to_numpy())
        if not same:
            raise ValueError(f"the C program reads other values of {name}")
