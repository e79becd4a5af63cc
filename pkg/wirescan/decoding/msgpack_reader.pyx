# cython: boundscheck=False, wraparound=False
"""MessagePack maps into columns, by a program that `msgpack_types.py` compiles.

Each value begins with a byte that has its type. It also has a small value or size, or says how
many bytes of a big-endian number or size follow:

00-7f, e0-ff  integer               c0, c2, c3   nil, false, true
80-8f         map                   c4-c6        binary, size of 1, 2, 4 bytes
90-9f         array                 c7-c9        extension, size of 1, 2, 4 bytes
a0-bf         string                ca, cb       float of 4, 8 bytes
c1            never used            cc-cf        unsigned integer of 1, 2, 4, 8 bytes
dc, dd        array                 d0-d3        signed integer of 1, 2, 4, 8 bytes
de, df        map                   d4-d8        extension of 1, 2, 4, 8, 16 bytes
d9-db         string, size of 1, 2, 4 bytes

After the size of an extension comes a byte, its type. Type -1 is a timestamp.

Source: MessagePack specification, "Formats" and "Timestamp extension type".
"""
import numpy as np

from libc.float cimport FLT_MAX
from libc.math cimport fabs, isinf
from libc.stdint cimport INT64_MAX
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp
from wirescan.core cimport Reader, be16, be32, be64, int8_t, int16_t, left, take, uint16_t
from wirescan.core.strings cimport ByteStrings
from wirescan.decoding.utf8 cimport is_utf8
from wirescan.decoding.value_builder cimport (
    Node, Tree, ValueBuilder, add_bytes, add_fixed, add_null, add_validity, close_list, int32_t,
    int64_t, memcpy, truncate, uint8_t, uint32_t, uint64_t)

cdef enum Refusal:
    FINE, CUT, UNUSED_BYTE, NOT_A_MAP, WRONG_TYPE, BAD_NUMBER, NOT_TEXT, BAD_KEY, TWICE, BAD_TIME,
    MANY, DEEP, MORE, FULL

# The reasons, by the numbers of `Refusal` from 1 on.
REASONS = (
    "it ends inside a value",
    "it has the byte c1, which MessagePack does not use",
    "it is not a map",
    "a value has another type than its column",
    "a number is outside its range",
    "a string is not UTF-8",
    "a key is neither a string nor an integer",
    "a map has a key twice",
    "a timestamp is outside its range",
    "it has too many values for its size",
    "its values are nested too deeply",
    "bytes follow the map",
    "its column has 2 GiB, or there is no memory",
)
REFUSALS = 16                   # numbers in `read_maps` for each step

cpdef enum MapOp:
    NOTHING, BOOLEAN, INTEGER, FLOAT, DOUBLE, BINARY, STRING, TIME, ARRAY, STRUCT, MAP

cpdef enum ValueKind:                # of a value
    NIL, TRUTH, NUMBER, LARGE, REAL, TEXT, OCTETS, STAMP, EXTENSION, ELEMENTS, PAIRS

cdef enum:
    VALUES_PER_BYTE = 64        # values that a payload may have for each byte
    EXTRA_VALUES = 1 << 22      # ... and further ones of all payloads together
    DEEPEST = 50                # nesting of arrays and maps whose types are inferred
    SAMPLE_VALUES = 1 << 19     # values from which types are inferred
    DIGITS = 24                 # characters of an integer, with sign and NUL
    STAMP_TYPE = 255            # -1, the type of timestamps
    BILLION = 1000000000

cdef struct Value:
    ValueKind kind
    int64_t number              # TRUTH and NUMBER; LARGE: the bits of an unsigned number
    double real
    const uint8_t* octets       # TEXT, OCTETS, STAMP, EXTENSION
    uint32_t size               # of `octets`; ELEMENTS and PAIRS: how many

cdef struct Step:
    MapOp op
    int32_t node
    int32_t count               # of children
    const int32_t* children     # STRUCT: for each member; ARRAY: one; MAP: key and value
    const uint8_t* names        # STRUCT: the names of the members, one after another
    const int32_t* name_ends    # ... where each ends
    const int32_t* by_size      # ... and the members by size of the name, then by its bytes
    uint32_t width              # INTEGER: bytes
    int64_t low                 # INTEGER: the smallest number
    uint64_t high               # INTEGER: the largest number; TIME: the units in a second

cdef struct MapWalk:
    const Step* steps
    Tree* tree
    int64_t budget              # values that may still be added
    int32_t refused             # the step whose value was refused, or -1


cdef class MapProgram:
    """Steps that read maps: MapProgram([(op, node, children, names, width, low, high), ...]).

    op: a number of `MapOp`. node: a node of the `ValueBuilder`.
    children: the steps of the members, or of the elements, or of key and value.
    names: bytes, the names of the members of a struct.
    width, low, high: INTEGER: bytes, and the smallest and largest number. TIME: high is the number
        of units in a second.
    """
    cdef Step* steps
    cdef list owners

    def __cinit__(self, list steps):
        cdef int32_t i
        cdef Step* step
        self.owners = []
        self.steps = <Step*>calloc(max(len(steps), 1), sizeof(Step))
        if self.steps is NULL:
            raise MemoryError("no memory for a schema")
        for i, (op, node, children, names, width, low, high) in enumerate(steps):
            step = &self.steps[i]
            step.op = op
            step.node = node
            step.count = <int32_t>len(children)
            step.children = self.keep_numbers(children)
            octets = b"".join(names)
            self.owners.append(octets)
            step.names = <const uint8_t*><const char*><bytes>octets
            step.name_ends = self.keep_numbers(np.cumsum([len(name) for name in names]))
            order = sorted(range(len(names)), key=lambda j: (len(names[j]), names[j]))
            step.by_size = self.keep_numbers(order)
            step.width = width
            step.low = low
            step.high = high

    cdef const int32_t* keep_numbers(self, values) except NULL:
        cdef const int32_t[::1] numbers = np.array([*values, 0], np.int32)
        self.owners.append(numbers)
        return &numbers[0]

    def __dealloc__(self):
        free(self.steps)


# ---------------------------------------------------------------------------- values


cdef inline Refusal take_octets(
        Reader* r, Value* value, ValueKind kind, uint32_t size) noexcept nogil:
    value.kind = kind
    value.size = size
    value.octets = take(r, size)
    return CUT if value.octets is NULL else FINE


cdef inline Refusal take_extension(Reader* r, Value* value, uint32_t size) noexcept nogil:
    cdef const uint8_t* p = take(r, 1)
    if p is NULL:
        return CUT
    return take_octets(r, value, STAMP if p[0] == STAMP_TYPE else EXTENSION, size)


cdef inline Refusal set_count(
        Reader* r, Value* value, ValueKind kind, uint32_t count) noexcept nogil:
    # Each element has a byte at least.
    value.kind = kind
    value.size = count
    return CUT if <uint64_t>count * (2 if kind == PAIRS else 1) > left(r) else FINE


cdef Refusal take_sized(Reader* r, uint8_t first, Value* value) noexcept nogil:
    # Read a value after its first byte, c4 to c9 or d9 to df, which has its size in further bytes.
    cdef const uint8_t* p
    cdef uint32_t size
    cdef int exponent           # of the number of bytes
    if first <= 0xc9:
        exponent = (first - 0xc4) % 3
    elif first <= 0xdb:
        exponent = first - 0xd9
    else:
        exponent = 1 + (first & 1)
    p = take(r, 1 << exponent)
    if p is NULL:
        return CUT
    size = p[0] if exponent == 0 else be16(p) if exponent == 1 else be32(p)
    if first <= 0xc6:
        return take_octets(r, value, OCTETS, size)
    if first <= 0xc9:
        return take_extension(r, value, size)
    if first <= 0xdb:
        return take_octets(r, value, TEXT, size)
    return set_count(r, value, ELEMENTS if first <= 0xdd else PAIRS, size)


cdef Refusal take_number(Reader* r, uint8_t first, Value* value) noexcept nogil:
    # Read a number after its first byte, ca to d3.
    cdef int exponent = 2 + (first & 1) if first <= 0xcb else first & 3
    cdef const uint8_t* p = take(r, 1 << exponent)
    cdef uint64_t bits
    cdef uint32_t word
    cdef float single
    if p is NULL:
        return CUT
    if exponent == 0:
        bits = p[0]
    elif exponent == 1:
        bits = be16(p)
    elif exponent == 2:
        bits = be32(p)
    else:
        bits = be64(p)
    if first == 0xca:
        word = <uint32_t>bits
        memcpy(&single, &word, 4)
        value.real = single
    elif first == 0xcb:
        memcpy(&value.real, &bits, 8)
    elif first == 0xd0:
        value.number = <int8_t>bits
    elif first == 0xd1:
        value.number = <int16_t>bits
    elif first == 0xd2:
        value.number = <int32_t>bits
    else:
        value.number = <int64_t>bits
    if first <= 0xcb:
        value.kind = REAL
    else:
        value.kind = LARGE if first == 0xcf and value.number < 0 else NUMBER
    return FINE


cdef inline Refusal take_value(Reader* r, Value* value) noexcept nogil:
    # Read a value, or the head of an array or a map.
    cdef const uint8_t* p = take(r, 1)
    cdef uint8_t first
    if p is NULL:
        return CUT
    first = p[0]
    if first < 0x80 or first >= 0xe0:
        value.kind = NUMBER
        value.number = <int8_t>first
        return FINE
    if first >= 0xa0 and first < 0xc0:
        return take_octets(r, value, TEXT, first & 31)
    if first < 0xa0:
        return set_count(r, value, PAIRS if first < 0x90 else ELEMENTS, first & 15)
    if first == 0xc0:
        value.kind = NIL
        return FINE
    if first == 0xc1:
        return UNUSED_BYTE
    if first <= 0xc3:
        value.kind = TRUTH
        value.number = first & 1
        return FINE
    if first >= 0xca and first <= 0xd3:
        return take_number(r, first, value)
    if first >= 0xd4 and first <= 0xd8:
        return take_extension(r, value, 1 << (first - 0xd4))
    return take_sized(r, first, value)


cdef inline uint64_t count_inner(const Value* value) noexcept nogil:
    # Return the number of values that directly follow the head of an array or a map.
    if value.kind == PAIRS:
        return 2 * <uint64_t>value.size
    return value.size if value.kind == ELEMENTS else 0


cdef Refusal skip_values(Reader* r, uint64_t count) noexcept nogil:
    # Skip values with all values in them. It does not recurse, so they may be nested in any way.
    cdef Value value
    cdef Refusal refusal
    while count:
        refusal = take_value(r, &value)
        if refusal != FINE:
            return refusal
        count += count_inner(&value)
        count -= 1
    return FINE


cdef Refusal read_stamp(const Value* value, int64_t* seconds, uint32_t* nanos) noexcept nogil:
    cdef const uint8_t* p = value.octets
    cdef uint64_t word
    nanos[0] = 0
    if value.size == 4:
        seconds[0] = be32(p)
    elif value.size == 8:
        word = be64(p)
        nanos[0] = <uint32_t>(word >> 34)
        seconds[0] = <int64_t>(word & 0x3ffffffffu)
    elif value.size == 12:
        nanos[0] = be32(p)
        seconds[0] = <int64_t>be64(p + 4)
    else:
        return BAD_TIME
    return FINE if nanos[0] < BILLION else BAD_TIME


# ---------------------------------------------------------------------------- columns


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
        if not is_utf8(value.octets, value.size):
            return NOT_TEXT
        return FINE if add_bytes(node, value.octets, value.size) else FULL
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


cdef inline bint is_name(
        const Step* step, int32_t i, const uint8_t* p, uint32_t size) noexcept nogil:
    cdef int32_t start = step.name_ends[i - 1] if i else 0
    if <uint32_t>(step.name_ends[i] - start) != size:
        return False
    return memcmp(step.names + start, p, size) == 0


cdef int32_t find_member(
        const Step* step, int32_t guess, const uint8_t* p, uint32_t size) noexcept nogil:
    # Return the member of a name, or -1. The guess is mostly right.
    cdef int32_t low = 0
    cdef int32_t high = step.count
    cdef int32_t middle, i, start
    cdef uint32_t other
    if guess < high and is_name(step, guess, p, size):
        return guess
    while low < high:
        middle = (low + high) // 2
        i = step.by_size[middle]
        start = step.name_ends[i - 1] if i else 0
        other = <uint32_t>(step.name_ends[i] - start)
        if other < size or other == size and memcmp(step.names + start, p, size) < 0:
            low = middle + 1
        else:
            high = middle
    if low < step.count and is_name(step, step.by_size[low], p, size):
        return step.by_size[low]
    return -1


cdef Refusal take_key(Reader* r, Value* key, char* digits) noexcept nogil:
    # Read a key. An integer becomes its digits.
    cdef int size
    cdef Refusal refusal = take_value(r, key)
    if refusal != FINE or key.kind == TEXT:
        return refusal
    if key.kind == NUMBER:
        size = snprintf(digits, DIGITS, b"%lld", <long long>key.number)
    elif key.kind == LARGE:
        size = snprintf(digits, DIGITS, b"%llu", <unsigned long long>key.number)
    else:
        return BAD_KEY
    key.octets = <const uint8_t*>digits
    key.size = <uint32_t>size
    return FINE


cdef Refusal put_null(MapWalk* w, int32_t node) noexcept nogil:
    w.budget -= w.tree.nodes[node].weight
    if w.budget < 0:
        return MANY
    return FINE if add_null(w.tree, node) else FULL


cdef Refusal read_members(MapWalk* w, Reader* r, const Step* step, uint32_t pairs) noexcept nogil:
    # Read the pairs of a map into a struct.
    cdef size_t count = w.tree.nodes[step.node].count
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
        elif w.tree.nodes[w.steps[step.children[i]].node].count > count:
            return TWICE
        else:
            guess = i + 1
            refusal = read(w, r, step.children[i])
        if refusal != FINE:
            return refusal
    for i in range(step.count):
        node = w.steps[step.children[i]].node
        if w.tree.nodes[node].count == count:
            refusal = put_null(w, node)
            if refusal != FINE:
                return refusal
    return FINE if add_validity(&w.tree.nodes[step.node], 1) else FULL


cdef Refusal read_elements(MapWalk* w, Reader* r, const Step* step, uint32_t count) noexcept nogil:
    # Read an array, or the pairs of a map, into a list.
    cdef Node* node = &w.tree.nodes[step.node]
    cdef Refusal refusal
    for _ in range(count):
        if step.op == MAP:
            if r.at < r.end and r.at[0] == 0xc0:
                return BAD_KEY          # Arrow's maps have no null as a key
            refusal = read(w, r, step.children[0])
            if refusal != FINE:
                return refusal
        refusal = read(w, r, step.children[step.count - 1])
        if refusal != FINE:
            return refusal
        if step.op == MAP:
            if not add_validity(&w.tree.nodes[w.tree.children[node.first_child]], 1):
                return FULL
    return FINE if close_list(w.tree, node) else FULL


cdef Refusal read_fitting(MapWalk* w, Reader* r, const Step* step) noexcept nogil:
    # Read one value and add it to the node of its step.
    cdef Value value
    cdef Refusal refusal = take_value(r, &value)
    if refusal != FINE:
        return refusal
    w.budget -= 1
    if w.budget < 0:
        return MANY
    if value.kind == NIL:
        return put_null(w, step.node)
    if value.kind == PAIRS:
        if step.op == STRUCT:
            return read_members(w, r, step, value.size)
        if step.op == MAP:
            return read_elements(w, r, step, value.size)
        # An inferred column of empty maps has the type null.
        if step.op == NOTHING and value.size == 0:
            return put_null(w, step.node)
        return WRONG_TYPE
    if value.kind == ELEMENTS:
        return read_elements(w, r, step, value.size) if step.op == ARRAY else WRONG_TYPE
    return add_scalar(&w.tree.nodes[step.node], step, &value)


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


def read_maps(ByteStrings payloads, ValueBuilder builder, MapProgram program):
    """Add a struct to node 0 of a builder for each payload. Return uint32 refusals.

    program: its step 0 has the members of the maps.

    A refusal n > 0 is the reason REASONS[n % REFUSALS - 1], for a value of the step n // REFUSALS.
    The struct is then null, as it is for a null payload. Raises MemoryError.
    """
    cdef Py_ssize_t i, n = len(payloads)
    cdef Py_ssize_t step = payloads.strings.step
    cdef const uint64_t* address = payloads.strings.address
    cdef const int32_t* size = payloads.strings.size
    refusals = np.zeros(n, np.uint32)
    cdef uint32_t[::1] refusal = refusals
    cdef uint32_t per_step = REFUSALS
    cdef MapWalk w
    cdef Reader r
    cdef Refusal result
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
                w.refused = -1
                w.budget = (
                    w.tree.nodes[0].weight + VALUES_PER_BYTE * <int64_t>left(&r) + extra)
                result = read_map(&w, &r)
                extra = min(extra, max(w.budget, 0))
                if result == FINE:
                    continue
                refusal[i] = per_step * <uint32_t>max(w.refused, 0) + result
                truncate(w.tree, 0, count)
            if not add_null(w.tree, 0):
                full = True
                break
    if full:
        raise MemoryError("no memory for the values")
    return refusals


# ---------------------------------------------------------------------------- inference


cdef Refusal check_values(Reader* r, uint64_t count, int depth) noexcept nogil:
    # Skip values, and refuse those that are nested too deeply.
    cdef Value value
    cdef Refusal refusal
    if depth > DEEPEST:
        return DEEP
    while count:
        refusal = take_value(r, &value)
        if refusal != FINE:
            return refusal
        if value.kind >= ELEMENTS:
            refusal = check_values(r, count_inner(&value), depth + 1)
            if refusal != FINE:
                return refusal
        count -= 1
    return FINE


cdef int add_shape(Reader* r, object shape, int64_t* budget) except -1:
    # Add a value that `check_values` accepts to a shape. The budget is a number of values.
    cdef Value value
    cdef Value key
    cdef char[DIGITS] digits
    cdef bint is_open
    value.kind = NIL
    take_value(r, &value)
    budget[0] -= 1
    is_open = shape.add(<int>value.kind, value.kind == NUMBER and value.number < 0)
    if value.kind == ELEMENTS or value.kind == PAIRS:
        for _ in range(value.size):
            inner = None
            if value.kind == PAIRS:
                if take_key(r, &key, digits) == BAD_KEY:
                    skip_values(r, count_inner(&key))
                elif is_open:
                    inner = shape.find_member((<char*>key.octets)[:key.size])
            elif is_open:
                inner = shape.find_item()
            if inner is None or budget[0] <= 0:
                skip_values(r, 1)
            else:
                add_shape(r, inner, budget)
    return 0


def infer_shapes(ByteStrings payloads, shape):
    """Add all payloads that are whole maps to a `Shape`, up to half a million values.

    Raises what the methods of the shape raise.
    """
    cdef Py_ssize_t i
    cdef Py_ssize_t step = payloads.strings.step
    cdef const uint8_t* start
    cdef Reader r
    cdef Refusal refusal
    cdef int64_t budget = SAMPLE_VALUES
    for i in range(len(payloads)):
        if payloads.strings.size[i * step] <= 0 or budget <= 0:
            continue
        start = <const uint8_t*>payloads.strings.address[i * step]
        r.at = start
        r.end = start + payloads.strings.size[i * step]
        if not 0x80 <= start[0] <= 0x8f and start[0] != 0xde and start[0] != 0xdf:
            continue
        refusal = check_values(&r, 1, 0)
        if refusal != FINE or r.at < r.end:
            continue
        r.at = start
        add_shape(&r, shape, &budget)
