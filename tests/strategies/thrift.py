"""Thrift bytes for hypothesis: good and damaged frames of every kind and dialect.

varint(), put()             numbers and values of both protocols
message()                   a message of either protocol, in any of its versions
header(), big(), double(), framed(), http(), chunked(), ttheader()
                            one frame, field by field
frames()                    one good frame
streams()                   several good frames
tails()                     bytes that may follow the last whole frame
mutations(raw)              damaged copies of `raw`
odd_streams()               sound frames with any contents
told()                      the rows that fields give
GOLDEN                      small good streams, one of each kind
"""

import struct
import zlib

import cramjam

from tests.reference.thrift_payload import (
    BOOL,
    BYTE,
    DOUBLE,
    ELEMENT,
    FIELD_ROLE,
    FLOAT,
    I16,
    I32,
    I64,
    KEY,
    LIST,
    MAP,
    SET,
    STRING,
    STRUCT,
    U64,
    UUID,
    VALUE,
)
from tests.strategies import shared as st
from tests.strategies.byte_changes import BYTE_CHANGES, change_bytes

COMPACT_TYPE = {
    BYTE: 3,
    I16: 4,
    I32: 5,
    I64: 6,
    DOUBLE: 7,
    STRING: 8,
    LIST: 9,
    SET: 10,
    MAP: 11,
    STRUCT: 12,
    UUID: 13,
    FLOAT: 13,
}
BITS = {BYTE: 8, I16: 16, I32: 32, I64: 64, U64: 64}
BINARY, COMPACT = 0, 2
HMAC = 2  # a transform


def make_varint(number, size=1):
    """Return a varint of at least `size` bytes."""
    out = bytearray()
    while number > 0x7F or len(out) + 1 < size:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def make_zigzag(number):
    return make_varint(number << 1 if number >= 0 else -2 * number - 1)


def make_string(string):
    return make_varint(len(string)) + string


# ---- values


def make_value(kind, value, version):
    """Return the bytes of a value. version: of the compact protocol, or 0 for the binary one."""
    if kind == STRUCT:
        return make_struct(value, version)
    if kind == BOOL:
        return bytes([value if not version else 2 - value])
    if kind == BYTE or kind in BITS and not version:
        return (value % (1 << BITS[kind])).to_bytes(BITS[kind] // 8, "big")
    if kind in BITS:
        return make_zigzag(value)
    if kind in (DOUBLE, FLOAT):
        order = "<" if version == 1 and kind == DOUBLE else ">"
        return struct.pack(order + "fd"[kind == DOUBLE], value)
    if kind == UUID:
        return value
    if kind == STRING:
        return make_string(value) if version else struct.pack(">i", len(value)) + value
    return make_map(value, version) if kind == MAP else make_list(value, version)


def make_map(value, version):
    """value: (type of the keys, type of the values, pairs)."""
    key, element, pairs = value
    contents = b"".join(
        make_value(key, left, version) + make_value(element, right, version)
        for left, right in pairs
    )
    if version:
        types = bytes([make_nibble(key) << 4 | make_nibble(element)]) if pairs else b""
        return make_varint(len(pairs)) + types + contents
    return struct.pack(">BBi", key, element, len(pairs)) + contents


def make_list(value, version):
    """value: (type of the elements, elements) of a list or set."""
    element, values = value
    contents = b"".join(make_value(element, item, version) for item in values)
    if not version:
        return struct.pack(">Bi", element, len(values)) + contents
    if len(values) < 15:
        return bytes([len(values) << 4 | make_nibble(element)]) + contents
    return bytes([0xF0 | make_nibble(element)]) + make_varint(len(values)) + contents


def make_nibble(kind, value=True):
    """Return a type in the compact protocol. `value` is the value of a boolean field."""
    return 2 - value if kind == BOOL else COMPACT_TYPE[kind]


def make_struct(fields, version):
    """Return the bytes of a struct. fields: [(id, type, value)]."""
    out, last = b"", 0
    for field_id, kind, value in fields:
        if not version:
            out += struct.pack(">Bh", kind, field_id) + make_value(kind, value, version)
            continue
        delta = field_id - last
        type = make_nibble(kind, value is True) if kind == BOOL else make_nibble(kind)
        if 0 < delta < 16:
            out += bytes([delta << 4 | type])
        else:
            out += bytes([type]) + make_zigzag(field_id)
        out += b"" if kind == BOOL else make_value(kind, value, version)
        last = field_id
    return out + b"\0"


def list_field_rows(fields):
    """Return the rows that the fields of a struct have in thrift.fields.

    A row is (depth, role, id, type, count, number, bytes).
    """
    rows = []
    for field_id, kind, value in fields:
        rows += list_value_rows(1, FIELD_ROLE, field_id, kind, value)
    return rows


def list_value_rows(depth, role, value_id, kind, value):
    """Return the row of a value, and the rows of the values in it."""
    count = 0
    contents = []  # (role, id, type, value)
    if kind == STRUCT:
        contents = [(FIELD_ROLE, *field) for field in value]
    elif kind == MAP:
        key, element, pairs = value
        count = len(pairs)
        for i, (left, right) in enumerate(pairs):
            contents += [(KEY, i, key, left), (VALUE, i, element, right)]
    elif kind in (SET, LIST):
        element, values = value
        count = len(values)
        contents = [(ELEMENT, i, element, item) for i, item in enumerate(values)]
    number = value if kind not in (STRING, UUID, STRUCT, MAP, SET, LIST) else 0
    raw = value if kind in (STRING, UUID) else None
    rows = [(depth, role, value_id, kind, count, number, raw)]
    for inner in contents:
        rows += list_value_rows(depth + 1, *inner)
    return rows


def make_message(method=b"add", kind=1, seqid=0, arguments=b"\0", version=0, strict=True):
    """Return a message.

    version: of the compact protocol, or 0 for the binary one.
    strict: whether a binary message has its version.
    """
    if version:
        head = bytes([0x82, kind << 5 | version]) + make_varint(seqid % (1 << 32))
        return head + make_string(method) + arguments
    name = struct.pack(">i", len(method)) + method
    number = struct.pack(">i", seqid)
    if strict:
        return struct.pack(">HBB", 0x8001, 0, kind) + name + number + arguments
    return name + bytes([kind]) + number + arguments


# ---- frames


def make_block(id, *pairs, count=None):
    """Return the infos of an id. count: their number, if it is not the true one."""
    strings = b"".join(make_string(string) for pair in pairs for string in pair)
    return make_varint(id) + make_varint(len(pairs) if count is None else count) + strings


def make_inner_frame(
    payload,
    infos=b"",
    protocol=BINARY,
    flags=0,
    seq=0,
    transforms=b"",
    count=None,
    padding=None,
    words=None,
    mac=b"",
):
    """Return a header frame from its magic on.

    infos: the bytes of the infos.
    transforms: ids, or their bytes.
    count: number of the transforms, if it is not the true one.
    padding: number of zeros at the end of the header. None: as many as it needs.
    words: size of the header in words of four bytes, if it is not the true one.
    """
    if not isinstance(transforms, bytes):
        count = len(transforms) if count is None else count
        transforms = b"".join(map(make_varint, transforms))
    head = protocol if isinstance(protocol, bytes) else make_varint(protocol)
    head += make_varint(count or 0) + transforms + infos
    head += bytes(-len(head) % 4 if padding is None else padding)
    words = len(head) // 4 if words is None else words
    return struct.pack(">HHIH", 0x0FFF, flags, seq, words) + head + payload + mac


def make_framed(raw):
    return struct.pack(">I", len(raw)) + raw


def make_header_frame(payload=b"", infos=b"", **options):
    return make_framed(make_inner_frame(payload, infos, **options))


def make_big_frame(payload=b"", infos=b"", **options):
    raw = make_inner_frame(payload, infos, **options)
    return b"BIGF" + struct.pack(">Q", len(raw)) + raw


def make_double_frame(payload=b"", infos=b"", **options):
    return make_framed(make_header_frame(payload, infos, **options))


def make_ttheader(rest=bytes(14)):
    return make_framed(b"\x10\0" + rest)


def make_http(body=b"", first=b"POST /rpc HTTP/1.1", fields=(), end=b"\r\n", told=True):
    """Return an HTTP message. told: whether it has a Content-Length."""
    length = [b"Content-Length: %d" % len(body)] if told else []
    return end.join([first, *fields, *length, b"", b""]) + body


def make_chunked(*chunks, first=b"POST /rpc HTTP/1.1", fields=(), trailer=b"", extension=b""):
    """Return an HTTP message with chunks. Empty chunks are left out, as they would end the body."""
    head = b"\r\n".join([first, *fields, b"Transfer-Encoding: chunked", b"", b""])
    body = b"".join(b"%x%b\r\n%b\r\n" % (len(data), extension, data) for data in chunks if data)
    return head + body + b"0\r\n" + trailer + b"\r\n"


def apply_transforms(payload, ids):
    """Return the payload after the transforms, which are applied in their order."""
    for transform in ids:
        if transform in (1, 8, 11):
            payload = zlib.compress(payload)
        elif transform == 3:
            payload = bytes(cramjam.snappy.compress_raw(payload))
        elif transform in (5, 9, 12):
            payload = bytes(cramjam.zstd.compress(payload))
        elif transform in (6, 10, 13):
            block = bytes(cramjam.lz4.compress_block(payload, store_size=False))
            payload = make_varint(len(payload)) + block
    return payload


ARGUMENTS = [
    (1, I32, 7),
    (2, STRING, b"text"),
    (-3, BOOL, True),
    (4, LIST, (BYTE, [1, -1])),
    (20, MAP, (STRING, I64, [(b"k", -2)])),
    (21, STRUCT, [(1, DOUBLE, 1.5), (2, BOOL, False)]),
]
KEYS = make_block(1, (b"Parent", b"shoobar"), (b"", b""))
GOLDEN = {
    "header": make_header_frame(
        make_message(arguments=make_struct(ARGUMENTS, 0)), KEYS, seq=7, flags=1
    ),
    "header compact": make_header_frame(
        make_message(arguments=make_struct(ARGUMENTS, 1), version=1),
        protocol=COMPACT,
        padding=4 - 2,
    ),
    "persistent first": make_header_frame(
        make_message(version=2), make_block(2, (b"id", b"1")) + KEYS, protocol=COMPACT
    ),
    "zlib": make_header_frame(apply_transforms(make_message(), [1]), transforms=[1]),
    "zlib then zstd": make_header_frame(
        apply_transforms(make_message(version=1), [1, 5]), KEYS, transforms=[1, 5], protocol=COMPACT
    ),
    "snappy, lz4": make_header_frame(
        apply_transforms(make_message(), [3, 0, 6]), transforms=[3, 0, 6]
    ),
    "hmac": make_header_frame(make_message(), KEYS, transforms=b"\2\4", count=1, mac=b"1234"),
    "big": make_big_frame(make_message(), KEYS),
    "double": make_double_frame(make_message(), KEYS),
    "framed": make_framed(make_message(b"S:m", 4)) + make_framed(make_message(version=1, seqid=-1)),
    "unframed": make_message(arguments=make_struct(ARGUMENTS, 0))
    + make_message(arguments=make_struct(ARGUMENTS, 1), version=1),
    "unframed version 2": make_message(
        b"", 3, 5, make_struct([(1, FLOAT, 1.5), (2, DOUBLE, -1.5)], 2), version=2
    ),
    "http": make_http(make_message(version=1))
    + make_http(first=b"GET / HTTP/1.1", told=False)
    + make_http(make_message(b"", 2), b"HTTP/1.1 200 OK", end=b"\n")
    + make_http(first=b"HTTP/1.1 204 None", told=False),
    "http in chunks": make_chunked(
        make_message()[:9], make_message()[9:], extension=b";a=b", trailer=b"Date: x\r\n"
    ),
    "http until the end": make_http(make_message(), b"HTTP/1.0 200 OK", told=False),
    "ttheader": make_ttheader(),
}

# ---- good bytes

STRINGS = st.sampled_from((b"", b"a", b"text", b"\xff\xfe", "é".encode())) | st.binary(max_size=10)
SCALARS = {
    BOOL: st.booleans(),
    STRING: STRINGS,
    UUID: st.binary(min_size=16, max_size=16),
    DOUBLE: st.floats(allow_nan=False),
    FLOAT: st.floats(width=32, allow_nan=False),
} | {
    kind: st.sampled_from((0, 1, -1)) | st.integers(-1 << bits - 1, (1 << bits - 1) - 1)
    for kind, bits in BITS.items()
}
NUMBERS = st.integers(1, 6) | st.integers(-1 << 15, (1 << 15) - 1)
VERSIONS = st.sampled_from((0, 0, 1, 2))


@st.builds_once
@st.composite
def values(draw, kind, version, deep):
    if kind in SCALARS:
        return draw(SCALARS[kind])
    if kind == STRUCT:
        return draw(structs(version, deep - 1))
    types = st.sampled_from(list_types(version, deep - 1))
    if kind == MAP:
        key, element = draw(types), draw(types)
        pairs = st.tuples(values(key, version, deep - 1), values(element, version, deep - 1))
        return key, element, draw(st.lists(pairs, max_size=3))
    element = draw(types)
    few = st.lists(values(element, version, deep - 1), max_size=4)
    many = st.just([draw(values(element, version, 0))] * 16) if element in SCALARS else few
    return element, draw(st.one_of(few, few, many))


def list_types(version, deep):
    """Return the types of a protocol, without structs and containers if `deep` is 0."""
    missing = {0: (), 1: (FLOAT, U64), 2: (UUID, U64)}[version]
    scalars = [kind for kind in SCALARS if kind not in missing]
    return scalars + ([STRUCT, LIST, MAP, SET] if deep > 0 else [])


@st.builds_once
@st.composite
def structs(draw, version, deep=3):
    kinds = draw(st.lists(st.sampled_from(list_types(version, deep)), max_size=4))
    return [(draw(NUMBERS), kind, draw(values(kind, version, deep))) for kind in kinds]


METHODS = st.sampled_from((b"add", b"ping", b"Service:add", b":", b"", b"\xff")) | st.binary(
    max_size=6
)


@st.builds_once
@st.composite
def messages(draw, version, strict=True):
    return make_message(
        draw(METHODS),
        draw(st.integers(1, 4)),
        draw(SCALARS[I32]),
        make_struct(draw(structs(version)), version),
        version,
        strict,
    )


PAIRS = st.lists(st.tuples(STRINGS, STRINGS), max_size=3)
BLOCKS = st.lists(
    st.builds(lambda id, pairs: make_block(id, *pairs), st.sampled_from((1, 1, 2)), PAIRS),
    max_size=3,
)
UNKNOWN = st.sampled_from((b"", b"", b"\3\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\0"))
TRANSFORMS = st.lists(st.sampled_from((0, 1, 3, 5, 6, 8, 9, 10, 11, 12, 13)), max_size=3) | st.just(
    []
)
U16, U32 = (
    st.sampled_from((0, 1, (1 << bits) - 1)) | st.integers(0, (1 << bits) - 1) for bits in (16, 32)
)


@st.builds_once
@st.composite
def header_frames(draw):
    version = draw(VERSIONS)
    strict = draw(st.booleans())
    plain = draw(messages(version, strict))
    ids = draw(TRANSFORMS)
    infos = b"".join(draw(BLOCKS)) + draw(UNKNOWN)
    payload = apply_transforms(plain, ids)
    transforms = b"".join(map(make_varint, ids))
    mac = b""
    if draw(st.integers(0, 9)) == 0:
        mac = draw(st.binary(max_size=8))
        ids = [*ids, HMAC]
        transforms += bytes([HMAC, len(mac)])
    header_size = len(transforms) + len(infos) + 2
    padding = -header_size % 4 + 4 * draw(st.sampled_from((0, 0, 1, 70)))
    make = draw(
        st.sampled_from(
            (
                make_header_frame,
                make_header_frame,
                make_header_frame,
                make_big_frame,
                make_double_frame,
            )
        )
    )
    return make(
        payload,
        infos,
        protocol=COMPACT if version else BINARY,
        flags=draw(U16),
        seq=draw(U32),
        transforms=transforms,
        count=len(ids),
        padding=padding,
        mac=mac,
    )


@st.builds_once
@st.composite
def http_frames(draw):
    body = draw(messages(draw(VERSIONS)))
    two_fields = (b"x-y: 1", b"content-type: application/x-thrift")
    fields = draw(st.sampled_from(((), (b"Host: a",), two_fields)))
    kind = draw(st.integers(0, 5))
    if kind == 0:
        bodiless = (b"GET / HTTP/1.1", b"HEAD /x HTTP/1.0", b"HTTP/1.1 304 x", b"HTTP/1.1 100 x")
        first = draw(st.sampled_from(bodiless))
        return make_http(b"", first, fields, told=False)
    first = draw(st.sampled_from((b"POST / HTTP/1.1", b"HTTP/1.1 200 OK", b"PUT /a HTTP/1.1")))
    if kind < 3:
        return make_http(body, first, fields, draw(st.sampled_from((b"\r\n", b"\n"))))
    at = draw(st.integers(0, len(body)))
    trailer = draw(st.sampled_from((b"", b"A: b\r\n")))
    return make_chunked(body[:at], body[at:], first=first, fields=fields, trailer=trailer)


@st.builds_once
@st.composite
def plain_frames(draw):
    version = draw(VERSIONS)
    raw = draw(messages(version))
    return make_framed(raw) if draw(st.booleans()) else raw


@st.builds_once
def frames():
    return st.one_of(
        header_frames(),
        header_frames(),
        plain_frames(),
        plain_frames(),
        http_frames(),
        st.builds(make_ttheader, st.binary(min_size=2, max_size=20)),
    )


@st.builds_once
def streams(least=0, most=4):
    return st.lists(frames(), min_size=least, max_size=most).map(b"".join)


@st.builds_once
def tails():
    """No bytes, a response that ends with the connection, or a cut frame."""
    cuts = st.tuples(frames(), st.integers(0, 10_000))
    cut = cuts.map(lambda pair: pair[0][: pair[1] % len(pair[0])])
    return st.just(b"") | cut | cut | st.just(GOLDEN["http until the end"])


# ---- damage

RUNS = (
    b"\0",
    b"\1",
    b"\2",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\x80\1",
    b"\x0f\xff",
    b"\x10\0",
    b"BIGF",
    b"HTTP",
    b"\r\n",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x1f",
    b"\x80" * 6,
    b"\x82\x21",
    b"\x82\x42",
    b"\x80\1\0\1",
    bytes(8),
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\0\0\x0e\x0f\xff",
    *range(0x0B, 0x10),
    0x1B,
    0x1C,
    0x49,
    0xF8,
    0xFC,
)
RUNS = tuple(run if isinstance(run, bytes) else bytes([run]) for run in RUNS)
DAMAGES = ("flip", "run", "run", "insert", "cut", "tail", "length", "word", "frame")
INSERTED = st.sampled_from(RUNS) | st.binary(min_size=1, max_size=6)


@st.composite
def mutations(draw, raw, steps=3):
    """Copies of `raw` with flipped bits, changed, removed or inserted bytes, extreme lengths."""
    for _ in range(draw(st.integers(1, steps))):
        if not raw:
            break
        out = bytearray(raw)
        at = draw(st.integers(0, len(raw) - 1))
        kind = draw(st.sampled_from(DAMAGES))
        if kind in BYTE_CHANGES:
            change_bytes(draw, out, at, kind, inserted=INSERTED, longest=8)
        elif kind == "run":
            run = draw(st.sampled_from(RUNS))
            out[at : at + len(run)] = run
        elif kind == "frame":
            out[at:at] = draw(frames())
        elif kind == "length" and len(raw) >= 4:
            near = (len(raw) - 4, len(raw) - 5, len(raw))
            lengths = (0, 3, 4, 9, 10, 13, 14, *near, 0x3FFFFFFF, 0x40000000, 0xFFFFFFFF)
            position = 0
            if len(raw) >= 8:
                position = draw(st.sampled_from((0, 4, min(at, len(raw) - 4))))
            struct.pack_into(">I", out, position, draw(st.sampled_from(lengths)) % 2**32)
        elif kind == "word" and len(raw) >= 14:
            words = draw(st.sampled_from((0, 1, 2, 3, 16384, 32768, 65535)))
            struct.pack_into(">H", out, 12, words)
        raw = bytes(out)
    return raw


ODD_PAIRS = (b"k", b"v"), (b"", b"\xff")
ODD_INFOS = (
    b"",
    make_block(1, *ODD_PAIRS),
    make_block(2, *ODD_PAIRS) + make_block(1, *ODD_PAIRS),
    make_block(1, *ODD_PAIRS, count=50),
    make_block(1, count=1),
    make_block(1, *ODD_PAIRS, count=1),
    make_block(1, count=2**32 - 1),
    make_block(1)[:-1] + b"\x80" * 4 + b"\1",
    b"\1\1\xff\x7f",
    make_block(7, *ODD_PAIRS),
    b"\0" + make_block(1, *ODD_PAIRS),
    b"\1\1\1k\x7f",
    b"\1\1\1k",
    b"\1",
    b"\x80",
)
ODD_PROTOCOLS = (BINARY, 1, 3, 255, 256, b"\x80" * 5)
ODD_TRANSFORMS = (
    dict(transforms=[7, 65535]),
    dict(transforms=[65537]),
    dict(transforms=b"", count=9),
    dict(transforms=b"\2\xff", count=1),
    dict(transforms=b"\2\1\2\1", count=2),
    dict(transforms=b"\1" * 5, count=5),
    dict(transforms=b"", count=1 << 31),
)
ODD_SIZES = (
    dict(),
    dict(),
    dict(),
    dict(padding=0),
    dict(words=0),
    dict(words=1),
    dict(words=65535),
    dict(padding=9),
)


@st.builds_once
@st.composite
def odd_frames(draw):
    """Header frames with a correct length and any contents, and damaged messages in any frame."""
    version = draw(VERSIONS)
    good = draw(messages(version))
    payload = draw(st.just(good) | mutations(good) | st.just(b"") | st.just(good + b"\0"))
    ids = draw(TRANSFORMS)
    packed = apply_transforms(payload, ids)
    packed = draw(st.just(packed) | mutations(packed) if ids else st.just(packed))
    infos = draw(st.sampled_from(ODD_INFOS))
    protocol = COMPACT if version else BINARY
    call = dict(protocol=draw(st.sampled_from((protocol, *ODD_PROTOCOLS))))
    transforms = (
        dict(transforms=ids),
        dict(transforms=ids),
        dict(transforms=[*ids, 4]),
        *ODD_TRANSFORMS,
    )
    call |= draw(st.sampled_from(transforms))
    call |= draw(st.sampled_from(ODD_SIZES))
    make = draw(
        st.sampled_from((make_header_frame, make_header_frame, make_big_frame, make_double_frame))
    )
    with_header = make(packed, infos, **call)
    frames = (
        with_header,
        with_header,
        with_header,
        make_framed(payload),
        payload,
        make_http(payload),
        make_chunked(payload),
        make_http(payload, b"HTTP/1.1 200 OK", told=False),
    )
    return draw(st.sampled_from(frames))


@st.builds_once
def odd_streams():
    return st.lists(odd_frames() | odd_frames() | frames(), min_size=1, max_size=4).map(b"".join)


@st.builds_once
def damaged_streams():
    return streams(least=1).flatmap(mutations) | odd_streams() | odd_streams().flatmap(mutations)
