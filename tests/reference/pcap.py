"""Captures, decoded one block and one header at a time: blocks of pcap and pcapng, and packets.

Written from draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng, RFC 791, RFC 8200, RFC 9293 and
RFC 768. A row is a dict with every column of the format.
"""

import struct

from tests.reference.window import BadBytesError

OK, TRUNCATED, BAD_FIELD, BAD_CHECKSUM = 0, 1, 16, 4
SHORT, BAD_LENGTH, NOT_A_FRAME = 128, 160, 161

HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
BLOCK = HEAD | dict(
    time=0, interface=0, length=0, data_at=0, data_size=0, comment_at=0, comment_size=0, link=0
)
PACKET = HEAD | dict(
    time=0,
    length=0,
    interface=0,
    sequence=0,
    acknowledgment=0,
    source_address_at=0,
    source_address_size=-1,
    destination_address_at=0,
    destination_address_size=-1,
    payload_at=0,
    payload_size=0,
    payload_length=0,
    fragment_id=0,
    source_port=0,
    destination_port=0,
    fragment_offset=0,
    window=0,
    flags=0,
    link=0,
    vlan=0,
    protocol=0,
    version=0,
    more_fragments=0,
    ttl=0,
)
FILE_KIND, PACKET_KIND, SECTION_KIND, INTERFACE_KIND, SECRETS_KIND, OTHER_KIND = 1, 2, 3, 4, 7, 9
NAMES_OF_TYPES = {4: 5, 5: 6, 0xBAD: 8, 0x40000BAD: 8}
KNOWN_TYPES = {1, 2, 3, 4, 5, 6, 10, 0xBAD, 0x40000BAD, 0x0A0D0D0A}
SECTION_TYPE = b"\x0a\x0d\x0d\x0a"
BILLION = 10**9
LARGEST_FRAME = 100 << 20  # bytes: the default of Limits.frame
LARGEST_PACKET = 1 << 18
LATEST = 1 << 34  # seconds
WEEK = 7 * 86400


# ---- blocks


class Capture:
    """What the blocks so far say: kind None, "pcap" or "pcapng"; byte order "<" or ">"."""

    def __init__(self):
        self.kind = None
        self.order = "<"
        self.units = 0  # of time in a second, for pcap
        self.seconds = None  # of the last good record of a pcap file
        self.snap_length = 0
        self.link = 0
        self.is_foreign = False  # the section has another version
        self.first_interface = 0
        self.interfaces = []  # dicts of units, offset, snap_length, link


def read_blocks(data, resync=True):
    """Return (rows of pcap.blocks, stop fault, stop position)."""
    data = bytes(data)
    rows, at, capture = [], 0, Capture()
    while at < len(data):
        try:
            row = read_block(data, at, capture)
        except BadBytesError as bad:
            if not resync and bad.fault != SHORT:
                return rows, bad.fault, at
            end = find_next(data, at + 1, capture)
            if end is None and bad.fault == SHORT:
                return rows, SHORT, at
            fault = BAD_LENGTH if bad.fault == SHORT else bad.fault
            if not resync:
                return rows, fault, at
            end = len(data) if end is None else end
            rows.append(BLOCK | dict(start=at, size=end - at, fault=fault))
        else:
            end = at + row["size"]
            if resync and row["fault"] and end < len(data) and not is_next(data, end, capture):
                end = find_next(data, at + 1, capture) or end
                row |= dict(size=end - at, body=min(row["body"], end - at))
            rows.append(row)
        at = rows[-1]["start"] + rows[-1]["size"]
    return rows, OK, at


def read_block(data, at, capture):
    """Return the row of the block at `at`. Raises BadBytesError if its end is unknown."""
    if capture.kind == "pcap":
        return read_record(data, at, capture)
    if capture.kind == "pcapng":
        return read_pcapng_block(data, at, capture)
    if len(data) - at < 4:
        raise BadBytesError(SHORT)
    if data[at : at + 4] == SECTION_TYPE:
        return read_section(data, at, capture)
    return read_file_header(data, at, capture)


def find_header(data, at):
    """Return (order, units) where a pcap file begins at `at`, or None."""
    for order in "<>":
        for magic, units in ((0xA1B2C3D4, 10**6), (0xA1B23C4D, BILLION)):
            if data[at : at + 8] == struct.pack(order + "IHH", magic, 2, 4):
                return order, units
    return None


def read_file_header(data, at, capture):
    header = find_header(data, at)
    if header is None and len(data) - at >= 8:
        raise BadBytesError(NOT_A_FRAME)
    if len(data) - at < 24:
        raise BadBytesError(SHORT)
    capture.kind = "pcap"
    capture.order, capture.units = header
    capture.seconds = None
    capture.snap_length, link = struct.unpack_from(capture.order + "II", data, at + 16)
    capture.link = link & 0xFFFF  # the upper bits are about the checksum of frames
    return BLOCK | dict(
        start=at,
        size=24,
        body=24,
        kind=FILE_KIND,
        link=capture.link,
        data_size=-1,
        comment_size=-1,
    )


def read_record(data, at, capture):
    if len(data) - at < 16:
        raise BadBytesError(SHORT)
    if find_header(data, at):
        return read_file_header(data, at, capture)
    seconds, fraction, size, length = struct.unpack_from(capture.order + "IIII", data, at)
    if size > max(LARGEST_PACKET, min(capture.snap_length, 0x7FFFFFFF)):
        raise BadBytesError(BAD_LENGTH)
    if 16 + size > LARGEST_FRAME:
        raise BadBytesError(BAD_LENGTH)
    if at + 16 + size > len(data):
        raise BadBytesError(SHORT)
    time = seconds * BILLION + min(fraction * (BILLION // capture.units), 4 * BILLION)
    row = BLOCK | dict(start=at, size=16 + size, body=16, kind=PACKET_KIND, time=time)
    row |= dict(length=length, link=capture.link, comment_size=-1)
    is_doubtful = not has_usual_fields(seconds, fraction, size, length, capture)
    is_doubtful |= capture.seconds is not None and not is_near_last(seconds, capture)
    if is_doubtful and not is_followed(data, at, capture):
        return row | dict(data_size=-1, fault=BAD_FIELD)
    capture.seconds = seconds
    return row | dict(data_at=16, data_size=size)


def is_read_late(seconds, fraction, size, capture):
    """Does this look like the header of a record that begins four bytes before?"""
    return size > 0 and fraction == size and seconds < capture.units


def has_usual_fields(seconds, fraction, size, length, capture):
    """Are the fields of a header usual, whatever the time is?"""
    is_late = is_read_late(seconds, fraction, size, capture)
    largest = max(LARGEST_PACKET, min(capture.snap_length, 0x7FFFFFFF))
    return size <= min(length, largest) and fraction < capture.units and not is_late


def is_followed(data, at, capture):
    """May records follow the one at `at`, as far as the data go?"""
    fields = struct.unpack_from(capture.order + "IIII", data, at)
    before, _, size, _ = fields
    is_usual = has_usual_fields(*fields, capture)
    for _ in range(1 if is_near_last(before, capture) else 3):
        at += 16 + size
        if len(data) - at < 16 or find_header(data, at):
            return True
        fields = struct.unpack_from(capture.order + "IIII", data, at)
        seconds, _, size, _ = fields
        if not (is_usual and has_usual_fields(*fields, capture)):
            if size > max(LARGEST_PACKET, min(capture.snap_length, 0x7FFFFFFF)):
                return False
            if abs(seconds - before) > WEEK and not is_near_last(seconds, capture):
                return False
            if is_read_late(*fields[:3], capture):
                return False
        before = seconds
    return True


def is_near_last(seconds, capture):
    """Is a time near that of the last good record?"""
    return capture.seconds is not None and abs(seconds - capture.seconds) <= WEEK


def read_pcapng_block(data, at, capture):
    left = len(data) - at
    if left < 12:
        raise BadBytesError(SHORT)
    if data[at : at + 4] == SECTION_TYPE:
        return read_section(data, at, capture)
    type, size = struct.unpack_from(capture.order + "II", data, at)
    require_block(data, at, size, 12, capture.order)
    block = data[at : at + size]
    row = BLOCK | dict(start=at, size=size, body=8, data_size=-1, comment_size=-1)
    if capture.is_foreign:
        row |= dict(kind=OTHER_KIND, data_at=8, data_size=size - 12)
    elif type in (2, 3, 6):
        add_packet_block(row, block, type, capture)
    elif type == 1:
        add_interface(row, block, capture)
    elif type == 10 and size >= 20:
        (claimed,) = struct.unpack_from(capture.order + "I", block, 12)
        row |= dict(kind=SECRETS_KIND, data_at=16, data_size=min(claimed, size - 20))
    else:
        row |= dict(kind=NAMES_OF_TYPES.get(type, OTHER_KIND), data_at=8, data_size=size - 12)
    return row


def require_block(data, at, size, smallest, order):
    """Raise BadBytesError unless the block is whole, with its size at both ends."""
    if size < smallest or size % 4 or size > LARGEST_FRAME:
        raise BadBytesError(BAD_LENGTH)
    if at + size > len(data):
        raise BadBytesError(SHORT)
    if struct.unpack_from(order + "I", data, at + size - 4)[0] != size:
        raise BadBytesError(BAD_LENGTH)


def read_section(data, at, capture):
    if len(data) - at < 12:
        raise BadBytesError(SHORT)
    order = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}.get(data[at + 8 : at + 12])
    if order is None:
        raise BadBytesError(NOT_A_FRAME)
    (size,) = struct.unpack_from(order + "I", data, at + 4)
    require_block(data, at, size, 28, order)
    capture.kind = "pcapng"
    capture.order = order
    capture.first_interface += len(capture.interfaces)
    capture.interfaces = []
    row = BLOCK | dict(start=at, size=size, body=24, kind=SECTION_KIND, data_size=-1)
    capture.is_foreign = struct.unpack_from(order + "H", data, at + 12)[0] != 1
    if capture.is_foreign:
        return row | dict(fault=BAD_FIELD, comment_size=-1)
    return row | find_comment(list_options(data[at : at + size], 24, order))


def list_options(block, at, order):
    """Return [(code, position of the value, value)] of the options, up to a broken one."""
    options, end = [], len(block) - 4
    while end - at >= 4:
        code, size = struct.unpack_from(order + "HH", block, at)
        if code == 0 or at + 4 + size > end:
            break
        options.append((code, at + 4, block[at + 4 : at + 4 + size]))
        at += 4 + size + -size % 4
    return options


def find_comment(options):
    """Return the columns of the first comment."""
    for code, at, value in options:
        if code == 1:
            return dict(comment_at=at, comment_size=len(value))
    return dict(comment_size=-1)


def add_interface(row, block, capture):
    row["kind"] = INTERFACE_KIND
    if len(block) < 20:
        row["fault"] = TRUNCATED
        return
    link, _, snap_length = struct.unpack_from(capture.order + "HHI", block, 8)
    options = list_options(block, 16, capture.order)
    units, offset = 10**6, 0
    for code, _, value in options:
        if code == 9 and len(value) == 1:
            units = (2 if value[0] & 0x80 else 10) ** (value[0] & 0x7F)
        elif code == 14 and len(value) == 8:
            (offset,) = struct.unpack(capture.order + "q", value)
    row |= dict(body=16, link=link, interface=capture.first_interface + len(capture.interfaces))
    row |= find_comment(options)
    if len(capture.interfaces) >= 65_536:
        row["fault"] = BAD_FIELD
        return
    capture.interfaces.append(dict(units=units, offset=offset, snap_length=snap_length, link=link))


def to_time(interface, stamp):
    """Return ns since 1970; 0 for a time that is not in the years that are read."""
    units, offset = interface["units"], interface["offset"]
    if units > 0x7FFFFFFFFFFFFFFF:
        return 0
    seconds, fraction = divmod(stamp, units)
    if seconds > LATEST or abs(offset) >= LATEST or not 0 <= seconds + offset < 9223372036:
        return 0
    return (seconds + offset) * BILLION + fraction * BILLION // units


def add_packet_block(row, block, type, capture):
    """Add the columns of an enhanced (6), an old (2) or a simple (3) packet block."""
    order, fields = capture.order, 12 if type == 3 else 28
    row["kind"] = PACKET_KIND
    if len(block) < fields + 4:
        row["fault"] = TRUNCATED
        return
    row |= dict(body=fields, data_at=fields)
    number = 0
    if type == 6:
        (number,) = struct.unpack_from(order + "I", block, 8)
    elif type == 2:
        (number,) = struct.unpack_from(order + "H", block, 8)
    if number >= len(capture.interfaces):
        row["fault"] = BAD_FIELD
        return
    interface = capture.interfaces[number]
    row |= dict(interface=capture.first_interface + number, link=interface["link"])
    room = len(block) - fields - 4
    if type == 3:
        (row["length"],) = struct.unpack_from(order + "I", block, 8)
        row["data_size"] = min(row["length"], interface["snap_length"] or row["length"], room)
        return
    high, low, captured, row["length"] = struct.unpack_from(order + "IIII", block, 12)
    row["time"] = to_time(interface, high << 32 | low)
    if captured > room:
        row["fault"] = TRUNCATED
        return
    row["data_size"] = captured
    row |= find_comment(list_options(block, fields + captured + -captured % 4, order))


# ---- the search after damage


def find_next(data, at, capture):
    """Return the first position from `at` on where a block seems to begin, or None."""
    return next((i for i in range(at, len(data)) if is_start(data, i, capture)), None)


def is_next(data, at, capture):
    """Does a block seem to begin at `at`, or may the end of the data cut one there?"""
    return is_start(data, at, capture, cut=True)


def is_start(data, at, capture, cut=False):
    """Does a block seem to begin at `at`? cut: the answer where the data end too early."""
    if capture.kind != "pcapng":
        if find_header(data, at):
            return len(data) - at >= 24 or cut
        if capture.kind == "pcap":
            return are_records(data, at, capture, cut)
    if len(data) - at < 12:
        return cut
    order = capture.order
    if data[at : at + 4] == SECTION_TYPE:
        order = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}.get(data[at + 8 : at + 12])
        if order is None:
            return False
    elif capture.kind is None:
        return False
    type, size = struct.unpack_from(order + "II", data, at)
    if data[at : at + 4] != SECTION_TYPE and type not in KNOWN_TYPES or size < 12 or size % 4:
        return False
    if at + size > len(data):
        return cut
    return struct.unpack_from(order + "I", data, at + size - 4)[0] == size


def are_records(data, at, capture, cut):
    """Do plausible records of a pcap file follow each other here?"""
    before = None
    is_far = capture.seconds is not None and len(data) - at >= 16
    if is_far:
        (seconds,) = struct.unpack_from(capture.order + "I", data, at)
        is_far = not is_near_last(seconds, capture)
    for i in range(8 if is_far else 3):
        if len(data) - at < 16:
            return cut
        seconds, fraction, size, length = struct.unpack_from(capture.order + "IIII", data, at)
        if not 0 < size <= min(LARGEST_PACKET, length) or fraction >= capture.units:
            return False
        if is_read_late(seconds, fraction, size, capture):
            return False
        if before is not None and abs(seconds - before) > WEEK:
            return False
        before = seconds
        if len(data) - at - 16 < size:
            return cut
        at += 16 + size
        if at == len(data) and i:
            return True
    return True


# ---- packets

ETHERNET, LOOP, COOKED, COOKED_2 = 1, 108, 113, 276
RAW = {12, 14, 101, 228, 229}
IPV4, IPV6 = 0x0800, 0x86DD
VLAN_TYPES = {0x8100, 0x88A8, 0x9100}
EXTENSIONS = {0, 43, 44, 51, 60}
FRAGMENT_HEADER, AUTHENTICATION = 44, 51
PACKET_KINDS = dict(tcp=1, udp=2, fragment=3, icmp=4, ip=5)


class Layers:
    """A cursor over the layers of a packet.

    at, end: the captured bytes that are not read yet. wire_end: where the layer ends on the wire,
    counted as `at`.
    """

    def __init__(self, data, length):
        self.data = data
        self.at = 0
        self.end = len(data)
        self.wire_end = max(length, len(data))

    @property
    def captured(self):
        return self.end - self.at

    def has(self, size):
        """Are the next bytes captured? Raises BadBytesError if the packet does not have them."""
        if self.captured >= size:
            return True
        if self.captured < self.wire_end - self.at:
            return False
        raise BadBytesError(TRUNCATED)

    def limit(self, length):
        """A header says that its layer has `length` bytes; padding may follow."""
        self.wire_end = min(self.wire_end, self.at + length)
        self.end = min(self.end, self.at + length)


def read_packets(data, blocks, verify=False):
    """Return the rows of pcap.packets in rows of pcap.blocks."""
    return [
        read_packet(data, block, parent, verify)
        for parent, block in enumerate(blocks)
        if block["kind"] == PACKET_KIND or block["fault"]
    ]


def read_packet(data, block, parent, verify=False):
    if block["fault"]:
        return PACKET | dict(
            start=block["start"],
            size=block["size"],
            parent=parent,
            fault=block["fault"],
            payload_size=-1,
        )
    start = block["start"] + block["data_at"]
    row = PACKET | dict(
        start=start,
        size=block["data_size"],
        parent=parent,
        time=block["time"],
        length=block["length"],
        interface=block["interface"],
        link=block["link"],
    )
    layers = Layers(data[start : start + block["data_size"]], block["length"])
    try:
        read_layers(layers, row, verify)
    except BadBytesError as bad:
        row["fault"] = bad.fault
    return row | dict(
        body=layers.at,
        payload_at=layers.at,
        payload_size=layers.captured,
        payload_length=max(layers.wire_end - layers.at, 0),
    )


def read_layers(layers, row, verify):
    type = read_link(layers, row)
    if type == IPV4:
        read_ipv4(layers, row, verify)
    elif type == IPV6:
        read_ipv6(layers, row)
    if not row["version"]:
        return
    if row["fragment_offset"] or row["more_fragments"]:
        row["kind"] = PACKET_KINDS["fragment"]
    elif row["protocol"] == 6:
        read_tcp(layers, row, verify)
    elif row["protocol"] == 17:
        read_udp(layers, row, verify)
    elif row["protocol"] in (1, 58):
        row["kind"] = PACKET_KINDS["icmp"]


def read_link(layers, row):
    """Step over the link layer. Return the type of Ethernet of the next layer, or None."""
    link, data = row["link"], layers.data
    if link == ETHERNET and len(data) >= 14:
        layers.at = 14
        return read_tags(layers, row, int.from_bytes(data[12:14]))
    if link == COOKED and len(data) >= 16:
        layers.at = 16
        return read_tags(layers, row, int.from_bytes(data[14:16]))
    if link == COOKED_2 and len(data) >= 20:
        layers.at = 20
        return read_tags(layers, row, int.from_bytes(data[:2]))
    if link in (0, LOOP) and len(data) >= 4:
        layers.at = 4
        family = int.from_bytes(data[:4])
        if link == 0 and family > 0xFFFF:
            family = int.from_bytes(data[:4], "little")
        return {2: IPV4, 10: IPV6, 24: IPV6, 28: IPV6, 30: IPV6}.get(family)
    if link in RAW and data:
        return IPV4 if data[0] >> 4 == 4 else IPV6
    return None


def read_tags(layers, row, type):
    """Step over VLAN tags. Return the type of Ethernet after them. type: that before them."""
    while type in VLAN_TYPES and layers.captured >= 4:
        tag, type = struct.unpack_from(">HH", layers.data, layers.at)
        row["vlan"] = row["vlan"] or tag & 0xFFF
        layers.at += 4
    return type


def read_ipv4(layers, row, verify):
    at, data = layers.at, layers.data
    if not layers.has(20):
        return
    header = 4 * (data[at] & 15)
    length, fragment_id, fragment = struct.unpack_from(">HHH", data, at + 2)
    if data[at] >> 4 != 4 or header < 20 or 0 < length < header:
        raise BadBytesError(BAD_FIELD)
    if not layers.has(header):
        return
    row |= dict(
        version=4,
        kind=PACKET_KINDS["ip"],
        ttl=data[at + 8],
        protocol=data[at + 9],
        fragment_id=fragment_id,
        source_address_at=at + 12,
        source_address_size=4,
        destination_address_at=at + 16,
        destination_address_size=4,
    )
    if length:
        layers.limit(length)
    if verify and not is_sum_right(data[at : at + header]):
        raise BadBytesError(BAD_CHECKSUM)
    row |= dict(fragment_offset=fragment & 0x1FFF, more_fragments=fragment >> 13 & 1)
    layers.at += header


def read_ipv6(layers, row):
    at, data = layers.at, layers.data
    if not layers.has(40):
        return
    if data[at] >> 4 != 6:
        raise BadBytesError(BAD_FIELD)
    length, protocol, ttl = struct.unpack_from(">HBB", data, at + 4)
    row |= dict(
        version=6,
        kind=PACKET_KINDS["ip"],
        ttl=ttl,
        source_address_at=at + 8,
        source_address_size=16,
        destination_address_at=at + 24,
        destination_address_size=16,
    )
    layers.at += 40
    if length:
        layers.limit(length)
    while True:
        row["protocol"] = protocol
        if protocol not in EXTENSIONS:
            return
        if not layers.has(8):
            return
        at = layers.at
        size = 8 * (data[at + 1] + 1)
        if protocol == FRAGMENT_HEADER:
            size = 8
            offset, row["fragment_id"] = struct.unpack_from(">HI", data, at + 2)
            row |= dict(fragment_offset=offset >> 3, more_fragments=offset & 1)
        elif protocol == AUTHENTICATION:
            size = 4 * (data[at + 1] + 2)
        if not layers.has(size):
            return
        protocol = data[at]
        layers.at += size
        if row["fragment_offset"] or row["more_fragments"]:
            row["protocol"] = protocol
            return


def read_tcp(layers, row, verify):
    at, data = layers.at, layers.data
    if not layers.has(20):
        return
    ports_and_numbers = struct.unpack_from(">HHIIHH", data, at)
    header = 4 * (data[at + 12] >> 4)
    if header < 20:
        raise BadBytesError(BAD_FIELD)
    if not layers.has(header):
        return
    names = ["source_port", "destination_port", "sequence", "acknowledgment", "flags", "window"]
    row |= dict(zip(names, ports_and_numbers), kind=PACKET_KINDS["tcp"])
    row["flags"] &= 0x1FF
    finish_transport(layers, row, header, verify)


def read_udp(layers, row, verify):
    at, data = layers.at, layers.data
    if not layers.has(8):
        return
    source, destination, length, checksum = struct.unpack_from(">HHHH", data, at)
    if 0 < length < 8:
        raise BadBytesError(BAD_FIELD)
    row |= dict(source_port=source, destination_port=destination, kind=PACKET_KINDS["udp"])
    if length:
        layers.limit(length)
    finish_transport(layers, row, 8, verify and checksum)


def finish_transport(layers, row, header, verify):
    """Step over the header, and verify the checksum of a packet that was captured whole."""
    segment, whole = layers.data[layers.at : layers.end], layers.end == layers.wire_end
    layers.at += header
    if verify and whole:
        pseudo = struct.pack(">II", row["protocol"], len(segment))
        for side in ("source", "destination"):
            at = row[f"{side}_address_at"]
            pseudo += layers.data[at : at + row[f"{side}_address_size"]]
        if not is_sum_right(pseudo + segment):
            raise BadBytesError(BAD_CHECKSUM)


def is_sum_right(data):
    """Is the sum of the words in ones' complement 0xFFFF?"""
    data = bytes(data) + bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF
