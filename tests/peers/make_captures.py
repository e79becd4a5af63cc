"""Make tests/corpus/pcap: run `python -m tests.peers.make_captures` in the root, as root.

It holds captures of real connections, and the bytes of each connection as a proxy recorded them.
tests/support/captures.py describes the files and reads them.

    kafka               kafka-python sends 12 records to Kafka 4 and reads them; pcap with
                        microseconds
    kafka-impaired      the same packets on a bad network
    lumberjack          20 events of go-lumber in windows of 8, 8 and 4, and their acks; pcap with
                        nanoseconds
    lumberjack-impaired the same packets on a bad network
    nats                nats-py publishes to its own subscriptions; pcapng
    thrift              calls in framed messages of the binary protocol; pcapng

The bad network is `impair` of tests/support/packets.py. The tests record more captures, which are
not kept: see SCENES.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.captures import (
    CAPTURES,
    Connections,
    RecordedCapture,
    add_capture,
    list_captures,
)
from tests.support.packets import Rates, impair, read_packets, write_packets
from tests.support.paths import ROOT

from .capture import Capture, Form
from .proxy import Connection, Proxy
from .target import clear_target

SUFFIXES = {Form.PCAP: "pcap", Form.PCAP_NANOSECONDS: "pcap", Form.PCAPNG: "pcapng"}
SEED = 2026
SMALL = Rates(size=600)  # the files of the corpus stay below 20 KB


def collect_connections(connections: Iterable[Connection]) -> Connections:
    """Return the bytes of the connections of a proxy."""
    return {
        (connection.client, connection.server): (
            bytes(connection.requests),
            # A client may hang up while the server still answers.
            bytes(connection.responses[: connection.delivered]),
        )
        for connection in connections
    }


class Recorder:
    """Writes captures to a directory."""

    def __init__(self, target: Path):
        self.target = target

    @contextlib.contextmanager
    def record(
        self, name: str, protocol: str, form: Form, *, interface: str = "lo"
    ) -> Iterator[Proxy]:
        """Yield a proxy, and record the connections of clients to it.

        The block sets the proxy's target. All connections must have ended with the block.
        """
        file = self.target / f"{name}.{SUFFIXES[form]}"
        with Proxy() as proxy, Capture(file, [proxy.port], form, interface=interface):
            yield proxy
            connections = proxy.take()
        add_capture(self.target, name, file, protocol, collect_connections(connections))


def record_kafka(recorder: Recorder, clients: Sequence[str]) -> None:
    """Let clients write to a broker and read the records: one capture for each client."""
    from .broker import Broker, Listener

    name_of = {
        "kafka-python": "kafka",
        "aiokafka": "kafka-aiokafka",
        "librdkafka": "kafka-librdkafka",
    }
    form_of = {"kafka-python": Form.PCAP, "aiokafka": Form.PCAPNG, "librdkafka": Form.PCAP}
    with contextlib.ExitStack() as stack:
        proxies = {
            client: stack.enter_context(recorder.record(name_of[client], "kafka", form_of[client]))
            for client in clients
        }
        names = {client: f"RECORDED{number}" for number, client in enumerate(clients)}
        broker = stack.enter_context(
            Broker(
                line="4",
                listeners={
                    names[client]: Listener("PLAINTEXT", proxies[client].address)
                    for client in clients
                },
            )
        )
        for client in clients:
            proxies[client].target = broker.addresses[names[client]]
            topic = f"orders-{client}"
            broker.create_topic(topic)
            use_kafka(client, proxies[client].address, topic)


def use_kafka(client: str, address: str, topic: str) -> None:
    """Send 12 records with a client, and read them with the same client."""
    from .producers import SENDERS, make_orders
    from .readers import consume, consume_aiokafka, consume_kafka_python

    readers = {
        "librdkafka": consume,
        "kafka-python": consume_kafka_python,
        "aiokafka": consume_aiokafka,
    }
    rows = make_orders(12, seed=60, big=False, null_headers=client != "kafka-python")
    SENDERS[client](address, topic, rows, "none")
    records = readers[client](address, topic)
    if len(records) != len(rows):
        raise RuntimeError(f"{client} read {len(records)} of {len(rows)} records")


def record_thrift(recorder: Recorder, scene_name: str, name: str, form: Form) -> None:
    """Record the calls of a scene of make_thrift.py."""
    from .make_thrift import SCENES as THRIFT_SCENES

    scene = THRIFT_SCENES[scene_name]
    with recorder.record(name, "thrift", form) as proxy, scene.server() as server:
        proxy.target = server.address
        with scene.client(proxy.address) as client:
            scene.speak(client)


async def publish_orders(address: str) -> None:
    """Publish messages with nats-py to a subscription of another connection."""
    from .nats import close_cleanly, connect, wait_until

    async def ignore(message) -> None:
        pass

    subscriber = await connect(address, name="subscriber")
    await subscriber.subscribe("orders.*", cb=ignore)
    await subscriber.flush()
    publisher = await connect(address, name="publisher")
    for number in range(12):
        headers = {"Order": str(number)} if number % 3 == 0 else None
        await publisher.publish("orders.new", b"order %d " % number * number, headers=headers)
    await publisher.flush()
    await wait_until(lambda: len(subscriber.received) == 12)
    await close_cleanly(publisher)
    await close_cleanly(subscriber)


def record_nats(recorder: Recorder) -> None:
    from .nats import NatsServer

    with NatsServer() as server, recorder.record("nats", "nats", Form.PCAPNG) as proxy:
        proxy.target = server.address
        asyncio.run(publish_orders(proxy.address))


def record_lumberjack(recorder: Recorder) -> None:
    from .lumberjack import Receive, send
    from .make_lumberjack import make_events

    with (
        Receive() as server,
        recorder.record("lumberjack", "lumberjack", Form.PCAP_NANOSECONDS) as proxy,
    ):
        proxy.target = server.address
        send(proxy.address, make_events(20), batch=8)


def record_filebeat(recorder: Recorder) -> None:
    """Filebeat ships 20 lines. The capture has the link type of the interface "any"."""
    from .lumberjack import Receive
    from .make_lumberjack import make_messages, ship

    with (
        Receive() as server,
        recorder.record("filebeat", "lumberjack", Form.PCAP, interface="any") as proxy,
    ):
        proxy.target = server.address
        # Each of the three windows has an ack of 6 bytes.
        ship(proxy.address, make_messages(20), lambda: proxy.response_bytes() == 18, batch=8)


def record_liftbridge(recorder: Recorder) -> None:
    """Record the connections of a Liftbridge server to its NATS server."""
    from .liftbridge import Api, Liftbridge
    from .nats import NatsServer

    with NatsServer() as nats, recorder.record("liftbridge", "nats", Form.PCAP) as proxy:
        proxy.target = nats.address
        with Liftbridge(proxy.address) as server, Api(server.address) as api:
            api.create_stream("orders", "orders.new")
            for number in range(5):
                api.call("Publish", stream="orders", value=b"%d" % number, ackPolicy="LEADER")
            api.subscribe("orders", 5)


class Scene(NamedTuple):
    """A function that records captures, and the names of these."""

    record: Callable[[Recorder], None]
    names: tuple[str, ...]


SCENES = {
    "kafka": Scene(
        lambda recorder: record_kafka(recorder, ["kafka-python", "aiokafka", "librdkafka"]),
        ("kafka", "kafka-aiokafka", "kafka-librdkafka"),
    ),
    "thrift": Scene(
        lambda recorder: record_thrift(recorder, "framed-binary", "thrift", Form.PCAPNG),
        ("thrift",),
    ),
    "thrift-header": Scene(
        lambda recorder: record_thrift(recorder, "header-compact", "thrift-header", Form.PCAP),
        ("thrift-header",),
    ),
    "nats": Scene(record_nats, ("nats",)),
    "lumberjack": Scene(record_lumberjack, ("lumberjack",)),
    "filebeat": Scene(record_filebeat, ("filebeat",)),
    "liftbridge": Scene(record_liftbridge, ("liftbridge",)),
}


# Arguments: the MTU, and a command. With GSO the kernel would show packets before it cuts them.
NAMESPACE = """
ip link set lo mtu "$1" gso_max_size "$1" gso_max_segs 1 up && shift && exec "$@"
"""
RECORD = """
import sys
from pathlib import Path
from tests.peers.make_captures import SCENES, Recorder
SCENES[sys.argv[1]].record(Recorder(Path(sys.argv[2])))
"""


def record_with_small_packets(scene: str, target: Path, mtu: int) -> None:
    """Record a scene in its own network namespace, where no packet is larger than `mtu` bytes.

    Only there, the kernel cuts the segments of the loopback interface. Raises RuntimeError if the
    recording fails.
    """
    command = ["unshare", "--net", "sh", "-c", NAMESPACE, "sh", str(mtu)]
    command += [sys.executable, "-c", RECORD, scene, str(target)]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    if completed.returncode:
        raise RuntimeError(f"the recording failed:\n{completed.stdout}{completed.stderr}")


def add_impaired(
    target: Path, capture: RecordedCapture, *, seed: int = SEED, rates: Rates = Rates()
) -> RecordedCapture:
    """Add the same packets on a bad network, as NAME-impaired.pcap. The capture must be a pcap."""
    file = target / f"{capture.name}-impaired.pcap"
    write_packets(file, impair(read_packets(capture.path), seed, rates))
    return add_capture(
        target,
        file.stem,
        file,
        capture.protocol,
        capture.connections,
        bytes_of=capture.name,
    )


def record_corpus(target: Path) -> None:
    """Record the captures that are kept in the corpus."""
    recorder = Recorder(target)
    record_kafka(recorder, ["kafka-python"])
    for name in "thrift", "nats", "lumberjack":
        SCENES[name].record(recorder)
    for capture in list(list_captures(target)):
        if capture.name in ("kafka", "lumberjack"):
            add_impaired(target, capture, rates=SMALL)


def main() -> None:
    target = clear_target(__doc__, CAPTURES)
    target.mkdir(parents=True)
    record_corpus(target)
    for file in sorted(target.iterdir()):
        print(f"{file.name}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
