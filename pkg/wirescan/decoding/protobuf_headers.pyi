import numpy as np
from numpy.typing import NDArray

from wirescan.core.strings import ByteStrings

def split_headers(payloads: ByteStrings) -> tuple[NDArray[np.int32], NDArray[np.int32]]: ...
