# Kernels that read one Thrift frame of any kind. scan.pyx draws the frames.
from libc.string cimport memset
from wirescan.core cimport (
    BAD_CODEC, BAD_COUNT, BAD_FIELD, BAD_HEADER, BAD_LENGTH, Context, Fault, Head, LIKELY,
    NOT_A_FRAME, OK, Reader, SHORT, SearchBudget, TRUNCATED, UNDECIDED, be16, be32, be64,
    charge_budget, charge_walk, int32_t, int64_t, left, may_walk, take, uint8_t, uint16_t,
    uint32_t, uint64_t, varint32)
from wirescan.thrift.http cimport is_http, read_http
from wirescan.thrift.message cimport Begin, is_compact, is_type, read_begin
from wirescan.thrift.rows cimport (
    BIG_HEADER, BINARY, COMPACT, DOUBLE_HEADER, FIXED, FRAMED_BINARY, FRAMED_COMPACT, Frame, HEADER,
    HMAC, HTTP, KEYVALUE, LARGEST_LENGTH, PKEYVALUE, TTHEADER, UNFRAMED_BINARY,
    UNFRAMED_COMPACT)
from wirescan.thrift.walk cimport Walk, begin_walk, skip

cdef enum:
    MAGIC = 0x0fff
    TTHEADER_MAGIC = 0x1000
    STRICT = 0x8001
    BIGF = 0x42494746
    PREFIX_SIZE = 8             # bytes that identify most kinds
    # The longest method name of an unframed message without a version. A longer one is other data.
    LONGEST_NAME = 32767
    SHORTEST_MESSAGE = 12       # bytes of a strict binary message before its struct
    # Bit set of the transforms that wirescan can undo: 0 none, 1 zlib, 2 HMAC, 3 Snappy, 5 zstd,
    # 6 LZ4, and 8 to 13, which are further levels of 1, 5 and 6.
    SUPPORTED_TRANSFORMS = 0x3f6f


cdef inline Fault read_string(Reader* r, uint32_t* size) noexcept nogil:
    # Leaves r after the string.
    cdef Fault fault = varint32(r, size)
    if fault:
        return fault
    return OK if take(r, size[0]) is not NULL else TRUNCATED


cdef inline Fault read_infos(Reader* r, Frame* row, const uint8_t* start) noexcept nogil:
    # Steps over pairs up to an id that ends them: 0 (padding) or an unknown id.
    cdef const uint8_t* mark
    cdef uint32_t id = 0
    cdef uint32_t count = 0
    cdef uint32_t size = 0
    cdef int64_t padding
    cdef Fault fault
    row.infos_at = <uint32_t>(r.at - start)
    while True:
        mark = r.at
        if mark == r.end:
            break
        fault = varint32(r, &id)
        if fault:
            return fault
        if id != KEYVALUE and id != PKEYVALUE:
            if id == 0:
                padding = r.end - mark
                row.padding = <uint8_t>min(padding, <int64_t>255)
            break
        fault = varint32(r, &count)
        if fault:
            return fault
        if <uint64_t>2 * count > left(r):
            return BAD_COUNT
        row.info_count += count
        while count:
            fault = read_string(r, &size)
            if not fault:
                fault = read_string(r, &size)
            if fault:
                return fault
            count -= 1
    row.infos_size = <int32_t>(mark - start) - <int32_t>row.infos_at
    return OK


cdef inline Fault read_transforms(Reader* r, Frame* row, uint32_t count) noexcept nogil:
    # Reads all transforms. Returns BAD_CODEC where one of them cannot be undone.
    cdef uint32_t id = 0
    cdef uint32_t i
    cdef const uint8_t* p
    cdef Fault fault
    cdef Fault codec_fault = OK
    cdef bint signed_already = False
    for i in range(count):
        fault = varint32(r, &id)
        if fault:
            return fault
        if id > 0xffff:
            return BAD_FIELD
        if i == 0:
            row.transform_0 = <uint16_t>id
        elif i == 1:
            row.transform_1 = <uint16_t>id
        elif i == 2:
            row.transform_2 = <uint16_t>id
        elif i == 3:
            row.transform_3 = <uint16_t>id
        if id == HMAC:
            p = take(r, 1)
            if p is NULL:
                return TRUNCATED
            if signed_already:
                return BAD_HEADER
            row.mac_size = p[0]
            signed_already = True
        elif id >= 14 or not SUPPORTED_TRANSFORMS >> id & 1:
            codec_fault = BAD_CODEC
    return codec_fault


cdef inline Fault read_header(const uint8_t* start, size_t at, const uint8_t* end,
                              Frame* row) noexcept nogil:
    # Reads from the magic number, `at` bytes after the frame's start, to the frame's end.
    cdef const uint8_t* p = start + at
    cdef Reader r
    cdef uint32_t number = 0
    cdef Fault fault
    cdef Fault codec_fault = OK
    if end - p < FIXED:
        return TRUNCATED
    row.flags = be16(p + 2)
    row.seq = be32(p + 4)
    row.header_words = be16(p + 8)
    r = Reader(p + FIXED, p + FIXED + 4 * <size_t>row.header_words)
    if 4 * <int64_t>row.header_words > end - r.at:
        return BAD_HEADER
    if r.at == r.end:
        return TRUNCATED
    fault = varint32(&r, &number)
    if fault:
        return fault
    if number > 255:
        return BAD_FIELD
    row.protocol_id = <uint8_t>number
    fault = varint32(&r, &number)
    if fault:
        return fault
    if number:
        if number > left(&r) or number > 255:
            return BAD_COUNT
        row.transform_count = <uint8_t>number
        codec_fault = read_transforms(&r, row, number)
        if codec_fault and codec_fault != BAD_CODEC:
            return codec_fault
    fault = read_infos(&r, row, start)
    if fault:
        return fault
    if end - r.end < row.mac_size:
        return BAD_HEADER
    row.payload_at = <uint32_t>(r.end - start)
    row.head.body = row.payload_at
    row.payload_size = <int32_t>(end - r.end - row.mac_size)
    return codec_fault


cdef inline Fault read_header_frame(Reader* r, Frame* row, uint8_t kind, size_t prefix,
                                    uint64_t length, size_t magic_at) noexcept nogil:
    # Reads a frame of `prefix` + `length` bytes with a header.
    cdef const uint8_t* start = r.at
    cdef Fault fault
    row.head.kind = kind
    if length > <uint64_t>0x7fffffff:
        return BAD_LENGTH                       # a place's size is an int32
    if left(r) < prefix + length:
        row.head.size = <uint32_t>(prefix + length)
        return SHORT
    r.at = start + prefix + length
    fault = read_header(start, magic_at, r.at, row)
    if fault == BAD_CODEC:                      # the length and all columns are right
        row.head.fault = BAD_CODEC
        return OK
    if fault:
        memset(<char*>row + sizeof(Head), 0, sizeof(Frame) - sizeof(Head))
    return fault


cdef inline Fault read_message_frame(Reader* r, Frame* row, uint8_t kind,
                                     uint32_t length) noexcept nogil:
    # Reads a length and a message of `length` bytes. The payload of a TTHEADER is not read.
    row.head.kind = kind
    if length > 0x7fffffff:
        return BAD_LENGTH
    if left(r) < 4 + <size_t>length:
        row.head.size = 4 + length
        return SHORT
    row.head.body = 4
    row.infos_size = -1
    row.payload_size = -1
    if kind != TTHEADER:
        row.payload_at = 4
        row.payload_size = <int32_t>length
        row.protocol_id = COMPACT if kind == FRAMED_COMPACT else BINARY
    r.at += 4 + <size_t>length
    return OK


cdef inline Fault read_unframed(Reader* r, Frame* row, uint8_t kind) noexcept nogil:
    # The whole message must be walked to find its end.
    cdef const uint8_t* start = r.at
    cdef Begin begin
    cdef Walk walk
    cdef bint compact = kind == UNFRAMED_COMPACT
    cdef int64_t needed
    cdef Fault fault = read_begin(r, compact, &begin)
    row.head.kind = kind
    needed = begin.needed
    if not fault:
        begin_walk(&walk, compact, begin.version)
        fault = skip(&walk, r, 0)
        needed = walk.needed
    if fault:
        if not needed:
            return BAD_LENGTH
        row.head.size = <uint32_t>min(r.at - start + needed, <int64_t>0xffffffff)
        return SHORT
    if r.at - start > <int64_t>0x7fffffff:
        return BAD_LENGTH
    row.payload_size = <int32_t>(r.at - start)
    row.infos_size = -1
    row.protocol_id = COMPACT if compact else BINARY
    return OK


cdef inline Fault read_unbounded(Reader* r, Frame* row, uint8_t kind, bint is_final,
                                 SearchBudget* budget) noexcept nogil:
    # Reads a frame without a length. Such a candidate may span any bytes, other frames included.
    # Those frames are found when the candidate fails, so each failure is charged to the budget.
    cdef const uint8_t* start = r.at
    cdef Fault fault
    if budget is not NULL and not may_walk(budget, start):
        return NOT_A_FRAME
    fault = read_http(r, row, is_final) if kind == HTTP else read_unframed(r, row, kind)
    if fault and budget is not NULL:
        charge_walk(budget, start, <uint64_t>(r.at - start))
    return fault


cdef inline Fault read_versionless(Reader* r, Frame* row, SearchBudget* budget) noexcept nogil:
    # Reads a binary message without a version word, framed or not.
    # The byte after its name must be a message type.
    cdef const uint8_t* p = r.at
    cdef size_t available = left(r)
    cdef uint32_t length = be32(p)
    cdef uint32_t size
    if available < PREFIX_SIZE:
        return SHORT
    size = be32(p + 4)
    if length <= LARGEST_LENGTH and <int64_t>size <= <int64_t>length - 10:
        if available < 9 + <size_t>size:
            row.head.size = 4 + length
            return SHORT
        if is_type(p[8 + size]):
            return read_message_frame(r, row, FRAMED_BINARY, length)
    if length <= LONGEST_NAME:
        if available < 5 + <size_t>length:
            return SHORT
        if is_type(p[4 + length]):
            return read_unbounded(r, row, UNFRAMED_BINARY, True, budget)
    return NOT_A_FRAME


cdef inline Fault read_frame_of(Reader* r, Frame* row, bint is_final, bint versions,
                                SearchBudget* budget) noexcept nogil:
    # is_final: no bytes follow those in r.
    # versions: binary messages must have a version word.
    # budget: that of the scan, or NULL.
    cdef const uint8_t* p = r.at
    cdef size_t available = left(r)
    cdef uint32_t word
    cdef uint32_t length
    if available < 4:
        return SHORT
    length = be32(p)
    if length > LARGEST_LENGTH:
        if length >> 16 == STRICT:
            return read_unbounded(r, row, UNFRAMED_BINARY, is_final, budget)
        if is_compact(p[0], p[1]):
            return read_unbounded(r, row, UNFRAMED_COMPACT, is_final, budget)
        if length == BIGF:
            if available < 14:
                return SHORT
            if be16(p + 12) != MAGIC:
                return NOT_A_FRAME
            return read_header_frame(r, row, BIG_HEADER, 12, be64(p + 4), 12)
        return read_unbounded(r, row, HTTP, is_final, budget) if is_http(p) else NOT_A_FRAME
    if length < 4:
        return BAD_LENGTH if versions else read_versionless(r, row, budget)
    if available < PREFIX_SIZE:
        return SHORT
    word = be32(p + 4)
    if word >> 16 == MAGIC:
        return read_header_frame(r, row, HEADER, 4, length, 4)
    if word >> 16 == STRICT:
        return read_message_frame(r, row, FRAMED_BINARY, length)
    if is_compact(p[4], p[5]):
        return read_message_frame(r, row, FRAMED_COMPACT, length)
    if word == length - 4:
        if available < 10:
            return SHORT
        if be16(p + 8) == MAGIC:
            return read_header_frame(r, row, DOUBLE_HEADER, 4, length, 8)
    if word >> 16 == TTHEADER_MAGIC:
        return read_message_frame(r, row, TTHEADER, length)
    return NOT_A_FRAME if versions else read_versionless(r, row, budget)


cdef inline Fault read_frame(Reader* r, void* out, const Context* context) noexcept nogil:
    return read_frame_of(r, <Frame*>out, not context.bytes_follow, True, context.budget)


cdef inline Fault read_frame_more(Reader* r, void* out, const Context* context) noexcept nogil:
    return read_frame_of(r, <Frame*>out, False, True, context.budget)


cdef inline Fault read_frame_any(Reader* r, void* out, const Context* context) noexcept nogil:
    return read_frame_of(r, <Frame*>out, not context.bytes_follow, False, context.budget)


cdef inline Fault read_frame_any_more(Reader* r, void* out, const Context* context) noexcept nogil:
    return read_frame_of(r, <Frame*>out, False, False, context.budget)


# ---------------------------------------------------- the search for the next frame after damage

cdef inline bint has_no_length(const uint8_t* at) noexcept nogil:
    # Reads eight bytes. Frames of these kinds are accepted where a frame is expected.
    # They are never searched for, because too few of their bytes are fixed.
    return (be16(at) == STRICT and is_type(at[3])) or is_compact(at[0], at[1]) or is_http(at) or (
        4 <= be32(at) <= LARGEST_LENGTH and be16(at + 4) == TTHEADER_MAGIC)


cdef inline size_t probe_prefix(const uint8_t* at, const uint8_t* end) noexcept nogil:
    # Returns 0 where a frame of a kind with a length may begin.
    cdef size_t available = <size_t>(end - at)
    cdef size_t magic_at = 4
    cdef uint64_t length
    if available < PREFIX_SIZE:
        return UNDECIDED
    length = be32(at)
    if length == BIGF:
        magic_at = 12
        if available < 22:
            return UNDECIDED
        length = be64(at + 4)
        if length > <uint64_t>0xffffffff - 12:
            return 1
    elif length > LARGEST_LENGTH or length < 4:
        return 1
    elif be32(at + 4) == length - 4:
        magic_at = 8
        length -= 4
    elif be16(at + 4) == STRICT:
        if available < 12:
            return UNDECIDED
        if is_type(at[7]) and <int64_t>be32(at + 8) <= <int64_t>length - SHORTEST_MESSAGE:
            return 0
        return 1
    elif is_compact(at[4], at[5]):
        return 0
    elif be16(at + 4) != MAGIC:
        return 1
    if available < magic_at + FIXED:
        return UNDECIDED
    if be16(at + magic_at) != MAGIC or be16(at + magic_at + 8) == 0:
        return 1
    return 0 if 4 * <uint64_t>be16(at + magic_at + 8) + FIXED <= length else 1


cdef inline size_t probe_next(const uint8_t* at, const uint8_t* end) noexcept nogil:
    # Checks the bytes after a candidate. Returns 0 where the first eight of them may begin a frame
    # of any kind, and LIKELY where there are fewer than eight.
    cdef uint32_t length
    if end - at < PREFIX_SIZE:
        return LIKELY
    length = be32(at)
    if length == BIGF or has_no_length(at):
        return 0
    if length > LARGEST_LENGTH or length < 4:
        return 1
    return not (be16(at + 4) == MAGIC or be16(at + 4) == STRICT or is_compact(at[4], at[5])
                or be32(at + 4) == length - 4)


cdef inline size_t probe_frame(const uint8_t* at, const uint8_t* end, bint deep,
                               SearchBudget* budget) noexcept nogil:
    # The ResyncProbe of Thrift: see core/loop.pxd.
    cdef size_t away = probe_prefix(at, end)
    cdef Reader r = Reader(at, end)
    cdef Frame row
    cdef Fault fault
    cdef uint64_t size
    if away or not deep:
        return 0 if away == 1 and not deep and has_no_length(at) else away
    size = 12 + be64(at + 4) if be32(at) == BIGF else 4 + <uint64_t>be32(at)
    if size > <uint64_t>(end - at):
        return UNDECIDED
    if not charge_budget(budget, at, size):
        return 1
    memset(&row, 0, sizeof(Frame))
    fault = read_frame_of(&r, &row, True, True, NULL)
    if fault == SHORT:
        return UNDECIDED
    return probe_next(r.at, end) if fault == OK else 1
