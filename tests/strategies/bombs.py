"""Small compressed streams that decompress to many bytes. They are fast to make."""

import zlib

BLOCK = 1 << 20


def compress_zeros(begin: bytes, zeros: int) -> bytes:
    """Return the zlib stream of `begin` and `zeros` zero bytes.

    A block of zeros is compressed once. It ends with a full flush, so it can be repeated.
    """
    compressor = zlib.compressobj(9)
    parts = [compressor.compress(begin), compressor.flush(zlib.Z_FULL_FLUSH)]
    block = compressor.compress(bytes(BLOCK)) + compressor.flush(zlib.Z_FULL_FLUSH)
    parts.append(block * (zeros // BLOCK))
    rest = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    parts += [rest.compress(bytes(zeros % BLOCK)), rest.flush()]
    checksum = zlib.adler32(begin)
    for _ in range(zeros // BLOCK):
        checksum = zlib.adler32(bytes(BLOCK), checksum)
    checksum = zlib.adler32(bytes(zeros % BLOCK), checksum)
    return b"".join(parts) + checksum.to_bytes(4, "big")
