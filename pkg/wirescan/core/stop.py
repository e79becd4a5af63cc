"""`Stop`: why the scan of a buffer ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple


class Stop(NamedTuple):
    """Why the scan of a buffer ended.

    Attributes:
        fault: a `Fault` or a fault of the format; 0 for a scan that ended after the last byte.
        offset: the position in the buffer, in bytes.
        buffer: the number of the buffer.
    """

    fault: int
    offset: int
    buffer: int = 0


# Makes a Stop from a tuple of its three values, in less than half the time of the class.
make_stop: Callable[[tuple[int, int, int]], Stop] = partial(tuple.__new__, Stop)
