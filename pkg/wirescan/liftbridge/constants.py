"""Named numbers of Liftbridge's envelope and messages.

Sources: Liftbridge documentation, "Envelope Protocol"; liftbridge-api, api.proto (AckPolicy and
Ack.Error); in the server, server/protocol/envelope.go (the types of the envelope).
"""

from enum import IntEnum


class Kind(IntEnum):
    """What a payload holds: 0 to 14 are the type byte of the envelope.

    UNKNOWN, LIFT and PLAIN are not types of the wire.
    """

    PUBLISH = 0
    ACK = 1
    REPLICATION_REQUEST = 2
    REPLICATION_RESPONSE = 3
    RAFT_JOIN_REQUEST = 4
    RAFT_JOIN_RESPONSE = 5
    LEADER_EPOCH_OFFSET_REQUEST = 6
    LEADER_EPOCH_OFFSET_RESPONSE = 7
    PROPAGATED_REQUEST = 8
    PROPAGATED_RESPONSE = 9
    SERVER_INFO_REQUEST = 10
    SERVER_INFO_RESPONSE = 11
    PARTITION_STATUS_REQUEST = 12
    PARTITION_STATUS_RESPONSE = 13
    PARTITION_NOTIFICATION = 14
    UNKNOWN = 253  # the type byte is 253, 254 or 255: the envelope is bad
    LIFT = 254  # "LIFT" and a message: the format of clients before the envelope
    PLAIN = 255  # no envelope: the whole payload is the value


class AckPolicy(IntEnum):
    """When a server acknowledges a message."""

    LEADER = 0  # when the partition's leader has stored it
    ALL = 1  # when all replicas in sync have stored it
    NONE = 2  # never


class AckError(IntEnum):
    """Why a message was not stored."""

    OK = 0
    UNKNOWN = 1
    INCORRECT_OFFSET = 2
    TOO_LARGE = 3
    ENCRYPTION = 4
