"""Kafka requests and responses for hypothesis: whole messages, connections, and damage to them.

    bodies(api, direction, version)   (bytes, values) of one body
    messages(api, direction)          a Message: a whole frame with a body and its values
    connections()                     a Connection: the messages of both directions
    damaged(raw)                      a damaged copy of a stream, mostly with correct frame sizes
    broken_bodies(...)                one frame with a damaged body

The functions of reference/kafka_messages.py write the fields. `values` is {field: value}. The value
of a place is bytes or None, the value of an array a list of `values` or None. Fields that a message
does not have are not among its values.
"""

import struct
from dataclasses import dataclass, field, replace

from tests.reference import kafka_internal
from tests.reference.kafka_messages import API, FLEXIBLE, NEVER, NEWEST
from tests.reference.kafka_protocol import list_formats
from tests.strategies import kafka
from tests.strategies import shared as st

CONTROLLED_SHUTDOWN_0 = (7, 0)  # the API and version whose requests have no client id
UNSUPPORTED_VERSION = 35  # error code
I8 = st.integers(-128, 127)
DIRECTIONS = ("request", "response")
EVERY_BODY = [(api, direction) for api in API for direction in DIRECTIONS]
STORED = [(name, side) for name in kafka_internal.STORED for side in ("key", "value")]
ERROR_CODES = st.sampled_from((0, 0, 0, 3, 6, 35, -1)) | kafka.I16
CLOSED = (4, 7, 16, 20, 35, 42, 47, 60, 92)  # keys of APIs whose bodies are not decoded
OPAQUE = (95, 200, -1, 32767)  # keys of no API
NAMES = st.sampled_from((b"", b"orders", b"a", "größe".encode())) | st.text(max_size=12).map(
    str.encode
)
CLIENT_IDS = st.none() | NAMES
ACKS = st.sampled_from((0, 1, -1))
NUMBERS_8 = st.sampled_from((0, 1)) | I8
NUMBERS_32 = st.sampled_from((0, 1, -1)) | kafka.I32
NUMBERS_64 = st.sampled_from((0, -1)) | kafka.I64
CORRELATION_IDS = st.sampled_from((0, 1, 2**31 - 3)) | kafka.I32
UUIDS = st.just(bytes(16)) | st.binary(min_size=16, max_size=16)
RECORDS = kafka.logs(most=2) | kafka.blobs()


# ---- bodies


class Writer:
    """Draws a value for each field, and writes it.

    Attributes:
        write: the function of the current struct.
        unknown: whether there may be unknown tagged fields.
        out: the bytes of the body.
        values: the values of the current struct.
    """

    def __init__(self, draw, write, version, *, flexible, unknown):
        self.draw = draw
        self.write = write
        self.version = version
        self.flexible = flexible
        self.unknown = unknown
        self.out = bytearray()
        self.values = {}
        self.prefix = ""

    def struct(self):
        values = self.values = {}
        self.write(self, self.version)
        return values

    def length(self, layout, length):
        """Write a length. -1 is null."""
        self.out += encode_uvarint(length + 1) if self.flexible else struct.pack(layout, length)

    def scalar(self, name, layout, numbers):
        number = self.values[self.prefix + name] = self.draw(numbers)
        self.out += struct.pack(layout, number)

    def i8(self, name):
        self.scalar(name, ">b", NUMBERS_8)

    def i16(self, name):
        self.scalar(name, ">h", ACKS if name == "acks" else ERROR_CODES)

    def u16(self, name):
        self.scalar(name, ">H", st.integers(0, 65535))

    def f64(self, name):
        self.scalar(name, ">d", st.floats(allow_nan=False))

    def i32(self, name):
        self.scalar(name, ">i", NUMBERS_32)

    def i64(self, name):
        self.scalar(name, ">q", NUMBERS_64)

    def boolean(self, name):
        self.scalar(name, ">B", st.sampled_from((0, 1)))

    def place(self, name, layout, values, null):
        value = self.values[name] = self.draw(st.one_of(st.none(), values) if null else values)
        self.length(layout, -1 if value is None else len(value))
        self.out += value or b""

    def string(self, name, null=False):
        self.place(name, ">h", NAMES, null)

    def bytes(self, name, null=False):
        self.place(name, ">i", RECORDS, null)

    def uuid(self, name):
        value = self.values[name] = self.draw(UUIDS)
        self.out += value

    def numbers(self, name, layout, numbers, null=False):
        lists = st.lists(numbers, max_size=3)
        values = self.draw(st.one_of(st.none(), lists) if null else lists)
        if values is None:
            self.values[name] = None
            self.length(">i", -1)
            return
        self.values[name] = b"".join(struct.pack(layout, number) for number in values)
        self.length(">i", len(values))
        self.out += self.values[name]

    def i32s(self, name, null=False):
        self.numbers(name, ">i", kafka.I32, null)

    def i64s(self, name):
        self.numbers(name, ">q", kafka.I64)

    def inline(self, name, write):
        self.prefix = name + "_"
        write(self, self.version)
        self.prefix = ""

    def optional(self, write):
        is_null = self.draw(st.booleans())
        self.out += b"\xff" if is_null else b"\1"
        if not is_null:
            write(self, self.version)

    def structs(self, name, null=False):
        count = self.draw(st.sampled_from((-1, 0, 1, 2) if null else (0, 1, 1, 2)))
        self.length(">i", count)
        outer_values = self.values
        outer_write = self.write
        self.write = outer_write.arrays[name]()
        structs = [self.struct() for _ in range(count)]
        self.values = outer_values
        self.write = outer_write
        self.values[name] = None if count < 0 else structs

    def tags(self, known={}):  # noqa: B006 (never changed)
        """Write some known tagged fields, and sometimes unknown ones, in the order of tags."""
        if not self.flexible:
            return
        next_tag = max(known, default=-1) + 1
        unknown = self.draw(st.sampled_from(((), (), (), (100,), (next_tag, 2**32 - 1))))
        tags = [tag for tag in known if self.draw(st.booleans())]
        if self.unknown:
            tags += unknown
        self.out += encode_uvarint(len(tags))
        for tag in tags:
            out = self.out
            self.out = bytearray()
            if tag in known:
                known[tag]()
            else:
                self.out += self.draw(st.binary(max_size=9))
            self.out = out + encode_uvarint(tag) + encode_uvarint(len(self.out)) + self.out


def encode_uvarint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return out + bytes([number])


@st.builds_once
@st.composite
def bodies(draw, api, direction, version, unknown=True):
    """(bytes, values) of one body. unknown: whether there may be unknown tagged fields."""
    return draw(structs(api, direction, version, FLEXIBLE[API[api]], unknown))


@st.builds_once
@st.composite
def structs(draw, api, direction, version, flexible, unknown=True):
    """(bytes, values) of the outermost struct. flexible: the first flexible version."""
    _, write = next(iter(list_formats(api, direction).items()))
    writer = Writer(draw, write, version, flexible=version >= flexible, unknown=unknown)
    values = writer.struct()
    return bytes(writer.out), values


@st.builds_once
@st.composite
def records(draw):
    """(key, value) of a record in an internal topic.

    The value may be null. The key or the value may be damaged, or the value may have an unknown
    version.
    """
    name, _ = draw(st.sampled_from(STORED))
    parts = []
    for side in ("key", "value"):
        versions, flexible = kafka_internal.list_versions(name, side)
        version = draw(st.sampled_from(versions))
        body, _ = draw(structs(name, side, version, flexible))
        parts.append(struct.pack(">h", version) + body)
    kind = draw(st.sampled_from(("good", "good", "tombstone", "key", "value", "strange")))
    if kind in ("key", "value"):
        number = ("key", "value").index(kind)
        parts[number] = draw(changed_bytes(parts[number]))
    elif kind == "strange":
        parts[1] = struct.pack(">h", draw(st.sampled_from((-1, 5, 300)))) + parts[1][2:]
    return parts[0], None if kind == "tombstone" else parts[1]


# ---- frames


@dataclass(frozen=True)
class Message:
    """A whole frame. `values` is None if the body is not decoded."""

    raw: bytes
    api_key: int
    api_version: int
    correlation_id: int
    values: dict | None
    client_id: bytes | None = None
    is_opaque: bool = False


@dataclass
class Connection:
    """The messages that a client sent and received.

    pairs: (number of the request, number of its response or -1), in the order of the requests. Then
        (-1, number) for each response without a request.
    """

    sent: list[Message] = field(default_factory=list)
    received: list[Message] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def up(self):
        return b"".join(message.raw for message in self.sent)

    @property
    def down(self):
        return b"".join(message.raw for message in self.received)


def frame_payload(payload):
    return struct.pack(">i", len(payload)) + payload


@st.builds_once
@st.composite
def tagged_fields(draw):
    """The tagged fields of a header. All of them are unknown."""
    fields = draw(st.sampled_from(((), (), ((0, b""),), ((1, b"ab"), (300, bytes(200))))))
    parts = [encode_uvarint(tag) + encode_uvarint(len(value)) + value for tag, value in fields]
    return bytes(encode_uvarint(len(fields)) + b"".join(parts))


@st.builds_once
@st.composite
def requests(draw, api, version=None, correlation_id=None):
    """A request. api: its name, or the key of an API whose body is not decoded."""
    key = API.get(api, api)
    if version is None:
        version = draw(st.integers(0, NEWEST.get(api, 9)))
    if correlation_id is None:
        correlation_id = draw(kafka.I32)
    body, values = draw_body(draw, api, "request", version)
    has_client_id = (key, version) != CONTROLLED_SHUTDOWN_0
    client_id = draw(CLIENT_IDS) if has_client_id else None
    raw = struct.pack(">hhi", key, version, correlation_id)
    if has_client_id:
        raw += struct.pack(">h", -1 if client_id is None else len(client_id)) + (client_id or b"")
    if version >= FLEXIBLE.get(key, NEVER):
        raw += draw(tagged_fields())
    return Message(frame_payload(raw + body), key, version, correlation_id, values, client_id)


def draw_body(draw, api, direction, version):
    """Draw (bytes, values) of a body. The values are None if the body is not decoded."""
    if api in API:
        return draw(bodies(api, direction, version))
    return draw(st.binary(max_size=20)), None


@st.builds_once
@st.composite
def responses(draw, api, version=None, correlation_id=None):
    """A response. api: its name, or the key of an API whose body is not decoded.

    ApiVersions responses with error 35 are not among them: see `fallbacks`.
    """
    key = API.get(api, api)
    if version is None:
        version = draw(st.integers(0, NEWEST.get(api, 9)))
    if correlation_id is None:
        correlation_id = draw(kafka.I32)
    body, values = draw_body(draw, api, "response", version)
    if api == "ApiVersions" and body[:2] == struct.pack(">h", UNSUPPORTED_VERSION):
        body = bytes(2) + body[2:]
        values = values | dict(error_code=0)
    raw = struct.pack(">i", correlation_id)
    if key != API["ApiVersions"] and version >= FLEXIBLE.get(key, NEVER):
        raw += draw(tagged_fields())
    return Message(frame_payload(raw + body), key, version, correlation_id, values)


def messages(api, direction, version=None):
    return (requests if direction == "request" else responses)(api, version)


@st.composite
def fallbacks(draw, correlation_id):
    """ApiVersions responses with error 35 in version 0.

    A broker sends one if it does not support the version of an ApiVersions request.
    """
    body, values = draw(bodies("ApiVersions", "response", 0))
    values = values | dict(error_code=UNSUPPORTED_VERSION)
    raw = struct.pack(">ih", correlation_id, UNSUPPORTED_VERSION) + body[2:]
    return Message(frame_payload(raw), API["ApiVersions"], 0, correlation_id, values)


@st.builds_once
def tokens():
    """Requests without a known header: a SASL token, or an unknown API."""
    examples = st.sampled_from((b"\0user\0password", b"n,,n=user,r=abcdef"))
    token = examples | st.binary(min_size=8, max_size=20)
    keys = st.sampled_from(OPAQUE).map(lambda key: struct.pack(">h", key))
    payloads = st.tuples(keys, token).map(b"".join) | st.binary(min_size=1, max_size=7)
    return payloads.map(opaque_message)


@st.builds_once
def grants():
    """Responses to a token: any bytes."""
    return st.binary(max_size=12).map(opaque_message)


def opaque_message(payload):
    return Message(frame_payload(payload), -1, -1, 0, None, None, is_opaque=True)


@st.builds_once
@st.composite
def connections(draw, most=6):
    """Connections of three kinds.

    gaps: the correlation ids ascend, and any response may be missing.
    repeat: all requests have one correlation id, and only the last responses may be missing.
    tokens: some requests are SASL tokens, and only the last responses may be missing.

    In the first two kinds there may be responses without a request.
    """
    connection = Connection()
    kind = draw(st.sampled_from(("gaps", "repeat", "tokens")))
    unasked_pairs = []
    first = draw(CORRELATION_IDS)
    closed = draw(st.integers(0, 3 * most))  # there are no responses from this request on
    for number in range(draw(st.integers(0, most))):
        if kind != "tokens" and draw(st.integers(0, 9)) == 0:
            closed_api = draw(st.sampled_from(CLOSED))
            unasked = draw(responses(closed_api, correlation_id=wrap_int32(first - 1000 + number)))
            unasked_pairs.append((-1, len(connection.received)))
            connection.received.append(replace(unasked, api_key=-1, api_version=-1))
        closed_api = draw(st.sampled_from(CLOSED))
        api = draw(st.sampled_from((*API, "Produce", "ApiVersions", closed_api)))
        correlation_id = wrap_int32(first if kind == "repeat" else first + number)
        request = draw(requests(api, correlation_id=correlation_id))
        if kind == "tokens" and draw(st.booleans()):
            request = draw(tokens())
        connection.sent.append(request)
        is_unanswered = request.api_key == API["Produce"] and request.values["acks"] == 0
        if is_unanswered or number >= closed or (kind == "gaps" and draw(st.integers(0, 4)) == 0):
            connection.pairs.append((number, -1))
            continue
        if request.is_opaque:
            answer = grants()
        elif api == "ApiVersions" and draw(st.integers(0, 2)) == 0:
            answer = fallbacks(request.correlation_id)
        else:
            answer = responses(api, request.api_version, request.correlation_id)
        connection.pairs.append((number, len(connection.received)))
        connection.received.append(draw(answer))
    connection.pairs += unasked_pairs
    return connection


def wrap_int32(number):
    """Wrap a number to a signed integer of 32 bits."""
    return (number + 2**31) % 2**32 - 2**31


# ---- damage

RUNS = (
    b"\xff",
    b"\0",
    b"\1",
    b"\x80",
    b"\xff\xfe",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\0\0\5",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x1f",
    b"\x80\x80\x80\x80\0",
    b"\x81\x80\x80\x80\x08",
    b"\xff" * 10,
)
INSERTED = st.sampled_from(RUNS) | st.binary(min_size=1, max_size=5)


@st.composite
def changed_bytes(draw, raw, most=3):
    """Bytes with changed, removed and inserted bytes.

    The new bytes make lengths, counts and varints null, large or too long.
    """
    for _ in range(draw(st.integers(1, most))):
        out = bytearray(raw)
        at = draw(st.integers(0, max(len(raw) - 1, 0)))
        kind = draw(st.sampled_from(("flip", "over", "over", "insert", "delete", "tail", "append")))
        if kind == "flip" and out:
            out[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "over":
            run = draw(st.sampled_from(RUNS))
            out[at : at + len(run)] = run[: len(out) - at]
        elif kind == "insert":
            out[at:at] = draw(INSERTED)
        elif kind == "delete":
            del out[at : at + draw(st.integers(1, 12))]
        elif kind == "tail":
            del out[at:]
        elif kind == "append":
            out += draw(INSERTED)
        raw = bytes(out)
    return raw


@st.composite
def damaged(draw, raw):
    """A stream with damage at any place, or in one frame whose size is correct again."""
    spans, at = [], 0
    while at < len(raw):
        spans.append((at, at + 4 + int.from_bytes(raw[at : at + 4], "big")))
        at = spans[-1][1]
    if not spans or draw(st.integers(0, 3)) == 0:
        return draw(changed_bytes(raw))
    start, end = draw(st.sampled_from(spans))
    return raw[:start] + frame_payload(draw(changed_bytes(raw[start + 4 : end]))) + raw[end:]


@st.builds_once
@st.composite
def broken_bodies(draw, api, direction):
    """One frame with a whole header. Its body may be damaged, or its version unknown."""
    message = draw(messages(api, direction))
    fixed = 12 if direction == "request" else 8  # bytes of the header's fields of fixed size
    raw = message.raw
    if direction == "request" and draw(st.integers(0, 9)) == 0:
        version = draw(st.sampled_from((-1, NEWEST[api] + 1, 300, 32767)))
        raw = raw[:6] + struct.pack(">h", version) + raw[8:]
    damaged_raw = frame_payload(raw[4:fixed] + draw(changed_bytes(raw[fixed:])))
    return Message(
        damaged_raw, message.api_key, message.api_version, message.correlation_id, values=None
    )


# ---- for the laws


def joined_messages(messages):
    return st.lists(messages.map(lambda message: message.raw), max_size=3).map(b"".join)


@st.builds_once
def request_streams(api):
    """The bytes of whole requests, most of them of one API."""
    others = st.sampled_from((*API, *CLOSED)).flatmap(requests)
    return joined_messages(requests(api) | requests(api) | others | tokens())


@st.builds_once
def response_streams():
    """The bytes of whole responses."""
    return joined_messages(st.sampled_from((*API, *CLOSED)).flatmap(responses))


def cut_messages(messages):
    """The beginnings of messages, without at least their last byte."""
    cuts = st.tuples(messages, st.integers(0, 1000))
    return cuts.map(lambda pair: pair[0].raw[: pair[1] % len(pair[0].raw)])


def broken_streams(streams):
    return streams.flatmap(damaged)


@st.builds_once
def broken_request_streams(api):
    """Requests with damage only in their bodies."""
    messages = st.lists(broken_bodies(api, "request"), min_size=1, max_size=2)
    return messages.map(lambda frames: b"".join(message.raw for message in frames))
