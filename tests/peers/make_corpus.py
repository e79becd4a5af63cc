"""Make tests/corpus/kafka from a real broker: `python -m tests.peers.make_corpus` in the repository's root.

Starts one Kafka broker (see broker.py), lets four clients write known records to it, takes the partition
directories as the broker leaves them at a clean stop, and record sets as raw Fetch requests return them:

    orders-0/     many segments, all codecs, all clients, transactions committed and aborted
    open-0/       three interleaved transactions: committed, aborted, left open
    live-0/       preallocated, taken while the broker runs: zeros behind the log and its indexes
    appended-0/   a topic with LogAppendTime
    compacted-0/  after the log cleaner: gaps, empty batches, delete horizons
    fetched/      record sets: magic 0 and 1, down-converted by the broker; cut tails; an overflow filler
    expected.json what two independent readers (kafka-python and Kafka's own) find in them; "committed" is
                  what a read_committed consumer (librdkafka) got: no aborted and no control records, and
                  nothing from the first record of a transaction that is still open

The records are the same at every run; batch borders, times of appending and producer ids may differ. It takes
one to two minutes.
"""
import argparse
import json
import shutil
import time
from pathlib import Path

from .broker import Broker, dump
from .canonical import digest
from .dumped import aborted_transactions
from .wire import fetch
from .producers import (CODECS, DAY, SENDERS, compactable, orders, send_aiokafka, send_interleaved,
                        send_librdkafka, send_transactions)
from .readers import consume, from_kafka, from_kafka_python, kafka_python_batches

CORPUS = Path(__file__).parents[1] / "corpus" / "kafka"
TOPICS = {
    "orders": {"segment.bytes": 256 << 10},
    "open": {"segment.bytes": 256 << 10},
    "live": {"segment.bytes": 32 << 10, "preallocate": "true", "segment.index.bytes": 2048},
    "appended": {"segment.bytes": 256 << 10, "message.timestamp.type": "LogAppendTime"},
    "compacted": {"segment.bytes": 32 << 10, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01,
                  "delete.retention.ms": 365 * DAY, "file.delete.delay.ms": 0},
}
LEGACY_CODECS = CODECS[:4]  # zstd came with magic 2


def create_topics(broker: Broker) -> None:
    """The topics of the corpus, and one per codec to be down-converted. Only size rolls a segment."""
    single = {f"single-{codec}": {} for codec in LEGACY_CODECS} | {"headed": {}}
    for name, config in (TOPICS | single).items():
        broker.create_topic(name, {"segment.ms": 3650 * DAY} | config)


def fill_orders(broker: Broker) -> None:
    """About 28 000 records: each client with each codec, a restart (a new leader epoch), transactions."""
    for turn, (name, send) in enumerate(SENDERS.items()):
        count = 2400 if name == "librdkafka" else 800
        for codec_number, codec in enumerate(CODECS):
            rows = orders(count, seed=10 * turn + codec_number, null_headers=name != "kafka-python")
            own = {"batch_num_messages": 40 * (codec_number + 1)} if name == "librdkafka" else {}
            send(broker.address, "orders", rows, codec, **own)
    broker.restart()
    send_librdkafka(broker.address, "orders", orders(1500, seed=90), "lz4", enable_idempotence=True)
    send_transactions(broker.address, "orders", orders(1200, seed=91), "zstd", "caccaa", "first")
    send_transactions(broker.address, "orders", orders(400, seed=92), "none", "ac", "second")
    send_librdkafka(broker.address, "orders", orders(600, seed=93), "snappy")


def fill_appended(address: str) -> None:
    for seed, codec in enumerate(CODECS):
        send_librdkafka(address, "appended", orders(120, seed=100 + seed, big=False), codec)
    send_aiokafka(address, "appended", orders(120, seed=110, big=False), "snappy")


def fill_compacted(address: str) -> None:
    """Keys written again and again, tombstones, producers all of whose records are replaced, transactions."""
    for turn, codec in enumerate(CODECS):
        send_librdkafka(address, "compacted", compactable(1500, 200 + turn), codec,
                        enable_idempotence=turn % 2 == 0)
    send_transactions(address, "compacted", compactable(300, 210), "gzip", "cac", "third")
    for seed, codec in ((211, "none"), (212, "zstd"), (213, "lz4")):
        send_librdkafka(address, "compacted", compactable(20, seed), codec, enable_idempotence=True)
        send_librdkafka(address, "compacted", compactable(20, seed), codec)
    # the cleaner leaves the last segment alone: these roll it
    send_librdkafka(address, "compacted", compactable(1000, 220), "none")


def await_cleaner(broker: Broker, topic: str, timeout: float = 60) -> None:
    """Wait until the cleaner has passed every segment of `topic` but the last."""
    last = max(int(path.stem) for path in broker.directory(topic).glob("*.log"))
    checkpoint = broker.data / "cleaner-offset-checkpoint"  # lines `topic partition offset`
    until = time.monotonic() + timeout
    while f"{topic} 0 {last}" not in checkpoint.read_text().splitlines():
        if time.monotonic() > until:
            raise TimeoutError(f"the cleaner did not reach offset {last}: {checkpoint.read_text()!r}")
        time.sleep(0.1)


def fill_single(address: str) -> None:
    """Topics of one codec each, for the broker to down-convert."""
    for codec in LEGACY_CODECS:
        rows = orders(400, seed=300, big=False)
        send_librdkafka(address, f"single-{codec}", rows, codec, batch_num_messages=50)
    wide = [row._replace(headers=((b"wide", bytes(300)),)) for row in orders(100, seed=301, big=False)]
    send_librdkafka(address, "headed", wide, "none")


def fetched(address: str) -> dict[str, bytes]:
    """Record sets by file name, each from a raw Fetch."""
    found = {f"magic{magic}-{codec}.bin": fetch(address, f"single-{codec}", version=version)
             for magic, version in ((0, 0), (1, 2)) for codec in LEGACY_CODECS}
    found |= {
        "magic1-appended.bin": fetch(address, "appended", 120, version=3, max_bytes=16_000),
        "magic1-filler.bin": fetch(address, "headed", version=3),
        "magic1-cut.bin": fetch(address, "single-none", version=3, max_bytes=10_000),
        "magic2-cut.bin": fetch(address, "orders", version=4, max_bytes=50_000),
    }
    return found


def describe(file: Path) -> dict:
    """What kafka-python finds in a file of batches; Kafka's own reader must find the same."""
    data = file.read_bytes()
    batches = kafka_python_batches(data)
    records = from_kafka_python(data)
    if from_kafka(file) != records:
        raise ValueError(f"{file}: kafka-python and Kafka read different records")
    control = sum(batch.records_count for batch in batches if batch.magic == 2 and batch.is_control_batch)
    return {"bytes": len(data), "whole": sum(batch.size_in_bytes for batch in batches),
            "batches": len(batches), "records": len(records), "control_records": control,
            "first_offset": records[0].offset, "last_offset": records[-1].offset, "sha256": digest(records)}


def describe_directory(directory: Path) -> dict:
    logs = sorted(directory.glob("*.log"))
    segments = {file.name: describe(file) for file in logs}
    whole = {name: sum(one[name] for one in segments.values())
             for name in ("bytes", "whole", "batches", "records", "control_records")}
    records = [record for file in logs for record in from_kafka_python(file.read_bytes())]
    indexes = sorted(directory.glob("*.txnindex"))
    return whole | {"first_offset": records[0].offset, "last_offset": records[-1].offset,
                    "sha256": digest(records),
                    "aborted": aborted_transactions(dump(*indexes)) if indexes else [], "segments": segments}


def describe_live(directory: Path, trimmed: Path) -> dict:
    """A directory with zeros behind its data, described by its state after the stop that cut them off."""
    about = describe_directory(trimmed)
    for name, one in about["segments"].items():
        one["bytes"] = (directory / name).stat().st_size
    about["bytes"] = sum(one["bytes"] for one in about["segments"].values())
    return about


def take(broker: Broker, topic: str, target: Path) -> Path:
    """Copy a partition directory, without files that are about to be deleted."""
    directory = target / f"{topic}-0"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(broker.directory(topic), directory, ignore=shutil.ignore_patterns("*.deleted"))
    return directory


def make(target: Path) -> None:
    with Broker() as broker:
        create_topics(broker)
        fill_orders(broker)
        send_interleaved(broker.address, "open", orders(300, seed=95, big=False), "lz4")
        fill_appended(broker.address)
        fill_compacted(broker.address)
        fill_single(broker.address)
        rows = orders(600, seed=96, big=False)
        send_librdkafka(broker.address, "live", rows, "none", batch_num_messages=30)
        sets = fetched(broker.address)
        committed = {topic: consume(broker.address, topic, "read_committed") for topic in ("orders", "open")}
        await_cleaner(broker, "compacted")
        live = take(broker, "live", target)
        broker.stop()
        expected = {"live-0": describe_live(live, broker.directory("live"))}
        expected |= {f"{topic}-0": describe_directory(take(broker, topic, target))
                     for topic in TOPICS if topic != "live"}
    for topic, records in committed.items():
        expected[f"{topic}-0"]["committed"] = {"records": len(records), "sha256": digest(records)}

    shutil.rmtree(target / "fetched", ignore_errors=True)
    (target / "fetched").mkdir()
    for name, data in sets.items():
        (target / "fetched" / name).write_bytes(data)
        expected[f"fetched/{name}"] = describe(target / "fetched" / name)
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", type=Path, default=CORPUS, help="the directory to fill")
    target = parser.parse_args().target
    target.mkdir(parents=True, exist_ok=True)
    print(f"starting a Kafka broker on 127.0.0.1, writing to {target}")
    make(target)
    for name, about in json.loads((target / "expected.json").read_text()).items():
        print(f"{name}: {about['bytes']} bytes, {about['batches']} batches, {about['records']} records")


if __name__ == "__main__":
    main()
