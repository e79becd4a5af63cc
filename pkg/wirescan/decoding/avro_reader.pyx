# cython: boundscheck=False, wraparound=False
"""Values of Avro's binary encoding into columns, by a program that `avro_schema.py` compiles.

int, long   zig-zag varint                  boolean   one byte, 0 or 1
float       4 bytes, little-endian          double    8 bytes, little-endian
bytes       long | bytes                    string    long | UTF-8
enum        int, the number of the symbol   fixed     bytes
array, map  blocks: long count | elements; after a negative count a long, the bytes in the block;
            a count of 0 ends. If a key occurs twice, its last entry counts.
union       long, the number of the branch | value
record      the values of its fields

Source: Apache Avro specification 1.12, "Binary Encoding" and "Schema Resolution".
"""
import numpy as np

from wirescan.decoding import payload_reader

from libc.stdint cimport INT64_MIN
from wirescan.core cimport OK, Reader, le32, le64, left, take, zigzag64
from wirescan.core.strings cimport ByteStrings
from wirescan.decoding.map_entries cimport keep_last_entries
from wirescan.decoding.payload_reader cimport (
    DEEP, FINE, FIRST_OWN, FULL, MANY, Output, ProgramMemory, Refusal, begin_output, charge,
    put_null, put_text, read_payloads)
from wirescan.decoding.value_builder cimport (
    Node, ValueBuilder, add_bytes, add_fixed, add_validity, close_list, int32_t, int64_t, memcpy,
    uint8_t, uint32_t, uint64_t)

cdef enum:
    CUT = FIRST_OWN
    BAD_NUMBER, BAD_SIZE, BAD_BOOLEAN, BAD_SYMBOL, BAD_BRANCH, BAD_DECIMAL, UNRESOLVED, MORE

# The reasons, by the numbers of refusals from 1 on.
REASONS = (
    *payload_reader.SHARED_REASONS,
    "it ends inside a value",
    "a number is outside its range",
    "a size is negative",
    "a boolean is neither 0 nor 1",
    "an enum has a symbol that its schema does not have",
    "a union has a branch that its schema does not have",
    "a decimal has more digits than its precision",
    "a value has a type that the reader's schema does not have",
    "bytes follow the value",
)

cpdef enum Op:
    NOTHING, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BINARY, STRING, FIXED, ENUM, DECIMAL, RECORD, ARRAY,
    MAP, UNION, BRANCH, DEFAULT, ERROR

cpdef enum Target:              # the type that a number has in the column
    AS_INT, AS_LONG, AS_FLOAT, AS_DOUBLE

cdef enum:
    DEEPEST = 100               # steps inside each other
    DECIMAL_BYTES = 16

cdef struct Step:
    Op op
    int32_t node                # -1: the value is skipped
    int32_t argument
    int32_t count               # of children
    const int32_t* children
    # DEFAULT: a value. DECIMAL: the limit, two uint64, low first. INT, LONG: nothing, or the limit
    # of numbers from 0 on, an int64.
    const uint8_t* constant
    int32_t constant_size

cdef struct Walk:
    Output out
    const Step* steps           # of the program of this payload
    const Step** programs
    const int32_t* program_of   # for each payload its index in `programs`


cdef class Program(ProgramMemory):
    """Steps that read values of one schema: Program([(op, node, argument, children, constant)]).

    op: a number of `Op`. node: a node of the `ValueBuilder`, or -1 to skip a value.
    argument: numbers: a `Target`. BINARY and STRING: 1 if the bytes must be UTF-8. FIXED: the
        bytes. DECIMAL: the bytes, or -1 if a size is before them. BRANCH: the child of the struct.
    children: the steps inside. ENUM: for each symbol the number in the column, or -1.
    constant: DEFAULT: an encoded value. DECIMAL: 16 bytes, the smallest number that is too large.
        INT and LONG: nothing, or 8 bytes: the number is at least 0 and less than these.
    """
    cdef Step* steps

    def __cinit__(self, list steps):
        cdef Step* step
        cdef int32_t i
        self.steps = <Step*>self.allocate(len(steps), sizeof(Step))
        for i, (op, node, argument, children, constant) in enumerate(steps):
            step = &self.steps[i]
            step.op = op
            step.node = node
            step.argument = argument
            step.count = <int32_t>len(children)
            step.children = self.keep_numbers(children)
            step.constant = self.keep_bytes(constant)
            step.constant_size = <int32_t>len(constant)


cdef inline Refusal add_number(Walk* walk, const Step* step, int64_t number) noexcept nogil:
    cdef Node* node
    cdef int32_t small = <int32_t>number
    cdef float single
    cdef double real
    cdef int64_t limit
    if step.node < 0:
        return FINE
    if step.constant_size:
        memcpy(&limit, step.constant, 8)
        if not 0 <= number < limit:
            return BAD_NUMBER
    node = &walk.out.tree.nodes[step.node]
    if step.argument == AS_INT:
        return FINE if add_fixed(node, &small, 4) else FULL
    if step.argument == AS_LONG:
        return FINE if add_fixed(node, &number, 8) else FULL
    if step.argument == AS_FLOAT:
        single = <float>number
        return FINE if add_fixed(node, &single, 4) else FULL
    real = <double>number
    return FINE if add_fixed(node, &real, 8) else FULL


cdef inline Refusal read_number(Walk* walk, Reader* r, const Step* step) noexcept nogil:
    cdef int64_t number = 0
    if zigzag64(r, &number) != OK:
        return CUT if r.at >= r.end or left(r) < 10 else BAD_NUMBER
    if step.op == INT and not -0x80000000 <= number <= 0x7fffffff:
        return BAD_NUMBER
    return add_number(walk, step, number)


cdef inline Refusal read_real(Walk* walk, Reader* r, const Step* step) noexcept nogil:
    cdef uint32_t word
    cdef uint64_t long_word
    cdef float single
    cdef double real
    cdef const uint8_t* p = take(r, 4 if step.op == FLOAT else 8)
    cdef Node* node
    if p is NULL:
        return CUT
    if step.node < 0:
        return FINE
    node = &walk.out.tree.nodes[step.node]
    if step.op == FLOAT:
        word = le32(p)
        if step.argument == AS_FLOAT:
            return FINE if add_fixed(node, &word, 4) else FULL
        memcpy(&single, &word, 4)
        real = <double>single
        return FINE if add_fixed(node, &real, 8) else FULL
    long_word = le64(p)
    return FINE if add_fixed(node, &long_word, 8) else FULL


cdef inline Refusal read_size(Reader* r, int64_t* size) noexcept nogil:
    if zigzag64(r, size) != OK:
        return CUT
    if size[0] < 0:
        return BAD_SIZE
    return FINE if <uint64_t>size[0] <= left(r) else CUT


cdef inline Refusal take_bytes(
        Reader* r, bint is_sized, int64_t* size, const uint8_t** p) noexcept nogil:
    # Step over bytes. `is_sized`: their size is before them.
    cdef Refusal refusal
    if is_sized:
        refusal = read_size(r, size)
        if refusal != FINE:
            return refusal
    p[0] = take(r, <size_t>size[0])
    return CUT if p[0] is NULL else FINE


cdef Refusal read_bytes(Walk* walk, Reader* r, const Step* step) noexcept nogil:
    cdef int64_t size = step.argument
    cdef const uint8_t* p = NULL
    cdef Node* node
    cdef Refusal refusal = take_bytes(r, step.op != FIXED, &size, &p)
    if refusal != FINE:
        return refusal
    if step.node < 0:
        return FINE
    node = &walk.out.tree.nodes[step.node]
    if step.op == FIXED:
        return FINE if add_fixed(node, p, <size_t>size) else FULL
    if step.argument:
        return put_text(node, p, <size_t>size)
    return FINE if add_bytes(node, p, <size_t>size) else FULL


cdef Refusal read_decimal(Walk* walk, Reader* r, const Step* step) noexcept nogil:
    # A decimal is a big-endian number in two's complement.
    cdef int64_t size = step.argument
    cdef const uint8_t* p = NULL
    cdef uint8_t sign
    cdef uint64_t[2] words
    cdef uint64_t low, high, limit_low, limit_high
    cdef int64_t i
    cdef Refusal refusal = take_bytes(r, size < 0, &size, &p)
    if refusal != FINE:
        return refusal
    if step.node < 0:
        return FINE
    sign = 0xff if size and p[0] & 0x80 else 0
    while size > DECIMAL_BYTES:
        if p[0] != sign:
            return BAD_DECIMAL
        p += 1
        size -= 1
    words[0] = words[1] = 0xffffffffffffffffu if sign else 0
    for i in range(size):
        words[1] = words[1] << 8 | words[0] >> 56
        words[0] = words[0] << 8 | p[i]
    low, high = words[0], words[1]
    if (sign == 0xff) != (high >> 63 == 1):
        return BAD_DECIMAL
    if high >> 63:
        low = ~low + 1
        high = ~high + (low == 0)
    memcpy(&limit_low, step.constant, 8)
    memcpy(&limit_high, step.constant + 8, 8)
    if high > limit_high or high == limit_high and low >= limit_low:
        return BAD_DECIMAL
    return FINE if add_fixed(&walk.out.tree.nodes[step.node], words, 16) else FULL


cdef Refusal read_enum(Walk* walk, Reader* r, const Step* step) noexcept nogil:
    cdef int64_t number = 0
    cdef int32_t symbol
    if zigzag64(r, &number) != OK:
        return CUT
    if not 0 <= number < step.count:
        return BAD_SYMBOL
    if step.node < 0:
        return FINE
    symbol = step.children[number]
    if symbol < 0:
        return UNRESOLVED
    return FINE if add_fixed(&walk.out.tree.nodes[step.node], &symbol, 4) else FULL


cdef Refusal read_blocks(Walk* walk, Reader* r, const Step* step, int depth) noexcept nogil:
    cdef int64_t count = 0, size = 0, i
    cdef int32_t entries = -1
    cdef int32_t j
    cdef Refusal refusal
    if step.op == MAP and step.node >= 0:
        entries = walk.out.tree.children[walk.out.tree.nodes[step.node].first_child]
    while True:
        if zigzag64(r, &count) != OK:
            return CUT
        if count == 0:
            break
        if count < 0:
            if count == INT64_MIN:
                return BAD_SIZE
            count = -count
            refusal = read_size(r, &size)
            if refusal != FINE:
                return refusal
        i = 0
        while i < count:
            for j in range(step.count):
                refusal = read(walk, r, step.children[j], depth + 1)
                if refusal != FINE:
                    return refusal
            if entries >= 0 and not add_validity(&walk.out.tree.nodes[entries], 1):
                return FULL
            i += 1
    if step.node < 0:
        return FINE
    if entries >= 0 and not keep_last_entries(walk.out.tree, step.node, entries):
        return FULL
    return FINE if close_list(walk.out.tree, &walk.out.tree.nodes[step.node]) else FULL


cdef Refusal read_branch(Walk* walk, Reader* r, const Step* step, int depth) noexcept nogil:
    # Read a value into one member of a struct. The other members are null.
    cdef Node* node = &walk.out.tree.nodes[step.node]
    cdef int32_t i
    cdef Refusal refusal
    refusal = FINE
    for i in range(node.child_count):
        if i == step.argument:
            refusal = read(walk, r, step.children[0], depth + 1)
        else:
            refusal = put_null(&walk.out, walk.out.tree.children[node.first_child + i])
        if refusal != FINE:
            return refusal
    return FINE if add_validity(node, 1) else FULL


cdef Refusal read(Walk* walk, Reader* r, int32_t number, int depth) noexcept nogil:
    # Read one value and add it to its node.
    cdef const Step* step = &walk.steps[number]
    cdef const uint8_t* p
    cdef int64_t branch = 0
    cdef int32_t i
    cdef Reader constant
    cdef Refusal refusal
    if not charge(&walk.out, 1):
        return MANY
    if depth > DEEPEST:
        return DEEP
    if step.op == INT or step.op == LONG:
        return read_number(walk, r, step)
    if step.op == BINARY or step.op == STRING or step.op == FIXED:
        return read_bytes(walk, r, step)
    if step.op == FLOAT or step.op == DOUBLE:
        return read_real(walk, r, step)
    if step.op == UNION:
        if zigzag64(r, &branch) != OK:
            return CUT
        if not 0 <= branch < step.count:
            return BAD_BRANCH
        return read(walk, r, step.children[branch], depth + 1)
    if step.op == NOTHING:
        return FINE if step.node < 0 else put_null(&walk.out, step.node)
    if step.op == BOOLEAN:
        p = take(r, 1)
        if p is NULL:
            return CUT
        if p[0] > 1:
            return BAD_BOOLEAN
        if step.node < 0:
            return FINE
        return FINE if add_fixed(&walk.out.tree.nodes[step.node], p, 1) else FULL
    if step.op == RECORD:
        for i in range(step.count):
            refusal = read(walk, r, step.children[i], depth + 1)
            if refusal != FINE:
                return refusal
        if step.node < 0:
            return FINE
        return FINE if add_validity(&walk.out.tree.nodes[step.node], 1) else FULL
    if step.op == ARRAY or step.op == MAP:
        return read_blocks(walk, r, step, depth)
    if step.op == ENUM:
        return read_enum(walk, r, step)
    if step.op == DECIMAL:
        return read_decimal(walk, r, step)
    if step.op == BRANCH:
        return read_branch(walk, r, step, depth)
    if step.op == DEFAULT:
        constant.at = step.constant
        constant.end = step.constant + step.constant_size
        return read(walk, &constant, step.children[0], depth + 1)
    return UNRESOLVED


cdef Refusal read_payload(void* payload_walk, Reader* r, Py_ssize_t i) noexcept nogil:
    cdef Walk* walk = <Walk*>payload_walk
    cdef Refusal refusal
    if walk.program_of[i] < 0:
        return FINE
    walk.steps = walk.programs[walk.program_of[i]]
    refusal = read(walk, r, 0, 0)
    return MORE if refusal == FINE and r.at < r.end else refusal


def read_values(ByteStrings payloads, ValueBuilder builder, list programs,
                const int32_t[::1] program_of, uint32_t prefix):
    """Add a value to node 0 of a builder for each payload. Return uint8 numbers of `REASONS`.

    payloads: each has `prefix` bytes before its value.
    programs: of type Program, for one tree. Step 0 of each reads a whole value.
    program_of: for each payload the index of its program, or -1 for a null.

    A number n > 0 is the reason REASONS[n - 1]. The value is then null. Raises MemoryError,
    TypeError for programs of another type, and ValueError for another number of indexes.
    """
    cdef ProgramMemory memory = ProgramMemory()
    cdef int32_t prefix_size = <int32_t>prefix
    cdef Py_ssize_t i
    cdef Walk walk
    if len(program_of) != len(payloads):
        raise ValueError("each payload has the index of a program")
    if len(program_of) == 0:
        return np.zeros(0, np.uint8)
    begin_output(&walk.out, builder, 1)
    walk.program_of = &program_of[0]
    walk.programs = <const Step**>memory.allocate(len(programs), sizeof(Step*))
    for i in range(len(programs)):
        walk.programs[i] = (<Program?>programs[i]).steps
    return read_payloads(payloads, &prefix_size, 0, &walk, read_payload)
