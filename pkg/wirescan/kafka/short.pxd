# The records that nearly all are, as fast as they can be read. Inline: each module that cimports this compiles it for
# the processor that it is for.
from wirescan.core cimport (
    Head, Readable, Reader, foreseen_length, int32_t, int64_t, le64, prefetch, short_half, short_halves, uint8_t,
    uint32_t, uint64_t)
from wirescan.kafka.scan cimport Batch, LOG_APPEND_TIME, Record

cdef enum:
    WORD = 8                        # bytes that are loaded together
    FARTHEST = 128 << 10            # bytes to read ahead: what a second-level cache keeps beside other things


cdef inline size_t read_short_records(Reader* r, char* rows, size_t most, const void* parent, const Readable* buffer,
                                      const Head* span, bint ahead) noexcept nogil:
    # Records of magic 2 with short varints and no headers, but for the last bytes of the buffer, so that whole words
    # can be loaded. What is otherwise, or looks bad, is left to record_v2.
    cdef const Batch* batch = <const Batch*>parent
    cdef uint64_t base_offset = <uint64_t>batch.base_offset
    cdef bint append = (batch.attributes & LOG_APPEND_TIME) != 0
    cdef uint64_t base_timestamp = <uint64_t>(batch.max_timestamp if append else batch.base_timestamp)
    cdef uint64_t counted = 0 if append else ~<uint64_t>0
    cdef uint64_t size, key, value
    cdef int64_t timestamp_delta = 0, offset_delta = 0
    cdef Record* row = <Record*>rows
    cdef Record* stop = row + most
    cdef const uint8_t* base = buffer.at
    cdef const uint8_t* start = r.at
    cdef const uint8_t* limit = r.end
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef size_t used = 0, body = 0, distance = 0
    cdef bint no_key = False, no_value = False
    cdef uint32_t key_at
    cdef uint64_t belongs
    cdef Head head = span[0]
    if batch.magic != 2 or buffer.end - start < WORD:
        return 0
    if ahead:                                           # the next batch is about as large as this one
        distance = min(<size_t>span.size, <size_t>FARTHEST)
    # No record that is read here ends later: a word can be loaded at its end.
    limit = min(limit, buffer.end - WORD)
    head.kind = 2
    belongs = (<uint64_t*>&head)[2]                     # parent, buffer, kind and fault
    while row < stop and start < limit:
        size = foreseen_length(le64(start), &body)
        p = start + body
        end = p + size
        if body > WORD or end > limit:
            break
        if ahead:
            prefetch(start + distance)
            prefetch(start + distance + 64)
        # Behind the attributes, of which no bit has a meaning.
        key = short_halves(le64(p), &timestamp_delta, &offset_delta, &no_key, &used)
        if used > WORD:
            break
        p += used
        key_at = <uint32_t>(p - start)
        if no_key:
            row.key_size = -1
        else:
            row.key_size = <int32_t>key
            p += key
        if p > end:
            break
        value = short_half(le64(p), &no_value, &used)
        p += used
        if no_value:
            row.value_size, value = -1, 0
        else:
            row.value_size = <int32_t>value
        if used > WORD or p + value + 1 != end or end[-1]:
            break                                       # the last byte is 0 where there are no headers
        row.head.start = start - base
        row.head.size, row.head.body = <uint32_t>(end - start), <uint32_t>body
        (<uint64_t*>row)[2] = belongs
        row.offset = <int64_t>(base_offset + <uint64_t>offset_delta)
        row.timestamp = <int64_t>(base_timestamp + (<uint64_t>timestamp_delta & counted))
        row.key_at, row.value_at, row.headers_at = key_at, <uint32_t>(p - start), <uint32_t>(end - start)
        row.header_count = 0
        start = end
        row += 1
    r.at = start
    return row - <Record*>rows
