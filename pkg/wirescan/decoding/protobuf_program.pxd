# What is read of the messages of one type: see `MessageProgram`.
from libc.stdint cimport int32_t, uint8_t, uint32_t
from wirescan.decoding.payload_reader cimport ProgramMemory, Symbols
from wirescan.decoding.protobuf_wire cimport WireType

cpdef enum ValueType:
    BOOLEAN, INT32, INT64, SINT32, SINT64, ENUM, FIXED32, FIXED64, BINARY, STRING, MESSAGE, GROUP

cpdef enum MessageKind:
    RECORD,                     # a struct
    ENTRY,                      # a struct: the entry of a map
    WRAPPER,                    # its only field has its column
    TIMESTAMP, DURATION         # seconds and nanos become one number

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
    Symbols symbols

cdef struct Schema:
    Field* fields
    Message* messages
    Enum* enums

cdef class MessageProgram(ProgramMemory):
    cdef Schema schema
    cdef Py_ssize_t message_count, field_count, oneof_count
    cdef int set_messages(self, list messages) except -1
    cdef int set_fields(self, list fields) except -1
    cdef int set_enums(self, list enums) except -1
