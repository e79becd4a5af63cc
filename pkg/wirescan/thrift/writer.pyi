from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.core.pairs import Pairs
from wirescan.core.strings import ByteStrings

MAX_LENGTH: Final[int]
MAX_HEADER: Final[int]
MAX_MESSAGE: Final[int]

def write_frames(
    payloads: ByteStrings,
    flags: NDArray[np.int64],
    seqs: NDArray[np.int64],
    parts: list[bytes | tuple[int, Pairs]],
    padding: bool,
    big: bool,
    sign: Callable[[Buffer], bytes] | None = None,
) -> tuple[bytes, NDArray[np.int64]]: ...
def write_messages(
    methods: ByteStrings,
    services: ByteStrings,
    types: NDArray[np.int64],
    seqids: NDArray[np.int64],
    arguments: ByteStrings,
    compact: int,
    strict: bool,
) -> tuple[bytes, NDArray[np.int64]]: ...
def write_framed(messages: ByteStrings) -> tuple[bytes, NDArray[np.int64]]: ...
