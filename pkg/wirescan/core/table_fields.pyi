from typing import Any

import numpy as np

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
