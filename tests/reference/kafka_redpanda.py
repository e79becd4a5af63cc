"""Redpanda's batches, decoded one field at a time, with the search for intact batches after damage.

Every batch begins with a header of 61 bytes, little-endian:

    0 crc of the bytes 4 to 60 | 4 size of the batch, i32 | 8 base offset | 16 type | 17 crc
    | 21 attributes | 23 last offset delta | 27 base timestamp | 35 max timestamp | 43 producer id
    | 51 producer epoch | 53 base sequence | 57 count | 61 records

The second crc is that of Kafka's own batch: of the fields from 21 on as big-endian numbers, and of
the records. The records are those of Kafka's magic 2, so tests/reference/kafka.py reads them.
"""

import struct

from crc32c import crc32c

from tests.reference.kafka import (
    BAD_CHECKSUM,
    BAD_CODEC,
    BAD_COUNT,
    BAD_LENGTH,
    BATCH,
    NOT_A_FRAME,
    OK,
    SHORT,
    ZEROS,
)
from tests.reference.window import wrap_int64

RAFT_DATA = 1
HEADER = 61
FIELDS = "hiqqqhii"  # attributes to count
LONGEST = 100 << 20  # bytes of a frame: the default of Limits.frame


def read_batches(data, check=True, resync=False):
    """Return (rows of kafka.redpanda_batches, stop fault, stop position)."""
    rows, at = [], 0
    while at < len(data):
        row, fault = read_batch(data, at, check)
        if row is None:
            found = None if fault == ZEROS else find_next_intact(data, at + 1)
            if fault == SHORT and found is not None:
                fault = BAD_LENGTH
            if fault < BAD_LENGTH or not resync:
                return rows, fault, at
            end = len(data) if found is None else found
            rows.append(BATCH | dict(start=at, size=end - at, fault=fault))
        else:
            end = at + row["size"]
            if resync and row["fault"] and end < len(data) and not is_batch(data, end):
                end = find_next_intact(data, at + 1) or end
            rows.append(row | dict(size=end - at, body=min(row["body"], end - at)))
        at = end
    return rows, OK, at


def read_batch(data, at, check):
    """Return (row, 0) of the batch at a position; (None, fault) where its end is not known."""
    head = data[at : at + HEADER]
    if len(head) >= 8 and not any(head[:8]):
        return None, BAD_LENGTH if any(data[at:]) else ZEROS
    if len(head) < HEADER:
        return None, SHORT
    size, base, kind, crc = struct.unpack_from("<iqBI", head, 4)
    if size < HEADER:
        return None, BAD_LENGTH
    if size > len(data) - at:
        if not is_header_right(head):
            return None, NOT_A_FRAME
        return None, BAD_LENGTH if size > LONGEST else SHORT
    attributes, delta, first, latest, producer, epoch, sequence, count = struct.unpack_from(
        "<" + FIELDS, head, 21
    )
    row = BATCH | dict(
        start=at,
        size=size,
        body=HEADER,
        kind=kind,
        magic=2,
        leader_epoch=-1,
        base_offset=base,
        last_offset=wrap_int64(base + delta),
        base_timestamp=first,
        max_timestamp=latest,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
        crc=crc,
        attributes=attributes,
        codec=attributes & 7,
        is_transactional=attributes >> 4 & 1,
        is_control=attributes >> 5 & 1,
    )
    batch = data[at : at + size]
    if check and not (is_header_right(batch) and is_body_right(batch)):
        row["fault"] = BAD_CHECKSUM
    elif row["codec"] > 4:
        row["fault"] = BAD_CODEC
    elif count < 0:
        row["fault"] = BAD_COUNT
    return row, OK


def is_header_right(batch):
    """Is the first checksum right?"""
    return crc32c(bytes(batch[4:HEADER])) == int.from_bytes(batch[:4], "little")


def is_body_right(batch):
    """Is the second checksum right?"""
    fields = struct.unpack_from("<" + FIELDS, batch, 21)
    kafka = struct.pack(">" + FIELDS, *fields) + bytes(batch[HEADER:])
    return crc32c(kafka) == int.from_bytes(batch[17:21], "little")


def find_next_intact(data, at):
    """Return the position of the first intact batch with a usual header at `at` or later."""
    for position in range(at, len(data)):
        if is_usual(data, position) and is_intact(data, position):
            return position
    return None


def is_batch(data, at):
    """Does a batch begin here, by a usual header or by both checksums?"""
    return is_usual(data, at) or is_intact(data, at)


def is_usual(data, at):
    """Is there a header with a right checksum and usual fields? The batch may be cut."""
    head = data[at : at + HEADER]
    if len(head) < HEADER:
        return False
    size, base, kind, _, attributes, delta = struct.unpack_from("<iqbIhi", head, 4)
    (count,) = struct.unpack_from("<i", head, 57)
    return (
        size >= HEADER
        and base >= 0
        and kind > 0
        and 0 <= attributes < 256
        and attributes & 7 <= 4
        and delta >= 0
        and 0 <= count <= delta + 1
        and is_header_right(head)
    )


def is_intact(data, at):
    """Is there a whole batch with right checksums? Its header may be unusual."""
    size = int.from_bytes(data[at + 4 : at + 8], "little", signed=True)
    batch = data[at : at + size] if size >= HEADER else b""
    is_whole = len(batch) == size >= HEADER
    return is_whole and is_header_right(batch) and is_body_right(batch)
