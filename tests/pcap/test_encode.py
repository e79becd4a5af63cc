"""encode_pcap and encode_pcapng: the bytes that they write, and what they refuse."""

import struct

import pytest

from wirescan import pcap
from wirescan.pcap import CapturedPacket, CaptureInterface, encode_pcap, encode_pcapng

SECOND = 10**9


def test_the_bytes_of_a_pcap_file():
    raw = encode_pcap([(5 * SECOND + 7_000, b"abc", 9)], link=101, snap_length=64)
    assert raw == (
        struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 64, 101)
        + struct.pack("<IIII", 5, 7, 3, 9)
        + b"abc"
    )
    raw = encode_pcap([(5 * SECOND + 7, b"")], nanoseconds=True, big_endian=True)
    assert raw == (
        struct.pack(">IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1)
        + struct.pack(">IIII", 5, 7, 0, 0)
    )


@pytest.mark.parametrize("encode", [encode_pcap, encode_pcapng])
@pytest.mark.parametrize(
    "packet, message",
    [
        ((1.5e9, b""), "packet 1: time must be an integer, not 1500000000.0"),
        ((None, b""), "packet 1: time must be an integer"),
        ((0, b"", 4.0), "packet 1: length must be an integer, not 4.0"),
        ((0, b"", None, None), "packet 1: interface must be an integer"),
        ((0, None), "packet 1: data must be bytes or str"),
        ((0,), "packet 1: expected a CapturedPacket"),
        (7, "packet 1: expected a CapturedPacket"),
    ],
)
def test_other_types_are_refused_with_the_number_of_the_packet(encode, packet, message):
    with pytest.raises(TypeError, match=message):
        encode([(0, b""), packet])


def test_the_bytes_of_a_pcapng_file():
    raw = encode_pcapng(
        [CapturedPacket(1 << 33, "abcde", 9, comment="hi")],
        interfaces=[CaptureInterface(101, 64, 9)],
        big_endian=True,
    )
    assert raw == (
        bytes.fromhex("0a0d0d0a 0000001c 1a2b3c4d 00010000 ffffffffffffffff 0000001c")
        + bytes.fromhex("00000001 00000020 0065 0000 00000040 0009 0001 09000000 00000000 00000020")
        + bytes.fromhex("00000006 00000034 00000000 00000002 00000000 00000005 00000009")
        + b"abcde\0\0\0"
        + bytes.fromhex("0001 0002")
        + b"hi\0\0"
        + bytes.fromhex("00000000 00000034")
    )


def test_sections_may_follow_one_another():
    raw = encode_pcapng([(1, b"a")]) + encode_pcapng([(2, b"b")], big_endian=True)
    packets = pcap.packets(pcap.scan(raw))
    assert packets["time"].tolist() == [1, 2]
    assert packets["interface"].tolist() == [0, 1]


@pytest.mark.parametrize("encode", [encode_pcap, encode_pcapng])
@pytest.mark.parametrize(
    ("packet", "message"),
    [
        ((-1, b""), "packet 1: the time is before 1970"),
        ((0, b"abc", 2), "packet 1: 3 bytes of 2 on the wire"),
        ((0, b"abc", 1 << 32), "packet 1: 3 bytes of 4,294,967,296 on the wire"),
    ],
)
def test_bad_packets_are_refused(encode, packet, message):
    with pytest.raises(ValueError, match=message):
        encode([(0, b""), packet])


def test_what_one_format_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="packet 0: the time is after 2106"):
        encode_pcap([(1 << 62, b"")])
    with pytest.raises(ValueError, match="packet 0: the time has more than 64 bits"):
        encode_pcapng([(1 << 64, b"")])
    with pytest.raises(ValueError, match="packet 0: there is no interface 1"):
        encode_pcapng([(0, b"", None, 1)])
    with pytest.raises(ValueError, match="packet 0: the comment has more than 65,535 bytes"):
        encode_pcapng([CapturedPacket(0, b"", comment=bytes(65_536))])
    with pytest.raises(ValueError, match="link must be from 0 to 65535"):
        encode_pcap([], link=1 << 16)
    with pytest.raises(ValueError, match="digits must be from 0 to 9"):
        encode_pcapng([], interfaces=[CaptureInterface(digits=10)])
    with pytest.raises(TypeError, match="data must be bytes or str"):
        encode_pcap([(0, 5)])
