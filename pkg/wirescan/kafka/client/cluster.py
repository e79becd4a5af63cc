"""What is known of a cluster: its brokers and the leaders of partitions; and how often something is tried again."""
from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from struct import unpack
from typing import Any, NamedTuple, TypeVar

import numpy as np

from wirescan.core.fault import Fault
from wirescan.errors import FrameError
from wirescan.kafka.client.effects import Answer, Exchange, Node, Now, Operation, Together, Wait, may_pass
from wirescan.kafka.errors import BrokerError, ErrorCode
from wirescan.limits import Limits
from wirescan.table import FrameTable

Item = TypeVar("Item")
Result = TypeVar("Result")
TopicPartition = tuple[str, int]

UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
NO_ID = bytes(16)
ASKED = 3                   # brokers of those that are known, before those of bootstrap
ROWS = 1_000_000            # brokers, topics, partitions and replicas of a response, each: beyond, it is not taken
MOST = Limits(rows=ROWS)


class Partition(NamedTuple):
    """A partition: the id of its leader (-1: none), the leader's epoch (-1: not told), the ids of its replicas and of
    those in sync, and an ErrorCode or number."""
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error: int


@dataclass(frozen=True)
class Topic:
    """A topic: its id (16 bytes; zeros where brokers have none), its partitions by number, an ErrorCode or number."""
    name: str
    id: bytes
    is_internal: bool
    error: int
    partitions: Mapping[int, Partition]


@dataclass(frozen=True)
class Metadata:
    """What a Metadata response tells: brokers by id, topics by name; the cluster's id and controller, where told."""
    cluster_id: str | None
    controller: int
    brokers: Mapping[int, Node]
    topics: Mapping[str, Topic]


class Leader(NamedTuple):
    """Who leads a partition, since which epoch (-1: not told), and the id of its topic."""
    node: Node
    epoch: int
    topic_id: bytes


@dataclass(frozen=True)
class Retries:
    """How often and how long something is tried again: at most `attempts` in all, for at most `seconds`, with pauses
    that double from `first` to `longest`, each shortened at random by up to half. What a broker does not know may be
    new, so that is tried again too, but only `unknown` times."""
    attempts: int = 12
    seconds: float = 60.0
    first: float = 0.1
    longest: float = 2.0
    unknown: int = 5


class Patience:
    """Counts the attempts at one thing."""

    def __init__(self, retries: Retries, chance: random.Random):
        self._retries, self._chance = retries, chance
        self._failed, self._unknown = 0, 0
        self._since: float | None = None

    def until(self, now: float) -> float:
        """Begins to count, if that is not done: the time when the seconds are over."""
        self._since = now if self._since is None else self._since
        return self._since + self._retries.seconds

    def wait(self, error: BaseException) -> Operation[None]:
        """Pauses after a failure; raises it where it cannot pass or there were enough."""
        pause = self.pause(error, (yield Now()))
        if pause is None:
            raise error
        yield Wait(pause)

    def pause(self, error: BaseException, now: float) -> float | None:
        """The seconds to wait after a failure; None where it cannot pass or there were enough."""
        until = self.until(now)
        self._failed += 1
        self._unknown += isinstance(error, BrokerError) and error.code in UNKNOWN
        pause = min(self._retries.longest, self._retries.first * 2 ** min(self._failed - 1, 62))
        pause *= 1 - self._chance.random() / 2
        if (not may_pass(error) or self._failed >= self._retries.attempts or self._unknown >= self._retries.unknown
                or now + pause > until):
            if self._failed > 1:
                error.add_note(f"after {self._failed} attempts in {now - until + self._retries.seconds:.1f} seconds")
            return None
        return pause

    def progress(self) -> None:
        """It went on: what fails from now on is something new."""
        self._failed, self._unknown, self._since = 0, 0, None


@dataclass
class Cluster:
    """A cluster, as it was last seen. `brokers` and `topics` are filled and kept by operations.

    bootstrap: nodes to begin with. chance: for pauses, and for which broker is asked; seed it to have them repeat.
    """
    bootstrap: Sequence[Node]
    retries: Retries = Retries()
    chance: random.Random = field(default_factory=random.Random)
    brokers: dict[int, Node] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)

    def patience(self) -> Patience:
        """A new count of attempts."""
        return Patience(self.retries, self.chance)

    def metadata(self, topics: Iterable[str] | None = None, patience: Patience | None = None) -> Operation[Metadata]:
        """Asks for topics, or for all; remembers what it is told. Errors of a topic stand in its `error`. patience: of
        what this is a part of."""
        names, patience = None if topics is None else list(topics), patience or self.patience()
        while True:
            try:
                return (yield from self._ask_metadata(names, patience))
            except (OSError, BrokerError) as error:
                yield from patience.wait(error)

    def topic(self, name: str) -> Operation[Topic]:
        """Asks for a topic, again as long as its error may pass: one with partitions."""
        patience = self.patience()
        while True:
            known = (yield from self.metadata([name], patience)).topics.get(name)
            if known is not None and known.partitions and not known.error:
                return known
            self.forget(name)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else known.error
            yield from patience.wait(BrokerError(code or ErrorCode.LEADER_NOT_AVAILABLE, name))

    def leader(self, topic: str, partition: int, patience: Patience | None = None) -> Operation[Leader]:
        """Who leads a partition, from memory, or else asked for, once. Raises BrokerError where there is none, and
        ConnectionError or TimeoutError where no broker can be reached; then `forget` the topic."""
        if self._unknown([topic]):
            yield from self._ask_metadata([topic], patience or self.patience())
        return self._leader(topic, partition)

    def leaders(self, wanted: Iterable[TopicPartition]) -> Operation[dict[TopicPartition, Leader | Exception]]:
        """Who leads each partition, from memory; topics that are not known are asked for, once and together. What
        `leader` raises stands in its place, and FrameError; then `forget` the topic."""
        wanted = list(wanted)
        unknown, failure = self._unknown(topic for topic, _ in wanted), None
        if unknown:
            try:
                yield from self._ask_metadata(unknown, self.patience())
            except (OSError, BrokerError, FrameError) as error:
                failure = error
        found: dict[TopicPartition, Leader | Exception] = {}
        for one in wanted:
            try:
                found[one] = failure if failure is not None and one[0] in unknown else self._leader(*one)
            except BrokerError as error:
                found[one] = error
        return found

    def forget(self, topic: str) -> None:
        """The leaders of a topic have changed, or may have: they are asked for when they are needed next."""
        self.topics.pop(topic, None)

    def each(self, wanted: Mapping[TopicPartition, Item],
             ask: Callable[[Node, dict[TopicPartition, tuple[Item, Leader]]],
                           Operation[Mapping[TopicPartition, Result | Exception]]]
             ) -> Operation[dict[TopicPartition, Result]]:
        """Asks the leader of each partition, all leaders side by side, and again as long as an error may pass.

        ask: an operation that asks one leader for some partitions; what it gives for each of them is a result or an
        error. Raises the first error that lasts."""
        found: dict[TopicPartition, Result] = {}
        left, patience = dict(wanted), self.patience()
        while left:
            if unknown := self._unknown(topic for topic, _ in left):
                try:
                    yield from self._ask_metadata(unknown, patience)
                except (OSError, BrokerError) as error:
                    yield from patience.wait(error)
                    continue
            errors: dict[TopicPartition, Exception] = {}
            shares: dict[Node, dict[TopicPartition, tuple[Item, Leader]]] = {}
            for one, item in left.items():
                try:
                    leader = self._leader(*one)
                    shares.setdefault(leader.node, {})[one] = item, leader
                except BrokerError as error:
                    errors[one] = error
            outcomes = yield Together([ask(node, share) for node, share in shares.items()])
            for share, outcome in zip(shares.values(), outcomes):
                if isinstance(outcome, Exception):
                    outcome = dict.fromkeys(share, outcome)
                lost = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "a partition that the answer leaves out")
                for one in share:
                    result = outcome.get(one, lost)
                    if isinstance(result, Exception):
                        errors[one] = result
                    else:
                        found[one] = result
            if errors:
                worst = next((error for error in errors.values() if not may_pass(error)), None)
                yield from patience.wait(worst or next(iter(errors.values())))
            left = {one: left[one] for one in errors}
            for topic, _ in errors:
                self.forget(topic)
        return found

    def _unknown(self, topics: Iterable[str]) -> list[str]:
        """The topics that have to be asked for: an error that was told before may have passed."""
        return sorted(topic for topic in set(topics) if topic not in self.topics or self.topics[topic].error)

    def _leader(self, topic: str, partition: int) -> Leader:
        known = self.topics.get(topic)
        error: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known is None else known.error
        if known is not None and not error:
            found = known.partitions.get(partition)
            node = None if found is None else self.brokers.get(found.leader)
            if found is not None and node is not None:
                return Leader(node, found.leader_epoch, known.id)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else (
                found.error or ErrorCode.LEADER_NOT_AVAILABLE)
        raise BrokerError(error, f"{topic}-{partition}")

    def _ask_metadata(self, names: list[str] | None, patience: Patience) -> Operation[Metadata]:
        """Asks one broker after another, until one answers or the time is over."""
        known = list(self.brokers.values())
        until = patience.until((yield Now()))
        error: Exception = ConnectionError("no broker to ask")
        for node in [*self.chance.sample(known, min(len(known), ASKED)), *self.bootstrap]:
            try:
                answer = yield Exchange(node, "Metadata", lambda version: _metadata_body(names, version))
            except (ConnectionError, TimeoutError) as one:
                error = one
                if (yield Now()) >= until:
                    break
                continue
            return self._learn(answer, node)
        raise error

    def _learn(self, answer: Answer, node: Node) -> Metadata:
        found = read_metadata(answer.table, node)
        if found.brokers:
            self.brokers = dict(found.brokers)
        self.topics = {**self.topics, **found.topics}
        return found


def _metadata_body(names: list[str] | None, version: int) -> dict[str, Any]:
    if names is None:
        return {"topics": None if version else []}
    return {"topics": [{"name": name} for name in names], **({"allow_auto_topic_creation": 0} if version >= 4 else {})}


def read_metadata(table: FrameTable, node: Node) -> Metadata:
    """A Metadata response as objects. Raises BrokerError for an error of the whole, FrameError where it lies or has
    more than ROWS."""
    if code := int(table["error_code"][0]):
        raise BrokerError(code, f"Metadata at {node}")
    found, topics = table.open("brokers", limits=MOST), table.open("topics", limits=MOST)
    brokers = {number: Node(number, text(host) or "", port) for number, host, port in
               zip(found["node_id"].tolist(), _places(found, "host"), found["port"].tolist())}
    partitions: list[dict[int, Partition]] = [{} for _ in range(len(topics))]
    inside = topics.open("partitions", limits=MOST)
    for parent, index, *its in zip(
            inside["parent"].tolist(), inside["partition_index"].tolist(), inside["leader_id"].tolist(),
            inside["leader_epoch"].tolist(), _numbers(inside, "replica_nodes"), _numbers(inside, "isr_nodes"),
            _errors(inside)):
        partitions[parent][index] = Partition(*its)
    names = [text(name) or "" for name in _places(topics, "name")]
    columns = zip(names, _places(topics, "topic_id"), topics["is_internal"].tolist(), _errors(topics), partitions)
    named = {name: Topic(name, bytes(number or NO_ID), is_internal != 0, error, its)
             for name, number, is_internal, error, its in columns}
    return Metadata(text(table.bytes(0, "cluster_id")), int(table["controller_id"][0]), brokers, named)


def error_of(code: int) -> int:
    """An ErrorCode, or the number where it is of none known."""
    return BrokerError(code).code


def text(place: memoryview | None) -> str | None:
    """A place of a broker's that should be text."""
    return None if place is None else bytes(place).decode("utf-8", "backslashreplace")


def _errors(table: FrameTable) -> list[int]:
    codes = table["error_code"].tolist()
    known = {code: error_of(code) for code in set(codes)}
    return [known[code] for code in codes]


def _places(table: FrameTable, name: str) -> list[memoryview | None]:
    """A place of all rows."""
    starts, sizes = table["start"] + table[name + "_at"], table[name + "_size"]
    return [None if size < 0 else table.buffers[buffer][at:at + size]
            for buffer, at, size in zip(table["buffer"].tolist(), starts.tolist(), sizes.tolist())]


def _numbers(table: FrameTable, name: str) -> list[tuple[int, ...]]:
    """A place of all rows that holds int32."""
    if table[name + "_size"].sum(dtype=np.int64) > 4 * ROWS:
        raise FrameError(Fault.LIMIT, int(table["start"][0]), 0, table.frame(0), name)
    return [() if place is None else unpack(f">{len(place) // 4}i", place) for place in _places(table, name)]


def nodes(bootstrap: str | Sequence[str]) -> list[Node]:
    """Addresses as nodes: "host:port", several with commas or as a list; IPv6 as "[::1]:9092". Raises ValueError."""
    if isinstance(bootstrap, str):
        bootstrap = bootstrap.split(",")
    found = []
    for address in map(str.strip, bootstrap):
        host, _, port = address.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            host = ""
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"an address is host:port, or [IPv6]:port, not {address!r}")
        found.append(Node(-1, host, int(port)))
    if not found:
        raise ValueError("bootstrap names no broker")
    return found
