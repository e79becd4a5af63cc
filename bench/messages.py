"""Workloads of NATS and Liftbridge: seeded messages of 127 bytes as they lie on the wire, made once and then kept.

    capture     MSG shop.de.purchase 17 97 | payload        what a server sends to a subscriber, behind its greeting
    headers     the same; every other message has a reply subject, every fourth is an HMSG with two headers
    envelopes   envelope | Message                          offset -1, key, value, correlation id and ack policy
    log         record header | message                     key, value, and the headers subject and reply

127 bytes are the mean of a whole frame: control line, envelope and record header are among them. Payloads and values
are texts as those of Kafka's workload, up to 12 bytes longer or shorter than their mean.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from bench import data
from bench.data import Chunk, Columns, beside, digits, texts, words
from bench.measure import Contender, timed
from wirescan.table import FrameTable

VERSION = 1                 # of what is written: a new one leaves old files aside
SPREAD = 12                 # bytes that a size has more or less than its mean
MEAN = {"capture": 97, "headers": 76, "envelopes": 62, "log": 28}       # bytes of a payload or value
SID = b"17"
MAGIC = b"\xb9\x0e\x43\xb4"
NEXT_OFFSET = b"\x08" + b"\xff" * 9 + b"\x01"       # field 1 of a Message, offset: -1, whichever is next
LEADER_EPOCH = 3
COLUMN = pa.schema([("envelope", pa.large_binary())])


class Messages:
    """A workload in memory, and contenders over it. bytes: all of it, one message after another."""

    def __init__(self, bytes: np.ndarray, count: int):
        self.bytes, self.count = bytes, count

    def contender(self, name: str, call: Callable[[], Any], rehearse: bool = True) -> Contender:
        return Contender(name, timed(call, rehearse), self.count, len(self.bytes))


def rows_of(table: FrameTable, names: list[str]) -> list[tuple]:
    """Columns of a table over one buffer, as tuples of Python objects; null is None."""
    raw, columns = bytes(table.buffers[0]), []
    for name in names:
        if name in table.places:
            starts, sizes = (table["start"] + table[f"{name}_at"]).tolist(), table[f"{name}_size"].tolist()
            columns.append([None if size < 0 else raw[at:at + size] for at, size in zip(starts, sizes)])
        else:
            columns.append(table[name].tolist())
    return list(zip(*columns))


def capture(kind: str, messages: int) -> Path:
    """The stream "capture" or "headers"."""
    path = data.directory() / f"v{VERSION}-nats-{kind}-{messages}.nats"
    return _kept(path, lambda file: _write(file, (message_frames(kind, chunk) for chunk in chunks(kind, messages))))


def envelopes(crc: bool, messages: int) -> pa.Array:
    """Envelopes of the kind Publish, as large_binary. crc: each with the CRC-32C of its payload."""
    def write(file: BinaryIO) -> None:
        with pa.ipc.new_file(file, COLUMN) as writer:
            for chunk in chunks("envelopes", messages):
                writer.write(pa.record_batch([array(published(chunk, crc))], schema=COLUMN))

    path = data.directory() / f"v{VERSION}-liftbridge-{'crc' if crc else 'envelopes'}-{messages}.arrow"
    with pa.memory_map(str(_kept(path, write))) as file:
        return pa.concat_arrays(pa.ipc.open_file(file).read_all()["envelope"].chunks)


def log(messages: int) -> Path:
    """The segment of a partition whose offsets begin at 0."""
    path = data.directory() / f"v{VERSION}-liftbridge-log-{messages}" / f"{0:020}.log"
    path.parent.mkdir(exist_ok=True)
    return _kept(path, lambda file: _write(file, (log_entries(chunk) for chunk in chunks("log", messages))))


def chunks(kind: str, messages: int) -> Iterator[Chunk]:
    """Keys, and values around the mean size of that kind; the same at every call."""
    for chunk in data.chunks(messages, MEAN[kind] + SPREAD, 0):
        sizes = _random(chunk).integers(MEAN[kind] - SPREAD, MEAN[kind] + SPREAD + 1, len(chunk.offset))
        yield chunk._replace(value=where(chunk.value, np.arange(MEAN[kind] + SPREAD) < sizes[:, None]))


def message_frames(kind: str, chunk: Chunk) -> Columns:
    """MSG and HMSG, as a server writes them."""
    n, random, payload = len(chunk.offset), _random(chunk), chunk.value
    subject = _subject(random, n)
    if kind == "capture":
        return beside(b"MSG ", subject, b" ", SID, b" ", texts(payload.sizes), b"\r\n", payload, b"\r\n", rows=n)
    replied, headed = chunk.offset % 2 == 0, (chunk.offset % 4 == 1)[:, None]
    reply = beside(b"_INBOX.", digits(chunk.offset, 9), b" ", rows=n)
    block = beside(b"NATS/1.0\r\nTrace: ", digits(chunk.offset * 7919, 16), b"\r\nType: json\r\n\r\n", rows=n)
    block = where(block, headed)
    return beside(
        where(beside(b"H", rows=n), headed), b"MSG ", subject, b" ", SID, b" ", where(reply, replied[:, None]),
        where(beside(texts(block.sizes), b" ", rows=n), headed), texts(block.sizes + payload.sizes), b"\r\n",
        block, payload, b"\r\n", rows=n)


def published(chunk: Chunk, crc: bool) -> Columns:
    """Envelopes around the protobuf Message that go-liftbridge makes of a key, a value and an ack policy."""
    n = len(chunk.offset)
    message = beside(
        NEXT_OFFSET, b"\x12", integers(chunk.key.sizes, "u1"), chunk.key, b"\x1a", integers(chunk.value.sizes, "u1"),
        chunk.value, b"\x5a\x16orders", digits(chunk.offset * 7919, 16), b"\x60\x01", rows=n)
    if crc:
        return beside(MAGIC + b"\0\x0c\x01\0", checksums(message), message, rows=n)
    return beside(MAGIC + b"\0\x08\0\0", message, rows=n)


def log_entries(chunk: Chunk) -> Columns:
    """What a server appends: it adds the headers subject and reply to every message."""
    n = len(chunk.offset)
    subject = _subject(_random(chunk), n)
    covered = beside(
        b"\1\0", integers(chunk.key.sizes, ">i4"), chunk.key, integers(chunk.value.sizes, ">i4"), chunk.value,
        b"\0\2\0\7subject", integers(subject.sizes, ">i4"), subject, b"\0\5reply\0\0\0\0", rows=n)
    return beside(
        integers(chunk.offset, ">i8"), integers(chunk.timestamp * 1_000_000, ">i8"), LEADER_EPOCH.to_bytes(8, "big"),
        integers(4 + covered.sizes, ">u4"), checksums(covered), covered, rows=n)


def checksums(columns: Columns) -> Columns:
    """The CRC-32C of every row."""
    raw, ends = joined(columns), np.cumsum(columns.sizes).tolist()
    return integers(np.array([crc32c(raw[start:end]) for start, end in zip([0, *ends], ends)]), ">u4")


def integers(numbers: np.ndarray, dtype: str) -> Columns:
    """Numbers of a fixed width."""
    out = numbers.astype(dtype)[:, None].view(np.uint8)
    return Columns(out, np.ones_like(out, bool))


def where(columns: Columns, used: np.ndarray) -> Columns:
    """Only these bytes of them, or only these rows."""
    return Columns(columns.bytes, columns.used & used)


def joined(columns: Columns) -> bytes:
    """The rows one after another."""
    return columns.bytes[columns.used].tobytes()


def array(columns: Columns) -> pa.Array:
    """The rows as large_binary."""
    offsets = np.concatenate([[0], np.cumsum(columns.sizes)])
    return pa.Array.from_buffers(pa.large_binary(), len(columns.sizes),
                                 [None, pa.py_buffer(offsets), pa.py_buffer(joined(columns))])


def _subject(random: np.random.Generator, n: int) -> Columns:
    return beside(b"shop.", words(random, data.COUNTRIES, n), b".", words(random, data.ACTIONS, n), rows=n)


def _random(chunk: Chunk) -> np.random.Generator:
    return np.random.default_rng([VERSION, int(chunk.offset[0])])


def _write(file: BinaryIO, frames: Iterable[Columns]) -> None:
    for columns in frames:
        file.write(joined(columns))


def _kept(path: Path, write: Callable[[BinaryIO], None]) -> Path:
    """The file, written at the first call."""
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        with open(unfinished, "wb") as file:
            write(file)
        unfinished.rename(path)
    return path
