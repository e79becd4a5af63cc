"""How the frames of a format are sent over connections, and how captures of them are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

if TYPE_CHECKING:
    from wirescan.frames.table import FrameTable


@dataclass(frozen=True, eq=False)
class Conversation:
    """How the frames of an outermost format are sent over connections.

    The format has `Parser.spans` and `Storage.weigh`.

    Attributes:
        ports: the usual ports of servers. Bytes of other ports are read if they show the format.
        sender: who sends such frames: "client" or "server". None: both do.
        label: a function of a table of such frames and an array with the number of each frame's
            connection, and of the same for the frames of `answers`, that returns the rows with the
            columns that follow from those frames, and the number of bad rows. Optional.
        answers: the name of the format of the frames that these answer; only with `label`.
        keylog: the path of a file with the secrets of TLS connections, which are decrypted. The
            option `keylog` of a format sets it.
    """

    ports: tuple[int, ...] = ()
    sender: Literal["client", "server"] | None = None
    label: (
        Callable[[FrameTable, np.ndarray, FrameTable, np.ndarray], tuple[np.ndarray, int]] | None
    ) = None
    answers: str | None = None
    keylog: str | None = None


class CaptureReader(Protocol):
    """Reads frames that consist of parts of several outermost frames, such as those of packets."""

    def feed(self, table: FrameTable) -> FrameTable:
        """Return the frames that outermost frames complete. Raises FrameError."""
        ...

    def close(self) -> FrameTable:
        """Return the last frames. Raises FrameError."""
        ...
