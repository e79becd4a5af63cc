"""One record of a large segment by its offset or its time, with the indexes a broker writes, beside a scan of all."""
from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from bench import data
from bench.measure import Contender, interleave, timed
from bench.report import Report, timings
from wirescan import kafka
from wirescan.kafka import PartitionLog

FULL = {"plain": 1 << 30, "looks": 1000, "rounds": 9}
QUICK = {"plain": 1 << 22, "looks": 10, "rounds": 2}
INTERVAL = 4096                 # bytes between two entries of an index, as brokers write them
MILLISECOND = 1e6


def run(plain: int, looks: int, rounds: int) -> str:
    """The whole part as markdown. plain: bytes of the segment. looks: records looked up in a round."""
    segment = data.segment(2, "none", plain, folder=f"v{data.VERSION}-lookup-{plain}-0")
    times = index(segment.path)
    chance = random.Random(1)
    offsets = [chance.randrange(segment.records) for _ in range(looks)]
    moments = [int(times[offset // data.IN_BATCH]) for offset in offsets]
    log = PartitionLog(segment.path.parent)

    def by_offset() -> None:
        for offset in offsets:
            found = kafka.within(kafka.records(log.read(offset, offset + 1)), offset, offset + 1)
            assert found["offset"].tolist() == [offset]

    def by_time() -> None:
        for moment in moments:
            assert log.offset_at(moment)[1] >= moment

    size = segment.path.stat().st_size
    seen = interleave([
        Contender("a record by its offset", timed(by_offset), looks, size),
        Contender("the first record of a time", timed(by_time), looks, size),
        Contender("a scan of all headers", timed(lambda: kafka.scan(segment.path, check=False)), 1, size),
    ], rounds)
    report = Report("Kafka, look-up")
    for name in ("a record by its offset", "the first record of a time"):
        report.at_most(f"{name}, of a segment of {size / 2**30:.2g} GiB", 1,
                       tuple(one / MILLISECOND for one in seen.quartiles(name)), " ms")
    report.say(f"{looks:,} records chosen at random in an uncompressed segment of {segment.records:,}, its pages in "
               f"memory; an entry of the .index and .timeindex every {INTERVAL} bytes. Found, its checksum verified, and decoded.")
    report.say(timings(seen, unit="look-up, or scan"))
    return report.markdown()


def index(path: Path) -> np.ndarray:
    """Write the .index and .timeindex of a segment, as a broker would. Returns the highest time of each batch."""
    batches = kafka.scan(path, check=False)
    entry = batches["start"] // INTERVAL
    chosen = np.flatnonzero(np.diff(entry, prepend=0) > 0)
    positions = np.empty(len(chosen), [("offset", ">i4"), ("position", ">i4")])
    positions["offset"], positions["position"] = batches["last_offset"][chosen], batches["start"][chosen]
    path.with_suffix(".index").write_bytes(positions.tobytes())
    highest = np.maximum.accumulate(batches["max_timestamp"])
    moments = np.empty(len(chosen), [("timestamp", ">i8"), ("offset", ">i4")])
    moments["timestamp"], moments["offset"] = highest[chosen], batches["last_offset"][chosen]
    path.with_suffix(".timeindex").write_bytes(moments.tobytes())
    return batches["max_timestamp"].copy()
