"""HeaderTransport under Apache Thrift's own protocols, and the channels against Apache's library.

Both are tested as client and as server.
"""

import socket
from io import BytesIO
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolAcceleratedFactory
from thrift.protocol.TCompactProtocol import TCompactProtocol, TCompactProtocolFactory
from thrift.protocol.THeaderProtocol import THeaderProtocol, THeaderProtocolFactory
from thrift.transport.THeaderTransport import THeaderClientType, THeaderSubprotocolID
from thrift.transport.TTransport import TBufferedTransport, TMemoryBuffer, TTransportException

from tests.support.thrift_bytes import (
    make_binary_message,
    make_compact_message,
    make_frame,
    make_framed,
    make_http,
)
from wirescan import Fault, FrameError, thrift
from wirescan.thrift.constants import Kind, MessageType, Protocol, Transform
from wirescan.thrift.live.apache_transport import (
    HeaderTransport,
    HeaderTransportFactory,
    TransportError,
)
from wirescan.thrift.live.channel import ClientChannel, ServerChannel

from .make_thrift import are_equal, sort_sets
from .thrift import KINDS, BackgroundServer, Client, Server, Wire
from .thrift import make_wire as library_wire
from .thrift_types import APACHE, EVERYTHING, build_struct, list_fields

pytestmark = pytest.mark.peers
ALL = tuple(KINDS)
LARGE = {**EVERYTHING, "text": "wirescan " * 20_000}
REPLIES = ("add", "echo", "nothing", "refuse", "fail", "add")  # the replies to the calls of `talk`


class RecordingTransport(TBufferedTransport):
    """A transport that records the written bytes and the read bytes in a pair of bytearrays."""

    def __init__(self, inner, record):
        super().__init__(inner)
        self._record = record

    def read(self, size):
        data = super().read(size)
        self._record[1] += data
        return data

    def write(self, data):
        self._record[0] += data
        super().write(data)


def make_our_wire(*, compact=False, **options):
    """A client's wire with HeaderTransport, and its record: the written and the read bytes."""
    default = THeaderSubprotocolID.COMPACT if compact else THeaderSubprotocolID.BINARY
    record = [bytearray(), bytearray()]

    def make_transport(inner):
        return HeaderTransport(RecordingTransport(inner, record), ALL, default, **options)

    factory = SimpleNamespace(getTransport=make_transport)
    return Wire("HEADER", factory, THeaderProtocolFactory()), record


def make_our_server_wire(**options):
    """A server's wire with HeaderTransport."""
    return Wire(
        "HEADER",
        HeaderTransportFactory(allowed_client_types=ALL, **options),
        THeaderProtocolFactory(),
    )


def run_calls(client, **options):
    client.call(
        "add", {"a": -1, "b": 300}, headers={b"trace": b"17", b"": b"\xff"}, flags=3, **options
    )
    client.call("echo", {"what": LARGE})
    client.call("tell", {"text": "on my way", "data": b"\x80"}, headers={b"k": b"v"})
    client.call("nothing")
    client.call("refuse", {"why": "because"})
    client.call("fail", {"number": 7})
    client.call("add", {"a": 1, "b": 2}, seqid=-(1 << 31), headers={b"last": b"1"})


def check_replies(client, server):
    """Check that the client read the replies of the server."""
    for received, sent in zip(client.received, server.sent, strict=True):
        assert are_equal(received, sent), (received, sent)


# ---- under THeaderProtocol


@pytest.mark.parametrize("zlib", [0, 1, 2])
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("who", ["ours to theirs", "theirs to ours", "ours to ours"])
def test_talks_with_the_library(who, compact, zlib):
    record = None
    client_wire = library_wire("HEADER", compact=compact)
    if who.startswith("ours"):
        client_wire, record = make_our_wire(compact=compact, padding="1-4" if zlib else "0-3")
    server_wire = library_wire("HEADER") if who.endswith("theirs") else make_our_server_wire()
    with Server(server_wire) as server, Client(server.address, client_wire) as client:
        run_calls(client, zlib=zlib)
    check_replies(client, server)
    assert [reply["method"] for reply in client.received] == list(REPLIES)
    assert client.received[0]["headers"] == [["trace", "17"], ["", "\xff"]]
    assert client.received[0]["flags"] == 3
    assert client.received[1]["headers"] == []
    assert client.received[-1]["seq"] == 1 << 31
    assert [reply["type"] for reply in client.received][3:5] == ["REPLY", "EXCEPTION"]
    if record:
        requests, replies = (thrift.scan(bytes(data)) for data in record)
        assert set(requests["transform_count"]) == {zlib}
        assert set(requests["padding"]) <= set(range(5))
        # The library does not compress the replies to compressed calls.
        reply_transforms = zlib if who.endswith("ours") else 0
        assert set(replies["transform_count"]) == {reply_transforms}


@pytest.mark.parametrize("who", ["ours to theirs", "theirs to ours"])
def test_every_kind_on_one_connection(who):
    if who.startswith("theirs"):
        client_wire = library_wire("HEADER")
        server_wire = make_our_server_wire()
    else:
        client_wire, _ = make_our_wire()
        server_wire = library_wire("HEADER")
    with Server(server_wire) as server, Client(server.address, client_wire) as client:
        for kind in (*KINDS.values(), *reversed(KINDS.values())):
            client.call("echo", {"what": LARGE}, kind=kind)
            assert client.received[-1]["kind"] == kind
            assert server.sent[-1]["kind"] == kind
    check_replies(client, server)


@pytest.mark.parametrize(
    "transforms",
    [
        [Transform.ZSTD],
        [Transform.LZ4],
        [Transform.SNAPPY],
        [Transform.ZLIB_MORE],
        [Transform.ZSTD_LESS],
        [Transform.LZ4_MORE],
        [Transform.SNAPPY, Transform.LZ4, Transform.ZSTD, Transform.ZLIB],
        [Transform.NONE],
    ],
)
@pytest.mark.parametrize("compact", [False, True])
def test_transforms_that_the_library_does_not_support(transforms, compact):
    client_wire, record = make_our_wire(compact=compact, transforms=transforms)
    with Server(make_our_server_wire()) as server, Client(server.address, client_wire) as client:
        run_calls(client)
    check_replies(client, server)
    for data in record:
        frames = thrift.scan(bytes(data))
        names = [f"transform_{number}" for number in range(len(transforms))]
        if transforms != [Transform.NONE]:
            assert set(zip(*(frames[name].tolist() for name in names))) == {tuple(transforms)}
            assert len(data) < 40_000, "the server compresses its replies too"
        assert not thrift.messages(frames).bad.any()


def test_the_servers_own_transforms_have_priority():
    client_wire, record = make_our_wire(transforms=[Transform.ZLIB])
    with (
        Server(make_our_server_wire(transforms=[Transform.ZSTD])) as server,
        Client(server.address, client_wire) as client,
    ):
        run_calls(client)
    check_replies(client, server)
    assert set(thrift.scan(bytes(record[1]))["transform_0"]) == {Transform.ZSTD}
    client_wire, record = make_our_wire(transforms=[Transform.ZLIB])
    with (
        Server(make_our_server_wire(echo=False)) as server,
        Client(server.address, client_wire) as client,
    ):
        run_calls(client)
    assert set(thrift.scan(bytes(record[1]))["transform_count"]) == {0}


def test_persistent_headers_stay_for_later_calls():
    client_wire, record = make_our_wire(infos_order="persistent")
    with Server(make_our_server_wire()) as server, Client(server.address, client_wire) as client:
        client.protocol.trans.set_persistent_header(b"who", b"me")
        client.call("nothing", headers={b"n": b"1"})
        client.call("nothing")
        client.protocol.trans.set_persistent_header(b"who", b"you")
        client.call("nothing", headers={b"who": b"nobody"})
        client.protocol.trans.clear_persistent_headers()
        client.call("nothing")
    assert [reply["headers"] for reply in client.received] == [
        [["who", "me"], ["n", "1"]],
        [["who", "me"]],
        [["who", "nobody"]],
        [["who", "you"]],
    ]
    assert thrift.scan(bytes(record[0]))["info_count"].tolist() == [2, 0, 2, 0], "each is sent once"


def count_infos(transport):
    """Write one more message. Return the number of infos in its header, in a list."""
    transport._transport._buffer = buffer = BytesIO()
    transport.write(b"message")
    transport.flush()
    return thrift.scan(buffer.getvalue())["info_count"].tolist()


def test_persistent_headers_are_sent_again_when_needed():
    transport = HeaderTransport(TMemoryBuffer())
    transport.set_persistent_header(b"who", b"me")
    transport.set_max_frame_size(20)
    transport.write(bytes(100))
    with pytest.raises(TTransportException, match="the frame to be sent is too large"):
        transport.flush()
    transport.set_max_frame_size(1000)
    # The refused frame was not sent, so the next frame has the persistent header.
    assert count_infos(transport) == [1]
    assert count_infos(transport) == [0]
    transport._transport._buffer = BytesIO(make_frame(b"message", persistent=[(b"host", b"x")]))
    assert transport.read(3) == b"mes"
    assert transport.get_headers() == {b"host": b"x"}
    transport.close()
    transport.open()
    assert count_infos(transport) == [1], "a new connection needs the persistent header again"
    transport._transport._buffer = BytesIO(make_frame(b"message"))
    assert transport.read(7) == b"message"
    assert transport.get_headers() == {}


@pytest.mark.parametrize(
    "factory, default",
    [
        (TBinaryProtocolAcceleratedFactory(), THeaderSubprotocolID.BINARY),
        (TCompactProtocolFactory(), THeaderSubprotocolID.COMPACT),
    ],
)
def test_under_a_plain_protocol(factory, default):
    options = {"default_protocol": default, "transforms": [Transform.ZSTD]}
    plain = Wire("HEADER", HeaderTransportFactory(**options), factory)
    compact = default == THeaderSubprotocolID.COMPACT
    lz4, _ = make_our_wire(compact=compact, transforms=[Transform.LZ4])
    for client_wire, server_wire in ((plain, plain), (plain, make_our_server_wire()), (lz4, plain)):
        with Server(server_wire) as server, Client(server.address, client_wire) as client:
            run_calls(client)
        for received, sent in zip(client.received, server.sent, strict=True):
            for name in ("method", "type", "seqid"):
                assert received[name] == sent[name]
            assert sort_sets(received["fields"]) == sort_sets(sent["fields"])


def test_an_unknown_transform_ends_the_connection():
    client_wire, _ = make_our_wire(transforms=[Transform.ZSTD])
    with Server(library_wire("HEADER")) as server, Client(server.address, client_wire) as client:
        with pytest.raises(TTransportException) as caught:
            client.call("nothing")
        assert caught.value.type == TTransportException.END_OF_FILE
    with (
        Server(make_our_server_wire()) as server,
        socket.create_connection(server.address.split(":")) as connection,
    ):
        connection.sendall(make_frame(b"?", transforms=[Transform.QLZ], seq=5))
        assert connection.recv(100) == b""
        assert not server.sent


# ---- good and bad bytes


class OneByteBuffer(TMemoryBuffer):
    """A buffer that returns one byte at a time."""

    def read(self, size):
        return super().read(min(size, 1))


def reading(data, buffer_class=TMemoryBuffer, **options):
    return HeaderTransport(buffer_class(data), ALL, **options)


GOOD = {
    "header": (
        make_frame(make_binary_message(b"a", 1, 7), seq=5, flags=9, infos=[(b"k", b"v")]),
        THeaderClientType.HEADERS,
    ),
    "big": (
        make_frame(make_binary_message(b"a", 1, 7), seq=5, flags=9, infos=[(b"k", b"v")], big=True),
        THeaderClientType.HEADERS,
    ),
    "double": (
        make_framed(
            make_frame(make_binary_message(b"a", 1, 7), seq=5, flags=9, infos=[(b"k", b"v")])
        ),
        THeaderClientType.HEADERS,
    ),
    "framed": (make_framed(make_binary_message(b"a", 1, 7)), THeaderClientType.FRAMED_BINARY),
    "unframed": (make_binary_message(b"a", 1, 7), THeaderClientType.UNFRAMED_BINARY),
    "framed compact": (
        make_framed(make_compact_message(b"a", 1, 7)),
        THeaderClientType.FRAMED_COMPACT,
    ),
    "unframed compact": (make_compact_message(b"a", 1, 7), THeaderClientType.UNFRAMED_COMPACT),
}


@pytest.mark.parametrize(
    "buffer_class", [TMemoryBuffer, OneByteBuffer], ids=["TMemoryBuffer", "Dripping"]
)
@pytest.mark.parametrize("name", GOOD)
def test_each_frame_is_read_and_no_byte_more(name, buffer_class):
    data, client_type = GOOD[name]
    transport = reading(data + b"more", buffer_class)
    protocol = THeaderProtocol(transport, ())
    assert protocol.trans is transport
    assert protocol.readMessageBegin() == ("a", 1, 7)
    protocol.skip(12)
    assert transport._client_type == client_type
    assert transport._transport._buffer.read() == b"more"
    if client_type == THeaderClientType.HEADERS:
        assert (transport.flags, transport.sequence_id) == (9, 5)
        assert transport.get_headers() == {b"k": b"v"}
    transport._transport._buffer = written = BytesIO()
    protocol.writeMessageBegin("a", 2, 7)
    protocol.writeStructBegin("")
    protocol.writeFieldStop()
    protocol.writeStructEnd()
    protocol.writeMessageEnd()
    transport.flush()
    header = make_frame(make_binary_message(b"a", 2, 7), seq=7, flags=9)
    replies = {
        "header": header,
        "big": header,
        "double": make_framed(header),
        "framed": make_framed(make_binary_message(b"a", 2, 7)),
        "unframed": make_binary_message(b"a", 2, 7),
        "framed compact": make_framed(make_compact_message(b"a", 2, 7)),
        "unframed compact": make_compact_message(b"a", 2, 7),
    }
    assert written.getvalue() == replies[name]


BAD = {
    "no frame": (
        make_framed(b"what is this?"),
        TTransportException.INVALID_CLIENT_TYPE,
        Fault.NOT_A_FRAME,
    ),
    "too short to tell": (
        make_framed(bytes(4)),
        TTransportException.INVALID_CLIENT_TYPE,
        Fault.NOT_A_FRAME,
    ),
    "HTTP": (make_http(b""), TTransportException.SIZE_LIMIT, Fault.BAD_LENGTH),
    "TTHeader": (
        make_framed(b"\x10\0" + bytes(20)),
        TTransportException.INVALID_CLIENT_TYPE,
        Fault.NOT_A_FRAME,
    ),
    "no length": (bytes(8), TTransportException.SIZE_LIMIT, Fault.BAD_LENGTH),
    "too large": (b"\x00\xfa\x00\x01" + bytes(8), TTransportException.SIZE_LIMIT, Fault.BAD_LENGTH),
    "too large, big": (b"BIGF\xff" + bytes(12), TTransportException.SIZE_LIMIT, Fault.BAD_LENGTH),
    "big, and no header": (
        b"BIGF" + bytes(7) + b"\x0a" + bytes(10),
        TTransportException.INVALID_CLIENT_TYPE,
        Fault.NOT_A_FRAME,
    ),
    "a header beyond the frame": (
        make_framed(b"\x0f\xff\0\0\0\0\0\1\xff\xff\0\0\0\0"),
        TTransportException.UNKNOWN,
        Fault.BAD_HEADER,
    ),
    "a bomb": (
        make_frame(bytes(20 << 20), transforms=[1, 1]),
        TTransportException.SIZE_LIMIT,
        Fault.TOO_LARGE,
    ),
    "an unknown transform": (
        make_frame(b"?", transforms=[4]),
        TTransportException.UNKNOWN,
        Fault.BAD_CODEC,
    ),
    "no zstd": (
        make_frame(b"zstd?", transforms=[5]),
        TTransportException.UNKNOWN,
        Fault.BAD_COMPRESSION,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_bytes_raise(name):
    data, kind, fault = BAD[name]
    transport = reading(data)
    with pytest.raises(TransportError) as caught:
        transport.read(1)
    error = caught.value
    assert isinstance(error, TTransportException)
    assert isinstance(error, FrameError)
    assert (error.type, error.fault) == (kind, fault)
    assert fault.name in str(error)
    assert str(error) == error.message


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4), st.integers(0, 20)
)
def test_any_bytes_end_in_frames_or_one_error(changes, size):
    data = bytearray(b"".join(good for good, _ in GOOD.values() for _ in range(2)))
    for position, byte in changes:
        data[position] = byte
    transport = reading(bytes(data))
    with pytest.raises(TTransportException) as caught:
        while True:
            transport.readFrame(size)
    assert isinstance(caught.value, FrameError) or caught.value.type in (
        TTransportException.END_OF_FILE,
        TTransportException.INVALID_CLIENT_TYPE,
    )


def test_every_cut_frame_raises_end_of_file():
    data = make_frame(make_binary_message(b"a", 1, 7), transforms=[1], infos=[(b"k", b"v")])
    for size in range(len(data)):
        with pytest.raises(TTransportException) as caught:
            reading(data[:size]).read(1)
        assert caught.value.type == TTransportException.END_OF_FILE


def test_sizes_have_limits():
    transport = reading(make_frame(bytes(1000)))
    transport.set_max_frame_size(1000)
    with pytest.raises(TransportError, match="BAD_LENGTH"):
        transport.read(1)
    transport = reading(make_frame(bytes(1000), transforms=[1]))
    transport.set_max_decompressed_size(999)
    with pytest.raises(TransportError) as caught:
        transport.read(1)
    assert caught.value.fault is Fault.TOO_LARGE
    transport.set_max_frame_size(100)
    transport.write(bytes(100))
    with pytest.raises(TTransportException, match="the frame to be sent is too large"):
        transport.flush()
    only = HeaderTransport(TMemoryBuffer(make_framed(make_binary_message(b"a", 1, 7))))
    with pytest.raises(TTransportException) as caught:
        only.read(1)
    assert caught.value.type == TTransportException.INVALID_CLIENT_TYPE


def test_bad_options_raise():
    for options in (
        {"padding": "2"},
        {"transforms": [Transform.HMAC]},
        {"transforms": [14]},
        {"infos_order": 1},
    ):
        message = "padding must be|unknown transform|infos_order must be"
        with pytest.raises((TypeError, ValueError), match=message):
            HeaderTransport(TMemoryBuffer(), **options)
        with pytest.raises((TypeError, ValueError), match=message):
            HeaderTransportFactory(**options)
    with pytest.raises(ValueError, match="header names and values must be bytes"):
        HeaderTransport(TMemoryBuffer()).set_persistent_header("k", b"v")
    with pytest.raises(TTransportException, match="not allowed by server"):
        HeaderTransport(TMemoryBuffer(), client_type=THeaderClientType.FRAMED_BINARY)


def test_a_client_of_an_older_server():
    transport = HeaderTransport(TMemoryBuffer(), ALL, client_type=THeaderClientType.FRAMED_BINARY)
    transport.write(b"message")
    transport.flush()
    assert transport._transport.getvalue() == make_framed(b"message")


# ---- the channels

STRUCTS = {Protocol.BINARY: TBinaryProtocol, Protocol.COMPACT: TCompactProtocol}


def encode_struct(struct, protocol):
    buffer = TMemoryBuffer()
    struct.write(STRUCTS[protocol](buffer))
    return buffer.getvalue()


def decode_struct(name, message):
    struct = getattr(APACHE, name)()
    struct.read(STRUCTS[message.protocol](TMemoryBuffer(bytes(message.arguments))))
    return struct


def receive_events(connection, channel, count=1):
    events = []
    while len(events) < count:
        data = connection.recv(65536)
        assert data, "the server hung up"
        events += channel.receive(data)
    return events


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"protocol": "compact", "padding": "1-4"},
        {"transforms": [Transform.ZLIB] * 2},
        {"framing": "framed"},
        {"framing": "unframed", "protocol": "compact"},
    ],
)
def test_client_channel_with_the_library(options):
    channel = ClientChannel(**options)
    protocol = Protocol.COMPACT if "protocol" in options else Protocol.BINARY
    infos = {} if "framing" in options else {"infos": {b"trace": b"17"}}
    with (
        Server(library_wire("HEADER")) as server,
        socket.create_connection(server.address.split(":")) as connection,
    ):
        for number in range(3):
            arguments = build_struct(APACHE.add_args, {"a": number, "b": 1})
            data = channel.send_call("add", encode_struct(arguments, protocol), **infos)
            connection.sendall(data)
        arguments = build_struct(APACHE.tell_args, {"text": "x"})
        data = channel.send_call("tell", encode_struct(arguments, protocol), oneway=True)
        connection.sendall(data)
        arguments = build_struct(APACHE.echo_args, {"what": LARGE})
        connection.sendall(channel.send_call("echo", encode_struct(arguments, protocol)))
        connection.sendall(channel.send_call("missing"))
        replies = receive_events(connection, channel, 5)
    assert [reply.call.method for reply in replies] == [b"add"] * 3 + [b"echo", b"missing"]
    assert [decode_struct("add_result", reply).success for reply in replies[:3]] == [1, 2, 3]
    assert replies[0].infos == infos.get("infos", {})
    assert replies[-1].type is MessageType.EXCEPTION
    echoed = decode_struct("echo_result", replies[3]).success
    assert list_fields(echoed) == list_fields(build_struct(APACHE.Everything, LARGE))
    assert not channel.unanswered
    assert not channel.held


class ChannelServer(BackgroundServer):
    """A server that adds and echoes through ServerChannel."""

    def listen(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        return self._listener.getsockname()[1]

    def serve(self):
        connection, _ = self._listener.accept()
        self.calls = []
        channel = ServerChannel()
        with connection:
            while data := connection.recv(1000):
                for call in channel.receive(data):
                    self.calls.append(call)
                    if call.type is MessageType.CALL:
                        reply = channel.send_reply(call, self.result(call), infos=call.infos)
                        connection.sendall(reply)

    def result(self, call):
        name = call.method.decode()
        arguments = decode_struct(f"{name}_args", call)
        result = getattr(APACHE, f"{name}_result")()
        if name != "nothing":
            result.success = arguments.what if name == "echo" else arguments.a + arguments.b
        return encode_struct(result, call.protocol)

    def close(self):
        self._listener.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda: library_wire("HEADER"),
        lambda: library_wire("HEADER", compact=True),
        lambda: make_our_wire(compact=True, transforms=[Transform.ZSTD])[0],
    ],
)
def test_server_channel_with_the_library(make):
    with ChannelServer() as server, Client(server.address, make()) as client:
        client.call("add", {"a": 1, "b": 2}, headers={b"trace": b"17"}, zlib=1)
        client.call("tell", {"text": "on my way"})
        client.call("echo", {"what": LARGE})
        for kind in KINDS.values():
            client.call("nothing", kind=kind)
    seqids = [call["seqid"] for call in client.sent if call["method"] != "tell"]
    assert [reply["seqid"] for reply in client.received] == seqids
    assert client.received[0]["headers"] == [["trace", "17"]]
    assert client.received[0]["fields"] == [[0, "I32", 3]]
    sent, received = (sort_sets(call["fields"]) for call in (client.sent[2], client.received[1]))
    assert received[0][2] == sent[0][2]
    assert [reply["kind"] for reply in client.received[2:]] == list(KINDS.values())
    assert [call.kind for call in server.calls[3:]] == [
        Kind.HEADER,
        Kind.FRAMED_BINARY,
        Kind.UNFRAMED_BINARY,
        Kind.FRAMED_COMPACT,
        Kind.UNFRAMED_COMPACT,
    ]
