# A ReadRun, or NULL if this processor or the compiler has no BMI2.
# The pointer has no type because record_fast_bmi2.pyx sets the target processor before it cimports
# anything.
cdef void* short_records
