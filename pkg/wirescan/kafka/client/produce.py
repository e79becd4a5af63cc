"""Produce requests: record sets to the leaders of their partitions, once; and what each of them came to.

A record set that failed may be in the log all the same. What is known of it:

    the request was not sent                    it is not there
    sent, and the answer did not come           it may be there, or may yet come
    an error that a leader gives before it      it is not there: MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS ...
      writes
    an error that it gives after, too           it may be there: REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                                                NOT_LEADER_OR_FOLLOWER, where the leader changes as it waits for acks
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from wirescan.kafka.client.cluster import NO_ID, Cluster, Leader, TopicPartition, text
from wirescan.kafka.client.effects import Answer, Begin, Exchange, Finish, Node, Operation
from wirescan.kafka.encode import CODECS
from wirescan.kafka.errors import BrokerError, ErrorCode
from wirescan.kafka.schema import message_of

ACKS = (-1, 0, 1)
I32 = 1 << 31
LARGEST = I32 - (1 << 20)                       # bytes of the record sets in a request
BY_ID = 13                                      # the version from which on topics are named by their ids
NEWEST = message_of("Produce", "request").versions.stop
BATCHES, ZSTD = 3, 7                            # the first versions that carry magic 2, and zstd
RECORDS = itemgetter("records")
MAGIC_AT, ATTRIBUTES_AT, CODEC_BITS = 16, 22, 7
# Errors that may pass, of a leader that has written nothing.
BEFORE = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS,
          ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}


class Produced(NamedTuple):
    """What became of a record set: the offset of its first record (-1: not told), the time in milliseconds at which the
    broker appended it where that is its timestamp (-1: it is not), what it failed with or None, and whether it may be
    in the log for all that, or may yet come to it."""
    base_offset: int
    log_append_time: int
    error: Exception | None
    in_doubt: bool


class Request:
    """A Produce request to one leader.

    share: its partitions. records: the record set of a partition in a version of the API."""

    def __init__(self, node: Node, share: Mapping[TopicPartition, Leader],
                 records: Callable[[TopicPartition, int], Any], acks: int, timeout_ms: int, versions: range):
        self._node, self._share, self._records, self._acks, self._timeout_ms = node, share, records, acks, timeout_ms
        self._sent = False
        if any(leader.topic_id == NO_ID for leader in share.values()):
            versions = range(versions.start, min(versions.stop, BY_ID))
        self.exchange = Exchange(node, "Produce", self._body, versions, acks != 0, timeout_ms / 1000)

    def finish(self, ticket: Any) -> Operation[dict[TopicPartition, Produced]]:
        """What became of each partition's record set. Whatever the exchange fails with, they failed with."""
        try:
            return self._read((yield Finish(ticket)))
        except (OSError, BrokerError, ValueError, MemoryError) as error:
            return dict.fromkeys(self._share, Produced(-1, -1, error, self._sent))

    def _body(self, version: int) -> dict[str, Any]:
        topics: dict[Any, list[dict[str, Any]]] = {}
        for one, leader in self._share.items():
            topics.setdefault(leader.topic_id if version >= BY_ID else one[0], []).append(
                {"index": one[1], "records": self._records(one, version)})
        name = "topic_id" if version >= BY_ID else "name"
        if sum(memoryview(records).nbytes for its in topics.values() for records in map(RECORDS, its)) > LARGEST:
            raise ValueError(f"the record sets for {self._node} do not fit in one request: send fewer at a time")
        self._sent = True                       # a body is asked for when there is a connection, to be sent at once
        return {"acks": self._acks, "timeout_ms": self._timeout_ms,
                "topic_data": [{name: topic, "partition_data": its} for topic, its in topics.items()]}

    def _read(self, answer: Answer) -> dict[TopicPartition, Produced]:
        if answer.table is None:
            return dict.fromkeys(self._share, Produced(-1, -1, None, False))
        topics = answer.table.open("responses")
        of_id = {leader.topic_id: topic for (topic, _), leader in self._share.items()}
        names = [of_id.get(bytes(row.topic_id)) if answer.version >= BY_ID else text(row.name) for row in topics]
        missing = ConnectionError(f"{self._node} answers Produce, and leaves a partition out")
        found = dict.fromkeys(self._share, Produced(-1, -1, missing, True))
        for row in topics.open("partition_responses"):
            one = names[row.parent], row.index
            if one in found:
                error = BrokerError(row.error_code, f"{one[0]}-{one[1]} at {self._node}",
                                    text(row.error_message)) if row.error_code else None
                found[one] = Produced(row.base_offset, row.log_append_time_ms, error, may_be_written(error))
        return found


def may_be_written(error: BrokerError | None) -> bool:
    """Whether a leader may have written what it answers with this error."""
    if error is None:
        return False
    return (not isinstance(error.code, ErrorCode) or error.code == ErrorCode.UNKNOWN_SERVER_ERROR
            or error.retriable and error.code not in BEFORE)


def magic_of(version: int) -> int:
    """The magic of record sets in a version of Produce."""
    return 2 if version >= BATCHES else 1 if version == 2 else 0


def check(acks: int, timeout_ms: int) -> None:
    """Raises ValueError for what no Produce request may have."""
    if acks not in ACKS:
        raise ValueError(f"acks must be -1 (all replicas in sync), 1 (the leader) or 0 (none), not {acks!r}")
    if not 0 <= timeout_ms < I32:
        raise ValueError(f"timeout_ms must be 0 to {I32 - 1}, not {timeout_ms}")


def produce(cluster: Cluster, sets: Mapping[TopicPartition, Any], acks: int,
            timeout_ms: int) -> Operation[dict[TopicPartition, Produced]]:
    """One attempt at each record set. See `Operations.produce`."""
    check(acks, timeout_ms)
    versions = {one: versions_of(data, *one) for one, data in sets.items()}
    found: dict[TopicPartition, Produced] = {}
    shares: dict[tuple[Node, range], dict[TopicPartition, Leader]] = {}
    leaders = yield from cluster.leaders(sets)
    for one, leader in leaders.items():
        if isinstance(leader, Exception):
            found[one] = Produced(-1, -1, leader, False)
        else:
            shares.setdefault((leader.node, versions[one]), {})[one] = leader
    requests = [Request(node, share, lambda one, version: sets[one], acks, timeout_ms, within)
                for (node, within), share in shares.items()]
    tickets = []
    for request in requests:
        tickets.append((yield Begin(request.exchange)))
    for request, ticket in zip(requests, tickets):
        found |= yield from request.finish(ticket)
    for (topic, _), one_found in found.items():
        if one_found.error is not None:
            cluster.forget(topic)
    return {one: found[one] for one in sets}


def versions_of(data: Any, topic: str, partition: int) -> range:
    """The versions of Produce that may carry a record set, by its magic and codec. Raises ValueError where it is none,
    TypeError where it is not bytes-like."""
    try:
        view = memoryview(data).cast("B")
    except (TypeError, ValueError):
        raise TypeError(f"{topic}-{partition}: a record set is bytes, not {type(data).__name__}") from None
    magic = view[MAGIC_AT] if len(view) > ATTRIBUTES_AT else -1
    if magic not in (0, 1, 2):
        raise ValueError(f"{topic}-{partition}: a record set begins with a batch or message of magic 0, 1 or 2")
    if magic == 2:
        return range(ZSTD if view[ATTRIBUTES_AT] & CODEC_BITS == CODECS["zstd"][0] else BATCHES, NEWEST)
    return range(2 * magic, BATCHES)
