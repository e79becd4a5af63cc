"""Make tests/corpus/kafka from a real broker: run `python -m tests.peers.make_corpus` in the root.

The script starts one Kafka broker (see broker.py), and four clients write known records to it. It
copies the partition directories after a clean stop of the broker. It also stores record sets of raw
Fetch requests:

    orders-0/     many segments, all codecs, all clients, transactions committed and aborted
    open-0/       three interleaved transactions: committed, aborted, left open
    live-0/       preallocated, copied while the broker runs: zeros follow the log and its indexes
    appended-0/   a topic with LogAppendTime
    compacted-0/  after the log cleaner: gaps, empty batches, delete horizons
    fetched/      record sets: magic 0 and 1, down-converted by the broker; cut tails; a filler
                  after too large headers
    expected.json the records that two independent readers (kafka-python and Kafka's own) find.
                  "committed" has the records of a read_committed consumer (librdkafka): no aborted
                  records, no control records, and none from the start of an open transaction on

Every run sends the same records. Batch boundaries, append times and producer ids may differ. A run
takes one to two minutes.
"""

import argparse
import json
import shutil
import time
from pathlib import Path

from tests.support.paths import KAFKA_CORPUS

from .broker import Broker, dump
from .canonical import digest
from .dumped import parse_aborted_transactions
from .producers import (
    CODECS,
    DAY,
    SENDERS,
    make_compactable,
    make_orders,
    send_aiokafka,
    send_interleaved,
    send_librdkafka,
    send_transactions,
)
from .readers import consume, parse_batches, read_with_kafka, read_with_kafka_python
from .wire import fetch

TOPICS = {
    "orders": {"segment.bytes": 256 << 10},
    "open": {"segment.bytes": 256 << 10},
    "live": {"segment.bytes": 32 << 10, "preallocate": "true", "segment.index.bytes": 2048},
    "appended": {"segment.bytes": 256 << 10, "message.timestamp.type": "LogAppendTime"},
    "compacted": {
        "segment.bytes": 32 << 10,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": 0.01,
        "delete.retention.ms": 365 * DAY,
        "file.delete.delay.ms": 0,
    },
}
LEGACY_CODECS = CODECS[:4]  # zstd needs magic 2


def create_topics(broker: Broker) -> None:
    """Create the topics of the corpus, and one topic per codec for down-conversion.

    Segments are rolled by size alone.
    """
    single = {f"single-{codec}": {} for codec in LEGACY_CODECS} | {"headed": {}}
    for name, config in (TOPICS | single).items():
        broker.create_topic(name, {"segment.ms": 3650 * DAY} | config)


def fill_orders(broker: Broker) -> None:
    """Send about 28 000 records: each client with each codec, and transactions.

    A restart of the broker in between gives a new leader epoch.
    """
    for turn, (name, send) in enumerate(SENDERS.items()):
        count = 2400 if name == "librdkafka" else 800
        for codec_number, codec in enumerate(CODECS):
            rows = make_orders(
                count, seed=10 * turn + codec_number, null_headers=name != "kafka-python"
            )
            options = {}
            if name == "librdkafka":
                options = {"batch_num_messages": 40 * (codec_number + 1)}
            send(broker.address, "orders", rows, codec, **options)
    broker.restart()
    send_librdkafka(
        broker.address, "orders", make_orders(1500, seed=90), "lz4", enable_idempotence=True
    )
    send_transactions(
        broker.address, "orders", make_orders(1200, seed=91), "zstd", "caccaa", "first"
    )
    send_transactions(broker.address, "orders", make_orders(400, seed=92), "none", "ac", "second")
    send_librdkafka(broker.address, "orders", make_orders(600, seed=93), "snappy")


def fill_appended(address: str) -> None:
    for seed, codec in enumerate(CODECS):
        send_librdkafka(address, "appended", make_orders(120, seed=100 + seed, big=False), codec)
    send_aiokafka(address, "appended", make_orders(120, seed=110, big=False), "snappy")


def fill_compacted(address: str) -> None:
    """Send repeated keys, tombstones and transactions.

    All records of some producers are replaced by later records.
    """
    for turn, codec in enumerate(CODECS):
        send_librdkafka(
            address,
            "compacted",
            make_compactable(1500, 200 + turn),
            codec,
            enable_idempotence=turn % 2 == 0,
        )
    send_transactions(address, "compacted", make_compactable(300, 210), "gzip", "cac", "third")
    for seed, codec in ((211, "none"), (212, "zstd"), (213, "lz4")):
        send_librdkafka(
            address, "compacted", make_compactable(20, seed), codec, enable_idempotence=True
        )
        send_librdkafka(address, "compacted", make_compactable(20, seed), codec)
    # The cleaner ignores the last segment. These records fill a new last segment.
    send_librdkafka(address, "compacted", make_compactable(1000, 220), "none")


def await_cleaner(broker: Broker, topic: str, timeout: float = 60) -> None:
    """Wait until the cleaner has processed every segment of a topic but the last."""
    last = max(int(path.stem) for path in broker.directory(topic).glob("*.log"))
    checkpoint = broker.data / "cleaner-offset-checkpoint"  # lines `topic partition offset`
    until = time.monotonic() + timeout
    while f"{topic} 0 {last}" not in checkpoint.read_text().splitlines():
        if time.monotonic() > until:
            raise TimeoutError(
                f"the cleaner did not reach offset {last}: {checkpoint.read_text()!r}"
            )
        time.sleep(0.1)


def fill_single(address: str) -> None:
    """Fill the topics of one codec each, which the broker down-converts later."""
    for codec in LEGACY_CODECS:
        rows = make_orders(400, seed=300, big=False)
        send_librdkafka(address, f"single-{codec}", rows, codec, batch_num_messages=50)
    wide = [
        row._replace(headers=((b"wide", bytes(300)),))
        for row in make_orders(100, seed=301, big=False)
    ]
    send_librdkafka(address, "headed", wide, "none")


def fetch_record_sets(address: str) -> dict[str, bytes]:
    """Fetch record sets with raw requests. Return them by file name."""
    record_sets = {
        f"magic{magic}-{codec}.bin": fetch(address, f"single-{codec}", version=version)
        for magic, version in ((0, 0), (1, 2))
        for codec in LEGACY_CODECS
    }
    record_sets |= {
        "magic1-appended.bin": fetch(address, "appended", 120, version=3, max_bytes=16_000),
        "magic1-filler.bin": fetch(address, "headed", version=3),
        "magic1-cut.bin": fetch(address, "single-none", version=3, max_bytes=10_000),
        "magic2-cut.bin": fetch(address, "orders", version=4, max_bytes=50_000),
    }
    return record_sets


def describe(file: Path) -> dict:
    """Describe a file of batches with kafka-python. Kafka's own reader must read the same."""
    data = file.read_bytes()
    batches = parse_batches(data)
    records = read_with_kafka_python(data)
    if read_with_kafka(file) != records:
        raise ValueError(f"{file}: kafka-python and Kafka read different records")
    control = sum(
        batch.records_count for batch in batches if batch.magic == 2 and batch.is_control_batch
    )
    return {
        "bytes": len(data),
        "whole": sum(batch.size_in_bytes for batch in batches),
        "batches": len(batches),
        "records": len(records),
        "control_records": control,
        "first_offset": records[0].offset,
        "last_offset": records[-1].offset,
        "sha256": digest(records),
    }


def describe_directory(directory: Path) -> dict:
    logs = sorted(directory.glob("*.log"))
    segments = {file.name: describe(file) for file in logs}
    whole = {
        name: sum(segment[name] for segment in segments.values())
        for name in ("bytes", "whole", "batches", "records", "control_records")
    }
    records = [record for file in logs for record in read_with_kafka_python(file.read_bytes())]
    indexes = sorted(directory.glob("*.txnindex"))
    return whole | {
        "first_offset": records[0].offset,
        "last_offset": records[-1].offset,
        "sha256": digest(records),
        "aborted": parse_aborted_transactions(dump(*indexes)) if indexes else [],
        "segments": segments,
    }


def describe_live(directory: Path, trimmed: Path) -> dict:
    """Describe a directory with zeros after its data.

    trimmed: the same directory after the stop of the broker, which removed the zeros.
    """
    about = describe_directory(trimmed)
    for name, segment in about["segments"].items():
        segment["bytes"] = (directory / name).stat().st_size
    about["bytes"] = sum(segment["bytes"] for segment in about["segments"].values())
    return about


def copy_partition(broker: Broker, topic: str, target: Path) -> Path:
    """Copy a partition directory without the files that will be deleted soon."""
    directory = target / f"{topic}-0"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(broker.directory(topic), directory, ignore=shutil.ignore_patterns("*.deleted"))
    return directory


def make(target: Path) -> None:
    with Broker() as broker:
        create_topics(broker)
        fill_orders(broker)
        send_interleaved(broker.address, "open", make_orders(300, seed=95, big=False), "lz4")
        fill_appended(broker.address)
        fill_compacted(broker.address)
        fill_single(broker.address)
        rows = make_orders(600, seed=96, big=False)
        send_librdkafka(broker.address, "live", rows, "none", batch_num_messages=30)
        sets = fetch_record_sets(broker.address)
        committed = {
            topic: consume(broker.address, topic, "read_committed") for topic in ("orders", "open")
        }
        await_cleaner(broker, "compacted")
        live = copy_partition(broker, "live", target)
        broker.stop()
        expected = {"live-0": describe_live(live, broker.directory("live"))}
        expected |= {
            f"{topic}-0": describe_directory(copy_partition(broker, topic, target))
            for topic in TOPICS
            if topic != "live"
        }
    for topic, records in committed.items():
        expected[f"{topic}-0"]["committed"] = {"records": len(records), "sha256": digest(records)}

    shutil.rmtree(target / "fetched", ignore_errors=True)
    (target / "fetched").mkdir()
    for name, data in sets.items():
        (target / "fetched" / name).write_bytes(data)
        expected[f"fetched/{name}"] = describe(target / "fetched" / name)
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "target", nargs="?", type=Path, default=KAFKA_CORPUS, help="the directory to fill"
    )
    target = parser.parse_args().target
    target.mkdir(parents=True, exist_ok=True)
    print(f"starting a Kafka broker on 127.0.0.1, writing to {target}")
    make(target)
    for name, about in json.loads((target / "expected.json").read_text()).items():
        counts = f"{about['batches']} batches, {about['records']} records"
        print(f"{name}: {about['bytes']} bytes, {counts}")


if __name__ == "__main__":
    main()
