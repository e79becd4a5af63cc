"""`FrameError` and the three error modes.

Every reader applies a mode with `enforce_mode`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.table_fields import TableFields
from wirescan.frames.escape import make_visible
from wirescan.frames.fault_names import MEANING, FaultMeaning, describe_fault
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import find_stream_origins, is_read_from_capture

if TYPE_CHECKING:
    from wirescan.frames.table import FrameTable

HARD = Fault.BAD_LENGTH  # from this number on a stop is an error
MODES = ("strict", "mark", "skip")
NEAR = 16  # bytes shown of a bad frame


class FrameError(ValueError):
    """Bytes that do not match their format. Bad input raises no other exception.

    Attributes:
        fault: a `Fault`, or the number of a fault that the format declares.
        meaning: its name and its meaning, as the format declares them.
        offset: the position in bytes of the bad frame in the file, stream or buffer. For a frame
            in a decompressed payload (`inflated`), that of the frame on the wire around it.
        row: the number of the bad frame among the rows.
        near: the first bytes of the frame, at most NEAR.
        source: the path of the file, or None.
        inflated: the bad frame is in a decompressed payload.
        partial: the table of the rows before the error, if a limit on rows ended the scan of
            nested frames; otherwise None.
    """

    __slots__ = ("partial",)  # a slot, so that no pickle and no copy has it

    def __init__(
        self,
        fault: int,
        offset: int,
        row: int,
        near: bytes | memoryview,
        source: str | None = None,
        inflated: bool = False,  # noqa: FBT001, FBT002 - copy and pickle pass it by position
        meaning: FaultMeaning | None = None,
    ):
        super().__init__(fault, offset, row, bytes(near[:NEAR]), source, inflated, meaning)
        # Rows may come from a user, so the fault may be any number.
        self.fault = Fault(fault) if fault in MEANING else fault
        self.meaning = meaning or describe_fault(fault, {})
        self.offset = offset
        self.row = row
        self.near: bytes = self.args[3]
        self.source = source
        self.inflated = inflated
        self.partial: FrameTable | None = None

    def __str__(self) -> str:
        place = f"at byte {self.offset}"
        if self.inflated:
            place = f"in the decompressed payload of the frame {place}"
        if self.source:
            place += f" of {make_visible(self.source)}"
        near = self.near.hex(" ") or "no bytes"
        problem = f"{self._describe_fault()} ({self.meaning.name})"
        return f"{problem} {place}, row {self.row}: {near}"

    def _describe_fault(self) -> str:
        return self.meaning.meaning


class ExpansionError(FrameError):
    """A file that expands to more than `Limits.expansion` allows. Its fault is LIMIT.

    The offset is that of the first outermost frame that was opened and not returned. It is raised
    in every mode.
    """

    __slots__ = ()

    def _describe_fault(self) -> str:
        return (
            "the file expands to more rows or decompressed bytes than its size allows: if you "
            "trust it, pass wirescan.Limits with a larger expansion, or None for no bound "
            "(--max-expansion on the command line, maxExpansion in Spark)"
        )


def check_mode(errors: str, limits: Any = Limits()) -> None:
    """Raise ValueError unless `errors` is one of MODES, TypeError unless `limits` are Limits."""
    if errors not in MODES:
        raise ValueError(f"errors must be one of {', '.join(MODES)}, not {errors!r}")
    if not isinstance(limits, Limits):
        raise TypeError(f"limits must be a wirescan.Limits, not {limits!r}")


def resolve_mode(errors: str | None, source: Any, limits: Any = Limits()) -> str:
    """Return the mode in which frames are read from a source, which may be a table.

    errors: one of MODES. None: the mode of the table; "strict" for another source.
    limits: checked as in `check_mode`.

    Raises as `check_mode`.
    """
    if errors is None:
        errors = source.errors if isinstance(source, TableFields) else "strict"
    if errors not in MODES or type(limits) is not Limits:  # inline: a call takes time
        check_mode(errors, limits)
    return errors


def find_source(view: memoryview) -> str | None:
    """Return the path of the file that a buffer is mapped from, or None."""
    return getattr(view.obj, "path", None)


def enforce_mode(table: FrameTable, errors: str, bad: int) -> FrameTable:
    """Apply a mode to a scanned table.

    "strict" raises FrameError for the first fault, in the order of the wire: for bad rows, then
    for a scan that stopped before the end. "mark" keeps all rows, "skip" the good rows.

    table: the scanned frames.
    errors: one of MODES.
    bad: the number of rows with a fault. The loop counts them, so that good rows are not examined
        again.

    Raises FrameError under "strict" if there is a fault.
    """
    if errors != "strict":
        if table.errors != errors:
            table = replace(table, errors=errors)
        return table.where(~table.bad) if bad and errors == "skip" else table
    if bad:
        raise make_frame_error(table, int(table.bad.argmax()))
    for stop in table.stops:
        if stop.fault >= HARD:
            view = table.buffers[stop.buffer]
            row = int(np.count_nonzero(table["buffer"] <= stop.buffer))
            origin = table.origins[stop.buffer] if table.origins else 0
            raise FrameError(
                stop.fault,
                origin + stop.offset,
                row,
                view[stop.offset : stop.offset + NEAR],
                find_source(view),
                meaning=table.describe_fault(stop.fault),
            )
    return table


def make_frame_error(table: FrameTable, i: int, ended: int = 0) -> FrameError:
    """Return the error for the fault of row i, or for the fault after it that ended the scan.

    table: the frames.
    i: the row.
    ended: the fault that ended the scan after row i; 0, the default, for that of the row.

    Raises ValueError if the row points outside its buffer or outside the table around it.
    """
    row = table.rows[i]
    check_place(table, i)
    view = table.buffers[row["buffer"]]
    start = int(row["start"])
    size = int(row["size"])
    fault = int(row["fault"])
    number = i
    if ended:
        start += size
        size = NEAR
        fault = ended
        number = i + 1
    near = view[start : start + min(NEAR, size)]
    outer = None if is_read_from_capture(table) else table.outer
    if size == 0 and outer is not None and 0 <= row["parent"] < len(outer):
        # Frames are missing at the end of the frame around them: the fault is that frame's.
        near = outer.frame(int(row["parent"]))
        start = int(outer["start"][row["parent"]])
    top, at = _find_outermost(table, i)
    # Scanned buffers belong to the outermost table. All other buffers are decompressed.
    buffer = next((n for n, scanned in enumerate(top.buffers) if scanned is view), -1)
    inflated = buffer < 0
    if inflated:
        check_place(top, at)
        buffer = int(top["buffer"][at])
        start = int(top["start"][at])
    origin = top.origins[buffer] if top.origins else 0
    if is_read_from_capture(top):
        origins = find_stream_origins(top[at : at + 1])
        origin = origin if origins is None else int(origins[0])
    return FrameError(
        fault,
        origin + start,
        number,
        near,
        find_source(top.buffers[buffer]),
        inflated,
        table.describe_fault(fault),
    )


def _find_outermost(table: FrameTable, i: int) -> tuple[FrameTable, int]:
    """Return the outermost table, and its row that contains row i."""
    top = table
    while top.outer is not None and not is_read_from_capture(top):
        i = int(top["parent"][i])
        top = top.outer
        if not 0 <= i < len(top):
            raise ValueError(f"a row of {table.name} points outside the table around it")
    return top, i


def check_place(table: FrameTable, i: int) -> None:
    """Raise ValueError unless the frame of row i begins in a buffer of its table."""
    number = int(table["buffer"][i])
    start = int(table["start"][i])
    if not 0 <= number < len(table.buffers) or not 0 <= start <= len(table.buffers[number]):
        raise ValueError(f"row {i} of {table.name}: buffer and start point outside its buffers")


def raise_if_row_limit(table: FrameTable, fault: int) -> FrameTable:
    """Return the table of a nested scan, or raise FrameError if a limit on rows ended the scan.

    The error's `row` is the number of rows so far, and its `partial` is the table.
    """
    if fault:
        error = make_frame_error(table, len(table) - 1, fault)
        error.partial = table
        raise error
    return table
