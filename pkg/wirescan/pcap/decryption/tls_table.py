"""The TLS connections of a capture: `tls`, and the reader of captures in pieces."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.loop import HEAD
from wirescan.files.source import view_of
from wirescan.frames.errors import FrameError, enforce_mode, resolve_mode
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of, make_spec
from wirescan.frames.table import FrameTable, join, make_empty, require_rows
from wirescan.pcap.assembly.assembler import STREAM
from wirescan.pcap.decryption.tls_connection import TlsConnection
from wirescan.pcap.decryption.tls_keys import KeyLog, find_blocks
from wirescan.pcap.decryption.tls_streams import TlsFollower
from wirescan.pcap.endpoints import format_endpoints
from wirescan.pcap.flow_tables import (
    MOST_CONNECTIONS,
    complete_streams,
    make_assembler,
    make_flows,
    make_streams,
    release_idle,
    report_incomplete,
)

PLACES = ("client_address", "server_address", "server_name", "alpn", "offered_alpn")
TLS = np.dtype(
    [
        *HEAD.descr,
        ("connection", "<i8"),
        ("time", "<i8"),
        ("position", "<i8"),
        ("data_to_server", "<u8"),
        ("data_to_client", "<u8"),
        *(field for name in PLACES for field in ((f"{name}_at", "<u4"), (f"{name}_size", "<i4"))),
        ("client_port", "<u2"),
        ("server_port", "<u2"),
        ("version", "<u2"),
        ("cipher_suite", "<u2"),
        ("is_complete", "u1"),
        ("is_begun_earlier", "u1"),
        ("reserved", "V6"),
    ]
)


def tls(
    streams: FrameTable,
    *,
    errors: str | None = None,
    check: bool = True,
    limits: Limits = Limits(),
    keylog: str | None = None,
) -> FrameTable:
    """Return the TLS connections among streams, as a table of pcap.tls: one row for each.

    The rows have dtype TLS (120 bytes a row), in the order of the connections. `parent` is the row
    of the first stream of the connection.

    streams: a table of pcap.streams. errors: "strict", "mark" or "skip". None, the default, means
    `streams.errors`. check and limits are accepted for consistency; the streams bound the rows.
    keylog: path of a file of secrets, in the format of NSSLKEYLOGFILE. The secrets of a pcapng
    capture count too. With secrets `kind` says whether the connection is decrypted. None, the
    default: only the capture may have some.

    A connection is TLS if a side begins with a hello, or with a whole record and the header of
    another one. Then the capture may begin after the handshake. A connection is also TLS if both
    sides send a hello at the start of a packet, behind at most 64 KiB of other bytes.

    Columns: `kind` is a `Decryption`. `version` and `cipher_suite` are what the server chose, 0 if
    the capture does not have its hello. `data_to_server` and `data_to_client` are the sums of the
    lengths of records of application data; in TLS 1.3 such records also have encrypted messages of
    the handshake. `is_complete`: the capture has the end of the handshake. Places: server_name
    (SNI), alpn (what the server chose; TLS 1.3 encrypts it), offered_alpn (what the client offers,
    at most 255 bytes), client_address, server_address.

    Faults, of the first one of the two sides: BAD_LENGTH, no record where one should begin.
    TRUNCATED, a hello whose fields do not fit. LOST, lost bytes after which no record is found, or
    a side of which the capture lacks the beginning. NOT_A_FRAME, a side that is not TLS.
    BAD_CHECKSUM, a record that does not authenticate. After a fault that side is not read further.

    Raises FrameError as `errors` says; TypeError for another table; ValueError for rows outside
    their buffers and for streams without connections; OSError and ValueError for the keylog;
    ImportError without `cryptography`.

    Format: RFC 5246, RFC 8446, RFC 6066, RFC 7301.
    """
    errors = resolve_mode(errors, streams, limits)
    require_rows(streams, STREAM, "TLS connections are found in a table of pcap.streams")
    if streams.outer is None:
        if len(streams):
            raise ValueError("these streams have no connections: make them with pcap.streams")
        return replace(make_empty(format_of("pcap.tls")), outer=streams, errors=errors)
    secrets = KeyLog(keylog)
    secrets.read_all(find_blocks(streams))
    follower = TlsFollower(secrets, keeps_data=False)
    follower.follow(complete_streams(streams), more=False)
    return make_tls(follower, streams.outer, streams, errors)


def make_tls(
    follower: TlsFollower, flows: FrameTable, streams: FrameTable | None, errors: str
) -> FrameTable:
    """Return the table of the connections that a follower found.

    flows: a table of pcap.flows with these connections. streams: the streams, None if they were
    read in pieces.

    Raises FrameError as `errors` says. The error has a note that names the connection.
    """
    numbers = flows["connection"].tolist()
    found = follower.connections
    chosen = [row for row, number in enumerate(numbers) if number in found and found[number].is_tls]
    chosen.sort(key=numbers.__getitem__)
    rows = np.zeros(len(chosen), TLS)
    rows["parent"] = -1 if streams is None else _find_first_streams(streams, chosen)
    flow_rows = flows.rows[chosen]
    for name in ("connection", "time", "client_port", "server_port", "is_begun_earlier"):
        rows[name] = flow_rows[name]
    flow_sizes = list(
        zip(
            (flow_rows["bytes_to_server"] + flow_rows["lost_to_server"]).tolist(),
            (flow_rows["bytes_to_client"] + flow_rows["lost_to_client"]).tolist(),
            strict=True,
        )
    )
    arena = bytearray()
    for row, flow in enumerate(chosen):
        number = numbers[flow]
        connection = follower.connections[number]
        sizes = flow_sizes[row] if streams is None else None
        _fill_row(rows[row : row + 1], connection, has_other=_has_other_side(connection, sizes))
        start = len(arena)
        for name, text in _list_texts(flows, flow, connection).items():
            rows[name + "_at"][row] = len(arena) - start
            rows[name + "_size"][row] = -1 if text is None else len(text)
            arena += text or b""
        rows["start"][row] = start
        rows["size"][row] = len(arena) - start
    rows.setflags(write=False)
    buffers = (view_of(bytes(arena)),)
    format = format_of("pcap.tls")
    table = FrameTable(buffers, rows, (), format, streams, checked=True, errors=errors)
    bad = np.flatnonzero(table.bad)
    try:
        return enforce_mode(table, errors, len(bad))
    except FrameError as error:
        first = table[[int(bad[0])]]
        client, server = (list_endpoints(first, side)[0] for side in ("client", "server"))
        error.add_note(f"the connection is that from {client} to {server}")
        raise


def list_endpoints(table: FrameTable, side: str) -> list[str | None]:
    """Return the endpoint of each row of pcap.tls as text. Bad rows have addresses too."""
    rows = table.rows.copy()
    rows["fault"] = 0
    return format_endpoints(replace(table, rows=rows), side)


def _has_other_side(connection: TlsConnection, sizes: tuple[int, int] | None) -> bool:
    """Return whether a side of a TLS connection sent something else only.

    sizes: bytes of the client and the server, for a capture in pieces: a side may have sent its
    bytes before the connection was known to be TLS. None: the streams show who sent some.
    """
    for side in connection.sides:
        has_sent = side.is_begun if sizes is None else sizes[side.number] > 0
        if has_sent and side.is_plain:
            return True
    return False


def _fill_row(row: np.ndarray, connection: TlsConnection, *, has_other: bool) -> None:
    """Fill the columns of a connection that have no text.

    row: an array of one row. has_other: a side sent something else only.
    """
    client, server = connection.sides
    row["kind"] = connection.decryption
    row["data_to_server"] = client.data
    row["data_to_client"] = server.data
    row["is_complete"] = connection.is_complete
    hello = connection.server_hello
    if hello is not None:
        row["version"] = hello.version
        row["cipher_suite"] = hello.cipher_suite
    for side in connection.sides:
        if side.fault:
            row["fault"] = side.fault
            row["position"] = side.fault_position
            return
    if has_other:
        row["fault"] = Fault.LOST if row["is_begun_earlier"][0] else Fault.NOT_A_FRAME


def _list_texts(
    flows: FrameTable, flow: int, connection: TlsConnection
) -> dict[str, bytes | memoryview | None]:
    """Return the values of PLACES of a connection. flow: its row in the table of flows."""
    hello = connection.client_hello
    return {
        "client_address": flows.bytes(flow, "client_address"),
        "server_address": flows.bytes(flow, "server_address"),
        "server_name": None if hello is None else hello.server_name,
        "alpn": connection.alpn,
        "offered_alpn": None if hello is None else hello.alpn,
    }


def _find_first_streams(streams: FrameTable, flows: list[int]) -> np.ndarray:
    """Return the first row of each connection in a table of streams. flows: rows of flows."""
    parents, first = np.unique(streams["parent"], return_index=True)
    found: np.ndarray = first[np.searchsorted(parents, flows)]
    return found


class CapturedTls:
    """Finds the TLS connections of a capture in pieces: a `CaptureReader`.

    It keeps what it knows of each connection, the first bytes of streams that may be TLS, and parts
    of records that are needed. Connections are returned when they are released, and at the end.

    errors, limits, keylog: as in `tls`. check is accepted for consistency and ignored.
    """

    def __init__(self, *, errors: str, check: bool, limits: Limits, keylog: str | None = None):
        self._format = format_of(make_spec("pcap.tls", keylog=keylog))
        self._errors = errors
        self._assembler = make_assembler("first", connections=MOST_CONNECTIONS)
        self._secrets = KeyLog(keylog)
        self._follower = TlsFollower(self._secrets, keeps_data=False)
        self._open_packets = partial(format_of("pcap.packets").inside, errors="mark", limits=limits)

    def feed(self, table: FrameTable) -> FrameTable:
        """Follow the connections of these blocks. Return those that are released."""
        self._secrets.read_blocks(table)
        packets = self._open_packets(table)
        self._assembler.feed(packets.rows, packets.buffers)
        table = self._take_released()
        self._follow(more=True)
        return table

    def close(self) -> FrameTable:
        """Return all other connections."""
        self._assembler.finish()
        report_incomplete(self._assembler)
        released = self._take_released()
        self._follow(more=False)
        return join([released, self._make_table(*self._assembler.list_flows())])

    def _take_released(self) -> FrameTable:
        """Return the connections that are released, and forget them."""
        if not self._assembler.released:
            return make_empty(self._format)
        self._follow(more=False, released=True)
        rows, endpoints = self._assembler.list_flows(released=True)
        table = self._make_table(rows, endpoints)
        self._follower.forget(rows["connection"])
        self._assembler.drop_released()
        return table

    def _make_table(self, rows: np.ndarray, endpoints: np.ndarray) -> FrameTable:
        flows = make_flows(None, rows, endpoints, "mark")
        table = make_tls(self._follower, flows, None, self._errors)
        return replace(table, format=self._format)

    def _follow(self, *, more: bool, released: bool = False) -> None:
        rows, endpoints, stream_rows, block, segments = self._assembler.take(
            everything=not more, released=released
        )
        flows = make_flows(None, rows, endpoints, "mark")
        streams = make_streams(flows, stream_rows, block, segments, "mark")
        _, done = self._follower.follow(streams, more=more)
        self._follower.update_memory()
        if not released:
            self._assembler.release(done)
            release_idle(self._assembler, self._follower)
