from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from wirescan.core.loop import Resume
from wirescan.frames.limits import Limits

_Rows = NDArray[np.void]

REQUEST: Final[np.dtype[np.void]]
RESPONSE: Final[np.dtype[np.void]]

def scan_requests(
    buffer: Buffer,
    *,
    check: bool,
    resync: bool,
    limits: Limits,
    into: _Rows | None = None,
    more: bool = False,
    resume: Resume | None = None,
) -> tuple[_Rows, int, int, int]: ...
def scan_request_streams(
    buffers: Sequence[memoryview],
    spans: _Rows,
    *,
    check: bool,
    resync: bool,
    limits: Limits,
    more: bool = False,
) -> tuple[_Rows, int, NDArray[np.uint8], NDArray[np.int64]]: ...

scan_responses = scan_requests
scan_response_streams = scan_request_streams

def expects_response(requests: _Rows, buffers: Sequence[memoryview]) -> NDArray[np.bool_]: ...
def match(
    request_ids: NDArray[np.int32],
    opaque: NDArray[np.bool_],
    response_ids: NDArray[np.int32],
    complete: NDArray[np.bool_],
) -> NDArray[np.int64]: ...
def name_responses(
    responses: _Rows, buffers: Sequence[memoryview], requests: _Rows, numbers: NDArray[np.int64]
) -> tuple[_Rows, int]: ...
