# cython: boundscheck=False, wraparound=False
"""JSON documents as lines of text, each proved to be one object, and no more, before a parser of lines sees it.

What a parser makes of several lines is one row for each only if no line is empty and none holds two objects; and if
it calls itself for each bracket, a document of brackets ends the process. So brackets are balanced here, outside
strings; strings are proved to be UTF-8. Numbers, names, commas and escapes are the parser's.

Source: RFC 8259, sections 2, 4 and 7; RFC 3629, section 4.
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy
from wirescan.core.rows cimport Block
from wirescan.core.strings cimport ByteStrings
from wirescan.core.writer cimport copied

cdef enum Wrong:
    FINE, NOT_AN_OBJECT, NOT_CLOSED, MORE, CONTROL, NOT_TEXT, STRAY, DEEP, HEAVY, LONG, DIGITS

WRONG = (None, "it is no object", "it ends inside its object", "something follows its object",
         "a control character is in a string", "a string is not UTF-8", "a byte is outside strings that JSON has not",
         "its objects and arrays lie too deep in each other", "it has too many objects and members",
         "it has 1 GiB or more", "a number has more than 300 digits")

cdef enum:
    TOO_LONG = 1 << 30          # bytes in a document
    MOST_DIGITS = 300           # of a double, whose infinity would stand for more

cdef enum Class:                # of a byte outside strings
    OTHER, PART, DIGIT, BLANK, BREAK, QUOTE, OBJECT, ARRAY, END, MEMBER

cdef uint8_t[256] CLASS
for _byte in range(256):
    CLASS[_byte] = OTHER
for _class, _bytes in ((PART, b"+-.eE,truefalsn"), (DIGIT, b"0123456789"), (BLANK, b" \t"), (BREAK, b"\n\r"),
                       (QUOTE, b'"'), (OBJECT, b"{"), (ARRAY, b"["), (END, b"]}"), (MEMBER, b":")):
    for _byte in _bytes:
        CLASS[_byte] = _class

cdef uint64_t ONES = 0x0101010101010101u, TOPS = 0x8080808080808080u


cdef inline bint is_plain(const uint8_t* p) noexcept nogil:
    # Eight bytes of a string that need no second look: ASCII, and none of a quote, a backslash, a control character.
    cdef uint64_t word, quotes, slashes
    memcpy(&word, p, 8)
    quotes, slashes = word ^ ONES * 0x22, word ^ ONES * 0x5c
    return not (word | (word - ONES * 0x20) | (quotes - ONES) | (slashes - ONES)) & TOPS


cdef inline int length_of(const uint8_t* p, const uint8_t* end) noexcept nogil:
    # The bytes of a character that is not ASCII; 0 where it is none.
    cdef uint8_t first = p[0], low = 0x80, high = 0xbf
    cdef int size = 2 if first < 0xe0 else 3 if first < 0xf0 else 4
    if first < 0xc2 or first > 0xf4 or end - p < size:
        return 0
    if first == 0xe0:
        low = 0xa0              # shorter forms exist
    elif first == 0xed:
        high = 0x9f             # surrogates
    elif first == 0xf0:
        low = 0x90
    elif first == 0xf4:
        high = 0x8f             # beyond U+10FFFF
    if p[1] < low or p[1] > high or size > 2 and p[2] & 0xc0 != 0x80 or size > 3 and p[3] & 0xc0 != 0x80:
        return 0
    return size


cdef Wrong past_string(const uint8_t** at, const uint8_t* end) noexcept nogil:
    # From behind the first quote to behind the last.
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
            if p < end and p[0] < 0x80:         # what is escaped may be a quote; the rest is looked at as it comes
                p += p[0] >= 0x20
        elif p[0] < 0x80:
            p += 1
        else:
            size = length_of(p, end)
            if size == 0:
                return NOT_TEXT
            p += size
    return NOT_CLOSED


cdef Wrong make_line(uint8_t* at, Py_ssize_t size, uint32_t deepest, uint32_t most, uint32_t* weight) noexcept nogil:
    # Line breaks, which can only be blanks, become such in place.
    cdef uint8_t* p = at
    cdef const uint8_t* end = at + size
    cdef const uint8_t* behind
    cdef uint32_t depth = 0, members = 0
    cdef bint begun = False
    cdef uint8_t kind
    cdef Wrong wrong
    while p < end:
        kind = CLASS[p[0]]
        if kind == BREAK:
            p[0] = 0x20
        elif kind == BLANK:
            pass
        elif depth == 0 and (begun or kind != OBJECT):
            return MORE if begun else NOT_AN_OBJECT
        elif kind == QUOTE:
            behind = p + 1
            wrong = past_string(&behind, end)
            if wrong != FINE:
                return wrong
            p = <uint8_t*>behind
            continue
        elif kind == DIGIT:
            behind = p
            while p < end and CLASS[p[0]] == DIGIT:
                p += 1
            if p - behind > MOST_DIGITS:
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
    if members > most:
        return HEAVY
    return FINE if begun and depth == 0 else NOT_CLOSED if begun else NOT_AN_OBJECT


def lines(ByteStrings documents, uint32_t deepest, uint32_t most):
    """Documents one after another, each followed by a line feed: (text, bounds, weights, wrong).

    text: a memoryview. bounds: int64, line i is text[bounds[i]:bounds[i + 1]]. weights: uint32, how many objects and
    members the document has. wrong: uint8, 0 or the number in WRONG of what is wrong with it.
    A document that is null or not one object in UTF-8, nested no deeper than `deepest` and no heavier than `most`, is
    {} in the text, of weight 1.
    """
    cdef Py_ssize_t i, n = len(documents), step = documents.strings.step
    cdef Block text = Block(documents.total + 3 * n)
    bounds, weights, wrongs = np.empty(n + 1, np.int64), np.zeros(n, np.uint32), np.zeros(n, np.uint8)
    cdef int64_t[::1] bound = bounds
    cdef uint32_t[::1] weight = weights
    cdef uint8_t[::1] wrong = wrongs
    cdef const uint64_t* address = documents.strings.address
    cdef const int32_t* size = documents.strings.size
    cdef uint8_t* begin = <uint8_t*>text.at
    cdef uint8_t* p = begin
    cdef Py_ssize_t length
    with nogil:
        for i in range(n):
            bound[i], length = p - begin, size[i * step]
            if length >= TOO_LONG:
                wrong[i] = LONG
            elif length >= 0:
                copied(p, <const uint8_t*>address[i * step], <size_t>length)
                wrong[i] = make_line(p, length, deepest, most, &weight[i])
            if length < 0 or wrong[i]:
                p[0], p[1], length, weight[i] = 0x7b, 0x7d, 2, 1
            p[length] = 0x0a
            p += length + 1
        bound[n] = p - begin
    return memoryview(text)[:bounds[n]], bounds, weights, wrongs
