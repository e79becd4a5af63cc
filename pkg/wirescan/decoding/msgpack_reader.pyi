from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wirescan.core.strings import ByteStrings
from wirescan.decoding.value_builder import ValueBuilder

REASONS: Final[tuple[str, ...]]
REFUSALS: Final[int]

class MapOp(IntEnum):
    NOTHING = 0
    BOOLEAN = 1
    INTEGER = 2
    FLOAT = 3
    DOUBLE = 4
    BINARY = 5
    STRING = 6
    TIME = 7
    ARRAY = 8
    STRUCT = 9
    MAP = 10

class MapProgram:
    def __new__(
        cls, steps: list[tuple[int, int, list[int], list[bytes], int, int, int]]
    ) -> MapProgram: ...

def read_maps(
    payloads: ByteStrings, builder: ValueBuilder, program: MapProgram
) -> NDArray[np.uint32]: ...
