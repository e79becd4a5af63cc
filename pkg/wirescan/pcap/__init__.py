"""Captures: the blocks and packets of pcap and pcapng files, connections, and their bytes.

Start with `formats.py`: `scan` reads blocks, `packets` reads what they hold, `flows` finds TCP
connections, and `streams` puts their bytes in order. The folders are the steps from packets to the
frames of other formats:

    assembly/           TCP connections, and the bytes of each side in order: `assembler.pyx`
    decryption/         TLS connections and their plain bytes: `tls_connection.py`
    extraction/         the frames of other formats in streams: `captured.py`

How a capture is read:

    formats.py          the functions that read, and the `Format`s
    scan.pyx            scans blocks and packets; shows the formats of the files, and the layers
    block.pxd           the kernel of blocks
    packet.pxd          the kernel of packets
    rows.pxd            the C structs of all rows
    flow_tables.py      tables of connections and streams, from the results of the assembler
    captured_streams.py CapturedStreams: connections and streams of a capture, in pieces

What these and the folders use:

    constants.py        numbers by their names
    endpoints.py        addresses and ports as text
    verdicts.py         what is known of connections, by their numbers
    tolerance.py        the option `tolerant`

What other layers ask for:

    files.py            names of captures, and their first bytes
    evidence.py         how unlikely a good block is in bytes of another kind
    meanings.py         what the columns mean
    encode.py           encoders of pcap and pcapng files

The package imports the layers below the protocol packages, and no other protocol package. A folder
imports modules beside it and the folders before it in this list. `formats.py` imports them all.
"""

from wirescan.pcap.assembly.assembler import FLOW, SEGMENT, STREAM
from wirescan.pcap.constants import BlockKind, Direction, FlowState, LinkType, PacketKind
from wirescan.pcap.decryption.tls_constants import CipherSuite, Decryption, TlsVersion
from wirescan.pcap.decryption.tls_table import TLS, tls
from wirescan.pcap.encode import CapturedPacket, CaptureInterface, encode_pcap, encode_pcapng
from wirescan.pcap.extraction.stream_frames import frames
from wirescan.pcap.formats import FORMATS, flows, packets, scan, streams
from wirescan.pcap.scan import BLOCK, PACKET

__all__ = [
    "BLOCK",
    "BlockKind",
    "CaptureInterface",
    "CapturedPacket",
    "CipherSuite",
    "Decryption",
    "Direction",
    "FLOW",
    "FORMATS",
    "FlowState",
    "LinkType",
    "PACKET",
    "PacketKind",
    "SEGMENT",
    "STREAM",
    "TLS",
    "TlsVersion",
    "encode_pcap",
    "encode_pcapng",
    "flows",
    "frames",
    "packets",
    "scan",
    "streams",
    "tls",
]
