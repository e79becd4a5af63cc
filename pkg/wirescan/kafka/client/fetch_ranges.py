"""Fetch operations: one fetch from many partitions, and all fetches of one range of offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.frames.errors import FrameError
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.kafka.batch_formats import scan
from wirescan.kafka.client.cluster import (
    NO_TOPIC_ID,
    Cluster,
    Leader,
    TopicPartition,
    decode_text,
)
from wirescan.kafka.client.effects import Answer, Begin, Exchange, Finish, Give, Node, Operation
from wirescan.kafka.client.offsets import get_isolation_level
from wirescan.kafka.protocol.error_codes import BrokerError, ErrorCode
from wirescan.kafka.protocol.schema import get_message

# The first versions of Fetch with a property.
WHOLE_BATCH = 3  # the request has max_bytes; a batch larger than that comes whole
WITH_ISOLATION = 4
WITH_LEADER_EPOCH = 9
WITH_FETCHED_EPOCH = 12  # brokers compare the epoch of the batch read last with their log
FETCH_BY_ID = 13  # topics are named by their ids
WITHOUT_REPLICA_ID = 15

HEADROOM = 64 << 10  # bytes of an answer beside its record sets
EMPTY_ANSWERS = 3  # empty answers in a row after which the range is taken to have ended
NO_EPOCH = -1


@dataclass(frozen=True)
class Question:
    """The parameters of a fetch.

    min_bytes: bytes that the broker waits for.
    max_wait: the longest time that it waits for them, in milliseconds.
    max_bytes, partition_bytes: the most bytes of all partitions, and of each.
    isolation: "read_uncommitted" or "read_committed".
    verify: whether the checksums of an answer are verified before the next fetch depends on it. If
        not, they are verified when its batches are read.
    """

    min_bytes: int = 1
    max_wait: int = 500
    max_bytes: int = 8 << 20
    partition_bytes: int = 8 << 20
    isolation: str = "read_uncommitted"
    verify: bool = False


@dataclass(frozen=True)
class Fetched:
    """The answer of a partition to a fetch.

    table: the partition's row, in a table of kafka.fetch_response.partitions. Its place `records`
        is the record set, which `kafka.scan` reads without a copy.
    high_watermark, last_stable_offset, log_start_offset: offsets; -1 where not reported.
    aborted: array with the columns producer_id and first_offset, i8: the aborted transactions that
        the records are part of.
    throttle_ms: how long the broker asks the client to wait, in milliseconds.
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


def make_fetch_exchange(
    node: Node,
    share: Mapping[TopicPartition, tuple[int, Leader]],
    question: Question,
    epoch: int = NO_EPOCH,
) -> Exchange:
    """Return the exchange that fetches from one broker.

    share: partition -> (offset, leader).
    epoch: the leader epoch of the batch before the offset, or NO_EPOCH.
    """
    level = get_isolation_level(question.isolation)
    all_have_ids = all(leader.topic_id != NO_TOPIC_ID for _, leader in share.values())
    stop_version = get_message("Fetch", "request").versions.stop if all_have_ids else FETCH_BY_ID
    expected = min(question.max_bytes, question.partition_bytes * len(share)) + HEADROOM
    return Exchange(
        node,
        "Fetch",
        partial(_encode_request_body, share, question, epoch),
        range(WITH_ISOLATION if level else 0, stop_version),
        seconds=question.max_wait / 1000,
        expected=expected,
    )


def _encode_request_body(
    share: Mapping[TopicPartition, tuple[int, Leader]],
    question: Question,
    epoch: int,
    version: int,
) -> dict[str, Any]:
    topics: dict[Any, list[dict[str, int]]] = {}
    for (topic, partition), (offset, leader) in share.items():
        fields = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": question.partition_bytes,
        }
        if version >= WITH_LEADER_EPOCH:
            fields["current_leader_epoch"] = leader.epoch
        if version >= WITH_FETCHED_EPOCH:
            fields["last_fetched_epoch"] = epoch
        topics.setdefault(leader.topic_id if version >= FETCH_BY_ID else topic, []).append(fields)
    key = "topic_id" if version >= FETCH_BY_ID else "topic"
    body: dict[str, Any] = {
        "max_wait_ms": question.max_wait,
        "min_bytes": question.min_bytes,
        "topics": [{key: topic, "partitions": fields} for topic, fields in topics.items()],
    }
    if version < WITHOUT_REPLICA_ID:
        body["replica_id"] = -1
    if version >= WHOLE_BATCH:
        body["max_bytes"] = question.max_bytes
    if version >= WITH_ISOLATION:
        body["isolation_level"] = get_isolation_level(question.isolation)
    return body


def read_answer(
    answer: Answer, node: Node, share: Mapping[TopicPartition, tuple[int, Leader]]
) -> dict[TopicPartition, Fetched | BrokerError]:
    """Return the result or error of each partition in a Fetch response.

    Partitions that were not asked for are ignored. Raises BrokerError for an error of the whole
    response, FrameError where the response is malformed.
    """
    table = answer.table
    if code := int(table["error_code"][0]):
        raise BrokerError(code, f"Fetch at {node}")
    topics = table.open("responses")
    topic_of_id = {leader.topic_id: topic for (topic, _), (_, leader) in share.items()}
    names = [
        topic_of_id.get(bytes(row.topic_id))
        if answer.version >= FETCH_BY_ID
        else decode_text(row.topic)
        for row in topics
    ]
    partitions = topics.open("partitions")
    aborted = partitions.open("aborted_transactions")
    results: dict[TopicPartition, Fetched | BrokerError] = {}
    for i, row in enumerate(partitions):
        partition = names[row.parent], row.partition_index
        if partition not in share:
            continue
        error = _find_error(row, node, partition, share[partition][0])
        if error is not None:
            results[partition] = error
            continue
        results[partition] = Fetched(
            partitions[i : i + 1],
            row.high_watermark,
            row.last_stable_offset,
            row.log_start_offset,
            aborted.rows[["producer_id", "first_offset"]][aborted["parent"] == i],
            int(table["throttle_time_ms"][0]),
        )
    return results


def _find_error(row: Any, node: Node, partition: TopicPartition, offset: int) -> BrokerError | None:
    """Return the error of a partition in a Fetch response, or None."""
    subject = f"{partition[0]}-{partition[1]} at {node}"
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return BrokerError(row.error_code, f"offset {offset} of {subject}")
    if row.error_code:
        return BrokerError(row.error_code, subject)
    if row.diverging_epoch_epoch >= 0:
        return BrokerError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {subject}, whose log has another history from "
            f"{row.diverging_epoch_end_offset} on",
        )
    return None


def fetch_once(
    cluster: Cluster, offsets: Mapping[TopicPartition, int], question: Question
) -> Operation[dict[TopicPartition, Fetched]]:
    """Fetch once from each partition at its offset. See `Operations.fetch_once`."""

    def ask(
        node: Node, share: dict[TopicPartition, tuple[int, Leader]]
    ) -> Operation[dict[TopicPartition, Any]]:
        answer = yield make_fetch_exchange(node, share, question)
        return read_answer(answer, node, share)

    return (yield from cluster.ask_leaders(offsets, ask))


@dataclass(frozen=True)
class FetchRange:
    """The offsets of a partition from `start` to `stop`, exclusive, that one fetch reads.

    Nothing is checked: offsets that a broker reported may be wrong. `topic_ranges.OffsetRange` is
    the checked range of a plan.

    reaches_stop: whether the log is known to reach `stop`.
    """

    topic: str
    partition: int
    start: int
    stop: int
    reaches_stop: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class FetchedBatches:
    """One answer while a range is read.

    range: the range from the offset that was fetched.
    batches: the batches of the answer. Their checksums are verified as `Question.verify` says.
    next_offset: the offset after the last batch.
    """

    range: FetchRange
    fetched: Fetched
    batches: FrameTable
    next_offset: int


def read_range(
    cluster: Cluster, fetch_range: FetchRange, question: Question, limits: Limits, errors: str
) -> Operation[None]:
    """Give the FetchedBatches of a range in order; request the next batches before giving these.

    Ends at `stop`, or where the log ends before it. Raises as `kafka.fetch`. Raises
    BrokerError(OFFSET_NOT_AVAILABLE) where the log was seen to reach beyond the offsets that the
    leader knows to be committed, and this persists. It can happen after an election.
    """
    reading = _Reading(cluster, fetch_range, question, limits, errors)
    ticket = None
    while reading.position < fetch_range.stop:
        try:
            if ticket is None:
                ticket = yield from reading.begin()
            answer = yield Finish(ticket)
            ticket = None
            batches = reading.take(answer)
        except (OSError, BrokerError) as error:
            ticket = None
            cluster.forget(fetch_range.topic)
            yield from reading.patience.wait(error)
            continue
        if reading.position < fetch_range.stop:
            ticket = yield Begin(reading.exchange)
        if batches is not None:
            yield Give(batches)


class _Reading:
    """The progress of reading a range. `position` is the next offset to fetch."""

    def __init__(
        self,
        cluster: Cluster,
        fetch_range: FetchRange,
        question: Question,
        limits: Limits,
        errors: str,
    ):
        self.position = fetch_range.start
        self.patience = cluster.make_patience()
        self._cluster = cluster
        self._range = fetch_range
        self._limits = limits
        self._errors = errors
        self._question = question
        self._empty = 0  # empty answers in a row
        self._epoch = NO_EPOCH  # of the batch read last
        # The log was seen to reach this offset.
        self._log_end = fetch_range.stop if fetch_range.reaches_stop else fetch_range.start
        self._partition = (fetch_range.topic, fetch_range.partition)
        self._leader: Any = None

    def begin(self) -> Operation[Any]:
        """Send the next request to the current leader. Returns a ticket."""
        self._leader = yield from self._cluster.find_leader(*self._partition, self.patience)
        return (yield Begin(self.exchange))

    @property
    def exchange(self) -> Exchange:
        """The next request to the leader that answered last."""
        # No checksum covers the epoch of a batch, so one above the leader's is not sent.
        epoch = self._epoch if self._epoch <= self._leader.epoch else NO_EPOCH
        share = {self._partition: (self.position, self._leader)}
        return make_fetch_exchange(self._leader.node, share, self._question, epoch)

    def take(self, answer: Answer) -> FetchedBatches | None:
        """Return the batches of an answer, or None where it has nothing new."""
        node = self._leader.node
        share = {self._partition: (self.position, self._leader)}
        fetched = read_answer(answer, node, share).get(self._partition)
        if not isinstance(fetched, Fetched):
            raise fetched or BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._name} in a response of {node}"
            )
        if not fetched.size:
            self._take_nothing(fetched)
            return None
        batches = scan(
            fetched.table,
            errors="strict" if self._errors == "strict" else "mark",
            check=self._question.verify,
            limits=self._limits,
        )
        good = np.flatnonzero(~batches.bad)
        if len(good):
            batches = batches[: good[-1] + 1]  # bad batches after it are fetched again
            next_offset = int(batches["last_offset"][-1]) + 1
            self._epoch = int(batches["leader_epoch"][-1])
        elif self._is_one_damaged_batch(batches, fetched):
            # Nothing good follows, so only the damaged batch says where it ends.
            next_offset = min(
                max(int(batches["last_offset"][-1]), self.position) + 1,
                max(fetched.high_watermark, self.position + 1),
            )
            self._epoch = NO_EPOCH
        else:
            self._ask_for_more(fetched)
            return None
        if self._errors == "skip":
            batches = batches.where(~batches.bad)
        self._log_end = max(self._log_end, next_offset, self._find_readable_end(fetched))
        if next_offset <= self.position:
            raise ConnectionError(
                f"{node} answers a fetch of {self._name} from offset {self.position} with batches "
                f"that end before it, at {next_offset - 1}"
            )
        result = FetchedBatches(
            replace(self._range, start=self.position), fetched, batches, next_offset
        )
        self.position = next_offset
        self._empty = 0
        self.patience.reset()
        return result

    @property
    def _name(self) -> str:
        return f"{self._range.topic}-{self._range.partition}"

    def _is_one_damaged_batch(self, batches: FrameTable, fetched: Fetched) -> bool:
        """Return whether the answer is complete and ends with a batch whose checksum is wrong."""
        return bool(
            len(batches)
            and fetched.size < self._question.partition_bytes
            and batches["fault"][-1] == Fault.BAD_CHECKSUM
        )

    def _find_readable_end(self, fetched: Fetched) -> int:
        """Return the offset up to which a consumer may read."""
        if get_isolation_level(self._question.isolation):
            return fetched.last_stable_offset
        return fetched.high_watermark

    def _take_nothing(self, fetched: Fetched) -> None:
        """Handle an answer without records. Raises BrokerError where a later one may have some."""
        if fetched.throttle_ms > 0:  # the broker itself delays the next answer
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, self._name)
        end = self._find_readable_end(fetched)
        self._log_end = max(self._log_end, end)
        if end < min(self._log_end, self._range.stop):
            raise BrokerError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"{self._name} at {self._leader.node}, which reports offsets to {end}; before "
                f"there were offsets to {self._log_end}",
            )
        self._empty += 1
        if self._empty >= EMPTY_ANSWERS:
            # The log ends before `stop`, or compaction removed all records up to it.
            self.position = self._range.stop

    def _ask_for_more(self, fetched: Fetched) -> None:
        """Double the bytes to fetch. Raises FrameError where `limits` allows no more."""
        maximum = self._limits.frame - HEADROOM
        if self._question.partition_bytes >= maximum:
            start = int(fetched.table["start"][0]) + int(fetched.table["records_at"][0])
            raise FrameError(
                Fault.BAD_LENGTH, start, 0, fetched.table.bytes(0, "records") or b"", self._name
            )
        doubled = min(2 * self._question.partition_bytes, maximum)
        self._question = replace(
            self._question,
            partition_bytes=doubled,
            max_bytes=max(doubled, self._question.max_bytes),
        )
