"""How unlikely a good frame is in bytes of another kind, in bits.

`weigh` of a format's `Storage` returns this number for each frame, and `wirescan.detect` adds the
numbers. A field that has 1 of 2**n values by chance is worth n bits: a right checksum of 32 bits is
worth 32, and a byte that may be one of four values is worth 6. So random bytes reach a sum of b
bits with a probability of about 2**-b. A `weigh` that counts less than a field is worth is safe.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wirescan.frames.table import FrameTable


def weigh_equally(bits: int) -> Callable[[FrameTable], np.ndarray]:
    """Return a `weigh` that gives each frame the same number of bits."""

    def weigh(frames: FrameTable) -> np.ndarray:
        return np.full(len(frames), bits, np.int64)

    return weigh


def read_byte(frames: FrameTable, chosen: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return one byte of some frames, int16; -1 if the frame has no such byte.

    Args:
        frames: good frames, which are inside their buffers.
        chosen: the row numbers of the frames.
        at: the position of the byte in each of them, int64.
    """
    values = np.full(len(chosen), -1, np.int16)
    positions = frames.rows["start"][chosen] + at
    is_inside = (at >= 0) & (at < frames.rows["size"][chosen])
    buffers = frames.rows["buffer"][chosen]
    for number in np.flatnonzero(np.bincount(buffers)).tolist():
        places = np.flatnonzero(is_inside & (buffers == number))
        values[places] = np.frombuffer(frames.buffers[number], np.uint8)[positions[places]]
    return values


def weigh_small_numbers(values: np.ndarray, width: int = 32) -> np.ndarray:
    """Return the bits that numbers are worth because they are small, int64.

    Args:
        values: unsigned or non-negative numbers.
        width: bits of the field.

    A number of n bits costs 2 * n + 1 bits in Elias' gamma code. It is worth what the field is
    longer, or 0.
    """
    lengths = np.ceil(np.log2(values.astype(np.float64) + 1)).astype(np.int64)
    return np.maximum(width - 1 - 2 * lengths, 0)
