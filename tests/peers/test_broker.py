"""The files and answers of a real broker: wirescan, Kafka's tools and the clients read the same."""

from types import SimpleNamespace

import pytest

from . import dumped
from .broker import Broker, dump
from .canonical import read_with_wirescan
from .producers import (
    CODECS,
    SENDERS,
    make_orders,
    send_aiokafka,
    send_librdkafka,
    send_transactions,
)
from .readers import (
    consume,
    consume_kafka_python,
    parse_batches,
    read_with_kafka,
    read_with_kafka_python,
)
from .wire import BrokerError, fetch

pytestmark = pytest.mark.peers

# A broker refuses to down-convert zstd, which needs magic 2.
FETCHES = [
    (codec, version) for codec in CODECS for version in range(5) if codec != "zstd" or version == 4
]


@pytest.fixture(scope="module")
def kafka_broker():
    """A broker with filled topics.

    `orders` has all clients and codecs, and transactions. There is one topic per codec. `appended`
    and `stamped` have LogAppendTime; `stamped` has no zstd and can be down-converted. `wide` has
    large headers.
    """
    with Broker() as broker:
        broker.create_topic("orders", {"segment.bytes": 128 << 10, "segment.ms": 10**12})
        for topic in ("appended", "stamped"):
            broker.create_topic(topic, {"message.timestamp.type": "LogAppendTime"})
        sent = []
        for seed, (name, send) in enumerate(SENDERS.items()):
            for codec in CODECS:
                rows = make_orders(600, seed, null_headers=name != "kafka-python")
                send(broker.address, "orders", rows, codec)
                sent += rows
        send_transactions(broker.address, "orders", make_orders(300, seed=9), "lz4", "cac", "peers")
        for codec in CODECS:
            broker.create_topic(f"single-{codec}")
            send_librdkafka(
                broker.address,
                f"single-{codec}",
                make_orders(400, seed=10, big=False),
                codec,
                batch_num_messages=50,
            )
            send_librdkafka(broker.address, "appended", make_orders(100, seed=11, big=False), codec)
            if codec != "zstd":
                send_librdkafka(
                    broker.address, "stamped", make_orders(100, seed=11, big=False), codec
                )
        broker.create_topic("wide")
        wide = [
            row._replace(headers=((b"wide", bytes(300)),))
            for row in make_orders(100, seed=13, big=False)
        ]
        send_librdkafka(broker.address, "wide", wide, "none")
        send_aiokafka(broker.address, "appended", make_orders(100, seed=12, big=False), "snappy")
        yield SimpleNamespace(
            address=broker.address,
            directory=broker.directory,
            sent=sent,
            segments=sorted(broker.directory("orders").glob("*.log")),
        )


@pytest.fixture(scope="module")
def wirescan_records(kafka_broker):
    """The records of `orders`, which wirescan reads from the segment files."""
    return [record for segment in kafka_broker.segments for record in read_with_wirescan(segment)]


@pytest.fixture(scope="module")
def record_sets(kafka_broker) -> dict[tuple[str, int], bytes]:
    """The record set of each codec's topic for each Fetch version."""
    return {
        (codec, version): fetch(kafka_broker.address, f"single-{codec}", version=version)
        for codec, version in FETCHES
    }


def list_control_offsets(segments) -> set[int]:
    """The offsets of control records. A control batch has one record."""
    lines = dumped.parse_batches(dump(*segments, options=()))
    return {line["baseOffset"] for line in lines if line["isControl"]}


def test_segments_hold_the_sent_records(kafka_broker, wirescan_records):
    sent = kafka_broker.sent
    assert [record[1:] for record in wirescan_records[: len(sent)]] == [row[1:] for row in sent]
    assert [record.offset for record in wirescan_records] == list(range(len(wirescan_records)))


def test_segments_read_like_the_consumers(kafka_broker, wirescan_records):
    control = list_control_offsets(kafka_broker.segments)
    assert len(control) == 3
    visible = [record for record in wirescan_records if record.offset not in control]
    assert visible == consume_kafka_python(kafka_broker.address, "orders")
    assert visible == consume(kafka_broker.address, "orders")


def test_segments_read_like_kafka(kafka_broker, wirescan_records):
    assert wirescan_records == read_with_kafka(*kafka_broker.segments)


def test_log_append_times_read_like_the_clients(kafka_broker):
    segments = sorted(kafka_broker.directory("appended").glob("*.log"))
    records = [record for segment in segments for record in read_with_wirescan(segment)]
    assert records == consume_kafka_python(kafka_broker.address, "appended")
    assert records == read_with_kafka(*segments)
    assert len(records) == 600


@pytest.mark.parametrize("codec, version", FETCHES)
def test_fetched_record_sets_read_like_kafka_python(record_sets, codec, version):
    """Record sets of all Fetch versions, down-converted below v4, complete and cut."""
    data = record_sets[codec, version]
    magic = (0, 0, 1, 1, 2)[version]
    theirs = read_with_kafka_python(data)
    assert len(theirs) >= 300
    assert {batch.magic for batch in parse_batches(data)} == {magic}
    assert read_with_wirescan(data) == theirs
    for cut in (1, 11, 12, 16, 17, 60, len(data) // 2, len(data) - 1):
        part = data[:cut]
        assert read_with_wirescan(part) == read_with_kafka_python(part)


def test_fetched_record_sets_read_like_kafka(record_sets, tmp_path):
    files = [tmp_path / f"{codec}-{version}" for codec, version in FETCHES]
    for file, case in zip(files, FETCHES, strict=True):
        file.write_bytes(record_sets[case])
    assert read_with_kafka(*files) == [
        record for case in FETCHES for record in read_with_wirescan(record_sets[case])
    ]


@pytest.mark.parametrize("version", range(4))
def test_zstd_is_not_down_converted(kafka_broker, version):
    with pytest.raises(BrokerError, match="error 76"):  # UNSUPPORTED_COMPRESSION_TYPE
        fetch(kafka_broker.address, "single-zstd", version=version)


@pytest.mark.parametrize("version", [2, 3])
def test_down_converted_log_append_times(kafka_broker, version):
    """The time of a down-converted wrapper of magic 1 holds for all messages in it."""
    for offset in (0, 100, 200, 300):  # none, gzip, snappy, lz4
        data = fetch(kafka_broker.address, "stamped", offset, version=version)
        theirs = read_with_kafka_python(data)
        assert len(theirs) >= 50
        assert read_with_wirescan(data) == theirs


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_filler_ends_the_record_set(kafka_broker, version):
    """Down-conversion removes the large headers.

    The broker fills the announced size with bytes that begin with offset -1.
    """
    from wirescan import kafka
    from wirescan.core.fault import Fault

    data = fetch(kafka_broker.address, "wide", version=version)
    table = kafka.scan(data)
    assert table.stop.fault == Fault.FILLER
    assert table.consumed + len(table.tail) == len(data)
    assert data[table.consumed :].startswith(b"\xff" * 8)
    assert read_with_wirescan(data) == read_with_kafka_python(data)
