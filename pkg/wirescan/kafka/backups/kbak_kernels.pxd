# Kernels for KBAK segments, their records, and the headers of the records.
# The docstring of kbak_scan.pyx shows the layouts.
from libc.string cimport memchr
from wirescan.core cimport (
    BAD_CHECKSUM, BAD_CODEC, BAD_COUNT, BAD_VERSION, Context, Fault, LEFTOVER, NOT_A_FRAME, OK,
    Reader, SHORT, TRUNCATED, enter, int32_t, int64_t, le16, le32, le64, left, sized, take, uint8_t,
    uint32_t, uint64_t)
from wirescan.core.checksum cimport extend_crc32
from wirescan.kafka.backups.kbak_rows cimport (
    BackupHeader, BackupRecord, BackupSegment, FOOTER_SIZE, HEADER_SIZE, LAST_CODEC,
    SMALLEST_HEADER, SMALLEST_RECORD, VERSION)

cdef extern from *:
    """
    #define KBAK 0x4b41424bu
    #define BKAE 0x45414b42u
    """
    const uint32_t KBAK         # the first four bytes of a segment, as a little-endian number
    const uint32_t BKAE         # its last four bytes


cdef inline bint begins_segment(const uint8_t* at, const uint8_t* end) noexcept nogil:
    # Return whether the bytes are the first ones of a segment. They may be fewer than four.
    cdef size_t i, count = min(<size_t>(end - at), <size_t>4)
    for i in range(count):
        if at[i] != <uint8_t>(KBAK >> (8 * i)):
            return False
    return True


cdef inline const uint8_t* find_footer(const uint8_t** position, const uint8_t* end,
                                       uint32_t* crc) noexcept nogil:
    # Return the first footer with a right checksum, or NULL.
    #
    # crc: the checksum of the segment up to `position`. Both are advanced: no footer begins before
    # the new position. So each byte is read twice, however many footers only look like one.
    cdef const uint8_t* at = position[0]
    cdef const uint8_t* mark
    while end - at >= FOOTER_SIZE:
        mark = <const uint8_t*>memchr(at + 4, c'B', <size_t>(end - at - 7))
        if mark is NULL:
            break
        at = mark - 4
        if le32(mark) == BKAE:
            crc[0] = extend_crc32(crc[0], position[0], <size_t>(at - position[0]))
            position[0] = at
            if le32(at) == crc[0]:
                return at
        at += 1
    at = max(position[0], end - (FOOTER_SIZE - 1))
    crc[0] = extend_crc32(crc[0], position[0], <size_t>(at - position[0]))
    position[0] = at
    return NULL


cdef inline Fault read_segment(Reader* r, void* out, const Context* context) noexcept nogil:
    # A segment has no length: it ends with the first footer whose checksum is right.
    cdef BackupSegment* row = <BackupSegment*>out
    cdef const uint8_t* start = r.at
    cdef const uint8_t* position
    cdef const uint8_t* footer
    cdef uint64_t count
    cdef uint32_t crc
    if not begins_segment(start, r.end):
        return NOT_A_FRAME
    row.head.size = HEADER_SIZE + FOOTER_SIZE
    if left(r) < HEADER_SIZE + FOOTER_SIZE:
        return SHORT
    position = start + HEADER_SIZE
    crc = extend_crc32(0, start, HEADER_SIZE)
    footer = find_footer(&position, r.end, &crc)
    if footer is NULL:
        row.head.size = <uint32_t>min(<uint64_t>left(r) + 1, <uint64_t>0xffffffff)
        if le32(r.end - 4) == BKAE:
            # A footer ends the bytes, so damage and no cut is why no checksum is right.
            row.head.body = HEADER_SIZE
            row.head.fault = BAD_CHECKSUM
            r.at = r.end
        return SHORT
    r.at = footer + FOOTER_SIZE
    row.head.size = 0
    row.head.body = HEADER_SIZE
    row.version = start[4]
    row.codec = start[5]
    row.base_offset = <int64_t>le64(start + 16)
    row.last_offset = <int64_t>le64(start + 24)
    row.crc = crc
    count = le64(start + 8)
    if row.version != VERSION:
        return BAD_VERSION
    if row.codec > LAST_CODEC:
        return BAD_CODEC
    if count > 0x7fffffff:
        return BAD_COUNT
    row.record_count = <int32_t>count
    return OK


cdef inline Fault read_backup_record(Reader* r, void* out, const Context* context) noexcept nogil:
    cdef BackupRecord* row = <BackupRecord*>out
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p
    cdef Reader body
    if left(r) < 4 or enter(r, 4, le32(start), &body):
        return SHORT
    row.head.body = 4
    p = take(&body, 20)
    if p is NULL:
        return TRUNCATED
    row.timestamp = <int64_t>le64(p)
    row.offset = <int64_t>le64(p + 8)
    if sized(&body, start, <int32_t>le32(p + 16), &row.key_at, &row.key_size):
        return TRUNCATED
    p = take(&body, 4)
    if p is NULL or sized(&body, start, <int32_t>le32(p), &row.value_at, &row.value_size):
        return TRUNCATED
    p = take(&body, 2)
    if p is NULL:
        return TRUNCATED
    row.header_count = le16(p)
    row.headers_at = <uint32_t>(body.at - start)
    if row.header_count == 0:
        return LEFTOVER if left(&body) else OK
    return BAD_COUNT if <size_t>row.header_count > left(&body) // SMALLEST_HEADER else OK


cdef inline Fault read_backup_header(Reader* r, void* out, const Context* context) noexcept nogil:
    cdef BackupHeader* row = <BackupHeader*>out
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p = take(r, 2)
    cdef Fault fault = TRUNCATED
    if p is not NULL:
        row.head.body = 2
        fault = sized(r, start, le16(p), &row.key_at, &row.key_size)
    if not fault:
        p = take(r, 4)
        fault = TRUNCATED
        if p is not NULL:
            fault = sized(r, start, <int32_t>le32(p), &row.value_at, &row.value_size)
    if fault:
        r.at = r.end                    # a header has no length, so the next one is not known
    return fault
