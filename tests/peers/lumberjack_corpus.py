"""The recorded Lumberjack streams, and what is expected of them."""

import json
from typing import NamedTuple

from wirescan.lumberjack import Kind


class Case(NamedTuple):
    """The expected content of a recorded connection.

    announced: the announced size of each window. sequences: the sequence numbers of each window's
    events. acks: the sequence numbers of the acks. header: the zlib header of its compressed
    frames.
    """

    announced: list[int]
    sequences: list[list[int]]
    acks: list[int]
    header: str = ""


def list_sequences(*sizes: int) -> list[list[int]]:
    """Sequence numbers of windows with these sizes. They begin at 1 in each window."""
    return [list(range(1, size + 1)) for size in sizes]


THREE = [8, 8, 4]  # the sizes of three windows
ALL = list(range(1, 21))  # the sequence numbers of 20 events
CASES = {
    "go-lumber-plain": Case(THREE, list_sequences(8, 8, 4), THREE),
    "go-lumber-level-3": Case(THREE, list_sequences(8, 8, 4), THREE, "785e"),
    "go-lumber-keepalive": Case(THREE, list_sequences(8, 8, 4), THREE, "78da"),
    "pylogbeat": Case([20], [ALL], [20], "789c"),
    "pylogbeat-windows": Case(THREE, [ALL[:8], ALL[8:16], ALL[16:]], [8, 16, 20], "789c"),
    "pylogbeat-empty": Case([0, 2], [[], [1, 2]], [0, 2], "789c"),
    "lumberjack-client": Case([12] + 8 * [1], list_sequences(12, *8 * [1]), [12] + 8 * [1], "789c"),
    "lumberjack-protocol": Case([20], [ALL], [20]),
    "lumberjack-protocol-endless": Case([1000], [ALL], []),
    "filebeat": Case(THREE, list_sequences(8, 8, 4), THREE, "785e"),
    "filebeat-plain": Case(THREE, list_sequences(8, 8, 4), THREE),
}


def decode_events(table) -> list[dict]:
    """The events of a table of lumberjack.events.

    A JSON frame is parsed. The pairs of a data frame become a dict of strings.
    """

    def decode(event) -> dict:
        if event.kind == Kind.DATA:
            return {str(pair.key, "utf-8"): str(pair.value, "utf-8") for pair in event.pairs}
        return json.loads(bytes(event.json))

    return [decode(event) for event in table]
