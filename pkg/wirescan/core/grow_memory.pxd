cdef extern from "grow_memory.h":
    # Like `realloc`. Large blocks have huge pages where the system has them.
    void* grow_memory(void* memory, size_t bytes) noexcept nogil
