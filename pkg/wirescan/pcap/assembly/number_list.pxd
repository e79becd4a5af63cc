# A list of numbers that grows, for assembler.pyx.
from libc.stdint cimport int64_t
from wirescan.core.grow_memory cimport grow_memory

cdef struct NumberList:
    int64_t* at
    size_t count
    size_t capacity


cdef inline bint push(NumberList* numbers, int64_t number) noexcept nogil:
    # Append a number. Return False where there is no memory.
    cdef size_t capacity
    cdef void* memory
    if numbers.count == numbers.capacity:
        capacity = numbers.capacity * 2 + 64
        memory = grow_memory(numbers.at, capacity * sizeof(int64_t))
        if memory is NULL:
            return False
        numbers.at = <int64_t*>memory
        numbers.capacity = capacity
    numbers.at[numbers.count] = number
    numbers.count += 1
    return True


cdef inline int compare_numbers(const void* a, const void* b) noexcept nogil:
    cdef int64_t first = (<const int64_t*>a)[0], second = (<const int64_t*>b)[0]
    return (first > second) - (first < second)


# A direction of a connection: 2 * the number in the capture + side, and 2 * the place in the table
# + side. Lists of them are sorted by `compare_numbers`, so by the number.
cdef struct Direction:
    int64_t number
    int64_t place
