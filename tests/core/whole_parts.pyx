# cython: boundscheck=False, wraparound=False, language_level=3
"""A format whose kernel says which first bytes of a cut frame are whole parts of it.

    text    size in one digit | that many bytes
    list    "[" | texts | "]"

test_whole_parts.py compiles it.
"""
from libc.stdint cimport uint8_t
from wirescan.core.fault cimport Fault, NOT_A_FRAME, OK, SHORT
from wirescan.core.loop cimport (
    Context, Head, ScanState, SearchBudget, UNDECIDED, charge_budget, scan_buffer, scan_frames)
from wirescan.core.reader cimport Reader, left
from wirescan.core.rows cimport Rows

from wirescan.core.loop import HEAD


cdef inline Fault read_text(Reader* r) noexcept nogil:
    cdef size_t size
    if r.at == r.end:
        return SHORT
    if not c"0" <= r.at[0] <= c"9":
        return NOT_A_FRAME
    size = r.at[0] - c"0"
    if left(r) < 1 + size:
        return SHORT
    r.at += 1 + size
    return OK


cdef inline Fault read_frame(Reader* r, void* out, const Context* context) noexcept nogil:
    cdef Head* row = <Head*>out
    cdef const uint8_t* start = r.at
    cdef Fault fault
    if start[0] != c"[":
        return read_text(r)
    r.at += 1
    while r.at == r.end or r.at[0] != c"]":
        row.start = r.at - start
        fault = read_text(r)
        if fault:
            return fault
    r.at += 1
    return OK


cdef inline size_t probe_frame(const uint8_t* at, const uint8_t* end, bint deep,
                               SearchBudget* budget) noexcept nogil:
    # Only texts are searched for.
    cdef Reader r = Reader(at, end)
    cdef Fault fault = read_text(&r)
    if fault:
        return UNDECIDED if fault == SHORT else 1
    return 1 if deep and not charge_budget(budget, at, <size_t>(r.at - at)) else 0


cdef Fault run(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Head), read_frame, probe_frame)


def scan(buffer, more, limits):
    """Return (rows of dtype HEAD, bad, fault, position): see `core.loop.scan_frames`."""
    return scan_frames(buffer, HEAD, run, True, more, limits)
