"""What an operation asks of whoever runs it.

An operation is a generator. It has no socket and no clock: it yields one of these, and is sent the result, or thrown
the exception. `return` ends it with its own result; `yield from` runs another one inside it.
"""
from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from wirescan.kafka.errors import BrokerError

SIDE_BY_SIDE = 16           # operations that a driver runs at once, for one Together
Result = TypeVar("Result")
Operation = Generator[Any, Any, Result]


class Node(NamedTuple):
    """A broker: its id (-1: one that was named for bootstrapping), host and port."""
    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Answer(NamedTuple):
    """The version that an exchange was held in, and the body of the response: a FrameTable as `kafka.body` gives it,
    of one good row; None where no response was asked for."""
    version: int
    table: Any


@dataclass(frozen=True)
class Exchange:
    """A request to a broker, and its response. Result: an Answer.

    api: its name. body: version -> mapping, for `encode_request`. The newest version is taken that the broker and the
    table of messages have in common, within `versions` where given. answered: whether the broker answers (all but
    Produce with acks = 0). seconds: how long the broker may take on purpose, on top of the timeout. expected: bytes of
    the response that memory may be taken for at once; beyond, it is taken as they arrive.
    Raises ConnectionError (OSError), TimeoutError, FrameError for a response that lies, and BrokerError(35) where there
    is no version in common."""
    node: Node
    api: str
    body: Callable[[int], Mapping[str, Any]]
    versions: range | None = None
    answered: bool = True
    seconds: float = 0.0
    expected: int = 0


@dataclass(frozen=True)
class Begin:
    """The first half of an exchange: its request is sent. Result: a ticket, for `Finish`; it never raises."""
    exchange: Exchange


@dataclass(frozen=True)
class Finish:
    """The second half: result and exceptions are those of the exchange. A ticket is good for once."""
    ticket: Any


@dataclass(frozen=True)
class Wait:
    """So many seconds pass."""
    seconds: float


@dataclass(frozen=True)
class Now:
    """Result: the time in seconds, of a clock that never goes back."""


@dataclass(frozen=True)
class Together:
    """Operations that run side by side, some at a time. Result: a list of their results, or of the exceptions
    that they raised."""
    operations: Sequence[Operation[Any]]


@dataclass(frozen=True)
class Give:
    """One of many results: of an operation that is iterated over."""
    value: Any


def may_pass(error: BaseException) -> bool:
    """Whether what failed with this may succeed when it is tried again."""
    if isinstance(error, BrokerError):
        return error.retriable
    return isinstance(error, (ConnectionError, TimeoutError))
