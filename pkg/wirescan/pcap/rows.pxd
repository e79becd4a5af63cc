# The C structs of the rows, and their numbers. The numpy dtypes come from the structs.
from wirescan.core cimport Head, int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t

# Kinds of blocks: `BlockKind` in constants.py.
cdef enum:
    FILE = 1
    PACKET = 2
    SECTION = 3
    INTERFACE = 4
    NAMES = 5
    STATISTICS = 6
    SECRETS = 7
    CUSTOM = 8
    OTHER_BLOCK = 9

# Kinds of packets: `PacketKind`.
cdef enum:
    OTHER = 0
    TCP = 1
    UDP = 2
    FRAGMENT = 3
    ICMP = 4
    IP = 5

# Kinds of streams: `Direction`.
cdef enum:
    TO_SERVER = 1
    TO_CLIENT = 2

cdef struct Block:
    Head     head
    int64_t  time                       # ns since 1970, 0 for none
    uint32_t interface                  # number in the file
    uint32_t length                     # bytes of the packet on the wire
    uint32_t data_at                    # captured bytes of the packet, or the content of the block
    int32_t  data_size
    uint32_t comment_at
    int32_t  comment_size
    uint16_t link                       # link type
    uint16_t reserved[3]

cdef struct Packet:
    Head     head
    int64_t  time
    uint32_t length                     # bytes on the wire
    uint32_t interface
    uint32_t sequence
    uint32_t acknowledgment
    uint32_t source_address_at
    int32_t  source_address_size
    uint32_t destination_address_at
    int32_t  destination_address_size
    uint32_t payload_at
    int32_t  payload_size
    uint32_t payload_length             # bytes of the payload on the wire
    uint32_t fragment_id
    uint16_t source_port
    uint16_t destination_port
    uint16_t fragment_offset            # in bytes / 8
    uint16_t window
    uint16_t flags
    uint16_t link
    uint16_t vlan
    uint8_t  protocol
    uint8_t  version                    # of IP, 4 or 6; 0 for another packet
    uint8_t  more_fragments
    uint8_t  ttl
    uint8_t  reserved[6]

cdef struct Flow:
    Head     head                       # kind: FlowState
    int64_t  connection                 # number in the capture, from 0 on
    int64_t  time                       # of the first packet
    int64_t  time_end                   # of the last packet
    int64_t  handshake                  # ns from SYN to the client's ACK, -1 where not known
    uint64_t bytes_to_server            # bytes of the stream that the capture has
    uint64_t bytes_to_client
    uint64_t lost_to_server             # bytes of the stream that it does not have
    uint64_t lost_to_client
    uint64_t repeated_to_server         # bytes that came more than once
    uint64_t repeated_to_client
    uint32_t packets_to_server
    uint32_t packets_to_client
    uint32_t retransmissions_to_server  # packets without a new byte
    uint32_t retransmissions_to_client
    uint32_t client_address_at
    int32_t  client_address_size
    uint32_t server_address_at
    int32_t  server_address_size
    uint16_t client_port
    uint16_t server_port
    uint8_t  is_begun_earlier           # the capture lacks the client's SYN, or the start of a side
    uint8_t  reserved[3]

cdef struct Stream:
    Head     head                       # kind: Direction
    int64_t  position                   # of the first byte in the stream
    int64_t  lost                       # bytes of a gap
    int64_t  time                       # of the packet with the first byte
    int64_t  time_end                   # of the packet with the last byte
    int64_t  first_segment              # its number in the buffer of segments
    uint32_t segment_count
    uint32_t reserved

# Where the bytes of a packet are in the bytes of the streams.
cdef struct Segment:
    int64_t start                       # of its first byte in the buffer of the streams
    int64_t time                        # ns since 1970
    int64_t packet                      # number of the packet in the capture, from 1 on
    int64_t ready                       # ... with which all bytes up to these were there
    # The place among the packets of the connection: `packet`, or `ready` if the other side did not
    # wait for so long. And that among the packets of all connections.
    int64_t order
    int64_t order_of_all
