"""Bytes of Thrift, put together by hand: messages of both protocols, what wraps them, captures with all of it."""
import struct
import zlib

from wirescan.thrift.kind import InfoKind, MessageType, Protocol, Transform


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def text(data):
    return varint(len(data)) + data


def block(kind, pairs):
    """An info block, of no bytes where there are no pairs."""
    return varint(kind) + varint(len(pairs)) + b"".join(map(text, sum(pairs, ()))) if pairs else b""


def frame(payload, protocol=Protocol.BINARY, *, seq=0, flags=0, transforms=(), infos=(), persistent=(), big=False):
    """A header frame. A payload under transforms other than zlib has to be given as it is on the wire."""
    for transform in transforms:
        payload = zlib.compress(payload) if transform == Transform.ZLIB else payload
    header = b"".join(map(varint, (protocol, len(transforms), *transforms)))
    header += block(InfoKind.PKEYVALUE, persistent) + block(InfoKind.KEYVALUE, infos)
    header += bytes(-len(header) % 4)
    inside = struct.pack(">HHIH", 0x0FFF, flags, seq, len(header) // 4) + header + payload
    return b"BIGF" + struct.pack(">Q", len(inside)) + inside if big else framed(inside)


def framed(data):
    return struct.pack(">I", len(data)) + data


def http(body):
    return b"POST /calc HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def chunked(*parts):
    return b"POST /calc HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(
        b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))


def binary(method, kind, seqid, arguments=b"\0"):
    """A message of the binary protocol."""
    return struct.pack(">HBBi", 0x8001, 0, kind, len(method)) + method + struct.pack(">i", seqid) + arguments


def compact(method, kind, seqid, arguments=b"\0", version=1):
    """A message of the compact protocol."""
    return bytes([0x82, kind << 5 | version]) + varint(seqid) + text(method) + arguments


def binary_struct(number, name):
    """Fields 1 i32, 2 string, 3 list<double>, 4 map<string, bool> and 5 struct {1: i64}, in the binary protocol."""
    return (struct.pack(">Bhi", 8, 1, number) + struct.pack(">Bhi", 11, 2, len(name)) + name
            + struct.pack(">BhBi", 15, 3, 4, number % 3) + struct.pack(">d", number / 2) * (number % 3)
            + struct.pack(">BhBBii", 13, 4, 11, 2, 1, len(name)) + name + b"\1"
            + struct.pack(">BhBhq", 12, 5, 10, 1, -number) + b"\0\0")


def compact_struct(number, name):
    """The same in the compact protocol, for numbers that are not negative."""
    return (b"\x15" + varint(2 * number) + b"\x18" + text(name)
            + bytes([0x19, number % 3 << 4 | 7]) + struct.pack("<d", number / 2) * (number % 3)
            + b"\x1b\1\x81" + text(name) + b"\1" + b"\x1c\x16" + varint(2 * number - 1 if number else 0) + b"\0\0")


KINDS = (MessageType.CALL, MessageType.REPLY, MessageType.EXCEPTION, MessageType.ONEWAY)


def capture(first, count=60):
    """One message after another, in every wrapping in turn."""
    out = []
    for i in range(first, first + count):
        name, kind = b"name %d" % (i % 7), KINDS[i % 4]
        # Servers name the service in calls alone.
        method = b"ping" if i % 3 == 0 else b"Calc:add" if kind in (MessageType.CALL, MessageType.ONEWAY) else b"add"
        one = binary(method, kind, i, binary_struct(i, name))
        other = compact(method, kind, i, compact_struct(i, name), 1 + i % 2 if i % 3 == 0 else 1)
        infos = [(b"key %d" % n, b"x" * (i % 20)) for n in range(i % 4)]
        out.append((
            lambda: frame(other, Protocol.COMPACT, seq=i, infos=infos),
            lambda: frame(one, seq=i, flags=1, infos=infos, persistent=[(b"client", b"%d" % i)]),
            lambda: framed(one),
            lambda: frame(one, seq=i, transforms=[Transform.ZLIB] * (1 + i % 2), infos=infos),
            lambda: framed(other),
            lambda: framed(frame(one, seq=i, infos=infos)),
            lambda: frame(other, Protocol.COMPACT, seq=i, infos=infos, big=True),
            lambda: one,
            lambda: other,
            lambda: http(one),
            lambda: chunked(other[:5], other[5:]),
        )[i % 11]())
    return b"".join(out)
