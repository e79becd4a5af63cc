"""Hostile Liftbridge bytes: damage to every byte of payloads and logs, false lengths, groups."""

import struct

import pytest

import wirescan
from tests.laws.packages import PACKAGES
from tests.reference import liftbridge as reference
from tests.reference.nats import read_messages as messages_of
from tests.strategies.liftbridge import (
    GOLDEN,
    INTERNAL,
    LOG,
    MAGIC,
    ODD,
    SAMPLE,
    make_ack,
    make_envelope,
    make_field,
    make_group,
    make_message,
    make_pair,
    make_record,
    make_response,
    make_tag,
    make_varint,
)
from tests.strategies.nats import make_pub
from tests.support import many_streams
from tests.support.children import run_each_in_little_memory, run_scans
from tests.support.slowness import SLOWNESS
from wirescan import Fault, FrameError, Limits, liftbridge, nats
from wirescan.testing import laws
from wirescan.testing.cost import assert_linear

PACKAGE = PACKAGES["liftbridge"]
ENTRIES = PACKAGES["liftbridge.entries"]
BYTES = {0, 1, 7, 8, 0x0B, 0x0C, 0x12, 0x4A, 0x7F, 0x80, 0xFF}
READ = {"messages": liftbridge.messages, "acks": liftbridge.acks, "internal": liftbridge.internal}
every_payload = pytest.mark.parametrize("payload", GOLDEN.values(), ids=GOLDEN)
checked = pytest.mark.parametrize("check", [True, False], ids=["check", "no check"])


def agree(payloads, check=True):
    """Compare every level of a stream of these payloads with the reference."""
    raw = b"".join(map(make_pub, payloads))
    packages = [PACKAGES[name] for name in ("liftbridge", "liftbridge.acks", "liftbridge.internal")]
    many_streams.agree_with_the_reference(
        packages, [raw], check, outermost=lambda raw: messages_of(raw, resync=False)
    )
    for package in packages:
        laws.covers_every_byte(package, raw, check=check)


# ---- each byte, each number, each cut


@every_payload
@checked
def test_changes_of_every_byte_keep_the_laws(payload, check, stride):
    positions = many_streams.sample_positions(len(payload), stride)
    damaged = [
        payload[:at] + bytes([byte]) + payload[at + 1 :]
        for at in positions
        for byte in {*BYTES, payload[at] ^ 1, payload[at] ^ 0x10} - {payload[at]}
    ]
    agree(damaged, check)


@every_payload
def test_cut_at_each_byte(payload):
    agree([payload[:cut] for cut in range(len(payload))])
    agree([payload[:at] + payload[at + 1 :] for at in range(len(payload))])


@pytest.mark.parametrize("kind", [0, 1, 2, 8, 9, 14])
def test_odd_bytes_at_each_position(kind):
    body = {0: SAMPLE, 1: make_ack(ack_error=1)}.get(kind) or INTERNAL[kind]
    positions = range(len(body) + 1)
    agree([make_envelope(body[:at] + odd + body[at:], kind) for odd in ODD for at in positions])


@pytest.mark.parametrize("read", READ.values(), ids=READ)
def test_modes_agree_on_damage(read):
    payloads = [
        payload[:at] + b"\xff" + payload[at + 1 :]
        for payload in GOLDEN.values()
        for at in range(0, len(payload), 3)
    ]
    marked = read(liftbridge.scan(payloads, errors="mark"), errors="mark")
    skipped = read(liftbridge.scan(payloads, errors="skip"), errors="skip")
    good = marked[~marked.bad]
    assert laws.describe_rows(skipped, parents=False) == laws.describe_rows(good, parents=False)
    assert marked.bad.any()


@checked
def test_every_byte_of_a_log(check):
    streams = list(many_streams.replace_bytes(LOG, lambda old: {0, 0x80, 0xFF, old ^ 1}))
    many_streams.agree_with_the_reference([ENTRIES], streams, check)
    for damaged in streams:
        laws.covers_every_byte(ENTRIES, damaged, check=check)


def test_a_log_cut_at_each_byte():
    ends = [0, 71, 115, len(LOG)]
    streams = []
    for cut in range(len(LOG)):
        streams += [LOG[:cut], LOG[cut:], LOG[:cut] + bytes(50)]
        table = liftbridge.entries(LOG[:cut])
        assert table["fault"].tolist() == [0] * (sum(end <= cut for end in ends) - 1)
        assert table.stop[:2] == (
            Fault.OK if cut in ends else Fault.SHORT,
            max(end for end in ends if end <= cut),
        )
    many_streams.agree_with_the_reference([ENTRIES], streams)


def test_records_cut_and_damaged_in_a_response():
    """Records in a response are read as in a log, but no record is searched for after damage."""
    damaged = [LOG[:cut] for cut in range(len(LOG))]
    damaged += [LOG[:at] + bytes([LOG[at] ^ 0x81]) + LOG[at + 1 :] for at in range(len(LOG))]
    for check in (True, False):
        table = liftbridge.scan([make_envelope(make_response(raw), 3) for raw in damaged])
        entries = liftbridge.entries(table, errors="mark", check=check)
        data = bytes(table.buffers[0])
        rows = reference.read_response_entries(data, laws.list_rows(table), check)
        assert laws.list_rows(entries) == rows
        headers = []
        for i, row in enumerate(rows):
            headers += reference.read_entry_headers(data, row, i)
        assert laws.list_rows(liftbridge.headers(entries, errors="mark")) == headers


def test_extreme_sizes_keep_the_laws():
    """Write extreme sizes over each four bytes of a record."""
    streams = []
    small = (0, 15, 16, 43, 44, len(LOG) - 28, len(LOG))
    large = (2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1)
    for at in range(24, 71):
        for number in (*small, *large):
            streams.append(LOG[:at] + struct.pack(">I", number) + LOG[at + 4 :])
    for check in (True, False):
        many_streams.agree_with_the_reference([ENTRIES], streams, check)


def test_an_intact_record_is_found_at_any_position():
    for before in (b"\0", bytes(28), bytes(43), b"\xff" * 100, LOG[:70], LOG[1:71]):
        table = liftbridge.entries(before + LOG, errors="mark")
        good = laws.describe_rows(table[~table.bad], parents=False)
        alone = laws.describe_rows(liftbridge.entries(LOG), parents=False)
        assert good[-3:] == [(at + len(before), *rest) for at, *rest in alone]
        laws.keeps_every_law(ENTRIES, before + LOG, [5, len(before)])


GUARD = """
import random
import sys
from wirescan.testing.guarded_memory import GuardedMemory
from tests.strategies.liftbridge import GOLDEN, INTERNAL, LOG, ODD, make_envelope, make_response
from wirescan import liftbridge

chance = random.Random(1)
scans = 0
guarded = GuardedMemory(400)
VALUES = (0, 1, 7, 8, 0x0B, 0x12, 0x4A, 0x7F, 0x80, 0xFF)

def read_envelopes(envelopes, kind, raw):
    if kind == 1:
        liftbridge.acks(envelopes, errors="mark")
    elif raw[7:8] > b"\1" and envelopes["header_size"].any():
        liftbridge.internal(envelopes, errors="mark")
        entries = liftbridge.entries(envelopes, errors="mark", check=False)
        liftbridge.headers(entries, errors="mark")
    else:
        messages = liftbridge.messages(envelopes, errors="mark")
        liftbridge.headers(messages, errors="mark")

def scan(raw):
    global scans
    for view in (guarded.place_at_end(raw), guarded.place_at_beginning(raw)):
        kind = 0 if view[7:8] != b"\1" else 1
        for envelopes in (liftbridge.scan(view, errors="mark"), liftbridge.scan(view, bare=kind)):
            read_envelopes(envelopes, kind, raw)
        liftbridge.headers(liftbridge.entries(view, errors="mark", check=scans % 2), errors="mark")
    scans += 1

short = [odd for odd in ODD if len(odd) < 20]
envelopes_of_short = [make_envelope(odd, kind) for odd in short for kind in (0, 1, 8)]
for raw in (*GOLDEN.values(), LOG, *envelopes_of_short):
    for cut in range(0, len(raw) + 1, int(sys.argv[2]) * (1 if len(raw) < 100 else 3)):
        scan(raw[:cut])
        for _ in range(int(sys.argv[1])):
            damaged = bytearray(raw[:cut])
            for _ in range(chance.randrange(1, 3) if cut else 0):
                damaged[chance.randrange(cut)] = chance.choice(VALUES)
            scan(bytes(damaged))
print(scans)
"""


def test_nothing_is_read_outside(stride):
    """Scan every cut, with some damage, next to unreadable pages. test_guard.py tests the pages."""
    assert run_scans(GUARD, 1, stride) > 2000 // stride


@pytest.mark.slow
def test_nothing_is_read_outside_with_much_damage():
    assert run_scans(GUARD, 2, 1) > 2000


# ---- memory and time

CHILD = """
import resource, sys, time
from wirescan import FrameError, liftbridge
raw = sys.stdin.buffer.read()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[1]) << 20),) * 2)
start = time.process_time()

def read_headers(raw):
    return liftbridge.headers(liftbridge.messages(liftbridge.scan([raw])))

for read in (read_headers, liftbridge.entries):
    try:
        print(len(read(raw)), end=" ")
    except FrameError as error:
        print(error.fault.name, end=" ")
print(round(time.process_time() - start, 3))
"""
CLAIMS = {
    "a value": (make_envelope(b"\x1a\xff\xff\xff\xff\x07"), "TRUNCATED 0"),
    "a header": (make_envelope(b"\x4a\xff\xff\xff\xff\x07"), "TRUNCATED 0"),
    "a record": (LOG[:24] + b"\x05\0\0\0" + LOG[28:71], "0 0"),
    "a record beyond the limit": (LOG[:24] + b"\x7f\xff\xff\xff" + LOG[28:71], "0 BAD_LENGTH"),
    "a key": (LOG[:34] + b"\x7f\xff\xff\xff" + LOG[38:71], "0 BAD_CHECKSUM"),
}


@pytest.fixture(scope="module")
def claims_read():
    inputs = {claim: raw for claim, (raw, _) in CLAIMS.items()}
    return run_each_in_little_memory(CHILD, inputs, 64)


@pytest.mark.parametrize("claim", CLAIMS)
def test_nothing_is_allocated_from_a_claim(claims_read, claim):
    output, seconds = claims_read[claim]
    assert " ".join(output) == CLAIMS[claim][1]
    assert seconds < 2 * SLOWNESS


TRAPS = {
    "empty headers": lambda size: [make_envelope(make_pair() * (size // 2))],
    "headers among groups": lambda size: [
        make_envelope((make_pair() + make_group(20)) * (size // 6))
    ],
    "groups that are not ended": lambda size: [make_envelope(make_tag(1, 3) * size)],
    "100 groups, again and again": lambda size: [
        make_envelope((make_tag(1, 3) * 100 + make_tag(1, 4) * 100) * (size // 200))
    ],
    "the same field": lambda size: [make_envelope(make_field(1, 1) * (size // 2))],
    "long varints": lambda size: [make_envelope((b"\x08" + make_varint(0, 10)) * (size // 11))],
    "operations in operations": lambda size: [
        make_envelope(make_field(2, make_field(1, make_field(1, b""))) * (size // 6), 8)
    ],
    "empty payloads": lambda size: [b""] * (size // 10),
    "magics": lambda size: [MAGIC] * (size // 10),
}
LOGS = {
    "the smallest records": lambda size: make_record() * (size // 44),
    "bytes that are all alike": lambda size: b"\1" * size,
    "zeros, and no end": lambda size: bytes(size) + b"\1",
    "records that each claim the rest": lambda size: b"".join(
        bytes(24) + struct.pack(">I", size - at - 28) + b"\0\0\0\0\1\0" + bytes(10)
        for at in range(0, size - 44, 44)
    ),
    "records that each claim a good deal": lambda size: b"".join(
        bytes(24) + struct.pack(">I", min(size - at - 28, 30_000)) + b"\0\0\0\0\1\0" + bytes(10)
        for at in range(0, size - 44, 44)
    ),
    "records of no headers that claim all": lambda size: (
        make_record(more=b"")[:-2] + b"\xff\xff" + bytes(size)
    ),
}


def assert_linear_in(read, trap):
    few = trap(50_000)
    many = trap(400_000)
    assert_linear(lambda: read(few), lambda: read(many))


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_time_is_linear(trap):
    def read(payloads):
        envelopes = liftbridge.scan(payloads, errors="mark")
        liftbridge.headers(liftbridge.messages(envelopes, errors="mark"), errors="mark")
        liftbridge.internal(envelopes, errors="mark")

    assert_linear_in(read, trap)


@pytest.mark.parametrize("trap", LOGS.values(), ids=LOGS)
@checked
def test_time_is_linear_in_logs(trap, check):
    assert_linear_in(lambda raw: liftbridge.entries(raw, errors="mark", check=check), trap)


def test_rows_are_bounded_by_bytes():
    for payload in (b"", MAGIC, make_envelope(), make_envelope(make_pair())):
        table = wirescan.scan(make_pub(payload) * 10_000, "liftbridge.headers", errors="mark")
        assert len(table.outer.outer) == 10_000
        assert len(table) <= 10_000
    messages = liftbridge.messages(liftbridge.scan([make_envelope(make_pair() * 20)]))
    with pytest.raises(FrameError, match="LIMIT"):
        liftbridge.headers(messages, limits=Limits(rows=10))


def test_messages_of_a_megabyte():
    """Lengths of three and four bytes in every length field."""
    for size in (127, 128, 16_383, 16_384, 2**21 - 1, 2**21):
        body = make_message(bytes(size), b"v" * size, [(b"k" * size, b"")])
        table = liftbridge.messages(
            liftbridge.scan(nats.scan(make_pub(make_envelope(body, crc=True))))
        )
        assert len(table.bytes(0, "key")) == size
        assert len(table.bytes(0, "value")) == size
        assert len(liftbridge.headers(table).bytes(0, "key")) == size
