"""The laws of laws.py, for every room of rooms.py, over bytes that hypothesis makes."""
import os
import re
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import laws
import wirescan
from rooms import ROOMS
from wirescan.errors import MODES

steady = settings(max_examples=int(os.environ.get("WIRESCAN_EXAMPLES", 60)), deadline=None,
                  database=None, suppress_health_check=list(HealthCheck))
# Some rooms are many and alike: what is drawn is shared out among them.
MESSAGES = [room for name, room in ROOMS.items() if name.startswith("kafka.")]
CARRIED = [room for name, room in ROOMS.items() if name.startswith("liftbridge")]         # the last one: entries
CALLS = [room for name, room in ROOMS.items() if name.startswith("thrift")]
every_room = pytest.mark.parametrize(
    "rooms", (st.just(ROOMS["kafka"]), st.sampled_from(MESSAGES), st.just(ROOMS["lumberjack"]), st.just(ROOMS["nats"]),
              st.sampled_from(CARRIED), st.sampled_from(CALLS)),
    ids=("kafka", "messages", "lumberjack", "nats", "liftbridge", "thrift"))
# Nothing in these tells what they are, but the requests or the keys do: test_kafka_protocol.py holds them to the laws'
# first, that they agree with a slow reference.
OPENED_BY_OTHERS = re.compile(r"kafka\.\w+_(response|key|value)(\.|$)")
cuts = st.lists(st.integers(0, 1000), max_size=6)


@cache
def good(room):
    """Whole frames, and what may follow them."""
    return st.tuples(room.good, room.tails).map(b"".join)


@cache
def any_bytes(room):
    """Good or damaged frames."""
    return room.damaged | good(room)


@cache
def streams_of_bytes(room):
    return st.lists(any_bytes(room), max_size=5)


@cache
def short_and_good(room):
    return good(room).filter(lambda raw: len(raw) <= 400)


def at_most(cuts, raw):
    return [cut % (len(raw) + 1) for cut in cuts]


def test_every_format_is_in_a_room():
    others = {name for name in wirescan.formats() if OPENED_BY_OTHERS.match(name)}
    assert {name for room in ROOMS.values() for name in room.formats} | others == set(wirescan.formats())


@every_room
@steady
@given(st.data(), st.booleans(), st.lists(st.booleans(), min_size=1), st.integers(0, 1000))
def test_any_bytes_keep_the_laws_of_a_scan(rooms, data, check, mask, cut):
    """The laws share one example: drawing it costs more than a law."""
    room = data.draw(rooms)
    raw = data.draw(any_bytes(room))
    laws.agrees_with_the_reference(room, raw, check)
    laws.covers_every_byte(room, raw, check)
    laws.modes_agree(room, raw, check)
    laws.parts_keep_their_meaning(room, raw, mask, cut)


@every_room
@steady
@given(st.data(), cuts)
def test_any_chunking_is_the_whole(rooms, data, cuts):
    room = data.draw(rooms)
    raw = data.draw(good(room))
    for errors in MODES:
        laws.streams_agree(room, raw, at_most(cuts, raw), errors)


@every_room
@settings(steady, max_examples=10)
@given(st.data(), st.sampled_from(MODES))
def test_every_split_and_byte_by_byte(rooms, data, errors):
    room = data.draw(rooms)
    raw = data.draw(short_and_good(room))
    laws.streams_agree(room, raw, list(range(1, len(raw))), errors)
    for cut in range(0, len(raw), max(1, len(raw) // 40)):
        laws.streams_agree(room, raw, [cut], errors)


@every_room
@steady
@given(st.data(), st.booleans())
def test_streams_scanned_together_are_those_scanned_alone(rooms, data, check):
    room = data.draw(rooms)
    laws.spans_agree(room, data.draw(streams_of_bytes(room)), check)


@every_room
@steady
@given(st.data(), cuts, st.booleans())
def test_damaged_chunks_lose_nothing(rooms, data, cuts, check):
    room = data.draw(rooms)
    raw = data.draw(room.damaged)
    laws.streams_lose_nothing(room, raw, at_most(cuts, raw), check)


@every_room
@steady
@given(st.data())
def test_writes_read_back(rooms, data):
    room = data.draw(rooms)
    laws.writes_read_back(room, *data.draw(room.written))


@every_room
@steady
@given(st.data(), st.binary(max_size=300), st.booleans())
def test_noise_ends_well(rooms, data, raw, check):
    room = data.draw(rooms)
    laws.ends_well(room, raw, check)
    laws.covers_every_byte(room, raw, check)
