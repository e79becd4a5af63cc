"""The names of the segments of itadventurer's kafka-backup, and where they can be cut.

    <target.dir>/<topic>/segment_partition_<partition>_from_offset_<first offset>_records
                         segment_partition_<partition>_from_offset_<first offset>_index
                         index_partition_<partition>
                         consumer_offsets_partition_<partition>

A partition has at least 3 digits, and an offset at least 10. Only the records are read. Source:
github.com/itadventurer/kafka-backup, SegmentUtils.java.
"""

from __future__ import annotations

import re
from functools import partial

from wirescan.files.boundaries import find_cuts_at_frames
from wirescan.files.source import get_file_name, list_directory_names
from wirescan.kafka.backups.connect_scan import scan_records

_SEGMENT = r"segment_partition_([0-9]{3,10})_from_offset_[0-9]{10,19}"
CONNECT_FILES = rf"(?s)(\A|/){_SEGMENT}_records\Z"
CONNECT_BESIDE = (
    rf"(?s)(\A|/)({_SEGMENT}_index|index_partition_[0-9]{{3,10}}"
    r"|consumer_offsets_partition_[0-9]{3,10})\Z"
)
_NAME = re.compile(rf"{_SEGMENT}_records")
_LAST_PARTITION = (1 << 31) - 1

find_record_boundaries = partial(find_cuts_at_frames, scan=scan_records)


def read_connect_topic(path: str) -> str | None:
    """Return the topic of a segment's path: the name of its directory. None for another path."""
    names = list_directory_names(path)[:1]
    return names[0] if names and read_connect_partition(path) is not None else None


def read_connect_partition(path: str) -> int | None:
    """Return the partition in the name of a segment; None for another path."""
    match = _NAME.fullmatch(get_file_name(path))
    if match is None or int(match[1]) > _LAST_PARTITION:
        return None
    return int(match[1])
