"""The meanings of the fields of Kafka's messages, as a table. formats.py declares them.

A line has a field and its meaning. Two or more spaces separate them, and a deeper line continues
the meaning. The field is one of these:

    fetch_request.partitions.fetch_offset     the field of one format
    fetch_offset                              the field in all other formats

The fields of a struct have its name before theirs, as in the columns. A "place" without further
words is never null. Source: the message definitions of Apache Kafka 3.9 and 4.4, and the KIPs that
added the fields.
"""

from __future__ import annotations

import re

SHARED_AND_OWN = """
aborted_transactions    the aborted transactions whose records are in `records`; null for
    READ_UNCOMMITTED
acks    acknowledgments that the producer waits for: 0 none, and then there is no response;
    1 the leader's; -1 those of all in-sync replicas
adding_replicas    broker ids of the replicas that a reassignment adds
allow_auto_topic_creation    1 if the broker may create a topic that does not exist
api_key    the API: see `ApiKey`
api_keys    the APIs that the broker supports
assignment    the partitions of the member, as the protocol of the group encodes them
sync_group_response.assignment    the partitions of the member that asked, as the protocol of the
    group encodes them
assignment_topic_partitions    all partitions of the member; null if the assignment is null, because
    it did not change
assignments    the assignments of all members, from the member that assigns; otherwise no entries
create_topics_request.topics.assignments    the replicas of each partition; no entries if the broker
    chooses them
auth_bytes    data of the SASL mechanism; null in a table without credentials
base_offset    log offset of the first record that was written, -1 after an error
batch_index    number of the refused record in its batch, from 0
batch_index_error_message    why the record was refused, null for no text
broker_epoch    number of the broker's registration; a later registration has a higher one
broker_id    id of the broker
broker_ids    broker ids of the replicas, the preferred leader first
brokers    the brokers of the cluster
client_host    host name or address of the member
client_id    the name that the member's client gave itself
client_software_name    name of the client library
client_software_version    version of the client library
client_transaction_version    version of the transaction protocol that the client uses
cluster_authorized_operations    bits of the operations that are allowed on the cluster;
    -2147483648 if they were not requested
cluster_id    id of the cluster, null if it is not known
api_versions_request.cluster_id    id of the cluster that the client expects, null for any
commit_timestamp    time of the commit in ms since 1970
offset_commit_request.partitions.commit_timestamp    time of the commit in ms since 1970, -1 for the
    broker's; only version 1 has the column
committed    1 commits the transaction, 0 aborts it
committed_leader_epoch    leader epoch of the last record that was read, -1 if it is not known
committed_metadata    text that the client stores with the offset, null for none
committed_offset    log offset of the next record that the group reads
offset_fetch_response.topics.partitions.committed_offset    log offset of the next record that the
    group reads, -1 for none
offset_fetch_response.groups.topics.partitions.committed_offset    log offset of the next record
    that the group reads, -1 for none
config_source    where the value comes from: 1 topic, 2 this broker, 3 all brokers (both changed
    while running), 4 a broker's file, 5 the default, 6 a broker's logger, 7 client metrics, 8
    group; 0 unknown, -1 if the version does not say
config_type    type of the value: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8
    class, 9 password; 0 unknown
configs    the settings
create_topics_response.topics.configs    the settings of the new topic; null if the client may not
    read them
configuration_keys    names of the settings that are wanted, null for all
controller_id    id of the controller
metadata_response.controller_id    broker id of the controller, -1 if it is not known
coordinator_keys    the groups or transactional producers whose coordinators are wanted
coordinators    the coordinator of each key
cordoned_log_dirs    ids of the log directories that get no new partitions; null until the broker
    has sent them
broker_registration_change_record.cordoned_log_dirs    ids of the log directories that get no
    new partitions; null if unchanged
current_leader_epoch    leader epoch that the sender knows, -1 if it knows none
current_leader_leader_epoch    epoch of the leader in `current_leader_leader_id`, -1 if not known
current_leader_leader_id    broker id of the present leader, -1 if it is not known
current_state_timestamp    time in ms since 1970 at which the group came into its present state,
    -1 if it is not known
directories    id of the log directory of each replica, in the order of `replicas`
partition_change_record.directories    id of the log directory of each replica, in the order of
    the replicas; null if unchanged
diverging_epoch_end_offset    log offset at which the epoch `diverging_epoch_epoch` ends at the
    leader, -1 if the logs agree
diverging_epoch_epoch    leader epoch after whose end the follower's log differs from the leader's,
    -1 if the logs agree
documentation    what the setting does, null if it was not requested
eligible_leader_replicas    broker ids of the replicas outside the in-sync set that have all
    committed records; null for none
partition_change_record.eligible_leader_replicas    broker ids of the replicas outside the in-sync
    set that have all committed records; null if unchanged
enable2_pc    1 if another system decides the producer's transactions (two-phase commit)
end_points    the addresses at which it listens
entity    the parts that together name whom the quota limits
entity_name    name of the user, client id or address; null for the default of its type
entity_type    "user", "client-id" or "ip"
epoch    number of the broker's registration
error_code    0 or an error: see `ErrorCode`
error_message    the error as text, null for no text
expiration_timestamp    time in ms since 1970 at which the token expires unless it is renewed
expire_timestamp    time in ms since 1970 at which the offset expires, -1 for the broker's default
feature_level    level that the cluster uses; 0 removes the feature
features    the features that it supports
fenced    1 if the broker is registered but may not lead partitions yet
broker_registration_change_record.fenced    1 fenced, -1 no longer fenced, 0 unchanged
fetch_offset    log offset of the first wanted record
finalized_features    the features that the cluster uses
finalized_features_epoch    version of the list of used features, -1 if it is not known
first_offset    log offset of the first record of the transaction
forgotten_topics_data    topics with partitions that the fetch session shall no longer have
generation    number of the rebalance; each one adds 1
generation_id    number of the rebalance; each one adds 1
join_group_response.generation_id    number of the rebalance, -1 after an error
generation_id_or_member_epoch    number of the rebalance, or of the member's last assignment for a
    member that uses ConsumerGroupHeartbeat; -1 from a client that is not a member
group    id of the consumer group
group_id    id of the consumer group
group_instance_id    the member's fixed id, null for a member without one
groups    the consumer groups
heartbeat_interval_ms    ms until the member shall send the next heartbeat
high_watermark    log offset after the last record that all in-sync replicas have
fetch_request.partitions.high_watermark    the high watermark that the follower knows, -1 if it
    knows none, 9223372036854775807 if it does not send any
host    host name or address
access_control_entry_record.host    address that the rule applies to, "*" for all
fence_broker_record.id    id of the broker
unfence_broker_record.id    id of the broker
access_control_entry_record.id    id of the rule, as 16 bytes
remove_access_control_entry_record.id    id of the rule that is removed, as 16 bytes
register_broker_record.log_dirs.id    id of a log directory, as 16 bytes
register_broker_record.cordoned_log_dirs.id    id of a log directory, as 16 bytes
broker_registration_change_record.log_dirs.id    id of a log directory, as 16 bytes
broker_registration_change_record.cordoned_log_dirs.id    id of a log directory, as 16 bytes
partition_record.directories.id    id of a log directory, as 16 bytes
partition_change_record.directories.id    id of a log directory, as 16 bytes
in_controlled_shutdown    1 if the broker is shutting down in order
broker_registration_change_record.in_controlled_shutdown    1 if the broker begins to shut down in
    order, 0 unchanged
incarnation_id    id of this run of the process, as 16 bytes
include_cluster_authorized_operations    1 to ask for the operations allowed on the cluster
include_documentation    1 to ask for what the settings do
include_synonyms    1 to ask for all places where the settings have a value
include_topic_authorized_operations    1 to ask for the operations allowed on each topic
index    number of the partition
instance_id    the member's fixed id, null for a member without one or if it did not change
is_default    1 if the value is the default; only version 0 has the column
is_internal    1 for a topic of Kafka itself, such as __consumer_offsets
is_migrating_zk_broker    1 for a ZooKeeper broker that migrates to KRaft
is_sensitive    1 if the value is secret; then the broker sends null
isolation_level    0 READ_UNCOMMITTED, 1 READ_COMMITTED
isr    broker ids of the in-sync replicas
partition_change_record.isr    broker ids of the in-sync replicas; null if unchanged
isr_nodes    broker ids of the in-sync replicas
issue_timestamp    time in ms since 1970 at which the token was issued
iterations    number of rounds of the password's hash
keep_prepared_txn    1 to continue the prepared transaction instead of aborting it
key    name of the quota, such as "producer_byte_rate"
find_coordinator_request.key    the group or transactional producer whose coordinator is wanted
find_coordinator_response.coordinators.key    the group or transactional producer
key_type    0 the keys are groups, 1 transactional producers, 2 share partitions
last_fetched_epoch    leader epoch of the last fetched record, -1 if there is none
last_known_elr    broker ids of the last known eligible leaders: the last leader alone, while the
    partition has no leader; null for none
partition_change_record.last_known_elr    broker ids of the last known eligible leaders: the last
    leader alone, once the partition has no leader; empty once it has one; null if unchanged
last_stable_offset    log offset up to which all transactions are committed or aborted; -1 if the
    broker does not say
leader    broker id of the leader, -1 for none
partition_change_record.leader    broker id of the new leader, -1 for none, -2 if unchanged
group_metadata_value.leader    id of the member that assigns the partitions, null for none
join_group_response.leader    id of the member that assigns the partitions, empty after an error
leader_epoch    number of the leader's term, -1 if it is not known
leader_id    broker id of the leader, -1 for none
leader_recovery_state    0 recovered; 1 recovering, after an election that may have lost records
partition_change_record.leader_recovery_state    0 recovered, 1 recovering, -1 unchanged
log_append_time_ms    time in ms since 1970 that the broker gave the records; -1 if they keep
    those of the producer
log_dirs    ids of the log directories that are usable
broker_registration_change_record.log_dirs    ids of the log directories that are usable; no
    entries if unchanged
log_start_offset    first log offset that the partition still has, -1 if it is not known
fetch_request.partitions.log_start_offset    first log offset that the follower has, -1 from
    a consumer
max_bytes    bytes that the response may have; one batch may exceed them
max_num_offsets    greatest number of offsets that are wanted
max_supported_version    highest supported level of the feature
max_timestamp    time in ms since 1970 after which the token cannot be renewed
max_version    highest supported version
max_version_level    highest level of the feature that the cluster may use
max_wait_ms    ms that the broker may wait for `min_bytes`
mechanism    the SASL mechanism that the client chose, such as "PLAIN"
user_scram_credential_record.mechanism    1 SCRAM-SHA-256, 2 SCRAM-SHA-512
remove_user_scram_credential_record.mechanism    1 SCRAM-SHA-256, 2 SCRAM-SHA-512
mechanisms    the SASL mechanisms that the broker accepts
member_epoch    number of the member's last assignment
offset_fetch_request.groups.member_epoch    number of the member's last assignment, -1 if it does
    not use ConsumerGroupHeartbeat
consumer_group_heartbeat_request.member_epoch    number of the member's last assignment; 0 joins the
    group, -1 leaves it, -2 leaves it for a short time with a fixed id
member_id    id that the coordinator gave the member
consumer_group_heartbeat_request.member_id    id of the member, which it chose itself from version 1
    on; empty for a new member in version 0
consumer_group_heartbeat_response.member_id    id of the member, null if it is not sent
join_group_request.member_id    id that the coordinator gave the member, empty for a new member
offset_fetch_request.groups.member_id    id of the member, null if the client is not a member
members    the members of the group
join_group_response.members    the members of the group, for the member that assigns; otherwise no
    entries
leave_group_request.members    the members that leave
leave_group_response.members    the members that left
metadata    text that the client stored with the offset
join_group_request.protocols.metadata    what the member tells the assigning member, as the protocol
    encodes it; for a consumer its topics
join_group_response.members.metadata    what the member tells the assigning member, as the protocol
    encodes it; for a consumer its topics
offset_fetch_response.topics.partitions.metadata    text that the client stored with the offset,
    null for none
offset_fetch_response.groups.topics.partitions.metadata    text that the client stored with the
    offset, null for none
min_bytes    bytes that the broker waits for before it answers
min_supported_version    lowest supported level of the feature
min_version    lowest supported version
min_version_level    lowest level of the feature that the cluster may use
name    name of the topic
sasl_handshake_response.mechanisms.name    name of a SASL mechanism
metadata_request.topics.name    name of the topic, null if `topic_id` names it
metadata_response.topics.name    name of the topic, null if the asked id is not known
api_versions_response.supported_features.name    name of the feature
api_versions_response.finalized_features.name    name of the feature
register_broker_record.end_points.name    name of the listener
register_broker_record.features.name    name of the feature
register_controller_record.end_points.name    name of the listener
register_controller_record.features.name    name of the feature
config_record.name    name of the setting
delegation_token_record.renewers.name    who may renew the token, as in "User:alice"
user_scram_credential_record.name    name of the user
remove_user_scram_credential_record.name    name of the user
feature_level_record.name    name of the feature
begin_transaction_record.name    what the transaction of the metadata log does, null for no text
find_coordinator_request.coordinator_keys.name    a group or transactional producer
join_group_request.protocols.name    a way to assign partitions, such as "range"
create_topics_request.configs.name    name of the setting
create_topics_response.configs.name    name of the setting
describe_configs_request.configuration_keys.name    name of the setting
describe_configs_response.configs.name    name of the setting
describe_configs_response.synonyms.name    name under which the setting has this value
consumer_group_heartbeat_request.subscribed_topic_names.name    name of a topic
next_producer_epoch    epoch that the producer gets next, -1 for none
next_producer_id    producer id that the producer gets next, -1 for none
producer_ids_record.next_producer_id    first producer id that no broker has got yet
node_endpoints    addresses of the brokers that lead the partitions of the response
node_id    id of the broker
api_versions_request.node_id    id of the broker that the client expects, -1 for any
find_coordinator_response.node_id    broker id of the coordinator, -1 after an error
find_coordinator_response.coordinators.node_id    broker id of the coordinator, -1 after an error
num_partitions    number of partitions, -1 if the broker does not say
create_topics_request.topics.num_partitions    number of partitions; -1 for the broker's default or
    if `assignments` has entries
offline_replicas    broker ids of the replicas that are not available
offset    log offset that was found, -1 for none
offset_commit_value.offset    log offset of the next record that the group reads
old_style_offsets    first log offsets of the segments that were last changed up to the wanted
    time, the highest first; the end of the log precedes them if the wanted time is the latest
ongoing_txn_producer_epoch    producer epoch of the open transaction, -1 for none
ongoing_txn_producer_id    producer id of the open transaction, -1 for none
operation    the operation that the rule is about, as a number of Kafka's AclOperation
owner    whom the token stands for, as in "User:alice"
partition    number of the partition
partition_data    the partitions of the topic
partition_epoch    version of the partition's state; each change adds 1
partition_error_code    0 or an error: see `ErrorCode`
partition_id    number of the partition
partition_ids    numbers of the partitions
partition_index    number of the partition
partition_indexes    numbers of the partitions
partition_max_bytes    bytes that the partition may have in the response; one batch may exceed them
partition_responses    the partitions of the topic
partitions    the partitions of the topic
fetch_request.forgotten_topics_data.partitions    numbers of the partitions
add_partitions_to_txn_request.topics.partitions    numbers of the partitions
add_partitions_to_txn_request.v3_and_below_topics.partitions    numbers of the partitions
consumer_group_heartbeat_request.topic_partitions.partitions    numbers of the partitions
consumer_group_heartbeat_response.assignment_topic_partitions.partitions    numbers of the
    partitions
pattern_type    3 `resource_name` is a whole name, 4 it is the beginning of names
permission_type    2 the rule denies, 3 it allows
port    TCP port
preferred_read_replica    broker id of the replica that the consumer should read, -1 for none
previous_producer_id    producer id of the last committed transaction, -1 for none
principal    whom the rule applies to, as in "User:alice"
producer_epoch    number of the producer's term; a producer with a lower one is refused
init_producer_id_request.producer_epoch    epoch that the producer has, -1 for a new one
end_txn_response.producer_epoch    epoch for the next transaction, -1 if it does not change
producer_id    id of the producer
init_producer_id_request.producer_id    id that the producer has, -1 for a new one
init_producer_id_response.producer_id    id of the producer, -1 after an error
end_txn_response.producer_id    producer id for the next transaction, -1 if it does not change
protocol    how partitions are assigned, such as "range"; null before the members agreed
protocol_name    the way to assign partitions that the group chose, null or empty for none
protocol_type    the purpose of the group, such as "consumer"
sync_group_request.protocol_type    the purpose of the group, null if it is not sent
sync_group_response.protocol_type    the purpose of the group, null after an error
join_group_response.protocol_type    the purpose of the group, null after an error
protocols    the ways to assign partitions that the member supports, the preferred one first
rack    the rack or zone of the broker, null for none
rack_id    the rack or zone of the consumer, empty for none
consumer_group_heartbeat_request.rack_id    the rack or zone of the consumer; null for none or if it
    did not change
read_only    1 if the setting cannot be changed
reason    why the transaction of the metadata log was aborted, null for no text
join_group_request.reason    why the member joins, null for no text
leave_group_request.members.reason    why the member leaves, null for no text
rebalance_timeout    ms that the member has to join a rebalance, -1 if the version has no such field
rebalance_timeout_ms    ms that the member has to join a rebalance, -1 if the version has no such
    field
consumer_group_heartbeat_request.rebalance_timeout_ms    ms that the member has to give up
    partitions, -1 if they did not change
record_errors    the records for which the batch was refused
records    record batches, as kafka.batches reads them; null for none
remove    1 if the quota is removed
removing_replicas    broker ids of the replicas that a reassignment removes
partition_change_record.removing_replicas    broker ids of the replicas that a reassignment
    removes; null if unchanged
partition_change_record.adding_replicas    broker ids of the replicas that a reassignment adds;
    null if unchanged
renewers    who may renew the token
replica_directory_id    id of the log directory of the follower, as 16 bytes; null if not sent
replica_id    broker id of the follower that asks, -1 from a consumer
replica_nodes    broker ids of the replicas, the preferred leader first
replica_state_replica_epoch    number of the follower's registration, -1 if it is not known
replica_state_replica_id    broker id of the follower that asks, -1 from a consumer
replicas    broker ids of the replicas, the preferred leader first
partition_change_record.replicas    broker ids of the replicas; null if unchanged
replication_factor    number of replicas, -1 if the broker does not say
create_topics_request.topics.replication_factor    number of replicas; -1 for the broker's default
    or if `assignments` has entries
requester    who asked for the token, as in "User:alice"
require_stable    1 to ask again later instead of an offset that an open transaction may change
resource_name    name of the resource that the record is about
config_record.resource_name    name of the topic, broker or other resource; empty for the default
    of all brokers
describe_configs_request.resources.resource_name    name of the topic, broker or other resource
describe_configs_response.results.resource_name    name of the topic, broker or other resource
resource_type    kind of the resource, as a number of Kafka's ResourceType
config_record.resource_type    2 topic, 4 broker, 8 logger of a broker, 16 client metrics, 32 group
describe_configs_request.resources.resource_type    2 topic, 4 broker, 8 logger of a broker, 16
    client metrics, 32 group
describe_configs_response.results.resource_type    2 topic, 4 broker, 8 logger of a broker, 16
    client metrics, 32 group
resources    the topics, brokers and other resources whose settings are wanted
responses    the topics of the response
results    the resources with their settings
results_by_partition    the partitions of the topic
results_by_topic_v3_and_below    the topics of the transaction, up to version 3
results_by_transaction    the transactions, from version 4 on
retention_time_ms    ms that the broker keeps the offsets, -1 for its default
salt    salt of the password's hash; null in a table without credentials
security_protocol    0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL
server_assignor    how the coordinator assigns partitions, such as "uniform"; null for its default
    or if it did not change
server_key    key by which the server proves itself; null in a table without credentials
session_epoch    number of the request in its fetch session: 0 opens a session, -1 ends it or
    asks without one
session_id    id of the fetch session, 0 for none
session_lifetime_ms    ms until the client must authenticate again, 0 for no bound
session_timeout    ms without a heartbeat after which the member leaves the group
session_timeout_ms    ms without a heartbeat after which the member leaves the group
skip_assignment    1 if the member in `leader` shall not assign partitions
snapshot_id_end_offset    log offset at which the snapshot ends that is fetched instead, -1 for none
snapshot_id_epoch    leader epoch of the snapshot that is fetched instead, -1 for none
source    where the value comes from, as in `config_source`
stored_key    hash that proves the password; null in a table without credentials
subscribed_topic_names    names of the topics that the member reads, null if they did not change
subscribed_topic_regex    pattern of the topics that the member reads; null for none or if it did
    not change
subscription    the topics of the member, as the protocol of the group encodes them
supported_features    the features that the broker supports
synonyms    the places where the setting has a value, the one that counts first
throttle_time_ms    ms that the broker delays the client because of a quota
timeout_ms    ms that the broker may take to answer
produce_request.timeout_ms    ms that the broker may wait for the acknowledgments
create_topics_request.timeout_ms    ms that the broker may take to create the topics
timestamp    time in ms since 1970 of the record at `offset`, -1 for none
list_offsets_request.partitions.timestamp    time in ms since 1970 whose first offset is wanted; or
    -1 the end, -2 the start, -3 the record with the highest timestamp, -4 the start on the
    broker's own disks, -5 the end of what is in tiered storage
token_id    id of the delegation token
topic    name of the topic
topic_authorized_operations    bits of the operations that are allowed on the topic;
    -2147483648 if they were not requested
topic_config_error_code    why `configs` is null: see `ErrorCode`; otherwise 0
topic_data    the topics with their records
topic_id    id of the topic, as 16 bytes; null if the version does not have it
create_topics_response.topics.topic_id    id of the new topic, as 16 bytes; null if the version does
    not have it
topic_name    name of the topic; empty for all topics
topic_partitions    the partitions that the member has, null if they did not change
topic_results    the topics of the transaction
topics    the topics of the message
metadata_request.topics    the topics that are asked for; null for all, in version 0 no entries
create_topics_request.topics    the topics to create
offset_fetch_request.topics    the topics that are asked for, up to version 7; null for all
offset_fetch_request.groups.topics    the topics that are asked for; null for all
transaction_last_update_timestamp_ms    time in ms since 1970 of the last change
transaction_partitions    the partitions of the transaction; null for none
transaction_start_timestamp_ms    time in ms since 1970 at which the transaction began
transaction_status    0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit,
    5 CompleteAbort, 6 Dead, 7 PrepareEpochFence
transaction_timeout_ms    ms after which the coordinator aborts an open transaction
transactional_id    id of the transactional producer
produce_request.transactional_id    id of the transactional producer, null for no transaction
init_producer_id_request.transactional_id    id of the transactional producer, null for no
    transactions
transactions    the transactions, from version 4 on
v3_and_below_producer_epoch    number of the producer's term, up to version 3
v3_and_below_producer_id    id of the producer, up to version 3
v3_and_below_topics    the topics of the transaction, up to version 3
v3_and_below_transactional_id    id of the transactional producer, up to version 3
validate_only    1 to check the topics without creating them
value    value of the setting, null if it is removed
client_quota_record.value    the limit, in the unit of the quota
create_topics_request.configs.value    value of the setting, null for the default
create_topics_response.configs.value    value of the setting, null if it is secret
describe_configs_response.configs.value    value of the setting, null if it is secret
describe_configs_response.synonyms.value    value of the setting there, null if it is secret
verify_only    1 to check that the partitions are in the transaction, without adding them
zk_migration_ready    1 if it is ready for a migration from ZooKeeper
zk_migration_state    0 never in ZooKeeper, 1 the metadata is written to both, 2 before the
    migration, 3 after it; Kafka 3.4 wrote 1 for 2
"""

_LINE = re.compile(r"([\w.]+) {2,}(.*)")


def _parse(table: str) -> dict[str, str]:
    """Return the meanings of a table by their fields."""
    meanings: dict[str, str] = {}
    # A deeper line continues the meaning before it.
    for line in re.sub(r"\n +", " ", table.strip("\n")).split("\n"):
        match = _LINE.fullmatch(line)
        assert match is not None and match[1] not in meanings, line
        meanings[match[1]] = match[2]
    return meanings


FIELD_MEANINGS = _parse(SHARED_AND_OWN)


def find_meaning(path: str, name: str) -> str:
    """Return the meaning of a field; empty if the table does not have it.

    path: that of the level, as in "fetch_request.partitions". name: of the column or place.
    """
    return FIELD_MEANINGS.get(f"{path}.{name}") or FIELD_MEANINGS.get(name, "")
