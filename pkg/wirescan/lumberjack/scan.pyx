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
    BAD_LENGTH, EMPTY, Fault, Head, LIMIT, NESTED, NOT_A_FRAME, OK, Opening, Readable, Reader, Rows, SHORT, TRUNCATED,
    Top, be32, beside, enter, int32_t, int64_t, left, open_all, open_frames, prefetch, put, scan_frames, scan_top,
    sized, take, uint8_t, uint16_t, uint32_t, uint64_t)
from wirescan.core.loop cimport block_for, lend, place
from wirescan.core.loop import HEAD, addresses, flat, lie_inside
from wirescan.core.rows cimport RowBlock, grow_rows

cdef enum:
    WINDOW = 0x57
    ACK = 0x41
    DATA = 0x44
    JSON = 0x4a
    COMPRESSED = 0x43
    SHORT_HEADER = 6                # bytes of W, A, and of C before its payload
    LONG_HEADER = 10                # bytes of J before its document, and of D before its pairs
    SMALLEST_PAIR = 8
    LARGEST = 0x7fffffff            # a size above it is no place, and no other reader takes it
    MOST_PAIRS = 0x1ffffffe         # that fit in 4 GiB


cdef inline bint is_version(uint8_t byte) noexcept nogil:
    return byte == b"1" or byte == b"2"

cdef inline Fault cut(Frame* row, uint64_t least) noexcept nogil:
    # The bytes end inside a frame that has so many at the least: the loop compares that with the limit.
    row.head.size = <uint32_t>min(least, <uint64_t>0xffffffff)
    return SHORT


cdef inline Fault read_data(Reader* r, Frame* row) noexcept nogil:
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p
    cdef Reader walk = Reader(start + LONG_HEADER, r.end)
    cdef uint32_t pairs = row.count, size
    cdef int half
    while pairs:
        for half in range(2):
            p = take(&walk, 4)
            if p is NULL:
                return cut(row, <uint64_t>(walk.at - start) + <uint64_t>SMALLEST_PAIR * pairs - 4 * half)
            size = be32(p)
            if size > LARGEST:
                return BAD_LENGTH
            if take(&walk, size) is NULL:
                return cut(row, <uint64_t>(walk.at - start) + <uint64_t>SMALLEST_PAIR * pairs - 4 - 4 * half + size)
        pairs -= 1
    if walk.at - start > <int64_t>0xffffffff:
        return BAD_LENGTH
    r.at = walk.at
    return OK


cdef inline Fault read_frame(Reader* r, void* out, const void* parent) noexcept nogil:
    cdef Frame* row = <Frame*>out
    cdef const uint8_t* p = r.at
    cdef size_t room = left(r)
    cdef Reader body
    cdef Fault fault
    cdef uint8_t kind
    if not is_version(p[0]):
        return NOT_A_FRAME
    if room < 2:
        return SHORT
    kind = p[1]
    if kind == JSON or kind == DATA:
        if room < LONG_HEADER:
            return SHORT
        row.sequence = be32(p + 2)
        if kind == JSON:
            row.length = be32(p + 6)
            if row.length > LARGEST:
                return BAD_LENGTH
            fault = enter(r, LONG_HEADER, row.length, &body)
            if fault:
                return cut(row, <uint64_t>LONG_HEADER + row.length)
        else:
            row.count = be32(p + 6)
            if row.count > MOST_PAIRS:
                return BAD_LENGTH
            fault = read_data(r, row)
            if fault:
                return fault
        row.head.body = LONG_HEADER
    elif kind == COMPRESSED or kind == WINDOW or kind == ACK:
        if room < SHORT_HEADER:
            return SHORT
        if kind == COMPRESSED:
            row.length = be32(p + 2)
            if row.length > LARGEST:
                return BAD_LENGTH
        elif kind == WINDOW:
            row.count = be32(p + 2)
        else:
            row.sequence = be32(p + 2)
        fault = enter(r, SHORT_HEADER, row.length, &body)
        if fault:
            return cut(row, <uint64_t>SHORT_HEADER + row.length)
        row.head.body = SHORT_HEADER
    else:
        return NOT_A_FRAME
    row.head.kind, row.version = kind, p[0] - c"0"
    return EMPTY if kind == JSON and row.length == 0 else OK


cdef inline Fault read_pair(Reader* r, void* out, const void* parent) noexcept nogil:
    cdef Pair* row = <Pair*>out
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p = take(r, 4)
    if p is NULL or be32(p) > LARGEST or sized(r, start, <int32_t>be32(p), &row.key_at, &row.key_size):
        return TRUNCATED
    p = take(r, 4)
    if p is NULL or be32(p) > LARGEST or sized(r, start, <int32_t>be32(p), &row.value_at, &row.value_size):
        return TRUNCATED
    row.head.body = row.key_at
    return OK


cdef size_t good_pairs(Reader* r, char* rows, size_t most, const void* parent, const Readable* buffer,
                       const Head* span, bint ahead, bint past) noexcept nogil:
    # The pairs up to the first that is bad, each row in five words.
    cdef const uint8_t* start = r.at
    cdef char* row = rows
    cdef char* stop = rows + most * sizeof(Pair)
    cdef uint64_t belongs = beside(<uint32_t>span.parent, span.buffer)
    cdef size_t room = left(r), key, value
    while row < stop and room >= SMALLEST_PAIR:
        key = be32(start)
        if key > LARGEST or key > room - SMALLEST_PAIR:
            break
        value = be32(start + 4 + key)
        if value > LARGEST or value > room - SMALLEST_PAIR - key:
            break
        put(row, <uint64_t>(start - buffer.at), past)
        put(row + 8, beside(<uint32_t>(SMALLEST_PAIR + key + value), 4), past)
        put(row + 16, belongs, past)
        put(row + 24, beside(4, <uint32_t>key), past)
        put(row + 32, beside(<uint32_t>(SMALLEST_PAIR + key), <uint32_t>value), past)
        start += SMALLEST_PAIR + key + value
        room -= SMALLEST_PAIR + key + value
        row += sizeof(Pair)
    r.at = start
    return <size_t>(row - rows) // sizeof(Pair)


cdef size_t never(const uint8_t* at, const uint8_t* end, bint deep, int64_t* budget) noexcept nogil:
    # Behind damage nothing tells where a frame begins.
    return <size_t>(end - at) if deep else 0

cdef Fault run_frames(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Frame), read_frame, never)

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
    cdef const char[::1] view
    cdef const Frame* row
    numbers = np.empty(n, np.int64)
    cdef int64_t[::1] out = numbers
    if n:
        view = np.ascontiguousarray(frames).view(np.int8)
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
    cdef const char[::1] view, span_view
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
        view = np.ascontiguousarray(frames).view(np.int8)
        if packed:
            number, readable = numbers, addresses(buffers)
            span_view = np.ascontiguousarray(spans).view(np.int8)
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
    cdef const char[::1] view
    cdef const Event* row
    spans, counts = np.empty(n, HEAD), np.empty(n, np.int32)
    cdef Head[::1] span
    cdef int32_t[::1] count = counts
    if n:
        view, span = np.ascontiguousarray(events).view(np.int8), spans
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
    cdef const char[::1] view
    cdef const Event* row
    cdef const Event* last = NULL
    cdef int64_t turns = 0
    numbers = np.empty(n, np.int64)
    cdef int64_t[::1] out = numbers
    if n:
        view = np.ascontiguousarray(events).view(np.int8)
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
