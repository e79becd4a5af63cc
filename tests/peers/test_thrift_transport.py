"""HeaderTransport beneath Apache Thrift's own protocols, and the channels against these: as client and as server."""
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
from thrift_bytes import binary, compact, frame, framed, http

from wirescan import Fault, FrameError, thrift
from wirescan.thrift.channel import ClientChannel, ServerChannel
from wirescan.thrift.kind import Kind, MessageType, Protocol, Transform
from wirescan.thrift.transport import HeaderTransport, HeaderTransportFactory, TransportError

from .thrift import KINDS, Client, Served, Server, Wire, wire as theirs
from .thrift_types import APACHE, EVERYTHING, made, told

pytestmark = pytest.mark.peers
ALL = tuple(KINDS)
LARGE = {**EVERYTHING, "text": "wirescan " * 20_000}
REPLIES = ("add", "echo", "nothing", "refuse", "fail", "add")       # of the calls below


class Recorded(TBufferedTransport):
    """Keeps what a client writes, and reads."""

    def __init__(self, beneath, kept):
        super().__init__(beneath)
        self._kept = kept

    def read(self, size):
        data = super().read(size)
        self._kept[1] += data
        return data

    def write(self, data):
        self._kept[0] += data
        super().write(data)


def ours(compact=False, **options):
    """A client's wire, and what it keeps: bytes written, and read."""
    default = THeaderSubprotocolID.COMPACT if compact else THeaderSubprotocolID.BINARY
    kept = [bytearray(), bytearray()]
    return Wire("HEADER", SimpleNamespace(getTransport=lambda beneath: HeaderTransport(
        Recorded(beneath, kept), ALL, default, **options)), THeaderProtocolFactory()), kept


def serving(**options):
    """A server's wire."""
    return Wire("HEADER", HeaderTransportFactory(allowed_client_types=ALL, **options), THeaderProtocolFactory())


def talk(client, **options):
    client.call("add", {"a": -1, "b": 300}, headers={b"trace": b"17", b"": b"\xff"}, flags=3, **options)
    client.call("echo", {"what": LARGE})
    client.call("tell", {"text": "on my way", "data": b"\x80"}, headers={b"k": b"v"})
    client.call("nothing")
    client.call("refuse", {"why": "because"})
    client.call("fail", {"number": 7})
    client.call("add", {"a": 1, "b": 2}, seqid=-(1 << 31), headers={b"last": b"1"})


def agreed(client, server):
    """Whether the client has heard what the server said."""
    for heard, said in zip(client.heard, server.said, strict=True):
        assert heard == {name: said[name] for name in heard}


# ---------------------------------------------------------------------------- beneath THeaderProtocol


@pytest.mark.parametrize("zlib", [0, 1, 2])
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("who", ["ours to theirs", "theirs to ours", "ours to ours"])
def test_with_the_library_itself(who, compact, zlib):
    kept = None
    client_wire = theirs("HEADER", compact)
    if who.startswith("ours"):
        client_wire, kept = ours(compact, padding="1-4" if zlib else "0-3")
    with Server(theirs("HEADER") if who.endswith("theirs") else serving()) as server:
        with Client(server.address, client_wire) as client:
            talk(client, zlib=zlib)
    agreed(client, server)
    assert [one["method"] for one in client.heard] == list(REPLIES)
    assert client.heard[0]["headers"] == [["trace", "17"], ["", "\xff"]] and client.heard[0]["flags"] == 3
    assert client.heard[1]["headers"] == [] and client.heard[-1]["seq"] == 1 << 31
    assert [one["type"] for one in client.heard][3:5] == ["REPLY", "EXCEPTION"]
    if kept:
        asked, answered = (thrift.scan(bytes(data)) for data in kept)
        assert set(asked["transform_count"]) == {zlib} and set(asked["padding"]) <= set(range(5))
        assert set(answered["transform_count"]) == {zlib if who.endswith("ours") else 0}, "theirs do not echo"


@pytest.mark.parametrize("who", ["ours to theirs", "theirs to ours"])
def test_every_kind_on_one_connection(who):
    client_wire, server_wire = (theirs("HEADER"), serving()) if who.startswith("theirs") else (
        ours()[0], theirs("HEADER"))
    with Server(server_wire) as server, Client(server.address, client_wire) as client:
        for kind in (*KINDS.values(), *reversed(KINDS.values())):
            client.call("echo", {"what": LARGE}, kind=kind)
            assert client.heard[-1]["kind"] == kind and server.said[-1]["kind"] == kind
    agreed(client, server)


@pytest.mark.parametrize("transforms", [
    [Transform.ZSTD], [Transform.LZ4], [Transform.SNAPPY], [Transform.ZLIB_MORE], [Transform.ZSTD_LESS],
    [Transform.LZ4_MORE], [Transform.SNAPPY, Transform.LZ4, Transform.ZSTD, Transform.ZLIB], [Transform.NONE]])
@pytest.mark.parametrize("compact", [False, True])
def test_transforms_that_the_library_has_not(transforms, compact):
    client_wire, kept = ours(compact, transforms=transforms)
    with Server(serving()) as server, Client(server.address, client_wire) as client:
        talk(client)
    agreed(client, server)
    for data in kept:
        frames = thrift.scan(bytes(data))
        names = [f"transform_{number}" for number in range(len(transforms))]
        if transforms != [Transform.NONE]:
            assert set(zip(*(frames[name].tolist() for name in names))) == {tuple(transforms)}
            assert len(data) < 40_000, "both ways: the server echoes them"
        assert not thrift.messages(frames).bad.any()


def test_a_transform_of_its_own_wins():
    client_wire, kept = ours(transforms=[Transform.ZLIB])
    with Server(serving(transforms=[Transform.ZSTD])) as server, Client(server.address, client_wire) as client:
        talk(client)
    agreed(client, server)
    assert set(thrift.scan(bytes(kept[1]))["transform_0"]) == {Transform.ZSTD}
    client_wire, kept = ours(transforms=[Transform.ZLIB])
    with Server(serving(echo=False)) as server, Client(server.address, client_wire) as client:
        talk(client)
    assert set(thrift.scan(bytes(kept[1]))["transform_count"]) == {0}


def test_persistent_headers():
    client_wire, kept = ours(infos_order="persistent")
    with Server(serving()) as server, Client(server.address, client_wire) as client:
        client.protocol.trans.set_persistent_header(b"who", b"me")
        client.call("nothing", headers={b"n": b"1"})
        client.call("nothing")
        client.protocol.trans.set_persistent_header(b"who", b"you")
        client.call("nothing", headers={b"who": b"nobody"})
        client.protocol.trans.clear_persistent_headers()
        client.call("nothing")
    assert [one["headers"] for one in client.heard] == [
        [["who", "me"], ["n", "1"]], [["who", "me"]], [["who", "nobody"]], [["who", "you"]]]
    assert thrift.scan(bytes(kept[0]))["info_count"].tolist() == [2, 0, 2, 0], "each is sent once"


def written(transport):
    """What it writes for one more message: the pairs in its header."""
    transport._transport._buffer = beneath = BytesIO()
    transport.write(b"message")
    transport.flush()
    return thrift.scan(beneath.getvalue())["info_count"].tolist()


def test_persistent_headers_that_the_peer_does_not_know():
    transport = HeaderTransport(TMemoryBuffer())
    transport.set_persistent_header(b"who", b"me")
    transport.set_max_frame_size(20)
    transport.write(bytes(100))
    with pytest.raises(TTransportException):
        transport.flush()
    transport.set_max_frame_size(1000)
    assert written(transport) == [1] and written(transport) == [0], "a frame that was refused has told nothing"
    transport._transport._buffer = BytesIO(frame(b"message", persistent=[(b"host", b"x")]))
    assert transport.read(3) == b"mes" and transport.get_headers() == {b"host": b"x"}
    transport.close()
    transport.open()
    assert written(transport) == [1], "nor does a new connection know what an old one was told"
    transport._transport._buffer = BytesIO(frame(b"message"))
    assert transport.read(7) == b"message" and transport.get_headers() == {}


@pytest.mark.parametrize("factory, default", [
    (TBinaryProtocolAcceleratedFactory(), THeaderSubprotocolID.BINARY),
    (TCompactProtocolFactory(), THeaderSubprotocolID.COMPACT)])
def test_beneath_a_plain_protocol(factory, default):
    options = {"default_protocol": default, "transforms": [Transform.ZSTD]}
    plain = Wire("HEADER", HeaderTransportFactory(**options), factory)
    for client_wire, server_wire in ((plain, plain), (plain, serving()), (ours(
            default == THeaderSubprotocolID.COMPACT, transforms=[Transform.LZ4])[0], plain)):
        with Server(server_wire) as server, Client(server.address, client_wire) as client:
            talk(client)
        for heard, said in zip(client.heard, server.said, strict=True):
            assert all(heard[name] == said[name] for name in ("method", "type", "seqid", "fields"))


def test_an_unknown_transform_ends_the_connection():
    with Server(theirs("HEADER")) as server, Client(server.address, ours(transforms=[Transform.ZSTD])[0]) as client:
        with pytest.raises(TTransportException) as caught:
            client.call("nothing")
        assert caught.value.type == TTransportException.END_OF_FILE
    with Server(serving()) as server, socket.create_connection(server.address.split(":")) as connection:
        connection.sendall(frame(b"?", transforms=[Transform.QLZ], seq=5))
        assert connection.recv(100) == b"" and not server.said


# ---------------------------------------------------------------------------- bytes, good and bad


class Dripping(TMemoryBuffer):
    """Gives one byte at a time."""

    def read(self, size):
        return super().read(min(size, 1))


def reading(data, beneath=TMemoryBuffer, **options):
    return HeaderTransport(beneath(data), ALL, **options)


GOOD = {
    "header": (frame(binary(b"a", 1, 7), seq=5, flags=9, infos=[(b"k", b"v")]), THeaderClientType.HEADERS),
    "big": (frame(binary(b"a", 1, 7), seq=5, flags=9, infos=[(b"k", b"v")], big=True), THeaderClientType.HEADERS),
    "double": (framed(frame(binary(b"a", 1, 7), seq=5, flags=9, infos=[(b"k", b"v")])), THeaderClientType.HEADERS),
    "framed": (framed(binary(b"a", 1, 7)), THeaderClientType.FRAMED_BINARY),
    "unframed": (binary(b"a", 1, 7), THeaderClientType.UNFRAMED_BINARY),
    "framed compact": (framed(compact(b"a", 1, 7)), THeaderClientType.FRAMED_COMPACT),
    "unframed compact": (compact(b"a", 1, 7), THeaderClientType.UNFRAMED_COMPACT),
}


@pytest.mark.parametrize("beneath", [TMemoryBuffer, Dripping])
@pytest.mark.parametrize("name", GOOD)
def test_each_frame_is_read_and_no_byte_more(name, beneath):
    data, client_type = GOOD[name]
    transport = reading(data + b"more", beneath)
    protocol = THeaderProtocol(transport, ())
    assert protocol.trans is transport and protocol.readMessageBegin() == ("a", 1, 7)
    protocol.skip(12)
    assert transport._client_type == client_type and transport._transport._buffer.read() == b"more"
    if client_type == THeaderClientType.HEADERS:
        assert (transport.flags, transport.sequence_id, transport.get_headers()) == (9, 5, {b"k": b"v"})
    transport._transport._buffer = written = BytesIO()
    protocol.writeMessageBegin("a", 2, 7)
    protocol.writeStructBegin("")
    protocol.writeFieldStop()
    protocol.writeStructEnd()
    protocol.writeMessageEnd()
    transport.flush()
    header = frame(binary(b"a", 2, 7), seq=7, flags=9)
    assert written.getvalue() == {
        "header": header, "big": header, "double": framed(header), "framed": framed(binary(b"a", 2, 7)),
        "unframed": binary(b"a", 2, 7), "framed compact": framed(compact(b"a", 2, 7)),
        "unframed compact": compact(b"a", 2, 7)}[name]


BAD = {
    "no frame": (framed(b"what is this?"), TTransportException.INVALID_CLIENT_TYPE, Fault.NOT_A_FRAME),
    "too short to tell": (framed(bytes(4)), TTransportException.INVALID_CLIENT_TYPE, Fault.NOT_A_FRAME),
    "HTTP": (http(b""), TTransportException.SIZE_LIMIT, Fault.BAD_LENGTH),
    "TTHeader": (framed(b"\x10\0" + bytes(20)), TTransportException.INVALID_CLIENT_TYPE, Fault.NOT_A_FRAME),
    "no length": (bytes(8), TTransportException.SIZE_LIMIT, Fault.BAD_LENGTH),
    "too large": (b"\x00\xfa\x00\x01" + bytes(8), TTransportException.SIZE_LIMIT, Fault.BAD_LENGTH),
    "too large, big": (b"BIGF\xff" + bytes(12), TTransportException.SIZE_LIMIT, Fault.BAD_LENGTH),
    "big, and no header": (b"BIGF" + bytes(7) + b"\x0a" + bytes(10), TTransportException.INVALID_CLIENT_TYPE,
                           Fault.NOT_A_FRAME),
    "a header beyond the frame": (framed(b"\x0f\xff\0\0\0\0\0\1\xff\xff\0\0\0\0"), TTransportException.UNKNOWN,
                                  Fault.BAD_HEADER),
    "a bomb": (frame(bytes(20 << 20), transforms=[1, 1]), TTransportException.SIZE_LIMIT, Fault.TOO_LARGE),
    "an unknown transform": (frame(b"?", transforms=[4]), TTransportException.UNKNOWN, Fault.BAD_CODEC),
    "no zstd": (frame(b"zstd?", transforms=[5]), TTransportException.UNKNOWN, Fault.BAD_COMPRESSION),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_bytes(name):
    data, kind, fault = BAD[name]
    transport = reading(data)
    with pytest.raises(TransportError) as caught:
        transport.read(1)
    error = caught.value
    assert isinstance(error, TTransportException) and isinstance(error, FrameError)
    assert (error.type, error.fault) == (kind, fault) and fault.name in str(error) == error.message


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4), st.integers(0, 20))
def test_any_bytes_end_in_frames_or_one_error(changes, size):
    data = bytearray(b"".join(good for good, _ in GOOD.values() for _ in range(2)))
    for at, byte in changes:
        data[at] = byte
    transport = reading(bytes(data))
    with pytest.raises(TTransportException) as caught:
        while True:
            transport.readFrame(size)
    assert isinstance(caught.value, FrameError) or caught.value.type in (
        TTransportException.END_OF_FILE, TTransportException.INVALID_CLIENT_TYPE)


def test_every_cut():
    data = frame(binary(b"a", 1, 7), transforms=[1], infos=[(b"k", b"v")])
    for size in range(len(data)):
        with pytest.raises(TTransportException) as caught:
            reading(data[:size]).read(1)
        assert caught.value.type == TTransportException.END_OF_FILE


def test_limits():
    transport = reading(frame(bytes(1000)))
    transport.set_max_frame_size(1000)
    with pytest.raises(TransportError):
        transport.read(1)
    transport = reading(frame(bytes(1000), transforms=[1]))
    transport.set_max_decompressed_size(999)
    with pytest.raises(TransportError) as caught:
        transport.read(1)
    assert caught.value.fault is Fault.TOO_LARGE
    transport.set_max_frame_size(100)
    transport.write(bytes(100))
    with pytest.raises(TTransportException):
        transport.flush()
    only = HeaderTransport(TMemoryBuffer(framed(binary(b"a", 1, 7))))
    with pytest.raises(TTransportException) as caught:
        only.read(1)
    assert caught.value.type == TTransportException.INVALID_CLIENT_TYPE


def test_unfit_options():
    for options in ({"padding": "2"}, {"transforms": [Transform.HMAC]}, {"transforms": [14]}, {"infos_order": 1}):
        for make in (lambda: HeaderTransport(TMemoryBuffer(), **options), lambda: HeaderTransportFactory(**options)):
            with pytest.raises((TypeError, ValueError)):
                make()
    with pytest.raises(ValueError):
        HeaderTransport(TMemoryBuffer()).set_persistent_header("k", b"v")
    with pytest.raises(TTransportException):
        HeaderTransport(TMemoryBuffer(), client_type=THeaderClientType.FRAMED_BINARY)


def test_a_client_of_an_older_server():
    transport = HeaderTransport(TMemoryBuffer(), ALL, client_type=THeaderClientType.FRAMED_BINARY)
    transport.write(b"message")
    transport.flush()
    assert transport._transport.getvalue() == framed(b"message")


# ---------------------------------------------------------------------------- the channels

STRUCTS = {Protocol.BINARY: TBinaryProtocol, Protocol.COMPACT: TCompactProtocol}


def packed(struct, protocol):
    buffer = TMemoryBuffer()
    struct.write(STRUCTS[protocol](buffer))
    return buffer.getvalue()


def unpacked(name, message):
    struct = getattr(APACHE, name)()
    struct.read(STRUCTS[message.protocol](TMemoryBuffer(bytes(message.arguments))))
    return struct


def exchanged(connection, channel, count=1):
    events = []
    while len(events) < count:
        data = connection.recv(65536)
        assert data, "the server hung up"
        events += channel.receive(data)
    return events


@pytest.mark.parametrize("options", [
    {}, {"protocol": "compact", "padding": "1-4"}, {"transforms": [Transform.ZLIB] * 2}, {"framing": "framed"},
    {"framing": "unframed", "protocol": "compact"}])
def test_client_channel_with_the_library(options):
    channel = ClientChannel(**options)
    protocol = Protocol.COMPACT if "protocol" in options else Protocol.BINARY
    infos = {} if "framing" in options else {"infos": {b"trace": b"17"}}
    with Server(theirs("HEADER")) as server, socket.create_connection(server.address.split(":")) as connection:
        for number in range(3):
            connection.sendall(channel.send_call(
                "add", packed(made(APACHE.add_args, {"a": number, "b": 1}), protocol), **infos))
        connection.sendall(channel.send_call("tell", packed(made(APACHE.tell_args, {"text": "x"}), protocol),
                                             oneway=True))
        connection.sendall(channel.send_call("echo", packed(made(APACHE.echo_args, {"what": LARGE}), protocol)))
        connection.sendall(channel.send_call("missing"))
        replies = exchanged(connection, channel, 5)
    assert [reply.call.method for reply in replies] == [b"add"] * 3 + [b"echo", b"missing"]
    assert [unpacked("add_result", reply).success for reply in replies[:3]] == [1, 2, 3]
    assert replies[0].infos == infos.get("infos", {}) and replies[-1].type is MessageType.EXCEPTION
    assert told(unpacked("echo_result", replies[3]).success) == told(made(APACHE.Everything, LARGE))
    assert not channel.unanswered and not channel.held


class ChannelServer(Served):
    """Adds, and echoes, over ServerChannel."""

    def listen(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        return self._listener.getsockname()[1]

    def serve(self):
        connection, _ = self._listener.accept()
        self.calls, channel = [], ServerChannel()
        with connection:
            while data := connection.recv(1000):
                for call in channel.receive(data):
                    self.calls.append(call)
                    if call.type is MessageType.CALL:
                        connection.sendall(channel.send_reply(call, self.result(call), infos=call.infos))

    def result(self, call):
        name = call.method.decode()
        arguments = unpacked(f"{name}_args", call)
        result = getattr(APACHE, f"{name}_result")()
        if name != "nothing":
            result.success = arguments.what if name == "echo" else arguments.a + arguments.b
        return packed(result, call.protocol)

    def close(self):
        self._listener.close()


@pytest.mark.parametrize("make", [lambda: theirs("HEADER"), lambda: theirs("HEADER", True),
                                  lambda: ours(True, transforms=[Transform.ZSTD])[0]])
def test_server_channel_with_the_library(make):
    with ChannelServer() as server, Client(server.address, make()) as client:
        client.call("add", {"a": 1, "b": 2}, headers={b"trace": b"17"}, zlib=1)
        client.call("tell", {"text": "on my way"})
        client.call("echo", {"what": LARGE})
        for kind in KINDS.values():
            client.call("nothing", kind=kind)
    assert [one["seqid"] for one in client.heard] == [one["seqid"] for one in client.said if one["method"] != "tell"]
    assert client.heard[0]["headers"] == [["trace", "17"]] and client.heard[0]["fields"] == [[0, "I32", 3]]
    assert client.heard[1]["fields"][0][2] == client.said[2]["fields"][0][2]
    assert [one["kind"] for one in client.heard[2:]] == list(KINDS.values())
    assert [call.kind for call in server.calls[3:]] == [Kind.HEADER, Kind.FRAMED_BINARY, Kind.UNFRAMED_BINARY,
                                                        Kind.FRAMED_COMPACT, Kind.UNFRAMED_COMPACT]
