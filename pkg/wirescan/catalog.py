"""Every kind of frame that the package knows, by name."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from wirescan.core.loop import HEAD
from wirescan.table import RESERVED, FrameTable, places

# Columns of exports: the path, where in it the outermost frame begins, and what is wrong with the frame.
FILE, START, FAULT = "_file", "_start", "_fault"
ROOMS = ("kafka", "lumberjack", "nats", "liftbridge", "thrift")     # a room is registered by the name of its folder


@dataclass(frozen=True, eq=False)
class Format:
    """One kind of frame.

    name: room and frame, as in "kafka.records". about: one line. dtype: of the rows.
    read: source (or the table of `within`) -> FrameTable; takes errors, check and limits.
    within: the name of the format whose frames hold these; None for an outermost format.
    children: what lies inside a frame, name -> function of a table, which takes `errors`.
    lists: which of them are short lists of pairs, name -> the column that counts them; they become columns of lists.
    inherited: columns and places of the enclosing frames that belong to every export.
    times: columns that are milliseconds since 1970 (-1: none). nanoseconds: columns that are nanoseconds since 1970 (0:
        none).
    numbers: places that are arrays of numbers, name -> numpy dtype of one as it lies there.
    local: columns that count within a table, and so mean nothing beyond it: an export has them if they are named.
    kinds: what the numbers in the column `kind` are called; the column then belongs to every export, as text.
    scan: one buffer -> (rows, bad, fault, offset), with check, resync, limits, and `more` where
        bytes may follow; outermost formats only.
    spans: buffers, spans of them (dtype HEAD), check, resync, limits -> (rows, bad, faults, offsets): `scan` for each
        span; optional: where it is there, many small streams cost little more than one.
    values: a buffer, spans of it (dtype HEAD), check, limits -> (rows, bad): each span, such as a value of a binary
        column, is one frame, and one row, up to limits.rows; optional, for formats whose frames do not tell where they
        end.
    needed: bytes that a stream holds of a frame, and what was returned for fewer of them -> how many bytes the frame
        has at the least, and anything; optional: it spares a stream to scan what cannot be whole yet.
    cuts: path, bytes, and where to go on from (0) -> offsets, from there on, at which the file can be cut; the third is
        given for files that grew; outermost formats only.
    bounds: rows of the format `within` -> {column of this format: (lowest, highest)}, arrays or None: between them lies
        what the good frames inside each row have in that column; optional.
    narrow: path, {column of this format: (lowest, highest)}, numbers or None -> (start, stop): between these bytes of a
        file, which are boundaries of outermost frames, lie all frames with such values; optional.
    files, ignore: which files of a directory are read, and which a glob leaves out (regular expressions).
    """
    name: str
    about: str
    dtype: np.dtype
    read: Callable[..., FrameTable]
    within: str | None = None
    children: Mapping[str, Callable[..., FrameTable]] = field(default_factory=dict)
    lists: Mapping[str, str] = field(default_factory=dict)
    inherited: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    nanoseconds: tuple[str, ...] = ()
    numbers: Mapping[str, str] = field(default_factory=dict)
    local: tuple[str, ...] = ()
    kinds: Mapping[int, str] = field(default_factory=dict)
    scan: Callable[..., tuple[np.ndarray, int, int, int]] | None = None
    spans: Callable[..., tuple[np.ndarray, int, np.ndarray, np.ndarray]] | None = None
    values: Callable[..., tuple[np.ndarray, int]] | None = None
    needed: Callable[..., tuple[int, ...]] | None = None
    cuts: Callable[..., list[int]] | None = None
    bounds: Callable[[np.ndarray], Mapping[str, tuple[Any, Any]]] | None = None
    narrow: Callable[[str, Mapping[str, tuple[Any, Any]]], tuple[int, int]] | None = None
    files: str | None = None
    ignore: str | None = None

    @property
    def outermost(self) -> Format:
        """The format that has to be scanned first to get at these frames."""
        return self if self.within is None else _known()[self.within].outermost

    @property
    def in_values(self) -> Format:
        """The format that the values of a binary column hold, of this one and those that enclose it: the innermost one
        that reads values as they are, else the outermost."""
        return self if self.values or self.within is None else _known()[self.within].in_values

    @property
    def columns(self) -> list[str]:
        """The columns of an export, where none are named: its own ones, and `fault`."""
        pairs = places(self.dtype)
        hidden = {*HEAD.names, RESERVED, *self.local, *self.lists.values(), *(name + "_at" for name in self.lists),
                  *(name + end for name in pairs for end in ("_at", "_size"))}
        own = [name for name in self.dtype.names or () if name not in hidden]
        own += [name for name in pairs if name not in self.children]
        return [*(["kind"] if self.kinds else []), *own, *self.lists, *self.inherited, "fault"]

    def owner(self, name: str) -> Format | None:
        """The format whose rows have a column or place, of this one and those that enclose it, from the inside."""
        if name in self.dtype.names or name in places(self.dtype):
            return self
        return None if self.within is None else _known()[self.within].owner(name)

    def open(self, source: Any, **options: Any) -> FrameTable:
        """Frames of this format in a source, through every format that encloses them."""
        if self.within is not None:
            source = _known()[self.within].open(source, **options)
        return self.read(source, **options)

    def inside(self, outer: FrameTable, **options: Any) -> FrameTable:
        """Frames of this format in a table of one that encloses it, or of any frames that hold it."""
        if outer.format is self:
            return outer
        if outer.format is None or self.read not in outer.format.children.values():
            if self.within is None:
                return outer
            outer = _known()[self.within].inside(outer, **options)
        return self.read(outer, **options)


# "formats" -> {name: Format}. It is filled at the first use, because the protocol packages import this module.
_tables: dict[str, dict[str, Format]] = {}


def _known() -> dict[str, Format]:
    if "formats" not in _tables:
        own = {one.name: one for room in ROOMS for one in import_module(f"wirescan.{room}").FORMATS}
        # Several threads may come here at once. They all use the first dict, so that no registration is lost.
        # There is no lock: a thread that waits for it could hold the import lock of a protocol package.
        _tables.setdefault("formats", own)
    return _tables["formats"]


def formats() -> dict[str, Format]:
    """Name -> Format, of all rooms and of those that were registered."""
    return dict(_known())


def register(*more: Format) -> None:
    """Make formats of another package known by their names.

    Raises TypeError for anything but a Format, ValueError for a name that is taken."""
    for one in more:
        if not isinstance(one, Format):
            raise TypeError(f"register takes Formats, not {type(one).__name__}")
        if _known().setdefault(one.name, one) is not one:
            raise ValueError(f"there is a format {one.name!r} already")


def format_of(name: str) -> Format:
    """The format of that name. Raises ValueError, which lists the names, where there is none."""
    try:
        return _known()[name]
    except KeyError:
        raise ValueError(f"no format {name!r}; there are {', '.join(_known())}") from None
