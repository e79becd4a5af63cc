"""The error codes of Kafka's protocol, and the exception for an error code in a response.

The clients raise `BrokerError`. Source: "Error codes" of the Kafka protocol guide (version 0.8 has
-1 .. 10). Names, numbers and `retriable` are those of Apache Kafka 4.4. A number has the same
meaning in all versions.
"""

from __future__ import annotations

from enum import IntEnum

from wirescan.frames.escape import make_visible


class ErrorCode(IntEnum):
    """An error code of Kafka. -1 is an error that has no code of its own.

    meaning: one line of text. retriable: whether the same request may succeed later, perhaps at
    another broker.
    """

    meaning: str
    retriable: bool

    # The enum passes the values of a member by position.
    def __new__(cls, code: int, retriable: bool, meaning: str) -> ErrorCode:  # noqa: FBT001
        """Make a member from its values (code, retriable, meaning)."""
        self = int.__new__(cls, code)
        self._value_ = code
        self.retriable = retriable
        self.meaning = meaning
        return self

    # code, retriable, meaning
    UNKNOWN_SERVER_ERROR = -1, False, "The broker failed with an error that has no code of its own"
    NONE = 0, False, "No error"
    OFFSET_OUT_OF_RANGE = 1, False, "The offset is below the log's start or beyond its end"
    CORRUPT_MESSAGE = 2, True, "The records are damaged, too large, or lack a key for compaction"
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "The broker has no such topic or partition"
    INVALID_FETCH_SIZE = 4, False, "The requested fetch size is not valid"
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader for the moment"
    NOT_LEADER_OR_FOLLOWER = 6, True, "The broker is not the partition's leader or has no replica"
    REQUEST_TIMED_OUT = 7, True, "The broker did not finish the request in time"
    BROKER_NOT_AVAILABLE = (
        8,
        False,
        "The broker is not available; only brokers send this to each other",
    )
    REPLICA_NOT_AVAILABLE = 9, True, "The broker does not have the replica at the moment"
    MESSAGE_TOO_LARGE = 10, False, "A message is larger than the broker accepts"
    STALE_CONTROLLER_EPOCH = 11, False, "The controller was replaced by a newer one"
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata of a committed offset is too long"
    NETWORK_EXCEPTION = 13, True, "The connection ended before the response arrived"
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still reading its state"
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator cannot be reached, or does not exist yet"
    NOT_COORDINATOR = 16, True, "Another broker coordinates this group or transaction"
    INVALID_TOPIC_EXCEPTION = (
        17,
        False,
        "The topic's name is not valid, or clients must not write to it",
    )
    RECORD_LIST_TOO_LARGE = 18, False, "The record data is larger than a segment of the log"
    NOT_ENOUGH_REPLICAS = 19, True, "Too few replicas are in sync to accept the write"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        True,
        "The write is in the log, but too few replicas in sync have it",
    )
    INVALID_REQUIRED_ACKS = 21, False, "The requested number of acknowledgements is not valid"
    ILLEGAL_GENERATION = 22, False, "The group has a newer generation"
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member speaks none of the group's protocols"
    INVALID_GROUP_ID = 24, False, "A group cannot have this id"
    UNKNOWN_MEMBER_ID = 25, False, "The coordinator does not know this member of the group"
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside the broker's bounds"
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; join it again"
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offsets to commit are too large"
    TOPIC_AUTHORIZATION_FAILED = 29, False, "The client has no permission for this topic"
    GROUP_AUTHORIZATION_FAILED = 30, False, "The client has no permission for this group"
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "The client has no permission for this cluster"
    INVALID_TIMESTAMP = 32, False, "A timestamp is too far from the broker's time"
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer this SASL mechanism"
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of the SASL exchange"
    UNSUPPORTED_VERSION = 35, False, "The broker does not speak this version of the API"
    TOPIC_ALREADY_EXISTS = 36, False, "A topic with this name exists already"
    INVALID_PARTITIONS = 37, False, "A topic cannot have this number of partitions"
    INVALID_REPLICATION_FACTOR = 38, False, "A topic cannot have this number of replicas"
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The assignment of replicas to brokers is not valid"
    INVALID_CONFIG = 40, False, "A setting has a value that is not valid"
    NOT_CONTROLLER = 41, True, "Another broker is the controller"
    INVALID_REQUEST = 42, False, "The request is not valid"
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The message format is too old for the request"
    POLICY_VIOLATION = 44, False, "A policy of the cluster forbids the request"
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "A batch of the producer is missing before this one"
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The broker has this batch of the producer already"
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch was replaced by a newer one"
    INVALID_TXN_STATE = 48, False, "The transaction's state does not allow the operation"
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        False,
        "The producer id does not belong to the transactional id",
    )
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        False,
        "The transaction timeout is longer than the broker allows",
    )
    CONCURRENT_TRANSACTIONS = 51, True, "Another operation of the transaction is in progress"
    TRANSACTION_COORDINATOR_FENCED = 52, False, "Another coordinator has taken over the transaction"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "The client has no permission for this id"
    SECURITY_DISABLED = 54, False, "Security is disabled on the broker"
    OPERATION_NOT_ATTEMPTED = (
        55,
        False,
        "Another part of the request failed, so the broker did not attempt this part",
    )
    KAFKA_STORAGE_ERROR = 56, True, "The broker's disk failed"
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory"
    SASL_AUTHENTICATION_FAILED = 58, False, "The broker rejected the credentials"
    UNKNOWN_PRODUCER_ID = (
        59,
        False,
        "The broker does not know this producer; its records may be deleted",
    )
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being moved to other brokers"
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are disabled"
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "The broker has no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The delegation token belongs to another user"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        False,
        "This kind of connection cannot request delegation tokens",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "The client has no permission for this token"
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired"
    INVALID_PRINCIPAL_TYPE = 67, False, "The broker does not know principals of this type"
    NON_EMPTY_GROUP = 68, False, "The group still has members"
    GROUP_ID_NOT_FOUND = 69, False, "The group does not exist"
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The broker does not have this fetch session"
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch has an unexpected epoch in its session"
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener that matches that of the request"
    TOPIC_DELETION_DISABLED = 73, False, "Topics may not be deleted in this cluster"
    FENCED_LEADER_EPOCH = 74, True, "The client's leader epoch is behind that of the broker"
    UNKNOWN_LEADER_EPOCH = 75, True, "The client's leader epoch is ahead of that of the broker"
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        False,
        "The client's version cannot carry this partition's compression",
    )
    STALE_BROKER_EPOCH = 77, False, "The broker has registered again since"
    OFFSET_NOT_AVAILABLE = 78, True, "A new leader does not know its high watermark yet"
    MEMBER_ID_REQUIRED = (
        79,
        False,
        "A new member must join again with the member id of this response",
    )
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not in sync or not running"
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has its maximum number of members"
    FENCED_INSTANCE_ID = 82, False, "Another member uses this static member's instance id"
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "None of the replicas that may lead is running"
    ELECTION_NOT_NEEDED = 84, True, "The partition needs no election of a leader"
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition is not being moved"
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group still reads the topic"
    INVALID_RECORD = 87, False, "The broker rejects a record because of its content"
    UNSTABLE_OFFSET_COMMIT = 88, True, "Offsets of an open transaction are not committed yet"
    THROTTLING_QUOTA_EXCEEDED = 89, True, "A quota is exhausted"
    PRODUCER_FENCED = 90, False, "A newer producer has taken over the transactional id"
    RESOURCE_NOT_FOUND = 91, False, "What the request refers to does not exist"
    DUPLICATE_RESOURCE = 92, False, "The request names the same thing twice"
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the requirements"
    INCONSISTENT_VOTER_SET = 94, False, "The sender or the receiver is not among the voters"
    INVALID_UPDATE_VERSION = 95, False, "A feature cannot be set to this version"
    FEATURE_UPDATE_FAILED = 96, False, "A feature could not be set"
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        False,
        "The principal that a forwarded request names cannot be read",
    )
    SNAPSHOT_NOT_FOUND = 98, False, "The snapshot does not exist"
    POSITION_OUT_OF_RANGE = 99, False, "The position lies outside the snapshot"
    UNKNOWN_TOPIC_ID = 100, True, "The broker has no topic of this id"
    DUPLICATE_BROKER_REGISTRATION = 101, False, "Another broker runs under this id"
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker is registered under this id"
    INCONSISTENT_TOPIC_ID = 103, True, "The log has another topic id"
    INCONSISTENT_CLUSTER_ID = 104, False, "The request is meant for another cluster"
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "The transactional id does not exist"
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topics with ids and without"
    INELIGIBLE_REPLICA = 107, False, "A replica may not be counted as in sync"
    NEW_LEADER_ELECTED = 108, False, "The change was made, and the partition has a new leader"
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset has moved to tiered storage"
    FENCED_MEMBER_EPOCH = 110, False, "The member's epoch is fenced; the member must join again"
    UNRELEASED_INSTANCE_ID = 111, False, "A member that has not left yet holds the instance id"
    UNSUPPORTED_ASSIGNOR = 112, False, "The group has no such assignor, or not in this version"
    STALE_MEMBER_EPOCH = (
        113,
        False,
        "The member's epoch is old; the next heartbeat returns the new one",
    )
    MISMATCHED_ENDPOINT_TYPE = 114, False, "This endpoint is for requests of another kind"
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "Endpoints of this kind are not supported"
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no controller of this id"
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription is unknown or old"
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry is larger than the broker accepts"
    INVALID_REGISTRATION = 119, False, "The controller rejects the registration of the broker"
    TRANSACTION_ABORTABLE = (
        120,
        False,
        "The transaction failed; after an abort the producer can continue",
    )
    INVALID_RECORD_STATE = 121, False, "The record cannot be acknowledged in the state it is in"
    SHARE_SESSION_NOT_FOUND = 122, True, "The broker does not have this share session"
    INVALID_SHARE_SESSION_EPOCH = (
        123,
        True,
        "The request has an unexpected epoch in its share session",
    )
    FENCED_STATE_EPOCH = 124, False, "The state's epoch differs from that of the coordinator"
    INVALID_VOTER_KEY = 125, False, "The voter's key is not that of the receiving replica"
    DUPLICATE_VOTER = 126, False, "The voter is in the set already"
    VOTER_NOT_FOUND = 127, False, "The voter is not in the set"
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid"
    REBOOTSTRAP_REQUIRED = 129, False, "The client's metadata is outdated; it must bootstrap again"
    STREAMS_INVALID_TOPOLOGY = 130, False, "The topology is not valid"
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The topology's epoch is not valid"
    STREAMS_TOPOLOGY_FENCED = 132, False, "The topology was replaced by a newer one"
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The broker has its maximum number of share sessions"
    GROUP_DELETION_FAILED = 134, False, "The group could not be deleted"
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = (
        135,
        False,
        "The description of the topology could not be stored",
    )
    CONTROLLER_ID_NOT_REGISTERED = 136, False, "No controller is registered under this id"


class BrokerError(RuntimeError):
    """An error code in a broker's response.

    code: an `ErrorCode`, or a plain int if the number is unknown here.
    retriable: that of the code; False for an unknown number.
    where: the subject of the error, such as "orders-0 at 127.0.0.1:9092", or "".
    message: the broker's own message, or None.
    """

    def __init__(self, code: int, where: str = "", message: str | None = None):
        super().__init__(code, where, message)
        number = int(code)
        self.code: int = number
        self.retriable: bool = False
        member = ErrorCode._value2member_map_.get(number)
        if isinstance(member, ErrorCode):
            self.code = member
            self.retriable = member.retriable
        self.where = where
        self.message = message

    def __str__(self) -> str:
        if isinstance(self.code, ErrorCode):
            text = f"{self.code.name} ({self.code:d}): {self.code.meaning}"
        else:
            text = f"unknown error code {self.code}"
        if self.where:
            text += f", for {make_visible(self.where)}"
        if self.message:
            text += f"; the broker says {self.message!r}"  # repr escapes hostile characters
        return text
