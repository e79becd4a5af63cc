"""What the README shows of live clusters, run against a broker."""
import subprocess
import sys

import pytest

from test_readme import block, blocks

from .broker import PASSWORD, USER
from .canonical import Record
from .producers import send_librdkafka

pytestmark = pytest.mark.peers
COUNT = 100


@pytest.fixture(scope="session")
def topic(broker_39):
    name = "readme"
    broker_39.create_topic(name, partitions=2)
    send_librdkafka(broker_39.address, name, [Record(0, 1_700_000_000_000, b"key", b"value")] * COUNT, "none")
    return name


def test_python(broker_39, topic, tmp_path):
    code = block("kafka.Client").replace('"localhost:9092", "orders"', repr(broker_39.address) + f", {topic!r}")
    code = code.replace('"broker-1:9092,broker-2:9092", tls=True',
                        f"{broker_39.addresses['SASL_SSL']!r}, tls={str(broker_39.authority)!r}")
    code = code.replace('"orders"', repr(topic))
    before = (f"from wirescan import kafka\nuser, password = {USER!r}, {PASSWORD!r}\nkeys = values = [b'a', b'b']\n")
    done = subprocess.run([sys.executable, "-c", before + code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    count = (f"from wirescan import kafka\nprint(sum(len(part.records) for part in "
             f"kafka.fetch({broker_39.address!r}, {topic!r})))")
    done = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [str(COUNT + 2)], done.stderr


def test_command(broker_39, topic, tmp_path):
    line, = (line for code in blocks("sh") for line in code.splitlines() if line.startswith("wirescan fetch"))
    words = line.split("#")[0].replace("localhost:9092", broker_39.address).replace("orders", topic).split()[1:]
    for _ in range(2):                                          # it goes on where it ended
        done = subprocess.run([sys.executable, "-m", "wirescan", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    stat = subprocess.run([sys.executable, "-m", "wirescan", "stat", "--json", "--total", "backup"], cwd=tmp_path,
                          capture_output=True, text=True)
    assert stat.returncode == 0 and '"records":' in stat.stdout.replace(" ", ""), stat.stderr
