"""Topics of a live Kafka cluster: what is read is fixed once, on the driver, and each task fetches its own offsets."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from wirescan import topic
from wirescan.errors import check_mode
from wirescan.limits import Limits
from wirescan.partition import groups
from wirescan.spark.reading import BATCH_BYTES, over, plainly, struct_of
from wirescan.topic import EARLIEST, FORMAT, LATEST, Cluster, Range, Where, milliseconds

RECORDS = 1_000_000         # offsets in one task
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OPTIONS = ("bootstrap.servers", "topic", "format", "partitions", "start", "stop", "startTime", "stopTime",
           "isolation", "columns", "errors", "check", "pushdown", "recordsPerPartition", "security.protocol",
           "ssl.ca.location", "sasl.mechanism", "sasl.username", "sasl.password")


@dataclass(frozen=True)
class TopicReading:
    """Which topics to read, and how. Travels to the tasks. The fields are as of `read_topic`."""
    cluster: Cluster
    topics: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    errors: str = "strict"
    check: bool = True
    limits: Limits = field(default_factory=Limits)
    isolation: str = "read_uncommitted"

    def __post_init__(self) -> None:
        check_mode(self.errors, self.limits)
        self.schema

    @property
    def format(self) -> str:
        """The format of the records."""
        return FORMAT

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        return topic.schema(self.columns)

    @property
    def struct(self) -> StructType:
        """The same as Spark's schema."""
        return struct_of(self.schema)

    def plan(self, size: int, partitions: Collection[int] | None = None, start: Where = EARLIEST,
             stop: Where = LATEST, start_time: int | None = None, stop_time: int | None = None) -> list[list[Range]]:
        """What the tasks read: for each about `size` offsets, of one partition or of several small ones.

        Raises ValueError where offsets that were asked for are gone, BrokerError, OSError."""
        with self.cluster.client(self.limits) as client:
            asked = topic.ranges(client, self.topics, partitions, start=start, stop=stop, start_time=start_time,
                                 stop_time=stop_time, isolation=self.isolation)
            found = topic.there(client, asked, self.isolation)
        for one in found:
            if one.gone:
                raise ValueError(f"{one.name}: offsets {one.start - one.gone} to {one.start - 1} are gone")
        return groups(topic.cut(found, size), size)

    def batches(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """The records of some ranges, in batches of some megabytes. Raises FrameError as `errors` says, BrokerError,
        OSError."""
        with plainly(), self.cluster.client(self.limits) as client:
            for one in ranges:
                for part in client.fetch(one.topic, partitions=[one.partition], start=one.start, stop=one.stop,
                                         isolation=self.isolation, errors=self.errors, check=self.check):
                    yield from topic.to_batches(part, self.columns, batch_bytes=BATCH_BYTES, errors=self.errors,
                                                limits=self.limits)


def read_topic(spark: SparkSession, bootstrap: str, topic: str | Sequence[str], columns: Sequence[str] | None = None, *,
               partitions: Collection[int] | None = None, start: Where = EARLIEST, stop: Where = LATEST,
               start_time: int | datetime | None = None, stop_time: int | datetime | None = None,
               isolation: str = "read_uncommitted", errors: str = "strict", check: bool = True,
               records_per_partition: int = RECORDS, limits: Limits = Limits(), tls: bool | str = False,
               sasl: tuple[str, str, str] | None = None) -> DataFrame:
    """The records of topics in a live cluster as a DataFrame: those that are there when this is called.

    bootstrap: host:port, several by commas, which driver and executors reach. topic: one name or several. columns:
    names in the wanted order, of topic, partition and the columns of kafka.records; these are all there unless given.
    partitions: their numbers, in all topics; None for all. start, stop: an offset, "earliest" or "latest"; stop is not
    in it. start_time, stop_time: instead, milliseconds since 1970 or a datetime: from the first record of that time or
    later. isolation: "read_committed" leaves out aborted transactions, and ends before the first open one. errors,
    check, limits: as of `wirescan.spark.read`. records_per_partition: offsets in one task; compaction may have left
    fewer records. tls: True, or the file of the authorities to trust (PEM). sasl: mechanism, user, password.

    Raises ValueError for unfit arguments and where offsets asked for are gone, `kafka.BrokerError`, OSError.
    """
    reading = TopicReading(Cluster(bootstrap, tls, sasl), (topic,) if isinstance(topic, str) else tuple(topic),
                           None if columns is None else tuple(columns), errors, check, limits, isolation)
    tasks = reading.plan(records_per_partition, partitions, start, stop, milliseconds(start_time),
                         milliseconds(stop_time))
    return over(spark, tasks, reading.batches, reading.struct)


def is_topic(options: Mapping[str, str]) -> bool:
    """Whether the options of the data source are those of topics, not of files."""
    return "bootstrap.servers" in plain(options)


def plain(options: Mapping[str, str]) -> dict[str, str]:
    """Options by their names in small letters, without the `kafka.` that Spark's own source has before some."""
    return {name.lower().removeprefix("kafka."): value for name, value in options.items()}


def reading_of(options: Mapping[str, str]) -> TopicReading:
    """The options of the data source as a `TopicReading`. Raises ValueError for an unknown name or an unfit value."""
    given = plain(options)
    for name in given:
        if name not in map(str.lower, OPTIONS):
            raise ValueError(f"the data source wirescan has no option {name!r} for topics, only {', '.join(OPTIONS)}")
    if given.get("format", FORMAT) != FORMAT:
        raise ValueError(f"topics are read as {FORMAT}, not as {given['format']}")
    topics = names(given.get("topic", ""))
    if not topics:
        raise ValueError("option topic names one or several, with commas between them")
    columns = given.get("columns")
    return TopicReading(cluster_of(given), topics, None if columns is None else names(columns),
                        given.get("errors", "strict"), flag(given, "check", True),
                        isolation=given.get("isolation", "read_uncommitted"))


def plan_of(options: Mapping[str, str]) -> tuple[Any, ...]:
    """The arguments of `TopicReading.plan` in the options. Raises ValueError for unfit ones."""
    given = plain(options)
    size, partitions = given.get("recordsperpartition", str(RECORDS)), given.get("partitions")
    if not is_number(size) or int(size) < 1:
        raise ValueError(f"option recordsPerPartition must be a number, not {size!r}")
    if partitions is not None and not (names(partitions) and all(map(is_number, names(partitions)))):
        raise ValueError(f"option partitions must be numbers with commas between them, not {partitions!r}")
    offsets = {name: given.get(name, default) for name, default in (("start", EARLIEST), ("stop", LATEST))}
    for name, text in offsets.items():
        if text not in (EARLIEST, LATEST) and not is_number(text):
            raise ValueError(f"option {name} must be an offset, {EARLIEST} or {LATEST}, not {text!r}")
    times = []
    for name in ("startTime", "stopTime"):
        text = given.get(name.lower())
        try:
            times.append(None if text is None else int(text) if text.isdecimal() else milliseconds(text))
        except ValueError:
            raise ValueError(f"option {name} must be milliseconds since 1970 or ISO 8601, not {text!r}") from None
    return (int(size), None if partitions is None else [int(name) for name in names(partitions)],
            *(int(text) if is_number(text) else text for text in offsets.values()), *times)


def cluster_of(given: Mapping[str, str]) -> Cluster:
    """The cluster that options name. Raises ValueError for a protocol that does not fit the rest."""
    protocol, authorities = given.get("security.protocol", "PLAINTEXT").upper(), given.get("ssl.ca.location")
    login = tuple(given.get(name, "") for name in ("sasl.mechanism", "sasl.username", "sasl.password"))
    if protocol not in PROTOCOLS:
        raise ValueError(f"option security.protocol is one of {', '.join(PROTOCOLS)}, not {protocol!r}")
    if ("SASL" in protocol) != any(login) or authorities and "SSL" not in protocol:
        raise ValueError(f"options sasl... and ssl... do not fit security.protocol {protocol}")
    return Cluster(given["bootstrap.servers"], (authorities or True) if "SSL" in protocol else False,
                   login if "SASL" in protocol else None)


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def is_number(text: str) -> bool:
    """Whether a text is a number that may fit 64 bits."""
    return text.isdecimal() and len(text) < 20


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    """An option that is true or false. Raises ValueError for anything else."""
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ValueError(f"option {name} must be true or false, not {text!r}")
    return text == "true"
