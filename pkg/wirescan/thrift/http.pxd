# Kernels for Thrift over HTTP/1. The body of a request or response is one message.
# Source: RFC 9112, "Message Body".
#
#     head        lines, the last of them empty; only fields that give the body's length are read
#     body        Content-Length bytes; or chunks: { size(hex) extension? CR LF  bytes CR LF }*,
#                 one of size 0, and trailer lines
from libc.string cimport memchr
from wirescan.core cimport (
    BAD_LENGTH, Fault, OK, Reader, SHORT, int32_t, int64_t, left, uint8_t, uint32_t)
from wirescan.core.text cimport is_blank, skip_line
from wirescan.thrift.rows cimport BINARY, COMPACT, Frame, HTTP, HTTP_CHUNKED, JSON

cdef enum:
    LONGEST_HEAD = 65536                # bytes, of a head and of a trailer
    LONGEST_LINE = 4096                 # bytes of a chunk's size, with extensions
    UNTIL_CLOSE = -1                    # length of a body that ends with the connection

# The last coding of all Transfer-Encoding fields.
cdef enum Coding:
    NOT_CODED
    CHUNKED
    OTHER_CODING

cdef extern from *:
    """
    #include <string.h>
    #include <strings.h>
    static int wirescan_is_method(const unsigned char* at) {
        static const char methods[][5] = {"POST", "GET ", "HEAD", "PUT ", "HTTP",
                                          "CONN", "DELE", "OPTI", "PATC", "TRAC"};
        for (unsigned i = 0; i < sizeof methods / sizeof *methods; i++)
            if (!memcmp(at, methods[i], 4))
                return 1;
        return 0;
    }
    """
    bint is_http "wirescan_is_method"(const uint8_t* at) noexcept nogil
    int strncasecmp(const char* a, const char* b, size_t n) noexcept nogil


cdef inline bint is_empty_line(const uint8_t* at, const uint8_t* end) noexcept nogil:
    return end - at == 1 or (end - at == 2 and at[0] == c"\r")


cdef inline bint read_number(const uint8_t* at, const uint8_t* end, int base,
                             int64_t* out) noexcept nogil:
    # Reads digits with optional blanks around them, up to 32 bits. Returns False for other text.
    cdef int64_t value = 0
    cdef int digit
    while at < end and is_blank(at[0]):
        at += 1
    while end > at and (is_blank(end[-1]) or end[-1] == c"\r" or end[-1] == c"\n"):
        end -= 1
    if at == end:
        return False
    while at < end:
        digit = at[0] - c"0" if at[0] <= c"9" else (at[0] | 0x20) - c"a" + 10
        if digit < 0 or digit >= base or (at[0] > c"9" and digit < 10):
            return False
        value = value * base + digit
        if value > <int64_t>0xffffffff:
            return False
        at += 1
    out[0] = value
    return True


cdef inline bint has_name(const uint8_t* at, const uint8_t* end, const char* name,
                          size_t size) noexcept nogil:
    return <size_t>(end - at) > size and strncasecmp(<const char*>at, name, size) == 0


cdef inline bint is_word(const uint8_t* at, const uint8_t* end, const char* word,
                         size_t size) noexcept nogil:
    # Return whether the bytes are a word, in any case of letters.
    return <size_t>(end - at) == size and strncasecmp(<const char*>at, word, size) == 0


cdef inline Coding read_codings(const uint8_t* at, const uint8_t* end, Coding last) noexcept nogil:
    # Return the last coding in a list that extends another one, whose last coding is `last`. Empty
    # elements do not count, and neither does "identity", which RFC 2616 has for no coding.
    cdef const uint8_t* comma
    cdef const uint8_t* stop
    while at < end:
        comma = <const uint8_t*>memchr(at, c",", <size_t>(end - at))
        if comma is NULL:
            comma = end
        stop = comma
        while at < stop and at[0] <= c" ":
            at += 1
        while stop > at and stop[-1] <= c" ":
            stop -= 1
        if is_word(at, stop, b"chunked", 7):
            last = CHUNKED
        elif stop > at and not is_word(at, stop, b"identity", 8):
            last = OTHER_CODING
        at = comma + 1
    return last


cdef inline bint is_without_body(int32_t status) noexcept nogil:
    # Return whether a response with this status has no body: RFC 9112, section 6.3.
    return 100 <= status < 200 or status == 204 or status == 304


cdef inline Fault read_head(Reader* r, int64_t* length, bint* chunked) noexcept nogil:
    # Leaves r after the empty line, or after the bytes that were read before a fault.
    #
    # Some responses end there, whatever their fields say. Answers to HEAD do too, but only their
    # requests show it. Otherwise Transfer-Encoding counts, and Content-Length only without it.
    cdef const uint8_t* begin = r.at
    cdef const uint8_t* end = (
        r.end if r.end - begin <= LONGEST_HEAD else begin + LONGEST_HEAD + 1)
    cdef const uint8_t* line = r.at
    cdef const uint8_t* next
    cdef int64_t declared = UNTIL_CLOSE
    cdef int64_t number = 0
    cdef Coding coding = NOT_CODED
    cdef bint response = begin[0] == c"H" and begin[1] == c"T"
    cdef bint without_body = False
    chunked[0] = False
    length[0] = 0
    while True:
        next = skip_line(line, end)
        r.at = end if next is NULL else next
        if r.at - begin > LONGEST_HEAD:
            return BAD_LENGTH
        if next is NULL:
            return SHORT
        if line == begin:
            if response and next - line > 12 and read_number(line + 9, line + 12, 10, &number):
                without_body = is_without_body(<int32_t>number)
        elif is_empty_line(line, next):
            break
        elif without_body:
            pass
        elif has_name(line, next, b"content-length:", 15):
            if not read_number(line + 15, next, 10, &number):
                return BAD_LENGTH
            if declared >= 0 and declared != number:
                return BAD_LENGTH
            declared = number
        elif has_name(line, next, b"transfer-encoding:", 18):
            coding = read_codings(line + 18, next, coding)
        line = next
    if without_body:
        return OK
    chunked[0] = coding == CHUNKED
    if coding == OTHER_CODING:
        # Only the end of the connection ends such a body, and requests cannot have that.
        length[0] = UNTIL_CLOSE
        return OK if response else BAD_LENGTH
    length[0] = 0 if declared < 0 and not response else declared
    return OK


cdef inline Fault read_chunk(Reader* r, const uint8_t** data, int64_t* size,
                             int64_t* needed) noexcept nogil:
    # Reads one chunk. The last chunk has size 0, and the trailer follows it.
    # On SHORT, r does not move, and the chunk has at least `needed` bytes from there.
    cdef const uint8_t* line = r.at
    cdef const uint8_t* next = skip_line(line, r.end)
    cdef const uint8_t* digits_end
    cdef const void* extension
    cdef int64_t number = 0
    needed[0] = <int64_t>left(r) + 1
    if next is NULL:
        return BAD_LENGTH if left(r) > LONGEST_LINE else SHORT
    extension = memchr(line, c";", <size_t>(next - line))
    digits_end = next if extension is NULL else <const uint8_t*>extension
    if next - line > LONGEST_LINE or not read_number(line, digits_end, 16, &number):
        return BAD_LENGTH
    data[0] = next
    size[0] = number
    if number:
        if r.end - next < number + 2:
            needed[0] = next - line + number + 2
            return SHORT
        if next[number] != c"\r" or next[number + 1] != c"\n":
            return BAD_LENGTH
        next += number + 2
    r.at = next
    return OK


cdef inline Fault skip_lines(Reader* r) noexcept nogil:
    # Leaves r after the next empty line, or on SHORT at the incomplete line.
    cdef const uint8_t* line
    while True:
        line = r.at
        r.at = skip_line(line, r.end)
        if r.at is NULL:
            r.at = line
            return SHORT
        if is_empty_line(line, r.at):
            return OK


cdef inline void sniff(Frame* row, const uint8_t* body, int64_t size) noexcept nogil:
    # Sets the protocol by the first byte of the body.
    if size:
        if body[0] == 0x82:
            row.protocol_id = COMPACT
        else:
            row.protocol_id = JSON if body[0] == c"[" else BINARY


cdef inline Fault read_http(Reader* r, Frame* row, bint is_final) noexcept nogil:
    # is_final: no bytes follow those in r.
    cdef const uint8_t* start = r.at
    cdef const uint8_t* body
    cdef const uint8_t* data = NULL
    cdef int64_t length = 0
    cdef int64_t size = 1
    cdef int64_t needed = 0
    cdef bint chunked = False
    cdef bint first = True
    cdef Reader trailer
    cdef Fault fault
    row.head.kind = HTTP
    row.infos_size = -1
    row.payload_size = -1
    fault = read_head(r, &length, &chunked)
    if fault:
        return fault
    body = r.at
    row.payload_at = <uint32_t>(body - start)
    row.head.body = row.payload_at
    if chunked:
        row.head.kind = HTTP_CHUNKED
        while size:
            fault = read_chunk(r, &data, &size, &needed)
            if fault:
                row.head.size = <uint32_t>min(r.at - start + needed, <int64_t>0xffffffff)
                return fault
            if first:
                sniff(row, data, size)
                first = False
        data = r.at
        trailer = Reader(data, r.end)
        if r.end - data > LONGEST_HEAD:
            trailer.end = data + LONGEST_HEAD + 1
        fault = skip_lines(&trailer)
        r.at = trailer.end if fault else trailer.at
        if r.at - data > LONGEST_HEAD:
            return BAD_LENGTH
        if fault:
            row.head.size = <uint32_t>min(r.end - start + 1, <int64_t>0xffffffff)
            return fault
    else:
        if length == UNTIL_CLOSE:
            if not is_final:
                return SHORT
            length = r.end - body
        if length > <int64_t>0x7fffffff:
            return BAD_LENGTH
        if <int64_t>left(r) < length:
            row.head.size = <uint32_t>(body - start + length)
            return SHORT
        r.at = body + length
        sniff(row, body, length)
        if length == 0:
            return OK
    if r.at - body > <int64_t>0x7fffffff:
        return BAD_LENGTH
    row.payload_size = <int32_t>(r.at - body)
    return OK
