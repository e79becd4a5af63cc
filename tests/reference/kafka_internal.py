"""Keys and values in Kafka's internal topics: one function per struct, as in kafka_messages.

A key or value begins with its version, an int16. The version of a key also gives its type. Names,
order, defaults and tags are those of Apache Kafka's definitions: group-coordinator and
transaction-coordinator, in src/main/resources/common/message.
"""

from tests.reference.kafka_messages import NEVER, row

# The versions of the key, the newest version of the value, the first flexible version of the value.
STORED = {
    "OffsetCommit": ((0, 1), 4, 4),
    "GroupMetadata": ((2,), 4, 4),
    "TransactionLog": ((0,), 1, 1),
}


def list_versions(name, side):
    """Return (range of the versions, first flexible version) of the keys or values."""
    keys, newest, flexible = STORED[name]
    if side == "key":
        return range(keys[0], keys[-1] + 1), NEVER
    return range(newest + 1), flexible


@row("group topic partition=0")
def offset_commit_key(m, version):
    m.string("group")
    m.string("topic")
    m.i32("partition")


@row("offset=0 leader_epoch=-1 metadata commit_timestamp=0 expire_timestamp=-1 topic_id")
def offset_commit_value(m, version):
    m.i64("offset")
    if version >= 3:
        m.i32("leader_epoch")
    m.string("metadata")
    m.i64("commit_timestamp")
    if version == 1:
        m.i64("expire_timestamp")
    m.tags({0: lambda: m.uuid("topic_id")})


@row("group")
def group_metadata_key(m, version):
    m.string("group")


@row("protocol_type generation=0 protocol leader current_state_timestamp=-1 members[member]")
def group_metadata_value(m, version):
    m.string("protocol_type")
    m.i32("generation")
    m.string("protocol", null=True)
    m.string("leader", null=True)
    if version >= 2:
        m.i64("current_state_timestamp")
    m.structs("members")
    m.tags()


@row(
    "member_id group_instance_id client_id client_host rebalance_timeout=-1 session_timeout=0 "
    "subscription assignment"
)
def member(m, version):
    m.string("member_id")
    if version >= 3:
        m.string("group_instance_id", null=True)
    m.string("client_id")
    m.string("client_host")
    if version >= 1:
        m.i32("rebalance_timeout")
    m.i32("session_timeout")
    m.bytes("subscription")
    m.bytes("assignment")
    m.tags()


@row("transactional_id")
def transaction_log_key(m, version):
    m.string("transactional_id")


@row(
    "producer_id=0 previous_producer_id=-1 next_producer_id=-1 producer_epoch=0 "
    "next_producer_epoch=-1 transaction_timeout_ms=0 transaction_status=0 "
    "transaction_partitions[transaction_partition] transaction_last_update_timestamp_ms=0 "
    "transaction_start_timestamp_ms=0 client_transaction_version=0"
)
def transaction_log_value(m, version):
    m.i64("producer_id")
    m.i16("producer_epoch")
    m.i32("transaction_timeout_ms")
    m.i8("transaction_status")
    m.structs("transaction_partitions", null=True)
    m.i64("transaction_last_update_timestamp_ms")
    m.i64("transaction_start_timestamp_ms")
    m.tags(
        {
            0: lambda: m.i64("previous_producer_id"),
            1: lambda: m.i64("next_producer_id"),
            2: lambda: m.i16("client_transaction_version"),
            3: lambda: m.i16("next_producer_epoch"),
        }
    )


@row("topic partition_ids")
def transaction_partition(m, version):
    m.string("topic")
    m.i32s("partition_ids")
    m.tags()
