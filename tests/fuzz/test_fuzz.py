"""A long run of random damage to Kafka bytes: the kernels and the reference say the same, and every law holds.

WIRESCAN_FUZZ_SECONDS (60) and WIRESCAN_FUZZ_SEED (by the clock) steer it; the seed is printed. What it finds goes to
build/fuzz; once it is mended, move it to tests/corpus/kafka-hostile, which the default tests read.
"""
import hashlib
import os
import random
import struct
import time
from pathlib import Path

import pytest

import laws
from golden import EXTREMES, GOLDEN, batch, record, varint, wrapper
from rooms import ROOMS
from strategies.kafka import mend

pytestmark = pytest.mark.fuzz
FOUND = Path(__file__).parents[2] / "build" / "fuzz"
ROOM = ROOMS["kafka"]
SMALL = (b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff\x0f", b"\x80" * 11, bytes(16))


def damaged(chance, raw, steps=6):
    out = bytearray(raw)
    for _ in range(chance.randrange(steps)):
        at, kind = chance.randrange(len(out) + 1), chance.randrange(8)
        if kind < 2 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            out[at:at + 1] = chance.choice(SMALL)
        elif kind == 3:
            del out[at:at + chance.randrange(1, 30)]
        elif kind == 4:
            out[at:at] = chance.choice(SMALL) + chance.randbytes(chance.randrange(4))
        elif kind == 5 and len(out) >= 12:
            place = chance.choice((8, 18, 26, 23, 57, at))
            number = chance.choice((*EXTREMES, len(out) - 12, len(out), chance.randrange(100)))
            struct.pack_into(">i", out, min(place, len(out) - 4), number)
        elif kind == 6:
            start = chance.randrange(len(out) + 1)
            out[at:at] = out[start:start + chance.randrange(80)]
        else:
            out[at:at + 2] = varint(chance.choice((*EXTREMES, chance.randrange(-70, 70))), chance.randrange(1, 5))
    return bytes(out)


def one(chance):
    """Good pieces, some damaged inside a sound frame, some from outside."""
    pieces = []
    for _ in range(chance.randrange(1, 4)):
        kind, inside = chance.randrange(5), record() * chance.randrange(4)
        if kind < 2:
            pieces.append(chance.choice(list(GOLDEN.values())))
        elif kind == 2:
            pieces.append(batch(damaged(chance, inside), chance.choice((0, 1, 2, 3, 4, 2**31 - 1))))
        else:
            inner = GOLDEN[chance.choice(("magic1-none", "magic0-none"))]
            pieces.append(wrapper(damaged(chance, inner, 3), chance.randrange(1, 4), chance.randrange(2),
                                  chance.choice((0, 1, 8, 9, 2**63 - 1, -1))))
    raw = b"".join(pieces)
    raw = raw if chance.randrange(3) == 0 else damaged(chance, raw)
    return mend(raw) if chance.randrange(2) else raw


def test_random_damage():
    seed = int(os.environ.get("WIRESCAN_FUZZ_SEED", time.time_ns()))
    seconds = float(os.environ.get("WIRESCAN_FUZZ_SECONDS", 60))
    chance, until, count = random.Random(seed), time.monotonic() + seconds, 0
    print(f"WIRESCAN_FUZZ_SEED={seed}")
    while time.monotonic() < until:
        raw, check = one(chance), bool(chance.randrange(2))
        cuts = [chance.randrange(len(raw) + 1) for _ in range(chance.randrange(6))]
        try:
            laws.all_of_them(ROOM, raw, cuts, check)
        except Exception:
            FOUND.mkdir(parents=True, exist_ok=True)
            (FOUND / f"{hashlib.sha256(raw).hexdigest()[:12]}.bin").write_bytes(raw)
            raise
        count += 1
    print(f"{count} inputs")
