/* Large memory with huge pages. */
#ifndef WIRESCAN_GROW_MEMORY_H
#define WIRESCAN_GROW_MEMORY_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

/* Ask for huge pages, if there are at least HUGE_FROM bytes: the first write to a small page costs a
 * fault, which takes longer than the write. */
static inline void use_huge_pages(void* memory, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    enum { HUGE_FROM = 1 << 22 };
    if (memory && bytes >= HUGE_FROM) {
        /* Whole pages, so that usually the whole mapping has the same advice: realloc copies a
         * mapping of which a part has another one. */
        uintptr_t page = (uintptr_t)getpagesize();
        uintptr_t start = (uintptr_t)memory / page * page;
        uintptr_t end = ((uintptr_t)memory + bytes + page - 1) / page * page;
        madvise((void*)start, end - start, MADV_HUGEPAGE);  /* only advice: a failure is harmless */
    }
#else
    (void)memory;
    (void)bytes;
#endif
}

/* Like realloc, with huge pages. */
static inline void* grow_memory(void* memory, size_t bytes) {
    void* grown = realloc(memory, bytes);
    use_huge_pages(grown, bytes);
    return grown;
}

#endif
