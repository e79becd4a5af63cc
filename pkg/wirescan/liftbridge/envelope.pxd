# Kernels for envelopes, and for the records of replication responses and of the commit log.
# scan.pyx drives them, and its docstring shows the wire format.
from wirescan.core cimport (
    BAD_CHECKSUM, BAD_HEADER, BAD_KIND, BAD_LENGTH, BAD_MAGIC, BAD_NULL, BAD_VERSION, Context,
    Fault, LEFTOVER, OK, Reader, SHORT, SearchBudget, TRUNCATED, UNDECIDED, ZEROS, be16, be32,
    be64, charge_budget, clear_row, crc32c_of, enter, int8_t, int32_t, int64_t, left, sized, take,
    uint8_t, uint16_t, uint32_t)
from wirescan.liftbridge.rows cimport Entry, Envelope, Header

cdef enum:
    MAGIC = 0xb90e43b4
    COOKIE = 0x4c494654             # "LIFT"
    SMALLEST_HEADER = 8
    CHECKED_HEADER = 12             # header size of an envelope with a CRC-32C
    CHECKED = 1                     # the flag of an envelope with a CRC-32C
    LAST_KIND = 14
    UNKNOWN = 253
    LIFT = 254
    PLAIN = 255
    RECORD_HEADER = 28              # offset(8) timestamp(8) leader epoch(8) size(4)
    SMALLEST_RECORD = 16            # CRC(4) magic(1) attributes(1) key(4) value(4) header count(2)
    LARGEST_RECORD = 0x7fffffff


cdef inline Fault read_envelope(const uint8_t* p, uint32_t size, Envelope* row,
                                bint check) noexcept nogil:
    # The caller has filled the row as that of a plain payload.
    cdef uint32_t magic = be32(p) if size >= 4 else 0
    if magic != MAGIC:
        if magic == COOKIE:
            row.head.kind = LIFT
            row.head.body = 4
        return OK
    if size < SMALLEST_HEADER:
        return TRUNCATED
    row.version = p[4]
    row.header_size = p[5]
    row.flags = p[6]
    row.head.kind = min(p[7], <uint8_t>UNKNOWN)         # the wire has no types LIFT and PLAIN
    if row.version:
        return BAD_VERSION
    if row.header_size < SMALLEST_HEADER:
        return BAD_HEADER
    if row.header_size > size:
        return TRUNCATED
    if row.flags & CHECKED and row.header_size != CHECKED_HEADER:
        return BAD_HEADER
    if row.head.kind > LAST_KIND:
        return BAD_KIND
    row.head.body = row.header_size
    if row.flags & CHECKED:
        row.crc = be32(p + 8)
        if check and crc32c_of(p + CHECKED_HEADER, size - CHECKED_HEADER) != row.crc:
            return BAD_CHECKSUM
    return OK


cdef inline Fault read_block(Reader* r, const uint8_t* start, uint32_t* at,
                             int32_t* size) noexcept nogil:
    # Read a length of four bytes, -1 for null, and as many bytes.
    cdef const uint8_t* p = take(r, 4)
    if p is NULL:
        return TRUNCATED
    if <int32_t>be32(p) < -1:
        return BAD_NULL
    return sized(r, start, <int32_t>be32(p), at, size)


cdef inline Fault read_header(Reader* r, void* out, const Context* context) noexcept nogil:
    cdef Header* row = <Header*>out
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p = take(r, 2)
    cdef Fault fault
    if p is NULL or sized(r, start, be16(p), &row.key_at, &row.key_size):
        return TRUNCATED
    fault = read_block(r, start, &row.value_at, &row.value_size)
    if not fault:
        row.head.body = row.key_at
    return fault


cdef inline Fault read_record_message(Reader* r, Entry* row, bint check) noexcept nogil:
    # Read the message of a record. r holds exactly the message.
    cdef const uint8_t* start = r.at - RECORD_HEADER
    cdef const uint8_t* p = take(r, 6)
    cdef Header header
    cdef uint16_t _i
    cdef Fault fault
    row.crc = be32(p)
    row.magic = <int8_t>p[4]
    row.attributes = <int8_t>p[5]
    if check and crc32c_of(p + 4, left(r) + 2) != row.crc:
        return BAD_CHECKSUM
    if row.magic != 1:
        return BAD_MAGIC
    fault = read_block(r, start, &row.key_at, &row.key_size)
    if not fault:
        fault = read_block(r, start, &row.value_at, &row.value_size)
    p = take(r, 2) if not fault else NULL
    if p is NULL:
        return fault or TRUNCATED
    row.header_count = be16(p)
    row.headers_at = <uint32_t>(r.at - start)
    for _i in range(row.header_count):
        fault = read_header(r, &header, NULL)
        if fault:
            return fault
    return LEFTOVER if left(r) else OK


cdef inline Fault read_record(Reader* r, Entry* row, bint check) noexcept nogil:
    cdef const uint8_t* p = r.at
    cdef Reader message
    cdef uint32_t size
    cdef Fault fault
    if left(r) < RECORD_HEADER:
        return SHORT
    size = be32(p + 24)
    if size < SMALLEST_RECORD or size > LARGEST_RECORD:
        return BAD_LENGTH if size or be64(p) else ZEROS
    fault = enter(r, RECORD_HEADER, size, &message)
    if fault:
        row.head.size = RECORD_HEADER + size
        return fault
    fault = read_record_message(&message, row, check)
    if fault:
        clear_row(row, sizeof(Entry))
        return fault
    row.head.body = RECORD_HEADER
    row.offset = <int64_t>be64(p)
    row.timestamp = <int64_t>be64(p + 8)
    row.leader_epoch = be64(p + 16)
    return OK

cdef inline Fault read_entry(Reader* r, void* out, const Context* context) noexcept nogil:
    return read_record(r, <Entry*>out, False)

cdef inline Fault read_entry_checked(Reader* r, void* out, const Context* context) noexcept nogil:
    return read_record(r, <Entry*>out, True)


cdef inline size_t probe_entry(const uint8_t* at, const uint8_t* end, bint deep,
                               SearchBudget* budget) noexcept nogil:
    # The sizes and the magic distinguish a record from random bytes by about thirty bits.
    # The checksum decides.
    cdef size_t available = <size_t>(end - at), size
    if available < RECORD_HEADER + SMALLEST_RECORD:
        return available
    size = be32(at + 24)
    if size < SMALLEST_RECORD or size > LARGEST_RECORD or at[32] != 1:
        return 1
    if not deep:
        return (<int32_t>be32(at + 34) < -1
                or <int64_t><int32_t>be32(at + 34) > <int64_t>size - SMALLEST_RECORD)
    if RECORD_HEADER + size > available:
        return UNDECIDED
    if not charge_budget(budget, at, RECORD_HEADER + size):
        return 1
    return 0 if crc32c_of(at + 32, size - 4) == be32(at + 28) else 1
