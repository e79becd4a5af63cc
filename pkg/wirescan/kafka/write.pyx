# cython: boundscheck=False, wraparound=False
"""Kafka record data out of arrays, in two passes over the records and without the GIL.

First every record is measured, and the cuts between batches are made; then the records are written, into memory of just
that size. Compressed, a batch is written aside, and what the codec makes of it follows the batch before. encode.py
draws the bytes.
"""
import numpy as np

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from wirescan.core.checksum cimport crc32_of, crc32c_of
from wirescan.core.reader cimport prefetch
from wirescan.core.rows cimport Block, RowBlock, Rows, grow_rows
from wirescan.core.strings cimport ByteStrings, Strings
from wirescan.core.writer cimport copied, put_varint, store16, store32, store64, varint_size, zigzag

cdef enum:
    BATCH_HEAD = 61             # bytes before the records of a batch
    SLACK = 1                   # the byte behind the last varint may be written too
    MOST = 0x7fffffff           # what a field of 32 bits holds
    AHEAD = 12                  # records, from a prefetch to the copy


cdef struct Records:            # all that is to be written
    Py_ssize_t count
    Strings keys, values, header_keys, header_values
    const int64_t* timestamps
    Py_ssize_t step             # of the timestamps: 1, or 0 where one stands for all
    const int64_t* headers_at   # the first header of each record; NULL where there are none
    const int32_t* header_count
    int32_t* sizes              # of each record, behind its length
    bint scattered              # neighbours lie far from each other

cdef struct Batch:              # what stands in its header, and is the same in all
    int64_t base_offset         # of the first one
    int64_t producer_id
    int32_t leader_epoch
    int32_t base_sequence       # of the first one
    int16_t attributes
    int16_t producer_epoch

cdef struct Cut:                # the records of one batch or wrapper
    Py_ssize_t first
    Py_ssize_t end
    int64_t size                # bytes of the records, before compression
    int64_t latest              # the highest timestamp


cdef class Headers:
    """Headers(first, count, keys, values): the headers of records: `count[i]` from number `first[i]` on, in keys and
    values. Two arrays of integers, and two `ByteStrings` of equal length. ValueError where they do not fit."""
    cdef object first, count
    cdef ByteStrings keys, values

    def __init__(self, first, count, keys, values):
        cdef const int64_t[::1] starts = np.array(first, np.int64), counts = np.array(count, np.int64)
        cdef int64_t known = len(keys)
        cdef Py_ssize_t i
        cdef bint good = starts.shape[0] == counts.shape[0] and known == len(values)
        if good:
            for i in range(starts.shape[0]):
                good &= 0 <= counts[i] <= MOST and 0 <= starts[i] <= known - counts[i]
        if not good:
            raise ValueError("the counts of headers do not fit their keys and values")
        self.first, self.count = np.asarray(starts), np.asarray(counts).astype(np.int32)
        self.keys, self.values = keys, values

    def __len__(self):
        return len(self.count)

    def take(self, rows):
        """The headers of some records: an int64 array of their numbers."""
        return Headers(self.first[rows], self.count[rows], self.keys, self.values)


cdef class Columns:
    """Columns(keys, values, timestamps, headers, rows): what `write_batches` and `write_message_sets` write.

    `ByteStrings` of equal length; an int64 array of as many milliseconds, or of one for all, that nobody writes to;
    `Headers` or None.
    rows: the numbers that the records had before they were selected, for messages; None: all are here, in order.
    """
    cdef Records records
    cdef object held, rows

    def __cinit__(self, ByteStrings keys not None, ByteStrings values not None, timestamps, Headers headers, rows):
        cdef const int64_t[::1] stamps = timestamps if len(timestamps) else np.array([-1])
        cdef const int64_t[::1] first
        cdef const int32_t[::1] count
        cdef Py_ssize_t n = len(values)
        if len(keys) != n or stamps.shape[0] not in (1, n) or headers is not None and len(headers) != n:
            raise ValueError("columns of unequal length")
        cdef Block sizes = Block(4 * n)
        self.held, self.rows = (keys, values, np.asarray(stamps), headers, sizes), rows
        memset(&self.records, 0, sizeof(Records))
        self.records.count, self.records.sizes, self.records.scattered = n, <int32_t*>sizes.at, rows is not None
        self.records.keys, self.records.values = keys.strings, values.strings
        self.records.timestamps, self.records.step = &stamps[0], stamps.shape[0] == n
        if headers is not None and n:
            first, count = headers.first, headers.count
            self.records.headers_at, self.records.header_count = &first[0], &count[0]
            self.records.header_keys, self.records.header_values = headers.keys.strings, headers.values.strings

    cdef object refusal(self, Py_ssize_t i):
        name = i if self.rows is None else int(self.rows[i])
        if self.records.sizes[i] < 0:
            return ValueError(f"row {name}: a header's key must not be null")
        return ValueError(f"row {name} is too large: a record has less than 2 GiB")


# ------------------------------------------------------------------------------------------- measuring

cdef inline int64_t at_least(const Strings* strings, Py_ssize_t i) noexcept nogil:
    return max(strings.size[i * strings.step], 0)

cdef inline int64_t sized(const Strings* strings, Py_ssize_t i) noexcept nogil:
    cdef int64_t size = at_least(strings, i)
    return <int64_t>varint_size(2 * <uint64_t>size) + size

cdef inline int64_t record_size(const Records* r, Py_ssize_t i) noexcept nogil:
    # Behind the length, without the two deltas; -1 where a header has no key. More than MOST is not counted on.
    cdef int64_t size = 1 + sized(&r.keys, i) + sized(&r.values, i)
    cdef int64_t at
    if r.headers_at is NULL:
        return size + 1
    size += <int64_t>varint_size(zigzag(r.header_count[i]))
    for at in range(r.headers_at[i], r.headers_at[i] + r.header_count[i]):
        if r.header_keys.size[at * r.header_keys.step] < 0:
            return -1
        size += sized(&r.header_keys, at) + sized(&r.header_values, at)
        if size > MOST:
            break
    return size


cdef bint cut(Rows* cuts, Py_ssize_t first, Py_ssize_t end, int64_t size, int64_t latest) noexcept nogil:
    if cuts.count == cuts.room and not grow_rows(cuts, 2 * cuts.room):
        return False
    (<Cut*>cuts.at)[cuts.count] = Cut(first, end, size, latest)
    cuts.count += 1
    return True


cdef Py_ssize_t measure_batches(const Records* r, int64_t most, size_t batches, Rows* cuts) noexcept nogil:
    # At most so many batches (0: any), of at most so many bytes of records or of one. The record refused, or -1.
    cdef Py_ssize_t first = 0, i
    cdef int64_t base = r.timestamps[0], latest = base, used = 0, stamp, rest, size, whole
    for i in range(r.count):
        stamp = r.timestamps[i * r.step]
        rest = record_size(r, i)
        # A timestamp's delta wraps at 64 bits, as Java's does: the reader's sum wraps back.
        size = rest + <int64_t>(varint_size(zigzag(<int64_t>(<uint64_t>stamp - <uint64_t>base)))
                                + varint_size(2 * <uint64_t>(i - first)))
        whole = size + <int64_t>varint_size(2 * <uint64_t>size)
        if used + whole > most and i > first:
            if not cut(cuts, first, i, used, latest) or cuts.count == batches:
                return -1
            first, used, base, latest = i, 0, stamp, stamp
            size = rest + 2
            whole = size + <int64_t>varint_size(2 * <uint64_t>size)
        if rest < 0 or whole > MOST - BATCH_HEAD or i - first == MOST:
            r.sizes[i] = -1 if rest < 0 else 0
            return i
        r.sizes[i] = <int32_t>size
        used, latest = used + whole, max(latest, stamp)
    if r.count:
        cut(cuts, first, r.count, used, latest)
    return -1


cdef Py_ssize_t measure_messages(const Records* r, int64_t overhead, int64_t most, Rows* cuts) noexcept nogil:
    # The same for wrappers of messages.
    cdef Py_ssize_t first = 0, i
    cdef int64_t latest = r.timestamps[0], used = 0, stamp, size
    for i in range(r.count):
        stamp = r.timestamps[i * r.step]
        size = overhead + at_least(&r.keys, i) + at_least(&r.values, i)
        if used + size > most and i > first:
            if not cut(cuts, first, i, used, latest):
                return -1
            first, used, latest = i, 0, stamp
        if size - 12 > MOST:
            r.sizes[i] = 0
            return i
        used, latest = used + size, max(latest, stamp)
    if r.count:
        cut(cuts, first, r.count, used, latest)
    return -1


# --------------------------------------------------------------------------------------------- writing

cdef inline uint8_t* put_sized(uint8_t* to, const Strings* strings, Py_ssize_t i) noexcept nogil:
    cdef int32_t size = strings.size[i * strings.step]
    to = put_varint(to, zigzag(size))
    if size > 0:
        copied(to, <const uint8_t*>strings.address[i * strings.step], <size_t>size)
        to += size
    return to


cdef void write_records(const Records* records, const Cut* part, uint8_t* to) noexcept nogil:
    cdef Records r = records[0]         # a copy: what is written could be anywhere, as far as the compiler knows
    cdef Py_ssize_t first = part.first, end = part.end, i
    cdef int64_t base = r.timestamps[first * r.step], at
    cdef uint8_t* following
    for i in range(first, end):
        if r.scattered and i + AHEAD < r.count:
            prefetch(<const uint8_t*>r.keys.address[(i + AHEAD) * r.keys.step])
            prefetch(<const uint8_t*>r.values.address[(i + AHEAD) * r.values.step])
            prefetch(<const uint8_t*>(r.values.address[(i + AHEAD) * r.values.step] + 64))
        # Where the next record begins is known before this one is written: so the processor writes some at once.
        following = to + varint_size(2 * <uint64_t>r.sizes[i]) + r.sizes[i]
        to = put_varint(to, 2 * <uint64_t>r.sizes[i])
        to[0] = 0
        to = put_varint(to + 1, zigzag(<int64_t>(<uint64_t>r.timestamps[i * r.step] - <uint64_t>base)))
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


cdef void write_batch_head(uint8_t* to, const Batch* batch, const Cut* part, int64_t base,
                           size_t payload) noexcept nogil:
    # The records are there already.
    cdef uint32_t sequence = 0xffffffff         # -1: none
    if batch.base_sequence >= 0:
        sequence = <uint32_t>((<uint64_t>batch.base_sequence + <uint64_t>part.first) & MOST)
    store64(to, <uint64_t>batch.base_offset + <uint64_t>part.first)
    store32(to + 8, <uint32_t>(BATCH_HEAD - 12 + payload))
    store32(to + 12, <uint32_t>batch.leader_epoch)
    to[16] = 2
    store16(to + 21, <uint16_t>batch.attributes)
    store32(to + 23, <uint32_t>(part.end - part.first - 1))
    store64(to + 27, <uint64_t>base)
    store64(to + 35, <uint64_t>part.latest)
    store64(to + 43, <uint64_t>batch.producer_id)
    store16(to + 51, <uint16_t>batch.producer_epoch)
    store32(to + 53, sequence)
    store32(to + 57, <uint32_t>(part.end - part.first))
    store32(to + 17, crc32c_of(to + 21, BATCH_HEAD - 21 + payload))


cdef inline uint8_t* put_plain(uint8_t* to, const uint8_t* at, int32_t size) noexcept nogil:
    store32(to, <uint32_t>size)
    if size > 0:
        copied(to + 4, at, <size_t>size)
        to += size
    return to + 4


cdef uint8_t* write_message(uint8_t* to, int magic, int attributes, int64_t offset, int64_t timestamp,
                            const uint8_t* key, int32_t key_size, const uint8_t* value, int32_t size) noexcept nogil:
    cdef uint8_t* end = to + 18
    store64(to, <uint64_t>offset)
    to[16], to[17] = <uint8_t>magic, <uint8_t>attributes
    if magic:
        store64(end, <uint64_t>timestamp)
        end += 8
    end = put_plain(put_plain(end, key, key_size), value, size)
    store32(to + 8, <uint32_t>(end - to - 12))
    store32(to + 12, crc32_of(to + 16, <size_t>(end - to - 16)))
    return end


cdef uint8_t* write_messages(const Records* r, const Cut* part, uint8_t* to, int magic, int attributes,
                             int64_t base) noexcept nogil:
    # base: the offset of record 0.
    cdef Py_ssize_t i, key, value
    for i in range(part.first, part.end):
        key, value = i * r.keys.step, i * r.values.step
        to = write_message(to, magic, attributes, <int64_t>(<uint64_t>base + <uint64_t>i), r.timestamps[i * r.step],
                           <const uint8_t*>r.keys.address[key], r.keys.size[key],
                           <const uint8_t*>r.values.address[value], r.values.size[value])
    return to


# ------------------------------------------------------------------------------------------ for Python

cdef RowBlock measured(Columns columns, int magic, int64_t most, size_t batches=0):
    # The cuts, as rows.
    cdef RowBlock cuts = RowBlock(sizeof(Cut), 64, <size_t>-1 // (2 * sizeof(Cut)))
    cdef Py_ssize_t refused
    with nogil:
        if magic == 2:
            refused = measure_batches(&columns.records, most - BATCH_HEAD, batches, &cuts.rows)
        else:
            refused = measure_messages(&columns.records, message_overhead(magic), most - message_overhead(magic),
                                       &cuts.rows)
    if refused >= 0:
        raise columns.refusal(refused)
    if cuts.rows.out_of_memory:
        raise MemoryError(f"no memory for more than {len(cuts)} batches")
    return cuts


cdef inline int64_t message_overhead(int magic) noexcept nogil:
    return 34 if magic else 26


cdef uint8_t* room_for(RowBlock out, size_t bytes) except NULL:
    # Where so many bytes more can be written.
    cdef Rows* rows = &out.rows
    if rows.room - rows.count < bytes:
        grow_rows(rows, max(2 * rows.room, rows.count + bytes))
    if rows.room - rows.count < bytes:
        raise MemoryError(f"no memory for {rows.count + bytes} bytes")
    return <uint8_t*>rows.at + rows.count


def write_batches(Columns columns not None, int64_t most, fields, compress=None, size_t batches=0):
    """Record batches of at most `most` bytes before compression, or of one record: a read-only buffer.

    fields: (base offset, producer id, leader epoch, base sequence, attributes, producer epoch), each in its range.
    compress: what makes a batch's payload out of the bytes of its records, or None. batches: at most; 0: any.
    Raises ValueError for a record or payload that is too large, and a header without a key; MemoryError.
    """
    cdef Records* r = &columns.records
    cdef RowBlock cuts = measured(columns, 2, most, batches)
    cdef Batch batch = Batch(fields[0], fields[1], fields[2], fields[3], fields[4], fields[5])
    cdef Cut* part = <Cut*>cuts.rows.at
    cdef size_t i, n = cuts.rows.count, size
    cdef int64_t total = 0, largest = 0
    cdef uint8_t* to
    cdef RowBlock out
    cdef Block aside
    cdef const uint8_t[::1] payload
    for i in range(n):
        total, largest = total + BATCH_HEAD + part[i].size, max(largest, part[i].size)
    if compress is None:
        aside = Block(total + SLACK)
        to = <uint8_t*>aside.at
        with nogil:
            for i in range(n):
                write_records(r, &part[i], to + BATCH_HEAD)
                write_batch_head(to, &batch, &part[i], r.timestamps[part[i].first * r.step], <size_t>part[i].size)
                to += BATCH_HEAD + part[i].size
        return memoryview(aside)[:total].toreadonly()
    out, aside = RowBlock(1, total // 4, <size_t>-1 // 2), Block(largest + SLACK)
    for i in range(n):
        with nogil:
            write_records(r, &part[i], <uint8_t*>aside.at)
        payload = compress(memoryview(aside)[:part[i].size])
        size = <size_t>payload.shape[0]
        if size > MOST - BATCH_HEAD:
            raise columns.refusal(part[i].first)
        to = room_for(out, BATCH_HEAD + size)
        with nogil:
            memcpy(to + BATCH_HEAD, &payload[0], size)
            write_batch_head(to, &batch, &part[i], r.timestamps[part[i].first * r.step], size)
        out.rows.count += BATCH_HEAD + size
    return memoryview(out)


def write_message_sets(Columns columns not None, int64_t most, int magic, int attributes, int64_t base_offset,
                       int codec=0, compress=None):
    """Messages of magic 0 or 1; with a codec inside wrappers of at most `most` bytes before compression, or of one
    message. As `write_batches`; codec: its number."""
    cdef Records* r = &columns.records
    cdef RowBlock cuts = measured(columns, magic, most if compress is not None else <int64_t>1 << 62)
    cdef Cut* part = <Cut*>cuts.rows.at
    cdef size_t i, n = cuts.rows.count, size
    cdef int64_t largest = 0, base
    cdef uint8_t* to
    cdef RowBlock out
    cdef Block aside
    cdef const uint8_t[::1] payload
    for i in range(n):
        largest = max(largest, part[i].size)
    if compress is None:                # then there is one part
        aside = Block(largest)
        if n:
            with nogil:
                write_messages(r, part, <uint8_t*>aside.at, magic, attributes, base_offset)
        return memoryview(aside).toreadonly()
    out, aside = RowBlock(1, largest, <size_t>-1 // 2), Block(largest)
    for i in range(n):
        # Inside a wrapper the offsets of magic 0 are absolute, those of magic 1 count from its first.
        base = -<int64_t>part[i].first if magic else base_offset
        with nogil:
            write_messages(r, &part[i], <uint8_t*>aside.at, magic, attributes, base)
        payload = compress(memoryview(aside)[:part[i].size])
        size = <size_t>payload.shape[0]
        if size > <size_t>(MOST - message_overhead(magic)):
            raise columns.refusal(part[i].first)
        to = room_for(out, <size_t>message_overhead(magic) + size)
        with nogil:
            write_message(to, magic, attributes | codec, base_offset + part[i].end - 1, part[i].latest, NULL, -1,
                          &payload[0], <int32_t>size)
        out.rows.count += <size_t>message_overhead(magic) + size
    return memoryview(out)
