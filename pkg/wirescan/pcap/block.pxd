# Reads the records of a pcap file and the blocks of a pcapng file. scan.pyx shows the formats.
from libc.stdlib cimport realloc
from libc.string cimport memset
from wirescan.core cimport (
    BAD_FIELD, BAD_LENGTH, Context, Fault, LIKELY, NOT_A_FRAME, OK, Reader, SHORT, SearchBudget,
    TRUNCATED, UNDECIDED, be16, be32, int32_t, int64_t, le16, le32, left, prefetch, rarely,
    uint16_t, uint32_t, uint64_t, uint8_t)
from wirescan.pcap.rows cimport (
    Block, CUSTOM, FILE, INTERFACE, NAMES, OTHER_BLOCK, PACKET, SECRETS, SECTION, STATISTICS)

cdef enum:
    UNKNOWN = 0                 # the file has not begun
    PCAP = 1
    PCAPNG = 2

cdef enum:
    CACHE_LINE = 64             # bytes
    PREFETCH_DISTANCE = 4096    # bytes from the block that is read to those that are prefetched
    FILE_HEADER = 24            # bytes of the header of a pcap file
    RECORD_HEADER = 16
    SMALLEST_BLOCK = 12
    SECTION_HEADER = 28         # bytes of a section header without options
    MAJOR_VERSION = 1           # of pcapng; the minor versions 0 and 2 are the same
    LARGEST_PACKET = 1 << 18    # bytes that a packet may have, whatever the file's header says
    MOST_INTERFACES = 1 << 16
    NANOSECONDS = 1000000000
    RECORDS_IN_A_ROW = 3        # that a probe verifies, and after a record of a doubtful time
    FAR_RECORDS_IN_A_ROW = 8    # where their time is not near that of the last good record
    LARGEST_STEP = 7 * 86400    # seconds between records in a row that a probe accepts

cdef extern from *:
    """
    #define LATEST ((int64_t)1 << 34)
    """
    const int64_t LATEST        # seconds since 1970, after which no time is read

# Types of blocks.
cdef enum:
    TYPE_INTERFACE = 1
    TYPE_OLD_PACKET = 2
    TYPE_SIMPLE_PACKET = 3
    TYPE_NAMES = 4
    TYPE_STATISTICS = 5
    TYPE_PACKET = 6
    TYPE_SECRETS = 10
    TYPE_CUSTOM = 0xBAD
    TYPE_CUSTOM_FIXED = 0x40000BAD
    TYPE_SECTION = 0x0A0D0D0A

# Options of blocks.
cdef enum:
    END_OF_OPTIONS = 0
    COMMENT = 1
    RESOLUTION = 9
    TIME_OFFSET = 14

cdef struct Interface:
    uint64_t units              # of time in a second; 0 where there are too many for 64 bits
    int64_t offset              # seconds
    uint32_t longest            # snap length, 0 for none
    uint16_t link

# What the blocks so far say of the next ones.
cdef struct Capture:
    int kind
    bint is_big                 # numbers are big-endian
    bint is_foreign             # the section has another version, so its blocks are not read
    uint32_t first_interface    # number of the section's first interface in the file
    size_t count                # interfaces of the section
    size_t capacity
    Interface* interfaces
    Interface file              # of a pcap file
    bint has_seconds            # a record of the file was good
    uint32_t seconds            # time of the last good record
    bint more                   # bytes may follow those that are scanned


cdef inline uint16_t get16(const Capture* capture, const uint8_t* p) noexcept nogil:
    return be16(p) if capture.is_big else le16(p)


cdef inline uint32_t get32(const Capture* capture, const uint8_t* p) noexcept nogil:
    return be32(p) if capture.is_big else le32(p)


cdef inline bint find_byte_order(const uint8_t* p, bint* is_big, uint64_t* units) noexcept nogil:
    # Return whether a pcap file begins here: its magic number and the version 2.4.
    cdef uint32_t magic = le32(p)
    is_big[0] = magic == <uint32_t>0xD4C3B2A1 or magic == <uint32_t>0x4D3CB2A1
    if is_big[0]:
        magic = be32(p)
    if magic == <uint32_t>0xA1B2C3D4:
        units[0] = 1000000
    elif magic == <uint32_t>0xA1B23C4D:
        units[0] = NANOSECONDS
    else:
        return False
    return (be32(p + 4) == 0x00020004) if is_big[0] else (le32(p + 4) == 0x00040002)


cdef inline int64_t to_nanoseconds(uint64_t seconds, uint64_t fraction,
                                   uint64_t units) noexcept nogil:
    # Return a time in ns since 1970; 0 where it does not fit.
    if seconds >= <uint64_t>9223372036:
        return 0
    if units == 1000000:
        fraction *= 1000
    elif units != NANOSECONDS:
        if units < <uint64_t>1 << 32:
            fraction = fraction * NANOSECONDS // units
        elif units & (units - 1) == 0:
            # A power of two: the product has more than 64 bits, so divide it in two steps.
            fraction = ((fraction >> 32) * NANOSECONDS
                        + ((fraction & <uint64_t>0xFFFFFFFF) * NANOSECONDS >> 32)) // (units >> 32)
        else:
            fraction //= units // NANOSECONDS   # a power of ten
    return <int64_t>(seconds * NANOSECONDS + min(fraction, <uint64_t>NANOSECONDS * 4))


cdef inline int64_t read_time(const Interface* interface, uint64_t stamp) noexcept nogil:
    # Return the time of a stamp of an interface in ns since 1970; 0 where it does not fit.
    cdef int64_t seconds
    if interface.units == 0:
        return 0
    if (stamp // interface.units > <uint64_t>LATEST
            or not -LATEST < interface.offset < LATEST):
        return 0
    seconds = <int64_t>(stamp // interface.units) + interface.offset
    if seconds < 0:
        return 0
    return to_nanoseconds(<uint64_t>seconds, stamp % interface.units, interface.units)


cdef inline void prefetch_after(const uint8_t* at, uint32_t size) noexcept nogil:
    # Prefetch as many bytes as a block has, some way after it. Processors do not predict where
    # blocks begin, and a block must be read to know where the next one begins.
    cdef const uint8_t* line = at + PREFETCH_DISTANCE
    cdef const uint8_t* end = line + min(size, <uint32_t>PREFETCH_DISTANCE)
    while line < end:
        prefetch(line)
        line += CACHE_LINE


cdef inline bint is_read_late(const uint8_t* p, const Capture* capture) noexcept nogil:
    # Return whether the header at `p` looks like the one that begins four bytes before.
    #
    # A record that was captured as a whole states its size twice. So a reading that begins four
    # bytes late finds a size there too, and goes on from record to record. It takes the fraction
    # for the seconds, and the captured size for the fraction. So its fraction equals its size, and
    # its seconds are below the units of a second. A time after 12 January 1970 (2001 for
    # nanoseconds) is never below.
    cdef uint32_t size = get32(capture, p + 8)
    return size and size == get32(capture, p + 4) and get32(capture, p) < capture.file.units


cdef inline bint is_near(uint32_t seconds, uint32_t before) noexcept nogil:
    # Return whether records with these times may follow each other. Time may go backwards.
    return seconds - before <= LARGEST_STEP or before - seconds <= LARGEST_STEP


cdef inline bint is_near_last(uint32_t seconds, const Capture* capture) noexcept nogil:
    # Return whether a time is near that of the last good record. Without one, it is not.
    return capture.has_seconds and is_near(seconds, capture.seconds)


cdef inline bint has_usual_fields(const uint8_t* p, const Capture* capture) noexcept nogil:
    # Return whether the fields of a header are usual, whatever its time is.
    cdef uint32_t size = get32(capture, p + 8)
    return (size <= get32(capture, p + 12)
            and size <= max(<uint32_t>LARGEST_PACKET, capture.file.longest)
            and get32(capture, p + 4) < capture.file.units and not is_read_late(p, capture))


cdef inline bint may_follow(const uint8_t* p, const uint8_t* before,
                            const Capture* capture) noexcept nogil:
    # Return whether the header at `p` may be that of the record after the one at `before`.
    return (get32(capture, p + 8) <= max(<uint32_t>LARGEST_PACKET, capture.file.longest)
            and (is_near(get32(capture, p), get32(capture, before))
                 or is_near_last(get32(capture, p), capture))
            and not is_read_late(p, capture))


cdef inline bint is_doubtful(const uint8_t* p, const Capture* capture) noexcept nogil:
    # Return whether the header at `p` is unusual, although a record may have it. Some tools write
    # more bytes than the packet had on the wire, or nanoseconds for microseconds. A capture may
    # pause, and times may be false.
    return not has_usual_fields(p, capture) or (
        capture.has_seconds and not is_near_last(get32(capture, p), capture))


cdef inline Fault verify_end(const Reader* r, const Capture* capture,
                             bint bytes_follow) noexcept nogil:
    # Verify the end of a doubtful record by the headers after it: one where its time is near that
    # of the last good record, and several elsewhere. The record is good if records may follow each
    # other there, as far as the bytes go. Where only its time is doubtful, times do not matter,
    # because they may all be false.
    #
    # `capture.more`: bytes may come later. `bytes_follow`: bytes follow `r.end`, but the limit on a
    # frame hides them, so to wait does not help.
    cdef const uint8_t* before = r.at
    cdef const uint8_t* next
    cdef size_t size
    cdef uint64_t units
    cdef bint is_big
    cdef bint is_usual = has_usual_fields(r.at, capture)
    cdef int _i, headers = RECORDS_IN_A_ROW
    if is_near_last(get32(capture, r.at), capture):
        headers = 1
    for _i in range(headers):
        size = RECORD_HEADER + get32(capture, before + 8)
        if <size_t>(r.end - before) < size + RECORD_HEADER:
            return SHORT if capture.more and not bytes_follow else OK
        next = before + size
        if find_byte_order(next, &is_big, &units):
            return OK
        if not (may_follow(next, before, capture)
                or (is_usual and has_usual_fields(next, capture))):
            return BAD_FIELD
        before = next
    return OK


cdef inline Fault read_record(Reader* r, Block* row, Capture* capture,
                              bint bytes_follow) noexcept nogil:
    # Read a record of a pcap file, or the header of a file that follows another one.
    cdef const uint8_t* p = r.at
    cdef uint64_t units
    cdef uint32_t size
    cdef bint is_big
    cdef Fault fault = OK
    if left(r) < RECORD_HEADER:
        row.head.size = RECORD_HEADER
        return SHORT
    size = get32(capture, p + 8)
    if find_byte_order(p, &is_big, &units):
        return read_file_header(r, row, capture)
    if size > max(<uint32_t>LARGEST_PACKET, capture.file.longest):
        return BAD_LENGTH
    if left(r) - RECORD_HEADER < size:
        row.head.size = RECORD_HEADER + size if size < <uint32_t>0xFFFFFFFF - RECORD_HEADER else 0
        return SHORT
    if rarely(is_doubtful(p, capture)):
        fault = verify_end(r, capture, bytes_follow)
        if fault == SHORT:
            row.head.size = RECORD_HEADER + size
            return SHORT
    row.head.kind = PACKET
    row.head.body = RECORD_HEADER
    row.time = to_nanoseconds(get32(capture, p), get32(capture, p + 4), capture.file.units)
    row.length = get32(capture, p + 12)
    row.link = capture.file.link
    row.comment_size = -1
    r.at = p + RECORD_HEADER + size
    if fault:
        row.data_size = -1      # the record may end before these bytes
        return fault
    row.data_at = RECORD_HEADER
    row.data_size = <int32_t>size
    capture.seconds = get32(capture, p)
    capture.has_seconds = True
    prefetch_after(p, size)
    return OK


cdef inline Fault read_file_header(Reader* r, Block* row, Capture* capture) noexcept nogil:
    cdef const uint8_t* p = r.at
    cdef bint is_big
    cdef uint64_t units = 0
    if left(r) >= 8 and not find_byte_order(p, &is_big, &units):
        return NOT_A_FRAME
    if left(r) < FILE_HEADER:
        row.head.size = FILE_HEADER
        return SHORT
    capture.kind = PCAP
    capture.is_big = is_big
    capture.has_seconds = False
    capture.file.units = units
    # A snap length above 2 GiB is none.
    capture.file.longest = min(get32(capture, p + 16), <uint32_t>0x7FFFFFFF)
    capture.file.link = <uint16_t>get32(capture, p + 20)
    row.head.kind = FILE
    row.head.body = FILE_HEADER
    row.link = capture.file.link
    row.data_size = -1
    row.comment_size = -1
    r.at = p + FILE_HEADER
    return OK


cdef inline uint64_t raise_power(uint64_t base, unsigned int exponent) noexcept nogil:
    # Return a power, or 0 where it has more than 63 bits.
    cdef uint64_t power = 1
    while exponent:
        if power > <uint64_t>0x7FFFFFFFFFFFFFFF // base:
            return 0
        power *= base
        exponent -= 1
    return power


cdef inline void read_options(const uint8_t* p, const uint8_t* end, const uint8_t* start,
                              Block* row, const Capture* capture,
                              Interface* interface) noexcept nogil:
    # Read the options that follow a block's fields. Options after a broken one are not read.
    cdef uint16_t code, size
    while end - p >= 4:
        code = get16(capture, p)
        size = get16(capture, p + 2)
        if code == END_OF_OPTIONS or end - p - 4 < size:
            return
        if code == COMMENT and row.comment_size < 0:
            row.comment_at = <uint32_t>(p + 4 - start)
            row.comment_size = size
        elif interface is not NULL:
            if code == RESOLUTION and size == 1:
                interface.units = raise_power(2 if p[4] & 0x80 else 10, p[4] & 0x7F)
            elif code == TIME_OFFSET and size == 8:
                interface.offset = <int64_t>(
                    <uint64_t>get32(capture, p + (4 if capture.is_big else 8)) << 32
                    | get32(capture, p + (8 if capture.is_big else 4)))
        p += 4 + ((size + 3) & ~3)


cdef inline Fault read_section(Reader* r, Block* row, Capture* capture) noexcept nogil:
    # Read a section header, which says the byte order of its section, its own included.
    cdef const uint8_t* p = r.at
    cdef Capture section
    cdef uint32_t size
    if left(r) < SMALLEST_BLOCK:
        row.head.size = SECTION_HEADER
        return SHORT
    section.is_big = be32(p + 8) == 0x1A2B3C4D
    if not section.is_big and le32(p + 8) != 0x1A2B3C4D:
        return NOT_A_FRAME
    size = get32(&section, p + 4)
    if size < SECTION_HEADER or size & 3:
        return BAD_LENGTH
    if left(r) < size:
        row.head.size = size
        return SHORT
    if get32(&section, p + size - 4) != size:
        return BAD_LENGTH
    capture.kind = PCAPNG
    capture.is_big = section.is_big
    capture.first_interface += <uint32_t>capture.count
    capture.count = 0
    row.head.kind = SECTION
    row.head.body = SECTION_HEADER - 4
    row.data_size = -1
    row.comment_size = -1
    r.at = p + size
    capture.is_foreign = get16(capture, p + 12) != MAJOR_VERSION
    if capture.is_foreign:
        return BAD_FIELD
    read_options(p + SECTION_HEADER - 4, p + size - 4, p, row, capture, NULL)
    return OK


cdef inline bint add_interface(Capture* capture, const Interface* interface) noexcept nogil:
    # Return False where the section has too many interfaces, or there is no memory.
    cdef size_t capacity
    cdef void* memory
    if capture.count == MOST_INTERFACES:
        return False
    if capture.count == capture.capacity:
        capacity = capture.capacity * 2 + 8
        memory = realloc(capture.interfaces, capacity * sizeof(Interface))
        if memory is NULL:
            return False
        capture.interfaces = <Interface*>memory
        capture.capacity = capacity
    capture.interfaces[capture.count] = interface[0]
    capture.count += 1
    return True


cdef inline Fault read_interface(const uint8_t* p, uint32_t size, Block* row,
                                 Capture* capture) noexcept nogil:
    cdef Interface interface
    row.head.kind = INTERFACE
    if size < 20:
        return TRUNCATED
    interface.units = 1000000
    interface.offset = 0
    interface.link = get16(capture, p + 8)
    interface.longest = get32(capture, p + 12)
    row.head.body = 16
    read_options(p + 16, p + size - 4, p, row, capture, &interface)
    row.interface = capture.first_interface + <uint32_t>capture.count
    row.link = interface.link
    return OK if add_interface(capture, &interface) else BAD_FIELD


cdef inline Fault read_packet_block(const uint8_t* p, uint32_t size, uint32_t type, Block* row,
                                    const Capture* capture) noexcept nogil:
    # Read an enhanced, an old or a simple packet block.
    cdef uint32_t fields = 12 if type == TYPE_SIMPLE_PACKET else 28
    cdef uint32_t number = 0, captured
    cdef const Interface* interface
    cdef uint64_t stamp
    row.head.kind = PACKET
    if size < fields + 4:
        return TRUNCATED
    row.head.body = fields
    row.data_at = fields
    if type == TYPE_PACKET:
        number = get32(capture, p + 8)
    elif type == TYPE_OLD_PACKET:
        number = get16(capture, p + 8)
    if number >= capture.count:
        return BAD_FIELD
    interface = &capture.interfaces[number]
    row.interface = capture.first_interface + number
    row.link = interface.link
    if type == TYPE_SIMPLE_PACKET:
        row.length = get32(capture, p + 8)
        captured = row.length
        if interface.longest:
            captured = min(captured, interface.longest)
        # Without a snap length only the size of the block bounds the packet.
        captured = min(captured, min(size - fields - 4, <uint32_t>0x7FFFFFFF))
    else:
        stamp = <uint64_t>get32(capture, p + 12) << 32 | get32(capture, p + 16)
        row.time = read_time(interface, stamp)
        captured = get32(capture, p + 20)
        row.length = get32(capture, p + 24)
        if captured > size - fields - 4 or captured > <uint32_t>0x7FFFFFFF:
            return TRUNCATED
        read_options(p + fields + ((captured + 3) & ~<uint32_t>3), p + size - 4, p, row, capture,
                     NULL)
    row.data_size = <int32_t>captured
    return OK


cdef inline Fault read_block(Reader* r, Block* row, Capture* capture) noexcept nogil:
    # Read a block of a pcapng file.
    cdef const uint8_t* p = r.at
    cdef uint32_t type, size
    cdef Fault fault = OK
    if left(r) < SMALLEST_BLOCK:
        row.head.size = SMALLEST_BLOCK
        return SHORT
    if be32(p) == TYPE_SECTION:
        return read_section(r, row, capture)
    if capture.kind == UNKNOWN:
        return NOT_A_FRAME
    type = get32(capture, p)
    size = get32(capture, p + 4)
    if size < SMALLEST_BLOCK or size & 3:
        return BAD_LENGTH
    if left(r) < size:
        row.head.size = size
        return SHORT
    if get32(capture, p + size - 4) != size:
        return BAD_LENGTH
    row.data_size = -1
    row.comment_size = -1
    row.head.body = 8
    if capture.is_foreign:
        row.head.kind = OTHER_BLOCK
        row.data_at = 8
        row.data_size = <int32_t>(size - SMALLEST_BLOCK) if size < <uint32_t>0x7FFFFFFF else -1
    elif type == TYPE_PACKET or type == TYPE_SIMPLE_PACKET or type == TYPE_OLD_PACKET:
        fault = read_packet_block(p, size, type, row, capture)
    elif type == TYPE_INTERFACE:
        fault = read_interface(p, size, row, capture)
    elif type == TYPE_SECRETS and size >= 20:
        row.head.kind = SECRETS
        row.data_at = 16
        row.data_size = <int32_t>min(get32(capture, p + 12), min(size - 20, <uint32_t>0x7FFFFFFF))
    else:
        row.head.kind = name_type(type)
        row.data_at = 8
        row.data_size = <int32_t>(size - SMALLEST_BLOCK) if size < <uint32_t>0x7FFFFFFF else -1
    r.at = p + size
    prefetch_after(p, size)
    return fault


cdef inline uint8_t name_type(uint32_t type) noexcept nogil:
    if type == TYPE_NAMES:
        return NAMES
    if type == TYPE_STATISTICS:
        return STATISTICS
    if type == TYPE_CUSTOM or type == TYPE_CUSTOM_FIXED:
        return CUSTOM
    return OTHER_BLOCK


cdef inline Fault read_any_block(Reader* r, void* out, const Context* context) noexcept nogil:
    # The ReadFrame of pcap.blocks. The first block says which kind of file it is.
    cdef Capture* capture = <Capture*>context.memory
    cdef Block* row = <Block*>out
    if capture.kind == PCAP:
        return read_record(r, row, capture, context.bytes_follow)
    if capture.kind == PCAPNG:
        return read_block(r, row, capture)
    if left(r) < 4:
        row.head.size = FILE_HEADER
        return SHORT
    if be32(r.at) == TYPE_SECTION:
        return read_section(r, row, capture)
    return read_file_header(r, row, capture)


cdef inline bint is_known_type(uint32_t type) noexcept nogil:
    return (1 <= type <= TYPE_PACKET or type == TYPE_SECRETS or type == TYPE_CUSTOM
            or type == TYPE_CUSTOM_FIXED or type == TYPE_SECTION)


cdef inline size_t probe_block(const uint8_t* at, const uint8_t* end,
                               const Capture* capture) noexcept nogil:
    # Return 0 where a block of pcapng begins: a known type, and the same size at both ends.
    cdef size_t available = <size_t>(end - at)
    cdef Capture section
    cdef uint32_t size
    if available < SMALLEST_BLOCK:
        return UNDECIDED
    if be32(at) == TYPE_SECTION:
        section.is_big = be32(at + 8) == 0x1A2B3C4D
        if not section.is_big and le32(at + 8) != 0x1A2B3C4D:
            return 1
        capture = &section
    elif capture.kind == UNKNOWN or not is_known_type(get32(capture, at)):
        return 1
    size = get32(capture, at + 4)
    if size < SMALLEST_BLOCK or size & 3:
        return 1
    if size > available:
        return UNDECIDED
    return 0 if get32(capture, at + size - 4) == size else 1


cdef inline size_t probe_records(const uint8_t* at, const uint8_t* end, bint deep,
                                 const Capture* capture) noexcept nogil:
    # Return 0 where some plausible records follow each other, and UNDECIDED where the bytes end
    # before. LIKELY: they end exactly after two records or more, and the search is `deep`.
    cdef const uint8_t* before = NULL
    cdef uint32_t size
    cdef int i
    cdef int records = RECORDS_IN_A_ROW
    if (capture.has_seconds and end - at >= RECORD_HEADER
            and not is_near_last(get32(capture, at), capture)):
        records = FAR_RECORDS_IN_A_ROW
    for i in range(records):
        if end - at < RECORD_HEADER:
            return UNDECIDED
        size = get32(capture, at + 8)
        if (size == 0 or size > LARGEST_PACKET or size > get32(capture, at + 12)
                or get32(capture, at + 4) >= capture.file.units or is_read_late(at, capture)):
            return 1
        if i and not is_near(get32(capture, at), get32(capture, before)):
            return 1
        before = at
        if <size_t>(end - at) - RECORD_HEADER < size:
            return UNDECIDED
        at += RECORD_HEADER + size
        if at == end and i:
            return LIKELY if deep else UNDECIDED    # other bytes may follow
    return 0


cdef inline size_t probe_any_block(const uint8_t* at, const uint8_t* end, bint deep,
                                   SearchBudget* budget) noexcept nogil:
    # The ResyncProbe of pcap.blocks. Before a file has begun, it looks for its header.
    cdef const Capture* capture = <const Capture*>budget.memory
    cdef bint is_big
    cdef uint64_t units
    if capture.kind != PCAPNG:
        if end - at >= 8 and find_byte_order(at, &is_big, &units):
            return 0 if end - at >= FILE_HEADER else UNDECIDED
        if capture.kind == PCAP:
            return probe_records(at, end, deep, capture)
    return probe_block(at, end, capture)
