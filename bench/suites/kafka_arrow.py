"""Kafka records to four Arrow columns, beside Parquet readers and a bound written in C."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from bench.peers.one_pass import OnePass
from bench.report import Report, format_timings
from bench.timing import Contender, interleave, time_call
from bench.workloads.irregular_records import SHAPES, make_segment
from wirescan import kafka
from wirescan.export.batches import iter_batches
from wirescan.frames.to_arrow import to_batch

COLUMNS = ["offset", "timestamp", "key", "value"]
FULL = {"records": 800_000, "rounds": 15}
QUICK = {"records": 20_000, "rounds": 2}
SKETCH = "one pass in C"
MEMORY = "memory to Arrow"
CHECKED = "memory to Arrow, checksums"
FILE = "file to Arrow batches, checksums"
PARQUET = "pyarrow, Parquet in memory"
PARQUET_FILE = "pyarrow, Parquet file, 1 thread"
PARQUET_FILE_2 = "pyarrow, Parquet file, 2 threads"


def read_memory(raw: np.ndarray, *, check: bool) -> pa.RecordBatch:
    return to_batch(kafka.records(kafka.scan(raw, check=check), check=check), COLUMNS)


def read_file(path: Path) -> list[pa.RecordBatch]:
    return list(iter_batches(str(path), format="kafka.records", columns=COLUMNS, binary="view"))


def read_parquet(source: Path | pa.Buffer, *, use_threads: bool) -> pa.Table:
    reader = pa.BufferReader(source) if isinstance(source, pa.Buffer) else source
    return pq.ParquetFile(reader).read(use_threads=use_threads)


def run(records: int, rounds: int) -> str:
    """Return the section as markdown. records: in the regular workload."""
    pa.set_cpu_count(2)
    report = Report("Kafka records to Arrow", threads="1, and 2 where a row says so")
    report.say(
        "Uncompressed segments and uncompressed Parquet files with the same rows, in warm memory. "
        "bench/workloads/irregular_records.py describes the shapes. The sketch in C "
        "(bench/peers/one_pass.c) checks nothing and writes no validity. GB/s counts the bytes "
        "of the segment. wirescan uses one thread."
    )
    for shape in SHAPES:
        raw, count = make_segment(shape, records)
        with tempfile.TemporaryDirectory() as folder:
            measure_shape(report, shape, raw, count, rounds, Path(folder))
    return report.markdown(["numpy", "pyarrow"])


def measure_shape(
    report: Report, shape: str, raw: np.ndarray, count: int, rounds: int, folder: Path
) -> None:
    segment, parquet = folder / f"{0:020}.log", folder / "records.parquet"
    raw.tofile(segment)
    table = write_parquet(segment, parquet)
    sketch = OnePass(raw, count)
    compare_columns(sketch(), table)
    in_memory = pa.py_buffer(parquet.read_bytes())
    calls = {
        SKETCH: sketch,
        MEMORY: partial(read_memory, raw, check=False),
        CHECKED: partial(read_memory, raw, check=True),
        PARQUET: partial(read_parquet, in_memory, use_threads=False),
        FILE: partial(read_file, segment),
        PARQUET_FILE: partial(read_parquet, parquet, use_threads=False),
        PARQUET_FILE_2: partial(read_parquet, parquet, use_threads=True),
    }
    times = interleave(
        [Contender(name, time_call(call), count, len(raw)) for name, call in calls.items()], rounds
    )
    against = {MEMORY: SKETCH, CHECKED: PARQUET, FILE: PARQUET_FILE}
    for ours, theirs, bound in (
        (MEMORY, SKETCH, 1.4),
        (CHECKED, PARQUET, 0.5),
        (FILE, PARQUET_FILE, 0.7),
    ):
        report.at_most(f"{shape}: {ours}, of {theirs}", bound, times.ratio(ours, theirs))
    report.say(f"### To Arrow: {shape}", "", format_timings(times, against))


def write_parquet(segment: Path, parquet: Path) -> pa.Table:
    """Write the records of a segment as an uncompressed Parquet file, and return them."""
    batches = iter_batches(str(segment), format="kafka.records", columns=COLUMNS, binary="binary")
    table = pa.Table.from_batches(batches)
    pq.write_table(table, parquet, compression="none", use_dictionary=False)
    return table


def compare_columns(columns: list[np.ndarray], table: pa.Table) -> None:
    """Raise ValueError if the sketch's numbers or sizes differ from wirescan's."""
    for name, column in zip(COLUMNS, columns):
        array = table.column(name).combine_chunks()
        if column.ndim == 2:
            found = column[:, :4].copy().view(np.int32).ravel()
            expected = pa.compute.binary_length(array).fill_null(0).to_numpy()
        else:
            found = column
            expected = array.cast(pa.int64()).to_numpy()
        if not np.array_equal(found, expected):
            raise ValueError(f"the sketch reads other values of {name}")
