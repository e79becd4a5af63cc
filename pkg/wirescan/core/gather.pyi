from typing import Final

import numpy as np
from numpy.typing import NDArray

from wirescan.core.rows import Block
from wirescan.core.strings import ByteStrings
from wirescan.frames.table import FrameTable

WINDOW: Final[int]

class Places(ByteStrings):
    def __init__(self, table: FrameTable, name: str) -> None: ...
    def validity(self) -> NDArray[np.uint8] | None: ...
    def gather(self, *, large: bool) -> tuple[NDArray[np.int32] | NDArray[np.int64], Block]: ...
    def views(self) -> tuple[Block, list[memoryview]]: ...
