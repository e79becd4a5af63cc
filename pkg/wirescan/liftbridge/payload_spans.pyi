import numpy as np
from numpy.typing import NDArray

_Rows = NDArray[np.void]
_Flags = NDArray[np.bool_]

def make_message_spans(messages: _Rows) -> _Rows: ...
def make_offset_spans(
    offsets: NDArray[np.int32] | NDArray[np.int64], size: int, max_size: int, null: _Flags
) -> tuple[_Rows, int]: ...
def make_view_spans(
    views: NDArray[np.int32], first: int, null: _Flags, ends: NDArray[np.int64], max_size: int
) -> tuple[_Rows, int]: ...
