"""What is left of many values when tasks have reduced them: histograms, and sketches that count distinct values.

Both are small, and merge in any order. numpy only; Arrow where it is asked for.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

STEPS = 32                      # buckets in each doubling: a value is known within 1/32
EXACT = 2 * STEPS               # below, a bucket for every value
BUCKETS = EXACT + 57 * STEPS    # up to 2**63

LG_K = 12                       # 2**12 registers: a standard error of 1.04 / 64
ADDRESS = (1 << 26) - 1         # the part of a coupon that says where; the value is above it
LIST_MOST, SET_MOST = 7, 3 << LG_K - 5      # coupons that are kept as they are, before registers take their place
LIST, SET, REGISTERS = 0, 1, 2  # the modes of a sketch; with 8 added, registers are of 8 bits
COMPACT, OUT_OF_ORDER = 8, 16   # flags
PREAMBLE = 10                   # words before the registers


class Histogram:
    """Counts of integers in buckets that grow with the value: every value below 64 has its own, and each doubling from
    there on 32. So quantiles are known within 1/32, whatever the range, in some hundred numbers.

    counts: of the first buckets (`lows` says where they begin); none: an empty histogram.
    """
    __slots__ = ("counts",)

    def __init__(self, counts: Any = ()):
        counts = np.asarray(counts, np.int64)
        if counts.ndim != 1 or len(counts) > BUCKETS or (counts < 0).any():
            raise ValueError(f"a histogram is made of at most {BUCKETS} counts")
        self.counts = np.zeros(BUCKETS, np.int64)
        self.counts[:len(counts)] = counts

    @classmethod
    def of(cls, buckets: Iterable[Any]) -> Histogram:
        """A histogram of (low, high, count), as `to_arrow` and `wirescan.spark.aggregate` give them.

        Raises ValueError for what are no buckets of a histogram."""
        listed = buckets.to_pylist() if hasattr(buckets, "to_pylist") else buckets
        rows = np.array([tuple(one.values() if isinstance(one, Mapping) else one) for one in listed]).reshape(-1, 3)
        if rows.size and rows.dtype.kind != "i":
            raise ValueError("the buckets of a histogram are integers of at most 64 bits")
        rows = rows.astype(np.int64)
        numbers = buckets_of(rows[:, 0])
        if not (np.array_equal(LOWS[numbers], rows[:, 0]) and np.array_equal(HIGHS[numbers], rows[:, 1])
                and (rows[:, 2] >= 0).all()):
            raise ValueError("these are no buckets of a histogram")
        out = cls()
        np.add.at(out.counts, numbers, rows[:, 2])
        return out

    def add(self, values: Any) -> Histogram:
        """Count an array of integers, or of durations by their unit; those below 0 count as 0. Returns itself.

        Raises TypeError for anything else."""
        self.counts += np.bincount(buckets_of(values), minlength=BUCKETS)
        return self

    def merge(self, other: Histogram) -> Histogram:
        """Count what another one counted. Returns itself."""
        self.counts += other.counts
        return self

    def __len__(self) -> int:
        return int(self.counts.sum())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and bool((self.counts == other.counts).all())

    __hash__ = None

    def quantile(self, q: Any) -> Any:
        """The value (float) below which a share q of the values lies, 0 to 1; an array of them for an array.

        It lies in the bucket of the value that has this rank, numpy's `inverted_cdf`. Raises ValueError for shares out
        of range, and for an empty histogram."""
        q, total = np.asarray(q, float), len(self)
        if not total or not ((q >= 0) & (q <= 1)).all():
            raise ValueError("a quantile is of a share from 0 to 1, and of at least one value")
        ends = np.cumsum(self.counts)
        rank = np.clip(np.ceil(q * total), 1, total)
        bucket = np.searchsorted(ends, rank)
        # The values of a bucket are taken to lie evenly in it.
        inside = (rank - (ends - self.counts)[bucket] - 0.5) / self.counts[bucket]
        found = LOWS[bucket] + inside * (HIGHS[bucket] - LOWS[bucket])
        return found if q.ndim else float(found)

    def to_arrow(self) -> Any:
        """A pyarrow StructArray of low, high (int64, both are values of the bucket) and count, of the buckets that
        are not empty. Needs pyarrow."""
        import pyarrow as pa
        there = np.flatnonzero(self.counts)
        parts = (LOWS[there], HIGHS[there], self.counts[there])
        return pa.StructArray.from_arrays(list(map(pa.array, parts)), ["low", "high", "count"])

    def __repr__(self) -> str:
        if not len(self):
            return "<Histogram of 0 values>"
        half, most, top = self.quantile([0.5, 0.99, 1.0])
        return f"<Histogram of {len(self):,} values: median {half:.6g}, 99% {most:.6g}, most {top:.6g}>"


def buckets_of(values: Any) -> np.ndarray:
    """The number (int64) of the bucket of each value; see `Histogram.add`."""
    values = np.asarray(values)
    if values.dtype.kind == "m":
        values = values.view(np.int64)
    if values.dtype.kind not in "iu" and values.size:
        raise TypeError(f"a histogram counts integers and durations, not {values.dtype}")
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64((1 << 63) - 1))
    values = np.maximum(values.astype(np.int64), 0)
    exponent = np.frexp(values)[1].astype(np.int64) - 1
    exponent -= values >> np.clip(exponent, 0, 62) == 0         # floats round up to the next power
    exponent = np.clip(exponent, 5, 62)
    return (exponent - 5) * STEPS + (values >> exponent - 5)


def _edges() -> tuple[np.ndarray, np.ndarray]:
    numbers = np.arange(BUCKETS, dtype=np.int64)
    shift = np.clip(numbers // STEPS - 1, 0, None)
    lows = np.where(numbers < EXACT, numbers, (numbers % STEPS + STEPS) << shift)
    return lows, lows + (np.int64(1) << shift) - 1


LOWS, HIGHS = _edges()


def fingerprints(strings: tuple[np.ndarray, np.ndarray] | np.ndarray) -> np.ndarray:
    """64 bits (uint64) that tell values apart: of numbers of at most 64 bits, or of byte strings as (offsets, bytes).

    Equal values have equal ones, in every process; unlike values hardly ever."""
    if not isinstance(strings, tuple):
        numbers = np.ascontiguousarray(strings)
        if numbers.dtype.kind == "f":
            numbers = numbers.astype(np.float64) + 0.0          # which makes -0.0 what it equals
        elif numbers.dtype.itemsize < 8:
            numbers = numbers.astype(np.int64)
        return _mixed(numbers.view(np.uint64))
    offsets, data = strings
    begins, sizes = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    words = np.ndarray(len(data) + 1, "<u8", padded, strides=(1,))       # eight bytes from every place
    found, rows = _mixed(sizes.astype(np.uint64)), np.arange(len(sizes))
    at = 0
    while len(rows := rows[sizes[rows] > at]):
        left = np.minimum(sizes[rows] - at, 8).astype(np.uint64)
        word = words[begins[rows] + at] & (np.uint64(~np.uint64(0)) >> (64 - 8 * left))
        found[rows] = _mixed(found[rows] ^ word)
        at += 8
    return found


def _mixed(x: np.ndarray) -> np.ndarray:
    """Every bit depends on all: the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
    generators, 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def coupons(found: np.ndarray) -> np.ndarray:
    """What a sketch keeps of fingerprints (uint64): uint32, 26 bits of address and above them 6 of value."""
    address = (found & np.uint64(ADDRESS)).astype(np.uint32)
    rest = found >> np.uint64(26)                       # 38 bits; a float holds them exactly
    zeros = 38 - np.frexp(rest.astype(np.float64))[1]
    return address | (zeros + 1).astype(np.uint32) << np.uint32(26)


def sketches(found: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sketches of groups of coupons, each distinct in its group, as (offsets int64, bytes): found[offsets[i]:
    offsets[i + 1]] is group i. Groups of a few hundred are counted as good as exactly, larger ones with a standard
    error of 1.6 percent.

    A sketch is an HLL sketch of Apache DataSketches, lgK 12 and registers of 8 bits (`HllSketch.toCompactByteArray`),
    that Spark's `hll_union_agg` merges and `hll_sketch_estimate` reads. It holds fingerprints of this module: one that
    Spark made of the same values is of others.
    """
    counts = np.diff(offsets)
    dense, listed = counts > SET_MOST, counts <= LIST_MOST
    ahead = np.where(dense, PREAMBLE, np.where(listed, 2, 3))
    sizes = np.where(dense, PREAMBLE + (1 << LG_K - 2), ahead + counts)         # in words of 32 bits
    ends = np.cumsum(sizes)
    begins = ends - sizes
    out = np.zeros(int(sizes.sum()), "<u4")
    out[begins] = ahead | 1 << 8 | 7 << 16 | LG_K << 24                         # ... version, family, lgK
    room = np.where(listed, 3, np.maximum(5, np.ceil(np.log2(np.maximum(counts, 1) * 4 / 3)))).astype(np.int64)
    mode = np.where(dense, REGISTERS, np.where(listed, LIST, SET)) + 8
    flags = np.where(dense, COMPACT | OUT_OF_ORDER, COMPACT | (counts == 0) * 4)
    out[begins + 1] = np.where(dense, 0, room) | flags << 8 | np.where(listed, counts, 0) << 16 | mode << 24
    kept = ~dense & ~listed
    out[begins[kept] + 2] = counts[kept]
    few = np.repeat(~dense, counts)
    out[(np.repeat(begins + ahead - offsets[:-1], counts) + np.arange(offsets[0], offsets[-1]))[few]] = found[few]
    for i in np.flatnonzero(dense).tolist():
        out[begins[i]:ends[i]] = _registers(found[offsets[i]:offsets[i + 1]], out[begins[i]:begins[i] + 2])
    return 4 * np.concatenate([[0], ends]), out.view(np.uint8)


def _registers(found: np.ndarray, head: np.ndarray) -> np.ndarray:
    registers = np.zeros(1 << LG_K, np.uint8)
    np.maximum.at(registers, found & np.uint32((1 << LG_K) - 1), (found >> np.uint32(26)).astype(np.uint8))
    powers, small = 0.5 ** registers, registers < 32
    # The estimate in order of arrival, which merging does not need; the sums of powers; registers that are zero.
    sums = np.array([0.0, powers[small].sum(), powers[~small].sum()], "<f8").view("<u4")
    zeros = np.array([(registers == 0).sum(), 0], "<u4")
    return np.concatenate([head, sums, zeros, registers.view("<u4")])
