"""tshark reads the framed and unframed messages of tests/corpus/thrift as thrift.messages and thrift.fields do:
methods, types and numbers of messages, ids and values of fields, sizes of containers."""
import uuid

import pytest

import wirescan
from test_thrift_corpus import CASES, CORPUS, recorded, whole
from wirescan import thrift
from wirescan.thrift import MessageType, Protocol, Role, Type

from .tshark import tshark

pytestmark = pytest.mark.peers
INTEGERS = {"i8": Type.BYTE, "i16": Type.I16, "i32": Type.I32, "i64": Type.I64}
COUNTS = {"num_list_item": Type.LIST, "num_set_item": Type.SET, "num_map_item": Type.MAP}
KNOWN = [case for case in CASES if not case[0].startswith(("header", "http", "mixed")) and "not-strict" not in case[0]]


def of_kind(fields: wirescan.FrameTable, kind: Type) -> wirescan.FrameTable:
    return fields.where(fields["kind"] == kind)


def strings(fields: wirescan.FrameTable) -> list[bytes]:
    return [bytes(row.value) for row in of_kind(fields, Type.STRING)]


def is_text(value: bytes) -> bool:
    """What tshark shows as text."""
    try:
        return value.decode().isprintable()
    except UnicodeDecodeError:
        return False


def zigzag(number: int) -> int:
    """tshark takes the number of a compact message for a zigzag one, which it is not."""
    number &= 0xffffffff
    return number >> 1 ^ -(number & 1)


@pytest.mark.parametrize("size", [None, 100], ids=["whole", "small"])
@pytest.mark.parametrize(("scene", "side"), KNOWN)
def test_same_as_tshark(scene, side, size):
    data = recorded(CORPUS, scene, side)
    if size is None:
        segments = [data]
    elif "unframed" in scene:   # tshark begins a message anew with a segment
        frames = whole(data)
        segments = [bytes(frames.frame(i)) for i in range(len(frames))]
    else:
        segments = [data[start:start + size] for start in range(0, len(data), size)]
    seen = tshark(segments)

    messages = thrift.messages(whole(data))
    compact, = set((messages["protocol"] == Protocol.COMPACT).tolist())
    assert seen["method"] == [
        (f"{bytes(row.service).decode()}:" if row.service else "") + bytes(row.method).decode() for row in messages]
    assert [int(kind, 16) for kind in seen["mtype"]] == messages["kind"].tolist()
    assert [int(number) for number in seen["seq_id"]] == [
        zigzag(number) if compact else number for number in messages["seqid"].tolist()]

    fields = thrift.fields(messages)
    failures = (messages["kind"] == MessageType.EXCEPTION)[fields["parent"]]    # tshark names what is in these
    assert seen["exception.message"] == [text.decode() for text in strings(fields.where(failures))]
    assert [int(number) for number in seen["exception.type"]] == of_kind(fields.where(failures), Type.I32)[
        "integer"].tolist()
    fields = fields.where(~failures)
    for name, kind in INTEGERS.items():
        assert [int(number) for number in seen[name]] == of_kind(fields, kind)["integer"].tolist(), name
    for name, kind in COUNTS.items():
        assert [int(number) for number in seen[name]] == of_kind(fields, kind)["count"].tolist(), name
    assert [float(number) for number in seen["double"]] == pytest.approx(
        of_kind(fields, Type.DOUBLE)["real"].tolist(), rel=1e-13, abs=0)
    assert seen["string"] == [value.decode() for value in strings(fields) if is_text(value)]
    assert seen["binary"] == [value.hex() for value in strings(fields) if not is_text(value)]
    assert [uuid.UUID(one).bytes for one in seen["uuid"]] == [bytes(row.value) for row in of_kind(fields, Type.UUID)]
    if not compact:     # there, tshark 4.0 is wrong about large ids and about false
        assert [int(number) for number in seen["fid"]] == fields.where(fields["role"] == Role.FIELD)["id"].tolist()
        assert [int(number) for number in seen["bool"]] == of_kind(fields, Type.BOOL)["integer"].tolist()
