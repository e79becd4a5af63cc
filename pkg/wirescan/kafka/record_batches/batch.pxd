# Kernels for batches. A batch is a record batch of magic 2, or one message of magic 0 or 1.
# The docstring of scan.pyx shows the layouts.
from wirescan.core cimport (
    BAD_CHECKSUM, BAD_CODEC, BAD_COUNT, BAD_LENGTH, BAD_MAGIC, BAD_NULL, FILLER, Context, Fault,
    LEFTOVER, NOT_A_FRAME, OK, Readable, Reader, SHORT, SearchBudget, TRUNCATED, UNDECIDED, ZEROS,
    be16, be32, be64, charge_budget, crc32_of, crc32c_of, enter, int16_t, int32_t, int64_t, le64,
    left, sized, take, uint8_t, uint32_t, uint64_t)
from wirescan.kafka.record_batches.rows cimport (
    Batch, CODEC, CONTROL, HEADER_V0, HEADER_V1, HEADER_V2, LAST_CODEC, LAST_LEGACY_CODEC,
    LOG_APPEND_TIME, LOG_OVERHEAD, MAGIC_AT, SMALLEST_LENGTH, TRANSACTIONAL)


cdef inline bint has_good_checksum(const uint8_t* p, size_t size, uint8_t magic) noexcept nogil:
    # The checksum covers all bytes after itself.
    if magic == 2:
        return crc32c_of(p + 21, size - 21) == be32(p + 17)
    return crc32_of(p + 16, size - 16) == be32(p + 12)


cdef inline Fault read_batch_v2(
        const uint8_t* p, size_t size, Batch* row, bint check) noexcept nogil:
    if size < HEADER_V2:
        return TRUNCATED
    row.head.body = HEADER_V2
    row.base_offset = <int64_t>be64(p)
    row.leader_epoch = <int32_t>be32(p + 12)
    row.crc = be32(p + 17)
    row.attributes = <int16_t>be16(p + 21)
    row.last_offset = <int64_t>(be64(p) + <uint64_t><int64_t><int32_t>be32(p + 23))
    row.base_timestamp = <int64_t>be64(p + 27)
    row.max_timestamp = <int64_t>be64(p + 35)
    row.producer_id = <int64_t>be64(p + 43)
    row.producer_epoch = <int16_t>be16(p + 51)
    row.base_sequence = <int32_t>be32(p + 53)
    row.record_count = <int32_t>be32(p + 57)
    row.codec = row.attributes & CODEC
    row.is_transactional = (row.attributes & TRANSACTIONAL) != 0
    row.is_control = (row.attributes & CONTROL) != 0
    if check and not has_good_checksum(p, size, 2):
        return BAD_CHECKSUM
    if row.codec > LAST_CODEC:
        return BAD_CODEC
    return BAD_COUNT if row.record_count < 0 else OK


cdef inline Fault read_message(
        const uint8_t* p, size_t size, Batch* row, bint check) noexcept nogil:
    # Read a message of magic 0 or 1, plain or a wrapper, as one batch.
    cdef uint32_t header = HEADER_V1 if row.magic else HEADER_V0
    cdef uint32_t key_at = 0, value_at = 0
    cdef int32_t key_size = 0, value_size = 0
    cdef Reader body = Reader(p + header, p + size)
    if size < header + 8:                   # the lengths of the key and the value do not fit
        return TRUNCATED
    row.head.body = header
    row.base_offset = row.last_offset = <int64_t>be64(p)
    row.base_timestamp = row.max_timestamp = <int64_t>be64(p + 18) if row.magic else -1
    row.producer_id = row.leader_epoch = row.base_sequence = row.producer_epoch = -1
    row.crc = be32(p + 12)
    row.attributes = p[17]
    row.codec = p[17] & CODEC
    row.record_count = -1 if row.codec else 1
    if check and not has_good_checksum(p, size, row.magic):
        return BAD_CHECKSUM
    if row.codec == 0:
        return OK
    if row.codec > LAST_LEGACY_CODEC:
        return BAD_CODEC
    if read_message_fields(&body, p, &key_at, &key_size, &value_at, &value_size):
        return TRUNCATED
    if value_size < 0:
        return BAD_NULL
    row.head.body = value_at
    return LEFTOVER if left(&body) else OK


cdef inline Fault read_message_fields(
        Reader* r, const uint8_t* start, uint32_t* key_at, int32_t* key_size,
        uint32_t* value_at, int32_t* value_size) noexcept nogil:
    # Read the key and the value of a message. Their positions count from `start`.
    cdef const uint8_t* p = take(r, 4)
    if p is NULL or sized(r, start, <int32_t>be32(p), key_at, key_size):
        return TRUNCATED
    p = take(r, 4)
    if p is NULL or sized(r, start, <int32_t>be32(p), value_at, value_size):
        return TRUNCATED
    return OK


cdef inline Fault read_any_batch(Reader* r, Batch* row, bint check) noexcept nogil:
    cdef const uint8_t* p = r.at
    cdef Reader body
    cdef Fault fault
    cdef int32_t length
    if left(r) < LOG_OVERHEAD:
        return SHORT
    length = <int32_t>be32(p + 8)
    if length < SMALLEST_LENGTH:
        return ZEROS if length == 0 and be64(p) == 0 else BAD_LENGTH
    fault = enter(r, LOG_OVERHEAD, length, &body)
    if fault == SHORT and <int64_t>be64(p) == -1:
        return FILLER
    if fault:
        if fault == SHORT and left(r) > MAGIC_AT:
            if p[MAGIC_AT] > 2:
                row.head.fault = NOT_A_FRAME    # it may still be a frame if more bytes follow
            else:
                row.head.size = LOG_OVERHEAD + <uint32_t>length
        return fault
    row.head.kind = row.magic = p[MAGIC_AT]
    if row.magic == 2:
        return read_batch_v2(p, <size_t>(r.at - p), row, check)
    return read_message(p, <size_t>(r.at - p), row, check) if row.magic < 2 else BAD_MAGIC

cdef inline Fault read_batch(Reader* r, void* row, const Context* context) noexcept nogil:
    return read_any_batch(r, <Batch*>row, False)

cdef inline Fault read_batch_checked(Reader* r, void* row, const Context* context) noexcept nogil:
    return read_any_batch(r, <Batch*>row, True)


cdef inline Fault verify_batch(const void* parent, const Readable* buffer) noexcept nogil:
    # Verify the checksum of a batch that was scanned without a check.
    # Rows may come from a user, so the size and the magic are validated first.
    cdef const Batch* batch = <const Batch*>parent
    cdef const uint8_t* p = buffer.at + batch.head.start
    cdef uint32_t smallest = <uint32_t>(HEADER_V2 if batch.magic == 2 else HEADER_V0)
    if batch.head.size < smallest or p[16] != batch.magic:
        return BAD_CHECKSUM
    return OK if has_good_checksum(p, batch.head.size, batch.magic) else BAD_CHECKSUM


cdef inline size_t probe_batch(
        const uint8_t* at, const uint8_t* end, bint deep, SearchBudget* budget) noexcept nogil:
    # A ResyncProbe. Without `deep` it checks only the header: about 40 bits separate a usual
    # header from random bytes. With `deep` it verifies the checksum.
    cdef int64_t size, available = end - at
    cdef int64_t key, value, header
    cdef size_t distance = 0
    if available < HEADER_V0 + 8:
        return <size_t>available
    if deep:
        size = LOG_OVERHEAD + <int64_t><int32_t>be32(at + 8)
        if at[16] > 2 or size < (HEADER_V2 if at[16] == 2 else HEADER_V0 + 8):
            return 1
        if size > available:
            return UNDECIDED
        if not charge_budget(budget, at, <uint64_t>size):
            return 1
        return 0 if has_good_checksum(at, <size_t>size, at[16]) else 1
    # Most random bytes are rejected here: no magic is above 2.
    while distance < <size_t>available - HEADER_V0 - 8 and at[16 + distance] > 2:
        distance += 1
    if distance:
        return distance
    if le64(at + 8) == 0:
        return 5                            # the length is 0 here and at the next four positions
    if at[16] > 2 or at[0] & 0x80:
        return 1
    size = LOG_OVERHEAD + <int64_t><int32_t>be32(at + 8)
    if size < HEADER_V0 + 8:
        return 1
    if at[16] == 2:
        if (size < HEADER_V2 or available < HEADER_V2 or at[22] & CODEC > LAST_CODEC
                or at[23] & 0x80 or be32(at + 57) > be32(at + 23) + 1
                or <int32_t>be32(at + 12) < -1):
            return 1
    else:
        header = HEADER_V1 if at[16] else HEADER_V0
        if size < header + 8 or available < header + 8 or at[17] > (LOG_APPEND_TIME | CODEC):
            return 1
        key = max(<int32_t>be32(at + header), 0)
        if header + 8 + key > size:
            return 1
        if header + 8 + key > available:
            return UNDECIDED
        value = max(<int32_t>be32(at + header + 4 + key), 0)
        if header + 8 + key + value != size:
            return 1
    return 0
