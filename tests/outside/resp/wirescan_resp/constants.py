"""The numbers of RESP by their names."""

from enum import IntEnum


class Kind(IntEnum):
    """The types of values."""

    SIMPLE_STRING = 1
    ERROR = 2
    INTEGER = 3
    BULK_STRING = 4
    ARRAY = 5


# The faults that only RESP has. From 64 to 127 the end of the bad frame is known. From 192 to 255
# it is not.
BAD_INTEGER = 64
TOO_DEEP = 65
NOT_A_VALUE = 192
BAD_LINE = 193
