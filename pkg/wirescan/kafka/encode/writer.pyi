from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wirescan.core.strings import ByteStrings

class Headers:
    def __init__(
        self, first: ArrayLike, count: ArrayLike, keys: ByteStrings, values: ByteStrings
    ) -> None: ...
    def __len__(self) -> int: ...
    def take(self, rows: NDArray[np.int64]) -> Headers: ...

class Columns:
    def __new__(
        cls,
        keys: ByteStrings,
        values: ByteStrings,
        timestamps: ArrayLike,
        headers: Headers | None,
        rows: NDArray[np.int64] | None,
    ) -> Self: ...

def write_batches(
    columns: Columns,
    max_bytes: int,
    fields: tuple[int, int, int, int, int, int],
    compress: Callable[[memoryview], bytes] | None = None,
    batches: int = 0,
) -> memoryview: ...
def write_message_sets(
    columns: Columns,
    max_bytes: int,
    magic: int,
    attributes: int,
    base_offset: int,
    codec: int = 0,
    compress: Callable[[memoryview], bytes] | None = None,
) -> memoryview: ...
