# The last entry of each key in a map.
from libc.stdint cimport int32_t
from wirescan.decoding.value_builder cimport Tree

cdef bint keep_last_entries(Tree* tree, int32_t list_number, int32_t number) noexcept nogil
