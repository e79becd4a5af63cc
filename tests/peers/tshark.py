"""tshark, the command line version of Wireshark, reads Thrift from a capture that is made here.

Each given segment becomes one packet. tshark supports framed and unframed messages of the compact
protocol, and those of the binary protocol that begin with a version. It does not support header
frames.
"""

import os
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

PORT = 9090
LINK_RAW = 101  # packets begin with the IP header
VALUES = (
    "method",
    "mtype",
    "seq_id",
    "fid",
    "bool",
    "i8",
    "i16",
    "i32",
    "i64",
    "double",
    "string",
    "binary",
    "uuid",
    "num_list_item",
    "num_set_item",
    "num_map_item",
    "exception.message",
    "exception.type",
)
FAULTS = (
    "not_enough_data",
    "frame_too_short",
    "frame_too_long",
    "wrong_type",
    "wrong_proto_version",
    "varint_too_large",
    "too_many_subtypes",
    "negative_length",
)


def make_capture(segments: Iterable[bytes]) -> bytes:
    """A pcap file in which a TCP client sends these segments."""
    file = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, LINK_RAW)]
    sequence = 1
    for number, segment in enumerate(segments):
        tcp = struct.pack("!HHIIBBHHH", 40000, PORT, sequence, 1, 5 << 4, 0x18, 65535, 0, 0)
        ip = struct.pack(
            "!BBHHHBBH4s4s",
            0x45,
            0,
            40 + len(segment),
            number & 0xFFFF,
            0,
            64,
            6,
            0,
            b"\x0a\0\0\1",
            b"\x0a\0\0\2",
        )
        packet = ip + tcp + segment
        file.append(struct.pack("<IIII", number, 0, len(packet), len(packet)) + packet)
        sequence += len(segment)
    return b"".join(file)


def run_tshark(segments: Iterable[bytes]) -> dict[str, list[str]]:
    """The values that tshark reads for each of VALUES, in the order of the bytes.

    VALUES are the names of its fields thrift.<value>. Raises AssertionError if tshark reports one
    of FAULTS.
    """
    names = [f"thrift.{name}" for name in VALUES + FAULTS]
    with tempfile.TemporaryDirectory(prefix="wirescan-tshark-") as home:
        file = Path(home, "thrift.pcap")
        file.write_bytes(make_capture(segments))
        completed = subprocess.run(
            [
                "tshark",
                "-n",
                "-r",
                file,
                "-d",
                f"tcp.port=={PORT},thrift",
                "-T",
                "fields",
                "-E",
                "separator=/t",
                "-E",
                "aggregator=|",
                *(word for name in names for word in ("-e", name)),
            ],
            capture_output=True,
            timeout=60,
            check=True,
            env=os.environ | {"HOME": home},
        )
    values_of = {name: [] for name in VALUES + FAULTS}
    for line in completed.stdout.decode().splitlines():
        for values, cell in zip(values_of.values(), line.split("\t"), strict=True):
            values += cell.split("|") if cell else []
    assert not any(values_of.pop(name) for name in FAULTS)
    return values_of
