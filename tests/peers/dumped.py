"""The output of kafka.tools.DumpLogSegments (--deep-iteration), parsed and reproduced.

`parse_batches` and `parse_aborted_transactions` parse the tool's output. `format_file` makes the
same lines from wirescan's tables.

    Dumping /path/00000000000000000000.log
    Log starting offset: 0
    baseOffset: 0 lastOffset: 199 count: 200 ... magic: 2 compresscodec: none crc: 2 isvalid: true
    | offset: 0 CreateTime: 1 keySize: 13 valueSize: 103 sequence: -1 headerKeys: [trace]
"""

import re
from collections.abc import Iterator
from pathlib import Path

from wirescan import kafka
from wirescan.kafka.log.index_files import (
    read_offset_index,
    read_producer_snapshot,
    read_time_index,
    read_transaction_index,
)

from .producers import CODECS

PAIR = re.compile(r"(\w+): (\S+)")
# Bits of a batch's attributes.
APPEND_TIME = 0x08
DELETE_HORIZON = 0x40
MARKERS = ("ABORT", "COMMIT")
SEQUENCES = 1 << 31  # the number of sequence numbers, which wrap around


def parse_value(text: str) -> int | bool | str | None:
    """Parse a value: a number, true or false, or a word. An empty option is None."""
    text = text.removeprefix("OptionalLong[").removesuffix("]")
    if text in ("true", "false"):
        return text == "true"
    if text == "OptionalLong.empty":
        return None
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def parse_lines(text: str, first: str) -> list[dict]:
    """Parse every line that begins with the word `first` as a dict of its values."""
    return [
        {name: parse_value(word) for name, word in PAIR.findall(line)}
        for line in text.splitlines()
        if line.startswith(f"{first}: ")
    ]


def parse_batches(text: str) -> list[dict]:
    """One dict per batch: baseOffset, lastOffset, count, producerId, position, size, ..."""
    return parse_lines(text, "baseOffset")


def parse_aborted_transactions(text: str) -> list[dict]:
    """One dict per entry of a .txnindex file.

    Its keys are version, producerId, firstOffset, lastOffset and lastStableOffset.
    """
    return parse_lines(text, "version")


def split_by_file(text: str) -> dict[str, list[str]]:
    """The lines about each file, by the file's path."""
    lines_of = {}
    for section in text.split("Dumping ")[1:]:
        path, *lines = section.splitlines()
        lines_of[path] = lines
    return lines_of


def format_file(file: Path) -> list[str]:
    """The lines that DumpLogSegments prints about a file, made from wirescan's tables."""
    make_lines = {
        ".log": format_log,
        ".index": format_index,
        ".timeindex": format_time_index,
        ".txnindex": format_transactions,
        ".snapshot": format_producers,
    }[file.suffix]
    return list(make_lines(file))


def format_log(file: Path) -> Iterator[str]:
    yield f"Log starting offset: {int(file.stem)}"
    batches = kafka.scan(file)
    records = kafka.records(batches)
    headers: dict[int, list[str]] = {}
    for header in kafka.headers(records):
        headers.setdefault(header.parent, []).append(bytes(header.key).decode())
    of_batch: dict[int, list[str]] = {}
    for row, record in enumerate(records):
        batch = batches[record.parent]
        line = format_record(batch, record, records, row, headers.get(row, []))
        of_batch.setdefault(record.parent, []).append(line)
    for row, batch in enumerate(batches):
        yield format_batch(batch)
        yield from of_batch.get(row, [])
    if len(batches.tail):
        yield f"Found {len(batches.tail)} invalid bytes at the end of {file.name}"


def format_time(batch, timestamp: int) -> str:
    kind = "LogAppendTime" if batch.attributes & APPEND_TIME else "CreateTime"
    return f"{kind if batch.magic else 'NoTimestampType'}: {timestamp}"


def add_to_sequence(base: int, delta: int) -> int:
    return -1 if base < 0 else (base + delta) % SEQUENCES


def format_batch(batch) -> str:
    line = f"offset: {batch.last_offset}"
    if batch.magic == 2:
        last_sequence = add_to_sequence(batch.base_sequence, batch.last_offset - batch.base_offset)
        horizon = f"[{batch.base_timestamp}]" if batch.attributes & DELETE_HORIZON else ".empty"
        line = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
            f"count: {batch.record_count} "
            f"baseSequence: {batch.base_sequence} "
            f"lastSequence: {last_sequence} "
            f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.leader_epoch} "
            f"isTransactional: {format_boolean(batch.is_transactional)} "
            f"isControl: {format_boolean(batch.is_control)} deleteHorizonMs: OptionalLong{horizon}"
        )
    return (
        f"{line} position: {batch.start} {format_time(batch, batch.max_timestamp)} "
        f"size: {batch.size} magic: {batch.magic} compresscodec: {CODECS[batch.codec]} "
        f"crc: {batch.crc} "
        f"isvalid: {format_boolean(not batch.fault)}"
    )


def format_record(batch, record, records, row: int, header_keys: list[str]) -> str:
    line = (
        f"| offset: {record.offset} {format_time(batch, record.timestamp)} "
        f"keySize: {record.key_size} valueSize: {record.value_size}"
    )
    if batch.magic < 2:
        # Every message has a checksum, also a message inside a compressed one.
        inner = records.buffers[record.buffer][record.start + 12 : record.start + 16]
        crc = int.from_bytes(inner, "big") if batch.codec else batch.crc
        return f"{line} isValid: true crc: {crc}}}"
    line += (
        f" sequence: {add_to_sequence(batch.base_sequence, record.offset - batch.base_offset)} "
        f"headerKeys: [{','.join(header_keys)}]"
    )
    if batch.is_control:
        kind = int.from_bytes(record.key[2:], "big")
        epoch = int.from_bytes(record.value[2:], "big")
        line += f" endTxnMarker: {MARKERS[kind]} coordinatorEpoch: {epoch}"
    return line


def format_boolean(value: bool) -> str:
    return "true" if value else "false"


def format_index(file: Path) -> Iterator[str]:
    entries = read_offset_index(str(file)).tolist()
    if not entries:
        yield f"{file} is empty."
    for offset, position in entries:
        yield f"offset: {offset} position: {position}"


def format_time_index(file: Path) -> Iterator[str]:
    for timestamp, offset in read_time_index(str(file)).tolist():
        yield f"timestamp: {timestamp} offset: {offset}"


def format_transactions(file: Path) -> Iterator[str]:
    for producer, first, last, stable in read_transaction_index(str(file)).tolist():
        yield (
            f"version: 0 producerId: {producer} firstOffset: {first} lastOffset: {last} "
            f"lastStableOffset: {stable}"
        )


def format_producers(file: Path) -> Iterator[str]:
    for producer in read_producer_snapshot(str(file)):
        first = producer["transaction_first_offset"]
        transaction = ".empty" if first < 0 else f"[{first}]"
        line = (
            f"producerId: {producer['producer_id']} producerEpoch: {producer['producer_epoch']} "
            f"coordinatorEpoch: {producer['coordinator_epoch']} "
            f"currentTxnFirstOffset: OptionalLong{transaction} "
            f"lastTimestamp: {producer['timestamp']} "
        )
        if producer["last_offset"] >= 0:
            first_sequence = (
                int(producer["last_sequence"]) - int(producer["offset_delta"])
            ) % SEQUENCES
            line += (
                f"firstSequence: {first_sequence} lastSequence: {producer['last_sequence']} "
                f"lastOffset: {producer['last_offset']} offsetDelta: {producer['offset_delta']} "
                f"timestamp: {producer['timestamp']}"
            )
        yield line
