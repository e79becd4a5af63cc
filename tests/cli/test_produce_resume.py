"""`wirescan produce --resume`, to brokers in this process, over sockets."""

import fcntl
import json
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from click.testing import CliRunner

from tests.support.command import make_environment
from tests.support.fake_broker import FakeCluster, Server
from wirescan import kafka
from wirescan.cli.main import main
from wirescan.kafka import Record, encode_batch
from wirescan.kafka.client import Client, Retries

TIME = 1_700_000_000_000
REFUSED = 29  # TOPIC_AUTHORIZATION_FAILED, which is not retried
STEP = 7  # records that are written together
COUNT = 100


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(
        "wirescan.kafka.client.topic_ranges.Client",
        partial(Client, retries=Retries(attempts=2, first=0.01)),
    )
    monkeypatch.setattr("wirescan.cli.verbs.produce_records.RESUME_RECORDS", STEP)


@pytest.fixture
def cluster():
    cluster = FakeCluster()
    cluster.add_topic("orders", partitions=2)
    cluster.add_topic("others", partitions=2)
    with Server(cluster):
        yield cluster


@pytest.fixture
def log(tmp_path):
    """Directories orders-0 and orders-1, with segments of 50 records each."""
    for number in range(2):
        folder = tmp_path / f"orders-{number}"
        folder.mkdir()
        for base in range(0, COUNT, 50):
            batches = [
                encode_batch(
                    [Record(at, TIME, None, b"%d" % at) for at in range(first, first + 10)]
                )
                for first in range(base, base + 50, 10)
            ]
            (folder / f"{base:020}.log").write_bytes(b"".join(batches))
    return tmp_path


def run(cluster, log, *options, code=0, topic="orders", numbers=(0, 1)):
    folders = [str(log / f"orders-{number}") for number in numbers]
    resume = ["--resume", str(log / "progress")]
    command = ["produce", cluster.bootstrap, topic, *folders, *resume, *map(str, options)]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def read(cluster, number, topic="orders"):
    data = b"".join(data for _, _, data in cluster.topics[topic][number].entries)
    return [int(bytes(row.value)) for row in kafka.records(kafka.scan(data))]


def refuse(cluster, number, after):
    """Make the cluster refuse records of a partition after so many requests."""
    cluster.errors["Produce", "orders", number].extend([0] * after + [REFUSED])


def test_a_refused_run_continues_where_it_ended(cluster, log):
    refuse(cluster, 0, after=9)
    run(cluster, log, code=2)
    assert read(cluster, 0) == list(range(57))  # 7 records at a time, and the rest of each segment
    refuse(cluster, 1, after=3)
    result = run(cluster, log, code=2)
    assert f"{log / 'orders-0'}: continues at offset 57\n" in result.stderr
    assert read(cluster, 0) == list(range(COUNT))
    run(cluster, log)
    assert read(cluster, 1) == list(range(COUNT))
    asked = len(cluster.asked)
    assert "wrote 0 records" in run(cluster, log).stdout
    assert "Produce" not in [request[1] for request in cluster.asked[asked:]]


def test_only_unknown_records_of_several_partitions_may_come_twice(cluster, log):
    refuse(cluster, 1, after=4)
    run(cluster, log, "--partitioner", "round_robin", code=2, numbers=[0])
    before = read(cluster, 0) + read(cluster, 1)
    run(cluster, log, "--partitioner", "round_robin", numbers=[0])
    values = read(cluster, 0) + read(cluster, 1)
    assert sorted(set(values)) == list(range(COUNT))
    assert len(values) - COUNT < STEP
    assert len(before) < COUNT


def test_limits_count_the_records_of_all_runs(cluster, log):
    refuse(cluster, 0, after=2)
    run(cluster, log, "--limit", 30, code=2)
    assert read(cluster, 0) == list(range(14))
    for _ in range(2):
        run(cluster, log, "--limit", 30)
        assert (read(cluster, 0), read(cluster, 1)) == (list(range(30)), [])


def test_files_that_are_added_later_are_written(cluster, log):
    later = log / "orders-0" / f"{50:020}.log"
    data = later.read_bytes()
    later.unlink()
    run(cluster, log)
    assert read(cluster, 0) == list(range(50))
    later.write_bytes(data)
    run(cluster, log)
    assert read(cluster, 0) == list(range(COUNT))


def test_a_cut_last_line_is_not_counted(cluster, log):
    run(cluster, log, numbers=[0])
    path = log / "progress"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:9])
    run(cluster, log, numbers=[0])
    assert read(cluster, 0) == [*range(COUNT), COUNT - 1]
    assert path.read_bytes().splitlines(keepends=True) == lines
    path.write_bytes(lines[0][:20])
    run(cluster, log, numbers=[1])
    assert read(cluster, 1) == list(range(COUNT))


@pytest.mark.parametrize(
    ("options", "topic", "setting"),
    [
        (("--partition", 1), "orders", "partition null, not 1"),
        (("--partitioner", "sticky"), "orders", 'partitioner null, not "sticky"'),
        (("--where", "size > 1"), "orders", "conditions [], not ["),
        ((), "others", 'topic "orders", not "others"'),
    ],
)
def test_other_options_are_refused(cluster, log, options, topic, setting):
    run(cluster, log)
    asked = len(cluster.asked)
    assert setting in run(cluster, log, *options, topic=topic, code=2).stderr
    assert "Produce" not in [request[1] for request in cluster.asked[asked:]]


@pytest.mark.parametrize(
    "content",
    [
        b"\n",
        b"[]\n",
        b"some notes",
        b"some notes\n",
        b'{"version": 1}\n',
        b"SETTINGS[]\n",
        b'SETTINGS{"log": 1, "next_offset": 1, "records": 1}\n',
        b'SETTINGS{"log": "a", "next_offset": -1, "records": 1}\n',
        b'SETTINGS{"log": "a", "next_offset": 1.5, "records": 1}\n',
        b'SETTINGS{"log": "a", "next_offset": 1}\n',
        b"SETTINGSnotes",
    ],
)
def test_files_with_other_content_are_kept(cluster, log, content):
    run(cluster, log, "--limit", 0)
    path = log / "progress"
    settings = path.read_bytes().splitlines(keepends=True)[0]
    content = content.replace(b"SETTINGS", settings)
    path.write_bytes(content)
    assert "is damaged, or no file of wirescan produce" in run(cluster, log, code=2).stderr
    assert path.read_bytes() == content
    assert read(cluster, 0) == []


def test_two_runs_do_not_share_a_file(cluster, log):
    with open(log / "progress", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another wirescan produce" in run(cluster, log, code=2).stderr
    assert read(cluster, 0) == []


def test_segments_in_another_order_are_refused(cluster, log):
    files = sorted(map(str, (log / "orders-0").iterdir()), reverse=True)
    command = ["produce", cluster.bootstrap, "orders", *files, "--resume", str(log / "progress")]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert "the offsets do not rise" in result.stderr


def test_killed_runs_continue(cluster, log):
    """Each kill may cause at most one step of records to be written twice."""
    start = "import wirescan.cli.verbs.produce_records as verb; verb.RESUME_RECORDS = 7; "
    start += "from wirescan.__main__ import start; start()"
    command = [sys.executable, "-c", start, "produce", cluster.bootstrap, "orders"]
    command += [str(log / "orders-0"), "--resume", str(log / "progress")]
    kills = 0
    for written in (15, 40, 80):
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=make_environment(),
        )
        deadline = time.monotonic() + 60
        while process.poll() is None and len(read(cluster, 0)) < written:
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    run(cluster, log, numbers=[0])
    values = read(cluster, 0)
    assert sorted(set(values)) == list(range(COUNT))
    assert len(values) - COUNT <= kills * STEP
    lines = [json.loads(line) for line in (log / "progress").read_text().splitlines()]
    assert sum(line["records"] for line in lines[1:]) == COUNT
