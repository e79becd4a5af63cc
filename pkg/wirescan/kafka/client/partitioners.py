"""Which partition each of many records goes to.

    murmur2             by the key, as Java's producer, kafka-python and aiokafka by default; without a key: sticky
    consistent          by the CRC-32 of the key, as librdkafka's partitioner of that name; no key is as an empty one
    consistent_random   ... as librdkafka and what stands on it by default; without a key, or with an empty one: sticky
    round_robin         one after another, whatever the key
    sticky              one at random for some batch_bytes on end, and then another

Sources: Apache Kafka, BuiltInPartitioner, RoundRobinPartitioner; librdkafka, CONFIGURATION.md, "partitioner".
"""
from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wirescan.core.strings import ByteStrings
from wirescan.kafka.partitioner import partition_of

HASHES = {"murmur2": "murmur2", "consistent": "crc32", "consistent_random": "crc32"}
PARTITIONERS = (*HASHES, "round_robin", "sticky")
OVERHEAD = 10               # bytes of a record beside its key and value, about

Partitioner = str | Callable[[Any, int], Any]


def check(partitioner: Partitioner) -> None:
    """Raises ValueError for a name that is none of PARTITIONERS, TypeError for what is no function either."""
    if isinstance(partitioner, str) and partitioner not in PARTITIONERS:
        raise ValueError(f"partitioner must be one of {', '.join(PARTITIONERS)}, not {partitioner!r}")
    if not isinstance(partitioner, str) and not callable(partitioner):
        raise TypeError(f"partitioner must be a name or a function, not {type(partitioner).__name__}")


def given(partition: Any, count: int, partitions: int) -> NDArray[np.int64]:
    """Int64 array of `count` partitions, out of one for all or of integers. Raises TypeError for anything else,
    ValueError for another number of them, or for a partition that is not from 0 to partitions - 1."""
    chosen = np.asarray(partition)
    if chosen.ndim > 1 or chosen.dtype.kind not in "iu":
        raise TypeError("partitions must be an integer, or an array of integers in one dimension, "
                        f"not {chosen.dtype} in {chosen.ndim}")
    if chosen.ndim and len(chosen) != count:
        raise ValueError(f"{len(chosen)} partitions are given for {count} records")
    if chosen.size and not 0 <= chosen.min() <= chosen.max() < partitions:
        raise ValueError(f"partitions from {chosen.min()} to {chosen.max()} are given, and there are {partitions}")
    return np.broadcast_to(chosen.astype(np.int64), count)


def choose(partitioner: str, keys: ByteStrings, values: ByteStrings, partitions: int, *, able: Sequence[int],
           batch_bytes: int, turn: int, chance: random.Random) -> NDArray[np.int64]:
    """Int64 array: the partition of each record.

    able: the partitions with a leader, for records that may go anywhere. turn: the number of the first record, for
    round_robin. chance: for sticky."""
    if partitioner == "round_robin":
        return np.asarray(able, np.int64)[(turn + np.arange(len(values))) % len(able)]
    if partitioner == "sticky":
        chosen = np.full(len(values), -1, np.int64)
    else:
        chosen = partition_of(keys, partitions, HASHES[partitioner]).astype(np.int64)
    if partitioner == "consistent":
        chosen[chosen < 0] = 0                      # CRC-32 of nothing
    elif partitioner == "consistent_random":
        chosen[keys.lengths() <= 0] = -1
    anywhere = np.flatnonzero(chosen < 0)
    if len(anywhere):
        sizes = values.lengths()[anywhere].clip(0).astype(np.int64) + OVERHEAD
        stretch = (np.cumsum(sizes) - sizes) // batch_bytes
        drawn = np.array(chance.choices(able, k=int(stretch[-1]) + 1), np.int64)
        chosen[anywhere] = drawn[stretch]
    return chosen
