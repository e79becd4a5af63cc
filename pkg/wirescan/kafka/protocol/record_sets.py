"""The record sets in Produce requests and Fetch responses: rows of kafka.record_sets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wirescan.core.loop import HEAD
from wirescan.core.row_arrays import join_rows, select_rows
from wirescan.frames.errors import raise_if_row_limit
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.kafka.protocol.body import LARGEST_STRUCT, RECORD_SET, RECORD_SET_PATH
from wirescan.kafka.protocol.body import find_record_sets as find_in_messages
from wirescan.kafka.protocol.compile import compile_programs
from wirescan.kafka.protocol.message import REQUEST, RESPONSE
from wirescan.kafka.protocol.schema import MESSAGE, Level, get_api_key

RECORD_SET_COLUMNS = np.dtype(RECORD_SET.descr[len(HEAD.descr) :])


@dataclass(frozen=True)
class _MessageLayout:
    """Where the record sets are in the messages of an API.

    api: the name of the API. side: "request" or "response". dtype: that of the messages.
    arrays: the names of the arrays of topics and of partitions. topic, partition: the names of the
    columns with the topic and with the number of the partition.
    """

    api: str
    side: str
    dtype: np.dtype
    arrays: tuple[str, str]
    topic: str
    partition: str

    @cached_property
    def programs(self) -> list[np.ndarray]:
        """The programs of the body, of the topics and of the partitions."""
        message = MESSAGE[self.api, self.side]
        return [compile_programs(message, level) for level in self.levels]

    @cached_property
    def levels(self) -> list[Level]:
        """The levels of the body, of the topics and of the partitions."""
        levels = [MESSAGE[self.api, self.side].level]
        for name in self.arrays:
            levels.append(next(array for array in levels[-1].arrays if array.name == name))
        return levels

    @cached_property
    def path(self) -> np.ndarray:
        """The levels for the kernel: an array of dtype RECORD_SET_PATH with one element."""
        assert max(level.dtype.itemsize for level in self.levels) <= LARGEST_STRUCT
        body, topics, partitions = (_find_positions(level.dtype) for level in self.levels)
        path = np.zeros(1, RECORD_SET_PATH)
        path["programs"] = [array.ctypes.data for array in self.programs]
        path["version_count"] = len(self.programs[0]) - 1
        path["api_version"] = _find_positions(self.dtype)["api_version"]
        path["arrays"] = [body[self.arrays[0] + "_at"], topics[self.arrays[1] + "_at"], -1]
        path["topic"] = topics[self.topic + "_at"]
        path["topic_id"] = topics["topic_id_at"]
        path["partition"] = partitions[self.partition]
        path["records"] = partitions["records_at"]
        path["api_key"] = get_api_key(self.api)
        return path


def _find_positions(dtype: np.dtype) -> dict[str, int]:
    """Return the position of each column in a row, in bytes."""
    assert dtype.fields is not None  # the dtype is structured
    return {name: field[1] for name, field in dtype.fields.items()}


LAYOUTS = {
    "requests": _MessageLayout(
        "Produce", "request", REQUEST, ("topic_data", "partition_data"), "name", "index"
    ),
    "responses": _MessageLayout(
        "Fetch", "response", RESPONSE, ("responses", "partitions"), "topic", "partition_index"
    ),
}


def find_record_sets(requests: FrameTable, responses: FrameTable, *, limits: Limits) -> np.ndarray:
    """Return a row for each partition with records, in the order of the messages.

    A message that cannot be read to its end has a bad row after those that come before the fault.

    requests, responses: tables of kafka.requests and kafka.responses. Responses without a request
    have none.

    Raises FrameError(LIMIT) for more rows than `limits` allows.
    """
    return join_rows(
        [
            _find(requests, LAYOUTS["requests"], limits),
            _find(responses, LAYOUTS["responses"], limits),
        ]
    )


def _find(messages: FrameTable, layout: _MessageLayout, limits: Limits) -> np.ndarray:
    """Return the rows of the messages of one API."""
    chosen = np.flatnonzero(messages.rows["api_key"] == layout.path["api_key"])
    outer = select_rows(messages.rows, chosen)
    rows, _, fault = find_in_messages(outer, messages.buffers, layout.path, limits)
    if fault:
        format = format_of("kafka.record_sets")
        raise_if_row_limit(FrameTable(messages.buffers, rows, (), format, messages), fault)
    return rows
