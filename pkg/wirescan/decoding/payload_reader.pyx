# cython: boundscheck=False, wraparound=False
"""What the kernels that decode payloads share: see payload_reader.pxd.

A kernel reads payloads by a program that Python code compiles from a schema. A program has steps:
structs in C, whose memory `ProgramMemory` keeps.
"""
import numpy as np

from wirescan.core cimport left
from wirescan.decoding.value_builder cimport truncate

# The reasons, by the numbers of payload_reader.pxd from 1 on.
SHARED_REASONS = (
    "a string is not UTF-8",
    "it has too many values for its size",
    "its values are nested too deeply",
    "its column has 2 GiB, or there is no memory",
)

cdef enum:
    VALUES_PER_BYTE = 64        # values that a payload may have for each byte
    EXTRA_VALUES = 1 << 22      # ... and further ones of all payloads together
    DIGITS = 12                 # room for an int32 as text


cdef void begin_output(Output* out, ValueBuilder builder, int64_t nulls) noexcept:
    # Set the columns. A payload of no bytes may have as many values as `nulls` nulls.
    out.tree = &builder.tree
    out.base_budget = nulls * builder.tree.nodes[0].weight
    out.budget = 0


cdef object read_payloads(ByteStrings payloads, const int32_t* prefixes, Py_ssize_t prefix_step,
                          void* walk, ReadPayload read):
    # Add a value to node 0 for each payload, and return the refusals as uint8. A payload that is
    # null or refused becomes a null. prefixes[i * prefix_step] is the number of bytes before the
    # value of payload i. A payload with fewer bytes, or with -1, becomes a null too.
    cdef Output* out = <Output*>walk
    cdef Py_ssize_t i, n = len(payloads)
    cdef Py_ssize_t step = payloads.strings.step
    cdef const uint64_t* address = payloads.strings.address
    cdef const int32_t* size = payloads.strings.size
    refusals = np.zeros(n, np.uint8)
    cdef uint8_t[::1] refusal = refusals
    cdef Reader r
    cdef int64_t extra = EXTRA_VALUES
    cdef int32_t prefix
    cdef size_t count
    cdef bint full = False
    with nogil:
        for i in range(n):
            prefix = prefixes[i * prefix_step]
            if 0 <= prefix <= size[i * step]:
                count = out.tree.nodes[0].count
                r.at = <const uint8_t*>address[i * step] + prefix
                r.end = r.at + size[i * step] - prefix
                out.budget = out.base_budget + VALUES_PER_BYTE * <int64_t>left(&r) + extra
                refusal[i] = <uint8_t>read(walk, &r, i)
                extra = min(extra, max(out.budget, 0))
                if refusal[i] == FINE and out.tree.nodes[0].count > count:
                    continue
                truncate(out.tree, 0, count)
            if not add_null(out.tree, 0):
                full = True
                break
    if full:
        raise MemoryError("no memory for the values")
    return refusals


cdef int32_t find_symbol(const Symbols* symbols, int32_t number) noexcept nogil:
    # Return the index of the name of a number, or -1.
    if symbols.names.count == 0:
        return -1
    # Most enums have the numbers 0, 1, 2, ...
    return find_number(symbols.numbers, symbols.names.count, number,
                       <uint32_t>number - <uint32_t>symbols.numbers[0])


cdef bint add_symbol(Node* node, const Symbols* symbols, int32_t number) noexcept nogil:
    # Add the name of a number, or its decimal text if it has none. False: out of memory.
    cdef int32_t i = find_symbol(symbols, number)
    cdef uint8_t[DIGITS] text
    cdef uint64_t rest
    cdef int at = DIGITS
    if i >= 0:
        return add_bytes(node, symbols.names.octets + symbols.names.stops[i],
                         measure_name(&symbols.names, i))
    rest = <uint64_t>(-<int64_t>number if number < 0 else number)
    while True:
        at -= 1
        text[at] = <uint8_t>(0x30 + rest % 10)
        rest //= 10
        if rest == 0:
            break
    if number < 0:
        at -= 1
        text[at] = 0x2d
    return add_bytes(node, text + at, DIGITS - at)


cdef class ProgramMemory:
    """The memory of a program: its steps, and the numbers and bytes that they point to."""

    def __cinit__(self):
        self.owners = []

    cdef void* allocate(self, Py_ssize_t count, size_t size) except NULL:
        # Return memory of zeros for `count` structs of `size` bytes.
        cdef uint8_t[::1] memory = np.zeros(max(count, 1) * <Py_ssize_t>size, np.uint8)
        self.owners.append(memory)
        return &memory[0]

    cdef const int32_t* keep_numbers(self, values) except NULL:
        cdef const int32_t[::1] numbers = np.array([*values, 0], np.int32)
        self.owners.append(numbers)
        return &numbers[0]

    cdef const uint8_t* keep_bytes(self, bytes octets) except NULL:
        self.owners.append(octets)
        return <const uint8_t*><const char*>octets

    cdef int keep_names(self, Names* names, values) except -1:
        # Set names from a list of bytes.
        names.count = <int32_t>len(values)
        names.octets = self.keep_bytes(b"".join(values))
        names.stops = self.keep_numbers(np.cumsum([0, *map(len, values)]))
        return 0
