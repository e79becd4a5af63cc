"""tshark, dpkt and python-pcapng read the same blocks and packets as wirescan.

The captures are made here. They have every layer of tests/strategies/pcap.py, in both formats and
byte orders.
"""

from decimal import Decimal
from io import BytesIO
from ipaddress import ip_address

import pytest

from tests.strategies.pcap import (
    EPOCH,
    GOLDEN,
    LAYERED,
    TCP,
    UDP,
    add_checksum,
    make_ipv4,
    make_tcp,
    make_udp,
)
from wirescan import pcap
from wirescan.pcap import CapturedPacket, CaptureInterface, PacketKind

from . import tshark

pytestmark = pytest.mark.peers
BILLION = 10**9
ENHANCED = 6  # type of a block
LINKS = sorted({link for link, _ in LAYERED.values()})
PACKETS = [
    CapturedPacket(EPOCH + 1_001 * number, data, interface=LINKS.index(link), comment=name)
    for number, (name, (link, data)) in enumerate(LAYERED.items())
]
SNAPPED = [
    CapturedPacket(EPOCH, data[: len(data) - 3], len(data), LINKS.index(link))
    for name, (link, data) in LAYERED.items()
    if name in ("tcp", "extensions", "no length")
]
INTERFACES = [CaptureInterface(link, digits=digits) for link, digits in zip(LINKS, [9, 6, 3] * 9)]
CAPTURES = {
    "every layer": pcap.encode_pcapng(PACKETS, interfaces=INTERFACES),
    "every layer, big": pcap.encode_pcapng(PACKETS, interfaces=INTERFACES, big_endian=True),
    "snapped": pcap.encode_pcapng(SNAPPED, interfaces=INTERFACES),
    "pcap": pcap.encode_pcap([PACKETS[0]] * 3, big_endian=True),
    "pcap, ns": pcap.encode_pcap([PACKETS[0]] * 3, nanoseconds=True),
    **{name: GOLDEN[name] for name in ("pcapng, little", "pcapng, big", "two sections")},
}
FIELDS = (
    "frame.time_epoch",
    "frame.len",
    "frame.cap_len",
    "ip.src",
    "ipv6.src",
    "ip.dst",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.flags",
    "tcp.window_size_value",
    "tcp.len",
    "udp.srcport",
    "udp.dstport",
)
NUMBERS = [name for name in FIELDS if name[:3] in ("tcp", "udp") and name != "tcp.flags"]


def describe_with_tshark(path):
    """Return what tshark reads of each packet, in the form of `describe_with_wirescan`."""
    described = []
    for cells in tshark.read_fields(path, FIELDS):
        cell = {name: values[0] if values else None for name, values in zip(FIELDS, cells)}
        numbers = {name: int(cell[name]) for name in NUMBERS if cell[name]}
        if cell["tcp.flags"]:
            numbers["tcp.flags"] = int(cell["tcp.flags"], 16)
        time = cell["frame.time_epoch"]
        described.append(
            {
                "time": int(Decimal(time) * BILLION) if time else 0,
                "length": int(cell["frame.len"]),
                "captured": int(cell["frame.cap_len"]),
                "source": cell["ip.src"] or cell["ipv6.src"],
                "destination": cell["ip.dst"] or cell["ipv6.dst"],
                **numbers,
            }
        )
    return described


def describe_with_wirescan(raw):
    described = []
    for row in pcap.packets(pcap.scan(raw)):
        numbers = {}
        if row.kind == PacketKind.TCP:
            numbers = {
                "tcp.srcport": row.source_port,
                "tcp.dstport": row.destination_port,
                "tcp.seq_raw": row.sequence,
                "tcp.ack_raw": row.acknowledgment,
                "tcp.flags": row.flags,
                "tcp.window_size_value": row.window,
                "tcp.len": row.payload_length,
            }
        elif row.kind == PacketKind.UDP:
            numbers = {"udp.srcport": row.source_port, "udp.dstport": row.destination_port}
        source, destination = (
            None if place is None else str(ip_address(bytes(place)))
            for place in (row.source_address, row.destination_address)
        )
        described.append(
            {
                "time": row.time,
                "length": row.length,
                "captured": row.size,
                "source": source,
                "destination": destination,
                **numbers,
            }
        )
    return described


@pytest.mark.parametrize("name", CAPTURES)
def test_tshark_reads_the_same_packets(name, tmp_path):
    path = tmp_path / "capture"
    path.write_bytes(CAPTURES[name])
    assert describe_with_wirescan(CAPTURES[name]) == describe_with_tshark(path)


def test_tshark_verifies_the_same_checksums(tmp_path):
    addresses = b"\x0a\0\0\1\x0a\0\0\2"
    tcp = add_checksum(make_tcp(b"odd"), TCP, addresses)
    udp = add_checksum(make_udp(b"even"), UDP, addresses)
    datas = [make_ipv4(tcp), make_ipv4(tcp[:-1] + b"D"), make_ipv4(udp, UDP)]
    datas += [make_ipv4(udp[:-1] + b"N", UDP), b"\x45\1" + make_ipv4(tcp)[2:]]
    path = tmp_path / "capture"
    path.write_bytes(pcap.encode_pcap([(EPOCH, data) for data in datas], link=101))
    names = ["ip.checksum.status", "tcp.checksum.status", "udp.checksum.status"]
    options = [
        word for name in ("ip", "tcp", "udp") for word in ("-o", f"{name}.check_checksum:TRUE")
    ]
    read = tshark.read_fields(path, names, options=options)
    is_bad = [
        any(tshark.CHECKSUMS[value] == "bad" for cell in cells for value in cell) for cells in read
    ]
    packets = pcap.packets(pcap.scan(path), errors="mark", verify_checksums=True)
    assert packets.bad.tolist() == is_bad == [False, True, False, True, True]


@pytest.mark.parametrize("name", ["pcap", "pcap, ns"])
def test_dpkt_reads_the_same_records(name):
    import dpkt

    found = [(row.time, bytes(row.data)) for row in pcap.scan(CAPTURES[name]) if row.kind == 2]
    reader = dpkt.pcap.Reader(BytesIO(CAPTURES[name]))
    read = [(int(Decimal(time) * BILLION), data) for time, data in reader]
    # dpkt has times as float or Decimal.
    assert [data for _, data in found] == [data for _, data in read]
    for (time, _), (other, _) in zip(found, read, strict=True):
        assert abs(time - other) < 1000


@pytest.mark.parametrize("name", ["every layer", "every layer, big", "pcapng, big", "two sections"])
def test_python_pcapng_reads_the_same_blocks(name):
    from pcapng import FileScanner
    from pcapng.blocks import EnhancedPacket, InterfaceDescription, SectionHeader

    kinds = {SectionHeader: 3, InterfaceDescription: 4, EnhancedPacket: 2}
    read = []
    for block in FileScanner(BytesIO(CAPTURES[name])):
        if type(block) in kinds:
            data = block.packet_data if isinstance(block, EnhancedPacket) else None
            link = block.link_type if isinstance(block, InterfaceDescription) else None
            read.append((kinds[type(block)], data, link))
    blocks = pcap.scan(CAPTURES[name])
    found = [
        (row.kind, None if row.kind != 2 else bytes(row.data), row.link if row.kind == 4 else None)
        for number, row in enumerate(blocks)
        if row.kind in (3, 4) or row.kind == 2 and ENHANCED in bytes(blocks.frame(number)[:4])
    ]
    assert found == read
