"""The names of Redpanda's segments, on disk and in object storage.

    <data>/kafka/<topic>/<partition>_<revision>/<base offset>-<term>-v1.log
    <hash>/kafka/<topic>/<partition>_<revision>/<base>-<last>-<size>-<term>-v1.log.<archiver term>

Offsets have no leading zeros, so names do not sort by offsets. Instead of the hash there may be the
id of the cluster. The first objects in storage had the names of the files, followed by the archiver
term. Beside segments there are files .base_index and .compaction_index on disk, and objects .index
and .tx in storage; wirescan does not read them.

Source: Redpanda, `segment_full_path` in src/v/storage/fs_utils.cc, `prefixed_segment_path` in
src/v/cloud_storage/segment_path_utils.cc.
"""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

from wirescan.files.boundaries import find_cuts_at_frames
from wirescan.files.source import get_file_name, list_directory_names
from wirescan.frames.logs import Claim
from wirescan.kafka.redpanda.batch_scan import scan_redpanda_batches

FILES = r"(?s)(^|/)[0-9]+-[0-9]+(-[0-9]+-[0-9]+)?-v1\.log(\.[0-9]+)?\Z"
# Staging files are segments that a broker is about to put in place.
IGNORE = (
    r"-v1\.(base_index|compaction_index)$|-v1\.log(\.compaction)?\.staging$"
    r"|-v1\.log(\.[0-9]+)?\.(index|tx|cannotrecover)$|(^|/)manifest\.(json|bin)$"
)
SEGMENT = re.compile(
    r"([0-9]{1,19})-(?:([0-9]{1,19})-([0-9]{1,19})-)?([0-9]{1,10})-v1\.log"
    r"(?:\.([0-9]{1,19}))?"
)
PARTITION = re.compile(r"([0-9]{1,10})_([0-9]{1,19})")
LAST_INT32 = (1 << 31) - 1
HEADER_SIZE = 61  # bytes of a batch up to its first record
# The files beside a segment. Their entries have no fixed size.
BESIDE = {".base_index": 0, ".compaction_index": 0}

find_redpanda_boundaries = partial(
    find_cuts_at_frames, scan=scan_redpanda_batches, has_checksums=True
)


class RedpandaSegment(NamedTuple):
    """The parts of the name of a segment.

    Attributes:
        base_offset: the log offset of its first batch.
        last_offset: the last log offset, in object storage; None on disk.
        size: bytes, in object storage; None on disk.
        term: the term of the leader that wrote it.
        archiver_term: the term of the broker that uploaded it; None on disk.
    """

    base_offset: int
    last_offset: int | None
    size: int | None
    term: int
    archiver_term: int | None


class RedpandaPartition(NamedTuple):
    """The parts of the directories of a segment: of one partition, in one life of its topic."""

    topic: str
    partition: int
    revision: int


def parse_segment_name(path: str) -> RedpandaSegment | None:
    """Return the parts of the name of a segment, by its path; None for the path of another file."""
    match = SEGMENT.fullmatch(get_file_name(path))
    if match is None:
        return None
    base, last, size, term, archiver_term = match.groups()
    return RedpandaSegment(
        int(base), _to_number(last), _to_number(size), int(term), _to_number(archiver_term)
    )


def _to_number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


def parse_partition_path(path: str) -> RedpandaPartition | None:
    """Return the partition that the directories of a segment are named for, or None."""
    names = list_directory_names(path)[:2]
    match = PARTITION.fullmatch(names[0]) if len(names) == 2 else None
    if match is None or int(match[1]) > LAST_INT32:
        return None
    return RedpandaPartition(names[1], int(match[1]), int(match[2]))


def read_topic(path: str) -> str | None:
    """Return the topic of a segment, by the names of its directories; None for other names."""
    parsed = parse_partition_path(path)
    return None if parsed is None else parsed.topic


def read_partition(path: str) -> int | None:
    """Return the partition of a segment, as `read_topic` returns the topic."""
    parsed = parse_partition_path(path)
    return None if parsed is None else parsed.partition


def read_term(path: str) -> int | None:
    """Return the term of the leader that wrote a segment, by the name of the file, or None."""
    parsed = parse_segment_name(path)
    return None if parsed is None or parsed.term > LAST_INT32 else parsed.term


def read_redpanda_claim(data: memoryview) -> Claim | None:
    """Return what a damaged batch claims, or None without a plausible header.

    data: the bytes from the batch's first byte on.
    """
    head = bytes(data[:HEADER_SIZE])
    if len(head) < HEADER_SIZE:
        return None
    first = int.from_bytes(head[8:16], "little", signed=True)
    last = first + int.from_bytes(head[23:27], "little", signed=True)
    records = int.from_bytes(head[57:61], "little", signed=True)
    return Claim(first, last, records) if first >= 0 and 0 < records <= last - first + 1 else None
