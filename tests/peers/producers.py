"""Known records, and four clients that send them to a broker: librdkafka, kafka-python, aiokafka and Java's.

Every `send_*` takes (address, topic, rows, codec), sends the rows to partition 0 in order, and returns when
all are acknowledged. The offset of a row is the broker's to give, so it is -1 here.
"""
import asyncio
import random
import tempfile
from collections.abc import Iterable

from .canonical import Record, canonical
from .readers import peer, properties

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EPOCH = 1_700_000_000_000  # 2023-11-14, in milliseconds
DAY = 86_400_000

ODD_HEADERS = ((b"a", b"1"), (b"a", None), (b"", b""), (b"a", b"2"), ("schlüssel".encode(), b"\x00\xff"),
               (b"e", b""))


def orders(count: int, seed: int, big: bool = True, null_headers: bool = True) -> list[Record]:
    """`count` records, the same for the same seed.

    Among them: null keys, null and empty values, headers (duplicate, empty, null), a value of tens of KB in
    each 1000 (unless `big` is false), times that go back, and times 40 days away (a delta beyond 32 bits).
    kafka-python's producer refuses null header values: `null_headers` false leaves those out.
    """
    chance = random.Random(seed)
    rows = [order(chance, number, big) for number in range(count)]
    if null_headers:
        return rows
    return [row._replace(headers=tuple(pair for pair in row.headers if pair[1] is not None)) for row in rows]


def order(chance: random.Random, number: int, big: bool) -> Record:
    key = b"customer-%04d" % chance.randrange(800)
    value = b'{"order": %d, "item": "%s", "amount": %d.%02d, "currency": "%s", "note": "%s"}' % (
        number, chance.choice([b"kettle", b"lamp", b"chair", b"rug"]), chance.randrange(500),
        chance.randrange(100), chance.choice([b"EUR", b"USD", b"GBP"]), b"%x" % chance.getrandbits(96))
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


def compactable(count: int, seed: int) -> list[Record]:
    """Food for the log cleaner: few keys, none null, tombstones; one key in nine comes only once."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        key = b"once-%d-%d" % (seed, number) if number % 9 == 4 else b"stock-%d" % chance.randrange(100)
        value = None if number % 7 == 6 else b"%x" % chance.getrandbits(200)
        headers = ((b"seed", b"%d" % seed),) if number % 5 == 0 else ()
        rows.append(Record(-1, EPOCH + number, key, value, headers))
    return rows


def text_headers(row: Record) -> list[tuple[str, bytes | None]]:
    return [(name.decode(), content) for name, content in row.headers]


def send_librdkafka(address: str, topic: str, rows: Iterable[Record], codec: str, **config) -> None:
    """With librdkafka; `config` in its words, "_" for "." (`enable_idempotence=True`)."""
    from confluent_kafka import Producer

    producer = Producer(librdkafka_config(address, codec, config))
    fill(producer, topic, rows)


def librdkafka_config(address: str, codec: str, config: dict) -> dict:
    common = {"bootstrap.servers": address, "compression.type": codec, "linger.ms": 200,
              "batch.num.messages": 200, "max.in.flight.requests.per.connection": 1}
    return common | {key.replace("_", "."): value for key, value in config.items()}


def fill(producer, topic: str, rows: Iterable[Record]) -> None:
    """Send rows with a confluent-kafka producer and wait; every delivery error raises."""
    failed = []

    def delivered(error, _message):
        if error is not None:
            failed.append(error)

    for row in rows:
        producer.produce(topic, value=row.value, key=row.key, partition=0, timestamp=row.timestamp,
                         headers=text_headers(row), on_delivery=delivered)
        producer.poll(0)
    left = producer.flush(30)
    if left or failed:
        raise RuntimeError(f"librdkafka left {left} records and failed with {failed[:1]}")


def send_transactions(address: str, topic: str, rows: list[Record], codec: str, outcomes: str,
                      name: str) -> None:
    """One transaction per letter of `outcomes`, c to commit and a to abort; the rows are dealt out evenly."""
    from confluent_kafka import Producer

    producer = Producer(librdkafka_config(address, codec, {"transactional_id": name}))
    producer.init_transactions(30)
    share = len(rows) // len(outcomes)
    for turn, outcome in enumerate(outcomes):
        producer.begin_transaction()
        fill(producer, topic, rows[turn * share:(turn + 1) * share])
        if outcome == "c":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def send_interleaved(address: str, topic: str, rows: list[Record], codec: str) -> None:
    """Three transactions open at once in one partition: one commits, one aborts, one is left open."""
    from confluent_kafka import Producer

    producers = [Producer(librdkafka_config(address, codec, {"transactional_id": f"{topic}-{number}",
                                                             "transaction_timeout_ms": 600_000}))
                 for number in range(3)]
    for producer in producers:
        producer.init_transactions(30)
        producer.begin_transaction()
    for turn, at in enumerate(range(0, len(rows), 10)):
        number = turn % 3 if at * 2 >= len(rows) else turn % 2  # the one left open holds back what follows it
        fill(producers[number], topic, rows[at:at + 10])
    producers[0].commit_transaction(30)
    producers[1].abort_transaction(30)


def send_kafka_python(address: str, topic: str, rows: Iterable[Record], codec: str, **config) -> None:
    from kafka import KafkaProducer

    own = {"acks": "all", "linger_ms": 50, "max_in_flight_requests_per_connection": 1}
    producer = KafkaProducer(bootstrap_servers=address, compression_type=None if codec == "none" else codec,
                             **own | config)
    try:
        sent = [producer.send(topic, value=row.value, key=row.key, partition=0, timestamp_ms=row.timestamp,
                              headers=text_headers(row)) for row in rows]
        producer.flush(30)
        for one in sent:
            one.get(30)
    finally:
        producer.close()


def send_aiokafka(address: str, topic: str, rows: Iterable[Record], codec: str, *, outcomes: str = "",
                  **config) -> None:
    """With aiokafka, in its words; `outcomes` as for send_transactions."""
    asyncio.run(_send_aiokafka(address, topic, rows, None if codec == "none" else codec, outcomes, config))


async def _send_aiokafka(address: str, topic: str, rows: Iterable[Record], codec: str | None, outcomes: str,
                         config: dict) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=address, compression_type=codec,
                                **{"acks": "all", "linger_ms": 50} | config) as producer:
        rows = list(rows)
        share = len(rows) // max(len(outcomes), 1)
        for turn, outcome in enumerate(outcomes or "-"):
            if outcomes:
                await producer.begin_transaction()
            sent = [await producer.send(topic, value=row.value, key=row.key, partition=0,
                                        timestamp_ms=row.timestamp, headers=text_headers(row))
                    for row in rows[turn * share:(turn + 1) * share]]
            await asyncio.gather(*sent)
            if outcome == "c":
                await producer.commit_transaction()
            elif outcome == "a":
                await producer.abort_transaction()


def send_java(address: str, topic: str, rows: Iterable[Record], codec: str, *, line: str = "3.9", outcomes: str = "",
              **config) -> None:
    """With Java's client, in its words, "_" for "."; `outcomes` as for send_transactions."""
    config = {"bootstrap.servers": address, "compression.type": codec, "acks": "all", "linger.ms": 50,
              "max.request.size": 4 << 20} | {key.replace("_", "."): value for key, value in config.items()}
    with tempfile.NamedTemporaryFile() as settings, tempfile.NamedTemporaryFile() as file:
        file.write(canonical(rows))
        file.flush()
        peer("produce", properties(settings, config), topic, file.name, outcomes, line=line)


SENDERS = {"librdkafka": send_librdkafka, "kafka-python": send_kafka_python, "aiokafka": send_aiokafka,
           "java": send_java}
