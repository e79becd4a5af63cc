"""The messages of Kafka's protocol in all versions, as a table. The kernel and the encoders use it.

schema.py parses this table. To add an API or a version, add a line here.

APIS has a line for each API: its key, its name, the newest version, and the first flexible version
("-": none). MESSAGES has the bodies of those APIs that can be opened. A message begins in the first
column with its name, its versions and its first flexible version. The indentation of a field shows
the struct that it belongs to:

    name  type  [versions]  [tag N]  [= default]

    versions    3+, 0-12 or 8: the versions of the struct that have the field; the default is all
    type        bool, int8, int16, int32, int64; string, bytes, records, uuid;
                struct: its fields follow; []int32, []int64: an array of numbers;
                []string: an array of strings, with the name `name` in their rows;
                []: an array of structs, whose fields follow
                ?: the field may be null; ?10+: it may be null from version 10 on; a byte precedes
                a struct that may be null
    tag N       a tagged field, which only flexible versions have
    default     the value of a field that a message does not have; otherwise 0 or null

Names are Kafka's, in snake case. Source: the message definitions of Apache Kafka 0.8 to 4.4
(clients/src/main/resources/common/message; those of the coordinators for the records of
__consumer_offsets and __transaction_state). For version 0, "A Guide To The Kafka Protocol" (0.8).
"""

APIS = """
 0  Produce                               13   9
 1  Fetch                                 18  12
 2  ListOffsets                           11   6
 3  Metadata                              13   9
 4  LeaderAndIsr                           7   4
 5  StopReplica                            4   2
 6  UpdateMetadata                         8   6
 7  ControlledShutdown                     3   3
 8  OffsetCommit                          10   8
 9  OffsetFetch                           10   6
10  FindCoordinator                        6   3
11  JoinGroup                              9   6
12  Heartbeat                              4   4
13  LeaveGroup                             5   4
14  SyncGroup                              5   4
15  DescribeGroups                         6   5
16  ListGroups                             5   3
17  SaslHandshake                          1   -
18  ApiVersions                            5   3
19  CreateTopics                           7   5
20  DeleteTopics                           6   4
21  DeleteRecords                          2   2
22  InitProducerId                         6   2
23  OffsetForLeaderEpoch                   4   4
24  AddPartitionsToTxn                     5   3
25  AddOffsetsToTxn                        4   3
26  EndTxn                                 5   3
27  WriteTxnMarkers                        2   1
28  TxnOffsetCommit                        6   3
29  DescribeAcls                           3   2
30  CreateAcls                             3   2
31  DeleteAcls                             3   2
32  DescribeConfigs                        4   4
33  AlterConfigs                           2   2
34  AlterReplicaLogDirs                    2   2
35  DescribeLogDirs                        5   2
36  SaslAuthenticate                       2   2
37  CreatePartitions                       3   2
38  CreateDelegationToken                  3   2
39  RenewDelegationToken                   2   2
40  ExpireDelegationToken                  2   2
41  DescribeDelegationToken                3   2
42  DeleteGroups                           3   2
43  ElectLeaders                           2   2
44  IncrementalAlterConfigs                1   1
45  AlterPartitionReassignments            1   0
46  ListPartitionReassignments             0   0
47  OffsetDelete                           0   -
48  DescribeClientQuotas                   1   1
49  AlterClientQuotas                      1   1
50  DescribeUserScramCredentials           0   0
51  AlterUserScramCredentials              0   0
52  Vote                                   2   0
53  BeginQuorumEpoch                       1   1
54  EndQuorumEpoch                         1   1
55  DescribeQuorum                         2   0
56  AlterPartition                         3   0
57  UpdateFeatures                         2   0
58  Envelope                               0   0
59  FetchSnapshot                          1   0
60  DescribeCluster                        2   0
61  DescribeProducers                      0   0
62  BrokerRegistration                     4   0
63  BrokerHeartbeat                        2   0
64  UnregisterBroker                       0   0
65  DescribeTransactions                   0   0
66  ListTransactions                       2   0
67  AllocateProducerIds                    0   0
68  ConsumerGroupHeartbeat                 1   0
69  ConsumerGroupDescribe                  1   0
70  ControllerRegistration                 0   0
71  GetTelemetrySubscriptions              0   0
72  PushTelemetry                          0   0
73  AssignReplicasToDirs                   0   0
74  ListConfigResources                    1   0
75  DescribeTopicPartitions                0   0
76  ShareGroupHeartbeat                    1   0
77  ShareGroupDescribe                     1   0
78  ShareFetch                             2   0
79  ShareAcknowledge                       2   0
80  AddRaftVoter                           1   0
81  RemoveRaftVoter                        0   0
82  UpdateRaftVoter                        0   0
83  InitializeShareGroupState              0   0
84  ReadShareGroupState                    0   0
85  WriteShareGroupState                   1   0
86  DeleteShareGroupState                  0   0
87  ReadShareGroupStateSummary             1   0
88  StreamsGroupHeartbeat                  1   0
89  StreamsGroupDescribe                   1   0
90  DescribeShareGroupOffsets              1   0
91  AlterShareGroupOffsets                 0   0
92  DeleteShareGroupOffsets                0   0
93  StreamsGroupTopologyDescriptionUpdate  0   0
94  UnregisterController                   0   0
"""

MESSAGES = """
Produce request 0-13 flexible 9
    transactional_id                        string?     3+
    acks                                    int16
    timeout_ms                              int32
    topic_data                              []
        name                                string      0-12
        topic_id                            uuid        13+
        partition_data                      []
            index                           int32
            records                         records?

Produce response 0-13 flexible 9
    responses                               []
        name                                string      0-12
        topic_id                            uuid        13+
        partition_responses                 []
            index                           int32
            error_code                      int16
            base_offset                     int64
            log_append_time_ms              int64       2+ = -1
            log_start_offset                int64       5+ = -1
            record_errors                   []          8+
                batch_index                 int32
                batch_index_error_message   string?
            error_message                   string?     8+
            current_leader                  struct      10+ tag 0
                leader_id                   int32       = -1
                leader_epoch                int32       = -1
    throttle_time_ms                        int32       1+
    node_endpoints                          []          10+ tag 0
        node_id                             int32
        host                                string
        port                                int32
        rack                                string?

Fetch request 0-18 flexible 12
    cluster_id                              string?     12+ tag 0
    replica_id                              int32       0-14 = -1
    replica_state                           struct      15+ tag 1
        replica_id                          int32       = -1
        replica_epoch                       int64       = -1
    max_wait_ms                             int32
    min_bytes                               int32
    max_bytes                               int32       3+ = 2147483647
    isolation_level                         int8        4+
    session_id                              int32       7+
    session_epoch                           int32       7+ = -1
    topics                                  []
        topic                               string      0-12
        topic_id                            uuid        13+
        partitions                          []
            partition                       int32
            current_leader_epoch            int32       9+ = -1
            fetch_offset                    int64
            last_fetched_epoch              int32       12+ = -1
            log_start_offset                int64       5+ = -1
            partition_max_bytes             int32
            replica_directory_id            uuid        17+ tag 0
            high_watermark                  int64       18+ tag 1 = 9223372036854775807
    forgotten_topics_data                   []          7+
        topic                               string      7-12
        topic_id                            uuid        13+
        partitions                          []int32
    rack_id                                 string      11+

Fetch response 0-18 flexible 12
    throttle_time_ms                        int32       1+
    error_code                              int16       7+
    session_id                              int32       7+
    responses                               []
        topic                               string      0-12
        topic_id                            uuid        13+
        partitions                          []
            partition_index                 int32
            error_code                      int16
            high_watermark                  int64
            last_stable_offset              int64       4+ = -1
            log_start_offset                int64       5+ = -1
            diverging_epoch                 struct      12+ tag 0
                epoch                       int32       = -1
                end_offset                  int64       = -1
            current_leader                  struct      12+ tag 1
                leader_id                   int32       = -1
                leader_epoch                int32       = -1
            snapshot_id                     struct      12+ tag 2
                end_offset                  int64       = -1
                epoch                       int32       = -1
            aborted_transactions            []?         4+
                producer_id                 int64
                first_offset                int64
            preferred_read_replica          int32       11+ = -1
            records                         records?
    node_endpoints                          []          16+ tag 0
        node_id                             int32
        host                                string
        port                                int32
        rack                                string?

ListOffsets request 0-11 flexible 6
    replica_id                              int32
    isolation_level                         int8        2+
    topics                                  []
        name                                string
        partitions                          []
            partition_index                 int32
            current_leader_epoch            int32       4+ = -1
            timestamp                       int64
            max_num_offsets                 int32       0 = 1
    timeout_ms                              int32       10+

ListOffsets response 0-11 flexible 6
    throttle_time_ms                        int32       2+
    topics                                  []
        name                                string
        partitions                          []
            partition_index                 int32
            error_code                      int16
            old_style_offsets               []int64     0
            timestamp                       int64       1+ = -1
            offset                          int64       1+ = -1
            leader_epoch                    int32       4+ = -1

Metadata request 0-13 flexible 9
    topics                                  []?1+
        topic_id                            uuid        10+
        name                                string?10+
    allow_auto_topic_creation               bool        4+ = true
    include_cluster_authorized_operations   bool        8-10
    include_topic_authorized_operations     bool        8+

Metadata response 0-13 flexible 9
    throttle_time_ms                        int32       3+
    brokers                                 []
        node_id                             int32
        host                                string
        port                                int32
        rack                                string?     1+
    cluster_id                              string?     2+
    controller_id                           int32       1+ = -1
    topics                                  []
        error_code                          int16
        name                                string?12+
        topic_id                            uuid        10+
        is_internal                         bool        1+
        partitions                          []
            error_code                      int16
            partition_index                 int32
            leader_id                       int32
            leader_epoch                    int32       7+ = -1
            replica_nodes                   []int32
            isr_nodes                       []int32
            offline_replicas                []int32     5+
        topic_authorized_operations         int32       8+ = -2147483648
    cluster_authorized_operations           int32       8-10 = -2147483648
    error_code                              int16       13+

SaslHandshake request 0-1
    mechanism                               string

SaslHandshake response 0-1
    error_code                              int16
    mechanisms                              []string

ApiVersions request 0-5 flexible 3
    client_software_name                    string      3+
    client_software_version                 string      3+
    cluster_id                              string?     5+
    node_id                                 int32       5+ = -1

ApiVersions response 0-5 flexible 3
    error_code                              int16
    api_keys                                []
        api_key                             int16
        min_version                         int16
        max_version                         int16
    throttle_time_ms                        int32       1+
    supported_features                      []          3+ tag 0
        name                                string
        min_version                         int16
        max_version                         int16
    finalized_features_epoch                int64       3+ tag 1 = -1
    finalized_features                      []          3+ tag 2
        name                                string
        max_version_level                   int16
        min_version_level                   int16
    zk_migration_ready                      bool        3+ tag 3

InitProducerId request 0-6 flexible 2
    transactional_id                        string?
    transaction_timeout_ms                  int32
    producer_id                             int64       3+ = -1
    producer_epoch                          int16       3+ = -1
    enable2_pc                              bool        6+
    keep_prepared_txn                       bool        6+

InitProducerId response 0-6 flexible 2
    throttle_time_ms                        int32
    error_code                              int16
    producer_id                             int64       = -1
    producer_epoch                          int16
    ongoing_txn_producer_id                 int64       6+ = -1
    ongoing_txn_producer_epoch              int16       6+ = -1

SaslAuthenticate request 0-2 flexible 2
    auth_bytes                              bytes

SaslAuthenticate response 0-2 flexible 2
    error_code                              int16
    error_message                           string?
    auth_bytes                              bytes
    session_lifetime_ms                     int64       1+

OffsetCommit request 0-10 flexible 8
    group_id                                string
    generation_id_or_member_epoch           int32       1+ = -1
    member_id                               string      1+
    group_instance_id                       string?     7+
    retention_time_ms                       int64       2-4 = -1
    topics                                  []
        name                                string      0-9
        topic_id                            uuid        10+
        partitions                          []
            partition_index                 int32
            committed_offset                int64
            committed_leader_epoch          int32       6+ = -1
            commit_timestamp                int64       1 = -1
            committed_metadata              string?

OffsetCommit response 0-10 flexible 8
    throttle_time_ms                        int32       3+
    topics                                  []
        name                                string      0-9
        topic_id                            uuid        10+
        partitions                          []
            partition_index                 int32
            error_code                      int16

OffsetFetch request 0-10 flexible 6
    group_id                                string      0-7
    topics                                  []?2+       0-7
        name                                string
        partition_indexes                   []int32
    groups                                  []          8+
        group_id                            string
        member_id                           string?     9+
        member_epoch                        int32       9+ = -1
        topics                              []?
            name                            string      8-9
            topic_id                        uuid        10+
            partition_indexes               []int32
    require_stable                          bool        7+

OffsetFetch response 0-10 flexible 6
    throttle_time_ms                        int32       3+
    topics                                  []          0-7
        name                                string
        partitions                          []
            partition_index                 int32
            committed_offset                int64
            committed_leader_epoch          int32       5+ = -1
            metadata                        string?
            error_code                      int16
    error_code                              int16       2-7
    groups                                  []          8+
        group_id                            string
        topics                              []
            name                            string      8-9
            topic_id                        uuid        10+
            partitions                      []
                partition_index             int32
                committed_offset            int64
                committed_leader_epoch      int32       = -1
                metadata                    string?
                error_code                  int16
        error_code                          int16

FindCoordinator request 0-6 flexible 3
    key                                     string      0-3
    key_type                                int8        1+
    coordinator_keys                        []string    4+

FindCoordinator response 0-6 flexible 3
    throttle_time_ms                        int32       1+
    error_code                              int16       0-3
    error_message                           string?     1-3
    node_id                                 int32       0-3
    host                                    string      0-3
    port                                    int32       0-3
    coordinators                            []          4+
        key                                 string
        node_id                             int32
        host                                string
        port                                int32
        error_code                          int16
        error_message                       string?

JoinGroup request 0-9 flexible 6
    group_id                                string
    session_timeout_ms                      int32
    rebalance_timeout_ms                    int32       1+ = -1
    member_id                               string
    group_instance_id                       string?     5+
    protocol_type                           string
    protocols                               []
        name                                string
        metadata                            bytes
    reason                                  string?     8+

JoinGroup response 0-9 flexible 6
    throttle_time_ms                        int32       2+
    error_code                              int16
    generation_id                           int32       = -1
    protocol_type                           string?     7+
    protocol_name                           string?7+
    leader                                  string
    skip_assignment                         bool        9+
    member_id                               string
    members                                 []
        member_id                           string
        group_instance_id                   string?     5+
        metadata                            bytes

Heartbeat request 0-4 flexible 4
    group_id                                string
    generation_id                           int32
    member_id                               string
    group_instance_id                       string?     3+

Heartbeat response 0-4 flexible 4
    throttle_time_ms                        int32       1+
    error_code                              int16

LeaveGroup request 0-5 flexible 4
    group_id                                string
    member_id                               string      0-2
    members                                 []          3+
        member_id                           string
        group_instance_id                   string?
        reason                              string?     5+

LeaveGroup response 0-5 flexible 4
    throttle_time_ms                        int32       1+
    error_code                              int16
    members                                 []          3+
        member_id                           string
        group_instance_id                   string?
        error_code                          int16

SyncGroup request 0-5 flexible 4
    group_id                                string
    generation_id                           int32
    member_id                               string
    group_instance_id                       string?     3+
    protocol_type                           string?     5+
    protocol_name                           string?     5+
    assignments                             []
        member_id                           string
        assignment                          bytes

SyncGroup response 0-5 flexible 4
    throttle_time_ms                        int32       1+
    error_code                              int16
    protocol_type                           string?     5+
    protocol_name                           string?     5+
    assignment                              bytes

CreateTopics request 0-7 flexible 5
    topics                                  []
        name                                string
        num_partitions                      int32
        replication_factor                  int16
        assignments                         []
            partition_index                 int32
            broker_ids                      []int32
        configs                             []
            name                            string
            value                           string?
    timeout_ms                              int32       = 60000
    validate_only                           bool        1+

CreateTopics response 0-7 flexible 5
    throttle_time_ms                        int32       2+
    topics                                  []
        name                                string
        topic_id                            uuid        7+
        error_code                          int16
        error_message                       string?     1+
        topic_config_error_code             int16       5+ tag 0
        num_partitions                      int32       5+ = -1
        replication_factor                  int16       5+ = -1
        configs                             []?         5+
            name                            string
            value                           string?
            read_only                       bool
            config_source                   int8        = -1
            is_sensitive                    bool

AddPartitionsToTxn request 0-5 flexible 3
    transactions                            []          4+
        transactional_id                    string
        producer_id                         int64
        producer_epoch                      int16
        verify_only                         bool
        topics                              []
            name                            string
            partitions                      []int32
    v3_and_below_transactional_id           string      0-3
    v3_and_below_producer_id                int64       0-3
    v3_and_below_producer_epoch             int16       0-3
    v3_and_below_topics                     []          0-3
        name                                string
        partitions                          []int32

AddPartitionsToTxn response 0-5 flexible 3
    throttle_time_ms                        int32
    error_code                              int16       4+
    results_by_transaction                  []          4+
        transactional_id                    string
        topic_results                       []
            name                            string
            results_by_partition            []
                partition_index             int32
                partition_error_code        int16
    results_by_topic_v3_and_below           []          0-3
        name                                string
        results_by_partition                []
            partition_index                 int32
            partition_error_code            int16

AddOffsetsToTxn request 0-4 flexible 3
    transactional_id                        string
    producer_id                             int64
    producer_epoch                          int16
    group_id                                string

AddOffsetsToTxn response 0-4 flexible 3
    throttle_time_ms                        int32
    error_code                              int16

EndTxn request 0-5 flexible 3
    transactional_id                        string
    producer_id                             int64
    producer_epoch                          int16
    committed                               bool

EndTxn response 0-5 flexible 3
    throttle_time_ms                        int32
    error_code                              int16
    producer_id                             int64       5+ = -1
    producer_epoch                          int16       5+ = -1

TxnOffsetCommit request 0-6 flexible 3
    transactional_id                        string
    group_id                                string
    producer_id                             int64
    producer_epoch                          int16
    generation_id_or_member_epoch           int32       3+ = -1
    member_id                               string      3+
    group_instance_id                       string?     3+
    topics                                  []
        name                                string      0-5
        topic_id                            uuid        6+
        partitions                          []
            partition_index                 int32
            committed_offset                int64
            committed_leader_epoch          int32       2+ = -1
            committed_metadata              string?

TxnOffsetCommit response 0-6 flexible 3
    throttle_time_ms                        int32
    topics                                  []
        name                                string      0-5
        topic_id                            uuid        6+
        partitions                          []
            partition_index                 int32
            error_code                      int16

DescribeConfigs request 0-4 flexible 4
    resources                               []
        resource_type                       int8
        resource_name                       string
        configuration_keys                  []string?
    include_synonyms                        bool        1+
    include_documentation                   bool        3+

DescribeConfigs response 0-4 flexible 4
    throttle_time_ms                        int32
    results                                 []
        error_code                          int16
        error_message                       string?
        resource_type                       int8
        resource_name                       string
        configs                             []
            name                            string
            value                           string?
            read_only                       bool
            is_default                      bool        0
            config_source                   int8        1+ = -1
            is_sensitive                    bool
            synonyms                        []          1+
                name                        string
                value                       string?
                source                      int8
            config_type                     int8        3+
            documentation                   string?     3+

ConsumerGroupHeartbeat request 0-1 flexible 0
    group_id                                string
    member_id                               string
    member_epoch                            int32
    instance_id                             string?
    rack_id                                 string?
    rebalance_timeout_ms                    int32       = -1
    subscribed_topic_names                  []string?
    subscribed_topic_regex                  string?     1+
    server_assignor                         string?
    topic_partitions                        []?
        topic_id                            uuid
        partitions                          []int32

ConsumerGroupHeartbeat response 0-1 flexible 0
    throttle_time_ms                        int32
    error_code                              int16
    error_message                           string?
    member_id                               string?
    member_epoch                            int32
    heartbeat_interval_ms                   int32
    assignment                              struct?
        topic_partitions                    []
            topic_id                        uuid
            partitions                      []int32

OffsetCommit key 0-1
    group                                   string
    topic                                   string
    partition                               int32

OffsetCommit value 0-4 flexible 4
    offset                                  int64
    leader_epoch                            int32       3+ = -1
    metadata                                string
    commit_timestamp                        int64
    expire_timestamp                        int64       1 = -1
    topic_id                                uuid        4+ tag 0

GroupMetadata key 2
    group                                   string

GroupMetadata value 0-4 flexible 4
    protocol_type                           string
    generation                              int32
    protocol                                string?
    leader                                  string?
    current_state_timestamp                 int64       2+ = -1
    members                                 []
        member_id                           string
        group_instance_id                   string?     3+
        client_id                           string
        client_host                         string
        rebalance_timeout                   int32       1+ = -1
        session_timeout                     int32
        subscription                        bytes
        assignment                          bytes

TransactionLog key 0
    transactional_id                        string

TransactionLog value 0-1 flexible 1
    producer_id                             int64
    previous_producer_id                    int64       1+ tag 0 = -1
    next_producer_id                        int64       1+ tag 1 = -1
    producer_epoch                          int16
    next_producer_epoch                     int16       1+ tag 3 = -1
    transaction_timeout_ms                  int32
    transaction_status                      int8
    transaction_partitions                  []?
        topic                               string
        partition_ids                       []int32
    transaction_last_update_timestamp_ms    int64
    transaction_start_timestamp_ms          int64
    client_transaction_version              int16       1+ tag 2
"""
