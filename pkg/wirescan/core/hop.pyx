# cython: boundscheck=False, wraparound=False
"""From header to header: where frames begin that tell how long they are, and nothing read of what lies between."""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int descriptor, void* to, size_t size, int64_t offset)

cpdef enum:
    FOUND = 0                   # a frame begins there
    MORE = 1                    # its header is not in the page
    END = 2                     # no frame can begin there, or none has to be found behind it

cdef enum:
    HEADER = 64                 # bytes at most
    KINDS = 4


def hop(int descriptor, page, int64_t first, int64_t at, int64_t until, int64_t total, int64_t largest, sized):
    """(at, stop, state): the first frame from `until` on, where it ends, and FOUND; or where the hops came to, twice,
    and MORE or END.

    descriptor: of the file that headers are read from; -1: they are in `page`, bytes that begin at `first`. at: where a
    frame begins. total: bytes of the file. largest: bytes of a frame. sized: a `wirescan.walk.Sized`.
    """
    cdef const uint8_t[::1] view = page
    cdef int64_t header = sized.header, length_at = sized.length_at, overhead = sized.overhead, stop, kind = 0
    cdef int64_t kind_at = sized.kind_at, kinds = len(sized.smallest), i, held = view.shape[0]
    cdef int64_t smallest[KINDS]
    cdef uint8_t room[HEADER]
    cdef const uint8_t* p
    cdef int state = END
    if not (length_at + 4 <= header <= HEADER and kind_at < header and 0 < kinds <= KINDS and length_at >= 0):
        raise ValueError(f"no header of a frame: {sized}")
    for i in range(kinds):
        smallest[i] = sized.smallest[i]
    with nogil:
        while until < total and header <= total - at:
            if descriptor >= 0:
                if pread(descriptor, room, <size_t>header, at) < header:
                    break                       # the file is shorter by now
                p = room
            elif at < first or at - first > held - header:
                state = MORE
                break
            else:
                p = &view[at - first]
            if kind_at >= 0:
                kind = p[kind_at]
                if kind >= kinds:
                    break
            stop = (<int64_t>p[length_at] << 24 | <int64_t>p[length_at + 1] << 16 | <int64_t>p[length_at + 2] << 8
                    | <int64_t>p[length_at + 3])
            stop = at + overhead + <int32_t>stop
            if stop > total or stop - at < smallest[kind] or stop - at > largest:
                break
            if at >= until:
                state = FOUND
                break
            at = stop
    return at, stop if state == FOUND else at, state
