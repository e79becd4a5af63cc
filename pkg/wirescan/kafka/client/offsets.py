"""The operation that lists offsets of partitions by time: `list_offsets`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from wirescan.kafka.client.cluster import Cluster, Leader, TopicPartition, decode_text
from wirescan.kafka.client.effects import Exchange, Node, Operation
from wirescan.kafka.constants import ISOLATIONS
from wirescan.kafka.protocol.error_codes import BrokerError
from wirescan.kafka.protocol.schema import get_message

# The first versions of ListOffsets that have these fields.
FIRST_WITH_ISOLATION = 2
FIRST_WITH_EPOCH = 4


# Name of a time -> its number in ListOffsets, and the first version that has it.
NAMED_TIMES = {"latest": (-1, 0), "earliest": (-2, 0), "max_timestamp": (-3, 7)}


class Offset(NamedTuple):
    """An offset, the timestamp of its record in milliseconds, and the record's leader epoch.

    Each field is -1 where there is none or the broker does not report it.
    """

    offset: int
    timestamp: int
    leader_epoch: int


def list_offsets(
    cluster: Cluster,
    times: Mapping[TopicPartition, int | str],
    isolation: str = "read_uncommitted",
) -> Operation[dict[TopicPartition, Offset]]:
    """Return the offset of each partition at a time. See `Operations.list_offsets`.

    A time is milliseconds since 1970, or one of NAMED_TIMES.
    """
    level = get_isolation_level(isolation)
    first_version = FIRST_WITH_ISOLATION if level else 0
    timestamps: dict[TopicPartition, int] = {}
    for partition, time in times.items():
        if isinstance(time, str):
            if time not in NAMED_TIMES:
                raise ValueError(
                    f"a time is milliseconds, or one of {', '.join(NAMED_TIMES)}, not {time!r}"
                )
            timestamps[partition], first_version_of_name = NAMED_TIMES[time]
            first_version = max(first_version, first_version_of_name)
        elif time < 0:
            raise ValueError(f"a time is milliseconds since 1970, not {time}")
        else:
            timestamps[partition] = time

    versions = range(first_version, get_message("ListOffsets", "request").versions.stop)

    def ask(
        node: Node, share: dict[TopicPartition, tuple[int, Leader]]
    ) -> Operation[dict[TopicPartition, Any]]:
        answer = yield Exchange(
            node, "ListOffsets", partial(_encode_request_body, share, level), versions
        )
        topics = answer.table.open("topics")
        names = [decode_text(row.name) for row in topics]
        results: dict[TopicPartition, Any] = {}
        partitions = topics.open("partitions")
        for i, row in enumerate(partitions):
            partition = names[row.parent], row.partition_index
            if row.error_code:
                subject = f"{partition[0]}-{partition[1]} at {node}"
                results[partition] = BrokerError(row.error_code, subject)
            elif answer.version == 0:
                old = np.frombuffer(partitions.bytes(i, "old_style_offsets") or b"", ">i8")
                results[partition] = Offset(int(old[0]) if len(old) else -1, -1, -1)
            else:
                results[partition] = Offset(row.offset, row.timestamp, row.leader_epoch)
        return results

    return (yield from cluster.ask_leaders(timestamps, ask))


def _encode_request_body(
    share: Mapping[TopicPartition, tuple[int, Leader]], level: int, version: int
) -> dict[str, Any]:
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), (timestamp, leader) in share.items():
        fields = {"partition_index": partition, "timestamp": timestamp}
        if version >= FIRST_WITH_EPOCH:
            fields["current_leader_epoch"] = leader.epoch
        topics.setdefault(topic, []).append(fields)
    body: dict[str, Any] = {
        "replica_id": -1,
        "topics": [{"name": name, "partitions": fields} for name, fields in topics.items()],
    }
    if version >= FIRST_WITH_ISOLATION:
        body["isolation_level"] = level
    return body


def get_isolation_level(isolation: str) -> int:
    """Return the protocol's number of an isolation: 0 or 1.

    Raises ValueError for anything but ISOLATIONS.
    """
    if isolation not in ISOLATIONS:
        raise ValueError(f"isolation is one of {', '.join(ISOLATIONS)}, not {isolation!r}")
    return ISOLATIONS.index(isolation)
