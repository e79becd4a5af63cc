"""Workloads of NATS and Liftbridge: seeded messages of 127 bytes, written once and then kept.

    capture     MSG shop.de.purchase 17 97 | payload
                The bytes of a server to a subscriber, after the greeting.
    headers     The same. Every second message has a reply subject, and every fourth one is an
                HMSG with two headers.
    envelopes   envelope | Message
                A Message has the offset -1, key, value, correlation id and ack policy.
    log         record header | message
                A message has key, value, and the headers subject and reply.

127 bytes are the mean size of a whole frame, with control line, envelope or record header. Payloads
and values are texts like those of Kafka's workload. Their sizes differ from the mean by up to 12
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from bench.timing import Contender, time_call
from bench.workloads import records_and_events
from bench.workloads.records_and_events import (
    Chunk,
    Columns,
    concatenate_columns,
    draw_words,
    make_digits,
    make_texts,
)
from wirescan.frames.table import FrameTable

VERSION = 1  # of the content; files of another version are not used
SPREAD = 12  # maximum difference of a size from its mean, in bytes
MEAN = {"capture": 97, "headers": 76, "envelopes": 62, "log": 28}  # bytes of a payload or value
SID = b"17"
MAGIC = b"\xb9\x0e\x43\xb4"
NEXT_OFFSET = b"\x08" + b"\xff" * 9 + b"\x01"  # field 1 of a Message: offset -1, for the next one
LEADER_EPOCH = 3
COLUMN = pa.schema([("envelope", pa.large_binary())])


class Messages:
    """A workload in memory, and contenders over it. bytes: all messages without gaps."""

    def __init__(self, bytes: np.ndarray, count: int):
        self.bytes = bytes
        self.count = count

    def contender(self, name: str, call: Callable[[], Any], *, rehearse: bool = True) -> Contender:
        return Contender(name, time_call(call, rehearse=rehearse), self.count, len(self.bytes))


def list_rows(table: FrameTable, names: list[str]) -> list[tuple]:
    """Return columns of a table over one buffer as tuples of Python objects. Null is None."""
    raw = bytes(table.buffers[0])
    columns = []
    for name in names:
        if name in table.places:
            starts = (table["start"] + table[f"{name}_at"]).tolist()
            sizes = table[f"{name}_size"].tolist()
            columns.append(
                [None if size < 0 else raw[at : at + size] for at, size in zip(starts, sizes)]
            )
        else:
            columns.append(table[name].tolist())
    return list(zip(*columns))


def write_capture(kind: str, messages: int) -> Path:
    """Return the file of the stream "capture" or "headers"."""
    path = records_and_events.find_directory() / f"v{VERSION}-nats-{kind}-{messages}.nats"

    def write(file: BinaryIO) -> None:
        _write(file, (make_message_frames(kind, chunk) for chunk in make_chunks(kind, messages)))

    return _write_once(path, write)


def make_envelopes(messages: int, *, crc: bool) -> pa.Array:
    """Return envelopes of the kind Publish as large_binary. crc: with CRC-32C checksums."""

    def write(file: BinaryIO) -> None:
        with pa.ipc.new_file(file, COLUMN) as writer:
            for chunk in make_chunks("envelopes", messages):
                column = make_array(make_publish_envelopes(chunk, crc=crc))
                writer.write(pa.record_batch([column], schema=COLUMN))

    kind = "crc" if crc else "envelopes"
    path = records_and_events.find_directory() / f"v{VERSION}-liftbridge-{kind}-{messages}.arrow"
    with pa.memory_map(str(_write_once(path, write))) as file:
        return pa.concat_arrays(pa.ipc.open_file(file).read_all()["envelope"].chunks)


def write_log(messages: int) -> Path:
    """Return the segment file of a partition whose offsets begin at 0."""
    path = (
        records_and_events.find_directory()
        / f"v{VERSION}-liftbridge-log-{messages}"
        / f"{0:020}.log"
    )
    path.parent.mkdir(exist_ok=True)

    def write(file: BinaryIO) -> None:
        _write(file, (make_log_entries(chunk) for chunk in make_chunks("log", messages)))

    return _write_once(path, write)


def make_chunks(kind: str, messages: int) -> Iterator[Chunk]:
    """Yield keys, and values around the mean size of a kind. Every call yields the same."""
    smallest = MEAN[kind] - SPREAD
    largest = MEAN[kind] + SPREAD
    for chunk in records_and_events.make_chunks(messages, largest, 0):
        sizes = _random(chunk).integers(smallest, largest + 1, len(chunk.offset))
        yield chunk._replace(value=select_rows(chunk.value, np.arange(largest) < sizes[:, None]))


def make_message_frames(kind: str, chunk: Chunk) -> Columns:
    """Return MSG and HMSG frames of a server."""
    n, random, payload = len(chunk.offset), _random(chunk), chunk.value
    subject = _subject(random, n)
    if kind == "capture":
        return concatenate_columns(
            b"MSG ",
            subject,
            b" ",
            SID,
            b" ",
            make_texts(payload.sizes),
            b"\r\n",
            payload,
            b"\r\n",
            rows=n,
        )
    replied, headed = chunk.offset % 2 == 0, (chunk.offset % 4 == 1)[:, None]
    reply = concatenate_columns(b"_INBOX.", make_digits(chunk.offset, 9), b" ", rows=n)
    block = concatenate_columns(
        b"NATS/1.0\r\nTrace: ",
        make_digits(chunk.offset * 7919, 16),
        b"\r\nType: json\r\n\r\n",
        rows=n,
    )
    block = select_rows(block, headed)
    return concatenate_columns(
        select_rows(concatenate_columns(b"H", rows=n), headed),
        b"MSG ",
        subject,
        b" ",
        SID,
        b" ",
        select_rows(reply, replied[:, None]),
        select_rows(concatenate_columns(make_texts(block.sizes), b" ", rows=n), headed),
        make_texts(block.sizes + payload.sizes),
        b"\r\n",
        block,
        payload,
        b"\r\n",
        rows=n,
    )


def make_publish_envelopes(chunk: Chunk, *, crc: bool) -> Columns:
    """Return envelopes around Messages with a key, a value and an ack policy, as go-liftbridge."""
    n = len(chunk.offset)
    message = concatenate_columns(
        NEXT_OFFSET,
        b"\x12",
        make_integers(chunk.key.sizes, "u1"),
        chunk.key,
        b"\x1a",
        make_integers(chunk.value.sizes, "u1"),
        chunk.value,
        b"\x5a\x16orders",
        make_digits(chunk.offset * 7919, 16),
        b"\x60\x01",
        rows=n,
    )
    if crc:
        return concatenate_columns(
            MAGIC + b"\0\x0c\x01\0", compute_checksums(message), message, rows=n
        )
    return concatenate_columns(MAGIC + b"\0\x08\0\0", message, rows=n)


def make_log_entries(chunk: Chunk) -> Columns:
    """Return log entries of a server, which adds the headers subject and reply."""
    n = len(chunk.offset)
    subject = _subject(_random(chunk), n)
    covered = concatenate_columns(
        b"\1\0",
        make_integers(chunk.key.sizes, ">i4"),
        chunk.key,
        make_integers(chunk.value.sizes, ">i4"),
        chunk.value,
        b"\0\2\0\7subject",
        make_integers(subject.sizes, ">i4"),
        subject,
        b"\0\5reply\0\0\0\0",
        rows=n,
    )
    return concatenate_columns(
        make_integers(chunk.offset, ">i8"),
        make_integers(chunk.timestamp * 1_000_000, ">i8"),
        LEADER_EPOCH.to_bytes(8, "big"),
        make_integers(4 + covered.sizes, ">u4"),
        compute_checksums(covered),
        covered,
        rows=n,
    )


def compute_checksums(columns: Columns) -> Columns:
    """Return the CRC-32C of every row."""
    raw = join_rows(columns)
    ends = np.cumsum(columns.sizes).tolist()
    values = [crc32c(raw[start:end]) for start, end in zip([0, *ends], ends)]
    return make_integers(np.array(values), ">u4")


def make_integers(numbers: np.ndarray, dtype: str) -> Columns:
    """Return numbers of a fixed width."""
    out = numbers.astype(dtype)[:, None].view(np.uint8)
    return Columns(out, np.ones_like(out, bool))


def select_rows(columns: Columns, used: np.ndarray) -> Columns:
    """Return columns with only the selected bytes or rows."""
    return Columns(columns.bytes, columns.used & used)


def join_rows(columns: Columns) -> bytes:
    """Return the bytes of all rows, without gaps."""
    return columns.bytes[columns.used].tobytes()


def make_array(columns: Columns) -> pa.Array:
    """Return the rows as large_binary."""
    offsets = np.concatenate([[0], np.cumsum(columns.sizes)])
    return pa.Array.from_buffers(
        pa.large_binary(),
        len(columns.sizes),
        [None, pa.py_buffer(offsets), pa.py_buffer(join_rows(columns))],
    )


def _subject(random: np.random.Generator, n: int) -> Columns:
    return concatenate_columns(
        b"shop.",
        draw_words(random, records_and_events.COUNTRIES, n),
        b".",
        draw_words(random, records_and_events.ACTIONS, n),
        rows=n,
    )


def _random(chunk: Chunk) -> np.random.Generator:
    return np.random.default_rng([VERSION, int(chunk.offset[0])])


def _write(file: BinaryIO, frames: Iterable[Columns]) -> None:
    for columns in frames:
        file.write(join_rows(columns))


def _write_once(path: Path, write: Callable[[BinaryIO], None]) -> Path:
    """Write a file if it does not exist yet, and return its path."""
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        with open(unfinished, "wb") as file:
            write(file)
        unfinished.rename(path)
    return path
