"""CRC-32 and CRC-32C for the kernels and for Python, which has Adler-32 too: checksum.h holds the algorithms."""
cdef extern from "checksum.h":
    ctypedef struct crc_kind:
        pass
    ctypedef uint32_t (*crc_update)(const crc_kind*, uint32_t, const uint8_t*, size_t) noexcept nogil
    const int CRC_PATHS                 # how many there are
    void crc_prepare(crc_kind*, uint32_t polynomial)
    crc_update crc_path(int path)
    uint32_t adler32_update(uint32_t state, const uint8_t*, size_t) noexcept nogil

cdef crc_kind IEEE, CASTAGNOLI
crc_prepare(&IEEE, 0xedb88320)
crc_prepare(&CASTAGNOLI, 0x82f63b78)

NAMES = ("portable", "pclmul", "vpclmul")       # in the order of CRC_PORTABLE, CRC_PCLMUL, CRC_VPCLMUL
PATHS = tuple(NAMES[i] for i in range(CRC_PATHS) if crc_path(i) is not NULL)
cdef crc_update best = crc_path(NAMES.index(PATHS[-1]))


cdef uint32_t crc32_of(const uint8_t* p, size_t n) noexcept nogil:
    return ~best(&IEEE, 0xffffffff, p, n)


cdef uint32_t crc32c_of(const uint8_t* p, size_t n) noexcept nogil:
    return ~best(&CASTAGNOLI, 0xffffffff, p, n)


cdef object checksum(const crc_kind* kind, data, value, path):
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef uint32_t state = ~<uint32_t>value
    cdef crc_update update = best
    if path is not None:
        if path not in PATHS:
            raise ValueError(f"path must be one of {', '.join(PATHS)} on this processor, not {path!r}")
        update = crc_path(NAMES.index(path))
    if view.shape[0]:
        with nogil:
            state = update(kind, state, &view[0], <size_t>view.shape[0])
    return <uint32_t>~state


def crc32(data, value=0, *, path=None):
    """CRC-32 (IEEE 802.3) of a bytes-like object, going on from `value`; as `zlib.crc32`.

    `path` names one of `PATHS` instead of the fastest. Raises ValueError for a path that this
    processor lacks. The GIL is released.
    """
    return checksum(&IEEE, data, value, path)


def crc32c(data, value=0, *, path=None):
    """CRC-32C (Castagnoli; RFC 3720, appendix B.4) of a bytes-like object, going on from `value`.

    `path` as in `crc32`.
    """
    return checksum(&CASTAGNOLI, data, value, path)


def adler32(data, value=1):
    """Adler-32 (RFC 1950, 9) of a bytes-like object, going on from `value`; as `zlib.adler32`. The GIL is released."""
    cdef const uint8_t[::1] view = memoryview(data).cast("B")
    cdef uint32_t state = value
    if view.shape[0]:
        with nogil:
            state = adler32_update(state, &view[0], <size_t>view.shape[0])
    return state
