"""Real programs that speak over a lossy link, captured by tcpdump at both ends.

    with Servers() as servers, LossyLink(conditions) as link:
        recorded = record_scenes(link, servers, target)
    recorded["kafka"].near      # the capture at the clients' end
    recorded["kafka"].far       # the capture at the servers' end
    recorded["kafka"].clean     # a capture of the same bytes on a good network, which is made here

The clients are at the near end. Proxies are at the far end. They record the bytes, and forward them
to the servers, which are in the root namespace. The scenes of a link run at the same time.

    kafka       kafka-python sends 200 records to Kafka 4, and reads them
    nats        nats-py publishes 80 messages to another connection, and asks it 20 questions
    lumberjack  go-lumber sends 900 events in windows of 25
    filebeat    Filebeat ships 400 lines
    thrift      60 calls in framed messages of the binary protocol
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from tests.support import simulated_capture
from tests.support.captures import RecordedCapture
from tests.support.simulated_capture import SimulatedCapture

from . import thrift
from .broker import Broker, Listener
from .capture import Capture
from .lossy_link import LossyLink
from .lumberjack import Receive, build_filebeat, send
from .make_captures import collect_connections
from .make_lumberjack import make_events, make_messages, ship
from .nats import NatsServer, close_cleanly, connect, wait_until
from .producers import make_orders, send_kafka_python
from .proxy import Connection, Proxy, format_address, parse_address
from .relay import ADDRESSES
from .thrift_types import EVERYTHING

KAFKA_PORT = 29_092  # of the proxy of each link; brokers advertise it
RECORDS = 200
MESSAGES, QUESTIONS = 80, 20
EVENTS = 900
LINES = 400
ROUNDS = 20  # of three calls each
SECONDS = 60  # the most that losses may stop a connection on an old kernel: see Conditions.rto_max

ENDS = ("near", "far")


class LinkRecording(NamedTuple):
    """Captures of the same connections: at both ends of a link, and without any loss."""

    near: RecordedCapture
    far: RecordedCapture
    clean: RecordedCapture


class Servers:
    """A broker of Kafka, which all links use, and a NATS server."""

    def __enter__(self) -> "Servers":
        build_filebeat()  # its modules cannot be downloaded in the namespaces of a link
        with contextlib.ExitStack() as stack:
            self.listeners = {
                family: Listener("PLAINTEXT", format_address((far, KAFKA_PORT)))
                for family, (_, far) in ADDRESSES.items()
            }
            names = {f"LINK{family}": listener for family, listener in self.listeners.items()}
            self.broker = stack.enter_context(Broker(line="4", listeners=names))
            self.nats = stack.enter_context(NatsServer())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)


class LinkRecorder:
    """Records scenes over a link, into files of a directory. `recorded` has their captures."""

    def __init__(self, link: LossyLink, servers: Servers, target: Path):
        self.link = link
        self.servers = servers
        self.target = target
        self.recorded: dict[str, LinkRecording] = {}

    @contextlib.contextmanager
    def record(self, name: str, protocol: str, server: str, port: int = 0) -> Iterator[Proxy]:
        """Yield a proxy at the far end, and record the connections of clients to it.

        server: the address to which the proxy forwards. port: of the proxy, by default a free one.
        All connections must have ended with the block.
        """
        link = self.link
        files = [self.target / f"{name}-{part}.pcap" for part in LinkRecording._fields]
        with (
            Proxy(lambda: link.far.listen(port)) as proxy,
            Capture(files[0], [proxy.port], end=link.near),
            Capture(files[1], [proxy.port], end=link.far),
        ):
            proxy.target = server
            yield proxy
            connections = proxy.take(SECONDS)
        write_clean(files[2], connections)
        sides = collect_connections(connections)
        self.recorded[name] = LinkRecording(
            *(RecordedCapture(file.stem, file, protocol, sides) for file in files)
        )


def write_clean(file: Path, connections: list[Connection]) -> None:
    """Write a capture of connections as the proxy recorded them, one after the other."""
    capture = SimulatedCapture()
    for connection in connections:
        simulated = simulated_capture.Connection(
            read_endpoint(connection.client), read_endpoint(connection.server)
        )
        capture.connect(simulated)
        sides = connection.requests, connection.responses
        for side, size in connection.turns:
            start = len(simulated.sent[side])
            capture.send(simulated, side, bytes(sides[side][start : start + size]))
        capture.close(simulated)
    file.write_bytes(capture.to_pcap())


def read_endpoint(address: str) -> tuple[bytes, int]:
    host, port = parse_address(address)
    return ip_address(host).packed, port


def record_kafka(recorder: LinkRecorder) -> None:
    servers = recorder.servers
    family = recorder.link.conditions.family
    topic = f"orders-{family}-{recorder.link.conditions.mtu}"
    servers.broker.create_topic(topic)
    address = servers.broker.addresses[f"LINK{family}"]
    with recorder.record("kafka", "kafka", address, KAFKA_PORT) as proxy:
        recorder.link.near.call(use_kafka, proxy.address, topic)


def use_kafka(address: str, topic: str) -> None:
    chance = random.Random(topic)
    rows = [
        row._replace(value=chance.randbytes(chance.randrange(2000)))
        for row in make_orders(RECORDS, seed=60, big=False, null_headers=False)
    ]
    send_kafka_python(address, topic, rows, "none", batch_size=8000)
    values = consume_values(address, topic)
    if values != [row.value for row in rows]:
        raise RuntimeError(f"kafka-python read {len(values)} values, and others than it sent")


def consume_values(address: str, topic: str) -> list[bytes]:
    """Read the values of partition 0 with kafka-python.

    The consumer closes its connections when no response is on its way.
    """
    from kafka import KafkaConsumer, TopicPartition

    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=address,
        enable_auto_commit=False,
        max_partition_fetch_bytes=40_000,
        fetch_max_wait_ms=100,
    )
    consumer.assign([partition])
    end = consumer.end_offsets([partition])[partition]
    consumer.seek_to_beginning(partition)
    values = []
    while consumer.position(partition) < end:
        for batch in consumer.poll(timeout_ms=5000).values():
            values += [record.value for record in batch]
    consumer.pause(partition)
    while consumer._client.in_flight_request_count():
        consumer.poll(timeout_ms=10)
    consumer.close()
    return values


async def use_nats(address: str) -> None:
    """Publish messages to another connection, which also answers requests."""

    async def answer(message) -> None:
        if message.reply:
            await message.respond(message.data[::-1])

    chance = random.Random(address)
    responder = await connect(address, name="responder")
    await responder.subscribe("orders.*", cb=answer)
    await responder.flush()
    requester = await connect(address, name="requester")
    for number in range(MESSAGES):
        headers = {"Order": str(number)} if number % 3 == 0 else None
        payload = chance.randbytes(chance.randrange(3000))
        await requester.publish("orders.new", payload, headers=headers)
    await wait_until(lambda: len(responder.received) == MESSAGES)
    for _ in range(QUESTIONS):
        payload = chance.randbytes(chance.randrange(3000))
        reply = await requester.request("orders.check", payload, timeout=SECONDS)
        if reply.data != payload[::-1]:
            raise RuntimeError("a reply of NATS has other bytes")
    await wait_until(lambda: len(responder.received) == MESSAGES + QUESTIONS)
    await close_cleanly(requester)
    await close_cleanly(responder)


def record_nats(recorder: LinkRecorder) -> None:
    with recorder.record("nats", "nats", recorder.servers.nats.address) as proxy:
        recorder.link.near.call(lambda: asyncio.run(use_nats(proxy.address)))


def record_lumberjack(recorder: LinkRecorder) -> None:
    with (
        Receive() as server,
        recorder.record("lumberjack", "lumberjack", server.address) as proxy,
    ):
        recorder.link.near.call(send, proxy.address, make_events(EVENTS), batch=25, pipeline=2)


def record_filebeat(recorder: LinkRecorder) -> None:
    with Receive() as server, recorder.record("filebeat", "lumberjack", server.address) as proxy:

        def is_done() -> bool:
            """Whether Filebeat has the ack, of 6 bytes, of each window."""
            windows = server.windows()
            if sum(map(len, windows)) < LINES or proxy.response_bytes() < 6 * len(windows):
                return False
            proxy.await_delivery(SECONDS)
            return True

        recorder.link.near.call(
            ship, proxy.address, make_messages(LINES), is_done, batch=25, level=0
        )


def record_thrift(recorder: LinkRecorder) -> None:
    wire = thrift.make_wire("FRAMED_BINARY")
    with (
        thrift.Server(thrift.make_wire("HEADER")) as server,
        recorder.record("thrift", "thrift", server.address) as proxy,
    ):
        recorder.link.near.call(call_thrift, proxy.address, wire)


def call_thrift(address: str, wire: thrift.Wire) -> None:
    chance = random.Random(address)
    with thrift.Client(address, wire) as client:
        for number in range(ROUNDS):
            data = chance.randbytes(chance.randrange(6000))
            client.call("add", {"a": number, "b": 1})
            client.call("echo", {"what": EVERYTHING | {"data": data}})
            client.call("tell", {"text": "to nobody", "data": data[::2]})


SCENES: dict[str, Callable[[LinkRecorder], None]] = {
    "kafka": record_kafka,
    "nats": record_nats,
    "lumberjack": record_lumberjack,
    "filebeat": record_filebeat,
    "thrift": record_thrift,
}


def record_scenes(link: LossyLink, servers: Servers, target: Path) -> dict[str, LinkRecording]:
    """Record all scenes over a link at the same time. Return the captures of each."""
    recorder = LinkRecorder(link, servers, target)
    with ThreadPoolExecutor(len(SCENES)) as threads:
        for done in [threads.submit(scene, recorder) for scene in SCENES.values()]:
            done.result()
    return recorder.recorded
