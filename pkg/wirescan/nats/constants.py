"""The kinds of NATS messages: operations of the client protocol.

Source: NATS documentation, "Client Protocol" (docs.nats.io, reference/nats-protocol).
"""

from enum import IntEnum

__all__ = ["Kind"]


class Kind(IntEnum):
    """The operation of a row of nats.messages, in its column `kind`. The wire has the name."""

    INFO = 1
    CONNECT = 2
    PUB = 3
    HPUB = 4
    SUB = 5
    UNSUB = 6
    MSG = 7
    HMSG = 8
    PING = 9
    PONG = 10
    OK = 11
    ERR = 12
