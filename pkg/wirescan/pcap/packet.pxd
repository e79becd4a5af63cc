# Reads a captured packet: link layer, IP, and TCP or UDP. scan.pyx shows the layers.
from wirescan.core cimport (
    BAD_CHECKSUM, BAD_FIELD, Fault, OK, TRUNCATED, be16, be32, int32_t, le32, uint16_t, uint32_t,
    uint64_t, uint8_t)
from wirescan.pcap.rows cimport FRAGMENT, ICMP, IP, Packet, TCP, UDP

# Link types.
cdef enum:
    LINK_NULL = 0
    LINK_ETHERNET = 1
    LINK_RAW_12 = 12
    LINK_RAW_14 = 14
    LINK_RAW = 101
    LINK_LOOP = 108
    LINK_COOKED = 113
    LINK_IPV4 = 228
    LINK_IPV6 = 229
    LINK_COOKED_2 = 276

# Types of Ethernet.
cdef enum:
    TYPE_IPV4 = 0x0800
    TYPE_IPV6 = 0x86DD
    TYPE_VLAN = 0x8100
    TYPE_QINQ = 0x88A8
    TYPE_OLD_QINQ = 0x9100

# Protocols of IP.
cdef enum:
    PROTOCOL_HOP_BY_HOP = 0
    PROTOCOL_ICMP = 1
    PROTOCOL_TCP = 6
    PROTOCOL_UDP = 17
    PROTOCOL_ROUTING = 43
    PROTOCOL_FRAGMENT = 44
    PROTOCOL_AUTHENTICATION = 51
    PROTOCOL_ICMP_6 = 58
    PROTOCOL_DESTINATION = 60

cdef enum:
    IPV4_HEADER = 20
    IPV6_HEADER = 40
    TCP_HEADER = 20
    UDP_HEADER = 8
    MORE_FRAGMENTS = 0x2000
    OFFSET = 0x1FFF

# The bytes of a layer: those that were captured, and how many there were on the wire.
cdef struct Layer:
    const uint8_t* at
    const uint8_t* end          # of the captured bytes
    uint64_t length             # on the wire, from `at` on


cdef inline size_t captured(const Layer* layer) noexcept nogil:
    return <size_t>(layer.end - layer.at)


cdef inline void step(Layer* layer, size_t size) noexcept nogil:
    # Step over a header that was captured.
    layer.at += size
    layer.length = layer.length - size if layer.length > size else 0


cdef inline void shorten(Layer* layer, uint64_t length) noexcept nogil:
    # A header says how long its layer is. What follows is padding.
    if length < layer.length:
        layer.length = length
    if length < captured(layer):
        layer.end = layer.at + length


cdef inline Fault miss(const Layer* layer) noexcept nogil:
    # A header is not there. It is no fault where the capture does not have it.
    return OK if captured(layer) < layer.length else TRUNCATED


cdef inline uint16_t find_family(const uint8_t* p, bint is_big) noexcept nogil:
    # Return the type of Ethernet for a family of addresses in the header of a loopback packet.
    cdef uint32_t family = be32(p)
    if not is_big and family >> 16:
        family = le32(p)                        # the byte order of the machine that captured
    if family == 2:
        return TYPE_IPV4
    # AF_INET6 of Linux, NetBSD, FreeBSD and macOS.
    return TYPE_IPV6 if family in (10, 24, 28, 30) else 0


cdef inline uint16_t read_tags(Layer* layer, Packet* row, uint16_t type) noexcept nogil:
    # Step over VLAN tags. type: that of Ethernet of what follows. Return that after the tags.
    while type in (TYPE_VLAN, TYPE_QINQ, TYPE_OLD_QINQ) and captured(layer) >= 4:
        if row.vlan == 0:
            row.vlan = be16(layer.at) & 0xFFF
        type = be16(layer.at + 2)
        step(layer, 4)
    return type


cdef inline uint16_t read_link(Layer* layer, Packet* row) noexcept nogil:
    # Step over the header of the link layer. Return the type of Ethernet that follows, 0 for none.
    cdef size_t size = captured(layer)
    cdef uint16_t type = 0
    if row.link == LINK_ETHERNET and size >= 14:
        type = be16(layer.at + 12)
        step(layer, 14)
        type = read_tags(layer, row, type)
    elif row.link == LINK_COOKED and size >= 16:
        type = be16(layer.at + 14)
        step(layer, 16)
        type = read_tags(layer, row, type)
    elif row.link == LINK_COOKED_2 and size >= 20:
        type = be16(layer.at)
        step(layer, 20)
        type = read_tags(layer, row, type)
    elif (row.link == LINK_NULL or row.link == LINK_LOOP) and size >= 4:
        type = find_family(layer.at, row.link == LINK_LOOP)
        step(layer, 4)
    elif row.link in (LINK_RAW_12, LINK_RAW_14, LINK_RAW, LINK_IPV4, LINK_IPV6) and size >= 1:
        type = TYPE_IPV4 if layer.at[0] >> 4 == 4 else TYPE_IPV6
    return type


cdef inline uint32_t add_words(const uint8_t* p, size_t size, uint32_t sum) noexcept nogil:
    # Return the sum of big-endian words, with the carries added.
    cdef uint64_t total = sum
    cdef size_t i
    for i in range(size // 2):
        total += be16(p + 2 * i)
    if size & 1:
        total += <uint32_t>p[size - 1] << 8
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return <uint32_t>total


cdef inline Fault read_ipv4(Layer* layer, Packet* row, const uint8_t* start,
                            bint verify) noexcept nogil:
    cdef const uint8_t* p = layer.at
    cdef size_t header
    cdef uint16_t fragment
    cdef uint32_t length
    if captured(layer) < IPV4_HEADER:
        return miss(layer)
    header = 4 * (p[0] & 0xF)
    length = be16(p + 2)
    if p[0] >> 4 != 4 or header < IPV4_HEADER or length and length < header:
        return BAD_FIELD
    if captured(layer) < header:
        return miss(layer)
    row.version = 4
    row.head.kind = IP
    row.protocol = p[9]
    row.ttl = p[8]
    row.fragment_id = be16(p + 4)
    row.source_address_at = <uint32_t>(p + 12 - start)
    row.source_address_size = 4
    row.destination_address_at = <uint32_t>(p + 16 - start)
    row.destination_address_size = 4
    if length:                                  # 0: the card cuts the packet into segments
        shorten(layer, length)
    if verify and add_words(p, header, 0) != 0xFFFF:
        return BAD_CHECKSUM
    fragment = be16(p + 6)
    row.fragment_offset = fragment & OFFSET
    row.more_fragments = fragment & MORE_FRAGMENTS != 0
    step(layer, header)
    return OK


cdef inline Fault read_ipv6(Layer* layer, Packet* row, const uint8_t* start) noexcept nogil:
    cdef const uint8_t* p = layer.at
    cdef uint16_t length
    if captured(layer) < IPV6_HEADER:
        return miss(layer)
    if p[0] >> 4 != 6:
        return BAD_FIELD
    row.version = 6
    row.head.kind = IP
    row.ttl = p[7]
    row.source_address_at = <uint32_t>(p + 8 - start)
    row.source_address_size = 16
    row.destination_address_at = <uint32_t>(p + 24 - start)
    row.destination_address_size = 16
    length = be16(p + 4)
    step(layer, IPV6_HEADER)
    if length:                                  # 0: a jumbogram, or the card cuts it
        shorten(layer, length)
    return read_extensions(layer, row, p[6])


cdef inline Fault read_extensions(Layer* layer, Packet* row, uint8_t next) noexcept nogil:
    # Step over the extension headers of IPv6, up to a fragment. next: the type of the first one.
    cdef const uint8_t* p
    cdef size_t header
    cdef uint16_t fragment
    while next in (PROTOCOL_HOP_BY_HOP, PROTOCOL_ROUTING, PROTOCOL_FRAGMENT,
                   PROTOCOL_AUTHENTICATION, PROTOCOL_DESTINATION):
        row.protocol = next
        p = layer.at
        if captured(layer) < 8:
            return miss(layer)
        if next == PROTOCOL_FRAGMENT:
            header = 8
            fragment = be16(p + 2)
            row.fragment_offset = fragment >> 3
            row.more_fragments = fragment & 1
            row.fragment_id = be32(p + 4)
        elif next == PROTOCOL_AUTHENTICATION:
            header = 4 * (<size_t>p[1] + 2)
        else:
            header = 8 * (<size_t>p[1] + 1)
        if captured(layer) < header:
            return miss(layer)
        next = p[0]
        step(layer, header)
        if row.fragment_offset or row.more_fragments:
            break
    row.protocol = next
    return OK


cdef inline bint is_checksum_right(const Layer* layer, const Packet* row,
                                   const uint8_t* start) noexcept nogil:
    # Verify the checksum of TCP or UDP over the pseudo header and the whole packet.
    cdef size_t size = captured(layer)
    cdef uint32_t sum
    sum = add_words(start + row.source_address_at, <size_t>row.source_address_size, row.protocol)
    sum = add_words(start + row.destination_address_at, <size_t>row.destination_address_size, sum)
    sum += <uint32_t>(size >> 16) + <uint32_t>(size & 0xFFFF)
    return add_words(layer.at, size, sum) == 0xFFFF


cdef inline Fault read_tcp(Layer* layer, Packet* row, const uint8_t* start,
                           bint verify) noexcept nogil:
    cdef const uint8_t* p = layer.at
    cdef size_t header
    if captured(layer) < TCP_HEADER:
        return miss(layer)
    header = 4 * <size_t>(p[12] >> 4)
    if header < TCP_HEADER:
        return BAD_FIELD
    if captured(layer) < header:
        return miss(layer)
    row.head.kind = TCP
    row.source_port = be16(p)
    row.destination_port = be16(p + 2)
    row.sequence = be32(p + 4)
    row.acknowledgment = be32(p + 8)
    row.flags = be16(p + 12) & 0x1FF
    row.window = be16(p + 14)
    if verify and captured(layer) == layer.length and not is_checksum_right(layer, row, start):
        step(layer, header)
        return BAD_CHECKSUM
    step(layer, header)
    return OK


cdef inline Fault read_udp(Layer* layer, Packet* row, const uint8_t* start,
                           bint verify) noexcept nogil:
    cdef const uint8_t* p = layer.at
    cdef uint16_t length
    if captured(layer) < UDP_HEADER:
        return miss(layer)
    length = be16(p + 4)
    if length and length < UDP_HEADER:
        return BAD_FIELD
    row.head.kind = UDP
    row.source_port = be16(p)
    row.destination_port = be16(p + 2)
    if length:
        shorten(layer, length)
    # A checksum of 0 is none.
    if (verify and be16(p + 6) and captured(layer) == layer.length
            and not is_checksum_right(layer, row, start)):
        step(layer, UDP_HEADER)
        return BAD_CHECKSUM
    step(layer, UDP_HEADER)
    return OK


cdef inline Fault read_transport(Layer* layer, Packet* row, const uint8_t* start,
                                 bint verify) noexcept nogil:
    if row.protocol == PROTOCOL_TCP:
        return read_tcp(layer, row, start, verify)
    if row.protocol == PROTOCOL_UDP:
        return read_udp(layer, row, start, verify)
    if row.protocol == PROTOCOL_ICMP or row.protocol == PROTOCOL_ICMP_6:
        row.head.kind = ICMP
    return OK


cdef inline Fault read_packet(Packet* row, const uint8_t* start, uint32_t size,
                              bint verify) noexcept nogil:
    # Read the packet of `size` captured bytes at `start`. The row has its link type and `length`.
    cdef Layer layer = Layer(start, start + size, max(row.length, size))
    cdef uint16_t type
    cdef Fault fault = OK
    row.source_address_size = row.destination_address_size = -1
    type = read_link(&layer, row)
    if type == TYPE_IPV4:
        fault = read_ipv4(&layer, row, start, verify)
    elif type == TYPE_IPV6:
        fault = read_ipv6(&layer, row, start)
    if fault == OK and row.version:
        if row.fragment_offset or row.more_fragments:
            row.head.kind = FRAGMENT
        elif row.head.kind == IP:
            fault = read_transport(&layer, row, start, verify)
    place_payload(row, &layer, start)
    return fault


cdef inline void place_payload(Packet* row, const Layer* layer,
                               const uint8_t* start) noexcept nogil:
    row.payload_at = <uint32_t>(layer.at - start)
    row.payload_size = <int32_t>captured(layer)
    row.payload_length = <uint32_t>min(layer.length, <uint64_t>0xFFFFFFFF)
    row.head.body = row.payload_at


cdef inline Fault read_datagram(Packet* row, const uint8_t* start, const uint8_t* data,
                                uint32_t size) noexcept nogil:
    # Read the payload of IP at `data`, whose fragments were put together. The row has the version
    # and the protocol of the first fragment.
    cdef Layer layer = Layer(data, data + size, size)
    cdef Fault fault = OK
    row.head.kind = IP
    row.fragment_offset = row.more_fragments = 0
    if row.version == 6:
        fault = read_extensions(&layer, row, row.protocol)
    if fault == OK and row.fragment_offset == 0 and row.more_fragments == 0:
        fault = read_transport(&layer, row, start, False)
    place_payload(row, &layer, start)
    return fault
