"""Kafka batches in damaged bytes: after a fault the scan goes on at the next intact batch.

An intact batch looks like one and its checksum is right; where a length leads to it, the checksum is enough. The bytes
that were passed over are a row of their own.
"""
import struct
import zlib

from crc32c import crc32c

from reference import kafka
from reference.kafka import BAD_LENGTH, BATCH, OK, SHORT


def batches(data, check=True):
    """(rows of kafka.batches, stop fault, stop offset), as kafka.batches, but for what follows a fault."""
    rows, at = [], 0
    while at < len(data):
        found, fault, _ = first(data, at, check)
        if found is None:
            end = next_intact(data, at + 1)
            if end is None and fault < BAD_LENGTH:
                return rows, fault, at
            end = len(data) if end is None else end
            rows.append(BATCH | dict(start=at, size=end - at, fault=fault))
        else:
            end = at + found["size"]
            if found["fault"] and end < len(data) and not (plausible(data, end) or verified(data, end)):
                end = next_intact(data, at + 1) or end
            rows.append(found | dict(size=end - at, body=min(found["body"], end - at)))
        at = end
    return rows, OK, at


def first(data, at, check):
    """(row or None, stop fault, stop offset) of the entry at `at` alone; the row's start counts from 0."""
    length = int.from_bytes(data[at + 8:at + 12], "big", signed=True)
    if length >= 14 and 12 + length <= len(data) - at:
        rows, fault, stop = kafka.batches(data[at:at + 12 + length], check)
        return rows[0] | dict(start=at), fault, stop
    rows, fault, stop = kafka.batches(data[at:], check)
    assert not rows and fault >= SHORT
    return None, fault, stop


def next_intact(data, at):
    return next((at for at in range(at, len(data)) if plausible(data, at, True) and right(data, at)), None)


def plausible(data, at, whole=False):
    """Does a batch begin here, by what there is of its header? It may be cut, unless it has to be `whole`."""
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
        last_delta, = struct.unpack_from(">i", data, at + 23)
        count, = struct.unpack_from(">i", data, at + 57)
        return data[at + 22] & 7 <= 4 and 0 <= last_delta and 0 <= count <= last_delta + 1 and epoch >= -1
    header = 18 + 8 * magic
    if attributes > 15 or min(size, left) < header + 8:
        return False
    key = max(struct.unpack_from(">i", data, at + header)[0], 0)
    if header + 8 + key > min(size, left):
        return header + 8 + key <= size
    value = max(struct.unpack_from(">i", data, at + header + 4 + key)[0], 0)
    return header + 8 + key + value == size


def verified(data, at):
    """Is there a batch here, however unusual its header, whose checksum is right?"""
    if len(data) - at < 26:
        return False
    size, magic = 12 + int.from_bytes(data[at + 8:at + 12], "big", signed=True), data[at + 16]
    return magic <= 2 and (61 if magic == 2 else 26) <= size <= len(data) - at and right(data, at)


def right(data, at):
    """Is the checksum of the entry that begins here right?"""
    end = at + 12 + int.from_bytes(data[at + 8:at + 12], "big")
    if data[at + 16] == 2:
        return crc32c(data[at + 21:end]) == int.from_bytes(data[at + 17:at + 21], "big")
    return zlib.crc32(data[at + 16:end]) == int.from_bytes(data[at + 12:at + 16], "big")
