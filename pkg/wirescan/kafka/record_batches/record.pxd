# Kernels for the records of a batch of any magic, and for the headers of a record.
# The docstring of scan.pyx shows the layouts.
from libc.string cimport memcpy
from wirescan.core cimport (
    BAD_CHECKSUM, BAD_COUNT, BAD_MAGIC, BAD_NULL, BAD_OFFSET, Context, Fault, Head, LEFTOVER,
    NESTED, NestedScan, OK, Readable, Reader, Rows, SHORT, TRUNCATED, be32, be64, enter, int32_t,
    int64_t, left, pack_pair, sized, store_word, take, uint8_t, uint32_t, uint64_t, zigzag32,
    zigzag64)
from wirescan.core.rows cimport reserve_row
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


cdef inline const Batch* get_batch(const NestedScan* nested, const Head* span) noexcept nogil:
    return <const Batch*>(nested.parents + <size_t>span.parent * nested.parent_stride)


cdef inline bint is_plain_message(const Batch* batch) noexcept nogil:
    # Return whether a batch is a message of magic 0 or 1 that is no wrapper.
    return batch.magic < 2 and batch.codec == 0


cdef inline uint64_t get_head_word(const Head* head) noexcept nogil:
    # Return the last word of a Head, which has the columns from `parent` to `fault`.
    cdef uint64_t word
    memcpy(&word, <const char*>head + sizeof(Head) - sizeof(word), sizeof(word))
    return word


cdef inline bint store_message(const NestedScan* nested, size_t i, char* row, uint64_t magic_1,
                               bint past) noexcept nogil:
    # Write the whole row of the only record in span i, as `read_record_plain` does, if the batch is
    # an intact plain message. Return False for any other batch.
    #
    # magic_1: the last word of a Head of kind 1, and 0 in all other columns. A copy of the span
    # with another kind would cost as much as everything else: the processor waits where a word is
    # loaded after a byte of it was stored.
    cdef const Head* span = nested.span + i
    cdef const Batch* batch = get_batch(nested, span)
    cdef const uint8_t* p = nested.buffers[span.buffer].at + span.start
    cdef int32_t key_size, value_size
    cdef uint32_t value_at
    cdef uint64_t head_word
    if not is_plain_message(batch) or span.kind or span.fault or nested.count[i] != 1 or span.size < 8:
        return False
    key_size = max(<int32_t>be32(p), -1)
    if max(key_size, 0) > <int64_t>span.size - 8:
        return False
    value_at = 8 + <uint32_t>max(key_size, 0)
    value_size = max(<int32_t>be32(p + value_at - 4), -1)
    if <int64_t>value_at + max(value_size, 0) != span.size:
        return False
    if nested.verify is not NULL and nested.verify(batch, nested.buffers + batch.head.buffer):
        return False
    head_word = get_head_word(span) | (magic_1 if batch.magic else 0)
    store_word(row, <uint64_t>span.start, past)
    store_word(row + 8, pack_pair(span.size, 0), past)
    store_word(row + 16, head_word, past)
    store_word(row + 24, <uint64_t>batch.base_offset, past)
    store_word(row + 32, <uint64_t>batch.base_timestamp, past)
    store_word(row + 40, pack_pair(4, value_at), past)
    store_word(row + 48, pack_pair(span.size, <uint32_t>key_size), past)
    store_word(row + 56, pack_pair(<uint32_t>value_size, 0), past)
    return True


cdef inline size_t store_messages(const NestedScan* nested, size_t i, Rows* rows) noexcept nogil:
    # Write the rows of consecutive intact plain messages from span i on. Return the number of the
    # span after them.
    cdef Head head = Head(0, 0, 0, 0, 0, 1, 0)
    cdef uint64_t magic_1 = get_head_word(&head)
    while (i < nested.spans and reserve_row(rows)
           and store_message(nested, i, rows.at + rows.count * sizeof(Record), magic_1,
                             nested.past)):
        rows.count += 1
        i += 1
    return i


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
    if batch.magic and batch.attributes & LOG_APPEND_TIME:
        row.timestamp = batch.max_timestamp
    else:
        row.timestamp = <int64_t>be64(p + 18) if p[16] else -1
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
