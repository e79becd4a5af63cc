"""Apache Thrift's Python library and thriftpy2, live.

A new recording holds the same messages as the committed one. wirescan reads any shape of message
that the library writes. Both libraries read what wirescan writes.
"""

import http.client
import socket

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.protocol.THeaderProtocol import THeaderProtocol
from thrift.Thrift import TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer
from thriftpy2.transport import TMemoryBuffer as TMemoryBuffer2

import wirescan
from tests.support.thrift_corpus import (
    CORPUS,
    SIDES,
    check_recording,
    list_message_fields,
    list_messages,
    read_recorded_values,
    scan_recording,
)
from wirescan import thrift
from wirescan.thrift import Kind, MessageType, Protocol, Transform
from wirescan.thrift.encode import (
    encode_frame,
    encode_framed,
    encode_frames,
    encode_message,
    encode_messages,
)

from . import thrift as apache
from . import thriftpy2
from .make_thrift import SCENES, record, sort_sets
from .thrift_types import APACHE, EVERYTHING, NAMES, PEER, build_struct, list_fields

pytestmark = pytest.mark.peers
TYPES = {name: number for number, name in NAMES.items()}


@pytest.fixture(scope="module")
def new_recording(tmp_path_factory):
    """A new recording of the peers: its directory and messages."""
    directory = tmp_path_factory.mktemp("thrift")
    record(directory)
    return directory, read_recorded_values(directory)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("scene", SCENES)
def test_a_new_recording_has_the_same_messages(new_recording, scene, side):
    directory, messages = new_recording
    check_recording(directory, scene, side, messages[scene, side])
    methods = [message["method"] for message in messages[scene, side]]
    assert methods == [message["method"] for message in read_recorded_values(CORPUS)[scene, side]]


# ---- any shape of message, written by the library
STRINGS = st.one_of(st.text(max_size=5), st.just("x" * 200)).map(
    lambda text: text.encode().decode("latin-1")
)
LEAVES = {
    "BOOL": st.booleans(),
    "BYTE": st.integers(-128, 127),
    "I16": st.integers(-1 << 15, (1 << 15) - 1),
    "I32": st.integers(-1 << 31, (1 << 31) - 1),
    "I64": st.integers(-1 << 63, (1 << 63) - 1),
    "DOUBLE": st.floats().map(float.hex),
    "STRING": STRINGS,
    "UUID": st.binary(min_size=16, max_size=16).map(lambda octets: octets.decode("latin-1")),
}
IDS = st.integers(-1 << 15, (1 << 15) - 1)


def values(depth: int):
    """(type, value) of every type, in the form of list_fields()."""
    leaves = st.sampled_from(sorted(LEAVES)).flatmap(
        lambda name: st.tuples(st.just(name), LEAVES[name])
    )
    if not depth:
        return leaves
    return st.one_of(
        leaves,
        leaves,
        structs(depth - 1).map(lambda fields: ("STRUCT", fields)),
        st.sampled_from(["LIST", "SET"]).flatmap(
            lambda name: st.tuples(st.just(name), lists(depth - 1))
        ),
        maps(depth - 1).map(lambda value: ("MAP", value)),
    )


def same_type_values(depth: int, least: int = 0):
    """(type, values) with values of one type."""

    def repeat(pair):
        name, value = pair
        more = LEAVES[name] if name in LEAVES else st.just(value)
        return st.tuples(st.just(name), st.lists(more, min_size=least, max_size=17))

    return values(depth).flatmap(repeat)


def lists(depth: int):
    return same_type_values(depth).map(list)


def maps(depth: int):
    def build_map(keys, contents):
        pairs = [list(pair) for pair in zip(keys[1], contents[1])]
        return [keys[0], contents[0], pairs] if pairs else [None, None, []]

    return st.builds(build_map, same_type_values(0), same_type_values(depth))


def structs(depth: int):
    return st.lists(st.tuples(IDS, values(depth)), max_size=5).map(
        lambda fields: [[number, name, value] for number, (name, value) in fields]
    )


def write(protocol, name: str, value) -> None:
    """Write a value in the form of list_fields()."""
    if name == "STRUCT":
        protocol.writeStructBegin("")
        for number, kind, field in value:
            protocol.writeFieldBegin("", TYPES[kind], number)
            write(protocol, kind, field)
            protocol.writeFieldEnd()
        protocol.writeFieldStop()
        protocol.writeStructEnd()
    elif name in ("LIST", "SET"):
        kind, items = value
        if name == "LIST":
            begin, end = protocol.writeListBegin, protocol.writeListEnd
        else:
            begin, end = protocol.writeSetBegin, protocol.writeSetEnd
        begin(TYPES[kind], len(items))
        for item in items:
            write(protocol, kind, item)
        end()
    elif name == "MAP":
        key_kind, kind, pairs = value
        protocol.writeMapBegin(TYPES[key_kind or "I32"], TYPES[kind or "BOOL"], len(pairs))
        for key, item in pairs:
            write(protocol, key_kind, key)
            write(protocol, kind, item)
        protocol.writeMapEnd()
    elif name == "DOUBLE":
        protocol.writeDouble(float.fromhex(value))
    elif name in ("STRING", "UUID"):
        octets = value.encode("latin-1")
        if name == "STRING":
            protocol.writeBinary(octets)
        else:
            protocol.trans.write(octets)
    else:
        getattr(protocol, "write" + name.capitalize())(value)


@given(
    st.lists(
        st.tuples(st.text(max_size=20), st.integers(-1 << 31, (1 << 31) - 1), structs(3)),
        max_size=4,
    ),
    st.sampled_from([TBinaryProtocol, TCompactProtocol]),
    st.booleans(),
)
def test_any_shape_of_message(calls, protocol, framed):
    data = b""
    for name, seqid, fields in calls:
        transport = TMemoryBuffer()
        writer = protocol(transport)
        writer.writeMessageBegin(name, TMessageType.REPLY, seqid)
        write(writer, "STRUCT", fields)
        writer.writeMessageEnd()
        data += encode_framed(transport.getvalue()) if framed else transport.getvalue()
    messages = messages_of(data)
    begins = [(bytes(row.method).decode(), row.seqid) for row in messages]
    assert begins == [(name, seqid) for name, seqid, _ in calls]
    assert list_message_fields(messages) == [fields for _, _, fields in calls]


# ---- both libraries read what wirescan writes
KINDS = tuple(apache.KINDS)
HEADERS = {b"trace": b"17", b"": bytes(range(256)), b"k" * 200: b"v" * 300}


def messages_of(data: bytes) -> wirescan.FrameTable:
    return thrift.messages(scan_recording(data))


def write_arguments(protocol: type = TBinaryProtocol, **values) -> bytes:
    """The bytes of echo_args, written by Apache's library."""
    transport = TMemoryBuffer()
    build_struct(APACHE.echo_args, {"what": values}).write(protocol(transport))
    return transport.getvalue()


@pytest.mark.parametrize("padding", ["0-3", "1-4"])
@pytest.mark.parametrize("transforms", [(), (1,), (1, 1)], ids=["plain", "once", "twice"])
@pytest.mark.parametrize(
    ("compact", "writer"),
    [(False, TBinaryProtocol), (True, TCompactProtocol)],
    ids=["binary", "compact"],
)
def test_apache_reads_our_frames(compact, writer, transforms, padding):
    """Apache's library reads the messages, flags, numbers and headers of wirescan's frames.

    Infos after persistent ones are lost for it; `infos_order` describes that.
    """
    protocol = Protocol.COMPACT if compact else Protocol.BINARY
    struct = write_arguments(writer, **EVERYTHING)
    data = b""
    expected = []
    cases = [
        ((), (), "normal"),
        (HEADERS, (), "normal"),
        (HEADERS, {b"p": b"q"}, "normal"),
        (HEADERS, {b"p": b"q"}, "persistent"),
    ]
    for number, (infos, persistent, order) in enumerate(cases):
        message = encode_message("echo", MessageType.CALL, -number, struct, protocol=protocol)
        data += encode_frame(
            message,
            protocol_id=protocol,
            flags=number << 8,
            seq=-number,
            transforms=transforms,
            infos=infos,
            persistent=persistent,
            infos_order=order,
            padding=padding,
        )
        expected.append((number << 8, -number, dict(infos) if order == "normal" else {}))
    reader = THeaderProtocol(TMemoryBuffer(data), KINDS)
    sent = build_struct(APACHE.echo_args, {"what": EVERYTHING})
    for flags, seq, headers in expected:
        assert reader.readMessageBegin() == ("echo", TMessageType.CALL, seq)
        assert reader.trans.flags == flags
        assert reader.trans.sequence_id == seq
        assert reader.get_headers() == headers
        received = APACHE.echo_args()
        received.read(reader)
        assert sort_sets(list_fields(received)) == sort_sets(list_fields(sent))
    assert messages_of(data)["seqid"].tolist() == [seq for _, seq, _ in expected]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    "kind", ["FRAMED_BINARY", "UNFRAMED_BINARY", "FRAMED_COMPACT", "UNFRAMED_COMPACT"]
)
def test_both_read_our_messages(kind, strict):
    compact = kind.endswith("COMPACT")
    framed = kind.startswith("FRAMED")
    values = {name: value for name, value in EVERYTHING.items() if name != "uuid"}
    struct = write_arguments(TCompactProtocol if compact else TBinaryProtocol, **values)
    options = {"protocol": "compact"} if compact else {"strict": strict}
    message = encode_message("echo", MessageType.CALL, 1 << 30, struct, service="Other", **options)
    data = (encode_framed(message) if framed else message) * 2

    wire = apache.make_wire(kind, strict=strict)
    reader = wire.protocol.getProtocol(wire.transport.getTransport(TMemoryBuffer(data)))
    wire2 = thriftpy2.make_wire(kind, strict=strict)
    reader2 = wire2.protocol.get_protocol(wire2.transport.get_transport(TMemoryBuffer2(data)))
    for _ in range(2):
        begin = ("Other:echo", MessageType.CALL, 1 << 30)
        assert reader.readMessageBegin() == begin
        assert reader2.read_message_begin() == begin
        received = APACHE.echo_args()
        received.read(reader)
        reader.readMessageEnd()
        received2 = PEER.Peer.echo_args()
        received2.read(reader2)
        reader2.read_message_end()
        for name in "words", "smalls":  # thriftpy2 reads a set as a list
            setattr(received2.what, name, set(getattr(received2.what, name)))
        assert received == build_struct(APACHE.echo_args, {"what": values})
        assert received2 == build_struct(PEER.Peer.echo_args, {"what": values})


@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_apache_reads_our_columns(protocol):
    """Apache's library reads frames that wirescan encodes from columns."""
    count = 2000
    compact = protocol == "compact"
    methods = [b"m%d" % (number % 70) for number in range(count)]
    messages, offsets = encode_messages(
        methods, np.arange(count) % 4 + 1, np.arange(count) - 1000, b"\0", protocol=protocol
    )
    data, _ = encode_frames(
        (offsets, messages),
        protocol_id=Protocol[protocol.upper()],
        seq=np.arange(count),
        flags=np.arange(count) & 0xFFFF,
        infos={b"method": methods},
    )
    reader = THeaderProtocol(TMemoryBuffer(bytes(data)), KINDS)
    for number, method in enumerate(methods):
        assert reader.readMessageBegin() == (method.decode(), number % 4 + 1, number - 1000)
        assert reader.trans.protocol_id == (2 if compact else 0)
        assert (reader.trans.sequence_id, reader.trans.flags) == (number, number)
        assert reader.get_headers() == {b"method": method}
        reader.skip(TType.STRUCT)
        reader.readMessageEnd()
    assert [bytes(row.method) for row in messages_of(bytes(data))] == methods


def exchange(address: str, data: bytes, count: int) -> bytes:
    """Send bytes to a server, and read the answers until they have `count` frames."""
    host, port = address.split(":")
    stream = wirescan.stream("thrift.frames")
    received = b""
    frames = 0
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(data)
        while frames < count:
            chunk = connection.recv(1 << 16)
            if not chunk:
                raise ConnectionError(f"the server hung up after {frames} of {count} answers")
            received += chunk
            frames += len(stream.feed(chunk))
    return received


def test_a_server_answers_our_calls():
    """One connection has all kinds of frames, zlib, and refused calls.

    The replies are those that the server recorded.
    """
    sent = b""
    for number in range(30):
        compact = number % 2 == 1
        transport = TMemoryBuffer()
        protocol = TCompactProtocol if compact else TBinaryProtocol
        build_struct(APACHE.add_args, {"a": number, "b": 1}).write(protocol(transport))
        message = encode_message(
            "add" if number % 5 else "missing",
            MessageType.CALL,
            number,
            transport.getvalue(),
            protocol="compact" if compact else "binary",
        )
        if number % 3 == 1:
            message = encode_framed(message)
        elif number % 3 == 2:
            message = encode_frame(
                message,
                protocol_id=Protocol.COMPACT if compact else Protocol.BINARY,
                seq=number,
                flags=number,
                transforms=[1] * (number % 4),
                infos={b"number": b"%d" % number},
            )
        sent += message
    with apache.Server(apache.make_wire("HEADER")) as server:
        replies = exchange(server.address, sent, 30)
    assert list_messages(scan_recording(replies)) == server.sent
    assert len(server.sent) == 30
    pairs = thrift.pair(messages_of(sent), messages_of(replies))
    assert pairs["call"].tolist() == pairs["reply"].tolist() == list(range(30))


# ---- other tests
def test_ten_thousand_calls_are_read():
    """The library writes calls with headers into memory. Every third call is compressed."""
    transport = TMemoryBuffer()
    sent = []
    wire = apache.make_wire("HEADER", compact=True)
    for number in range(10_000):
        protocol = wire.protocol.getProtocol(transport)
        protocol.set_header(b"number", b"%d" % number)
        if number % 3 == 0:
            protocol.add_transform(Transform.ZLIB)
        apache.write_message(
            sent,
            wire,
            protocol,
            "add",
            TMessageType.CALL,
            number,
            build_struct(APACHE.add_args, {"a": number}),
        )
    assert list_messages(scan_recording(transport.getvalue())) == sent


@pytest.mark.parametrize("sizes", [(1,), (3, 500, 17)])
def test_chunked_requests_of_http_client(sizes):
    """Python's http.client divides the bodies of requests into chunks."""

    class MemorySocket:
        def __init__(self):
            self.sent = b""

        def sendall(self, data) -> None:
            self.sent += bytes(data)

    memory_socket = MemorySocket()
    bodies = []
    for number in range(5):
        connection = http.client.HTTPConnection("peer")
        connection.sock = memory_socket
        message = encode_message("tell", MessageType.ONEWAY, number, write_arguments(**EVERYTHING))
        chunks = []
        start = 0
        while start < len(message):
            chunks.append(message[start : start + sizes[len(chunks) % len(sizes)]])
            start += len(chunks[-1])
        connection.request(
            "POST",
            "/peer",
            iter(chunks),
            encode_chunked=True,
            headers={"Transfer-Encoding": "chunked"},
        )
        bodies.append(message)
    frames = scan_recording(memory_socket.sent)
    assert set(frames["kind"].tolist()) == {Kind.HTTP_CHUNKED}
    assert [bytes(row.payload) for row in thrift.plain(frames)] == bodies
    assert messages_of(memory_socket.sent)["seqid"].tolist() == list(range(5))
