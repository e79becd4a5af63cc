"""The formats of Kafka's record batches, and the functions that read them.

The package wirescan.kafka exports these functions. kafka/formats.py adds `BATCH_FORMATS` to its
own. Redpanda's formats have the same rows: redpanda/redpanda_formats.py declares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, SupportsIndex

import numpy as np

from wirescan.core.column_writer import ColumnWriter
from wirescan.core.loop import spans
from wirescan.core.parallel import FixedWorkers
from wirescan.files.whole_source import scan_carried, scan_source
from wirescan.frames.columns import Column, ComputedColumn, PathColumn
from wirescan.frames.errors import enforce_mode, raise_if_row_limit, resolve_mode
from wirescan.frames.format import Display, Format, Parser, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.logs import LogColumns
from wirescan.frames.registry import format_of
from wirescan.frames.summary_columns import SummaryColumns
from wirescan.frames.table import FrameTable, require_rows
from wirescan.kafka.batch_headers import (
    compute_statistics,
    compute_timestamp_types,
    has_time,
    read_claim,
)
from wirescan.kafka.batch_work import estimate_work
from wirescan.kafka.constants import (
    NO_TIMESTAMP_TYPE,
    NOT_CONTROL,
    Codec,
    ControlType,
    TimestampType,
)
from wirescan.kafka.control_records import KEY_COLUMNS, compute_control_types, name_control_keys
from wirescan.kafka.evidence import weigh_batches
from wirescan.kafka.files import (
    BESIDE,
    FILES,
    IGNORE,
    SEGMENTS,
    find_boundaries,
    is_aiven,
    read_partition,
    read_topic,
)
from wirescan.kafka.log.aiven_segments import excludes_segment
from wirescan.kafka.log.batch_range import select_range
from wirescan.kafka.log.index_writer import KafkaIndexWriter
from wirescan.kafka.log.segment import LAYOUT
from wirescan.kafka.log.side_files import SIDE_FILES
from wirescan.kafka.meanings import MEANINGS
from wirescan.kafka.record_batches.decompress import decompress_batches
from wirescan.kafka.record_batches.scan import (
    BATCH,
    HEADER,
    RECORD,
    open_headers,
    open_messages,
    open_records,
    scan_batches,
    scan_sets,
    verify_batches,
)
from wirescan.kafka.topics_option import TOPICS
from wirescan.seglog.segment_search import Range, prune

# Formats of Redpanda, whose rows are those of BATCHES and RECORDS -> the formats inside them.
# They are named because redpanda/redpanda_formats.py, which declares them, imports this file.
INSIDE_REDPANDA = {
    "kafka.redpanda_batches": "kafka.redpanda_records",
    "kafka.redpanda_records": "kafka.redpanda_headers",
}


def scan(
    source: Any,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    into: np.ndarray | None = None,
) -> FrameTable:
    """Scan the batches of a source into a table of dtype BATCH (88 bytes a row): kafka.batches.

    source: anything that `wirescan.open` accepts. In a directory, its log segments are read. A
        table whose rows have a place `records` is a source too: the partitions of Fetch responses
        or Produce requests. Its record sets are scanned in place.
    errors: "strict", "mark" or "skip". None, the default: the mode of the source if it is a table,
        otherwise "strict".
    check: verify CRC-32C (magic 2) and CRC-32 (magic 0 and 1).
    into: a writable array of dtype BATCH to write the rows to, for a source of one buffer.

    Magic 0, 1 and 2 may be mixed. An uncompressed message of magic 0 or 1 is a batch of one record.
    A compressed message (a wrapper) is a batch with an unknown record_count, -1. Timestamps are
    milliseconds; -1 means no timestamp.

    Columns, besides `start`, `size` and `body` in bytes, `buffer`, `parent` and `fault`:

        base_offset         i8: offset of the first record
        last_offset         i8: offset of the last record. For a wrapper, both columns are the
                            offset of its last message: the wire has no other. Open the records
                            to get the first offset
        base_timestamp      i8, ms: of the first record. If bit 6 of the attributes is set, it is
                            the delete horizon: from this time on, tombstones in the batch may be
                            removed. The timestamps of the records are right in both cases
        max_timestamp       i8, ms: the latest; with LogAppendTime, the timestamp of all records,
                            except for messages of magic 0 in a wrapper of magic 1
        producer_id         i8: of an idempotent producer, otherwise -1
        producer_epoch      i2: the same
        base_sequence       i4: the same. The sequence of a record is
                            (base_sequence + offset - base_offset) modulo 2**31
        leader_epoch        i4: -1 if it is not known
        record_count        i4: number of records, -1 for a wrapper
        crc                 u4: the checksum on the wire: CRC-32C for magic 2, otherwise CRC-32
        attributes          i2: bits 0 to 2 codec, 3 timestamp type (0 CreateTime,
                            1 LogAppendTime), 4 transactional, 5 control, 6 delete horizon
        magic               u1: 0, 1 or 2
        codec               u1: see `Codec`
        is_transactional    u1: 0 or 1
        is_control          u1: 0 or 1

    The column `timestamp_type` is computed when it is asked for, `batches["timestamp_type"]`:

        timestamp_type      i1: see `TimestampType`; -1 for magic 0, which has no timestamps

    If the source is a table, column `parent` is the row in it. `stops` lists the record sets that
    do not end with a batch: brokers cut record sets at any byte.

    After damage, the search for the next intact batch recognizes a batch by its header and its
    checksum. It also finds a batch that is copied in a value of the damaged batch.

    Raises FrameError as `errors` says ("strict", "mark" or "skip"), OSError, and TypeError and
    ValueError for wrong arguments. Format: Apache Kafka documentation, 5.3 "Record Batch"; Kafka
    protocol guide 0.8, "Message sets".
    """
    if type(source) is not bytes and isinstance(source, FrameTable):
        errors = resolve_mode(errors, source, limits)
        if into is not None:
            raise ValueError("into takes the rows of one buffer, not of record sets in a table")
        return scan_carried(source, BATCHES, errors=errors, check=check, limits=limits)
    if errors is None:
        errors = "strict"
    return scan_source(source, BATCHES, errors, check, limits, into)


def records(
    batches: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    into: np.ndarray | None = None,
    workers: SupportsIndex | None = None,
) -> FrameTable:
    """Open the records of kafka.batches as a table of dtype RECORD (64 bytes a row): kafka.records.

    errors: "strict", "mark" or "skip". None, the default: as in `batches.errors`.
    check: verify the CRC-32 of the messages in a wrapper. Verify the checksums of the batches too,
        if `scan` did not. A late verification saves a pass over memory, but it does not detect a
        damaged length; `scan` would search for the next batch then.
    limits: bounds the compressed payloads. They are decompressed into new buffers of the table.
    into: a writable array of dtype RECORD to write the rows to.
    workers: how many threads decompress payloads and open records. None, the default: as many as
        there are cores for this process, but at most the environment variable WIRESCAN_WORKERS, and
        one thread for less than 1 MiB of compressed bytes or 16 MiB of records. The table is the
        same for each number of threads. Only how compressed records are distributed over the new
        buffers depends on it.

    Columns, besides those of every table:

        parent              i4: row of the record in `batches`
        kind                u1: the magic
        offset              i8: offset in the log
        timestamp           i8, ms, -1 for none. With LogAppendTime it is the broker's time.
                            Messages of magic 0 have none
        key_size            i4: bytes of the place `key`, -1 for null
        value_size          i4: bytes of the place `value`, -1 for null
        header_count        i4

    The column `control` is computed when it is asked for, `records["control"]`:

        control             i1: see `ControlType`; -1 for records that are no control records

    Any negative size on the wire, such as -2, is null, as in Kafka. The records of control batches
    are included: `batches["is_control"][records["parent"]]` selects them. A bad batch is one bad
    row here, with the fault of the batch. Of the batches that `kafka.open_log` returns for a range
    of offsets, only the records of that range are opened.

    Raises as `scan`, FrameError(LIMIT) for more rows than `limits` allows, and ValueError for fewer
    than one worker.
    """
    errors = resolve_mode(errors, batches, limits)
    require_rows(batches, BATCH, "records are opened from a table of kafka.batches")
    read = _find_redpanda_reader(batches)
    if read is not None:
        return read(batches, errors=errors, check=check, limits=limits, into=into, workers=workers)
    with FixedWorkers(workers):
        table = _open_records(batches, errors=errors, check=check, limits=limits, into=into)
    return select_range(table, batches)


def _open_records(
    batches: FrameTable, *, errors: str, check: bool, limits: Limits, into: np.ndarray | None
) -> FrameTable:
    verify = check and not batches.checked
    if into is None:
        opened = open_messages(batches.rows, batches.buffers, limits, verify=verify)
        if opened is not None:
            return FrameTable(
                batches.buffers, opened[0], (), RECORDS, batches, checked=check, errors=errors
            )
    payloads = decompress_batches(batches, limits, verify=verify)
    rows, bad, fault = open_records(
        batches.rows,
        payloads.buffers,
        payloads.spans,
        payloads.counts,
        check,
        limits,
        into=into,
        verify=payloads.verify,
    )
    table = FrameTable(payloads.buffers, rows, (), RECORDS, batches, checked=check)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)


def write_records(
    batches: FrameTable, writer: ColumnWriter, *, check: bool, limits: Limits
) -> None:
    """Read the records of batches into a writer of columns.

    batches, check, limits: as in `records`.
    """
    require_rows(batches, BATCH, "records are opened from a table of kafka.batches")
    payloads = decompress_batches(batches, limits, verify=check and not batches.checked)
    open_records(
        batches.rows,
        payloads.buffers,
        payloads.spans,
        payloads.counts,
        check,
        limits,
        verify=payloads.verify,
        writer=writer,
    )


def headers(
    records: FrameTable, *, errors: str | None = None, check: bool = True, limits: Limits = Limits()
) -> FrameTable:
    """Open the headers of kafka.records as a table of dtype HEADER (40 bytes a row): kafka.headers.

    Column `parent` is the row of the header in `records`. The places are key and value; a value
    may be null. Duplicate keys are kept, in the order of the wire. `errors` is `records.errors` by
    default. `check` is accepted for consistency and ignored: headers have no checksum. Raises as
    `records`.
    """
    errors = resolve_mode(errors, records, limits)
    require_rows(records, RECORD, "headers are opened from a table of kafka.records")
    read = _find_redpanda_reader(records)
    if read is not None:
        return read(records, errors=errors, check=check, limits=limits)
    selected = (records["header_count"] > 0) | records.bad
    header_spans = spans(records.rows, records["headers_at"])[selected]
    counts = records["header_count"][selected]
    rows, bad, fault = open_headers(records.rows, records.buffers, header_spans, counts, limits)
    table = FrameTable(records.buffers, rows, (), HEADERS, records)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)


def _find_redpanda_reader(table: FrameTable) -> Callable[..., FrameTable] | None:
    """Return the function that opens the frames inside those of Redpanda; None for other frames."""
    if table.format is None or table.format.name not in INSIDE_REDPANDA:
        return None
    # Not one of `children`: those of captures, for example, call `records` and `headers`.
    return format_of(INSIDE_REDPANDA[table.format.name]).read


def prune_batches(
    path: str, bounds: Mapping[str, Range], *, limits: Limits = Limits()
) -> tuple[int, int]:
    """Return (start, stop), the bytes of a segment that can hold the wanted batches.

    The arguments are those of `wirescan.seglog.segment_search.prune`, for the columns of batches.
    """
    lowest, _ = bounds.get("last_offset", (None, None))
    _, highest = bounds.get("base_offset", (None, None))
    earliest, _ = bounds.get("max_timestamp", (None, None))
    record_bounds = {"offset": (lowest, highest), "timestamp": (earliest, None)}
    return prune_records(path, record_bounds, limits=limits)


def prune_records(
    path: str, bounds: Mapping[str, Range], *, limits: Limits = Limits()
) -> tuple[int, int]:
    """Return (start, stop), the bytes of a segment that can hold the wanted records.

    The arguments are those of `wirescan.seglog.segment_search.prune`. The manifest of a segment in
    chunks excludes it before anything else of it is read.
    """
    if is_aiven(path) and excludes_segment(path, bounds):
        return 0, 0
    return prune(LAYOUT, path, bounds, limits=limits)


BATCHES = Format(
    "kafka.batches",
    "record batches and message sets of log segments, Produce requests and Fetch responses",
    BATCH,
    scan,
    children={"records": records},
    columns={
        "base_offset": Column(is_offset=True),
        "last_offset": Column(is_offset=True),
        "base_timestamp": Column(unit="ms"),
        "max_timestamp": Column(unit="ms"),
        "codec": Column(names=Codec),
        "timestamp_type": Column(
            names=TimestampType,
            computed=ComputedColumn(
                compute_timestamp_types,
                ("attributes", "magic"),
                (),
                dtype="i1",
                null=NO_TIMESTAMP_TYPE,
            ),
        ),
    },
    parser=Parser(scan=scan_batches, spans=scan_sets, verify=verify_batches, writes_columns=True),
    storage=Storage(
        files=FILES,
        ignore=IGNORE,
        text_marks=(),
        beside=BESIDE,
        weigh=weigh_batches,
        evidence="their checksums are right",
        boundaries=find_boundaries,
        estimate_work=estimate_work,
        prune=prune_batches,
        path_columns={
            "topic": PathColumn(read_topic, meaning="topic in the path, null if the path has none"),
            "partition": PathColumn(
                read_partition, is_number=True, meaning="partition in the path, null for none"
            ),
        },
        log=LogColumns(
            "base_offset",
            "last_offset",
            read_claim,
            SIDE_FILES,
            segments=SEGMENTS,
            directory_files=("partition.metadata", "leader-epoch-checkpoint"),
            make_index_writer=KafkaIndexWriter,
            time="max_timestamp",
        ),
    ),
    display=Display(
        shown=(
            "_start",
            "size",
            "base_offset",
            "last_offset",
            "record_count",
            "codec",
            "max_timestamp",
        ),
        grouped_by="codec",
        record_count="record_count",
        summary=SummaryColumns(
            codec="codec",
            values=("magic",),
            flags=("is_control", "is_transactional"),
            unopened="compressed wrapper",
        ),
        has_time=has_time,
    ),
    accepts=(TOPICS,),
    meanings=MEANINGS["kafka.batches"],
)
RECORDS = Format(
    "kafka.records",
    "records of batches; compressed batches are decompressed",
    RECORD,
    records,
    write=write_records,
    within="kafka.batches",
    children={"headers": headers},
    columns={
        "offset": Column(is_offset=True),
        "timestamp": Column(unit="ms"),
        "headers": Column(count="header_count"),
        "is_control": Column(inherited=True),
        "control": Column(
            names=ControlType,
            computed=ComputedColumn(
                compute_control_types, KEY_COLUMNS, ("is_control",), dtype="i1", null=NOT_CONTROL
            ),
        ),
    },
    storage=Storage(
        statistics=compute_statistics,
        prune=prune_records,
        log=LogColumns("offset", "offset", time="timestamp"),
    ),
    display=Display(
        shown=("offset", "timestamp", "key", "value", "headers"),
        grouped_by="key",
        counted_as="records",
        name_keys=name_control_keys,
        summary=SummaryColumns(places={"key": "keys", "value": "values (tombstones)"}),
    ),
    accepts=(TOPICS,),
    meanings=MEANINGS["kafka.records"],
)
HEADERS = Format(
    "kafka.headers",
    "headers of records",
    HEADER,
    headers,
    within="kafka.records",
    display=Display(shown=("_start", "key", "value"), grouped_by="key"),
    accepts=(TOPICS,),
    meanings=MEANINGS["kafka.headers"],
)
BATCH_FORMATS = (BATCHES, RECORDS, HEADERS)
