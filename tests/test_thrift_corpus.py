"""What Apache Thrift's Python library and thriftpy2 say, in tests/corpus/thrift (see peers/make_thrift.py): every byte
is accounted for; every frame, header, message and field is what they were given to write; and we write the same bytes.
"""
import json
from pathlib import Path

import numpy as np
import pytest

import wirescan
from wirescan import thrift
from wirescan.thrift import InfoKind, Kind, MessageType, Protocol, Role, Type
from wirescan.thrift.encode import encode_frame, encode_framed, encode_message

CORPUS = Path(__file__).with_name("corpus") / "thrift"
SIDES = "requests", "replies"
NO_MESSAGE = {("http-binary", "replies"), ("http-compact", "replies")}  # of the last: the reply to a oneway call


def said(directory: Path) -> dict[tuple[str, str], list[dict]]:
    """What was said, by scene and side."""
    found = {}
    for line in (directory / "said.jsonl").read_text().splitlines():
        message = json.loads(line)
        found.setdefault((message.pop("scene"), message.pop("side")), []).append(message)
    return found


def recorded(directory: Path, scene: str, side: str) -> bytes:
    return (directory / f"{scene}.{side}.theader").read_bytes()


def whole(data: bytes, scene: str = "") -> wirescan.FrameTable:
    """The frames of a stream that ends where one does."""
    frames = thrift.scan(data, non_strict=scene.endswith("not-strict"))
    assert frames["size"].sum() == len(data) and not len(frames.tail) and not frames.bad.any()
    return frames


def spoken(frames: wirescan.FrameTable) -> list[dict]:
    """The messages of frames as peers/thrift.py keeps them."""
    messages = thrift.messages(frames)
    assert not messages.bad.any()
    found = []
    headers = [[] for _ in range(len(frames))]
    for info in thrift.infos(frames):
        assert info.kind == InfoKind.KEYVALUE
        headers[info.parent].append([text(info.key), text(info.value)])
    for i, (row, fields) in enumerate(zip(messages, field_lists(messages), strict=True)):
        frame = frames[int(row.parent)]
        found.append({"kind": Kind(frame.kind).name, "method": text(row.method), "service": text(row.service),
                      "type": MessageType(row.kind).name, "seqid": int(row.seqid), "fields": fields})
        if frame.kind == Kind.HEADER:
            names = [f"transform_{number}" for number in range(frame.transform_count)]
            found[-1] |= {"flags": int(frame.flags), "seq": int(frame.seq), "protocol_id": int(frame.protocol_id),
                          "transforms": [int(getattr(frame, name)) for name in names],
                          "headers": headers[int(row.parent)]}
    return found


def text(view: memoryview | None) -> str | None:
    return None if view is None else bytes(view).decode("latin-1")


def field_lists(messages: wirescan.FrameTable) -> list[list]:
    """The fields of each message as peers/thrift_types.py tells them, put together from the table's rows."""
    table = thrift.fields(messages)
    assert not table.bad.any()
    lists = [[] for _ in range(len(messages))]
    inside: list[list] = []                         # of each row, what it holds
    for i, row in enumerate(table.rows):
        kind = Type(row["kind"])
        value, held = _value(table, i, kind, row)
        inside.append(held)
        parent = int(row["enclosing"])
        around = lists[row["parent"]] if parent < 0 else inside[parent]
        if row["role"] == Role.FIELD:
            around.append([int(row["id"]), kind.name, value])
        elif row["role"] == Role.VALUE:
            around[-1].append(value)
        else:
            assert row["id"] == len(around)
            around.append([value] if row["role"] == Role.KEY else value)
    return lists


def _value(table: wirescan.FrameTable, i: int, kind: Type, row: np.void) -> tuple[object, list | None]:
    """The value of a row, and the list in it that the rows inside fill."""
    if kind in (Type.STRUCT, Type.LIST, Type.SET, Type.MAP):
        held = []
        element, key = (Type(row[name]).name if row[name] else None for name in ("element_type", "key_type"))
        if kind == Type.MAP:
            return [key, element, held] if row["count"] else [None, None, held], held
        return (held if kind == Type.STRUCT else [element, held]), held
    if kind in (Type.STRING, Type.UUID):
        return text(table.bytes(i, "value")), None
    if kind == Type.DOUBLE:
        return float(row["real"]).hex(), None
    return bool(row["integer"]) if kind == Type.BOOL else int(row["integer"]), None


def written_again(messages: wirescan.FrameTable) -> list[bytes]:
    """Each message, encoded of its columns."""
    found = []
    for row in messages:
        how = ({"protocol": "compact", "version": row.version} if row.protocol == Protocol.COMPACT else
               {"protocol": "binary", "strict": bool(row.strict)})
        found.append(encode_message(bytes(row.method), row.kind, row.seqid, bytes(row.arguments),
                                    service=None if row.service is None else bytes(row.service), **how))
    return found


SAID = said(CORPUS)
CASES = sorted(SAID)


def check(directory: Path, scene: str, side: str, expected: list[dict]) -> None:
    frames = whole(recorded(directory, scene, side), scene)
    assert spoken(frames) == expected
    messages = thrift.messages(frames)
    assert len(frames) == len(messages) + ((scene, side) in NO_MESSAGE)
    compact = messages["protocol"] == Protocol.COMPACT
    if scene != "mixed":
        assert compact.all() == scene.endswith(("-compact", "-compact-zlib")) and compact.all() == compact.any()
    assert set(messages["strict"][~compact].tolist()) <= {not scene.endswith("not-strict")}
    assert set(messages["version"][compact].tolist()) <= {1}


def test_recordings_are_those_told_of():
    assert {path.name for path in CORPUS.glob("*.theader")} == {f"{scene}.{side}.theader" for scene, side in CASES}
    assert len(CASES) == 40 and all(SAID.values())


@pytest.mark.parametrize(("scene", "side"), CASES)
def test_recorded(scene, side):
    check(CORPUS, scene, side, SAID[scene, side])


@pytest.mark.parametrize(("scene", "side"), CASES)
def test_plain_first(scene, side):
    frames = whole(recorded(CORPUS, scene, side), scene)
    direct, opened = thrift.messages(frames), thrift.messages(thrift.plain(frames))
    assert [bytes(direct.frame(i)) for i in range(len(direct))] == [bytes(opened.frame(i)) for i in range(len(opened))]
    assert direct["parent"].tolist() == opened["parent"].tolist()


@pytest.mark.parametrize(("scene", "side"), [case for case in CASES if not case[0].endswith("not-strict")])
def test_pieces(scene, side):
    """A stream in small pieces has the same frames."""
    data = recorded(CORPUS, scene, side)
    expected = whole(data)
    for size in range(1, 40, 3):
        stream = wirescan.stream("thrift.frames")
        tables = [stream.feed(data[start:start + size]) for start in range(0, len(data), size)] + [stream.close()]
        assert [bytes(table.frame(i)) for table in tables for i in range(len(table))] == [
            bytes(expected.frame(i)) for i in range(len(expected))]


@pytest.mark.parametrize(("scene", "side"), CASES)
def test_written_again(scene, side):
    """Our bytes are the peers': of every message, and of every header frame that is not compressed."""
    frames = whole(recorded(CORPUS, scene, side), scene)
    messages = thrift.messages(frames)
    infos = thrift.infos(frames)
    again = written_again(messages)
    assert again == [bytes(messages.frame(i)) for i in range(len(messages))]
    for parent, message in zip(messages["parent"].tolist(), again, strict=True):
        frame, kind = frames[parent], frames["kind"][parent]
        if kind in (Kind.FRAMED_BINARY, Kind.FRAMED_COMPACT):
            assert encode_framed(message) == bytes(frames.frame(parent))
        elif kind == Kind.HEADER and not frame.transform_count:
            pairs = [(bytes(info.key), bytes(info.value)) for info in infos.where(infos["parent"] == parent)]
            assert encode_frame(message, protocol_id=frame.protocol_id, flags=frame.flags, seq=frame.seq,
                                infos=pairs) == bytes(frames.frame(parent))
