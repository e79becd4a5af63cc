import numpy as np
from numpy.typing import NDArray

from wirescan.core.pairs import Pairs
from wirescan.core.strings import ByteStrings

def write_messages(
    columns: list[tuple[int, ByteStrings | Pairs | NDArray[np.int64]]],
    count: int,
    head: bytes,
    crc: bool,
) -> tuple[bytes, NDArray[np.int64]]: ...
def write_entries(
    offsets: NDArray[np.int64],
    stamps: NDArray[np.int64],
    epochs: NDArray[np.int64],
    keys: ByteStrings,
    values: ByteStrings,
    pairs: Pairs | None = None,
) -> bytes: ...
