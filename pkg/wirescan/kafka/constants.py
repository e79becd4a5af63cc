"""Named numbers of record batches. kafka/batch_formats.py and the command line use them."""

from __future__ import annotations

from enum import IntEnum


class Codec(IntEnum):
    """A value of the column `codec` of kafka.batches."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """A value of the column `timestamp_type` of kafka.batches: whose times its records have."""

    CREATE_TIME = 0  # of the client
    LOG_APPEND_TIME = 1  # of the broker


NO_TIMESTAMP_TYPE = -1  # messages of magic 0 have no times


class ControlType(IntEnum):
    """A value of the column `control` of kafka.records: the type of a control record."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = 127  # none of these; not a number of Kafka


NOT_CONTROL = -1  # in the column `control`: the record is not in a control batch
# Number of a codec -> its name in wirescan.frames.codecs, as CODECS[magic == 0][number].
CODECS = (
    {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"},  # magic 1 and 2
    {1: "gzip", 2: "snappy", 3: "lz4-legacy"},  # magic 0
)

ISOLATIONS = ("read_uncommitted", "read_committed")  # the names of the levels 0 and 1
# Kafka's own topics. In a broker's directory they are beside those of its users.
INTERNAL_TOPICS = (
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
)
# The header of a batch of magic 2, in bytes.
MAGIC_AT = 16  # the same in messages of magic 0 and 1
LAST_OFFSET_STOP = 27  # after the last offset delta
BATCH_HEADER_SIZE = 61  # up to the first record
