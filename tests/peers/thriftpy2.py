"""thriftpy2: clients and servers of peer.thrift, which keep what they say, as those of thrift.py do.

    with Server(wire("FRAMED_COMPACT")) as server, Client(server.address, wire("FRAMED_COMPACT")) as client:
        client.call("add", {"a": 1, "b": 2})
    client.said, server.said
"""
import contextlib
from collections.abc import Mapping
from types import SimpleNamespace

from thriftpy2.protocol import TCyBinaryProtocolFactory, TMultiplexedProtocol
from thriftpy2.protocol.binary import TBinaryProtocolFactory
from thriftpy2.protocol.compact import TCompactProtocolFactory
from thriftpy2.server import TThreadedServer
from thriftpy2.thrift import TApplicationException, TClient, TMultiplexedProcessor, TProcessor
from thriftpy2.transport import TCyBufferedTransportFactory, TCyFramedTransportFactory, TServerSocket, TSocket
from thriftpy2.transport.buffered import TBufferedTransportFactory
from thriftpy2.transport.framed import TFramedTransportFactory

from .thrift import SERVICES, Handler, Served, Wire, message
from .thrift_types import PEER, made, told


def wire(kind: str, strict: bool = True, cython: bool = True) -> Wire:
    """`cython`: of its compiled classes; the compact protocol has none."""
    framed, buffered, binary = (TCyFramedTransportFactory, TCyBufferedTransportFactory, TCyBinaryProtocolFactory) if (
        cython) else (TFramedTransportFactory, TBufferedTransportFactory, TBinaryProtocolFactory)
    return Wire(kind, (framed if kind.startswith("FRAMED") else buffered)(), TCompactProtocolFactory() if
                kind.endswith("COMPACT") else binary(strict_read=strict, strict_write=strict))


class Kept:
    """A protocol that keeps in `said` what is written with it, and in `heard` what is read."""

    def __init__(self, wire: Wire, transport, said: list[dict], heard: list[dict]):
        self._kind, self._said, self._heard = wire.kind, said, heard
        self._protocol = wire.protocol.get_protocol(transport)

    def __getattr__(self, name: str):
        return getattr(self._protocol, name)

    def write_message_begin(self, *begin) -> None:
        self._said.append(message(self._kind, *begin))
        self._protocol.write_message_begin(*begin)

    def write_struct(self, struct) -> None:
        self._said[-1]["fields"] = told(struct)
        self._protocol.write_struct(struct)

    def read_message_begin(self) -> tuple[str, int, int]:
        begin = self._protocol.read_message_begin()
        self._heard.append(message(self._kind, *begin))
        return begin

    def read_struct(self, struct) -> None:
        self._protocol.read_struct(struct)
        self._heard[-1]["fields"] = told(struct)


class Server(Served):
    """`multiplexed`: of thrift.py's SERVICES; else of one that has no name."""

    def __init__(self, wire: Wire, multiplexed: bool = False):
        super().__init__()
        self._listener = TServerSocket("127.0.0.1", 0)
        processor = TProcessor(PEER.Peer, Handler(PEER.Refusal))
        if multiplexed:
            service, processor = processor, TMultiplexedProcessor()
            for name in SERVICES:
                processor.register_processor(name, service)
        protocol = SimpleNamespace(get_protocol=lambda transport: Kept(wire, transport, self.said, []))
        self._server = TThreadedServer(processor, self._listener, itrans_factory=wire.transport, iprot_factory=protocol)

    def listen(self) -> int:
        self._listener.listen()
        return self._listener.sock.getsockname()[1]

    def serve(self) -> None:
        self._server.handle(self._listener.accept())

    def close(self) -> None:
        self._listener.close()


class Client:
    """`said` are its calls, `heard` the replies, as it has read them."""

    def __init__(self, address: str, wire: Wire):
        host, port = address.split(":")
        self._transport = wire.transport.get_transport(TSocket(host, int(port)))
        self.said, self.heard, self.service = [], [], None
        self._protocol = Kept(wire, self._transport, self.said, self.heard)

    def __enter__(self) -> "Client":
        self._transport.open()
        return self

    def __exit__(self, *_) -> None:
        self._transport.close()

    def call(self, method: str, values: Mapping = {}, *, seqid: int = 0) -> None:
        """A call of a method, of `service` if that is set, and its reply. (A negative `seqid` in the compact protocol
        is a loop without an end.)"""
        protocol = TMultiplexedProtocol(self._protocol, self.service) if self.service else self._protocol
        client = TClient(PEER.More, self._protocol, protocol)
        client._seqid = seqid
        with contextlib.suppress(PEER.Refusal, TApplicationException):
            getattr(client, method)(**vars(made(getattr(PEER.More, f"{method}_args"), values)))
