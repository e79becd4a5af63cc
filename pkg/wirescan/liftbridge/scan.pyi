from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.core.column_writer import ColumnWriter
from wirescan.core.loop import Resume
from wirescan.frames.limits import Limits

_Rows = NDArray[np.void]

ENVELOPE: Final[np.dtype[np.void]]
MESSAGE: Final[np.dtype[np.void]]
ACK: Final[np.dtype[np.void]]
INTERNAL: Final[np.dtype[np.void]]
ENTRY: Final[np.dtype[np.void]]
HEADER: Final[np.dtype[np.void]]

def scan_value(value: bytes, *, check: bool, bare: int, limits: Limits) -> tuple[_Rows, int]: ...
def scan_values(
    buffers: Sequence[memoryview], spans: _Rows, *, check: bool, bare: int, limits: Limits
) -> tuple[_Rows, int, int]: ...
def open_payloads(
    envelopes: _Rows,
    buffers: Sequence[memoryview],
    dtype: np.dtype[np.void],
    first: int,
    last: int,
    limits: Limits,
) -> tuple[_Rows, int, int]: ...
def open_headers(
    messages: _Rows, buffers: Sequence[memoryview], limits: Limits
) -> tuple[_Rows, int, int]: ...
def scan_entries(
    buffer: Buffer,
    *,
    check: bool,
    resync: bool,
    limits: Limits,
    into: _Rows | ColumnWriter | None = None,
    more: bool = False,
    resume: Resume | None = None,
) -> tuple[_Rows, int, int, int]: ...
def scan_entry_sets(
    buffers: Sequence[memoryview], spans: _Rows, *, check: bool, resync: bool, limits: Limits
) -> tuple[_Rows, int, NDArray[np.uint8], NDArray[np.int64]]: ...
def open_entries(
    envelopes: _Rows, buffers: Sequence[memoryview], spans: _Rows, check: bool, limits: Limits
) -> tuple[_Rows, int, int]: ...
def open_entry_headers(
    entries: _Rows,
    buffers: Sequence[memoryview],
    spans: _Rows,
    counts: NDArray[np.int32],
    limits: Limits,
) -> tuple[_Rows, int, int]: ...
