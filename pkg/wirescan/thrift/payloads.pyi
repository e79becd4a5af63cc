from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_Rows = NDArray[np.void]

def list_payloads(
    frames: _Rows, buffers: Sequence[memoryview]
) -> tuple[_Rows, _Rows, NDArray[np.int64]]: ...
def set_places(rows: _Rows, spans: _Rows, places: _Rows, first_buffer: int) -> None: ...
