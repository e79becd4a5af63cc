# cython: boundscheck=False, wraparound=False
"""Requests and responses of Kafka's protocol, one after another in a stream, and the structs in their bodies.

    request   size(4) api key(2) api version(2) correlation id(4) client id(2+) [tagged fields]  body
    response  size(4) correlation id(4)                                         [tagged fields]  body
    tagged fields    count { tag  size  field }*                                   (unsigned varints)

All integers are big-endian. A response does not say what it answers: it is read by its request. Bodies are read by
programs, which kafka/program.py makes of the table in kafka/messages.py.

Source: Apache Kafka, "Kafka Protocol Guide", "Protocol Primitive Types" and "Messages"; for version 0, "A Guide To The
Kafka Protocol" (0.8); for flexible versions, KIP-482, and for ApiVersions, KIP-511.
"""
import numpy as np

from libc.string cimport memcpy
from wirescan.core cimport (
    BAD_NULL, BAD_VERSION, Fault, Head, LEFTOVER, OK, Opening, Reader, Rows, SHORT, TRUNCATED,
    Top, be16, be32, be64, enter, int16_t, int32_t, int64_t, left, open_all, open_frames, scan_frames, scan_top, sized,
    take, uint8_t, uint16_t, uint32_t, uint64_t, varint32)
from wirescan.core.loop import flat, lie_inside
from wirescan.kafka.schema import API, KEYS, NEVER

cdef enum:
    APIS = 128                      # more than there are
    CONTROLLED_SHUTDOWN = 7         # its version 0 has no client id
    UNSUPPORTED_VERSION = 35        # of ApiVersions: an answer in version 0, whatever was asked for

cdef int16_t first_flexible[APIS]
for _key in range(APIS):
    first_flexible[_key] = min(API[_key].flexible, 0x7fff) if _key in API else 0x7fff
cdef int16_t PRODUCE = KEYS["Produce"], API_VERSIONS = KEYS["ApiVersions"]


cdef inline bint is_flexible(int16_t api_key, int16_t version) noexcept nogil:
    return 0 <= api_key < APIS and version >= first_flexible[api_key] and first_flexible[api_key] < 0x7fff


cdef inline Fault skip_tags(Reader* r, int32_t* count) noexcept nogil:
    cdef uint32_t tags = 0, tag = 0, size = 0, i
    cdef Fault fault = varint32(r, &tags)
    if fault:
        return fault
    count[0] = <int32_t>min(tags, <uint32_t>0x7fffffff)
    for i in range(tags):
        fault = varint32(r, &tag)
        if not fault:
            fault = varint32(r, &size)
        if fault:
            return fault
        if take(r, size) is NULL:
            return TRUNCATED
    return OK


cdef Fault read_request(Reader* r, void* out, const void* parent) noexcept nogil:
    cdef Request* row = <Request*>out
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p
    cdef Reader body
    cdef int32_t tags = 0
    cdef Fault fault
    if left(r) < 4:
        return SHORT
    fault = enter(r, 4, <int32_t>be32(start), &body)
    if fault:
        return fault
    row.client_id_size = -1
    p = take(&body, 8)
    if p is NULL:
        return TRUNCATED
    row.api_key, row.api_version = <int16_t>be16(p), <int16_t>be16(p + 2)
    row.correlation_id = <int32_t>be32(p + 4)
    row.head.body = 12
    if row.api_key == CONTROLLED_SHUTDOWN and row.api_version == 0:
        return OK
    p = take(&body, 2)
    if p is NULL or sized(&body, start, <int16_t>be16(p), &row.client_id_at, &row.client_id_size):
        return TRUNCATED
    row.head.kind = 1
    if is_flexible(row.api_key, row.api_version):
        fault = skip_tags(&body, &tags)
        if fault:
            return fault
        row.head.kind = 2
    row.head.body = <uint32_t>(body.at - start)
    return OK


cdef Fault read_response(Reader* r, void* out, const void* parent) noexcept nogil:
    cdef Response* row = <Response*>out
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p
    cdef Reader body
    cdef Fault fault
    if left(r) < 4:
        return SHORT
    fault = enter(r, 4, <int32_t>be32(start), &body)
    if fault:
        return fault
    row.request = row.api_key = row.api_version = -1
    p = take(&body, 4)
    if p is NULL:
        return TRUNCATED
    row.correlation_id = <int32_t>be32(p)
    row.head.body = 8
    return OK


cdef size_t never(const uint8_t* at, const uint8_t* end, bint deep, int64_t* budget) noexcept nogil:
    # Nothing in a stream tells where a message begins: behind a damaged size all is lost.
    return <size_t>(end - at)

cdef Fault run_requests(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Request), read_request, never)

cdef Fault run_responses(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Response), read_response, never)

cdef Request _request
cdef Response _response
cdef Program _program
cdef Step _step
REQUEST = flat(np.asarray(<Request[:1]>&_request).dtype)
RESPONSE = flat(np.asarray(<Response[:1]>&_response).dtype)
PROGRAM = np.asarray(<Program[:1]>&_program).dtype
STEP = np.asarray(<Step[:1]>&_step).dtype


def scan_requests(buffer, check, resync, limits, into=None, more=False):
    """(rows, bad, fault, offset): the requests in a buffer, dtype REQUEST. As core.loop.scan_frames."""
    return scan_frames(buffer, REQUEST, run_requests, resync, more, limits, into)


def scan_responses(buffer, check, resync, limits, into=None, more=False):
    """(rows, bad, fault, offset): the responses in a buffer, dtype RESPONSE; of what API is not known yet."""
    return scan_frames(buffer, RESPONSE, run_responses, resync, more, limits, into)


cdef bint is_answered(const Request* row, const uint8_t* base) noexcept nogil:
    # All but Produce with acks = 0, which stands behind the transactional id.
    cdef Reader r = Reader(base + row.head.start + row.head.body, base + row.head.start + row.head.size)
    cdef const uint8_t* p
    cdef uint32_t at = 0, length = 1
    cdef int32_t size = 0
    if row.api_key != PRODUCE or row.head.fault:
        return True
    if row.head.kind == 2:
        if varint32(&r, &length) or sized(&r, r.at, <int32_t>(length - 1), &at, &size):
            return True
    elif row.api_version >= 3:
        p = take(&r, 2)
        if p is NULL or sized(&r, r.at, <int16_t>be16(p), &at, &size):
            return True
    p = take(&r, 2)
    return p is NULL or be16(p) != 0


def answered(requests, buffers):
    """Bool array: which requests get a response: all but Produce with acks = 0."""
    cdef Py_ssize_t i, n = len(requests)
    cdef const char[::1] rows
    cdef const Request* row
    found = np.ones(n, np.uint8)
    cdef uint8_t[::1] out = found
    if not lie_inside(requests, buffers):
        raise ValueError("a row points outside its buffer")
    cdef list held = [np.frombuffer(b, np.uint8) for b in buffers]
    cdef const uint64_t[::1] bases = np.array([b.ctypes.data for b in held], np.uint64)
    if n:
        rows = np.ascontiguousarray(requests).view(np.int8)
        with nogil:
            for i in range(n):
                row = <const Request*>&rows[i * sizeof(Request)]
                out[i] = is_answered(row, <const uint8_t*>bases[row.head.buffer])
    return found.view(bool)


def match(const int32_t[::1] asked, const int64_t[::1] order, const int32_t[::1] answers):
    """Int64 array: for each of the answers of a connection the number of its request, or -1.

    asked: the correlation ids of the requests. order: what sorts them, stably. answers: those of the responses. Both
    come in the order of the wire, so the request is the first of that id behind the one answered before.
    """
    cdef Py_ssize_t i, low, high, middle, n = asked.shape[0]
    cdef int64_t next = 0
    found = np.full(answers.shape[0], -1, np.int64)
    cdef int64_t[::1] out = found
    with nogil:
        for i in range(answers.shape[0]):
            if next < n and asked[next] == answers[i]:
                out[i] = next
            else:
                low, high = 0, n
                while low < high:
                    middle = (low + high) // 2
                    if asked[order[middle]] < answers[i] or (
                            asked[order[middle]] == answers[i] and order[middle] < next):
                        low = middle + 1
                    else:
                        high = middle
                if low == n or asked[order[low]] != answers[i]:
                    continue
                out[i] = order[low]
            next = out[i] + 1
    return found


def name_responses(responses, buffers, requests, numbers):
    """(rows, bad): responses, dtype RESPONSE, whose requests are known by their numbers (-1: not), with what that tells:
    request, API, version, and where the body begins."""
    rows = responses.copy()
    cdef Py_ssize_t i, n = len(rows), bad = 0
    cdef const int64_t[::1] number = numbers
    cdef const int16_t[::1] key = np.ascontiguousarray(requests["api_key"])
    cdef const int16_t[::1] version = np.ascontiguousarray(requests["api_version"])
    cdef char[::1] view
    cdef Response* row
    cdef const uint8_t* start
    cdef Reader r
    cdef list held = [np.frombuffer(b, np.uint8) for b in buffers]
    cdef const uint64_t[::1] bases = np.array([b.ctypes.data for b in held], np.uint64)
    if not lie_inside(rows, buffers):
        raise ValueError("a row points outside its buffer")
    if n:
        view = rows.view(np.int8)
        with nogil:
            for i in range(n):
                row = <Response*>&view[i * sizeof(Response)]
                if number[i] >= 0 and not row.head.fault:
                    row.request = <int32_t>number[i]
                    row.api_key, row.api_version = key[number[i]], version[number[i]]
                    start = <const uint8_t*>bases[row.head.buffer] + row.head.start
                    r = Reader(start + row.head.body, start + row.head.size)
                    if row.api_key == API_VERSIONS:
                        if left(&r) >= 2 and be16(r.at) == UNSUPPORTED_VERSION:
                            row.api_version = 0
                    elif is_flexible(row.api_key, row.api_version):
                        row.head.kind = 1
                        row.head.fault = <uint8_t>skip_tags(&r, &row.tag_count)
                        if not row.head.fault:
                            row.head.body = <uint32_t>(r.at - start)
                bad += row.head.fault != 0
    return rows, bad


cdef inline void store(char* to, const uint8_t* p, int32_t width) noexcept nogil:
    cdef uint64_t word
    cdef uint32_t half
    cdef uint16_t quarter
    if width == 4:
        half = be32(p)
        memcpy(to, &half, 4)
    elif width == 8:
        word = be64(p)
        memcpy(to, &word, 8)
    elif width == 2:
        quarter = be16(p)
        memcpy(to, &quarter, 2)
    else:
        to[0] = p[0]


cdef inline void note(char* row, const Step* step, const uint8_t* start, const uint8_t* at, int64_t size) noexcept nogil:
    cdef uint32_t where = <uint32_t>(at - start)
    cdef int32_t bytes = <int32_t>size
    if row is not NULL:
        memcpy(row + step.at, &where, 4)
        memcpy(row + step.at + 4, &bytes, 4)


cdef inline void store_count(char* to, int32_t count) noexcept nogil:
    memcpy(to, &count, 4)


cdef inline Fault read_count(Reader* r, const Step* step, int64_t* out) noexcept nogil:
    # A length or a count: a varint of one more, so that 0 is null, or an integer, where all that are negative are.
    cdef uint32_t more = 0
    cdef const uint8_t* p
    cdef Fault fault
    if step.is_compact:
        fault = varint32(r, &more)
        if fault:
            return fault
        out[0] = <int64_t>more - 1
    else:
        p = take(r, 2 if step.read == SIZED and step.width == 2 else 4)
        if p is NULL:
            return TRUNCATED
        out[0] = <int16_t>be16(p) if step.read == SIZED and step.width == 2 else <int32_t>be32(p)
    if out[0] < 0:
        out[0] = -1
        return OK if step.is_nullable else BAD_NULL
    return OK


cdef Fault read_tags(Reader* r, const uint8_t* start, char* row, const Step* steps, const Step* step) noexcept nogil:
    cdef uint32_t tags = 0, tag = 0, size = 0, i
    cdef int32_t known
    cdef Reader inside
    cdef Fault fault = varint32(r, &tags)
    if fault:
        return fault
    for i in range(tags):
        fault = varint32(r, &tag)
        if not fault:
            fault = varint32(r, &size)
        if fault:
            return fault
        inside.at = take(r, size)
        if inside.at is NULL:
            return TRUNCATED
        inside.end = inside.at + size
        for known in range(step.first, step.last):
            if <uint32_t>steps[known].width == tag:
                fault = read_fields(&inside, start, row, steps, steps[known].first, steps[known].last)
                if fault:
                    return fault
                if left(&inside):
                    return LEFTOVER
    return OK


cdef Fault read_fields(Reader* r, const uint8_t* start, char* row, const Step* steps, int32_t first,
                       int32_t last) noexcept nogil:
    # Read a struct into its row; without a row, step over it. `start`: where places in the row count from.
    cdef const Step* step
    cdef const uint8_t* p
    cdef int64_t count, i
    cdef int32_t number
    cdef Fault fault = OK
    for number in range(first, last):
        step = steps + number
        if step.read == NUMBER or step.read == FIXED:
            p = take(r, <size_t>step.width)
            if p is NULL:
                return TRUNCATED
            if step.read == FIXED:
                note(row, step, start, p, step.width)
            elif row is not NULL:
                store(row + step.at, p, step.width)
            continue
        if step.read == TAGS:
            fault = read_tags(r, start, row, steps, step)
            if fault:
                return fault
            continue
        fault = read_count(r, step, &count)
        if fault:
            return fault
        p = r.at
        if step.read == STRUCTS:
            # A struct has at least a byte.
            if count > <int64_t>left(r):
                return TRUNCATED
            for i in range(count):
                fault = read_fields(r, start, NULL, steps, step.first, step.last)
                if fault:
                    return fault
            if row is not NULL:
                store_count(row + step.count, <int32_t>count)
            note(row, step, start, p, r.at - p if count >= 0 else -1)
        else:
            i = count * (step.width if step.read == NUMBERS else 1)
            if count > 0 and (count > <int64_t>left(r) or take(r, <size_t>i) is NULL):
                return TRUNCATED
            note(row, step, start, p, i if count >= 0 else -1)
    return OK


cdef Fault read_struct(Reader* r, void* out, const void* parent) noexcept nogil:
    cdef const Program* program = <const Program*>parent
    cdef Head* head = <Head*>out
    cdef const uint8_t* start = r.at
    cdef Fault fault = BAD_VERSION
    memcpy(<char*>out + sizeof(Head), <const char*>program.template + sizeof(Head), program.stride - sizeof(Head))
    head.kind = program.version
    if program.first >= 0:
        head.body = program.skip
        if take(r, program.skip) is NULL:
            fault = TRUNCATED
        else:
            fault = read_fields(r, start, <char*>out, <const Step*>program.steps, program.first, program.last)
        if fault == OK and program.is_whole and left(r):
            fault = LEFTOVER
    if fault:
        r.at = r.end                # where it ends is not known
    return fault


cdef Fault run_structs(const Opening* opening, Rows* rows) noexcept nogil:
    return open_all(opening, rows, rows.stride, read_struct, NULL)


def open_structs(programs, buffers, spans, counts, dtype, limits):
    """(rows, bad, fault): a row of `dtype` for each struct in the spans. As core.loop.open_frames.

    programs: array of dtype PROGRAM, one for each row that is opened. The caller vouches for the addresses in it.
    """
    return open_frames(programs, buffers, spans, counts, dtype, run_structs, NULL, NULL, limits)


def leading_int16(rows, buffers, name):
    """Int16 array: what the place `name` of each row begins with: the version of a key or a value; -1 where it is null
    or shorter."""
    if not lie_inside(rows, buffers):
        raise ValueError("a row points outside its buffer")
    at, size = rows[name + "_at"].astype(np.int64), rows[name + "_size"]
    out = np.full(len(rows), -1, np.int16)
    for number, buffer in enumerate(buffers):
        have = np.flatnonzero((rows["buffer"] == number) & (size >= 2) & (rows["fault"] == 0)
                              & (at + 2 <= rows["size"]))
        data, first = np.frombuffer(buffer, np.uint8), rows["start"][have] + at[have]
        out[have] = (data[first].astype(np.int16) << 8) | data[first + 1]
    return out
