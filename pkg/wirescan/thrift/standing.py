"""What holds for a whole connection of Thrift: its persistent infos, and the error that ends it.

Sources: Apache Thrift, doc/specs/HeaderFormat.md, "Info headers"; of fbthrift THeader.cpp.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from wirescan.core.columns import octets, pairs_of
from wirescan.core.fault import Fault
from wirescan.errors import MEANING, FrameError
from wirescan.limits import Limits
from wirescan.table import FrameTable
from wirescan.thrift import infos
from wirescan.thrift.kind import InfoKind

MOST_REMEMBERED = 256           # persistent infos that a peer may have remembered, and
BYTES_REMEMBERED = 64 << 10     # ... bytes in them: every message bears them
PAIRS = ["parent", "kind", "buffer", "start", "key_at", "key_size", "value_at", "value_size"]


class ConversationError(FrameError):
    """Bytes after which a connection must be closed.

    events: what came whole before them in the same `receive`, which is not given out otherwise. The rest is as in
    FrameError; offset: in bytes from the beginning of the connection.
    """
    def __init__(self, error: FrameError, events: Sequence[Any] = (), said: str = ""):
        super().__init__(error.fault, error.offset, error.row, error.near, error.source, error.inflated)
        self.args = error, events, said
        self.events, self._said = events, said

    def __str__(self) -> str:
        text = super().__str__()
        return text.replace(MEANING[Fault(self.fault)], self._said, 1) if self._said else text


class Standing:
    """The persistent infos of one connection.

    precedence: which info wins where a persistent and a normal one have the same key. told: what the peer was told."""

    def __init__(self, precedence: str = "normal"):
        if precedence not in ("normal", "persistent"):
            raise ValueError(f"precedence must be normal or persistent, not {precedence!r}")
        self._persistent_wins = precedence == "persistent"
        self._heard: dict[bytes, bytes] = {}
        self.told: dict[bytes, bytes] = {}

    def in_force(self, frames: FrameTable, row: int, pairs: Mapping[int, dict[bytes, bytes]]) -> dict[bytes, bytes]:
        """The infos that hold for the frame of a row, of which `pairs` are its own, by their kind. Raises
        ConversationError where the peer would have too many remembered."""
        own, new = pairs[InfoKind.KEYVALUE], pairs[InfoKind.PKEYVALUE]
        if new:
            self._heard |= new
            size = sum(map(len, (*self._heard, *self._heard.values())))
            if len(self._heard) > MOST_REMEMBERED or size > BYTES_REMEMBERED:
                raise misused(frames, row, "the peer has too many persistent infos remembered", Fault.TOO_LARGE)
        return {**own, **self._heard} if self._persistent_wins else {**self._heard, **own}

    def new(self, persistent: Any) -> dict[bytes, bytes]:
        """Those among some persistent infos that the peer was not told yet."""
        pairs = {key: octets(value, f"info {key!r:.80}") for key, value in pairs_of(persistent)}
        return {key: value for key, value in pairs.items() if self.told.get(key) != value}


def infos_of(frames: FrameTable, limits: Limits) -> list[dict[int, dict[bytes, bytes]]]:
    """For each frame what its header says, by the kind of info. The last of equal keys wins, as everywhere."""
    out: list[dict[int, dict[bytes, bytes]]] = [{kind: {} for kind in InfoKind} for _ in range(len(frames))]
    if not frames["info_count"].any():
        return out
    found = infos(frames, errors=frames.errors, limits=limits)
    for frame, kind, buffer, start, key, key_size, value, value_size in found.rows[PAIRS].tolist():
        if kind:                # else the frame is bad
            data = found.buffers[buffer]
            out[frame][kind][bytes(data[start + key:start + key + key_size])] = bytes(
                data[start + value:start + value + value_size])
    return out


def strings_of(table: FrameTable, name: str) -> Iterator[memoryview]:
    """A place of each row that a kernel has just written; empty for null. For few rows: it checks nothing."""
    columns = (table["buffer"], table["start"] + table[name + "_at"], table[name + "_size"])
    for number, start, size in zip(*(column.tolist() for column in columns)):
        yield table.buffers[number][start:start + max(size, 0)]


def transforms_of(row: np.void) -> tuple[int, ...] | None:
    """The transforms of a row of thrift.frames; None where they are more than it holds."""
    count = int(row["transform_count"])
    if not count:
        return ()
    return tuple(int(row[f"transform_{number}"]) for number in range(count)) if count <= 4 else None


def misused(frames: FrameTable, row: int, said: str, fault: Fault = Fault.BAD_KIND) -> ConversationError:
    """A good frame that has no place in the conversation."""
    error = FrameError(fault, int(frames.positions[row]), row, frames.frame(row))
    return ConversationError(error, (), said)
