# cython: boundscheck=False, wraparound=False
"""Messages of Protobuf's binary encoding into columns, by a program of `protobuf_schema.py`.

A field may occur several times. The last value of a scalar counts, and the occurrences of a
message are merged. So a message stays open until the message around it ends: its columns get the
values of missing fields only then. As no type contains itself, each message of the program is open
at most once.

Source: protobuf.dev, "Encoding".
"""
from wirescan.decoding import payload_reader

from libc.stdint cimport INT64_MAX, INT64_MIN
from libc.string cimport memset
from wirescan.core cimport Reader, left
from wirescan.core.strings cimport ByteStrings
from wirescan.decoding.map_entries cimport keep_last_entries
from wirescan.decoding.payload_reader cimport (
    DEEP, FINE, FULL, MANY, NOT_TEXT, Output, ProgramMemory, Refusal, Symbols, add_symbol,
    begin_output, charge, find_symbol, put_null, read_payloads)
from wirescan.decoding.protobuf_program cimport (
    BOOLEAN, DURATION, ENTRY, ENUM, Enum, FIXED64, Field, GROUP, INT64, MESSAGE, Message,
    MessageProgram, SINT32, SINT64, STRING, Schema, TIMESTAMP, WRAPPER)
from wirescan.decoding.protobuf_wire cimport (
    BAD_GROUP, BAD_NANOS, BAD_PACKED, CUT, DEEPEST, FAR_TIME, GROUP_END, SIZED, VARINT, WORD32,
    read_number, read_sized, read_tag, skip_value, unzigzag32)
from wirescan.decoding.utf8 cimport is_utf8
from wirescan.decoding.value_builder cimport (
    BYTES, Node, ValueBuilder, add_bytes, add_fixed, add_validity, close_list, int32_t, int64_t,
    truncate, uint8_t, uint32_t, uint64_t)

# The reasons, by the numbers of refusals from 1 on.
REASONS = (
    *payload_reader.SHARED_REASONS,
    "it ends inside a field",
    "a varint has too many bytes",
    "a field has the number 0",
    "a field has a wire type that does not exist",
    "a group ends that did not begin",
    "the size of packed numbers is no multiple of their width",
    "the nanos of a Timestamp or Duration are out of range",
    "a Timestamp or Duration does not fit into 64 bits of nanoseconds",
)

cdef enum:
    NEAR = 4                    # fields that are compared before a binary search
    NANOS = 1000000000

cdef struct Walk:
    Output out
    Schema* schema
    uint8_t* is_seen            # for each field of an open message
    int32_t* chosen             # for each oneof of an open message its field, or -1
    uint8_t* is_dropped         # for each open entry of a map: its enum has an unknown number
    int64_t* times              # for each message: seconds and nanos

# ---------------------------------------------------------------------- values of fields


cdef inline Refusal add_number(Walk* walk, const Field* field, uint64_t value) noexcept nogil:
    # Add a number as it is in the encoding.
    cdef uint32_t low = <uint32_t>value
    cdef uint8_t flag = value != 0
    cdef const Symbols* symbols
    cdef Node* node
    if field.type == SINT32:
        low = <uint32_t>unzigzag32(value)
    elif field.type == SINT64:
        value = value >> 1 ^ (0 - (value & 1))
    if field.node < 0:
        walk.times[field.target] = <int64_t>value if field.type == INT64 else <int32_t>low
        return FINE
    node = &walk.out.tree.nodes[field.node]
    if field.type == INT64 or field.type == SINT64 or field.type == FIXED64:
        return FINE if add_fixed(node, &value, 8) else FULL
    if field.type == ENUM:
        symbols = &walk.schema.enums[field.target].symbols
        return FINE if add_symbol(node, symbols, <int32_t>low) else FULL
    if field.type == BOOLEAN:
        return FINE if add_fixed(node, &flag, 1) else FULL
    return FINE if add_fixed(node, &low, 4) else FULL


cdef inline bint is_unknown(Walk* walk, const Field* field, uint64_t value) noexcept nogil:
    # Whether a number is not in its closed enum. The field then counts as an unknown one.
    cdef const Enum* symbols
    if field.type != ENUM:
        return False
    symbols = &walk.schema.enums[field.target]
    return symbols.is_closed and find_symbol(&symbols.symbols, <int32_t>value) < 0


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
            node = &walk.out.tree.nodes[field.node]
            truncate(walk.out.tree, field.node, node.count - 1)
        return
    message = &walk.schema.messages[field.target]
    walk.out.budget -= message.size + message.stop - message.first
    count = walk.out.tree.nodes[message.node].count
    if message.kind == WRAPPER and walk.is_seen[message.first]:
        count -= 1
    truncate(walk.out.tree, message.node, count)


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
    return FINE if add_fixed(&walk.out.tree.nodes[message.node], &seconds, 8) else FULL


cdef inline Refusal add_missing(Walk* walk, const Field* field) noexcept nogil:
    # Add the value of a field that the message does not have, and that is not repeated.
    cdef Node* node
    if field.node < 0:
        return FINE                     # the seconds or nanos are 0
    node = &walk.out.tree.nodes[field.node]
    if field.constant is NULL:
        return put_null(&walk.out, field.node)
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
    if not charge(&walk.out, 1 + message.stop - message.first):
        return MANY
    for at in range(message.first, message.stop):
        field = &walk.schema.fields[at]
        if field.list_node >= 0:
            if field.is_map and not keep_last_entries(
                    walk.out.tree, field.list_node, field.node):
                return FULL
            if not close_list(walk.out.tree, &walk.out.tree.nodes[field.list_node]):
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
    return FINE if add_validity(&walk.out.tree.nodes[message.node], 1) else FULL


# ---------------------------------------------------------------------- fields


cdef Refusal read_inside(Walk* walk, Reader* r, int32_t at, int depth) noexcept nogil:
    # Read a message or group that is the value of a field.
    cdef const Field* field = &walk.schema.fields[at]
    cdef const Message* message = &walk.schema.messages[field.target]
    cdef size_t count = walk.out.tree.nodes[message.node].count
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
        walk.out.budget -= message.size
        truncate(walk.out.tree, message.node, count)
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
    return FINE if add_bytes(&walk.out.tree.nodes[field.node], inside.at, left(&inside)) else FULL


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
        if walk.out.budget < 0:
            return MANY
    return CUT if group else FINE


cdef Refusal read_payload(void* payload_walk, Reader* r, Py_ssize_t _) noexcept nogil:
    cdef Walk* walk = <Walk*>payload_walk
    cdef Refusal refusal
    open_message(walk, 0)
    refusal = read_message(walk, r, 0, 0, 0)
    return close_message(walk, 0) if refusal == FINE else refusal


def read_messages(ByteStrings payloads, ValueBuilder builder, MessageProgram program,
                  const int32_t[::1] prefixes):
    """Add a value to node 0 of a builder for each payload. Return uint8 numbers of `REASONS`.

    program: of the tree of the builder.
    prefixes: for each payload the bytes before its message, or -1 for a null.

    A number n > 0 is the reason REASONS[n - 1]. The value is then null. Raises MemoryError, and
    ValueError for another number of prefixes.
    """
    cdef ProgramMemory memory = ProgramMemory()
    cdef Py_ssize_t messages = program.message_count
    cdef Walk walk
    cdef int32_t no_prefix = -1
    if len(prefixes) != len(payloads):
        raise ValueError("each payload has a prefix")
    # A missing field is counted when its message closes, and its null once more.
    begin_output(&walk.out, builder, 2)
    walk.schema = &program.schema
    walk.is_seen = <uint8_t*>memory.allocate(program.field_count, 1)
    walk.chosen = <int32_t*>memory.allocate(program.oneof_count, sizeof(int32_t))
    walk.is_dropped = <uint8_t*>memory.allocate(messages, 1)
    walk.times = <int64_t*>memory.allocate(2 * messages, sizeof(int64_t))
    return read_payloads(
        payloads, &prefixes[0] if len(prefixes) else &no_prefix, 1, &walk, read_payload)
