"""Liftbridge envelopes, their messages, and the records of its log, decoded one field at a time.

    envelope    b90e43b4 | version | header size | flags | kind | CRC-32C, if flag 1 is set
                | payload
    payload     of kind 3: leader epoch u64 | high watermark i64 | records
                of other kinds: a Protocol Buffers message
    record      offset i64 | timestamp i64 | leader epoch u64 | size u32 | message
    message     CRC-32C u32 | magic i8 | attributes i8 | key | value
                | count u16 | headers: { size u16, name | value }

A key or value is its size, i32, and its bytes. Size -1 is null. All integers are big-endian.

A row is a dict with every column of the format. In a bad row, all columns but the kind are 0.
"""

from collections import deque

from crc32c import crc32c

from tests.reference.window import BadBytesError, Window

OK, TRUNCATED, BAD_MAGIC, BAD_VERSION, BAD_CHECKSUM, BAD_VARINT = 0, 1, 2, 3, 4, 6
LEFTOVER, NESTED = 10, 11
BAD_NULL, BAD_KIND, BAD_FIELD, BAD_HEADER = 13, 15, 16, 17
SHORT, ZEROS, BAD_LENGTH = 128, 129, 160
PUBLISH, ACK_KIND, RESPONSE, UNKNOWN, LIFT, PLAIN = 0, 1, 3, 253, 254, 255

HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
MAGIC, COOKIE = b"\xb9\x0e\x43\xb4", b"LIFT"
DEEPEST = 100  # nested groups
LONGEST = 100 << 20  # bytes of a frame: the default of Limits.frame
RESPONSE_HEADER = 16  # bytes before the records of a replication response
SMALLEST_RECORD = 44  # bytes
CARRIERS = (3, 4, 7, 8)  # the kinds PUB, HPUB, MSG and HMSG of NATS messages


def make_columns(places="", numbers=""):
    """Return a row with null places and with numbers that are 0."""
    row = dict(HEAD)
    for name in places.split():
        row |= {f"{name}_at": 0, f"{name}_size": -1}
    return row | dict.fromkeys(numbers.split(), 0)


def make_bad_row(row, fault):
    """Return a row of the same bytes that has only a fault."""
    names = ("start", "size", "parent", "buffer", "kind")
    return dict.fromkeys(row, 0) | {name: row[name] for name in names} | dict(fault=fault)


# ---- envelopes

ENVELOPE = make_columns(numbers="crc version header_size flags")


def read_envelope(data, start, size, check=True):
    """Return the row of liftbridge.envelopes for one NATS payload."""
    payload = bytes(data[start : start + size])
    row = ENVELOPE | dict(start=start, size=size, kind=PLAIN)
    if payload[:4] == COOKIE:
        return row | dict(kind=LIFT, body=4)
    if payload[:4] != MAGIC:
        return row
    if size < 8:
        return row | dict(fault=TRUNCATED)
    row |= dict(zip(("version", "header_size", "flags", "kind"), payload[4:8]))
    row["kind"] = min(row["kind"], UNKNOWN)
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


def read_envelopes(data, messages, check=True):
    """Return the rows of liftbridge.envelopes for published or delivered NATS messages.

    messages: rows of nats.messages.
    """
    rows = []
    for parent, message in enumerate(messages):
        if message["fault"]:
            copied = {name: message[name] for name in ("start", "size", "fault")}
            rows.append(ENVELOPE | copied | dict(parent=parent, kind=PLAIN))
        elif message["kind"] in CARRIERS:
            begin = message["start"] + message["payload_at"]
            row = read_envelope(data, begin, message["payload_size"], check)
            rows.append(row | dict(parent=parent))
    return rows


# ---- Protocol Buffers

VARINT, FIXED_64, BYTES, GROUP, END_GROUP, FIXED_32 = range(6)  # wire types


def read_varint(window, bits):
    """Read an unsigned varint of 32 bits (at most 5 bytes) or of 64 bits (at most 10 bytes).

    A varint of 64 bits is truncated to its low 64 bits. A varint of 32 bits must fit.
    """
    number = 0
    for shift in range(0, bits, 7):
        byte = window.take(1)[0]
        number |= (byte & 0x7F) << shift
        if bits == 32 and number >> bits or byte > 0x7F and shift + 7 >= bits:
            raise BadBytesError(BAD_VARINT)
        if byte < 0x80:
            return number % (1 << 64)
    raise AssertionError("not reached")


def read_fields(window, group=0, depth=0):
    """Yield (number, wire type, value, position of the tag) for each field of a message or group.

    The value is an integer for VARINT and a Window for BYTES. It is None for other wire types,
    whose fields are skipped.
    """
    while group or window.left:
        at = window.at
        tag = read_varint(window, 32)
        number = tag >> 3
        wire = tag & 7
        value = None
        if not number or wire > FIXED_32 or wire == END_GROUP and number != group:
            raise BadBytesError(BAD_FIELD)
        if wire == END_GROUP:
            return
        if wire == VARINT:
            value = read_varint(window, 64)
        elif wire == BYTES:
            size = read_varint(window, 32)
            window.take(size)
            value = Window(window.data, window.at - size, window.at)
        elif wire == GROUP:
            if depth == DEEPEST:
                raise BadBytesError(NESTED)
            deque(read_fields(window, number, depth + 1), maxlen=0)  # skips the group
        else:
            window.take(8 if wire == FIXED_64 else 4)
        yield number, wire, value, at


# The bits of a column, and whether it is signed.
INTEGERS = dict(i64=(64, True), u64=(64, False), i32=(32, True), i16=(16, True), u32=(32, False))


def read_into_row(window, spec, row):
    """Read the fields of a message into a row.

    spec: field number -> "column type", or for a message inside (place, its spec). The name of the
        place may be empty: then no column has the message's place.
    """
    for number, wire, value, at in read_fields(window):
        column = spec.get(number)
        if isinstance(column, tuple) and wire == BYTES:
            name, inner_spec = column
            if name == "headers":
                if not row["header_count"]:
                    row["headers_at"] = at - row["start"]
                row["header_count"] += 1
            elif name:
                row |= make_place(row, name, value)
            read_into_row(value, inner_spec, row)
        elif isinstance(column, str):
            name, kind = column.split()
            if kind == "bytes" and wire == BYTES:
                row |= make_place(row, name, value)
            elif kind == "bool" and wire == VARINT:
                row[name] = int(value != 0)
            elif kind in INTEGERS and wire == VARINT:
                row[name] = fit_integer(value, *INTEGERS[kind])
    return row


def fit_integer(value, bits, is_signed):
    """Fit a varint into a column. Larger numbers wrap, but for 16 bits, where they are limited."""
    value = min(value, 0x7FFF) if bits == 16 else value % (1 << bits)
    is_negative = is_signed and value >> bits - 1
    return value - (1 << bits) if is_negative else value


def make_place(row, name, window):
    """Return the columns of a place that covers a window."""
    return {name + "_at": window.at - row["start"], name + "_size": window.left}


# ---- messages and acks

MESSAGE = make_columns(
    "key value stream subject reply_subject ack_inbox correlation_id",
    "offset timestamp headers_at header_count partition ack_policy",
)
ACK = make_columns(
    "stream partition_subject msg_subject ack_inbox correlation_id",
    "offset reception_timestamp commit_timestamp ack_policy ack_error",
)
HEADER = make_columns("key value")

PAIR = {1: "key bytes", 2: "value bytes"}
HEADERS_FIELD = 9  # number of the field
MESSAGE_FIELDS = {
    1: "offset i64",
    2: "key bytes",
    3: "value bytes",
    4: "timestamp i64",
    5: "stream bytes",
    6: "partition i32",
    7: "subject bytes",
    8: "reply_subject bytes",
    HEADERS_FIELD: ("headers", {}),
    10: "ack_inbox bytes",
    11: "correlation_id bytes",
    12: "ack_policy i32",
}
ACK_FIELDS = {
    1: "stream bytes",
    2: "partition_subject bytes",
    3: "msg_subject bytes",
    4: "offset i64",
    5: "ack_inbox bytes",
    6: "correlation_id bytes",
    7: "ack_policy i32",
    8: "reception_timestamp i64",
    9: "commit_timestamp i64",
    10: "ack_error i32",
}


def is_of_any_kind(envelope):
    """Return whether bad bytes are no envelope that says its kind."""
    return envelope["fault"] and envelope["kind"] == PLAIN


def read_bodies(data, envelopes, columns, read_body, kinds):
    """Return a row for the body of each envelope of these kinds. A bad envelope's row is bad.

    So is that of bad bytes without an envelope that says its kind: they may have been of any kind.

    read_body: fills a row from a Window.
    """
    rows = []
    for parent, outer in enumerate(envelopes):
        if outer["kind"] not in kinds and not is_of_any_kind(outer):
            continue
        start = outer["start"] + outer["body"]
        end = outer["start"] + outer["size"]
        row = columns | dict(start=start, size=end - start, parent=parent, kind=outer["kind"])
        try:
            if outer["fault"]:
                raise BadBytesError(outer["fault"])
            rows.append(read_body(Window(data, start, end), dict(row)))
        except BadBytesError as bad:
            rows.append(make_bad_row(row, bad.fault))
    return rows


def read_messages(data, rows):
    """Return the rows of liftbridge.messages for rows of liftbridge.envelopes."""

    def read_message(window, row):
        if row["kind"] == PLAIN:
            return row | make_place(row, "value", window)
        return read_into_row(window, MESSAGE_FIELDS, row)

    return read_bodies(data, rows, MESSAGE, read_message, (PUBLISH, LIFT, PLAIN))


def read_acks(data, rows):
    """Return the rows of liftbridge.acks for rows of liftbridge.envelopes."""

    def read_ack(window, row):
        return read_into_row(window, ACK_FIELDS, row)

    return read_bodies(data, rows, ACK, read_ack, (ACK_KIND,))


def read_headers(data, row, parent=0):
    """Return the rows of liftbridge.headers for one row of liftbridge.messages."""
    if row["fault"]:
        return [make_bad_header(row, parent)]
    if not row["header_count"]:
        return []
    rows = []
    window = Window(data, row["start"], row["start"] + row["size"])
    for number, wire, value, at in read_fields(window):
        if number == HEADERS_FIELD and wire == BYTES:
            header = HEADER | dict(start=at, size=value.end - at, parent=parent, body=value.at - at)
            try:
                rows.append(read_into_row(value, PAIR, dict(header)))
            except BadBytesError as bad:
                rows.append(make_bad_row(header, bad.fault))
    return rows


def make_bad_header(row, parent):
    """Return the one row of liftbridge.headers of a bad row."""
    header = HEADER | dict(start=row["start"], size=row["size"], parent=parent)
    return make_bad_row(header, row["fault"])


# ---- between servers

INTERNAL = make_columns(
    "id host stream error operation replica leader group consumer coordinator entries",
    "leader_epoch offset high_watermark end_offset epoch partition port op error_code exists "
    "is_leader",
)
CHANGE = {
    1: "stream bytes",
    2: "partition i32",
    3: "replica bytes",
    4: "leader bytes",
    5: "leader_epoch u64",
}
STREAM = {1: "stream bytes"}
MEMBER = {1: "group bytes", 2: "consumer bytes", 3: "coordinator bytes", 4: "epoch u64"}
OPERATIONS = {
    2: {1: ("", STREAM)},
    3: CHANGE,
    4: CHANGE,
    5: CHANGE,
    6: STREAM,
    7: STREAM,
    8: STREAM,
    9: STREAM,
    10: {n: MEMBER[n] for n in (1, 2)},
    11: {n: MEMBER[n] for n in (1, 2)},
    12: MEMBER,
}
INTERNAL_FIELDS = {
    2: {1: "id bytes", 2: "offset i64", 3: "leader_epoch u64"},
    4: {1: "id bytes", 2: "host bytes"},
    5: {1: "error bytes"},
    6: {1: "leader_epoch u64"},
    7: {1: "end_offset i64"},
    8: {1: "op i16"} | {number: ("operation", inside) for number, inside in OPERATIONS.items()},
    9: {
        1: "op i16",
        2: ("", {1: "error_code u32", 2: "error bytes"}),
        11: ("", {1: "coordinator bytes", 2: "epoch u64"}),
    },
    10: {1: "id bytes"},
    11: {1: "id bytes", 2: "host bytes", 3: "port i32"},
    12: {1: "stream bytes", 2: "partition i32"},
    13: {1: "exists bool", 2: "is_leader bool"},
    14: {1: "stream bytes", 2: "partition i32"},
}


def read_internal(data, rows):
    """Return the rows of liftbridge.internal for rows of liftbridge.envelopes."""

    def read_internal_body(window, row):
        row["op"] = 0 if row["kind"] in (8, 9) else -1
        if row["kind"] != RESPONSE:
            return read_into_row(window, INTERNAL_FIELDS[row["kind"]], row)
        row["leader_epoch"] = int.from_bytes(window.take(8), "big")
        row["high_watermark"] = int.from_bytes(window.take(8), "big", signed=True)
        return row | make_place(row, "entries", window) | dict(body=16)

    return read_bodies(data, rows, INTERNAL, read_internal_body, range(2, 15))


# ---- entries

ENTRY = make_columns(
    "key value", "offset timestamp leader_epoch headers_at crc header_count magic attributes"
)


def read_entries(data, check=True, resync=True):
    """Return (rows of liftbridge.entries, stop fault, stop position) of a log.

    resync: after a fault, continue at the next intact record.
    """
    rows, at = [], 0
    while at < len(data):
        try:
            rows.append(read_entry(data, at, len(data), check))
        except BadBytesError as stop:
            intact = find_next_intact(data, at + 1) if stop.fault in (SHORT, BAD_LENGTH) else None
            if stop.fault < BAD_LENGTH and intact is None:
                return rows, stop.fault, at
            if not resync:
                return rows, BAD_LENGTH, at
            end = len(data) if intact is None else intact
            rows.append(make_bad_row(ENTRY | dict(start=at, size=end - at), BAD_LENGTH))
        row = rows[-1]
        at += row["size"]
        is_bad = OK < row["fault"] < BAD_LENGTH  # with a known end
        if resync and is_bad and at < len(data) and not is_record(data, at):
            row["size"] = (find_next_intact(data, row["start"] + 1) or at) - row["start"]
            at = row["start"] + row["size"]
    return rows, OK, at


def read_entry(data, at, stop, check):
    """Return the row of the record at `at`. Raises BadBytesError if its end is unknown."""
    if stop - at < 28:
        raise BadBytesError(SHORT)
    size = int.from_bytes(data[at + 24 : at + 28], "big")
    if not 16 <= size < 1 << 31:
        raise BadBytesError(BAD_LENGTH if any(data[at:stop]) else ZEROS)
    if 28 + size > stop - at:
        raise BadBytesError(SHORT if 28 + size <= LONGEST else BAD_LENGTH)
    row = ENTRY | dict(start=at, size=28 + size, body=28)
    window = Window(data, at, at + row["size"])
    for name, signed in (("offset", True), ("timestamp", True), ("leader_epoch", False)):
        row[name] = int.from_bytes(window.take(8), "big", signed=signed)
    window.take(4)
    try:
        read_message(window, row, check)
    except BadBytesError as bad:
        return make_bad_row(row, bad.fault)
    return row


def read_message(window, row, check):
    """Read the message of a record into the record's row."""
    row["crc"] = int.from_bytes(window.take(4), "big")
    if check and crc32c(window.data[window.at : window.end]) != row["crc"]:
        raise BadBytesError(BAD_CHECKSUM)
    row["magic"] = int.from_bytes(window.take(1), "big", signed=True)
    row["attributes"] = int.from_bytes(window.take(1), "big", signed=True)
    if row["magic"] != 1:
        raise BadBytesError(BAD_MAGIC)
    read_block(window, row, "key")
    read_block(window, row, "value")
    row["header_count"] = int.from_bytes(window.take(2), "big")
    row["headers_at"] = window.at - row["start"]
    for _ in range(row["header_count"]):
        read_pair(window, dict(start=0))
    if window.left:
        raise BadBytesError(LEFTOVER)


def read_block(window, row, name):
    size = window.i32()
    if size < -1:
        raise BadBytesError(BAD_NULL)
    window.field(row, name, size)


def read_pair(window, row):
    window.field(row, "key", int.from_bytes(window.take(2), "big"))
    read_block(window, row, "value")
    return row


def read_entry_headers(data, row, parent=0):
    """Return the rows of liftbridge.headers for one row of liftbridge.entries."""
    if row["fault"]:
        return [make_bad_header(row, parent)]
    rows = []
    window = Window(data, row["start"] + row["headers_at"], row["start"] + row["size"])
    for _ in range(row["header_count"]):
        header = read_pair(window, HEADER | dict(start=window.at, parent=parent))
        rows.append(header | dict(size=window.at - header["start"], body=header["key_at"]))
    return rows


def read_response_entries(data, rows, check=True):
    """Return the rows of liftbridge.entries for rows of liftbridge.envelopes.

    Only replication responses hold records.
    """
    entries = []
    for parent, outer in enumerate(rows):
        if outer["kind"] != RESPONSE and not is_of_any_kind(outer):
            continue
        at = outer["start"] + outer["body"]
        end = outer["start"] + outer["size"]
        fault = outer["fault"]
        if fault or end - at < RESPONSE_HEADER:
            row = ENTRY | dict(start=at, size=end - at, parent=parent)
            entries.append(make_bad_row(row, fault or TRUNCATED))
            continue
        at += RESPONSE_HEADER
        while at < end:
            try:
                row = read_entry(data, at, end, check)
            except BadBytesError:
                row = make_bad_row(ENTRY | dict(start=at, size=end - at), TRUNCATED)
            entries.append(row | dict(parent=parent))
            at += row["size"]
    return entries


def is_record(data, at):
    """Does a record begin here, by its header or by its checksum?"""
    return is_plausible(data, at) or is_verified(data, at)


def is_plausible(data, at):
    """Do these bytes look like the beginning of a record? The record may be cut."""
    if len(data) - at < SMALLEST_RECORD:
        return False
    size = int.from_bytes(data[at + 24 : at + 28], "big", signed=True)
    key_size = int.from_bytes(data[at + 34 : at + 38], "big", signed=True)
    return size >= 16 and data[at + 32] == 1 and -1 <= key_size <= size - 16


def is_verified(data, at):
    """Is there a whole record with a correct checksum here?"""
    size = int.from_bytes(data[at + 24 : at + 28], "big", signed=True)
    end = at + 28 + size
    if not at + SMALLEST_RECORD <= end <= len(data) or data[at + 32] != 1:
        return False
    return crc32c(data[at + 32 : end]) == int.from_bytes(data[at + 28 : at + 32], "big")


def find_next_intact(data, at):
    """Return the position of the first intact record at `at` or later, or None."""
    for position in range(at, len(data) - SMALLEST_RECORD + 1):
        if is_plausible(data, position) and is_verified(data, position):
            return position
    return None
