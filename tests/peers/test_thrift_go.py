"""Messages and connections of Apache's Go library and fbthrift's. Every byte belongs to a frame.

They are in tests/corpus/thrift-go (see make_thrift_go.py), and are also recorded anew. The messages
are those that the programs were given.
"""

import json
from pathlib import Path

import pytest

from wirescan import thrift
from wirescan.thrift import InfoKind, Kind, MessageType, Protocol, Type
from wirescan.thrift.encode import encode_frame, encode_framed, encode_message

from .make_thrift_go import (
    BULK,
    CALLS,
    CONVERSATIONS,
    CORPUS,
    MANY,
    METADATA,
    RESULTS,
    list_cases,
    record,
)
from .thrift_go import list_infos, list_messages, make_call, scan_frames_and_messages, write

# Types of an application exception.
UNKNOWN_METHOD = 1
INTERNAL_ERROR = 6


@pytest.fixture(scope="module", params=["recorded", pytest.param("anew", marks=pytest.mark.peers)])
def corpus(request, tmp_path_factory) -> Path:
    """A directory with every case: the committed one, and one that the programs fill now."""
    if request.param == "recorded":
        return CORPUS
    directory = tmp_path_factory.mktemp("thrift-go")
    record(directory)
    return directory


@pytest.fixture(scope="module")
def manifest(corpus) -> dict:
    return json.loads((corpus / "told.json").read_text())


def get_kind(options: dict) -> Kind:
    """The kind of frame for the options."""
    transport = options.get("transport", "header")
    if transport == "header":
        return Kind.HEADER
    protocol = "compact" if options.get("compact", False) else "binary"
    return Kind[f"{transport}_{protocol}".upper()]


def check_frames(
    frames, table, options: dict, version: int, seqs: list[int], flags: list[int]
) -> None:
    """Check the columns that depend on the options."""
    compact = options.get("compact", False)
    header = get_kind(options) == Kind.HEADER
    protocol = Protocol.COMPACT if compact else Protocol.BINARY
    transforms = options.get("transforms", [])
    assert set(frames["kind"].tolist()) == {get_kind(options)}
    assert set(frames["protocol_id"].tolist()) == {protocol}
    assert set(table["protocol"].tolist()) == {protocol}
    assert set(table["version"].tolist()) == {version if compact else 1}
    assert frames["seq"].tolist() == [seq & 0xFFFFFFFF if header else 0 for seq in seqs]
    assert frames["flags"].tolist() == [flag if header else 0 for flag in flags]
    assert set(frames["transform_count"].tolist()) == {len(transforms)}
    for number, transform in enumerate(transforms):
        assert set(frames[f"transform_{number}"].tolist()) == {transform}
    assert set(frames["padding"].tolist()) <= {0, 1, 2, 3}
    assert not frames["mac_size"].any()


def test_every_case_has_streams(corpus, manifest):
    names = {path.name.split(".")[0] for path in corpus.glob("*.theader")}
    assert names == {*list_cases(), *CONVERSATIONS}
    assert manifest["written"] == list_cases()
    assert manifest["spoken"].keys() == CONVERSATIONS.keys()
    assert manifest["calls"] == CALLS


@pytest.mark.parametrize("name", list_cases())
def test_written_messages_have_the_given_values(corpus, manifest, name):
    """Every frame and message has the columns and values that the program was given."""
    case = manifest["written"][name]
    messages = manifest["messages"][case["messages"]]
    options = case["options"]
    program = case["program"]
    frames, table = scan_frames_and_messages((corpus / f"{name}.theader").read_bytes())

    def is_call(message: dict) -> bool:
        return message["type"] in (MessageType.CALL, MessageType.ONEWAY)

    assert list_messages(table) == [
        (
            message["method"],
            options.get("service") if is_call(message) else None,
            message["type"],
            message["seqid"],
            message["fields"],
        )
        for message in messages
    ]

    # fbthrift writes a seqid into the headers of calls alone.
    has_seqid = [program == "apache" or is_call(message) for message in messages]
    check_frames(
        frames,
        table,
        options,
        1 if program == "apache" else 2,
        [
            message["seqid"] if with_seqid else 0
            for message, with_seqid in zip(messages, has_seqid, strict=True)
        ],
        [message.get("flags", 0) for message in messages],
    )

    persistent = {}
    first = True
    for message, with_seqid, infos in zip(messages, has_seqid, list_infos(frames), strict=True):
        if get_kind(options) != Kind.HEADER:
            assert infos == []
            continue
        headers = message.get("headers", {})
        if program == "fbthrift":
            persistent |= message.get("persistent", {})
            if with_seqid and first:
                headers = headers | METADATA
                first = False
            if "identity" in message:
                headers = headers | {"identity": message["identity"], "id_version": "1"}
        pkeyvalues = {key: value for number, key, value in infos if number == InfoKind.PKEYVALUE}
        keyvalues = {key: value for number, key, value in infos if number == InfoKind.KEYVALUE}
        assert [number for number, _, _ in infos] == [2] * len(persistent) + [1] * len(headers)
        assert pkeyvalues == persistent
        assert keyvalues == headers


@pytest.mark.parametrize("name", list_cases())
def test_the_same_bytes_are_encoded_again(corpus, manifest, name):
    """wirescan's encoders write the same bytes again from the tables.

    Only the headers of compressed frames are compared.
    """
    case = manifest["written"][name]
    options = case["options"]
    frames, table = scan_frames_and_messages((corpus / f"{name}.theader").read_bytes())
    all_infos = list_infos(frames)
    for number, (frame, message) in enumerate(zip(frames, table, strict=True)):
        compact = message.protocol == Protocol.COMPACT
        data = encode_message(
            message.method,
            message.kind,
            message.seqid,
            bytes(message.arguments),
            service=message.service,
            protocol="compact" if compact else "binary",
            version=message.version if compact else None,
        )
        assert data == table.frame(number)
        if frame.kind == Kind.HEADER:
            keyvalues, pkeyvalues = (
                [(key, value) for info_kind, key, value in all_infos[number] if info_kind == kind]
                for kind in (InfoKind.KEYVALUE, InfoKind.PKEYVALUE)
            )
            data = encode_frame(
                data,
                protocol_id=frame.protocol_id,
                flags=frame.flags,
                seq=frame.seq,
                transforms=options.get("transforms", ()),
                infos=keyvalues,
                persistent=pkeyvalues,
                infos_order="persistent",
            )
        elif frame.kind in (Kind.FRAMED_BINARY, Kind.FRAMED_COMPACT):
            data = encode_framed(data)
        end = frame.payload_at if options.get("transforms") else frame.size
        assert data[4:end] == frames.frame(number)[4:end]
        assert end < frame.size or data[:4] == frames.frame(number)[:4]


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_conversations_pair_calls_and_replies(corpus, manifest, name):
    """Both sides of a connection, and the pairs of calls and replies.

    A reply has the protocol of its call. The client read the infos of the replies. Apache's client
    sends a CALL for a oneway method.
    """
    case = manifest["spoken"][name]
    client = case["client"]
    options = case["options"]
    answers = case["answers"]
    version = 2 if client == "fbthrift" else 1
    called, calls = scan_frames_and_messages((corpus / f"{name}.calls.theader").read_bytes())
    oneway = MessageType.CALL if client == "apache" else MessageType.ONEWAY
    assert list_messages(calls) == [
        (
            sent["method"],
            options.get("service"),
            oneway if sent["method"] == "notify" else MessageType.CALL,
            seqid,
            sent["fields"],
        )
        for seqid, sent in enumerate(CALLS, 1)
    ]
    check_frames(called, calls, options, version, range(1, len(CALLS) + 1), [0] * len(CALLS))

    replied, replies = scan_frames_and_messages((corpus / f"{name}.replies.theader").read_bytes())
    expected = []
    for seqid, (sent, answer) in enumerate(zip(CALLS, answers, strict=True), 1):
        method = sent["method"]
        if "error" in answer:
            number = INTERNAL_ERROR if method == "fail" else UNKNOWN_METHOD
            fields = [[1, Type.STRING, answer["error"].encode().hex()], [2, Type.I32, number]]
            expected.append((method, None, MessageType.EXCEPTION, seqid, fields))
        elif method != "notify":
            expected.append((method, None, MessageType.REPLY, seqid, answer["fields"]))
    assert list_messages(replies) == expected
    seqids = [seqid for _, _, _, seqid, _ in expected]
    check_frames(replied, replies, options, version, seqids, [0] * len(expected))
    client_headers = [
        answer.get("headers", {})
        for answer, sent in zip(answers, CALLS, strict=True)
        if sent["method"] != "notify"
    ]
    frame_headers = [{key: value for _, key, value in infos} for infos in list_infos(replied)]
    assert frame_headers == client_headers

    pairs = thrift.pair(calls, replies)
    assert pairs["call"].tolist() == list(range(len(CALLS)))
    assert pairs["reply"].tolist() == [0, 1, -1, 2, 3, 4, 5]


def test_answers_do_not_depend_on_the_server(manifest):
    """All servers give the same answers."""
    for case in manifest["spoken"].values():
        assert [answer.get("fields") for answer in case["answers"]] == [
            RESULTS[0],
            RESULTS[1],
            None,
            RESULTS[2],
            None,
            None,
            RESULTS[3],
        ]


@pytest.mark.peers
@pytest.mark.parametrize("program, transforms, compact", BULK)
def test_many_frames_of_the_programs(program, transforms, compact):
    """The programs compress the frames. Their zstd frames have no decompressed size."""
    messages = [
        make_call(
            "add",
            [[1, Type.I32, number], [2, Type.STRING, "78" * (number % 700)]],
            seqid=number,
            headers={"trace": str(number)},
        )
        for number in range(MANY)
    ]
    data = b"".join(write(program, messages, compact=compact, transforms=transforms))
    frames, table = scan_frames_and_messages(data)
    fields = thrift.fields(table)
    assert table["seqid"].tolist() == frames["seq"].tolist() == list(range(MANY))
    assert fields["integer"][::2].tolist() == list(range(MANY))
    assert fields["value_size"][1::2].tolist() == [number % 700 for number in range(MANY)]
    traces = [
        {key: value for _, key, value in infos if key == "trace"} for infos in list_infos(frames)
    ]
    assert traces == [{"trace": str(number)} for number in range(MANY)]
