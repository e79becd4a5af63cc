# The records that nearly all are, as fast as they can be read. Inline: each module that cimports this compiles it for
# the processor that it is for.
from libc.string cimport memcpy
from wirescan.core cimport (
    Head, Readable, Reader, Shape, beside, half, le64, learn, lies, prefetch, put, uint8_t, uint32_t,
    uint64_t, unknown)
from wirescan.kafka.scan cimport Batch, LOG_APPEND_TIME, Record

cdef enum:
    WORD = 8                        # bytes that are loaded together
    FARTHEST = 128 << 10            # bytes to read ahead: what a second-level cache keeps beside other things


cdef inline size_t read_short_records(Reader* r, char* rows, size_t most, const void* parent, const Readable* buffer,
                                      const Head* span, bint ahead, bint past) noexcept nogil:
    # Records of magic 2 with short varints and no headers, but for the last bytes of the buffer, so that whole words
    # can be loaded. What is otherwise, or looks bad, is left to record_v2.
    cdef const Batch* batch = <const Batch*>parent
    cdef bint append = (batch.attributes & LOG_APPEND_TIME) != 0
    cdef uint64_t base_timestamp = <uint64_t>(batch.max_timestamp if append else batch.base_timestamp)
    cdef uint64_t counted = 0 if append else ~<uint64_t>0
    cdef Head head                                      # what the heads of all these rows have in common
    cdef uint64_t belongs                               # its last word
    cdef uint64_t word, value, key, timestamp, offset
    cdef char* row = rows
    cdef char* stop = rows + most * sizeof(Record)
    cdef const uint8_t* start = r.at
    cdef const uint8_t* limit = r.end
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef uint32_t key_at, size
    cdef size_t distance = 0
    cdef Shape length = unknown(), fields = unknown(), last = unknown()
    head.parent = span.parent
    head.buffer = span.buffer
    head.kind = 2
    head.fault = 0
    memcpy(&belongs, <const char*>&head + sizeof(Head) - sizeof(belongs), sizeof(belongs))
    if batch.magic != 2 or buffer.end - start < WORD:
        return 0
    if ahead:                                           # the next batch is about as large as this one
        distance = min(<size_t>span.size, <size_t>FARTHEST)
    # No record that is read here ends later: a word can be loaded at its end.
    limit = min(limit, buffer.end - WORD)
    while row < stop and start < limit:
        word = le64(start)
        if not lies(word, &length):
            length = learn(word, 0, 1)
            if length.used == 0:
                break
        p = start + length.used
        end = p + half(word, &length, 0)
        if end > limit or length.sign[0]:
            break
        if ahead:
            prefetch(start + distance)
            prefetch(start + distance + 64)
        # Behind the attributes, of which no bit has a meaning.
        word = le64(p)
        if not lies(word, &fields):
            fields = learn(word, 1, 3)
            if fields.used == 0:
                break
        timestamp = half(word, &fields, 0) ^ fields.sign[0]
        offset = half(word, &fields, 1) ^ fields.sign[1]
        key = half(word, &fields, 2)
        p += fields.used
        key_at = <uint32_t>(p - start)
        p += key & ~fields.sign[2]
        if p > end:
            break
        word = le64(p)
        if not lies(word, &last):
            last = learn(word, 0, 1)
            if last.used == 0:
                break
        value = half(word, &last, 0)
        p += last.used
        if p + (value & ~last.sign[0]) + 1 != end or end[-1]:
            break                                       # the last byte is 0 where there are no headers
        # The columns of a Record, each pair of 32 bits together; of a null the size is -1.
        size = <uint32_t>(end - start)
        put(row, <uint64_t>(start - buffer.at), past)
        put(row + 8, beside(size, <uint32_t>length.used), past)
        put(row + 16, belongs, past)
        put(row + 24, <uint64_t>batch.base_offset + offset, past)
        put(row + 32, base_timestamp + (timestamp & counted), past)
        put(row + 40, beside(key_at, <uint32_t>(p - start)), past)
        put(row + 48, beside(size, <uint32_t>(key | fields.sign[2])), past)
        put(row + 56, beside(<uint32_t>(value | last.sign[0]), 0), past)
        start = end
        row += sizeof(Record)
    r.at = start
    return <size_t>(row - rows) // sizeof(Record)
