"""The state of one connection to a broker, without the socket.

A connection makes the bytes to send, provides the buffer for received bytes, and returns answers.
The drivers in sockets.py and transports.py use it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.rows import Block
from wirescan.frames.errors import FrameError
from wirescan.frames.escape import make_bytes_visible, make_visible
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.kafka.client.cluster import decode_text
from wirescan.kafka.client.effects import Answer, Node
from wirescan.kafka.client.sasl import login
from wirescan.kafka.protocol.encode import encode_request
from wirescan.kafka.protocol.error_codes import BrokerError, ErrorCode
from wirescan.kafka.protocol.formats import REQUESTS, body, responses
from wirescan.kafka.protocol.message import REQUEST
from wirescan.kafka.protocol.schema import get_api_key, get_message

SIZE_BYTES = 4  # the size before each message
FIRST_BUFFER_BYTES = 64 << 10  # allocated for a response before any of its bytes has arrived
GREETING_VERSION = 3  # the version of ApiVersions that a connection begins with
# A broker that hangs up on the greeting may be starting. After this many hang-ups it is treated
# as a broker before 0.10.
HANG_UPS = 3
# How TLS answers bytes that are not TLS. No size within the default limits begins with these.
TLS_ALERT = b"\x15\x03"
CLOSED = "the client is closed"  # a message of errors
MAX_CORRELATION_ID = 0x7FFFFFFF
LAST_KEY_BEFORE_0_10 = 16  # the key of the newest API of brokers before 0.10
EMPTY_BUFFER = memoryview(b"")


class _OpenRequest(NamedTuple):
    """A request that waits for its response."""

    api: str
    version: int
    correlation_id: int
    expected: int


class Connection:
    """The state of a connection.

    It makes requests (`send`). It reads responses from the buffer in which they arrive
    (`get_buffer`, `buffer_updated`), or from bytes (`receive`).

    versions: API key -> (oldest, newest) that the broker has. It is empty for a broker before 0.10,
        which does not report versions and has version 0 of all its APIs.
    has_answered: whether the broker has answered any request.
    limits: the limits of responses. Memory is allocated as bytes arrive, except for the `expected`
        bytes of a request and a few KiB.

    After an exception the caller must close the connection; every later call raises
    ConnectionError.
    """

    def __init__(self, node: Node, client_id: str | None = None, limits: Limits = Limits()):
        self.node = node
        self.versions: dict[int, tuple[int, int]] = {}
        self.has_answered = False
        self._client_id = client_id
        self._limits = limits
        self._open: deque[_OpenRequest] = deque()
        self._correlation_id = 0
        self._failed = False
        # The buffer of the current response, how many bytes of it are filled, and the size of the
        # response, which is 0 until it has been read.
        self._block = memoryview(bytearray(SIZE_BYTES))
        self._filled = 0
        self._total = 0

    @property
    def is_idle(self) -> bool:
        """Whether every request has its response."""
        return not (self._open or self._filled or self._failed)

    def choose_version(self, api: str, within: range | None = None) -> int:
        """Return the newest version of an API that both sides have.

        within: the versions that are allowed; None allows all. Raises BrokerError with
        UNSUPPORTED_VERSION where there is no such version.
        """
        key = get_api_key(api)
        has_version_0 = not self.versions and key <= LAST_KEY_BEFORE_0_10
        oldest, newest = self.versions.get(key, (0, 0) if has_version_0 else (0, -1))
        allowed = get_message(api, "request").versions
        if within is not None:
            allowed = range(max(allowed.start, within.start), min(allowed.stop, within.stop))
        version = min(newest, allowed.stop - 1)
        if version < max(oldest, allowed.start):
            offered = f"{oldest} to {newest}" if newest >= oldest else "none"
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{api} {allowed.start} to {allowed.stop - 1} at {self.node}, which has {offered}",
            )
        return version

    def send(
        self,
        api: str,
        version: int,
        body: Mapping[str, Any] | None = None,
        *,
        answered: bool = True,
        expected: int = 0,
    ) -> bytes:
        """Return the bytes of a request, and expect its response if it is answered.

        expected: bytes of the response for which memory is allocated at once. Raises as
        `encode_request`; after that the connection is still usable.
        """
        self._raise_if_failed()
        number = self._correlation_id
        data = encode_request(api, version, body, correlation_id=number, client_id=self._client_id)
        self._correlation_id = number + 1 & MAX_CORRELATION_ID
        if answered:
            self._open.append(_OpenRequest(api, version, number, expected))
        return data

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes from the broker: writable, never empty.

        Report the number of bytes written to it with `buffer_updated`.
        """
        self._raise_if_failed()
        return self._block[self._filled :]

    def buffer_updated(self, count: int) -> Answer | None:
        """Return an answer if the `count` bytes written to `get_buffer` complete one, else None.

        Raises FrameError for a size that is impossible or above limits.frame, and for a malformed
        body. Raises ConnectionError for an answer to anything but the oldest open request.
        """
        self._filled += count
        if self._filled < len(self._block):
            return None
        try:
            if self._total == 0:
                self._total = self._read_size()
            if self._filled < self._total:
                self._grow()
                return None
            return self._read_answer()
        except BaseException as error:
            self._failed = True
            if isinstance(error, FrameError):
                error.source = error.source or str(self.node)
            raise

    def receive(self, data: bytes | memoryview) -> list[Answer]:
        """Return the answers that these bytes from the broker complete.

        Raises as `buffer_updated`.
        """
        view = memoryview(data).cast("B")
        answers = []
        while len(view):
            buffer = self.get_buffer()
            count = min(len(buffer), len(view))
            buffer[:count] = view[:count]
            view = view[count:]
            answer = self.buffer_updated(count)
            if answer is not None:
                answers.append(answer)
        return answers

    def make_close_error(self) -> ConnectionError:
        """Return the error to raise when the broker has closed the connection."""
        self._failed = True
        if self._filled:
            return ConnectionError(
                f"{self.node} closed the connection inside a response, {self._filled} bytes into it"
            )
        instead = f" instead of answering {self._open[0].api}" if self._open else ""
        return ConnectionResetError(f"{self.node} closed the connection{instead}")

    def _raise_if_failed(self) -> None:
        if self._failed:
            raise ConnectionError(f"the connection to {self.node} failed before")

    def _start_response(self) -> None:
        self._block = memoryview(bytearray(SIZE_BYTES))
        self._filled = 0
        self._total = 0

    def _read_size(self) -> int:
        size = int.from_bytes(self._block, "big", signed=True)
        if bytes(self._block[:2]) == TLS_ALERT:
            raise PermissionError(f"{self.node} speaks TLS; connect with tls")
        if not self._open:
            raise ConnectionError(f"{self.node} sends bytes without a request")
        if not SIZE_BYTES <= size <= self._limits.frame - SIZE_BYTES:
            raise FrameError(Fault.BAD_LENGTH, 0, 0, bytes(self._block))
        return SIZE_BYTES + size

    def _grow(self) -> None:
        expected = self._open[0].expected if self._filled == SIZE_BYTES else 0
        size = max(2 * self._filled, FIRST_BUFFER_BYTES, expected)
        block = memoryview(Block(min(size, self._total)))
        block[: self._filled] = self._block[: self._filled]
        self._block = block

    def _read_answer(self) -> Answer:
        request = self._open.popleft()
        data = self._block.toreadonly()
        number = int.from_bytes(data[SIZE_BYTES : 2 * SIZE_BYTES], "big", signed=True)
        if number != request.correlation_id:
            raise ConnectionError(
                f"{self.node} answers request {number}, and the oldest open one is "
                f"{request.correlation_id}, {request.api}"
            )
        self._start_response()
        self.has_answered = True
        row = np.zeros(1, REQUEST)
        row["correlation_id"] = number
        row["api_key"] = get_api_key(request.api)
        row["api_version"] = request.version
        # The row alone says how to read the response, so the request table needs no bytes.
        request_table = FrameTable((EMPTY_BUFFER,), row, format=REQUESTS)
        table = body(
            responses(data, request_table, limits=self._limits), request.api, limits=self._limits
        )
        return Answer(int(table["kind"][0]), table)


def greet(
    connection: Connection,
    sasl: tuple[str, str, str] | None = None,
    *,
    is_doubted: bool = False,
) -> Generator[bytes, Answer, None]:
    """Yield the first requests of a connection, and receive the Answer to each.

    Stores the broker's versions in the connection, and logs in.

    sasl: (mechanism, user, password), or None for no login.
    is_doubted: begin with an empty request that brokers before 0.10 know too. A broker that answers
        it and then hangs up is not starting; it is one of those.

    Raises BrokerError where the broker refuses, PermissionError where the broker does not know the
    password, ValueError and ImportError as `sasl.login`.
    """
    software = {
        "client_software_name": "wirescan",
        "client_software_version": import_module("wirescan").__version__,
    }
    if is_doubted:
        yield connection.send("ListOffsets", 0)
    answer = yield connection.send("ApiVersions", GREETING_VERSION, software)
    if answer.table["error_code"][0] == ErrorCode.UNSUPPORTED_VERSION:
        answer = yield connection.send("ApiVersions", 0)
    _raise_error(answer.table, f"ApiVersions at {connection.node}")
    keys = answer.table.open("api_keys")
    versions = keys.rows[["min_version", "max_version"]].tolist()
    connection.versions = dict(zip(keys["api_key"].tolist(), versions))
    if sasl is not None:
        yield from _log_in(connection, *sasl)


def _log_in(
    connection: Connection, mechanism: str, user: str, password: str
) -> Generator[bytes, Answer, None]:
    subject = f"{mechanism} at {connection.node}"
    steps = login(mechanism, user, password, str(connection.node))
    token = next(steps)
    version = connection.choose_version("SaslHandshake", range(1, 2))
    answer = yield connection.send("SaslHandshake", version, {"mechanism": mechanism})
    offered = ", ".join(make_bytes_visible(row.name) for row in answer.table.open("mechanisms"))
    _raise_error(answer.table, f"{subject}, which offers {offered or 'none'}")
    while True:
        version = connection.choose_version("SaslAuthenticate")
        answer = yield connection.send("SaslAuthenticate", version, {"auth_bytes": token})
        _raise_error(answer.table, subject)
        try:
            token = steps.send(bytes(answer.table.bytes(0, "auth_bytes")))
        except StopIteration:
            return


def _raise_error(table: FrameTable, subject: str) -> None:
    """Raise BrokerError for the error code of a response, if it has one."""
    if code := int(table["error_code"][0]):
        message = table.bytes(0, "error_message") if "error_message" in table.places else None
        raise BrokerError(code, subject, decode_text(message))


def make_connect_error(node: Node, error: Exception, seconds: float) -> OSError:
    """Return the error to raise where connecting to a node fails."""
    if isinstance(error, TimeoutError):
        return TimeoutError(f"{node} cannot be reached in {seconds} s")
    is_tls = type(error).__module__ == "ssl"
    if is_tls and type(error).__name__ != "SSLEOFError":
        # A PermissionError is not retried: another attempt would fail in the same way.
        return PermissionError(f"TLS with {node} fails: {make_visible(error)}")
    return ConnectionError(f"cannot connect to {node}: {make_visible(error)}")


def make_connection_lost_error(node: Node, error: Exception) -> ConnectionError:
    """Return the ConnectionError to raise for an error of a socket.

    The error may be of another type: TLS has its own errors, and so does a socket that another
    thread closes.
    """
    kind = type(error) if isinstance(error, ConnectionError) else ConnectionError
    return kind(f"the connection to {node} is lost: {make_visible(error)}")
