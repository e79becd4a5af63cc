# cython: boundscheck=False, wraparound=False
"""Kernel driver for Lumberjack, versions 1 and 2: frames, events and pairs. `formats.py` uses it.

    W  window       version(1) 57 count(4)
    D  data         version(1) 44 sequence(4) count(4) { size(4) key  size(4) value }*
    J  json         version(1) 4a sequence(4) size(4) document
    C  compressed   version(1) 43 size(4) zlib stream of frames
    A  ack          version(1) 41 sequence(4)

The version is the ASCII digit 1 or 2, and the type is an ASCII letter. All integers are unsigned
and big-endian. A D has no length: it ends after its last pair. After a damaged frame, nothing in
the bytes says where the next frame begins.

Sources: docs/lumberjack.md; PROTOCOL.md of logstash-input-beats ("The Lumberjack Protocol") where
it specifies the bytes.
"""
import numpy as np

from libc.string cimport memset
from wirescan.core cimport (
    Fault, Head, LIMIT, NESTED, OK, NestedScan, Readable, Reader, Rows, SHORT, TRUNCATED, ScanState,
    be32, int32_t, int64_t, scan_children, open_frames, prefetch, scan_frames, scan_spans,
    scan_buffer, uint8_t, uint32_t, uint64_t)
from wirescan.core.loop cimport (
    allocate_rows, begin_sink, count_bytes, end_sink, place, prefetch_frame, rows_to_array)
from wirescan.core.loop import HEAD as _HEAD, addresses, find_ranges, flatten, lie_inside
from wirescan.core.rows cimport RowBlock, reserve_row
from wirescan.lumberjack.frame cimport read_pair_run, read_frame, read_pair
from wirescan.lumberjack.rows cimport (
    ACK, COMPRESSED, DATA, Event, Frame, JSON, LARGEST, LONG_HEADER, Pair, SHORT_HEADER,
    SMALLEST_PAIR, WINDOW)

cdef enum:
    BYTES_PER_FRAME = 128           # estimate, for the first size of the row array
    PREFETCH_FRAMES = 8             # distance of the prefetch, in frames of the current size
    FRAMES_AHEAD = 32               # the same in rows, where a writer reads what `unpack` does not


cdef Fault run_frames(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Frame), read_frame, NULL)


cdef Fault run_pairs(const NestedScan* nested, Rows* rows) noexcept nogil:
    return scan_children(nested, rows, sizeof(Pair), read_pair, NULL)


cdef Frame _frame
cdef Event _event
cdef Pair _pair
FRAME = flatten(np.asarray(<Frame[:1]>&_frame).dtype)
EVENT = flatten(np.asarray(<Event[:1]>&_event).dtype)
PAIR = flatten(np.asarray(<Pair[:1]>&_pair).dtype)


def scan_stream(buffer, *, check, resync, limits, into=None, more=False, resume=None):
    """Scan a buffer: (rows of dtype FRAME, bad, fault, position). See `core.loop.scan_frames`."""
    return scan_frames(buffer, FRAME, run_frames, resync, more, limits, into, resume)


def scan_streams(buffers, spans, *, check, resync, limits, more=False):
    """Scan spans of buffers: (rows, bad, faults, positions). See `core.loop.scan_spans`."""
    return scan_spans(buffers, spans, FRAME, run_frames, resync, limits, more)


def bytes_needed(held, at=0, pairs=0):
    """Return (minimum size of the frame at the start of `held`, at, pairs).

    `at` and `pairs` are the position and the number of pairs from which to continue when more
    bytes are there. So each D is walked once, however small the chunks are.
    """
    cdef const uint8_t[::1] view = held
    cdef int64_t n = view.shape[0]
    cdef int64_t position = at
    cdef int64_t remaining = pairs
    cdef int64_t size
    cdef const uint8_t* p = &view[0] if n else NULL
    cdef uint8_t kind
    if position == 0:
        if n < 2:
            return 2, 0, 0
        kind = p[1]
        if kind == COMPRESSED or kind == WINDOW or kind == ACK:
            size = be32(p + 2) if kind == COMPRESSED and n >= SHORT_HEADER else 0
            return SHORT_HEADER + size, 0, 0
        if kind != DATA and kind != JSON:
            return n, 0, 0                  # this is not a frame: the scan reports it
        if n < LONG_HEADER:
            return LONG_HEADER, 0, 0
        remaining = be32(p + 6)
        if kind == JSON:
            return LONG_HEADER + remaining, 0, 0
        position = LONG_HEADER
    while remaining:
        if n - position < 4:
            return position + SMALLEST_PAIR * remaining, position, remaining
        size = SMALLEST_PAIR + <int64_t>be32(p + position)
        if n - position < size:
            return position + size + SMALLEST_PAIR * (remaining - 1), position, remaining
        size += be32(p + position + size - 4)
        if n - position < size:
            return position + size + SMALLEST_PAIR * (remaining - 1), position, remaining
        position += size
        remaining -= 1
    return position, position, remaining


def find_compressed(frames):
    """Return an int64 array: the numbers of the good compressed frames in rows of dtype FRAME."""
    cdef Py_ssize_t i
    cdef Py_ssize_t n = len(frames)
    cdef Py_ssize_t count = 0
    cdef const uint8_t[::1] view
    cdef const Frame* row
    numbers = np.empty(n, np.int64)
    cdef int64_t[::1] out = numbers
    if n:
        view = np.ascontiguousarray(frames).view(np.uint8)
        with nogil:
            for i in range(n):
                row = <const Frame*>&view[i * sizeof(Frame)]
                if row.head.kind == COMPRESSED and not row.head.fault:
                    out[count] = i
                    count += 1
    return numbers[:count]


cdef inline bint add(Rows* rows, const Frame* frame, bint events, int32_t* window) noexcept nogil:
    # Append one row: the frame, or its event. Return False if the row array cannot grow.
    cdef Event* event
    if events and not frame.head.fault:
        if frame.head.kind == WINDOW:
            window[0] += 1
        if frame.head.kind != DATA and frame.head.kind != JSON:
            return True
    if not reserve_row(rows):
        return False
    if events:
        event = <Event*>rows.at + rows.count
        event.head = frame.head
        event.sequence = frame.sequence
        event.version = frame.version
        event.depth = frame.depth
        event.window = window[0]
        event.json_at = 0
        event.json_size = -1
        event.count = 0
        if not frame.head.fault:
            if frame.head.kind == JSON:
                event.json_at = LONG_HEADER
                event.json_size = <int32_t>frame.length
            else:
                event.count = frame.count
    else:
        (<Frame*>rows.at)[rows.count] = frame[0]
    rows.count += 1
    rows.bad += frame.head.fault != 0
    return True


cdef inline bint add_inside(
        Rows* rows, const Frame* outer, const Head* span, const Readable* buffer, bint last,
        bint events, int32_t* window) noexcept nogil:
    # Append the frames inside a compressed frame. Three faults add one bad row each. A payload
    # that could not be decompressed is a row over the payload. An inner frame without a known end
    # is a row over the rest of the payload. A fault at the end of the zlib stream is a row of no
    # bytes after the last inner frame.
    cdef Reader r = Reader(buffer.at + span.start, buffer.at + span.start + span.size)
    cdef const uint8_t* start
    cdef Frame frame
    cdef uint8_t fault = span.fault
    cdef uint8_t end_fault = 0 if fault else span.kind
    while r.at < r.end or fault or end_fault:
        start = r.at
        memset(&frame, 0, sizeof(Frame))
        if fault:
            r.at = r.end
            frame.head.kind = COMPRESSED
            frame.version = outer.version
            frame.depth = outer.depth
        elif r.at == r.end:
            fault = end_fault
            end_fault = 0
            frame.depth = outer.depth + 1
        else:
            fault = read_frame(&r, &frame, NULL)
            prefetch(r.at + PREFETCH_FRAMES * (r.at - start))
            if fault >= SHORT:
                fault = TRUNCATED if fault == SHORT else fault
                r.at = r.end
                end_fault = 0
                memset(&frame, 0, sizeof(Frame))
            elif last and frame.head.kind == COMPRESSED:
                fault = NESTED
            frame.depth = outer.depth + 1
        place(&frame.head, buffer.at, start, r.at, span.parent, span.buffer, fault)
        if not add(rows, &frame, events, window):
            return False
        fault = 0
    return True


cdef RowBlock begin_events(frames, spans, buffers, limits, writer, expected):
    # Begin to write the events in frames, and in the decompressed payloads at `spans`.
    ranges = find_ranges(frames, buffers)
    inside = find_ranges(spans, buffers)
    ranges[:, 0] = np.minimum(ranges[:, 0], inside[:, 0])
    ranges[:, 1] = np.maximum(ranges[:, 1], inside[:, 1])
    return begin_sink(writer, EVENT, limits, buffers, ranges, expected)


def unpack(frames, buffers, numbers, spans, again, last, events, limits, writer=None):
    """Return (rows, bad, fault): frames, each compressed one replaced by the frames inside it.

    The rows have dtype FRAME. With `events` they have dtype EVENT, and only D, J and bad frames
    are kept. `fault` is LIMIT if there are more rows than the limits allow, else OK.

    frames: array of dtype FRAME. buffers: what its rows and `spans` point into.
    numbers: int64 array, the rows that are compressed frames.
    spans: array of dtype HEAD, one for each of `numbers`: the place of the decompressed payload.
        Its `fault` says why a payload was not decompressed. Its `kind` is the fault at the end of
        the zlib stream, or 0.
    again: the rows were unpacked before, so they keep their parents.
    last: a compressed frame inside a compressed frame is NESTED.
    writer: ColumnWriter that takes the rows of events instead.

    Raises ValueError if a span is outside its buffer, or with a writer a frame, and MemoryError.
    """
    dtype = EVENT if events else FRAME
    cdef Py_ssize_t i
    cdef Py_ssize_t n = len(frames)
    cdef Py_ssize_t next = 0
    cdef Py_ssize_t packed = len(numbers)
    cdef bint to_events = events
    cdef bint is_last = last
    cdef bint keep_parents = again
    cdef bint has_space = True
    cdef bint prefetches = writer is not None and len(buffers) > 0
    cdef size_t buffer_count = len(buffers)
    cdef const uint8_t[::1] view, span_view
    cdef const int64_t[::1] number
    cdef const uint64_t[:, ::1] readable
    cdef const Head* span = NULL
    cdef Head own
    cdef Frame frame
    cdef int32_t window = -1
    if frames.dtype != FRAME or len(spans) != packed or not lie_inside(spans, buffers):
        raise ValueError("a row points outside its buffer")
    estimate = n + int(spans["size"].sum(dtype=np.int64)) // BYTES_PER_FRAME
    cdef RowBlock block
    if writer is None:
        block = allocate_rows(dtype, estimate, limits, None, count_bytes(buffers))
    else:
        block = begin_events(frames, spans, buffers, limits, writer, estimate)
    if n:
        view = np.ascontiguousarray(frames).view(np.uint8)
        readable = addresses(buffers)
        if packed:
            number = numbers
            span_view = np.ascontiguousarray(spans).view(np.uint8)
            span = <const Head*>&span_view[0]
        with nogil:
            for i in range(n):
                if prefetches and i + FRAMES_AHEAD < n:
                    prefetch_frame(<const Head*>&view[(i + FRAMES_AHEAD) * sizeof(Frame)],
                                   <const Readable*>&readable[0, 0], buffer_count)
                frame = (<const Frame*>&view[i * sizeof(Frame)])[0]
                if not keep_parents:
                    frame.head.parent = <int32_t>i
                if next < packed and number[next] == i:
                    own = span[next]
                    own.parent = frame.head.parent
                    has_space = add_inside(
                        &block.rows, &frame, &own, <const Readable*>&readable[own.buffer, 0],
                        is_last, to_events, &window)
                    next += 1
                else:
                    has_space = add(&block.rows, &frame, to_events, &window)
                if not has_space:
                    break
    fault = OK if has_space else LIMIT
    if writer is not None:
        end_sink(writer, block, fault)
    return rows_to_array(block, dtype, None, fault), block.rows.bad, int(fault)


def child_spans(events):
    """Return (spans, counts) of the rows of dtype EVENT that have pairs or are bad.

    spans: array of dtype HEAD, from `body` to the frame's end. counts: int32 array, the number of
    pairs that each frame claims. Both are arguments of `open_pairs`.
    """
    cdef Py_ssize_t i
    cdef Py_ssize_t n = len(events)
    cdef Py_ssize_t span_count = 0
    cdef const uint8_t[::1] view
    cdef const Event* row
    spans = np.empty(n, _HEAD)
    counts = np.empty(n, np.int32)
    cdef Head[::1] span
    cdef int32_t[::1] count = counts
    if n:
        view = np.ascontiguousarray(events).view(np.uint8)
        span = spans
        with nogil:
            for i in range(n):
                row = <const Event*>&view[i * sizeof(Event)]
                if row.count or row.head.fault:
                    span[span_count] = Head(
                        <int64_t>(<uint64_t>row.head.start + row.head.body),
                        row.head.size - row.head.body if row.head.size > row.head.body else 0,
                        0, <int32_t>i, row.head.buffer, 0, row.head.fault)
                    count[span_count] = <int32_t>min(row.count, <uint32_t>LARGEST)
                    span_count += 1
    return spans[:span_count], counts[:span_count]


def open_pairs(events, buffers, spans, counts, limits):
    """Open pairs: (rows of dtype PAIR, bad, fault) of spans of rows of dtype EVENT.

    See `core.loop.open_frames`. Raises TypeError for rows of another dtype.
    """
    if events.dtype != EVENT:
        raise TypeError("pairs are opened from a table of lumberjack.events")
    return open_frames(events, buffers, spans, counts, PAIR, run_pairs, read_pair_run, NULL, limits)


def unroll_sequences(events):
    """Return an int64 array: the sequence numbers of rows of dtype EVENT, without roll-overs.

    Each roll-over before a row adds 2**32 to its number. `formats.unroll` states the rule.
    """
    cdef Py_ssize_t i
    cdef Py_ssize_t n = len(events)
    cdef const uint8_t[::1] view
    cdef const Event* row
    cdef const Event* previous = NULL               # the last good event
    cdef int64_t turns = 0
    numbers = np.empty(n, np.int64)
    cdef int64_t[::1] out = numbers
    if n:
        view = np.ascontiguousarray(events).view(np.uint8)
        with nogil:
            for i in range(n):
                row = <const Event*>&view[i * sizeof(Event)]
                if (previous is not NULL and row.sequence < previous.sequence
                        and not row.head.fault
                        and (row.window == previous.window
                             or previous.sequence - row.sequence > LARGEST)):
                    turns += <int64_t>1 << 32
                out[i] = turns + row.sequence
                if not row.head.fault:
                    previous = row
    return numbers
