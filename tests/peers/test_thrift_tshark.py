"""tshark and wirescan read the same in the framed and unframed messages of tests/corpus/thrift.

Compared are the methods, types and numbers of messages, ids and values of fields, and sizes of
containers.
"""

import uuid

import pytest

import wirescan
from tests.support.thrift_corpus import CASES, CORPUS, read_recording, scan_recording
from wirescan import thrift
from wirescan.thrift import MessageType, Protocol, Role, Type

from .tshark import run_tshark

pytestmark = pytest.mark.peers
INTEGERS = {"i8": Type.BYTE, "i16": Type.I16, "i32": Type.I32, "i64": Type.I64}
COUNTS = {"num_list_item": Type.LIST, "num_set_item": Type.SET, "num_map_item": Type.MAP}
KNOWN = [
    case
    for case in CASES
    if not case[0].startswith(("header", "http", "mixed")) and "not-strict" not in case[0]
]


def select_kind(fields: wirescan.FrameTable, kind: Type) -> wirescan.FrameTable:
    return fields.where(fields["kind"] == kind)


def list_strings(fields: wirescan.FrameTable) -> list[bytes]:
    return [bytes(row.value) for row in select_kind(fields, Type.STRING)]


def parse_integers(cells: list[str]) -> list[int]:
    return [int(cell) for cell in cells]


def is_text(value: bytes) -> bool:
    """Whether tshark shows the value as text."""
    try:
        return value.decode().isprintable()
    except UnicodeDecodeError:
        return False


def decode_zigzag(number: int) -> int:
    """Decode a number as zigzag. tshark does that with the seqid of a compact message, wrongly."""
    number &= 0xFFFFFFFF
    return number >> 1 ^ -(number & 1)


@pytest.mark.parametrize("size", [None, 100], ids=["whole", "small"])
@pytest.mark.parametrize(("scene", "side"), KNOWN)
def test_reads_the_same_as_tshark(scene, side, size):
    data = read_recording(CORPUS, scene, side)
    if size is None:
        segments = [data]
    elif "unframed" in scene:  # for tshark a message begins with a segment
        frames = scan_recording(data)
        segments = [bytes(frames.frame(i)) for i in range(len(frames))]
    else:
        segments = [data[start : start + size] for start in range(0, len(data), size)]
    shown = run_tshark(segments)

    messages = thrift.messages(scan_recording(data))
    (compact,) = set((messages["protocol"] == Protocol.COMPACT).tolist())
    services = [f"{bytes(row.service).decode()}:" if row.service else "" for row in messages]
    methods = [bytes(row.method).decode() for row in messages]
    assert shown["method"] == [
        service + method for service, method in zip(services, methods, strict=True)
    ]
    assert [int(kind, 16) for kind in shown["mtype"]] == messages["kind"].tolist()
    seqids = messages["seqid"].tolist()
    if compact:
        seqids = [decode_zigzag(number) for number in seqids]
    assert parse_integers(shown["seq_id"]) == seqids

    fields = thrift.fields(messages)
    # tshark has its own names for the fields of exceptions.
    in_exception = (messages["kind"] == MessageType.EXCEPTION)[fields["parent"]]
    failures = fields.where(in_exception)
    assert shown["exception.message"] == [text.decode() for text in list_strings(failures)]
    codes = select_kind(failures, Type.I32)["integer"].tolist()
    assert parse_integers(shown["exception.type"]) == codes

    fields = fields.where(~in_exception)
    for name, kind in INTEGERS.items():
        assert parse_integers(shown[name]) == select_kind(fields, kind)["integer"].tolist(), name
    for name, kind in COUNTS.items():
        assert parse_integers(shown[name]) == select_kind(fields, kind)["count"].tolist(), name
    doubles = select_kind(fields, Type.DOUBLE)["real"].tolist()
    shown_doubles = [float(number) for number in shown["double"]]
    assert shown_doubles == pytest.approx(doubles, rel=1e-13, abs=0)
    assert shown["string"] == [value.decode() for value in list_strings(fields) if is_text(value)]
    assert shown["binary"] == [value.hex() for value in list_strings(fields) if not is_text(value)]
    uuids = [bytes(row.value) for row in select_kind(fields, Type.UUID)]
    assert [uuid.UUID(text).bytes for text in shown["uuid"]] == uuids
    # In the compact protocol tshark 4.0 is wrong about large ids and about false.
    if not compact:
        ids = fields.where(fields["role"] == Role.FIELD)["id"].tolist()
        assert parse_integers(shown["fid"]) == ids
        assert parse_integers(shown["bool"]) == select_kind(fields, Type.BOOL)["integer"].tolist()
