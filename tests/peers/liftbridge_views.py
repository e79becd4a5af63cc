"""wirescan's Liftbridge tables as mappings, with the names of the .proto files.

liftbridge.py's `parse_message` gives the same mappings.
"""

import numpy as np

from wirescan import liftbridge
from wirescan.liftbridge import Kind

TEXT, BYTES, NUMBER = "text", "bytes", "number"
MESSAGE = {
    "offset": NUMBER,
    "key": BYTES,
    "value": BYTES,
    "timestamp": NUMBER,
    "stream": TEXT,
    "partition": NUMBER,
    "subject": TEXT,
    "reply_subject": TEXT,
    "ack_inbox": TEXT,
    "correlation_id": TEXT,
    "ack_policy": NUMBER,
}
ACK = {
    "stream": TEXT,
    "partition_subject": TEXT,
    "msg_subject": TEXT,
    "offset": NUMBER,
    "ack_inbox": TEXT,
    "correlation_id": TEXT,
    "ack_policy": NUMBER,
    "reception_timestamp": NUMBER,
    "commit_timestamp": NUMBER,
    "ack_error": NUMBER,
}
# The fields of each kind, and their columns in liftbridge.internal.
SENT = {
    Kind.REPLICATION_REQUEST: {
        "replicaID": "id",
        "offset": "offset",
        "leaderEpoch": "leader_epoch",
    },
    Kind.REPLICATION_RESPONSE: {
        "leaderEpoch": "leader_epoch",
        "highWatermark": "high_watermark",
        "records": "entries",
    },
    Kind.RAFT_JOIN_REQUEST: {"nodeID": "id", "nodeAddr": "host"},
    Kind.RAFT_JOIN_RESPONSE: {"error": "error"},
    Kind.LEADER_EPOCH_OFFSET_REQUEST: {"leaderEpoch": "leader_epoch"},
    Kind.LEADER_EPOCH_OFFSET_RESPONSE: {"endOffset": "end_offset"},
    Kind.PROPAGATED_REQUEST: {"op": "op"},
    Kind.PROPAGATED_RESPONSE: {"op": "op"},
    Kind.SERVER_INFO_REQUEST: {"id": "id"},
    Kind.SERVER_INFO_RESPONSE: {"id": "id", "host": "host", "port": "port"},
    Kind.PARTITION_STATUS_REQUEST: {"stream": "stream", "partition": "partition"},
    Kind.PARTITION_STATUS_RESPONSE: {"exists": "exists", "isLeader": "is_leader"},
    Kind.PARTITION_NOTIFICATION: {"stream": "stream", "partition": "partition"},
}
# The messages inside a PropagatedRequest or PropagatedResponse: their fields, and the columns.
INSIDE = {
    "shrinkISROp": {
        "stream": "stream",
        "partition": "partition",
        "replicaToRemove": "replica",
        "leader": "leader",
        "leaderEpoch": "leader_epoch",
    },
    "reportLeaderOp": {
        "stream": "stream",
        "partition": "partition",
        "replica": "replica",
        "leader": "leader",
        "leaderEpoch": "leader_epoch",
    },
    "expandISROp": {
        "stream": "stream",
        "partition": "partition",
        "replicaToAdd": "replica",
        "leader": "leader",
        "leaderEpoch": "leader_epoch",
    },
    "deleteStreamOp": {"stream": "stream"},
    "pauseStreamOp": {"stream": "stream"},
    "resumeStreamOp": {"stream": "stream"},
    "setStreamReadonlyOp": {"stream": "stream"},
    "joinConsumerGroupOp": {"groupId": "group", "consumerId": "consumer"},
    "leaveConsumerGroupOp": {"groupId": "group", "consumerId": "consumer"},
    "reportConsumerGroupCoordinatorOp": {
        "groupId": "group",
        "consumerId": "consumer",
        "coordinator": "coordinator",
        "epoch": "epoch",
    },
    "error": {"code": "error_code", "msg": "error"},
    "joinConsumerGroupResp": {"coordinator": "coordinator", "epoch": "epoch"},
}
FRAME_COLUMNS = ("start", "size", "body", "parent", "buffer", "kind", "fault")


def to_camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def list_fields(table, columns: dict[str, str]) -> list[dict]:
    """Rows by the names of the fields. An absent field is empty, as in Protocol Buffers."""

    def value(i: int, name: str, kind: str):
        if kind == NUMBER:
            return table[name][i].item()
        view = bytes(table.bytes(i, name) or b"")
        return view.decode() if kind == TEXT else view

    return [
        {to_camel_case(name): value(i, name, kind) for name, kind in columns.items()}
        for i in range(len(table))
    ]


def list_headers(table) -> list[dict[str, bytes]]:
    """The headers of messages or entries. For a repeated key, the last header counts."""
    rows = liftbridge.headers(table, errors="skip")  # skips the headers of bad messages
    header_dicts: list[dict] = [{} for _ in range(len(table))]
    counts = np.zeros(len(table), int)
    for i, parent in enumerate(rows["parent"].tolist()):
        key = bytes(rows.bytes(i, "key") or b"").decode()
        header_dicts[parent][key] = bytes(rows.bytes(i, "value") or b"")
        counts[parent] += 1
    assert counts.tolist() == table["header_count"].tolist()
    return header_dicts


def list_messages(table) -> list[dict]:
    return [
        row | {"headers": pairs}
        for row, pairs in zip(list_fields(table, MESSAGE), list_headers(table), strict=True)
    ]


def list_acks(table) -> list[dict]:
    return list_fields(table, ACK)


def list_expected_columns(kind: int, message: dict) -> dict[str, object]:
    """The columns of liftbridge.internal that a message must give."""
    columns = {column: message[field] for field, column in SENT[kind].items()}
    for name, nested in message.items():
        if isinstance(nested, dict):
            columns |= {column: nested[field] for field, column in INSIDE.get(name, {}).items()}
            if name == "createStreamOp":
                columns["stream"] = nested["stream"]["name"]
    return columns


def list_internal_columns(table, i: int) -> dict[str, object]:
    """The columns of a row with their values, except positions, sizes and `operation`.

    Text is decoded. An absent field is 0, null or empty.
    """
    columns: dict[str, object] = {}
    for name in table.dtype.names:
        if not name.endswith(("_at", "_size")) and name not in FRAME_COLUMNS:
            columns[name] = table[name][i].item()
    for name in table.places:
        if name != "operation":
            view = bytes(table.bytes(i, name) or b"")
            columns[name] = view.decode() if name != "entries" else view
    return columns
