"""Encoders of Lumberjack: single frames, and windows of events from objects, columns or tables.

scan.pyx draws the bytes. Source of the format: Elastic, "The Lumberjack Protocol" (PROTOCOL.md of
logstash-input-beats). Where that text is silent, the bytes are written as every known reader
accepts them. Each window begins with a W that has the number of its events. In a compressed window,
one C after the W has all events.

Sequence numbers are unsigned and have 32 bits; 0 follows 2**32 - 1. Keys, values and JSON texts
have less than 2 GiB. The live clients and servers, and users of the package, call these functions.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, SupportsIndex

from wirescan.core.arguments import LONGEST, check_integer
from wirescan.core.arrow_input import as_byte_array
from wirescan.core.strings import ByteStrings
from wirescan.frames.table import FrameTable
from wirescan.lumberjack.writer import Documents, Events, Fields, Frames, write_windows

# Bounds of numbers, both inclusive.
U32_MAX = (1 << 32) - 1
U32 = (0, U32_MAX)
VERSION = (1, 2)
LEVEL = (0, 9)
DEFAULT_WINDOW = 2048  # events in a window, as libbeat sends them
VERSIONS = {"json": 2, "data": 1}  # default version of each kind of frame
TEXTS = (bytes, bytearray, memoryview, str)
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def encode_window(count: SupportsIndex, *, version: SupportsIndex = 2) -> bytes:
    """Encode a W frame, which announces a number of events.

    count: events that follow, from 0 to 2**32 - 1. version: 1 or 2.

    Raises TypeError for an argument of another type, and ValueError for a value that the format
    cannot hold. The other functions of this module raise the same.
    """
    return _encode_header(version, b"W", count, "count")


def encode_ack(sequence: SupportsIndex, *, version: SupportsIndex = 2) -> bytes:
    """Encode an A frame, which a reader sends.

    sequence: all events up to this sequence number have arrived. 0 is a keep-alive: no event has
        arrived yet.
    version: 1 or 2.
    """
    return _encode_header(version, b"A", sequence, "sequence")


def encode_json(sequence: SupportsIndex, document: Any, *, version: SupportsIndex = 2) -> bytes:
    """Encode a J frame.

    sequence: number of the event. version: 1 or 2.
    document: JSON text, as str or in UTF-8, which is not checked; or a mapping, which is encoded
        with `json`, but without NaN and infinity. An empty text raises ValueError, because no
        reader accepts it.
    """
    text = _to_document(document)
    return (
        _encode_header(version, b"J", sequence, "sequence")
        + _encode_length(text, "a document")
        + text
    )


def encode_data(sequence: SupportsIndex, pairs: Any, *, version: SupportsIndex = 1) -> bytes:
    """Encode a D frame.

    sequence: number of the event. version: 1 or 2.
    pairs: a mapping, or an iterable of (key, value). Keys and values are bytes or str. A frame
        without pairs is valid, but some readers refuse it (logstash-input-beats, ruby-lumberjack).
    """
    parts: list[bytes] = []
    pairs = pairs.items() if isinstance(pairs, Mapping) else _check_iterable(pairs, "pairs")
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"a pair is (key, value), not {pair!r:.80}")
        for name, value in zip(("a key", "a value"), pair):
            text = _to_bytes(value, name)
            parts += _encode_length(text, name), text
    count = (len(parts) // 4).to_bytes(4, "big")
    parts[:0] = _encode_header(version, b"D", sequence, "sequence"), count
    if sum(map(len, parts)) > U32_MAX:
        raise ValueError("a D frame has less than 4 GiB")
    return b"".join(parts)


def encode_compressed(
    frames: Any, *, version: SupportsIndex = 2, level: SupportsIndex = 3
) -> bytes:
    """Encode a C frame.

    frames: bytes-like object, the frames inside. version: 1 or 2.
    level: compression level of zlib, 0 (stored) to 9. libbeat uses 3.
    """
    data = as_byte_array(frames).data
    payload = zlib.compress(data, check_integer(level, "level", LEVEL))
    header = b"%dC" % check_integer(version, "version", VERSION)
    return header + _encode_length(payload, "a zlib stream") + payload


def encode_batch(
    events: Iterable[Any],
    *,
    version: SupportsIndex | None = None,
    frames: str | None = None,
    sequence: SupportsIndex = 1,
    level: SupportsIndex | None = None,
) -> bytes:
    """Encode one window: a W frame, and a frame for each event.

    Without events it is only a W, which asks whether the reader is alive.

    events: documents as in `encode_json` (`frames` "json"), or pairs as in `encode_data` ("data").
    version: 1 or 2; by default 2 for "json" and 1 for "data".
    frames: "json" or "data"; by default "json" in version 2 and "data" in version 1.
    sequence: number of the first event.
    level: None, or the compression level of one C around all frames, 0 to 9.
    Raises as `encode_json` and `encode_data`; the message has the number of the event, from 0.
    """
    if frames is None:
        is_first = version is not None and check_integer(version, "version", VERSION) == 1
        frames = "data" if is_first else "json"
    if frames not in tuple(VERSIONS):
        raise ValueError(f"frames must be 'json' or 'data', not {frames!r}")
    version = check_integer(VERSIONS[frames] if version is None else version, "version", VERSION)
    compress = _make_compressor(level)
    first = check_integer(sequence, "sequence", U32)
    if isinstance(events, Mapping):
        raise TypeError("events are an iterable of events, not one mapping")
    encoded = []
    for i, event in enumerate(_check_iterable(events, "events")):
        try:
            if frames == "json":
                encoded.append(_to_document(event))
            else:
                encoded.append(encode_data((first + i) & U32_MAX, event, version=version))
        except (TypeError, ValueError) as error:
            raise _prefix_error(error, f"event {i}") from None
    if not encoded:
        return encode_window(0, version=version)
    if frames == "json":
        documents = Documents(ByteStrings(encoded), version)
        return bytes(write_windows(documents, len(encoded), first, restart=True, compress=compress))
    body = b"".join(encoded)
    if level is not None:
        body = encode_compressed(body, version=version, level=level)
    return encode_window(len(encoded), version=version) + body


def encode_batches(
    documents: Any,
    *,
    window: SupportsIndex = DEFAULT_WINDOW,
    version: SupportsIndex = 2,
    level: SupportsIndex | None = None,
    sequence: str = "window",
    first: SupportsIndex = 1,
) -> memoryview:
    """Encode JSON texts as J frames in windows.

    documents: JSON texts, which are not checked. Accepted are a place of a table as
        (table, "json"); an Arrow array or chunked array of binary or string, or of their large and
        view types; a numpy array of dtype S or of objects; (offsets, data); or a list of bytes. See
        `wirescan.core.strings.ByteStrings`. No text may be null or empty.
    window: events in each window except the last, from 1 to 2**32 - 1. go-lumber accepts up to
        10,000.
    version: 1 or 2.
    level: None, or the compression level of the C in each window, 0 to 9.
    sequence: "window": numbers begin at `first` in each window; "stream": they continue through all
        windows.
    first: the first sequence number.

    Returns a read-only memoryview of bytes: the windows, one after another. It can be passed to
    `lumberjack.scan`, a file's write or a socket's send; `bytes()` copies it. It does not refer to
    the documents. Without documents it is empty.

    Raises TypeError for an argument of another type. Raises ValueError for a value that the format
    cannot hold, and for offsets or views that point outside their data. Raises ValueError with the
    number of the document for a document that is null or empty.
    """
    texts = _list_strings(documents, "documents")
    events = Documents(texts, check_integer(version, "version", VERSION))
    return _encode_windows(events, window, level, sequence, first)


def encode_data_batches(
    columns: Any,
    *,
    window: SupportsIndex = DEFAULT_WINDOW,
    version: SupportsIndex = 1,
    level: SupportsIndex | None = None,
    sequence: str = "window",
    first: SupportsIndex = 1,
) -> memoryview:
    """Encode columns as D frames in windows, one frame for each row.

    columns: a mapping, or an iterable of (key, column). A key is bytes or str. A column is one of
        the sources that `encode_batches` accepts. A column that is bytes or str is the value in all
        rows. A null omits its pair.

    The other arguments and the result are as in `encode_batches`.

    Raises as `encode_batches`. Raises ValueError for columns of unequal length, and if no column
    gives the number of rows.
    """
    if isinstance(columns, Mapping):
        columns = columns.items()
    pairs = list(_check_iterable(columns, "columns"))
    if any(not isinstance(pair, (tuple, list)) or len(pair) != 2 for pair in pairs):
        raise TypeError("columns are a mapping, or pairs (key, column)")
    keys = [_to_bytes(key, "a key") for key, _ in pairs]
    keys = [_encode_length(key, "a key") + key for key in keys]
    converted = [_convert_column(column, f"column {key!r}") for key, column in pairs]
    counts = {len(column) for column in converted if isinstance(column, ByteStrings)}
    if not counts:
        raise ValueError("no column is an array, so the number of rows is not known")
    if len(counts) > 1:
        raise ValueError("columns of unequal length")
    (count,) = counts
    values = [ByteStrings(column, count) for column in converted]
    events = Fields(keys, values, check_integer(version, "version", VERSION))
    return _encode_windows(events, window, level, sequence, first)


def encode_events(
    events: FrameTable,
    *,
    window: SupportsIndex = DEFAULT_WINDOW,
    version: SupportsIndex | None = None,
    level: SupportsIndex | None = None,
    sequence: str = "window",
    first: SupportsIndex = 1,
) -> memoryview:
    """Encode the D and J frames of a table of lumberjack.events in new windows.

    The frames are copied, and get new sequence numbers.

    events: table of lumberjack.events.
    version: 1 or 2, of all frames. None: each event keeps its own version. A new window begins
        where the version changes, because readers expect one version in a window.

    The other arguments and the result are as in `encode_batches`.

    Raises TypeError for another table. Raises ValueError as `encode_batches`, and with the number
    of the row for a row that is bad.
    """
    if not isinstance(events, FrameTable):
        raise TypeError(f"events must be a table of lumberjack.events, not {type(events).__name__}")
    new_version = 0 if version is None else check_integer(version, "version", VERSION)
    frames = Frames(events.rows, events.buffers, new_version)
    return _encode_windows(frames, window, level, sequence, first)


def _encode_windows(
    events: Events,
    window: SupportsIndex,
    level: SupportsIndex | None,
    sequence: str,
    first: SupportsIndex,
) -> memoryview:
    if sequence not in ("window", "stream"):
        raise ValueError(f"sequence must be 'window' or 'stream', not {sequence!r}")
    return write_windows(
        events,
        check_integer(window, "window", (1, U32_MAX)),
        check_integer(first, "first", U32),
        restart=sequence == "window",
        compress=_make_compressor(level),
    )


def _make_compressor(level: SupportsIndex | None) -> Callable[[Any], bytes] | None:
    if level is None:
        return None
    return partial(zlib.compress, level=check_integer(level, "level", LEVEL))


def _encode_header(version: SupportsIndex, kind: bytes, number: SupportsIndex, name: str) -> bytes:
    digit = check_integer(version, "version", VERSION)
    return b"%d%b%b" % (digit, kind, check_integer(number, name, U32).to_bytes(4, "big"))


def _encode_length(data: bytes, name: str) -> bytes:
    """Return the length field of some data."""
    if len(data) > LONGEST:
        raise ValueError(f"{name} has {len(data)} bytes, and at most {LONGEST} are possible")
    return len(data).to_bytes(4, "big")


def _to_bytes(text: Any, name: str) -> bytes:
    # `to_bytes` of wirescan.core.arguments would take 7 % of the time of `encode_batch`.
    if isinstance(text, str):
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{name} has a surrogate at {error.start}, which UTF-8 cannot hold"
            ) from None
    if not isinstance(text, (bytes, bytearray, memoryview)):
        raise TypeError(f"{name} must be bytes or str, not {type(text).__name__}")
    return bytes(text)


def _to_document(document: Any) -> bytes:
    if isinstance(document, Mapping):
        try:
            document = _to_json(dict(document))
        except RecursionError:
            raise ValueError("a mapping is nested too deeply, or contains itself") from None
    elif not isinstance(document, TEXTS):
        raise TypeError(
            f"a document must be a mapping, bytes or str, not {type(document).__name__}"
        )
    if not document:
        raise ValueError("a document must not be empty")
    return _to_bytes(document, "a document")


def _check_iterable(values: Any, name: str) -> Iterable[Any]:
    if isinstance(values, TEXTS) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be an iterable, not {type(values).__name__}")
    return values


def _convert_column(column: Any, name: str) -> bytes | ByteStrings:
    """Return the value of all rows as bytes, or the values of the rows."""
    if isinstance(column, TEXTS):
        return _to_bytes(column, name)
    return _list_strings(column, name)


def _list_strings(source: Any, name: str) -> ByteStrings:
    try:
        return ByteStrings(source)
    except (TypeError, ValueError) as error:
        raise _prefix_error(error, name) from None


def _prefix_error(error: Exception, name: str) -> Exception:
    """Return an error whose message begins with the name of the argument or event."""
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"{name}: {error}")
