"""Decompression for the reference decoders, through other libraries than the package uses.

A payload is one or more members (gzip), frames (lz4, zstd) or one block or stream (snappy), and nothing after
them. An empty payload is none of these.
"""
import struct
import zlib

import lz4.frame
import snappy
import zstandard

from reference.window import Bad

BAD_COMPRESSION, TOO_LARGE = 8, 9
INFLATED, RATIO, SMALL = 64 << 20, 2000, 1 << 20
XERIAL = b"\x82SNAPPY\0"


def inflate(codec, data, magic=2):
    """`data` decompressed; codec 1 gzip, 2 snappy, 3 lz4, 4 zstd. Raises Bad."""
    if not data:
        raise Bad(BAD_COMPRESSION)
    most = max(SMALL, min(INFLATED, RATIO * len(data)))
    try:
        if codec == 1:
            plain = members(data, most, lambda: Gzip())
        elif codec == 2:
            plain = unsnap(data, most)
        elif codec == 3:
            plain = members(old_lz4(data) if magic == 0 else data, most, lz4.frame.LZ4FrameDecompressor)
        else:
            plain = unzstd(data, most)
    except (zlib.error, RuntimeError, EOFError, ValueError, zstandard.ZstdError, snappy.UncompressError):
        raise Bad(BAD_COMPRESSION) from None
    if len(plain) > most:
        raise Bad(TOO_LARGE)
    return plain


class Gzip:
    """zlib's decompressor with the names of lz4's.

    zlib refuses a distance that reaches back before the first byte; the package's codec takes what would lie there for
    zeros, and leaves it to the member's CRC-32 to tell. That is as good, and so it is here.
    """
    def decompress(self, data, max_length):
        one = zlib.decompressobj(31)
        try:
            plain = one.decompress(data, max_length)
            self.eof, self.unused_data = one.eof, one.unused_data
        except zlib.error as error:
            if "too far back" not in str(error):
                raise
            raw = zlib.decompressobj(-15, zdict=bytes(1 << 15))
            plain = raw.decompress(data[gzip_header(data):], max_length)
            self.eof, self.unused_data = raw.eof, raw.unused_data[8:]
            if raw.eof and raw.unused_data[:8] != struct.pack("<II", zlib.crc32(plain), len(plain)):
                raise
        return plain


def gzip_header(data):
    """How many bytes the header of a gzip member has (RFC 1952, 2.3)."""
    flags, at = data[3], 10
    if flags & 4:
        at += 2 + int.from_bytes(data[at:at + 2], "little")
    for _ in range((flags >> 3 & 1) + (flags >> 4 & 1)):        # a name and a comment, each up to a zero
        at = data.index(0, at) + 1
    return at + (flags & 2)


def members(data, most, decompressor):
    plain = b""
    while data:
        one = decompressor()
        plain += one.decompress(data, max_length=most + 1 - len(plain))
        if len(plain) > most:
            raise Bad(TOO_LARGE)
        if not one.eof:
            raise Bad(BAD_COMPRESSION)
        data = one.unused_data
    return plain


def old_lz4(data):
    """Magic 0: Kafka 0.8 and 0.9 wrote a wrong header checksum (KAFKA-3160), so any is taken."""
    at = 14 if len(data) > 4 and data[4] & 0x08 else 6      # after an optional content size
    for checksum in range(256):
        mended = data[:at] + bytes([checksum]) + data[at + 1:]
        try:
            lz4.frame.get_frame_info(mended)
        except RuntimeError:
            continue
        return mended
    raise Bad(BAD_COMPRESSION)


def unsnap(data, most):
    """One raw block, or xerial's stream: a header of 16 bytes, of which only the first 8 are looked at, then
    chunks; where streams were put one after another, the header stands again between chunks."""
    if not data.startswith(XERIAL):
        return unsnap_block(data, most)
    plain, at = b"", 0
    while at < len(data):
        if data[at:at + 8] == XERIAL:
            at += 16
        else:
            size = int.from_bytes(data[at:at + 4], "big")
            at += 4
            if size > len(data) - at:
                raise Bad(BAD_COMPRESSION)
            plain += unsnap_block(data[at:at + size], most - len(plain))
            at += size
    if at > len(data):
        raise Bad(BAD_COMPRESSION)
    return plain


def unsnap_block(block, most):
    """A block begins with its own inflated size, a varint that has to fit 32 bits."""
    claimed = 0
    for at, byte in enumerate(block[:10]):
        claimed |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            break
    else:
        raise Bad(BAD_COMPRESSION)
    if claimed >= 1 << 32:
        raise Bad(BAD_COMPRESSION)
    if claimed > most:
        raise Bad(TOO_LARGE)
    return snappy.uncompress(block)


def unzstd(data, most):
    plain = b""
    while data:
        # first how much there is, then once more to see that the frame is whole
        reader = zstandard.ZstdDecompressor().stream_reader(data)
        if len(reader.read(most + 1 - len(plain))) > most - len(plain):
            raise Bad(TOO_LARGE)
        one = zstandard.ZstdDecompressor().decompressobj()
        plain += one.decompress(data)
        if not one.eof:
            raise Bad(BAD_COMPRESSION)
        data = one.unused_data
    return plain
