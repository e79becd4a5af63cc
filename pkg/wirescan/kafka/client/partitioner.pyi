from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

def murmur2(key: Buffer) -> int: ...
def partition_of(keys: Any, partitions: int, how: str = "murmur2") -> NDArray[np.int32]: ...
