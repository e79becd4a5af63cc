# The cursor over a buffer. Kernels read through it, and it compares each length with the number of
# bytes left. Kernels with loops of their own, and resync probes, compare for themselves.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from wirescan.core.fault cimport BAD_LENGTH, BAD_VARINT, Fault, OK, SHORT, TRUNCATED

cdef extern from "bits.h":
    # The layout of up to three short zig-zag varints in a word. `learn` takes it from one word,
    # where the varints start at byte `at`; `matches` compares a later word with it. `used` is the
    # number of bytes up to the end of the last varint, or 0 where the varints are too long.
    # `extract` returns the half of varint i, and `sign[i]` is its sign: 0 or all ones.
    ctypedef struct VarintLayout:
        uint64_t sign[3]
        size_t used
    VarintLayout unknown() noexcept nogil
    VarintLayout learn(uint64_t word, unsigned int at, unsigned int count) noexcept nogil
    bint matches(uint64_t word, const VarintLayout* shape) noexcept nogil
    uint64_t extract(uint64_t word, const VarintLayout* shape, int i) noexcept nogil
    # Bitmaps of 64 bytes of text: spaces and tabs (`blank`), and line feeds (`line`).
    ctypedef struct Gaps:
        uint64_t blank
        uint64_t line
    Gaps gaps(const uint8_t* at) noexcept nogil
    # Returns the number of the lowest bit that is set, or 64 where none is.
    unsigned int lowest(uint64_t word) noexcept nogil
    # Joins the 7-bit groups of a varint that are the bytes of a word.
    uint64_t groups(uint64_t word) noexcept nogil
    # The same for the bytes that are in `mask` and not in `before`.
    uint64_t join_groups(uint64_t word, uint64_t before, uint64_t mask) noexcept nogil
    # The sign of a zig-zag code, all ones where it is negative. The code is halved.
    uint64_t take_sign(uint64_t* code) noexcept nogil
    # Stores of a row, word by word. With `bypass`, a store bypasses the caches.
    uint64_t pack_pair(uint32_t first, uint32_t second) noexcept nogil
    uint64_t pack_common(uint32_t parent, uint16_t buffer, uint8_t kind) noexcept nogil
    void store_word(char* at, uint64_t word, bint bypass) noexcept nogil
    void store_fence() noexcept nogil
    # Fills a row with zeros. If `size` is a constant, a few words are stored instead of a call.
    void clear_row(void* row, size_t size) noexcept nogil
    # The address may be outside the buffer: a prefetch does not fault.
    void prefetch(const uint8_t* address) noexcept nogil
    # Returns the condition. The compiler optimizes for the case that it does not hold.
    bint rarely(bint condition) noexcept nogil

cdef extern from "view.h":
    enum:
        VIEW_BYTES
    # Writes the view of a byte string, from whose start 16 bytes can be read.
    # `null` is all ones for a null, whose size becomes -1, or else 0. With PLACE_MASKS the view has
    # the place of a short string too.
    ctypedef struct ViewMask:
        pass
    const ViewMask* VIEW_MASKS
    const ViewMask* PLACE_MASKS
    void put_wide_view(char* out, const ViewMask* masks, const uint8_t* p, uint32_t used,
                       uint32_t null, uint32_t number, uint32_t offset) noexcept nogil
    # The same for bytes near `end`, the end of the readable bytes.
    void put_view(char* out, const uint8_t* p, const uint8_t* end, uint32_t used, uint32_t null,
                  uint32_t number, uint32_t offset) noexcept nogil

cdef extern from *:
    """
    #define TOPS 0x8080808080808080ull
    """
    const uint64_t TOPS             # the top bit of each byte

cdef struct Reader:
    const uint8_t* at
    const uint8_t* end


cdef inline size_t left(const Reader* r) noexcept nogil:
    # Return the number of bytes left.
    return <size_t>(r.end - r.at)


cdef inline const uint8_t* take(Reader* r, size_t n) noexcept nogil:
    # Step over n bytes and return the address of the first, or NULL where fewer are left.
    cdef const uint8_t* p = r.at
    if <size_t>(r.end - p) < n:
        return NULL
    r.at = p + n
    return p


cdef inline Fault enter(Reader* r, size_t prefix, int64_t length, Reader* body) noexcept nogil:
    # Step over a whole frame of `prefix + length` bytes, and set `body` to the bytes after the
    # prefix.
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
    # Step over a field whose length was just read, and store its place, counted from `start`.
    # A negative length is null. A field that does not fit stores nothing, so that no row points
    # outside its frame.
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
    return ((<uint64_t>p[0] << 56) | (<uint64_t>p[1] << 48)
            | (<uint64_t>p[2] << 40) | (<uint64_t>p[3] << 32)
            | (<uint64_t>p[4] << 24) | (<uint64_t>p[5] << 16)
            | (<uint64_t>p[6] << 8) | p[7])


cdef inline uint16_t le16(const uint8_t* p) noexcept nogil:
    return <uint16_t>((<uint32_t>p[1] << 8) | p[0])


cdef inline uint32_t le32(const uint8_t* p) noexcept nogil:
    return (<uint32_t>p[3] << 24) | (<uint32_t>p[2] << 16) | (<uint32_t>p[1] << 8) | p[0]


cdef inline uint64_t le64(const uint8_t* p) noexcept nogil:
    return ((<uint64_t>p[7] << 56) | (<uint64_t>p[6] << 48)
            | (<uint64_t>p[5] << 40) | (<uint64_t>p[4] << 32)
            | (<uint64_t>p[3] << 24) | (<uint64_t>p[2] << 16)
            | (<uint64_t>p[1] << 8) | p[0])


cdef inline Fault _varint(Reader* r, uint64_t* out, unsigned int last_shift,
                          uint8_t last_byte) noexcept nogil:
    # Read a base-128 varint, low group first. The byte at `last_shift` must not exceed `last_byte`,
    # so that no bit is lost.
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
    cdef uint64_t sign = take_sign(&value)
    return <int64_t>(value ^ sign)


cdef inline Fault varint32(Reader* r, uint32_t* out) noexcept nogil:
    # Read a varint of at most five bytes and 32 bits.
    cdef uint64_t value = 0
    cdef Fault fault = _varint(r, &value, 28, 0x0f)
    out[0] = <uint32_t>value
    return fault


cdef inline Fault varint64(Reader* r, uint64_t* out) noexcept nogil:
    # Read a varint of at most ten bytes and 64 bits. Where ten bytes are left, the first eight are
    # loaded as one word.
    cdef const uint8_t* p = r.at
    cdef uint64_t word, last
    if left(r) < 10 or p[0] < 0x80:
        return _varint(r, out, 63, 0x01)
    word = le64(p)
    last = ~word & TOPS                 # its lowest bit is the top bit of the varint's last byte
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
