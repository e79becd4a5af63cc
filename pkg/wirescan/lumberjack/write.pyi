from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.core.strings import ByteStrings

class Events:
    def __len__(self) -> int: ...

class Documents(Events):
    def __init__(self, texts: ByteStrings, version: int) -> None: ...

class Fields(Events):
    def __init__(self, keys: list[bytes], values: list[ByteStrings], version: int) -> None: ...

class Frames(Events):
    def __init__(self, events: NDArray[np.void], buffers: Sequence[memoryview], version: int) -> None: ...

def write_windows(
    events: Events, most: int, first: int, restart: bool, compress: Callable[[memoryview], Buffer] | None = None
) -> memoryview: ...
