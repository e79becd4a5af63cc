"""`wirescan diff` between files and topics of brokers in this process, over sockets."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.command import parse_lines, run
from tests.support.fake_broker import FakeCluster, Server
from wirescan.kafka import Record, encode_batch
from wirescan.kafka.client import Client, Retries

TIME = 1_700_000_000_000


def make_batch(first: int, text: bytes = b"value", **options) -> bytes:
    records = [
        Record(at, TIME + at, b"key", b"%s %d" % (text, at)) for at in range(first, first + 5)
    ]
    return encode_batch(records, **options)


@pytest.fixture(autouse=True)
def retry_quickly(monkeypatch):
    monkeypatch.setattr(
        "wirescan.kafka.client.topic_ranges.Client",
        partial(Client, retries=Retries(attempts=2, first=0.01)),
    )


@pytest.fixture
def cluster():
    """Topic `orders`, whose two partitions have 20 batches each."""
    cluster = FakeCluster(brokers=2)
    cluster.add_topic("orders", partitions=2)
    cluster.topics["orders"][1].leader = 2
    for number in range(2):
        for first in range(0, 100, 5):
            cluster.append("orders", number, make_batch(first, codec="zstd"))
    with Server(cluster):
        yield cluster


@pytest.fixture
def backup(tmp_path):
    """The same partitions as files, with two segments each."""
    for number in range(2):
        folder = tmp_path / f"orders-{number}"
        folder.mkdir()
        for base in (0, 50):
            batches = [make_batch(first, codec="zstd") for first in range(base, base + 50, 5)]
            (folder / f"{base:020}.log").write_bytes(b"".join(batches))
    return tmp_path


def name(cluster: FakeCluster, path: str = "orders/0") -> str:
    return f"kafka://{cluster.bootstrap}/{path}"


def compare(left: object, right: object, *options: str) -> list[tuple]:
    """The differences as (partition, kind, first, last)."""
    result = run("diff", left, right, "--json", *options)
    *lines, summary = parse_lines(result)
    assert result.exit_code == (1 if lines else 0)
    assert summary["equal"] is not bool(lines)
    return [(line.get("partition"), line["kind"], line["first"], line["last"]) for line in lines]


def test_a_copy_is_equal_to_its_topic(cluster, backup, monkeypatch):
    opened = []
    monkeypatch.setattr(
        "wirescan.seglog.log_diff.open_nested", lambda *_, **__: opened.append(1) or iter(())
    )
    result = run("diff", backup / "orders-0", name(cluster))
    assert (result.exit_code, result.stdout) == (0, "equal\n")
    assert compare(name(cluster), name(cluster, "orders/1"), "--exact") == []
    assert opened == []  # equal batches are not opened


def test_differences_are_found_from_both_sides(cluster, backup):
    path = backup / "orders-0" / f"{50:020}.log"
    batches = [make_batch(first, codec="gzip") for first in range(50, 90, 5)]
    batches[2] = make_batch(60, b"other")
    path.write_bytes(b"".join(batches))
    expected = [(None, "different", 60, 64), (None, "missing in A", 90, 99)]
    assert compare(backup / "orders-0", name(cluster)) == expected
    expected[1] = (None, "missing in B", 90, 99)
    assert compare(name(cluster), backup / "orders-0") == expected


def test_leader_epochs_of_brokers_do_not_matter(cluster, backup):
    log = cluster.topics["orders"][0]
    # The checksum does not cover bytes 12 to 15, the leader epoch.
    log.entries = [
        (first, last, data[:12] + b"\0\0\0\7" + data[16:]) for first, last, data in log.entries
    ]
    assert compare(backup / "orders-0", name(cluster)) == []
    assert compare(backup / "orders-0", name(cluster), "--exact") == [(None, "different", 0, 95)]


def test_retention_and_compaction_are_missing_ranges(cluster, backup):
    log = cluster.topics["orders"][0]
    log.entries = [entry for entry in log.entries if entry[0] >= 20 and entry[0] != 50]
    log.start = 20
    assert compare(backup / "orders-0", name(cluster)) == [
        (None, "missing in B", 0, 19),
        (None, "missing in B", 50, 54),
    ]


def test_all_partitions_of_a_topic(cluster, backup):
    assert compare(backup, name(cluster, "orders")) == []
    (backup / "orders-1").rename(backup / "orders-3")
    lines = compare(backup, name(cluster, "orders"))
    assert lines == [(1, "missing in A", 0, 99), (3, "missing in B", 0, 99)]
    result = run("diff", backup, name(cluster, "orders"))
    assert "partition 1: offsets 0 to 99: 100 records missing in A\n" in result.stdout
    assert compare(name(cluster, "orders"), name(cluster, "orders/")) == []


def test_a_damaged_side_cannot_be_compared(cluster, backup):
    path = backup / "orders-0" / f"{50:020}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    result = run("diff", backup / "orders-0", name(cluster))
    assert (result.exit_code, "BAD_CHECKSUM" in result.stderr) == (2, True)
    log = cluster.topics["orders"][1]
    first, last, data = log.entries[-1]
    log.entries[-1] = (first, last, data[:-1] + bytes([data[-1] ^ 1]))
    result = run("diff", backup / "orders-1", name(cluster, "orders/1"))
    assert (result.exit_code, "BAD_CHECKSUM" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        ("orders-0", "kafka://{}/orders/x", "is not kafka://HOST:PORT/TOPIC/PARTITION"),
        ("orders-0", "kafka://{}", "is not kafka://HOST:PORT/TOPIC/PARTITION"),
        ("orders-0", "kafka://{}/a b/0", "no topic can be named"),
        ("orders-0", "kafka://{}/orders", "has no directories orders-0"),
        ("orders-0", "kafka://{}/none/0", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("orders-0", "kafka://{}/orders/9", "orders-9"),
        (".", "kafka://{}/none", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("kafka://{}/orders", "kafka://{}/orders/0", "give both the partition, or neither"),
        ("none", "kafka://{}/orders/0", "none"),
    ],
)
def test_what_cannot_be_compared(cluster, backup, left, right, reason):
    sides = [
        side.format(cluster.bootstrap) if side.startswith("kafka") else backup / side
        for side in (left, right)
    ]
    if left == ".":
        (backup / "none-0").mkdir()
    result = run("diff", *sides)
    assert result.exit_code == 2
    assert reason in result.stderr


def test_formats_of_other_servers_are_not_in_topics(cluster, backup):
    result = run("diff", backup, name(cluster), "--format", "liftbridge.entries")
    assert (result.exit_code, "has no liftbridge.entries" in result.stderr) == (2, True)


def test_logins(cluster, backup, tmp_path):
    cluster.users = {"reader": "secret"}
    password: Path = tmp_path / "password"
    password.write_text("secret\n")
    options = ("--sasl", "PLAIN", "--user", "reader", "--password-file", str(password))
    assert compare(backup / "orders-0", name(cluster), *options) == []
    assert run("diff", backup / "orders-0", name(cluster)).exit_code == 2


def test_addresses_are_not_opened_as_files(cluster, backup, monkeypatch):
    looked_at = []
    monkeypatch.setattr(
        "wirescan.cli.support.format_choice.detect_path",
        lambda path, read, **options: looked_at.append(path) or [],
    )
    assert compare(backup / "orders-0", name(cluster)) == []
    assert looked_at == [str(backup / "orders-0")]
