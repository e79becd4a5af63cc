# Text in frames: lines, blanks, and numbers in decimal digits. A reader of text keeps its position
# in a pointer, `at`, and never reads the byte at `end`.
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memchr

cdef enum:
    MOST_DIGITS = 19            # of an integer of 64 bits


# --- lines

cdef inline const uint8_t* skip_line(const uint8_t* at, const uint8_t* end) noexcept nogil:
    # Return the position after the next line feed, or NULL.
    cdef const uint8_t* feed = <const uint8_t*>memchr(at, c"\n", <size_t>(end - at))
    return feed if feed is NULL else feed + 1


cdef inline const uint8_t* find_line_break(const uint8_t* at, const uint8_t* end) noexcept nogil:
    # Return the position of the next CR or LF, or `end`. For short lines, which `memchr` would
    # have to search twice.
    while at < end and at[0] != c"\r" and at[0] != c"\n":
        at += 1
    return at


cdef inline bint is_blank(uint8_t byte) noexcept nogil:
    return byte == c" " or byte == c"\t"


# --- numbers

cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return c"0" <= byte <= c"9"


cdef inline const uint8_t* skip_digits(const uint8_t* at, const uint8_t* end,
                                       int64_t most_digits) noexcept nogil:
    # Return the position after the digits, but after at most `most_digits`.
    if end - at > most_digits:
        end = at + most_digits
    while at < end and is_digit(at[0]):
        at += 1
    return at


cdef inline int64_t read_decimal(const uint8_t* at, const uint8_t* end,
                                 int64_t most_digits) noexcept nogil:
    # Return the value of the digits from `at` to `end`, or -1 where another byte is among them, and
    # where there are more than `most_digits`, which is at most 18. No digits have the value 0.
    cdef int64_t value = 0
    cdef uint8_t digit
    if end - at > most_digits:
        return -1
    while at < end:
        digit = at[0] - c"0"
        if digit > 9:
            return -1
        value = 10 * value + digit
        at += 1
    return value


cdef inline bint read_integer(const uint8_t* at, const uint8_t* end, int64_t* out) noexcept nogil:
    # Read a sign, or none, and 1 to 19 digits. Return False for other text, and where the number
    # does not fit into 64 bits.
    cdef uint64_t value = 0
    cdef bint negative = False
    cdef uint8_t digit
    if at < end and (at[0] == c"-" or at[0] == c"+"):
        negative = at[0] == c"-"
        at += 1
    if at == end or end - at > MOST_DIGITS:
        return False
    while at < end:
        digit = at[0] - c"0"
        if digit > 9:
            return False
        value = 10 * value + digit
        at += 1
    if value > (<uint64_t>1 << 63) - 1 + negative:
        return False
    out[0] = <int64_t>(0 - value) if negative else <int64_t>value
    return True


cdef inline size_t count_digits(uint64_t number) noexcept nogil:
    cdef size_t count = 1
    while number > 9:
        number //= 10
        count += 1
    return count


cdef inline uint8_t* put_decimal(uint8_t* to, uint64_t number) noexcept nogil:
    # Write the digits of a number, and return the position after them.
    cdef size_t count = count_digits(number)
    cdef size_t i = count
    while i:
        i -= 1
        to[i] = <uint8_t>(c"0" + number % 10)
        number //= 10
    return to + count
