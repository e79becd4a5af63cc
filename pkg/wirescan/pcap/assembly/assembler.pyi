from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wirescan.core.rows import Block

_Rows = NDArray[np.void]

PACKET: Final[np.dtype[np.void]]
FLOW: Final[np.dtype[np.void]]
STREAM: Final[np.dtype[np.void]]
SEGMENT: Final[np.dtype[np.void]]
ENDPOINTS: Final[int]

def is_much_new(ready: int, emitted: int) -> bool: ...

class Assembler:
    packets: int
    def __new__(
        cls,
        policy: str,
        held: int = ...,
        *,
        connections: int | None = None,
        waiting: int = ...,
        ports: Iterable[int] = ...,
        openings: Iterable[tuple[bool, bytes, bytes]] = ...,
    ) -> Assembler: ...
    @property
    def released(self) -> int: ...
    @property
    def incomplete_datagrams(self) -> int: ...
    @property
    def fragment_bytes(self) -> int: ...
    @property
    def waiting_bytes(self) -> int: ...
    def feed(self, rows: _Rows, buffers: Sequence[memoryview]) -> None: ...
    def finish(self) -> None: ...
    def take(
        self, *, everything: bool = True, released: bool = False, together: bool = False
    ) -> tuple[_Rows, NDArray[np.uint8], _Rows, Block, _Rows]: ...
    def list_flows(self, *, released: bool = False) -> tuple[_Rows, NDArray[np.uint8]]: ...
    def release(self, consumed: NDArray[np.int64]) -> None: ...
    def release_idle(self) -> tuple[int, int]: ...
    def drop_released(self) -> None: ...
