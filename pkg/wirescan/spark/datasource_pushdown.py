"""The data source's reader for the option `pushdown`. It takes filters from Spark and reads less.

Batches, byte ranges and files that cannot match the filters are skipped. For topics fewer offsets
are fetched: the filters on topic, partition, offset and timestamp restrict them.

Spark calls this reader only with spark.sql.python.filterPushdown.enabled, and a query fails without
this setting. That is why `pushdown` is an option. Spark applies every filter again. A filter
without an exact equivalent is replaced by a wider one, or left to Spark. It needs Spark 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from wirescan.frames.columns import ColumnKind
from wirescan.frames.format import Format
from wirescan.frames.registry import format_of
from wirescan.kafka.client.topic_batches import ADDED
from wirescan.kafka.client.topic_ranges import EARLIEST, OffsetRange
from wirescan.reading import filters as row_filters
from wirescan.reading.splits import group_slices
from wirescan.spark.datasource_reader import WirescanReader
from wirescan.spark.kafka_topics import TopicPlan, TopicReading
from wirescan.spark.run import hide_traceback

# The operators of `wirescan.reading.filters` for Spark's filters, and for the same inside a Not.
OPS = {
    EqualTo: "==",
    EqualNullSafe: "==",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
    IsNull: "is_null",
    IsNotNull: "is_not_null",
    StringStartsWith: "starts_with",
    StringEndsWith: "ends_with",
    StringContains: "contains",
}
NEGATED = {
    EqualTo: "!=",
    GreaterThan: "<=",
    GreaterThanOrEqual: "<",
    LessThan: ">=",
    LessThanOrEqual: ">",
    In: "not in",
    IsNull: "is_not_null",
    IsNotNull: "is_null",
}
# Columns in nanoseconds: the operators that compare with the next microsecond.
ROUNDED = {"<=": "<", ">": ">="}
MICROSECOND = timedelta(microseconds=1)


class PushdownReader(WirescanReader):
    """A reader that skips what Spark's filters exclude. See the module's docstring."""

    _pushed: tuple[row_filters.Filter, ...] = ()

    @hide_traceback()
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Store the filters, and return all of them, because Spark must apply them again."""
        format = format_of(self._reading.format)
        is_topic = isinstance(self._reading, TopicReading)
        # Spark filters the decoded values.
        usable = [
            filter
            for filter in filters
            if _get_column(filter) not in self._reading.payloads.decoders
        ]
        self._pushed = tuple(translate_filters(usable, format, is_topic=is_topic))
        if not isinstance(self._reading, TopicReading):
            self._reading = replace(self._reading, filters=(*self._reading.filters, *self._pushed))
        return filters

    @hide_traceback()
    def partitions(self) -> list[InputPartition]:
        """Return one partition for each task, with slices or ranges that may have wanted rows."""
        if not isinstance(self._reading, TopicReading):
            return super().partitions()
        plan = TopicPlan(*self._plan)
        bounds: dict[str, tuple[int | None, int | None]] = {}
        if self._reading.errors != "mark":  # the columns of a bad row may have any number
            format = format_of(self._reading.format)
            own = [pushed for pushed in self._pushed if pushed.column not in ADDED]
            bounds = row_filters.find_column_ranges(format, format, own)
        earliest, _ = bounds.get("timestamp", (None, None))
        if earliest is not None and earliest > 0 and plan.start == EARLIEST:
            plan = plan._replace(start_time=max(earliest, plan.start_time or 0))
        topics = tuple(topic for topic in self._reading.topics if self._is_accepted("topic", topic))
        low, high = bounds.get("offset", (None, None))
        ranges = []
        for task in replace(self._reading, topics=topics).plan(*plan):
            for offsets in task:
                if self._is_accepted("partition", offsets.partition):
                    ranges.append(clamp_range(offsets, low, high))
        filled = [offsets for offsets in ranges if len(offsets)]
        return [InputPartition(parts) for parts in group_slices(filled, plan.size)]

    def _is_accepted(self, column: str, value: Any) -> bool:
        """Return whether a value passes all filters on its column."""
        return all(
            row_filters.make_condition(pushed)(value)
            for pushed in self._pushed
            if pushed.column == column
        )


def _get_column(filter: Filter) -> str | None:
    """Return the column of a filter; None for a member of a column."""
    inner = filter.child if isinstance(filter, Not) else filter
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 else None


def clamp_range(offsets: OffsetRange, low: int | None, high: int | None) -> OffsetRange:
    """Return the part of a range whose offsets are between `low` and `high`, both inclusive.

    low, high: None for no bound.
    """
    start = offsets.start if low is None else min(max(offsets.start, low), offsets.stop)
    stop = offsets.stop if high is None else max(start, min(offsets.stop, high + 1))
    return replace(offsets, start=start, stop=stop)


def translate_filters(
    filters: Iterable[Filter], format: Format, *, is_topic: bool = False
) -> Iterator[row_filters.Filter]:
    """Yield filters on a format's rows for Spark's filters. Untranslatable filters are omitted.

    All rows that pass Spark's filters pass these filters too.

    is_topic: there are the columns topic and partition too.
    """
    for outer in filters:
        inner = outer
        operators = OPS
        if isinstance(outer, Not):
            inner = outer.child
            operators = NEGATED
        if type(inner) not in operators or len(inner.attribute) != 1:
            continue
        column = inner.attribute[0]
        op = operators[type(inner)]
        value: Any = getattr(inner, "value", None)
        if isinstance(inner, EqualNullSafe) and value is None:
            op = "is_null"
        if op == "in":
            value = [element for element in value if element is not None]
        if is_topic and column in ADDED:
            yield row_filters.Filter(column, op, value)
            continue
        # If rows cannot be compared with the value, Spark alone applies the filter.
        with suppress(TypeError, ValueError, OverflowError):
            checked = row_filters.check_filters(_widen(column, op, value, format), format)
            yield from row_filters.list_plain_filters(checked)


def _widen(column: str, op: str, value: Any, format: Format) -> list[tuple[str, str, Any]]:
    """Return filters on the rows for a filter on a column in Spark's types.

    More rows may pass these filters. The list is empty if there is no equivalent.
    """
    described = format.describe_column(column)
    if described is None:
        return [(column, op, value)]
    if described.kind is ColumnKind.FLOAT:
        return []  # Spark orders NaN differently
    unit = described.declared.unit
    if op == "is_null" and (unit is not None or described.dtype == "u8"):
        return []  # numbers that do not fit Spark's types are null too
    if unit != "ns" or op in ("is_not_null", ">=", "<"):
        return [(column, op, value)]
    # Spark's values are nanoseconds rounded down to microseconds.
    if op in ("==", "in"):
        values = value if op == "in" else [value]
        if not values:
            return [(column, op, ())]
        return [(column, ">=", min(values)), (column, "<", max(values) + MICROSECOND)]
    if op in ROUNDED:
        return [(column, ROUNDED[op], value + MICROSECOND)]
    return []
