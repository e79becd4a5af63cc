# cython: boundscheck=False, wraparound=False
"""Search for frame boundaries from header to header, without reading the bytes between headers."""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int descriptor, void* to, size_t size, int64_t offset)

cpdef enum:
    FOUND = 0                   # a frame begins at the position
    MORE = 1                    # the header at the position is not in the page
    END = 2                     # no frame can begin at the position, or none is wanted after it

cdef enum:
    HEADER = 64                 # maximum bytes in a header
    KINDS = 4                   # maximum number of kinds


def hop(int descriptor, page, int64_t first, int64_t at, int64_t until, int64_t total,
        int64_t largest, sized):
    """Return (start, stop, state) for the first frame that begins at `until` or later.

    start, stop: its byte positions, with state FOUND. Otherwise both are the position that was
    reached, with state MORE or END.

    descriptor: the file to read headers from; -1 where they are in `page`.
    page: bytes of the file from position `first` on.
    at: position of a frame, from which the search starts.
    total: bytes in the file. largest: maximum bytes in a frame.
    sized: a `wirescan.files.boundaries.LengthPrefix`.
    Raises ValueError for a `sized` that describes no header.
    """
    cdef const uint8_t[::1] view = page
    cdef int64_t header = sized.header, length_at = sized.length_at, overhead = sized.overhead
    cdef int64_t kind_at = sized.kind_at, kinds = len(sized.smallest), kind = 0
    cdef int64_t stop, i, held = view.shape[0]
    cdef int64_t smallest[KINDS]
    cdef uint8_t copy[HEADER]
    cdef const uint8_t* p
    cdef int state = END
    if not (length_at + 4 <= header <= HEADER and kind_at < header and 0 < kinds <= KINDS
            and length_at >= 0):
        raise ValueError(f"no header of a frame: {sized}; it must hold its length and its kind, "
                         f"in at most {HEADER} bytes, with from 1 to {KINDS} smallest sizes")
    for i in range(kinds):
        smallest[i] = sized.smallest[i]
    with nogil:
        while until < total and header <= total - at:
            if descriptor >= 0:
                if pread(descriptor, copy, <size_t>header, at) < header:
                    break                       # the file became shorter
                p = copy
            elif at < first or at - first > held - header:
                state = MORE
                break
            else:
                p = &view[at - first]
            if kind_at >= 0:
                kind = p[kind_at]
                if kind >= kinds:
                    break
            stop = (<int64_t>p[length_at] << 24 | <int64_t>p[length_at + 1] << 16
                    | <int64_t>p[length_at + 2] << 8 | <int64_t>p[length_at + 3])
            stop = at + overhead + <int32_t>stop
            if stop > total or stop - at < smallest[kind] or stop - at > largest:
                break
            if at >= until:
                state = FOUND
                break
            at = stop
    return at, stop if state == FOUND else at, state
