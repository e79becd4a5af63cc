from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.core.loop import Resume
from wirescan.frames.limits import Limits

_Rows = NDArray[np.void]

BLOCK: Final[np.dtype[np.void]]
PACKET: Final[np.dtype[np.void]]

class CaptureState:
    def copy(self) -> CaptureState: ...

def scan_stream(
    buffer: Buffer,
    *,
    check: bool,
    resync: bool,
    limits: Limits,
    into: _Rows | None = None,
    more: bool = False,
    resume: Resume | None = None,
) -> tuple[_Rows, int, int, int]: ...
def open_packets(
    blocks: _Rows, buffers: Sequence[memoryview], limits: Limits, verify: bool = False
) -> tuple[_Rows, int, int]: ...
