# cython: boundscheck=False, wraparound=False
"""Writes envelopes with protobuf messages, and records of commit logs, from columns.

`encode.py` calls these functions. scan.pyx shows the formats of envelopes and records.
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from wirescan.core.checksum cimport crc32c_of
from wirescan.core.rows cimport Block
from wirescan.core.strings cimport ByteStrings, Strings
from wirescan.core.writer cimport (
    RowOutput, copy_bytes, put_varint, store16, store32, store64, varint_size, write_each,
    write_rows)
from wirescan.core.pairs cimport Pair, Pairs, size_of, string_at

cdef enum:
    MAX_SIZE = 0x7fffffff       # bytes in a protobuf message, and in a record
    MAX_NAME = 0x7fff           # bytes in the name of a record's header
    MAX_HEADERS = 0xffff        # headers in a record
    CRC_SIZE = 4
    RECORD_HEAD = 28            # bytes of a record before its message
    SMALLEST_MESSAGE = 16       # bytes of a record's message without key, value and headers
    HEADER_SIZES = 6            # bytes of the two sizes of a record's header
    VARINT = 0                  # wire types
    BYTES = 2
    KEY = 1 << 3 | BYTES        # tags in an entry of a map
    VALUE = 2 << 3 | BYTES

# What is wrong with a row.
cdef enum:
    LONG_MESSAGE = 1
    LONG_NAME
    MANY_HEADERS
    LONG_RECORD

_PROBLEMS = {
    LONG_MESSAGE: "a message must have less than 2 GiB",
    LONG_NAME: f"a header's key has more than {MAX_NAME} bytes",
    MANY_HEADERS: f"a record has more than {MAX_HEADERS} headers",
    LONG_RECORD: "a record must have less than 2 GiB",
}

# One field of a message, for all rows. It has strings, numbers or pairs.
cdef struct Field:
    uint8_t tag
    Strings strings             # wire type BYTES; a null is not written
    const int64_t* numbers      # wire type VARINT; 0 is not written
    Py_ssize_t step             # of `numbers`: 1, or 0 if one number is for all rows
    const Pair* pair            # a map, with an entry for each pair; a null value is not written
    const int64_t* end          # row i has the pairs from end[i] to end[i + 1]

# Envelopes with messages.
cdef struct Messages:
    const Field* fields
    size_t width                # number of fields
    const uint8_t* front        # the header of the envelope, without its checksum
    size_t front_size
    bint crc

# Records of a commit log.
cdef struct Records:
    const int64_t* offsets
    const int64_t* stamps
    const int64_t* epochs
    Py_ssize_t offset_step, stamp_step, epoch_step      # 1, or 0 if one number is for all rows
    Strings keys, values
    const Pair* pair            # NULL: no row has headers
    const int64_t* end


# ------------------------------------------------------------------ protobuf

cdef inline int64_t measure_bytes(int64_t size) noexcept nogil:
    # Size of a field with `size` bytes of data, its tag (below 128) and its length; 0 for a null.
    return 0 if size < 0 else 1 + <int64_t>varint_size(<uint64_t>size) + size


cdef inline int64_t measure_entry(const Pair* pair) noexcept nogil:
    # Size of the data of a map's entry.
    return measure_bytes(pair.key_size) + measure_bytes(pair.value_size)


cdef inline uint8_t* put_bytes(uint8_t* to, uint8_t tag, const uint8_t* at,
                               int64_t size) noexcept nogil:
    if size < 0:
        return to
    to[0] = tag
    to = put_varint(to + 1, <uint64_t>size)
    copy_bytes(to, at, <size_t>size)
    return to + size


cdef inline int64_t measure_field(const Field* field, Py_ssize_t i) noexcept nogil:
    cdef int64_t size = 0, at, number
    if field.numbers is not NULL:
        number = field.numbers[i * field.step]
        return 1 + <int64_t>varint_size(<uint64_t>number) if number else 0
    if field.pair is NULL:
        return measure_bytes(size_of(&field.strings, i))
    for at in range(field.end[i], field.end[i + 1]):
        size += measure_bytes(measure_entry(&field.pair[at]))
    return size


cdef inline uint8_t* put_field(uint8_t* to, const Field* field, Py_ssize_t i) noexcept nogil:
    cdef int64_t at, number
    cdef Pair pair
    if field.numbers is not NULL:
        number = field.numbers[i * field.step]
        if number:
            to[0] = field.tag
            to = put_varint(to + 1, <uint64_t>number)
    elif field.pair is NULL:
        to = put_bytes(to, field.tag, string_at(&field.strings, i), size_of(&field.strings, i))
    else:
        for at in range(field.end[i], field.end[i + 1]):
            pair = field.pair[at]
            to[0] = field.tag
            to = put_varint(to + 1, <uint64_t>measure_entry(&pair))
            to = put_bytes(to, KEY, pair.key, pair.key_size)
            to = put_bytes(to, VALUE, pair.value, pair.value_size)
    return to


cdef inline int64_t measure_message(const void* columns, Py_ssize_t i) noexcept nogil:
    cdef const Messages* m = <const Messages*>columns
    cdef int64_t size = <int64_t>m.front_size + CRC_SIZE * m.crc
    cdef size_t f
    for f in range(m.width):
        size += measure_field(&m.fields[f], i)
    return size if size <= MAX_SIZE else -LONG_MESSAGE


cdef inline void put_message(const void* columns, Py_ssize_t i, uint8_t* to,
                             int64_t size) noexcept nogil:
    cdef const Messages* m = <const Messages*>columns
    cdef uint8_t* body = to + m.front_size + CRC_SIZE * m.crc
    cdef size_t f
    copy_bytes(to, m.front, m.front_size)
    to = body
    for f in range(m.width):
        to = put_field(to, &m.fields[f], i)
    if m.crc:
        store32(body - CRC_SIZE, crc32c_of(body, <size_t>(to - body)))


cdef Py_ssize_t run_messages(RowOutput* output) noexcept nogil:
    return write_each(output, measure_message, put_message)


def write_messages(list columns not None, Py_ssize_t count, bytes head not None, bint crc):
    """Return (bytes, offsets): `count` messages in envelopes, without gaps.

    Message i is the bytes from offsets[i] to offsets[i + 1]; the offsets are int64.

    columns: (number, column) in the order of writing, with field numbers below 16. A column is a
    `ByteStrings`; a `Pairs`, which is a map; or an int64 array with one number for each row or one
    for all. A null and 0 are not written. head: the envelope's header, or no bytes. crc: write the
    CRC-32C of the message after the header.

    Raises ValueError for columns of unequal length, and for a message of 2 GiB or more.
    """
    cdef Block block = Block(len(columns) * <Py_ssize_t>sizeof(Field))
    cdef Field* fields = <Field*>block.at
    cdef const int64_t[::1] numbers
    cdef const uint8_t[::1] front = head or b"\0"
    cdef Messages m = Messages(fields, 0, &front[0], <size_t>len(head), crc)
    cdef size_t width = 0
    for number, column in columns:
        if len(column) != count and (len(column) != 1 or not isinstance(column, np.ndarray)):
            raise ValueError("columns of unequal length")
        fields[width] = Field(<uint8_t>(<int>number << 3 | BYTES), Strings(NULL, NULL, 0), NULL, 0,
                              NULL, NULL)
        if isinstance(column, ByteStrings):
            fields[width].strings = (<ByteStrings>column).strings
        elif isinstance(column, Pairs):
            fields[width].pair = (<Pairs>column).pair
            fields[width].end = (<Pairs>column).end
        else:
            if count == 0:
                continue
            numbers = column
            fields[width].tag = <uint8_t>(<int>number << 3 | VARINT)
            fields[width].numbers = &numbers[0]
            fields[width].step = len(column) == count
        width += 1
    m.width = width
    return write_rows(&m, count, run_messages, _PROBLEMS)


# ------------------------------------------------------------------ records of commit logs

cdef inline int64_t measure_record(const void* columns, Py_ssize_t i) noexcept nogil:
    cdef const Records* r = <const Records*>columns
    cdef int64_t at
    cdef int64_t size = (RECORD_HEAD + SMALLEST_MESSAGE + <int64_t>max(size_of(&r.keys, i), 0)
                         + max(size_of(&r.values, i), 0))
    if r.pair is not NULL:
        if r.end[i + 1] - r.end[i] > MAX_HEADERS:
            return -MANY_HEADERS
        for at in range(r.end[i], r.end[i + 1]):
            if r.pair[at].key_size > MAX_NAME:
                return -LONG_NAME
            size += HEADER_SIZES + <int64_t>r.pair[at].key_size + max(r.pair[at].value_size, 0)
    return size if size <= MAX_SIZE else -LONG_RECORD


cdef inline uint8_t* put_nullable(uint8_t* to, const uint8_t* at, int32_t size) noexcept nogil:
    store32(to, <uint32_t>size)
    if size <= 0:
        return to + 4
    copy_bytes(to + 4, at, <size_t>size)
    return to + 4 + size


cdef inline void put_record(const void* columns, Py_ssize_t i, uint8_t* to,
                            int64_t size) noexcept nogil:
    cdef const Records* r = <const Records*>columns
    cdef uint8_t* message = to + RECORD_HEAD
    cdef int64_t at
    cdef Pair pair
    store64(to, <uint64_t>r.offsets[i * r.offset_step])
    store64(to + 8, <uint64_t>r.stamps[i * r.stamp_step])
    store64(to + 16, <uint64_t>r.epochs[i * r.epoch_step])
    message[4] = 1                          # magic
    message[5] = 0                          # attributes
    to = message + 6
    to = put_nullable(to, string_at(&r.keys, i), size_of(&r.keys, i))
    to = put_nullable(to, string_at(&r.values, i), size_of(&r.values, i))
    store16(to, 0 if r.pair is NULL else <uint16_t>(r.end[i + 1] - r.end[i]))
    to += 2
    if r.pair is not NULL:
        for at in range(r.end[i], r.end[i + 1]):
            pair = r.pair[at]
            store16(to, <uint16_t>pair.key_size)
            copy_bytes(to + 2, pair.key, <size_t>pair.key_size)
            to = put_nullable(to + 2 + pair.key_size, pair.value, pair.value_size)
    store32(message - 4, <uint32_t>(to - message))
    store32(message, crc32c_of(message + CRC_SIZE, <size_t>(to - message - CRC_SIZE)))


cdef Py_ssize_t run_records(RowOutput* output) noexcept nogil:
    return write_each(output, measure_record, put_record)


def write_entries(offsets not None, stamps not None, epochs not None, ByteStrings keys not None,
                  ByteStrings values not None, Pairs pairs=None):
    """Return records of a commit log as bytes, without gaps.

    offsets, stamps, epochs: int64 arrays with one number for each record or one for all. keys,
    values, pairs: columns of equal length.

    Raises ValueError for columns of unequal length, and for a record that the format cannot hold.
    """
    cdef const int64_t[::1] offset = offsets, stamp = stamps, epoch = epochs
    cdef Records r
    cdef Py_ssize_t n = len(values)
    if (len(keys) != n or (pairs is not None and len(pairs) != n)
            or not {len(offset), len(stamp), len(epoch)} <= {1, n}):
        raise ValueError("columns of unequal length")
    if n == 0:
        return b""
    r = Records(&offset[0], &stamp[0], &epoch[0], len(offset) == n, len(stamp) == n,
                len(epoch) == n, keys.strings, values.strings, NULL, NULL)
    if pairs is not None:
        r.pair = pairs.pair
        r.end = pairs.end
    return write_rows(&r, n, run_records, _PROBLEMS)[0]
