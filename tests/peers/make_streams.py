"""Make tests/corpus/kafka-streams: run `python -m tests.peers.make_streams` in the root.

With `--only STEP` it records this step of each client, and keeps the files of the others.

Four clients talk to a broker of each line: librdkafka, Kafka's own Java client, kafka-python and
aiokafka. A proxy (proxy.py) records both directions of every connection:

    <client>-<line>/<step>-<n>.requests.bin, .responses.bin      the n-th connection of a step

    codec-none ... codec-zstd   12 records each, acknowledged by all replicas; librdkafka's are
                                idempotent for zstd
    acks-1, acks-0              12 records each; a Produce request with acks = 0 has no response
    transactions                two transactions: one committed, one aborted
    assign                      a read of the whole topic without a group, aborted records too
    committed                   the same read without the aborted records
    group                       the same read as the only member of a group, which commits its
                                offsets (not aiokafka); on 4.x librdkafka uses the group protocol
                                that is new in 4.0
    offsets                     a member of a group commits an offset in a transaction
    admin                       a new topic, and its settings
    sasl                        SaslHandshake v1 and SaslAuthenticate; then 12 more records
    as-0.8.2 ... as-2.4         kafka-python with the versions for a broker of that release (3.9
                                only)
    sasl-tokens                 the same for release 0.11: SaslHandshake v0, then tokens that are
                                not in requests

The connections are complete: each ends where the client hung up. Every run sends the same records
(producers.orders). A run takes about two minutes.
"""

import contextlib
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from tests.support.paths import CORPUS

from .administration import (
    commit_in_transaction_aiokafka,
    commit_in_transaction_java,
    commit_in_transaction_kafka_python,
    commit_in_transaction_librdkafka,
    create_and_describe_aiokafka,
    create_and_describe_java,
    create_and_describe_kafka_python,
    create_and_describe_librdkafka,
)
from .broker import LINES, PASSWORD, USER, Broker, Listener
from .producers import (
    CODECS,
    make_orders,
    send_aiokafka,
    send_java,
    send_kafka_python,
    send_librdkafka,
    send_transactions,
)
from .proxy import Proxy
from .readers import consume, consume_aiokafka, consume_java, consume_kafka_python
from .target import make_parser

STREAMS = CORPUS / "kafka-streams"
ROWS = make_orders(12, seed=60, big=False)
PLAIN_ROWS = make_orders(12, seed=60, big=False, null_headers=False)
WRITTEN = len(ROWS) * (len(CODECS) + 3) + 2  # all records, also control, before the SASL step
OLD_RELEASES = ((0, 8, 2), (0, 9), (0, 10, 1), (0, 11), (1, 1), (2, 1), (2, 4))


def use_librdkafka(
    address: str, secured: str, topic: str, line: str
) -> dict[str, Callable[[], object]]:
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": USER,
        "sasl_password": PASSWORD,
    }

    group_protocol = "classic" if line == "3.9" else "consumer"

    def send(codec: str = "none", **config) -> None:
        send_librdkafka(address, topic, ROWS, codec, **config)

    return {
        **{
            f"codec-{codec}": lambda codec=codec: send(codec, enable_idempotence=codec == "zstd")
            for codec in CODECS
        },
        "acks-1": lambda: send(acks=1),
        "acks-0": lambda: send(acks=0),
        "transactions": lambda: send_transactions(address, topic, ROWS, "none", "ca", topic),
        "assign": lambda: consume(address, topic),
        "committed": lambda: consume(address, topic, "read_committed"),
        "group": lambda: use_librdkafka_group(address, topic, group_protocol),
        "offsets": lambda: commit_in_transaction_librdkafka(address, topic, group_protocol),
        "admin": lambda: create_and_describe_librdkafka(address, topic),
        "sasl": lambda: send_librdkafka(secured, topic, ROWS, "none", **login),
    }


def use_librdkafka_group(address: str, topic: str, protocol: str) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": topic,
            "group.protocol": protocol,
            "isolation.level": "read_uncommitted",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read = 0
    while read < WRITTEN - 2:
        read += len(consumer.consume(WRITTEN, 1))
    consumer.commit(asynchronous=False)
    consumer.close()


def use_java(address: str, secured: str, topic: str, line: str) -> dict[str, Callable[[], object]]:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login = f'{module} required username="{USER}" password="{PASSWORD}";'

    def send(codec: str = "none", **config) -> None:
        send_java(address, topic, ROWS, codec, line=line, **config)

    return {
        **{f"codec-{codec}": lambda codec=codec: send(codec) for codec in CODECS},
        "acks-1": lambda: send(acks=1, enable_idempotence="false"),
        "acks-0": lambda: send(acks=0, enable_idempotence="false"),
        "transactions": lambda: send(transactional_id=topic, outcomes="ca"),
        "assign": lambda: consume_java(address, topic, WRITTEN - 2, line),
        "committed": lambda: consume_java(
            address, topic, WRITTEN - 2 - len(ROWS) // 2, line, isolation_level="read_committed"
        ),
        "group": lambda: consume_java(address, topic, WRITTEN - 2, line, group_id=topic),
        "offsets": lambda: commit_in_transaction_java(address, topic, line),
        "admin": lambda: create_and_describe_java(address, topic, line),
        "sasl": lambda: send_java(
            secured,
            topic,
            ROWS,
            "none",
            line=line,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_jaas_config=login,
        ),
    }


def use_kafka_python(
    address: str, secured: str, topic: str, line: str
) -> dict[str, Callable[[], object]]:
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }

    def send(codec: str = "none", **config) -> None:
        send_kafka_python(address, topic, PLAIN_ROWS, codec, **config)

    steps = {
        **{f"codec-{codec}": lambda codec=codec: send(codec) for codec in CODECS},
        "acks-1": lambda: send(acks=1, enable_idempotence=False),
        "acks-0": lambda: send(acks=0, enable_idempotence=False),
        "transactions": lambda: use_kafka_python_transactions(address, topic),
        "assign": lambda: consume_kafka_python(address, topic),
        "committed": lambda: consume_kafka_python(address, topic, isolation_level="read_committed"),
        "group": lambda: use_kafka_python_group(address, topic),
        "offsets": lambda: commit_in_transaction_kafka_python(address, topic),
        "admin": lambda: create_and_describe_kafka_python(address, topic),
        "sasl": lambda: send_kafka_python(secured, topic, PLAIN_ROWS, "none", **login),
    }
    if line == "3.9":
        for release in OLD_RELEASES:
            name = "as-" + ".".join(map(str, release))
            steps[name] = lambda release=release: use_old_release(address, topic, release)
        steps["sasl-tokens"] = lambda: send_kafka_python(
            secured,
            topic,
            PLAIN_ROWS,
            "none",
            enable_idempotence=False,
            api_version=(0, 11),
            **login | {"sasl_mechanism": "PLAIN"},
        )
    return steps


def use_kafka_python_transactions(address: str, topic: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, transactional_id=topic)
    producer.init_transactions()
    half = len(PLAIN_ROWS) // 2
    for part, end in (
        (slice(half), producer.commit_transaction),
        (slice(half, None), producer.abort_transaction),
    ):
        producer.begin_transaction()
        for row in PLAIN_ROWS[part]:
            producer.send(
                topic, value=row.value, key=row.key, partition=0, timestamp_ms=row.timestamp
            )
        producer.flush(30)
        end()
    producer.close()


def use_kafka_python_group(address: str, topic: str) -> None:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    read = 0
    while read < WRITTEN - 2:
        read += sum(map(len, consumer.poll(timeout_ms=5000).values()))
    consumer.commit()
    consumer.close()


def use_old_release(address: str, topic: str, release: tuple[int, ...]) -> None:
    """Send and read a few records with the versions for a broker of an old release."""
    from kafka import KafkaConsumer, TopicPartition

    rows = [row._replace(headers=()) for row in PLAIN_ROWS[:4]]
    send_kafka_python(address, topic, rows, "gzip", api_version=release, enable_idempotence=False)
    consumer = KafkaConsumer(
        bootstrap_servers=address,
        api_version=release,
        enable_auto_commit=False,
        group_id=None,
        max_partition_fetch_bytes=1 << 16,
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 2)
    while not consumer.poll(timeout_ms=5000, max_records=5):
        pass
    consumer.close()


def use_aiokafka(
    address: str, secured: str, topic: str, line: str
) -> dict[str, Callable[[], object]]:
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }

    def send(codec: str = "none", **config) -> None:
        send_aiokafka(address, topic, ROWS, codec, **config)

    return {
        **{f"codec-{codec}": lambda codec=codec: send(codec) for codec in CODECS},
        "acks-1": lambda: send(acks=1),
        "acks-0": lambda: send(acks=0),
        "transactions": lambda: send(transactional_id=topic, outcomes="ca"),
        "assign": lambda: consume_aiokafka(address, topic),
        "committed": lambda: consume_aiokafka(address, topic, isolation_level="read_committed"),
        "offsets": lambda: commit_in_transaction_aiokafka(address, topic),
        "admin": lambda: create_and_describe_aiokafka(address, topic),
        "sasl": lambda: send_aiokafka(secured, topic, ROWS, "none", **login),
    }


CLIENTS = {
    "librdkafka": use_librdkafka,
    "java": use_java,
    "kafka-python": use_kafka_python,
    "aiokafka": use_aiokafka,
}


def record(target: Path, line: str, only: Collection[str] = ()) -> None:
    """Record the steps of every client with a broker of a line.

    only: the names of the steps to record; empty for all.
    """
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(Proxy())
        secured = stack.enter_context(Proxy())
        listeners = {
            "RECORDED": Listener("PLAINTEXT", proxy.address),
            "SECURED": Listener("SASL_PLAINTEXT", secured.address),
        }
        broker = stack.enter_context(Broker(line=line, listeners=listeners))
        proxy.target = broker.addresses["RECORDED"]
        secured.target = broker.addresses["SECURED"]
        for client, steps in CLIENTS.items():
            topic = f"orders-{client}"
            broker.create_topic(topic)
            directory = target / f"{client}-{line}"
            directory.mkdir(parents=True, exist_ok=bool(only))
            for step, run in steps(proxy.address, secured.address, topic, line).items():
                if only and step not in only:
                    continue
                run()
                connections = [*proxy.take(), *secured.take()]
                used = [
                    connection
                    for connection in connections
                    if connection.requests or connection.responses
                ]
                for number, connection in enumerate(used):
                    (directory / f"{step}-{number}.requests.bin").write_bytes(connection.requests)
                    (directory / f"{step}-{number}.responses.bin").write_bytes(connection.responses)


def main() -> None:
    parser = make_parser(__doc__, STREAMS)
    parser.add_argument("--only", action="append", default=[], metavar="STEP", help="see above")
    arguments = parser.parse_args()
    target = arguments.target
    if not arguments.only:
        shutil.rmtree(target, ignore_errors=True)
    for line in LINES:
        print(f"starting a Kafka broker {line} on 127.0.0.1, writing to {target}")
        record(target, line, arguments.only)
    for directory in sorted(target.iterdir()):
        files = list(directory.iterdir())
        size = sum(file.stat().st_size for file in files)
        print(f"{directory.name}: {len(files) // 2} connections, {size} bytes")


if __name__ == "__main__":
    main()
