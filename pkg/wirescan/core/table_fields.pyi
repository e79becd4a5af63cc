from typing import Any, TypeVar

import numpy as np

_Triple = TypeVar("_Triple", bound=tuple[Any, Any, Any])

def make_triple(kind: type[_Triple], first: Any, second: Any, third: Any) -> _Triple: ...

class TableFields:
    def __init__(
        self,
        buffers: tuple[memoryview, ...],
        rows: np.ndarray,
        stops: tuple[Any, ...] = (),
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
    def stops(self) -> tuple[Any, ...]: ...
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
