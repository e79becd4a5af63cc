"""Other readers of what a NATS server sends: nats-py's parser, and a plain loop by length; nats-py as a writer."""
from __future__ import annotations

from contextlib import suppress

from nats.protocol.command import hpub_cmd, pub_cmd
from nats.protocol.parser import Parser

READ = 32768                # bytes that nats-py reads from a socket at a time
Message = tuple[bytes, bytes, bytes, bytes, bytes]      # subject, sid, reply, header block, payload


class Nobody:
    """The client behind a parser, with no subscriptions and so without callbacks."""

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, payload: bytes, headers: bytes | None) -> None:
        pass


class Collector:
    """A client that keeps what it is given."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, payload: bytes, headers: bytes | None) -> None:
        self.messages.append((subject, b"%d" % sid, reply, headers or b"", payload))


def pieces(data: bytes) -> list[bytes]:
    """As they come from a socket."""
    return [data[at:at + READ] for at in range(0, len(data), READ)]


def parse(client: Nobody | Collector, pieces: list[bytes]) -> None:
    """Give nats-py's parser these pieces, without an event loop: such a client waits for nothing."""
    async def run() -> None:
        parser = Parser(client)
        for piece in pieces:
            await parser.parse(piece)
        if parser.buf:
            raise ValueError(f"nats-py leaves {len(parser.buf)} bytes")

    with suppress(StopIteration):
        run().send(None)


def split(data: bytes) -> list[Message]:
    """MSG and HMSG, whose last words are their sizes."""
    at, end, messages = 0, len(data), []
    while at < end:
        line = data.index(b"\r\n", at)
        op, subject, sid, *reply, size = data[at:line].split()
        at = start = line + 2
        stop = start + int(size)
        if op == b"HMSG":
            start += int(reply.pop())
        messages.append((subject, sid, reply[0] if reply else b"", data[at:start], data[start:stop]))
        at = stop + 2
    return messages


def published(rows: list[tuple[str, str, bytes, bytes]]) -> list[bytes]:
    """What nats-py sends to publish: of subject, reply, header block and payload."""
    return [hpub_cmd(subject, reply, block, payload) if block else pub_cmd(subject, reply, payload)
            for subject, reply, block, payload in rows]
