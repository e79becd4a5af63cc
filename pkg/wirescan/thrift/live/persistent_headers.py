"""The state of a Thrift connection: its persistent infos, and the error that ends it.

`channel.py` and `apache_transport.py` use this module. Sources: Apache Thrift,
doc/specs/HeaderFormat.md, "Info headers"; of fbthrift THeader.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from wirescan.core.arguments import list_pairs, to_bytes
from wirescan.core.fault import Fault
from wirescan.frames.errors import FrameError
from wirescan.frames.fault_names import MEANING
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.thrift.constants import InfoKind
from wirescan.thrift.formats import infos
from wirescan.thrift.transforms import TRANSFORM_COLUMNS

# Limits on the persistent infos that a peer may set. Every message has all of them.
MAX_REMEMBERED = 256  # infos
BYTES_REMEMBERED = 64 << 10  # bytes in keys and values
PLACES = ["key_at", "key_size", "value_at", "value_size"]
PAIR_COLUMNS = ["parent", "kind", "buffer", "start", *PLACES]


class ConversationError(FrameError):
    """An error after which a connection must be closed.

    events: the complete events before the error in the same `receive`, which returns none of them.
    offset: bytes from the beginning of the connection. The rest is as in FrameError.
    """

    def __init__(self, error: FrameError, events: Sequence[Any] = (), reason: str = ""):
        super().__init__(
            error.fault, error.offset, error.row, error.near, error.source, error.inflated
        )
        self.args = error, events, reason
        self.events = events
        self._reason = reason

    def __str__(self) -> str:
        text = super().__str__()
        return text.replace(MEANING[Fault(self.fault)], self._reason, 1) if self._reason else text


class PersistentInfos:
    """The persistent infos of one connection, received and sent.

    precedence: which info wins where a persistent and a normal one have the same key.
    sent: the infos that the peer already has.
    """

    def __init__(self, precedence: str = "normal"):
        if precedence not in ("normal", "persistent"):
            raise ValueError(f"precedence must be normal or persistent, not {precedence!r}")
        self._persistent_wins = precedence == "persistent"
        self._received: dict[bytes, bytes] = {}
        self.sent: dict[bytes, bytes] = {}

    def merge_received(
        self, frames: FrameTable, row: int, pairs: Mapping[int, dict[bytes, bytes]]
    ) -> dict[bytes, bytes]:
        """Return the infos in force for the frame of a row, and keep its persistent ones.

        pairs: the frame's own infos by their kind. Raises ConversationError where the peer sets too
        many persistent infos.
        """
        own = pairs[InfoKind.KEYVALUE]
        new = pairs[InfoKind.PKEYVALUE]
        if new:
            self._received |= new
            size = sum(map(len, (*self._received, *self._received.values())))
            if len(self._received) > MAX_REMEMBERED or size > BYTES_REMEMBERED:
                reason = (
                    f"the peer sent more than {MAX_REMEMBERED} persistent infos "
                    f"or {BYTES_REMEMBERED} bytes of them"
                )
                raise make_misuse_error(frames, row, reason, Fault.TOO_LARGE)
        return {**own, **self._received} if self._persistent_wins else {**self._received, **own}

    def select_new(self, persistent: Any) -> dict[bytes, bytes]:
        """Return the persistent infos that the peer does not have yet."""
        pairs = {key: to_bytes(value, f"info {key!r:.80}") for key, value in list_pairs(persistent)}
        return {key: value for key, value in pairs.items() if self.sent.get(key) != value}


def read_infos(frames: FrameTable, limits: Limits) -> list[dict[int, dict[bytes, bytes]]]:
    """Return the infos of each frame by their kind. The last of equal keys wins."""
    out: list[dict[int, dict[bytes, bytes]]] = [
        {kind: {} for kind in InfoKind} for _ in range(len(frames))
    ]
    if not frames["info_count"].any():
        return out
    table = infos(frames, errors=frames.errors, limits=limits)
    rows = table.rows[PAIR_COLUMNS].tolist()
    for frame, kind, buffer, start, key_at, key_size, value_at, value_size in rows:
        if kind:  # kind 0 is a bad frame
            data = table.buffers[buffer]
            key = bytes(data[start + key_at : start + key_at + key_size])
            value = bytes(data[start + value_at : start + value_at + value_size])
            out[frame][kind][key] = value
    return out


def iter_strings(table: FrameTable, name: str) -> Iterator[memoryview]:
    """Yield the bytes in a place of each row, empty for null.

    For few rows that a kernel has just written: nothing is validated.
    """
    columns = (table["buffer"], table["start"] + table[name + "_at"], table[name + "_size"])
    for number, start, size in zip(*(column.tolist() for column in columns)):
        yield table.buffers[number][start : start + max(size, 0)]


def list_transforms(row: np.void) -> tuple[int, ...] | None:
    """Return the transforms of a row of thrift.frames, or None where it has more than four."""
    count = int(row["transform_count"])
    if count > TRANSFORM_COLUMNS:
        return None
    return tuple(int(row[f"transform_{number}"]) for number in range(count))


def make_misuse_error(
    frames: FrameTable, row: int, reason: str, fault: Fault = Fault.BAD_KIND
) -> ConversationError:
    """Return the error for a good frame that does not belong in the conversation."""
    error = FrameError(fault, int(frames.positions[row]), row, frames.frame(row))
    return ConversationError(error, (), reason)
