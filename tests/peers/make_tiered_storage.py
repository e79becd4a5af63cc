"""Make tests/corpus/kafka-tiered-storage with a real broker.

usage: python -m tests.peers.make_tiered_storage [TARGET]

The target is the directory of a LocalTieredStorage: a directory <topic>-<partition>-<topic id> with
a few segments, some with transactions. expected.json has the number of the records that a consumer
read through the broker after it had deleted its own files, and their digest (see canonical.py).
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.paths import CORPUS

from .canonical import digest
from .producers import make_orders, send_librdkafka, send_transactions
from .tiered_storage import TOPIC_SETTINGS, await_tiered, consume_moved, make_tiered_broker

TOPIC = "orders"


def make(target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch, make_tiered_broker(Path(scratch)) as broker:
        broker.create_topic(TOPIC, TOPIC_SETTINGS | {"segment.bytes": 20_000})
        rows = make_orders(600, seed=11, big=False)
        address = broker.address
        send_librdkafka(address, TOPIC, rows[:200], "none", batch_num_messages=20)
        send_transactions(address, TOPIC, rows[200:400], "lz4", "cacaa", "first")
        send_librdkafka(address, TOPIC, rows[400:], "none", batch_num_messages=20)
        stop = await_tiered(broker, TOPIC)
        expected = {}
        for isolation in ("read_committed", "read_uncommitted"):
            records = consume_moved(broker, TOPIC, stop, isolation)
            expected[isolation] = {"records": len(records), "sha256": digest(records)}
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(Path(scratch, "kafka-tiered-storage"), target)
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else CORPUS / "kafka-tiered-storage")
