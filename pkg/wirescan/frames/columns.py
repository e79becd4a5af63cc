"""Columns: their names, what a format declares about them, and what kinds of values they have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from wirescan.frames.format import Format
    from wirescan.frames.table import FrameTable

RESERVED = "reserved"  # a column that only pads its row to whole words

# Columns of exports: the path, the position in it of the outermost frame, and the fault of the
# frame or of a frame around it.
FILE = "_file"
START = "_start"
FAULT = "_fault"

UNITS = {"ms": 1000, "ns": 10**9}  # a unit of times -> how many make a second
NO_TIME = {"ms": -1, "ns": 0}  # a unit of times -> the number that stands for no time


@dataclass(frozen=True, eq=False)
class ComputedColumn:
    """A column whose numbers follow from other columns of a frame and of the frames around it.

    Attributes:
        compute: a function of a table that returns an array of `dtype` with a number for each row.
            The table has the columns `reads` and `fault`, and the attributes `buffers` and
            `outer`. It may have no other columns, and no `rows`.
        reads: the columns of the row that `compute` reads, without `fault`.
        reads_outer: the columns of the directly enclosing frame that it reads.
        dtype: the dtype of the numbers. Numbers that are exported as names have 8 bits.
        null: the number that stands for no value.
    """

    compute: Callable[[Any], np.ndarray]
    reads: tuple[str, ...]
    reads_outer: tuple[str, ...]
    dtype: str
    null: int


@dataclass(frozen=True, eq=False)
class Column:
    """What a column or place of a `Format` means, beyond its dtype.

    Attributes:
        unit: "ms" or "ns" for times since 1970, which are null where they are -1 ms or 0 ns.
        duration: "ms" or "ns" for durations. A filter may give them in any unit.
        names: the names of numbers, as an enum or a mapping. Exports have the names in the column
            `kind` and in computed columns. In other columns they have the numbers, and text output
            has the names in lower case.
        is_offset: the numbers are log offsets. A first query reports their range.
        unset: the number that a row has before it is read.
        items: for a place that is an array of numbers, the dtype of one number in the frame's
            bytes.
        count: for a child format whose frames are short lists of pairs, the column that counts
            them: an int32, uint32 or uint16 column. The child becomes a column of lists.
        local: the column has a meaning only within a table. An export has it only if it is named.
        inherited: every export has this column or place, which is one of an enclosing frame.
        outer_name: the name in the enclosing frame, if a column here hides it.
        computed: the rows do not have this column, and its numbers follow from others. An export
            has it only if it is named.
        compute_texts: for a column that is not in the rows: a function of a table of the format
            that returns its text for each row, None for null.
        exported: of a column with `computed` or `compute_texts`: every export has it, and not only
            one that names it.
    """

    unit: Literal["ms", "ns"] | None = None
    duration: Literal["ms", "ns"] | None = field(default=None, kw_only=True)
    names: Mapping[int, str] | type[IntEnum] = field(default_factory=dict)
    is_offset: bool = False
    unset: int = 0
    items: str | None = None
    count: str | None = None
    local: bool = False
    inherited: bool = False
    outer_name: str | None = None
    computed: ComputedColumn | None = None
    compute_texts: Callable[[FrameTable], list[str | None]] | None = None
    exported: bool = False

    @property
    def no_time(self) -> int | None:
        """The number that stands for no time; None for a column that has no times."""
        return None if self.unit is None else NO_TIME[self.unit]

    @property
    def null(self) -> int | None:
        """The number that stands for no value in good rows too; None if there is none."""
        return self.no_time if self.computed is None else self.computed.null

    @cached_property
    def number_names(self) -> Mapping[int, str]:
        """The names of numbers; empty if they have none."""
        if isinstance(self.names, Mapping):
            return self.names
        return {member.value: member.name for member in self.names}

    def name_number(self, number: int) -> str:
        """Return the name of a number in lower case, or the number as text."""
        return self.number_names.get(number, str(number)).lower()


PLAIN = Column()
# The columns of `Head` whose meaning every format shares.
HEAD_COLUMNS = dict.fromkeys(("start", "parent", "buffer"), Column(local=True))


class ColumnKind(Enum):
    """What the values of a column of exports are."""

    NUMBER = "whole numbers"
    FLOAT = "floating-point numbers"
    FLAG = "numbers that are true or, if they are 0, false"
    TIME = "numbers that are times"
    NAME = "numbers that are exported as their names"
    TEXT = "text, padded with zeros"
    BYTES = "places"
    NUMBERS = "places that are arrays of numbers"
    PAIRS = "lists of pairs"
    FAULT = "faults of the frame"
    INNERMOST_FAULT = "the column FAULT"
    POSITION = "the column START"
    COMPUTED_TEXT = "texts that are computed from the rows"
    PATH = "texts that follow from the path of the file"
    PATH_NUMBER = "whole numbers that follow from the path of the file"


PLACES = (ColumnKind.BYTES, ColumnKind.NUMBERS)
PATH_KINDS = (ColumnKind.PATH, ColumnKind.PATH_NUMBER)
EXPORT_KINDS = {
    FILE: ColumnKind.PATH,
    START: ColumnKind.POSITION,
    FAULT: ColumnKind.INNERMOST_FAULT,
}


@dataclass(frozen=True, eq=False)
class PathColumn:
    """A column whose value follows from the path of the file, such as the topic of a segment.

    Attributes:
        read: a function of a path or URL that returns the value; None if the path has none.
        is_number: the values are numbers that fit an int32, else texts.
        meaning: what the value is, in one line.
    """

    read: Callable[[str], str | int | None]
    is_number: bool = False
    meaning: str = ""

    @property
    def kind(self) -> ColumnKind:
        """The kind of the values."""
        return ColumnKind.PATH_NUMBER if self.is_number else ColumnKind.PATH


class ColumnDescription(NamedTuple):
    """What a column is.

    Attributes:
        name: its name in `owner`.
        kind: what its values are.
        declared: what `owner` declares about it.
        dtype: of the column, or of one number of NUMBERS; None for a column without numbers.
        owner: the format whose rows have it. None for a column of EXPORT_KINDS, for one of
            PATH_KINDS, and for a column of a table without a format.
        read_path: for a column of PATH_KINDS, `PathColumn.read`.
    """

    name: str
    kind: ColumnKind
    declared: Column = PLAIN
    dtype: np.dtype[Any] | None = None
    owner: Format | None = None
    read_path: Callable[[str], str | int | None] | None = None


def show_path(path: str) -> str:
    """Return a path as the column FILE has it. The name of a file may be no text."""
    return path.encode(errors="backslashreplace").decode()


def check_distinct(names: Sequence[str]) -> None:
    """Raise ValueError if a column is named twice, for results that have each name once."""
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ValueError(f"column {name!r} is named twice")


def describe_export_column(name: str) -> ColumnDescription | None:
    """Return what a column of EXPORT_KINDS is; None for any other name."""
    kind = EXPORT_KINDS.get(name)
    if kind is None:
        return None
    return ColumnDescription(name, kind, read_path=show_path if name == FILE else None)


def list_columns(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the names of the columns of a structured dtype."""
    return dtype.names or ()


@cache
def list_places(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the names that form a pair `<name>_at`, `<name>_size` in a dtype."""
    names = list_columns(dtype)
    return tuple(n[:-3] for n in names if n.endswith("_at") and n[:-3] + "_size" in names)


def list_computed(dtype: np.dtype[Any], columns: Mapping[str, Column]) -> list[str]:
    """Return the names of the computed columns whose numbers follow from the columns of a dtype.

    columns: what a format declares.
    """
    present = set(list_columns(dtype))
    return [
        name
        for name, column in columns.items()
        if column.computed is not None and present.issuperset(column.computed.reads)
    ]


def is_place(dtype: np.dtype[Any], name: str) -> bool:
    """Return whether a column of a dtype is the position or the size of a place."""
    return name.rsplit("_", 1)[0] in list_places(dtype) and name.endswith(("_at", "_size"))


@lru_cache(1 << 12)  # each piece of a capture asks for the same columns
def describe_own_column(
    dtype: np.dtype[Any], format: Format | None, name: str
) -> ColumnDescription | None:
    """Return what a column or place of rows is; None if the rows do not have it.

    The column RESERVED has no meaning, so it is None too.

    dtype: the dtype of the rows. They may have more or fewer columns than the format.
    format: the format of the rows, or None.
    name: the column or place.
    """
    declared = HEAD_COLUMNS.get(name, PLAIN) if format is None else format.get_column(name)
    if declared.compute_texts is not None:
        if format is None or format.dtype != dtype:
            return None  # the function needs all columns
        return ColumnDescription(name, ColumnKind.COMPUTED_TEXT, declared, None, format)
    if name in list_places(dtype):
        items = None if declared.items is None else np.dtype(declared.items)
        kind = ColumnKind.BYTES if items is None else ColumnKind.NUMBERS
        return ColumnDescription(name, kind, declared, items, format)
    if declared.computed is not None:
        if name not in list_computed(dtype, {name: declared}):
            return None
        own_dtype = np.dtype(declared.computed.dtype)
        return ColumnDescription(
            name, _find_kind(name, own_dtype, declared), declared, own_dtype, format
        )
    if name not in list_columns(dtype) or name == RESERVED:
        return None
    kind = _find_kind(name, dtype[name], declared)
    return ColumnDescription(name, kind, declared, dtype[name], format)


def _find_kind(name: str, dtype: np.dtype[Any], declared: Column) -> ColumnKind:
    """Return the kind of a column that is no place."""
    if name == "fault":
        return ColumnKind.FAULT
    if declared.number_names and (name == "kind" or declared.computed is not None):
        return ColumnKind.NAME
    if declared.unit is not None:
        return ColumnKind.TIME
    if name.startswith("is_"):
        return ColumnKind.FLAG
    if dtype.kind == "S":
        return ColumnKind.TEXT
    return ColumnKind.FLOAT if dtype.kind == "f" else ColumnKind.NUMBER
