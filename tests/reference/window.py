"""A cursor over a slice of a buffer. The reference decoders read fields with it."""

import struct

TRUNCATED, BAD_VARINT = 1, 6
LONGEST_VARINT = 10  # bytes


class BadBytesError(Exception):  # noqa: N818 (many tests import this name)
    """The bytes are bad. `fault` is the code of the fault."""

    def __init__(self, fault):
        super().__init__(fault)
        self.fault = fault


def wrap_int64(number):
    """Wrap a number to a signed integer of 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


class Window:
    """A cursor over data[at:end]. It raises Bad where a field does not fit."""

    def __init__(self, data, at, end):
        self.data = data
        self.at = at
        self.end = end

    @property
    def left(self):
        return self.end - self.at

    def take(self, size):
        if size > self.left:
            raise BadBytesError(TRUNCATED)
        self.at += size
        return bytes(self.data[self.at - size : self.at])

    def i32(self):
        return struct.unpack(">i", self.take(4))[0]

    def zigzag(self, bits):
        """Read a zigzag varint of 32 bits (at most 5 bytes) or of 64 bits (at most 10 bytes)."""
        number = 0
        for shift in range(0, 7 * LONGEST_VARINT, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if number >= 1 << bits or (byte & 0x80 and shift + 7 >= bits):
                raise BadBytesError(BAD_VARINT)
            if not byte & 0x80:
                return -(number + 1 >> 1) if number & 1 else number >> 1
        raise AssertionError("not reached: ten bytes hold 64 bits")

    def field(self, row, name, length):
        """Write the place of a field into the row. The length of the field was just read."""
        at = self.at - row["start"]
        self.take(max(length, 0))
        row[f"{name}_at"] = at
        row[f"{name}_size"] = max(length, -1)
