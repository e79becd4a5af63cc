# `read_run` and `read_columns`, or NULL where the processor or the compiler has no BMI2.
#
# The pointers have no type: record_fast_bmi2.pyx sets the target processor before its cimports.
cdef void* short_records
cdef void* short_columns
