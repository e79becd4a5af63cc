# cython: boundscheck=False, wraparound=False
"""Scan requests and responses of Kafka's protocol, one after another in a stream.

    request        size(4) api key(2) api version(2) correlation id(4) client id(2+)
                   [tagged fields]  body
    response       size(4) correlation id(4)  [tagged fields]  body
    tagged fields  count { tag  size  field }*      (unsigned varints)

All integers are big-endian. A response has no API key and no version: they come from its request.
protocol/formats.py calls these functions. body.pyx reads the bodies.

Source: Apache Kafka, "Kafka Protocol Guide", "Protocol Primitive Types" and "Messages". For version
0, "A Guide To The Kafka Protocol" (0.8). For flexible versions, KIP-482. For ApiVersions, KIP-511.
"""
import numpy as np

from wirescan.core cimport (
    BAD_LENGTH, Context, Fault, OK, Reader, Rows, SHORT, TRUNCATED, ScanState, be16, be32, enter,
    int16_t, int32_t, int64_t, left, scan_frames, scan_spans, scan_buffer, sized, take, uint8_t,
    uint32_t, uint64_t, varint32)
from wirescan.core.loop import addresses, flatten, lie_inside
from wirescan.core.row_arrays import copy_rows
from wirescan.kafka.protocol import schema

cdef enum:
    APIS = 128                      # upper bound of the API keys
    SIZE_BYTES = 4                  # before each message
    OPAQUE = 255                    # the kind of a message whose header is not known
    VERSIONS = 256                  # upper bound of the versions of an API
    CONTROLLED_SHUTDOWN = 7         # an API key; version 0 has no client id
    UNSUPPORTED_VERSION = 35        # an error code; such an ApiVersions response has version 0

cdef int16_t first_flexible[APIS]           # -1: no such API
for _key in range(APIS):
    first_flexible[_key] = min(schema.API[_key].flexible, 0x7fff) if _key in schema.API else -1
cdef int16_t PRODUCE = schema.KEYS["Produce"]
cdef int16_t API_VERSIONS = schema.KEYS["ApiVersions"]


cdef inline bint is_known(int16_t api_key, int16_t version) noexcept nogil:
    return 0 <= api_key < APIS and first_flexible[api_key] >= 0 and 0 <= version < VERSIONS

cdef inline bint is_flexible(int16_t api_key, int16_t version) noexcept nogil:
    return is_known(api_key, version) and version >= first_flexible[api_key]


cdef inline Fault skip_tags(Reader* r, int32_t* count) noexcept nogil:
    cdef uint32_t tags = 0, tag = 0, size = 0, _i
    cdef Fault fault = varint32(r, &tags)
    if fault:
        return fault
    count[0] = <int32_t>min(tags, <uint32_t>0x7fffffff)
    for _i in range(tags):
        fault = varint32(r, &tag)
        if not fault:
            fault = varint32(r, &size)
        if fault:
            return fault
        if take(r, size) is NULL:
            return TRUNCATED
    return OK


cdef Fault read_request(Reader* r, void* out, const Context* context) noexcept nogil:
    cdef Request* row = <Request*>out
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p
    cdef Reader body
    cdef int32_t tags = 0
    cdef Fault fault
    if left(r) < SIZE_BYTES:
        return SHORT
    fault = enter(r, SIZE_BYTES, <int32_t>be32(start), &body)
    if fault:
        if fault == SHORT:
            row.head.size = SIZE_BYTES + be32(start)
        return fault
    row.client_id_size = row.api_key = row.api_version = -1
    p = take(&body, 8)
    if p is NULL:
        if left(&body) == 0:
            return TRUNCATED
        row.head.kind = OPAQUE
        row.head.body = 4
        return OK
    row.api_key = <int16_t>be16(p)
    row.api_version = <int16_t>be16(p + 2)
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


cdef Fault read_response(Reader* r, void* out, const Context* context) noexcept nogil:
    cdef Response* row = <Response*>out
    cdef const uint8_t* start = r.at
    cdef const uint8_t* p
    cdef Reader body
    cdef Fault fault
    if left(r) < SIZE_BYTES:
        return SHORT
    fault = enter(r, SIZE_BYTES, <int32_t>be32(start), &body)
    if fault:
        if fault == SHORT:
            row.head.size = SIZE_BYTES + be32(start)
        return fault
    row.request = row.api_key = row.api_version = -1
    p = take(&body, 4)
    if p is NULL:
        return TRUNCATED
    row.correlation_id = <int32_t>be32(p)
    row.head.body = 8
    return OK


# There is no ResyncProbe: a message has no mark that a search could find. After a damaged size the
# rest of the stream cannot be read. After any other damage the next message can be read.
cdef Fault run_requests(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Request), read_request, NULL)

cdef Fault run_responses(ScanState* state, Rows* rows) noexcept nogil:
    return scan_buffer(state, rows, sizeof(Response), read_response, NULL)

cdef Request _request
cdef Response _response
REQUEST = flatten(np.asarray(<Request[:1]>&_request).dtype)
RESPONSE = flatten(np.asarray(<Response[:1]>&_response).dtype)


def scan_requests(buffer, *, check, resync, limits, into=None, more=False, resume=None):
    """Return (rows of dtype REQUEST, bad, fault, position) of a buffer.

    See `core.loop.scan_frames`. `check` is accepted for consistency and ignored: requests have no
    checksum.
    """
    return clear_api(
        scan_frames(buffer, REQUEST, run_requests, resync, more, limits, into, resume))


def scan_request_streams(buffers, spans, *, check, resync, limits, more=False):
    """Return (rows of dtype REQUEST, bad, faults, positions) of many spans of buffers.

    See `core.loop.scan_spans`. `check` is ignored.
    """
    return clear_api(scan_spans(buffers, spans, REQUEST, run_requests, resync, limits, more))


def scan_responses(buffer, *, check, resync, limits, into=None, more=False, resume=None):
    """Return (rows of dtype RESPONSE, bad, fault, position) of a buffer.

    See `core.loop.scan_frames`. `check` is ignored. The API of a response is not known yet:
    `name_responses` fills it in.
    """
    return clear_api(
        scan_frames(buffer, RESPONSE, run_responses, resync, more, limits, into, resume))


def scan_response_streams(buffers, spans, *, check, resync, limits, more=False):
    """Return (rows of dtype RESPONSE, bad, faults, positions) of many spans of buffers.

    See `core.loop.scan_spans`. `check` is ignored.
    """
    return clear_api(scan_spans(buffers, spans, RESPONSE, run_responses, resync, limits, more))


cdef tuple clear_api(result):
    # Bytes that are no message have no API: set these columns of such rows to -1.
    rows, bad, fault, position = result
    if bad and (rows["fault"] >= BAD_LENGTH).any():
        rows = copy_rows(rows)
        for name in {"request", "api_key", "api_version"}.intersection(rows.dtype.names):
            rows[name][rows["fault"] >= BAD_LENGTH] = -1
        rows.flags.writeable = False
    return rows, bad, fault, position


cdef bint is_answered(const Request* row, const uint8_t* base) noexcept nogil:
    # Whether a request gets a response. Only Produce with acks = 0 gets none. `acks` follows the
    # transactional id. The fields of an opaque request are not known.
    cdef Reader r = Reader(
        base + row.head.start + row.head.body, base + row.head.start + row.head.size)
    cdef const uint8_t* p
    cdef uint32_t at = 0, length = 1
    cdef int32_t size = 0
    if row.api_key != PRODUCE or row.head.fault:
        return True
    if row.head.kind == OPAQUE or row.head.body > row.head.size:
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


def expects_response(requests, buffers):
    """Return a bool array: whether each request gets a response.

    Only Produce with acks = 0 gets none. Raises ValueError if a row points outside its buffer.
    """
    cdef Py_ssize_t i, n = len(requests)
    cdef const uint8_t[::1] rows
    cdef const Request* row
    flags = np.ones(n, np.uint8)
    cdef uint8_t[::1] out = flags
    if not lie_inside(requests, buffers):
        raise ValueError("a row points outside its buffer")
    cdef const uint64_t[:, ::1] readable
    if n:
        readable = addresses(buffers)
        rows = np.ascontiguousarray(requests).view(np.uint8)
        with nogil:
            for i in range(n):
                row = <const Request*>&rows[i * sizeof(Request)]
                out[i] = is_answered(row, <const uint8_t*>readable[row.head.buffer, 0])
    return flags.view(bool)


def match(request_ids, opaque, response_ids, complete):
    """Return an int64 array: for each response on a connection the number of its request, or -1.

    request_ids: int32 array, the correlation ids of the requests.
    opaque: bool array, whether each request is opaque (a token of SASL; its response has no id).
    response_ids: int32 array, the correlation ids of the responses.
    complete: bool array, whether each response has a correlation id.

    All arrays are in the order of the wire. The request of a response is the first one with its id
    after the request that was answered before.
    """
    cdef Py_ssize_t i, low, high, middle, n = len(request_ids)
    cdef int64_t next = 0
    cdef const int32_t[::1] ids = request_ids
    cdef const int32_t[::1] id_of = response_ids
    cdef const uint8_t[::1] is_opaque = opaque.view(np.uint8)
    cdef const uint8_t[::1] is_complete = complete.view(np.uint8)
    cdef const int64_t[::1] order = np.argsort(request_ids, kind="stable")
    numbers = np.full(len(response_ids), -1, np.int64)
    cdef int64_t[::1] out = numbers
    with nogil:
        for i in range(id_of.shape[0]):
            if next < n and (is_opaque[next] or (is_complete[i] and ids[next] == id_of[i])):
                out[i] = next
            elif is_complete[i]:
                low = 0
                high = n
                while low < high:
                    middle = (low + high) // 2
                    if ids[order[middle]] < id_of[i] or (
                            ids[order[middle]] == id_of[i] and order[middle] < next):
                        low = middle + 1
                    else:
                        high = middle
                if low == n or ids[order[low]] != id_of[i]:
                    continue
                out[i] = order[low]
            else:
                continue
            next = out[i] + 1
    return numbers


def name_responses(responses, buffers, requests, numbers):
    """Return (rows, bad): the responses with the columns that depend on their requests.

    responses: rows of dtype RESPONSE. numbers: int64 array, the row in `requests` of each response,
    or -1. The columns are request, api_key, api_version, tag_count and the head's kind and body.
    Raises ValueError if a row points outside its buffer.
    """
    rows = copy_rows(responses)
    cdef Py_ssize_t i, n = len(rows), bad = 0
    cdef const int64_t[::1] number = numbers
    cdef const int16_t[::1] key = np.ascontiguousarray(requests["api_key"])
    cdef const int16_t[::1] version = np.ascontiguousarray(requests["api_version"])
    cdef const uint8_t[::1] kind = np.ascontiguousarray(requests["kind"])
    cdef uint8_t[::1] view
    cdef Response* row
    cdef const uint8_t* start
    cdef Reader r
    cdef const uint64_t[:, ::1] readable
    if not lie_inside(rows, buffers):
        raise ValueError("a row points outside its buffer")
    if n:
        readable = addresses(buffers)
        view = rows.view(np.uint8)
        with nogil:
            for i in range(n):
                row = <Response*>&view[i * sizeof(Response)]
                if number[i] >= 0 and kind[number[i]] == OPAQUE:
                    row.request = <int32_t>number[i]
                    row.head.kind = OPAQUE
                    if row.head.fault:              # the response is shorter than a correlation id
                        row.head.fault = 0
                        row.head.body = 4
                elif number[i] >= 0 and not row.head.fault:
                    row.request = <int32_t>number[i]
                    row.api_key = key[number[i]]
                    row.api_version = version[number[i]]
                    start = <const uint8_t*>readable[row.head.buffer, 0] + row.head.start
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
