"""The functions that read captures, and their `Format` declarations.

The package exports the functions. The registry reads FORMATS.

    blocks = pcap.scan("broker.pcapng")
    packets = pcap.packets(blocks)
    flows = pcap.flows(packets)
    streams = pcap.streams(flows[flows["server_port"] == 9092])
    requests = pcap.frames(streams, "kafka.requests")
"""

from __future__ import annotations

from functools import partial
from typing import Any
from weakref import ref

import numpy as np

from wirescan.core.row_arrays import keep_rows
from wirescan.files.whole_source import scan_source
from wirescan.frames.columns import Column
from wirescan.frames.errors import enforce_mode, raise_if_row_limit, resolve_mode
from wirescan.frames.format import Display, Format, Parser, Storage
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable, require_rows
from wirescan.pcap.assembly.assembler import FLOW, STREAM, Assembler
from wirescan.pcap.captured_streams import CapturedStreams
from wirescan.pcap.constants import BlockKind, Direction, FlowState, LinkType, PacketKind
from wirescan.pcap.decryption.tls_constants import CipherSuite, Decryption, TlsVersion
from wirescan.pcap.decryption.tls_table import TLS, CapturedTls, list_endpoints, tls
from wirescan.pcap.endpoints import format_endpoints
from wirescan.pcap.evidence import weigh_blocks
from wirescan.pcap.extraction.connection_protocols import find_connections
from wirescan.pcap.files import FILES, MARKS
from wirescan.pcap.flow_tables import make_assembler, make_flows, make_streams, report_incomplete
from wirescan.pcap.meanings import MEANINGS
from wirescan.pcap.scan import BLOCK, PACKET, open_packets, scan_stream
from wirescan.pcap.tolerance import TOLERANT

POLICY = "first"  # of held segments that overlap
TIME = Column(unit="ns")
LINK = Column(names=LinkType)
LOCAL = Column(local=True)


def scan(
    source: Any,
    *,
    errors: str = "strict",
    check: bool = True,
    limits: Limits = Limits(),
    into: np.ndarray | None = None,
) -> FrameTable:
    """Return the blocks of captures, as a table of pcap.blocks.

    The rows have dtype BLOCK (64 bytes a row). Files of pcap and pcapng are read, in both byte
    orders. Each record of a pcap file and each block of a pcapng file is a row, its headers too.

    Arguments:
        source: anything that `wirescan.open` takes.
        errors: "strict", "mark" or "skip".
        check: accepted for consistency and ignored: blocks have no checksum.
        limits: bounds of what is read.
        into: a writable array of dtype BLOCK that receives the rows, for a source of one buffer.

    Columns: `kind` is a `BlockKind`. `time` is in ns since 1970, 0 where there is none, and where
    it does not fit 64 bits. `length` is the size of the packet on the wire. `link` is the link type
    of the interface. Interfaces are counted over all sections of a file. Places: data, comment.

    Faults: TRUNCATED, the fields of a block do not fit it. BAD_FIELD, a packet of an interface that
    the section does not have, more than 65,536 interfaces, or a section of another major version
    than 1: its blocks have the kind OTHER. BAD_LENGTH, an impossible size, or
    different sizes at both ends of a block. NOT_A_FRAME, not the beginning of a capture. After the
    last two, the next plausible block is searched for.

    Raises FrameError according to `errors`, OSError, and TypeError and ValueError for wrong
    arguments.

    Format: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.
    """
    return scan_source(source, BLOCKS, errors=errors, check=True, limits=limits, into=into)


def packets(
    blocks: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    verify_checksums: bool = False,
) -> FrameTable:
    """Return the packets in blocks, as a table of pcap.packets: one row for each captured packet.

    The rows have dtype PACKET (104 bytes a row).

    blocks: a table of pcap.blocks. errors: None, the default, means `blocks.errors`. limits: as in
    `scan`. check is accepted for consistency and ignored.
    verify_checksums: verify the checksums of IPv4, TCP and UDP. A network card computes those of
    the packets that its own machine sends, after they were captured. So they are often wrong in a
    capture, and nothing is wrong with the packets.

    Columns: `kind` is a `PacketKind`, the innermost layer that is read. Link layers are those of
    `LinkType`; Ethernet and Linux cooked may have VLAN tags. Places: source_address,
    destination_address, payload. The payload is what follows the innermost header. It has
    `payload_length` bytes on the wire, and fewer were captured if the snap length cut the packet.
    That is no fault. An IP fragment is not read further: its kind is FRAGMENT. `flows` puts
    fragments together.

    Faults: TRUNCATED, a header does not fit the packet. BAD_FIELD, an impossible version or size of
    a header. BAD_CHECKSUM, with `verify_checksums`. A bad block of a packet is one bad row.

    Raises the same errors as `scan`, and FrameError(LIMIT) beyond the limits on rows.

    Format: RFC 791, RFC 8200, RFC 9293, RFC 768.
    """
    errors = resolve_mode(errors, blocks, limits)
    require_rows(blocks, BLOCK, "packets are read from a table of pcap.blocks")
    rows, bad, fault = open_packets(blocks.rows, blocks.buffers, limits, verify_checksums)
    table = FrameTable(blocks.buffers, rows, (), PACKETS, blocks, checked=True, errors=errors)
    return enforce_mode(raise_if_row_limit(table, fault), errors, bad)


def flows(
    packets: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
) -> FrameTable:
    """Return the TCP connections of packets, as a table of pcap.flows.

    The rows have dtype FLOW, and are in the order of the first packets. `parent` is the row of the
    first packet. `kind` is a `FlowState`.

    packets: a table of pcap.packets, in the order of the capture. errors, limits: as in `packets`.
    check is accepted for consistency and ignored.

    The client is the side that sent the first SYN without ACK. If the capture lacks it
    (`is_begun_earlier`), these say which one it is: the server's answer to a SYN, the usual ports
    of servers, the first bytes, and then the higher port. See docs/captures.md. The same endpoints
    may have several connections, one after another.

    Bytes are lost (`lost_to_server`, `lost_to_client`) if later bytes, an ACK or a FIN show them,
    and the capture does not have them. `is_begun_earlier` is also 1 if only one side's SYN was
    captured, and the first byte of the other side is not known.

    Fragments of IP are put together. The packet of TCP that they are has the time and the number of
    the fragment that came last. A log message reports datagrams whose fragments are missing.

    Raises TypeError for another table, ValueError for rows outside their buffers.
    """
    errors = resolve_mode(errors, packets, limits)
    require_rows(packets, PACKET, "flows are found in a table of pcap.packets")
    assembler = _assemble(packets, POLICY)
    report_incomplete(assembler)
    rows, endpoints = assembler.list_flows()
    _FOLLOWED.keep(packets, assembler)
    return make_flows(packets, rows, endpoints, errors)


def streams(
    flows: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    policy: str = POLICY,
) -> FrameTable:
    """Return the bytes that each side of connections sent, as a table of pcap.streams.

    The rows have dtype STREAM. A row has contiguous bytes, in the order of TCP. `kind` is a
    `Direction`, and `parent` the row of the connection. Where bytes are missing in the capture, a
    row with the fault LOST has their number in `lost`, and the next row continues after them. At
    the end of a side no row follows.

    flows: a table of pcap.flows that was made of packets. It may have only some of the rows.
    errors, limits: as in `packets`. With "strict" lost bytes raise FrameError.
    check is accepted for consistency and ignored.
    policy: which bytes win where segments overlap that came out of order: "first" or "last". Bytes
        that were in order when they came are never replaced.

    The bytes are copied into the first buffer of the table. The second buffer has an array of dtype
    SEGMENT: where the bytes of each packet begin there, and the packet's time and number. A row
    LOST at the end of a side has a segment with one byte, which is in no row. `ready`
    is the packet with which all bytes of the side up to these were there. `order` is their place
    among the packets of the connection: the packet itself, or `ready` if more than 64 MiB of the
    connection came while earlier bytes were missing. `order_of_all` is the same for 64 MiB or 10
    seconds of the capture.

    Raises FrameError as `errors` says; TypeError for another table; ValueError for another policy,
    for rows outside their buffers, and for a stream of 4 GiB.
    """
    errors = resolve_mode(errors, flows, limits)
    require_rows(flows, FLOW, "streams are found in a table of pcap.flows")
    if flows.outer is None and len(flows):
        raise ValueError("these flows have no packets: make them with pcap.flows")
    assembler = make_assembler(policy)
    if flows.outer is not None:
        followed = _FOLLOWED.take(flows.outer) if policy == POLICY else None
        assembler = followed or _assemble(flows.outer, policy)
    found, _, rows, block, segments = assembler.take()
    # The given table may have only some of the flows.
    largest = max(found["connection"].max(initial=-1), flows["connection"].max(initial=-1))
    numbers = np.full(int(largest) + 1, -1, np.int64)
    numbers[flows["connection"]] = np.arange(len(flows))
    parents = numbers[found["connection"]][rows["parent"]]
    rows["parent"] = parents
    rows = keep_rows(rows, parents >= 0)
    return make_streams(flows, rows, block, segments, errors)


class _Followed:
    """The assembler of the last connections, so that `streams` need not follow them again."""

    def __init__(self) -> None:
        # The rows of the packets, the buffers that the assembler points into, and the assembler.
        self._last: tuple[ref[np.ndarray], tuple[memoryview, ...], Assembler] | None = None

    def keep(self, packets: FrameTable, assembler: Assembler) -> None:
        """Keep an assembler until other connections are followed, or its packets are gone."""
        self._last = (ref(packets.rows, self._drop), packets.buffers, assembler)

    def take(self, packets: FrameTable) -> Assembler | None:
        """Return the assembler of packets, once. None if it is that of others."""
        last, self._last = self._last, None  # another thread gets None
        if last is None or last[0]() is not packets.rows or last[1] is not packets.buffers:
            return None
        return last[2]

    def _drop(self, rows: ref[np.ndarray]) -> None:
        last = self._last
        if last is not None and last[0] is rows:
            self._last = None


_FOLLOWED = _Followed()


def _assemble(packets: FrameTable, policy: str) -> Assembler:
    """Follow the connections of packets to the end of the capture."""
    assembler = make_assembler(policy)
    assembler.feed(packets.rows, packets.buffers)
    assembler.finish()
    return assembler


BLOCKS = Format(
    "pcap.blocks",
    "blocks of a capture: packets as they were captured, interfaces, comments",
    BLOCK,
    scan,
    children={"packets": packets},
    columns={"kind": Column(names=BlockKind), "time": TIME, "link": LINK},
    parser=Parser(scan=scan_stream),
    storage=Storage(
        files=FILES,
        marks=MARKS,
        text_marks=(),
        weigh=weigh_blocks,
        evidence="the file begins as a capture, and sizes lead from block to block",
        find_connections=find_connections,
    ),
    display=Display(
        shown=("_start", "kind", "time", "interface", "length", "comment"), grouped_by="kind"
    ),
    meanings=MEANINGS["pcap.blocks"],
)
PACKETS = Format(
    "pcap.packets",
    "captured packets, read up to TCP and UDP",
    PACKET,
    packets,
    within="pcap.blocks",
    children={"flows": flows},
    columns={
        "kind": Column(names=PacketKind),
        "time": TIME,
        "link": LINK,
        "source": Column(compute_texts=partial(format_endpoints, side="source"), exported=True),
        "destination": Column(
            compute_texts=partial(format_endpoints, side="destination"), exported=True
        ),
    },
    display=Display(
        counted_as="packets",
        shown=("time", "kind", "source", "destination", "sequence", "flags", "payload_length"),
        grouped_by="kind",
    ),
    meanings=MEANINGS["pcap.packets"],
    accepts=(TOLERANT,),
)
FLOWS = Format(
    "pcap.flows",
    "TCP connections of a capture",
    FLOW,
    flows,
    within="pcap.packets",
    children={"streams": streams},
    columns={
        "kind": Column(names=FlowState),
        "time": TIME,
        "time_end": TIME,
        "client": Column(compute_texts=partial(format_endpoints, side="client"), exported=True),
        "server": Column(compute_texts=partial(format_endpoints, side="server"), exported=True),
    },
    display=Display(
        shown=(
            "connection",
            "time",
            "client",
            "server",
            "kind",
            "bytes_to_server",
            "bytes_to_client",
            "lost_to_server",
            "lost_to_client",
        ),
        grouped_by="server",
    ),
    meanings=MEANINGS["pcap.flows"],
    accepts=(TOLERANT,),
    make_reader=partial(CapturedStreams, "pcap.flows"),
    detached=True,
)
STREAMS = Format(
    "pcap.streams",
    "the bytes that each side of a connection sent, in order",
    STREAM,
    streams,
    within="pcap.flows",
    children={"tls": tls},
    columns={
        "kind": Column(names=Direction),
        "time": TIME,
        "time_end": TIME,
        "first_segment": LOCAL,
        "segment_count": LOCAL,
        "connection": Column(inherited=True),
        "client": Column(inherited=True),
        "server": Column(inherited=True),
    },
    display=Display(
        shown=("connection", "kind", "time", "client", "server", "position", "size"),
        grouped_by="kind",
    ),
    meanings=MEANINGS["pcap.streams"],
    accepts=(TOLERANT,),
    make_reader=partial(CapturedStreams, "pcap.streams"),
)
TLS_CONNECTIONS = Format(
    "pcap.tls",
    "TLS connections of a capture: versions, cipher suites, names of servers",
    TLS,
    tls,
    within="pcap.streams?tolerant=true",
    columns={
        "kind": Column(names=Decryption),
        "time": TIME,
        "version": Column(names=TlsVersion),
        "cipher_suite": Column(names=CipherSuite),
        "client": Column(compute_texts=partial(list_endpoints, side="client"), exported=True),
        "server": Column(compute_texts=partial(list_endpoints, side="server"), exported=True),
    },
    display=Display(
        shown=(
            "connection",
            "time",
            "client",
            "server",
            "server_name",
            "version",
            "cipher_suite",
            "alpn",
            "data_to_server",
            "data_to_client",
            "is_complete",
            "kind",
        ),
        grouped_by="server_name",
    ),
    meanings=MEANINGS["pcap.tls"],
    make_reader=CapturedTls,
    detached=True,
)
FORMATS = (BLOCKS, PACKETS, FLOWS, STREAMS, TLS_CONNECTIONS)
