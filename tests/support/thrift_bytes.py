"""Bytes of Thrift, built by hand: messages of both protocols, frames of every kind, captures."""

import struct
import zlib

from tests.support.varint import make_varint
from wirescan.thrift.constants import InfoKind, MessageType, Protocol, Transform


def make_text(data):
    return make_varint(len(data)) + data


def make_block(kind, pairs):
    """Return an info block. Without pairs it has no bytes."""
    if not pairs:
        return b""
    strings = b"".join(make_text(key) + make_text(value) for key, value in pairs)
    return make_varint(kind) + make_varint(len(pairs)) + strings


def make_frame(
    payload,
    protocol=Protocol.BINARY,
    *,
    seq=0,
    flags=0,
    transforms=(),
    infos=(),
    persistent=(),
    big=False,
):
    """Return a header frame.

    payload: compressed here for the transform ZLIB. Other transforms must already be applied.
    """
    for transform in transforms:
        payload = zlib.compress(payload) if transform == Transform.ZLIB else payload
    header = b"".join(map(make_varint, (protocol, len(transforms), *transforms)))
    header += make_block(InfoKind.PKEYVALUE, persistent) + make_block(InfoKind.KEYVALUE, infos)
    header += bytes(-len(header) % 4)
    inside = struct.pack(">HHIH", 0x0FFF, flags, seq, len(header) // 4) + header + payload
    return b"BIGF" + struct.pack(">Q", len(inside)) + inside if big else make_framed(inside)


def make_framed(data):
    return struct.pack(">I", len(data)) + data


def make_http(body):
    return b"POST /calc HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def make_chunked(*parts):
    return b"POST /calc HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(
        b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b"")
    )


def make_binary_message(method, kind, seqid, arguments=b"\0"):
    """Return a message of the binary protocol."""
    head = struct.pack(">HBBi", 0x8001, 0, kind, len(method))
    return head + method + struct.pack(">i", seqid) + arguments


def make_compact_message(method, kind, seqid, arguments=b"\0", version=1):
    """Return a message of the compact protocol."""
    return bytes([0x82, kind << 5 | version]) + make_varint(seqid) + make_text(method) + arguments


def make_binary_struct(number, name):
    """Return a struct in the binary protocol.

    Its fields are 1 i32, 2 string, 3 list<double>, 4 map<string, bool> and 5 struct {1: i64}.
    """
    return (
        struct.pack(">Bhi", 8, 1, number)
        + struct.pack(">Bhi", 11, 2, len(name))
        + name
        + struct.pack(">BhBi", 15, 3, 4, number % 3)
        + struct.pack(">d", number / 2) * (number % 3)
        + struct.pack(">BhBBii", 13, 4, 11, 2, 1, len(name))
        + name
        + b"\1"
        + struct.pack(">BhBhq", 12, 5, 10, 1, -number)
        + b"\0\0"
    )


def make_compact_struct(number, name):
    """Return the struct of `make_binary_struct` in the compact protocol.

    The number is not negative.
    """
    return (
        b"\x15"
        + make_varint(2 * number)
        + b"\x18"
        + make_text(name)
        + bytes([0x19, number % 3 << 4 | 7])
        + struct.pack("<d", number / 2) * (number % 3)
        + b"\x1b\1\x81"
        + make_text(name)
        + b"\1"
        + b"\x1c\x16"
        + make_varint(2 * number - 1 if number else 0)
        + b"\0\0"
    )


# The types of the messages of a capture, in turn.
KINDS = (MessageType.CALL, MessageType.REPLY, MessageType.EXCEPTION, MessageType.ONEWAY)


def make_capture(first, count=60):
    """Return messages one after another, each in the next kind of frame."""
    return b"".join(make_captured_frame(i) for i in range(first, first + count))


def make_captured_frame(i):
    """Return the frame with number `i` of a capture."""
    name = b"name %d" % (i % 7)
    kind = KINDS[i % 4]
    if i % 3 == 0:
        method = b"ping"
    elif kind in (MessageType.CALL, MessageType.ONEWAY):
        method = b"Calc:add"  # only calls name the service
    else:
        method = b"add"
    version = 1 + i % 2 if i % 3 == 0 else 1
    in_binary = make_binary_message(method, kind, i, make_binary_struct(i, name))
    in_compact = make_compact_message(method, kind, i, make_compact_struct(i, name), version)
    infos = [(b"key %d" % n, b"x" * (i % 20)) for n in range(i % 4)]
    client = [(b"client", b"%d" % i)]
    zlib_transforms = [Transform.ZLIB] * (1 + i % 2)
    frames = (
        make_frame(in_compact, Protocol.COMPACT, seq=i, infos=infos),
        make_frame(in_binary, seq=i, flags=1, infos=infos, persistent=client),
        make_framed(in_binary),
        make_frame(in_binary, seq=i, transforms=zlib_transforms, infos=infos),
        make_framed(in_compact),
        make_framed(make_frame(in_binary, seq=i, infos=infos)),
        make_frame(in_compact, Protocol.COMPACT, seq=i, infos=infos, big=True),
        in_binary,
        in_compact,
        make_http(in_binary),
        make_chunked(in_compact[:5], in_compact[5:]),
    )
    return frames[i % len(frames)]
