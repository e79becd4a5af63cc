"""The laws of laws.py, for every package of packages.py, over bytes that hypothesis makes."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wirescan
from tests.laws import laws
from tests.laws.cases import CARRIED, MESSAGES, OPENED_BY_OTHERS, cuts, limit_cuts, steady
from tests.laws.packages import PACKAGES
from wirescan import Limits
from wirescan.frames.errors import MODES

CALLS = [package for name, package in PACKAGES.items() if name.startswith("thrift")]
every_package = pytest.mark.parametrize(
    "packages",
    (
        st.just(PACKAGES["kafka"]),
        st.sampled_from(MESSAGES),
        st.just(PACKAGES["lumberjack"]),
        st.just(PACKAGES["nats"]),
        st.sampled_from(CARRIED),
        st.sampled_from(CALLS),
    ),
    ids=("kafka", "messages", "lumberjack", "nats", "liftbridge", "thrift"),
)


@cache
def good(package):
    """Whole frames, and what may follow them."""
    return st.tuples(package.good, package.tails).map(b"".join)


@cache
def any_bytes(package):
    """Good or damaged frames."""
    return package.damaged | good(package)


@cache
def streams_of_bytes(package):
    return st.lists(any_bytes(package), max_size=5)


@cache
def short_and_good(package):
    return good(package).filter(lambda raw: len(raw) <= 400)


def test_every_format_is_in_a_package():
    others = {name for name in wirescan.formats() if OPENED_BY_OTHERS.match(name)}
    assert {name for package in PACKAGES.values() for name in package.formats} | others == set(
        wirescan.formats()
    )


@every_package
@steady
@given(st.data(), st.booleans(), st.lists(st.booleans(), min_size=1), st.integers(0, 1000))
def test_any_bytes_keep_the_laws_of_a_scan(packages, data, check, mask, cut):
    """The laws share one example: drawing it costs more than a law."""
    package = data.draw(packages)
    raw = data.draw(any_bytes(package))
    laws.agrees_with_the_reference(package, raw, check)
    laws.covers_every_byte(package, raw, check)
    laws.modes_agree(package, raw, check)
    laws.parts_keep_their_meaning(package, raw, mask, cut)


@every_package
@steady
@given(st.data(), cuts)
def test_any_chunking_is_the_whole(packages, data, cuts):
    package = data.draw(packages)
    raw = data.draw(good(package))
    for errors in MODES:
        laws.streams_agree(package, raw, limit_cuts(cuts, raw), errors)


@every_package
@settings(steady, max_examples=4)
@given(st.data(), st.sampled_from(MODES))
def test_every_split_and_byte_by_byte(packages, data, errors):
    package = data.draw(packages)
    raw = data.draw(short_and_good(package))
    laws.streams_agree(package, raw, list(range(1, len(raw))), errors)
    for cut in range(0, len(raw), max(1, len(raw) // 40)):
        laws.streams_agree(package, raw, [cut], errors)


@every_package
@steady
@given(st.data(), st.booleans())
def test_streams_scanned_together_are_those_scanned_alone(packages, data, check):
    package = data.draw(packages)
    laws.spans_agree(package, data.draw(streams_of_bytes(package)), check)


@every_package
@steady
@given(st.data(), cuts, st.booleans())
def test_damaged_chunks_lose_nothing(packages, data, cuts, check):
    package = data.draw(packages)
    raw = data.draw(package.damaged)
    laws.streams_lose_nothing(package, raw, limit_cuts(cuts, raw), check)
    laws.chunks_change_nothing(package, raw, limit_cuts(cuts, raw), check=check)


@every_package
@steady
@given(st.data(), cuts, st.booleans(), st.integers(64, 256), st.integers(0, 600))
def test_a_gap_longer_than_a_frame_may_be_is_cut_anywhere(
    packages, data, cuts, check, longest, zeros
):
    """Damage, noise and zeros between frames are longer than `limits.frame`."""
    package = data.draw(packages)
    noise = st.binary(max_size=600) | st.just(bytes(zeros))
    parts = [
        data.draw(part)
        for part in (package.damaged, noise, package.good, noise, noise, package.damaged)
    ]
    raw = b"".join(parts)[:2500]
    laws.chunks_change_nothing(
        package,
        raw,
        limit_cuts(cuts, raw),
        list(range(1, len(raw), 61)),
        check=check,
        limits=Limits(frame=longest),
    )


@every_package
@steady
@given(st.data())
def test_writes_read_back(packages, data):
    package = data.draw(packages)
    laws.writes_read_back(package, *data.draw(package.written))


@every_package
@steady
@given(st.data(), st.binary(max_size=300), st.booleans())
def test_noise_ends_well(packages, data, raw, check):
    package = data.draw(packages)
    laws.ends_well(package, raw, check)
    laws.covers_every_byte(package, raw, check)
