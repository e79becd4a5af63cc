"""What is known of the connections of a capture: whether they have the format that is read."""

from __future__ import annotations

from itertools import repeat

import numpy as np

# UNDECIDED: nothing shows yet whether a connection has the format.
UNDECIDED, ACCEPTED, REJECTED = 0, 1, 2
# Instead of the number of bytes that are done with: a row of streams is given again with all rows
# after it. `Assembler.release` takes it.
KEPT = -1


class ConnectionNumbers:
    """A number for each connection, or for each side of one, by its number. 0: nothing is known.

    Its memory depends on how many were not forgotten, and not on their numbers. The work of a call
    depends only on those that are named.

    dtype: that of the numbers.
    """

    def __init__(self, dtype: type[np.integer]) -> None:
        self._dtype = dtype
        self._numbers: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def find(self, connections: np.ndarray) -> np.ndarray:
        """Return the numbers of connections, 0 for those that are not known."""
        if not self._numbers:
            return np.zeros(len(connections), self._dtype)
        numbers = map(self._numbers.get, connections.tolist(), repeat(0))
        return np.fromiter(numbers, self._dtype, len(connections))

    def keep(self, connections: np.ndarray, numbers: np.ndarray) -> None:
        """Keep the numbers of connections that are not 0."""
        is_known = numbers != 0
        self._numbers.update(zip(connections[is_known].tolist(), numbers[is_known].tolist()))

    def forget(self, connections: np.ndarray) -> None:
        """Forget connections: no byte of them follows."""
        for connection in connections.tolist():
            self._numbers.pop(connection, None)


class ConnectionVerdicts(ConnectionNumbers):
    """The verdicts on connections: uint8, UNDECIDED for those that are not known."""

    def __init__(self) -> None:
        super().__init__(np.uint8)
