"""Where rows are written: one block of memory, grown in C without the GIL and then lent to numpy."""
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdlib.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #include <sys/resource.h>
    #endif
    #if defined(__linux__) && defined(MADV_HUGEPAGE) && defined(MADV_FREE) && !defined(__SANITIZE_ADDRESS__)
    /* A fresh row costs more in page faults than in parsing. So large blocks lie on huge pages, and the last ones that
     * were freed are kept for the next scan, on loan from the system: under pressure it takes the pages back
     * (MADV_FREE). A kept block begins with its size. Nothing is kept where address space is rationed. */
    enum { HUGE_PAGE = 1 << 21, LARGE = HUGE_PAGE, LARGEST_KEPT = 1 << 28, SLOTS = 4 };
    static void* wirescan_kept[SLOTS];

    static void* wirescan_take(size_t* bytes) {
        for (int i = 0; i < SLOTS; i++) {
            void* block = __atomic_exchange_n(&wirescan_kept[i], NULL, __ATOMIC_ACQ_REL);
            size_t size;
            if (!block)
                continue;
            size = *(size_t*)block;
            if (size >= *bytes && size / 4 <= *bytes) {
                *bytes = size;
                return block;
            }
            free(__atomic_exchange_n(&wirescan_kept[i], block, __ATOMIC_ACQ_REL));     /* of another size: back */
        }
        return NULL;
    }

    static void* wirescan_rows_alloc(size_t* bytes) {
        void* block;
        if (*bytes < LARGE)
            return malloc(*bytes ? *bytes : 1);
        block = wirescan_take(bytes);
        if (block)
            return block;
        if (*bytes > SIZE_MAX - HUGE_PAGE)
            return NULL;
        if (posix_memalign(&block, HUGE_PAGE, *bytes)) {
            for (int i = 0; i < SLOTS; i++)           /* no room: what is kept for nothing goes first */
                free(__atomic_exchange_n(&wirescan_kept[i], NULL, __ATOMIC_ACQ_REL));
            if (posix_memalign(&block, HUGE_PAGE, *bytes))
                return NULL;
        }
        madvise(block, *bytes, MADV_HUGEPAGE);        /* advice: a refusal changes nothing */
        return block;
    }

    static void wirescan_rows_free(void* block, size_t bytes) {
        struct rlimit space;
        if (bytes >= LARGE && bytes <= LARGEST_KEPT
                && !getrlimit(RLIMIT_AS, &space) && space.rlim_cur == RLIM_INFINITY) {
            madvise(block, bytes / HUGE_PAGE * HUGE_PAGE, MADV_FREE);
            *(size_t*)block = bytes;                  /* a page written since is not taken */
            for (int i = 0; i < SLOTS && block; i++)  /* the latest first; the oldest falls out */
                block = __atomic_exchange_n(&wirescan_kept[i], block, __ATOMIC_ACQ_REL);
        }
        free(block);
    }
    #else
    static void* wirescan_rows_alloc(size_t* bytes) {
        return malloc(*bytes ? *bytes : 1);
    }

    static void wirescan_rows_free(void* block, size_t bytes) {
        (void)bytes;
        free(block);
    }
    #endif
    """
    void* wirescan_rows_alloc(size_t* bytes) noexcept nogil     # may give more than was asked for, and says so
    void wirescan_rows_free(void* block, size_t bytes) noexcept nogil


cdef bint grow_rows(Rows* rows, size_t room) noexcept nogil:
    cdef char* block = NULL
    cdef size_t bytes, least
    room = min(room, rows.most)
    if rows.fixed or room <= rows.room:
        return room <= rows.room
    while True:
        if room <= (<size_t>-1 >> 1) // rows.stride:
            bytes = room * rows.stride
            block = <char*>wirescan_rows_alloc(&bytes)
        least = min(rows.count + rows.count // 2 + 64, rows.most)
        if block is not NULL or room <= least:
            break
        room = least                    # what is asked for is an estimate, perhaps a bad one
    if block is NULL:
        rows.out_of_memory = True
        return False
    if rows.at is not NULL:
        memcpy(block, rows.at, rows.count * rows.stride)
        wirescan_rows_free(rows.at, rows.bytes)
    rows.at, rows.bytes = block, bytes
    rows.room = min(bytes // rows.stride, rows.most)
    return True


cdef class RowBlock:
    """RowBlock(stride, room, most, into=None): room for rows of `stride` bytes, never more than `most`.

    With `into`, a writable contiguous buffer, the rows are written there and the block cannot grow.
    Through the buffer protocol the block shows its written rows as read-only bytes.
    """
    def __cinit__(self, size_t stride, size_t room, size_t most, into=None):
        cdef uint8_t[::1] given
        self.rows = Rows(NULL, 0, stride, 0, 0, most, 0, False, False)
        if into is None:
            if not grow_rows(&self.rows, max(<size_t>1, min(room, most))):
                raise MemoryError(f"no memory for {room} rows of {stride} bytes")
        else:
            given = memoryview(into).cast("B")
            self.rows.room = min(<size_t>given.shape[0] // stride, most)
            self.rows.at = <char*>&given[0] if given.shape[0] else NULL
            self.rows.fixed, self.owner = True, given

    def __dealloc__(self):
        if not self.rows.fixed and self.rows.at is not NULL:
            wirescan_rows_free(self.rows.at, self.rows.bytes)

    def __len__(self):
        return self.rows.count

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.rows.at, <Py_ssize_t>(self.rows.count * self.rows.stride), 1, flags)


cdef class Block:
    """Block(size): that many writable bytes, not zeroed: perhaps used before. Read only what was written."""
    def __cinit__(self, Py_ssize_t size):
        if size < 0:
            raise ValueError(f"a block of {size} bytes")
        self.size, self.bytes = size, <size_t>size
        self.at = <char*>wirescan_rows_alloc(&self.bytes)
        if self.at is NULL:
            raise MemoryError(f"no memory for {size} bytes")

    def __dealloc__(self):
        if self.at is not NULL:
            wirescan_rows_free(self.at, self.bytes)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.at, self.size, 0, flags)
