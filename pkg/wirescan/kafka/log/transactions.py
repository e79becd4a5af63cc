"""Find aborted, open and committed transactions in tables of kafka.batches.

directory.py, the clients and the command line use these functions.

A producer has one transaction at a time. So the transactional batches of a producer are a sequence
of runs, and the next marker of the producer ends each run. A marker is a control batch whose
record has the key  version i2 | type i2  (type 0: abort, 1: commit). If a coordinator ended the
transaction, the epoch of the marker may be higher than that of the batches. Source: Apache Kafka,
"Control Batch" in the documentation of the record batch, and KIP-98.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wirescan.frames.logs import OFFSET_END
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.kafka.protocol.body import read_int16
from wirescan.kafka.record_batches.scan import BATCH

# A transaction: its first offset and its last offset.
SPAN = np.dtype([("producer_id", np.int64), ("first_offset", np.int64), ("last_offset", np.int64)])
# A transactional batch: `offset` is its base offset, `kind` is ABORT, COMMIT or DATA.
STEP = np.dtype([("producer_id", np.int64), ("offset", np.int64), ("kind", np.int32)])
ABORT = 0  # a marker; the number is its type on the wire, read as unsigned
COMMIT = 1  # a marker
DATA = -2  # a batch that is no control batch
TYPE_AT = 2  # position of the type in the key of a marker
LAST = OFFSET_END - 1  # the last offset of an open transaction


class Transactions(NamedTuple):
    """Arrays of dtype SPAN, sorted by producer and first offset.

    An open transaction ends at LAST.
    """

    aborted: np.ndarray
    open: np.ndarray


def aborted(batches: FrameTable) -> np.ndarray:
    """Return the aborted transactions in the batches of one partition, found by their markers.

    Array of `producer_id`, `first_offset` and `last_offset`, all i8, sorted by producer, then by
    offset. `first_offset` is that of the first batch in the table, `last_offset` that of the
    marker. Bad batches and batches without records are ignored. Raises TypeError for another
    table.
    """
    return find_transactions(list_transaction_steps(batches)).aborted


def committed(batches: FrameTable, aborted: Any = None) -> FrameTable:
    """Return the batches of one partition that hold committed data.

    Control batches, such as markers, and the batches of aborted transactions are excluded.

    aborted: the result of `kafka.aborted`, or a table or structured array with its columns, in any
        order. Without a column `last_offset`, as in a Fetch response, a transaction ends at the
        next abort marker of its producer, if there is one. None: the markers in the table decide.
        Then a transaction without a marker is open, and the result ends before its first batch. So
        the table must reach beyond the transactions in it.
    Bad rows before that end are kept. Raises TypeError for another table.
    """
    batch_steps = list_transaction_steps(batches)
    rows = batches.rows
    keep = batches.bad | (rows["is_control"] == 0)
    if aborted is None:
        listed, is_open = find_transactions(batch_steps)
        if len(is_open):
            first_open = is_open["first_offset"].min()
            behind = np.flatnonzero(~batches.bad & (rows["base_offset"] >= first_open))
            keep[behind[0] :] = False
    else:
        listed = make_spans(aborted, batch_steps)
    data = np.flatnonzero(
        ~batches.bad & (rows["is_transactional"] != 0) & (rows["is_control"] == 0)
    )
    keep[data[_is_inside(rows["producer_id"][data], rows["base_offset"][data], listed)]] = False
    return batches.where(keep)


def list_transaction_steps(batches: FrameTable) -> np.ndarray:
    """Return the good transactional batches of a table: array of dtype STEP.

    Control batches that are no marker of a transaction's end are excluded, and so are batches
    without records. A broker that compacts a log keeps such a batch as the last one of a producer
    after the marker is gone. Raises TypeError for another table.
    """
    if not isinstance(batches, FrameTable) or batches.dtype != BATCH:
        raise TypeError(
            "transactions are read from a table of kafka.batches, not from "
            f"{getattr(batches, 'name', type(batches).__name__)}"
        )
    is_step = (batches["is_transactional"] != 0) & (batches["record_count"] != 0)
    transactional = batches.where(is_step & ~batches.bad)
    out = make_data_steps(transactional["producer_id"], transactional["base_offset"])
    control = np.flatnonzero(transactional["is_control"] != 0)
    out["kind"][control] = _read_marker_types(transactional[control])
    return out[np.isin(out["kind"], (ABORT, COMMIT, DATA))]


def make_data_steps(producers: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return an array of dtype STEP: a batch of data of each producer at each offset."""
    out = np.empty(len(producers), STEP)
    out["producer_id"] = producers
    out["offset"] = offsets
    out["kind"] = DATA
    return out


def find_transactions(batch_steps: np.ndarray) -> Transactions:
    """Return the transactions of an array of dtype STEP, whose order does not matter."""
    batch_steps = batch_steps[np.lexsort((batch_steps["offset"], batch_steps["producer_id"]))]
    is_end = batch_steps["kind"] != DATA
    # A run begins after a marker and at another producer. A run of only a marker is no transaction.
    first = np.ones(len(batch_steps), bool)
    first[1:] = is_end[:-1] | (batch_steps["producer_id"][1:] != batch_steps["producer_id"][:-1])
    begins = np.flatnonzero(first)
    ends = np.append(begins[1:], len(batch_steps))[: len(begins)] - 1
    has_data = ~is_end[begins]
    begins = begins[has_data]
    ends = ends[has_data]
    out = np.empty(len(begins), SPAN)
    out["producer_id"] = batch_steps["producer_id"][begins]
    out["first_offset"] = batch_steps["offset"][begins]
    kind = batch_steps["kind"][ends]
    out["last_offset"] = np.where(kind == DATA, LAST, batch_steps["offset"][ends])
    return Transactions(out[kind == ABORT], out[kind == DATA])


def find_first_ends(batch_steps: np.ndarray, producers: np.ndarray) -> np.ndarray:
    """Return the first marker of each of some producers: an array of dtype STEP.

    batch_steps: array of dtype STEP, in the order of the log. producers: array of producer ids.
    Those without a marker are left out.
    """
    is_end = (batch_steps["kind"] != DATA) & np.isin(batch_steps["producer_id"], producers)
    ends = batch_steps[is_end]
    _, first = np.unique(ends["producer_id"], return_index=True)
    return ends[first]


def make_spans(listed: Any, batch_steps: np.ndarray) -> np.ndarray:
    """Return a list of aborted transactions as an array of dtype SPAN.

    listed: a table or structured array with the columns producer_id, first_offset and perhaps
        last_offset.
    batch_steps: array of dtype STEP. Without a column last_offset, its abort markers end the
        transactions. A transaction without a marker ends at LAST.
    Raises TypeError for other columns.
    """
    names = getattr(getattr(listed, "dtype", None), "names", None) or ()
    if not {"producer_id", "first_offset"} <= set(names):
        raise TypeError(
            "aborted transactions must have the columns producer_id, first_offset and, optionally, "
            "last_offset"
        )
    if "fault" in names:  # the columns of a bad row are not valid
        listed = listed[listed["fault"] == 0]
    out = np.empty(len(listed), SPAN)
    out["producer_id"] = listed["producer_id"]
    out["first_offset"] = listed["first_offset"]
    out["last_offset"] = LAST
    if "last_offset" in names:
        out["last_offset"] = listed["last_offset"]
        return out
    markers = batch_steps[batch_steps["kind"] == ABORT]
    # The next marker of a transaction is the latest one before it if offsets count backwards.
    number = _find_latest(
        markers["producer_id"], ~markers["offset"], out["producer_id"], ~out["first_offset"]
    )
    out["last_offset"][number >= 0] = markers["offset"][number[number >= 0]]
    return out


def _is_inside(producers: np.ndarray, offsets: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """Return a bool array: whether each (producer, offset) is inside a span of `listed`.

    listed: array of dtype SPAN. Spans of one producer do not overlap.
    """
    span = _find_latest(listed["producer_id"], listed["first_offset"], producers, offsets)
    inside = span >= 0
    inside[inside] = offsets[inside] <= listed["last_offset"][span[inside]]
    return inside


def _find_latest(
    producers: np.ndarray, offsets: np.ndarray, of_producers: np.ndarray, until: np.ndarray
) -> np.ndarray:
    """Return the number of the last (producer, offset) up to an offset of the same producer.

    producers, offsets: the pairs that are searched. of_producers, until: the pairs that are looked
    up. The result has an int64 for each of these, -1 if there is none.
    """
    count = len(producers)
    producer = np.concatenate([producers, of_producers])
    offset = np.concatenate([offsets, until])
    # Sort all pairs together. Then a running maximum gives each pair the last one before it.
    order = np.lexsort((np.arange(len(producer)) >= count, offset, producer))
    latest = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), -1))
    has_earlier = (order >= count) & (latest >= 0)
    row = order[has_earlier] - count
    earlier = order[latest[has_earlier]]
    out = np.full(len(until), -1, np.int64)
    out[row] = np.where(producers[earlier] == of_producers[row], earlier, -1)
    return out


def _read_marker_types(control: FrameTable) -> np.ndarray:
    """Return an int32 array with the type in the first record of each control batch.

    The types are 0 to 65535. 65535 also means that the first record is bad or has no type. -1 means
    that there is no record.
    """
    out = np.full(len(control), -1, np.int32)
    if not len(control):
        return out
    # Rows may come without a format, in a table that a user made.
    table = format_of("kafka.batches").children["records"](control, errors="mark")
    parents, first = np.unique(table["parent"], return_index=True)
    types = read_int16(table.rows[first], table.buffers, "key", TYPE_AT)
    out[parents] = types.view(np.uint16)  # as signed numbers, some would be DATA
    return out
