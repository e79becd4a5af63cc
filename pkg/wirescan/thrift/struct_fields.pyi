from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wirescan.frames.limits import Limits

def open_fields(
    messages: NDArray[np.void], buffers: Sequence[memoryview], depth: int, limits: Limits
) -> tuple[NDArray[np.void], int, int]: ...
