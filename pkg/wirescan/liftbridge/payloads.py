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
from wirescan.core.loop import HEAD, spans
from wirescan.liftbridge.scan import value_spans
from wirescan.nats import MESSAGE, Kind
from wirescan.source import view_of
from wirescan.table import FrameTable

CARRIES = np.isin(np.arange(256), (Kind.PUB, Kind.HPUB, Kind.MSG, Kind.HMSG))      # [kind]
INLINE = 12                 # bytes that a view of Arrow holds itself
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
        return source.buffers, _in_table(source), source
    if is_arrow(source):
        return (*_in_arrow(source), None)
    if isinstance(source, tuple) and len(source) == 2 and source[1] is not None and not _is_bytes(source[1]):
        return (*_in_data(_bytes(source[0]), _offsets(source[1])), None)
    if isinstance(source, (list, tuple)):
        return (*_joined(source), None)
    data = _bytes(source)
    return (*_in_data(data, np.array([0, len(data)])), None)


def _in_table(table: FrameTable) -> np.ndarray:
    if table.dtype != MESSAGE:
        raise TypeError(f"payloads are those of a table of nats.messages, not of {table.name}")
    rows, bad = table.rows, table.bad
    found = spans(rows, np.where(bad, 0, rows["payload_at"]))
    found["size"] = np.where(bad, rows["size"], np.maximum(rows["payload_size"], 0))
    there = bad | CARRIES[rows["kind"]]
    return found if there.all() else found[there]


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
    return tuple(buffers), found[0] if len(found) == 1 else np.concatenate([np.empty(0, HEAD), *found])


def _in_chunk(chunk: Any) -> Places:
    kind, count, first, null = str(chunk.type), len(chunk), chunk.offset, nulls_of(chunk)
    _, *parts = chunk.buffers()
    held = tuple(view_of(b"" if part is None else part) for part in parts)
    if kind == "null" or not count and kind in ("binary", "large_binary"):      # which then may have no offsets
        return (memoryview(b""),), _spans(np.zeros(count, np.int64), 0)
    if kind in ("binary", "large_binary"):
        found = numbers(parts[0], np.int64 if kind == "large_binary" else np.int32, first, count + 1)
        buffers, out = _in_data(held[1], found)
        if chunk.null_count:
            out["size"][null] = 0
        return buffers, out
    if kind == "binary_view":
        return held, _in_views(numbers(parts[0], np.dtype((np.int32, 4)), first, count), first, null, held)
    if kind.startswith("fixed_size_binary"):
        width = chunk.type.byte_width
        return held, _spans(width * np.arange(first, first + count), np.where(null, 0, width))
    raise TypeError(f"payloads in Arrow are binary, large_binary, binary_view or fixed_size_binary, not {kind}")


def _in_views(views: np.ndarray, first: int, null: np.ndarray, held: tuple[memoryview, ...]) -> np.ndarray:
    """Spans of views: of the short ones in the views themselves, which are the first of the buffers."""
    size = np.where(null, 0, views[:, 0]).astype(np.int64)
    inline = size <= INLINE
    number = np.where(inline, 0, 1 + views[:, 2].astype(np.int64))
    start = np.where(inline, 16 * np.arange(first, first + len(views)) + 4, views[:, 3])
    ends = np.array([len(part) for part in held], np.int64)
    there = (size >= 0) & (start >= 0) & (inline | (number > 0)) & (number < len(held))
    if not there.all() or (start + size > ends[number]).any():
        raise ValueError("a view points outside the buffers of its array")
    return _spans(start, size, number)


def _in_data(data: memoryview, offsets: np.ndarray) -> Places:
    if not len(offsets):
        raise ValueError("n payloads have n + 1 offsets, and here is none")
    if offsets.dtype not in (np.int32, np.int64):
        offsets = offsets.astype(np.int64)      # what does not fit is negative then, and refused
    return (data,), value_spans(np.ascontiguousarray(offsets), len(data))


def _joined(payloads: list[Any] | tuple[Any, ...]) -> Places:
    parts = [b"" if one is None else one if type(one) is bytes else _bytes(one) for one in payloads]
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=offsets[1:])
    return _in_data(memoryview(b"".join(parts)), offsets)


def _spans(start: np.ndarray, size: Any, buffer: Any = 0) -> np.ndarray:
    if np.max(size, initial=0) > LONGEST:
        raise ValueError(f"a payload of {np.max(size)} bytes, and at most {LONGEST} are possible")
    found = np.zeros(len(start), HEAD)
    found["start"], found["size"], found["buffer"], found["parent"] = start, size, buffer, -1
    return found


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
