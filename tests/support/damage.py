"""Damage to bytes."""


def flip_bit(raw: bytes, at: int = -1) -> bytes:
    """Return the bytes with the lowest bit of the byte at `at` flipped."""
    damaged = bytearray(raw)
    damaged[at] ^= 1
    return bytes(damaged)
