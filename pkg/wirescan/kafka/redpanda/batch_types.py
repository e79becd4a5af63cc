"""The types of Redpanda's batches, and how log offsets become Kafka's offsets.

A log of Redpanda has batches of its own beside those of clients. Clients get only the batches of
type RAFT_DATA. Batches of the types in UNCOUNTED take log offsets, but no offsets of Kafka. So the
Kafka offset of a record is its log offset, less the log offsets of the UNCOUNTED batches before it.
Batches of all other types take both. Only the logs of the namespace "kafka" are counted like this.

Source: Redpanda, `record_batch_type` and `offset_translator_batch_types` in
src/v/model/record_batch_types.h, `offset_translator_state` in src/v/storage.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class RedpandaType(IntEnum):
    """A value of the column `kind` of kafka.redpanda_batches."""

    RAFT_DATA = 1
    RAFT_CONFIGURATION = 2
    CONTROLLER = 3
    KVSTORE = 4
    CHECKPOINT = 5
    TOPIC_MANAGEMENT_CMD = 6
    GHOST_BATCH = 7
    ID_ALLOCATOR = 8
    TX_PREPARE = 9
    TX_FENCE = 10
    TM_UPDATE = 11
    USER_MANAGEMENT_CMD = 12
    ACL_MANAGEMENT_CMD = 13
    GROUP_PREPARE_TX = 14
    GROUP_COMMIT_TX = 15
    GROUP_ABORT_TX = 16
    NODE_MANAGEMENT_CMD = 17
    DATA_POLICY_MANAGEMENT_CMD = 18
    ARCHIVAL_METADATA = 19
    CLUSTER_CONFIG_CMD = 20
    FEATURE_UPDATE = 21
    CLUSTER_BOOTSTRAP_CMD = 22
    VERSION_FENCE = 23
    TX_TM_HOSTED_TRANSACTIONS = 24
    PREFIX_TRUNCATE = 25
    PLUGIN_UPDATE = 26
    TX_REGISTRY = 27
    CLUSTER_RECOVERY_CMD = 28
    COMPACTION_PLACEHOLDER = 29
    ROLE_MANAGEMENT_CMD = 30
    CLIENT_QUOTA = 31
    DATA_MIGRATION_CMD = 32
    GROUP_FENCE_TX = 33
    PARTITION_PROPERTIES_UPDATE = 34
    DATALAKE_COORDINATOR = 35
    DL_PLACEHOLDER = 36
    DL_STM_COMMAND = 37
    DATALAKE_TRANSLATION_STATE = 38


UNCOUNTED = (
    RedpandaType.RAFT_CONFIGURATION,
    RedpandaType.ARCHIVAL_METADATA,
    RedpandaType.VERSION_FENCE,
    RedpandaType.PREFIX_TRUNCATE,
    RedpandaType.PARTITION_PROPERTIES_UPDATE,
    RedpandaType.DATALAKE_TRANSLATION_STATE,
)


def translate_offsets(batches: np.ndarray, delta: int) -> int:
    """Replace log offsets by Kafka's offsets in rows of dtype BATCH, in place.

    A row of an UNCOUNTED batch gets the Kafka offset of the next batch, in both columns.

    batches: good rows in the order of the log, without a gap in which an UNCOUNTED batch was.
    delta: how many log offsets before the first row belong to UNCOUNTED batches.

    Returns that number for the end of the rows.
    """
    is_uncounted = np.isin(batches["kind"], UNCOUNTED)
    taken = np.where(is_uncounted, batches["last_offset"] - batches["base_offset"] + 1, 0)
    before = delta + np.cumsum(taken) - taken
    batches["base_offset"] -= before
    batches["last_offset"] -= before
    batches["last_offset"][is_uncounted] = batches["base_offset"][is_uncounted]
    return delta + int(taken.sum())
