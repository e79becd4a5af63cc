"""Liftbridge bytes for hypothesis: envelopes in NATS messages, records of the log, and damage to them.

    varint(), field(), group(), fixed()             Protocol Buffers, field by field
    message(), ack(), envelope(), response()        what the payload of a NATS message is
    record(), entry_message()                       a record of the log
    payloads(), internals(), records()              one good payload, one of a server, one good record
    captures(...), logs()                           NATS messages that carry payloads; records in a row
    odd_messages(), mutations(raw)                  what may be wrong in a message; bytes near `raw`
    GOLDEN, LOG                                     small good payloads, one of each kind, and a small log
"""
import struct

from crc32c import crc32c
from strategies import shared as st

from strategies import nats

MAGIC = b"\xb9\x0e\x43\xb4"


# ------------------------------------------------------------------------------------------- Protocol Buffers

def varint(number, size=1):
    """A varint in at least `size` bytes, longer than it has to be if that is more; of a negative one its 64 bits."""
    number, out = number % 2**64, bytearray()
    while number > 0x7F or len(out) + 1 < size:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def tag(number, wire):
    return varint(number << 3 | wire)


def field(number, value):
    """A field of an integer, or of bytes."""
    if isinstance(value, bytes):
        return tag(number, 2) + varint(len(value)) + value
    return tag(number, 0) + varint(value)


def group(number, inside=b""):
    return tag(number, 3) + inside + tag(number, 4)


def fixed(number, size=8):
    return tag(number, 1 if size == 8 else 5) + bytes(range(size))


def fields(*values):
    """Fields 1, 2, ...; of None there is none."""
    return b"".join(field(number, value) for number, value in enumerate(values, 1) if value is not None)


def pair(key=None, value=None):
    """A header of a message."""
    return field(9, fields(key, value))


def message(key=None, value=None, headers=(), offset=None, timestamp=None, stream=None, partition=None, subject=None,
            reply_subject=None, ack_inbox=None, correlation_id=None, ack_policy=None):
    head = fields(offset, key, value, timestamp, stream, partition, subject, reply_subject)
    tail = fields(*9 * [None], ack_inbox, correlation_id, ack_policy)
    return head + b"".join(pair(*header) for header in headers) + tail


def ack(stream=b"s", partition_subject=b"s", msg_subject=b"s", offset=7, ack_inbox=None, correlation_id=b"c",
        ack_policy=None, reception_timestamp=None, commit_timestamp=None, ack_error=None):
    return fields(stream, partition_subject, msg_subject, offset, ack_inbox, correlation_id, ack_policy,
                  reception_timestamp, commit_timestamp, ack_error)


# ------------------------------------------------------------------------------------------- envelopes and records

def envelope(payload=b"", kind=0, crc=False, flags=0, header=None, version=0):
    """header: bytes between the first eight and the payload; with crc, the checksum."""
    between = struct.pack(">I", crc32c(payload)) if crc else header or b""
    return MAGIC + bytes((version, 8 + len(between), flags | crc, kind)) + between + payload


def block(data):
    return b"\xff" * 4 if data is None else struct.pack(">i", len(data)) + data


def entry_message(key=None, value=b"", headers=(), magic=1, attributes=0, more=b""):
    """What a record holds, behind its checksum."""
    pairs = b"".join(struct.pack(">H", len(name)) + name + block(value) for name, value in headers)
    return struct.pack(">bb", magic, attributes) + block(key) + block(value) + struct.pack(">H", len(headers)) \
        + pairs + more


def sealed(body, offset=0, timestamp=0, leader_epoch=0):
    """A record around what is behind its checksum."""
    return struct.pack(">qqQII", offset, timestamp, leader_epoch, 4 + len(body), crc32c(body)) + body


def record(key=None, value=b"", headers=(), offset=0, timestamp=0, leader_epoch=0, **message):
    return sealed(entry_message(key, value, headers, **message), offset, timestamp, leader_epoch)


def response(records=b"", leader_epoch=0, high_watermark=0):
    return struct.pack(">Qq", leader_epoch, high_watermark) + records


SAMPLE = message(b"k", b"v", [(b"a", b"1"), (b"a", b"2")], offset=-1, timestamp=9, stream=b"s", partition=2,
                 subject=b"s.2", reply_subject=b"r", ack_inbox=b"in", correlation_id=b"id", ack_policy=1)
LOG = record(b"k", b"v", [(b"subject", b"s"), (b"reply", None)], 5, 9, 1) \
    + record(offset=8) + record(b"", None, offset=9)
INTERNAL = {                    # kind -> payload
    2: fields(b"a", 7, 3), 3: response(LOG, 3, -1), 4: fields(b"a", b"host"), 5: fields(b"no"), 6: fields(5),
    7: fields(-1), 8: fields(4, None, None, None, fields(b"s", 1, b"r", b"l", 2)),
    9: fields(1, fields(13, b"no")) + field(11, fields(b"c", 2)), 10: fields(b"a"), 11: fields(b"a", b"host", 9292),
    12: fields(b"s", 1), 13: fields(1, 1), 14: fields(b"s", 1)}
GOLDEN = {
    "message": envelope(SAMPLE), "message with a checksum": envelope(SAMPLE, crc=True), "empty": envelope(),
    "ack": envelope(ack(ack_error=2, reception_timestamp=5), 1), "cookie": b"LIFT" + SAMPLE[:14], "plain": b"hello",
    "other header": envelope(message(b"", b""), header=b"junk", flags=0x80),
} | {f"kind {kind}": envelope(payload, kind, crc=kind % 2 == 1) for kind, payload in INTERNAL.items()}

# ------------------------------------------------------------------------------------------- good bytes

BITS_64 = st.sampled_from((0, 1, -1, 127, 128, 2**31, 2**63 - 1, -2**63)) | st.integers(-2**63, 2**63 - 1)
BITS_32 = st.sampled_from((0, 1, -1, 2**31 - 1, -2**31)) | st.integers(-5, 5)
STRINGS = st.sampled_from((b"", b"s", b"_INBOX.x", b"\xff\xfe", "é".encode())) | st.binary(max_size=12)
OPTIONAL = st.none() | STRINGS
VALUES = OPTIONAL | st.sampled_from((bytes(127), bytes(200), MAGIC + bytes(4), b"LIFT", b"PUB a 1\r\nx\r\n"))
PLAIN_PAYLOADS = VALUES.map(lambda value: value or b"").filter(lambda value: value[:4] != MAGIC)
HEADERS = st.lists(st.tuples(OPTIONAL, OPTIONAL), max_size=3)
MESSAGES = st.builds(
    message, OPTIONAL, VALUES, HEADERS, st.none() | BITS_64, st.none() | BITS_64, OPTIONAL, st.none() | BITS_32,
    OPTIONAL, OPTIONAL, OPTIONAL, OPTIONAL, st.none() | BITS_32)
ACKS = st.builds(
    ack, OPTIONAL, OPTIONAL, OPTIONAL, st.none() | BITS_64, OPTIONAL, OPTIONAL, st.none() | BITS_32,
    st.none() | BITS_64, st.none() | BITS_64, st.none() | BITS_32)
UNKNOWN = st.one_of(
    st.builds(field, st.integers(13, 2**29 - 1), BITS_64 | STRINGS), st.builds(fixed, st.integers(1, 20)),
    st.builds(fixed, st.integers(1, 20), st.just(4)), st.builds(field, st.integers(1, 15), BITS_64 | STRINGS),
    st.builds(group, st.integers(1, 20), st.sampled_from((b"", field(1, 5), group(1), fixed(3, 4), field(2, b"x")))))

UNKNOWN_FIELDS = st.lists(UNKNOWN, max_size=2).map(b"".join)


@st.builds_once
@st.composite
def jumbled(draw, messages):
    """A message with fields of others and unknown ones before and behind it, any of which may count instead."""
    return draw(UNKNOWN_FIELDS) + draw(messages) + draw(UNKNOWN_FIELDS)


@st.builds_once
def wrapped(payloads, kind):
    """Payloads in envelopes."""
    return st.builds(envelope, payloads, st.just(kind), st.booleans()) | st.builds(
        envelope, payloads, st.just(kind), flags=st.sampled_from((0, 0, 0x80, 0xFE)),
        header=st.sampled_from((b"", b"j", b"junk", bytes(247))))


@st.builds_once
@st.composite
def payloads(draw):
    """One good payload for clients: a message, in the ways that there are, or an ack."""
    kind = draw(st.sampled_from((0, 0, 0, 1, "cookie", "plain")))
    if kind == "plain":
        return draw(PLAIN_PAYLOADS)
    body = ACKS if kind == 1 else MESSAGES
    body = draw(st.one_of(body, jumbled(body)))
    return b"LIFT" + body if kind == "cookie" else draw(wrapped(st.just(body), kind))


@st.builds_once
def fetched_records():
    return st.lists(records(), max_size=3).map(b"".join)


@st.builds_once
@st.composite
def internals(draw):
    """One good payload between servers."""
    kind = draw(st.sampled_from(list(INTERNAL)))
    if kind == 3:
        inside = st.builds(response, fetched_records(), st.integers(0, 2**64 - 1), BITS_64)
    elif kind == 8:
        number = draw(st.integers(2, 12))
        change = st.builds(fields, STRINGS, STRINGS if number > 9 else BITS_32, OPTIONAL, OPTIONAL, st.none() | BITS_64)
        inside = st.builds(lambda op, change: fields(op) + field(number, change), st.integers(0, 14),
                           st.builds(lambda name: fields(fields(name)), OPTIONAL) if number == 2 else change)
    else:
        inside = jumbled(st.just(INTERNAL[kind])) | st.just(INTERNAL[kind])
    return draw(wrapped(inside, kind))


@st.builds_once
@st.composite
def captures(draw, payloads, least=0, most=4):
    """NATS messages: those that carry payloads, and others among them."""
    return b"".join(draw(st.lists(carriers(payloads), min_size=least, max_size=most)))


@st.builds_once
def carriers(payloads):
    carried = st.tuples(st.sampled_from((nats.pub, nats.msg, nats.hmsg)), payloads).map(lambda pair: pair[0](pair[1]))
    return st.one_of(carried, carried, carried, nats.messages())


@st.builds_once
def tails(carried):
    return st.just(b"") | st.tuples(carried, st.integers(0, 10_000)).map(
        lambda pair: pair[0][:pair[1] % max(len(pair[0]), 1)])


@st.builds_once
def records():
    """One good record."""
    pairs = st.lists(st.tuples(STRINGS, OPTIONAL), max_size=3)
    return st.builds(record, OPTIONAL, VALUES, pairs, BITS_64, BITS_64, st.integers(0, 2**64 - 1),
                     attributes=st.sampled_from((0, 1, -1)))


@st.builds_once
def logs(least=0, most=5):
    return st.lists(records(), min_size=least, max_size=most).map(b"".join)


@st.builds_once
def log_tails():
    """Nothing, a record that was cut, or zeros."""
    return tails(records()) | st.sampled_from((28, 100)).map(bytes)


# ------------------------------------------------------------------------------------------- damage

ODD = (b"\0", b"\7", b"\x0f", b"\x0e", b"\x0c", b"\x0b", b"\x80", b"\x08\x80", b"\x12", b"\x12\x05", tag(1, 4),
       tag(0, 0), varint(2**35), b"\x80" * 10, b"\xff" * 10, b"\xff" * 9 + b"\1", b"\x08" + b"\xff" * 9 + b"\2",
       b"\x12\xff\xff\xff\xff\x0f", b"\x12\xff\xff\xff\xff\x10", b"\x12\x80\x80\x80\x80\x80\0",
       b"\x82\x80\x80\x80\x80\0", tag(5, 3), group(5, tag(6, 4)), tag(7, 3) * 100, tag(7, 3) * 101, tag(7, 3) * 100 + tag(7, 4) * 100,
       field(9, b"\x0a\5x"), field(9, b"\0"), field(2, fields(b"x")), b"\xfa\xff\xff\xff\x0f\0")


@st.builds_once
@st.composite
def odd_messages(draw):
    """Messages that have something in them, anywhere, that may be wrong."""
    raw = draw(MESSAGES | ACKS | st.sampled_from(list(INTERNAL.values())))
    at = draw(st.just(len(raw)) | st.integers(0, len(raw)))
    return raw[:at] + draw(st.sampled_from(ODD)) + raw[at:]


SET_BYTES = st.sampled_from(b"\0\1\x07\x08\x0b\x0c\x12\x7f\x80\xff") | st.integers(0, 255)
INSERTED = st.sampled_from(ODD) | st.binary(min_size=1, max_size=6)


@st.composite
def mutations(draw, raw, steps=3):
    """Bytes near `raw`: bits flipped, bytes set, cut out, put in, numbers of four bytes driven to extremes."""
    for _ in range(draw(st.integers(1, steps))):
        if len(raw) < 4:
            break
        out, at = bytearray(raw), draw(st.integers(0, len(raw) - 1))
        kind = draw(st.sampled_from(("flip", "byte", "cut", "tail", "insert", "number")))
        if kind == "flip":
            out[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "byte":
            out[at] = draw(SET_BYTES)
        elif kind == "cut":
            del out[at:at + draw(st.integers(1, 12))]
        elif kind == "tail":
            del out[at:]
        elif kind == "insert":
            out[at:at] = draw(INSERTED)
        else:
            at = min(at, len(raw) - 4)
            near = (len(raw) - at, len(raw) - at - 4, 15, 16, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 2, 0)
            struct.pack_into(">I", out, at, draw(st.sampled_from(near)) % 2**32)
        raw = bytes(out)
    return raw


@st.builds_once
@st.composite
def odd_payloads(draw):
    """Envelopes that are sound or not, around anything."""
    return draw(any_odd_payload())


@st.builds_once
def any_odd_payload():
    inside = odd_messages() | MESSAGES.flatmap(mutations)
    kinds = st.sampled_from((0, 0, 0, 1, 1, *range(2, 17), 254, 255))
    return (st.builds(envelope, inside, kinds, st.booleans()) | odd_messages().map(b"LIFT".__add__) | st.builds(
        envelope, inside, kinds, flags=st.sampled_from((0, 1, 2)), version=st.sampled_from((0, 1, 255)),
        header=st.sampled_from((b"", b"junk"))) | (payloads() | internals()).flatmap(mutations) | st.sampled_from(
        list(GOLDEN.values())).flatmap(mutations) | st.builds(
        envelope, st.builds(response, st.builds(bytes.__add__, logs(1, 2), log_tails())), st.just(3)))


@st.builds_once
def damaged_captures():
    carried = captures(odd_payloads() | payloads() | internals(), 1)
    return carried | carried | carried.flatmap(nats.mutations)


@st.builds_once
@st.composite
def odd_records(draw):
    """A record whose checksum is right, around anything."""
    body = draw(mutations(draw(records())[32:]))
    return sealed(body, draw(BITS_64))


@st.builds_once
def damaged_logs():
    mixed = st.lists(records() | odd_records() | records().flatmap(mutations) | st.binary(max_size=60),
                     min_size=1, max_size=4).map(b"".join)
    return mixed | logs(1).flatmap(mutations) | st.builds(bytes.__add__, mixed, log_tails())
