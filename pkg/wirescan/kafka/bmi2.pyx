# cython: boundscheck=False, wraparound=False
"""`short_records` for processors with BMI2 (x86-64-v3): the same source, compiled for them."""
cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    #pragma GCC target("bmi,bmi2")
    #define WIRESCAN_BMI2 (__builtin_cpu_init(), __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("bmi"))
    #else
    #define WIRESCAN_BMI2 0
    #endif
    """
    bint WIRESCAN_BMI2

from wirescan.core cimport Head, ReadRun, Readable, Reader
from wirescan.kafka.short cimport read_short_records


cdef size_t compiled(Reader* r, char* rows, size_t most, const void* parent, const Readable* buffer,
                     const Head* span, bint ahead, bint past) noexcept nogil:
    # Two loops, neither with the branches of the other.
    if past:
        return read_short_records(r, rows, most, parent, buffer, span, ahead, True)
    return read_short_records(r, rows, most, parent, buffer, span, ahead, False)

if WIRESCAN_BMI2:
    short_records = <void*><ReadRun>compiled
