# Which bytes other ones wait for, and the order of bytes that came while others were missing.
# assembler.pyx uses it.
#
# A capture in pieces holds back both sides of a connection while bytes of one are missing, because
# a response must not come before its request. The bytes of all connections may wait in the same
# way. They wait up to a limit, which depends on the packets alone: so a capture in pieces and a
# whole one have the same order. `expire` is called before each packet, and `begin_missing` after
# it.
#
# Nothing may follow the bytes that are missing at the end of a side. `find_shown_end` and
# `find_final_end` say up to where it certainly sent bytes:
#
#     when                          the bytes are certain
#     the connection goes on        up to an acknowledged position that the sender's packets reached
#     it or the capture ends        up to its FIN, or an acknowledged position
#
# While it goes on, an ACK alone shows nothing: the packets of one side may be captured seconds
# before those of the other side, and the bytes may still come.
from libc.stdint cimport int64_t, uint64_t
from wirescan.pcap.assembly.tcp_connection cimport Connection, NONE, Side

cdef enum:
    LONGEST_WAIT = 10           # seconds of the capture for which other connections wait

# What a capture has so far.
cdef struct Progress:
    uint64_t arrived            # bytes of TCP in packets
    int64_t packet              # number of the packet that is followed
    int64_t time                # the latest time of a packet, ns


cdef inline bint lets_side_wait(const Connection* connection, const Side* side,
                                uint64_t limit) noexcept nogil:
    # Return whether the other side waits for missing bytes of a side. limit: bytes that may wait.
    return side.is_missing and connection.arrived - side.missing_at <= limit


cdef inline bint lets_all_wait(const Progress* progress, const Side* side,
                               uint64_t limit) noexcept nogil:
    # Return whether the other connections wait for missing bytes of a side.
    return (side.is_missing and progress.arrived - side.missing_at_all <= limit
            and progress.time - side.missing_time <= <int64_t>LONGEST_WAIT * 1000000000)


cdef inline void expire(const Progress* progress, Connection* connection,
                        uint64_t limit) noexcept nogil:
    # Note for which sides of a connection nobody waits any more. Held bytes of earlier packets than
    # this one come later than others, which did not wait.
    cdef Side* side
    cdef int i
    for i in range(2):
        side = &connection.side[i]
        if not side.is_missing:
            continue
        if not lets_side_wait(connection, side, limit):
            side.expired = progress.packet - 1
        if not lets_all_wait(progress, side, limit):
            side.expired_of_all = progress.packet - 1


cdef inline uint64_t find_shown_end(const Side* side) noexcept nogil:
    # Return the stream position up to which a side without held bytes certainly sent bytes, while
    # its connection goes on.
    cdef uint64_t stop = min(side.acknowledged, side.sent)
    if side.has_fin:
        stop = min(stop, side.fin_position)
    return without_fin(side, stop)


cdef inline uint64_t find_final_end(const Side* side) noexcept nogil:
    # Return the same where no packet of the connection follows.
    return without_fin(side, side.fin_position if side.has_fin else side.acknowledged)


cdef inline uint64_t without_fin(const Side* side, uint64_t stop) noexcept nogil:
    # Return the end of the bytes before a position. One missing sequence number is probably that of
    # a FIN that the capture does not have.
    if not side.has_fin and stop == side.position + 1:
        stop = side.position
    return max(stop, side.position)


cdef inline bint begin_missing(const Progress* progress, const Connection* connection,
                               Side* side) noexcept nogil:
    # Note whether bytes of a side are missing, and since when. Return whether they begin to be.
    cdef bint begins
    if side.held == NONE:
        side.is_missing = False
        return False
    begins = not side.is_missing or side.missing_position != side.position
    if begins:
        side.is_missing = True
        side.missing_position = side.position
        side.missing_at = connection.arrived
        side.missing_at_all = progress.arrived
        side.missing_time = progress.time
    return begins
