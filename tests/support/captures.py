"""Recorded captures of real connections, and the bytes that each connection carried.

A directory of captures has captures.json and these files:

    <name>.pcap, <name>.pcapng      the capture
    <name>-<n>.client.bytes           the bytes from the client to the server of the n-th connection
    <name>-<n>.server.bytes           the bytes from the server to the client

A capture with the same packets as another one on a bad network uses that one's files of bytes.

A proxy recorded the bytes. See tests/peers/make_captures.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import wirescan
from tests.support.paths import CORPUS
from wirescan import pcap

CAPTURES = CORPUS / "pcap"
INDEX = "captures.json"
Connections = dict[tuple[str, str], tuple[bytes, bytes]]
# The formats of the client's bytes and the server's bytes.
FORMATS = {
    "kafka": ("kafka.requests", "kafka.responses"),
    "lumberjack": ("lumberjack.frames", "lumberjack.frames"),
    "nats": ("nats.messages", "nats.messages"),
    "thrift": ("thrift.frames", "thrift.frames"),
}


class RecordedCapture(NamedTuple):
    """A capture file, and the bytes of its connections.

    path: the file. protocol: a key of FORMATS. connections: (client, server) -> (bytes to the
    server, bytes to the client). Addresses are like "127.0.0.1:9092", and connections are in the
    order of their opening.
    """

    name: str
    path: Path
    protocol: str
    connections: Connections

    @property
    def ports(self) -> list[int]:
        """The ports of the servers."""
        return sorted({int(server.rsplit(":", 1)[1]) for _, server in self.connections})


def list_captures(directory: Path = CAPTURES) -> Iterator[RecordedCapture]:
    """Yield the captures of a directory, in the order of their names."""
    for name, entry in sorted(json.loads((directory / INDEX).read_text()).items()):
        connections = {}
        for number, (client, server) in enumerate(entry["connections"]):
            stem = f"{entry['bytes']}-{number}"
            connections[client, server] = (
                (directory / f"{stem}.client.bytes").read_bytes(),
                (directory / f"{stem}.server.bytes").read_bytes(),
            )
        yield RecordedCapture(name, directory / entry["file"], entry["protocol"], connections)


def read_streams(path: Path) -> Connections:
    """Return the bytes of the connections of a capture, as wirescan puts them in order."""
    flows = pcap.flows(pcap.packets(pcap.scan(path)))
    streams = pcap.streams(flows)
    found = {
        ends: [b"", b""] for ends in zip(flows["client"].to_pylist(), flows["server"].to_pylist())
    }
    ends = zip(streams["client"].to_pylist(), streams["server"].to_pylist())
    for row, (end, kind) in enumerate(zip(ends, streams["kind"].tolist())):
        side = 0 if kind == pcap.Direction.TO_SERVER else 1
        assert streams.rows["position"][row] == len(found[end][side])
        found[end][side] += bytes(streams.frame(row))
    return {end: (sides[0], sides[1]) for end, sides in found.items()}


def check_frames(capture: RecordedCapture) -> None:
    """Assert that the frames of a capture are those of the bytes of its connections."""
    for format in set(FORMATS[capture.protocol]):
        table = wirescan.scan(capture.path, format)
        found: dict[tuple[str, str], list[list[bytes]]] = {
            ends: [[], []] for ends in capture.connections
        }
        ends = zip(table["client"].to_pylist(), table["server"].to_pylist())
        for row, (end, kind) in enumerate(zip(ends, table["direction"].tolist())):
            side = 0 if kind == pcap.Direction.TO_SERVER else 1
            found[end][side].append(bytes(table.frame(row)))
        for end, sides in capture.connections.items():
            for side, data in enumerate(sides):
                if FORMATS[capture.protocol][side] == format:
                    alone = wirescan.scan(data, format)
                    frames = [bytes(alone.frame(row)) for row in range(len(alone))]
                    assert found[end][side] == frames
        assert (table["time_end"] >= table["time"]).all()


def add_capture(
    directory: Path,
    name: str,
    file: Path,
    protocol: str,
    connections: Connections,
    *,
    bytes_of: str | None = None,
) -> RecordedCapture:
    """Write the bytes of a capture's connections, and add the capture to the index.

    file: the capture file, which is in the directory. bytes_of: another capture that has the same
    connections. Then only the index is written.
    """
    index_file = directory / INDEX
    index = json.loads(index_file.read_text()) if index_file.exists() else {}
    index[name] = {
        "file": file.name,
        "protocol": protocol,
        "bytes": bytes_of or name,
        "connections": list(connections),
    }
    index_file.write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")
    if bytes_of:
        return RecordedCapture(name, file, protocol, connections)
    for number, sides in enumerate(connections.values()):
        for side, data in zip(("client", "server"), sides, strict=True):
            (directory / f"{name}-{number}.{side}.bytes").write_bytes(data)
    return RecordedCapture(name, file, protocol, connections)
