# cython: boundscheck=False, wraparound=False
"""Values of structs into columns, by a program that `struct_schema.py` compiles.

Each byte string is one struct, in the binary or the compact protocol: walk.pxd draws both. Fields
are read as code that Apache Thrift generates reads them: a field that is not declared, or that has
another type, is skipped. If a field or a key of a map occurs twice, the last value counts.

Source: Apache Thrift, doc/specs/thrift-binary-protocol.md and thrift-compact-protocol.md.
"""
from wirescan.decoding import payload_reader

from wirescan.core cimport (
    BAD_COUNT, BAD_VARINT, Fault, NESTED, Reader, TRUNCATED, be16, be32, be64, int16_t,
    int32_t, int64_t, le64, take, uint8_t, uint32_t, uint64_t, zigzag32, zigzag64)
from wirescan.core.strings cimport ByteStrings
from wirescan.decoding.map_entries cimport keep_last_entries
from wirescan.decoding.payload_reader cimport (
    DEEP, FINE, FIRST_OWN, FULL, MANY, Output, ProgramMemory, Refusal, Symbols, add_symbol,
    begin_output, charge, find_number, put_null, put_text, read_payloads)
from wirescan.decoding.value_builder cimport (
    Node, ValueBuilder, add_bytes, add_fixed, add_validity, close_list, truncate)
from wirescan.thrift.walk cimport (
    BOOL, BYTE, DOUBLE, I16, I64, LIST, Level, MAP, STOP, STRING, STRUCT, Walk, begin_walk,
    open_value, read_field, read_size, skip, skip_scalar)

cdef enum:
    CUT = FIRST_OWN
    BAD_NUMBER, BAD_TYPE, WRONG_ELEMENT, TOO_MANY_ELEMENTS, ABSENT, MORE

# The reasons, by the numbers of refusals from 1 on.
REASONS = (
    *payload_reader.SHARED_REASONS,
    "it ends inside its struct",
    "a number is outside its range",
    "a field or an element has a type that does not exist",
    "an element has another type than in the IDL",
    "a list, set or map has more elements than bytes follow",
    "a required field is missing",
    "bytes follow the struct",
)

cpdef enum Form:
    PLAIN,                      # numbers and byte strings
    TEXT,                       # a byte string that must be UTF-8
    SYMBOL                      # a number whose name is in the column

cdef enum:
    COMPACT_VERSION = 1         # of Apache Thrift

cdef struct Step:
    uint8_t type                # on the wire, as walk.pxd numbers types
    Form form
    int32_t node
    int32_t nodes               # in the tree below `node`, this one included
    int32_t count               # STRUCT: of fields
    const int32_t* children     # STRUCT: for each field; LIST, SET: one; MAP: key and value
    const int32_t* ids          # STRUCT: of fields, ascending
    const uint8_t* required     # STRUCT: 1 for each required field
    Symbols symbols             # SYMBOL

cdef struct StructWalk:
    Output out
    Walk walk
    const Step* steps


cdef class StructProgram(ProgramMemory):
    """Steps that read structs: StructProgram([(type, form, node, nodes, children, numbers, more)]).

    type: a number of `Type`. form: a number of `Form`. node: a node of the `ValueBuilder`.
    nodes: how many nodes there are in the value.
    children: the steps of the fields, or of the elements, or of key and value.
    numbers: ascending; the ids of the fields, or the numbers that have names.
    more: STRUCT: for each field whether it is required. SYMBOL: the names, as bytes.
    """
    cdef Step* steps

    def __cinit__(self, list steps):
        cdef int32_t i
        cdef Step* step
        self.steps = <Step*>self.allocate(len(steps), sizeof(Step))
        for i, (kind, form, node, nodes, children, numbers, more) in enumerate(steps):
            step = &self.steps[i]
            step.type = kind
            step.form = form
            step.node = node
            step.nodes = nodes
            step.children = self.keep_numbers(children)
            if form == SYMBOL:
                step.symbols.numbers = self.keep_numbers(numbers)
                self.keep_names(&step.symbols.names, more)
            else:
                step.count = <int32_t>len(numbers)
                step.ids = self.keep_numbers(numbers)
                step.required = self.keep_bytes(bytes(more))


cdef inline Refusal explain(Fault fault) noexcept nogil:
    if fault == TRUNCATED:
        return CUT
    if fault == BAD_VARINT:
        return BAD_NUMBER
    if fault == BAD_COUNT:
        return TOO_MANY_ELEMENTS
    return DEEP if fault == NESTED else BAD_TYPE


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
    cdef Node* node = &w.out.tree.nodes[step.node]
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
        return FINE if add_symbol(node, &step.symbols, small) else FULL
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
    if step.form == TEXT:
        return put_text(&w.out.tree.nodes[step.node], p, size)
    return FINE if add_bytes(&w.out.tree.nodes[step.node], p, size) else FULL


cdef Refusal read_elements(StructWalk* w, Reader* r, const Step* step) noexcept nogil:
    # Read a list, a set or a map.
    cdef const Level* level
    cdef const Step* key = NULL
    cdef const Step* element = &w.steps[step.children[0]]
    cdef Node* node = &w.out.tree.nodes[step.node]
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
            if not add_validity(&w.out.tree.nodes[w.out.tree.children[node.first_child]], 1):
                return FULL
    w.walk.depth -= 1
    if key is not NULL and not keep_last_entries(
            w.out.tree, step.node, w.out.tree.children[node.first_child]):
        return FULL
    return FINE if close_list(w.out.tree, node) else FULL


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
    if w.out.tree.nodes[step.node].count > count:
        if not charge(&w.out, step.nodes):
            return MANY
        truncate(w.out.tree, step.node, count)
    return FINE


cdef Refusal close_struct(StructWalk* w, const Step* step, size_t count) noexcept nogil:
    # Add nulls for the fields that did not occur, and the struct itself.
    cdef const Step* field
    cdef int32_t i
    cdef Refusal refusal
    for i in range(step.count):
        field = &w.steps[step.children[i]]
        if w.out.tree.nodes[field.node].count == count:
            if step.required[i]:
                return ABSENT
            refusal = put_null(&w.out, field.node)
            if refusal != FINE:
                return refusal
    return FINE if add_validity(&w.out.tree.nodes[step.node], 1) else FULL


cdef Refusal read_struct(StructWalk* w, Reader* r, const Step* step) noexcept nogil:
    # Read the fields of a struct whose level is open, and close the level.
    cdef size_t count = w.out.tree.nodes[step.node].count
    cdef const Step* field
    cdef int64_t truth = 0
    cdef int32_t id = 0
    cdef int32_t i
    cdef uint32_t guess = 0
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
        i = find_number(step.ids, step.count, id, guess)
        field = &w.steps[step.children[max(i, 0)]]
        refusal = FINE
        if i < 0 or field.type != type:
            if truth < 0:
                refusal = skip_value(w, r, type)
        else:
            guess = <uint32_t>i + 1
            refusal = make_room(w, field, count)
            if refusal == FINE and truth < 0:
                refusal = read_value(w, r, field)
            elif refusal == FINE:
                flag = <uint8_t>truth
                refusal = FINE if add_fixed(&w.out.tree.nodes[field.node], &flag, 1) else FULL
        if refusal != FINE:
            return refusal
    w.walk.depth -= 1
    return close_struct(w, step, count)


cdef Refusal read_value(StructWalk* w, Reader* r, const Step* step) noexcept nogil:
    # Read one value and add it to its node.
    cdef Fault fault
    if not charge(&w.out, 1):
        return MANY
    if step.type == STRING:
        return read_string(w, r, step)
    if step.type == STRUCT:
        fault = open_value(&w.walk, r, STRUCT)
        return explain(fault) if fault else read_struct(w, r, step)
    if MAP <= step.type <= LIST:
        return read_elements(w, r, step)
    return read_number(w, r, step)


cdef Refusal read_payload(void* walk, Reader* r, Py_ssize_t _) noexcept nogil:
    cdef StructWalk* w = <StructWalk*>walk
    cdef Refusal refusal
    begin_walk(&w.walk, w.walk.compact, COMPACT_VERSION)
    refusal = read_struct(w, r, &w.steps[0])
    return MORE if refusal == FINE and r.at < r.end else refusal


def read_structs(ByteStrings payloads, ValueBuilder builder, StructProgram program, *,
                 bint compact):
    """Add a struct to node 0 of a builder for each payload. Return uint8 numbers of `REASONS`.

    program: its step 0 reads a whole struct. compact: whether payloads have the compact protocol.

    A number n > 0 is the reason REASONS[n - 1]. The struct is then null, as it is for a null
    payload. Raises MemoryError.
    """
    cdef StructWalk w
    cdef int32_t prefix = 0
    begin_output(&w.out, builder, 1)
    w.walk.compact = compact
    w.steps = program.steps
    return read_payloads(payloads, &prefix, 0, &w, read_payload)
