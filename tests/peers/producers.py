"""Known records, and four clients that send them: librdkafka, kafka-python, aiokafka and Java's.

Every `send_*` takes (address, topic, rows, codec). It sends the rows to partition 0 in order, and
returns when the broker has acknowledged all of them. The broker assigns the offsets, so a row's
offset is -1 here.
"""

import asyncio
import random
import tempfile
from collections.abc import Iterable

from .canonical import Record, encode_records
from .readers import run_peer, write_properties

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EPOCH = 1_700_000_000_000  # 2023-11-14, in milliseconds
DAY = 86_400_000

ODD_HEADERS = (
    (b"a", b"1"),
    (b"a", None),
    (b"", b""),
    (b"a", b"2"),
    ("schlüssel".encode(), b"\x00\xff"),
    (b"e", b""),
)


def make_orders(
    count: int, seed: int, *, big: bool = True, null_headers: bool = True
) -> list[Record]:
    """Make `count` records. The same seed gives the same records.

    They have null keys, null and empty values, and headers (duplicate, empty, null). Times go back,
    and some are 40 days away (a delta of more than 32 bits). big: one value in 1000 has tens of KB.
    null_headers: kafka-python's producer refuses null header values; False omits those.
    """
    chance = random.Random(seed)
    rows = [make_order(chance, number, big=big) for number in range(count)]
    if null_headers:
        return rows
    return [
        row._replace(headers=tuple(pair for pair in row.headers if pair[1] is not None))
        for row in rows
    ]


def make_order(chance: random.Random, number: int, *, big: bool) -> Record:
    key = b"customer-%04d" % chance.randrange(800)
    value = b'{"order": %d, "item": "%s", "amount": %d.%02d, "currency": "%s", "note": "%s"}' % (
        number,
        chance.choice([b"kettle", b"lamp", b"chair", b"rug"]),
        chance.randrange(500),
        chance.randrange(100),
        chance.choice([b"EUR", b"USD", b"GBP"]),
        b"%x" % chance.getrandbits(96),
    )
    timestamp = EPOCH + number * 40 + chance.randrange(100)
    headers = ((b"trace", chance.randbytes(8)),) if number % 4 == 0 else ()
    if number % 17 == 3:
        key = None
    elif number % 19 == 5:
        value = None
    if number % 23 == 7:
        value = b""
    if number % 50 == 11:
        headers = ODD_HEADERS
    if number % 101 == 13:
        timestamp -= 90_000
    if number % 400 == 17:
        timestamp += 40 * DAY
    if big and number % 1000 == 500:
        value = chance.randbytes(6_000).hex().encode() + b" " * chance.randrange(20_000, 50_000)
    return Record(-1, timestamp, key, value, headers)


def make_compactable(count: int, seed: int) -> list[Record]:
    """Records for the log cleaner: few keys, none of them null, and tombstones.

    One key in nine occurs only once.
    """
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        if number % 9 == 4:
            key = b"once-%d-%d" % (seed, number)
        else:
            key = b"stock-%d" % chance.randrange(100)
        value = None if number % 7 == 6 else b"%x" % chance.getrandbits(200)
        headers = ((b"seed", b"%d" % seed),) if number % 5 == 0 else ()
        rows.append(Record(-1, EPOCH + number, key, value, headers))
    return rows


def decode_headers(row: Record) -> list[tuple[str, bytes | None]]:
    return [(name.decode(), content) for name, content in row.headers]


def send_librdkafka(address: str, topic: str, rows: Iterable[Record], codec: str, **config) -> None:
    """Send with librdkafka. config: its options, with "_" for "."."""
    from confluent_kafka import Producer

    producer = Producer(make_librdkafka_config(address, codec, config))
    fill(producer, topic, rows)


def make_librdkafka_config(address: str, codec: str, config: dict) -> dict:
    common = {
        "bootstrap.servers": address,
        "compression.type": codec,
        "linger.ms": 200,
        "batch.num.messages": 200,
        "max.in.flight.requests.per.connection": 1,
    }
    return common | {key.replace("_", "."): value for key, value in config.items()}


def fill(producer, topic: str, rows: Iterable[Record]) -> None:
    """Send rows with a confluent-kafka producer and wait. Every delivery error raises."""
    errors = []

    def collect_error(error, _message):
        if error is not None:
            errors.append(error)

    for row in rows:
        producer.produce(
            topic,
            value=row.value,
            key=row.key,
            partition=0,
            timestamp=row.timestamp,
            headers=decode_headers(row),
            on_delivery=collect_error,
        )
        producer.poll(0)
    unsent = producer.flush(30)
    if unsent or errors:
        raise RuntimeError(f"librdkafka did not send {unsent} records: {errors[:1]}")


def send_transactions(
    address: str, topic: str, rows: list[Record], codec: str, outcomes: str, name: str
) -> None:
    """Send one transaction per letter of `outcomes`: c commits, a aborts.

    Every transaction has the same number of rows.
    """
    from confluent_kafka import Producer

    producer = Producer(make_librdkafka_config(address, codec, {"transactional_id": name}))
    producer.init_transactions(30)
    share = len(rows) // len(outcomes)
    for turn, outcome in enumerate(outcomes):
        producer.begin_transaction()
        fill(producer, topic, rows[turn * share : (turn + 1) * share])
        if outcome == "c":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def send_interleaved(address: str, topic: str, rows: list[Record], codec: str) -> None:
    """Open three transactions at once in one partition.

    One commits, one aborts and one stays open.
    """
    from confluent_kafka import Producer

    producers = []
    for number in range(3):
        config = {"transactional_id": f"{topic}-{number}", "transaction_timeout_ms": 600_000}
        producers.append(Producer(make_librdkafka_config(address, codec, config)))
    for producer in producers:
        producer.init_transactions(30)
        producer.begin_transaction()
    for turn, first in enumerate(range(0, len(rows), 10)):
        # read_committed consumers stop at the open transaction. So it begins in the second half.
        number = turn % 3 if first * 2 >= len(rows) else turn % 2
        fill(producers[number], topic, rows[first : first + 10])
    producers[0].commit_transaction(30)
    producers[1].abort_transaction(30)


def send_kafka_python(
    address: str, topic: str, rows: Iterable[Record], codec: str, **config
) -> None:
    from kafka import KafkaProducer

    defaults = {"acks": "all", "linger_ms": 50, "max_in_flight_requests_per_connection": 1}
    producer = KafkaProducer(
        bootstrap_servers=address,
        compression_type=None if codec == "none" else codec,
        **defaults | config,
    )
    try:
        futures = [
            producer.send(
                topic,
                value=row.value,
                key=row.key,
                partition=0,
                timestamp_ms=row.timestamp,
                headers=decode_headers(row),
            )
            for row in rows
        ]
        producer.flush(30)
        for future in futures:
            future.get(30)
    finally:
        producer.close()


def send_aiokafka(
    address: str, topic: str, rows: Iterable[Record], codec: str, *, outcomes: str = "", **config
) -> None:
    """Send with aiokafka. config: its options. outcomes: as for send_transactions."""
    asyncio.run(
        _send_aiokafka(address, topic, rows, None if codec == "none" else codec, outcomes, config)
    )


async def _send_aiokafka(
    address: str, topic: str, rows: Iterable[Record], codec: str | None, outcomes: str, config: dict
) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(
        bootstrap_servers=address,
        compression_type=codec,
        **{"acks": "all", "linger_ms": 50} | config,
    ) as producer:
        rows = list(rows)
        share = len(rows) // max(len(outcomes), 1)
        for turn, outcome in enumerate(outcomes or "-"):
            if outcomes:
                await producer.begin_transaction()
            futures = [
                await producer.send(
                    topic,
                    value=row.value,
                    key=row.key,
                    partition=0,
                    timestamp_ms=row.timestamp,
                    headers=decode_headers(row),
                )
                for row in rows[turn * share : (turn + 1) * share]
            ]
            await asyncio.gather(*futures)
            if outcome == "c":
                await producer.commit_transaction()
            elif outcome == "a":
                await producer.abort_transaction()


def send_java(
    address: str,
    topic: str,
    rows: Iterable[Record],
    codec: str,
    *,
    line: str = "3.9",
    outcomes: str = "",
    **config,
) -> None:
    """Send with Java's client.

    config: its options, with "_" for ".". outcomes: as for send_transactions.
    """
    config = {
        "bootstrap.servers": address,
        "compression.type": codec,
        "acks": "all",
        "linger.ms": 50,
        "max.request.size": 4 << 20,
    } | {key.replace("_", "."): value for key, value in config.items()}
    with tempfile.NamedTemporaryFile() as settings, tempfile.NamedTemporaryFile() as file:
        file.write(encode_records(rows))
        file.flush()
        run_peer(
            "produce", write_properties(settings, config), topic, file.name, outcomes, line=line
        )


SENDERS = {
    "librdkafka": send_librdkafka,
    "kafka-python": send_kafka_python,
    "aiokafka": send_aiokafka,
    "java": send_java,
}
