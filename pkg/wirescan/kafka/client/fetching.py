"""Fetch: what partitions hold from an offset on; and how one is read from an offset to another."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.errors import FrameError
from wirescan.kafka.client.cluster import NO_ID, Cluster, Leader, TopicPartition, text
from wirescan.kafka.client.effects import Answer, Begin, Exchange, Finish, Give, Node, Operation
from wirescan.kafka.client.offsets import isolation_level
from wirescan.kafka.errors import BrokerError, ErrorCode
from wirescan.kafka.schema import message_of
from wirescan.limits import Limits
from wirescan.table import FrameTable

BY_ID = 13                  # the version from which on Fetch names topics by their ids
WITH_ISOLATION = 4
WHOLE_BATCH = 3             # ... from which on a batch larger than asked for comes whole
WITH_EPOCH = 12             # ... from which on brokers compare the epoch of what was read last with their log
HEADROOM = 64 << 10         # bytes of an answer beside its record sets
EMPTY = 3                   # empty answers in a row, until it is believed that nothing follows


@dataclass(frozen=True)
class Question:
    """How a fetch is asked: bytes to wait for, milliseconds to wait for them, bytes of all partitions and of each,
    "read_uncommitted" or "read_committed"; and whether the checksums of an answer are verified before the next
    question follows from it (else when its batches are read)."""
    min_bytes: int = 1
    max_wait: int = 500
    max_bytes: int = 8 << 20
    partition_bytes: int = 8 << 20
    isolation: str = "read_uncommitted"
    verify: bool = False


@dataclass(frozen=True)
class Fetched:
    """What a partition answered: its row, in a table of kafka.fetch_response.partitions, whose place `records` is the
    record set (`kafka.scan` reads it where it lies); offsets, -1 where not told; and how long the broker asks to wait.

    aborted: array of producer_id and first_offset, i8: the aborted transactions that the records are part of.
    """
    table: FrameTable
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: np.ndarray
    throttle_ms: int

    @property
    def size(self) -> int:
        """Bytes of the record set."""
        return max(int(self.table["records_size"][0]), 0)


def fetch_exchange(node: Node, share: Mapping[TopicPartition, tuple[int, Leader]], question: Question,
                   epoch: int = -1) -> Exchange:
    """The exchange that fetches from one broker: partition -> (offset, leader). epoch: of the batch before the offset,
    where known."""
    level = isolation_level(question.isolation)
    named_by_id = all(leader.topic_id != NO_ID for _, leader in share.values())
    newest = message_of("Fetch", "request").versions.stop if named_by_id else BY_ID

    def body(version: int) -> dict[str, Any]:
        topics: dict[Any, list[dict[str, int]]] = {}
        for (topic, partition), (offset, leader) in share.items():
            topics.setdefault(leader.topic_id if version >= BY_ID else topic, []).append(
                {"partition": partition, "fetch_offset": offset, "partition_max_bytes": question.partition_bytes}
                | ({"current_leader_epoch": leader.epoch} if version >= 9 else {})
                | ({"last_fetched_epoch": epoch} if version >= WITH_EPOCH else {}))
        name = "topic_id" if version >= BY_ID else "topic"
        return ({"max_wait_ms": question.max_wait, "min_bytes": question.min_bytes,
                 "topics": [{name: key, "partitions": its} for key, its in topics.items()]}
                | ({"replica_id": -1} if version < 15 else {})
                | ({"max_bytes": question.max_bytes} if version >= WHOLE_BATCH else {})
                | ({"isolation_level": level} if version >= WITH_ISOLATION else {}))

    expected = min(question.max_bytes, question.partition_bytes * len(share)) + HEADROOM
    return Exchange(node, "Fetch", body, range(WITH_ISOLATION if level else 0, newest),
                    seconds=question.max_wait / 1000, expected=expected)


def read_answer(answer: Answer, node: Node, share: Mapping[TopicPartition, tuple[int, Leader]]
                ) -> dict[TopicPartition, Fetched | BrokerError]:
    """What a Fetch response says of the partitions that were asked for. Raises BrokerError for an error of the whole,
    FrameError where it lies."""
    table = answer.table
    if code := int(table["error_code"][0]):
        raise BrokerError(code, f"Fetch at {node}")
    topics = table.open("responses")
    of_id = {leader.topic_id: topic for (topic, _), (_, leader) in share.items()}
    names = [of_id.get(bytes(row.topic_id)) if answer.version >= BY_ID else text(row.topic) for row in topics]
    partitions = topics.open("partitions")
    aborted = partitions.open("aborted_transactions")
    found: dict[TopicPartition, Fetched | BrokerError] = {}
    for i, row in enumerate(partitions):
        one = names[row.parent], row.partition_index
        if one not in share:
            continue
        if row.error_code:
            where = f"{one[0]}-{one[1]} at {node}"
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                where = f"offset {share[one][0]} of {where}"
            found[one] = BrokerError(row.error_code, where)
            continue
        if row.diverging_epoch_epoch >= 0:
            found[one] = BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {share[one][0]} of {one[0]}-{one[1]} at "
                                     f"{node}, whose log has another history from {row.diverging_epoch_end_offset} on")
            continue
        found[one] = Fetched(partitions[i:i + 1], row.high_watermark, row.last_stable_offset, row.log_start_offset,
                             aborted.rows[["producer_id", "first_offset"]][aborted["parent"] == i],
                             int(table["throttle_time_ms"][0]))
    return found


def fetch_once(cluster: Cluster, wanted: Mapping[TopicPartition, int],
               question: Question) -> Operation[dict[TopicPartition, Fetched]]:
    """One fetch from each partition at its offset. See `Operations.fetch_once`."""
    def ask(node: Node, share: dict[TopicPartition, tuple[int, Leader]]) -> Operation[dict[TopicPartition, Any]]:
        answer = yield fetch_exchange(node, share, question)
        return read_answer(answer, node, share)

    return (yield from cluster.each(wanted, ask))


@dataclass(frozen=True)
class Range:
    """Of a partition, the offsets from start to below stop. is_there: whether the log is known to reach `stop`."""
    topic: str
    partition: int
    start: int
    stop: int
    is_there: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Piece:
    """One answer in the reading of a range, which is that from where it was fetched on: its batches, scanned with their
    checksums as `Question.verify` says, and the offset behind the last one."""
    range: Range
    fetched: Fetched
    batches: FrameTable
    next_offset: int


def read_range(cluster: Cluster, wanted: Range, question: Question, limits: Limits, errors: str) -> Operation[None]:
    """Gives the Pieces of a range, one after another; the next one is asked for before a piece is given.

    Ends at `stop`, or where the log ends before. Raises as `kafka.fetch`, and BrokerError(OFFSET_NOT_AVAILABLE) where
    the log has reached beyond what the leader knows to be committed, as after an election, and it stays so."""
    reading = _Reading(cluster, wanted, question, limits, errors)
    ticket = None
    while reading.position < wanted.stop:
        try:
            if ticket is None:
                ticket = yield from reading.begin()
            answer = yield Finish(ticket)
            ticket = None
            piece = reading.take(answer)
        except (OSError, BrokerError) as error:
            ticket = None
            cluster.forget(wanted.topic)
            yield from reading.patience.wait(error)
            continue
        if reading.position < wanted.stop:
            ticket = yield Begin(reading.exchange)
        if piece is not None:
            yield Give(piece)


class _Reading:
    """How far the reading of a range has come."""

    def __init__(self, cluster: Cluster, wanted: Range, question: Question, limits: Limits, errors: str):
        self.position, self.patience = wanted.start, cluster.patience()
        self._cluster, self._range, self._limits, self._errors = cluster, wanted, limits, errors
        self._question, self._empty, self._epoch = question, 0, -1
        self._end = wanted.stop if wanted.is_there else wanted.start        # the log was seen to reach this far
        self._one = (wanted.topic, wanted.partition)
        self._leader: Any = None

    def begin(self) -> Operation[Any]:
        """Asks the leader of now: a ticket."""
        self._leader = yield from self._cluster.leader(*self._one, self.patience)
        return (yield Begin(self.exchange))

    @property
    def exchange(self) -> Exchange:
        """What is to be asked next of the leader that answered last."""
        return fetch_exchange(self._leader.node, {self._one: (self.position, self._leader)}, self._question,
                              self._epoch if self._epoch <= self._leader.epoch else -1)     # no checksum covers it

    def take(self, answer: Answer) -> Piece | None:
        """A piece, or None where the answer has nothing new."""
        from wirescan.kafka import scan
        node = self._leader.node
        found = read_answer(answer, node, {self._one: (self.position, self._leader)}).get(self._one)
        if not isinstance(found, Fetched):
            raise found or BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._name} in a response of {node}")
        if not found.size:
            self._nothing(found)
            return None
        strict = self._errors == "strict"
        batches = scan(found.table, errors="strict" if strict else "mark", check=self._question.verify,
                       limits=self._limits)
        good = np.flatnonzero(~batches.bad)
        if len(good):
            batches = batches[:good[-1] + 1]    # bad ones behind come again
            reached, self._epoch = int(batches["last_offset"][-1]) + 1, int(batches["leader_epoch"][-1])
        elif len(batches) and found.size < self._question.partition_bytes and (
                batches["fault"][-1] == Fault.BAD_CHECKSUM):
            # Nothing good follows: there is but the damaged batch to tell how far it goes.
            reached = min(max(int(batches["last_offset"][-1]), self.position) + 1,
                          max(found.high_watermark, self.position + 1))
            self._epoch = -1
        else:
            self._ask_for_more(found)
            return None
        if self._errors == "skip":
            batches = batches.where(~batches.bad)
        self._end = max(self._end, reached, self._committed(found))
        if reached <= self.position:
            raise ConnectionError(f"{node} answers a fetch of {self._name} from offset {self.position} with batches "
                                  f"that end before it, at {reached - 1}")
        piece = Piece(replace(self._range, start=self.position), found, batches, reached)
        self.position, self._empty = reached, 0
        self.patience.progress()
        return piece

    @property
    def _name(self) -> str:
        return f"{self._range.topic}-{self._range.partition}"

    def _committed(self, found: Fetched) -> int:
        """The offset up to which a consumer may read."""
        return found.last_stable_offset if isolation_level(self._question.isolation) else found.high_watermark

    def _nothing(self, found: Fetched) -> None:
        if found.throttle_ms > 0:           # the broker delays the next answer by itself
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, self._name)
        end = self._committed(found)
        self._end = max(self._end, end)
        if end < min(self._end, self._range.stop):
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{self._name} at {self._leader.node}, which knows of "
                              f"offsets to {end}, and there were some to {self._end}")
        self._empty += 1
        if self._empty >= EMPTY:
            self.position = self._range.stop        # the log ends before, or what is left of it was compacted away

    def _ask_for_more(self, found: Fetched) -> None:
        most = self._limits.frame - HEADROOM
        if self._question.partition_bytes >= most:
            start = int(found.table["start"][0]) + int(found.table["records_at"][0])
            raise FrameError(Fault.BAD_LENGTH, start, 0, found.table.bytes(0, "records") or b"", self._name)
        more = min(2 * self._question.partition_bytes, most)
        self._question = replace(self._question, partition_bytes=more, max_bytes=max(more, self._question.max_bytes))
