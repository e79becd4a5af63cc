"""A NATS server in which a Liftbridge server answers as a test says, for clients in the same event loop; and the few
lines of protobuf that it takes to read messages and to write acks.
"""
import asyncio
import contextlib
import json
from collections import defaultdict

MAGIC = b"\xb9\x0eC\xb4\x00\x08\x00"        # of an envelope without a checksum; its type follows


def varint(number):
    number %= 1 << 64
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def fields(**numbered):
    """A protobuf message: f1=..., f2=...: integers, bytes and str; nothing for 0 and ""."""
    out = b""
    for name, value in numbered.items():
        number = int(name[1:])
        value = value.encode() if isinstance(value, str) else value
        if isinstance(value, bytes) and value:
            out += varint(number << 3 | 2) + varint(len(value)) + value
        elif isinstance(value, int) and value:
            out += varint(number << 3) + varint(value)
    return out


def ack(one="", offset=0, error=0, policy=0, stream="orders", subject="orders", inbox="", received=0, committed=0):
    """The payload of an ack; `one` is its correlation id."""
    return MAGIC + b"\1" + fields(f1=stream, f2="of the stream", f3=subject, f4=offset, f5=inbox, f6=one, f7=policy,
                                  f8=received, f9=committed, f10=error)


def message(payload):
    """Field number -> its last value, of the message in a payload; integers as on the wire."""
    assert payload.startswith(MAGIC + b"\0")
    found, at = {}, 8

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value

    while at < len(payload):
        tag = number()
        value = number()
        if tag & 7 == 2:
            value, at = payload[at:at + value], at + value
        found[tag >> 3] = value
    return found


class FakeLiftbridge:
    """answer: (subject, message) -> payloads for the message's inbox; None: an ack with the next offset of the subject.
    stored: (subject, payload) of all that was published."""

    def __init__(self, answer=None):
        self.answer = answer or self.acknowledge
        self.stored, self.offsets = [], defaultdict(int)
        self._subscriptions, self._writers = [], []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = "nats://{}:{}".format(*self._server.sockets[0].getsockname())
        return self

    async def __aexit__(self, *_):
        self.stop()
        await self._server.wait_closed()

    def acknowledge(self, subject, found):
        offset = self.offsets[subject]
        self.offsets[subject] += 1
        return [] if found.get(12) == 2 else [
            ack(found[11].decode(), offset, subject=subject, policy=found.get(12, 0), received=7, committed=8)]

    def deliver(self, subject, payload):
        """To everybody who has subscribed to it."""
        for writer, wanted, sid in self._subscriptions:
            if wanted == subject:
                writer.write(f"MSG {subject} {sid} {len(payload)}\r\n".encode() + payload + b"\r\n")

    def stop(self):
        """End all connections, and take no new one."""
        self._server.close()
        self.hang_up()

    def hang_up(self):
        """End all connections."""
        for writer in self._writers:
            writer.close()
        self._subscriptions, self._writers = [], []

    async def _serve(self, reader, writer):
        self._writers.append(writer)
        info = {"server_id": "fake", "version": "2.10.0", "proto": 1, "headers": True, "max_payload": 1 << 20}
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                operation, *words = line.decode().split()
                if operation == "PING":
                    writer.write(b"PONG\r\n")
                elif operation == "SUB":
                    self._subscriptions.append((writer, words[0], words[-1]))
                elif operation == "UNSUB":
                    self._subscriptions = [one for one in self._subscriptions if (one[0], one[2]) != (writer, words[0])]
                elif operation == "PUB":
                    payload = (await reader.readexactly(int(words[-1]) + 2))[:-2]
                    self._published(words[0], payload)

    def _published(self, subject, payload):
        self.stored.append((subject, payload))
        self.deliver(subject, payload)
        if payload.startswith(MAGIC + b"\0"):
            found = message(payload)
            for answer in self.answer(subject, found) if 10 in found else ():
                self.deliver(found[10].decode(), answer)
