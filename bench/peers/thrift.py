"""Other readers and writers of THeader frames.

They are a Python loop, Apache Thrift in Python and C++, thriftpy2, fastparquet and zlib alone. The
C and C++ code is compiled into libraries that this process loads, so all readers share its memory.
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
from thrift.transport.THeaderTransport import (
    THeaderClientType,
    THeaderSubprotocolID,
    THeaderTransport,
)
from thrift.transport.TTransport import TMemoryBuffer
from thriftpy2.protocol.cybin import TCyBinaryProtocol
from thriftpy2.transport.framed import TCyFramedTransport
from thriftpy2.transport.memory import TCyMemoryBuffer

from bench.peers.programs import make_once

HERE = Path(__file__).parent
CLIENTS = (THeaderClientType.HEADERS,)
COMPACT = THeaderSubprotocolID.COMPACT
CALCULATOR = thriftpy2.load_fp(
    io.StringIO("service Calculator { i64 add(1: i64 left, 2: i64 right) }"), "calculator_thrift"
).Calculator

# Length, magic, flags, sequence number and words of the header.
_fixed = struct.Struct(">IHHIH").unpack_from


def count_fixed_headers(data: bytes) -> int:
    """Read the fixed headers, and return the number of frames."""
    at = 0
    end = len(data)
    count = 0
    while at < end:
        length, magic, flags, sequence, words = _fixed(data, at)
        at += 4 + length
        count += 1
    return count


def list_fixed_headers(data: bytes) -> list[tuple[int, ...]]:
    """Return the fixed headers."""
    at = 0
    end = len(data)
    headers = []
    while at < end:
        fields = _fixed(data, at)
        headers.append(fields)
        at += 4 + fields[0]
    return headers


def read_apache_frames(data: bytes, count: int) -> list[dict[bytes, bytes]]:
    """Return the headers of frames, read by Apache's transport."""
    transport = THeaderTransport(TMemoryBuffer(data), CLIENTS)
    headers = []
    for _ in range(count):
        transport.readFrame(0)
        headers.append(transport.get_headers())
    return headers


def read_apache_messages(data: bytes, count: int) -> list[tuple[str, int, int]]:
    """Return (name, type, sequence id) of messages."""
    protocol = THeaderProtocol(TMemoryBuffer(data), CLIENTS)
    return [protocol.readMessageBegin() for _ in range(count)]


def write_with_apache(
    payloads: list[bytes], sequences: list[int], pairs: list[list[tuple[bytes, bytes]]]
) -> bytes:
    """Write frames around payloads of the compact protocol with Apache's library."""
    out = TMemoryBuffer()
    transport = THeaderTransport(out, CLIENTS, COMPACT)
    for payload, transport.sequence_id, headers in zip(payloads, sequences, pairs):
        for key, value in headers:
            transport.set_header(key, value)
        transport.write(payload)
        transport.flush()
    return out.getvalue()


def read_thriftpy2_calls(data: bytes, count: int) -> list[tuple[str, int, int, int]]:
    """Return (name, sequence id, left, right) of framed binary calls of `add`."""
    protocol = TCyBinaryProtocol(TCyFramedTransport(TCyMemoryBuffer(data)))
    calls = []
    for _ in range(count):
        name, _type, sequence = protocol.read_message_begin()
        arguments = CALCULATOR.add_args()
        protocol.read_struct(arguments)
        protocol.read_message_end()
        calls.append((name, sequence, arguments.left, arguments.right))
    return calls


def read_fastparquet_dicts(structs: list[bytes]) -> Iterator[dict]:
    """Yield compact structs from separate bytes objects."""
    return map(from_buffer, structs)


def read_fastparquet_run(structs: bytes, count: int) -> Iterator[dict]:
    """Yield compact structs from one buffer, with one reader."""
    return map(from_buffer, repeat(NumpyIO(structs), count))


def normalize(value: Any) -> Any:
    """Return a value of fastparquet without its type notes, with strings as bytes.

    Doubles become None, because fastparquet reads only 1 byte of a double.
    """
    if isinstance(value, dict):
        return {id: normalize(field) for id, field in value.items() if isinstance(id, int)}
    if isinstance(value, list):
        return [normalize(element) for element in value]
    if isinstance(value, float):
        return None
    return value.encode() if isinstance(value, str) else value


class Inflate:
    """zlib's inflate with one state for all streams.

    data: the bytes with the streams. size: the decompressed bytes of all streams.
    """

    def __init__(self, data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, size: int):
        self.arrays = data, starts.astype(np.int64), sizes.astype(np.int64)
        self.out = np.empty(size, np.uint8)
        self.call = build_library("inflate.c", "-lz").inflate_all
        self.call.restype = ctypes.c_int64

    def __call__(self) -> np.ndarray:
        """Return the decompressed bytes. Raises ValueError if their size is not `size`."""
        data, starts, sizes = self.arrays
        if self.call(
            _at(data),
            _at(starts),
            _at(sizes),
            ctypes.c_int64(len(starts)),
            _at(self.out),
            ctypes.c_int64(len(self.out)),
        ) != len(self.out):
            raise ValueError("the streams are of another size")
        return self.out


class TheaderCpp:
    """Apache's C++ library.

    Raises OSError or subprocess.CalledProcessError if the library is not installed.
    """

    def __init__(self) -> None:
        library = build_library("theader.cpp", "-lthriftz", "-lthrift")
        library.version.restype = ctypes.c_char_p
        self.call = library.begins
        self.call.restype = ctypes.c_int64
        self.version = library.version().decode()

    def begins(self, data: np.ndarray, count: int) -> int:
        """Return the sum of all sequence ids and of the lengths of names, header keys and values.

        Raises ValueError if the library does not read these frames.
        """
        total = self.call(_at(data), ctypes.c_uint32(len(data)), ctypes.c_int64(count))
        if total < 0:
            raise ValueError("Apache's C++ library does not read the frames")
        return total


def build_library(name: str, *libraries: str) -> Any:
    """Return the library compiled from a source in this directory."""
    source = HERE / name
    command = [
        "g++" if source.suffix == ".cpp" else "gcc",
        "-O2",
        "-shared",
        "-fPIC",
        "-Wl,--no-undefined",
        str(source),
        *libraries,
    ]

    def make(target: Path) -> None:
        subprocess.run([*command, "-o", target / "peer.so"], check=True, capture_output=True)

    directory = make_once(source.stem, source.read_bytes() + repr(command).encode(), make)
    return ctypes.CDLL(str(directory / "peer.so"))


def _at(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
