"""Recording clients and servers of peer.thrift with thriftpy2.

    server = Server(wire("FRAMED_COMPACT"))
    with server, Client(server.address, wire("FRAMED_COMPACT")) as client:
        client.call("add", {"a": 1, "b": 2})
    client.sent, server.sent

thrift.py describes a recorded message.
"""

import contextlib
from collections.abc import Mapping
from types import SimpleNamespace

from thriftpy2.protocol import TCyBinaryProtocolFactory, TMultiplexedProtocol
from thriftpy2.protocol.binary import TBinaryProtocolFactory
from thriftpy2.protocol.compact import TCompactProtocolFactory
from thriftpy2.server import TThreadedServer
from thriftpy2.thrift import TApplicationException, TClient, TMultiplexedProcessor, TProcessor
from thriftpy2.transport import (
    TCyBufferedTransportFactory,
    TCyFramedTransportFactory,
    TServerSocket,
    TSocket,
)
from thriftpy2.transport.buffered import TBufferedTransportFactory
from thriftpy2.transport.framed import TFramedTransportFactory

from .thrift import SERVICES, BackgroundServer, Handler, Wire, describe_message
from .thrift_types import PEER, build_struct, list_fields


def make_wire(kind: str, *, strict: bool = True, cython: bool = True) -> Wire:
    """The factories for a kind of frame.

    cython: use the compiled classes. The compact protocol has no compiled class.
    """
    if cython:
        framed, buffered = TCyFramedTransportFactory, TCyBufferedTransportFactory
        binary = TCyBinaryProtocolFactory
    else:
        framed, buffered = TFramedTransportFactory, TBufferedTransportFactory
        binary = TBinaryProtocolFactory
    transport = framed() if kind.startswith("FRAMED") else buffered()
    if kind.endswith("COMPACT"):
        return Wire(kind, transport, TCompactProtocolFactory())
    return Wire(kind, transport, binary(strict_read=strict, strict_write=strict))


class RecordingProtocol:
    """A protocol that records the written messages in `sent` and the read ones in `received`."""

    def __init__(self, wire: Wire, transport, sent: list[dict], received: list[dict]):
        self._kind = wire.kind
        self._sent = sent
        self._received = received
        self._protocol = wire.protocol.get_protocol(transport)

    def __getattr__(self, name: str):
        return getattr(self._protocol, name)

    def write_message_begin(self, *begin) -> None:
        self._sent.append(describe_message(self._kind, *begin))
        self._protocol.write_message_begin(*begin)

    def write_struct(self, struct) -> None:
        self._sent[-1]["fields"] = list_fields(struct)
        self._protocol.write_struct(struct)

    def read_message_begin(self) -> tuple[str, int, int]:
        begin = self._protocol.read_message_begin()
        self._received.append(describe_message(self._kind, *begin))
        return begin

    def read_struct(self, struct) -> None:
        self._protocol.read_struct(struct)
        self._received[-1]["fields"] = list_fields(struct)


class Server(BackgroundServer):
    """A server of one unnamed service, or, with `multiplexed`, of thrift.py's SERVICES."""

    def __init__(self, wire: Wire, *, multiplexed: bool = False):
        super().__init__()
        self._listener = TServerSocket("127.0.0.1", 0)
        service = TProcessor(PEER.Peer, Handler(PEER.Refusal))
        processor = service
        if multiplexed:
            processor = TMultiplexedProcessor()
            for name in SERVICES:
                processor.register_processor(name, service)
        protocol = SimpleNamespace(
            get_protocol=lambda transport: RecordingProtocol(wire, transport, self.sent, [])
        )
        self._server = TThreadedServer(
            processor, self._listener, itrans_factory=wire.transport, iprot_factory=protocol
        )

    def listen(self) -> int:
        self._listener.listen()
        return self._listener.sock.getsockname()[1]

    def serve(self) -> None:
        self._server.handle(self._listener.accept())

    def close(self) -> None:
        self._listener.close()


class Client:
    """A client. `sent` has its calls, and `received` the replies that it read."""

    def __init__(self, address: str, wire: Wire):
        host, port = address.split(":")
        self._transport = wire.transport.get_transport(TSocket(host, int(port)))
        self.sent = []
        self.received = []
        self.service = None
        self._protocol = RecordingProtocol(wire, self._transport, self.sent, self.received)

    def __enter__(self) -> "Client":
        self._transport.open()
        return self

    def __exit__(self, *_) -> None:
        self._transport.close()

    def call(self, method: str, values: Mapping = {}, *, seqid: int = 0) -> None:
        """Call a method and read its reply. A `service` is named in the call if it is set.

        A negative `seqid` in the compact protocol would be an endless loop.
        """
        protocol = (
            TMultiplexedProtocol(self._protocol, self.service) if self.service else self._protocol
        )
        client = TClient(PEER.More, self._protocol, protocol)
        client._seqid = seqid
        with contextlib.suppress(PEER.Refusal, TApplicationException):
            arguments = build_struct(getattr(PEER.More, f"{method}_args"), values)
            getattr(client, method)(**vars(arguments))
