"""Workloads: seeded records and events that look like JSON, written by numpy once and then kept.

    Kafka log segments
    key      device-000012345                                               16 bytes
    value    {"user":"00012345","action":"purchase","amount":1001234,"country":"de","note":"..."}   about 100
    batch    so many records that it has about 16 KiB before compression

    Streams of Lumberjack
    JSON     {"@timestamp":"2023-11-14T22:13:20.123Z","@metadata":{"beat":"filebeat",...},"message":"..."}   about 200
    data     file, host, line and offset of the same events, in four pairs  about 200
    window   2048 events

Every workload of one size holds the same records, so that they can be compared. The bytes are laid out as columns
of one matrix, a row a record, and what a record does not use of its width is masked away.
"""
from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from wirescan.codecs import compress

VERSION = 1                 # of what is written: a new one leaves old files aside
IN_BATCH = 128              # records: 16 KiB of them
IN_CHUNK = 500 * IN_BATCH   # records laid out at a time
FIRST_TIMESTAMP = 1_700_000_000_000
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
FRAMING = {"snappy": "snappy-xerial"}       # as Java writes it
WORDS = [f"{verb} the {what}" for verb in ("open", "close", "compare", "return") for what in
         ("cart", "parcel", "wish list", "blue item", "small red item", "order of last week")]
ACTIONS = ["page_view", "purchase", "search", "add_to_cart", "login", "logout"]
COUNTRIES = ["de", "fr", "nl", "pl", "es", "it", "se", "us"]
METHODS = ["GET", "POST", "PUT"]
STATUSES = ["200", "304", "404", "500"]
IN_WINDOW = 2048            # events, as libbeat sends them
ZLIB_LEVEL = 3              # ... and compresses them

HEADER_V2 = np.dtype([
    ("base_offset", ">i8"), ("length", ">i4"), ("leader_epoch", ">i4"), ("magic", "i1"), ("crc", ">u4"),
    ("attributes", ">i2"), ("last_offset_delta", ">i4"), ("base_timestamp", ">i8"), ("max_timestamp", ">i8"),
    ("producer_id", ">i8"), ("producer_epoch", ">i2"), ("base_sequence", ">i4"), ("count", ">i4")])
HEADER_V1 = np.dtype([
    ("offset", ">i8"), ("length", ">i4"), ("crc", ">u4"), ("magic", "i1"), ("attributes", "i1"),
    ("timestamp", ">i8")])


class Workload(NamedTuple):
    """A segment file: where it is, its records, and the bytes that they have before compression."""
    path: Path
    records: int
    batches: int
    plain: int


class Columns(NamedTuple):
    """Bytes of a fixed width in every row, and which of them are used."""
    bytes: np.ndarray
    used: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        return self.used.sum(1)


class Chunk(NamedTuple):
    """Some records in a row: numbers of shape (n,), keys and values of shape (n, width)."""
    offset: np.ndarray
    timestamp: np.ndarray
    key: Columns
    value: Columns


def directory() -> Path:
    """Where workloads are kept."""
    path = Path(os.environ.get("WIRESCAN_BENCH_DIR", "~/.cache/wirescan/bench")).expanduser()
    path.mkdir(parents=True, exist_ok=True)
    return path


def segment(magic: int, codec: str, plain: int, *, value: int | None = None, part: int = 0,
            folder: str = "") -> Workload:
    """The segment of that magic and codec, made at the first call.

    plain: bytes of records of magic 2 before compression, rounded to whole batches.
    value: bytes in every value; None: 91 to 114. part: number of the segment, where several lie in one folder.
    """
    records = max(1, round(plain / 16384)) * IN_BATCH
    name = folder or f"v{VERSION}-magic{magic}-{codec}-{records}-{value or 'any'}"
    path = directory() / name / f"{part * records:020}.log"
    note = path.with_suffix(".size")
    if not note.exists():
        path.parent.mkdir(exist_ok=True)
        write = write_v2 if magic == 2 else write_v1
        unfinished = path.with_suffix(".unfinished")
        with open(unfinished, "wb") as file:
            total = sum(write(file, chunk, codec) for chunk in chunks(records, value, part * records))
        unfinished.rename(path)
        note.write_text(str(total))
    return Workload(path, records, records // IN_BATCH, int(note.read_text()))


def chunks(records: int, value: int | None, first: int) -> Iterator[Chunk]:
    """The records from offset `first` on; the same at every call."""
    for start in range(first, first + records, IN_CHUNK):
        n = min(IN_CHUNK, first + records - start)
        random = np.random.default_rng([VERSION, start])
        offset = np.arange(start, start + n)
        timestamp = FIRST_TIMESTAMP + 3 * start + np.cumsum(random.integers(0, 7, n))
        user = random.integers(0, 200_000, n)
        body = beside(
            b'{"user":"', digits(user, 8), b'","action":"', words(random, ACTIONS, n), b'","amount":1',
            digits(random.integers(0, 1_000, n) * 50, 6), b',"country":"', words(random, COUNTRIES, n),
            b'","note":"', words(random, WORDS, n), b'"}', rows=n)
        yield Chunk(offset, timestamp, beside(b"device-", digits(user * 7919 % 100_000, 9), rows=n),
                    body if value is None else cut(body, value))


def stream(kind: str, events: int) -> Path:
    """What a writer of Lumberjack sends, made at the first call; events: rounded down to whole windows, at least one.

    kind: "json": W and J frames of version 2; "compressed": the J frames in one C frame a window; "data": W and D
    frames of version 1.
    """
    windows = max(1, events // IN_WINDOW)
    path = directory() / f"v{VERSION}-lumberjack-{kind}-{windows}.lumberjack"
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        with open(unfinished, "wb") as file:
            for number in range(windows):
                frames = frames_of(kind, number)
                if kind == "compressed":
                    frames = zlib.compress(frames, ZLIB_LEVEL)
                    frames = b"2C" + len(frames).to_bytes(4, "big") + frames
                file.write((b"1W" if kind == "data" else b"2W") + IN_WINDOW.to_bytes(4, "big") + frames)
        unfinished.rename(path)
    return path


def frames_of(kind: str, number: int) -> bytes:
    """The frames of the events of one window; the same at every call."""
    n, random = IN_WINDOW, np.random.default_rng([VERSION, number])
    times = FIRST_TIMESTAMP + 2500 * number + np.sort(random.integers(0, 2500, n))
    moment = texts(np.datetime_as_string(times.astype("M8[ms]")))
    host = beside(b"web-", digits(random.integers(0, 40, n), 2), rows=n)
    offset = digits(10**9 + np.cumsum(random.integers(80, 120, n)) + 100 * n * number, 10)
    line = beside(
        b"192.0.2.", digits(random.integers(0, 256, n), 3), b" ", words(random, METHODS, n), b" /cart/",
        digits(random.integers(0, 200_000, n), 8), b" ", words(random, STATUSES, n), b" ", words(random, WORDS, n),
        rows=n)
    sequence = big_endian(np.arange(1, n + 1))
    if kind == "data":
        pairs = {b"file": beside(b"/var/log/shop/", host, b"/access.log", rows=n), b"host": host,
                 b"line": beside(moment, b" ", line, rows=n), b"offset": offset}
        parts = [part for key, value in pairs.items() for part in
                 (len(key).to_bytes(4, "big") + key, big_endian(value.sizes), value)]
        frame = beside(b"1D", sequence, len(pairs).to_bytes(4, "big"), *parts, rows=n)
    else:
        document = beside(
            b'{"@timestamp":"', moment, b'Z","@metadata":{"beat":"filebeat","type":"_doc"},"host":"', host,
            b'","offset":', offset, b',"message":"', line, b'"}', rows=n)
        frame = beside(b"2J", sequence, big_endian(document.sizes), document, rows=n)
    return frame.bytes[frame.used].tobytes()


def write_v2(file, chunk: Chunk, codec: str) -> int:
    """Write record batches; return the bytes they have before compression."""
    batch = (chunk.offset - chunk.offset[0]) // IN_BATCH
    first = np.flatnonzero(np.r_[True, batch[1:] != batch[:-1]])
    n = len(chunk.offset)
    offset, timestamp = chunk.offset - chunk.offset[first][batch], chunk.timestamp - chunk.timestamp[first][batch]
    body = beside(b"\0", varint(timestamp), varint(offset), varint(chunk.key.sizes), chunk.key,
                  varint(chunk.value.sizes), chunk.value, b"\0", rows=n)
    record = beside(varint(body.sizes), body, rows=n)
    data = record.bytes[record.used].tobytes()
    ends = np.cumsum(record.sizes)
    plain = 0
    for i, start in enumerate(first):
        last = min(start + IN_BATCH, n) - 1
        records = data[ends[start - 1] if start else 0:ends[last]]
        payload = records if codec == "none" else compress(FRAMING.get(codec, codec), records)
        header = np.zeros(1, HEADER_V2)
        header[0] = (chunk.offset[start], HEADER_V2.itemsize - 12 + len(payload), 0, 2, 0, CODECS[codec],
                     last - start, chunk.timestamp[start], chunk.timestamp[last], -1, -1, -1, last - start + 1)
        header["crc"] = crc32c(payload, crc32c(header.tobytes()[21:]))
        file.write(header.tobytes() + payload)
        plain += HEADER_V2.itemsize + len(records)
    return plain


def write_v1(file, chunk: Chunk, codec: str) -> int:
    """Write messages of magic 1, with a codec in wrappers; return the bytes they have before compression."""
    n = len(chunk.offset)
    inner = np.arange(n) % IN_BATCH if codec != "none" else chunk.offset     # inside a wrapper they begin at 0
    body = beside(big_endian(chunk.key.sizes), chunk.key, big_endian(chunk.value.sizes), chunk.value, rows=n)
    plain = messages(inner, chunk.timestamp, 0, body.bytes[body.used].tobytes(), np.cumsum(body.sizes))
    if codec == "none":
        file.write(b"".join(plain))
    else:
        for start in range(0, n, IN_BATCH):
            last = min(start + IN_BATCH, n) - 1
            value = compress(FRAMING.get(codec, codec), b"".join(plain[start:last + 1]))
            body = b"\xff\xff\xff\xff" + len(value).to_bytes(4, "big") + value
            file.write(*messages(chunk.offset[last:last + 1], chunk.timestamp[last:last + 1], CODECS[codec], body,
                                 np.array([len(body)])))
    return sum(map(len, plain))


def messages(offset: np.ndarray, timestamp: np.ndarray, codec: int, bodies: bytes, ends: np.ndarray) -> list[bytes]:
    """Messages of magic 1 around bodies that lie one after another and end at `ends`."""
    starts = np.r_[0, ends[:-1]]
    header = np.zeros(len(offset), HEADER_V1)
    header["offset"], header["timestamp"], header["attributes"], header["magic"] = offset, timestamp, codec, 1
    header["length"] = HEADER_V1.itemsize - 12 + ends - starts
    heads, size = header.tobytes(), HEADER_V1.itemsize
    out = []
    for at, start, end in zip(range(0, len(heads), size), starts.tolist(), ends.tolist()):
        covered = heads[at + 16:at + size] + bodies[start:end]
        out.append(heads[at:at + 12] + zlib.crc32(covered).to_bytes(4, "big") + covered)
    return out


def beside(*parts: bytes | Columns, rows: int) -> Columns:
    """Columns beside each other; bytes stand in every row."""
    whole = [(np.broadcast_to(np.frombuffer(p, np.uint8), (rows, len(p))), np.ones((rows, len(p)), bool))
             if isinstance(p, bytes) else p for p in parts]
    return Columns(np.hstack([p[0] for p in whole]), np.hstack([p[1] for p in whole]))


def cut(columns: Columns, size: int) -> Columns:
    """Every row with `size` used bytes: the longer ones cut, the shorter ones filled with blanks."""
    n, width = columns.bytes.shape
    order = np.argsort(~columns.used, axis=1, kind="stable")
    packed = np.take_along_axis(np.where(columns.used, columns.bytes, ord(" ")), order, 1)
    blank = np.full((n, max(0, size - width)), ord(" "), np.uint8)
    return Columns(np.hstack([packed, blank])[:, :size], np.ones((n, size), bool))


def digits(numbers: np.ndarray, width: int) -> Columns:
    """Decimal digits, with leading zeros."""
    powers = 10 ** np.arange(width - 1, -1, -1)
    out = (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)
    return Columns(out, np.ones_like(out, bool))


def words(random: np.random.Generator, choice: list[str], n: int) -> Columns:
    """A word in every row, each with the same chance."""
    return texts(np.array(choice)[random.integers(0, len(choice), n)])


def texts(given: np.ndarray) -> Columns:
    """Strings of ASCII."""
    out = given.astype("S").view(np.uint8).reshape(len(given), -1)
    return Columns(out, out != 0)


def varint(numbers: np.ndarray) -> Columns:
    """Zig-zag varints of numbers from 0 to 8191, in one or two bytes."""
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < 1 << 13:
        raise ValueError("the workload's numbers must fit into two bytes")
    two = numbers >= 1 << 6
    low = (numbers << 1 & 0x7f | two << 7).astype(np.uint8)
    high = (numbers >> 6).astype(np.uint8)
    return Columns(np.column_stack([low, high]), np.column_stack([np.ones_like(two), two]))


def big_endian(numbers: np.ndarray) -> Columns:
    """Four bytes each."""
    out = numbers.astype(">i4").view(np.uint8).reshape(-1, 4)
    return Columns(out, np.ones_like(out, bool))
