from typing import Final

import numpy as np
from numpy.typing import NDArray

from wirescan.core.strings import ByteStrings

WRONG: Final[tuple[str | None, ...]]

def lines(
    documents: ByteStrings, deepest: int, most: int
) -> tuple[memoryview, NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint8]]: ...
