"""The formats of Redpanda's log segments, and the functions that read them.

The package wirescan.kafka exports these functions. kafka/formats.py adds `REDPANDA_FORMATS` to its
own.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import Any, SupportsIndex

import numpy as np

from wirescan.core.column_writer import ColumnWriter
from wirescan.files.whole_source import scan_source
from wirescan.frames.columns import Column, PathColumn
from wirescan.frames.errors import check_mode, enforce_mode, resolve_mode
from wirescan.frames.format import Parser, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.logs import LogColumns
from wirescan.frames.table import FrameTable, make_empty, require_rows
from wirescan.kafka.batch_formats import (
    BATCHES,
    HEADERS,
    RECORDS,
    headers,
    records,
    write_records,
)
from wirescan.kafka.evidence import weigh_redpanda_batches
from wirescan.kafka.record_batches.scan import BATCH, RECORD
from wirescan.kafka.redpanda.batch_scan import (
    scan_redpanda_batches,
    scan_redpanda_sets,
    verify_redpanda_batches,
)
from wirescan.kafka.redpanda.batch_types import RedpandaType
from wirescan.kafka.redpanda.cloud_manifest import RedpandaManifest
from wirescan.kafka.redpanda.partition_log import (
    list_cloud_segments,
    list_local_segments,
    read_log,
)
from wirescan.kafka.redpanda.segment_files import (
    BESIDE,
    FILES,
    IGNORE,
    find_redpanda_boundaries,
    read_partition,
    read_redpanda_claim,
    read_term,
    read_topic,
)


def scan_redpanda(
    source: Any,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    into: np.ndarray | None = None,
) -> FrameTable:
    """Scan the batches of Redpanda's segments into a table of kafka.redpanda_batches.

    The rows have dtype BATCH, as those of `scan`. The arguments and exceptions are those of `scan`,
    but a table is no source.

    check: verify the CRC-32C of the header and that of the records.

    The columns are those of `scan`. The offsets are log offsets, which are not Kafka's: see
    `open_redpanda_log`. Column `kind` is a `RedpandaType`, `magic` is always 2, and `leader_epoch`
    is always -1: the term is in the name of the file. `crc` is the checksum of the records.

    A file may end with zeros, because Redpanda allocates its files in advance. A batch with a wrong
    checksum has the fault BAD_CHECKSUM, whichever of both is wrong.

    Format: see wirescan/kafka/redpanda/batch_scan.pyx.
    """
    errors = resolve_mode(errors, source, limits)
    if isinstance(source, FrameTable):
        raise TypeError("scan_redpanda reads files and buffers, not a table")
    return scan_source(
        source, REDPANDA_BATCHES, errors=errors, check=check, limits=limits, into=into
    )


def redpanda_records(
    batches: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    into: np.ndarray | None = None,
    workers: SupportsIndex | None = None,
) -> FrameTable:
    """Open the records of clients in kafka.redpanda_batches: a table of kafka.redpanda_records.

    Only batches of type RAFT_DATA have such records. Batches of other types are read and verified,
    but they have no rows here. A bad batch of any type is one bad row. The rows have dtype RECORD.
    The arguments, the columns and the exceptions are those of `records`. `kafka.records` of such a
    table is the same.
    """
    errors = resolve_mode(errors, batches, limits)
    require_rows(batches, BATCH, "records are opened from a table of kafka.redpanda_batches")
    data = _select_data(batches, verify=check and not batches.checked)
    opened = records(data, errors=errors, check=check, limits=limits, into=into, workers=workers)
    return replace(opened, format=REDPANDA_RECORDS, outer=batches)


def _select_data(batches: FrameTable, *, verify: bool) -> FrameTable:
    """Return batches of Redpanda as kafka.batches. Those that are not of clients become empty.

    verify: verify their checksums.
    """
    rows = batches.rows.copy()
    if verify:
        rows["fault"] = verify_redpanda_batches(batches.rows, batches.buffers)
    is_internal = (rows["kind"] != RedpandaType.RAFT_DATA) & (rows["fault"] == 0)
    rows["size"][is_internal] = rows["body"][is_internal]
    rows["record_count"][is_internal] = 0
    rows["codec"][is_internal] = 0
    return replace(batches, rows=rows, format=BATCHES, checked=True)


def write_redpanda_records(
    batches: FrameTable, writer: ColumnWriter, *, check: bool, limits: Limits
) -> None:
    """Read the records of clients into a writer of columns.

    batches, check, limits: as in `redpanda_records`.
    """
    data = _select_data(batches, verify=check and not batches.checked)
    write_records(data, writer, check=check, limits=limits)


def redpanda_headers(
    records: FrameTable, *, errors: str | None = None, check: bool = True, limits: Limits = Limits()
) -> FrameTable:
    """Open the headers of kafka.redpanda_records: a table of kafka.redpanda_headers.

    The arguments, the columns and the exceptions are those of `headers`. `kafka.headers` of such a
    table is the same.
    """
    errors = resolve_mode(errors, records, limits)
    require_rows(records, RECORD, "headers are opened from a table of kafka.redpanda_records")
    as_kafka = replace(records, format=RECORDS)
    opened = headers(as_kafka, errors=errors, check=check, limits=limits)
    return replace(opened, format=REDPANDA_HEADERS, outer=records)


def open_redpanda_log(
    source: str | os.PathLike[str],
    *,
    manifest: RedpandaManifest | None = None,
    delta: int | None = None,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Return the batches of one partition of Redpanda, with the offsets of Kafka.

    source: the directory of the partition, a glob or a URL. With a manifest, any directory above
        the segments, such as that of a copied bucket.
    manifest: of the partition in object storage, as `read_redpanda_manifest` returns it. Only the
        segments that it names are read.
    delta: how many log offsets before the first segment are none of Kafka's, without a manifest.
        None: the log begins at log offset 0, so there are none.
    errors, check, limits: as in `scan_redpanda`.

    Returns a table of kafka.redpanda_batches in the order of the log. `base_offset` and
    `last_offset` are those that Kafka's clients see. Batches that have none have the offset of the
    next batch. Segments on disk must follow each other without a gap.

    Raises ValueError where the offsets cannot be known: the log begins later than at 0 without a
    `delta`, a segment is missing, or batches follow damage. Raises FileNotFoundError for a missing
    segment of the manifest, and as `scan_redpanda`.
    """
    if manifest is None:
        parts = list_local_segments(source, delta)
    elif delta is None:
        parts = list_cloud_segments(source, manifest)
    else:
        raise ValueError("delta is for segments without a manifest, so only one of both is taken")
    check_mode(errors, limits)
    # Damage must be known to translate offsets, so bad rows are skipped afterwards.
    kept = "mark" if errors == "skip" else errors
    read = partial(scan_redpanda, errors=kept, check=check, limits=limits)
    table = read_log(parts, read) if parts else make_empty(REDPANDA_BATCHES)
    return enforce_mode(table, errors, int(np.count_nonzero(table.bad)))


REDPANDA_BATCHES = replace(
    BATCHES,
    name="kafka.redpanda_batches",
    accepts=(),  # the option topics knows the names of Kafka's directories
    about="batches of Redpanda's log segments, on disk and in object storage",
    meanings={**BATCHES.meanings, "kind": "the type of the batch: see `RedpandaType`"},
    read=scan_redpanda,
    children={"records": redpanda_records},
    columns={**BATCHES.columns, "kind": Column(names=RedpandaType)},
    parser=Parser(
        scan=scan_redpanda_batches,
        spans=scan_redpanda_sets,
        verify=verify_redpanda_batches,
        writes_columns=True,
    ),
    storage=Storage(
        files=FILES,
        ignore=IGNORE,
        text_marks=(),
        beside=BESIDE,
        weigh=weigh_redpanda_batches,
        evidence="both of their checksums are right",
        boundaries=find_redpanda_boundaries,
        path_columns={
            "topic": PathColumn(read_topic, meaning="topic in the path, null if the path has none"),
            "partition": PathColumn(
                read_partition,
                is_number=True,
                meaning="partition in the path, null for none",
            ),
            "term": PathColumn(
                read_term,
                is_number=True,
                meaning="term of the leader in the name of the segment, null for none",
            ),
        },
        log=LogColumns(
            "base_offset",
            "last_offset",
            read_redpanda_claim,
            time="max_timestamp",
        ),
    ),
    display=replace(
        BATCHES.display,
        shown=("_start", "size", "kind", *BATCHES.display.shown[2:]),
        summary=replace(BATCHES.display.summary, values=()),
    ),
)
REDPANDA_RECORDS = replace(
    RECORDS,
    name="kafka.redpanda_records",
    accepts=(),
    about="records of clients in Redpanda's batches",
    read=redpanda_records,
    write=write_redpanda_records,
    within="kafka.redpanda_batches",
    children={"headers": redpanda_headers},
    storage=replace(RECORDS.storage, prune=None),
)
REDPANDA_HEADERS = replace(
    HEADERS,
    name="kafka.redpanda_headers",
    accepts=(),
    about="headers of records in Redpanda's batches",
    read=redpanda_headers,
    within="kafka.redpanda_records",
)
REDPANDA_FORMATS = (REDPANDA_BATCHES, REDPANDA_RECORDS, REDPANDA_HEADERS)
