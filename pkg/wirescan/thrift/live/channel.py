"""Both sides of a Thrift conversation without sockets: `ClientChannel` and `ServerChannel`.

    client                                               server
        send_call("add", arguments)   --- bytes --->         receive(data) -> [Call]
        receive(data) -> [Reply]      <--- bytes ---         send_reply(call, result)

Arguments and results are bytes here: a struct of the protocol in use. The caller, who has the IDL,
encodes and decodes them. `wirescan.thrift` exports both classes.

Sources: Apache Thrift, doc/specs: HeaderFormat.md, thrift-rpc.md; of fbthrift THeader.h, for
persistent infos and for the fields that a reply copies from its call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakSet

import numpy as np

from wirescan.core.arguments import I32, check_integer, to_bytes
from wirescan.core.fault import Fault
from wirescan.frames.errors import HARD, FrameError, make_frame_error
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.reading.stream import Stream
from wirescan.thrift.constants import Kind, MessageType, Protocol, Transform
from wirescan.thrift.encode import encode_frame, encode_framed, encode_message
from wirescan.thrift.formats import FRAMES, messages, plain
from wirescan.thrift.live.persistent_headers import (
    ConversationError,
    PersistentInfos,
    iter_strings,
    list_transforms,
    make_misuse_error,
    read_infos,
)
from wirescan.thrift.scan import FRAME, scan_stream

__all__ = [
    "Call",
    "ClientChannel",
    "ConversationError",
    "Message",
    "Reply",
    "Sent",
    "ServerChannel",
]

EMPTY = b"\0"  # a struct without fields, in both protocols
LARGEST_SEQID = (1 << 31) - 1
# Decompressed bytes of all frames in one call of `receive`. `Limits.inflated` may raise it.
BYTES_INFLATED = 64 << 20
UNFRAMED = (Kind.UNFRAMED_BINARY, Kind.UNFRAMED_COMPACT)
FRAMED = (Kind.FRAMED_BINARY, Kind.FRAMED_COMPACT)
FRAMINGS = {"header": Kind.HEADER, "framed": Kind.FRAMED_BINARY, "unframed": Kind.UNFRAMED_BINARY}
UNSUPPORTED = {
    Kind.HTTP: "the peer sends HTTP",
    Kind.HTTP_CHUNKED: "the peer sends HTTP",
    Kind.TTHEADER: "the peer sends TTHeader",
}


class Sent(NamedTuple):
    """A call that was sent. service: of a multiplexed call, or None."""

    seqid: int
    method: bytes
    service: bytes | None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Message:
    """The attributes that calls and replies share.

    method: the name without the service.
    type: the type of the message.
    arguments: the struct after the message's begin. For a reply it is the result, for an EXCEPTION
        the TApplicationException.
    infos: the infos in force: the message's own, and the persistent ones of its connection so far.
    kind: the framing.
    version: of the compact protocol 1 or 2; of the binary protocol 1 (strict) or 0.
    seq, flags: of the header; 0 without a header.
    transforms: of the header; empty without a header, and None for more than four.
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
    """A call from a client. service: of a multiplexed call, or None. A ONEWAY has no reply."""

    service: bytes | None


@dataclass(frozen=True, slots=True, eq=False)
class Reply(Message):
    """A reply or an EXCEPTION.

    call: the call that it answers. None where no call of its seqid waits for a reply: the call was
    already answered, was forgotten, or was never sent.
    """

    call: Sent | None


_Event = TypeVar("_Event", bound=Message)


class _Channel(Generic[_Event]):
    """The base of both sides: reads messages, and keeps the infos of the connection."""

    def __init__(
        self,
        *,
        padding: str = "0-3",
        infos_order: str = "normal",
        precedence: str = "normal",
        key: bytes | None = None,
        hash: Any = "sha256",
        limits: Limits = Limits(),
    ):
        self._stream = Stream(FRAMES_WITHOUT_RESYNC, errors="mark", limits=limits)
        inflated_total = max(limits.inflated, BYTES_INFLATED)
        self._limits = replace(limits, inflated_total=min(limits.inflated_total, inflated_total))
        self._undoing: dict[str, Any] = {
            "key": None if key is None else to_bytes(key, "key"),
            "hash": hash,
        }
        self._writing: dict[str, Any] = {"padding": padding, "infos_order": infos_order}
        self._persistent_infos = PersistentInfos(precedence)
        self._failed: ConversationError | None = None
        signing = {} if key is None else {"transforms": [Transform.HMAC], **self._undoing}
        encode_frame(EMPTY, **signing, **self._writing)  # raises for unfit options

    @property
    def held(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return self._stream.held

    def receive(self, data: Any) -> list[_Event]:
        """Return the calls or replies that `data` completes, in the order of the wire.

        Each reply has its call, or None if no call waits for it.

        data: bytes-like. It is kept without a copy, so do not write to it later. Raises
        ConversationError.
        """
        self._raise_if_failed()
        events: list[_Event] = []
        try:
            for event in self._make_events(self._stream.feed(data)):
                events.append(event)
        except FrameError as error:
            failed = copy(error)  # without the traceback, which refers to the frames
            if not isinstance(failed, ConversationError):
                failed = ConversationError(failed)
            self._failed = failed
            self._stream = Stream(FRAMES)  # releases the held bytes
            first, _, reason = failed.args
            raise ConversationError(first, events, reason) from None
        return events

    def _raise_if_failed(self) -> None:
        if self._failed is not None:
            raise copy(self._failed)

    def _make_events(self, frames: FrameTable) -> Iterator[_Event]:
        if not len(frames):
            return
        table = messages(
            plain(frames, errors="mark", limits=self._limits, **self._undoing),
            errors="mark",
            limits=self._limits,
        )
        message_of = dict(zip(table["parent"].tolist(), range(len(table))))
        pairs = read_infos(frames, self._limits)
        methods, services, arguments = (
            list(iter_strings(table, name)) for name in ("method", "service", "arguments")
        )
        for row, header in enumerate(frames.rows):
            if int(header["kind"]) in UNSUPPORTED and not header["fault"]:
                raise make_misuse_error(frames, row, UNSUPPORTED[Kind(header["kind"])])
            if header["fault"]:
                raise make_frame_error(frames, row)
            infos = self._persistent_infos.merge_received(frames, row, pairs[row])
            if row not in message_of:
                continue  # a frame without a message may set persistent infos
            number = message_of[row]
            message = table.rows[number]
            if message["fault"]:
                raise make_frame_error(table, number)
            event = self._make_event(
                None if message["service_size"] < 0 else bytes(services[number]),
                method=bytes(methods[number]),
                seqid=int(message["seqid"]),
                type=MessageType(int(message["kind"])),
                arguments=arguments[number],
                infos=infos,
                kind=Kind(int(header["kind"])),
                protocol=Protocol(int(message["protocol"])),
                version=int(message["version"]),
                seq=int(header["seq"]),
                flags=int(header["flags"]),
                transforms=list_transforms(header),
            )
            if event is None:
                name = MessageType(int(message["kind"])).name
                reason = f"the peer sends {name}, which this side does not accept"
                raise make_misuse_error(frames, row, reason)
            yield event

    def _make_event(self, service: bytes | None, **attributes: Any) -> _Event | None:
        """Return a received message, or None where this side accepts none of its type."""
        raise NotImplementedError

    def _frame_message(
        self,
        message: bytes,
        kind: Kind,
        transforms: Sequence[int],
        infos: Any,
        persistent: Any,
        **header: Any,
    ) -> bytes:
        """Return a message in the framing `kind`."""
        if kind in UNFRAMED:
            return message
        if kind in FRAMED:
            return encode_framed(message)
        new = self._persistent_infos.select_new(persistent)
        signing = self._undoing if Transform.HMAC in transforms else {}
        frame = encode_frame(
            message,
            transforms=transforms,
            infos=infos,
            persistent=new,
            **header,
            **signing,
            **self._writing,
        )
        self._persistent_infos.sent |= new
        return encode_framed(frame) if kind is Kind.DOUBLE_HEADER else frame


class ClientChannel(_Channel[Reply]):
    """The calling side of one connection: it encodes calls and decodes replies.

    Args:
        framing: "header", "framed" or "unframed".
        protocol: "binary" or "compact".
        version: of the compact protocol, 1 (Apache) or 2 (fbthrift).
        strict: write the version word of the binary protocol. Replies without it are accepted only
            after a header.
        transforms: of all calls, in the order in which they are applied; see `Transform`.
        level: as `encode_frame` takes it.
        flags: of all headers.
        padding, infos_order: as `encode_frame` takes them.
        precedence: which info wins where a persistent and a normal one have the same key.
        key, hash: as `encode_frame` takes them. With `key`, macs of replies are verified. Replies
            without a mac are still accepted; their `transforms` show it.
        limits: on the bytes that are read. All frames of one call of `receive` may decompress to
            64 MiB together, or to `limits.inflated` where that is more.

    Example:
        data = client.send_call("add", arguments, infos={b"trace": b"7"})
        for reply in client.receive(socket.recv(65536)):
            reply.call, reply.arguments

    Bad bytes end the conversation: every later call raises ConversationError, a FrameError. Unfit
    arguments raise TypeError or ValueError, and nothing is sent. Use from one thread at a time.
    """

    def __init__(
        self,
        *,
        framing: str = "header",
        protocol: str = "binary",
        version: int | None = None,
        strict: bool = True,
        transforms: Sequence[int] = (),
        level: int | None = None,
        flags: int = 0,
        **options: Any,
    ):
        super().__init__(**options)
        if framing not in FRAMINGS:
            raise ValueError(f"framing must be one of {', '.join(FRAMINGS)}, not {framing!r}")
        self._kind = FRAMINGS[framing]
        self._transforms = tuple(transforms)
        if self._kind is not Kind.HEADER and (self._transforms or flags or level is not None):
            raise ValueError(
                f"transforms, level and flags need a header, and framing {framing!r} has none"
            )
        number = Protocol.COMPACT if protocol in ("compact", Protocol.COMPACT) else Protocol.BINARY
        self._header: dict[str, Any] = {"protocol_id": number, "flags": flags, "level": level}
        self._dialect: dict[str, Any] = {"protocol": protocol, "version": version, "strict": strict}
        self._open: dict[int, Sent] = {}
        self._seqid = 0
        self._encode(b"", MessageType.CALL, 0, EMPTY, None, (), ())  # raises for unfit options

    @property
    def seqid(self) -> int:
        """The seqid of the last call that was sent; 0 before the first."""
        return self._seqid

    @property
    def unanswered(self) -> list[Sent]:
        """The calls that wait for their replies, in the order in which they were sent."""
        return list(self._open.values())

    def send_call(
        self,
        method: str | bytes,
        arguments: bytes | bytearray | memoryview = EMPTY,
        *,
        service: str | bytes | None = None,
        infos: Any = (),
        persistent: Any = (),
        oneway: bool = False,
        seqid: int | None = None,
    ) -> bytes:
        """Return the bytes of a call.

        Args:
            method: the method's name.
            arguments: a struct, encoded with the protocol.
            service: of a multiplexed server.
            infos: pairs or a mapping of bytes.
            persistent: infos in force from this call on. Infos that the connection already has are
                not sent again.
            oneway: no reply will follow.
            seqid: by default the number after the seqid of the last call. The header has it too.

        Raises:
            ValueError: a seqid of a call that waits for its reply, or infos without a header.
            ConversationError: the conversation has ended.
        """
        self._raise_if_failed()
        number = self._choose_seqid() if seqid is None else check_integer(seqid, "seqid", I32)
        if number in self._open:
            raise ValueError(f"the call with seqid {number} still waits for its reply")
        if self._kind is not Kind.HEADER and (infos or persistent):
            raise ValueError("infos need a header, and this framing has none")
        kind = MessageType.ONEWAY if oneway else MessageType.CALL
        data = self._encode(method, kind, number, arguments, service, infos, persistent)
        self._seqid = number
        if not oneway:
            self._open[number] = Sent(
                number,
                to_bytes(method, "method"),
                None if service is None else to_bytes(service, "service"),
            )
        return data

    def forget(self, seqid: int) -> None:
        """Stop waiting for a reply, for example after a timeout or a failed send."""
        self._open.pop(seqid, None)

    def _make_event(self, service: bytes | None, **attributes: Any) -> Reply | None:
        if attributes["type"] not in (MessageType.REPLY, MessageType.EXCEPTION):
            return None
        return Reply(**attributes, call=self._open.pop(attributes["seqid"], None))

    def _choose_seqid(self) -> int:
        number = self._seqid
        while True:
            number = number + 1 if number < LARGEST_SEQID else 1
            if number not in self._open:
                return number

    def _encode(
        self,
        method: str | bytes,
        kind: MessageType,
        seqid: int,
        arguments: Any,
        service: str | bytes | None,
        infos: Any,
        persistent: Any,
    ) -> bytes:
        message = encode_message(method, kind, seqid, arguments, service=service, **self._dialect)
        return self._frame_message(
            message, self._kind, self._transforms, infos, persistent, seq=seqid, **self._header
        )


class ServerChannel(_Channel[Call]):
    """The answering side of one connection: it decodes calls and encodes replies.

    Each call may have another framing, protocol and version. Its reply has the same ones.

    Args:
        options: padding and infos_order, as `encode_frame` takes them; precedence, key, hash and
            limits, as `ClientChannel` takes them.

    Example:
        for call in server.receive(socket.recv(65536)):
            if call.type != MessageType.ONEWAY:
                socket.sendall(server.send_reply(call, result))

    Bad bytes end the conversation: every later call raises ConversationError, a FrameError. Unfit
    arguments raise TypeError or ValueError, and nothing is sent. Use from one thread at a time.
    """

    def __init__(self, **options: Any):
        super().__init__(**options)
        self._open: WeakSet[Call] = WeakSet()  # a call that the caller drops needs no reply

    @property
    def unanswered(self) -> int:
        """The number of calls that wait for a reply and that the caller still holds."""
        return len(self._open)

    def send_reply(
        self,
        call: Call,
        result: bytes | bytearray | memoryview = EMPTY,
        *,
        type: MessageType = MessageType.REPLY,
        infos: Any = (),
        persistent: Any = (),
        transforms: Sequence[int] | None = None,
    ) -> bytes:
        """Return the bytes of the reply to a call.

        Calls may be answered in any order, each once. A call without a header is answered without
        infos, persistent and transforms. A call in a BIGF frame is answered with a usual header.

        Args:
            call: a call of this connection.
            result: a struct, encoded with the call's protocol. Field 0 is the return value. Any
                other field is an exception that the IDL declares. For type EXCEPTION, a
                TApplicationException.
            type: REPLY or EXCEPTION.
            infos: as `send_call` takes them.
            persistent: as `send_call` takes them.
            transforms: by default those of the call that can be written, or none for a call with
                more than four.

        Raises:
            ValueError: `call` is not an unanswered call of this connection, or `type` is not that
                of a reply.
            ConversationError: the conversation has ended.
        """
        self._raise_if_failed()
        if call not in self._open:
            raise ValueError("call is not an unanswered call of this connection")
        if type not in (MessageType.REPLY, MessageType.EXCEPTION):
            raise ValueError(f"type must be REPLY or EXCEPTION, not {type!r}")
        compact = call.protocol == Protocol.COMPACT
        message = encode_message(
            call.method,
            type,
            call.seqid,
            result,
            protocol=call.protocol,
            version=call.version if compact else None,
            strict=call.version > 0,
        )
        if transforms is None:
            unfit = [Transform.NONE]
            if self._undoing["key"] is None:
                unfit.append(Transform.HMAC)  # needs a key
            transforms = [id for id in call.transforms or () if id not in unfit]
        data = self._frame_message(
            message,
            call.kind,
            tuple(transforms),
            infos,
            persistent,
            protocol_id=call.protocol,
            flags=call.flags,
            seq=call.seq,
        )
        self._open.discard(call)
        return data

    def _make_event(self, service: bytes | None, **attributes: Any) -> Call | None:
        if attributes["type"] not in (MessageType.CALL, MessageType.ONEWAY):
            return None
        call = Call(**attributes, service=service)
        if call.type == MessageType.CALL:
            self._open.add(call)
        return call


def _scan(
    view: Any, *, check: bool, resync: bool, limits: Limits, **options: Any
) -> tuple[np.ndarray, int, int, int]:
    """Scan as the format does, but never search for the next frame after damage.

    The damage is a row up to the end of the bytes instead. So a conversation reports damage at
    once, after the good frames before it. resync: ignored, as `Parser.scan` must accept it.
    """
    rows, bad, fault, position = scan_stream(
        view, check=check, resync=False, limits=limits, **options
    )
    if fault < HARD or fault == Fault.LIMIT:
        return rows, bad, fault, position
    row = np.zeros(1, FRAME)
    row["start"] = position
    row["size"] = len(view) - position
    row["parent"] = -1
    row["fault"] = fault
    return np.concatenate([rows, row]), bad + 1, Fault.OK, len(view)


FRAMES_WITHOUT_RESYNC = replace(
    FRAMES, parser=replace(FRAMES.parser, scan=_scan, writes_columns=False)
)
