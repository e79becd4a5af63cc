# cython: boundscheck=False, wraparound=False
"""Where payloads lie, as spans: in rows of nats.messages, between offsets, and in views.

    view    size i4 | up to 12 bytes in place, or their first four, the number of a buffer i4, the offset in it i4

Source: Apache Arrow columnar format 1.4, "Variable-size Binary Layout" and "Variable-size Binary View Layout".
"""
import numpy as np

from wirescan.core cimport Head, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from wirescan.core.loop import HEAD as _HEAD
from wirescan.nats.scan cimport HMSG, HPUB, MSG, Message, PUB
from wirescan.nats.scan import MESSAGE as _MESSAGE

cdef enum:
    INLINE = 12                 # bytes that a view holds itself

ctypedef fused Offset:
    int32_t
    int64_t


def in_messages(messages):
    """Array of dtype HEAD: the payloads of rows of nats.messages that publish or deliver one, and the frames of bad
    rows, with their fault; `parent` is the row. Raises TypeError for other rows."""
    cdef Py_ssize_t i, n = len(messages), found = 0
    cdef const uint8_t[::1] view
    cdef const Message* row
    if messages.dtype != _MESSAGE:
        raise TypeError("payloads are those of rows of nats.messages")
    spans = np.empty(n, _HEAD)
    cdef Head[::1] span = spans
    if n:
        view = np.ascontiguousarray(messages).view(np.uint8)
        with nogil:
            for i in range(n):
                row = <const Message*>&view[i * sizeof(Message)]
                if row.head.fault:
                    span[found] = Head(row.head.start, row.head.size, 0, <int32_t>i, row.head.buffer, 0, row.head.fault)
                elif row.head.kind in (PUB, HPUB, MSG, HMSG):
                    span[found] = Head(<int64_t>(<uint64_t>row.head.start + row.payload_at),
                                       <uint32_t>max(row.payload_size, 0), 0, <int32_t>i, row.head.buffer, 0, 0)
                else:
                    continue
                found += 1
    return spans[:found]


cdef Py_ssize_t lay(Head* span, const Offset[::1] at, int64_t size, int64_t most,
                    const uint8_t[::1] null) noexcept nogil:
    # The value that is too long, or not in the data; else -1.
    cdef int64_t start = at[0], stop
    cdef Py_ssize_t i
    for i in range(at.shape[0] - 1):
        stop = at[i + 1]
        if start < 0 or stop < start or stop > size or stop - start > most:
            return i
        span[i] = Head(start, 0 if null[i] else <uint32_t>(stop - start), 0, -1, 0, 0, 0)
        start = stop
    return -1


def between(const Offset[::1] offsets, int64_t size, int64_t most, null):
    """(spans, wrong) of the values between n + 1 offsets in `size` bytes: array of dtype HEAD, every `parent` -1; and
    the first value that has more than `most` bytes or is not in order, or -1. null: array of n bools: no bytes."""
    cdef Py_ssize_t wrong = -1
    cdef const uint8_t[::1] nulls = null.view(np.uint8)
    spans = np.empty(len(null), _HEAD)
    cdef Head[::1] span = spans
    if offsets.shape[0] != nulls.shape[0] + 1:
        raise ValueError("n values have n + 1 offsets")
    if nulls.shape[0]:
        with nogil:
            wrong = lay(&span[0], offsets, size, most, nulls)
    return spans, wrong


def viewed(const int32_t[:, ::1] views, int64_t first, null, const int64_t[::1] ends, int64_t most):
    """(spans, wrong) of values that views tell: array of dtype HEAD, every `parent` -1; and the first value that has
    more than `most` bytes or is not in its buffer, or -1.

    first: the number of the first view in its buffer, which is buffer 0 of the spans; the array's others follow. ends:
    how many bytes each has. null: array of bool, as long as views: no bytes."""
    cdef const uint8_t[::1] nulls = null.view(np.uint8)
    cdef Py_ssize_t i, n = views.shape[0], wrong = -1
    cdef int64_t size, number, start
    spans = np.empty(n, _HEAD)
    cdef Head[::1] span = spans
    if views.shape[1] != 4 or nulls.shape[0] != n or (n and ends.shape[0] == 0):
        raise ValueError("a view has four words, and may be null")
    with nogil:
        for i in range(n):
            size, number, start = 0 if nulls[i] else views[i, 0], 0, 16 * (first + i) + 4
            if size > INLINE:
                number, start = 1 + <int64_t>views[i, 2], views[i, 3]
                if number < 1 or number >= ends.shape[0]:
                    wrong = i
                    break
            if size < 0 or size > most or start < 0 or start + size > ends[number]:
                wrong = i
                break
            span[i] = Head(start, <uint32_t>size, 0, -1, <unsigned short>number, 0, 0)
    return spans, wrong
