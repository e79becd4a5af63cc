"""A listener between a client and a broker, that keeps what each says to the other.

    with Proxy() as proxy, Broker(listeners={"RECORDED": Listener("PLAINTEXT", proxy.address)}) as broker:
        proxy.target = broker.addresses["RECORDED"]
        ...                                 # clients connect to proxy.address; the broker tells them the same address
        for connection in proxy.take():
            connection.requests, connection.responses
"""
import contextlib
import socket
import threading


class Connection:
    """What a client and a broker sent to each other on one connection."""

    def __init__(self, client: socket.socket, target: str):
        self.requests, self.responses = bytearray(), bytearray()
        host, port = target.rsplit(":", 1)
        self._sockets = client, socket.create_connection((host, int(port)), timeout=30)
        for one in self._sockets:
            one.settimeout(None)
        client, broker = self._sockets
        self._threads = [threading.Thread(target=self._copy, args=way, daemon=True)
                         for way in ((client, broker, self.requests), (broker, client, self.responses))]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _copy(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with contextlib.suppress(OSError):  # one side hung up with data on the way
            while part := source.recv(1 << 16):
                kept += part
                target.sendall(part)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self, timeout: float) -> None:
        """Wait until both sides have hung up. Raises TimeoutError where they have not in time."""
        for thread in self._threads:
            thread.join(timeout)
            if thread.is_alive():
                raise TimeoutError("a client keeps its connection open")
        for one in self._sockets:
            one.close()


class Proxy:
    """A listener at `address`, which passes everything on to `target` and back."""

    def __init__(self):
        self.target: str | None = None
        self._connections: list[Connection] = []

    def __enter__(self) -> "Proxy":
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
                connection = Connection(client, self.target)
                self._connections.append(connection)    # before anything is said: it may soon be over
                connection.start()

    def answered(self) -> int:
        """How many bytes the target has sent so far."""
        return sum(len(connection.responses) for connection in self._connections)

    def take(self, timeout: float = 20) -> list[Connection]:
        """The connections since the last call, in the order that they were opened, when all have ended."""
        taken, self._connections = self._connections, []
        for connection in taken:
            connection.close(timeout)
        return taken
