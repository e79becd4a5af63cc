from enum import IntEnum

class ValueType(IntEnum):
    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    SINT32 = 3
    SINT64 = 4
    ENUM = 5
    FIXED32 = 6
    FIXED64 = 7
    BINARY = 8
    STRING = 9
    MESSAGE = 10
    GROUP = 11

class MessageKind(IntEnum):
    RECORD = 0
    ENTRY = 1
    WRAPPER = 2
    TIMESTAMP = 3
    DURATION = 4

class MessageProgram:
    def __new__(
        cls,
        messages: list[tuple[int, int, int, int, int, int, int]],
        fields: list[tuple[int, int, int, int, int, int, bool, bytes | None]],
        enums: list[tuple[bool, list[tuple[int, bytes]]]],
    ) -> MessageProgram: ...
