# Who is the client of a connection whose beginning the capture does not have. assembler.pyx uses
# it.
#
# A known port of a service is that of the server. Otherwise the first packets with bytes decide, if
# one of them begins as only a client or only a server sends. If none does, servers have low ports.
# The packets decide in their order, so the result does not depend on the pieces of a capture.
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset
from wirescan.pcap.assembly.tcp_connection cimport Connection

cdef enum:
    MOST_OPENINGS = 64
    LONGEST_OPENING = 16
    PORTS = 1 << 16
    DECIDING_PACKETS = 8        # first packets with bytes that are looked at

# How packets of one role begin: the lowest and the highest value of each byte.
cdef struct Opening:
    uint8_t size
    bint is_of_client
    uint8_t lowest[LONGEST_OPENING]
    uint8_t highest[LONGEST_OPENING]

cdef struct Roles:
    uint8_t is_service[PORTS]
    Opening openings[MOST_OPENINGS]
    int count


cdef inline int fill_roles(Roles* roles, ports, openings) except -1:
    # Fill the table. openings: (whether the client sends it, lowest bytes, highest bytes).
    cdef int i
    memset(roles, 0, sizeof(Roles))
    for port in ports:
        roles.is_service[<int>port & (PORTS - 1)] = 1
    for is_of_client, lowest, highest in openings:
        if roles.count == MOST_OPENINGS or len(lowest) > LONGEST_OPENING:
            raise ValueError(f"at most {MOST_OPENINGS} openings of {LONGEST_OPENING} bytes")
        roles.openings[roles.count].size = <uint8_t>len(lowest)
        roles.openings[roles.count].is_of_client = is_of_client
        for i in range(len(lowest)):
            roles.openings[roles.count].lowest[i] = lowest[i]
            roles.openings[roles.count].highest[i] = highest[i]
        roles.count += 1
    return 0


cdef inline void begin_roles(const Roles* roles, Connection* connection) noexcept nogil:
    # Find the client of a new connection by its ports.
    cdef bint first = roles.is_service[connection.key.port[0]]
    cdef bint second = roles.is_service[connection.key.port[1]]
    if first != second:
        connection.client = 1 if first else 0
    else:
        connection.is_role_open = roles.count > 0


cdef inline bint fits(const Opening* opening, const uint8_t* data, int64_t size) noexcept nogil:
    cdef int i
    if size < opening.size:
        return False
    for i in range(opening.size):
        if not opening.lowest[i] <= data[i] <= opening.highest[i]:
            return False
    return True


cdef inline void follow_roles(const Roles* roles, Connection* connection, int source,
                              const uint8_t* data, int64_t size) noexcept nogil:
    # Find the client by the bytes of the next packet.
    cdef int i
    for i in range(roles.count):
        if fits(&roles.openings[i], data, size):
            connection.client = source if roles.openings[i].is_of_client else 1 - source
            connection.is_role_open = False
            return
    connection.deciding_packets += 1
    if connection.deciding_packets == DECIDING_PACKETS:
        connection.is_role_open = False
