"""The tables of wirescan's room liftbridge in the words of the .proto files, as liftbridge.py's `plain` gives them."""
import numpy as np

from wirescan import liftbridge
from wirescan.liftbridge import Kind

TEXT, BYTES, NUMBER = "text", "bytes", "number"
MESSAGE = {
    "offset": NUMBER, "key": BYTES, "value": BYTES, "timestamp": NUMBER, "stream": TEXT, "partition": NUMBER,
    "subject": TEXT, "reply_subject": TEXT, "ack_inbox": TEXT, "correlation_id": TEXT, "ack_policy": NUMBER}
ACK = {
    "stream": TEXT, "partition_subject": TEXT, "msg_subject": TEXT, "offset": NUMBER, "ack_inbox": TEXT,
    "correlation_id": TEXT, "ack_policy": NUMBER, "reception_timestamp": NUMBER, "commit_timestamp": NUMBER,
    "ack_error": NUMBER}
# The columns of liftbridge.internal that each kind has, by the names of the fields.
SENT = {
    Kind.REPLICATION_REQUEST: {"replicaID": "id", "offset": "offset", "leaderEpoch": "leader_epoch"},
    Kind.REPLICATION_RESPONSE: {
        "leaderEpoch": "leader_epoch", "highWatermark": "high_watermark", "records": "entries"},
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
# ... and those of what is inside: field of a PropagatedRequest or -Response, its fields.
INSIDE = {
    "shrinkISROp": {"stream": "stream", "partition": "partition", "replicaToRemove": "replica", "leader": "leader",
                    "leaderEpoch": "leader_epoch"},
    "reportLeaderOp": {"stream": "stream", "partition": "partition", "replica": "replica", "leader": "leader",
                       "leaderEpoch": "leader_epoch"},
    "expandISROp": {"stream": "stream", "partition": "partition", "replicaToAdd": "replica", "leader": "leader",
                    "leaderEpoch": "leader_epoch"},
    "deleteStreamOp": {"stream": "stream"}, "pauseStreamOp": {"stream": "stream"},
    "resumeStreamOp": {"stream": "stream"}, "setStreamReadonlyOp": {"stream": "stream"},
    "joinConsumerGroupOp": {"groupId": "group", "consumerId": "consumer"},
    "leaveConsumerGroupOp": {"groupId": "group", "consumerId": "consumer"},
    "reportConsumerGroupCoordinatorOp": {"groupId": "group", "consumerId": "consumer", "coordinator": "coordinator",
                                         "epoch": "epoch"},
    "error": {"code": "error_code", "msg": "error"},
    "joinConsumerGroupResp": {"coordinator": "coordinator", "epoch": "epoch"},
}


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def fields(table, columns: dict[str, str]) -> list[dict]:
    """Rows by the names of the fields; a field that is not there is empty, as in Protocol Buffers."""
    def value(i: int, name: str, what: str):
        if what == NUMBER:
            return table[name][i].item()
        view = bytes(table.bytes(i, name) or b"")
        return view.decode() if what == TEXT else view

    return [{camel(name): value(i, name, what) for name, what in columns.items()} for i in range(len(table))]


def headers(table) -> list[dict[str, bytes]]:
    """The headers of messages or entries, the last of a key counts."""
    opened = liftbridge.headers(table, errors="skip")  # of bad messages
    found: list[dict] = [{} for _ in range(len(table))]
    for i, parent in enumerate(opened["parent"].tolist()):
        found[parent][bytes(opened.bytes(i, "key") or b"").decode()] = bytes(opened.bytes(i, "value") or b"")
    counts = np.bincount(opened["parent"], minlength=len(table)) if len(opened) else np.zeros(len(table), int)
    assert counts.tolist() == table["header_count"].tolist()
    return found


def messages(table) -> list[dict]:
    return [row | {"headers": pairs} for row, pairs in zip(fields(table, MESSAGE), headers(table), strict=True)]


def acks(table) -> list[dict]:
    return fields(table, ACK)


def told(kind: int, message: dict) -> dict[str, object]:
    """The columns of liftbridge.internal that a message of the oracle has to become."""
    found = {column: message[field] for field, column in SENT[kind].items()}
    for name, inside in message.items():
        if isinstance(inside, dict):
            found |= {column: inside[field] for field, column in INSIDE.get(name, {}).items()}
            if name == "createStreamOp":
                found["stream"] = inside["stream"]["name"]
    return found


def internal(table, i: int) -> dict[str, object]:
    """The columns of a row that are not 0, null or empty; text as text, `operation` left out."""
    found: dict[str, object] = {}
    for name in table.dtype.names:
        if not name.endswith(("_at", "_size")) and name not in ("start", "size", "body", "parent", "buffer", "kind",
                                                               "fault"):
            found[name] = table[name][i].item()
    for name in table.places:
        if name != "operation":
            view = bytes(table.bytes(i, name) or b"")
            found[name] = view.decode() if name != "entries" else view
    return found
