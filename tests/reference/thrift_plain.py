"""Payloads of Thrift frames with their transforms undone, one by one, and the messages in them.

    1, 8, 11 zlib (RFC 1950)    2 HMAC: a code behind the payload, not in it    3 snappy, a raw block
    5, 9, 12 zstd frames        6, 10, 13 lz4: the size, a varint, and a raw block

Other libraries undo them than the package uses, but for zlib and snappy.
"""
import hmac
import zlib

import lz4.block
import snappy
import zstandard

from reference.inflate import BAD_COMPRESSION, INFLATED, RATIO, SMALL, TOO_LARGE, unsnap_block, unzstd
from reference.thrift import (
    BAD_CODEC, DOUBLE_HEADER, HMAC, HTTP, HTTP_CHUNKED, OK, TRUNCATED, big, read_chunks, read_transforms)
from reference.thrift_payload import BAD_KIND, BAD_MESSAGE, COMPACT, HEAD, LEFTOVER, Cursor, fields, message
from reference.window import Bad

BAD_CHECKSUM = 4
ZLIB, SNAPPY, ZSTD = (1, 8, 11), 3, (5, 9, 12)
PLAIN = HEAD | dict(payload_at=0, payload_size=0)


def plain(data, row, check=True, key=None, hash="sha256", parent=0):
    """(row of thrift.plain, bytes that it points into) of a row of thrift.frames, or None where it has no payload."""
    empty = PLAIN | dict(kind=row["kind"], parent=parent)
    if row["fault"] not in (OK, BAD_CODEC):
        return empty | dict(start=row["start"], size=row["size"], fault=row["fault"]), data
    if row["payload_size"] < 0:
        return None
    start = row["start"] + row["payload_at"]
    alike = empty | dict(start=start, size=row["payload_size"])
    try:
        payload = undone(data, row, check, key, hash)
    except Bad as bad:
        return alike | dict(fault=bad.fault), data
    if payload is None:
        return alike | dict(payload_size=row["payload_size"]), data
    return empty | dict(size=len(payload), payload_size=len(payload), buffer=1), payload


def undone(data, row, check, key, hash):
    """The payload with its transforms undone, None where nothing was to do. Raises Bad."""
    start = row["start"] + row["payload_at"]
    payload = bytes(data[start:start + row["payload_size"]])
    if row["kind"] == HTTP_CHUNKED:
        return b"".join(read_chunks(data, start, row["start"])[0])
    if row["kind"] > DOUBLE_HEADER:
        return None
    if row["fault"]:
        raise Bad(row["fault"])
    magic = row["start"] + row["payload_at"] - 4 * row["header_words"] - 10
    header = Cursor(data, magic + 10, start)
    header.varint()
    transforms, mac = read_transforms(header)
    if key is not None and HMAC in transforms:
        verify(data, row, key, hash, mac)
    touched = False
    for id in reversed(transforms):
        if id in (0, HMAC):
            continue
        payload, touched = inflate(id, payload, check), True
    return payload if touched else None


def verify(data, row, key, hash, mac):
    start, end = row["start"], row["start"] + row["size"]
    magic = start + row["payload_at"] - 4 * row["header_words"] - 10
    header, signed = Cursor(data, magic + 10, end), bytearray(data[magic:end - mac])
    header.varint()
    for _ in range(header.varint()):
        if header.varint() == HMAC:
            signed[header.at - magic] = 0
            header.take(1)
    if hmac.new(key, signed, hash).digest() != data[end - mac:end]:
        raise Bad(BAD_CHECKSUM)


def inflate(id, data, check=True):
    """`data` without one transform. Raises Bad."""
    most = max(SMALL, min(INFLATED, RATIO * len(data)))
    if not data:
        raise Bad(TRUNCATED if id in ZLIB else BAD_COMPRESSION)
    try:
        if id in ZLIB:
            return unzlib(data, most, check)
        if id == SNAPPY:
            return unsnap_block(data, most)
        return unzstd(data, most) if id in ZSTD else unlz4(data, most)
    except (zlib.error, zstandard.ZstdError, snappy.UncompressError, lz4.block.LZ4BlockError):
        raise Bad(BAD_COMPRESSION) from None


def unzlib(data, most, check):
    if len(data) < 2:
        raise Bad(TRUNCATED)
    if data[0] & 15 != 8 or data[0] >> 4 > 7 or big(data, 0, 2) % 31 or data[1] & 32:
        raise Bad(BAD_COMPRESSION)
    deflated = zlib.decompressobj(-15)
    found = deflated.decompress(data[2:], most + 1)
    if len(found) > most:
        raise Bad(TOO_LARGE)
    checksum, rest = deflated.unused_data[:4], deflated.unused_data[4:]
    if not deflated.eof or len(checksum) < 4:
        raise Bad(TRUNCATED)
    if check and int.from_bytes(checksum, "big") != zlib.adler32(found):
        raise Bad(BAD_CHECKSUM)
    if check and rest:
        raise Bad(LEFTOVER)
    return found


def unlz4(data, most):
    size, at = 0, 0
    while at < len(data):
        size |= (data[at] & 0x7F) << 7 * at
        at += 1
        if data[at - 1] < 0x80 or at == 5:
            break
    if data[at - 1] > 0x7F:
        raise Bad(BAD_COMPRESSION)
    if size > most:
        raise Bad(TOO_LARGE)
    found = lz4.block.decompress(data[at:], uncompressed_size=size)
    if len(found) != size:
        raise Bad(BAD_COMPRESSION)
    return found


# ------------------------------------------------------------------------------------------- messages

def messages(data, rows, check=True):
    """[(row of thrift.messages, bytes that it points into)] of rows of thrift.frames."""
    found = []
    for parent, row in enumerate(rows):
        payload = plain(data, row, check, parent=parent)
        if payload is not None:
            one, source = payload
            found.append((message_of(row, one, source) | dict(parent=parent, buffer=one["buffer"]), source))
    return found


def message_of(row, one, source):
    fault, protocol = one["fault"], row["protocol_id"]
    if row["kind"] in (HTTP, HTTP_CHUNKED) and one["size"] and not fault:
        protocol = {0x82: COMPACT, 0x80: 0}.get(source[one["start"]], protocol)
    if not fault and protocol not in (0, COMPACT):
        fault = BAD_KIND
    if fault:
        return BAD_MESSAGE | dict(start=one["start"], size=one["size"], fault=fault)
    return message(source, one["start"], one["size"], protocol == COMPACT)


def all_fields(found, depth=64):
    """[(row of thrift.fields, bytes that it points into)] of what `messages` gave."""
    rows, sources = [], []
    for parent, (row, source) in enumerate(found):
        fields(source, row, parent, rows, depth)
        sources += [source] * (len(rows) - len(sources))
    return list(zip(rows, sources))
