# cython: boundscheck=False, wraparound=False
"""Follows TCP connections through the packets of a capture, and puts their bytes in order.

`pcap/flow_tables.py` makes tables of the results. `pcap/captured_streams.py` and
`pcap/extraction/captured_frames.py` read a capture in pieces. `fragments.pxd` puts IP fragments
together, `connection_table.pxd` finds connections, and `byte_nodes.pxd` puts bytes in order:

    packet of a sequence number      what becomes of its bytes
    the next one                     go to the list `ready`, and held bytes that follow them too
    an earlier one                   repeated bytes are dropped and counted
    a later one                      go to the list `held`; where bytes overlap, `policy` decides

Bytes are lost if the receiver acknowledged bytes after them, and they do not come within 64 packets
of the connection and one second: captures may have packets in another order than the receiver. Then
the held bytes become ready, and the positions in the list have a gap. The same rule applies to
bytes at the end of a side, if packets of this side show that it sent them. What an ACK, a FIN or
held bytes show and is still missing when the connection or the capture ends is lost too. All work
is linear.

Format: RFC 9293. Which bytes win where segments overlap differs between receivers, so it is an
argument.
"""
import os
from functools import partial

import numpy as np

from libc.stdlib cimport free, qsort
from libc.string cimport memcpy
from wirescan.core cimport (
    LOST, OK, Head, Readable, int32_t, int64_t, prefetch, uint8_t, uint32_t,
    uint64_t)
from wirescan.core.loop import flatten, lie_inside
from wirescan.core.parallel import choose_threads, cut_evenly, run_each
from wirescan.core.rows cimport Block, RowBlock, Rows, begin_row
from wirescan.core.rows import addresses
from wirescan.pcap.block cimport CACHE_LINE
from wirescan.pcap.assembly.byte_nodes cimport (
    FREE_STEPS, NODE_COST, NodeArena, STEPS_PER_PACKET, append, append_end_mark, drop, drop_piece,
    ends_with_gap, free_arena, give_up_missing, give_up_tail, has_room, hold, is_end_mark,
    make_node, move_held, own_borrowed)
from wirescan.pcap.assembly.capture_clock cimport CaptureClock, advance_clock
from wirescan.pcap.assembly.connection_ages cimport (
    find_longest_idle, find_old, has_ended, join_list, leave_list, refresh)
from wirescan.pcap.assembly.connection_table cimport (
    ConnectionTable, Endpoints, add_connection, begins_again, create_table, find_connection,
    follow_end, follow_flags, free_connection, free_table, hide_connection, measure_distance,
    prefetch_connection, read_endpoints)
from wirescan.pcap.assembly.fragments cimport (
    Datagram, ENDS, FragmentTable, add_fragment, create_fragments, drop_fragments, free_fragments,
    take_datagram)
from wirescan.pcap.assembly.missing_bytes cimport (
    Progress, begin_missing, expire, find_final_end, find_shown_end, lets_all_wait,
    lets_side_wait)
from wirescan.pcap.assembly.number_list cimport Direction, NumberList, compare_numbers, push
from wirescan.pcap.packet cimport read_datagram
from wirescan.pcap.assembly.roles cimport Roles, begin_roles, fill_roles, follow_roles
from wirescan.pcap.assembly.tcp_connection cimport (
    ADDRESS, CURRENT, Connection, ENDED, FIN, FREE, NONE, Node, RELEASED, RST, SYN, Side, WINDOW)
from wirescan.pcap.rows cimport (
    FRAGMENT, Flow, Packet, Segment, Stream, TCP, TO_CLIENT, TO_SERVER)
from wirescan.pcap.scan import PACKET

cdef Flow _flow
cdef Stream _stream
cdef Segment _segment
FLOW = flatten(np.asarray(<Flow[:1]>&_flow).dtype)
STREAM = flatten(np.asarray(<Stream[:1]>&_stream).dtype)
SEGMENT = np.asarray(<Segment[:1]>&_segment).dtype
cdef object flow_struct = np.asarray(<Flow[:1]>&_flow).dtype
ENDPOINTS = 2 * ADDRESS         # bytes of the two addresses of a flow, the client's first

cdef enum:
    KEPT = -1                   # consumed bytes of a row that is given again: `KEPT` in verdicts.py
    SHORT_LIST = 1024           # directions that are listed before their list is looked at
    SMALL = 1 << 16             # bytes that are always given again, also with the other side's
    AGAIN = 8                   # more bytes are given again when they grew by this part
    PATIENCE_PACKETS = 64       # of the connection, for which acknowledged bytes may come later
    PATIENCE = 1000000000       # ns, the same
    PREFETCH_BYTES = 2048       # of a packet, at most
    PREFETCH_PACKETS = 8        # packets ahead: their bytes are prefetched. A power of 2
    PREFETCH_SLOTS = 4          # packets ahead: their slots in the hash table
    PREFETCH_CONNECTIONS = 2    # packets ahead: their connections
    RING_MASK = PREFETCH_PACKETS - 1
    RUN_BYTES = 1 << 20         # of a run, rounded up to whole nodes: a thread copies whole runs
    RUN_NUMBERS = 3             # in the list of runs

cdef uint32_t MOST_STREAM_BYTES = 0xFFFFFFFF        # without a gap: a row has no larger size
cdef uint8_t end_mark = 0                           # the byte of `append_end_mark`


# Consecutive nodes of one direction, which one thread copies. The next run's `segment` is where
# this one stops.
cdef struct Run:
    int64_t node                # the first one
    int64_t segment             # its number in the segments
    int64_t at                  # of its first byte in the bytes of the streams


cdef class Assembler:
    """Connections and their bytes: Assembler(policy, held=64 << 20, *, connections, waiting, ports,
    openings).

    policy: which bytes win where held segments overlap: the "first" or the "last" that came.
    held: bytes out of order that one direction may hold. Beyond it the bytes that are missing
        before them are lost.
    connections: None keeps all connections. A number makes the assembler release connections:
        those that ended 60 seconds ago, those without a packet for 8,100 seconds, and the longest
        idle ones where there are more than this number. Connections that ended are the first.
        Time goes on to the earliest time of eight packets in a row that are all later. It is set
        back, without a release, to the latest time of 64 packets in a row that are all a minute
        earlier. So some packets with false times release nothing, and do not stop releases.
    ports: the usual ports of servers. openings: how the packets of one role begin: whether that of
        the client, the lowest bytes and the highest ones. They say who is the client of a
        connection whose beginning the capture does not have: see roles.pxd.
    waiting: bytes of copies that may wait for others. Beyond it the longest idle connections are
        released too, in `release`. Only with `connections`.

    One thread at a time may call the methods.

    After `feed` or `release`, `released` connections wait for `take(released=True)` and
    `drop_released`. The next packets of their endpoints begin new connections.

    Raises TypeError and ValueError for another policy.
    """
    cdef ConnectionTable connections
    cdef NodeArena nodes
    cdef NumberList touched         # each `Direction` with new bytes
    cdef NumberList given           # places of directions: those of the rows of the last `take`
    cdef NumberList runs            # each `Run` of the last `take`, and one that marks the end
    cdef NumberList released_places
    cdef NumberList wholes          # addresses of memory: datagrams whose bytes are borrowed
    cdef NumberList missing         # places of directions that may have missing bytes
    cdef size_t checked_missing     # how many of them had some when all were looked at
    cdef Progress progress
    cdef Roles roles
    cdef bint is_together           # the last `take` had all connections or none
    cdef FragmentTable fragments    # that wait for others
    cdef bint out_of_memory
    cdef bint releases              # whether connections are released
    cdef size_t most_connections
    cdef uint64_t most_waiting
    cdef CaptureClock clock         # says which connections are released
    cdef readonly int64_t packets   # of the capture so far

    def __cinit__(self, policy, held=64 << 20, *, connections=None, waiting=1 << 30, ports=(),
                  openings=()):
        if not isinstance(policy, str):
            raise TypeError(f"policy must be a str, not {policy!r}")
        if policy not in ("first", "last"):
            raise ValueError(f"policy must be first or last, not {policy!r}")
        fill_roles(&self.roles, ports, openings)
        self.nodes.last_wins = policy == "last"
        self.nodes.held_limit = held
        self.nodes.allowed_steps = FREE_STEPS
        self.nodes.free_node = NONE
        self.releases = connections is not None
        self.most_connections = connections or 0
        self.most_waiting = waiting
        # Nobody outside knows the seed, so no capture can be made whose connections collide.
        seed = int.from_bytes(os.urandom(8), "little")
        create_fragments(&self.fragments, seed)
        if not create_table(&self.connections, seed):
            raise MemoryError("no memory for connections")

    def __dealloc__(self):
        free_arena(&self.nodes)
        free_table(&self.connections)
        free_fragments(&self.fragments)
        self.free_wholes()
        free(self.wholes.at)
        free(self.touched.at)
        free(self.given.at)
        free(self.runs.at)
        free(self.missing.at)
        free(self.released_places.at)

    @property
    def released(self):
        """How many connections are released and not dropped."""
        return self.released_places.count

    @property
    def incomplete_datagrams(self):
        """How many IP datagrams of TCP were dropped because fragments of them are missing."""
        return self.fragments.incomplete

    @property
    def fragment_bytes(self):
        """Memory of the fragments that wait for others of their datagram. For tests."""
        return self.fragments.bytes

    @property
    def waiting_bytes(self):
        """Memory of the copies of bytes that wait for others."""
        return self.nodes.owned_bytes

    def feed(self, rows, buffers):
        """Follow the connections of packets, in the order of the capture.

        rows: array of dtype PACKET. buffers: those that the rows point into. The caller keeps them
        until `take` and `release` were called.

        Raises TypeError for other rows, ValueError where a row points outside its buffer,
        MemoryError.
        """
        cdef const uint8_t[::1] view
        cdef const uint64_t[:, ::1] pairs
        cdef const Packet* packet
        cdef const Readable* readable
        cdef const uint8_t* start
        cdef Endpoints ends[PREFETCH_PACKETS]   # those of packet i are at i & RING_MASK
        cdef Py_ssize_t i, n = len(rows)
        if rows.dtype != PACKET:
            raise TypeError("connections are followed through rows of pcap.packets")
        if not n:
            return
        if not lie_inside(rows, buffers):
            raise ValueError("a row points outside its buffer")
        view = np.ascontiguousarray(rows).view(np.uint8)
        pairs = addresses(buffers)
        readable = <const Readable*>&pairs[0, 0]
        packet = <const Packet*>&view[0]
        with nogil:
            for i in range(-PREFETCH_PACKETS, n):
                look_ahead(packet, n, i, readable, &self.connections, ends)
                if i < 0:
                    continue
                start = find_start(&packet[i], readable)
                self.packets += 1
                self.nodes.allowed_steps += STEPS_PER_PACKET
                self.begin_packet(self.packets, packet[i].time)
                advance_clock(&self.clock, &self.connections, packet[i].time)
                if is_followed(&packet[i]):
                    self.follow(&packet[i], start, &ends[i & RING_MASK], <int32_t>i)
                elif packet[i].head.kind == FRAGMENT and not packet[i].head.fault:
                    self.follow_fragment(&packet[i], start, <int32_t>i)
                if self.releases:
                    self.release_old()
                if self.out_of_memory or self.nodes.out_of_memory:
                    break
        if self.out_of_memory or self.nodes.out_of_memory:
            raise MemoryError(f"no memory for more than {self.connections.held} connections")

    def finish(self):
        """End the capture: held bytes become ready, and the bytes that are missing are lost.

        The next `take` gives all bytes that were not released.
        """
        cdef size_t i
        with nogil:
            drop_fragments(&self.fragments)
            self.begin_packet(self.packets + 1, self.progress.time)
            for i in range(self.connections.count):
                if self.connections.at[i].phase != FREE:
                    self.end_connection(i)
        if self.out_of_memory:
            raise MemoryError("no memory for the numbers of streams")

    def take(self, *, everything=True, released=False, together=False):
        """Return the bytes in order that were not released: (flows, endpoints, streams, bytes,
        segments).

        flows: array of dtype FLOW, the connections of these bytes. endpoints: their addresses.
        streams: array of dtype STREAM. `parent` is the row of the flow. A row with the fault LOST
        stands for bytes that the capture does not have. bytes: a Block, which the streams point
        into. segments: array of dtype SEGMENT, the packets of these bytes.

        everything: False leaves bytes for later where many were given before, and few are new.
        released: take the bytes of released connections, or of all others.
        together: leave the bytes of all connections for later, or of none. They wait for missing
            bytes of any connection, up to a limit.

        Raises MemoryError, and ValueError where a stream has 4 GiB without a gap and for a wrong
        number of threads in the environment. Afterwards, `take` may be called again.
        """
        cdef bint takes_all = everything or released or (
            together and not self.has_missing() and self.has_much_new())
        cdef RowBlock rows = RowBlock.__new__(RowBlock)
        cdef Run end = Run(NONE, 0, 0)
        cdef int32_t flows
        self.is_together = together
        self.given.count = 0
        self.runs.count = 0
        try:
            flows = self.plan(rows, &end, takes_all, together, released)
            return self.copy_planned(rows, &end, flows)
        except BaseException:
            self.given.count = 0
            raise

    cdef int32_t plan(self, RowBlock rows, Run* end, bint takes_all, bint together,
                      bint released) except -1:
        # Append the rows of `take`, and the runs that are copied. Return the number of connections.
        cdef Direction* touched = <Direction*>self.touched.at
        cdef size_t i, count = self.touched.count // 2
        cdef int64_t previous = -1
        cdef int32_t flows = 0
        cdef Side* side
        rows.allocate(sizeof(Stream), count + SHORT_LIST, <size_t>-1, None)
        if count:
            qsort(touched, count, sizeof(Direction), compare_numbers)
        for i in range(count):
            side = self.find_side(touched[i].place)
            side.is_taken = self.is_taken(touched[i].place, takes_all, together, released)
            if not side.is_taken:
                continue
            flows += touched[i].place // 2 != previous
            previous = touched[i].place // 2
            if not self.write_rows(touched[i].place, flows - 1, &rows.rows, end):
                raise MemoryError("no memory for the rows of streams")
            if rows.rows.bad:
                raise ValueError(
                    f"a side of connection {touched[i].number // 2} has 4 GiB or more without a "
                    "gap. Read the capture in pieces, for example with iter_tables")
        if not self.begin_run(end):
            raise MemoryError("no memory for the rows of streams")
        return flows

    cdef tuple copy_planned(self, RowBlock rows, const Run* end, int32_t flow_count):
        # Return the results of `take`. Afterwards the directions that are taken have no new bytes.
        block = Block(end.at)
        flows = np.zeros(flow_count, FLOW)
        endpoints = np.zeros((flow_count, ENDPOINTS), np.uint8)
        segments = np.empty(end.segment, SEGMENT)
        self.copy_all(block, segments)
        self.note_taken(flows, endpoints, <const Stream*>rows.rows.at)
        rows.is_writable = True
        return flows, endpoints, np.frombuffer(rows, STREAM), block, segments

    def list_flows(self, *, released=False):
        """Return connections in the order of their numbers: an array of dtype FLOW, and their
        addresses.

        released: only the released ones. Otherwise all that are held.

        Raises MemoryError.
        """
        cdef size_t i, count = self.released_places.count if released else self.connections.held
        cdef Flow[::1] rows
        cdef uint8_t[:, ::1] ends
        cdef int64_t[:, ::1] order          # number and place
        flows = np.zeros(count, FLOW)
        endpoints = np.zeros((count, ENDPOINTS), np.uint8)
        if count == 0:
            return flows, endpoints
        order = np.empty((count, 2), np.int64)
        if released:
            for i in range(count):
                order[i, 1] = self.released_places.at[i]
        else:
            self.list_places(order)
        for i in range(count):
            order[i, 0] = self.connections.at[order[i, 1]].number
        qsort(&order[0, 0], count, sizeof(Direction), compare_numbers)
        rows = flows.view(flow_struct)
        ends = endpoints
        for i in range(count):
            write_flow(&self.connections.at[order[i, 1]], &rows[i], &ends[i, 0], i)
        return flows, endpoints

    def release(self, consumed):
        """Forget bytes that `take` returned, and copy those that are needed later.

        consumed: int64 array, the number of bytes that are not needed any more, for each row of
        streams of the last `take`. The others are given again, with the bytes that follow. A row
        that another one of the same direction follows is not needed any more. KEPT is for a row
        that is given again with all rows after it, those of gaps too.

        Afterwards the buffers of `feed` may be freed.

        Raises ValueError for another number of rows, MemoryError.
        """
        cdef const int64_t[::1] counts = np.ascontiguousarray(consumed, np.int64)
        cdef size_t i
        cdef Side* side
        cdef int64_t kept_place = NONE
        if <size_t>len(counts) != self.given.count:
            raise ValueError(f"{len(counts)} numbers for {self.given.count} rows")
        for i in range(self.given.count):
            side = self.find_side(self.given.at[i])
            if counts[i] == KEPT and self.given.at[i] != kept_place:
                kept_place = self.given.at[i]
                side.given = side.dropped
                side.emitted = side.ready_bytes
                side.is_kept = True
                if self.is_together:
                    self.touch(kept_place // 2, kept_place % 2)
            if self.given.at[i] == kept_place:
                continue
            side.is_kept = False
            if i + 1 < self.given.count and self.given.at[i + 1] == self.given.at[i]:
                drop_piece(&self.nodes, side)
            else:
                drop(&self.nodes, side, max(counts[i], 0))
                side.emitted = side.ready_bytes
        self.given.count = 0
        if not own_borrowed(&self.nodes):
            raise MemoryError("no memory for bytes that wait for others")
        self.free_wholes()
        if self.releases and self.nodes.owned_bytes > self.most_waiting:
            self.release_waiting()

    def release_idle(self):
        """Release the connection that is idle for longest: (its number, bytes of its copies).

        Return (-1, 0) if there is none. Its bytes wait for `take(released=True)`.

        Raises MemoryError.
        """
        cdef int32_t place = find_longest_idle(&self.connections)
        if place == NONE:
            return -1, 0
        self.release_connection(place)
        if self.out_of_memory:
            raise MemoryError("no memory for the numbers of connections")
        return self.connections.at[place].number, count_owned(&self.nodes,
                                                              &self.connections.at[place])

    def drop_released(self):
        """Forget the released connections, and their bytes."""
        cdef Direction* touched = <Direction*>self.touched.at
        cdef size_t i, kept = 0
        cdef int64_t place
        cdef int source
        cdef Side* side
        for i in range(self.touched.count // 2):
            if self.connections.at[touched[i].place // 2].phase != RELEASED:
                touched[kept] = touched[i]
                kept += 1
        self.touched.count = 2 * kept
        for i in range(self.released_places.count):
            place = self.released_places.at[i]
            for source in range(2):
                side = &self.connections.at[place].side[source]
                drop(&self.nodes, side, side.ready_bytes)
            free_connection(&self.connections, place)
        self.released_places.count = 0
        self.given.count = 0

    cdef void list_places(self, int64_t[:, ::1] order) noexcept:
        # Write the places of all connections into the second column.
        cdef size_t i, row = 0
        for i in range(self.connections.count):
            if self.connections.at[i].phase != FREE:
                order[row, 1] = i
                row += 1

    cdef void begin_packet(self, int64_t number, int64_t time) noexcept nogil:
        # Follow another packet. The end of the capture has the number after that of the last one.
        self.progress.packet = number
        self.progress.time = max(self.progress.time, time)
        self.nodes.packet = number

    cdef void end_connection(self, int64_t place) noexcept nogil:
        # Held bytes become ready, and what is missing before them and at the end is lost.
        cdef int source
        cdef Side* side
        cdef Connection* connection = &self.connections.at[place]
        expire(&self.progress, connection, self.nodes.held_limit)
        connection.is_role_open = False
        for source in range(2):
            side = &connection.side[source]
            give_up_missing(&self.nodes, side, <uint64_t>-1)
            give_up_tail(side, find_final_end(side))
            side.is_missing = False
            if ends_with_gap(&self.nodes, side):
                append_end_mark(&self.nodes, side, &end_mark, connection.time_end,
                                connection.packet_end)
            if side.ready != NONE:
                self.touch(place, source)
        follow_end(connection)

    cdef void release_connection(self, int64_t place) noexcept nogil:
        # No packet belongs to a connection any more. Its bytes wait for `take`.
        leave_list(&self.connections, place)
        hide_connection(&self.connections, place)
        self.connections.at[place].phase = RELEASED
        self.end_connection(place)
        if not push(&self.released_places, place):
            self.out_of_memory = True

    cdef void release_old(self) noexcept nogil:
        # Release the connections that are too old, or too many.
        cdef int32_t place = find_old(&self.connections, self.clock.elapsed, self.packets)
        while place != NONE and not self.out_of_memory:
            self.release_connection(place)
            place = find_old(&self.connections, self.clock.elapsed, self.packets)
        if self.connections.held - self.released_places.count > self.most_connections:
            place = find_longest_idle(&self.connections)
            if place != NONE:
                self.release_connection(place)

    cdef int release_waiting(self) except -1:
        # Release the longest idle connections until few enough bytes wait for others.
        cdef uint64_t released = 0
        cdef int64_t place = 0
        while place >= 0 and self.nodes.owned_bytes - released > self.most_waiting:
            place, size = self.release_idle()
            released += <uint64_t>size
        return 0

    cdef bint has_much_new(self) noexcept nogil:
        # Return whether enough bytes are new, in all connections that are not released together.
        cdef const Direction* touched = <const Direction*>self.touched.at
        cdef const Side* side
        cdef uint64_t ready = 0, emitted = 0
        cdef size_t i
        for i in range(self.touched.count // 2):
            if self.connections.at[touched[i].place // 2].phase != RELEASED:
                side = self.find_side(touched[i].place)
                ready += side.ready_bytes
                emitted += side.emitted
        return is_much_new(ready, emitted)

    cdef void note_missing(self, int64_t place) noexcept nogil:
        # Note which bytes of a connection are missing after a packet.
        cdef Connection* connection = &self.connections.at[place]
        cdef Side* side
        cdef int source
        for source in range(2):
            side = &connection.side[source]
            if begin_missing(&self.progress, connection, side) and not side.is_listed:
                side.is_listed = True
                if not push(&self.missing, 2 * place + source):
                    self.out_of_memory = True
                if self.missing.count > 2 * self.checked_missing + SHORT_LIST:
                    self.has_missing()

    cdef bint has_missing(self) noexcept nogil:
        # Return whether bytes are missing for which all connections wait. Forget the directions of
        # the list that have no missing bytes.
        cdef size_t i, kept = 0
        cdef Side* side
        cdef bint waits = False
        for i in range(self.missing.count):
            side = self.find_side(self.missing.at[i])
            side.is_listed = side.is_listed and side.is_missing
            if side.is_listed:
                self.missing.at[kept] = self.missing.at[i]
                kept += 1
                waits |= lets_all_wait(&self.progress, side, self.nodes.held_limit)
        self.missing.count = self.checked_missing = kept
        return waits

    cdef bint is_taken(self, int64_t place, bint everything, bint together,
                       bint released) noexcept nogil:
        # Return whether `take` returns the bytes of a direction. It returns both directions of a
        # connection or none, because a response must not come before the end of its request. So
        # both wait for missing bytes of one, up to a limit: see missing_bytes.pxd.
        cdef const Connection* connection = &self.connections.at[place // 2]
        cdef const Side* side
        cdef uint64_t ready = 0, emitted = 0
        cdef int i
        if (connection.phase == RELEASED) != released or connection.is_role_open:
            return False
        if everything or together:
            return everything
        for i in range(2):
            side = &connection.side[i]
            if lets_side_wait(connection, side, self.nodes.held_limit):
                return False
            if side.is_touched:
                ready += side.ready_bytes
                emitted += side.emitted
        return is_much_new(ready, emitted)

    cdef Side* find_side(self, int64_t place) noexcept nogil:
        return &self.connections.at[place // 2].side[place % 2]

    cdef bint write_rows(self, int64_t place, int32_t flow, Rows* rows, Run* run) noexcept nogil:
        # Append the rows of a direction, and the runs of its nodes. Return False for no memory.
        # run: the next node, and where it goes. A row with too many bytes is bad, and the last one.
        cdef const Connection* connection = &self.connections.at[place // 2]
        cdef const Side* side = &connection.side[place % 2]
        cdef uint8_t kind = TO_SERVER if place % 2 == connection.client else TO_CLIENT
        cdef uint64_t expected = side.given
        cdef int64_t run_end = 0
        cdef const Node* node
        cdef bint is_mark
        cdef Stream* row = NULL
        run.node = side.ready
        while run.node != NONE:
            node = &self.nodes.at[run.node]
            if node.position > expected:
                row = self.begin_stream(rows, place, kind, flow, run, expected, node.time)
                if row is NULL:
                    return False
                row.head.fault = LOST
                row.lost = <int64_t>(node.position - expected)
                row = NULL
            is_mark = is_end_mark(side, node)
            if row is NULL and not is_mark:
                row = self.begin_stream(rows, place, kind, flow, run, node.position, node.time)
                if row is NULL:
                    return False
            if run.at >= run_end:
                if not self.begin_run(run):
                    return False
                run_end = run.at + RUN_BYTES
            if not is_mark:
                if node.size > MOST_STREAM_BYTES - row.head.size:
                    rows.bad += 1
                    return True
                row.head.size += node.size
                row.time_end = node.time
                row.segment_count += 1
            expected = node.position + node.size
            run.segment += 1
            run.at += node.size
            run.node = node.next
        return True

    cdef Stream* begin_stream(self, Rows* rows, int64_t place, uint8_t kind, int32_t flow,
                              const Run* run, uint64_t position, int64_t time) noexcept nogil:
        # Append a row of a direction. Return NULL for no memory.
        cdef Stream* row = <Stream*>begin_row(rows, sizeof(Stream))
        if row is NULL or not push(&self.given, place):
            return NULL
        rows.count += 1
        row.head.start = run.at
        row.head.parent = flow
        row.head.kind = kind
        row.position = <int64_t>position
        row.time = time
        row.time_end = time
        row.first_segment = run.segment
        return row

    cdef bint begin_run(self, const Run* run) noexcept nogil:
        # Append a run. Return False for no memory.
        return (push(&self.runs, run.node) and push(&self.runs, run.segment)
                and push(&self.runs, run.at))

    cdef int copy_all(self, Block block, segments) except -1:
        # Copy the bytes of all runs, and write their segments. Threads divide many bytes.
        cdef Py_ssize_t count = self.runs.count // RUN_NUMBERS - 1
        cdef int threads = choose_threads(len(block))
        if count == 0:
            return 0
        ends = np.asarray(<int64_t[:count + 1, :RUN_NUMBERS]>self.runs.at)[:, 2]
        shares = [(0, count)] if threads == 1 else cut_evenly(np.diff(ends), threads)
        run_each([partial(_copy_runs, self, start, stop, block, segments)
                  for start, stop in shares])
        return 0

    cdef void copy_run(self, const Run* run, int64_t end, char* arena,
                       Segment* segments) noexcept nogil:
        # Copy the bytes of a run, and write its segments. end: the first segment after it.
        cdef int64_t i, at = run.at, place = run.node
        cdef const Node* node
        for i in range(run.segment, end):
            node = &self.nodes.at[place]
            if node.next != NONE:
                prefetch_bytes(self.nodes.at[node.next].data, self.nodes.at[node.next].size)
            memcpy(arena + at, node.data, node.size)
            segments[i] = Segment(at, node.time, node.packet, node.ready, node.order,
                                  node.order_of_all)
            at += node.size
            place = node.next

    cdef int note_taken(self, flows, endpoints, const Stream* streams) except -1:
        # Write the connections of the directions that are taken, and note the gaps in their rows.
        # The other directions remain in `touched`.
        cdef Direction* touched = <Direction*>self.touched.at
        cdef Flow[::1] rows = flows.view(flow_struct)
        cdef uint8_t[:, ::1] ends = endpoints
        cdef size_t i, kept = 0, row = 0
        cdef int32_t flow = -1
        cdef int64_t place, previous = -1
        cdef Side* side
        for i in range(self.touched.count // 2):
            place = touched[i].place
            side = self.find_side(place)
            if not side.is_taken:
                touched[kept] = touched[i]
                kept += 1
                continue
            side.is_touched = False
            while row < self.given.count and self.given.at[row] == place:
                if streams[row].head.fault != LOST:
                    side.given = streams[row].position
                row += 1
            if place // 2 != previous:
                previous = place // 2
                flow += 1
                write_flow(&self.connections.at[previous], &rows[flow], &ends[flow, 0], flow)
        self.touched.count = 2 * kept
        return 0

    cdef void free_wholes(self) noexcept:
        cdef size_t i
        for i in range(self.wholes.count):
            free(<void*><size_t>self.wholes.at[i])
        self.wholes.count = 0

    cdef void follow_fragment(self, const Packet* packet, const uint8_t* start,
                              int32_t row) noexcept nogil:
        # Hold a fragment. Follow the packet of TCP that it completes.
        cdef Datagram* datagram
        cdef Endpoints ends
        cdef Packet whole
        cdef uint8_t* data
        if not has_places(packet):
            return
        datagram = add_fragment(&self.fragments, packet, start, self.progress.time)
        self.out_of_memory |= self.fragments.out_of_memory
        if datagram is NULL:
            return
        whole = packet[0]
        data = take_datagram(&self.fragments, datagram, &whole, self.progress.time)
        if (read_datagram(&whole, data, data + ENDS, datagram.size) != OK
                or not is_followed(&whole)):
            free(data)
            return
        if not push(&self.wholes, <int64_t><size_t>data):
            self.out_of_memory = True
            free(data)
            return
        read_endpoints(&ends, &self.connections, &whole, data + whole.head.start)
        self.follow(&whole, data + whole.head.start, &ends, row)

    cdef void follow(self, const Packet* packet, const uint8_t* start, const Endpoints* ends,
                     int32_t row) noexcept nogil:
        # Follow one packet of TCP. start: its bytes. row: its number in the table of packets.
        cdef Connection* connection
        cdef int source = ends.source
        cdef int64_t place = find_connection(&self.connections, ends)
        if place >= 0 and begins_again(&self.connections.at[place], packet, source):
            hide_connection(&self.connections, place)
            if self.releases:
                refresh(&self.connections, place, ENDED, &self.clock, self.packets)
            place = -1
        if place < 0:
            place = add_connection(&self.connections, ends, packet, row)
            if place < 0:
                self.out_of_memory = True
                return
            if self.releases:
                join_list(&self.connections, place)
            if self.connections.at[place].begun_earlier and not packet.flags & SYN:
                begin_roles(&self.roles, &self.connections.at[place])
        connection = &self.connections.at[place]
        if connection.is_role_open and packet.payload_size > 0:
            follow_roles(&self.roles, connection, source, start + packet.payload_at,
                         packet.payload_size)
        connection.time_end = max(connection.time_end, packet.time)
        connection.packet_end = self.packets
        expire(&self.progress, connection, self.nodes.held_limit)
        if packet.payload_size > 0:
            connection.arrived += packet.payload_size
            self.progress.arrived += packet.payload_size
        follow_flags(connection, packet, source)
        self.follow_bytes(place, packet, start, source)
        self.give_up_acknowledged(place, packet.time)
        follow_end(connection)
        self.note_missing(place)
        if self.releases:
            refresh(&self.connections, place, ENDED if has_ended(connection) else CURRENT,
                    &self.clock, self.packets)

    cdef void follow_bytes(self, int64_t place, const Packet* packet, const uint8_t* start,
                           int source) noexcept nogil:
        # Add the new bytes of a packet to its direction.
        cdef Side* side = &self.connections.at[place].side[source]
        cdef uint32_t sequence = packet.sequence + (1 if packet.flags & SYN else 0)
        cdef int64_t away = measure_distance(side, sequence)
        cdef int64_t position = <int64_t>side.position + away
        cdef int64_t size = packet.payload_size
        cdef const uint8_t* data = start + packet.payload_at
        if position >= 0 and away < WINDOW and not packet.flags & (SYN | RST):
            side.sent = max(side.sent, <uint64_t>position + packet.payload_length)
        if packet.flags & FIN and not side.has_fin and position >= 0 and away < WINDOW:
            side.has_fin = True
            side.fin_position = <uint64_t>position + packet.payload_length
        if size > 0 and away < WINDOW and position + size > <int64_t>side.position:
            self.make_room(place, source, position + size)
        if size > 0:
            if position + size <= <int64_t>side.position:
                side.repeated += size
                side.retransmissions += 1
            elif away < WINDOW:
                if position < <int64_t>side.position:
                    side.repeated += side.position - position
                    data += side.position - position
                    size -= side.position - position
                    position = side.position
                if position == <int64_t>side.position and side.held == NONE:
                    append(&self.nodes, side, make_node(&self.nodes, packet.time, self.packets,
                                                        data, position, <uint32_t>size))
                    self.touch(place, source)
                elif self.nodes.steps <= self.nodes.allowed_steps:
                    if hold(&self.nodes, side, packet, self.packets, data, position, size) == 0:
                        side.retransmissions += 1
                    if move_held(&self.nodes, side):
                        self.touch(place, source)

    cdef void make_room(self, int64_t place, int source, uint64_t stop) noexcept nogil:
        # Give up missing bytes until the held ones up to `stop` are within the limit.
        cdef Side* side = &self.connections.at[place].side[source]
        while not has_room(&self.nodes, side, stop):
            give_up_missing(&self.nodes, side, self.nodes.at[side.held].position + 1)
            self.touch(place, source)

    cdef void give_up_acknowledged(self, int64_t place, int64_t time) noexcept nogil:
        # Give up missing bytes that the receiver has for some packets, or for some time.
        cdef Side* side
        cdef int source
        cdef bint is_waiting
        cdef uint64_t stop = 0
        for source in range(2):
            side = &self.connections.at[place].side[source]
            if side.held == NONE:
                stop = find_shown_end(side)
                is_waiting = stop > side.position
            else:
                is_waiting = self.nodes.at[side.held].position < side.acknowledged
            if not is_waiting:
                side.waited = 0
                continue
            if side.waited == 0:
                side.waiting_since = time
            side.waited += 1
            if side.waited > PATIENCE_PACKETS or time - side.waiting_since > PATIENCE:
                if side.held == NONE:
                    give_up_tail(side, stop)
                elif give_up_missing(&self.nodes, side, side.acknowledged):
                    self.touch(place, source)
                side.waited = 0

    cdef void touch(self, int64_t place, int source) noexcept nogil:
        # Note that a direction has new bytes in order.
        cdef Side* side = &self.connections.at[place].side[source]
        cdef Side* other = &self.connections.at[place].side[1 - source]
        if side.is_touched:
            return
        side.is_touched = True
        # A response must not be read before its request, which may wait for the keys of TLS.
        if other.is_kept or 0 < other.ready_bytes <= SMALL:
            self.touch(place, 1 - source)
        if not (push(&self.touched, 2 * self.connections.at[place].number + source)
                and push(&self.touched, 2 * place + source)):
            self.out_of_memory = True


def _copy_runs(Assembler assembler not None, size_t start, size_t stop, Block block not None,
               Segment[::1] segments):
    # Copy the bytes of some runs, on any thread. They are inside the list of runs.
    cdef const Run* runs = <const Run*>assembler.runs.at
    cdef size_t i
    with nogil:
        for i in range(start, stop):
            assembler.copy_run(&runs[i], runs[i + 1].segment, block.at, &segments[0])


cdef inline void prefetch_bytes(const uint8_t* at, uint32_t size) noexcept nogil:
    # Prefetch the bytes of a packet, at most the first PREFETCH_BYTES.
    cdef const uint8_t* end = at + min(size, <uint32_t>PREFETCH_BYTES)
    while at < end:
        prefetch(at)
        at += CACHE_LINE


cpdef inline bint is_much_new(uint64_t ready, uint64_t emitted) noexcept nogil:
    """Return whether bytes are given again: few of them are ready, or enough of them are new.

    ready: all bytes. emitted: those that were given before.
    """
    return ready <= SMALL or ready - emitted >= emitted // AGAIN


cdef inline void look_ahead(const Packet* packets, Py_ssize_t count, Py_ssize_t next,
                            const Readable* readable, const ConnectionTable* connections,
                            Endpoints* ends) noexcept nogil:
    # Read the endpoints of a packet that is followed soon, and prefetch what such packets need.
    # next: the packet that is followed next, negative before the first one.
    cdef Py_ssize_t i = next + PREFETCH_PACKETS
    if i < count:
        prefetch(find_start(&packets[i], readable) + 32)    # the addresses are in these bytes
    i = next + PREFETCH_SLOTS
    if 0 <= i < count and is_followed(&packets[i]):
        read_endpoints(&ends[i & RING_MASK], connections, &packets[i],
                       find_start(&packets[i], readable))
    i = next + PREFETCH_CONNECTIONS
    if 0 <= i < count and is_followed(&packets[i]):
        prefetch_connection(connections, &ends[i & RING_MASK])


cdef inline const uint8_t* find_start(const Packet* packet,
                                      const Readable* readable) noexcept nogil:
    # Return the address of the first byte of a packet.
    return readable[packet.head.buffer].at + packet.head.start


cdef inline bint is_followed(const Packet* packet) noexcept nogil:
    # Return whether a packet is one of TCP, whose addresses are inside it.
    return packet.head.kind == TCP and not packet.head.fault and has_places(packet)


cdef inline bint has_places(const Packet* packet) noexcept nogil:
    # Return whether the addresses and the payload of a packet are inside it.
    cdef const Head* head = &packet.head
    return (holds(head, packet.source_address_at, packet.source_address_size)
            and holds(head, packet.destination_address_at, packet.destination_address_size)
            and holds(head, packet.payload_at, packet.payload_size)
            and packet.source_address_size in (4, ADDRESS)
            and packet.destination_address_size == packet.source_address_size)


cdef inline uint64_t count_owned(const NodeArena* nodes, const Connection* connection) noexcept:
    # Return the memory of the copies that a connection without held bytes has.
    cdef uint64_t size = 0
    cdef int source
    cdef int32_t i
    for source in range(2):
        i = connection.side[source].ready
        while i != NONE:
            if nodes.at[i].owned is not NULL:
                size += nodes.at[i].size + NODE_COST
            i = nodes.at[i].next
    return size


cdef inline bint holds(const Head* head, uint32_t at, int32_t size) noexcept nogil:
    # Return whether a place is inside its frame. Rows may come from a user.
    return size >= 0 and <uint64_t>at + <uint64_t>size <= head.size


cdef void write_flow(const Connection* connection, Flow* row, uint8_t* endpoints,
                     size_t number) noexcept nogil:
    # Fill the row of a connection, and its addresses.
    cdef const Side* client = &connection.side[connection.client]
    cdef const Side* server = &connection.side[1 - connection.client]
    cdef int32_t size = 4 if connection.key.version == 4 else ADDRESS
    memcpy(endpoints, connection.key.address[connection.client], ADDRESS)
    memcpy(endpoints + ADDRESS, connection.key.address[1 - connection.client], ADDRESS)
    row.head.start = <int64_t>(number * 2 * ADDRESS)
    row.head.size = 2 * ADDRESS
    row.head.parent = connection.first_packet
    row.head.kind = connection.state
    row.connection = connection.number
    row.time = connection.time
    row.time_end = connection.time_end
    row.handshake = connection.handshake
    row.bytes_to_server = client.position - client.lost
    row.bytes_to_client = server.position - server.lost
    row.lost_to_server = client.lost
    row.lost_to_client = server.lost
    row.repeated_to_server = client.repeated
    row.repeated_to_client = server.repeated
    row.packets_to_server = <uint32_t>client.packets
    row.packets_to_client = <uint32_t>server.packets
    row.retransmissions_to_server = client.retransmissions
    row.retransmissions_to_client = server.retransmissions
    row.client_address_size = size
    row.server_address_at = ADDRESS
    row.server_address_size = size
    row.client_port = connection.key.port[connection.client]
    row.server_port = connection.key.port[1 - connection.client]
    row.is_begun_earlier = (connection.begun_earlier
                            or client.is_started and client.lacks_start
                            or server.is_started and server.lacks_start)
