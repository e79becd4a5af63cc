"""How long the record batches of a file take to read, estimated from their first headers.

Source of the positions: Apache Kafka, "Record Batch" and "Old Message Format" of the protocol's
documentation.
"""

from __future__ import annotations

from wirescan.kafka.constants import BATCH_HEADER_SIZE, MAGIC_AT

LENGTH_AT = 8
OVERHEAD = 12  # bytes of a batch that its length does not count
# Where the attributes are, by magic.
ATTRIBUTES_AT = (17, 17, 22)
CODEC_BITS = 7
COUNT_AT = 57
# Nanoseconds of one core, with the share of Spark's JVM. A record costs as much as 200 bytes.
RECORD_WORK = 200.0
BYTE_WORK = 1.0
# By codec (none, gzip, snappy, lz4, zstd): decompressed bytes per byte, which headers do not state,
# and nanoseconds to decompress one of them. The ratios are those of text.
EXPANSION = (1.0, 3.5, 2.0, 2.0, 4.0)
DECOMPRESSION_WORK = (0.0, 1.0, 1.0, 1.2, 2.2)
RECORD_SIZE = 100  # bytes of a record where the header does not count them


def estimate_work(head: memoryview) -> float | None:
    """Return about how many nanoseconds of one core a byte of a file takes.

    head: the first bytes of the file. None if they do not begin with a batch.
    """
    work = 0.0
    size = 0
    position = 0
    while position + BATCH_HEADER_SIZE <= len(head):
        header = head[position : position + BATCH_HEADER_SIZE]
        length = OVERHEAD + int.from_bytes(header[LENGTH_AT : LENGTH_AT + 4], "big", signed=True)
        magic = header[MAGIC_AT]
        if magic >= len(ATTRIBUTES_AT) or length <= OVERHEAD:
            break
        codec = header[ATTRIBUTES_AT[magic]] & CODEC_BITS
        if codec >= len(EXPANSION):
            break
        inflated = length * EXPANSION[codec]
        records = inflated / RECORD_SIZE
        if magic == 2:
            records = int.from_bytes(header[COUNT_AT : COUNT_AT + 4], "big", signed=True)
        # A record has at least one byte. More are damage.
        records = min(max(records, 0), inflated)
        work += RECORD_WORK * records + (BYTE_WORK + DECOMPRESSION_WORK[codec]) * inflated
        size += length
        position += length
    return work / size if size else None
