"""Workloads of Kafka and Lumberjack: seeded records and events, written once and then kept.

    Kafka log segments
    key      16 bytes: device-000012345
    value    about 100 bytes:
             {"user":"00012345","action":"purchase","amount":1001234,"country":"de","note":"..."}
    batch    128 records, about 16 KiB before compression

    Streams of Lumberjack
    JSON     about 200 bytes:
             {"@timestamp":"2023-11-14T22:13:20.123Z","@metadata":{...},...,"message":"..."}
    data     about 200 bytes: file, host, line and offset of the same events, in four pairs
    window   2048 events

All workloads of one size have the same records, so they can be compared. Records are the rows of
one byte matrix with a fixed width per column. A mask selects the bytes that a record uses.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from wirescan.frames.codecs import compress

VERSION = 1  # of the content; files of another version are not used
IN_BATCH = 128  # records: 16 KiB of them
IN_CHUNK = 500 * IN_BATCH  # records laid out at a time
FIRST_TIMESTAMP = 1_700_000_000_000
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
FRAMING = {"snappy": "snappy-xerial"}  # the framing of Java clients
WORDS = [
    f"{verb} the {thing}"
    for verb in ("open", "close", "compare", "return")
    for thing in (
        "cart",
        "parcel",
        "wish list",
        "blue item",
        "small red item",
        "order of last week",
    )
]
ACTIONS = ["page_view", "purchase", "search", "add_to_cart", "login", "logout"]
COUNTRIES = ["de", "fr", "nl", "pl", "es", "it", "se", "us"]
METHODS = ["GET", "POST", "PUT"]
STATUSES = ["200", "304", "404", "500"]
IN_WINDOW = 2048  # events in a window of libbeat
ZLIB_LEVEL = 3  # the default level of libbeat

HEADER_V2 = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
HEADER_V1 = np.dtype(
    [
        ("offset", ">i8"),
        ("length", ">i4"),
        ("crc", ">u4"),
        ("magic", "i1"),
        ("attributes", "i1"),
        ("timestamp", ">i8"),
    ]
)


class Workload(NamedTuple):
    """A segment file: its path, its records and batches, and their bytes before compression."""

    path: Path
    records: int
    batches: int
    plain: int


class Columns(NamedTuple):
    """Bytes of a fixed width in every row, and a mask of the used ones."""

    bytes: np.ndarray
    used: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        return self.used.sum(1)


class Chunk(NamedTuple):
    """Successive records: numbers of shape (n,), keys and values of shape (n, width)."""

    offset: np.ndarray
    timestamp: np.ndarray
    key: Columns
    value: Columns


def find_directory() -> Path:
    """Return the directory of the workloads."""
    path = Path(os.environ.get("WIRESCAN_BENCH_DIR", "~/.cache/wirescan/bench")).expanduser()
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_segment(
    magic: int, codec: str, plain: int, *, value: int | None = None, part: int = 0, folder: str = ""
) -> Workload:
    """Return the segment with a magic and a codec. The first call writes it.

    plain: bytes of records of magic 2 before compression, rounded to whole batches.
    value: bytes in every value; None: 91 to 114. part: number of the segment in its folder.
    """
    records = max(1, round(plain / 16384)) * IN_BATCH
    name = folder or f"v{VERSION}-magic{magic}-{codec}-{records}-{value or 'any'}"
    path = find_directory() / name / f"{part * records:020}.log"
    note = path.with_suffix(".size")
    if not note.exists():
        path.parent.mkdir(exist_ok=True)
        write = write_v2 if magic == 2 else write_v1
        unfinished = path.with_suffix(".unfinished")
        with open(unfinished, "wb") as file:
            total = sum(
                write(file, chunk, codec) for chunk in make_chunks(records, value, part * records)
            )
        unfinished.rename(path)
        note.write_text(str(total))
    return Workload(path, records, records // IN_BATCH, int(note.read_text()))


def make_chunks(records: int, value: int | None, first: int) -> Iterator[Chunk]:
    """Yield the records from offset `first` on. Every call yields the same."""
    for start in range(first, first + records, IN_CHUNK):
        n = min(IN_CHUNK, first + records - start)
        random = np.random.default_rng([VERSION, start])
        offset = np.arange(start, start + n)
        timestamp = FIRST_TIMESTAMP + 3 * start + np.cumsum(random.integers(0, 7, n))
        user = random.integers(0, 200_000, n)
        body = concatenate_columns(
            b'{"user":"',
            make_digits(user, 8),
            b'","action":"',
            draw_words(random, ACTIONS, n),
            b'","amount":1',
            make_digits(random.integers(0, 1_000, n) * 50, 6),
            b',"country":"',
            draw_words(random, COUNTRIES, n),
            b'","note":"',
            draw_words(random, WORDS, n),
            b'"}',
            rows=n,
        )
        yield Chunk(
            offset,
            timestamp,
            concatenate_columns(b"device-", make_digits(user * 7919 % 100_000, 9), rows=n),
            body if value is None else cut_rows(body, value),
        )


def write_stream(kind: str, events: int) -> Path:
    """Return the file with the bytes of a Lumberjack writer. The first call writes it.

    kind: "json": W and J frames of version 2; "compressed": the J frames in one C frame per window;
    "data": W and D frames of version 1.
    events: number of events, rounded down to whole windows, at least one.
    """
    windows = max(1, events // IN_WINDOW)
    path = find_directory() / f"v{VERSION}-lumberjack-{kind}-{windows}.lumberjack"
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        with open(unfinished, "wb") as file:
            for number in range(windows):
                frames = make_frames(kind, number)
                if kind == "compressed":
                    frames = zlib.compress(frames, ZLIB_LEVEL)
                    frames = b"2C" + len(frames).to_bytes(4, "big") + frames
                window = b"1W" if kind == "data" else b"2W"
                file.write(window + IN_WINDOW.to_bytes(4, "big") + frames)
        unfinished.rename(path)
    return path


def make_frames(kind: str, number: int) -> bytes:
    """Return the frames of the events of one window. Every call returns the same."""
    n = IN_WINDOW
    random = np.random.default_rng([VERSION, number])
    times = FIRST_TIMESTAMP + 2500 * number + np.sort(random.integers(0, 2500, n))
    moment = make_texts(np.datetime_as_string(times.astype("M8[ms]")))
    host = concatenate_columns(b"web-", make_digits(random.integers(0, 40, n), 2), rows=n)
    offset = make_digits(10**9 + np.cumsum(random.integers(80, 120, n)) + 100 * n * number, 10)
    line = concatenate_columns(
        b"192.0.2.",
        make_digits(random.integers(0, 256, n), 3),
        b" ",
        draw_words(random, METHODS, n),
        b" /cart/",
        make_digits(random.integers(0, 200_000, n), 8),
        b" ",
        draw_words(random, STATUSES, n),
        b" ",
        draw_words(random, WORDS, n),
        rows=n,
    )
    sequence = make_big_endian(np.arange(1, n + 1))
    if kind == "data":
        pairs = {
            b"file": concatenate_columns(b"/var/log/shop/", host, b"/access.log", rows=n),
            b"host": host,
            b"line": concatenate_columns(moment, b" ", line, rows=n),
            b"offset": offset,
        }
        columns: list[bytes | Columns] = []
        for key, value in pairs.items():
            columns += [len(key).to_bytes(4, "big") + key, make_big_endian(value.sizes), value]
        frame = concatenate_columns(
            b"1D", sequence, len(pairs).to_bytes(4, "big"), *columns, rows=n
        )
    else:
        document = concatenate_columns(
            b'{"@timestamp":"',
            moment,
            b'Z","@metadata":{"beat":"filebeat","type":"_doc"},"host":"',
            host,
            b'","offset":',
            offset,
            b',"message":"',
            line,
            b'"}',
            rows=n,
        )
        frame = concatenate_columns(
            b"2J", sequence, make_big_endian(document.sizes), document, rows=n
        )
    return frame.bytes[frame.used].tobytes()


def write_v2(file, chunk: Chunk, codec: str) -> int:
    """Write record batches, and return their bytes before compression."""
    batch = (chunk.offset - chunk.offset[0]) // IN_BATCH
    first = np.flatnonzero(np.r_[True, batch[1:] != batch[:-1]])
    n = len(chunk.offset)
    offset = chunk.offset - chunk.offset[first][batch]
    timestamp = chunk.timestamp - chunk.timestamp[first][batch]
    body = concatenate_columns(
        b"\0",
        make_varints(timestamp),
        make_varints(offset),
        make_varints(chunk.key.sizes),
        chunk.key,
        make_varints(chunk.value.sizes),
        chunk.value,
        b"\0",
        rows=n,
    )
    record = concatenate_columns(make_varints(body.sizes), body, rows=n)
    data = record.bytes[record.used].tobytes()
    ends = np.cumsum(record.sizes)
    plain = 0
    for start in first:
        last = min(start + IN_BATCH, n) - 1
        records = data[ends[start - 1] if start else 0 : ends[last]]
        payload = records if codec == "none" else compress(FRAMING.get(codec, codec), records)
        header = np.zeros(1, HEADER_V2)
        header[0] = (
            chunk.offset[start],
            HEADER_V2.itemsize - 12 + len(payload),
            0,
            2,
            0,
            CODECS[codec],
            last - start,
            chunk.timestamp[start],
            chunk.timestamp[last],
            -1,
            -1,
            -1,
            last - start + 1,
        )
        header["crc"] = crc32c(payload, crc32c(header.tobytes()[21:]))
        file.write(header.tobytes() + payload)
        plain += HEADER_V2.itemsize + len(records)
    return plain


def write_v1(file, chunk: Chunk, codec: str) -> int:
    """Write messages of magic 1, in wrappers if there is a codec.

    Returns their bytes before compression.
    """
    n = len(chunk.offset)
    # Offsets inside a wrapper begin at 0.
    inner = chunk.offset if codec == "none" else np.arange(n) % IN_BATCH
    body = concatenate_columns(
        make_big_endian(chunk.key.sizes),
        chunk.key,
        make_big_endian(chunk.value.sizes),
        chunk.value,
        rows=n,
    )
    plain = make_messages(
        inner, chunk.timestamp, 0, body.bytes[body.used].tobytes(), np.cumsum(body.sizes)
    )
    if codec == "none":
        file.write(b"".join(plain))
    else:
        for start in range(0, n, IN_BATCH):
            last = min(start + IN_BATCH, n) - 1
            value = compress(FRAMING.get(codec, codec), b"".join(plain[start : last + 1]))
            body = b"\xff\xff\xff\xff" + len(value).to_bytes(4, "big") + value
            file.write(
                *make_messages(
                    chunk.offset[last : last + 1],
                    chunk.timestamp[last : last + 1],
                    CODECS[codec],
                    body,
                    np.array([len(body)]),
                )
            )
    return sum(map(len, plain))


def make_messages(
    offset: np.ndarray, timestamp: np.ndarray, codec: int, bodies: bytes, ends: np.ndarray
) -> list[bytes]:
    """Return messages of magic 1 around bodies. The bodies have no gaps and end at `ends`."""
    starts = np.r_[0, ends[:-1]]
    header = np.zeros(len(offset), HEADER_V1)
    header["offset"] = offset
    header["timestamp"] = timestamp
    header["attributes"] = codec
    header["magic"] = 1
    header["length"] = HEADER_V1.itemsize - 12 + ends - starts
    heads, size = header.tobytes(), HEADER_V1.itemsize
    out = []
    for at, start, end in zip(range(0, len(heads), size), starts.tolist(), ends.tolist()):
        covered = heads[at + 16 : at + size] + bodies[start:end]
        out.append(heads[at : at + 12] + zlib.crc32(covered).to_bytes(4, "big") + covered)
    return out


def concatenate_columns(*parts: bytes | Columns, rows: int) -> Columns:
    """Concatenate columns in each row. A bytes object is the same in every row."""
    arrays = []
    masks = []
    for part in parts:
        if isinstance(part, bytes):
            shape = rows, len(part)
            arrays.append(np.broadcast_to(np.frombuffer(part, np.uint8), shape))
            masks.append(np.ones(shape, bool))
        else:
            arrays.append(part.bytes)
            masks.append(part.used)
    return Columns(np.hstack(arrays), np.hstack(masks))


def cut_rows(columns: Columns, size: int) -> Columns:
    """Return rows with `size` used bytes each. Longer rows are cut, shorter ones get blanks."""
    n, width = columns.bytes.shape
    order = np.argsort(~columns.used, axis=1, kind="stable")
    packed = np.take_along_axis(np.where(columns.used, columns.bytes, ord(" ")), order, 1)
    blank = np.full((n, max(0, size - width)), ord(" "), np.uint8)
    return Columns(np.hstack([packed, blank])[:, :size], np.ones((n, size), bool))


def make_digits(numbers: np.ndarray, width: int) -> Columns:
    """Return decimal digits with leading zeros."""
    powers = 10 ** np.arange(width - 1, -1, -1)
    out = (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)
    return Columns(out, np.ones_like(out, bool))


def draw_words(random: np.random.Generator, choice: list[str], n: int) -> Columns:
    """Return a random word in every row, each with the same probability."""
    return make_texts(np.array(choice)[random.integers(0, len(choice), n)])


def make_texts(strings: np.ndarray) -> Columns:
    """Return ASCII strings."""
    out = strings.astype("S").view(np.uint8).reshape(len(strings), -1)
    return Columns(out, out != 0)


def make_varints(numbers: np.ndarray) -> Columns:
    """Return zig-zag varints of one or two bytes, for numbers from 0 to 8191."""
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < 1 << 13:
        raise ValueError("the workload's numbers must fit into two bytes")
    two = numbers >= 1 << 6
    low = (numbers << 1 & 0x7F | two << 7).astype(np.uint8)
    high = (numbers >> 6).astype(np.uint8)
    return Columns(np.column_stack([low, high]), np.column_stack([np.ones_like(two), two]))


def make_big_endian(numbers: np.ndarray) -> Columns:
    """Return big-endian numbers of four bytes."""
    out = numbers.astype(">i4").view(np.uint8).reshape(-1, 4)
    return Columns(out, np.ones_like(out, bool))
