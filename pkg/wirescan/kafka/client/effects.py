"""The effects of operations: what an operation may ask its driver for.

An operation is a generator without a socket or a clock. It yields one of the effects below. Its
driver sends it the result, or throws the exception into it. `return` ends the operation with its
own result; `yield from` runs another operation inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from wirescan.frames.escape import make_visible
from wirescan.kafka.protocol.error_codes import BrokerError

SIDE_BY_SIDE = 16  # operations of one Together that a driver runs at the same time
Result = TypeVar("Result")
Operation = Generator[Any, Any, Result]


class Node(NamedTuple):
    """A broker: its id (-1 for a bootstrap address), host and port."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        host = make_visible(self.host)  # the host may come from another broker
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


class Answer(NamedTuple):
    """The response to an exchange: the API version used, and the response body.

    The body is a FrameTable of `kafka.body` with one good row. It is None where no response was
    requested.
    """

    version: int
    table: Any


@dataclass(frozen=True)
class Exchange:
    """A request to a broker and its response. The result is an Answer.

    Raises ConnectionError (OSError), TimeoutError, FrameError for a malformed response, and
    BrokerError(35) where the two sides share no version.

    node: the broker.
    api: the name of the API.
    body: version -> mapping, for `encode_request`.
    versions: the versions that may be used; None allows all. The newest version is used that the
        broker and the table of messages share.
    answered: whether the broker answers. It does for all requests but Produce with acks=0.
    seconds: how long the broker may delay its answer on purpose; added to the timeout.
    expected: bytes of the response for which memory is allocated at once. Memory for the bytes
        beyond that is allocated as they arrive.
    """

    node: Node
    api: str
    body: Callable[[int], Mapping[str, Any]]
    versions: range | None = None
    answered: bool = True
    seconds: float = 0.0
    expected: int = 0


@dataclass(frozen=True)
class Begin:
    """The first half of an exchange: send the request. The result is a ticket for `Finish`.

    It never raises.
    """

    exchange: Exchange


@dataclass(frozen=True)
class Finish:
    """The second half of an exchange: its result and exceptions. A ticket can be used once."""

    ticket: Any


@dataclass(frozen=True)
class Wait:
    """A pause of some seconds."""

    seconds: float


@dataclass(frozen=True)
class Now:
    """The time in seconds of a monotonic clock."""


@dataclass(frozen=True)
class Together:
    """Operations that run concurrently, SIDE_BY_SIDE at a time.

    The result is a list of their results, or of the exceptions that they raised.
    """

    operations: Sequence[Operation[Any]]


@dataclass(frozen=True)
class Give:
    """One of many results of an operation that is iterated over."""

    value: Any


def may_pass(error: BaseException) -> bool:
    """Return whether a retry may succeed after this error."""
    if isinstance(error, BrokerError):
        return error.retriable
    return isinstance(error, (ConnectionError, TimeoutError))
