# cython: boundscheck=False, wraparound=False
"""A format outside the package: netstrings (D. J. Bernstein, cr.yp.to/proto/netstrings.txt).

    size in decimal digits | ":" | that many bytes | ","

A size of more than one digit does not begin with a zero.
"""
import numpy as np

from wirescan.core cimport (
    Context, Fault, Head, NOT_A_FRAME, OK, Reader, Rows, SHORT, ScanState, SearchBudget, TRUNCATED,
    enter, int32_t, int64_t, scan_buffer, scan_frames, scan_spans, sized, uint8_t, uint32_t)
from wirescan.core.loop import flatten
from wirescan.core.text cimport is_digit, read_decimal, skip_digits

# The faults that only netstrings have. `FAULTS` in __init__.py names them.
cdef enum:
    LEADING_ZERO = 64                   # soft: the end of the frame is known
    LONG_SIZE = 192                     # hard: the end of the frame is not known

# The numbers of the column `content`. `Content` in __init__.py names them.
cdef enum:
    NOTHING = 0
    ASCII = 1
    BINARY = 2

cdef enum:
    MOST_DIGITS = 9

cdef struct Netstring:
    Head     head                       # every row begins with it
    uint32_t text_at                    # a pair of these names is a place: table.bytes(i, "text")
    int32_t  text_size
    uint32_t content
    uint32_t reserved                   # pads the row to whole words


cdef inline uint32_t classify(const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef uint32_t content = NOTHING if p == end else ASCII
    while p < end:
        if p[0] >= 128:
            return BINARY
        p += 1
    return content


cdef inline Fault read_netstring(Reader* r, void* out, const Context* context) noexcept nogil:
    cdef Netstring* row = <Netstring*>out
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p = skip_digits(start, r.end, MOST_DIGITS)
    cdef int64_t size = read_decimal(start, p, MOST_DIGITS)
    cdef Reader body
    cdef Fault fault
    if p == r.end:
        return SHORT                    # the buffer ends inside the frame: no error
    if p - start == MOST_DIGITS and is_digit(p[0]):
        return <Fault>LONG_SIZE
    if p == start or p[0] != 58:
        return NOT_A_FRAME              # where the next frame begins is not known
    fault = enter(r, p + 1 - start, size + 1, &body)
    if fault:
        return fault
    row.head.body = <uint32_t>(body.at - start)
    if (body.end - 1)[0] != 44:
        return TRUNCATED                # soft: r is after the frame
    if start[0] == 48 and p - start > 1:
        return <Fault>LEADING_ZERO
    row.content = classify(body.at, body.end - 1)
    return sized(&body, start, <int32_t>size, &row.text_at, &row.text_size)


cdef inline size_t probe_netstring(const uint8_t* at, const uint8_t* end, bint deep,
                                   SearchBudget* budget) noexcept nogil:
    cdef Reader r = Reader(at, end)
    cdef Netstring row                  # does a netstring begin here? If not, perhaps one byte on
    return 0 if read_netstring(&r, &row, NULL) == OK else 1


cdef Fault run(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Netstring), read_netstring, probe_netstring)

cdef Netstring _netstring
NETSTRING = flatten(np.asarray(<Netstring[:1]>&_netstring).dtype)


def scan_netstrings(buffer, check, resync, limits, into=None, more=False, resume=None):
    """(rows of dtype NETSTRING, bad, fault, offset); netstrings have no checksum to check."""
    return scan_frames(buffer, NETSTRING, run, resync, more, limits, into, resume)


def scan_streams(buffers, spans, check, resync, limits, more=False):
    """(rows, bad, faults, offsets) of many spans of buffers, such as TCP connections."""
    return scan_spans(buffers, spans, NETSTRING, run, resync, limits, more)
