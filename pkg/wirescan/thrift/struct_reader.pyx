# cython: boundscheck=False, wraparound=False
"""Values of structs into columns, by a program that `struct_schema.py` compiles.

Each byte string is one struct, in the binary or the compact protocol: walk.pxd draws both. Fields
are read as code that Apache Thrift generates reads them: a field that is not declared, or that has
another type, is skipped; of a field that occurs twice, the last value counts.

Source: Apache Thrift, doc/specs/thrift-binary-protocol.md and thrift-compact-protocol.md.
"""
import numpy as np

from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from wirescan.core cimport (
    BAD_COUNT, BAD_VARINT, Fault, NESTED, Reader, TRUNCATED, be16, be32, be64, int16_t,
    int32_t, int64_t, le64, left, take, uint8_t, uint32_t, uint64_t, zigzag32, zigzag64)
from wirescan.core.strings cimport ByteStrings
from wirescan.decoding.utf8 cimport is_utf8
from wirescan.decoding.value_builder cimport (
    Node, Tree, ValueBuilder, add_bytes, add_fixed, add_null, add_validity, close_list, truncate)
from wirescan.thrift.walk cimport (
    BOOL, BYTE, DOUBLE, I16, I64, LIST, Level, MAP, STOP, STRING, STRUCT, Walk, begin_walk,
    open_value, read_field, read_size, skip, skip_scalar)

cdef enum Refusal:
    FINE, CUT, BAD_NUMBER, BAD_TYPE, WRONG_ELEMENT, TOO_MANY_ELEMENTS, NOT_TEXT, ABSENT, MANY, DEEP,
    MORE, FULL

# The reasons, by the numbers of `Refusal` from 1 on.
REASONS = (
    "it ends inside its struct",
    "a number is outside its range",
    "a field or an element has a type that does not exist",
    "an element has another type than in the IDL",
    "a list, set or map has more elements than bytes follow",
    "a string is not UTF-8",
    "a required field is missing",
    "it has too many values for its size",
    "its values are nested too deeply",
    "bytes follow the struct",
    "its column has 2 GiB, or there is no memory",
)

cpdef enum Form:
    PLAIN,                      # numbers and byte strings
    TEXT,                       # a byte string that must be UTF-8
    SYMBOL                      # a number whose name is in the column

cdef enum:
    COMPACT_VERSION = 1         # of Apache Thrift
    VALUES_PER_BYTE = 64        # values that a payload may have for each byte
    EXTRA_VALUES = 1 << 22      # ... and further ones of all payloads together
    DIGITS = 12                 # characters of an int32, with sign and NUL

cdef struct Step:
    uint8_t type                # on the wire, as walk.pxd numbers types
    Form form
    int32_t node
    int32_t nodes               # in the tree below `node`, this one included
    int32_t count               # of numbers
    const int32_t* children     # STRUCT: for each field; LIST, SET: one; MAP: key and value
    const int32_t* numbers      # ascending. STRUCT: ids of fields; SYMBOL: numbers that have names
    const uint8_t* required     # STRUCT: 1 for each required field
    const uint8_t* names        # SYMBOL: the names of the numbers, one after another
    const int32_t* name_ends    # ... and where each ends

cdef struct StructWalk:
    Walk walk
    const Step* steps
    Tree* tree
    int64_t budget              # values that may still be added


cdef class StructProgram:
    """Steps that read structs: StructProgram([(type, form, node, nodes, children, numbers, more)]).

    type: a number of `Type`. form: a number of `Form`. node: a node of the `ValueBuilder`.
    nodes: how many nodes there are in the value.
    children: the steps of the fields, or of the elements, or of key and value.
    numbers: ascending; the ids of the fields, or the numbers that have names.
    more: STRUCT: for each field whether it is required. SYMBOL: the names, as bytes.
    """
    cdef Step* steps
    cdef list owners

    def __cinit__(self, list steps):
        cdef int32_t i
        cdef Step* step
        self.owners = []
        self.steps = <Step*>calloc(max(len(steps), 1), sizeof(Step))
        if self.steps is NULL:
            raise MemoryError("no memory for a struct")
        for i, (kind, form, node, nodes, children, numbers, more) in enumerate(steps):
            step = &self.steps[i]
            step.type = kind
            step.form = form
            step.node = node
            step.nodes = nodes
            step.count = <int32_t>len(numbers)
            step.children = self.keep_numbers(children)
            step.numbers = self.keep_numbers(numbers)
            if form == SYMBOL:
                step.names = self.keep_bytes(b"".join(more))
                step.name_ends = self.keep_numbers(np.cumsum([len(name) for name in more]))
            else:
                step.required = self.keep_bytes(bytes(more))

    cdef const int32_t* keep_numbers(self, values) except NULL:
        cdef const int32_t[::1] numbers = np.array([*values, 0], np.int32)
        self.owners.append(numbers)
        return &numbers[0]

    cdef const uint8_t* keep_bytes(self, bytes octets) except NULL:
        self.owners.append(octets)
        return <const uint8_t*><const char*>octets

    def __dealloc__(self):
        free(self.steps)


cdef inline Refusal explain(Fault fault) noexcept nogil:
    if fault == TRUNCATED:
        return CUT
    if fault == BAD_VARINT:
        return BAD_NUMBER
    if fault == BAD_COUNT:
        return TOO_MANY_ELEMENTS
    return DEEP if fault == NESTED else BAD_TYPE


cdef int32_t find_number(const Step* step, int32_t number, int32_t guess) noexcept nogil:
    # Return the index of a number of a step, or -1. The guess is mostly right.
    cdef int32_t low = 0
    cdef int32_t high = step.count
    cdef int32_t middle
    if guess < high and step.numbers[guess] == number:
        return guess
    while low < high:
        middle = (low + high) // 2
        if step.numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < step.count and step.numbers[low] == number else -1


cdef Refusal add_symbol(Node* node, const Step* step, int32_t number) noexcept nogil:
    # Add the name of a number, or its digits if it has none.
    cdef char[DIGITS] digits
    cdef int32_t i = find_number(step, number, 0)
    cdef int32_t start
    if i < 0:
        start = snprintf(digits, DIGITS, b"%d", number)
        return FINE if add_bytes(node, <const uint8_t*>digits, start) else FULL
    start = step.name_ends[i - 1] if i else 0
    if add_bytes(node, step.names + start, step.name_ends[i] - start):
        return FINE
    return FULL


cdef inline Refusal read_integer(
        StructWalk* w, Reader* r, const Step* step, int64_t* number) noexcept nogil:
    # Read an integer of 16, 32 or 64 bits.
    cdef const uint8_t* p
    cdef int32_t small = 0
    cdef Fault fault
    if w.walk.compact:
        if step.type == I64:
            fault = zigzag64(r, number)
        else:
            fault = zigzag32(r, &small)
            number[0] = small
        if fault:
            return explain(fault)
        if step.type == I16 and not -0x8000 <= number[0] <= 0x7fff:
            return BAD_NUMBER
        return FINE
    p = take(r, 8 if step.type == I64 else 2 if step.type == I16 else 4)
    if p is NULL:
        return CUT
    if step.type == I64:
        number[0] = <int64_t>be64(p)
    elif step.type == I16:
        number[0] = <int16_t>be16(p)
    else:
        number[0] = <int32_t>be32(p)
    return FINE


cdef Refusal read_number(StructWalk* w, Reader* r, const Step* step) noexcept nogil:
    cdef Node* node = &w.tree.nodes[step.node]
    cdef const uint8_t* p
    cdef uint64_t bits
    cdef int64_t number = 0
    cdef int32_t small
    cdef int16_t short_number
    cdef uint8_t octet
    cdef Refusal refusal
    if step.type == BOOL or step.type == BYTE:
        p = take(r, 1)
        if p is NULL:
            return CUT
        octet = p[0]
        if step.type == BOOL:
            octet = octet == 1 if w.walk.compact else octet != 0
        return FINE if add_fixed(node, &octet, 1) else FULL
    if step.type == DOUBLE:
        p = take(r, 8)
        if p is NULL:
            return CUT
        bits = le64(p) if w.walk.compact else be64(p)
        return FINE if add_fixed(node, &bits, 8) else FULL
    refusal = read_integer(w, r, step, &number)
    if refusal != FINE:
        return refusal
    if step.type == I64:
        return FINE if add_fixed(node, &number, 8) else FULL
    small = <int32_t>number
    if step.form == SYMBOL:
        return add_symbol(node, step, small)
    if step.type == I16:
        short_number = <int16_t>number
        return FINE if add_fixed(node, &short_number, 2) else FULL
    return FINE if add_fixed(node, &small, 4) else FULL


cdef Refusal read_string(StructWalk* w, Reader* r, const Step* step) noexcept nogil:
    cdef uint32_t size = 0
    cdef const uint8_t* p
    cdef Fault fault = read_size(&w.walk, r, &size)
    if fault:
        return explain(fault)
    p = take(r, size)
    if p is NULL:
        return CUT
    if step.form == TEXT and not is_utf8(p, size):
        return NOT_TEXT
    return FINE if add_bytes(&w.tree.nodes[step.node], p, size) else FULL


cdef Refusal read_elements(StructWalk* w, Reader* r, const Step* step) noexcept nogil:
    # Read a list, a set or a map.
    cdef const Level* level
    cdef const Step* key = NULL
    cdef const Step* element = &w.steps[step.children[0]]
    cdef Node* node = &w.tree.nodes[step.node]
    cdef uint32_t _, count
    cdef Refusal refusal
    cdef Fault fault = open_value(&w.walk, r, step.type)
    if fault:
        return explain(fault)
    level = &w.walk.level[w.walk.depth - 1]
    count = level.count
    if step.type == MAP:
        key = element
        element = &w.steps[step.children[1]]
    if count and (level.element_type != element.type
                  or key is not NULL and level.key_type != key.type):
        return WRONG_ELEMENT
    for _ in range(count):
        if key is not NULL:
            refusal = read_value(w, r, key)
            if refusal != FINE:
                return refusal
        refusal = read_value(w, r, element)
        if refusal != FINE:
            return refusal
        if key is not NULL:
            if not add_validity(&w.tree.nodes[w.tree.children[node.first_child]], 1):
                return FULL
    w.walk.depth -= 1
    return FINE if close_list(w.tree, node) else FULL


cdef Refusal skip_value(StructWalk* w, Reader* r, uint8_t type) noexcept nogil:
    cdef int32_t base = w.walk.depth
    cdef Fault fault
    if STRUCT <= type <= LIST:
        fault = open_value(&w.walk, r, type)
        if not fault:
            fault = skip(&w.walk, r, base)
    else:
        fault = skip_scalar(&w.walk, r, type)
    return explain(fault) if fault else FINE


cdef Refusal make_room(StructWalk* w, const Step* step, size_t count) noexcept nogil:
    # Remove the value of a field that occurs again. The column has `count` values before it.
    if w.tree.nodes[step.node].count > count:
        w.budget -= step.nodes
        if w.budget < 0:
            return MANY
        truncate(w.tree, step.node, count)
    return FINE


cdef Refusal close_struct(StructWalk* w, const Step* step, size_t count) noexcept nogil:
    # Add nulls for the fields that did not occur, and the struct itself.
    cdef const Step* field
    cdef int32_t i
    for i in range(step.count):
        field = &w.steps[step.children[i]]
        if w.tree.nodes[field.node].count == count:
            if step.required[i]:
                return ABSENT
            w.budget -= w.tree.nodes[field.node].weight
            if w.budget < 0:
                return MANY
            if not add_null(w.tree, field.node):
                return FULL
    return FINE if add_validity(&w.tree.nodes[step.node], 1) else FULL


cdef Refusal read_struct(StructWalk* w, Reader* r, const Step* step) noexcept nogil:
    # Read the fields of a struct whose level is open, and close the level.
    cdef size_t count = w.tree.nodes[step.node].count
    cdef const Step* field
    cdef int64_t truth = 0
    cdef int32_t id = 0
    cdef int32_t i
    cdef int32_t guess = 0
    cdef uint8_t type = STOP
    cdef uint8_t flag
    cdef Refusal refusal
    cdef Fault fault
    while True:
        fault = read_field(&w.walk, r, &type, &id, &truth)
        if fault:
            return explain(fault)
        if type == STOP:
            break
        i = find_number(step, id, guess)
        field = &w.steps[step.children[max(i, 0)]]
        refusal = FINE
        if i < 0 or field.type != type:
            if truth < 0:
                refusal = skip_value(w, r, type)
        else:
            guess = i + 1
            refusal = make_room(w, field, count)
            if refusal == FINE and truth < 0:
                refusal = read_value(w, r, field)
            elif refusal == FINE:
                flag = <uint8_t>truth
                refusal = FINE if add_fixed(&w.tree.nodes[field.node], &flag, 1) else FULL
        if refusal != FINE:
            return refusal
    w.walk.depth -= 1
    return close_struct(w, step, count)


cdef Refusal read_value(StructWalk* w, Reader* r, const Step* step) noexcept nogil:
    # Read one value and add it to its node.
    cdef Fault fault
    w.budget -= 1
    if w.budget < 0:
        return MANY
    if step.type == STRING:
        return read_string(w, r, step)
    if step.type == STRUCT:
        fault = open_value(&w.walk, r, STRUCT)
        return explain(fault) if fault else read_struct(w, r, step)
    if MAP <= step.type <= LIST:
        return read_elements(w, r, step)
    return read_number(w, r, step)


cdef Refusal read_payload(StructWalk* w, Reader* r, bint compact) noexcept nogil:
    cdef Refusal refusal
    begin_walk(&w.walk, compact, COMPACT_VERSION)
    refusal = read_struct(w, r, &w.steps[0])
    return MORE if refusal == FINE and r.at < r.end else refusal


def read_structs(ByteStrings payloads, ValueBuilder builder, StructProgram program, *,
                 bint compact):
    """Add a struct to node 0 of a builder for each payload. Return uint8 numbers of `REASONS`.

    program: its step 0 reads a whole struct. compact: whether payloads have the compact protocol.

    A number n > 0 is the reason REASONS[n - 1]. The struct is then null, as it is for a null
    payload. Raises MemoryError.
    """
    cdef Py_ssize_t i, n = len(payloads)
    cdef Py_ssize_t step = payloads.strings.step
    cdef const uint64_t* address = payloads.strings.address
    cdef const int32_t* size = payloads.strings.size
    refusals = np.zeros(n, np.uint8)
    cdef uint8_t[::1] refusal = refusals
    cdef StructWalk w
    cdef Reader r
    cdef int64_t extra = EXTRA_VALUES
    cdef size_t count
    cdef bint full = False
    w.tree = &builder.tree
    w.steps = program.steps
    with nogil:
        for i in range(n):
            if size[i * step] >= 0:
                count = w.tree.nodes[0].count
                r.at = <const uint8_t*>address[i * step]
                r.end = r.at + size[i * step]
                w.budget = (
                    w.tree.nodes[0].weight + VALUES_PER_BYTE * <int64_t>left(&r) + extra)
                refusal[i] = read_payload(&w, &r, compact)
                extra = min(extra, max(w.budget, 0))
                if refusal[i] == FINE:
                    continue
                truncate(w.tree, 0, count)
            if not add_null(w.tree, 0):
                full = True
                break
    if full:
        raise MemoryError("no memory for the values")
    return refusals
