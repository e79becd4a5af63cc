"""Unsigned variable-length integers, as in Protocol Buffers and Thrift's compact protocol."""


def make_varint(number: int) -> bytes:
    """Return the varint of a number. A negative number is written as 64 bits."""
    if number < 0:
        number += 1 << 64
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])
