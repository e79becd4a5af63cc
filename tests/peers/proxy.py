"""A proxy between a client and a broker. It records both directions of every connection.

    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(Proxy())
        listeners = {"RECORDED": Listener("PLAINTEXT", proxy.address)}
        broker = stack.enter_context(Broker(listeners=listeners))
        proxy.target = broker.addresses["RECORDED"]
        ...                     # clients connect to proxy.address, which the broker advertises
        for connection in proxy.take():
            connection.requests, connection.responses
            connection.client, connection.server    # addresses like "127.0.0.1:9092"

Set the target before a client connects.
"""

import contextlib
import fcntl
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable


def format_address(address: tuple) -> str:
    """Return the address of a socket as text, like "127.0.0.1:9092" or "[::1]:9092"."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of a text that `format_address` returned."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def count_unacknowledged(connection: socket.socket) -> int:
    """Return how many bytes the other side's kernel has not acknowledged."""
    (count,) = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))
    return count


def listen_locally() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


class Connection:
    """The bytes that a client and a broker sent to each other on one connection.

    `client` is the client's address, and `server` the proxy's. `delivered` is the number of
    `responses`' bytes that the proxy has sent to the client. It is less than their size if the
    client hung up before a response arrived. `turns` has the order in which the bytes arrived, as
    (0 for the client's bytes or 1 for the broker's, how many).
    """

    def __init__(self, client: socket.socket, address: tuple[str, int], target: str):
        self.requests = bytearray()
        self.responses = bytearray()
        self.delivered = 0
        self.turns: list[tuple[int, int]] = []
        self.client = format_address(address)
        self.server = format_address(client.getsockname())
        broker = socket.create_connection(parse_address(target), timeout=30)
        self._sockets = client, broker
        for endpoint in self._sockets:
            endpoint.settimeout(None)
        self._threads = [
            threading.Thread(target=self._copy, args=direction, daemon=True)
            for direction in ((client, broker, self.requests), (broker, client, self.responses))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _copy(self, source: socket.socket, target: socket.socket, record: bytearray) -> None:
        with contextlib.suppress(OSError):  # one side may hang up before it has read everything
            while chunk := source.recv(1 << 16):
                record += chunk
                self.turns.append((int(record is self.responses), len(chunk)))
                target.sendall(chunk)
                if record is self.responses:
                    self.delivered += len(chunk)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def is_delivered(self) -> bool:
        """Whether the client's kernel has every byte of `responses`."""
        client, _ = self._sockets
        # Bytes are in `responses` before they are sent.
        return self.delivered == len(self.responses) and not count_unacknowledged(client)

    def close(self, timeout: float) -> None:
        """Wait until both sides have hung up. Raises TimeoutError if they do not in time."""
        for thread in self._threads:
            thread.join(timeout)
            if thread.is_alive():
                raise TimeoutError("a client keeps its connection open")
        for endpoint in self._sockets:
            endpoint.close()


class Proxy:
    """A listener on `address`, at `port`, which forwards every connection to `target`.

    listen: returns the listening socket, by default one of 127.0.0.1.
    """

    def __init__(self, listen: Callable[[], socket.socket] = listen_locally):
        self.target: str | None = None
        self._listen = listen
        self._connections: list[Connection] = []
        self._lock = threading.Lock()

    def __enter__(self) -> "Proxy":
        self._socket = self._listen()
        self.port = self._socket.getsockname()[1]
        self.address = format_address(self._socket.getsockname())
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
                client, address = self._socket.accept()
                connection = Connection(client, address, self.target)
                # `take` must see every connection, and only started ones.
                with self._lock:
                    self._connections.append(connection)
                    connection.start()

    def response_bytes(self) -> int:
        """The number of bytes that the target has sent so far."""
        return sum(len(connection.responses) for connection in self._connections)

    def await_delivery(self, timeout: float = 20) -> None:
        """Wait until the clients' kernels have every byte that the target has sent.

        A client that hangs up before would lose the others. Raises TimeoutError.
        """
        until = time.monotonic() + timeout
        while not all(connection.is_delivered() for connection in self._connections):
            if time.monotonic() > until:
                raise TimeoutError("a client does not receive the bytes of the server")
            time.sleep(0.005)

    def take(self, timeout: float = 20) -> list[Connection]:
        """Return the connections since the last call, in the order of their opening.

        Waits until all of them have ended.
        """
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            connection.close(timeout)
        return connections
