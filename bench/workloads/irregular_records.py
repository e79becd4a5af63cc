"""Workloads of Kafka records whose shapes vary, as in real topics. They are seeded.

regular            keys of 16 bytes, values of 100 bytes, a record each millisecond
jittering times    the same, and timestamps within 100 seconds in no order
lognormal          values of lognormal sizes (median 81 bytes), keys of 8 to 31 bytes, jittering
nulls              the same, with four null keys in ten and a tombstone in ten
headers            the same, with a header in a third of the records
large values       lognormal values (median 8 KB), keys of 8 to 31 bytes
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute

from wirescan import kafka

FIRST_TIMESTAMP = 1_700_000_000_000
JITTER = 100_000  # milliseconds
NOISE_SIZE = 1 << 20
HEADER_SIZE = 16


class RandomColumns:
    """Random columns of `count` records.

    Args:
        count: the number of records.
    """

    def __init__(self, count: int):
        self.count = count
        self.generator = np.random.default_rng(3)
        self.noise = self.generator.bytes(NOISE_SIZE)

    def make_strings(self, sizes: np.ndarray, nulls: float = 0.0) -> pa.Array:
        """Return byte strings of these sizes. `nulls` is the share of nulls."""
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        repeats = -(-int(offsets[-1]) // NOISE_SIZE)
        data = pa.py_buffer((self.noise * repeats)[: offsets[-1]])
        array = pa.Array.from_buffers(
            pa.large_binary(), self.count, [None, pa.py_buffer(offsets), data]
        )
        is_null = pa.array(self.generator.random(self.count) < nulls)
        return pa.compute.if_else(is_null, pa.scalar(None, pa.large_binary()), array)

    def repeat_size(self, size: int) -> np.ndarray:
        return np.full(self.count, size)

    def draw_lognormal_sizes(self, mean: float, largest: int) -> np.ndarray:
        sizes = self.generator.lognormal(mean, 0.8, self.count)
        return np.minimum(sizes, largest).astype(np.int64)

    def draw_key_sizes(self) -> np.ndarray:
        return self.generator.integers(8, 32, self.count)

    def make_steady_times(self) -> np.ndarray:
        return FIRST_TIMESTAMP + np.arange(self.count)

    def draw_jittering_times(self) -> np.ndarray:
        return FIRST_TIMESTAMP + self.generator.integers(0, JITTER, self.count)

    def make_headers(self) -> tuple[np.ndarray, list[bytes], pa.Array]:
        """Return one header in a third of the records, as (counts, keys, values)."""
        counts = (np.arange(self.count) % 3 == 0).astype(np.int64)
        total = int(counts.sum())
        values = pa.array([self.noise[i : i + HEADER_SIZE] for i in range(total)], pa.binary())
        return counts, [b"trace"] * total, values


def write_regular(columns: RandomColumns) -> bytes:
    return kafka.encode_batches(
        columns.make_strings(columns.repeat_size(100)),
        keys=columns.make_strings(columns.repeat_size(16)),
        timestamps=columns.make_steady_times(),
    )


def write_jittering(columns: RandomColumns) -> bytes:
    return kafka.encode_batches(
        columns.make_strings(columns.repeat_size(100)),
        keys=columns.make_strings(columns.repeat_size(16)),
        timestamps=columns.draw_jittering_times(),
    )


def write_lognormal(columns: RandomColumns, **options: int) -> bytes:
    return kafka.encode_batches(
        columns.make_strings(columns.draw_lognormal_sizes(4.4, 5000)),
        keys=columns.make_strings(columns.draw_key_sizes()),
        timestamps=columns.draw_jittering_times(),
        **options,
    )


def write_nulls(columns: RandomColumns) -> bytes:
    return kafka.encode_batches(
        columns.make_strings(columns.draw_lognormal_sizes(4.4, 5000), nulls=0.1),
        keys=columns.make_strings(columns.draw_key_sizes(), nulls=0.4),
        timestamps=columns.draw_jittering_times(),
    )


def write_headers(columns: RandomColumns) -> bytes:
    return kafka.encode_batches(
        columns.make_strings(columns.draw_lognormal_sizes(4.4, 5000)),
        keys=columns.make_strings(columns.draw_key_sizes()),
        timestamps=columns.draw_jittering_times(),
        headers=columns.make_headers(),
    )


def write_large(columns: RandomColumns) -> bytes:
    return kafka.encode_batches(
        columns.make_strings(columns.draw_lognormal_sizes(9.0, 200_000)),
        keys=columns.make_strings(columns.draw_key_sizes()),
        timestamps=columns.draw_jittering_times(),
    )


# The shapes, and the share of the records that each workload has.
SHAPES: dict[str, tuple[Callable[[RandomColumns], bytes], float]] = {
    "regular": (write_regular, 1),
    "jittering times": (write_jittering, 1),
    "lognormal": (write_lognormal, 1),
    "nulls": (write_nulls, 1),
    "headers": (write_headers, 1),
    "large values": (write_large, 0.02),
}


def make_segment(shape: str, records: int) -> tuple[np.ndarray, int]:
    """Return (bytes of a segment, number of its records).

    shape: a key of SHAPES. records: the number of records of the regular workload.
    """
    write, share = SHAPES[shape]
    count = max(1, int(records * share))
    return np.frombuffer(write(RandomColumns(count)), np.uint8), count
