# Frames of every kind. scan.pyx draws them.
from libc.string cimport memset
from wirescan.core cimport (
    BAD_CODEC, BAD_COUNT, BAD_FIELD, BAD_HEADER, BAD_LENGTH, BAD_VARINT, Fault, Head, LIKELY, NOT_A_FRAME, OK, Reader,
    SHORT, TRUNCATED, UNDECIDED, afford, be16, be32, be64, int32_t, int64_t, left, take, uint8_t, uint16_t, uint32_t, uint64_t,
    varint32)
from wirescan.thrift.http cimport LONGEST_HEAD, is_http, read_http
from wirescan.thrift.message cimport Begin, is_compact, is_type, read_begin
from wirescan.thrift.scan cimport (
    BIG_HEADER, BINARY, COMPACT, DOUBLE_HEADER, FIXED, FRAMED_BINARY, FRAMED_COMPACT, Frame, HEADER, HMAC, HTTP,
    Info, KEYVALUE, LARGEST_LENGTH, PKEYVALUE, TTHEADER, UNFRAMED_BINARY, UNFRAMED_COMPACT)
from wirescan.thrift.walk cimport Walk, begin_walk, skip

cdef enum:
    MAGIC = 0x0fff
    TTHEADER_MAGIC = 0x1000
    STRICT = 0x8001
    BIGF = 0x42494746
    LOOK = 8                    # bytes that tell most kinds apart
    LONGEST_NAME = 32767        # of a message without a version, unframed: more is something else
    SHORTEST_MESSAGE = 12       # of a strict binary one, before its struct
    # Transforms that can be undone: 0 none, 1 zlib, 2 HMAC, 3 Snappy, 5 zstd, 6 LZ4, and 8 to 13, which are 1, 5 and 6.
    UNDONE = 0x3f6f


cdef inline bint is_undone(uint32_t id) noexcept nogil:
    return id < 14 and UNDONE >> id & 1


cdef inline Fault read_string(Reader* r, uint32_t* size) noexcept nogil:
    # Leaves r behind the string.
    cdef Fault fault = varint32(r, size)
    if fault:
        return fault
    return OK if take(r, size[0]) is not NULL else TRUNCATED


cdef inline Fault read_infos(Reader* r, Frame* row, const uint8_t* start) noexcept nogil:
    # Steps over pairs up to an id that ends them: 0, which is padding, or one that nobody knows.
    cdef const uint8_t* mark
    cdef uint32_t id = 0, count = 0, size = 0
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
    # BAD_CODEC where one cannot be undone; all are read nevertheless.
    cdef uint32_t id = 0, i
    cdef const uint8_t* p
    cdef Fault fault, known = OK
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
            row.mac_size, signed_already = p[0], True
        elif not is_undone(id):
            known = BAD_CODEC
    return known


cdef inline Fault read_header(const uint8_t* start, size_t at, const uint8_t* end, Frame* row) noexcept nogil:
    # From the magic, `at` bytes behind the frame's start, to its end.
    cdef const uint8_t* p = start + at
    cdef Reader r
    cdef uint32_t number = 0
    cdef Fault fault, known = OK
    if end - p < FIXED:
        return TRUNCATED
    row.flags, row.seq, row.header_words = be16(p + 2), be32(p + 4), be16(p + 8)
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
        known = read_transforms(&r, row, number)
        if known and known != BAD_CODEC:
            return known
    fault = read_infos(&r, row, start)
    if fault:
        return fault
    if end - r.end < row.mac_size:
        return BAD_HEADER
    row.head.body = row.payload_at = <uint32_t>(r.end - start)
    row.payload_size = <int32_t>(end - r.end - row.mac_size)
    return known


cdef inline Fault header_frame(Reader* r, Frame* row, uint8_t kind, size_t prefix, uint64_t length,
                               size_t magic_at) noexcept nogil:
    cdef const uint8_t* start = r.at
    cdef Fault fault
    row.head.kind = kind
    if length > <uint64_t>0x7fffffff:
        return BAD_LENGTH                       # more than a place can have
    if left(r) < prefix + length:
        row.head.size = <uint32_t>(prefix + length)
        return SHORT
    r.at = start + prefix + length
    fault = read_header(start, magic_at, r.at, row)
    if fault == BAD_CODEC:                      # all else is sound, and so is the length
        row.head.fault = BAD_CODEC
        return OK
    if fault:
        memset(<char*>row + sizeof(Head), 0, sizeof(Frame) - sizeof(Head))
    return fault


cdef inline Fault message_frame(Reader* r, Frame* row, uint8_t kind, uint32_t length) noexcept nogil:
    row.head.kind = kind
    if length > 0x7fffffff:
        return BAD_LENGTH
    if left(r) < 4 + <size_t>length:
        row.head.size = 4 + length
        return SHORT
    row.head.body, row.infos_size, row.payload_size = 4, -1, -1
    if kind != TTHEADER:
        row.payload_at, row.payload_size = 4, <int32_t>length
        row.protocol_id = COMPACT if kind == FRAMED_COMPACT else BINARY
    r.at += 4 + <size_t>length
    return OK


cdef inline Fault unframed(Reader* r, Frame* row, uint8_t kind) noexcept nogil:
    # Only a walk over the whole message tells where it ends.
    cdef const uint8_t* start = r.at
    cdef Begin begin
    cdef Walk walk
    cdef bint compact = kind == UNFRAMED_COMPACT
    cdef int64_t least
    cdef Fault fault = read_begin(r, compact, &begin)
    row.head.kind = kind
    least = begin.least
    if not fault:
        begin_walk(&walk, compact, begin.version)
        fault = skip(&walk, r, 0)
        least = walk.least
    if fault:
        if not least:
            return BAD_LENGTH
        row.head.size = <uint32_t>min(r.at - start + least, <int64_t>0xffffffff)
        return SHORT
    if r.at - start > <int64_t>0x7fffffff:
        return BAD_LENGTH
    row.payload_size, row.infos_size = <int32_t>(r.at - start), -1
    row.protocol_id = COMPACT if compact else BINARY
    return OK


cdef inline Fault without_length(Reader* r, Frame* row, uint8_t kind, bint whole, int64_t* vain) noexcept nogil:
    # Such frames lie around whatever they like, other frames too, which are found when these are none: each look at one
    # that is none is paid for.
    cdef const uint8_t* start = r.at
    cdef Fault fault
    if vain is not NULL and vain[0] < 0:
        return NOT_A_FRAME
    fault = read_http(r, row, whole) if kind == HTTP else unframed(r, row, kind)
    if fault and vain is not NULL:
        vain[0] -= max(r.at - start, min(<int64_t>(r.end - start), <int64_t>LONGEST_HEAD) if kind == HTTP else 0)
    return fault


cdef inline Fault without_version(Reader* r, Frame* row, int64_t* vain) noexcept nogil:
    # A binary message without a version word, framed or not: the byte behind its name is a type.
    cdef const uint8_t* p = r.at
    cdef size_t room = left(r)
    cdef uint32_t length = be32(p), size
    if room < LOOK:
        return SHORT
    size = be32(p + 4)
    if length <= LARGEST_LENGTH and <int64_t>size <= <int64_t>length - 10:
        if room < 9 + <size_t>size:
            row.head.size = 4 + length
            return SHORT
        if is_type(p[8 + size]):
            return message_frame(r, row, FRAMED_BINARY, length)
    if length <= LONGEST_NAME:
        if room < 5 + <size_t>length:
            return SHORT
        if is_type(p[4 + length]):
            return without_length(r, row, UNFRAMED_BINARY, True, vain)
    return NOT_A_FRAME


cdef inline Fault read_frame_of(Reader* r, Frame* row, bint whole, bint versions, int64_t* vain) noexcept nogil:
    # whole: no bytes follow those in r. versions: binary messages have to tell theirs. vain: see ReadFrame, or NULL.
    cdef const uint8_t* p = r.at
    cdef size_t room = left(r)
    cdef uint32_t word, length
    cdef Fault fault
    if room < 4:
        return SHORT
    length = be32(p)
    if length > LARGEST_LENGTH:
        if length >> 16 == STRICT:
            return without_length(r, row, UNFRAMED_BINARY, whole, vain)
        if is_compact(p[0], p[1]):
            return without_length(r, row, UNFRAMED_COMPACT, whole, vain)
        if length == BIGF:
            if room < 14:
                return SHORT
            return header_frame(r, row, BIG_HEADER, 12, be64(p + 4), 12) if be16(p + 12) == MAGIC else NOT_A_FRAME
        return without_length(r, row, HTTP, whole, vain) if is_http(p) else NOT_A_FRAME
    if length < 4:
        return BAD_LENGTH if versions else without_version(r, row, vain)
    if room < LOOK:
        return SHORT
    word = be32(p + 4)
    if word >> 16 == MAGIC:
        return header_frame(r, row, HEADER, 4, length, 4)
    if word >> 16 == STRICT:
        return message_frame(r, row, FRAMED_BINARY, length)
    if is_compact(p[4], p[5]):
        return message_frame(r, row, FRAMED_COMPACT, length)
    if word == length - 4:
        if room < 10:
            return SHORT
        if be16(p + 8) == MAGIC:
            return header_frame(r, row, DOUBLE_HEADER, 4, length, 8)
    if word >> 16 == TTHEADER_MAGIC:
        return message_frame(r, row, TTHEADER, length)
    return NOT_A_FRAME if versions else without_version(r, row, vain)


cdef inline Fault read_frame(Reader* r, void* out, const void* parent) noexcept nogil:
    return read_frame_of(r, <Frame*>out, True, True, <int64_t*>parent)

cdef inline Fault read_frame_more(Reader* r, void* out, const void* parent) noexcept nogil:
    return read_frame_of(r, <Frame*>out, False, True, <int64_t*>parent)

cdef inline Fault read_frame_any(Reader* r, void* out, const void* parent) noexcept nogil:
    return read_frame_of(r, <Frame*>out, True, False, <int64_t*>parent)


# ------------------------------------------------------------------------------ where the next frame is, behind damage

cdef inline bint tells_no_length(const uint8_t* at) noexcept nogil:
    # Eight bytes. Such frames are good where they are expected, but are never searched for: little tells them from
    # other bytes.
    return (be16(at) == STRICT and is_type(at[3])) or is_compact(at[0], at[1]) or is_http(at) or (
        4 <= be32(at) <= LARGEST_LENGTH and be16(at + 4) == TTHEADER_MAGIC)


cdef inline size_t looks(const uint8_t* at, const uint8_t* end) noexcept nogil:
    # 0: one of the kinds that tell their length seems to begin here.
    cdef size_t room = <size_t>(end - at), magic_at = 4
    cdef uint64_t length
    if room < LOOK:
        return UNDECIDED
    length = be32(at)
    if length == BIGF:
        magic_at = 12
        if room < 22:
            return UNDECIDED
        length = be64(at + 4)
        if length > <uint64_t>0xffffffff - 12:
            return 1
    elif length > LARGEST_LENGTH or length < 4:
        return 1
    elif be32(at + 4) == length - 4:
        magic_at, length = 8, length - 4
    elif be16(at + 4) == STRICT:
        if room < 12:
            return UNDECIDED
        return 0 if is_type(at[7]) and <int64_t>be32(at + 8) <= <int64_t>length - SHORTEST_MESSAGE else 1
    elif is_compact(at[4], at[5]):
        return 0
    elif be16(at + 4) != MAGIC:
        return 1
    if room < magic_at + FIXED:
        return UNDECIDED
    if be16(at + magic_at) != MAGIC or be16(at + magic_at + 8) == 0:
        return 1
    return 0 if 4 * <uint64_t>be16(at + magic_at + 8) + FIXED <= length else 1


cdef inline size_t begins(const uint8_t* at, const uint8_t* end) noexcept nogil:
    # 0: a frame of any kind, by its first eight bytes; where there are fewer, nothing says no.
    cdef uint32_t length
    if end - at < LOOK:
        return LIKELY
    length = be32(at)
    if length == BIGF or tells_no_length(at):
        return 0
    if length > LARGEST_LENGTH or length < 4:
        return 1
    return not (be16(at + 4) == MAGIC or be16(at + 4) == STRICT or is_compact(at[4], at[5])
                or be32(at + 4) == length - 4)


cdef inline size_t intact_frame(const uint8_t* at, const uint8_t* end, bint deep, int64_t* budget) noexcept nogil:
    cdef size_t away = looks(at, end)
    cdef Reader r = Reader(at, end)
    cdef Frame row
    cdef Fault fault
    if away or not deep:
        return 0 if away == 1 and not deep and tells_no_length(at) else away
    memset(&row, 0, sizeof(Frame))
    if not afford(budget, min(<uint64_t>(end - at), <uint64_t>be32(at))):
        return 1
    fault = read_frame_of(&r, &row, True, True, NULL)
    if fault == SHORT:
        return UNDECIDED
    return begins(r.at, end) if fault == OK else 1
