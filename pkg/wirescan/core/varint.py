"""Encode unsigned varints: 7 bits a byte, the lowest first. A high bit says that a byte follows.

The encoders of the protocol packages use it for Python objects. varint.h does the same in C.
"""


def encode_varint(number: int) -> bytes:
    """Return a number of 0 or more as a varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
