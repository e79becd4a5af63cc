"""Apache Thrift's Python library: clients and servers of peer.thrift, which keep what they say.

    with Proxy() as proxy, Server(wire("HEADER")) as server:
        proxy.target = server.address
        with Client(proxy.address, wire("HEADER", compact=True)) as client:
            client.call("add", {"a": 1, "b": 2}, headers={b"trace": b"17"})
    client.said, server.said                # their messages, in the order of the wire
    connection, = proxy.take()
    connection.requests, connection.responses

A message said is {"kind" of its frame, "method", "service", "type", "seqid", "fields" as told() has them}; in header
frames it has also {"flags", "seq", "protocol_id", "transforms", "headers"}.
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
from thrift.transport.THeaderTransport import THeaderClientType, THeaderSubprotocolID, THeaderTransformID
from thrift.transport.THttpClient import THttpClient
from thrift.transport.TSocket import TServerSocket, TSocket
from thrift.transport.TTransport import TBufferedTransportFactory, TFramedTransportFactory

from .thrift_types import APACHE, PEER, made, told

KINDS = {THeaderClientType.HEADERS: "HEADER", THeaderClientType.FRAMED_BINARY: "FRAMED_BINARY",
         THeaderClientType.UNFRAMED_BINARY: "UNFRAMED_BINARY", THeaderClientType.FRAMED_COMPACT: "FRAMED_COMPACT",
         THeaderClientType.UNFRAMED_COMPACT: "UNFRAMED_COMPACT"}
TYPES = {number: name for name, number in vars(TMessageType).items() if name.isupper()}
SERVICES = "Peer", "Other"      # names of the multiplexed; both are peer.thrift's Peer


class Wire(NamedTuple):
    """How frames of `kind` are written: factories of a transport and a protocol."""
    kind: str
    transport: object
    protocol: object


def wire(kind: str, compact: bool = False, strict: bool = True) -> Wire:
    """A server of HEADER understands every kind but HTTP, and answers each in the same."""
    compact = compact or kind.endswith("COMPACT")
    transport = (TFramedTransportFactory if kind.startswith("FRAMED") else TBufferedTransportFactory)()
    if kind == "HEADER":
        return Wire(kind, transport, THeaderProtocolFactory(
            tuple(KINDS), THeaderSubprotocolID.COMPACT if compact else THeaderSubprotocolID.BINARY))
    return Wire(kind, transport, TCompactProtocolFactory() if compact else TBinaryProtocolFactory(strict, strict))


def message(kind: str, name: str, message_type: int, seqid: int, fields: list | None = None) -> dict:
    service, colon, method = name.partition(":")
    return {"kind": kind, "method": method if colon else name, "service": service if colon else None,
            "type": TYPES[message_type], "seqid": seqid, "fields": fields}


def say(said: list[dict], wire: Wire, protocol, name: str, message_type: int, seqid: int, struct) -> None:
    """Write a message, and keep it in `said`."""
    kept = message(wire.kind, name, message_type, seqid, told(struct))
    if isinstance(protocol, THeaderProtocol):
        transport = protocol.trans
        kept["kind"] = KINDS[transport._client_type]
        if kept["kind"] == "HEADER":
            kept |= {"flags": transport.flags, "seq": seqid & 0xffffffff, "protocol_id": transport.protocol_id,
                     "transforms": list(transport._write_transforms), "headers": texts(transport._write_headers)}
    said.append(kept)
    protocol.writeMessageBegin(name, message_type, seqid)
    struct.write(protocol)
    protocol.writeMessageEnd()
    protocol.trans.flush()


def texts(headers: Mapping[bytes, bytes]) -> list[list[str]]:
    return [[key.decode("latin-1"), value.decode("latin-1")] for key, value in headers.items()]


class Handler:
    """What the service does; `refusal` is the class of the library."""

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
    """peer.thrift's Peer. In header frames it gives back the headers that it has read; one named "zlib" says how many
    times more it compresses its replies from now on."""

    def __init__(self, wire: Wire, said: list[dict]):
        self._wire, self._said, self._handler, self._tell_begin = wire, said, Handler(APACHE.Refusal), None

    def on_message_begin(self, tell: Callable) -> None:
        self._tell_begin = tell     # THttpServer learns by it that there will be no reply

    def process(self, iprot, oprot) -> None:
        name, message_type, seqid = iprot.readMessageBegin()
        if self._tell_begin:
            self._tell_begin(name, message_type, seqid)
        if name in PEER.Peer.thrift_services:
            arguments = getattr(APACHE, f"{name}_args")()
            arguments.read(iprot)
            answer = self._answer(name, arguments)
        else:
            iprot.skip(TType.STRUCT)
            answer = TApplicationException(TApplicationException.UNKNOWN_METHOD, f"Unknown function {name}")
        iprot.readMessageEnd()
        if message_type == TMessageType.ONEWAY:
            return
        if isinstance(oprot, THeaderProtocol):
            for key, value in iprot.get_headers().items():
                oprot.set_header(key, value)
                for _ in range(int(value) if key == b"zlib" else 0):
                    oprot.add_transform(THeaderTransformID.ZLIB)
        answer_type = TMessageType.EXCEPTION if isinstance(answer, TApplicationException) else TMessageType.REPLY
        say(self._said, self._wire, oprot, name, answer_type, seqid, answer)

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


class Served:
    """A thread that serves a connection at `address`, and ends when its client has hung up; `said` are the replies."""

    def __init__(self):
        self.said: list[dict] = []

    def __enter__(self):
        self.address = "127.0.0.1:%d" % self.listen()
        self._thread = threading.Thread(target=self.serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, error: type | None, *_) -> None:
        if error is None:
            self._thread.join(20)
        self.close()
        if error is None and self._thread.is_alive():
            raise TimeoutError("a client keeps its connection open")


class Server(Served):
    """`multiplexed`: of the SERVICES; else of one that has no name."""

    def __init__(self, wire: Wire, multiplexed: bool = False):
        super().__init__()
        self._wire, self._processor = wire, Service(wire, self.said)
        if multiplexed:
            service, self._processor = self._processor, TMultiplexedProcessor()
            for name in SERVICES:
                self._processor.registerProcessor(name, service)

    def listen(self) -> int:
        self._listener = TServerSocket("127.0.0.1", 0)
        self._listener.listen()
        return self._listener.handle.getsockname()[1]

    def serve(self) -> None:
        server = TThreadedServer(self._processor, self._listener, self._wire.transport, self._wire.protocol)
        server.handle(self._listener.accept())

    def close(self) -> None:
        self._listener.close()


class HttpServer(Served):
    """... of as many connections as come, one after the other."""

    def __init__(self, wire: Wire):
        super().__init__()
        self._server = THttpServer(Service(wire, self.said), ("127.0.0.1", 0), wire.protocol).httpd
        self._server.RequestHandlerClass.log_message = lambda *_: None
        self.serve = self._server.serve_forever

    def listen(self) -> int:
        return self._server.server_port

    def __exit__(self, *_) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Client:
    """`said` are its calls, `heard` the replies, as its own library has read them."""

    def __init__(self, address: str, wire: Wire, service: str | None = None):
        host, port = address.split(":")
        with mock.patch.dict(os.environ, no_proxy="*"):     # an HTTP proxy would be no part of this
            self._transport = (THttpClient(f"http://{address}/peer") if wire.kind == "HTTP" else
                               wire.transport.getTransport(TSocket(host, int(port))))
        self._wire, self.protocol, self.service = wire, wire.protocol.getProtocol(self._transport), service
        self.said, self.heard = [], []
        self._seqid = -3

    def __enter__(self) -> "Client":
        self._transport.open()
        return self

    def __exit__(self, *_) -> None:
        self._transport.close()

    def call(self, method: str, values: Mapping = {}, *, kind: str | None = None, headers: Mapping[bytes, bytes] = {},
             flags: int = 0, zlib: int = 0, seqid: int | None = None) -> None:
        """A call of a method, and its reply. With a HEADER wire: of another kind; `zlib`: compressed so many times
        more, as all calls that follow."""
        self._seqid = self._seqid + 1 if seqid is None else seqid
        protocol, oneway = self.protocol, method == "tell"
        if isinstance(protocol, THeaderProtocol):
            protocol.trans.flags = flags
            for key, value in headers.items():
                protocol.set_header(key, value)
            for _ in range(zlib):
                protocol.add_transform(THeaderTransformID.ZLIB)
            if kind:
                protocol.trans._client_type, = (number for number, name in KINDS.items() if name == kind)
                protocol._set_protocol()
        struct = made(getattr(APACHE, f"{method}_args"), values)
        say(self.said, self._wire, TMultiplexedProtocol(protocol, self.service) if self.service else protocol,
            method, TMessageType.ONEWAY if oneway else TMessageType.CALL, self._seqid, struct)
        self.said[-1]["service"] = self.service
        if not oneway:
            self._hear(getattr(APACHE, f"{method}_result")())

    def _hear(self, struct) -> None:
        name, message_type, seqid = self.protocol.readMessageBegin()
        if message_type == TMessageType.EXCEPTION:
            struct = TApplicationException()
        struct.read(self.protocol)
        self.protocol.readMessageEnd()
        heard = message(self._wire.kind, name, message_type, seqid, told(struct))
        if isinstance(self.protocol, THeaderProtocol):
            transport = self.protocol.trans
            heard["kind"] = KINDS[transport._client_type]
            if heard["kind"] == "HEADER":
                heard |= {"flags": transport.flags, "seq": transport.sequence_id & 0xffffffff,
                          "protocol_id": transport.protocol_id, "headers": texts(transport.get_headers())}
        self.heard.append(heard)
