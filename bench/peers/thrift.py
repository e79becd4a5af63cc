"""Others that read and write THeader: a Python loop, Apache Thrift (Python, C++), thriftpy2; fastparquet; zlib alone.

What is C and C++ is compiled here, into libraries that this process loads: everybody reads the same memory.
"""
from __future__ import annotations

import ctypes
import io
import struct
import subprocess
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import thriftpy2
from fastparquet.cencoding import NumpyIO, from_buffer
from thrift.protocol.THeaderProtocol import THeaderProtocol
from thrift.transport.THeaderTransport import THeaderClientType, THeaderSubprotocolID, THeaderTransport
from thrift.transport.TTransport import TMemoryBuffer
from thriftpy2.protocol.cybin import TCyBinaryProtocol
from thriftpy2.transport.framed import TCyFramedTransport
from thriftpy2.transport.memory import TCyMemoryBuffer

from tests.peers.cache import kept

HERE = Path(__file__).parent
CLIENTS = (THeaderClientType.HEADERS,)
COMPACT = THeaderSubprotocolID.COMPACT
CALCULATOR = thriftpy2.load_fp(
    io.StringIO("service Calculator { i64 add(1: i64 left, 2: i64 right) }"), "calculator_thrift").Calculator

_fixed = struct.Struct(">IHHIH").unpack_from        # length, magic, flags, sequence number, words of the header


def fixed_headers(data: bytes) -> int:
    """The number of frames, whose fixed headers are read and not kept."""
    at, end, count = 0, len(data), 0
    while at < end:
        length, magic, flags, sequence, words = _fixed(data, at)
        at += 4 + length
        count += 1
    return count


def fixed_headers_kept(data: bytes) -> list[tuple[int, ...]]:
    """The fixed headers."""
    at, end, found = 0, len(data), []
    while at < end:
        fields = _fixed(data, at)
        found.append(fields)
        at += 4 + fields[0]
    return found


def apache_frames(data: bytes, count: int) -> list[dict[bytes, bytes]]:
    """The headers of frames, as Apache's transport reads them with everything else outside the payload."""
    transport, found = THeaderTransport(TMemoryBuffer(data), CLIENTS), []
    for _ in range(count):
        transport.readFrame(0)
        found.append(transport.get_headers())
    return found


def apache_messages(data: bytes, count: int) -> list[tuple[str, int, int]]:
    """Name, type and sequence id of messages."""
    protocol = THeaderProtocol(TMemoryBuffer(data), CLIENTS)
    return [protocol.readMessageBegin() for _ in range(count)]


def apache_written(payloads: list[bytes], sequences: list[int], pairs: list[list[tuple[bytes, bytes]]]) -> bytes:
    """Frames around payloads of the compact protocol."""
    out = TMemoryBuffer()
    transport = THeaderTransport(out, CLIENTS, COMPACT)
    for payload, transport.sequence_id, headers in zip(payloads, sequences, pairs):
        for key, value in headers:
            transport.set_header(key, value)
        transport.write(payload)
        transport.flush()
    return out.getvalue()


def thriftpy2_calls(data: bytes, count: int) -> list[tuple[str, int, int, int]]:
    """Name, sequence id and both arguments of calls of `add`, framed and binary."""
    protocol, found = TCyBinaryProtocol(TCyFramedTransport(TCyMemoryBuffer(data))), []
    for _ in range(count):
        name, _type, sequence = protocol.read_message_begin()
        arguments = CALCULATOR.add_args()
        protocol.read_struct(arguments)
        protocol.read_message_end()
        found.append((name, sequence, arguments.left, arguments.right))
    return found


def fastparquet_dicts(structs: list[bytes]) -> Iterator[dict]:
    """Compact structs, one by one."""
    return map(from_buffer, structs)


def fastparquet_run(structs: bytes, count: int) -> Iterator[dict]:
    """Compact structs that lie one after another, and so take one reader."""
    return map(from_buffer, repeat(NumpyIO(structs), count))


def cleaned(value: Any) -> Any:
    """What fastparquet reads, without its notes on types; strings in lists as bytes; no doubles: it reads 1 byte."""
    if isinstance(value, dict):
        return {id: cleaned(one) for id, one in value.items() if isinstance(id, int)}
    if isinstance(value, list):
        return [cleaned(one) for one in value]
    return None if isinstance(value, float) else value.encode() if isinstance(value, str) else value


class Inflate:
    """zlib's inflate, one state for all streams. data: where they lie. size: bytes that they are of together."""

    def __init__(self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, size: int):
        self.arrays = data, starts.astype(np.int64), sizes.astype(np.int64)
        self.out = np.empty(size, np.uint8)
        self.call = built("inflate.c", "-lz").inflate_all
        self.call.restype = ctypes.c_int64

    def __call__(self) -> np.ndarray:
        """What the streams are of. Raises ValueError where that is not as many bytes as was said."""
        data, starts, sizes = self.arrays
        if self.call(_at(data), _at(starts), _at(sizes), ctypes.c_int64(len(starts)),
                     _at(self.out), ctypes.c_int64(len(self.out))) != len(self.out):
            raise ValueError("the streams are of another size")
        return self.out


class TheaderCpp:
    """Apache's C++ library. Raises OSError or subprocess.CalledProcessError where it cannot be compiled against."""

    def __init__(self) -> None:
        library = built("theader.cpp", "-lthriftz", "-lthrift")
        self.call, library.version.restype = library.begins, ctypes.c_char_p
        self.call.restype = ctypes.c_int64
        self.version = library.version().decode()

    def begins(self, data: np.ndarray, count: int) -> int:
        """The sum of all sequence ids, name lengths, and lengths of the headers' keys and values.

        Raises ValueError where the library does not read these frames.
        """
        total = self.call(_at(data), ctypes.c_uint32(len(data)), ctypes.c_int64(count))
        if total < 0:
            raise ValueError("Apache's C++ library does not read the frames")
        return total


def built(name: str, *libraries: str) -> Any:
    """The library compiled from a source in this directory."""
    source = HERE / name
    command = ["g++" if source.suffix == ".cpp" else "gcc", "-O2", "-shared", "-fPIC", "-Wl,--no-undefined",
               str(source), *libraries]

    def make(target: Path) -> None:
        subprocess.run([*command, "-o", target / "peer.so"], check=True, capture_output=True)

    return ctypes.CDLL(str(kept(source.stem, source.read_bytes() + repr(command).encode(), make) / "peer.so"))


def _at(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
