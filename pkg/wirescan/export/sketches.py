"""Summaries of many values: histograms, and sketches that count distinct values.

Both are small, and they merge in any order: histograms here, sketches in Spark. The tasks of
Spark's `aggregate` compute them through grouping.py. Only `Histogram.to_arrow` needs pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

FREQUENT_VALUES = 1024  # values that `FrequentValues` holds

STEPS = 32  # buckets for each doubling: a value is known within 1/32
EXACT = 2 * STEPS  # each value below this has its own bucket
BUCKETS = EXACT + 57 * STEPS  # up to 2**63

WORD = 8  # bytes of a string that are hashed at a time
PIECE = 512  # bytes of a string that are hashed one after another

# The constants of an HLL sketch of Apache DataSketches.
LG_K = 12  # 2**12 registers: a standard error of 1.04 / 64
ADDRESS_BITS = 26
# A coupon is the address of a register and the value for it. The value is above the address.
ADDRESS = (1 << ADDRESS_BITS) - 1
HASH_BITS = 64
VALUE_BITS = HASH_BITS - ADDRESS_BITS
# Up to these numbers of coupons, a sketch keeps the coupons; with more it has registers.
LIST_MAX = 7
SET_MAX = 3 << LG_K - 5
# The modes of a sketch. With HLL_8 added, registers have 8 bits.
LIST = 0
SET = 1
REGISTERS = 2
HLL_8 = 8
# Flags.
EMPTY = 4
COMPACT = 8
OUT_OF_ORDER = 16
PREAMBLE = 10  # words in front of the registers
LIST_PREAMBLE = 2  # words in front of a list of coupons
SET_PREAMBLE = 3  # words in front of a set of coupons
SERIAL_VERSION = 1
FAMILY = 7
# log2 of the capacity of a list and of the smallest set.
LIST_LG_CAPACITY = 3
SET_LG_CAPACITY = 5


class Histogram:
    """Counts of integers in buckets whose width grows with the value.

    Each value below 64 has its own bucket. From there on, each doubling has 32 buckets. So
    quantiles are known within 1/32, whatever the range, with a few hundred numbers.

    Args:
        counts: the counts of the first buckets. `LOWS` are their lowest values.
    """

    __slots__ = ("counts",)

    def __init__(self, counts: Any = ()):
        counts = np.asarray(counts, np.int64)
        if counts.ndim != 1 or len(counts) > BUCKETS or (counts < 0).any():
            raise ValueError(f"a histogram is made of at most {BUCKETS} counts")
        self.counts: np.ndarray = np.zeros(BUCKETS, np.int64)
        self.counts[: len(counts)] = counts

    @classmethod
    def from_buckets(cls, buckets: Iterable[Any]) -> Histogram:
        """Return a histogram of (low, high, count) triples.

        `to_arrow` and `wirescan.spark.aggregate` return such triples.

        Raises ValueError for triples that are no buckets of a histogram.
        """
        listed = buckets.to_pylist() if hasattr(buckets, "to_pylist") else buckets
        rows = np.array(
            [tuple(bucket.values() if isinstance(bucket, Mapping) else bucket) for bucket in listed]
        ).reshape(-1, 3)
        if rows.size and rows.dtype.kind != "i":
            raise ValueError("the buckets of a histogram are integers of at most 64 bits")
        rows = rows.astype(np.int64)
        numbers = find_buckets(rows[:, 0])
        if not (
            np.array_equal(LOWS[numbers], rows[:, 0])
            and np.array_equal(HIGHS[numbers], rows[:, 1])
            and (rows[:, 2] >= 0).all()
        ):
            raise ValueError("these are no buckets of a histogram")
        out = cls()
        np.add.at(out.counts, numbers, rows[:, 2])
        return out

    def add(self, values: Any) -> Histogram:
        """Count an array of integers, or of durations in their unit, and return the histogram.

        Values below 0 count as 0. Raises TypeError for other values.
        """
        self.counts += np.bincount(find_buckets(values), minlength=BUCKETS)
        return self

    def merge(self, other: Histogram) -> Histogram:
        """Add the counts of another histogram, and return this one."""
        self.counts += other.counts
        return self

    def __len__(self) -> int:
        return int(self.counts.sum())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and bool((self.counts == other.counts).all())

    def quantile(self, q: Any) -> Any:
        """Return the value (float) below which a share `q` of the values is.

        It is in the bucket of the value of rank ceil(q * n), as with numpy's `inverted_cdf`.

        q: a share from 0 to 1, or an array of shares. For an array, the result is an array.

        Raises ValueError for a share out of range, and for an empty histogram.
        """
        q = np.asarray(q, float)
        total = len(self)
        if not total or not ((q >= 0) & (q <= 1)).all():
            raise ValueError("a quantile is of a share from 0 to 1, and of at least one value")
        ends = np.cumsum(self.counts)
        rank = np.clip(np.ceil(q * total), 1, total)
        bucket = np.searchsorted(ends, rank)
        # The values of a bucket are assumed to be spread evenly.
        inside = (rank - (ends - self.counts)[bucket] - 0.5) / self.counts[bucket]
        values = LOWS[bucket] + inside * (HIGHS[bucket] - LOWS[bucket])
        return values if q.ndim else float(values)

    def to_arrow(self) -> Any:
        """Return the buckets that are not empty, as a pyarrow StructArray. Needs pyarrow.

        Its fields are `low` and `high` (int64), the lowest and highest value of the bucket, and
        `count`.
        """
        import pyarrow as pa

        numbers = np.flatnonzero(self.counts)
        parts = (LOWS[numbers], HIGHS[numbers], self.counts[numbers])
        return pa.StructArray.from_arrays(list(map(pa.array, parts)), ["low", "high", "count"])

    def __repr__(self) -> str:
        if not len(self):
            return "<Histogram of 0 values>"
        median, p99, largest = self.quantile([0.5, 0.99, 1.0])
        numbers = f"median {median:.6g}, 99% {p99:.6g}, most {largest:.6g}"
        return f"<Histogram of {len(self):,} values: {numbers}>"


def find_buckets(values: Any) -> np.ndarray:
    """Return the number (int64) of the bucket of each value; see `Histogram.add`."""
    values = np.asarray(values)
    if values.dtype.kind == "m":
        values = values.view(np.int64)
    if values.dtype.kind not in "iu" and values.size:
        raise TypeError(f"a histogram counts integers and durations, not {values.dtype}")
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64((1 << 63) - 1))
    values = np.maximum(values.astype(np.int64), 0)
    exponent = np.frexp(values)[1].astype(np.int64) - 1
    # Large integers are rounded up to the next power as floats, which is undone here.
    exponent -= values >> np.clip(exponent, 0, 62) == 0
    exponent = np.clip(exponent, 5, 62)
    buckets: np.ndarray = (exponent - 5) * STEPS + (values >> exponent - 5)
    return buckets


class FrequentValues:
    """The most frequent byte strings of a stream, with at most `FREQUENT_VALUES` counters.

    It is the summary of Misra and Gries (Finding repeated elements, 1982), merged as Agarwal et al.
    describe (Mergeable summaries, 2012). A value's true count is at least its counter, and at most
    its counter plus `error`. `error` is at most `total` / (`FREQUENT_VALUES` + 1).

    Attributes:
        total: the number of values.
        error: by how much a counter may be too small.
    """

    def __init__(self) -> None:
        self.total = 0
        self.error = 0
        self._prints = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.int64)
        self._values: dict[int, bytes] = {}  # fingerprint -> the first bytes of the value

    def add(self, offsets: np.ndarray, data: np.ndarray, shown: int) -> None:
        """Count byte strings.

        Args:
            offsets: string i is data[offsets[i] : offsets[i + 1]] (integers).
            data: uint8 array.
            shown: bytes of a string that are kept for `list_values`.
        """
        prints, rows, counts = np.unique(
            compute_fingerprints((offsets, data)), return_index=True, return_counts=True
        )
        self.total += int(counts.sum())
        merged, where = np.unique(np.concatenate([self._prints, prints]), return_inverse=True)
        sums = np.zeros(len(merged), np.int64)
        np.add.at(sums, where, np.concatenate([self._counts, counts]))
        if len(sums) > FREQUENT_VALUES:
            at = len(sums) - FREQUENT_VALUES - 1
            excess = int(np.partition(sums, at)[at])
            self.error += excess
            sums -= excess
        self._prints = merged[sums > 0]
        self._counts = sums[sums > 0]
        found = np.searchsorted(prints, self._prints).clip(max=max(len(prints) - 1, 0))
        values = {}
        for number, place in zip(self._prints.tolist(), found.tolist()):
            value = self._values.get(number)
            if value is None:
                begin, end = int(offsets[rows[place]]), int(offsets[rows[place] + 1])
                value = data[begin : min(end, begin + shown)].tobytes()
            values[number] = value
        self._values = values

    def list_values(self) -> list[tuple[bytes, int]]:
        """Return (first bytes of the value, counter), the most frequent first."""
        pairs = zip(self._prints.tolist(), self._counts.tolist())
        listed = [(self._values[number], count) for number, count in pairs]
        return sorted(listed, key=lambda pair: (-pair[1], pair[0]))


def _compute_bucket_edges() -> tuple[np.ndarray, np.ndarray]:
    numbers = np.arange(BUCKETS, dtype=np.int64)
    shift = np.clip(numbers // STEPS - 1, 0, None)
    lows = np.where(numbers < EXACT, numbers, (numbers % STEPS + STEPS) << shift)
    return lows, lows + (np.int64(1) << shift) - 1


LOWS, HIGHS = _compute_bucket_edges()


def compute_fingerprints(values: tuple[np.ndarray, np.ndarray] | np.ndarray) -> np.ndarray:
    """Return 64 bits (uint64) per value that identify the value.

    Equal values have equal fingerprints, in every process. Different values hardly ever do. NaN is
    one value here.

    values: an array of numbers of at most 64 bits, or byte strings as (offsets, bytes).
    """
    if not isinstance(values, tuple):
        numbers = np.ascontiguousarray(values)
        if numbers.dtype.kind == "f":
            numbers = unify_floats(numbers)
        elif numbers.dtype.itemsize < 8:
            numbers = numbers.astype(np.int64)
        return _mix(numbers.view(np.uint64))
    offsets, data = values
    sizes = np.diff(offsets).astype(np.int64)
    return _hash_strings(offsets[:-1].astype(np.int64), sizes, data, _mix(sizes.astype(np.uint64)))


def _hash_strings(
    starts: np.ndarray, sizes: np.ndarray, data: np.ndarray, seeds: np.ndarray
) -> np.ndarray:
    """Return the fingerprints of byte strings.

    Eight bytes of all strings are hashed at a time, so one long string would take a step of numpy
    for each of its words. It is cut into pieces, and hashed as the fingerprints of these.

    Args:
        starts: where each string begins in `data` (int64).
        sizes: their sizes (int64).
        data: uint8 array.
        seeds: a word (uint64) for each string, which says how long it is.
    """
    out = seeds.copy()
    is_long = sizes > PIECE
    if is_long.any():
        counts = -(-sizes[is_long] // PIECE)
        firsts = np.cumsum(counts) - counts
        inside = PIECE * (np.arange(counts.sum()) - np.repeat(firsts, counts))
        pieces = np.repeat(starts[is_long], counts) + inside
        piece_sizes = np.minimum(np.repeat(sizes[is_long], counts) - inside, PIECE)
        prints = _hash_strings(pieces, piece_sizes, data, _mix(piece_sizes.astype(np.uint64)))
        hashed = prints.astype("<u8").view(np.uint8)
        out[is_long] = _hash_strings(WORD * firsts, WORD * counts, hashed, seeds[is_long])
    padded = np.concatenate([data, np.zeros(WORD, np.uint8)])
    # A stride of one byte: words[i] are the eight bytes from position i on.
    words = np.ndarray(len(data) + 1, "<u8", padded, strides=(1,))
    rows = np.flatnonzero(~is_long)
    at = 0
    while len(rows := rows[sizes[rows] > at]):
        remaining = np.minimum(sizes[rows] - at, WORD).astype(np.uint64)
        word = words[starts[rows] + at] & (np.uint64(~np.uint64(0)) >> (64 - 8 * remaining))
        out[rows] = _mix(out[rows] ^ word)
        at += WORD
    return out


def unify_floats(numbers: np.ndarray) -> np.ndarray:
    """Return numbers as float64. Equal numbers have equal bytes, and so have all NaNs."""
    unified = numbers.astype(np.float64) + 0.0  # -0.0 becomes 0.0
    unified[np.isnan(unified)] = np.nan
    return unified


def _mix(x: np.ndarray) -> np.ndarray:
    """Return words of which every bit depends on all bits of `x`.

    It is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
    generators, 2014).
    """
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ x >> np.uint64(31)
    return mixed


def make_coupons(fingerprints: np.ndarray) -> np.ndarray:
    """Return the coupons of fingerprints (uint32): 26 bits of address, and 6 bits of value above.

    fingerprints: fingerprints (uint64), see `compute_fingerprints`.
    """
    address = (fingerprints & np.uint64(ADDRESS)).astype(np.uint32)
    high_bits = fingerprints >> np.uint64(ADDRESS_BITS)  # 38 bits; a float holds them exactly
    zeros = VALUE_BITS - np.frexp(high_bits.astype(np.float64))[1]
    return address | (zeros + 1).astype(np.uint32) << np.uint32(ADDRESS_BITS)


def make_sketches(coupons: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sketches of groups of coupons, as (offsets int64, bytes).

    Groups of a few hundred values are counted almost exactly. Larger groups are counted with a
    standard error of 1.6 percent.

    A sketch is an HLL sketch of Apache DataSketches with lgK 12 and registers of 8 bits
    (`HllSketch.toCompactByteArray`). Spark's `hll_union_agg` merges it, and `hll_sketch_estimate`
    reads it. It holds fingerprints of this module. Sketches that Spark makes of the same values
    hold other fingerprints, so the two must not be merged.

    coupons: coupons (uint32), each distinct in its group.
    offsets: group i is coupons[offsets[i] : offsets[i + 1]] (integers).
    """
    counts = np.diff(offsets)
    dense = counts > SET_MAX
    short = counts <= LIST_MAX
    preambles = np.where(dense, PREAMBLE, np.where(short, LIST_PREAMBLE, SET_PREAMBLE))
    sizes = np.where(dense, PREAMBLE + (1 << LG_K - 2), preambles + counts)  # words of 32 bits
    ends = np.cumsum(sizes)
    begins = ends - sizes
    out = np.zeros(int(sizes.sum()), "<u4")
    out[begins] = preambles | SERIAL_VERSION << 8 | FAMILY << 16 | LG_K << 24
    # A set is at most three quarters full.
    set_lg = np.ceil(np.log2(np.maximum(counts, 1) * 4 / 3))
    capacity = np.where(short, LIST_LG_CAPACITY, np.maximum(SET_LG_CAPACITY, set_lg)).astype(
        np.int64
    )
    mode = np.where(dense, REGISTERS, np.where(short, LIST, SET)) + HLL_8
    flags = np.where(dense, COMPACT | OUT_OF_ORDER, COMPACT | (counts == 0) * EMPTY)
    out[begins + 1] = (
        np.where(dense, 0, capacity) | flags << 8 | np.where(short, counts, 0) << 16 | mode << 24
    )
    sets = ~dense & ~short
    out[begins[sets] + 2] = counts[sets]
    is_listed = np.repeat(~dense, counts)
    at = np.repeat(begins + preambles - offsets[:-1], counts) + np.arange(offsets[0], offsets[-1])
    out[at[is_listed]] = coupons[is_listed]
    for i in np.flatnonzero(dense).tolist():
        out[begins[i] : ends[i]] = _fill_registers(
            coupons[offsets[i] : offsets[i + 1]], out[begins[i] : begins[i] + 2]
        )
    return 4 * np.concatenate([[0], ends]), out.view(np.uint8)


def _fill_registers(coupons: np.ndarray, head: np.ndarray) -> np.ndarray:
    """Return a sketch with registers, for the coupons of a group and the first two words."""
    registers = np.zeros(1 << LG_K, np.uint8)
    values = (coupons >> np.uint32(ADDRESS_BITS)).astype(np.uint8)
    np.maximum.at(registers, coupons & np.uint32((1 << LG_K) - 1), values)
    powers = 0.5**registers
    small = registers < 32
    # The estimate in order of arrival, which merging does not need, and the two sums of powers.
    sums = np.array([0.0, powers[small].sum(), powers[~small].sum()], "<f8").view("<u4")
    zeros = np.array([(registers == 0).sum(), 0], "<u4")  # the number of registers that are zero
    return np.concatenate([head, sums, zeros, registers.view("<u4")])
