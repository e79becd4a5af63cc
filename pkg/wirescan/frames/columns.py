"""Columns: their names, what a format declares about them, and what kinds of values they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from wirescan.frames.format import Format

RESERVED = "reserved"  # a column that only pads its row to whole words

# Columns of exports: the path, the position in it of the outermost frame, and the fault of the
# frame or of a frame around it.
FILE = "_file"
START = "_start"
FAULT = "_fault"

UNITS = {"ms": 1000, "ns": 10**9}  # a unit of times -> how many make a second
NO_TIME = {"ms": -1, "ns": 0}  # a unit of times -> the number that stands for no time


@dataclass(frozen=True, eq=False)
class Column:
    """What a column or place of a `Format` means, beyond its dtype.

    Attributes:
        unit: "ms" or "ns" for times since 1970, which are null where they are -1 ms or 0 ns.
        names: the names of numbers, as an enum or a mapping. Exports have the names in the column
            `kind`. In other columns they have the numbers, and text output has the names in lower
            case.
        is_offset: the numbers are log offsets. A first query reports their range.
        unset: the number that a row has before it is read.
        items: for a place that is an array of numbers, the dtype of one number in the frame's
            bytes.
        count: for a child format whose frames are short lists of pairs, the column that counts
            them. The child becomes a column of lists.
        local: the column has a meaning only within a table. An export has it only if it is named.
        inherited: every export has this column or place, which is one of an enclosing frame.
        outer_name: the name in the enclosing frame, if a column here hides it.
    """

    unit: Literal["ms", "ns"] | None = None
    names: Mapping[int, str] | type[IntEnum] = field(default_factory=dict)
    is_offset: bool = False
    unset: int = 0
    items: str | None = None
    count: str | None = None
    local: bool = False
    inherited: bool = False
    outer_name: str | None = None

    @property
    def no_time(self) -> int | None:
        """The number that stands for no time; None for a column that has no times."""
        return None if self.unit is None else NO_TIME[self.unit]

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
    FLAG = "numbers that are 0 or 1"
    TIME = "numbers that are times"
    NAME = "numbers that are exported as their names"
    TEXT = "text, padded with zeros"
    BYTES = "places"
    NUMBERS = "places that are arrays of numbers"
    PAIRS = "lists of pairs"
    FAULT = "faults of the frame"
    INNERMOST_FAULT = "the column FAULT"
    POSITION = "the column START"
    PATH = "the column FILE"


PLACES = (ColumnKind.BYTES, ColumnKind.NUMBERS)
EXPORT_KINDS = {
    FILE: ColumnKind.PATH,
    START: ColumnKind.POSITION,
    FAULT: ColumnKind.INNERMOST_FAULT,
}


class ColumnDescription(NamedTuple):
    """What a column is.

    Attributes:
        name: its name in `owner`.
        kind: what its values are.
        declared: what `owner` declares about it.
        dtype: of the column, or of one number of NUMBERS; None for a column without numbers.
        owner: the format whose rows have it. None for a column of EXPORT_KINDS, and for a column
            of a table without a format.
    """

    name: str
    kind: ColumnKind
    declared: Column = PLAIN
    dtype: np.dtype[Any] | None = None
    owner: Format | None = None


def list_columns(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the names of the columns of a structured dtype."""
    return dtype.names or ()


@cache
def list_places(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Return the names that form a pair `<name>_at`, `<name>_size` in a dtype."""
    names = list_columns(dtype)
    return tuple(n[:-3] for n in names if n.endswith("_at") and n[:-3] + "_size" in names)


def is_place(dtype: np.dtype[Any], name: str) -> bool:
    """Return whether a column of a dtype is the position or the size of a place."""
    return name.rsplit("_", 1)[0] in list_places(dtype) and name.endswith(("_at", "_size"))


def describe_own_column(
    dtype: np.dtype[Any], format: Format | None, name: str
) -> ColumnDescription | None:
    """Return what a column or place of rows is; None if the rows do not have it.

    dtype: the dtype of the rows. They may have more or fewer columns than the format.
    format: the format of the rows, or None.
    name: the column or place.
    """
    declared = HEAD_COLUMNS.get(name, PLAIN) if format is None else format.get_column(name)
    if name in list_places(dtype):
        items = None if declared.items is None else np.dtype(declared.items)
        kind = ColumnKind.BYTES if items is None else ColumnKind.NUMBERS
        return ColumnDescription(name, kind, declared, items, format)
    if name not in list_columns(dtype):
        return None
    kind = _find_kind(name, dtype[name], declared)
    return ColumnDescription(name, kind, declared, dtype[name], format)


def _find_kind(name: str, dtype: np.dtype[Any], declared: Column) -> ColumnKind:
    """Return the kind of a column that is no place."""
    if name == "fault":
        return ColumnKind.FAULT
    if name == "kind" and declared.number_names:
        return ColumnKind.NAME
    if declared.unit is not None:
        return ColumnKind.TIME
    if name.startswith("is_"):
        return ColumnKind.FLAG
    if dtype.kind == "S":
        return ColumnKind.TEXT
    return ColumnKind.FLOAT if dtype.kind == "f" else ColumnKind.NUMBER
