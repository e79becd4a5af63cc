# What the assembler knows of each TCP connection. assembler.pyx uses it.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    ADDRESS = 16                # bytes of an address; one of IPv4 has 4 of them, and 12 zeros
    NONE = -1                   # no node
    WINDOW = 1 << 30            # the largest window of TCP: a later byte is no byte of the stream

# Flags of TCP.
cdef enum:
    FIN = 1
    SYN = 2
    RST = 4
    ACK = 16

# States of a connection, `FlowState` in constants.py.
cdef enum:
    OPEN = 1                    # its beginning was seen, its end was not
    COMPLETE = 2                # both sides ended it with FIN
    RESET = 3                   # one side ended it with RST

# What becomes of a connection. Only an assembler that releases connections has all of them.
cdef enum:
    FREE = 0                    # no connection: its memory is used again
    CURRENT = 1
    ENDED = 2                   # both sides ended it, or other packets of its endpoints began again
    RELEASED = 3                # no packet belongs to it any more, and its last bytes are taken

# The endpoints of a connection, the lower one first.
cdef struct Key:
    uint8_t address[2][ADDRESS]
    uint16_t port[2]
    uint8_t version             # 4 or 6
    uint8_t reserved[3]

# Bytes of a stream that came in one packet. `next` is the number of the next node of the same list.
cdef struct Node:
    const uint8_t* data
    char* owned                 # the memory of `data`, if it is not in the capture's buffer
    uint64_t position           # of the first byte in the stream
    int64_t time                # ns since 1970
    int64_t packet              # number of the packet in the capture, from 1 on
    int64_t ready               # `ready`, `order` and `order_of_all` are those of a `Segment`
    int64_t order
    int64_t order_of_all
    uint32_t size
    int32_t next

# One direction of a connection: what one endpoint sent.
cdef struct Side:
    uint64_t position           # bytes of the stream up to `next_sequence`
    uint64_t acknowledged       # stream position up to which the receiver has the bytes
    uint64_t sent               # stream position up to which the sender's own packets go
    uint64_t repeated           # bytes that came before
    uint64_t lost               # bytes that are in no packet
    uint64_t ready_bytes        # of the list `ready`
    uint64_t emitted            # bytes of the list `ready` after the last `release`
    uint64_t given              # stream position up to which gaps were reported
    uint64_t dropped            # stream position of the first byte that was not released
    int64_t packets
    int32_t ready               # first node of the bytes in order
    int32_t ready_last
    int32_t held                # first node of the bytes that are out of order, by position
    int32_t held_last
    uint32_t next_sequence      # sequence number of the byte at `position`
    uint32_t retransmissions    # packets without any new byte
    uint32_t waited             # packets since the receiver has bytes that are missing here
    int64_t waiting_since       # time of the first of them, ns
    uint64_t missing_position   # stream position of the bytes that are missing before held ones
    uint64_t missing_at         # `arrived` of the connection when they began to be missing
    uint64_t missing_at_all     # `arrived` of the capture, the same
    int64_t missing_time        # the latest time of a packet, the same
    int64_t expired             # last packet before which the other side ceased to wait for them
    int64_t expired_of_all      # last packet before which the other connections did
    bint is_started             # next_sequence is known
    bint is_assumed             # it is that of an empty packet, which may be a keep-alive
    bint has_syn                # the capture has the SYN of this side
    bint is_stated              # the first ACK of the other side was seen, before this side started
    bint lacks_start            # the other side's SYN was seen, but not where these bytes begin
    uint32_t syn_sequence       # of the SYN of this side
    uint32_t stated_sequence    # of the next byte, as the first ACK of the other side states it
    bint is_closed              # FIN was seen, and all bytes before it came or are acknowledged
    bint has_fin
    bint is_touched             # it is in the list of directions with new bytes
    bint is_taken               # the `take` that runs returns its bytes
    bint is_missing             # bytes before the held ones are missing
    bint is_kept                # its ready bytes are given again with those of the other side
    bint is_listed              # it is in the list of directions with missing bytes
    uint64_t fin_position

cdef struct Connection:
    Key key
    int64_t number              # in the order of the first packets, from 0 on
    int64_t time                # of the first packet
    int64_t time_end            # of the last packet
    int64_t packet_end          # number of the last packet of these endpoints
    int64_t syn_time            # of the SYN of the client, 0 if it was not seen
    int64_t handshake           # ns from SYN to the client's first ACK, -1 where not known
    uint64_t arrived            # bytes in packets so far
    int32_t first_packet        # row in the first table of packets
    int32_t next                # of the same slot of the hash table, or of the free ones
    uint64_t seen               # `elapsed` of the clock at the last packet, ns
    int64_t seen_packet         # number of the last packet
    int32_t older               # neighbours in the list of connections by their last packets
    int32_t younger
    uint32_t answer             # sequence number after the last SYN of the server
    uint8_t client              # the side that is the client, 0 or 1
    uint8_t state
    uint8_t phase
    uint8_t deciding_packets    # with bytes that do not say who is the client
    bint is_role_open           # the next packets may say so
    bint is_findable            # it is in the hash table
    bint begun_earlier          # the capture has no SYN of the client, or has it after bytes
    bint is_acknowledging       # the handshake waits for the client's ACK
    Side side[2]
