from enum import IntEnum

class Fault(IntEnum):
    """Why a frame is bad, or why a scan stopped. `wirescan.frames.fault_names` has the meanings."""

    OK = 0
    # Soft: the end of the frame is known.
    TRUNCATED = 1
    BAD_MAGIC = 2
    BAD_VERSION = 3
    BAD_CHECKSUM = 4
    BAD_COUNT = 5
    BAD_VARINT = 6
    BAD_CODEC = 7
    BAD_COMPRESSION = 8
    TOO_LARGE = 9
    LEFTOVER = 10
    NESTED = 11
    BAD_OFFSET = 12
    BAD_NULL = 13
    EMPTY = 14
    BAD_KIND = 15
    BAD_FIELD = 16
    BAD_HEADER = 17
    LOST = 18
    # Ordinary ends: the scan stops, and this is no error.
    SHORT = 128
    ZEROS = 129
    FILLER = 130
    # Hard: the start of the next frame is not known.
    BAD_LENGTH = 160
    NOT_A_FRAME = 161
    LIMIT = 162
