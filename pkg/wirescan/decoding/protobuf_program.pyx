# cython: boundscheck=False, wraparound=False
"""What is read of the messages of one type. `protobuf_schema.py` compiles it."""
from wirescan.decoding.protobuf_wire cimport GROUP_START, SIZED, VARINT, WORD32, WORD64


cdef WireType find_wire_type(ValueType kind) noexcept nogil:
    if kind <= ENUM:
        return VARINT
    if kind == FIXED32:
        return WORD32
    if kind == FIXED64:
        return WORD64
    return GROUP_START if kind == GROUP else SIZED


cdef class MessageProgram(ProgramMemory):
    """What is read of the messages of one type: MessageProgram(messages, fields, enums).

    messages: (kind, node, first field, last field + 1, first oneof, oneofs, nodes inside). Message
        0 is the payload.
    fields: (number, type, node, list node, target, oneof, is a map, constant). The constant is the
        value of a missing field as the column has it, b"" for an empty message, or None for null.
    enums: (is closed, [(number, name as bytes)]), in ascending order of numbers.
    """

    def __cinit__(self, list messages, list fields, list enums):
        self.message_count = len(messages)
        self.field_count = len(fields)
        self.schema.messages = <Message*>self.allocate(len(messages), sizeof(Message))
        self.schema.fields = <Field*>self.allocate(len(fields), sizeof(Field))
        self.schema.enums = <Enum*>self.allocate(len(enums), sizeof(Enum))
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
                field.constant = self.keep_bytes(constant)
                field.constant_size = <int32_t>len(constant)
        return 0

    cdef int set_enums(self, list enums) except -1:
        cdef Py_ssize_t i
        cdef Enum* symbols
        for i, (is_closed, values) in enumerate(enums):
            symbols = &self.schema.enums[i]
            symbols.is_closed = is_closed
            symbols.symbols.numbers = self.keep_numbers([number for number, _ in values])
            self.keep_names(&symbols.symbols.names, [name for _, name in values])
        return 0
