# cython: boundscheck=False, wraparound=False
"""Computes the spans of payloads: in rows of nats.messages, between offsets, and in Arrow views.

`payload_sources.py` calls these functions for `liftbridge.scan`. The layout of an Arrow view:

    to 12   size i4 | up to 12 bytes of data
    longer  size i4 | first four bytes of the data | buffer number i4 | position in the buffer i4

Source: Apache Arrow columnar format 1.4, "Variable-size Binary Layout" and "Variable-size Binary
View Layout".
"""
import numpy as np

from wirescan.core cimport Head, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from wirescan.core.loop import HEAD as _HEAD
from wirescan.nats.rows cimport HMSG, HPUB, MSG, Message, PUB
from wirescan.nats.scan import MESSAGE as _MESSAGE

cdef enum:
    INLINE = 12                 # bytes that fit in the view itself
    VIEW_SIZE = 16
    VIEW_WORDS = 4              # int32 in a view

ctypedef fused Offset:
    int32_t
    int64_t


def make_message_spans(messages):
    """Return the payloads of rows of nats.messages, as an array of dtype HEAD.

    The payloads are those of PUB, HPUB, MSG and HMSG. A bad row gives a span of its whole frame,
    with its fault. `parent` is the number of the row.

    Raises TypeError for rows of another dtype.
    """
    cdef Py_ssize_t i, n = len(messages), count = 0
    cdef const uint8_t[::1] view
    cdef const Message* row
    if messages.dtype != _MESSAGE:
        raise TypeError("payloads are read from rows of nats.messages, not of another dtype")
    spans = np.empty(n, _HEAD)
    cdef Head[::1] span = spans
    if n:
        view = np.ascontiguousarray(messages).view(np.uint8)
        with nogil:
            for i in range(n):
                row = <const Message*>&view[i * sizeof(Message)]
                if row.head.fault:
                    span[count] = Head(row.head.start, row.head.size, 0, <int32_t>i,
                                       row.head.buffer, 0, row.head.fault)
                elif row.head.kind in (PUB, HPUB, MSG, HMSG):
                    span[count] = Head(<int64_t>(<uint64_t>row.head.start + row.payload_at),
                                       <uint32_t>max(row.payload_size, 0), 0, <int32_t>i,
                                       row.head.buffer, 0, 0)
                else:
                    continue
                count += 1
    return spans[:count]


cdef Py_ssize_t fill_spans(Head* span, const Offset[::1] offsets, int64_t size, int64_t longest,
                           const uint8_t[::1] null) noexcept nogil:
    # Return the number of the first value that is too long or outside the data, or -1.
    cdef int64_t start = offsets[0], stop
    cdef Py_ssize_t i
    for i in range(offsets.shape[0] - 1):
        stop = offsets[i + 1]
        if start < 0 or stop < start or stop > size or stop - start > longest:
            return i
        span[i] = Head(start, 0 if null[i] else <uint32_t>(stop - start), 0, -1, 0, 0, 0)
        start = stop
    return -1


def make_offset_spans(const Offset[::1] offsets, int64_t size, int64_t max_size, null):
    """Return (spans, wrong) of the values between n + 1 offsets.

    size: bytes in the data. max_size: bytes that a value may have. null: array of n bools; a null
    has no bytes. spans: array of dtype HEAD, with `parent` -1. wrong: the first value that has more
    than `max_size` bytes or whose offsets are out of order or outside the data; -1 if there is
    none.

    Raises ValueError if there are not n + 1 offsets.
    """
    cdef Py_ssize_t wrong = -1
    cdef const uint8_t[::1] nulls = null.view(np.uint8)
    spans = np.empty(len(null), _HEAD)
    cdef Head[::1] span = spans
    if offsets.shape[0] != nulls.shape[0] + 1:
        raise ValueError("n values have n + 1 offsets")
    if nulls.shape[0]:
        with nogil:
            wrong = fill_spans(&span[0], offsets, size, max_size, nulls)
    return spans, wrong


def make_view_spans(const int32_t[:, ::1] views, int64_t first, null, const int64_t[::1] ends,
                    int64_t max_size):
    """Return (spans, wrong) of the values of Arrow views.

    first: the number of the first view in its buffer. That buffer is buffer 0 of the spans; the
    array's data buffers follow. null: array of bools, one for each view; a null has no bytes.
    ends: the number of bytes in each buffer. max_size: bytes that a value may have.
    spans: array of dtype HEAD, with `parent` -1. wrong: the first value that has more than
    `max_size` bytes or is outside its buffer; -1 if there is none.

    Raises ValueError if `null` and `views` differ in length, a view has not four int32, or there is
    no buffer.
    """
    cdef const uint8_t[::1] nulls = null.view(np.uint8)
    cdef Py_ssize_t i, n = views.shape[0], wrong = -1
    cdef int64_t size, number, start
    spans = np.empty(n, _HEAD)
    cdef Head[::1] span = spans
    if (views.shape[1] != VIEW_WORDS or nulls.shape[0] != n
            or (n and ends.shape[0] == 0)):
        raise ValueError("views are an array of shape (n, 4), with n bools and at least one buffer")
    with nogil:
        for i in range(n):
            size = 0 if nulls[i] else views[i, 0]
            number = 0
            start = VIEW_SIZE * (first + i) + 4
            if size > INLINE:
                number = 1 + <int64_t>views[i, 2]
                start = views[i, 3]
                if number < 1 or number >= ends.shape[0]:
                    wrong = i
                    break
            if size < 0 or size > max_size or start < 0 or start + size > ends[number]:
                wrong = i
                break
            span[i] = Head(start, <uint32_t>size, 0, -1, <unsigned short>number, 0, 0)
    return spans, wrong
