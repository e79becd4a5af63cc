"""Tables as text for people: aligned columns, a line for each bad frame, HTML, and single rows.

`repr` of a table and of a row use it, and so does text output of the command.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wirescan.frames.columns import FILE, START, list_columns
from wirescan.frames.format import Format, describe_rows
from wirescan.frames.lookup import EnclosingColumnError, find_column
from wirescan.frames.row_values import (
    FAULT_COLUMN,
    WIDEST_CELL,
    RowValues,
    list_bytes_columns,
    list_text_columns,
)
from wirescan.frames.value_text import ENCODINGS, format_bytes, format_count

if TYPE_CHECKING:
    from wirescan.frames.table import FrameTable

SHOWN_ROWS = 10  # in a repr
SHOWN_CELL = 32  # characters of a cell in a repr
SHOWN_LINE = 120  # characters of a line in a repr
SHOWN_PAIRS = 100  # of the list of a row in a repr; of a longer list only the length is shown
COUNTED_ROWS = 1 << 20  # in which a repr counts the bad ones
ELLIPSIS = "…"


def format_cell(value: Any, widest: int = WIDEST_CELL) -> str:
    """Return a value of `RowValues` as text of at most `widest` characters. None is "-"."""
    return cut_text("-" if value is None else str(value), widest)


def cut_text(text: str, widest: int) -> str:
    """Return text of at most `widest` characters, which ends with an ellipsis if it is cut."""
    return text if len(text) <= widest else text[: max(widest - 1, 1)] + ELLIPSIS


def align_cells(
    cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], widest: int | None
) -> str:
    """Return the line of some cells.

    Args:
        cells: their texts. A text that is wider than its column moves the rest of the line.
        widths: of the columns.
        right: which columns are aligned right.
        widest: characters of a line, which is cut; None for no limit.
    """
    padded = [
        cell.rjust(cell_width) if is_right else cell.ljust(cell_width)
        for cell, cell_width, is_right in zip(cells, widths, right)
    ]
    line = "  ".join(padded).rstrip()
    return line if widest is None else cut_text(line, widest)


def find_right_columns(table: FrameTable, names: Iterable[str]) -> list[bool]:
    """Return for each column whether it is aligned right: whole numbers of the rows, positions."""
    numbers = {
        name for name in list_columns(table.dtype) if np.issubdtype(table.dtype[name], np.integer)
    }
    return [name in numbers or name == START for name in names]


def describe_bad_frames(bad_frames: FrameTable, path: str | None = None) -> list[str]:
    """Return a line for each frame of a table of bad frames.

    path: the path of the file as safe text; None, the default, if it is not to be named.
    """
    place = "" if path is None else f" of {path}"
    faults = map(bad_frames.describe_fault, bad_frames["fault"].tolist())
    positions = bad_frames.positions.tolist()
    return [
        f"!! {fault.name} in the frame at byte {position}{place}, "
        f"{format_bytes(size)}: {fault.meaning}"
        for fault, position, size in zip(faults, positions, bad_frames["size"].tolist())
    ]


def format_table(table: FrameTable) -> str:
    """Return the first rows of a table as aligned text, and a line that says what the table is.

    The columns are those of the command's text output. Columns that do not fit a line of
    SHOWN_LINE characters are only named.
    """
    shown = _ShownRows(table)
    columns = [shown.names, *shown.cells]
    widths = [max(map(len, column)) for column in zip(*columns)]
    ends = np.cumsum([width + 2 for width in widths])
    count = max(int(np.searchsorted(ends, SHOWN_LINE + 2, "right")), 1)
    right = find_right_columns(table, shown.names)
    lines = [align_cells(row[:count], widths, right, SHOWN_LINE) for row in columns]
    for row, line in shown.bad_lines.items():
        lines[1 + row] = cut_text(line, SHOWN_LINE)
    lines += shown.notes
    if count < len(shown.names):
        lines.append(f"{ELLIPSIS} and the columns {', '.join(shown.names[count:])}")
    return "\n".join([*lines, describe_table(table)])


def format_html(table: FrameTable) -> str:
    """Return the first rows of a table as HTML. Everything from the data is escaped."""
    shown = _ShownRows(table)
    right = find_right_columns(table, shown.names)
    styles = [' style="text-align: right"' if is_right else "" for is_right in right]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in shown.names)
    body = []
    for row, cells in enumerate(shown.cells):
        if row in shown.bad_lines:
            line = html.escape(shown.bad_lines[row])
            body.append(f'<tr><td colspan="{len(cells)}"><em>{line}</em></td></tr>')
            continue
        escaped = map(html.escape, cells)
        data = "".join(f"<td{style}>{cell}</td>" for cell, style in zip(escaped, styles))
        body.append(f"<tr>{data}</tr>")
    notes = "".join(f"<p>{html.escape(line)}</p>" for line in [*shown.notes, describe_table(table)])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{notes}"


def format_row(table: FrameTable, i: int) -> str:
    """Return row i of a table as one line: the values of its default columns, or its fault."""
    names = [name for name in table.columns if name != FAULT_COLUMN]
    shown = _ShownRows(table[i : i + 1], names)
    if shown.notes:
        text = shown.notes[0]
    elif shown.bad_lines:
        text = shown.bad_lines[0]
    else:
        text = "  ".join(f"{name}={cell}" for name, cell in zip(shown.names, shown.cells[0]))
    return f"<{table.name} {text}>"


def describe_table(table: FrameTable) -> str:
    """Return one line: the number of rows, the format, the buffers, the faults, and the stop."""
    size = sum(map(len, table.buffers))
    buffers = f"{format_count(len(table.buffers), 'buffer')}, {format_bytes(size)}"
    text = f"{format_count(len(table), 'row')} of {table.name}, {buffers}, {_count_faults(table)}"
    stop = table.stop
    if stop.fault:
        fault = table.outermost.describe_fault(stop.fault)
        text += f", stopped at {stop.offset}: {fault.name}"
    return text


def _count_faults(table: FrameTable) -> str:
    """Return the number of bad rows as text: in all rows, or in the first COUNTED_ROWS."""
    bad = int(np.count_nonzero(table.rows["fault"][:COUNTED_ROWS]))
    text = format_count(bad, "fault") if bad else "no faults"
    return text if len(table) <= COUNTED_ROWS else f"{text} in the first {COUNTED_ROWS:,}"


class _ShownRows:
    """The first rows of a table as cells of text.

    Args:
        table: the table. No other rows of it are read.
        names: the columns; None, the default: those of text output, without the path.

    Attributes:
        names: the columns that the rows have.
        cells: for each row the text of each column.
        bad_lines: the lines of bad frames, by their row.
        notes: what is said below the rows.
    """

    def __init__(self, table: FrameTable, names: Sequence[str] | None = None):
        head = table[:SHOWN_ROWS]
        format = describe_rows(table)
        names = list_text_columns(format) if names is None else names
        self.names = [name for name in names if name != FILE and _has_column(head, name)]
        self.bad_lines: Mapping[int, str] = {}
        self.notes: list[str] = []
        try:
            _check_places(head)
            self.cells = _read_cells(head, format, self.names)
            bad_rows = np.flatnonzero(head.bad)
            lines = describe_bad_frames(head[bad_rows])
            self.bad_lines = dict(zip(bad_rows.tolist(), lines))
        except (ValueError, IndexError) as error:
            # Rows may come from a user, and point anywhere.
            self.cells = []
            self.notes.append(f"the rows cannot be read: {error}")
        others = len(table) - len(self.cells)
        if self.cells and others:
            self.notes.append(f"{ELLIPSIS} {format_count(others, 'more row')}")


def _check_places(table: FrameTable) -> None:
    """Raise ValueError if a row points outside its buffer, or a place outside its frame."""
    for i in range(len(table)):
        table.frame(i)
        for name in table.places:
            table.bytes(i, name)


def _read_cells(table: FrameTable, format: Format, names: list[str]) -> list[list[str]]:
    """Return the text of each column of each row."""
    if not names:
        return [[] for _ in range(len(table))]
    encodings = dict.fromkeys(list_bytes_columns(format), ENCODINGS[0])
    values = RowValues(
        format, names, encodings, "mark", for_people=True, widest=SHOWN_CELL, most_pairs=SHOWN_PAIRS
    )
    return [
        [format_cell(value, SHOWN_CELL) for value in row] for row in values.iter_rows(table, "")
    ]


def _has_column(table: FrameTable, name: str) -> bool:
    """Return whether a table, or a table around it, has a column."""
    try:
        find_column(table, name)
    except EnclosingColumnError:
        return False
    except ValueError:
        return True  # reading it says what is wrong
    return True
