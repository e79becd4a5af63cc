from typing import Any

import numpy as np

from wirescan.core.stop import Stop

class TableFields:
    def __init__(
        self,
        buffers: tuple[memoryview, ...],
        rows: np.ndarray,
        stops: tuple[tuple[int, int, int], ...] = (),
        format: Any = None,
        outer: Any = None,
        origins: tuple[int, ...] = (),
        checked: bool = False,
        errors: str = "strict",
    ) -> None: ...
    @property
    def buffers(self) -> tuple[memoryview, ...]: ...
    @property
    def rows(self) -> np.ndarray: ...
    @property
    def stops(self) -> tuple[Stop, ...]: ...
    @property
    def format(self) -> Any: ...
    @property
    def outer(self) -> Any: ...
    @property
    def origins(self) -> tuple[int, ...]: ...
    @property
    def checked(self) -> bool: ...
    @property
    def errors(self) -> str: ...
