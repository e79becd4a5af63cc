"""The operation that writes columns of records to a topic: `send`.

It cuts the records into batches, keeps each partition in order, and retries until all records are
written.

A Lane holds the records of one partition and has one batch in flight at a time. In each round,
every leader receives a request with one batch of each of its lanes. While the leaders answer, the
next batches of the lanes are encoded.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wirescan.core.arguments import I32, check_integer
from wirescan.kafka.client import partitioners
from wirescan.kafka.client.cluster import Cluster, Leader, Patience, Topic, TopicPartition
from wirescan.kafka.client.effects import Begin, Exchange, Node, Now, Operation, Wait
from wirescan.kafka.client.produce import (
    STOP_VERSION,
    WITH_BATCHES,
    WITH_ZSTD,
    Produced,
    Request,
    check,
    get_magic,
)
from wirescan.kafka.encode.record_columns import Source
from wirescan.kafka.encode.records import find_codec
from wirescan.kafka.encode.writer import write_batches, write_message_sets
from wirescan.kafka.protocol.error_codes import BrokerError, ErrorCode

SENT = np.dtype(
    [("partition", "i4"), ("count", "i8"), ("first_offset", "i8"), ("last_offset", "i8")]
)
BATCH_BYTES = 1 << 20
REQUEST_BYTES = 16 << 20  # of the batches in a request; brokers accept 100 MiB
FIRST_ROWS = 1024  # rows that are tried for the first batch of a lane
MAX_ERRORS_SHOWN = 3  # in the message of a ProduceError
COUNT_AT = 57  # position of the record count in a batch
INT32_MAX = I32[1]
SEED_BITS = 32
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class ProduceError(RuntimeError):
    """Not every record that `send` received is known to be in the log.

    sent: the records that are in the log: an array of dtype SENT.
    unknown: the rows that may be in the log, or may be written later.
    unsent: the rows that are not in the log and will not be written.
    errors: a message for each partition that failed.
    __cause__: the first error.

    `unknown` and `unsent` are int64 arrays of row numbers. Every row is in `sent`, `unknown` or
    `unsent`.
    """

    def __init__(
        self,
        topic: str,
        sent: np.ndarray,
        unknown: NDArray[np.int64],
        unsent: NDArray[np.int64],
        errors: Sequence[str],
    ):
        super().__init__(topic, sent, unknown, unsent, errors)
        self.topic = topic
        self.sent = sent
        self.unknown = unknown
        self.unsent = unsent
        self.errors = errors

    def __str__(self) -> str:
        written = int(self.sent["count"].sum())
        text = (
            f"{self.topic}: {written} records are written, {len(self.unknown)} may be written, "
            f"{len(self.unsent)} are not written. " + "; ".join(self.errors[:MAX_ERRORS_SHOWN])
        )
        hidden = len(self.errors) - MAX_ERRORS_SHOWN
        return f"{text}; and {hidden} more" if hidden > 0 else text


@dataclass
class Session:
    """A producer id, its epoch, and the sequence of the next record in each partition."""

    producer_id: int
    epoch: int
    sequences: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass
class Producer:
    """The state that a client keeps from one `send` to the next.

    sessions: the sessions that no `send` uses now. Each of several concurrent `send`s has a session
        of its own. A `send` that fails does not return its session: its batches may still be
        written, and new batches must not continue their sequences.
    turns: the number of the next record of each topic, for "round_robin".
    """

    sessions: list[Session] = field(default_factory=list)
    turns: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """The records of a `send` and its options. See `Operations.send`."""

    topic: str
    source: Source
    codec: str
    level: int | None
    acks: int
    timeout_ms: int
    batch_bytes: int
    versions: range

    def encode_batch(
        self, rows: NDArray[np.int64], session: Session | None, sequence: int
    ) -> tuple[memoryview, int]:
        """Return a batch of the first of these rows, and the number of rows in it."""
        codec, pack = find_codec(self.codec, self.level)
        if session is None:
            fields = (0, -1, -1, -1, codec, -1)
        else:
            fields = (0, session.producer_id, -1, sequence, codec, session.epoch)
        data = write_batches(
            self.source.make_columns(rows), self.batch_bytes, fields, pack, batches=1
        )
        return data, int.from_bytes(data[COUNT_AT : COUNT_AT + 4], "big")

    def encode_message_set(self, rows: NDArray[np.int64], magic: int) -> memoryview:
        """Return these rows as a message set, for a broker that does not know batches."""
        codec = "lz4-legacy" if self.codec == "lz4" and magic == 0 else self.codec
        return write_message_sets(
            self.source.make_columns(rows), INT32_MAX, magic, 0, 0, *find_codec(codec, self.level)
        )


class Batch(NamedTuple):
    """An encoded batch of the rows `first` to `end` (exclusive) of a lane."""

    first: int
    end: int
    data: memoryview


class Lane:
    """The rows of one partition.

    done: the number of rows at the beginning that are written.
    head, ahead: the batch in flight, and the batch after it; None where it is not encoded yet.
    in_doubt: whether `head` may be written although it is not acknowledged.
    is_stale: whether the leader may have changed.
    not_before: the time of the next attempt.
    error: the exception that ended the lane.
    """

    def __init__(
        self,
        job: Job,
        partition: int,
        rows: NDArray[np.int64],
        session: Session | None,
        patience: Patience,
    ):
        self.topic_partition = (job.topic, partition)
        self.rows = rows
        self.done = 0
        self.sequence = 0
        if session is not None:
            self.sequence = session.sequences.get(self.topic_partition, 0)
        self.head: Any = None
        self.ahead: Any = None
        self.error: Exception | None = None
        self.in_doubt = False
        self.is_stale = False
        self.not_before = 0.0
        self.first_offset = -1
        self.last_offset = -1
        self._job = job
        self._session = session
        self._patience = patience
        self._rows_to_try = FIRST_ROWS
        self._max_rows = len(rows)

    @property
    def is_open(self) -> bool:
        """Whether rows are left to write."""
        return self.error is None and self.done < len(self.rows)

    def fill(self) -> bool:
        """Encode the head if there is none; return False where its rows cannot be encoded."""
        try:
            self.head = self.head or self._encode_batch(self.done, self.sequence)
        except (ValueError, MemoryError) as error:
            self.error = error
        return self.error is None

    def fill_ahead(self) -> None:
        """Encode the batch after the head, while the head is in flight."""
        if self.ahead is None and self.head.end < len(self.rows):
            # After an error the batch is encoded again when it becomes the head.
            with suppress(ValueError, MemoryError):
                self.ahead = self._encode_batch(
                    self.head.end, self._compute_next_sequence(self.head)
                )

    def settle(self, produced: Produced, now: float) -> None:
        """Apply the outcome of the head."""
        error = produced.error
        size = self.head.end - self.head.first
        code = getattr(error, "code", None)
        if error is None or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._acknowledge(produced.base_offset)
        elif code in TOO_LARGE and size > 1 and not self.in_doubt:
            self.head = None
            self.ahead = None
            self._max_rows = size // 2
        else:
            self.in_doubt |= produced.in_doubt
            self.fail(error, now, is_lasting=self._job.acks == 0 and self.in_doubt)

    def fail(self, error: Exception, now: float, *, is_lasting: bool = False) -> None:
        """Schedule a retry after the head, or the search for its leader, failed.

        Where a retry cannot help, or `is_lasting`, the error ends the lane.
        """
        pause = None if is_lasting else self._patience.compute_pause(error, now)
        if pause is None:
            self.error = error
        else:
            self.not_before = now + pause
            self.is_stale = True

    def encode_record_set(self, batch: Batch, version: int) -> memoryview:
        """Return a batch in the form that a version of Produce carries."""
        magic = get_magic(version)
        if magic == 2:
            return batch.data
        return self._job.encode_message_set(self.rows[batch.first : batch.end], magic)

    def _acknowledge(self, offset: int) -> None:
        if self.done == 0:
            self.first_offset = offset
        self.last_offset = offset if offset < 0 else offset + self.head.end - self.head.first - 1
        self.sequence = self._compute_next_sequence(self.head)
        self.done = self.head.end
        self.head = self.ahead
        self.ahead = None
        self.in_doubt = False
        self._patience.reset()

    def _compute_next_sequence(self, batch: Batch) -> int:
        return self.sequence + batch.end - batch.first & INT32_MAX

    def _encode_batch(self, first: int, sequence: int) -> Batch:
        """Encode a batch that is full or ends with the last row that it may have."""
        max_count = min(self._max_rows, len(self.rows) - first)
        while True:
            row_count = min(self._rows_to_try, max_count)
            data, count = self._job.encode_batch(
                self.rows[first : first + row_count], self._session, sequence
            )
            if count < row_count or row_count == max_count:
                self._rows_to_try = max(count + count // 4, 1)
                return Batch(first, first + count, data)
            self._rows_to_try *= 4


def send(
    cluster: Cluster,
    producer: Producer,
    topic: str,
    values: Any,
    *,
    keys: Any,
    timestamps: Any,
    headers: Any,
    partition: Any,
    partitioner: partitioners.Partitioner,
    codec: str,
    level: int | None,
    acks: int,
    idempotent: bool | None,
    timeout_ms: int,
    batch_bytes: int,
) -> Operation[np.ndarray]:
    """Write records to a topic. See `Operations.send`."""
    check(acks, timeout_ms)
    partitioners.check(partitioner)
    find_codec(codec, level)
    check_integer(batch_bytes, "batch_bytes", (1, I32[1]))
    if idempotent and acks != -1:
        raise ValueError("an idempotent producer needs acks=-1")
    if timestamps is None:
        timestamps = time.time_ns() // 1_000_000
    source = Source(values, keys, timestamps, headers)
    if not len(source):
        return np.empty(0, SENT)
    metadata = yield from cluster.find_topic(topic)
    partitions = len(metadata.partitions)
    if partition is not None:
        chosen = partitioners.validate_partitions(partition, len(source), partitions)
    elif not isinstance(partitioner, str):
        chosen = partitioner(keys, partitions)
        chosen = partitioners.validate_partitions(chosen, len(source), partitions)
    else:
        chosen = _choose_partitions(cluster, producer, metadata, source, partitioner, batch_bytes)
    session = None
    if acks == -1 and idempotent is not False:
        session = yield from _open_session(cluster, producer, is_needed=bool(idempotent))
    first_version = 0 if session is None and headers is None else WITH_BATCHES
    versions = range(WITH_ZSTD if codec == "zstd" else first_version, STOP_VERSION)
    job = Job(topic, source, codec, level, acks, timeout_ms, batch_bytes, versions)
    lanes = _make_lanes(cluster, job, chosen, partitions, session)
    yield from _run_rounds(cluster, job, lanes)
    sent = _collect_sent(topic, lanes)
    if session is not None:
        session.sequences.update({lane.topic_partition: lane.sequence for lane in lanes})
        producer.sessions.append(session)
    return sent


def _choose_partitions(
    cluster: Cluster,
    producer: Producer,
    topic: Topic,
    source: Source,
    partitioner: str,
    batch_bytes: int,
) -> NDArray[np.int64]:
    """Return the partition of each record, by one of PARTITIONERS."""
    turn = producer.turns.get(topic.name, 0)
    producer.turns[topic.name] = turn + len(source)
    return partitioners.choose(
        partitioner,
        source.keys,
        source.values,
        len(topic.partitions),
        able=_list_able(topic),
        turn=turn,
        batch_bytes=batch_bytes,
        chance=cluster.chance,
    )


def _make_lanes(
    cluster: Cluster,
    job: Job,
    chosen: NDArray[np.int64],
    partitions: int,
    session: Session | None,
) -> list[Lane]:
    """Return a lane for each partition that has records. `chosen`: the partition of each record."""
    # numpy sorts 16-bit integers by radix sort, which is faster.
    keys = chosen.astype(np.uint16) if partitions < 1 << 16 else chosen
    order = np.argsort(keys, kind="stable")
    ends = np.cumsum(np.bincount(chosen, minlength=partitions))
    # Lanes that fail together get the same pauses, so that they are retried together.
    seed = cluster.chance.getrandbits(SEED_BITS)
    return [
        Lane(job, number, rows, session, Patience(cluster.retries, random.Random(seed)))
        for number, rows in enumerate(np.split(order, ends[:-1]))
        if len(rows)
    ]


def _run_rounds(cluster: Cluster, job: Job, lanes: list[Lane]) -> Operation[None]:
    """Run rounds until no lane is open; after a failure, only lanes in doubt continue."""
    waiting = lanes
    while True:
        has_failed = any(lane.error for lane in lanes)
        waiting = [lane for lane in waiting if lane.is_open and (lane.in_doubt or not has_failed)]
        if not waiting:
            return
        now = yield Now()
        shares = yield from _share_by_leader(cluster, waiting, now)
        if not shares:
            times = [lane.not_before for lane in waiting if lane.is_open]
            yield Wait(max(min(times, default=now) - now, 0))
            continue
        requests = []
        for node, share in shares.items():
            request = _make_request(job, node, share)
            requests.append((request, share, (yield Begin(request.exchange))))
        for _, share, _ in requests:
            for lane in share:
                lane.fill_ahead()
        for request, share, ticket in requests:
            outcomes = yield from request.finish(ticket)
            now = yield Now()
            for lane in share:
                lane.settle(outcomes[lane.topic_partition], now)
        served_lanes = {lane for share in shares.values() for lane in share}
        # Lanes that did not fit go first in the next round.
        waiting.sort(key=served_lanes.__contains__)


def _share_by_leader(
    cluster: Cluster, lanes: list[Lane], now: float
) -> Operation[dict[Node, dict[Lane, Leader]]]:
    """Return the lanes of this round, grouped by their leader."""
    shares: dict[Node, dict[Lane, Leader]] = {}
    free_bytes_of: dict[Node, int] = {}
    due = [lane for lane in lanes if lane.not_before <= now]
    if any(lane.is_stale for lane in due):
        topic, _ = due[0].topic_partition
        cluster.forget(topic)
    leaders = yield from cluster.find_leaders(lane.topic_partition for lane in due)
    for lane in due:
        leader = leaders[lane.topic_partition]
        if isinstance(leader, Exception):
            lane.fail(leader, now)
            continue
        lane.is_stale = False
        free_bytes = free_bytes_of.setdefault(leader.node, REQUEST_BYTES)
        if free_bytes > 0 and lane.fill():
            shares.setdefault(leader.node, {})[lane] = leader
            free_bytes_of[leader.node] = free_bytes - len(lane.head.data)
    return shares


def _make_request(job: Job, node: Node, share: Mapping[Lane, Leader]) -> Request:
    in_flight = {lane.topic_partition: (lane, lane.head) for lane in share}

    def encode_record_set(partition: TopicPartition, version: int) -> memoryview:
        lane, batch = in_flight[partition]
        return lane.encode_record_set(batch, version)

    leaders = {lane.topic_partition: leader for lane, leader in share.items()}
    return Request(node, leaders, encode_record_set, job.acks, job.timeout_ms, job.versions)


def _list_able(topic: Topic) -> list[int]:
    """Return the partitions that have a leader; all partitions, where none has."""
    numbers = sorted(topic.partitions)
    return [number for number in numbers if topic.partitions[number].leader >= 0] or numbers


def _open_session(
    cluster: Cluster, producer: Producer, *, is_needed: bool
) -> Operation[Session | None]:
    """Return a session that no `send` uses, or a new one.

    None where the brokers do not have InitProducerId; if the session is needed, raises BrokerError.
    """
    with suppress(IndexError):
        return producer.sessions.pop()
    patience = cluster.make_patience()
    while True:
        nodes = [*cluster.brokers.values()] or [*cluster.bootstrap]
        node = cluster.chance.choice(nodes)
        try:
            answer = yield Exchange(
                node, "InitProducerId", lambda version: {"transaction_timeout_ms": INT32_MAX}
            )
            if code := int(answer.table["error_code"][0]):
                raise BrokerError(code, f"InitProducerId at {node}")
            return Session(
                int(answer.table["producer_id"][0]), int(answer.table["producer_epoch"][0])
            )
        except (OSError, BrokerError) as error:
            is_unsupported = getattr(error, "code", None) == ErrorCode.UNSUPPORTED_VERSION
            if is_unsupported and not is_needed:
                return None
            yield from patience.wait(error)


def _collect_sent(topic: str, lanes: list[Lane]) -> np.ndarray:
    """Return the records that are in the log. Raises ProduceError if a lane failed."""
    written = [
        (lane.topic_partition[1], lane.done, lane.first_offset, lane.last_offset)
        for lane in lanes
        if lane.done
    ]
    sent = np.array(written, SENT)
    first_error = next((lane.error for lane in lanes if lane.error), None)
    if first_error is not None:
        raise _make_produce_error(topic, sent, lanes) from first_error
    return sent


def _make_produce_error(topic: str, sent: np.ndarray, lanes: list[Lane]) -> ProduceError:
    unknown = []
    unsent = []
    for lane in lanes:
        end = lane.head.end if lane.in_doubt else lane.done
        unknown.append(lane.rows[lane.done : end])
        unsent.append(lane.rows[end:])
    errors = [f"partition {lane.topic_partition[1]}: {lane.error}" for lane in lanes if lane.error]
    return ProduceError(topic, sent, np.concatenate(unknown), np.concatenate(unsent), errors)
