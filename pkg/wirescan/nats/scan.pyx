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
    BAD_LENGTH, Context, Fault, LIMIT, OK, Parents, Reader, Rows, SHORT, ScanState, add_each,
    begin_row, int32_t, is_inside, open_rows, place, scan_buffer, scan_frames, scan_spans, uint8_t,
    uint32_t)
from wirescan.core.loop import flatten
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


cdef Message _message
cdef Header _header
MESSAGE = flatten(np.asarray(<Message[:1]>&_message).dtype)
HEADER = flatten(np.asarray(<Header[:1]>&_header).dtype)


def scan_stream(buffer, *, check, resync, limits, into=None, more=False, resume=None,
                credentials=False):
    """Return (rows of dtype MESSAGE, bad, fault, position) of one buffer.

    check is accepted for consistency and ignored: messages have no checksum. credentials: the rows
    say where the payload of CONNECT is. See `core.loop.scan_frames` for the other arguments.
    """
    return scan_frames(buffer, MESSAGE, run_messages if credentials else run_guarded, resync, more,
                       limits, into, resume)


def scan_streams(buffers, spans, *, check, resync, limits, more=False):
    """Return (rows of dtype MESSAGE, bad, faults, positions) of many spans of buffers.

    check is ignored. See `core.loop.scan_spans` for the other arguments.
    """
    return scan_spans(buffers, spans, MESSAGE, run_guarded, resync, limits, more)


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


cdef inline Fault add_headers(Rows* rows, const void* outer, const uint8_t* start,
                              int32_t parent, const void* context) noexcept nogil:
    # The AddRows of headers: see core/loop.pxd. One bad row covers a bad message or a bad block.
    cdef const Message* message = <const Message*>outer
    cdef Reader r = Reader(start, start + message.head.size)
    cdef Fault fault = <Fault>message.head.fault
    cdef const uint8_t* line
    cdef size_t first, last
    cdef Header* row
    if not fault:
        if message.header_count == 0:
            return OK
        if (message.headers_size < 0
                or not is_inside(&message.head, message.headers_at, message.headers_size)):
            return BAD_LENGTH
        first = 0
        last = <size_t>message.headers_size
        r.at += message.headers_at
        fault = open_block(r.at, last, &first, &last)
        r = Reader(r.at + first, r.at + last)
    while fault or r.at < r.end:
        row = <Header*>begin_row(rows, sizeof(Header))
        if row is NULL:
            return LIMIT
        line = r.at
        if fault:
            r.at = r.end
        else:
            fault = read_header(&r, row)
        place(&row.head, start - message.head.start, line, r.at, parent, message.head.buffer,
              <uint8_t>fault)
        rows.count += 1
        rows.bad += fault != OK
        fault = OK
    return OK


cdef Fault run_headers(Parents* parents, Rows* rows) noexcept nogil:
    return add_each(parents, rows, add_headers)


def open_headers(messages, buffers, limits):
    """Return (rows of dtype HEADER, bad, fault): the header lines in rows of dtype MESSAGE.

    A bad message, or a bad header block, becomes one bad row. fault: LIMIT if the limits allow
    fewer rows.

    Raises TypeError for other rows, ValueError if a row points outside its buffer, and MemoryError.
    """
    if messages.dtype != MESSAGE:
        raise TypeError("open_headers takes rows of nats.messages")
    # A forged count cannot claim more rows than the message has bytes.
    counts = np.minimum(messages["header_count"], messages["size"])
    return open_rows(messages, buffers, HEADER, int(counts.sum(dtype=np.int64)) + 1, run_headers,
                     NULL, limits, counts)
