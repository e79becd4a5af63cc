"""Apache's Go library and fbthrift's read what we write, alone and in conversations with our channels; and where they
read otherwise than we do."""
import socket
import threading

import pytest

from wirescan import thrift
from wirescan.thrift import ClientChannel, InfoKind, MessageType, Protocol, ServerChannel, Transform, Type
from wirescan.thrift.encode import encode_frame, encode_framed, encode_frames, encode_message, encode_messages

from .make_thrift_go import BULK, CALLS, MANY, METADATA, RESULTS, messages
from .thrift_go import ADD, Serve, call, infos, read, speak, told_messages, trees, whole, write

pytestmark = pytest.mark.peers
PROGRAMS = "apache", "fbthrift"


def arguments(program: str, fields: list, compact: bool) -> bytes:
    """A struct, as a program writes it."""
    data, = write(program, [call("x", fields)], compact=compact, transport="unframed")
    table = thrift.messages(thrift.scan(data))
    return bytes(table.bytes(0, "arguments"))


def spoken_as(program: str, compact: bool) -> dict:
    """The options of our encoders for what a program reads."""
    return {"protocol": "compact", "version": 2 if program == "fbthrift" else 1} if compact else {"protocol": "binary"}


READABLE = [("apache", ()), ("apache", (1,)), ("apache", (0, 1)), ("fbthrift", ()), ("fbthrift", (1,)),
            ("fbthrift", (5,)), ("fbthrift", (1, 1)), ("fbthrift", (5, 5))]


@pytest.mark.parametrize("padding", ["0-3", "1-4"])
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("program, transforms", READABLE)
def test_they_read_our_frames(program, transforms, compact, padding):
    """Each alone, and all in one stream."""
    frames = []
    for one in messages(program):
        data = encode_message(one["method"], one["type"], one["seqid"], arguments(program, one["fields"], compact),
                              **spoken_as(program, compact))
        frames.append(encode_frame(data, protocol_id=2 if compact else 0, flags=one.get("flags", 0), seq=one["seqid"],
                                   transforms=transforms, infos=one.get("headers", {}), padding=padding))
    expected = [one | {"flags": one.get("flags", 0), "sequence": one["seqid"] & 0xFFFFFFFF,
                       "protocol": 2 if compact else 0} for one in messages(program)]
    alone = read(program, frames)
    together, = read(program, [b"".join(frames)])
    assert alone == [{"messages": [one]} for one in expected]
    assert together == {"messages": expected}


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("program, framed", [("apache", True), ("apache", False), ("fbthrift", True)])
def test_they_read_our_messages_without_headers(program, framed, compact):
    """fbthrift's header transport does not take unframed ones."""
    data = [encode_message(one["method"], one["type"], one["seqid"], arguments(program, one["fields"], compact),
                           **spoken_as(program, compact)) for one in messages(program)]
    stream, = read(program, [b"".join(map(encode_framed, data) if framed else data)])
    keys = "method", "type", "seqid", "fields"
    assert [[one[key] for key in keys] for one in stream["messages"]] == [
        [one[key] for key in keys] for one in messages(program)]
    assert "error" not in stream


@pytest.mark.parametrize("program, transforms, compact", BULK)
def test_they_read_many_frames_of_ours(program, transforms, compact):
    """Which we encode as columns."""
    numbers = list(range(MANY))
    data, offsets = encode_messages([b"m%d" % number for number in numbers], MessageType.CALL, numbers,
                                    arguments(program, ADD, compact), **spoken_as(program, compact))
    stream, _ = encode_frames((offsets, data), protocol_id=2 if compact else 0, seq=numbers, transforms=transforms,
                              infos={"trace": [b"%d" % number for number in numbers], "tenant": b"one"})
    found, = read(program, [stream])
    assert "error" not in found
    assert found["messages"] == [
        call(f"m{number}", ADD, seqid=number, sequence=number, flags=0, protocol=2 if compact else 0,
             headers={"trace": str(number), "tenant": "one"}) for number in numbers]


@pytest.mark.parametrize("order", ["normal", "persistent"])
def test_persistent_infos(order):
    """fbthrift reads both kinds in either order, and the persistent one wins; Apache's reader ends at the first
    persistent one."""
    ours = encode_frame(encode_message("add", MessageType.CALL, 1), infos={"trace": "17", "a": "b"},
                        persistent={"trace": "0", "client": "one"}, infos_order=order)
    (apache,), (fbthrift,) = (read(program, [ours])[0]["messages"] for program in PROGRAMS)
    assert apache.get("headers", {}) == ({"trace": "17", "a": "b"} if order == "normal" else {})
    table = thrift.resolve(thrift.scan(ours), precedence="persistent")
    assert fbthrift["headers"] == {str(row.key, "utf-8"): str(row.value, "utf-8") for row in table}
    assert fbthrift["headers"] == {"trace": "0", "client": "one", "a": "b"}


def header_frame(header: bytes, message: bytes) -> bytes:
    """A frame whose header is given, as no encoder writes it."""
    header += bytes(-len(header) % 4)
    rest = b"\x0f\xff\0\0\0\0\0\7" + (len(header) // 4).to_bytes(2, "big") + header + message
    return len(rest).to_bytes(4, "big") + rest


def test_infos_behind_padding():
    """A 0 ends the infos for us, as for Apache; fbthrift's Go library reads on behind it."""
    frame = header_frame(b"\0\0" + b"\1\1\1a\1b" + b"\0\0" + b"\1\1\1c\1d", encode_message("add", MessageType.CALL, 7))
    frames, _ = whole(frame)
    assert infos(frames) == [[(InfoKind.KEYVALUE, "a", "b")]] and frames["padding"].tolist() == [8]
    (apache,), (fbthrift,) = (read(program, [frame])[0]["messages"] for program in PROGRAMS)
    assert apache["headers"] == {"a": "b"} and fbthrift["headers"] == {"a": "b", "c": "d"}


def test_unknown_infos():
    """They end the infos for us, as for Apache, and as the format's document says; fbthrift's Go library refuses."""
    frame = header_frame(b"\0\0" + b"\1\1\1a\1b" + b"\3\1\1c\1d", encode_message("add", MessageType.CALL, 7))
    frames, table = whole(frame)
    assert infos(frames) == [[(InfoKind.KEYVALUE, "a", "b")]] and told_messages(table)[0][0] == "add"
    (apache,), (fbthrift,) = (read(program, [frame]) for program in PROGRAMS)
    assert apache["messages"][0]["headers"] == {"a": "b"} and "infoIDType: 0x3" in fbthrift["error"]


def test_large_headers():
    """Up to the 262,140 bytes that the format has room for; fbthrift's Go library multiplies in 16 bits."""
    message = encode_message("add", MessageType.CALL, 1)
    frames = [encode_frame(message, infos={"a": "x" * size}) for size in (60_000, 70_000, 262_120)]
    for frame, size in zip(frames, (60_000, 70_000, 262_120), strict=True):
        assert [len(value) for _, _, value in infos(whole(frame)[0])[0]] == [size]
    apache, fbthrift = read("apache", frames), read("fbthrift", frames)
    assert [len(one["messages"][0]["headers"]["a"]) for one in apache] == [60_000, 70_000, 262_120]
    assert ["error" in one for one in fbthrift] == [False, True, True]


def test_transforms_in_a_row():
    """Both write them as the format says, and we read that (test_written). Apache's reader loses the second of two
    zlibs, and fbthrift's undoes them forward: what they write themselves they do not read, and ours as little."""
    for program, transforms in ("apache", [1, 1]), ("fbthrift", [1, 5]), ("fbthrift", [5, 1]):
        theirs, = write(program, [call("add", ADD)], compact=True, transforms=transforms)
        data = encode_message("add", MessageType.CALL, 1, arguments(program, ADD, True), **spoken_as(program, True))
        ours = encode_frame(data, protocol_id=Protocol.COMPACT, seq=1, transforms=transforms)
        assert told_messages(whole(theirs)[1]) == told_messages(whole(ours)[1])
        first, second = read(program, [theirs, ours])
        assert first == second and first["messages"] == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_they_refuse(program):
    """We read it."""
    data = encode_message("add", MessageType.CALL, 1)
    transforms = [Transform.LZ4, Transform.SNAPPY, *[Transform.ZSTD] * (program == "apache")]
    frames = [encode_frame(data, transforms=[transform]) for transform in transforms]
    frames.append(encode_frame(data, big=True))
    if program == "fbthrift":
        frames.append(data)
    assert all("error" in one and not one["messages"] for one in read(program, frames))
    assert [told_messages(whole(frame)[1])[0][0] for frame in frames] == ["add"] * len(frames)


CONNECTIONS = [
    ("apache", {}, {}), ("apache", {"protocol": "compact"}, {"compact": True}),
    ("apache", {"protocol": "compact", "transforms": [1]}, {"compact": True, "transforms": [1]}),
    ("apache", {"framing": "framed"}, {"transport": "framed"}),
    ("apache", {"framing": "unframed", "protocol": "compact"}, {"transport": "unframed", "compact": True}),
    ("fbthrift", {}, {}), ("fbthrift", {"protocol": "compact", "version": 2}, {"compact": True}),
    ("fbthrift", {"transforms": [1]}, {"transforms": [1]}),
    ("fbthrift", {"protocol": "compact", "version": 2, "transforms": [5]}, {"compact": True, "transforms": [5]}),
    ("fbthrift", {"framing": "framed", "protocol": "compact", "version": 2}, {"transport": "framed", "compact": True}),
]


def result_fields(reply) -> list:
    """The fields of a reply to ClientChannel."""
    compact = reply.protocol == Protocol.COMPACT
    data = encode_message("result", MessageType.REPLY, 1, reply.arguments, version=reply.version if compact else None,
                          protocol="compact" if compact else "binary")
    return trees(thrift.fields(thrift.messages(thrift.scan(data)))).get(0, [])


@pytest.mark.parametrize("program, ours, theirs", CONNECTIONS)
def test_our_client_calls_their_server(program, ours, theirs):
    compact, header = theirs.get("compact", False), "transport" not in theirs
    client, replies = ClientChannel(**ours), []
    with Serve(program) as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            for one in CALLS:
                infos = one.get("headers", {}) if header else {}
                connection.sendall(client.send_call(one["method"], arguments(program, one["fields"], compact),
                                                    infos=infos, oneway=one["method"] == "notify"))
            while len(replies) < len(CALLS) - 1:
                data = connection.recv(1 << 16)
                assert data, server.log.read_text()
                replies += client.receive(data)
    answered = [one for one in CALLS if one["method"] != "notify"]
    assert [reply.call.method.decode() for reply in replies] == [one["method"] for one in answered]
    assert [reply.type for reply in replies] == [2, 2, 2, 3, 3, 2] and not client.unanswered
    assert [result_fields(reply) for reply in replies if reply.type == MessageType.REPLY] == RESULTS
    assert {reply.transforms for reply in replies} == {tuple(ours.get("transforms", ()))}
    if program == "apache" and header:
        assert [reply.infos[b"trace"] for reply in replies[:3]] == [b"17", b"17", b"18"]


def echo(listener: socket.socket, calls: list) -> None:
    """Answer each call of one connection with its own arguments as field 0, and its infos."""
    channel = ServerChannel(padding="1-4")
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(30)
        while data := connection.recv(1 << 16):
            for one in channel.receive(data):
                calls.append(one)
                if one.method == b"notify":        # which Apache's client sends as a CALL
                    continue
                begin = b"\x0c\0" if one.protocol == Protocol.COMPACT else b"\x0c\0\0"
                result = begin + bytes(one.arguments) + b"\0"
                connection.sendall(channel.send_reply(one, result, infos=list(one.infos.items())))


@pytest.mark.parametrize("program, ours, theirs", CONNECTIONS)
def test_their_client_calls_our_server(program, ours, theirs):
    calls: list = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        thread = threading.Thread(target=echo, args=(listener, calls), daemon=True)
        thread.start()
        answers = speak(program, "127.0.0.1:%d" % listener.getsockname()[1], CALLS, **theirs)
        thread.join(60)
    assert not thread.is_alive()
    assert [call.method.decode() for call in calls] == [one["method"] for one in CALLS]
    for one, answer, heard in zip(CALLS, answers, calls, strict=True):
        assert "error" not in answer
        if one["method"] == "notify":
            continue
        assert answer["fields"] == [[0, Type.STRUCT, one["fields"]]]
        if "transport" not in theirs:
            expected = one.get("headers", {}) | (METADATA if program == "fbthrift" and heard.seqid == 1 else {})
            assert answer.get("headers", {}) == expected
