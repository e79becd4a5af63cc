"""Make tests/corpus/kafka-streams: `python -m tests.peers.make_streams` in the repository's root.

Four clients, librdkafka, Kafka's own Java client, kafka-python and aiokafka, talk to a broker of each line through a
proxy (proxy.py), which keeps both directions of every connection:

    <client>-<line>/<step>-<n>.requests.bin, .responses.bin      the n-th connection of a step, from its first byte on

    codec-none ... codec-zstd   12 records each, acknowledged by all replicas; librdkafka's are idempotent for zstd
    acks-1, acks-0              12 records each; a Produce request with acks = 0 has no response
    transactions                two transactions, one committed and one aborted
    assign                      the whole topic read, uncommitted transactions too, without a group
    committed                   ... committed transactions only
    group                       ... as the only member of a group, which commits its offsets (not aiokafka); on 4.x
                                librdkafka's is of the protocol that came with 4.0
    sasl                        SaslHandshake v1 and SaslAuthenticate; then 12 records more
    as-0.8.2 ... as-2.4         kafka-python in the versions that it speaks with a broker of that release (3.9 only)
    sasl-tokens                 ... of 0.11: SaslHandshake v0, and then tokens that are in no request

Nothing is cut: a connection ends where the client hung up. The records are the same at every run (producers.orders). It
takes about two minutes.
"""
import argparse
import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

from .broker import LINES, PASSWORD, USER, Broker, Listener
from .producers import (CODECS, orders, send_aiokafka, send_java, send_kafka_python, send_librdkafka,
                        send_transactions)
from .proxy import Proxy
from .readers import consume, consume_aiokafka, consume_java, consume_kafka_python

STREAMS = Path(__file__).parents[1] / "corpus" / "kafka-streams"
ROWS = orders(12, seed=60, big=False)
PLAIN_ROWS = orders(12, seed=60, big=False, null_headers=False)
WRITTEN = len(ROWS) * (len(CODECS) + 3) + 2  # records and control records, before the SASL step
OLD = ((0, 8, 2), (0, 9), (0, 10, 1), (0, 11), (1, 1), (2, 1), (2, 4))


def librdkafka(address: str, secured: str, topic: str, line: str) -> dict[str, Callable[[], object]]:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", "sasl_username": USER,
             "sasl_password": PASSWORD}

    def send(codec: str = "none", **config) -> None:
        send_librdkafka(address, topic, ROWS, codec, **config)

    return {
        **{f"codec-{codec}": lambda codec=codec: send(codec, enable_idempotence=codec == "zstd") for codec in CODECS},
        "acks-1": lambda: send(acks=1), "acks-0": lambda: send(acks=0),
        "transactions": lambda: send_transactions(address, topic, ROWS, "none", "ca", topic),
        "assign": lambda: consume(address, topic),
        "committed": lambda: consume(address, topic, "read_committed"),
        "group": lambda: librdkafka_group(address, topic, "classic" if line == "3.9" else "consumer"),
        "sasl": lambda: send_librdkafka(secured, topic, ROWS, "none", **login),
    }


def librdkafka_group(address: str, topic: str, protocol: str) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "group.protocol": protocol,
                         "isolation.level": "read_uncommitted", "auto.offset.reset": "earliest",
                         "enable.auto.commit": False})
    consumer.subscribe([topic])
    read = 0
    while read < WRITTEN - 2:
        read += len(consumer.consume(WRITTEN, 1))
    consumer.commit(asynchronous=False)
    consumer.close()


def java(address: str, secured: str, topic: str, line: str) -> dict[str, Callable[[], object]]:
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{USER}" password="{PASSWORD}";'

    def send(codec: str = "none", **config) -> None:
        send_java(address, topic, ROWS, codec, line=line, **config)

    return {
        **{f"codec-{codec}": lambda codec=codec: send(codec) for codec in CODECS},
        "acks-1": lambda: send(acks=1, enable_idempotence="false"),
        "acks-0": lambda: send(acks=0, enable_idempotence="false"),
        "transactions": lambda: send(transactional_id=topic, outcomes="ca"),
        "assign": lambda: consume_java(address, topic, WRITTEN - 2, line),
        "committed": lambda: consume_java(address, topic, WRITTEN - 2 - len(ROWS) // 2, line,
                                          isolation_level="read_committed"),
        "group": lambda: consume_java(address, topic, WRITTEN - 2, line, group_id=topic),
        "sasl": lambda: send_java(secured, topic, ROWS, "none", line=line, security_protocol="SASL_PLAINTEXT",
                                  sasl_mechanism="PLAIN", sasl_jaas_config=login),
    }


def kafka_python(address: str, secured: str, topic: str, line: str) -> dict[str, Callable[[], object]]:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": USER,
             "sasl_plain_password": PASSWORD}

    def send(codec: str = "none", **config) -> None:
        send_kafka_python(address, topic, PLAIN_ROWS, codec, **config)

    steps = {
        **{f"codec-{codec}": lambda codec=codec: send(codec) for codec in CODECS},
        "acks-1": lambda: send(acks=1, enable_idempotence=False),
        "acks-0": lambda: send(acks=0, enable_idempotence=False),
        "transactions": lambda: kafka_python_transactions(address, topic),
        "assign": lambda: consume_kafka_python(address, topic),
        "committed": lambda: consume_kafka_python(address, topic, isolation_level="read_committed"),
        "group": lambda: kafka_python_group(address, topic),
        "sasl": lambda: send_kafka_python(secured, topic, PLAIN_ROWS, "none", **login),
    }
    if line == "3.9":
        for release in OLD:
            steps["as-" + ".".join(map(str, release))] = lambda release=release: as_of(address, topic, release)
        steps["sasl-tokens"] = lambda: send_kafka_python(
            secured, topic, PLAIN_ROWS, "none", enable_idempotence=False, api_version=(0, 11),
            **login | {"sasl_mechanism": "PLAIN"})
    return steps


def kafka_python_transactions(address: str, topic: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, transactional_id=topic)
    producer.init_transactions()
    half = len(PLAIN_ROWS) // 2
    for part, end in ((slice(half), producer.commit_transaction), (slice(half, None), producer.abort_transaction)):
        producer.begin_transaction()
        for row in PLAIN_ROWS[part]:
            producer.send(topic, value=row.value, key=row.key, partition=0, timestamp_ms=row.timestamp)
        producer.flush(30)
        end()
    producer.close()


def kafka_python_group(address: str, topic: str) -> None:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(topic, bootstrap_servers=address, group_id=topic, auto_offset_reset="earliest",
                             enable_auto_commit=False)
    read = 0
    while read < WRITTEN - 2:
        read += sum(map(len, consumer.poll(timeout_ms=5000).values()))
    consumer.commit()
    consumer.close()


def as_of(address: str, topic: str, release: tuple[int, ...]) -> None:
    """Send and read a few records as to a broker of an old release."""
    rows = [row._replace(headers=()) for row in PLAIN_ROWS[:4]]
    send_kafka_python(address, topic, rows, "gzip", api_version=release, enable_idempotence=False)
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=address, api_version=release, enable_auto_commit=False,
                             group_id=None, max_partition_fetch_bytes=1 << 16)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 2)
    while not consumer.poll(timeout_ms=5000, max_records=5):
        pass
    consumer.close()


def aiokafka(address: str, secured: str, topic: str, line: str) -> dict[str, Callable[[], object]]:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": USER,
             "sasl_plain_password": PASSWORD}

    def send(codec: str = "none", **config) -> None:
        send_aiokafka(address, topic, ROWS, codec, **config)

    return {
        **{f"codec-{codec}": lambda codec=codec: send(codec) for codec in CODECS},
        "acks-1": lambda: send(acks=1), "acks-0": lambda: send(acks=0),
        "transactions": lambda: send(transactional_id=topic, outcomes="ca"),
        "assign": lambda: consume_aiokafka(address, topic),
        "committed": lambda: consume_aiokafka(address, topic, isolation_level="read_committed"),
        "sasl": lambda: send_aiokafka(secured, topic, ROWS, "none", **login),
    }


CLIENTS = {"librdkafka": librdkafka, "java": java, "kafka-python": kafka_python, "aiokafka": aiokafka}


def record(target: Path, line: str) -> None:
    with contextlib.ExitStack() as stack:
        proxy, secured = stack.enter_context(Proxy()), stack.enter_context(Proxy())
        listeners = {"RECORDED": Listener("PLAINTEXT", proxy.address),
                     "SECURED": Listener("SASL_PLAINTEXT", secured.address)}
        broker = stack.enter_context(Broker(line=line, listeners=listeners))
        proxy.target, secured.target = broker.addresses["RECORDED"], broker.addresses["SECURED"]
        for client, steps in CLIENTS.items():
            topic = f"orders-{client}"
            broker.create_topic(topic)
            directory = target / f"{client}-{line}"
            directory.mkdir(parents=True)
            for step, run in steps(proxy.address, secured.address, topic, line).items():
                run()
                kept = [one for one in (*proxy.take(), *secured.take()) if one.requests or one.responses]
                for number, connection in enumerate(kept):
                    (directory / f"{step}-{number}.requests.bin").write_bytes(connection.requests)
                    (directory / f"{step}-{number}.responses.bin").write_bytes(connection.responses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", type=Path, default=STREAMS, help="the directory to fill")
    target = parser.parse_args().target
    shutil.rmtree(target, ignore_errors=True)
    for line in LINES:
        print(f"starting a Kafka broker {line} on 127.0.0.1, writing to {target}")
        record(target, line)
    for directory in sorted(target.iterdir()):
        files = list(directory.iterdir())
        print(f"{directory.name}: {len(files) // 2} connections, {sum(file.stat().st_size for file in files)} bytes")


if __name__ == "__main__":
    main()
