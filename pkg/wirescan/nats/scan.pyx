# cython: boundscheck=False, wraparound=False
"""Scans the NATS client protocol, in both directions: messages, and the headers in them.

`formats.py` calls these functions. The wire format:

    INFO {json}
    CONNECT {json}
    PUB subject [reply] size CRLF payload
    HPUB subject [reply] headers size CRLF header block, payload
    SUB subject [queue] sid
    UNSUB sid [max]
    MSG subject sid [reply] size CRLF payload
    HMSG subject sid [reply] headers size CRLF header block, payload
    PING
    PONG
    +OK
    -ERR 'text'

Each message ends with CRLF. Control lines may end with LF alone. Letters of an operation may be
upper or lower case. One or more spaces or tabs separate words. Sizes are decimal: `headers` is the
size of the header block, and `size` is the size of block and payload together.

    header block    NATS/1.0 [status [description]] CRLF { name: value CRLF }* CRLF

The sizes alone say where a message ends. The scan never searches inside a payload.

Source: NATS documentation, "Client Protocol", and ADR-4 "NATS Message Headers"; nats-server for
what servers accept.
"""
import numpy as np

from wirescan.core cimport (
    Context, Fault, Head, NestedScan, Readable, Reader, Rows, SHORT, ScanState, int32_t, int64_t,
    open_frames, scan_buffer, scan_children, scan_frames, scan_spans, uint8_t, uint32_t, uint64_t)
from wirescan.core.loop import ANY as _ANY, HEAD as _HEAD, addresses, flat, lie_inside
from wirescan.nats.message cimport find_operation, open_block, read_header, read_message
from wirescan.nats.rows cimport CONNECT, Header, Message


cdef Fault read_guarded(Reader* r, void* out, const Context* context) noexcept nogil:
    # Like read_message, but the row of CONNECT does not say where the credentials are.
    cdef const uint8_t* start = r.at
    cdef Fault fault = read_message(r, out, context)
    cdef Message* row = <Message*>out
    if row.head.kind == CONNECT and not fault:
        row.payload_at = 0
        row.payload_size = -1
        row.head.body = <uint32_t>(r.at - start)
    return fault

cdef Fault run_messages(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Message), read_message, NULL)

cdef Fault run_guarded(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Message), read_guarded, NULL)

cdef Fault run_headers(const NestedScan* nested, Rows* rows) noexcept nogil:
    return scan_children(nested, rows, sizeof(Header), read_header, NULL)


cdef Message _message
cdef Header _header
MESSAGE = flat(np.asarray(<Message[:1]>&_message).dtype)
HEADER = flat(np.asarray(<Header[:1]>&_header).dtype)


def scan_stream(buffer, *, check, resync, limits, into=None, more=False, resume=None,
                credentials=False):
    """Return (rows of dtype MESSAGE, bad, fault, position) of one buffer.

    check is accepted for consistency and ignored: messages have no checksum. credentials: the rows
    say where the payload of CONNECT is. See `core.loop.scan_frames` for the other arguments.
    """
    return scan_frames(buffer, MESSAGE, run_messages if credentials else run_guarded, resync, more,
                       limits, into, resume)


def scan_streams(buffers, spans, *, check, resync, limits):
    """Return (rows of dtype MESSAGE, bad, faults, positions) of many spans of buffers.

    check is ignored. See `core.loop.scan_spans` for the other arguments.
    """
    return scan_spans(buffers, spans, MESSAGE, run_guarded, resync, limits)


def bytes_needed(held, at=0):
    """Return (size, at): the minimum size of the message that `held` begins with, in bytes.

    `at` is the number of bytes that are known to be before the end of the control line. A caller
    passes it back with the next, longer `held`. So each byte is searched once, however small the
    pieces are.
    """
    cdef const uint8_t[::1] view = held
    cdef size_t n = view.shape[0], first = at, i
    cdef const uint8_t* p = &view[0] if n else NULL
    cdef Reader r
    cdef Message row
    if n == 0:
        return 1, 0
    for i in range(first, n):
        if p[i] == b"\n":
            break
    else:
        return (n + 1, n) if find_operation(p, n) else (n, n)
    r = Reader(p, p + n)
    row.head.size = 0
    if read_message(&r, &row, NULL) == SHORT:
        return max(<size_t>row.head.size, n + 1), i
    return n, i


def child_spans(messages, buffers):
    """Return (spans, counts) of the rows of dtype MESSAGE that have headers or are bad.

    spans: array of dtype HEAD with the lines of each header block, or the whole block with its
    fault. counts: int32 array of ANY. Both are arguments of `open_headers`.

    Raises ValueError if a row points outside its buffer.
    """
    cdef Py_ssize_t i, n = len(messages), count = 0
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] readable
    cdef const Message* row
    cdef const uint8_t* block
    cdef size_t first, last
    cdef uint8_t fault
    cdef bint inside = True
    spans = np.empty(n, _HEAD)
    cdef Head[::1] span
    if messages.dtype != MESSAGE or not lie_inside(messages, buffers):
        raise ValueError("a row points outside its buffer")
    if n:
        view = np.ascontiguousarray(messages).view(np.uint8)
        readable = addresses(buffers)
        span = spans
        with nogil:
            for i in range(n):
                row = <const Message*>&view[i * sizeof(Message)]
                if row.header_count == 0 and not row.head.fault:
                    continue
                fault = row.head.fault
                first = 0
                last = row.head.size
                if not fault:
                    inside &= (row.headers_size >= 0
                               and <uint64_t>row.headers_at + <uint64_t>row.headers_size
                               <= row.head.size)
                    if not inside:
                        break
                    block = ((<const Readable*>&readable[row.head.buffer, 0]).at + row.head.start
                             + row.headers_at)
                    last = <size_t>row.headers_size
                    fault = open_block(block, last, &first, &last)
                    first = row.headers_at + first
                    last = row.headers_at + last
                span[count] = Head(row.head.start + <int64_t>first, <uint32_t>(last - first), 0,
                                   <int32_t>i, row.head.buffer, 0, fault)
                count += 1
        if not inside:
            raise ValueError("a header block is outside its message")
    return spans[:count], np.full(count, _ANY, np.int32)


def open_headers(messages, buffers, spans, counts, limits):
    """Return (rows of dtype HEADER, bad, fault) of spans in rows of dtype MESSAGE.

    See `core.loop.open_frames`.
    """
    return open_frames(messages, buffers, spans, counts, HEADER, run_headers, NULL, NULL, limits)
