from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wirescan.core.rows import Block

FAST_CODECS: Final[dict[str, int]]

class SpanDecompressor:
    def __init__(
        self,
        buffers: Sequence[memoryview],
        spans: NDArray[np.void],
        codecs: NDArray[np.uint8],
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
