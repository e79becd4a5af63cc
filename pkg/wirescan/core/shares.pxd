from wirescan.core.fault cimport Fault
from wirescan.core.rows cimport RowBlock, Rows

# A contiguous part of the work of one call. `work` fills rows; a thread calls it. A subclass holds
# what it reads.
cdef class Share:
    cdef Rows rows
    cdef Fault fault                # afterwards: why the rows end, or OK
    cdef void work(self) noexcept nogil

# Run shares on threads, and return their rows in order, as if one thread had filled `block`.
#
# block: empty rows, with memory for all expected ones. expected: for each share, how many of them.
# Return None where a share has a fault, for example because a limit may change the result. Then one
# thread has to do all the work.
cdef RowBlock run_shares(list shares, RowBlock block, list expected)
