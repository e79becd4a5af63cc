"""Topics of a live Kafka cluster: `wirescan.spark.read_topic`, and the data source's topic options.

The driver determines once which offsets are read. Each task fetches its own offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from wirescan.decoding.decoder import Decoder
from wirescan.decoding.payload_columns import PayloadColumns
from wirescan.frames.errors import check_mode
from wirescan.frames.limits import Limits
from wirescan.kafka.client import topic_batches, topic_ranges
from wirescan.kafka.client.topic_batches import FORMAT
from wirescan.kafka.client.topic_ranges import (
    EARLIEST,
    LATEST,
    ClusterAddress,
    OffsetBound,
    OffsetRange,
    to_milliseconds,
)
from wirescan.reading.splits import group_slices
from wirescan.spark.payload_types import DECODE, make_payloads, parse_payloads
from wirescan.spark.run import BATCH_BYTES, hide_traceback, make_struct, run_tasks

RECORDS = 1_000_000  # offsets in one task
LONGEST_NUMBER = 19  # digits; longer numbers do not fit 64 bits
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OPTIONS = (
    "bootstrap.servers",
    "topic",
    "format",
    "partitions",
    "start",
    "stop",
    "startTime",
    "stopTime",
    "isolation",
    "columns",
    "errors",
    "check",
    "pushdown",
    "recordsPerPartition",
    "security.protocol",
    "ssl.ca.location",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
)


class TopicPlan(NamedTuple):
    """The arguments of `TopicReading.plan`."""

    size: int
    partitions: Collection[int] | None = None
    start: OffsetBound = EARLIEST
    stop: OffsetBound = LATEST
    start_time: int | None = None
    stop_time: int | None = None


@dataclass(frozen=True)
class TopicReading:
    """Which topics to read, and how. Spark sends it to the tasks.

    The fields are the arguments of `read_topic`. Raises ValueError for an unknown mode or column,
    and for payloads whose type is not known.
    """

    cluster: ClusterAddress
    topics: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    errors: str = "strict"
    check: bool = True
    limits: Limits = field(default_factory=Limits)
    isolation: str = "read_uncommitted"
    payloads: PayloadColumns = field(default_factory=lambda: PayloadColumns({}), compare=False)

    def __post_init__(self) -> None:
        check_mode(self.errors, self.limits)
        # Raises ValueError for an unknown column.
        self.payloads.check(topic_batches.make_schema(self.columns))
        if not self.payloads.is_fitted:
            raise ValueError(
                "the types of the payloads of topics cannot be inferred: give a schema, such as "
                "json:FILE"
            )

    @property
    def format(self) -> str:
        """Return the format of the records."""
        return FORMAT

    @property
    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the batches."""
        return self.payloads.make_schema(topic_batches.make_schema(self.columns))

    @property
    def struct(self) -> StructType:
        """Return the schema of the batches as a Spark schema."""
        return make_struct(self.schema)

    def plan(
        self,
        size: int,
        partitions: Collection[int] | None = None,
        start: OffsetBound = EARLIEST,
        stop: OffsetBound = LATEST,
        start_time: int | None = None,
        stop_time: int | None = None,
    ) -> list[list[OffsetRange]]:
        """Return the ranges of each task: of one partition, or of several small ones.

        size: offsets in one task, approximately.
        partitions, start, stop, start_time, stop_time: as in `read_topic`. Times are milliseconds
            since 1970.

        Raises ValueError if offsets are not in the log any more, BrokerError and OSError.
        """
        with self.cluster.make_client(self.limits) as client:
            planned = topic_ranges.plan_ranges(
                client,
                self.topics,
                partitions,
                start=start,
                stop=stop,
                start_time=start_time,
                stop_time=stop_time,
                isolation=self.isolation,
            )
            clipped = topic_ranges.clip_ranges(client, planned, self.isolation)
        for offsets in clipped:
            if offsets.deleted:
                first = offsets.start - offsets.deleted
                raise ValueError(f"{offsets.name}: offsets {first} to {offsets.start - 1} are gone")
        return group_slices(topic_ranges.split_ranges(clipped, size), size)

    def read_batches(self, ranges: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
        """Yield the records of ranges in record batches of some megabytes.

        Raises FrameError as `errors` says, BrokerError and OSError.
        """
        with hide_traceback(), self.cluster.make_client(self.limits) as client:
            for offsets in ranges:
                for part in client.fetch(
                    offsets.topic,
                    partitions=[offsets.partition],
                    start=offsets.start,
                    stop=offsets.stop,
                    isolation=self.isolation,
                    errors=self.errors,
                    check=self.check,
                ):
                    batches = topic_batches.to_batches(
                        part,
                        self.columns,
                        batch_bytes=BATCH_BYTES,
                        errors=self.errors,
                        limits=self.limits,
                    )
                    yield from map(self.payloads.decode, batches)


def read_topic(
    spark: SparkSession,
    bootstrap: str,
    topic: str | Sequence[str],
    columns: Sequence[str] | None = None,
    *,
    partitions: Collection[int] | None = None,
    start: OffsetBound = EARLIEST,
    stop: OffsetBound = LATEST,
    start_time: int | datetime | None = None,
    stop_time: int | datetime | None = None,
    isolation: str = "read_uncommitted",
    errors: str = "strict",
    check: bool = True,
    records_per_partition: int = RECORDS,
    limits: Limits = Limits(),
    tls: bool | str = False,
    sasl: tuple[str, str, str] | None = None,
    decode: Mapping[str, str | Decoder] | None = None,
) -> DataFrame:
    """Return the records of topics in a live cluster as a DataFrame, one row for each record.

    It has the records that are in the topics at the time of this call.

    spark: the session.
    bootstrap: host:port, or several separated by commas. The driver and every executor must be able
        to connect to them.
    topic: one name or several.
    columns: names in the order of the result: topic, partition and columns of kafka.records. None
        is all of them.
    partitions: partition numbers, in all topics. None is all partitions.
    start, stop: an offset, "earliest" or "latest". `stop` is exclusive.
    start_time, stop_time: used instead of `start` and `stop`: milliseconds since 1970, or a
        datetime. The offset is that of the first record of this time or later.
    isolation: "read_uncommitted" or "read_committed". The latter discards aborted transactions and
        ends before the first open transaction.
    errors, check, limits: the arguments of `wirescan.spark.read`.
    records_per_partition: offsets in one task. After compaction a task has fewer records.
    tls: False, True, or the path of a PEM file with the trusted authorities.
    sasl: mechanism, user and password.
    decode: the argument of `wirescan.spark.read`. No type is inferred.

    Raises ValueError for arguments that are not allowed and for offsets that are not in the log any
    more, `kafka.BrokerError` and OSError.
    """
    reading = TopicReading(
        ClusterAddress(bootstrap, tls, sasl),
        (topic,) if isinstance(topic, str) else tuple(topic),
        None if columns is None else tuple(columns),
        errors,
        check,
        limits,
        isolation,
        make_payloads(decode),
    )
    tasks = reading.plan(
        records_per_partition,
        partitions,
        start,
        stop,
        to_milliseconds(start_time),
        to_milliseconds(stop_time),
    )
    return run_tasks(spark, tasks, reading.read_batches, reading.struct)


def is_topic(options: Mapping[str, str]) -> bool:
    """Return whether options of the data source are those of topics, not of files."""
    return "bootstrap.servers" in normalize_names(options)


def normalize_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with lowercase names, without the prefix `kafka.`.

    Some options of Spark's own Kafka data source have that prefix.
    """
    return {name.lower().removeprefix("kafka."): value for name, value in options.items()}


def parse_reading(options: Mapping[str, str]) -> TopicReading:
    """Return the options of the data source as a `TopicReading`.

    Raises ValueError for an unknown name, and for a value that is not allowed.
    """
    normalized = normalize_names(options)
    for name in normalized:
        if name not in map(str.lower, OPTIONS) and not name.startswith(DECODE):
            raise ValueError(
                f"the data source wirescan has no option {name!r} for topics, only "
                f"{', '.join(OPTIONS)} and {DECODE}COLUMN"
            )
    if normalized.get("format", FORMAT) != FORMAT:
        raise ValueError(f"topics are read as {FORMAT}, not as {normalized['format']}")
    topics = split_names(normalized.get("topic", ""))
    if not topics:
        raise ValueError("option topic must be one name or several, separated by commas")
    columns = normalized.get("columns")
    return TopicReading(
        parse_cluster(normalized),
        topics,
        None if columns is None else split_names(columns),
        normalized.get("errors", "strict"),
        parse_flag(normalized, "check", default=True),
        isolation=normalized.get("isolation", "read_uncommitted"),
        payloads=parse_payloads(normalized),
    )


def parse_plan(options: Mapping[str, str]) -> TopicPlan:
    """Return the arguments of `TopicReading.plan` in the options.

    Raises ValueError for a value that is not allowed.
    """
    normalized = normalize_names(options)
    size = normalized.get("recordsperpartition", str(RECORDS))
    if not is_number(size) or int(size) < 1:
        raise ValueError(f"option recordsPerPartition must be a number, not {size!r}")
    return TopicPlan(
        int(size),
        _parse_partitions(normalized.get("partitions")),
        _parse_offset(normalized, "start", EARLIEST),
        _parse_offset(normalized, "stop", LATEST),
        _parse_time(normalized, "startTime"),
        _parse_time(normalized, "stopTime"),
    )


def _parse_partitions(text: str | None) -> list[int] | None:
    """Return the numbers in the option `partitions`, or None if it is not given."""
    if text is None:
        return None
    numbers = split_names(text)
    if not numbers or not all(map(is_number, numbers)):
        raise ValueError(f"option partitions must be numbers separated by commas, not {text!r}")
    return [int(number) for number in numbers]


def _parse_offset(options: Mapping[str, str], name: str, default: str) -> OffsetBound:
    """Return the offset in an option, or EARLIEST or LATEST."""
    text = options.get(name, default)
    if is_number(text):
        return int(text)
    if text not in (EARLIEST, LATEST):
        raise ValueError(f"option {name} must be an offset, {EARLIEST} or {LATEST}, not {text!r}")
    return text


def _parse_time(options: Mapping[str, str], name: str) -> int | None:
    """Return the time in an option as milliseconds since 1970, or None if it is not given."""
    text = options.get(name.lower())
    if text is None:
        return None
    try:
        return int(text) if text.isdecimal() else to_milliseconds(text)
    except ValueError:
        raise ValueError(
            f"option {name} must be milliseconds since 1970 or ISO 8601, not {text!r}"
        ) from None


def parse_cluster(options: Mapping[str, str]) -> ClusterAddress:
    """Return the cluster that options name.

    options: options as `normalize_names` returns them.

    Raises ValueError if `security.protocol` is unknown or does not fit the other options.
    """
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    authorities = options.get("ssl.ca.location")
    login = (
        options.get("sasl.mechanism", ""),
        options.get("sasl.username", ""),
        options.get("sasl.password", ""),
    )
    if protocol not in PROTOCOLS:
        raise ValueError(
            f"option security.protocol is one of {', '.join(PROTOCOLS)}, not {protocol!r}"
        )
    uses_sasl = "SASL" in protocol
    uses_tls = "SSL" in protocol
    if uses_sasl != any(login) or (authorities and not uses_tls):
        raise ValueError(f"options sasl... and ssl... do not fit security.protocol {protocol}")
    return ClusterAddress(
        options["bootstrap.servers"],
        uses_tls and (authorities or True),
        login if uses_sasl else None,
    )


def split_names(text: str) -> tuple[str, ...]:
    """Return the names in a text that separates them by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def is_number(text: str) -> bool:
    """Return whether a text is a decimal number short enough to fit 64 bits."""
    return text.isdecimal() and len(text) <= LONGEST_NUMBER


def parse_flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return an option that is true or false. Raises ValueError for any other value."""
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ValueError(f"option {name} must be true or false, not {text!r}")
    return text == "true"
