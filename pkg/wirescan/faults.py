"""The faults of files as a table: where each bad frame is, and what is wrong with it; imports pyarrow.

    column    type     of a bad frame
    file      string   the path of the file
    start     int64    where in the file it begins; or, in an inflated payload, the frame on the wire that holds it
    size      int64    its bytes
    format    string   what it is, as "kafka.batches": the outermost frame that is bad, of those that enclose each other
    fault     string   the name of its `Fault`
    meaning   string   the same in words
    near      binary   its first bytes, 16 at most
"""
from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa

from wirescan.core.fault import Fault
from wirescan.errors import MEANING, NEAR, damage
from wirescan.table import FrameTable, groups

SCHEMA = pa.schema([("file", pa.string()), ("start", pa.int64()), ("size", pa.int64()), ("format", pa.string()),
                    ("fault", pa.string()), ("meaning", pa.string()), ("near", pa.binary())])
NAMES = [Fault(number).name if number in MEANING else str(number) for number in range(256)]
MEANINGS = [MEANING.get(number, "unknown fault") for number in range(256)]


def to_batch(table: FrameTable, file: str, columns: Collection[str] | None = None) -> pa.RecordBatch:
    """The bad frames of a table that was read with "mark", and those in the lists of its rows (all of them, or those
    among `columns`), as a record batch of SCHEMA, in the order of `start`."""
    levels = [bad for frames, _ in damage(table, columns) for bad in _outermost(frames)]
    found = pa.Table.from_batches([_batch(level, file) for level in levels], SCHEMA)
    order = np.argsort(found["start"].to_numpy(), kind="stable")
    return found.take(pa.array(order)).combine_chunks().to_batches()[0] if len(order) else _none()


def _none() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], SCHEMA)


def _outermost(frames: FrameTable) -> Iterator[FrameTable]:
    """For bad frames, the outermost bad one of those that enclose each, once; a table for each of the formats."""
    levels = [(frames, np.arange(len(frames)))]
    while frames.outer is not None:
        rows = levels[-1][1]
        levels.append((frames.outer, frames["parent"][rows]))
        frames = frames.outer
    told = np.zeros(len(levels[0][0]), bool)
    for level, rows in reversed(levels):
        bad = ~told & level.bad[rows]
        told |= bad
        if bad.any():
            yield level[np.unique(rows[bad])]


def _batch(bad: FrameTable, file: str) -> pa.RecordBatch:
    codes = pa.array(bad["fault"])
    return pa.RecordBatch.from_arrays([
        _repeated(file, len(bad)), pa.array(_starts(bad)), pa.array(bad["size"].astype(np.int64)),
        _repeated(bad.name, len(bad)), pa.array(NAMES).take(codes), pa.array(MEANINGS).take(codes), _near(bad)],
        schema=SCHEMA)


def _repeated(text: str, count: int) -> pa.Array:
    text = text.encode(errors="backslashreplace").decode()          # a file's name may be no text
    return pa.repeat(pa.scalar(text), count)


def _starts(bad: FrameTable) -> np.ndarray:
    """Where each frame begins in its file; where the frame on the wire does, of one in an inflated payload."""
    top = bad
    while top.outer is not None:
        top = top.outer
    # What was read is among the buffers of the outermost table; all others were inflated.
    origins = {id(view): origin for view, origin in zip(top.buffers, top.origins or [0] * len(top.buffers))}
    base = np.array([origins.get(id(view), -1) for view in bad.buffers], np.int64)[bad["buffer"]]
    return np.where(base < 0, bad.positions, base + bad["start"])


def _near(bad: FrameTable) -> pa.Array:
    """The first bytes of each frame, gathered buffer by buffer."""
    letters, sizes = np.zeros((len(bad), NEAR), np.uint8), np.minimum(bad["size"], NEAR).astype(np.int32)
    for number, rows in groups(bad["buffer"], np.arange(len(bad))):
        view = np.frombuffer(bad.buffers[number], np.uint8)
        at = bad["start"][rows, None] + np.arange(NEAR)
        sizes[rows] = np.minimum(sizes[rows], np.maximum(len(view) - at[:, 0], 0))
        letters[rows] = view[np.minimum(at, len(view) - 1)] if len(view) else 0
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(bad), [None, pa.py_buffer(offsets), pa.py_buffer(
        letters[np.arange(NEAR) < sizes[:, None]])])
