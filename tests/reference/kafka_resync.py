"""Kafka batches in damaged bytes. After a fault, the scan continues at the next intact batch.

An intact batch has a plausible header and a correct checksum. Where the length of the previous
batch leads to a batch, its checksum is enough. The bytes between have a row of their own.
"""

import struct
import zlib

from crc32c import crc32c

from tests.reference import kafka
from tests.reference.kafka import BAD_LENGTH, BATCH, OK, SHORT


def read_batches(data, check=True):
    """Return (rows of kafka.batches, stop fault, stop position), with a search after faults."""
    rows, at = [], 0
    while at < len(data):
        row, fault, _ = read_first_entry(data, at, check)
        if row is None:
            end = find_next_intact(data, at + 1)
            if end is None and fault < BAD_LENGTH:
                return rows, fault, at
            end = len(data) if end is None else end
            rows.append(BATCH | dict(start=at, size=end - at, fault=fault))
        else:
            end = at + row["size"]
            if row["fault"] and end < len(data) and not is_batch(data, end):
                end = find_next_intact(data, at + 1) or end
            rows.append(row | dict(size=end - at, body=min(row["body"], end - at)))
        at = end
    return rows, OK, at


def read_first_entry(data, at, check):
    """Return (row or None, stop fault, stop position) of the entry at `at` alone.

    The start of the row counts from the beginning of `data`.
    """
    length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
    if length >= 14 and 12 + length <= len(data) - at:
        rows, fault, stop = kafka.read_batches(data[at : at + 12 + length], check)
        return rows[0] | dict(start=at), fault, stop
    rows, fault, stop = kafka.read_batches(data[at:], check)
    assert not rows
    assert fault >= SHORT
    return None, fault, stop


def find_next_intact(data, at):
    """Return the position of the first intact batch at `at` or later, or None."""
    for position in range(at, len(data)):
        if is_plausible(data, position, whole=True) and is_checksum_right(data, position):
            return position
    return None


def is_batch(data, at):
    """Does a batch begin here, by its header or by its checksum?"""
    return is_plausible(data, at) or is_verified(data, at)


def is_plausible(data, at, *, whole=False):
    """Do these bytes look like the header of a batch?

    The batch may be cut, unless it has to be `whole`.
    """
    left = len(data) - at
    if left < 26:
        return False
    offset, length, epoch, magic, attributes = struct.unpack_from(">qiiBB", data, at)
    size = 12 + length
    if offset < 0 or length < 14 or magic > 2 or whole and size > left:
        return False
    if magic == 2:
        if min(size, left) < 61:
            return False
        (last_delta,) = struct.unpack_from(">i", data, at + 23)
        (count,) = struct.unpack_from(">i", data, at + 57)
        codec = data[at + 22] & 7
        return codec <= 4 and last_delta >= 0 and 0 <= count <= last_delta + 1 and epoch >= -1
    header = 18 + 8 * magic
    if attributes > 15 or min(size, left) < header + 8:
        return False
    key_size = max(struct.unpack_from(">i", data, at + header)[0], 0)
    if header + 8 + key_size > min(size, left):
        return header + 8 + key_size <= size
    value_size = max(struct.unpack_from(">i", data, at + header + 4 + key_size)[0], 0)
    return header + 8 + key_size + value_size == size


def is_verified(data, at):
    """Is there a whole batch with a correct checksum here? Its header may be unusual."""
    if len(data) - at < 26:
        return False
    size = 12 + int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
    magic = data[at + 16]
    smallest = 61 if magic == 2 else 26
    if magic > 2 or not smallest <= size <= len(data) - at:
        return False
    return is_checksum_right(data, at)


def is_checksum_right(data, at):
    """Is the checksum of the entry at `at` right?"""
    end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    if data[at + 16] == 2:
        return crc32c(data[at + 21 : end]) == int.from_bytes(data[at + 17 : at + 21], "big")
    return zlib.crc32(data[at + 16 : end]) == int.from_bytes(data[at + 12 : at + 16], "big")
