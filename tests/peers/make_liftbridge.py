"""Make tests/corpus/liftbridge: run `python -m tests.peers.make_liftbridge` in the root.

It holds the NATS messages of real Liftbridge servers, and their logs:

    single/             one server
        published.jsonl             the messages of a client, one per line: the fields
                                    of PublishedMessage
        client.client.bin           the client's side of its NATS connection
        client.server.bin           the server's side of it: the acks
        subscribed.jsonl            the messages that the API's Subscribe returned: stream, bytes,
                                    and the fields that Google's library reads in them
    pair/               a cluster of two: replication, propagated requests, a server that stops and
                        starts again
    <either>/           both directories have
        tap.server.bin              all messages of nats-server, as a subscriber to ">" gets them
        tap.jsonl                   their subjects and payloads; for an intact envelope also its
                                    type and the fields that Google's library reads in it
        <server>.<connection>.client.bin, .server.bin       the servers' own NATS connections
        logs/<stream>-<partition>[-<server>]                logs, copied after the servers' end
        logs/<stream>-<partition>-live                      logs of running servers; most zeros at
                                                            the end of the index are removed

Bytes in JSON are hexadecimal digits. A server's connection may end in the middle of a message.
"""

import asyncio
import contextlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import CORPUS

from .json_lines import write_json_lines
from .liftbridge import (
    MAGIC,
    Api,
    Liftbridge,
    parse_envelope,
    parse_message,
    serialize,
    wrap_payload,
)
from .nats import NatsServer, close_cleanly, connect, wait_until
from .proxy import Connection, Proxy
from .target import clear_target

LARGEST = 4000  # the largest message, in bytes, that our servers accept
ZEROS = 2000  # the number of zeros to keep at the end of a live index
STREAMS = {  # the options of each stream
    "orders": {"subject": "orders.new"},
    "checked": {"subject": "orders.checked", "optimisticConcurrencyControl": {"value": True}},
    "split": {"subject": "orders.split", "partitions": 2},
    "rolled": {"subject": "orders.rolled", "segmentMaxBytes": {"value": 1000}},
    "keyed": {
        "subject": "orders.keyed",
        "segmentMaxBytes": {"value": 700},
        "compactEnabled": {"value": True},
        "cleanerInterval": {"value": 1000},
    },
}
PARTITIONS = [
    (name, number)
    for name, options in STREAMS.items()
    for number in range(options.get("partitions", 1))
]
SYSTEM = [("__activity", 0), ("__cursors", 0)]  # the server's own streams
OPTIONS = {
    "clustering.replication.max.bytes": LARGEST,
    "activity.stream.enabled": True,
    "cursors.stream.partitions": 1,
}


PAIRS = ("both", "other", "third")  # the streams of the cluster
# Requests to one server, which it forwards to the other.
FORWARDED = (
    ("SetStreamReadonly", {"name": "third", "partitions": [0], "readonly": True}),
    ("SetStreamReadonly", {"name": "third", "readonly": False}),
    ("PauseStream", {"name": "other", "partitions": [0], "resumeAll": True}),
    ("Publish", {"stream": "other", "value": b"it goes on", "ackPolicy": "ALL"}),
    ("DeleteStream", {"name": "third"}),
)


class PublishedMessage(NamedTuple):
    """A NATS message and its expected effect. Its field names are the keys in published.jsonl.

    ack: the error code of its ack; None: no ack. stored: the fields of the stored message; None:
    nothing is stored. plain: the server sees no envelope, and stores the whole payload.
    """

    stream: str
    subject: str
    payload: bytes
    ack: int | None = None
    stored: Mapping | None = {}
    reply: str = ""
    headers: Mapping | None = None
    plain: bool = False


def make_messages() -> list[PublishedMessage]:
    """The messages that the client publishes, in this order. Each has its own inbox."""
    messages: list[PublishedMessage] = []

    def add(
        name: str,
        /,
        *,
        crc: bool = False,
        ack: int | None = None,
        stored: bool = True,
        to: int = 0,
        reply: str = "",
        nats_headers: Mapping | None = None,
        **fields,
    ) -> None:
        if ack is not None or fields.get("ackPolicy") == "NONE":
            fields["ackInbox"] = f"acks.{len(messages)}"
        subject = STREAMS[name]["subject"] + (f".{to}" if to else "")
        headers = fields.get("headers", {})
        expected = {
            "key": fields.get("key", b""),
            "value": fields.get("value", b""),
            "headers": {**headers, "subject": subject.encode(), "reply": reply.encode()},
        }
        messages.append(
            PublishedMessage(
                name,
                subject,
                wrap_payload(serialize("proto.Message", fields), crc=crc),
                ack,
                expected if stored else None,
                reply,
                nats_headers,
            )
        )

    def add_plain(payload: bytes, value: bytes | None = None) -> None:
        """Add a payload that the server stores as a value, or a message with the given value."""
        messages.append(
            PublishedMessage(
                "orders",
                "orders.new",
                payload,
                None,
                {
                    "key": b"",
                    "value": payload if value is None else value,
                    "headers": {"subject": b"orders.new", "reply": b""},
                },
                plain=value is None,
            )
        )

    add("orders")  # an envelope with an empty message
    add("orders", value=b"1", ack=0, correlationId="first")
    for number, policy in enumerate(("LEADER", "ALL", "NONE")):
        for crc in False, True:
            add(
                "orders",
                crc=crc,
                ack=None if policy == "NONE" else 0,
                ackPolicy=policy,
                key=b"key %d" % number,
                value=bytes(range(256)),
                headers={"a": b"1", "Grüße": bytes([0, 255]), "empty": b""},
                correlationId=f"{policy} {crc}",
            )
    add(
        "orders",
        crc=True,
        ack=0,
        offset=-1,
        timestamp=-1,
        stream="other",
        partition=-5,
        subject="elsewhere",
        replySubject="nowhere",
        value=b"what the server sets itself",
    )
    add("orders", ack=0, value=b"of a request", reply="answers.here", nats_headers={"Order": "17"})
    add(
        "orders",
        ack=0,
        value=b"names of the server's",
        headers={"subject": b"mine", "reply": b"mine", "x": b"y"},
    )
    add("orders", ack=3, stored=False, value=b"x" * (LARGEST + 1), correlationId="too large")
    message = serialize("proto.Message", {"value": b"damaged", "ackInbox": "acks.never"})
    damaged = wrap_payload(message, crc=True)
    add_plain(b"a message of NATS alone")
    add_plain(b"")
    add_plain(damaged[:-1] + b"D")  # a wrong checksum
    add_plain(b"LIFT" + message)  # the format before the envelope
    add_plain(MAGIC + b"\1\x08\0\0" + message)  # an unknown version
    add_plain(wrap_payload(message, 1))  # an Ack instead of a Message
    add_plain(MAGIC + b"\0\x08\0")  # too short
    add_plain(MAGIC + b"\0\x09\1\0" + b"-" + message)  # a checksum needs a header of 12 bytes
    larger_header = MAGIC + b"\0\x0c\xfe\0junk" + serialize("proto.Message", {"value": b"odd"})
    add_plain(larger_header, b"odd")
    add("checked", ack=0, value=b"0", correlationId="expected 0")
    add("checked", ack=2, stored=False, value=b"9", offset=9, correlationId="expected 9")
    add("checked", ack=0, value=b"1", offset=1, correlationId="expected 1")
    add("checked", ack=0, value=b"2", offset=-1, correlationId="whichever is next")
    for number in range(4):
        add("split", ack=0, to=number % 2, value=b"%d" % number, ackPolicy="ALL")
    for number in range(40):
        add("rolled", ack=0, key=b"%d" % number, value=b"rolled" * (number % 5))
        add(
            "keyed",
            ack=0,
            key=b"key %d" % (number % 4) if number % 10 else b"",
            value=b"%d" % number,
        )
    return messages


class Recording:
    """nats-server, a subscriber to everything, and proxies before the servers.

    `keep` writes the recorded messages.
    """

    def __init__(self, target: Path):
        self.target = target
        (target / "logs").mkdir(parents=True)

    async def __aenter__(self) -> "Recording":
        self._stack = contextlib.ExitStack()
        self.nats = self._stack.enter_context(NatsServer())
        self.proxies: dict[str, Proxy] = {}
        self.tap = await connect(self.proxy("tap").address, name="tap")
        await self.tap.subscribe(">", cb=self._ignore)
        await self.tap.flush()
        return self

    async def __aexit__(self, *_) -> None:
        if not self.tap.is_closed:
            await self.tap.close()
        self._stack.close()

    async def _ignore(self, message) -> None:
        pass

    def proxy(self, name: str) -> Proxy:
        proxy = self.proxies[name] = self._stack.enter_context(Proxy())
        proxy.target = self.nats.address
        return proxy

    def envelopes(self) -> list[tuple[int, dict]]:
        """The types and fields of the envelopes so far, see `parse_envelope`."""
        payloads = [bytes.fromhex(message["payload"]) for message in self.tap.received]
        return [parsed for payload in payloads if (parsed := parse_envelope(payload))]

    async def keep(self) -> None:
        """Write the recorded messages. The servers and clients must have ended."""
        tap = self.proxies.pop("tap")
        for name, proxy in self.proxies.items():
            for connection in proxy.take():
                self._write(name, connection)
        # Only now nats-server has read all bytes of the other connections.
        await close_cleanly(self.tap)
        (connection,) = tap.take()
        (self.target / "tap.server.bin").write_bytes(connection.responses)
        rows = []
        for message in self.tap.received:
            row = {"subject": message["subject"], "payload": message["payload"]}
            parsed = parse_envelope(bytes.fromhex(message["payload"]))
            if parsed:
                row |= {"kind": parsed[0], "fields": parsed[1]}
            rows.append(row)
        write_json_lines(self.target / "tap.jsonl", rows)

    def _write(self, name: str, connection: Connection) -> None:
        first_line = bytes(connection.requests).split(b"\r\n", 1)[0]
        options = json.loads(first_line.removeprefix(b"CONNECT "))
        # A server names each of its connections after its purpose.
        if options["name"].startswith("LIFT."):
            name = f"{name}.{options['name'].rsplit('.', 1)[1]}"
            number = len(list(self.target.glob(f"{name}*.client.bin")))
            name += f"-{number + 1}" if number else ""  # the server connected again
        (self.target / f"{name}.client.bin").write_bytes(connection.requests)
        (self.target / f"{name}.server.bin").write_bytes(connection.responses)

    def keep_log(self, partition: Path, name: str) -> None:
        copy = self.target / "logs" / name
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(partition, copy)
        for index in copy.glob("*.index"):
            data = index.read_bytes()
            content = data.rstrip(b"\0")
            if len(data) - len(content) > ZEROS:
                index.write_bytes(content + bytes(ZEROS - ZEROS % 20 + 20 - len(content) % 20))


async def record_single(target: Path) -> None:
    messages = make_messages()
    async with Recording(target) as recording:
        client = await connect(recording.proxy("client").address, name="client")

        async def ignore(message) -> None:
            pass

        await client.subscribe("acks.>", cb=ignore)
        await client.flush()
        with (
            Liftbridge(recording.proxy("a").address, options=OPTIONS) as server,
            Api(server.address) as api,
        ):
            for name, options in STREAMS.items():
                api.call("CreateStream", name=name, **options)
            acks = 0
            for message in messages:
                await client.publish(
                    message.subject, message.payload, message.reply, message.headers
                )
                await client.flush()
                # The next message may be of another stream. Its ack could be the first one.
                if message.ack is not None:
                    acks += 1
                    await wait_until(lambda: len(client.received) == acks)
            for number in range(3):
                api.call(
                    "SetCursor",
                    stream="orders",
                    partition=0,
                    cursorId=f"cursor {number}",
                    offset=number * 5,
                )
            write_json_lines(
                target / "published.jsonl", [message._asdict() for message in messages]
            )

            def keep_keyed_log() -> None:
                recording.keep_log(server.partition("keyed"), "keyed-0-live")

            rows = []
            for stream, number in PARTITIONS + SYSTEM:
                if stream == "keyed":
                    raw = await read_compacted(server, api, stream, keep_keyed_log)
                else:
                    raw = api.subscribe(stream, partition=number)
                rows += [
                    {
                        "stream": stream,
                        "partition": number,
                        "bytes": data,
                        "fields": parse_message("proto.Message", data),
                    }
                    for data in raw
                ]
            write_json_lines(target / "subscribed.jsonl", rows)
            for stream, number in PARTITIONS[:1] + [("rolled", 0)]:
                recording.keep_log(server.partition(stream, number), f"{stream}-{number}-live")
            await close_cleanly(client)
            server.end()
            for stream, number in set(PARTITIONS + SYSTEM) - {("keyed", 0)}:
                recording.keep_log(server.partition(stream, number), f"{stream}-{number}")
        await recording.keep()


async def read_compacted(
    server: Liftbridge, api: Api, stream: str, keep: Callable[[], None]
) -> list[bytes]:
    """Read the messages of a stream when the server has compacted it completely.

    keep: copies the log at the same time. The server compacts the log over and over. A read or a
    copy during a compaction is incomplete, and is repeated.
    """
    import grpc

    def count_starts() -> int:
        return server.read_output().count("Compacting log")

    starts = count_starts()
    while True:
        await wait_until(lambda: count_starts() > starts)
        starts = count_starts()
        await wait_until(lambda: server.read_output().count("Finished compacting log") >= starts)
        try:
            messages = api.subscribe(stream)
            keep()
        except (grpc.RpcError, shutil.Error):
            if count_starts() == starts:
                raise
        else:
            if count_starts() == starts:
                return messages


async def record_pair(target: Path) -> None:
    import grpc

    async with Recording(target) as recording:
        client = await connect(recording.proxy("client").address, name="client")
        sent_count = 0

        async def ignore(message) -> None:
            pass

        async def publish(count: int, subject: str = "orders.both", policy: str = "ALL") -> None:
            nonlocal sent_count
            for _ in range(count):
                sent_count += 1
                fields = {
                    "key": b"%d" % sent_count,
                    "value": b"%d" % sent_count * 20,
                    "ackInbox": f"acks.{sent_count}",
                    "ackPolicy": policy,
                }
                await client.publish(subject, wrap_payload(serialize("proto.Message", fields)))
            await wait_until(lambda: len(client.received) == sent_count)

        await client.subscribe("acks.>", cb=ignore)
        await client.flush()
        with (
            Liftbridge(recording.proxy("a").address, "a") as first,
            Liftbridge(recording.proxy("b").address, "b", seed=False) as second,
        ):
            with Api(first.address) as api, Api(second.address) as other:
                await wait_until(lambda: other.brokers() == api.brokers() == 2)
                for name in PAIRS:  # the second server must forward these requests
                    other.call(
                        "CreateStream", name=name, subject=f"orders.{name}", replicationFactor=2
                    )
                with contextlib.suppress(grpc.RpcError):  # the stream exists
                    other.call(
                        "CreateStream", name="both", subject="orders.both", replicationFactor=2
                    )
                for _ in range(10):  # one by one, so that the leader notifies the follower
                    await publish(1)
                await publish(15, "orders.other")
                for method, fields in FORWARDED:
                    other.call(method, **fields)
                    # A publish before both servers have paused the stream would be lost.
                    if method == "PauseStream":
                        await wait_until(
                            lambda: all(
                                "fsm: Paused stream" in server.read_output()
                                for server in (first, second)
                            )
                        )
                joined = other.call(
                    "JoinConsumerGroup", groupId="readers", consumerId="one", streams=["both"]
                )
                with contextlib.suppress(grpc.RpcError):  # the server may want more reports
                    other.call(
                        "ReportConsumerGroupCoordinator",
                        groupId="readers",
                        consumerId="one",
                        coordinator=joined["coordinator"],
                        epoch=joined["epoch"],
                    )
                other.call("LeaveConsumerGroup", groupId="readers", consumerId="one")
            second.end()
            await publish(10, policy="LEADER")  # the follower gets these at once after its start
            second.start()
            await publish(1)
            await wait_until(lambda: find_log(first) == find_log(second))
            await close_cleanly(client)
            second.end()
            first.end()
            for server, name in (first, "a"), (second, "b"):
                recording.keep_log(server.partition("both"), f"both-0-{name}")
        await recording.keep()
        missing = set(range(15)) - {kind for kind, _ in recording.envelopes()}
        if missing:
            raise TimeoutError(f"no envelope has one of the types {missing}")


def find_log(server: Liftbridge) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(server.partition("both").glob("*.log")))


def record(target: Path) -> None:
    """Fill the directory, with up to three attempts.

    On a busy machine a server may lose its leadership. Then it refuses requests, or forwards them
    to the wrong server.
    """
    import grpc

    for name, record_case in (("single", record_single), ("pair", record_pair)):
        for attempts in reversed(range(3)):
            try:
                asyncio.run(record_case(target / name))
                break
            except (grpc.RpcError, TimeoutError) as error:
                if not attempts:
                    raise
                print(f"{name} once more: {error}")
                shutil.rmtree(target / name)


def main() -> None:
    target = clear_target(__doc__, CORPUS / "liftbridge")
    record(target)
    for file in sorted(target.rglob("*")):
        if file.is_file():
            print(f"{file.relative_to(target)}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
