"""How unlikely good requests and responses of Kafka are in bytes of another kind.

A request names its API and its version, so its body can be read to its end. A response does not:
only its correlation id and the API versions in the first response of a connection identify it.
"""

from __future__ import annotations

import struct
from contextlib import suppress

import numpy as np

from wirescan.frames.conversation import make_opening
from wirescan.frames.errors import FrameError
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.kafka.protocol.schema import MESSAGE, OPAQUE, get_api_key

HEADER = 20  # bits: about 90 of 65,536 APIs, and about 10 of 65,536 versions
SIZE = 8  # bits: a message after lost bytes has at most a few MiB
BODY = 24  # bits: a body ends where the size of the request says
WRONG = -20  # bits: a body does not
# Bits of a correlation id that follows the one before, and of one that does not. Other protocols
# count their messages too, so the steps alone are worth LARGEST_SUM at most.
NEXT = 8
NOT_NEXT = -24
LARGEST_SUM = 24
LARGEST_STEP = 64  # a broker does not answer some requests
HEADER_SIZE = 8  # bytes of a response up to the end of its correlation id
API_VERSIONS = 64  # bits: the first two APIs of an ApiVersions response
LIMITS = Limits(rows=1 << 16)
# A request of less than 16 MiB: its size, a small API and version, the correlation id, and a client
# id that begins with a visible character. A response to an old version of Produce looks like it if
# its correlation id is from 3 to 20.
REST = ((0, 0), (1, 127), (33, 126))
OPENINGS = (
    make_opening("client", b"\0", 3, b"\0\0\0", (3, 20), 4, *REST),
    make_opening("client", b"\0", 3, b"\0", (1, 95), b"\0", (0, 20), 4, *REST),
)
# The body of an ApiVersions response begins with an error code and the number of APIs. Each API has
# a key, a lowest and a highest version (u2). The first two APIs are Produce and Fetch.
# (position of the list, bytes of an API): the number has 4 bytes, or it is a varint.
LISTS = ((6, 6), (3, 7), (4, 7))
API = struct.Struct(">HHH")
LARGEST_VERSION = 64


def weigh_requests(requests: FrameTable) -> np.ndarray:
    """Return how unlikely each request is, in bits: float64. An unknown API is worth nothing."""
    is_known = requests["kind"] != OPAQUE
    bits = np.where(is_known, float(HEADER), 0.0)
    keys = set(np.unique(requests["api_key"]).tolist())
    for message in MESSAGE.values():
        if message.side != "request" or (key := get_api_key(message.name)) not in keys:
            continue
        chosen = np.flatnonzero((requests["api_key"] == key) & is_known)
        if not len(chosen):
            continue
        with suppress(FrameError):  # more structs than are worth while
            bodies = requests[chosen].open(message.level.name, errors="mark", limits=LIMITS)
            bits[chosen] = np.where(bodies.bad, WRONG, HEADER + BODY)
    return bits


def weigh_requests_alone(requests: FrameTable) -> np.ndarray:
    """Return how unlikely each request is after lost bytes, in bits: float64. Bodies are not read.

    So the number of a request does not depend on how much the others have in their bodies.
    """
    return np.where(requests["kind"] != OPAQUE, float(HEADER + SIZE), 0.0)


def weigh_responses_alone(responses: FrameTable) -> np.ndarray:
    """Return how unlikely each response is after lost bytes, in bits: float64."""
    return np.full(len(responses), float(SIZE))


def weigh_responses(responses: FrameTable) -> np.ndarray:
    """Return how unlikely each response is, in bits: float64."""
    bits = np.zeros(len(responses), np.float64)
    steps = np.diff(responses["correlation_id"].astype(np.int64))
    bits[1:] = np.where((steps >= 1) & (steps <= LARGEST_STEP), NEXT, NOT_NEXT)
    bits[1:] *= min(LARGEST_SUM / max(bits.sum(), 1), 1)
    if len(responses) and _lists_api_versions(bytes(responses.frame(0)[HEADER_SIZE:64])):
        bits[0] = API_VERSIONS
    return bits


def _lists_api_versions(body: bytes) -> bool:
    """Return whether bytes begin as the body of an ApiVersions response."""
    for at, size in LISTS:
        if len(body) < at + size + API.size:
            continue
        first = API.unpack_from(body, at)
        second = API.unpack_from(body, at + size)
        if (first[0], second[0]) == (0, 1):
            return all(low <= high <= LARGEST_VERSION for _, low, high in (first, second))
    return False
