"""Apache Thrift's Python library and thriftpy2, live: what they say anew is what test_thrift_corpus.py reads of the
recordings; what they write of any shape is what we read; and they read what we write.
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
from test_thrift_corpus import CORPUS, SIDES, check, field_lists, said, spoken, whole
from wirescan import thrift
from wirescan.thrift import Kind, MessageType, Protocol, Transform
from wirescan.thrift.encode import encode_frame, encode_framed, encode_frames, encode_message, encode_messages

from . import thrift as apache
from . import thriftpy2
from .make_thrift import SCENES, record
from .thrift_types import APACHE, EVERYTHING, NAMES, PEER, made, told

pytestmark = pytest.mark.peers
TYPES = {name: number for number, name in NAMES.items()}


@pytest.fixture(scope="module")
def anew(tmp_path_factory):
    """The corpus, as the peers have just made it."""
    directory = tmp_path_factory.mktemp("thrift")
    record(directory)
    return directory, said(directory)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("scene", SCENES)
def test_said_anew(anew, scene, side):
    directory, messages = anew
    check(directory, scene, side, messages[scene, side])
    kept = said(CORPUS)[scene, side]
    assert [message["method"] for message in kept] == [message["method"] for message in messages[scene, side]]


# ------------------------------------------------------------------------------- any shape, written by the library
STRINGS = st.one_of(st.text(max_size=5), st.just("x" * 200)).map(lambda text: text.encode().decode("latin-1"))
LEAVES = {
    "BOOL": st.booleans(), "BYTE": st.integers(-128, 127), "I16": st.integers(-1 << 15, (1 << 15) - 1),
    "I32": st.integers(-1 << 31, (1 << 31) - 1), "I64": st.integers(-1 << 63, (1 << 63) - 1),
    "DOUBLE": st.floats().map(float.hex), "STRING": STRINGS,
    "UUID": st.binary(min_size=16, max_size=16).map(lambda octets: octets.decode("latin-1"))}
IDS = st.integers(-1 << 15, (1 << 15) - 1)


def values(depth: int):
    """(type, value) as told() has them, of every type."""
    leaves = st.sampled_from(sorted(LEAVES)).flatmap(lambda name: st.tuples(st.just(name), LEAVES[name]))
    if not depth:
        return leaves
    return st.one_of(leaves, leaves, structs(depth - 1).map(lambda fields: ("STRUCT", fields)),
                     st.sampled_from(["LIST", "SET"]).flatmap(lambda name: st.tuples(st.just(name), lists(depth - 1))),
                     maps(depth - 1).map(lambda value: ("MAP", value)))


def alike(depth: int, least: int = 0):
    """(type, values), all of one type."""
    def of(pair):
        name, value = pair
        more = LEAVES[name] if name in LEAVES else st.just(value)
        return st.tuples(st.just(name), st.lists(more, min_size=least, max_size=17))
    return values(depth).flatmap(of)


def lists(depth: int):
    return alike(depth).map(list)


def maps(depth: int):
    def of(keys, found):
        pairs = [list(pair) for pair in zip(keys[1], found[1])]
        return [keys[0], found[0], pairs] if pairs else [None, None, []]
    return st.builds(of, alike(0), alike(depth))


def structs(depth: int):
    return st.lists(st.tuples(IDS, values(depth)), max_size=5).map(
        lambda fields: [[number, name, value] for number, (name, value) in fields])


def write(protocol, name: str, value) -> None:
    """Write what told() would tell, field by field and element by element."""
    if name == "STRUCT":
        protocol.writeStructBegin("")
        for number, kind, one in value:
            protocol.writeFieldBegin("", TYPES[kind], number)
            write(protocol, kind, one)
            protocol.writeFieldEnd()
        protocol.writeFieldStop()
        protocol.writeStructEnd()
    elif name in ("LIST", "SET"):
        begin, end = ((protocol.writeListBegin, protocol.writeListEnd) if name == "LIST" else
                      (protocol.writeSetBegin, protocol.writeSetEnd))
        begin(TYPES[value[0]], len(value[1]))
        for one in value[1]:
            write(protocol, value[0], one)
        end()
    elif name == "MAP":
        keys, found, pairs = value
        protocol.writeMapBegin(TYPES[keys or "I32"], TYPES[found or "BOOL"], len(pairs))
        for key, one in pairs:
            write(protocol, keys, key)
            write(protocol, found, one)
        protocol.writeMapEnd()
    elif name == "DOUBLE":
        protocol.writeDouble(float.fromhex(value))
    elif name in ("STRING", "UUID"):
        octets = value.encode("latin-1")
        protocol.writeBinary(octets) if name == "STRING" else protocol.trans.write(octets)
    else:
        getattr(protocol, "write" + name.capitalize())(value)


@given(st.lists(st.tuples(st.text(max_size=20), st.integers(-1 << 31, (1 << 31) - 1), structs(3)), max_size=4),
       st.sampled_from([TBinaryProtocol, TCompactProtocol]), st.booleans())
def test_any_shape(calls, protocol, framed):
    data = b""
    for name, seqid, fields in calls:
        transport = TMemoryBuffer()
        writer = protocol(transport)
        writer.writeMessageBegin(name, TMessageType.REPLY, seqid)
        write(writer, "STRUCT", fields)
        writer.writeMessageEnd()
        data += encode_framed(transport.getvalue()) if framed else transport.getvalue()
    messages = messages_of(data)
    assert [(bytes(row.method).decode(), row.seqid) for row in messages] == [call[:2] for call in calls]
    assert field_lists(messages) == [call[2] for call in calls]


# ------------------------------------------------------------------------------------------ they read what we write
KINDS = tuple(apache.KINDS)
HEADERS = {b"trace": b"17", b"": bytes(range(256)), b"k" * 200: b"v" * 300}


def messages_of(data: bytes) -> wirescan.FrameTable:
    return thrift.messages(whole(data))


def arguments(protocol: type = TBinaryProtocol, **values) -> bytes:
    """echo_args, as Apache's library writes them."""
    transport = TMemoryBuffer()
    made(APACHE.echo_args, {"what": values}).write(protocol(transport))
    return transport.getvalue()


@pytest.mark.parametrize("padding", ["0-3", "1-4"])
@pytest.mark.parametrize("transforms", [(), (1,), (1, 1)], ids=["plain", "once", "twice"])
@pytest.mark.parametrize(("compact", "writer"), [(False, TBinaryProtocol), (True, TCompactProtocol)],
                         ids=["binary", "compact"])
def test_apache_reads_our_frames(compact, writer, transforms, padding):
    """... and of infos behind persistent ones it has none, but the message; as our `infos_order` tells."""
    protocol = Protocol.COMPACT if compact else Protocol.BINARY
    struct = arguments(writer, **EVERYTHING)
    data, seen = b"", []
    for number, (infos, persistent, order) in enumerate([
            ((), (), "normal"), (HEADERS, (), "normal"), (HEADERS, {b"p": b"q"}, "normal"),
            (HEADERS, {b"p": b"q"}, "persistent")]):
        message = encode_message("echo", MessageType.CALL, -number, struct, protocol=protocol)
        data += encode_frame(message, protocol_id=protocol, flags=number << 8, seq=-number, transforms=transforms,
                             infos=infos, persistent=persistent, infos_order=order, padding=padding)
        seen.append((number << 8, -number, dict(infos) if order == "normal" else {}))
    reader = THeaderProtocol(TMemoryBuffer(data), KINDS)
    for flags, seq, headers in seen:
        assert reader.readMessageBegin() == ("echo", TMessageType.CALL, seq)
        assert (reader.trans.flags, reader.trans.sequence_id, reader.get_headers()) == (flags, seq, headers)
        found = APACHE.echo_args()
        found.read(reader)
        assert told(found) == told(made(APACHE.echo_args, {"what": EVERYTHING}))
    assert messages_of(data)["seqid"].tolist() == [seq for _, seq, _ in seen]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("kind", ["FRAMED_BINARY", "UNFRAMED_BINARY", "FRAMED_COMPACT", "UNFRAMED_COMPACT"])
def test_both_read_our_messages(kind, strict):
    compact, framed = kind.endswith("COMPACT"), kind.startswith("FRAMED")
    values = {name: value for name, value in EVERYTHING.items() if name != "uuid"}
    struct = arguments(TCompactProtocol if compact else TBinaryProtocol, **values)
    how = {"protocol": "compact"} if compact else {"strict": strict}
    message = encode_message("echo", MessageType.CALL, 1 << 30, struct, service="Other", **how)
    data = (encode_framed(message) if framed else message) * 2

    wire = apache.wire(kind, strict=strict)
    reader = wire.protocol.getProtocol(wire.transport.getTransport(TMemoryBuffer(data)))
    wire2 = thriftpy2.wire(kind, strict=strict)
    reader2 = wire2.protocol.get_protocol(wire2.transport.get_transport(TMemoryBuffer2(data)))
    for _ in range(2):
        assert reader.readMessageBegin() == reader2.read_message_begin() == ("Other:echo", MessageType.CALL, 1 << 30)
        found, found2 = APACHE.echo_args(), PEER.Peer.echo_args()
        found.read(reader)
        reader.readMessageEnd()
        found2.read(reader2)
        reader2.read_message_end()
        for name in "words", "smalls":      # thriftpy2 reads a set as a list
            setattr(found2.what, name, set(getattr(found2.what, name)))
        assert found == made(APACHE.echo_args, {"what": values})
        assert found2 == made(PEER.Peer.echo_args, {"what": values})


@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_apache_reads_our_columns(protocol):
    """Frames that are written of columns."""
    count = 2000
    compact = protocol == "compact"
    methods = [b"m%d" % (number % 70) for number in range(count)]
    messages = encode_messages(methods, np.arange(count) % 4 + 1, np.arange(count) - 1000, b"\0", protocol=protocol)
    data, _ = encode_frames((messages[1], messages[0]), protocol_id=Protocol[protocol.upper()],
                            seq=np.arange(count), flags=np.arange(count) & 0xffff, infos={b"method": methods})
    reader = THeaderProtocol(TMemoryBuffer(bytes(data)), KINDS)
    for number, method in enumerate(methods):
        assert reader.readMessageBegin() == (method.decode(), number % 4 + 1, number - 1000)
        assert reader.trans.protocol_id == (2 if compact else 0)
        assert (reader.trans.sequence_id, reader.trans.flags, reader.get_headers()) == (
            number, number, {b"method": method})
        reader.skip(TType.STRUCT)
        reader.readMessageEnd()
    assert [bytes(row.method) for row in messages_of(bytes(data))] == methods


def exchange(address: str, data: bytes, count: int) -> bytes:
    """Send bytes to a server, and read until `count` frames are answered."""
    host, port = address.split(":")
    stream, heard, frames = wirescan.stream("thrift.frames"), b"", 0
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(data)
        while frames < count:
            part = connection.recv(1 << 16)
            if not part:
                raise ConnectionError(f"the server has hung up after {frames} of {count} answers")
            heard += part
            frames += len(stream.feed(part))
    return heard


def test_server_answers_our_calls():
    """All kinds on one connection, zlib, and what is refused: the answers are those that it says it has given."""
    sent = b""
    for number in range(30):
        compact = number % 2 == 1
        transport = TMemoryBuffer()
        protocol = TCompactProtocol if compact else TBinaryProtocol
        made(APACHE.add_args, {"a": number, "b": 1}).write(protocol(transport))
        message = encode_message("add" if number % 5 else "missing", MessageType.CALL, number, transport.getvalue(),
                                 protocol="compact" if compact else "binary")
        sent += (message if number % 3 == 0 else encode_framed(message) if number % 3 == 1 else encode_frame(
            message, protocol_id=Protocol.COMPACT if compact else Protocol.BINARY, seq=number, flags=number,
            transforms=[1] * (number % 4), infos={b"number": b"%d" % number}))
    with apache.Server(apache.wire("HEADER")) as server:
        replies = exchange(server.address, sent, 30)
    assert spoken(whole(replies)) == server.said and len(server.said) == 30
    pairs = thrift.pair(messages_of(sent), messages_of(replies))
    assert pairs["call"].tolist() == pairs["reply"].tolist() == list(range(30))


# -------------------------------------------------------------------------------------------------------- the rest
def test_ten_thousand_calls():
    """With headers, every third compressed: what the library writes into memory, in one scan."""
    transport, kept = TMemoryBuffer(), []
    wire = apache.wire("HEADER", compact=True)
    for number in range(10_000):
        protocol = wire.protocol.getProtocol(transport)
        protocol.set_header(b"number", b"%d" % number)
        if number % 3 == 0:
            protocol.add_transform(Transform.ZLIB)
        apache.say(kept, wire, protocol, "add", TMessageType.CALL, number, made(APACHE.add_args, {"a": number}))
    assert spoken(whole(transport.getvalue())) == kept


@pytest.mark.parametrize("sizes", [(1,), (3, 500, 17)])
def test_chunks_of_http_client(sizes):
    """Requests whose bodies Python's http.client has cut into chunks."""
    class Held:
        def __init__(self):
            self.said = b""

        def sendall(self, data) -> None:
            self.said += bytes(data)

    held, bodies = Held(), []
    for number in range(5):
        connection = http.client.HTTPConnection("peer")
        connection.sock = held
        message = encode_message("tell", MessageType.ONEWAY, number, arguments(**EVERYTHING))
        parts, at = [], 0
        while at < len(message):
            parts.append(message[at:at + sizes[len(parts) % len(sizes)]])
            at += len(parts[-1])
        connection.request("POST", "/peer", iter(parts), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        bodies.append(message)
    frames = whole(held.said)
    assert set(frames["kind"].tolist()) == {Kind.HTTP_CHUNKED}
    assert [bytes(row.payload) for row in thrift.plain(frames)] == bodies
    assert messages_of(held.said)["seqid"].tolist() == list(range(5))
