"""Payloads of Thrift frames without their transforms, and the messages in the payloads.

    1, 8, 11     zlib (RFC 1950)
    2            HMAC: a code behind the payload
    3            snappy: a raw block
    5, 9, 12     zstd frames
    6, 10, 13    lz4: the size, a varint, and a raw block

The package uses other libraries for zstd and lz4.
"""

import hmac
import zlib

import lz4.block
import snappy
import zstandard

from tests.reference.inflate import (
    BAD_COMPRESSION,
    RAW_DEFLATE,
    TOO_LARGE,
    decompress_snappy_block,
    decompress_zstd,
    limit_payload,
)
from tests.reference.thrift import (
    BAD_CODEC,
    DOUBLE_HEADER,
    HMAC,
    HTTP,
    HTTP_CHUNKED,
    OK,
    TRUNCATED,
    read_big_endian,
    read_chunks,
    read_transforms,
)
from tests.reference.thrift_payload import (
    BAD_KIND,
    BAD_MESSAGE,
    BINARY,
    COMPACT,
    DEEPEST,
    HEAD,
    LEFTOVER,
    Cursor,
    read_fields,
    read_message,
)
from tests.reference.window import BadBytesError

BAD_CHECKSUM = 4
ZLIB, SNAPPY, ZSTD = (1, 8, 11), 3, (5, 9, 12)
PLAIN = HEAD | dict(payload_at=0, payload_size=0)


def read_plain(data, row, check=True, key=None, hash="sha256", parent=0):
    """Return (row of thrift.plain, bytes that it points into) for a row of thrift.frames.

    Return None if the frame has no payload.
    """
    blank = PLAIN | dict(kind=row["kind"], parent=parent)
    if row["fault"] not in (OK, BAD_CODEC):
        return blank | dict(start=row["start"], size=row["size"], fault=row["fault"]), data
    if row["payload_size"] < 0:
        return None
    start = row["start"] + row["payload_at"]
    unchanged = blank | dict(start=start, size=row["payload_size"])
    try:
        payload = undo_transforms(data, row, check, key, hash)
    except BadBytesError as bad:
        return unchanged | dict(fault=bad.fault), data
    if payload is None:
        return unchanged | dict(payload_size=row["payload_size"]), data
    return blank | dict(size=len(payload), payload_size=len(payload), buffer=1), payload


def undo_transforms(data, row, check, key, hash):
    """Return the payload without its transforms, or None if it has none. Raises BadBytesError."""
    start = row["start"] + row["payload_at"]
    payload = bytes(data[start : start + row["payload_size"]])
    if row["kind"] == HTTP_CHUNKED:
        return b"".join(read_chunks(data, start, row["start"])[0])
    if row["kind"] > DOUBLE_HEADER:
        return None
    if row["fault"]:
        raise BadBytesError(row["fault"])
    magic = row["start"] + row["payload_at"] - 4 * row["header_words"] - 10
    header = Cursor(data, magic + 10, start)
    header.varint()
    transforms, mac = read_transforms(header)
    if key is not None and HMAC in transforms:
        verify(data, row, key, hash, mac)
    compressions = [transform for transform in transforms if transform not in (0, HMAC)]
    for transform in reversed(compressions):
        payload = decompress(transform, payload, check)
    return payload if compressions else None


def verify(data, row, key, hash, mac):
    """Check the HMAC of a frame. `mac` is its size. Raises BadBytesError."""
    start = row["start"]
    end = start + row["size"]
    magic = start + row["payload_at"] - 4 * row["header_words"] - 10
    header = Cursor(data, magic + 10, end)
    signed = bytearray(data[magic : end - mac])
    header.varint()
    for _ in range(header.varint()):
        if header.varint() == HMAC:
            signed[header.at - magic] = 0  # the HMAC is computed with size 0
            header.take(1)
    if hmac.new(key, signed, hash).digest() != data[end - mac : end]:
        raise BadBytesError(BAD_CHECKSUM)


def decompress(transform, data, check=True):
    """Undo one transform. Raises BadBytesError."""
    most = limit_payload(len(data))
    if not data:
        raise BadBytesError(TRUNCATED if transform in ZLIB else BAD_COMPRESSION)
    try:
        if transform in ZLIB:
            return decompress_zlib(data, most, check)
        if transform == SNAPPY:
            return decompress_snappy_block(data, most)
        if transform in ZSTD:
            return decompress_zstd(data, most)
        return decompress_lz4(data, most)
    except (zlib.error, zstandard.ZstdError, snappy.UncompressError, lz4.block.LZ4BlockError):
        raise BadBytesError(BAD_COMPRESSION) from None


def decompress_zlib(data, most, check):
    if len(data) < 2:
        raise BadBytesError(TRUNCATED)
    if data[0] & 15 != 8 or data[0] >> 4 > 7 or read_big_endian(data, 0, 2) % 31 or data[1] & 32:
        raise BadBytesError(BAD_COMPRESSION)
    decompressor = zlib.decompressobj(RAW_DEFLATE)
    plain = decompressor.decompress(data[2:], most + 1)
    if len(plain) > most:
        raise BadBytesError(TOO_LARGE)
    checksum = decompressor.unused_data[:4]
    rest = decompressor.unused_data[4:]
    if not decompressor.eof or len(checksum) < 4:
        raise BadBytesError(TRUNCATED)
    if check and int.from_bytes(checksum, "big") != zlib.adler32(plain):
        raise BadBytesError(BAD_CHECKSUM)
    if check and rest:
        raise BadBytesError(LEFTOVER)
    return plain


def decompress_lz4(data, most):
    size, at = 0, 0
    while at < len(data):
        size |= (data[at] & 0x7F) << 7 * at
        at += 1
        if data[at - 1] < 0x80 or at == 5:
            break
    if data[at - 1] > 0x7F:
        raise BadBytesError(BAD_COMPRESSION)
    if size > most:
        raise BadBytesError(TOO_LARGE)
    plain = lz4.block.decompress(data[at:], uncompressed_size=size)
    if len(plain) != size:
        raise BadBytesError(BAD_COMPRESSION)
    return plain


# ---- messages


def read_messages(data, rows, check=True):
    """Return pairs (row of thrift.messages, bytes it points into) for rows of thrift.frames."""
    pairs = []
    for parent, row in enumerate(rows):
        payload = read_plain(data, row, check, parent=parent)
        if payload is None:
            continue
        payload_row, source = payload
        if not payload_row["size"] and not payload_row["fault"]:
            continue  # an empty payload holds no message
        message_row = read_message_row(row, payload_row, source)
        message_row |= dict(parent=parent, buffer=payload_row["buffer"])
        pairs.append((message_row, source))
    return pairs


def read_message_row(row, payload_row, source):
    """Return the row of the message in a payload.

    row: of thrift.frames. payload_row: of thrift.plain. source: the bytes of the payload.
    """
    start = payload_row["start"]
    size = payload_row["size"]
    fault = payload_row["fault"]
    protocol = row["protocol_id"]
    if row["kind"] in (HTTP, HTTP_CHUNKED) and size and not fault:
        protocol = {0x82: COMPACT, 0x80: BINARY}.get(source[start], protocol)
    if not fault and protocol not in (BINARY, COMPACT):
        fault = BAD_KIND
    if fault:
        return BAD_MESSAGE | dict(start=start, size=size, fault=fault)
    return read_message(source, start, size, protocol == COMPACT)


def read_all_fields(message_pairs, depth=DEEPEST):
    """Return pairs (row of thrift.fields, its bytes) for the result of `read_messages`."""
    rows, sources = [], []
    for parent, (row, source) in enumerate(message_pairs):
        read_fields(source, row, parent, rows, depth)
        sources += [source] * (len(rows) - len(sources))
    return list(zip(rows, sources))
