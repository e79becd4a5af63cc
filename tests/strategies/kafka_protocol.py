"""Kafka requests and responses for hypothesis: whole messages, connections, and damage to them.

    bodies(api, direction, version)   (bytes, values) of one body; values: {field: number, bytes, None or a list}
    messages(api, direction)          the same in a frame of its own: a Message
    connections()                     what a client sent and received: a Connection
    damaged(raw)                      bytes near a stream: mostly with sizes of frames that are right again
    broken_bodies(...)                one frame whose body is damaged

Fields come from the functions of reference/kafka_messages.py, told to write. A value that is a place is bytes, or None;
fields that a message does not hold are not among its values.
"""
import struct
from dataclasses import dataclass, field, replace

from strategies import shared as st

from reference import kafka_internal
from reference.kafka_messages import API, FLEXIBLE, NEVER, NEWEST
from reference.kafka_protocol import formats
from strategies import kafka

I8, U31 = st.integers(-128, 127), st.integers(0, 2**31 - 1)
DIRECTIONS = ("request", "response")
BODIES = [(api, direction) for api in ("Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions")
          for direction in DIRECTIONS]
EVERY_BODY = [(api, direction) for api in API for direction in DIRECTIONS]
STORED = [(name, side) for name in kafka_internal.STORED for side in ("key", "value")]
ERROR_CODES = st.sampled_from((0, 0, 0, 3, 6, 35, -1)) | kafka.I16
CLOSED = (4, 7, 8, 11, 16, 35, 47, 60, 92)      # keys of APIs whose bodies nobody opens here
OPAQUE = (95, 200, -1, 32767)                   # keys of none
NAMES = st.sampled_from((b"", b"orders", b"a", "größe".encode())) | st.text(max_size=12).map(str.encode)
CLIENT_IDS = st.none() | NAMES
ACKS = st.sampled_from((0, 1, -1))
NUMBERS_8 = st.sampled_from((0, 1)) | I8
NUMBERS_32 = st.sampled_from((0, 1, -1)) | kafka.I32
NUMBERS_64 = st.sampled_from((0, -1)) | kafka.I64
CORRELATION_IDS = st.sampled_from((0, 1, 2**31 - 3)) | kafka.I32
UUIDS = st.just(bytes(16)) | st.binary(min_size=16, max_size=16)
RECORDS = kafka.logs(most=2) | kafka.blobs()


# ----------------------------------------------------------------------------------------------- bodies

class Writer:
    """Draws a value for each field that it is told of, and writes it."""

    def __init__(self, draw, write, version, flexible, unknown):
        self.draw, self.write, self.version, self.flexible, self.unknown = draw, write, version, flexible, unknown
        self.out, self.values, self.prefix = bytearray(), {}, ""

    def struct(self):
        values = self.values = {}
        self.write(self, self.version)
        return values

    def length(self, layout, length):
        """-1 is null; where lengths are not varints, so are others below 0, but nobody writes them."""
        self.out += uvarint(length + 1) if self.flexible else struct.pack(layout, length)

    def scalar(self, name, layout, numbers):
        number = self.values[self.prefix + name] = self.draw(numbers)
        self.out += struct.pack(layout, number)

    def i8(self, name):
        self.scalar(name, ">b", NUMBERS_8)

    def i16(self, name):
        self.scalar(name, ">h", ACKS if name == "acks" else ERROR_CODES)

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

    def numbers(self, name, layout, numbers):
        found = self.draw(st.lists(numbers, max_size=3))
        self.values[name] = b"".join(struct.pack(layout, number) for number in found)
        self.length(">i", len(found))
        self.out += self.values[name]

    def i32s(self, name):
        self.numbers(name, ">i", kafka.I32)

    def i64s(self, name):
        self.numbers(name, ">q", kafka.I64)

    def inline(self, name, write):
        self.prefix = name + "_"
        write(self, self.version)
        self.prefix = ""

    def structs(self, name, null=False):
        count = self.draw(st.sampled_from((-1, 0, 1, 2) if null else (0, 1, 1, 2)))
        self.length(">i", count)
        values, write, found = self.values, self.write, []
        self.write = write.arrays[name]()
        for _ in range(count):
            found.append(self.struct())
        self.values, self.write = values, write
        self.values[name] = None if count < 0 else found

    def tags(self, known={}):  # noqa: B006 (never changed)
        """Some of the fields that are known, and at times one that is not, in the order of their tags."""
        if not self.flexible:
            return
        unknown = self.draw(st.sampled_from(((), (), (), (100,), (max(known, default=-1) + 1, 2**32 - 1))))
        written = [tag for tag in known if self.draw(st.booleans())] + list(unknown) * self.unknown
        self.out += uvarint(len(written))
        for tag in written:
            out, self.out = self.out, bytearray()
            if tag in known:
                known[tag]()
            else:
                self.out += self.draw(st.binary(max_size=9))
            self.out = out + uvarint(tag) + uvarint(len(self.out)) + self.out


def uvarint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return out + bytes([number])


@st.builds_once
@st.composite
def bodies(draw, api, direction, version, unknown=True):
    """(bytes, values) of one body; `unknown`: with tagged fields that nobody knows."""
    return draw(written(api, direction, version, FLEXIBLE[API[api]], unknown))


@st.builds_once
@st.composite
def written(draw, api, direction, version, flexible, unknown=True):
    _, read = next(iter(formats(api, direction).items()))
    writer = Writer(draw, read, version, version >= flexible, unknown)
    values = writer.struct()
    return bytes(writer.out), values


@st.builds_once
@st.composite
def records(draw):
    """(key, value) of a record in an internal topic: its value may be null, either may be
    damaged, or of a version that nobody knows."""
    parts, (name, _) = [], draw(st.sampled_from(STORED))
    for side in ("key", "value"):
        known, flexible = kafka_internal.versions(name, side)
        version = draw(st.sampled_from(known))
        body, _ = draw(written(name, side, version, flexible))
        parts.append(struct.pack(">h", version) + body)
    kind = draw(st.sampled_from(("good", "good", "tombstone", "key", "value", "strange")))
    if kind in ("key", "value"):
        at = kind == "value"
        parts[at] = draw(changed(parts[at]))
    elif kind == "strange":
        parts[1] = struct.pack(">h", draw(st.sampled_from((-1, 5, 300)))) + parts[1][2:]
    return parts[0], None if kind == "tombstone" else parts[1]


# ----------------------------------------------------------------------------------------------- frames

@dataclass(frozen=True)
class Message:
    """A whole frame; of a body that nobody opens, `values` is None."""
    raw: bytes
    api_key: int
    api_version: int
    correlation_id: int
    values: dict | None
    client_id: bytes | None = None
    is_opaque: bool = False


@dataclass
class Connection:
    """What a client sent and received. pairs: (number of the request, number of its response or -1), in the order of
    the requests, and then (-1, number) for each response that answers none."""
    sent: list[Message] = field(default_factory=list)
    received: list[Message] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def up(self):
        return b"".join(message.raw for message in self.sent)

    @property
    def down(self):
        return b"".join(message.raw for message in self.received)


def framed(payload):
    return struct.pack(">i", len(payload)) + payload


@st.builds_once
@st.composite
def tagged_fields(draw):
    """Those of a header: none is known."""
    found = draw(st.sampled_from(((), (), ((0, b""),), ((1, b"ab"), (300, bytes(200))))))
    return bytes(uvarint(len(found)) + b"".join(uvarint(tag) + uvarint(len(value)) + value for tag, value in found))


@st.builds_once
@st.composite
def requests(draw, api, version=None, correlation_id=None):
    """A request of an API, by its name; of an unknown body, by its key."""
    key = API.get(api, api)
    if version is None:
        version = draw(st.integers(0, NEWEST.get(api, 9)))
    if correlation_id is None:
        correlation_id = draw(kafka.I32)
    body, values = draw(bodies(api, "request", version)) if api in API else (draw(st.binary(max_size=20)), None)
    client_id = None if (key, version) == (7, 0) else draw(CLIENT_IDS)
    raw = struct.pack(">hhi", key, version, correlation_id)
    if (key, version) != (7, 0):
        raw += struct.pack(">h", -1 if client_id is None else len(client_id)) + (client_id or b"")
    if version >= FLEXIBLE.get(key, NEVER):
        raw += draw(tagged_fields())
    return Message(framed(raw + body), key, version, correlation_id, values, client_id)


@st.builds_once
@st.composite
def responses(draw, api, version=None, correlation_id=None):
    """A response of an API, by its name or key. An ApiVersions response never says 35 here: see `fallbacks`."""
    key = API.get(api, api)
    if version is None:
        version = draw(st.integers(0, NEWEST.get(api, 9)))
    if correlation_id is None:
        correlation_id = draw(kafka.I32)
    body, values = draw(bodies(api, "response", version)) if api in API else (draw(st.binary(max_size=20)), None)
    if api == "ApiVersions" and body[:2] == b"\0\x23":
        body, values = bytes(2) + body[2:], values | dict(error_code=0)
    raw = struct.pack(">i", correlation_id)
    if key != API["ApiVersions"] and version >= FLEXIBLE.get(key, NEVER):
        raw += draw(tagged_fields())
    return Message(framed(raw + body), key, version, correlation_id, values)


def messages(api, direction, version=None):
    return (requests if direction == "request" else responses)(api, version)


@st.composite
def fallbacks(draw, correlation_id):
    """What a broker that does not know the version of an ApiVersions request answers: error 35, in version 0."""
    body, values = draw(bodies("ApiVersions", "response", 0))
    raw = struct.pack(">ih", correlation_id, 35) + body[2:]
    return Message(framed(raw), API["ApiVersions"], 0, correlation_id, values | dict(error_code=35))


@st.builds_once
def tokens():
    """What no API's header stands in front of: of SASL, or of an API that is yet to come."""
    token = st.sampled_from((b"\0user\0password", b"n,,n=user,r=abcdef")) | st.binary(min_size=8, max_size=20)
    keys = st.sampled_from(OPAQUE).map(lambda key: struct.pack(">h", key))
    return (st.tuples(keys, token).map(b"".join) | st.binary(min_size=1, max_size=7)).map(
        lambda data: Message(framed(data), -1, -1, 0, None, None, True))


@st.builds_once
def grants():
    """What answers a token: any bytes, or none."""
    return st.binary(max_size=12).map(lambda token: Message(framed(token), -1, -1, 0, None, None, True))


@st.builds_once
@st.composite
def connections(draw, most=6):
    """Correlation ids that count up, where any answer may be missing; or that repeat, where only the last ones may; or
    tokens of SASL among them, where nothing is missing and nothing alien comes between."""
    connection, kind, aliens = Connection(), draw(st.sampled_from(("gaps", "repeat", "tokens"))), []
    first = draw(CORRELATION_IDS)
    closed = draw(st.integers(0, 3 * most))         # from this request on there are no answers
    for number in range(draw(st.integers(0, most))):
        if kind != "tokens" and draw(st.integers(0, 9)) == 0:       # nobody asked
            alien = draw(responses(draw(st.sampled_from(CLOSED)), correlation_id=wrapped(first - 1000 + number)))
            aliens.append((-1, len(connection.received)))
            connection.received.append(replace(alien, api_key=-1, api_version=-1))
        api = draw(st.sampled_from((*API, "Produce", "ApiVersions", draw(st.sampled_from(CLOSED)))))
        asked = draw(requests(api, correlation_id=wrapped(first if kind == "repeat" else first + number)))
        if kind == "tokens" and draw(st.booleans()):
            asked = draw(tokens())
        connection.sent.append(asked)
        silent = asked.api_key == 0 and asked.values["acks"] == 0
        if silent or number >= closed or (kind == "gaps" and draw(st.integers(0, 4)) == 0):
            connection.pairs.append((number, -1))
            continue
        if asked.is_opaque:
            answer = grants()
        elif api == "ApiVersions" and draw(st.integers(0, 2)) == 0:
            answer = fallbacks(asked.correlation_id)
        else:
            answer = responses(api, asked.api_version, asked.correlation_id)
        connection.pairs.append((number, len(connection.received)))
        connection.received.append(draw(answer))
    connection.pairs += aliens
    return connection


def wrapped(number):
    """A number as 32 bits hold it."""
    return (number + 2**31) % 2**32 - 2**31


# ----------------------------------------------------------------------------------------------- damage

RUNS = (b"\xff", b"\0", b"\1", b"\x80", b"\xff\xfe", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0",
        b"\0\0\0\5", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\0", b"\x81\x80\x80\x80\x08",
        b"\xff" * 10)
INSERTED = st.sampled_from(RUNS) | st.binary(min_size=1, max_size=5)


@st.composite
def changed(draw, raw, most=3):
    """Bytes cut out, put in, or written over: with lengths, counts and varints that are null, large or too long."""
    for _ in range(draw(st.integers(1, most))):
        out, at = bytearray(raw), draw(st.integers(0, max(len(raw) - 1, 0)))
        kind = draw(st.sampled_from(("flip", "over", "over", "insert", "delete", "tail", "append")))
        if kind == "flip" and out:
            out[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "over":
            run = draw(st.sampled_from(RUNS))
            out[at:at + len(run)] = run[:len(out) - at]
        elif kind == "insert":
            out[at:at] = draw(INSERTED)
        elif kind == "delete":
            del out[at:at + draw(st.integers(1, 12))]
        elif kind == "tail":
            del out[at:]
        elif kind == "append":
            out += draw(INSERTED)
        raw = bytes(out)
    return raw


@st.composite
def damaged(draw, raw):
    """A stream that is damaged anywhere, its tail cut; or in one frame, whose size is made right again."""
    spans, at = [], 0
    while at < len(raw):
        spans.append((at, at + 4 + int.from_bytes(raw[at:at + 4], "big")))
        at = spans[-1][1]
    if not spans or draw(st.integers(0, 3)) == 0:
        return draw(changed(raw))
    start, end = draw(st.sampled_from(spans))
    return raw[:start] + framed(draw(changed(raw[start + 4:end]))) + raw[end:]


@st.builds_once
@st.composite
def broken_bodies(draw, api, direction):
    """One frame whose header is whole; its body may not be, or its version may be one that nobody knows."""
    asked = draw(messages(api, direction))
    fixed = 12 if direction == "request" else 8
    raw = asked.raw
    if direction == "request" and draw(st.integers(0, 9)) == 0:
        version = draw(st.sampled_from((-1, NEWEST[api] + 1, 300, 32767)))
        raw = raw[:6] + struct.pack(">h", version) + raw[8:]
    return Message(framed(raw[4:fixed] + draw(changed(raw[fixed:]))), asked.api_key, asked.api_version,
                   asked.correlation_id, None)


# -------------------------------------------------------------------------------------------- for the laws

def joined(some):
    return st.lists(some.map(lambda message: message.raw), max_size=3).map(b"".join)


@st.builds_once
def sent(api):
    """Whole requests, most of them of one API, in bytes."""
    return joined(requests(api) | requests(api) | st.sampled_from((*API, *CLOSED)).flatmap(requests) | tokens())


@st.builds_once
def received():
    """Whole responses."""
    return joined(st.sampled_from((*API, *CLOSED)).flatmap(responses))


def cut(some):
    """The beginnings of messages, as far as they are not whole."""
    return st.tuples(some, st.integers(0, 1000)).map(lambda pair: pair[0].raw[:pair[1] % len(pair[0].raw)])


def broken(streams):
    return streams.flatmap(damaged)


@st.builds_once
def broken_alike(api):
    """Requests that are damaged in their bodies only."""
    return st.lists(broken_bodies(api, "request"), min_size=1, max_size=2).map(
        lambda some: b"".join(message.raw for message in some))
