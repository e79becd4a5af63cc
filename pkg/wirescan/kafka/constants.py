"""Named numbers of record batches. kafka/formats.py and the command line use them."""

from __future__ import annotations

from enum import IntEnum


class Codec(IntEnum):
    """A value of the column `codec` of kafka.batches."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# Number of a codec -> its name in wirescan.frames.codecs, as CODECS[magic == 0][number].
CODECS = (
    {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"},  # magic 1 and 2
    {1: "gzip", 2: "snappy", 3: "lz4-legacy"},  # magic 0
)

ISOLATIONS = ("read_uncommitted", "read_committed")  # the names of the levels 0 and 1
# The header of a batch of magic 2, in bytes.
MAGIC_AT = 16  # the same in messages of magic 0 and 1
LAST_OFFSET_STOP = 27  # after the last offset delta
BATCH_HEADER_SIZE = 61  # up to the first record
