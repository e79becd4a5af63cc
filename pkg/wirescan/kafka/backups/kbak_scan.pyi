from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.core.column_writer import ColumnWriter
from wirescan.core.loop import Resume
from wirescan.frames.limits import Limits

_Rows = NDArray[np.void]

KBAK_SEGMENT: Final[np.dtype[np.void]]
KBAK_RECORD: Final[np.dtype[np.void]]
KBAK_HEADER: Final[np.dtype[np.void]]
FOOTER: Final[int]

def scan_segments(
    buffer: Buffer,
    *,
    check: bool,
    resync: bool,
    limits: Limits,
    into: _Rows | ColumnWriter | None = None,
    more: bool = False,
    resume: Resume | None = None,
) -> tuple[_Rows, int, int, int]: ...
def scan_segment_spans(
    buffers: Sequence[memoryview], spans: _Rows, *, check: bool, resync: bool, limits: Limits
) -> tuple[_Rows, int, NDArray[np.uint8], NDArray[np.int64]]: ...
def bytes_needed(held: Buffer, at: int = 0, crc: int = 0) -> tuple[int, int, int]: ...
def open_records(
    segments: _Rows,
    buffers: Sequence[memoryview],
    spans: _Rows,
    counts: NDArray[np.int32],
    limits: Limits,
    writer: ColumnWriter | None = None,
) -> tuple[_Rows, int, int]: ...
def open_headers(
    records: _Rows,
    buffers: Sequence[memoryview],
    spans: _Rows,
    counts: NDArray[np.int32],
    limits: Limits,
) -> tuple[_Rows, int, int]: ...
