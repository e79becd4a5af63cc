"""Liftbridge: envelopes, the messages in them, and the records of its log, decoded one field at a time.

    envelope    b90e43b4 | version | header size | flags | kind | CRC-32C, if flag 1 is set | payload
    payload     of kind 3: leader epoch u64 | high watermark i64 | records; else a Protocol Buffers message
    record      offset i64 | timestamp i64 | leader epoch u64 | size u32 | message
    message     CRC-32C u32 | magic i8 | attributes i8 | key | value | count u16 { size u16, name | value }
                key, value: size i32, -1 for null, and so many bytes            all integers big-endian

A row is a dict with every column of the format. A bad row has only a kind: all else is 0.
"""
from collections import deque

from crc32c import crc32c

from reference.window import Bad, Window

OK, TRUNCATED, BAD_MAGIC, BAD_VERSION, BAD_CHECKSUM, BAD_VARINT, LEFTOVER, NESTED = 0, 1, 2, 3, 4, 6, 10, 11
BAD_NULL, BAD_KIND, BAD_FIELD, BAD_HEADER = 13, 15, 16, 17
SHORT, ZEROS, BAD_LENGTH = 128, 129, 160
PUBLISH, ACK_KIND, RESPONSE, LIFT, PLAIN = 0, 1, 3, 254, 255

HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
MAGIC, COOKIE = b"\xb9\x0e\x43\xb4", b"LIFT"
DEEPEST = 100                   # groups in one another
LONGEST = 100 << 20             # of a frame: the package's limit


def columns(places="", numbers=""):
    """All columns of a row: places that are null, numbers that are 0."""
    return HEAD | {name + end: none for name in places.split() for end, none in (("_at", 0), ("_size", -1))} \
        | dict.fromkeys(numbers.split(), 0)


def bad(row, fault):
    """The row of the same bytes that says nothing but what is wrong with them."""
    kept = ("start", "size", "parent", "buffer", "kind")
    return dict.fromkeys(row, 0) | {name: row[name] for name in kept} | dict(fault=fault)


# ------------------------------------------------------------------------------------------- envelopes

ENVELOPE = columns(numbers="crc version header_size flags")


def envelope(data, start, size, check=True):
    """The row of liftbridge.envelopes of a payload."""
    payload = bytes(data[start:start + size])
    row = ENVELOPE | dict(start=start, size=size, kind=PLAIN)
    if payload[:4] == COOKIE:
        return row | dict(kind=LIFT, body=4)
    if payload[:4] != MAGIC:
        return row
    if size < 8:
        return row | dict(fault=TRUNCATED)
    row |= dict(zip(("version", "header_size", "flags", "kind"), payload[4:8]))
    checked = row["flags"] & 1
    if row["version"]:
        return row | dict(fault=BAD_VERSION)
    if row["header_size"] < 8:
        return row | dict(fault=BAD_HEADER)
    if row["header_size"] > size:
        return row | dict(fault=TRUNCATED)
    if checked and row["header_size"] != 12:
        return row | dict(fault=BAD_HEADER)
    if row["kind"] > 14:
        return row | dict(fault=BAD_KIND)
    row["body"] = row["header_size"]
    if checked:
        row["crc"] = int.from_bytes(payload[8:12], "big")
        if check and crc32c(payload[12:]) != row["crc"]:
            return row | dict(fault=BAD_CHECKSUM)
    return row


def envelopes(data, messages, check=True):
    """The rows of liftbridge.envelopes of rows of nats.messages (reference.nats): what is published or delivered."""
    rows = []
    for parent, message in enumerate(messages):
        if message["fault"]:
            whole = dict(start=message["start"], size=message["size"], parent=parent, fault=message["fault"])
            rows.append(ENVELOPE | whole | dict(kind=PLAIN))
        elif message["kind"] in (3, 4, 7, 8):
            begin = message["start"] + message["payload_at"]
            rows.append(envelope(data, begin, message["payload_size"], check) | dict(parent=parent))
    return rows


# ------------------------------------------------------------------------------------------- Protocol Buffers

def varint(window, bits):
    """An unsigned varint of at most 32 or 64 bits, in at most 5 or 10 bytes; of 64 what is above them is cut off."""
    number = 0
    for shift in range(0, bits, 7):
        byte = window.take(1)[0]
        number |= (byte & 0x7F) << shift
        if bits == 32 and number >> bits or byte > 0x7F and shift + 7 >= bits:
            raise Bad(BAD_VARINT)
        if byte < 0x80:
            return number % (1 << 64)
    raise AssertionError("not reached")


def fields(window, group=0, depth=0):
    """Each (number, wire type, value, where its tag begins) of a message, or of a group up to its end.

    value: an integer of wire type 0, a Window of 2; None of all others, which are stepped over."""
    while group or window.left:
        at = window.at
        tag = varint(window, 32)
        number, wire, value = tag >> 3, tag & 7, None
        if not number or wire > 5 or wire == 4 and number != group:
            raise Bad(BAD_FIELD)
        if wire == 4:
            return
        if wire == 0:
            value = varint(window, 64)
        elif wire == 2:
            size = varint(window, 32)
            window.take(size)
            value = Window(window.data, window.at - size, window.at)
        elif wire == 3:
            if depth == DEEPEST:
                raise Bad(NESTED)
            deque(fields(window, number, depth + 1), 0)
        else:
            window.take(8 if wire == 1 else 4)
        yield number, wire, value, at


INTEGERS = dict(i64=(64, True), u64=(64, False), i32=(32, True), i16=(16, True), u32=(32, False))


def read(window, spec, row):
    """Put the fields of a message into a row. spec: number -> name and type of a column, or what is inside, and the
    place that notes it."""
    for number, wire, value, at in fields(window):
        kind = spec.get(number)
        if isinstance(kind, tuple) and wire == 2:
            name, inside = kind
            if name == "headers":
                row["headers_at"] = row["headers_at"] if row["header_count"] else at - row["start"]
                row["header_count"] += 1
            elif name:
                row |= place(row, name, value)
            read(value, inside, row)
        elif isinstance(kind, str):
            name, kind = kind.split()
            if kind == "bytes" and wire == 2:
                row |= place(row, name, value)
            elif kind == "bool" and wire == 0:
                row[name] = int(value != 0)
            elif kind in INTEGERS and wire == 0:
                bits, signed = INTEGERS[kind]
                value = min(value, 0x7FFF) if bits == 16 else value % (1 << bits)
                row[name] = value - (signed and value >> bits - 1) * (1 << bits)
    return row


def place(row, name, window):
    return {name + "_at": window.at - row["start"], name + "_size": window.left}


# ------------------------------------------------------------------------------------------- messages and acks

MESSAGE = columns("key value stream subject reply_subject ack_inbox correlation_id",
                  "offset timestamp headers_at header_count partition ack_policy")
ACK = columns("stream partition_subject msg_subject ack_inbox correlation_id",
              "offset reception_timestamp commit_timestamp ack_policy ack_error")
HEADER = columns("key value")

PAIR = {1: "key bytes", 2: "value bytes"}
MESSAGE_FIELDS = {
    1: "offset i64", 2: "key bytes", 3: "value bytes", 4: "timestamp i64", 5: "stream bytes", 6: "partition i32",
    7: "subject bytes", 8: "reply_subject bytes", 9: ("headers", {}), 10: "ack_inbox bytes",
    11: "correlation_id bytes", 12: "ack_policy i32"}
ACK_FIELDS = {
    1: "stream bytes", 2: "partition_subject bytes", 3: "msg_subject bytes", 4: "offset i64", 5: "ack_inbox bytes",
    6: "correlation_id bytes", 7: "ack_policy i32", 8: "reception_timestamp i64", 9: "commit_timestamp i64",
    10: "ack_error i32"}


def opened(data, rows, columns, read_one, kinds):
    """A row for each of the envelopes that are of some kinds; of a bad one its fault."""
    found = []
    for parent, one in enumerate(rows):
        if one["kind"] not in kinds:
            continue
        start, end = one["start"] + one["body"], one["start"] + one["size"]
        row = columns | dict(start=start, size=end - start, parent=parent, kind=one["kind"], fault=one["fault"])
        try:
            found.append(bad(row, row["fault"]) if row["fault"] else read_one(Window(data, start, end), dict(row)))
        except Bad as fault:
            found.append(bad(row, fault.fault))
    return found


def messages(data, rows):
    """The rows of liftbridge.messages of rows of liftbridge.envelopes."""
    def message(window, row):
        if row["kind"] == PLAIN:
            return row | place(row, "value", window)
        return read(window, MESSAGE_FIELDS, row)
    return opened(data, rows, MESSAGE, message, (PUBLISH, LIFT, PLAIN))


def acks(data, rows):
    """The rows of liftbridge.acks of rows of liftbridge.envelopes."""
    return opened(data, rows, ACK, lambda window, row: read(window, ACK_FIELDS, row), (ACK_KIND,))


def headers(data, row, parent=0):
    """The rows of liftbridge.headers of one row of liftbridge.messages."""
    if row["fault"]:
        return [bad(HEADER | dict(start=row["start"], size=row["size"], parent=parent), row["fault"])]
    rows, window = [], Window(data, row["start"], row["start"] + row["size"])
    for number, wire, value, at in fields(window) if row["header_count"] else ():
        if (number, wire) == (9, 2):
            one = HEADER | dict(start=at, size=value.end - at, parent=parent, body=value.at - at)
            try:
                rows.append(read(value, PAIR, dict(one)))
            except Bad as fault:
                rows.append(bad(one, fault.fault))
    return rows


# ------------------------------------------------------------------------------------------- between servers

INTERNAL = columns("id host stream error operation replica leader group consumer coordinator entries",
                   "leader_epoch offset high_watermark end_offset epoch partition port op error_code exists is_leader")
CHANGE = {1: "stream bytes", 2: "partition i32", 3: "replica bytes", 4: "leader bytes", 5: "leader_epoch u64"}
STREAM = {1: "stream bytes"}
MEMBER = {1: "group bytes", 2: "consumer bytes", 3: "coordinator bytes", 4: "epoch u64"}
OPERATIONS = {
    2: {1: ("", STREAM)}, 3: CHANGE, 4: CHANGE, 5: CHANGE, 6: STREAM, 7: STREAM, 8: STREAM, 9: STREAM,
    10: {n: MEMBER[n] for n in (1, 2)}, 11: {n: MEMBER[n] for n in (1, 2)}, 12: MEMBER}
INTERNAL_FIELDS = {
    2: {1: "id bytes", 2: "offset i64", 3: "leader_epoch u64"},
    4: {1: "id bytes", 2: "host bytes"}, 5: {1: "error bytes"},
    6: {1: "leader_epoch u64"}, 7: {1: "end_offset i64"},
    8: {1: "op i16"} | {number: ("operation", inside) for number, inside in OPERATIONS.items()},
    9: {1: "op i16", 2: ("", {1: "error_code u32", 2: "error bytes"}),
        11: ("", {1: "coordinator bytes", 2: "epoch u64"})},
    10: {1: "id bytes"}, 11: {1: "id bytes", 2: "host bytes", 3: "port i32"},
    12: {1: "stream bytes", 2: "partition i32"}, 13: {1: "exists bool", 2: "is_leader bool"},
    14: {1: "stream bytes", 2: "partition i32"}}


def internal(data, rows):
    """The rows of liftbridge.internal of rows of liftbridge.envelopes."""
    def one(window, row):
        row["op"] = 0 if row["kind"] in (8, 9) else -1
        if row["kind"] != RESPONSE:
            return read(window, INTERNAL_FIELDS[row["kind"]], row)
        row["leader_epoch"] = int.from_bytes(window.take(8), "big")
        row["high_watermark"] = int.from_bytes(window.take(8), "big", signed=True)
        return row | place(row, "entries", window) | dict(body=16)
    return opened(data, rows, INTERNAL, one, range(2, 15))


# ------------------------------------------------------------------------------------------- entries

ENTRY = columns("key value", "offset timestamp leader_epoch headers_at crc header_count magic attributes")


def entries(data, check=True, resync=True):
    """(rows of liftbridge.entries, stop fault, stop offset) of a log."""
    rows, at = [], 0
    while at < len(data):
        try:
            rows.append(entry(data, at, len(data), check))
        except Bad as stop:
            found = next_intact(data, at + 1) if stop.fault in (SHORT, BAD_LENGTH) else None
            if stop.fault < BAD_LENGTH and found is None:
                return rows, stop.fault, at
            if not resync:
                return rows, BAD_LENGTH, at
            end = len(data) if found is None else found
            rows.append(dict.fromkeys(ENTRY, 0) | dict(start=at, size=end - at, parent=-1, fault=BAD_LENGTH))
        row = rows[-1]
        at += row["size"]
        if resync and BAD_LENGTH > row["fault"] > OK and at < len(data) and not (looks(data, at) or proved(data, at)):
            row["size"] = (next_intact(data, row["start"] + 1) or at) - row["start"]
            at = row["start"] + row["size"]
    return rows, OK, at


def entry(data, at, stop, check):
    """The row of the record at `at`. Raises Bad where its end is not known."""
    if stop - at < 28:
        raise Bad(SHORT)
    size = int.from_bytes(data[at + 24:at + 28], "big")
    if not 16 <= size < 1 << 31:
        raise Bad(BAD_LENGTH if any(data[at:stop]) else ZEROS)
    if 28 + size > stop - at:
        raise Bad(SHORT if 28 + size <= LONGEST else BAD_LENGTH)
    row = ENTRY | dict(start=at, size=28 + size, body=28)
    window = Window(data, at, at + row["size"])
    for name, signed in (("offset", True), ("timestamp", True), ("leader_epoch", False)):
        row[name] = int.from_bytes(window.take(8), "big", signed=signed)
    window.take(4)
    try:
        message(window, row, check)
    except Bad as fault:
        return bad(row, fault.fault)
    return row


def message(window, row, check):
    row["crc"] = int.from_bytes(window.take(4), "big")
    if check and crc32c(window.data[window.at:window.end]) != row["crc"]:
        raise Bad(BAD_CHECKSUM)
    row["magic"], row["attributes"] = (int.from_bytes(window.take(1), "big", signed=True) for _ in range(2))
    if row["magic"] != 1:
        raise Bad(BAD_MAGIC)
    block(window, row, "key")
    block(window, row, "value")
    row["header_count"] = int.from_bytes(window.take(2), "big")
    row["headers_at"] = window.at - row["start"]
    for _ in range(row["header_count"]):
        pair(window, dict(start=0))
    if window.left:
        raise Bad(LEFTOVER)


def block(window, row, name):
    size = window.i32()
    if size < -1:
        raise Bad(BAD_NULL)
    window.field(row, name, size)


def pair(window, row):
    window.field(row, "key", int.from_bytes(window.take(2), "big"))
    block(window, row, "value")
    return row


def entry_headers(data, row, parent=0):
    """The rows of liftbridge.headers of one row of liftbridge.entries."""
    if row["fault"]:
        return [bad(HEADER | dict(start=row["start"], size=row["size"], parent=parent), row["fault"])]
    rows, window = [], Window(data, row["start"] + row["headers_at"], row["start"] + row["size"])
    for _ in range(row["header_count"]):
        one = pair(window, HEADER | dict(start=window.at, parent=parent))
        rows.append(one | dict(size=window.at - one["start"], body=one["key_at"]))
    return rows


def response_entries(data, rows, check=True):
    """The rows of liftbridge.entries of rows of liftbridge.envelopes: the records in replication responses."""
    found = []
    for parent, one in enumerate(rows):
        at, end, fault = one["start"] + one["body"], one["start"] + one["size"], one["fault"]
        if one["kind"] != RESPONSE:
            continue
        if fault or end - at < 16:
            found.append(bad(ENTRY | dict(start=at, size=end - at, parent=parent), fault or TRUNCATED))
            continue
        at += 16
        while at < end:
            try:
                row = entry(data, at, end, check)
            except Bad:
                row = bad(ENTRY | dict(start=at, size=end - at), TRUNCATED)
            found.append(row | dict(parent=parent))
            at += row["size"]
    return found


def looks(data, at):
    """Does what begins here look like a record? It may be cut."""
    size, key = (int.from_bytes(data[at + i:at + i + 4], "big", signed=True) for i in (24, 34))
    return len(data) - at >= 44 and size >= 16 and data[at + 32] == 1 and -1 <= key <= size - 16


def proved(data, at):
    """Is there a whole record here, whose checksum is right?"""
    size = int.from_bytes(data[at + 24:at + 28], "big", signed=True)
    return 44 <= 28 + size <= len(data) - at and data[at + 32] == 1 and crc32c(
        data[at + 32:at + 28 + size]) == int.from_bytes(data[at + 28:at + 32], "big")


def next_intact(data, at):
    return next((at for at in range(at, len(data) - 43) if looks(data, at) and proved(data, at)), None)
