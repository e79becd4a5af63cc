# cython: boundscheck=False, wraparound=False
"""Messages of Protobuf's binary encoding into columns, by a program of `protobuf_schema.py`.

message   fields, in any order: tag | value. The tag is a varint: field number << 3 | wire type
wire type 0   varint                               1   8 bytes, little-endian
          2   varint, the size | bytes             5   4 bytes, little-endian
          3   fields up to a tag of wire type 4 with the same field number: a group

A field may occur several times. The last value of a scalar counts, and the occurrences of a
message are merged. So a message stays open until the message around it ends: its columns get the
values of missing fields only then. As no type contains itself, each message of the program is open
at most once.

Source: protobuf.dev, "Encoding".
"""
import numpy as np

from libc.stdint cimport INT64_MAX, INT64_MIN
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memcmp, memset
from wirescan.core cimport OK, Reader, TOPS, TRUNCATED, le32, le64, left, lowest, take, varint32
from wirescan.core.reader cimport groups
from wirescan.core.strings cimport ByteStrings
from wirescan.decoding.utf8 cimport is_utf8
from wirescan.decoding.value_builder cimport (
    BYTES, FIXED, Node, Tree, ValueBuilder, add_bytes, add_fixed, add_null, add_validity,
    close_list, int32_t, int64_t, retain, truncate, uint8_t, uint32_t, uint64_t)

cdef enum Refusal:
    FINE, CUT, BAD_VARINT, BAD_TAG, BAD_WIRE_TYPE, BAD_GROUP, BAD_PACKED, NOT_TEXT, BAD_NANOS,
    FAR_TIME, MANY, DEEP, FULL

# The reasons, by the numbers of `Refusal` from 1 on.
REASONS = (
    "it ends inside a field",
    "a varint has too many bytes",
    "a field has the number 0",
    "a field has a wire type that does not exist",
    "a group ends that did not begin",
    "the size of packed numbers is no multiple of their width",
    "a string is not UTF-8",
    "the nanos of a Timestamp or Duration are out of range",
    "a Timestamp or Duration does not fit into 64 bits of nanoseconds",
    "it has too many values for its size",
    "its values are nested too deeply",
    "its column has 2 GiB, or there is no memory",
)

cpdef enum ValueType:
    BOOLEAN, INT32, INT64, SINT32, SINT64, ENUM, FIXED32, FIXED64, BINARY, STRING, MESSAGE, GROUP

cpdef enum MessageKind:
    RECORD,                     # a struct
    ENTRY,                      # a struct: the entry of a map
    WRAPPER,                    # its only field has its column
    TIMESTAMP, DURATION         # seconds and nanos become one number

cdef enum WireType:
    VARINT, WORD64, SIZED, GROUP_START, GROUP_END, WORD32

cdef enum:
    DEEPEST = 100               # messages and groups inside each other, as in Protobuf's libraries
    NEAR = 4                    # fields that are compared before a binary search
    SMALL_MAP = 16              # entries whose keys are compared in pairs
    VALUES_PER_BYTE = 64        # values that a payload may have for each byte
    EXTRA_VALUES = 1 << 22      # ... and further ones of all payloads together
    HEADER = 5                  # bytes of Confluent's header before the message indexes
    DEEPEST_INDEX = 32          # message indexes in a header
    NANOS = 1000000000
    DIGITS = 12                 # room for an int32 as text

cdef struct Field:
    uint32_t number
    ValueType type
    WireType wire_type
    int32_t node                # of the value, or of an element. -1: it goes to `Walk.times`
    int32_t list_node           # -1: the field is not repeated
    int32_t target              # the message, the enum, or the index in `Walk.times`
    int32_t oneof               # number in the program, or -1
    bint is_map
    const uint8_t* constant     # the value of a missing field, or NULL
    int32_t constant_size

cdef struct Message:
    MessageKind kind
    int32_t node
    int32_t first, stop         # fields, in the order of their numbers
    int32_t first_oneof, oneof_count
    int32_t size                # nodes of the message and of everything in it

cdef struct Enum:
    bint is_closed
    int32_t first, stop         # in `Schema.enum_numbers`

cdef struct Schema:
    Field* fields
    Message* messages
    Enum* enums
    const int32_t* enum_numbers     # of each enum in ascending order
    const int32_t* name_stops       # name i is names[name_stops[i]:name_stops[i + 1]]
    const uint8_t* names

cdef struct Walk:
    Schema* schema
    Tree* tree
    int64_t budget              # values that may still be added
    uint8_t* is_seen            # for each field of an open message
    int32_t* chosen             # for each oneof of an open message its field, or -1
    uint8_t* is_dropped         # for each open entry of a map: its enum has an unknown number
    int64_t* times              # for each message: seconds and nanos

cdef struct MapKey:
    const uint8_t* at
    int32_t size
    int32_t entry


cdef WireType find_wire_type(ValueType kind) noexcept nogil:
    if kind <= ENUM:
        return VARINT
    if kind == FIXED32:
        return WORD32
    if kind == FIXED64:
        return WORD64
    return GROUP_START if kind == GROUP else SIZED


cdef class MessageProgram:
    """What is read of the messages of one type: MessageProgram(messages, fields, enums).

    messages: (kind, node, first field, last field + 1, first oneof, oneofs, nodes inside). Message
        0 is the payload.
    fields: (number, type, node, list node, target, oneof, is a map, constant). The constant is the
        value of a missing field as the column has it, b"" for an empty message, or None for null.
    enums: (is closed, [(number, name as bytes)]), in ascending order of numbers.
    """
    cdef Schema schema
    cdef Py_ssize_t message_count, field_count, oneof_count
    cdef list owners

    def __cinit__(self, list messages, list fields, list enums):
        self.message_count = len(messages)
        self.field_count = len(fields)
        self.owners = []
        self.schema.messages = <Message*>calloc(max(len(messages), 1), sizeof(Message))
        self.schema.fields = <Field*>calloc(max(len(fields), 1), sizeof(Field))
        self.schema.enums = <Enum*>calloc(max(len(enums), 1), sizeof(Enum))
        if not (self.schema.messages and self.schema.fields and self.schema.enums):
            raise MemoryError("no memory for a schema")
        self.set_messages(messages)
        self.set_fields(fields)
        self.set_enums(enums)

    cdef int set_messages(self, list messages) except -1:
        cdef Py_ssize_t i
        cdef Message* message
        for i, (kind, node, first, stop, first_oneof, oneof_count, size) in enumerate(messages):
            message = &self.schema.messages[i]
            message.kind = kind
            message.node = node
            message.first = first
            message.stop = stop
            message.first_oneof = first_oneof
            message.oneof_count = oneof_count
            message.size = size
            self.oneof_count = max(self.oneof_count, <Py_ssize_t>(first_oneof + oneof_count))
        return 0

    cdef int set_fields(self, list fields) except -1:
        cdef Py_ssize_t i
        cdef Field* field
        cdef bytes octets
        for i, (number, kind, node, list_node, target, oneof, is_map, constant) in (
                enumerate(fields)):
            field = &self.schema.fields[i]
            field.number = number
            field.type = kind
            field.wire_type = find_wire_type(field.type)
            field.node = node
            field.list_node = list_node
            field.target = target
            field.oneof = oneof
            field.is_map = is_map
            if constant is not None:
                octets = constant
                field.constant = <const uint8_t*><const char*>octets
                field.constant_size = <int32_t>len(octets)
                self.owners.append(octets)
        return 0

    cdef int set_enums(self, list enums) except -1:
        cdef Py_ssize_t i
        cdef list numbers = []
        cdef list names = []
        cdef const int32_t[::1] view
        cdef bytes joined
        for i, (is_closed, values) in enumerate(enums):
            self.schema.enums[i].is_closed = is_closed
            self.schema.enums[i].first = <int32_t>len(numbers)
            for number, name in values:
                numbers.append(number)
                names.append(name)
            self.schema.enums[i].stop = <int32_t>len(numbers)
        view = np.array([*numbers, 0], np.int32)
        self.schema.enum_numbers = &view[0]
        self.owners.append(view)
        view = np.cumsum([0, *map(len, names)]).astype(np.int32)
        self.schema.name_stops = &view[0]
        self.owners.append(view)
        joined = b"".join(names)
        self.schema.names = <const uint8_t*><const char*>joined
        self.owners.append(joined)
        return 0

    def __dealloc__(self):
        free(self.schema.messages)
        free(self.schema.fields)
        free(self.schema.enums)


# ---------------------------------------------------------------------- numbers of the encoding


cdef inline Refusal read_varint(Reader* r, uint64_t* value) noexcept nogil:
    # Read a varint of at most ten bytes. Bits above the 64th are discarded, as in Protobuf's
    # libraries. Where ten bytes are left, the first eight are loaded as one word.
    cdef const uint8_t* p = r.at
    cdef uint64_t word, last
    cdef unsigned int shift = 0
    cdef uint8_t byte
    if p < r.end and p[0] < 0x80:
        value[0] = p[0]
        r.at = p + 1
        return FINE
    if left(r) >= 10:
        word = le64(p)
        last = ~word & TOPS             # its lowest bit is the top bit of the last byte
        if last:
            value[0] = groups(word & (last ^ (last - 1)) & ~TOPS)
            r.at = p + (lowest(last) >> 3) + 1
            return FINE
    value[0] = 0
    while p < r.end:
        if shift > 63:
            return BAD_VARINT
        byte = p[0]
        value[0] |= <uint64_t>(byte & 0x7f) << shift
        shift += 7
        p += 1
        if byte < 0x80:
            r.at = p
            return FINE
    return BAD_VARINT if shift > 63 else CUT


cdef inline Refusal read_tag(Reader* r, uint32_t* tag) noexcept nogil:
    cdef int fault = varint32(r, tag)
    if fault != OK:
        return CUT if fault == TRUNCATED else BAD_VARINT
    return FINE if tag[0] >> 3 else BAD_TAG


cdef inline Refusal read_sized(Reader* r, Reader* inside) noexcept nogil:
    # Step over a size and as many bytes, and set `inside` to the bytes.
    cdef uint32_t size = 0
    cdef int fault = varint32(r, &size)
    if fault != OK:
        return CUT if fault == TRUNCATED else BAD_VARINT
    if size > left(r):
        return CUT
    inside.at = r.at
    inside.end = r.at + size
    r.at = inside.end
    return FINE


cdef Refusal skip_value(Reader* r, uint32_t tag, int depth) noexcept nogil:
    # Step over the value of a field, whose tag is no end of a group. `depth` is that of the message
    # around it.
    cdef uint32_t[DEEPEST + 1] begun
    cdef int level = 0
    cdef int wire_type
    cdef uint64_t number
    cdef Reader inside
    cdef Refusal refusal = FINE
    while True:
        wire_type = tag & 7
        if wire_type == VARINT:
            refusal = read_varint(r, &number)
        elif wire_type == SIZED:
            refusal = read_sized(r, &inside)
        elif wire_type == WORD32 or wire_type == WORD64:
            if take(r, 4 if wire_type == WORD32 else 8) is NULL:
                return CUT
        elif wire_type == GROUP_START:
            level += 1
            if depth + level > DEEPEST:
                return DEEP
            begun[level] = tag >> 3
        elif wire_type == GROUP_END:
            if begun[level] != tag >> 3:
                return BAD_GROUP
            level -= 1
        else:
            return BAD_WIRE_TYPE
        if refusal != FINE or level == 0:
            return refusal
        refusal = read_tag(r, &tag)
        if refusal != FINE:
            return refusal


# ---------------------------------------------------------------------- values of fields


cdef inline int64_t unzigzag32(uint64_t value) noexcept nogil:
    cdef uint32_t low = <uint32_t>value
    return <int32_t>(low >> 1 ^ (0 - (low & 1)))


cdef int32_t find_name(const Schema* schema, const Enum* symbols, int32_t number) noexcept nogil:
    # Return the index of the name of an enum's number, or -1.
    cdef int32_t low = symbols.first
    cdef int32_t high = symbols.stop
    cdef int32_t middle
    if low == high:
        return -1
    # Most enums have the numbers 0, 1, 2, ...
    middle = number - schema.enum_numbers[low] + low if number < high - low else -1
    if low <= middle < high and schema.enum_numbers[middle] == number:
        return middle
    while low < high:
        middle = (low + high) // 2
        if schema.enum_numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < symbols.stop and schema.enum_numbers[low] == number else -1


cdef bint add_name(Walk* walk, const Field* field, int32_t number) noexcept nogil:
    # Add the name of an enum's number, or its decimal text.
    cdef const Schema* schema = walk.schema
    cdef int32_t i = find_name(schema, &schema.enums[field.target], number)
    cdef uint8_t[DIGITS] text
    cdef uint64_t rest
    cdef int at = DIGITS
    if i >= 0:
        return add_bytes(&walk.tree.nodes[field.node], schema.names + schema.name_stops[i],
                         schema.name_stops[i + 1] - schema.name_stops[i])
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
    return add_bytes(&walk.tree.nodes[field.node], text + at, DIGITS - at)


cdef inline Refusal add_number(Walk* walk, const Field* field, uint64_t value) noexcept nogil:
    # Add a number as it is in the encoding.
    cdef uint32_t low = <uint32_t>value
    cdef uint8_t flag = value != 0
    cdef Node* node
    if field.type == SINT32:
        low = <uint32_t>unzigzag32(value)
    elif field.type == SINT64:
        value = value >> 1 ^ (0 - (value & 1))
    if field.node < 0:
        walk.times[field.target] = <int64_t>value if field.type == INT64 else <int32_t>low
        return FINE
    node = &walk.tree.nodes[field.node]
    if field.type == INT64 or field.type == SINT64 or field.type == FIXED64:
        return FINE if add_fixed(node, &value, 8) else FULL
    if field.type == ENUM:
        return FINE if add_name(walk, field, <int32_t>low) else FULL
    if field.type == BOOLEAN:
        return FINE if add_fixed(node, &flag, 1) else FULL
    return FINE if add_fixed(node, &low, 4) else FULL


cdef inline Refusal read_number(Reader* r, WireType wire_type, uint64_t* value) noexcept nogil:
    cdef const uint8_t* p
    if wire_type == VARINT:
        return read_varint(r, value)
    p = take(r, 4 if wire_type == WORD32 else 8)
    if p is NULL:
        return CUT
    value[0] = le32(p) if wire_type == WORD32 else le64(p)
    return FINE


cdef inline bint is_unknown(Walk* walk, const Field* field, uint64_t value) noexcept nogil:
    # Whether a number is not in its closed enum. The field then counts as an unknown one.
    cdef const Enum* symbols
    if field.type != ENUM:
        return False
    symbols = &walk.schema.enums[field.target]
    return symbols.is_closed and find_name(walk.schema, symbols, <int32_t>value) < 0


cdef Refusal read_packed(Walk* walk, Reader* r, const Field* field) noexcept nogil:
    cdef Reader inside
    cdef uint64_t value = 0
    cdef Refusal refusal = read_sized(r, &inside)
    if refusal != FINE:
        return refusal
    if field.wire_type != VARINT and left(&inside) % (4 if field.wire_type == WORD32 else 8):
        return BAD_PACKED
    while inside.at < inside.end:
        refusal = read_number(&inside, field.wire_type, &value)
        if refusal != FINE:
            return refusal
        if is_unknown(walk, field, value):
            continue
        refusal = add_number(walk, field, value)
        if refusal != FINE:
            return refusal
    return FINE


# ---------------------------------------------------------------------- open messages


cdef void open_message(Walk* walk, int32_t number) noexcept nogil:
    # Forget what was seen of a message. Its columns have no value of it yet.
    cdef const Message* message = &walk.schema.messages[number]
    cdef int32_t i
    memset(walk.is_seen + message.first, 0, message.stop - message.first)
    for i in range(message.first_oneof, message.first_oneof + message.oneof_count):
        walk.chosen[i] = -1
    walk.is_dropped[number] = 0
    walk.times[2 * number] = walk.times[2 * number + 1] = 0


cdef void discard_value(Walk* walk, int32_t at) noexcept nogil:
    # Remove the value of a field in an open message. The field is not repeated.
    cdef const Field* field = &walk.schema.fields[at]
    cdef const Message* message
    cdef Node* node
    cdef size_t count
    walk.is_seen[at] = 0
    if field.type != MESSAGE and field.type != GROUP:
        if field.node >= 0:
            node = &walk.tree.nodes[field.node]
            truncate(walk.tree, field.node, node.count - 1)
        return
    message = &walk.schema.messages[field.target]
    walk.budget -= message.size + message.stop - message.first
    count = walk.tree.nodes[message.node].count
    if message.kind == WRAPPER and walk.is_seen[message.first]:
        count -= 1
    truncate(walk.tree, message.node, count)


cdef inline void choose(Walk* walk, const Field* field, int32_t at) noexcept nogil:
    # Note that a field of a message has a value. Another one of its oneof loses its value.
    cdef int32_t other
    if field.oneof >= 0:
        other = walk.chosen[field.oneof]
        if other >= 0 and other != at:
            discard_value(walk, other)
        walk.chosen[field.oneof] = at


cdef Refusal close_time(Walk* walk, int32_t number) noexcept nogil:
    cdef const Message* message = &walk.schema.messages[number]
    cdef int64_t seconds = walk.times[2 * number]
    cdef int64_t nanos = walk.times[2 * number + 1]
    if message.kind == TIMESTAMP and not 0 <= nanos < NANOS:
        return BAD_NANOS
    if not -NANOS < nanos < NANOS or seconds < 0 < nanos and message.kind == DURATION:
        return BAD_NANOS
    if nanos < 0 < seconds:
        return BAD_NANOS
    if seconds < 0 < nanos:             # both parts get one sign, so that no product is too large
        seconds += 1
        nanos -= NANOS
    if not INT64_MIN // NANOS + 1 <= seconds <= INT64_MAX // NANOS:
        return FAR_TIME
    seconds *= NANOS
    # The smallest number is "not a time" in numpy and pandas.
    if seconds > 0 and nanos > INT64_MAX - seconds or seconds < 0 and nanos <= INT64_MIN - seconds:
        return FAR_TIME
    seconds += nanos
    return FINE if add_fixed(&walk.tree.nodes[message.node], &seconds, 8) else FULL


cdef int compare_keys(const void* a, const void* b) noexcept nogil:
    # Order keys by their bytes, and equal ones by their entries.
    cdef const MapKey* first = <const MapKey*>a
    cdef const MapKey* second = <const MapKey*>b
    cdef int order = 0
    if first.size != second.size:
        return -1 if first.size < second.size else 1
    if first.size:
        order = memcmp(first.at, second.at, first.size)
    if order:
        return order
    return -1 if first.entry < second.entry else 1


cdef inline bint is_same_key(const MapKey* first, const MapKey* second) noexcept nogil:
    if first.size != second.size:
        return False
    return first.size == 0 or memcmp(first.at, second.at, first.size) == 0


cdef void set_key(const Node* node, size_t at, int32_t entry, MapKey* key) noexcept nogil:
    cdef const int32_t* offsets
    key.entry = entry
    if node.kind == FIXED:
        key.at = node.values.at + at * node.width
        key.size = <int32_t>node.width
    else:
        offsets = <const int32_t*>node.offsets.at
        key.at = node.values.at + offsets[at]
        key.size = offsets[at + 1] - offsets[at]


cdef bint has_same_keys(const Node* node, size_t first, size_t count) noexcept nogil:
    # Whether two of a few entries have one key.
    cdef MapKey[SMALL_MAP] keys
    cdef size_t i, j
    for i in range(count):
        set_key(node, first + i, <int32_t>i, &keys[i])
        for j in range(i):
            if is_same_key(&keys[i], &keys[j]):
                return True
    return False


cdef bint keep_last_entries(Walk* walk, const Field* field) noexcept nogil:
    # Keep the last entry of each key in an open map. False: out of memory.
    cdef Tree* tree = walk.tree
    cdef const Node* entries = &tree.nodes[field.node]
    cdef const Node* node = &tree.nodes[tree.children[entries.first_child]]
    cdef const Node* list_node = &tree.nodes[field.list_node]
    cdef size_t first = (<const int32_t*>list_node.offsets.at)[list_node.count]
    cdef size_t count = entries.count - first
    cdef size_t i
    cdef bint is_fine = True
    cdef MapKey* keys
    cdef uint8_t* keep
    if count < 2 or count <= SMALL_MAP and not has_same_keys(node, first, count):
        return True
    if count > 0x7fffffff:
        return False
    keys = <MapKey*>malloc(count * sizeof(MapKey))
    keep = <uint8_t*>malloc(count)
    if keys is not NULL and keep is not NULL:
        for i in range(count):
            set_key(node, first + i, <int32_t>i, &keys[i])
        qsort(keys, count, sizeof(MapKey), &compare_keys)
        memset(keep, 1, count)
        for i in range(1, count):
            if is_same_key(&keys[i - 1], &keys[i]):
                keep[keys[i - 1].entry] = 0
        is_fine = retain(tree, field.node, first, keep)
    else:
        is_fine = False
    free(keys)
    free(keep)
    return is_fine


cdef inline Refusal add_missing(Walk* walk, const Field* field) noexcept nogil:
    # Add the value of a field that the message does not have, and that is not repeated.
    cdef Node* node
    if field.node < 0:
        return FINE                     # the seconds or nanos are 0
    node = &walk.tree.nodes[field.node]
    if field.constant is NULL:
        walk.budget -= node.weight
        if walk.budget < 0:
            return MANY
        return FINE if add_null(walk.tree, field.node) else FULL
    if field.type == MESSAGE:
        open_message(walk, field.target)
        return close_message(walk, field.target)
    if node.kind == BYTES:
        return FINE if add_bytes(node, field.constant, field.constant_size) else FULL
    return FINE if add_fixed(node, field.constant, node.width) else FULL


cdef Refusal close_message(Walk* walk, int32_t number) noexcept nogil:
    # Add the values of missing fields, close lists and messages inside, and add the message.
    cdef const Message* message = &walk.schema.messages[number]
    cdef const Field* field
    cdef int32_t at
    cdef Refusal refusal = FINE
    walk.budget -= 1 + message.stop - message.first
    if walk.budget < 0:
        return MANY
    for at in range(message.first, message.stop):
        field = &walk.schema.fields[at]
        if field.list_node >= 0:
            if field.is_map and not keep_last_entries(walk, field):
                return FULL
            if not close_list(walk.tree, &walk.tree.nodes[field.list_node]):
                return FULL
        elif not walk.is_seen[at]:
            refusal = add_missing(walk, field)
        elif field.type == MESSAGE or field.type == GROUP:
            refusal = close_message(walk, field.target)
        if refusal != FINE:
            return refusal
    if message.kind == TIMESTAMP or message.kind == DURATION:
        return close_time(walk, number)
    if message.kind == WRAPPER:
        return FINE
    return FINE if add_validity(&walk.tree.nodes[message.node], 1) else FULL


# ---------------------------------------------------------------------- fields


cdef Refusal read_inside(Walk* walk, Reader* r, int32_t at, int depth) noexcept nogil:
    # Read a message or group that is the value of a field.
    cdef const Field* field = &walk.schema.fields[at]
    cdef const Message* message = &walk.schema.messages[field.target]
    cdef size_t count = walk.tree.nodes[message.node].count
    cdef Reader inside
    cdef Refusal refusal
    if field.list_node >= 0:
        open_message(walk, field.target)
    else:
        choose(walk, field, at)
        if not walk.is_seen[at]:
            open_message(walk, field.target)
            walk.is_seen[at] = 1
    if field.type == GROUP:
        refusal = read_message(walk, r, field.target, field.number, depth + 1)
    else:
        refusal = read_sized(r, &inside)
        if refusal == FINE:
            refusal = read_message(walk, &inside, field.target, 0, depth + 1)
    if refusal != FINE or field.list_node < 0:
        return refusal
    if walk.is_dropped[field.target]:
        walk.budget -= message.size
        truncate(walk.tree, message.node, count)
        return FINE
    return close_message(walk, field.target)


cdef Refusal read_field(Walk* walk, Reader* r, int32_t owner, int32_t at) noexcept nogil:
    # Read the value of a scalar field.
    cdef const Field* field = &walk.schema.fields[at]
    cdef Reader inside
    cdef uint64_t value = 0
    cdef Refusal refusal
    inside.at = inside.end = NULL
    if field.wire_type == SIZED:
        refusal = read_sized(r, &inside)
        if refusal == FINE and field.type == STRING and not is_utf8(inside.at, left(&inside)):
            refusal = NOT_TEXT
    else:
        refusal = read_number(r, field.wire_type, &value)
        if refusal == FINE and is_unknown(walk, field, value):
            walk.is_dropped[owner] = walk.schema.messages[owner].kind == ENTRY
            return FINE
    if refusal != FINE:
        return refusal
    if field.list_node < 0:
        choose(walk, field, at)
        if walk.is_seen[at]:
            discard_value(walk, at)
        walk.is_seen[at] = 1
    if field.wire_type != SIZED:
        return add_number(walk, field, value)
    return FINE if add_bytes(&walk.tree.nodes[field.node], inside.at, left(&inside)) else FULL


cdef inline int32_t find_field(const Schema* schema, const Message* message, uint32_t number,
                               int32_t near) noexcept nogil:
    # Return the index of the field with a number, or -1. It is probably at `near` or a little
    # after it: encoders write fields in the order of their numbers.
    cdef int32_t low = message.first
    cdef int32_t high = message.stop
    cdef int32_t i, middle
    for i in range(near, min(near + NEAR, message.stop)):
        if schema.fields[i].number >= number:
            if schema.fields[i].number == number:
                return i
            break
    while low < high:
        middle = (low + high) // 2
        if schema.fields[middle].number < number:
            low = middle + 1
        else:
            high = middle
    return low if low < message.stop and schema.fields[low].number == number else -1


cdef Refusal read_message(Walk* walk, Reader* r, int32_t number, uint32_t group,
                          int depth) noexcept nogil:
    # Read fields into an open message, up to the end of the bytes, or of the group with a number.
    cdef const Schema* schema = walk.schema
    cdef const Message* message = &schema.messages[number]
    cdef const Field* field
    cdef uint32_t tag = 0
    cdef uint32_t wire_type
    cdef int32_t near = message.first
    cdef int32_t at
    cdef Refusal refusal
    if depth > DEEPEST:
        return DEEP
    while r.at < r.end:
        refusal = read_tag(r, &tag)
        if refusal != FINE:
            return refusal
        wire_type = tag & 7
        if wire_type == GROUP_END:
            return FINE if tag >> 3 == group else BAD_GROUP
        at = find_field(schema, message, tag >> 3, near)
        if at < 0:
            refusal = skip_value(r, tag, depth)
        else:
            field = &schema.fields[at]
            near = at
            if wire_type != <uint32_t>field.wire_type:
                if wire_type == SIZED and field.list_node >= 0 and field.type <= FIXED64:
                    refusal = read_packed(walk, r, field)
                else:
                    refusal = skip_value(r, tag, depth)
            elif field.type == MESSAGE or field.type == GROUP:
                refusal = read_inside(walk, r, at, depth)
            else:
                refusal = read_field(walk, r, number, at)
        if refusal != FINE:
            return refusal
        if walk.budget < 0:
            return MANY
    return CUT if group else FINE


cdef class WalkMemory:
    """What a walk knows of open messages."""
    cdef Walk walk

    def __cinit__(self, MessageProgram program, ValueBuilder builder):
        cdef size_t messages = max(program.message_count, 1)
        self.walk.schema = &program.schema
        self.walk.tree = &builder.tree
        self.walk.is_seen = <uint8_t*>calloc(max(program.field_count, 1), 1)
        self.walk.chosen = <int32_t*>calloc(max(program.oneof_count, 1), sizeof(int32_t))
        self.walk.is_dropped = <uint8_t*>calloc(messages, 1)
        self.walk.times = <int64_t*>calloc(2 * messages, sizeof(int64_t))
        if not (self.walk.is_seen and self.walk.chosen and self.walk.is_dropped
                and self.walk.times):
            raise MemoryError("no memory for a schema")

    def __dealloc__(self):
        free(self.walk.is_seen)
        free(self.walk.chosen)
        free(self.walk.is_dropped)
        free(self.walk.times)


def read_messages(ByteStrings payloads, ValueBuilder builder, MessageProgram program,
                  const int32_t[::1] prefixes):
    """Add a value to node 0 of a builder for each payload. Return uint8 numbers of `REASONS`.

    program: of the tree of the builder.
    prefixes: for each payload the bytes before its message, or -1 for a null.

    A number n > 0 is the reason REASONS[n - 1]. The value is then null. Raises MemoryError, and
    ValueError for another number of prefixes.
    """
    cdef Py_ssize_t i, n = len(payloads)
    cdef Py_ssize_t step = payloads.strings.step
    cdef const uint64_t* address = payloads.strings.address
    cdef const int32_t* size = payloads.strings.size
    refusals = np.zeros(n, np.uint8)
    cdef uint8_t[::1] refusal = refusals
    cdef WalkMemory memory = WalkMemory(program, builder)
    cdef Walk* walk = &memory.walk
    cdef Reader r
    cdef Refusal result
    cdef int64_t extra = EXTRA_VALUES
    cdef int64_t allowed
    cdef size_t count
    cdef bint full = False
    if len(prefixes) != n:
        raise ValueError("each payload has a prefix")
    with nogil:
        for i in range(n):
            count = walk.tree.nodes[0].count
            result = FINE
            if 0 <= prefixes[i] <= size[i * step]:
                r.at = <const uint8_t*>address[i * step] + prefixes[i]
                r.end = r.at + size[i * step] - prefixes[i]
                allowed = 2 * walk.tree.nodes[0].weight + VALUES_PER_BYTE * <int64_t>left(&r)
                walk.budget = allowed + extra
                open_message(walk, 0)
                result = read_message(walk, &r, 0, 0, 0)
                if result == FINE:
                    result = close_message(walk, 0)
                extra = min(extra, max(walk.budget, 0))
                if result == FINE:
                    continue
                truncate(walk.tree, 0, count)
            refusal[i] = result
            if not add_null(walk.tree, 0):
                full = True
                break
    if full:
        raise MemoryError("no memory for the values")
    return refusals


def split_headers(ByteStrings payloads):
    """Return (sizes, runs) of Confluent's headers: a byte 0, the schema's id, message indexes.

    sizes: int32, the bytes of each header; -1 for a null and for a payload without a header.
    runs: int32, a number that grows where a header differs from that of the payload before.
    """
    cdef Py_ssize_t i, n = len(payloads)
    cdef Py_ssize_t step = payloads.strings.step
    cdef const uint8_t* at
    cdef const uint8_t* last = NULL
    sizes_array = np.full(n, -1, np.int32)
    runs_array = np.zeros(n, np.int32)
    cdef int32_t[::1] sizes = sizes_array
    cdef int32_t[::1] runs = runs_array
    cdef int32_t last_size = -1
    cdef int32_t run = 0
    for i in range(n):
        at = <const uint8_t*>payloads.strings.address[i * step]
        sizes[i] = measure_header(at, payloads.strings.size[i * step])
        if sizes[i] != last_size or sizes[i] > 0 and memcmp(at, last, sizes[i]) != 0:
            run += 1
        runs[i] = run
        last = at
        last_size = sizes[i]
    return sizes_array, runs_array


cdef int32_t measure_header(const uint8_t* at, int32_t size) noexcept nogil:
    # Return the bytes of a header, or -1. The number of message indexes is a zig-zag varint.
    cdef Reader r
    cdef uint64_t count = 0
    cdef uint64_t index = 0
    if size <= HEADER or at[0] != 0:
        return -1
    r.at = at + HEADER
    r.end = at + size
    if read_varint(&r, &count) != FINE or count & 1 or count > 2 * DEEPEST_INDEX:
        return -1
    for _ in range(count // 2):
        if read_varint(&r, &index) != FINE:
            return -1
    return <int32_t>(r.at - at)
