"""Several real brokers. Tests stop, kill and restart a partition's leader while clients use it.

    with Cluster(brokers=2) as cluster:
        cluster.create_topic("orders", partitions=2, replicas=2)
        leader = cluster.leader("orders")       # a Broker
        leader.kill()                           # or stop()
        cluster.await_leader("orders", but=leader)
        leader.restart()
        cluster.await_in_sync("orders")

Node 100 is only a controller and never ends, so every broker may end. A killed broker counts as
dead after three seconds. A stopped broker hands its partitions over first.
"""

import tempfile
import time
from pathlib import Path

from .broker import PROPERTIES, Broker, Node, create_topic, make_cluster_id
from .ports import find_free_ports

CONTROLLER = 100


class Cluster:
    """Running brokers.

    `brokers` has them by number, from 1. `address` lists all of them for bootstrapping.
    """

    def __init__(
        self, brokers: int = 2, properties: dict[str, object] | None = None, *, line: str = "3.9"
    ):
        self.line = line
        properties = (
            PROPERTIES
            | {
                "offsets.topic.replication.factor": brokers,
                "transaction.state.log.replication.factor": brokers,
            }
            | (properties or {})
        )
        self.brokers = {
            number: Broker(properties | {"process.roles": "broker", "node.id": number}, line=line)
            for number in range(1, brokers + 1)
        }
        self._controller = Node(
            properties | {"process.roles": "controller", "node.id": CONTROLLER}, line
        )

    def __enter__(self) -> "Cluster":
        self._home = tempfile.TemporaryDirectory(prefix="wirescan-cluster-")
        try:
            self._start(Path(self._home.name))
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, home: Path) -> None:
        cluster = make_cluster_id()
        (port,) = find_free_ports(1)
        quorum = {"controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{port}"}
        self._controller.format(
            home / "controller", cluster, quorum | {"listeners": f"CONTROLLER://127.0.0.1:{port}"}
        )
        for number, broker in self.brokers.items():
            broker.format(home / str(number), cluster, quorum)
        self.address = ",".join(broker.address for broker in self.brokers.values())
        for node in (self._controller, *self.brokers.values()):
            node.launch()
        for node in (self._controller, *self.brokers.values()):
            node.await_started()

    def __exit__(self, *_) -> None:
        for node in (*self.brokers.values(), self._controller):
            node.stop()
        self._home.cleanup()

    def create_topic(
        self,
        name: str,
        config: dict[str, object] | None = None,
        *,
        partitions: int = 1,
        replicas: int = 2,
    ) -> None:
        create_topic(self.address, self.line, name, config or {}, partitions, replicas)
        for partition in range(partitions):
            self.await_in_sync(name, partition)

    def leader(self, topic: str, partition: int = 0) -> Broker:
        return self.brokers[self._partition(topic, partition).leader]

    def await_leader(self, topic: str, partition: int = 0, *, but: Broker | None = None) -> Broker:
        """Wait for a leader other than `but`, and return it."""
        excluded = None if but is None else but.properties["node.id"]

        def has_leader(metadata) -> bool:
            return metadata.leader not in (-1, excluded)

        return self.brokers[self._await(topic, partition, has_leader).leader]

    def await_in_sync(self, topic: str, partition: int = 0) -> None:
        """Wait until every replica is in sync, also those of restarted brokers."""

        def is_in_sync(metadata) -> bool:
            return metadata.leader >= 0 and len(metadata.isrs) == len(metadata.replicas)

        self._await(topic, partition, is_in_sync)

    def _await(self, topic: str, partition: int, condition, timeout: float = 60):
        until = time.monotonic() + timeout
        while (metadata := self._partition(topic, partition)) is None or not condition(metadata):
            if time.monotonic() > until:
                raise TimeoutError(f"{topic}-{partition}: {metadata}")
            time.sleep(0.1)
        return metadata

    def _partition(self, topic: str, partition: int):
        from confluent_kafka.admin import AdminClient

        running = [
            broker.address for broker in self.brokers.values() if broker.process.poll() is None
        ]
        admin = AdminClient({"bootstrap.servers": ",".join(running), "log_level": 0})
        return admin.list_topics(topic, 30).topics[topic].partitions.get(partition)
