"""Apache's Go library and fbthrift's read what wirescan writes, and talk with its channels.

Some tests show where they read differently from wirescan.
"""

import socket
import threading

import pytest

from wirescan import thrift
from wirescan.thrift import (
    ClientChannel,
    InfoKind,
    MessageType,
    Protocol,
    ServerChannel,
    Transform,
    Type,
)
from wirescan.thrift.encode import (
    encode_frame,
    encode_framed,
    encode_frames,
    encode_message,
    encode_messages,
)

from .make_thrift_go import BULK, CALLS, MANY, METADATA, RESULTS, make_messages
from .thrift_go import (
    ADD,
    Serve,
    list_infos,
    list_messages,
    list_trees,
    make_call,
    read,
    scan_frames_and_messages,
    speak,
    write,
)

pytestmark = pytest.mark.peers
PROGRAMS = "apache", "fbthrift"


def write_arguments(program: str, fields: list, *, compact: bool) -> bytes:
    """The bytes of a struct, written by a program."""
    (data,) = write(program, [make_call("x", fields)], compact=compact, transport="unframed")
    table = thrift.messages(thrift.scan(data))
    return bytes(table.bytes(0, "arguments"))


def make_protocol_options(program: str, *, compact: bool) -> dict:
    """The options of wirescan's encoders for a program."""
    if not compact:
        return {"protocol": "binary"}
    return {"protocol": "compact", "version": 2 if program == "fbthrift" else 1}


READABLE = [
    ("apache", ()),
    ("apache", (1,)),
    ("apache", (0, 1)),
    ("fbthrift", ()),
    ("fbthrift", (1,)),
    ("fbthrift", (5,)),
    ("fbthrift", (1, 1)),
    ("fbthrift", (5, 5)),
]


@pytest.mark.parametrize("padding", ["0-3", "1-4"])
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("program, transforms", READABLE)
def test_programs_read_our_frames(program, transforms, compact, padding):
    """The programs read each frame alone, and all frames in one stream."""
    frames = []
    for message in make_messages(program):
        data = encode_message(
            message["method"],
            message["type"],
            message["seqid"],
            write_arguments(program, message["fields"], compact=compact),
            **make_protocol_options(program, compact=compact),
        )
        frames.append(
            encode_frame(
                data,
                protocol_id=2 if compact else 0,
                flags=message.get("flags", 0),
                seq=message["seqid"],
                transforms=transforms,
                infos=message.get("headers", {}),
                padding=padding,
            )
        )
    expected = [
        message
        | {
            "flags": message.get("flags", 0),
            "sequence": message["seqid"] & 0xFFFFFFFF,
            "protocol": 2 if compact else 0,
        }
        for message in make_messages(program)
    ]
    alone = read(program, frames)
    (together,) = read(program, [b"".join(frames)])
    assert alone == [{"messages": [message]} for message in expected]
    assert together == {"messages": expected}


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize(
    "program, framed", [("apache", True), ("apache", False), ("fbthrift", True)]
)
def test_programs_read_our_messages_without_headers(program, framed, compact):
    """fbthrift's header transport does not accept unframed messages."""
    data = [
        encode_message(
            message["method"],
            message["type"],
            message["seqid"],
            write_arguments(program, message["fields"], compact=compact),
            **make_protocol_options(program, compact=compact),
        )
        for message in make_messages(program)
    ]
    (stream,) = read(program, [b"".join(map(encode_framed, data) if framed else data)])
    keys = "method", "type", "seqid", "fields"
    expected = [[message[key] for key in keys] for message in make_messages(program)]
    assert [[message[key] for key in keys] for message in stream["messages"]] == expected
    assert "error" not in stream


@pytest.mark.parametrize("program, transforms, compact", BULK)
def test_programs_read_many_of_our_frames(program, transforms, compact):
    """wirescan encodes the frames from columns."""
    numbers = list(range(MANY))
    data, offsets = encode_messages(
        [b"m%d" % number for number in numbers],
        MessageType.CALL,
        numbers,
        write_arguments(program, ADD, compact=compact),
        **make_protocol_options(program, compact=compact),
    )
    stream, _ = encode_frames(
        (offsets, data),
        protocol_id=2 if compact else 0,
        seq=numbers,
        transforms=transforms,
        infos={"trace": [b"%d" % number for number in numbers], "tenant": b"one"},
    )
    (result,) = read(program, [stream])
    assert "error" not in result
    assert result["messages"] == [
        make_call(
            f"m{number}",
            ADD,
            seqid=number,
            sequence=number,
            flags=0,
            protocol=2 if compact else 0,
            headers={"trace": str(number), "tenant": "one"},
        )
        for number in numbers
    ]


@pytest.mark.parametrize("order", ["normal", "persistent"])
def test_persistent_infos_are_preferred(order):
    """fbthrift reads both kinds of infos in either order, and prefers the persistent one.

    Apache's reader stops at the first persistent info.
    """
    ours = encode_frame(
        encode_message("add", MessageType.CALL, 1),
        infos={"trace": "17", "a": "b"},
        persistent={"trace": "0", "client": "one"},
        infos_order=order,
    )
    (apache,), (fbthrift,) = (read(program, [ours])[0]["messages"] for program in PROGRAMS)
    assert apache.get("headers", {}) == ({"trace": "17", "a": "b"} if order == "normal" else {})
    table = thrift.resolve(thrift.scan(ours), precedence="persistent")
    assert fbthrift["headers"] == {str(row.key, "utf-8"): str(row.value, "utf-8") for row in table}
    assert fbthrift["headers"] == {"trace": "0", "client": "one", "a": "b"}


def make_header_frame(header: bytes, message: bytes) -> bytes:
    """A frame with a given header, which no encoder writes."""
    header += bytes(-len(header) % 4)
    rest = b"\x0f\xff\0\0\0\0\0\7" + (len(header) // 4).to_bytes(2, "big") + header + message
    return len(rest).to_bytes(4, "big") + rest


def test_padding_ends_the_infos():
    """A zero ends the infos for wirescan and Apache. fbthrift's Go library reads on after it."""
    frame = make_header_frame(
        b"\0\0" + b"\1\1\1a\1b" + b"\0\0" + b"\1\1\1c\1d",
        encode_message("add", MessageType.CALL, 7),
    )
    frames, _ = scan_frames_and_messages(frame)
    assert list_infos(frames) == [[(InfoKind.KEYVALUE, "a", "b")]]
    assert frames["padding"].tolist() == [8]
    (apache,), (fbthrift,) = (read(program, [frame])[0]["messages"] for program in PROGRAMS)
    assert apache["headers"] == {"a": "b"}
    assert fbthrift["headers"] == {"a": "b", "c": "d"}


def test_unknown_infos_end_the_infos():
    """Unknown infos end the infos for wirescan and Apache, as the format's document says.

    fbthrift's Go library refuses them.
    """
    frame = make_header_frame(
        b"\0\0" + b"\1\1\1a\1b" + b"\3\1\1c\1d", encode_message("add", MessageType.CALL, 7)
    )
    frames, table = scan_frames_and_messages(frame)
    assert list_infos(frames) == [[(InfoKind.KEYVALUE, "a", "b")]]
    assert list_messages(table)[0][0] == "add"
    (apache,), (fbthrift,) = (read(program, [frame]) for program in PROGRAMS)
    assert apache["messages"][0]["headers"] == {"a": "b"}
    assert "infoIDType: 0x3" in fbthrift["error"]


def test_large_headers_are_read():
    """Headers may have up to 262,140 bytes.

    fbthrift's Go library computes their size in 16 bits.
    """
    message = encode_message("add", MessageType.CALL, 1)
    sizes = [60_000, 70_000, 262_120]
    frames = [encode_frame(message, infos={"a": "x" * size}) for size in sizes]
    for frame, size in zip(frames, sizes, strict=True):
        assert [
            len(value) for _, _, value in list_infos(scan_frames_and_messages(frame)[0])[0]
        ] == [size]
    apache, fbthrift = read("apache", frames), read("fbthrift", frames)
    assert [len(stream["messages"][0]["headers"]["a"]) for stream in apache] == sizes
    assert ["error" in stream for stream in fbthrift] == [False, True, True]


def test_programs_misread_several_transforms():
    """Both programs write several transforms correctly. wirescan reads them.

    Apache's reader loses the second of two zlibs. fbthrift's reader undoes them in the wrong order.
    So they read neither their own frames nor wirescan's.
    """
    for program, transforms in ("apache", [1, 1]), ("fbthrift", [1, 5]), ("fbthrift", [5, 1]):
        (theirs,) = write(program, [make_call("add", ADD)], compact=True, transforms=transforms)
        data = encode_message(
            "add",
            MessageType.CALL,
            1,
            write_arguments(program, ADD, compact=True),
            **make_protocol_options(program, compact=True),
        )
        ours = encode_frame(data, protocol_id=Protocol.COMPACT, seq=1, transforms=transforms)
        assert list_messages(scan_frames_and_messages(theirs)[1]) == list_messages(
            scan_frames_and_messages(ours)[1]
        )
        first, second = read(program, [theirs, ours])
        assert first == second
        assert first["messages"] == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_frames_that_the_programs_refuse(program):
    """wirescan reads frames that the programs refuse."""
    data = encode_message("add", MessageType.CALL, 1)
    transforms = [Transform.LZ4, Transform.SNAPPY, *[Transform.ZSTD] * (program == "apache")]
    frames = [encode_frame(data, transforms=[transform]) for transform in transforms]
    frames.append(encode_frame(data, big=True))
    if program == "fbthrift":
        frames.append(data)
    for stream in read(program, frames):
        assert "error" in stream
        assert not stream["messages"]
    assert [list_messages(scan_frames_and_messages(frame)[1])[0][0] for frame in frames] == [
        "add"
    ] * len(frames)


CONNECTIONS = [
    ("apache", {}, {}),
    ("apache", {"protocol": "compact"}, {"compact": True}),
    ("apache", {"protocol": "compact", "transforms": [1]}, {"compact": True, "transforms": [1]}),
    ("apache", {"framing": "framed"}, {"transport": "framed"}),
    (
        "apache",
        {"framing": "unframed", "protocol": "compact"},
        {"transport": "unframed", "compact": True},
    ),
    ("fbthrift", {}, {}),
    ("fbthrift", {"protocol": "compact", "version": 2}, {"compact": True}),
    ("fbthrift", {"transforms": [1]}, {"transforms": [1]}),
    (
        "fbthrift",
        {"protocol": "compact", "version": 2, "transforms": [5]},
        {"compact": True, "transforms": [5]},
    ),
    (
        "fbthrift",
        {"framing": "framed", "protocol": "compact", "version": 2},
        {"transport": "framed", "compact": True},
    ),
]


def list_result_fields(reply) -> list:
    """The fields of a reply to ClientChannel."""
    compact = reply.protocol == Protocol.COMPACT
    data = encode_message(
        "result",
        MessageType.REPLY,
        1,
        reply.arguments,
        version=reply.version if compact else None,
        protocol="compact" if compact else "binary",
    )
    return list_trees(thrift.fields(thrift.messages(thrift.scan(data)))).get(0, [])


@pytest.mark.parametrize("program, ours, theirs", CONNECTIONS)
def test_our_client_calls_their_server(program, ours, theirs):
    compact = theirs.get("compact", False)
    header = "transport" not in theirs
    client = ClientChannel(**ours)
    replies = []
    with Serve(program) as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            for message in CALLS:
                data = client.send_call(
                    message["method"],
                    write_arguments(program, message["fields"], compact=compact),
                    infos=message.get("headers", {}) if header else {},
                    oneway=message["method"] == "notify",
                )
                connection.sendall(data)
            while len(replies) < len(CALLS) - 1:
                data = connection.recv(1 << 16)
                assert data, server.log.read_text()
                replies += client.receive(data)
    methods = [message["method"] for message in CALLS if message["method"] != "notify"]
    assert [reply.call.method.decode() for reply in replies] == methods
    assert [reply.type for reply in replies] == [2, 2, 2, 3, 3, 2]
    assert not client.unanswered
    assert [
        list_result_fields(reply) for reply in replies if reply.type == MessageType.REPLY
    ] == RESULTS
    assert {reply.transforms for reply in replies} == {tuple(ours.get("transforms", ()))}
    if program == "apache" and header:
        assert [reply.infos[b"trace"] for reply in replies[:3]] == [b"17", b"17", b"18"]


def answer_calls(listener: socket.socket, calls: list) -> None:
    """Answer each call of one connection with its arguments as field 0, and with its infos."""
    channel = ServerChannel(padding="1-4")
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(30)
        while data := connection.recv(1 << 16):
            for received in channel.receive(data):
                calls.append(received)
                if received.method == b"notify":  # Apache's client sends a CALL, without a reply
                    continue
                begin = b"\x0c\0" if received.protocol == Protocol.COMPACT else b"\x0c\0\0"
                result = begin + bytes(received.arguments) + b"\0"
                infos = list(received.infos.items())
                connection.sendall(channel.send_reply(received, result, infos=infos))


@pytest.mark.parametrize("program, ours, theirs", CONNECTIONS)
def test_their_client_calls_our_server(program, ours, theirs):
    calls: list = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        thread = threading.Thread(target=answer_calls, args=(listener, calls), daemon=True)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        answers = speak(program, address, CALLS, **theirs)
        thread.join(60)
    assert not thread.is_alive()
    methods = [received.method.decode() for received in calls]
    assert methods == [message["method"] for message in CALLS]
    for message, answer, received in zip(CALLS, answers, calls, strict=True):
        assert "error" not in answer
        if message["method"] == "notify":
            continue
        assert answer["fields"] == [[0, Type.STRUCT, message["fields"]]]
        if "transport" not in theirs:
            expected = message.get("headers", {})
            if program == "fbthrift" and received.seqid == 1:
                expected = expected | METADATA
            assert answer.get("headers", {}) == expected
