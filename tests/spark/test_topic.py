"""Topics of a live broker in Spark: every record once, for every size of a partition.

The group `peers` has a broker.
"""

from datetime import datetime, timezone

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

from tests.peers.broker import PASSWORD, SECURE, USER, Broker
from tests.peers.producers import (
    CODECS,
    make_compactable,
    make_orders,
    send_librdkafka,
    send_transactions,
)
from tests.peers.readers import consume
from tests.peers.spark_session import run_session
from tests.spark.records import collect_rows
from wirescan.kafka import BrokerError
from wirescan.spark import read_topic

pytestmark = pytest.mark.peers


@pytest.fixture(scope="session")
def spark():
    yield from run_session()


@pytest.fixture(scope="module")
def broker():
    """A broker with four topics.

    `orders` has all codecs and transactions. `many` has three partitions. `compacted` has gaps.
    `empty` has no records.
    """
    with Broker(line="4", listeners=SECURE) as broker:
        broker.create_topic("orders")
        for seed, codec in enumerate(CODECS):
            send_librdkafka(broker.address, "orders", make_orders(700, seed), codec)
        send_transactions(broker.address, "orders", make_orders(300, seed=9), "lz4", "aca", "spark")
        broker.create_topic("many", partitions=3)
        fill_topic(broker.address, "many", 1000)
        broker.create_topic(
            "compacted",
            {
                "cleanup.policy": "compact",
                "segment.ms": 100,
                "max.compaction.lag.ms": 100,
                "min.cleanable.dirty.ratio": 0.01,
            },
        )
        compact(broker)
        broker.create_topic("empty", partitions=2)
        yield broker


def fill_topic(address, topic, count):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "batch.num.messages": 50})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % 3)
    assert producer.flush(30) == 0


def compact(broker):
    """Send the same keys again and again until the cleaner has made gaps."""
    for seed in range(50):
        records = make_compactable(200, seed)
        send_librdkafka(broker.address, "compacted", records, "none", batch_num_messages=20)
        offsets = [record.offset for record in consume(broker.address, "compacted")]
        if offsets[-1] + 1 > len(offsets) > 200:
            return
    raise TimeoutError("the cleaner makes no gaps")


def list_rows(records):
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers), None) for r in records]


def load_topic(spark, broker, topic, **options):
    return (
        spark.read.format("wirescan")
        .option("bootstrap.servers", broker.address)
        .option("topic", topic)
        .options(**options)
        .load()
    )


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_rows_equal_those_of_a_consumer(spark, broker, isolation):
    expected = list_rows(consume(broker.address, "orders", isolation))
    frame = read_topic(spark, broker.address, "orders", isolation=isolation)
    assert frame.rdd.getNumPartitions() == 1
    assert collect_rows(frame) == expected
    assert collect_rows(load_topic(spark, broker, "orders", isolation=isolation)) == expected


@pytest.mark.parametrize("size", [1, 7, 199, 200, 1234])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_every_record_is_read_once(spark, broker, size, isolation):
    # The batches of transactions start and end between these offsets.
    bounds = {"start": 3490, "stop": 3520} if size == 1 else {}
    expected = [
        record.offset
        for record in consume(broker.address, "orders", isolation)
        if bounds.get("start", 0) <= record.offset < bounds.get("stop", 10**9)
    ]
    frame = read_topic(
        spark,
        broker.address,
        "orders",
        ["offset"],
        records_per_partition=size,
        isolation=isolation,
        **bounds,
    )
    assert frame.rdd.getNumPartitions() >= 3800 // size or bounds
    assert sorted(row.offset for row in frame.collect()) == expected


def test_compacted_topics_are_read(spark, broker):
    expected = list_rows(consume(broker.address, "compacted"))
    frame = read_topic(spark, broker.address, "compacted", records_per_partition=100)
    assert collect_rows(frame) == expected
    assert load_topic(spark, broker, "compacted", recordsPerPartition="100").count() == len(
        expected
    )


def test_partitions_and_several_topics(spark, broker):
    frame = read_topic(
        spark, broker.address, ["many", "empty", "many", "orders"], ["topic", "partition", "value"]
    )
    counts = {
        (row.topic, row.partition): row["count"]
        for row in frame.groupBy("topic", "partition").count().collect()
    }
    assert counts == {
        ("many", 0): 334,
        ("many", 1): 333,
        ("many", 2): 333,
        ("orders", 0): len(consume(broker.address, "orders")),
    }
    frame = load_topic(spark, broker, "many, empty", partitions="1", columns="value, partition")
    rows = sorted((int(row.value), row.partition) for row in frame.collect())
    assert rows == [(number, 1) for number in range(1, 1000, 3)]


def test_small_partitions_share_a_task(spark, broker):
    assert read_topic(spark, broker.address, "many").rdd.getNumPartitions() == 1
    frame = read_topic(spark, broker.address, "many", records_per_partition=300)
    assert frame.rdd.getNumPartitions() == 6


def test_topics_without_records_give_no_rows(spark, broker):
    assert read_topic(spark, broker.address, "empty").collect() == []
    assert load_topic(spark, broker, "empty").collect() == []
    assert load_topic(spark, broker, "orders", start="latest").count() == 0


def test_ranges_select_offsets(spark, broker):
    def offsets(frame):
        return sorted(row.offset for row in frame.select("offset").collect())

    assert offsets(load_topic(spark, broker, "orders", start="100", stop="210")) == list(
        range(100, 210)
    )
    records = consume(broker.address, "orders")
    moments = [records[800].timestamp, records[3000].timestamp]
    start, stop = (next(r.offset for r in records if r.timestamp >= moment) for moment in moments)
    expected = [record.offset for record in records if start <= record.offset < stop]
    times = {"start_time": moments[0], "stop_time": moments[1]}
    assert offsets(read_topic(spark, broker.address, "orders", **times)) == expected
    start_text = datetime.fromtimestamp(moments[0] / 1000, timezone.utc).isoformat()
    times = {"startTime": start_text, "stopTime": str(moments[1])}
    assert offsets(load_topic(spark, broker, "orders", **times)) == expected


def test_a_schema_chooses_the_columns(spark, broker):
    frame = (
        spark.read.format("wirescan")
        .schema("value binary not null, topic string, partition int")
        .option("kafka.bootstrap.servers", broker.address)
        .option("topic", "many")
        .load()
    )
    assert frame.columns == ["value", "topic", "partition"]
    assert {(row.topic, row.partition) for row in frame.collect()} == {
        ("many", n) for n in range(3)
    }
    assert frame.select(functions.count("*")).first()[0] == 1000


def test_sql_reads_a_topic(spark, broker):
    spark.sql(
        f"create or replace temp view live using wirescan options "
        f"('bootstrap.servers' '{broker.address}', topic 'many')"
    )
    row = spark.sql("select count(*), max(offset) from live where partition = 0").first()
    assert row == (334, 333)


def test_spark_logs_in_with_tls(spark, broker):
    frame = read_topic(
        spark,
        broker.addresses["SASL_SSL"],
        "many",
        tls=str(broker.authority),
        sasl=("PLAIN", USER, PASSWORD),
    )
    assert frame.count() == 1000
    options = {
        "bootstrap.servers": broker.addresses["SASL_SSL"],
        "security.protocol": "SASL_SSL",
        "topic": "many",
        "ssl.ca.location": str(broker.authority),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    assert spark.read.format("wirescan").options(**options).load().count() == 1000


@pytest.mark.parametrize(
    "options, message",
    [
        ({"topics": "orders"}, "no option 'topics'"),
        ({"path": "orders"}, "no option 'path'"),
        ({"format": "kafka.batches"}, "topics are read as kafka.records"),
        ({"topic": " "}, "option topic must"),
        ({"start": "soon"}, "option start must be"),
        ({"startTime": "soon"}, "option startTime must be"),
        ({"startTime": "1" * 5000}, "option startTime must be"),
        ({"start": "5", "startTime": "5"}, "not at both"),
        ({"partitions": "a"}, "option partitions must be"),
        ({"partitions": ""}, "option partitions must be"),
        ({"partitions": "1" * 5000}, "option partitions must be"),
        ({"start": "1" * 5000}, "option start must be"),
        ({"recordsPerPartition": "1" * 5000}, "option recordsPerPartition must be"),
        ({"recordsPerPartition": "0"}, "option recordsPerPartition must be"),
        ({"isolation": "serial"}, "isolation is one of"),
        ({"columns": "offset,colour"}, "colour"),
        ({"columns": "topic,offset,topic"}, "column 'topic' is named twice"),
        ({"check": "maybe"}, "check must be true or false"),
        ({"errors": "ignore"}, "errors must be one of"),
        ({"security.protocol": "SSH"}, "security.protocol is one of"),
        ({"sasl.mechanism": "PLAIN"}, "do not fit security.protocol PLAINTEXT"),
        ({"topic": "nowhere"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"partitions": "7"}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_invalid_options_are_refused(spark, broker, options, message):
    with pytest.raises(PySparkException, match=message):
        load_topic(spark, broker, **{"topic": "orders", **options}).collect()


def test_deleted_records_and_unknown_topics_raise(spark, broker):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    broker.create_topic("gone")
    send_librdkafka(broker.address, "gone", make_orders(100, 1, big=False), "none")
    frame = read_topic(spark, broker.address, "gone")
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_records([TopicPartition("gone", 0, 40)])[TopicPartition("gone", 0)].result(30)
    with pytest.raises(PySparkException, match="OFFSET_OUT_OF_RANGE"):
        frame.collect()
    with pytest.raises(ValueError, match="gone-0: offsets 10 to 39 are gone"):
        read_topic(spark, broker.address, "gone", start=10)
    assert read_topic(spark, broker.address, "gone").count() == 60
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        read_topic(spark, broker.address, "nowhere")
