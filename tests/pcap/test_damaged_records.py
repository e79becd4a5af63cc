"""Records of pcap files with a damaged header: which packets are found, and where chunks end."""

import random
import struct

import pytest

import wirescan
from tests.laws.packages import PACKAGES
from tests.reference import pcap as reference
from tests.strategies.pcap import EPOCH, make_ethernet, make_ipv4, make_tcp
from tests.support import many_streams
from wirescan import Fault, Limits, pcap
from wirescan.testing import laws

PACKAGE = PACKAGES["pcap"]
MILLISECOND = 10**6
HOUR = 3600 * 10**9
ADDRESS = bytes.fromhex("525400123456")  # begins with a large number in both byte orders
DAMAGED = 10  # number of the damaged packet
HEADER = 16  # bytes of the header of a record
CAPTURED, LENGTH = 8, 12  # positions of the two sizes in the header of a record

every_order = pytest.mark.parametrize("big_endian", [False, True], ids=["little", "big"])
every_unit = pytest.mark.parametrize("nanoseconds", [False, True], ids=["us", "ns"])


def make_packets(count, first=EPOCH, sizes=(80, 81, 87, 300, 1448)):
    """Return packets of TCP, one for each 5 ms."""
    chance = random.Random(count)
    packets = []
    for number in range(count):
        data = make_ethernet(make_ipv4(make_tcp(chance.randbytes(chance.choice(sizes)))))
        packets.append((first + number * 5 * MILLISECOND, ADDRESS + data[len(ADDRESS) :]))
    return packets


def find_starts(packets):
    """Return the position of each record, and of the end."""
    starts = [24]
    for _, data in packets:
        starts.append(starts[-1] + HEADER + len(data))
    return starts


def encode_with_lengths(packets, add, **options):
    """Encode packets whose size on the wire is `add(number)` bytes above the captured size."""
    raw = bytearray(pcap.encode_pcap(packets, **options))
    order = ">I" if options.get("big_endian") else "<I"
    for number, at in enumerate(find_starts(packets)[:-1]):
        struct.pack_into(order, raw, at + LENGTH, len(packets[number][1]) + add(number))
    return bytes(raw)


def flip(raw, at, bit, big_endian):
    """Return the bytes with another value of one bit of the number of 32 bits at `at`."""
    order = ">I" if big_endian else "<I"
    changed = bytearray(raw)
    (number,) = struct.unpack_from(order, raw, at)
    struct.pack_into(order, changed, at, number ^ 1 << bit)
    return bytes(changed)


def count_found(raw, starts):
    """Return how many packets were found, and how many rows are none."""
    blocks = pcap.scan(raw, errors="mark")
    good = blocks[blocks["kind"] == pcap.BlockKind.PACKET]
    found = set(good["start"][good["fault"] == 0].tolist())
    return len(found & set(starts[:-1])), len(found - set(starts))


@every_order
@every_unit
@pytest.mark.parametrize("sizes", [(81,), (80, 81, 87, 300, 1448)], ids=["equal", "mixed"])
@pytest.mark.parametrize("field", [CAPTURED, LENGTH], ids=["captured", "length"])
def test_a_bit_of_a_size_costs_few_packets(big_endian, nanoseconds, sizes, field):
    # At the end of the bytes, a false record that they cut may cost more.
    packets = make_packets(1000, sizes=sizes)
    starts = find_starts(packets)
    raw = pcap.encode_pcap(packets, big_endian=big_endian, nanoseconds=nanoseconds)
    for bit in range(32):
        damaged = flip(raw, starts[DAMAGED] + field, bit, big_endian)
        found, false = count_found(damaged, starts)
        assert found >= len(packets) - 3, bit
        assert false <= 1, bit


def test_records_are_not_read_four_bytes_late():
    # Each reading that begins four bytes late leads to the next one: see is_read_late.
    packets = make_packets(1000)
    starts = find_starts(packets)
    raw = flip(pcap.encode_pcap(packets), starts[DAMAGED] + CAPTURED, 20, big_endian=False)
    blocks = pcap.scan(raw, errors="mark")
    good = blocks["start"][blocks["fault"] == 0].tolist()
    assert good == [0, *starts[:DAMAGED], *starts[DAMAGED + 1 : -1]]
    assert blocks["fault"][blocks.bad].tolist() == [Fault.BAD_LENGTH]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_some_damaged_records_in_a_row(count):
    packets = make_packets(60)
    starts = find_starts(packets)
    raw = pcap.encode_pcap(packets)
    for number in range(count):
        raw = flip(raw, starts[DAMAGED + number] + CAPTURED, 20, big_endian=False)
    found, _ = count_found(raw, starts)
    assert found == len(packets) - count


@pytest.mark.parametrize("first", [0, 900, 10**9], ids=["zero", "ns", "second"])
def test_captures_of_simulated_times(first):
    packets = make_packets(60, first=first * 10**9)
    starts = find_starts(packets)
    raw = flip(pcap.encode_pcap(packets), starts[DAMAGED] + CAPTURED, 20, big_endian=False)
    assert count_found(raw, starts)[0] == len(packets) - 1


def test_pauses_and_times_that_run_backwards_lose_no_packet():
    packets = make_packets(60)
    for first, hours in ((11, 9000), (13, -8990), (25, 500), (26, -500), (30, -20), (59, 9000)):
        packets[first:] = [(time + hours * HOUR, data) for time, data in packets[first:]]
    starts = find_starts(packets)
    raw = pcap.encode_pcap(packets)
    assert not pcap.scan(raw).bad.any()
    laws.chunks_change_nothing(PACKAGE, raw, [starts[11] + 16], [starts[60] - 1])
    raw = flip(raw, starts[DAMAGED] + CAPTURED, 20, big_endian=False)
    assert count_found(raw, starts)[0] >= len(packets) - 3


def test_false_times_lose_no_packet():
    chance = random.Random(1)
    packets = [(chance.randrange(2**32) * 10**9, data) for _, data in make_packets(300)]
    packets += [(0, b"")] * 4 + [(chance.randrange(2**32) * 10**9, b"") for _ in range(9)]
    for big_endian in (False, True):
        raw = pcap.encode_pcap(packets, big_endian=big_endian)
        assert len(pcap.scan(raw)) == 1 + len(packets)


def test_nanoseconds_in_a_file_of_microseconds_are_no_fault():
    packets = make_packets(60)
    raw = bytearray(pcap.encode_pcap(packets, nanoseconds=True))
    raw[:4] = pcap.encode_pcap([])[:4]
    assert len(pcap.scan(raw)) == 61


def test_a_larger_captured_size_does_not_swallow_packets():
    packets = make_packets(60, sizes=(80, 300))
    starts = find_starts(packets)
    raw = flip(pcap.encode_pcap(packets), starts[DAMAGED] + CAPTURED, 12, big_endian=False)
    blocks = pcap.scan(raw, errors="mark")
    assert blocks["start"].tolist() == [0, *starts[:-1]]
    assert blocks["fault"].tolist() == [0] * (DAMAGED + 1) + [Fault.BAD_FIELD] + [0] * 49
    assert blocks["data_size"][DAMAGED + 1] == -1
    assert len(pcap.packets(blocks, errors="skip")) == 59


@every_order
def test_records_may_have_more_bytes_than_the_wire(big_endian):
    # Some tools write records whose captured size is above the size on the wire.
    packets = make_packets(20)
    raw = encode_with_lengths(packets, lambda _: -4, big_endian=big_endian)
    raw += encode_with_lengths(packets, lambda _: -4, big_endian=not big_endian)
    blocks = pcap.scan(raw)
    assert len(blocks) == 42
    assert blocks["data_size"][1:21].tolist() == [len(data) for _, data in packets]
    laws.chunks_change_nothing(PACKAGE, raw, [100, 117, 700])
    stream = wirescan.stream("pcap.blocks", limits=Limits(frame=2000))
    sizes = []
    for at in range(0, len(raw), 7):
        sizes += stream.feed(raw[at : at + 7])["size"].tolist()
    assert sizes + stream.close()["size"].tolist() == blocks["size"].tolist()


def test_damaged_records_agree_with_the_reference(stride):
    for nanoseconds, first in ((False, EPOCH), (True, 0)):
        packets = make_packets(9, first)
        raw = encode_with_lengths(
            packets, lambda number: number % 3 * 4 - 4, nanoseconds=nanoseconds
        )
        streams = [
            flip(raw, start + field, bit, big_endian=False)
            for start in find_starts(packets)[:-1]
            for field in (4, CAPTURED, LENGTH)
            for bit in range(0, 32, min(stride, 3))
        ]
        many_streams.agree_with_the_reference(
            [PACKAGE], streams, outermost=lambda raw: reference.read_blocks(raw, resync=False)
        )


@pytest.mark.parametrize("bit", [2, 3, 5, 12, 20])
def test_chunks_of_damaged_records_change_nothing(bit):
    packets = make_packets(20, sizes=(80, 300))
    starts = find_starts(packets)
    raw = pcap.encode_pcap(packets)
    damaged = flip(raw, starts[DAMAGED] + CAPTURED, bit, big_endian=False)
    for cut in range(starts[DAMAGED - 1], starts[DAMAGED + 3]):
        laws.streams_lose_nothing(PACKAGE, damaged, [cut])
        laws.chunks_change_nothing(PACKAGE, damaged, [cut])


def test_a_chunk_that_ends_after_two_records_proves_nothing():
    packets = make_packets(12, sizes=(30,))
    starts = find_starts(packets)
    raw = flip(pcap.encode_pcap(packets), starts[3] + CAPTURED, 20, big_endian=False)
    limits = Limits(frame=150)  # so the search sees two records
    for cut in range(starts[3], starts[9]):
        laws.chunks_change_nothing(PACKAGE, raw, [starts[4], cut], [starts[5], cut], limits=limits)
