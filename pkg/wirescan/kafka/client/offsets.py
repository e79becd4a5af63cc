"""Which offsets partitions have: the operation behind `list_offsets`."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from wirescan.kafka.client.cluster import Cluster, Leader, TopicPartition, text
from wirescan.kafka.client.effects import Exchange, Node, Operation
from wirescan.kafka.errors import BrokerError
from wirescan.kafka.schema import message_of

# What may stand for a time: its number in the protocol, and the first version that has it.
NAMED = {"latest": (-1, 0), "earliest": (-2, 0), "max_timestamp": (-3, 7)}
ISOLATIONS = ("read_uncommitted", "read_committed")


class Offset(NamedTuple):
    """An offset (-1: none), the timestamp of its record in milliseconds and its leader epoch (-1: not told)."""
    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(cluster: Cluster, wanted: Mapping[TopicPartition, int | str],
                 isolation: str = "read_uncommitted") -> Operation[dict[TopicPartition, Offset]]:
    """The offset of each partition at a time, or one of NAMED. See `Operations.list_offsets`."""
    level = isolation_level(isolation)
    first = 2 if level else 0
    times: dict[TopicPartition, int] = {}
    for one, when in wanted.items():
        if isinstance(when, str):
            if when not in NAMED:
                raise ValueError(f"a time is milliseconds, or one of {', '.join(NAMED)}, not {when!r}")
            times[one], since = NAMED[when]
            first = max(first, since)
        elif when < 0:
            raise ValueError(f"a time is milliseconds since 1970, not {when}")
        else:
            times[one] = when

    def ask(node: Node, share: dict[TopicPartition, tuple[int, Leader]]) -> Operation[dict[TopicPartition, Any]]:
        def body(version: int) -> dict[str, Any]:
            topics: dict[str, list[dict[str, int]]] = {}
            for (topic, partition), (when, leader) in share.items():
                topics.setdefault(topic, []).append(
                    {"partition_index": partition, "timestamp": when}
                    | ({"current_leader_epoch": leader.epoch} if version >= 4 else {}))
            return ({"replica_id": -1, "topics": [{"name": name, "partitions": its} for name, its in topics.items()]}
                    | ({"isolation_level": level} if version >= 2 else {}))

        newest = message_of("ListOffsets", "request").versions.stop
        answer = yield Exchange(node, "ListOffsets", body, range(first, newest))
        topics = answer.table.open("topics")
        names = [text(row.name) for row in topics]
        found: dict[TopicPartition, Any] = {}
        partitions = topics.open("partitions")
        for i, row in enumerate(partitions):
            one = names[row.parent], row.partition_index
            if row.error_code:
                found[one] = BrokerError(row.error_code, f"{one[0]}-{one[1]} at {node}")
            elif answer.version == 0:
                old = np.frombuffer(partitions.bytes(i, "old_style_offsets") or b"", ">i8")
                found[one] = Offset(int(old[0]) if len(old) else -1, -1, -1)
            else:
                found[one] = Offset(row.offset, row.timestamp, row.leader_epoch)
        return found

    return (yield from cluster.each(times, ask))


def isolation_level(isolation: str) -> int:
    """0 or 1. Raises ValueError for anything but ISOLATIONS."""
    if isolation not in ISOLATIONS:
        raise ValueError(f"isolation is one of {', '.join(ISOLATIONS)}, not {isolation!r}")
    return ISOLATIONS.index(isolation)
