"""`wirescan fetch` from a real broker: its directory holds what consumers read from the broker.

That also holds after runs that were killed.
"""

import contextlib
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
from tests.support.log_files import read_segments

from .broker import PASSWORD, USER
from .canonical import Record, read_with_wirescan
from .producers import CODECS, make_orders, send_librdkafka, send_transactions
from .readers import consume, consume_kafka_python

pytestmark = pytest.mark.peers

VALUES = random.Random(3).randbytes(1 << 20)  # does not compress
SEGMENT = 1 << 20


def make_command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "wirescan", "fetch", *map(str, arguments)]


def make_environment(**variables: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(wirescan.__file__).parents[1]), **variables}


def run(*arguments: object, code: int = 0, **variables: str) -> str:
    """Run the command and return its output. It must end with the exit code `code`."""
    completed = subprocess.run(
        make_command(*arguments),
        capture_output=True,
        text=True,
        timeout=120,
        env=make_environment(**variables),
    )
    assert completed.returncode == code, completed.stdout + completed.stderr
    return completed.stdout + completed.stderr


def run_and_kill(out: Path, written: int, *arguments: object) -> bool:
    """Start the command, and kill it when `out` has so many bytes.

    Returns whether the command was killed before its own end.
    """
    process = subprocess.Popen(
        make_command(*arguments),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=make_environment(),
    )
    while process.poll() is None and measure_size(out) < written:
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def measure_size(out: Path) -> int:
    total = 0
    for folder, _, names in os.walk(out):
        for name in names:
            # The command may rename the file at any time.
            with contextlib.suppress(FileNotFoundError):
                total += os.path.getsize(os.path.join(folder, name))
    return total


def read_parquet(out: Path) -> list[Record]:
    """The records of Parquet files, sorted by offset."""
    table = pyarrow.dataset.dataset(out).to_table().sort_by("offset")
    times = table["timestamp"].cast(pa.timestamp("ms", "UTC")).cast("int64").to_pylist()
    return [
        Record(
            row["offset"],
            time,
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row, time in zip(table.drop_columns(["timestamp"]).to_pylist(), times)
    ]


@pytest.fixture(scope="session")
def mixed(broker):
    """A topic of one partition with all codecs, a committed and two aborted transactions."""
    topic = "fetch-mixed"
    broker.create_topic(topic, {"segment.bytes": 1 << 20})
    for seed, codec in enumerate(CODECS):
        send_librdkafka(broker.address, topic, make_orders(1500, seed), codec)
    send_transactions(
        broker.address, topic, make_orders(300, seed=9), "lz4", "aca", f"fetch-{broker.line}"
    )
    return SimpleNamespace(topic=topic, address=broker.address, directory=broker.directory(topic))


@pytest.fixture(scope="session")
def large(broker_4):
    """Three partitions of 24 MB each."""
    from confluent_kafka import Producer

    topic = "fetch-large"
    broker_4.create_topic(topic, {"segment.bytes": 8 << 20}, partitions=3)
    producer = Producer(
        {"bootstrap.servers": broker_4.address, "linger.ms": 20, "compression.type": "lz4"}
    )
    for number in range(3 * 24_000):
        start = number * 997 % (len(VALUES) - 1000)
        value = VALUES[start : start + 1000]
        producer.produce(topic, value, key=b"%d" % number, partition=number % 3)
        producer.poll(0)
        if number % 10_000 == 0:
            producer.flush(30)
    assert producer.flush(60) == 0
    return SimpleNamespace(
        topic=topic,
        address=broker_4.address,
        directories=[broker_4.directory(topic, number) for number in range(3)],
    )


def test_segments_are_those_of_the_broker(mixed, tmp_path):
    out = tmp_path / "out"
    output = run(mixed.address, mixed.topic, "--to", out, "--segment-bytes", 150_000)
    copy = out / f"{mixed.topic}-0"
    assert read_segments(copy) == read_segments(mixed.directory)
    sizes = [path.stat().st_size for path in sorted(copy.glob("*.log"))]
    assert len(sizes) > 2
    assert max(sizes) <= 150_000
    assert min(sizes[:-1]) > 75_000
    assert f"{mixed.topic}-0: offsets 0 to " in output
    records = read_with_wirescan(copy)
    assert records == read_with_wirescan(mixed.directory)
    consumed = consume_kafka_python(mixed.address, mixed.topic)
    control = {record.offset for record in records} - {record.offset for record in consumed}
    assert len(control) == 3
    output = run(mixed.address, mixed.topic, "--to", out, "--segment-bytes", 150_000)
    assert "nothing from offset" in output
    assert read_segments(copy) == read_segments(mixed.directory)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_parquet_holds_what_consumers_read(mixed, tmp_path, isolation):
    run(
        mixed.address,
        mixed.topic,
        "--to",
        tmp_path / "out",
        "--as",
        "parquet",
        "--segment-bytes",
        300_000,
        "--isolation",
        isolation,
    )
    files = sorted((tmp_path / "out").glob("*.parquet"))
    rows = read_parquet(tmp_path / "out")
    assert len(files) > 2
    assert rows == consume(mixed.address, mixed.topic, isolation)
    assert rows == consume_kafka_python(mixed.address, mixed.topic, isolation_level=isolation)
    assert pq.read_schema(files[0]).names[:3] == ["topic", "partition", "offset"]
    first_row = pq.read_table(files[0], columns=["topic", "partition"]).slice(0, 1)
    assert first_row.to_pylist() == [{"topic": mixed.topic, "partition": 0}]


def test_a_range_of_offsets(mixed, tmp_path):
    run(
        mixed.address,
        mixed.topic,
        "--to",
        tmp_path / "p",
        "--as",
        "parquet",
        "--start",
        777,
        "--stop",
        3001,
    )
    assert [row.offset for row in read_parquet(tmp_path / "p")] == list(range(777, 3001))
    arguments = (mixed.address, mixed.topic, "--to", tmp_path / "s", "--start", 777, "--stop", 3001)
    run(*arguments)
    offsets = [record.offset for record in read_with_wirescan(tmp_path / "s" / f"{mixed.topic}-0")]
    assert offsets == list(range(offsets[0], offsets[-1] + 1))
    # Segments hold whole batches of 200 records.
    assert 777 - 200 < offsets[0] <= 777
    assert 3000 <= offsets[-1] < 3001 + 200
    assert "nothing from offset" in run(*arguments)


def test_a_range_of_times(mixed, tmp_path):
    records = consume(mixed.address, mixed.topic)
    moment = records[1000].timestamp
    first = next(record.offset for record in records if record.timestamp >= moment)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment // 1000)) + f".{moment % 1000:03}"
    run(mixed.address, mixed.topic, "--to", tmp_path / "out", "--as", "parquet", "--start", text)
    assert read_parquet(tmp_path / "out") == [
        record for record in records if record.offset >= first
    ]


def test_segments_are_complete_after_kills(large, tmp_path):
    out = tmp_path / "out"
    arguments = (large.address, large.topic, "--to", out, "--segment-bytes", SEGMENT)
    kills = sum(run_and_kill(out, written << 20, *arguments) for written in (2, 15, 31, 50, 60))
    assert kills >= 3
    run(*arguments)
    for number, directory in enumerate(large.directories):
        assert read_segments(out / f"{large.topic}-{number}") == read_segments(directory)


def test_parquet_is_complete_after_kills(large, tmp_path):
    out = tmp_path / "out"
    arguments = (
        large.address,
        large.topic,
        "--to",
        out,
        "--as",
        "parquet",
        "--segment-bytes",
        SEGMENT,
        "--compression",
        "none",
    )
    kills = sum(run_and_kill(out, written << 20, *arguments) for written in (2, 15, 31, 50, 60))
    assert kills >= 3
    run(*arguments)
    table = pyarrow.dataset.dataset(out).to_table(columns=["partition", "offset", "key"])
    for number in range(3):
        part = table.filter(pc.field("partition") == number).sort_by("offset")
        assert part["offset"].to_pylist() == list(range(24_000))
        assert part["key"].to_pylist() == [b"%d" % key for key in range(number, 72_000, 3)]
    assert not list(out.glob("*.partial"))


def test_later_records_are_added(broker_4, tmp_path):
    broker_4.create_topic("fetch-growing")
    rows = make_orders(400, seed=5, big=False)
    for kind in ("segments", "parquet"):
        run(broker_4.address, "fetch-growing", "--to", tmp_path / kind, "--as", kind)
    for part in (rows[:150], rows[150:400]):
        send_librdkafka(broker_4.address, "fetch-growing", part, "zstd")
        for kind in ("segments", "parquet"):
            run(broker_4.address, "fetch-growing", "--to", tmp_path / kind, "--as", kind)
    sent = [(number, *row[1:]) for number, row in enumerate(rows)]
    assert read_parquet(tmp_path / "parquet") == sent
    assert read_with_wirescan(tmp_path / "segments" / "fetch-growing-0") == sent


def test_deleted_offsets_are_reported(broker_4, tmp_path):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    broker_4.create_topic("fetch-gone")
    rows = make_orders(300, seed=6, big=False)
    arguments = (broker_4.address, "fetch-gone", "--to", tmp_path, "--as", "parquet")
    send_librdkafka(broker_4.address, "fetch-gone", rows[:100], "none")
    run(*arguments)
    send_librdkafka(broker_4.address, "fetch-gone", rows[100:], "none")
    admin = AdminClient({"bootstrap.servers": broker_4.address})
    deletions = admin.delete_records([TopicPartition("fetch-gone", 0, 200)])
    deletions[TopicPartition("fetch-gone", 0)].result(30)
    assert "fetch-gone-0: offsets 100 to 199 are gone" in run(*arguments, code=1)
    assert len(read_parquet(tmp_path)) == 100
    output = run(*arguments, "--errors", "mark", code=1)
    assert "fetch-gone-0: offsets 100 to 199 are gone" in output
    assert [row.offset for row in read_parquet(tmp_path)] == [*range(100), *range(200, 300)]
    assert "are gone" not in run(*arguments)


def test_a_new_topic_of_the_same_name_is_refused(broker_4, tmp_path):
    from confluent_kafka.admin import AdminClient

    broker_4.create_topic("fetch-again")
    run(broker_4.address, "fetch-again", "--to", tmp_path)
    admin = AdminClient({"bootstrap.servers": broker_4.address})
    admin.delete_topics(["fetch-again"])["fetch-again"].result(30)
    broker_4.create_topic("fetch-again")
    output = run(broker_4.address, "fetch-again", "--to", tmp_path, code=2)
    assert "holds fetch-again with topic id" in output


def test_fetch_logs_in_with_tls(broker_4, tmp_path):
    broker_4.create_topic("fetch-secure")
    rows = make_orders(50, seed=7, big=False)
    send_librdkafka(broker_4.address, "fetch-secure", rows, "none")
    arguments = (
        broker_4.addresses["SASL_SSL"],
        "fetch-secure",
        "--tls-ca",
        broker_4.authority,
        "--sasl",
        "PLAIN",
        "--user",
        USER,
        "--json",
        "--to",
    )
    (tmp_path / "password").write_text(PASSWORD + "\n")
    output = run(*arguments, tmp_path / "out", "--password-file", tmp_path / "password")
    report = next(line for line in output.splitlines() if line.startswith("{"))
    assert json.loads(report)["records"] == 50
    records = read_with_wirescan(tmp_path / "out" / "fetch-secure-0")
    assert [record[1:] for record in records] == [row[1:] for row in rows]
    output = run(*arguments, tmp_path / "no", code=2, WIRESCAN_PASSWORD="wrong")
    assert "SASL_AUTHENTICATION_FAILED" in output
