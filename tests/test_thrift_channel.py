"""ClientChannel and ServerChannel of Thrift: calls and replies in every framing, and peers that do as they like."""
import copy
import gc
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thrift_bytes import binary, chunked, compact, frame, framed, http

from wirescan import Fault, FrameError, Limits
from wirescan.thrift.channel import ClientChannel, ConversationError, ServerChannel
from wirescan.thrift.kind import MessageType, Protocol, Transform
from wirescan.thrift.standing import BYTES_REMEMBERED, MOST_REMEMBERED

CHUNKS = (1, 3, 1 << 20)
BINARY = b"\x08\x00\x01" + struct.pack(">i", 7) + b"\x00"       # {1: 7} as i32
COMPACT = b"\x15\x0e\x00"
LARGE = struct.pack(">BhI", 11, 1, 5000) + b"wirescan " * 555 + b"here." + b"\x00"
NEVER = 12345                                                   # a seqid that no call has


def fed(channel, data, size=1 << 20):
    return [event for at in range(0, len(data), size) for event in channel.receive(data[at:at + size])]


def failure(channel, data):
    with pytest.raises(ConversationError) as caught:
        channel.receive(data)
    return caught.value


# ---------------------------------------------------------------------------- there and back

DIALECTS = {
    "binary": {},
    "binary without version": {"strict": False},
    "compact": {"protocol": "compact"},
    "compact 2": {"protocol": "compact", "version": 2},
    "fbthrift": {"protocol": "compact", "version": 2, "padding": "1-4", "infos_order": "persistent",
                 "transforms": [Transform.ZSTD]},
    "zlib twice, flags": {"transforms": [Transform.ZLIB, Transform.ZLIB], "flags": 0xFFFF},
    "all transforms": {"transforms": [Transform.SNAPPY, Transform.LZ4, Transform.ZSTD, Transform.ZLIB]},
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
def test_there_and_back(name, size):
    options = DIALECTS[name]
    key = {"key": options["key"]} if "key" in options else {}
    client, server = ClientChannel(**options), ServerChannel(**key)
    has_header = "framing" not in options
    arguments = COMPACT if options.get("protocol") == "compact" else BINARY
    infos = {"infos": {b"trace": b"7", b"": b""}} if has_header else {}
    calls = fed(server, client.send_call("add", arguments, **infos) + client.send_call(b"tell", arguments, oneway=True)
                + client.send_call("add", arguments, service="Calc"), size)
    assert [(call.method, call.service, call.type, call.seqid) for call in calls] == [
        (b"add", None, MessageType.CALL, 1), (b"tell", None, MessageType.ONEWAY, 2),
        (b"add", b"Calc", MessageType.CALL, 3)]
    assert [bytes(call.arguments) for call in calls] == [arguments] * 3
    assert calls[0].infos == infos.get("infos", {}) and calls[1].infos == {}
    transforms = tuple(options.get("transforms", ()))
    for call in calls:
        assert call.transforms == (transforms if len(transforms) <= 4 else None)
        assert (call.seq, call.flags) == ((call.seqid, options.get("flags", 0)) if has_header else (0, 0))
        assert call.version == options.get("version", 1 if options.get("strict", True) else 0)
    assert [sent.seqid for sent in client.unanswered] == [1, 3] and server.unanswered == 2
    back = {"infos": [(b"host", b"a")]} if has_header else {}
    first, second = (server.send_reply(call, arguments, **back) for call in (calls[2], calls[0]))
    replies = fed(client, first + second, size)
    assert [(reply.method, reply.type, reply.seqid, reply.call.service) for reply in replies] == [
        (b"add", MessageType.REPLY, 3, b"Calc"), (b"add", MessageType.REPLY, 1, None)]
    for reply, call in zip(replies, (calls[2], calls[0])):
        assert bytes(reply.arguments) == arguments and reply.infos == dict(back.get("infos", ()))
        assert (reply.kind, reply.protocol, reply.version, reply.seq, reply.flags) == (
            call.kind, call.protocol, call.version, call.seq, call.flags)
        assert reply.transforms == (call.transforms if call.transforms is not None else ())
    assert not client.unanswered and not server.unanswered and not client.held and not server.held


def test_the_bytes():
    client = ClientChannel(flags=5)
    assert client.send_call("add", BINARY, infos={b"k": b"v"}, seqid=-2) == frame(
        binary(b"add", 1, -2, BINARY), seq=0xFFFFFFFE, flags=5, infos=[(b"k", b"v")])
    assert client.seqid == -2 and client.send_call("add", service="Calc") == frame(
        binary(b"Calc:add", 1, -1), seq=0xFFFFFFFF, flags=5)
    assert ClientChannel(framing="framed").send_call("tell", oneway=True) == framed(binary(b"tell", 4, 1))
    assert ClientChannel(framing="unframed", protocol="compact").send_call("add", COMPACT) == compact(
        b"add", 1, 1, COMPACT)
    server = ServerChannel()
    call, = server.receive(frame(compact(b"add", 1, 9, COMPACT, 2), Protocol.COMPACT, seq=77, flags=3))
    assert server.send_reply(call, b"\0", type=MessageType.EXCEPTION) == frame(
        compact(b"add", 3, 9, b"\0", 2), Protocol.COMPACT, seq=77, flags=3)


# what a server is sent, one after another on one connection -> what it answers
MIXED = [
    (frame(binary(b"a", 1, 1), seq=5), frame(binary(b"a", 2, 1), seq=5)),
    (frame(binary(b"a", 1, 1), seq=5, big=True), frame(binary(b"a", 2, 1), seq=5)),
    (framed(frame(binary(b"a", 1, 1), seq=5)), framed(frame(binary(b"a", 2, 1), seq=5))),
    (framed(binary(b"a", 1, 1)), framed(binary(b"a", 2, 1))),
    (framed(compact(b"a", 1, 1, version=2)), framed(compact(b"a", 2, 1, version=2))),
    (binary(b"a", 1, 1), binary(b"a", 2, 1)),
    (compact(b"a", 1, 1), compact(b"a", 2, 1)),
    (frame(b"\0\0\0\1a\1\0\0\0\7\0", seq=1), frame(b"\0\0\0\1a\2\0\0\0\7\0", seq=1)),
    (frame(binary(b"a", 1, 1), transforms=[0]), frame(binary(b"a", 2, 1))),
    (frame(binary(b"a", 1, 1), seq=1), frame(binary(b"a", 2, 1), seq=1)),
]


@pytest.mark.parametrize("size", CHUNKS)
def test_each_call_is_answered_in_its_own_dialect(size):
    server = ServerChannel()
    calls = fed(server, b"".join(asked for asked, _ in MIXED), size)
    assert [server.send_reply(call) for call in calls] == [answer for _, answer in MIXED]


def test_transforms_of_a_reply():
    server = ServerChannel()
    data = frame(binary(b"a", 1, 1, LARGE), transforms=[Transform.ZLIB])
    first, second = server.receive(data + data)
    plain = frame(binary(b"a", 2, 1, LARGE))
    assert len(server.send_reply(first, LARGE)) < len(plain) / 10
    assert server.send_reply(second, LARGE, transforms=[]) == plain
    signed = ClientChannel(transforms=[Transform.HMAC], key=b"secret").send_call("a")
    call, = server.receive(signed)              # without a key it is not verified, and not signed
    assert call.transforms == (Transform.HMAC,) and server.send_reply(call) == frame(binary(b"a", 2, 1), seq=1)


# ---------------------------------------------------------------------------- which reply is whose


def test_replies_in_any_order():
    client, server = ClientChannel(), ServerChannel()
    calls = fed(server, b"".join(client.send_call(name) for name in ("a", "b", "c")))
    replies = fed(client, b"".join(server.send_reply(calls[number]) for number in (2, 0)))
    assert [(reply.call.seqid, reply.call.method) for reply in replies] == [(3, b"c"), (1, b"a")]
    assert [sent.method for sent in client.unanswered] == [b"b"]


def test_replies_that_nobody_waits_for():
    client = ClientChannel()
    client.send_call("a")
    client.send_call("tell", oneway=True)
    client.send_call("slow")
    client.forget(3)
    client.forget(NEVER)
    answers = [frame(binary(b"a", kind, seqid)) for kind, seqid in ((2, 1), (2, 1), (2, 2), (2, 3), (3, NEVER))]
    replies = client.receive(b"".join(answers))
    assert [reply.call and reply.call.seqid for reply in replies] == [1, None, None, None, None]
    assert [reply.seqid for reply in replies] == [1, 1, 2, 3, NEVER] and replies[-1].type is MessageType.EXCEPTION


def test_seqids():
    client = ClientChannel()
    assert client.seqid == 0
    client.send_call("a", seqid=2**31 - 1)
    client.send_call("a", seqid=1)
    client.send_call("a", seqid=2**31 - 2)
    assert client.send_call("a") == frame(binary(b"a", 1, 2), seq=2)    # the last one, and 1, still wait
    for wrong in (1, 2, 2**31, -2**31 - 1):
        with pytest.raises(ValueError):
            client.send_call("a", seqid=wrong)
    with pytest.raises(TypeError):
        client.send_call("a", seqid="1")
    assert client.seqid == 2 and [sent.seqid for sent in client.unanswered] == [2**31 - 1, 1, 2**31 - 2, 2]


# ---------------------------------------------------------------------------- persistent infos


def test_persistent_infos_are_sent_once():
    client, server = ClientChannel(infos_order="persistent"), ServerChannel()
    first = client.send_call("a", persistent={b"who": b"me"}, infos={b"n": b"1"})
    assert first == frame(binary(b"a", 1, 1), seq=1, persistent=[(b"who", b"me")], infos=[(b"n", b"1")])
    again = client.send_call("a", persistent={b"who": b"me"})
    assert again == frame(binary(b"a", 1, 2), seq=2)
    with pytest.raises((TypeError, ValueError)):
        client.send_call("a", object(), persistent={b"who": b"nobody"})
    changed = client.send_call("a", persistent=[(b"who", b"you"), (b"n", b"0")], infos={b"n": b"3"})
    assert [call.infos for call in server.receive(first + again + changed)] == [
        {b"who": b"me", b"n": b"1"}, {b"who": b"me"}, {b"who": b"you", b"n": b"3"}]
    call, = server.receive(client.send_call("a"))
    reply, = client.receive(server.send_reply(call, persistent={b"host": b"x"}))
    assert call.infos == {b"who": b"you", b"n": b"0"} and reply.infos == {b"host": b"x"}


def test_which_info_wins():
    data = frame(binary(b"a", 1, 1), persistent=[(b"k", b"old"), (b"k", b"kept")], infos=[(b"k", b"x"), (b"k", b"own")])
    both = data + frame(binary(b"a", 1, 1))
    for precedence, expected in {"normal": [b"own", b"kept"], "persistent": [b"kept", b"kept"]}.items():
        server = ServerChannel(precedence=precedence)
        assert [call.infos for call in fed(server, both)] == [{b"k": value} for value in expected]


@pytest.mark.parametrize("pairs", [
    [(b"%d" % number, b"") for number in range(MOST_REMEMBERED + 1)], [(b"k", bytes(BYTES_REMEMBERED))]])
def test_what_a_peer_may_have_remembered_is_bounded(pairs):
    server, half = ServerChannel(), len(pairs) // 2
    good = frame(binary(b"a", 1, 1), persistent=pairs[:half]) if half else frame(binary(b"a", 1, 1))
    error = failure(server, good + frame(binary(b"a", 1, 2), persistent=pairs[half:]))
    assert error.fault is Fault.TOO_LARGE and [call.seqid for call in error.events] == [1]
    assert "persistent infos" in str(error) and error.offset == len(good)


# ---------------------------------------------------------------------------- what ends a conversation

GOOD = frame(binary(b"a", 1, 1), seq=1)

DAMAGE = {
    "no frame": (b"\0\0\0\x20what is this, then?", Fault.NOT_A_FRAME),
    "an impossible length": (b"\0\0\0\2\0\0\0\0", Fault.BAD_LENGTH),
    "a header beyond the frame": (framed(b"\x0f\xff\0\0\0\0\0\1\xff\xff\0\0\0\0"), Fault.BAD_HEADER),
    "an unknown transform": (frame(b"x", transforms=[Transform.QLZ]), Fault.BAD_CODEC),
    "no zlib": (frame(b"x" * 40)[:15] + b"\1\1\0" + b"x" * 40, Fault.BAD_COMPRESSION),
    "a bomb": (frame(bytes(80 << 20), transforms=[Transform.ZLIB] * 2), Fault.TOO_LARGE),
    "a protocol of JSON": (frame(b"[1]", Protocol.JSON), Fault.BAD_KIND),
    "no message": (frame(b""), Fault.TRUNCATED),
    "a message of no type": (frame(binary(b"a", 9, 1)), Fault.BAD_KIND),
    "a reply": (frame(binary(b"a", 2, 1)), Fault.BAD_KIND),
    "an exception": (framed(binary(b"a", 3, 1)), Fault.BAD_KIND),
    "HTTP": (http(binary(b"a", 1, 1)), Fault.BAD_KIND),
    "HTTP in chunks": (chunked(binary(b"a", 1, 1)), Fault.BAD_KIND),
    "HTTP without a body": (b"GET / HTTP/1.1\r\n\r\n", Fault.BAD_KIND),
    "TTHeader": (framed(b"\x10\0\0\0\0\0\0\1\0\1\2\0\0\0" + binary(b"a", 1, 1)), Fault.BAD_KIND),
    "an unframed message that cannot be walked": (binary(b"a", 1, 1, b"\x01\0\1"), Fault.BAD_LENGTH),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage(name):
    data, fault = DAMAGE[name]
    server = ServerChannel()
    error = failure(server, GOOD + data + GOOD + GOOD[:6])
    assert isinstance(error, FrameError) and error.fault is fault
    assert len(GOOD) <= error.offset <= len(GOOD + data)
    assert [call.method for call in error.events] == [b"a"], "what came before the damage is not lost"
    again = failure(server, GOOD)
    assert str(again) == str(error) and again.events == ()
    with pytest.raises(ConversationError):
        server.send_reply(error.events[0])
    assert server.held == 0
    for other in (copy.copy(error), pickle.loads(pickle.dumps(again))):
        assert str(other) == str(error) and other.fault is fault


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_byte_by_byte(name):
    data, fault = DAMAGE[name]
    server, found = ServerChannel(limits=Limits(frame=1 << 20)), []
    with pytest.raises(ConversationError) as caught:
        for byte in struct.unpack(f"{len(GOOD + data + GOOD)}c", GOOD + data + GOOD):
            found += server.receive(byte)
    assert caught.value.fault is fault and len(found) == 1
    assert len(GOOD) <= caught.value.offset <= len(GOOD + data)


def test_what_only_servers_say():
    for kind in (MessageType.CALL, MessageType.ONEWAY):
        client = ClientChannel()
        client.send_call("a")
        error = failure(client, frame(binary(b"a", 2, 1)) + framed(binary(b"a", kind, 1)))
        assert error.fault is Fault.BAD_KIND and kind.name in str(error) and error.events[0].call.method == b"a"
        with pytest.raises(ConversationError):
            client.send_call("a")


def test_a_mac_is_verified():
    data = ClientChannel(transforms=[Transform.ZLIB, Transform.HMAC], key=b"secret").send_call("a", infos={b"k": b"v"})
    assert ServerChannel(key=b"secret").receive(data)[0].infos == {b"k": b"v"}
    assert failure(ServerChannel(key=b"guess"), data).fault is Fault.BAD_CHECKSUM
    forged = data.replace(b"\1k\1v", b"\1k\1w")
    assert failure(ServerChannel(key=b"secret"), forged).fault is Fault.BAD_CHECKSUM
    for key in ("secret", bytearray(b"secret")):            # all that an encoder takes
        assert ClientChannel(transforms=[Transform.ZLIB, Transform.HMAC], key=key).send_call(
            "a", infos={b"k": b"v"}) == data and len(ServerChannel(key=key).receive(data)) == 1
    assert ServerChannel(key=b"secret").receive(GOOD)[0].transforms == (), "what has no mac is taken, and tells so"


def test_limits():
    server = ServerChannel(limits=Limits(frame=1000))
    assert failure(server, struct.pack(">I", 5000) + b"\x0f\xff\0\0").fault is Fault.BAD_LENGTH
    server = ServerChannel(limits=Limits(frame=1000))
    assert server.receive(struct.pack(">I", 996) + b"\x0f\xff" + bytes(900)) == [] and server.held == 906
    endless = binary(b"a", 1, 1, struct.pack(">BhBI", 15, 1, 3, 1 << 20))
    server = ServerChannel(limits=Limits(frame=1000))
    assert failure(server, endless + bytes(1000)).fault is Fault.BAD_LENGTH
    server = ServerChannel(limits=Limits(frame=1000))
    with pytest.raises(ConversationError):
        fed(server, endless + bytes(1000), 50)
    data = frame(binary(b"a", 1, 1, struct.pack(">BhI", 11, 1, 90_000) + bytes(90_001)), transforms=[Transform.ZLIB])
    assert len(ServerChannel(limits=Limits(inflated=100_000)).receive(data)) == 1
    assert failure(ServerChannel(limits=Limits(inflated=90_000)), data).fault is Fault.TOO_LARGE
    assert len(ServerChannel(limits=Limits(inflated=100_000)).receive(data * 2)) == 2
    error = failure(ServerChannel(limits=Limits(inflated_total=150_000)), data * 2)
    assert error.fault is Fault.TOO_LARGE and len(error.events) == 1, "all frames of a call are bounded together"
    error = failure(ServerChannel(), frame(binary(b"a", 1, 1, bytes(40 << 20)), transforms=[Transform.ZLIB]) * 2)
    assert error.fault is Fault.TOO_LARGE and len(error.events) == 1, "... to 64 MiB unless told otherwise"


# ---------------------------------------------------------------------------- misuse


def test_each_call_is_answered_once():
    server, other = ServerChannel(), ServerChannel()
    call, told = server.receive(frame(binary(b"a", 1, 1)) + frame(binary(b"a", 4, 2)))
    foreign, = other.receive(frame(binary(b"a", 1, 1)))
    for wrong in (told, foreign):
        with pytest.raises(ValueError):
            server.send_reply(wrong)
    for kind in (MessageType.CALL, MessageType.ONEWAY, 7):
        with pytest.raises(ValueError):
            server.send_reply(call, type=kind)
    with pytest.raises(TypeError):
        server.send_reply(call, 5)
    assert server.unanswered == 1
    server.send_reply(call)
    with pytest.raises(ValueError):
        server.send_reply(call)
    server.receive(GOOD)
    gc.collect()
    assert server.unanswered == 0, "a call that was dropped is not waited for"


@pytest.mark.parametrize("options", [
    {"framing": "http"}, {"protocol": "json"}, {"protocol": "compact", "version": 3}, {"padding": "5"},
    {"infos_order": "none"}, {"precedence": "none"}, {"framing": "framed", "transforms": [1]},
    {"framing": "unframed", "flags": 1}, {"flags": 1 << 16}, {"transforms": [Transform.CUSTOM]},
    {"transforms": [Transform.HMAC]}, {"hash": "rot13", "key": b"secret"}, {"limits": 5}, {"key": 5}])
def test_unfit_options(options):
    with pytest.raises((TypeError, ValueError)):
        ClientChannel(**options)


def test_replies_without_a_version_word():
    answer = b"\0\0\0\1a\2\0\0\0\1\0"
    reply, = ClientChannel(strict=False).receive(frame(answer, seq=1))
    assert (reply.version, reply.method) == (0, b"a")
    assert failure(ClientChannel(framing="framed", strict=False), framed(answer)).fault is Fault.NOT_A_FRAME


def test_infos_need_a_header():
    client = ClientChannel(framing="framed")
    for unfit in ({"infos": {b"k": b"v"}}, {"persistent": {b"k": b"v"}}):
        with pytest.raises(ValueError):
            client.send_call("a", **unfit)
    server = ServerChannel()
    call, = server.receive(client.send_call("a"))
    assert server.send_reply(call, infos={b"k": b"v"}, persistent={b"k": b"v"}) == framed(binary(b"a", 2, 1))


# ---------------------------------------------------------------------------- whatever comes

STREAM = b"".join(asked for asked, _ in MIXED) + frame(
    binary(b"b", 4, 8, LARGE), transforms=[Transform.ZLIB], persistent=[(b"who", b"me")], infos=[(b"n", b"1")])


@given(st.lists(st.tuples(st.integers(0, len(STREAM) - 1), st.integers(0, 255)), max_size=3), st.integers(1, 400),
       st.booleans())
def test_any_bytes_end_in_events_or_one_error(changes, size, serves):
    data = bytearray(STREAM)
    for at, byte in changes:
        data[at] = byte
    channel = ServerChannel() if serves else ClientChannel()
    try:
        found = fed(channel, bytes(data), size)
    except ConversationError as error:
        assert error.fault and 0 <= error.offset <= len(data) and str(error)
    else:
        if serves and not changes:
            assert len(found) == len(MIXED) + 1 and channel.held == 0
