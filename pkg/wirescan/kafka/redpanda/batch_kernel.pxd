# Kernel for the batches of Redpanda. The docstring of batch_scan.pyx shows the layout.
from wirescan.core cimport (
    BAD_CHECKSUM, BAD_CODEC, BAD_COUNT, BAD_LENGTH, Context, Fault, NOT_A_FRAME, OK, Readable,
    Reader, SHORT, SearchBudget, UNDECIDED, ZEROS, charge_budget, crc32c_of, enter, int16_t,
    int32_t, int64_t, le16, le32, le64, left, uint8_t, uint32_t, uint64_t)
from wirescan.core.checksum cimport extend_crc32c
from wirescan.kafka.record_batches.rows cimport Batch, CODEC, CONTROL, LAST_CODEC, TRANSACTIONAL

cdef enum:
    REDPANDA_HEADER = 61        # bytes up to the first record
    HEADER_CRC_SIZE = 4         # the first bytes: their checksum covers the rest of the header
    SIZE_AT = 4
    BASE_OFFSET_AT = 8
    TYPE_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21          # the checksum of the records covers the header from here on
    LAST_DELTA_AT = 23
    COUNT_AT = 57
    RECORD_MAGIC = 2            # the records are those of Kafka's batches of magic 2


cdef inline bint is_header_intact(const uint8_t* p) noexcept nogil:
    return crc32c_of(p + HEADER_CRC_SIZE, REDPANDA_HEADER - HEADER_CRC_SIZE) == le32(p)


cdef inline void reverse_bytes(uint8_t* to, const uint8_t* p, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        to[i] = p[n - 1 - i]


cdef inline bint are_records_intact(const uint8_t* p, size_t size) noexcept nogil:
    # The checksum is Kafka's: that of the same fields as big-endian numbers, and of the records.
    cdef uint8_t fields[REDPANDA_HEADER - ATTRIBUTES_AT]
    reverse_bytes(fields, p + ATTRIBUTES_AT, 2)
    reverse_bytes(fields + 2, p + LAST_DELTA_AT, 4)
    reverse_bytes(fields + 6, p + 27, 8)
    reverse_bytes(fields + 14, p + 35, 8)
    reverse_bytes(fields + 22, p + 43, 8)
    reverse_bytes(fields + 30, p + 51, 2)
    reverse_bytes(fields + 32, p + 53, 4)
    reverse_bytes(fields + 36, p + COUNT_AT, 4)
    return extend_crc32c(crc32c_of(fields, sizeof(fields)), p + REDPANDA_HEADER,
                         size - REDPANDA_HEADER) == le32(p + CRC_AT)


cdef inline Fault read_any_redpanda_batch(Reader* r, Batch* row, bint check) noexcept nogil:
    cdef const uint8_t* p = r.at
    cdef Reader body
    cdef Fault fault
    cdef int32_t size
    if left(r) >= BASE_OFFSET_AT and le64(p) == 0:
        return ZEROS                            # the size is 0, whatever follows
    if left(r) < REDPANDA_HEADER:
        return SHORT
    size = <int32_t>le32(p + SIZE_AT)
    if size < REDPANDA_HEADER:
        return BAD_LENGTH
    fault = enter(r, 0, size, &body)
    if fault:
        # Only an intact header proves that the batch is cut. It is verified without `check` too,
        # because `Parser.verify` sees no cut batch.
        if not is_header_intact(p):
            row.head.fault = NOT_A_FRAME
        else:
            row.head.size = <uint32_t>size
        return fault
    row.head.kind = p[TYPE_AT]
    row.head.body = REDPANDA_HEADER
    row.magic = RECORD_MAGIC
    row.leader_epoch = -1                       # the term is in the name of the file
    row.base_offset = <int64_t>le64(p + BASE_OFFSET_AT)
    row.crc = le32(p + CRC_AT)
    row.attributes = <int16_t>le16(p + ATTRIBUTES_AT)
    row.last_offset = <int64_t>(
        le64(p + BASE_OFFSET_AT) + <uint64_t><int64_t><int32_t>le32(p + LAST_DELTA_AT))
    row.base_timestamp = <int64_t>le64(p + 27)
    row.max_timestamp = <int64_t>le64(p + 35)
    row.producer_id = <int64_t>le64(p + 43)
    row.producer_epoch = <int16_t>le16(p + 51)
    row.base_sequence = <int32_t>le32(p + 53)
    row.record_count = <int32_t>le32(p + COUNT_AT)
    row.codec = row.attributes & CODEC
    row.is_transactional = (row.attributes & TRANSACTIONAL) != 0
    row.is_control = (row.attributes & CONTROL) != 0
    if check and not (is_header_intact(p) and are_records_intact(p, <size_t>size)):
        return BAD_CHECKSUM
    if row.codec > LAST_CODEC:
        return BAD_CODEC
    return BAD_COUNT if row.record_count < 0 else OK

cdef inline Fault read_redpanda_batch(
        Reader* r, void* row, const Context* context) noexcept nogil:
    return read_any_redpanda_batch(r, <Batch*>row, False)

cdef inline Fault read_redpanda_batch_checked(
        Reader* r, void* row, const Context* context) noexcept nogil:
    return read_any_redpanda_batch(r, <Batch*>row, True)


cdef inline Fault verify_redpanda_batch(const Batch* batch,
                                        const Readable* buffer) noexcept nogil:
    # Verify both checksums of a batch that was scanned without a check.
    # Rows may come from a user, so the size is validated first.
    cdef const uint8_t* p = buffer.at + batch.head.start
    if batch.head.size < REDPANDA_HEADER or le32(p + SIZE_AT) != batch.head.size:
        return BAD_CHECKSUM
    if is_header_intact(p) and are_records_intact(p, batch.head.size):
        return OK
    return BAD_CHECKSUM


cdef inline size_t probe_redpanda_batch(
        const uint8_t* at, const uint8_t* end, bint deep, SearchBudget* budget) noexcept nogil:
    # A ResyncProbe. Without `deep` it verifies only the header, if its fields are usual. With
    # `deep` it verifies both checksums.
    cdef int64_t size, available = end - at
    cdef size_t distance = 0
    if available < REDPANDA_HEADER:
        return <size_t>available
    if not deep:
        # Most bytes are rejected here: no usual type is 0, and the high byte of attributes is 0.
        while distance < <size_t>available - REDPANDA_HEADER and (
                at[TYPE_AT + distance] == 0 or at[ATTRIBUTES_AT + 1 + distance]):
            distance += 1
        if distance:
            return distance
    size = <int64_t><int32_t>le32(at + SIZE_AT)
    if size < REDPANDA_HEADER:
        return 1
    if not deep and (
            at[15] & 0x80 or not 0 < at[TYPE_AT] < 0x80 or at[ATTRIBUTES_AT + 1]
            or at[ATTRIBUTES_AT] & CODEC > LAST_CODEC or at[26] & 0x80
            or le32(at + COUNT_AT) > le32(at + LAST_DELTA_AT) + 1):
        return 1
    if not is_header_intact(at):
        return 1
    if not deep:
        return 0
    if size > available:
        return UNDECIDED
    if not charge_budget(budget, at, <uint64_t>size):
        return 1
    return 0 if are_records_intact(at, <size_t>size) else 1
