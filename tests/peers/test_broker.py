"""The files and answers of a real broker, as wirescan, Kafka's tools and the clients read them."""
from types import SimpleNamespace

import pytest

from . import dumped
from .broker import Broker, dump
from .canonical import from_wirescan
from .wire import BrokerError, fetch
from .producers import CODECS, SENDERS, orders, send_aiokafka, send_librdkafka, send_transactions
from .readers import consume, consume_kafka_python, from_kafka, from_kafka_python, kafka_python_batches

pytestmark = pytest.mark.peers

# a broker refuses to down-convert zstd, which came with magic 2
FETCHES = [(codec, version) for codec in CODECS for version in range(5) if codec != "zstd" or version == 4]


@pytest.fixture(scope="module")
def kafka_broker():
    """A broker with the topics `orders` (all clients and codecs, transactions), one per codec, `appended` and
    `stamped` (LogAppendTime; the second without zstd, to be down-converted) and `wide` (large headers).
    """
    with Broker() as broker:
        broker.create_topic("orders", {"segment.bytes": 128 << 10, "segment.ms": 10**12})
        for topic in ("appended", "stamped"):
            broker.create_topic(topic, {"message.timestamp.type": "LogAppendTime"})
        sent = []
        for seed, (name, send) in enumerate(SENDERS.items()):
            for codec in CODECS:
                rows = orders(600, seed, null_headers=name != "kafka-python")
                send(broker.address, "orders", rows, codec)
                sent += rows
        send_transactions(broker.address, "orders", orders(300, seed=9), "lz4", "cac", "peers")
        for codec in CODECS:
            broker.create_topic(f"single-{codec}")
            send_librdkafka(broker.address, f"single-{codec}", orders(400, seed=10, big=False), codec,
                            batch_num_messages=50)
            send_librdkafka(broker.address, "appended", orders(100, seed=11, big=False), codec)
            if codec != "zstd":
                send_librdkafka(broker.address, "stamped", orders(100, seed=11, big=False), codec)
        broker.create_topic("wide")
        wide = [row._replace(headers=((b"wide", bytes(300)),)) for row in orders(100, seed=13, big=False)]
        send_librdkafka(broker.address, "wide", wide, "none")
        send_aiokafka(broker.address, "appended", orders(100, seed=12, big=False), "snappy")
        yield SimpleNamespace(address=broker.address, directory=broker.directory, sent=sent,
                              segments=sorted(broker.directory("orders").glob("*.log")))


@pytest.fixture(scope="module")
def read(kafka_broker):
    """The records of `orders`, from its segment files, by wirescan."""
    return [record for segment in kafka_broker.segments for record in from_wirescan(segment)]


@pytest.fixture(scope="module")
def fetched(kafka_broker) -> dict[tuple[str, int], bytes]:
    """The record set of each codec's topic by Fetch version."""
    return {(codec, version): fetch(kafka_broker.address, f"single-{codec}", version=version)
            for codec, version in FETCHES}


def control_offsets(segments) -> set[int]:
    """The offsets of control records; a control batch holds one."""
    lines = dumped.batches(dump(*segments, options=()))
    return {line["baseOffset"] for line in lines if line["isControl"]}


def test_segments_hold_what_was_sent(kafka_broker, read):
    sent = kafka_broker.sent
    assert [record[1:] for record in read[:len(sent)]] == [row[1:] for row in sent]
    assert [record.offset for record in read] == list(range(len(read)))


def test_segments_as_the_consumers_read(kafka_broker, read):
    control = control_offsets(kafka_broker.segments)
    assert len(control) == 3
    visible = [record for record in read if record.offset not in control]
    assert visible == consume_kafka_python(kafka_broker.address, "orders")
    assert visible == consume(kafka_broker.address, "orders")


def test_segments_as_kafka_reads(kafka_broker, read):
    assert read == from_kafka(*kafka_broker.segments)


def test_log_append_time(kafka_broker):
    segments = sorted(kafka_broker.directory("appended").glob("*.log"))
    read = [record for segment in segments for record in from_wirescan(segment)]
    assert read == consume_kafka_python(kafka_broker.address, "appended") == from_kafka(*segments)
    assert len(read) == 600


@pytest.mark.parametrize("codec, version", FETCHES)
def test_fetched(fetched, codec, version):
    """Record sets as the broker sends them, down-converted below v4, whole and cut at many kinds of place."""
    data, magic = fetched[codec, version], (0, 0, 1, 1, 2)[version]
    theirs = from_kafka_python(data)
    assert len(theirs) >= 300 and {batch.magic for batch in kafka_python_batches(data)} == {magic}
    assert from_wirescan(data) == theirs
    for cut in (1, 11, 12, 16, 17, 60, len(data) // 2, len(data) - 1):
        part = data[:cut]
        assert from_wirescan(part) == from_kafka_python(part)


def test_fetched_as_kafka_reads(fetched, tmp_path):
    files = [tmp_path / f"{codec}-{version}" for codec, version in FETCHES]
    for file, case in zip(files, FETCHES, strict=True):
        file.write_bytes(fetched[case])
    assert from_kafka(*files) == [record for case in FETCHES for record in from_wirescan(fetched[case])]


@pytest.mark.parametrize("version", range(4))
def test_zstd_is_not_down_converted(kafka_broker, version):
    with pytest.raises(BrokerError, match="error 76"):  # UNSUPPORTED_COMPRESSION_TYPE
        fetch(kafka_broker.address, "single-zstd", version=version)


@pytest.mark.parametrize("version", [2, 3])
def test_fetched_with_log_append_time(kafka_broker, version):
    """Down-converted wrappers of magic 1, whose own time stands for all in them."""
    for offset in (0, 100, 200, 300):  # none, gzip, snappy, lz4
        data = fetch(kafka_broker.address, "stamped", offset, version=version)
        theirs = from_kafka_python(data)
        assert len(theirs) >= 50
        assert from_wirescan(data) == theirs


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_overflow_filler(kafka_broker, version):
    """Wide headers go lost in down-conversion; the broker fills the promised size with an offset of -1."""
    from wirescan import kafka
    from wirescan.core.fault import Fault

    data = fetch(kafka_broker.address, "wide", version=version)
    table = kafka.scan(data)
    assert table.stop.fault == Fault.FILLER
    assert table.consumed + len(table.tail) == len(data)
    assert data[table.consumed:].startswith(b"\xff" * 8)
    assert from_wirescan(data) == from_kafka_python(data)
