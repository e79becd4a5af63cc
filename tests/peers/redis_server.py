"""A real redis-server of Debian's package, and a conversation with it as it was on the wire.

    with RedisServer() as server:
        requests, replies = record(server.address)

The server listens on a free port of 127.0.0.1. `python -m tests.peers.redis_server FOLDER` records
the conversation that the tests of tests/outside/resp read.
"""

import socket
import sys
from pathlib import Path

from .lumberjack import Program
from .ports import find_free_ports

# The commands, and the number of replies to all of them. Each reply is one frame.
COMMANDS = (
    (b"PING",),
    (b"SET", b"greeting", b"hello"),
    (b"GET", b"greeting"),
    (b"GET", b"nothing"),
    (b"SET", b"frame", b"*1\r\n$4\r\nPING\r\n"),
    (b"GET", b"frame"),
    (b"SET", b"zeros", bytes(1000)),
    (b"GET", b"zeros"),
    (b"INCRBY", b"counter", b"-9223372036854775808"),
    (b"INCR", b"greeting"),
    (b"NONSENSE", b"a", b""),
    (b"RPUSH", b"list", *(b"%d" % i for i in range(50))),
    (b"LRANGE", b"list", b"0", b"-1"),
    (b"LRANGE", b"nothing", b"0", b"-1"),
    (b"BLPOP", b"nothing", b"0.01"),
    (b"XADD", b"stream", b"1-1", b"temperature", b"20", b"unit", b"C"),
    (b"XADD", b"stream", b"1-2", b"temperature", b"21"),
    (b"XRANGE", b"stream", b"-", b"+"),
    (b"MULTI",),
    (b"INCR", b"counter"),
    (b"LLEN", b"list"),
    (b"EXEC",),
    (b"EVAL", b"return {1, {2, {3, 'deep'}}, false, redis.error_reply('MINE no')}", b"0"),
    (b"COMMAND", b"INFO", b"GET", b"nonsense"),
    (b"CONFIG", b"GET", b"save"),
)


class RedisServer(Program):
    """redis-server on `address`, without files."""

    def __init__(self):
        (self.port,) = find_free_ports(1)
        self.address = ("127.0.0.1", self.port)
        super().__init__(
            ["redis-server", "--bind", "127.0.0.1", "--port", self.port, "--save", "", "--dir", "."]
        )

    def await_ready(self) -> None:
        self.await_true(self._answers, 30)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(self.address, timeout=5) as connection:
                connection.sendall(b"*1\r\n$4\r\nPING\r\n")
                return connection.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


def encode(words) -> bytes:
    """The bytes of a command."""
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n%b" % (len(words), b"".join(parts))


def record(address: tuple[str, int]) -> tuple[bytes, bytes]:
    """The bytes of all commands, and those of all replies. QUIT ends the connection."""
    requests = b"".join(map(encode, (*COMMANDS, (b"QUIT",))))
    replies = b""
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(requests)
        while chunk := connection.recv(1 << 16):
            replies += chunk
    return requests, replies


if __name__ == "__main__":
    with RedisServer() as redis:
        for name, data in zip(("requests.resp", "replies.resp"), record(redis.address)):
            Path(sys.argv[1], name).write_bytes(data)
