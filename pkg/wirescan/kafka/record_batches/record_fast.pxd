# Fast loops for records with short varints, and the columns of plain messages of magic 0 and 1.
# record.pxd reads all other records.
# The code is inline: each module that cimports it compiles it for its own target processor.
#
# `read_alike_records` expects that each record has the layout of the one before. Where layouts
# change often, its branches are mispredicted, and `read_varied_records` is faster: it has no branch
# that depends on the size of a varint. `read_short_records` alternates between the two.
from wirescan.core cimport (
    ColumnTargets, Head, Readable, Reader, RunMemory, TOPS, VIEW_BYTES, VarintLayout, ViewMask,
    be32, extract, int64_t, join_groups, le64, learn, lowest, matches, pack_common, pack_pair,
    prefetch, put_wide_view, rarely, store_word, take_sign, uint8_t, uint32_t, uint64_t, unknown,
    unzigzag)
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
    # Bits of the delta of an offset and the size of a key together: each has at most four bytes.
    MOST_BITS = 40
    ODD_COUNT = 0x81                # bits of a header count that is negative or has two bytes
    LONG_MESSAGE = 1 << 30          # bytes: its value may be too long for a view

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


# The fields of a record. Places count from its first byte.
cdef struct RecordFields:
    uint64_t size
    uint64_t body                   # bytes of the length before the attributes
    uint64_t timestamp              # the delta
    uint64_t offset                 # the delta
    Place key
    Place value
    uint64_t headers_at
    uint64_t header_count


cdef inline void store_frame(char* row, const Run* run, const RecordFields* record,
                             bint bypass) noexcept nogil:
    store_word(row, <uint64_t>(run.start - run.base), bypass)
    store_word(row + 8, pack_pair(<uint32_t>record.size, <uint32_t>record.body), bypass)
    store_word(row + 16, run.common, bypass)


cdef inline void store_deltas(char* row, const Run* run, const RecordFields* record,
                              bint bypass) noexcept nogil:
    store_word(row + 24, run.base_offset + record.offset, bypass)
    store_word(row + 32, run.base_timestamp + (record.timestamp & run.delta_mask), bypass)


cdef inline void store_places(char* row, const RecordFields* record, bint bypass) noexcept nogil:
    # The size of a null is -1 in a row.
    cdef const Place* key = &record.key
    cdef const Place* value = &record.value
    store_word(row + 40, pack_pair(<uint32_t>key.at, <uint32_t>value.at), bypass)
    store_word(row + 48, pack_pair(<uint32_t>record.headers_at,
                                   <uint32_t>(key.size | key.null)), bypass)
    store_word(row + 56, pack_pair(<uint32_t>(value.size | value.null),
                                   <uint32_t>record.header_count), bypass)


cdef inline void store_row(char* row, const Run* run, const RecordFields* record,
                           bint bypass) noexcept nogil:
    store_frame(row, run, record, bypass)
    store_deltas(row, run, record, bypass)
    store_places(row, record, bypass)


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


cdef inline void store_numbers(const Columns* columns, const Run* run,
                               const RecordFields* record) noexcept nogil:
    if columns.offsets is not NULL:
        store_word(columns.offsets + run.count * 8, run.base_offset + record.offset, False)
    if columns.timestamps is not NULL:
        store_word(columns.timestamps + run.count * 8,
                   run.base_timestamp + (record.timestamp & run.delta_mask), False)


cdef inline void store_string(char* views, const ViewMask* masks, const Columns* columns,
                              const Run* run, const Place* place) noexcept nogil:
    # The loops stop before the last bytes of the buffer, so a whole view can be read.
    cdef const uint8_t* p = run.start + place.at
    if views is not NULL:
        put_wide_view(views + run.count * VIEW_BYTES, masks, p, <uint32_t>place.size,
                      <uint32_t>place.null, columns.window, <uint32_t>(p - columns.low))


cdef inline void store_key(Columns* columns, const Run* run, const Place* key) noexcept nogil:
    store_string(columns.keys, columns.key_masks, columns, run, key)
    columns.key_nulls |= <uint32_t>key.null


cdef inline void store_value(Columns* columns, const Run* run, const Place* value) noexcept nogil:
    store_string(columns.values, columns.value_masks, columns, run, value)
    columns.value_nulls |= <uint32_t>value.null


cdef inline void store_columns(Columns* columns, const Run* run,
                               const RecordFields* record) noexcept nogil:
    store_numbers(columns, run, record)
    store_key(columns, run, &record.key)
    store_value(columns, run, &record.value)


cdef inline void prefetch_record(const Run* run) noexcept nogil:
    prefetch(run.start + run.distance)
    prefetch(run.start + run.distance + 64)


cdef inline size_t left_over(const Run* run, bint to_columns) noexcept nogil:
    # Return the number of records that may still be read.
    if to_columns:
        return run.most - run.count
    return <size_t>(run.stop - run.row) // sizeof(Record)


cdef inline void read_alike_records(Run* state, ColumnTargets* targets, bint to_columns,
                                    bint bypass) noexcept nogil:
    # Read records without headers, until more than CHANGES layouts were learnt.
    cdef Run run = state[0]         # so that the compiler keeps it in registers
    cdef Columns columns
    cdef VarintLayout length = unknown(), fields = unknown(), last = unknown()
    cdef RecordFields record
    cdef uint64_t word
    cdef const uint8_t* p
    cdef const uint8_t* end
    cdef size_t changes = 0
    record.header_count = 0
    if to_columns:
        columns = begin_columns(targets)
    while left_over(&run, to_columns) and run.start < run.limit:
        word = le64(run.start)
        if not matches(word, &length):
            length = learn(word, 0, 1)
            changes += 1
            if length.used == 0:
                break
        record.body = length.used
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
        record.timestamp = extract(word, &fields, 0) ^ fields.sign[0]
        record.offset = extract(word, &fields, 1) ^ fields.sign[1]
        record.key.null = fields.sign[2]
        record.key.size = extract(word, &fields, 2) & ~record.key.null
        p += fields.used
        record.key.at = <uint64_t>(p - run.start)
        p += record.key.size
        if p > end:
            break
        word = le64(p)
        if not matches(word, &last):
            last = learn(word, 0, 1)
            changes += 1
            if last.used == 0:
                break
        record.value.null = last.sign[0]
        record.value.size = extract(word, &last, 0) & ~record.value.null
        p += last.used
        record.value.at = <uint64_t>(p - run.start)
        if p + record.value.size + 1 != end or end[-1]:
            break                   # the last byte is the header count: 0 if there are no headers
        record.size = record.headers_at = <uint64_t>(end - run.start)
        if to_columns:
            store_columns(&columns, &run, &record)
            run.count += 1
        else:
            store_row(run.row, &run, &record, bypass)
            run.row += sizeof(Record)
        run.start = end
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
    place.size = code
    place.null = take_sign(&place.size)
    place.size &= ~place.null


# Each of these functions reads a part of a record whose varints have any sizes. It returns False if
# record.pxd must read the record. A good record always takes the same branches.
cdef inline bint read_length(const Run* run, uint64_t left, RecordFields* record) noexcept nogil:
    cdef uint64_t word = le64(run.start)
    cdef uint64_t ends = ~word & TOPS
    cdef uint64_t length = join_groups(word, 0, cover_first(ends))
    cdef unsigned int end = lowest(ends)
    if rarely(end & TOO_LONG) or rarely(length & 1):
        return False
    record.body = (end >> 3) + 1
    record.size = record.body + (length >> 1)
    return record.size <= left


cdef inline bint read_deltas(const Run* run, RecordFields* record) noexcept nogil:
    # Read both deltas and the size of the key, after the attributes. They end within one word.
    cdef uint64_t word = le64(run.start + record.body + 1)
    cdef uint64_t ends = ~word & TOPS
    cdef uint64_t first = cover_first(ends)
    cdef unsigned int first_end = lowest(ends)
    cdef unsigned int last_end
    cdef uint64_t second
    record.timestamp = <uint64_t>unzigzag(join_groups(word, 0, first))
    ends &= ends - 1
    second = cover_first(ends)
    record.offset = <uint64_t>unzigzag(join_groups(word, first, second))
    ends &= ends - 1
    last_end = lowest(ends)
    set_size(&record.key, join_groups(word, second, cover_first(ends)))
    record.key.at = record.body + 2 + (last_end >> 3)
    if rarely(last_end & NO_END):
        return False
    return last_end - first_end <= MOST_BITS


cdef inline bint read_value(const Run* run, RecordFields* record) noexcept nogil:
    # Read the size of the value, after the key.
    cdef uint64_t at = record.key.at + record.key.size, word, ends
    cdef unsigned int end
    if rarely(at >= record.size):
        return False
    word = le64(run.start + at)
    ends = ~word & TOPS
    end = lowest(ends)
    if rarely(end & TOO_LONG):
        return False
    set_size(&record.value, join_groups(word, 0, cover_first(ends)))
    record.value.at = at + (end >> 3) + 1
    return True


cdef inline bint read_header_count(const Run* run, RecordFields* record) noexcept nogil:
    # Read the number of headers, after the value. A header has at least two bytes. Without headers
    # no bytes are left.
    cdef uint64_t at = record.value.at + record.value.size, code, rest
    if rarely(at >= record.size):
        return False
    code = run.start[at]            # twice the number, or odd if it is negative
    record.headers_at = at + 1
    record.header_count = code >> 1
    rest = record.size - record.headers_at
    if rarely(code & ODD_COUNT) or rarely(code > rest):
        return False
    return not rest & (0 - <uint64_t>(code == 0))


cdef inline void read_varied_records(Run* state, ColumnTargets* targets, size_t most,
                                     bint to_columns, bint keeps, bint bypass) noexcept nogil:
    # Read at most `most` records, with fewer than 64 headers each. Columns are stored as soon as
    # they are known, because few fit into registers.
    #
    # keeps: write the columns of all records, and the rows of those with headers.
    cdef Run run = state[0]
    cdef Columns columns
    cdef RecordFields record
    cdef uint64_t left = <uint64_t>(run.limit - run.start)
    cdef bint to_rows = keeps or not to_columns
    cdef char* row = run.row
    cdef int64_t* number = NULL
    if to_columns:
        columns = begin_columns(targets)
        run.most = min(run.count + most, run.most)
        if keeps:
            row = columns.kept + columns.kept_count * sizeof(Record)
            number = columns.kept_numbers + columns.kept_count
    elif <size_t>(run.stop - run.row) > most * sizeof(Record):
        run.stop = run.row + most * sizeof(Record)
    while run.count != run.most if to_columns else row != run.stop:
        if rarely(not read_length(&run, left, &record)):
            break
        prefetch_record(&run)
        if to_rows:
            store_frame(row, &run, &record, bypass)
        if rarely(not read_deltas(&run, &record)):
            break
        if to_rows:
            store_deltas(row, &run, &record, bypass)
        if to_columns:
            store_numbers(&columns, &run, &record)
            store_key(&columns, &run, &record.key)
        if rarely(not read_value(&run, &record)):
            break
        if to_columns:
            store_value(&columns, &run, &record.value)
        if rarely(not read_header_count(&run, &record)):
            break
        if to_rows:
            store_places(row, &record, bypass)
        if to_columns:
            columns.header_total += record.header_count
            if keeps:
                number[0] = columns.number + <int64_t>run.count
                number += record.header_count != 0
                row += <size_t>(record.header_count != 0) * sizeof(Record)
            run.count += 1
        else:
            row += sizeof(Record)
        run.start += record.size
        left -= record.size
    if keeps:
        columns.kept_count = <size_t>(number - columns.kept_numbers)
    if to_columns:
        end_columns(targets, &columns)
    else:
        state.row = row
    state.start = run.start
    state.count = run.count


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
        bint keeps, bint bypass) noexcept nogil:
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
    # A view of the key is loaded before the size of the key is checked, up to 25 bytes after the
    # end of the record.
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
            read_alike_records(&run, targets, to_columns, bypass)
            left = left_over(&run, to_columns)
            own = plan_varied(own, before - left, before)
        read_varied_records(&run, targets, max(own.left, <size_t>FEW), to_columns, keeps, bypass)
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
        const Head* span, bint ahead, bint bypass, RunMemory* memory) noexcept nogil:
    # A ReadRun. A constant `bypass` gives each loop its own code without the other's branches.
    if bypass:
        return read_short_records(r, rows, NULL, max_rows, parent, buffer, span, ahead, memory,
                                  to_columns=False, keeps=False, bypass=True)
    return read_short_records(r, rows, NULL, max_rows, parent, buffer, span, ahead, memory,
                              to_columns=False, keeps=False, bypass=False)


cdef inline void set_length(Place* place, const uint8_t* p) noexcept nogil:
    # Read the length before a byte string of magic 0 or 1. Any negative length is null.
    cdef uint32_t length = be32(p)
    place.null = 0 - <uint64_t>(length >> 31)
    place.size = length & ~place.null


cdef inline size_t read_message_columns(Reader* r, ColumnTargets* targets, const Batch* batch,
                                        const Readable* buffer) noexcept nogil:
    # Write the columns of the record in a plain message of magic 0 or 1. Return 1, or 0 if a row
    # must be made: for a wrapper, a fault, a long message, or too few bytes after the message to
    # read whole views.
    cdef Columns columns = begin_columns(targets)
    cdef RecordFields record
    cdef Run run
    cdef uint64_t size = <uint64_t>(r.end - r.at)
    if batch.codec or size >= LONG_MESSAGE or buffer.end - r.end < MARGIN:
        return 0
    run.start = r.at
    run.count = targets.count
    run.base_offset = <uint64_t>batch.base_offset
    run.base_timestamp = <uint64_t>batch.base_timestamp
    run.delta_mask = record.timestamp = record.offset = 0
    set_length(&record.key, r.at)
    record.key.at = 4
    record.value.at = 8 + record.key.size
    if record.value.at > size:
        return 0
    set_length(&record.value, r.at + record.value.at - 4)
    if record.value.at + record.value.size != size:
        return 0
    store_columns(&columns, &run, &record)
    end_columns(targets, &columns)
    r.at = r.end
    return 1


cdef inline size_t read_columns(
        Reader* r, ColumnTargets* targets, size_t max_rows, const void* parent,
        const Readable* buffer, const Head* span, bint ahead, RunMemory* memory) noexcept nogil:
    # A ReadColumns.
    if (<const Batch*>parent).magic < 2:
        return read_message_columns(r, targets, <const Batch*>parent, buffer)
    # Each case has loops of its own, as for `bypass`.
    if targets.kept is NULL:
        return read_short_records(r, NULL, targets, max_rows, parent, buffer, span, ahead, memory,
                                  to_columns=True, keeps=False, bypass=False)
    return read_short_records(r, NULL, targets, max_rows, parent, buffer, span, ahead, memory,
                              to_columns=True, keeps=True, bypass=False)
