"""The reference and kafka-python read the same Kafka protocol messages.

The tests cover the APIs in HOMES, in every direction and version.
"""

import io
import struct
from importlib import import_module
from types import SimpleNamespace
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reference import kafka_protocol as reference
from tests.reference.kafka_messages import NEWEST
from tests.strategies import kafka_protocol as strategies
from tests.support.kafka_values import read_values

pytestmark = pytest.mark.peers

HOMES = {
    "Produce": "producer",
    "Fetch": "consumer",
    "ListOffsets": "consumer",
    "Metadata": "metadata",
    "ApiVersions": "metadata",
    "FindCoordinator": "metadata",
    "OffsetCommit": "consumer",
    "OffsetFetch": "consumer",
    "JoinGroup": "consumer",
    "SyncGroup": "consumer",
    "Heartbeat": "consumer",
    "LeaveGroup": "consumer",
    "AddPartitionsToTxn": "producer",
    "AddOffsetsToTxn": "producer",
    "TxnOffsetCommit": "producer",
    "EndTxn": "producer",
    "CreateTopics": "admin",
    "DescribeConfigs": "admin",
}
BODIES = [(api, direction) for api, direction in strategies.EVERY_BODY if api in HOMES]
# kafka-python reads these fields as sets of bits.
DIFFERENT = ("topic_authorized_operations", "cluster_authorized_operations")
# kafka-python has the definitions of one release of Kafka 4. They no longer have two fields of
# ListOffsets v0, and do not yet have ApiVersions v5 and TxnOffsetCommit v6.
UNSUPPORTED = (("ListOffsets", 0), ("ApiVersions", 5), ("TxnOffsetCommit", 6))


def get_field(message, name):
    """A field of a message, or a field of a nested struct, like current_leader_leader_id."""
    if hasattr(message, name):
        return getattr(message, name)
    if name == "generation_id_or_member_epoch":  # the name of a newer release
        return message.generation_id
    structs = ("current_leader", "diverging_epoch", "snapshot_id", "replica_state")
    struct = next(prefix for prefix in structs if name.startswith(prefix + "_"))
    return getattr(getattr(message, struct), name.removeprefix(struct + "_"))


def check_values(values, message, original=None):
    """Check that the values are those of kafka-python's message.

    original: the values before kafka-python encoded them again. kafka-python omits tagged fields
    that have their default.
    """
    for name in values if original is None else original:
        if name in DIFFERENT:
            continue
        value, theirs = values[name], get_field(message, name)
        if value is None and original is not None and not theirs:
            continue
        if isinstance(value, list):
            assert len(value) == len(theirs), name
            for i, (ours, other) in enumerate(zip(value, theirs)):
                if isinstance(other, str):
                    other = SimpleNamespace(name=other)
                check_values(ours, other, None if original is None else original[name][i])
            continue
        if isinstance(theirs, list):
            theirs = struct.pack(f">{len(theirs)}i", *theirs)
        elif isinstance(theirs, UUID):
            theirs = theirs.bytes
        elif theirs is None and value == bytes(16):
            value = None  # a uuid of zeros
        elif isinstance(theirs, str):
            theirs = theirs.encode()
        assert value == theirs, name


@pytest.mark.parametrize(
    "api, direction, version",
    [
        (api, direction, version)
        for api, direction in BODIES
        for version in range(NEWEST[api] + 1)
        if (api, version) not in UNSUPPORTED
    ],
)
@settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_kafka_python_reads_the_same_fields(api, direction, version, data):
    read = getattr(import_module("kafka.protocol." + HOMES[api]), api + direction.title())
    # kafka-python refuses unknown tagged fields in structs that are tagged fields themselves.
    raw, values = data.draw(strategies.bodies(api, direction, version, unknown=False))
    if read.__name__ == "ApiVersionsResponse":
        # kafka-python reads a response with an error as version 0. So the error is removed.
        raw = bytes(2) + raw[2:]
        values = values | {"error_code": 0}
    theirs = read.decode(raw, version=version)
    check_values(values, theirs)
    theirs._header = None  # kafka-python needs the attribute to encode a decoded message
    again = bytes(theirs.encode(version=version))
    name = reference.to_snake_case(api) + "_" + direction
    row = dict(start=0, size=len(again), body=0, buffer=0, fault=0, api_version=version)
    levels = reference.read_body(again, row, api, direction)
    assert not any(row["fault"] for rows in levels.values() for row in rows)
    check_values(read_values(again, levels, "kafka." + name), theirs, values)


@pytest.mark.parametrize("api, direction", BODIES)
@settings(max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_kafka_python_reads_the_same_headers(api, direction, data):
    read = getattr(import_module("kafka.protocol." + HOMES[api]), api + direction.title())
    versions = range(NEWEST[api] + ((api, NEWEST[api]) not in UNSUPPORTED))
    message = data.draw(strategies.messages(api, direction, data.draw(st.sampled_from(versions))))
    stream = io.BytesIO(message.raw[4:])
    header = read.parse_header(stream, version=message.api_version)
    assert header.correlation_id == message.correlation_id
    if direction == "request":
        (row,), *_ = reference.read_requests(message.raw)
        if message.client_id not in (None, b""):
            assert header.client_id.encode() == message.client_id
        assert header.request_api_key == row["api_key"]
        assert header.request_api_version == row["api_version"]
    else:
        row = {"start": 0, "size": len(message.raw), "body": 8}
        request = {"api_key": message.api_key, "api_version": message.api_version, "kind": 1}
        reference.read_answer(message.raw, row, request)
    assert row["body"] == 4 + stream.tell()
