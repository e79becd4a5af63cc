"""kafka.requests, responses, pair and body say what the slow reference says, of good bytes and of damaged ones."""
import os
from collections import defaultdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laws import places_lie_in_their_frames, rows_of
from reference import kafka_protocol as reference
from reference.kafka_messages import API, NEWEST
from strategies import kafka_protocol as strategies
from wirescan import FrameError, kafka
from wirescan.core.fault import Fault

steady = settings(max_examples=int(os.environ.get("WIRESCAN_EXAMPLES", 60)), deadline=None, derandomize=True,
                  database=None, suppress_health_check=list(HealthCheck))
every_body = pytest.mark.parametrize("api, direction", strategies.BODIES)


def agree(table, want):
    found = rows_of(table)
    for row in found:
        row.pop("reserved", None)           # what fills up a row
    assert found == want
    places_lie_in_their_frames(table)


def streams_agree(table, want, fault, at, data):
    """A scan that goes on after faults has one more row than the reference where a size is impossible: for the rest."""
    if fault >= Fault.BAD_LENGTH:
        rest = table[len(want):]
        assert (table.stop[:2], len(rest)) == ((Fault.OK, len(data)), 1)
        assert (rest["start"], rest["size"], rest["fault"]) == (at, len(data) - at, fault)
    else:
        assert table.stop[:2] == (fault, at)
    agree(table[:len(want)], want)


def opened(table):
    """{name: table} of a table and of all in it."""
    found = {table.name: table}
    for open_children in table.format.children.values():
        found |= opened(open_children(table, errors="mark"))
    return found


def bodies_agree(table, rows, data, direction):
    """Those of all messages in a table, at every level."""
    for api, key in API.items():
        levels = defaultdict(list)
        for number, row in enumerate(rows):
            if row["api_key"] == key:
                reference.body(data, row, api, direction, number, levels)
        tables = opened(kafka.body(table, api, errors="mark"))
        assert levels.keys() <= tables.keys()
        for name, one in tables.items():
            agree(one, levels[name])


@st.composite
def conversations(draw):
    """What a client sent and received, in bytes: whole, or damaged on either side."""
    connection = draw(strategies.connections())
    side = draw(st.sampled_from((None, "up", "down", "both")))
    return tuple(draw(strategies.damaged(raw)) if side in (name, "both") else raw
                 for name, raw in (("up", connection.up), ("down", connection.down)))


@steady
@given(conversations())
def test_streams_agree_with_the_reference(conversation):
    up, down = conversation
    asked, *stop = reference.requests(up)
    requests = kafka.requests(up, errors="mark")
    streams_agree(requests, asked, *stop, up)
    for known in (True, False):
        answers, *stop = reference.responses(down, asked, up) if known else reference.responses(down)
        responses = kafka.responses(down, requests if known else None, errors="mark")
        streams_agree(responses, answers, *stop, down)


@steady
@given(conversations())
def test_damaged_streams_are_paired_as_their_responses_say(conversation):
    up, down = conversation
    asked, *_ = reference.requests(up)
    answers, *_ = reference.responses(down, asked, up)
    requests = kafka.requests(up, errors="mark")[:len(asked)]
    responses = kafka.responses(down, requests, errors="mark")[:len(answers)]
    assert kafka.pair(requests, responses).tolist() == reference.pair(asked, answers)


def test_what_lies_behind_an_impossible_size_answers_nothing():
    known = strategies.framed(bytes.fromhex("0003 0000 00000005 ffff 00000000"))       # Metadata 0
    opaque = strategies.framed(b"\0user\0password")
    rest = b"\xff\xff\xff\xff\0\0\0\5"
    for up in (known, opaque):
        row, = kafka.responses(rest, kafka.requests(up), errors="mark")
        assert (row.fault, row.size, row.request, row.api_key) == (Fault.BAD_LENGTH, 8, -1, -1)


def test_acks_behind_an_id_that_does_not_fit_are_not_read():
    # A compact string of 2**31 bytes, and then what would be acks = 0.
    up = strategies.framed(bytes.fromhex("0000 0009 00000005 ffff 00 8180808008 0000 00000000 01 00"))
    requests = kafka.requests(up)
    assert kafka.responses(strategies.framed(bytes.fromhex("00000005 00")), requests)["request"].tolist() == [0]


def test_a_response_with_a_broken_header_is_still_the_answer():
    requests = kafka.requests(strategies.framed(bytes.fromhex("0003 0009 00000005 ffff 00 00 00 00 00 00")))
    responses = kafka.responses(strategies.framed(bytes.fromhex("00000005 05")), requests, errors="mark")
    assert (responses["fault"].tolist(), responses["request"].tolist()) == ([Fault.TRUNCATED], [0])
    assert kafka.pair(requests, responses).tolist() == [(0, 0)]


@steady
@given(strategies.connections())
def test_requests_are_paired_with_their_responses(connection):
    requests = kafka.requests(connection.up)
    responses = kafka.responses(connection.down, requests)
    assert kafka.pair(requests, responses).tolist() == connection.pairs
    unnamed = kafka.responses(connection.down, errors="mark")       # a token may be shorter than a header
    assert kafka.pair(requests, unnamed).tolist() == connection.pairs


@steady
@given(st.lists(strategies.connections(), max_size=3))
def test_connections_are_paired_each_by_itself(connections):
    requests = kafka.requests([one.up for one in connections])
    responses = kafka.responses([one.down for one in connections], requests)
    want, alien, asked, answers = [], [], 0, 0
    for one in connections:
        for request, response in one.pairs:
            pair = (-1 if request < 0 else asked + request, -1 if response < 0 else answers + response)
            (alien if request < 0 else want).append(pair)
        asked, answers = asked + len(one.sent), answers + len(one.received)
    assert kafka.pair(requests, responses).tolist() == want + alien


@steady
@given(strategies.connections())
def test_bodies_agree_with_the_reference(connection):
    asked, *_ = reference.requests(connection.up)
    answers, *_ = reference.responses(connection.down, asked, connection.up)
    requests = kafka.requests(connection.up)
    bodies_agree(requests, asked, connection.up, "request")
    bodies_agree(kafka.responses(connection.down, requests), answers, connection.down, "response")


@pytest.mark.parametrize(
    "api, direction, version",
    [(api, direction, version) for api, direction in strategies.BODIES for version in range(NEWEST[api] + 1)])
@settings(steady, max_examples=int(os.environ.get("WIRESCAN_EXAMPLES", 8)))
@given(st.data())
def test_every_version_agrees_with_the_reference(api, direction, version, data):
    one = data.draw(strategies.requests(api, version, 0))
    if direction == "request":
        bodies_agree(kafka.requests(one.raw), reference.requests(one.raw)[0], one.raw, direction)
        return
    requests, (asked, *_) = kafka.requests(one.raw), reference.requests(one.raw)
    if one.api_key == 0 and one.values["acks"] == 0:
        return
    raw = data.draw(strategies.responses(api, version, 0)).raw
    bodies_agree(kafka.responses(raw, requests), reference.responses(raw, asked, one.raw)[0], raw, direction)


@every_body
@steady
@given(st.data())
def test_damaged_bodies_agree_with_the_reference(api, direction, data):
    if direction == "request":
        broken = data.draw(st.lists(strategies.broken_bodies(api, direction), min_size=1, max_size=3))
        raw = b"".join(message.raw for message in broken)
        asked, *_ = reference.requests(raw)
        bodies_agree(kafka.requests(raw, errors="mark"), asked, raw, direction)
        return
    broken = data.draw(strategies.broken_bodies(api, direction))
    up = data.draw(strategies.requests(api, broken.api_version, broken.correlation_id)).raw
    asked, *_ = reference.requests(up)
    answers, *_ = reference.responses(broken.raw, asked, up)
    bodies_agree(kafka.responses(broken.raw, kafka.requests(up), errors="mark"), answers, broken.raw, direction)


@steady
@given(conversations())
def test_strict_raises_what_mark_marks(conversation):
    up, _ = conversation
    rows, fault, at = reference.requests(up)
    bad = next((row for row in rows if row["fault"]), None)
    if bad is None and fault < Fault.BAD_LENGTH:
        assert len(kafka.requests(up)) == len(rows)
        return
    with pytest.raises(FrameError) as caught:
        kafka.requests(up)
    assert (caught.value.fault, caught.value.offset) == ((bad["fault"], bad["start"]) if bad else (fault, at))
