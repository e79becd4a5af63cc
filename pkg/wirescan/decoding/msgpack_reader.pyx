# cython: boundscheck=False, wraparound=False
"""MessagePack maps into columns, by a program that `msgpack_types.py` compiles.

Source: MessagePack specification, "Formats" and "Timestamp extension type".
"""
import numpy as np

from wirescan.decoding import payload_reader

from libc.float cimport FLT_MAX
from libc.math cimport fabs, isinf
from libc.stdint cimport INT64_MAX
from libc.string cimport memcmp
from wirescan.core cimport Reader, uint16_t
from wirescan.core.strings cimport ByteStrings
from wirescan.decoding.map_entries cimport keep_last_entries
from wirescan.decoding.msgpack_wire cimport (
    BAD_KEY, BAD_NUMBER, BAD_TIME, BILLION, DIGITS, ELEMENTS, EXTENSION, LARGE, MORE, NIL,
    NOT_A_MAP, NUMBER, OCTETS, PAIRS, REAL, STAMP, TEXT, TRUTH, TWICE, Value, WRONG_TYPE,
    read_stamp, skip_values, take_key, take_value)
from wirescan.decoding.payload_reader cimport (
    FINE, FULL, MANY, NOT_TEXT, Names, Output, ProgramMemory, Refusal, begin_output, charge,
    is_name, measure_name, put_null, put_text, read_payloads)
from wirescan.decoding.utf8 cimport is_utf8
from wirescan.decoding.value_builder cimport (
    Node, ValueBuilder, add_bytes, add_fixed, add_validity, close_list, int32_t, int64_t, uint8_t,
    uint32_t, uint64_t)

# The reasons, by the numbers of refusals from 1 on.
REASONS = (
    *payload_reader.SHARED_REASONS,
    "it ends inside a value",
    "it has the byte c1, which MessagePack does not use",
    "it is not a map",
    "a value has another type than its column",
    "a number is outside its range",
    "a key is neither a string nor an integer",
    "a map has a key twice",
    "a timestamp is outside its range",
    "bytes follow the map",
)
REFUSALS = 16                   # numbers in `read_maps` for each step

cpdef enum MapOp:
    NOTHING, BOOLEAN, INTEGER, FLOAT, DOUBLE, BINARY, STRING, TIME, ARRAY, STRUCT, MAP

cdef struct Step:
    MapOp op
    int32_t node
    int32_t count               # of children
    const int32_t* children     # STRUCT: for each member; ARRAY: one; MAP: key and value
    Names names                 # STRUCT: of the members
    const int32_t* by_size      # ... the members by size of the name, then by its bytes
    uint32_t width              # INTEGER: bytes
    int64_t low                 # INTEGER: the smallest number
    uint64_t high               # INTEGER: the largest number; TIME: the units in a second

cdef struct MapWalk:
    Output out
    const Step* steps
    int32_t refused             # the step whose value was refused, or -1
    uint32_t* refused_steps     # for each refused payload its step


cdef class MapProgram(ProgramMemory):
    """Steps that read maps: MapProgram([(op, node, children, names, width, low, high), ...]).

    op: a number of `MapOp`. node: a node of the `ValueBuilder`.
    children: the steps of the members, or of the elements, or of key and value.
    names: bytes, the names of the members of a struct.
    width, low, high: INTEGER: bytes, and the smallest and largest number. TIME: high is the number
        of units in a second.
    """
    cdef Step* steps

    def __cinit__(self, list steps):
        cdef int32_t i
        cdef Step* step
        self.steps = <Step*>self.allocate(len(steps), sizeof(Step))
        for i, (op, node, children, names, width, low, high) in enumerate(steps):
            step = &self.steps[i]
            step.op = op
            step.node = node
            step.count = <int32_t>len(children)
            step.children = self.keep_numbers(children)
            self.keep_names(&step.names, names)
            order = sorted(range(len(names)), key=lambda j: (len(names[j]), names[j]))
            step.by_size = self.keep_numbers(order)
            step.width = width
            step.low = low
            step.high = high


cdef Refusal add_integer(Node* node, const Step* step, const Value* value) noexcept nogil:
    cdef uint64_t bits = <uint64_t>value.number
    cdef uint8_t octet = <uint8_t>bits
    cdef uint16_t pair = <uint16_t>bits
    cdef uint32_t word = <uint32_t>bits
    cdef bint fits
    if value.kind == NUMBER and value.number < 0:
        fits = value.number >= step.low
    else:
        fits = bits <= step.high
    if not fits:
        return BAD_NUMBER
    if step.width == 8:
        return FINE if add_fixed(node, &bits, 8) else FULL
    if step.width == 4:
        return FINE if add_fixed(node, &word, 4) else FULL
    if step.width == 2:
        return FINE if add_fixed(node, &pair, 2) else FULL
    return FINE if add_fixed(node, &octet, 1) else FULL


cdef Refusal add_real(Node* node, const Step* step, const Value* value) noexcept nogil:
    cdef double real = value.real
    cdef float single
    if value.kind == NUMBER:
        real = <double>value.number
    elif value.kind == LARGE:
        real = <double><uint64_t>value.number
    if step.op == DOUBLE:
        return FINE if add_fixed(node, &real, 8) else FULL
    if fabs(real) > FLT_MAX and not isinf(real):
        return BAD_NUMBER
    single = <float>real
    return FINE if add_fixed(node, &single, 4) else FULL


cdef Refusal add_time(Node* node, const Step* step, const Value* value) noexcept nogil:
    # An integer is a number of the column's units.
    cdef int64_t units = value.number
    cdef int64_t limit
    cdef int64_t seconds = 0
    cdef int64_t per_second = <int64_t>step.high
    cdef uint32_t nanos = 0
    cdef Refusal refusal
    if value.kind == STAMP:
        refusal = read_stamp(value, &seconds, &nanos)
        if refusal != FINE:
            return refusal
        limit = INT64_MAX // per_second
        if not -limit <= seconds < limit:
            return BAD_TIME
        units = seconds * per_second + nanos // (BILLION // per_second)
    return FINE if add_fixed(node, &units, 8) else FULL


cdef Refusal add_scalar(Node* node, const Step* step, const Value* value) noexcept nogil:
    # Add a value that is neither nil nor an array nor a map.
    cdef uint8_t truth
    if step.op == STRING:
        if value.kind != TEXT:
            return WRONG_TYPE
        return put_text(node, value.octets, value.size)
    if step.op == INTEGER:
        if value.kind != NUMBER and value.kind != LARGE:
            return WRONG_TYPE
        return add_integer(node, step, value)
    if step.op == DOUBLE or step.op == FLOAT:
        if not NUMBER <= value.kind <= REAL:
            return WRONG_TYPE
        return add_real(node, step, value)
    if step.op == BOOLEAN:
        if value.kind != TRUTH:
            return WRONG_TYPE
        truth = <uint8_t>value.number
        return FINE if add_fixed(node, &truth, 1) else FULL
    if step.op == BINARY:
        if value.kind != OCTETS and value.kind != TEXT and value.kind != EXTENSION:
            return WRONG_TYPE
        return FINE if add_bytes(node, value.octets, value.size) else FULL
    if step.op == TIME and (value.kind == STAMP or value.kind == NUMBER):
        return add_time(node, step, value)
    return WRONG_TYPE


cdef int32_t find_member(
        const Step* step, int32_t guess, const uint8_t* p, uint32_t size) noexcept nogil:
    # Return the member of a name, or -1. The guess is mostly right.
    cdef int32_t low = 0
    cdef int32_t high = step.count
    cdef int32_t middle, i
    cdef uint32_t other
    cdef const Names* names = &step.names
    if guess < high and is_name(names, guess, p, size):
        return guess
    while low < high:
        middle = (low + high) // 2
        i = step.by_size[middle]
        other = measure_name(names, i)
        if other < size or (
                other == size and memcmp(names.octets + names.stops[i], p, size) < 0):
            low = middle + 1
        else:
            high = middle
    if low < step.count and is_name(names, step.by_size[low], p, size):
        return step.by_size[low]
    return -1


cdef Refusal read_members(MapWalk* w, Reader* r, const Step* step, uint32_t pairs) noexcept nogil:
    # Read the pairs of a map into a struct.
    cdef size_t count = w.out.tree.nodes[step.node].count
    cdef char[DIGITS] digits
    cdef Value key
    cdef int32_t i, node
    cdef int32_t guess = 0
    cdef Refusal refusal
    for _ in range(pairs):
        refusal = take_key(r, &key, digits)
        if refusal != FINE:
            return refusal
        i = find_member(step, guess, key.octets, key.size)
        if i < 0:
            refusal = skip_values(r, 1) if is_utf8(key.octets, key.size) else NOT_TEXT
        elif w.out.tree.nodes[w.steps[step.children[i]].node].count > count:
            return TWICE
        else:
            guess = i + 1
            refusal = read(w, r, step.children[i])
        if refusal != FINE:
            return refusal
    for i in range(step.count):
        node = w.steps[step.children[i]].node
        if w.out.tree.nodes[node].count == count:
            refusal = put_null(&w.out, node)
            if refusal != FINE:
                return refusal
    return FINE if add_validity(&w.out.tree.nodes[step.node], 1) else FULL


cdef Refusal read_elements(MapWalk* w, Reader* r, const Step* step, uint32_t count) noexcept nogil:
    # Read the elements of an array into a list.
    cdef Refusal refusal
    for _ in range(count):
        refusal = read(w, r, step.children[0])
        if refusal != FINE:
            return refusal
    return FINE if close_list(w.out.tree, &w.out.tree.nodes[step.node]) else FULL


cdef Refusal read_pairs(MapWalk* w, Reader* r, const Step* step, uint32_t count) noexcept nogil:
    # Read the pairs of a map into a list.
    cdef Node* node = &w.out.tree.nodes[step.node]
    cdef int32_t number = w.out.tree.children[node.first_child]
    cdef Node* entries = &w.out.tree.nodes[number]
    cdef size_t stop = entries.count + count
    cdef int32_t i
    cdef Refusal refusal
    for _ in range(count):
        if r.at < r.end and r.at[0] == 0xc0:
            return BAD_KEY              # Arrow's maps have no null as a key
        for i in range(2):
            refusal = read(w, r, step.children[i])
            if refusal != FINE:
                return refusal
        if not add_validity(entries, 1):
            return FULL
    if not keep_last_entries(w.out.tree, step.node, number):
        return FULL
    if entries.count < stop:
        return TWICE
    return FINE if close_list(w.out.tree, node) else FULL


cdef Refusal read_fitting(MapWalk* w, Reader* r, const Step* step) noexcept nogil:
    # Read one value and add it to the node of its step.
    cdef Value value
    cdef Refusal refusal = take_value(r, &value)
    if refusal != FINE:
        return refusal
    if not charge(&w.out, 1):
        return MANY
    if value.kind == NIL:
        return put_null(&w.out, step.node)
    if value.kind == PAIRS:
        if step.op == STRUCT:
            return read_members(w, r, step, value.size)
        if step.op == MAP:
            return read_pairs(w, r, step, value.size)
        # An inferred column of empty maps has the type null.
        if step.op == NOTHING and value.size == 0:
            return put_null(&w.out, step.node)
        return WRONG_TYPE
    if value.kind == ELEMENTS:
        return read_elements(w, r, step, value.size) if step.op == ARRAY else WRONG_TYPE
    return add_scalar(&w.out.tree.nodes[step.node], step, &value)


cdef Refusal read(MapWalk* w, Reader* r, int32_t number) noexcept nogil:
    cdef Refusal refusal = read_fitting(w, r, &w.steps[number])
    if refusal != FINE and w.refused < 0:
        w.refused = number
    return refusal


cdef Refusal read_map(MapWalk* w, Reader* r) noexcept nogil:
    cdef Value value
    cdef Refusal refusal = take_value(r, &value)
    if refusal != FINE:
        return refusal
    if value.kind != PAIRS:
        return NOT_A_MAP
    refusal = read_members(w, r, &w.steps[0], value.size)
    return MORE if refusal == FINE and r.at < r.end else refusal


cdef Refusal read_payload(void* walk, Reader* r, Py_ssize_t i) noexcept nogil:
    cdef MapWalk* w = <MapWalk*>walk
    cdef Refusal refusal
    w.refused = -1
    refusal = read_map(w, r)
    if refusal != FINE:
        w.refused_steps[i] = <uint32_t>max(w.refused, 0)
    return refusal


def read_maps(ByteStrings payloads, ValueBuilder builder, MapProgram program):
    """Add a struct to node 0 of a builder for each payload. Return uint32 refusals.

    program: its step 0 has the members of the maps.

    A refusal n > 0 is the reason REASONS[n % REFUSALS - 1], for a value of the step n // REFUSALS.
    The struct is then null, as it is for a null payload. Raises MemoryError.
    """
    cdef MapWalk w
    cdef int32_t prefix = 0
    steps = np.zeros(max(len(payloads), 1), np.uint32)
    cdef uint32_t[::1] refused_steps = steps
    begin_output(&w.out, builder, 1)
    w.steps = program.steps
    w.refused_steps = &refused_steps[0]
    refusals = read_payloads(payloads, &prefix, 0, &w, read_payload)
    return refusals + REFUSALS * steps[:len(payloads)]
