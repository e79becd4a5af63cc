# cython: boundscheck=False, wraparound=False
"""Shapes of MessagePack maps, from which `msgpack_types.py` infers the types of columns."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from wirescan.core cimport Reader
from wirescan.core.strings cimport ByteStrings
from wirescan.decoding.msgpack_wire cimport (
    BAD_KEY, DIGITS, ELEMENTS, NIL, NUMBER, PAIRS, Value, count_inner, skip_values, take_key,
    take_value)
from wirescan.decoding.payload_reader cimport DEEP, FINE, Refusal

cdef enum:
    DEEPEST = 50                # nesting of arrays and maps whose types are inferred
    SAMPLE_VALUES = 1 << 19     # values from which types are inferred


cdef Refusal check_values(Reader* r, uint64_t count, int depth) noexcept nogil:
    # Skip values, and refuse those that are nested too deeply.
    cdef Value value
    cdef Refusal refusal
    if depth > DEEPEST:
        return DEEP
    while count:
        refusal = take_value(r, &value)
        if refusal != FINE:
            return refusal
        if value.kind >= ELEMENTS:
            refusal = check_values(r, count_inner(&value), depth + 1)
            if refusal != FINE:
                return refusal
        count -= 1
    return FINE


cdef int add_shape(Reader* r, object shape, int64_t* budget) except -1:
    # Add a value that `check_values` accepts to a shape. The budget is a number of values.
    cdef Value value
    cdef Value key
    cdef char[DIGITS] digits
    cdef bint is_open
    value.kind = NIL
    take_value(r, &value)
    budget[0] -= 1
    is_open = shape.add(<int>value.kind, value.kind == NUMBER and value.number < 0)
    if value.kind == ELEMENTS or value.kind == PAIRS:
        for _ in range(value.size):
            inner = None
            if value.kind == PAIRS:
                if take_key(r, &key, digits) == BAD_KEY:
                    skip_values(r, count_inner(&key))
                elif is_open:
                    inner = shape.find_member((<char*>key.octets)[:key.size])
            elif is_open:
                inner = shape.find_item()
            if inner is None or budget[0] <= 0:
                skip_values(r, 1)
            else:
                add_shape(r, inner, budget)
    return 0


def infer_shapes(ByteStrings payloads, shape):
    """Add all payloads that are whole maps to a `Shape`, up to half a million values.

    Raises what the methods of the shape raise.
    """
    cdef Py_ssize_t i
    cdef Py_ssize_t step = payloads.strings.step
    cdef const uint8_t* start
    cdef Reader r
    cdef Refusal refusal
    cdef int64_t budget = SAMPLE_VALUES
    for i in range(len(payloads)):
        if payloads.strings.size[i * step] <= 0 or budget <= 0:
            continue
        start = <const uint8_t*>payloads.strings.address[i * step]
        r.at = start
        r.end = start + payloads.strings.size[i * step]
        if not 0x80 <= start[0] <= 0x8f and start[0] != 0xde and start[0] != 0xdf:
            continue
        refusal = check_values(&r, 1, 0)
        if refusal != FINE or r.at < r.end:
            continue
        r.at = start
        add_shape(&r, shape, &budget)
