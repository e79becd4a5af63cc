"""Captures: the blocks and packets of pcap and pcapng files, connections, and their bytes.

Start with `formats.py`: `scan` reads blocks, `packets` reads what they hold, `flows` finds TCP
connections, and `streams` puts their bytes in order. `scan.pyx` shows the formats of the files and
the layers of a packet, and `assembler.pyx` follows connections. `stream_frames.py` reads the frames
of any other format in streams, and `captured.py` declares the columns that they have. `encode.py`
writes captures. `tls_table.py` lists TLS connections, and `tls_streams.py` decrypts them;
`tls_connection.py` follows one of them.

The package imports the layers below the protocol packages, and no other protocol package.
"""

from wirescan.pcap.assembler import FLOW, SEGMENT, STREAM
from wirescan.pcap.constants import BlockKind, Direction, FlowState, LinkType, PacketKind
from wirescan.pcap.encode import CapturedPacket, CaptureInterface, encode_pcap, encode_pcapng
from wirescan.pcap.formats import FORMATS, flows, packets, scan, streams
from wirescan.pcap.scan import BLOCK, PACKET
from wirescan.pcap.stream_frames import frames
from wirescan.pcap.tls_constants import CipherSuite, Decryption, TlsVersion
from wirescan.pcap.tls_table import TLS, tls

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
