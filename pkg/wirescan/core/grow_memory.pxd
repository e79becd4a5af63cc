cdef extern from "grow_memory.h":
    # Give large memory huge pages, where the system has them.
    void use_huge_pages(void* memory, size_t bytes) noexcept nogil
    # Like `realloc`. Large blocks have huge pages.
    void* grow_memory(void* memory, size_t bytes) noexcept nogil
