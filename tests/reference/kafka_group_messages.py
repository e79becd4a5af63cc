"""The bodies of groups, transactions and administration: one function per struct.

The notation is that of kafka_messages.py, and so are the sources. OffsetCommit 0 and 1, OffsetFetch
0, CreateTopics 0 and 1, and DescribeConfigs 0 are those of release 3.9.
"""

from tests.reference.kafka_messages import row


@row("name")
def string_in_array(m, version):
    m.string("name")


# ---- FindCoordinator


@row("key key_type=0 coordinator_keys[string_in_array]")
def find_coordinator_request(m, version):
    if version <= 3:
        m.string("key")
    if version >= 1:
        m.i8("key_type")
    if version >= 4:
        m.structs("coordinator_keys")
    m.tags()


@row(
    "throttle_time_ms=0 error_code=0 error_message node_id=0 host port=0 "
    "coordinators[find_coordinator_response_coordinator]"
)
def find_coordinator_response(m, version):
    if version >= 1:
        m.i32("throttle_time_ms")
    if version <= 3:
        m.i16("error_code")
        if version >= 1:
            m.string("error_message", null=True)
        m.i32("node_id")
        m.string("host")
        m.i32("port")
    else:
        m.structs("coordinators")
    m.tags()


@row("key node_id=0 host port=0 error_code=0 error_message")
def find_coordinator_response_coordinator(m, version):
    m.string("key")
    m.i32("node_id")
    m.string("host")
    m.i32("port")
    m.i16("error_code")
    m.string("error_message", null=True)
    m.tags()


# ---- the members of a group


@row(
    "group_id session_timeout_ms=0 rebalance_timeout_ms=-1 member_id group_instance_id "
    "protocol_type protocols[join_group_request_protocol] reason"
)
def join_group_request(m, version):
    m.string("group_id")
    m.i32("session_timeout_ms")
    if version >= 1:
        m.i32("rebalance_timeout_ms")
    m.string("member_id")
    if version >= 5:
        m.string("group_instance_id", null=True)
    m.string("protocol_type")
    m.structs("protocols")
    if version >= 8:
        m.string("reason", null=True)
    m.tags()


@row("name metadata")
def join_group_request_protocol(m, version):
    m.string("name")
    m.bytes("metadata")
    m.tags()


@row(
    "throttle_time_ms=0 error_code=0 generation_id=-1 protocol_type protocol_name leader "
    "skip_assignment=0 member_id members[join_group_response_member]"
)
def join_group_response(m, version):
    if version >= 2:
        m.i32("throttle_time_ms")
    m.i16("error_code")
    m.i32("generation_id")
    if version >= 7:
        m.string("protocol_type", null=True)
    m.string("protocol_name", null=version >= 7)
    m.string("leader")
    if version >= 9:
        m.boolean("skip_assignment")
    m.string("member_id")
    m.structs("members")
    m.tags()


@row("member_id group_instance_id metadata")
def join_group_response_member(m, version):
    m.string("member_id")
    if version >= 5:
        m.string("group_instance_id", null=True)
    m.bytes("metadata")
    m.tags()


@row(
    "group_id generation_id=0 member_id group_instance_id protocol_type protocol_name "
    "assignments[sync_group_request_assignment]"
)
def sync_group_request(m, version):
    m.string("group_id")
    m.i32("generation_id")
    m.string("member_id")
    if version >= 3:
        m.string("group_instance_id", null=True)
    if version >= 5:
        m.string("protocol_type", null=True)
        m.string("protocol_name", null=True)
    m.structs("assignments")
    m.tags()


@row("member_id assignment")
def sync_group_request_assignment(m, version):
    m.string("member_id")
    m.bytes("assignment")
    m.tags()


@row("throttle_time_ms=0 error_code=0 protocol_type protocol_name assignment")
def sync_group_response(m, version):
    if version >= 1:
        m.i32("throttle_time_ms")
    m.i16("error_code")
    if version >= 5:
        m.string("protocol_type", null=True)
        m.string("protocol_name", null=True)
    m.bytes("assignment")
    m.tags()


@row("group_id generation_id=0 member_id group_instance_id")
def heartbeat_request(m, version):
    m.string("group_id")
    m.i32("generation_id")
    m.string("member_id")
    if version >= 3:
        m.string("group_instance_id", null=True)
    m.tags()


@row("throttle_time_ms=0 error_code=0")
def heartbeat_response(m, version):
    if version >= 1:
        m.i32("throttle_time_ms")
    m.i16("error_code")
    m.tags()


@row("group_id member_id members[leave_group_request_member]")
def leave_group_request(m, version):
    m.string("group_id")
    if version <= 2:
        m.string("member_id")
    else:
        m.structs("members")
    m.tags()


@row("member_id group_instance_id reason")
def leave_group_request_member(m, version):
    m.string("member_id")
    m.string("group_instance_id", null=True)
    if version >= 5:
        m.string("reason", null=True)
    m.tags()


@row("throttle_time_ms=0 error_code=0 members[leave_group_response_member]")
def leave_group_response(m, version):
    if version >= 1:
        m.i32("throttle_time_ms")
    m.i16("error_code")
    if version >= 3:
        m.structs("members")
    m.tags()


@row("member_id group_instance_id error_code=0")
def leave_group_response_member(m, version):
    m.string("member_id")
    m.string("group_instance_id", null=True)
    m.i16("error_code")
    m.tags()


@row(
    "group_id member_id member_epoch=0 instance_id rack_id rebalance_timeout_ms=-1 "
    "subscribed_topic_names[string_in_array] subscribed_topic_regex server_assignor "
    "topic_partitions[topic_partitions]"
)
def consumer_group_heartbeat_request(m, version):
    m.string("group_id")
    m.string("member_id")
    m.i32("member_epoch")
    m.string("instance_id", null=True)
    m.string("rack_id", null=True)
    m.i32("rebalance_timeout_ms")
    m.structs("subscribed_topic_names", null=True)
    if version >= 1:
        m.string("subscribed_topic_regex", null=True)
    m.string("server_assignor", null=True)
    m.structs("topic_partitions", null=True)
    m.tags()


@row("topic_id partitions")
def topic_partitions(m, version):
    m.uuid("topic_id")
    m.i32s("partitions")
    m.tags()


@row(
    "throttle_time_ms=0 error_code=0 error_message member_id member_epoch=0 "
    "heartbeat_interval_ms=0 assignment_topic_partitions[topic_partitions]"
)
def consumer_group_heartbeat_response(m, version):
    m.i32("throttle_time_ms")
    m.i16("error_code")
    m.string("error_message", null=True)
    m.string("member_id", null=True)
    m.i32("member_epoch")
    m.i32("heartbeat_interval_ms")
    m.optional(consumer_group_heartbeat_assignment)
    m.tags()


def consumer_group_heartbeat_assignment(m, version):
    m.structs("assignment_topic_partitions")
    m.tags()


# ---- the offsets of a group


@row(
    "group_id generation_id_or_member_epoch=-1 member_id group_instance_id retention_time_ms=-1 "
    "topics[offset_commit_request_topic]"
)
def offset_commit_request(m, version):
    m.string("group_id")
    if version >= 1:
        m.i32("generation_id_or_member_epoch")
        m.string("member_id")
    if version >= 7:
        m.string("group_instance_id", null=True)
    if 2 <= version <= 4:
        m.i64("retention_time_ms")
    m.structs("topics")
    m.tags()


@row("name topic_id partitions[offset_commit_request_partition]")
def offset_commit_request_topic(m, version):
    if version <= 9:
        m.string("name")
    else:
        m.uuid("topic_id")
    m.structs("partitions")
    m.tags()


@row(
    "partition_index=0 committed_offset=0 committed_leader_epoch=-1 commit_timestamp=-1 "
    "committed_metadata"
)
def offset_commit_request_partition(m, version):
    m.i32("partition_index")
    m.i64("committed_offset")
    if version >= 6:
        m.i32("committed_leader_epoch")
    if version == 1:
        m.i64("commit_timestamp")
    m.string("committed_metadata", null=True)
    m.tags()


@row("throttle_time_ms=0 topics[offset_commit_response_topic]")
def offset_commit_response(m, version):
    if version >= 3:
        m.i32("throttle_time_ms")
    m.structs("topics")
    m.tags()


@row("name topic_id partitions[committed_partition]")
def offset_commit_response_topic(m, version):
    if version <= 9:
        m.string("name")
    else:
        m.uuid("topic_id")
    m.structs("partitions")
    m.tags()


@row("partition_index=0 error_code=0")
def committed_partition(m, version):
    m.i32("partition_index")
    m.i16("error_code")
    m.tags()


@row(
    "group_id topics[offset_fetch_request_topic] groups[offset_fetch_request_group] "
    "require_stable=0"
)
def offset_fetch_request(m, version):
    if version <= 7:
        m.string("group_id")
        m.structs("topics", null=version >= 2)
    else:
        m.structs("groups")
    if version >= 7:
        m.boolean("require_stable")
    m.tags()


@row("name partition_indexes")
def offset_fetch_request_topic(m, version):
    m.string("name")
    m.i32s("partition_indexes")
    m.tags()


@row("group_id member_id member_epoch=-1 topics[offset_fetch_request_group_topic]")
def offset_fetch_request_group(m, version):
    m.string("group_id")
    if version >= 9:
        m.string("member_id", null=True)
        m.i32("member_epoch")
    m.structs("topics", null=True)
    m.tags()


@row("name topic_id partition_indexes")
def offset_fetch_request_group_topic(m, version):
    if version <= 9:
        m.string("name")
    else:
        m.uuid("topic_id")
    m.i32s("partition_indexes")
    m.tags()


@row(
    "throttle_time_ms=0 topics[offset_fetch_response_topic] error_code=0 "
    "groups[offset_fetch_response_group]"
)
def offset_fetch_response(m, version):
    if version >= 3:
        m.i32("throttle_time_ms")
    if version <= 7:
        m.structs("topics")
        if version >= 2:
            m.i16("error_code")
    else:
        m.structs("groups")
    m.tags()


@row("name partitions[offset_fetch_response_partition]")
def offset_fetch_response_topic(m, version):
    m.string("name")
    m.structs("partitions")
    m.tags()


@row("partition_index=0 committed_offset=0 committed_leader_epoch=-1 metadata error_code=0")
def offset_fetch_response_partition(m, version):
    m.i32("partition_index")
    m.i64("committed_offset")
    if version >= 5:
        m.i32("committed_leader_epoch")
    m.string("metadata", null=True)
    m.i16("error_code")
    m.tags()


@row("group_id topics[offset_fetch_response_group_topic] error_code=0")
def offset_fetch_response_group(m, version):
    m.string("group_id")
    m.structs("topics")
    m.i16("error_code")
    m.tags()


@row("name topic_id partitions[offset_fetch_response_partition]")
def offset_fetch_response_group_topic(m, version):
    if version <= 9:
        m.string("name")
    else:
        m.uuid("topic_id")
    m.structs("partitions")
    m.tags()


# ---- transactions


@row(
    "transactions[add_partitions_transaction] v3_and_below_transactional_id "
    "v3_and_below_producer_id=0 v3_and_below_producer_epoch=0 "
    "v3_and_below_topics[add_partitions_topic]"
)
def add_partitions_to_txn_request(m, version):
    if version >= 4:
        m.structs("transactions")
    else:
        m.string("v3_and_below_transactional_id")
        m.i64("v3_and_below_producer_id")
        m.i16("v3_and_below_producer_epoch")
        m.structs("v3_and_below_topics")
    m.tags()


@row("transactional_id producer_id=0 producer_epoch=0 verify_only=0 topics[add_partitions_topic]")
def add_partitions_transaction(m, version):
    m.string("transactional_id")
    m.i64("producer_id")
    m.i16("producer_epoch")
    m.boolean("verify_only")
    m.structs("topics")
    m.tags()


@row("name partitions")
def add_partitions_topic(m, version):
    m.string("name")
    m.i32s("partitions")
    m.tags()


@row(
    "throttle_time_ms=0 error_code=0 results_by_transaction[added_transaction] "
    "results_by_topic_v3_and_below[added_topic]"
)
def add_partitions_to_txn_response(m, version):
    m.i32("throttle_time_ms")
    if version >= 4:
        m.i16("error_code")
        m.structs("results_by_transaction")
    else:
        m.structs("results_by_topic_v3_and_below")
    m.tags()


@row("transactional_id topic_results[added_topic]")
def added_transaction(m, version):
    m.string("transactional_id")
    m.structs("topic_results")
    m.tags()


@row("name results_by_partition[added_partition]")
def added_topic(m, version):
    m.string("name")
    m.structs("results_by_partition")
    m.tags()


@row("partition_index=0 partition_error_code=0")
def added_partition(m, version):
    m.i32("partition_index")
    m.i16("partition_error_code")
    m.tags()


@row("transactional_id producer_id=0 producer_epoch=0 group_id")
def add_offsets_to_txn_request(m, version):
    m.string("transactional_id")
    m.i64("producer_id")
    m.i16("producer_epoch")
    m.string("group_id")
    m.tags()


@row("throttle_time_ms=0 error_code=0")
def add_offsets_to_txn_response(m, version):
    m.i32("throttle_time_ms")
    m.i16("error_code")
    m.tags()


@row("transactional_id producer_id=0 producer_epoch=0 committed=0")
def end_txn_request(m, version):
    m.string("transactional_id")
    m.i64("producer_id")
    m.i16("producer_epoch")
    m.boolean("committed")
    m.tags()


@row("throttle_time_ms=0 error_code=0 producer_id=-1 producer_epoch=-1")
def end_txn_response(m, version):
    m.i32("throttle_time_ms")
    m.i16("error_code")
    if version >= 5:
        m.i64("producer_id")
        m.i16("producer_epoch")
    m.tags()


@row(
    "transactional_id group_id producer_id=0 producer_epoch=0 generation_id_or_member_epoch=-1 "
    "member_id group_instance_id topics[txn_offset_commit_request_topic]"
)
def txn_offset_commit_request(m, version):
    m.string("transactional_id")
    m.string("group_id")
    m.i64("producer_id")
    m.i16("producer_epoch")
    if version >= 3:
        m.i32("generation_id_or_member_epoch")
        m.string("member_id")
        m.string("group_instance_id", null=True)
    m.structs("topics")
    m.tags()


@row("name topic_id partitions[txn_offset_commit_request_partition]")
def txn_offset_commit_request_topic(m, version):
    if version <= 5:
        m.string("name")
    else:
        m.uuid("topic_id")
    m.structs("partitions")
    m.tags()


@row("partition_index=0 committed_offset=0 committed_leader_epoch=-1 committed_metadata")
def txn_offset_commit_request_partition(m, version):
    m.i32("partition_index")
    m.i64("committed_offset")
    if version >= 2:
        m.i32("committed_leader_epoch")
    m.string("committed_metadata", null=True)
    m.tags()


@row("throttle_time_ms=0 topics[txn_offset_commit_response_topic]")
def txn_offset_commit_response(m, version):
    m.i32("throttle_time_ms")
    m.structs("topics")
    m.tags()


@row("name topic_id partitions[committed_partition]")
def txn_offset_commit_response_topic(m, version):
    if version <= 5:
        m.string("name")
    else:
        m.uuid("topic_id")
    m.structs("partitions")
    m.tags()


# ---- administration


@row("topics[create_topics_request_topic] timeout_ms=60000 validate_only=0")
def create_topics_request(m, version):
    m.structs("topics")
    m.i32("timeout_ms")
    if version >= 1:
        m.boolean("validate_only")
    m.tags()


@row(
    "name num_partitions=0 replication_factor=0 assignments[create_topics_request_assignment] "
    "configs[create_topics_request_config]"
)
def create_topics_request_topic(m, version):
    m.string("name")
    m.i32("num_partitions")
    m.i16("replication_factor")
    m.structs("assignments")
    m.structs("configs")
    m.tags()


@row("partition_index=0 broker_ids")
def create_topics_request_assignment(m, version):
    m.i32("partition_index")
    m.i32s("broker_ids")
    m.tags()


@row("name value")
def create_topics_request_config(m, version):
    m.string("name")
    m.string("value", null=True)
    m.tags()


@row("throttle_time_ms=0 topics[create_topics_response_topic]")
def create_topics_response(m, version):
    if version >= 2:
        m.i32("throttle_time_ms")
    m.structs("topics")
    m.tags()


@row(
    "name topic_id error_code=0 error_message topic_config_error_code=0 num_partitions=-1 "
    "replication_factor=-1 configs[create_topics_response_config]"
)
def create_topics_response_topic(m, version):
    m.string("name")
    if version >= 7:
        m.uuid("topic_id")
    m.i16("error_code")
    if version >= 1:
        m.string("error_message", null=True)
    if version >= 5:
        m.i32("num_partitions")
        m.i16("replication_factor")
        m.structs("configs", null=True)
    m.tags({0: lambda: m.i16("topic_config_error_code")})


@row("name value read_only=0 config_source=-1 is_sensitive=0")
def create_topics_response_config(m, version):
    m.string("name")
    m.string("value", null=True)
    m.boolean("read_only")
    m.i8("config_source")
    m.boolean("is_sensitive")
    m.tags()


@row("resources[describe_configs_request_resource] include_synonyms=0 include_documentation=0")
def describe_configs_request(m, version):
    m.structs("resources")
    if version >= 1:
        m.boolean("include_synonyms")
    if version >= 3:
        m.boolean("include_documentation")
    m.tags()


@row("resource_type=0 resource_name configuration_keys[string_in_array]")
def describe_configs_request_resource(m, version):
    m.i8("resource_type")
    m.string("resource_name")
    m.structs("configuration_keys", null=True)
    m.tags()


@row("throttle_time_ms=0 results[describe_configs_response_result]")
def describe_configs_response(m, version):
    m.i32("throttle_time_ms")
    m.structs("results")
    m.tags()


@row(
    "error_code=0 error_message resource_type=0 resource_name "
    "configs[describe_configs_response_config]"
)
def describe_configs_response_result(m, version):
    m.i16("error_code")
    m.string("error_message", null=True)
    m.i8("resource_type")
    m.string("resource_name")
    m.structs("configs")
    m.tags()


@row(
    "name value read_only=0 is_default=0 config_source=-1 is_sensitive=0 "
    "synonyms[describe_configs_response_synonym] config_type=0 documentation"
)
def describe_configs_response_config(m, version):
    m.string("name")
    m.string("value", null=True)
    m.boolean("read_only")
    if version == 0:
        m.boolean("is_default")
    else:
        m.i8("config_source")
    m.boolean("is_sensitive")
    if version >= 1:
        m.structs("synonyms")
    if version >= 3:
        m.i8("config_type")
        m.string("documentation", null=True)
    m.tags()


@row("name value source=0")
def describe_configs_response_synonym(m, version):
    m.string("name")
    m.string("value", null=True)
    m.i8("source")
    m.tags()
