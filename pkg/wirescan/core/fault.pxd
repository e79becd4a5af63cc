# Why a frame is bad, or why a scan stopped. C and Python share this list. `MEANING` in
# frames/fault_names.py describes each value.
#
# Formats of other packages have faults of their own: 64 to 127 are soft, and 192 to 255 are hard.
# Their kernels return such a number as `<Fault>64`. `Format.faults` declares its name. wirescan
# uses none of these numbers.
cpdef enum Fault:
    OK = 0
    # Soft: the end of the frame is known. Its row is kept and marked, and the scan goes on.
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
    # Hard: the start of the next frame is not known. The scan stops, or searches for the next
    # intact frame.
    BAD_LENGTH = 160
    NOT_A_FRAME = 161
    LIMIT = 162
