"""A transport for Apache Thrift's own Python library (PyPI: thrift) that supports all of THeader.

It replaces the library's THeaderTransport and has its names. It works under the library's
THeaderProtocol or any other protocol. `wirescan.thrift` exports it. It adds:

- the transforms zstd, lz4 and snappy,
- persistent headers,
- BIGF and Node's double length,
- options for padding and for the order of infos,
- limits on everything that is read.

Sources: of Apache Thrift lib/py: THeaderTransport.py, THeaderProtocol.py, TServer.py.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from functools import cache
from io import BytesIO
from typing import Any
from weakref import WeakValueDictionary

from wirescan.core.fault import Fault
from wirescan.frames.errors import FrameError
from wirescan.frames.limits import Limits
from wirescan.frames.optional_packages import name_package
from wirescan.thrift.constants import Kind, Transform
from wirescan.thrift.encode import encode_frame, encode_framed
from wirescan.thrift.formats import plain, scan
from wirescan.thrift.live.persistent_headers import (
    PersistentInfos,
    iter_strings,
    list_transforms,
    read_infos,
)

with name_package("thrift", __name__, "'wirescan[thrift]'"):
    from thrift.transport.THeaderTransport import (
        HARD_MAX_FRAME_SIZE,
        THeaderClientType,
        THeaderSubprotocolID,
        THeaderTransport,
    )
    from thrift.transport.TTransport import TTransportBase, TTransportException

__all__ = ["HeaderTransport", "HeaderTransportFactory", "TransportError"]

READ_SIZE = 64 << 10  # bytes requested at once: a socket allocates them before any arrive
LARGEST_FRAME = HARD_MAX_FRAME_SIZE + 12  # bytes, with "BIGF" and the length
BIG = b"BIGF"
UNSUPPORTED = (Transform.HMAC, Transform.QLZ, Transform.CUSTOM)  # HMAC: the transport has no key
CLIENT_TYPES = {
    Kind.HEADER: THeaderClientType.HEADERS,
    Kind.BIG_HEADER: THeaderClientType.HEADERS,
    Kind.DOUBLE_HEADER: THeaderClientType.HEADERS,
    Kind.FRAMED_BINARY: THeaderClientType.FRAMED_BINARY,
    Kind.FRAMED_COMPACT: THeaderClientType.FRAMED_COMPACT,
}
UNFRAMED = (THeaderClientType.UNFRAMED_BINARY, THeaderClientType.UNFRAMED_COMPACT)
EXCEPTION_TYPES = {
    Fault.TOO_LARGE: TTransportException.SIZE_LIMIT,
    Fault.BAD_LENGTH: TTransportException.SIZE_LIMIT,
    Fault.NOT_A_FRAME: TTransportException.INVALID_CLIENT_TYPE,
}


# The library has no annotations, so its classes have type Any for a type checker.
class TransportError(TTransportException, FrameError):
    """An error for bytes that are not a frame, with the attributes of both libraries.

    `type` is that of TTransportException. `fault` is that of FrameError. `offset` counts from the
    begin of the frame.
    """

    def __init__(self, error: FrameError):
        FrameError.__init__(
            self, error.fault, error.offset, error.row, error.near, error.source, error.inflated
        )
        self.args = (error,)
        self.type = EXCEPTION_TYPES.get(Fault(error.fault), self.UNKNOWN)
        self.message = str(error)
        self.inner = error

    def __str__(self) -> str:
        return str(self.message)


class HeaderTransport(THeaderTransport):
    """THeader over another transport, such as a TSocket or a TBufferedTransport.

    Args:
        transport: the transport to read from and to write to.
        allowed_client_types: the `THeaderClientType`s that may be read. Frames are written with the
            type that was read last, and before any is read with `client_type`.
        default_protocol: the protocol id in headers until one is read.
        client_type: see `allowed_client_types`.
        transforms: of everything that is written, in the order in which they are applied; see
            `Transform`. `add_transform` adds to them.
        echo: without `transforms`, write with those that were read last, as servers do.
        padding, infos_order: as `encode_frame` takes them.

    Example:
        transport = HeaderTransport(TSocket("localhost", 9090), transforms=[Transform.ZSTD])
        protocol = THeaderProtocol(transport, ())       # its other arguments are the transport's

    `get_headers` returns the headers in force: those of the last frame, and the persistent ones of
    the connection. `set_header` sets a header of the next frame. `set_persistent_header` sets a
    header of all frames from then on. Keys and values are bytes.

    Raises TransportError for bad bytes and unknown transforms. For these the library raises another
    error, which its THeaderProtocol fails to answer; in both cases the connection ends. Raises
    TTransportException where the connection ends, TypeError and ValueError for unfit arguments.
    """

    _read_buffer: BytesIO
    _read_headers: dict[bytes, bytes]
    _write_buffer: BytesIO
    _write_headers: dict[bytes, bytes]

    def __init__(
        self,
        transport: TTransportBase,
        allowed_client_types: Collection[int] = (THeaderClientType.HEADERS,),
        default_protocol: int = THeaderSubprotocolID.BINARY,
        *,
        client_type: int = THeaderClientType.HEADERS,
        transforms: Sequence[int] = (),
        echo: bool = False,
        padding: str = "0-3",
        infos_order: str = "normal",
    ):
        super().__init__(transport, allowed_client_types, default_protocol)
        self._set_client_type(client_type)
        self._echo = echo
        self._read_transforms: tuple[int, ...] = ()
        self._doubled = False
        self._writing: dict[str, Any] = {"padding": padding, "infos_order": infos_order}
        self._persistent_infos = PersistentInfos()
        self._persistent_headers: dict[bytes, bytes] = {}
        for transform in transforms:
            self.add_transform(transform)
        encode_frame(b"", **self._writing)  # raises for unfit options

    def open(self) -> None:
        """Connect, perhaps again. Persistent headers of the last connection are forgotten.

        Those that were set here are sent again.
        """
        super().open()
        self._persistent_infos = PersistentInfos()
        self._read_buffer = BytesIO()
        self._read_headers = {}

    def add_transform(self, transform_id: int) -> None:
        """Apply this transform too from now on. Raises ValueError for an unknown one."""
        number = operator.index(transform_id)
        if number in UNSUPPORTED or number not in Transform.__members__.values():
            raise ValueError(f"unknown transform {transform_id!r}")
        self._write_transforms.append(Transform(number))

    def set_persistent_header(self, key: bytes, value: bytes) -> None:
        """Set a header of all frames from now on. It is sent once.

        Raises ValueError for a key or value that is not bytes.
        """
        if not isinstance(key, bytes) or not isinstance(value, bytes):
            raise ValueError("header names and values must be bytes")
        self._persistent_headers[key] = value

    def clear_persistent_headers(self) -> None:
        """Remove the headers that were not sent yet.

        Headers that were sent are in force until the connection ends.
        """
        self._persistent_headers.clear()

    def readFrame(self, req_sz: int) -> None:  # noqa: N802  # the library's name
        """Read the next frame, or the first bytes of an unframed message.

        req_sz: how many bytes of an unframed message to read; at least four are read.
        """
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
        """Write the data since the last flush as one frame."""
        data = self._write_buffer.getvalue()
        self._write_buffer = BytesIO()
        new: dict[bytes, bytes] = {}
        if self._client_type == THeaderClientType.HEADERS:
            new = self._persistent_infos.select_new(self._persistent_headers)
            data = self._encode_message(data, new)
        elif self._client_type not in UNFRAMED:
            data = encode_framed(data)
        if len(data) - 4 > self._max_frame_size:
            raise TTransportException(
                TTransportException.SIZE_LIMIT, "the frame to be sent is too large"
            )
        self._transport.write(data)
        self._transport.flush()
        self._persistent_infos.sent |= new

    def _take(self, size: int) -> bytearray:
        """Return exactly `size` bytes.

        Reading more would block: the transport may wait for the next frame.
        """
        data = bytearray()
        while len(data) < size:
            piece = self._transport.read(min(size - len(data), READ_SIZE))
            if not piece:
                raise TTransportException(TTransportException.END_OF_FILE, "the connection ended")
            data += piece
        return data

    def _pass_through(self, client_type: int, begin: bytearray, req_sz: int) -> None:
        """Start an unframed message. The protocol above walks it and finds its end."""
        self._set_client_type(client_type)
        self._read_headers = {}
        rest = self._take(req_sz - len(begin)) if req_sz > len(begin) else b""
        self._read_buffer = BytesIO(begin + rest)

    def _open_frame(self, data: bytes) -> None:
        limits = _make_limits(self._max_decompressed_size)
        try:
            frames = scan(data, limits=limits)
            kind = int(frames["kind"][0]) if len(frames) else 0
            if kind not in CLIENT_TYPES:
                raise FrameError(Fault.NOT_A_FRAME, 0, 0, data)
            row = frames.rows[0]
            self._set_client_type(CLIENT_TYPES[Kind(kind)])
            self._doubled = kind == Kind.DOUBLE_HEADER
            self._read_transforms = list_transforms(row) or ()
            self._read_headers = {}
            if self._client_type == THeaderClientType.HEADERS:
                self.flags = int(row["flags"])
                self.sequence_id = int(row["seq"].view("i4"))
                self._protocol_id = int(row["protocol_id"])
                pairs = read_infos(frames, limits)[0]
                self._read_headers = self._persistent_infos.merge_received(frames, 0, pairs)
            payload = memoryview(data)[int(row["payload_at"]) :]
            if row["transform_count"]:
                (payload,) = iter_strings(plain(frames, limits=limits), "payload")
        except FrameError as error:
            raise TransportError(error) from None
        self._read_buffer = BytesIO(payload)

    def _encode_message(self, message: bytes, new: dict[bytes, bytes]) -> bytes:
        """Return a header frame. new: the persistent headers that it sends."""
        infos = self._write_headers
        self._write_headers = {}
        transforms = self._write_transforms
        if not transforms and self._echo:
            transforms = [
                id for id in self._read_transforms if id not in (Transform.NONE, *UNSUPPORTED)
            ]
        frame = encode_frame(
            message,
            protocol_id=self._protocol_id,
            flags=self.flags,
            seq=self.sequence_id & 0xFFFFFFFF,
            transforms=transforms,
            infos=infos,
            persistent=new,
            **self._writing,
        )
        return encode_framed(frame) if self._doubled else frame


@cache
def _make_limits(inflated: int) -> Limits:
    return Limits(frame=LARGEST_FRAME, inflated=inflated)


class HeaderTransportFactory:
    """The factory of transports for a server.

    Args:
        options: as `HeaderTransport` takes them; `echo` is True by default.

    Example:
        socket = TServerSocket("127.0.0.1", 9090)
        TThreadedServer(processor, socket, factory, THeaderProtocolFactory())
    """

    def __init__(self, **options: Any):
        self._options = {"echo": True, **options}
        self._transports: WeakValueDictionary[int, HeaderTransport] = WeakValueDictionary()
        HeaderTransport(TTransportBase(), **self._options)  # raises for unfit options

    def getTransport(self, trans: TTransportBase) -> HeaderTransport:  # noqa: N802  # the library's
        """Return the HeaderTransport over another transport, the same one each time.

        With protocols other than THeaderProtocol, servers ask for one transport to read and one to
        write. Replies must be written in the way in which calls were read.
        """
        # The id is unique while the HeaderTransport exists, because it refers to `trans`.
        header_transport = self._transports.get(id(trans))
        if header_transport is None:
            header_transport = HeaderTransport(trans, **self._options)
            self._transports[id(trans)] = header_transport
        return header_transport
