# Puts the fragments of IP datagrams together: IPv4, and the fragment headers of IPv6. assembler.pyx
# follows the whole datagrams.
#
# A datagram is known by its addresses and its id, and by the protocol (IPv4 only: the fragments of
# IPv6 after the first one need not have it). Where fragments overlap, the first bytes win.
#
# Datagrams wait for at most 30 seconds of the capture. They are in a list in the order of their
# first fragments, and the oldest are dropped beyond a number of datagrams and a number of bytes.
#
# The bytes of fragments are copied by units of 8 bytes, the unit of their offsets. A bitmap says
# which units are there. So the work for a fragment depends on its size alone.
#
# A datagram that is whole is remembered for a second: repeated fragments of it begin no other one.
# A first fragment with another header of TCP does.
#
# Format: RFC 791, RFC 8200.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset
from wirescan.pcap.assembly.connection_table cimport hash_words
from wirescan.pcap.packet cimport (
    PROTOCOL_AUTHENTICATION, PROTOCOL_DESTINATION, PROTOCOL_HOP_BY_HOP, PROTOCOL_ROUTING,
    PROTOCOL_TCP)
from wirescan.pcap.rows cimport Packet
from wirescan.pcap.assembly.tcp_connection cimport ADDRESS, NONE

cdef enum:
    UNIT = 8                    # bytes
    COMPARED = 24               # first bytes of datagrams with one id: most of TCP's header
    ENDS = 32                   # bytes of the addresses before those of a datagram
    LARGEST_DATAGRAM = 65535    # bytes
    SMALLEST_MEMORY = 2048
    MOST_DATAGRAMS = 1 << 15
    DATAGRAM_SLOTS = 1 << 16
    MOST_FRAGMENT_BYTES = 32 << 20
    PATIENCE_SECONDS = 30
    SECOND = 1000000000         # ns, and how long whole datagrams are remembered

cdef struct DatagramKey:
    uint8_t address[2][ADDRESS]     # of the source and of the destination
    uint32_t id
    uint8_t protocol                # of IPv4
    uint8_t version
    uint8_t reserved[2]

cdef struct Datagram:
    DatagramKey key
    int64_t time                    # of the capture at the first fragment
    int64_t whole_time              # and at the last one
    uint8_t begin[COMPARED]         # of a whole one: its first bytes
    uint8_t* data                   # the addresses, and then the bytes; NULL for none
    uint8_t* units                  # bitmap of the units that are there
    uint32_t capacity               # bytes that fit `data` after the addresses
    uint32_t size                   # bytes of the datagram, if `has_size`
    uint32_t reach                  # bytes up to the end of the furthest fragment
    uint32_t filled                 # bytes that are there
    int32_t next                    # of the same slot of the hash table, or of the free ones
    int32_t older                   # neighbours in the list of datagrams by their first fragments
    int32_t younger
    uint8_t protocol                # of the first bytes
    bint has_size                   # the last fragment was seen
    bint is_whole                   # its bytes were taken

cdef struct FragmentTable:
    Datagram* at
    int32_t count
    int32_t capacity
    int32_t free_place
    int32_t oldest
    int32_t youngest
    int32_t* slots                  # NULL before the first fragment
    uint64_t held                   # datagrams
    uint64_t bytes                  # of memory for their bytes
    uint64_t incomplete             # datagrams that were dropped, and were not whole
    uint64_t seed
    bint out_of_memory


cdef inline void create_fragments(FragmentTable* table, uint64_t seed) noexcept nogil:
    # Fill a zeroed table.
    table.seed = seed
    table.free_place = table.oldest = table.youngest = NONE


cdef inline void free_fragments(FragmentTable* table) noexcept nogil:
    drop_fragments(table)
    free(table.slots)
    free(table.at)


cdef inline void drop_fragments(FragmentTable* table) noexcept nogil:
    # Drop all datagrams: the capture ends. The table may be zeroed only.
    while table.held:
        drop_datagram(table, table.oldest)


cdef inline bint may_be_tcp(const Packet* packet) noexcept nogil:
    # Return whether the protocol of a fragment is TCP, or an extension header of IPv6 before it.
    if packet.protocol == PROTOCOL_TCP:
        return True
    return packet.source_address_size == ADDRESS and packet.protocol in (
        PROTOCOL_HOP_BY_HOP, PROTOCOL_ROUTING, PROTOCOL_AUTHENTICATION, PROTOCOL_DESTINATION)


cdef inline bint is_late(const Datagram* datagram, int64_t time) noexcept nogil:
    # Return whether a datagram waited for too long.
    return time - datagram.time > <int64_t>PATIENCE_SECONDS * SECOND


cdef inline Datagram* add_fragment(FragmentTable* table, const Packet* packet,
                                   const uint8_t* start, int64_t time) noexcept nogil:
    # Add a fragment, whose places are inside it. Return the datagram if it is whole now, else NULL.
    cdef Datagram* datagram
    cdef uint32_t first = <uint32_t>packet.fragment_offset * UNIT
    cdef uint64_t stop = <uint64_t>first + <uint32_t>packet.payload_size
    cdef const uint8_t* data = start + packet.payload_at
    if not may_be_tcp(packet):
        return NULL
    while table.oldest != NONE and is_late(&table.at[table.oldest], time):
        drop_datagram(table, table.oldest)
    datagram = find_datagram(table, packet, start, time)
    if datagram is NULL or datagram.is_whole:
        return NULL
    # What the snap length cut is missing, and so is a fragment that no sender makes.
    if (packet.payload_length > <uint32_t>packet.payload_size or stop > LARGEST_DATAGRAM
            or packet.more_fragments and (stop == first or stop % UNIT)):
        return NULL
    # So is one that contradicts an earlier one about the end.
    if datagram.has_size and (stop > datagram.size
                              or not packet.more_fragments and stop != datagram.size):
        return NULL
    if not packet.more_fragments and not datagram.has_size:
        if stop < datagram.reach:
            return NULL
        datagram.has_size = True
        datagram.size = <uint32_t>stop
    if stop > first:
        if not reserve_bytes(table, datagram, <uint32_t>stop):
            return NULL
        if first == 0 and datagram.units[0] & 1 == 0:
            datagram.protocol = packet.protocol
        copy_units(datagram, data, first, <uint32_t>stop)
    if datagram.has_size and datagram.filled == datagram.size and datagram.size > 0:
        return datagram
    while table.bytes > MOST_FRAGMENT_BYTES:
        drop_datagram(table, table.oldest)
    return NULL


cdef inline void copy_units(Datagram* datagram, const uint8_t* data, uint32_t first,
                            uint32_t stop) noexcept nogil:
    # Copy the bytes of a fragment that are not there yet.
    cdef uint32_t at = first, unit, size
    while at < stop:
        unit = at // UNIT
        size = min(<uint32_t>UNIT, stop - at)
        if datagram.units[unit // 8] & (1 << (unit % 8)) == 0:
            datagram.units[unit // 8] |= <uint8_t>(1 << (unit % 8))
            memcpy(datagram.data + ENDS + at, data + (at - first), size)
            datagram.filled += size
        at += size
    datagram.reach = max(datagram.reach, stop)


cdef inline bint reserve_bytes(FragmentTable* table, Datagram* datagram,
                               uint32_t size) noexcept nogil:
    # Make bytes fit a datagram. Return False where there is no memory.
    cdef uint32_t capacity = max(max(size, 2 * datagram.capacity), <uint32_t>SMALLEST_MEMORY)
    cdef uint32_t old = count_bitmap(datagram.capacity), new
    cdef void* memory
    if size <= datagram.capacity:
        return True
    capacity = min(capacity, <uint32_t>LARGEST_DATAGRAM)
    memory = realloc(datagram.data, ENDS + capacity)
    if memory is NULL:
        table.out_of_memory = True
        return False
    datagram.data = <uint8_t*>memory
    new = count_bitmap(capacity)
    memory = realloc(datagram.units, new)
    if memory is NULL:
        table.out_of_memory = True
        return False
    datagram.units = <uint8_t*>memory
    memset(datagram.units + old, 0, new - old)
    table.bytes += capacity - datagram.capacity
    datagram.capacity = capacity
    return True


cdef inline uint32_t count_bitmap(uint32_t capacity) noexcept nogil:
    # Return the bytes of the bitmap of a memory.
    return (capacity + UNIT * 8 - 1) // (UNIT * 8)


cdef inline uint8_t* take_datagram(FragmentTable* table, Datagram* datagram, Packet* whole,
                                   int64_t time) noexcept nogil:
    # Return the memory of a whole datagram: its addresses, and then its bytes. The caller frees it.
    # `whole` is the row of its last fragment. It becomes the row of the datagram.
    cdef uint8_t* data = datagram.data
    cdef void* memory = realloc(data, ENDS + datagram.size)
    if memory is not NULL:
        data = <uint8_t*>memory
    memcpy(data, &datagram.key.address[0][0], ENDS)
    memcpy(&datagram.begin[0], data + ENDS, min(<uint32_t>COMPARED, datagram.size))
    table.bytes -= datagram.capacity
    datagram.data = NULL
    free(datagram.units)
    datagram.units = NULL
    datagram.capacity = 0
    datagram.is_whole = True
    datagram.whole_time = time
    whole.head.start = 0
    whole.head.size = ENDS + datagram.size
    whole.source_address_at = 0
    whole.destination_address_at = ADDRESS
    whole.version = datagram.key.version
    whole.protocol = datagram.protocol
    return data


cdef inline Datagram* find_datagram(FragmentTable* table, const Packet* packet,
                                    const uint8_t* start, int64_t time) noexcept nogil:
    # Return the datagram of a fragment, which may begin here; NULL for no memory.
    cdef DatagramKey key
    cdef Datagram* datagram
    cdef size_t slot
    cdef int32_t place
    if table.slots is NULL:
        table.slots = <int32_t*>malloc(DATAGRAM_SLOTS * sizeof(int32_t))
        if table.slots is NULL:
            table.out_of_memory = True
            return NULL
        memset(table.slots, 0xFF, DATAGRAM_SLOTS * sizeof(int32_t))
    memset(&key, 0, sizeof(key))
    memcpy(&key.address[0][0], start + packet.source_address_at, packet.source_address_size)
    memcpy(&key.address[1][0], start + packet.destination_address_at, packet.source_address_size)
    key.id = packet.fragment_id
    key.version = 4 if packet.source_address_size == 4 else 6
    key.protocol = packet.protocol if key.version == 4 else 0
    slot = hash_words(&key, sizeof(key), table.seed) & (DATAGRAM_SLOTS - 1)
    place = table.slots[slot]
    while place != NONE:
        datagram = &table.at[place]
        if memcmp(&datagram.key, &key, sizeof(key)) == 0:
            if not datagram.is_whole or repeats_whole(datagram, packet, start, time):
                return datagram
            drop_datagram(table, place)
            break
        place = datagram.next
    return add_datagram(table, &key, slot, time)


cdef inline bint repeats_whole(const Datagram* datagram, const Packet* packet,
                               const uint8_t* start, int64_t time) noexcept nogil:
    # Return whether a fragment seems to be of a datagram that is whole, and not of the next one
    # with the same id.
    if time - datagram.whole_time > SECOND:
        return False
    return packet.fragment_offset > 0 or memcmp(
        start + packet.payload_at, &datagram.begin[0],
        min(<uint32_t>packet.payload_size, <uint32_t>COMPARED)) == 0


cdef inline Datagram* add_datagram(FragmentTable* table, const DatagramKey* key, size_t slot,
                                   int64_t time) noexcept nogil:
    # Add a datagram. Return NULL for no memory.
    cdef int32_t place, capacity
    cdef Datagram* datagram
    cdef void* memory
    if table.held == MOST_DATAGRAMS:
        drop_datagram(table, table.oldest)
    place = table.free_place
    if place != NONE:
        table.free_place = table.at[place].next
    else:
        if table.count == table.capacity:
            capacity = table.capacity * 2 + 64
            memory = realloc(table.at, capacity * sizeof(Datagram))
            if memory is NULL:
                table.out_of_memory = True
                return NULL
            table.at = <Datagram*>memory
            table.capacity = capacity
        place = table.count
        table.count += 1
    datagram = &table.at[place]
    memset(datagram, 0, sizeof(Datagram))
    datagram.key = key[0]
    datagram.time = time
    datagram.next = table.slots[slot]
    table.slots[slot] = place
    datagram.younger = NONE
    datagram.older = table.youngest
    if table.youngest != NONE:
        table.at[table.youngest].younger = place
    else:
        table.oldest = place
    table.youngest = place
    table.held += 1
    return datagram


cdef inline void drop_datagram(FragmentTable* table, int32_t place) noexcept nogil:
    # Forget a datagram.
    cdef Datagram* datagram = &table.at[place]
    cdef int32_t* link = &table.slots[
        hash_words(&datagram.key, sizeof(DatagramKey), table.seed) & (DATAGRAM_SLOTS - 1)]
    while link[0] != place:
        link = &table.at[link[0]].next
    link[0] = datagram.next
    if datagram.older != NONE:
        table.at[datagram.older].younger = datagram.younger
    else:
        table.oldest = datagram.younger
    if datagram.younger != NONE:
        table.at[datagram.younger].older = datagram.older
    else:
        table.youngest = datagram.older
    table.incomplete += not datagram.is_whole
    table.bytes -= datagram.capacity
    free(datagram.data)
    free(datagram.units)
    datagram.data = datagram.units = NULL
    datagram.next = table.free_place
    table.free_place = place
    table.held -= 1
