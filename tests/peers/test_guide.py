"""The protocol guide of 0.8 against a broker that still supports it, byte for byte.

Every later version is compared with brokers of both lines. The guide's requests and the parsing of
its answers are written by hand here, after its grammar:

    Size int32, ApiKey int16, ApiVersion int16, CorrelationId int32, ClientId string, fields
    string := int16 + bytes; bytes := int32 + bytes; [x] := a count as int32, then each x
    All numbers are big-endian.
"""

import struct
import zlib
from types import SimpleNamespace

import pytest

from tests.support.places import copy_bytes
from wirescan import kafka
from wirescan.kafka.protocol.schema import API, KEYS, MESSAGE

from .broker import LINES
from .producers import make_orders, send_librdkafka
from .readers import consume
from .wire import ask

pytestmark = pytest.mark.peers

CLIENT = "a guide"
CORRELATION = 1 << 30 | 77
TIMEOUT = 30_000
PRODUCE = 0
FETCH = 1
OFFSET = 2
METADATA = 3
LATEST = -1
EARLIEST = -2
PAIRS = ((None, b"first"), (b"key", b""), (b"", None), (b"k" * 40, b"v" * 300))


def encode_string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def encode_data(content: bytes | None) -> bytes:
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content


def make_request(api: int, body: bytes) -> bytes:
    rest = struct.pack(">hhi", api, 0, CORRELATION) + encode_string(CLIENT) + body
    return struct.pack(">i", len(rest)) + rest


def make_message(offset: int, key: bytes | None, value: bytes | None) -> bytes:
    rest = struct.pack(">bb", 0, 0) + encode_data(key) + encode_data(value)
    rest = struct.pack(">I", zlib.crc32(rest)) + rest
    return struct.pack(">qi", offset, len(rest)) + rest


class Answer:
    """Reads an answer field by field."""

    def __init__(self, content: bytes):
        self.content = content
        self.position = 0

    def read_bytes(self, size: int) -> bytes:
        self.position += size
        assert self.position <= len(self.content)
        return self.content[self.position - size : self.position]

    def number(self, layout: str) -> int:
        return struct.unpack(">" + layout, self.read_bytes(struct.calcsize(layout)))[0]

    def string(self) -> str:
        return self.read_bytes(self.number("h")).decode()

    def data(self) -> bytes:
        return self.read_bytes(self.number("i"))

    def array(self, element) -> list:
        return [element() for _ in range(self.number("i"))]

    def check_end(self) -> None:
        assert self.position == len(self.content)


@pytest.fixture(scope="session")
def guided(broker_39):
    """A topic of 3.9. Its first records come from the guide's Produce request."""
    broker_39.create_topic("guided")
    messages = b"".join(make_message(number, *pair) for number, pair in enumerate(PAIRS))
    body = (
        struct.pack(">hii", -1, TIMEOUT, 1)
        + encode_string("guided")
        + struct.pack(">ii", 1, 0)
        + encode_data(messages)
    )
    return SimpleNamespace(
        address=broker_39.address,
        messages=messages,
        sent=make_request(PRODUCE, body),
        answer=ask(broker_39.address, make_request(PRODUCE, body)[4:]),
    )


def scan_exchange(sent: bytes, answer: bytes, name: str):
    """The request and the response of an exchange as wirescan's tables."""
    requests = kafka.requests(sent)
    assert requests["correlation_id"].tolist() == [CORRELATION]
    assert bytes(requests.bytes(0, "client_id")) == CLIENT.encode()
    responses = kafka.responses(encode_data(answer), requests)
    assert kafka.pair(requests, responses).tolist() == [(0, 0)]
    return kafka.body(requests, name), kafka.body(responses, name)


def list_columns(table, *names: str) -> list:
    """Rows as tuples. Bytes fields become bytes."""
    return [
        tuple(
            row[name].item() if name in table.dtype.names else bytes(table.bytes(number, name))
            for name in names
        )
        for number, row in enumerate(table.rows)
    ]


def encode_body(name: str, body: dict) -> bytes:
    return kafka.encode_request(name, 0, body, correlation_id=CORRELATION, client_id=CLIENT)


def test_produce_of_the_guide(guided):
    answer = Answer(guided.answer)
    assert answer.number("i") == CORRELATION
    topics = answer.array(
        lambda: (
            answer.string(),
            answer.array(lambda: (answer.number("i"), answer.number("h"), answer.number("q"))),
        )
    )
    answer.check_end()
    assert topics == [("guided", [(0, 0, 0)])]

    assert guided.sent == encode_body(
        "Produce",
        {
            "acks": -1,
            "timeout_ms": TIMEOUT,
            "topic_data": [
                {"name": "guided", "partition_data": [{"index": 0, "records": guided.messages}]}
            ],
        },
    )
    asked, answered = scan_exchange(guided.sent, guided.answer, "Produce")
    assert list_columns(asked, "acks", "timeout_ms") == [(-1, TIMEOUT)]
    asked_partitions = asked.open("topic_data").open("partition_data")
    assert list_columns(asked_partitions, "index", "records") == [(0, guided.messages)]
    partitions = answered.open("responses").open("partition_responses")
    assert list_columns(partitions, "index", "error_code", "base_offset") == topics[0][1]


def test_fetch_of_the_guide(guided):
    partition = struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    sent = make_request(
        FETCH, struct.pack(">iiii", -1, 100, 1, 1) + encode_string("guided") + partition
    )
    content = ask(guided.address, sent[4:])
    answer = Answer(content)
    assert answer.number("i") == CORRELATION
    topics = answer.array(
        lambda: (
            answer.string(),
            answer.array(
                lambda: (answer.number("i"), answer.number("h"), answer.number("q"), answer.data())
            ),
        )
    )
    answer.check_end()
    # The broker down-converts the records to the sent messages.
    assert topics == [("guided", [(0, 0, len(PAIRS), guided.messages)])]

    assert sent == encode_body(
        "Fetch",
        {
            "max_wait_ms": 100,
            "min_bytes": 1,
            "topics": [
                {
                    "topic": "guided",
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
                    ],
                }
            ],
        },
    )
    asked, answered = scan_exchange(sent, content, "Fetch")
    assert list_columns(asked, "replica_id", "max_wait_ms", "min_bytes") == [(-1, 100, 1)]
    partitions = answered.open("responses").open("partitions")
    names = ("partition_index", "error_code", "high_watermark", "records")
    assert list_columns(partitions, *names) == topics[0][1]
    records = kafka.records(kafka.scan(partitions))

    pairs = [(copy_bytes(record.key), copy_bytes(record.value)) for record in records]
    assert pairs == list(PAIRS)


@pytest.mark.parametrize("time, offsets", [(LATEST, [len(PAIRS), 0]), (EARLIEST, [0])])
def test_offset_of_the_guide(guided, time, offsets):
    sent = make_request(
        OFFSET,
        struct.pack(">ii", -1, 1) + encode_string("guided") + struct.pack(">iiqi", 1, 0, time, 10),
    )
    content = ask(guided.address, sent[4:])
    answer = Answer(content)
    assert answer.number("i") == CORRELATION
    topics = answer.array(
        lambda: (
            answer.string(),
            answer.array(
                lambda: (
                    answer.number("i"),
                    answer.number("h"),
                    answer.array(lambda: answer.number("q")),
                )
            ),
        )
    )
    answer.check_end()
    assert topics == [("guided", [(0, 0, offsets)])]

    assert sent == encode_body(
        "ListOffsets",
        {
            "replica_id": -1,
            "topics": [
                {
                    "name": "guided",
                    "partitions": [
                        {"partition_index": 0, "timestamp": time, "max_num_offsets": 10}
                    ],
                }
            ],
        },
    )
    asked, answered = scan_exchange(sent, content, "ListOffsets")
    asked_partitions = asked.open("topics").open("partitions")
    assert list_columns(asked_partitions, "timestamp", "max_num_offsets") == [(time, 10)]
    partitions = answered.open("topics").open("partitions")
    assert list_columns(partitions, "partition_index", "error_code", "old_style_offsets") == [
        (0, 0, struct.pack(f">{len(offsets)}q", *offsets))
    ]


def test_metadata_of_the_guide(guided):
    sent = make_request(
        METADATA, struct.pack(">i", 2) + encode_string("guided") + encode_string("no such topic")
    )
    content = ask(guided.address, sent[4:])
    answer = Answer(content)
    assert answer.number("i") == CORRELATION
    brokers = answer.array(lambda: (answer.number("i"), answer.string(), answer.number("i")))
    topics = answer.array(
        lambda: (
            answer.number("h"),
            answer.string(),
            answer.array(
                lambda: (
                    answer.number("h"),
                    answer.number("i"),
                    answer.number("i"),
                    answer.array(lambda: answer.number("i")),
                    answer.array(lambda: answer.number("i")),
                )
            ),
        )
    )
    answer.check_end()
    assert brokers == [(1, "127.0.0.1", int(guided.address.rsplit(":")[-1]))]
    assert sorted(topics) == [
        (0, "guided", [(0, 0, 1, [1], [1])]),
        (kafka.ErrorCode.INVALID_TOPIC_EXCEPTION, "no such topic", []),
    ]

    assert sent == encode_body(
        "Metadata", {"topics": [{"name": "guided"}, {"name": "no such topic"}]}
    )
    asked, answered = scan_exchange(sent, content, "Metadata")
    assert list_columns(asked.open("topics"), "name") == [(b"guided",), (b"no such topic",)]
    assert list_columns(answered.open("brokers"), "node_id", "host", "port") == [
        (number, host.encode(), port) for number, host, port in brokers
    ]
    topic_table = answered.open("topics")
    assert list_columns(topic_table, "error_code", "name") == [
        (error, name.encode()) for error, name, _ in topics
    ]
    node = struct.pack(">i", 1)
    names = ("partition_index", "leader_id", "replica_nodes", "isr_nodes")
    assert list_columns(topic_table.open("partitions"), *names) == [(0, 1, node, node)]


def ask_for_versions(address: str) -> dict[str, range]:
    """The versions that a broker serves of the APIs in wirescan's table.

    They come from the broker's answer to ApiVersions v0.
    """
    keys = exchange(address, "ApiVersions", 0, {}).open("api_keys")
    ranges = {row.api_key: range(row.min_version, row.max_version + 1) for row in keys}
    names = {name for name, side in MESSAGE if side == "request"}
    return {name: ranges[KEYS[name]] for name in names if KEYS[name] in ranges}


def exchange(address: str, name: str, version: int, body: dict):
    """Send a request, and return the table of the answer's body."""
    sent = kafka.encode_request(name, version, body, correlation_id=version, client_id=CLIENT)
    return kafka.body(
        kafka.responses(encode_data(ask(address, sent[4:])), kafka.requests(sent)), name
    )


ROWS = make_orders(20, seed=80, big=False)
NAMES = ("Metadata", "Produce", "ListOffsets", "Fetch", "ApiVersions")
CASES = [
    (line, name, version)
    for line in LINES
    for name in NAMES
    for version in range(API[KEYS[name]].newest + 1)
]


@pytest.fixture(scope="session")
def topics(broker_39, broker_4):
    """By line: a broker, its versions, and a topic with 20 records of magic 2."""
    by_line = {}
    for line, broker in zip(LINES, (broker_39, broker_4), strict=True):
        broker.create_topic("every-version")
        send_librdkafka(broker.address, "every-version", ROWS, "none")
        request_body = {"topics": [{"name": "every-version"}]}
        (topic,) = exchange(broker.address, "Metadata", 12, request_body).open("topics")
        by_line[line] = SimpleNamespace(
            address=broker.address,
            serves=ask_for_versions(broker.address),
            id=bytes(topic.topic_id),
            produced=[],
        )
    return by_line


def make_topic_field(topic: str, topic_id: bytes, *, by_id: bool, field: str = "topic") -> dict:
    return {"topic_id": topic_id} if by_id else {field: topic}


@pytest.mark.parametrize("line, name, version", CASES)
def test_every_version_of_a_broker_works(topics, line, name, version):
    """wirescan works with every version that a broker serves. The lines cover all versions."""
    its = topics[line]
    # Kafka 4 offers the versions of Produce below 3, but does not serve them.
    only_offered = (line, name) == ("4", "Produce") and version < 3
    if version not in its.serves[name] or only_offered:
        assert version in topics["3.9" if line == "4" else "4"].serves[name]
        return
    check = {
        "Metadata": check_metadata,
        "Produce": check_produce,
        "ListOffsets": check_list_offsets,
        "Fetch": check_fetch,
        "ApiVersions": check_api_versions,
    }[name]
    check(its, version)


@pytest.mark.parametrize("line", LINES)
def test_librdkafka_reads_the_produced_records(topics, line):
    """librdkafka reads the records of every version of Produce."""
    read = consume(topics[line].address, "every-version")[len(ROWS) :]
    assert [row.key for row in read] == [b"produced"] * len(read)
    assert [int(row.value) for row in read] == topics[line].produced


def check_metadata(its, version: int) -> None:
    answer = exchange(its.address, "Metadata", version, {"topics": [{"name": "every-version"}]})
    (topic,) = answer.open("topics")
    assert (topic.error_code, bytes(topic.name)) == (0, b"every-version")
    assert list_columns(answer.open("topics").open("partitions"), "error_code", "leader_id") == [
        (0, 1)
    ]
    if version >= 10:
        assert bytes(topic.topic_id) == its.id


def check_produce(its, version: int) -> None:
    end = ask_for_end(its, 1)
    timestamp = 1_700_000_000_000 if version >= 2 else -1
    rows = [kafka.Record(0, timestamp, b"produced", b"%d" % version)]
    if version >= 3:
        batch = kafka.encode_batch(rows)
    else:
        batch = kafka.encode_message_set(rows, magic=version // 2)
    answer = exchange(
        its.address,
        "Produce",
        version,
        {
            "acks": -1,
            "timeout_ms": TIMEOUT,
            "topic_data": [
                make_topic_field("every-version", its.id, by_id=version >= 13, field="name")
                | {"partition_data": [{"index": 0, "records": batch}]}
            ],
        },
    )
    (partition,) = answer.open("responses").open("partition_responses")
    assert (partition.error_code, partition.base_offset) == (0, end)
    its.produced.append(version)


def ask_for_end(its, version: int, time: int = LATEST) -> int:
    answer = exchange(
        its.address,
        "ListOffsets",
        version,
        {
            "replica_id": -1,
            "topics": [
                {"name": "every-version", "partitions": [{"partition_index": 0, "timestamp": time}]}
            ],
        },
    )
    (partition,) = answer.open("topics").open("partitions")
    assert partition.error_code == 0
    return struct.unpack(">q", partition.old_style_offsets)[0] if version == 0 else partition.offset


def check_list_offsets(its, version: int) -> None:
    assert ask_for_end(its, version) == len(ROWS) + len(its.produced)
    assert ask_for_end(its, version, EARLIEST) == 0


def check_fetch(its, version: int) -> None:
    answer = exchange(
        its.address,
        "Fetch",
        version,
        {
            "max_wait_ms": 100,
            "min_bytes": 1,
            "topics": [
                make_topic_field("every-version", its.id, by_id=version >= 13)
                | {
                    "partitions": [
                        {"partition": 0, "fetch_offset": 5, "partition_max_bytes": 1 << 20}
                    ]
                }
            ],
        },
    )
    partitions = answer.open("responses").open("partitions")
    assert partitions["error_code"].tolist() == [0]
    values = {
        record.offset: None if record.value is None else bytes(record.value)
        for record in kafka.records(kafka.scan(partitions))
    }
    assert [values[offset] for offset in range(5, len(ROWS))] == [row.value for row in ROWS[5:]]
    assert len(values) >= len(ROWS) + len(its.produced) - 5


def check_api_versions(its, version: int) -> None:
    software = {"client_software_name": "wirescan", "client_software_version": "1"}
    answer = exchange(its.address, "ApiVersions", version, software if version >= 3 else {})
    assert answer["error_code"].tolist() == [0]
    assert answer["kind"].tolist() == [version]
    assert {row.api_key for row in answer.open("api_keys")} >= {KEYS[name] for name in its.serves}


def test_an_unknown_version_is_answered_in_version_0(broker_39):
    """3.9 does not know ApiVersions v5.

    It answers error 35 and its own versions, in a body of version 0.
    """
    answer = exchange(
        broker_39.address,
        "ApiVersions",
        5,
        {"client_software_name": "wirescan", "client_software_version": "1"},
    )
    assert answer["kind"].tolist() == [0]
    assert answer["error_code"].tolist() == [kafka.ErrorCode.UNSUPPORTED_VERSION]
    served = {row.api_key: row.max_version for row in answer.open("api_keys")}
    assert served[KEYS["ApiVersions"]] == 4
