"""Which reply answers which call, and how long it took."""
from __future__ import annotations

from typing import Any

import numpy as np

from wirescan.table import FrameTable
from wirescan.thrift.kind import MessageType
from wirescan.thrift.scan import MESSAGE

__all__ = ["PAIR", "pair"]

NAT = np.iinfo(np.int64).min            # how numpy has it
PAIR = np.dtype([(name, np.int64) for name in ("call", "reply", "latency")])


def pair(calls: FrameTable, replies: FrameTable, *, connections: tuple[Any, Any] | None = None,
         call_times: Any = None, reply_times: Any = None) -> np.ndarray:
    """Which reply answers which call: a structured array of dtype PAIR: `call`, `reply`, `latency`, all i8.

    calls, replies: tables of thrift.messages; they may be one table. `call` is the row of a good CALL or ONEWAY: each
    has one row here, in their order. `reply` is the row of the REPLY or EXCEPTION: the first that bears a seqid on a
    connection answers the first CALL that bears it there, the second the second, and so on; -1 where there is none, as
    for every ONEWAY. Replies that precede all calls of their seqid are not told from others: where a capture begins
    inside a conversation, and seqids come again, leave them out. What is in no row answers no call:

        np.setdiff1d(np.flatnonzero(~replies.bad & np.isin(replies["kind"], (2, 3))), pairs["reply"])

    connections: two arrays of integers, one for each row of `calls` and of `replies`; rows of equal numbers are of one
    connection. By default each buffer that was scanned is one direction of one: the i-th of the calls and the i-th of
    the replies belong together.
    call_times, reply_times: arrays of integers, one for each row, both in one unit of your choice; or of datetime64,
    taken as nanoseconds. `latency` is their difference in that unit; -1 without times (NaT), without a reply, and where
    the reply is older than the call, as clocks of two machines have it.

    Raises TypeError for other tables and for arrays of anything else; ValueError for arrays of another length,
    times of one side only, and buffers that are not as many on both sides.
    """
    tables = calls, replies
    for table in tables:
        if not isinstance(table, FrameTable) or table.dtype != MESSAGE:
            name = getattr(table, "name", type(table).__name__)
            raise TypeError(f"pair takes tables of thrift.messages, not {name}")
    if connections is None:
        (first, ours), (second, theirs) = map(_buffers, tables)
        if first != second:
            raise ValueError(f"calls of {first} buffers, and replies of {second}: give their connections")
    else:
        if not isinstance(connections, (tuple, list)) or len(connections) != 2:
            raise TypeError("connections are two arrays, one for the calls and one for the replies")
        ours, theirs = (integers(one, len(table), "connections") for one, table in zip(connections, tables))
    if (call_times is None) != (reply_times is None):
        raise ValueError("a latency needs the times of both, calls and replies")

    asked = np.flatnonzero(~calls.bad & np.isin(calls["kind"], (MessageType.CALL, MessageType.ONEWAY)))
    out = np.full(len(asked), -1, PAIR)
    out["call"] = asked
    waiting = np.flatnonzero(calls["kind"][asked] == MessageType.CALL)
    answers = np.flatnonzero(~replies.bad & np.isin(replies["kind"], (MessageType.REPLY, MessageType.EXCEPTION)))
    rows = asked[waiting]
    mine, yours = _keys(ours[rows], calls["seqid"][rows], theirs[answers], replies["seqid"][answers])
    # Both in the order of their keys, then of the wire: a key's n-th call is n behind where the key begins.
    waiting, mine = _sorted(waiting, mine)
    answers, yours = _sorted(answers, yours)
    at = np.arange(len(mine)) - np.searchsorted(mine, mine) + np.searchsorted(yours, mine)
    answered = at < np.searchsorted(yours, mine, "right")
    out["reply"][waiting[answered]] = answers[at[answered]]
    if call_times is not None:
        begun, ended = (integers(_numbers(times), len(table), name) for times, table, name in zip(
            (call_times, reply_times), tables, ("call_times", "reply_times")))
        known = np.flatnonzero(out["reply"] >= 0)
        first, last = begun[out["call"][known]], ended[out["reply"][known]]
        out["latency"][known] = np.where((first == NAT) | (last == NAT), -1, np.maximum(last - first, -1))
    return out


def _buffers(table: FrameTable) -> tuple[int, np.ndarray]:
    """How many buffers were scanned, and which of them each row is from; payloads may since have been inflated."""
    top, rows = table, np.arange(len(table))
    while top.outer is not None:
        rows, top = top["parent"][rows], top.outer
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(top):
            raise ValueError(f"a row of {table.name} points outside the table around it")
    return len(top.buffers), top["buffer"][rows].astype(np.int64)


def _numbers(times: Any) -> Any:
    array = np.asarray(times)
    return array.astype("M8[ns]").view(np.int64) if array.dtype.kind == "M" else times


def integers(given: Any, count: int, name: str) -> np.ndarray:
    """An int64 array of what is given, one number for each of `count` rows; TypeError and ValueError for others."""
    array = np.asarray(given)
    if array.shape == (0,) and not count:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1 or isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{name} are arrays of integers in one dimension, not of {array.dtype} in {array.ndim}")
    if len(array) != count:
        raise ValueError(f"{name}: {len(array)} numbers for {count} rows")
    return array.astype(np.int64)


def _keys(ours: np.ndarray, seqids: np.ndarray, theirs: np.ndarray,
          echoes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One number for each connection and seqid, of calls and of replies."""
    numbers = np.concatenate([ours, theirs])
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < 1 << 31:
        numbers = np.unique(numbers, return_inverse=True)[1]
    keys = numbers << 32 | np.concatenate([seqids, echoes]).view(np.uint32)
    return keys[:len(ours)], keys[len(ours):]


def _sorted(rows: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(keys, kind="stable")
    return rows[order], keys[order]
