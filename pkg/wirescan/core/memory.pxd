cdef extern from "memory.h":
    # Do what `realloc` does, with huge pages for large memory.
    void* grow_memory(void* memory, size_t bytes) noexcept nogil
