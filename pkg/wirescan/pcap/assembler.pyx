# cython: boundscheck=False, wraparound=False
"""Follows TCP connections through the packets of a capture, and puts their bytes in order.

`formats.py` makes tables of the results, and `frames_of_captures.py` reads a capture in pieces.

Each direction of a connection has two lists of nodes. A node is the new bytes of one packet.
`ready` has the bytes that follow each other. `held` has bytes that came too early, by position.

    packet of a sequence number      what becomes of its bytes
    the next one                     go to `ready`, and held bytes that follow them too
    an earlier one                   repeated bytes are dropped and counted
    a later one                      are held; where held bytes overlap, `policy` decides

Bytes are lost if the receiver acknowledged bytes after them, and they do not come within 64 packets
of the connection and one second: captures may have packets in another order than the receiver. Then
the held bytes become ready, and the positions in the list have a gap. What is still missing at the
end of the capture is lost too.

All work is linear. The walk to the place of a held node is charged to a budget that each packet
extends. Beyond it, and beyond the limit on held bytes, a packet counts as lost.

Format: RFC 9293. Which bytes win where segments overlap differs between receivers, so it is an
argument.
"""
import os

import numpy as np

from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset
from wirescan.core cimport (
    LOST, Head, Readable, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t)
from wirescan.core.loop import flat, lie_inside
from wirescan.core.rows cimport Block
from wirescan.core.rows import addresses
from wirescan.pcap.tcp_connection cimport (
    ACK, ADDRESS, COMPLETE, Connection, FIN, Key, NONE, Node, OPEN, RESET, RST, SYN, Side)
from wirescan.pcap.rows cimport Flow, Packet, Segment, Stream, TCP, TO_CLIENT, TO_SERVER
from wirescan.pcap.scan import PACKET

cdef Flow _flow
cdef Stream _stream
cdef Segment _segment
FLOW = flat(np.asarray(<Flow[:1]>&_flow).dtype)
STREAM = flat(np.asarray(<Stream[:1]>&_stream).dtype)
SEGMENT = np.asarray(<Segment[:1]>&_segment).dtype
cdef object flow_struct = np.asarray(<Flow[:1]>&_flow).dtype
cdef object stream_struct = np.asarray(<Stream[:1]>&_stream).dtype
ENDPOINTS = 2 * ADDRESS         # bytes of the two addresses of a flow, the client's first

cdef enum:
    FIRST_SLOTS = 1 << 10
    STEPS_PER_PACKET = 64       # steps to the places of held nodes that each packet allows
    FREE_STEPS = 1 << 20
    SMALL = 1 << 16             # bytes of a direction that are always given again
    AGAIN = 8                   # more bytes are given again when they grew by this part
    WINDOW = 1 << 30            # the largest window of TCP: a later byte is no byte of the stream
    MOST_NODES = 0x7FFFFFF0
    PATIENCE_PACKETS = 64       # of the connection, for which acknowledged bytes may come later
    PATIENCE = 1000000000       # ns, the same


cdef inline uint64_t mix(uint64_t a, uint64_t b) noexcept nogil:
    # Mix two words. The constants are fractions of the golden ratio and the square root of 2.
    a = (a ^ b) * <uint64_t>0x9E3779B97F4A7C15
    a ^= a >> 32
    a *= <uint64_t>0x6A09E667F3BCC909
    return a ^ (a >> 29)


cdef inline uint64_t hash_key(const Key* key, uint64_t seed) noexcept nogil:
    cdef uint64_t word, h = seed
    cdef size_t i
    for i in range(sizeof(Key) // 8):
        memcpy(&word, <const char*>key + 8 * i, 8)
        h = mix(h, word)
    return mix(h, seed)


# A list of numbers that grows.
cdef struct Numbers:
    int64_t* at
    size_t count
    size_t capacity


cdef bint push(Numbers* numbers, int64_t number) noexcept nogil:
    # Append a number. Return False where there is no memory.
    cdef size_t capacity
    cdef void* memory
    if numbers.count == numbers.capacity:
        capacity = numbers.capacity * 2 + 64
        memory = realloc(numbers.at, capacity * sizeof(int64_t))
        if memory is NULL:
            return False
        numbers.at = <int64_t*>memory
        numbers.capacity = capacity
    numbers.at[numbers.count] = number
    numbers.count += 1
    return True


cdef int compare_numbers(const void* a, const void* b) noexcept nogil:
    cdef int64_t first = (<const int64_t*>a)[0], second = (<const int64_t*>b)[0]
    return (first > second) - (first < second)


cdef class Assembler:
    """Connections and their bytes: Assembler(policy, held=64 << 20).

    policy: which bytes win where held segments overlap: the "first" or the "last" that came.
    held: bytes out of order that one direction may hold.

    Raises TypeError and ValueError for another policy.
    """
    cdef Connection* connections
    cdef size_t count, capacity
    cdef int32_t* slots
    cdef size_t slot_count
    cdef Node* nodes
    cdef int32_t node_count, node_capacity, free_node
    cdef Numbers touched            # 2 * connection + side, of directions with new bytes
    cdef Numbers given              # the same for each row of streams of the last `take`
    cdef Numbers borrowed           # nodes whose bytes are in the caller's buffers
    cdef uint64_t seed
    cdef uint64_t steps, allowed_steps
    cdef uint64_t held_limit
    cdef bint last_wins, out_of_memory
    cdef readonly int64_t packets   # of the capture so far

    def __cinit__(self, policy, held=64 << 20):
        if not isinstance(policy, str):
            raise TypeError(f"policy must be a str, not {policy!r}")
        if policy not in ("first", "last"):
            raise ValueError(f"policy must be first or last, not {policy!r}")
        self.last_wins = policy == "last"
        self.held_limit = held
        # Nobody outside knows the seed, so no capture can be made whose connections collide.
        self.seed = <uint64_t>int.from_bytes(os.urandom(8), "little")
        self.free_node = NONE
        self.slot_count = FIRST_SLOTS
        self.slots = <int32_t*>malloc(self.slot_count * sizeof(int32_t))
        if self.slots is NULL:
            raise MemoryError("no memory for connections")
        memset(self.slots, 0xFF, self.slot_count * sizeof(int32_t))
        self.allowed_steps = FREE_STEPS

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.node_count):
            free(self.nodes[i].owned)
        free(self.nodes)
        free(self.slots)
        free(self.connections)
        free(self.touched.at)
        free(self.given.at)
        free(self.borrowed.at)

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
            for i in range(n):
                self.packets += 1
                self.allowed_steps += STEPS_PER_PACKET
                if packet[i].head.kind == TCP and packet[i].head.fault == 0:
                    self.follow(&packet[i], readable[packet[i].head.buffer].at, <int32_t>i)
                if self.out_of_memory:
                    break
        if self.out_of_memory:
            raise MemoryError(f"no memory for more than {self.count} connections")

    def finish(self):
        """End the capture: held bytes become ready, and what is missing before them is lost.

        The next `take` gives all bytes that were not released.
        """
        cdef size_t i
        cdef int side
        with nogil:
            for i in range(self.count):
                for side in range(2):
                    self.give_up_missing(i, side, <uint64_t>-1)
                    if self.connections[i].side[side].ready != NONE:
                        self.touch(i, side)

    def take(self, *, everything=True):
        """Return the bytes in order that were not released: (flows, endpoints, streams, bytes,
        segments).

        flows: array of dtype FLOW, the connections of these bytes. endpoints: their addresses.
        streams: array of dtype STREAM. `parent` is the row of the flow. A row with the fault LOST
        stands for bytes that the capture does not have. bytes: a Block, which the streams point
        into. segments: array of dtype SEGMENT, the packets of these bytes.

        everything: False leaves bytes for later where many were given before, and few are new.

        Raises MemoryError, OverflowError where a stream has 4 GiB without a gap.
        """
        cdef size_t i, rows = 0, nodes = 0, given = 0, flow_count = 0
        cdef uint64_t size = 0, largest = 0
        cdef int64_t previous = -1
        cdef Side* side
        if self.touched.count:
            qsort(self.touched.at, self.touched.count, sizeof(int64_t), compare_numbers)
        for i in range(self.touched.count):
            side = self.find_side(self.touched.at[i])
            if not everything and side.ready_bytes > SMALL and (
                    side.ready_bytes - side.emitted < side.emitted // AGAIN):
                continue
            given += 1
            rows += self.count_rows(side, &nodes, &largest)
            size += side.ready_bytes
            flow_count += self.touched.at[i] // 2 != previous
            previous = self.touched.at[i] // 2
        if largest > <uint64_t>0xFFFFFFFF:
            raise OverflowError(f"a stream has {largest} bytes without a gap")
        block = Block(size)
        flows = np.zeros(flow_count, FLOW)
        endpoints = np.zeros((flow_count, ENDPOINTS), np.uint8)
        streams = np.zeros(rows, STREAM)
        segments = np.empty(nodes, SEGMENT)
        self.write_all(flows, endpoints, streams, block, segments, everything)
        return flows, endpoints, streams, block, segments

    def list_flows(self):
        """Return all connections: an array of dtype FLOW, and their addresses."""
        cdef size_t i
        cdef Flow[::1] rows
        cdef uint8_t[:, ::1] ends
        flows = np.zeros(self.count, FLOW)
        endpoints = np.zeros((self.count, ENDPOINTS), np.uint8)
        if self.count:
            rows = flows.view(flow_struct)
            ends = endpoints
            for i in range(self.count):
                write_flow(&self.connections[i], &rows[i], &ends[i, 0], i)
        return flows, endpoints

    def release(self, consumed):
        """Forget bytes that `take` returned, and copy those that are needed later.

        consumed: int64 array, the number of bytes that are not needed any more, for each row of
        streams of the last `take`. The others are given again, with the bytes that follow. A row
        that another one of the same direction follows is not needed any more.

        Afterwards the buffers of `feed` may be freed.

        Raises ValueError for another number of rows, MemoryError.
        """
        cdef const int64_t[::1] counts = np.ascontiguousarray(consumed, np.int64)
        cdef size_t i
        cdef int32_t n
        cdef Side* side
        cdef Node* node
        cdef char* copy
        if <size_t>len(counts) != self.given.count:
            raise ValueError(f"{len(counts)} numbers for {self.given.count} rows")
        for i in range(self.given.count):
            side = self.find_side(self.given.at[i])
            if i + 1 < self.given.count and self.given.at[i + 1] == self.given.at[i]:
                self.drop_piece(side)
            else:
                self.drop(side, max(counts[i], 0))
                side.emitted = side.ready_bytes
        self.given.count = 0
        for i in range(self.borrowed.count):
            n = <int32_t>self.borrowed.at[i]
            node = &self.nodes[n]
            if node.size == 0 or node.owned is not NULL:
                continue
            copy = <char*>malloc(node.size)
            if copy is NULL:
                raise MemoryError("no memory for bytes that wait for others")
            memcpy(copy, node.data, node.size)
            node.owned = copy
            node.data = <const uint8_t*>copy
        self.borrowed.count = 0

    cdef Side* find_side(self, int64_t number) noexcept nogil:
        return &self.connections[number // 2].side[number % 2]

    cdef size_t count_rows(self, const Side* side, size_t* nodes, uint64_t* largest) noexcept nogil:
        # Return the number of rows for the ready bytes of a direction. Add the number of its nodes.
        cdef int32_t i = side.ready
        cdef uint64_t expected = side.given, piece = 0
        cdef size_t rows = 0
        cdef bint begins = True
        while i != NONE:
            if self.nodes[i].position > expected:
                rows += 1
                begins = True
            if begins:
                rows += 1
                piece = 0
                begins = False
            piece += self.nodes[i].size
            largest[0] = max(largest[0], piece)
            expected = self.nodes[i].position + self.nodes[i].size
            nodes[0] += 1
            i = self.nodes[i].next
        return rows

    cdef int write_all(self, flows, endpoints, streams, Block block, segments,
                       bint everything) except -1:
        # Fill the arrays of `take`.
        cdef Flow[::1] flow_rows
        cdef Stream[::1] rows
        cdef Segment[::1] parts
        cdef uint8_t[:, ::1] ends
        cdef size_t i, kept = 0, row = 0, part = 0
        cdef uint64_t at = 0
        cdef int32_t flow = -1
        cdef int64_t number, previous = -1
        cdef Side* side
        if not len(streams):
            self.given.count = 0
            return 0
        flow_rows = flows.view(flow_struct)
        rows = streams.view(stream_struct)
        parts = segments
        ends = endpoints
        self.given.count = 0
        for i in range(self.touched.count):
            number = self.touched.at[i]
            side = self.find_side(number)
            if not everything and side.ready_bytes > SMALL and (
                    side.ready_bytes - side.emitted < side.emitted // AGAIN):
                self.touched.at[kept] = number
                kept += 1
                continue
            side.is_touched = False
            if number // 2 != previous:
                previous = number // 2
                flow += 1
                write_flow(&self.connections[previous], &flow_rows[flow], &ends[flow, 0], flow)
            if not self.write_side(number, flow, &rows[0], &row, &parts[0], &part, block.at, &at):
                raise MemoryError("no memory for the numbers of streams")
        self.touched.count = kept
        return 0

    cdef bint write_side(self, int64_t number, int32_t flow, Stream* rows, size_t* row,
                         Segment* parts, size_t* part, char* arena, uint64_t* at) noexcept nogil:
        # Write the rows, the bytes and the segments of a direction. Return False for no memory.
        cdef Connection* connection = &self.connections[number // 2]
        cdef Side* side = &connection.side[number % 2]
        cdef uint8_t kind = TO_SERVER if number % 2 == connection.client else TO_CLIENT
        cdef uint64_t expected = side.given
        cdef int32_t i = side.ready
        cdef Node* node
        cdef Stream* out = NULL
        while i != NONE:
            node = &self.nodes[i]
            if node.position > expected:
                out = &rows[row[0]]
                row[0] += 1
                begin_stream(out, kind, flow, at[0], expected, node.time, part[0])
                out.head.fault = LOST
                out.lost = <int64_t>(node.position - expected)
                out = NULL
                if not push(&self.given, number):
                    return False
            if out is NULL:
                out = &rows[row[0]]
                row[0] += 1
                begin_stream(out, kind, flow, at[0], node.position, node.time, part[0])
                side.given = node.position
                if not push(&self.given, number):
                    return False
            memcpy(arena + at[0], node.data, node.size)
            parts[part[0]] = Segment(<int64_t>at[0], node.time, node.packet)
            part[0] += 1
            at[0] += node.size
            out.head.size += node.size
            out.time_end = node.time
            out.segment_count += 1
            expected = node.position + node.size
            i = node.next
        return True

    cdef void drop(self, Side* side, uint64_t size) noexcept nogil:
        # Remove the first bytes of the list `ready`.
        cdef Node* node
        while size and side.ready != NONE:
            node = &self.nodes[side.ready]
            if size < node.size:
                node.data += size
                node.position += size
                node.size -= <uint32_t>size
                side.ready_bytes -= size
                side.given = node.position
                side.dropped = node.position
                return
            size -= node.size
            side.given = node.position + node.size
            self.drop_node(side)

    cdef void drop_piece(self, Side* side) noexcept nogil:
        # Remove the first bytes of the list `ready` up to a gap. The row of a gap has no bytes.
        cdef uint64_t expected
        if side.ready == NONE or self.nodes[side.ready].position > side.dropped:
            if side.ready != NONE:
                side.dropped = self.nodes[side.ready].position
            return
        expected = self.nodes[side.ready].position
        while side.ready != NONE and self.nodes[side.ready].position == expected:
            expected += self.nodes[side.ready].size
            self.drop_node(side)
        side.dropped = expected

    cdef void drop_node(self, Side* side) noexcept nogil:
        # Remove the first node of the list `ready`.
        cdef int32_t i = side.ready
        cdef Node* node = &self.nodes[i]
        side.ready = node.next
        if side.ready == NONE:
            side.ready_last = NONE
        side.ready_bytes -= node.size
        side.dropped = node.position + node.size
        free(node.owned)
        node.owned = NULL
        node.size = 0
        node.next = self.free_node
        self.free_node = i

    cdef void follow(self, const Packet* packet, const uint8_t* base, int32_t row) noexcept nogil:
        # Follow one packet of TCP, if its addresses are inside it.
        cdef const uint8_t* start = base + packet.head.start
        cdef Connection* connection
        cdef Key key
        cdef int source
        cdef int64_t number
        cdef const Head* head = &packet.head
        if not (holds(head, packet.source_address_at, packet.source_address_size)
                and holds(head, packet.destination_address_at, packet.destination_address_size)
                and holds(head, packet.payload_at, packet.payload_size)
                and packet.source_address_size in (4, ADDRESS)
                and packet.destination_address_size == packet.source_address_size):
            return
        source = make_key(&key, packet, start)
        number = self.find(&key)
        if number < 0 or begins_again(&self.connections[number], packet, source):
            number = self.add(&key, packet, source, row)
            if number < 0:
                return
        connection = &self.connections[number]
        connection.time_end = max(connection.time_end, packet.time)
        self.follow_flags(connection, packet, source)
        self.follow_bytes(number, packet, start, source)
        self.settle(number, packet.time)

    cdef int64_t find(self, const Key* key) noexcept nogil:
        # Return the number of the latest connection of these endpoints, or -1.
        cdef int32_t i = self.slots[hash_key(key, self.seed) & (self.slot_count - 1)]
        while i >= 0:
            if memcmp(&self.connections[i].key, key, sizeof(Key)) == 0:
                return i
            i = self.connections[i].next
        return -1

    cdef int64_t add(self, const Key* key, const Packet* packet, int source,
                     int32_t row) noexcept nogil:
        # Add a connection, which begins with this packet. Return its number, or -1 for no memory.
        cdef Connection* connection
        cdef size_t slot
        cdef uint16_t syn = packet.flags & (SYN | ACK)
        cdef int side
        if not self.reserve_connection():
            self.out_of_memory = True
            return -1
        slot = hash_key(key, self.seed) & (self.slot_count - 1)
        connection = &self.connections[self.count]
        memset(connection, 0, sizeof(Connection))
        connection.key = key[0]
        connection.number = self.count
        connection.time = connection.time_end = packet.time
        connection.handshake = -1
        connection.first_packet = row
        connection.state = OPEN
        connection.begun_earlier = syn != SYN
        if syn == SYN:
            connection.client = source
            connection.syn_time = packet.time
            connection.syn_sequence = packet.sequence
        elif syn == SYN | ACK:
            connection.client = 1 - source
        elif key.port[0] != key.port[1]:
            # Servers listen on low ports.
            connection.client = 0 if key.port[0] > key.port[1] else 1
        else:
            connection.client = source
        for side in range(2):
            connection.side[side].ready = connection.side[side].ready_last = NONE
            connection.side[side].held = connection.side[side].held_last = NONE
        connection.next = self.slots[slot]
        self.slots[slot] = <int32_t>self.count
        self.count += 1
        return self.count - 1

    cdef bint reserve_connection(self) noexcept nogil:
        cdef size_t capacity
        cdef void* memory
        cdef size_t i, slot
        if self.count == self.capacity:
            capacity = self.capacity + self.capacity // 2 + 64
            memory = realloc(self.connections, capacity * sizeof(Connection))
            if memory is NULL or capacity > MOST_NODES:
                return False
            self.connections = <Connection*>memory
            self.capacity = capacity
        if self.count < self.slot_count:
            return True
        memory = realloc(self.slots, 4 * self.slot_count * sizeof(int32_t))
        if memory is NULL:
            return False
        self.slots = <int32_t*>memory
        self.slot_count *= 4
        memset(self.slots, 0xFF, self.slot_count * sizeof(int32_t))
        for i in range(self.count):
            slot = hash_key(&self.connections[i].key, self.seed) & (self.slot_count - 1)
            self.connections[i].next = self.slots[slot]
            self.slots[slot] = <int32_t>i
        return True

    cdef void follow_flags(self, Connection* connection, const Packet* packet,
                           int source) noexcept nogil:
        # Follow the handshake, the acknowledgment and the end of a connection.
        cdef Side* side = &connection.side[source]
        cdef Side* other = &connection.side[1 - source]
        cdef int64_t position
        side.packets += 1
        if packet.flags & SYN and not side.is_started:
            side.is_started = True
            side.next_sequence = packet.sequence + 1
            if packet.flags & ACK:
                connection.is_acknowledging = connection.syn_time != 0
        elif not side.is_started:
            side.is_started = True
            side.next_sequence = packet.sequence
        if packet.flags & ACK:
            if connection.is_acknowledging and source == connection.client and not (
                    packet.flags & SYN):
                connection.is_acknowledging = False
                connection.handshake = packet.time - connection.syn_time
            if other.is_started:
                position = <int64_t>other.position + <int32_t>(
                    packet.acknowledgment - other.next_sequence)
                if position > <int64_t>other.acknowledged:
                    other.acknowledged = <uint64_t>position
        if packet.flags & RST:
            connection.state = RESET

    cdef void follow_bytes(self, int64_t number, const Packet* packet, const uint8_t* start,
                           int source) noexcept nogil:
        # Add the new bytes of a packet to its direction.
        cdef Connection* connection = &self.connections[number]
        cdef Side* side = &connection.side[source]
        cdef uint32_t sequence = packet.sequence + (1 if packet.flags & SYN else 0)
        cdef int64_t away = <int32_t>(sequence - side.next_sequence)
        cdef int64_t position = <int64_t>side.position + away
        cdef int64_t size = packet.payload_size
        cdef const uint8_t* data = start + packet.payload_at
        if packet.flags & FIN and not side.has_fin and position >= 0:
            side.has_fin = True
            side.fin_position = <uint64_t>position + packet.payload_length
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
                    self.append(side, self.make_node(packet, data, position, size))
                    self.touch(number, source)
                elif self.has_room(side, size):
                    self.hold(side, packet, data, position, size)
                    if self.move_held(side):
                        self.touch(number, source)
        if side.has_fin and side.position >= side.fin_position and not side.is_closed:
            side.is_closed = True
            # The FIN itself has a sequence number.
            if connection.side[1 - source].is_closed and connection.state == OPEN:
                connection.state = COMPLETE

    cdef bint has_room(self, const Side* side, int64_t size) noexcept nogil:
        # Return whether a direction may hold more bytes.
        if self.steps > self.allowed_steps:
            return False
        return (side.held == NONE or self.nodes[side.held_last].position
                - self.nodes[side.held].position + size <= self.held_limit)

    cdef int32_t make_node(self, const Packet* packet, const uint8_t* data, uint64_t position,
                           uint32_t size) noexcept nogil:
        # Return the number of a new node; NONE for no memory.
        cdef int32_t i = self.free_node
        cdef void* memory
        cdef int64_t capacity
        if i != NONE:
            self.free_node = self.nodes[i].next
        else:
            if self.node_count == self.node_capacity:
                capacity = <int64_t>self.node_capacity + self.node_capacity // 2 + 256
                memory = (realloc(self.nodes, capacity * sizeof(Node))
                          if capacity < MOST_NODES else NULL)
                if memory is NULL:
                    self.out_of_memory = True
                    return NONE
                self.nodes = <Node*>memory
                self.node_capacity = <int32_t>capacity
            i = self.node_count
            self.node_count += 1
        self.nodes[i] = Node(data, NULL, position, packet.time, self.packets, size, NONE)
        if not push(&self.borrowed, i):
            self.out_of_memory = True
        return i

    cdef void append(self, Side* side, int32_t i) noexcept nogil:
        # Append a node to the bytes in order.
        cdef Node* node
        if i == NONE:
            return
        node = &self.nodes[i]
        node.next = NONE
        if side.ready == NONE:
            side.ready = i
        else:
            self.nodes[side.ready_last].next = i
        side.ready_last = i
        side.next_sequence += <uint32_t>(node.position + node.size - side.position)
        side.position = node.position + node.size
        side.ready_bytes += node.size

    cdef void hold(self, Side* side, const Packet* packet, const uint8_t* data, uint64_t position,
                   uint64_t size) noexcept nogil:
        # Add bytes to the held ones, by position. Bytes that are held already stay, or with
        # `last_wins` are replaced.
        cdef int32_t before = NONE, i = side.held, new
        cdef uint64_t stop = position + size, end
        cdef Node* node
        if side.held != NONE:
            node = &self.nodes[side.held_last]
            if node.position + node.size <= position:
                # Most bytes come after all held ones.
                before = side.held_last
                i = NONE
        while position < stop:
            while i != NONE and self.nodes[i].position + self.nodes[i].size <= position:
                self.steps += 1
                before = i
                i = self.nodes[i].next
            if i == NONE or self.nodes[i].position >= stop:
                end = stop
            elif self.nodes[i].position > position:
                end = self.nodes[i].position
            else:
                # Both have these bytes.
                end = min(stop, self.nodes[i].position + self.nodes[i].size)
                if self.last_wins:
                    self.replace(side, i, data, position, end)
                side.repeated += end - position
                data += end - position
                position = end
                continue
            new = self.make_node(packet, data, position, <uint32_t>(end - position))
            if new == NONE:
                return
            self.insert(side, before, new)
            before = new
            data += end - position
            position = end

    cdef void replace(self, Side* side, int32_t i, const uint8_t* data, uint64_t position,
                      uint64_t stop) noexcept nogil:
        # Replace bytes of a held node by those of a later packet.
        cdef Node* node = &self.nodes[i]
        cdef char* copy = <char*>malloc(node.size)
        if copy is NULL:
            self.out_of_memory = True
            return
        memcpy(copy, node.data, node.size)
        memcpy(copy + (position - node.position), data, stop - position)
        free(node.owned)
        node.owned = copy
        node.data = <const uint8_t*>copy

    cdef void insert(self, Side* side, int32_t before, int32_t i) noexcept nogil:
        # Insert a node after another one, or as the first one, into the held nodes.
        if i == NONE:
            return
        if before == NONE:
            self.nodes[i].next = side.held
            side.held = i
        else:
            self.nodes[i].next = self.nodes[before].next
            self.nodes[before].next = i
        if self.nodes[i].next == NONE:
            side.held_last = i

    cdef bint move_held(self, Side* side) noexcept nogil:
        # Move held bytes that follow the bytes in order. Return whether there were any.
        cdef bint is_moved = False
        cdef int32_t i
        while side.held != NONE and self.nodes[side.held].position == side.position:
            i = side.held
            side.held = self.nodes[i].next
            if side.held == NONE:
                side.held_last = NONE
            self.append(side, i)
            is_moved = True
        return is_moved

    cdef void settle(self, int64_t number, int64_t time) noexcept nogil:
        # Give up missing bytes that the receiver has for some packets, or for some time.
        cdef Side* side
        cdef int source
        for source in range(2):
            side = &self.connections[number].side[source]
            if side.held == NONE or self.nodes[side.held].position >= side.acknowledged:
                side.waited = 0
                continue
            if side.waited == 0:
                side.waiting_since = time
            side.waited += 1
            if side.waited > PATIENCE_PACKETS or time - side.waiting_since > PATIENCE:
                self.give_up_missing(number, source, side.acknowledged)
                side.waited = 0

    cdef void give_up_missing(
        self, int64_t number, int source, uint64_t acknowledged
    ) noexcept nogil:
        # Give up the bytes that are missing before held bytes which the receiver has.
        cdef Side* side = &self.connections[number].side[source]
        cdef bint is_moved = False
        while side.held != NONE and self.nodes[side.held].position < acknowledged:
            side.lost += self.nodes[side.held].position - side.position
            side.next_sequence += <uint32_t>(self.nodes[side.held].position - side.position)
            side.position = self.nodes[side.held].position
            is_moved |= self.move_held(side)
        if is_moved:
            self.touch(number, source)

    cdef void touch(self, int64_t number, int source) noexcept nogil:
        # Note that a direction has new bytes in order.
        cdef Side* side = &self.connections[number].side[source]
        if side.is_touched:
            return
        side.is_touched = True
        if not push(&self.touched, 2 * number + source):
            self.out_of_memory = True


cdef inline bint holds(const Head* head, uint32_t at, int32_t size) noexcept nogil:
    # Return whether a place is inside its frame. Rows may come from a user.
    return size >= 0 and <uint64_t>at + <uint64_t>size <= head.size


cdef inline int make_key(Key* key, const Packet* packet, const uint8_t* start) noexcept nogil:
    # Fill the key of a packet's connection. Return which of its endpoints is the source.
    cdef const uint8_t* source = start + packet.source_address_at
    cdef const uint8_t* destination = start + packet.destination_address_at
    cdef uint32_t size = packet.source_address_size
    cdef int order, side
    memset(key, 0, sizeof(Key))
    order = memcmp(source, destination, size)
    side = 0 if order < 0 or order == 0 and packet.source_port <= packet.destination_port else 1
    memcpy(&key.address[side][0], source, size)
    memcpy(&key.address[1 - side][0], destination, size)
    key.port[side] = packet.source_port
    key.port[1 - side] = packet.destination_port
    key.version = 4 if size == 4 else 6
    return side


cdef inline bint begins_again(const Connection* connection, const Packet* packet,
                              int source) noexcept nogil:
    # Return whether a packet begins another connection of the same endpoints.
    if packet.flags & SYN == 0 or packet.flags & ACK:
        return False
    if not connection.begun_earlier:
        return packet.sequence != connection.syn_sequence   # else it is the same SYN again
    return (connection.state != OPEN or connection.side[0].position > 0
            or connection.side[1].position > 0)


cdef inline void begin_stream(Stream* row, uint8_t kind, int32_t flow, uint64_t start,
                              uint64_t position, int64_t time, size_t segment) noexcept nogil:
    row.head.start = <int64_t>start
    row.head.parent = flow
    row.head.kind = kind
    row.position = <int64_t>position
    row.time = time
    row.time_end = time
    row.first_segment = <int64_t>segment


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
    row.is_begun_earlier = connection.begun_earlier
