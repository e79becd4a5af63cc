"""The record sets in Produce requests and Fetch responses: rows of kafka.record_sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wirescan.core.loop import HEAD
from wirescan.core.row_arrays import join_rows
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.kafka.protocol.schema import get_api_key

RECORD_SET_COLUMNS = np.dtype(
    [
        ("topic_at", "u4"),
        ("topic_size", "i4"),
        ("topic_id_at", "u4"),
        ("topic_id_size", "i4"),
        ("records_at", "u4"),
        ("records_size", "i4"),
        ("partition", "i4"),
        ("api_key", "i2"),
    ]
)
DTYPE = np.dtype([*HEAD.descr, *RECORD_SET_COLUMNS.descr])


def find_record_sets(requests: FrameTable, responses: FrameTable, *, limits: Limits) -> np.ndarray:
    """Return a row for each partition with records, in the order of the messages.

    requests, responses: tables of kafka.requests and kafka.responses. Responses without a request
    have none.
    """
    assert responses.format is not None
    responses = replace(responses, format=replace(responses.format, requests=None))
    produced = _open(requests, ("produce_request", "topic_data", "partition_data"), limits)
    fetched = _open(responses, ("fetch_response", "responses", "partitions"), limits)
    return join_rows(
        [
            _make_rows("Produce", produced, "name", "index"),
            _make_rows("Fetch", fetched, "topic", "partition_index"),
        ]
    )


def _open(messages: FrameTable, names: tuple[str, ...], limits: Limits) -> list[FrameTable]:
    """Return messages, their bodies, the topics in them and the partitions in these."""
    tables = [messages]
    for name in names:
        tables.append(tables[-1].open(name, errors="mark", limits=limits))
    return tables


def _make_rows(api: str, tables: list[FrameTable], topic: str, partition: str) -> np.ndarray:
    """Return the rows of the partitions that have records.

    tables: as `_open` returns them. topic, partition: the names of their columns.
    """
    messages, bodies, topics, partitions = tables
    chosen = np.flatnonzero(partitions.bad | (partitions["records_size"] > 0))
    topic_rows = partitions["parent"][chosen]
    message_rows = bodies["parent"][topics["parent"][topic_rows]]
    rows = np.zeros(len(chosen), DTYPE)
    for name in ("start", "size", "parent", "buffer"):
        rows[name] = messages.rows[name][message_rows]
    rows["fault"] = partitions["fault"][chosen]
    rows["partition"] = partitions[partition][chosen]
    rows["api_key"] = get_api_key(api)
    _copy_place(rows, "records", partitions, chosen, "records")
    _copy_place(rows, "topic", topics, topic_rows, topic)
    _copy_place(rows, "topic_id", topics, topic_rows, "topic_id")
    reported = message_rows[rows["fault"] != 0]
    bad_rows = _make_bad_rows(messages, bodies, topics, reported)
    bad_rows["api_key"] = get_api_key(api)
    return join_rows([rows, bad_rows]) if len(bad_rows) else rows


def _make_bad_rows(
    messages: FrameTable, bodies: FrameTable, topics: FrameTable, reported: np.ndarray
) -> np.ndarray:
    """Return rows for messages with bad bodies or topics, whose partitions may all be good.

    reported: the rows of the messages that have a bad row already.
    """
    body_rows = np.append(np.flatnonzero(bodies.bad), topics["parent"][topics.bad])
    faults = np.append(bodies["fault"][bodies.bad], topics["fault"][topics.bad])
    message_rows, first = np.unique(bodies["parent"][body_rows], return_index=True)
    is_new = ~np.isin(message_rows, reported)
    message_rows, first = message_rows[is_new], first[is_new]
    rows = np.zeros(len(message_rows), DTYPE)
    for name in ("start", "size", "parent", "buffer"):
        rows[name] = messages.rows[name][message_rows]
    rows["fault"] = faults[first]
    for name in ("records", "topic", "topic_id"):
        rows[name + "_size"] = -1
    return rows


def _copy_place(
    rows: np.ndarray, name: str, table: FrameTable, chosen: np.ndarray, column: str
) -> None:
    """Copy a place. In the rows, it is counted from the beginning of the message."""
    distance = table["start"][chosen] - rows["start"]
    sizes = table[column + "_size"][chosen]
    is_present = (sizes >= 0) & (rows["fault"] == 0)
    rows[name + "_at"] = np.where(is_present, table[column + "_at"][chosen] + distance, 0)
    rows[name + "_size"] = np.where(is_present, sizes, -1)
