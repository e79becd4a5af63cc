# cython: boundscheck=False, wraparound=False
"""Envelopes around protobuf messages, and records of commit logs, out of columns: in two passes over the rows and
without the GIL, sizes first, then bytes. encode.py draws them."""
import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from wirescan.core.checksum cimport crc32c_of
from wirescan.core.rows cimport Block
from wirescan.core.strings cimport ByteStrings, Strings
from wirescan.core.writer cimport copied, put_varint, store16, store32, store64, varint_size
from wirescan.core.pairs cimport Pair, Pairs, size_of, string_at

cdef enum:
    MOST = 0x7fffffff           # bytes in a message, as protobuf has it, and in a record
    LONGEST_NAME = 0x7fff       # bytes in a header's name in a record
    MOST_HEADERS = 0xffff       # in a record
    RECORD_HEAD = 28            # bytes before the message in a record
    RECORD_LEAST = 16           # bytes of a message in a record that has nothing
    VARINT = 0                  # wire types
    BYTES = 2
    KEY = 1 << 3 | BYTES        # tags in a map's entry
    VALUE = 2 << 3 | BYTES

cdef struct Field:
    uint8_t tag
    Strings strings             # of type BYTES; a null is left out
    const int64_t* numbers      # of type VARINT; 0 is left out
    Py_ssize_t step             # of these: 1, or 0 where one stands for all
    const Pair* pair            # of a map: an entry a pair, whose null value is left out
    const int64_t* end

cdef struct Records:
    Py_ssize_t count
    const int64_t* offsets
    const int64_t* stamps
    const int64_t* epochs
    Py_ssize_t offset_step, stamp_step, epoch_step      # 1, or 0 where one stands for all
    Strings keys, values
    const Pair* pair            # NULL: no row has headers
    const int64_t* end


# ------------------------------------------------------------------------------------------- protobuf

cdef inline int64_t sized(int64_t size) noexcept nogil:
    # A field of so many bytes, with its tag, which is below 128, and its length; nothing where they are null.
    return 0 if size < 0 else 1 + <int64_t>varint_size(<uint64_t>size) + size


cdef inline uint8_t* put_bytes(uint8_t* to, uint8_t tag, const uint8_t* at, int64_t size) noexcept nogil:
    if size < 0:
        return to
    to[0] = tag
    to = put_varint(to + 1, <uint64_t>size)
    copied(to, at, <size_t>size)
    return to + size


cdef inline int64_t field_size(const Field* field, Py_ssize_t i) noexcept nogil:
    cdef int64_t size = 0, at
    if field.numbers is not NULL:
        at = field.numbers[i * field.step]
        return 1 + <int64_t>varint_size(<uint64_t>at) if at else 0
    if field.pair is NULL:
        return sized(size_of(&field.strings, i))
    for at in range(field.end[i], field.end[i + 1]):
        size += sized(sized(field.pair[at].key_size) + sized(field.pair[at].value_size))
    return size


cdef inline uint8_t* put_field(uint8_t* to, const Field* field, Py_ssize_t i) noexcept nogil:
    cdef int64_t at
    cdef Pair pair
    if field.numbers is not NULL:
        at = field.numbers[i * field.step]
        if at:
            to[0] = field.tag
            to = put_varint(to + 1, <uint64_t>at)
    elif field.pair is NULL:
        to = put_bytes(to, field.tag, string_at(&field.strings, i), size_of(&field.strings, i))
    else:
        for at in range(field.end[i], field.end[i + 1]):
            pair = field.pair[at]
            to[0] = field.tag
            to = put_varint(to + 1, <uint64_t>(sized(pair.key_size) + sized(pair.value_size)))
            to = put_bytes(put_bytes(to, KEY, pair.key, pair.key_size), VALUE, pair.value, pair.value_size)
    return to


cdef Py_ssize_t measure(const Field* fields, size_t width, int64_t head, int64_t[::1] offsets) noexcept nogil:
    # The row whose message is too large, or -1.
    cdef Py_ssize_t i
    cdef int64_t size
    cdef size_t f
    offsets[0] = 0
    for i in range(offsets.shape[0] - 1):
        size = 0
        for f in range(width):
            size += field_size(&fields[f], i)
        if size > MOST - head:
            return i
        offsets[i + 1] = offsets[i] + head + size
    return -1


def write_messages(list columns not None, Py_ssize_t count, bytes head not None, bint crc):
    """(bytes, offsets): `count` messages in envelopes, one behind another; message i lies between offsets i and i + 1,
    int64.

    columns: (number, column) in the order of writing, with numbers below 16: `ByteStrings`; `Pairs`, a map; or an int64
    array, of one for each row or one for all. A null and 0 are left out. head: the envelope's header; the CRC-32C of
    what follows comes behind it, if `crc`. Raises ValueError for columns of unequal length, a message of 2 GiB.
    """
    cdef Block block = Block(len(columns) * <Py_ssize_t>sizeof(Field))
    cdef Field* fields = <Field*>block.at
    cdef const int64_t[::1] numbers
    cdef const uint8_t[::1] front = head or b"\0"
    cdef Py_ssize_t i, refused
    cdef int64_t before = len(head) + 4 * crc
    cdef size_t f, width = 0
    cdef uint8_t* to
    cdef uint8_t* body
    for number, column in columns:
        if len(column) != count and (len(column) != 1 or not isinstance(column, np.ndarray)):
            raise ValueError("columns of unequal length")
        fields[width] = Field(<uint8_t>(<int>number << 3 | BYTES), Strings(NULL, NULL, 0), NULL, 0, NULL, NULL)
        if isinstance(column, ByteStrings):
            fields[width].strings = (<ByteStrings>column).strings
        elif isinstance(column, Pairs):
            fields[width].pair, fields[width].end = (<Pairs>column).pair, (<Pairs>column).end
        else:
            if count == 0:
                continue
            numbers = column
            fields[width].tag = <uint8_t>(<int>number << 3 | VARINT)
            fields[width].numbers, fields[width].step = &numbers[0], len(column) == count
        width += 1
    found = np.empty(count + 1, np.int64)
    cdef int64_t[::1] offsets = found
    with nogil:
        refused = measure(fields, width, before, offsets)
    if refused >= 0:
        raise ValueError(f"row {refused} is too large: a message has less than 2 GiB")
    out = PyBytes_FromStringAndSize(NULL, offsets[count])
    # A varint of one byte puts a zero behind itself: what follows is written later, and behind the last byte of a
    # bytes object lies a zero anyway.
    cdef uint8_t* first = <uint8_t*>PyBytes_AS_STRING(out)
    with nogil:
        for i in range(count):
            to = first + offsets[i]
            copied(to, &front[0], <size_t>before - 4 * crc)
            to = body = to + before
            for f in range(width):
                to = put_field(to, &fields[f], i)
            if crc:
                store32(body - 4, crc32c_of(body, <size_t>(to - body)))
    return out, found


# ----------------------------------------------------------------------------------- records of commit logs

cdef enum:
    FINE, NAME, HEADERS, RECORD

cdef inline int record_size(const Records* r, Py_ssize_t i, int64_t* size) noexcept nogil:
    # Behind its head. What is wrong with it, or FINE.
    cdef int64_t at
    size[0] = RECORD_LEAST + <int64_t>max(size_of(&r.keys, i), 0) + max(size_of(&r.values, i), 0)
    if r.pair is not NULL:
        if r.end[i + 1] - r.end[i] > MOST_HEADERS:
            return HEADERS
        for at in range(r.end[i], r.end[i + 1]):
            if r.pair[at].key_size > LONGEST_NAME:
                return NAME
            size[0] += 6 + <int64_t>r.pair[at].key_size + max(r.pair[at].value_size, 0)
    return RECORD if size[0] > MOST - RECORD_HEAD else FINE


cdef inline uint8_t* put_nullable(uint8_t* to, const uint8_t* at, int32_t size) noexcept nogil:
    store32(to, <uint32_t>size)
    if size <= 0:
        return to + 4
    copied(to + 4, at, <size_t>size)
    return to + 4 + size


cdef inline uint8_t* put_record(uint8_t* to, const Records* r, Py_ssize_t i) noexcept nogil:
    cdef uint8_t* message = to + RECORD_HEAD
    cdef int64_t at
    cdef Pair pair
    store64(to, <uint64_t>r.offsets[i * r.offset_step])
    store64(to + 8, <uint64_t>r.stamps[i * r.stamp_step])
    store64(to + 16, <uint64_t>r.epochs[i * r.epoch_step])
    to = message + 6
    message[4], message[5] = 1, 0           # magic, attributes
    to = put_nullable(to, string_at(&r.keys, i), size_of(&r.keys, i))
    to = put_nullable(to, string_at(&r.values, i), size_of(&r.values, i))
    store16(to, 0 if r.pair is NULL else <uint16_t>(r.end[i + 1] - r.end[i]))
    to += 2
    if r.pair is not NULL:
        for at in range(r.end[i], r.end[i + 1]):
            pair = r.pair[at]
            store16(to, <uint16_t>pair.key_size)
            copied(to + 2, pair.key, <size_t>pair.key_size)
            to = put_nullable(to + 2 + pair.key_size, pair.value, pair.value_size)
    store32(message - 4, <uint32_t>(to - message))
    store32(message, crc32c_of(message + 4, <size_t>(to - message - 4)))
    return to


def write_entries(offsets not None, stamps not None, epochs not None, ByteStrings keys not None,
                  ByteStrings values not None, Pairs pairs=None):
    """Records of a commit log, one behind another, as bytes: int64 arrays of one number for each or one for all, and
    columns of equal length. Raises ValueError where they are not, and for a record that the format cannot hold."""
    cdef const int64_t[::1] offset = offsets, stamp = stamps, epoch = epochs
    cdef Records r
    cdef Py_ssize_t i = 0, n = len(values)
    cdef int64_t size = 0, total = 0
    cdef int wrong = FINE
    cdef uint8_t* to
    if len(keys) != n or (pairs is not None and len(pairs) != n) or not {len(offset), len(stamp), len(epoch)} <= {1, n}:
        raise ValueError("columns of unequal length")
    if n == 0:
        return b""
    r = Records(n, &offset[0], &stamp[0], &epoch[0], len(offset) == n, len(stamp) == n, len(epoch) == n, keys.strings,
                values.strings, NULL, NULL)
    if pairs is not None:
        r.pair, r.end = pairs.pair, pairs.end
    with nogil:
        for i in range(n):
            wrong = record_size(&r, i, &size)
            if wrong:
                break
            total += RECORD_HEAD + size
    if wrong:
        raise ValueError(f"row {i}: " + {
            NAME: f"a header's key has more than {LONGEST_NAME} bytes", HEADERS: f"more than {MOST_HEADERS} headers",
            RECORD: "a record has less than 2 GiB"}[wrong])
    out = PyBytes_FromStringAndSize(NULL, total)
    to = <uint8_t*>PyBytes_AS_STRING(out)
    with nogil:
        for i in range(n):
            to = put_record(to, &r, i)
    return out
