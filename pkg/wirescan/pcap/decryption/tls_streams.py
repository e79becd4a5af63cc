"""TLS in tables of pcap.streams: which connections have it, and the same streams decrypted.

`TlsFollower` finds the connections and follows their records. `DecryptingScanner` puts the
decrypted bytes in the place of the encrypted ones, before frames are searched for.

The first bytes of each side decide whether it is TLS, or hellos at the start of later packets of
both sides. Other connections cost no Python.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

import numpy as np

from wirescan.core.loop import lie_inside
from wirescan.files.source import view_of
from wirescan.frames.table import FrameTable
from wirescan.pcap.assembly.assembler import SEGMENT, STREAM, is_much_new
from wirescan.pcap.constants import Direction
from wirescan.pcap.decryption.tls_connection import CLIENT, Span, TlsConnection, TlsSide
from wirescan.pcap.decryption.tls_constants import CHANGE_CIPHER_SPEC, Decryption
from wirescan.pcap.decryption.tls_keys import KeyLog
from wirescan.pcap.decryption.tls_records import (
    LAST_TYPE,
    MAJOR,
    Recognition,
    find_late_hellos,
    recognize,
)
from wirescan.pcap.flow_tables import make_streams
from wirescan.pcap.verdicts import UNDECIDED

logger = logging.getLogger(__name__)

# The verdict on a side of a connection, besides UNDECIDED.
TLS_SIDE = 1
OTHER_SIDE = 2
UNREAD_SIDE = 3  # its connection has no secrets, and is not read any more
UNREAD = (
    Decryption.NO_HANDSHAKE,
    Decryption.NO_SECRET,
    Decryption.UNSUPPORTED,
    Decryption.RENEGOTIATED,
)


class TlsFollower:
    """Follows the TLS connections in tables of pcap.streams, one after another.

    keylog: the secrets. keeps_data: as in `TlsConnection`.

    Attributes:
        connections: those that are or may be TLS, by their numbers.
        held_bytes: their memory, as of the last `update_memory`.
    """

    def __init__(self, keylog: KeyLog, *, keeps_data: bool):
        self.connections: dict[int, TlsConnection] = {}
        self.held_bytes = 0
        self._keylog = keylog
        self._keeps_data = keeps_data
        self._counted: dict[int, int] = {}  # number of a connection -> its part of held_bytes
        self._last_read: list[int] = []
        self._unread: set[int] = set()  # numbers of connections of which nothing is read any more

    def follow(self, streams: FrameTable, *, more: bool) -> tuple[np.ndarray, np.ndarray]:
        """Read the records of a table of pcap.streams.

        more: whether bytes may follow those of each stream.

        Returns the verdict of the side of each row, uint8, and how many bytes of each row are done
        with, int64. The bytes of an undecided side are not done with. Both sides of a connection
        that is TLS are TLS_SIDE: one of them may begin with plain bytes.

        Raises ValueError for a row that points outside its buffer, or that has no such connection
        or packets.
        """
        assert streams.outer is not None
        if not lie_inside(streams.rows, streams.buffers):
            raise ValueError("a row points outside its buffer")
        _check_numbers(streams)
        rows = streams.rows
        connections = streams.outer["connection"][rows["parent"]]
        senders = 2 * connections + (rows["kind"] == Direction.TO_CLIENT)
        own_verdicts = self._decide(streams, senders, more=more)
        if self._keeps_data and not self._keylog.is_open:
            self._add_unread(rows, connections, own_verdicts, more=more)
        verdicts = self._add_connections(streams, connections, own_verdicts)
        done = np.where(verdicts == UNDECIDED, 0, rows["size"].astype(np.int64))
        of_tls = np.flatnonzero(verdicts == TLS_SIDE)
        self._last_read = []
        if len(of_tls):
            of_tls = of_tls[np.argsort(connections[of_tls], kind="stable")]
            numbers = connections[of_tls]
            starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
            for group in np.split(of_tls, starts[1:]):
                number = int(connections[group[0]])
                self._last_read.append(number)
                self._read_connection(streams, number, group, own_verdicts, done, more=more)
        return verdicts, done

    def update_memory(self) -> None:
        """Count the memory of the connections that were read, and forget those that are over.

        Call it when the decrypted bytes of the last `follow` that are not needed are released.
        """
        for number in self._last_read:
            connection = self.connections[number]
            if connection.is_over:
                self._drop(number)
                self._unread.add(number)
                continue
            size = connection.held_bytes
            self.held_bytes += size - self._counted.get(number, 0)
            self._counted[number] = size
        self._last_read = []

    def count_bytes(self, number: int) -> int:
        """Return the part of held_bytes that is that of a connection."""
        return self._counted.get(number, 0)

    def _drop(self, number: int) -> TlsConnection | None:
        self.held_bytes -= self._counted.pop(number, 0)
        return self.connections.pop(number, None)

    def _add_unread(
        self, rows: np.ndarray, connections: np.ndarray, own_verdicts: np.ndarray, *, more: bool
    ) -> None:
        """Note the new TLS connections without plain bytes: nothing of them is read.

        Each side of them begins with a record, so a `TlsConnection` would end after the same bytes.
        A side without bytes so far may begin with plain ones.

        rows: of the streams. own_verdicts: those by the first bytes of each side.
        """
        is_tls = own_verdicts == TLS_SIDE
        if not is_tls.any():
            return
        found = connections[is_tls]
        if more:
            is_of_server = rows["kind"][is_tls] == Direction.TO_CLIENT
            found = np.intersect1d(found[is_of_server], found[~is_of_server])
        found = np.setdiff1d(found, connections[~is_tls])
        self._unread.update(set(found.tolist()).difference(self.connections))

    def _add_connections(
        self, streams: FrameTable, connections: np.ndarray, own_verdicts: np.ndarray
    ) -> np.ndarray:
        """Add the connections that are TLS, and those with a hello behind other bytes.

        own_verdicts: those by the first bytes of each side. Returns those by both sides.
        """
        verdicts = self._apply_known(connections, own_verdicts)
        is_new = False
        for number in np.unique(connections[verdicts == TLS_SIDE]).tolist():
            if number not in self.connections:
                self._add_connection(number)
                is_new = True
        rows = streams.rows
        is_plain = (verdicts == OTHER_SIDE) & ~streams.bad
        segments = read_segments(streams)
        late = find_late_hellos(streams, segments, np.flatnonzero(is_plain))
        for row, position in late.items():
            number = int(connections[row])
            connection = self.connections.get(number)
            if connection is None:
                connection = self._add_connection(number)
                is_new = True
            side = connection.sides[int(rows["kind"][row] == Direction.TO_CLIENT)]
            if side.begin is None:
                side.begin = position
        return self._apply_known(connections, own_verdicts) if is_new else verdicts

    def _add_connection(self, number: int) -> TlsConnection:
        connection = TlsConnection(self._keylog, keeps_data=self._keeps_data)
        self.connections[number] = connection
        return connection

    def _apply_known(self, connections: np.ndarray, own_verdicts: np.ndarray) -> np.ndarray:
        """Return the verdicts of sides by what is known of their connections."""
        if not (self.connections or self._unread):
            return own_verdicts
        numbers, places = np.unique(connections, return_inverse=True)
        listed = numbers.tolist()
        is_tls = np.fromiter((number in self.connections for number in listed), bool, len(listed))
        is_unread = np.fromiter((number in self._unread for number in listed), bool, len(listed))
        verdicts = own_verdicts.copy()
        verdicts[is_tls[places] & (verdicts == OTHER_SIDE)] = TLS_SIDE
        verdicts[is_unread[places]] = UNREAD_SIDE
        return verdicts

    def forget(self, connections: np.ndarray) -> list[TlsConnection]:
        """Forget connections, and return those that are TLS. connections: their numbers, int64."""
        numbers = connections.tolist()
        self._unread.difference_update(numbers)
        found = (self._drop(number) for number in numbers)
        return [connection for connection in found if connection is not None]

    def _decide(self, streams: FrameTable, senders: np.ndarray, *, more: bool) -> np.ndarray:
        """Return whether the side of each row is TLS by its first bytes: uint8.

        Bytes that are given again give the same verdict. A side whose first bytes were done with
        before is OTHER_SIDE.

        senders: the number of the side of each row.
        """
        rows = streams.rows
        is_first = np.append(True, senders[1:] != senders[:-1])[: len(senders)]
        firsts = np.flatnonzero(is_first)
        verdicts = np.full(len(firsts), OTHER_SIDE, np.uint8)
        is_start = (rows["position"][firsts] == 0) & ~streams.bad[firsts]
        places = np.flatnonzero(is_start & (rows["size"][firsts] > 0))
        if len(places):
            view = np.frombuffer(streams.buffers[0], np.uint8)
            starts = rows["start"][firsts[places]]
            sizes = rows["size"][firsts[places]]
            may_be = np.ones(len(places), bool)
            for place, lowest, highest in ((0, CHANGE_CIPHER_SPEC, LAST_TYPE), (1, MAJOR, MAJOR)):
                values = view[np.minimum(starts + place, len(view) - 1)]
                may_be &= (sizes <= place) | (values >= lowest) & (values <= highest)
            for place in places[may_be].tolist():
                row = int(firsts[place])
                start = int(rows["start"][row])
                found = recognize(streams.buffers[0], start, start + int(rows["size"][row]))
                is_cut = row + 1 < len(senders) and senders[row + 1] == senders[row]
                if found is Recognition.TLS:
                    verdicts[place] = TLS_SIDE
                elif found is Recognition.UNDECIDED and more and not is_cut:
                    verdicts[place] = UNDECIDED
        return verdicts[np.cumsum(is_first) - 1] if len(firsts) else verdicts

    def _read_connection(
        self,
        streams: FrameTable,
        number: int,
        group: np.ndarray,
        own_verdicts: np.ndarray,
        done: np.ndarray,
        *,
        more: bool,
    ) -> None:
        """Read the rows of one connection."""
        connection = self.connections[number]
        segments = read_segments(streams)
        rows = streams.rows[group]
        values = zip(
            *(rows[name].tolist() for name in ("start", "size", "position", "lost", "fault")),
            (rows["kind"] == Direction.TO_CLIENT).tolist(),
            own_verdicts[group].tolist(),
            strict=True,
        )
        spans: tuple[list[Span], list[Span]] = ([], [])
        read = []
        for start, size, position, lost, fault, is_of_server, verdict in values:
            side = connection.sides[is_of_server]
            if not side.is_begun:
                side.start(position, is_tls=verdict == TLS_SIDE)
            span = Span(start, start + size, position, lost if fault else 0, segments, start)
            spans[is_of_server].append(span)
            read.append(span)
        connection.read(streams.buffers[0], spans, more=more)
        done[group] = [span.at - span.start for span in read]


def _check_numbers(streams: FrameTable) -> None:
    """Raise ValueError for a row without its connection or its packets: a user may make rows."""
    assert streams.outer is not None
    rows = streams.rows
    if not len(rows):
        return
    if not 0 <= rows["parent"].min() <= rows["parent"].max() < len(streams.outer):
        raise ValueError(f"a row is of none of the {len(streams.outer)} connections")
    count = len(read_segments(streams))
    first = rows["first_segment"]
    is_inside = (first >= 0) & (first <= count)
    is_inside &= rows["segment_count"].astype(np.int64) <= count - np.where(is_inside, first, 0)
    if not is_inside.all():
        raise ValueError(f"a row has other packets than the {count} of the table")


def read_segments(streams: FrameTable) -> np.ndarray:
    """Return the segments of a table of pcap.streams, at least one."""
    segments = np.frombuffer(streams.buffers[1], SEGMENT)
    return segments if len(segments) else np.zeros(1, SEGMENT)


class CaptureScanner(Protocol):
    """Finds frames in tables of pcap.streams, one after another, such as `StreamScanner`."""

    def scan(
        self, streams: FrameTable, *, more: bool, released: bool = False
    ) -> tuple[FrameTable, np.ndarray]:
        """Return the frames, and the bytes of each stream that are done with.

        The arguments and errors are those of `StreamScanner.scan`.
        """
        ...

    def forget(self, connections: np.ndarray) -> None:
        """Forget connections: no byte of them follows. connections: their numbers, int64."""
        ...


class DecryptingScanner:
    """Finds frames in decrypted streams: a scanner around another one.

    It keeps the decrypted bytes of frames that are cut. Without secrets, TLS is not read.

    scanner: finds the frames. keylog: the path of the file of secrets, None for none.

    Raises OSError and ValueError for the file.
    """

    def __init__(self, scanner: CaptureScanner, keylog: str | None):
        self._scanner = scanner
        self._secrets = KeyLog(keylog)
        self._follower = TlsFollower(self._secrets, keeps_data=True)
        # Of connections that were forgotten.
        self._count = 0
        self._unread = 0

    @property
    def held_bytes(self) -> int:
        """Memory of the decrypted bytes, and of what is known of TLS connections."""
        return self._follower.held_bytes

    def count_bytes(self, connection: int) -> int:
        """Return the part of held_bytes that is that of a connection."""
        return self._follower.count_bytes(connection)

    def read_blocks(self, blocks: FrameTable) -> None:
        """Use the secrets in blocks. blocks: a table of pcap.blocks, the next ones or all."""
        self._secrets.read_blocks(blocks)

    def read_all(self, blocks: FrameTable | None) -> None:
        """Use the secrets in all blocks of a capture. None: they are not known."""
        self._secrets.read_all(blocks)

    def scan(
        self, streams: FrameTable, *, more: bool, released: bool = False
    ) -> tuple[FrameTable, np.ndarray]:
        """Return the frames, and the bytes of each stream that are done with.

        With `more` as False, all connections that end are in `streams.outer`.
        """
        verdicts, done = self._follower.follow(streams, more=more)
        if (verdicts == OTHER_SIDE).all() and (more or not self._follower.connections):
            return self._scanner.scan(streams, more=more, released=released)
        decrypted = _DecryptedTable(streams)
        self._add_rows(decrypted, streams, verdicts, more=more)
        table, scanned = self._scanner.scan(decrypted.make(), more=more, released=released)
        decrypted.release(scanned, done)
        self._follower.update_memory()
        if not (more or released):
            self._report()
        return table, done

    def forget(self, connections: np.ndarray) -> None:
        """Forget connections: see `StreamScanner.forget`."""
        self._scanner.forget(connections)
        for connection in self._follower.forget(connections):
            self._count += 1
            self._unread += connection.decryption in UNREAD

    def _add_rows(
        self, decrypted: _DecryptedTable, streams: FrameTable, verdicts: np.ndarray, *, more: bool
    ) -> None:
        """Add the rows of a table, with the decrypted bytes in place of the encrypted ones."""
        assert streams.outer is not None
        numbers = streams.outer["connection"]
        parents = streams.rows["parent"]
        seen = set()
        is_plain = verdicts == OTHER_SIDE
        # Rows of other sides stay together.
        changes = np.flatnonzero(np.append(True, is_plain[1:] != is_plain[:-1]))
        for run in np.split(np.arange(len(streams)), changes[1:]):
            if not len(run):
                continue
            if is_plain[run[0]]:
                decrypted.add_plain_rows(run)
                continue
            for row in run[verdicts[run] == TLS_SIDE].tolist():
                flow = int(parents[row])
                if flow not in seen:
                    seen.add(flow)
                    connection = self._follower.connections[int(numbers[flow])]
                    decrypted.add_connection(connection, flow, everything=not more)
        if not more:
            for flow, number in enumerate(numbers.tolist()):
                ended = self._follower.connections.get(number)
                if ended is not None and flow not in seen:
                    decrypted.add_connection(ended, flow, everything=True)

    def _report(self) -> None:
        """Log how many connections were not decrypted."""
        connections = self._follower.connections.values()
        unread = self._unread + sum(item.decryption in UNREAD for item in connections)
        if unread:
            logger.warning(
                "%d of %d TLS connections cannot be decrypted; pcap.tls with the same keylog has "
                "the reasons",
                unread,
                self._count + len(connections),
            )


class _DecryptedTable:
    """Builds a table of pcap.streams from rows of another one and from decrypted bytes."""

    def __init__(self, streams: FrameTable):
        self._streams = streams
        self._segments = read_segments(streams)
        self._rows: list[np.ndarray] = []
        self._parts: list[Any] = []
        self._segment_parts: list[np.ndarray] = []
        self._size = 0
        self._segment_count = 0
        self._row_count = 0
        self._sources: list[tuple[int, np.ndarray]] = []  # first row here, rows of the other table
        self._sides: list[tuple[int, TlsSide]] = []  # last row here

    def add_plain_rows(self, chosen: np.ndarray) -> None:
        """Add rows of the other table, with their bytes. chosen: their numbers, ascending."""
        if not len(chosen):
            return
        changes = np.flatnonzero(np.diff(chosen) != 1) + 1
        for run in np.split(chosen, changes):
            rows = self._streams.rows[run[0] : run[-1] + 1].copy()
            start = int(rows["start"][0])
            stop = int(rows["start"][-1]) + int(rows["size"][-1])
            first = int(rows["first_segment"][0])
            last = int(rows["first_segment"][-1]) + int(rows["segment_count"][-1])
            segments = self._segments[first:last].copy()
            segments["start"] += self._size - start
            rows["start"] += self._size - start
            rows["first_segment"] += self._segment_count - first
            self._sources.append((self._row_count, run))
            self._append(rows, self._streams.buffers[0][start:stop], segments)

    def add_connection(self, connection: TlsConnection, flow: int, *, everything: bool) -> None:
        """Add what was decrypted of both sides of a connection, or nothing if few bytes are new.

        flow: the row of the connection. everything: add all.
        """
        sides = [side for side in connection.sides if side.plain.pieces]
        size = sum(side.plain.size for side in sides)
        emitted = sum(side.plain.emitted for side in sides)
        is_due = everything or any(side.plain.has_end for side in sides)
        # A response must not come before the end of its request: see `Assembler.take`.
        if is_due or is_much_new(size, emitted):
            for side in sides:
                self._add_side(side, flow)

    def _add_side(self, side: TlsSide, flow: int) -> None:
        for piece in side.plain.pieces:
            row = np.zeros(1, STREAM)
            segments = piece.join_segments().copy()
            row["start"] = self._size
            row["size"] = piece.size
            row["parent"] = flow
            row["kind"] = Direction.TO_SERVER if side.number == CLIENT else Direction.TO_CLIENT
            row["fault"] = piece.fault
            row["position"] = piece.position
            row["lost"] = piece.lost
            row["time"] = segments["time"][0]
            row["time_end"] = segments["time"][-1]
            row["first_segment"] = self._segment_count
            row["segment_count"] = len(segments)
            segments["start"] += self._size
            self._append(row, piece.join(), segments)
        self._sides.append((self._row_count - 1, side))

    def _append(self, rows: np.ndarray, data: Any, segments: np.ndarray) -> None:
        self._rows.append(rows)
        self._parts.append(data)
        self._segment_parts.append(segments)
        self._row_count += len(rows)
        self._size += len(data)
        self._segment_count += len(segments)

    def make(self) -> FrameTable:
        """Return the table."""
        assert self._streams.outer is not None
        rows = np.concatenate([np.zeros(0, STREAM), *self._rows])
        segments = np.concatenate([np.zeros(0, SEGMENT), *self._segment_parts])
        block = view_of(b"".join(self._parts))
        return make_streams(self._streams.outer, rows, block, segments, "mark")

    def release(self, scanned: np.ndarray, done: np.ndarray) -> None:
        """Forget decrypted bytes, and count the bytes of the other table that are done with.

        scanned: for each row here, the bytes that are done with. done: the same for the other
        table; the numbers of its rows that are here are set.
        """
        for first, rows in self._sources:
            done[rows] = scanned[first : first + len(rows)]
        for last, side in self._sides:
            side.plain.release(int(scanned[last]))
