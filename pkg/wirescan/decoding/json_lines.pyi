from typing import Final

import numpy as np
from numpy.typing import NDArray

from wirescan.core.strings import ByteStrings

REASONS: Final[tuple[str | None, ...]]

def make_lines(
    documents: ByteStrings, deepest: int, max_members: int
) -> tuple[memoryview, NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint8]]: ...
def extract_shape(line: bytes) -> bytes: ...
