"""Make tests/corpus/liftbridge: `python -m tests.peers.make_liftbridge` in the repository's root.

What NATS carries for real Liftbridge servers, and what they keep:

    single/             one server
        published.jsonl             what a client published: PUBLISHED, a message a line, with its subject and payload
        client.client.bin           that client's side of its NATS connection, and
        client.server.bin           the server's: the acks
        subscribed.jsonl            what the API's Subscribe gave, stream by stream: the bytes, and Google's reading
    pair/               a cluster of two: replication, propagated requests, a server that leaves and comes again
    <either>/           both
        tap.server.bin              all messages that passed nats-server, as a subscriber to everything was given them
        tap.jsonl                   ... each with its subject; of an intact envelope the type, and Google's reading
        <server>.<connection>.client.bin, .server.bin       the servers' own NATS connections, by their names
        logs/<stream>-<partition>[-<server>]                the directories of logs, when the servers had ended
        logs/<stream>-<partition>-live                      ... when they had not; zeros of the index are cut off

Bytes in JSON are hexadecimal digits. A server's connection may end in the middle of a message.
"""
import argparse
import asyncio
import contextlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from .liftbridge import MAGIC, Api, Liftbridge, envelope, opened, plain, written
from .nats import NatsServer, connected, part, until
from .proxy import Connection, Proxy

CORPUS = Path(__file__).parents[1] / "corpus" / "liftbridge"
LARGEST = 4000                      # bytes that a server of ours takes in one message
ZEROS = 2000                        # of a live index, that are kept
STREAMS = {                         # name: what it is created with
    "orders": {"subject": "orders.new"},
    "checked": {"subject": "orders.checked", "optimisticConcurrencyControl": {"value": True}},
    "split": {"subject": "orders.split", "partitions": 2},
    "rolled": {"subject": "orders.rolled", "segmentMaxBytes": {"value": 1000}},
    "keyed": {"subject": "orders.keyed", "segmentMaxBytes": {"value": 700}, "compactEnabled": {"value": True},
              "cleanerInterval": {"value": 1000}},
}
PARTITIONS = [(name, number) for name, options in STREAMS.items() for number in range(options.get("partitions", 1))]
SYSTEM = [("__activity", 0), ("__cursors", 0)]      # streams that the server makes itself
OPTIONS = {"clustering.replication.max.bytes": LARGEST, "activity.stream.enabled": True,
           "cursors.stream.partitions": 1}


PAIRS = ("both", "other", "third")  # streams of the cluster
ASKED = (                           # what is asked of one server, and passed on to the other
    ("SetStreamReadonly", {"name": "third", "partitions": [0], "readonly": True}),
    ("SetStreamReadonly", {"name": "third", "readonly": False}),
    ("PauseStream", {"name": "other", "partitions": [0], "resumeAll": True}),
    ("Publish", {"stream": "other", "value": b"it goes on", "ackPolicy": "ALL"}),
    ("DeleteStream", {"name": "third"}),
)


class Published(NamedTuple):
    """A NATS message and what comes of it: the error code of its ack, None without one; the stored message's fields,
    None where nothing is stored. plain: the server sees no envelope, and stores the whole."""
    stream: str
    subject: str
    payload: bytes
    ack: int | None = None
    stored: Mapping | None = {}
    reply: str = ""
    headers: Mapping | None = None
    plain: bool = False


def published() -> list[Published]:
    """What the client publishes, in this order; `inbox` of each is of its own."""
    found: list[Published] = []

    def add(name: str, /, *, crc: bool = False, ack: int | None = None, stored: bool = True, to: int = 0,
            reply: str = "", nats_headers: Mapping | None = None, **fields) -> None:
        if ack is not None or fields.get("ackPolicy") == "NONE":
            fields["ackInbox"] = f"acks.{len(found)}"
        subject = STREAMS[name]["subject"] + (f".{to}" if to else "")
        kept = {column: fields.get(column, b"") for column in ("key", "value")} | {
            "headers": {**fields.get("headers", {}), "subject": subject.encode(), "reply": reply.encode()}}
        found.append(Published(name, subject, envelope(written("proto.Message", fields), crc=crc), ack,
                               kept if stored else None, reply, nats_headers))

    def whole(payload: bytes, value: bytes | None = None) -> None:
        """A payload that the server stores as a value; or a message with that value."""
        found.append(Published("orders", "orders.new", payload, None, {
            "key": b"", "value": payload if value is None else value,
            "headers": {"subject": b"orders.new", "reply": b""}}, plain=value is None))

    add("orders")                                                                   # an envelope of nothing
    add("orders", value=b"1", ack=0, correlationId="first")
    for number, policy in enumerate(("LEADER", "ALL", "NONE")):
        for crc in False, True:
            add("orders", crc=crc, ack=None if policy == "NONE" else 0, ackPolicy=policy, key=b"key %d" % number,
                value=bytes(range(256)), headers={"a": b"1", "Grüße": bytes([0, 255]), "empty": b""},
                correlationId=f"{policy} {crc}")
    add("orders", crc=True, ack=0, offset=-1, timestamp=-1, stream="other", partition=-5, subject="elsewhere",
        replySubject="nowhere", value=b"what the server sets itself")
    add("orders", ack=0, value=b"of a request", reply="answers.here", nats_headers={"Order": "17"})
    add("orders", ack=0, value=b"names of the server's", headers={"subject": b"mine", "reply": b"mine", "x": b"y"})
    add("orders", ack=3, stored=False, value=b"x" * (LARGEST + 1), correlationId="too large")
    message = written("proto.Message", {"value": b"damaged", "ackInbox": "acks.never"})
    damaged = envelope(message, crc=True)
    whole(b"a message of NATS alone")
    whole(b"")
    whole(damaged[:-1] + b"D")                                                      # a wrong checksum
    whole(b"LIFT" + message)                                                        # as it was before the envelope
    whole(MAGIC + b"\1\x08\0\0" + message)                                          # a version that there is not
    whole(envelope(message, 1))                                                     # an Ack is no Message
    whole(MAGIC + b"\0\x08\0")                                                      # too short
    whole(MAGIC + b"\0\x09\1\0" + b"-" + message)                                   # a checksum needs a header of 12
    whole(MAGIC + b"\0\x0c\xfe\0junk" + written("proto.Message", {"value": b"odd"}), b"odd")     # a larger header
    add("checked", ack=0, value=b"0", correlationId="expected 0")
    add("checked", ack=2, stored=False, value=b"9", offset=9, correlationId="expected 9")
    add("checked", ack=0, value=b"1", offset=1, correlationId="expected 1")
    add("checked", ack=0, value=b"2", offset=-1, correlationId="whichever is next")
    for number in range(4):
        add("split", ack=0, to=number % 2, value=b"%d" % number, ackPolicy="ALL")
    for number in range(40):
        add("rolled", ack=0, key=b"%d" % number, value=b"rolled" * (number % 5))
        add("keyed", ack=0, key=b"key %d" % (number % 4) if number % 10 else b"", value=b"%d" % number)
    return found


def hexadecimal(value: bytes) -> str:
    return value.hex()


def write_lines(file: Path, rows) -> None:
    file.write_text("".join(json.dumps(row, default=hexadecimal, ensure_ascii=False) + "\n" for row in rows),
                    encoding="utf-8")


class Recording:
    """nats-server, a subscriber to everything, and proxies before the servers; `keep` writes what passed."""

    def __init__(self, target: Path):
        self.target = target
        (target / "logs").mkdir(parents=True)

    async def __aenter__(self) -> "Recording":
        self._stack = contextlib.ExitStack()
        self.nats = self._stack.enter_context(NatsServer())
        self.proxies: dict[str, Proxy] = {}
        self.tap = await connected(self.proxy("tap").address, name="tap")
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

    def enclosed(self) -> list[tuple[int, dict]]:
        """The envelopes that have passed, see `opened`."""
        return list(filter(None, (opened(bytes.fromhex(one["payload"])) for one in self.tap.given)))

    async def keep(self) -> None:
        """Write what has passed. The servers and clients must have ended."""
        tap = self.proxies.pop("tap")
        for name, proxy in self.proxies.items():
            for connection in proxy.take():
                self._write(name, connection)
        await part(self.tap)  # not before: only now has nats-server read all that the others said
        connection, = tap.take()
        (self.target / "tap.server.bin").write_bytes(connection.responses)
        rows = []
        for message in self.tap.given:
            row = {"subject": message["subject"], "payload": message["payload"]}
            envelope = opened(bytes.fromhex(message["payload"]))
            rows.append(row | (dict(zip(("kind", "fields"), envelope)) if envelope else {}))
        write_lines(self.target / "tap.jsonl", rows)

    def _write(self, name: str, connection: Connection) -> None:
        options = json.loads(bytes(connection.requests).split(b"\r\n", 1)[0].removeprefix(b"CONNECT "))
        if options["name"].startswith("LIFT."):  # of a server, which tells what the connection is for
            name = f"{name}.{options['name'].rsplit('.', 1)[1]}"
            number = len(list(self.target.glob(f"{name}*.client.bin")))
            name += f"-{number + 1}" if number else ""  # it came again
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


async def single(target: Path) -> None:
    messages = published()
    async with Recording(target) as recording:
        client = await connected(recording.proxy("client").address, name="client")

        async def ignore(message) -> None:
            pass

        await client.subscribe("acks.>", cb=ignore)
        await client.flush()
        with Liftbridge(recording.proxy("a").address, options=OPTIONS) as server, Api(server.address) as api:
            for name, options in STREAMS.items():
                api.call("CreateStream", name=name, **options)
            acks = 0
            for message in messages:
                await client.publish(message.subject, message.payload, message.reply, message.headers)
                await client.flush()
                if message.ack is not None:  # the next may be another stream's, and then the order is not ours
                    acks += 1
                    await until(lambda: len(client.given) == acks)
            for number in range(3):
                api.call("SetCursor", stream="orders", partition=0, cursorId=f"cursor {number}", offset=number * 5)
            write_lines(target / "published.jsonl", [message._asdict() for message in messages])

            rows = []
            for stream, number in PARTITIONS + SYSTEM:
                if stream == "keyed":
                    raw = await compacted(server, api, stream, lambda: recording.keep_log(
                        server.partition("keyed"), "keyed-0-live"))
                else:
                    raw = api.subscribe(stream, partition=number)
                rows += [{"stream": stream, "partition": number, "bytes": one, "fields": plain("proto.Message", one)}
                         for one in raw]
            write_lines(target / "subscribed.jsonl", rows)
            for stream, number in PARTITIONS[:1] + [("rolled", 0)]:
                recording.keep_log(server.partition(stream, number), f"{stream}-{number}-live")
            await part(client)
            server.end()
            for stream, number in set(PARTITIONS + SYSTEM) - {("keyed", 0)}:
                recording.keep_log(server.partition(stream, number), f"{stream}-{number}")
        await recording.keep()


async def compacted(server: Liftbridge, api: Api, stream: str, keep: Callable[[], None]) -> list[bytes]:
    """The messages of a stream when the server has compacted all that there is; `keep` copies its log.

    The server compacts again and again, and what is read meanwhile, or kept when it ends meanwhile, is not the whole.
    """
    import grpc

    def begun() -> int:
        return server.said().count("Compacting log")

    first = begun()
    while True:
        await until(lambda: begun() > first)
        first = begun()
        await until(lambda: server.said().count("Finished compacting log") >= first)
        try:
            found = api.subscribe(stream)
            keep()
        except (grpc.RpcError, shutil.Error):
            if begun() == first:
                raise
        else:
            if begun() == first:
                return found


async def pair(target: Path) -> None:
    import grpc

    async with Recording(target) as recording:
        client = await connected(recording.proxy("client").address, name="client")
        told = 0

        async def ignore(message) -> None:
            pass

        async def publish(count: int, subject: str = "orders.both", policy: str = "ALL") -> None:
            nonlocal told
            for told in range(told + 1, told + 1 + count):
                await client.publish(subject, envelope(written("proto.Message", {
                    "key": b"%d" % told, "value": b"%d" % told * 20, "ackInbox": f"acks.{told}", "ackPolicy": policy})))
            await until(lambda: len(client.given) == told)

        await client.subscribe("acks.>", cb=ignore)
        await client.flush()
        with (Liftbridge(recording.proxy("a").address, "a") as first,
              Liftbridge(recording.proxy("b").address, "b", seed=False) as second):
            with Api(first.address) as api, Api(second.address) as other:
                await until(lambda: other.brokers() == api.brokers() == 2)
                for name in PAIRS:  # asked of the server that has to ask the other
                    other.call("CreateStream", name=name, subject=f"orders.{name}", replicationFactor=2)
                with contextlib.suppress(grpc.RpcError):  # there is one
                    other.call("CreateStream", name="both", subject="orders.both", replicationFactor=2)
                for _ in range(10):  # one by one: a follower that waits is notified
                    await publish(1)
                await publish(15, "orders.other")
                for method, fields in ASKED:
                    other.call(method, **fields)
                    if method == "PauseStream":  # each sees to it in its own time, and a publish before would be lost
                        await until(lambda: all("fsm: Paused stream" in server.said() for server in (first, second)))
                joined = other.call("JoinConsumerGroup", groupId="readers", consumerId="one", streams=["both"])
                with contextlib.suppress(grpc.RpcError):  # one report may be enough, or not
                    other.call("ReportConsumerGroupCoordinator", groupId="readers", consumerId="one",
                               coordinator=joined["coordinator"], epoch=joined["epoch"])
                other.call("LeaveConsumerGroup", groupId="readers", consumerId="one")
            second.end()
            await publish(10, policy="LEADER")  # when it comes again, it is given all at once
            second.start()
            await publish(1)
            await until(lambda: log_of(first) == log_of(second))
            await part(client)
            second.end()
            first.end()
            for server, name in (first, "a"), (second, "b"):
                recording.keep_log(server.partition("both"), f"both-0-{name}")
        await recording.keep()
        missing = set(range(15)) - {kind for kind, _ in recording.enclosed()}
        if missing:
            raise TimeoutError(f"of the types {missing} none has passed")


def log_of(server: Liftbridge) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(server.partition("both").glob("*.log")))


def record(target: Path) -> None:
    """Fill the directory. Servers that the machine does not let run in time lose their leadership, and refuse what they
    are asked, or ask others than they should: then once more."""
    import grpc

    for case in single, pair:
        for attempts in reversed(range(3)):
            try:
                asyncio.run(case(target / case.__name__))
                break
            except (grpc.RpcError, TimeoutError) as error:
                if not attempts:
                    raise
                print(f"{case.__name__} once more: {error}")
                shutil.rmtree(target / case.__name__)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", type=Path, default=CORPUS, help="the directory to fill")
    target = parser.parse_args().target
    shutil.rmtree(target, ignore_errors=True)
    record(target)
    for file in sorted(target.rglob("*")):
        if file.is_file():
            print(f"{file.relative_to(target)}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
