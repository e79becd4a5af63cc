"""Several real brokers, so that a partition's leader can be stopped, killed and restarted under its clients.

    with Cluster(brokers=2) as cluster:
        cluster.create_topic("orders", partitions=2, replicas=2)
        leader = cluster.leader("orders")       # a Broker
        leader.kill()                           # or stop()
        cluster.await_leader("orders", but=leader)
        leader.restart()
        cluster.await_in_sync("orders")

A node that is only a controller, number 100, outlives them all: any broker may go. A broker that was killed is taken
for dead after three seconds; one that is stopped hands over first.
"""
import tempfile
import time
from pathlib import Path

from .broker import PROPERTIES, Broker, Node, cluster_id, create_topic
from .ports import free_ports

CONTROLLER = 100


class Cluster:
    """Running brokers: `brokers` by number from 1, `address` for bootstrapping from all of them."""

    def __init__(self, brokers: int = 2, properties: dict[str, object] | None = None, *, line: str = "3.9"):
        self.line = line
        properties = PROPERTIES | {
            "offsets.topic.replication.factor": brokers,
            "transaction.state.log.replication.factor": brokers,
        } | (properties or {})
        self.brokers = {number: Broker(properties | {"process.roles": "broker", "node.id": number}, line=line)
                        for number in range(1, brokers + 1)}
        self._controller = Node(properties | {"process.roles": "controller", "node.id": CONTROLLER}, line)

    def __enter__(self) -> "Cluster":
        self._home = tempfile.TemporaryDirectory(prefix="wirescan-cluster-")
        try:
            self._start(Path(self._home.name))
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, home: Path) -> None:
        cluster, (port,) = cluster_id(), free_ports(1)
        quorum = {"controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{port}"}
        self._controller.format(home / "controller", cluster, quorum | {"listeners": f"CONTROLLER://127.0.0.1:{port}"})
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

    def create_topic(self, name: str, config: dict[str, object] | None = None, *, partitions: int = 1,
                     replicas: int = 2) -> None:
        create_topic(self.address, self.line, name, config or {}, partitions, replicas)
        for partition in range(partitions):
            self.await_in_sync(name, partition)

    def leader(self, topic: str, partition: int = 0) -> Broker:
        return self.brokers[self._partition(topic, partition).leader]

    def await_leader(self, topic: str, partition: int = 0, *, but: Broker | None = None) -> Broker:
        """The leader, as soon as there is one that is not `but`."""
        not_this = None if but is None else but.properties["node.id"]
        return self.brokers[self._await(topic, partition, lambda found: found.leader not in (-1, not_this)).leader]

    def await_in_sync(self, topic: str, partition: int = 0) -> None:
        """Wait until every replica is in sync, that of a broker which was restarted too."""
        self._await(topic, partition, lambda found: found.leader >= 0 and len(found.isrs) == len(found.replicas))

    def _await(self, topic: str, partition: int, good, timeout: float = 60):
        until = time.monotonic() + timeout
        while (found := self._partition(topic, partition)) is None or not good(found):
            if time.monotonic() > until:
                raise TimeoutError(f"{topic}-{partition}: {found}")
            time.sleep(0.1)
        return found

    def _partition(self, topic: str, partition: int):
        from confluent_kafka.admin import AdminClient

        running = [broker.address for broker in self.brokers.values() if broker.process.poll() is None]
        admin = AdminClient({"bootstrap.servers": ",".join(running), "log_level": 0})
        return admin.list_topics(topic, 30).topics[topic].partitions.get(partition)
