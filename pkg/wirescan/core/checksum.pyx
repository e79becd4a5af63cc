"""CRC-32 and CRC-32C for kernels and Python, and Adler-32 for Python.

The algorithms are in checksum.h.
"""
cdef extern from "checksum.h":
    ctypedef struct crc_kind:
        pass
    ctypedef uint32_t (*crc_update)(const crc_kind*, uint32_t, const uint8_t*,
                                    size_t) noexcept nogil
    const int CRC_PATHS                 # number of paths
    void crc_prepare(crc_kind*, uint32_t polynomial)
    crc_update crc_path(int path)
    uint32_t adler32_update(uint32_t state, const uint8_t*, size_t) noexcept nogil

cdef crc_kind IEEE, CASTAGNOLI
crc_prepare(&IEEE, 0xedb88320)
crc_prepare(&CASTAGNOLI, 0x82f63b78)

# The names of CRC_PORTABLE, CRC_PCLMUL and CRC_VPCLMUL, in that order.
NAMES = ("portable", "pclmul", "vpclmul")
# The paths that this processor has, the fastest last.
PATHS = tuple(NAMES[i] for i in range(CRC_PATHS) if crc_path(i) is not NULL)
cdef crc_update best = crc_path(NAMES.index(PATHS[-1]))


cdef uint32_t crc32_of(const uint8_t* p, size_t n) noexcept nogil:
    return ~best(&IEEE, 0xffffffff, p, n)


cdef uint32_t extend_crc32(uint32_t value, const uint8_t* p, size_t n) noexcept nogil:
    return ~best(&IEEE, ~value, p, n)


cdef uint32_t crc32c_of(const uint8_t* p, size_t n) noexcept nogil:
    return ~best(&CASTAGNOLI, 0xffffffff, p, n)


cdef uint32_t extend_crc32c(uint32_t value, const uint8_t* p, size_t n) noexcept nogil:
    return ~best(&CASTAGNOLI, ~value, p, n)


cdef object checksum(const crc_kind* kind, data, value, path):
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef uint32_t state = ~<uint32_t>value
    cdef crc_update update = best
    if path is not None:
        if path not in PATHS:
            raise ValueError(
                f"path must be one of {', '.join(PATHS)} on this processor, not {path!r}")
        update = crc_path(NAMES.index(path))
    if view.shape[0]:
        with nogil:
            state = update(kind, state, &view[0], <size_t>view.shape[0])
    return <uint32_t>~state


def crc32(data, value=0, *, path=None):
    """Return the CRC-32 (IEEE 802.3) of a bytes-like object, as `zlib.crc32` does.

    value: the checksum of the bytes before these; 0 at the start. path: one of `PATHS`, instead of
    the fastest. The GIL is released. Raises ValueError for a path that this processor lacks,
    TypeError for an object that is not bytes-like or not contiguous.
    """
    return checksum(&IEEE, data, value, path)


def crc32c(data, value=0, *, path=None):
    """Return the CRC-32C (Castagnoli; RFC 3720, appendix B.4) of a bytes-like object.

    Arguments and errors are those of `crc32`.
    """
    return checksum(&CASTAGNOLI, data, value, path)


def adler32(data, value=1):
    """Return the Adler-32 (RFC 1950, section 9) of a bytes-like object, as `zlib.adler32` does.

    value: the checksum of the bytes before these; 1 at the start. The GIL is released.
    """
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef uint32_t state = value
    if view.shape[0]:
        with nogil:
            state = adler32_update(state, &view[0], <size_t>view.shape[0])
    return state
