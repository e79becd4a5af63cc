from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.core.column_writer import ColumnWriter
from wirescan.core.loop import Resume
from wirescan.frames.limits import Limits

_Rows = NDArray[np.void]

BATCH: Final[np.dtype[np.void]]
RECORD: Final[np.dtype[np.void]]
HEADER: Final[np.dtype[np.void]]
PATHS: Final[tuple[str, ...]]
COLUMNS: Final[tuple[str, ...]]
COLUMN_SUMS: Final[tuple[str, ...]]

def child_spans(
    batches: _Rows, buffers: Sequence[memoryview]
) -> tuple[_Rows, NDArray[np.int32], NDArray[np.int64]]: ...
def verify_batches(batches: _Rows, buffers: Sequence[memoryview]) -> NDArray[np.uint8]: ...
def scan_batches(
    buffer: Buffer,
    *,
    check: bool,
    resync: bool,
    limits: Limits,
    into: _Rows | ColumnWriter | None = None,
    more: bool = False,
    resume: Resume | None = None,
) -> tuple[_Rows, int, int, int]: ...
def scan_sets(
    buffers: Sequence[Buffer], spans: _Rows, *, check: bool, resync: bool, limits: Limits
) -> tuple[_Rows, int, NDArray[np.uint8], NDArray[np.int64]]: ...
def open_records(
    batches: _Rows,
    buffers: Sequence[Buffer],
    spans: _Rows,
    counts: NDArray[np.int32],
    check: bool,
    limits: Limits,
    into: _Rows | None = None,
    verify: bool = False,
    path: str = ...,
    writer: ColumnWriter | None = None,
) -> tuple[_Rows, int, int]: ...
def open_messages(
    batches: _Rows, buffers: Sequence[Buffer], limits: Limits, verify: bool = False
) -> tuple[_Rows, int, int] | None: ...
def open_headers(
    records: _Rows,
    buffers: Sequence[Buffer],
    spans: _Rows,
    counts: NDArray[np.int32],
    limits: Limits,
    into: _Rows | None = None,
) -> tuple[_Rows, int, int]: ...
