# cython: boundscheck=False, wraparound=False
"""The Python side of the loop over frames in loop.pxd: buffers in, rows out.

`scan_frames` scans a buffer, `scan_spans` scans parts of buffers, and `open_frames` opens the
frames inside the rows of another table. Rows grow in C, and the GIL is released. Several threads
open many bytes: see shares.pyx.
"""
import numpy as np

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memcmp, memset
from wirescan.core.reader cimport store_fence
from wirescan.core.rows cimport RowBlock
from wirescan.core.shares cimport Share, run_shares
from wirescan.core.parallel import choose_threads, cut_evenly
from wirescan.core.rows import addresses

# Rows that are allocated first. After that, the number of rows per byte so far decides.
FIRST_ROWS = 256
cdef enum:
    FEWEST_ROWS = 4             # allocated first for an empty buffer
    BYTES_PER_SMALL_ROW = 32    # of a buffer, for each further row
    BYTES_PER_FIRST_ROW = 16    # of a span, for each row
    SMALLEST_CHILD = 2          # bytes of a frame inside another one, at least
    SMALL = 1024                # bytes of a buffer; fewer are scanned with the GIL
# Bytes of rows from which on stores bypass the caches, which could not hold them until they are
# read.
BYPASS_BYTES = 32 << 20


def flatten(dtype):
    """Return the dtype of a C struct with the columns of its `head` moved to the top level.

    dtype: that of a memoryview of the struct. Raises TypeError where the struct has padding: then
    its fields must be ordered, widest first.
    """
    columns = []
    for name in dtype.names:
        field = dtype[name]
        if name == "head":
            columns += [(column, field[column]) for column in field.names]
        else:
            # An array of padding is one value, as rows are compared by values.
            columns.append((name, np.dtype((np.void, field.itemsize)) if field.subdtype else field))
    plain = np.dtype(columns)
    if plain.itemsize != dtype.itemsize:
        raise TypeError(f"the struct has padding: {dtype.itemsize} bytes for {plain.itemsize} of "
                        "columns; order its fields widest first")
    return plain


cdef Head _head
HEAD = np.asarray(<Head[:1]>&_head).dtype
cdef list _head_fields = [HEAD.fields[name] for name in HEAD.names]


cdef class RowSink:
    """Takes the rows of a scan, block by block. Subclasses say what becomes of them."""

    cdef int begin(self, buffers, const uint64_t[:, ::1] readable, ranges, size_t expected,
                   size_t max_rows) except -1:
        raise NotImplementedError("a RowSink has no columns; use a ColumnWriter")

    cdef bint choose_targets(self, values, sums) except -1:
        return False

    cdef int end(self, Fault fault) except -1:
        return 0


cdef bint find_intact_frame(ResyncProbe probe, const uint8_t** position, const uint8_t* last,
                            const uint8_t* end, size_t longest, bint more,
                            SearchBudget* budget) noexcept nogil:
    # Return whether an intact frame begins from `position` to `last`, and move `position` to it.
    #
    # Without a result, `position` is after all bytes at which no frame begins. With `more`, it may
    # be at or before `last`: bytes after `end` decide whether a frame begins there.
    #
    # `find_probe_end` bounds the bytes that decide for each position. So the result does not depend
    # on where a stream is cut. Where bytes after `end` decide, the next scan repeats the probe. So
    # this probe is not charged.
    cdef const uint8_t* at = position[0]
    cdef const uint8_t* stop
    cdef SearchBudget budget_before
    cdef size_t away
    # A probe needs LOOK bytes to recognise a header, unless no more bytes follow.
    cdef Py_ssize_t least = LOOK if more else 1
    if end - at < least:
        return False
    last = min(last, end - least)
    while at <= last:
        stop = find_probe_end(at, end, longest)
        away = probe(at, stop, False, budget)
        if away == 0 or away == UNDECIDED:
            if more:
                budget_before = budget[0]
            away = resolve_undecided(probe(at, stop, True, budget), at, end, longest, more)
            if away == 0:
                position[0] = at
                return True
            if more and away == UNDECIDED:
                budget[0] = budget_before
        if away >= <size_t>(end - at):
            if not more:
                at = end
            break
        at += away
    position[0] = at
    return False


cdef bint all_zero(const uint8_t* at, const uint8_t* end) noexcept nogil:
    # The first byte is zero, and each byte equals the one before it.
    return at == end or (at[0] == 0 and memcmp(at, at + 1, <size_t>(end - at) - 1) == 0)


cdef bint has_head(fields):
    # Return whether the fields of a dtype begin with those of HEAD.
    return fields is not None and [fields.get(name) for name in HEAD.names] == _head_fields


cdef const uint8_t[::1] bytes_of(rows):
    # Return rows that begin with a Head as bytes. There may be millions, so C reads them, not
    # numpy.
    if rows.dtype.itemsize < sizeof(Head) or not has_head(rows.dtype.fields):
        raise TypeError(f"rows must begin with the columns {', '.join(HEAD.names)}")
    return np.ascontiguousarray(rows).view(np.uint8)


cdef object list_sizes(buffers):
    # Return the sizes of buffers as an int64 array.
    return np.array([len(buffer) for buffer in buffers], np.int64)


cdef inline bint lies_inside(const Head* row, const int64_t[::1] sizes) noexcept nogil:
    # Return whether a row is inside its buffer. sizes: those of the buffers.
    return (row.buffer < sizes.shape[0] and row.start >= 0
            and row.start <= sizes[row.buffer] - <int64_t>row.size)


def lie_inside(rows, buffers):
    """Return whether every row is inside its buffer.

    Rows may come from a user, a join or a pickle. So no pointer is formed from an unchecked row.
    Raises TypeError where the rows do not begin with the columns of HEAD.
    """
    cdef const uint8_t[::1] view
    cdef const int64_t[::1] sizes = list_sizes(buffers)
    cdef const Head* row
    cdef Py_ssize_t i, n = len(rows), stride = rows.dtype.itemsize
    cdef bint good = True
    if n == 0:
        return True
    view = bytes_of(rows)
    with nogil:
        for i in range(n):
            row = <const Head*>&view[i * stride]
            good &= lies_inside(row, sizes)
    return bool(good)


def spans(rows, at=None):
    """Return one span for each row: the bytes from the row's body to the end of its frame.

    at: uint32 array of the body's first byte in each frame; default is the column `body`.
    The result is an array of dtype HEAD. Its `parent` is the row's number.
    Raises TypeError where the rows do not begin with the columns of HEAD.
    """
    cdef Py_ssize_t i, n = len(rows), stride = rows.dtype.itemsize
    cdef const uint8_t[::1] view
    cdef const uint32_t[::1] given = None if at is None else np.ascontiguousarray(at, np.uint32)
    cdef const Head* row
    cdef Head[::1] out
    array = np.empty(n, HEAD)
    if n == 0:
        return array
    view = bytes_of(rows)
    out = array
    with nogil:
        for i in range(n):
            row = <const Head*>&view[i * stride]
            out[i] = span_body(row, row.body if given is None else given[i], <size_t>i)
    return array


def bound_counts(rows, const int32_t[:] counts, int64_t per_byte, int64_t most):
    """Return how many frames each row probably holds, from 1 to `most`, as an int64 array.

    rows: structured array that begins with the columns of HEAD. counts: int32 array, the numbers
    that the rows state. They may be forged, so none is larger than `per_byte` for each byte of its
    row.

    Raises ValueError for another number of counts, TypeError for other rows.
    """
    cdef Py_ssize_t i, n = len(rows), stride = rows.dtype.itemsize
    cdef const uint8_t[::1] view
    cdef int64_t[::1] out
    cdef int64_t largest, believed
    if counts.shape[0] != n:
        raise ValueError(f"{n} rows need as many counts, not {counts.shape[0]}")
    array = np.empty(n, np.int64)
    if n == 0:
        return array
    view = bytes_of(rows)
    out = array
    with nogil:
        for i in range(n):
            largest = min(per_byte * <int64_t>(<const Head*>&view[i * stride]).size, most)
            believed = min(<int64_t>counts[i], largest)
            out[i] = max(believed, <int64_t>1)
    return array


def find_ranges(rows, buffers):
    """Return the first byte and the end of what rows cover of each buffer.

    rows: structured array that begins with the columns of HEAD. buffers: bytes-like objects.
    The result is an int64 array of shape (buffers, 2). A buffer without rows has the largest int64
    as its first byte, and the end 0.
    Raises ValueError where a row points outside its buffer, TypeError for other rows.
    """
    cdef Py_ssize_t i, n = len(rows), stride = rows.dtype.itemsize
    cdef const int64_t[::1] sizes = list_sizes(buffers)
    cdef const uint8_t[::1] view
    cdef const Head* row
    cdef int64_t[:, ::1] first_and_end
    cdef bint good = True
    ranges = begin_ranges(len(buffers))
    if n == 0:
        return ranges
    view = bytes_of(rows)
    first_and_end = ranges
    with nogil:
        for i in range(n):
            row = <const Head*>&view[i * stride]
            good = lies_inside(row, sizes)
            if not good:
                break
            widen_range(first_and_end, row)
    if not good:
        raise ValueError(f"row {i} points outside its buffer")
    return ranges


cdef object begin_ranges(count):
    # Return the result of `find_ranges` for so many buffers without rows.
    ranges = np.zeros((count, 2), np.int64)
    ranges[:, 0] = np.iinfo(np.int64).max
    return ranges


cdef inline void widen_range(int64_t[:, ::1] ranges, const Head* row) noexcept nogil:
    # Make the range of a row's buffer cover the row.
    cdef Py_ssize_t number = row.buffer
    ranges[number, 0] = min(ranges[number, 0], row.start)
    ranges[number, 1] = max(ranges[number, 1], row.start + <int64_t>row.size)


cdef inline size_t estimate_rows(size_t size) noexcept:
    # Return how many rows to allocate first for a buffer of `size` bytes. A table of a small buffer
    # may be kept for long, so its rows take little memory. Up to 1 KiB is allocated fastest.
    return min(<size_t>FIRST_ROWS, FEWEST_ROWS + size // BYTES_PER_SMALL_ROW)


cdef object from_buffer = np.frombuffer
cdef object no_rows = b""


cdef size_t count_bytes(buffers) except? 0:
    cdef size_t total = 0
    for buffer in buffers:
        total += <size_t>len(buffer)
    return total


cdef RowBlock allocate_rows(dtype, size_t capacity, limits, into, size_t buffer_bytes):
    # Allocate rows for the frames in buffers of so many bytes together. The caller has allocated
    # `into` already, so only its size limits the rows in it.
    cdef RowBlock block = RowBlock.__new__(RowBlock)
    cdef size_t stride = dtype.itemsize
    if into is not None and not (isinstance(into, np.ndarray) and into.dtype == dtype
                                 and into.ndim == 1 and into.flags.c_contiguous
                                 and into.flags.writeable):
        raise TypeError(
            f"into must be a writable contiguous array of one dimension and of dtype {dtype}")
    max_rows = limits.limit_rows(stride, buffer_bytes) if into is None else limits.rows
    block.allocate(stride, capacity, max_rows, into)
    return block


cdef RowBlock begin_sink(RowSink sink, dtype, limits, buffers, ranges, size_t expected):
    # Begin a scan whose rows a sink takes. Return the block that the kernel fills again and again.
    #
    # A kernel that makes room with `begin_row` or `reserve_row`, and that keeps no number of a row,
    # needs nothing else. `end_sink` ends the scan. ranges, expected: as in `RowSink.begin`.
    cdef RowBlock block
    if sink.dtype != dtype:
        raise TypeError(f"the sink takes rows of dtype {sink.dtype}, and the scan has {dtype}")
    block = allocate_rows(dtype, 2 * WRITE_ROWS, limits, None, count_bytes(buffers))
    sink.begin(buffers, addresses(buffers), ranges, expected, block.rows.max_rows)
    block.rows.write = sink.write
    block.rows.sink = sink.argument
    return block


cdef int end_sink(RowSink sink, RowBlock block, Fault fault) except -1:
    # Write the last rows. fault: LIMIT where there were too many rows or the sink took no more,
    # else OK.
    with nogil:
        sink.write(sink.argument, &block.rows)
    block.rows.count = 0
    sink.end(fault)
    return 0


cdef object rows_to_array(RowBlock block, dtype, into, Fault fault):
    # Return the rows as a read-only array that keeps their memory alive; with `into`, the part of
    # it that is written.
    if block.rows.out_of_memory:
        raise MemoryError(f"no memory for more than {len(block)} rows of {block.rows.stride} bytes")
    if into is not None:
        if fault == LIMIT and len(block) == len(into):
            raise ValueError(f"into has {len(into)} rows, and there are more frames")
        array = into[:len(block)]
    elif block.rows.count:
        # numpy asks for writable memory first. A refusal costs more than the scan of a small
        # buffer. Afterwards the block refuses, so nobody can make the array writable again.
        block.is_writable = True
        array = from_buffer(block, dtype)
        block.is_writable = False
    else:
        array = from_buffer(no_rows, dtype)
    array.setflags(False)       # `write`; its name would cost as much as the call
    return array


cdef class Resume:
    """The state that the scan of one part of a stream leaves for the scan of the next part."""
    cdef Search search
    cdef uint64_t position              # of the next byte in the stream
    cdef public object memory           # of the kernel; it has a method `copy`. Or None

    def peek(self):
        """Return a Resume for a scan that only looks at the next bytes, and leaves no state."""
        cdef Resume resume = Resume()
        resume.memory = None if self.memory is None else self.memory.copy()
        return resume

    def copy(self):
        """Return a Resume of the same state, for a scan that may have to be repeated."""
        cdef Resume resume = self.peek()
        resume.search = self.search
        resume.position = self.position
        return resume

    @property
    def needed(self):
        """The minimum size of the frame that was cut at the end; 0 where it is not known."""
        return self.search.needed

    def skip_gap(self, size):
        """Skip bytes of a gap that are not scanned. The next bytes continue the gap.

        size: number of bytes, 0 or more. With 0 there is no gap: a frame begins at the next byte.
        """
        self.position += <uint64_t>size
        self.search.searched = 0
        self.search.gap = BAD_LENGTH if size else OK


cdef object scan_frames(buffer, dtype, RunScan run, bint resync, bint more, limits, into=None,
                        resume=None, void* memory=NULL):
    """Return (rows, bad, fault, position) for the frames of a buffer.

    rows: array of one row for each frame. bad: number of bad rows. fault: why the scan ended.
    position: the byte where it ended.

    resync: after a fault, go on at the next intact frame.
    more: bytes may follow, as in a stream. Where they would decide where the next frame is, the
        scan stops before a bad frame, with SHORT or a hard fault. With `resync`, a gap that does
        not end within `limits.frame` bytes becomes a row. The scan stops after that row, and
        returns the fault of the gap.
    into: array for the rows, or a RowSink that takes them: then the result has none of them. A bad
        row makes a sink fail, and may end the scan with LIMIT. The default is a new array.
    resume: the Resume of the stream, which the scan reads and updates. The buffer must begin at
        the byte where the previous scan ended, and hold all bytes that the previous scan held from
        there on. None, the default: the buffer begins a stream.
    memory: what the kernel keeps from frame to frame. The caller owns it.

    A frame that the end of the buffer cuts stops the scan with SHORT. It stops with BAD_LENGTH
    where intact frames follow, or where the frame already has more than `limits.frame` bytes.

    Raises TypeError and ValueError for an unfit `into`, MemoryError.
    """
    # A Py_buffer instead of a typed memoryview, which costs more than the scan of a small buffer.
    cdef Py_buffer view
    cdef RowBlock block
    cdef RowSink sink = None
    PyObject_GetBuffer(buffer, &view, PyBUF_ND | PyBUF_FORMAT)
    try:
        if view.ndim != 1 or view.itemsize != 1:
            raise ValueError("the buffer must be bytes in one dimension")
        if isinstance(into, RowSink):
            sink = into
            into = None
        if into is not None and np.may_share_memory(np.frombuffer(buffer, np.uint8), into):
            raise ValueError("into shares the memory that is read; give an array of its own")
        if sink is None:
            block = allocate_rows(dtype, estimate_rows(view.len), limits, into, view.len)
        else:
            # 1: the first block shows how many rows follow.
            block = begin_sink(sink, dtype, limits, (buffer,), np.array([[0, view.len]]), 1)
        return scan_bytes(<const uint8_t*>view.buf if view.len else NULL, <size_t>view.len, block,
                          dtype, run, resync, more, limits.frame, into, resume, memory, sink)
    finally:
        PyBuffer_Release(&view)


cdef object scan_bytes(const uint8_t* base, size_t size, RowBlock block, dtype, RunScan run,
                       bint resync, bint more, size_t longest, into, resume, void* memory,
                       RowSink sink):
    # Scan `size` bytes into the rows of a block. See `scan_frames`, which holds the bytes.
    cdef ScanState state
    cdef Resume before
    cdef Fault fault
    memset(&state, 0, sizeof(state))
    state.r = Reader(base, base + size)
    state.resync = resync
    state.more = more
    state.longest = longest
    state.memory = memory
    if resume is None:
        state.search.budget.origin = <uint64_t>base
    else:
        before = resume
        state.search = before.search
        state.search.budget.origin = <uint64_t>base - before.position
    state.search.budget.memory = memory
    if size < SMALL:
        fault = run(&state, &block.rows)
    else:
        with nogil:
            fault = run(&state, &block.rows)
    if resume is not None:
        before.search = state.search
        before.position += <uint64_t>(state.r.at - base)
    if sink is not None:
        end_sink(sink, block, LIMIT if fault == LIMIT else OK)
    return rows_to_array(block, dtype, into, fault), block.rows.bad, <int>fault, state.r.at - base


cdef inline void begin_span(ScanState* state, const uint8_t* base, const Head* span) noexcept nogil:
    # Forget the span before. The budget has more than 500 bytes, so it is cleared only if something
    # was charged to it: each charge raises `reached`.
    state.r = Reader(base + span.start, base + span.start + span.size)
    state.search.gap = OK
    state.search.searched = 0
    state.search.needed = 0
    if state.search.budget.reached:
        memset(&state.search.budget, 0, sizeof(SearchBudget))
    state.search.budget.origin = <uint64_t>state.r.at


cdef object scan_spans(buffers, spans, dtype, RunScan run, bint resync, limits,
                       bint more=False):
    """Return (rows, bad, faults, positions) for spans that are each scanned as a buffer of its own.

    rows: array of one row for each frame; `parent` is that of its span. bad: number of bad rows.
    faults: uint8 array, why the scan of each span ended. positions: int64 array, the byte of its
    buffer where it ended. Where the scan of a span ends with LIMIT, it is the last, and both arrays
    end there.

    spans: array of dtype HEAD. resync, more: as in `scan_frames`.
    Raises ValueError where a span is outside its buffer, MemoryError.
    """
    cdef Py_ssize_t i, n = len(spans), done = 0
    cdef const uint8_t[::1] span_bytes = np.ascontiguousarray(spans).view(np.uint8)
    cdef const Head* span
    cdef const Readable* readable
    cdef const uint8_t* base
    cdef const uint64_t[:, ::1] buffer_view
    cdef RowBlock block = allocate_rows(dtype, FIRST_ROWS, limits, None, count_bytes(buffers))
    cdef Rows* rows = &block.rows
    cdef Head* row
    cdef ScanState state
    cdef size_t first, longest = limits.frame
    cdef Fault fault = OK
    faults = np.zeros(n, np.uint8)
    positions = np.zeros(n, np.int64)
    cdef uint8_t[::1] fault_view = faults
    cdef int64_t[::1] position_view = positions
    if not lie_inside(spans, buffers):
        raise ValueError("a span points outside its buffer")
    if n:
        span = <const Head*>&span_bytes[0]
        buffer_view = addresses(buffers)
        readable = <const Readable*>&buffer_view[0, 0]
        memset(&state, 0, sizeof(state))
        state.resync = resync
        state.more = more
        state.longest = longest
        with nogil:
            for i in range(n):
                if i + PREFETCH_PARENTS < n:
                    prefetch_span(span + i + PREFETCH_PARENTS, readable)
                first = rows.count
                base = readable[span[i].buffer].at
                begin_span(&state, base, &span[i])
                fault = run(&state, rows)
                fault_view[i] = <uint8_t>fault
                position_view[i] = state.r.at - base
                while first < rows.count:
                    row = <Head*>(rows.at + first * rows.stride)
                    row.start += span[i].start
                    row.parent = span[i].parent
                    row.buffer = span[i].buffer
                    first += 1
                done = i + 1
                if fault == LIMIT or rows.out_of_memory:
                    break
    return rows_to_array(block, dtype, None, fault), block.rows.bad, faults[:done], positions[:done]


cdef class _NestedShare(Share):
    # Opens some of the spans of a NestedScan.
    cdef NestedScan nested
    cdef RunNestedScan open

    cdef void work(self) noexcept nogil:
        self.fault = self.open(&self.nested, &self.rows)
        store_fence()


cdef class _ParentsShare(Share):
    # Opens some of the rows of Parents.
    cdef Parents parents
    cdef RunParents run

    cdef void work(self) noexcept nogil:
        self.fault = self.run(&self.parents, &self.rows)
        store_fence()


cdef RowBlock allocate_shares(dtype, expected, limits, into, buffers):
    # Allocate the rows that all shares together expect, or return None where the limits or the
    # memory do not allow it. The claims of hostile bytes are no reason to fail.
    total = int(expected.sum())
    if total > limits.limit_rows(dtype.itemsize, sum(map(len, buffers))):
        return None
    try:
        return allocate_rows(dtype, total, limits, into, count_bytes(buffers))
    except MemoryError:
        return None


cdef object expect_rows(const NestedScan* nested):
    # Return an int64 array: how many rows each span is expected to have.
    cdef size_t i
    cdef int64_t rows
    cdef const Head* span
    expected = np.empty(nested.spans, np.int64)
    cdef int64_t[::1] out = expected
    for i in range(nested.spans):
        span = nested.span + i
        rows = min(<int64_t>nested.count[i], <int64_t>(span.size // SMALLEST_CHILD) + 1)
        if rows < 0:
            rows = span.size // BYTES_PER_FIRST_ROW + 1
        # One row covers a span that cannot be opened, and bytes where no frame is claimed.
        out[i] = 1 if span.fault else max(rows, <int64_t>(span.size > 0))
    return expected


cdef RowBlock open_shares(const NestedScan* nested, RunNestedScan open, spans, dtype, limits,
                          into, buffers, threads):
    # Open spans on several threads. Return None where one thread has to do it.
    cdef _NestedShare share
    cdef RowBlock block
    cdef size_t start, stop
    cuts = cut_evenly(spans["size"].astype(np.int64), threads)
    if len(cuts) == 1:
        return None
    expected = expect_rows(nested)
    block = allocate_shares(dtype, expected, limits, into, buffers)
    if block is None:
        return None
    shares = []
    for start, stop in cuts:
        share = _NestedShare()
        share.nested = nested[0]
        share.nested.span += start
        share.nested.count += start
        share.nested.spans = stop - start
        share.open = open
        shares.append(share)
    return run_shares(shares, block, [int(expected[first:end].sum()) for first, end in cuts])


# What the spans of `open_frames` have together.
cdef struct SpanSums:
    bint are_good           # each one is inside its buffer, and belongs to a row of the outer table
    int64_t claimed         # children, as far as their bytes can hold them
    int64_t usual           # rows for frames of usual size
    int64_t bytes


cdef SpanSums examine_spans(const Head* span, const int32_t[::1] counts, int64_t parents,
                            const int64_t[::1] sizes, int64_t[:, ::1] ranges) noexcept:
    # parents: the number of rows in the outer table. sizes: those of the buffers. ranges: becomes
    # what `find_ranges` returns, unless it is None. A claim never allocates more rows than there
    # are bytes.
    cdef SpanSums sums = SpanSums(True, 0, FIRST_ROWS, 0)
    cdef bint has_ranges = ranges is not None
    cdef Py_ssize_t i
    for i in range(counts.shape[0]):
        if not (0 <= span[i].parent < parents and lies_inside(&span[i], sizes)):
            sums.are_good = False
            break
        if has_ranges:
            widen_range(ranges, &span[i])
        sums.claimed += min(max(counts[i], 1), <int64_t>(span[i].size // SMALLEST_CHILD) + 1)
        sums.usual += span[i].size // BYTES_PER_FIRST_ROW
        sums.bytes += span[i].size
    return sums


cdef object open_frames(outer, buffers, spans, counts, dtype, RunNestedScan open, ReadRun run,
                        VerifyFrame verify, limits, into=None, RowSink sink=None,
                        ReadColumns columns=NULL, values=(), sums=()):
    """Return (rows, bad, fault) for the frames inside spans.

    rows: array of one row for each frame. bad: number of bad rows. fault: LIMIT where there were
    more frames than the limits allow, else OK.

    outer: rows of the table that is opened.
    buffers: bytes-like objects; `buffer` of a span is a number of one of them.
    spans: array of dtype HEAD: start, size and buffer of the bytes to read; as `parent` the row of
        `outer` that they belong to; and a fault where the span cannot be opened. Then one bad row
        covers it.
    counts: int32 array of the number of children that each span claims; ANY or SOME where it claims
        none.
    verify: called for each row of `outer` that is opened, which must be inside its buffer.
    into: array for the rows; default is a new one.
    sink: RowSink, which takes the rows: then the result has none of them.
    columns: reads frames into the columns of a sink, if it writes all that are wanted.
    values, sums: the names of the columns that `columns` writes, and of those that it adds up, in
        the order of `ColumnTargets`.

    Several threads open many bytes, as `parallel.choose_threads` says. The result does not depend
    on their number.

    Raises ValueError where a span is outside its buffer or names no row of `outer`, and where a row
    that is verified is outside its buffer; TypeError and ValueError for an unfit `into`;
    MemoryError. After an error the sink takes no other scan.
    """
    cdef Py_ssize_t n = len(spans)
    cdef const uint8_t[::1] outer_bytes, span_bytes
    cdef const Head* span
    cdef const int32_t[::1] count_view
    cdef const uint64_t[:, ::1] buffer_view
    cdef RowBlock block
    cdef NestedScan nested
    cdef SpanSums summed
    cdef size_t expected
    cdef Fault fault = OK
    if spans.dtype != HEAD or len(counts) != n:
        raise ValueError(
            "spans and counts must be arrays of equal length, of dtypes HEAD and int32")
    count_view = np.ascontiguousarray(counts, np.int32)
    span_bytes = np.ascontiguousarray(spans).view(np.uint8)
    span = <const Head*>&span_bytes[0] if n else NULL
    ranges = None if sink is None else begin_ranges(len(buffers))
    summed = examine_spans(span, count_view, len(outer), list_sizes(buffers), ranges)
    if not summed.are_good:
        raise ValueError("a row points outside its buffer or its table")
    if into is not None and any(
            np.may_share_memory(np.frombuffer(buffer, np.uint8), into) for buffer in buffers):
        raise ValueError("into shares the memory that is read; give an array of its own")
    memset(&nested, 0, sizeof(nested))
    if n:
        buffer_view = addresses(buffers)
        outer_bytes = np.ascontiguousarray(outer).view(np.uint8)
        nested = NestedScan(
            span, &count_view[0], n, <const char*>&outer_bytes[0], outer.dtype.itemsize,
            <const Readable*>&buffer_view[0, 0], <size_t>len(buffers), run, verify,
            sink is None and summed.claimed * dtype.itemsize >= BYPASS_BYTES, NULL, NULL)
    # Claims are only a hint: beyond the number for frames of usual size, rows grow as frames are
    # read.
    expected = min(summed.claimed, summed.usual)
    if sink is not None:
        block = begin_sink(sink, dtype, limits, buffers, ranges, expected)
        if columns is not NULL and sink.choose_targets(values, sums):
            nested.columns = columns
            nested.write_columns = sink.write_columns
    else:
        block = None
        threads = choose_threads(summed.bytes) if n > 1 else 1
        if threads > 1:
            block = open_shares(&nested, open, spans, dtype, limits, into, buffers, threads)
        if block is not None:
            return rows_to_array(block, dtype, into, OK), block.rows.bad, OK
        block = allocate_rows(dtype, expected + 1, limits, into, count_bytes(buffers))
    if n:
        with nogil:
            fault = open(&nested, &block.rows)
            store_fence()
    if fault == BAD_LENGTH:
        raise ValueError("a row points outside its buffer or its table")
    if sink is not None:
        end_sink(sink, block, fault)
    return rows_to_array(block, dtype, into, fault), block.rows.bad, <int>fault


cdef object open_rows(outer, buffers, dtype, size_t expected, RunParents run, const void* context,
                      limits, counts=None):
    """Return (rows, bad, fault) for the rows that `run` adds for all rows of `outer`.

    rows: array of dtype. bad: number of bad rows. fault: LIMIT where there were more rows than the
    limits allow, else OK.

    outer: rows of the table that is opened, in the dtype that `run` expects. buffers: bytes-like
    objects, which these rows point into.
    expected: the number of rows to allocate first. It is an estimate: rows grow as they are added.
    context: what the kernel gets for each row.
    counts: integer array, the number of rows that are expected inside each row of `outer`. With it,
    several threads open many bytes, as `parallel.choose_threads` says. Give it only if no row has
    the number of another row of the same table.

    Raises ValueError where a row points outside its buffer, MemoryError.
    """
    cdef const uint8_t[::1] view
    cdef const uint64_t[:, ::1] buffer_view
    cdef Parents parents
    cdef Fault fault = OK
    cdef RowBlock block = None
    memset(&parents, 0, sizeof(parents))
    parents.count = len(outer)
    parents.stride = outer.dtype.itemsize
    parents.buffer_count = len(buffers)
    parents.context = context
    if parents.count:
        view = bytes_of(outer)
        parents.rows = <const char*>&view[0]
        if parents.buffer_count:
            buffer_view = addresses(buffers)
            parents.buffers = <const Readable*>&buffer_view[0, 0]
    if counts is not None and parents.count > 1:
        threads = choose_threads(sum(map(len, buffers)))
        if threads > 1:
            block = add_shares(&parents, run, outer, counts, dtype, limits, buffers, threads)
    if block is None:
        block = allocate_rows(dtype, expected, limits, None, count_bytes(buffers))
        with nogil:
            fault = run(&parents, &block.rows)
    if fault == BAD_LENGTH:
        raise ValueError(f"row {parents.opened} points outside its buffer")
    return rows_to_array(block, dtype, None, fault), block.rows.bad, <int>fault


cdef RowBlock add_shares(const Parents* parents, RunParents run, outer, counts, dtype, limits,
                         buffers, threads):
    # Add the rows inside `parents` on several threads. Return None where one thread has to do it.
    cdef _ParentsShare share
    cdef RowBlock block
    cdef size_t start, stop
    sizes = outer["size"].astype(np.int64)
    cuts = cut_evenly(sizes, threads)
    if len(cuts) == 1:
        return None
    expected = np.minimum(np.maximum(counts, outer["fault"] != 0), sizes).astype(np.int64)
    block = allocate_shares(dtype, expected, limits, None, buffers)
    if block is None:
        return None
    shares = []
    for start, stop in cuts:
        share = _ParentsShare()
        share.parents = parents[0]
        share.parents.rows += start * parents.stride
        share.parents.opened = start
        share.parents.count = stop
        share.run = run
        shares.append(share)
    return run_shares(shares, block, [int(expected[first:end].sum()) for first, end in cuts])
