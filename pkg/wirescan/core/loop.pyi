from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wirescan.core.rows import addresses as addresses

ANY: Final = -1
SOME: Final = -2
FIRST_ROWS: Final[int]
BYPASS_BYTES: int
HEAD: Final[np.dtype[np.void]]

class RowSink: ...

class Resume:
    memory: Any
    def peek(self) -> Resume: ...
    def copy(self) -> Resume: ...
    @property
    def needed(self) -> int: ...
    def skip_gap(self, size: int) -> None: ...

def flatten(dtype: np.dtype[Any]) -> np.dtype[np.void]: ...
def lie_inside(rows: NDArray[np.void], buffers: Sequence[memoryview]) -> bool: ...
def spans(
    rows: NDArray[np.void], at: NDArray[np.integer[Any]] | None = None
) -> NDArray[np.void]: ...
def bound_counts(
    rows: NDArray[np.void],
    counts: NDArray[np.int32],
    per_byte: int,
    most: int,
) -> NDArray[np.int64]: ...
def find_ranges(rows: NDArray[np.void], buffers: Sequence[memoryview]) -> NDArray[np.int64]: ...
