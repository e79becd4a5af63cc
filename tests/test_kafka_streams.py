"""Streams of real clients and brokers: every request and response is read whole, and written back as it was.

tests/peers/make_streams.py recorded them.
"""
from pathlib import Path

import numpy as np
import pytest

import wirescan
from wirescan import kafka
from wirescan.kafka.schema import API, KEYS, MESSAGE, WIDTHS, message_of

STREAMS = Path(__file__).with_name("corpus") / "kafka-streams"
CONNECTIONS = sorted(path.relative_to(STREAMS).as_posix().removesuffix(".requests.bin")
                     for path in STREAMS.glob("*/*.requests.bin"))
OPENED = {"Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions"}
PRODUCE, SASL_HANDSHAKE = 0, 17


def streams(connection):
    requests = kafka.requests(STREAMS / f"{connection}.requests.bin")
    return requests, kafka.responses(STREAMS / f"{connection}.responses.bin", requests)


def value(row, name, field, table):
    """The value of a field as the encoders take it, from a row of a table."""
    if field.type == "struct":
        return {one.name: value(row, f"{name}_{one.name}", one, table) for one in field.fields}
    if field.type in WIDTHS:
        return getattr(row, name)
    if field.is_array:
        if getattr(row, name + "_count") < 0:
            return None
        inner = table.format.children[name](table[row._index:row._index + 1])
        return [values(one, field.fields, inner) for one in inner]
    found = getattr(row, name)
    return found if found is None or isinstance(found, np.ndarray) else bytes(found)


def values(row, fields, table):
    return {field.name: value(row, field.name, field, table) for field in fields if row.kind in field.versions}


def test_there_are_streams_of_every_client():
    assert {name.split("/")[0].rsplit("-", 1)[0] for name in CONNECTIONS} == {
        "aiokafka", "java", "kafka-python", "librdkafka"}
    seen = set()
    for name in CONNECTIONS:
        requests, responses = streams(name)
        seen |= set(zip(requests["api_key"].tolist(), requests["api_version"].tolist()))
    assert {API[key].name for key, _ in seen if key in API} > OPENED
    assert {(PRODUCE, API[PRODUCE].newest), (PRODUCE, 0)} <= seen


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_every_byte_is_accounted_for(connection):
    requests, responses = streams(connection)
    for table in (requests, responses):
        assert len(table.tail) == 0 and not table.bad.any() and table.consumed == len(table.buffers[0])
    pairs = kafka.pair(requests, responses)
    assert len(pairs) == len(requests) and (pairs["request"] == np.arange(len(requests))).all()
    assert (np.sort(pairs["response"][pairs["response"] >= 0]) == np.arange(len(responses))).all()
    for row in np.flatnonzero(pairs["response"] < 0):
        assert requests["api_key"][row] == PRODUCE and kafka.body(requests[row:row + 1], "Produce")["acks"] == [0]
    opaque = requests["kind"] == 255
    asked = list(zip(requests["api_key"].tolist(), requests["api_version"].tolist()))
    assert not opaque.any() or (SASL_HANDSHAKE, 0) in asked
    assert (responses["kind"][pairs["response"][opaque]] == 255).all()


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_bodies_are_read_to_their_last_byte_and_written_back(connection):
    requests, responses = streams(connection)
    for name, side in MESSAGE:
        if side not in ("request", "response"):
            continue
        messages = requests if side == "request" else responses
        bodies = kafka.body(messages, name)
        assert len(bodies) == (messages["api_key"] == KEYS[name]).sum()
        for row in bodies:
            outer = messages[row.parent]
            given = values(row, message_of(name, side).fields, bodies)
            if side == "request":
                client = None if outer.client_id is None else bytes(outer.client_id)
                again = kafka.encode_request(name, row.kind, given, correlation_id=outer.correlation_id,
                                             client_id=client)
            else:
                again = kafka.encode_response(name, row.kind, given, correlation_id=outer.correlation_id)
            assert again == bytes(messages.frame(row.parent))


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_record_sets_are_read_where_they_lie(connection):
    requests, responses = streams(connection)
    produced = kafka.body(requests, "Produce").open("topic_data").open("partition_data")
    fetched = kafka.body(responses, "Fetch").open("responses").open("partitions")
    for partitions in (produced, fetched):
        batches = kafka.scan(partitions)
        assert batches.buffers == partitions.buffers and batches.outer is partitions
        for stop in batches.stops:
            assert stop.fault in (wirescan.Fault.SHORT, wirescan.Fault.FILLER)
        covered = np.zeros(len(partitions), np.int64)
        np.add.at(covered, batches["parent"], batches["size"])
        ends = {stop.offset for stop in batches.stops}
        for row, size in zip(partitions, covered.tolist()):
            whole = 0 if row.records is None else len(row.records)
            assert size == whole or row.start + partitions["records_at"][row._index] + size in ends
        records = kafka.records(batches)
        assert len(records) >= len(batches) - (batches["record_count"] == 0).sum()
