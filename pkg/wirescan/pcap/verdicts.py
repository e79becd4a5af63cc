"""What is known of the connections of a capture: whether they have the format that is read."""

from __future__ import annotations

import numpy as np

# UNDECIDED: nothing shows yet whether a connection has the format.
UNDECIDED, ACCEPTED, REJECTED = 0, 1, 2
# Instead of the number of bytes that are done with: a row of streams is given again with all rows
# after it. `Assembler.release` takes it.
KEPT = -1


class ConnectionVerdicts:
    """The verdicts on connections, by their numbers.

    Its memory depends on the number of connections that were not forgotten, and not on their
    numbers. The work of a call depends only on the connections that are named.
    """

    def __init__(self) -> None:
        self._verdicts: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._verdicts)

    def find(self, connections: np.ndarray) -> np.ndarray:
        """Return the verdicts on connections: uint8, UNDECIDED for those that are not known."""
        if not self._verdicts:
            return np.full(len(connections), UNDECIDED, np.uint8)
        find = self._verdicts.get
        verdicts = (find(number, UNDECIDED) for number in connections.tolist())
        return np.fromiter(verdicts, np.uint8, len(connections))

    def keep(self, connections: np.ndarray, verdicts: np.ndarray) -> None:
        """Keep the verdicts on connections."""
        is_decided = verdicts != UNDECIDED
        decided = connections[is_decided].tolist()
        self._verdicts.update(zip(decided, verdicts[is_decided].tolist()))

    def forget(self, connections: np.ndarray) -> None:
        """Forget connections: no byte of them follows."""
        for number in connections.tolist():
            self._verdicts.pop(number, None)
