"""Rows of a frame table as values for JSON, and as cells for people."""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from wirescan.catalog import FILE, START, Format, format_of
from wirescan.cli.output import encode, fault_name, shown, time_of
from wirescan.errors import pairs
from wirescan.kafka import ApiKey, Codec, ErrorCode
from wirescan.liftbridge.kind import AckError, AckPolicy
from wirescan.table import FrameTable, places
from wirescan.thrift.kind import Protocol, Role, Transform, Type

FAULT = "fault"
# What people are shown when they name no columns: what fits a line.
SHORT = {
    "kafka.batches": ("_start", "size", "base_offset", "last_offset", "record_count", "codec",
                      "max_timestamp"),
    "kafka.records": ("offset", "timestamp", "key", "value", "headers"),
    "kafka.headers": ("_start", "key", "value"),
    "kafka.requests": ("_start", "size", "correlation_id", "api_key", "api_version", "client_id"),
    "kafka.responses": ("_start", "size", "correlation_id"),
    "lumberjack.frames": ("_start", "size", "kind", "version", "sequence", "count"),
    "lumberjack.events": ("_start", "kind", "sequence", "json", "pairs"),
    "lumberjack.pairs": ("_start", "key", "value"),
    "nats.messages": ("_start", "kind", "subject", "reply", "headers", "payload"),
    "nats.headers": ("_start", "key", "value"),
    "liftbridge.envelopes": ("_start", "size", "kind", "version", "header_size", "flags"),
    "liftbridge.messages": ("_start", "kind", "stream", "subject", "offset", "key", "value", "headers"),
    "liftbridge.acks": ("_start", "stream", "offset", "commit_timestamp", "ack_policy", "ack_error", "correlation_id"),
    "liftbridge.internal": ("_start", "kind", "stream", "partition", "leader_epoch", "offset", "error"),
    "liftbridge.headers": ("_start", "key", "value"),
    "liftbridge.entries": ("offset", "timestamp", "leader_epoch", "key", "value", "headers"),
    "thrift.frames": ("_start", "size", "kind", "seq", "protocol_id", "transform_0", "infos"),
    "thrift.infos": ("_start", "kind", "key", "value"),
    "thrift.plain": ("_start", "kind", "payload"),
    "thrift.messages": ("_start", "kind", "seqid", "protocol", "service", "method", "arguments"),
    "thrift.fields": ("_start", "kind", "depth", "role", "id", "integer", "real", "count", "value"),
}
# Columns whose numbers have names.
NAMES = {
    "codec": Codec, "api_key": ApiKey, "error_code": ErrorCode, "ack_policy": AckPolicy, "ack_error": AckError,
    "protocol_id": Protocol, "protocol": Protocol, "role": Role, "key_type": Type, "element_type": Type,
    **dict.fromkeys(("transform_0", "transform_1", "transform_2", "transform_3"), Transform)}


def names_of(dtype: np.dtype) -> tuple[str, ...]:
    """The columns of rows, in their order."""
    return dtype.names or ()


def json_columns(format: Format) -> list[str]:
    """The columns of JSON, when none are named."""
    return [FILE, START, *format.columns]


def columns_of(format: Format) -> list[str]:
    """Every column that can be asked for: those, and all of the rows and of the frames that enclose them."""
    names = json_columns(format)
    outer: Format | None = format
    while outer is not None:
        names += [name for name in (*names_of(outer.dtype), *places(outer.dtype)) if name not in names]
        outer = format_of(outer.within) if outer.within else None
    return names


def text_columns(format: Format) -> list[str]:
    """The columns of text, when none are named."""
    return list(SHORT.get(format.name, json_columns(format)))


class Rows:
    """The rows of tables of one format as lists of values, in the order of `columns`.

    for_people: times as ISO 8601, codecs, APIs and error codes by name, bytes as printable text; else for JSON: times
    as milliseconds (null: none) or nanoseconds, numbers that JSON has not, such as infinity, as null, bytes as
    `encoding` says. errors: "skip" leaves out what is bad in a list.
    """
    def __init__(self, format: Format, columns: Sequence[str], encoding: str, for_people: bool, errors: str):
        self._format, self._columns, self._encoding, self._people = format, columns, encoding, for_people
        self._errors = errors

    def of(self, table: FrameTable, path: str) -> Iterator[tuple[Any, ...]]:
        """The rows of one table, in the file `path`."""
        return zip(*(self._column(table, name, path) for name in self._columns))

    def _column(self, table: FrameTable, name: str, path: str) -> Sequence[Any]:
        if name == FILE:
            return [path] * len(table)
        if name == START or name == "start" and table.outer is None:
            return table.positions.tolist()
        if name == FAULT:
            return [fault_name(number) if number else None for number in table[FAULT].tolist()]
        if name in self._format.lists:
            return self._list(table, name)
        at: Any = None
        while name not in names_of(table.dtype) and name not in table.places:
            at, table = table["parent"] if at is None else table["parent"][at], outer_of(table)
        if name in table.places:
            return self._places(table if at is None else table[at], name)
        rows, times = table[name] if at is None else table[name][at], name in table.format.times
        if times:
            return [None if value == -1 else time_of(value) if self._people else value
                    for value in rows.tolist()]
        if name in table.format.nanoseconds:
            return [None if value == 0 else time_of(value, "ns") if self._people else value for value in rows.tolist()]
        if name == "kind" and table.format.kinds:
            return [table.format.kinds.get(value) for value in rows.tolist()]
        if name.startswith("is_"):
            return (rows != 0).tolist()
        if name in NAMES and self._people:
            return [named(name, value) for value in rows.tolist()]
        if rows.dtype.kind == "f" and not self._people:
            return [value if math.isfinite(value) else None for value in rows.tolist()]
        return rows.tolist()

    def _places(self, table: FrameTable, name: str) -> list[Any]:
        if name not in table.format.numbers:
            return [self._bytes(view) for view in views(table, name)]
        return [None if view is None else np.frombuffer(view, table.format.numbers[name]).tolist()
                for view in views(table, name)]

    def _bytes(self, view: memoryview | None) -> Any:
        if view is None:
            return None
        return shown(view, self._encoding) if self._people else encode(view, self._encoding)

    def _list(self, table: FrameTable, name: str) -> list[Any]:
        lists: list[Any] = [[] for _ in range(len(table))]
        inner, rows = pairs(table, name)
        columns = [map(self._bytes, views(inner, place)) for place in inner.places]
        for row, fault, *values in zip(rows.tolist(), inner[FAULT].tolist(), *columns):
            if not fault:
                lists[row].append(dict(zip(inner.places, values)))
            elif self._errors != "skip":
                lists[row].append({FAULT: fault_name(fault)})
        return [_text(one) for one in lists] if self._people else lists


def outer_of(table: FrameTable) -> FrameTable:
    """The table that a table was opened from."""
    assert table.outer is not None
    return table.outer


def views(table: FrameTable, name: str) -> Iterator[memoryview | None]:
    """The place `name` in every row; None for null and in bad rows."""
    rows, buffers = table.rows, table.buffers
    start = rows["start"] + rows[name + "_at"]
    size = np.where(rows["fault"] != 0, -1, rows[name + "_size"])
    return (None if length < 0 else buffers[buffer][first:first + length]
            for buffer, first, length in zip(rows["buffer"].tolist(), start.tolist(), size.tolist()))


def named(column: str, number: int) -> str:
    """The name of a number in a column; one that has none as it is."""
    try:
        return NAMES[column](number).name.lower()
    except (KeyError, ValueError):
        return str(number)


def _text(pairs: list[dict[str, Any]]) -> str:
    return " ".join("=".join("null" if value is None else value for value in pair.values()) for pair in pairs)
