"""A Lumberjack server of a page: it keeps the bytes of each connection, and acknowledges each window, when it is
complete, with its highest sequence number, which is what every known client takes.

    with Reader() as reader:                # or Reader(identity): PEM file of key and certificate; it speaks TLS
        ...                                 # clients connect to reader.address
        for connection in reader.take():
            connection.sent, connection.acks
"""
import contextlib
import io
import socket
import ssl
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path


class Connection:
    def __init__(self):
        self.sent, self.acks = bytearray(), bytearray()

    def serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError):  # a client may hang up where it likes
            for version, sequence in windows(Stream(client, self.sent)):
                ack = version + b"A" + struct.pack(">I", sequence)
                self.acks += ack
                client.sendall(ack)


class Stream:
    """What comes from a socket, kept."""

    def __init__(self, client: socket.socket, kept: bytearray):
        self._client, self._kept = client, kept

    def read(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size and (part := self._client.recv(size - len(parts))):
            self._kept += part
            parts += part
        return parts


def windows(stream) -> Iterator[tuple[bytes, int]]:
    """(version, highest sequence number) of each window, when its last event has been read."""
    left, highest = 0, 0
    for version, kind, number in frames(stream):
        if kind == b"W":
            left, highest = number, 0
        else:
            left, highest = left - 1, max(highest, number)
        if left == 0:
            yield version, highest


def frames(stream) -> Iterator[tuple[bytes, bytes, int]]:
    """(version, type, first number) of each frame but C, which is opened."""
    def number() -> int:
        return struct.unpack(">I", exactly(stream, 4))[0]

    while version := stream.read(1):
        kind, first = exactly(stream, 1), number()
        if kind == b"C":
            yield from frames(io.BytesIO(zlib.decompress(exactly(stream, first))))
            continue
        lengths = {b"W": 0, b"J": 1}.get(kind)
        for _ in range(2 * number() if lengths is None else lengths):  # D: its pairs
            exactly(stream, number())
        yield version, kind, first


def exactly(stream, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the stream ends inside a frame")
    return data


class Reader:
    def __init__(self, identity: Path | None = None):
        self._context = None
        if identity:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(identity)
        self._served: list[tuple[Connection, threading.Thread]] = []

    def __enter__(self) -> "Reader":
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(OSError):  # a listening socket may refuse the shutdown that wakes accept()
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed by __exit__
            while True:
                client, _ = self._socket.accept()
                connection = Connection()
                thread = threading.Thread(target=self._serve, args=(connection, client), daemon=True)
                self._served.append((connection, thread))
                thread.start()

    def _serve(self, connection: Connection, client: socket.socket) -> None:
        with contextlib.suppress(OSError):  # of the handshake
            connection.serve(self._context.wrap_socket(client, server_side=True) if self._context else client)

    def take(self, timeout: float = 20) -> list[Connection]:
        """The connections since the last call, in the order that they were opened, when all have ended."""
        taken, self._served = self._served, []
        for _, thread in taken:
            thread.join(timeout)
            if thread.is_alive():
                raise TimeoutError("a client keeps its connection open")
        return [connection for connection, _ in taken]
