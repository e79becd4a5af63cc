# Memory for arrays that grow with the capture.
cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #ifdef __linux__
    #include <sys/mman.h>
    #endif

    /* Return memory of `bytes` bytes with the content of that at `at`, as realloc does. Large
     * memory has huge pages: the first access to a small one costs more than what is stored. */
    static inline void* wirescan_resize_memory(void* at, size_t bytes) {
        void* memory = realloc(at, bytes);
    #if defined(__linux__) && defined(MADV_HUGEPAGE)
        const uintptr_t page = (uintptr_t)1 << 21;
        uintptr_t start = ((uintptr_t)memory + page - 1) & ~(page - 1);
        uintptr_t end = ((uintptr_t)memory + bytes) & ~(page - 1);
        if (memory && start < end)
            madvise((void*)start, end - start, MADV_HUGEPAGE); /* advice: a failure is harmless */
    #endif
        return memory;
    }
    """
    void* resize_memory "wirescan_resize_memory"(void* at, size_t bytes) noexcept nogil
