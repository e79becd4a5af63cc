"""The slow reference reads what the strategies wrote: every API, direction and version, and whole connections."""
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference import kafka_protocol as reference
from reference.kafka_messages import NEWEST
from strategies import kafka_protocol as strategies

few = settings(max_examples=int(os.environ.get("WIRESCAN_EXAMPLES", 24)) // 8, deadline=None,
               database=None, suppress_health_check=list(HealthCheck))
steady = settings(few, max_examples=int(os.environ.get("WIRESCAN_EXAMPLES", 15)))
every_body = pytest.mark.parametrize("api, direction", strategies.EVERY_BODY)
every_version = pytest.mark.parametrize(
    "api, direction, version",
    [(api, direction, version) for api, direction in strategies.EVERY_BODY for version in range(NEWEST[api] + 1)])


def outermost(api, direction):
    """(format, function that reads it) of a body."""
    return next(iter(reference.formats(api, direction).items()))


def values_of(data, levels, level, number=0, top=None):
    """A row and all in it as the strategies give them; fields that have their default are among them."""
    top = top or level
    row, values = levels[level][number], {}
    for name, value in row.items():
        if name in reference.HEAD or name.endswith(("_at", "_count")):
            continue
        field, is_place, _ = name.partition("_size")
        if not is_place:
            values[name] = value
        elif value < 0:
            values[field] = None
        elif f"{field}_count" in row:
            inside = levels[f"{top}.{field}"]
            mine = [i for i, child in enumerate(inside) if child["parent"] == number and within(child, row, field)]
            assert len(mine) == row[f"{field}_count"]
            values[field] = [values_of(data, levels, f"{top}.{field}", i, top) for i in mine]
        else:
            at = row["start"] + row[f"{field}_at"]
            values[field] = bytes(data[at:at + value])
    return values


def within(child, row, field):
    return 0 <= child["start"] - row["start"] - row[f"{field}_at"] < max(row[f"{field}_size"], 1)


def holds(found, written):
    """Are all values that were written among those found, and the others defaults of numbers, or null?"""
    for name, value in found.items():
        if name not in written:
            assert value is None or isinstance(value, int), name
        elif isinstance(value, list):
            assert len(value) == len(written[name]), name
            for one, other in zip(value, written[name]):
                holds(one, other)
        else:
            assert value == written[name], name
    assert written.keys() <= found.keys()


@every_version
@few
@given(st.data())
def test_a_body_is_read_as_it_was_written(api, direction, version, data):
    raw, values = data.draw(strategies.bodies(api, direction, version))
    around = data.draw(st.binary(max_size=3))
    row = dict(start=len(around), size=len(raw) + 3, body=3, buffer=5, fault=0, api_version=version)
    stream = around + b"xyz" + raw + around
    levels = reference.body(stream, row, api, direction, parent=9)
    level, read = outermost(api, direction)
    top, = levels[level]
    assert top == top | dict(
        start=len(around), size=len(raw) + 3, body=3, parent=9, buffer=5, kind=version, fault=0)
    assert top.keys() == (reference.HEAD | read.columns).keys()
    holds(values_of(stream, levels, level), values)
    for rows in levels.values():
        assert all((row["fault"], row["buffer"], row["kind"]) == (0, 5, version) for row in rows)


@every_body
@steady
@given(st.data())
def test_a_body_that_is_cut_or_too_long_has_a_fault(api, direction, data):
    version = data.draw(st.integers(0, NEWEST[api]))
    raw, _ = data.draw(strategies.bodies(api, direction, version))
    name, _ = outermost(api, direction)
    cut = data.draw(st.integers(0, len(raw) - 1)) if raw else 0
    row = dict(start=0, size=cut, body=0, buffer=0, fault=0, api_version=version)
    top, = reference.body(raw, row, api, direction)[name]
    assert top["fault"] in ((reference.TRUNCATED, reference.BAD_COUNT) if raw else (0,)) and top["size"] == cut
    whole = reference.body(raw, row | dict(size=len(raw)), api, direction)
    levels = reference.body(raw + b"\0", row | dict(size=len(raw) + 1), api, direction)
    top, = levels.pop(name)
    assert (top["fault"], top["size"]) == (reference.LEFTOVER, len(raw) + 1)
    for level, rows in levels.items():          # arrays that were complete are whole; others are covered
        assert [row for row in rows if not row["fault"]] == whole[level]
        assert all(row == covering(row, top) for row in rows if row["fault"])


def covering(row, around):
    return dict.fromkeys(row, 0) | {name: around[name] for name in ("start", "size", "buffer", "fault")}


@every_body
@steady
@given(st.data())
def test_of_a_damaged_array_there_is_what_precedes_the_fault(api, direction, data):
    message = data.draw(strategies.broken_bodies(api, direction))
    rows, fault, _ = reference.requests(message.raw) if direction == "request" else reference.responses(message.raw)
    assert not fault
    row = rows[0] | dict(api_version=rows[0]["api_version"] if direction == "request" else message.api_version)
    levels = reference.body(message.raw, row, api, direction)
    outermost_name, _ = outermost(api, direction)
    top, = levels[outermost_name]
    assert (top["start"], top["size"]) == (0, len(message.raw))
    for level, read in reference.formats(api, direction).items():
        for number, row in enumerate(levels[level]):
            assert row["fault"] in (0, top["fault"]) and row["start"] + row["size"] <= len(message.raw)
            places = [name.removesuffix("_size") for name in row if name.endswith("_size")]
            assert all(row[name + "_at"] + max(row[name + "_size"], 0) <= row["size"] for name in places)
            for name in read.arrays:
                inside = levels[f"{outermost_name}.{name}"]
                lies_inside([one for one in inside if one["parent"] == number], row, name)


def lies_inside(rows, row, name):
    """The structs of one array, in the row around them."""
    if not row[name + "_at"]:
        assert rows == ([covering(rows[0], row) | dict(parent=rows[0]["parent"])] if row["fault"] else [])
        return
    at = row["start"] + row[name + "_at"]
    for one in rows:
        assert one["start"] == at and (not one["fault"] or one is rows[-1])
        at += one["size"]
    assert at == row["start"] + row[name + "_at"] + max(row[name + "_size"], 0)
    if rows and rows[-1]["fault"]:
        assert rows[-1]["fault"] == row["fault"]
    else:
        assert len(rows) == max(row[name + "_count"], 0)


@steady
@given(strategies.connections())
def test_a_connection_is_paired_as_it_was_written(connection):
    asked, *stop = reference.requests(connection.up)
    assert stop == [0, len(connection.up)] and len(asked) == len(connection.sent)
    for row, message in zip(asked, connection.sent):
        assert (row["kind"] == reference.OPAQUE) == message.is_opaque
        if message.is_opaque:
            continue
        assert [row[name] for name in ("api_key", "api_version", "correlation_id", "fault")] == [
            message.api_key, message.api_version, message.correlation_id, 0]
        at, size = row["start"] + row["client_id_at"], row["client_id_size"]
        assert (None if size < 0 else connection.up[at:at + size]) == message.client_id
    answers, *stop = reference.responses(connection.down, asked, connection.up)
    assert stop == [0, len(connection.down)] and len(answers) == len(connection.received)
    for row, message in zip(answers, connection.received):
        assert (row["kind"] == reference.OPAQUE) == message.is_opaque
        if message.is_opaque:
            continue
        assert [row[name] for name in ("api_key", "api_version", "correlation_id", "fault")] == [
            message.api_key, message.api_version, message.correlation_id, 0]
    assert reference.pair(asked, answers) == connection.pairs
    for rows, messages, stream, direction in ((asked, connection.sent, connection.up, "request"),
                                              (answers, connection.received, connection.down, "response")):
        for row, message in zip(rows, messages):
            api = next((name for name, key in reference.API.items() if key == row["api_key"]), None)
            if api:
                levels = reference.body(stream, row, api, direction)
                holds(values_of(stream, levels, outermost(api, direction)[0]), message.values)


@steady
@given(st.data())
def test_a_stream_that_is_cut_keeps_its_whole_frames(data):
    connection = data.draw(strategies.connections())
    cut = data.draw(st.integers(0, len(connection.up)))
    rows, fault, at = reference.requests(connection.up[:cut])
    assert rows == reference.requests(connection.up)[0][:len(rows)]
    assert at == sum(len(message.raw) for message in connection.sent[:len(rows)])
    assert fault == (0 if at == cut else reference.SHORT)


@pytest.mark.parametrize("size", [-2**31, -1])
def test_an_impossible_size_ends_the_stream(size):
    whole = strategies.framed(bytes(8) + b"\xff\xff")
    stream = whole + size.to_bytes(4, "big", signed=True)
    assert reference.requests(stream)[1:] == (reference.BAD_LENGTH, len(whole))


def test_a_frame_that_is_too_long_is_cut_until_there_is_more_of_it_than_a_frame_may_have():
    size = reference.LARGEST.to_bytes(4, "big")
    assert reference.requests(size + bytes(100))[1:] == (reference.SHORT, 0)
    assert reference.requests(size + bytes(reference.LARGEST - 3))[1:] == (reference.BAD_LENGTH, 0)


@pytest.mark.parametrize("size", range(8))
def test_a_frame_without_room_for_a_header_is_a_token_or_bad(size):
    (row, other), *stop = reference.requests(2 * strategies.framed(bytes(size)))
    assert (row["size"], other["start"]) == (4 + size, 4 + size) and stop[0] == 0
    assert (row["fault"], row["kind"]) == ((0, reference.OPAQUE) if size else (reference.TRUNCATED, 0))
    assert (row["api_key"], row["api_version"]) == (-1, -1)
