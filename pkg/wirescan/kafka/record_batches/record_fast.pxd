# Fast loops for records with short varints. record.pxd reads all other records.
# The code is inline: each module that cimports it compiles it for its own target processor.
#
# `read_alike_records` expects that each record has the layout of the one before. Where layouts
# change often, its branches are mispredicted, and `read_varied_records` is faster: it has no branch
# that depends on the size of a varint. `read_short_records` alternates between the two.
from libc.string cimport memcpy
from wirescan.core cimport (
    Head, Readable, Reader, TOPS, VarintLayout, extract, int64_t, join_groups, le64, learn, lowest,
    matches, pack_pair, prefetch, store_word, uint8_t, uint32_t, uint64_t, unknown, unzigzag)
from wirescan.kafka.record_batches.rows cimport Batch, LOG_APPEND_TIME, Record

cdef enum:
    MARGIN = 32                     # readable bytes after the last record of these loops
    FARTHEST = 128 << 10            # longest prefetch distance in bytes; fits a second-level cache
    # Layouts that are learnt before the records count as varied. The first record has three, and
    # two more are usual: of the first delta of an offset, and of a timestamp, that has two bytes.
    CHANGES = 6
    FEW = 8                        # records that are not worth learning layouts
    VARIED = 256                    # varied records that are read before the next layout is tried
    # Varints of more than four bytes are left to record.pxd, except in timestamps.
    SHORT_ENDS = 0x80808080         # the top bits of four bytes
    SHORT_BITS = 32                 # their number of bits
    ODD_COUNT = 0x81                # bits of a header count that is negative or has two bytes

# The records of one batch that are left to read, and what their rows share.
cdef struct Run:
    char* row
    const char* stop                # end of the rows
    const uint8_t* start            # of the next record
    const uint8_t* limit            # no record of these loops ends after it
    const uint8_t* base             # first byte of the buffer
    uint64_t head_word              # the last word of the Head
    uint64_t base_offset
    uint64_t base_timestamp
    uint64_t delta_mask             # 0 where all records have the batch's timestamp
    size_t distance                 # bytes to prefetch ahead, or 0


cdef inline void store_record(
        const Run* run, bint past, const uint8_t* end, uint32_t body, uint64_t timestamp,
        uint64_t offset, uint64_t key, uint64_t value, uint64_t headers) noexcept nogil:
    # Store the columns of a Record. `key` and `value` are pairs of 32-bit columns: place and size.
    # `headers` is a pair too: place and count.
    cdef char* row = run.row
    store_word(row, <uint64_t>(run.start - run.base), past)
    store_word(row + 8, pack_pair(<uint32_t>(end - run.start), body), past)
    store_word(row + 16, run.head_word, past)
    store_word(row + 24, run.base_offset + offset, past)
    store_word(row + 32, run.base_timestamp + (timestamp & run.delta_mask), past)
    store_word(row + 40, pack_pair(<uint32_t>key, <uint32_t>value), past)
    store_word(row + 48, pack_pair(<uint32_t>headers, <uint32_t>(key >> 32)), past)
    store_word(row + 56, pack_pair(<uint32_t>(value >> 32), <uint32_t>(headers >> 32)), past)


cdef inline void prefetch_record(const Run* run) noexcept nogil:
    if run.distance:
        prefetch(run.start + run.distance)
        prefetch(run.start + run.distance + 64)


cdef inline void read_alike_records(Run* state, bint past) noexcept nogil:
    # Read records without headers, until more than CHANGES layouts were learnt.
    cdef Run run = state[0]         # so that the compiler keeps it in registers
    cdef VarintLayout length = unknown(), fields = unknown(), last = unknown()
    cdef uint64_t word, value, key, timestamp, offset
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef uint32_t key_at
    cdef size_t changes = 0
    while run.row < run.stop and run.start < run.limit:
        word = le64(run.start)
        if not matches(word, &length):
            length = learn(word, 0, 1)
            changes += 1
            if length.used == 0:
                break
        p = run.start + length.used
        end = p + extract(word, &length, 0)
        if end > run.limit or length.sign[0]:
            break
        prefetch_record(&run)
        # Skip the attributes: none of their bits has a meaning.
        word = le64(p)
        if not matches(word, &fields):
            fields = learn(word, 1, 3)
            changes += 1
            if fields.used == 0:
                break
        timestamp = extract(word, &fields, 0) ^ fields.sign[0]
        offset = extract(word, &fields, 1) ^ fields.sign[1]
        key = extract(word, &fields, 2)
        p += fields.used
        key_at = <uint32_t>(p - run.start)
        p += key & ~fields.sign[2]
        if p > end:
            break
        word = le64(p)
        if not matches(word, &last):
            last = learn(word, 0, 1)
            changes += 1
            if last.used == 0:
                break
        value = extract(word, &last, 0)
        p += last.used
        if p + (value & ~last.sign[0]) + 1 != end or end[-1]:
            break                   # the last byte is the header count: 0 if there are no headers
        # The size of a null is -1.
        store_record(
            &run, past, end, <uint32_t>length.used, timestamp, offset,
            key_at | (key | fields.sign[2]) << 32,
            <uint32_t>(p - run.start) | (value | last.sign[0]) << 32,
            <uint32_t>(end - run.start))
        run.start = end
        run.row += sizeof(Record)
        if changes > CHANGES:
            break
    state.start = run.start
    state.row = run.row


cdef inline uint64_t cover_first(uint64_t ends) noexcept nogil:
    # Return the bits of a word up to the end of its first varint; all bits if none ends in it.
    # `ends` has the top bits of the bytes that end a varint.
    return ends ^ (ends - 1)


cdef inline void read_varied_records(Run* state, bint past) noexcept nogil:
    # Read at most VARIED records, with fewer than 64 headers each. A good record takes none of the
    # branches.
    cdef Run run = state[0]
    cdef uint64_t word, ends, last, first, second, length, header_count
    cdef int64_t timestamp, offset, key_size, value_size
    cdef uint32_t body, key_at, value_at
    cdef unsigned int first_end, second_end, third_end
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef const char* stop = run.row + VARIED * sizeof(Record)
    if stop > run.stop:
        stop = run.stop
    while run.row < stop and run.start < run.limit:
        word = le64(run.start)
        ends = ~word & TOPS
        length = join_groups(word, 0, cover_first(ends))
        body = (lowest(ends) >> 3) + 1
        p = run.start + body
        if (ends & SHORT_ENDS) == 0 or length & 1 or <int64_t>(length >> 1) > run.limit - p:
            break
        end = p + (length >> 1)
        prefetch_record(&run)
        # Skip the attributes. The next three varints end within one word.
        word = le64(p + 1)
        ends = ~word & TOPS
        first = cover_first(ends)
        first_end = lowest(ends)
        timestamp = unzigzag(join_groups(word, 0, first))
        ends &= ends - 1
        second = cover_first(ends)
        second_end = lowest(ends)
        offset = unzigzag(join_groups(word, first, second))
        ends &= ends - 1
        third_end = lowest(ends)
        key_size = unzigzag(join_groups(word, second, cover_first(ends)))
        p += 2 + (third_end >> 3)
        key_at = <uint32_t>(p - run.start)
        if max(key_size, 0) >= end - p:
            break
        p += max(key_size, 0)
        word = le64(p)
        last = ~word & TOPS
        value_size = unzigzag(join_groups(word, 0, cover_first(last)))
        p += (lowest(last) >> 3) + 1
        value_at = <uint32_t>(p - run.start)
        if max(value_size, 0) >= end - p:
            break
        p += max(value_size, 0)
        header_count = p[0]         # its code: twice the number, or an odd one if it is negative
        p += 1
        # A header has at least two bytes. Without headers no bytes are left.
        if ((ends == 0) | ((last & SHORT_ENDS) == 0)
                | (second_end - first_end > SHORT_BITS) | (third_end - second_end > SHORT_BITS)
                | ((header_count & ODD_COUNT) != 0) | (<int64_t>header_count > end - p)
                | ((header_count == 0) & (p != end))):
            break
        store_record(
            &run, past, end, body, <uint64_t>timestamp, <uint64_t>offset,
            key_at | <uint64_t>(key_size | (key_size >> 63)) << 32,
            value_at | <uint64_t>(value_size | (value_size >> 63)) << 32,
            <uint32_t>(p - run.start) | (header_count >> 1) << 32)
        run.start = end
        run.row += sizeof(Record)
    state.start = run.start
    state.row = run.row


cdef inline size_t read_short_records(
        Reader* r, char* rows, size_t max_rows, const void* parent, const Readable* buffer,
        const Head* span, bint ahead, bint past) noexcept nogil:
    # Read records of magic 2 with short varints. Return how many were read. The loops load whole
    # words, so they stop before the last bytes of the buffer. They also stop at the first record of
    # another shape or with a fault: read_record_v2 reads that record.
    cdef const Batch* batch = <const Batch*>parent
    cdef bint append = (batch.attributes & LOG_APPEND_TIME) != 0
    cdef Run run
    cdef Head head                  # the part of the head that all these rows share
    cdef char* row
    if batch.magic != 2 or buffer.end - r.at < MARGIN:
        return 0
    head.parent = span.parent
    head.buffer = span.buffer
    head.kind = 2
    head.fault = 0
    run.row = rows
    run.stop = rows + max_rows * sizeof(Record)
    run.start = r.at
    # A word is loaded at most nine bytes after the end of its record, before that is noticed.
    run.limit = min(r.end, buffer.end - MARGIN)
    run.base = buffer.at
    memcpy(&run.head_word, <const char*>&head + sizeof(Head) - sizeof(run.head_word),
           sizeof(run.head_word))
    run.base_offset = <uint64_t>batch.base_offset
    run.base_timestamp = <uint64_t>(batch.max_timestamp if append else batch.base_timestamp)
    run.delta_mask = 0 if append else ~<uint64_t>0
    # Assume that the next batch is about as large as this one.
    run.distance = min(<size_t>span.size, <size_t>FARTHEST) if ahead else 2048
    while run.row < run.stop and run.start < run.limit:
        row = run.row
        # To learn layouts costs more than it saves where few records are left.
        if run.stop - row > FEW * <ssize_t>sizeof(Record):
            read_alike_records(&run, past)
        read_varied_records(&run, past)
        if run.row == row:
            break
    r.at = run.start
    return <size_t>(run.row - rows) // sizeof(Record)


cdef inline size_t read_run(
        Reader* r, char* rows, size_t max_rows, const void* parent, const Readable* buffer,
        const Head* span, bint ahead, bint past) noexcept nogil:
    # A ReadRun. A constant `past` gives each loop its own code without the other's branches.
    if past:
        return read_short_records(r, rows, max_rows, parent, buffer, span, ahead, True)
    return read_short_records(r, rows, max_rows, parent, buffer, span, ahead, False)
