from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wirescan.core.rows import Block

available: Final[bool]

class Decompressor:
    def decompress_gzip(self, payload: Any, out: Any) -> int: ...
    def decompress_zlib(self, payload: Any, out: Any) -> int: ...

class GzipSpans:
    def __init__(
        self,
        buffers: Sequence[memoryview],
        spans: NDArray[np.void],
        selected: NDArray[np.uint8],
        places: NDArray[np.void],
    ) -> None: ...
    def run(
        self,
        first: int,
        block: Block,
        used: int,
        number: int,
        limits: tuple[int, int, int],
        totals: tuple[int, int, int],
        wire: int,
        spent: int,
    ) -> tuple[int, int, int, int]: ...
