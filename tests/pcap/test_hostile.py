"""Hostile captures: damage to every byte, false sizes, many interfaces, times and memory."""

import struct

import pytest

import wirescan
from tests.laws.packages import PACKAGES
from tests.reference import pcap as reference
from tests.strategies.pcap import (
    EPOCH,
    ETHERNET,
    GOLDEN,
    LAYERED,
    make_block,
    make_enhanced,
    make_interface,
    make_option,
    make_section,
    make_simple,
)
from tests.support import many_streams
from tests.support.children import run_each_in_little_memory, run_scans
from tests.support.slowness import SLOWNESS
from wirescan import Fault, FrameError, Limits, pcap
from wirescan.testing import laws
from wirescan.testing.cost import assert_linear

PACKAGE = PACKAGES["pcap"]
WORDS = (0, 1, 4, 11, 12, 13, 16, 28, 32, 1 << 18, (1 << 18) + 1, 1 << 31, (1 << 32) - 4)
every_stream = pytest.mark.parametrize("raw", GOLDEN.values(), ids=GOLDEN)


def agree_with_the_reference(streams):
    many_streams.agree_with_the_reference(
        [PACKAGE], streams, outermost=lambda raw: reference.read_blocks(raw, resync=False)
    )


# ---- each byte, each number, each cut


@every_stream
def test_changes_of_every_byte_keep_the_laws(raw, stride):
    def values(old):
        return {0, 1, 0x80, 0xFF, old ^ 1, old ^ 0x40}

    agree_with_the_reference(many_streams.replace_bytes(raw, values, stride))


@every_stream
def test_each_byte_removed_or_inserted(raw, stride):
    positions = many_streams.sample_positions(len(raw), stride)
    agree_with_the_reference(raw[:at] + raw[at + 1 :] for at in positions)
    streams = [raw[:at] + byte + raw[at:] for at in positions for byte in (b"\0", b"\x0a", b"\xff")]
    agree_with_the_reference(streams)
    for damaged in streams[:: max(len(streams) // 20, 1)]:
        laws.streams_lose_nothing(PACKAGE, damaged, [len(damaged) // 2])


@every_stream
def test_extreme_words_keep_the_laws(raw, stride):
    streams = [
        raw[:at] + struct.pack(order, word) + raw[at + 4 :]
        for at in range(0, len(raw) - 3, 4)
        for word in WORDS
        for order in ("<I", ">I")
    ]
    streams = streams[:: min(stride, 7)]
    agree_with_the_reference(streams)
    many_streams.end_well(PACKAGE, streams[::5])


@every_stream
def test_cut_at_each_byte(raw):
    whole = laws.describe_rows(wirescan.scan(raw, "pcap.packets", errors="mark"))
    ends = [0]
    for size in pcap.scan(raw)["size"].tolist():
        ends.append(ends[-1] + size)
    agree_with_the_reference(raw[:cut] for cut in range(len(raw)))
    for cut in range(len(raw)):
        table = wirescan.scan(raw[:cut], "pcap.packets", errors="mark")
        assert laws.describe_rows(table) == whole[: len(table)]
        stop = laws.list_tables(table)[0].stop
        assert stop[:2] == (
            Fault.OK if cut in ends else Fault.SHORT,
            max(end for end in ends if end <= cut),
        )


@pytest.mark.parametrize("layers", LAYERED.values(), ids=LAYERED)
def test_changes_of_every_byte_of_a_packet(layers):
    link, data = layers

    def values(old):
        return {0, 1, 0x45, 0x60, 0xFF, old ^ 1, old ^ 0x80}

    streams = [
        pcap.encode_pcap([(EPOCH, changed)], link=link)
        for changed in many_streams.replace_bytes(data, values)
    ]
    streams += [pcap.encode_pcap([(EPOCH, data[:cut])], link=link) for cut in range(len(data))]
    if streams:  # one packet has no bytes
        agree_with_the_reference(streams)


@pytest.mark.parametrize("layers", LAYERED.values(), ids=LAYERED)
def test_checksums_agree_with_the_reference(layers):
    link, data = layers
    for changed in [data, *many_streams.replace_bytes(data, lambda old: {old ^ 4}, 3)]:
        raw = pcap.encode_pcap([(EPOCH, changed)], link=link)
        blocks = pcap.scan(raw)
        found = laws.list_rows(pcap.packets(blocks, errors="mark", verify_checksums=True))
        rows, _, _ = reference.read_blocks(raw)
        assert found == reference.read_packets(raw, rows, verify=True)


GUARD = """
import random
import sys
from tests.strategies.pcap import GOLDEN, LAYERED, EPOCH
from wirescan import pcap
from wirescan.testing.guarded_memory import GuardedMemory

chance = random.Random(1)
scans = 0
guarded = GuardedMemory(1200)

def scan(raw):
    global scans
    for view in (guarded.place_at_end(raw), guarded.place_at_beginning(raw)):
        pcap.packets(pcap.scan(view, errors="mark"), errors="mark", verify_checksums=True)
    scans += 1

streams = list(GOLDEN.values())
streams += [pcap.encode_pcap([(EPOCH, data)], link=link) for link, data in LAYERED.values()]
for raw in streams:
    for cut in range(0, len(raw) + 1, 1 if len(raw) < 300 else 3):
        scan(raw[:cut])
        for _ in range(int(sys.argv[1])):
            damaged = bytearray(raw[:cut])
            for _ in range(chance.randrange(1, 3) if cut else 0):
                damaged[chance.randrange(cut)] = chance.choice((0, 1, 0x45, 0x60, 0xFF))
            scan(bytes(damaged))
    # A cut packet at the end of the readable memory.
for link, data in LAYERED.values():
    for cut in range(len(data)):
        scan(pcap.encode_pcap([(EPOCH, data[:cut], len(data))], link=link))
print(scans)
"""


def test_nothing_is_read_outside():
    """Scan every cut, with some damage, next to unreadable pages. test_guard.py tests the pages."""
    assert run_scans(GUARD, 1) > 4000


# ---- memory and time

CHILD = """
import resource, sys, time
from wirescan import FrameError, pcap
raw = sys.stdin.buffer.read()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[1]) << 20),) * 2)
start = time.process_time()
for errors in ("mark", "skip", "strict"):
    try:
        blocks = pcap.scan(raw, errors=errors)
        print(len(blocks), len(pcap.packets(blocks, errors=errors)), sep="/", end=" ")
    except FrameError as error:
        print(error.fault.name, end=" ")
print(round(time.process_time() - start, 3))
"""
CLAIMS = {
    "a block of pcapng": (make_section() + struct.pack("<II", 6, 90_000_000) + b"x", "1/0"),
    "a block beyond the limit": (make_section() + struct.pack("<III", 6, 1 << 31, 0), "BAD_LENGTH"),
    "a record": (
        pcap.encode_pcap([], snap_length=1 << 30) + struct.pack("<IIII", 0, 0, 90_000_000, 1),
        "1/0",
    ),
    "a record beyond the limit": (
        pcap.encode_pcap([], snap_length=1 << 30) + struct.pack("<IIII", 0, 0, 1 << 30, 1),
        "BAD_LENGTH",
    ),
    "a record beyond the snap length": (
        pcap.encode_pcap([]) + struct.pack("<IIII", 0, 0, (1 << 18) + 1, 1),
        "BAD_LENGTH",
    ),
    "65,536 interfaces": (make_section() + make_interface() * 65_536, "65537/0"),
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


RECORD = struct.pack("<IIII", 0, 0, 1, 1) + b"x"
FILE = pcap.encode_pcap([])
TRAPS = {
    "the smallest records": lambda size: FILE + struct.pack("<IIII", 0, 0, 0, 0) * (size // 16),
    "false records": lambda size: FILE + b"\xff" * 16 + RECORD[:15] * (size // 15),
    "records that lead nowhere": lambda size: (
        FILE + b"\xff" * 16 + struct.pack("<IIII", 0, 0, 1 << 18, 1 << 18) * (size // 16)
    ),
    "records of more bytes than the wire": lambda size: (
        FILE + (struct.pack("<IIII", 0, 0, 1, 0) + b"x") * (size // 17)
    ),
    "doubtful records that nothing follows": lambda size: (
        FILE + struct.pack("<IIII", 1 << 31, 0, 1 << 18, 0) * (size // 16)
    ),
    "records that are read four bytes late": lambda size: (
        FILE + b"\xff" * 12 + struct.pack("<IIIII", 9, 9, 20, 20, 9) * (size // 20)
    ),
    "records of equal fields": lambda size: FILE + struct.pack("<I", 84) * (size // 4),
    "the smallest blocks": lambda size: make_section() + make_block(0x99, b"") * (size // 12),
    "blocks with false ends": lambda size: (
        make_section() + struct.pack("<III", 6, 16, 5) * (size // 12)
    ),
    "blocks that reach far": lambda size: (
        make_section() + b"\xff" * 12 + struct.pack("<II", 6, size // 2 & ~3) * (size // 8)
    ),
    "files in a row": lambda size: FILE * (size // 24),
    "sections": lambda size: make_section() * (size // 28),
    "options": lambda size: make_section(options=make_option(5, b"") * (size // 4)),
    "interfaces": lambda size: make_section() + make_interface() * (size // 20),
    "extension headers": lambda size: (
        make_section()
        + make_interface()
        + make_enhanced(b"\x60" + bytes(39) + bytes(8) * (size // 8 & 0xFFFFF))
    ),
    "tags": lambda size: (
        make_section()
        + make_interface(link=ETHERNET)
        + make_simple(bytes(12) + b"\x81\0\0\1" * (size // 4))
    ),
    "no capture": lambda size: b"?" * size,
}


@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_time_is_linear(trap):
    few = trap(100_000)
    many = trap(800_000)

    def read(raw):
        pcap.packets(pcap.scan(raw, errors="mark"), errors="mark")

    assert_linear(lambda: read(few), lambda: read(many))


def test_rows_are_bounded_by_bytes():
    packets = pcap.encode_pcap([(EPOCH, b"")] * 20)
    with pytest.raises(FrameError, match="LIMIT"):
        pcap.scan(packets, limits=Limits(rows=10))
    with pytest.raises(FrameError, match="LIMIT"):
        pcap.packets(pcap.scan(packets), limits=Limits(rows=10))
