# cython: boundscheck=False, wraparound=False
"""Compile record_fast.pxd for processors with a fast BMI2 (x86-64-v3).

AMD's processors before Zen 3 have BMI2, but `pext` takes many cycles there.
"""
cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    #pragma GCC target("bmi,bmi2")
    #define WIRESCAN_BMI2 \\
        (__builtin_cpu_init(), __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("bmi") \\
         && !__builtin_cpu_is("bdver4") && !__builtin_cpu_is("znver1") \\
         && !__builtin_cpu_is("znver2"))
    #else
    #define WIRESCAN_BMI2 0
    #endif
    """
    bint WIRESCAN_BMI2

from wirescan.core cimport ReadColumns, ReadRun
from wirescan.kafka.record_batches.record_fast cimport read_columns, read_run

if WIRESCAN_BMI2:
    short_records = <void*><ReadRun>read_run
    short_columns = <void*><ReadColumns>read_columns
