"""kafka.requests, responses, pair and body say what the slow reference says, of good bytes and of damaged ones."""
import os
import struct
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wirescan
from laws import places_lie_in_their_frames, rows_of
from reference import kafka_protocol as reference
from reference.kafka_messages import API, NEWEST
from strategies import kafka_protocol as strategies
from test_laws import OPENED_BY_OTHERS
from wirescan import FrameError, kafka
from wirescan.core.fault import Fault
from wirescan.kafka.body import Read
from wirescan.kafka.program import steps_of
from wirescan.kafka.schema import MESSAGE, Field, Message

HOSTILE = Path(__file__).with_name("corpus") / "kafka-hostile"
steady = settings(max_examples=int(os.environ.get("WIRESCAN_EXAMPLES", 15)), deadline=None,
                  database=None, suppress_health_check=list(HealthCheck))
every_side = pytest.mark.parametrize("name, side", strategies.STORED)
every_body = pytest.mark.parametrize("api, direction", strategies.EVERY_BODY)


def agree(table, want):
    assert rows_of(table) == want
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
        levels_agree(kafka.body(table, api, errors="mark"), levels, api, direction)


def levels_agree(table, levels, api, direction):
    tables = opened(table)
    assert tables.keys() == reference.formats(api, direction).keys()
    for name, one in tables.items():
        agree(one, levels[name])


@st.composite
def conversations(draw):
    """What a client sent and received, in bytes: whole, or damaged on either side."""
    connection = draw(strategies.connections())
    side = draw(st.sampled_from((None, "up", "down", "both")))
    return tuple(draw(strategies.damaged(raw)) if side in (name, "both") else raw
                 for name, raw in (("up", connection.up), ("down", connection.down)))


def conversation_agrees(up, down):
    """What both sides said, whether it is known or not what the responses answer; their pairs, and their bodies."""
    asked, *stop = reference.requests(up)
    requests = kafka.requests(up, errors="mark")
    streams_agree(requests, asked, *stop, up)
    for known in (False, True):
        answers, *stop = reference.responses(down, asked, up) if known else reference.responses(down)
        responses = kafka.responses(down, requests if known else None, errors="mark")
        streams_agree(responses, answers, *stop, down)
    requests, responses = requests[:len(asked)], responses[:len(answers)]
    assert kafka.pair(requests, responses).tolist() == reference.pair(asked, answers)
    bodies_agree(requests, asked, up, "request")
    bodies_agree(responses, answers, down, "response")


@steady
@given(conversations())
def test_conversations_agree_with_the_reference(conversation):
    conversation_agrees(*conversation)


@pytest.mark.parametrize("path", sorted(HOSTILE.glob("*.messages")), ids=lambda path: path.stem)
def test_what_once_went_wrong(path):
    raw = path.read_bytes()
    end = 4 + int.from_bytes(raw[:4], "big")
    conversation_agrees(raw[4:end], raw[end:])


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


def test_an_opaque_request_has_no_acks():
    """A token that begins as a Produce request of a version that cannot be, and what would be acks = 0."""
    requests = kafka.requests(strategies.framed(bytes.fromhex("0000 0100") + bytes(20)))
    assert requests["kind"].tolist() == [255]
    assert kafka.responses(strategies.framed(b"token"), requests)["request"].tolist() == [0]


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
    [(api, direction, version) for api, direction in strategies.EVERY_BODY for version in range(NEWEST[api] + 1)])
@settings(steady, max_examples=int(os.environ.get("WIRESCAN_EXAMPLES", 24)) // 8)
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


@every_side
@steady
@given(st.lists(strategies.records(), max_size=4))
def test_keys_and_values_agree_with_the_reference(name, side, given):
    raw = kafka.encode_batch([{"key": key, "value": value} for key, value in given])
    records, levels = kafka.records(kafka.scan(raw)), defaultdict(list)
    for number, row in enumerate(rows_of(records)):
        reference.stored(raw, row, name, side, number, levels)
    levels_agree(kafka.body(records, f"{name} {side}", errors="mark"), levels, name, side)


def test_the_reference_reads_whatever_no_scan_alone_can_tell():
    known = {one for api, direction in strategies.EVERY_BODY + strategies.STORED if direction != "request"
             for one in reference.formats(api, direction)}
    assert known == {name for name in wirescan.formats() if OPENED_BY_OTHERS.match(name)}


def fetched(version, damage):
    """The partitions of a Fetch response of five, each with one record; `damage` gets the bytes, and where the third
    begins and ends."""
    records = [kafka.encode_batch([b"value %d" % number]) for number in range(5)]
    asked = kafka.requests(kafka.encode_request("Fetch", version))
    topic = {"partitions": [{"partition_index": number, "records": records[number]} for number in range(5)]}
    raw = bytearray(kafka.encode_response("Fetch", version, {"responses": [topic]}))

    def partitions():
        bodies = kafka.body(kafka.responses(bytes(raw), asked), "Fetch", errors="mark")
        return bodies.open("responses").open("partitions")
    third = partitions().rows[2]
    damage(raw, third)
    return partitions()


def lies_about_its_records(raw, third):
    at = third["start"] + third["records_at"] - 4
    raw[at:at + 4] = b"\x7f\xff\xff\xff"


def lies_about_its_transactions(raw, third):
    at = third["start"] + third["aborted_transactions_at"] - 4
    raw[at:at + 4] = b"\0\0\0\x7f"


def ends_inside(raw, third):
    del raw[third["start"] + third["size"] - 9:]
    raw[:4] = (len(raw) - 4).to_bytes(4, "big")


def ends_behind(raw, third):
    del raw[third["start"] + third["size"]:]
    raw[:4] = (len(raw) - 4).to_bytes(4, "big")


@pytest.mark.parametrize("damage, good, fault", [
    (lies_about_its_records, 2, Fault.TRUNCATED), (lies_about_its_transactions, 2, None),
    (ends_inside, 2, Fault.TRUNCATED), (ends_behind, 3, Fault.BAD_COUNT)])
def test_partitions_before_a_damaged_one_are_not_lost(damage, good, fault):
    partitions = fetched(11, damage)
    assert partitions.bad.tolist() == [False] * good + [True]
    assert partitions["partition_index"][:good].tolist() == list(range(good))
    bad = partitions.rows[good]
    for around in (partitions.outer, partitions.outer.outer):
        row, = around.rows
        assert row["fault"] == bad["fault"] == (bad["fault"] if fault is None else fault)
        assert row["start"] + row["size"] == bad["start"] + bad["size"] == len(partitions.buffers[0])
    assert partitions.outer["partitions_count"].tolist() == [5]
    batches = kafka.scan(partitions)
    assert batches["parent"].tolist() == list(range(good))
    assert [bytes(record.value) for record in kafka.records(batches)] == [b"value %d" % i for i in range(good)]


def test_no_struct_in_an_array_is_empty():
    """Else there could be 2**31 of them in no bytes, and reading these would take long."""
    for message in MESSAGE.values():
        for version in message.versions:
            steps, ranges = steps_of(message, version)
            assert all(first < last and steps["read"][first] != Read.TAG
                       for level, (first, last) in ranges.items() if level != message.level.path)


def test_counts_beyond_what_is_there():
    """The count is kept, up to 2**31 - 1, and what there is of the structs is read."""
    asked = kafka.requests(kafka.encode_request("ApiVersions", 3))
    raw = strategies.framed(bytes.fromhex("00000000 0000 ffffffff0f") + b"\0\x12\0\0\0\4\0" + b"\0\1")
    bodies = kafka.body(kafka.responses(raw, asked), "ApiVersions", errors="mark")
    assert (bodies["fault"].tolist(), bodies["api_keys_count"].tolist()) == ([Fault.TRUNCATED], [2**31 - 1])
    keys = bodies.open("api_keys")
    assert (keys["api_key"].tolist(), keys["fault"].tolist()) == ([18, 1], [0, Fault.TRUNCATED])


# ------------------------------------------------------------------------------- hostile tables and arguments

def forged(table, **columns):
    rows = table.rows.copy()
    for name, value in columns.items():
        rows[name] = value
    return replace(table, rows=rows)


def test_a_forged_body_is_not_followed():
    asked = kafka.requests(kafka.encode_request("Produce", 0, {"acks": 0}))
    answers = kafka.responses(kafka.encode_response("Produce", 0))
    for body in (0x7fffffff, 0xffffffff, len(asked.buffers[0]) + 1):
        assert kafka.pair(forged(asked, body=body), answers)["response"].tolist() == [0]


def test_tables_of_other_messages_are_refused():
    asked = kafka.requests(kafka.encode_request("Fetch", 4, {"topics": [{"topic": "t"}]}))
    fetches = kafka.body(asked, "Fetch")
    for name, table in (("kafka.metadata_request.topics", fetches), ("kafka.offset_commit_key", asked),
                        ("kafka.fetch_response", asked), ("kafka.fetch_request", fetches)):
        with pytest.raises(TypeError, match="lie"):
            wirescan.formats()[name].read(table, errors="mark")


@pytest.mark.parametrize("name", ["OffsetCommit", "Fetch request", "OffsetCommit request", "", "No value"])
def test_what_does_not_lie_in_records_is_told(name):
    records = kafka.records(kafka.scan(kafka.encode_batch([b"x"])))
    with pytest.raises(ValueError, match="OffsetCommit key, OffsetCommit value"):
        kafka.body(records, name)


def test_parents_that_are_not_there_are_told():
    batch = bytearray(kafka.encode_batch([b"x"]))
    batch[-1] ^= 1
    raw = kafka.encode_response("Fetch", 4, {"responses": [{"topic": "t", "partitions": [{"records": batch}]}]})
    asked = kafka.requests(kafka.encode_request("Fetch", 4))
    partitions = kafka.body(kafka.responses(raw, asked), "Fetch").open("responses").open("partitions")
    wrong = forged(partitions, parent=834847724)
    with pytest.raises(ValueError, match="outside the table around it"):
        kafka.scan(wrong)
    with pytest.raises(ValueError, match="outside the table around it"):
        wrong.positions


def test_a_bad_header_does_not_hold_a_stream_up():
    bad = struct.pack(">ihhih", 10, 3, 1, 7, 99)                # a client id that runs past the request
    good = kafka.encode_request("Metadata", 1, {"topics": None})
    stream = wirescan.stream("kafka.requests", errors="mark")
    seen = [len(stream.feed(chunk)) for chunk in (bad + good * 10, good * 10, good)]
    assert sum(seen) >= 21 and stream.held < 100 and len(stream.close()) == 22 - sum(seen)


def test_many_connections_take_no_longer_each():
    one, other = kafka.encode_request("Metadata", 1, {"topics": None}), kafka.encode_response("Metadata", 1)
    requests = kafka.requests([one] * 20_000)
    assert (kafka.pair(requests, kafka.responses([other] * 20_000, requests))["response"] == np.arange(20_000)).all()


def test_fields_of_other_versions_may_be_empty():
    bare = kafka.encode_request("Fetch", 4)
    assert kafka.encode_request("Fetch", 4, {"forgotten_topics_data": [], "rack_id": "", "session_epoch": -1}) == bare
    assert kafka.encode_request("Fetch", 4, {"forgotten_topics_data": np.empty(0)}) == bare
    for body in ({"rack_id": "here"}, {"session_epoch": 3}, {"forgotten_topics_data": [{}]}):
        with pytest.raises(ValueError, match="version 4"):
            kafka.encode_request("Fetch", 4, body)
    for api, version in ((1, 4.0), (5.7, 0), ("Fetch", "4")):
        with pytest.raises(TypeError):
            kafka.encode_request(api, version)


def test_a_struct_that_is_not_tagged_lies_in_the_row_around_it():
    versions = range(2)
    inner = Field("leader", "struct", versions, fields=(
        Field("id", "int32", versions), Field("epoch", "int32", versions, tag=0, default=-1)))
    message = Message("Made", "request", versions, 1, (inner, Field("last", "int16", versions)))
    assert [name for name, *_ in message.level.columns][:2] == ["leader_id", "leader_epoch"]
    for version, want in ((0, [Read.NUMBER, Read.NUMBER]), (1, [Read.NUMBER, Read.TAGS, Read.NUMBER, Read.TAGS])):
        steps, ranges = steps_of(message, version)
        first, last = ranges[message.level.path]
        assert steps["read"][first:last].tolist() == want
    tags = steps[1]
    assert steps["read"][tags["first"]:tags["last"]].tolist() == [Read.TAG]
