"""The recorded streams in tests/corpus/kafka-streams (see make_streams.py), decoded by wirescan and by kafka-python."""
import io
import re
from functools import cache
from itertools import chain

import numpy as np
import pytest

from wirescan import kafka
from wirescan.kafka.schema import API, MESSAGE, Level, flat_fields

from .broker import PASSWORD, USER
from .canonical import from_wirescan
from .make_streams import CLIENTS, STREAMS
from .producers import CODECS, orders

pytestmark = pytest.mark.peers

DIRECTORIES = sorted(path.name for path in STREAMS.iterdir())
OPERATIONS = re.compile("^(topic|cluster)_(?=authorized_operations)")  # a set of bits in kafka-python; None: not asked
NOT_ASKED = -1 << 31
NO_UUID = bytes(16)  # kafka-python does not tell it from null
BEYOND_KAFKA_PYTHON = {("ApiVersions", 5)}
OPENED = sorted({name for name, side in MESSAGE if side == "request"})


@cache
def kafka_python_classes() -> dict:
    """kafka-python's class for each API key and side."""
    from kafka.protocol import consumer, metadata, producer, sasl
    from kafka.protocol.api_message import ApiMessage

    assert consumer and metadata and producer and sasl  # imported for what they define
    pending, found = [ApiMessage], {}
    while pending:
        children = pending.pop().__subclasses__()
        pending += children
        found |= {(child.API_KEY, child.type): child for child in children if hasattr(child, "_json")}
    return found


def connections(directory: str, pattern: str = "*"):
    """(the table of requests, the table of responses) of each connection, raw tokens left out."""
    for file in sorted((STREAMS / directory).glob(f"{pattern}.requests.bin")):
        if not file.name.startswith("sasl-tokens"):
            requests = kafka.requests(file)
            yield requests, kafka.responses(file.with_name(file.name.replace(".requests", ".responses")), requests)


def ours(table, level: Level) -> list[dict]:
    """A dict of each row: columns of structs by their prefixed names, arrays as lists."""
    inner = {array.name: ours(table.open(array.name), array) for array in level.arrays}
    parents = {array.name: table.open(array.name)["parent"].tolist() for array in level.arrays}
    found = []
    for row in range(len(table)):
        values = {}
        for name, field in flat_fields(level.fields):
            if int(table["kind"][row]) not in field.versions:
                continue
            if field.is_array:
                within = [one for one, parent in zip(inner[name], parents[name], strict=True) if parent == row]
                count = int(table[name + "_count"][row])
                assert count == (len(within) or min(count, 0))
                absent = [] if field.tag is not None else None  # Kafka's default is an array of none, ours is null
                values[name] = absent if count < 0 else within
            elif name in table.dtype.names:
                values[name] = int(table[name][row])
            else:
                content = table.bytes(row, name)
                nothing = NO_UUID if field.type == "uuid" else None
                values[name] = nothing if content is None else bytes(content)
        found.append(values)
    return found


def theirs(message, fields, version: int, prefix: str = "") -> dict:
    """The same of a message of kafka-python. It gives None for a tagged struct that is not there."""
    values = {}
    for field in fields:
        if version not in field.versions:
            continue
        value = None if message is None else getattr(message, OPERATIONS.sub("", field.name))
        if field.type == "struct":
            values |= theirs(value, field.fields, version, prefix + field.name + "_")
        elif message is None:
            values[prefix + field.name] = field.default
        elif field.is_array:
            values[prefix + field.name] = None if value is None else [
                {"name": one.encode()} if isinstance(one, str) else theirs(one, field.fields, version) for one in value]
        elif OPERATIONS.match(field.name):
            values[prefix + field.name] = NOT_ASKED if value is None else sum(1 << bit for bit in value)
        else:
            values[prefix + field.name] = plain(value, field.type)
    return values


def plain(value, kind: str):
    """A value of kafka-python as it lies on the wire, but numbers as numbers."""
    if kind == "uuid":
        return value.bytes if value else NO_UUID
    if value is None or kind in ("bytes", "records"):
        return value if value is None else bytes(value)
    if kind == "string":
        return value.encode()
    return np.array(value, f">i{int(kind[5:]) // 8}").tobytes() if kind.startswith("[]") else int(value)


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_bodies_as_kafka_python_decodes_them(directory):
    """Every field of every request and response of the APIs in our table, header and all."""
    beyond = set()
    for table in chain.from_iterable(connections(directory)):
        side = table.name.removeprefix("kafka.").rstrip("s")
        for name in OPENED:
            message = MESSAGE[name, side]
            bodies = kafka.body(table, name)
            for row, body in zip(bodies["parent"].tolist(), ours(bodies, message.level), strict=True):
                key, version = int(table["api_key"][row]), int(table["api_version"][row])
                start, size = int(table["start"][row]), int(table["size"][row])
                frame = io.BytesIO(bytes(table.buffers[int(table["buffer"][row])])[start + 4:start + size])
                peer = kafka_python_classes()[key, side]
                if version > peer.max_version:
                    beyond.add((name, version))
                    continue
                header = peer[version].parse_header(frame)
                assert header.correlation_id == table["correlation_id"][row]
                assert side == "response" or header.client_id.encode() == bytes(table.bytes(row, "client_id"))
                decoded = peer[version].decode(frame)
                assert body == theirs(decoded, message.fields, version), f"{name} {side} {version}"
                assert frame.tell() == size - 4
    assert beyond <= BEYOND_KAFKA_PYTHON


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_all_is_accounted_for(directory):
    """Each byte lies in a request or a response, and all but Produce with acks = 0 are answered."""
    silent = 0
    for requests, responses in connections(directory):
        for table in (requests, responses):
            assert table["size"].sum() == len(memoryview(table.buffers[0]))
            assert not table.bad.any() and set(table["api_key"].tolist()) <= set(API)
        produced = kafka.body(requests, "Produce")
        unanswered = produced["parent"][produced["acks"] == 0].tolist()
        request, response = zip(*kafka.pair(requests, responses).tolist(), strict=True)
        assert request == tuple(range(len(requests)))
        assert [row for row, answer in enumerate(response) if answer < 0] == unanswered
        silent += len(unanswered)
    assert silent == 1


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_produced_records(directory, codec):
    """The record sets inside the requests hold what the client was given to send."""
    sent = orders(12, seed=60, big=False, null_headers=not directory.startswith("kafka-python"))
    found = []
    for requests, _ in connections(directory, f"codec-{codec}-*"):
        partitions = kafka.body(requests, "Produce").open("topic_data").open("partition_data")
        for row in range(len(partitions)):
            batches = bytes(partitions.bytes(row, "records"))
            assert kafka.scan(batches)["codec"].tolist() == [CODECS.index(codec)]
            found += from_wirescan(batches)
    assert [record[1:] for record in found] == [record[1:] for record in sent]


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_fetched_records(directory):
    """The record sets inside the responses, scanned where they lie, hold the topic from its first record on."""
    for requests, responses in connections(directory, "assign-*"):
        partitions = kafka.body(responses, "Fetch").open("responses").open("partitions")
        records = kafka.records(kafka.scan(partitions))
        if len(records):
            break
    offsets = records["offset"].tolist()
    assert offsets[0] == 0 and len(set(offsets)) >= 12 * len(CODECS)
    values = [None if value is None else bytes(value) for value in (records.bytes(row, "value") for row in range(12))]
    assert values == [row.value for row in orders(12, seed=60, big=False)]


def test_every_client_and_step():
    """What these tests stand on is there: the four clients, SASL, and every version that an old kafka-python speaks."""
    assert {name.rsplit("-", 1)[0] for name in DIRECTORIES} == set(CLIENTS)
    for directory in DIRECTORIES:
        requests, _ = zip(*connections(directory, "sasl-?"), strict=True)
        names = {API[key].name for table in requests for key in table["api_key"].tolist()}
        assert {"SaslHandshake", "SaslAuthenticate"} <= names
    versions = {version for requests, _ in connections("kafka-python-3.9", "as-*")
                for version in kafka.body(requests, "Produce")["kind"].tolist()}
    assert versions >= {0, 1, 2, 3, 5, 7, 8}


def test_tokens_without_a_request():
    """What follows SaslHandshake v0 is a token, in a frame without a header; and so is its answer, which is empty."""
    files = sorted((STREAMS / "kafka-python-3.9").glob("sasl-tokens-*.requests.bin"))
    assert len(files) == 2
    for file in files:
        requests = kafka.requests(file)
        responses = kafka.responses(file.with_name(file.name.replace(".requests", ".responses")), requests)
        assert kafka.pair(requests, responses).tolist() == [(row, row) for row in range(4)]
        assert [API[key].name for key in requests["api_key"][:2]] == ["ApiVersions", "SaslHandshake"]
        assert requests["api_version"][1] == 0 and responses["api_key"].tolist()[:3] == [18, 17, -1]
        token = memoryview(requests.buffers[0])[int(requests["start"][2]):][:int(requests["size"][2])]
        assert bytes(token[4:]) == f"{USER}\0{USER}\0{PASSWORD}".encode()
        assert responses["size"][2] == 4
