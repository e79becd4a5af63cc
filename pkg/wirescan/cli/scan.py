"""`wirescan scan`: the frames, one by one, as text, JSON lines or Arrow."""
from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import click
import numpy as np

from wirescan.catalog import START, Format
from wirescan.cli.common import (
    DAMAGE, Failure, check_option, collect, columns_option, errors_option, format_option, listed, paths_argument,
    tail_of, total_size)
from wirescan.cli.output import (
    ENCODINGS, bytes_of, colour, counted, dump, fault_name, name_of, opened_output, say)
from wirescan.cli.pieces import chunks
from wirescan.cli.progress import Progress
from wirescan.cli.rows import Rows, columns_of, json_columns, names_of, text_columns
from wirescan.core.fault import Fault
from wirescan.errors import MEANING, FrameError, damage
from wirescan.pieces import opened, outermost
from wirescan.table import FrameTable

WIDEST = 32                     # characters of a column that is not the last
SAMPLE = 200                    # rows that decide how wide columns are
CHUNK = 4096                    # rows that are rendered together
JSON_SUFFIXES, ARROW_SUFFIXES = (".json", ".jsonl", ".ndjson"), (".arrow", ".arrows", ".ipc")


@click.command(short_help="The frames, one by one: text, JSON lines or Arrow.")
@paths_argument
@format_option("kafka.records")
@errors_option("mark")
@check_option
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after N frames.")
@columns_option
@click.option("--json", "as_json", is_flag=True, help="JSON lines, one a frame.")
@click.option("--arrow", "as_arrow", is_flag=True, help="An Arrow IPC stream.")
@click.option("--encoding", type=click.Choice(ENCODINGS), default="utf8", show_default=True,
              help="Bytes in text and JSON.")
@click.option("-o", "--output", metavar="FILE", help="Write to a file; .jsonl and .arrow say what.")
@click.pass_context
def scan(context: click.Context, paths: tuple[str, ...], format_name: Format, errors: str, check: bool,
         limit: int | None, columns: str | None, as_json: bool, as_arrow: bool, encoding: str,
         output: str | None) -> None:
    """The frames, one by one: text for people, --json or --arrow for programs.

    \b
    Examples:
      wirescan scan orders-0 --limit 20
      wirescan scan orders-0 --format kafka.batches
      wirescan scan orders-0 --json --columns offset,key,value | jq
      wirescan scan orders-0 --arrow | duckdb ...       (or -o orders.arrow)
      cat *.log | wirescan scan -

    \b
    In JSON, bytes are told by --encoding:
      utf8           text where they are valid UTF-8, else {"base64": "..."}
      base64, hex    always in that notation
      escape         ASCII with \\n, \\r, \\t, \\\\ and \\xNN

    Times are milliseconds since 1970, null where there is none; those of Liftbridge are nanoseconds. What JSON has
    no number for, such as infinity, is null too. In text, times are UTC, and what a terminal would not simply print
    is escaped.

    Exit codes: 0 good, 1 damage was met (not with --errors skip), 2 cannot be done.
    """
    if as_json and as_arrow:
        raise click.UsageError("--json and --arrow exclude each other")
    kind = "json" if as_json else "arrow" if as_arrow else _kind_of(output)
    files = collect(paths, format_name)
    for file in files:
        if output and os.path.exists(output) and os.path.exists(file) and os.path.samefile(file, output):
            raise Failure(f"{name_of(output)}: would be replaced while it is read")
    quiet = kind == "text" and output is None and sys.stdout.isatty()
    progress = Progress(total_size(files), "scanning", quiet)
    with opened_output(output, binary=kind == "arrow") as out, progress as bar:
        names = listed(columns, columns_of(format_name))
        tables = Tables(files, format_name, errors, check, limit, bar)
        if kind == "arrow":
            _write_arrow(out, tables, format_name, names, errors)
        elif kind == "json":
            names = names or json_columns(format_name)
            _write_json(out, tables, Rows(format_name, names, encoding, False, errors), names)
        else:
            names = names or text_columns(format_name)
            _write_text(out, tables, Rows(format_name, names, encoding, True, errors), names)
    tables.tell()
    context.exit(DAMAGE if tables.damage and errors != "skip" else 0)


class Tables:
    """The tables of frames in files, piece by piece: (table, path).

    Bad frames come as `errors` says; `damage` tells whether there was any, `tell` says so. What is bad in the lists of
    a row (its headers) counts, also where they are not shown. Ends after `limit` frames.
    """
    def __init__(self, files: list[str], format: Format, errors: str, check: bool, limit: int | None,
                 progress: Progress):
        self._files, self._format, self._errors, self._check = files, format, errors, check
        self._left, self._progress, self._seen = limit, progress, 0
        self.damage = False
        self._faults: Counter[int] = Counter()
        self._tails: list[str] = []

    def __iter__(self) -> Iterator[tuple[FrameTable, str]]:
        for path in self._files:
            if self._left == 0:
                return
            for piece in outermost(chunks(path, self._progress), self._format, errors="mark", check=self._check):
                for table in opened(piece, self._format, errors="mark", check=self._check):
                    yield from self._allowed(table, path)
                    if self._left == 0:
                        return
            tail, bad = tail_of(piece, path)
            self._tails += [tail] if tail else []
            self.damage |= bad

    def tell(self) -> None:
        """Say on standard error what was bad, and where a file ends in the middle of a frame."""
        for tail in self._tails:
            say(f"wirescan: {tail}")
        for number, count in sorted(self._faults.items()):
            left = " (left out)" if self._errors == "skip" else ""
            bad = counted(count, "bad frame")
            say(f"wirescan: {bad}{left}: {fault_name(number)}, {MEANING[Fault(number)]}")

    def _allowed(self, table: FrameTable, path: str) -> Iterator[tuple[FrameTable, str]]:
        if self._errors != "skip":
            table = table[:self._left]
        found = damage(table)
        if found and self._errors == "strict":
            bad, rows = min(found, key=lambda one: int(one[1][0]))
            first = int(rows[0])
            if first:
                yield table[:first], path
            raise self._error(bad, self._seen + first, path)
        for bad, _ in found:
            self.damage = True
            self._faults.update(bad["fault"].tolist())
        if self._errors == "skip":
            table = table.where(~table.bad)[:self._left]
        if self._left is not None:
            self._left -= len(table)
        self._seen += len(table)
        if len(table):
            yield table, path

    @staticmethod
    def _error(table: FrameTable, row: int, path: str) -> FrameError:
        """The error that the first row of a table stands for, which is or belongs to the row that is number `row`."""
        fault, at, i = int(table["fault"][0]), int(table[:1].positions[0]), 0
        while table.outer is not None and table.outer["fault"][table["parent"][i]]:
            table, i = table.outer, int(table["parent"][i])         # the frame around it is what is bad
        return FrameError(fault, at, row, table.frame(i), "(standard input)" if path == "-" else path)


def _kind_of(output: str | None) -> str:
    suffix = os.path.splitext(output or "")[1].lower()
    return "json" if suffix in JSON_SUFFIXES else "arrow" if suffix in ARROW_SUFFIXES else "text"


def _chunks(table: FrameTable) -> Iterator[FrameTable]:
    return (table[at:at + CHUNK] for at in range(0, len(table), CHUNK))


def _write_json(out: BinaryIO, tables: Iterable[tuple[FrameTable, str]], rows: Rows,
                names: list[str]) -> None:
    for table, path in tables:
        for part in _chunks(table):
            lines = [dump(dict(zip(names, values))) for values in rows.of(part, path)]
            out.write(("\n".join(lines) + "\n").encode())


def _write_text(out: BinaryIO, tables: Iterable[tuple[FrameTable, str]], rows: Rows,
                names: list[str]) -> None:
    width = shutil.get_terminal_size().columns if out.isatty() else None
    widths: list[int] = []
    for table, path in tables:
        for part in _chunks(table):
            cells = [[_cell(value) for value in values] for values in rows.of(part, path)]
            bad = np.flatnonzero(part.bad).tolist()
            numbers = {name for name in names_of(part.dtype) if np.issubdtype(part.dtype[name], np.integer)} | {START}
            right = [name in numbers for name in names]
            if not widths:
                widths = [min(max(map(len, column)), WIDEST) for column in zip(names, *cells[:SAMPLE])]
                out.write((colour(_line(names, widths, right, width), bold=True) + "\n").encode())
            lines = [_line(row, widths, right, width) for row in cells]
            for i in bad:
                fault = Fault(int(part["fault"][i]))
                at = int(part[i:i + 1].positions[0])
                lines[i] = colour(f"!! {fault.name} in the frame at byte {at:,} of {name_of(path)}, "
                                  f"{bytes_of(int(part['size'][i]))}: {MEANING[fault]}", fg="red")
            out.write(("\n".join(lines) + "\n").encode())


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)


def _line(cells: list[str], widths: list[int], right: list[bool], width: int | None) -> str:
    # A cell that is too wide pushes the rest of its line aside: only the edge of a terminal cuts.
    padded = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(cells, widths, right)]
    line = "  ".join(padded).rstrip()
    return line if width is None or len(line) <= width else line[:max(width - 1, 1)] + "…"


def _write_arrow(out: BinaryIO, tables: Iterable[tuple[FrameTable, str]], format: Format,
                 columns: list[str] | None, errors: str) -> None:
    import pyarrow as pa

    from wirescan import arrow
    errors = "skip" if errors == "skip" else "mark"     # strict was met before
    with pa.ipc.new_stream(pa.PythonFile(out, "w"), arrow.schema(format, columns, binary="binary")) as writer:
        for table, path in tables:
            for part in arrow.split(table, arrow.BATCH_BYTES):
                writer.write_batch(arrow.to_batch(part, columns, binary="binary", file=path, errors=errors))
