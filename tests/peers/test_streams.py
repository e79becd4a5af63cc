"""The recorded streams in tests/corpus/kafka-streams: wirescan and kafka-python read the same.

make_streams.py describes them.
"""

import io
import re
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from wirescan import kafka
from wirescan.kafka.protocol.schema import API, MESSAGE, Level, iter_flat_fields

from .broker import PASSWORD, USER
from .canonical import read_with_wirescan
from .make_streams import CLIENTS, STREAMS
from .producers import CODECS, make_orders

pytestmark = pytest.mark.peers

DIRECTORIES = sorted(path.name for path in STREAMS.iterdir())
# kafka-python gives sets of bits for these fields, and None for NOT_ASKED.
OPERATIONS = re.compile("^(topic|cluster)_(?=authorized_operations)")
NOT_ASKED = -1 << 31
NO_UUID = bytes(16)  # null in kafka-python
BEYOND_KAFKA_PYTHON = {("ApiVersions", 5), ("ConsumerGroupHeartbeat", 1), ("TxnOffsetCommit", 6)}
# (class of kafka-python, name of a field) -> its name there
RENAMED = {("TxnOffsetCommitRequest", "generation_id_or_member_epoch"): "generation_id"}
OPENED = sorted({name for name, side in MESSAGE if side == "request"})


@cache
def list_kafka_python_classes() -> dict:
    """kafka-python's class for each API key and side."""
    from kafka.protocol import consumer, metadata, producer, sasl
    from kafka.protocol.api_message import ApiMessage

    assert (
        consumer and metadata and producer and sasl
    )  # imported for their subclasses of ApiMessage
    pending = [ApiMessage]
    classes = {}
    while pending:
        children = pending.pop().__subclasses__()
        pending += children
        classes |= {
            (child.API_KEY, child.type): child for child in children if hasattr(child, "_json")
        }
    return classes


def scan_connections(directory: str, pattern: str = "*"):
    """Yield (table of requests, table of responses) of each connection but those of raw tokens."""
    for file in sorted((STREAMS / directory).glob(f"{pattern}.requests.bin")):
        if not file.name.startswith("sasl-tokens"):
            requests = kafka.requests(file)
            yield requests, kafka.responses(find_response_file(file), requests)


def find_response_file(request_file: Path) -> Path:
    return request_file.with_name(request_file.name.replace(".requests", ".responses"))


def convert_our_rows(table, level: Level) -> list[dict]:
    """A dict per row. The columns of structs have prefixed names. Arrays are lists."""
    inner = {array.name: convert_our_rows(table.open(array.name), array) for array in level.arrays}
    parents = {array.name: table.open(array.name)["parent"].tolist() for array in level.arrays}
    rows = []
    for row in range(len(table)):
        values = {}
        for name, field in iter_flat_fields(level.fields):
            if int(table["kind"][row]) not in field.versions:
                continue
            if field.is_array:
                items = [
                    item
                    for item, parent in zip(inner[name], parents[name], strict=True)
                    if parent == row
                ]
                count = int(table[name + "_count"][row])
                assert count == (len(items) or min(count, 0))
                # An absent tagged array is empty in kafka-python, and null in wirescan.
                absent = [] if field.tag is not None else None
                values[name] = absent if count < 0 else items
            elif name in table.dtype.names:
                values[name] = int(table[name][row])
            else:
                content = table.bytes(row, name)
                null = NO_UUID if field.type == "uuid" else None
                values[name] = null if content is None else bytes(content)
        rows.append(values)
    return rows


def convert_their_message(message, fields, version: int, prefix: str = "") -> dict:
    """The same dict for a message of kafka-python.

    kafka-python gives None for an absent tagged struct.
    """
    values = {}
    for field in fields:
        if version not in field.versions:
            continue
        name = OPERATIONS.sub("", field.name)
        name = RENAMED.get((type(message).__name__, name), name)
        value = None if message is None else getattr(message, name)
        if field.type == "struct":
            values |= convert_their_message(value, field.fields, version, prefix + field.name + "_")
        elif message is None:
            values[prefix + field.name] = field.default
        elif field.is_array:
            values[prefix + field.name] = convert_their_array(value, field, version)
        elif OPERATIONS.match(field.name):
            bits = NOT_ASKED if value is None else sum(1 << bit for bit in value)
            values[prefix + field.name] = bits
        else:
            values[prefix + field.name] = encode_value(value, field.type)
    return values


def convert_their_array(items, field, version: int) -> list[dict] | None:
    """The dicts of an array of kafka-python."""
    if items is None:
        return None
    return [
        {"name": item.encode()}
        if isinstance(item, str)
        else convert_their_message(item, field.fields, version)
        for item in items
    ]


def encode_value(value, kind: str):
    """A value of kafka-python as its encoded bytes. Numbers stay numbers."""
    if kind == "uuid":
        return value.bytes if value else NO_UUID
    if value is None or kind in ("bytes", "records"):
        return value if value is None else bytes(value)
    if kind == "string":
        return value.encode()
    if kind.startswith("[]"):
        return np.array(value, f">i{int(kind[5:]) // 8}").tobytes()
    return int(value)


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_bodies_as_kafka_python_decodes_them(directory):
    """Every header and field of every request and response of wirescan's APIs."""
    beyond = set()
    for table in chain.from_iterable(scan_connections(directory)):
        side = table.name.removeprefix("kafka.").rstrip("s")
        for name in OPENED:
            message = MESSAGE[name, side]
            bodies = kafka.body(table, name, credentials=True)
            for row, body in zip(
                bodies["parent"].tolist(), convert_our_rows(bodies, message.level), strict=True
            ):
                key, version = int(table["api_key"][row]), int(table["api_version"][row])
                start, size = int(table["start"][row]), int(table["size"][row])
                data = bytes(table.buffers[int(table["buffer"][row])])
                frame = io.BytesIO(data[start + 4 : start + size])
                peer = list_kafka_python_classes().get((key, side))
                if peer is None or version > peer.max_version:
                    beyond.add((name, version))
                    continue
                header = peer[version].parse_header(frame)
                assert header.correlation_id == table["correlation_id"][row]
                if side == "request":
                    assert header.client_id.encode() == bytes(table.bytes(row, "client_id"))
                decoded = peer[version].decode(frame)
                assert body == convert_their_message(decoded, message.fields, version), (
                    f"{name} {side} {version}"
                )
                assert frame.tell() == size - 4
    assert beyond <= BEYOND_KAFKA_PYTHON


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_every_byte_is_in_a_frame(directory):
    """Each byte is in a request or a response. Only Produce with acks = 0 has no response."""
    silent = 0
    for requests, responses in scan_connections(directory):
        for table in (requests, responses):
            assert table["size"].sum() == len(memoryview(table.buffers[0]))
            assert not table.bad.any()
            assert set(table["api_key"].tolist()) <= set(API)
        produced = kafka.body(requests, "Produce")
        unanswered = produced["parent"][produced["acks"] == 0].tolist()
        request, response = zip(*kafka.pair(requests, responses).tolist(), strict=True)
        assert request == tuple(range(len(requests)))
        assert [row for row, answer in enumerate(response) if answer < 0] == unanswered
        silent += len(unanswered)
    assert silent == 1


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_requests_hold_the_produced_records(directory, codec):
    """The record sets in the requests hold the records that the client sent."""
    sent = make_orders(
        12, seed=60, big=False, null_headers=not directory.startswith("kafka-python")
    )
    records = []
    for requests, _ in scan_connections(directory, f"codec-{codec}-*"):
        partitions = kafka.body(requests, "Produce").open("topic_data").open("partition_data")
        for row in range(len(partitions)):
            batches = bytes(partitions.bytes(row, "records"))
            assert kafka.scan(batches)["codec"].tolist() == [CODECS.index(codec)]
            records += read_with_wirescan(batches)
    assert [record[1:] for record in records] == [record[1:] for record in sent]


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_responses_hold_the_fetched_records(directory):
    """The record sets in the responses hold the topic from its first record on."""
    for _, responses in scan_connections(directory, "assign-*"):
        partitions = kafka.body(responses, "Fetch").open("responses").open("partitions")
        records = kafka.records(kafka.scan(partitions))
        if len(records):
            break
    offsets = records["offset"].tolist()
    assert offsets[0] == 0
    assert len(set(offsets)) >= 12 * len(CODECS)
    values = [
        None if value is None else bytes(value)
        for value in (records.bytes(row, "value") for row in range(12))
    ]
    assert values == [row.value for row in make_orders(12, seed=60, big=False)]


def test_corpus_has_every_client_and_version():
    """The corpus has the four clients and SASL.

    It also has every version that an old kafka-python uses.
    """
    assert {name.rsplit("-", 1)[0] for name in DIRECTORIES} == set(CLIENTS)
    for directory in DIRECTORIES:
        requests, _ = zip(*scan_connections(directory, "sasl-?"), strict=True)
        names = {API[key].name for table in requests for key in table["api_key"].tolist()}
        assert {"SaslHandshake", "SaslAuthenticate"} <= names
    versions = {
        version
        for requests, _ in scan_connections("kafka-python-3.9", "as-*")
        for version in kafka.body(requests, "Produce")["kind"].tolist()
    }
    assert versions >= {0, 1, 2, 3, 5, 7, 8}


def test_groups_transactions_and_administration_are_in_the_corpus():
    """Each client sends the requests of these steps, and each broker accepts them."""
    for directory in DIRECTORIES:
        names = set()
        for pattern in ("offsets-*", "admin-*"):
            for requests, responses in scan_connections(directory, pattern):
                names |= {API[key].name for key in requests["api_key"].tolist()}
                committed = kafka.body(responses, "TxnOffsetCommit").open("topics")
                assert not committed.open("partitions")["error_code"].any()
                assert not kafka.body(responses, "CreateTopics").open("topics")["error_code"].any()
        assert names >= {"TxnOffsetCommit", "EndTxn", "CreateTopics", "DescribeConfigs"}
        assert names & {"JoinGroup", "ConsumerGroupHeartbeat"}


def test_tokens_without_a_request():
    """After SaslHandshake v0 comes a token, in a frame without a header.

    Its answer is an empty frame.
    """
    files = sorted((STREAMS / "kafka-python-3.9").glob("sasl-tokens-*.requests.bin"))
    assert len(files) == 2
    for file in files:
        requests = kafka.requests(file)
        responses = kafka.responses(find_response_file(file), requests)
        assert kafka.pair(requests, responses).tolist() == [(row, row) for row in range(4)]
        names = [API[key].name for key in requests["api_key"][:2]]
        assert names == ["ApiVersions", "SaslHandshake"]
        assert requests["api_version"][1] == 0
        assert responses["api_key"].tolist()[:3] == [18, 17, -1]
        start = int(requests["start"][2])
        stop = start + int(requests["size"][2])
        token = memoryview(requests.buffers[0])[start:stop]
        assert bytes(token[4:]) == f"{USER}\0{USER}\0{PASSWORD}".encode()
        assert responses["size"][2] == 4
