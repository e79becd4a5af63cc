"""The numbers that Liftbridge's envelope and its messages have names for.

The format's sources: Liftbridge documentation, "Envelope Protocol"; liftbridge-api, api.proto (AckPolicy and
Ack.Error); and of the server server/protocol/envelope.go (the kinds of the envelope).
"""
from enum import IntEnum

__all__ = ["AckError", "AckPolicy", "Kind"]


class Kind(IntEnum):
    """What a payload holds: the envelope's type byte, 0 to 14; LIFT and PLAIN are no types of the wire."""

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
    LIFT = 254                  # "LIFT" and a message, as clients before the envelope wrote it
    PLAIN = 255                 # no envelope: the whole payload is the value


class AckPolicy(IntEnum):
    """When a message is acknowledged."""

    LEADER = 0                  # stored by the partition's leader
    ALL = 1                     # stored by all replicas in sync
    NONE = 2                    # never


class AckError(IntEnum):
    """Why a message was not stored."""

    OK = 0
    UNKNOWN = 1
    INCORRECT_OFFSET = 2
    TOO_LARGE = 3
    ENCRYPTION = 4
