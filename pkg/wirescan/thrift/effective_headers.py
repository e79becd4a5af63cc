"""Find the headers in force for each frame: its own, and the persistent ones of earlier frames.

`wirescan.thrift` exports `resolve`. No other module uses it; live connections use
live/persistent_headers.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.gather import Places
from wirescan.frames.errors import check_mode, make_frame_error
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable, require_rows
from wirescan.thrift.call_pairs import to_integers
from wirescan.thrift.constants import InfoKind, Kind
from wirescan.thrift.scan import FRAME

__all__ = ["resolve"]

PRECEDENCES = ("normal", "persistent")
HEADERS = (Kind.HEADER, Kind.BIG_HEADER, Kind.DOUBLE_HEADER)
BYTES_PER_ROW = 160  # memory for a row while it is made, with the intermediate arrays
ROWS_PER_PAIR = 16  # allowed for each frame and pair where the limits do not set `row_bytes`
FEW_PAIRS = 32  # in a frame; up to this number each pair is compared with each other pair
HASH_FACTORS = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xC2B2AE3D27D4EB4F),
    np.uint64(0x165667B19E3779F9),
)


@dataclass(frozen=True)
class _Pairs:
    """The pairs of a table of thrift.infos, with numbers for their keys.

    frames: i8, the row of each pair's frame. persistent: bool. keys: i8, equal where keys are
    equal; -1 where the key competes with no other pair. key_count: the number of distinct numbers
    from 0 on. last: bool, the last pair of its key and kind in its frame.
    """

    table: FrameTable
    frames: np.ndarray
    persistent: np.ndarray
    keys: np.ndarray
    key_count: int
    last: np.ndarray


def resolve(
    frames: FrameTable,
    *,
    connections: Any = None,
    precedence: str = "normal",
    limits: Limits = Limits(),
) -> FrameTable:
    """Return the headers in force for each frame, as a table of dtype INFO, 40 bytes a row.

    The headers in force for a frame are the persistent ones (PKEYVALUE) of its connection so far,
    including its own, and its own normal ones (KEYVALUE). A key has one row: the last pair with it,
    of the kind that `precedence` prefers.

    Args:
        frames: a table of thrift.frames.
        connections: integers, one for each frame. Frames of equal numbers are of one connection, in
            one direction, in their order. By default each buffer is one connection. Headers from
            before the table's first frame are missing.
        precedence: the kind that wins where both kinds have a key: "normal", as in fbthrift's C++
            reader, or "persistent", as in those for Python and Go.
        limits: limits on rows. A persistent header has a row in every later frame.

    Returns:
        Rows in the order of the frames. In a frame, persistent headers are first, in the order in
        which the connection first had their keys. Normal ones follow in the order of the wire.
        `parent` is the frame, a row in `frames`. buffer, start and size are the pair's position,
        which may be in an earlier frame. Frames of other kinds have no rows. Bad frames have no
        rows either, and their headers are not in force, unless only their transforms are unknown
        (BAD_CODEC).

    Source: fbthrift, thrift/lib/cpp/transport/THeader.cpp and
    thrift/lib/py/transport/THeaderTransport.py.

    Raises:
        TypeError: another table, or connections that are not integers.
        ValueError: an unknown precedence, or connections of another length.
        FrameError: LIMIT for more rows than `limits.rows`, or where making the rows would take more
            than `limits.row_bytes`, about 160 bytes for each. By default 1.6 million rows are
            allowed, or 16 for each frame and pair where that is more.
    """
    check_mode("mark", limits)
    require_rows(frames, FRAME, "resolve takes a table of thrift.frames")
    if precedence not in PRECEDENCES:
        raise ValueError(f"precedence must be {' or '.join(PRECEDENCES)}, not {precedence!r}")
    if connections is None:
        connections = frames["buffer"]
    else:
        connections = to_integers(connections, len(frames), "connections")

    infos = frames.open("infos", errors="mark", limits=limits)
    infos = replace(infos.where(~infos.bad) if infos.bad.any() else infos, errors=frames.errors)
    pairs = _number_keys(infos)
    if pairs is None:
        return infos
    normal = np.flatnonzero(pairs.last & ~pairs.persistent)
    max_rows = _limit_rows(len(frames) + len(infos), limits) - len(normal)
    persistent, in_frames, first = _spread_persistent(frames, pairs, connections, max_rows)

    comparable = np.flatnonzero(pairs.keys[normal] >= 0)
    compared = normal[comparable]
    normal_slots = pairs.frames[compared] * pairs.key_count + pairs.keys[compared]
    persistent_slots = in_frames * pairs.key_count + pairs.keys[persistent]
    if precedence == "normal":
        wins = ~np.isin(persistent_slots, normal_slots)
        persistent = persistent[wins]
        in_frames = in_frames[wins]
        first = first[wins]
    else:
        normal = np.delete(normal, comparable[np.isin(normal_slots, persistent_slots)])
    groups = np.concatenate([2 * in_frames, 2 * pairs.frames[normal] + 1])
    ranks = np.concatenate([first, normal])
    order = np.argsort(groups << 31 | ranks, kind="stable")  # fast, because there are few runs
    rows = infos.rows.take(np.concatenate([persistent, normal])[order])
    rows["parent"] = groups[order] >> 1
    rows.flags.writeable = False
    return replace(infos, rows=rows)


def _number_keys(infos: FrameTable) -> _Pairs | None:
    """Return the pairs with numbers for their keys, or None where no key can be equal.

    Only keys that may be equal are compared by their bytes. All other pairs are in force.
    """
    persistent = infos["kind"] == InfoKind.PKEYVALUE
    frames = infos["parent"].astype(np.int64)
    candidates = _find_candidates(infos, frames, persistent)
    if not len(candidates):
        return None
    numbers: dict[bytes | None, int] = {}
    texts = Places(_take(infos, candidates), "key")
    candidate_keys = np.array(
        [numbers.setdefault(texts[i], len(numbers)) for i in range(len(texts))], np.int64
    )
    keys = np.full(len(infos), -1, np.int64)
    keys[candidates] = candidate_keys
    slots = (2 * frames + persistent)[candidates] * len(numbers) + candidate_keys
    last = keys < 0
    last[candidates[len(slots) - 1 - np.unique(slots[::-1], return_index=True)[1]]] = True
    return _Pairs(infos, frames, persistent, keys, len(numbers), last)


def _limit_rows(count: int, limits: Limits) -> int:
    """Return how many rows may be made of `count` frames and pairs."""
    max_rows = limits.limit_row_bytes(0) // BYTES_PER_ROW
    if limits.row_bytes is None:
        max_rows = max(max_rows, ROWS_PER_PAIR * count)
    return min(limits.rows, max_rows)


def _spread_persistent(
    frames: FrameTable, pairs: _Pairs, connections: np.ndarray, max_rows: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each persistent pair once for each frame in which it is in force.

    The result is three int64 arrays: the pairs, the frames, and the pairs that first had the key on
    the connection. Raises FrameError(LIMIT) for more than `max_rows` rows.
    """
    persistent = np.flatnonzero(pairs.persistent)
    connections_used = connections[pairs.frames[persistent]]
    opened = np.isin(frames["kind"], HEADERS) & np.isin(
        frames["fault"], (Fault.OK, Fault.BAD_CODEC)
    )
    members = np.flatnonzero(opened & np.isin(connections, connections_used))
    numbers = np.unique(connections[members], return_inverse=True)[1]
    order = np.argsort(numbers, kind="stable")  # groups the frames by connection
    members = members[order]
    numbers = numbers[order]
    position_of = np.zeros(len(frames), np.int64)
    position_of[members] = np.arange(len(members))
    number_of = np.zeros(len(frames), np.int64)
    number_of[members] = numbers

    # A chain is all pairs of one key on one connection.
    multiplier = int(pairs.keys.max(initial=0)) + 1
    chains = number_of[pairs.frames[persistent]] * multiplier + pairs.keys[persistent]
    _, first, chains = np.unique(chains, return_index=True, return_inverse=True)
    last = pairs.last[persistent]
    rows = persistent[last]
    first_rows = persistent[first][chains][last]
    chains = chains[last]
    order = np.argsort(chains, kind="stable")
    rows = rows[order]
    first_rows = first_rows[order]
    chains = chains[order]
    # A pair is in force from its frame to the next frame with its key, or to the connection's end.
    begins = position_of[pairs.frames[rows]]
    ends = np.searchsorted(numbers, number_of[pairs.frames[rows]], "right")
    followed = np.flatnonzero(chains[1:] == chains[:-1])
    ends[followed] = begins[followed + 1]
    counts = ends - begins
    if counts.sum() > max_rows:
        raise make_frame_error(pairs.table, len(pairs.table) - 1, Fault.LIMIT)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return (
        np.repeat(rows, counts),
        members[np.repeat(begins, counts) + within],
        np.repeat(first_rows, counts),
    )


def _find_candidates(infos: FrameTable, frames: np.ndarray, persistent: np.ndarray) -> np.ndarray:
    """Return the pairs whose keys must be compared, as an array of row numbers.

    These are the persistent pairs, the pairs that may have the key of one, and the pairs that may
    have the key of another pair of their kind in their frame.
    """
    sizes = infos["key_size"]
    groups = 2 * frames + persistent
    same_size = _find_repeated(groups << 31 | sizes, frames)
    rows = np.flatnonzero(same_size | persistent | np.isin(sizes, sizes[persistent]))
    if not len(rows):
        return rows
    hashes = _hash_keys(_take(infos, rows))
    persistent = persistent[rows]
    slots = hashes + HASH_FACTORS[2] * groups[rows].astype(np.uint64)
    same_hash = _find_repeated(slots, frames[rows])
    candidates: np.ndarray = rows[same_hash | persistent | np.isin(hashes, hashes[persistent])]
    return candidates


def _take(table: FrameTable, rows: np.ndarray) -> FrameTable:
    # For rows with many columns, `take` is faster than an index.
    return replace(table, rows=table.rows.take(rows))


def _find_repeated(numbers: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """Return which numbers occur more than once, as a bool array.

    frames: the frame of each number. Equal numbers are always of one frame.
    """
    repeated = np.zeros(len(numbers), bool)
    max_pairs = int(np.bincount(frames).max(initial=0))
    if max_pairs <= FEW_PAIRS:
        for step in range(1, max_pairs):
            equal = numbers[step:] == numbers[:-step]
            repeated[step:] |= equal
            repeated[:-step] |= equal
    else:
        order = np.argsort(numbers)
        equal = numbers[order[1:]] == numbers[order[:-1]]
        repeated[order[1:][equal]] = True
        repeated[order[:-1][equal]] = True
    return repeated


def _hash_keys(infos: FrameTable) -> np.ndarray:
    """Return a hash of each pair's key, as uint64: of its size and its first and last 8 bytes."""
    offsets, data = Places(infos, "key").gather(large=True)
    padded = np.zeros(len(data) + 8, np.uint8)
    padded[: len(data)] = np.frombuffer(memoryview(data), np.uint8)
    words = np.ndarray(len(data) + 1, "<u8", padded, strides=(1,))
    starts = offsets[:-1]
    sizes = np.diff(offsets)
    # The bits of a word that are not of its key, where the key is shorter than 8 bytes.
    excess = (64 - 8 * np.minimum(sizes, 8)).astype(np.uint64)
    first = words[starts] << excess
    last = words[np.maximum(offsets[1:] - 8, starts)] << excess
    hashes: np.ndarray = (first * HASH_FACTORS[0] ^ first >> np.uint64(29)) + (
        last * HASH_FACTORS[1] + sizes.astype(np.uint64)
    )
    mixed: np.ndarray = (hashes ^ hashes >> np.uint64(32)) * HASH_FACTORS[1]
    return mixed
