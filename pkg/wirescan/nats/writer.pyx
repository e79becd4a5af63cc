# cython: boundscheck=False, wraparound=False
"""Writes NATS messages from columns.

`encode.py` calls these functions, and its docstring shows the format.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memset
from wirescan.core.pairs cimport Pair, Pairs, size_of, string_at
from wirescan.core.strings cimport ByteStrings, Strings
from wirescan.core.text cimport count_digits, put_decimal
from wirescan.core.writer cimport RowOutput, copy_bytes, write_each, write_rows

cdef enum:
    MAX_SIZE = 999999999        # bytes in a message; a size has nine digits
    EMPTY_BLOCK = 12            # bytes of NATS/1.0 and two line ends
    HEADER_MARKS = 4            # bytes in a header line beside name and value: colon, space, CRLF
    MAX_WORDS = 3

MAX_BYTES = MAX_SIZE

cdef enum:
    TOO_LARGE = 1

_PROBLEMS = {TOO_LARGE: f"a message has at most {MAX_BYTES} bytes"}

# The columns that are written.
cdef struct Messages:
    const uint8_t* operation
    size_t operation_size
    Strings words[MAX_WORDS]    # in the order of the wire; a null is not written
    size_t width                # number of words
    Strings payloads
    const Pair* pair            # NULL: no row has headers
    const int64_t* end          # row i has the pairs from end[i] to end[i + 1]


# ------------------------------------------------------------------ validation

cdef bint holds(const uint8_t* p, int32_t size, const char* forbidden) noexcept nogil:
    # Whether the bytes hold one of the forbidden characters.
    while size > 0 and forbidden[0]:
        if memchr(p, forbidden[0], <size_t>size) is not NULL:
            return True
        forbidden += 1
    return False


def find_unfit_word(ByteStrings words not None, bint optional=False):
    """Return the first row whose string cannot be a word of a control line, or -1.

    A word must not be empty, and must not hold a space, a tab, CR or LF. optional: a null is
    allowed.
    """
    cdef Strings strings = words.strings
    cdef Py_ssize_t i, n = len(words) if strings.step else min(len(words), 1)
    cdef int32_t size
    with nogil:
        for i in range(n):
            size = strings.size[i]
            if size == 0 or (size < 0 and not optional):
                break
            if holds(<const uint8_t*>strings.address[i], size, b" \t\r\n"):
                break
        else:
            i = -1
    return i


cdef Py_ssize_t find_unfit(Pairs pairs) noexcept nogil:
    cdef Pair pair
    cdef Py_ssize_t i
    cdef int64_t at
    for i in range(pairs.count):
        for at in range(pairs.end[i], pairs.end[i + 1]):
            pair = pairs.pair[at]
            if (pair.key_size <= 0 or pair.value_size < 0
                    or holds(pair.key, pair.key_size, b":\r\n")
                    or holds(pair.value, pair.value_size, b"\r\n")):
                return i
    return -1


def find_unfit_pair(Pairs pairs not None):
    """Return the first row with a pair that cannot be a header line, or -1.

    A name must not be empty, and must not hold a colon, CR or LF. A value must not be null, and
    must not hold CR or LF.
    """
    cdef Py_ssize_t i
    with nogil:
        i = find_unfit(pairs)
    return i


# ------------------------------------------------------------------ writing

cdef inline int64_t measure_block(const Messages* m, Py_ssize_t i) noexcept nogil:
    # Return the size of a row's header block, 0 without headers. Above MAX_SIZE, counting stops.
    cdef int64_t size = EMPTY_BLOCK, at
    if m.pair is NULL or m.end[i] == m.end[i + 1]:
        return 0
    for at in range(m.end[i], m.end[i + 1]):
        size += <int64_t>m.pair[at].key_size + m.pair[at].value_size + HEADER_MARKS
        if size > MAX_SIZE:
            break
    return size


cdef inline int64_t measure_message(const void* columns, Py_ssize_t i) noexcept nogil:
    cdef const Messages* m = <const Messages*>columns
    cdef int64_t block = measure_block(m, i)
    cdef int64_t size = block + size_of(&m.payloads, i)
    cdef int64_t line
    cdef size_t w
    if size > MAX_SIZE:
        return -TOO_LARGE
    line = <int64_t>(m.operation_size + 1 + count_digits(<uint64_t>size) + 4)
    if block:
        line += <int64_t>(2 + count_digits(<uint64_t>block))    # the H, and a space
    for w in range(m.width):
        line += max(size_of(&m.words[w], i), -1) + 1
    return line + size


cdef inline uint8_t* put(uint8_t* to, const void* at, size_t size) noexcept nogil:
    copy_bytes(to, <const uint8_t*>at, size)
    return to + size


cdef inline void put_message(const void* columns, Py_ssize_t i, uint8_t* to,
                             int64_t size) noexcept nogil:
    cdef const Messages* m = <const Messages*>columns
    cdef int64_t block = measure_block(m, i), at
    cdef size_t w
    if block:
        to[0] = c"H"
        to += 1
    to = put(to, m.operation, m.operation_size)
    for w in range(m.width):
        if size_of(&m.words[w], i) >= 0:
            to[0] = c" "
            to = put(to + 1, string_at(&m.words[w], i), <size_t>size_of(&m.words[w], i))
    if block:
        to[0] = c" "
        to = put_decimal(to + 1, <uint64_t>block)
    to[0] = c" "
    to = put_decimal(to + 1, <uint64_t>(block + size_of(&m.payloads, i)))
    to = put(to, b"\r\n", 2)
    if block:
        to = put(to, b"NATS/1.0\r\n", 10)
        for at in range(m.end[i], m.end[i + 1]):
            to = put(to, m.pair[at].key, <size_t>m.pair[at].key_size)
            to = put(to, b": ", 2)
            to = put(to, m.pair[at].value, <size_t>m.pair[at].value_size)
            to = put(to, b"\r\n", 2)
        to = put(to, b"\r\n", 2)
    to = put(to, string_at(&m.payloads, i), <size_t>size_of(&m.payloads, i))
    put(to, b"\r\n", 2)


cdef Py_ssize_t run_messages(RowOutput* output) noexcept nogil:
    return write_each(output, measure_message, put_message)


def write_messages(const uint8_t[::1] operation not None, list words not None,
                   ByteStrings payloads not None, Pairs pairs=None):
    """Return messages as bytes, without gaps.

    operation: PUB or MSG; a row with pairs becomes an HPUB or HMSG. words: up to three
    `ByteStrings`; a null is not written. payloads: the payload of each row. All columns have the
    same length. The caller has checked them with `find_unfit_word` and `find_unfit_pair`.

    Raises ValueError for columns of unequal length, a null payload, and a message of more than
    999,999,999 bytes.
    """
    cdef Messages m
    cdef Py_ssize_t count = len(payloads)
    cdef ByteStrings word
    memset(&m, 0, sizeof(Messages))
    m.operation = &operation[0]
    m.operation_size = <size_t>operation.shape[0]
    m.payloads = payloads.strings
    columns = [*words, *([] if pairs is None else [pairs])]
    if len(words) > MAX_WORDS or any(len(column) != count for column in columns):
        raise ValueError("columns of unequal length")
    if payloads.nulls:
        row = int((payloads.lengths() < 0).argmax())
        raise ValueError(f"row {row}: a payload must not be null")
    for word in words:
        m.words[m.width] = word.strings
        m.width += 1
    if pairs is not None:
        m.pair = pairs.pair
        m.end = pairs.end
    return write_rows(&m, count, run_messages, _PROBLEMS)[0]
