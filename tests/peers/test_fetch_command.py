"""`wirescan fetch` from a real broker: what its directory holds is what the broker has and what consumers read, also
after runs that were killed in the middle."""
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import wirescan

from .broker import PASSWORD, USER
from .canonical import Record, from_wirescan
from .producers import CODECS, orders, send_librdkafka, send_transactions
from .readers import consume, consume_kafka_python

pytestmark = pytest.mark.peers

VALUES = random.Random(3).randbytes(1 << 20)        # does not compress
SEGMENT = 1 << 20


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "wirescan", "fetch", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(wirescan.__file__).parents[1]), **more}


def run(*arguments: object, code: int = 0, **more: str) -> str:
    """What the command prints, on both streams; `code` is the one that it must end with."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=120, env=environment(**more))
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def killed(out: Path, written: int, *arguments: object) -> bool:
    """Starts the command and kills it once `out` has so many bytes; whether it came to that."""
    process = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env=environment())
    while process.poll() is None and size_of(out) < written:
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def size_of(out: Path) -> int:
    total = 0
    for folder, _, names in os.walk(out):
        for name in names:
            try:
                total += os.path.getsize(os.path.join(folder, name))
            except FileNotFoundError:           # renamed meanwhile
                pass
    return total


def content(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def rows_of(out: Path) -> list[Record]:
    """The records in Parquet files, in the order of their offsets."""
    table = pyarrow.dataset.dataset(out).to_table().sort_by("offset")
    times = table["timestamp"].cast(pa.timestamp("ms", "UTC")).cast("int64").to_pylist()
    return [Record(row["offset"], time, row["key"], row["value"],
                   tuple((header["key"], header["value"]) for header in row["headers"]))
            for row, time in zip(table.drop_columns(["timestamp"]).to_pylist(), times)]


@pytest.fixture(scope="session")
def mixed(broker):
    """A topic of one partition in which all codecs, a committed and two aborted transactions follow each other."""
    topic = "fetch-mixed"
    broker.create_topic(topic, {"segment.bytes": 1 << 20})
    for seed, codec in enumerate(CODECS):
        send_librdkafka(broker.address, topic, orders(1500, seed), codec)
    send_transactions(broker.address, topic, orders(300, seed=9), "lz4", "aca", f"fetch-{broker.line}")
    return SimpleNamespace(topic=topic, address=broker.address, directory=broker.directory(topic))


@pytest.fixture(scope="session")
def large(broker_4):
    """Three partitions of 24 MB each."""
    from confluent_kafka import Producer

    topic = "fetch-large"
    broker_4.create_topic(topic, {"segment.bytes": 8 << 20}, partitions=3)
    producer = Producer({"bootstrap.servers": broker_4.address, "linger.ms": 20, "compression.type": "lz4"})
    for number in range(3 * 24_000):
        at = number * 997 % (len(VALUES) - 1000)
        producer.produce(topic, VALUES[at:at + 1000], key=b"%d" % number, partition=number % 3)
        producer.poll(0)
        if number % 10_000 == 0:
            producer.flush(30)
    assert producer.flush(60) == 0
    return SimpleNamespace(topic=topic, address=broker_4.address,
                           directories=[broker_4.directory(topic, number) for number in range(3)])


def test_segments(mixed, tmp_path):
    out = tmp_path / "out"
    told = run(mixed.address, mixed.topic, "--to", out, "--segment-bytes", 150_000)
    copy = out / f"{mixed.topic}-0"
    assert content(copy) == content(mixed.directory)
    sizes = [path.stat().st_size for path in sorted(copy.glob("*.log"))]
    assert len(sizes) > 2 and max(sizes) <= 150_000 and min(sizes[:-1]) > 75_000
    assert f"{mixed.topic}-0: offsets 0 to " in told
    records = from_wirescan(copy)
    assert records == from_wirescan(mixed.directory)
    control = {record.offset for record in records} - {
        record.offset for record in consume_kafka_python(mixed.address, mixed.topic)}
    assert len(control) == 3
    assert "nothing from offset" in run(mixed.address, mixed.topic, "--to", out, "--segment-bytes", 150_000)
    assert content(copy) == content(mixed.directory)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_parquet_as_the_consumers_read(mixed, tmp_path, isolation):
    run(mixed.address, mixed.topic, "--to", tmp_path / "out", "--as", "parquet", "--segment-bytes", 300_000,
        "--isolation", isolation)
    files = sorted((tmp_path / "out").glob("*.parquet"))
    found = rows_of(tmp_path / "out")
    assert len(files) > 2
    assert found == consume(mixed.address, mixed.topic, isolation)
    assert found == consume_kafka_python(mixed.address, mixed.topic, isolation_level=isolation)
    assert pq.read_schema(files[0]).names[:3] == ["topic", "partition", "offset"]
    assert pq.read_table(files[0], columns=["topic", "partition"]).slice(0, 1).to_pylist() == [
        {"topic": mixed.topic, "partition": 0}]


def test_a_range(mixed, tmp_path):
    run(mixed.address, mixed.topic, "--to", tmp_path / "p", "--as", "parquet", "--start", 777, "--stop", 3001)
    assert [row.offset for row in rows_of(tmp_path / "p")] == list(range(777, 3001))
    arguments = (mixed.address, mixed.topic, "--to", tmp_path / "s", "--start", 777, "--stop", 3001)
    run(*arguments)
    offsets = [record.offset for record in from_wirescan(tmp_path / "s" / f"{mixed.topic}-0")]
    assert offsets == list(range(offsets[0], offsets[-1] + 1))
    assert 777 - 200 < offsets[0] <= 777 and 3000 <= offsets[-1] < 3001 + 200         # whole batches of 200
    assert "nothing from offset" in run(*arguments)


def test_a_range_of_times(mixed, tmp_path):
    records = [record for record in consume(mixed.address, mixed.topic)]
    moment = records[1000].timestamp
    first = next(record.offset for record in records if record.timestamp >= moment)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment // 1000)) + f".{moment % 1000:03}"
    run(mixed.address, mixed.topic, "--to", tmp_path / "out", "--as", "parquet", "--start", text)
    assert rows_of(tmp_path / "out") == [record for record in records if record.offset >= first]


def test_segments_after_kills(large, tmp_path):
    out = tmp_path / "out"
    arguments = (large.address, large.topic, "--to", out, "--segment-bytes", SEGMENT)
    kills = sum(killed(out, written << 20, *arguments) for written in (2, 15, 31, 50, 60))
    assert kills >= 3
    run(*arguments)
    for number, directory in enumerate(large.directories):
        assert content(out / f"{large.topic}-{number}") == content(directory)


def test_parquet_after_kills(large, tmp_path):
    out = tmp_path / "out"
    arguments = (large.address, large.topic, "--to", out, "--as", "parquet", "--segment-bytes", SEGMENT,
                 "--compression", "none")
    kills = sum(killed(out, written << 20, *arguments) for written in (2, 15, 31, 50, 60))
    assert kills >= 3
    run(*arguments)
    table = pyarrow.dataset.dataset(out).to_table(columns=["partition", "offset", "key"])
    for number in range(3):
        part = table.filter(pc.field("partition") == number).sort_by("offset")
        assert part["offset"].to_pylist() == list(range(24_000))
        assert part["key"].to_pylist() == [b"%d" % key for key in range(number, 72_000, 3)]
    assert not list(out.glob("*.partial"))


def test_what_comes_later_is_added(broker_4, tmp_path):
    broker_4.create_topic("fetch-growing")
    rows = orders(400, seed=5, big=False)
    for kind in ("segments", "parquet"):
        run(broker_4.address, "fetch-growing", "--to", tmp_path / kind, "--as", kind)
    for part in (rows[:150], rows[150:400]):
        send_librdkafka(broker_4.address, "fetch-growing", part, "zstd")
        for kind in ("segments", "parquet"):
            run(broker_4.address, "fetch-growing", "--to", tmp_path / kind, "--as", kind)
    sent = [(number, *row[1:]) for number, row in enumerate(rows)]
    assert from_wirescan(tmp_path / "segments" / "fetch-growing-0") == rows_of(tmp_path / "parquet") == sent


def test_offsets_that_are_gone(broker_4, tmp_path):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    broker_4.create_topic("fetch-gone")
    rows = orders(300, seed=6, big=False)
    arguments = (broker_4.address, "fetch-gone", "--to", tmp_path, "--as", "parquet")
    send_librdkafka(broker_4.address, "fetch-gone", rows[:100], "none")
    run(*arguments)
    send_librdkafka(broker_4.address, "fetch-gone", rows[100:], "none")
    admin = AdminClient({"bootstrap.servers": broker_4.address})
    admin.delete_records([TopicPartition("fetch-gone", 0, 200)])[TopicPartition("fetch-gone", 0)].result(30)
    assert "fetch-gone-0: offsets 100 to 199 are gone" in run(*arguments, code=1)
    assert len(rows_of(tmp_path)) == 100
    assert "fetch-gone-0: offsets 100 to 199 are gone" in run(*arguments, "--errors", "mark", code=1)
    assert [row.offset for row in rows_of(tmp_path)] == [*range(100), *range(200, 300)]
    assert "are gone" not in run(*arguments)


def test_a_topic_of_the_same_name(broker_4, tmp_path):
    from confluent_kafka.admin import AdminClient

    broker_4.create_topic("fetch-again")
    run(broker_4.address, "fetch-again", "--to", tmp_path)
    admin = AdminClient({"bootstrap.servers": broker_4.address})
    admin.delete_topics(["fetch-again"])["fetch-again"].result(30)
    broker_4.create_topic("fetch-again")
    assert "holds fetch-again with topic id" in run(broker_4.address, "fetch-again", "--to", tmp_path, code=2)


def test_login_and_tls(broker_4, tmp_path):
    broker_4.create_topic("fetch-secure")
    rows = orders(50, seed=7, big=False)
    send_librdkafka(broker_4.address, "fetch-secure", rows, "none")
    arguments = (broker_4.addresses["SASL_SSL"], "fetch-secure", "--tls-ca", broker_4.authority, "--sasl", "PLAIN",
                 "--user", USER, "--json", "--to")
    (tmp_path / "password").write_text(PASSWORD + "\n")
    told = run(*arguments, tmp_path / "out", "--password-file", tmp_path / "password")
    assert json.loads(next(line for line in told.splitlines() if line.startswith("{")))["records"] == 50
    assert [row[1:] for row in from_wirescan(tmp_path / "out" / "fetch-secure-0")] == [row[1:] for row in rows]
    assert "SASL_AUTHENTICATION_FAILED" in run(*arguments, tmp_path / "no", code=2, WIRESCAN_PASSWORD="wrong")
