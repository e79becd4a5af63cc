"""The records of Kafka's metadata log: one function per struct, as in kafka_messages.

The value of a record has three numbers and then the fields of its type. Names, order, defaults and
tags are those of Apache Kafka 4.4: metadata/src/main/resources/common/metadata.
"""

from tests.reference.kafka_messages import row

FRAME_VERSION = 1
LARGEST = 0x7FFF  # Kafka keeps the three numbers in 16 bits
# Name -> (number of the type, newest version). All versions are flexible.
TYPES = {
    "RegisterBroker": (0, 4),
    "UnregisterBroker": (1, 0),
    "Topic": (2, 0),
    "Partition": (3, 2),
    "Config": (4, 0),
    "PartitionChange": (5, 2),
    "FenceBroker": (7, 0),
    "UnfenceBroker": (8, 0),
    "RemoveTopic": (9, 0),
    "DelegationToken": (10, 0),
    "UserScramCredential": (11, 0),
    "FeatureLevel": (12, 0),
    "ClientQuota": (14, 0),
    "ProducerIds": (15, 0),
    "BrokerRegistrationChange": (17, 3),
    "AccessControlEntry": (18, 0),
    "RemoveAccessControlEntry": (19, 0),
    "NoOp": (20, 0),
    "ZkMigrationState": (21, 0),
    "RemoveUserScramCredential": (22, 0),
    "BeginTransaction": (23, 0),
    "EndTransaction": (24, 0),
    "AbortTransaction": (25, 0),
    "RemoveDelegationToken": (26, 0),
    "RegisterController": (27, 0),
    "ClearElr": (28, 0),
    "UnregisterController": (29, 0),
}


@row("name")
def string_in_array(m, version):
    m.string("name")


@row("id")
def uuid_in_array(m, version):
    m.uuid("id")


@row(
    "broker_id=0 is_migrating_zk_broker=0 incarnation_id broker_epoch=0 "
    "end_points[register_broker_record_broker_endpoint] "
    "features[register_broker_record_broker_feature] rack fenced=1 in_controlled_shutdown=0 "
    "log_dirs[uuid_in_array] cordoned_log_dirs[uuid_in_array]"
)
def register_broker_record(m, version):
    m.i32("broker_id")
    if version >= 2:
        m.boolean("is_migrating_zk_broker")
    m.uuid("incarnation_id")
    m.i64("broker_epoch")
    m.structs("end_points")
    m.structs("features")
    m.string("rack", null=True)
    m.boolean("fenced")
    if version >= 1:
        m.boolean("in_controlled_shutdown")
    tags = {}
    if version >= 3:
        tags[0] = lambda: m.structs("log_dirs")
    if version >= 4:
        tags[1] = lambda: m.structs("cordoned_log_dirs", null=True)
    m.tags(tags)


@row("name host port=0 security_protocol=0")
def register_broker_record_broker_endpoint(m, version):
    m.string("name")
    m.string("host")
    m.u16("port")
    m.i16("security_protocol")
    m.tags()


@row("name min_supported_version=0 max_supported_version=0")
def register_broker_record_broker_feature(m, version):
    m.string("name")
    m.i16("min_supported_version")
    m.i16("max_supported_version")
    m.tags()


@row("broker_id=0 broker_epoch=0")
def unregister_broker_record(m, version):
    m.i32("broker_id")
    m.i64("broker_epoch")
    m.tags()


@row("name topic_id")
def topic_record(m, version):
    m.string("name")
    m.uuid("topic_id")
    m.tags()


@row(
    "partition_id=-1 topic_id replicas isr removing_replicas adding_replicas leader=-1 "
    "leader_recovery_state=0 leader_epoch=-1 partition_epoch=-1 directories[uuid_in_array] "
    "eligible_leader_replicas last_known_elr"
)
def partition_record(m, version):
    m.i32("partition_id")
    m.uuid("topic_id")
    m.i32s("replicas")
    m.i32s("isr")
    m.i32s("removing_replicas")
    m.i32s("adding_replicas")
    m.i32("leader")
    m.i32("leader_epoch")
    m.i32("partition_epoch")
    if version >= 1:
        m.structs("directories")
    tags = {0: lambda: m.i8("leader_recovery_state")}
    if version >= 2:
        tags[1] = lambda: m.i32s("eligible_leader_replicas", null=True)
        tags[2] = lambda: m.i32s("last_known_elr", null=True)
    m.tags(tags)


@row("resource_type=0 resource_name name value")
def config_record(m, version):
    m.i8("resource_type")
    m.string("resource_name")
    m.string("name")
    m.string("value", null=True)
    m.tags()


@row(
    "partition_id=-1 topic_id isr leader=-2 replicas removing_replicas adding_replicas "
    "leader_recovery_state=-1 directories[uuid_in_array] eligible_leader_replicas "
    "last_known_elr"
)
def partition_change_record(m, version):
    m.i32("partition_id")
    m.uuid("topic_id")
    tags = {
        0: lambda: m.i32s("isr", null=True),
        1: lambda: m.i32("leader"),
        2: lambda: m.i32s("replicas", null=True),
        3: lambda: m.i32s("removing_replicas", null=True),
        4: lambda: m.i32s("adding_replicas", null=True),
        5: lambda: m.i8("leader_recovery_state"),
    }
    if version >= 1:
        tags[8] = lambda: m.structs("directories", null=True)
    if version >= 2:
        tags[6] = lambda: m.i32s("eligible_leader_replicas", null=True)
        tags[7] = lambda: m.i32s("last_known_elr", null=True)
    m.tags(tags)


@row("id=0 epoch=0")
def fence_broker_record(m, version):
    m.i32("id")
    m.i64("epoch")
    m.tags()


@row("id=0 epoch=0")
def unfence_broker_record(m, version):
    m.i32("id")
    m.i64("epoch")
    m.tags()


@row("topic_id")
def remove_topic_record(m, version):
    m.uuid("topic_id")
    m.tags()


@row(
    "owner requester renewers[string_in_array] issue_timestamp=0 max_timestamp=0 "
    "expiration_timestamp=0 token_id"
)
def delegation_token_record(m, version):
    m.string("owner")
    m.string("requester")
    m.structs("renewers")
    m.i64("issue_timestamp")
    m.i64("max_timestamp")
    m.i64("expiration_timestamp")
    m.string("token_id")
    m.tags()


@row("name mechanism=0 salt stored_key server_key iterations=0")
def user_scram_credential_record(m, version):
    m.string("name")
    m.i8("mechanism")
    m.bytes("salt")
    m.bytes("stored_key")
    m.bytes("server_key")
    m.i32("iterations")
    m.tags()


@row("name feature_level=0")
def feature_level_record(m, version):
    m.string("name")
    m.i16("feature_level")
    m.tags()


@row("entity[client_quota_record_entity_data] key value=0 remove=0")
def client_quota_record(m, version):
    m.structs("entity")
    m.string("key")
    m.f64("value")
    m.boolean("remove")
    m.tags()


@row("entity_type entity_name")
def client_quota_record_entity_data(m, version):
    m.string("entity_type")
    m.string("entity_name", null=True)
    m.tags()


@row("broker_id=0 broker_epoch=-1 next_producer_id=0")
def producer_ids_record(m, version):
    m.i32("broker_id")
    m.i64("broker_epoch")
    m.i64("next_producer_id")
    m.tags()


@row(
    "broker_id=0 broker_epoch=0 fenced=0 in_controlled_shutdown=0 log_dirs[uuid_in_array] "
    "cordoned_log_dirs[uuid_in_array]"
)
def broker_registration_change_record(m, version):
    m.i32("broker_id")
    m.i64("broker_epoch")
    tags = {0: lambda: m.i8("fenced")}
    if version >= 1:
        tags[1] = lambda: m.i8("in_controlled_shutdown")
    if version >= 2:
        tags[2] = lambda: m.structs("log_dirs")
    if version >= 3:
        tags[3] = lambda: m.structs("cordoned_log_dirs", null=True)
    m.tags(tags)


@row("id resource_type=0 resource_name pattern_type=0 principal host operation=0 permission_type=0")
def access_control_entry_record(m, version):
    m.uuid("id")
    m.i8("resource_type")
    m.string("resource_name")
    m.i8("pattern_type")
    m.string("principal")
    m.string("host")
    m.i8("operation")
    m.i8("permission_type")
    m.tags()


@row("id")
def remove_access_control_entry_record(m, version):
    m.uuid("id")
    m.tags()


@row("")
def no_op_record(m, version):
    m.tags()


@row("zk_migration_state=0")
def zk_migration_state_record(m, version):
    m.i8("zk_migration_state")
    m.tags()


@row("name mechanism=0")
def remove_user_scram_credential_record(m, version):
    m.string("name")
    m.i8("mechanism")
    m.tags()


@row("name")
def begin_transaction_record(m, version):
    tags = {0: lambda: m.string("name", null=True)}
    m.tags(tags)


@row("")
def end_transaction_record(m, version):
    m.tags()


@row("reason")
def abort_transaction_record(m, version):
    tags = {0: lambda: m.string("reason", null=True)}
    m.tags(tags)


@row("token_id")
def remove_delegation_token_record(m, version):
    m.string("token_id")
    m.tags()


@row(
    "controller_id=0 incarnation_id zk_migration_ready=0 "
    "end_points[register_controller_record_controller_endpoint] "
    "features[register_controller_record_controller_feature]"
)
def register_controller_record(m, version):
    m.i32("controller_id")
    m.uuid("incarnation_id")
    m.boolean("zk_migration_ready")
    m.structs("end_points")
    m.structs("features")
    m.tags()


@row("name host port=0 security_protocol=0")
def register_controller_record_controller_endpoint(m, version):
    m.string("name")
    m.string("host")
    m.u16("port")
    m.i16("security_protocol")
    m.tags()


@row("name min_supported_version=0 max_supported_version=0")
def register_controller_record_controller_feature(m, version):
    m.string("name")
    m.i16("min_supported_version")
    m.i16("max_supported_version")
    m.tags()


@row("topic_name")
def clear_elr_record(m, version):
    m.string("topic_name")
    m.tags()


@row("controller_id=0")
def unregister_controller_record(m, version):
    m.i32("controller_id")
    m.tags()
