"""Write Lumberjack bytes: frames one by one, and windows of events.

    window      version u8 | "W" | events u32
    JSON        version u8 | "J" | sequence u32 | length u32 | JSON text
    data        version u8 | "D" | sequence u32 | pairs u32 | (length u32 | key | length u32 | value)*
    compressed  version u8 | "C" | length u32 | frames, as a zlib stream (RFC 1950)
    ack         version u8 | "A" | sequence u32

Everything is big-endian; a version is a digit in ASCII. The format's source: Elastic, "The Lumberjack Protocol"
(PROTOCOL.md of logstash-input-beats). What that leaves open is written as every known reader takes it: before the
events of each window stands a W with just their number; compressed, all of them lie in one C behind that W.

Sequences are unsigned numbers of 32 bits; behind 2**32 - 1 comes 0. Keys, values and JSON texts have less than 2 GiB.
"""
from __future__ import annotations

import json
import operator
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, SupportsIndex

from wirescan.core.chunks import flat
from wirescan.core.strings import ByteStrings
from wirescan.lumberjack.write import Documents, Events, Fields, Frames, write_windows
from wirescan.table import FrameTable

__all__ = ["encode_ack", "encode_batch", "encode_batches", "encode_compressed", "encode_data", "encode_data_batches",
           "encode_events", "encode_json", "encode_window"]

U32 = 1 << 32
LONGEST = (1 << 31) - 1                 # bytes in a key, a value, a JSON text or a zlib stream
WINDOW = 2048                           # events, as libbeat sends them
SEQUENCES = ("window", "stream")
VERSIONS = {"json": 2, "data": 1}       # of frames, where none is given
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def encode_window(count: SupportsIndex, *, version: SupportsIndex = 2) -> bytes:
    """A W frame: so many events follow, from 0 to 2**32 - 1. version: 1 or 2.

    Raises TypeError for an argument of another type, ValueError for one that the format cannot hold; so do all others
    here.
    """
    return _header(version, b"W", count, "count")


def encode_ack(sequence: SupportsIndex, *, version: SupportsIndex = 2) -> bytes:
    """An A frame, of a reader: all events up to this sequence number have arrived. 0: none has yet, but it is alive."""
    return _header(version, b"A", sequence, "sequence")


def encode_json(sequence: SupportsIndex, document: Any, *, version: SupportsIndex = 2) -> bytes:
    """A J frame.

    document: JSON text, as str or in UTF-8, which is not looked at; or a mapping, which becomes one: with what `json`
    takes, but not NaN and infinity. No reader takes a text of no bytes, and it is refused.
    """
    text = _document(document)
    return _header(version, b"J", sequence, "sequence") + _length(text, "a document") + text


def encode_data(sequence: SupportsIndex, pairs: Any, *, version: SupportsIndex = 1) -> bytes:
    """A D frame.

    pairs: a mapping, or (key, value) in order; keys and values are bytes or str, and nothing else. Without pairs the
    frame is good, but there are readers that do not take it (logstash-input-beats, ruby-lumberjack).
    """
    parts: list[bytes] = []
    for pair in pairs.items() if isinstance(pairs, Mapping) else _iterated(pairs, "pairs"):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"a pair is (key, value), not {pair!r:.80}")
        for name, given in zip(("a key", "a value"), pair):
            text = _bytes(given, name)
            parts += _length(text, name), text
    parts[:0] = _header(version, b"D", sequence, "sequence"), (len(parts) // 4).to_bytes(4, "big")
    if sum(map(len, parts)) >= U32:
        raise ValueError("a D frame has less than 4 GiB")
    return b"".join(parts)


def encode_compressed(frames: Any, *, version: SupportsIndex = 2, level: SupportsIndex = 3) -> bytes:
    """A C frame around these frames, a bytes-like object. level: of zlib, 0 (stored) to 9; 3 is what libbeat uses."""
    payload = _zlib(level)(flat(frames))
    return b"%dC" % _version(version) + _length(payload, "a zlib stream") + payload


def encode_batch(
    events: Iterable[Any], *, version: SupportsIndex | None = None, frames: str | None = None,
    sequence: SupportsIndex = 1, level: SupportsIndex | None = None,
) -> bytes:
    """One window: a W, and a frame for each event; without events the W alone, which asks whether a reader is alive.

    events: as `encode_json` takes them (`frames` "json"), or `encode_data` ("data").
    version: by default 2 for "json", 1 for "data", as each is known; frames: by default what is known in that version.
    sequence: of the first event. level: None, or that of one C around all frames, 0 to 9.
    Raises as they do, and says which event it was, by its number from 0.
    """
    if frames is None:
        frames = "json" if version is None or _version(version) == 2 else "data"
    if frames not in tuple(VERSIONS):
        raise ValueError(f"frames must be 'json' or 'data', not {frames!r}")
    version = VERSIONS[frames] if version is None else _version(version)
    compress, first = _compress(level), _u32(sequence, "sequence")
    if isinstance(events, Mapping):
        raise TypeError("events are an iterable of events, not one mapping")
    written = []
    for i, event in enumerate(_iterated(events, "events")):
        try:
            written.append(_document(event) if frames == "json" else
                           encode_data((first + i) % U32, event, version=version))
        except (TypeError, ValueError) as error:
            raise _named(error, f"event {i}") from None
    if not written:
        return encode_window(0, version=version)
    if frames == "json":
        return bytes(write_windows(Documents(ByteStrings(written), version), len(written), first, True, compress))
    body = b"".join(written)
    if level is not None:
        body = encode_compressed(body, version=version, level=level)
    return encode_window(len(written), version=version) + body


def encode_batches(
    documents: Any, *, window: SupportsIndex = WINDOW, version: SupportsIndex = 2,
    level: SupportsIndex | None = None, sequence: str = "window", first: SupportsIndex = 1,
) -> memoryview:
    """J frames in windows, one after another, as a read-only memoryview of bytes (for `lumberjack.scan`, a file's
    write, a socket's send; `bytes()` copies it). Nothing in it refers to the documents.

    documents: JSON texts, which are not looked at: a place of a table as (table, "json"); an Arrow array or chunked
        array of binary or string, or their large and view types; a numpy array of dtype S or of objects; (offsets,
        data); or a list of bytes. See `wirescan.core.strings.ByteStrings`. None of them may be null or empty.
    window: events in each window but the last, from 1 to 2**32 - 1; go-lumber takes up to 10,000.
    level: None, or that of the C in each window, 0 to 9.
    sequence: "window": numbers begin at `first` in each window; "stream": they run on through all of them.
    Without documents there is no window.

    Raises TypeError for an argument of another type; ValueError for one that the format cannot hold, offsets or views
    that point outside their data, and, by its number, for a document that is null or empty.
    """
    return _windows(Documents(_strings(documents, "documents"), _version(version)), window, level, sequence, first)


def encode_data_batches(
    columns: Any, *, window: SupportsIndex = WINDOW, version: SupportsIndex = 1, level: SupportsIndex | None = None,
    sequence: str = "window", first: SupportsIndex = 1,
) -> memoryview:
    """D frames in windows, a frame for each row of some columns; everything else is as in `encode_batches`.

    columns: a mapping, or (key, column) in order. A key is bytes or str. A column holds values, in anything that
        `encode_batches` takes; or it is bytes or str, the value in all rows. A null is no value: its pair is left out.

    Raises as `encode_batches`, and for columns of unequal length, and where no column says how many rows there are.
    """
    given = [*(columns.items() if isinstance(columns, Mapping) else _iterated(columns, "columns"))]
    if any(not isinstance(pair, (tuple, list)) or len(pair) != 2 for pair in given):
        raise TypeError("columns are a mapping, or pairs (key, column)")
    keys = [_bytes(key, "a key") for key, _ in given]
    keys = [_length(key, "a key") + key for key in keys]
    one = [isinstance(column, (bytes, bytearray, memoryview, str)) for _, column in given]
    held = [None if alone else _strings(column, f"column {key!r}") for (key, column), alone in zip(given, one)]
    counts = {len(column) for column in held if column is not None}
    if len(counts) != 1:
        raise ValueError("columns of unequal length" if counts else "no column says how many rows there are")
    values = [ByteStrings(_bytes(column, f"column {key!r}"), *counts) if strings is None else strings
              for (key, column), strings in zip(given, held)]
    return _windows(Fields(keys, values, _version(version)), window, level, sequence, first)


def encode_events(
    events: FrameTable, *, window: SupportsIndex = WINDOW, version: SupportsIndex | None = None,
    level: SupportsIndex | None = None, sequence: str = "window", first: SupportsIndex = 1,
) -> memoryview:
    """The frames of a table of lumberjack.events, D and J, once more: as they are but for their sequence numbers, in
    new windows; everything else is as in `encode_batches`.

    version: of all that is written. None: each event keeps its own, and where that changes a new window begins, since
    readers take one version in a window.

    Raises TypeError for another table; ValueError as `encode_batches`, and, by its number, for a row that is bad.
    """
    if not isinstance(events, FrameTable):
        raise TypeError(f"events must be a table of lumberjack.events, not {type(events).__name__}")
    own = 0 if version is None else _version(version)
    return _windows(Frames(events.rows, events.buffers, own), window, level, sequence, first)


def _windows(
    events: Events, window: SupportsIndex, level: SupportsIndex | None, sequence: str, first: SupportsIndex
) -> memoryview:
    if sequence not in SEQUENCES:
        raise ValueError(f"sequence must be 'window' or 'stream', not {sequence!r}")
    most, restart = _integer(window, "window", 1, U32 - 1), sequence == "window"
    return write_windows(events, most, _u32(first, "first"), restart, _compress(level))


def _integer(given: SupportsIndex, name: str, least: int, most: int) -> int:
    try:
        number = operator.index(given)      # an int of Python, whose sums do not wrap
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {given!r}") from None
    if not least <= number <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {number}")
    return number


def _u32(given: SupportsIndex, name: str) -> int:
    return _integer(given, name, 0, U32 - 1)


def _version(given: SupportsIndex) -> int:
    return _integer(given, "version", 1, 2)


def _zlib(level: SupportsIndex) -> Callable[[Any], bytes]:
    return partial(zlib.compress, level=_integer(level, "level", 0, 9))


def _compress(level: SupportsIndex | None) -> Callable[[Any], bytes] | None:
    return None if level is None else _zlib(level)


def _header(version: SupportsIndex, kind: bytes, number: SupportsIndex, name: str) -> bytes:
    return b"%d%b%b" % (_version(version), kind, _u32(number, name).to_bytes(4, "big"))


def _length(data: bytes, name: str) -> bytes:
    """As it is written."""
    if len(data) > LONGEST:
        raise ValueError(f"{name} has {len(data)} bytes, and at most {LONGEST} are possible")
    return len(data).to_bytes(4, "big")


def _bytes(given: Any, name: str) -> bytes:
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{name} has a surrogate at {error.start}, which UTF-8 cannot hold") from None
    if not isinstance(given, (bytes, bytearray, memoryview)):
        raise TypeError(f"{name} must be bytes or str, not {type(given).__name__}")
    return bytes(given)


def _document(given: Any) -> bytes:
    if isinstance(given, Mapping):
        try:
            given = _to_json(dict(given))
        except RecursionError:
            raise ValueError("a mapping is nested too deeply, or in itself") from None
    elif not isinstance(given, (bytes, bytearray, memoryview, str)):
        raise TypeError(f"a document must be a mapping, bytes or str, not {type(given).__name__}")
    if not given:
        raise ValueError("a document must not be empty")
    return _bytes(given, "a document")


def _iterated(given: Any, name: str) -> Iterable[Any]:
    if isinstance(given, (bytes, bytearray, memoryview, str)) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be an iterable, not {type(given).__name__}")
    return given


def _strings(given: Any, name: str) -> ByteStrings:
    try:
        return ByteStrings(given)
    except (TypeError, ValueError) as error:
        raise _named(error, name) from None


def _named(error: Exception, name: str) -> Exception:
    return (TypeError if isinstance(error, TypeError) else ValueError)(f"{name}: {error}")
