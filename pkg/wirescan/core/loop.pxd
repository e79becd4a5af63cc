# The one loop over frames, in its two forms: `scan_top` over a buffer, `open_all` inside the frames of a table.
#
# They are inline, so that a room that passes its kernels gets a loop of its own, compiled around them:
#     cdef Fault run(Top* top, Rows* rows) noexcept nogil:
#         return scan_top(top, rows, sizeof(Frame), read_frame, intact_frame)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset
from wirescan.core.fault cimport (
    BAD_COUNT, BAD_LENGTH, Fault, LIMIT, NOT_A_FRAME, OK, SHORT, TRUNCATED, ZEROS)
from wirescan.core.reader cimport Reader, prefetch
from wirescan.core.rows cimport RowBlock, Rows, grow_rows

# The columns that every frame table begins with.
cdef struct Head:
    int64_t  start          # where the frame begins in its buffer
    uint32_t size           # bytes in the whole frame
    uint32_t body           # bytes from `start` to the payload
    int32_t  parent         # row of the enclosing frame in the table opened, or -1
    uint16_t buffer         # which of the table's buffers holds it
    uint8_t  kind           # the protocol's own small enumeration
    uint8_t  fault          # 0, or why this frame is bad

# How many children a parent claims, where it does not say: as many as there are bytes for, or at least one.
cpdef enum:
    ANY = -1
    SOME = -2

# Read the frame at r into row and leave r after it. `row` comes zeroed and begins with a Head; `parent` is the row being
# opened, or at the top an int64_t: the bytes that a scan may still read in vain, for frames that have no length and are
# found to be none only behind much that was read. Return OK or a soft fault with r after the frame, or anything from
# SHORT on where the frame's end is not known; with SHORT, `size` may say how large it is at the least. OK with a `fault`
# in the row: what is in the frame cannot be read, but nothing makes its length doubtful.
ctypedef Fault (*ReadFrame)(Reader* r, void* row, const void* parent) noexcept nogil

# How far from `at` is the nearest place where a frame may begin? 0: one begins here; else none does for as many bytes;
# UNDECIDED: only the bytes behind `end` tell; LIKELY: one does, if no bytes follow that tell better. By whether its
# header looks usual; or (`deep`) by everything that can be verified, however unusual it looks: then the bytes read are
# asked of `afford`, and if refused there is no frame. NULL: nothing tells, and behind a hard fault no frame is found.
ctypedef size_t (*IntactFrame)(const uint8_t* at, const uint8_t* end, bint deep, int64_t* budget) noexcept nogil

# A whole buffer.
cdef struct Readable:
    const uint8_t* at
    const uint8_t* end

# Optional, for speed: read frames of the commonest kind and write their rows whole, Head and all, at most `most`
# of them, the children of `span`; `buffer` is all that can be read around them. Return how many; leave r at the first
# frame that is of another kind or looks bad: ReadFrame decides on it. `ahead`: it is worth the while to prefetch the
# next span, since its bytes are needed at once, to be verified. `past`: write the rows past the caches.
ctypedef size_t (*ReadRun)(Reader* r, char* rows, size_t most, const void* parent, const Readable* buffer,
                           const Head* span, bint ahead, bint past) noexcept nogil

# Optional: is the parent itself good? Asked once, when it is opened, of the row and the buffer that it lies in.
ctypedef Fault (*VerifyFrame)(const void* parent, const Readable* buffer) noexcept nogil

# All children of a parent are read: mend what only the last of them tells. Return how many turned bad.
ctypedef size_t (*CloseFrame)(const void* parent, char* rows, size_t count) noexcept nogil

cdef enum:
    LOOK = 64               # so many bytes tell whether they look like the header of a frame
    PURSES = 65             # of a budget

cdef extern from *:
    """
    #define UNDECIDED ((size_t)-1)
    #define LIKELY ((size_t)-2)
    """
    const size_t UNDECIDED
    const size_t LIKELY


cdef inline size_t decided(size_t away, bint more) noexcept nogil:
    return away if away != LIKELY else UNDECIDED if more else 0


cdef inline bint afford(int64_t* budget, uint64_t size) noexcept nogil:
    # Whether so many bytes may still be verified. Sizes of each power of two have a purse of their own, so that a few
    # headers that claim much leave those that claim little what they need.
    cdef uint64_t rest = size
    while rest:
        rest >>= 1
        budget += 1
    budget[0] -= <int64_t>size
    return budget[0] >= 0


# A buffer to scan from its first byte.
cdef struct Top:
    Reader r                # left where the scan stopped
    bint resync             # after a fault, go on at the next intact frame
    bint more               # bytes may follow: what they could decide stays open
    size_t longest          # bytes that a frame may have

# Frames to open: `spans` many, each a Head (place, parent, fault) and the number of children that it claims.
cdef struct Opening:
    const Head* span
    const int32_t* count
    size_t spans
    const char* parents
    size_t parent_stride
    const Readable* buffers
    ReadRun run             # or NULL
    VerifyFrame verify      # or NULL
    bint past               # there will be more rows than the caches hold

ctypedef Fault (*RunTop)(Top* top, Rows* rows) noexcept nogil
ctypedef Fault (*RunOpening)(const Opening* opening, Rows* rows) noexcept nogil

cdef RowBlock block_for(dtype, size_t room, limits, into)
cdef object lend(RowBlock block, dtype, into, Fault fault)
cdef object scan_frames(buffer, dtype, RunTop run, bint resync, bint more, limits, into=*)
cdef object scan_spans(buffers, spans, dtype, RunTop run, bint resync, limits)
cdef object open_frames(outer, buffers, spans, counts, dtype, RunOpening open, ReadRun run, VerifyFrame verify, limits,
                        into=*)

cdef const uint8_t* next_intact(IntactFrame intact, const uint8_t* at, const uint8_t* end, bint more,
                                int64_t* budget) noexcept nogil
cdef bint all_zero(const uint8_t* at, const uint8_t* end) noexcept nogil


cdef inline void place(Head* row, const uint8_t* base, const uint8_t* start, const uint8_t* end,
                       int32_t parent, uint16_t buffer, uint8_t fault) noexcept nogil:
    row.start, row.size = start - base, <uint32_t>(end - start)
    row.parent, row.buffer, row.fault = parent, buffer, fault


cdef inline int64_t foresee(const uint8_t* next, int64_t usual, int64_t size) noexcept nogil:
    # Prefetch a frame to come, by the usual size of a frame; return that, brought up to date. No processor foresees
    # where large frames begin. They are mostly alike: two frames behind the next begins near the place asked for here.
    cdef const uint8_t* there
    usual += (size - usual) >> 3
    if usual > 2048:
        there = next + 2 * usual
        prefetch(there - 128)
        prefetch(there - 64)
        prefetch(there)
        prefetch(there + 64)
    return usual


cdef inline Fault scan_top(Top* top, Rows* rows, size_t stride, ReadFrame read, IntactFrame intact) noexcept nogil:
    # Fill rows until the bytes end or the scan has to stop.
    #
    # Where a frame is bad, its length may be what was damaged: a frame that seems to be cut is bad where intact ones
    # follow. With `resync` the next frame has to look like one; if it does not, the nearest intact frame is searched
    # for, and the bytes before it are a gap: one bad row. A row spans less than 4 GiB; a longer gap is several. Where
    # `more` may follow and would decide where the next frame is, the scan stops before the bad frame.
    cdef Reader r = top.r
    cdef const uint8_t* base = r.at
    cdef const uint8_t* start
    cdef const uint8_t* found
    cdef int64_t budget[PURSES]
    cdef int64_t vain = 4 * <int64_t>(r.end - r.at) + (1 << 20)
    cdef size_t away
    cdef int purse
    cdef bint search = intact is not NULL   # until a search finds nothing: then nothing intact lies ahead
    cdef Head* row
    cdef int64_t usual = 0
    cdef Fault fault = OK
    for purse in range(PURSES):
        budget[purse] = 4 * <int64_t>(r.end - r.at) + (1 << 20)
    while r.at < r.end:
        start = r.at
        if rows.count == rows.room:
            # As dense as so far, and a tenth more: rows are seldom moved twice.
            if rows.count >= rows.most or not grow_rows(rows, rows.count + 64 + <size_t>(
                    1.1 * <double>rows.count * <double>(r.end - start) / <double>(start - base + 1))):
                fault = LIMIT
                break
        row = <Head*>(rows.at + rows.count * stride)
        memset(row, 0, stride)
        fault = read(&r, row, &vain)
        if fault < SHORT and r.at == start:
            fault = NOT_A_FRAME                 # every turn consumes a byte
        if fault == SHORT and max(<size_t>(r.end - start), <size_t>row.size) > top.longest:
            fault = BAD_LENGTH
        if fault < SHORT and <size_t>(r.at - start) > top.longest:
            fault = BAD_LENGTH
        if fault >= SHORT:
            r.at = start
            if fault == ZEROS:
                if all_zero(start, r.end):
                    break
                fault = BAD_LENGTH
            found = NULL
            if search and (top.resync if fault >= BAD_LENGTH else not top.more):
                found = next_intact(intact, start + 1, r.end, top.more, budget)
                search = found is not NULL
            if fault < BAD_LENGTH:              # cut, unless intact frames follow
                if found is NULL:
                    break
                fault = BAD_LENGTH
            if not top.resync or (found is NULL and top.more):
                break
            if found is NULL:
                found = r.end
            memset(row, 0, stride)              # whatever the kernel wrote, it was not a frame
            r.at = found if found - start < <int64_t>1 << 32 else start + (<int64_t>1 << 32) - 1
        elif fault and search and top.resync:
            if top.more and r.end - r.at < LOOK:
                r.at = start
                fault = SHORT
                break
            away = intact(r.at, r.end, False, budget) if r.at < r.end else 0
            if away == UNDECIDED:
                away = away if top.more else 0
            elif away:
                away = decided(intact(r.at, r.end, True, budget), top.more)
                away = 1 if away == UNDECIDED and not top.more else away
            if away:
                found = NULL
                if away != UNDECIDED:
                    found = next_intact(intact, start + 1, r.end, top.more, budget)
                if found is NULL and top.more:
                    r.at = start
                    fault = BAD_LENGTH
                    break
                if found is NULL:
                    search = False
                else:
                    r.at = found
                    row.body = min(row.body, <uint32_t>(found - start))
        fault = fault if fault else <Fault>row.fault
        place(row, base, start, r.at, -1, 0, <uint8_t>fault)
        usual = foresee(r.at, usual, row.size)
        rows.count += 1
        rows.bad += fault != OK
        fault = OK
    top.r = r
    return fault


cdef inline Fault open_all(const Opening* opening, Rows* rows, size_t stride, ReadFrame read,
                           CloseFrame close) noexcept nogil:
    # Fill rows with the children of every span.
    #
    # Inside a frame nothing is hard: where a child has no end, one bad row covers the rest of its parent. A
    # parent that is bad itself is not opened; one bad row covers it.
    cdef const Head* span = opening.span
    cdef const Readable* buffer
    cdef const uint8_t* start
    cdef const Head* parent
    cdef char* row
    cdef Reader r
    cdef Fault fault, refused
    cdef size_t i, first, count
    cdef int64_t owed
    for i in range(opening.spans):
        buffer = opening.buffers + span.buffer
        parent = <const Head*>(opening.parents + <size_t>span.parent * opening.parent_stride)
        r = Reader(buffer.at + span.start, buffer.at + span.start + span.size)
        refused = <Fault>span.fault
        if not refused and opening.verify is not NULL:
            refused = opening.verify(parent, opening.buffers + parent.buffer)
        first = rows.count
        owed = opening.count[i]
        while True:
            if opening.run is not NULL and not refused and owed > 0:
                count = opening.run(&r, rows.at + rows.count * stride,
                                    min(rows.room - rows.count, <size_t>owed), parent, buffer, span,
                                    opening.verify is not NULL, opening.past)
                rows.count += count
                owed -= <int64_t>count
            start = r.at
            if refused:
                fault = refused
            elif start < r.end:
                fault = BAD_COUNT if owed == 0 else OK      # bytes are left after the last child
            elif owed == 0 or owed == ANY:
                break
            else:
                fault = BAD_COUNT                           # children are missing: a row of no bytes says so
            if rows.count == rows.room:
                if rows.count >= rows.most or not grow_rows(rows, rows.room + (rows.room >> 1) + 64):
                    return LIMIT
            row = rows.at + rows.count * stride
            memset(row, 0, stride)
            if fault == OK:
                fault = read(&r, row, parent)
                if fault >= SHORT or r.at == start:
                    fault = TRUNCATED
                    r.at = r.end
                    memset(row, 0, stride)
                owed = owed - 1 if owed > 0 else ANY
            else:
                r.at = r.end
            place(<Head*>row, buffer.at, start, r.at, span.parent, span.buffer, <uint8_t>fault)
            rows.count += 1
            if fault:
                rows.bad += 1
                if refused:
                    break
                if r.at == r.end:
                    owed = 0                                # one bad row tells of all that is missing
        if close is not NULL and not refused:
            rows.bad += close(parent, rows.at + first * stride, rows.count - first)
        span += 1
    return OK
