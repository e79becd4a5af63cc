# Kernels of frames, and of the pairs in data frames. scan.pyx draws their bytes.
from wirescan.core cimport (
    BAD_LENGTH, Context, EMPTY, Fault, Head, NOT_A_FRAME, OK, Readable, Reader, RunMemory, SHORT,
    TRUNCATED, be32, enter, int32_t, int64_t, left, pack_common, pack_pair, sized, store_word, take,
    uint8_t, uint32_t, uint64_t)
from wirescan.lumberjack.rows cimport (
    ACK, COMPRESSED, DATA, Frame, JSON, LARGEST, LARGEST_FRAME, LONG_HEADER, MAX_PAIRS, Pair,
    SHORT_HEADER, SMALLEST_PAIR, WINDOW)


cdef inline bint is_version(uint8_t byte) noexcept nogil:
    return byte == b"1" or byte == b"2"


cdef inline Fault report_short(Frame* row, uint64_t least) noexcept nogil:
    # The bytes end inside a frame of at least `least` bytes. The loop compares `size` with the
    # limit on frames.
    row.head.size = <uint32_t>min(least, <uint64_t>LARGEST_FRAME)
    return SHORT


cdef inline Fault read_data(Reader* r, Frame* row) noexcept nogil:
    # A data frame has no length: only a walk over its pairs finds its end.
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p
    cdef Reader walk = Reader(start + LONG_HEADER, r.end)
    cdef uint32_t pairs = row.count
    cdef uint32_t size
    cdef int half                   # 0: the key, 1: the value
    while pairs:
        for half in range(2):
            p = take(&walk, 4)
            if p is NULL:
                return report_short(row, <uint64_t>(walk.at - start)
                                    + <uint64_t>SMALLEST_PAIR * pairs - 4 * half)
            size = be32(p)
            if size > LARGEST:
                return BAD_LENGTH
            if take(&walk, size) is NULL:
                return report_short(row, <uint64_t>(walk.at - start)
                                    + <uint64_t>SMALLEST_PAIR * pairs - 4 - 4 * half + size)
        pairs -= 1
    if walk.at - start > <int64_t>LARGEST_FRAME:
        return BAD_LENGTH
    r.at = walk.at
    return OK


cdef inline Fault read_frame(Reader* r, void* out, const Context* context) noexcept nogil:
    cdef Frame* row = <Frame*>out
    cdef const uint8_t* p = r.at
    cdef size_t available = left(r)
    cdef Reader body
    cdef Fault fault
    cdef uint8_t kind
    if not is_version(p[0]):
        return NOT_A_FRAME
    if available < 2:
        return SHORT
    kind = p[1]
    if kind == JSON or kind == DATA:
        if available < LONG_HEADER:
            return SHORT
        row.sequence = be32(p + 2)
        if kind == JSON:
            row.length = be32(p + 6)
            if row.length > LARGEST:
                return BAD_LENGTH
            fault = enter(r, LONG_HEADER, row.length, &body)
            if fault:
                return report_short(row, <uint64_t>LONG_HEADER + row.length)
        else:
            row.count = be32(p + 6)
            if row.count > MAX_PAIRS:
                return BAD_LENGTH
            fault = read_data(r, row)
            if fault:
                return fault
        row.head.body = LONG_HEADER
    elif kind == COMPRESSED or kind == WINDOW or kind == ACK:
        if available < SHORT_HEADER:
            return SHORT
        if kind == COMPRESSED:
            row.length = be32(p + 2)
            if row.length > LARGEST:
                return BAD_LENGTH
        elif kind == WINDOW:
            row.count = be32(p + 2)
        else:
            row.sequence = be32(p + 2)
        fault = enter(r, SHORT_HEADER, row.length, &body)
        if fault:
            return report_short(row, <uint64_t>SHORT_HEADER + row.length)
        row.head.body = SHORT_HEADER
    else:
        return NOT_A_FRAME
    row.head.kind = kind
    row.version = p[0] - c"0"
    return EMPTY if kind == JSON and row.length == 0 else OK


cdef inline Fault read_pair(Reader* r, void* out, const Context* context) noexcept nogil:
    cdef Pair* row = <Pair*>out
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p = take(r, 4)
    if (p is NULL or be32(p) > LARGEST
            or sized(r, start, <int32_t>be32(p), &row.key_at, &row.key_size)):
        return TRUNCATED
    p = take(r, 4)
    if (p is NULL or be32(p) > LARGEST
            or sized(r, start, <int32_t>be32(p), &row.value_at, &row.value_size)):
        return TRUNCATED
    row.head.body = row.key_at
    return OK


cdef inline size_t read_pair_run(
        Reader* r, char* rows, size_t max_rows, const void* parent, const Readable* buffer,
        const Head* span, bint ahead, bint bypass, RunMemory* memory) noexcept nogil:
    # A `ReadRun`: read pairs up to the first bad one, and write each row as five words.
    cdef const uint8_t* start = r.at
    cdef char* row = rows
    cdef char* stop = rows + max_rows * sizeof(Pair)
    cdef uint64_t common = pack_common(<uint32_t>span.parent, span.buffer, 0)
    cdef size_t available = left(r)
    cdef size_t key
    cdef size_t value
    while row < stop and available >= SMALLEST_PAIR:
        key = be32(start)
        if key > LARGEST or key > available - SMALLEST_PAIR:
            break
        value = be32(start + 4 + key)
        if value > LARGEST or value > available - SMALLEST_PAIR - key:
            break
        store_word(row, <uint64_t>(start - buffer.at), bypass)
        store_word(row + 8, pack_pair(<uint32_t>(SMALLEST_PAIR + key + value), 4), bypass)
        store_word(row + 16, common, bypass)
        store_word(row + 24, pack_pair(4, <uint32_t>key), bypass)
        store_word(row + 32, pack_pair(<uint32_t>(SMALLEST_PAIR + key), <uint32_t>value), bypass)
        start += SMALLEST_PAIR + key + value
        available -= SMALLEST_PAIR + key + value
        row += sizeof(Pair)
    r.at = start
    return <size_t>(row - rows) // sizeof(Pair)
