"""pcap.blocks and pcap.packets: columns, times, layers, checksums and faults."""

import struct
from dataclasses import replace

import pytest

import wirescan
from tests.strategies.pcap import (
    EPOCH,
    ETHERNET,
    LAYERED,
    RAW,
    TCP,
    UDP,
    add_checksum,
    make_block,
    make_enhanced,
    make_ethernet,
    make_interface,
    make_ipv4,
    make_ipv6,
    make_option,
    make_section,
    make_simple,
    make_tcp,
    make_udp,
)
from wirescan import Fault, FrameError, pcap
from wirescan.pcap import BlockKind, PacketKind
from wirescan.pcap.endpoints import format_endpoints


def read_one(link, data, length=None, **options):
    raw = pcap.encode_pcap([(EPOCH, data, length)], link=link)
    return pcap.packets(pcap.scan(raw), errors="mark", **options)


@pytest.mark.parametrize("big_endian", [False, True], ids=["little", "big"])
@pytest.mark.parametrize("nanoseconds", [False, True], ids=["us", "ns"])
def test_a_pcap_file(big_endian, nanoseconds):
    time = EPOCH + 123_456_789
    raw = pcap.encode_pcap(
        [(time, b"a packet", 60)],
        link=147,
        big_endian=big_endian,
        nanoseconds=nanoseconds,
    )
    blocks = pcap.scan(raw)
    assert blocks["kind"].tolist() == [BlockKind.FILE, BlockKind.PACKET]
    assert blocks["size"].tolist() == [24, 16 + 8]
    assert blocks["time"].tolist() == [0, time if nanoseconds else time // 1000 * 1000]
    assert blocks["length"][1] == 60
    assert blocks.bytes(1, "data") == b"a packet"
    assert blocks["link"].tolist() == [147, 147]


def test_upper_bits_of_the_link_type_are_another_field():
    raw = bytearray(pcap.encode_pcap([(EPOCH, b"")], link=ETHERNET))
    struct.pack_into("<I", raw, 20, 0x44000000 | ETHERNET)
    assert pcap.scan(raw)["link"].tolist() == [ETHERNET, ETHERNET]


def test_sections_interfaces_and_comments():
    raw = make_section(">", make_option(1, b"made by hand", ">"))
    raw += make_interface(">", RAW) + make_interface(">", ETHERNET)
    raw += make_enhanced(b"x", ">", 1, options=make_option(1, b"a note", ">"))
    raw += make_section("<") + make_interface("<", 147) + make_simple(b"yz")
    blocks = pcap.scan(raw)
    kinds = [BlockKind(kind).name for kind in blocks["kind"].tolist()]
    second = ["SECTION", "INTERFACE", "PACKET"]
    assert kinds == ["SECTION", "INTERFACE", "INTERFACE", "PACKET", *second]
    assert blocks["interface"].tolist() == [0, 0, 1, 1, 0, 2, 2]
    assert blocks["link"].tolist() == [0, RAW, ETHERNET, ETHERNET, 0, 147, 147]
    assert blocks.bytes(0, "comment") == b"made by hand"
    assert blocks.bytes(3, "comment") == b"a note"
    assert blocks.bytes(6, "comment") is None
    assert blocks.bytes(6, "data") == b"yz"


@pytest.mark.parametrize(
    ("unit", "stamp", "time"),
    [
        (None, EPOCH // 1000, EPOCH),
        (0, 1_700_000_000, EPOCH),
        (9, EPOCH + 7, EPOCH + 7),
        (12, 123456789_000, 123456789),
        (12, 123456789_999, 123456789),
        (18, 5 * 10**17, 500_000_000),
        (19, 5 * 10**18, 0),  # more than 63 bits of units in a second
        (0x80 | 10, 1536, 1_500_000_000),
        (0x80 | 40, 3 << 39, 1_500_000_000),
        (0x80 | 62, (1 << 62) + (1 << 61), 1_500_000_000),
        (0x80 | 63, 1 << 63, 0),
        (0, 2**63, 0),
        (0, 2**64 - 1, 0),
        (0, 9_223_372_035, 9_223_372_035 * 10**9),
        (0, 9_223_372_036, 0),
    ],
)
def test_times_are_nanoseconds(unit, stamp, time):
    option = b"" if unit is None else make_option(9, bytes((unit,)))
    raw = make_section() + make_interface(options=option) + make_enhanced(b"", stamp=stamp)
    assert pcap.scan(raw)["time"][2] == time


@pytest.mark.parametrize(
    ("offset", "time"),
    [(3600, EPOCH + 3600 * 10**9), (-1_700_000_001, 0), (2**63 - 1, 0), (-(2**63), 0)],
)
def test_an_interface_may_have_an_offset_of_time(offset, time):
    option = make_option(14, struct.pack("<q", offset))
    raw = make_section() + make_interface(options=option) + make_enhanced(b"")
    assert pcap.scan(raw)["time"][2] == time


def test_the_snap_length_bounds_simple_packets():
    raw = make_section() + make_interface(snap_length=5) + make_simple(b"123456789", length=9)
    blocks = pcap.scan(raw)
    assert blocks.bytes(2, "data") == b"12345"
    assert blocks["length"][2] == 9


def test_faults_of_blocks():
    good = make_section() + make_interface()
    for block, fault in (
        (make_enhanced(b"x", interface=1), Fault.BAD_FIELD),
        (make_block(6, b"short"), Fault.TRUNCATED),
        (make_block(1, b"abcd"), Fault.TRUNCATED),
        (make_enhanced(b"x")[:-4] + b"\1\0\0\0", Fault.BAD_LENGTH),
    ):
        blocks = pcap.scan(good + block + make_simple(b""), errors="mark")
        assert blocks["fault"].tolist() == [0, 0, fault, 0]
        assert blocks["size"].tolist()[2] == len(block)
    table = pcap.scan(b"no capture at all", errors="mark")
    assert table["fault"].tolist() == [Fault.NOT_A_FRAME]


@pytest.mark.parametrize("order", "<>")
def test_a_section_of_another_version_is_not_read(order):
    unknown = bytearray(make_section(order))
    struct.pack_into(order + "H", unknown, 12, 2)  # the major version
    raw = make_section() + make_interface("<", 147) + make_simple(b"a")
    raw += bytes(unknown) + make_interface(order) + make_enhanced(b"b", order)
    raw += make_section() + make_interface("<", 147) + make_simple(b"c")
    blocks = pcap.scan(raw, errors="mark")
    kinds = [BlockKind(kind).name for kind in blocks["kind"].tolist()]
    known = ["SECTION", "INTERFACE", "PACKET"]
    assert kinds == [*known, "SECTION", "OTHER", "OTHER", *known]
    assert blocks["fault"].tolist() == [0, 0, 0, Fault.BAD_FIELD, 0, 0, 0, 0, 0]
    packets = pcap.packets(blocks, errors="skip")
    assert [bytes(packets.frame(row)) for row in range(len(packets))] == [b"a", b"c"]
    with pytest.raises(FrameError) as caught:
        pcap.scan(raw)
    assert (caught.value.fault, caught.value.offset) == (Fault.BAD_FIELD, blocks["start"][3])


def test_interfaces_are_bounded():
    raw = make_section() + make_interface() * 65_537
    blocks = pcap.scan(raw, errors="mark")
    assert blocks["fault"].tolist()[-2:] == [0, Fault.BAD_FIELD]


@pytest.mark.parametrize("big_endian", [False, True], ids=["little", "big"])
def test_a_file_after_damage(big_endian):
    packets = [(EPOCH + number, bytes(20)) for number in range(6)]
    raw = bytearray(pcap.encode_pcap(packets, link=147, big_endian=big_endian))
    raw[24 + 8 : 24 + 12] = b"\xff\xff\xff\xff"  # the size of the first packet
    blocks = pcap.scan(raw, errors="mark")
    assert blocks["fault"].tolist() == [0, Fault.BAD_LENGTH, 0, 0, 0, 0, 0]
    assert blocks["size"].tolist() == [24] + [36] * 6
    strange = b"garbage before a file"
    blocks = pcap.scan(strange + pcap.encode_pcap(packets), errors="mark")
    assert blocks["size"].tolist() == [len(strange), 24] + [36] * 6


def test_a_stream_keeps_its_state_from_chunk_to_chunk():
    raw = pcap.encode_pcapng([(EPOCH, LAYERED["tcp"][1])] * 3, big_endian=True)
    stream = wirescan.stream("pcap.packets")
    times = []
    for at in range(len(raw)):
        times += stream.feed(raw[at : at + 1])["time"].tolist()
    times += stream.close()["time"].tolist()
    assert times == [EPOCH] * 3


# ---- packets


def test_columns_of_a_tcp_packet():
    segment = make_tcp(b"hello", (50001, 9092), (2**32 - 1, 7), 0x112, 999, options=b"\1" * 4)
    packets = read_one(ETHERNET, make_ethernet(make_ipv4(segment), vlans=[(0x8100, 0x6005)]))
    row = packets[0]
    assert row.kind == PacketKind.TCP
    assert format_endpoints(packets, "source") == ["10.0.0.1:50001"]
    assert format_endpoints(packets, "destination") == ["10.0.0.2:9092"]
    assert (row.sequence, row.acknowledgment) == (2**32 - 1, 7)
    assert (row.flags, row.window, row.vlan, row.ttl) == (0x112, 999, 5, 64)
    assert (row.version, row.protocol, row.fragment_id) == (4, 6, 7)
    assert bytes(row.payload) == b"hello"
    assert row.payload_length == 5


KINDS = {
    "tcp": ("TCP", b"hello"),
    "padding": ("TCP", b""),
    "vlan": ("UDP", b"x"),
    "two vlans": ("TCP", b""),
    "options": ("TCP", b"x"),
    "fragment": ("FRAGMENT", b"a piece"),
    "later fragment": ("FRAGMENT", b"a piece"),
    "icmp": ("ICMP", b"\x08\0\0\0"),
    "gre": ("IP", b"\0\0\x08\0"),
    "no length": ("TCP", b"offload"),
    "ipv6": ("UDP", b"data"),
    "extensions": ("TCP", b"inside"),
    "ipv6 fragment": ("FRAGMENT", b"a piece"),
    "whole ipv6 fragment": ("UDP", b"y"),
    "cooked": ("TCP", b"c"),
    "cooked 2": ("TCP", b"c"),
    "cooked, vlan": ("TCP", b"tagged"),
    "cooked 2, two vlans": ("TCP", b"tagged"),
    "loop": ("TCP", b"l"),
    "null, little": ("TCP", b"n"),
    "null, big": ("TCP", b"n"),
    "arp": ("OTHER", bytes(28)),
    "udp without a length": ("UDP", b"z"),
    "another link type": ("OTHER", b"anything"),
    "nothing": ("OTHER", b""),
}


@pytest.mark.parametrize("name", LAYERED)
def test_layers(name):
    kind, payload = KINDS[name]
    packets = read_one(*LAYERED[name])
    assert packets["fault"].tolist() == [0]
    assert PacketKind(packets["kind"][0]).name == kind
    assert bytes(packets.bytes(0, "payload")) == payload
    assert packets["payload_length"][0] == len(payload)


@pytest.mark.parametrize("name", ["cooked, vlan", "cooked 2, two vlans"])
def test_the_outermost_vlan_tag_counts(name):
    assert read_one(*LAYERED[name])["vlan"].tolist() == [5]


def test_a_cut_packet_is_no_fault():
    data = LAYERED["tcp"][1]
    for size in range(len(data)):
        packets = read_one(ETHERNET, data[:size], len(data))
        assert packets["fault"][0] == 0
        missing = packets["payload_length"][0] - packets["payload_size"][0]
        assert missing == len(data) - size


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (make_ipv4(b"")[:19], Fault.TRUNCATED),
        (b"\x41" + make_ipv4(b"")[1:], Fault.BAD_FIELD),
        (make_ipv4(b"", length=19), Fault.BAD_FIELD),
        (b"\x50" + make_ipv6(b"")[1:], Fault.BAD_FIELD),
        (make_ipv6(b"")[:39], Fault.TRUNCATED),
        (make_ipv6(b"\6\xff" + bytes(6), 0), Fault.TRUNCATED),
        (make_ipv4(make_tcp()[:19]), Fault.TRUNCATED),
        (make_ipv4(make_tcp()[:12] + b"\x40" + bytes(7)), Fault.BAD_FIELD),
        (make_ipv4(make_udp(length=7), UDP), Fault.BAD_FIELD),
    ],
)
def test_faults_of_packets(data, fault):
    packets = read_one(RAW, data)
    assert packets["fault"].tolist() == [fault]


ADDRESSES = b"\x0a\0\0\1\x0a\0\0\2"
ADDRESSES_6 = bytes(15) + b"\1" + bytes(15) + b"\2"
SUMMED = [
    make_ipv4(add_checksum(make_tcp(b"odd"), TCP, ADDRESSES)),
    make_ipv4(add_checksum(make_udp(b"even"), UDP, ADDRESSES), UDP),
    make_ipv6(add_checksum(make_tcp(b"odd"), TCP, ADDRESSES_6)),
    make_ipv6(add_checksum(make_udp(b"even"), UDP, ADDRESSES_6), UDP),
]


@pytest.mark.parametrize("data", SUMMED, ids=["tcp", "udp", "tcp over ipv6", "udp over ipv6"])
def test_checksums_are_verified_on_request(data):
    wrong = data[:-1] + bytes((data[-1] ^ 1,))
    assert read_one(RAW, data, verify_checksums=True)["fault"][0] == 0
    assert read_one(RAW, wrong)["fault"][0] == 0
    assert read_one(RAW, wrong, verify_checksums=True)["fault"][0] == Fault.BAD_CHECKSUM
    # A packet that was cut cannot be verified.
    assert read_one(RAW, wrong[:-1], len(wrong), verify_checksums=True)["fault"][0] == 0


def test_the_checksum_of_ipv4_is_verified_on_request():
    data = SUMMED[0][:8] + b"\x3f" + SUMMED[0][9:]  # the time to live
    assert read_one(RAW, data)["fault"][0] == 0
    assert read_one(RAW, data, verify_checksums=True)["fault"][0] == Fault.BAD_CHECKSUM


def test_a_checksum_of_udp_may_be_missing():
    assert read_one(RAW, make_ipv4(make_udp(b"x"), UDP), verify_checksums=True)["fault"][0] == 0


def test_endpoints_as_text():
    data = [LAYERED["ipv6"][1], LAYERED["options"][1], b"\x45"]
    raw = pcap.encode_pcap([(EPOCH, packet, 70) for packet in data], link=RAW)
    packets = pcap.packets(pcap.scan(raw))
    assert format_endpoints(packets, "source") == ["[::1]:5000", "10.0.0.1:50000", None]
    assert format_endpoints(packets, "destination") == ["[::2]:53", "10.0.0.2:9092", None]


def test_a_bad_block_is_a_bad_packet():
    raw = make_section() + make_interface() + make_enhanced(b"x", interface=7) + make_simple(b"")
    packets = pcap.packets(pcap.scan(raw, errors="mark"))
    assert packets["fault"].tolist() == [Fault.BAD_FIELD, 0]
    assert packets["parent"].tolist() == [2, 3]


def test_packets_are_read_from_blocks_only():
    packets = read_one(RAW, b"")
    with pytest.raises(TypeError, match=r"pcap\.blocks"):
        pcap.packets(packets)


def test_rows_with_places_outside_their_block():
    blocks = pcap.scan(pcap.encode_pcap([(EPOCH, bytes(20))], link=RAW))
    rows = blocks.rows.copy()
    rows["data_size"][1] = 21
    with pytest.raises(ValueError, match="outside"):
        pcap.packets(replace(blocks, rows=rows))
