"""The partition of each record that `Operations.send` writes.

    murmur2             by the key, as Java's producer, and kafka-python and aiokafka by default.
                        Without a key: sticky
    consistent          by the CRC-32 of the key, as librdkafka's partitioner of the same name. A
                        record without a key is treated as one with an empty key
    consistent_random   by the CRC-32 of the key, as librdkafka and its bindings by default. Without
                        a key, or with an empty one: sticky
    round_robin         the partitions in turn, whatever the key
    sticky              one partition at random for about batch_bytes, then another one

Sources: Apache Kafka, BuiltInPartitioner and RoundRobinPartitioner; librdkafka, CONFIGURATION.md,
"partitioner".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirescan.core.strings import ByteStrings
from wirescan.kafka.client.partitioner import partition_of

HASHES = {"murmur2": "murmur2", "consistent": "crc32", "consistent_random": "crc32"}
PARTITIONERS = (*HASHES, "round_robin", "sticky")
RECORD_OVERHEAD = 10  # approximate bytes of a record beside its key and value
NO_PARTITION = -1

Partitioner = str | Callable[[Any, int], Any]


def check(partitioner: Partitioner) -> None:
    """Raise ValueError for an unknown name, TypeError for anything but a name or a function."""
    if isinstance(partitioner, str) and partitioner not in PARTITIONERS:
        raise ValueError(
            f"partitioner must be one of {', '.join(PARTITIONERS)}, not {partitioner!r}"
        )
    if not isinstance(partitioner, str) and not callable(partitioner):
        raise TypeError(
            f"partitioner must be a name or a function, not {type(partitioner).__name__}"
        )


def validate_partitions(partition: Any, count: int, partitions: int) -> NDArray[np.int64]:
    """Return the partitions that the caller chose: an int64 array of `count` numbers.

    partition: one integer for all records, or an array with one integer for each.

    Raises TypeError for anything else. Raises ValueError where the array has another length, or a
    partition is not from 0 to partitions - 1.
    """
    chosen = np.asarray(partition)
    if chosen.ndim > 1 or chosen.dtype.kind not in "iu":
        raise TypeError(
            "partitions must be an integer, or an array of integers in one dimension, "
            f"not {chosen.dtype} in {chosen.ndim}"
        )
    if chosen.ndim and len(chosen) != count:
        raise ValueError(f"{len(chosen)} partitions are given for {count} records")
    if chosen.size and not 0 <= chosen.min() <= chosen.max() < partitions:
        raise ValueError(
            f"partitions from {chosen.min()} to {chosen.max()} are given, but the topic has "
            f"partitions 0 to {partitions - 1}"
        )
    return np.broadcast_to(chosen.astype(np.int64), count)


def choose(
    partitioner: str,
    keys: ByteStrings,
    values: ByteStrings,
    partitions: int,
    *,
    able: Sequence[int],
    batch_bytes: int,
    turn: int,
    chance: random.Random,
) -> NDArray[np.int64]:
    """Return the partition of each record as an int64 array.

    partitioner: one of PARTITIONERS.
    able: the partitions with a leader, for records that may go to any partition.
    batch_bytes: about how many bytes of records "sticky" puts into one partition in a row.
    turn: the number of the first record, for "round_robin".
    chance: the random numbers for "sticky".
    """
    if partitioner == "round_robin":
        return np.asarray(able, np.int64)[(turn + np.arange(len(values))) % len(able)]
    if partitioner == "sticky":
        chosen = np.full(len(values), NO_PARTITION, np.int64)
    else:
        chosen = partition_of(keys, partitions, HASHES[partitioner]).astype(np.int64)
    if partitioner == "consistent":
        chosen[chosen < 0] = 0  # the CRC-32 of an empty key is 0
    elif partitioner == "consistent_random":
        chosen[keys.lengths() <= 0] = NO_PARTITION
    free_rows = np.flatnonzero(chosen < 0)
    if len(free_rows):
        sizes = values.lengths()[free_rows].clip(0).astype(np.int64) + RECORD_OVERHEAD
        # Records whose first bytes are in the same stretch of batch_bytes share a partition.
        stretch = (np.cumsum(sizes) - sizes) // batch_bytes
        drawn_partitions = np.array(chance.choices(able, k=int(stretch[-1]) + 1), np.int64)
        chosen[free_rows] = drawn_partitions[stretch]
    return chosen
