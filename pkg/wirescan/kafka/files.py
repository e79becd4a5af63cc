"""The names of log segments, and the positions where a segment can be cut.

    <base offset, 20 digits>.log         entries one after another, perhaps followed by zeros
    <base offset>-<segment id>.log       the same, in tiered storage (KIP-405)

Tiered segments are in a directory <topic>-<partition>-<topic id>. Both ids are 16 bytes in base64.
Those of Aiven's plugin are in <prefix><topic>-<topic id>/<partition>. Their bytes are stored in
chunks, which log/aiven_segments.py reads.
kafka/batch_formats.py puts these names and functions into the format kafka.batches.
`log/index_files.py` shows the files beside a segment. Source: Apache Kafka, "Log" of the
documentation, and its classes LogSegment, LocalLog, and LocalTieredStorage of its tests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import numpy as np

from wirescan.files.boundaries import LengthPrefix, find_cuts_at_headers
from wirescan.files.file_pattern import FilePattern
from wirescan.files.source import (
    URL,
    get_file_name,
    get_size,
    join_path,
    list_directory_names,
    make_sibling_path,
    open_ranges,
)
from wirescan.files.translated import add_translator
from wirescan.frames.limits import Limits
from wirescan.frames.logs import SegmentNames
from wirescan.kafka.constants import (
    BATCH_HEADER_SIZE,
    INTERNAL_TOPICS,
    LAST_OFFSET_STOP,
    MAGIC_AT,
)
from wirescan.kafka.log.index_files import (
    ABORTED_ENTRY,
    OFFSET_ENTRY,
    TIME_ENTRY,
    read_index,
)
from wirescan.kafka.record_batches.scan import scan_batches

# The last character of 16 bytes in base64 has two bits of them. So no id ends with a digit, and a
# directory of tiered storage is not taken for the one of a partition with another topic.
ID = r"-[A-Za-z0-9_-]{21}[AQgw]"
# Some names are ignored because their records are in another file too: segments that a broker is
# about to delete or to put in place, and directories that a broker moves.
IGNORE = (
    r"\.(deleted|cleaned|swap|index|timeindex|txnindex|snapshot|metadata|indexes|rsm-manifest)$"
    r"|[._-]checkpoint$|-(delete|future|stray)/"
)
MOVED = r"(?s)^(?!.*-(?:delete|future|stray)/)"  # no such directory is read
NAME = r"[0-9]{20}(" + ID + r")?\.log\Z"
# The directories of Kafka's own topics, among others.
INTERNAL = rf"(?:.*/)?({'|'.join(INTERNAL_TOPICS)})-[0-9]+(?:{ID})?/"
FILES = FilePattern(
    rf"{MOVED}(?!{INTERNAL}).*(^|/){NAME}",
    rf"{MOVED}{INTERNAL}{NAME}",
    rf"{MOVED}.*(^|/){NAME}",
    "the option topics reads them, as in topics=*",
)
SEGMENT = re.compile(r"([0-9]{20})\.log$")
SEGMENTS = SegmentNames(digits=20, suffix=".log", id=ID)
# The files beside a segment, and the bytes of their entries: see `log/index_files.py`.
BESIDE = {
    ".index": OFFSET_ENTRY.itemsize,
    ".timeindex": TIME_ENTRY.itemsize,
    ".txnindex": ABORTED_ENTRY.itemsize,
    ".snapshot": 0,
    "partition.metadata": 0,
    "leader-epoch-checkpoint": 0,
    ".leader_epoch_checkpoint": 0,
    ".indexes": 0,
    ".rsm-manifest": 0,
}
SNAPSHOT = re.compile(r"([0-9]{20})\.snapshot")
# A directory: <topic>-<partition>, in tiered storage followed by the id of the topic.
PARTITION = re.compile(rf"([A-Za-z0-9._-]{{1,249}})-([0-9]+)(?:{ID})?")
# The files of a segment in the layout of Aiven's plugin. Only the .log is stored under its name.
AIVEN_FILE = re.compile(
    rf"(?:^|/)(?P<topic>[A-Za-z0-9._-]{{1,249}}){ID}/(?P<partition>[0-9]{{1,10}})/[0-9]{{20}}{ID}"
    r"\.(?P<kind>log|index|timeindex|txnindex|snapshot|leader_epoch_checkpoint)(?:\?\w+=.*)?\Z",
    re.DOTALL,
)
add_translator(AIVEN_FILE, "wirescan.kafka.log.aiven_segments")
AIVEN_TOPIC = re.compile(rf"([A-Za-z0-9._-]{{1,249}}){ID}")
LAST_PARTITION = (1 << 31) - 1  # the protocol's numbers of partitions are int32

SMALLEST = (26, 34, BATCH_HEADER_SIZE)  # bytes of an empty batch of magic 0, 1 and 2
SIZED = LengthPrefix(header=17, length_at=8, overhead=12, smallest=SMALLEST, kind_at=MAGIC_AT)
INTERVAL = 4096  # bytes between the entries of an index, by a broker's default


def parse_directory_name(directory: str) -> tuple[str, int] | None:
    """Return the topic and the partition that a directory is named for, or None.

    directory: a path or URL.
    """
    if URL.match(directory):
        return _parse_path(join_path(directory, "0.log"))
    path = os.path.abspath(directory)
    match = PARTITION.fullmatch(os.path.basename(path))
    if match is None:
        return _parse_names(*os.path.split(path)[::-1])
    return match[1], int(match[2])


def _parse_names(partition: str, topic_directory: str) -> tuple[str, int] | None:
    """Return the topic and the partition of the directories <topic>-<topic id>/<partition>."""
    topic = AIVEN_TOPIC.fullmatch(os.path.basename(topic_directory))
    if topic is None or not re.fullmatch(r"[0-9]{1,10}", partition):
        return None
    return (topic[1], int(partition)) if int(partition) <= LAST_PARTITION else None


def is_aiven(path: str) -> bool:
    """Return whether a path is one of a file in the layout of Aiven's plugin."""
    return AIVEN_FILE.search(path) is not None


def read_topic(path: str) -> str | None:
    """Return the topic of a segment, by the name of its directory; None for another name."""
    named = _parse_path(path)
    return None if named is None else named[0]


def read_partition(path: str) -> int | None:
    """Return the partition of a segment, as `read_topic` returns the topic."""
    named = _parse_path(path)
    return None if named is None else named[1]


def _parse_path(path: str) -> tuple[str, int] | None:
    """Return the topic and the partition of a segment, by the name of its directory, or None."""
    names = [*list_directory_names(path)[:2], "", ""]
    match = PARTITION.fullmatch(names[0])
    if match is None:
        return _parse_names(names[0], names[1])
    if int(match[2]) > LAST_PARTITION:
        return None
    return match[1], int(match[2])


def is_tiered(path: str) -> bool:
    """Return whether a path is the one of a segment in tiered storage: its name has an id."""
    name = SEGMENTS.parse(get_file_name(path))
    return name is not None and name.id != ""


def list_snapshots(names: Iterable[str], prefix: str) -> dict[int, str]:
    """Return offset -> path of the producer snapshots among the names of files.

    Those of tiered storage are not included: their names are not their offsets.
    prefix: what precedes each name in its path.
    """
    matches = filter(None, map(SNAPSHOT.fullmatch, sorted(names)))
    return {int(match[1]): prefix + match[0] for match in matches}


def list_tiered_snapshots(names: Iterable[str], prefix: str) -> list[str]:
    """Return the paths of the producer snapshots beside segments of tiered storage.

    Each has the name of its segment, and is for the end of that segment. The arguments are those of
    `list_snapshots`.
    """
    stems = [name[: -len(".snapshot")] for name in sorted(names) if name.endswith(".snapshot")]
    return [f"{prefix}{stem}.snapshot" for stem in stems if is_tiered(f"{stem}.log")]


def find_boundaries(
    path: str, size: int, start: int = 0, *, limits: Limits = Limits()
) -> list[int]:
    """Return positions in a file at which a batch begins, about `size` bytes apart.

    The first position is `start`. The positions are those of the `.index` beside a segment, if it
    exists and the batches confirm every entry that is used. Otherwise the function walks from
    header to header. The walk ends at the first header that is not valid: a scan of that slice
    reports the fault. The header of a batch above `limits.frame` is not valid. Raises OSError.
    """
    total = get_size(path)
    if total - start <= size:
        return [start]
    if SEGMENTS.parse(get_file_name(path)) is not None:
        # An index with any fault is ignored: the segment can be walked instead.
        with suppress(OSError, ValueError):
            entries = read_index(make_sibling_path(path, ".index"), total // SMALLEST[0])
            cuts = _cut_at_entries(path, entries, size, total)
            if cuts is not None:
                return [start, *(cut for cut in cuts if cut >= start + size)]
    return find_cuts_at_headers(
        path, size, start, SIZED, partial(_is_intact, limits=limits), limits=limits
    )


def _cut_at_entries(path: str, entries: np.ndarray, size: int, total: int) -> list[int] | None:
    """Return the positions of index entries about `size` bytes apart.

    None means that the entries leave large gaps or disagree with the batches.
    """
    targets = np.arange(size, total, size)
    nearest = np.searchsorted(entries["position"], targets)
    chosen = np.unique(nearest[nearest < len(entries)])
    if not len(chosen):
        return None
    gaps = np.diff(entries["position"][chosen], prepend=0, append=total)
    if gaps.max() > 2 * size + INTERVAL:
        return None
    positions = entries["position"][chosen].tolist()
    with open_ranges(path) as read:
        headers = [bytes(read(position, position + LAST_OFFSET_STOP)) for position in positions]
    if list(map(_read_last_offset, headers)) != entries["offset"][chosen].tolist():
        return None
    return [0, *positions]


def _read_last_offset(header: bytes) -> int | None:
    """Return the last offset of a batch; None if the bytes are no header."""
    if len(header) < LAST_OFFSET_STOP or header[MAGIC_AT] > 2:
        return None
    base = int.from_bytes(header[:8], "big", signed=True)
    if header[MAGIC_AT] < 2:
        return base
    return base + int.from_bytes(header[23:27], "big", signed=True)


def _is_intact(batch: memoryview, limits: Limits) -> bool:
    _, bad, _, used = scan_batches(batch, check=True, resync=False, limits=limits)
    return bool(used == len(batch) and not bad)
