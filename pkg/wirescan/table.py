"""The one thing that every layer shares: buffers, and an array of rows that points into them."""
from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from wirescan.core.fault import Fault

SHOWN = 10          # rows in a repr
RESERVED = "reserved"       # a column that only fills its row to whole words


class Stop(NamedTuple):
    """Why the scan of a buffer ended: a `Fault` number (0: at its last byte), the offset, the buffer's number."""
    fault: int
    offset: int
    buffer: int = 0


class Row:
    """One row of a table, read when asked: `row.size`, `row.key` (a memoryview, or None for null; an array of numbers
    where the place holds such), and the frames inside it by the name of their format (`record.headers`), in the mode
    that the table was read in: under "mark" a bad header is a pair of None, under "strict" FrameError. Unpacks to its
    places: `for key, value in ...`."""
    __slots__ = ("_index", "_table")

    def __init__(self, table: FrameTable, index: int):
        self._table, self._index = table, index

    def __reduce__(self) -> tuple:
        return Row, (self._table[self._index:self._index + 1], 0)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        table = self._table
        if name in table.dtype.names:
            return table.rows[name][self._index].item()
        if table.format is not None and name in table.format.children:
            if table.rows["fault"][self._index]:
                return iter(())                 # a bad frame is not opened
            try:
                return iter(table[self._index:self._index + 1].open(name))
            except ValueError as error:
                error.add_note(f"among the {name} of row {self._index} of {table.name}")
                raise
        if name in table.places:
            view = table.bytes(self._index, name)
            if table.format is None or name not in table.format.numbers or view is None:
                return view
            return np.frombuffer(view, table.format.numbers[name])
        raise AttributeError(f"a row of {table.name} has no {name!r}")

    def __iter__(self) -> Iterator[memoryview | None]:
        return iter([self._table.bytes(self._index, name) for name in self._table.places])

    def __repr__(self) -> str:
        table = self._table
        shown = {name: getattr(self, name) for name in table.dtype.names if name != RESERVED}
        shown |= {name: table.bytes(self._index, name) for name in table.places if name not in _inside(table)}
        return f"<{table.name} " + " ".join(f"{k}={_shown(v)}" for k, v in shown.items()) + ">"


@dataclass(frozen=True, slots=True, eq=False)
class FrameTable:
    """Frames found in buffers.

    buffers: the bytes, held and never copied.
    rows: read-only structured array, one row a frame, in wire order. Its dtype begins with `HEAD`; places inside
        a frame are `<name>_at` (from the frame's start) and `<name>_size` (-1: null).
    stops: why the scan of each buffer ended; empty for a table of frames that lie inside others.
    format: the `Format` of the rows, if they have one.
    outer: the table that was opened; the column `parent` holds row numbers of it.
    checked: the checksums of the frames were verified, or they have none.
    origins: where the first byte of each buffer lies in its file or stream; empty: all at 0.
    errors: the mode in which the rows were read, and in which what lies inside them is: "strict", "mark" or "skip".
    """
    buffers: tuple[memoryview, ...]
    rows: np.ndarray
    stops: tuple[Stop, ...] = ()
    format: Any = None
    outer: FrameTable | None = field(default=None, repr=False)
    origins: tuple[int, ...] = ()
    checked: bool = False
    errors: str = "strict"

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: str | int | slice | np.ndarray) -> Any:
        """A column by its name, a row by its number, or a table of some of the rows."""
        if isinstance(key, str):
            return self.rows[key]
        if isinstance(key, (int, np.integer)):
            return Row(self, range(len(self))[key])
        return replace(self, rows=_frozen(self.rows[key]))

    def __iter__(self) -> Iterator[Row]:
        return (Row(self, i) for i in range(len(self)))

    def where(self, mask: np.ndarray) -> FrameTable:
        """The table of the rows where `mask` is true. Raises TypeError for a mask that is not of booleans."""
        mask = np.asarray(mask)
        if mask.dtype != bool:
            raise TypeError(f"a mask is an array of bool, not of {mask.dtype}")
        return self[mask]

    def open(self, name: str, **options: Any) -> FrameTable:
        """The frames inside these by the name of their format, as `records` in kafka.batches.

        options: as of the function of that name; `errors` is that of this table unless given. Raises KeyError for a
        name that is not among the format's children, and as that function."""
        if name not in _inside(self):
            raise KeyError(f"{self.name} holds no {name!r}, only {', '.join(_inside(self)) or 'nothing'}")
        return self.format.children[name](self, **{"errors": self.errors, **options})

    @property
    def dtype(self) -> np.dtype:
        return self.rows.dtype

    @property
    def name(self) -> str:
        return "frames" if self.format is None else self.format.name

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the byte strings in a row, those for `bytes`."""
        return places(self.dtype)

    @property
    def bad(self) -> np.ndarray:
        """Bool array: the rows that have a fault."""
        return self.rows["fault"] != 0

    @property
    def stop(self) -> Stop:
        """Why the scan of the last buffer ended."""
        return self.stops[-1] if self.stops else Stop(Fault.OK, 0)

    @property
    def consumed(self) -> int:
        """Bytes that the rows cover, in all scanned buffers."""
        if self.outer is not None:
            return int(self.rows["size"].sum(dtype=np.int64))
        return sum(stop.offset for stop in self.stops)

    @property
    def tail(self) -> memoryview:
        """The bytes after the last frame of the last scanned buffer; empty for frames inside others."""
        if not self.stops or self.outer is not None:
            return memoryview(b"")
        return self.buffers[self.stop.buffer][self.stop.offset:]

    @property
    def positions(self) -> np.ndarray:
        """Int64 array: where the outermost frame of each row begins in its file or stream. Raises ValueError for rows,
        which may be of anybody's make, that point outside the tables around them."""
        table, rows = self, slice(None)
        while table.outer is not None:
            rows, table = table["parent"][rows], table.outer
            if len(rows) and not 0 <= rows.min() <= rows.max() < len(table):
                raise ValueError(f"a row of {self.name} points outside the table around it")
        origins = np.array(table.origins or [0] * len(table.buffers), np.int64)
        return table["start"][rows] + origins[table["buffer"][rows]]

    def frame(self, i: int) -> memoryview:
        """The whole frame of row i. Raises ValueError where the row, which may be of anybody's make, points outside
        its buffer."""
        row = self.rows[i]
        start, size, number = int(row["start"]), int(row["size"]), int(row["buffer"])
        if not 0 <= number < len(self.buffers) or not 0 <= start <= len(self.buffers[number]) - size:
            raise ValueError(f"row {i} of {self.name}: start and size point outside its buffer")
        return self.buffers[number][start:start + size]

    def payload(self, i: int) -> memoryview:
        """What follows the header in the frame of row i. Raises ValueError as `frame`, and for a body outside it."""
        body = int(self.rows["body"][i])
        return self._part(i, "body", body, max(int(self.rows["size"][i]) - body, 0))

    def bytes(self, i: int, name: str) -> memoryview | None:
        """The place `name` in row i; None for null, and in a bad row. Raises KeyError for a name that is not among
        `places`, ValueError as `frame`, and for a place outside its frame."""
        if name not in self.places:
            raise KeyError(f"{self.name} has no place {name!r}, only {', '.join(self.places) or 'none'}")
        row = self.rows[i]
        size = int(row[name + "_size"])
        if size < 0 or row["fault"]:
            return None
        return self._part(i, name, int(row[name + "_at"]), size)

    def _part(self, i: int, name: str, at: int, size: int) -> memoryview:
        frame = self.frame(i)
        if not 0 <= at <= len(frame) - size:
            raise ValueError(f"row {i} of {self.name}: {name} points outside its frame")
        return frame[at:at + size]

    def __reduce__(self) -> tuple:
        # A mapped file travels as its path and range (source.MappedFile), a buffer of `outer` as its number there.
        name = None if self.format is None else self.format.name
        shared = {} if self.outer is None else {id(view): n for n, view in enumerate(self.outer.buffers)}
        buffers = [shared[id(view)] if id(view) in shared else _portable(view) for view in self.buffers]
        return _restore, (buffers, self.rows.copy(), self.stops, name, self.outer, self.origins, self.checked,
                          self.errors)

    def __arrow_c_schema__(self) -> object:
        from wirescan import arrow
        return arrow.schema_of(self).__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow stream of record batches; payloads are views into the buffers. Needs pyarrow."""
        from wirescan import arrow
        return arrow.reader(self).__arrow_c_stream__(requested_schema)

    def _summary(self) -> str:
        text = f"{self.name}: {len(self):,} rows, {int(self.bad.sum()):,} bad, {len(self.buffers)} buffers"
        if self.stops:
            text += f", {self.consumed:,} bytes consumed"
            if self.stop.fault:
                text += f", stopped at {self.stop.offset:,}: {Fault(self.stop.fault).name}"
        return text

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        names = [n for n in self.dtype.names if not _is_place(self.dtype, n) and n != RESERVED]
        names += [n for n in self.places if n not in _inside(self)]
        rows = [[_shown(getattr(row, n)) for n in names] for row in self[:SHOWN]]
        return names, rows

    def __repr__(self) -> str:
        names, rows = self._cells()
        widths = [max(map(len, column)) for column in zip(names, *rows)]
        lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths)) for row in [names, *rows]]
        return "\n".join([self._summary(), *lines, *(["..."] if len(self) > SHOWN else [])])

    def _repr_html_(self) -> str:
        names, rows = self._cells()
        head = "".join(f"<th>{html.escape(n)}</th>" for n in names)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
        return (f"<p>{html.escape(self._summary())}</p>"
                f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


@cache
def places(dtype: np.dtype) -> tuple[str, ...]:
    """The names that stand as a pair `<name>_at`, `<name>_size` in a dtype."""
    return tuple(n[:-3] for n in dtype.names if n.endswith("_at") and n[:-3] + "_size" in dtype.names)


def groups(numbers: np.ndarray, chosen: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(number, which of the chosen rows have it) for each number that these have, in its order."""
    order = chosen[np.argsort(numbers[chosen], kind="stable")]
    borders = np.flatnonzero(np.diff(numbers[order])) + 1
    for part in np.split(order, borders) if len(order) else ():
        yield int(numbers[part[0]]), part


def join(tables: Sequence[FrameTable]) -> FrameTable:
    """One table over all the buffers of tables of one format; only the rows are copied.

    Raises TypeError for anything but tables, ValueError for none, tables of unlike dtypes, or more than 65,536 buffers
    in all.
    """
    tables = list(tables)
    for table in tables:
        if not isinstance(table, FrameTable):
            raise TypeError(f"join takes a list of FrameTables, and in this one is {type(table).__name__}")
    if not tables:
        raise ValueError("join needs at least one table")
    if len(tables) == 1:
        return tables[0]
    if len({table.dtype for table in tables}) != 1:
        raise ValueError("only tables of one format can be joined")
    rows = np.concatenate([table.rows for table in tables])
    buffers: list[memoryview] = []
    stops: list[Stop] = []
    outers: list[FrameTable] = []
    origins: list[int] = []
    at = parents = 0
    for table in tables:
        if len(buffers) + len(table.buffers) > 1 << 16:
            raise ValueError("a table holds at most 65,536 buffers; join fewer")
        part = rows[at:at + len(table)]
        if len(part):
            part["buffer"] += len(buffers)
        if table.outer is not None:
            part["parent"] += parents
            parents += len(table.outer)
            outers.append(table.outer)
        stops += [stop._replace(buffer=stop.buffer + len(buffers)) for stop in table.stops]
        buffers += table.buffers
        origins += table.origins or [0] * len(table.buffers)
        at += len(table)
    return FrameTable(tuple(buffers), _frozen(rows), tuple(stops), tables[0].format,
                      join(outers) if len(outers) == len(tables) else None, tuple(origins),
                      all(table.checked for table in tables),
                      min(table.errors for table in tables))        # "mark" if any was marked, else "skip" if any


def empty(format: Any) -> FrameTable:
    """A table of no frames of a format."""
    return FrameTable((), _frozen(np.empty(0, format.dtype)), (), format, checked=True)


def _inside(table: FrameTable) -> Any:
    """The names of what lies inside the frames of a table."""
    return () if table.format is None else table.format.children


def _is_place(dtype: np.dtype, name: str) -> bool:
    return name.rsplit("_", 1)[0] in places(dtype) and name.endswith(("_at", "_size"))


def _frozen(rows: np.ndarray) -> np.ndarray:
    rows.flags.writeable = False
    return rows


def _portable(view: memoryview) -> Any:
    return view.obj if hasattr(view.obj, "path") and len(view.obj) == len(view) else bytes(view)


def _restore(buffers: list, rows: np.ndarray, stops: tuple, name: str | None, outer: FrameTable | None,
             origins: tuple, checked: bool, errors: str) -> FrameTable:
    from wirescan.catalog import formats
    format = None if name is None else formats()[name]
    views = (outer.buffers[b] if isinstance(b, int) else memoryview(b).cast("B") for b in buffers)
    return FrameTable(tuple(views), _frozen(rows), stops, format, outer, origins, checked, errors)


def _shown(value: Any) -> str:
    # Payloads are hostile: repr of bytes escapes every control character.
    if isinstance(value, memoryview):
        return repr(bytes(value[:16])) + ("..." if len(value) > 16 else "")
    return "null" if value is None else str(value)
