"""The step before fetching: `resolve_ranges` turns the bounds of `kafka.fetch` into offset ranges.

A bound is an offset, "earliest", "latest" or a time. Brokers report the offsets of the last three.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping

from wirescan.kafka.client.cluster import Cluster, TopicPartition
from wirescan.kafka.client.effects import Operation
from wirescan.kafka.client.fetch_ranges import FetchRange
from wirescan.kafka.client.offsets import list_offsets

NO_RECORD = -1  # what ListOffsets returns where no record has that time or a later one
Bound = int | str | Mapping[int, int | str]


def resolve_ranges(
    cluster: Cluster,
    topic: str,
    *,
    partitions: Iterable[int] | None,
    start: Bound,
    stop: Bound,
    start_time: int | None,
    stop_time: int | None,
    isolation: str,
) -> Operation[list[FetchRange]]:
    """Return the offset ranges that the arguments of `kafka.fetch` name, one for each partition.

    Raises ValueError and TypeError for unfit arguments, and as `list_offsets`.
    """
    if start_time is not None and start != "earliest" or stop_time is not None and stop != "latest":
        raise ValueError("a range begins, and ends, at an offset or at a time, not at both")
    if isinstance(partitions, (str, bytes)):
        raise TypeError(f"partitions are numbers, not {type(partitions).__name__}")
    if partitions is None:
        numbers = sorted((yield from cluster.find_topic(topic)).partitions)
    else:
        numbers = sorted(set(map(operator.index, partitions)))
    _check_partitions(topic, numbers, start)
    _check_partitions(topic, numbers, stop)
    starts = {
        number: _get_bound(start, number, "earliest") if start_time is None else start_time
        for number in numbers
    }
    stops = {
        number: _get_bound(stop, number, "latest") if stop_time is None else stop_time
        for number in numbers
    }
    begins = yield from _look_up_offsets(
        cluster, topic, starts, isolation, are_times=start_time is not None
    )
    ends = yield from _look_up_offsets(
        cluster, topic, stops, isolation, are_times=stop_time is not None
    )
    if NO_RECORD in (*begins.values(), *ends.values()):
        # A time after the last record means the end of the partition.
        latest = yield from _look_up_offsets(
            cluster, topic, dict.fromkeys(numbers, "latest"), isolation
        )
        begins = _replace_missing(begins, latest)
        ends = _replace_missing(ends, latest)
    return [
        FetchRange(
            topic,
            number,
            begins[number],
            ends[number],
            # The log reaches every offset that a broker has reported.
            reaches_stop=isinstance(stops[number], str) or stop_time is not None,
        )
        for number in numbers
    ]


def _look_up_offsets(
    cluster: Cluster,
    topic: str,
    bounds: Mapping[int, int | str],
    isolation: str,
    *,
    are_times: bool = False,
) -> Operation[dict[int, int]]:
    """Return the offset of each partition's bound: an offset, a name, or a time if `are_times`.

    The offset is NO_RECORD where no record has that time or a later one.
    """
    times: dict[TopicPartition, int | str] = {
        (topic, number): bound
        for number, bound in bounds.items()
        if are_times or isinstance(bound, str)
    }
    offsets = dict(bounds)
    if times:
        listed_offsets = yield from list_offsets(cluster, times, isolation)
        offsets |= {number: listed.offset for (_, number), listed in listed_offsets.items()}
    return {number: int(offset) for number, offset in offsets.items()}


def _replace_missing(offsets: Mapping[int, int], latest: Mapping[int, int]) -> dict[int, int]:
    """Return the offset of each partition, the latest one in place of NO_RECORD."""
    return {
        number: latest[number] if offset == NO_RECORD else offset
        for number, offset in offsets.items()
    }


def _check_partitions(topic: str, numbers: list[int], bounds: Bound) -> None:
    """Raise ValueError for bounds of partitions that are not among `numbers`."""
    if isinstance(bounds, Mapping) and (others := bounds.keys() - set(numbers)):
        raise ValueError(
            f"bounds of partitions of {topic} that are not read: {', '.join(map(repr, others))}"
        )


def _get_bound(bounds: Bound, partition: int, default: str) -> int | str:
    """Return the bound of a partition. Raises ValueError for a bound that is none."""
    bound = bounds.get(partition, default) if isinstance(bounds, Mapping) else bounds
    if isinstance(bound, str) and bound not in ("earliest", "latest"):
        raise ValueError(
            f"a range begins or ends at an offset, or 'earliest' or 'latest', not at {bound!r}"
        )
    if not isinstance(bound, str) and (not hasattr(bound, "__index__") or bound < 0):
        raise ValueError(f"no offset of a log: {bound!r}")
    return bound
