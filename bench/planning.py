"""Plans: how long it takes to share out many segments to tasks, and how even the tasks are."""
from __future__ import annotations

import os
from pathlib import Path

from bench import data
from bench.kafka_lookup import index
from bench.measure import Contender, interleave, timed
from bench.report import Report, timings
from wirescan import sidecar
from wirescan.partition import tasks

FULL = {"segments": 1000, "plain": 64 << 20, "size": 24 << 20, "walked": 20, "rounds": 5}
QUICK = {"segments": 20, "plain": 1 << 25, "size": 12 << 20, "walked": 2, "rounds": 2}
NAME = f"{0:020}"
SECOND = 1e9


def run(segments: int, plain: int, size: int, walked: int, rounds: int) -> str:
    """The whole part as markdown. segments: how many, of `plain` bytes. size: bytes of a task, no multiple of theirs,
    so that many are cut. walked: segments without index and sidecar."""
    one = data.segment(2, "none", plain, folder=f"v{data.VERSION}-planning-{plain}").path
    if not one.with_suffix(".index").exists():
        index(one)
    sidecar.write(one)
    indexed, noted, bare = (partitions(one, kind, count, endings) for kind, count, endings in (
        ("indexed", segments, [".log", ".index"]), ("noted", segments, [".log", ".log.frames.json"]),
        ("bare", walked, [".log"])))
    bytes_of = one.stat().st_size
    times = interleave([
        Contender(name, timed(lambda where=where: tasks(where, size), rehearse=False), count, bytes_of * count)
        for name, where, count in (("by indexes", indexed, segments), ("by sidecars", noted, segments),
                                   ("by a walk over headers", bare, walked))], rounds)
    found = tasks(indexed, size)
    report = Report("Plans")
    report.at_most(f"{segments:,} segments with indexes", 2,
                   tuple(nanoseconds * segments / SECOND for nanoseconds in times.quartiles("by indexes")), " s")
    report.at_most("the largest task, of the mean", 1.3, (found.skew,))
    report.say(f"Segments of {bytes_of / 2**20:.0f} MiB, one in each partition, shared out to {len(found):,} tasks of "
               f"{size / 2**20:.0f} MiB; an entry of the indexes every 4096 bytes, of the sidecars every MiB.")
    report.say(timings(times, unit="segment"))
    return report.markdown()


def partitions(one: Path, kind: str, count: int, endings: list[str]) -> Path:
    """A directory of partitions that share one segment, and what lies beside it: links, which take no room."""
    top = one.parent / f"{kind}-{count}"
    for number in range(count):
        folder = top / f"orders-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        for ending in endings:
            name = folder / (NAME + ending)
            if not name.exists():
                os.link(one.with_name(NAME + ending), name)
    return top
