"""A fake NATS server with a fake Liftbridge server, for clients in the same event loop.

The tests set its answers. The module also has the functions of Protocol Buffers that messages and
acks need.
"""

import asyncio
import contextlib
import json
from collections import defaultdict

from tests.support.varint import make_varint

MAGIC = b"\xb9\x0eC\xb4\x00\x08\x00"  # begins an envelope without a checksum; its kind follows
MESSAGE_KIND, ACK_KIND = b"\0", b"\1"
INBOX_FIELD, CORRELATION_FIELD, POLICY_FIELD = 10, 11, 12  # of a message
NO_ACK = 2  # the policy of a message that wants no ack


def make_fields(**numbered):
    """Return a Protocol Buffers message. f1, f2 and so on are integers, bytes or str.

    Fields that are 0 or empty are missing.
    """
    out = b""
    for name, value in numbered.items():
        number = int(name[1:])
        value = value.encode() if isinstance(value, str) else value
        if isinstance(value, bytes) and value:
            out += make_varint(number << 3 | 2) + make_varint(len(value)) + value
        elif isinstance(value, int) and value:
            out += make_varint(number << 3) + make_varint(value)
    return out


def make_ack(
    one="",
    offset=0,
    error=0,
    policy=0,
    stream="orders",
    subject="orders",
    inbox="",
    received=0,
    committed=0,
):
    """Return the payload of an ack. `one` is its correlation id."""
    body = make_fields(
        f1=stream,
        f2="of the stream",
        f3=subject,
        f4=offset,
        f5=inbox,
        f6=one,
        f7=policy,
        f8=received,
        f9=committed,
        f10=error,
    )
    return MAGIC + ACK_KIND + body


def parse_message(payload):
    """Return {field number: last value} for the message in a payload. Integers are unsigned."""
    assert payload.startswith(MAGIC + MESSAGE_KIND)
    values = {}
    at = 8

    def read_varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            value |= (byte & 127) << shift
            shift += 7
            at += 1
            if byte < 128:
                return value

    while at < len(payload):
        tag = read_varint()
        value = read_varint()
        if tag & 7 == 2:
            size = value
            value = payload[at : at + size]
            at += size
        values[tag >> 3] = value
    return values


class FakeLiftbridge:
    """The server.

    Attributes:
        answer: (subject, message) -> payloads for its inbox. The default is `acknowledge`.
        stored: (subject, payload) of everything that was published.
        offsets: subject -> its next offset.
    """

    def __init__(self, answer=None):
        self.answer = answer or self.acknowledge
        self.stored = []
        self.offsets = defaultdict(int)
        self._subscriptions = []  # (writer, subject, sid)
        self._writers = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = "nats://{}:{}".format(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(self, *_):
        self.stop()
        await self._server.wait_closed()

    def acknowledge(self, subject, values):
        """Return an ack with the next offset of the subject, unless the message wants none."""
        offset = self.offsets[subject]
        self.offsets[subject] += 1
        policy = values.get(POLICY_FIELD, 0)
        if policy == NO_ACK:
            return []
        correlation_id = values[CORRELATION_FIELD].decode()
        return [
            make_ack(
                correlation_id, offset, subject=subject, policy=policy, received=7, committed=8
            )
        ]

    def deliver(self, subject, payload):
        """Send a payload to all subscribers of a subject."""
        for writer, pattern, sid in self._subscriptions:
            if pattern == subject:
                writer.write(f"MSG {subject} {sid} {len(payload)}\r\n".encode() + payload + b"\r\n")

    def stop(self):
        """Close all connections and accept no new ones."""
        self._server.close()
        self.hang_up()

    def hang_up(self):
        """Close all connections."""
        for writer in self._writers:
            writer.close()
        self._subscriptions = []
        self._writers = []

    async def _serve(self, reader, writer):
        self._writers.append(writer)
        info = {
            "server_id": "fake",
            "version": "2.10.0",
            "proto": 1,
            "headers": True,
            "max_payload": 1 << 20,
        }
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                operation, *words = line.decode().split()
                if operation == "PING":
                    writer.write(b"PONG\r\n")
                elif operation == "SUB":
                    self._subscriptions.append((writer, words[0], words[-1]))
                elif operation == "UNSUB":
                    self._unsubscribe(writer, words[0])
                elif operation == "PUB":
                    payload = (await reader.readexactly(int(words[-1]) + 2))[:-2]
                    self._store(words[0], payload)

    def _unsubscribe(self, writer, sid):
        self._subscriptions = [
            subscription
            for subscription in self._subscriptions
            if (subscription[0], subscription[2]) != (writer, sid)
        ]

    def _store(self, subject, payload):
        """Store and deliver a published payload. Answer it if it is a message with an inbox."""
        self.stored.append((subject, payload))
        self.deliver(subject, payload)
        if payload.startswith(MAGIC + MESSAGE_KIND):
            values = parse_message(payload)
            if INBOX_FIELD in values:
                for answer in self.answer(subject, values):
                    self.deliver(values[INBOX_FIELD].decode(), answer)
