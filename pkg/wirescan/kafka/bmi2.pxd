# A ReadRun, or NULL where this processor or the compiler has no BMI2. Untyped, since bmi2.pyx has to choose the
# processor before it cimports anything.
cdef void* short_records
