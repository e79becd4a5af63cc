"""The formats of KBAK segments, which OSO's kafka-backup writes, and the functions that read them.

kafka/formats.py adds `KBAK_FORMATS` to its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from wirescan.core.column_writer import ColumnWriter
from wirescan.core.loop import lie_inside, spans
from wirescan.files.whole_source import scan_source
from wirescan.frames.arena import Arena
from wirescan.frames.columns import Column, PathColumn
from wirescan.frames.errors import enforce_mode, raise_if_row_limit, resolve_mode
from wirescan.frames.evidence import weigh_equally
from wirescan.frames.format import Display, Format, Parser, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.summary_columns import SummaryColumns
from wirescan.frames.table import MAX_BUFFERS, FrameTable, require_rows
from wirescan.kafka.backups.backup_headers import read_backup_headers
from wirescan.kafka.backups.kbak_files import (
    KBAK_FILES,
    find_segment_boundaries,
    read_backup_partition,
    read_backup_topic,
)
from wirescan.kafka.backups.kbak_scan import (
    FOOTER,
    KBAK_HEADER,
    KBAK_RECORD,
    KBAK_SEGMENT,
    bytes_needed,
    open_headers,
    open_records,
    scan_segment_spans,
    scan_segments,
)
from wirescan.kafka.meanings import MEANINGS

CODEC_NAMES = {1: "zstd", 2: "lz4-sized"}  # number on the wire -> name in wirescan.frames.codecs
USUAL_RATIO = 5  # a first guess of the ratio of decompressed to compressed bytes


class BackupCodec(IntEnum):
    """A value of the column `codec` of kafka.kbak_segments."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2


def read_kbak_segments(
    source: Any,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Scan the KBAK segments of a source into a table of 56 bytes a row: kafka.kbak_segments.

    source: anything that `wirescan.open` accepts. Of a directory, the files segment-*.bin,
        segment-*.bin.zst and segment-*.bin.lz4 are read.
    check: accepted for consistency and ignored. The CRC-32 shows where a segment ends, so it is
        always verified.

    A file is one segment. Segments of more than `limits.frame` bytes (100 MiB) are refused, and so
    are payloads of more than `limits.inflated` (64 MiB). The program's own default is 128 MiB of
    records in a segment, so large backups need higher limits.

    Columns, besides those of every table:

        base_offset         i8: offset of the first record
        last_offset         i8: offset of the last record
        record_count        i4: number of records
        crc                 u4: the CRC-32 on the wire
        version             u4: 1
        codec               u4: see `BackupCodec`

    Raises FrameError as `errors` says ("strict", "mark" or "skip"), OSError, and TypeError and
    ValueError for wrong arguments. Format: kafka-backup-core 0.25.2, src/segment/format.rs.
    """
    errors = resolve_mode(errors, source, limits)
    return scan_source(source, KBAK_SEGMENTS, errors=errors, check=check, limits=limits)


def read_kbak_records(
    segments: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Open the records of KBAK segments as a table of 64 bytes a row: kafka.kbak_records.

    errors: "strict", "mark" or "skip". None, the default: as in `segments.errors`.
    check: accepted for consistency and ignored: records have no checksum.
    limits: bounds the compressed payloads, which are decompressed into new buffers of the table.

    Columns, besides those of every table:

        parent              i4: row of the record in `segments`
        timestamp           i8, ms, as the broker returned it
        offset              i8: offset in the log
        key_size            i4: bytes of the place `key`, -1 for null
        value_size          i4: bytes of the place `value`, -1 for null
        header_count        i4

    The program keeps no timestamp type. It may add headers of its own, such as x-original-offset
    (i8, little-endian): they are rows of `headers` as those of the record are.

    Raises as `read_kbak_segments`, and FrameError(LIMIT) for more rows than `limits` allows.
    """
    errors = resolve_mode(errors, segments, limits)
    require_rows(segments, KBAK_SEGMENT, "records are opened from a table of kafka.kbak_segments")
    payloads = _decompress(segments, limits)
    rows, bad, fault = open_records(
        segments.rows, payloads.buffers, payloads.spans, payloads.counts, limits
    )
    table = FrameTable(payloads.buffers, rows, (), KBAK_RECORDS, segments, checked=check)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)


def write_kbak_records(
    segments: FrameTable, writer: ColumnWriter, *, check: bool, limits: Limits
) -> None:
    """Read the records of segments into a writer of columns. Arguments as `read_kbak_records`."""
    require_rows(segments, KBAK_SEGMENT, "records are opened from a table of kafka.kbak_segments")
    payloads = _decompress(segments, limits)
    open_records(
        segments.rows, payloads.buffers, payloads.spans, payloads.counts, limits, writer=writer
    )


class _SegmentPayloads(NamedTuple):
    """The records of segments.

    buffers: those of the segments, then the decompressed payloads.
    spans: dtype HEAD, where the records of each segment are.
    counts: int32 array, the number of records in each segment.
    """

    buffers: tuple[memoryview, ...]
    spans: np.ndarray
    counts: np.ndarray


def _decompress(segments: FrameTable, limits: Limits) -> _SegmentPayloads:
    """Decompress the payloads of segments into new buffers."""
    rows = segments.rows
    if not lie_inside(rows, segments.buffers):
        raise ValueError("a row points outside its buffer")
    opened = spans(rows)
    good = rows["fault"] == 0
    if (opened["size"][good] < FOOTER).any():
        raise ValueError("a row of a segment has no bytes for the segment's footer")
    opened["size"][good] -= FOOTER
    counts = np.ascontiguousarray(rows["record_count"])
    packed = np.flatnonzero(good & (rows["codec"] != BackupCodec.NONE))
    if not len(packed):
        return _SegmentPayloads(segments.buffers, opened, counts)
    payloads = opened[packed]
    names = [CODEC_NAMES.get(codec, str(codec)) for codec in rows["codec"][packed].tolist()]
    arena = Arena(limits, USUAL_RATIO * int(payloads["size"].sum(dtype=np.int64)))
    places = arena.add_each(names, segments.buffers, payloads)
    buffers = (*segments.buffers, *arena.buffers)
    if len(buffers) > MAX_BUFFERS:
        raise ValueError("a table holds at most 65,536 buffers; open fewer segments at a time")
    # The bad row of a payload that is not decompressed covers the compressed payload.
    payloads["fault"] = places["fault"]
    whole = places["fault"] == 0
    payloads["buffer"][whole] = places["buffer"][whole] + len(segments.buffers)
    for name in ("start", "size"):
        payloads[name][whole] = places[name][whole]
    opened[packed] = payloads
    return _SegmentPayloads(buffers, opened, counts)


def read_kbak_headers(
    records: FrameTable, *, errors: str | None = None, check: bool = True, limits: Limits = Limits()
) -> FrameTable:
    """Open the headers of KBAK records as a table of 40 bytes a row: kafka.kbak_headers.

    Column `parent` is the row of the header in `records`. The places are key and value; a value
    may be null. `errors` is `records.errors` by default. `check` is accepted for consistency and
    ignored: headers have no checksum. Raises as `read_kbak_records`.
    """
    require_rows(records, KBAK_RECORD, "headers are opened from a table of kafka.kbak_records")
    return read_backup_headers(records, KBAK_HEADERS, open_headers, errors, limits)


def compute_offset_ranges(segments: np.ndarray) -> Mapping[str, tuple[Any, Any]]:
    """Return the lowest and highest offsets of the records in rows of kafka.kbak_segments."""
    return {"offset": (segments["base_offset"], segments["last_offset"])}


KBAK_SEGMENTS = Format(
    "kafka.kbak_segments",
    "segments of OSO's kafka-backup, which hold the records of a partition",
    KBAK_SEGMENT,
    read_kbak_segments,
    children={"records": read_kbak_records},
    columns={
        "base_offset": Column(is_offset=True),
        "last_offset": Column(is_offset=True),
        "codec": Column(names=BackupCodec),
    },
    parser=Parser(
        scan=scan_segments, spans=scan_segment_spans, bytes_needed=bytes_needed, writes_columns=True
    ),
    storage=Storage(
        files=KBAK_FILES,
        text_marks=(b"KBAK",),
        # The two marks and the checksum, and the version.
        weigh=weigh_equally(3 * 32 + 8),
        evidence="their checksums are right",
        boundaries=find_segment_boundaries,
        path_columns={
            "topic": PathColumn(
                read_backup_topic, meaning="topic in the path, null if the path has none"
            ),
            "partition": PathColumn(
                read_backup_partition,
                is_number=True,
                meaning="partition in the path, null for none",
            ),
        },
    ),
    display=Display(
        shown=("_start", "size", "base_offset", "last_offset", "record_count", "codec"),
        grouped_by="codec",
        record_count="record_count",
        summary=SummaryColumns(codec="codec", values=("version",)),
    ),
    meanings=MEANINGS["kafka.kbak_segments"],
)
KBAK_RECORDS = Format(
    "kafka.kbak_records",
    "records in segments of OSO's kafka-backup; compressed segments are decompressed",
    KBAK_RECORD,
    read_kbak_records,
    write=write_kbak_records,
    within="kafka.kbak_segments",
    children={"headers": read_kbak_headers},
    columns={
        "offset": Column(is_offset=True),
        "timestamp": Column(unit="ms"),
        "headers": Column(count="header_count"),
    },
    storage=Storage(statistics=compute_offset_ranges),
    display=Display(
        shown=("offset", "timestamp", "key", "value", "headers"),
        grouped_by="key",
        counted_as="records",
        summary=SummaryColumns(places={"key": "keys", "value": "values (tombstones)"}),
    ),
    meanings=MEANINGS["kafka.kbak_records"],
)
KBAK_HEADERS = Format(
    "kafka.kbak_headers",
    "headers of records in segments of OSO's kafka-backup",
    KBAK_HEADER,
    read_kbak_headers,
    within="kafka.kbak_records",
    display=Display(shown=("_start", "key", "value"), grouped_by="key"),
    meanings=MEANINGS["kafka.kbak_headers"],
)
KBAK_FORMATS = (KBAK_SEGMENTS, KBAK_RECORDS, KBAK_HEADERS)
