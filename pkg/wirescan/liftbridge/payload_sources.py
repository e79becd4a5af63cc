"""Sources of payloads for `liftbridge.scan`, as spans of buffers. Only lists are copied.

    a table of nats.messages    the payloads of PUB, HPUB, MSG and HMSG
    an Arrow array              or a chunked array, or an object with the Arrow C data interface:
                                binary, large_binary, binary_view, fixed_size_binary or null
    (data, offsets)             payload i is data[offsets[i]:offsets[i + 1]]
    a list or tuple             bytes-like objects and None, which are joined
    a bytes-like object         one payload

Source of the layouts: Apache Arrow columnar format 1.4, "Variable-size Binary Layout" and
"Variable-size Binary View Layout".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wirescan.core.arguments import LONGEST
from wirescan.core.arrow_input import find_nulls, is_arrow, list_chunks, read_numbers
from wirescan.core.loop import HEAD
from wirescan.files.source import view_of
from wirescan.frames.table import MAX_BUFFERS, FrameTable
from wirescan.liftbridge.payload_spans import make_message_spans, make_offset_spans, make_view_spans
from wirescan.nats.scan import MESSAGE

ONE_SPAN = np.zeros(1, HEAD)
ONE_SPAN["parent"] = -1

Places = tuple[tuple[memoryview, ...], np.ndarray]


def open_payload_source(
    source: Any,
) -> tuple[tuple[memoryview, ...], np.ndarray, FrameTable | None]:
    """Return (buffers, spans, outer): where the payloads of a source are.

    source: one of the sources in the module's docstring. None and null are payloads of no bytes.

    spans: array of dtype HEAD, one span for each payload in its start, size and buffer. outer: the
    table, if the source is a table. Then `parent` is the payload's row in it, and a bad row gives a
    span of its frame, with its fault. Otherwise outer is None and every `parent` is -1.

    Raises TypeError for any other source. Raises ValueError for offsets or views that are outside
    their data, for a payload of 2 GiB or more, and for more than 65,536 buffers.
    """
    if isinstance(source, FrameTable):
        if source.dtype != MESSAGE:
            raise TypeError(
                f"payloads are read from a table of nats.messages, not of {source.name}"
            )
        return source.buffers, make_message_spans(source.rows), source
    if is_arrow(source):
        return (*_open_arrow(source), None)
    if (
        isinstance(source, tuple)
        and len(source) == 2
        and source[1] is not None
        and not _is_bytes(source[1])
    ):
        return (*_open_data(_open_view(source[0]), _read_offsets(source[1])), None)
    if isinstance(source, (list, tuple)):
        return (*_open_list(source), None)
    data = _open_view(source)
    if len(data) > LONGEST:
        return (*_open_data(data, np.array([0, len(data)])), None)  # raises
    span = ONE_SPAN.copy()
    span["size"] = len(data)
    return (data,), span, None


def _open_arrow(source: Any) -> Places:
    buffers: list[memoryview] = []
    spans_by_chunk: list[np.ndarray] = []
    for chunk in list_chunks(source):
        chunk_buffers, spans = _open_chunk(chunk)
        if len(buffers) + len(chunk_buffers) > MAX_BUFFERS:
            raise ValueError(
                f"the source has more than {MAX_BUFFERS:,} buffers, but a table holds at most "
                f"{MAX_BUFFERS:,} buffers: pass fewer chunks at a time"
            )
        if buffers:
            spans["buffer"] += len(buffers)
        buffers += chunk_buffers
        spans_by_chunk.append(spans)
    if len(spans_by_chunk) == 1:
        return tuple(buffers), spans_by_chunk[0]
    return tuple(buffers), np.concatenate([np.empty(0, HEAD), *spans_by_chunk])


def _open_chunk(chunk: Any) -> Places:
    kind = str(chunk.type)
    count = len(chunk)
    first = chunk.offset
    null = find_nulls(chunk)
    _, *arrow_buffers = chunk.buffers()
    views = tuple(view_of(b"" if buffer is None else buffer) for buffer in arrow_buffers)
    # An empty array of these types may have no buffer of offsets.
    if kind == "null" or (not count and kind in ("binary", "large_binary")):
        return _open_data(memoryview(b""), np.zeros(count + 1, np.int64))
    if kind in ("binary", "large_binary"):
        width = np.int64 if kind == "large_binary" else np.int32
        return _open_data(views[1], read_numbers(arrow_buffers[0], width, first, count + 1), null)
    if kind == "binary_view":
        words = read_numbers(arrow_buffers[0], np.dtype((np.int32, 4)), first, count)
        ends = np.array(list(map(len, views)), np.int64)
        spans, wrong = make_view_spans(words, first, null, ends, LONGEST)
        if wrong >= 0:
            raise ValueError(
                f"payload {wrong}: its view, of {words[wrong, 0]} bytes, points outside the buffers"
            )
        return views, spans
    if kind.startswith("fixed_size_binary"):
        return _open_data(
            views[0], chunk.type.byte_width * np.arange(first, first + count + 1), null
        )
    raise TypeError(
        f"payloads in Arrow are binary, large_binary, binary_view or fixed_size_binary, not {kind}"
    )


def _open_data(data: memoryview, offsets: np.ndarray, null: np.ndarray | None = None) -> Places:
    if not len(offsets):
        raise ValueError("the offsets are empty: n payloads have n + 1 offsets")
    if offsets.dtype != np.int32:
        # An unsigned offset that does not fit becomes negative, and `make_offset_spans` refuses it.
        offsets = offsets.astype(np.int64, copy=False)
    null = np.zeros(len(offsets) - 1, bool) if null is None else null
    spans, wrong = make_offset_spans(np.ascontiguousarray(offsets), len(data), LONGEST, null)
    if wrong >= 0:
        start, stop = offsets[wrong : wrong + 2].tolist()
        raise ValueError(
            f"payload {wrong}: its offsets {start} and {stop} are not in order in {len(data)} "
            "bytes, or are 2 GiB apart"
        )
    return (data,), spans


def _open_list(payloads: list[Any] | tuple[Any, ...]) -> Places:
    parts = [_to_view(payload) for payload in payloads]
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=offsets[1:])
    return _open_data(memoryview(b"".join(parts)), offsets)


def _to_view(payload: Any) -> bytes | memoryview:
    if payload is None:
        return b""
    return payload if type(payload) is bytes else _open_view(payload)


def _read_offsets(source: Any) -> np.ndarray:
    offsets = np.asarray(source)
    if offsets.ndim != 1 or (len(offsets) and offsets.dtype.kind not in "iu"):
        raise TypeError(
            "a pair is (data, offsets): a bytes-like object, and n + 1 integers for n payloads"
        )
    return offsets


def _is_bytes(source: Any) -> bool:
    try:
        return memoryview(source).itemsize == 1
    except (TypeError, ValueError, BufferError):
        return False


def _open_view(source: Any) -> memoryview:
    if not _is_bytes(source):
        raise TypeError(
            "payloads are a table of nats.messages (which nats.scan makes of a capture), a binary "
            "Arrow array, (data, offsets), a list of bytes-like objects, or one such object, not "
            f"{type(source).__name__}"
        )
    return view_of(source)
