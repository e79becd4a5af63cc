"""Thrift bytes for hypothesis: good frames of every kind and dialect, and damage to them.

    varint(), put()                     numbers and values of both protocols: a value is (type, what it is)
    message()                           a message of either protocol, in any of its versions
    header(), big(), double(), framed(), http(), chunked(), ttheader()      one frame, field by field
    frames(), streams(), tails()        bytes of one good frame; of some in a row; what may follow the last whole one
    mutations(raw)                      bytes near `raw`
    odd_streams()                       frames that are sound, around anything
    written()                           what an encoder is given, and how it reads
    GOLDEN                              small good streams, one of each kind
"""
import struct
import zlib

import cramjam
from strategies import shared as st

from reference.thrift_payload import (
    BOOL, BYTE, DOUBLE, FLOAT, I16, I32, I64, LIST, MAP, SET, STRING, STRUCT, U64, UUID)

COMPACT_TYPE = {BYTE: 3, I16: 4, I32: 5, I64: 6, DOUBLE: 7, STRING: 8, LIST: 9, SET: 10, MAP: 11, STRUCT: 12, UUID: 13,
                FLOAT: 13}
BITS = {BYTE: 8, I16: 16, I32: 32, I64: 64, U64: 64}
BINARY, COMPACT = 0, 2


def varint(number, size=1):
    """In at least `size` bytes: longer than it has to be if that is more."""
    out = bytearray()
    while number > 0x7F or len(out) + 1 < size:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def zigzag(number):
    return varint(number << 1 if number >= 0 else -2 * number - 1)


def sized(string):
    return varint(len(string)) + string


# ------------------------------------------------------------------------------------------- values

def put(kind, value, version):
    """A value; version: of the compact protocol, 0 for the binary one."""
    if kind == STRUCT:
        return put_struct(value, version)
    if kind == BOOL:
        return bytes([value if not version else 2 - value])
    if kind == BYTE or kind in BITS and not version:
        return (value % (1 << BITS[kind])).to_bytes(BITS[kind] // 8, "big")
    if kind in BITS:
        return zigzag(value)
    if kind in (DOUBLE, FLOAT):
        return struct.pack(("<" if version == 1 and kind == DOUBLE else ">") + "fd"[kind == DOUBLE], value)
    if kind == UUID:
        return value
    if kind == STRING:
        return (sized(value) if version else struct.pack(">i", len(value)) + value)
    if kind == MAP:
        key, element, pairs = value
        inside = b"".join(put(key, one, version) + put(element, other, version) for one, other in pairs)
        if version:
            types = bytes([nibble(key) << 4 | nibble(element)]) if pairs else b""
            return varint(len(pairs)) + types + inside
        return struct.pack(">BBi", key, element, len(pairs)) + inside
    element, values = value
    inside = b"".join(put(element, one, version) for one in values)
    if not version:
        return struct.pack(">Bi", element, len(values)) + inside
    if len(values) < 15:
        return bytes([len(values) << 4 | nibble(element)]) + inside
    return bytes([0xF0 | nibble(element)]) + varint(len(values)) + inside


def nibble(kind, value=True):
    return 2 - value if kind == BOOL else COMPACT_TYPE[kind]


def put_struct(fields, version):
    """fields: [(id, type, value)]."""
    out, last = b"", 0
    for id, kind, value in fields:
        if not version:
            out += struct.pack(">Bh", kind, id) + put(kind, value, version)
            continue
        delta = id - last
        type = nibble(kind, value is True) if kind == BOOL else nibble(kind)
        out += bytes([delta << 4 | type]) if 0 < delta < 16 else bytes([type]) + zigzag(id)
        out += b"" if kind == BOOL else put(kind, value, version)
        last = id
    return out + b"\0"


def told(fields):
    """(depth, role, id, type, count, number, bytes) of every row that such a struct has in thrift.fields."""
    return [row for id, kind, value in fields for row in told_value(1, 0, id, kind, value)]


def told_value(depth, role, id, kind, value):
    count, inside = 0, []
    if kind == STRUCT:
        inside = [(0, one, type, what) for one, type, what in value]
    elif kind == MAP:
        key, element, pairs = value
        count = len(pairs)
        inside = [one for i, pair in enumerate(pairs) for one in ((2, i, key, pair[0]), (3, i, element, pair[1]))]
    elif kind in (SET, LIST):
        element, values = value
        count, inside = len(values), [(1, i, element, one) for i, one in enumerate(values)]
    number = value if kind not in (STRING, UUID, STRUCT, MAP, SET, LIST) else 0
    rows = [(depth, role, id, kind, count, number, value if kind in (STRING, UUID) else None)]
    return rows + [row for one in inside for row in told_value(depth + 1, *one)]


def message(method=b"add", kind=1, seqid=0, arguments=b"\0", version=0, strict=True):
    """version: of the compact protocol, 0 for the binary one, which may be strict."""
    if version:
        return bytes([0x82, kind << 5 | version]) + varint(seqid % (1 << 32)) + sized(method) + arguments
    name, number = struct.pack(">i", len(method)) + method, struct.pack(">i", seqid)
    if strict:
        return struct.pack(">HBB", 0x8001, 0, kind) + name + number + arguments
    return name + bytes([kind]) + number + arguments


# ------------------------------------------------------------------------------------------- frames

def block(id, *pairs, count=None):
    """Infos of an id."""
    return varint(id) + varint(len(pairs) if count is None else count) + b"".join(
        sized(string) for pair in pairs for string in pair)


def inner(payload, infos=b"", protocol=BINARY, flags=0, seq=0, transforms=b"", count=None, padding=None, words=None,
          mac=b""):
    """A header frame from its magic on. transforms: ids, or bytes as they are to stand; infos: bytes; padding: bytes at
    the end of the header, for none as many as there must be."""
    if not isinstance(transforms, bytes):
        count = len(transforms) if count is None else count
        transforms = b"".join(map(varint, transforms))
    head = (protocol if isinstance(protocol, bytes) else varint(protocol)) + varint(count or 0) + transforms + infos
    head += bytes(-len(head) % 4 if padding is None else padding)
    words = len(head) // 4 if words is None else words
    return struct.pack(">HHIH", 0x0FFF, flags, seq, words) + head + payload + mac


def framed(raw):
    return struct.pack(">I", len(raw)) + raw


def header(payload=b"", infos=b"", **options):
    return framed(inner(payload, infos, **options))


def big(payload=b"", infos=b"", **options):
    raw = inner(payload, infos, **options)
    return b"BIGF" + struct.pack(">Q", len(raw)) + raw


def double(payload=b"", infos=b"", **options):
    return framed(header(payload, infos, **options))


def ttheader(rest=bytes(14)):
    return framed(b"\x10\0" + rest)


def http(body=b"", first=b"POST /rpc HTTP/1.1", fields=(), end=b"\r\n", told=True):
    length = [b"Content-Length: %d" % len(body)] if told else []
    return end.join([first, *fields, *length, b"", b""]) + body


def chunked(*chunks, first=b"POST /rpc HTTP/1.1", fields=(), trailer=b"", extension=b""):
    head = b"\r\n".join([first, *fields, b"Transfer-Encoding: chunked", b"", b""])
    return head + b"".join(b"%x%b\r\n%b\r\n" % (len(one), extension, one) for one in [*chunks, b""] if one) \
        + b"0\r\n" + trailer + b"\r\n"


def transformed(payload, ids):
    """The payload as the transforms leave it, in their order."""
    for id in ids:
        if id in (1, 8, 11):
            payload = zlib.compress(payload)
        elif id == 3:
            payload = bytes(cramjam.snappy.compress_raw(payload))
        elif id in (5, 9, 12):
            payload = bytes(cramjam.zstd.compress(payload))
        elif id in (6, 10, 13):
            payload = varint(len(payload)) + bytes(cramjam.lz4.compress_block(payload, store_size=False))
    return payload


ARGUMENTS = [(1, I32, 7), (2, STRING, b"text"), (-3, BOOL, True), (4, LIST, (BYTE, [1, -1])),
             (20, MAP, (STRING, I64, [(b"k", -2)])), (21, STRUCT, [(1, DOUBLE, 1.5), (2, BOOL, False)])]
KEYS = block(1, (b"Parent", b"shoobar"), (b"", b""))
GOLDEN = {
    "header": header(message(arguments=put_struct(ARGUMENTS, 0)), KEYS, seq=7, flags=1),
    "header compact": header(message(arguments=put_struct(ARGUMENTS, 1), version=1), protocol=COMPACT, padding=4 - 2),
    "persistent first": header(message(version=2), block(2, (b"id", b"1")) + KEYS, protocol=COMPACT),
    "zlib": header(transformed(message(), [1]), transforms=[1]),
    "zlib then zstd": header(transformed(message(version=1), [1, 5]), KEYS, transforms=[1, 5], protocol=COMPACT),
    "snappy, lz4": header(transformed(message(), [3, 0, 6]), transforms=[3, 0, 6]),
    "hmac": header(message(), KEYS, transforms=b"\2\4", count=1, mac=b"1234"),
    "big": big(message(), KEYS), "double": double(message(), KEYS),
    "framed": framed(message(b"S:m", 4)) + framed(message(version=1, seqid=-1)),
    "unframed": message(arguments=put_struct(ARGUMENTS, 0)) + message(arguments=put_struct(ARGUMENTS, 1), version=1),
    "unframed version 2": message(b"", 3, 5, put_struct([(1, FLOAT, 1.5), (2, DOUBLE, -1.5)], 2), version=2),
    "http": http(message(version=1)) + http(first=b"GET / HTTP/1.1", told=False) + http(
        message(b"", 2), b"HTTP/1.1 200 OK", end=b"\n") + http(first=b"HTTP/1.1 204 None", told=False),
    "http in chunks": chunked(message()[:9], message()[9:], extension=b";a=b", trailer=b"Date: x\r\n"),
    "http until the end": http(message(), b"HTTP/1.0 200 OK", told=False),
    "ttheader": ttheader(),
}

# ------------------------------------------------------------------------------------------- good bytes

STRINGS = st.sampled_from((b"", b"a", b"text", b"\xff\xfe", "é".encode())) | st.binary(max_size=10)
SCALARS = {
    BOOL: st.booleans(), STRING: STRINGS, UUID: st.binary(min_size=16, max_size=16),
    DOUBLE: st.floats(allow_nan=False), FLOAT: st.floats(width=32, allow_nan=False)} | {
    kind: st.sampled_from((0, 1, -1)) | st.integers(-1 << bits - 1, (1 << bits - 1) - 1) for kind, bits in BITS.items()}
NUMBERS = st.integers(1, 6) | st.integers(-1 << 15, (1 << 15) - 1)
VERSIONS = st.sampled_from((0, 0, 1, 2))


@st.builds_once
@st.composite
def values(draw, kind, version, deep):
    if kind in SCALARS:
        return draw(SCALARS[kind])
    if kind == STRUCT:
        return draw(structs(version, deep - 1))
    types = st.sampled_from(types_of(version, deep - 1))
    if kind == MAP:
        key, element = draw(types), draw(types)
        pairs = st.tuples(values(key, version, deep - 1), values(element, version, deep - 1))
        return key, element, draw(st.lists(pairs, max_size=3))
    element = draw(types)
    few = st.lists(values(element, version, deep - 1), max_size=4)
    many = st.just([draw(values(element, version, 0))] * 16) if element in SCALARS else few
    return element, draw(st.one_of(few, few, many))


def types_of(version, deep):
    scalars = [kind for kind in SCALARS if kind not in {0: (), 1: (FLOAT, U64), 2: (UUID, U64)}[version]]
    return scalars + ([STRUCT, LIST, MAP, SET] if deep > 0 else [])


@st.builds_once
@st.composite
def structs(draw, version, deep=3):
    return [(draw(NUMBERS), kind, draw(values(kind, version, deep)))
            for kind in draw(st.lists(st.sampled_from(types_of(version, deep)), max_size=4))]


METHODS = st.sampled_from((b"add", b"ping", b"Service:add", b":", b"", b"\xff")) | st.binary(max_size=6)


@st.builds_once
@st.composite
def messages(draw, version, strict=True):
    return message(draw(METHODS), draw(st.integers(1, 4)), draw(SCALARS[I32]),
                   put_struct(draw(structs(version)), version), version, strict)


PAIRS = st.lists(st.tuples(STRINGS, STRINGS), max_size=3)
BLOCKS = st.lists(st.builds(lambda id, pairs: block(id, *pairs), st.sampled_from((1, 1, 2)), PAIRS), max_size=3)
UNKNOWN = st.sampled_from((b"", b"", b"\3\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\0"))
TRANSFORMS = st.lists(st.sampled_from((0, 1, 3, 5, 6, 8, 9, 10, 11, 12, 13)), max_size=3) | st.just([])
U16, U32 = (st.sampled_from((0, 1, (1 << bits) - 1)) | st.integers(0, (1 << bits) - 1) for bits in (16, 32))


@st.builds_once
@st.composite
def header_frames(draw):
    version = draw(VERSIONS)
    payload, ids, mac = draw(messages(version, draw(st.booleans()))), draw(TRANSFORMS), b""
    infos = b"".join(draw(BLOCKS)) + draw(UNKNOWN)
    payload, transforms = transformed(payload, ids), b"".join(map(varint, ids))
    if draw(st.integers(0, 9)) == 0:
        mac = draw(st.binary(max_size=8))
        ids, transforms = [*ids, 2], transforms + b"\2" + bytes([len(mac)])
    room = len(transforms) + len(infos) + 2
    padding = -room % 4 + 4 * draw(st.sampled_from((0, 0, 1, 70)))
    make = draw(st.sampled_from((header, header, header, big, double)))
    return make(payload, infos, protocol=COMPACT if version else BINARY, flags=draw(U16), seq=draw(U32),
                transforms=transforms, count=len(ids), padding=padding, mac=mac)


@st.builds_once
@st.composite
def http_frames(draw):
    body = draw(messages(draw(VERSIONS)))
    fields = draw(st.sampled_from(((), (b"Host: a",), (b"x-y: 1", b"content-type: application/x-thrift"))))
    kind = draw(st.integers(0, 5))
    if kind == 0:
        first = draw(st.sampled_from((b"GET / HTTP/1.1", b"HEAD /x HTTP/1.0", b"HTTP/1.1 304 x", b"HTTP/1.1 100 x")))
        return http(b"", first, fields, told=False)
    first = draw(st.sampled_from((b"POST / HTTP/1.1", b"HTTP/1.1 200 OK", b"PUT /a HTTP/1.1")))
    if kind < 3:
        return http(body, first, fields, draw(st.sampled_from((b"\r\n", b"\n"))))
    at = draw(st.integers(0, len(body)))
    return chunked(body[:at], body[at:], first=first, fields=fields, trailer=draw(st.sampled_from((b"", b"A: b\r\n"))))


@st.builds_once
@st.composite
def plain_frames(draw):
    version = draw(VERSIONS)
    raw = draw(messages(version))
    return framed(raw) if draw(st.booleans()) else raw


@st.builds_once
def frames():
    return st.one_of(header_frames(), header_frames(), plain_frames(), plain_frames(), http_frames(),
                     st.builds(ttheader, st.binary(min_size=2, max_size=20)))


@st.builds_once
def streams(least=0, most=4):
    return st.lists(frames(), min_size=least, max_size=most).map(b"".join)


@st.builds_once
def tails():
    """Nothing, a response that the end of the connection ends, or a frame that was cut."""
    cut = st.tuples(frames(), st.integers(0, 10_000)).map(lambda pair: pair[0][:pair[1] % len(pair[0])])
    return st.just(b"") | cut | cut | st.just(GOLDEN["http until the end"])


# ------------------------------------------------------------------------------------------- damage

RUNS = (b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"\x80\1", b"\x0f\xff", b"\x10\0", b"BIGF", b"HTTP", b"\r\n",
        b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x1f", b"\x80" * 6, b"\x82\x21", b"\x82\x42", b"\x80\1\0\1",
        bytes(8), b"\x7f\xff\xff\xff",
        b"\x80\0\0\0", b"\0\0\0\x0e\x0f\xff", *range(0x0B, 0x10), 0x1B, 0x1C, 0x49, 0xF8, 0xFC)
RUNS = tuple(run if isinstance(run, bytes) else bytes([run]) for run in RUNS)
INSERTED = st.sampled_from(RUNS) | st.binary(min_size=1, max_size=6)


@st.composite
def mutations(draw, raw, steps=3):
    """Bytes near `raw`: bits flipped, runs set, cut out or put in, lengths driven to extremes."""
    for _ in range(draw(st.integers(1, steps))):
        if not raw:
            break
        out, at = bytearray(raw), draw(st.integers(0, len(raw) - 1))
        kind = draw(st.sampled_from(("flip", "run", "run", "insert", "cut", "tail", "length", "word", "frame")))
        if kind == "flip":
            out[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "run":
            run = draw(st.sampled_from(RUNS))
            out[at:at + len(run)] = run
        elif kind == "insert":
            out[at:at] = draw(INSERTED)
        elif kind == "cut":
            del out[at:at + draw(st.integers(1, 8))]
        elif kind == "tail":
            del out[at:]
        elif kind == "frame":
            out[at:at] = draw(frames())
        elif kind == "length" and len(raw) >= 4:
            near = (0, 3, 4, 9, 10, 13, 14, len(raw) - 4, len(raw) - 5, len(raw), 0x3FFFFFFF, 0x40000000, 0xFFFFFFFF)
            struct.pack_into(">I", out, draw(st.sampled_from((0, 4, min(at, len(raw) - 4)))) if len(raw) >= 8 else 0,
                             draw(st.sampled_from(near)) % 2**32)
        elif kind == "word" and len(raw) >= 14:
            struct.pack_into(">H", out, 12, draw(st.sampled_from((0, 1, 2, 3, 16384, 32768, 65535))))
        raw = bytes(out)
    return raw


@st.builds_once
@st.composite
def odd_frames(draw):
    """Header frames with a sound length, and anything inside; messages in all that can carry one, damaged."""
    version = draw(VERSIONS)
    good = draw(messages(version))
    payload = draw(st.just(good) | mutations(good) | st.just(b"") | st.just(good + b"\0"))
    ids = draw(TRANSFORMS)
    packed = transformed(payload, ids)
    packed = draw(st.just(packed) | mutations(packed) if ids else st.just(packed))
    pairs = (b"k", b"v"), (b"", b"\xff")
    infos = draw(st.sampled_from((
        b"", block(1, *pairs), block(2, *pairs) + block(1, *pairs), block(1, *pairs, count=50), block(1, count=1),
        block(1, *pairs, count=1), block(1, count=2**32 - 1), block(1)[:-1] + b"\x80" * 4 + b"\1", b"\1\1\xff\x7f",
        block(7, *pairs), b"\0" + block(1, *pairs), b"\1\1\1k\x7f", b"\1\1\1k", b"\1", b"\x80")))
    call = dict(protocol=draw(st.sampled_from((COMPACT if version else BINARY, BINARY, 1, 3, 255, 256, b"\x80" * 5))))
    call |= draw(st.sampled_from((
        dict(transforms=ids), dict(transforms=ids), dict(transforms=[*ids, 4]), dict(transforms=[7, 65535]),
        dict(transforms=[65537]), dict(transforms=b"", count=9), dict(transforms=b"\2\xff", count=1),
        dict(transforms=b"\2\1\2\1", count=2), dict(transforms=b"\1" * 5, count=5),
        dict(transforms=b"", count=1 << 31))))
    call |= draw(st.sampled_from((dict(), dict(), dict(), dict(padding=0), dict(words=0), dict(words=1),
                                  dict(words=65535), dict(padding=9))))
    make = draw(st.sampled_from((header, header, big, double)))
    sound = make(packed, infos, **call)
    return draw(st.sampled_from((sound, sound, sound, framed(payload), payload, http(payload), chunked(payload),
                                 http(payload, b"HTTP/1.1 200 OK", told=False))))


@st.builds_once
def odd_streams():
    return st.lists(odd_frames() | odd_frames() | frames(), min_size=1, max_size=4).map(b"".join)


@st.builds_once
def damaged_streams():
    return streams(least=1).flatmap(mutations) | odd_streams() | odd_streams().flatmap(mutations)
