"""Histograms and sketches: what they say of values, beside counting the values themselves."""

import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.slowness import SLOWNESS
from wirescan.export.grouping import collect_coupons
from wirescan.export.sketches import (
    FREQUENT_VALUES,
    HIGHS,
    LOWS,
    FrequentValues,
    Histogram,
    compute_fingerprints,
    find_buckets,
    make_coupons,
    make_sketches,
)

NUMBERS = st.one_of(
    st.integers(0, 200),
    st.integers(0, 2**63 - 1),
    st.integers(0, 62).flatmap(lambda n: st.sampled_from([2**n - 1, 2**n, 2**n + 1])),
)
LISTS = st.lists(NUMBERS, max_size=50)


@given(NUMBERS)
def test_each_value_has_the_bucket_that_holds_it(value):
    bucket = int(find_buckets(np.array([value]))[0])
    assert LOWS[bucket] <= value <= HIGHS[bucket]
    assert int(HIGHS[bucket]) - int(LOWS[bucket]) <= value / 32 and (
        value >= 64 or LOWS[bucket] == HIGHS[bucket]
    )


def test_buckets_follow_each_other():
    assert LOWS[0] == 0 and HIGHS[-1] == 2**63 - 1
    assert (LOWS[1:] == HIGHS[:-1] + 1).all()
    assert (find_buckets(LOWS) == np.arange(len(LOWS))).all() and (
        find_buckets(HIGHS) == np.arange(len(LOWS))
    ).all()


@given(LISTS, LISTS)
def test_merging_is_counting_all(some, more):
    whole = Histogram().add(np.array(some + more, np.int64))
    assert (
        Histogram().add(np.array(some, np.int64)).merge(Histogram().add(np.array(more, np.int64)))
        == whole
    )
    assert len(whole) == len(some) + len(more)
    assert Histogram.from_buckets(row.values() for row in whole.to_arrow().to_pylist()) == whole
    assert Histogram(whole.counts) == whole


@given(st.lists(NUMBERS, min_size=1, max_size=50), st.floats(0, 1))
def test_quantiles_lie_in_the_bucket_of_the_value(values, share):
    exact = int(np.sort(values)[max(int(np.ceil(share * len(values))), 1) - 1])
    found = Histogram().add(np.array(values, np.int64)).quantile(share)
    assert abs(found - exact) <= exact / 32
    assert Histogram().add(np.array(values, np.int64)).quantile([share, share]).tolist() == [
        found,
        found,
    ]


def test_what_is_counted():
    counted = Histogram().add(np.array([-5, 0, 63], np.int8)).add(np.array([2**64 - 1], np.uint64))
    counted.add(np.array([7], "m8[us]")).add([])
    assert [(row["low"], row["count"]) for row in counted.to_arrow().to_pylist()] == [
        (0, 2),
        (7, 1),
        (63, 1),
        (int(LOWS[-1]), 1),
    ]
    assert repr(counted).startswith("<Histogram of 5 values: median 7,")
    assert repr(Histogram()) == "<Histogram of 0 values>"
    assert Histogram() != Histogram([1]) and Histogram() != 0


@pytest.mark.parametrize("wrong", [[1.5], ["a"], np.array(["2020"], "M8[Y]")])
def test_what_is_not_counted(wrong):
    with pytest.raises(TypeError, match="integers and durations"):
        Histogram().add(wrong)


def test_unfit_arguments_are_refused():
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="from 0 to 1"):
            Histogram([1]).quantile(share)
    with pytest.raises(ValueError, match="at least one value"):
        Histogram().quantile(0.5)
    for counts in ([-1], np.ones(5000), [[1]]):
        with pytest.raises(ValueError, match="at most"):
            Histogram(counts)
    for buckets in ([(65, 66, 1)], [(0, 0, -5)]):
        with pytest.raises(ValueError, match="no buckets"):
            Histogram.from_buckets(buckets)
    for buckets in ([(0.0, 0.0, 1)], [(2**70, 2**70, 1)], [("a", "a", 1)]):
        with pytest.raises(ValueError, match="integers of at most 64 bits"):
            Histogram.from_buckets(buckets)


def test_what_is_given_to_arrow_is_taken_back():
    counted = Histogram().add([1, 5, 900, 2**63 - 1])
    arrow = counted.to_arrow()
    assert Histogram.from_buckets(arrow) == Histogram.from_buckets(arrow.to_pylist()) == counted
    assert Histogram.from_buckets([tuple(row.values()) for row in arrow.to_pylist()]) == counted
    assert (
        Histogram.from_buckets([]) == Histogram.from_buckets(Histogram().to_arrow()) == Histogram()
    )


# ---- sketches


def of_strings(values):
    offsets = np.cumsum([0, *map(len, values)])
    return compute_fingerprints((offsets, np.frombuffer(b"".join(values), np.uint8)))


@given(st.lists(st.binary(max_size=30)))
def test_fingerprints_tell_strings_apart(values):
    found = of_strings(values)
    assert len(set(found.tolist())) == len(set(values))
    assert dict(zip(values, found)) == dict(
        zip(values[::-1], of_strings(values[::-1]))
    )  # wherever they lie


def test_fingerprints_of_zeros_and_prefixes_differ():
    values = [b"\0" * n for n in range(40)] + [b"a" * n for n in range(1, 40)]
    assert len(set(of_strings(values).tolist())) == len(values)


def test_fingerprints_tell_long_strings_apart():
    """They are hashed in pieces of 512 bytes, and the hashes of many pieces in pieces again."""
    sizes = [0, 1, 511, 512, 513, 519, 520, 1024, 1025, 32_768, 32_769, 40_000]
    values = [bytes(size) for size in sizes]
    for size in sizes[4:]:
        text = bytes(i % 251 for i in range(size))
        values += [text, text[:-1] + b"\xff", b"\xff" + text[1:]]
        values += [text[:600] + b"\xff" + text[601:], text[512:] + text[:512]]
    values = list(dict.fromkeys(values))
    found = of_strings(values).tolist()
    assert len(set(found)) == len(values) > 50
    assert of_strings(values[::-1]).tolist() == found[::-1]  # wherever they lie
    assert [of_strings([value]).tolist() for value in values] == [[each] for each in found]


def test_a_long_string_takes_little_time():
    value = np.arange(1 << 20, dtype=np.uint64).view(np.uint8)  # 8 MiB
    start = time.process_time()
    sketch = FrequentValues()
    sketch.add(np.array([0, len(value)]), value, 64)
    assert time.process_time() - start < SLOWNESS
    assert sketch.list_values() == [(value[:64].tobytes(), 1)]


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "i8", "u8", "f8"])
def test_numbers_have_different_fingerprints(dtype):
    numbers = np.arange(100).astype(dtype)
    assert len(np.unique(compute_fingerprints(numbers))) == 100
    assert (compute_fingerprints(numbers[::2]) == compute_fingerprints(numbers)[::2]).all()


def test_equal_fractions_have_equal_fingerprints():
    numbers = np.array([0.1, 0.2, -0.0, 0.0], np.float32)
    fingerprints = compute_fingerprints(numbers)
    assert len(set(fingerprints.tolist())) == 3 and fingerprints[2] == fingerprints[3]
    assert (compute_fingerprints(numbers.astype(np.float64)) == fingerprints).all()


@pytest.mark.parametrize("width, nan", [(4, 0x7FC0 << 16), (8, 0x7FF8 << 48)])
def test_zeros_and_nan_are_one_value_each(width, nan):
    """NaN has many bit patterns, and peers choose them. Arrow groups by bits."""
    bits = [1 << 8 * width - 1, 0, *range(nan, nan + 9)]
    numbers = np.array(bits, f"u{width}").view(f"f{width}")
    assert len(set(compute_fingerprints(numbers).tolist())) == 2
    table = pa.table({"by": ["a", "b"] * 5 + ["a"], "real": numbers})
    assert collect_coupons(table, [], "real").num_rows == 2
    assert collect_coupons(table, ["by"], "real").num_rows == 4


def test_coupons_are_address_and_leading_zeros():
    fingerprints = np.array([0, 2**64 - 1, 5 | 1 << 26, 1 << 63], np.uint64)
    assert [(int(c) & (1 << 26) - 1, int(c) >> 26) for c in make_coupons(fingerprints)] == [
        (0, 39),
        ((1 << 26) - 1, 1),
        (5, 38),
        (0, 1),
    ]


def test_sketches_begin_as_their_format_says():
    """Apache DataSketches: preamble in words, version 1, family 7, lgK, and the mode."""
    groups = [
        np.unique(make_coupons(compute_fingerprints(np.arange(n)))) for n in (0, 7, 8, 384, 385)
    ]
    ends, data = make_sketches(np.concatenate(groups), np.cumsum([0, *map(len, groups)]))
    parts = [bytes(data[a:b]) for a, b in zip(ends, ends[1:])]
    assert [part[:4] for part in parts] == [bytes([words, 1, 7, 12]) for words in (2, 2, 3, 3, 10)]
    assert [part[7] & 3 for part in parts] == [0, 0, 1, 1, 2]
    assert [len(part) for part in parts] == [8, 8 + 28, 12 + 32, 12 + 4 * 384, 40 + 4096]
    assert [part[4] for part in parts[:4]] == [3, 3, 5, 9] and parts[0][5] & 4


def join_strings(strings):
    """Return byte strings as (offsets, bytes)."""
    offsets = np.concatenate([[0], np.cumsum([len(string) for string in strings])]).astype(np.int64)
    return offsets, np.frombuffer(b"".join(strings), np.uint8)


def test_frequent_values_are_within_their_error():
    random = np.random.default_rng(1)
    numbers = np.minimum(random.zipf(1.3, 200_000), 10**9)
    strings = [b"key-%d" % number for number in numbers]
    sketch = FrequentValues()
    for at in range(0, len(strings), 5000):
        sketch.add(*join_strings(strings[at : at + 5000]), 64)
    true = Counter(strings)
    listed = sketch.list_values()
    assert sketch.total == len(strings)
    assert 0 < sketch.error <= len(strings) / (FREQUENT_VALUES + 1)
    assert len(listed) <= FREQUENT_VALUES
    assert all(count <= true[value] <= count + sketch.error for value, count in listed)
    above = {value for value, count in true.items() if count > sketch.error}
    assert above <= {value for value, _ in listed}


def test_frequent_values_show_first_bytes_only_and_tell_long_values_apart():
    sketch = FrequentValues()
    sketch.add(*join_strings([b"aaaa1", b"aaaa2", b"aaaa2", b""]), 4)
    sketch.add(*join_strings([]), 4)
    assert sketch.list_values() == [(b"aaaa", 2), (b"", 1), (b"aaaa", 1)]
    assert sketch.error == 0
