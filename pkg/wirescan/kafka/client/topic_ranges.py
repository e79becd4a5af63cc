"""Offset ranges of Kafka topics: fixed once, then cut for the tasks of a parallel job.

`wirescan.kafka.client.topic_batches` makes Arrow record batches of their records. The command
`fetch` and the Spark data source use both modules.

A range has a start offset and a stop offset. If ranges cover a partition, every record is in
exactly one of them, whatever offsets compaction and transactions left unused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from wirescan.frames.limits import Limits
from wirescan.frames.logs import OFFSET_END
from wirescan.kafka.client import Client

EARLIEST = "earliest"
LATEST = "latest"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
OffsetBound = int | str


@dataclass(frozen=True)
class ClusterAddress:
    """The address of a cluster and the login: all that a task needs to connect by itself.

    The fields are as of `kafka.Client`. `tls` is False, True or a path.
    """

    bootstrap: str
    tls: bool | str = False
    sasl: tuple[str, str, str] | None = field(default=None, repr=False)

    def make_client(self, limits: Limits = Limits()) -> Client:
        """Return a client of the cluster. Raises ValueError and OSError as `kafka.Client`."""
        return Client(self.bootstrap, tls=self.tls, sasl=self.sasl, limits=limits)


@dataclass(frozen=True)
class OffsetRange:
    """The offsets of a partition from `start` to `stop`, exclusive, as a plan has them.

    It is checked, may be cut for tasks, and says what of it the log does not have.
    `fetch_ranges.FetchRange` is what a fetch reads, as brokers reported it.

    deleted: how many offsets that were asked for are before the start of the log by now.
    ahead: how far the start that was asked for is after the end of the log.

    A length is a number of offsets, not of records. Raises ValueError for offsets that no log can
    have, or where `stop` is below `start`.
    """

    topic: str
    partition: int
    start: int
    stop: int
    deleted: int = 0
    ahead: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop < OFFSET_END:
            raise ValueError(f"no offsets of a log: {self.start} to {self.stop}")

    @property
    def name(self) -> str:
        """The partition's name, in the form of Kafka's directory names."""
        return f"{self.topic}-{self.partition}"

    def __len__(self) -> int:
        return self.stop - self.start


def plan_ranges(
    client: Client,
    topics: Iterable[str],
    partitions: Collection[int] | None = None,
    *,
    start: OffsetBound = EARLIEST,
    stop: OffsetBound = LATEST,
    start_time: int | None = None,
    stop_time: int | None = None,
    isolation: str = "read_uncommitted",
) -> list[OffsetRange]:
    """Return the ranges that the arguments name, one for each partition of the topics.

    The arguments and exceptions are those of `kafka.fetch`.
    """
    numbers = None if partitions is None else sorted(set(partitions))
    result = []
    for topic in dict.fromkeys(topics):
        parts = client.fetch(
            topic,
            partitions=numbers,
            start=start,
            stop=stop,
            start_time=start_time,
            stop_time=stop_time,
            isolation=isolation,
        )
        for fetch_range in parts.ranges:
            # Offsets that a broker reports may be wrong, so they are made valid here.
            begin = max(fetch_range.start, 0)
            end = max(begin, fetch_range.stop)
            result.append(OffsetRange(fetch_range.topic, fetch_range.partition, begin, end))
    return result


def clip_ranges(
    client: Client, ranges: Iterable[OffsetRange], isolation: str = "read_uncommitted"
) -> list[OffsetRange]:
    """Return ranges without the offsets before the start of their log and after its end.

    ranges: the ranges, at most one for each partition.
    isolation: with "read_committed", the log ends at its last stable offset.

    Raises BrokerError and OSError.
    """
    by_partition = {(offsets.topic, offsets.partition): offsets for offsets in ranges}
    first = client.list_offsets(dict.fromkeys(by_partition, EARLIEST), isolation)
    last = client.list_offsets(dict.fromkeys(by_partition, LATEST), isolation)
    result = []
    for key, offsets in by_partition.items():
        begin = max(offsets.start, first[key].offset)
        stop = max(begin, min(offsets.stop, last[key].offset))
        result.append(
            replace(
                offsets,
                start=begin,
                stop=stop,
                deleted=max(0, min(begin, offsets.stop) - offsets.start),
                ahead=max(0, offsets.start - last[key].offset),
            )
        )
    return result


def split_ranges(parts: Iterable[OffsetRange], size: int) -> list[OffsetRange]:
    """Return the same offsets in ranges of at most `size` offsets, without empty ranges.

    The ranges of a partition are as even as possible. Raises ValueError for a size below 1.
    """
    if size < 1:
        raise ValueError(f"a range has at least 1 offset, not {size}")
    result = []
    for part in parts:
        count = -(-len(part) // size)
        if not count:
            continue
        borders = [part.start + len(part) * i // count for i in range(count + 1)]
        for begin, end in zip(borders, borders[1:]):
            result.append(replace(part, start=begin, stop=end))
    return result


def to_milliseconds(time: int | str | datetime | None) -> int | None:
    """Return a time as milliseconds since 1970.

    time: milliseconds, a datetime, or ISO 8601 text; None and integers are returned unchanged. A
    time without a zone is UTC. Raises ValueError for any other text.
    """
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    if isinstance(time, datetime):
        time = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
        return (time - EPOCH) // timedelta(milliseconds=1)
    return time
