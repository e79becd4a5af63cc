"""The README's examples of live clusters, run against a broker."""

import subprocess
import sys

import pytest

from tests.support.readme import find_block, find_blocks

from .broker import PASSWORD, USER
from .canonical import Record
from .producers import send_librdkafka

pytestmark = pytest.mark.peers
COUNT = 100


@pytest.fixture(scope="session")
def topic(broker_39):
    name = "readme"
    broker_39.create_topic(name, partitions=2)
    send_librdkafka(
        broker_39.address, name, [Record(0, 1_700_000_000_000, b"key", b"value")] * COUNT, "none"
    )
    return name


def test_python_examples_run(broker_39, topic, tmp_path):
    code = find_block("kafka.Client").replace(
        '"localhost:9092", "orders"', repr(broker_39.address) + f", {topic!r}"
    )
    code = code.replace(
        '"broker-1:9092,broker-2:9092", tls=True',
        f"{broker_39.addresses['SASL_SSL']!r}, tls={str(broker_39.authority)!r}",
    )
    code = code.replace('"orders"', repr(topic))
    before = (
        "from wirescan import kafka\n"
        f"user, password = {USER!r}, {PASSWORD!r}\n"
        "keys = values = [b'a', b'b']\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", before + code], capture_output=True, text=True, timeout=60
    )
    assert completed.returncode == 0, completed.stderr
    count_code = (
        "from wirescan import kafka\n"
        f"parts = kafka.fetch({broker_39.address!r}, {topic!r})\n"
        "print(sum(len(part.records) for part in parts))"
    )
    completed = subprocess.run(
        [sys.executable, "-c", count_code], capture_output=True, text=True, timeout=60
    )
    assert completed.stdout.split() == [str(COUNT + 2)], completed.stderr


def test_the_fetch_command_runs(broker_39, topic, tmp_path):
    lines = [line for code in find_blocks("sh") for line in code.splitlines()]
    (line,) = (line for line in lines if line.startswith("wirescan fetch"))
    command = line.split("#")[0].replace("localhost:9092", broker_39.address)
    words = command.replace("orders", topic).split()[1:]
    for _ in range(2):  # the second run continues after the first
        completed = subprocess.run(
            [sys.executable, "-m", "wirescan", *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert completed.returncode == 0, completed.stderr
    stat = subprocess.run(
        [sys.executable, "-m", "wirescan", "stat", "--json", "--total", "backup"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert stat.returncode == 0, stat.stderr
    assert '"records":' in stat.stdout.replace(" ", ""), stat.stderr
