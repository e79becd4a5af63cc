"""The faults of files as a table: where each bad frame is, and what is wrong with it.

Parquet conversion and Spark write this table. Imports pyarrow.

column    type     of a bad frame
file      string   the path of the file
start     int64    its position in the file; in a decompressed payload, that of the frame around it
size      int64    its bytes
format    string   its format, as "kafka.batches"; only the outermost of nested bad frames is listed
fault     string   the name of its `Fault`, or the name that its format declares
meaning   string   the same in words
near      binary   its first bytes, at most 16
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from wirescan.frames.arrow_arrays import make_texts, read_integers, wrap_numbers
from wirescan.frames.errors import NEAR
from wirescan.frames.fault_names import NUMBERS
from wirescan.frames.lookup import find_bad_frames, find_buffers, find_parents
from wirescan.frames.optional_packages import name_package
from wirescan.frames.table import FrameTable, iter_groups

with name_package("pyarrow", __name__, "'wirescan[arrow]'"):
    import pyarrow as pa

SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("start", pa.int64()),
        ("size", pa.int64()),
        ("format", pa.string()),
        ("fault", pa.string()),
        ("meaning", pa.string()),
        ("near", pa.binary()),
    ]
)


def to_batch(
    table: FrameTable, file: str, columns: Collection[str] | None = None
) -> pa.RecordBatch:
    """Return the bad frames of a table as a record batch of SCHEMA, in the order of `start`.

    table: frames that were read with "mark".
    file: the path of the file.
    columns: bad frames in the lists among these columns are included. None, the default: in all
        lists.
    """
    levels = [
        bad for frames, _ in find_bad_frames(table, columns) for bad in _find_outermost_bad(frames)
    ]
    batches = [batch for level in levels for batch in _to_batches(level, file)]
    if not batches:
        return pa.RecordBatch.from_arrays(
            [pa.nulls(0, kind) for kind in SCHEMA.types], schema=SCHEMA
        )
    starts = np.concatenate([read_integers(batch["start"]) for batch in batches])
    order = wrap_numbers(np.argsort(starts, kind="stable"))
    return pa.Table.from_batches(batches, SCHEMA).take(order).combine_chunks().to_batches()[0]


def _find_outermost_bad(frames: FrameTable) -> Iterator[FrameTable]:
    """Yield the outermost bad frame around each bad frame, once; one table for each format."""
    innermost = frames
    levels = [(frames, np.arange(len(frames)))]
    while frames.outer is not None:
        rows = levels[-1][1]
        levels.append((frames.outer, find_parents(frames, rows)))
        frames = frames.outer
    reported = np.zeros(len(innermost), bool)
    for level, rows in reversed(levels):
        bad = ~reported & level.bad[rows]
        reported |= bad
        if bad.any():
            yield level[np.unique(rows[bad])]


def _to_batches(bad: FrameTable, file: str) -> Iterator[pa.RecordBatch]:
    """Yield the bad frames of one table.

    A frame of no bytes means frames that are missing at the end of the frame around it. It gets
    the position and the first bytes of that frame.
    """
    missing = bad["size"] == 0
    if bad.outer is None or not missing.any():
        yield _to_one_batch(bad, bad, file)
        return
    yield _to_one_batch(bad.where(~missing), bad.where(~missing), file)
    missed = bad.where(missing)
    yield _to_one_batch(missed, bad.outer[missed["parent"]], file)


def _to_one_batch(bad: FrameTable, located: FrameTable, file: str) -> pa.RecordBatch:
    """Return bad frames with the positions and the first bytes of the frames `located`."""
    numbers = wrap_numbers(bad["fault"])
    # Indexed by the number of a fault, which may be any number of 8 bits.
    faults = [bad.describe_fault(number) for number in range(NUMBERS)]
    return pa.RecordBatch.from_arrays(
        [
            _repeat_text(file, len(bad)),
            wrap_numbers(_find_starts(located)),
            wrap_numbers(bad["size"].astype(np.int64)),
            _repeat_text(bad.name, len(bad)),
            make_texts(fault.name for fault in faults).take(numbers),
            make_texts(fault.meaning for fault in faults).take(numbers),
            _gather_first_bytes(located),
        ],
        schema=SCHEMA,
    )


def _repeat_text(text: str, count: int) -> pa.Array:
    return make_texts([text]).take(wrap_numbers(np.zeros(count, np.int32)))


def _find_starts(bad: FrameTable) -> np.ndarray:
    """Return the position of each frame in its file.

    For a frame in a decompressed payload it is the position of the frame on the wire around it.
    """
    top = bad.outermost
    # Scanned buffers belong to the outermost table. All other buffers are decompressed.
    origins = {
        id(view): origin for view, origin in zip(top.buffers, top.origins or [0] * len(top.buffers))
    }
    base = np.array([origins.get(id(view), -1) for view in bad.buffers], np.int64)[
        find_buffers(bad)
    ]
    return np.where(base < 0, bad.positions, base + bad["start"])


def _gather_first_bytes(bad: FrameTable) -> pa.Array:
    """Return the first bytes of each frame. They are gathered from one buffer after another."""
    letters = np.zeros((len(bad), NEAR), np.uint8)
    sizes = np.minimum(bad["size"], NEAR).astype(np.int32)
    for number, rows in iter_groups(find_buffers(bad), np.arange(len(bad))):
        view = np.frombuffer(bad.buffers[number], np.uint8)
        if bad["start"][rows].min() < 0:
            raise ValueError(f"a row of {bad.name} begins outside its buffer")
        at = bad["start"][rows, None] + np.arange(NEAR)
        sizes[rows] = np.minimum(sizes[rows], np.maximum(len(view) - at[:, 0], 0))
        letters[rows] = view[np.minimum(at, len(view) - 1)] if len(view) else 0
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    gathered = letters[np.arange(NEAR) < sizes[:, None]]
    return pa.Array.from_buffers(
        pa.binary(), len(bad), [None, pa.py_buffer(offsets), pa.py_buffer(gathered)]
    )
