"""Encoders for captures: the bytes of a pcap file, and of a section of a pcapng file.

`scan.pyx` shows the formats. The packets are given as bytes from the link layer on.

Source: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from wirescan.core.arguments import check_integer, to_bytes

__all__ = ["CaptureInterface", "CapturedPacket", "encode_pcap", "encode_pcapng"]

MICROSECONDS = 0xA1B2C3D4
NANOSECONDS = 0xA1B23C4D
SNAP_LENGTH = 262_144
LARGEST = 0x7FFF_FFFF  # bytes of a packet
SECTION_HEADER = 0x0A0D_0D0A
BYTE_ORDER = 0x1A2B_3C4D
INTERFACE, PACKET, SECRETS = 1, 6, 10  # types of blocks
TLS_KEY_LOG = 0x544C_534B  # a type of secrets
COMMENT, RESOLUTION = 1, 9  # codes of options
UNKNOWN_SIZE = 0xFFFF_FFFF_FFFF_FFFF  # of a section
BILLION = 1_000_000_000
ANY_INTEGER = (-1 << 127, 1 << 127)  # the format sets narrower bounds


class CapturedPacket(NamedTuple):
    """A packet to encode.

    time: nanoseconds since 1970. data: the captured bytes, bytes-like or str. length: bytes on the
    wire; None, the default, for a packet that was captured as a whole. interface, comment: for
    pcapng only. interface: its number. comment: bytes-like or str, or None for no comment.
    """

    time: int
    data: Any
    length: int | None = None
    interface: int = 0
    comment: Any = None


class CaptureInterface(NamedTuple):
    """An interface of a pcapng file.

    link: a `LinkType`. snap_length: 0 for none. digits: decimal digits of a second in the times, 0
    to 9. Further digits of a time are not written.
    """

    link: int = 1
    snap_length: int = 0
    digits: int = 9


def encode_pcap(
    packets: Iterable[tuple],
    *,
    link: int = 1,
    snap_length: int = SNAP_LENGTH,
    nanoseconds: bool = False,
    big_endian: bool = False,
) -> bytes:
    """Encode a pcap file.

    packets: each is a `CapturedPacket`, or a tuple of its first values. The interface and comment
    are not written. link: a `LinkType`. snap_length: what the header says; packets may have more
    bytes. nanoseconds: the unit of time. The default is microseconds, and the rest of a time is not
    written. big_endian: the byte order of the numbers.

    Raises TypeError for an argument of another type. Raises ValueError with the packet's number for
    a time before 1970 or after 2106, and for a packet of more bytes than the format can hold.
    """
    order = ">" if big_endian else "<"
    unit = 1 if nanoseconds else 1000
    header = (
        NANOSECONDS if nanoseconds else MICROSECONDS,
        2,
        4,
        0,
        0,
        check_integer(snap_length, "snap_length", (0, LARGEST)),
        check_integer(link, "link", (0, 0xFFFF)),
    )
    out = bytearray(struct.pack(order + "IHHIIII", *header))
    for number, values in enumerate(packets):
        packet, data, length = _check_packet(number, values)
        seconds, fraction = divmod(packet.time, BILLION)
        if seconds > 0xFFFF_FFFF:
            raise ValueError(f"packet {number}: the time is after 2106, which pcap cannot hold")
        out += struct.pack(order + "IIII", seconds, fraction // unit, len(data), length) + data
    return bytes(out)


def encode_pcapng(
    packets: Iterable[tuple],
    *,
    interfaces: Sequence[tuple] = (CaptureInterface(),),
    big_endian: bool = False,
    secrets: Any = None,
) -> bytes:
    """Encode a section of a pcapng file. A file may have several, one after another.

    packets: each is a `CapturedPacket`, or a tuple of its first values. interfaces: each is a
    `CaptureInterface`, or a tuple of its first values. big_endian: the byte order of the numbers.
    secrets: the content of a file of TLS secrets (NSSLKEYLOGFILE), bytes-like or str, which is
    written before the packets; None, the default, for none.

    Raises TypeError for an argument of another type. Raises ValueError with the packet's number for
    a time that the format cannot hold, for an interface that is not given, for a packet of 2 GiB
    and for a comment of more than 65,535 bytes.
    """
    order = ">" if big_endian else "<"
    fields = struct.pack(order + "IHHQ", BYTE_ORDER, 1, 0, UNKNOWN_SIZE)
    out = bytearray(_encode_block(order, SECTION_HEADER, fields))
    digits = []
    for description in interfaces:
        interface = CaptureInterface(*description)
        digits.append(check_integer(interface.digits, "digits", (0, 9)))
        link = check_integer(interface.link, "link", (0, 0xFFFF))
        longest = check_integer(interface.snap_length, "snap_length", (0, LARGEST))
        fields = struct.pack(order + "HHI", link, 0, longest)
        fields += _encode_options(order, [(RESOLUTION, bytes((digits[-1],)))])
        out += _encode_block(order, INTERFACE, fields)
    if secrets is not None:
        lines = to_bytes(secrets, "secrets")
        fields = struct.pack(order + "II", TLS_KEY_LOG, len(lines)) + lines + bytes(-len(lines) % 4)
        out += _encode_block(order, SECRETS, fields)
    for number, values in enumerate(packets):
        packet, data, length = _check_packet(number, values)
        if not 0 <= packet.interface < len(digits):
            raise ValueError(f"packet {number}: there is no interface {packet.interface}")
        stamp = packet.time // 10 ** (9 - digits[packet.interface])
        if stamp >> 64:
            raise ValueError(f"packet {number}: the time has more than 64 bits")
        fields = struct.pack(
            order + "IIIII", packet.interface, stamp >> 32, stamp & 0xFFFF_FFFF, len(data), length
        )
        fields += data + bytes(-len(data) % 4)
        if packet.comment is not None:
            comment = to_bytes(packet.comment, f"packet {number}: comment")
            if len(comment) > 0xFFFF:
                raise ValueError(f"packet {number}: the comment has more than 65,535 bytes")
            fields += _encode_options(order, [(COMMENT, comment)])
        out += _encode_block(order, PACKET, fields)
    return bytes(out)


def _check_packet(number: int, values: tuple) -> tuple[CapturedPacket, bytes, int]:
    """Return a packet, its bytes and its length on the wire."""
    name = f"packet {number}"
    try:
        packet = CapturedPacket(*values)
    except TypeError:
        raise TypeError(
            f"{name}: expected a CapturedPacket, or a tuple of its first values, not {values!r:.80}"
        ) from None
    data = to_bytes(packet.data, f"{name}: data")
    length = len(data)
    if packet.length is not None:
        length = check_integer(packet.length, f"{name}: length", ANY_INTEGER)
    packet = packet._replace(
        time=check_integer(packet.time, f"{name}: time", ANY_INTEGER),
        interface=check_integer(packet.interface, f"{name}: interface", ANY_INTEGER),
    )
    if packet.time < 0:
        raise ValueError(f"packet {number}: the time is before 1970")
    if len(data) > LARGEST or not len(data) <= length <= 0xFFFF_FFFF:
        raise ValueError(
            f"packet {number}: {len(data):,} bytes of {length:,} on the wire; a packet has less "
            "than 2 GiB, and at least those that were captured"
        )
    return packet, data, length


def _encode_block(order: str, type: int, fields: bytes) -> bytes:
    """Encode a block of pcapng: its type, its size at both ends, and the fields."""
    size = len(fields) + 12
    return struct.pack(order + "II", type, size) + fields + struct.pack(order + "I", size)


def _encode_options(order: str, options: list[tuple[int, bytes]]) -> bytes:
    """Encode options as (code, value), and their end."""
    out = b""
    for code, value in options:
        out += struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)
    return out + bytes(4)
