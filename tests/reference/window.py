"""A cursor over a part of some bytes: what the reference decoders read fields with."""
import struct

TRUNCATED, BAD_VARINT = 1, 6


class Bad(Exception):
    """What is being read is bad, and this fault says how."""

    def __init__(self, fault):
        super().__init__(fault)
        self.fault = fault


def signed(number):
    """A sum as 64 bits hold it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


class Window:
    """A cursor over data[at:end] that raises Bad where a field does not fit."""

    def __init__(self, data, at, end):
        self.data, self.at, self.end = data, at, end

    @property
    def left(self):
        return self.end - self.at

    def take(self, size):
        if size > self.left:
            raise Bad(TRUNCATED)
        self.at += size
        return bytes(self.data[self.at - size:self.at])

    def i32(self):
        return struct.unpack(">i", self.take(4))[0]

    def zigzag(self, bits):
        """A varint of 32 bits (5 bytes at most) or of 64 (10 at most)."""
        number = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if number >= 1 << bits or (byte & 0x80 and shift + 7 >= bits):
                raise Bad(BAD_VARINT)
            if not byte & 0x80:
                return -(number + 1 >> 1) if number & 1 else number >> 1
        raise AssertionError("not reached: ten bytes hold 64 bits")

    def field(self, row, name, length):
        """Note the place of a field whose length was just read."""
        at = self.at - row["start"]
        self.take(max(length, 0))
        row[f"{name}_at"], row[f"{name}_size"] = at, max(length, -1)
