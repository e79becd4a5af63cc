"""`wirescan scan`: prints frames one by one, as text, JSON lines or an Arrow stream."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import click
import numpy as np

from wirescan.cli.common import (
    DAMAGE,
    DEFAULT_FORMAT,
    Failure,
    FileEnds,
    FormatCommand,
    check_option,
    columns_option,
    compute_total_size,
    errors_option,
    format_option,
    limits_option,
    parse_names,
    paths_argument,
    resolve_paths,
)
from wirescan.cli.csv_rows import format_csv_row
from wirescan.cli.input import read_part
from wirescan.cli.output import (
    colour,
    dump_json,
    format_path,
    name_path,
    open_output,
    print_message,
)
from wirescan.cli.progress import Progress
from wirescan.cli.support.selection import RowChooser, Selection, selection_options
from wirescan.frames.columns import START, list_columns
from wirescan.frames.errors import FrameError
from wirescan.frames.fault_names import FaultMeaning
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import find_bad_frames
from wirescan.frames.row_values import (
    WIDEST_CELL,
    RowValues,
    list_all_columns,
    list_bytes_columns,
    list_json_columns,
    list_text_columns,
)
from wirescan.frames.similar_names import hint_at_names
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import ENCODINGS, format_bytes, format_count
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import open_nested, scan_outermost

WIDEST = 32  # characters of a column that is not the last one
SAMPLE = 200  # rows that decide how wide the columns are
CHUNK = 4096  # rows that are rendered together
CHUNK_BYTES = 8 << 20  # bytes of frames that are written at a time
SUFFIXES = {
    "json": (".json", ".jsonl", ".ndjson"),
    "csv": (".csv",),
    "arrow": (".arrow", ".arrows", ".ipc"),
    "text": (".txt", ".text"),
}
# Message -> suffixes of files that `wirescan scan` does not write.
UNWRITABLE = {
    "has commas between its fields: use -o FILE.csv": ".tsv .psv",
    "is not Parquet: use `wirescan convert`": ".parquet .pq",
    "is not compressed: use a pipe": ".gz .zst .zstd .bz2 .xz .lz4 .zip",
    "is text, JSON lines, CSV or an Arrow stream": ".feather .orc .avro .xlsx .xls .html .xml "
    ".yaml .yml .sqlite .db .npy .npz .pkl",
}

HELP = """Print frames one by one: text for people, --json, --csv or --arrow for programs.

\b
Examples:
  wirescan scan orders-0 --limit 20
  wirescan scan orders-0 --format kafka.batches
  wirescan scan orders-0 --json --columns offset,key,value | jq
  wirescan scan orders-0 --json --encoding key=utf8,value=base64
  wirescan scan orders-0 --arrow | duckdb ...       (or -o orders.arrow)
  cat *.log | wirescan scan -

\b
In JSON and CSV, bytes are strings in the notation that --encoding names:
  utf8           the text; a byte that is not UTF-8 is U+FFFD and two hex
                 digits, and so is each of the bytes EF BF BD of a U+FFFD
  base64, hex    that notation
  escape         ASCII with \\n, \\r, \\t, \\\\ and \\xNN
  int, float     a number: big-endian bytes, as Kafka's serializers write
  uuid           its text; the bytes are 16, or the text

Bytes that are no such number or UUID are text as escape writes it.

In CSV, null is an empty field, empty text is "", and lists are JSON. Spreadsheets may run a text
that begins with = as a formula.

Times are milliseconds since 1970, and null if there is none. Times of Liftbridge are nanoseconds.
Numbers that JSON does not have, such as infinity, are null. So is what was not read of a bad frame.
Codes, such as those of codecs and errors, have names. In text, times are UTC, unprintable
characters are escaped, and a cell has at most 1,000 characters.

Exit codes: 0 good, 1 damage was found (not with --errors skip), 2 cannot be done.
"""


@click.command(
    cls=FormatCommand,
    writes_columns=True,
    help=HELP,
    short_help="Print frames one by one: text, JSON lines, CSV or Arrow.",
)
@paths_argument
@format_option(DEFAULT_FORMAT)
@errors_option("mark")
@check_option
@limits_option
@selection_options()
@columns_option()
@click.option("--json", "as_json", is_flag=True, help="Write JSON lines, one per frame.")
@click.option("--csv", "as_csv", is_flag=True, help="Write CSV, with a line of column names.")
@click.option("--arrow", "as_arrow", is_flag=True, help="Write an Arrow IPC stream.")
@click.option(
    "--encoding",
    default="utf8",
    metavar="NAME,COLUMN=NAME",
    help="Write bytes in this notation, in all columns or in some. Not for Arrow.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write to FILE. The suffixes .jsonl, .csv, .arrow and .txt choose the format.",
)
@click.pass_context
def scan(
    context: click.Context,
    *,
    paths: tuple[str, ...],
    format_name: Format,
    errors: str,
    check: bool,
    limits: Limits,
    selection: Selection,
    columns: str | None,
    as_json: bool,
    as_csv: bool,
    as_arrow: bool,
    encoding: str,
    output: str | None,
) -> None:
    """Run `wirescan scan`."""
    flags = {"json": as_json, "csv": as_csv, "arrow": as_arrow}
    options = [name for name, is_given in flags.items() if is_given]
    if len(options) > 1:
        raise click.UsageError(f"--{options[0]} and --{options[1]} exclude each other")
    kind = _choose_output_kind(output, options[0] if options else None)
    files = selection.select_files(resolve_paths(paths, format_name))
    if output:
        _refuse_input_as_output(output, files)
    is_quiet = kind == "text" and output is None and sys.stdout.isatty()
    progress = Progress(compute_total_size(files), "scanning", quiet=is_quiet)
    with open_output(output, binary=kind == "arrow") as out, progress as bar:
        names = parse_names(columns, list_all_columns(format_name))
        encodings = _parse_encodings(encoding, format_name)
        tables = Tables(files, format_name, errors, selection, bar, limits, check=check)
        if kind == "arrow":
            _write_arrow(out, tables, format_name, names, errors)
        elif kind in ("json", "csv"):
            names = names or list_json_columns(format_name)
            values = RowValues(format_name, names, encodings, errors, for_people=False)
            write = _write_json if kind == "json" else _write_csv
            write(out, tables, values, names)
        else:
            names = names or list_text_columns(format_name)
            values = RowValues(format_name, names, encodings, errors, for_people=True)
            _write_text(out, tables, values, names)
    tables.report()
    context.exit(DAMAGE if tables.damage and errors != "skip" else 0)


def _refuse_input_as_output(output: str, files: Iterable[str]) -> None:
    """Raise Failure if the output file is one of the files to read."""
    if not os.path.exists(output):
        return
    if any(os.path.exists(file) and os.path.samefile(file, output) for file in files):
        raise Failure(f"{format_path(output)}: would be replaced while it is read")


class Tables:
    """Iterates over the tables of frames in files, piece by piece, as (table, path).

    Damage in the lists of a row, such as its headers, counts even if they are not shown. So does
    damage in frames that were read and are not selected.

    Args:
        files: what to read.
        format: the format of the frames.
        errors: "strict" raises FrameError, "mark" keeps bad frames, "skip" drops them.
        selection: which frames to iterate over.
        progress: called with the bytes read.
        limits: for reading.
        check: verify checksums.

    Attributes:
        damage: whether damage was found so far.
    """

    def __init__(
        self,
        files: list[str],
        format: Format,
        errors: str,
        selection: Selection,
        progress: Progress,
        limits: Limits,
        *,
        check: bool,
    ):
        self._options: dict[str, Any] = {"errors": "mark", "check": check, "limits": limits}
        self._files = files
        self._format = format
        self._errors = errors
        self._selection = selection
        self._progress = progress
        self._seen = 0
        self.damage = False
        self._faults: Counter[tuple[int, FaultMeaning]] = Counter()
        self._ends = FileEnds()

    def __iter__(self) -> Iterator[tuple[FrameTable, str]]:
        selection = self._selection
        limits = self._options["limits"]
        plan = selection.plan(self._files, self._errors, limits, check=self._options["check"])
        if plan.chooser.is_done:
            return
        for path, start, stop in plan.parts:
            allowance = Allowance(limits)
            options = {"allowance": allowance, **self._options}
            pieces = read_part(path, start, stop, self._progress, allowance)
            for piece in scan_outermost(pieces, self._format, offset=start, **options):
                frames = selection.prune(piece, path)
                max_rows = plan.chooser.max_rows
                for table in open_nested(frames, self._format, max_rows=max_rows, **options):
                    yield from self._apply_mode(table, path, plan.chooser)
                    if plan.chooser.is_done:
                        return
            self._ends.add(piece, path)
            self.damage |= self._ends.is_damaged

    def report(self) -> None:
        """Print empty files, cut tails and bad frames to standard error."""
        self._ends.report()
        for (_, fault), count in sorted(self._faults.items()):
            dropped = " (dropped)" if self._errors == "skip" else ""
            frames = format_count(count, "bad frame")
            print_message(f"wirescan: {frames}{dropped}: {fault.name}, {fault.meaning}")

    def _apply_mode(
        self, table: FrameTable, path: str, chooser: RowChooser
    ) -> Iterator[tuple[FrameTable, str]]:
        """Yield what the mode and the selection leave of a table, and count its damage."""
        chosen = chooser.choose(table, path)
        selected = table if len(chosen) == len(table) else table[chosen]
        if chooser.is_done and self._errors != "skip":
            table = table[: int(chosen[-1]) + 1 if len(chosen) else 0]
        damaged = find_bad_frames(table)
        if damaged and self._errors == "strict":
            bad, rows = min(damaged, key=lambda item: int(item[1][0]))
            first = int(rows[0])
            before = chosen[chosen < first]
            if len(before):
                yield table[before], path
            raise _make_error(bad, self._seen + first, path)
        for bad, _ in damaged:
            self.damage = True
            for number, count in Counter(bad["fault"].tolist()).items():
                self._faults[number, bad.describe_fault(number)] += count
        self._seen += len(table)
        if len(selected):
            yield selected, path


def _make_error(table: FrameTable, row: int, path: str) -> FrameError:
    """Return the error for damage in a scanned row.

    Args:
        table: its first row is the damage: the scanned row, or a part of it.
        row: the number of the scanned row.
        path: the file.
    """
    fault = int(table["fault"][0])
    at = int(table[:1].positions[0])
    i = 0
    while table.outer is not None and table.outer["fault"][table["parent"][i]]:
        # The enclosing frame is what is bad.
        i = int(table["parent"][i])
        table = table.outer
    source = "(standard input)" if path == "-" else path
    meaning = table.describe_fault(fault)
    return FrameError(fault, at, row, table.frame(i), source, meaning=meaning)


def _parse_encodings(option: str, format: Format) -> dict[str, str]:
    """Return the encoding of each column of bytes, by the value of --encoding.

    NAME is for all columns, COLUMN=NAME for one. Raises click.UsageError.
    """
    columns = list_bytes_columns(format)
    chosen: dict[str, str] = {}
    default = ENCODINGS[0]
    for item in option.split(","):
        column, _, name = (part.strip() for part in item.rpartition("="))
        if name not in ENCODINGS:
            raise click.UsageError(f"there is no encoding {name!r}{hint_at_names(name, ENCODINGS)}")
        if not column:
            default = name
        elif column in columns:
            chosen[column] = name
        else:
            raise click.UsageError(
                f"there is no column {column!r} with bytes{hint_at_names(column, columns)}"
            )
    return dict.fromkeys(columns, default) | chosen


def _choose_output_kind(output: str | None, option: str | None) -> str:
    """Return "text", "json" or "arrow", by an option or else by the name of the output file.

    Args:
        output: the output file; None or "-" is standard output.
        option: "json" or "arrow", if the user gave that option.

    Raises:
        click.UsageError: if the name of the file contradicts what is written.
    """
    if output is None or output == "-":
        return option or "text"
    if output.startswith("-"):
        name = format_path(output)
        raise click.UsageError(
            f"-o {name} looks like an option; -o ./{name} is a file with that name"
        )
    suffix = os.path.splitext(output)[1].lower()
    for message, suffixes in UNWRITABLE.items():
        if suffix in suffixes.split():
            raise click.UsageError(f"-o {format_path(output)}: the output {message}")
    named = next((kind for kind, suffixes in SUFFIXES.items() if suffix in suffixes), None)
    if option and named and named != option and (option, named) != ("json", "text"):
        raise click.UsageError(
            f"-o {format_path(output)} is a name for {named}, but --{option} chooses another format"
        )
    return option or named or "text"


def _split(table: FrameTable) -> Iterator[FrameTable]:
    """Yield a table in parts of at most CHUNK rows, and of CHUNK_BYTES or one row."""
    ends = np.cumsum(table["size"], dtype=np.int64)
    first = 0
    while first < len(table):
        before = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, before + CHUNK_BYTES, "right"))
        stop = min(max(stop, first + 1), first + CHUNK)
        yield table[first:stop]
        first = stop


def _write_json(
    out: BinaryIO, tables: Iterable[tuple[FrameTable, str]], values: RowValues, names: list[str]
) -> None:
    """Write rows as JSON lines."""
    for table, path in tables:
        for part in _split(table):
            lines = [dump_json(dict(zip(names, row))) for row in values.iter_rows(part, path)]
            out.write(("\n".join(lines) + "\n").encode())


def _write_csv(
    out: BinaryIO, tables: Iterable[tuple[FrameTable, str]], values: RowValues, names: list[str]
) -> None:
    """Write rows as CSV, after a line of column names."""
    out.write(format_csv_row(names).encode())
    for table, path in tables:
        for part in _split(table):
            rows = values.iter_rows(part, path)
            out.write("".join(map(format_csv_row, rows)).encode(errors="surrogateescape"))


def _write_text(
    out: BinaryIO, tables: Iterable[tuple[FrameTable, str]], values: RowValues, names: list[str]
) -> None:
    """Write rows as aligned columns; a bad frame is one line that says what is wrong."""
    width = shutil.get_terminal_size().columns if out.isatty() else None
    widths: list[int] = []
    for table, path in tables:
        for part in _split(table):
            rows = values.iter_rows(part, name_path(path))
            cells = [[_format_cell(value) for value in row] for row in rows]
            numbers = {
                name
                for name in list_columns(part.dtype)
                if np.issubdtype(part.dtype[name], np.integer)
            } | {START}
            right = [name in numbers for name in names]
            if not widths:
                widths = [
                    min(max(map(len, column)), WIDEST) for column in zip(names, *cells[:SAMPLE])
                ]
                title = colour(_align(names, widths, right, width), bold=True)
                out.write((title + "\n").encode())
            lines = [_align(row, widths, right, width) for row in cells]
            bad_rows = np.flatnonzero(part.bad)
            for row, line in zip(bad_rows.tolist(), _format_faults(part[bad_rows], path)):
                lines[row] = line
            out.write(("\n".join(lines) + "\n").encode())


def _format_faults(bad_frames: FrameTable, path: str) -> list[str]:
    """Return a line for each frame of a table of bad frames."""
    safe_path = format_path(path)
    lines = []
    for fault, position, size in zip(
        map(bad_frames.describe_fault, bad_frames["fault"].tolist()),
        bad_frames.positions.tolist(),
        bad_frames["size"].tolist(),
    ):
        line = (
            f"!! {fault.name} in the frame at byte {position:,} of {safe_path}, "
            f"{format_bytes(size)}: {fault.meaning}"
        )
        lines.append(colour(line, fg="red"))
    return lines


def _format_cell(value: Any) -> str:
    """Return a value as text of at most WIDEST_CELL characters."""
    text = "-" if value is None else str(value)
    return text if len(text) <= WIDEST_CELL else text[: WIDEST_CELL - 1] + "…"


def _align(cells: list[str], widths: list[int], right: list[bool], width: int | None) -> str:
    """Return the line of some cells.

    Args:
        cells: their texts. A text that is wider than its column moves the rest of the line.
        widths: of the columns.
        right: which columns are aligned right.
        width: of the terminal, which cuts the line; None for no terminal.
    """
    padded = [
        cell.rjust(cell_width) if is_right else cell.ljust(cell_width)
        for cell, cell_width, is_right in zip(cells, widths, right)
    ]
    line = "  ".join(padded).rstrip()
    return line if width is None or len(line) <= width else line[: max(width - 1, 1)] + "…"


def _write_arrow(
    out: BinaryIO,
    tables: Iterable[tuple[FrameTable, str]],
    format: Format,
    columns: list[str] | None,
    errors: str,
) -> None:
    """Write rows as an Arrow IPC stream."""
    import pyarrow as pa

    from wirescan.export.batches import BATCH_BYTES, split_by_bytes
    from wirescan.frames import to_arrow

    mode = "skip" if errors == "skip" else "mark"  # `tables` has applied strict
    with pa.ipc.new_stream(
        pa.PythonFile(out, "w"), to_arrow.make_schema(format, columns, binary="binary")
    ) as writer:
        for table, path in tables:
            for part in split_by_bytes(table, BATCH_BYTES):
                writer.write_batch(
                    to_arrow.to_batch(part, columns, binary="binary", file=path, errors=mode)
                )
