"""Bytes of captures for hypothesis: good and damaged files of pcap and pcapng.

make_ethernet(), make_ipv4(), make_ipv6(), make_tcp(), make_udp()    one layer of a packet
packets()                               the bytes of one packet, good or odd
streams()                               good captures
tails()                                 bytes that may follow the last whole block
damaged_streams()                       damaged captures
written()                               encoded captures, and their packets
GOLDEN                                  small good captures, one of each kind
"""

import struct

from tests.strategies import shared as st
from wirescan.pcap.encode import CapturedPacket, CaptureInterface, encode_pcap, encode_pcapng

EPOCH = 1_700_000_000 * 10**9
ETHERNET, RAW, LOOP, COOKED, COOKED_2 = 1, 101, 108, 113, 276
IPV4, IPV6 = 0x0800, 0x86DD
TCP, UDP, ICMP = 6, 17, 1

# ---- layers


def sum_words(data):
    """Return the checksum of IP: the complement of the sum of the words."""
    data = bytes(data) + bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def make_ethernet(payload, type=IPV4, vlans=()):
    """vlans: (type, number) of the tags, the outermost first."""
    tags = b"".join(struct.pack(">HH", *tag) for tag in vlans)
    return b"\2\0\0\0\0\2\2\0\0\0\0\1" + tags + struct.pack(">H", type) + payload


def make_ipv4(
    payload,
    protocol=TCP,
    source=b"\x0a\0\0\1",
    destination=b"\x0a\0\0\2",
    options=b"",
    fragment=0,
    length=None,
):
    """options: a multiple of 4 bytes. fragment: flags and offset. length: None for the real one."""
    size = 20 + len(options)
    fields = [0x40 | size // 4, 0, size + len(payload) if length is None else length]
    fields += [7, fragment, 64, protocol, 0, source, destination]
    header = struct.pack(">BBHHHBBH4s4s", *fields) + options
    return header[:10] + struct.pack(">H", sum_words(header)) + header[12:] + payload


def make_ipv6(payload, protocol=TCP, source=bytes(15) + b"\1", destination=bytes(15) + b"\2"):
    return (
        struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64) + source + destination + payload
    )


def make_extension(protocol, size=8):
    """An extension header of IPv6, of a multiple of 8 bytes, before `protocol`."""
    return bytes((protocol, size // 8 - 1)) + bytes(size - 2)


def make_fragment(protocol, offset, more):
    """The fragment header of IPv6. offset: in bytes / 8."""
    return struct.pack(">BBHI", protocol, 0, offset << 3 | more, 99)


def make_tcp(
    payload=b"", ports=(50000, 9092), numbers=(1, 2), flags=0x18, window=512, options=b"", sum=0
):
    size = 20 + len(options)
    fields = [*ports, *numbers, size // 4 << 12 | flags, window, sum, 0]
    return struct.pack(">HHIIHHHH", *fields) + options + payload


def make_udp(payload=b"", ports=(5000, 53), length=None, sum=0):
    length = 8 + len(payload) if length is None else length
    return struct.pack(">HHHH", *ports, length, sum) + payload


def add_checksum(segment, protocol, addresses):
    """Return a segment of TCP or UDP with its checksum. addresses: both, one after another."""
    at = 16 if protocol == TCP else 6
    pseudo = addresses + struct.pack(">II", len(segment), protocol)
    zeroed = segment[:at] + b"\0\0" + segment[at + 2 :]
    return segment[:at] + struct.pack(">H", sum_words(pseudo + zeroed)) + segment[at + 2 :]


LAYERED = {
    "tcp": (ETHERNET, make_ethernet(make_ipv4(make_tcp(b"hello")))),
    "padding": (ETHERNET, make_ethernet(make_ipv4(make_tcp())) + bytes(6)),
    "vlan": (ETHERNET, make_ethernet(make_ipv4(make_udp(b"x"), UDP), vlans=[(0x8100, 5)])),
    "two vlans": (
        ETHERNET,
        make_ethernet(make_ipv6(make_tcp()), IPV6, [(0x88A8, 100), (0x8100, 0xE007)]),
    ),
    "options": (RAW, make_ipv4(make_tcp(b"x", options=b"\1" * 12), options=b"\1" * 8)),
    "fragment": (RAW, make_ipv4(b"a piece", UDP, fragment=0x2000)),
    "later fragment": (RAW, make_ipv4(b"a piece", UDP, fragment=3)),
    "icmp": (228, make_ipv4(b"\x08\0\0\0", ICMP)),
    "gre": (14, make_ipv4(b"\0\0\x08\0", 47)),
    "no length": (12, make_ipv4(make_tcp(b"offload"), length=0)),
    "ipv6": (229, make_ipv6(make_udp(b"data"), UDP)),
    "extensions": (
        RAW,
        make_ipv6(
            make_extension(43)
            + make_extension(60, 16)
            + make_extension(51)
            # An authentication header counts words of 4 bytes, and not its first two.
            + bytes((TCP, 4))
            + bytes(22)
            + make_tcp(b"inside"),
            0,
        ),
    ),
    "ipv6 fragment": (RAW, make_ipv6(make_fragment(UDP, 0, 1) + b"a piece", 44)),
    "whole ipv6 fragment": (RAW, make_ipv6(make_fragment(UDP, 0, 0) + make_udp(b"y"), 44)),
    "cooked": (COOKED, bytes(14) + b"\x08\0" + make_ipv4(make_tcp(b"c"))),
    "cooked 2": (COOKED_2, b"\x86\xdd" + bytes(18) + make_ipv6(make_tcp(b"c"))),
    "cooked, vlan": (
        COOKED,
        bytes(14) + b"\x81\0\0\5\x08\0" + make_ipv4(make_tcp(b"tagged")),
    ),
    "cooked 2, two vlans": (
        COOKED_2,
        b"\x88\xa8" + bytes(18) + b"\0\5\x81\0\0\6\x86\xdd" + make_ipv6(make_tcp(b"tagged")),
    ),
    "loop": (LOOP, b"\0\0\0\2" + make_ipv4(make_tcp(b"l"))),
    "null, little": (0, b"\x1e\0\0\0" + make_ipv6(make_tcp(b"n"))),
    "null, big": (0, b"\0\0\0\2" + make_ipv4(make_tcp(b"n"))),
    "arp": (ETHERNET, make_ethernet(bytes(28), 0x0806)),
    "udp without a length": (RAW, make_ipv4(make_udp(b"z", length=0), UDP)),
    "another link type": (147, b"anything"),
    "nothing": (ETHERNET, b""),
}

# ---- blocks


def make_block(type, fields, order="<"):
    """A block of pcapng. fields: of any size; they are padded to 4 bytes."""
    fields += bytes(-len(fields) % 4)
    size = struct.pack(order + "I", len(fields) + 12)
    return struct.pack(order + "I", type) + size + fields + size


def make_option(code, value, order="<"):
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def make_section(order="<", options=b"", size=-1):
    fields = struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, size) + options
    return make_block(0x0A0D0D0A, fields, order)


def make_interface(order="<", link=RAW, snap_length=0, options=b""):
    return make_block(1, struct.pack(order + "HHI", link, 0, snap_length) + options, order)


def make_enhanced(data, order="<", interface=0, stamp=EPOCH // 1000, length=None, options=b""):
    length = len(data) if length is None else length
    words = (interface, stamp >> 32, stamp & 0xFFFFFFFF, len(data), length)
    fields = struct.pack(order + "IIIII", *words) + data + bytes(-len(data) % 4)
    return make_block(6, fields + options, order)


def make_old(data, order="<", interface=0, stamp=EPOCH // 1000):
    words = (interface, 3, stamp >> 32, stamp & 0xFFFFFFFF, len(data), len(data))
    return make_block(2, struct.pack(order + "HHIIII", *words) + data, order)


def make_simple(data, order="<", length=None):
    length = len(data) if length is None else length
    return make_block(3, struct.pack(order + "I", length) + data, order)


DATA = LAYERED["ipv6"][1]
GOLDEN = {
    f"pcap, {name}": encode_pcap(
        [CapturedPacket(EPOCH, DATA), CapturedPacket(EPOCH + 999, DATA[:30], 60)], **options
    )
    for name, options in {
        "microseconds": dict(link=RAW),
        "nanoseconds": dict(link=RAW, nanoseconds=True),
        "big": dict(link=RAW, big_endian=True),
        "big nanoseconds": dict(link=RAW, big_endian=True, nanoseconds=True),
    }.items()
} | {
    f"pcapng, {name}": make_section(order, make_option(1, b"a comment", order))
    + make_interface(order, options=make_option(9, b"\6", order))
    + make_interface(order, snap_length=40, options=make_option(9, b"\x8a", order))
    + make_enhanced(DATA, order, options=make_option(1, b"yes", order) + bytes(4))
    + make_enhanced(DATA, order, 1, 5 << 10)
    + make_old(DATA, order)
    + make_simple(DATA, order)
    + make_block(0x99, b"unknown", order)
    for name, order in (("little", "<"), ("big", ">"))
}
GOLDEN["two sections"] = (
    GOLDEN["pcapng, big"] + make_section() + make_interface() + make_simple(b"")
)
GOLDEN["other blocks"] = (
    make_section()
    + make_block(4, b"names")
    + make_block(5, bytes(12))
    + make_block(10, struct.pack("<II", 0x544C534B, 7) + b"secrets")
    + make_block(0xBAD, b"custom")
    + make_block(0x40000BAD, b"custom")
)

ORDERS = st.sampled_from("<>")
TIMES = st.integers(0, 0xFFFFFFFF * 10**9) | st.integers(EPOCH, EPOCH + 10**10)
OPTIONAL_LENGTHS = st.none() | st.integers(100, 3000)


LINKS = sorted({link for link, _ in LAYERED.values()})
OF_LINK = {link: [data for other, data in LAYERED.values() if other == link] for link in LINKS}


@st.builds_once
@st.composite
def packets(draw, link, odd):
    """The bytes of a packet of a link type. odd: perhaps of another one, cut, or with odd bytes."""
    if not odd:
        return draw(st.sampled_from(OF_LINK[link]))
    data = draw(st.sampled_from([data for _, data in LAYERED.values()] + OF_LINK[link] * 5))
    kind = draw(st.integers(0, 2))
    if kind == 1:
        data = data[: draw(st.integers(0, len(data)))]
    elif kind == 2 and data:
        changed = bytearray(data)
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(data) - 1))
            changed[at] = draw(
                st.sampled_from((0, 1, 0x44, 0x60, 0x80, 0xFF)) | st.integers(0, 255)
            )
        data = bytes(changed)
    return data


@st.builds_once
@st.composite
def pcap_files(draw, odd=False):
    link = draw(st.sampled_from(LINKS))
    listed = [
        CapturedPacket(draw(TIMES), data, length and max(length, len(data)))
        for data, length in draw(
            st.lists(st.tuples(packets(link, odd), OPTIONAL_LENGTHS), max_size=4)
        )
    ]
    return encode_pcap(
        listed, link=link, nanoseconds=draw(st.booleans()), big_endian=draw(st.booleans())
    )


@st.builds_once
@st.composite
def interfaces(draw, order):
    """(link type, block): an interface with some options."""
    options = b""
    if draw(st.booleans()):
        unit = draw(st.sampled_from((0, 3, 6, 9, 12, 19, 20, 127, 0x80, 0x8A, 0xA0, 0xBE, 0xBF)))
        options += make_option(9, bytes((unit,)), order)
    if draw(st.booleans()):
        offset = draw(st.sampled_from((0, 1, -1, 3600, -(10**10), 2**33, 2**34, -(2**63))))
        options += make_option(14, struct.pack(order + "q", offset), order)
    options += draw(st.sampled_from((b"", make_option(1, b"c", order), bytes(4), b"\1")))
    link = draw(st.sampled_from(LINKS))
    return link, make_interface(order, link, draw(st.sampled_from((0, 0, 20, 65535))), options)


@st.builds_once
@st.composite
def packet_blocks(draw, order, links, odd):
    """A block of a packet. links: of the interfaces of the section."""
    kind = draw(st.integers(0, 3))
    number = 0 if kind == 3 else draw(st.integers(0, len(links) - 1))
    data = draw(packets(links[number], odd))
    if kind == 3:
        return make_simple(data, order, len(data) + draw(st.sampled_from((0, 0, 5))))
    stamp = draw(st.integers(0, 2**64 - 1) | st.just(EPOCH // 1000) | st.just(EPOCH))
    if odd and not draw(st.integers(0, 9)):
        number = len(links)
    if kind == 2:
        return make_old(data, order, number, stamp)
    options = draw(st.sampled_from((b"", b"", make_option(1, b"note", order) + bytes(4))))
    return make_enhanced(data, order, number, stamp, len(data) + kind, options)


@st.builds_once
@st.composite
def sections(draw, odd=False):
    order = draw(ORDERS)
    comment = draw(st.sampled_from((b"", make_option(1, b"hello", order))))
    raw = make_section(order, comment)
    described = draw(st.lists(interfaces(order), min_size=1, max_size=2))
    raw += b"".join(block for _, block in described)
    others = st.builds(
        make_block, st.sampled_from((4, 5, 10, 0xBAD, 0x99)), st.binary(max_size=30), st.just(order)
    )
    links = tuple(link for link, _ in described)
    blocks = st.one_of(*[packet_blocks(order, links, odd)] * 3, others)
    return raw + b"".join(draw(st.lists(blocks, max_size=4)))


@st.builds_once
def streams(odd=False):
    """Captures. A file of pcapng has one or more sections. odd: some packets are odd or bad."""
    joined = st.lists(sections(odd), min_size=1, max_size=2).map(b"".join)
    return pcap_files(odd) | joined | st.sampled_from(GOLDEN.values())


@st.builds_once
def tails():
    """No bytes: a cut block of another kind than the file's would be damage."""
    return st.just(b"")


# ---- damage


@st.composite
def mutations(draw, raw, steps=3):
    """Copies of `raw` with flipped bits, changed, removed or inserted bytes, extreme numbers."""
    for _ in range(draw(st.integers(1, steps))):
        if not raw:
            break
        out = bytearray(raw)
        at = draw(st.integers(0, len(raw) - 1))
        kind = draw(st.sampled_from(("flip", "word", "insert", "cut", "remove", "noise")))
        if kind == "flip":
            out[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "word":
            at &= ~3
            number = draw(st.sampled_from((0, 1, 4, 12, 13, 16, 28, 2**18 + 1, 2**31, 2**32 - 1)))
            out[at : at + 4] = struct.pack(draw(ORDERS) + "I", number)
        elif kind == "insert":
            out[at:at] = draw(st.binary(min_size=1, max_size=12))
        elif kind == "noise":
            out[at : at + 16] = draw(st.binary(min_size=16, max_size=16))
        elif kind == "cut":
            del out[at:]
        else:
            del out[at : at + draw(st.integers(1, 20))]
        raw = bytes(out)
    return raw


@st.builds_once
def damaged_streams():
    whole = streams(odd=True)
    joined = st.tuples(whole, st.binary(max_size=20), whole).map(b"".join)
    return whole | whole.flatmap(mutations) | joined | joined.flatmap(mutations)


# ---- what the encoders write


@st.builds_once
@st.composite
def written(draw):
    """(bytes, packets): an encoded capture, and (time, length, interface, link, data, comment)."""
    big_endian = draw(st.booleans())
    if draw(st.booleans()):
        nanoseconds = draw(st.booleans())
        link = draw(st.sampled_from((147, 195)))  # any bytes are good packets of these
        listed = draw(
            st.lists(
                st.tuples(st.integers(0, 2_000_000_000 * 10**9), st.binary(max_size=40)), max_size=4
            )
        )
        raw = encode_pcap(listed, link=link, nanoseconds=nanoseconds, big_endian=big_endian)
        unit = 1 if nanoseconds else 1000
        return raw, [(time // unit * unit, len(data), 0, link, data, None) for time, data in listed]
    described = draw(
        st.lists(
            st.tuples(st.sampled_from((147, 195)), st.just(0), st.integers(0, 9)),
            min_size=1,
            max_size=3,
        )
    )
    raw, rows = b"", []
    listed = []
    for _ in range(draw(st.integers(0, 4))):
        packet = CapturedPacket(
            draw(st.integers(0, 9_000_000_000 * 10**9)),
            draw(st.binary(max_size=40)),
            draw(st.none() | st.integers(40, 2**32 - 1)),
            draw(st.integers(0, len(described) - 1)),
            draw(st.none() | st.binary(max_size=9)),
        )
        link, _, digits = described[packet.interface]
        unit = 10 ** (9 - digits)
        length = len(packet.data) if packet.length is None else packet.length
        time = packet.time // unit * unit
        rows.append((time, length, packet.interface, link, packet.data, packet.comment))
        listed.append(packet)
    raw = encode_pcapng(
        listed, interfaces=[CaptureInterface(*one) for one in described], big_endian=big_endian
    )
    return raw, rows
