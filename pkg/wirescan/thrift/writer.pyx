# cython: boundscheck=False, wraparound=False
"""Write Thrift header frames, framed messages and message begins from columns.

encode.py calls these functions and draws the frames.
"""
import numpy as np

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memset
from wirescan.core.strings cimport ByteStrings, Strings
from wirescan.core.writer cimport (
    RowOutput, copy_bytes, put_varint, store16, store32, store64, varint_size, write_each,
    write_rows)
from wirescan.core.pairs cimport Pair, Pairs, size_of, string_at

cdef enum:
    LENGTH = 0x3fffffff         # the largest 32-bit length of a frame
    HEADER = 4 * 0xffff         # bytes in a header, whose size is 16 bits and counts words
    MESSAGE = 0x7fffffff        # bytes in a message
    MAX_PARTS = 3

MAX_LENGTH = LENGTH
MAX_HEADER = HEADER
MAX_MESSAGE = MESSAGE

cdef enum:
    FINE
    NO_VALUE
    LONG_HEADER
    LONG_FRAME
    COLON
    LONG_MESSAGE

# The text of each problem that a row can have.
_PROBLEMS = {
    NO_VALUE: "the value of an info must not be null",
    LONG_HEADER: f"a header has at most {MAX_HEADER} bytes",
    LONG_FRAME: f"a frame has at most {MAX_LENGTH} bytes after its length, unless it is big",
    COLON: "a service must not hold a colon",
    LONG_MESSAGE: f"a message has at most {MAX_MESSAGE} bytes",
}

# A part of a header: either the same bytes in all frames (`at`, `size`; `end` is NULL), or an info
# block of each row's pairs (`kind`, `pair`, `end`).
cdef struct Part:
    const uint8_t* at
    int64_t size
    int kind
    const Pair* pair
    const int64_t* end

# Everything that `write_frames` writes.
cdef struct Frames:
    Strings payloads
    const int64_t* flags
    const int64_t* seqs
    Py_ssize_t flag_step        # 1, or 0 for a single value
    Py_ssize_t seq_step         # 1, or 0 for a single value
    Part parts[MAX_PARTS]
    size_t part_count
    int64_t before              # bytes before 0x0FFF: 4, or 12 in a big frame
    int64_t padding             # bytes, at least
    int64_t mac                 # bytes after the payload

# Everything that `write_messages` writes.
cdef struct Messages:
    Strings methods
    Strings services            # a service may be null
    Strings arguments
    const int64_t* types
    const int64_t* seqids
    Py_ssize_t type_step        # 1, or 0 for a single value
    Py_ssize_t seqid_step       # 1, or 0 for a single value
    uint8_t compact             # the version of the compact protocol; 0: the binary protocol
    bint strict


cdef inline uint8_t* put(uint8_t* to, const uint8_t* at, int64_t size) noexcept nogil:
    copy_bytes(to, at, <size_t>size)
    return to + size


cdef inline uint8_t* put_sized(uint8_t* to, const uint8_t* at, int64_t size) noexcept nogil:
    return put(put_varint(to, <uint64_t>size), at, size)


cdef inline int64_t measure_string(int64_t size) noexcept nogil:
    return <int64_t>varint_size(<uint64_t>size) + size


cdef Py_ssize_t count_rows(columns, numbers) except -1:
    # columns: byte strings, at least one column. numbers: arrays of one value, or one for each row.
    count = max(len(column) for column in columns)
    unequal = any(len(column) != count for column in columns)
    if unequal or any(len(column) not in (1, count) for column in numbers):
        raise ValueError("columns of unequal length")
    return count


cdef int refuse_nulls(ByteStrings strings, name) except -1:
    if strings.nulls:
        raise ValueError(f"row {int((strings.lengths() < 0).argmax())}: {name} must not be null")
    return 0


# --------------------------------------------------------------------------------- header frames

cdef inline int add_part(const Part* part, Py_ssize_t i, int64_t* size) noexcept nogil:
    # Adds the size of a part. Returns a problem or FINE. Stops counting above HEADER.
    cdef int64_t at
    if part.end is NULL:
        size[0] += part.size
    elif part.end[i] < part.end[i + 1]:
        size[0] += 1 + <int64_t>varint_size(<uint64_t>(part.end[i + 1] - part.end[i]))
        for at in range(part.end[i], part.end[i + 1]):
            if part.pair[at].value_size < 0:
                return NO_VALUE
            size[0] += (measure_string(part.pair[at].key_size)
                        + measure_string(part.pair[at].value_size))
            if size[0] > HEADER:
                return LONG_HEADER
    return FINE


cdef inline uint8_t* put_part(uint8_t* to, const Part* part, Py_ssize_t i) noexcept nogil:
    cdef int64_t at
    if part.end is NULL:
        return put(to, part.at, part.size)
    if part.end[i] < part.end[i + 1]:
        to[0] = <uint8_t>part.kind
        to = put_varint(to + 1, <uint64_t>(part.end[i + 1] - part.end[i]))
        for at in range(part.end[i], part.end[i + 1]):
            to = put_sized(to, part.pair[at].key, part.pair[at].key_size)
            to = put_sized(to, part.pair[at].value, part.pair[at].value_size)
    return to


cdef inline int64_t compute_padded_size(int64_t size, int64_t padding) noexcept nogil:
    return (size + padding + 3) & ~<int64_t>3


cdef inline int64_t measure_frame(const void* columns, Py_ssize_t i) noexcept nogil:
    cdef const Frames* f = <const Frames*>columns
    cdef int64_t header = 0
    cdef int64_t size
    cdef size_t p
    cdef int problem
    for p in range(f.part_count):
        problem = add_part(&f.parts[p], i, &header)
        if problem:
            return -problem
    header = compute_padded_size(header, f.padding)
    size = f.before + 10 + header + size_of(&f.payloads, i) + f.mac
    if header > HEADER:
        return -LONG_HEADER
    return -LONG_FRAME if f.before == 4 and size - 4 > LENGTH else size


cdef inline void put_frame(const void* columns, Py_ssize_t i, uint8_t* to,
                           int64_t size) noexcept nogil:
    cdef const Frames* f = <const Frames*>columns
    cdef uint8_t* header
    cdef uint8_t* end
    cdef size_t p
    if f.before == 4:
        store32(to, <uint32_t>(size - 4))
    else:
        copy_bytes(to, <const uint8_t*>b"BIGF", 4)
        store64(to + 4, <uint64_t>(size - 12))
    to += f.before
    store16(to, 0x0fff)
    store16(to + 2, <uint16_t>f.flags[i * f.flag_step])
    store32(to + 4, <uint32_t>f.seqs[i * f.seq_step])
    to += 10
    header = to
    for p in range(f.part_count):
        to = put_part(to, &f.parts[p], i)
    end = header + compute_padded_size(to - header, f.padding)
    store16(header - 2, <uint16_t>((end - header) >> 2))
    while to < end:
        to[0] = 0
        to += 1
    copy_bytes(to, string_at(&f.payloads, i), <size_t>size_of(&f.payloads, i))


cdef Py_ssize_t run_frames(RowOutput* output) noexcept nogil:
    return write_each(output, measure_frame, put_frame)


def write_frames(ByteStrings payloads not None, flags not None, seqs not None, list parts not None,
                 bint padding, bint big, sign=None):
    """Return (bytes, offsets): header frames without gaps; offsets are int64.

    Frame i is between offsets i and i + 1. flags, seqs: int64 arrays of one value, or one for each
    row. parts: up to three parts of the header, in their order: bytes that are the same in all
    frames and not empty, or (info id, `Pairs`). padding: a header ends with at least one zero.
    sign: makes the mac of a memoryview, always of one size. The first part then ends with the byte
    for that size, which is still 0.

    Raises ValueError for columns of unequal length, a null payload, and a row that the format
    cannot hold.
    """
    cdef const int64_t[::1] flag = flags
    cdef const int64_t[::1] seq = seqs
    cdef const uint8_t[::1] constant
    cdef const uint8_t[::1] mac
    cdef Frames f
    cdef Part* part_of_header
    cdef Py_ssize_t i, n
    cdef int64_t size
    cdef uint8_t* to
    pairs = [part[1] for part in parts if isinstance(part, tuple)]
    n = count_rows([payloads, *pairs], (flags, seqs))
    refuse_nulls(payloads, "a payload")
    if n == 0:
        return b"", np.zeros(1, np.int64)
    if len(parts) > MAX_PARTS:
        raise ValueError(f"a header has at most {MAX_PARTS} parts, not {len(parts)}")
    memset(&f, 0, sizeof(Frames))
    f.payloads = payloads.strings
    f.before = 12 if big else 4
    f.padding = padding
    f.flags = &flag[0]
    f.seqs = &seq[0]
    f.flag_step = len(flag) == n
    f.seq_step = len(seq) == n
    f.mac = 0 if sign is None else len(sign(b""))
    for part in parts:
        part_of_header = &f.parts[f.part_count]
        if isinstance(part, tuple):
            part_of_header.kind = part[0]
            part_of_header.pair = (<Pairs>part[1]).pair
            part_of_header.end = (<Pairs>part[1]).end
        else:
            constant = part
            part_of_header.at = &constant[0]
            part_of_header.size = len(part)
        f.part_count += 1
    out, offset_array = write_rows(&f, n, run_frames, _PROBLEMS)
    cdef const int64_t[::1] offsets = offset_array
    if sign is not None:
        for i in range(n):
            size = offsets[i + 1] - offsets[i] - f.before - f.mac
            to = <uint8_t*>PyBytes_AS_STRING(out) + offsets[i] + f.before
            mac = sign(PyMemoryView_FromMemory(<char*>to, size, PyBUF_READ))
            copy_bytes(to + size, &mac[0], <size_t>f.mac)
            to[9 + f.parts[0].size] = <uint8_t>f.mac
    return out, offset_array


# -------------------------------------------------------------------- messages and framed messages

cdef inline int64_t measure_message(const void* columns, Py_ssize_t i) noexcept nogil:
    # The size of a null service is -1.
    cdef const Messages* m = <const Messages*>columns
    cdef int64_t service = size_of(&m.services, i)
    cdef int64_t name = size_of(&m.methods, i) + service + 1
    cdef int64_t size
    cdef uint32_t seqid
    if service > 0 and memchr(string_at(&m.services, i), c":", <size_t>service) is not NULL:
        return -COLON
    size = name + size_of(&m.arguments, i) + (12 if m.strict else 9)
    if m.compact:
        seqid = <uint32_t>m.seqids[i * m.seqid_step]
        size += 2 - 9 + <int64_t>(varint_size(seqid) + varint_size(<uint64_t>name))
    return size if size <= MESSAGE else -LONG_MESSAGE


cdef inline void put_message(const void* columns, Py_ssize_t i, uint8_t* to,
                             int64_t size) noexcept nogil:
    cdef const Messages* m = <const Messages*>columns
    cdef uint8_t type = <uint8_t>m.types[i * m.type_step]
    cdef uint32_t seqid = <uint32_t>m.seqids[i * m.seqid_step]
    cdef int64_t service = size_of(&m.services, i)
    cdef int64_t name = size_of(&m.methods, i) + service + 1
    if m.compact:
        to[0] = 0x82
        to[1] = type << 5 | m.compact
        to = put_varint(put_varint(to + 2, seqid), <uint64_t>name)
    else:
        if m.strict:
            store16(to, 0x8001)
            store16(to + 2, type)
            to += 4
        store32(to, <uint32_t>name)
        to += 4
    if service >= 0:
        to = put(to, string_at(&m.services, i), service)
        to[0] = c":"
        to += 1
    to = put(to, string_at(&m.methods, i), size_of(&m.methods, i))
    if not m.compact:
        if not m.strict:
            to[0] = type
            to += 1
        store32(to, seqid)
        to += 4
    copy_bytes(to, string_at(&m.arguments, i), <size_t>size_of(&m.arguments, i))


cdef Py_ssize_t run_messages(RowOutput* output) noexcept nogil:
    return write_each(output, measure_message, put_message)


def write_messages(ByteStrings methods not None, ByteStrings services not None, types not None,
                   seqids not None, ByteStrings arguments not None, uint8_t compact, bint strict):
    """Return (bytes, offsets): messages without gaps; offsets are int64.

    Message i is between offsets i and i + 1. services: null where a name has none. types, seqids:
    int64 arrays of one value, or one for each row. compact: the version of the compact protocol;
    0 is the binary protocol, `strict` or not.

    Raises ValueError for columns of unequal length, a null, and a row that the format cannot hold.
    """
    cdef const int64_t[::1] type = types
    cdef const int64_t[::1] seqid = seqids
    cdef Messages m
    cdef Py_ssize_t n = count_rows([methods, services, arguments], (types, seqids))
    refuse_nulls(methods, "a method")
    refuse_nulls(arguments, "arguments")
    if n == 0:
        return b"", np.zeros(1, np.int64)
    m = Messages(methods.strings, services.strings, arguments.strings, &type[0], &seqid[0],
                 len(type) == n, len(seqid) == n, compact, strict and not compact)
    return write_rows(&m, n, run_messages, _PROBLEMS)


cdef inline int64_t measure_framed(const void* columns, Py_ssize_t i) noexcept nogil:
    cdef int64_t size = size_of(<const Strings*>columns, i)
    return 4 + size if size <= LENGTH else -LONG_FRAME


cdef inline void put_framed(const void* columns, Py_ssize_t i, uint8_t* to,
                            int64_t size) noexcept nogil:
    store32(to, <uint32_t>(size - 4))
    copy_bytes(to + 4, string_at(<const Strings*>columns, i), <size_t>(size - 4))


cdef Py_ssize_t run_framed(RowOutput* output) noexcept nogil:
    return write_each(output, measure_framed, put_framed)


def write_framed(ByteStrings messages not None):
    """Return (bytes, offsets): framed messages without gaps; offsets are int64.

    Frame i is between offsets i and i + 1. Raises ValueError for a null and for a message that is
    too large.
    """
    refuse_nulls(messages, "a message")
    return write_rows(&messages.strings, len(messages), run_framed, _PROBLEMS)
