"""The text of kafka.tools.DumpLogSegments (--deep-iteration): theirs as rows, and the same text from our tables.

    Dumping /path/00000000000000000000.log
    Log starting offset: 0
    baseOffset: 0 lastOffset: 199 count: 200 ... position: 0 CreateTime: 1 size: 7497 ... crc: 2 isvalid: true
    | offset: 0 CreateTime: 1 keySize: 13 valueSize: 103 sequence: -1 headerKeys: [trace]
"""
import re
from collections.abc import Iterator
from pathlib import Path

from wirescan import kafka
from wirescan.kafka.index import offset_index, producer_snapshot, time_index, transaction_index

from .producers import CODECS

PAIR = re.compile(r"(\w+): (\S+)")
APPEND_TIME, DELETE_HORIZON = 0x08, 0x40  # bits of a batch's attributes
MARKERS = ("ABORT", "COMMIT")
SEQUENCES = 1 << 31  # they go round


def value(text: str) -> int | bool | str | None:
    """A number, true or false, a word; None for an empty option."""
    text = text.removeprefix("OptionalLong[").removesuffix("]")
    if text in ("true", "false"):
        return text == "true"
    if text == "OptionalLong.empty":
        return None
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def pairs(text: str, first: str) -> list[dict]:
    """Every line that begins with the word `first`, as a dict of its words."""
    return [{name: value(found) for name, found in PAIR.findall(line)}
            for line in text.splitlines() if line.startswith(f"{first}: ")]


def batches(text: str) -> list[dict]:
    """One dict per batch: baseOffset, lastOffset, count, producerId, position, size, crc, isvalid, ..."""
    return pairs(text, "baseOffset")


def aborted_transactions(text: str) -> list[dict]:
    """version, producerId, firstOffset, lastOffset, lastStableOffset per entry of a .txnindex file."""
    return pairs(text, "version")


def by_file(text: str) -> dict[str, list[str]]:
    """The lines about each file, by its path."""
    found = {}
    for part in text.split("Dumping ")[1:]:
        path, *lines = part.splitlines()
        found[path] = lines
    return found


def our_lines(file: Path) -> list[str]:
    """What DumpLogSegments prints about a file, from our reading of it."""
    return list({".log": log_lines, ".index": index_lines, ".timeindex": time_lines, ".txnindex": transaction_lines,
                 ".snapshot": producer_lines}[file.suffix](file))


def log_lines(file: Path) -> Iterator[str]:
    yield f"Log starting offset: {int(file.stem)}"
    batches = kafka.scan(file)
    records = kafka.records(batches)
    headers: dict[int, list[str]] = {}
    for header in kafka.headers(records):
        headers.setdefault(header.parent, []).append(bytes(header.key).decode())
    of_batch: dict[int, list[str]] = {}
    for row, record in enumerate(records):
        batch = batches[record.parent]
        of_batch.setdefault(record.parent, []).append(record_line(batch, record, records, row, headers.get(row, [])))
    for row, batch in enumerate(batches):
        yield batch_line(batch)
        yield from of_batch.get(row, [])
    if len(batches.tail):
        yield f"Found {len(batches.tail)} invalid bytes at the end of {file.name}"


def time_of(batch, timestamp: int) -> str:
    kind = "LogAppendTime" if batch.attributes & APPEND_TIME else "CreateTime"
    return f"{kind if batch.magic else 'NoTimestampType'}: {timestamp}"


def sequence(base: int, delta: int) -> int:
    return -1 if base < 0 else (base + delta) % SEQUENCES


def batch_line(batch) -> str:
    line = f"offset: {batch.last_offset}"
    if batch.magic == 2:
        horizon = f"[{batch.base_timestamp}]" if batch.attributes & DELETE_HORIZON else ".empty"
        line = (f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.record_count} "
                f"baseSequence: {batch.base_sequence} "
                f"lastSequence: {sequence(batch.base_sequence, batch.last_offset - batch.base_offset)} "
                f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
                f"partitionLeaderEpoch: {batch.leader_epoch} isTransactional: {java(batch.is_transactional)} "
                f"isControl: {java(batch.is_control)} deleteHorizonMs: OptionalLong{horizon}")
    return (f"{line} position: {batch.start} {time_of(batch, batch.max_timestamp)} size: {batch.size} "
            f"magic: {batch.magic} compresscodec: {CODECS[batch.codec]} crc: {batch.crc} "
            f"isvalid: {java(not batch.fault)}")


def record_line(batch, record, records, row: int, header_keys: list[str]) -> str:
    line = (f"| offset: {record.offset} {time_of(batch, record.timestamp)} "
            f"keySize: {record.key_size} valueSize: {record.value_size}")
    if batch.magic < 2:  # a message holds a checksum, inside a wrapper too
        inner = records.buffers[record.buffer][record.start + 12:record.start + 16]
        return f"{line} isValid: true crc: {int.from_bytes(inner, 'big') if batch.codec else batch.crc}}}"
    line += (f" sequence: {sequence(batch.base_sequence, record.offset - batch.base_offset)} "
             f"headerKeys: [{','.join(header_keys)}]")
    if batch.is_control:
        kind, epoch = (int.from_bytes(content[2:], "big") for content in (record.key, record.value))
        line += f" endTxnMarker: {MARKERS[kind]} coordinatorEpoch: {epoch}"
    return line


def java(truth: bool) -> str:
    return "true" if truth else "false"


def index_lines(file: Path) -> Iterator[str]:
    entries = offset_index(str(file)).tolist()
    if not entries:
        yield f"{file} is empty."
    for offset, position in entries:
        yield f"offset: {offset} position: {position}"


def time_lines(file: Path) -> Iterator[str]:
    for timestamp, offset in time_index(str(file)).tolist():
        yield f"timestamp: {timestamp} offset: {offset}"


def transaction_lines(file: Path) -> Iterator[str]:
    for producer, first, last, stable in transaction_index(str(file)).tolist():
        yield f"version: 0 producerId: {producer} firstOffset: {first} lastOffset: {last} lastStableOffset: {stable}"


def producer_lines(file: Path) -> Iterator[str]:
    for one in producer_snapshot(str(file)):
        first = one["transaction_first_offset"]
        line = (f"producerId: {one['producer_id']} producerEpoch: {one['producer_epoch']} "
                f"coordinatorEpoch: {one['coordinator_epoch']} "
                f"currentTxnFirstOffset: OptionalLong{'.empty' if first < 0 else f'[{first}]'} "
                f"lastTimestamp: {one['timestamp']} ")
        if one["last_offset"] >= 0:
            first_sequence = (int(one["last_sequence"]) - int(one["offset_delta"])) % SEQUENCES
            line += (f"firstSequence: {first_sequence} lastSequence: {one['last_sequence']} "
                     f"lastOffset: {one['last_offset']} offsetDelta: {one['offset_delta']} "
                     f"timestamp: {one['timestamp']}")
        yield line
