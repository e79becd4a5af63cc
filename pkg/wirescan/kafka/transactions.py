"""Transactions in tables of kafka.batches: those that were aborted, those that are open, and what was committed.

A producer has one transaction at a time, so its transactional batches fall into runs, each closed by the next marker of
that producer: a control batch whose record has the key  version i2 | type i2  (0: abort, 1: commit). Its epoch may be
higher than theirs, where a coordinator ended the transaction. Source: Apache Kafka, "Control Batch" of the
documentation's record batch, and KIP-98.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wirescan.kafka.scan import BATCH
from wirescan.table import FrameTable, groups

SPAN = np.dtype([("producer_id", np.int64), ("first_offset", np.int64), ("last_offset", np.int64)])
# A transactional batch, as far as it matters here; of a marker, `offset` is that of the marker itself.
STEP = np.dtype([("producer_id", np.int64), ("offset", np.int64), ("kind", np.int32)])
ABORT, COMMIT, DATA = 0, 1, -2          # the types on the wire, read as unsigned; and any other batch
MARKER_KEY = 4              # bytes: version, type
ISOLATIONS = ("read_uncommitted", "read_committed")
LAST = np.iinfo(np.int64).max


class Transactions(NamedTuple):
    """Arrays of dtype SPAN, by producer and first offset. An open one ends at LAST."""
    aborted: np.ndarray
    open: np.ndarray


def aborted(batches: FrameTable) -> np.ndarray:
    """The aborted transactions in the batches of one partition, by their markers.

    Array of `producer_id`, `first_offset` (of the first batch that is in the table) and `last_offset` (of the marker),
    all i8, in order of producers, then of offsets. Bad batches are passed over. Raises TypeError for another table.
    """
    return transactions(steps(batches)).aborted


def committed(batches: FrameTable, aborted: Any = None) -> FrameTable:
    """The batches of one partition that hold committed data: without markers and other control batches, and without
    the batches of aborted transactions.

    aborted: what `kafka.aborted` gives, or a table or structured array with its columns, in any order. Without
    `last_offset`, as a Fetch answer lists them, each ends at the next abort marker of its producer, if there is one.
    By default they are found by the markers; then a transaction without a marker is open, and nothing is given from its
    first batch on: so the table has to reach beyond the transactions in it.
    Bad rows stay, up to there. Raises TypeError for another table.
    """
    found = steps(batches)
    rows = batches.rows
    keep = batches.bad | (rows["is_control"] == 0)
    if aborted is None:
        listed, is_open = transactions(found)
        if len(is_open):
            behind = np.flatnonzero(~batches.bad & (rows["base_offset"] >= is_open["first_offset"].min()))
            keep[behind[0]:] = False
    else:
        listed = spans(aborted, found)
    data = np.flatnonzero(~batches.bad & (rows["is_transactional"] != 0) & (rows["is_control"] == 0))
    keep[data[_inside(rows["producer_id"][data], rows["base_offset"][data], listed)]] = False
    return batches.where(keep)


def steps(batches: FrameTable) -> np.ndarray:
    """The good transactional batches of a table, but for control batches that end nothing: array of dtype STEP."""
    if not isinstance(batches, FrameTable) or batches.dtype != BATCH:
        raise TypeError("transactions are found in a table of kafka.batches, not in "
                        f"{getattr(batches, 'name', type(batches).__name__)}")
    part = batches.where((batches["is_transactional"] != 0) & ~batches.bad)
    out = np.empty(len(part), STEP)
    out["producer_id"], out["offset"], out["kind"] = part["producer_id"], part["base_offset"], DATA
    control = np.flatnonzero(part["is_control"] != 0)
    out["kind"][control] = _types(part[control])
    return out[np.isin(out["kind"], (ABORT, COMMIT, DATA))]


def transactions(found: np.ndarray) -> Transactions:
    """The transactions that an array of dtype STEP, in any order, makes up."""
    found = found[np.lexsort((found["offset"], found["producer_id"]))]
    is_end = found["kind"] != DATA
    # A run begins behind a marker, and with another producer; one of a marker alone is no transaction.
    first = np.ones(len(found), bool)
    first[1:] = is_end[:-1] | (found["producer_id"][1:] != found["producer_id"][:-1])
    begins = np.flatnonzero(first)
    ends = np.append(begins[1:], len(found))[:len(begins)] - 1
    begins, ends = begins[~is_end[begins]], ends[~is_end[begins]]
    out = np.empty(len(begins), SPAN)
    out["producer_id"], out["first_offset"] = found["producer_id"][begins], found["offset"][begins]
    kind = found["kind"][ends]
    out["last_offset"] = np.where(kind == DATA, LAST, found["offset"][ends])
    return Transactions(out[kind == ABORT], out[kind == DATA])


def spans(listed: Any, found: np.ndarray) -> np.ndarray:
    """A list of aborted transactions as an array of dtype SPAN; ends that it does not tell are those of markers in
    `found`, an array of dtype STEP."""
    names = getattr(getattr(listed, "dtype", None), "names", None) or ()
    if not {"producer_id", "first_offset"} <= set(names):
        raise TypeError("aborted transactions have the columns producer_id, first_offset and perhaps last_offset")
    if "fault" in names:                        # a bad row tells nothing
        listed = listed[listed["fault"] == 0]
    out = np.empty(len(listed), SPAN)
    out["producer_id"], out["first_offset"], out["last_offset"] = listed["producer_id"], listed["first_offset"], LAST
    if "last_offset" in names:
        out["last_offset"] = listed["last_offset"]
        return out
    markers = found[found["kind"] == ABORT]
    # In the order of producers, offsets: behind each place, backwards, the marker that comes next.
    producers = np.concatenate([out["producer_id"], markers["producer_id"]])
    offsets = np.concatenate([out["first_offset"], markers["offset"]])
    order = np.lexsort((np.arange(len(producers)) >= len(out), offsets, producers))
    place = np.where(order >= len(out), np.arange(len(order)), len(order))
    following = np.minimum.accumulate(place[::-1])[::-1]
    known = (following < len(order)) & (order < len(out))
    entry, marker = order[known], order[following[known]]
    same = producers[entry] == producers[marker]
    out["last_offset"][entry[same]] = offsets[marker[same]]
    return out


def _inside(producers: np.ndarray, offsets: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """Bool array: which (producer, offset) lie in a span of the list. Spans of one producer do not overlap."""
    count = len(listed)
    producer = np.concatenate([listed["producer_id"], producers])
    offset = np.concatenate([listed["first_offset"], offsets])
    order = np.lexsort((np.arange(len(producer)) >= count, offset, producer))
    latest = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), -1))
    known = (order >= count) & (latest >= 0)
    row, span = order[known] - count, order[latest[known]]
    out = np.zeros(len(producers), bool)
    out[row] = (listed["producer_id"][span] == producers[row]) & (offsets[row] <= listed["last_offset"][span])
    return out


def _types(control: FrameTable) -> np.ndarray:
    """Int32 array: the type in the first record of each control batch, -1 where there is none."""
    from wirescan.kafka import records
    out = np.full(len(control), -1, np.int32)
    if not len(control):
        return out
    table = records(control, errors="mark")
    rows = table.rows
    parents, first = np.unique(rows["parent"], return_index=True)
    good = (rows["fault"][first] == 0) & (rows["key_size"][first] >= MARKER_KEY)
    parents, first = parents[good], first[good]
    at = rows["start"][first] + rows["key_at"][first] + 2
    for number, here in groups(rows["buffer"][first], np.arange(len(first))):
        raw = np.frombuffer(table.buffers[number], np.uint8)
        high, low = (raw[at[here] + byte].astype(np.int32) for byte in (0, 1))
        out[parents[here]] = high << 8 | low
    return out
