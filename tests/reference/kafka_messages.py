"""The bodies of requests and responses: one function per struct, in the order of the wire.

A function gets `m`, which reads or writes a field of each type, and the version. The decorator
`row` has the columns of the struct's row: a number with its default, a place, or an array with the
function of its structs. Names, order, defaults and tags are those of Apache Kafka's message
definitions (clients/src/main/resources/common/message). Release 4.4 is the source, and 3.9 for the
messages that 4.x has removed. kafka_group_messages.py has the bodies of groups, transactions and
administration.
"""

API = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "ApiVersions": 18,
    "SaslHandshake": 17,
    "InitProducerId": 22,
    "SaslAuthenticate": 36,
    "OffsetCommit": 8,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "LeaveGroup": 13,
    "SyncGroup": 14,
    "CreateTopics": 19,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
    "DescribeConfigs": 32,
    "ConsumerGroupHeartbeat": 68,
}
NEWEST = {
    "Produce": 13,
    "Fetch": 18,
    "ListOffsets": 11,
    "Metadata": 13,
    "ApiVersions": 5,
    "SaslHandshake": 1,
    "InitProducerId": 6,
    "SaslAuthenticate": 2,
    "OffsetCommit": 10,
    "OffsetFetch": 10,
    "FindCoordinator": 6,
    "JoinGroup": 9,
    "Heartbeat": 4,
    "LeaveGroup": 5,
    "SyncGroup": 5,
    "CreateTopics": 7,
    "AddPartitionsToTxn": 5,
    "AddOffsetsToTxn": 4,
    "EndTxn": 5,
    "TxnOffsetCommit": 6,
    "DescribeConfigs": 4,
    "ConsumerGroupHeartbeat": 1,
}

# The first flexible version of each API, by its key. From it on, lengths are varints and structs
# end with tagged fields.
NEVER = 1 << 15
FLEXIBLE = {
    0: 9,
    1: 12,
    2: 6,
    3: 9,
    4: 4,
    5: 2,
    6: 6,
    7: 3,
    8: 8,
    9: 6,
    10: 3,
    11: 6,
    12: 4,
    13: 4,
    14: 4,
    15: 5,
    16: 3,
    17: NEVER,
    18: 3,
    19: 5,
    20: 4,
    21: 2,
    22: 2,
    23: 4,
    24: 3,
    25: 3,
    26: 3,
    27: 1,
    28: 3,
    29: 2,
    30: 2,
    31: 2,
    32: 4,
    33: 2,
    34: 2,
    35: 2,
    36: 2,
    37: 2,
    38: 2,
    39: 2,
    40: 2,
    41: 2,
    42: 2,
    43: 2,
    44: 1,
    45: 0,
    46: 0,
    47: NEVER,
    48: 1,
    49: 1,
    50: 0,
    51: 0,
    52: 0,
    53: 1,
    54: 1,
    55: 0,
    56: 0,
    57: 0,
    58: 0,
    59: 0,
    60: 0,
    61: 0,
    62: 0,
    63: 0,
    64: 0,
    65: 0,
    66: 0,
    67: 0,
    68: 0,
    69: 0,
    70: 0,
    71: 0,
    72: 0,
    73: 0,
    74: 0,
    75: 0,
    76: 0,
    77: 0,
    78: 0,
    79: 0,
    80: 0,
    81: 0,
    82: 0,
    83: 0,
    84: 0,
    85: 0,
    86: 0,
    87: 0,
    88: 0,
    89: 0,
    90: 0,
    91: 0,
    92: 0,
    93: 0,
    94: 0,
}


def row(text):
    """Decorate a function with the columns of its rows and the functions of its arrays.

    text: words. `name=default` is a number, `name` a place, and `name[function]` an array with the
        name of the function of its structs.
    """
    columns, function_names = {}, {}
    for word in text.split():
        name, is_number, default = word.partition("=")
        if is_number:
            columns[name] = int(default)
            continue
        name, is_array, function = word.strip("]").partition("[")
        columns |= {f"{name}_at": 0, f"{name}_size": -1}
        if is_array:
            columns[f"{name}_count"] = -1
            function_names[name] = function

    def decorate(function):
        # A struct may be defined below the struct that holds it, so its name is looked up later.
        function.columns = columns
        function.arrays = {
            array: lambda name=name: function.__globals__[name]
            for array, name in function_names.items()
        }
        return function

    return decorate


# ---- Produce


@row("transactional_id acks=0 timeout_ms=0 topic_data[produce_request_topic]")
def produce_request(m, version):
    if version >= 3:
        m.string("transactional_id", null=True)
    m.i16("acks")
    m.i32("timeout_ms")
    m.structs("topic_data")
    m.tags()


@row("name topic_id partition_data[produce_request_partition]")
def produce_request_topic(m, version):
    if version <= 12:
        m.string("name")
    if version >= 13:
        m.uuid("topic_id")
    m.structs("partition_data")
    m.tags()


@row("index=0 records")
def produce_request_partition(m, version):
    m.i32("index")
    m.bytes("records", null=True)
    m.tags()


@row("responses[produce_response_topic] throttle_time_ms=0 node_endpoints[node_endpoint]")
def produce_response(m, version):
    m.structs("responses")
    if version >= 1:
        m.i32("throttle_time_ms")
    known = {}
    if version >= 10:
        known[0] = lambda: m.structs("node_endpoints")
    m.tags(known)


@row("name topic_id partition_responses[produce_response_partition]")
def produce_response_topic(m, version):
    if version <= 12:
        m.string("name")
    if version >= 13:
        m.uuid("topic_id")
    m.structs("partition_responses")
    m.tags()


@row(
    "index=0 error_code=0 base_offset=0 log_append_time_ms=-1 log_start_offset=-1 "
    "record_errors[record_error] error_message current_leader_leader_id=-1 "
    "current_leader_leader_epoch=-1"
)
def produce_response_partition(m, version):
    m.i32("index")
    m.i16("error_code")
    m.i64("base_offset")
    if version >= 2:
        m.i64("log_append_time_ms")
    if version >= 5:
        m.i64("log_start_offset")
    if version >= 8:
        m.structs("record_errors")
        m.string("error_message", null=True)
    known = {}
    if version >= 10:
        known[0] = lambda: m.inline("current_leader", leader)
    m.tags(known)


@row("batch_index=0 batch_index_error_message")
def record_error(m, version):
    m.i32("batch_index")
    m.string("batch_index_error_message", null=True)
    m.tags()


def leader(m, version):
    m.i32("leader_id")
    m.i32("leader_epoch")
    m.tags()


@row("node_id=0 host port=0 rack")
def node_endpoint(m, version):
    m.i32("node_id")
    m.string("host")
    m.i32("port")
    m.string("rack", null=True)
    m.tags()


# ---- Fetch


@row(
    "cluster_id replica_id=-1 replica_state_replica_id=-1 replica_state_replica_epoch=-1 "
    "max_wait_ms=0 min_bytes=0 max_bytes=2147483647 isolation_level=0 session_id=0 "
    "session_epoch=-1 topics[fetch_request_topic] forgotten_topics_data[forgotten_topic] rack_id"
)
def fetch_request(m, version):
    if version <= 14:
        m.i32("replica_id")
    m.i32("max_wait_ms")
    m.i32("min_bytes")
    if version >= 3:
        m.i32("max_bytes")
    if version >= 4:
        m.i8("isolation_level")
    if version >= 7:
        m.i32("session_id")
        m.i32("session_epoch")
    m.structs("topics")
    if version >= 7:
        m.structs("forgotten_topics_data")
    if version >= 11:
        m.string("rack_id")
    known = {0: lambda: m.string("cluster_id", null=True)}
    if version >= 15:
        known[1] = lambda: m.inline("replica_state", replica_state)
    m.tags(known)


def replica_state(m, version):
    m.i32("replica_id")
    m.i64("replica_epoch")
    m.tags()


@row("topic topic_id partitions[fetch_request_partition]")
def fetch_request_topic(m, version):
    if version <= 12:
        m.string("topic")
    if version >= 13:
        m.uuid("topic_id")
    m.structs("partitions")
    m.tags()


@row(
    "partition=0 current_leader_epoch=-1 fetch_offset=0 last_fetched_epoch=-1 log_start_offset=-1 "
    "partition_max_bytes=0 replica_directory_id high_watermark=9223372036854775807"
)
def fetch_request_partition(m, version):
    m.i32("partition")
    if version >= 9:
        m.i32("current_leader_epoch")
    m.i64("fetch_offset")
    if version >= 12:
        m.i32("last_fetched_epoch")
    if version >= 5:
        m.i64("log_start_offset")
    m.i32("partition_max_bytes")
    known = {}
    if version >= 17:
        known[0] = lambda: m.uuid("replica_directory_id")
    if version >= 18:
        known[1] = lambda: m.i64("high_watermark")
    m.tags(known)


@row("topic topic_id partitions")
def forgotten_topic(m, version):
    if version <= 12:
        m.string("topic")
    if version >= 13:
        m.uuid("topic_id")
    m.i32s("partitions")
    m.tags()


@row(
    "throttle_time_ms=0 error_code=0 session_id=0 responses[fetch_response_topic] "
    "node_endpoints[node_endpoint]"
)
def fetch_response(m, version):
    if version >= 1:
        m.i32("throttle_time_ms")
    if version >= 7:
        m.i16("error_code")
        m.i32("session_id")
    m.structs("responses")
    known = {}
    if version >= 16:
        known[0] = lambda: m.structs("node_endpoints")
    m.tags(known)


@row("topic topic_id partitions[fetch_response_partition]")
def fetch_response_topic(m, version):
    if version <= 12:
        m.string("topic")
    if version >= 13:
        m.uuid("topic_id")
    m.structs("partitions")
    m.tags()


@row(
    "partition_index=0 error_code=0 high_watermark=0 last_stable_offset=-1 log_start_offset=-1 "
    "diverging_epoch_epoch=-1 diverging_epoch_end_offset=-1 current_leader_leader_id=-1 "
    "current_leader_leader_epoch=-1 snapshot_id_end_offset=-1 snapshot_id_epoch=-1 "
    "aborted_transactions[aborted_transaction] preferred_read_replica=-1 records"
)
def fetch_response_partition(m, version):
    m.i32("partition_index")
    m.i16("error_code")
    m.i64("high_watermark")
    if version >= 4:
        m.i64("last_stable_offset")
    if version >= 5:
        m.i64("log_start_offset")
    if version >= 4:
        m.structs("aborted_transactions", null=True)
    if version >= 11:
        m.i32("preferred_read_replica")
    m.bytes("records", null=True)
    m.tags(
        {
            0: lambda: m.inline("diverging_epoch", diverging_epoch),
            1: lambda: m.inline("current_leader", leader),
            2: lambda: m.inline("snapshot_id", snapshot_id),
        }
    )


@row("producer_id=0 first_offset=0")
def aborted_transaction(m, version):
    m.i64("producer_id")
    m.i64("first_offset")
    m.tags()


def diverging_epoch(m, version):
    m.i32("epoch")
    m.i64("end_offset")
    m.tags()


def snapshot_id(m, version):
    m.i64("end_offset")
    m.i32("epoch")
    m.tags()


# ---- ListOffsets


@row("replica_id=0 isolation_level=0 topics[list_offsets_request_topic] timeout_ms=0")
def list_offsets_request(m, version):
    m.i32("replica_id")
    if version >= 2:
        m.i8("isolation_level")
    m.structs("topics")
    if version >= 10:
        m.i32("timeout_ms")
    m.tags()


@row("name partitions[list_offsets_request_partition]")
def list_offsets_request_topic(m, version):
    m.string("name")
    m.structs("partitions")
    m.tags()


@row("partition_index=0 current_leader_epoch=-1 timestamp=0 max_num_offsets=1")
def list_offsets_request_partition(m, version):
    m.i32("partition_index")
    if version >= 4:
        m.i32("current_leader_epoch")
    m.i64("timestamp")
    if version == 0:
        m.i32("max_num_offsets")
    m.tags()


@row("throttle_time_ms=0 topics[list_offsets_response_topic]")
def list_offsets_response(m, version):
    if version >= 2:
        m.i32("throttle_time_ms")
    m.structs("topics")
    m.tags()


@row("name partitions[list_offsets_response_partition]")
def list_offsets_response_topic(m, version):
    m.string("name")
    m.structs("partitions")
    m.tags()


@row("partition_index=0 error_code=0 old_style_offsets timestamp=-1 offset=-1 leader_epoch=-1")
def list_offsets_response_partition(m, version):
    m.i32("partition_index")
    m.i16("error_code")
    if version == 0:
        m.i64s("old_style_offsets")
    if version >= 1:
        m.i64("timestamp")
        m.i64("offset")
    if version >= 4:
        m.i32("leader_epoch")
    m.tags()


# ---- Metadata


@row(
    "topics[metadata_request_topic] allow_auto_topic_creation=1 "
    "include_cluster_authorized_operations=0 include_topic_authorized_operations=0"
)
def metadata_request(m, version):
    m.structs("topics", null=version >= 1)
    if version >= 4:
        m.boolean("allow_auto_topic_creation")
    if 8 <= version <= 10:
        m.boolean("include_cluster_authorized_operations")
    if version >= 8:
        m.boolean("include_topic_authorized_operations")
    m.tags()


@row("topic_id name")
def metadata_request_topic(m, version):
    if version >= 10:
        m.uuid("topic_id")
    m.string("name", null=version >= 10)
    m.tags()


@row(
    "throttle_time_ms=0 brokers[broker] cluster_id controller_id=-1 "
    "topics[metadata_response_topic] cluster_authorized_operations=-2147483648 error_code=0"
)
def metadata_response(m, version):
    if version >= 3:
        m.i32("throttle_time_ms")
    m.structs("brokers")
    if version >= 2:
        m.string("cluster_id", null=True)
    if version >= 1:
        m.i32("controller_id")
    m.structs("topics")
    if 8 <= version <= 10:
        m.i32("cluster_authorized_operations")
    if version >= 13:
        m.i16("error_code")
    m.tags()


@row("node_id=0 host port=0 rack")
def broker(m, version):
    m.i32("node_id")
    m.string("host")
    m.i32("port")
    if version >= 1:
        m.string("rack", null=True)
    m.tags()


@row(
    "error_code=0 name topic_id is_internal=0 partitions[metadata_response_partition] "
    "topic_authorized_operations=-2147483648"
)
def metadata_response_topic(m, version):
    m.i16("error_code")
    m.string("name", null=version >= 12)
    if version >= 10:
        m.uuid("topic_id")
    if version >= 1:
        m.boolean("is_internal")
    m.structs("partitions")
    if version >= 8:
        m.i32("topic_authorized_operations")
    m.tags()


@row(
    "error_code=0 partition_index=0 leader_id=0 leader_epoch=-1 replica_nodes isr_nodes "
    "offline_replicas"
)
def metadata_response_partition(m, version):
    m.i16("error_code")
    m.i32("partition_index")
    m.i32("leader_id")
    if version >= 7:
        m.i32("leader_epoch")
    m.i32s("replica_nodes")
    m.i32s("isr_nodes")
    if version >= 5:
        m.i32s("offline_replicas")
    m.tags()


# ---- ApiVersions


@row("client_software_name client_software_version cluster_id node_id=-1")
def api_versions_request(m, version):
    if version >= 3:
        m.string("client_software_name")
        m.string("client_software_version")
    if version >= 5:
        m.string("cluster_id", null=True)
        m.i32("node_id")
    m.tags()


@row(
    "error_code=0 api_keys[api_version] throttle_time_ms=0 supported_features[supported_feature] "
    "finalized_features_epoch=-1 finalized_features[finalized_feature] zk_migration_ready=0"
)
def api_versions_response(m, version):
    m.i16("error_code")
    m.structs("api_keys")
    if version >= 1:
        m.i32("throttle_time_ms")
    m.tags(
        {
            0: lambda: m.structs("supported_features"),
            1: lambda: m.i64("finalized_features_epoch"),
            2: lambda: m.structs("finalized_features"),
            3: lambda: m.boolean("zk_migration_ready"),
        }
    )


@row("api_key=0 min_version=0 max_version=0")
def api_version(m, version):
    m.i16("api_key")
    m.i16("min_version")
    m.i16("max_version")
    m.tags()


@row("name min_version=0 max_version=0")
def supported_feature(m, version):
    m.string("name")
    m.i16("min_version")
    m.i16("max_version")
    m.tags()


@row("name max_version_level=0 min_version_level=0")
def finalized_feature(m, version):
    m.string("name")
    m.i16("max_version_level")
    m.i16("min_version_level")
    m.tags()


# ---- SASL and idempotent producers


@row("mechanism")
def sasl_handshake_request(m, version):
    m.string("mechanism")


@row("error_code=0 mechanisms[mechanism]")
def sasl_handshake_response(m, version):
    m.i16("error_code")
    m.structs("mechanisms")


@row("name")
def mechanism(m, version):
    m.string("name")


@row("auth_bytes")
def sasl_authenticate_request(m, version):
    m.bytes("auth_bytes")
    m.tags()


@row("error_code=0 error_message auth_bytes session_lifetime_ms=0")
def sasl_authenticate_response(m, version):
    m.i16("error_code")
    m.string("error_message", null=True)
    m.bytes("auth_bytes")
    if version >= 1:
        m.i64("session_lifetime_ms")
    m.tags()


@row(
    "transactional_id transaction_timeout_ms=0 producer_id=-1 producer_epoch=-1 enable2_pc=0 "
    "keep_prepared_txn=0"
)
def init_producer_id_request(m, version):
    m.string("transactional_id", null=True)
    m.i32("transaction_timeout_ms")
    if version >= 3:
        m.i64("producer_id")
        m.i16("producer_epoch")
    if version >= 6:
        m.boolean("enable2_pc")
        m.boolean("keep_prepared_txn")
    m.tags()


@row(
    "throttle_time_ms=0 error_code=0 producer_id=-1 producer_epoch=0 ongoing_txn_producer_id=-1 "
    "ongoing_txn_producer_epoch=-1"
)
def init_producer_id_response(m, version):
    m.i32("throttle_time_ms")
    m.i16("error_code")
    m.i64("producer_id")
    m.i16("producer_epoch")
    if version >= 6:
        m.i64("ongoing_txn_producer_id")
        m.i16("ongoing_txn_producer_epoch")
    m.tags()
