"""Spark's own Kafka source and `from_avro` beside wirescan.

`schema=kafka`: files and broker give the same rows.
"""

import json
import shutil

import pytest

from tests.spark.guides import find_block
from wirescan import kafka

from .spark_session import run_session

pytestmark = pytest.mark.peers
TRANSACTIONS = 3


@pytest.fixture(scope="session")
def spark():
    yield from run_session()


def send_records(broker, topic):
    """Send records with headers and nulls, and some in transactions, of which one is aborted."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20})
    for number in range(500):
        headers = [("trace", b"%d" % number), ("trace", None)] if number % 3 == 0 else None
        key = None if number % 5 == 0 else b"key-%d" % (number % 7)
        value = None if number % 11 == 0 else b"value %d" % number
        producer.produce(
            topic, value, key, partition=number % 2, headers=headers, timestamp=10**12 + number
        )
    producer.flush()
    settings = {"bootstrap.servers": broker.address, "transactional.id": topic}
    transactional = Producer(settings)
    transactional.init_transactions()
    for number in range(TRANSACTIONS):
        transactional.begin_transaction()
        transactional.produce(topic, b"in a transaction", partition=0)
        transactional.flush()
        if number == 1:
            transactional.abort_transaction()
        else:
            transactional.commit_transaction()


@pytest.mark.parametrize("timestamps", ["CreateTime", "LogAppendTime"])
def test_files_have_the_rows_of_the_topic(spark, broker, tmp_path, timestamps):
    topic = f"spark-source-{timestamps.lower()}-with-dashes"
    broker.create_topic(topic, partitions=2, config={"message.timestamp.type": timestamps})
    send_records(broker, topic)
    live = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.address)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    for partition in (0, 1):
        shutil.copytree(broker.directory(topic, partition), tmp_path / f"{topic}-{partition}")
    files = (
        spark.read.format("wirescan")
        .option("schema", "kafka")
        .option("includeHeaders", "true")
        .load(str(tmp_path))
    )
    assert files.dtypes == live.dtypes
    order = ["partition", "offset"]
    expected = live.orderBy(*order).collect()
    assert len(expected) == 500 + TRANSACTIONS
    assert files.orderBy(*order).collect() == expected


def test_spark_decodes_avro_without_the_header_of_confluent(spark, tmp_path, capsys):
    import wirescan.spark

    schema = {"type": "record", "name": "Order", "fields": [{"name": "who", "type": "string"}]}
    values = [bytes.fromhex("00 00000007 06") + b"%03d" % number for number in range(3)]
    other_schema = bytes.fromhex("00 00000107 06") + b"bad"
    (tmp_path / "order.avsc").write_text(json.dumps(schema))
    (tmp_path / "orders-0").mkdir()
    segment = tmp_path / "orders-0/00000000000000000000.log"
    segment.write_bytes(kafka.encode_batch([*values, other_schema, {"value": None}]))
    block = find_block("confluent", **{"/data/": f"{tmp_path}/"})
    exec(block, {"spark": spark, "wirescan": wirescan})
    lines = capsys.readouterr().out.splitlines()
    rows = [line.replace(" ", "") for line in lines if "{" in line]
    assert rows == ["|0|{000}|", "|1|{001}|", "|2|{002}|"]
