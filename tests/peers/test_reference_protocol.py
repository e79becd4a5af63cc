"""What the reference takes for a message of Kafka's protocol, kafka-python does too: every API, direction, version."""
import io
import struct
from importlib import import_module
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference import kafka_protocol as reference
from reference.kafka_messages import NEWEST
from strategies import kafka_protocol as strategies
from test_reference_kafka_protocol import values_of

pytestmark = pytest.mark.peers

HOMES = {"Produce": "producer", "Fetch": "consumer", "ListOffsets": "consumer", "Metadata": "metadata",
         "ApiVersions": "metadata"}
UNLIKE = ("topic_authorized_operations", "cluster_authorized_operations")   # kafka-python makes sets of bits of these
# Two fields of the one are no longer in the definitions that kafka-python has from Kafka 4; those of the other not yet.
UNKNOWN = (("ListOffsets", 0), ("ApiVersions", 5))


def attribute(message, name):
    """A field, or one of a struct's: current_leader_leader_id."""
    if hasattr(message, name):
        return getattr(message, name)
    inside = next(one for one in ("current_leader", "diverging_epoch", "snapshot_id", "replica_state")
                  if name.startswith(one + "_"))
    return getattr(getattr(message, inside), name.removeprefix(inside + "_"))


def agree(values, message, written=None):
    """written: the values before kafka-python wrote them again; it leaves out tagged fields that have their default."""
    for name in values if written is None else written:
        if name in UNLIKE:
            continue
        value, theirs = values[name], attribute(message, name)
        if value is None and written is not None and not theirs:
            continue
        if isinstance(value, list):
            assert len(value) == len(theirs), name
            for i, (one, other) in enumerate(zip(value, theirs)):
                agree(one, other, None if written is None else written[name][i])
            continue
        if isinstance(theirs, list):
            theirs = struct.pack(f">{len(theirs)}i", *theirs)
        elif isinstance(theirs, UUID):
            theirs = theirs.bytes
        elif theirs is None and value == bytes(16):
            value = None                # a uuid of zeros
        elif isinstance(theirs, str):
            theirs = theirs.encode()
        assert value == theirs, name


@pytest.mark.parametrize(
    "api, direction, version",
    [(api, direction, version) for api, direction in strategies.BODIES for version in range(NEWEST[api] + 1)
     if (api, version) not in UNKNOWN])
@settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_kafka_python_reads_the_same(api, direction, version, data):
    read = getattr(import_module("kafka.protocol." + HOMES[api]), api + direction.title())
    # kafka-python refuses unknown tagged fields in structs that are tagged fields themselves.
    raw, values = data.draw(strategies.bodies(api, direction, version, unknown=False))
    if read.__name__ == "ApiVersionsResponse":      # of which kafka-python reads no more than version 0 in an error
        raw, values = bytes(2) + raw[2:], values | dict(error_code=0)
    theirs = read.decode(raw, version=version)
    agree(values, theirs)
    theirs._header = None               # which it needs to write what it has read
    again = bytes(theirs.encode(version=version))
    name = reference.snake(api) + "_" + direction
    row = dict(start=0, size=len(again), body=0, buffer=0, fault=0, api_version=version)
    levels = reference.body(again, row, api, direction)
    assert not any(row["fault"] for rows in levels.values() for row in rows)
    agree(values_of(again, levels, "kafka." + name), theirs, values)


@pytest.mark.parametrize("api, direction", strategies.BODIES)
@settings(max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_kafka_python_finds_the_same_headers(api, direction, data):
    read = getattr(import_module("kafka.protocol." + HOMES[api]), api + direction.title())
    known = range(NEWEST[api] + ((api, NEWEST[api]) not in UNKNOWN))
    message = data.draw(strategies.messages(api, direction, data.draw(st.sampled_from(known))))
    stream = io.BytesIO(message.raw[4:])
    header = read.parse_header(stream, version=message.api_version)
    assert header.correlation_id == message.correlation_id
    if direction == "request":
        (row,), *_ = reference.requests(message.raw)
        assert (header.client_id and header.client_id.encode()) == message.client_id or message.client_id in (None, b"")
        assert (header.request_api_key, header.request_api_version) == (row["api_key"], row["api_version"])
    else:
        row = dict(start=0, size=len(message.raw), body=8)
        reference.answer(message.raw, row, dict(
            api_key=message.api_key, api_version=message.api_version, kind=1))
    assert row["body"] == 4 + stream.tell()
