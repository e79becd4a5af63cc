"""How the frames of a format are sent over connections, and how captures of them are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np

from wirescan.frames.columns import Column

if TYPE_CHECKING:
    from wirescan.frames.exchange import SentFrames
    from wirescan.frames.table import FrameTable


WEIGHED_BYTES = 1 << 10  # first bytes by which frames are found after lost bytes
Rule = Literal["frames", "TLS", "port", "none"]


class Opening(NamedTuple):
    """How the packets of one role begin: see `make_opening`.

    Attributes:
        sender: "client" or "server".
        lowest, highest: the lowest and the highest value of each byte.
    """

    sender: Literal["client", "server"]
    lowest: bytes
    highest: bytes


def make_opening(
    sender: Literal["client", "server"], *parts: bytes | int | tuple[int, int]
) -> Opening:
    """Return how packets begin that only a client or only a server sends.

    parts: bytes for these bytes, a number for so many bytes of any value, and two numbers for the
    lowest and the highest value of a byte. At most 16 bytes in all. All formats together have at
    most 64 openings: reading a capture raises ValueError beyond these limits.
    """
    lowest, highest = bytearray(), bytearray()
    for part in parts:
        if isinstance(part, tuple):
            lowest.append(part[0])
            highest.append(part[1])
        elif isinstance(part, int):
            lowest += bytes(part)
            highest += b"\xff" * part
        else:
            lowest += part
            highest += part
    return Opening(sender, bytes(lowest), bytes(highest))


@dataclass(frozen=True, eq=False)
class LabelledFrames:
    """What a function `Conversation.label` returns: answers, and the frames that they answer.

    Attributes:
        rows: the rows of the answers, with the columns that follow from the frames they answer.
        asked: int64 array, for each answer the row of the frame that it answers, or -1.
        is_awaited: bool array, for each frame that was asked, whether an answer may still come. A
            capture that is read in pieces gives these frames again.
    """

    rows: np.ndarray
    asked: np.ndarray
    is_awaited: np.ndarray


@dataclass(frozen=True, eq=False)
class Conversation:
    """How the frames of an outermost format are sent over connections.

    The format has `Parser.spans` and `Storage.weigh`.

    Attributes:
        ports: the usual ports of servers. Bytes of other ports are read if they show the format.
        openings: how packets of a client or of a server begin. They say who is the client where a
            capture begins inside a connection on other ports. Optional.
        sender: who sends such frames: "client" or "server". None: both do.
        label: a function of such frames and of the frames of `answers`, both as `SentFrames`, that
            says which frames they answer, as `LabelledFrames`. Optional.
        weigh_after_gap: a function of a table of good frames that returns how unlikely each of them
            is after lost bytes, in bits: float64 or int64, at least 0. Formats without a mark of
            the start of a frame need it. The number of a frame depends on this frame only. It is 0
            for a frame of more than WEIGHED_BYTES that does not state its size in that many bytes.
            With it, frames are searched for at the starts of packets after lost bytes. Optional.
        resyncs: whether a scan finds frames after damage, wherever they begin. Then responses wait
            while a frame is searched for that may be their request.
        answers: the name of the format of the frames that these answer; only with `label`.
        measure_waiting: a function of a table of the frames of `answers`. It returns an int64
            array: how many first bytes of each frame `label` needs while the frame waits for its
            answer, or -1 for a frame that gets none. None: all bytes, and all frames may get one.
        keylog: the path of a file with the secrets of TLS connections, which are decrypted. The
            option `keylog` of a format sets it.
    """

    ports: tuple[int, ...] = ()
    openings: tuple[Opening, ...] = ()
    sender: Literal["client", "server"] | None = None
    label: Callable[[SentFrames, SentFrames], LabelledFrames] | None = None
    answers: str | None = None
    measure_waiting: Callable[[FrameTable], np.ndarray] | None = None
    weigh_after_gap: Callable[[FrameTable], np.ndarray] | None = None
    resyncs: bool = False
    keylog: str | None = None


@dataclass(frozen=True, eq=False)
class CarriedFormat:
    """A format of the bytes of another format that messages carry, such as Kafka's record sets.

    With it, the other format can be read from captures: "kafka.batches" and all formats inside it.

    Attributes:
        name: the name of the format, such as "kafka.record_sets". A row is what one message carries
            of one kind, and its place `records` has the bytes.
        about: a description in one line.
        carries: the name of the format of these bytes, which is carried by no other format. Its
            `read` takes a table with such a place: `files.whole_source.scan_carried` reads it.
        dtype: the columns after those of HEAD.
        find: a function of the questions, of the answers, which have the columns of their
            questions, and of the keyword `limits`. It returns rows of dtype HEAD and these columns.
            Their `start`, `size`, `buffer` and `parent` are those of the messages. If the
            `conversation` has no `answers`, both arguments are the table of all frames.
        inherited: the columns that the carried frames have too.
        columns, meanings: as in `Format`.
    """

    name: str
    about: str
    carries: str
    dtype: np.dtype
    find: Callable[..., np.ndarray]
    inherited: tuple[str, ...] = ()
    columns: Mapping[str, Column] = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ConnectionGroup:
    """Connections of a capture that have the same server and the same protocol.

    Attributes:
        protocol: the name of the format of the frames, "TLS", or None for an unknown protocol.
        server: the endpoint, such as "10.0.0.2:9092". None: several servers.
        client: the client of the first connection.
        connections: how many there are.
        bytes: what both sides sent in the part of the capture that was looked at.
        rule: what decided: "frames" (the first frames show the format), "TLS" (the first bytes
            are a ClientHello), "port" (the server has a usual port of the format), or "none".
        frames: how many first frames of the first connection show the format; 0 without such.
    """

    protocol: str | None
    server: str | None
    client: str | None
    connections: int
    bytes: int
    rule: Rule
    frames: int = 0

    @property
    def reason(self) -> str:
        """The rule in words."""
        if self.rule == "frames" and self.connections > 1:
            return "their first frames show it"
        if self.rule == "frames":
            first = "first frame shows" if self.frames == 1 else f"first {self.frames} frames show"
            return f"its {first} it"
        if self.rule == "TLS":
            return "the first bytes are a ClientHello"
        if self.rule == "port":
            if self.server is None:
                return "the usual ports of the servers"
            return f"the port {self.server.rpartition(':')[2]} of the server"
        return "no format fits" if self.bytes else "no bytes"


def merge_groups(groups: Iterable[ConnectionGroup]) -> tuple[ConnectionGroup, ...]:
    """Return groups without two of the same server, protocol and rule: those are one group."""
    merged: dict[tuple[str | None, str | None, str], ConnectionGroup] = {}
    for group in groups:
        key = (group.server, group.protocol, group.rule)
        if key in merged:
            group = replace(
                merged[key],
                connections=merged[key].connections + group.connections,
                bytes=merged[key].bytes + group.bytes,
            )
        merged[key] = group
    return tuple(merged.values())


class CaptureReader(Protocol):
    """Reads frames that consist of parts of several outermost frames, such as those of packets."""

    def feed(self, table: FrameTable) -> FrameTable:
        """Return the frames that outermost frames complete. Raises FrameError."""
        ...

    def close(self) -> FrameTable:
        """Return the last frames. Raises FrameError."""
        ...
