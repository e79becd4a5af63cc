from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.core.rows import Block
from wirescan.core.strings import ByteStrings
from wirescan.frames.table import FrameTable

class Side(IntEnum):
    AT_START = 0
    AT_END = 1
    ANYWHERE = 2

class Places(ByteStrings):
    def __init__(self, table: FrameTable, name: str) -> None: ...
    def compare(self, value: Buffer) -> NDArray[np.int8]: ...
    def find_any(self, values: ByteStrings) -> NDArray[np.bool_]: ...
    def find(self, value: Buffer, side: Side) -> NDArray[np.bool_]: ...
    def gather(self, *, large: bool) -> tuple[NDArray[np.int32] | NDArray[np.int64], Block]: ...
