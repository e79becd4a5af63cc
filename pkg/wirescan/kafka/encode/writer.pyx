# cython: boundscheck=False, wraparound=False
"""Write Kafka batches and messages from arrays, in two passes over the records and without the GIL.

record_columns.py and the producer in client/ call these functions. The first pass measures every
record and decides where the batches begin. The second pass writes the records, into memory of
exactly that size. With a codec, each batch is written to a scratch block, compressed, and appended
to the output. The docstring of record_batches/scan.pyx shows the layouts.
"""
import numpy as np

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from wirescan.core.checksum cimport crc32_of, crc32c_of
from wirescan.core.reader cimport prefetch
from wirescan.core.rows cimport Block, RowBlock, Rows, grow_rows
from wirescan.core.strings cimport ByteStrings, Strings
from wirescan.core.writer cimport (
    RowOutput, copy_bytes, put_varint, reserve_bytes, store16, store32, store64, varint_size,
    write_each, write_rows, zigzag)

cdef enum:
    BATCH_HEAD = 61             # bytes before the records of a batch
    SLACK = 1                   # put_varint may write one byte after its varint
    MAX_INT32 = 0x7fffffff      # the largest value of a signed 32-bit field
    AHEAD = 12                  # prefetch distance in records
    MAGIC_0_OVERHEAD = 26       # bytes of a message of magic 0 without its key and value
    MAGIC_1_OVERHEAD = 34       # the same for magic 1


cdef struct Records:            # all records to write
    Py_ssize_t count
    Strings keys, values, header_keys, header_values
    const int64_t* timestamps
    Py_ssize_t step             # of the timestamps: 1, or 0 if one timestamp is for all records
    const int64_t* headers_at   # the first header of each record; NULL if there are no headers
    const int32_t* header_count
    int32_t* sizes              # bytes of each record after its length
    bint scattered              # consecutive records are far from each other in memory

cdef struct Batch:              # the header fields that all batches share
    int64_t base_offset         # of the first batch
    int64_t producer_id
    int32_t leader_epoch
    int32_t base_sequence       # of the first batch
    int16_t attributes
    int16_t producer_epoch

cdef struct Cut:                # the records of one batch or wrapper
    Py_ssize_t first
    Py_ssize_t end
    int64_t size                # bytes of the records, before compression
    int64_t latest              # the highest timestamp

cdef struct Batches:            # the batches to write without compression
    const Records* records
    const Cut* cuts
    const Batch* head


cdef class Headers:
    """Headers(first, count, keys, values): the headers of some records.

    first, count: two arrays of integers. Record i has `count[i]` headers, from number `first[i]`.
    keys, values: two `ByteStrings` of equal length, the keys and values of all headers.
    Raises ValueError if the arrays have unequal lengths or a number is out of range.
    """
    cdef object first, count
    cdef ByteStrings keys, values

    def __init__(self, first, count, keys, values):
        cdef const int64_t[::1] starts = np.array(first, np.int64)
        cdef const int64_t[::1] counts = np.array(count, np.int64)
        cdef int64_t total = len(keys)
        cdef Py_ssize_t i
        cdef bint good = starts.shape[0] == counts.shape[0] and total == len(values)
        if good:
            for i in range(starts.shape[0]):
                good &= 0 <= counts[i] <= MAX_INT32 and 0 <= starts[i] <= total - counts[i]
        if not good:
            raise ValueError("the counts of headers do not fit their keys and values")
        self.first = np.asarray(starts)
        self.count = np.asarray(counts).astype(np.int32)
        self.keys = keys
        self.values = values

    def __len__(self):
        return len(self.count)

    def take(self, rows):
        """Return the headers of the records in `rows`, an int64 array of record numbers."""
        return Headers(self.first[rows], self.count[rows], self.keys, self.values)


cdef class Columns:
    """Columns(keys, values, timestamps, headers, rows): the input of the two write functions.

    keys, values: `ByteStrings` of equal length.
    timestamps: an int64 array of milliseconds, of the same length, or of length 1 for all records.
        Nobody may write to it afterwards.
    headers: `Headers` or None.
    rows: the row numbers of the records before a selection, for error messages. None: no selection.
    Raises ValueError for columns of unequal length.
    """
    cdef Records records
    cdef object owners, rows    # `owners` keeps the memory alive that `records` points to

    def __cinit__(self, ByteStrings keys not None, ByteStrings values not None, timestamps,
                  Headers headers, rows):
        cdef const int64_t[::1] stamps = timestamps if len(timestamps) else np.array([-1])
        cdef const int64_t[::1] first
        cdef const int32_t[::1] count
        cdef Py_ssize_t n = len(values)
        if len(keys) != n or stamps.shape[0] not in (1, n):
            raise ValueError("columns of unequal length")
        if headers is not None and len(headers) != n:
            raise ValueError("columns of unequal length")
        cdef Block sizes = Block(4 * n)
        self.owners = (keys, values, np.asarray(stamps), headers, sizes)
        self.rows = rows
        memset(&self.records, 0, sizeof(Records))
        self.records.count = n
        self.records.sizes = <int32_t*>sizes.at
        self.records.scattered = rows is not None
        self.records.keys = keys.strings
        self.records.values = values.strings
        self.records.timestamps = &stamps[0]
        self.records.step = stamps.shape[0] == n
        if headers is not None and n:
            first = headers.first
            count = headers.count
            self.records.headers_at = &first[0]
            self.records.header_count = &count[0]
            self.records.header_keys = headers.keys.strings
            self.records.header_values = headers.values.strings

    cdef object make_error(self, Py_ssize_t i):
        # The exception for a record that cannot be written.
        row = i if self.rows is None else int(self.rows[i])
        if self.records.sizes[i] < 0:
            return ValueError(f"row {row}: a header's key must not be null")
        return ValueError(f"row {row} is too large: a record has less than 2 GiB")


# ---------------------------------------------------------------------------------------- measuring

cdef inline int64_t count_bytes(const Strings* strings, Py_ssize_t i) noexcept nogil:
    # Bytes of a string; 0 for null.
    return max(strings.size[i * strings.step], 0)

cdef inline int64_t measure_string(const Strings* strings, Py_ssize_t i) noexcept nogil:
    # Bytes of a string with its varint length. A null has a length of one byte too.
    cdef int64_t size = count_bytes(strings, i)
    return <int64_t>varint_size(2 * <uint64_t>size) + size

cdef inline int64_t measure_record(const Records* r, Py_ssize_t i) noexcept nogil:
    # Bytes of a record without its length and the two deltas; -1 if a header has a null key.
    # The count stops when it exceeds MAX_INT32.
    cdef int64_t size = 1 + measure_string(&r.keys, i) + measure_string(&r.values, i)
    cdef int64_t at
    if r.headers_at is NULL:
        return size + 1
    size += <int64_t>varint_size(zigzag(r.header_count[i]))
    for at in range(r.headers_at[i], r.headers_at[i] + r.header_count[i]):
        if r.header_keys.size[at * r.header_keys.step] < 0:
            return -1
        size += measure_string(&r.header_keys, at) + measure_string(&r.header_values, at)
        if size > MAX_INT32:
            break
    return size


cdef bint append_cut(Rows* cuts, Py_ssize_t first, Py_ssize_t end, int64_t size,
                     int64_t latest) noexcept nogil:
    # Return False if there is no memory.
    if cuts.count == cuts.capacity and not grow_rows(cuts, 2 * cuts.capacity):
        return False
    (<Cut*>cuts.at)[cuts.count] = Cut(first, end, size, latest)
    cuts.count += 1
    return True


cdef Py_ssize_t measure_batches(const Records* r, int64_t max_bytes, size_t batches,
                                Rows* cuts) noexcept nogil:
    # Divide the records into at most `batches` batches (0: any number). A batch has at most `most`
    # bytes of records, or one record. Return the record that cannot be written, or -1.
    cdef Py_ssize_t first = 0, i
    cdef int64_t base = r.timestamps[0], latest = base, used = 0, stamp, body_size, size, total
    for i in range(r.count):
        stamp = r.timestamps[i * r.step]
        body_size = measure_record(r, i)
        # The delta of a timestamp wraps at 64 bits, as in Java. The reader's sum wraps back.
        size = body_size + <int64_t>(
            varint_size(zigzag(<int64_t>(<uint64_t>stamp - <uint64_t>base)))
            + varint_size(2 * <uint64_t>(i - first)))
        total = size + <int64_t>varint_size(2 * <uint64_t>size)
        if used + total > max_bytes and i > first:
            if not append_cut(cuts, first, i, used, latest) or cuts.count == batches:
                return -1
            first = i
            used = 0
            base = stamp
            latest = stamp
            size = body_size + 2
            total = size + <int64_t>varint_size(2 * <uint64_t>size)
        if body_size < 0 or total > MAX_INT32 - BATCH_HEAD or i - first == MAX_INT32:
            r.sizes[i] = -1 if body_size < 0 else 0
            return i
        r.sizes[i] = <int32_t>size
        used += total
        latest = max(latest, stamp)
    if r.count:
        append_cut(cuts, first, r.count, used, latest)
    return -1


cdef Py_ssize_t measure_messages(const Records* r, int64_t overhead, int64_t max_bytes,
                                 Rows* cuts) noexcept nogil:
    # Divide messages into wrappers, as measure_batches does with batches.
    cdef Py_ssize_t first = 0, i
    cdef int64_t latest = r.timestamps[0], used = 0, stamp, size
    for i in range(r.count):
        stamp = r.timestamps[i * r.step]
        size = overhead + count_bytes(&r.keys, i) + count_bytes(&r.values, i)
        if used + size > max_bytes and i > first:
            if not append_cut(cuts, first, i, used, latest):
                return -1
            first = i
            used = 0
            latest = stamp
        if size - 12 > MAX_INT32:
            r.sizes[i] = 0
            return i
        used += size
        latest = max(latest, stamp)
    if r.count:
        append_cut(cuts, first, r.count, used, latest)
    return -1


# ------------------------------------------------------------------------------------------ writing

cdef inline uint8_t* put_sized(uint8_t* to, const Strings* strings, Py_ssize_t i) noexcept nogil:
    cdef int32_t size = strings.size[i * strings.step]
    to = put_varint(to, zigzag(size))
    if size > 0:
        copy_bytes(to, <const uint8_t*>strings.address[i * strings.step], <size_t>size)
        to += size
    return to


cdef void write_records(const Records* records, const Cut* cut, uint8_t* to) noexcept nogil:
    # The local copy tells the compiler that the stores do not change the columns' addresses.
    cdef Records r = records[0]
    cdef Py_ssize_t first = cut.first, end = cut.end, i
    cdef int64_t base = r.timestamps[first * r.step], at
    cdef uint8_t* following
    for i in range(first, end):
        if r.scattered and i + AHEAD < r.count:
            prefetch(<const uint8_t*>r.keys.address[(i + AHEAD) * r.keys.step])
            prefetch(<const uint8_t*>r.values.address[(i + AHEAD) * r.values.step])
            prefetch(<const uint8_t*>(r.values.address[(i + AHEAD) * r.values.step] + 64))
        # The start of the next record does not depend on the stores of this one, so the processor
        # can work on several records at once.
        following = to + varint_size(2 * <uint64_t>r.sizes[i]) + r.sizes[i]
        to = put_varint(to, 2 * <uint64_t>r.sizes[i])
        to[0] = 0
        to = put_varint(
            to + 1, zigzag(<int64_t>(<uint64_t>r.timestamps[i * r.step] - <uint64_t>base)))
        to = put_varint(to, 2 * <uint64_t>(i - first))
        to = put_sized(to, &r.keys, i)
        to = put_sized(to, &r.values, i)
        if r.headers_at is NULL:
            to[0] = 0
        else:
            to = put_varint(to, 2 * <uint64_t>r.header_count[i])
            for at in range(r.headers_at[i], r.headers_at[i] + r.header_count[i]):
                to = put_sized(to, &r.header_keys, at)
                to = put_sized(to, &r.header_values, at)
        to = following


cdef void write_batch_head(uint8_t* to, const Batch* batch, const Cut* cut, int64_t base,
                           size_t payload) noexcept nogil:
    # Write the header before `payload` bytes of records. The checksum covers these bytes.
    cdef uint32_t sequence = 0xffffffff         # -1: no sequence
    if batch.base_sequence >= 0:
        sequence = <uint32_t>((<uint64_t>batch.base_sequence + <uint64_t>cut.first) & MAX_INT32)
    store64(to, <uint64_t>batch.base_offset + <uint64_t>cut.first)
    store32(to + 8, <uint32_t>(BATCH_HEAD - 12 + payload))
    store32(to + 12, <uint32_t>batch.leader_epoch)
    to[16] = 2
    store16(to + 21, <uint16_t>batch.attributes)
    store32(to + 23, <uint32_t>(cut.end - cut.first - 1))
    store64(to + 27, <uint64_t>base)
    store64(to + 35, <uint64_t>cut.latest)
    store64(to + 43, <uint64_t>batch.producer_id)
    store16(to + 51, <uint16_t>batch.producer_epoch)
    store32(to + 53, sequence)
    store32(to + 57, <uint32_t>(cut.end - cut.first))
    store32(to + 17, crc32c_of(to + 21, BATCH_HEAD - 21 + payload))


cdef int64_t measure_batch(const void* columns, Py_ssize_t i) noexcept nogil:
    return BATCH_HEAD + (<const Batches*>columns).cuts[i].size


cdef void put_batch(const void* columns, Py_ssize_t i, uint8_t* to, int64_t size) noexcept nogil:
    cdef const Batches* batches = <const Batches*>columns
    cdef const Cut* cut = batches.cuts + i
    cdef const Records* r = batches.records
    write_records(r, cut, to + BATCH_HEAD)
    write_batch_head(to, batches.head, cut, r.timestamps[cut.first * r.step], <size_t>cut.size)


cdef Py_ssize_t run_batches(RowOutput* output) noexcept nogil:
    return write_each(output, measure_batch, put_batch)


cdef inline uint8_t* put_plain(uint8_t* to, const uint8_t* at, int32_t size) noexcept nogil:
    store32(to, <uint32_t>size)
    if size > 0:
        copy_bytes(to + 4, at, <size_t>size)
        to += size
    return to + 4


cdef uint8_t* write_message(
        uint8_t* to, int magic, int attributes, int64_t offset, int64_t timestamp,
        const uint8_t* key, int32_t key_size, const uint8_t* value, int32_t size) noexcept nogil:
    cdef uint8_t* end = to + 18
    store64(to, <uint64_t>offset)
    to[16] = <uint8_t>magic
    to[17] = <uint8_t>attributes
    if magic:
        store64(end, <uint64_t>timestamp)
        end += 8
    end = put_plain(put_plain(end, key, key_size), value, size)
    store32(to + 8, <uint32_t>(end - to - 12))
    store32(to + 12, crc32_of(to + 16, <size_t>(end - to - 16)))
    return end


cdef uint8_t* write_messages(const Records* r, const Cut* cut, uint8_t* to, int magic,
                             int attributes, int64_t base) noexcept nogil:
    # base: the offset of record 0.
    cdef Py_ssize_t i, key, value
    for i in range(cut.first, cut.end):
        key = i * r.keys.step
        value = i * r.values.step
        to = write_message(to, magic, attributes, <int64_t>(<uint64_t>base + <uint64_t>i),
                           r.timestamps[i * r.step],
                           <const uint8_t*>r.keys.address[key], r.keys.size[key],
                           <const uint8_t*>r.values.address[value], r.values.size[value])
    return to


# --------------------------------------------------------------------------------- Python functions

cdef RowBlock measure(Columns columns, int magic, int64_t max_bytes, size_t batches=0):
    # Return the cuts, as rows. Raises ValueError for a record that cannot be written.
    cdef RowBlock cuts = RowBlock(sizeof(Cut), 64, <size_t>-1 // (2 * sizeof(Cut)))
    cdef Py_ssize_t refused
    with nogil:
        if magic == 2:
            refused = measure_batches(
                &columns.records, max_bytes - BATCH_HEAD, batches, &cuts.rows)
        else:
            refused = measure_messages(&columns.records, get_overhead(magic),
                                       max_bytes - get_overhead(magic), &cuts.rows)
    if refused >= 0:
        raise columns.make_error(refused)
    if cuts.rows.out_of_memory:
        raise MemoryError(f"no memory for more than {len(cuts)} batches")
    return cuts


cdef inline int64_t get_overhead(int magic) noexcept nogil:
    return MAGIC_1_OVERHEAD if magic else MAGIC_0_OVERHEAD


def write_batches(Columns columns not None, int64_t max_bytes, fields, compress=None,
                  size_t batches=0):
    """Write record batches of magic 2 and return them as a read-only buffer.

    max_bytes: the maximum size of a batch before compression. A larger record has a batch of its
        own.
    fields: (base offset, producer id, leader epoch, base sequence, attributes, producer epoch),
        each in its range.
    compress: compresses the bytes of a batch's records, or None.
    batches: the most batches to write; 0 for any number. The records after them are not written.
    Raises ValueError for a record or payload that is too large and for a header without a key,
    MemoryError.
    """
    cdef Records* r = &columns.records
    cdef RowBlock cuts = measure(columns, 2, max_bytes, batches)
    cdef Batch batch = Batch(fields[0], fields[1], fields[2], fields[3], fields[4], fields[5])
    cdef Cut* cut = <Cut*>cuts.rows.at
    cdef size_t i, n = cuts.rows.count, size
    cdef int64_t total = 0, largest = 0
    cdef uint8_t* to
    cdef RowBlock out
    cdef Block scratch
    cdef const uint8_t[::1] payload
    cdef Batches plain = Batches(r, cut, &batch)
    if compress is None:
        return write_rows(&plain, <Py_ssize_t>n, run_batches, {}, True)[0]
    for i in range(n):
        total += BATCH_HEAD + cut[i].size
        largest = max(largest, cut[i].size)
    out = RowBlock(1, total // 4, <size_t>-1 // 2)
    scratch = Block(largest + SLACK)
    for i in range(n):
        with nogil:
            write_records(r, &cut[i], <uint8_t*>scratch.at)
        payload = compress(memoryview(scratch)[:cut[i].size])
        size = <size_t>payload.shape[0]
        if size > MAX_INT32 - BATCH_HEAD:
            raise columns.make_error(cut[i].first)
        to = reserve_bytes(out, BATCH_HEAD + size)
        with nogil:
            memcpy(to + BATCH_HEAD, &payload[0], size)
            write_batch_head(to, &batch, &cut[i], r.timestamps[cut[i].first * r.step], size)
        out.rows.count += BATCH_HEAD + size
    return memoryview(out)


def write_message_sets(Columns columns not None, int64_t max_bytes, int magic, int attributes,
                       int64_t base_offset, int codec=0, compress=None):
    """Write messages of magic 0 or 1 and return them as a read-only buffer.

    max_bytes: the maximum size of a wrapper before compression. A larger message has a wrapper of
        its own.
    codec: the number of the codec. With one, the messages are inside wrappers.
    compress: compresses the bytes of a wrapper's messages, or None.
    Raises as `write_batches`.
    """
    cdef Records* r = &columns.records
    cdef RowBlock cuts = measure(
        columns, magic, max_bytes if compress is not None else <int64_t>1 << 62)
    cdef Cut* cut = <Cut*>cuts.rows.at
    cdef size_t i, n = cuts.rows.count, size
    cdef int64_t largest = 0, base
    cdef uint8_t* to
    cdef RowBlock out
    cdef Block scratch
    cdef const uint8_t[::1] payload
    for i in range(n):
        largest = max(largest, cut[i].size)
    if compress is None:                # then there is one cut
        scratch = Block(largest)
        if n:
            with nogil:
                write_messages(r, cut, <uint8_t*>scratch.at, magic, attributes, base_offset)
        return memoryview(scratch).toreadonly()
    out = RowBlock(1, largest, <size_t>-1 // 2)
    scratch = Block(largest)
    for i in range(n):
        # Inside a wrapper, offsets of magic 0 are absolute; offsets of magic 1 count from 0.
        base = -<int64_t>cut[i].first if magic else base_offset
        with nogil:
            write_messages(r, &cut[i], <uint8_t*>scratch.at, magic, attributes, base)
        payload = compress(memoryview(scratch)[:cut[i].size])
        size = <size_t>payload.shape[0]
        if size > <size_t>(MAX_INT32 - get_overhead(magic)):
            raise columns.make_error(cut[i].first)
        to = reserve_bytes(out, <size_t>get_overhead(magic) + size)
        with nogil:
            write_message(to, magic, attributes | codec, base_offset + cut[i].end - 1,
                          cut[i].latest, NULL, -1, &payload[0], <int32_t>size)
        out.rows.count += <size_t>get_overhead(magic) + size
    return memoryview(out)
