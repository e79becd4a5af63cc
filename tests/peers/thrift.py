"""Recording clients and servers of peer.thrift with Apache Thrift's Python library.

    with Proxy() as proxy, Server(make_wire("HEADER")) as server:
        proxy.target = server.address
        with Client(proxy.address, make_wire("HEADER", compact=True)) as client:
            client.call("add", {"a": 1, "b": 2}, headers={b"trace": b"17"})
    client.sent, server.sent                # their messages, in the order of writing
    (connection,) = proxy.take()
    connection.requests, connection.responses

A recorded message is a dict of "kind" (of its frame), "method", "service", "type", "seqid" and
"fields" (see list_fields). A message in a header frame also has "flags", "seq", "protocol_id",
"transforms" and "headers".
"""

import os
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple
from unittest import mock

from thrift.protocol.TBinaryProtocol import TBinaryProtocolFactory
from thrift.protocol.TCompactProtocol import TCompactProtocolFactory
from thrift.protocol.THeaderProtocol import THeaderProtocol, THeaderProtocolFactory
from thrift.protocol.TMultiplexedProtocol import TMultiplexedProtocol
from thrift.server.THttpServer import THttpServer
from thrift.server.TServer import TThreadedServer
from thrift.Thrift import TApplicationException, TMessageType, TProcessor, TType
from thrift.TMultiplexedProcessor import TMultiplexedProcessor
from thrift.transport.THeaderTransport import (
    THeaderClientType,
    THeaderSubprotocolID,
    THeaderTransformID,
)
from thrift.transport.THttpClient import THttpClient
from thrift.transport.TSocket import TServerSocket, TSocket
from thrift.transport.TTransport import TBufferedTransportFactory, TFramedTransportFactory

from .proxy import parse_address
from .thrift_types import APACHE, PEER, build_struct, list_fields

KINDS = {
    THeaderClientType.HEADERS: "HEADER",
    THeaderClientType.FRAMED_BINARY: "FRAMED_BINARY",
    THeaderClientType.UNFRAMED_BINARY: "UNFRAMED_BINARY",
    THeaderClientType.FRAMED_COMPACT: "FRAMED_COMPACT",
    THeaderClientType.UNFRAMED_COMPACT: "UNFRAMED_COMPACT",
}
TYPES = {number: name for name, number in vars(TMessageType).items() if name.isupper()}
SERVICES = "Peer", "Other"  # the names of multiplexed services; both are peer.thrift's Peer


class Wire(NamedTuple):
    """Factories of the transport and the protocol that write frames of `kind`."""

    kind: str
    transport: object
    protocol: object


def make_wire(kind: str, *, compact: bool = False, strict: bool = True) -> Wire:
    """The factories for a kind of frame.

    A server of HEADER accepts every kind but HTTP, and answers each in its own kind.
    """
    compact = compact or kind.endswith("COMPACT")
    framed = kind.startswith("FRAMED")
    transport = TFramedTransportFactory() if framed else TBufferedTransportFactory()
    if kind == "HEADER":
        default = THeaderSubprotocolID.COMPACT if compact else THeaderSubprotocolID.BINARY
        return Wire(kind, transport, THeaderProtocolFactory(tuple(KINDS), default))
    protocol = TCompactProtocolFactory() if compact else TBinaryProtocolFactory(strict, strict)
    return Wire(kind, transport, protocol)


def describe_message(
    kind: str, name: str, message_type: int, seqid: int, fields: list | None = None
) -> dict:
    service, colon, method = name.partition(":")
    return {
        "kind": kind,
        "method": method if colon else name,
        "service": service if colon else None,
        "type": TYPES[message_type],
        "seqid": seqid,
        "fields": fields,
    }


def write_message(
    sent: list[dict], wire: Wire, protocol, name: str, message_type: int, seqid: int, struct
) -> None:
    """Write a message, and append it to the list `sent`."""
    record = describe_message(wire.kind, name, message_type, seqid, list_fields(struct))
    if isinstance(protocol, THeaderProtocol):
        transport = protocol.trans
        record["kind"] = KINDS[transport._client_type]
        if record["kind"] == "HEADER":
            record |= {
                "flags": transport.flags,
                "seq": seqid & 0xFFFFFFFF,
                "protocol_id": transport.protocol_id,
                "transforms": list(transport._write_transforms),
                "headers": decode_texts(transport._write_headers),
            }
    sent.append(record)
    protocol.writeMessageBegin(name, message_type, seqid)
    struct.write(protocol)
    protocol.writeMessageEnd()
    protocol.trans.flush()


def decode_texts(headers: Mapping[bytes, bytes]) -> list[list[str]]:
    return [[key.decode("latin-1"), value.decode("latin-1")] for key, value in headers.items()]


class Handler:
    """The methods of the service. `refusal` is the library's class of that exception."""

    def __init__(self, refusal: type):
        self._refusal = refusal

    def add(self, a, b):
        return a + b

    def echo(self, what):
        return what

    def nothing(self):
        pass

    def refuse(self, why):
        raise self._refusal(why=why, code=len(why))

    def fail(self, number):
        raise ArithmeticError(number)

    def tell(self, text, data):
        pass


class Service(TProcessor):
    """The service Peer of peer.thrift.

    In header frames it sends the received headers back. A header "zlib" gives a number of zlib
    transforms, which the service adds for this reply and all later ones.
    """

    def __init__(self, wire: Wire, sent: list[dict]):
        self._wire = wire
        self._sent = sent
        self._handler = Handler(APACHE.Refusal)
        self._on_begin = None

    def on_message_begin(self, callback: Callable) -> None:
        # THttpServer uses the callback to see that a message has no reply.
        self._on_begin = callback

    def process(self, iprot, oprot) -> None:
        name, message_type, seqid = iprot.readMessageBegin()
        if self._on_begin:
            self._on_begin(name, message_type, seqid)
        if name in PEER.Peer.thrift_services:
            arguments = getattr(APACHE, f"{name}_args")()
            arguments.read(iprot)
            answer = self._answer(name, arguments)
        else:
            iprot.skip(TType.STRUCT)
            answer = TApplicationException(
                TApplicationException.UNKNOWN_METHOD, f"Unknown function {name}"
            )
        iprot.readMessageEnd()
        if message_type == TMessageType.ONEWAY:
            return
        if isinstance(oprot, THeaderProtocol):
            for key, value in iprot.get_headers().items():
                oprot.set_header(key, value)
                for _ in range(int(value) if key == b"zlib" else 0):
                    oprot.add_transform(THeaderTransformID.ZLIB)
        failed = isinstance(answer, TApplicationException)
        answer_type = TMessageType.EXCEPTION if failed else TMessageType.REPLY
        write_message(self._sent, self._wire, oprot, name, answer_type, seqid, answer)

    def _answer(self, name: str, arguments):
        result = getattr(APACHE, f"{name}_result")()
        values = (getattr(arguments, field[2]) for field in arguments.thrift_spec if field)
        try:
            success = getattr(self._handler, name)(*values)
            if success is not None:
                result.success = success
        except APACHE.Refusal as refusal:
            result.refusal = refusal
        except ArithmeticError as error:
            return TApplicationException(TApplicationException.INTERNAL_ERROR, repr(error))
        return result


class BackgroundServer:
    """A thread that serves one connection at `address`. It ends when the client hangs up.

    `sent` has the replies.
    """

    def __init__(self):
        self.sent: list[dict] = []

    def __enter__(self):
        self.address = f"127.0.0.1:{self.listen()}"
        self._thread = threading.Thread(target=self.serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, error: type | None, *_) -> None:
        if error is None:
            self._thread.join(20)
        self.close()
        if error is None and self._thread.is_alive():
            raise TimeoutError("a client keeps its connection open")


class Server(BackgroundServer):
    """A server of one unnamed service, or, with `multiplexed`, of the SERVICES."""

    def __init__(self, wire: Wire, *, multiplexed: bool = False):
        super().__init__()
        self._wire = wire
        service = Service(wire, self.sent)
        self._processor = service
        if multiplexed:
            self._processor = TMultiplexedProcessor()
            for name in SERVICES:
                self._processor.registerProcessor(name, service)

    def listen(self) -> int:
        self._listener = TServerSocket("127.0.0.1", 0)
        self._listener.listen()
        return self._listener.handle.getsockname()[1]

    def serve(self) -> None:
        server = TThreadedServer(
            self._processor, self._listener, self._wire.transport, self._wire.protocol
        )
        server.handle(self._listener.accept())

    def close(self) -> None:
        self._listener.close()


class HttpServer(BackgroundServer):
    """An HTTP server of any number of connections, one after the other."""

    def __init__(self, wire: Wire):
        super().__init__()
        self._server = THttpServer(Service(wire, self.sent), ("127.0.0.1", 0), wire.protocol).httpd
        self._server.RequestHandlerClass.log_message = lambda *_: None
        self.serve = self._server.serve_forever

    def listen(self) -> int:
        return self._server.server_port

    def __exit__(self, *_) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Client:
    """A client. `sent` has its calls, and `received` the replies that its library read."""

    def __init__(self, address: str, wire: Wire, service: str | None = None):
        host, port = parse_address(address)
        if wire.kind == "HTTP":
            with mock.patch.dict(os.environ, no_proxy="*"):  # use no HTTP proxy
                self._transport = THttpClient(f"http://{address}/peer")
        else:
            self._transport = wire.transport.getTransport(TSocket(host, port))
        self._wire = wire
        self.protocol = wire.protocol.getProtocol(self._transport)
        self.service = service
        self.sent = []
        self.received = []
        self._seqid = -3

    def __enter__(self) -> "Client":
        self._transport.open()
        return self

    def __exit__(self, *_) -> None:
        self._transport.close()

    def call(
        self,
        method: str,
        values: Mapping = {},
        *,
        kind: str | None = None,
        headers: Mapping[bytes, bytes] = {},
        flags: int = 0,
        zlib: int = 0,
        seqid: int | None = None,
    ) -> None:
        """Call a method and read its reply.

        With a HEADER wire, kind: another kind of frame; zlib: the number of zlib transforms to add
        to this call and all later ones.
        """
        self._seqid = self._seqid + 1 if seqid is None else seqid
        protocol = self.protocol
        oneway = method == "tell"
        if isinstance(protocol, THeaderProtocol):
            protocol.trans.flags = flags
            for key, value in headers.items():
                protocol.set_header(key, value)
            for _ in range(zlib):
                protocol.add_transform(THeaderTransformID.ZLIB)
            if kind:
                (client_type,) = (number for number, name in KINDS.items() if name == kind)
                protocol.trans._client_type = client_type
                protocol._set_protocol()
        struct = build_struct(getattr(APACHE, f"{method}_args"), values)
        write_message(
            self.sent,
            self._wire,
            TMultiplexedProtocol(protocol, self.service) if self.service else protocol,
            method,
            TMessageType.ONEWAY if oneway else TMessageType.CALL,
            self._seqid,
            struct,
        )
        self.sent[-1]["service"] = self.service
        if not oneway:
            self._read_reply(getattr(APACHE, f"{method}_result")())

    def _read_reply(self, struct) -> None:
        name, message_type, seqid = self.protocol.readMessageBegin()
        if message_type == TMessageType.EXCEPTION:
            struct = TApplicationException()
        struct.read(self.protocol)
        self.protocol.readMessageEnd()
        reply = describe_message(self._wire.kind, name, message_type, seqid, list_fields(struct))
        if isinstance(self.protocol, THeaderProtocol):
            transport = self.protocol.trans
            reply["kind"] = KINDS[transport._client_type]
            if reply["kind"] == "HEADER":
                reply |= {
                    "flags": transport.flags,
                    "seq": transport.sequence_id & 0xFFFFFFFF,
                    "protocol_id": transport.protocol_id,
                    "headers": decode_texts(transport.get_headers()),
                }
        self.received.append(reply)
