"""Kafka record batches and message sets, decoded one field at a time.

Every entry begins with an offset, i64, and a length, i32. The length counts from byte 12. Position
and name of the fields that follow:

    magic 0     12 crc | 16 magic | 17 attributes | 18 key, value
    magic 1     12 crc | 16 magic | 17 attributes | 18 timestamp | 26 key, value
    magic 2     12 leader epoch | 16 magic | 17 crc | 21 attributes | 23 last offset delta
                | 27 base timestamp | 35 max timestamp | 43 producer id | 51 producer epoch
                | 53 base sequence | 57 count | 61 records

In magic 0 and 1, the length of a key or value is an i32; a negative length is null.

A row is a dict with every column of the format. A column that was not read is 0. So is the place
of a field that does not fit. Some bad rows cover bytes without a field: the rest of a parent,
missing children, or a bad parent. They have kind 0 and body 0.
"""

import struct
import zlib

from crc32c import crc32c

from tests.reference.inflate import decompress
from tests.reference.window import BadBytesError, Window, wrap_int64

OK, TRUNCATED, BAD_MAGIC, BAD_CHECKSUM, BAD_COUNT, BAD_CODEC = 0, 1, 2, 4, 5, 7
LEFTOVER, NESTED, BAD_OFFSET, BAD_NULL = 10, 11, 12, 13
SHORT, ZEROS, FILLER, BAD_LENGTH, NOT_A_FRAME = 128, 129, 130, 160, 161

LONGEST = 100 << 20  # bytes of a frame: the default of Limits.frame
MAGICS = (b"\0", b"\1", b"\2")

HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
BATCH = HEAD | dict(
    base_offset=0,
    last_offset=0,
    base_timestamp=0,
    max_timestamp=0,
    producer_id=0,
    leader_epoch=0,
    base_sequence=0,
    record_count=0,
    crc=0,
    producer_epoch=0,
    attributes=0,
    magic=0,
    codec=0,
    is_transactional=0,
    is_control=0,
)
RECORD = HEAD | dict(
    offset=0,
    timestamp=0,
    key_at=0,
    value_at=0,
    headers_at=0,
    key_size=0,
    value_size=0,
    header_count=0,
)
HEADER = HEAD | dict(key_at=0, value_at=0, key_size=0, value_size=0)

MESSAGE_BODY = {0: 18, 1: 26}
SMALLEST = {0: 14, 1: 22, 2: 49}  # the smallest valid length
SMALLEST_RECORD = 6  # attributes, four varints and a count
LOG_APPEND_TIME = 8


def read_batches(data, check=True):
    """Return (rows of kafka.batches, stop fault, stop position).

    The data begins at a batch or message. After a bad batch there is no search for the next intact
    batch.
    """
    rows, at = [], 0
    while at < len(data):
        left = len(data) - at
        if left < 12:
            return rows, choose_cut_fault(data, at, SHORT), at
        offset, length = struct.unpack_from(">qi", data, at)
        if offset == 0 and length == 0:
            return rows, BAD_LENGTH if any(data[at:]) else ZEROS, at
        if length < 14:
            return rows, BAD_LENGTH, at
        if 12 + length > left:
            fault = FILLER if offset == -1 else SHORT
            if fault == SHORT and 12 + length > LONGEST and data[at + 16 : at + 17] in MAGICS:
                return rows, BAD_LENGTH, at
            return rows, choose_cut_fault(data, at, fault), at
        rows.append(read_batch(bytes(data[at : at + 12 + length]), at, check))
        at += 12 + length
    return rows, OK, at


def choose_cut_fault(data, at, fault):
    """Return the fault of an entry that is cut.

    It is `fault`, unless the entry has an unknown magic byte or intact entries follow.
    """
    from tests.reference.kafka_resync import find_next_intact

    if fault == SHORT and len(data) - at > 16 and data[at + 16] > 2:
        return NOT_A_FRAME
    return fault if find_next_intact(data, at + 1) is None else BAD_LENGTH


def read_batch(entry, start, check):
    """Return the row of one whole entry."""
    magic = entry[16]
    row = BATCH | dict(start=start, size=len(entry), kind=magic, magic=magic)
    if magic > 2:
        return row | dict(fault=BAD_MAGIC)
    if len(entry) - 12 < SMALLEST[magic]:
        return row | dict(fault=TRUNCATED)
    return read_batch_v2(entry, row, check) if magic == 2 else read_message(entry, row, check)


def read_batch_v2(entry, row, check):
    (
        base_offset,
        leader_epoch,
        crc,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = struct.unpack_from(">q4xixIhiqqqhii", entry)
    row |= dict(
        body=61,
        base_offset=base_offset,
        last_offset=wrap_int64(base_offset + last_delta),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        leader_epoch=leader_epoch,
        base_sequence=base_sequence,
        record_count=count,
        crc=crc,
        producer_epoch=producer_epoch,
        attributes=attributes,
        codec=attributes & 7,
        is_transactional=attributes >> 4 & 1,
        is_control=attributes >> 5 & 1,
    )
    if check and crc != crc32c(entry[21:]):
        return row | dict(fault=BAD_CHECKSUM)
    if row["codec"] > 4:
        return row | dict(fault=BAD_CODEC)
    if count < 0:
        return row | dict(fault=BAD_COUNT)
    return row


def read_message(entry, row, check):
    magic, attributes = entry[16], entry[17]
    offset, crc = struct.unpack_from(">q4xI", entry)
    timestamp = struct.unpack_from(">q", entry, 18)[0] if magic == 1 else -1
    codec = attributes & 7
    row |= dict(
        body=MESSAGE_BODY[magic],
        base_offset=offset,
        last_offset=offset,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        leader_epoch=-1,
        base_sequence=-1,
        record_count=-1 if codec else 1,
        crc=crc,
        producer_epoch=-1,
        attributes=attributes,
        codec=codec,
    )
    if check and crc != zlib.crc32(entry[16:]):
        return row | dict(fault=BAD_CHECKSUM)
    if codec > 3:
        return row | dict(fault=BAD_CODEC)
    try:
        if codec:
            read_wrapper(entry, row)
    except BadBytesError as bad:
        row["fault"] = bad.fault
    return row


def read_wrapper(entry, row):
    """Set the body of a wrapper: its value, which must not be null. No bytes may follow it."""
    window = Window(entry, row["body"], len(entry))
    window.take(max(window.i32(), 0))
    size = window.i32()
    if size < 0:
        raise BadBytesError(BAD_NULL)
    at = window.at
    window.take(size)
    row["body"] = at
    if window.left:
        raise BadBytesError(LEFTOVER)


def list_records(data, batch, check=True, parent=0):
    """Return the rows of kafka.records for one row of kafka.batches.

    `buffer` is 0 where a row points into `data`, and 1 where it points into payload(data, batch).
    """
    try:
        if batch["fault"]:
            raise BadBytesError(batch["fault"])
        rows = read_records(data, batch, check)
    except BadBytesError as bad:
        start, size = batch["start"] + batch["body"], batch["size"] - batch["body"]
        rows = [RECORD | dict(start=start, size=size, fault=bad.fault)]
    return [row | dict(parent=parent) for row in rows]


def read_records(data, batch, check):
    start, end = batch["start"] + batch["body"], batch["start"] + batch["size"]
    if batch["kind"] < 2 and batch["codec"]:
        return read_wrapped_messages(decompress_payload(data, batch), batch, check)
    if batch["kind"] < 2:
        row = RECORD | dict(
            start=start,
            size=end - start,
            kind=batch["kind"],
            offset=batch["base_offset"],
            timestamp=batch["max_timestamp"],
        )
        return [read_key_and_value(data, row, start)]
    if not batch["codec"]:
        return read_batch_records(Window(data, start, end), batch)
    if start == end and batch["record_count"] == 0:
        return []
    plain = decompress_payload(data, batch)
    return [row | dict(buffer=1) for row in read_batch_records(Window(plain, 0, len(plain)), batch)]


def decompress_payload(data, batch):
    """Return the decompressed records of a good compressed batch. Raises BadBytesError."""
    start, end = batch["start"] + batch["body"], batch["start"] + batch["size"]
    return decompress(batch["codec"], bytes(data[start:end]), magic=batch["kind"])


def read_batch_records(window, batch):
    rows = []

    def add_rest(fault):
        rows.append(RECORD | dict(start=window.at, size=window.left, fault=fault))
        return rows

    for _ in range(batch["record_count"]):
        if not window.left:
            return add_rest(BAD_COUNT)
        start = window.at
        try:
            length = window.zigzag(32)
            if not SMALLEST_RECORD <= length <= window.left:
                raise BadBytesError(TRUNCATED)
        except BadBytesError as bad:
            window.at = start
            return add_rest(bad.fault)
        end = window.at + length
        rows.append(read_record(Window(window.data, window.at, end), start, batch))
        window.at = end
        if not window.left and rows[-1]["fault"]:
            return rows  # one bad row covers everything that is missing
    return add_rest(BAD_COUNT) if window.left else rows


def read_record(window, start, batch):
    """Return the row of one record of magic 2. The window begins behind the record's length."""
    row = RECORD | dict(start=start, size=window.end - start, body=window.at - start, kind=2)
    try:
        window.take(1)
        delta = window.zigzag(64)
        offset = wrap_int64(batch["base_offset"] + window.zigzag(32))
        window.field(row, "key", window.zigzag(32))
        window.field(row, "value", window.zigzag(32))
        count = window.zigzag(32)
        append = batch["attributes"] & LOG_APPEND_TIME
        timestamp = (
            batch["max_timestamp"] if append else wrap_int64(batch["base_timestamp"] + delta)
        )
        row |= dict(
            offset=offset, timestamp=timestamp, headers_at=window.at - start, header_count=count
        )
        if not 0 <= count <= window.left // 2:
            raise BadBytesError(BAD_COUNT)
        if not count and window.left:
            raise BadBytesError(LEFTOVER)
    except BadBytesError as bad:
        row["fault"] = bad.fault
    return row


def read_key_and_value(data, row, at):
    """Read the key and value of a message of magic 0 or 1 into its row.

    The key begins at `at`. The value ends where the row ends.
    """
    window = Window(data, at, row["start"] + row["size"])
    try:
        window.field(row, "key", window.i32())
        window.field(row, "value", window.i32())
        row["headers_at"] = window.at - row["start"]
        if window.left:
            raise BadBytesError(LEFTOVER)
    except BadBytesError as bad:
        row["fault"] = bad.fault
    return row


def read_wrapped_messages(plain, wrapper, check):
    """Return the rows of the message set in a wrapper. `plain` is its decompressed payload."""
    rows, at = [], 0
    while at < len(plain):
        row = read_inner_message(plain, at, wrapper, check)
        rows.append(row)
        at += row["size"]
    if not rows:
        return [RECORD | dict(buffer=1, fault=BAD_COUNT)]
    if wrapper["kind"] == 1 and wrapper["base_offset"] != 0:
        shift_offsets(rows, wrapper["base_offset"])
    return rows


def shift_offsets(rows, last):
    """Make the offsets of a wrapper of magic 1 absolute.

    Offsets in the wrapper count from its first message. `last` is the wrapper's own offset, which
    is the offset of its last message. If the header of the last message cannot be read, or its
    offset is above `last`, every good row gets a fault.
    """
    shift = last - rows[-1]["offset"]
    for row in rows:
        if rows[-1]["body"] and shift >= 0:
            if row["body"]:
                row["offset"] = wrap_int64(row["offset"] + shift)
        elif not row["fault"]:
            row["fault"] = BAD_OFFSET


def read_inner_message(plain, at, wrapper, check):
    left = len(plain) - at
    rest = RECORD | dict(start=at, size=left, buffer=1, fault=TRUNCATED)
    if left < 12:
        return rest
    offset, length = struct.unpack_from(">qi", plain, at)
    if not 14 <= length <= left - 12:
        return rest
    magic = plain[at + 16]
    row = RECORD | dict(start=at, size=12 + length, buffer=1, kind=magic)
    if magic > 1:
        return row | dict(fault=BAD_MAGIC)
    row |= dict(body=MESSAGE_BODY[magic], offset=offset)
    if row["size"] < row["body"]:
        return row | dict(fault=TRUNCATED)
    (crc,) = struct.unpack_from(">I", plain, at + 12)
    if check and crc != zlib.crc32(plain[at + 16 : at + 12 + length]):
        return row | dict(fault=BAD_CHECKSUM)
    if plain[at + 17] & 7:
        return row | dict(fault=NESTED)
    if magic == 0:
        row["timestamp"] = -1
    elif wrapper["kind"] == 1 and wrapper["attributes"] & LOG_APPEND_TIME:
        row["timestamp"] = wrapper["max_timestamp"]
    else:
        (row["timestamp"],) = struct.unpack_from(">q", plain, at + 18)
    return read_key_and_value(plain, row, at + row["body"])


def list_headers(buffer, record, parent=0):
    """Return the rows of kafka.headers for one row of kafka.records.

    `buffer` holds the bytes that the row points into.
    """
    return list_headers_with(read_header, Window, buffer, record, parent)


def list_headers_with(read_header, window_type, buffer, record, parent):
    """Return the rows of the headers of a record. `read_header` reads one of them into its row."""
    start = record["start"] + record["headers_at"]
    window = window_type(buffer, start, record["start"] + record["size"])
    blank = HEADER | dict(parent=parent, buffer=record["buffer"])
    rows = []

    def add_rest(fault):
        rows.append(blank | dict(start=window.at, size=window.left, fault=fault))
        return rows

    if record["fault"]:
        return add_rest(record["fault"])
    for _ in range(record["header_count"]):
        if not window.left:
            return add_rest(BAD_COUNT)
        row = blank | dict(start=window.at)
        rows.append(row)
        try:
            read_header(window, row)
        except BadBytesError as bad:
            row |= dict(size=window.end - row["start"], fault=bad.fault)
            return rows  # a header has no length, so the rest is lost
        row["size"] = window.at - row["start"]
    return add_rest(BAD_COUNT) if record["header_count"] and window.left else rows


def read_header(window, row):
    length = window.zigzag(32)
    row["body"] = window.at - row["start"]
    if length < 0:
        raise BadBytesError(BAD_NULL)
    window.field(row, "key", length)
    window.field(row, "value", window.zigzag(32))
