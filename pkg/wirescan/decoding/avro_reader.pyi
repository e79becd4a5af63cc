from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wirescan.core.strings import ByteStrings
from wirescan.decoding.value_builder import ValueBuilder

REASONS: Final[tuple[str, ...]]

class Op(IntEnum):
    NOTHING = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BINARY = 6
    STRING = 7
    FIXED = 8
    ENUM = 9
    DECIMAL = 10
    RECORD = 11
    ARRAY = 12
    MAP = 13
    UNION = 14
    BRANCH = 15
    DEFAULT = 16
    ERROR = 17

class Target(IntEnum):
    AS_INT = 0
    AS_LONG = 1
    AS_FLOAT = 2
    AS_DOUBLE = 3

class Program:
    def __new__(cls, steps: list[tuple[int, int, int, list[int], bytes]]) -> Program: ...

def read_values(
    payloads: ByteStrings,
    builder: ValueBuilder,
    programs: list[Program],
    program_of: NDArray[np.int32],
    prefix: int,
) -> NDArray[np.uint8]: ...
