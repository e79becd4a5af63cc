"""Liftbridge bytes for hypothesis: good and damaged envelopes in NATS messages, and log records.

varint(), field(), group(), fixed()             Protocol Buffers, field by field
message(), ack(), envelope(), response()        payloads of NATS messages
record(), entry_message()                       a record of the log
payloads()                                      one good payload for clients
internals()                                     one good payload between servers
records()                                       one good record
captures(...)                                   NATS messages that carry payloads
logs()                                          several records
odd_messages()                                  messages that may be bad
mutations(raw)                                  damaged copies of `raw`
GOLDEN                                          small good payloads, one of each kind
LOG                                             a small log
"""

import struct

from crc32c import crc32c

from tests.strategies import nats
from tests.strategies import shared as st
from tests.strategies.byte_changes import BYTE_CHANGES, change_bytes

MAGIC = b"\xb9\x0e\x43\xb4"


# ---- Protocol Buffers


def make_varint(number, size=1):
    """Return a varint of at least `size` bytes. A negative number is written as 64 bits."""
    number %= 2**64
    out = bytearray()
    while number > 0x7F or len(out) + 1 < size:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def make_tag(number, wire):
    return make_varint(number << 3 | wire)


def make_field(number, value):
    """Return a field with an integer or with bytes."""
    if isinstance(value, bytes):
        return make_tag(number, 2) + make_varint(len(value)) + value
    return make_tag(number, 0) + make_varint(value)


def make_group(number, inside=b""):
    return make_tag(number, 3) + inside + make_tag(number, 4)


def make_fixed(number, size=8):
    return make_tag(number, 1 if size == 8 else 5) + bytes(range(size))


def make_fields(*values):
    """Return fields 1, 2, and so on. A field whose value is None is missing."""
    numbered = enumerate(values, 1)
    return b"".join(make_field(number, value) for number, value in numbered if value is not None)


def make_pair(key=None, value=None):
    """Return a header of a message."""
    return make_field(9, make_fields(key, value))


def make_message(
    key=None,
    value=None,
    headers=(),
    offset=None,
    timestamp=None,
    stream=None,
    partition=None,
    subject=None,
    reply_subject=None,
    ack_inbox=None,
    correlation_id=None,
    ack_policy=None,
):
    head = make_fields(offset, key, value, timestamp, stream, partition, subject, reply_subject)
    tail = make_fields(*9 * [None], ack_inbox, correlation_id, ack_policy)
    return head + b"".join(make_pair(*header) for header in headers) + tail


def make_ack(
    stream=b"s",
    partition_subject=b"s",
    msg_subject=b"s",
    offset=7,
    ack_inbox=None,
    correlation_id=b"c",
    ack_policy=None,
    reception_timestamp=None,
    commit_timestamp=None,
    ack_error=None,
):
    return make_fields(
        stream,
        partition_subject,
        msg_subject,
        offset,
        ack_inbox,
        correlation_id,
        ack_policy,
        reception_timestamp,
        commit_timestamp,
        ack_error,
    )


# ---- envelopes and records


def make_envelope(payload=b"", kind=0, crc=False, flags=0, header=None, version=0):
    """Return an envelope.

    header: bytes between the first eight bytes and the payload. With `crc`, the checksum.
    """
    between = struct.pack(">I", crc32c(payload)) if crc else header or b""
    return MAGIC + bytes((version, 8 + len(between), flags | crc, kind)) + between + payload


def make_block(data):
    return b"\xff" * 4 if data is None else struct.pack(">i", len(data)) + data


def make_entry_message(key=None, value=b"", headers=(), magic=1, attributes=0, more=b""):
    """Return the part of a record behind its checksum. more: bytes behind the headers."""
    head = struct.pack(">bb", magic, attributes)
    count = struct.pack(">H", len(headers))
    pairs = b"".join(
        struct.pack(">H", len(name)) + name + make_block(value) for name, value in headers
    )
    return head + make_block(key) + make_block(value) + count + pairs + more


def seal_record(body, offset=0, timestamp=0, leader_epoch=0):
    """Return a record. body: the part behind the checksum."""
    size = 4 + len(body)
    return struct.pack(">qqQII", offset, timestamp, leader_epoch, size, crc32c(body)) + body


def make_record(key=None, value=b"", headers=(), offset=0, timestamp=0, leader_epoch=0, **message):
    return seal_record(
        make_entry_message(key, value, headers, **message), offset, timestamp, leader_epoch
    )


def make_response(records=b"", leader_epoch=0, high_watermark=0):
    return struct.pack(">Qq", leader_epoch, high_watermark) + records


SAMPLE = make_message(
    b"k",
    b"v",
    [(b"a", b"1"), (b"a", b"2")],
    offset=-1,
    timestamp=9,
    stream=b"s",
    partition=2,
    subject=b"s.2",
    reply_subject=b"r",
    ack_inbox=b"in",
    correlation_id=b"id",
    ack_policy=1,
)
LOG = (
    make_record(b"k", b"v", [(b"subject", b"s"), (b"reply", None)], 5, 9, 1)
    + make_record(offset=8)
    + make_record(b"", None, offset=9)
)
INTERNAL = {  # kind -> payload
    2: make_fields(b"a", 7, 3),
    3: make_response(LOG, 3, -1),
    4: make_fields(b"a", b"host"),
    5: make_fields(b"no"),
    6: make_fields(5),
    7: make_fields(-1),
    8: make_fields(4, None, None, None, make_fields(b"s", 1, b"r", b"l", 2)),
    9: make_fields(1, make_fields(13, b"no")) + make_field(11, make_fields(b"c", 2)),
    10: make_fields(b"a"),
    11: make_fields(b"a", b"host", 9292),
    12: make_fields(b"s", 1),
    13: make_fields(1, 1),
    14: make_fields(b"s", 1),
}
GOLDEN = {
    "message": make_envelope(SAMPLE),
    "message with a checksum": make_envelope(SAMPLE, crc=True),
    "empty": make_envelope(),
    "ack": make_envelope(make_ack(ack_error=2, reception_timestamp=5), 1),
    "cookie": b"LIFT" + SAMPLE[:14],
    "plain": b"hello",
    "other header": make_envelope(make_message(b"", b""), header=b"junk", flags=0x80),
} | {
    f"kind {kind}": make_envelope(payload, kind, crc=kind % 2 == 1)
    for kind, payload in INTERNAL.items()
}

# ---- good bytes

BITS_64 = st.sampled_from((0, 1, -1, 127, 128, 2**31, 2**63 - 1, -(2**63))) | st.integers(
    -(2**63), 2**63 - 1
)
BITS_32 = st.sampled_from((0, 1, -1, 2**31 - 1, -(2**31))) | st.integers(-5, 5)
STRINGS = st.sampled_from((b"", b"s", b"_INBOX.x", b"\xff\xfe", "é".encode())) | st.binary(
    max_size=12
)
OPTIONAL = st.none() | STRINGS
VALUES = OPTIONAL | st.sampled_from(
    (bytes(127), bytes(200), MAGIC + bytes(4), b"LIFT", b"PUB a 1\r\nx\r\n")
)
PLAIN_PAYLOADS = VALUES.map(lambda value: value or b"").filter(lambda value: value[:4] != MAGIC)
HEADERS = st.lists(st.tuples(OPTIONAL, OPTIONAL), max_size=3)
MESSAGES = st.builds(
    make_message,
    OPTIONAL,
    VALUES,
    HEADERS,
    st.none() | BITS_64,
    st.none() | BITS_64,
    OPTIONAL,
    st.none() | BITS_32,
    OPTIONAL,
    OPTIONAL,
    OPTIONAL,
    OPTIONAL,
    st.none() | BITS_32,
)
ACKS = st.builds(
    make_ack,
    OPTIONAL,
    OPTIONAL,
    OPTIONAL,
    st.none() | BITS_64,
    OPTIONAL,
    OPTIONAL,
    st.none() | BITS_32,
    st.none() | BITS_64,
    st.none() | BITS_64,
    st.none() | BITS_32,
)
UNKNOWN = st.one_of(
    st.builds(make_field, st.integers(13, 2**29 - 1), BITS_64 | STRINGS),
    st.builds(make_fixed, st.integers(1, 20)),
    st.builds(make_fixed, st.integers(1, 20), st.just(4)),
    st.builds(make_field, st.integers(1, 15), BITS_64 | STRINGS),
    st.builds(
        make_group,
        st.integers(1, 20),
        st.sampled_from(
            (b"", make_field(1, 5), make_group(1), make_fixed(3, 4), make_field(2, b"x"))
        ),
    ),
)

UNKNOWN_FIELDS = st.lists(UNKNOWN, max_size=2).map(b"".join)


@st.builds_once
@st.composite
def jumbled_messages(draw, messages):
    """A message between unknown fields and fields of other messages.

    Some of those fields have a number of this message, so their values may replace its own.
    """
    return draw(UNKNOWN_FIELDS) + draw(messages) + draw(UNKNOWN_FIELDS)


@st.builds_once
def wrapped_payloads(payloads, kind):
    """Envelopes with these payloads."""
    usual = st.builds(make_envelope, payloads, st.just(kind), st.booleans())
    unusual = st.builds(
        make_envelope,
        payloads,
        st.just(kind),
        flags=st.sampled_from((0, 0, 0x80, 0xFE)),
        header=st.sampled_from((b"", b"j", b"junk", bytes(247))),
    )
    return usual | unusual


@st.builds_once
@st.composite
def payloads(draw):
    """One good payload for clients: a message in any envelope or without one, or an ack."""
    kind = draw(st.sampled_from((0, 0, 0, 1, "cookie", "plain")))
    if kind == "plain":
        return draw(PLAIN_PAYLOADS)
    body = ACKS if kind == 1 else MESSAGES
    body = draw(st.one_of(body, jumbled_messages(body)))
    return b"LIFT" + body if kind == "cookie" else draw(wrapped_payloads(st.just(body), kind))


@st.builds_once
def fetched_records():
    return st.lists(records(), max_size=3).map(b"".join)


@st.builds_once
@st.composite
def internals(draw):
    """One good payload between servers."""
    kind = draw(st.sampled_from(list(INTERNAL)))
    if kind == 3:
        inside = st.builds(make_response, fetched_records(), st.integers(0, 2**64 - 1), BITS_64)
    elif kind == 8:
        number = draw(st.integers(2, 12))
        change = st.builds(
            make_fields,
            STRINGS,
            STRINGS if number > 9 else BITS_32,
            OPTIONAL,
            OPTIONAL,
            st.none() | BITS_64,
        )
        inside = st.builds(
            lambda op, change: make_fields(op) + make_field(number, change),
            st.integers(0, 14),
            st.builds(lambda name: make_fields(make_fields(name)), OPTIONAL)
            if number == 2
            else change,
        )
    else:
        inside = jumbled_messages(st.just(INTERNAL[kind])) | st.just(INTERNAL[kind])
    return draw(wrapped_payloads(inside, kind))


@st.builds_once
@st.composite
def captures(draw, payloads, least=0, most=4):
    """NATS messages. Most of them carry a payload."""
    return b"".join(draw(st.lists(carriers(payloads), min_size=least, max_size=most)))


@st.builds_once
def carriers(payloads):
    operations = st.sampled_from((nats.make_pub, nats.make_msg, nats.make_hmsg))
    carried = st.tuples(operations, payloads).map(lambda pair: pair[0](pair[1]))
    return st.one_of(carried, carried, carried, nats.messages())


@st.builds_once
def tails(streams):
    """No bytes, or a cut stream."""
    cuts = st.tuples(streams, st.integers(0, 10_000))
    return st.just(b"") | cuts.map(lambda pair: pair[0][: pair[1] % max(len(pair[0]), 1)])


@st.builds_once
def records():
    """One good record."""
    pairs = st.lists(st.tuples(STRINGS, OPTIONAL), max_size=3)
    return st.builds(
        make_record,
        OPTIONAL,
        VALUES,
        pairs,
        BITS_64,
        BITS_64,
        st.integers(0, 2**64 - 1),
        attributes=st.sampled_from((0, 1, -1)),
    )


@st.builds_once
def logs(least=0, most=5):
    return st.lists(records(), min_size=least, max_size=most).map(b"".join)


@st.builds_once
def log_tails():
    """No bytes, a cut record, or zeros."""
    return tails(records()) | st.sampled_from((28, 100)).map(bytes)


# ---- damage

# Bytes that are bad or unusual in a message.
ODD = (
    b"\0",
    b"\7",
    b"\x0f",
    b"\x0e",
    b"\x0c",
    b"\x0b",
    b"\x80",
    b"\x08\x80",
    b"\x12",
    b"\x12\x05",
    make_tag(1, 4),
    make_tag(0, 0),
    make_varint(2**35),
    b"\x80" * 10,
    b"\xff" * 10,
    b"\xff" * 9 + b"\1",
    b"\x08" + b"\xff" * 9 + b"\2",
    b"\x12\xff\xff\xff\xff\x0f",
    b"\x12\xff\xff\xff\xff\x10",
    b"\x12\x80\x80\x80\x80\x80\0",
    b"\x82\x80\x80\x80\x80\0",
    make_tag(5, 3),
    make_group(5, make_tag(6, 4)),
    make_tag(7, 3) * 100,
    make_tag(7, 3) * 101,
    make_tag(7, 3) * 100 + make_tag(7, 4) * 100,
    make_field(9, b"\x0a\5x"),
    make_field(9, b"\0"),
    make_field(2, make_fields(b"x")),
    b"\xfa\xff\xff\xff\x0f\0",
)


@st.builds_once
@st.composite
def odd_messages(draw):
    """Messages with bad or unusual bytes at any position."""
    raw = draw(MESSAGES | ACKS | st.sampled_from(list(INTERNAL.values())))
    at = draw(st.just(len(raw)) | st.integers(0, len(raw)))
    return raw[:at] + draw(st.sampled_from(ODD)) + raw[at:]


SET_BYTES = st.sampled_from(b"\0\1\x07\x08\x0b\x0c\x12\x7f\x80\xff") | st.integers(0, 255)
INSERTED = st.sampled_from(ODD) | st.binary(min_size=1, max_size=6)


@st.composite
def mutations(draw, raw, steps=3):
    """Copies of `raw` with flipped bits, changed, removed or inserted bytes, extreme numbers."""
    for _ in range(draw(st.integers(1, steps))):
        if len(raw) < 4:
            break
        out = bytearray(raw)
        at = draw(st.integers(0, len(raw) - 1))
        kind = draw(st.sampled_from(("flip", "byte", "cut", "tail", "insert", "number")))
        if kind in BYTE_CHANGES:
            change_bytes(draw, out, at, kind, inserted=INSERTED, values=SET_BYTES, longest=12)
        else:
            at = min(at, len(raw) - 4)
            left = len(raw) - at
            numbers = (left, left - 4, 15, 16, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 2, 0)
            struct.pack_into(">I", out, at, draw(st.sampled_from(numbers)) % 2**32)
        raw = bytes(out)
    return raw


@st.builds_once
@st.composite
def odd_payloads(draw):
    """Sound and bad envelopes with any contents."""
    return draw(any_odd_payload())


@st.builds_once
def any_odd_payload():
    inside = odd_messages() | MESSAGES.flatmap(mutations)
    kinds = st.sampled_from((0, 0, 0, 1, 1, *range(2, 17), 254, 255))
    return (
        st.builds(make_envelope, inside, kinds, st.booleans())
        | odd_messages().map(b"LIFT".__add__)
        | st.builds(
            make_envelope,
            inside,
            kinds,
            flags=st.sampled_from((0, 1, 2)),
            version=st.sampled_from((0, 1, 255)),
            header=st.sampled_from((b"", b"junk")),
        )
        | (payloads() | internals()).flatmap(mutations)
        | st.sampled_from(list(GOLDEN.values())).flatmap(mutations)
        | st.builds(
            make_envelope,
            st.builds(make_response, st.builds(bytes.__add__, logs(1, 2), log_tails())),
            st.just(3),
        )
    )


@st.builds_once
def damaged_captures():
    carried = captures(odd_payloads() | payloads() | internals(), 1)
    return carried | carried | carried.flatmap(nats.mutations)


@st.builds_once
@st.composite
def odd_records(draw):
    """A record with a correct checksum and any contents."""
    body = draw(mutations(draw(records())[32:]))
    return seal_record(body, draw(BITS_64))


@st.builds_once
def damaged_logs():
    mixed = st.lists(
        records() | odd_records() | records().flatmap(mutations) | st.binary(max_size=60),
        min_size=1,
        max_size=4,
    ).map(b"".join)
    return mixed | logs(1).flatmap(mutations) | st.builds(bytes.__add__, mixed, log_tails())
