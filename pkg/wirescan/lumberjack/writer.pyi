from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.core.strings import ByteStrings

class Events:
    def __len__(self) -> int: ...

class Documents(Events):
    def __new__(cls, texts: ByteStrings, version: int) -> Self: ...

class Fields(Events):
    def __new__(cls, keys: list[bytes], values: list[ByteStrings], version: int) -> Self: ...

class Frames(Events):
    def __new__(
        cls, events: NDArray[np.void], buffers: Sequence[memoryview], version: int
    ) -> Self: ...

def write_windows(
    events: Events,
    window_events: int,
    first: int,
    restart: bool,
    compress: Callable[[memoryview], Buffer] | None = None,
) -> memoryview: ...
