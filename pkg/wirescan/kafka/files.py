"""The names of log segments, and the positions where a segment can be cut.

    <base offset, 20 digits>.log         entries one after another, perhaps followed by zeros

kafka/formats.py puts these names and functions into the format kafka.batches.
`log/index_files.py` shows the files beside a segment. Source: Apache Kafka, "Log" of the
documentation, and its classes LogSegment and LocalLog.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import numpy as np

from wirescan.files.boundaries import LengthPrefix, find_cuts_at_headers
from wirescan.files.source import get_file_name, get_size, make_sibling_path, open_ranges
from wirescan.frames.limits import Limits
from wirescan.frames.logs import SegmentNames
from wirescan.kafka.constants import BATCH_HEADER_SIZE, LAST_OFFSET_STOP, MAGIC_AT
from wirescan.kafka.log.index_files import (
    ABORTED_ENTRY,
    OFFSET_ENTRY,
    TIME_ENTRY,
    read_index,
)
from wirescan.kafka.record_batches.scan import scan_batches

# Some names are ignored because their records are in another file too: segments that a broker is
# about to delete or to put in place, and directories that a broker moves.
IGNORE = (
    r"\.(deleted|cleaned|swap|index|timeindex|txnindex|snapshot|metadata)$"
    r"|[.-]checkpoint$|-(delete|future|stray)/"
)
FILES = r"(?s)^(?!.*-(delete|future|stray)/).*(^|/)\d{20}\.log\Z"
SEGMENT = re.compile(r"(\d{20})\.log$")
SEGMENTS = SegmentNames(digits=20, suffix=".log")
# The files beside a segment, and the bytes of their entries: see `log/index_files.py`.
BESIDE = {
    ".index": OFFSET_ENTRY.itemsize,
    ".timeindex": TIME_ENTRY.itemsize,
    ".txnindex": ABORTED_ENTRY.itemsize,
    ".snapshot": 0,
    "partition.metadata": 0,
    "leader-epoch-checkpoint": 0,
}
SNAPSHOT = re.compile(r"([0-9]{20})\.snapshot")
PARTITION = re.compile(r"([A-Za-z0-9._-]{1,249})-(\d+)")  # a directory: <topic>-<partition>

SMALLEST = (26, 34, BATCH_HEADER_SIZE)  # bytes of an empty batch of magic 0, 1 and 2
SIZED = LengthPrefix(header=17, length_at=8, overhead=12, smallest=SMALLEST, kind_at=MAGIC_AT)
INTERVAL = 4096  # bytes between the entries of an index, by a broker's default


def parse_directory_name(directory: str) -> tuple[str, int] | None:
    """Return the topic and the partition that a directory is named for, or None."""
    match = PARTITION.fullmatch(os.path.basename(os.path.abspath(directory)))
    return None if match is None else (match[1], int(match[2]))


def list_snapshots(names: Iterable[str], prefix: str) -> dict[int, str]:
    """Return offset -> path of the producer snapshots among the names of files.

    prefix: what precedes each name in its path.
    """
    matches = filter(None, map(SNAPSHOT.fullmatch, sorted(names)))
    return {int(match[1]): prefix + match[0] for match in matches}


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
    if SEGMENT.search(get_file_name(path)):
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
