from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.frames.limits import Limits

_Rows = NDArray[np.void]

METADATA_RECORD: Final[np.dtype[np.void]]

def open_values(
    is_control: NDArray[np.uint8], buffers: Sequence[Buffer], spans: _Rows, limits: Limits
) -> tuple[_Rows, int, int]: ...
