# cython: boundscheck=False, wraparound=False
"""Requests and responses of Kafka's protocol, one after another in a stream.

    request   size(4) api key(2) api version(2) correlation id(4) client id(2+) [tagged fields]  body
    response  size(4) correlation id(4)                                         [tagged fields]  body
    tagged fields    count { tag  size  field }*                                   (unsigned varints)

All integers are big-endian. A response does not say what it answers: it is read by its request. kafka/body.pyx reads
the bodies.

Source: Apache Kafka, "Kafka Protocol Guide", "Protocol Primitive Types" and "Messages"; for version 0, "A Guide To The
Kafka Protocol" (0.8); for flexible versions, KIP-482, and for ApiVersions, KIP-511.
"""
import numpy as np

from wirescan.core cimport (
    BAD_LENGTH, Fault, OK, Reader, Rows, SHORT, TRUNCATED, Top, be16, be32, enter, int16_t, int32_t, int64_t, left,
    scan_frames, scan_spans, scan_top, sized, take, uint8_t, uint32_t, uint64_t, varint32)
from wirescan.core.loop import flat, lie_inside
from wirescan.kafka import schema

cdef enum:
    APIS = 128                      # more than there are
    OPAQUE = 255                    # the kind of what has no header that is known
    VERSIONS = 256                  # more than any API has
    CONTROLLED_SHUTDOWN = 7         # its version 0 has no client id
    UNSUPPORTED_VERSION = 35        # of ApiVersions: an answer in version 0, whatever was asked for

cdef int16_t first_flexible[APIS]           # -1: there is no such API
for _key in range(APIS):
    first_flexible[_key] = min(schema.API[_key].flexible, 0x7fff) if _key in schema.API else -1
cdef int16_t PRODUCE = schema.KEYS["Produce"], API_VERSIONS = schema.KEYS["ApiVersions"]


cdef inline bint is_known(int16_t api_key, int16_t version) noexcept nogil:
    return 0 <= api_key < APIS and first_flexible[api_key] >= 0 and 0 <= version < VERSIONS

cdef inline bint is_flexible(int16_t api_key, int16_t version) noexcept nogil:
    return is_known(api_key, version) and version >= first_flexible[api_key]


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
    row.client_id_size = row.api_key = row.api_version = -1
    p = take(&body, 8)
    if p is NULL:
        if left(&body) == 0:
            return TRUNCATED
        row.head.kind, row.head.body = OPAQUE, 4
        return OK
    row.api_key, row.api_version = <int16_t>be16(p), <int16_t>be16(p + 2)
    row.correlation_id = <int32_t>be32(p + 4)
    row.head.body = 12
    if not is_known(row.api_key, row.api_version):
        row.head.kind = OPAQUE
        return OK
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


# Nothing in a stream tells where a message begins, but for the size of the one before: behind a damaged size all is lost,
# behind any other damage nothing is.
cdef Fault run_requests(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Request), read_request, NULL)

cdef Fault run_responses(Top* top, Rows* rows) noexcept nogil:
    return scan_top(top, rows, sizeof(Response), read_response, NULL)

cdef Request _request
cdef Response _response
REQUEST = flat(np.asarray(<Request[:1]>&_request).dtype)
RESPONSE = flat(np.asarray(<Response[:1]>&_response).dtype)
UNKNOWN_REQUEST = ("api_key", "api_version")
UNKNOWN_RESPONSE = ("request", *UNKNOWN_REQUEST)


def scan_requests(buffer, check, resync, limits, into=None, more=False):
    """(rows, bad, fault, offset): the requests in a buffer, dtype REQUEST. As core.loop.scan_frames."""
    return unnamed(UNKNOWN_REQUEST, scan_frames(buffer, REQUEST, run_requests, resync, more, limits, into))


def scan_request_streams(buffers, spans, check, resync, limits):
    """(rows, bad, faults, offsets): the same for many spans of buffers: see `core.loop.scan_spans`."""
    return unnamed(UNKNOWN_REQUEST, scan_spans(buffers, spans, REQUEST, run_requests, resync, limits))


def scan_responses(buffer, check, resync, limits, into=None, more=False):
    """(rows, bad, fault, offset): the responses in a buffer, dtype RESPONSE; of what API is not known yet."""
    return unnamed(UNKNOWN_RESPONSE, scan_frames(buffer, RESPONSE, run_responses, resync, more, limits, into))


def scan_response_streams(buffers, spans, check, resync, limits):
    """(rows, bad, faults, offsets): the same for many spans of buffers: see `core.loop.scan_spans`."""
    return unnamed(UNKNOWN_RESPONSE, scan_spans(buffers, spans, RESPONSE, run_responses, resync, limits))


cdef tuple unnamed(names, found):
    # A stretch that is no message is of no API.
    rows, bad, fault, offset = found
    if bad and (rows["fault"] >= BAD_LENGTH).any():
        rows = rows.copy()
        for name in names:
            rows[name][rows["fault"] >= BAD_LENGTH] = -1
        rows.flags.writeable = False
    return rows, bad, fault, offset


cdef bint is_answered(const Request* row, const uint8_t* base) noexcept nogil:
    # All but Produce with acks = 0, which stands behind the transactional id. Of an opaque request no field is known.
    cdef Reader r = Reader(base + row.head.start + row.head.body, base + row.head.start + row.head.size)
    cdef const uint8_t* p
    cdef uint32_t at = 0, length = 1
    cdef int32_t size = 0
    if row.api_key != PRODUCE or row.head.fault or row.head.kind == OPAQUE or row.head.body > row.head.size:
        return True
    if row.head.kind == 2:
        if varint32(&r, &length) or (length > 0 and take(&r, length - 1) is NULL):
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
    cdef const uint8_t[::1] rows
    cdef const Request* row
    found = np.ones(n, np.uint8)
    cdef uint8_t[::1] out = found
    if not lie_inside(requests, buffers):
        raise ValueError("a row points outside its buffer")
    cdef list held = [np.frombuffer(b, np.uint8) for b in buffers]
    cdef const uint64_t[::1] bases = np.array([b.ctypes.data for b in held], np.uint64)
    if n:
        rows = np.ascontiguousarray(requests).view(np.uint8)
        with nogil:
            for i in range(n):
                row = <const Request*>&rows[i * sizeof(Request)]
                out[i] = is_answered(row, <const uint8_t*>bases[row.head.buffer])
    return found.view(bool)


def match(asked, opaque, answers, whole):
    """Int64 array: for each of the answers on a connection the number of its request, or -1.

    asked: int32 array, the correlation ids of the requests. opaque: bool array, which of them are (tokens of SASL,
    whose answers have no id). answers: int32 array, those of the responses. whole: bool array, which of them have one.
    All are in the order of the wire: a request is the first of that id behind the one that was answered before.
    """
    cdef Py_ssize_t i, low, high, middle, n = len(asked)
    cdef int64_t next = 0
    cdef const int32_t[::1] ids = asked, id_of = answers
    cdef const uint8_t[::1] is_opaque = opaque.view(np.uint8), is_whole = whole.view(np.uint8)
    cdef const int64_t[::1] order = np.argsort(asked, kind="stable")
    found = np.full(len(answers), -1, np.int64)
    cdef int64_t[::1] out = found
    with nogil:
        for i in range(id_of.shape[0]):
            if next < n and (is_opaque[next] or (is_whole[i] and ids[next] == id_of[i])):
                out[i] = next
            elif is_whole[i]:
                low, high = 0, n
                while low < high:
                    middle = (low + high) // 2
                    if ids[order[middle]] < id_of[i] or (ids[order[middle]] == id_of[i] and order[middle] < next):
                        low = middle + 1
                    else:
                        high = middle
                if low == n or ids[order[low]] != id_of[i]:
                    continue
                out[i] = order[low]
            else:
                continue
            next = out[i] + 1
    return found


def name_responses(responses, buffers, requests, numbers):
    """(rows, bad): responses, dtype RESPONSE, whose requests are known by their numbers (-1: not), with what that
    tells: request, API, version, and where the body begins."""
    rows = responses.copy()
    cdef Py_ssize_t i, n = len(rows), bad = 0
    cdef const int64_t[::1] number = numbers
    cdef const int16_t[::1] key = np.ascontiguousarray(requests["api_key"])
    cdef const int16_t[::1] version = np.ascontiguousarray(requests["api_version"])
    cdef const uint8_t[::1] kind = np.ascontiguousarray(requests["kind"])
    cdef uint8_t[::1] view
    cdef Response* row
    cdef const uint8_t* start
    cdef Reader r
    cdef list held = [np.frombuffer(b, np.uint8) for b in buffers]
    cdef const uint64_t[::1] bases = np.array([b.ctypes.data for b in held], np.uint64)
    if not lie_inside(rows, buffers):
        raise ValueError("a row points outside its buffer")
    if n:
        view = rows.view(np.uint8)
        with nogil:
            for i in range(n):
                row = <Response*>&view[i * sizeof(Response)]
                if number[i] >= 0 and kind[number[i]] == OPAQUE:
                    row.request, row.head.kind = <int32_t>number[i], OPAQUE
                    if row.head.fault:              # an answer of fewer bytes than an id has
                        row.head.fault, row.head.body = 0, 4
                elif number[i] >= 0 and not row.head.fault:
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
