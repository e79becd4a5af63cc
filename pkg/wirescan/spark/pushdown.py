"""The data source's reader that takes filters from Spark: batches, byte ranges and files that cannot match are skipped.

Spark calls it only with spark.sql.python.filterPushdown.enabled, and fails a query without it: so the option `pushdown`
asks for it. Every filter is handed back, and Spark applies it again; one that cannot be told exactly is widened, or
left to Spark. Of topics fewer offsets are fetched: by topic, partition, offset and timestamp. Needs Spark 4.1.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
from pyspark.sql.datasource import (
    EqualNullSafe, EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, InputPartition, IsNotNull, IsNull, LessThan,
    LessThanOrEqual, Not, StringContains, StringEndsWith, StringStartsWith)

from wirescan import filters as own
from wirescan.catalog import Format, format_of
from wirescan.partition import groups
from wirescan.spark.reading import plainly
from wirescan.spark.source import WirescanReader
from wirescan.spark.topic import TopicReading
from wirescan.topic import ADDED, EARLIEST, Range

OPS = {EqualTo: "==", EqualNullSafe: "==", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<",
       LessThanOrEqual: "<=", In: "in", IsNull: "is_null", IsNotNull: "is_not_null", StringStartsWith: "starts_with",
       StringEndsWith: "ends_with", StringContains: "contains"}
NEGATED = {EqualTo: "!=", GreaterThan: "<=", GreaterThanOrEqual: "<", LessThan: ">=", LessThanOrEqual: ">",
           In: "not in", IsNull: "is_not_null", IsNotNull: "is_null"}
MICROSECOND = timedelta(microseconds=1)


class PushdownReader(WirescanReader):
    """A reader that skips what Spark's filters leave out; see the module's text."""
    _pushed: tuple[own.Filter, ...] = ()

    @plainly()
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters; all are handed back."""
        self._pushed = tuple(told(filters, format_of(self._reading.format), isinstance(self._reading, TopicReading)))
        if not isinstance(self._reading, TopicReading):
            self._reading = replace(self._reading, filters=(*self._reading.filters, *self._pushed))
        return filters

    @plainly()
    def partitions(self) -> list[InputPartition]:
        """One for each task, with the slices or ranges that may have wanted rows."""
        if not isinstance(self._reading, TopicReading):
            return super().partitions()
        size, numbers, start, stop, start_time, stop_time = self._plan
        bounds = {}
        if self._reading.errors != "mark":              # a bad row may have any number
            format = format_of(self._reading.format)
            bounds = own.ranges(format, format, (one for one in self._pushed if one.column not in ADDED))
        earliest, _ = bounds.get("timestamp", (None, None))
        if earliest is not None and earliest > 0 and start == EARLIEST:
            start_time = max(earliest, start_time or 0)
        topics = tuple(topic for topic in self._reading.topics if self._wants("topic", topic))
        tasks = replace(self._reading, topics=topics).plan(size, numbers, start, stop, start_time, stop_time)
        ranges = [clamped(one, *bounds.get("offset", (None, None))) for task in tasks for one in task
                  if self._wants("partition", one.partition)]
        return [InputPartition(parts) for parts in groups([one for one in ranges if len(one)], size)]

    def _wants(self, column: str, value: Any) -> bool:
        return all(own.condition(one)(value) for one in self._pushed if one.column == column)


def clamped(one: Range, low: int | None, high: int | None) -> Range:
    """The part of a range whose offsets lie from `low` to `high`; None: any."""
    start = one.start if low is None else min(max(one.start, low), one.stop)
    return replace(one, start=start, stop=one.stop if high is None else max(start, min(one.stop, high + 1)))


def told(filters: Iterable[Filter], format: Format, of_topic: bool = False) -> Iterator[own.Filter]:
    """Spark's filters in the terms of a format, as far as they can be told: all that pass Spark's pass these."""
    for one in filters:
        inner, names = (one.child, NEGATED) if isinstance(one, Not) else (one, OPS)
        if type(inner) not in names or len(inner.attribute) != 1:
            continue
        column, op, value = inner.attribute[0], names[type(inner)], getattr(inner, "value", None)
        if isinstance(inner, EqualNullSafe) and value is None:
            op = "is_null"
        if op == "in":
            value = [each for each in value if each is not None]
        if of_topic and column in ADDED:
            yield own.Filter(column, op, value)
            continue
        try:
            yield from own.checked(_widened(column, op, value, format), format)
        except (TypeError, ValueError, OverflowError):  # a value that rows are not compared with: Spark does it alone
            continue


def _widened(column: str, op: str, value: Any, format: Format) -> list[tuple[str, str, Any]]:
    """A filter on a column in Spark's types as filters on the rows, of which a row may pass more."""
    owner = format.owner(column)
    if owner is None or column not in owner.dtype.names:
        return [(column, op, value)]
    kind = owner.dtype[column]
    if kind.kind == "f":
        return []                                               # NaN has another order there
    rough = column in (*owner.times, *owner.nanoseconds) or kind == np.uint64
    if op == "is_null" and rough:
        return []                                               # numbers that Spark's types do not hold are null too
    if column not in owner.nanoseconds or op in ("is_not_null", ">=", "<"):
        return [(column, op, value)]
    # Nanoseconds are rounded down to microseconds.
    if op in ("==", "in"):
        values = value if op == "in" else [value]
        return [(column, ">=", min(values)), (column, "<", max(values) + MICROSECOND)] if values else [(column, op, ())]
    return [(column, {"<=": "<", ">": ">="}[op], value + MICROSECOND)] if op in ("<=", ">") else []
