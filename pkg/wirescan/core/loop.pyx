# cython: boundscheck=False, wraparound=False
"""The Python side of the loop over frames, which loop.pxd holds: buffers in, rows out.

`scan_frames` reads a buffer from its first byte; `open_frames` reads what lies inside the frames of another table.
Rows grow in C, and the GIL is released.
"""
import numpy as np

from libc.string cimport memcmp
from wirescan.core.reader cimport settle
from wirescan.core.rows cimport RowBlock

FIRST_ROOM = 256    # rows; after that the density seen decides
PAST = 32 << 20     # bytes of rows; of more, caches keep nothing until somebody looks at them


def flat(dtype):
    """The dtype of a C struct as seen through a memoryview, with the columns of its `head` lifted to the top.

    Raises TypeError where the struct has padding: order its fields widest first.
    """
    columns = []
    for name in dtype.names:
        field = dtype[name]
        columns += [(n, field[n]) for n in field.names] if name == "head" else [(name, field)]
    plain = np.dtype(columns)
    if plain.itemsize != dtype.itemsize:
        raise TypeError(f"the struct has padding: {dtype.itemsize} bytes for {plain.itemsize} of columns")
    return plain


cdef Head _head
HEAD = np.asarray(<Head[:1]>&_head).dtype


cdef const uint8_t* next_intact(IntactFrame intact, const uint8_t* at, const uint8_t* end, bint more,
                                int64_t* budget) noexcept nogil:
    """Where the next intact frame begins, or NULL; NULL too where it seems to be one of which `more` may follow."""
    cdef size_t away
    cdef bint usual
    while at < end:
        away = intact(at, end, False, budget)
        if away == 0 or away == UNDECIDED:
            usual = away == 0
            away = decided(intact(at, end, True, budget), more)
            if away == 0:
                return at
            if away == UNDECIDED:
                if usual and more:
                    break
                away = 1
        if away >= <size_t>(end - at):
            break
        at += away
    return NULL


cdef bint all_zero(const uint8_t* at, const uint8_t* end) noexcept nogil:
    # Each byte equals the one before it, and the first is zero.
    return at == end or (at[0] == 0 and memcmp(at, at + 1, <size_t>(end - at) - 1) == 0)


cdef const uint8_t[::1] bytes_of(rows):
    # Rows as bytes, each beginning with a Head: there may be millions of them, so they are not looked at in numpy.
    if rows.dtype.itemsize < sizeof(Head) or [rows.dtype.fields.get(name) for name in HEAD.names] != [
            HEAD.fields[name] for name in HEAD.names]:
        raise TypeError(f"rows must begin with the columns {', '.join(HEAD.names)}")
    return np.ascontiguousarray(rows).view(np.uint8)


def lie_inside(rows, buffers):
    """Whether every row lies in its buffer. Rows may come from anywhere (a join, a pickle, an array of the user's): no
    pointer is formed from an unchecked one."""
    cdef const uint8_t[::1] view
    cdef const int64_t[::1] sizes = np.array([len(b) for b in buffers], np.int64)
    cdef const Head* row
    cdef Py_ssize_t i, n = len(rows), stride = rows.dtype.itemsize
    cdef bint good = True
    if n == 0:
        return True
    view = bytes_of(rows)
    with nogil:
        for i in range(n):
            row = <const Head*>&view[i * stride]
            good &= (row.buffer < sizes.shape[0] and row.start >= 0
                     and row.start <= sizes[row.buffer] - <int64_t>row.size)
    return bool(good)


def spans(rows, at=None):
    """Array of dtype HEAD, one span a row: the bytes from `body` (or from `at`, an array) to the frame's end. The row's
    number is its parent."""
    cdef Py_ssize_t i, n = len(rows), stride = rows.dtype.itemsize
    cdef const uint8_t[::1] view
    cdef const uint32_t[::1] given = None if at is None else np.ascontiguousarray(at, np.uint32)
    cdef const Head* row
    cdef Head[::1] out
    cdef uint32_t body
    array = np.empty(n, HEAD)
    if n == 0:
        return array
    view, out = bytes_of(rows), array
    with nogil:
        for i in range(n):
            row = <const Head*>&view[i * stride]
            body = row.body if given is None else given[i]
            out[i] = Head(<int64_t>(<uint64_t>row.start + body), row.size - body if row.size > body else 0, 0,
                          <int32_t>i, row.buffer, 0, row.fault)
    return array


def addresses(buffers):
    """Uint64 array of shape (n, 2): where each buffer begins and ends in memory, laid out as `Readable`.

    The caller keeps the buffers alive."""
    arrays = [np.frombuffer(b, np.uint8) for b in buffers]
    return np.array([(a.ctypes.data, a.ctypes.data + len(a)) for a in arrays], np.uint64).reshape(-1, 2)


cdef RowBlock block_for(dtype, size_t room, limits, into):
    if into is not None and not (isinstance(into, np.ndarray) and into.dtype == dtype and into.ndim == 1
                                 and into.flags.c_contiguous and into.flags.writeable):
        raise TypeError(f"into must be a writable contiguous array of one dimension and of dtype {dtype}")
    return RowBlock(dtype.itemsize, room, limits.rows, into)


cdef object lend(RowBlock block, dtype, into, Fault fault):
    # The rows as a read-only array that keeps their memory alive; with `into`, the part of it that is written.
    if block.rows.out_of_memory:
        raise MemoryError(f"no memory for more than {len(block)} rows of {block.rows.stride} bytes")
    if into is not None:
        if fault == LIMIT and len(block) == len(into):
            raise ValueError(f"into has room for {len(into)} rows, and there are more frames")
        array = into[:len(block)]
    else:
        array = np.frombuffer(block, dtype) if len(block) else np.empty(0, dtype)
    array.flags.writeable = False
    return array


cdef object scan_frames(buffer, dtype, RunTop run, bint resync, bint more, limits, into=None):
    """(rows, bad, fault, offset): a row for each frame of `buffer`, how many of them are bad, why the scan ended, and
    the offset where. resync: after a fault, go on at the next intact frame. more: bytes may follow, as in a stream: the
    scan stops before a bad frame (with SHORT, or a hard fault) where they would decide where the next one is. A frame
    that the end cuts stops it with SHORT, but with BAD_LENGTH where intact frames follow, or it has more than
    limits.frame bytes already.

    Raises TypeError and ValueError for an unfit `into`, MemoryError.
    """
    cdef const uint8_t[::1] view = buffer
    cdef RowBlock block = block_for(dtype, FIRST_ROOM, limits, into)
    cdef const uint8_t* base = &view[0] if view.shape[0] else NULL
    if into is not None and np.may_share_memory(np.frombuffer(buffer, np.uint8), into):
        raise ValueError("into lies in the memory that is read")
    cdef Top top = Top(Reader(base, base + view.shape[0]), resync, more, limits.frame)
    cdef Fault fault
    with nogil:
        fault = run(&top, &block.rows)
    return lend(block, dtype, into, fault), block.rows.bad, int(fault), top.r.at - base


cdef object scan_spans(buffers, spans, dtype, RunTop run, bint resync, limits):
    """(rows, bad, faults, offsets): a row for each frame in the spans, each of them scanned as a buffer of its own; how
    many rows are bad; why the scan of each span ended (uint8 array), and at which offset of its buffer (int64 array).

    spans: array of dtype HEAD; `parent` is that of the rows. Where a scan ends with LIMIT it is the last; both arrays
    end there. Raises ValueError where a span lies outside its buffer, MemoryError.
    """
    cdef Py_ssize_t i, n = len(spans), done = 0
    cdef const uint8_t[::1] span_bytes = np.ascontiguousarray(spans).view(np.uint8)
    cdef const Head* span
    cdef const Readable* held
    cdef const uint64_t[:, ::1] buffer_view
    cdef RowBlock block = block_for(dtype, FIRST_ROOM, limits, None)
    cdef Rows* rows = &block.rows
    cdef Head* row
    cdef Top top
    cdef size_t first, longest = limits.frame
    cdef Fault fault = OK
    faults, offsets = np.zeros(n, np.uint8), np.zeros(n, np.int64)
    cdef uint8_t[::1] why = faults
    cdef int64_t[::1] where = offsets
    if not lie_inside(spans, buffers):
        raise ValueError("a span lies outside its buffer")
    if n:
        span, buffer_view = <const Head*>&span_bytes[0], addresses(buffers)
        held = <const Readable*>&buffer_view[0, 0]
        with nogil:
            for i in range(n):
                first = rows.count
                top = Top(Reader(held[span[i].buffer].at + span[i].start,
                                 held[span[i].buffer].at + span[i].start + span[i].size), resync, False, longest)
                fault = run(&top, rows)
                why[i], where[i] = <uint8_t>fault, top.r.at - held[span[i].buffer].at
                while first < rows.count:
                    row = <Head*>(rows.at + first * rows.stride)
                    row.start += span[i].start
                    row.parent, row.buffer = span[i].parent, span[i].buffer
                    first += 1
                done = i + 1
                if fault == LIMIT or rows.out_of_memory:
                    break
    return lend(block, dtype, None, fault), block.rows.bad, faults[:done], offsets[:done]


cdef object open_frames(outer, buffers, spans, counts, dtype, RunOpening open, ReadRun run, VerifyFrame verify, limits,
                        into=None):
    """(rows, bad, fault): a row for each frame inside the spans, how many of them are bad, and LIMIT where there were
    more than limits.rows.

    outer: rows of the table that is opened.
    buffers: bytes-like objects; `spans.buffer` counts in them.
    spans: array of dtype HEAD: start, size and buffer of what is to be read, the row of `outer` it belongs to
        as parent, and a fault where it cannot be opened (then one bad row covers it).
    counts: int32 array, the children that each span claims; ANY or SOME where it does not say.
    verify: asked of each row of `outer` that is opened, so these have to lie in their buffers too.
    Raises ValueError where a span lies outside its buffer or names no row of `outer`, TypeError and ValueError
    for an unfit `into`, MemoryError.
    """
    cdef Py_ssize_t n = len(spans), parents = len(outer)
    cdef const uint8_t[::1] outer_bytes, span_bytes
    cdef const Head* span
    cdef const int32_t[::1] count_view
    cdef const uint64_t[:, ::1] buffer_view
    cdef RowBlock block
    cdef Opening opening
    cdef Fault fault = OK
    cdef int64_t claimed = 0, usual = FIRST_ROOM
    cdef bint named = True
    cdef Py_ssize_t i
    if spans.dtype != HEAD or len(counts) != n:
        raise ValueError("spans and counts must be arrays of equal length, of dtypes HEAD and int32")
    count_view, span_bytes = np.ascontiguousarray(counts, np.int32), np.ascontiguousarray(spans).view(np.uint8)
    span = <const Head*>&span_bytes[0] if n else NULL
    # No frame is smaller than two bytes, so what the wire claims never asks for more rows than there are bytes.
    # And what is claimed is only a hint: beyond what bytes of usual frames would give, rows grow as they are found.
    for i in range(n):
        named &= 0 <= span[i].parent < parents
        claimed += min(max(count_view[i], 1), <int64_t>(span[i].size // 2) + 1)
        usual += span[i].size // 16
    if not (named and lie_inside(spans, buffers) and (verify is NULL or lie_inside(outer, buffers))):
        raise ValueError("a row points outside its buffer or its table")
    if into is not None and any(np.may_share_memory(np.frombuffer(b, np.uint8), into) for b in buffers):
        raise ValueError("into lies in the memory that is read")
    block = block_for(dtype, min(claimed, usual) + 1, limits, into)
    if n:
        buffer_view = addresses(buffers)
        outer_bytes = np.ascontiguousarray(outer).view(np.uint8)
        opening = Opening(span, &count_view[0], n, <const char*>&outer_bytes[0], outer.dtype.itemsize,
                          <const Readable*>&buffer_view[0, 0], run, verify,
                          claimed * dtype.itemsize >= PAST)
        with nogil:
            fault = open(&opening, &block.rows)
            settle()
    return lend(block, dtype, into, fault), block.rows.bad, int(fault)
