"""Damage to bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

VALUES = (0, 1, 0x7F, 0x80, 0xFF)  # values that a byte gets


class Mutation(NamedTuple):
    """Damaged bytes.

    Attributes:
        raw: the bytes.
        position: where the damage is.
        change: what was done to the byte there, in words.
    """

    raw: bytes
    position: int
    change: str


def flip_bit(raw: bytes, at: int = -1) -> bytes:
    """Return the bytes with the lowest bit of the byte at `at` flipped."""
    damaged = bytearray(raw)
    damaged[at] ^= 1
    return bytes(damaged)


def iter_mutations(raw: bytes) -> Iterator[Mutation]:
    """Yield the bytes cut before each byte, and with each byte changed, removed and inserted.

    All bytes are also inserted before each byte, so that intact frames are inside a damaged one.
    """
    for at, byte in enumerate(raw):
        yield Mutation(raw[:at] + raw + raw[at:], at, "follows a copy of all bytes")
        yield Mutation(raw[:at], at, "cut")
        yield Mutation(raw[:at] + raw[at + 1 :], at, "removed")
        for value in sorted({*VALUES, byte ^ 1, byte ^ 0x20, (byte + 1) % 256} - {byte}):
            yield Mutation(raw[:at] + bytes([value]) + raw[at + 1 :], at, f"now {value}")
        for value in sorted({0, 0xFF, byte}):
            yield Mutation(raw[:at] + bytes([value]) + raw[at:], at, f"follows a new {value}")


def sample_mutations(raw: bytes, most: int, chance: random.Random) -> list[Mutation]:
    """Return all mutations of some bytes, or `most` of them by chance, in their order."""
    mutations = list(iter_mutations(raw))
    if len(mutations) <= most:
        return mutations
    chosen = sorted(chance.sample(range(len(mutations)), most))
    return [mutations[i] for i in chosen]
