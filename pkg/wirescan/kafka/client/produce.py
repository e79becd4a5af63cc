"""The operation that sends record sets to their partition leaders once: `produce`.

It also returns the outcome of each record set. A record set that failed may be in the log. What the
client knows after a failure:

    the request was not sent            the record set is not in the log
    it was sent, without an answer      the record set may be in the log, or may be written later
    an error that a leader reports      the record set is not in the log. MESSAGE_TOO_LARGE,
      before it writes                  NOT_ENOUGH_REPLICAS ...
    an error that a leader reports      the record set may be in the log. REQUEST_TIMED_OUT,
      after it writes, too              NOT_ENOUGH_REPLICAS_AFTER_APPEND; NOT_LEADER_OR_FOLLOWER,
                                        where the leader changes while it waits for acks
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from wirescan.core.arguments import I32, check_integer
from wirescan.kafka.client.cluster import (
    NO_TOPIC_ID,
    Cluster,
    Leader,
    TopicPartition,
    decode_text,
)
from wirescan.kafka.client.effects import Answer, Begin, Exchange, Finish, Node, Operation
from wirescan.kafka.constants import MAGIC_AT
from wirescan.kafka.encode.records import CODECS
from wirescan.kafka.protocol.error_codes import BrokerError, ErrorCode
from wirescan.kafka.protocol.schema import get_message

ACKS = (-1, 0, 1)
MAX_REQUEST_BYTES = (1 << 31) - (1 << 20)  # of the record sets in a request
# The first versions of Produce with a property.
WITH_MAGIC_1 = 2
WITH_BATCHES = 3  # magic 2
WITH_ZSTD = 7
PRODUCE_BY_ID = 13  # topics are named by their ids
STOP_VERSION = get_message("Produce", "request").versions.stop
# Positions in a batch of magic 2; the magic is at the same position in messages of magic 0 and 1.
ATTRIBUTES_AT = 22
CODEC_BITS = 7
# Errors that may pass, after which a leader has written nothing.
BEFORE_WRITING = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}


class Produced(NamedTuple):
    """The outcome of a record set.

    base_offset: the offset of its first record; -1: not reported.
    log_append_time: the time at which the broker appended it, in milliseconds; -1 where that is not
        its timestamp.
    error: the exception that it failed with, or None.
    in_doubt: whether it may be in the log in spite of the error, or may be written later.
    """

    base_offset: int = -1
    log_append_time: int = -1
    error: Exception | None = None
    in_doubt: bool = False


@dataclass
class Request:
    """A Produce request to one leader.

    node: the leader.
    share: the leader's partitions.
    records: the record set of a partition in a version of the API.
    acks, timeout_ms: as in `produce`.
    versions: the versions of the API that may be used.
    is_sent: whether the request may have been sent.
    """

    node: Node
    share: Mapping[TopicPartition, Leader]
    records: Callable[[TopicPartition, int], Any]
    acks: int
    timeout_ms: int
    versions: range
    is_sent: bool = False

    @property
    def exchange(self) -> Exchange:
        """A new Exchange with the request."""
        versions = self.versions
        if any(leader.topic_id == NO_TOPIC_ID for leader in self.share.values()):
            versions = range(versions.start, min(versions.stop, PRODUCE_BY_ID))
        is_answered = self.acks != 0
        seconds = self.timeout_ms / 1000
        return Exchange(
            self.node, "Produce", self._encode_body, versions, answered=is_answered, seconds=seconds
        )

    def finish(self, ticket: Any) -> Operation[dict[TopicPartition, Produced]]:
        """Return the outcome of each partition's record set.

        If the exchange fails, all record sets have failed with its exception.
        """
        try:
            return self._read((yield Finish(ticket)))
        except (OSError, BrokerError, ValueError, MemoryError) as error:
            return dict.fromkeys(self.share, Produced(error=error, in_doubt=self.is_sent))

    def _encode_body(self, version: int) -> dict[str, Any]:
        topics: dict[Any, list[dict[str, Any]]] = {}
        size = 0
        for (topic, partition), leader in self.share.items():
            records = self.records((topic, partition), version)
            size += memoryview(records).nbytes
            fields = {"index": partition, "records": records}
            topics.setdefault(leader.topic_id if version >= PRODUCE_BY_ID else topic, []).append(
                fields
            )
        if size > MAX_REQUEST_BYTES:
            raise ValueError(
                f"the record sets for {self.node} do not fit in one request: send fewer at a time"
            )
        # The driver asks for the body when it has a connection, and sends it at once.
        self.is_sent = True
        key = "topic_id" if version >= PRODUCE_BY_ID else "name"
        return {
            "acks": self.acks,
            "timeout_ms": self.timeout_ms,
            "topic_data": [
                {key: topic, "partition_data": fields} for topic, fields in topics.items()
            ],
        }

    def _read(self, answer: Answer) -> dict[TopicPartition, Produced]:
        if answer.table is None:
            return dict.fromkeys(self.share, Produced())
        topics = answer.table.open("responses")
        topic_of_id = {leader.topic_id: topic for (topic, _), leader in self.share.items()}
        names = [
            topic_of_id.get(bytes(row.topic_id))
            if answer.version >= PRODUCE_BY_ID
            else decode_text(row.name)
            for row in topics
        ]
        missing = ConnectionError(f"{self.node} leaves a partition out of its Produce response")
        results = dict.fromkeys(self.share, Produced(error=missing, in_doubt=True))
        for row in topics.open("partition_responses"):
            partition = names[row.parent], row.index
            if partition not in results:
                continue
            error = None
            if row.error_code:
                subject = f"{partition[0]}-{partition[1]} at {self.node}"
                error = BrokerError(row.error_code, subject, decode_text(row.error_message))
            results[partition] = Produced(
                row.base_offset, row.log_append_time_ms, error, may_be_written(error)
            )
        return results


def may_be_written(error: BrokerError | None) -> bool:
    """Return whether a leader may have written a record set that it answers with this error."""
    if error is None:
        return False
    return (
        not isinstance(error.code, ErrorCode)
        or error.code == ErrorCode.UNKNOWN_SERVER_ERROR
        or error.retriable
        and error.code not in BEFORE_WRITING
    )


def get_magic(version: int) -> int:
    """Return the magic of record sets in a version of Produce."""
    if version >= WITH_BATCHES:
        return 2
    return 1 if version == WITH_MAGIC_1 else 0


def check(acks: int, timeout_ms: int) -> None:
    """Raise ValueError or TypeError for values that no Produce request may have."""
    if acks not in ACKS:
        raise ValueError(
            f"acks must be -1 (all replicas in sync), 1 (the leader) or 0 (none), not {acks!r}"
        )
    check_integer(timeout_ms, "timeout_ms", (0, I32[1]))


def produce(
    cluster: Cluster, sets: Mapping[TopicPartition, Any], acks: int, timeout_ms: int
) -> Operation[dict[TopicPartition, Produced]]:
    """Make one attempt at each record set. See `Operations.produce`."""
    check(acks, timeout_ms)
    versions = {partition: find_versions(data, *partition) for partition, data in sets.items()}
    results: dict[TopicPartition, Produced] = {}
    shares: dict[tuple[Node, range], dict[TopicPartition, Leader]] = {}
    leaders = yield from cluster.find_leaders(sets)
    for partition, leader in leaders.items():
        if isinstance(leader, Exception):
            results[partition] = Produced(error=leader)
        else:
            shares.setdefault((leader.node, versions[partition]), {})[partition] = leader
    requests = [
        Request(node, share, lambda partition, _: sets[partition], acks, timeout_ms, allowed)
        for (node, allowed), share in shares.items()
    ]
    tickets = []
    for request in requests:
        tickets.append((yield Begin(request.exchange)))
    for request, ticket in zip(requests, tickets):
        results |= yield from request.finish(ticket)
    for (topic, _), result in results.items():
        if result.error is not None:
            cluster.forget(topic)
    return {partition: results[partition] for partition in sets}


def find_versions(data: Any, topic: str, partition: int) -> range:
    """Return the versions of Produce that may carry a record set, by its magic and codec.

    Raises ValueError where the bytes are no record set, TypeError where they are not bytes-like.
    """
    try:
        view = memoryview(data).cast("B")
    except (TypeError, ValueError):
        raise TypeError(
            f"{topic}-{partition}: a record set must be bytes, not {type(data).__name__}"
        ) from None
    magic = view[MAGIC_AT] if len(view) > ATTRIBUTES_AT else -1
    if magic not in (0, 1, 2):
        raise ValueError(
            f"{topic}-{partition}: a record set begins with a batch or message of magic 0, 1 or 2"
        )
    if magic == 2:
        is_zstd = view[ATTRIBUTES_AT] & CODEC_BITS == CODECS["zstd"][0]
        return range(WITH_ZSTD if is_zstd else WITH_BATCHES, STOP_VERSION)
    return range(WITH_MAGIC_1 * magic, WITH_BATCHES)
