# cython: boundscheck=False, wraparound=False
"""Lumberjack, versions 1 and 2: frames, the events among them (those in compressed frames too), and their pairs.

    W  window       version(1) 57 count(4)
    D  data         version(1) 44 sequence(4) count(4) { size(4) key  size(4) value }*
    J  json         version(1) 4a sequence(4) size(4) document
    C  compressed   version(1) 43 size(4) zlib stream of frames
    A  ack          version(1) 41 sequence(4)

The version is the digit 1 or 2 in ASCII, and so is the type a letter; all integers are unsigned and big-endian. A D has
no length: it ends where its last pair does. Nothing tells where the next frame begins behind a damaged one.

Source: docs/lumberjack.md; PROTOCOL.md of logstash-input-beats ("The Lumberjack Protocol") for what it says.
"""
import numpy as np

from libc.string cimport memset
from wirescan.core cimport (
    Fault, Head, LIMIT, NESTED, OK, Opening, Readable, Reader, Rows, SHORT, TRUNCATED, Top, be32, int32_t, int64_t,
    open_all, open_frames, prefetch, scan_frames, scan_spans, scan_top, uint8_t, uint32_t, uint64_t)
from wirescan.core.loop cimport block_for, lend, place
from wirescan.core.loop import HEAD as _HEAD, addresses, flat, lie_inside
from wirescan.core.rows cimport RowBlock, grow_rows
from wirescan.lumberjack.frame cimport good_pairs, read_frame, read_pair

cdef Fault run_frames(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Frame), read_frame, NULL)

cdef Fault run_pairs(const Opening* opening, Rows* rows) noexcept nogil:
    return open_all(opening, rows, sizeof(Pair), read_pair, NULL)


cdef Frame _frame
cdef Event _event
cdef Pair _pair
FRAME = flat(np.asarray(<Frame[:1]>&_frame).dtype)
EVENT = flat(np.asarray(<Event[:1]>&_event).dtype)
PAIR = flat(np.asarray(<Pair[:1]>&_pair).dtype)


def scan_stream(buffer, check, resync, limits, into=None, more=False):
    """(rows of dtype FRAME, bad, fault, offset): see `core.loop.scan_frames`."""
    return scan_frames(buffer, FRAME, run_frames, resync, more, limits, into)


def scan_streams(buffers, spans, check, resync, limits):
    """(rows, bad, faults, offsets): the same for many spans of buffers: see `core.loop.scan_spans`."""
    return scan_spans(buffers, spans, FRAME, run_frames, resync, limits)


def needed(held, at=0, pairs=0):
    """(bytes, at, pairs): how many bytes the frame that `held` begins with has at the least, and where to ask on when
    there are more: a D is walked once, however small the pieces are that it comes in.
    """
    cdef const uint8_t[::1] view = held
    cdef int64_t n = view.shape[0], here = at, rest = pairs, size
    cdef const uint8_t* p = &view[0] if n else NULL
    cdef uint8_t kind
    if here == 0:
        if n < 2:
            return 2, 0, 0
        kind = p[1]
        if kind == COMPRESSED or kind == WINDOW or kind == ACK:
            size = be32(p + 2) if kind == COMPRESSED and n >= SHORT_HEADER else 0
            return SHORT_HEADER + size, 0, 0
        if kind != DATA and kind != JSON:
            return n, 0, 0                  # that is no frame: the scan tells
        if n < LONG_HEADER:
            return LONG_HEADER, 0, 0
        rest = be32(p + 6)
        if kind == JSON:
            return LONG_HEADER + rest, 0, 0
        here = LONG_HEADER
    while rest:
        if n - here < 4:
            return here + SMALLEST_PAIR * rest, here, rest
        size = SMALLEST_PAIR + <int64_t>be32(p + here)
        if n - here < size:
            return here + size + SMALLEST_PAIR * (rest - 1), here, rest
        size += be32(p + here + size - 4)
        if n - here < size:
            return here + size + SMALLEST_PAIR * (rest - 1), here, rest
        here, rest = here + size, rest - 1
    return here, here, rest


def compressed(frames):
    """Int64 array: which rows of dtype FRAME are good and compressed."""
    cdef Py_ssize_t i, n = len(frames), found = 0
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
                    out[found] = i
                    found += 1
    return numbers[:found]


cdef inline bint add(Rows* rows, const Frame* frame, bint events, int32_t* window) noexcept nogil:
    # One row more: the frame, or the event that it is. False where there is no room.
    cdef Event* event
    if events and not frame.head.fault:
        if frame.head.kind == WINDOW:
            window[0] += 1
        if frame.head.kind != DATA and frame.head.kind != JSON:
            return True
    if rows.count == rows.room:
        if rows.count >= rows.most or not grow_rows(rows, rows.room + (rows.room >> 1) + 64):
            return False
    if events:
        event = <Event*>rows.at + rows.count
        event.head = frame.head
        event.sequence, event.version, event.depth = frame.sequence, frame.version, frame.depth
        event.window, event.json_at, event.json_size, event.count = window[0], 0, -1, 0
        if not frame.head.fault:
            if frame.head.kind == JSON:
                event.json_at, event.json_size = LONG_HEADER, <int32_t>frame.length
            else:
                event.count = frame.count
    else:
        (<Frame*>rows.at)[rows.count] = frame[0]
    rows.count += 1
    rows.bad += frame.head.fault != 0
    return True


cdef inline bint add_inside(Rows* rows, const Frame* outer, const Head* span, const Readable* buffer, bint last,
                            bint events, int32_t* window) noexcept nogil:
    # The frames inside a compressed one. Where it could not be inflated one bad row covers it; where the next inner
    # frame has no end, the rest of it; and a bad row without bytes tells what was wrong behind the last of them.
    cdef Reader r = Reader(buffer.at + span.start, buffer.at + span.start + span.size)
    cdef const uint8_t* start
    cdef Frame frame
    cdef uint8_t fault = span.fault
    cdef uint8_t behind = 0 if fault else span.kind
    while r.at < r.end or fault or behind:
        start = r.at
        memset(&frame, 0, sizeof(Frame))
        if fault:
            r.at, frame.head.kind, frame.version, frame.depth = r.end, COMPRESSED, outer.version, outer.depth
        elif r.at == r.end:
            fault, behind, frame.depth = behind, 0, outer.depth + 1
        else:
            fault = read_frame(&r, &frame, NULL)
            prefetch(r.at + 8 * (r.at - start))
            if fault >= SHORT:
                fault = TRUNCATED if fault == SHORT else fault
                r.at, behind = r.end, 0
                memset(&frame, 0, sizeof(Frame))
            elif last and frame.head.kind == COMPRESSED:
                fault = NESTED
            frame.depth = outer.depth + 1
        place(&frame.head, buffer.at, start, r.at, span.parent, span.buffer, fault)
        if not add(rows, &frame, events, window):
            return False
        fault = 0
    return True


def unpack(frames, buffers, numbers, spans, again, last, events, limits):
    """(rows, bad, fault): frames of dtype FRAME with what is in the compressed ones in their place; or, with `events`,
    rows of dtype EVENT, of the D, the J and the bad ones among them. LIMIT where there are more than limits.rows.

    numbers: int64 array, the compressed rows. spans: array of dtype HEAD: where what they inflate to lies in the
    buffers; fault: why it was not inflated; kind: what is wrong behind the last frame in it.
    again: the rows have been unpacked before, and keep their parents. last: a compressed frame inside is NESTED.
    Raises ValueError where a span lies outside its buffer, MemoryError.
    """
    dtype = EVENT if events else FRAME
    cdef Py_ssize_t i, n = len(frames), next = 0, packed = len(numbers)
    cdef bint to_events = events, to_last = last, keep = again, room = True
    cdef const uint8_t[::1] view, span_view
    cdef const int64_t[::1] number
    cdef const uint64_t[:, ::1] readable
    cdef const Head* span = NULL
    cdef Head own
    cdef Frame frame
    cdef int32_t window = -1
    if frames.dtype != FRAME or len(spans) != packed or not lie_inside(spans, buffers):
        raise ValueError("a row points outside its buffer")
    cdef RowBlock block = block_for(dtype, n + int(spans["size"].sum(dtype=np.int64)) // 128, limits, None)
    if n:
        view = np.ascontiguousarray(frames).view(np.uint8)
        if packed:
            number, readable = numbers, addresses(buffers)
            span_view = np.ascontiguousarray(spans).view(np.uint8)
            span = <const Head*>&span_view[0]
        with nogil:
            for i in range(n):
                frame = (<const Frame*>&view[i * sizeof(Frame)])[0]
                if not keep:
                    frame.head.parent = <int32_t>i
                if next < packed and number[next] == i:
                    own = span[next]
                    own.parent = frame.head.parent
                    room = add_inside(&block.rows, &frame, &own, <const Readable*>&readable[own.buffer, 0], to_last,
                                      to_events, &window)
                    next += 1
                else:
                    room = add(&block.rows, &frame, to_events, &window)
                if not room:
                    break
    fault = OK if room else LIMIT
    return lend(block, dtype, None, fault), block.rows.bad, int(fault)


def claims(events):
    """(spans, counts) of rows of dtype EVENT that have pairs or are bad: array of dtype HEAD, from `body` to the
    frame's end; int32 array, the pairs that each claims. For `open_pairs`."""
    cdef Py_ssize_t i, n = len(events), found = 0
    cdef const uint8_t[::1] view
    cdef const Event* row
    spans, counts = np.empty(n, _HEAD), np.empty(n, np.int32)
    cdef Head[::1] span
    cdef int32_t[::1] count = counts
    if n:
        view, span = np.ascontiguousarray(events).view(np.uint8), spans
        with nogil:
            for i in range(n):
                row = <const Event*>&view[i * sizeof(Event)]
                if row.count or row.head.fault:
                    span[found] = Head(
                        <int64_t>(<uint64_t>row.head.start + row.head.body),
                        row.head.size - row.head.body if row.head.size > row.head.body else 0, 0, <int32_t>i,
                        row.head.buffer, 0, row.head.fault)
                    count[found] = <int32_t>min(row.count, <uint32_t>LARGEST)
                    found += 1
    return spans[:found], counts[:found]


def open_pairs(events, buffers, spans, counts, limits):
    """(rows of dtype PAIR, bad, fault) of the spans of rows of dtype EVENT: see `core.loop.open_frames`."""
    if events.dtype != EVENT:
        raise TypeError("pairs are opened from a table of lumberjack.events")
    return open_frames(events, buffers, spans, counts, PAIR, run_pairs, good_pairs, NULL, limits)


def unrolled(events):
    """Int64 array: the sequence numbers of rows of dtype EVENT, with 2**32 added for each roll-over before them."""
    cdef Py_ssize_t i, n = len(events)
    cdef const uint8_t[::1] view
    cdef const Event* row
    cdef const Event* last = NULL
    cdef int64_t turns = 0
    numbers = np.empty(n, np.int64)
    cdef int64_t[::1] out = numbers
    if n:
        view = np.ascontiguousarray(events).view(np.uint8)
        with nogil:
            for i in range(n):
                row = <const Event*>&view[i * sizeof(Event)]
                if last is not NULL and row.sequence < last.sequence and not row.head.fault and (
                        row.window == last.window or last.sequence - row.sequence > LARGEST):
                    turns += <int64_t>1 << 32
                out[i] = turns + row.sequence
                if not row.head.fault:
                    last = row
    return numbers
