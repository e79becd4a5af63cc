"""tshark, the command line version of Wireshark: its reading of captures.

    read_streams(capture)               # the bytes of each connection, reassembled
    list_conversations(capture)         # connections, with numbers of packets and bytes
    count_expert_information(capture)   # retransmissions, lost segments and the like
    count_checksums(capture)            # good and bad ones
    read_fields(capture, ["kafka.api_key"], {port: "kafka"})

`run_tshark` reads Thrift from a capture that is made here. Each given segment becomes one packet.
tshark supports framed and unframed messages of the compact protocol, and those of the binary
protocol that begin with a version. It does not support header frames.
"""

import os
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

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
# Names of tshark's findings, without their prefix tcp.analysis.
ANALYSES = (
    "retransmission",
    "fast_retransmission",
    "spurious_retransmission",
    "duplicate_ack",
    "out_of_order",
    "lost_segment",
    "ack_lost_segment",
)
CHECKSUMS = {"0": "bad", "1": "good"}


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
        rows = read_fields(file, names, {PORT: "thrift"})
    values_of = {name: [] for name in VALUES + FAULTS}
    for row in rows:
        for values, cells in zip(values_of.values(), row, strict=True):
            values += cells
    assert not any(values_of.pop(name) for name in FAULTS)
    return values_of


class Conversation(NamedTuple):
    """A TCP connection. `client` sent the first packet.

    The numbers of packets and bytes include those of all headers. Addresses are like
    "127.0.0.1:9092".
    """

    client: str
    server: str
    to_server_packets: int
    to_server_bytes: int
    to_client_packets: int
    to_client_bytes: int


def call_tshark(capture: Path, *arguments: str | Path) -> str:
    """Run tshark on a capture and return what it prints. Its settings are the default ones."""
    with tempfile.TemporaryDirectory(prefix="wirescan-tshark-") as home:
        completed = subprocess.run(
            ["tshark", "-n", "-r", capture, *arguments],
            capture_output=True,
            timeout=60,
            check=True,
            env=os.environ | {"HOME": home},
        )
    return completed.stdout.decode()


def list_errors(capture: Path) -> list[str]:
    """What tshark says if it cannot read all of a capture; nothing if it can."""
    completed = subprocess.run(["tshark", "-n", "-r", capture], capture_output=True, timeout=60)
    return completed.stderr.decode().splitlines() if completed.returncode else []


def read_fields(
    capture: Path,
    names: Sequence[str],
    protocols: Mapping[int, str] = {},
    options: Sequence[str] = (),
) -> list[list[list[str]]]:
    """The values of fields: packet -> field -> values in the order of the bytes.

    names: tshark's names of fields. protocols: the dissector for each TCP port. options: more
    arguments of tshark, like ["-Y", "a display filter"].
    """
    output = call_tshark(
        capture,
        *(word for port, name in protocols.items() for word in ("-d", f"tcp.port=={port},{name}")),
        *options,
        "-T",
        "fields",
        "-E",
        "separator=/t",
        "-E",
        "aggregator=|",
        *(word for name in names for word in ("-e", name)),
    )
    return [
        [cell.split("|") if cell else [] for cell in line.split("\t")]
        for line in output.splitlines()
    ]


def read_streams(capture: Path) -> dict[tuple[str, str], tuple[bytes, bytes]]:
    """The reassembled bytes of each connection.

    The keys are addresses (client, server). The values are the bytes to the server and the bytes to
    the client. Where a capture lacks bytes that were acknowledged, tshark inserts a sentence.
    """
    rows = read_fields(capture, ["tcp.stream"], options=["-Y", "tcp"])
    count = len({number for ((number,),) in rows})
    follow = [word for number in range(count) for word in ("-z", f"follow,tcp,raw,{number}")]
    streams = {}
    for section in call_tshark(capture, "-q", *follow).split("Follow: tcp,raw\n")[1:]:
        _, client, server, *lines = section.splitlines()
        to_server = [line for line in lines if not line.startswith(("\t", "="))]
        to_client = [line for line in lines if line.startswith("\t")]
        key = client.removeprefix("Node 0: "), server.removeprefix("Node 1: ")
        if key in streams:
            raise ValueError(f"{capture} has two connections between {key}")
        streams[key] = bytes.fromhex("".join(to_server)), bytes.fromhex("".join(to_client))
    return streams


def read_tls_streams(capture: Path, keylog: Path, server: str) -> list[tuple[bytes, bytes]]:
    """The decrypted bytes of each TLS connection: to the server, and to the client.

    keylog: the file of secrets. server: the address of the server. Connections are in the order of
    their first packets. tshark takes who sent the first decrypted bytes for node 0.
    """
    rows = read_fields(capture, ["tcp.stream"], options=["-Y", "tcp"])
    count = len({number for ((number,),) in rows})
    follow = [word for number in range(count) for word in ("-z", f"follow,tls,raw,{number}")]
    output = call_tshark(capture, "-q", "-o", f"tls.keylog_file:{keylog}", *follow)
    streams = {}
    for section in output.split("Follow: tls,raw\n")[1:]:
        filter_line, node, _, *lines = section.splitlines()
        first = [line for line in lines if not line.startswith(("\t", "="))]
        second = [line for line in lines if line.startswith("\t")]
        sides = bytes.fromhex("".join(first)), bytes.fromhex("".join(second))
        is_server = node.removeprefix("Node 0: ") == server
        streams[int(filter_line.rpartition(" ")[2])] = sides[::-1] if is_server else sides
    return [streams[number] for number in range(count)]


def list_conversations(capture: Path) -> list[Conversation]:
    """The TCP connections of a capture, in the order of their first packets.

    The statistics `-z conv,tcp` have the same numbers, but round those of bytes.
    """
    clients: dict[str, tuple[str, str]] = {}
    packets: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    names = ["tcp.stream", "ip.src", "tcp.srcport", "ip.dst", "tcp.dstport", "frame.len"]
    for row in read_fields(capture, names, options=["-Y", "tcp and ip"]):
        stream, source, source_port, target, target_port, size = (cells[0] for cells in row)
        direction = f"{source}:{source_port}", f"{target}:{target_port}"
        clients.setdefault(stream, direction)
        packets[direction] += 1
        sizes[direction] += int(size)
    return [
        Conversation(*to_server, packets[to_server], sizes[to_server], packets[back], sizes[back])
        for to_server in clients.values()
        for back in [to_server[::-1]]
    ]


def count_expert_information(capture: Path, *options: str) -> Counter[str]:
    """The number of packets for each of tshark's findings about TCP: names of ANALYSES."""
    counts: Counter[str] = Counter()
    names = [f"tcp.analysis.{name}" for name in ANALYSES]
    for row in read_fields(capture, names, options=options):
        counts.update(name for name, cells in zip(ANALYSES, row, strict=True) if cells)
    return counts


def count_checksums(capture: Path) -> Counter[str]:
    """The number of "good" and "bad" checksums of IPv4 and TCP.

    A capture of the loopback interface has bad ones, because the kernel does not compute them.
    """
    options = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    names = ["ip.checksum.status", "tcp.checksum.status"]
    counts: Counter[str] = Counter()
    for row in read_fields(capture, names, options=options):
        counts.update(CHECKSUMS[value] for cells in row for value in cells)
    return counts
