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
        if row.kind >= field.nullable and is_null_struct(row, name, field):
            return None
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


def is_null_struct(row, name, field):
    """Return whether a struct is null: then its arrays are, which are never null inside it."""
    return all(getattr(row, f"{name}_{inner.name}_count") < 0 for inner in field.fields)


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


def list_tables(side, name):
    """Return the tables of the bodies of an API in all streams, in the order of their names."""
    tables = []
    for connection in CONNECTIONS:
        requests, responses = read_streams(connection)
        messages = requests if side == "request" else responses
        if (messages["api_key"] == KEYS[name]).any():
            tables.append(kafka.body(messages, name))
    return tables


def test_a_new_topic_and_its_settings():
    """The streams have the settings that tests/peers/administration.py asks for."""
    created = list_tables("request", "CreateTopics")
    assert len(created) == 8
    for table in created:
        topics = table.open("topics")
        assert [bytes(topic.name).endswith(b"-made") for topic in topics] == [True]
        assert topics["num_partitions"].tolist() == [2]
        configs = [(bytes(row.name), bytes(row.value)) for row in topics.open("configs")]
        expected = [(b"cleanup.policy", b"compact"), (b"retention.ms", b"3600000")]
        assert sorted(configs) == expected
    described = list_tables("response", "DescribeConfigs")
    asked = {b"cleanup.policy": b"compact", b"retention.ms": b"3600000"}
    for table in described:
        configs = table.open("results").open("configs")
        assert {bytes(row.name): bytes(row.value) for row in configs if row.name in asked} == asked
    synonyms = [table.open("results").open("configs").open("synonyms") for table in described]
    assert {source for table in synonyms for source in table["source"].tolist()} >= {1, 5}


def test_an_offset_is_committed_in_each_transaction():
    committed = list_tables("request", "TxnOffsetCommit")
    assert len(committed) == 8
    for table in committed:
        partitions = table.open("topics").open("partitions")
        assert partitions["committed_offset"].tolist() == [1]
        assert partitions["partition_index"].tolist() == [0]
    ended = [number for table in list_tables("request", "EndTxn") for number in table["committed"]]
    assert set(ended) == {0, 1}


def test_an_unchanged_assignment_is_null():
    """A broker sends the assignment of a member only when it changes."""
    counts = [
        count
        for table in list_tables("response", "ConsumerGroupHeartbeat")
        for count in table["assignment_topic_partitions_count"].tolist()
    ]
    assert set(counts) >= {-1, 1}


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
