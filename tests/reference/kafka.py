"""Kafka record batches and message sets, decoded one field at a time.

    every entry   offset i64 | length i32 | 4 bytes | magic i8 ...            length counts from byte 12
    magic 0       12 crc | 16 magic | 17 attributes | 18 key, value           (lengths i32; negative is null)
    magic 1       12 crc | 16 magic | 17 attributes | 18 timestamp | 26 key, value
    magic 2       12 leader epoch | 16 magic | 17 crc | 21 attributes | 23 last offset delta
                  | 27 base timestamp | 35 max timestamp | 43 producer id | 51 producer epoch
                  | 53 base sequence | 57 count | 61 records

A row is a dict with every column of the format. What was not read is 0, and so is a place whose bytes do not
fit. A row that no field stands behind (the rest of a parent, missing children, a bad parent) has kind and
body 0.
"""
import struct
import zlib

from crc32c import crc32c

from reference.inflate import inflate
from reference.window import Bad, Window, signed

OK, TRUNCATED, BAD_MAGIC, BAD_CHECKSUM, BAD_COUNT, BAD_CODEC = 0, 1, 2, 4, 5, 7
LEFTOVER, NESTED, BAD_OFFSET, BAD_NULL = 10, 11, 12, 13
SHORT, ZEROS, FILLER, BAD_LENGTH, NOT_A_FRAME = 128, 129, 130, 160, 161

HEAD = dict(start=0, size=0, body=0, parent=-1, buffer=0, kind=0, fault=0)
BATCH = HEAD | dict(
    base_offset=0, last_offset=0, base_timestamp=0, max_timestamp=0, producer_id=0, leader_epoch=0,
    base_sequence=0, record_count=0, crc=0, producer_epoch=0, attributes=0, magic=0, codec=0,
    is_transactional=0, is_control=0)
RECORD = HEAD | dict(
    offset=0, timestamp=0, key_at=0, value_at=0, headers_at=0, key_size=0, value_size=0, header_count=0)
HEADER = HEAD | dict(key_at=0, value_at=0, key_size=0, value_size=0)

MESSAGE_BODY = {0: 18, 1: 26}
SMALLEST = {0: 14, 1: 22, 2: 49}    # the least that `length` can be
SMALLEST_RECORD = 6     # attributes, four varints and a count
LOG_APPEND_TIME = 8


def batches(data, check=True):
    """(rows of kafka.batches, stop fault, stop offset) of bytes that begin at a batch or message.

    As a scan that does not look for the next intact batch after a bad one.
    """
    rows, at = [], 0
    while at < len(data):
        left = len(data) - at
        if left < 12:
            return rows, cut(data, at, SHORT), at
        offset, length = struct.unpack_from(">qi", data, at)
        if offset == 0 and length == 0:
            return rows, BAD_LENGTH if any(data[at:]) else ZEROS, at
        if length < 14:
            return rows, BAD_LENGTH, at
        if 12 + length > left:
            return rows, cut(data, at, FILLER if offset == -1 else SHORT), at
        rows.append(batch(bytes(data[at:at + 12 + length]), at, check))
        at += 12 + length
    return rows, OK, at


def cut(data, at, fault):
    """A cut entry is no fault, unless its magic byte is there and is none, or intact ones follow it."""
    from reference.kafka_resync import next_intact
    if fault == SHORT and len(data) - at > 16 and data[at + 16] > 2:
        return NOT_A_FRAME
    return fault if next_intact(data, at + 1) is None else BAD_LENGTH


def batch(entry, start, check):
    """The row of one whole entry."""
    magic = entry[16]
    row = BATCH | dict(start=start, size=len(entry), kind=magic, magic=magic)
    if magic > 2:
        return row | dict(fault=BAD_MAGIC)
    if len(entry) - 12 < SMALLEST[magic]:
        return row | dict(fault=TRUNCATED)
    return batch_v2(entry, row, check) if magic == 2 else message(entry, row, check)


def batch_v2(entry, row, check):
    (base_offset, leader_epoch, crc, attributes, last_delta, base_timestamp, max_timestamp, producer_id,
     producer_epoch, base_sequence, count) = struct.unpack_from(">q4xixIhiqqqhii", entry)
    row |= dict(
        body=61, base_offset=base_offset, last_offset=signed(base_offset + last_delta),
        base_timestamp=base_timestamp, max_timestamp=max_timestamp, producer_id=producer_id,
        leader_epoch=leader_epoch, base_sequence=base_sequence, record_count=count, crc=crc,
        producer_epoch=producer_epoch, attributes=attributes, codec=attributes & 7,
        is_transactional=attributes >> 4 & 1, is_control=attributes >> 5 & 1)
    if check and crc != crc32c(entry[21:]):
        return row | dict(fault=BAD_CHECKSUM)
    if row["codec"] > 4:
        return row | dict(fault=BAD_CODEC)
    return row | dict(fault=BAD_COUNT) if count < 0 else row


def message(entry, row, check):
    magic, attributes = entry[16], entry[17]
    offset, crc = struct.unpack_from(">q4xI", entry)
    timestamp = struct.unpack_from(">q", entry, 18)[0] if magic == 1 else -1
    codec = attributes & 7
    row |= dict(
        body=MESSAGE_BODY[magic], base_offset=offset, last_offset=offset, base_timestamp=timestamp,
        max_timestamp=timestamp, producer_id=-1, leader_epoch=-1, base_sequence=-1,
        record_count=-1 if codec else 1, crc=crc, producer_epoch=-1, attributes=attributes, codec=codec)
    if check and crc != zlib.crc32(entry[16:]):
        return row | dict(fault=BAD_CHECKSUM)
    if codec > 3:
        return row | dict(fault=BAD_CODEC)
    try:
        if codec:
            open_wrapper(entry, row)
    except Bad as bad:
        row["fault"] = bad.fault
    return row


def open_wrapper(entry, row):
    """The payload of a wrapper is its value, which has to be there, and the last thing in it."""
    window = Window(entry, row["body"], len(entry))
    window.take(max(window.i32(), 0))
    size = window.i32()
    if size < 0:
        raise Bad(BAD_NULL)
    at = window.at
    window.take(size)
    row["body"] = at
    if window.left:
        raise Bad(LEFTOVER)


def records(data, batch, check=True, parent=0):
    """The kafka.records rows of one row of kafka.batches.

    `buffer` is 0 where a row stands in `data`, and 1 where it stands in payload(data, batch).
    """
    try:
        if batch["fault"]:
            raise Bad(batch["fault"])
        rows = opened(data, batch, check)
    except Bad as bad:
        start, size = batch["start"] + batch["body"], batch["size"] - batch["body"]
        rows = [RECORD | dict(start=start, size=size, fault=bad.fault)]
    return [row | dict(parent=parent) for row in rows]


def opened(data, batch, check):
    start, end = batch["start"] + batch["body"], batch["start"] + batch["size"]
    if batch["kind"] < 2 and batch["codec"]:
        return wrapped(payload(data, batch), batch, check)
    if batch["kind"] < 2:
        row = RECORD | dict(start=start, size=end - start, kind=batch["kind"], offset=batch["base_offset"])
        return [key_and_value(data, row | dict(timestamp=batch["max_timestamp"]), start)]
    if not batch["codec"]:
        return batch_records(Window(data, start, end), batch)
    if start == end and batch["record_count"] == 0:
        return []
    plain = payload(data, batch)
    return [row | dict(buffer=1) for row in batch_records(Window(plain, 0, len(plain)), batch)]


def payload(data, batch):
    """The bytes that the records of a good compressed batch stand in. Raises Bad."""
    start, end = batch["start"] + batch["body"], batch["start"] + batch["size"]
    return inflate(batch["codec"], bytes(data[start:end]), magic=batch["kind"])


def batch_records(window, batch):
    rows = []

    def rest(fault):
        rows.append(RECORD | dict(start=window.at, size=window.left, fault=fault))
        return rows

    for _ in range(batch["record_count"]):
        if not window.left:
            return rest(BAD_COUNT)
        start = window.at
        try:
            length = window.zigzag(32)
            if not SMALLEST_RECORD <= length <= window.left:
                raise Bad(TRUNCATED)
        except Bad as bad:
            window.at = start
            return rest(bad.fault)
        end = window.at + length
        rows.append(record(Window(window.data, window.at, end), start, batch))
        window.at = end
        if not window.left and rows[-1]["fault"]:
            return rows     # one bad row tells of all that is missing
    return rest(BAD_COUNT) if window.left else rows


def record(window, start, batch):
    """One record of magic 2 whose end is known: window is all that follows its length."""
    row = RECORD | dict(start=start, size=window.end - start, body=window.at - start, kind=2)
    try:
        window.take(1)
        delta = window.zigzag(64)
        offset = signed(batch["base_offset"] + window.zigzag(32))
        window.field(row, "key", window.zigzag(32))
        window.field(row, "value", window.zigzag(32))
        count = window.zigzag(32)
        append = batch["attributes"] & LOG_APPEND_TIME
        timestamp = batch["max_timestamp"] if append else signed(batch["base_timestamp"] + delta)
        row |= dict(offset=offset, timestamp=timestamp, headers_at=window.at - start, header_count=count)
        if not 0 <= count <= window.left // 2:
            raise Bad(BAD_COUNT)
        if not count and window.left:
            raise Bad(LEFTOVER)
    except Bad as bad:
        row["fault"] = bad.fault
    return row


def key_and_value(data, row, at):
    """Fill in the fields of a magic 0 or 1 message, which begin at `at` and end where the row does."""
    window = Window(data, at, row["start"] + row["size"])
    try:
        window.field(row, "key", window.i32())
        window.field(row, "value", window.i32())
        row["headers_at"] = window.at - row["start"]
        if window.left:
            raise Bad(LEFTOVER)
    except Bad as bad:
        row["fault"] = bad.fault
    return row


def wrapped(plain, wrapper, check):
    """The rows of the message set that a wrapper holds."""
    rows, at = [], 0
    while at < len(plain):
        row = inner_message(plain, at, wrapper, check)
        rows.append(row)
        at += row["size"]
    if not rows:
        return [RECORD | dict(buffer=1, fault=BAD_COUNT)]
    if wrapper["kind"] == 1 and wrapper["base_offset"] != 0:
        shift_offsets(rows, wrapper["base_offset"])
    return rows


def shift_offsets(rows, last):
    """Offsets in a magic 1 wrapper count from its first message; the wrapper's own, `last`, is that of the last.

    Without a last message whose header can be read, and below its offset, no good row has an offset.
    """
    shift = last - rows[-1]["offset"]
    for row in rows:
        if rows[-1]["body"] and shift >= 0:
            if row["body"]:
                row["offset"] = signed(row["offset"] + shift)
        elif not row["fault"]:
            row["fault"] = BAD_OFFSET


def inner_message(plain, at, wrapper, check):
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
    crc, = struct.unpack_from(">I", plain, at + 12)
    if check and crc != zlib.crc32(plain[at + 16:at + 12 + length]):
        return row | dict(fault=BAD_CHECKSUM)
    if plain[at + 17] & 7:
        return row | dict(fault=NESTED)
    if wrapper["kind"] == 1 and wrapper["attributes"] & LOG_APPEND_TIME:
        row["timestamp"] = wrapper["max_timestamp"]
    else:
        row["timestamp"] = struct.unpack_from(">q", plain, at + 18)[0] if magic == 1 else -1
    return key_and_value(plain, row, at + row["body"])


def headers(buffer, record, parent=0):
    """The kafka.headers rows of one row of kafka.records; `buffer` is what that row stands in."""
    window = Window(buffer, record["start"] + record["headers_at"], record["start"] + record["size"])
    blank = HEADER | dict(parent=parent, buffer=record["buffer"])
    rows = []

    def rest(fault):
        rows.append(blank | dict(start=window.at, size=window.left, fault=fault))
        return rows

    if record["fault"]:
        return rest(record["fault"])
    for _ in range(record["header_count"]):
        if not window.left:
            return rest(BAD_COUNT)
        row = blank | dict(start=window.at)
        rows.append(row)
        try:
            header(window, row)
        except Bad as bad:
            row |= dict(size=window.end - row["start"], fault=bad.fault)
            return rows     # a header has no length of its own: the rest is lost
        row["size"] = window.at - row["start"]
    return rest(BAD_COUNT) if record["header_count"] and window.left else rows


def header(window, row):
    length = window.zigzag(32)
    row["body"] = window.at - row["start"]
    if length < 0:
        raise Bad(BAD_NULL)
    window.field(row, "key", length)
    window.field(row, "value", window.zigzag(32))
