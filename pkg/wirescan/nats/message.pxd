# Kernels for messages, and for the header lines in them. scan.pyx drives them, and its docstring
# shows the wire format.
from libc.string cimport memchr, memcmp
from wirescan.core cimport (
    BAD_COUNT, BAD_FIELD, BAD_LENGTH, BAD_MAGIC, Context, Fault, Gaps, NOT_A_FRAME, OK, Reader,
    SHORT, TRUNCATED, clear_row, gaps, int32_t, int64_t, le32, left, lowest, uint8_t, uint16_t,
    uint32_t, uint64_t)
from wirescan.core.text cimport is_blank, read_decimal
from wirescan.nats.rows cimport (
    CONNECT, ERR, HMSG, HPUB, Header, INFO, MAX_DIGITS, MSG, Message, PUB, SUB, UNSUB)

# A control line has at most six words: HMSG with a reply. Of a line with more, seven are noted.
cdef struct Line:
    uint32_t words              # number of words
    uint32_t at[7]              # start of each word
    uint32_t to[7]              # end of each word
    size_t end                  # end of the text; CR before LF is not part of the text
    size_t next                 # start of what follows the line

cdef enum:
    WORDS = 7
    OPERATIONS = 12
    UNFINISHED = 255
    VERSION_SIZE = 8            # bytes of NATS/1.0
    STATUS_DIGITS = 6           # a number with this many digits is not a status
    MAX_LINE = 0x7fffffff       # bytes in a control line

cdef extern from *:
    """
    typedef struct { const char* name; size_t size; unsigned char kind; } NatsOperation;
    static const NatsOperation NATS_OPERATIONS[12] = {              /* the most frequent first */
        {"msg", 3, 7}, {"hmsg", 4, 8}, {"pub", 3, 3}, {"hpub", 4, 4}, {"ping", 4, 9},
        {"pong", 4, 10}, {"+ok", 3, 11}, {"sub", 3, 5}, {"unsub", 5, 6}, {"info", 4, 1},
        {"connect", 7, 2}, {"-err", 4, 12}};
    """
    ctypedef struct NatsOperation:
        const char* name            # in lower case
        size_t size
        uint8_t kind
    const NatsOperation[OPERATIONS] NATS_OPERATIONS


cdef inline uint8_t find_operation(const uint8_t* p, size_t size) noexcept nogil:
    # Return the operation that the bytes begin with, in upper or lower case. Return UNFINISHED if
    # more bytes could complete an operation, and 0 if the bytes are not an operation.
    cdef size_t i, n
    cdef uint8_t letter
    cdef int row
    cdef uint32_t word
    if size > 4:
        # Compare the two most frequent operations as one word. 0x20 is the bit of lower case.
        word = le32(p) | 0x20202020
        if word & 0xffffff == 0x67736d and is_blank(p[3]):      # "msg"
            return MSG
        if word == 0x67736d68 and is_blank(p[4]):               # "hmsg"
            return HMSG
    for row in range(OPERATIONS):
        n = min(size, NATS_OPERATIONS[row].size)
        for i in range(n):
            letter = <uint8_t>NATS_OPERATIONS[row].name[i]
            if p[i] != letter and (letter < c"a" or p[i] + 32 != letter):
                break
        else:
            if n == size:
                return UNFINISHED
            if (is_blank(p[n]) or p[n] == b"\n"
                    or (p[n] == b"\r" and (n + 1 == size or p[n + 1] == b"\n"))):
                return NATS_OPERATIONS[row].kind
    return 0


cdef inline bint split_line(const uint8_t* p, size_t size, Line* line) noexcept nogil:
    # Find the words of the line at p. Return False if the line has no end.
    cdef Gaps masks
    cdef uint64_t text, starts, ends
    cdef const uint8_t* feed
    cdef size_t i = 0
    line.words = 0
    if size >= 64:
        # One bit for each of 64 bytes: a word starts where a text bit follows a blank bit.
        masks = gaps(p)
        if masks.line:
            i = lowest(masks.line)
            line.next = i + 1
            i -= i > 0 and p[i - 1] == b"\r"
            line.end = i
            text = ~masks.blank & ((<uint64_t>1 << i) - 1)
            starts = text & ~(text << 1)
            ends = ~text & (text << 1)
            while starts and line.words < WORDS:
                line.at[line.words] = lowest(starts)
                line.to[line.words] = lowest(ends)
                line.words += 1
                starts &= starts - 1
                ends &= ends - 1
            return True
        i = 64
    feed = <const uint8_t*>memchr(p + i, c"\n", size - i) if size > i else NULL
    if feed is NULL:
        return False
    line.next = <size_t>(feed - p) + 1
    line.end = line.next - 1 - (feed > p and feed[-1] == b"\r")
    i = 0
    while True:
        while i < line.end and is_blank(p[i]):
            i += 1
        if i == line.end or line.words == WORDS:
            return True
        line.at[line.words] = <uint32_t>i
        while i < line.end and not is_blank(p[i]):
            i += 1
        line.to[line.words] = <uint32_t>i
        line.words += 1


cdef inline int64_t read_number(const uint8_t* p, const Line* line, uint32_t word) noexcept nogil:
    # Return the value of a word of one to nine digits, or -1.
    return read_decimal(p + line.at[word], p + line.to[word], MAX_DIGITS)


cdef inline void put_word(const Line* line, uint32_t word, uint32_t* at,
                          int32_t* size) noexcept nogil:
    at[0] = line.at[word]
    size[0] = <int32_t>(line.to[word] - line.at[word])


cdef inline Fault open_block(const uint8_t* block, size_t size, size_t* first,
                             size_t* last) noexcept nogil:
    # Find the header lines of a block, between its first line and the empty line at its end.
    cdef const uint8_t* feed
    cdef size_t begin, end = size
    if size < VERSION_SIZE or memcmp(block, b"NATS/1.0", VERSION_SIZE):
        return BAD_MAGIC
    feed = <const uint8_t*>memchr(block, c"\n", size)
    if feed is NULL or block[size - 1] != b"\n":
        return TRUNCATED
    begin = <size_t>(feed - block) + 1
    end -= 1 + (block[size - 2] == b"\r")
    if end < begin or block[end - 1] != b"\n":
        return TRUNCATED
    first[0] = begin
    last[0] = end
    return OK


cdef inline void read_block(const uint8_t* block, size_t size, Message* row) noexcept nogil:
    # Store the status of a header block, and the number of rows that `headers` gives for it.
    cdef size_t first = 0, last = 0, i = VERSION_SIZE
    cdef const uint8_t* feed
    cdef uint32_t status = 0, digits = 0, lines = 0
    if open_block(block, size, &first, &last):
        row.header_count = 1
        return
    while is_blank(block[i]):
        i += 1
    while i > VERSION_SIZE and block[i] >= c"0" and block[i] <= c"9" and digits < STATUS_DIGITS:
        status = 10 * status + block[i] - c"0"
        digits += 1
        i += 1
    row.status = <uint16_t>status if digits < STATUS_DIGITS and status <= 0xffff else 0
    while first < last:
        feed = <const uint8_t*>memchr(block + first, c"\n", last - first)
        first = <size_t>(feed - block) + 1
        lines += 1
    row.header_count = <uint16_t>min(lines, <uint32_t>0xffff)


cdef inline Fault mark_bad(Message* row, Fault fault) noexcept nogil:
    # A bad row holds nothing but its kind.
    cdef uint8_t kind = row.head.kind
    clear_row(row, sizeof(Message))
    row.head.kind = kind
    return fault


cdef inline Fault read_line(const uint8_t* p, Line* line, Message* row) noexcept nogil:
    # Read a message that is only a control line.
    cdef uint8_t kind = row.head.kind
    cdef size_t at, end = line.end
    cdef int64_t count
    if kind == SUB:
        if line.words != 3 and line.words != 4:
            return mark_bad(row, BAD_COUNT)
        put_word(line, 1, &row.subject_at, &row.subject_size)
        if line.words == 4:
            put_word(line, 2, &row.queue_at, &row.queue_size)
        put_word(line, line.words - 1, &row.sid_at, &row.sid_size)
    elif kind == UNSUB:
        count = 0 if line.words != 3 else read_number(p, line, 2)
        if (line.words != 2 and line.words != 3) or count < 0:
            return mark_bad(row, BAD_COUNT)
        put_word(line, 1, &row.sid_at, &row.sid_size)
        row.count = <uint32_t>count
    elif kind == INFO or kind == CONNECT or kind == ERR:
        at = line.to[0]
        while at < end and is_blank(p[at]):
            at += 1
        while end > at and is_blank(p[end - 1]):
            end -= 1
        row.head.body = <uint32_t>at
        row.payload_at = <uint32_t>at
        row.payload_size = <int32_t>(end - at)
        return OK
    row.head.body = <uint32_t>line.next
    return OK


cdef inline Fault read_message(Reader* r, void* out, const Context* context) noexcept nogil:
    cdef Message* row = <Message*>out
    cdef const uint8_t* p = r.at
    cdef size_t available = left(r)
    cdef Line line
    cdef uint8_t kind = find_operation(p, available)
    cdef int64_t total, block = 0
    cdef uint32_t least, own = 1
    if kind == 0:
        return NOT_A_FRAME
    if kind == UNFINISHED or not split_line(p, available, &line):
        return SHORT
    if line.next > MAX_LINE:
        return BAD_LENGTH
    row.head.kind = kind
    row.subject_size = row.sid_size = row.reply_size = -1
    row.queue_size = row.headers_size = row.payload_size = -1
    if kind != PUB and kind != MSG and kind != HPUB and kind != HMSG:
        r.at = p + line.next
        return read_line(p, &line, row)
    # The words are: operation subject [sid] [reply] [size of headers] size.
    least = 3 + (kind == MSG or kind == HMSG) + (kind == HPUB or kind == HMSG)
    if line.words != least and line.words != least + 1:
        return NOT_A_FRAME
    total = read_number(p, &line, line.words - 1)
    if kind == HPUB or kind == HMSG:
        block = read_number(p, &line, line.words - 2)
    if total < 0 or block < 0 or block > total:     # a server closes the connection then
        return BAD_LENGTH
    if available - line.next < <size_t>total + 2:
        row.head.size = <uint32_t>(line.next + <size_t>total + 2)
        return SHORT
    r.at = p + line.next + total + 2
    if r.at[-2] != b"\r" or r.at[-1] != b"\n":
        return BAD_LENGTH
    put_word(&line, 1, &row.subject_at, &row.subject_size)
    if kind == MSG or kind == HMSG:
        own = 2
        put_word(&line, 2, &row.sid_at, &row.sid_size)
    if line.words > least:
        put_word(&line, own + 1, &row.reply_at, &row.reply_size)
    if kind == HPUB or kind == HMSG:
        row.headers_at = <uint32_t>line.next
        row.headers_size = <int32_t>block
        read_block(p + line.next, <size_t>block, row)
    row.head.body = row.payload_at = <uint32_t>(line.next + <size_t>block)
    row.payload_size = <int32_t>(total - block)
    return OK


cdef inline Fault read_header(Reader* r, Header* row) noexcept nogil:
    # Read a line inside a block that `open_block` has accepted, so the line has an end.
    cdef const uint8_t* p = r.at
    cdef const uint8_t* feed = <const uint8_t*>memchr(p, c"\n", left(r))
    cdef const uint8_t* colon
    cdef const uint8_t* end = feed - (feed > p and feed[-1] == b"\r")
    r.at = feed + 1
    colon = <const uint8_t*>memchr(p, c":", <size_t>(end - p))
    if colon is NULL or colon == p:
        return BAD_FIELD
    row.key_size = <int32_t>(colon - p)
    colon += 1
    while colon < end and is_blank(colon[0]):
        colon += 1
    while end > colon and is_blank(end[-1]):
        end -= 1
    row.head.body = row.value_at = <uint32_t>(colon - p)
    row.value_size = <int32_t>(end - colon)
    return OK
