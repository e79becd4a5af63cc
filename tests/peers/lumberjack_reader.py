"""A small Lumberjack server that keeps the bytes of each connection.

It acknowledges each complete window with the window's highest sequence number. Every known client
accepts that.

    with Reader() as reader:        # Reader(identity) uses TLS; a PEM file of key and certificate
        ...                         # clients connect to reader.address
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
        self.sent = bytearray()
        self.acks = bytearray()

    def serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError):  # a client may hang up at any byte
            for version, sequence in read_windows(Stream(client, self.sent)):
                ack = version + b"A" + struct.pack(">I", sequence)
                self.acks += ack
                client.sendall(ack)


class Stream:
    """Reads a socket and appends the bytes to a record."""

    def __init__(self, client: socket.socket, record: bytearray):
        self._client = client
        self._record = record

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (chunk := self._client.recv(size - len(data))):
            self._record += chunk
            data += chunk
        return data


def read_windows(stream) -> Iterator[tuple[bytes, int]]:
    """Yield (version, highest sequence number) of each window after its last event."""
    left, highest = 0, 0
    for version, kind, number in read_frames(stream):
        if kind == b"W":
            left, highest = number, 0
        else:
            left, highest = left - 1, max(highest, number)
        if left == 0:
            yield version, highest


def read_frames(stream) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield (version, type, first number) of each frame. Compressed frames are decompressed."""

    def number() -> int:
        return struct.unpack(">I", read_exactly(stream, 4))[0]

    while version := stream.read(1):
        kind, first = read_exactly(stream, 1), number()
        if kind == b"C":
            yield from read_frames(io.BytesIO(zlib.decompress(read_exactly(stream, first))))
            continue
        strings = {b"W": 0, b"J": 1}.get(kind)
        if strings is None:
            strings = 2 * number()  # a data frame has pairs
        for _ in range(strings):
            read_exactly(stream, number())
        yield version, kind, first


def read_exactly(stream, size: int) -> bytes:
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
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        # The shutdown wakes accept(). A listening socket may refuse it.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # __exit__ closes the socket
            while True:
                client, _ = self._socket.accept()
                connection = Connection()
                thread = threading.Thread(
                    target=self._serve, args=(connection, client), daemon=True
                )
                self._served.append((connection, thread))
                thread.start()

    def _serve(self, connection: Connection, client: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the handshake may fail
            if self._context:
                client = self._context.wrap_socket(client, server_side=True)
            connection.serve(client)

    def take(self, timeout: float = 20) -> list[Connection]:
        """Return the connections since the last call, in the order of their opening.

        Waits until all of them have ended.
        """
        served, self._served = self._served, []
        for _, thread in served:
            thread.join(timeout)
            if thread.is_alive():
                raise TimeoutError("a client keeps its connection open")
        return [connection for connection, _ in served]
