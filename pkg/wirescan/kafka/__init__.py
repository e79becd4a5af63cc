"""Kafka: record data, as brokers store it and Produce and Fetch carry it; streams of its protocol; and its clusters.

`scan` gives batches, `records` what is in them, `headers` what is in those. kafka/scan.pyx draws the wire. The rest:

    protocol.py     requests, responses, pair, body             compose.py     encode_request, encode_response
    directory.py    PartitionLog, within; log.py: open_log      arrays.py      encode_batches, encode_message_sets
    transactions.py aborted, committed                          encode.py      encode_batch, encode_message_set
    errors.py       ErrorCode, BrokerError                      client/        fetch, Client, AsyncClient
"""
from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from wirescan.catalog import Format
from wirescan.codecs import Arena, CodecError
from wirescan.core.loop import lie_inside, spans
from wirescan.errors import apply, check_mode, limited
from wirescan.kafka.arrays import encode_batches, encode_message_sets
from wirescan.kafka.compose import encode_request, encode_response
from wirescan.kafka.directory import PartitionLog, within
from wirescan.kafka.encode import Record, encode_batch, encode_message_set
from wirescan.kafka.errors import BrokerError, ErrorCode
from wirescan.kafka.log import FILES, IGNORE, cuts, open_log
from wirescan.kafka.narrow import bounds, narrow
from wirescan.kafka.partitioner import partition_of
from wirescan.kafka.protocol import FORMATS as PROTOCOL
from wirescan.kafka.protocol import PAIR, REQUEST, RESPONSE, body, pair, requests, responses
from wirescan.kafka.scan import (
    BATCH, HEADER, RECORD, claims, open_headers, open_records, scan_batches, scan_sets, verify_batches)
from wirescan.kafka.schema import ApiKey
from wirescan.kafka.transactions import aborted, committed
from wirescan.limits import Limits
from wirescan.source import open
from wirescan.table import FrameTable, Stop, empty, join

__all__ = [
    "ApiKey", "BATCH", "BrokerError", "Codec", "ErrorCode", "FORMATS", "HEADER", "PAIR", "PartitionLog", "RECORD",
    "REQUEST", "RESPONSE", "Record", "aborted", "body", "committed", "encode_batch", "encode_batches",
    "encode_message_set", "encode_message_sets", "encode_request", "encode_response", "headers", "open_log", "pair",
    "partition_of", "records", "requests", "responses", "scan", "within"]


class Codec(IntEnum):
    """The column `codec` of kafka.batches."""
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def scan(source: Any, *, errors: str = "strict", check: bool = True, limits: Limits = Limits(),
         into: np.ndarray | None = None) -> FrameTable:
    """The batches in a source, as a table of dtype BATCH (88 bytes a row): kafka.batches.

    source: anything that `wirescan.open` takes; of a directory, its log segments. Magic 0, 1 and 2 may be mixed; an
    uncompressed message of magic 0 or 1 is a batch of one record, a compressed one (a wrapper) a batch of unknown
    record_count, -1. Timestamps are milliseconds, -1 where there is none. check: verify CRC-32C (magic 2) and CRC-32.
    into: a writable array of dtype BATCH to write the rows to, for a source of one buffer.

    A table whose rows have a place `records` (the partitions of Fetch responses or Produce requests) is a source too:
    the record sets are scanned where they lie, and column `parent` is the row there. `stops` has those sets that did
    not end with a batch: brokers cut them anywhere.

    A search for the next intact batch, after damage, knows batches by their header and checksum: one that stands
    verbatim in a value of the damaged batch is found as well.
    Raises FrameError as `errors` says ("strict", "mark" or "skip"), OSError, TypeError and ValueError for unfit
    arguments. Format: Apache Kafka documentation, 5.3 "Record Batch"; Kafka protocol guide 0.8, "Message sets".
    """
    check_mode(errors, limits)
    if isinstance(source, FrameTable):
        return _scan_sets(source, errors, check, limits, into)
    buffers = open(source, files=FILES, ignore=IGNORE)
    if into is not None and len(buffers) != 1:
        raise ValueError(f"into takes the rows of one buffer, and the source has {len(buffers)}")
    tables = []
    for buffer in buffers:
        rows, bad, fault, offset = scan_batches(buffer, check, errors != "strict", limits, into)
        tables.append(apply(FrameTable((buffer,), rows, (Stop(fault, offset),), BATCHES, checked=check), errors, bad))
    return join(tables) if tables else empty(BATCHES)


def _scan_sets(outer: FrameTable, errors: str, check: bool, limits: Limits, into: np.ndarray | None) -> FrameTable:
    if "records" not in outer.places:
        raise TypeError(f"{outer.name} has no place `records` to scan")
    if into is not None:
        raise ValueError("into takes the rows of one buffer, not of record sets in a table")
    sets = spans(outer.rows, outer["records_at"])
    sets["size"] = np.maximum(outer["records_size"], 0)
    sets = sets[(sets["size"] > 0) & ~outer.bad]
    rows, bad, faults, offsets = scan_sets(outer.buffers, sets, check, errors != "strict", limits)
    stops = tuple(Stop(int(faults[i]), int(offsets[i]), int(sets["buffer"][i])) for i in np.flatnonzero(faults))
    return apply(FrameTable(outer.buffers, rows, stops, BATCHES, outer, checked=check), errors, bad)


def records(batches: FrameTable, *, errors: str = "strict", check: bool = True, limits: Limits = Limits(),
            into: np.ndarray | None = None) -> FrameTable:
    """The records in a table of kafka.batches, as a table of dtype RECORD (64 bytes a row): kafka.records.

    Column `parent` is the record's row in `batches`. Offsets are those of the log, timestamps milliseconds (-1: none),
    of the broker where the batch says LogAppendTime. Places: key, value. Records of control batches are among them:
    `batches["is_control"][records["parent"]]`. Compressed payloads are inflated, within `limits`, into new buffers of
    the table. check: verify CRC-32 of the messages in a wrapper, and the checksums of the batches where `scan` did not:
    that saves a pass over memory, but a damaged length is not found out (`scan` looks for the next batch then).
    into: a writable array of dtype RECORD to write the rows to.

    A bad batch is one bad row here, with the batch's fault. Raises as `scan`, and FrameError(LIMIT) beyond limits.rows.
    """
    check_mode(errors, limits)
    _refuse_unless(batches, BATCH, "records are opened from a table of kafka.batches")
    verify = check and not batches.checked
    buffers, opened, counts, verify = _payloads(batches, limits, verify)
    rows, bad, fault = open_records(batches.rows, buffers, opened, counts, check, limits, into, verify)
    return apply(limited(FrameTable(buffers, rows, (), RECORDS, batches, checked=check), fault), errors, bad)


def headers(records: FrameTable, *, errors: str = "strict", check: bool = True,
            limits: Limits = Limits()) -> FrameTable:
    """The headers in a table of kafka.records, as a table of dtype HEADER (40 bytes a row): kafka.headers.

    Column `parent` is the header's row in `records`. Places: key, value (which may be null). Duplicate keys stay, in
    the order of the wire. Raises as `records`; `check` is there for the sake of likeness: headers have no checksum.
    """
    check_mode(errors, limits)
    _refuse_unless(records, RECORD, "headers are opened from a table of kafka.records")
    opened = spans(records.rows, records["headers_at"])
    have = (records["header_count"] > 0) | records.bad
    rows, bad, fault = open_headers(records.rows, records.buffers, opened[have], records["header_count"][have], limits)
    return apply(limited(FrameTable(records.buffers, rows, (), HEADERS, records), fault), errors, bad)


def _refuse_unless(table: Any, dtype: np.dtype, what: str) -> None:
    if not isinstance(table, FrameTable) or table.dtype != dtype:
        raise TypeError(f"{what}, not from {getattr(table, 'name', type(table).__name__)}")


CODECS = ({1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"},
          {1: "gzip", 2: "snappy", 3: "lz4-legacy"})            # [magic == 0]
USUAL_RATIO = 5                 # of what payloads inflate to, to what they are: a first guess


def _payloads(batches: FrameTable, limits: Limits,
              verify: bool) -> tuple[tuple[memoryview, ...], np.ndarray, np.ndarray, bool]:
    """Buffers, spans and counts for the records of batches, and whether checksums are still to be verified: here they
    are if any payload is compressed, since that of a batch with a bad one is not inflated."""
    rows = batches.rows
    opened = spans(rows)
    if not lie_inside(rows, batches.buffers):
        raise ValueError("a row points outside its buffer")
    counts, packed = claims(rows)
    if not len(packed):
        return batches.buffers, opened, counts, verify
    if verify:
        opened["fault"] = verify_batches(rows, batches.buffers)
        packed = packed[opened["fault"][packed] == 0]
    part = opened[packed]
    arena, held = Arena(limits, USUAL_RATIO * int(part["size"].sum(dtype=np.int64))), len(batches.buffers)
    views, inflated, faults = batches.buffers, [], []
    stop = part["start"] + part["size"]
    columns = (part["buffer"], part["start"], stop, rows["codec"][packed], rows["magic"][packed])
    for buffer, start, end, codec, magic in zip(*(column.tolist() for column in columns)):
        try:
            inflated.append(arena.add(CODECS[magic == 0].get(codec, str(codec)), views[buffer][start:end]))
            faults.append(0)
        except CodecError as error:
            inflated.append((buffer - held, start, end - start))      # the row covers the payload as it lies there
            faults.append(error.fault)
    if held + len(arena.buffers) > 1 << 16:
        raise ValueError("a table holds at most 65,536 buffers; open fewer batches at a time")
    places = np.array(inflated, np.int64).reshape(-1, 3)
    part["buffer"], part["start"], part["size"] = places[:, 0] + held, places[:, 1], places[:, 2]
    part["fault"] = faults
    opened[packed] = part
    return batches.buffers + tuple(arena.buffers), opened, counts, False


BATCHES = Format(
    "kafka.batches", "record batches and message sets of log segments, Produce and Fetch", BATCH, scan,
    children={"records": records}, times=("base_timestamp", "max_timestamp"), scan=scan_batches, spans=scan_sets,
    cuts=cuts, files=FILES, ignore=IGNORE)
RECORDS = Format(
    "kafka.records", "the records in them, inflated where they are compressed", RECORD, records, within="kafka.batches",
    children={"headers": headers}, lists={"headers": "header_count"}, inherited=("is_control",),
    times=("timestamp",), bounds=bounds, narrow=narrow)
HEADERS = Format(
    "kafka.headers", "the headers of the records", HEADER, headers, within="kafka.records")
FORMATS = (BATCHES, RECORDS, HEADERS, *PROTOCOL)

# What needs sockets is imported by who asks for it.
CLIENT = ("AsyncClient", "Client", "Part", "ProduceError", "Retries", "fetch")


def __getattr__(name: str) -> Any:
    if name not in CLIENT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from wirescan.kafka import client
    return getattr(client, name)
