# cython: boundscheck=False, wraparound=False
"""Confluent's headers of Protobuf payloads: `protobuf_values.py` describes them."""
import numpy as np

from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcmp
from wirescan.core cimport Reader
from wirescan.core.strings cimport ByteStrings
from wirescan.decoding.payload_reader cimport FINE
from wirescan.decoding.protobuf_wire cimport read_varint

cdef enum:
    HEADER = 5                  # bytes of Confluent's header before the message indexes
    DEEPEST_INDEX = 32          # message indexes in a header


def split_headers(ByteStrings payloads):
    """Return (sizes, runs) of Confluent's headers: a byte 0, the schema's id, message indexes.

    sizes: int32, the bytes of each header; -1 for a null and for a payload without a header.
    runs: int32, a number that grows where a header differs from that of the payload before.
    """
    cdef Py_ssize_t i, n = len(payloads)
    cdef Py_ssize_t step = payloads.strings.step
    cdef const uint8_t* at
    cdef const uint8_t* last = NULL
    sizes_array = np.full(n, -1, np.int32)
    runs_array = np.zeros(n, np.int32)
    cdef int32_t[::1] sizes = sizes_array
    cdef int32_t[::1] runs = runs_array
    cdef int32_t last_size = -1
    cdef int32_t run = 0
    for i in range(n):
        at = <const uint8_t*>payloads.strings.address[i * step]
        sizes[i] = measure_header(at, payloads.strings.size[i * step])
        if sizes[i] != last_size or sizes[i] > 0 and memcmp(at, last, sizes[i]) != 0:
            run += 1
        runs[i] = run
        last = at
        last_size = sizes[i]
    return sizes_array, runs_array


cdef int32_t measure_header(const uint8_t* at, int32_t size) noexcept nogil:
    # Return the bytes of a header, or -1. The number of message indexes is a zig-zag varint.
    cdef Reader r
    cdef uint64_t count = 0
    cdef uint64_t index = 0
    if size <= HEADER or at[0] != 0:
        return -1
    r.at = at + HEADER
    r.end = at + size
    if read_varint(&r, &count) != FINE or count & 1 or count > 2 * DEEPEST_INDEX:
        return -1
    for _ in range(count // 2):
        if read_varint(&r, &index) != FINE:
            return -1
    return <int32_t>(r.at - at)
