"""Every line that Kafka's DumpLogSegments prints about the corpus and about live brokers, from our tables."""
import shutil
import time
from itertools import cycle
from pathlib import Path

import pytest

from wirescan import kafka

from .broker import dump
from .dumped import by_file, our_lines
from .producers import CODECS, SENDERS, orders, send_librdkafka, send_transactions
from .test_corpus import CONTROL, CORPUS, DIRECTORIES

pytestmark = pytest.mark.peers

KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def files_of(directory: Path) -> list[Path]:
    return sorted(file for file in directory.iterdir() if file.suffix in KINDS)


def check(files: list[Path]) -> list[str]:
    """Compare the dump of each file with ours, line by line; returns the lines."""
    theirs = by_file(dump(*files, options=("--deep-iteration",)))
    assert list(theirs) == list(map(str, files))
    for file in files:
        ours = our_lines(file)
        for line, pair in enumerate(zip(ours, theirs[str(file)], strict=False)):
            assert pair[0] == pair[1], f"{file}, line {line}"
        assert len(ours) == len(theirs[str(file)]), file
    return [line for lines in theirs.values() for line in lines]


def cut(directory: Path, target: Path) -> Path:
    """A copy without the zeros behind a segment, at which Kafka's tool gives up."""
    shutil.copytree(directory, target)
    for log in target.glob("*.log"):
        whole = kafka.scan(log).consumed
        with open(log, "r+b") as file:
            file.truncate(whole)
    return target


def await_markers(directory: Path, count: int) -> None:
    """Wait until so many transactions have ended in a live log: brokers write the marker after they answer the client.
    """
    until = time.monotonic() + 60
    while True:
        batches = [kafka.scan(log) for log in directory.glob("*.log")]
        if sum(int((one["attributes"] & CONTROL != 0).sum()) for one in batches) >= count:
            return
        assert time.monotonic() < until, f"fewer than {count} markers in {directory}"
        time.sleep(0.05)


def test_corpus(tmp_path):
    copies = [cut(CORPUS / name, tmp_path / name) for name in DIRECTORIES]
    lines = check([file for copy in copies for file in files_of(copy)])
    for word in ("endTxnMarker: ABORT", "endTxnMarker: COMMIT", "OptionalLong[", "LogAppendTime", "lastStableOffset",
                 "currentTxnFirstOffset: OptionalLong[", "headerKeys: [a,a,,a,schlüssel,e]", "is empty", "count: 0"):
        assert any(word in line for line in lines), word


def test_fetched_sets(tmp_path):
    """Record sets of magic 0 and 1, whole, cut and with a filler, as if each were a segment."""
    files = [tmp_path / file.stem / f"{0:020}.log" for file in sorted((CORPUS / "fetched").iterdir())]
    for source, file in zip(sorted((CORPUS / "fetched").iterdir()), files, strict=True):
        file.parent.mkdir()
        shutil.copy(source, file)
    lines = check(files)
    assert any("NoTimestampType" in line for line in lines) and any("invalid bytes" in line for line in lines)


def test_live(broker, tmp_path):
    """A partition of a running broker: all clients and codecs, idempotence, transactions, indexes with zeros behind."""
    broker.create_topic("dumped", {"segment.bytes": 64 << 10})
    for (name, send), codec in zip(SENDERS.items(), cycle(CODECS[1:]), strict=False):
        send(broker.address, "dumped", orders(150, seed=70, big=False, null_headers=name != "kafka-python"), codec)
    for codec in CODECS:
        send_librdkafka(broker.address, "dumped", orders(100, seed=71), codec, enable_idempotence=True)
    send_transactions(broker.address, "dumped", orders(300, seed=72, big=False), "zstd", "caca", "dumped")
    await_markers(broker.directory("dumped"), 4)
    copy = shutil.copytree(broker.directory("dumped"), tmp_path / "dumped-0")
    lines = check(files_of(copy))
    assert sum("endTxnMarker" in line for line in lines) == 4 and sum("Log starting" in line for line in lines) >= 2
