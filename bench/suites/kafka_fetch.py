"""Fetching a topic of a live broker, compared with the consumers of librdkafka, Java and Go."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

from bench.peers import compiled, java
from bench.peers.consumers import Confluent, Java, fill
from bench.peers.programs import Broker
from bench.report import Report, format_timings
from bench.timing import Contender, Times, interleave, time_call
from wirescan import kafka
from wirescan.kafka.client.topic_batches import to_batches

FULL = {"records": 5_000_000, "rounds": 7}
QUICK = {"records": 20_000, "rounds": 2}
SIZE = 100  # bytes of key and value together
TOPIC, PARTITIONS = "records", 4
COLUMNS = ["offset", "timestamp", "key", "value"]
PACKAGES = ["pyarrow", "confluent-kafka"]


def run(records: int, rounds: int) -> str:
    """Return the section as markdown."""
    with ExitStack() as stack:
        broker = stack.enter_context(Broker())
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        fill(broker.address, TOPIC, PARTITIONS, records, SIZE)
        confluent = stack.enter_context(
            closing(Confluent(broker.address, TOPIC, PARTITIONS, records))
        )
        consumer = stack.enter_context(closing(Java(broker.address, TOPIC, PARTITIONS, records)))

        expected = compiled.sum_records(part.records for part in kafka.fetch(broker.address, TOPIC))
        programs = compiled.start_consumers(broker.address, TOPIC, PARTITIONS, expected)
        for program in programs:
            stack.enter_context(closing(program))

        def contender(name: str, seconds: Callable[[], float]) -> Contender:
            return Contender(name, seconds, records, records * SIZE)

        def fetcher(name: str, use: Callable[[Any], Any]) -> Contender:
            seconds = time_call(lambda: fetch(broker.address, records, use), rehearse=False)
            return contender(name, seconds)

        times = interleave(
            [
                fetcher("kafka.fetch", lambda part: None),
                contender("confluent-kafka", confluent.consume),
                contender("kafka-clients (Java)", consumer.consume),
                *[contender(program.name, program.seconds) for program in programs],
                fetcher("kafka.fetch, Arrow", lambda part: list(to_batches(part, COLUMNS))),
                contender("confluent-kafka, Arrow", confluent.arrow),
            ],
            rounds,
        )
    report = make_report(times, records)
    versions = compiled.list_versions(compiled.build_consumers())
    return report.markdown([*PACKAGES, f"kafka-clients {java.read_client_version()}", *versions])


def make_report(times: Times, records: int) -> Report:
    """Return the targets, the text and the table."""
    built = compiled.build_consumers()
    report = Report("Kafka, live", threads="those of each client")
    report.at_least(
        "times as fast as `confluent_kafka.Consumer.consume()`",
        8,
        times.ratio("confluent-kafka", "kafka.fetch"),
    )
    report.at_least(
        "times as fast as Java's `KafkaConsumer`",
        1,
        times.ratio("kafka-clients (Java)", "kafka.fetch"),
    )
    report.at_least(
        "times as fast as `consume()`, both into Arrow",
        8,
        times.ratio("confluent-kafka, Arrow", "kafka.fetch, Arrow"),
    )
    report.say(
        f"A topic has {records:,} uncompressed records of {SIZE} bytes in {PARTITIONS} partitions. "
        "Its broker runs on the same machine, and its pages are warm. `kafka.fetch` connects anew "
        "in each pass and verifies checksums. The consumers stay connected. They also fetch up to "
        "8 MiB of a partition at a time, and return up to 10,000 records per call. franz-go "
        "returns all that it has. librdkafka waits at most 10 ms for new records: otherwise the "
        "last fetch of a pass delays the next pass by 500 ms. All verify checksums, except "
        "confluent-kafka. The program in C uses the same librdkafka as confluent-kafka. Every pass "
        "in C and in Go has as many records, bytes of keys and bytes of values as wirescan, and "
        "the same last offset. Arrow batches have the columns offset, timestamp, key and value.",
    )
    for text in built.missing:
        report.say(text)
    peers = ["confluent-kafka", "kafka-clients (Java)", *built.paths]
    against = dict.fromkeys(peers, "kafka.fetch")
    report.say(format_timings(times, against | {"confluent-kafka, Arrow": "kafka.fetch, Arrow"}))
    return report


def fetch(address: str, records: int, use: Callable[[Any], Any]) -> None:
    """Read the topic once. Raises ValueError if it has another number of records."""
    count = 0
    for part in kafka.fetch(address, TOPIC):
        use(part)
        count += len(part.records)
    if count != records:
        raise ValueError(f"wirescan reads {count} of {records} records")
