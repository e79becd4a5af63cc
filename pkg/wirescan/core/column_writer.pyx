# cython: boundscheck=False, wraparound=False, cdivision=True
"""Columns of rows, in the layouts of Arrow, written while a scan reads the rows.

A scan that has a `ColumnWriter` makes no table. Where a kernel writes all columns that are wanted,
it writes them without a row: see `ReadColumns`. Otherwise the scan keeps only a block of rows. When
the block is full, its columns are written: the rows and the bytes that they point to are still in
the processor's caches then.

Source: Apache Arrow columnar format 1.4, "Validity bitmaps", "Variable-size Binary Layout" and
"Variable-size Binary View Layout".
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from wirescan.core.fault cimport Fault
from wirescan.core.loop cimport (
    ColumnTargets, Head, MOST_TARGETS, ReadColumns, Readable, RowSink, RunMemory, WRITE_ROWS,
    is_inside, locate_frame)
from wirescan.core.reader cimport (
    PLACE_MASKS, Reader, VIEW_BYTES, VIEW_MASKS, put_view, rarely)
from wirescan.core.rows cimport Block, Rows, adopt_memory, allocate_memory, free_memory
from wirescan.core.writer cimport copy_bytes
from wirescan.core.rows import addresses

cdef enum:
    # Columns of a Head, by their bytes.
    START_AT = 0
    FRAME_SIZE_AT = 8
    PARENT_AT = 16
    BUFFER_AT = 20
    FAULT_AT = 23
    MOST_COLUMNS = 64
    NO_COLUMN = -1
    SMALLEST_ROOM = 8192            # rows whose memory may be given back in part
    MOST_AT_ONCE = 1024             # rows of a block: their bytes fit a second-level cache
    # Bytes of the spans whose strings are gathered together: they are still in that cache then.
    MOST_GATHERED_AT_ONCE = 1 << 18
    ALIGNMENT = 64                  # of each column, as Arrow recommends
    LARGEST_OFFSET = 0x7fffffff     # of gathered bytes with 32-bit offsets
    # Offsets in a view have 31 bits. So the windows of a large buffer begin at multiples of 1 GiB,
    # and they overlap: each byte string is inside one of them.
    WINDOW_BITS = 30
    WINDOW = 1 << WINDOW_BITS
    WINDOW_BYTES = 0x7fffffff       # of each window

_COUNTS = (np.int32, np.uint32, np.uint16)     # dtypes of columns that count pairs
_WINDOW = np.dtype([("low", np.int64), ("number", np.int32), ("padding", np.int32)])


cdef bint grow_memory(char** memory, size_t* bytes, size_t used, size_t size) noexcept nogil:
    # Make `size` bytes fit, of which `used` are written. Otherwise the memory is unchanged.
    cdef char* larger
    if size <= bytes[0]:
        return True
    larger = allocate_memory(&size)
    if larger is NULL:
        return False
    if memory[0] is not NULL:
        memcpy(larger, memory[0], used)
        free_memory(memory[0], bytes[0])
    memory[0] = larger
    bytes[0] = size
    return True


cdef inline size_t align(size_t size) noexcept nogil:
    return (size + ALIGNMENT - 1) & ~<size_t>(ALIGNMENT - 1)


cdef size_t lay_out(ColumnSet* set, char* memory, size_t capacity) noexcept nogil:
    # Return the bytes that `capacity` rows need. With memory, move the written values there.
    cdef OutputColumn* column
    cdef size_t i, size, total = 0
    for i in range(set.column_count):
        column = set.columns + i
        if column.layout == KEPT_ROWS or column.layout == SUMMED:
            continue
        # Gathered strings have one more offset than rows, and a bitmap is written by whole bytes.
        size = align((capacity + 1) * column.width)
        if memory is not NULL:
            if set.count:
                memcpy(memory + total, column.values, (set.count + 1) * column.width)
                memcpy(memory + total + size, column.valid, (set.count >> 3) + 1)
            column.values = memory + total
            column.valid = <uint8_t*>memory + total + size
        total += size + align((capacity >> 3) + 2)
    return total


cdef bint grow_columns(ColumnSet* set, size_t rows, size_t expected) noexcept nogil:
    # Make `rows` rows fit into all columns, which are in one block of memory, and if possible
    # `expected` rows.
    cdef char* memory = NULL
    cdef size_t least, capacity, bytes = 0
    if rows <= set.capacity:
        return True
    if rows > set.max_rows:
        set.failure = TOO_MANY_ROWS
        return False
    least = min(max(rows, set.capacity + (set.capacity >> 1)), set.max_rows)
    capacity = min(max(least, expected), set.max_rows)
    while memory is NULL:
        bytes = lay_out(set, NULL, capacity)
        memory = allocate_memory(&bytes)
        if capacity == least:
            break
        if memory is NULL:
            capacity = least            # the expected number may be far too large
    if memory is NULL:
        set.failure = NO_MEMORY
        return False
    lay_out(set, memory, capacity)
    if set.memory is not NULL:
        free_memory(set.memory, set.bytes)
    set.memory = memory
    set.bytes = bytes
    set.capacity = capacity
    return True


cdef inline Head read_head(const char* row) noexcept nogil:
    # Return a copy, because rows with columns of a user may be unaligned.
    cdef Head head
    memcpy(&head, row, sizeof(head))
    return head


cdef void give_back_room(ColumnSet* set) noexcept nogil:
    # Move the columns to memory of their size, if they use less than half of theirs. The first rows
    # of a scan may be far smaller than the others.
    cdef char* memory
    cdef size_t capacity = max(set.count, <size_t>1), bytes = lay_out(set, NULL, capacity)
    if set.memory is NULL or set.capacity < SMALLEST_ROOM or set.capacity < 2 * capacity:
        return
    memory = allocate_memory(&bytes)
    if memory is NULL:
        return
    lay_out(set, memory, capacity)
    free_memory(set.memory, set.bytes)
    set.memory = memory
    set.bytes = bytes
    set.capacity = capacity


cdef bint make_room(ColumnSet* set, const Rows* rows) noexcept nogil:
    # Make the rows of a block fit. If the columns have to grow, expect as many rows per byte of the
    # only buffer as so far, and a tenth more, so that columns seldom move twice.
    cdef size_t fitting = set.count + rows.count
    cdef Head last
    cdef double read, expected = 0
    if fitting > set.capacity and set.buffer_count == 1:
        last = read_head(rows.at + (rows.count - 1) * set.stride)
        read = <double>(last.start - set.windows[0].low) + last.size
        expected = 1.1 * <double>fitting * <double>set.buffer_bytes / max(read, 1.)
    return grow_columns(set, fitting, <size_t>min(expected, <double>set.max_rows))


cdef bint grow_data(ColumnSet* set, OutputColumn* column, size_t size, size_t rows) noexcept nogil:
    # Make `size` bytes of gathered strings fit, those of `rows` rows. If all rows are like them,
    # the rest fits too; but the bytes of all buffers are enough, unless rows share bytes.
    cdef double expected
    cdef size_t larger = size + (size >> 1)
    if size <= column.data_bytes:
        return True
    expected = <double>size / <double>rows * <double>set.capacity
    if expected > larger:
        larger = <size_t>min(expected + expected / 16, <double>set.buffer_bytes)
    return grow_memory(&column.data, &column.data_bytes, column.used, max(larger, size))


cdef bint grow_strings(ColumnSet* set) noexcept nogil:
    # Make the strings of a block fit, for each column of gathered bytes.
    cdef OutputColumn* column
    cdef size_t i
    for i in range(set.column_count):
        column = set.columns + i
        if column.layout == GATHERED and not grow_memory(
                &column.strings, &column.strings_bytes, 0, MOST_AT_ONCE * sizeof(ByteString)):
            return False
    return True


cdef inline int32_t read_size(const char* row, size_t at) noexcept nogil:
    # Return the size of a place of a row. -1 for a bad row: its places are null.
    cdef int32_t size
    memcpy(&size, row + at, sizeof(size))
    return size | -<int32_t>(row[FAULT_AT] != 0)


cdef inline uint32_t read_place(const char* row, size_t at) noexcept nogil:
    cdef uint32_t place
    memcpy(&place, row + at, sizeof(place))
    return place


cdef bint fail(ColumnSet* set, Failure failure, size_t i) noexcept nogil:
    # Note that row i of the block cannot be written.
    set.failure = failure
    set.failed_row = set.count + i
    return False


cdef void write_numbers(OutputColumn* column, const char* row, size_t stride, size_t first,
                        size_t count) noexcept nogil:
    cdef char* out = column.values + first * column.width
    cdef size_t i
    row += column.at
    # A constant size makes each copy one load and one store.
    if column.width == 8:
        for i in range(count):
            memcpy(out + 8 * i, row + i * stride, 8)
    elif column.width == 4:
        for i in range(count):
            memcpy(out + 4 * i, row + i * stride, 4)
    else:
        for i in range(count):
            memcpy(out + column.width * i, row + i * stride, column.width)


cdef void set_bits(uint8_t* bitmap, size_t first, size_t count) noexcept nogil:
    # Set the bits from number `first` on. The bits after them get any value.
    cdef size_t at = first >> 3
    if first & 7:
        bitmap[at] |= <uint8_t>(0xff << (first & 7))
        at += 1
    if first + count > 8 * at:
        memset(bitmap + at, 0xff, ((first + count + 7) >> 3) - at)


cdef void write_validity(OutputColumn* column, char* sizes, size_t first, size_t count,
                         bint has_null) noexcept nogil:
    # Write the bit of each row: 0 where the size is negative, which becomes 0. A size is the first
    # int32 of a view, or of a ByteString. Most blocks have no null. In the others no branch depends
    # on the rows, because nulls follow no order.
    cdef uint8_t* out = column.valid + (first >> 3)
    cdef size_t nulls = 0, i
    cdef uint32_t used = first & 7, bits, null
    cdef int32_t size
    if not has_null:
        set_bits(column.valid, first, count)
        return
    bits = out[0] & ((1 << used) - 1)
    for i in range(count):
        memcpy(&size, sizes + i * VIEW_BYTES, sizeof(size))
        null = <uint32_t>size >> 31
        size &= ~(size >> 31)
        memcpy(sizes + i * VIEW_BYTES, &size, sizeof(size))
        bits |= (null ^ 1) << used
        nulls += null
        used += 1
        if used == 8:
            out[0] = <uint8_t>bits
            out += 1
            bits = used = 0
    out[0] = <uint8_t>bits
    column.nulls += nulls


cdef inline bint put_views(ColumnSet* set, OutputColumn* column, const char* row, size_t count,
                           bint can_be_bad) noexcept nogil:
    # Copies of what the loop reads again and again, because its stores could change the originals.
    # The head is read column by column: a copy of it would go through memory.
    cdef char* views = column.values + set.count * VIEW_BYTES
    cdef char* out = views
    cdef size_t stride = set.stride, place_at = column.at, size_at = column.size_at, i
    cdef Readable buffer = Readable(NULL, NULL)
    cdef Window window = Window(0, 0)
    cdef int64_t number = -1, available = -1, start, inside
    cdef uint32_t at, frame_size, used
    cdef uint16_t own_number
    cdef int32_t size, signs = 0
    for i in range(count):
        memcpy(&start, row + START_AT, sizeof(start))
        memcpy(&frame_size, row + FRAME_SIZE_AT, sizeof(frame_size))
        memcpy(&own_number, row + BUFFER_AT, sizeof(own_number))
        at = read_place(row, place_at)
        size = read_size(row, size_at) if can_be_bad else <int32_t>read_place(row, size_at)
        signs |= size
        used = <uint32_t>(size & ~(size >> 31))
        if rarely(own_number != number):
            number = own_number
            available = -1
            if own_number < set.buffer_count:
                buffer = set.buffers[own_number]
                window = set.windows[own_number]
                available = buffer.end - buffer.at
        if rarely(start < 0 or start > available - frame_size
                  or <uint64_t>at + used > frame_size):
            if size >= 0:
                return fail(set, OUTSIDE, i)
            memset(out, 0, VIEW_BYTES)      # a null may point anywhere
            memcpy(out, &size, sizeof(size))
        elif rarely(used >= WINDOW):
            return fail(set, TOO_LONG, i)
        else:
            start += at
            inside = start - window.low
            put_view(out, buffer.at + start, buffer.end, used, <uint32_t>(size >> 31),
                     <uint32_t>(window.number + (inside >> WINDOW_BITS)),
                     <uint32_t>(inside & (WINDOW - 1)))
        out += VIEW_BYTES
        row += stride
    write_validity(column, views, set.count, count, signs < 0)
    return True


cdef bint write_views(ColumnSet* set, OutputColumn* column, const char* row,
                      size_t count) noexcept nogil:
    # A scan has only good rows, so its loop does not read faults.
    if set.has_bad_rows:
        return put_views(set, column, row, count, True)
    return put_views(set, column, row, count, False)


cdef bint gather(ColumnSet* set, OutputColumn* column, size_t count, bint has_null) noexcept nogil:
    # Write the bytes of the column's `strings`, and the offsets after them.
    cdef const ByteString* strings = <const ByteString*>column.strings
    cdef int64_t* wide = <int64_t*>column.values + set.count + 1
    cdef int32_t* narrow = <int32_t*>column.values + set.count + 1
    cdef size_t i, total = column.used
    cdef uint8_t* out
    write_validity(column, column.strings, set.count, count, has_null)
    # Sizes may be forged, so memory is allocated after all of them were validated.
    for i in range(count):
        total += <size_t>strings[i].size
    if column.width == 4 and total > LARGEST_OFFSET:
        return fail(set, TOO_MANY_BYTES, 0)
    if not grow_data(set, column, total, set.count + count):
        return fail(set, NO_MEMORY, 0)
    if set.count == 0:
        memset(column.values, 0, column.width)
    out = <uint8_t*>column.data
    total = column.used
    for i in range(count):
        copy_bytes(out + total, <const uint8_t*><size_t>strings[i].address,
                   <size_t>strings[i].size)
        total += <size_t>strings[i].size
        if column.width == 4:
            narrow[i] = <int32_t>total
        else:
            wide[i] = <int64_t>total
    column.used = total
    return True


cdef bint gather_views(ColumnSet* set, OutputColumn* column, const uint8_t* low, size_t count,
                       bint has_null) noexcept nogil:
    # Gather the bytes of views that have the place of each string. They are replaced.
    cdef ByteString* strings = <ByteString*>column.strings
    cdef size_t i
    for i in range(count):
        # The last of the four numbers in a view is the offset.
        strings[i].address = <size_t>low + (<const uint32_t*>column.strings)[4 * i + 3]
    return gather(set, column, count, has_null)


cdef bint write_gathered(ColumnSet* set, OutputColumn* column, const char* row,
                         size_t count) noexcept nogil:
    cdef ByteString* strings = <ByteString*>column.strings
    cdef Head head
    cdef const uint8_t* frame
    cdef uint32_t at
    cdef int32_t size, signs = 0
    cdef size_t i
    for i in range(count):
        size = read_size(row, column.size_at)
        signs |= size
        strings[i].size = size
        strings[i].address = 0
        if size > 0:
            at = read_place(row, column.at)
            head = read_head(row)
            frame = locate_frame(&head, set.buffers, set.buffer_count)
            if frame is NULL or not is_inside(&head, at, size):
                return fail(set, OUTSIDE, i)
            strings[i].address = <size_t>(frame + at)
        row += set.stride
    return gather(set, column, count, signs < 0)


cdef bint grow_kept(ColumnSet* set, OutputColumn* column, size_t count) noexcept nogil:
    # Make `count` more kept rows fit.
    cdef size_t n = column.used
    if n + count <= column.fits:
        return True
    column.fits = n + count + (n >> 1)
    return (grow_memory(&column.data, &column.data_bytes, n * set.stride, column.fits * set.stride)
            and grow_memory(&column.numbers, &column.numbers_bytes, n * sizeof(int64_t),
                            column.fits * sizeof(int64_t)))


cdef inline uint32_t read_count(const OutputColumn* column, const char* row) noexcept nogil:
    # Return a number of 16 or 32 bits that counts. A bad row has no list, and -1 stands for none.
    cdef uint16_t short_count
    cdef uint32_t count
    if column.width == sizeof(short_count):
        memcpy(&short_count, row + column.at, sizeof(short_count))
        count = short_count
    else:
        memcpy(&count, row + column.at, sizeof(count))
        if column.is_signed:
            count &= ~<uint32_t>(<int32_t>count >> 31)
    return 0 if row[FAULT_AT] else count


cdef bint keep_rows(ColumnSet* set, OutputColumn* column, const char* row,
                    size_t count) noexcept nogil:
    # `data` has the rows, and `numbers` their numbers.
    cdef size_t i, n
    for i in range(count):
        if read_count(column, row):
            if not grow_kept(set, column, 1):
                return fail(set, NO_MEMORY, i)
            n = column.used
            memcpy(column.data + n * set.stride, row, set.stride)
            (<int64_t*>column.numbers)[n] = <int64_t>(set.count + i)
            column.used += 1
        row += set.stride
    return True


cdef void sum_numbers(OutputColumn* column, const char* row, size_t stride,
                      size_t count) noexcept nogil:
    cdef size_t total = 0, i
    for i in range(count):
        total += read_count(column, row + i * stride)
    column.used += total


cdef bint write_block(ColumnSet* set, const char* row, size_t count) noexcept nogil:
    # Write `count` rows, at most MOST_AT_ONCE. All columns have room for them.
    cdef OutputColumn* column
    cdef size_t i
    for i in range(set.column_count):
        column = set.columns + i
        if column.layout == NUMBERS:
            write_numbers(column, row, set.stride, set.count, count)
        elif column.layout == KEPT_ROWS:
            keep_rows(set, column, row, count)
        elif column.layout == SUMMED:
            sum_numbers(column, row, set.stride, count)
        elif column.layout == VIEWS:
            write_views(set, column, row, count)
        else:
            write_gathered(set, column, row, count)
        if set.failure:
            set.failed_column = i
            return False
    set.count += count
    return True


cdef bint write_rows(void* sink, Rows* rows) noexcept nogil:
    # The rows of one parent may come together, and then be more than MOST_AT_ONCE. `end_sink` ends
    # with a call, perhaps without rows, so the last columns are completed too.
    cdef ColumnSet* set = <ColumnSet*>sink
    cdef size_t written = 0, count
    if set.failure:
        return False
    if rows.bad and not set.has_bad_rows:
        return fail(set, BAD_ROW, 0)
    if not finish_targets(set) or not make_room(set, rows):
        return False
    while written < rows.count:
        count = min(<size_t>MOST_AT_ONCE, rows.count - written)
        if not write_block(set, rows.at + written * set.stride, count):
            return False
        written += count
    rows.count = 0
    return True


cdef bint point_targets(ColumnSet* set, size_t wanted) noexcept nogil:
    # Point the targets to where the next frames go, at most MOST_AT_ONCE. `wanted`: how many
    # follow, if the columns have to grow. Return False if there is no memory.
    cdef ColumnTargets* targets = &set.targets
    cdef OutputColumn* column
    cdef size_t i
    if set.count == set.capacity and not grow_columns(
            set, set.count + min(wanted, <size_t>MOST_AT_ONCE, set.max_rows - set.count), 0):
        return False
    set.target_capacity = min(<size_t>MOST_AT_ONCE, set.capacity - set.count)
    set.target_bytes = 0
    memset(targets, 0, sizeof(ColumnTargets))
    for i in range(set.target_count):
        if set.target_columns[i] == NO_COLUMN:
            continue
        column = set.columns + set.target_columns[i]
        targets.masks[i] = VIEW_MASKS
        if column.layout == GATHERED:
            targets.values[i] = column.strings
            targets.masks[i] = PLACE_MASKS
        elif column.layout != SUMMED:
            targets.values[i] = column.values + set.count * column.width
    if set.kept_column != NO_COLUMN:
        column = set.columns + set.kept_column
        # A kernel without branches writes every row where the next kept one goes.
        if not grow_kept(set, column, set.target_capacity):
            return fail(set, NO_MEMORY, 0)
        targets.kept = column.data + column.used * set.stride
        targets.kept_numbers = <int64_t*>column.numbers + column.used
        targets.number = <int64_t>set.count
    return True


cdef bint finish_targets(ColumnSet* set) noexcept nogil:
    # Complete the columns of the frames in the targets. Before the next frames, `point_targets` has
    # to be called again.
    cdef const ColumnTargets* targets = &set.targets
    cdef OutputColumn* column
    cdef size_t i, count = targets.count
    set.target_capacity = 0
    if not count:
        return True
    for i in range(set.target_count):
        if set.target_columns[i] == NO_COLUMN:
            continue
        column = set.columns + set.target_columns[i]
        if column.layout == SUMMED:
            column.used += targets.sums[i]
        elif column.layout == VIEWS:
            write_validity(column, targets.values[i], set.count, count, targets.nulls[i] != 0)
        elif column.layout == GATHERED and not gather_views(
                set, column, targets.low, count, targets.nulls[i] != 0):
            return False
    if set.kept_column != NO_COLUMN:
        set.columns[set.kept_column].used += targets.kept_count
    set.count += count
    set.targets.count = 0
    return True


cdef size_t write_columns(void* sink, ReadColumns read, Reader* r, size_t max_rows,
                          const void* parent, const Readable* buffer, const Head* span,
                          bint ahead, RunMemory* memory) noexcept nogil:
    # The columns of several parents are completed together, because to complete them takes as long
    # as to read some frames.
    cdef ColumnSet* set = <ColumnSet*>sink
    cdef ColumnTargets* targets = &set.targets
    cdef const Window* window = set.windows + span.buffer
    cdef int64_t first = (span.start - window.low) >> WINDOW_BITS
    cdef int64_t low = window.low + (first << WINDOW_BITS)
    cdef const uint8_t* low_address = buffer.at + low
    cdef uint32_t number = <uint32_t>(window.number + first)
    cdef bint is_elsewhere
    cdef int32_t* parents
    cdef size_t i, count
    # All views of these frames are in one window.
    if set.failure or span.start + <int64_t>span.size - low > WINDOW_BYTES:
        return 0
    # A buffer whose spans are all empty has no window. Its number is then that of the next buffer,
    # so the address is compared too.
    is_elsewhere = targets.window != number or targets.low != low_address
    if (is_elsewhere or targets.count == set.target_capacity
            or set.gathers and set.target_bytes + span.size > MOST_GATHERED_AT_ONCE):
        if not finish_targets(set) or not point_targets(set, max_rows):
            return 0
        if set.target_capacity == 0:
            return 0                    # the columns have as many rows as they may have
        targets.low = low_address
        targets.window = number
    set.target_bytes += span.size
    count = read(r, targets, min(max_rows, set.target_capacity - targets.count), parent, buffer,
                 span, ahead, memory)
    if set.parent_column != NO_COLUMN:
        parents = <int32_t*>set.columns[set.parent_column].values + (set.count + targets.count)
        for i in range(count):
            parents[i] = span.parent
    targets.count += count
    return count


cdef Block take_memory(char** at, size_t bytes, size_t size):
    # Return memory as an object that owns it. An empty one has an address too: pyarrow needs one.
    cdef Block block
    if at[0] is NULL:
        if size:
            raise ValueError("this column was taken before")
        return Block(0)
    block = adopt_memory(at[0], bytes, size)
    at[0] = NULL
    return block


cdef class ColumnWriter(RowSink):
    """Columns of rows that a scan writes: ColumnWriter(dtype).

    Add the columns, give the writer to a scan, and take each column once. The scan may fail. Then
    the columns are incomplete, and the caller has to read the rows instead.

    dtype: that of the rows. It begins with the columns of HEAD.

    Attributes:
        buffers: the buffers of the scan.
        windows: memoryviews of the bytes that the views of byte strings point into.
    """

    def __cinit__(self, dtype not None):
        dtype = np.dtype(dtype)
        self.set.columns = <OutputColumn*>calloc(MOST_COLUMNS, sizeof(OutputColumn))
        if self.set.columns is NULL:
            raise MemoryError("no memory for columns")
        self.write = write_rows
        self.write_columns = write_columns
        self.argument = &self.set
        self.set.stride = dtype.itemsize
        self.set.kept_column = self.set.parent_column = NO_COLUMN
        self.dtype = dtype
        self.slots = {}
        self.buffers = ()
        self.windows = []

    def __dealloc__(self):
        cdef size_t i
        if self.set.columns is NULL:
            return
        for i in range(self.set.column_count):
            free_memory(self.set.columns[i].data, self.set.columns[i].data_bytes)
            free_memory(self.set.columns[i].numbers, self.set.columns[i].numbers_bytes)
            free_memory(self.set.columns[i].strings, self.set.columns[i].strings_bytes)
        free(self.set.columns)
        free_memory(self.set.memory, self.set.bytes)

    def __len__(self):
        return self.set.count

    @property
    def failed(self):
        """Whether the columns are incomplete: a row was bad, or there was too much."""
        return self.set.failure != COMPLETE

    cdef int add(self, name, ColumnLayout layout, size_t width, at, size_at) except -1:
        cdef OutputColumn* column
        if name in self.slots:
            return 0
        if self.set.column_count == MOST_COLUMNS:
            raise ValueError(f"a writer has at most {MOST_COLUMNS} columns")
        self.slots[name] = self.set.column_count
        column = self.set.columns + self.set.column_count
        column.layout = layout
        column.width = width
        column.at = self.dtype.fields[at][1]
        column.size_at = self.dtype.fields[size_at][1]
        column.is_signed = self.dtype[at].kind == "i"
        self.set.column_count += 1
        return 0

    def add_numbers(self, name):
        """Add a column of numbers. Raises KeyError for a name that is no column."""
        self.add(name, NUMBERS, self.dtype[name].itemsize, name, name)

    def add_views(self, name):
        """Add the place `name` as binary views."""
        self.add(name, VIEWS, VIEW_BYTES, name + "_at", name + "_size")

    def add_gathered(self, name, *, large):
        """Add the place `name` as gathered bytes. large: offsets are int64, else int32."""
        self.add(name, GATHERED, 8 if large else 4, name + "_at", name + "_size")

    def add_rows(self, name, count):
        """Keep the rows whose column `count` is above 0, under the name `name`.

        Raises TypeError for a column that is not int32, uint32 or uint16.
        """
        self.check_count(count)
        self.add(name, KEPT_ROWS, self.dtype[count].itemsize, count, count)

    def add_sum(self, count):
        """Add up the column `count`. Numbers below 0 are not added.

        Raises TypeError for a column that is not int32, uint32 or uint16.
        """
        self.check_count(count)
        self.add((SUMMED, count), SUMMED, self.dtype[count].itemsize, count, count)

    cdef int check_count(self, name) except -1:
        if self.dtype[name] not in _COUNTS:
            raise TypeError(f"column {name!r} counts pairs, so it must be int32, uint32 or uint16, "
                            f"not {self.dtype[name]}")
        return 0

    cdef int begin(self, buffers, const uint64_t[:, ::1] readable, ranges, size_t expected,
                   size_t max_rows) except -1:
        cdef const uint8_t[::1] window_view
        if self.window_array is not None:
            raise ValueError("a ColumnWriter takes the rows of one scan; make a new one")
        self.buffers = tuple(buffers)
        self.readable = readable
        self.windows = []
        self.window_array = np.zeros(max(len(self.buffers), 1), _WINDOW)
        for number, (low, high) in enumerate(ranges.tolist()):
            self.window_array[number] = low, len(self.windows), 0
            for start in range(low, high, WINDOW):
                self.windows.append(self.buffers[number][start:min(start + WINDOW_BYTES, high)])
        self.set.buffer_count = <size_t>readable.shape[0]
        if readable.shape[0]:
            self.set.buffers = <const Readable*>&readable[0, 0]
        window_view = self.window_array.view(np.uint8)
        self.set.windows = <const Window*>&window_view[0]
        self.set.buffer_bytes = int(np.maximum(ranges[:, 1] - ranges[:, 0], 0).sum())
        self.set.max_rows = max_rows
        if not (grow_columns(&self.set, min(max(expected, <size_t>1), max_rows), 0)
                and grow_strings(&self.set)):
            raise MemoryError(f"no memory for the columns of {expected} rows")
        return 0

    cdef bint choose_targets(self, values, sums) except -1:
        cdef OutputColumn* column
        cdef size_t i, found = 0
        slots = [*values, *[(SUMMED, count) for count in sums]]
        if len(slots) > MOST_TARGETS:
            raise ValueError(f"at most {MOST_TARGETS} columns are read without rows")
        for i, slot in enumerate(slots):
            self.set.target_columns[i] = self.slots.get(slot, NO_COLUMN)
            found += self.set.target_columns[i] != NO_COLUMN
        self.set.target_count = len(slots)
        kept = {self.dtype.fields[count][1] for count in sums}
        for i in range(self.set.column_count):
            column = self.set.columns + i
            self.set.gathers |= column.layout == GATHERED
            if column.layout == KEPT_ROWS and {column.at} == kept:
                self.set.kept_column = <int>i
                found += 1
            elif column.layout == NUMBERS and column.at == PARENT_AT:
                self.set.parent_column = <int>i
                found += 1
        return found == self.set.column_count

    cdef int end(self, Fault fault) except -1:
        if fault and self.set.failure == COMPLETE:
            self.set.failure = TOO_MANY_ROWS
        give_back_room(&self.set)
        return self.check_failure()

    cdef int check_failure(self) except -1:
        # Raise MemoryError for want of memory.
        if self.set.failure == NO_MEMORY:
            raise MemoryError(f"no memory for the columns of {self.set.count} rows")
        return 0

    def read_rows(self, rows, buffers):
        """Write the rows of a table. The places of bad rows are null.

        rows: in the dtype of the writer. buffers: bytes-like objects, which the rows point into.

        Raises ValueError for a row that points outside its buffer, for a byte string of 1 GiB or
        more as a view, and for more than 2 GiB of gathered bytes with 32-bit offsets; MemoryError.
        """
        cdef const uint8_t[::1] view = np.ascontiguousarray(rows).view(np.uint8)
        cdef Py_ssize_t i, n = len(rows)
        cdef const uint64_t[:, ::1] readable = addresses(buffers)
        cdef const int64_t[::1] lengths = np.array([len(buffer) for buffer in buffers], np.int64)
        cdef Head head
        cdef Rows block
        ranges = np.zeros((len(buffers), 2), np.int64)
        ranges[:, 0] = np.iinfo(np.int64).max
        cdef int64_t[:, ::1] used = ranges
        cdef size_t stride = self.set.stride
        if n == 0:
            return self.begin(buffers, readable, ranges, 1, 1)
        with nogil:
            for i in range(n):
                head = read_head(<const char*>&view[i * <Py_ssize_t>stride])
                if head.buffer < used.shape[0] and 0 <= head.start <= lengths[head.buffer]:
                    used[head.buffer, 0] = min(used[head.buffer, 0], head.start)
                    used[head.buffer, 1] = max(used[head.buffer, 1], head.start + head.size)
        np.minimum(ranges, [[len(buffer)] for buffer in buffers], out=ranges)
        self.begin(buffers, readable, ranges, n, n)
        self.set.has_bad_rows = True
        memset(&block, 0, sizeof(block))
        with nogil:
            while self.set.count < <size_t>n:
                block.at = <char*>&view[<Py_ssize_t>(self.set.count * stride)]
                block.count = min(<size_t>WRITE_ROWS, <size_t>n - self.set.count)
                if not write_rows(&self.set, &block):
                    break
        self.check_failure()
        if self.set.failure == TOO_LONG:
            raise ValueError(f"row {self.set.failed_row} has a byte string of 1 GiB or more, "
                             "which is too long for a view: export it as large_binary")
        if self.set.failure == TOO_MANY_BYTES:
            name = list(self.slots)[self.set.failed_column]
            raise ValueError(f"column {name!r} has more than {LARGEST_OFFSET} bytes: use "
                             "large_binary, or smaller batches")
        if self.set.failure:
            raise ValueError(f"row {self.set.failed_row} points outside its buffer")

    cdef take_values(self, char* at, size_t size):
        # Return a part of the memory that all columns share.
        if self.memory is None:
            self.memory = adopt_memory(self.set.memory, self.set.bytes, self.set.bytes)
            self.set.memory = NULL
        first = at - self.memory.at
        return memoryview(self.memory)[first:first + <Py_ssize_t>size]

    def take_numbers(self, name):
        """Return a column of numbers as an array."""
        cdef OutputColumn* column = self.set.columns + <size_t>self.slots[name]
        return np.frombuffer(
            self.take_values(column.values, self.set.count * column.width), self.dtype[name])

    def take_sum(self, count):
        """Return the sum of a column that `add_sum` added."""
        return self.set.columns[<size_t>self.slots[SUMMED, count]].used

    def take_place(self, name):
        """Return (nulls, validity, values, data) of a place.

        nulls: the number of nulls. validity: a bitmap of the rows that are not null, least bit
        first; None where none is null. values: views, or offsets. data: the gathered bytes; None
        for views, which point into `windows`.
        """
        cdef OutputColumn* column = self.set.columns + <size_t>self.slots[name]
        cdef size_t rows = self.set.count
        data = None
        if column.layout == GATHERED:
            if rows == 0:
                memset(column.values, 0, column.width)
            rows += 1
            data = take_memory(&column.data, column.data_bytes, column.used)
        validity = None
        if column.nulls:
            validity = self.take_values(<char*>column.valid, (self.set.count + 7) >> 3)
        return column.nulls, validity, self.take_values(column.values, rows * column.width), data

    def take_rows(self, name):
        """Return (numbers, rows): the kept rows, and for each its number, an int64 array."""
        cdef OutputColumn* column = self.set.columns + <size_t>self.slots[name]
        if column.used == 0:
            return np.empty(0, np.int64), np.empty(0, self.dtype)
        numbers = take_memory(&column.numbers, column.numbers_bytes, column.used * sizeof(int64_t))
        rows = take_memory(&column.data, column.data_bytes, column.used * self.set.stride)
        return np.frombuffer(numbers, np.int64), np.frombuffer(rows, self.dtype)
