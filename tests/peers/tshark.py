"""tshark, which is Wireshark without windows, reads Thrift out of a capture that is made here: a packet for each of the
segments that it is given.

It knows framed and unframed messages of the compact protocol, and of the binary one where they begin with a version; it
does not know header frames.
"""
import os
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

PORT = 9090
LINK_RAW = 101                  # packets begin with their IP header
VALUES = ("method", "mtype", "seq_id", "fid", "bool", "i8", "i16", "i32", "i64", "double", "string", "binary", "uuid",
          "num_list_item", "num_set_item", "num_map_item", "exception.message", "exception.type")
FAULTS = ("not_enough_data", "frame_too_short", "frame_too_long", "wrong_type", "wrong_proto_version",
          "varint_too_large", "too_many_subtypes", "negative_length")


def capture(segments: Iterable[bytes]) -> bytes:
    """A pcap file in which the client of a TCP connection sends these segments."""
    file = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, LINK_RAW)]
    sequence = 1
    for number, segment in enumerate(segments):
        tcp = struct.pack("!HHIIBBHHH", 40000, PORT, sequence, 1, 5 << 4, 0x18, 65535, 0, 0)
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40 + len(segment), number & 0xffff, 0, 64, 6, 0, b"\x0a\0\0\1",
                         b"\x0a\0\0\2")
        packet = ip + tcp + segment
        file.append(struct.pack("<IIII", number, 0, len(packet), len(packet)) + packet)
        sequence += len(segment)
    return b"".join(file)


def tshark(segments: Iterable[bytes]) -> dict[str, list[str]]:
    """Of each of VALUES, in the order of the wire, what tshark has read: its fields of the name thrift.<value>.

    Raises AssertionError where one of FAULTS is among them.
    """
    names = [f"thrift.{name}" for name in VALUES + FAULTS]
    with tempfile.TemporaryDirectory(prefix="wirescan-tshark-") as home:
        file = Path(home, "thrift.pcap")
        file.write_bytes(capture(segments))
        done = subprocess.run(
            ["tshark", "-n", "-r", file, "-d", f"tcp.port=={PORT},thrift", "-T", "fields", "-E", "separator=/t",
             "-E", "aggregator=|", *(part for name in names for part in ("-e", name))],
            capture_output=True, timeout=60, check=True, env=os.environ | {"HOME": home})
    found = {name: [] for name in VALUES + FAULTS}
    for line in done.stdout.decode().splitlines():
        for values, cell in zip(found.values(), line.split("\t"), strict=True):
            values += cell.split("|") if cell else []
    assert not any(found.pop(name) for name in FAULTS)
    return found
