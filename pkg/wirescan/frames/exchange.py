"""Exchanges: requests with their responses. `ExchangeFormat` declares how a protocol pairs them.

Exchanges are found in captures, because they have the times of packets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from wirescan.frames.columns import Column
from wirescan.frames.limits import Limits

if TYPE_CHECKING:
    from wirescan.frames.table import FrameTable

NO_RESPONSE = -1


@dataclass(frozen=True, eq=False)
class SentFrames:
    """Frames of an outermost format, with the connections and packets that they were sent in.

    Attributes:
        table: the frames. Bad ones are among them.
        connection: int64 array, the number of each frame's connection.
        packet, last_packet: int64 arrays, numbers of packets that say which frames were sent before
            others: a request whose `last_packet` is at most the `packet` of a response was sent
            before it. `packet` is the one with which all bytes up to the first one of the frame
            were there, so it ascends in each direction. `last_packet` is the one with the last
            byte, although earlier bytes may come later. With `crosses_connections`, `packet` is
            equal to `last_packet`.
        is_to_server: bool array, whether the client sent it.
        is_new: bool array. False for frames that were paired before and still have no response.
            They are no responses.
        side, other_side: int64 arrays, a number for the connection and the direction of each frame,
            and that of the other direction.
    """

    table: FrameTable
    connection: np.ndarray
    packet: np.ndarray
    last_packet: np.ndarray
    is_to_server: np.ndarray
    is_new: np.ndarray

    @property
    def side(self) -> np.ndarray:
        """The number of the connection and the direction of each frame."""
        side: np.ndarray = self.connection * 2 + self.is_to_server
        return side

    @property
    def other_side(self) -> np.ndarray:
        """The same of the other direction."""
        return self.side ^ 1


@dataclass(frozen=True, eq=False)
class PairedFrames:
    """What a function `ExchangeFormat.pair` returns: one row for each request.

    Attributes:
        requests: int64 array, the row of each request in the frames.
        responses: int64 array, the row of its response in the answers, or NO_RESPONSE.
        rows: array of dtype HEAD, followed by the columns of `ExchangeFormat.dtype`. Its `start`,
            `size` and `buffer` say which bytes the places are in.
        buffers: the buffers of `rows`. They begin with those of the frames. None: they are those of
            the frames.
        is_awaited: bool array, whether a response may still come. None: for all requests.
        further_frames: for requests of several frames: int64 arrays with the row of a further frame
            of each request, which `pair` needs again while it waits. The last array has the last
            frame of each request.
        kept_sizes: int64 array, the first bytes of each request that `pair` needs again while it
            waits. None: all bytes.
    """

    requests: np.ndarray
    responses: np.ndarray
    rows: np.ndarray
    buffers: tuple[memoryview, ...] | None = None
    is_awaited: np.ndarray | None = None
    further_frames: tuple[np.ndarray, ...] = ()
    kept_sizes: np.ndarray | None = None


class PairFrames(Protocol):
    """Pairs requests with their responses."""

    def __call__(self, asked: SentFrames, answers: SentFrames, *, limits: Limits) -> PairedFrames:
        """Return the requests among `asked`, and their responses among `answers`.

        A frame is at most one request. limits: bounds of what is opened inside the frames.
        """
        ...


@dataclass(frozen=True, eq=False)
class ExchangeFormat:
    """How the requests of a protocol are paired with their responses.

    The exchanges are within pcap.streams. The `outer` of their table is that of pcap.flows, because
    a request and its response are in two streams.

    Attributes:
        name: the name of the format of the exchanges, such as "kafka.exchanges".
        about: a description in one line.
        dtype: the columns of the protocol. The rows of exchanges begin with others.
        pair: pairs the frames.
        answers: the name of the format of the responses. None: that of the requests. Then `pair`
            gets the same frames twice.
        crosses_connections: whether `pair` may pair a request with a response of another
            connection. Then a response never comes before the end of its request, in all
            connections. Otherwise this holds within each connection.
        columns, meanings: as in `Format`, for the columns of `dtype`.
        grouped_by: the column whose values have statistics of their own.
        find_errors: a function of a table of exchanges that returns a bool array: the rows whose
            response is an error, for the statistics. None: no response is known as an error.
    """

    name: str
    about: str
    dtype: np.dtype
    pair: PairFrames
    answers: str | None = None
    crosses_connections: bool = False
    columns: Mapping[str, Column] = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict)
    grouped_by: str | None = None
    find_errors: Callable[[FrameTable], np.ndarray] | None = None
