/* Memory of C structs that grows. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

/* Do what realloc does. Large memory gets huge pages: each small page that is written first costs
 * a fault, which takes longer than to fill it. */
static inline void* grow_memory(void* memory, size_t bytes) {
    void* grown = realloc(memory, bytes);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (grown && bytes >= (size_t)1 << 22) {
        /* The pages of the whole mapping: mremap does not move a part of one. */
        uintptr_t page = (uintptr_t)getpagesize();
        uintptr_t start = (uintptr_t)grown / page * page;
        uintptr_t end = ((uintptr_t)grown + bytes + page - 1) / page * page;
        madvise((void*)start, end - start, MADV_HUGEPAGE);  /* only advice: a failure is harmless */
    }
#endif
    return grown;
}
