# Finds the connection of a packet, by its endpoints, and follows how it begins and ends.
# assembler.pyx uses it.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset
from wirescan.core.grow_memory cimport grow_memory
from wirescan.core cimport be32, prefetch
from wirescan.pcap.rows cimport Packet
from wirescan.pcap.assembly.tcp_connection cimport (
    ACK, ADDRESS, COMPLETE, CURRENT, Connection, FREE, Key, NONE, OPEN, RESET, RST, SYN, Side,
    WINDOW)

cdef enum:
    FIRST_SLOTS = 1 << 10
    MOST_CONNECTIONS = 0x7FFFFFF0

# The longest idle and the latest used connection of a list.
cdef struct AgeList:
    int32_t oldest
    int32_t youngest

# Connections, and a hash table of their endpoints. Connections of one slot are a list.
cdef struct ConnectionTable:
    Connection* at
    size_t count                # places in use, with those of released connections
    size_t capacity
    size_t held                 # connections that are in these places
    int64_t begun               # connections of the capture so far
    int32_t free_place          # first place of the list of those that are used again
    AgeList current             # connections by their last packets: connection_ages.pxd
    AgeList ended
    int32_t* slots
    size_t slot_count
    uint64_t seed

# The endpoints of a packet.
cdef struct Endpoints:
    Key key
    uint64_t hash               # of the key
    int source                  # which of them sent the packet, 0 or 1


cdef inline bint create_table(ConnectionTable* table, uint64_t seed) noexcept nogil:
    # Fill a zeroed table. Return False where there is no memory.
    table.seed = seed
    table.free_place = NONE
    table.current = table.ended = AgeList(NONE, NONE)
    table.slot_count = FIRST_SLOTS
    table.slots = <int32_t*>malloc(table.slot_count * sizeof(int32_t))
    if table.slots is NULL:
        return False
    memset(table.slots, 0xFF, table.slot_count * sizeof(int32_t))
    return True


cdef inline void free_table(ConnectionTable* table) noexcept nogil:
    free(table.slots)
    free(table.at)


cdef inline uint64_t mix(uint64_t a, uint64_t b) noexcept nogil:
    # Mix two words. The constants are fractions of the golden ratio and the square root of 2.
    a = (a ^ b) * <uint64_t>0x9E3779B97F4A7C15
    a ^= a >> 32
    a *= <uint64_t>0x6A09E667F3BCC909
    return a ^ (a >> 29)


cdef inline uint64_t hash_words(const void* words, size_t size, uint64_t seed) noexcept nogil:
    # Hash `size` bytes, a multiple of 8.
    cdef uint64_t word, h = seed
    cdef size_t i
    for i in range(size // 8):
        memcpy(&word, <const char*>words + 8 * i, 8)
        h = mix(h, word)
    return mix(h, seed)


cdef inline uint64_t hash_key(const Key* key, uint64_t seed) noexcept nogil:
    # Each load reads bytes that one store wrote: a processor waits for a load of several stores.
    cdef uint32_t first, second
    cdef uint64_t rest = key.port[0] | <uint64_t>key.port[1] << 16 | <uint64_t>key.version << 32
    cdef uint64_t h
    if key.version == 4:
        memcpy(&first, &key.address[0][0], sizeof(first))
        memcpy(&second, &key.address[1][0], sizeof(second))
        h = mix(seed, first | <uint64_t>second << 32)
    else:
        h = hash_words(&key.address[0][0], 2 * ADDRESS, seed)
    return mix(mix(h, rest), seed)


cdef inline bint are_equal(const Key* first_key, const Key* second_key) noexcept nogil:
    # Compare words: a key has 40 bytes and no padding. A call of memcmp takes longer.
    cdef uint64_t first, second, difference = 0
    cdef size_t at
    for at in range(0, sizeof(Key), 8):
        memcpy(&first, <const char*>first_key + at, 8)
        memcpy(&second, <const char*>second_key + at, 8)
        difference |= first ^ second
    return difference == 0


cdef inline int compare_addresses(const uint8_t* source, const uint8_t* destination,
                                  uint32_t size) noexcept nogil:
    # Return a negative number, 0 or a positive number, as memcmp.
    cdef uint32_t first, second
    if size == 4:
        first = be32(source)
        second = be32(destination)
        return <int>(first > second) - <int>(first < second)
    return memcmp(source, destination, size)


cdef inline void store_address(uint8_t* at, const uint8_t* address, uint32_t size) noexcept nogil:
    # Fill ADDRESS bytes, with zeros after the address. size: 4 or ADDRESS.
    cdef uint64_t word = 0
    if size == 4:
        memcpy(&word, address, 4)
        memcpy(at, &word, 8)
        memset(at + 8, 0, 8)
    else:
        memcpy(at, address, ADDRESS)


cdef inline int make_key(Key* key, const Packet* packet, const uint8_t* start) noexcept nogil:
    # Fill the key of a packet's connection. Return which of its endpoints is the source.
    cdef const uint8_t* source = start + packet.source_address_at
    cdef const uint8_t* destination = start + packet.destination_address_at
    cdef uint32_t size = packet.source_address_size
    cdef int order = compare_addresses(source, destination, size)
    cdef int side = (
        0 if order < 0 or order == 0 and packet.source_port <= packet.destination_port else 1)
    store_address(&key.address[side][0], source, size)
    store_address(&key.address[1 - side][0], destination, size)
    key.port[side] = packet.source_port
    key.port[1 - side] = packet.destination_port
    key.version = 4 if size == 4 else 6
    memset(&key.reserved[0], 0, sizeof(key.reserved))
    return side


cdef inline void read_endpoints(Endpoints* ends, const ConnectionTable* table,
                                const Packet* packet, const uint8_t* start) noexcept nogil:
    # Read the endpoints of a packet, and prefetch the slot of their connection.
    ends.source = make_key(&ends.key, packet, start)
    ends.hash = hash_key(&ends.key, table.seed)
    prefetch(<const uint8_t*>find_slot(table, ends.hash))


cdef inline void prefetch_connection(const ConnectionTable* table,
                                     const Endpoints* ends) noexcept nogil:
    # Prefetch the connection that is probably that of these endpoints.
    cdef int32_t i = find_slot(table, ends.hash)[0]
    if i >= 0:
        prefetch(<const uint8_t*>&table.at[i])


cdef inline int32_t* find_slot(const ConnectionTable* table, uint64_t hash) noexcept nogil:
    # Return the slot of a hash: the first connection of its list.
    return &table.slots[hash & (table.slot_count - 1)]


cdef inline int64_t find_connection(const ConnectionTable* table,
                                    const Endpoints* ends) noexcept nogil:
    # Return the place of the latest connection of these endpoints, or -1.
    cdef int32_t i = find_slot(table, ends.hash)[0]
    while i >= 0:
        if are_equal(&table.at[i].key, &ends.key):
            return i
        i = table.at[i].next
    return -1


cdef inline void hide_connection(ConnectionTable* table, int64_t place) noexcept nogil:
    # Remove a connection from the hash table: no packet belongs to it any more.
    cdef Connection* connection = &table.at[place]
    cdef int32_t* link
    if not connection.is_findable:
        return
    connection.is_findable = False
    link = find_slot(table, hash_key(&connection.key, table.seed))
    while link[0] != <int32_t>place:
        link = &table.at[link[0]].next
    link[0] = connection.next


cdef inline int64_t add_connection(ConnectionTable* table, const Endpoints* ends,
                                   const Packet* packet, int32_t row) noexcept nogil:
    # Add a connection, which begins with this packet. Return its place, or -1 for no memory.
    cdef Connection* connection
    cdef uint16_t syn = packet.flags & (SYN | ACK)
    cdef int side, source = ends.source
    cdef int32_t place = reserve_connection(table)
    if place == NONE:
        return -1
    connection = &table.at[place]
    memset(connection, 0, sizeof(Connection))
    connection.key = ends.key
    connection.number = table.begun
    connection.time = connection.time_end = packet.time
    connection.handshake = -1
    connection.first_packet = row
    connection.state = OPEN
    connection.phase = CURRENT
    connection.older = connection.younger = NONE
    connection.begun_earlier = syn != SYN
    if syn == SYN:
        connection.client = source
        connection.syn_time = packet.time
    elif syn == SYN | ACK:
        connection.client = 1 - source
    elif ends.key.port[0] != ends.key.port[1]:
        # Servers listen on low ports.
        connection.client = 0 if ends.key.port[0] > ends.key.port[1] else 1
    else:
        connection.client = source
    for side in range(2):
        connection.side[side].ready = connection.side[side].ready_last = NONE
        connection.side[side].held = connection.side[side].held_last = NONE
    table.begun += 1
    table.held += 1
    show_connection(table, place, ends.hash)
    return place


cdef inline void show_connection(ConnectionTable* table, int32_t place,
                                 uint64_t hash) noexcept nogil:
    # Add a connection to the hash table. hash: that of its endpoints.
    cdef int32_t* slot = find_slot(table, hash)
    table.at[place].is_findable = True
    table.at[place].next = slot[0]
    slot[0] = place


cdef inline int32_t reserve_connection(ConnectionTable* table) noexcept nogil:
    # Return a place for one more connection, or NONE where there is no memory.
    cdef size_t capacity, i
    cdef int32_t place = table.free_place
    cdef void* memory
    if place != NONE:
        table.free_place = table.at[place].next
        return place
    if table.count == table.capacity:
        capacity = table.capacity + table.capacity // 2 + 64
        if capacity > MOST_CONNECTIONS:
            return NONE
        memory = grow_memory(table.at, capacity * sizeof(Connection))
        if memory is NULL:
            return NONE
        table.at = <Connection*>memory
        table.capacity = capacity
    # There are at least two slots for each connection, so few of them share one.
    if 2 * table.count > table.slot_count:
        memory = grow_memory(table.slots, 4 * table.slot_count * sizeof(int32_t))
        if memory is NULL:
            return NONE
        table.slots = <int32_t*>memory
        table.slot_count *= 4
        memset(table.slots, 0xFF, table.slot_count * sizeof(int32_t))
        for i in range(table.count):
            if table.at[i].is_findable:
                show_connection(table, <int32_t>i, hash_key(&table.at[i].key, table.seed))
    table.count += 1
    return <int32_t>(table.count - 1)


cdef inline void free_connection(ConnectionTable* table, int64_t place) noexcept nogil:
    # Use the place of a released connection again.
    table.at[place].phase = FREE
    table.at[place].next = table.free_place
    table.free_place = <int32_t>place
    table.held -= 1


cdef inline bint begins_again(const Connection* connection, const Packet* packet,
                              int source) noexcept nogil:
    # Return whether a packet begins another connection of the same endpoints.
    cdef const Side* side = &connection.side[source]
    if packet.flags & SYN == 0 or packet.flags & RST:
        return False
    if packet.flags & ACK:
        # The capture may lack the SYN of the client. A late answer has the number of the first one.
        return (connection.state != OPEN and side.is_started and not side.is_assumed
                and packet.sequence + 1 != side.next_sequence - <uint32_t>side.position)
    if side.has_syn:
        return packet.sequence != side.syn_sequence     # else it is the same SYN again
    # The SYN may come late: after the answer to it, or after the bytes.
    if side.is_started and not side.is_assumed:
        return packet.sequence + 1 != side.next_sequence - <uint32_t>side.position
    if side.is_stated:
        return packet.sequence + 1 != side.stated_sequence
    if not connection.begun_earlier:
        # Both sides may send a SYN at once: RFC 9293, section 3.5.
        return connection.state != OPEN or side.is_started
    return connection.state != OPEN or has_bytes(connection)


cdef inline bint has_bytes(const Connection* connection) noexcept nogil:
    # Return whether bytes of either side came.
    return has_side_bytes(&connection.side[0]) or has_side_bytes(&connection.side[1])


cdef inline bint has_side_bytes(const Side* side) noexcept nogil:
    # Return whether bytes of a side came.
    return side.position > 0 or side.held != NONE


cdef inline void follow_late_syn(Connection* connection, const Packet* packet,
                                 int source) noexcept nogil:
    # The SYN of the client comes after other packets. If bytes came before it, they may have been
    # returned with `is_begun_earlier`, so the connection keeps it.
    if has_bytes(connection):
        return
    connection.begun_earlier = False
    connection.client = source
    connection.is_role_open = False
    connection.syn_time = packet.time
    # The client's ACK, which ends the handshake, did not come before this SYN.
    connection.is_acknowledging = (connection.side[1 - source].has_syn
                                   and connection.side[source].packets == 1)


cdef inline void start_side(Side* side, const Packet* packet, bint is_syn_known) noexcept nogil:
    # A direction without a SYN starts with this packet, or with the byte that the first ACK of the
    # other side states: then packets before this one are missing, or come later.
    # is_syn_known: whether the capture has the other side's SYN.
    cdef int64_t gap = <int32_t>(packet.sequence - side.stated_sequence)
    side.next_sequence = packet.sequence
    side.is_assumed = packet.payload_length == 0
    # A keep-alive has a sequence number one too low, and at most one byte.
    if side.is_stated and (0 <= gap < WINDOW or gap == -1 and packet.payload_length <= 1):
        side.next_sequence = side.stated_sequence
        side.is_assumed = False
    else:
        # A RST may have any sequence number: it refuses a connection.
        side.lacks_start = is_syn_known and not packet.flags & RST
    side.is_started = True


cdef inline void state_start(const Side* side, Side* other, const Packet* packet) noexcept nogil:
    # Note where the other side's bytes begin: at the first acknowledgment after a SYN. If packets
    # of this side are missing before it, bytes of the other side may be missing too.
    other.is_stated = True
    other.stated_sequence = packet.acknowledgment
    other.lacks_start = (not packet.flags & SYN
                         and packet.sequence != side.syn_sequence + 1)


cdef inline void begin_side(Connection* connection, const Packet* packet,
                            int source) noexcept nogil:
    # Find the sequence number of the first byte of a direction.
    cdef Side* side = &connection.side[source]
    if packet.flags & SYN:
        if not packet.flags & ACK and connection.begun_earlier:
            follow_late_syn(connection, packet, source)
        if source != connection.client:
            connection.answer = packet.sequence + 1
        if side.is_started and not side.is_assumed and (side.has_syn or has_side_bytes(side)):
            return
        side.has_syn = True
        side.syn_sequence = packet.sequence
        # What was seen of this side before the SYN is of an earlier connection.
        restart_side(connection, side, packet.sequence + 1)
        if source != connection.client:
            connection.is_acknowledging = connection.syn_time != 0
        if packet.flags & ACK:
            connection.state = OPEN             # an earlier try may have been refused
    elif not side.is_started:
        start_side(side, packet, connection.side[1 - source].has_syn)
    elif side.is_assumed:
        side.is_assumed = packet.payload_length == 0
        if packet.sequence == side.next_sequence + 1:
            # The first packet was a keep-alive, whose sequence number is one too low.
            side.is_assumed = False
            side.next_sequence += 1
            side.acknowledged -= side.acknowledged > 0
            side.sent -= side.sent > 0
    side.is_started = True


cdef inline void restart_side(const Connection* connection, Side* side,
                              uint32_t sequence) noexcept nogil:
    # A direction without bytes starts at a sequence number. Bytes of the other one may have been
    # returned with `is_begun_earlier` before: then the side keeps what says so.
    side.next_sequence = sequence
    side.is_assumed = side.has_fin = side.is_closed = False
    side.lacks_start &= has_bytes(connection)
    side.acknowledged = side.sent = 0


cdef inline void follow_flags(Connection* connection, const Packet* packet,
                              int source) noexcept nogil:
    # Follow the handshake, the acknowledgment and the end of a connection.
    cdef Side* side = &connection.side[source]
    cdef Side* other = &connection.side[1 - source]
    side.packets += 1
    begin_side(connection, packet, source)
    if packet.flags & ACK:
        if connection.is_acknowledging and source == connection.client and not (
                packet.flags & SYN):
            connection.is_acknowledging = False
            connection.handshake = packet.time - connection.syn_time
            if packet.acknowledgment == connection.answer and not has_side_bytes(other):
                # The server may answer again, with another number. The client has this answer.
                if other.next_sequence != connection.answer:
                    restart_side(connection, other, connection.answer)
        if other.is_started:
            follow_ack(side, other, packet)
        elif side.has_syn and not other.is_stated and not packet.flags & RST:
            state_start(side, other, packet)
    if packet.flags & RST:
        connection.state = RESET


cdef inline int64_t measure_distance(const Side* side, uint32_t sequence) noexcept nogil:
    # Return how far a sequence number is from the next one of a side.
    return <int32_t>(sequence - side.next_sequence)


cdef inline void follow_ack(const Side* side, Side* other, const Packet* packet) noexcept nogil:
    # Follow the acknowledgment of the other side's bytes. A receiver ignores packets outside its
    # window, and TCP has no larger one than WINDOW. So do not believe others.
    cdef int64_t away = measure_distance(other, packet.acknowledgment)
    cdef int64_t position = <int64_t>other.position + away
    cdef int64_t own_away = measure_distance(side, packet.sequence)
    if (-WINDOW < own_away < WINDOW and away < WINDOW
            and position > <int64_t>other.acknowledged):
        other.acknowledged = <uint64_t>position


cdef inline void follow_end(Connection* connection) noexcept nogil:
    # Follow the ends of both directions, once all bytes before their FIN came or are acknowledged.
    # A FIN itself has a sequence number.
    cdef Side* side
    cdef int source
    for source in range(2):
        side = &connection.side[source]
        if side.has_fin and (side.position >= side.fin_position
                             or side.acknowledged > side.fin_position):
            side.is_closed = True
    if (connection.side[0].is_closed and connection.side[1].is_closed
            and connection.state == OPEN):
        connection.state = COMPLETE
