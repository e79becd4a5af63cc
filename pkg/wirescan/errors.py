"""What each fault means, and the three ways to meet one."""
from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.limits import Limits
from wirescan.table import FrameTable

HARD = Fault.BAD_LENGTH             # from here on a stop is an error
MODES = ("strict", "mark", "skip")
NEAR = 16                           # bytes shown of a bad frame

# The enumeration is shared: some of these faults (BAD_VERSION) are those of other protocols, in packages of others too.
MEANING = {
    Fault.OK: "a good frame",
    Fault.TRUNCATED: "a field runs past the end of its frame",
    Fault.BAD_MAGIC: "unknown magic byte",
    Fault.BAD_VERSION: "unsupported version",
    Fault.BAD_CHECKSUM: "the checksum does not match",
    Fault.BAD_COUNT: "the count does not match what is there",
    Fault.BAD_VARINT: "a varint is too long",
    Fault.BAD_CODEC: "unknown compression codec",
    Fault.BAD_COMPRESSION: "the compressed payload cannot be inflated",
    Fault.TOO_LARGE: "the inflated payload is above a limit",
    Fault.LEFTOVER: "bytes are left after the last field of the frame",
    Fault.NESTED: "a compressed frame lies inside a compressed frame",
    Fault.BAD_OFFSET: "the offset of the wrapper is below that of its last message",
    Fault.BAD_NULL: "a field is null that must not be",
    Fault.EMPTY: "a field is empty that must not be",
    Fault.BAD_KIND: "no such kind of frame",
    Fault.BAD_FIELD: "a field that cannot be: its number, type or name",
    Fault.BAD_HEADER: "a size in the header is not what it has to be",
    Fault.SHORT: "the buffer ends inside a frame",
    Fault.ZEROS: "only zeros follow",
    Fault.FILLER: "an overflow filler follows, as brokers pad an answer",
    Fault.BAD_LENGTH: "impossible length",
    Fault.NOT_A_FRAME: "not the beginning of any known frame",
    Fault.LIMIT: "more frames than the limit on rows allows",
}


class FrameError(ValueError):
    """Bytes that are not what their format says: the one exception that bad input raises.

    fault: a `Fault`. offset: in bytes from the beginning of the file, stream or buffer: of the bad frame, or, where
    that lies in an inflated payload (`inflated`), of the frame on the wire that holds it. row: the number of the bad
    frame among the rows. near: its first bytes. source: the path of the file, or None.
    """
    def __init__(self, fault: int, offset: int, row: int, near: bytes | memoryview, source: str | None = None,
                 inflated: bool = False):
        super().__init__(fault, offset, row, bytes(near[:NEAR]), source, inflated)
        self.fault, self.offset, self.row, self.inflated = fault, offset, row, inflated
        if fault in MEANING:                    # rows of anybody's make may hold any number
            self.fault = Fault(fault)
        self.near, self.source = self.args[3], source

    def __str__(self) -> str:
        where = f"{'in the inflated payload of the frame ' if self.inflated else ''}at byte {self.offset}"
        where += f" of {self.source}" if self.source else ""
        near = self.near.hex(" ") or "no bytes"
        meaning = MEANING.get(self.fault, "unknown fault")
        return f"{meaning} ({_name(self.fault)}) {where}, row {self.row}: {near}"


def _name(fault: int) -> str:
    return Fault(fault).name if fault in MEANING else str(int(fault))


def check_mode(errors: str, limits: Any = Limits()) -> None:
    """Raise ValueError unless `errors` is one of MODES, TypeError unless `limits` are Limits."""
    if errors not in MODES:
        raise ValueError(f"errors must be one of {', '.join(MODES)}, not {errors!r}")
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be a wirescan.Limits, not {limits!r}")


def source_of(view: memoryview) -> str | None:
    """The path of the file that a buffer is mapped from, if it is."""
    return getattr(view.obj, "path", None)


def apply(table: FrameTable, errors: str, bad: int) -> FrameTable:
    """The only place where the modes differ: raise FrameError at the first fault, or keep all rows, or the good ones.

    bad: how many rows have a fault; the loop counted them, so that no good row is looked at again.

    `strict` meets faults in the order of the wire: bad rows, and then a scan that stopped before the end.
    """
    if errors != "strict":
        table = replace(table, errors=errors)
        return table.where(~table.bad) if bad and errors == "skip" else table
    if bad:
        raise error_of(table, int(table.bad.argmax()))
    for stop in table.stops:
        if stop.fault >= HARD:
            view = table.buffers[stop.buffer]
            row = int(np.count_nonzero(table["buffer"] <= stop.buffer))
            origin = table.origins[stop.buffer] if table.origins else 0
            raise FrameError(stop.fault, origin + stop.offset, row, view[stop.offset:stop.offset + NEAR],
                             source_of(view))
    return table


def error_of(table: FrameTable, i: int, ended: int = 0) -> FrameError:
    """The error that row i of a table stands for; or of the fault that `ended` the scan behind that row."""
    row = table.rows[i]
    view, start, size, fault = table.buffers[row["buffer"]], int(row["start"]), int(row["size"]), int(row["fault"])
    number = i
    if ended:
        start, size, fault, number = start + size, NEAR, ended, i + 1
    near = view[start:start + min(NEAR, size)]
    top, at = table, i
    while top.outer is not None:
        at, top = int(top["parent"][at]), top.outer
        if not 0 <= at < len(top):
            raise ValueError(f"a row of {table.name} points outside the table around it")
    # What was scanned is among the buffers of the outermost table; all others were inflated.
    buffer = next((number for number, one in enumerate(top.buffers) if one is view), None)
    inflated = buffer is None
    if inflated:
        buffer, start = int(top["buffer"][at]), int(top["start"][at])
    origin = top.origins[buffer] if top.origins else 0
    return FrameError(fault, origin + start, number, near, source_of(top.buffers[buffer]), inflated)


def limited(table: FrameTable, fault: int) -> FrameTable:
    """`table`, as a nested scan left it; raises FrameError, whose `row` is the number of rows so far, where the limit
    on them ended that scan."""
    if fault:
        raise error_of(table, len(table) - 1, fault)
    return table


def pairs(table: FrameTable, name: str) -> tuple[FrameTable, np.ndarray]:
    """What the list `name` holds in the good rows, opened; and an i8 array, the row that each pair belongs to."""
    have = np.flatnonzero((table[table.format.lists[name]] > 0) & ~table.bad)
    inner = table.format.children[name](table[have], errors="mark")
    return inner, have[inner["parent"]]


def damage(table: FrameTable, columns: Collection[str] | None = None) -> list[tuple[FrameTable, np.ndarray]]:
    """The bad frames of a table, and those in the lists of its rows (all of them, or those among `columns`): tables
    that have rows; and with each an i8 array, the rows that the frames are or belong to."""
    lists = () if table.format is None else table.format.lists
    found = [(table, np.arange(len(table)))]
    found += [pairs(table, name) for name in lists if columns is None or name in columns]
    return [(frames.where(frames.bad), rows[frames.bad]) for frames, rows in found if frames.bad.any()]
