"""A broker with tiered storage: it moves closed segments to a directory, and deletes its own files.

LocalTieredStorage of Kafka's own tests is the storage. The broker is of the line "4.3".
"""

import time
from pathlib import Path

from .broker import Broker
from .readers import consume

MANAGER = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
# A topic with these settings keeps only its newest segment in the broker's own directory.
TOPIC_SETTINGS = {"remote.storage.enable": "true", "local.retention.ms": 1}


def make_tiered_broker(storage: Path) -> Broker:
    """A broker, not started yet, that moves segments below a directory without waiting."""
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": MANAGER,
        "rsm.config.dir": storage,
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
        "remote.log.manager.task.interval.ms": 200,
        "log.retention.check.interval.ms": 200,
    }
    return Broker(properties, line="4.3")


def await_tiered(broker: Broker, topic: str, timeout: float = 60) -> int:
    """Wait until partition 0 has only its newest segment in the broker's own directory.

    An open transaction keeps segments there. Returns the base offset of the newest segment.
    """
    until = time.monotonic() + timeout
    while len(segments := list(broker.directory(topic).glob("*.log"))) > 1:
        if time.monotonic() > until:
            names = sorted(path.name for path in segments)
            end = broker.log.read_text(errors="replace")[-4000:]
            raise TimeoutError(f"segments were not moved: {names}\n{end}")
        time.sleep(0.1)
    return int(segments[0].stem)


def consume_moved(broker: Broker, topic: str, stop: int, isolation: str) -> list:
    """The records before the offset `stop`, read by a consumer through the broker."""
    records = consume(broker.address, topic, isolation, auto_offset_reset="earliest")
    return [record for record in records if record.offset < stop]
