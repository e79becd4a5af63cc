"""Writers of frames: text for people, JSON lines, CSV, templates, Arrow and Parquet.

Each writes tables to an open binary file, until there are no more.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import numpy as np

from wirescan.cli.csv_rows import format_csv_row
from wirescan.cli.output import colour, dump_json, format_path, name_path
from wirescan.cli.support.template import Template
from wirescan.frames.columns import FAULT
from wirescan.frames.format import Format
from wirescan.frames.row_values import FAULT_COLUMN
from wirescan.frames.table import FrameTable
from wirescan.frames.text_table import (
    align_cells,
    describe_bad_frames,
    find_right_columns,
    format_cell,
)

if TYPE_CHECKING:
    from wirescan.decoding.payload_columns import PayloadColumns

WIDEST = 32  # characters of a column that is not the last one
SAMPLE = 200  # rows that decide how wide the columns are
CHUNK = 4096  # rows that are rendered together
CHUNK_BYTES = 8 << 20  # bytes of frames that are written at a time


class Rows(Protocol):
    """Converts the rows of tables to tuples of values, as `RowValues` does."""

    def iter_rows(self, table: FrameTable, path: str) -> Iterator[tuple[Any, ...]]:
        """Return an iterator over the rows of a table of the file `path`."""


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


def write_json(
    out: BinaryIO, tables: Iterable[tuple[FrameTable, str]], values: Rows, names: list[str]
) -> None:
    """Write rows as JSON lines."""
    _write_lines(out, tables, values, lambda row: dump_json(dict(zip(names, row))) + "\n")


def write_csv(
    out: BinaryIO, tables: Iterable[tuple[FrameTable, str]], values: Rows, names: list[str]
) -> None:
    """Write rows as CSV, after a line of column names."""
    out.write(format_csv_row(names).encode())
    _write_lines(out, tables, values, format_csv_row)


def _write_lines(
    out: BinaryIO,
    tables: Iterable[tuple[FrameTable, str]],
    values: Rows,
    format_row: Callable[[tuple[Any, ...]], str],
) -> None:
    """Write each row as a line. At most CHUNK_BYTES and one line are held."""
    for table, path in tables:
        for part in _split(table):
            held: list[str] = []
            size = 0
            for row in values.iter_rows(part, path):
                held.append(format_row(row))
                size += len(held[-1])
                if size >= CHUNK_BYTES:
                    _write_text(out, held)
                    held = []
                    size = 0
            _write_text(out, held)


def _write_text(out: BinaryIO, texts: Iterable[str]) -> None:
    """Write texts. They may have the bytes of paths that are not UTF-8."""
    out.write("".join(texts).encode(errors="surrogateescape"))


def write_text(
    out: BinaryIO,
    tables: Iterable[tuple[FrameTable, str]],
    values: Rows,
    names: list[str],
    *,
    names_files: bool,
) -> None:
    """Write rows as aligned columns; a bad frame is one line that says what is wrong.

    names_files: a line before the first row of each file names it.
    """
    named = None
    width = shutil.get_terminal_size().columns if out.isatty() else None
    widths: list[int] = []
    for table, path in tables:
        for part in _split(table):
            rows = values.iter_rows(part, name_path(path))
            cells = [[format_cell(value) for value in row] for row in rows]
            right = find_right_columns(part, names)
            if not widths:
                widths = [
                    min(max(map(len, column)), WIDEST) for column in zip(names, *cells[:SAMPLE])
                ]
                title = colour(align_cells(names, widths, right, width), bold=True)
                out.write((title + "\n").encode())
            if names_files and path != named:
                named = path
                out.write(f"==> {format_path(path)} <==\n".encode())
            lines = [align_cells(row, widths, right, width) for row in cells]
            bad_rows = np.flatnonzero(part.bad)
            bad_lines = describe_bad_frames(part[bad_rows], format_path(path))
            for row, line in zip(bad_rows.tolist(), bad_lines):
                lines[row] = colour(line, fg="red")
            out.write(("\n".join(lines) + "\n").encode())


def write_template(
    out: BinaryIO, tables: Iterable[tuple[FrameTable, str]], template: Template
) -> None:
    """Write what a template says of each row. Bad rows are omitted unless it shows their fault."""
    shows_faults = bool({FAULT_COLUMN, FAULT} & template.columns)
    for table, path in tables:
        for part in _split(table if shows_faults else table.where(~table.bad)):
            out.write(b"".join(template.iter_lines(part, path)))


def write_parquet(
    out: BinaryIO,
    tables: Iterable[tuple[FrameTable, str]],
    format: Format,
    columns: list[str] | None,
    errors: str,
    payloads: PayloadColumns | None = None,
) -> None:
    """Write rows as one Parquet file, with the types of `wirescan convert`.

    payloads: the columns that are decoded. Their types are known.
    """
    from wirescan.export.hive_layout import Layout
    from wirescan.export.parquet_writer import COMPRESSION, make_writer

    layout = replace(Layout.from_columns(format.spec, columns), payloads=payloads)
    mode = "skip" if errors == "skip" else "mark"  # `tables` has applied strict
    with make_writer(out, layout.schema, COMPRESSION) as writer:
        for table, path in tables:
            for _, batch in layout.make_batches(table, path, mode):
                writer.write_batch(batch)


def write_arrow(
    out: BinaryIO,
    tables: Iterable[tuple[FrameTable, str]],
    format: Format,
    columns: list[str] | None,
    errors: str,
    payloads: PayloadColumns | None = None,
) -> None:
    """Write rows as an Arrow IPC stream.

    payloads: the columns that are decoded. Their types are known.
    """
    import pyarrow as pa

    from wirescan.export.batches import BATCH_BYTES
    from wirescan.export.table_parts import split_by_bytes
    from wirescan.frames import to_arrow

    mode = "skip" if errors == "skip" else "mark"  # `tables` has applied strict
    schema = to_arrow.make_schema(format, columns, binary="binary")
    if payloads is not None:
        schema = payloads.make_schema(schema)
    with pa.ipc.new_stream(pa.PythonFile(out, "w"), schema) as writer:
        for table, path in tables:
            for part in split_by_bytes(table, BATCH_BYTES):
                batch = to_arrow.to_batch(part, columns, binary="binary", file=path, errors=mode)
                writer.write_batch(batch if payloads is None else payloads.decode(batch))
