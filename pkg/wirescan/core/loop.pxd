# The loop over frames, in three forms. `scan_buffer` scans a buffer. `scan_children` and `add_each`
# open the frames inside the rows of a table.
#
# All are inline. A protocol package passes its kernels and gets a loop that is compiled around
# them. `scan_frames`, `open_frames` and `open_rows` call it. A kernel of `scan_children` reads one
# of the frames that are one after another in a row. A kernel of `add_each` is an `AddRows`: it adds
# all rows inside one row with `begin_row` and `place`. Other kernels have a loop of their own and
# use `allocate_rows`, `rows_to_array`, `begin_sink` and `end_sink`.
#     cdef Fault run(ScanState* state, Rows* rows) noexcept nogil:
#         return scan_buffer(state, rows, sizeof(Frame), read_frame, probe_frame)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from wirescan.core.fault cimport (
    BAD_COUNT, BAD_LENGTH, FILLER, Fault, LIMIT, NOT_A_FRAME, OK, SHORT, TRUNCATED, ZEROS)
from wirescan.core.reader cimport Reader, ViewMask, clear_row, prefetch, rarely
from wirescan.core.rows cimport RowBlock, Rows, WriteRows, begin_row, grow_rows

# The columns that every frame table begins with.
cdef struct Head:
    int64_t  start          # byte position of the frame in its buffer
    uint32_t size           # bytes in the whole frame
    uint32_t body           # bytes from `start` to the payload
    int32_t  parent         # row of the enclosing frame in the outer table, or -1
    uint16_t buffer         # number of the table's buffer that holds the frame
    uint8_t  kind           # the protocol's own small number
    uint8_t  fault          # 0, or why this frame is bad

# Number of children of a parent that does not state one. ANY: as many as its bytes hold, perhaps
# none. SOME: at least one.
cpdef enum:
    ANY = -1
    SOME = -2

cdef enum:
    PREFETCH_PARENTS = 8    # rows between the one that is opened and the one that is prefetched
    BYTES_AHEAD = 1024      # from the end of a frame to the bytes that are prefetched
    TINY_FRAME = 160        # up to this usual size in bytes, processors prefetch by themselves
    LARGE_FRAME = 2048      # from this usual size on, only the bytes around a start are prefetched

cdef enum:
    BUDGET_BUCKETS = 65     # one for each number of bits that a size can have
    WORK_PER_BYTE = 4       # bytes of work that each byte of the stream allows
    FREE_BYTES = 1 << 20    # bytes of work that are always allowed

# The work spent on candidates that turn out not to be frames. `measure_allowance` bounds it by a
# multiple of `reached`. So the cost is linear, and it does not depend on the size of the chunks.
#
# Sizes of each power of two have a bucket of their own. So a few headers that claim large sizes
# leave enough for the small ones.
cdef struct SearchBudget:
    uint64_t origin                     # address of the first byte of the stream, modulo 2 ** 64
    uint64_t reached                    # bytes of the stream up to the farthest candidate's end
    uint64_t verified[BUDGET_BUCKETS]   # bytes that probes read, by the number of bits of each size
    uint64_t walked                     # bytes of candidates that were walked and are no frames
    const void* memory                  # that of the ScanState: a probe may read it

# Where a kernel reads: in an outermost scan, or inside a row of a table that is opened.
cdef struct Context:
    SearchBudget* budget    # of an outermost scan; NULL inside a row
    bint bytes_follow       # in an outermost scan: bytes follow those that a frame may have
    const void* parent      # the row that is opened; NULL in an outermost scan
    void* memory            # of an outermost scan: what earlier frames say of the next ones

# Read the frame at `r` into `row`, and leave `r` after the frame.
#
# `row` comes zeroed and begins with a Head. A frame without a length prefix must be walked to find
# its end: `may_walk` and `charge_walk` bound the work spent on candidates that turn out not to be
# frames. They charge the budget of the context.
#
# Return OK or a soft fault, with `r` after the frame. Return SHORT or a larger fault where the end
# of the frame is not known. With SHORT, the row's `size` may be the minimum size of the frame, and
# its `fault` may say why these bytes are no frame unless more bytes follow. Its `start` may be the
# number of first bytes that are whole parts of the frame, such as the elements of an array: where
# the bytes end inside the frame, no other frame is searched for in them. With OK, a `fault` in the
# row says that the content of the frame cannot be read, although its length is right.
#
# The `memory` of the context is the protocol's own. A kernel changes it only with a frame that it
# returns as OK, because the scan of the next chunk reads a cut frame again.
ctypedef Fault (*ReadFrame)(Reader* r, void* row, const Context* context) noexcept nogil

# Return how far away from `at` the nearest possible start of a frame is, in bytes. 0: a frame may
# start at `at`. UNDECIDED: this depends on bytes after `end`. LIKELY: a frame starts at `at`,
# unless following bytes show that none does.
#
# By default the probe asks whether the header looks usual. With `deep` it verifies everything that
# can be verified, however unusual the header looks. Where a candidate ends after `end`, the result
# is UNDECIDED. Otherwise the probe charges the candidate's bytes to `budget` by `charge_budget`.
# Where the charge is refused, there is no frame. A format may have no probe (NULL): then the scan
# finds no frame after a hard fault.
ctypedef size_t (*ResyncProbe)(const uint8_t* at, const uint8_t* end, bint deep,
                               SearchBudget* budget) noexcept nogil

# A whole buffer.
cdef struct Readable:
    const uint8_t* at
    const uint8_t* end

# What a ReadRun or a ReadColumns keeps from one call to the next one of a scan. The numbers are the
# kernel's own, and 0 at first. The results must not depend on them.
cdef struct RunMemory:
    size_t most
    size_t left

# Optional, for speed: read at most `max_rows` frames of the commonest kind, the children of `span`,
# and write their whole rows, including Head. `buffer` holds all bytes that may be read around them.
# Return the number of rows. Leave `r` at the first frame that is of another kind or looks bad:
# ReadFrame decides on that frame. `ahead`: there is a VerifyFrame, so prefetch the next span.
# `bypass`: write the rows with stores that bypass the caches.
ctypedef size_t (*ReadRun)(Reader* r, char* rows, size_t max_rows, const void* parent,
                           const Readable* buffer, const Head* span, bint ahead, bint bypass,
                           RunMemory* memory) noexcept nogil

# Where a ReadColumns writes. The protocol package numbers its columns. The pointers are to the
# values of the first frame, and NULL for a column that is not wanted. Several calls, also for
# several parents, write into the same targets: they add to `nulls`, `sums` and `kept_count`.
cdef enum:
    MOST_TARGETS = 8

cdef struct ColumnTargets:
    char* values[MOST_TARGETS]      # of numbers, or the views of byte strings
    const ViewMask* masks[MOST_TARGETS]     # of views
    uint32_t nulls[MOST_TARGETS]    # of byte strings: not 0 if one of them is null
    uint64_t sums[MOST_TARGETS]     # of numbers: what they add up to
    const uint8_t* low              # a view has the distance of its bytes from this address
    uint32_t window                 # and this number of a buffer
    char* kept                      # whole rows, of the frames that have a list: the first one
    int64_t* kept_numbers           # and their numbers
    size_t kept_count
    int64_t number                  # of the first frame
    size_t count                    # of the frames written: the next one goes after them

# Optional, for speed: as a ReadRun, but write columns instead of rows, after the `targets.count`
# frames that are there. `max_rows` is at least 1. The view of a null has the size -1. Return the
# number of frames, which the caller adds to `targets.count`.
ctypedef size_t (*ReadColumns)(Reader* r, ColumnTargets* targets, size_t max_rows,
                               const void* parent, const Readable* buffer, const Head* span,
                               bint ahead, RunMemory* memory) noexcept nogil

# Optional: verify the parent itself, for example its checksum. This is called once, when the parent
# is opened, with its row and the buffer that holds it.
ctypedef Fault (*VerifyFrame)(const void* parent, const Readable* buffer) noexcept nogil

# Optional: correct the rows of a parent when all its children are read, where they depend on the
# last child. Return the number of rows that became bad. Rows that a ReadRun reads are final.
ctypedef size_t (*CloseFrame)(const void* parent, char* rows, size_t count) noexcept nogil

# Optional: take frames as columns. The arguments after `read` are those of `read`. Return the
# number of frames, 0 where the next one has to become a row.
ctypedef size_t (*WriteColumns)(void* sink, ReadColumns read, Reader* r, size_t max_rows,
                                const void* parent, const Readable* buffer, const Head* span,
                                bint ahead, RunMemory* memory) noexcept nogil

cdef enum:
    WRITE_ROWS = 128        # a WriteRows gets at least so many rows, but for the last ones
    LOOK = 64               # bytes that are enough to recognise the header of a frame

cdef extern from *:
    """
    #define UNDECIDED ((size_t)-1)
    #define LIKELY ((size_t)-2)
    """
    const size_t UNDECIDED
    const size_t LIKELY


cdef inline const uint8_t* find_probe_end(const uint8_t* at, const uint8_t* end,
                                          size_t longest) noexcept nogil:
    # Return the end of the bytes that decide whether an intact frame begins at `at`: the longest
    # frame, and the bytes after it that a probe may read.
    return at + longest + LOOK if <size_t>(end - at) > longest + LOOK else end


cdef inline size_t resolve_undecided(size_t away, const uint8_t* at, const uint8_t* end,
                                     size_t longest, bint more) noexcept nogil:
    # Return the result of a deep probe at `at` as a distance. It remains UNDECIDED only where
    # bytes after `end` decide. Otherwise UNDECIDED means no frame, and LIKELY means a frame.
    if away != UNDECIDED and away != LIKELY:
        return away
    if more and <size_t>(end - at) < longest + LOOK:
        return UNDECIDED
    return 0 if away == LIKELY else 1


cdef inline uint64_t measure_allowance(const SearchBudget* budget) noexcept nogil:
    # Return the bytes of work that each bucket, and all walks together, may have cost so far.
    return FREE_BYTES + WORK_PER_BYTE * budget.reached


cdef inline void extend_reach(SearchBudget* budget, const uint8_t* at,
                              uint64_t size) noexcept nogil:
    # Note that a candidate of `size` bytes begins at `at`. They must all be in the buffer.
    budget.reached = max(budget.reached, <uint64_t>at + size - budget.origin)


cdef inline bint charge_budget(SearchBudget* budget, const uint8_t* at,
                               uint64_t size) noexcept nogil:
    # Return whether the `size` bytes from `at` on may be verified, and if so charge them. They
    # must all be in the buffer.
    cdef uint64_t rest = size
    cdef size_t bucket = 0
    while rest:
        rest >>= 1
        bucket += 1
    extend_reach(budget, at, size)
    if budget.verified[bucket] + size > measure_allowance(budget):
        return False
    budget.verified[bucket] += size
    return True


cdef inline bint may_walk(SearchBudget* budget, const uint8_t* at) noexcept nogil:
    # Return whether a candidate at `at` may be walked.
    extend_reach(budget, at, 0)
    return budget.walked <= measure_allowance(budget)


cdef inline void charge_walk(SearchBudget* budget, const uint8_t* at,
                             uint64_t size) noexcept nogil:
    # Charge the `size` bytes from `at` on, which were walked and are no frame.
    extend_reach(budget, at, size)
    budget.walked += size


# The state of the search for intact frames at the byte where a scan starts or stops.
cdef struct Search:
    Fault gap               # the fault of the gap that continues at that byte, or OK
    size_t searched         # bytes from that byte on at which no intact frame begins
    size_t needed           # minimum size of the frame that is cut there; 0 where it is not known
    SearchBudget budget

# A buffer to scan from its first byte.
cdef struct ScanState:
    Reader r                # afterwards at the byte where the scan stopped
    bint resync             # after a fault, go on at the next intact frame
    bint more               # bytes may follow: leave open what they could decide
    size_t longest          # maximum bytes in a frame
    Search search           # as the scan of the preceding bytes left it; afterwards as this one did
    void* memory            # of the kernel, for its Context; or NULL

# Frames to open. spans: their number. span, count: arrays with one entry for each: a Head (with
# place, parent and fault), and the number of children that it claims.
cdef struct NestedScan:
    const Head* span
    const int32_t* count
    size_t spans
    const char* parents
    size_t parent_stride
    const Readable* buffers
    size_t buffer_count
    ReadRun run             # or NULL
    VerifyFrame verify      # or NULL
    bint bypass             # there will be more rows than the caches hold
    ReadColumns columns     # or NULL
    WriteColumns write_columns  # not NULL where `columns` is not

# Add the rows inside one row of a table. `frame` is the first byte of that row's frame, which is
# whole, and `number` is the row's number. Places in the row may be outside its frame, because rows
# may come from a user: see `is_inside`. `context` is the argument of `open_rows`.
#
# Return OK; LIMIT where the rows are full; or BAD_LENGTH where a place is outside the frame.
ctypedef Fault (*AddRows)(Rows* rows, const void* row, const uint8_t* frame, int32_t number,
                          const void* context) noexcept nogil

# Rows to open one after another.
cdef struct Parents:
    const char* rows
    size_t stride
    size_t count
    size_t opened           # afterwards: number of rows that were opened
    const Readable* buffers
    size_t buffer_count
    const void* context

ctypedef Fault (*RunParents)(Parents* parents, Rows* rows) noexcept nogil
ctypedef Fault (*RunScan)(ScanState* state, Rows* rows) noexcept nogil
ctypedef Fault (*RunNestedScan)(const NestedScan* nested, Rows* rows) noexcept nogil

# Takes the rows of a scan, block by block, so that no table of them is made. See `begin_sink`.
cdef class RowSink:
    cdef WriteRows write
    cdef WriteColumns write_columns
    cdef void* argument             # of both
    cdef object dtype               # of the rows
    # Note the columns that a ReadColumns writes, and those that it adds up, in the order of
    # ColumnTargets: their names. Return whether these are all that are wanted.
    cdef bint choose_targets(self, values, sums) except -1
    # Begin a scan of buffers. readable: their `addresses`. ranges: int64 array of shape (n, 2), the
    # first byte and the end of what is used of each buffer. expected: the probable number of rows.
    cdef int begin(self, buffers, const uint64_t[:, ::1] readable, ranges, size_t expected,
                   size_t max_rows) except -1
    # End the scan. fault: LIMIT where there were more than `max_rows` rows, else OK.
    cdef int end(self, Fault fault) except -1

# These are defined in loop.pyx.
cdef RowBlock allocate_rows(dtype, size_t capacity, limits, into, size_t buffer_bytes)
cdef RowBlock begin_sink(RowSink sink, dtype, limits, buffers, ranges, size_t expected)
cdef int end_sink(RowSink sink, RowBlock block, Fault fault) except -1
cdef size_t count_bytes(buffers) except? 0
cdef object rows_to_array(RowBlock block, dtype, into, Fault fault)
cdef object scan_frames(buffer, dtype, RunScan run, bint resync, bint more, limits, into=*,
                        resume=*, void* memory=*)
cdef object scan_spans(buffers, spans, dtype, RunScan run, bint resync, limits, bint more=*)
cdef object open_frames(outer, buffers, spans, counts, dtype, RunNestedScan open, ReadRun run,
                        VerifyFrame verify, limits, into=*, RowSink sink=*,
                        ReadColumns columns=*, values=*, sums=*)

cdef object open_rows(outer, buffers, dtype, size_t expected, RunParents run, const void* context,
                      limits, counts=*)

cdef bint find_intact_frame(ResyncProbe probe, const uint8_t** position, const uint8_t* last,
                            const uint8_t* end, size_t longest, bint more,
                            SearchBudget* budget) noexcept nogil
cdef bint all_zero(const uint8_t* at, const uint8_t* end) noexcept nogil


cdef inline void place(Head* row, const uint8_t* base, const uint8_t* start, const uint8_t* end,
                       int32_t parent, uint16_t buffer, uint8_t fault) noexcept nogil:
    # Fill the Head of a row for the frame from `start` to `end` in the buffer at `base`.
    row.start = start - base
    row.size = <uint32_t>(end - start)
    row.parent = parent
    row.buffer = buffer
    row.fault = fault


cdef inline const uint8_t* locate_frame(const Head* head, const Readable* buffers,
                                        size_t count) noexcept nogil:
    # Return the first byte of a row's frame, or NULL where the frame is outside the buffers.
    # Rows may come from a user, so they are validated.
    cdef const Readable* buffer
    if head.buffer >= count:
        return NULL
    buffer = buffers + head.buffer
    if (head.start < 0 or head.start > buffer.end - buffer.at
            or head.size > buffer.end - buffer.at - head.start):
        return NULL
    return buffer.at + head.start


cdef inline Head span_body(const Head* row, uint32_t body, size_t number) noexcept nogil:
    # Return the span from a row's body to the end of its frame. `number` is the row's.
    return Head(<int64_t>(<uint64_t>row.start + body), row.size - body if row.size > body else 0,
                0, <int32_t>number, row.buffer, 0, row.fault)


cdef inline void prefetch_frame(const Head* head, const Readable* buffers,
                                size_t count) noexcept nogil:
    # Prefetch the first bytes of a row's frame.
    cdef const uint8_t* frame = locate_frame(head, buffers, count)
    if frame is not NULL:
        prefetch(frame)
        prefetch(frame + 64)


cdef inline void prefetch_span(const Head* span, const Readable* buffers) noexcept nogil:
    # Prefetch the first bytes of a span and its last one. Where spans are small, processors do not
    # predict where the next ones are.
    cdef const uint8_t* start = buffers[span.buffer].at + span.start
    prefetch(start)
    prefetch(start + 64)
    prefetch(start + span.size - 1)


cdef inline bint is_inside(const Head* head, uint32_t at, int32_t size) noexcept nogil:
    # Return whether a place is inside its frame.
    return <uint64_t>at + <uint64_t>max(size, 0) <= head.size


cdef inline int64_t prefetch_ahead(const uint8_t* next, int64_t usual, int64_t size) noexcept nogil:
    # Prefetch the starts of later frames, and return the updated usual size of a frame. Processors
    # do not predict where they are, unless frames are tiny.
    #
    # Large frames are mostly of one size, so the second one after `next` starts near the prefetched
    # address. Smaller frames start anywhere, so all bytes are prefetched. The number of prefetches
    # depends on the usual size: a loop whose length changes with each frame costs more.
    cdef const uint8_t* expected
    cdef int64_t i
    usual += (size - usual) >> 3
    if usual > LARGE_FRAME:
        expected = next + 2 * usual
        prefetch(expected - 128)
        prefetch(expected - 64)
        prefetch(expected)
        prefetch(expected + 64)
    elif usual > TINY_FRAME:
        expected = next + BYTES_AHEAD
        prefetch(expected)
        prefetch(expected + 64)
        for i in range(128, usual + (usual >> 1), 64):      # some frames are larger
            prefetch(expected + i)
    return usual


# The progress of `scan_buffer`. No function keeps its address, so the compiler holds the members in
# registers.
cdef struct Progress:
    const uint8_t* base     # first byte of the buffer
    const uint8_t* end
    const uint8_t* start    # of the frame or the gap that is read
    const uint8_t* next     # no intact frame begins in the searched bytes before it
    size_t longest          # maximum bytes in a frame
    uint64_t walked         # by the budget, before `start` was read
    int64_t usual           # usual size of a frame: see `prefetch_ahead`
    Fault gap               # the fault of the gap that continues at the next byte, or OK
    Fault ended             # why the scan stops after the current row, or OK
    Fault fault             # of the current row, or why the scan stops before it

# What follows after a bad frame.
cdef enum Recovery:
    ADD_ROW                 # the row is the bad frame, or a gap
    READ_AGAIN              # the gap ended before `start`, where an intact frame begins
    STOP                    # the scan stops before the bad frame


cdef inline void begin_scan(Progress* scan, const ScanState* state) noexcept nogil:
    # Begin where the scan of the preceding bytes stopped.
    scan.base = state.r.at
    scan.end = state.r.end
    scan.next = min(scan.base + state.search.searched, scan.end)
    scan.longest = state.longest
    scan.usual = 0
    scan.gap = state.search.gap
    scan.ended = OK
    scan.fault = OK


cdef inline Fault end_scan(const Progress* scan, ScanState* state,
                           const uint8_t* at) noexcept nogil:
    # Leave the state for the next scan, which begins at `at`. Return why this one ended.
    state.r.at = at
    state.search.gap = scan.ended if scan.ended else scan.gap
    state.search.searched = <size_t>(scan.next - at) if scan.next > at else 0
    return scan.ended if scan.ended else scan.fault


cdef inline Head* claim_row(Rows* rows, size_t stride, const Progress* scan) noexcept nogil:
    # Return the next row, zeroed, or NULL at the limit and where the memory could not grow.
    #
    # Expect as many rows per byte as so far, and a tenth more, so that rows seldom move twice.
    cdef char* row
    cdef double expected
    if rarely(rows.count == rows.capacity):
        expected = (1.1 * <double>rows.count * <double>(scan.end - scan.start)
                    / <double>(scan.start - scan.base + 1))
        if (rows.count >= rows.max_rows
                or not grow_rows(rows, rows.count + 64 + <size_t>expected)):
            return NULL
    row = rows.at + rows.count * stride
    clear_row(row, stride)
    return <Head*>row


cdef inline Fault read_next(const Progress* scan, Reader* r, Head* row, ReadFrame read,
                            Context* context, bint more) noexcept nogil:
    # Read the frame at `start` into its row, at most `longest` bytes of it. Return its fault.
    cdef size_t available = <size_t>(scan.end - scan.start)
    cdef Fault fault
    context.bytes_follow = available > scan.longest
    r.end = scan.start + scan.longest if rarely(context.bytes_follow) else scan.end
    fault = read(r, row, context)
    r.end = scan.end
    if fault < SHORT and r.at == scan.start:
        return NOT_A_FRAME                      # each turn must consume at least one byte
    if (fault == SHORT or fault == FILLER) and max(available, <size_t>row.size) > scan.longest:
        return BAD_LENGTH
    if fault == SHORT and row.fault and not more:
        return <Fault>row.fault
    return fault


cdef inline bint search_frame(Progress* scan, ScanState* state, const uint8_t* last,
                              ResyncProbe probe) noexcept nogil:
    # Return whether an intact frame begins from `next` to `last`. See `find_intact_frame`.
    cdef const uint8_t* next = scan.next        # a copy: the address of a member is not passed on
    cdef bint found = find_intact_frame(probe, &next, last, scan.end, scan.longest, state.more,
                                        &state.search.budget)
    scan.next = next
    return found


cdef inline Recovery recover_hard(Progress* scan, ScanState* state, Reader* r, Head* row,
                                  size_t stride, ResyncProbe probe) noexcept nogil:
    # The end of the frame is not known: search for the nearest intact frame. The bytes before it
    # are a gap, which is one bad row.
    cdef const uint8_t* start = scan.start
    cdef bint found = False
    r.at = start
    if scan.fault == ZEROS:
        if all_zero(start, scan.end):
            return STOP
        scan.fault = BAD_LENGTH
    scan.next = max(scan.next, start if scan.gap else start + 1)
    if probe is NULL:
        scan.next = scan.end
    elif state.resync if scan.fault >= BAD_LENGTH else not state.more:
        if scan.fault == SHORT:
            scan.next = max(scan.next, start + row.start)
        found = search_frame(scan, state, scan.end, probe)
    if scan.fault < BAD_LENGTH:                 # the frame is cut, unless intact frames follow
        if not found:
            return STOP
        scan.fault = BAD_LENGTH
    if not state.resync:
        return STOP
    if found and scan.next == start:
        scan.gap = OK
        return READ_AGAIN
    if not found and state.more:
        if <size_t>(scan.end - start) <= scan.longest or scan.next == start:
            return STOP
        scan.ended = scan.fault
    clear_row(row, stride)                      # the kernel may have written columns of a non-frame
    scan.gap = OK
    r.at = scan.next
    if scan.next - start >= <int64_t>1 << 32:
        r.at = start + (<int64_t>1 << 32) - 1
        scan.gap = scan.fault
    return ADD_ROW


cdef inline size_t probe_next_frame(const uint8_t* at, const Progress* scan, ScanState* state,
                                    ResyncProbe probe) noexcept nogil:
    # Return 0 where a usual header or an intact frame begins at `at`. See `resolve_undecided`.
    cdef const uint8_t* stop = find_probe_end(at, scan.end, scan.longest)
    cdef size_t away = probe(at, stop, False, &state.search.budget)
    if away == UNDECIDED:                       # a header that the end of the bytes cuts is usual
        away = LIKELY
    elif away:
        away = probe(at, stop, True, &state.search.budget)
    return resolve_undecided(away, at, scan.end, scan.longest, state.more)


cdef inline Recovery recover_soft(Progress* scan, ScanState* state, Reader* r, Head* row,
                                  ResyncProbe probe) noexcept nogil:
    # The end of the frame is known, but its length may be the damaged field. The next frame must
    # look like one. Otherwise the row reaches to the nearest intact frame, if that is within
    # `longest` bytes.
    cdef const uint8_t* start = scan.start
    cdef const uint8_t* last
    cdef size_t away = 0
    cdef bint found
    if state.more and scan.end - r.at < LOOK:
        r.at = start
        scan.fault = SHORT
        return STOP
    if r.at < scan.end:
        away = probe_next_frame(r.at, scan, state, probe)
    if away:
        last = scan.end
        if <size_t>(scan.end - start) > scan.longest:
            last = start + scan.longest
        scan.next = max(scan.next, start + 1)
        found = away != UNDECIDED and search_frame(scan, state, last, probe)
        if found:
            r.at = scan.next
            row.body = min(row.body, <uint32_t>(scan.next - start))
        elif state.more and (away == UNDECIDED or scan.next <= last):
            r.at = start
            scan.fault = BAD_LENGTH
            return STOP
    return ADD_ROW


cdef inline Recovery recover(Progress* scan, ScanState* state, Reader* r, Head* row, size_t stride,
                             ResyncProbe probe) noexcept nogil:
    # Find the end of the bad frame or of the gap at `start`, and leave `r` there. Where the scan
    # stops before a bad frame that following bytes may decide, restore the search as it was at
    # `start`, because the next scan repeats it.
    cdef const uint8_t* next_before = scan.next
    cdef SearchBudget budget_before
    cdef Recovery recovery = ADD_ROW
    if state.more:
        budget_before = state.search.budget
        budget_before.walked = scan.walked
    if scan.fault >= SHORT:
        recovery = recover_hard(scan, state, r, row, stride, probe)
    elif probe is not NULL and state.resync:
        recovery = recover_soft(scan, state, r, row, probe)
    if recovery == STOP and state.more:
        scan.next = next_before
        state.search.budget = budget_before
    return recovery


cdef inline void add_row(Progress* scan, const uint8_t* stop, Rows* rows,
                         Head* row) noexcept nogil:
    # Complete the row of the frame or the gap from `start` to `stop`, and count it.
    cdef Fault fault = scan.fault if scan.fault else <Fault>row.fault
    place(row, scan.base, scan.start, stop, -1, 0, <uint8_t>fault)
    scan.usual = prefetch_ahead(stop, scan.usual, row.size)
    rows.count += 1
    rows.bad += fault != OK
    scan.fault = OK


cdef inline Fault scan_buffer(ScanState* state, Rows* rows, size_t stride, ReadFrame read,
                              ResyncProbe probe) noexcept nogil:
    # Fill rows until the bytes end or the scan must stop.
    #
    # Where a frame is bad, its length may be the damaged field. A frame that seems to be cut is bad
    # where intact frames follow. With `resync` the next frame must look like a frame. Otherwise the
    # scan searches for the nearest intact frame, and the bytes before it are a gap: one bad row. A
    # row covers less than 4 GiB, so a longer gap is several rows. Where the end of the bad frame is
    # known, that row has at most `longest` bytes: after that many bytes without an intact frame, it
    # is the bad frame alone.
    #
    # A fixed number of bytes decides on each frame: `longest` to read it, and those of
    # `find_intact_frame`. Where `more` bytes may follow and decide, the scan stops before the bad
    # frame. It does so only where at most 2 * `longest` + LOOK bytes are left, so a stream has to
    # hold little more. A gap that already has more than `longest` bytes becomes a row, and the scan
    # stops after it.
    cdef Reader r = state.r
    cdef Context context = Context(&state.search.budget, False, NULL, state.memory)
    cdef Progress scan
    cdef Recovery recovery
    cdef Head* row
    begin_scan(&scan, state)
    state.search.needed = 0
    while r.at < scan.end and not scan.ended:
        scan.start = r.at
        row = claim_row(rows, stride, &scan)
        if row is NULL:
            scan.fault = LIMIT
            break
        scan.walked = state.search.budget.walked
        scan.fault = scan.gap
        if not scan.gap:
            scan.fault = read_next(&scan, &r, row, read, &context, state.more)
        if rarely(scan.fault != OK):
            recovery = recover(&scan, state, &r, row, stride, probe)
            if recovery == STOP:
                state.search.needed = row.size if scan.fault <= FILLER else 0
                break
            if recovery == READ_AGAIN:
                continue
        add_row(&scan, r.at, rows, row)
    return end_scan(&scan, state, r.at)


# What follows after the row of a child.
cdef enum ChildStep:
    NEXT_CHILD
    LAST_CHILD
    ROWS_FULL               # at the limit, or without memory for another row


cdef inline ChildStep add_child(const NestedScan* nested, Rows* rows, size_t stride, Reader* r,
                                ReadFrame read, const Context* context, const Head* span,
                                Fault refused, int64_t* children_left) noexcept nogil:
    # Read the next child of a span into a row, if there is one. `refused`: why the parent is not
    # opened, or OK.
    cdef const uint8_t* start = r.at
    cdef Fault fault = refused
    cdef char* row
    if not refused and start < r.end:
        fault = BAD_COUNT if children_left[0] == 0 else OK  # bytes are left after the last child
    elif not refused:
        if children_left[0] == 0 or children_left[0] == ANY:
            return LAST_CHILD
        fault = BAD_COUNT                                   # children are missing: an empty row
    row = <char*>begin_row(rows, stride)
    if row is NULL:
        return ROWS_FULL
    if fault == OK:
        fault = read(r, row, context)
        if fault >= SHORT or r.at == start:
            fault = TRUNCATED
            r.at = r.end
            clear_row(row, stride)
        children_left[0] = children_left[0] - 1 if children_left[0] > 0 else ANY
    else:
        r.at = r.end
    place(<Head*>row, nested.buffers[span.buffer].at, start, r.at, span.parent, span.buffer,
          <uint8_t>fault)
    rows.count += 1
    if fault:
        rows.bad += 1
        if r.at == r.end:
            children_left[0] = 0                            # one bad row reports all missing ones
    return LAST_CHILD if refused else NEXT_CHILD


cdef inline Fault scan_children(const NestedScan* nested, Rows* rows, size_t stride, ReadFrame read,
                                CloseFrame close) noexcept nogil:
    # Fill rows with the children of every span.
    #
    # Inside a frame no fault is hard: where the end of a child is not known, one bad row covers the
    # rest of its parent. A bad parent is not opened: one bad row covers it.
    #
    # With a WriteRows, the rows are only a block that is filled again and again. `close` needs all
    # rows of a parent. So this loop writes them itself: as `rows.write` is NULL, the block grows.
    #
    # Return OK; LIMIT where the rows are full; or BAD_LENGTH where a parent that is verified is
    # outside its buffer.
    cdef const Head* span = nested.span
    cdef const Readable* buffer
    cdef const Head* parent
    cdef Context context = Context(NULL, False, NULL, NULL)
    cdef RunMemory memory = RunMemory(0, 0)
    cdef Reader r
    cdef Fault refused
    cdef ChildStep step
    cdef size_t i, first, count
    cdef int64_t children_left
    cdef WriteRows write = rows.write
    rows.write = NULL
    for i in range(nested.spans):
        if i + PREFETCH_PARENTS < nested.spans:
            prefetch_span(span + PREFETCH_PARENTS, nested.buffers)
        buffer = nested.buffers + span.buffer
        parent = <const Head*>(nested.parents + <size_t>span.parent * nested.parent_stride)
        context.parent = parent
        r = Reader(buffer.at + span.start, buffer.at + span.start + span.size)
        refused = <Fault>span.fault
        if not refused and nested.verify is not NULL:
            if locate_frame(parent, nested.buffers, nested.buffer_count) is NULL:
                return BAD_LENGTH
            refused = nested.verify(parent, nested.buffers + parent.buffer)
        first = rows.count
        children_left = nested.count[i]
        step = NEXT_CHILD
        while step == NEXT_CHILD:
            # Columns keep the order of the frames, so they are written only while no rows wait. The
            # frames after one that had to become a row are probably like it.
            if (nested.columns is not NULL and not refused and children_left > 0
                    and not rows.count):
                count = nested.write_columns(
                    rows.sink, nested.columns, &r, <size_t>children_left, parent, buffer, span,
                    nested.verify is not NULL, &memory)
                children_left -= <int64_t>count
                if count:
                    continue
            if nested.run is not NULL and not refused and children_left > 0:
                count = nested.run(&r, rows.at + rows.count * stride,
                                   min(rows.capacity - rows.count, <size_t>children_left), parent,
                                   buffer, span, nested.verify is not NULL, nested.bypass, &memory)
                rows.count += count
                children_left -= <int64_t>count
                if write is not NULL and rows.count >= WRITE_ROWS:
                    if not write(rows.sink, rows):
                        return OK
                    first = 0
                    if count:
                        continue
            step = add_child(nested, rows, stride, &r, read, &context, span, refused,
                             &children_left)
            if step == ROWS_FULL:
                return LIMIT
        if close is not NULL and not refused:
            rows.bad += close(parent, rows.at + first * stride, rows.count - first)
        if write is not NULL and rows.count >= WRITE_ROWS:
            if not write(rows.sink, rows):
                return OK
        span += 1
    return OK


cdef inline Fault add_each(Parents* parents, Rows* rows, AddRows add) noexcept nogil:
    # Add the rows inside each of the parents.
    #
    # Return OK; LIMIT where the rows are full; or BAD_LENGTH where a parent, or a place in it, is
    # outside its buffer.
    cdef Parents all = parents[0]           # so that the compiler keeps it in registers
    cdef const Head* row = <const Head*>all.rows
    cdef const uint8_t* frame
    cdef Fault fault = OK
    while parents.opened < all.count:
        if parents.opened + PREFETCH_PARENTS < all.count:
            prefetch_frame(<const Head*>(<const char*>row + PREFETCH_PARENTS * all.stride),
                           all.buffers, all.buffer_count)
        frame = locate_frame(row, all.buffers, all.buffer_count)
        if frame is NULL:
            return BAD_LENGTH
        fault = add(rows, row, frame, <int32_t>parents.opened, all.context)
        if fault:
            return fault
        row = <const Head*>(<const char*>row + all.stride)
        parents.opened += 1
    return OK
