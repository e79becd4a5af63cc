# Kernels for the records of a batch of any magic, and for the headers of a record.
# The docstring of scan.pyx shows the layouts.
from libc.string cimport memcpy
from wirescan.core cimport (
    BAD_CHECKSUM, BAD_COUNT, BAD_MAGIC, BAD_NULL, BAD_OFFSET, Context, Fault, LEFTOVER, NESTED, OK,
    Reader, SHORT, TRUNCATED, be32, be64, enter, int32_t, int64_t, left, pack_pair, sized,
    store_word, take, uint8_t, uint32_t, uint64_t, zigzag32, zigzag64)
from wirescan.kafka.record_batches.batch cimport has_good_checksum, read_message_fields
from wirescan.kafka.record_batches.rows cimport (
    Batch, CODEC, HEADER_V0, HEADER_V1, Header, LOG_APPEND_TIME, LOG_OVERHEAD, Record,
    SMALLEST_LENGTH, SMALLEST_RECORD)


cdef inline Fault read_record_v2(Reader* r, Record* row, const Batch* batch) noexcept nogil:
    cdef const uint8_t* start = r.at
    cdef Reader body
    cdef int64_t timestamp_delta = 0
    cdef int32_t length = 0, offset_delta = 0, size = 0
    cdef Fault fault = zigzag32(r, &length)
    if fault:
        r.at = r.end
        return fault
    row.head.body = <uint32_t>(r.at - start)
    if length < SMALLEST_RECORD or enter(r, 0, length, &body):
        return SHORT
    row.head.kind = 2
    if take(&body, 1) is NULL:          # attributes: none of their bits has a meaning
        return TRUNCATED
    fault = zigzag64(&body, &timestamp_delta)
    if fault:
        return fault
    fault = zigzag32(&body, &offset_delta)
    if fault:
        return fault
    fault = zigzag32(&body, &size)
    if fault:
        return fault
    if sized(&body, start, size, &row.key_at, &row.key_size):
        return TRUNCATED
    fault = zigzag32(&body, &size)
    if fault:
        return fault
    if sized(&body, start, size, &row.value_at, &row.value_size):
        return TRUNCATED
    fault = zigzag32(&body, &row.header_count)
    if fault:
        return fault
    row.headers_at = <uint32_t>(body.at - start)
    row.offset = <int64_t>(<uint64_t>batch.base_offset + <uint64_t><int64_t>offset_delta)
    if batch.attributes & LOG_APPEND_TIME:
        row.timestamp = batch.max_timestamp
    else:
        row.timestamp = <int64_t>(<uint64_t>batch.base_timestamp + <uint64_t>timestamp_delta)
    if row.header_count == 0:
        return LEFTOVER if left(&body) else OK
    # A header has at least two bytes.
    if row.header_count < 0 or <size_t>row.header_count > left(&body) // 2:
        return BAD_COUNT
    return OK


cdef inline Fault read_message_record(
        Reader* body, const uint8_t* start, Record* row) noexcept nogil:
    if read_message_fields(body, start, &row.key_at, &row.key_size, &row.value_at, &row.value_size):
        return TRUNCATED
    row.headers_at = <uint32_t>(body.at - start)
    return LEFTOVER if left(body) else OK


cdef inline Fault read_record_plain(Reader* r, Record* row, const Batch* batch) noexcept nogil:
    # The batch is one plain message. Only its key and value are left to read.
    cdef const uint8_t* start = r.at
    cdef Reader body = Reader(r.at, r.end)
    r.at = r.end
    row.head.kind = batch.magic
    row.offset = batch.base_offset
    row.timestamp = batch.base_timestamp
    return read_message_record(&body, start, row)


cdef inline bint store_message(const Batch* batch, const uint8_t* frame, uint32_t parent,
                               char* row, bint bypass) noexcept nogil:
    # Write the whole row of the record in an intact plain message. Its columns are those that
    # `read_record_plain` gives. Return False for any other batch, and for a row that no scan makes.
    #
    # frame: the first byte of the batch. parent: the number of its row.
    cdef uint32_t body = batch.head.body
    cdef uint32_t value_at, tail
    cdef int32_t key_size, value_size
    cdef int64_t size = <int64_t>batch.head.size - body
    if (batch.magic > 1 or batch.codec or batch.head.fault or batch.head.kind != batch.magic
            or batch.record_count != 1 or size < 8):
        return False
    key_size = max(<int32_t>be32(frame + body), -1)
    if max(key_size, 0) > size - 8:
        return False
    value_at = 8 + <uint32_t>max(key_size, 0)
    value_size = max(<int32_t>be32(frame + body + value_at - 4), -1)
    if value_at + <int64_t>max(value_size, 0) != size:
        return False
    # The columns buffer, kind and fault are the same in both rows.
    memcpy(&tail, &batch.head.buffer, sizeof(tail))
    store_word(row, <uint64_t>batch.head.start + body, bypass)
    store_word(row + 8, pack_pair(<uint32_t>size, 0), bypass)
    store_word(row + 16, pack_pair(parent, tail), bypass)
    store_word(row + 24, <uint64_t>batch.base_offset, bypass)
    store_word(row + 32, <uint64_t>batch.base_timestamp, bypass)
    store_word(row + 40, pack_pair(4, value_at), bypass)
    store_word(row + 48, pack_pair(<uint32_t>size, <uint32_t>key_size), bypass)
    store_word(row + 56, pack_pair(<uint32_t>value_size, 0), bypass)
    return True


cdef inline Fault read_record_inner(
        Reader* r, Record* row, const Batch* batch, bint check) noexcept nogil:
    # Read one message of the message set inside a wrapper.
    cdef const uint8_t* p = r.at
    cdef Reader body
    cdef int32_t length
    if left(r) < LOG_OVERHEAD:
        return SHORT
    length = <int32_t>be32(p + 8)
    if length < SMALLEST_LENGTH or enter(r, LOG_OVERHEAD, length, &body):
        return SHORT
    row.head.kind = p[16]
    if p[16] > 1:
        return BAD_MAGIC
    row.offset = <int64_t>be64(p)
    row.head.body = HEADER_V1 if p[16] else HEADER_V0
    if take(&body, row.head.body - LOG_OVERHEAD) is NULL:
        return TRUNCATED
    if check and not has_good_checksum(p, <size_t>(r.at - p), p[16]):
        return BAD_CHECKSUM
    if p[17] & CODEC:
        return NESTED
    if p[16] == 0:
        row.timestamp = -1              # a message of magic 0 has no timestamp in any wrapper
    elif batch.magic and batch.attributes & LOG_APPEND_TIME:
        row.timestamp = batch.max_timestamp
    else:
        row.timestamp = <int64_t>be64(p + 18)
    return read_message_record(&body, p, row)


cdef inline Fault read_any_record(
        Reader* r, Record* row, const Batch* batch, bint check) noexcept nogil:
    if batch.magic == 2:
        return read_record_v2(r, row, batch)
    if batch.codec:
        return read_record_inner(r, row, batch, check)
    return read_record_plain(r, row, batch)

cdef inline Fault read_record(Reader* r, void* row, const Context* context) noexcept nogil:
    return read_any_record(r, <Record*>row, <const Batch*>context.parent, False)

cdef inline Fault read_record_checked(Reader* r, void* row, const Context* context) noexcept nogil:
    return read_any_record(r, <Record*>row, <const Batch*>context.parent, True)


cdef inline size_t close_batch(const void* parent, char* rows, size_t count) noexcept nogil:
    # A CloseFrame: make the offsets inside a magic 1 wrapper absolute. Return how many rows fail.
    # On the wire they are relative, and the wrapper has the absolute offset of its last message.
    # If the last message cannot be read, no offset is known. A wrapper with offset 0 is left
    # unchanged: its producer wrote absolute offsets.
    cdef const Batch* batch = <const Batch*>parent
    cdef Record* row = <Record*>rows
    cdef int64_t last
    cdef uint64_t shift
    cdef bint is_readable
    cdef size_t i, bad = 0
    if batch.magic != 1 or batch.codec == 0 or batch.base_offset == 0 or count == 0:
        return 0
    last = row[count - 1].offset
    is_readable = row[count - 1].head.body != 0 and last <= batch.base_offset
    shift = <uint64_t>batch.base_offset - <uint64_t>last
    for i in range(count):
        if is_readable and row[i].head.body:
            row[i].offset = <int64_t>(<uint64_t>row[i].offset + shift)
        elif not row[i].head.fault:
            row[i].head.fault = BAD_OFFSET
            bad += 1
    return bad


cdef inline Fault read_header(Reader* r, void* out, const Context* context) noexcept nogil:
    cdef Header* row = <Header*>out
    cdef const uint8_t* start = r.at
    cdef int32_t size = 0
    cdef Fault fault = zigzag32(r, &size)
    if not fault:
        row.head.body = <uint32_t>(r.at - start)
        fault = BAD_NULL if size < 0 else sized(r, start, size, &row.key_at, &row.key_size)
    if not fault:
        fault = zigzag32(r, &size)
    if not fault:
        fault = sized(r, start, size, &row.value_at, &row.value_size)
    if fault:
        r.at = r.end                    # a header has no length, so the next one is not known
    return fault
