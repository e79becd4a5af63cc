from enum import IntEnum

class ValueKind(IntEnum):
    NIL = 0
    TRUTH = 1
    NUMBER = 2
    LARGE = 3
    REAL = 4
    TEXT = 5
    OCTETS = 6
    STAMP = 7
    EXTENSION = 8
    ELEMENTS = 9
    PAIRS = 10
