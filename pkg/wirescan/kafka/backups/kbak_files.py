"""The names of KBAK segments, which OSO's kafka-backup writes.

    <backup id>/topics/<topic>/partition=<partition>/segment-<first offset, 20 digits>.bin
    <backup id>/manifest.json

The name of a compressed segment ends with .bin.zst or .bin.lz4. Source: kafka-backup-core 0.25.2,
`segment_key` of src/backup/engine.rs.
"""

from __future__ import annotations

import re

from wirescan.files.source import list_directory_names
from wirescan.frames.limits import Limits

KBAK_FILES = r"(?s)(^|/)segment-[0-9]{20}\.bin(\.zst|\.lz4)?\Z"
_PARTITION = re.compile(r"partition=([0-9]{1,10})")
_LAST_PARTITION = (1 << 31) - 1


def read_backup_topic(path: str) -> str | None:
    """Return the topic of a KBAK segment, by its path; None for another path."""
    place = _parse_path(path)
    return None if place is None else place[0]


def read_backup_partition(path: str) -> int | None:
    """Return the partition of a KBAK segment, as `read_backup_topic` returns the topic."""
    place = _parse_path(path)
    return None if place is None else place[1]


def _parse_path(path: str) -> tuple[str, int] | None:
    names = list_directory_names(path)[:3]
    if len(names) < 3 or names[2] != "topics":
        return None
    match = _PARTITION.fullmatch(names[0])
    if match is None or int(match[1]) > _LAST_PARTITION:
        return None
    return names[1], int(match[1])


def find_segment_boundaries(
    path: str, size: int, start: int = 0, *, limits: Limits = Limits()
) -> list[int]:
    """Return [start]: a file is one segment, which cannot be cut."""
    return [start]
