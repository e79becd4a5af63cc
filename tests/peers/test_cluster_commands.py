"""`wirescan metadata`, `wirescan produce` and `wirescan diff` with real brokers."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from tests.support.command import make_environment
from wirescan.cli.main import main

from .producers import CODECS, make_orders, send_librdkafka, send_transactions
from .readers import consume, consume_kafka_python

pytestmark = pytest.mark.peers


def run(*arguments, code=0, **options):
    result = CliRunner().invoke(main, [*map(str, arguments)], **options)
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def test_metadata_is_that_of_the_broker(broker):
    from confluent_kafka.admin import AdminClient

    topic = "metadata-command"
    broker.create_topic(topic, {}, partitions=3)
    expected = AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=30)
    found = json.loads(run("metadata", broker.address, "--json"))
    assert {item["id"]: (item["host"], item["port"]) for item in found["brokers"]} == {
        item.id: (item.host, item.port) for item in expected.brokers.values()
    }
    assert found["cluster"] == expected.cluster_id
    assert found["controller"] == expected.controller_id
    assert {item["name"] for item in found["topics"]} == set(expected.topics)
    partitions = next(item for item in found["topics"] if item["name"] == topic)["partitions"]
    assert [
        (item["partition"], item["leader"], item["replicas"], item["in_sync"])
        for item in partitions
    ] == [
        (number, item.leader, item.replicas, item.isrs)
        for number, item in sorted(expected.topics[topic].partitions.items())
    ]
    assert f"{topic}-2" in run("metadata", broker.address, "--topic", topic, "--partitions")


def without_offsets(records):
    return [tuple(record)[1:] for record in records]


def test_a_topic_is_restored_from_the_files_of_the_broker(broker):
    """Consumers read the same records from the copy, without those of aborted transactions."""
    source = "produce-source"
    broker.create_topic(source, {"segment.bytes": 1 << 20})
    for seed, codec in enumerate(CODECS):
        send_librdkafka(broker.address, source, make_orders(500, seed), codec)
    send_transactions(
        broker.address, source, make_orders(200, seed=9), "lz4", "aca", f"produce-{broker.line}"
    )
    committed = without_offsets(consume(broker.address, source, "read_committed"))
    assert len(committed) < len(consume(broker.address, source, "read_uncommitted"))
    folder = broker.directory(source)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        copy = f"produce-copy-{codec}"
        broker.create_topic(copy)
        options = ("--compression", codec, "--json")
        report = json.loads(run("produce", broker.address, copy, folder, *options))
        assert report["partitions"] == [
            {
                "partition": 0,
                "records": len(committed),
                "first_offset": 0,
                "last_offset": len(committed) - 1,
            }
        ]
        assert without_offsets(consume(broker.address, copy, "read_committed")) == committed
        assert without_offsets(consume_kafka_python(broker.address, copy)) == committed


def test_a_restore_continues_after_it_is_killed(broker, tmp_path):
    """Each kill may cause at most 10,000 records to be written twice, and none is skipped."""
    source = "resume-source"
    copy = "resume-copy"
    for topic in (source, copy):
        broker.create_topic(topic, {"segment.bytes": 1 << 20})
    orders = make_orders(60_000, 5, big=False)
    send_librdkafka(broker.address, source, orders, "lz4")
    progress = tmp_path / "progress"
    options = [copy, broker.directory(source), "--resume", progress]
    command = [sys.executable, "-m", "wirescan", "produce", broker.address, *map(str, options)]
    kills = 0
    for steps in (1, 3):
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=make_environment(),
        )
        deadline = time.monotonic() + 60
        while process.poll() is None and count_lines(progress) <= steps:
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    assert kills
    run("produce", broker.address, *options)
    expected = without_offsets(consume(broker.address, source, "read_committed"))
    found = without_offsets(consume(broker.address, copy, "read_committed"))
    assert list(dict.fromkeys(found)) == list(dict.fromkeys(expected))
    assert len(expected) <= len(found) <= len(expected) + kills * 10_000
    assert "wrote 0 records" in run("produce", broker.address, *options)


def count_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_selected_records_of_the_broker_are_restored(broker):
    source = "selected-source"
    copy = "selected-copy"
    for topic in (source, copy):
        broker.create_topic(topic)
    orders = make_orders(500, 6)
    send_librdkafka(broker.address, source, orders, "zstd")
    options = ("--offset", "100:400", "--where", "key is not null", "--limit", 200)
    run("produce", broker.address, copy, broker.directory(source), *options)
    expected = [
        tuple(record)[1:]
        for record in consume(broker.address, source, "read_committed")
        if 100 <= record.offset < 400 and record.key is not None
    ]
    assert without_offsets(consume(broker.address, copy, "read_committed")) == expected[:200]


def test_json_lines_reach_consumers(broker):
    source = "produce-json-source"
    copy = "produce-json-copy"
    for topic in (source, copy):
        broker.create_topic(topic)
    send_librdkafka(broker.address, source, make_orders(500, 4), "zstd")
    lines = run("scan", broker.directory(source), "--json")
    run("produce", broker.address, copy, "-", "--lines", "json", input=lines)
    expected = without_offsets(consume(broker.address, source, "read_committed"))
    assert without_offsets(consume(broker.address, copy, "read_committed")) == expected


def test_a_topic_that_does_not_exist(broker, tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("a\n")
    run("produce", broker.address, "produce-none", lines, "--lines", "text", code=2)


@pytest.fixture(scope="session")
def mirrored(broker):
    """A topic of two partitions with all codecs and aborted transactions."""
    topic = "diff-source"
    broker.create_topic(topic, {"segment.bytes": 1 << 20}, partitions=2)
    for seed, codec in enumerate(CODECS):
        send_librdkafka(broker.address, topic, make_orders(500, seed), codec)
    send_transactions(
        broker.address, topic, make_orders(200, seed=9), "lz4", "aca", f"diff-{broker.line}"
    )
    return topic


def test_the_files_of_the_broker_are_equal_to_its_topic(broker, mirrored):
    live = f"kafka://{broker.address}/{mirrored}"
    for options in ((), ("--exact",)):
        assert run("diff", broker.directory(mirrored), f"{live}/0", *options) == "equal\n"
        assert run("diff", f"{live}/1", broker.directory(mirrored, 1), *options) == "equal\n"
    assert run("diff", broker.data, live) == "equal\n"


def test_damage_of_a_copy_is_found_beside_the_topic(broker, mirrored, tmp_path):
    live = f"kafka://{broker.address}/{mirrored}/0"
    copy = tmp_path / "copy" / f"{mirrored}-0"
    shutil.copytree(broker.directory(mirrored), copy)
    segment = min(copy.glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    run("diff", copy, live, code=2)
    repaired = tmp_path / "repaired"
    report = run("salvage", copy, "--to", repaired, "--json", code=1)
    lines = run("diff", repaired / f"{mirrored}-0", live, "--json", code=1).splitlines()
    *differences, summary = map(json.loads, lines)
    assert {line["kind"] for line in differences} == {"missing in A"}
    lost = json.loads(report.splitlines()[-1])["lost_records"]
    assert summary["counts"] == {"missing in A": lost}
