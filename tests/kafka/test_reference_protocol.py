"""The slow reference reads what the strategies write.

The tests cover every API, direction and version, and whole connections.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reference import kafka_protocol as reference
from tests.reference.kafka_messages import NEWEST
from tests.strategies import kafka_protocol as strategies
from tests.support.examples import read_example_count
from tests.support.kafka_values import read_values

few = settings(
    max_examples=read_example_count(8) // 8,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
steady = settings(few, max_examples=read_example_count(9))
every_body = pytest.mark.parametrize("api, direction", strategies.EVERY_BODY)
every_version = pytest.mark.parametrize(
    "api, direction, version",
    [
        (api, direction, version)
        for api, direction in strategies.EVERY_BODY
        for version in range(NEWEST[api] + 1)
    ],
)


def outermost_format(api, direction):
    """Return (name of the format, function that reads it) of a body."""
    return next(iter(reference.list_formats(api, direction).items()))


def check_values(read, written):
    """Check that the values read are the values written.

    Values that were not written are null or the default of a number.
    """
    for name, value in read.items():
        if name not in written:
            assert value is None or isinstance(value, int), name
        elif isinstance(value, list):
            assert len(value) == len(written[name]), name
            for inner, inner_written in zip(value, written[name]):
                check_values(inner, inner_written)
        else:
            assert value == written[name], name
    assert written.keys() <= read.keys()


@every_version
@few
@given(st.data())
def test_the_values_read_equal_the_values_written(api, direction, version, data):
    raw, values = data.draw(strategies.bodies(api, direction, version))
    around = data.draw(st.binary(max_size=3))
    row = dict(start=len(around), size=len(raw) + 3, body=3, buffer=5, fault=0, api_version=version)
    stream = around + b"xyz" + raw + around
    levels = reference.read_body(stream, row, api, direction, parent=9)
    level, read = outermost_format(api, direction)
    (top,) = levels[level]
    assert top == top | dict(
        start=len(around), size=len(raw) + 3, body=3, parent=9, buffer=5, kind=version, fault=0
    )
    assert top.keys() == (reference.HEAD | read.columns).keys()
    check_values(read_values(stream, levels, level), values)
    for rows in levels.values():
        assert all((row["fault"], row["buffer"], row["kind"]) == (0, 5, version) for row in rows)


@every_body
@steady
@given(st.data())
def test_a_body_that_is_cut_or_too_long_has_a_fault(api, direction, data):
    version = data.draw(st.integers(0, NEWEST[api]))
    raw, _ = data.draw(strategies.bodies(api, direction, version))
    name, _ = outermost_format(api, direction)
    cut = data.draw(st.integers(0, len(raw) - 1)) if raw else 0
    row = dict(start=0, size=cut, body=0, buffer=0, fault=0, api_version=version)
    (top,) = reference.read_body(raw, row, api, direction)[name]
    assert top["fault"] in ((reference.TRUNCATED, reference.BAD_COUNT) if raw else (0,))
    assert top["size"] == cut
    whole = reference.read_body(raw, row | dict(size=len(raw)), api, direction)
    levels = reference.read_body(raw + b"\0", row | dict(size=len(raw) + 1), api, direction)
    (top,) = levels.pop(name)
    assert (top["fault"], top["size"]) == (reference.LEFTOVER, len(raw) + 1)
    # Complete arrays have all their rows. A bad row covers the whole body.
    for level, rows in levels.items():
        assert [row for row in rows if not row["fault"]] == whole[level]
        assert all(row == covering_row(row, top) for row in rows if row["fault"])


def covering_row(row, outer):
    """Return the bad row that covers the row around it."""
    zeros = dict.fromkeys(row, 0)
    return zeros | {name: outer[name] for name in ("start", "size", "buffer", "fault")}


@every_body
@steady
@given(st.data())
def test_structs_before_the_fault_of_an_array_are_read(api, direction, data):
    message = data.draw(strategies.broken_bodies(api, direction))
    if direction == "request":
        (row, *_), fault, _ = reference.read_requests(message.raw)
    else:
        (row, *_), fault, _ = reference.read_responses(message.raw)
        row = row | dict(api_version=message.api_version)
    assert not fault
    levels = reference.read_body(message.raw, row, api, direction)
    outermost_name, read_message = outermost_format(api, direction)
    (top,) = levels[outermost_name]
    assert (top["start"], top["size"]) == (0, len(message.raw))
    name_of_path = {
        path: reference.name_format(outermost_name, path)
        for path, _ in reference.list_arrays(read_message)
    }
    for path, read in [((), read_message), *reference.list_arrays(read_message)]:
        level = name_of_path[path] if path else outermost_name
        for number, row in enumerate(levels[level]):
            assert row["fault"] in (0, top["fault"])
            assert row["start"] + row["size"] <= len(message.raw)
            slices = [name.removesuffix("_size") for name in row if name.endswith("_size")]
            for name in slices:
                assert row[name + "_at"] + max(row[name + "_size"], 0) <= row["size"]
            for name in read.arrays:
                structs = levels[name_of_path[*path, name]]
                check_structs([each for each in structs if each["parent"] == number], row, name)


def check_structs(rows, outer, name):
    """Check that the structs of an array follow each other inside the row around them."""
    if not outer[name + "_at"]:
        if outer["fault"]:
            parent = rows[0]["parent"]
            assert rows == [covering_row(rows[0], outer) | dict(parent=parent)]
        else:
            assert rows == []
        return
    start = outer["start"] + outer[name + "_at"]
    position = start
    for row in rows:
        assert row["start"] == position
        assert not row["fault"] or row is rows[-1]
        position += row["size"]
    assert position == start + max(outer[name + "_size"], 0)
    if rows and rows[-1]["fault"]:
        assert rows[-1]["fault"] == outer["fault"]
    else:
        assert len(rows) == max(outer[name + "_count"], 0)


def check_messages(rows, messages):
    """Check that the rows have the numbers of the messages, and the same messages are opaque."""
    assert len(rows) == len(messages)
    for row, message in zip(rows, messages):
        assert (row["kind"] == reference.OPAQUE) == message.is_opaque
        if message.is_opaque:
            continue
        assert row["api_key"] == message.api_key
        assert row["api_version"] == message.api_version
        assert row["correlation_id"] == message.correlation_id
        assert row["fault"] == 0


@steady
@given(strategies.connections())
def test_a_connection_is_paired_as_it_was_written(connection):
    requests, *stop = reference.read_requests(connection.up)
    assert stop == [0, len(connection.up)]
    check_messages(requests, connection.sent)
    for row, message in zip(requests, connection.sent):
        if not message.is_opaque:
            at, size = row["start"] + row["client_id_at"], row["client_id_size"]
            client_id = None if size < 0 else connection.up[at : at + size]
            assert client_id == message.client_id
    responses, *stop = reference.read_responses(connection.down, requests, connection.up)
    assert stop == [0, len(connection.down)]
    check_messages(responses, connection.received)
    assert reference.pair(requests, responses) == connection.pairs
    name_of_key = {key: name for name, key in reference.API.items()}
    for rows, messages, stream, direction in (
        (requests, connection.sent, connection.up, "request"),
        (responses, connection.received, connection.down, "response"),
    ):
        for row, message in zip(rows, messages):
            api = name_of_key.get(row["api_key"])
            if api:
                levels = reference.read_body(stream, row, api, direction)
                name, _ = outermost_format(api, direction)
                check_values(read_values(stream, levels, name), message.values)


@steady
@given(st.data())
def test_a_stream_that_is_cut_keeps_its_whole_frames(data):
    connection = data.draw(strategies.connections())
    cut = data.draw(st.integers(0, len(connection.up)))
    rows, fault, position = reference.read_requests(connection.up[:cut])
    assert rows == reference.read_requests(connection.up)[0][: len(rows)]
    assert position == sum(len(message.raw) for message in connection.sent[: len(rows)])
    assert fault == (0 if position == cut else reference.SHORT)


@pytest.mark.parametrize("size", [-(2**31), -1])
def test_an_impossible_size_ends_the_stream(size):
    whole = strategies.frame_payload(bytes(8) + b"\xff\xff")
    stream = whole + size.to_bytes(4, "big", signed=True)
    assert reference.read_requests(stream)[1:] == (reference.BAD_LENGTH, len(whole))


def test_a_frame_that_states_more_bytes_than_a_frame_can_have_is_bad():
    longest = reference.LARGEST - 4
    for size, fault in ((longest, reference.SHORT), (longest + 1, reference.BAD_LENGTH)):
        data = size.to_bytes(4, "big") + bytes(100)
        assert reference.read_requests(data)[1:] == (fault, 0)


@pytest.mark.parametrize("size", range(8))
def test_a_frame_shorter_than_a_header_is_a_token_or_bad(size):
    (row, next_row), fault, _ = reference.read_requests(2 * strategies.frame_payload(bytes(size)))
    assert fault == 0
    assert row["size"] == 4 + size
    assert next_row["start"] == 4 + size
    if size:
        assert (row["fault"], row["kind"]) == (0, reference.OPAQUE)
    else:
        assert (row["fault"], row["kind"]) == (reference.TRUNCATED, 0)
    assert (row["api_key"], row["api_version"]) == (-1, -1)
