from typing import Final

import numpy as np
from numpy.typing import NDArray

from wirescan.core.strings import ByteStrings
from wirescan.decoding.protobuf_program import MessageProgram
from wirescan.decoding.value_builder import ValueBuilder

REASONS: Final[tuple[str, ...]]

def read_messages(
    payloads: ByteStrings,
    builder: ValueBuilder,
    program: MessageProgram,
    prefixes: NDArray[np.int32],
) -> NDArray[np.uint8]: ...
