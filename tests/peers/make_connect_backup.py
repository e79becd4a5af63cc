"""Make tests/corpus/kafka-connect-backup with a real broker and itadventurer's kafka-backup.

usage: python -m tests.peers.make_connect_backup CHECKOUT [TARGET]

CHECKOUT is a checkout of github.com/itadventurer/kafka-backup at commit
0764fe838329daf0a3533e4d4bb24ec0b261e1a6. See connect_backup.py.

The target is a backup of three topics. orders has several segments, appended has the timestamps of
the broker, and old has a message of magic 0, which has no timestamp. For each topic, expected.json
has the number of the records that a consumer read, and their digest (see canonical.py).
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.paths import CORPUS
from wirescan import kafka

from .broker import Broker
from .canonical import digest
from .connect_backup import back_up, compile_connector
from .producers import make_orders, send_librdkafka
from .readers import consume
from .wire import produce

SETTINGS = {"orders": {}, "appended": {"message.timestamp.type": "LogAppendTime"}, "old": {}}
RECORDS = 240
SEGMENT_BYTES = 20_000


def fill_topics(address: str) -> None:
    """Send the records. The topic "old" has one message of magic 0."""
    rows = make_orders(RECORDS, seed=23, big=False)
    send_librdkafka(address, "orders", rows, "zstd", batch_num_messages=50)
    send_librdkafka(address, "appended", rows[:20], "none")
    message = {"key": b"k", "value": b"without a time"}
    produce(address, "old", bytes(kafka.encode_message_set([message], magic=0)), version=0)


def make(checkout: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch, Broker() as broker:
        class_path = compile_connector(checkout, Path(scratch))
        made = Path(scratch, "made")
        for topic, settings in SETTINGS.items():
            broker.create_topic(topic, settings)
        fill_topics(broker.address)
        expected = {}
        for topic in SETTINGS:
            back_up(class_path, broker.address, topic, made, SEGMENT_BYTES)
            records = consume(broker.address, topic, auto_offset_reset="earliest")
            expected[topic] = {"records": len(records), "sha256": digest(records)}
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    make(
        Path(sys.argv[1]),
        Path(sys.argv[2]) if len(sys.argv) > 2 else CORPUS / "kafka-connect-backup",
    )
