from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.frames.limits import Limits

_Rows = NDArray[np.void]

PROGRAM: Final[np.dtype[np.void]]
STEP: Final[np.dtype[np.void]]
RECORD_SET: Final[np.dtype[np.void]]
RECORD_SET_PATH: Final[np.dtype[np.void]]
LARGEST_STRUCT: Final = 256

class Read(IntEnum):
    NUMBER = 0
    SIZED = 1
    FIXED = 2
    NUMBERS = 3
    STRUCTS = 4
    TAGS = 5
    TAG = 6
    OPTIONAL = 7

def open_structs(
    programs: _Rows,
    buffers: Sequence[Buffer],
    spans: _Rows,
    counts: NDArray[np.int32],
    dtype: np.dtype[np.void],
    limits: Limits,
) -> tuple[_Rows, int, int]: ...
def find_record_sets(
    messages: _Rows, buffers: Sequence[Buffer], path: _Rows, limits: Limits
) -> tuple[_Rows, int, int]: ...
def read_int16(
    rows: _Rows, buffers: Sequence[memoryview], name: str, at: int = 0
) -> NDArray[np.int16]: ...
