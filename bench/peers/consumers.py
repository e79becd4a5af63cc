"""The clients of librdkafka and of Java, which consume a topic of a live broker repeatedly."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.peers.java import JVM
from bench.peers.programs import broker

WARM_UP = 3  # passes until Java's compiler has optimized the code
AT_ONCE = 10_000  # messages per call of consume()
PATIENCE = 30  # seconds per call of consume()
WAIT = 10  # milliseconds that the last fetch of a pass waits, and the next pass for it
SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


class Confluent:
    """A consumer of confluent-kafka that is kept for all passes.

    start: the offset in each partition at which a pass begins. It ends after `records` records.

    Raises RuntimeError if it cannot read them.
    """

    def __init__(self, address: str, topic: str, partitions: int, records: int, start: int = 0):
        self.records = records
        self._assignment = [TopicPartition(topic, number, start) for number in range(partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "bench",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": WAIT,
                "max.partition.fetch.bytes": 8 << 20,
                "queued.min.messages": 1_000_000,
            }
        )

    def consume(self) -> float:
        """Return the seconds of a pass into Message objects."""
        return self._pass(lambda messages: None)

    def arrow(self) -> float:
        """Return the seconds of a pass into record batches of SCHEMA."""
        return self._pass(
            lambda messages: pa.record_batch(
                [
                    pa.array([message.offset() for message in messages], pa.int64()),
                    pa.array([message.timestamp()[1] for message in messages], pa.int64()),
                    pa.array([message.key() for message in messages], pa.binary()),
                    pa.array([message.value() for message in messages], pa.binary()),
                ],
                schema=SCHEMA,
            )
        )

    def _pass(self, use: Any) -> float:
        begun = time.perf_counter()
        count = 0
        self._consumer.assign(self._assignment)
        while count < self.records:
            messages = self._consumer.consume(AT_ONCE, PATIENCE)
            if not messages or any(message.error() for message in messages):
                raise RuntimeError(f"confluent-kafka read {count} of {self.records} records")
            use(messages)
            count += len(messages)
        return time.perf_counter() - begun

    def close(self) -> None:
        self._consumer.close()


class Java:
    """Java's KafkaConsumer in a separate process. Raises RuntimeError if the process ends."""

    def __init__(self, address: str, topic: str, partitions: int, records: int):
        source = Path(__file__).with_name("Consume.java")
        self.process = subprocess.Popen(
            [
                broker.find_java(),
                *JVM,
                "-cp",
                broker.find_classpath(),
                source,
                address,
                topic,
                str(partitions),
                str(records),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(WARM_UP):
            self.consume()

    def consume(self) -> float:
        """Return the seconds of a pass."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("Java's consumer ended")
        return int(answer) / 1e9

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def fill(address: str, topic: str, partitions: int, records: int, size: int) -> None:
    """Send records of `size` bytes with keys of eight bytes and JSON-like values.

    Raises RuntimeError if the broker does not accept all of them.
    """
    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 50,
            "acks": 1,
            "batch.num.messages": 1000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    for number in range(records):
        amount = number * 7919 % 10**6
        value = b'{"user":"%08d","action":"page_view","amount":%d,"country":"de","note":"' % (
            number,
            amount,
        )
        while True:
            try:
                producer.produce(
                    topic,
                    value.ljust(size - 10, b"x") + b'"}',
                    b"%08d" % number,
                    number % partitions,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError(f"the broker did not take all records of {topic}")
