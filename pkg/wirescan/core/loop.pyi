from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

ANY: Final = -1
SOME: Final = -2
FIRST_ROWS: Final[int]
PAST: int
HEAD: Final[np.dtype[np.void]]

class Resume:
    def skip_gap(self, size: int) -> None: ...

def flat(dtype: np.dtype[Any]) -> np.dtype[np.void]: ...
def lie_inside(rows: NDArray[np.void], buffers: Sequence[memoryview]) -> bool: ...
def spans(
    rows: NDArray[np.void], at: NDArray[np.integer[Any]] | None = None
) -> NDArray[np.void]: ...
def addresses(buffers: Sequence[Buffer]) -> NDArray[np.uint64]: ...
