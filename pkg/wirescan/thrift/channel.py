"""Both sides of a conversation in Thrift, without the socket: `ClientChannel` and `ServerChannel`.

    client                                               server
        send_call("add", arguments)   --- bytes --->         receive(data) -> [Call]
        receive(data) -> [Reply]      <--- bytes ---         send_reply(call, result)

What the arguments and results are is for who has the IDL: here they are bytes, a struct of the protocol in use.

Sources: Apache Thrift, doc/specs: HeaderFormat.md, thrift-rpc.md; of fbthrift THeader.h: persistent infos, and what a
reply repeats of its call.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np

from wirescan.core.columns import I32, integer, octets
from wirescan.core.fault import Fault
from wirescan.errors import HARD, FrameError, error_of
from wirescan.limits import Limits
from wirescan.stream import Stream
from wirescan.table import FrameTable
from wirescan.thrift import FRAME, FRAMES, messages, plain
from wirescan.thrift.encode import encode_frame, encode_framed, encode_message
from wirescan.thrift.kind import Kind, MessageType, Protocol, Transform
from wirescan.thrift.scan import scan_stream
from wirescan.thrift.standing import ConversationError, Standing, infos_of, misused, strings_of, transforms_of

__all__ = ["Call", "ClientChannel", "ConversationError", "Message", "Reply", "Sent", "ServerChannel"]

EMPTY = b"\0"                   # a struct without fields, in both protocols
LARGEST_SEQID = (1 << 31) - 1
BYTES_INFLATED = 64 << 20       # by all frames of one call of `receive`, or as many as one of them may
UNFRAMED = (Kind.UNFRAMED_BINARY, Kind.UNFRAMED_COMPACT)
FRAMED = (Kind.FRAMED_BINARY, Kind.FRAMED_COMPACT)
FRAMINGS = {"header": Kind.HEADER, "framed": Kind.FRAMED_BINARY, "unframed": Kind.UNFRAMED_BINARY}
UNSPOKEN = {Kind.HTTP: "the peer speaks HTTP", Kind.HTTP_CHUNKED: "the peer speaks HTTP",
            Kind.TTHEADER: "the peer speaks TTHeader"}


class Sent(NamedTuple):
    """A call that was sent. service: of a multiplexed one, or None."""
    seqid: int
    method: bytes
    service: bytes | None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Message:
    """What a call and a reply have.

    method: its name, without the service. type: what it is. arguments: the struct behind the beginning of the message:
    of a reply the result, of an EXCEPTION the TApplicationException. infos: those in force: its own, and the persistent
    ones of its connection so far. kind: its framing. version: of compact 1 or 2, of binary 1 (strict) or 0. seq, flags,
    transforms: of its header; 0 and empty where it has none, and transforms are None where they are more than four.
    """
    method: bytes
    seqid: int
    type: MessageType
    arguments: memoryview
    infos: dict[bytes, bytes]
    kind: Kind
    protocol: Protocol
    version: int
    seq: int
    flags: int
    transforms: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class Call(Message):
    """A call that a client made. service: of a multiplexed one, or None. Where `type` is ONEWAY it has no reply."""
    service: bytes | None


@dataclass(frozen=True, slots=True, eq=False)
class Reply(Message):
    """A reply, or an EXCEPTION. call: what it answers; None where no call of its seqid waits: it was answered before,
    forgotten, or never sent."""
    call: Sent | None


class _Channel:
    """What both sides have: reading messages, and the infos that hold for a connection."""

    def __init__(self, *, padding: str = "0-3", infos_order: str = "normal", precedence: str = "normal",
                 key: bytes | None = None, hash: Any = "sha256", limits: Limits = Limits()):
        self._stream = Stream(TOLD_AT_ONCE, errors="mark", limits=limits)
        together = max(limits.inflated, BYTES_INFLATED)
        self._limits = replace(limits, inflated_total=min(limits.inflated_total, together))
        self._undoing: dict[str, Any] = {"key": None if key is None else octets(key, "key"), "hash": hash}
        self._writing: dict[str, Any] = {"padding": padding, "infos_order": infos_order}
        self._standing = Standing(precedence)
        self._failed: ConversationError | None = None
        signing: dict[str, Any] = {} if key is None else {"transforms": [Transform.HMAC], **self._undoing}
        encode_frame(EMPTY, **signing, **self._writing)         # unfit options are refused now

    @property
    def held(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return self._stream.held

    def _receive(self, data: Any) -> list:
        self._refuse_failed()
        events: list[Message] = []
        try:
            for event in self._events(self._stream.feed(data)):
                events.append(event)
        except FrameError as error:
            kept = copy(error)                      # without the frames that its traceback holds
            self._failed = kept if isinstance(kept, ConversationError) else ConversationError(kept)
            self._stream = Stream(FRAMES)           # lets go of what is held
            first, _, said = self._failed.args
            raise ConversationError(first, events, said) from None
        return events

    def _refuse_failed(self) -> None:
        if self._failed is not None:
            raise copy(self._failed)

    def _events(self, frames: FrameTable) -> Iterator[Message]:
        if not len(frames):
            return
        found = messages(plain(frames, errors="mark", limits=self._limits, **self._undoing), errors="mark",
                         limits=self._limits)
        at = dict(zip(found["parent"].tolist(), range(len(found))))
        pairs = infos_of(frames, self._limits)
        methods, services, arguments = (list(strings_of(found, name)) for name in ("method", "service", "arguments"))
        for row, header in enumerate(frames.rows):
            if int(header["kind"]) in UNSPOKEN and not header["fault"]:
                raise misused(frames, row, UNSPOKEN[Kind(header["kind"])])
            if header["fault"]:
                raise error_of(frames, row)
            number = at[row]
            message = found.rows[number]
            if message["fault"]:
                raise error_of(found, number)
            event = self._event(
                None if message["service_size"] < 0 else bytes(services[number]),
                method=bytes(methods[number]), seqid=int(message["seqid"]), type=MessageType(int(message["kind"])),
                arguments=arguments[number], infos=self._standing.in_force(frames, row, pairs[row]),
                kind=Kind(int(header["kind"])), protocol=Protocol(int(message["protocol"])),
                version=int(message["version"]), seq=int(header["seq"]), flags=int(header["flags"]),
                transforms=transforms_of(header))
            if event is None:
                what = MessageType(int(message["kind"])).name
                raise misused(frames, row, f"the peer sends {what}, which this side does not take")
            yield event

    def _event(self, service: bytes | None, **known: Any) -> Message | None:
        """A message that came, or None where this side takes none of its type."""
        raise NotImplementedError

    def _framed(self, message: bytes, kind: Kind, transforms: Sequence[int], infos: Any, persistent: Any,
                **header: Any) -> bytes:
        """A message in the framing `kind`."""
        if kind in UNFRAMED:
            return message
        if kind in FRAMED:
            return encode_framed(message)
        new = self._standing.new(persistent)
        signing = self._undoing if Transform.HMAC in transforms else {}
        frame = encode_frame(message, transforms=transforms, infos=infos, persistent=new, **header, **signing,
                             **self._writing)
        self._standing.told |= new
        return encode_framed(frame) if kind is Kind.DOUBLE_HEADER else frame


class ClientChannel(_Channel):
    """The calling side of one connection: calls in, bytes out; bytes in, replies out.

    framing: "header", "framed" or "unframed". protocol: "binary" or "compact"; version: of compact, 1 (Apache) or 2
    (fbthrift). strict: binary with its version word; replies that lack it are understood behind a header only.
    transforms: of all calls, in the order in which they are applied, see `Transform`. flags: of all headers. level,
    padding, infos_order, key, hash: as `encode_frame` takes them; with `key` what comes under HMAC is verified too, and
    what comes without is still taken: its `transforms` tell. precedence: which info wins where a persistent and a
    normal one have the same key. limits: of what is read; all frames of one call of `receive` may inflate to 64 MiB
    together, or to `inflated` where that is more.

        data = client.send_call("add", arguments, infos={b"trace": b"7"})
        for reply in client.receive(socket.recv(65536)):
            reply.call, reply.arguments

    Bytes that cannot be taken end the conversation: ConversationError, a FrameError, from then on. Raises TypeError and
    ValueError for unfit arguments; then nothing is sent. For one thread at a time.
    """

    def __init__(self, *, framing: str = "header", protocol: str = "binary", version: int | None = None,
                 strict: bool = True, transforms: Sequence[int] = (), level: int | None = None, flags: int = 0,
                 **options: Any):
        super().__init__(**options)
        if framing not in FRAMINGS:
            raise ValueError(f"framing must be one of {', '.join(FRAMINGS)}, not {framing!r}")
        self._kind, self._transforms = FRAMINGS[framing], tuple(transforms)
        if self._kind is not Kind.HEADER and (self._transforms or flags or level is not None):
            raise ValueError(f"transforms, level and flags need a header, and there is none in framing {framing!r}")
        number = Protocol.COMPACT if protocol in ("compact", Protocol.COMPACT) else Protocol.BINARY
        self._header: dict[str, Any] = {"protocol_id": number, "flags": flags, "level": level}
        self._dialect: dict[str, Any] = {"protocol": protocol, "version": version, "strict": strict}
        self._open: dict[int, Sent] = {}
        self._seqid = 0
        self._encode(b"", MessageType.CALL, 0, EMPTY, None, (), ())

    @property
    def seqid(self) -> int:
        """That of the call that was sent last; 0 before the first."""
        return self._seqid

    @property
    def unanswered(self) -> list[Sent]:
        """The calls that wait for their replies, in the order in which they were sent."""
        return list(self._open.values())

    def send_call(self, method: str | bytes, arguments: bytes | bytearray | memoryview = EMPTY, *,
                  service: str | bytes | None = None, infos: Any = (), persistent: Any = (), oneway: bool = False,
                  seqid: int | None = None) -> bytes:
        """The bytes of a call.

        arguments: a struct, as the protocol writes it. service: of a multiplexed server. infos: pairs or a mapping of
        bytes. persistent: those that hold from now on; what this connection was told before is not sent again. oneway:
        there will be no reply. seqid: by default the one behind that of the call before; the header bears it too.
        Raises ValueError for the seqid of a call that waits for its reply, and for infos where there is no header.
        """
        self._refuse_failed()
        number = self._next() if seqid is None else integer(seqid, "seqid", I32)
        if number in self._open:
            raise ValueError(f"call {number} waits for its reply")
        if self._kind is not Kind.HEADER and (infos or persistent):
            raise ValueError("infos need a header, and there is none in this framing")
        kind = MessageType.ONEWAY if oneway else MessageType.CALL
        data = self._encode(method, kind, number, arguments, service, infos, persistent)
        self._seqid = number
        if not oneway:
            self._open[number] = Sent(number, octets(method, "method"), None if service is None else octets(
                service, "service"))
        return data

    def receive(self, data: Any) -> list[Reply]:
        """The replies that these bytes complete, in the order of the wire, each with its call, whatever the order of
        these. data: bytes-like, and not written to any more: it is not copied, but kept. Raises ConversationError."""
        return self._receive(data)

    def forget(self, seqid: int) -> None:
        """Waits no longer for a reply, as of a call that could not be sent, or took too long."""
        self._open.pop(seqid, None)

    def _event(self, service: bytes | None, **known: Any) -> Reply | None:
        if known["type"] not in (MessageType.REPLY, MessageType.EXCEPTION):
            return None
        return Reply(**known, call=self._open.pop(known["seqid"], None))

    def _next(self) -> int:
        number = self._seqid
        while True:
            number = number + 1 if number < LARGEST_SEQID else 1
            if number not in self._open:
                return number

    def _encode(self, method: str | bytes, kind: MessageType, seqid: int, arguments: Any, service: str | bytes | None,
                infos: Any, persistent: Any) -> bytes:
        message = encode_message(method, kind, seqid, arguments, service=service, **self._dialect)
        return self._framed(message, self._kind, self._transforms, infos, persistent, seq=seqid, **self._header)


class ServerChannel(_Channel):
    """The answering side of one connection: bytes in, calls out; replies in, bytes out.

    Each call may come in another framing, protocol and version: it is answered in its own. Options: padding,
    infos_order: as `encode_frame` takes them; precedence, key, hash, limits: as of `ClientChannel`.

        for call in server.receive(socket.recv(65536)):
            if call.type != MessageType.ONEWAY:
                socket.sendall(server.send_reply(call, result))

    Bytes that cannot be taken end the conversation: ConversationError, a FrameError, from then on. Raises TypeError and
    ValueError for unfit arguments; then nothing is sent. For one thread at a time.
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        self._open: WeakSet[Call] = WeakSet()       # who drops a call will not answer it

    @property
    def unanswered(self) -> int:
        """Calls that were given out, are still held and wait for a reply."""
        return len(self._open)

    def receive(self, data: Any) -> list[Call]:
        """The calls that these bytes complete, in order. data: bytes-like, and not written to any more: it is not
        copied, but kept. Raises ConversationError."""
        return self._receive(data)

    def send_reply(self, call: Call, result: bytes | bytearray | memoryview = EMPTY, *,
                   type: MessageType = MessageType.REPLY, infos: Any = (), persistent: Any = (),
                   transforms: Sequence[int] | None = None) -> bytes:
        """The bytes of the reply to a call; calls may be answered in any order, each once.

        result: a struct, as the call's protocol writes it: field 0 is what the method returns, any other an exception
        that the IDL declares; for type EXCEPTION a TApplicationException. infos, persistent: as `send_call` takes them.
        transforms: by default those of the call, as far as they can be written; none for more than four. Where the call
        came without a header there are none of all these. One that came as BIGF is answered with a usual header.
        Raises ValueError for what is no unanswered call of this connection, and for a type that is no reply.
        """
        self._refuse_failed()
        if call not in self._open:
            raise ValueError("no call of this connection that waits for a reply")
        if type not in (MessageType.REPLY, MessageType.EXCEPTION):
            raise ValueError(f"a reply is REPLY or EXCEPTION, not {type!r}")
        compact = call.protocol == Protocol.COMPACT
        message = encode_message(call.method, type, call.seqid, result, protocol=call.protocol,
                                 version=call.version if compact else None, strict=call.version > 0)
        if transforms is None:
            transforms = [one for one in call.transforms or () if one != Transform.NONE
                          and (one != Transform.HMAC or self._undoing["key"] is not None)]
        data = self._framed(message, call.kind, tuple(transforms), infos, persistent, protocol_id=call.protocol,
                            flags=call.flags, seq=call.seq)
        self._open.discard(call)
        return data

    def _event(self, service: bytes | None, **known: Any) -> Call | None:
        if known["type"] not in (MessageType.CALL, MessageType.ONEWAY):
            return None
        call = Call(**known, service=service)
        if call.type == MessageType.CALL:
            self._open.add(call)
        return call


def _scan(view: Any, check: bool, resync: bool, limits: Limits, **options: Any) -> tuple:
    """As that of the format, but damage behind which the next frame is not known is a row to the end of the bytes: a
    conversation is told at once, behind what came before, where a capture is searched for the next frame."""
    rows, bad, fault, at = scan_stream(view, check, False, limits, **options)
    if fault < HARD or fault == Fault.LIMIT:
        return rows, bad, fault, at
    row = np.zeros(1, FRAME)
    row["start"], row["size"], row["parent"], row["fault"] = at, len(view) - at, -1, fault
    return np.concatenate([rows, row]), bad + 1, Fault.OK, len(view)


TOLD_AT_ONCE = replace(FRAMES, scan=_scan)
