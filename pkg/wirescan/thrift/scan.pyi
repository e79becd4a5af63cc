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
INFO: Final[np.dtype[np.void]]
PLAIN: Final[np.dtype[np.void]]
MESSAGE: Final[np.dtype[np.void]]
FIELD: Final[np.dtype[np.void]]

def scan_stream(
    buffer: Buffer,
    *,
    check: bool,
    resync: bool,
    limits: Limits,
    into: _Rows | ColumnWriter | None = None,
    more: bool = False,
    resume: Resume | None = None,
    versions: bool = True,
) -> tuple[_Rows, int, int, int]: ...
def scan_streams(
    buffers: Sequence[memoryview],
    spans: _Rows,
    *,
    check: bool,
    resync: bool,
    limits: Limits,
    more: bool = False,
    versions: bool = True,
) -> tuple[_Rows, int, NDArray[np.uint8], NDArray[np.int64]]: ...
def bytes_needed(
    held: Buffer, at: int = 0, state: bytes = b"", versions: bool = True
) -> tuple[int, int, bytes]: ...
def open_infos(
    frames: _Rows, buffers: Sequence[memoryview], limits: Limits
) -> tuple[_Rows, int, int]: ...
def open_messages(
    frames: _Rows,
    buffers: Sequence[memoryview],
    limits: Limits,
    writer: ColumnWriter | None = None,
) -> tuple[_Rows, int, int] | None: ...
def open_plain(
    frames: _Rows,
    plain: _Rows,
    buffers: Sequence[memoryview],
    limits: Limits,
    writer: ColumnWriter | None = None,
) -> tuple[_Rows, int, int]: ...
