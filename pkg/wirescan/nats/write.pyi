from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.core.strings import ByteStrings

MOST_BYTES: Final[int]

class Pairs:
    @staticmethod
    def of_lists(
        first: NDArray[np.int64], counts: NDArray[np.int64], keys: ByteStrings, values: ByteStrings
    ) -> Pairs: ...
    @staticmethod
    def of_columns(keys: list[bytes], columns: list[ByteStrings], count: int) -> Pairs: ...
    def __len__(self) -> int: ...

def unfit_word(words: ByteStrings, optional: bool = False) -> int: ...
def unfit_pair(pairs: Pairs) -> int: ...
def write_messages(
    operation: Buffer, words: list[ByteStrings], payloads: ByteStrings, pairs: Pairs | None = None
) -> bytes: ...
