"""kafka.requests, responses, pair and body agree with the slow reference.

They agree for good bytes and for damaged bytes.
"""

import struct
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wirescan
from tests.laws.cases import OPENED_BY_OTHERS
from tests.reference import kafka_protocol as reference
from tests.reference.kafka_messages import NEWEST
from tests.strategies import kafka_protocol as strategies
from tests.support.examples import read_example_count
from tests.support.kafka_conversation import (
    assert_bodies_agree,
    assert_conversation_agrees,
    assert_levels_agree,
)
from tests.support.paths import CORPUS
from wirescan import FrameError, kafka
from wirescan.core.fault import Fault
from wirescan.kafka.protocol.body import Read
from wirescan.kafka.protocol.compile import compile_steps
from wirescan.kafka.protocol.schema import MESSAGE, Field, MessageSchema
from wirescan.testing.laws import list_rows

HOSTILE = CORPUS / "kafka-hostile"
steady = settings(
    max_examples=read_example_count(9),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
every_side = pytest.mark.parametrize("name, side", strategies.STORED)
every_body = pytest.mark.parametrize("api, direction", strategies.EVERY_BODY)


@st.composite
def conversations(draw):
    """Draw the bytes that a client sent and received, whole or damaged on one side or both."""
    connection = draw(strategies.connections())
    side = draw(st.sampled_from((None, "up", "down", "both")))
    up, down = connection.up, connection.down
    if side in ("up", "both"):
        up = draw(strategies.damaged(up))
    if side in ("down", "both"):
        down = draw(strategies.damaged(down))
    return up, down


@steady
@given(conversations())
def test_conversations_agree_with_the_reference(conversation):
    assert_conversation_agrees(*conversation)


@pytest.mark.parametrize("path", sorted(HOSTILE.glob("*.messages")), ids=lambda path: path.stem)
def test_inputs_of_earlier_errors(path):
    raw = path.read_bytes()
    end = 4 + int.from_bytes(raw[:4], "big")
    assert_conversation_agrees(raw[4:end], raw[end:])


def test_bytes_behind_an_impossible_size_answer_no_request():
    metadata = strategies.frame_payload(
        bytes.fromhex("0003 0000 00000005 ffff 00000000")
    )  # version 0
    opaque = strategies.frame_payload(b"\0user\0password")
    down = b"\xff\xff\xff\xff\0\0\0\5"
    for up in (metadata, opaque):
        (row,) = kafka.responses(down, kafka.requests(up), errors="mark")
        assert (row.fault, row.size, row.request, row.api_key) == (Fault.BAD_LENGTH, 8, -1, -1)


def test_acks_behind_an_id_that_does_not_fit_are_not_read():
    # A compact string of 2**31 bytes, and then bytes that would be acks = 0.
    up = strategies.frame_payload(
        bytes.fromhex("0000 0009 00000005 ffff 00 8180808008 0000 00000000 01 00")
    )
    down = strategies.frame_payload(bytes.fromhex("00000005 00"))
    assert kafka.responses(down, kafka.requests(up))["request"].tolist() == [0]


def test_an_opaque_request_has_no_acks():
    """The token begins as a Produce request of an impossible version, and would have acks = 0."""
    requests = kafka.requests(strategies.frame_payload(bytes.fromhex("0000 0100") + bytes(20)))
    assert requests["kind"].tolist() == [255]
    assert kafka.responses(strategies.frame_payload(b"token"), requests)["request"].tolist() == [0]


def test_a_response_with_a_broken_header_is_still_the_answer():
    requests = kafka.requests(
        strategies.frame_payload(bytes.fromhex("0003 0009 00000005 ffff 00 00 00 00 00 00"))
    )
    responses = kafka.responses(
        strategies.frame_payload(bytes.fromhex("00000005 05")), requests, errors="mark"
    )
    assert responses["fault"].tolist() == [Fault.TRUNCATED]
    assert responses["request"].tolist() == [0]
    assert kafka.pair(requests, responses).tolist() == [(0, 0)]


@pytest.mark.parametrize(
    ("tags", "fault"), [(b"\xff" * 6, Fault.BAD_VARINT), (b"\x05", Fault.TRUNCATED)]
)
def test_pairs_are_those_of_the_column_request_after_a_broken_header(tags, fault):
    """All requests have one correlation id, so only the order of the responses matters."""
    up = kafka.encode_request("Heartbeat", 4, correlation_id=0) * 3
    whole = kafka.encode_response("Heartbeat", 4, correlation_id=0)
    requests = kafka.requests(up)
    down = strategies.frame_payload(bytes(4) + tags) + whole + whole
    responses = kafka.responses(down, requests, errors="mark")
    assert responses["fault"].tolist() == [fault, 0, 0]
    assert responses["request"].tolist() == [0, 1, 2]
    assert kafka.pair(requests, responses).tolist() == [(0, 0), (1, 1), (2, 2)]


@steady
@given(strategies.connections())
def test_requests_are_paired_with_their_responses(connection):
    requests = kafka.requests(connection.up)
    responses = kafka.responses(connection.down, requests)
    assert kafka.pair(requests, responses).tolist() == connection.pairs
    # errors="mark", because a token may be shorter than a header.
    without_requests = kafka.responses(connection.down, errors="mark")
    assert kafka.pair(requests, without_requests).tolist() == connection.pairs


@steady
@given(st.lists(strategies.connections(), max_size=3))
def test_connections_are_paired_each_by_itself(connections):
    requests = kafka.requests([connection.up for connection in connections])
    responses = kafka.responses([connection.down for connection in connections], requests)
    pairs, without_request = [], []
    request_count = response_count = 0
    for connection in connections:
        for request, response in connection.pairs:
            response_row = -1 if response < 0 else response_count + response
            if request < 0:
                without_request.append((-1, response_row))
            else:
                pairs.append((request_count + request, response_row))
        request_count += len(connection.sent)
        response_count += len(connection.received)
    assert kafka.pair(requests, responses).tolist() == pairs + without_request


@steady
@given(strategies.connections())
def test_bodies_agree_with_the_reference(connection):
    request_rows, *_ = reference.read_requests(connection.up)
    response_rows, *_ = reference.read_responses(connection.down, request_rows, connection.up)
    requests = kafka.requests(connection.up)
    responses = kafka.responses(connection.down, requests)
    assert_bodies_agree(requests, request_rows, connection.up, "request")
    assert_bodies_agree(responses, response_rows, connection.down, "response")


@pytest.mark.parametrize(
    "api, direction, version",
    [
        (api, direction, version)
        for api, direction in strategies.EVERY_BODY
        for version in range(NEWEST[api] + 1)
    ],
)
@settings(steady, max_examples=read_example_count(8) // 8)
@given(st.data())
def test_every_version_agrees_with_the_reference(api, direction, version, data):
    message = data.draw(strategies.requests(api, version, 0))
    requests = kafka.requests(message.raw)
    request_rows, *_ = reference.read_requests(message.raw)
    if direction == "request":
        assert_bodies_agree(requests, request_rows, message.raw, direction)
        return
    if message.api_key == 0 and message.values["acks"] == 0:
        return
    raw = data.draw(strategies.responses(api, version, 0)).raw
    response_rows, *_ = reference.read_responses(raw, request_rows, message.raw)
    assert_bodies_agree(kafka.responses(raw, requests), response_rows, raw, direction)


@every_body
@steady
@given(st.data())
def test_damaged_bodies_agree_with_the_reference(api, direction, data):
    if direction == "request":
        broken = data.draw(
            st.lists(strategies.broken_bodies(api, direction), min_size=1, max_size=3)
        )
        raw = b"".join(message.raw for message in broken)
        request_rows, *_ = reference.read_requests(raw)
        assert_bodies_agree(kafka.requests(raw, errors="mark"), request_rows, raw, direction)
        return
    broken = data.draw(strategies.broken_bodies(api, direction))
    up = data.draw(strategies.requests(api, broken.api_version, broken.correlation_id)).raw
    request_rows, *_ = reference.read_requests(up)
    response_rows, *_ = reference.read_responses(broken.raw, request_rows, up)
    responses = kafka.responses(broken.raw, kafka.requests(up), errors="mark")
    assert_bodies_agree(responses, response_rows, broken.raw, direction)


@steady
@given(conversations())
def test_strict_raises_the_first_fault_that_mark_marks(conversation):
    up, _ = conversation
    rows, fault, position = reference.read_requests(up)
    bad = next((row for row in rows if row["fault"]), None)
    if bad is not None:
        fault, position = bad["fault"], bad["start"]
    elif fault < Fault.BAD_LENGTH:
        assert len(kafka.requests(up)) == len(rows)
        return
    with pytest.raises(FrameError) as caught:
        kafka.requests(up)
    assert (caught.value.fault, caught.value.offset) == (fault, position)


@every_side
@steady
@given(st.lists(strategies.records(), max_size=4))
def test_keys_and_values_agree_with_the_reference(name, side, pairs):
    raw = kafka.encode_batch([{"key": key, "value": value} for key, value in pairs])
    records = kafka.records(kafka.scan(raw))
    levels = defaultdict(list)
    for number, row in enumerate(list_rows(records)):
        reference.read_stored(raw, row, name, side, number, levels)
    assert_levels_agree(kafka.body(records, f"{name} {side}", errors="mark"), levels, name, side)


def test_the_reference_reads_all_formats_that_need_another_table():
    names = {
        name
        for api, direction in strategies.EVERY_BODY + strategies.STORED
        if direction != "request"
        for name in reference.list_formats(api, direction)
    }
    assert names == {name for name in wirescan.formats() if OPENED_BY_OTHERS.match(name)}


def read_damaged_partitions(version, damage):
    """Read the partitions of a damaged Fetch response of five partitions with a record each.

    `damage(raw, third)` changes the bytes. `third` is the row of the third partition.
    """
    partitions = [
        {"partition_index": number, "records": kafka.encode_batch([b"value %d" % number])}
        for number in range(5)
    ]
    requests = kafka.requests(kafka.encode_request("Fetch", version))
    body = {"responses": [{"partitions": partitions}]}
    raw = bytearray(kafka.encode_response("Fetch", version, body))

    def read():
        bodies = kafka.body(kafka.responses(bytes(raw), requests), "Fetch", errors="mark")
        return bodies.open("responses").open("partitions")

    third = read().rows[2]
    damage(raw, third)
    return read()


def lies_about_its_records(raw, third):
    at = third["start"] + third["records_at"] - 4
    raw[at : at + 4] = b"\x7f\xff\xff\xff"


def lies_about_its_transactions(raw, third):
    at = third["start"] + third["aborted_transactions_at"] - 4
    raw[at : at + 4] = b"\0\0\0\x7f"


def ends_inside(raw, third):
    del raw[third["start"] + third["size"] - 9 :]
    raw[:4] = (len(raw) - 4).to_bytes(4, "big")


def ends_behind(raw, third):
    del raw[third["start"] + third["size"] :]
    raw[:4] = (len(raw) - 4).to_bytes(4, "big")


@pytest.mark.parametrize(
    "damage, good, fault",
    [
        (lies_about_its_records, 2, Fault.TRUNCATED),
        (lies_about_its_transactions, 2, None),
        (ends_inside, 2, Fault.TRUNCATED),
        (ends_behind, 3, Fault.BAD_COUNT),
    ],
)
def test_partitions_before_a_damaged_one_are_not_lost(damage, good, fault):
    partitions = read_damaged_partitions(11, damage)
    assert partitions.bad.tolist() == [False] * good + [True]
    assert partitions["partition_index"][:good].tolist() == list(range(good))
    bad = partitions.rows[good]
    if fault is not None:
        assert bad["fault"] == fault
    end = len(partitions.buffers[0])
    assert bad["start"] + bad["size"] == end
    for outer in (partitions.outer, partitions.outer.outer):
        (row,) = outer.rows
        assert row["fault"] == bad["fault"]
        assert row["start"] + row["size"] == end
    assert partitions.outer["partitions_count"].tolist() == [5]
    batches = kafka.scan(partitions)
    assert batches["parent"].tolist() == list(range(good))
    values = [bytes(record.value) for record in kafka.records(batches)]
    assert values == [b"value %d" % number for number in range(good)]


def test_no_struct_in_an_array_is_empty():
    """Otherwise no bytes could hold 2**31 structs, and reading them would take long."""
    for message in MESSAGE.values():
        for version in message.versions:
            steps, ranges = compile_steps(message, version)
            for level, (first, last) in ranges.items():
                if level != message.level.path:
                    assert first < last
                    assert steps["read"][first] != Read.TAG


def test_counts_beyond_the_body():
    """The column holds the count, up to 2**31 - 1. The structs before the fault are read."""
    requests = kafka.requests(kafka.encode_request("ApiVersions", 3))
    raw = strategies.frame_payload(
        bytes.fromhex("00000000 0000 ffffffff0f") + b"\0\x12\0\0\0\4\0" + b"\0\1"
    )
    bodies = kafka.body(kafka.responses(raw, requests), "ApiVersions", errors="mark")
    assert bodies["fault"].tolist() == [Fault.TRUNCATED]
    assert bodies["api_keys_count"].tolist() == [2**31 - 1]
    keys = bodies.open("api_keys")
    assert keys["api_key"].tolist() == [18, 1]
    assert keys["fault"].tolist() == [0, Fault.TRUNCATED]


# ---- hostile tables and arguments


def test_credentials_are_hidden_unless_requested():
    """A password is neither shown nor exported without credentials=True."""
    from wirescan.frames import to_arrow

    token = b"\0alice\0secret"
    raw = kafka.encode_request("SaslHandshake", 1, {"mechanism": "PLAIN"}, correlation_id=1)
    raw += b"".join(
        kafka.encode_request(
            "SaslAuthenticate", version, {"auth_bytes": token}, correlation_id=version
        )
        for version in (0, 1, 2)
    )
    requests = kafka.requests(raw)
    by_body = kafka.body(requests, "SaslAuthenticate")
    by_open = requests.open("sasl_authenticate_request")
    for table in (requests, by_body, by_open):
        text = repr(table) + table._repr_html_() + "".join(map(repr, table))
        assert "secret" not in text
        assert "alice" not in text
    for table in (by_body, by_open):
        assert [row.auth_bytes for row in table] == [None] * 3
        assert not table.bad.any()
    assert to_arrow.to_batch(by_body)["auth_bytes"].null_count == 3
    table = kafka.body(requests, "SaslAuthenticate", credentials=True)
    assert [bytes(row.auth_bytes) for row in table] == [token] * 3
    assert "secret" in repr(table)
    assert table["size"].tolist() == by_body["size"].tolist()
    table = requests.open("sasl_authenticate_request", credentials=True)
    assert table["auth_bytes_size"].tolist() == [len(token)] * 3


def replace_columns(table, **columns):
    rows = table.rows.copy()
    for name, value in columns.items():
        rows[name] = value
    return replace(table, rows=rows)


def test_the_position_of_a_forged_body_is_not_read():
    requests = kafka.requests(kafka.encode_request("Produce", 0, {"acks": 0}))
    responses = kafka.responses(kafka.encode_response("Produce", 0))
    for body in (0x7FFFFFFF, 0xFFFFFFFF, len(requests.buffers[0]) + 1):
        assert kafka.pair(replace_columns(requests, body=body), responses)["response"].tolist() == [
            0
        ]


@pytest.mark.parametrize("offset", [2**63, np.uint64(2**63)])
def test_numbers_that_do_not_fit_are_named(offset):
    body = {"topics": [{"name": "t", "partitions": [{"offset": offset}]}]}
    with pytest.raises(ValueError, match="offset must fit in int64"):
        kafka.encode_response("ListOffsets", 10, body, correlation_id=1)


def test_an_error_names_the_row_of_a_malformed_response():
    names = ("ApiVersions", *["Metadata"] * 3)
    up = b"".join(kafka.encode_request(name, 1, None, correlation_id=1) for name in names)
    api_versions = kafka.encode_response("ApiVersions", 1, None, correlation_id=1)
    good = kafka.encode_response("Metadata", 1, {"brokers": [{"host": "a"}]}, correlation_id=1)
    bad = bytearray(good)
    bad[11] = 99  # the number of brokers
    responses = kafka.responses(api_versions + good + bytes(bad) + good, kafka.requests(up))
    with pytest.raises(FrameError, match="BAD_COUNT|TRUNCATED") as caught:
        kafka.body(responses, "Metadata")
    assert caught.value.row == 1
    assert caught.value.__notes__ == [
        'in row 2 of kafka.responses; errors="mark" reads the other bodies'
    ]
    table = kafka.body(responses, "Metadata", errors="mark")
    assert table.bad.tolist() == [False, True, False]
    assert table["parent"].tolist() == [1, 2, 3]


def test_absent_and_null_arrays_have_the_count_minus_one():
    def count_features(version, body):
        requests = kafka.requests(kafka.encode_request("ApiVersions", version, None))
        raw = kafka.encode_response("ApiVersions", version, body)
        table = kafka.body(kafka.responses(raw, requests), "ApiVersions")
        return table["supported_features_count"].tolist()

    def count_topics(topics):
        requests = kafka.requests(kafka.encode_request("Metadata", 12, {"topics": topics}))
        return kafka.body(requests, "Metadata")["topics_count"].tolist()

    assert count_features(2, None) == [-1]
    assert count_features(3, None) == [-1]
    assert count_features(3, {"supported_features": []}) in ([0], [-1])
    assert count_features(3, {"supported_features": [{"name": "a"}]}) == [1]
    assert count_topics(None) == [-1]
    assert count_topics([]) == [0]


def test_tables_of_other_messages_are_refused():
    requests = kafka.requests(kafka.encode_request("Fetch", 4, {"topics": [{"topic": "t"}]}))
    fetches = kafka.body(requests, "Fetch")
    for name, table in (
        ("kafka.metadata_request.topics", fetches),
        ("kafka.offset_commit_key", requests),
        ("kafka.fetch_response", requests),
        ("kafka.fetch_request", fetches),
    ):
        with pytest.raises(TypeError, match="opened from a table of"):
            wirescan.formats()[name].read(table, errors="mark")


@pytest.mark.parametrize(
    "name", ["OffsetCommit", "Fetch request", "OffsetCommit request", "", "No value"]
)
def test_messages_that_records_do_not_hold_are_refused(name):
    records = kafka.records(kafka.scan(kafka.encode_batch([b"x"])))
    with pytest.raises(ValueError, match="OffsetCommit key, OffsetCommit value"):
        kafka.body(records, name)


def test_a_parent_outside_the_outer_table_is_refused():
    batch = bytearray(kafka.encode_batch([b"x"]))
    batch[-1] ^= 1
    topic = {"topic": "t", "partitions": [{"records": batch}]}
    raw = kafka.encode_response("Fetch", 4, {"responses": [topic]})
    requests = kafka.requests(kafka.encode_request("Fetch", 4))
    bodies = kafka.body(kafka.responses(raw, requests), "Fetch")
    partitions = bodies.open("responses").open("partitions")
    wrong = replace_columns(partitions, parent=834847724)
    with pytest.raises(ValueError, match="outside the table around it"):
        kafka.scan(wrong)
    with pytest.raises(ValueError, match="outside the table around it"):
        wrong.positions


def test_a_bad_header_does_not_hold_a_stream_up():
    bad = struct.pack(">ihhih", 10, 3, 1, 7, 99)  # a client id that runs past the request
    good = kafka.encode_request("Metadata", 1, {"topics": None})
    stream = wirescan.stream("kafka.requests", errors="mark")
    read = sum(len(stream.feed(chunk)) for chunk in (bad + good * 10, good * 10, good))
    assert read >= 21
    assert stream.held < 100
    assert len(stream.close()) == 22 - read


def test_many_connections_are_paired_in_linear_time():
    request = kafka.encode_request("Metadata", 1, {"topics": None})
    response = kafka.encode_response("Metadata", 1)
    requests = kafka.requests([request] * 5_000)
    responses = kafka.responses([response] * 5_000, requests)
    assert (kafka.pair(requests, responses)["response"] == np.arange(5_000)).all()


def test_fields_of_other_versions_may_be_empty():
    bare = kafka.encode_request("Fetch", 4)
    empty = {"forgotten_topics_data": [], "rack_id": "", "session_epoch": -1}
    assert kafka.encode_request("Fetch", 4, empty) == bare
    assert kafka.encode_request("Fetch", 4, {"forgotten_topics_data": np.empty(0)}) == bare
    for body in ({"rack_id": "here"}, {"session_epoch": 3}, {"forgotten_topics_data": [{}]}):
        with pytest.raises(ValueError, match="version 4"):
            kafka.encode_request("Fetch", 4, body)
    for api, version in ((1, 4.0), (5.7, 0), ("Fetch", "4")):
        with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
            kafka.encode_request(api, version)


def test_the_fields_of_a_struct_without_a_tag_are_columns_of_the_outer_row():
    versions = range(2)
    inner = Field(
        "leader",
        "struct",
        versions,
        fields=(
            Field("id", "int32", versions),
            Field("epoch", "int32", versions, tag=0, default=-1),
        ),
    )
    message = MessageSchema(
        "Made", "request", versions, 1, (inner, Field("last", "int16", versions))
    )
    assert [name for name, *_ in message.level.columns][:2] == ["leader_id", "leader_epoch"]
    for version, expected in (
        (0, [Read.NUMBER, Read.NUMBER]),
        (1, [Read.NUMBER, Read.TAGS, Read.NUMBER, Read.TAGS]),
    ):
        steps, ranges = compile_steps(message, version)
        first, last = ranges[message.level.path]
        assert steps["read"][first:last].tolist() == expected
    tags = steps[1]
    assert steps["read"][tags["first"] : tags["last"]].tolist() == [Read.TAG]


def test_an_empty_value_has_no_version():
    batch = kafka.encode_batch([{"key": bytes(10), "value": value} for value in (b"", b"x")])
    records = kafka.records(kafka.scan(batch))
    values = kafka.body(records, "OffsetCommit value", errors="mark")
    assert values["fault"].tolist() == [Fault.BAD_VERSION] * 2
    assert values["expire_timestamp"].tolist() == [-1, -1]


def test_the_lost_members_of_an_empty_value_are_rows_of_zeros():
    pairs = [{"key": b"\0\2\0\0", "value": value} for value in (b"", b"\0\x63")]
    records = kafka.records(kafka.scan(kafka.encode_batch(pairs)))
    groups = kafka.body(records, "GroupMetadata value", errors="mark")
    assert groups["members_size"].tolist() == [-1, -1]
    members = groups.format.children["members"](groups, errors="mark")
    assert members["fault"].tolist() == [Fault.BAD_VERSION] * 2
    assert members["member_id_size"].tolist() == [0, 0]
    assert members["rebalance_timeout"].tolist() == [0, 0]
