"""The client's view of a cluster: its brokers and partition leaders, and the retry rules.

Operations use `Cluster` to find the leader of a partition, and `Patience` to retry after errors.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from struct import unpack
from typing import Any, NamedTuple, TypeVar

import numpy as np

from wirescan.core.fault import Fault
from wirescan.frames.errors import FrameError
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.kafka.client.effects import (
    Exchange,
    Node,
    Now,
    Operation,
    Result,
    Together,
    Wait,
    may_pass,
)
from wirescan.kafka.protocol.error_codes import BrokerError, ErrorCode

Item = TypeVar("Item")
TopicPartition = tuple[str, int]

UNKNOWN_TOPIC_CODES = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
NO_TOPIC_ID = bytes(16)
BROKERS_TO_ASK = 3  # brokers of the cluster that are asked before the bootstrap nodes
# The most brokers, topics, partitions and replicas, each, of a response that is accepted.
MAX_METADATA_ROWS = 1_000_000
METADATA_LIMITS = Limits(rows=MAX_METADATA_ROWS)
FIRST_VERSION_WITH_AUTO_CREATION = 4  # of Metadata
MAX_DOUBLINGS = 62  # of a pause; keeps the power of 2 finite
MAX_PORT = (1 << 16) - 1


class Partition(NamedTuple):
    """A partition of a topic.

    leader: the id of its leader; -1: none.
    leader_epoch: the epoch of its leader; -1: not reported.
    replicas, in_sync: the ids of its replicas, and of those in sync.
    error: an ErrorCode, or the number of an unknown code.
    offline: the ids of the replicas that are offline.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error: int
    offline: tuple[int, ...] = ()


@dataclass(frozen=True)
class Topic:
    """A topic.

    id: 16 bytes; zeros where the brokers have no topic ids.
    error: an ErrorCode, or the number of an unknown code.
    partitions: the partitions by number.
    """

    name: str
    id: bytes
    is_internal: bool
    error: int
    partitions: Mapping[int, Partition]


@dataclass(frozen=True)
class Metadata:
    """The content of a Metadata response.

    cluster_id: None where the broker does not report it.
    controller: the id of the controller; -1: not reported.
    brokers: the brokers by id.
    topics: the topics by name.
    racks: the rack of each broker that has one.
    """

    cluster_id: str | None
    controller: int
    brokers: Mapping[int, Node]
    topics: Mapping[str, Topic]
    racks: Mapping[int, str] = field(default_factory=dict)


class Leader(NamedTuple):
    """The leader of a partition, its epoch (-1: not reported), and the id of the topic."""

    node: Node
    epoch: int
    topic_id: bytes


@dataclass(frozen=True)
class Retries:
    """How often, and for how long, an operation is retried.

    attempts: the most attempts in all.
    seconds: the longest time for all attempts.
    first, longest: seconds of the first pause and of the longest one. Pauses double; each is
        shortened at random by up to half.
    unknown: the most attempts where a broker does not know the topic. The topic may be new, so the
        client retries, but fewer times.
    """

    attempts: int = 12
    seconds: float = 60.0
    first: float = 0.1
    longest: float = 2.0
    unknown: int = 5


class Patience:
    """Counts the attempts at one task and decides whether to retry it."""

    def __init__(self, retries: Retries, chance: random.Random):
        self._retries = retries
        self._chance = chance
        self._failures = 0
        self._unknown_topics = 0
        self._started: float | None = None

    def get_deadline(self, now: float) -> float:
        """Return the time at which the seconds are over; the first call starts the clock."""
        self._started = now if self._started is None else self._started
        return self._started + self._retries.seconds

    def wait(self, error: BaseException) -> Operation[None]:
        """Pause after a failure; raise the error where it cannot pass or no attempt is left."""
        pause = self.compute_pause(error, (yield Now()))
        if pause is None:
            raise error
        yield Wait(pause)

    def compute_pause(self, error: BaseException, now: float) -> float | None:
        """Return the seconds to wait after a failure.

        None: the error cannot pass, or no attempt is left.
        """
        deadline = self.get_deadline(now)
        self._failures += 1
        self._unknown_topics += isinstance(error, BrokerError) and error.code in UNKNOWN_TOPIC_CODES
        doublings = min(self._failures - 1, MAX_DOUBLINGS)
        pause = min(self._retries.longest, self._retries.first * 2.0**doublings)
        pause *= 1 - self._chance.random() / 2
        if (
            may_pass(error)
            and self._failures < self._retries.attempts
            and self._unknown_topics < self._retries.unknown
            and now + pause <= deadline
        ):
            return pause
        if self._failures > 1:
            elapsed = now - deadline + self._retries.seconds
            error.add_note(f"after {self._failures} attempts in {elapsed:.1f} seconds")
        return None

    def reset(self) -> None:
        """Start a new count after progress: the next failure is a new one."""
        self._failures = 0
        self._unknown_topics = 0
        self._started = None


@dataclass
class Cluster:
    """A cluster, as the client saw it last. Operations fill and update `brokers` and `topics`.

    bootstrap: the nodes to begin with.
    retries: the retry rules of every operation.
    chance: the random numbers for pauses and for the choice of a broker. Seed it to repeat them.
    """

    bootstrap: Sequence[Node]
    retries: Retries = Retries()
    chance: random.Random = field(default_factory=random.Random)
    brokers: dict[int, Node] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)

    def make_patience(self) -> Patience:
        """Return a new count of attempts."""
        return Patience(self.retries, self.chance)

    def fetch_metadata(
        self, topics: Iterable[str] | None = None, patience: Patience | None = None
    ) -> Operation[Metadata]:
        """Ask for topics, or for all where None is passed, and remember the answer.

        The error of a topic is in its `error`. patience: the count of attempts of the enclosing
        task; None starts a new one.
        """
        names = None if topics is None else list(topics)
        patience = patience or self.make_patience()
        while True:
            try:
                return (yield from self._ask_metadata(names, patience))
            except (OSError, BrokerError) as error:
                yield from patience.wait(error)

    def find_topic(self, name: str) -> Operation[Topic]:
        """Return a topic that has partitions; retry as long as its error may pass."""
        patience = self.make_patience()
        while True:
            topic = (yield from self.fetch_metadata([name], patience)).topics.get(name)
            if topic is not None and topic.partitions and not topic.error:
                return topic
            self.forget(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            yield from patience.wait(BrokerError(code or ErrorCode.LEADER_NOT_AVAILABLE, name))

    def find_leader(
        self, topic: str, partition: int, patience: Patience | None = None
    ) -> Operation[Leader]:
        """Return the leader of a partition from memory, or ask for it once.

        Raises BrokerError where there is none, ConnectionError or TimeoutError where no broker can
        be reached. After an error, `forget` the topic.
        """
        leaders = yield from self.find_leaders([(topic, partition)], patience)
        leader = leaders[topic, partition]
        if isinstance(leader, Exception):
            raise leader
        return leader

    def find_leaders(
        self, partitions: Iterable[TopicPartition], patience: Patience | None = None
    ) -> Operation[dict[TopicPartition, Leader | Exception]]:
        """Return the leader of each partition.

        Leaders come from memory. Topics that are unknown, or whose error may have passed, are asked
        for together, once. A partition without a leader has the exception that `find_leader`
        raises, or a FrameError; then `forget` the topic.
        """
        partitions = list(partitions)
        unknown = sorted(
            topic
            for topic in {topic for topic, _ in partitions}
            if topic not in self.topics or self.topics[topic].error
        )
        failure: Exception | None = None
        if unknown:
            try:
                yield from self._ask_metadata(unknown, patience or self.make_patience())
            except (OSError, BrokerError, FrameError) as error:
                failure = error
        return {
            (topic, partition): failure
            if failure is not None and topic in unknown
            else self._look_up_leader(topic, partition)
            for topic, partition in partitions
        }

    def forget(self, topic: str) -> None:
        """Forget the leaders of a topic, which may have changed; the next use asks for them."""
        self.topics.pop(topic, None)

    def ask_leaders(
        self,
        items: Mapping[TopicPartition, Item],
        ask: Callable[
            [Node, dict[TopicPartition, tuple[Item, Leader]]],
            Operation[Mapping[TopicPartition, Result | Exception]],
        ],
    ) -> Operation[dict[TopicPartition, Result]]:
        """Ask the leader of each partition, and retry as long as an error may pass.

        All leaders are asked concurrently.

        ask: an operation that asks one leader for some partitions. It returns a result or an error
            for each of them.

        Raises the first error that persists.
        """
        results: dict[TopicPartition, Result] = {}
        remaining = dict(items)
        patience = self.make_patience()
        while remaining:
            shares: dict[Node, dict[TopicPartition, tuple[Item, Leader]]] = {}
            errors: dict[TopicPartition, Exception] = {}
            leaders = yield from self.find_leaders(remaining, patience)
            for partition, leader in leaders.items():
                if isinstance(leader, Exception):
                    errors[partition] = leader
                else:
                    shares.setdefault(leader.node, {})[partition] = remaining[partition], leader
            for error in errors.values():
                if not may_pass(error):
                    raise error
            outcomes = yield Together([ask(node, share) for node, share in shares.items()])
            for share, outcome in zip(shares.values(), outcomes):
                for partition, result in _spread_outcome(share, outcome).items():
                    if isinstance(result, Exception):
                        errors[partition] = result
                    else:
                        results[partition] = result
            if errors:
                lasting = next((error for error in errors.values() if not may_pass(error)), None)
                yield from patience.wait(lasting or next(iter(errors.values())))
            remaining = {partition: remaining[partition] for partition in errors}
            for topic, _ in errors:
                self.forget(topic)
        return results

    def _look_up_leader(self, name: str, number: int) -> Leader | BrokerError:
        topic = self.topics.get(name)
        error: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if topic is not None and not error:
            partition = topic.partitions.get(number)
            if partition is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                node = self.brokers.get(partition.leader)
                if node is not None:
                    return Leader(node, partition.leader_epoch, topic.id)
                error = partition.error or ErrorCode.LEADER_NOT_AVAILABLE
        return BrokerError(error, f"{name}-{number}")

    def _ask_metadata(self, names: list[str] | None, patience: Patience) -> Operation[Metadata]:
        """Ask brokers, until one answers or the time is over, and remember the answer."""
        brokers = list(self.brokers.values())
        deadline = patience.get_deadline((yield Now()))
        failure: Exception = ConnectionError("there is no broker to ask")
        sample = self.chance.sample(brokers, min(len(brokers), BROKERS_TO_ASK))
        for node in [*sample, *self.bootstrap]:
            try:
                answer = yield Exchange(node, "Metadata", partial(_encode_metadata_body, names))
            except (ConnectionError, TimeoutError) as error:
                failure = error
                if (yield Now()) >= deadline:
                    break
                continue
            metadata = read_metadata(answer.table, node)
            if metadata.brokers:
                self.brokers = dict(metadata.brokers)
            self.topics = {**self.topics, **metadata.topics}
            return metadata
        raise failure


def _spread_outcome(share: Mapping[TopicPartition, Any], outcome: Any) -> dict[TopicPartition, Any]:
    """Return the result or exception of each partition of a share."""
    if isinstance(outcome, Exception):
        return dict.fromkeys(share, outcome)
    missing = BrokerError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "a partition that the answer leaves out"
    )
    return {partition: outcome.get(partition, missing) for partition in share}


def _encode_metadata_body(names: list[str] | None, version: int) -> dict[str, Any]:
    if names is None:
        return {"topics": None if version else []}
    body: dict[str, Any] = {"topics": [{"name": name} for name in names]}
    if version >= FIRST_VERSION_WITH_AUTO_CREATION:
        body["allow_auto_topic_creation"] = 0
    return body


def read_metadata(table: FrameTable, node: Node) -> Metadata:
    """Return a Metadata response as objects.

    Raises BrokerError for an error of the whole response, FrameError where the response is
    malformed or has more than MAX_METADATA_ROWS.
    """
    if code := int(table["error_code"][0]):
        raise BrokerError(code, f"Metadata at {node}")
    broker_rows = table.open("brokers", limits=METADATA_LIMITS)
    topic_rows = table.open("topics", limits=METADATA_LIMITS)
    brokers = {
        number: Node(number, decode_text(host) or "", port)
        for number, host, port in zip(
            broker_rows["node_id"].tolist(),
            _read_places(broker_rows, "host"),
            broker_rows["port"].tolist(),
        )
    }
    racks = {
        number: rack
        for number, place in zip(broker_rows["node_id"].tolist(), _read_places(broker_rows, "rack"))
        if (rack := decode_text(place)) is not None
    }
    partitions: list[dict[int, Partition]] = [{} for _ in range(len(topic_rows))]
    partition_rows = topic_rows.open("partitions", limits=METADATA_LIMITS)
    for parent, index, *fields in zip(
        partition_rows["parent"].tolist(),
        partition_rows["partition_index"].tolist(),
        partition_rows["leader_id"].tolist(),
        partition_rows["leader_epoch"].tolist(),
        _read_numbers(partition_rows, "replica_nodes"),
        _read_numbers(partition_rows, "isr_nodes"),
        _read_errors(partition_rows),
        _read_numbers(partition_rows, "offline_replicas"),
    ):
        partitions[parent][index] = Partition(*fields)
    names = [decode_text(name) or "" for name in _read_places(topic_rows, "name")]
    columns = zip(
        names,
        _read_places(topic_rows, "topic_id"),
        topic_rows["is_internal"].tolist(),
        _read_errors(topic_rows),
        partitions,
    )
    topics = {
        name: Topic(name, bytes(topic_id or NO_TOPIC_ID), is_internal != 0, error, by_number)
        for name, topic_id, is_internal, error, by_number in columns
    }
    cluster_id = decode_text(table.bytes(0, "cluster_id"))
    return Metadata(cluster_id, int(table["controller_id"][0]), brokers, topics, racks)


def decode_text(place: memoryview | None) -> str | None:
    """Return the text of a broker's string; bytes that are not UTF-8 become backslash escapes."""
    return None if place is None else bytes(place).decode("utf-8", "backslashreplace")


def _read_errors(table: FrameTable) -> list[int]:
    codes = table["error_code"].tolist()
    errors = {code: BrokerError(code).code for code in set(codes)}
    return [errors[code] for code in codes]


def _read_places(table: FrameTable, name: str) -> list[memoryview | None]:
    """Return the bytes of a place in all rows; None where it is null."""
    starts = table["start"] + table[name + "_at"]
    sizes = table[name + "_size"]
    return [
        None if size < 0 else table.buffers[buffer][start : start + size]
        for buffer, start, size in zip(table["buffer"].tolist(), starts.tolist(), sizes.tolist())
    ]


def _read_numbers(table: FrameTable, name: str) -> list[tuple[int, ...]]:
    """Return the int32 numbers in a place of all rows."""
    if table[name + "_size"].sum(dtype=np.int64) > 4 * MAX_METADATA_ROWS:
        raise FrameError(Fault.LIMIT, int(table["start"][0]), 0, table.frame(0), name)
    return [
        () if place is None else unpack(f">{len(place) // 4}i", place)
        for place in _read_places(table, name)
    ]


def parse_nodes(bootstrap: str | Sequence[str]) -> list[Node]:
    """Return bootstrap addresses as nodes.

    bootstrap: "host:port", several of them with commas between, or a list of them. An IPv6 address
    is "[::1]:9092". Raises ValueError for any other form.
    """
    if isinstance(bootstrap, str):
        bootstrap = bootstrap.split(",")
    result = []
    for address in map(str.strip, bootstrap):
        host, _, port = address.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            host = ""
        if not host or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
            raise ValueError(f"an address is host:port, or [IPv6]:port, not {address!r}")
        result.append(Node(-1, host, int(port)))
    if not result:
        raise ValueError("bootstrap names no broker")
    return result
