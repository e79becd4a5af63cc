"""Records of TLS: their headers, and how a stream of them is recognized.

    byte     0        1 2          3 4           5 ...
             type     version      length        content
             20 - 24  3, 0 to 4    big-endian

A stream is taken for TLS if it begins with the header of a hello, or with a whole record and the
header of another one. Random bytes do so once in 2^40 streams. Other streams may become TLS at the
start of a packet, with a hello (STARTTLS).

Format: RFC 5246, 6.2, and RFC 8446, 5.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from wirescan.core.row_arrays import select_rows
from wirescan.frames.table import FrameTable, iter_groups
from wirescan.pcap.constants import Direction
from wirescan.pcap.decryption.tls_constants import (
    ALERT,
    CHANGE_CIPHER_SPEC,
    CLIENT_HELLO,
    HANDSHAKE,
    SERVER_HELLO,
)

HEADER_SIZE = 5  # bytes of the header of a record
LAST_TYPE = 24  # of records: heartbeats
MAJOR = 3
LAST_MINOR = 4
LARGEST_PLAIN = 1 << 14  # bytes of a record before encryption
LARGEST_LENGTH = LARGEST_PLAIN + 2048  # the most that encryption may add
HELLO_START = HEADER_SIZE + 1  # bytes up to the type of the message
HELLO_SIZE = 11  # bytes of a record's header, a message's header and a version
ALERT_LENGTH = 2  # bytes of the content of an alert that is not encrypted
PLAIN_SIZE = 1 << 16  # bytes of a stream in which a hello is searched for


def find_client_hellos(streams: FrameTable) -> np.ndarray:
    """Return whether each stream is the beginning of what a client of TLS sends: a bool array.

    streams: a table of pcap.streams.
    """
    rows = streams.rows
    is_hello = ~streams.bad & (rows["position"] == 0) & (rows["size"] >= HELLO_START)
    for number, chosen in iter_groups(rows["buffer"], np.flatnonzero(is_hello)):
        view = np.frombuffer(streams.buffers[number], np.uint8)
        first = view[rows["start"][chosen, None] + np.arange(HELLO_START)]
        is_hello[chosen] = (
            (first[:, 0] == HANDSHAKE)
            & (first[:, 1] == MAJOR)
            & (first[:, 2] <= LAST_MINOR)
            & (first[:, HEADER_SIZE] == CLIENT_HELLO)
        )
    return is_hello


def find_late_hellos(
    streams: FrameTable, segments: np.ndarray, chosen: np.ndarray
) -> dict[int, int]:
    """Find the first hello behind other bytes in each stream: row -> position in the stream.

    A hello begins at the start of a packet, in the first PLAIN_SIZE bytes of a stream. It is that
    of the side that sent the stream.

    streams: a table of pcap.streams with one buffer of bytes. segments: its packets, dtype SEGMENT.
    chosen: rows without a fault, ascending.
    """
    chosen = chosen[streams.rows["position"][chosen] < PLAIN_SIZE]
    if not len(chosen):
        return {}
    rows = select_rows(streams.rows, chosen)
    counts = rows["segment_count"].astype(np.int64)
    owners = np.repeat(np.arange(len(rows)), counts)
    numbers = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    starts = segments["start"][rows["first_segment"][owners] + numbers]
    inside = starts - rows["start"][owners]
    positions = rows["position"][owners] + inside
    is_hello = (inside >= 0) & (positions > 0) & (positions < PLAIN_SIZE)
    is_hello &= inside + HELLO_SIZE <= rows["size"][owners]
    view = np.frombuffer(streams.buffers[0], np.uint8)
    expected = np.where(rows["kind"] == Direction.TO_SERVER, CLIENT_HELLO, SERVER_HELLO)
    for place, value in ((0, HANDSHAKE), (1, MAJOR), (HEADER_SIZE, None)):
        found = np.flatnonzero(is_hello)
        wanted = expected[owners[found]] if value is None else value
        is_hello[found] = view[starts[found] + place] == wanted
    found_at: dict[int, int] = {}
    for number in np.flatnonzero(is_hello).tolist():
        row = int(chosen[owners[number]])
        start = int(starts[number])
        hello = int(expected[owners[number]])
        if row not in found_at and begins_handshake(
            streams.buffers[0], start, start + HELLO_SIZE, hello
        ):
            found_at[row] = int(positions[number])
    return found_at


class Recognition(Enum):
    """Whether bytes are TLS."""

    UNDECIDED = "more bytes decide"
    TLS = "they are"
    OTHER = "they are not"


def read_length(view: Any, at: int) -> int:
    """Return the length of the content of a record, 0 to LARGEST_LENGTH, or -1 for no header.

    view: bytes-like with HEADER_SIZE bytes at position `at`.
    """
    kind = view[at]
    if kind < CHANGE_CIPHER_SPEC or kind > LAST_TYPE or view[at + 1] != MAJOR:
        return -1
    length: int = view[at + 3] << 8 | view[at + 4]
    return length if view[at + 2] <= LAST_MINOR and length <= LARGEST_LENGTH else -1


def recognize(view: Any, start: int, stop: int) -> Recognition:
    """Return whether the bytes from `start` to `stop`, the first ones of a stream, are TLS."""
    size = stop - start
    if not _may_begin(view, start, size):
        return Recognition.OTHER
    if size < HEADER_SIZE:
        return Recognition.UNDECIDED
    length = read_length(view, start)
    if length <= 0:
        return Recognition.OTHER
    if _is_hello(view, start, min(size, HELLO_SIZE), length):
        return Recognition.TLS if size >= HELLO_SIZE else Recognition.UNDECIDED
    following = start + HEADER_SIZE + length
    if stop - following < HEADER_SIZE:
        may_follow = _may_begin(view, following, max(stop - following, 0))
        return Recognition.UNDECIDED if may_follow else Recognition.OTHER
    return Recognition.TLS if read_length(view, following) > 0 else Recognition.OTHER


def begins_handshake(view: Any, start: int, stop: int, hello: int) -> bool:
    """Return whether bytes begin with the record of a hello, or of a server's alert in its place.

    hello: CLIENT_HELLO or SERVER_HELLO.
    """
    if stop - start < HELLO_START:
        return False
    length = read_length(view, start)
    if hello == SERVER_HELLO and view[start] == ALERT:
        return length == ALERT_LENGTH
    if stop - start < HELLO_SIZE or view[start + HEADER_SIZE] != hello:
        return False
    return _is_hello(view, start, HELLO_SIZE, length)


def _may_begin(view: Any, at: int, size: int) -> bool:
    """Return whether the first bytes of a header, as far as they are there, are possible."""
    if size > 0 and not CHANGE_CIPHER_SPEC <= view[at] <= LAST_TYPE:
        return False
    if size > 1 and view[at + 1] != MAJOR:
        return False
    return size <= 2 or view[at + 2] <= LAST_MINOR


def _is_hello(view: Any, start: int, size: int, length: int) -> bool:
    """Return whether a record with these first bytes, at most HELLO_SIZE, begins with a hello."""
    first = bytes(view[start + HEADER_SIZE : start + size])
    if view[start] != HANDSHAKE or length < HELLO_SIZE - HEADER_SIZE:
        return False
    if first[:1] and first[0] not in (CLIENT_HELLO, SERVER_HELLO):
        return False
    # The message has less than 64 KiB, and its first field is a version.
    return first[1:2] in (b"", b"\0") and first[4:5] in (b"", b"\3")
