# cython: boundscheck=False, wraparound=False
"""Scan Thrift frames, and open their infos and messages. `thrift/formats.py` calls these functions.

The frames are those of the header transport (THeader) and of the older transports:

    header         length(4) 0f ff flags(2) seq(4) words(2)  header, 4 * words bytes  payload  mac?
    big header     "BIGF" length(8), then the same
    double header  length + 4 (4), then the same
    framed         length(4) message
    unframed       message
    HTTP           head, body: http.pxd
    TTHeader       length(4) 10 00: another protocol

    header         protocol  count { transform  size of the mac(1), of HMAC }*  { info }*
                   padding 00*
    info           id  count { size  key  size  value }*
                   id 1 is KEYVALUE, id 2 is PKEYVALUE; any other id ends the infos
    message        message.pxd; the struct in it: walk.pxd

Integers are big-endian; in the header they are varints. A length counts the bytes after it. An
unframed message has no length: it ends where its struct ends. The payload is a message, to which
the transforms were applied in their order.

Source: Apache Thrift, doc/specs/HeaderFormat.md; fbthrift, thrift/doc/HeaderFormat.md. For
anything that is in neither: THeader.cpp of fbthrift.
"""
import numpy as np

from libc.string cimport memchr, memcpy, memset
from wirescan.core cimport (
    BAD_CODEC, BAD_KIND, BAD_LENGTH, Fault, Head, LIMIT, OK, Parents, Readable, Reader, Rows, SHORT,
    ScanState, add_each, be32, begin_row, clear_row, int32_t, int64_t, is_inside, locate_frame,
    open_rows, place, scan_buffer, scan_frames, scan_spans, uint8_t, uint32_t, uint64_t, varint32)
from wirescan.core.loop cimport (
    RunScan, allocate_rows, begin_sink, count_bytes, end_sink, rows_to_array)
from wirescan.core.loop import addresses, find_ranges, flatten
from wirescan.core.rows cimport RowBlock, reserve_row
from wirescan.thrift.frame cimport (
    STRICT, probe_frame, read_frame, read_frame_any, read_frame_any_more, read_frame_more,
    read_frame_of, read_string)
from wirescan.thrift.http cimport (
    LONGEST_HEAD, UNTIL_CLOSE, is_http, read_chunk, read_head, skip_lines)
from wirescan.thrift.message cimport Begin, is_compact, read_begin
from wirescan.thrift.walk cimport Walk, begin_walk, skip
from wirescan.thrift.rows cimport (
    BINARY, CALL, COMPACT, FRAMED_BINARY, FRAMED_COMPACT, Field, Frame, HTTP, HTTP_CHUNKED, Info,
    Message, ONEWAY, Plain, UNFRAMED_BINARY, UNFRAMED_COMPACT)


cdef Fault run_frames(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Frame), read_frame, probe_frame)


cdef Fault run_frames_more(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Frame), read_frame_more, probe_frame)


cdef Fault run_frames_any(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Frame), read_frame_any, probe_frame)


cdef Fault run_frames_any_more(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Frame), read_frame_any_more, probe_frame)


cdef Frame _frame
cdef Info _info
cdef Plain _plain
cdef Message _message
cdef Field _field
FRAME = flatten(np.asarray(<Frame[:1]>&_frame).dtype)
INFO = flatten(np.asarray(<Info[:1]>&_info).dtype)
PLAIN = flatten(np.asarray(<Plain[:1]>&_plain).dtype)
MESSAGE = flatten(np.asarray(<Message[:1]>&_message).dtype)
FIELD = flatten(np.asarray(<Field[:1]>&_field).dtype)


def scan_stream(buffer, *, check, resync, limits, into=None, more=False, resume=None,
                versions=True):
    """Return (rows of dtype FRAME, bad, fault, position): see `core.loop.scan_frames`.

    versions: binary messages must have a version word.
    """
    cdef RunScan run = run_frames_more if more else run_frames
    if not versions:
        run = run_frames_any_more if more else run_frames_any
    return scan_frames(buffer, FRAME, run, resync, more, limits, into, resume)


def scan_streams(buffers, spans, *, check, resync, limits, more=False, versions=True):
    """Return (rows, bad, faults, positions) for many spans of buffers: `core.loop.scan_spans`."""
    cdef RunScan run = run_frames if versions else run_frames_any
    return scan_spans(buffers, spans, FRAME, run, resync, limits, more)


def bytes_needed(held, at=0, state=b"", versions=True):
    """Return (minimum size of the frame that `held` begins with, at, state).

    Lets `Stream` skip scans that cannot succeed. `at` and `state` are those of the previous result
    for the same frame. They let an unframed message and the chunks of HTTP be walked only once,
    however small the pieces are. versions: binary messages must have a version word.
    """
    cdef const uint8_t[::1] view = held
    cdef int64_t n = view.shape[0]
    cdef int64_t position = at
    cdef const uint8_t* p = &view[0] if n else NULL
    cdef Reader r = Reader(p, p + n)
    cdef Frame row
    cdef bint compact
    if n < 4:
        return 4, 0, b""
    if is_http(p):
        return count_http_bytes_needed(p, n, position, state)
    compact = is_compact(p[0], p[1])
    # Of the other kinds, only unframed messages return a position to continue from.
    if not (compact or be32(p) >> 16 == STRICT or position):
        memset(&row, 0, sizeof(Frame))
        if read_frame_of(&r, &row, False, versions, NULL) != SHORT:
            return n, 0, b""
        if row.head.kind != UNFRAMED_BINARY:
            return max(n + 1, <int64_t>row.head.size), 0, b""
    return count_unframed_bytes_needed(p, n, position, state, compact)


cdef tuple count_unframed_bytes_needed(
        const uint8_t* p, int64_t n, int64_t at, state, bint compact):
    # `state` is a `Walk` that was interrupted at the position `at`.
    cdef const uint8_t[::1] saved
    cdef Reader r = Reader(p + at, p + n)
    cdef Begin begin
    cdef Walk walk
    cdef int64_t position
    cdef Fault fault
    if at == 0:
        fault = read_begin(&r, compact, &begin)
        if fault:
            return (r.at - p + begin.needed if begin.needed else n), 0, b""
        memset(&walk, 0, sizeof(Walk))          # all of it is returned
        begin_walk(&walk, compact, begin.version)
    else:
        saved = state
        memcpy(&walk, &saved[0], sizeof(Walk))
    fault = skip(&walk, &r, 0)
    if fault and not walk.needed:
        return n, 0, b""
    position = r.at - p
    if fault:
        return position + walk.needed, position, (<const char*>&walk)[:sizeof(Walk)]
    return position, 0, b""


cdef tuple count_http_bytes_needed(const uint8_t* p, int64_t n, int64_t at, state):
    # `state` is b"" in the head, b"rest" in a body that ends with the stream, b"chunks" between
    # chunks, and the position of the trailer, in digits, inside the trailer.
    cdef Reader r = Reader(p + at, p + n)
    cdef const uint8_t* data = NULL
    cdef int64_t length = 0
    cdef int64_t needed = 0
    cdef bint chunked = True
    cdef Fault fault
    if state == b"rest":
        return n + 1, 0, state
    if state == b"":
        if skip_lines(&r):
            return n + (n <= LONGEST_HEAD), r.at - p, b""
        r.at = p
        fault = read_head(&r, &length, &chunked)
        if fault:
            return n, 0, b""
        if not chunked:
            if length == UNTIL_CLOSE:
                return n + 1, 0, b"rest"
            return r.at - p + length, 0, b""
    length = not state.isdigit()
    while length:
        fault = read_chunk(&r, &data, &length, &needed)
        if fault == SHORT:
            return r.at - p + needed, r.at - p, b"chunks"
        if fault:
            return n, 0, b""
    if not state.isdigit():
        state = b"%d" % (r.at - p)              # the trailer begins here
    if skip_lines(&r):
        return n + (n - int(state) <= LONGEST_HEAD), r.at - p, state
    return r.at - p, 0, b""


cdef inline Fault read_pair(Reader* r, const uint8_t* start, Info* row) noexcept nogil:
    cdef uint32_t key = 0
    cdef uint32_t value = 0
    cdef Fault fault = read_string(r, &key)
    if not fault:
        row.key_at = <uint32_t>(r.at - start) - key
        row.key_size = <int32_t>key
        fault = read_string(r, &value)
    if not fault:
        row.value_at = <uint32_t>(r.at - start) - value
        row.value_size = <int32_t>value
        row.head.body = row.value_at
    return fault


cdef inline Fault add_infos(Rows* rows, const void* outer, const uint8_t* start,
                            int32_t parent, const void* context) noexcept nogil:
    # Adds a row for each pair of a frame. This is an AddRows.
    cdef const Frame* frame = <const Frame*>outer
    cdef const uint8_t* base = start - frame.head.start
    cdef const uint8_t* infos = start + frame.infos_at
    cdef Reader r = Reader(infos, infos + max(frame.infos_size, 0))
    cdef Info* row
    cdef uint32_t id = 0
    cdef uint32_t count = 0
    cdef Fault fault = OK
    if not is_inside(&frame.head, frame.infos_at, frame.infos_size):
        return BAD_LENGTH
    if frame.head.fault != OK and frame.head.fault != BAD_CODEC:    # these infos cannot be read
        r = Reader(start, start + frame.head.size)
        fault = <Fault>frame.head.fault
        count = 1
    elif frame.info_count == 0:
        return OK
    while True:
        while count == 0:
            if r.at == r.end:
                return OK
            fault = varint32(&r, &id)
            if not fault:
                fault = varint32(&r, &count)
            if fault:                           # only rows that no scan made
                count = 1
        row = <Info*>begin_row(rows, sizeof(Info))
        if row is NULL:
            return LIMIT
        start = r.at
        if not fault:
            row.head.kind = <uint8_t>id
            fault = read_pair(&r, start, row)
        if fault:
            clear_row(row, sizeof(Info))
            r.at = r.end
            count = 1
            rows.bad += 1
        place(&row.head, base, start, r.at, parent, frame.head.buffer, <uint8_t>fault)
        rows.count += 1
        count -= 1
        fault = OK


cdef Fault run_infos(Parents* parents, Rows* rows) noexcept nogil:
    return add_each(parents, rows, add_infos)


def open_infos(frames, buffers, limits):
    """Return (rows of dtype INFO, bad, fault): the pairs in rows of dtype FRAME.

    Rows are in the order of the wire. A bad frame is one bad row, unless only its transforms are
    unknown. The fault is LIMIT where there are more pairs than the limits allow.

    Raises ValueError where a row points outside its buffer, MemoryError.
    """
    cdef Py_ssize_t i
    cdef Py_ssize_t n = len(frames)
    cdef const uint8_t[::1] view
    cdef const Frame* frame
    cdef size_t expected = 0
    if frames.dtype != FRAME:
        raise TypeError("open_infos takes rows of thrift.frames")
    counts = np.empty(n, np.int64)
    cdef int64_t[::1] count = counts
    if n:
        view = np.ascontiguousarray(frames).view(np.uint8)
        with nogil:
            for i in range(n):
                frame = <const Frame*>&view[i * sizeof(Frame)]
                count[i] = min(frame.info_count, frame.head.size >> 1) + (frame.head.fault != OK)
                expected += <size_t>count[i]
    return open_rows(frames, buffers, INFO, expected, run_infos, NULL, limits, counts)


# -------------------------------------------------------------------------------------- messages

cdef inline int find_protocol(const Frame* frame, const uint8_t* p, uint32_t size) noexcept nogil:
    # Returns BINARY or COMPACT, or -1 for another protocol.
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


cdef inline Fault read_message(const uint8_t* p, uint32_t size, const Frame* frame,
                               Message* row) noexcept nogil:
    # The row comes zeroed.
    cdef Reader r = Reader(p, p + size)
    cdef Begin begin
    cdef const uint8_t* colon = NULL
    cdef int protocol = find_protocol(frame, p, size)
    cdef Fault fault
    if protocol < 0:
        return BAD_KIND
    fault = read_begin(&r, protocol == COMPACT, &begin)
    if fault:
        return fault
    row.method_at = <uint32_t>(begin.name - p)
    row.method_size = <int32_t>begin.name_size
    row.service_size = -1
    if begin.name_size and (begin.type == CALL or begin.type == ONEWAY):
        colon = <const uint8_t*>memchr(begin.name, c":", begin.name_size)
        if colon is not NULL:
            row.service_at = row.method_at
            row.service_size = <int32_t>(colon - begin.name)
            row.method_at += <uint32_t>row.service_size + 1
            row.method_size -= row.service_size + 1
    row.head.kind = <uint8_t>begin.type
    row.seqid = begin.seqid
    row.protocol = begin.protocol
    row.version = begin.version
    row.strict = begin.strict
    row.arguments_at = <uint32_t>(r.at - p)
    row.head.body = row.arguments_at
    row.arguments_size = <int32_t>(r.end - r.at)
    return OK


cdef inline void add_message(Rows* rows, const Frame* frame, const Head* span, const uint8_t* p,
                             int64_t start) noexcept nogil:
    cdef Message* row = <Message*>rows.at + rows.count
    cdef uint8_t fault = span.fault
    clear_row(row, sizeof(Message))
    if not fault:
        fault = <uint8_t>read_message(p, span.size, frame, row)
        if fault:
            clear_row(row, sizeof(Message))
    row.head.start = start
    row.head.size = span.size
    row.head.parent = span.parent
    row.head.buffer = span.buffer
    row.head.fault = fault
    rows.bad += fault != OK
    rows.count += 1


cdef inline bint is_packed(const Frame* frame) noexcept nogil:
    # Return whether a payload has transforms or chunks.
    return frame.transform_count or frame.head.kind == HTTP_CHUNKED


cdef bint has_packed(frames) except *:
    # Return whether the payload of any frame has transforms or chunks.
    cdef const uint8_t[::1] view = np.ascontiguousarray(frames).view(np.uint8)
    cdef Py_ssize_t i, n = len(frames)
    for i in range(n):
        if is_packed(<const Frame*>&view[i * sizeof(Frame)]):
            return True
    return False


def open_messages(frames, buffers, limits, writer=None):
    """Return (rows of dtype MESSAGE, bad, fault): the messages in rows of dtype FRAME.

    A frame has a row where it is bad or its payload is not empty. Messages are read in place. The
    fault is LIMIT where there are more messages than the limits allow. Returns None where a
    payload has transforms or chunks, which must be undone first.

    writer: ColumnWriter that takes the rows instead. If the result is None, it has none.

    Raises ValueError where a row points outside its buffer, MemoryError.
    """
    cdef Py_ssize_t i
    cdef Py_ssize_t n = len(frames)
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] readable
    cdef const Frame* frame
    cdef const uint8_t* start
    cdef Head span
    cdef size_t buffer_count = len(buffers)
    cdef bint good = True
    cdef bint packed = False
    cdef Fault fault = OK
    if frames.dtype != FRAME:
        raise TypeError("open_messages takes rows of thrift.frames")
    if writer is not None and has_packed(frames):
        return None
    cdef RowBlock block = begin_messages(frames, buffers, limits, writer)
    cdef Rows* rows = &block.rows
    if n:
        view = np.ascontiguousarray(frames).view(np.uint8)
        readable = addresses(buffers)
        with nogil:
            for i in range(n):
                frame = <const Frame*>&view[i * sizeof(Frame)]
                span = frame.head
                start = locate_frame(&span, <const Readable*>&readable[0, 0], buffer_count)
                good = start is not NULL and is_inside(&span, frame.payload_at, frame.payload_size)
                packed = is_packed(frame)
                if packed or not good:
                    break
                span.parent = <int32_t>i
                if not span.fault:
                    if frame.payload_size <= 0:         # an empty payload holds no message
                        continue
                    start += frame.payload_at
                    span.start += frame.payload_at
                    span.size = <uint32_t>frame.payload_size
                if not reserve_row(rows):
                    fault = LIMIT
                    break
                add_message(rows, frame, &span, start, span.start)
    if not good:
        raise ValueError(f"row {i} points outside its buffer")
    if packed:
        return None
    if writer is not None:
        end_sink(writer, block, fault)
    return rows_to_array(block, MESSAGE, None, fault), rows.bad, int(fault)


cdef RowBlock begin_messages(rows, buffers, limits, writer):
    # Return memory for the messages in frames or payloads, at most one in each.
    if writer is None:
        return allocate_rows(MESSAGE, len(rows), limits, None, count_bytes(buffers))
    return begin_sink(writer, MESSAGE, limits, buffers, find_ranges(rows, buffers), len(rows))


def open_plain(frames, plain, buffers, limits, writer=None):
    """Return (rows of dtype MESSAGE, bad, fault): the messages in rows of dtype PLAIN.

    frames: the rows of dtype FRAME that column `parent` of `plain` names. A payload has a row where
    it is bad or not empty. The fault is LIMIT where there are more messages than the limits allow.

    writer: ColumnWriter that takes the rows instead.

    Raises ValueError where a row points outside its buffer or names no frame, MemoryError.
    """
    cdef Py_ssize_t i
    cdef Py_ssize_t n = len(plain)
    cdef Py_ssize_t count = len(frames)
    cdef const uint8_t[::1] view
    cdef const uint8_t[::1] plain_view
    cdef const uint64_t[:, ::1] readable
    cdef const Plain* payload
    cdef const Frame* frame
    cdef const uint8_t* start
    cdef size_t buffer_count = len(buffers)
    cdef bint good = True
    cdef Fault fault = OK
    if frames.dtype != FRAME or plain.dtype != PLAIN:
        raise TypeError("open_plain takes rows of thrift.frames and rows of thrift.plain")
    cdef RowBlock block = begin_messages(plain, buffers, limits, writer)
    cdef Rows* rows = &block.rows
    if n and count:
        view = np.ascontiguousarray(frames).view(np.uint8)
        readable = addresses(buffers)
        plain_view = np.ascontiguousarray(plain).view(np.uint8)
        with nogil:
            for i in range(n):
                payload = <const Plain*>&plain_view[i * sizeof(Plain)]
                start = locate_frame(&payload.head, <const Readable*>&readable[0, 0], buffer_count)
                good = start is not NULL and 0 <= payload.head.parent < count
                if not good:
                    break
                if payload.head.size == 0 and not payload.head.fault:
                    continue
                if not reserve_row(rows):
                    fault = LIMIT
                    break
                frame = <const Frame*>&view[payload.head.parent * sizeof(Frame)]
                add_message(rows, frame, &payload.head, start, payload.head.start)
    if not good or n and not count:
        raise ValueError("a row points outside its buffer or its table")
    if writer is not None:
        end_sink(writer, block, fault)
    return rows_to_array(block, MESSAGE, None, fault), rows.bad, int(fault)
