"""The output of Kafka's DumpLogSegments: wirescan's tables give every line of it.

The tests compare the lines for the corpus and for live brokers.
"""

import shutil
import time
from itertools import cycle
from pathlib import Path

import pytest

from tests.support.paths import KAFKA_CORPUS
from wirescan import kafka
from wirescan.seglog.log_salvage import salvage

from .broker import dump
from .dumped import format_file, split_by_file
from .kafka_corpus import CONTROL, DIRECTORIES
from .producers import CODECS, SENDERS, make_orders, send_librdkafka, send_transactions

pytestmark = pytest.mark.peers

KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def list_files(directory: Path) -> list[Path]:
    return sorted(file for file in directory.iterdir() if file.suffix in KINDS)


def check_dump(files: list[Path]) -> list[str]:
    """Compare the lines of the dump of each file. Return the lines."""
    theirs = split_by_file(dump(*files, options=("--deep-iteration",)))
    assert list(theirs) == list(map(str, files))
    for file in files:
        ours = format_file(file)
        for line, pair in enumerate(zip(ours, theirs[str(file)], strict=False)):
            assert pair[0] == pair[1], f"{file}, line {line}"
        assert len(ours) == len(theirs[str(file)]), file
    return [line for lines in theirs.values() for line in lines]


def copy_trimmed(directory: Path, target: Path) -> Path:
    """Copy a directory without the zeros after a segment. Kafka's tool fails on them."""
    shutil.copytree(directory, target)
    for log in target.glob("*.log"):
        whole = kafka.scan(log).consumed
        with open(log, "r+b") as file:
            file.truncate(whole)
    return target


def await_markers(directory: Path, count: int) -> None:
    """Wait until so many transactions have ended in a live log.

    Brokers write the marker after they answer the client.
    """
    until = time.monotonic() + 60
    while True:
        tables = [kafka.scan(log) for log in directory.glob("*.log")]
        if sum(int((table["attributes"] & CONTROL != 0).sum()) for table in tables) >= count:
            return
        assert time.monotonic() < until, f"fewer than {count} markers in {directory}"
        time.sleep(0.05)


def test_dump_of_the_corpus(tmp_path):
    copies = [copy_trimmed(KAFKA_CORPUS / name, tmp_path / name) for name in DIRECTORIES]
    lines = check_dump([file for copy in copies for file in list_files(copy)])
    for word in (
        "endTxnMarker: ABORT",
        "endTxnMarker: COMMIT",
        "OptionalLong[",
        "LogAppendTime",
        "lastStableOffset",
        "currentTxnFirstOffset: OptionalLong[",
        "headerKeys: [a,a,,a,schlüssel,e]",
        "is empty",
        "count: 0",
    ):
        assert any(word in line for line in lines), word


def test_dump_of_a_salvaged_log(tmp_path):
    """Kafka's tool accepts the segments and the indexes that are written beside them."""
    source = copy_trimmed(KAFKA_CORPUS / "orders-0", tmp_path / "orders-0")
    for log in sorted(source.glob("*.log")):
        third = kafka.scan(log)[2]
        data = bytearray(log.read_bytes())
        data[third.start + third.size - 1] ^= 1
        log.write_bytes(data)
    report = salvage(source, tmp_path / "out", format="kafka.batches")
    assert report.lost > 0
    files = list_files(tmp_path / "out" / "orders-0")
    assert {file.suffix for file in files} == {".log", ".index", ".timeindex", ".txnindex"}
    assert all("isvalid: true" in line for line in check_dump(files) if "baseOffset" in line)
    indexes = [file for file in files if file.suffix in (".index", ".timeindex")]
    assert "mismatch" not in dump(*indexes, options=())
    assert "passed sanity check" in dump(*indexes, options=("--index-sanity-check",))


def test_dump_of_fetched_record_sets(tmp_path):
    """Record sets of magic 0 and 1 as segments: complete, cut and with a filler."""
    sources = sorted((KAFKA_CORPUS / "fetched").iterdir())
    files = [tmp_path / source.stem / f"{0:020}.log" for source in sources]
    for source, file in zip(sources, files, strict=True):
        file.parent.mkdir()
        shutil.copy(source, file)
    lines = check_dump(files)
    assert any("NoTimestampType" in line for line in lines)
    assert any("invalid bytes" in line for line in lines)


def test_dump_of_a_live_partition(broker, tmp_path):
    """A partition of a running broker, with preallocated indexes.

    It has all clients and codecs, idempotence and transactions.
    """
    broker.create_topic("dumped", {"segment.bytes": 64 << 10})
    for (name, send), codec in zip(SENDERS.items(), cycle(CODECS[1:]), strict=False):
        send(
            broker.address,
            "dumped",
            make_orders(150, seed=70, big=False, null_headers=name != "kafka-python"),
            codec,
        )
    for codec in CODECS:
        send_librdkafka(
            broker.address, "dumped", make_orders(100, seed=71), codec, enable_idempotence=True
        )
    send_transactions(
        broker.address, "dumped", make_orders(300, seed=72, big=False), "zstd", "caca", "dumped"
    )
    await_markers(broker.directory("dumped"), 4)
    copy = shutil.copytree(broker.directory("dumped"), tmp_path / "dumped-0")
    lines = check_dump(list_files(copy))
    assert sum("endTxnMarker" in line for line in lines) == 4
    assert sum("Log starting" in line for line in lines) >= 2
