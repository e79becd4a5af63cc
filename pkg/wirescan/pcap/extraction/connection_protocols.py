"""The protocols of the connections in the first bytes of a capture, for `wirescan.detect`.

`connection_rule.py` decides which formats a connection has. If its frames show several, it is the
one with the most bits. `tls_records.py` recognizes TLS, which is stronger than a port.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wirescan.frames.conversation import ConnectionGroup, Rule
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import CAPTURE_FORMAT, format_of, formats
from wirescan.frames.table import FrameTable, Stop
from wirescan.pcap.decryption.tls_records import find_client_hellos
from wirescan.pcap.endpoints import WIDTH, format_endpoints
from wirescan.pcap.extraction.connection_rule import has_usual_port
from wirescan.pcap.extraction.stream_scanner import StreamScanner
from wirescan.pcap.flow_tables import make_assembler, make_flows, make_streams

LARGEST_GROUPS = 20  # with a server of their own; the connections of other servers are together
TLS = "TLS"
RULES: tuple[Rule, ...] = ("none", "frames", "TLS", "port")
NONE, FRAMES, HELLO, PORT = range(len(RULES))


class Connections(NamedTuple):
    """The connections of a capture, and what decides their protocols.

    Attributes:
        flows: a table of pcap.flows.
        protocols: for each connection the number of a format, that of TLS after the last format,
            or -1: int64.
        rules: for each connection a number of RULES: int64.
        frames: for each connection how many frames show the format, or 0: int64.
        names: the names of the protocols, by their numbers.
    """

    flows: FrameTable
    protocols: np.ndarray
    rules: np.ndarray
    frames: np.ndarray
    names: tuple[str, ...]


def find_connections(head: memoryview, *, is_whole: bool) -> tuple[ConnectionGroup, ...]:
    """Return the connections in the first bytes of a capture, in groups.

    Connections with the same server, protocol and rule are a group. At most LARGEST_GROUPS groups
    have a server, in the order of their first packets. Behind them the connections of all other
    servers are in one group for each protocol and rule.

    head: bytes of a capture. is_whole: no bytes follow.
    """
    return group_connections(decide_protocols(head, is_whole=is_whole))


def decide_protocols(head: memoryview, *, is_whole: bool) -> Connections:
    """Return the connections in the first bytes of a capture. The arguments: `find_connections`."""
    flows, streams = _assemble(head)
    sending = [
        format
        for format in formats().values()
        if format.conversation is not None and format.conversation.answers is None
    ]
    protocols = np.full(len(flows), -1, np.int64)
    rules = np.full(len(flows), NONE, np.int64)
    frames = np.zeros(len(flows), np.int64)
    if len(streams):
        protocols, frames = _find_shown(streams, sending, len(flows), is_whole=is_whole)
        rules[protocols >= 0] = FRAMES
        assert streams.outer is not None
        connections = streams.outer["connection"][streams["parent"]]
        is_tls = np.zeros(len(flows), bool)
        is_tls[connections[find_client_hellos(streams)]] = True
        protocols[is_tls] = len(sending)
        rules[is_tls] = HELLO
        frames[is_tls] = 0
    for number, format in enumerate(sending):
        assert format.conversation is not None
        is_usual = has_usual_port(format.conversation, flows["server_port"]) & (rules == NONE)
        protocols[is_usual] = number
        rules[is_usual] = PORT
    names = (*(format.name for format in sending), TLS)
    return Connections(flows, protocols, rules, frames, names)


def _assemble(head: memoryview) -> tuple[FrameTable, FrameTable]:
    """Return all connections in the first bytes of a capture, and what they sent."""
    format = format_of(CAPTURE_FORMAT)
    assert format.parser.scan is not None  # every outermost format has it
    rows, _, fault, position = format.parser.scan(head, check=True, resync=True, limits=Limits())
    stops = (Stop(fault, position),)
    blocks = FrameTable((head,), rows, stops, format, checked=True, errors="mark")
    packets = format_of("pcap.packets").inside(blocks, errors="mark")
    assembler = make_assembler("first")
    assembler.feed(packets.rows, packets.buffers)
    assembler.finish()
    found, endpoints, stream_rows, block, segments = assembler.take()
    streams = make_streams(
        make_flows(None, found, endpoints, "mark"), stream_rows, block, segments, "mark"
    )
    return make_flows(None, *assembler.list_flows(), "mark"), streams


def _find_shown(
    streams: FrameTable, sending: Sequence[Format], count: int, *, is_whole: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of the format that each connection's frames show, and their number.

    The number of the format is -1 if the frames show none, and the other number is then 0.

    streams: a table of pcap.streams. sending: the formats. count: the number of connections.
    """
    best = np.full(count, -1, np.int64)
    bits = np.zeros(count, np.float64)
    frames = np.zeros(count, np.int64)
    for number, format in enumerate(sending):
        scanner = StreamScanner(format, check=True, limits=Limits())
        # Connections without bytes are missing.
        numbers, shown = scanner.weigh(streams, more=not is_whole)
        is_better = shown.show_format & (shown.bits > bits[numbers])
        better = numbers[is_better]
        best[better] = number
        bits[better] = shown.bits[is_better]
        frames[better] = shown.frames[is_better]
    return best, frames


def group_connections(connections: Connections) -> tuple[ConnectionGroup, ...]:
    """Return connections in groups: see `find_connections`."""
    flows = connections.flows
    if not len(flows):
        return ()
    keys = np.zeros((len(flows), WIDTH + 4), np.uint8)
    keys[:, : WIDTH + 2] = _gather_servers(flows)
    # At most a byte each: there are few formats.
    keys[:, WIDTH + 2] = connections.protocols + 1
    keys[:, WIDTH + 3] = connections.rules
    words = keys.view(f"V{WIDTH + 4}").ravel()
    _, first, group_of, counts = np.unique(
        words, return_index=True, return_inverse=True, return_counts=True
    )
    large = np.argsort(-counts, kind="stable")[:LARGEST_GROUPS]
    is_large = np.zeros(len(first), bool)
    is_large[large] = True
    # A small group gets the number of all small groups of its protocol and rule.
    others = np.unique(keys[first][~is_large][:, WIDTH + 2 :], axis=0)
    numbers = np.arange(len(first))
    for place, other in enumerate(others):
        is_other = ~is_large & (keys[first][:, WIDTH + 2 :] == other).all(axis=1)
        numbers[is_other] = len(first) + place
    return _make_groups(connections, numbers[group_of.ravel()], len(first))


def _gather_servers(flows: FrameTable) -> np.ndarray:
    """Return the address and the port of each server, as bytes."""
    # The endpoints of flows are the addresses of the client and the server, padded to WIDTH.
    ends = np.frombuffer(flows.buffers[0], np.uint8).reshape(len(flows), 2 * WIDTH)
    ports = flows["server_port"].astype(">u2").view(np.uint8).reshape(-1, 2)
    return np.concatenate([ends[:, WIDTH:], ports], axis=1)


def _make_groups(
    connections: Connections, numbers: np.ndarray, first_other: int
) -> tuple[ConnectionGroup, ...]:
    """Return the groups of connections.

    numbers: the number of the group of each connection. Groups from `first_other` on have several
    servers.
    """
    flows = connections.flows
    sizes = (flows["bytes_to_server"] + flows["bytes_to_client"]).astype(np.float64)
    present, first, group_of, counts = np.unique(
        numbers, return_index=True, return_inverse=True, return_counts=True
    )
    totals = np.bincount(group_of.ravel(), sizes).astype(np.int64)
    order = np.lexsort((first, present >= first_other))
    firsts = flows[first[order]]
    clients = format_endpoints(firsts, "client")
    servers = format_endpoints(firsts, "server")
    groups = []
    for place, number in enumerate(order.tolist()):
        row = int(first[number])
        is_other = bool(present[number] >= first_other)
        protocol = int(connections.protocols[row])
        groups.append(
            ConnectionGroup(
                protocol=None if protocol < 0 else connections.names[protocol],
                server=None if is_other else servers[place],
                client=clients[place],
                connections=int(counts[number]),
                bytes=int(totals[number]),
                rule=RULES[connections.rules[row]],
                frames=int(connections.frames[row]),
            )
        )
    return tuple(groups)
