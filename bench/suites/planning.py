"""Plans: the time to divide many segments into tasks, and the balance of the tasks."""

from __future__ import annotations

import os
from pathlib import Path

from bench.report import Report, format_timings
from bench.suites.kafka_lookup import write_indexes
from bench.timing import Contender, interleave, time_call
from bench.workloads import records_and_events
from wirescan.files import boundary_index as sidecar
from wirescan.reading.splits import plan_tasks

FULL = {"segments": 1000, "plain": 64 << 20, "size": 24 << 20, "walked": 20, "rounds": 5}
QUICK = {"segments": 20, "plain": 1 << 25, "size": 12 << 20, "walked": 2, "rounds": 2}
NAME = f"{0:020}"
SECOND = 1e9


def run(segments: int, plain: int, size: int, walked: int, rounds: int) -> str:
    """Return the section as markdown.

    segments: number of segments of `plain` bytes. size: bytes of a task. It is no multiple of the
    segment size, so many segments are cut. walked: number of segments without index and sidecar.
    """
    folder = f"v{records_and_events.VERSION}-planning-{plain}"
    segment = records_and_events.write_segment(2, "none", plain, folder=folder).path
    if not segment.with_suffix(".index").exists():
        write_indexes(segment)
    sidecar.write(segment, "kafka.records")
    indexed = link_partitions(segment, "indexed", segments, [".log", ".index"])
    noted = link_partitions(segment, "noted", segments, [".log", ".log.frames.json"])
    bare = link_partitions(segment, "bare", walked, [".log"])
    segment_size = segment.stat().st_size
    times = interleave(
        [
            Contender(
                name,
                time_call(
                    lambda path=path: plan_tasks(path, "kafka.records", size), rehearse=False
                ),
                count,
                segment_size * count,
            )
            for name, path, count in (
                ("by indexes", indexed, segments),
                ("by sidecars", noted, segments),
                ("by a walk over headers", bare, walked),
            )
        ],
        rounds,
    )
    planned = plan_tasks(indexed, "kafka.records", size)
    report = Report("Plans")
    report.at_most(
        f"{segments:,} segments with indexes",
        2,
        tuple(nanoseconds * segments / SECOND for nanoseconds in times.quartiles("by indexes")),
        " s",
    )
    report.at_most("the largest task, of the mean", 1.3, (planned.skew,))
    report.say(
        f"Segments of {segment_size / 2**20:.0f} MiB, one in each partition, are divided into "
        f"{len(planned):,} tasks of {size / 2**20:.0f} MiB. Indexes have an entry every 4096 "
        "bytes, and sidecars every MiB."
    )
    report.say(format_timings(times, unit="segment"))
    return report.markdown()


def link_partitions(segment: Path, kind: str, count: int, endings: list[str]) -> Path:
    """Return a directory of partitions with hard links to one segment and its index files."""
    top = segment.parent / f"{kind}-{count}"
    for number in range(count):
        folder = top / f"orders-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        for ending in endings:
            name = folder / (NAME + ending)
            if not name.exists():
                os.link(segment.with_name(NAME + ending), name)
    return top
