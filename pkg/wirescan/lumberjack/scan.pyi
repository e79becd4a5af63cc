from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.core.column_writer import ColumnWriter
from wirescan.core.loop import Resume
from wirescan.frames.limits import Limits

_Rows = NDArray[np.void]

FRAME: Final[np.dtype[np.void]]
EVENT: Final[np.dtype[np.void]]
PAIR: Final[np.dtype[np.void]]

def scan_stream(
    buffer: Buffer,
    *,
    check: bool,
    resync: bool,
    limits: Limits,
    into: _Rows | ColumnWriter | None = None,
    more: bool = False,
    resume: Resume | None = None,
) -> tuple[_Rows, int, int, int]: ...
def scan_streams(
    buffers: Sequence[memoryview],
    spans: _Rows,
    *,
    check: bool,
    resync: bool,
    limits: Limits,
    more: bool = False,
) -> tuple[_Rows, int, NDArray[np.uint8], NDArray[np.int64]]: ...
def bytes_needed(held: Buffer, at: int = 0, pairs: int = 0) -> tuple[int, int, int]: ...
def find_compressed(frames: _Rows) -> NDArray[np.int64]: ...
def unpack(
    frames: _Rows,
    buffers: Sequence[memoryview],
    numbers: NDArray[np.int64],
    spans: _Rows,
    again: bool,
    last: bool,
    events: bool,
    limits: Limits,
    writer: ColumnWriter | None = None,
) -> tuple[_Rows, int, int]: ...
def child_spans(events: _Rows) -> tuple[_Rows, NDArray[np.int32]]: ...
def open_pairs(
    events: _Rows,
    buffers: Sequence[memoryview],
    spans: _Rows,
    counts: NDArray[np.int32],
    limits: Limits,
) -> tuple[_Rows, int, int]: ...
def unroll_sequences(events: _Rows) -> NDArray[np.int64]: ...
