# cython: boundscheck=False, wraparound=False
"""The NATS client protocol, both directions: messages, and the headers in them.

    INFO {json}                                     PUB subject [reply] size CRLF payload
    CONNECT {json}                                  HPUB subject [reply] headers size CRLF header block, payload
    SUB subject [queue] sid                         MSG subject sid [reply] size CRLF payload
    UNSUB sid [max]                                 HMSG subject sid [reply] headers size CRLF header block, payload
    PING    PONG    +OK    -ERR 'text'

Each ends with CRLF; control lines may end with LF alone. Operations have letters of either case, and between words are
one or more spaces or tabs. Sizes are decimal: `headers` of the block alone, `size` of block and payload.

    header block    NATS/1.0 [status [description]] CRLF { name: value CRLF }* CRLF

Messages are told apart by their sizes: nothing is ever searched for in a payload.
Source: NATS documentation, "Client Protocol", and ADR-4 "NATS Message Headers"; nats-server for what it takes.
"""
import numpy as np

from wirescan.core cimport (
    Fault, Head, Opening, Readable, Reader, Rows, SHORT, Top, int32_t, int64_t, open_all, open_frames, scan_frames,
    scan_spans, scan_top, uint8_t, uint32_t, uint64_t)
from wirescan.core.loop import ANY as _ANY, HEAD as _HEAD, addresses, flat, lie_inside
from wirescan.nats.message cimport open_block, operation, read_header, read_message


cdef Fault read_guarded(Reader* r, void* out, const void* parent) noexcept nogil:
    # As read_message, but where credentials are tells nothing.
    cdef const uint8_t* start = r.at
    cdef Fault fault = read_message(r, out, parent)
    cdef Message* row = <Message*>out
    if row.head.kind == CONNECT and not fault:
        row.payload_at, row.payload_size, row.head.body = 0, -1, <uint32_t>(r.at - start)
    return fault

cdef Fault run_messages(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Message), read_message, NULL)

cdef Fault run_guarded(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Message), read_guarded, NULL)

cdef Fault run_headers(const Opening* opening, Rows* rows) noexcept nogil:
    return open_all(opening, rows, sizeof(Header), read_header, NULL)


cdef Message _message
cdef Header _header
MESSAGE = flat(np.asarray(<Message[:1]>&_message).dtype)
HEADER = flat(np.asarray(<Header[:1]>&_header).dtype)


def scan_stream(buffer, check, resync, limits, into=None, more=False, credentials=False):
    """(rows of dtype MESSAGE, bad, fault, offset): see `core.loop.scan_frames`. credentials: tell where they are in
    CONNECT."""
    return scan_frames(buffer, MESSAGE, run_messages if credentials else run_guarded, resync, more, limits, into)


def scan_streams(buffers, spans, check, resync, limits):
    """(rows, bad, faults, offsets): the same for many spans of buffers: see `core.loop.scan_spans`."""
    return scan_spans(buffers, spans, MESSAGE, run_guarded, resync, limits)


def needed(held, at=0):
    """(bytes, at): how many bytes the message that `held` begins with has at the least, and how many of them have no
    end of the control line: these are looked at once, however small the pieces are that they come in.
    """
    cdef const uint8_t[::1] view = held
    cdef size_t n = view.shape[0], from_ = at, i
    cdef const uint8_t* p = &view[0] if n else NULL
    cdef Reader r
    cdef Message row
    if n == 0:
        return 1, 0
    for i in range(from_, n):
        if p[i] == b"\n":
            break
    else:
        return (n + 1, n) if operation(p, n) else (n, n)
    r = Reader(p, p + n)
    row.head.size = 0
    if read_message(&r, &row, NULL) == SHORT:
        return max(<size_t>row.head.size, n + 1), i
    return n, i


def claims(messages, buffers):
    """(spans, counts) of rows of dtype MESSAGE that have headers or are bad: array of dtype HEAD, the lines of each
    header block, or the whole block with its fault; int32 array of ANY. For `open_headers`.

    Raises ValueError where a row points outside its buffer."""
    cdef Py_ssize_t i, n = len(messages), found = 0
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] readable
    cdef const Message* row
    cdef size_t first, last
    cdef uint8_t fault
    cdef bint inside = True
    spans = np.empty(n, _HEAD)
    cdef Head[::1] span
    if messages.dtype != MESSAGE or not lie_inside(messages, buffers):
        raise ValueError("a row points outside its buffer")
    if n:
        view, readable, span = np.ascontiguousarray(messages).view(np.uint8), addresses(buffers), spans
        with nogil:
            for i in range(n):
                row = <const Message*>&view[i * sizeof(Message)]
                if row.header_count == 0 and not row.head.fault:
                    continue
                fault, first, last = row.head.fault, 0, row.head.size
                if not fault:
                    inside &= (row.headers_size >= 0
                               and <uint64_t>row.headers_at + <uint64_t>row.headers_size <= row.head.size)
                    if not inside:
                        break
                    last = <size_t>row.headers_size
                    fault = open_block((<const Readable*>&readable[row.head.buffer, 0]).at + row.head.start
                                       + row.headers_at, last, &first, &last)
                    first, last = row.headers_at + first, row.headers_at + last
                span[found] = Head(row.head.start + <int64_t>first, <uint32_t>(last - first), 0, <int32_t>i,
                                   row.head.buffer, 0, fault)
                found += 1
        if not inside:
            raise ValueError("a header block lies outside its message")
    return spans[:found], np.full(found, _ANY, np.int32)


def open_headers(messages, buffers, spans, counts, limits):
    """(rows of dtype HEADER, bad, fault) of the spans of rows of dtype MESSAGE: see `core.loop.open_frames`."""
    return open_frames(messages, buffers, spans, counts, HEADER, run_headers, NULL, NULL, limits)
