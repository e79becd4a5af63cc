"""Numbers of the protocol by their names. Readers, receivers and users of tables use them."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """Values of the column `kind` of frames and events: the ASCII letter of the frame's type.

    Only readers send ACK. Only writers send the other types.
    """

    ACK = 0x41
    COMPRESSED = 0x43
    DATA = 0x44
    JSON = 0x4A
    WINDOW = 0x57


KINDS = {kind.value: chr(kind) for kind in Kind}
