"""Columns to a topic: cut into batches, each partition in order, tried again until they are there.

A Lane is what goes to one partition, and has one batch under way at a time. In a round, every leader is sent a request
with a batch of each of its lanes; while it answers, their next batches are written.
"""
from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wirescan.kafka.arrays import Source
from wirescan.kafka.client import partitioners
from wirescan.kafka.client.cluster import Cluster, Leader, Patience, Topic, TopicPartition
from wirescan.kafka.client.effects import Begin, Exchange, Node, Now, Operation, Wait
from wirescan.kafka.client.produce import BATCHES, I32, NEWEST, ZSTD, Produced, Request, check, magic_of
from wirescan.kafka.encode import codec_of
from wirescan.kafka.errors import BrokerError, ErrorCode
from wirescan.kafka.write import write_batches, write_message_sets

SENT = np.dtype([("partition", np.int32), ("count", np.int64), ("first_offset", np.int64), ("last_offset", np.int64)])
BATCH_BYTES = 1 << 20
REQUEST_BYTES = 16 << 20            # of batches in a request: brokers take 100 MiB
FIRST_ROWS = 1024                   # that are tried for a batch
SHOWN = 3                           # errors in a message
COUNT_AT = 57                       # in a batch: how many records it has
LARGEST = I32 - 1
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class ProduceError(RuntimeError):
    """Not every record that `send` was given is in the log for sure.

    sent: what is there: array of SENT. unknown: the rows of which it is not known whether they are there, or may yet
    come. unsent: the rows that are not there, and will not come. Both are int64 arrays of numbers of rows, and between
    them and `sent` is every row. __cause__: the first error.
    """
    def __init__(self, topic: str, sent: np.ndarray, unknown: NDArray[np.int64], unsent: NDArray[np.int64],
                 errors: Sequence[str]):
        super().__init__(topic, sent, unknown, unsent, errors)
        self.topic, self.sent, self.unknown, self.unsent, self.errors = topic, sent, unknown, unsent, errors

    def __str__(self) -> str:
        written = int(self.sent["count"].sum())
        text = (f"{self.topic}: {written} records are written, {len(self.unknown)} may be or not, "
                f"{len(self.unsent)} are not. " + "; ".join(self.errors[:SHOWN]))
        return text + (f"; and {len(self.errors) - SHOWN} more" if len(self.errors) > SHOWN else "")


@dataclass
class Session:
    """A producer id, its epoch, and the sequence of the next record in each partition."""
    producer_id: int
    epoch: int
    sequences: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass
class Producer:
    """What is kept from one `send` to the next: the sessions that none of them uses now, and turns of round_robin.

    Of `send`s that run at once each has a session of its own. One that fails does not give its session back: what
    may yet come of it must not meet with new sequences."""
    sessions: list[Session] = field(default_factory=list)
    turns: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """What is sent, and how: see `Operations.send`."""
    topic: str
    source: Source
    codec: str
    level: int | None
    acks: int
    timeout_ms: int
    batch_bytes: int
    versions: range

    def batch(self, rows: NDArray[np.int64], session: Session | None, sequence: int) -> tuple[memoryview, int]:
        """A batch of the first of these rows, and how many they are."""
        number, pack = codec_of(self.codec, self.level)
        producer_id, epoch = (-1, -1) if session is None else (session.producer_id, session.epoch)
        fields = (0, producer_id, -1, -1 if session is None else sequence, number, epoch)
        data = write_batches(self.source.columns(rows), self.batch_bytes, fields, pack, batches=1)
        return data, int.from_bytes(data[COUNT_AT:COUNT_AT + 4], "big")

    def message_set(self, rows: NDArray[np.int64], magic: int) -> memoryview:
        """The same for a broker that knows no batches."""
        codec = "lz4-legacy" if self.codec == "lz4" and magic == 0 else self.codec
        return write_message_sets(self.source.columns(rows), LARGEST, magic, 0, 0, *codec_of(codec, self.level))


class Batch(NamedTuple):
    """Rows first to end (exclusive) of a lane."""
    first: int
    end: int
    data: memoryview


class Lane:
    """The rows of one partition: those before `done` are written, `head` is under way, `ahead` comes next."""

    def __init__(self, job: Job, partition: int, rows: NDArray[np.int64], session: Session | None, patience: Patience):
        self.one, self.rows, self.done, self.sequence = (job.topic, partition), rows, 0, 0
        if session is not None:
            self.sequence = session.sequences.get(self.one, 0)
        self.head: Any = None                       # Batch or None, both
        self.ahead: Any = None
        self.error: Exception | None = None
        self.in_doubt = self.is_stale = False       # head may be written; its leader may be another by now
        self.not_before = 0.0
        self.first_offset = self.last_offset = -1
        self._job, self._session, self._patience = job, session, patience
        self._try, self._most = FIRST_ROWS, len(rows)

    @property
    def is_open(self) -> bool:
        """Whether there is anything to do."""
        return self.error is None and self.done < len(self.rows)

    def fill(self) -> bool:
        """Makes sure of a head; False where its rows cannot be written."""
        try:
            self.head = self.head or self._batch(self.done, self.sequence)
        except (ValueError, MemoryError) as error:
            self.error = error
        return self.error is None

    def fill_ahead(self) -> None:
        """Makes sure of what comes after the head, while that is under way."""
        if self.ahead is None and self.head.end < len(self.rows):
            try:
                self.ahead = self._batch(self.head.end, self._after(self.head))
            except (ValueError, MemoryError):
                pass                                # it is tried again, when its turn comes

    def settle(self, produced: Produced, now: float) -> None:
        """What became of the head."""
        error, size = produced.error, self.head.end - self.head.first
        code = getattr(error, "code", None)
        if error is None or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._acknowledge(produced.base_offset)
        elif code in TOO_LARGE and size > 1 and not self.in_doubt:
            self.head = self.ahead = None
            self._most = size // 2
        else:
            self.in_doubt |= produced.in_doubt
            self.fail(error, now, lasting=self._job.acks == 0 and self.in_doubt)

    def fail(self, error: Exception, now: float, lasting: bool = False) -> None:
        """The head, or finding its leader, failed: it is tried again, if that may help."""
        pause = None if lasting else self._patience.pause(error, now)
        if pause is None:
            self.error = error
        else:
            self.not_before, self.is_stale = now + pause, True

    def record_set(self, batch: Batch, version: int) -> memoryview:
        """A batch as a version of Produce carries it."""
        magic = magic_of(version)
        return batch.data if magic == 2 else self._job.message_set(self.rows[batch.first:batch.end], magic)

    def _acknowledge(self, offset: int) -> None:
        if self.done == 0:
            self.first_offset = offset
        self.last_offset = offset if offset < 0 else offset + self.head.end - self.head.first - 1
        self.sequence, self.done = self._after(self.head), self.head.end
        self.head, self.ahead, self.in_doubt = self.ahead, None, False
        self._patience.progress()

    def _after(self, batch: Batch) -> int:
        return self.sequence + batch.end - batch.first & LARGEST

    def _batch(self, first: int, sequence: int) -> Batch:
        most = min(self._most, len(self.rows) - first)
        while True:
            tried = min(self._try, most)
            data, count = self._job.batch(self.rows[first:first + tried], self._session, sequence)
            if count < tried or tried == most:
                self._try = max(count + count // 4, 1)
                return Batch(first, first + count, data)
            self._try *= 4


def send(cluster: Cluster, producer: Producer, topic: str, values: Any, *, keys: Any, timestamps: Any, headers: Any,
         partition: Any, partitioner: partitioners.Partitioner, codec: str, level: int | None, acks: int,
         idempotent: bool | None, timeout_ms: int, batch_bytes: int) -> Operation[np.ndarray]:
    """Records to a topic. See `Operations.send`."""
    check(acks, timeout_ms)
    partitioners.check(partitioner)
    codec_of(codec, level)
    if not 1 <= batch_bytes < I32:
        raise ValueError(f"batch_bytes must be from 1 to {I32 - 1}, not {batch_bytes}")
    if idempotent and acks != -1:
        raise ValueError("an idempotent producer needs acks=-1")
    source = Source(values, keys, time.time_ns() // 1_000_000 if timestamps is None else timestamps, headers)
    if not len(source):
        return np.empty(0, SENT)
    found = yield from cluster.topic(topic)
    count = len(found.partitions)
    if partition is not None:
        chosen = partitioners.given(partition, len(source), count)
    elif not isinstance(partitioner, str):
        chosen = partitioners.given(partitioner(keys, count), len(source), count)
    else:
        turn = producer.turns.get(topic, 0)
        producer.turns[topic] = turn + len(source)
        chosen = partitioners.choose(partitioner, source.keys, source.values, count, able=_able(found), turn=turn,
                                     batch_bytes=batch_bytes, chance=cluster.chance)
    session = None
    if acks == -1 and idempotent is not False:
        session = yield from _session(cluster, producer, bool(idempotent))
    oldest = ZSTD if codec == "zstd" else 0 if session is None and headers is None else BATCHES
    job = Job(topic, source, codec, level, acks, timeout_ms, batch_bytes, range(oldest, NEWEST))
    order = np.argsort(chosen.astype(np.uint16) if count < 1 << 16 else chosen, kind="stable")
    ends = np.cumsum(np.bincount(chosen, minlength=count))
    seed = cluster.chance.getrandbits(32)           # lanes that fail together pause alike, and go on together
    lanes = [Lane(job, number, rows, session, Patience(cluster.retries, random.Random(seed)))
             for number, rows in enumerate(np.split(order, ends[:-1])) if len(rows)]
    yield from _rounds(cluster, job, lanes)
    sent = np.array([(lane.one[1], lane.done, lane.first_offset, lane.last_offset)
                     for lane in lanes if lane.done], SENT)
    if any(lane.error for lane in lanes):
        raise _failed(topic, sent, lanes) from next(lane.error for lane in lanes if lane.error)
    if session is not None:
        session.sequences.update({lane.one: lane.sequence for lane in lanes})
        producer.sessions.append(session)
    return sent


def _rounds(cluster: Cluster, job: Job, lanes: list[Lane]) -> Operation[None]:
    """Runs all lanes to their end; after a failure, only what is in doubt."""
    turn = lanes
    while True:
        failed = any(lane.error for lane in lanes)
        turn = [lane for lane in turn if lane.is_open and (lane.in_doubt or not failed)]
        if not turn:
            return
        now = yield Now()
        shares = yield from _shares(cluster, turn, now)
        if not shares:
            waits = [lane.not_before for lane in turn if lane.is_open]
            yield Wait(max(min(waits, default=now) - now, 0))
            continue
        requests = []
        for node, share in shares.items():
            request = _request(job, node, share)
            requests.append((request, share, (yield Begin(request.exchange))))
        for _, share, _ in requests:
            for lane in share:
                lane.fill_ahead()
        for request, share, ticket in requests:
            outcomes = yield from request.finish(ticket)
            now = yield Now()
            for lane in share:
                lane.settle(outcomes[lane.one], now)
        served = {lane for share in shares.values() for lane in share}
        turn.sort(key=served.__contains__)          # who had to stay behind goes first


def _shares(cluster: Cluster, lanes: list[Lane], now: float) -> Operation[dict[Node, dict[Lane, Leader]]]:
    """Which lanes go to which broker in this round."""
    shares: dict[Node, dict[Lane, Leader]] = {}
    room: dict[Node, int] = {}
    due = [lane for lane in lanes if lane.not_before <= now]
    if any(lane.is_stale for lane in due):
        cluster.forget(due[0].one[0])
    leaders = yield from cluster.leaders(lane.one for lane in due)
    for lane in due:
        leader = leaders[lane.one]
        if isinstance(leader, Exception):
            lane.fail(leader, now)
            continue
        lane.is_stale = False
        left = room.setdefault(leader.node, REQUEST_BYTES)
        if left > 0 and lane.fill():
            shares.setdefault(leader.node, {})[lane] = leader
            room[leader.node] = left - len(lane.head.data)
    return shares


def _request(job: Job, node: Node, share: dict[Lane, Leader]) -> Request:
    under_way = {lane.one: (lane, lane.head) for lane in share}

    def record_set(one: TopicPartition, version: int) -> memoryview:
        lane, batch = under_way[one]
        return lane.record_set(batch, version)

    return Request(node, {lane.one: leader for lane, leader in share.items()}, record_set, job.acks, job.timeout_ms,
                   job.versions)


def _able(topic: Topic) -> list[int]:
    """The partitions that have a leader; all, where none has."""
    return [number for number, one in sorted(topic.partitions.items()) if one.leader >= 0] or sorted(topic.partitions)


def _session(cluster: Cluster, producer: Producer, needed: bool) -> Operation[Session | None]:
    """A session that nobody uses, or a new one. None where brokers have none to give, unless it is needed."""
    with suppress(IndexError):
        return producer.sessions.pop()
    patience = cluster.patience()
    while True:
        nodes = [*cluster.brokers.values()] or [*cluster.bootstrap]
        node = cluster.chance.choice(nodes)
        try:
            table = (yield Exchange(node, "InitProducerId", lambda version: {"transaction_timeout_ms": LARGEST})).table
            if code := int(table["error_code"][0]):
                raise BrokerError(code, f"InitProducerId at {node}")
            return Session(int(table["producer_id"][0]), int(table["producer_epoch"][0]))
        except (OSError, BrokerError) as error:
            if getattr(error, "code", None) == ErrorCode.UNSUPPORTED_VERSION and not needed:
                return None
            yield from patience.wait(error)


def _failed(topic: str, sent: np.ndarray, lanes: list[Lane]) -> ProduceError:
    unknown, unsent = [], []
    for lane in lanes:
        reached = lane.head.end if lane.in_doubt else lane.done
        unknown.append(lane.rows[lane.done:reached])
        unsent.append(lane.rows[reached:])
    errors = [f"partition {lane.one[1]}: {lane.error}" for lane in lanes if lane.error]
    return ProduceError(topic, sent, np.concatenate(unknown), np.concatenate(unsent), errors)
