"""The error codes of Kafka's protocol, and the exception for one that a broker answered.

Source: "Error codes" of the Kafka protocol guide (0.8 has -1 .. 10); names, numbers and what may be
retried are those of Apache Kafka 4.4. A number once given keeps its meaning in all versions.
"""
from __future__ import annotations

from enum import IntEnum
from typing import Any


class ErrorCode(IntEnum):
    """An error code, in Kafka's spelling; -1 is any error that has no code of its own.

    meaning: one line. retriable: the same request may succeed later, perhaps at another broker.
    """
    meaning: str
    retriable: bool

    def __new__(cls, code: int, retriable: bool, meaning: str) -> ErrorCode:
        self = int.__new__(cls, code)
        self._value_, self.retriable, self.meaning = code, retriable, meaning
        return self

    # code, retriable, meaning
    UNKNOWN_SERVER_ERROR = -1, False, "Something went wrong in the broker that it has no other code for"
    NONE = 0, False, "No error"
    OFFSET_OUT_OF_RANGE = 1, False, "The offset is below the log's start or beyond its end"
    CORRUPT_MESSAGE = 2, True, "The record data is damaged, too large, or lacks a key that compaction needs"
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "The broker has no such topic or partition"
    INVALID_FETCH_SIZE = 4, False, "The size asked for in a fetch is impossible"
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader for the moment"
    NOT_LEADER_OR_FOLLOWER = 6, True, "The broker does not lead this partition, or has no replica of it"
    REQUEST_TIMED_OUT = 7, True, "The broker could not finish the request in the time it had"
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not there; brokers say so to each other only"
    REPLICA_NOT_AVAILABLE = 9, True, "The broker does not have the replica at the moment"
    MESSAGE_TOO_LARGE = 10, False, "A message is larger than the broker takes"
    STALE_CONTROLLER_EPOCH = 11, False, "The controller was replaced by a newer one"
    OFFSET_METADATA_TOO_LARGE = 12, False, "The text committed beside an offset is too long"
    NETWORK_EXCEPTION = 13, True, "The connection ended before the answer came"
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still reading its state"
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator cannot be reached, or is not made yet"
    NOT_COORDINATOR = 16, True, "Another broker coordinates this group or transaction"
    INVALID_TOPIC_EXCEPTION = 17, False, "A topic may not have this name, or may not be written to"
    RECORD_LIST_TOO_LARGE = 18, False, "The record data is larger than a segment of the log"
    NOT_ENOUGH_REPLICAS = 19, True, "Too few replicas are in sync to accept the write"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "The write is in the log, but too few replicas in sync have it"
    INVALID_REQUIRED_ACKS = 21, False, "The number of acknowledgements asked for is impossible"
    ILLEGAL_GENERATION = 22, False, "The group has moved on to another generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member speaks none of the group's protocols"
    INVALID_GROUP_ID = 24, False, "A group cannot have this id"
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member of the group"
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside the broker's bounds"
    REBALANCE_IN_PROGRESS = 27, False, "The group is being divided anew; join again"
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offsets to commit take too much room"
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Not allowed on this topic"
    GROUP_AUTHORIZATION_FAILED = 30, False, "Not allowed on this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Not allowed on this cluster"
    INVALID_TIMESTAMP = 32, False, "A timestamp is too far from the broker's time"
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of the SASL exchange"
    UNSUPPORTED_VERSION = 35, False, "The broker does not speak this version of the API"
    TOPIC_ALREADY_EXISTS = 36, False, "There is a topic of this name"
    INVALID_PARTITIONS = 37, False, "A topic cannot have this number of partitions"
    INVALID_REPLICATION_FACTOR = 38, False, "A topic cannot have this number of replicas"
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replicas are not divided among brokers as they must be"
    INVALID_CONFIG = 40, False, "A setting has an impossible value"
    NOT_CONTROLLER = 41, True, "Another broker is the controller"
    INVALID_REQUEST = 42, False, "The request makes no sense to the broker"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The log's message format is too old for the request"
    POLICY_VIOLATION = 44, False, "A policy of the cluster forbids the request"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "A batch of the producer is missing before this one"
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The broker has this batch of the producer already"
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch was replaced by a newer one"
    INVALID_TXN_STATE = 48, False, "The transaction's state does not allow the step"
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id does not belong to the transactional id"
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is longer than the broker allows"
    CONCURRENT_TRANSACTIONS = 51, True, "Another step of the same transaction is under way"
    TRANSACTION_COORDINATOR_FENCED = 52, False, "Another coordinator has taken over the transaction"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Not allowed to use this transactional id"
    SECURITY_DISABLED = 54, False, "The broker has security switched off"
    OPERATION_NOT_ATTEMPTED = 55, False, "The broker left this part of the request undone, since another part failed"
    KAFKA_STORAGE_ERROR = 56, True, "The broker's disk failed"
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, False, "The credentials were refused"
    UNKNOWN_PRODUCER_ID = 59, False, "The broker has no memory of this producer, whose records may be deleted"
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being moved to other brokers"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are switched off"
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "The broker has no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The delegation token belongs to somebody else"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "Delegation tokens cannot be had over a connection of this kind"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Not allowed on this delegation token"
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has run out"
    INVALID_PRINCIPAL_TYPE = 67, False, "The broker does not know principals of this type"
    NON_EMPTY_GROUP = 68, False, "The group still has members"
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group"
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The broker has forgotten the fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch came out of turn in its session"
    LISTENER_NOT_FOUND = 72, True, "The leader does not listen where the request came in"
    TOPIC_DELETION_DISABLED = 73, False, "Topics may not be deleted in this cluster"
    FENCED_LEADER_EPOCH = 74, True, "The client's leader epoch is behind that of the broker"
    UNKNOWN_LEADER_EPOCH = 75, True, "The client's leader epoch is ahead of that of the broker"
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The client's version cannot carry this partition's compression"
    STALE_BROKER_EPOCH = 77, False, "The broker was registered anew since"
    OFFSET_NOT_AVAILABLE = 78, True, "A new leader does not know yet up to where its log is committed"
    MEMBER_ID_REQUIRED = 79, False, "A new member has to join again with the id that it is given here"
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not in sync or not running"
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has all the members that it may have"
    FENCED_INSTANCE_ID = 82, False, "Another member uses this static member's instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "None of the replicas that may lead is running"
    ELECTION_NOT_NEEDED = 84, True, "The partition has the leader that it should have"
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition is not being moved"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group still reads the topic"
    INVALID_RECORD = 87, False, "The broker refuses a record for what is in it"
    UNSTABLE_OFFSET_COMMIT = 88, True, "Offsets of an open transaction stand in the way"
    THROTTLING_QUOTA_EXCEEDED = 89, True, "A quota is used up for now"
    PRODUCER_FENCED = 90, False, "A newer producer has taken over the transactional id"
    RESOURCE_NOT_FOUND = 91, False, "What the request refers to does not exist"
    DUPLICATE_RESOURCE = 92, False, "The request names the same thing twice"
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential is not good enough to be accepted"
    INCONSISTENT_VOTER_SET = 94, False, "The sender or the receiver is not among the voters"
    INVALID_UPDATE_VERSION = 95, False, "A feature cannot be set to this version"
    FEATURE_UPDATE_FAILED = 96, False, "A feature could not be set"
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The principal that a forwarded request names cannot be read"
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot"
    POSITION_OUT_OF_RANGE = 99, False, "The position lies outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, True, "The broker has no topic of this id"
    DUPLICATE_BROKER_REGISTRATION = 101, False, "Another broker runs under this id"
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker is registered under this id"
    INCONSISTENT_TOPIC_ID = 103, True, "The log belongs to another topic id"
    INCONSISTENT_CLUSTER_ID = 104, False, "The request is meant for another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "There is no such transactional id"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topics with ids and without"
    INELIGIBLE_REPLICA = 107, False, "A replica may not be counted as in sync"
    NEW_LEADER_ELECTED = 108, False, "The change was made, and the partition has a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset is in tiered storage by now"
    FENCED_MEMBER_EPOCH = 110, False, "The member's epoch was fenced off; it has to join again"
    UNRELEASED_INSTANCE_ID = 111, False, "A member that has not left yet holds the instance id"
    UNSUPPORTED_ASSIGNOR = 112, False, "The group has no such assignor, or not in this version"
    STALE_MEMBER_EPOCH = 113, False, "The member's epoch is old; its next heartbeat brings the new one"
    MISMATCHED_ENDPOINT_TYPE = 114, False, "This endpoint is for requests of another kind"
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "Endpoints of this kind are not supported"
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no controller of this id"
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription is unknown or old"
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry is larger than the broker takes"
    INVALID_REGISTRATION = 119, False, "The controller refuses to register the broker"
    TRANSACTION_ABORTABLE = 120, False, "The transaction failed and has to be aborted; then the producer may go on"
    INVALID_RECORD_STATE = 121, False, "The record cannot be acknowledged in the state it is in"
    SHARE_SESSION_NOT_FOUND = 122, True, "The broker has forgotten the share session"
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The request came out of turn in its share session"
    FENCED_STATE_EPOCH = 124, False, "The state's epoch is not the one that the coordinator has"
    INVALID_VOTER_KEY = 125, False, "The voter's key is not that of the receiving replica"
    DUPLICATE_VOTER = 126, False, "The voter is in the set already"
    VOTER_NOT_FOUND = 127, False, "The voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression cannot be read"
    REBOOTSTRAP_REQUIRED = 129, False, "The client's picture of the cluster is old; it has to bootstrap again"
    STREAMS_INVALID_TOPOLOGY = 130, False, "The topology cannot be used"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The topology's epoch is impossible"
    STREAMS_TOPOLOGY_FENCED = 132, False, "The topology was replaced by a newer one"
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The broker holds all the share sessions that it may"
    GROUP_DELETION_FAILED = 134, False, "The group could not be deleted"
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135, False, "The description of the topology could not be stored"
    CONTROLLER_ID_NOT_REGISTERED = 136, False, "No controller is registered under this id"


class BrokerError(RuntimeError):
    """An error code that a broker answered.

    code: an `ErrorCode`, or the plain number where it is of none known here. retriable: as the code says; False for an
    unknown one. where: what it was about, such as "orders-0 at 127.0.0.1:9092", or "". message: the broker's own
    words, or None.
    """
    def __init__(self, code: int, where: str = "", message: str | None = None):
        super().__init__(code, where, message)
        known: Any = ErrorCode._value2member_map_.get(int(code))
        self.code: int = int(code) if known is None else known
        self.retriable: bool = known is not None and known.retriable
        self.where, self.message = where, message

    def __str__(self) -> str:
        known = isinstance(self.code, ErrorCode)
        text = f"{self.code.name} ({self.code:d}): {self.code.meaning}" if known else f"unknown error code {self.code}"
        text += f", for {self.where}" if self.where else ""
        return f"{text}; the broker says {self.message!r}" if self.message else text    # hostile: repr escapes it
