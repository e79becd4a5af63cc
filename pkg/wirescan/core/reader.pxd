# The cursor: the one file that compares a length with what is left. Everything above it asks here.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from wirescan.core.fault cimport BAD_LENGTH, BAD_VARINT, Fault, OK, SHORT, TRUNCATED

cdef extern from "bits.h":
    # Short zig-zag varints, one after another in a word that begins `at` bytes before them: how they lie is learnt
    # (`used` is 0 where they are longer), and asked of each next word. Of each there is its half, and its sign as 0 or
    # all ones.
    ctypedef struct Shape:
        uint64_t sign[3]
        size_t used
    Shape unknown() noexcept nogil
    Shape learn(uint64_t word, unsigned int at, unsigned int count) noexcept nogil
    bint lies(uint64_t word, const Shape* shape) noexcept nogil
    uint64_t half(uint64_t word, const Shape* shape, int i) noexcept nogil
    # Where words of text end, among 64 bytes: spaces and tabs, line feeds; and the lowest bit that is set.
    ctypedef struct Gaps:
        uint64_t blank
        uint64_t line
    Gaps gaps(const uint8_t* at) noexcept nogil
    unsigned int lowest(uint64_t word) noexcept nogil
    # The groups of a varint, which are bytes of a word, put together.
    uint64_t groups(uint64_t word) noexcept nogil
    # A row, word by word; past the caches, or not.
    uint64_t beside(uint32_t first, uint32_t second) noexcept nogil
    void put(char* at, uint64_t word, bint past) noexcept nogil
    void settle() noexcept nogil
    # Bytes there will be read soon; the address may lie behind the buffer.
    void prefetch(const uint8_t* address) noexcept nogil

cdef extern from *:
    """
    #define TOPS 0x8080808080808080ull
    """
    const uint64_t TOPS             # the top bit of each byte

cdef struct Reader:
    const uint8_t* at
    const uint8_t* end


cdef inline size_t left(const Reader* r) noexcept nogil:
    return <size_t>(r.end - r.at)


cdef inline const uint8_t* take(Reader* r, size_t n) noexcept nogil:
    # Step over n bytes and return where they begin, or NULL where fewer are left.
    cdef const uint8_t* p = r.at
    if <size_t>(r.end - p) < n:
        return NULL
    r.at = p + n
    return p


cdef inline Fault enter(Reader* r, size_t prefix, int64_t length, Reader* body) noexcept nogil:
    # Step over a whole frame first (`prefix` bytes, then `length`), and give a window on its inside.
    if length < 0 or length > <int64_t>0xffffffff - <int64_t>prefix:
        return BAD_LENGTH
    if left(r) < prefix + <size_t>length:
        return SHORT
    body.at = r.at + prefix
    body.end = body.at + length
    r.at = body.end
    return OK


cdef inline Fault sized(Reader* r, const uint8_t* start, int32_t length,
                        uint32_t* at, int32_t* size) noexcept nogil:
    # A field whose length was just read: note its place from `start`, step over it. Negative is null.
    # Where the field does not fit nothing is noted, so that no row points outside its frame.
    cdef const uint8_t* p = r.at
    if length > 0 and take(r, <size_t>length) is NULL:
        return TRUNCATED
    at[0] = <uint32_t>(p - start)
    size[0] = length if length >= 0 else -1
    return OK


# Unaligned loads. Compilers turn each into one load and at most one byte swap.
cdef inline uint16_t be16(const uint8_t* p) noexcept nogil:
    return <uint16_t>((<uint32_t>p[0] << 8) | p[1])

cdef inline uint32_t be32(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]

cdef inline uint64_t be64(const uint8_t* p) noexcept nogil:
    return ((<uint64_t>p[0] << 56) | (<uint64_t>p[1] << 48) | (<uint64_t>p[2] << 40) | (<uint64_t>p[3] << 32)
            | (<uint64_t>p[4] << 24) | (<uint64_t>p[5] << 16) | (<uint64_t>p[6] << 8) | p[7])

cdef inline uint16_t le16(const uint8_t* p) noexcept nogil:
    return <uint16_t>((<uint32_t>p[1] << 8) | p[0])

cdef inline uint32_t le32(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[3] << 24) | (<uint32_t>p[2] << 16) | (<uint32_t>p[1] << 8) | p[0]

cdef inline uint64_t le64(const uint8_t* p) noexcept nogil:
    return ((<uint64_t>p[7] << 56) | (<uint64_t>p[6] << 48) | (<uint64_t>p[5] << 40) | (<uint64_t>p[4] << 32)
            | (<uint64_t>p[3] << 24) | (<uint64_t>p[2] << 16) | (<uint64_t>p[1] << 8) | p[0])


cdef inline Fault _varint(Reader* r, uint64_t* out, unsigned int last_shift, uint8_t last_byte) noexcept nogil:
    # Base-128, low group first. The byte at `last_shift` may not exceed `last_byte`, so no bit is lost.
    cdef const uint8_t* p = r.at
    cdef uint64_t value = 0
    cdef unsigned int shift = 0
    cdef uint8_t byte
    if p < r.end and p[0] < 0x80:
        out[0] = p[0]
        r.at = p + 1
        return OK
    while p < r.end:
        byte = p[0]
        if shift == last_shift and byte > last_byte:
            return BAD_VARINT
        value |= <uint64_t>(byte & 0x7f) << shift
        p += 1
        if byte < 0x80:
            out[0] = value
            r.at = p
            return OK
        shift += 7
    return TRUNCATED


cdef inline int64_t unzigzag(uint64_t value) noexcept nogil:
    return <int64_t>((value >> 1) ^ (0 - (value & 1)))


cdef inline Fault varint32(Reader* r, uint32_t* out) noexcept nogil:
    # At most five bytes and 32 bits.
    cdef uint64_t value = 0
    cdef Fault fault = _varint(r, &value, 28, 0x0f)
    out[0] = <uint32_t>value
    return fault

cdef inline Fault varint64(Reader* r, uint64_t* out) noexcept nogil:
    # At most ten bytes and 64 bits. Where so many are left, eight are taken as a word.
    cdef const uint8_t* p = r.at
    cdef uint64_t word, last
    if left(r) < 10 or p[0] < 0x80:
        return _varint(r, out, 63, 0x01)
    word = le64(p)
    last = ~word & TOPS                                     # the first of these bits is that of the last byte
    if last:
        out[0] = groups(word & (last ^ (last - 1)) & ~TOPS)
        r.at = p + (lowest(last) >> 3) + 1
        return OK
    if p[8] < 0x80:
        out[0] = groups(word & ~TOPS) | <uint64_t>p[8] << 56
        r.at = p + 9
        return OK
    out[0] = groups(word & ~TOPS) | <uint64_t>(p[8] & 0x7f) << 56 | <uint64_t>p[9] << 63
    r.at = p + 10
    return OK if p[9] < 2 else BAD_VARINT

cdef inline Fault zigzag32(Reader* r, int32_t* out) noexcept nogil:
    cdef uint64_t value = 0
    cdef Fault fault = _varint(r, &value, 28, 0x0f)
    out[0] = <int32_t>unzigzag(value)
    return fault

cdef inline Fault zigzag64(Reader* r, int64_t* out) noexcept nogil:
    cdef uint64_t value = 0
    cdef Fault fault = _varint(r, &value, 63, 0x01)
    out[0] = unzigzag(value)
    return fault
