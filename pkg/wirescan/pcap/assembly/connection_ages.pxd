# Which connections are released: those that ended some time ago, and those that are idle for long.
# assembler.pyx uses it for captures that are read in pieces.
#
# Two lists have the connections by their last packets: the current ones, and those that ended. A
# packet moves its connection to the end of its list, and only the first ones are looked at. So the
# work for a packet does not depend on the number of connections.
#
# Time is that of capture_clock.pxd, which packets with false times do not change. A connection that
# is released had no packet for a number of packets too.
from libc.stdint cimport int32_t, int64_t, uint64_t
from wirescan.pcap.assembly.capture_clock cimport CaptureClock, SECOND, note_use
from wirescan.pcap.assembly.connection_table cimport AgeList, ConnectionTable
from wirescan.pcap.assembly.tcp_connection cimport CURRENT, Connection, ENDED, NONE, OPEN

cdef enum:
    ENDED_SECONDS = 60          # for which late packets belong to a connection that ended
    # Keep-alives come every 2 hours by default, and are repeated for 11 minutes.
    IDLE_SECONDS = 8100
    QUIET_PACKETS = 64          # of the capture, without any of a connection that is released


cdef inline AgeList* find_list(ConnectionTable* table, const Connection* connection) noexcept nogil:
    return &table.ended if connection.phase == ENDED else &table.current


cdef inline void leave_list(ConnectionTable* table, int64_t place) noexcept nogil:
    # Remove a connection from its list.
    cdef Connection* connection = &table.at[place]
    cdef AgeList* list = find_list(table, connection)
    if connection.older != NONE:
        table.at[connection.older].younger = connection.younger
    else:
        list.oldest = connection.younger
    if connection.younger != NONE:
        table.at[connection.younger].older = connection.older
    else:
        list.youngest = connection.older
    connection.older = connection.younger = NONE


cdef inline void join_list(ConnectionTable* table, int64_t place) noexcept nogil:
    # Add a connection to its list, as the latest used one.
    cdef Connection* connection = &table.at[place]
    cdef AgeList* list = find_list(table, connection)
    connection.older = list.youngest
    if list.youngest != NONE:
        table.at[list.youngest].younger = <int32_t>place
    else:
        list.oldest = <int32_t>place
    list.youngest = <int32_t>place


cdef inline bint has_ended(const Connection* connection) noexcept nogil:
    # Return whether a connection was reset or is complete. `follow_end` is called before it.
    return connection.state != OPEN


cdef inline void refresh(ConnectionTable* table, int64_t place, int phase, CaptureClock* clock,
                         int64_t packet) noexcept nogil:
    # A connection has a packet now, or the next one of its endpoints begins now.
    cdef Connection* connection = &table.at[place]
    note_use(clock, place)
    connection.seen = clock.elapsed
    connection.seen_packet = packet
    if connection.phase == phase and find_list(table, connection).youngest == <int32_t>place:
        return
    leave_list(table, place)
    connection.phase = phase
    join_list(table, place)


cdef inline bint is_old(const ConnectionTable* table, int32_t place, int64_t seconds,
                        uint64_t elapsed, int64_t packet) noexcept nogil:
    return (place != NONE and elapsed - table.at[place].seen > <uint64_t>seconds * SECOND
            and packet - table.at[place].seen_packet > QUIET_PACKETS)


cdef inline int32_t find_longest_idle(const ConnectionTable* table) noexcept nogil:
    # Return the place of the connection that is released first; NONE where there is none.
    return table.ended.oldest if table.ended.oldest != NONE else table.current.oldest


cdef inline int32_t find_old(const ConnectionTable* table, uint64_t elapsed,
                             int64_t packet) noexcept nogil:
    # Return the place of a connection that is released for its age; NONE where there is none.
    if is_old(table, table.ended.oldest, ENDED_SECONDS, elapsed, packet):
        return table.ended.oldest
    if is_old(table, table.current.oldest, IDLE_SECONDS, elapsed, packet):
        return table.current.oldest
    return NONE
