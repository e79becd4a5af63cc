"""Memory for rows and other output: grown in C without the GIL, then exported to numpy."""
import numpy as np

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer)
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdlib.h>
    #include <string.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #include <sys/resource.h>
    #include <unistd.h>
    #endif
    #if defined(__linux__) && defined(MADV_HUGEPAGE) && defined(MADV_FREE) \
        && defined(MREMAP_FIXED) && !defined(__SANITIZE_ADDRESS__)
    /* A fresh row costs more in page faults than in parsing. So large blocks use huge pages, and
     * the blocks freed last are kept for the next scan. They are marked with MADV_FREE: the
     * system takes their pages back when memory is short. A kept block begins with its size. No
     * block is kept where the address space is limited (RLIMIT_AS).
     *
     * Large blocks are mappings of their own, which begin at a huge page. To grow, a block is
     * copied to a kept one. If none fits, its pages move to a larger mapping, so that its bytes
     * are not there twice. */
    enum { HUGE_PAGE = 1 << 21, LARGE = HUGE_PAGE, SLOTS = 16 };
    static const size_t MOST_KEPT = (size_t)1 << 29;    /* bytes of all kept blocks, about */
    static void* wirescan_kept[SLOTS];
    static size_t wirescan_kept_bytes;

    static void* wirescan_swap(int slot, void* block) {
        return __atomic_exchange_n(&wirescan_kept[slot], block, __ATOMIC_ACQ_REL);
    }

    static void wirescan_drop(void* block) {
        if (!block)
            return;
        __atomic_sub_fetch(&wirescan_kept_bytes, *(size_t*)block, __ATOMIC_RELAXED);
        munmap(block, *(size_t*)block);
    }

    static void wirescan_drop_all(void) {
        for (int i = 0; i < SLOTS; i++)
            wirescan_drop(wirescan_swap(i, NULL));
    }

    static void* wirescan_map_once(size_t bytes, int protection) {
        size_t page = (size_t)getpagesize();
        char *start, *block, *stop, *end;
        if (bytes > SIZE_MAX / 2)
            return NULL;
        bytes = (bytes + page - 1) / page * page;
        start = mmap(NULL, bytes + HUGE_PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED)
            return NULL;
        end = start + bytes + HUGE_PAGE;
        block = start + (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
        stop = block + bytes;
        if (block > start)
            munmap(start, block - start);
        if (end > stop)
            munmap(stop, end - stop);
        return block;
    }

    static void* wirescan_map(size_t bytes, int protection) {
        void* block = wirescan_map_once(bytes, protection);
        if (block)
            return block;
        wirescan_drop_all();                        /* out of memory: try again without them */
        return wirescan_map_once(bytes, protection);
    }

    static void* wirescan_take(size_t* bytes) {
        for (int i = 0; i < SLOTS; i++) {
            void* block = wirescan_swap(i, NULL);
            size_t size;
            if (!block)
                continue;
            size = *(size_t*)block;
            if (size >= *bytes && size / 4 <= *bytes) {
                __atomic_sub_fetch(&wirescan_kept_bytes, size, __ATOMIC_RELAXED);
                *bytes = size;
                return block;
            }
            /* The size does not fit: put the block back. */
            wirescan_drop(wirescan_swap(i, block));
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
        block = wirescan_map(*bytes, PROT_READ | PROT_WRITE);
        if (block)
            madvise(block, *bytes, MADV_HUGEPAGE);    /* only advice: a failure is harmless */
        return block;
    }

    static void wirescan_rows_free(void* block, size_t bytes) {
        struct rlimit space;
        if (bytes < LARGE) {
            free(block);
            return;
        }
        if (bytes > MOST_KEPT / 2 || getrlimit(RLIMIT_AS, &space)
                || space.rlim_cur != RLIM_INFINITY) {
            munmap(block, bytes);
            return;
        }
        madvise(block, bytes / HUGE_PAGE * HUGE_PAGE, MADV_FREE);
        /* The system does not take a page that is written after MADV_FREE. */
        *(size_t*)block = bytes;
        __atomic_add_fetch(&wirescan_kept_bytes, bytes, __ATOMIC_RELAXED);
        /* The newest block moves into the first slot, and the oldest are freed. */
        for (int i = 0; i < SLOTS && block; i++)
            block = wirescan_swap(i, block);
        wirescan_drop(block);
        for (int i = SLOTS - 1; i >= 0; i--) {
            if (__atomic_load_n(&wirescan_kept_bytes, __ATOMIC_RELAXED) <= MOST_KEPT)
                break;
            wirescan_drop(wirescan_swap(i, NULL));
        }
    }

    static void* wirescan_move(void* block, size_t old_bytes, size_t bytes) {
        void *target, *grown;
        grown = mremap(block, old_bytes, bytes, 0);
        if (grown != MAP_FAILED)
            return grown;
        /* The addresses behind the block are used. A huge page moves as a whole only to the place
         * of another huge page, so such addresses are reserved first. */
        target = wirescan_map(bytes, PROT_NONE);
        if (!target)
            return NULL;
        grown = mremap(block, old_bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, target);
        if (grown != MAP_FAILED)
            return grown;
        /* A failed move may have unmapped the target, and another thread may have mapped it since.
         * So the reservation remains: it takes addresses, but no memory. */
        return NULL;
    }

    static void* wirescan_rows_grow(void* block, size_t used, size_t old_bytes, size_t* bytes) {
        void* grown;
        if (*bytes < LARGE)
            return realloc(block, *bytes);
        if (old_bytes < LARGE) {
            grown = wirescan_rows_alloc(bytes);
        } else {
            grown = wirescan_take(bytes);           /* its pages are there already */
            if (!grown)
                return wirescan_move(block, old_bytes, *bytes);
        }
        if (grown) {
            memcpy(grown, block, used);
            wirescan_rows_free(block, old_bytes);
        }
        return grown;
    }
    #else
    static void* wirescan_rows_alloc(size_t* bytes) {
        return malloc(*bytes ? *bytes : 1);
    }

    static void* wirescan_rows_grow(void* block, size_t used, size_t old_bytes, size_t* bytes) {
        (void)used;
        (void)old_bytes;
        return realloc(block, *bytes);
    }

    static void wirescan_rows_free(void* block, size_t bytes) {
        (void)bytes;
        free(block);
    }
    #endif
    """
    # May allocate more than `bytes`, and sets `bytes` to the size of the block.
    void* wirescan_rows_alloc(size_t* bytes) noexcept nogil
    # Returns a larger block of at least `bytes` bytes in place of one of `old_bytes`, with its
    # first `used` bytes. Sets `bytes` as above. NULL: out of memory, and the block is unchanged.
    void* wirescan_rows_grow(
        void* block, size_t used, size_t old_bytes, size_t* bytes) noexcept nogil
    void wirescan_rows_free(void* block, size_t bytes) noexcept nogil


cdef char* allocate_memory(size_t* bytes) noexcept nogil:
    return <char*>wirescan_rows_alloc(bytes)


cdef void free_memory(char* memory, size_t bytes) noexcept nogil:
    if memory is not NULL:
        wirescan_rows_free(memory, bytes)


cdef Block adopt_memory(char* memory, size_t bytes, size_t size):
    cdef Block block = Block.__new__(Block, 0)
    free_memory(block.at, block.bytes)
    block.at = memory
    block.bytes = bytes
    block.size = <Py_ssize_t>size
    return block


cdef bint grow_rows(Rows* rows, size_t capacity) noexcept nogil:
    cdef char* block = NULL
    cdef size_t bytes = 0, least
    cdef bint is_own = rows.at is not NULL and not rows.lent
    if rows.write is not NULL and rows.count:
        return rows.write(rows.sink, rows)
    capacity = min(capacity, rows.max_rows)
    if rows.fixed or capacity <= rows.capacity:
        return capacity <= rows.capacity
    while True:
        if capacity <= (<size_t>-1 >> 1) // rows.stride:
            bytes = capacity * rows.stride
            if is_own:
                block = <char*>wirescan_rows_grow(
                    rows.at, rows.count * rows.stride, rows.bytes, &bytes)
            else:
                block = <char*>wirescan_rows_alloc(&bytes)
        least = min(rows.count + rows.count // 2 + 64, rows.max_rows)
        if block is not NULL or capacity <= least:
            break
        # The caller's number is an estimate, which may be far too large.
        capacity = least
        if is_own and capacity <= rows.capacity:
            return True             # the block is unchanged, and has room for so many rows
    if block is NULL:
        rows.out_of_memory = True
        return False
    if rows.lent:
        memcpy(block, rows.at, rows.count * rows.stride)
    rows.lent = False
    rows.at = block
    rows.bytes = bytes
    rows.capacity = min(bytes // rows.stride, rows.max_rows)
    return True


cdef class RowBlock:
    """Memory for rows of `stride` bytes: RowBlock(stride, capacity, max_rows, into=None).

    `capacity` rows fit at first, and there are never more than `max_rows`. With `into`, a writable
    contiguous buffer, the rows are written there and the block cannot grow. Through the buffer
    protocol the block exports its written rows as read-only bytes.

    Raises MemoryError where the first `capacity` rows cannot be allocated.
    """
    def __init__(self, size_t stride, size_t capacity, size_t max_rows, into=None):
        self.allocate(stride, capacity, max_rows, into)

    cdef int allocate(self, size_t stride, size_t capacity, size_t max_rows, into) except -1:
        # What `__init__` does. A call in C costs less than one with Python arguments.
        cdef uint8_t[::1] view
        if self.rows.stride:
            raise ValueError("a block is allocated only once")
        self.rows = Rows(NULL, 0, stride, 0, 0, max_rows, 0, False, False, False, NULL, NULL)
        if into is None:
            if not grow_rows(&self.rows, max(<size_t>1, min(capacity, max_rows))):
                raise MemoryError(f"no memory for {capacity} rows of {stride} bytes")
        else:
            view = memoryview(into).cast("B")
            self.rows.capacity = min(<size_t>view.shape[0] // stride, max_rows)
            self.rows.at = <char*>&view[0] if view.shape[0] else NULL
            self.rows.fixed = True
            self.owner = view
        return 0

    def __dealloc__(self):
        if not self.rows.fixed and self.rows.at is not NULL:
            wirescan_rows_free(self.rows.at, self.rows.bytes)

    def __len__(self):
        return self.rows.count

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef Py_ssize_t size = <Py_ssize_t>(self.rows.count * self.rows.stride)
        PyBuffer_FillInfo(view, self, self.rows.at, size, not self.is_writable, flags)


cdef class Block:
    """Writable memory of `size` bytes: Block(size).

    The bytes are not zeroed and may have been used before. Read only what was written.
    Raises ValueError for a negative size, MemoryError.
    """
    def __cinit__(self, Py_ssize_t size):
        if size < 0:
            raise ValueError(f"the size of a block must be at least 0 bytes, not {size}")
        self.size = size
        self.bytes = <size_t>size
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


def addresses(buffers):
    """Return the start and the end of each buffer in memory, as a uint64 array of shape (n, 2).

    The layout is that of `Readable`. The caller keeps the buffers alive.
    """
    cdef Py_buffer view
    cdef Py_ssize_t i, n = len(buffers)
    pairs = np.empty((n, 2), np.uint64)
    cdef uint64_t[:, ::1] pair = pairs
    for i in range(n):
        PyObject_GetBuffer(buffers[i], &view, PyBUF_SIMPLE)
        pair[i, 0] = <uint64_t>view.buf
        pair[i, 1] = <uint64_t>view.buf + <uint64_t>view.len
        PyBuffer_Release(&view)
    return pairs
