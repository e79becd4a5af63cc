"""Streams of real clients and brokers: each request and response is read whole and encoded again.

The encoded bytes equal the recorded bytes. tests/peers/make_streams.py recorded the streams.
"""

import numpy as np
import pytest

import wirescan
from tests.support.paths import CORPUS
from wirescan import kafka
from wirescan.kafka.protocol.schema import API, KEYS, MESSAGE, WIDTHS, get_message

STREAMS = CORPUS / "kafka-streams"
CONNECTIONS = sorted(
    path.relative_to(STREAMS).as_posix().removesuffix(".requests.bin")
    for path in STREAMS.glob("*/*.requests.bin")
)
EXPECTED_APIS = {"Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions"}
PRODUCE = 0
SASL_HANDSHAKE = 17
OPAQUE = 255


def read_streams(connection):
    requests = kafka.requests(STREAMS / f"{connection}.requests.bin")
    return requests, kafka.responses(STREAMS / f"{connection}.responses.bin", requests)


def convert_value(row, name, field, table):
    """Return the value of a field in the form that the encoders take, from a row of a table."""
    if field.type == "struct":
        return {
            inner.name: convert_value(row, f"{name}_{inner.name}", inner, table)
            for inner in field.fields
        }
    if field.type in WIDTHS:
        return getattr(row, name)
    if field.is_array:
        if getattr(row, name + "_count") < 0:
            return None
        structs = table.format.children[name](table[row._index : row._index + 1])
        return [convert_values(struct, field.fields, structs) for struct in structs]
    value = getattr(row, name)
    return value if value is None or isinstance(value, np.ndarray) else bytes(value)


def convert_values(row, fields, table):
    return {
        field.name: convert_value(row, field.name, field, table)
        for field in fields
        if row.kind in field.versions
    }


def test_every_client_has_streams():
    assert {name.split("/")[0].rsplit("-", 1)[0] for name in CONNECTIONS} == {
        "aiokafka",
        "java",
        "kafka-python",
        "librdkafka",
    }
    versions = set()
    for name in CONNECTIONS:
        requests, _ = read_streams(name)
        versions |= set(zip(requests["api_key"].tolist(), requests["api_version"].tolist()))
    assert {API[key].name for key, _ in versions if key in API} > EXPECTED_APIS
    assert {(PRODUCE, API[PRODUCE].newest), (PRODUCE, 0)} <= versions


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_every_byte_is_accounted_for(connection):
    requests, responses = read_streams(connection)
    for table in (requests, responses):
        assert len(table.tail) == 0
        assert not table.bad.any()
        assert table.consumed == len(table.buffers[0])
    pairs = kafka.pair(requests, responses)
    assert len(pairs) == len(requests)
    assert (pairs["request"] == np.arange(len(requests))).all()
    has_response = pairs["response"] >= 0
    assert (np.sort(pairs["response"][has_response]) == np.arange(len(responses))).all()
    for row in np.flatnonzero(~has_response):
        assert requests["api_key"][row] == PRODUCE
        assert kafka.body(requests[row : row + 1], "Produce")["acks"] == [0]
    opaque = requests["kind"] == OPAQUE
    versions = list(zip(requests["api_key"].tolist(), requests["api_version"].tolist()))
    assert not opaque.any() or (SASL_HANDSHAKE, 0) in versions
    assert (responses["kind"][pairs["response"][opaque]] == OPAQUE).all()


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_encoded_bodies_equal_the_recorded_bytes(connection):
    requests, responses = read_streams(connection)
    for name, side in MESSAGE:
        if side not in ("request", "response"):
            continue
        messages = requests if side == "request" else responses
        bodies = kafka.body(messages, name, credentials=True)
        assert len(bodies) == (messages["api_key"] == KEYS[name]).sum()
        for row in bodies:
            outer = messages[row.parent]
            body = convert_values(row, get_message(name, side).fields, bodies)
            number = outer.correlation_id
            if side == "request":
                client = None if outer.client_id is None else bytes(outer.client_id)
                raw = kafka.encode_request(
                    name, row.kind, body, correlation_id=number, client_id=client
                )
            else:
                raw = kafka.encode_response(name, row.kind, body, correlation_id=number)
            assert raw == bytes(messages.frame(row.parent))


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_record_sets_are_read_without_a_copy(connection):
    requests, responses = read_streams(connection)
    produce = kafka.body(requests, "Produce").open("topic_data").open("partition_data")
    fetch = kafka.body(responses, "Fetch").open("responses").open("partitions")
    for partitions in (produce, fetch):
        batches = kafka.scan(partitions)
        assert batches.buffers == partitions.buffers
        assert batches.outer is partitions
        for stop in batches.stops:
            assert stop.fault in (wirescan.Fault.SHORT, wirescan.Fault.FILLER)
        sizes = np.zeros(len(partitions), np.int64)
        np.add.at(sizes, batches["parent"], batches["size"])
        stops = {stop.offset for stop in batches.stops}
        for row, size in zip(partitions, sizes.tolist()):
            whole = 0 if row.records is None else len(row.records)
            stop = row.start + partitions["records_at"][row._index] + size
            assert size == whole or stop in stops
        records = kafka.records(batches)
        assert len(records) >= len(batches) - (batches["record_count"] == 0).sum()
