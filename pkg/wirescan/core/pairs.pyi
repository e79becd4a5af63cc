import numpy as np
from numpy.typing import NDArray

from wirescan.core.strings import ByteStrings

class Pairs:
    @staticmethod
    def of_lists(
        first: NDArray[np.int64], counts: NDArray[np.int64], keys: ByteStrings, values: ByteStrings
    ) -> Pairs: ...
    @staticmethod
    def of_columns(keys: list[bytes], columns: list[ByteStrings], count: int) -> Pairs: ...
    def __len__(self) -> int: ...
