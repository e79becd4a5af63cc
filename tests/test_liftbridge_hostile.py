"""Liftbridge bytes that mean harm: every small damage to small payloads and logs, lies about lengths, groups."""
import struct
import time

import pytest

import laws
import many_streams
import wirescan
from children import in_small_rooms, scanned
from reference import liftbridge as reference
from reference.nats import messages as messages_of
from rooms import ROOMS
from strategies.liftbridge import (
    GOLDEN, INTERNAL, LOG, MAGIC, ODD, SAMPLE, ack, envelope, field, group, message, pair, record, response, tag,
    varint)
from strategies.nats import pub
from wirescan import Fault, FrameError, Limits, liftbridge, nats

ROOM, ENTRIES = ROOMS["liftbridge"], ROOMS["liftbridge.entries"]
BYTES = {0, 1, 7, 8, 0x0B, 0x0C, 0x12, 0x4A, 0x7F, 0x80, 0xFF}
READ = {"messages": liftbridge.messages, "acks": liftbridge.acks, "internal": liftbridge.internal}
every_payload = pytest.mark.parametrize("payload", GOLDEN.values(), ids=GOLDEN)
checked = pytest.mark.parametrize("check", [True, False], ids=["check", "no check"])


def agree(payloads, check=True):
    """Payloads in one stream: every level says what the reference says."""
    raw = b"".join(map(pub, payloads))
    rooms = [ROOMS[name] for name in ("liftbridge", "liftbridge.acks", "liftbridge.internal")]
    many_streams.agree_with_the_reference(rooms, [raw], check, outermost=lambda raw: messages_of(raw, False))
    for room in rooms:
        laws.covers_every_byte(room, raw, check)


# ------------------------------------------------------------------------------- each byte, each number, each cut

@every_payload
@checked
def test_every_byte(payload, check):
    agree([payload[:at] + bytes([byte]) + payload[at + 1:] for at in range(len(payload))
           for byte in {*BYTES, payload[at] ^ 1, payload[at] ^ 0x10} - {payload[at]}], check)


@every_payload
def test_cut_at_each_byte(payload):
    agree([payload[:cut] for cut in range(len(payload))])
    agree([payload[:at] + payload[at + 1:] for at in range(len(payload))])


@pytest.mark.parametrize("kind", [0, 1, 2, 8, 9, 14])
def test_something_odd_at_each_place(kind):
    body = {0: SAMPLE, 1: ack(ack_error=1)}.get(kind) or INTERNAL[kind]
    agree([envelope(body[:at] + odd + body[at:], kind) for odd in ODD for at in range(len(body) + 1)])


@pytest.mark.parametrize("read", READ.values(), ids=READ)
def test_modes_agree_on_damage(read):
    payloads = [payload[:at] + b"\xff" + payload[at + 1:] for payload in GOLDEN.values()
                for at in range(0, len(payload), 3)]
    marked = read(liftbridge.scan(payloads, errors="mark"), errors="mark")
    skipped = read(liftbridge.scan(payloads, errors="skip"), errors="skip")
    assert laws.meaning(skipped, False) == laws.meaning(marked[~marked.bad], False) and marked.bad.any()


@checked
def test_every_byte_of_a_log(check):
    streams = list(many_streams.replace_bytes(LOG, lambda old: {0, 0x80, 0xFF, old ^ 1}))
    many_streams.agree_with_the_reference([ENTRIES], streams, check)
    for damaged in streams:
        laws.covers_every_byte(ENTRIES, damaged, check)


def test_a_log_cut_at_each_byte():
    ends = [0, 71, 115, len(LOG)]
    streams = []
    for cut in range(len(LOG)):
        streams += [LOG[:cut], LOG[cut:], LOG[:cut] + bytes(50)]
        table = liftbridge.entries(LOG[:cut])
        assert table["fault"].tolist() == [0] * (sum(end <= cut for end in ends) - 1)
        assert table.stop[:2] == (Fault.OK if cut in ends else Fault.SHORT, max(end for end in ends if end <= cut))
    many_streams.agree_with_the_reference([ENTRIES], streams)


def test_records_cut_and_damaged_in_a_response():
    """Records in a response are opened as those of a log, but none is searched for."""
    damaged = [LOG[:cut] for cut in range(len(LOG))]
    damaged += [LOG[:at] + bytes([LOG[at] ^ 0x81]) + LOG[at + 1:] for at in range(len(LOG))]
    for check in (True, False):
        table = liftbridge.scan([envelope(response(raw), 3) for raw in damaged])
        found = liftbridge.entries(table, errors="mark", check=check)
        rows = reference.response_entries(bytes(table.buffers[0]), laws.rows_of(table), check)
        assert laws.rows_of(found) == rows
        data = bytes(table.buffers[0])
        want = [one for i, row in enumerate(rows) for one in reference.entry_headers(data, row, i)]
        assert laws.rows_of(liftbridge.headers(found, errors="mark")) == want


def test_sizes_to_extremes():
    """Each four bytes of a record, as if a size stood there."""
    streams = []
    for at in range(24, 71):
        for number in (0, 15, 16, 43, 44, len(LOG) - 28, len(LOG), 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1):
            streams.append(LOG[:at] + struct.pack(">I", number) + LOG[at + 4:])
    for check in (True, False):
        many_streams.agree_with_the_reference([ENTRIES], streams, check)


def test_an_intact_record_is_found_wherever_it_lies():
    for before in (b"\0", bytes(28), bytes(43), b"\xff" * 100, LOG[:70], LOG[1:71]):
        table = liftbridge.entries(before + LOG, errors="mark")
        assert laws.meaning(table[~table.bad], False)[-3:] == [
            (at + len(before), *rest) for at, *rest in laws.meaning(liftbridge.entries(LOG), False)]
        laws.all_of_them(ENTRIES, before + LOG, [5, len(before)])


GUARD = """
import random
import sys
from guard import Guarded
from strategies.liftbridge import GOLDEN, INTERNAL, LOG, ODD, envelope, response
from wirescan import liftbridge

chance, scans = random.Random(1), 0
room = Guarded(400)

def scan(raw):
    global scans
    for view in (room.at_the_end(raw), room.at_the_beginning(raw)):
        kind = 0 if view[7:8] != b"\1" else 1
        for envelopes in (liftbridge.scan(view, errors="mark"), liftbridge.scan(view, bare=kind)):
            if kind == 1:
                liftbridge.acks(envelopes, errors="mark")
            elif bytes(view[7:8]) > b"\1" and envelopes["header_size"].any():
                liftbridge.internal(envelopes, errors="mark")
                liftbridge.headers(liftbridge.entries(envelopes, errors="mark", check=False), errors="mark")
            else:
                liftbridge.headers(liftbridge.messages(envelopes, errors="mark"), errors="mark")
        liftbridge.headers(liftbridge.entries(view, errors="mark", check=scans % 2), errors="mark")
    scans += 1

for raw in (*GOLDEN.values(), LOG, *(envelope(odd, kind) for odd in ODD if len(odd) < 20 for kind in (0, 1, 8))):
    for cut in range(0, len(raw) + 1, 1 if len(raw) < 100 else 3):
        scan(raw[:cut])
        for _ in range(int(sys.argv[1])):
            damaged = bytearray(raw[:cut])
            for _ in range(chance.randrange(1, 3) if cut else 0):
                damaged[chance.randrange(cut)] = chance.choice((0, 1, 7, 8, 0x0b, 0x12, 0x4a, 0x7f, 0x80, 0xff))
            scan(bytes(damaged))
print(scans)
"""


def test_nothing_is_read_outside():
    """Every cut and some damage, against pages that cannot be read: test_guard.py proves that these bite."""
    assert scanned(GUARD, 1) > 2000


@pytest.mark.slow
def test_nothing_is_read_outside_with_much_damage():
    assert scanned(GUARD, 2) > 2000


# ------------------------------------------------------------------------------------------------ memory and time

CHILD = """
import resource, sys, time
from wirescan import FrameError, liftbridge
raw = sys.stdin.buffer.read()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[1]) << 20),) * 2)
start = time.process_time()
for read in (lambda: liftbridge.headers(liftbridge.messages(liftbridge.scan([raw]))), lambda: liftbridge.entries(raw)):
    try:
        print(len(read()), end=" ")
    except FrameError as error:
        print(error.fault.name, end=" ")
print(round(time.process_time() - start, 3))
"""
CLAIMS = {
    "a value": (envelope(b"\x1a\xff\xff\xff\xff\x07"), "TRUNCATED 0"),
    "a header": (envelope(b"\x4a\xff\xff\xff\xff\x07"), "TRUNCATED 0"),
    "a record": (LOG[:24] + b"\x05\0\0\0" + LOG[28:71], "0 0"),
    "a record beyond the limit": (LOG[:24] + b"\x7f\xff\xff\xff" + LOG[28:71], "0 BAD_LENGTH"),
    "a key": (LOG[:34] + b"\x7f\xff\xff\xff" + LOG[38:71], "0 BAD_CHECKSUM"),
}


@pytest.fixture(scope="module")
def claims_read():
    return dict(zip(CLAIMS, in_small_rooms(CHILD, [raw for raw, _ in CLAIMS.values()], 64)))


@pytest.mark.parametrize("claim", CLAIMS)
def test_nothing_is_allocated_from_a_claim(claims_read, claim):
    found, seconds = claims_read[claim]
    assert " ".join(found) == CLAIMS[claim][1] and seconds < 2


TRAPS = {
    "empty headers": lambda size: [envelope(pair() * (size // 2))],
    "headers among groups": lambda size: [envelope((pair() + group(20)) * (size // 6))],
    "groups that are not ended": lambda size: [envelope(tag(1, 3) * size)],
    "100 groups, again and again": lambda size: [envelope((tag(1, 3) * 100 + tag(1, 4) * 100) * (size // 200))],
    "the same field": lambda size: [envelope(field(1, 1) * (size // 2))],
    "long varints": lambda size: [envelope((b"\x08" + varint(0, 10)) * (size // 11))],
    "operations in operations": lambda size: [envelope(field(2, field(1, field(1, b""))) * (size // 6), 8)],
    "empty payloads": lambda size: [b""] * (size // 10), "magics": lambda size: [MAGIC] * (size // 10),
}
LOGS = {
    "the smallest records": lambda size: record() * (size // 44), "bytes that are all alike": lambda size: b"\1" * size,
    "zeros, and no end": lambda size: bytes(size) + b"\1",
    "records that each claim the rest": lambda size: b"".join(
        bytes(24) + struct.pack(">I", size - at - 28) + b"\0\0\0\0\1\0" + bytes(10) for at in range(0, size - 44, 44)),
    "records that each claim a good deal": lambda size: b"".join(
        bytes(24) + struct.pack(">I", min(size - at - 28, 30_000)) + b"\0\0\0\0\1\0" + bytes(10)
        for at in range(0, size - 44, 44)),
    "records of no headers that claim all": lambda size: record(more=b"")[:-2] + b"\xff\xff" + bytes(size),
}


def seconds_of(read, trap):
    taken = []
    for size in (50_000, 400_000):
        raw, start = trap(size), time.process_time()
        read(raw)
        taken.append(time.process_time() - start)
    return taken


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_time_is_linear(trap):
    """Eight times the bytes take at most thirty times the time, where that is long enough to be measured."""
    def read(payloads):
        envelopes = liftbridge.scan(payloads, errors="mark")
        liftbridge.headers(liftbridge.messages(envelopes, errors="mark"), errors="mark")
        liftbridge.internal(envelopes, errors="mark")
    few, many = seconds_of(read, trap)
    assert many < max(30 * few, 0.2)


@pytest.mark.parametrize("trap", LOGS.values(), ids=LOGS)
@checked
def test_time_is_linear_in_logs(trap, check):
    few, many = seconds_of(lambda raw: liftbridge.entries(raw, errors="mark", check=check), trap)
    assert many < max(30 * few, 0.4)


def test_rows_are_bounded_by_bytes():
    for payload in (b"", MAGIC, envelope(), envelope(pair())):
        table = wirescan.scan(pub(payload) * 10_000, "liftbridge.headers", errors="mark")
        assert len(table.outer.outer) == 10_000 >= len(table)
    with pytest.raises(FrameError, match="LIMIT"):
        liftbridge.headers(liftbridge.messages(liftbridge.scan([envelope(pair() * 20)])), limits=Limits(rows=10))


def test_messages_of_a_megabyte():
    """Lengths of three and four bytes, in every place where one may stand."""
    for size in (127, 128, 16_383, 16_384, 2**21 - 1, 2**21):
        body = message(bytes(size), b"v" * size, [(b"k" * size, b"")])
        table = liftbridge.messages(liftbridge.scan(nats.scan(pub(envelope(body, crc=True)))))
        assert (len(table.bytes(0, "key")), len(table.bytes(0, "value"))) == (size, size)
        assert len(liftbridge.headers(table).bytes(0, "key")) == size
