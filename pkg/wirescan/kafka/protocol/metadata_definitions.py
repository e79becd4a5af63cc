"""The records of Kafka's metadata log in all versions, as a table. schema.py parses it.

METADATA_TYPES has a line for each type of record: its number and its name. METADATA_MESSAGES has
their fields. The notation is that of api_definitions.py, and it has three more types:

    uint16      a number without a sign
    float64     a floating-point number
    []uuid      an array of uuids, with the name `id` in their rows

Names are Kafka's, in snake case, without the ending "Record". Source: the message definitions of
Apache Kafka 3.9 and 4.4 (metadata/src/main/resources/common/metadata).
"""

METADATA_TYPES = """
 0  RegisterBroker
 1  UnregisterBroker
 2  Topic
 3  Partition
 4  Config
 5  PartitionChange
 7  FenceBroker
 8  UnfenceBroker
 9  RemoveTopic
10  DelegationToken
11  UserScramCredential
12  FeatureLevel
14  ClientQuota
15  ProducerIds
17  BrokerRegistrationChange
18  AccessControlEntry
19  RemoveAccessControlEntry
20  NoOp
21  ZkMigrationState
22  RemoveUserScramCredential
23  BeginTransaction
24  EndTransaction
25  AbortTransaction
26  RemoveDelegationToken
27  RegisterController
28  ClearElr
29  UnregisterController
"""

METADATA_MESSAGES = """
RegisterBroker record 0-4 flexible 0
    broker_id                               int32
    is_migrating_zk_broker                  bool        2+
    incarnation_id                          uuid
    broker_epoch                            int64
    end_points                              []
        name                                string
        host                                string
        port                                uint16
        security_protocol                   int16
    features                                []
        name                                string
        min_supported_version               int16
        max_supported_version               int16
    rack                                    string?
    fenced                                  bool        = true
    in_controlled_shutdown                  bool        1+
    log_dirs                                []uuid      3+ tag 0
    cordoned_log_dirs                       []uuid?     4+ tag 1

UnregisterBroker record 0 flexible 0
    broker_id                               int32
    broker_epoch                            int64

Topic record 0 flexible 0
    name                                    string
    topic_id                                uuid

Partition record 0-2 flexible 0
    partition_id                            int32       = -1
    topic_id                                uuid
    replicas                                []int32
    isr                                     []int32
    removing_replicas                       []int32
    adding_replicas                         []int32
    leader                                  int32       = -1
    leader_recovery_state                   int8        tag 0
    leader_epoch                            int32       = -1
    partition_epoch                         int32       = -1
    directories                             []uuid      1+
    eligible_leader_replicas                []int32?    2+ tag 1
    last_known_elr                          []int32?    2+ tag 2

Config record 0 flexible 0
    resource_type                           int8
    resource_name                           string
    name                                    string
    value                                   string?

PartitionChange record 0-2 flexible 0
    partition_id                            int32       = -1
    topic_id                                uuid
    isr                                     []int32?    tag 0
    leader                                  int32       tag 1 = -2
    replicas                                []int32?    tag 2
    removing_replicas                       []int32?    tag 3
    adding_replicas                         []int32?    tag 4
    leader_recovery_state                   int8        tag 5 = -1
    directories                             []uuid?     1+ tag 8
    eligible_leader_replicas                []int32?    2+ tag 6
    last_known_elr                          []int32?    2+ tag 7

FenceBroker record 0 flexible 0
    id                                      int32
    epoch                                   int64

UnfenceBroker record 0 flexible 0
    id                                      int32
    epoch                                   int64

RemoveTopic record 0 flexible 0
    topic_id                                uuid

DelegationToken record 0 flexible 0
    owner                                   string
    requester                               string
    renewers                                []string
    issue_timestamp                         int64
    max_timestamp                           int64
    expiration_timestamp                    int64
    token_id                                string

UserScramCredential record 0 flexible 0
    name                                    string
    mechanism                               int8
    salt                                    bytes
    stored_key                              bytes
    server_key                              bytes
    iterations                              int32

FeatureLevel record 0 flexible 0
    name                                    string
    feature_level                           int16

ClientQuota record 0 flexible 0
    entity                                  []
        entity_type                         string
        entity_name                         string?
    key                                     string
    value                                   float64
    remove                                  bool

ProducerIds record 0 flexible 0
    broker_id                               int32
    broker_epoch                            int64       = -1
    next_producer_id                        int64

BrokerRegistrationChange record 0-3 flexible 0
    broker_id                               int32
    broker_epoch                            int64
    fenced                                  int8        tag 0
    in_controlled_shutdown                  int8        1+ tag 1
    log_dirs                                []uuid      2+ tag 2
    cordoned_log_dirs                       []uuid?     3+ tag 3

AccessControlEntry record 0 flexible 0
    id                                      uuid
    resource_type                           int8
    resource_name                           string
    pattern_type                            int8
    principal                               string
    host                                    string
    operation                               int8
    permission_type                         int8

RemoveAccessControlEntry record 0 flexible 0
    id                                      uuid

NoOp record 0 flexible 0

ZkMigrationState record 0 flexible 0
    zk_migration_state                      int8

RemoveUserScramCredential record 0 flexible 0
    name                                    string
    mechanism                               int8

BeginTransaction record 0 flexible 0
    name                                    string?     tag 0

EndTransaction record 0 flexible 0

AbortTransaction record 0 flexible 0
    reason                                  string?     tag 0

RemoveDelegationToken record 0 flexible 0
    token_id                                string

RegisterController record 0 flexible 0
    controller_id                           int32
    incarnation_id                          uuid
    zk_migration_ready                      bool
    end_points                              []
        name                                string
        host                                string
        port                                uint16
        security_protocol                   int16
    features                                []
        name                                string
        min_supported_version               int16
        max_supported_version               int16

ClearElr record 0 flexible 0
    topic_name                              string

UnregisterController record 0 flexible 0
    controller_id                           int32
"""
