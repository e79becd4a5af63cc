"""`wirescan convert` of segments in mixed codecs, compared with pyarrow writing the same rows.

The figures are processor time, of all threads and processes.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.report import Report, format_number, format_table, format_timings
from bench.timing import Contender, interleave
from bench.workloads import records_and_events
from wirescan.export import parquet
from wirescan.export.parquet_writer import COMPRESSION, GROUP_BYTES, make_writer

MIB = 1 << 20
FULL = {"size": 256 * MIB, "rounds": 5}
QUICK = {"size": MIB, "rounds": 2}
FORMAT = "kafka.records"
COLUMNS = ["offset", "timestamp", "key", "value"]
CODECS = list(records_and_events.CODECS)
COMMAND = "wirescan convert"
IN_PROCESS = "wirescan.export.parquet.convert"
START = "wirescan convert, of an empty file"
WRITER = "pyarrow, settings of wirescan"
PLAIN = "pyarrow, its own settings"
BOUND = 1.25  # of the time of pyarrow


def run(size: int, rounds: int) -> str:
    """Return the section as markdown. size: bytes of a segment before compression."""
    report = Report("Convert to Parquet", threads="2 for the command, and 1 for pyarrow")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        segments, plain, records = link_segments(folder, size)
        empty = folder / "empty.log"
        empty.touch()
        out = folder / "out"
        convert(segments, out)
        table = pq.read_table(out)
        check_rows(table, records)
        calls: dict[str, Callable[[], object]] = {
            COMMAND: lambda: convert(segments, out),
            IN_PROCESS: lambda: parquet.convert(
                [str(path) for path in segments],
                str(folder / "again"),
                FORMAT,
                columns=COLUMNS,
                workers=1,
                overwrite=True,
            ),
            START: lambda: convert([empty], folder / "nothing"),
            WRITER: lambda: write_like_wirescan(table, folder / "like.parquet"),
            PLAIN: lambda: pq.write_table(table, folder / "plain.parquet", compression=COMPRESSION),
        }
        contenders = [
            Contender(name, measure_cpu(call), len(table), plain) for name, call in calls.items()
        ]
        times = interleave(contenders, rounds)
        sizes = {
            COMMAND: sum(path.stat().st_size for path in out.rglob("*.parquet")),
            WRITER: (folder / "like.parquet").stat().st_size,
            PLAIN: (folder / "plain.parquet").stat().st_size,
        }
    for peer in (WRITER, PLAIN):
        report.at_most(f"`{COMMAND}`: processor time, of {peer}", BOUND, times.ratio(COMMAND, peer))
    report.say(describe(size, len(table)))
    report.say(format_timings(times, dict.fromkeys([COMMAND, IN_PROCESS, PLAIN], WRITER)))
    report.say(format_table(["", "MiB"], [[n, format_number(s / MIB)] for n, s in sizes.items()]))
    return report.markdown(["pyarrow"])


def describe(size: int, records: int) -> str:
    """Return the text above the tables."""
    return (
        f"One segment of {size / MIB:.0f} MiB before compression in each of the codecs "
        f"{', '.join(CODECS)}: {records:,} records with {', '.join(COLUMNS)}, to Parquet in "
        f"{COMPRESSION}. Times are processor time (user and system) of all threads. The command "
        "is a process: it starts, reads the files, decompresses, verifies checksums and writes. "
        "Its time for an empty file is that of the start. `wirescan.export.parquet.convert` does "
        "the same in a process that has done it before. pyarrow has the rows as a table in "
        "memory, and only writes them. Its own settings are those of "
        "`pyarrow.parquet.write_table` with the same codec."
    )


def link_segments(folder: Path, size: int) -> tuple[list[Path], int, int]:
    """Link a segment of each codec into the directory of a partition.

    Returns the paths of the segments, their bytes before compression, and their records.
    """
    paths = []
    plain = 0
    records = 0
    for partition, codec in enumerate(CODECS):
        work = records_and_events.write_segment(2, codec, size)
        path = folder / f"orders-{partition}" / work.path.name
        path.parent.mkdir()
        path.symlink_to(work.path)
        paths.append(path)
        plain += work.plain
        records += work.records
    return paths, plain, records


def convert(sources: list[Path], out: Path) -> None:
    """Run the command in a process. Raises CalledProcessError if it fails."""
    command = [sys.executable, "-m", "wirescan", "convert", *map(str, sources), str(out)]
    options = ["--format", FORMAT, "--columns", ",".join(COLUMNS), "--overwrite", "--no-query"]
    subprocess.run([*command, *options], check=True, capture_output=True)


def write_like_wirescan(table: pa.Table, path: Path) -> None:
    """Write a table with the settings and the row groups of wirescan."""
    rows = max(1, len(table) * GROUP_BYTES // max(1, table.nbytes))
    with make_writer(path, table.schema, COMPRESSION) as writer:
        writer.write_table(table, row_group_size=rows)


def measure_cpu(call: Callable[[], object]) -> Callable[[], float]:
    """Return a function that makes a call and returns its processor seconds.

    They are those of this process and of child processes that ended.
    """

    def run() -> float:
        before = read_cpu()
        call()
        return read_cpu() - before

    return run


def read_cpu() -> float:
    """Return the processor seconds of this process and of child processes that ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def check_rows(table: pa.Table, records: int) -> None:
    """Raise ValueError if a table has not the records of all segments, which start at offset 0."""
    each = records // len(CODECS)
    expected = np.repeat(np.arange(each), len(CODECS))
    if not np.array_equal(np.sort(table.column("offset").to_numpy()), expected):
        raise ValueError(f"the converted files have {len(table)} rows, and not all {records}")
