# Fast loops for records with short varints. record.pxd reads all other records.
# The code is inline: each module that cimports it compiles it for its own target processor.
#
# `read_alike_records` expects that each record has the layout of the one before. Where layouts
# change often, its branches are mispredicted, and `read_varied_records` is faster: it has no branch
# that depends on the size of a varint. `read_short_records` alternates between the two.
from wirescan.core cimport (
    ColumnTargets, Head, Readable, Reader, RunMemory, TOPS, VIEW_BYTES, VarintLayout, ViewMask,
    extract, int64_t, join_groups, le64, learn, lowest, matches, pack_common, pack_pair, prefetch,
    put_wide_view, rarely, store_word, uint8_t, uint32_t, uint64_t, unknown, unzigzag)
from wirescan.kafka.record_batches.rows cimport Batch, LOG_APPEND_TIME, Record

cdef enum:
    MARGIN = 32                     # readable bytes after the last record of these loops
    FARTHEST = 128 << 10            # longest prefetch distance in bytes; fits a second-level cache
    # Layouts that are learnt before the records count as varied. The first record has three, and
    # two more are usual: of the first delta of an offset, and of a timestamp, that has two bytes.
    CHANGES = 6
    FEW = 8                        # records that are not worth learning layouts
    # Varied records that are read before layouts are learnt again, also in the next batches. They
    # double each time that fewer than ALIKE records have the layouts of those before.
    VARIED = 256
    MOST_VARIED = 2048
    ALIKE = 64
    # The loops leave long varints to record.pxd, except timestamps. An end is the number of a
    # varint's last bit in its word, and 64 if the varint has no end there. These are bits of it.
    TOO_LONG = 0x60                 # one is set if there are more than four bytes, or no end
    NO_END = 0x40                   # set if there is no end
    OVER_THREE = 0x20               # in the distance of two ends: set for more than three bytes
    ODD_COUNT = 0x81                # bits of a header count that is negative or has two bytes

# The columns that `read_columns` writes, and the one that it adds up, by their numbers in
# ColumnTargets. COLUMNS and COLUMN_SUMS of scan.pyx have their names.
cdef enum:
    OFFSET_TARGET
    TIMESTAMP_TARGET
    KEY_TARGET
    VALUE_TARGET
    HEADER_COUNT_TARGET

# The records of one batch that are left to read, and what their rows share.
cdef struct Run:
    # The next row and the end of the rows, or for columns the number of the next record in the
    # targets and the number after the last one. Loops count one of them, because a second counter
    # would cost 2 % of the time.
    char* row
    const char* stop
    size_t count
    size_t most
    const uint8_t* start            # of the next record
    const uint8_t* limit            # no record of these loops ends after it
    const uint8_t* base             # first byte of the buffer
    uint64_t common                 # the last word of the Head
    uint64_t base_offset
    uint64_t base_timestamp
    uint64_t delta_mask             # 0 where all records have the batch's timestamp
    size_t distance                 # bytes to prefetch ahead


# What a loop needs of the ColumnTargets, and what it adds to them. A copy of the whole struct would
# cost as much as two records.
cdef struct Columns:
    char* offsets
    char* timestamps
    char* keys                      # views
    char* values
    const ViewMask* key_masks
    const ViewMask* value_masks
    const uint8_t* low
    uint32_t window
    uint32_t key_nulls
    uint32_t value_nulls
    uint64_t header_total
    char* kept
    int64_t* kept_numbers
    size_t kept_count
    int64_t number


# A byte string in a record. One that is null has no bytes.
cdef struct Place:
    uint64_t at
    uint64_t size
    uint64_t null                   # all ones for null, else 0


cdef inline void store_record(
        char* row, const Run* run, bint past, const uint8_t* end, uint32_t body, uint64_t timestamp,
        uint64_t offset, const Place* key, const Place* value, uint32_t headers_at,
        uint32_t header_count) noexcept nogil:
    # Store the columns of a Record. The size of a null is -1 there.
    store_word(row, <uint64_t>(run.start - run.base), past)
    store_word(row + 8, pack_pair(<uint32_t>(end - run.start), body), past)
    store_word(row + 16, run.common, past)
    store_word(row + 24, run.base_offset + offset, past)
    store_word(row + 32, run.base_timestamp + (timestamp & run.delta_mask), past)
    store_word(row + 40, pack_pair(<uint32_t>key.at, <uint32_t>value.at), past)
    store_word(row + 48, pack_pair(headers_at, <uint32_t>(key.size | key.null)), past)
    store_word(row + 56, pack_pair(<uint32_t>(value.size | value.null), header_count), past)


cdef inline Columns begin_columns(const ColumnTargets* targets) noexcept nogil:
    return Columns(
        offsets=targets.values[OFFSET_TARGET],
        timestamps=targets.values[TIMESTAMP_TARGET],
        keys=targets.values[KEY_TARGET],
        values=targets.values[VALUE_TARGET],
        key_masks=targets.masks[KEY_TARGET],
        value_masks=targets.masks[VALUE_TARGET],
        low=targets.low,
        window=targets.window,
        key_nulls=0,
        value_nulls=0,
        header_total=0,
        kept=targets.kept,
        kept_numbers=targets.kept_numbers,
        kept_count=targets.kept_count,
        number=targets.number)


cdef inline void end_columns(ColumnTargets* targets, const Columns* columns) noexcept nogil:
    targets.nulls[KEY_TARGET] |= columns.key_nulls
    targets.nulls[VALUE_TARGET] |= columns.value_nulls
    targets.sums[HEADER_COUNT_TARGET] += columns.header_total
    targets.kept_count = columns.kept_count


cdef inline void store_string(char* views, const ViewMask* masks, const Columns* columns,
                              const Run* run, const Place* place) noexcept nogil:
    # The loops stop before the last bytes of the buffer, so a whole view can be read.
    cdef const uint8_t* p = run.start + place.at
    if views is not NULL:
        put_wide_view(views + run.count * VIEW_BYTES, masks, p, <uint32_t>place.size,
                      <uint32_t>place.null, columns.window, <uint32_t>(p - columns.low))


cdef inline void store_columns(
        const Run* run, Columns* columns, uint64_t timestamp, uint64_t offset,
        const Place* key, const Place* value) noexcept nogil:
    # Store the columns that are wanted.
    if columns.offsets is not NULL:
        store_word(columns.offsets + run.count * 8, run.base_offset + offset, False)
    if columns.timestamps is not NULL:
        store_word(columns.timestamps + run.count * 8,
                   run.base_timestamp + (timestamp & run.delta_mask), False)
    store_string(columns.keys, columns.key_masks, columns, run, key)
    store_string(columns.values, columns.value_masks, columns, run, value)
    columns.key_nulls |= <uint32_t>key.null
    columns.value_nulls |= <uint32_t>value.null


cdef inline void keep_record(
        const Run* run, Columns* columns, const uint8_t* end, uint32_t body,
        uint64_t timestamp, uint64_t offset, const Place* key, const Place* value,
        uint32_t headers_at, uint32_t header_count) noexcept nogil:
    # Count the headers. Where rows with headers are wanted, write the row; keep it if it has any.
    columns.header_total += header_count
    if columns.kept is not NULL:
        store_record(columns.kept + columns.kept_count * sizeof(Record), run, False, end, body,
                     timestamp, offset, key, value, headers_at, header_count)
        columns.kept_numbers[columns.kept_count] = columns.number + <int64_t>run.count
        columns.kept_count += header_count != 0


cdef inline void prefetch_record(const Run* run) noexcept nogil:
    prefetch(run.start + run.distance)
    prefetch(run.start + run.distance + 64)


cdef inline size_t left_over(const Run* run, bint to_columns) noexcept nogil:
    # Return the number of records that may still be read.
    if to_columns:
        return run.most - run.count
    return <size_t>(run.stop - run.row) // sizeof(Record)


cdef inline void step(Run* run, bint to_columns) noexcept nogil:
    if to_columns:
        run.count += 1
    else:
        run.row += sizeof(Record)


cdef inline void read_alike_records(Run* state, ColumnTargets* targets, bint to_columns,
                                    bint past) noexcept nogil:
    # Read records without headers, until more than CHANGES layouts were learnt.
    cdef Run run = state[0]         # so that the compiler keeps it in registers
    cdef Columns columns
    cdef VarintLayout length = unknown(), fields = unknown(), last = unknown()
    cdef uint64_t word, timestamp, offset
    cdef Place key, value
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef size_t changes = 0
    if to_columns:
        columns = begin_columns(targets)
    while left_over(&run, to_columns) and run.start < run.limit:
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
        key.null = fields.sign[2]
        key.size = extract(word, &fields, 2) & ~key.null
        p += fields.used
        key.at = <uint64_t>(p - run.start)
        p += key.size
        if p > end:
            break
        word = le64(p)
        if not matches(word, &last):
            last = learn(word, 0, 1)
            changes += 1
            if last.used == 0:
                break
        value.null = last.sign[0]
        value.size = extract(word, &last, 0) & ~value.null
        p += last.used
        value.at = <uint64_t>(p - run.start)
        if p + value.size + 1 != end or end[-1]:
            break                   # the last byte is the header count: 0 if there are no headers
        if to_columns:
            store_columns(&run, &columns, timestamp, offset, &key, &value)
        else:
            store_record(run.row, &run, past, end, <uint32_t>length.used, timestamp, offset, &key,
                         &value, <uint32_t>(end - run.start), 0)
        run.start = end
        step(&run, to_columns)
        if changes > CHANGES:
            break
    if to_columns:
        end_columns(targets, &columns)
    state.start = run.start
    state.count = run.count
    state.row = run.row


cdef inline uint64_t cover_first(uint64_t ends) noexcept nogil:
    # Return the bits of a word up to the end of its first varint; all bits if none ends in it.
    # `ends` has the top bits of the bytes that end a varint.
    return ends ^ (ends - 1)


cdef inline void set_size(Place* place, uint64_t code) noexcept nogil:
    # `code` is the zig-zag code of a size. Any negative size is null.
    place.null = 0 - (code & 1)
    place.size = (code >> 1) & ~place.null


cdef inline void read_varied_records(Run* state, ColumnTargets* targets, size_t most,
                                     bint to_columns, bint past) noexcept nogil:
    # Read at most `most` records, with fewer than 64 headers each. A good record takes none of the
    # branches.
    cdef Run run = state[0]
    cdef Columns columns
    cdef uint64_t word, ends, first, second, length, timestamp, offset, header_count, odd, rest
    cdef Place key, value
    cdef uint32_t body
    cdef unsigned int first_end, second_end, third_end, last_end
    cdef const uint8_t* p
    cdef const uint8_t* end
    if to_columns:
        columns = begin_columns(targets)
        run.most = min(run.count + most, run.most)
    elif <size_t>(run.stop - run.row) > most * sizeof(Record):
        run.stop = run.row + most * sizeof(Record)
    while left_over(&run, to_columns) and run.start < run.limit:
        word = le64(run.start)
        ends = ~word & TOPS
        length = join_groups(word, 0, cover_first(ends))
        first_end = lowest(ends)
        body = (first_end >> 3) + 1
        p = run.start + body
        if (first_end & TOO_LONG) | (length & 1) or <int64_t>(length >> 1) > run.limit - p:
            break
        end = p + (length >> 1)
        prefetch_record(&run)
        # Skip the attributes. The next three varints end within one word.
        word = le64(p + 1)
        ends = ~word & TOPS
        first = cover_first(ends)
        first_end = lowest(ends)
        timestamp = <uint64_t>unzigzag(join_groups(word, 0, first))
        ends &= ends - 1
        second = cover_first(ends)
        second_end = lowest(ends)
        offset = <uint64_t>unzigzag(join_groups(word, first, second))
        ends &= ends - 1
        third_end = lowest(ends)
        set_size(&key, join_groups(word, second, cover_first(ends)))
        odd = (((second_end - first_end) | (third_end - second_end)) & OVER_THREE
               | third_end & NO_END)
        p += 2 + (third_end >> 3)
        key.at = <uint64_t>(p - run.start)
        if <int64_t>key.size >= end - p:
            break
        p += key.size
        word = le64(p)
        ends = ~word & TOPS
        last_end = lowest(ends)
        odd |= last_end & TOO_LONG
        set_size(&value, join_groups(word, 0, cover_first(ends)))
        p += (last_end >> 3) + 1
        value.at = <uint64_t>(p - run.start)
        if <int64_t>value.size >= end - p:
            break
        p += value.size
        header_count = p[0]         # its code: twice the number, or an odd one if it is negative
        p += 1
        # A header has at least two bytes. Without headers no bytes are left.
        rest = <uint64_t>(end - p)
        odd |= (header_count & ODD_COUNT) | (rest - header_count) >> 63
        odd |= rest & (0 - <uint64_t>(header_count == 0))
        if rarely(odd):
            break
        header_count >>= 1
        if to_columns:
            store_columns(&run, &columns, timestamp, offset, &key, &value)
            keep_record(&run, &columns, end, body, timestamp, offset, &key, &value,
                        <uint32_t>(p - run.start), <uint32_t>header_count)
        else:
            store_record(run.row, &run, past, end, body, timestamp, offset, &key, &value,
                         <uint32_t>(p - run.start), <uint32_t>header_count)
        run.start = end
        step(&run, to_columns)
    if to_columns:
        end_columns(targets, &columns)
    state.start = run.start
    state.count = run.count
    state.row = run.row


cdef inline RunMemory plan_varied(RunMemory memory, size_t alike, size_t offered) noexcept nogil:
    # Plan how many varied records are read before layouts are learnt again, after `alike` of the
    # offered records had known layouts: none if all had, and more each time if few had.
    if alike == offered:
        return RunMemory(memory.most, 0)
    memory.most = min(max(2 * memory.most, <size_t>VARIED), <size_t>MOST_VARIED)
    if alike >= ALIKE:
        memory.most = VARIED
    return RunMemory(memory.most, memory.most)


cdef inline size_t read_short_records(
        Reader* r, char* rows, ColumnTargets* targets, size_t max_rows, const void* parent,
        const Readable* buffer, const Head* span, bint ahead, RunMemory* memory, bint to_columns,
        bint past) noexcept nogil:
    # Read records of magic 2 with short varints. Return how many were read. The loops load whole
    # words, so they stop before the last bytes of the buffer. They also stop at the first record of
    # another shape or with a fault: read_record_v2 reads that record.
    #
    # Write `rows`, or with `to_columns` the columns of `targets`, after the records that they have.
    cdef const Batch* batch = <const Batch*>parent
    cdef bint append = (batch.attributes & LOG_APPEND_TIME) != 0
    cdef Run run
    cdef RunMemory own = memory[0]  # so that the compiler keeps it in registers
    cdef size_t left = max_rows, before
    cdef bint learns
    if batch.magic != 2 or buffer.end - r.at < MARGIN:
        return 0
    run.row = rows
    run.stop = NULL if to_columns else rows + max_rows * sizeof(Record)
    run.count = targets.count if to_columns else 0
    run.most = run.count + max_rows
    run.start = r.at
    # A word is loaded at most nine bytes after the end of its record, before that is noticed.
    run.limit = min(r.end, buffer.end - MARGIN)
    run.base = buffer.at
    run.common = pack_common(<uint32_t>span.parent, span.buffer, 2)
    run.base_offset = <uint64_t>batch.base_offset
    run.base_timestamp = <uint64_t>(batch.max_timestamp if append else batch.base_timestamp)
    run.delta_mask = 0 if append else ~<uint64_t>0
    # Assume that the next batch is about as large as this one.
    run.distance = min(<size_t>span.size, <size_t>FARTHEST) if ahead else 2048
    while left and run.start < run.limit:
        before = left
        # To learn layouts costs more than it saves where few records are left, or few are alike.
        learns = own.left == 0 and left > FEW
        if learns:
            read_alike_records(&run, targets, to_columns, past)
            left = left_over(&run, to_columns)
            own = plan_varied(own, before - left, before)
        read_varied_records(&run, targets, max(own.left, <size_t>FEW), to_columns, past)
        own.left -= min(own.left, left - left_over(&run, to_columns))
        left = left_over(&run, to_columns)
        if left == before:
            if learns or own.left == 0:
                break               # no loop reads this record
            own.left = 0            # perhaps the other one does
    memory[0] = own
    r.at = run.start
    return max_rows - left


cdef inline size_t read_run(
        Reader* r, char* rows, size_t max_rows, const void* parent, const Readable* buffer,
        const Head* span, bint ahead, bint past, RunMemory* memory) noexcept nogil:
    # A ReadRun. A constant `past` gives each loop its own code without the other's branches.
    if past:
        return read_short_records(
            r, rows, NULL, max_rows, parent, buffer, span, ahead, memory, False, True)
    return read_short_records(
        r, rows, NULL, max_rows, parent, buffer, span, ahead, memory, False, False)


cdef inline size_t read_columns(
        Reader* r, ColumnTargets* targets, size_t max_rows, const void* parent,
        const Readable* buffer, const Head* span, bint ahead, RunMemory* memory) noexcept nogil:
    # A ReadColumns.
    return read_short_records(
        r, NULL, targets, max_rows, parent, buffer, span, ahead, memory, True, False)
