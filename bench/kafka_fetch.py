"""A topic of a live broker, fetched into tables and into Arrow, beside the consumers of librdkafka and Java."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any


from bench.measure import Contender, interleave, timed
from bench.peers import java
from bench.peers.consumers import Confluent, Java, fill
from bench.report import Report, timings
from tests.peers.broker import Broker
from wirescan import kafka
from wirescan.topic import to_batches

FULL = {"records": 5_000_000, "rounds": 7}
QUICK = {"records": 20_000, "rounds": 2}
SIZE = 100                      # bytes of key and value together
TOPIC, PARTITIONS = "records", 4
COLUMNS = ["offset", "timestamp", "key", "value"]
PACKAGES = ["pyarrow", "confluent-kafka"]


def run(records: int, rounds: int) -> str:
    """The whole part as markdown."""
    with ExitStack() as stack:
        broker = stack.enter_context(Broker())
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        fill(broker.address, TOPIC, PARTITIONS, records, SIZE)
        confluent = stack.enter_context(closing(Confluent(broker.address, TOPIC, PARTITIONS, records)))
        consumer = stack.enter_context(closing(Java(broker.address, TOPIC, PARTITIONS, records)))

        def contender(name: str, seconds: Callable[[], float]) -> Contender:
            return Contender(name, seconds, records, records * SIZE)

        def fetched(name: str, use: Callable[[Any], Any]) -> Contender:
            return contender(name, timed(lambda: fetch(broker.address, records, use), rehearse=False))

        times = interleave([
            fetched("kafka.fetch", lambda part: None),
            contender("confluent-kafka", confluent.consume),
            contender("kafka-clients (Java)", consumer.consume),
            fetched("kafka.fetch, Arrow", lambda part: list(to_batches(part, COLUMNS))),
            contender("confluent-kafka, Arrow", confluent.arrow),
        ], rounds)
    report = Report("Kafka, live")
    report.at_least("times as fast as `confluent_kafka.Consumer.consume()`", 8,
                    times.ratio("confluent-kafka", "kafka.fetch"))
    report.at_least("times as fast as Java's `KafkaConsumer`", 1, times.ratio("kafka-clients (Java)", "kafka.fetch"))
    report.at_least("times as fast as `consume()`, both into Arrow", 8,
                    times.ratio("confluent-kafka, Arrow", "kafka.fetch, Arrow"))
    report.say(f"A topic of {records:,} records of {SIZE} bytes in {PARTITIONS} partitions, uncompressed, from a "
               "broker on the same machine, whose pages are warm. `kafka.fetch` connects anew in each pass and verifies "
               "checksums; the consumers are kept, fetch up to 8 MiB of a partition at a time too, and give up to "
               "10,000 records a call; Java verifies checksums, librdkafka does not. Into Arrow: offset, timestamp, "
               "key, value.")
    against = dict.fromkeys(["confluent-kafka", "kafka-clients (Java)"], "kafka.fetch")
    report.say(timings(times, against | {"confluent-kafka, Arrow": "kafka.fetch, Arrow"}))
    return report.markdown([*PACKAGES, f"kafka-clients {java.client_version()}"])


def fetch(address: str, records: int, use: Callable[[Any], Any]) -> None:
    """A pass over the topic. Raises ValueError where it finds another number of records."""
    found = 0
    for part in kafka.fetch(address, TOPIC):
        use(part)
        found += len(part.records)
    if found != records:
        raise ValueError(f"wirescan reads {found} of {records} records")
