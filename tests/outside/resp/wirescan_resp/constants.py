"""The numbers of RESP by their names."""

from enum import IntEnum

from wirescan import FaultMeaning


class Kind(IntEnum):
    """The types of values."""

    SIMPLE_STRING = 1
    ERROR = 2
    INTEGER = 3
    BULK_STRING = 4
    ARRAY = 5


# The faults that only RESP has. From 64 to 127 the end of the bad frame is known. From 192 to 255
# it is not.
FAULTS = {
    64: FaultMeaning("BAD_INTEGER", "an integer is not a decimal number of 64 bits"),
    65: FaultMeaning("TOO_DEEP", "arrays are nested in more than 32 levels"),
    192: FaultMeaning("NOT_A_VALUE", "a byte that no value begins with"),
    193: FaultMeaning("BAD_LINE", "a line does not end with CR LF, or is too long"),
}
