# A fast loop for records of the commonest shape. record.pxd reads all other records.
# The code is inline: each module that cimports it compiles it for its own target processor.
from libc.string cimport memcpy
from wirescan.core cimport (
    Head, Readable, Reader, VarintLayout, pack_pair, extract, le64, learn, matches, prefetch,
    store_word, uint8_t, uint32_t, uint64_t, unknown)
from wirescan.kafka.record_batches.rows cimport Batch, LOG_APPEND_TIME, Record

cdef enum:
    WORD = 8                        # bytes of one load
    FARTHEST = 128 << 10            # longest prefetch distance in bytes; fits a second-level cache


cdef inline size_t read_short_records(
        Reader* r, char* rows, size_t max_rows, const void* parent, const Readable* buffer,
        const Head* span, bint ahead, bint past) noexcept nogil:
    # Read records of magic 2 that have short varints and no headers. Return how many were read.
    # The loop loads whole words, so it stops before the last bytes of the buffer. It also stops
    # at the first record of another shape or with a fault: read_record_v2 reads that record.
    cdef const Batch* batch = <const Batch*>parent
    cdef bint append = (batch.attributes & LOG_APPEND_TIME) != 0
    cdef uint64_t base_timestamp = <uint64_t>(
        batch.max_timestamp if append else batch.base_timestamp)
    cdef uint64_t delta_mask = 0 if append else ~<uint64_t>0
    cdef Head head                  # the part of the head that all these rows share
    cdef uint64_t shared_word       # its last word
    cdef uint64_t word, value, key, timestamp, offset
    cdef char* row = rows
    cdef char* stop = rows + max_rows * sizeof(Record)
    cdef const uint8_t* start = r.at
    cdef const uint8_t* limit = r.end
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef uint32_t key_at, size
    cdef size_t distance = 0
    cdef VarintLayout length = unknown(), fields = unknown(), last = unknown()
    head.parent = span.parent
    head.buffer = span.buffer
    head.kind = 2
    head.fault = 0
    memcpy(&shared_word, <const char*>&head + sizeof(Head) - sizeof(shared_word),
           sizeof(shared_word))
    if batch.magic != 2 or buffer.end - start < WORD:
        return 0
    if ahead:                       # assume that the next batch is about as large as this one
        distance = min(<size_t>span.size, <size_t>FARTHEST)
    # No record of this loop ends after `limit`, so a word can be loaded at its end.
    limit = min(limit, buffer.end - WORD)
    while row < stop and start < limit:
        word = le64(start)
        if not matches(word, &length):
            length = learn(word, 0, 1)
            if length.used == 0:
                break
        p = start + length.used
        end = p + extract(word, &length, 0)
        if end > limit or length.sign[0]:
            break
        if ahead:
            prefetch(start + distance)
            prefetch(start + distance + 64)
        # Skip the attributes: none of their bits has a meaning.
        word = le64(p)
        if not matches(word, &fields):
            fields = learn(word, 1, 3)
            if fields.used == 0:
                break
        timestamp = extract(word, &fields, 0) ^ fields.sign[0]
        offset = extract(word, &fields, 1) ^ fields.sign[1]
        key = extract(word, &fields, 2)
        p += fields.used
        key_at = <uint32_t>(p - start)
        p += key & ~fields.sign[2]
        if p > end:
            break
        word = le64(p)
        if not matches(word, &last):
            last = learn(word, 0, 1)
            if last.used == 0:
                break
        value = extract(word, &last, 0)
        p += last.used
        if p + (value & ~last.sign[0]) + 1 != end or end[-1]:
            break                   # the last byte is the header count: 0 if there are no headers
        # Store the columns of a Record, two 32-bit columns in each word. The size of a null is -1.
        size = <uint32_t>(end - start)
        store_word(row, <uint64_t>(start - buffer.at), past)
        store_word(row + 8, pack_pair(size, <uint32_t>length.used), past)
        store_word(row + 16, shared_word, past)
        store_word(row + 24, <uint64_t>batch.base_offset + offset, past)
        store_word(row + 32, base_timestamp + (timestamp & delta_mask), past)
        store_word(row + 40, pack_pair(key_at, <uint32_t>(p - start)), past)
        store_word(row + 48, pack_pair(size, <uint32_t>(key | fields.sign[2])), past)
        store_word(row + 56, pack_pair(<uint32_t>(value | last.sign[0]), 0), past)
        start = end
        row += sizeof(Record)
    r.at = start
    return <size_t>(row - rows) // sizeof(Record)


cdef inline size_t read_run(
        Reader* r, char* rows, size_t max_rows, const void* parent, const Readable* buffer,
        const Head* span, bint ahead, bint past) noexcept nogil:
    # A ReadRun. A constant `past` gives each loop its own code without the other's branches.
    if past:
        return read_short_records(r, rows, max_rows, parent, buffer, span, ahead, True)
    return read_short_records(r, rows, max_rows, parent, buffer, span, ahead, False)
