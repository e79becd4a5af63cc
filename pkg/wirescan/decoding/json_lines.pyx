# cython: boundscheck=False, wraparound=False
"""JSON documents as lines of text, each checked to be exactly one object, and their shapes.

`json_parser.py` calls it before a parser of JSON lines reads the text. A parser gives one row
for each line only if no line is empty and none has two objects. A parser that recurses for each
bracket can overflow the stack and end the process. So this module balances the brackets outside
strings, and checks that strings are UTF-8. The parser checks numbers, names, commas and escapes.

Source: RFC 8259, sections 2, 4 and 7.
"""
import numpy as np

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from wirescan.core.rows cimport Block
from wirescan.core.strings cimport ByteStrings
from wirescan.core.writer cimport copy_bytes
from wirescan.decoding.utf8 cimport measure_character

cdef enum Refusal:
    FINE, NOT_AN_OBJECT, NOT_CLOSED, MORE, CONTROL, NOT_TEXT, STRAY, DEEP, HEAVY, LONG, DIGITS

# The reasons, by the numbers of `Refusal`.
REASONS = (
    None,
    "it is not an object",
    "it ends inside its object",
    "something follows its object",
    "a control character is in a string",
    "a string is not UTF-8",
    "a byte outside strings is not JSON",
    "its objects and arrays are nested too deeply",
    "it has too many objects and members",
    "it has 1 GiB or more",
    "a number has more than 300 digits",
)

cdef enum:
    TOO_LONG = 1 << 30          # bytes in a document
    MAX_DIGITS = 300           # a double has at most 309; more digits could become infinity

cdef enum Class:                # of a byte outside strings
    OTHER, PART, DIGIT, BLANK, BREAK, QUOTE, OBJECT, ARRAY, END, MEMBER

cdef uint8_t[256] CLASS
for _byte in range(256):
    CLASS[_byte] = OTHER
for _class, _bytes in (
        (PART, b"+-.eE,truefalsn"), (DIGIT, b"0123456789"), (BLANK, b" \t"), (BREAK, b"\n\r"),
        (QUOTE, b'"'), (OBJECT, b"{"), (ARRAY, b"["), (END, b"]}"), (MEMBER, b":")):
    for _byte in _bytes:
        CLASS[_byte] = _class

cdef enum Marker:               # a value in a shape; no JSON has these bytes
    VERBATIM, STRING, TIME, INTEGER, FLOAT, BOOLEAN

cdef enum:
    SHORT_NUMBER = 18           # most characters of a number that a marker replaces
    FIRST_YEAR = 1678           # whole years whose nanoseconds fit into 64 bits
    LAST_YEAR = 2261

cdef uint64_t ONES = 0x0101010101010101u
cdef uint64_t TOPS = 0x8080808080808080u


cdef inline bint is_plain(const uint8_t* p) noexcept nogil:
    # Whether the next eight bytes of a string are ASCII without quote, backslash and control
    # character. The subtractions set the top bit of each byte that is too small. A borrow may set
    # more top bits; such bytes are then checked one by one.
    cdef uint64_t word, quotes, slashes
    memcpy(&word, p, 8)
    quotes = word ^ ONES * 0x22
    slashes = word ^ ONES * 0x5c
    return not (word | (word - ONES * 0x20) | (quotes - ONES) | (slashes - ONES)) & TOPS


cdef Refusal skip_string(const uint8_t** at, const uint8_t* end) noexcept nogil:
    # Move `at` from after the opening quote to after the closing quote.
    cdef const uint8_t* p = at[0]
    cdef int size
    while p < end:
        if end - p >= 8 and is_plain(p):
            p += 8
        elif p[0] == 0x22:
            at[0] = p + 1
            return FINE
        elif p[0] < 0x20:
            return CONTROL
        elif p[0] == 0x5c:
            p += 1
            # Skip an escaped character, which may be a quote. Control and non-ASCII characters are
            # checked in the next turn.
            if p < end and p[0] < 0x80:
                p += p[0] >= 0x20
        elif p[0] < 0x80:
            p += 1
        else:
            size = measure_character(p, end)
            if size == 0:
                return NOT_TEXT
            p += size
    return NOT_CLOSED


cdef Refusal make_line(
        uint8_t* at, Py_ssize_t size, uint32_t deepest, uint32_t max_members,
        uint32_t* weight) noexcept nogil:
    # Check a document, and replace its line breaks in place by blanks. Outside strings, a line
    # break can only be white space.
    cdef uint8_t* p = at
    cdef const uint8_t* end = at + size
    cdef const uint8_t* token
    cdef uint32_t depth = 0
    cdef uint32_t members = 0
    cdef bint begun = False
    cdef uint8_t kind
    cdef Refusal refusal
    while p < end:
        kind = CLASS[p[0]]
        if kind == BREAK:
            p[0] = 0x20
        elif kind == BLANK:
            pass
        elif depth == 0 and (begun or kind != OBJECT):
            return MORE if begun else NOT_AN_OBJECT
        elif kind == QUOTE:
            token = p + 1
            refusal = skip_string(&token, end)
            if refusal != FINE:
                return refusal
            p = <uint8_t*>token
            continue
        elif kind == DIGIT:
            token = p
            while p < end and CLASS[p[0]] == DIGIT:
                p += 1
            if p - token > MAX_DIGITS:
                return DIGITS
            continue
        elif kind == OBJECT or kind == ARRAY:
            begun = True
            depth += 1
            members += kind == OBJECT
            if depth > deepest:
                return DEEP
        elif kind == END:
            depth -= 1
        elif kind == MEMBER:
            members += 1
        elif kind == OTHER:
            return STRAY
        p += 1
    weight[0] = members
    if members > max_members:
        return HEAVY
    if not begun:
        return NOT_AN_OBJECT
    return FINE if depth == 0 else NOT_CLOSED


def make_lines(ByteStrings documents, uint32_t deepest, uint32_t max_members):
    """Return (text, bounds, weights, refusals): the documents as lines, each with a line feed.

    text: memoryview. bounds: int64 array; line i is text[bounds[i]:bounds[i + 1]].
    weights: uint32 array, the number of objects and members in each document.
    refusals: uint8 array, 0 or the number in REASONS of the reason why a document is refused.

    deepest: how deep objects and arrays may be nested.
    max_members: objects and members in a document.
    A document that is null or refused is {} in the text, with weight 1.
    """
    cdef Py_ssize_t i
    cdef Py_ssize_t n = len(documents)
    cdef Py_ssize_t step = documents.strings.step
    cdef Block text = Block(documents.total + 3 * n)
    bounds = np.empty(n + 1, np.int64)
    weights = np.zeros(n, np.uint32)
    refusals = np.zeros(n, np.uint8)
    cdef int64_t[::1] bound = bounds
    cdef uint32_t[::1] weight = weights
    cdef uint8_t[::1] refusal = refusals
    cdef const uint64_t* address = documents.strings.address
    cdef const int32_t* size = documents.strings.size
    cdef uint8_t* begin = <uint8_t*>text.at
    cdef uint8_t* p = begin
    cdef Py_ssize_t length
    with nogil:
        for i in range(n):
            bound[i] = p - begin
            length = size[i * step]
            if length >= TOO_LONG:
                refusal[i] = LONG
            elif length >= 0:
                copy_bytes(p, <const uint8_t*>address[i * step], <size_t>length)
                refusal[i] = make_line(p, length, deepest, max_members, &weight[i])
            if length < 0 or refusal[i]:
                p[0] = c"{"
                p[1] = c"}"
                length = 2
                weight[i] = 1
            p[length] = c"\n"
            p += length + 1
        bound[n] = p - begin
    return memoryview(text)[:bounds[n]], bounds, weights, refusals


cdef inline int read_digits(const uint8_t* p, int count, int low, int high) noexcept nogil:
    # Return the number that `count` digits state, or -1 if it is not from low to high.
    cdef int i
    cdef int number = 0
    for i in range(count):
        if CLASS[p[i]] != DIGIT:
            return -1
        number = 10 * number + p[i] - 0x30
    return number if low <= number <= high else -1


cdef Marker choose_string_marker(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    # Return the marker of a string without escapes. TIME: a usual time, YYYY-MM-DDThh:mm:ss.fffZ,
    # which fits each type of time. VERBATIM: it may be an unusual time. STRING: it is no time.
    cdef int month, day
    cdef Py_ssize_t i
    if size < 5 or read_digits(p, 4, 0, 9999) < 0 or p[4] != c"-":
        return STRING
    if size < 20 or size > 30 or read_digits(p, 4, FIRST_YEAR, LAST_YEAR) < 0:
        return VERBATIM
    month = read_digits(p + 5, 2, 1, 12)
    day = read_digits(p + 8, 2, 1, 31)
    if (month < 0 or day < 0 or p[7] != c"-" or p[10] != c"T" or read_digits(p + 11, 2, 0, 23) < 0
            or p[13] != c":" or read_digits(p + 14, 2, 0, 59) < 0
            or p[16] != c":" or read_digits(p + 17, 2, 0, 59) < 0 or p[size - 1] != c"Z"):
        return VERBATIM
    if day > 28 and (month == 2 or day > 30 and month in (4, 6, 9, 11)):
        return VERBATIM
    if size == 20:
        return TIME
    if size == 21 or p[19] != c".":
        return VERBATIM
    for i in range(20, size - 1):
        if CLASS[p[i]] != DIGIT:
            return VERBATIM
    return TIME


cdef inline bint is_scalar(const uint8_t* p, const uint8_t* end) noexcept nogil:
    # Whether a number or a literal goes on here. A comma ends it.
    return p < end and p[0] != c"," and (CLASS[p[0]] == PART or CLASS[p[0]] == DIGIT)


cdef Marker choose_scalar_marker(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    # Return the marker of a boolean or a short number, or VERBATIM for any other token.
    cdef const uint8_t* end = p + size
    cdef const uint8_t* digits
    if size == 4 and not memcmp(p, b"true", 4) or size == 5 and not memcmp(p, b"false", 5):
        return BOOLEAN
    if size > SHORT_NUMBER:
        return VERBATIM
    p += p[0] == c"-"
    digits = p
    while p < end and CLASS[p[0]] == DIGIT:
        p += 1
    if p == digits or digits[0] == c"0" and p - digits > 1:
        return VERBATIM         # not a number, or a leading zero
    if p == end:
        return INTEGER
    if p[0] != c"." or end - p == 1:
        return VERBATIM
    p += 1
    while p < end and CLASS[p[0]] == DIGIT:
        p += 1
    return FLOAT if p == end else VERBATIM


def extract_shape(bytes line):
    """Return a line with a marker in place of each plain value, as bytes.

    line: a line of `make_lines`. Plain values are booleans, short numbers without an exponent, and
    strings without escapes. Usual times have a marker of their own. Names, brackets, white space
    and all other values stay as they are. So if two lines have one shape, both are JSON or none is,
    their values have the same kinds, and the same strings of them are times.
    """
    cdef Py_ssize_t size = len(line)
    cdef bytes shape = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(shape)
    cdef uint8_t* begin = out
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(line)
    cdef const uint8_t* end = p + size
    cdef const uint8_t* token
    cdef Marker marker
    cdef bint is_value = False
    with nogil:
        while p < end:
            token = p
            marker = VERBATIM
            if p[0] == c'"':
                p += 1
                while p < end and p[0] != c'"' and p[0] != c"\\":
                    p += 8 if end - p >= 8 and is_plain(p) else 1
                if p < end and p[0] == c'"':
                    if is_value:
                        marker = choose_string_marker(token + 1, p - token - 1)
                    p += 1
                elif skip_string(&p, end) != FINE:
                    p = end
                is_value = False
            elif is_scalar(p, end):
                while is_scalar(p, end):
                    p += 1
                marker = choose_scalar_marker(token, p - token)
                is_value = False
            else:
                # A string after a comma may be a name, so it stays.
                is_value = p[0] == c":" or p[0] == c"[" or is_value and CLASS[p[0]] == BLANK
                p += 1
            if marker == VERBATIM:
                copy_bytes(out, token, <size_t>(p - token))
                out += p - token
            else:
                out[0] = marker
                out += 1
    return shape[:out - begin]
