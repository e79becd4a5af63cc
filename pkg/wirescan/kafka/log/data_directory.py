"""The log directory of a broker at a glance: its partitions, without reading their segments.

Of each partition, the names and sizes of the files are listed, and the headers of a few batches are
read: the first one, and those from the last entry of the newest index on. A binary search finds
that entry, because a running broker preallocates megabytes of index.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from wirescan.files.source import open_ranges
from wirescan.frames.escape import make_visible
from wirescan.frames.limits import Limits
from wirescan.kafka.constants import INTERNAL_TOPICS
from wirescan.kafka.files import parse_directory_name
from wirescan.kafka.log.index_files import OFFSET_INDEX
from wirescan.kafka.log.segment import LAYOUT, LogSegment
from wirescan.kafka.record_batches.scan import scan_batches
from wirescan.seglog.index_entries import find_around
from wirescan.seglog.segments import list_segments

TAIL_BYTES = 1 << 20  # bytes of the newest segment that are read at most
HEAD_BYTES = 64 << 10  # bytes of the oldest segment that are read
OFFSET_REACH = 1 << 31  # offsets of a segment, which its index holds as relative ones


class PartitionSummary(NamedTuple):
    """What a partition directory holds.

    path: of the directory. topic, partition: from its name. segments: their number. size: bytes of
    all segments. first, last: offsets of the first and the last batch; None if not known.
    If the first batch is damaged or large, `first` is the offset in the name of its segment.
    first_time, last_time: the highest timestamps of these batches in milliseconds; None if not
    known. problems: what is wrong, by the names and sizes of files and the last bytes.
    """

    path: str
    topic: str
    partition: int
    segments: int
    size: int
    first: int | None
    last: int | None
    first_time: int | None
    last_time: int | None
    problems: tuple[str, ...]

    @property
    def is_internal(self) -> bool:
        """Whether the topic is one of Kafka's own."""
        return self.topic in INTERNAL_TOPICS


def list_partitions(directory: str | os.PathLike[str]) -> list[str]:
    """Return the paths of the partition directories in a log directory, by topic and partition.

    Directories that a broker is about to delete or to move are not included. Raises OSError.
    """
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            name = parse_directory_name(entry.path)
            if name is not None and entry.is_dir():
                found.append((name, entry.path))
    return [path for _, path in sorted(found)]


def summarize_partition(path: str, *, limits: Limits = Limits()) -> PartitionSummary:
    """Return what a partition directory holds. Few of its bytes are read.

    Raises ValueError if the directory is not named <topic>-<partition>, and OSError.
    """
    name = parse_directory_name(path)
    if name is None:
        raise ValueError(f"{make_visible(path)} is not named <topic>-<partition>")
    try:
        segments = list_segments(path, LAYOUT.names, LogSegment)
    except FileNotFoundError:
        return PartitionSummary(path, *name, 0, 0, None, None, None, None, ("no segment",))
    size = sum(segment.size for segment in segments)
    problems = list(_find_missing_indexes(segments))
    problems += [
        f"{os.path.basename(segment.path)} is empty"
        for segment in segments[:-1]
        if not segment.size
    ]
    first, first_time = _read_first(next(filter(_has_bytes, segments), segments[0]), limits)
    last, last_time = None, None
    for segment in reversed(segments):
        if segment.size:
            last, last_time, problem = _read_last(segment, limits)
            problems += [f"{os.path.basename(segment.path)}: {problem}"] * bool(problem)
            break
    return PartitionSummary(
        path, *name, len(segments), size, first, last, first_time, last_time, tuple(problems)
    )


def _has_bytes(segment: LogSegment) -> bool:
    return segment.size > 0


def _find_missing_indexes(segments: tuple[LogSegment, ...]) -> Iterator[str]:
    """Yield the indexes that some segments have, and others lack."""
    names = set(os.listdir(os.path.dirname(segments[0].path)))
    for suffix in ("index", "timeindex"):
        files = [os.path.basename(segment.find_side_path(suffix)) for segment in segments]
        missing = [file for file in files if file not in names]
        if len(missing) < len(files):
            yield from (f"{file} is missing" for file in missing)


def _read_first(segment: LogSegment, limits: Limits) -> tuple[int | None, int | None]:
    """Return the offset and the time of the first batch of a segment."""
    with open_ranges(segment.path) as read:
        data = read(0, min(segment.size, HEAD_BYTES))
    rows, _, _, _ = scan_batches(data, check=False, resync=False, limits=limits)
    if not len(rows) or rows["fault"][0]:
        return segment.base_offset, None
    return int(rows["base_offset"][0]), _to_time(rows["max_timestamp"][0])


def _read_last(segment: LogSegment, limits: Limits) -> tuple[int | None, int | None, str]:
    """Return the offset and the time of the last batch of a segment, and what is wrong there."""
    end = segment.base_offset + OFFSET_REACH
    index = segment.find_side_path("index")
    entry, _, _ = find_around(index, OFFSET_INDEX, "offset", end)
    start = entry["position"] if entry is not None else 0
    if not 0 <= start < segment.size:
        return None, None, f"its .index names byte {start}, after its end"
    if segment.size - start > TAIL_BYTES:
        return None, None, ""  # too far: only a deep look knows
    with open_ranges(segment.path) as read:
        data = read(start, segment.size)
    rows, _, fault, at = scan_batches(data, check=True, resync=False, limits=limits)
    problem = ""
    bad = rows["fault"] != 0
    if bad.any() or (at < len(data) and bytes(data[at:]).strip(b"\0")):
        damaged = int(rows["start"][bad.argmax()]) if bad.any() else at
        problem = f"damaged or cut at byte {start + damaged}"
    rows = rows[~bad]
    if not len(rows):
        return None, None, problem
    return int(rows["last_offset"][-1]), _to_time(rows["max_timestamp"][-1]), problem


def _to_time(timestamp: int) -> int | None:
    return int(timestamp) if timestamp >= 0 else None
