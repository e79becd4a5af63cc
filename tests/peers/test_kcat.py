"""`wirescan scan --template` writes what kcat writes from the broker that has the files."""

import subprocess
import sys

import pytest

from .canonical import Record
from .producers import send_librdkafka

pytestmark = pytest.mark.peers

ROWS = [
    Record(0, 1_700_000_000_000 + number, key, value, headers)
    for number, (key, value, headers) in enumerate(
        [
            (b"key", b"value", ((b"a", b"1"), (b"b", b"two"))),
            (None, b"no key", ()),
            (b"tombstone", None, ()),
            (b"", b"", ()),
            ("kl\u00fc".encode(), bytes(range(1, 256)), (("\u00fc".encode(), "\u00e9".encode()),)),
        ]
    )
]
TEMPLATES = {
    "positions": r"%t [%p] at %o: %T\n",
    "bytes": r"%k\t%s\x7c%h\n",
    "sizes": r"%K %S %R|",
    "percent": r"100%%\r\n",
}


@pytest.fixture(scope="module")
def orders(broker):
    topic = "kcat-orders"
    broker.create_topic(topic, {})
    send_librdkafka(broker.address, topic, ROWS * 20, "lz4")
    return broker, topic


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_output_is_that_of_kcat(orders, name):
    broker, topic = orders
    command = ["kcat", "-C", "-q", "-b", broker.address, "-t", topic, "-o", "beginning", "-e"]
    by_kcat = subprocess.run([*command, "-f", TEMPLATES[name]], capture_output=True, timeout=60)
    assert by_kcat.returncode == 0, by_kcat.stderr
    command = [sys.executable, "-m", "wirescan", "scan", str(broker.directory(topic))]
    ours = subprocess.run([*command, "--template", TEMPLATES[name]], capture_output=True)
    assert ours.returncode == 0, ours.stderr
    assert len(ours.stdout) > 100
    assert ours.stdout == by_kcat.stdout
