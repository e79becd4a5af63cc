# How much time passes in a capture, although packets may have false times. assembler.pyx uses it.
#
#     times of packets                                  the clock
#     the last CONFIRMING are after its time            goes on to the earliest of them
#     RETURNING in a row are a minute before it         is set back to the latest of them
#     any others                                        stays
#
# So packets with false times change nothing, unless there are many in a row. `elapsed` is the sum
# of the steps forward. It never decreases, and a step counts as 4 hours at most. So connections are
# released as before when false times end.
#
# The time of a packet counts when the next ones confirm it. So the connections of the last packets
# are noted: they are used at the time of the step.
from libc.stdint cimport int32_t, int64_t, uint64_t
from wirescan.pcap.assembly.connection_table cimport ConnectionTable
from wirescan.pcap.assembly.tcp_connection cimport NONE

cdef enum:
    CONFIRMING = 8
    RETURNING = 64
    SECOND = 1000000000                 # ns
    MINUTE_SECONDS = 60
    LARGEST_STEP_SECONDS = 14400        # no connection is idle for longer

cdef struct CaptureClock:
    int64_t time                # ns since 1970, up to which time is counted
    uint64_t elapsed            # ns
    int64_t behind_time         # latest time of the last packets that are a minute before `time`
    int32_t behind              # how many of them follow each other
    int32_t current             # number of the last packet among the last ones; NONE without a time
    uint64_t packets            # with a time
    int64_t times[CONFIRMING]   # of the last packets
    int32_t places[CONFIRMING]  # their connections, or NONE


cdef inline uint64_t measure_step(int64_t first, int64_t last) noexcept nogil:
    # Return the ns from one time to a later one. The difference may not fit 63 bits.
    return <uint64_t>last - <uint64_t>first


cdef inline void advance_clock(CaptureClock* clock, ConnectionTable* table,
                               int64_t time) noexcept nogil:
    # A packet has this time; 0 where it is not known.
    cdef int64_t earliest = time
    cdef int32_t i
    clock.current = NONE
    if time == 0:
        return
    if clock.packets == 0:
        clock.time = time
    clock.current = <int32_t>(clock.packets % CONFIRMING)
    clock.packets += 1
    clock.times[clock.current] = time
    clock.places[clock.current] = NONE
    if time > clock.time:
        clock.behind = 0
        for i in range(CONFIRMING):
            earliest = min(earliest, clock.times[i])
        if clock.packets >= CONFIRMING and earliest > clock.time:
            step_forward(clock, table, earliest)
    elif measure_step(time, clock.time) > <uint64_t>MINUTE_SECONDS * SECOND:
        clock.behind_time = max(clock.behind_time, time) if clock.behind else time
        clock.behind += 1
        if clock.behind == RETURNING:
            clock.time = clock.behind_time
            clock.behind = 0
    else:
        clock.behind = 0


cdef inline void step_forward(CaptureClock* clock, ConnectionTable* table,
                              int64_t time) noexcept nogil:
    # Go on to a time. The connections of the last packets are used then.
    cdef int32_t i
    clock.elapsed += min(measure_step(clock.time, time), <uint64_t>LARGEST_STEP_SECONDS * SECOND)
    clock.time = time
    for i in range(CONFIRMING):
        if clock.places[i] != NONE:
            table.at[clock.places[i]].seen = clock.elapsed


cdef inline void note_use(CaptureClock* clock, int64_t place) noexcept nogil:
    # The last packet belongs to a connection.
    if clock.current != NONE:
        clock.places[clock.current] = <int32_t>place
