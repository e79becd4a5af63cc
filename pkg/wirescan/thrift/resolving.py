"""The headers in force: those that a frame brings, and those that came before it and persist."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.gather import Places
from wirescan.errors import check_mode, error_of
from wirescan.limits import Limits
from wirescan.table import FrameTable
from wirescan.thrift.kind import InfoKind, Kind
from wirescan.thrift.pairing import integers
from wirescan.thrift.scan import FRAME

__all__ = ["resolve"]

PRECEDENCES = ("normal", "persistent")
HEADERS = (Kind.HEADER, Kind.BIG_HEADER, Kind.DOUBLE_HEADER)
FEW = 32                # pairs in a frame that are compared each with each
ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9))


def resolve(frames: FrameTable, *, connections: Any = None, precedence: str = "normal",
            limits: Limits = Limits()) -> FrameTable:
    """The headers in force for each frame in a table of thrift.frames, as a table of dtype INFO (40 bytes a row).

    They are the persistent ones (PKEYVALUE) of its connection so far, its own included, and its own normal ones
    (KEYVALUE). Of a key there is one row: the last of its kind, and where both kinds have it, that of the kind which
    `precedence` names: "normal", as fbthrift's C++ reader has it, or "persistent", as those in Python and Go.
    Frames are in their order; in a frame persistent headers are in the order in which the connection first had their
    keys, and normal ones follow in that of the wire. `parent` is the frame, a row in `frames`; buffer, start and size
    are where the pair lies, perhaps in an earlier frame. Frames without a header transport have no rows, and bad ones
    neither, unless only their transforms are not known (BAD_CODEC); what they would have said is not in force.

    connections: integers, one for each frame; frames of equal numbers are of one connection, in one direction, in their
    order. By default each buffer is one. A table that begins inside a connection lacks what came before.
    Raises TypeError for another table and for other connections; ValueError for a precedence that there is not, and for
    connections of another number. A persistent header has a row in every later frame: FrameError(LIMIT) beyond
    limits.rows.
    Source: fbthrift, thrift/lib/cpp/transport/THeader.cpp, thrift/lib/py/transport/THeaderTransport.py.
    """
    check_mode("mark", limits)
    if not isinstance(frames, FrameTable) or frames.dtype != FRAME:
        raise TypeError("resolve takes a table of thrift.frames, not "
                        f"{getattr(frames, 'name', type(frames).__name__)}")
    if precedence not in PRECEDENCES:
        raise ValueError(f"precedence is {' or '.join(PRECEDENCES)}, not {precedence!r}")
    lines = frames["buffer"] if connections is None else integers(connections, len(frames), "connections")

    infos = frames.open("infos", errors="mark", limits=limits)
    infos = replace(infos.where(~infos.bad) if infos.bad.any() else infos, errors=frames.errors)
    persists, parents = infos["kind"] == InfoKind.PKEYVALUE, infos["parent"].astype(np.int64)
    doubtful = _doubtful(infos, parents, persists)
    if not len(doubtful):
        return infos
    # Keys are compared by their bytes where they may be equal; all others are in force as they are.
    seen: dict[bytes | None, int] = {}
    keys = np.array([seen.setdefault(key, len(seen)) for key in Places(_taken(infos, doubtful), "key")], np.int64)
    key_of = np.full(len(infos), -1, np.int64)              # -1: of a key that nothing else in its frame can have
    key_of[doubtful] = keys
    spots = (2 * parents + persists)[doubtful] * len(seen) + keys
    stays = key_of < 0
    stays[doubtful[len(spots) - 1 - np.unique(spots[::-1], return_index=True)[1]]] = True
    normal = np.flatnonzero(stays & ~persists)
    old, where, order = _spread(frames, infos, lines, np.flatnonzero(persists), stays, key_of,
                                limits.rows - len(normal))

    both = np.flatnonzero(key_of[normal] >= 0)
    own = parents[normal[both]] * len(seen) + key_of[normal[both]]
    held = where * len(seen) + key_of[old]
    if precedence == "normal":
        kept = ~np.isin(held, own)
        old, where, order = old[kept], where[kept], order[kept]
    else:
        normal = np.delete(normal, both[np.isin(own, held)])
    places = np.concatenate([2 * where, 2 * parents[normal] + 1])
    ranks = np.concatenate([order, normal])
    sequence = np.argsort(places << 31 | ranks, kind="stable")          # fast, as there are few runs
    rows = infos.rows.take(np.concatenate([old, normal])[sequence])
    rows["parent"] = places[sequence] >> 1
    rows.flags.writeable = False
    return replace(infos, rows=rows)


def _spread(frames: FrameTable, infos: FrameTable, lines: np.ndarray, persistent: np.ndarray, stays: np.ndarray,
            key_of: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Persistent pairs in the frames for which they are in force: int64 arrays of pairs, frames, and of the pair that
    first had the key on its connection."""
    opened = np.isin(frames["kind"], HEADERS) & np.isin(frames["fault"], (Fault.OK, Fault.BAD_CODEC))
    chosen = np.flatnonzero(opened & np.isin(lines, lines[infos["parent"][persistent]]))
    numbers = np.unique(lines[chosen], return_inverse=True)[1]
    order = np.argsort(numbers, kind="stable")
    chosen, numbers = chosen[order], numbers[order]         # the frames of one connection after those of another
    at = np.zeros(len(frames), np.int64)
    at[chosen] = np.arange(len(chosen))
    line = np.zeros(len(frames), np.int64)
    line[chosen] = numbers

    chains = line[infos["parent"][persistent]] * (int(key_of.max(initial=0)) + 1) + key_of[persistent]
    _, first, chains = np.unique(chains, return_index=True, return_inverse=True)
    # A pair is in force from its frame to that of the next one of its key, or to the connection's end.
    pairs, firsts, chains = (array[stays[persistent]] for array in (persistent, persistent[first][chains], chains))
    order = np.argsort(chains, kind="stable")
    pairs, firsts, chains = pairs[order], firsts[order], chains[order]
    begins = at[infos["parent"][pairs]]
    ends = np.searchsorted(numbers, line[infos["parent"][pairs]], "right")
    followed = np.flatnonzero(chains[1:] == chains[:-1])
    ends[followed] = begins[followed + 1]
    counts = ends - begins
    if counts.sum() > most:
        raise error_of(infos, len(infos) - 1, Fault.LIMIT)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(pairs, counts), chosen[np.repeat(begins, counts) + within], np.repeat(firsts, counts)


def _doubtful(infos: FrameTable, parents: np.ndarray, persists: np.ndarray) -> np.ndarray:
    """The persistent pairs, and all that may have the key of one, or of another pair of their kind in their frame."""
    sizes, places = infos["key_size"], 2 * parents + persists
    some = np.flatnonzero(_repeated(places << 31 | sizes, parents) | persists | np.isin(sizes, sizes[persists]))
    if not len(some):
        return some
    marks, parents, places, persists = _marks(_taken(infos, some)), parents[some], places[some], persists[some]
    same = _repeated(marks + ODD[2] * places.astype(np.uint64), parents)
    return some[same | persists | np.isin(marks, marks[persists])]


def _taken(table: FrameTable, rows: np.ndarray) -> FrameTable:
    return replace(table, rows=table.rows.take(rows))               # of rows with many columns faster than an index


def _repeated(spots: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """Bool array: the numbers that come more than once, where equal ones are of one frame."""
    again = np.zeros(len(spots), bool)
    if (most := int(np.bincount(parents).max(initial=0))) <= FEW:
        for step in range(1, most):
            same = spots[step:] == spots[:-step]
            again[step:] |= same
            again[:-step] |= same
    else:
        order = np.argsort(spots)
        same = spots[order[1:]] == spots[order[:-1]]
        again[order[1:][same]] = again[order[:-1][same]] = True
    return again


def _marks(infos: FrameTable) -> np.ndarray:
    """A number for the key of each pair, of its size and its first and last bytes: equal where keys are."""
    offsets, data = Places(infos, "key").gathered(True)
    padded = np.zeros(len(data) + 8, np.uint8)
    padded[:len(data)] = np.frombuffer(data, np.uint8)
    words = np.ndarray(len(data) + 1, "<u8", padded, strides=(1,))
    sizes = np.diff(offsets)
    foreign = (64 - 8 * np.minimum(sizes, 8)).astype(np.uint64)         # bits in a word that are behind a short key
    first, last = words[offsets[:-1]] << foreign, words[np.maximum(offsets[1:] - 8, offsets[:-1])] << foreign
    marks = (first * ODD[0] ^ first >> np.uint64(29)) + last * ODD[1] + sizes.astype(np.uint64)
    return (marks ^ marks >> np.uint64(32)) * ODD[1]
