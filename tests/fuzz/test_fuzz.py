"""A long run with random damage: kernels agree with the references, and every law holds.

WIRESCAN_FUZZ_SECONDS is the time for all targets, 60 by default. WIRESCAN_FUZZ_SEED is the seed, by
default the clock; it is printed.

An input that fails is written to build/fuzz. When the error is fixed, move the input to
tests/corpus/kafka-hostile, which the default tests read, or to the test_hostile.py of its package.
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

from tests.laws.cases import CARRIED, MESSAGES
from tests.laws.packages import PACKAGES
from tests.reference import kafka_protocol as reference
from tests.reference.kafka_metadata import TYPES
from tests.strategies import kafka_kbak as kbak_bytes
from tests.strategies import liftbridge as liftbridge_bytes
from tests.strategies import lumberjack as lumberjack_bytes
from tests.strategies import nats as nats_bytes
from tests.strategies import pcap as pcap_bytes
from tests.strategies import thrift as thrift_bytes
from tests.strategies.kafka import correct_checksums
from tests.strategies.kafka_protocol import RUNS, frame_payload
from tests.support import connect_records
from tests.support.kafka_bytes import (
    EXTREMES,
    GOLDEN,
    make_batch,
    make_record,
    make_varint,
    make_wrapper,
)
from tests.support.kafka_conversation import assert_conversation_agrees
from tests.support.kbak_records import encode_segment
from tests.support.paths import CORPUS
from wirescan import kafka
from wirescan.kafka.protocol.schema import MESSAGE, WIDTHS
from wirescan.testing import laws

pytestmark = pytest.mark.fuzz
FAILURES = Path(__file__).parents[2] / "build" / "fuzz"
STREAMS = CORPUS / "kafka-streams"
PACKAGE = PACKAGES["kafka"]
SMALL = (
    b"\0",
    b"\1",
    b"\2",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80" * 11,
    bytes(16),
)


# The order of the calls of `rng` decides what a seed produces.


def damage(rng, raw, steps=6):
    """Return bytes with up to `steps` - 1 random changes."""
    out = bytearray(raw)
    for _ in range(rng.randrange(steps)):
        at, kind = rng.randrange(len(out) + 1), rng.randrange(8)
        if kind < 2 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            out[at : at + 1] = rng.choice(SMALL)
        elif kind == 3:
            del out[at : at + rng.randrange(1, 30)]
        elif kind == 4:
            out[at:at] = rng.choice(SMALL) + rng.randbytes(rng.randrange(4))
        elif kind == 5 and len(out) >= 12:
            place = rng.choice((8, 18, 26, 23, 57, at))
            number = rng.choice((*EXTREMES, len(out) - 12, len(out), rng.randrange(100)))
            struct.pack_into(">i", out, min(place, len(out) - 4), number)
        elif kind == 6:
            start = rng.randrange(len(out) + 1)
            out[at:at] = out[start : start + rng.randrange(80)]
        else:
            out[at : at + 2] = make_varint(
                rng.choice((*EXTREMES, rng.randrange(-70, 70))), rng.randrange(1, 5)
            )
    return bytes(out)


def make_kafka_bytes(rng):
    """Return good pieces, pieces damaged inside a valid frame, and damaged frames."""
    pieces = []
    for _ in range(rng.randrange(1, 4)):
        kind = rng.randrange(5)
        inside = make_record() * rng.randrange(4)
        if kind < 2:
            pieces.append(rng.choice(list(GOLDEN.values())))
        elif kind == 2:
            pieces.append(make_batch(damage(rng, inside), rng.choice((0, 1, 2, 3, 4, 2**31 - 1))))
        else:
            inner = GOLDEN[rng.choice(("magic1-none", "magic0-none"))]
            pieces.append(
                make_wrapper(
                    damage(rng, inner, 3),
                    rng.randrange(1, 4),
                    rng.randrange(2),
                    rng.choice((0, 1, 8, 9, 2**63 - 1, -1)),
                )
            )
    raw = b"".join(pieces)
    raw = raw if rng.randrange(3) == 0 else damage(rng, raw)
    return correct_checksums(raw) if rng.randrange(2) else raw


def make_batches(rng):
    """Return random bytes and a function that checks them.

    The other targets below return the same kinds of values.
    """
    raw = make_kafka_bytes(rng)
    check = bool(rng.randrange(2))
    cuts = choose_cuts(rng, raw)
    return raw, lambda: laws.keeps_every_law(PACKAGE, raw, cuts, check=check)


def choose_cuts(rng, raw):
    return [rng.randrange(len(raw) + 1) for _ in range(rng.randrange(6))]


# --- requests and responses


@cache
def read_recorded_pairs():
    """Return (request, response or b"") pairs of real clients.

    Long messages are skipped, because the reference is slow.
    """
    pairs = []
    for path in sorted(STREAMS.glob("*/*.requests.bin")):
        up = path.read_bytes()
        down = path.with_name(path.name.replace(".requests", ".responses")).read_bytes()
        requests = reference.read_requests(up)[0]
        responses = reference.read_responses(down, requests, up)[0]
        for i, j in reference.pair(requests, responses):
            answer = frame_bytes(down, responses[j]) if j >= 0 else b""
            pair = frame_bytes(up, requests[i]), answer
            if i >= 0 and max(map(len, pair)) < 3000:
                pairs.append(pair)
    return pairs


def frame_bytes(raw, row):
    return raw[row["start"] : row["start"] + row["size"]]


def make_values(rng, fields, version):
    """Return random values for the fields of a struct."""
    values = {}
    for field in fields:
        if version not in field.versions or rng.randrange(5) == 0:
            continue
        if field.type in WIDTHS:
            bits = 8 * WIDTHS[field.type] - 1
            value = rng.choice((0, 1, -1, rng.randrange(-1 << bits, 1 << bits)))
            value = bool(value) if field.type == "bool" else value
        elif field.type == "struct":
            value = make_values(rng, field.fields, version)
        elif field.is_array:
            value = [make_values(rng, field.fields, version) for _ in range(rng.randrange(4))]
        elif field.type[:2] == "[]":
            value = [rng.randrange(-9, 9) for _ in range(rng.randrange(4))]
        elif field.type == "records":
            value = rng.choice(list(GOLDEN.values()))
        else:
            size = 16 if field.type == "uuid" else rng.choice((0, 1, 9, 130))
            value = rng.randbytes(size)
        values[field.name] = value
    return values


def make_pair(rng):
    """Return a random request and its response, written by the encoders."""
    api = rng.choice(list(reference.API))
    version = rng.choice(MESSAGE[api, "request"].versions)
    number = rng.randrange(4)
    values = make_values(rng, MESSAGE[api, "request"].fields, version)
    client_id = rng.choice((None, "", "me"))
    request = kafka.encode_request(api, version, values, correlation_id=number, client_id=client_id)
    values = make_values(rng, MESSAGE[api, "response"].fields, version)
    response = kafka.encode_response(api, version, values, correlation_id=number)
    return request, response


def break_message(rng, message):
    """Return a damaged message. Most often its frame is valid and its body is damaged."""
    kind = rng.randrange(8)
    if kind < 2 or not message:
        return message
    if kind == 2:
        return damage(rng, message)
    head = message[4:12] if kind > 3 else b""
    rest = bytearray(message[4 + len(head) :])
    for _ in range(rng.randrange(1, 3)):
        at = rng.randrange(len(rest) + 1)
        run = rng.choice(RUNS)
        rest[at : at + rng.choice((0, 1, len(run)))] = run
    return frame_payload(head + bytes(rest if rng.randrange(3) else damage(rng, rest)))


def make_conversation(rng):
    """A target. The bytes are the size of the requests, the requests and the responses."""
    pairs = [
        rng.choice(read_recorded_pairs()) if rng.randrange(3) == 0 else make_pair(rng)
        for _ in range(rng.randrange(1, 4))
    ]
    up, down = (b"".join(break_message(rng, pair[side]) for pair in pairs) for side in (0, 1))
    cuts = choose_cuts(rng, up), choose_cuts(rng, down)
    package = rng.choice(MESSAGES)

    def agree():
        assert_conversation_agrees(up, down)
        laws.keeps_every_law(package, up, cuts[0])
        laws.keeps_every_law(PACKAGES["kafka.responses"], down, cuts[1])

    return struct.pack(">i", len(up)) + up + down, agree


# --- the metadata log of a cluster


@cache
def read_recorded_metadata():
    """Return (value, the packages that read its type) of the records in real metadata logs.

    A value that occurs several times is returned once.
    """
    packages = {}
    for name, package in PACKAGES.items():
        if name.startswith("metadata "):
            packages.setdefault(package.formats[3], []).append(package)
    names = [f"kafka.{MESSAGE[name, 'record'].level.path}" for name in TYPES]
    by_type = dict(zip((number for number, _ in TYPES.values()), map(packages.get, names)))
    logs = sorted((CORPUS / "kafka-metadata").glob("*/*.log"))
    tables = [kafka.records(kafka.scan(path), errors="mark") for path in logs]
    values = dict.fromkeys(bytes(row.value) for table in tables for row in table)
    # The control records have no type of these.
    return [(value, by_type[value[1]]) for value in values if value[0] == 1]


def change_metadata_value(rng, value):
    """Return the value of a metadata record, most often with damage in its fields or its head."""
    kind = rng.randrange(8)
    if kind < 3:
        return value
    if kind == 3:
        return rng.choice((None, b"", value[: rng.randrange(len(value) + 1)]))
    out = bytearray(value)
    if kind == 4:
        number = rng.choice(list(TYPES.values()) + [(rng.randrange(40), 5)])
        out[:3] = (rng.randrange(3), number[0], rng.randrange(number[1] + 2))
        return bytes(out)
    for _ in range(rng.randrange(1, 3)):
        at = rng.randrange(3, len(out) + 1)
        run = rng.choice(RUNS)
        out[at : at + rng.choice((0, 1, len(run)))] = run
    return bytes(out) if rng.randrange(3) else damage(rng, out, 3)


def make_metadata_log(rng):
    pieces = []
    packages = []
    for _ in range(rng.randrange(1, 3)):
        chosen = rng.choices(read_recorded_metadata(), k=rng.randrange(1, 4))
        records = [{"value": change_metadata_value(rng, value)} for value, _ in chosen]
        packages += [package for _, of_type in chosen for package in of_type]
        pieces.append(
            kafka.encode_batch(
                records,
                base_offset=rng.randrange(1000),
                codec=rng.choice(("none", "none", "zstd")),
                control=rng.randrange(8) == 0,
            )
        )
    raw = b"".join(pieces)
    raw = damage(rng, raw, 3) if rng.randrange(3) == 0 else raw
    cuts = choose_cuts(rng, raw)
    package = rng.choice(packages)
    return raw, lambda: laws.keeps_every_law(package, raw, cuts)


# --- Lumberjack


def make_frames(rng, depth=0):
    """Return good frames and compressed frames around more frames.

    Compressed frames are damaged inside or at their end.
    """
    pieces = []
    for _ in range(rng.randrange(1, 5)):
        kind = rng.randrange(6)
        if kind < 3 or depth > 2:
            pieces.append(rng.choice(list(lumberjack_bytes.GOLDEN.values())))
        elif kind == 3:
            pairs = [(rng.randbytes(rng.randrange(5)), b"value")] * rng.randrange(4)
            pieces.append(
                lumberjack_bytes.make_data(rng.randrange(2**32), pairs, rng.randrange(1, 3))
            )
        else:
            inside = make_frames(rng, depth + 1)
            if kind == 4:
                inside = change_numbers(rng, inside)
            payload = zlib.compress(inside, rng.choice((0, 1, 6, 9)))
            end = rng.choice((None, None, -1, -4, -5, rng.randrange(len(payload))))
            payload = payload[:end] + rng.choice((b"", b"", b"", b"\0", payload))
            pieces.append(
                lumberjack_bytes.wrap_payload(damage(rng, payload, 2), rng.randrange(1, 3))
            )
    return b"".join(pieces)


def change_numbers(rng, raw):
    """Return `raw` with extreme numbers, and sometimes with random damage."""
    out = bytearray(raw)
    for at in rng.choices(list(lumberjack_bytes.find_numbers(raw)) or [0], k=rng.randrange(3)):
        true = int.from_bytes(raw[at : at + 4], "big")
        number = rng.choice((*lumberjack_bytes.EXTREMES, true - 1, true + 1, len(raw) - at)) % 2**32
        out[at : at + 4] = struct.pack(">I", number)[: max(len(raw) - at, 0)]
    return damage(rng, out, 3) if rng.randrange(2) else bytes(out)


def make_lumberjack_stream(rng):
    raw = make_frames(rng)
    raw = change_numbers(rng, raw) if rng.randrange(2) else raw
    cuts = choose_cuts(rng, raw)
    check = bool(rng.randrange(2))
    return raw, lambda: laws.keeps_every_law(PACKAGES["lumberjack"], raw, cuts, check=check)


# --- NATS


def change_text(rng, raw, runs, steps=3):
    """Return `raw` with inserted and replaced bytes, and with other numbers in its text.

    Sometimes the result has random damage too.
    """
    out = bytearray(raw)
    for _ in range(rng.randrange(steps)):
        at = rng.randrange(len(out) + 1)
        run = rng.choice(runs)
        numbers = nats_bytes.find_numbers(bytes(out))
        if numbers and rng.randrange(3) == 0:
            begin, end = rng.choice(numbers)
            next_number = b"%d" % (int(out[begin:end][:20]) + 1)
            out[begin:end] = rng.choice((*nats_bytes.NUMBERS, next_number))
        else:
            out[at : at + rng.choice((0, 0, 1, len(run)))] = run
    return damage(rng, out, 3) if rng.randrange(4) == 0 else bytes(out)


def make_header_block(rng):
    headers = [
        (rng.choice((b"A", b"b", b"\xff")), rng.randbytes(rng.randrange(4)))
        for _ in range(rng.randrange(4))
    ]
    block = nats_bytes.make_block(*headers, status=rng.choice((b"", b" 503", b" 7 x")))
    return change_text(rng, block, nats_bytes.RUNS, 2)


def make_nats_lines(rng):
    pieces = []
    for _ in range(rng.randrange(1, 5)):
        kind = rng.randrange(4)
        payload = rng.choice((b"", b"x", b"PING\r\n", rng.randbytes(80)))
        if kind == 0:
            piece = rng.choice(list(nats_bytes.GOLDEN.values()))
        elif kind == 1:
            piece = nats_bytes.make_msg(payload)
        else:
            encode = rng.choice((nats_bytes.make_hpub, nats_bytes.make_hmsg))
            piece = encode(payload, make_header_block(rng))
        pieces.append(piece)
    raw = b"".join(pieces)
    raw = change_text(rng, raw, nats_bytes.RUNS) if rng.randrange(3) else raw
    cuts = choose_cuts(rng, raw)
    return raw, lambda: laws.keeps_every_law(PACKAGES["nats"], raw, cuts)


# --- Liftbridge


def make_liftbridge_payloads(rng):
    """A target: payloads of NATS messages, damaged in their body or around it."""
    pieces = []
    for _ in range(rng.randrange(1, 6)):
        kind = rng.choice((0, 0, 0, 1, *range(2, 15)))
        other_body = liftbridge_bytes.make_ack(ack_error=1) if kind else liftbridge_bytes.SAMPLE
        body = liftbridge_bytes.INTERNAL.get(kind) or other_body
        body = change_text(rng, body, liftbridge_bytes.ODD, 4)
        if rng.randrange(6):
            payload = liftbridge_bytes.make_envelope(body, kind, crc=bool(rng.randrange(2)))
        else:
            payload = b"LIFT" + body
        if rng.randrange(4) == 0:
            payload = change_text(rng, payload, liftbridge_bytes.ODD, 2)
        pieces.append(
            rng.choice((nats_bytes.make_pub, nats_bytes.make_msg, nats_bytes.make_hmsg))(payload)
        )
    raw = b"".join(pieces)
    cuts = choose_cuts(rng, raw)
    check = bool(rng.randrange(2))
    package = rng.choice(CARRIED[:-1])
    return raw, lambda: laws.keeps_every_law(package, raw, cuts, check=check)


def make_liftbridge_entries(rng):
    """A target: records with valid checksums around any bytes, and damaged records."""
    pieces = []
    for _ in range(rng.randrange(1, 6)):
        body = liftbridge_bytes.make_entry_message(
            rng.choice((None, b"", b"k")),
            rng.randbytes(rng.randrange(60)),
            [(b"n", b"v"), (b"", None)][: rng.randrange(3)],
        )
        body = damage(rng, body, 3) if rng.randrange(2) else body
        record = liftbridge_bytes.seal_record(body, rng.randrange(9))
        pieces.append(damage(rng, record, 3) if rng.randrange(3) == 0 else record)
    raw = b"".join(pieces) + rng.choice((b"", b"", bytes(60), bytes(9)))
    cuts = choose_cuts(rng, raw)
    check = bool(rng.randrange(2))
    return raw, lambda: laws.keeps_every_law(PACKAGES["liftbridge.entries"], raw, cuts, check=check)


# --- Thrift


def make_struct(rng, version, deep=0):
    """Return a struct of random fields, sometimes damaged."""
    fields = []
    for id in range(rng.randrange(4)):
        kind = rng.choice(
            (
                thrift_bytes.I32,
                thrift_bytes.STRING,
                thrift_bytes.BOOL,
                thrift_bytes.DOUBLE,
                thrift_bytes.LIST,
            )
        )
        value = {
            thrift_bytes.I32: 7,
            thrift_bytes.STRING: rng.randbytes(rng.randrange(9)),
            thrift_bytes.BOOL: id % 2 == 0,
            thrift_bytes.DOUBLE: 0.5,
            thrift_bytes.LIST: (thrift_bytes.I32, [1] * rng.randrange(3)),
        }[kind]
        fields.append((rng.choice((id + 1, id + 99)), kind, value))
    raw = thrift_bytes.make_struct(fields, version)
    return change_text(rng, raw, thrift_bytes.RUNS, 2) if rng.randrange(2) else raw


def make_thrift_calls(rng):
    """A target: frames of every kind, damaged in their message, in their header or anywhere."""
    pieces = []
    for _ in range(rng.randrange(1, 5)):
        version = rng.randrange(3)
        payload = thrift_bytes.make_message(
            kind=rng.randrange(1, 5),
            seqid=rng.randrange(9),
            version=version,
            arguments=make_struct(rng, version),
        )
        infos = change_text(rng, thrift_bytes.KEYS, thrift_bytes.RUNS, 2)
        ids = rng.choice(([], [], [1], [5, 1], [6], [3], [4]))
        kind = rng.randrange(8)
        if kind == 0:
            pieces.append(rng.choice(list(thrift_bytes.GOLDEN.values())))
        elif kind < 5:
            known_ids = [number for number in ids if number != 4]
            packed = thrift_bytes.apply_transforms(payload, known_ids)
            packed = change_text(rng, packed, thrift_bytes.RUNS, 2)
            pieces.append(
                rng.choice(
                    (
                        thrift_bytes.make_header_frame,
                        thrift_bytes.make_header_frame,
                        thrift_bytes.make_big_frame,
                        thrift_bytes.make_double_frame,
                    )
                )(packed, infos, transforms=ids, protocol=2 * (version > 0))
            )
        elif kind == 5:
            pieces.append(payload)
        else:
            pieces.append(
                thrift_bytes.make_framed(payload)
                if kind == 6
                else thrift_bytes.make_chunked(payload[:9], payload[9:])
            )
    raw = b"".join(pieces)
    raw = change_text(rng, raw, thrift_bytes.RUNS) if rng.randrange(2) else raw
    cuts = choose_cuts(rng, raw)
    check = bool(rng.randrange(2))
    package = PACKAGES[rng.choice(("thrift", "thrift.infos", "thrift.plain"))]
    return raw, lambda: laws.keeps_every_law(package, raw, cuts, check=check)


def make_capture(rng):
    """Captures of one or two kinds, with changed words and bytes."""
    raw = bytearray(b"".join(rng.choices(list(pcap_bytes.GOLDEN.values()), k=rng.randrange(1, 3))))
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(raw))
        if rng.randrange(2):
            raw[at] = rng.randrange(256)
        else:
            raw[at & ~3 : (at & ~3) + 4] = rng.choice((0, 12, 28, 1 << 31)).to_bytes(4, "little")
    raw = bytes(raw)
    cuts = choose_cuts(rng, raw)
    return raw, lambda: laws.keeps_every_law(PACKAGES["pcap"], raw, cuts)


def make_backup_segments(rng):
    """KBAK segments with damage in their records, payloads, headers or anywhere."""
    pieces = []
    for _ in range(rng.randrange(1, 4)):
        rows = [
            (i, rng.randrange(1 << 40), rng.choice((None, b"", b"BKAE")), rng.randbytes(5), ())
            for i in range(rng.randrange(4))
        ]
        rows += [(9, 9, b"k", None, ((b"name", b"KBAK"), (b"", None)))] * rng.randrange(2)
        payload, codec = kbak_bytes.encode_payload(rows), rng.randrange(3)
        where = rng.randrange(4)
        payload = damage(rng, payload) if where == 0 else payload
        payload = kbak_bytes.compress(codec, payload)
        payload = damage(rng, payload) if where == 1 else payload
        segment = encode_segment(payload, len(rows), codec)
        if where == 2:
            at = rng.randrange(4, 32)
            changed = segment[:at] + rng.randbytes(1) + segment[at + 1 :]
            segment = kbak_bytes.correct_checksum(changed)
        pieces.append(segment)
    raw = b"".join(pieces)
    raw = damage(rng, raw, 3) if rng.randrange(3) == 0 else raw
    cuts = choose_cuts(rng, raw)
    return raw, lambda: laws.keeps_every_law(PACKAGES["kbak"], raw, cuts)


def make_connect_backup(rng):
    """Segments of itadventurer's kafka-backup with damage anywhere."""
    pieces = []
    for _ in range(rng.randrange(1, 4)):
        pieces.append(rng.choice((connect_records.VERSION, b"")))
        for i in range(rng.randrange(4)):
            headers = ((b"name", b"\1"), (b"", None)) * rng.randrange(2)
            key = rng.choice((None, b"", bytes(9)))
            fields = (rng.randrange(1 << 40) + i, key, rng.randbytes(5), headers)
            pieces.append(connect_records.encode_record(*fields, kind=rng.randrange(-2, 2)))
    raw = b"".join(pieces)
    raw = damage(rng, raw, 3) if rng.randrange(3) else raw
    cuts = choose_cuts(rng, raw)
    return raw, lambda: laws.keeps_every_law(PACKAGES["connect-backup"], raw, cuts)


# The extension of the files with failing inputs -> target.
TARGETS = {
    "bin": make_batches,
    "kbak": make_backup_segments,
    "connect": make_connect_backup,
    "messages": make_conversation,
    "metadata": make_metadata_log,
    "lumberjack": make_lumberjack_stream,
    "nats": make_nats_lines,
    "liftbridge": make_liftbridge_payloads,
    "entries": make_liftbridge_entries,
    "theader": make_thrift_calls,
    "pcapng": make_capture,
}


@pytest.mark.parametrize("ending", TARGETS)
def test_random_damage_keeps_the_laws(ending):
    seed = int(os.environ.get("WIRESCAN_FUZZ_SEED", time.time_ns()))
    seconds = float(os.environ.get("WIRESCAN_FUZZ_SECONDS", 60)) / len(TARGETS)
    rng = random.Random(seed)
    deadline = time.monotonic() + seconds
    count = 0
    print(f"WIRESCAN_FUZZ_SEED={seed}")
    while time.monotonic() < deadline:
        raw, check = TARGETS[ending](rng)
        try:
            check()
        except Exception:
            FAILURES.mkdir(parents=True, exist_ok=True)
            (FAILURES / f"{hashlib.sha256(raw).hexdigest()[:12]}.{ending}").write_bytes(raw)
            raise
        count += 1
    print(f"{count} inputs")
