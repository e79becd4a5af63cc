"""A transport for Apache Thrift's own Python library (PyPI: thrift) that reads and writes THeader in full.

It stands where the library's THeaderTransport does, beneath its THeaderProtocol or any other protocol, and has its
names. What it adds: the transforms zstd, lz4 and snappy, persistent headers, BIGF and Node's double length, the padding
and the order of infos that other readers want, and bounds on all that is read.

Sources: of Apache Thrift lib/py: THeaderTransport.py, THeaderProtocol.py, TServer.py.
"""
from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from functools import cache
from io import BytesIO
from typing import Any
from weakref import WeakValueDictionary

from thrift.transport.THeaderTransport import (
    HARD_MAX_FRAME_SIZE, THeaderClientType, THeaderSubprotocolID, THeaderTransport)
from thrift.transport.TTransport import TTransportBase, TTransportException

from wirescan.core.fault import Fault
from wirescan.errors import FrameError
from wirescan.limits import Limits
from wirescan.thrift import plain, scan
from wirescan.thrift.encode import encode_frame, encode_framed
from wirescan.thrift.kind import Kind, Transform
from wirescan.thrift.standing import Standing, infos_of, strings_of, transforms_of

__all__ = ["HeaderTransport", "HeaderTransportFactory", "TransportError"]

READ = 64 << 10             # bytes asked for at once: a socket allocates them before any arrive
LARGEST = HARD_MAX_FRAME_SIZE + 12      # bytes, with what stands before it
BIG = b"BIGF"
UNKNOWN = (Transform.HMAC, Transform.QLZ, Transform.CUSTOM)         # nothing here has a key
CLIENT_TYPES = {
    Kind.HEADER: THeaderClientType.HEADERS, Kind.BIG_HEADER: THeaderClientType.HEADERS,
    Kind.DOUBLE_HEADER: THeaderClientType.HEADERS, Kind.FRAMED_BINARY: THeaderClientType.FRAMED_BINARY,
    Kind.FRAMED_COMPACT: THeaderClientType.FRAMED_COMPACT}
UNFRAMED = (THeaderClientType.UNFRAMED_BINARY, THeaderClientType.UNFRAMED_COMPACT)
TYPES = {Fault.TOO_LARGE: TTransportException.SIZE_LIMIT, Fault.BAD_LENGTH: TTransportException.SIZE_LIMIT,
         Fault.NOT_A_FRAME: TTransportException.INVALID_CLIENT_TYPE}


class TransportError(TTransportException, FrameError):
    """Bytes that are no frame, as both libraries say it: `type` is that of TTransportException, `fault` that of
    FrameError, whose `offset` counts from the begin of the frame."""

    def __init__(self, error: FrameError):
        FrameError.__init__(self, error.fault, error.offset, error.row, error.near, error.source, error.inflated)
        self.args = (error,)
        self.type, self.message, self.inner = TYPES.get(Fault(error.fault), self.UNKNOWN), str(error), error

    def __str__(self) -> str:
        return str(self.message)


class HeaderTransport(THeaderTransport):
    """THeader over another transport: a TSocket, a TBufferedTransport.

    allowed_client_types: `THeaderClientType`s that may be read; what is written is of the type that was read last, and
    before that of `client_type`. default_protocol: the id in headers until one is read. transforms: of all that is
    written, in the order in which they are applied, see `Transform`; `add_transform` adds to them. echo: where there
    are none, those that were read last, as servers do. padding, infos_order: as `encode_frame` takes them.

        transport = HeaderTransport(TSocket("localhost", 9090), transforms=[Transform.ZSTD])
        protocol = THeaderProtocol(transport, ())       # its other arguments are the transport's

    get_headers: those in force: of the last frame, and the persistent ones of the connection. set_header is for the
    next frame, set_persistent_header for all from there on; keys and values are bytes.

    Raises TransportError for bad bytes, and for transforms that are not known (what the library raises for these, its
    THeaderProtocol fails to answer with: the connection ends either way), TTransportException where the connection
    ends, TypeError and ValueError for unfit arguments.
    """

    def __init__(self, transport: TTransportBase,
                 allowed_client_types: Collection[int] = (THeaderClientType.HEADERS,),
                 default_protocol: int = THeaderSubprotocolID.BINARY, *,
                 client_type: int = THeaderClientType.HEADERS, transforms: Sequence[int] = (), echo: bool = False,
                 padding: str = "0-3", infos_order: str = "normal"):
        super().__init__(transport, allowed_client_types, default_protocol)
        self._set_client_type(client_type)
        self._echo, self._read_transforms, self._doubled = echo, tuple[int, ...](), False
        self._writing: dict[str, Any] = {"padding": padding, "infos_order": infos_order}
        self._standing, self._persistent = Standing(), dict[bytes, bytes]()
        for one in transforms:
            self.add_transform(one)
        encode_frame(b"", **self._writing)      # unfit options are refused now

    def open(self) -> None:
        """Connects, perhaps anew: what the last connection had remembered does not hold, and is told again."""
        super().open()
        self._standing, self._read_buffer, self._read_headers = Standing(), BytesIO(), {}

    def add_transform(self, transform_id: int) -> None:
        """All that is written from now on is given this transform too. Raises ValueError for an unknown one."""
        number = operator.index(transform_id)
        if number in UNKNOWN or number not in Transform.__members__.values():
            raise ValueError(f"unknown transform {transform_id!r}")
        self._write_transforms.append(Transform(number))

    def set_persistent_header(self, key: bytes, value: bytes) -> None:
        """A header of all frames from now on: it is sent once. Raises ValueError for what is not bytes."""
        if not isinstance(key, bytes) or not isinstance(value, bytes):
            raise ValueError("header names and values must be bytes")
        self._persistent[key] = value

    def clear_persistent_headers(self) -> None:
        """Forgets those that were not sent yet; what the other side was told holds until the connection ends."""
        self._persistent.clear()

    def readFrame(self, req_sz: int) -> None:
        """Reads the next frame; of an unframed message the first `req_sz` bytes, four at the least."""
        begin = self._take(4)
        if begin[:2] == b"\x80\x01":
            self._pass_through(THeaderClientType.UNFRAMED_BINARY, begin, req_sz)
        elif begin[0] == 0x82 and begin[1] & 0x1F in (1, 2) and 1 <= begin[1] >> 5 <= 4:
            self._pass_through(THeaderClientType.UNFRAMED_COMPACT, begin, req_sz)
        else:
            begin += self._take(8) if begin == BIG else b""
            size = int.from_bytes(begin[-8:] if begin[:4] == BIG else begin, "big")
            if size > self._max_frame_size:
                raise TransportError(FrameError(Fault.BAD_LENGTH, 0, 0, bytes(begin)))
            self._open_frame(bytes(begin + self._take(size)))

    def flush(self) -> None:
        """Writes what was written since the last flush as one frame."""
        data, self._write_buffer = self._write_buffer.getvalue(), BytesIO()
        new: dict[bytes, bytes] = {}
        if self._client_type == THeaderClientType.HEADERS:
            new = self._standing.new(self._persistent)
            data = self._frame(data, new)
        elif self._client_type not in UNFRAMED:
            data = encode_framed(data)
        if len(data) - 4 > self._max_frame_size:
            raise TTransportException(TTransportException.SIZE_LIMIT, "the frame to be sent is too large")
        self._transport.write(data)
        self._transport.flush()
        self._standing.told |= new

    def _take(self, size: int) -> bytearray:
        """So many bytes, and no more: what lies beneath may wait for those of the next frame."""
        data = bytearray()
        while len(data) < size:
            piece = self._transport.read(min(size - len(data), READ))
            if not piece:
                raise TTransportException(TTransportException.END_OF_FILE, "the connection ended")
            data += piece
        return data

    def _pass_through(self, client_type: int, begin: bytearray, req_sz: int) -> None:
        """An unframed message: its protocol walks it, and so finds its end."""
        self._set_client_type(client_type)
        self._read_headers = {}
        self._read_buffer = BytesIO(begin + (self._take(req_sz - len(begin)) if req_sz > len(begin) else b""))

    def _open_frame(self, data: bytes) -> None:
        limits = _limits(self._max_decompressed_size)
        try:
            frames = scan(data, limits=limits)
            kind = int(frames["kind"][0]) if len(frames) else 0
            if kind not in CLIENT_TYPES:
                raise FrameError(Fault.NOT_A_FRAME, 0, 0, data)
            row = frames.rows[0]
            self._set_client_type(CLIENT_TYPES[Kind(kind)])
            self._doubled, self._read_transforms = kind == Kind.DOUBLE_HEADER, transforms_of(row) or ()
            self._read_headers = {}
            if self._client_type == THeaderClientType.HEADERS:
                self.flags, self.sequence_id = int(row["flags"]), int(row["seq"].view("i4"))
                self._protocol_id = int(row["protocol_id"])
                self._read_headers = self._standing.in_force(frames, 0, infos_of(frames, limits)[0])
            payload = memoryview(data)[int(row["payload_at"]):]
            if row["transform_count"]:
                payload, = strings_of(plain(frames, limits=limits), "payload")
        except FrameError as error:
            raise TransportError(error) from None
        self._read_buffer = BytesIO(payload)

    def _frame(self, message: bytes, new: dict[bytes, bytes]) -> bytes:
        infos, self._write_headers = self._write_headers, {}
        transforms = self._write_transforms or [
            one for one in self._read_transforms if self._echo and one not in (Transform.NONE, *UNKNOWN)]
        frame = encode_frame(message, protocol_id=self._protocol_id, flags=self.flags,
                             seq=self.sequence_id & 0xFFFFFFFF, transforms=transforms, infos=infos, persistent=new,
                             **self._writing)
        return encode_framed(frame) if self._doubled else frame


@cache
def _limits(inflated: int) -> Limits:
    return Limits(frame=LARGEST, inflated=inflated)


class HeaderTransportFactory:
    """The factory of transports for a server: `TThreadedServer(processor, TServerSocket("127.0.0.1", 9090), factory,
    THeaderProtocolFactory())`. options: as of HeaderTransport; `echo` is True unless it is given.
    """

    def __init__(self, **options: Any):
        self._options = {"echo": True, **options}
        self._made: WeakValueDictionary[int, HeaderTransport] = WeakValueDictionary()
        HeaderTransport(TTransportBase(), **self._options)      # unfit options are refused now

    def getTransport(self, trans: TTransportBase) -> HeaderTransport:
        """The HeaderTransport over another transport, the same each time: with protocols other than THeaderProtocol
        servers ask for one to read and one to write, and what is written has to be as what was read."""
        made = self._made.get(id(trans))        # the number is no other's while the transport holds what is beneath
        if made is None:
            made = self._made[id(trans)] = HeaderTransport(trans, **self._options)
        return made
