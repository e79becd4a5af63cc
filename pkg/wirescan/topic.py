"""Ranges of Kafka topics: fixed once, cut for the tasks of a parallel job, and their records as Arrow; imports pyarrow.

A range ends at two offsets, so every record is in exactly one of those that cover a partition, whatever compaction and
transactions left out between. Its records are those of kafka.records in Spark's types, with two columns more:

    topic      string        partition  int32
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

import pyarrow as pa

from wirescan import arrow
from wirescan.kafka.client import Client, Part
from wirescan.limits import Limits

FORMAT = "kafka.records"
ADDED = {"topic": pa.string(), "partition": pa.int32()}
COLUMNS = [*ADDED, *arrow.columns_of(FORMAT)]
EARLIEST, LATEST = "earliest", "latest"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
Where = int | str


@dataclass(frozen=True)
class Cluster:
    """How to reach a cluster: what a task needs to connect by itself. The fields are as of `kafka.Client`; tls is
    False, True or a path."""
    bootstrap: str
    tls: bool | str = False
    sasl: tuple[str, str, str] | None = field(default=None, repr=False)

    def client(self, limits: Limits = Limits()) -> Client:
        """A client of it. Raises ValueError and OSError as `kafka.Client`."""
        return Client(self.bootstrap, tls=self.tls, sasl=self.sasl, limits=limits)


@dataclass(frozen=True)
class Range:
    """The offsets of a partition from `start` up to `stop`, which is not in it. Its length is no count of records.

    gone: how many that were asked for lie before the log's start by now. ahead: how far the start that was asked for
    lies behind the log's end. Raises ValueError for offsets that no log has, or where stop lies before start.
    """
    topic: str
    partition: int
    start: int
    stop: int
    gone: int = 0
    ahead: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop < 1 << 63:
            raise ValueError(f"no offsets of a log: {self.start} to {self.stop}")

    @property
    def name(self) -> str:
        """As Kafka names the directory of a partition."""
        return f"{self.topic}-{self.partition}"

    def __len__(self) -> int:
        return self.stop - self.start


def ranges(client: Client, topics: Iterable[str], partitions: Collection[int] | None = None, *,
           start: Where = EARLIEST, stop: Where = LATEST, start_time: int | None = None, stop_time: int | None = None,
           isolation: str = "read_uncommitted") -> list[Range]:
    """The ranges that are asked for, one for each partition of the topics. Arguments and exceptions are those of
    `kafka.fetch`."""
    numbers = None if partitions is None else sorted(set(partitions))
    return [Range(one.topic, one.partition, begin, max(begin, one.stop))
            for topic in dict.fromkeys(topics)
            for one in client.fetch(topic, partitions=numbers, start=start, stop=stop, start_time=start_time,
                                    stop_time=stop_time, isolation=isolation).ranges
            for begin in [max(one.start, 0)]]          # a broker may lie


def there(client: Client, asked: Iterable[Range], isolation: str = "read_uncommitted") -> list[Range]:
    """What there is of some ranges: from the log's start to its end, which is that of what is stable with isolation
    "read_committed". Raises BrokerError, OSError."""
    every = {(one.topic, one.partition): one for one in asked}
    first, last = (client.list_offsets(dict.fromkeys(every, when), isolation) for when in (EARLIEST, LATEST))
    out = []
    for key, one in every.items():
        begin = max(one.start, first[key].offset)
        stop = max(begin, min(one.stop, last[key].offset))
        out.append(replace(one, start=begin, stop=stop, gone=max(0, min(begin, one.stop) - one.start),
                           ahead=max(0, one.start - last[key].offset)))
    return out


def cut(parts: Iterable[Range], size: int) -> list[Range]:
    """The same offsets in ranges of at most `size`, as even as can be; without those that are empty.

    Raises ValueError for a size below 1.
    """
    if size < 1:
        raise ValueError(f"a range has at least 1 offset, not {size}")
    out = []
    for one in parts:
        count = -(-len(one) // size)
        borders = [one.start + len(one) * i // count for i in range(count + 1)] if count else []
        out += [replace(one, start=begin, stop=end) for begin, end in zip(borders, borders[1:])]
    return out


def schema(columns: Sequence[str] | None = None) -> pa.Schema:
    """The Arrow schema of COLUMNS, or of some of them, or of others of kafka.records. Raises ValueError for others."""
    names = COLUMNS if columns is None else list(columns)
    own = arrow.schema(FORMAT, [name for name in names if name not in ADDED], types="spark")
    return pa.schema([pa.field(name, ADDED[name]) if name in ADDED else own.field(name) for name in names])


def to_batches(part: Part, columns: Sequence[str] | None = None, *, batch_bytes: int = arrow.BATCH_BYTES,
               errors: str = "strict", limits: Limits = Limits()) -> Iterator[pa.RecordBatch]:
    """What `kafka.fetch` yields, as record batches of about `batch_bytes` of records. Raises as `arrow.to_batch`."""
    wanted = schema(columns)
    own = [name for name in wanted.names if name not in ADDED]
    values = {"topic": part.topic, "partition": part.partition}
    for table in arrow.split(part.records, batch_bytes):
        batch = arrow.to_batch(table, own, types="spark", errors=errors, limits=limits)
        if own == wanted.names:
            yield batch                         # also where there is no column, but as many rows
            continue
        yield pa.RecordBatch.from_arrays(
            [pa.repeat(pa.scalar(values[name], kind), len(table)) if (kind := ADDED.get(name)) else batch.column(name)
             for name in wanted.names], schema=wanted)


def milliseconds(time: int | str | datetime | None) -> int | None:
    """A time, or ISO 8601, as milliseconds since 1970; UTC where it says no zone. Raises ValueError for other text."""
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    if isinstance(time, datetime):
        time = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
        return (time - EPOCH) // timedelta(milliseconds=1)
    return time
