"""A long run of random damage: the kernels and the references say the same, and every law holds.

WIRESCAN_FUZZ_SECONDS (60, for all targets) and WIRESCAN_FUZZ_SEED (by the clock) steer it; the seed is printed. What it
finds goes to build/fuzz; once it is mended, move it to tests/corpus/kafka-hostile, which the default tests read, or put
it into the test_*_hostile.py of its room.
"""
import hashlib
import os
import random
import struct
import time
import zlib
from functools import cache
from pathlib import Path

import pytest

import laws
from golden import EXTREMES, GOLDEN, batch, record, varint, wrapper
from reference import kafka_protocol as reference
from rooms import ROOMS
from strategies import liftbridge as carried
from strategies import lumberjack as beats
from strategies import nats as wired
from strategies import thrift as spoken
from strategies.kafka import mend
from strategies.kafka_protocol import RUNS, framed
from test_kafka_protocol import conversation_agrees
from test_laws import CARRIED, MESSAGES
from wirescan import kafka
from wirescan.kafka.schema import MESSAGE, WIDTHS

pytestmark = pytest.mark.fuzz
FOUND = Path(__file__).parents[2] / "build" / "fuzz"
STREAMS = Path(__file__).parents[1] / "corpus" / "kafka-streams"
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


def batches(chance):
    """(bytes, function that they have to pass)."""
    raw, check = one(chance), bool(chance.randrange(2))
    cuts = places(chance, raw)
    return raw, lambda: laws.all_of_them(ROOM, raw, cuts, check)


def places(chance, raw):
    return [chance.randrange(len(raw) + 1) for _ in range(chance.randrange(6))]


# --------------------------------------------------------------------------------------- requests and responses

@cache
def recorded():
    """[(request, its response or b"")] of real clients, those that are not too long for a slow reference."""
    found = []
    for path in sorted(STREAMS.glob("*/*.requests.bin")):
        up = path.read_bytes()
        down = path.with_name(path.name.replace(".requests", ".responses")).read_bytes()
        asked, answers = reference.requests(up)[0], reference.responses(down, reference.requests(up)[0], up)[0]
        for i, j in reference.pair(asked, answers):
            pair = frame(up, asked[i]), frame(down, answers[j]) if j >= 0 else b""
            if i >= 0 and max(map(len, pair)) < 3000:
                found.append(pair)
    return found


def frame(raw, row):
    return raw[row["start"]:row["start"] + row["size"]]


def anything(chance, fields, version):
    """Values for the fields of a struct."""
    found = {}
    for one in fields:
        if version not in one.versions or chance.randrange(5) == 0:
            continue
        if one.type in WIDTHS:
            bits = 8 * WIDTHS[one.type] - 1
            value = chance.choice((0, 1, -1, chance.randrange(-1 << bits, 1 << bits)))
            value = bool(value) if one.type == "bool" else value
        elif one.type == "struct":
            value = anything(chance, one.fields, version)
        elif one.is_array:
            value = [anything(chance, one.fields, version) for _ in range(chance.randrange(4))]
        elif one.type[:2] == "[]":
            value = [chance.randrange(-9, 9) for _ in range(chance.randrange(4))]
        elif one.type == "records":
            value = chance.choice(list(GOLDEN.values()))
        else:
            value = chance.randbytes(16 if one.type == "uuid" else chance.choice((0, 1, 9, 130)))
        found[one.name] = value
    return found


def written(chance):
    """A request and its response, as the encoders write them."""
    api = chance.choice(list(reference.API))
    asked, answer = MESSAGE[api, "request"], MESSAGE[api, "response"]
    version, number = chance.choice(asked.versions), chance.randrange(4)
    return (kafka.encode_request(api, version, anything(chance, asked.fields, version), correlation_id=number,
                                 client_id=chance.choice((None, "", "me"))),
            kafka.encode_response(api, version, anything(chance, answer.fields, version), correlation_id=number))


def broken(chance, message):
    """A message that is damaged, most often in a sound frame; its header more seldom than its body."""
    kind = chance.randrange(8)
    if kind < 2 or not message:
        return message
    if kind == 2:
        return damaged(chance, message)
    head = message[4:12] if kind > 3 else b""
    rest = bytearray(message[4 + len(head):])
    for _ in range(chance.randrange(1, 3)):
        at, run = chance.randrange(len(rest) + 1), chance.choice(RUNS)
        rest[at:at + chance.choice((0, 1, len(run)))] = run
    return framed(head + bytes(rest if chance.randrange(3) else damaged(chance, rest)))


def messages(chance):
    """As `batches`; the bytes are how long the requests are, the requests, and the responses."""
    pairs = [chance.choice(recorded()) if chance.randrange(3) == 0 else written(chance)
             for _ in range(chance.randrange(1, 4))]
    up, down = (b"".join(broken(chance, pair[side]) for pair in pairs) for side in (0, 1))
    cuts = places(chance, up), places(chance, down)
    room = chance.choice(MESSAGES)

    def agree():
        conversation_agrees(up, down)
        laws.all_of_them(room, up, cuts[0])
        laws.all_of_them(ROOMS["kafka.responses"], down, cuts[1])
    return struct.pack(">i", len(up)) + up + down, agree


# --------------------------------------------------------------------------------------------------- Lumberjack

def frames(chance, depth=0):
    """Good frames, and compressed ones around more of them, damaged inside or at their end."""
    pieces = []
    for _ in range(chance.randrange(1, 5)):
        kind = chance.randrange(6)
        if kind < 3 or depth > 2:
            pieces.append(chance.choice(list(beats.GOLDEN.values())))
        elif kind == 3:
            pairs = [(chance.randbytes(chance.randrange(5)), b"value")] * chance.randrange(4)
            pieces.append(beats.data(chance.randrange(2**32), pairs, chance.randrange(1, 3)))
        else:
            inside = frames(chance, depth + 1)
            payload = zlib.compress(nearly(chance, inside) if kind == 4 else inside, chance.choice((0, 1, 6, 9)))
            end = chance.choice((None, None, -1, -4, -5, chance.randrange(len(payload))))
            payload = payload[:end] + chance.choice((b"", b"", b"", b"\0", payload))
            pieces.append(beats.wrapped(damaged(chance, payload, 2), chance.randrange(1, 3)))
    return b"".join(pieces)


def nearly(chance, raw):
    """`raw` with the numbers in it driven to extremes, or letters changed, or damaged as any bytes are."""
    out = bytearray(raw)
    for at in chance.choices(list(beats.numbers_in(raw)) or [0], k=chance.randrange(3)):
        true = int.from_bytes(raw[at:at + 4], "big")
        number = chance.choice((*beats.EXTREMES, true - 1, true + 1, len(raw) - at)) % 2**32
        out[at:at + 4] = struct.pack(">I", number)[:max(len(raw) - at, 0)]
    return damaged(chance, out, 3) if chance.randrange(2) else bytes(out)


def streams(chance):
    """As `batches`."""
    raw = frames(chance)
    raw = nearly(chance, raw) if chance.randrange(2) else raw
    cuts, check = places(chance, raw), bool(chance.randrange(2))
    return raw, lambda: laws.all_of_them(ROOMS["lumberjack"], raw, cuts, check)


# ---------------------------------------------------------------------------------------------------- NATS

def touched(chance, raw, runs, steps=3):
    """`raw` with runs of bytes put in and over what is there, numbers in text changed, or damaged as any bytes are."""
    out = bytearray(raw)
    for _ in range(chance.randrange(steps)):
        at, run = chance.randrange(len(out) + 1), chance.choice(runs)
        numbers = wired.numbers_in(bytes(out))
        if numbers and chance.randrange(3) == 0:
            begin, end = chance.choice(numbers)
            out[begin:end] = chance.choice((*wired.NUMBERS, b"%d" % (int(out[begin:end][:20]) + 1)))
        else:
            out[at:at + chance.choice((0, 0, 1, len(run)))] = run
    return damaged(chance, out, 3) if chance.randrange(4) == 0 else bytes(out)


def blocks(chance):
    block = wired.block(*[(chance.choice((b"A", b"b", b"\xff")), chance.randbytes(chance.randrange(4)))
                          for _ in range(chance.randrange(4))], status=chance.choice((b"", b" 503", b" 7 x")))
    return touched(chance, block, wired.RUNS, 2)


def lines(chance):
    """As `batches`."""
    pieces = []
    for _ in range(chance.randrange(1, 5)):
        kind, payload = chance.randrange(4), chance.choice((b"", b"x", b"PING\r\n", chance.randbytes(80)))
        pieces.append(chance.choice(list(wired.GOLDEN.values())) if kind == 0 else wired.msg(payload) if kind == 1
                      else chance.choice((wired.hpub, wired.hmsg))(payload, blocks(chance)))
    raw = b"".join(pieces)
    raw = touched(chance, raw, wired.RUNS) if chance.randrange(3) else raw
    cuts = places(chance, raw)
    return raw, lambda: laws.all_of_them(ROOMS["nats"], raw, cuts)


# ---------------------------------------------------------------------------------------------- Liftbridge

def payloads(chance):
    """As `batches`: what NATS messages carry, damaged around a sound body or in it."""
    pieces = []
    for _ in range(chance.randrange(1, 6)):
        kind = chance.choice((0, 0, 0, 1, *range(2, 15)))
        body = carried.INTERNAL.get(kind) or (carried.ack(ack_error=1) if kind else carried.SAMPLE)
        body = touched(chance, body, carried.ODD, 4)
        payload = carried.envelope(body, kind, crc=bool(chance.randrange(2))) if chance.randrange(6) else b"LIFT" + body
        payload = touched(chance, payload, carried.ODD, 2) if chance.randrange(4) == 0 else payload
        pieces.append(chance.choice((wired.pub, wired.msg, wired.hmsg))(payload))
    raw = b"".join(pieces)
    cuts, check, room = places(chance, raw), bool(chance.randrange(2)), chance.choice(CARRIED[:-1])
    return raw, lambda: laws.all_of_them(room, raw, cuts, check)


def entries(chance):
    """As `batches`: records whose checksum is right around anything, and others."""
    pieces = []
    for _ in range(chance.randrange(1, 6)):
        body = carried.entry_message(chance.choice((None, b"", b"k")), chance.randbytes(chance.randrange(60)),
                                     [(b"n", b"v"), (b"", None)][:chance.randrange(3)])
        body = damaged(chance, body, 3) if chance.randrange(2) else body
        record = carried.sealed(body, chance.randrange(9))
        pieces.append(damaged(chance, record, 3) if chance.randrange(3) == 0 else record)
    raw = b"".join(pieces) + chance.choice((b"", b"", bytes(60), bytes(9)))
    cuts, check = places(chance, raw), bool(chance.randrange(2))
    return raw, lambda: laws.all_of_them(ROOMS["liftbridge.entries"], raw, cuts, check)


# -------------------------------------------------------------------------------------------------- Thrift

def struct_of(chance, version, deep=0):
    """A struct of random fields, damaged now and then."""
    fields = []
    for id in range(chance.randrange(4)):
        kind = chance.choice((spoken.I32, spoken.STRING, spoken.BOOL, spoken.DOUBLE, spoken.LIST))
        value = {spoken.I32: 7, spoken.STRING: chance.randbytes(chance.randrange(9)), spoken.BOOL: id % 2 == 0,
                 spoken.DOUBLE: 0.5, spoken.LIST: (spoken.I32, [1] * chance.randrange(3))}[kind]
        fields.append((chance.choice((id + 1, id + 99)), kind, value))
    raw = spoken.put_struct(fields, version)
    return touched(chance, raw, spoken.RUNS, 2) if chance.randrange(2) else raw


def calls(chance):
    """As `batches`: frames of every kind, damaged in their message, their header, or anywhere."""
    pieces = []
    for _ in range(chance.randrange(1, 5)):
        version = chance.randrange(3)
        payload = spoken.message(kind=chance.randrange(1, 5), seqid=chance.randrange(9), version=version,
                                 arguments=struct_of(chance, version))
        infos = touched(chance, spoken.KEYS, spoken.RUNS, 2)
        ids = chance.choice(([], [], [1], [5, 1], [6], [3], [4]))
        kind = chance.randrange(8)
        if kind == 0:
            pieces.append(chance.choice(list(spoken.GOLDEN.values())))
        elif kind < 5:
            packed = touched(chance, spoken.transformed(payload, [one for one in ids if one != 4]), spoken.RUNS, 2)
            pieces.append(chance.choice((spoken.header, spoken.header, spoken.big, spoken.double))(
                packed, infos, transforms=ids, protocol=2 * (version > 0)))
        elif kind == 5:
            pieces.append(payload)
        else:
            pieces.append(spoken.framed(payload) if kind == 6 else spoken.chunked(payload[:9], payload[9:]))
    raw = b"".join(pieces)
    raw = touched(chance, raw, spoken.RUNS) if chance.randrange(2) else raw
    cuts, check = places(chance, raw), bool(chance.randrange(2))
    room = ROOMS[chance.choice(("thrift", "thrift.infos", "thrift.plain"))]
    return raw, lambda: laws.all_of_them(room, raw, cuts, check)


# By how the names of their files end.
TARGETS = {"bin": batches, "messages": messages, "lumberjack": streams, "nats": lines, "liftbridge": payloads,
           "entries": entries, "theader": calls}


@pytest.mark.parametrize("ending", TARGETS)
def test_random_damage(ending):
    seed = int(os.environ.get("WIRESCAN_FUZZ_SEED", time.time_ns()))
    seconds = float(os.environ.get("WIRESCAN_FUZZ_SECONDS", 60)) / len(TARGETS)
    chance, until, count = random.Random(seed), time.monotonic() + seconds, 0
    print(f"WIRESCAN_FUZZ_SEED={seed}")
    while time.monotonic() < until:
        raw, agree = TARGETS[ending](chance)
        try:
            agree()
        except Exception:
            FOUND.mkdir(parents=True, exist_ok=True)
            (FOUND / f"{hashlib.sha256(raw).hexdigest()[:12]}.{ending}").write_bytes(raw)
            raise
        count += 1
    print(f"{count} inputs")
