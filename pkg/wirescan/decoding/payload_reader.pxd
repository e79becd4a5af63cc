# What the kernels that decode payloads share: the loop over payloads, reasons why a payload is
# refused, the number of values that it may have, and names of numbers.
#
# A kernel is a `ReadPayload` with a struct of its own, which begins with an `Output`.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp
from wirescan.core cimport Reader
from wirescan.core.strings cimport ByteStrings
from wirescan.decoding.utf8 cimport is_utf8
from wirescan.decoding.value_builder cimport Node, Tree, ValueBuilder, add_bytes, add_null

ctypedef uint32_t Refusal       # FINE, or the number of the reason why a payload is refused

# The reasons that kernels share: see SHARED_REASONS. A kernel numbers its own ones from FIRST_OWN
# on.
cdef enum:
    FINE, NOT_TEXT, MANY, DEEP, FULL, FIRST_OWN

cdef struct Output:             # where the values of payloads go
    Tree* tree
    int64_t base_budget         # values that a payload of no bytes may have
    int64_t budget              # values that may still be added

# Read payload `i`, whose bytes are those of `r`, and add its value to node 0. Where a kernel adds
# none, the payload becomes a null.
ctypedef Refusal (*ReadPayload)(void* walk, Reader* r, Py_ssize_t i) noexcept nogil

cdef void begin_output(Output* out, ValueBuilder builder, int64_t nulls) noexcept
cdef object read_payloads(ByteStrings payloads, const int32_t* prefixes, Py_ssize_t prefix_step,
                          void* walk, ReadPayload read)


cdef inline bint charge(Output* out, int64_t values) noexcept nogil:
    # Count values that are added, or work of as much. False: the payload has too many.
    out.budget -= values
    return out.budget >= 0


cdef inline Refusal put_null(Output* out, int32_t node) noexcept nogil:
    if not charge(out, out.tree.nodes[node].weight):
        return MANY
    return FINE if add_null(out.tree, node) else FULL


cdef inline Refusal put_text(Node* node, const uint8_t* p, size_t size) noexcept nogil:
    if not is_utf8(p, size):
        return NOT_TEXT
    return FINE if add_bytes(node, p, size) else FULL


# ---------------------------------------------------------------------------- names and numbers

cdef struct Names:
    int32_t count
    const uint8_t* octets       # of all names, one after another
    const int32_t* stops        # name i is octets[stops[i]:stops[i + 1]]

cdef struct Symbols:            # of an enum
    const int32_t* numbers      # in ascending order
    Names names


cdef inline uint32_t measure_name(const Names* names, int32_t i) noexcept nogil:
    return <uint32_t>(names.stops[i + 1] - names.stops[i])


cdef inline bint is_name(
        const Names* names, int32_t i, const uint8_t* p, uint32_t size) noexcept nogil:
    # Whether name i is `p`.
    if measure_name(names, i) != size:
        return False
    return memcmp(names.octets + names.stops[i], p, size) == 0


cdef inline int32_t find_number(const int32_t* numbers, int32_t count, int32_t number,
                                uint32_t guess) noexcept nogil:
    # Return the index of a number among ascending ones, or -1. The guess is mostly right.
    cdef int32_t low = 0
    cdef int32_t high = count
    cdef int32_t middle
    if guess < <uint32_t>count and numbers[guess] == number:
        return <int32_t>guess
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < count and numbers[low] == number else -1


cdef int32_t find_symbol(const Symbols* symbols, int32_t number) noexcept nogil
cdef bint add_symbol(Node* node, const Symbols* symbols, int32_t number) noexcept nogil

cdef class ProgramMemory:
    cdef list owners
    cdef void* allocate(self, Py_ssize_t count, size_t size) except NULL
    cdef const int32_t* keep_numbers(self, values) except NULL
    cdef const uint8_t* keep_bytes(self, bytes octets) except NULL
    cdef int keep_names(self, Names* names, values) except -1
