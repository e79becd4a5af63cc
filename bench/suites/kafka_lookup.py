"""Looking up a record of a large segment by offset or time, with the indexes of a broker.

It is compared with a scan of all headers.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from bench.report import Report, format_timings
from bench.timing import Contender, interleave, time_call
from bench.workloads import records_and_events
from wirescan import kafka
from wirescan.kafka import PartitionLog

FULL = {"plain": 1 << 30, "looks": 1000, "rounds": 9}
QUICK = {"plain": 1 << 22, "looks": 10, "rounds": 2}
INTERVAL = 4096  # bytes between two entries of an index, as brokers write them
MILLISECOND = 1e6


def run(plain: int, looks: int, rounds: int) -> str:
    """Return the section as markdown.

    plain: bytes of the segment. looks: number of records that a round looks up.
    """
    folder = f"v{records_and_events.VERSION}-lookup-{plain}-0"
    segment = records_and_events.write_segment(2, "none", plain, folder=folder)
    times = write_indexes(segment.path)
    rng = random.Random(1)
    offsets = [rng.randrange(segment.records) for _ in range(looks)]
    moments = [int(times[offset // records_and_events.IN_BATCH]) for offset in offsets]
    log = PartitionLog(segment.path.parent)

    def by_offset() -> None:
        for offset in offsets:
            records = kafka.records(log.read(offset, offset + 1))
            assert kafka.within(records, offset, offset + 1)["offset"].tolist() == [offset]

    def by_time() -> None:
        for moment in moments:
            assert log.find_offset(moment)[1] >= moment

    size = segment.path.stat().st_size
    results = interleave(
        [
            Contender("a record by its offset", time_call(by_offset), looks, size),
            Contender("the first record of a time", time_call(by_time), looks, size),
            Contender(
                "a scan of all headers",
                time_call(lambda: kafka.scan(segment.path, check=False)),
                1,
                size,
            ),
        ],
        rounds,
    )
    report = Report("Kafka, look-up")
    for name in ("a record by its offset", "the first record of a time"):
        report.at_most(
            f"{name}, of a segment of {size / 2**30:.2g} GiB",
            1,
            tuple(nanoseconds / MILLISECOND for nanoseconds in results.quartiles(name)),
            " ms",
        )
    report.say(
        f"{looks:,} random records of an uncompressed segment of {segment.records:,} records, "
        f"whose pages are in memory. Its .index and .timeindex have an entry every {INTERVAL} "
        "bytes. A look-up finds the record, verifies its checksum and decodes it."
    )
    report.say(format_timings(results, unit="look-up, or scan"))
    return report.markdown()


def write_indexes(path: Path) -> np.ndarray:
    """Write the .index and .timeindex of a segment like a broker.

    Returns the highest timestamp of each batch.
    """
    batches = kafka.scan(path, check=False)
    entry = batches["start"] // INTERVAL
    chosen = np.flatnonzero(np.diff(entry, prepend=0) > 0)
    positions = np.empty(len(chosen), [("offset", ">i4"), ("position", ">i4")])
    positions["offset"] = batches["last_offset"][chosen]
    positions["position"] = batches["start"][chosen]
    path.with_suffix(".index").write_bytes(positions.tobytes())
    highest = np.maximum.accumulate(batches["max_timestamp"])
    moments = np.empty(len(chosen), [("timestamp", ">i8"), ("offset", ">i4")])
    moments["timestamp"] = highest[chosen]
    moments["offset"] = batches["last_offset"][chosen]
    path.with_suffix(".timeindex").write_bytes(moments.tobytes())
    return batches["max_timestamp"].copy()
