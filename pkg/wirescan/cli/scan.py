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

from wirescan.catalog import Format
from wirescan.cli.common import (
    DAMAGE, check_option, collect, errors_option, format_option, listed, paths_argument, total_size)
from wirescan.cli.output import (
    ENCODINGS, bytes_of, colour, counted, dump, fault_name, name_of, opened_output, say)
from wirescan.cli.pieces import chunks
from wirescan.cli.progress import Progress
from wirescan.cli.rows import START, Rows, columns_of, json_columns, text_columns
from wirescan.core.fault import Fault
from wirescan.errors import MEANING, FrameError
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
@click.option("--columns", metavar="A,B", help="These columns, in this order; an unknown one lists them.")
@click.option("--json", "kind", flag_value="json", help="JSON lines, one a frame.")
@click.option("--arrow", "kind", flag_value="arrow", help="An Arrow IPC stream.")
@click.option("--encoding", type=click.Choice(ENCODINGS), default="utf8", show_default=True,
              help="Bytes in text and JSON.")
@click.option("-o", "--output", metavar="FILE", help="Write to a file; .jsonl and .arrow say what.")
@click.pass_context
def scan(context: click.Context, paths: tuple[str, ...], format_name: Format, errors: str, check: bool,
         limit: int | None, columns: str | None, kind: str | None, encoding: str, output: str | None) -> None:
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

    Times are milliseconds since 1970, null where there is none. In text, times are UTC, and what a terminal
    would not simply print is escaped.

    Exit codes: 0 good, 1 damage was met (not with --errors skip), 2 cannot be done.
    """
    kind = kind or _kind_of(output)
    files = collect(paths, format_name)
    quiet = kind == "text" and output is None and sys.stdout.isatty()
    progress = Progress(total_size(files), "scanning", quiet)
    with opened_output(output, binary=kind == "arrow") as out, progress as bar:
        names = listed(columns, columns_of(format_name))
        tables = Tables(files, format_name, errors, check, limit, bar)
        if kind == "arrow":
            _write_arrow(out, tables, format_name, names)
        elif kind == "json":
            names = names or json_columns(format_name)
            _write_json(out, tables, Rows(format_name, names, encoding, for_people=False), names)
        else:
            names = names or text_columns(format_name)
            _write_text(out, tables, Rows(format_name, names, encoding, for_people=True), names)
    tables.tell()
    context.exit(DAMAGE if tables.faults and errors != "skip" else 0)


class Tables:
    """The tables of frames in files, piece by piece: (table, path).

    Bad frames come as `errors` says; `faults` counts them, `tell` says so. Ends after `limit` frames.
    """
    def __init__(self, files: list[str], format: Format, errors: str, check: bool, limit: int | None,
                 progress: Progress):
        self._files, self._format, self._errors, self._check = files, format, errors, check
        self._left, self._progress, self._seen = limit, progress, 0
        self.faults: Counter[int] = Counter()
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
            stop = piece.stop
            if stop.fault not in (Fault.OK, Fault.ZEROS):
                at = piece.origins[0] + stop.offset
                left = counted(len(piece.tail), "byte")
                why = MEANING[Fault(stop.fault)]
                self._tails.append(f"{name_of(path)}: {why}: {left} from byte {at:,} on")

    def tell(self) -> None:
        """Say on standard error what was bad, and where a file ends in the middle of a frame."""
        for tail in self._tails:
            say(f"wirescan: {tail}")
        for number, count in sorted(self.faults.items()):
            left = " (left out)" if self._errors == "skip" else ""
            bad = counted(count, "bad frame")
            say(f"wirescan: {bad}{left}: {fault_name(number)}, {MEANING[Fault(number)]}")

    def _allowed(self, table: FrameTable, path: str) -> Iterator[tuple[FrameTable, str]]:
        bad = table.bad
        first = int(bad.argmax()) if bad.any() else None
        if self._errors == "skip" and first is not None:
            self._count(table)
            table, first = table.where(~bad), None
        if self._errors == "strict" and first is not None and (self._left is None or first < self._left):
            if first:
                yield table[:first], path
            raise self._error(table, first, path)
        if self._left is not None:
            table = table[:self._left]
            self._left -= len(table)
        if self._errors == "mark":
            self._count(table)
        self._seen += len(table)
        if len(table):
            yield table, path

    def _count(self, table: FrameTable) -> None:
        self.faults.update(table["fault"][table.bad].tolist())

    def _error(self, table: FrameTable, i: int, path: str) -> FrameError:
        fault, at, row = int(table["fault"][i]), int(table[i:i + 1].positions[0]), self._seen + i
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
            right = [bool(np.issubdtype(part.dtype.fields.get(name, ("O",))[0], np.integer)) or name == START
                     for name in names]
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
                 columns: list[str] | None) -> None:
    import pyarrow as pa

    from wirescan import arrow
    options = {"columns": columns, "binary": "binary"}
    with pa.ipc.new_stream(pa.PythonFile(out, "w"), arrow.schema(format, **options)) as writer:
        for table, path in tables:
            for part in arrow.split(table, arrow.BATCH_BYTES):
                writer.write_batch(arrow.to_batch(part, file=path, errors="mark", **options))
