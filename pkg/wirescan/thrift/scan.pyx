# cython: boundscheck=False, wraparound=False
"""Thrift: frames of the header transport (THeader) and of the older ones beside it, the infos and messages in them.

    header      length(4) 0f ff flags(2) seq(4) words(2)  header of 4 * words bytes  payload  mac?
    big header  "BIGF" length(8), then the same           double header     length + 4 (4), then the same
    framed      length(4) message                         unframed          message
    HTTP        head, body: http.pxd                      TTHeader          length(4) 10 00: another protocol

    header      protocol  count { transform  size of the mac(1), of HMAC }*  { info }*  padding 00*
    info        id  count { size  key  size  value }*     of id 1, KEYVALUE, and 2, PKEYVALUE; another one ends them
    message     message.pxd; the struct in it: walk.pxd

Integers are big-endian, in the header they are varints. A length counts what follows it. An unframed message has none:
it ends where its struct does. The payload is a message, to which transforms were applied in their order.

Source: Apache Thrift, doc/specs/HeaderFormat.md; fbthrift, thrift/doc/HeaderFormat.md; for what is not in these,
THeader.cpp of fbthrift.
"""
import numpy as np

from libc.string cimport memchr, memcpy, memset
from wirescan.core cimport (
    BAD_CODEC, BAD_KIND, Fault, Head, LIMIT, OK, Readable, Reader, Rows, SHORT, Top, be32, int32_t, int64_t,
    scan_frames, scan_spans, scan_top, uint8_t, uint32_t, uint64_t, varint32)
from wirescan.core.loop cimport block_for, lend, place
from wirescan.core.loop import addresses, flat
from wirescan.core.rows cimport RowBlock, grow_rows
from wirescan.thrift.frame cimport (
    STRICT, intact_frame, read_frame, read_frame_any, read_frame_more, read_frame_of, read_string)
from wirescan.thrift.http cimport LONGEST_HEAD, UNTOLD, is_http, next_chunk, read_head, skip_lines
from wirescan.thrift.message cimport Begin, is_compact, read_begin
from wirescan.thrift.walk cimport Walk, begin_walk, skip

cdef Fault run_frames(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Frame), read_frame, intact_frame)

cdef Fault run_frames_more(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Frame), read_frame_more, intact_frame)

cdef Fault run_frames_any(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Frame), read_frame_any, intact_frame)


cdef Frame _frame
cdef Info _info
cdef Plain _plain
cdef Message _message
FRAME = flat(np.asarray(<Frame[:1]>&_frame).dtype)
INFO = flat(np.asarray(<Info[:1]>&_info).dtype)
PLAIN = flat(np.asarray(<Plain[:1]>&_plain).dtype)
MESSAGE = flat(np.asarray(<Message[:1]>&_message).dtype)


def scan_stream(buffer, check, resync, limits, into=None, more=False):
    """(rows of dtype FRAME, bad, fault, offset): see `core.loop.scan_frames`."""
    return scan_frames(buffer, FRAME, run_frames_more if more else run_frames, resync, more, limits, into)


def scan_streams(buffers, spans, check, resync, limits):
    """(rows, bad, faults, offsets): the same for many spans of buffers: see `core.loop.scan_spans`."""
    return scan_spans(buffers, spans, FRAME, run_frames, resync, limits)


def scan_any(buffer, resync, limits, into=None):
    """The same, where binary messages need not tell their version: (rows, bad, fault, offset)."""
    return scan_frames(buffer, FRAME, run_frames_any, resync, False, limits, into)


def needed(held, at=0, state=b""):
    """(bytes, at, state): how many bytes the frame that `held` begins with has at the least, and where and how to go on
    when there are more: an unframed message, and the chunks of HTTP, are walked once, however small the pieces are.
    """
    cdef const uint8_t[::1] view = held
    cdef int64_t n = view.shape[0], least = 0, length = 0, here = at
    cdef const uint8_t* p = &view[0] if n else NULL
    cdef const uint8_t* data = NULL
    cdef const uint8_t[::1] kept
    cdef Reader r = Reader(p + here, p + n)
    cdef Frame row
    cdef Begin begin
    cdef Walk walk
    cdef bint chunked = True, compact
    cdef Fault fault
    if n < 4:
        return 4, 0, b""
    compact = is_compact(p[0], p[1])
    if compact or be32(p) >> 16 == STRICT:
        if here == 0:
            fault = read_begin(&r, compact, &begin)
            if fault:
                return r.at - p + begin.least if begin.least else n, 0, b""
            begin_walk(&walk, compact, begin.version)
        else:
            kept = state
            memcpy(&walk, &kept[0], sizeof(Walk))
        fault = skip(&walk, &r, 0)
        if fault and not walk.least:
            return n, 0, b""
        here = r.at - p
        return (here + walk.least, here, (<const char*>&walk)[:sizeof(Walk)]) if fault else (here, 0, b"")
    if is_http(p):
        if state == b"rest":                    # up to the end of the stream
            return n + 1, 0, state
        if state == b"":
            if skip_lines(&r):
                return n + (n <= LONGEST_HEAD), r.at - p, b""
            r.at = p
            fault = read_head(&r, &length, &chunked)
            if fault:
                return n, 0, b""
            if not chunked:
                return (n + 1, 0, b"rest") if length == UNTOLD else (r.at - p + length, 0, b"")
        length = not state.isdigit()
        while length:
            fault = next_chunk(&r, &data, &length, &least)
            if fault:
                return (r.at - p + least, r.at - p, b"chunks") if fault == SHORT else (n, 0, b"")
        state = state if state.isdigit() else b"%d" % (r.at - p)        # where the trailer begins
        if skip_lines(&r):
            return n + (n - int(state) <= LONGEST_HEAD), r.at - p, state
        return r.at - p, 0, b""
    memset(&row, 0, sizeof(Frame))
    fault = read_frame_of(&r, &row, False, True, NULL)
    return max(n + 1, <int64_t>row.head.size) if fault == SHORT else n, 0, b""


cdef inline bint is_shut(const Head* frame) noexcept nogil:
    # What is in the frame cannot be read; but the infos of one with an unknown transform can.
    return frame.fault != OK and frame.fault != BAD_CODEC


cdef inline Fault read_pair(Reader* r, const uint8_t* start, Info* row) noexcept nogil:
    cdef uint32_t key = 0, value = 0
    cdef Fault fault = read_string(r, &key)
    if not fault:
        row.key_at, row.key_size = <uint32_t>(r.at - start) - key, <int32_t>key
        fault = read_string(r, &value)
    if not fault:
        row.value_at, row.value_size = <uint32_t>(r.at - start) - value, <int32_t>value
        row.head.body = row.value_at
    return fault


cdef inline bint add_infos(Rows* rows, const Frame* frame, const uint8_t* start, int32_t parent) noexcept nogil:
    # A row for each pair of a frame; False where there is no room.
    cdef const uint8_t* base = start - frame.head.start
    cdef Reader r = Reader(start + frame.infos_at, start + frame.infos_at + max(frame.infos_size, 0))
    cdef Info* row
    cdef uint32_t id = 0, count = 0
    cdef Fault fault = OK
    if is_shut(&frame.head):
        r, fault, count = Reader(start, start + frame.head.size), <Fault>frame.head.fault, 1
    while True:
        while count == 0:
            if r.at == r.end:
                return True
            fault = varint32(&r, &id)
            if not fault:
                fault = varint32(&r, &count)
            if fault:                           # such rows are not from a scan
                count = 1
        if rows.count == rows.room and (rows.count >= rows.most
                                        or not grow_rows(rows, rows.room + (rows.room >> 1) + 64)):
            return False
        row = <Info*>rows.at + rows.count
        memset(row, 0, sizeof(Info))
        start = r.at
        if not fault:
            row.head.kind = <uint8_t>id
            fault = read_pair(&r, start, row)
        if fault:
            memset(row, 0, sizeof(Info))
            r.at, count = r.end, 1
            rows.bad += 1
        place(&row.head, base, start, r.at, parent, frame.head.buffer, <uint8_t>fault)
        rows.count += 1
        count -= 1
        fault = OK


def open_infos(frames, buffers, limits):
    """(rows of dtype INFO, bad, fault): the pairs in rows of dtype FRAME, in the order of the wire; one bad row for
    each that is bad, unless only its transforms are unknown. LIMIT where there are more than limits.rows.

    Raises ValueError where a row points outside its buffer, MemoryError."""
    cdef Py_ssize_t i, n = len(frames)
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] readable
    cdef const Frame* frame
    cdef const uint8_t* start
    cdef size_t held = len(buffers), most = 0
    cdef bint room = True, good = True
    if frames.dtype != FRAME:
        raise TypeError("infos are those of rows of thrift.frames")
    if n:
        view, readable = np.ascontiguousarray(frames).view(np.uint8), addresses(buffers)
        with nogil:
            for i in range(n):
                frame = <const Frame*>&view[i * sizeof(Frame)]
                most += min(frame.info_count, frame.head.size >> 1) + (frame.head.fault != OK)
    cdef RowBlock block = block_for(INFO, most, limits, None)
    cdef Rows* rows = &block.rows
    if n:
        with nogil:
            for i in range(n):
                frame = <const Frame*>&view[i * sizeof(Frame)]
                start = frame_of(&frame.head, <const Readable*>&readable[0, 0], held)
                good = start is not NULL and has(&frame.head, frame.infos_at, frame.infos_size)
                if not good:
                    break
                if frame.info_count or is_shut(&frame.head):
                    room = add_infos(rows, frame, start, <int32_t>i)
                    if not room:
                        break
    if not good:
        raise ValueError(f"row {i} points outside its buffer")
    fault = OK if room else LIMIT
    return lend(block, INFO, None, fault), rows.bad, int(fault)


# ---------------------------------------------------------------------------------- messages

cdef inline int protocol_of(const Frame* frame, const uint8_t* p, uint32_t size) noexcept nogil:
    # BINARY or COMPACT; -1 for another.
    if frame.head.kind == FRAMED_BINARY or frame.head.kind == UNFRAMED_BINARY:
        return BINARY
    if frame.head.kind == FRAMED_COMPACT or frame.head.kind == UNFRAMED_COMPACT:
        return COMPACT
    if frame.head.kind >= HTTP and size:
        if p[0] == 0x82:
            return COMPACT
        if p[0] == 0x80:
            return BINARY
    return frame.protocol_id if frame.protocol_id == BINARY or frame.protocol_id == COMPACT else -1


cdef inline Fault read_message(const uint8_t* p, uint32_t size, const Frame* frame, Message* row) noexcept nogil:
    # The row comes zeroed.
    cdef Reader r = Reader(p, p + size)
    cdef Begin begin
    cdef const uint8_t* colon = NULL
    cdef int protocol = protocol_of(frame, p, size)
    cdef Fault fault
    if protocol < 0:
        return BAD_KIND
    fault = read_begin(&r, protocol == COMPACT, &begin)
    if fault:
        return fault
    row.method_at, row.method_size = <uint32_t>(begin.name - p), <int32_t>begin.name_size
    row.service_size = -1
    if begin.name_size and (begin.type == CALL or begin.type == ONEWAY):
        colon = <const uint8_t*>memchr(begin.name, c":", begin.name_size)
        if colon is not NULL:
            row.service_at, row.service_size = row.method_at, <int32_t>(colon - begin.name)
            row.method_at += <uint32_t>row.service_size + 1
            row.method_size -= row.service_size + 1
    row.head.kind, row.seqid = begin.type, begin.seqid
    row.protocol, row.version, row.strict = begin.protocol, begin.version, begin.strict
    row.head.body = row.arguments_at = <uint32_t>(r.at - p)
    row.arguments_size = <int32_t>(r.end - r.at)
    return OK


cdef inline void add_message(Rows* rows, const Frame* frame, const Head* span, const uint8_t* p,
                             int64_t start) noexcept nogil:
    cdef Message* row = <Message*>rows.at + rows.count
    cdef uint8_t fault = span.fault
    memset(row, 0, sizeof(Message))
    if not fault:
        fault = <uint8_t>read_message(p, span.size, frame, row)
        if fault:
            memset(row, 0, sizeof(Message))
    row.head.start, row.head.size = start, span.size
    row.head.parent, row.head.buffer, row.head.fault = span.parent, span.buffer, fault
    rows.bad += fault != OK
    rows.count += 1


def open_messages(frames, buffers, limits):
    """(rows of dtype MESSAGE, bad, fault): the messages in rows of dtype FRAME that have a payload or are bad, read
    where they lie; LIMIT where there are more than limits.rows. None where a payload has first to be made plain.

    Raises ValueError where a row points outside its buffer, MemoryError."""
    cdef Py_ssize_t i, n = len(frames)
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] readable
    cdef const Frame* frame
    cdef const uint8_t* start
    cdef Head span
    cdef size_t held = len(buffers)
    cdef bint good = True, packed = False
    cdef Fault fault = OK
    if frames.dtype != FRAME:
        raise TypeError("messages are in rows of thrift.frames or thrift.plain")
    cdef RowBlock block = block_for(MESSAGE, n, limits, None)
    cdef Rows* rows = &block.rows
    if n:
        view, readable = np.ascontiguousarray(frames).view(np.uint8), addresses(buffers)
        with nogil:
            for i in range(n):
                frame = <const Frame*>&view[i * sizeof(Frame)]
                span = frame.head
                start = frame_of(&span, <const Readable*>&readable[0, 0], held)
                good = start is not NULL and has(&span, frame.payload_at, frame.payload_size)
                packed = frame.transform_count or span.kind == HTTP_CHUNKED
                if packed or not good:
                    break
                span.parent = <int32_t>i
                if not span.fault:
                    if frame.payload_size < 0:
                        continue
                    start += frame.payload_at
                    span.start, span.size = span.start + frame.payload_at, <uint32_t>frame.payload_size
                if rows.count == rows.room:
                    fault = LIMIT
                    break
                add_message(rows, frame, &span, start, span.start)
    if not good:
        raise ValueError(f"row {i} points outside its buffer")
    return None if packed else (lend(block, MESSAGE, None, fault), rows.bad, int(fault))


def open_plain(frames, plain, buffers, limits):
    """(rows of dtype MESSAGE, bad, fault): the messages in rows of dtype PLAIN, the payloads of rows of dtype FRAME;
    LIMIT where there are more than limits.rows.

    Raises ValueError where a row points outside its buffer, or names no frame, MemoryError."""
    cdef Py_ssize_t i, n = len(plain), count = len(frames)
    cdef const uint8_t[::1] view, plain_view
    cdef const uint64_t[:, ::1] readable
    cdef const Plain* payload
    cdef const uint8_t* start
    cdef size_t held = len(buffers)
    cdef bint good = True
    cdef Fault fault = OK
    if frames.dtype != FRAME or plain.dtype != PLAIN:
        raise TypeError("messages are in rows of thrift.frames or thrift.plain")
    cdef RowBlock block = block_for(MESSAGE, n, limits, None)
    cdef Rows* rows = &block.rows
    if n and count:
        view, readable = np.ascontiguousarray(frames).view(np.uint8), addresses(buffers)
        plain_view = np.ascontiguousarray(plain).view(np.uint8)
        with nogil:
            for i in range(n):
                payload = <const Plain*>&plain_view[i * sizeof(Plain)]
                start = frame_of(&payload.head, <const Readable*>&readable[0, 0], held)
                good = start is not NULL and 0 <= payload.head.parent < count
                if not good:
                    break
                if rows.count == rows.room:
                    fault = LIMIT
                    break
                add_message(rows, <const Frame*>&view[payload.head.parent * sizeof(Frame)], &payload.head, start,
                            payload.head.start)
    if not good or n and not count:
        raise ValueError("a row points outside its buffer or its table")
    return lend(block, MESSAGE, None, fault), rows.bad, int(fault)
