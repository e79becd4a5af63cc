"""The recorded Thrift calls, and the values that their writers recorded with them."""

import json
from pathlib import Path

import numpy as np

import wirescan
from tests.support.paths import CORPUS as ROOT_CORPUS
from tests.support.tables import check_whole_frames
from wirescan import thrift
from wirescan.thrift import InfoKind, Kind, MessageType, Protocol, Role, Type

CORPUS = ROOT_CORPUS / "thrift"
SIDES = "requests", "replies"
# In these the last frame has no message: it is the reply to a oneway call.
NO_MESSAGE = {("http-binary", "replies"), ("http-compact", "replies")}


def read_recorded_values(directory: Path) -> dict[tuple[str, str], list[dict]]:
    """Return the recorded values of all messages: (scene, side) -> messages."""
    messages = {}
    for line in (directory / "said.jsonl").read_text().splitlines():
        message = json.loads(line)
        key = message.pop("scene"), message.pop("side")
        messages.setdefault(key, []).append(message)
    return messages


def read_recording(directory: Path, scene: str, side: str) -> bytes:
    return (directory / f"{scene}.{side}.theader").read_bytes()


def scan_recording(data: bytes, scene: str = "") -> wirescan.FrameTable:
    """Return the frames of a stream, which must consist of whole good frames."""
    frames = thrift.scan(data, non_strict=scene.endswith("not-strict"))
    check_whole_frames(frames, data)
    return frames


def list_messages(frames: wirescan.FrameTable) -> list[dict]:
    """Return the messages of frames in the form of peers/thrift.py."""
    messages = thrift.messages(frames)
    assert not messages.bad.any()
    described = []
    headers = [[] for _ in range(len(frames))]
    for info in thrift.infos(frames):
        assert info.kind == InfoKind.KEYVALUE
        headers[info.parent].append([decode_latin_1(info.key), decode_latin_1(info.value)])
    for row, fields in zip(messages, list_message_fields(messages), strict=True):
        frame = frames[int(row.parent)]
        message = {
            "kind": Kind(frame.kind).name,
            "method": decode_latin_1(row.method),
            "service": decode_latin_1(row.service),
            "type": MessageType(row.kind).name,
            "seqid": int(row.seqid),
            "fields": fields,
        }
        if frame.kind == Kind.HEADER:
            names = [f"transform_{number}" for number in range(frame.transform_count)]
            message |= {
                "flags": int(frame.flags),
                "seq": int(frame.seq),
                "protocol_id": int(frame.protocol_id),
                "transforms": [int(getattr(frame, name)) for name in names],
                "headers": headers[int(row.parent)],
            }
        described.append(message)
    return described


def decode_latin_1(view: memoryview | None) -> str | None:
    return None if view is None else bytes(view).decode("latin-1")


def list_message_fields(messages: wirescan.FrameTable) -> list[list]:
    """Return the fields of each message in the form of peers/thrift_types.py."""
    table = thrift.fields(messages)
    assert not table.bad.any()
    lists = [[] for _ in range(len(messages))]
    contents: list[list | None] = []  # of each row
    for i, row in enumerate(table.rows):
        kind = Type(row["kind"])
        value, items = _value(table, i, kind, row)
        contents.append(items)
        enclosing = int(row["enclosing"])
        outer = lists[row["parent"]] if enclosing < 0 else contents[enclosing]
        if row["role"] == Role.FIELD:
            outer.append([int(row["id"]), kind.name, value])
        elif row["role"] == Role.VALUE:
            outer[-1].append(value)
        else:
            assert row["id"] == len(outer)
            outer.append([value] if row["role"] == Role.KEY else value)
    return lists


def _value(
    table: wirescan.FrameTable, i: int, kind: Type, row: np.void
) -> tuple[object, list | None]:
    """Return (value of a row, list of its contents). The rows inside fill the list."""
    if kind in (Type.STRUCT, Type.LIST, Type.SET, Type.MAP):
        items = []
        if kind == Type.STRUCT:
            return items, items
        element = _type_name(row["element_type"])
        if kind != Type.MAP:
            return [element, items], items
        types = [_type_name(row["key_type"]), element] if row["count"] else [None, None]
        return [*types, items], items
    if kind in (Type.STRING, Type.UUID):
        return decode_latin_1(table.bytes(i, "value")), None
    if kind == Type.DOUBLE:
        return float(row["real"]).hex(), None
    return bool(row["integer"]) if kind == Type.BOOL else int(row["integer"]), None


def _type_name(number: int) -> str | None:
    return Type(number).name if number else None


RECORDED_VALUES = read_recorded_values(CORPUS)
CASES = sorted(RECORDED_VALUES)


def check_recording(directory: Path, scene: str, side: str, expected: list[dict]) -> None:
    """Assert that the messages of a recorded stream are the expected ones."""
    frames = scan_recording(read_recording(directory, scene, side), scene)
    assert list_messages(frames) == expected
    messages = thrift.messages(frames)
    assert len(frames) == len(messages) + ((scene, side) in NO_MESSAGE)
    compact = messages["protocol"] == Protocol.COMPACT
    if scene != "mixed":
        assert compact.all() == scene.endswith(("-compact", "-compact-zlib"))
        assert compact.all() == compact.any()
    assert set(messages["strict"][~compact].tolist()) <= {not scene.endswith("not-strict")}
    assert set(messages["version"][compact].tolist()) <= {1}
