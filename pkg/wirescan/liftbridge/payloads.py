"""Payloads, wherever they lie: what `liftbridge.scan` takes, as spans of buffers that are held and not copied.

    a table of nats.messages    the payloads of PUB, HPUB, MSG and HMSG
    an Arrow array              or chunked array, or anything with the Arrow C data interface: binary, large_binary,
                                binary_view, fixed_size_binary or null
    (data, offsets)             payload i is data[offsets[i]:offsets[i + 1]]
    a list or tuple             of bytes-like objects and None, which are joined
    a bytes-like object         one payload

Source of the layouts: Apache Arrow columnar format 1.4, "Variable-size Binary Layout", "Variable-size Binary View
Layout".
"""
from __future__ import annotations

from typing import Any

import numpy as np

from wirescan.core.chunks import chunks_of, is_arrow, nulls_of, numbers
from wirescan.core.loop import HEAD
from wirescan.liftbridge.located import between, in_messages, viewed
from wirescan.nats import MESSAGE
from wirescan.source import view_of
from wirescan.table import FrameTable

LONGEST = (1 << 31) - 1     # bytes in a payload
MOST = 1 << 16              # buffers that the column `buffer` can count
Places = tuple[tuple[memoryview, ...], np.ndarray]


def places(source: Any) -> tuple[tuple[memoryview, ...], np.ndarray, FrameTable | None]:
    """(buffers, spans, outer): where the payloads of a source lie: an array of dtype HEAD, a span a payload in its
    start, size and buffer. See the module's text for the sources; None and null are payloads of no bytes.

    Of a table, that is `outer` and `parent` the payload's row in it; a bad row is a span over its frame, with its
    fault. Else `outer` is None, and every parent -1.

    Raises TypeError for any other source, ValueError for offsets or views that do not lie in their data, for a payload
    of 2 GiB or more, and for more than 65,536 buffers.
    """
    if isinstance(source, FrameTable):
        if source.dtype != MESSAGE:
            raise TypeError(f"payloads are those of a table of nats.messages, not of {source.name}")
        return source.buffers, in_messages(source.rows), source
    if is_arrow(source):
        return (*_in_arrow(source), None)
    if isinstance(source, tuple) and len(source) == 2 and source[1] is not None and not _is_bytes(source[1]):
        return (*_in_data(_bytes(source[0]), _offsets(source[1])), None)
    if isinstance(source, (list, tuple)):
        return (*_joined(source), None)
    data = _bytes(source)
    return (*_in_data(data, np.array([0, len(data)])), None)


def _in_arrow(source: Any) -> Places:
    buffers: list[memoryview] = []
    found: list[np.ndarray] = []
    for chunk in chunks_of(source):
        held, part = _in_chunk(chunk)
        if len(buffers) + len(held) > MOST:
            raise ValueError(f"a table holds at most {MOST:,} buffers: take fewer chunks at a time")
        if buffers:
            part["buffer"] += len(buffers)
        buffers += held
        found.append(part)
    spans = found[0] if len(found) == 1 else np.concatenate([np.empty(0, HEAD), *found])
    return tuple(buffers), spans


def _in_chunk(chunk: Any) -> Places:
    kind, count, first, null = str(chunk.type), len(chunk), chunk.offset, nulls_of(chunk)
    _, *parts = chunk.buffers()
    held = tuple(view_of(b"" if part is None else part) for part in parts)
    if kind == "null" or not count and kind in ("binary", "large_binary"):      # which then may have no offsets
        return _in_data(memoryview(b""), np.zeros(count + 1, np.int64))
    if kind in ("binary", "large_binary"):
        width = np.int64 if kind == "large_binary" else np.int32
        return _in_data(held[1], numbers(parts[0], width, first, count + 1), null)
    if kind == "binary_view":
        views, ends = numbers(parts[0], np.dtype((np.int32, 4)), first, count), np.array(list(map(len, held)), np.int64)
        spans, wrong = viewed(views, first, null, ends, LONGEST)
        if wrong >= 0:
            raise ValueError(f"payload {wrong}: its view, of {views[wrong, 0]} bytes, points outside the buffers")
        return held, spans
    if kind.startswith("fixed_size_binary"):
        return _in_data(held[0], chunk.type.byte_width * np.arange(first, first + count + 1), null)
    raise TypeError(f"payloads in Arrow are binary, large_binary, binary_view or fixed_size_binary, not {kind}")


def _in_data(data: memoryview, offsets: np.ndarray, null: np.ndarray | None = None) -> Places:
    if not len(offsets):
        raise ValueError("n payloads have n + 1 offsets, and here is none")
    if offsets.dtype != np.int32:
        offsets = offsets.astype(np.int64, copy=False)      # what does not fit is negative then, and refused
    null = np.zeros(len(offsets) - 1, bool) if null is None else null
    spans, wrong = between(np.ascontiguousarray(offsets), len(data), LONGEST, null)
    if wrong >= 0:
        start, stop = offsets[wrong:wrong + 2].tolist()
        raise ValueError(f"payload {wrong}: its offsets {start} and {stop} are not in order in {len(data)} bytes, or "
                         "are 2 GiB apart")
    return (data,), spans


def _joined(payloads: list[Any] | tuple[Any, ...]) -> Places:
    parts = [b"" if one is None else one if type(one) is bytes else _bytes(one) for one in payloads]
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=offsets[1:])
    return _in_data(memoryview(b"".join(parts)), offsets)


def _offsets(given: Any) -> np.ndarray:
    offsets = np.asarray(given)
    if offsets.ndim != 1 or len(offsets) and offsets.dtype.kind not in "iu":
        raise TypeError("a pair is (data, offsets): a bytes-like object, and n + 1 integers for n payloads")
    return offsets


def _is_bytes(one: Any) -> bool:
    try:
        return memoryview(one).itemsize == 1
    except (TypeError, ValueError, BufferError):
        return False


def _bytes(one: Any) -> memoryview:
    if not _is_bytes(one):
        raise TypeError("payloads are a table of nats.messages (which nats.scan makes of a capture), a binary Arrow "
                        "array, (data, offsets), a list of bytes-like objects, or one such object, not "
                        f"{type(one).__name__}")
    return view_of(one)
