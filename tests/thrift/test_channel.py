"""ClientChannel and ServerChannel of Thrift.

Calls and replies in every framing, and peers that break the protocol.
"""

import copy
import gc
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.thrift_bytes import (
    make_binary_message,
    make_chunked,
    make_compact_message,
    make_frame,
    make_framed,
    make_http,
)
from wirescan import Fault, FrameError, Limits
from wirescan.thrift.constants import MessageType, Protocol, Transform
from wirescan.thrift.live.channel import ClientChannel, ConversationError, ServerChannel
from wirescan.thrift.live.persistent_headers import BYTES_REMEMBERED, MAX_REMEMBERED

CHUNKS = (1, 3, 1 << 20)
BINARY = b"\x08\x00\x01" + struct.pack(">i", 7) + b"\x00"  # {1: 7} as i32
COMPACT = b"\x15\x0e\x00"
LARGE = struct.pack(">BhI", 11, 1, 5000) + b"wirescan " * 555 + b"here." + b"\x00"
UNUSED_SEQID = 12345


def feed(channel, data, size=1 << 20):
    """Give data to a channel in chunks. Return all events."""
    events = []
    for start in range(0, len(data), size):
        events += channel.receive(data[start : start + size])
    return events


def receive_error(channel, data):
    with pytest.raises(ConversationError) as caught:
        channel.receive(data)
    return caught.value


# ---- calls and their replies

DIALECTS = {
    "binary": {},
    "binary without version": {"strict": False},
    "compact": {"protocol": "compact"},
    "compact 2": {"protocol": "compact", "version": 2},
    "fbthrift": {
        "protocol": "compact",
        "version": 2,
        "padding": "1-4",
        "infos_order": "persistent",
        "transforms": [Transform.ZSTD],
    },
    "zlib twice, flags": {"transforms": [Transform.ZLIB, Transform.ZLIB], "flags": 0xFFFF},
    "all transforms": {
        "transforms": [Transform.SNAPPY, Transform.LZ4, Transform.ZSTD, Transform.ZLIB]
    },
    "five transforms": {"transforms": [Transform.ZLIB] * 5},
    "signed": {"transforms": [Transform.ZLIB, Transform.HMAC], "key": b"secret"},
    "framed": {"framing": "framed"},
    "framed compact": {"framing": "framed", "protocol": "compact"},
    "framed compact 2": {"framing": "framed", "protocol": "compact", "version": 2},
    "unframed": {"framing": "unframed"},
    "unframed compact": {"framing": "unframed", "protocol": "compact"},
}


@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize("name", DIALECTS)
def test_calls_and_replies_round_trip(name, size):
    options = DIALECTS[name]
    key = {"key": options["key"]} if "key" in options else {}
    client = ClientChannel(**options)
    server = ServerChannel(**key)
    has_header = "framing" not in options
    arguments = COMPACT if options.get("protocol") == "compact" else BINARY
    infos = {"infos": {b"trace": b"7", b"": b""}} if has_header else {}
    sent = (
        client.send_call("add", arguments, **infos)
        + client.send_call(b"tell", arguments, oneway=True)
        + client.send_call("add", arguments, service="Calc")
    )
    calls = feed(server, sent, size)
    assert [(call.method, call.service, call.type, call.seqid) for call in calls] == [
        (b"add", None, MessageType.CALL, 1),
        (b"tell", None, MessageType.ONEWAY, 2),
        (b"add", b"Calc", MessageType.CALL, 3),
    ]
    assert [bytes(call.arguments) for call in calls] == [arguments] * 3
    assert calls[0].infos == infos.get("infos", {})
    assert calls[1].infos == {}
    transforms = tuple(options.get("transforms", ()))
    for call in calls:
        assert call.transforms == (transforms if len(transforms) <= 4 else None)
        assert call.seq == (call.seqid if has_header else 0)
        assert call.flags == (options.get("flags", 0) if has_header else 0)
        assert call.version == options.get("version", 1 if options.get("strict", True) else 0)
    assert [call.seqid for call in client.unanswered] == [1, 3]
    assert server.unanswered == 2
    reply_infos = {"infos": [(b"host", b"a")]} if has_header else {}
    first = server.send_reply(calls[2], arguments, **reply_infos)
    second = server.send_reply(calls[0], arguments, **reply_infos)
    replies = feed(client, first + second, size)
    assert [(reply.method, reply.type, reply.seqid, reply.call.service) for reply in replies] == [
        (b"add", MessageType.REPLY, 3, b"Calc"),
        (b"add", MessageType.REPLY, 1, None),
    ]
    for reply, call in zip(replies, (calls[2], calls[0])):
        assert bytes(reply.arguments) == arguments
        assert reply.infos == dict(reply_infos.get("infos", ()))
        for name in ("kind", "protocol", "version", "seq", "flags"):
            assert getattr(reply, name) == getattr(call, name), name
        assert reply.transforms == (call.transforms if call.transforms is not None else ())
    assert not client.unanswered
    assert not server.unanswered
    assert not client.held
    assert not server.held


def test_the_bytes_of_calls():
    client = ClientChannel(flags=5)
    sent = client.send_call("add", BINARY, infos={b"k": b"v"}, seqid=-2)
    message = make_binary_message(b"add", 1, -2, BINARY)
    assert sent == make_frame(message, seq=0xFFFFFFFE, flags=5, infos=[(b"k", b"v")])
    assert client.seqid == -2
    sent = client.send_call("add", service="Calc")
    assert sent == make_frame(make_binary_message(b"Calc:add", 1, -1), seq=0xFFFFFFFF, flags=5)
    sent = ClientChannel(framing="framed").send_call("tell", oneway=True)
    assert sent == make_framed(make_binary_message(b"tell", 4, 1))
    sent = ClientChannel(framing="unframed", protocol="compact").send_call("add", COMPACT)
    assert sent == make_compact_message(b"add", 1, 1, COMPACT)


def test_the_bytes_of_an_exception():
    server = ServerChannel()
    message = make_compact_message(b"add", 1, 9, COMPACT, 2)
    (call,) = server.receive(make_frame(message, Protocol.COMPACT, seq=77, flags=3))
    sent = server.send_reply(call, b"\0", type=MessageType.EXCEPTION)
    message = make_compact_message(b"add", 3, 9, b"\0", 2)
    assert sent == make_frame(message, Protocol.COMPACT, seq=77, flags=3)


# Calls of one connection -> the reply to each of them.
MIXED = [
    (
        make_frame(make_binary_message(b"a", 1, 1), seq=5),
        make_frame(make_binary_message(b"a", 2, 1), seq=5),
    ),
    (
        make_frame(make_binary_message(b"a", 1, 1), seq=5, big=True),
        make_frame(make_binary_message(b"a", 2, 1), seq=5),
    ),
    (
        make_framed(make_frame(make_binary_message(b"a", 1, 1), seq=5)),
        make_framed(make_frame(make_binary_message(b"a", 2, 1), seq=5)),
    ),
    (make_framed(make_binary_message(b"a", 1, 1)), make_framed(make_binary_message(b"a", 2, 1))),
    (
        make_framed(make_compact_message(b"a", 1, 1, version=2)),
        make_framed(make_compact_message(b"a", 2, 1, version=2)),
    ),
    (make_binary_message(b"a", 1, 1), make_binary_message(b"a", 2, 1)),
    (make_compact_message(b"a", 1, 1), make_compact_message(b"a", 2, 1)),
    (make_frame(b"\0\0\0\1a\1\0\0\0\7\0", seq=1), make_frame(b"\0\0\0\1a\2\0\0\0\7\0", seq=1)),
    (
        make_frame(make_binary_message(b"a", 1, 1), transforms=[0]),
        make_frame(make_binary_message(b"a", 2, 1)),
    ),
    (
        make_frame(make_binary_message(b"a", 1, 1), seq=1),
        make_frame(make_binary_message(b"a", 2, 1), seq=1),
    ),
]


@pytest.mark.parametrize("size", CHUNKS)
def test_each_call_is_answered_in_its_own_dialect(size):
    server = ServerChannel()
    calls = feed(server, b"".join(call for call, _ in MIXED), size)
    assert [server.send_reply(call) for call in calls] == [reply for _, reply in MIXED]


def test_transforms_of_a_reply():
    server = ServerChannel()
    data = make_frame(make_binary_message(b"a", 1, 1, LARGE), transforms=[Transform.ZLIB])
    first, second = server.receive(data + data)
    plain = make_frame(make_binary_message(b"a", 2, 1, LARGE))
    assert len(server.send_reply(first, LARGE)) < len(plain) / 10
    assert server.send_reply(second, LARGE, transforms=[]) == plain


def test_without_a_key_no_mac_is_verified_or_sent():
    server = ServerChannel()
    signed = ClientChannel(transforms=[Transform.HMAC], key=b"secret").send_call("a")
    (call,) = server.receive(signed)
    assert call.transforms == (Transform.HMAC,)
    assert server.send_reply(call) == make_frame(make_binary_message(b"a", 2, 1), seq=1)


# ---- replies and their calls


def test_replies_in_any_order():
    client = ClientChannel()
    server = ServerChannel()
    calls = feed(server, b"".join(client.send_call(name) for name in ("a", "b", "c")))
    replies = feed(client, b"".join(server.send_reply(calls[number]) for number in (2, 0)))
    assert [(reply.call.seqid, reply.call.method) for reply in replies] == [(3, b"c"), (1, b"a")]
    assert [call.method for call in client.unanswered] == [b"b"]


def test_replies_without_a_waiting_call():
    client = ClientChannel()
    client.send_call("a")
    client.send_call("tell", oneway=True)
    client.send_call("slow")
    client.forget(3)
    client.forget(UNUSED_SEQID)
    answers = [
        make_frame(make_binary_message(b"a", kind, seqid))
        for kind, seqid in ((2, 1), (2, 1), (2, 2), (2, 3), (3, UNUSED_SEQID))
    ]
    replies = client.receive(b"".join(answers))
    assert [reply.call and reply.call.seqid for reply in replies] == [1, None, None, None, None]
    assert [reply.seqid for reply in replies] == [1, 1, 2, 3, UNUSED_SEQID]
    assert replies[-1].type is MessageType.EXCEPTION


def test_seqids_count_up_and_wrap():
    client = ClientChannel()
    assert client.seqid == 0
    client.send_call("a", seqid=2**31 - 1)
    client.send_call("a", seqid=1)
    client.send_call("a", seqid=2**31 - 2)
    # The next seqids, 2**31 - 1 and 1, still wait for their replies.
    assert client.send_call("a") == make_frame(make_binary_message(b"a", 1, 2), seq=2)
    for wrong in (1, 2, 2**31, -(2**31) - 1):
        with pytest.raises(ValueError, match="waits for its reply|seqid must be from"):
            client.send_call("a", seqid=wrong)
    with pytest.raises(TypeError, match="seqid must be an integer"):
        client.send_call("a", seqid="1")
    assert client.seqid == 2
    assert [call.seqid for call in client.unanswered] == [2**31 - 1, 1, 2**31 - 2, 2]


# ---- persistent infos


def test_persistent_infos_are_sent_once():
    client = ClientChannel(infos_order="persistent")
    server = ServerChannel()
    first = client.send_call("a", persistent={b"who": b"me"}, infos={b"n": b"1"})
    assert first == make_frame(
        make_binary_message(b"a", 1, 1), seq=1, persistent=[(b"who", b"me")], infos=[(b"n", b"1")]
    )
    again = client.send_call("a", persistent={b"who": b"me"})
    assert again == make_frame(make_binary_message(b"a", 1, 2), seq=2)
    with pytest.raises((TypeError, ValueError), match="arguments must be bytes or str, not object"):
        client.send_call("a", object(), persistent={b"who": b"nobody"})
    changed = client.send_call("a", persistent=[(b"who", b"you"), (b"n", b"0")], infos={b"n": b"3"})
    assert [call.infos for call in server.receive(first + again + changed)] == [
        {b"who": b"me", b"n": b"1"},
        {b"who": b"me"},
        {b"who": b"you", b"n": b"3"},
    ]
    (call,) = server.receive(client.send_call("a"))
    (reply,) = client.receive(server.send_reply(call, persistent={b"host": b"x"}))
    assert call.infos == {b"who": b"you", b"n": b"0"}
    assert reply.infos == {b"host": b"x"}


def test_infos_of_a_frame_precede_persistent_ones():
    data = make_frame(
        make_binary_message(b"a", 1, 1),
        persistent=[(b"k", b"old"), (b"k", b"kept")],
        infos=[(b"k", b"x"), (b"k", b"own")],
    )
    both = data + make_frame(make_binary_message(b"a", 1, 1))
    for precedence, expected in {
        "normal": [b"own", b"kept"],
        "persistent": [b"kept", b"kept"],
    }.items():
        server = ServerChannel(precedence=precedence)
        assert [call.infos for call in feed(server, both)] == [{b"k": value} for value in expected]


@pytest.mark.parametrize(
    "pairs",
    [
        [(b"%d" % number, b"") for number in range(MAX_REMEMBERED + 1)],
        [(b"k", bytes(BYTES_REMEMBERED))],
    ],
)
def test_persistent_infos_of_a_peer_are_bounded(pairs):
    server = ServerChannel()
    half = len(pairs) // 2
    good = make_frame(make_binary_message(b"a", 1, 1), persistent=pairs[:half])
    error = receive_error(
        server, good + make_frame(make_binary_message(b"a", 1, 2), persistent=pairs[half:])
    )
    assert error.fault is Fault.TOO_LARGE
    assert [call.seqid for call in error.events] == [1]
    assert "persistent infos" in str(error)
    assert error.offset == len(good)


# ---- errors that end a conversation

GOOD = make_frame(make_binary_message(b"a", 1, 1), seq=1)

DAMAGE = {
    "no frame": (b"\0\0\0\x20what is this, then?", Fault.NOT_A_FRAME),
    "an impossible length": (b"\0\0\0\2\0\0\0\0", Fault.BAD_LENGTH),
    "a header beyond the frame": (
        make_framed(b"\x0f\xff\0\0\0\0\0\1\xff\xff\0\0\0\0"),
        Fault.BAD_HEADER,
    ),
    "an unknown transform": (make_frame(b"x", transforms=[Transform.QLZ]), Fault.BAD_CODEC),
    "no zlib": (make_frame(b"x" * 40)[:15] + b"\1\1\0" + b"x" * 40, Fault.BAD_COMPRESSION),
    "a bomb": (make_frame(bytes(80 << 20), transforms=[Transform.ZLIB] * 2), Fault.TOO_LARGE),
    "a protocol of JSON": (make_frame(b"[1]", Protocol.JSON), Fault.BAD_KIND),
    "half a message": (make_frame(b"\x80\1"), Fault.TRUNCATED),
    "a message of no type": (make_frame(make_binary_message(b"a", 9, 1)), Fault.BAD_KIND),
    "a reply": (make_frame(make_binary_message(b"a", 2, 1)), Fault.BAD_KIND),
    "an exception": (make_framed(make_binary_message(b"a", 3, 1)), Fault.BAD_KIND),
    "HTTP": (make_http(make_binary_message(b"a", 1, 1)), Fault.BAD_KIND),
    "HTTP in chunks": (make_chunked(make_binary_message(b"a", 1, 1)), Fault.BAD_KIND),
    "HTTP without a body": (b"GET / HTTP/1.1\r\n\r\n", Fault.BAD_KIND),
    "TTHeader": (
        make_framed(b"\x10\0\0\0\0\0\0\1\0\1\2\0\0\0" + make_binary_message(b"a", 1, 1)),
        Fault.BAD_KIND,
    ),
    "an unframed message that cannot be walked": (
        make_binary_message(b"a", 1, 1, b"\x01\0\1"),
        Fault.BAD_LENGTH,
    ),
}


def test_a_frame_without_a_message_is_no_event():
    events = ServerChannel().receive(make_frame(b"", persistent=[(b"id", b"1")]) + GOOD)
    assert [(event.method, event.infos) for event in events] == [(b"a", {b"id": b"1"})]


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_ends_the_conversation(name):
    data, fault = DAMAGE[name]
    server = ServerChannel()
    error = receive_error(server, GOOD + data + GOOD + GOOD[:6])
    assert isinstance(error, FrameError)
    assert error.fault is fault
    assert len(GOOD) <= error.offset <= len(GOOD + data)
    methods = [call.method for call in error.events]
    assert methods == [b"a"], "the call before the damage is an event"
    again = receive_error(server, GOOD)
    assert str(again) == str(error)
    assert again.events == ()
    with pytest.raises(ConversationError, match=fault.name):
        server.send_reply(error.events[0])
    assert server.held == 0
    for other in (copy.copy(error), pickle.loads(pickle.dumps(again))):
        assert str(other) == str(error)
        assert other.fault is fault


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_byte_by_byte(name):
    data, fault = DAMAGE[name]
    server = ServerChannel(limits=Limits(frame=1 << 20))
    events = []
    with pytest.raises(ConversationError) as caught:
        for byte in struct.unpack(f"{len(GOOD + data + GOOD)}c", GOOD + data + GOOD):
            events += server.receive(byte)
    assert caught.value.fault is fault
    assert len(events) == 1
    assert len(GOOD) <= caught.value.offset <= len(GOOD + data)


def test_a_client_rejects_calls():
    for kind in (MessageType.CALL, MessageType.ONEWAY):
        client = ClientChannel()
        client.send_call("a")
        error = receive_error(
            client,
            make_frame(make_binary_message(b"a", 2, 1))
            + make_framed(make_binary_message(b"a", kind, 1)),
        )
        assert error.fault is Fault.BAD_KIND
        assert kind.name in str(error)
        assert error.events[0].call.method == b"a"
        with pytest.raises(ConversationError, match="BAD_KIND"):
            client.send_call("a")


def test_a_mac_is_verified():
    transforms = [Transform.ZLIB, Transform.HMAC]
    data = ClientChannel(transforms=transforms, key=b"secret").send_call("a", infos={b"k": b"v"})
    assert ServerChannel(key=b"secret").receive(data)[0].infos == {b"k": b"v"}
    assert receive_error(ServerChannel(key=b"guess"), data).fault is Fault.BAD_CHECKSUM
    forged = data.replace(b"\1k\1v", b"\1k\1w")
    assert receive_error(ServerChannel(key=b"secret"), forged).fault is Fault.BAD_CHECKSUM
    for key in ("secret", bytearray(b"secret")):  # the other types of a key
        client = ClientChannel(transforms=transforms, key=key)
        assert client.send_call("a", infos={b"k": b"v"}) == data
        assert len(ServerChannel(key=key).receive(data)) == 1


def test_a_frame_without_a_mac_is_accepted():
    """Its transforms show that it has no mac."""
    (call,) = ServerChannel(key=b"secret").receive(GOOD)
    assert call.transforms == ()


def test_the_limit_on_a_frame():
    limits = Limits(frame=1000)
    long = struct.pack(">I", 5000) + b"\x0f\xff\0\0"
    assert receive_error(ServerChannel(limits=limits), long).fault is Fault.BAD_LENGTH
    server = ServerChannel(limits=limits)
    assert server.receive(struct.pack(">I", 996) + b"\x0f\xff" + bytes(900)) == []
    assert server.held == 906
    endless = make_binary_message(b"a", 1, 1, struct.pack(">BhBI", 15, 1, 3, 1 << 20)) + bytes(1000)
    assert receive_error(ServerChannel(limits=limits), endless).fault is Fault.BAD_LENGTH
    with pytest.raises(ConversationError, match="BAD_LENGTH"):
        feed(ServerChannel(limits=limits), endless, 50)


def test_limits_on_decompressed_bytes():
    message = make_binary_message(b"a", 1, 1, struct.pack(">BhI", 11, 1, 90_000) + bytes(90_001))
    data = make_frame(message, transforms=[Transform.ZLIB])
    assert len(ServerChannel(limits=Limits(inflated=100_000)).receive(data)) == 1
    server = ServerChannel(limits=Limits(inflated=90_000))
    assert receive_error(server, data).fault is Fault.TOO_LARGE
    assert len(ServerChannel(limits=Limits(inflated=100_000)).receive(data * 2)) == 2


def test_all_frames_of_one_receive_share_a_limit():
    message = make_binary_message(b"a", 1, 1, struct.pack(">BhI", 11, 1, 90_000) + bytes(90_001))
    data = make_frame(message, transforms=[Transform.ZLIB])
    error = receive_error(ServerChannel(limits=Limits(inflated_total=150_000)), data * 2)
    assert error.fault is Fault.TOO_LARGE
    assert len(error.events) == 1
    # The default is 64 MiB.
    large = make_frame(
        make_binary_message(b"a", 1, 1, bytes(40 << 20)), transforms=[Transform.ZLIB]
    )
    error = receive_error(ServerChannel(), large * 2)
    assert error.fault is Fault.TOO_LARGE
    assert len(error.events) == 1


# ---- misuse


def test_each_call_is_answered_once():
    server = ServerChannel()
    other = ServerChannel()
    call, oneway = server.receive(
        make_frame(make_binary_message(b"a", 1, 1)) + make_frame(make_binary_message(b"a", 4, 2))
    )
    (foreign,) = other.receive(make_frame(make_binary_message(b"a", 1, 1)))
    for wrong in (oneway, foreign):
        with pytest.raises(ValueError, match="not an unanswered call of this connection"):
            server.send_reply(wrong)
    for kind in (MessageType.CALL, MessageType.ONEWAY, 7):
        with pytest.raises(ValueError, match="type must be REPLY or EXCEPTION"):
            server.send_reply(call, type=kind)
    with pytest.raises(TypeError, match="arguments must be bytes or str, not int"):
        server.send_reply(call, 5)
    assert server.unanswered == 1
    server.send_reply(call)
    with pytest.raises(ValueError, match="not an unanswered call of this connection"):
        server.send_reply(call)
    server.receive(GOOD)
    gc.collect()
    assert server.unanswered == 0, "a call without a reference is not counted"


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"framing": "http"}, "framing must be one of"),
        ({"protocol": "json"}, "protocol must be"),
        ({"protocol": "compact", "version": 3}, "version must be"),
        ({"padding": "5"}, "padding must be"),
        ({"infos_order": "none"}, "infos_order must be"),
        ({"precedence": "none"}, "precedence must be"),
        ({"framing": "framed", "transforms": [1]}, "need a header"),
        ({"framing": "unframed", "flags": 1}, "need a header"),
        ({"flags": 1 << 16}, "flags must be"),
        ({"transforms": [Transform.CUSTOM]}, "transform 7 is not known"),
        ({"transforms": [Transform.HMAC]}, "HMAC needs a key"),
        ({"hash": "rot13", "key": b"secret"}, "hash 'rot13'"),
        ({"limits": 5}, "limits must be"),
        ({"key": 5}, "key must be"),
    ],
)
def test_invalid_options_are_refused(options, reason):
    with pytest.raises((TypeError, ValueError), match=reason):
        ClientChannel(**options)


def test_replies_without_a_version_word():
    answer = b"\0\0\0\1a\2\0\0\0\1\0"
    (reply,) = ClientChannel(strict=False).receive(make_frame(answer, seq=1))
    assert (reply.version, reply.method) == (0, b"a")
    client = ClientChannel(framing="framed", strict=False)
    assert receive_error(client, make_framed(answer)).fault is Fault.NOT_A_FRAME


def test_infos_need_a_header():
    client = ClientChannel(framing="framed")
    for infos in ({"infos": {b"k": b"v"}}, {"persistent": {b"k": b"v"}}):
        with pytest.raises(ValueError, match="infos need a header"):
            client.send_call("a", **infos)
    server = ServerChannel()
    (call,) = server.receive(client.send_call("a"))
    sent = server.send_reply(call, infos={b"k": b"v"}, persistent={b"k": b"v"})
    assert sent == make_framed(make_binary_message(b"a", 2, 1))


# ---- random damage

STREAM = b"".join(call for call, _ in MIXED) + make_frame(
    make_binary_message(b"b", 4, 8, LARGE),
    transforms=[Transform.ZLIB],
    persistent=[(b"who", b"me")],
    infos=[(b"n", b"1")],
)


@given(
    st.lists(st.tuples(st.integers(0, len(STREAM) - 1), st.integers(0, 255)), max_size=3),
    st.integers(1, 400),
    st.booleans(),
)
def test_any_bytes_give_events_or_one_error(changes, size, is_server):
    data = bytearray(STREAM)
    for position, byte in changes:
        data[position] = byte
    channel = ServerChannel() if is_server else ClientChannel()
    try:
        events = feed(channel, bytes(data), size)
    except ConversationError as error:
        assert error.fault
        assert 0 <= error.offset <= len(data)
        assert str(error)
    else:
        if is_server and not changes:
            assert len(events) == len(MIXED) + 1
            assert channel.held == 0
