from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.core.column_writer import ColumnWriter
from wirescan.core.loop import Resume
from wirescan.frames.limits import Limits

_Rows = NDArray[np.void]

def scan_redpanda_batches(
    buffer: Buffer,
    *,
    check: bool,
    resync: bool,
    limits: Limits,
    into: _Rows | ColumnWriter | None = None,
    more: bool = False,
    resume: Resume | None = None,
) -> tuple[_Rows, int, int, int]: ...
def scan_redpanda_sets(
    buffers: Sequence[Buffer], spans: _Rows, *, check: bool, resync: bool, limits: Limits
) -> tuple[_Rows, int, NDArray[np.uint8], NDArray[np.int64]]: ...
def verify_redpanda_batches(batches: _Rows, buffers: Sequence[memoryview]) -> NDArray[np.uint8]: ...
