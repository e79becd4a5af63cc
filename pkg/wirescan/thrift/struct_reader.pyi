from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wirescan.core.strings import ByteStrings
from wirescan.decoding.value_builder import ValueBuilder

REASONS: Final[tuple[str, ...]]

class Form(IntEnum):
    PLAIN = 0
    TEXT = 1
    SYMBOL = 2

class StructProgram:
    def __new__(
        cls, steps: list[tuple[int, int, int, int, list[int], list[int], list[Any]]]
    ) -> StructProgram: ...

def read_structs(
    payloads: ByteStrings, builder: ValueBuilder, program: StructProgram, *, compact: bool
) -> NDArray[np.uint8]: ...
