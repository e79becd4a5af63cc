"""What Apache's Go library and fbthrift's write and say, in tests/corpus/thrift-go (see make_thrift_go.py) and anew:
every byte is accounted for, and it is what they were told."""
import json
from pathlib import Path

import pytest

from wirescan import thrift
from wirescan.thrift import InfoKind, Kind, MessageType, Protocol, Type
from wirescan.thrift.encode import encode_frame, encode_framed, encode_message

from .make_thrift_go import BULK, CALLS, CORPUS, MANY, METADATA, RESULTS, SPOKEN, record, written
from .thrift_go import call, infos, told_messages, whole, write


@pytest.fixture(scope="module", params=["recorded", pytest.param("anew", marks=pytest.mark.peers)])
def corpus(request, tmp_path_factory) -> Path:
    """A directory with every case: the one that is kept, and one that the programs have just filled."""
    if request.param == "recorded":
        return CORPUS
    directory = tmp_path_factory.mktemp("thrift-go")
    record(directory)
    return directory


@pytest.fixture(scope="module")
def told(corpus) -> dict:
    return json.loads((corpus / "told.json").read_text())


def kind(options: dict) -> Kind:
    transport, compact = options.get("transport", "header"), options.get("compact", False)
    return Kind.HEADER if transport == "header" else Kind[f"{transport}_{'compact' if compact else 'binary'}".upper()]


def check_frames(frames, table, options: dict, version: int, seqs: list[int], flags: list[int]) -> None:
    """The columns that follow from the options."""
    compact, header = options.get("compact", False), kind(options) == Kind.HEADER
    transforms = options.get("transforms", [])
    assert set(frames["kind"].tolist()) == {kind(options)}
    assert set(frames["protocol_id"].tolist()) == {Protocol.COMPACT if compact else Protocol.BINARY}
    assert set(table["protocol"].tolist()) == {Protocol.COMPACT if compact else Protocol.BINARY}
    assert set(table["version"].tolist()) == {version if compact else 1}
    assert frames["seq"].tolist() == [seq & 0xFFFFFFFF if header else 0 for seq in seqs]
    assert frames["flags"].tolist() == [flag if header else 0 for flag in flags]
    assert set(frames["transform_count"].tolist()) == {len(transforms)}
    for number, transform in enumerate(transforms):
        assert set(frames[f"transform_{number}"].tolist()) == {transform}
    assert set(frames["padding"].tolist()) <= {0, 1, 2, 3} and not frames["mac_size"].any()


def test_cases_are_those_recorded(corpus, told):
    names = {path.name.split(".")[0] for path in corpus.glob("*.theader")}
    assert names == {*written(), *SPOKEN}
    assert told["written"] == written() and told["spoken"].keys() == SPOKEN.keys() and told["calls"] == CALLS


@pytest.mark.parametrize("name", written())
def test_written(corpus, told, name):
    """Every column of every frame, and every value of every message, is what the program was told to write."""
    case = told["written"][name]
    said, options, program = told["messages"][case["messages"]], case["options"], case["program"]
    frames, table = whole((corpus / f"{name}.theader").read_bytes())
    assert told_messages(table) == [
        (one["method"], options.get("service") if one["type"] in (MessageType.CALL, MessageType.ONEWAY) else None,
         one["type"], one["seqid"], one["fields"]) for one in said]

    called = [program == "apache" or one["type"] in (MessageType.CALL, MessageType.ONEWAY) for one in said]
    check_frames(frames, table, options, 1 if program == "apache" else 2,
                 [one["seqid"] if calling else 0 for one, calling in zip(said, called, strict=True)],
                 [one.get("flags", 0) for one in said])

    persistent, first = {}, True
    for one, calling, found in zip(said, called, infos(frames), strict=True):
        if kind(options) != Kind.HEADER:
            assert found == []
            continue
        headers = one.get("headers", {})
        if program == "fbthrift":
            persistent |= one.get("persistent", {})
            if calling and first:
                headers, first = headers | METADATA, False
            if "identity" in one:
                headers = headers | {"identity": one["identity"], "id_version": "1"}
        assert [number for number, _, _ in found] == [2] * len(persistent) + [1] * len(headers)
        assert {key: value for number, key, value in found if number == InfoKind.PKEYVALUE} == persistent
        assert {key: value for number, key, value in found if number == InfoKind.KEYVALUE} == headers


@pytest.mark.parametrize("name", written())
def test_encoded_again(corpus, told, name):
    """Told what we have read, our encoders write the same bytes; of what is compressed, its header."""
    case = told["written"][name]
    options = case["options"]
    frames, table = whole((corpus / f"{name}.theader").read_bytes())
    for number, (frame, message, found) in enumerate(zip(frames, table, infos(frames), strict=True)):
        compact = message.protocol == Protocol.COMPACT
        data = encode_message(message.method, message.kind, message.seqid, bytes(message.arguments),
                              service=message.service, protocol="compact" if compact else "binary",
                              version=message.version if compact else None)
        assert data == table.frame(number)
        if frame.kind == Kind.HEADER:
            pairs = [[(key, value) for number, key, value in found if number == kind] for kind in InfoKind]
            data = encode_frame(data, protocol_id=frame.protocol_id, flags=frame.flags, seq=frame.seq,
                                transforms=options.get("transforms", ()), infos=pairs[0], persistent=pairs[1],
                                infos_order="persistent")
        elif frame.kind in (Kind.FRAMED_BINARY, Kind.FRAMED_COMPACT):
            data = encode_framed(data)
        end = frame.payload_at if options.get("transforms") else frame.size
        assert data[4:end] == frames.frame(number)[4:end]
        assert end < frame.size or data[:4] == frames.frame(number)[:4]


@pytest.mark.parametrize("name", SPOKEN)
def test_spoken(corpus, told, name):
    """Of a conversation both sides, and what belongs together. A reply is in the protocol of its call, and its infos
    are what the client has read; Apache's client sends a CALL for a oneway method."""
    case = told["spoken"][name]
    client, server, options, answers = (case[key] for key in ("client", "server", "options", "answers"))
    version = 2 if client == "fbthrift" else 1
    called, calls = whole((corpus / f"{name}.calls.theader").read_bytes())
    oneway = MessageType.CALL if client == "apache" else MessageType.ONEWAY
    assert told_messages(calls) == [
        (one["method"], options.get("service"), oneway if one["method"] == "notify" else MessageType.CALL, seqid,
         one["fields"]) for seqid, one in enumerate(CALLS, 1)]
    check_frames(called, calls, options, version, range(1, len(CALLS) + 1), [0] * len(CALLS))

    replied, replies = whole((corpus / f"{name}.replies.theader").read_bytes())
    expected = []
    for seqid, (one, answer) in enumerate(zip(CALLS, answers, strict=True), 1):
        if "error" in answer:
            number = 6 if one["method"] == "fail" else 1    # INTERNAL_ERROR, UNKNOWN_METHOD
            fields = [[1, Type.STRING, answer["error"].encode().hex()], [2, Type.I32, number]]
            expected.append((one["method"], None, MessageType.EXCEPTION, seqid, fields))
        elif one["method"] != "notify":
            expected.append((one["method"], None, MessageType.REPLY, seqid, answer["fields"]))
    assert told_messages(replies) == expected
    check_frames(replied, replies, options, version, [one[3] for one in expected], [0] * len(expected))
    heard = [answer.get("headers", {}) for answer, one in zip(answers, CALLS, strict=True) if one["method"] != "notify"]
    assert [{key: value for _, key, value in found} for found in infos(replied)] == heard

    pairs = thrift.pair(calls, replies)
    assert pairs["call"].tolist() == list(range(len(CALLS))) and pairs["reply"].tolist() == [0, 1, -1, 2, 3, 4, 5]


def test_answers(told):
    """Whoever serves, the service is the same one."""
    for case in told["spoken"].values():
        assert [answer.get("fields") for answer in case["answers"]] == [
            RESULTS[0], RESULTS[1], None, RESULTS[2], None, None, RESULTS[3]]


@pytest.mark.peers
@pytest.mark.parametrize("program, transforms, compact", BULK)
def test_many_frames_of_theirs(program, transforms, compact):
    """Compressed by themselves, with zstd without the size of what is in it."""
    said = [call("add", [[1, Type.I32, number], [2, Type.STRING, "78" * (number % 700)]], seqid=number,
                 headers={"trace": str(number)}) for number in range(MANY)]
    frames, table = whole(b"".join(write(program, said, compact=compact, transforms=transforms)))
    fields = thrift.fields(table)
    assert table["seqid"].tolist() == frames["seq"].tolist() == list(range(MANY))
    assert fields["integer"][::2].tolist() == list(range(MANY))
    assert fields["value_size"][1::2].tolist() == [number % 700 for number in range(MANY)]
    own = [{key: value for _, key, value in found if key == "trace"} for found in infos(frames)]
    assert own == [{"trace": str(number)} for number in range(MANY)]
