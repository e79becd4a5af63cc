from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wirescan.core.rows import Block

available: Final[bool]

def inflate_spans(
    buffers: Sequence[memoryview],
    spans: NDArray[np.void],
    places: NDArray[np.void],
    first: int,
    block: Block,
    used: int,
    number: int,
    limits: tuple[int, int, int],
    total: int,
    check: bool,
) -> tuple[int, int, int]: ...
