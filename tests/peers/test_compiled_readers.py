"""The programs in Go, Rust and C that the benchmarks compare: they read what wirescan reads."""

import pytest

from bench.peers import compiled
from wirescan import kafka

pytestmark = pytest.mark.peers
VALUES = [b"first", None, b"", b"the fourth value, " * 9]
KEYS = [b"k", b"key", None, b""]
COUNTS = [0, 2, 1, 0]  # headers of each record
REPEATS = 200
PARTITIONS = 2


def make_batches(codec="none"):
    headers = ([*COUNTS] * REPEATS, [b"trace"] * 3 * REPEATS, [b"id", None, b""] * REPEATS)
    return bytes(
        kafka.encode_batches(
            VALUES * REPEATS,
            keys=KEYS * REPEATS,
            headers=headers,
            timestamps=1_700_000_000_000,
            base_offset=1 << 40,
            batch_bytes=8192,
            codec=codec,
        )
    )


def sum_batches(data):
    return compiled.sum_records([kafka.records(kafka.scan(data))])


def find_decoder(name):
    built = compiled.build_decoders()
    if name not in built.paths:
        pytest.skip(" ".join(built.missing))
    return str(built.paths[name])


def pass_over(name, path, expected, *, check=True):
    """One pass of a decoder over a file. It raises RuntimeError, as Program does."""
    program = compiled.Program(name, [find_decoder(name), str(path)], expected)
    try:
        return program.seconds(check=check)
    finally:
        program.close()


@pytest.fixture(params=[compiled.FRANZ_GO, compiled.KAFKA_PROTOCOL])
def decoder(request):
    return request.param


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_decoders_read_the_same_records(decoder, codec, tmp_path):
    data = make_batches(codec)
    path = tmp_path / "segment.log"
    path.write_bytes(data)
    expected = sum_batches(data)
    assert expected.records == len(VALUES) * REPEATS
    assert pass_over(decoder, path, expected) > 0
    assert pass_over(decoder, path, expected, check=False) > 0


def test_decoders_notice_a_missing_record(decoder, tmp_path):
    data = make_batches()
    path = tmp_path / "segment.log"
    path.write_bytes(data[: kafka.scan(data)["start"][-1]])
    with pytest.raises(RuntimeError, match="and wirescan reads"):
        pass_over(decoder, path, sum_batches(data))


def test_decoders_verify_checksums(decoder, tmp_path):
    data = bytearray(make_batches())
    expected = sum_batches(bytes(data))
    data[-100] ^= 1  # inside the last value, so only the checksum shows it
    path = tmp_path / "segment.log"
    path.write_bytes(data)
    with pytest.raises(RuntimeError, match=r"checksum|Cyclic redundancy"):
        pass_over(decoder, path, expected)


def test_consumers_read_the_same_records(broker_39):
    broker_39.create_topic("compiled-consumers", partitions=PARTITIONS)
    fill_topic(broker_39.address)
    expected = compiled.sum_records(
        part.records for part in kafka.fetch(broker_39.address, "compiled-consumers")
    )
    assert expected.records == 2 * len(VALUES) * REPEATS
    programs = compiled.start_consumers(
        broker_39.address, "compiled-consumers", PARTITIONS, expected
    )
    try:
        for program in programs:
            assert 0 < program.seconds() < 20  # a program that waits for more records takes 30
    finally:
        for program in programs:
            program.close()
    if compiled.build_consumers().missing:
        pytest.skip(" ".join(compiled.build_consumers().missing))


def fill_topic(address):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address})
    for partition in range(PARTITIONS):
        for value, key in zip(VALUES * REPEATS, KEYS * REPEATS, strict=True):
            producer.produce("compiled-consumers", value, key, partition)
    assert producer.flush(30) == 0
