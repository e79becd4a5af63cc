"""Match calls with their replies. `wirescan.thrift` exports `pair`."""

from __future__ import annotations

from typing import Any

import numpy as np

from wirescan.core.arguments import convert_times
from wirescan.frames.table import FrameTable, require_rows
from wirescan.thrift.constants import MessageType
from wirescan.thrift.scan import MESSAGE

__all__ = ["PAIR", "pair"]

NAT = np.iinfo(np.int64).min  # numpy's "not a time" as an integer
PAIR = np.dtype([(name, np.int64) for name in ("call", "reply", "latency")])


def pair(
    calls: FrameTable,
    replies: FrameTable,
    *,
    connections: tuple[Any, Any] | None = None,
    call_times: Any = None,
    reply_times: Any = None,
) -> np.ndarray:
    """Return which reply answers which call, as an array of dtype PAIR.

    Args:
        calls: a table of thrift.messages.
        replies: a table of thrift.messages; it may be the same table.
        connections: two arrays of integers, one for each row of `calls` and of `replies`. Rows of
            equal numbers are of one connection. By default each scanned buffer is one direction of
            one connection: buffer i of the calls and buffer i of the replies belong together.
        call_times: an array of integers, one for each row of `calls`, in a unit of your choice; or
            of datetime64, which is converted to nanoseconds.
        reply_times: the same for `replies`, in the same unit.

    Returns:
        One row for each good CALL or ONEWAY, in the order of `calls`. All columns are i8.
        `call` is the row of the call.
        `reply` is the row of its REPLY or EXCEPTION, or -1 without one, as for every ONEWAY.
        `latency` is the reply's time minus the call's time. It is -1 without times (NaT), without a
        reply, and where the reply is older than the call, as the clocks of two machines may show.

    The first reply with a seqid on a connection answers the first CALL with that seqid there, the
    second reply the second CALL, and so on. A capture may begin inside a conversation, and seqids
    may repeat. Then remove the replies that precede all calls of their seqid: they cannot be
    distinguished from others. A reply that is in no row answers no call:

        answers = np.flatnonzero(~replies.bad & np.isin(replies["kind"], (2, 3)))
        np.setdiff1d(answers, pairs["reply"])

    Times come from the capture, not from the wire. The capture says at which byte of the stream
    each packet begins, and when it was seen. A message has the time of the packet that holds the
    first byte of its frame:

        # packet_starts ascend from 0
        packets = np.searchsorted(packet_starts, calls.positions, "right") - 1
        call_times = packet_times[packets]

    `positions` counts from the beginning of each buffer, so do this for one connection at a time.
    Where each buffer is a record with a time, such as the value of a Kafka record:

        call_times = record_times[calls.outer["buffer"][calls["parent"]]]

    Raises:
        TypeError: another table, or an array that is not of integers.
        ValueError: an array of another length, times of one side only, a datetime64 that does not
            fit 64 bits of nanoseconds, or different numbers of buffers on both sides.
    """
    for table in (calls, replies):
        require_rows(table, MESSAGE, "pair takes tables of thrift.messages")
    call_connections, reply_connections = _number_connections(calls, replies, connections)
    if (call_times is None) != (reply_times is None):
        raise ValueError("a latency needs the times of both, calls and replies")

    call_rows = _find_good_rows(calls, (MessageType.CALL, MessageType.ONEWAY))
    out = np.full(len(call_rows), -1, PAIR)
    out["call"] = call_rows
    expecting = np.flatnonzero(calls["kind"][call_rows] == MessageType.CALL)
    answers = _find_good_rows(replies, (MessageType.REPLY, MessageType.EXCEPTION))
    rows = call_rows[expecting]
    call_keys, reply_keys = _number_keys(
        call_connections[rows],
        calls["seqid"][rows],
        reply_connections[answers],
        replies["seqid"][answers],
    )
    # Sort both by key, then by the order of the wire. The n-th call of a key then has the n-th
    # reply of that key.
    expecting, call_keys = _sort_by_key(expecting, call_keys)
    answers, reply_keys = _sort_by_key(answers, reply_keys)
    rank = np.arange(len(call_keys)) - np.searchsorted(call_keys, call_keys)
    at = rank + np.searchsorted(reply_keys, call_keys)
    answered = at < np.searchsorted(reply_keys, call_keys, "right")
    out["reply"][expecting[answered]] = answers[at[answered]]
    if call_times is not None:
        _set_latencies(
            out,
            to_integers(_to_nanoseconds(call_times, "call_times"), len(calls), "call_times"),
            to_integers(_to_nanoseconds(reply_times, "reply_times"), len(replies), "reply_times"),
        )
    return out


def _number_connections(
    calls: FrameTable, replies: FrameTable, connections: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return the connection of each row of `calls` and of `replies`, as int64 arrays."""
    if connections is None:
        call_count, call_buffers = _number_scanned_buffers(calls)
        reply_count, reply_buffers = _number_scanned_buffers(replies)
        if call_count != reply_count:
            raise ValueError(
                f"calls are from {call_count} buffers and replies from {reply_count}: "
                "give their connections"
            )
        return call_buffers, reply_buffers
    if not isinstance(connections, (tuple, list)) or len(connections) != 2:
        raise TypeError("connections must be two arrays, one for calls and one for replies")
    return (
        to_integers(connections[0], len(calls), "connections"),
        to_integers(connections[1], len(replies), "connections"),
    )


def _find_good_rows(table: FrameTable, kinds: tuple[MessageType, ...]) -> np.ndarray:
    return np.flatnonzero(~table.bad & np.isin(table["kind"], kinds))


def _set_latencies(out: np.ndarray, call_times: np.ndarray, reply_times: np.ndarray) -> None:
    rows = np.flatnonzero(out["reply"] >= 0)
    first = call_times[out["call"][rows]]
    last = reply_times[out["reply"][rows]]
    out["latency"][rows] = np.where(
        (first == NAT) | (last == NAT), -1, np.maximum(last - first, -1)
    )


def _number_scanned_buffers(table: FrameTable) -> tuple[int, np.ndarray]:
    """Return the number of scanned buffers, and the scanned buffer of each row, as int64.

    `buffer` of a message may name a buffer of decompressed payloads instead.
    """
    top = table
    rows = np.arange(len(table))
    while top.outer is not None:
        rows = top["parent"][rows]
        top = top.outer
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(top):
            raise ValueError(f"a row of {table.name} points outside the table around it")
    return len(top.buffers), top["buffer"][rows].astype(np.int64)


def _to_nanoseconds(times: Any, name: str) -> Any:
    """Return datetime64 as int64 nanoseconds, and anything else as it is.

    name: what messages call the array. Raises ValueError for a time that does not fit.
    """
    array = np.asarray(times)
    return convert_times(array, name, null=NAT) if array.dtype.kind == "M" else times


def to_integers(values: Any, count: int, name: str) -> np.ndarray:
    """Return `values` as an int64 array with one number for each of `count` rows.

    Raises TypeError for values that are not integers, ValueError for another length.
    """
    array = np.asarray(values)
    if array.shape == (0,) and not count:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1 or isinstance(values, np.ma.MaskedArray):
        raise TypeError(
            f"{name} must be integers in one dimension, "
            f"not {array.dtype} in {array.ndim} dimensions"
        )
    if len(array) != count:
        raise ValueError(f"{name}: {len(array)} numbers for {count} rows")
    return array.astype(np.int64)


def _number_keys(
    call_connections: np.ndarray,
    call_seqids: np.ndarray,
    reply_connections: np.ndarray,
    reply_seqids: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return one number for each connection and seqid, of calls and of replies, as int64 arrays."""
    numbers = np.concatenate([call_connections, reply_connections])
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < 1 << 31:
        numbers = np.unique(numbers, return_inverse=True)[1]
    seqids = np.concatenate([call_seqids, reply_seqids]).view(np.uint32)
    keys = numbers << 32 | seqids
    return keys[: len(call_connections)], keys[len(call_connections) :]


def _sort_by_key(rows: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(keys, kind="stable")
    return rows[order], keys[order]
