"""One connection to a broker, without the socket: bytes to send, room for the bytes received, answers."""
from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.rows import Block
from wirescan.errors import FrameError
from wirescan.kafka.client.effects import Answer, Node
from wirescan.kafka.client.sasl import login
from wirescan.kafka.compose import encode_request
from wirescan.kafka.errors import BrokerError, ErrorCode
from wirescan.kafka.message import REQUEST
from wirescan.kafka.protocol import REQUESTS, body, responses
from wirescan.kafka.schema import api_key, message_of
from wirescan.limits import Limits
from wirescan.table import FrameTable

SIZE = 4                    # bytes of the size before each message
FIRST_ROOM = 64 << 10       # bytes that are taken for a response of which nothing has arrived
GREETING = 3                # the version of ApiVersions that a connection begins with
HANG_UPS = 3                # on the greeting, until a broker is taken for one of before 0.10: it may just be starting
TLS_ALERT = b"\x15\x03"     # what TLS answers to bytes that are none; no size within the default limits begins so
LARGEST_ID = 0x7FFFFFFF
LAST_BEFORE = 16            # the key of the newest API that brokers of before 0.10 have
NOTHING = memoryview(b"")


class _Open(NamedTuple):
    """A request that waits for its response."""
    api: str
    version: int
    correlation_id: int
    expected: int


class Connection:
    """The state of a connection. Sends requests (`send`), and reads responses where they arrive (`room`, `filled`).

    versions: API key -> (oldest, newest) that the broker has. Empty: one of before 0.10, which does not say; it has
    version 0 of everything. has_answered: whether it has answered anything. limits: of the responses; no more
    memory is taken than has arrived, but for what `expected` allows and a few KiB.

    After an exception the connection must be closed: it raises ConnectionError from then on.
    """

    def __init__(self, node: Node, client_id: str | None = None, limits: Limits = Limits()):
        self.node, self.versions, self.has_answered = node, dict[int, tuple[int, int]](), False
        self._client_id, self._limits = client_id, limits
        self._open: deque[_Open] = deque()
        self._correlation_id = self._total = 0
        self._failed = False
        self._begin()

    @property
    def is_idle(self) -> bool:
        """Whether every request has its response."""
        return not (self._open or self._have or self._failed)

    def version_of(self, api: str, within: range | None = None) -> int:
        """The newest version of an API that both sides have, in a range where one is given. Raises BrokerError, with
        UNSUPPORTED_VERSION, where there is none."""
        key = api_key(api)
        oldest, newest = self.versions.get(key, (0, -1) if self.versions or key > LAST_BEFORE else (0, 0))
        known = message_of(api, "request").versions
        wanted = known if within is None else range(max(known[0], within.start), min(known.stop, within.stop))
        version = min(newest, wanted.stop - 1)
        if version < max(oldest, wanted.start):
            have = f"{oldest} to {newest}" if newest >= oldest else "none"
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION,
                              f"{api} {wanted.start} to {wanted.stop - 1} at {self.node}, which has {have}")
        return version

    def send(self, api: str, version: int, body: Mapping[str, Any] | None = None, *, answered: bool = True,
             expected: int = 0) -> bytes:
        """The bytes of a request. Raises as `encode_request`; then nothing is sent, and the connection stays good."""
        self._refuse_failed()
        number = self._correlation_id
        data = encode_request(api, version, body, correlation_id=number, client_id=self._client_id)
        self._correlation_id = number + 1 & LARGEST_ID
        if answered:
            self._open.append(_Open(api, version, number, expected))
        return data

    def room(self) -> memoryview:
        """Where the next bytes from the broker go: writable, never empty. They are told to `filled`."""
        self._refuse_failed()
        return self._block[self._have:]

    def filled(self, count: int) -> Answer | None:
        """So many bytes were written to `room`: an answer, if they complete one.

        Raises FrameError for a size that is impossible or above limits.frame and for a body that lies, ConnectionError
        for an answer to anything but the oldest open request."""
        self._have += count
        if self._have < len(self._block):
            return None
        try:
            if self._total == 0:
                self._total = self._sized()
            if self._have < self._total:
                self._grow()
                return None
            return self._answer()
        except BaseException as error:
            self._failed = True
            if isinstance(error, FrameError):
                error.source = error.source or str(self.node)
            raise

    def receive(self, data: bytes | memoryview) -> list[Answer]:
        """Bytes from the broker, as they come: the answers that they complete. Raises as `filled`."""
        view, found = memoryview(data).cast("B"), []
        while len(view):
            room = self.room()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            view = view[count:]
            answer = self.filled(count)
            if answer is not None:
                found.append(answer)
        return found

    def closed(self) -> ConnectionError:
        """The broker closed the connection: what to raise for it."""
        self._failed = True
        if self._have:
            return ConnectionError(f"{self.node} closed the connection inside a response, {self._have} bytes into it")
        return ConnectionResetError(f"{self.node} closed the connection"
                                    + (f" instead of answering {self._open[0].api}" if self._open else ""))

    def _refuse_failed(self) -> None:
        if self._failed:
            raise ConnectionError(f"the connection to {self.node} failed before")

    def _begin(self) -> None:
        self._block, self._have = memoryview(bytearray(SIZE)), 0
        self._total = 0             # bytes of the response; not known yet

    def _sized(self) -> int:
        size = int.from_bytes(self._block, "big", signed=True)
        if bytes(self._block[:2]) == TLS_ALERT:
            raise PermissionError(f"{self.node} speaks TLS; connect with tls")
        if not self._open:
            raise ConnectionError(f"{self.node} sends what nobody asked for")
        if not SIZE <= size <= self._limits.frame - SIZE:
            raise FrameError(Fault.BAD_LENGTH, 0, 0, bytes(self._block))
        return SIZE + size

    def _grow(self) -> None:
        room = max(2 * self._have, FIRST_ROOM, self._open[0].expected if self._have == SIZE else 0)
        block = memoryview(Block(min(room, self._total)))
        block[:self._have] = self._block[:self._have]
        self._block = block

    def _answer(self) -> Answer:
        asked, data = self._open.popleft(), self._block.toreadonly()
        found = int.from_bytes(data[SIZE:2 * SIZE], "big", signed=True)
        if found != asked.correlation_id:
            raise ConnectionError(f"{self.node} answers request {found}, and the oldest open one is "
                                  f"{asked.correlation_id}, {asked.api}")
        self._begin()
        self.has_answered = True
        row = np.zeros(1, REQUEST)
        row["correlation_id"], row["api_key"], row["api_version"] = found, api_key(asked.api), asked.version
        request = FrameTable((NOTHING,), row, format=REQUESTS)      # the row alone tells what the response is
        table = body(responses(data, request, limits=self._limits), asked.api, limits=self._limits)
        return Answer(int(table["kind"][0]), table)


def greet(connection: Connection, sasl: tuple[str, str, str] | None = None,
          is_doubted: bool = False) -> Generator[bytes, Answer, None]:
    """What is said first on a connection: yields bytes to send, and is sent the Answer to each.

    Learns the versions, and logs in. is_doubted: begins with an empty request that brokers of before 0.10 know too. One
    that answers it, and hangs up all the same, is not starting, but of these. Raises BrokerError where the broker
    refuses, PermissionError where it does not know the password itself, ValueError and ImportError as `sasl.login`."""
    software = {"client_software_name": "wirescan", "client_software_version": import_module("wirescan").__version__}
    if is_doubted:
        yield connection.send("ListOffsets", 0)
    answer = yield connection.send("ApiVersions", GREETING, software)
    if answer.table["error_code"][0] == ErrorCode.UNSUPPORTED_VERSION:
        answer = yield connection.send("ApiVersions", 0)
    _refuse_error(answer.table, "error_code", f"ApiVersions at {connection.node}")
    keys = answer.table.open("api_keys")
    connection.versions = dict(zip(keys["api_key"].tolist(),
                                   zip(keys["min_version"].tolist(), keys["max_version"].tolist())))
    if sasl is not None:
        yield from _log_in(connection, *sasl)


def _log_in(connection: Connection, mechanism: str, user: str, password: str) -> Generator[bytes, Answer, None]:
    where = f"{mechanism} at {connection.node}"
    steps = login(mechanism, user, password, str(connection.node))
    token = next(steps)
    version = connection.version_of("SaslHandshake", range(1, 2))
    answer = yield connection.send("SaslHandshake", version, {"mechanism": mechanism})
    offered = ", ".join(bytes(row.name).decode("utf-8", "backslashreplace") for row in answer.table.open("mechanisms"))
    _refuse_error(answer.table, "error_code", f"{where}, which offers {offered or 'none'}")
    while True:
        version = connection.version_of("SaslAuthenticate")
        answer = yield connection.send("SaslAuthenticate", version, {"auth_bytes": token})
        _refuse_error(answer.table, "error_code", where)
        try:
            token = steps.send(bytes(answer.table.bytes(0, "auth_bytes")))
        except StopIteration:
            return


def _refuse_error(table: FrameTable, column: str, where: str) -> None:
    code = int(table[column][0])
    if code:
        said = table.bytes(0, "error_message") if "error_message" in table.places else None
        raise BrokerError(code, where, None if said is None else bytes(said).decode("utf-8", "backslashreplace"))


def unreached(node: Node, error: Exception, seconds: float) -> OSError:
    """What to raise where a node cannot be connected to."""
    if isinstance(error, TimeoutError):
        return TimeoutError(f"{node} cannot be reached in {seconds} s")
    if type(error).__module__ == "ssl" and type(error).__name__ != "SSLEOFError":      # no use in trying again
        return PermissionError(f"TLS with {node} fails: {error}")
    return ConnectionError(f"cannot connect to {node}: {error}")


def lost(node: Node, error: Exception) -> ConnectionError:
    """What to raise for an error of a socket: TLS has some of its own, and one that another thread closes one more."""
    kind = type(error) if isinstance(error, ConnectionError) else ConnectionError
    return kind(f"the connection to {node} is lost: {error}")
