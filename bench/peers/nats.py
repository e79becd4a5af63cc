"""Other readers and writers of NATS messages: nats-py, and a plain loop by length."""

from __future__ import annotations

from contextlib import suppress

from nats.protocol.command import hpub_cmd, pub_cmd
from nats.protocol.parser import Parser

READ = 32768  # bytes that nats-py reads from a socket at a time
Message = tuple[bytes, bytes, bytes, bytes, bytes]  # subject, sid, reply, header block, payload


class DroppingClient:
    """A client of a parser that drops all messages."""

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, payload: bytes, headers: bytes | None
    ) -> None:
        pass


class CollectingClient:
    """A client of a parser that keeps all messages."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, payload: bytes, headers: bytes | None
    ) -> None:
        self.messages.append((subject, b"%d" % sid, reply, headers or b"", payload))


def cut_pieces(data: bytes) -> list[bytes]:
    """Cut bytes into pieces of the size of a socket read."""
    return [data[at : at + READ] for at in range(0, len(data), READ)]


def parse(client: DroppingClient | CollectingClient, pieces: list[bytes]) -> None:
    """Give pieces to nats-py's parser. No event loop is needed, because the client never waits."""

    async def run() -> None:
        parser = Parser(client)
        for piece in pieces:
            await parser.parse(piece)
        if parser.buf:
            raise ValueError(f"nats-py leaves {len(parser.buf)} bytes")

    with suppress(StopIteration):
        run().send(None)


def split(data: bytes) -> list[Message]:
    """Split MSG and HMSG by the sizes at the end of their control lines."""
    at = 0
    end = len(data)
    messages = []
    while at < end:
        line = data.index(b"\r\n", at)
        op, subject, sid, *reply, size = data[at:line].split()
        at = start = line + 2
        stop = start + int(size)
        if op == b"HMSG":
            start += int(reply.pop())
        messages.append(
            (subject, sid, reply[0] if reply else b"", data[at:start], data[start:stop])
        )
        at = stop + 2
    return messages


def encode_commands(rows: list[tuple[str, str, bytes, bytes]]) -> list[bytes]:
    """Encode PUB and HPUB with nats-py, from (subject, reply, header block, payload) rows."""
    return [
        hpub_cmd(subject, reply, block, payload) if block else pub_cmd(subject, reply, payload)
        for subject, reply, block, payload in rows
    ]
