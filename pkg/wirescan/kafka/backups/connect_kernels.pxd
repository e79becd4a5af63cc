# Kernels for the records of itadventurer's kafka-backup, and for their headers. The docstring of
# connect_scan.pyx shows the layouts.
from wirescan.core cimport (
    BAD_LENGTH, Context, Fault, Head, NOT_A_FRAME, OK, Reader, SHORT, TRUNCATED, be32, be64,
    int32_t, int64_t, left, sized, take, uint8_t, uint32_t, uint64_t)
from wirescan.kafka.backups.connect_rows cimport (
    ConnectRecord, FIXED_FIELDS, LAST_TYPE, NO_TIME, NO_TYPE, SEGMENT_VERSION, SMALLEST_HEADER,
    SMALLEST_RECORD)
from wirescan.kafka.backups.kbak_rows cimport BackupHeader


cdef inline Fault cut(Head* head, uint64_t size) noexcept nogil:
    # Return SHORT, and note that the record has at least `size` bytes.
    head.size = <uint32_t>min(size, <uint64_t>0xffffffff)
    return SHORT


cdef inline Fault take_field(Reader* r, const uint8_t* start, Head* head, uint64_t follow,
                             uint32_t* at, int32_t* size) noexcept nogil:
    # Step over a field after its size, and store its place. follow: bytes that are at least behind
    # it in the record.
    cdef const uint8_t* p = take(r, 4)
    cdef int32_t length
    if p is NULL:
        return cut(head, <uint64_t>(r.at - start) + 4 + follow)
    length = <int32_t>be32(p)
    if sized(r, start, length, at, size):
        return cut(head, <uint64_t>(r.at - start) + <uint64_t>length + follow)
    return OK


cdef inline Fault skip_headers(Reader* r, const uint8_t* start, Head* head,
                               int64_t* owed) noexcept nogil:
    # Step over the headers of a record that begins at `start`. owed: their number, afterwards that
    # of the headers from r.at on. So a cut record is walked once, however small the chunks are.
    cdef uint32_t at = 0
    cdef int32_t size = 0
    cdef const uint8_t* header
    cdef uint64_t follow
    cdef Fault fault
    while owed[0]:
        header = r.at
        follow = SMALLEST_HEADER * <uint64_t>(owed[0] - 1)
        if left(r) < SMALLEST_HEADER + follow:
            return cut(head, <uint64_t>(header - start) + SMALLEST_HEADER + follow)
        fault = take_field(r, start, head, follow + 4, &at, &size)
        if not fault:
            if size < 0:
                return BAD_LENGTH
            fault = take_field(r, start, head, follow, &at, &size)
        if fault:
            r.at = header
            return fault
        owed[0] -= 1
    return OK


cdef inline Fault read_fields(Reader* r, ConnectRecord* row, int64_t* owed) noexcept nogil:
    # Read a record up to its headers. owed: the number of headers.
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p
    cdef int32_t kind, count
    cdef Fault fault
    if left(r) and start[0] == SEGMENT_VERSION:
        r.at += 1
    row.head.body = <uint32_t>(r.at - start)
    row.head.size = row.head.body + SMALLEST_RECORD
    if left(r) and r.at[0]:
        return NOT_A_FRAME                      # no log has an offset of 2 ** 56
    p = take(r, FIXED_FIELDS)
    if p is NULL:
        return SHORT
    row.offset = <int64_t>be64(p)
    kind = <int32_t>be32(p + 8)
    if kind < NO_TIME or kind > LAST_TYPE:
        return NOT_A_FRAME
    row.timestamp = -1
    row.timestamp_type = 0 if kind == NO_TIME else kind
    if kind > NO_TYPE:
        p = take(r, 8)
        if p is NULL:
            return cut(&row.head, row.head.size + 8)
        row.timestamp = <int64_t>be64(p)
    fault = take_field(r, start, &row.head, 8, &row.key_at, &row.key_size)
    if not fault:
        fault = take_field(r, start, &row.head, 4, &row.value_at, &row.value_size)
    if fault:
        return fault
    p = take(r, 4)
    if p is NULL:
        return cut(&row.head, <uint64_t>(r.at - start) + 4)
    count = <int32_t>be32(p)
    if count < 0:
        return BAD_LENGTH
    row.header_count = count
    row.headers_at = <uint32_t>(r.at - start)
    owed[0] = count
    return OK


cdef inline Fault read_connect_record(Reader* r, void* out, const Context* context) noexcept nogil:
    # A record has no length: it is walked to its end.
    cdef ConnectRecord* row = <ConnectRecord*>out
    cdef const uint8_t* start = r.at
    cdef int64_t owed = 0
    cdef Fault fault = read_fields(r, row, &owed)
    return fault if fault else skip_headers(r, start, &row.head, &owed)


cdef inline Fault read_connect_header(Reader* r, void* out, const Context* context) noexcept nogil:
    # Rows of records may come from a user, so the sizes are validated again.
    cdef BackupHeader* row = <BackupHeader*>out
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p = take(r, 4)
    cdef Fault fault = TRUNCATED
    if p is not NULL and <int32_t>be32(p) >= 0:
        row.head.body = 4
        fault = sized(r, start, <int32_t>be32(p), &row.key_at, &row.key_size)
    if not fault:
        p = take(r, 4)
        fault = TRUNCATED
        if p is not NULL:
            fault = sized(r, start, <int32_t>be32(p), &row.value_at, &row.value_size)
    if fault:
        r.at = r.end                    # a header has no length, so the next one is not known
    return fault
