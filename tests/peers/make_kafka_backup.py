"""Make tests/corpus/kafka-backup with a real broker and OSO's kafka-backup.

usage: python -m tests.peers.make_kafka_backup [TARGET]

The target has a backup of one topic for each compression: <compression>/topics/orders/partition=0/
with a few segments. expected.json has the number of the records that a consumer read, and their
digest (see canonical.py).
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.paths import CORPUS

from .broker import Broker
from .canonical import digest
from .kafka_backup import COMPRESSIONS, back_up
from .producers import make_orders, send_librdkafka
from .readers import consume

TOPIC = "orders"
RECORDS = 240


def make(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch, Broker() as broker:
        broker.create_topic(TOPIC)
        send_librdkafka(broker.address, TOPIC, make_orders(RECORDS, seed=17, big=False), "lz4")
        for compression in COMPRESSIONS:
            backup = back_up(
                broker.address, TOPIC, Path(scratch), compression, include_offset_headers=False
            )
            shutil.copytree(backup / "topics", target / compression / "topics")
        records = consume(broker.address, TOPIC, auto_offset_reset="earliest")
    expected = {"records": len(records), "sha256": digest(records)}
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else CORPUS / "kafka-backup")
