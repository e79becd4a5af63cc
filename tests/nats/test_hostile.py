"""Hostile NATS bytes: damage to every byte, false sizes, lines and blocks without an end."""

import numpy as np
import pytest

import wirescan
from tests.laws.packages import PACKAGES
from tests.reference import nats as reference
from tests.strategies.nats import (
    GOLDEN,
    NUMBERS,
    find_numbers,
    make_block,
    make_hpub,
    make_msg,
    make_pub,
)
from tests.support import many_streams
from tests.support.children import run_each_in_little_memory, run_scans
from tests.support.slowness import SLOWNESS
from wirescan import Fault, FrameError, Limits, nats
from wirescan.testing import laws
from wirescan.testing.cost import assert_linear

PACKAGE = PACKAGES["nats"]
ALL = b"".join(GOLDEN.values())
ODD = {0, 0x80, 0xFF, *b"\r\n \t:+-019PM"}
every_stream = pytest.mark.parametrize("raw", GOLDEN.values(), ids=GOLDEN)


# ---- each byte, each number, each cut


def agree_with_the_reference(streams):
    many_streams.agree_with_the_reference(
        [PACKAGE], streams, outermost=lambda raw: reference.read_messages(raw, resync=False)
    )


@every_stream
def test_changes_of_every_byte_keep_the_laws(raw, stride):
    def values(old):
        return {*ODD, old ^ 0x20, old ^ 1}

    agree_with_the_reference(many_streams.replace_bytes(raw, values, stride))


@every_stream
def test_each_byte_removed_or_inserted(raw, stride):
    positions = range(0, len(raw), stride)
    agree_with_the_reference(raw[:at] + raw[at + 1 :] for at in positions)
    streams = []
    for at in positions:
        for byte in b"\r\n 0A":
            damaged = raw[:at] + bytes([byte]) + raw[at:]
            laws.streams_lose_nothing(PACKAGE, damaged, [at])
            streams.append(damaged)
    agree_with_the_reference(streams)


def test_cut_at_each_byte():
    whole = laws.describe_rows(wirescan.scan(ALL, "nats.headers", errors="mark"))
    ends = [0]
    for size in nats.scan(ALL)["size"].tolist():
        ends.append(ends[-1] + size)
    agree_with_the_reference(ALL[:cut] for cut in range(len(ALL)))
    for cut in range(len(ALL)):
        table = wirescan.scan(ALL[:cut], "nats.headers", errors="mark")
        assert laws.describe_rows(table) == whole[: len(table)]
        stop = laws.list_tables(table)[0].stop
        assert stop[:2] == (
            Fault.OK if cut in ends else Fault.SHORT,
            max(end for end in ends if end <= cut),
        )


@every_stream
def test_extreme_numbers_keep_the_laws(raw):
    streams = []
    for begin, end in find_numbers(raw):
        near = (b"%d" % max(int(raw[begin:end]) + step, 0) for step in (-2, -1, 1, 2))
        for number in sorted({*NUMBERS, *near} - {raw[begin:end]}):
            streams.append(raw[:begin] + number + raw[end:])
    if streams:  # some streams hold no number
        agree_with_the_reference(damaged + b"PING\r\n" for damaged in streams)
        many_streams.end_well(PACKAGE, streams)


GUARD = """
import random
import sys
from dataclasses import replace
from wirescan.testing.guarded_memory import GuardedMemory
from tests.strategies.nats import GOLDEN, make_hpub, make_pub
from wirescan import liftbridge, nats
from wirescan.nats.scan import bytes_needed

chance = random.Random(1)
scans = 0
guarded = GuardedMemory(400)

def scan(raw):
    global scans
    for view in (guarded.place_at_end(raw), guarded.place_at_beginning(raw)):
        messages = nats.scan(view, errors="mark", credentials=True)
        nats.headers(messages, errors="mark")
        nats.options(messages)
        liftbridge.messages(liftbridge.scan(messages, errors="mark"), errors="mark")
        bytes_needed(view)
    scans += 1

streams = [*GOLDEN.values(), make_hpub(b"", b"NATS/1.0"), make_pub(b"x" * 70)]
streams += [b"SUB " + b"a" * 60 + b" 1\\n", b"NATS/1.0"]
for raw in streams:
    for cut in range(len(raw) + 1):
        scan(raw[:cut])
        scan(raw[cut:])
        for _ in range(int(sys.argv[1])):
            damaged = bytearray(raw[:cut])
            for _ in range(chance.randrange(1, 3) if cut else 0):
                damaged[chance.randrange(cut)] = chance.choice((0, 0xFF, *b"\\r\\n \\t:019PM"))
            scan(bytes(damaged))

# A header block at the end of the readable memory.
for size in range(60):
    block = (b"NATS/1.0\\r\\n" + b"A: 1\\r\\n" * 8)[:size]
    view = guarded.place_at_end(b"HPUB a %d %d\\r\\n" % (size, size) + block + b"\\r\\n")
    table = nats.scan(view)
    rows = table.rows.copy()
    nats.headers(table, errors="mark")
    rows["size"] = len(view)
    rows["payload_size"] = 0
    rows["headers_at"] = len(view) - size
    rows["headers_size"] = size
    nats.headers(replace(table, rows=rows), errors="mark")
    scans += 1
print(scans)
"""


def test_nothing_is_read_outside():
    """Scan every cut, with some damage, next to unreadable pages. test_guard.py tests the pages."""
    assert run_scans(GUARD, 1) > 2000


@pytest.mark.slow
def test_nothing_is_read_outside_with_much_damage():
    assert run_scans(GUARD, 5) > 3000


# ---- memory and time

CHILD = """
import resource, sys, time
from wirescan import FrameError, nats
raw = sys.stdin.buffer.read()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[1]) << 20),) * 2)
start = time.process_time()
for errors in ("mark", "skip", "strict"):
    try:
        messages = nats.scan(raw, errors=errors)
        print(len(messages), len(nats.headers(messages, errors=errors)), sep="/", end=" ")
    except FrameError as error:
        print(error.fault.name, end=" ")
print(round(time.process_time() - start, 3))
"""
CLAIMS = {
    "a payload": (b"PUB a 99999999\r\nx", "0/0"),
    "a payload beyond the limit": (b"PUB a 999999999\r\nx", "BAD_LENGTH"),
    "headers": (b"HPUB a 99999999 99999999\r\nNATS/1.0\r\n", "0/0"),
    "headers above the size": (b"HPUB a 999999999 0\r\n\r\n", "BAD_LENGTH"),
    "headers of header_count 65,536": (
        make_hpub(b"", make_block(*[(b"A", b"")] * 65_536)),
        "1/65536",
    ),
}


@pytest.fixture(scope="module")
def claims_read():
    inputs = {claim: raw for claim, (raw, _) in CLAIMS.items()}
    return run_each_in_little_memory(CHILD, inputs, 64)


@pytest.mark.parametrize("claim", CLAIMS)
def test_nothing_is_allocated_from_a_claim(claims_read, claim):
    (*_, strict), seconds = claims_read[claim]
    assert strict == CLAIMS[claim][1]
    assert seconds < 2 * SLOWNESS


TRAPS = {
    "the smallest messages": lambda size: b"+OK\n" * (size // 4),
    "lines without an end": lambda size: b"PUB " + b"a" * size,
    "blanks": lambda size: b"PUB" + b" \t" * (size // 2) + b"a 0\r\n\r\n",
    "words": lambda size: b"SUB" + b" a" * (size // 2) + b"\r\n",
    "blanks behind INFO": lambda size: b"INFO {}" + b" " * size + b"\r\n",
    "lines of CR": lambda size: b"PING" + b"\r" * size,
    "header lines": lambda size: make_hpub(b"", make_block(*[(b"A", b"")] * (size // 5))),
    "empty header lines": lambda size: make_hpub(b"", b"NATS/1.0\r\n" + b"\n" * size),
    "one header of blanks": lambda size: make_hpub(b"", make_block((b"A", b" " * size))),
    "blocks of nothing": lambda size: make_hpub(b"", b"") * (size // 17),
    "a status of digits": lambda size: make_hpub(b"", make_block(status=b" " + b"0" * size)),
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_time_is_linear(trap):
    few = trap(100_000)
    many = trap(800_000)

    def read(raw):
        nats.headers(nats.scan(raw, errors="mark"), errors="mark")

    assert_linear(lambda: read(few), lambda: read(many))


def test_rows_are_bounded_by_bytes():
    for raw in (b"+OK\n", b"PING\r\n", b"SUB\n", make_hpub(b"", b""), make_msg(), b"?"):
        count = 10_000
        table = wirescan.scan(raw * count, "nats.headers", errors="mark")
        assert len(table.outer) <= count
        assert len(table) <= count
    with pytest.raises(FrameError, match="LIMIT"):
        nats.headers(
            nats.scan(make_hpub(b"", make_block(*[(b"A", b"")] * 20))), limits=Limits(rows=10)
        )


def test_columns_of_a_long_line():
    """In a control line of two megabytes, no position of 32 bits wraps around."""
    raw = b"SUB " + b"a" * (1 << 20) + b" " + b"q" * (1 << 20) + b" 1\r\n"
    table = nats.scan(raw + make_pub(b"x"))
    assert len(table.bytes(0, "subject")) == 1 << 20
    assert len(table.bytes(0, "queue")) == 1 << 20
    assert table["size"].tolist() == [len(raw), 12]
    assert np.all(~table.bad)
