"""Decompression for the reference decoders, with other libraries than the package uses.

A gzip payload is one or more members. An lz4 or zstd payload is one or more frames. A snappy
payload is one block or one stream. No bytes may follow. An empty payload is bad.
"""

import struct
import zlib

import lz4.frame
import snappy
import zstandard

from tests.reference.window import BadBytesError

BAD_COMPRESSION, TOO_LARGE = 8, 9
GZIP, SNAPPY, LZ4 = 1, 2, 3  # codecs; 4 is zstd
LARGEST_PAYLOAD = 64 << 20  # decompressed bytes
LARGEST_RATIO = 2000  # decompressed bytes per compressed byte
SMALL_PAYLOAD = 1 << 20  # decompressed bytes that are allowed at any ratio
XERIAL = b"\x82SNAPPY\0"
GZIP_FORMAT, RAW_DEFLATE = 31, -15  # values of zlib's `wbits`


def limit_payload(size):
    """Return how many bytes a compressed payload of `size` bytes may decompress to."""
    return max(SMALL_PAYLOAD, min(LARGEST_PAYLOAD, LARGEST_RATIO * size))


def decompress(codec, data, magic=2):
    """Decompress `data`. Codec 1 is gzip, 2 snappy, 3 lz4, 4 zstd. Raises BadBytesError."""
    if not data:
        raise BadBytesError(BAD_COMPRESSION)
    most = limit_payload(len(data))
    try:
        if codec == GZIP:
            plain = decompress_members(data, most, Gzip)
        elif codec == SNAPPY:
            plain = decompress_snappy(data, most)
        elif codec == LZ4:
            frames = correct_lz4_header(data) if magic == 0 else data
            plain = decompress_members(frames, most, lz4.frame.LZ4FrameDecompressor)
        else:
            plain = decompress_zstd(data, most)
    except (
        zlib.error,
        RuntimeError,
        EOFError,
        ValueError,
        zstandard.ZstdError,
        snappy.UncompressError,
    ):
        raise BadBytesError(BAD_COMPRESSION) from None
    if len(plain) > most:
        raise BadBytesError(TOO_LARGE)
    return plain


class Gzip:
    """A decompressor of one gzip member, with the method and attributes of lz4's decompressor.

    zlib rejects a distance that points before the first byte. The package's codec reads zeros
    there, and the member's CRC-32 detects the damage. This class accepts the same members.
    """

    def decompress(self, data, max_length):
        decompressor = zlib.decompressobj(GZIP_FORMAT)
        try:
            plain = decompressor.decompress(data, max_length)
            self.eof = decompressor.eof
            self.unused_data = decompressor.unused_data
        except zlib.error as error:
            if "too far back" not in str(error):
                raise
            raw = zlib.decompressobj(RAW_DEFLATE, zdict=bytes(1 << 15))
            plain = raw.decompress(data[measure_gzip_header(data) :], max_length)
            trailer = raw.unused_data[:8]
            self.eof = raw.eof
            self.unused_data = raw.unused_data[8:]
            if raw.eof and trailer != struct.pack("<II", zlib.crc32(plain), len(plain)):
                raise
        return plain


def measure_gzip_header(data):
    """Return the size of a gzip member's header in bytes (RFC 1952, 2.3)."""
    flags = data[3]
    has_extra_field = flags & 4
    zero_terminated = (flags >> 3 & 1) + (flags >> 4 & 1)  # a name and a comment
    at = 10
    if has_extra_field:
        at += 2 + int.from_bytes(data[at : at + 2], "little")
    for _ in range(zero_terminated):
        at = data.index(0, at) + 1
    return at + (flags & 2)


def decompress_members(data, most, make_decompressor):
    plain = b""
    while data:
        decompressor = make_decompressor()
        plain += decompressor.decompress(data, max_length=most + 1 - len(plain))
        if len(plain) > most:
            raise BadBytesError(TOO_LARGE)
        if not decompressor.eof:
            raise BadBytesError(BAD_COMPRESSION)
        data = decompressor.unused_data
    return plain


def correct_lz4_header(data):
    """Replace the header checksum of an lz4 frame in magic 0 with the right one.

    Kafka 0.8 and 0.9 wrote a wrong header checksum (KAFKA-3160), so any checksum is accepted.
    """
    has_content_size = len(data) > 4 and data[4] & 0x08
    at = 14 if has_content_size else 6
    for checksum in range(256):
        corrected = data[:at] + bytes([checksum]) + data[at + 1 :]
        try:
            lz4.frame.get_frame_info(corrected)
        except RuntimeError:
            continue
        return corrected
    raise BadBytesError(BAD_COMPRESSION)


def decompress_snappy(data, most):
    """Decompress one raw snappy block, or a stream in the format of xerial.

    A stream has a header of 16 bytes, then chunks. Only the first 8 bytes of the header are
    checked. In concatenated streams the header appears again between chunks.
    """
    if not data.startswith(XERIAL):
        return decompress_snappy_block(data, most)
    plain, at = b"", 0
    while at < len(data):
        if data[at : at + 8] == XERIAL:
            at += 16
        else:
            size = int.from_bytes(data[at : at + 4], "big")
            at += 4
            if size > len(data) - at:
                raise BadBytesError(BAD_COMPRESSION)
            plain += decompress_snappy_block(data[at : at + size], most - len(plain))
            at += size
    if at > len(data):
        raise BadBytesError(BAD_COMPRESSION)
    return plain


def decompress_snappy_block(block, most):
    """Decompress one block. It begins with its decompressed size, a varint of 32 bits."""
    claimed_size = 0
    for at, byte in enumerate(block[:10]):
        claimed_size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            break
    else:
        raise BadBytesError(BAD_COMPRESSION)
    if claimed_size >= 1 << 32:
        raise BadBytesError(BAD_COMPRESSION)
    if claimed_size > most:
        raise BadBytesError(TOO_LARGE)
    return snappy.uncompress(block)


def decompress_zstd(data, most):
    plain = b""
    while data:
        # The first pass measures the frame. The second checks that the frame is whole.
        reader = zstandard.ZstdDecompressor().stream_reader(data)
        if len(reader.read(most + 1 - len(plain))) > most - len(plain):
            raise BadBytesError(TOO_LARGE)
        decompressor = zstandard.ZstdDecompressor().decompressobj()
        plain += decompressor.decompress(data)
        if not decompressor.eof:
            raise BadBytesError(BAD_COMPRESSION)
        data = decompressor.unused_data
    return plain
