import numpy as np
from numpy.typing import NDArray

_Rows = NDArray[np.void]
_Flags = NDArray[np.bool_]

def in_messages(messages: _Rows) -> _Rows: ...
def between(
    offsets: NDArray[np.int32] | NDArray[np.int64], size: int, most: int, null: _Flags
) -> tuple[_Rows, int]: ...
def viewed(
    views: NDArray[np.int32], first: int, null: _Flags, ends: NDArray[np.int64], most: int
) -> tuple[_Rows, int]: ...
