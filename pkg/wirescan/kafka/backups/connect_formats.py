"""The formats of the segments of itadventurer's kafka-backup, and the functions that read them.

kafka/formats.py adds `CONNECT_FORMATS` to its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wirescan.files.whole_source import scan_source
from wirescan.frames.columns import Column, PathColumn
from wirescan.frames.errors import resolve_mode
from wirescan.frames.format import Display, Format, Parser, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.logs import LogColumns
from wirescan.frames.summary_columns import SummaryColumns
from wirescan.frames.table import FrameTable, require_rows
from wirescan.kafka.backups.backup_headers import read_backup_headers
from wirescan.kafka.backups.connect_files import (
    CONNECT_BESIDE,
    CONNECT_FILES,
    find_record_boundaries,
    read_connect_partition,
    read_connect_topic,
)
from wirescan.kafka.backups.connect_scan import (
    CONNECT_HEADER,
    CONNECT_RECORD,
    bytes_needed,
    open_headers,
    scan_record_spans,
    scan_records,
)
from wirescan.kafka.constants import TimestampType
from wirescan.kafka.meanings import MEANINGS

# The first byte of the offset, and the timestamp type, which has one of four values.
RECORD_BITS = 8 + 30


def read_connect_records(
    source: Any,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Scan the records in segments of itadventurer's kafka-backup: kafka.connect_backup_records.

    source: anything that `wirescan.open` accepts. Of a directory, the files
        segment_partition_*_from_offset_*_records are read.
    check: accepted for consistency and ignored: records have no checksum.

    A row has 72 bytes. A record has no length, so after damage the whole rest of the source is one
    bad row. A segment without records is one byte, which is the tail.

    Columns, besides those of every table:

        body                u4: 1 in the first record of a segment, whose version is before the
                            offset; 0 in the other ones
        timestamp           i8, ms, -1 for none
        offset              i8: offset in the log
        key_size            i4: bytes of the place `key`, -1 for null
        value_size          i4: bytes of the place `value`, -1 for null
        header_count        i4
        timestamp_type      i4: see `kafka.TimestampType`; -1 for records without one

    Raises FrameError as `errors` says ("strict", "mark" or "skip"), OSError, and TypeError and
    ValueError for wrong arguments. Format: github.com/itadventurer/kafka-backup, RecordSerde.java.
    """
    errors = resolve_mode(errors, source, limits)
    return scan_source(source, CONNECT_RECORDS, errors=errors, check=check, limits=limits)


def read_connect_headers(
    records: FrameTable, *, errors: str | None = None, check: bool = True, limits: Limits = Limits()
) -> FrameTable:
    """Open the headers of records as a table of 40 bytes a row: kafka.connect_backup_headers.

    Column `parent` is the row of the header in `records`. The places are key and value; a value
    may be null. `errors` is `records.errors` by default. `check` is accepted for consistency and
    ignored: headers have no checksum. Raises as `read_connect_records`, and FrameError(LIMIT) for
    more rows than `limits` allows.
    """
    require_rows(
        records, CONNECT_RECORD, "headers are opened from a table of kafka.connect_backup_records"
    )
    return read_backup_headers(records, CONNECT_HEADERS, open_headers, errors, limits)


def weigh_records(records: FrameTable) -> np.ndarray:
    """Return how unlikely records are in other bytes, in bits: see `wirescan.frames.evidence`.

    A record counts if its offset and the offset before it both rise: three records in a row have
    ascending offsets. The first one counts if the version of the segment is before it. So zeros,
    which are whole records, do not count, and neither do the bytes after them.
    """
    offsets = records["offset"]
    rises = records["body"] > 0
    rises[1:] |= offsets[1:] > offsets[:-1]
    counts = rises.copy()
    counts[1:] &= rises[:-1]
    return np.where(counts, RECORD_BITS, 0)


CONNECT_RECORDS = Format(
    "kafka.connect_backup_records",
    "records in segments of itadventurer's kafka-backup, a sink of Kafka Connect",
    CONNECT_RECORD,
    read_connect_records,
    children={"headers": read_connect_headers},
    columns={
        "offset": Column(is_offset=True),
        "timestamp": Column(unit="ms"),
        "timestamp_type": Column(names=TimestampType),
        "headers": Column(count="header_count"),
    },
    parser=Parser(
        scan=scan_records, spans=scan_record_spans, bytes_needed=bytes_needed, writes_columns=True
    ),
    storage=Storage(
        files=CONNECT_FILES,
        ignore=CONNECT_BESIDE,
        text_marks=(),
        weigh=weigh_records,
        evidence="their offsets rise, and their timestamp types are known",
        boundaries=find_record_boundaries,
        path_columns={
            "topic": PathColumn(
                read_connect_topic, meaning="topic in the path, null if the path has none"
            ),
            "partition": PathColumn(
                read_connect_partition,
                is_number=True,
                meaning="partition in the name of the file, null for none",
            ),
        },
        log=LogColumns("offset", "offset", time="timestamp"),
    ),
    display=Display(
        shown=("offset", "timestamp", "key", "value", "headers"),
        grouped_by="key",
        summary=SummaryColumns(
            values=("timestamp_type",), places={"key": "keys", "value": "values (tombstones)"}
        ),
    ),
    meanings=MEANINGS["kafka.connect_backup_records"],
)
CONNECT_HEADERS = Format(
    "kafka.connect_backup_headers",
    "headers of records in segments of itadventurer's kafka-backup",
    CONNECT_HEADER,
    read_connect_headers,
    within="kafka.connect_backup_records",
    display=Display(shown=("_start", "key", "value"), grouped_by="key"),
    meanings=MEANINGS["kafka.connect_backup_headers"],
)
CONNECT_FORMATS = (CONNECT_RECORDS, CONNECT_HEADERS)
