"""Liftbridge tables: envelopes and their faults, messages, acks, internal messages, log entries."""

import pickle
import struct
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import wirescan
from tests.laws.packages import PACKAGES
from tests.reference import liftbridge as reference
from tests.strategies.liftbridge import (
    GOLDEN,
    INTERNAL,
    LOG,
    MAGIC,
    SAMPLE,
    make_ack,
    make_entry_message,
    make_envelope,
    make_field,
    make_fields,
    make_fixed,
    make_group,
    make_message,
    make_pair,
    make_record,
    make_response,
    make_tag,
    make_varint,
    seal_record,
)
from tests.strategies.nats import make_hmsg, make_hpub, make_msg, make_pub
from tests.support.places import copy_bytes
from tests.support.tables import list_columns
from wirescan import Fault, FrameError, Limits, liftbridge, nats
from wirescan.core.loop import HEAD
from wirescan.frames.registry import format_of
from wirescan.liftbridge import AckError, AckPolicy, Kind
from wirescan.testing import laws

PACKAGE = PACKAGES["liftbridge"]
checked = pytest.mark.parametrize("check", [True, False], ids=["check", "no check"])


# Columns of every table that depend on where a payload is.
POSITIONS = {"start", "size", "body", "parent", "buffer", "kind", "fault"}


def list_headers(table):
    return [[tuple(map(copy_bytes, pair)) for pair in row.headers] for row in table]


def read_payload(payload, read=liftbridge.messages, **options):
    """Return the only row of a payload as a dict with views as bytes; or the name of its fault."""
    table = read(liftbridge.scan([payload], errors="mark", **options), errors="mark")
    (row,) = table
    if row.fault:
        assert all(getattr(row, name) is None for name in table.places)
        columns = laws.list_rows(table)[0]
        assert not any(value for name, value in columns.items() if name not in HEAD.names)
        return Fault(row.fault).name
    values = {}
    for name in (*table.places, *table.dtype.names):
        if name in POSITIONS or name.endswith(("_at", "_size")):
            continue
        value = getattr(row, name)
        values[name] = copy_bytes(value) if name in table.places else int(value)
    return values


def drop_nulls(values):
    """Return the values that are neither 0 nor null."""
    return {name: value for name, value in values.items() if value not in (0, None)}


def read_body(body):
    """Return the fields of a message that are not null, or its fault; check the laws too."""
    laws.agrees_with_the_reference(PACKAGE, make_pub(make_envelope(body)))
    values = read_payload(make_envelope(body))
    return values if isinstance(values, str) else drop_nulls(values)


# ---- envelopes


def test_envelopes_have_columns():
    payloads = [
        make_envelope(b"\x1a\1v"),
        make_envelope(b"", 1, crc=True),
        b"LIFT\x1a\1v",
        b"plain",
        b"",
    ]
    raw = b"PING\r\n" + make_pub(payloads[0]) + make_msg(payloads[1]) + make_hpub(payloads[2])
    raw += make_hmsg(payloads[3]) + make_pub(payloads[4])
    outer = nats.scan(raw)
    table = liftbridge.scan(outer)
    assert list_columns(table, "kind parent size body crc version header_size flags") == [
        (Kind.PUBLISH, 1, 11, 8, 0, 0, 8, 0),
        (Kind.ACK, 2, 12, 12, 0, 0, 12, 1),
        (Kind.LIFT, 3, 7, 4, 0, 0, 0, 0),
        (Kind.PLAIN, 4, 5, 0, 0, 0, 0, 0),
        (Kind.PLAIN, 5, 0, 0, 0, 0, 0, 0),
    ]
    assert laws.list_frames(table) == payloads
    assert table.outer is outer
    assert table.buffers == outer.buffers
    contents = [bytes(table.payload(i)) for i in range(5)]
    assert contents == [b"\x1a\1v", b"", b"\x1a\1v", b"plain", b""]
    assert table.name == "liftbridge.envelopes"
    assert table.dtype.itemsize == 32
    assert laws.describe_rows(wirescan.scan(raw, "liftbridge.envelopes")) == laws.describe_rows(
        table
    )


def test_kinds_have_names():
    kinds = format_of("liftbridge.envelopes").get_column("kind").number_names
    assert [kinds[number] for number in (0, 1, 2, 3, 9, 14, 253, 254, 255)] == [
        "PUBLISH",
        "ACK",
        "REPLICATION_REQUEST",
        "REPLICATION_RESPONSE",
        "PROPAGATED_RESPONSE",
        "PARTITION_NOTIFICATION",
        "UNKNOWN",
        "LIFT",
        "PLAIN",
    ]
    assert len(kinds) == 18
    assert [policy.name for policy in AckPolicy] == ["LEADER", "ALL", "NONE"]
    errors = [error.name for error in AckError]
    assert errors == ["OK", "UNKNOWN", "INCORRECT_OFFSET", "TOO_LARGE", "ENCRYPTION"]


BODY = make_message(value=b"v")
ENVELOPES = {
    "eight bytes": (make_envelope(), Kind.PUBLISH),
    "a checksum": (make_envelope(BODY, crc=True), Kind.PUBLISH),
    "a checksum of nothing": (make_envelope(b"", crc=True), Kind.PUBLISH),
    "unknown flags": (make_envelope(BODY, flags=0xFE), Kind.PUBLISH),
    "unknown flags and a checksum": (make_envelope(BODY, crc=True, flags=0x80), Kind.PUBLISH),
    "a header of 12 without a checksum": (make_envelope(BODY, header=b"junk"), Kind.PUBLISH),
    "the longest header": (make_envelope(BODY, header=bytes(247)), Kind.PUBLISH),
    "the last kind": (make_envelope(b"", 14), Kind.PARTITION_NOTIFICATION),
    "no bytes": (b"", Kind.PLAIN),
    "three bytes of the magic": (MAGIC[:3], Kind.PLAIN),
    "a byte before the magic": (b"\0" + make_envelope(), Kind.PLAIN),
    "another magic": (b"\xb9\x0e\x43\xb5" + bytes(4), Kind.PLAIN),
    "the cookie": (b"LIFT", Kind.LIFT),
    "half a cookie": (b"LIF", Kind.PLAIN),
    "a cookie in lower case": (b"lift", Kind.PLAIN),
    "the magic alone": (MAGIC, "TRUNCATED"),
    "seven bytes": (MAGIC + bytes(3), "TRUNCATED"),
    "a header beyond the payload": (MAGIC + b"\0\x09\0\0", "TRUNCATED"),
    "a checksum beyond the payload": (MAGIC + b"\0\x0c\1\0\0\0\0", "TRUNCATED"),
    "version 1": (make_envelope(BODY, version=1), "BAD_VERSION"),
    "version 1, and all else wrong": (MAGIC + b"\1\7\1\xff", "BAD_VERSION"),
    "a header of no bytes": (MAGIC + bytes(4), "BAD_HEADER"),
    "a header of 7": (MAGIC + b"\0\7\0\0" + BODY, "BAD_HEADER"),
    "a checksum in a header of 8": (make_envelope(BODY, flags=1), "BAD_HEADER"),
    "a checksum in a header of 13": (make_envelope(BODY, flags=1, header=bytes(5)), "BAD_HEADER"),
    "kind 15": (make_envelope(BODY, 15), "BAD_KIND"),
    "kind 255": (make_envelope(BODY, 255), "BAD_KIND"),
    "kind 15 and a wrong checksum": (make_envelope(BODY, 15, flags=1, header=bytes(4)), "BAD_KIND"),
    "a wrong checksum": (make_envelope(BODY, flags=1, header=bytes(4)), "BAD_CHECKSUM"),
    "a damaged payload": (make_envelope(BODY, crc=True)[:-1] + b"w", "BAD_CHECKSUM"),
}


@pytest.mark.parametrize("number", [15, 252, 253, 254, 255])
@pytest.mark.parametrize("version, fault", [(0, "BAD_KIND"), (1, "BAD_VERSION")])
def test_wire_types_above_14_are_unknown(number, version, fault):
    table = liftbridge.scan([make_envelope(BODY, number, version=version)], errors="mark")
    assert table["kind"].tolist() == [min(number, Kind.UNKNOWN)]
    assert Fault(table["fault"][0]).name == fault
    assert len(liftbridge.messages(table, errors="mark")) == 0


@pytest.mark.parametrize("payload, outcome", ENVELOPES.values(), ids=ENVELOPES)
def test_envelopes_and_their_faults(payload, outcome):
    table = liftbridge.scan([payload, b"next"], errors="mark")
    fault = isinstance(outcome, str)
    assert Fault(table["fault"][0]).name == (outcome if fault else "OK")
    assert table["kind"][1] == Kind.PLAIN
    assert bytes(table.frame(0)) == payload
    assert len(liftbridge.scan([payload, b"next"], errors="skip")) == 2 - fault
    if fault:
        with pytest.raises(FrameError, match=outcome):
            liftbridge.scan([payload])
    else:
        assert table["kind"][0] == outcome
    for name in ("liftbridge", "liftbridge.acks", "liftbridge.internal"):
        for check in (True, False):
            laws.agrees_with_the_reference(
                PACKAGES[name], make_pub(payload) + make_msg(b"next"), check=check
            )


def test_checksums_are_not_verified_without_check():
    wrong = make_envelope(BODY, flags=1, header=b"\1\2\3\4")
    table = liftbridge.scan([wrong], check=False)
    assert list_columns(table, "crc body fault") == [(0x01020304, 12, 0)]
    assert drop_nulls(read_payload(wrong, check=False)) == dict(value=b"v")


def test_the_checksum_does_not_cover_the_header():
    good = bytearray(make_envelope(make_ack(), 1, crc=True))
    good[6] = 0xFF
    good[7] = 4
    assert liftbridge.scan([good])["kind"].tolist() == [Kind.RAFT_JOIN_REQUEST]


# ---- sources of payloads

PAYLOADS = [make_envelope(BODY), b"", b"plain", make_envelope(make_ack(), 1, crc=True)]


def list_sources():
    data = b"".join(PAYLOADS)
    offsets = np.cumsum([0, *map(len, PAYLOADS)])
    yield "a list", PAYLOADS
    yield "a tuple", tuple(map(bytearray, PAYLOADS))
    yield "a pair", (data, offsets)
    yield "a pair of lists", (data, offsets.tolist())
    for type_ in (pa.binary(), pa.large_binary()):
        yield str(type_), pa.array(PAYLOADS, type_)
        yield f"part of {type_}", pa.array([b"before", *PAYLOADS, b"behind"], type_)[1:-1]
        chunks = [pa.array(PAYLOADS[:1], type_), pa.array(PAYLOADS[1:], type_)]
        yield f"chunks of {type_}", pa.chunked_array(chunks)
    yield "messages", nats.scan(b"".join(map(make_pub, PAYLOADS)))


@pytest.mark.parametrize(
    "source", [source for _, source in list_sources()], ids=[name for name, _ in list_sources()]
)
def test_every_source_gives_the_same_rows(source):
    table = liftbridge.scan(source)
    assert laws.list_frames(table) == PAYLOADS
    assert table["kind"].tolist() == [Kind.PUBLISH, Kind.PLAIN, Kind.PLAIN, Kind.ACK]
    assert [copy_bytes(row.value) for row in liftbridge.messages(table)] == [b"v", b"", b"plain"]
    assert liftbridge.messages(table)["parent"].tolist() == [0, 1, 2]


def test_one_payload_and_nulls():
    assert laws.list_frames(liftbridge.scan(PAYLOADS[0])) == PAYLOADS[:1]
    table = liftbridge.scan(pa.array([None, b"x", None]))
    assert list_columns(table, "kind size fault") == [
        (Kind.PLAIN, 0, 0),
        (Kind.PLAIN, 1, 0),
        (Kind.PLAIN, 0, 0),
    ]
    assert len(liftbridge.scan([])) == 0
    assert len(liftbridge.scan(pa.array([], pa.binary()))) == 0


def test_bare_values_are_not_envelopes():
    """Bare values, as in gRPC, are never read as envelopes."""
    table = liftbridge.scan([BODY, b"", b"\x07", b"LIFT"], bare=Kind.PUBLISH)
    assert list_columns(table, "kind body header_size fault") == [(Kind.PUBLISH, 0, 0, 0)] * 4
    messages = liftbridge.messages(table, errors="mark")
    assert messages["fault"].tolist() == [0, 0, Fault.BAD_FIELD, Fault.BAD_FIELD]
    assert copy_bytes(messages.bytes(0, "value")) == b"v"
    table = liftbridge.acks(liftbridge.scan([make_ack(b"name")], bare=Kind.ACK))
    assert copy_bytes(table.bytes(0, "stream")) == b"name"
    for kind in (Kind.PLAIN, Kind.LIFT, Kind.REPLICATION_REQUEST, 7):
        with pytest.raises(ValueError, match="bare"):
            liftbridge.scan([b""], bare=kind)


@checked
@pytest.mark.parametrize("bare", [None, Kind.PUBLISH, Kind.ACK])
def test_a_value_alone_is_scanned_as_in_a_list(check, bare):
    values = [*GOLDEN.values(), b"", b"plain", MAGIC, GOLDEN["message with a checksum"][:-1] + b"x"]
    for value in [*values, *(value[:-1] for value in values)]:
        options = {"check": check, "bare": bare, "errors": "mark"}
        table = liftbridge.scan(value, **options)
        listed = liftbridge.scan([value], **options)
        assert table.rows.tolist() == listed.rows.tolist()
        assert table.buffers == listed.buffers and table.checked == listed.checked
        assert table.errors == listed.errors == "mark"
        if table.bad.any():
            messages = set()
            for source in (value, [value]):
                with pytest.raises(FrameError) as caught:
                    liftbridge.scan(source, check=check, bare=bare)
                messages.add(str(caught.value))
            assert len(messages) == 1


@pytest.mark.parametrize(
    "source, error, reason",
    [
        (7, TypeError, "not int"),
        ([7], TypeError, "not int"),
        ("text", TypeError, "not str"),
        (pa.array([1]), TypeError, "not int64"),
        (pa.array(["x"]), TypeError, "not string"),
        ((b"abc", [0, 4]), ValueError, "0 and 4 are not in order in 3"),
        ((b"abc", [2, 1]), ValueError, "2 and 1 are not in order"),
        ((b"abc", [-1, 2]), ValueError, "-1 and 2 are not in order"),
        ((b"abc", []), ValueError, "the offsets are empty"),
        ((b"abc", [0.0, 1.0]), TypeError, "a pair is"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_bad_sources_are_refused(source, error, reason):
    with pytest.raises(error, match=reason):
        liftbridge.scan(source)


def test_wrong_tables_are_refused():
    envelopes = liftbridge.scan(PAYLOADS)
    messages = liftbridge.messages(liftbridge.scan(PAYLOADS))
    for call in (liftbridge.messages, liftbridge.acks, liftbridge.internal):
        for table in (messages, nats.scan(b"PING\r\n"), b""):
            with pytest.raises(TypeError, match="liftbridge.envelopes"):
                call(table)
    for call, table in (
        (liftbridge.headers, envelopes),
        (liftbridge.entries, messages),
        (liftbridge.scan, messages),
    ):
        with pytest.raises(TypeError, match="a table of|in a table"):
            call(table)
    for call in (liftbridge.scan, liftbridge.entries):
        with pytest.raises(ValueError, match="errors"):
            call(b"", errors="loud")
    for call in (
        lambda limits: liftbridge.scan(PAYLOADS, limits=limits),
        lambda limits: liftbridge.entries(LOG, limits=limits),
        lambda limits: liftbridge.messages(envelopes, limits=limits),
    ):
        with pytest.raises(FrameError, match="LIMIT"):
            call(Limits(rows=2))


# ---- messages and acks


def test_messages_have_columns():
    payloads = [
        make_envelope(SAMPLE),
        b"LIFT" + BODY,
        make_envelope(make_ack(), 1),
        b"whole",
        make_envelope(),
    ]
    envelopes = liftbridge.scan(payloads)
    table = liftbridge.messages(envelopes)
    names = "kind parent size body offset timestamp partition ack_policy header_count"
    assert list_columns(table, names) == [
        (Kind.PUBLISH, 0, len(SAMPLE), 0, -1, 9, 2, 1, 2),
        (Kind.LIFT, 1, 3, 0, 0, 0, 0, 0, 0),
        (Kind.PLAIN, 3, 5, 0, 0, 0, 0, 0, 0),
        (Kind.PUBLISH, 4, 0, 0, 0, 0, 0, 0, 0),
    ]
    assert [tuple(map(copy_bytes, row)) for row in table] == [
        (b"k", b"v", b"s", b"s.2", b"r", b"in", b"id"),
        (None, b"v", *5 * [None]),
        (None, b"whole", *5 * [None]),
        7 * (None,),
    ]
    names = "key value stream subject reply_subject ack_inbox correlation_id"
    assert table.places == tuple(names.split())
    assert table.name == "liftbridge.messages"
    assert table.dtype.itemsize == 112
    assert table.outer is envelopes
    assert list_headers(table) == [[(b"a", b"1"), (b"a", b"2")], [], [], []]


def test_acks_have_columns():
    body = make_ack(b"s", b"p", b"m", -1, b"in", b"id", 2, 5, 6, 3)
    envelopes = liftbridge.scan(
        [b"plain", make_envelope(body, 1), make_envelope(b"", 1), make_envelope(BODY)]
    )
    table = liftbridge.acks(envelopes)
    names = "kind parent offset reception_timestamp commit_timestamp ack_policy ack_error"
    assert list_columns(table, names) == [
        (Kind.ACK, 1, -1, 5, 6, AckPolicy.NONE, AckError.TOO_LARGE),
        (Kind.ACK, 2, 0, 0, 0, 0, 0),
    ]
    assert [tuple(map(copy_bytes, row)) for row in table] == [
        (b"s", b"p", b"m", b"in", b"id"),
        5 * (None,),
    ]
    assert table.name == "liftbridge.acks"
    assert table.dtype.itemsize == 96
    assert table.outer is envelopes


def test_columns_in_the_catalog():
    raw = b"".join(map(make_pub, GOLDEN.values()))
    for name, read in (
        ("messages", liftbridge.messages),
        ("acks", liftbridge.acks),
        ("internal", liftbridge.internal),
    ):
        table = wirescan.scan(raw, f"liftbridge.{name}")
        assert laws.describe_rows(table) == laws.describe_rows(
            read(liftbridge.scan(nats.scan(raw)))
        )
        assert len(table)
    assert format_of("liftbridge.envelopes").parser.scan_values is not None
    assert format_of("liftbridge.messages").columns["timestamp"].unit == "ns"


def test_a_bad_envelope_is_a_bad_row_of_its_content():
    wrong = [make_envelope(BODY, kind, flags=1, header=bytes(4)) for kind in (0, 1, 2)]
    envelopes = liftbridge.scan(wrong, errors="mark")
    for i, read in enumerate((liftbridge.messages, liftbridge.acks, liftbridge.internal)):
        table = read(envelopes, errors="mark")
        assert list_columns(table, "parent fault kind") == [(i, Fault.BAD_CHECKSUM, i)]
        assert len(read(envelopes, errors="skip")) == 0
        with pytest.raises(FrameError, match="BAD_CHECKSUM"):
            read(envelopes, errors="strict")


NEGATIVE = b"\xff" * 9 + b"\1"
RULES = {
    "nothing": (b"", {}),
    "a negative offset": (b"\x08" + NEGATIVE, dict(offset=-1)),
    "the least offset": (b"\x08" + b"\x80" * 9 + b"\1", dict(offset=-(2**63))),
    "a negative partition of ten bytes": (b"\x30" + NEGATIVE, dict(partition=-1)),
    "a negative partition of five bytes": (b"\x30\xff\xff\xff\xff\x0f", dict(partition=-1)),
    "a partition of 33 bits": (b"\x30" + make_varint(2**32 + 7), dict(partition=7)),
    "an unknown policy": (make_field(12, 77), dict(ack_policy=77)),
    "a varint that is longer than it has to be": (b"\x08" + make_varint(5, 10), dict(offset=5)),
    "a tag that is longer than it has to be": (b"\x88\x80\x80\x80\0\5", dict(offset=5)),
    "a length that is longer than it has to be": (b"\x1a\x82\x80\x80\x80\0hi", dict(value=b"hi")),
    "the last one wins": (
        make_message(b"k", b"v") + make_message(b"", b"w", offset=3) + make_field(1, 4),
        dict(key=b"", value=b"w", offset=4),
    ),
    "the last one is 0": (make_field(1, 5) + make_field(1, 0), {}),
    "any order": (
        make_field(11, b"c") + make_field(3, b"v") + make_field(1, 1),
        dict(correlation_id=b"c", value=b"v", offset=1),
    ),
    "empty is not null": (make_field(2, b"") + make_field(3, b""), dict(key=b"", value=b"")),
    "not UTF-8": (make_field(5, b"\xff\xfe"), dict(stream=b"\xff\xfe")),
    "unknown fields": (
        make_field(13, 1)
        + make_field(99, b"x")
        + make_fixed(100)
        + make_fixed(101, 4)
        + make_field(2**29 - 1, b"")
        + BODY,
        dict(value=b"v"),
    ),
    "a group": (make_group(20, make_field(3, b"no")) + BODY, dict(value=b"v")),
    "groups in groups": (
        make_group(1, make_group(3) + make_group(3, make_fixed(2, 4)) + make_field(3, b"x")) + BODY,
        dict(value=b"v"),
    ),
    "100 groups": (make_tag(9, 3) * 100 + make_tag(9, 4) * 100 + BODY, dict(value=b"v")),
    "an integer where bytes should be": (make_field(3, 5), {}),
    "bytes where an integer should be": (make_field(1, b"x"), {}),
    "64 bits where a varint should be": (make_fixed(1) + make_fixed(4), {}),
    "32 bits where bytes should be": (make_fixed(3, 4), {}),
    "a group where bytes should be": (make_group(3, make_field(3, b"x")), {}),
    "a header that is a varint": (make_field(9, 1), {}),
    "an empty header": (make_pair(), dict(header_count=1)),
    "headers between fields": (
        make_pair(b"a") + make_field(1, 1) + make_pair(b"b", b""),
        dict(header_count=2, offset=1),
    ),
    "101 groups": (make_tag(9, 3) * 101 + make_tag(9, 4) * 101, "NESTED"),
    "field number 0": (b"\0\0", "BAD_FIELD"),
    "field number 0 in a group": (make_tag(5, 3) + b"\0" + make_tag(5, 4), "BAD_FIELD"),
    "wire type 6": (b"\x0e\0", "BAD_FIELD"),
    "wire type 7": (b"\x0f\0", "BAD_FIELD"),
    "wire type 7 in a group": (make_group(5, b"\x0f"), "BAD_FIELD"),
    "the end of no group": (make_tag(1, 4), "BAD_FIELD"),
    "the end of another group": (make_tag(1, 3) + make_tag(2, 4), "BAD_FIELD"),
    "a group that is not ended": (make_tag(1, 3), "TRUNCATED"),
    "a group cut in a field": (make_tag(1, 3) + b"\x08", "TRUNCATED"),
    "a varint of eleven bytes": (b"\x08" + b"\x80" * 10 + b"\0", "BAD_VARINT"),
    "a varint of 65 bits": (b"\x08" + b"\xff" * 9 + b"\2", {"offset": 2**63 - 1}),
    "an unknown varint of eleven bytes": (b"\x78" + b"\x80" * 10 + b"\0", "BAD_VARINT"),
    "a tag of 33 bits": (b"\x88\x80\x80\x80\x10\0", "BAD_VARINT"),
    "a length of 33 bits": (b"\x1a\xff\xff\xff\xff\x10v", "BAD_VARINT"),
    "a tag without an end": (b"\x88", "TRUNCATED"),
    "a varint without an end": (b"\x08\xff", "TRUNCATED"),
    "no varint": (b"\x08", "TRUNCATED"),
    "no length": (b"\x1a", "TRUNCATED"),
    "a length beyond the end": (b"\x1a\2v", "TRUNCATED"),
    "a length of 4 GiB": (b"\x1a\xff\xff\xff\xff\x0fv", "TRUNCATED"),
    "an unknown length beyond": (b"\x7a\2v", "TRUNCATED"),
    "three bytes of four": (make_fixed(20, 4)[:-1], "TRUNCATED"),
    "seven bytes of eight": (make_fixed(20)[:-1], "TRUNCATED"),
    "good fields, and then a bad one": (SAMPLE + b"\x07", "BAD_FIELD"),
    "a bad field in a header": (make_field(9, b"\x0a\1k\0"), "BAD_FIELD"),
    "a header that is cut": (make_field(9, b"\x0a\5k"), "TRUNCATED"),
}


@pytest.mark.parametrize("body, outcome", RULES.values(), ids=RULES)
def test_bodies_are_read_as_protocol_buffers(body, outcome):
    assert read_body(body) == outcome


@pytest.mark.parametrize(
    "read, kind", [(liftbridge.acks, 1), (liftbridge.internal, 2), (liftbridge.internal, 14)]
)
def test_the_same_rules_for_all_payloads(read, kind):
    for body, outcome in RULES.values():
        values = read_payload(make_envelope(body, kind), read)
        # Only messages have headers. Elsewhere, field 9 is unknown and its content is not read.
        is_header = body[:1] == make_tag(9, 2)
        if isinstance(outcome, dict) or is_header:
            assert isinstance(values, dict)
        else:
            assert values == outcome


def test_a_lift_message_is_read_like_an_envelope():
    assert read_payload(b"LIFT" + SAMPLE) == read_payload(make_envelope(SAMPLE))
    assert read_payload(b"LIFT\x07") == "BAD_FIELD"
    assert drop_nulls(read_payload(b"\x07")) == dict(value=b"\x07")


# ---- headers


def test_messages_have_headers():
    pairs = (
        make_pair(b"k", b"v")
        + make_field(1, 5)
        + make_pair(b"", None)
        + make_pair(None, b"")
        + make_pair(b"k", b"w")
    )
    odd_pair = make_field(
        9, make_field(2, b"v") + make_field(1, b"a") + make_field(3, 1) + make_field(1, b"k")
    )
    raw = [make_envelope(pairs), b"plain", make_envelope(odd_pair, crc=True)]
    messages = liftbridge.messages(liftbridge.scan(raw))
    table = liftbridge.headers(messages)
    assert [tuple(map(copy_bytes, row)) for row in table] == [
        (b"k", b"v"),
        (b"", None),
        (None, b""),
        (b"k", b"w"),
        (b"k", b"v"),
    ]
    assert table["parent"].tolist() == [0, 0, 0, 0, 2]
    assert table.outer is messages
    assert list_columns(table[:2], "start size body key_at key_size value_at value_size") == [
        (8, 8, 2, 4, 1, 7, 1),
        (18, 4, 2, 4, 0, 0, -1),
    ]
    assert table.name == "liftbridge.headers"
    assert table.dtype.itemsize == 40
    for payload in raw:
        laws.keeps_every_law(PACKAGE, make_pub(payload), [5, 9])


def test_headers_of_bad_messages():
    envelopes = liftbridge.scan(
        [make_envelope(make_pair(b"k") + b"\0"), make_envelope(make_pair(b"k"))]
    )
    messages = liftbridge.messages(envelopes, errors="mark")
    table = liftbridge.headers(messages, errors="mark")
    assert list_columns(table, "parent fault size") == [(0, Fault.BAD_FIELD, 6), (1, 0, 5)]
    with pytest.raises(FrameError, match="BAD_FIELD"):
        liftbridge.headers(messages, errors="strict")


# ---- messages between servers

EXPECTED = {
    2: dict(id=b"a", offset=7, leader_epoch=3),
    3: dict(leader_epoch=3, high_watermark=-1, entries=LOG),
    4: dict(id=b"a", host=b"host"),
    5: dict(error=b"no"),
    6: dict(leader_epoch=5),
    7: dict(end_offset=-1),
    8: dict(
        op=4,
        operation=make_fields(b"s", 1, b"r", b"l", 2),
        stream=b"s",
        partition=1,
        replica=b"r",
        leader=b"l",
        leader_epoch=2,
    ),
    9: dict(op=1, error_code=13, error=b"no", coordinator=b"c", epoch=2),
    10: dict(id=b"a"),
    11: dict(id=b"a", host=b"host", port=9292),
    12: dict(stream=b"s", partition=1),
    13: dict(exists=1, is_leader=1),
    14: dict(stream=b"s", partition=1),
}


@pytest.mark.parametrize("kind", INTERNAL)
def test_internal_payloads_have_columns(kind):
    values = read_payload(make_envelope(INTERNAL[kind], kind), liftbridge.internal)
    assert values.pop("op") == EXPECTED[kind].get("op", -1)
    expected = {name: value for name, value in EXPECTED[kind].items() if name != "op"}
    assert drop_nulls(values) == expected
    empty = make_envelope(b"", kind)
    values = read_payload(empty, liftbridge.internal)
    if kind == Kind.REPLICATION_RESPONSE:
        assert values == "TRUNCATED"
    else:
        assert not drop_nulls(values | dict(op=0))
    laws.keeps_every_law(
        PACKAGES["liftbridge.internal"], make_pub(make_envelope(INTERNAL[kind], kind)), [9, 20]
    )


OPERATIONS = {
    2: (make_fields(make_fields(b"s", b"subject")), dict(stream=b"s")),
    3: (
        make_fields(b"s", 1, b"r", b"l", 2),
        dict(stream=b"s", partition=1, replica=b"r", leader=b"l", leader_epoch=2),
    ),
    5: (make_fields(b"s", 1, b"r"), dict(stream=b"s", partition=1, replica=b"r")),
    6: (make_fields(b"s"), dict(stream=b"s")),
    7: (make_fields(b"s", b"\0\1", 1), dict(stream=b"s")),
    8: (make_fields(b"s", b"\0"), dict(stream=b"s")),
    9: (make_fields(b"s", b"\0", 1), dict(stream=b"s")),
    10: (make_fields(b"g", b"c", b"s"), dict(group=b"g", consumer=b"c")),
    11: (make_fields(b"g", b"c", 1), dict(group=b"g", consumer=b"c")),
    12: (
        make_fields(b"g", b"c", b"o", 4),
        dict(group=b"g", consumer=b"c", coordinator=b"o", epoch=4),
    ),
    13: (b"x", {}),
}


@pytest.mark.parametrize("number", OPERATIONS)
def test_operations_have_columns(number):
    body, expected = OPERATIONS[number]
    payload = make_envelope(make_fields(9) + make_field(number, body), 8)
    operation = dict(operation=body) if number < 13 else {}
    values = drop_nulls(read_payload(payload, liftbridge.internal))
    assert values == dict(op=9) | operation | expected


def test_operation_numbers_above_16_bits():
    """The number does not wrap to another operation."""
    for op in 0x8000, 65_535, 65_541, 2**32 + 5, 2**64 - 1:
        assert (
            read_payload(make_envelope(make_field(1, op), 9), liftbridge.internal)["op"] == 0x7FFF
        )


def test_only_kinds_between_servers_are_internal():
    table = liftbridge.internal(liftbridge.scan([*GOLDEN.values()]))
    assert table["kind"].tolist() == list(range(2, 15))
    assert table.name == "liftbridge.internal"
    assert read_payload(make_envelope(b"\0" * 15, 3), liftbridge.internal) == "TRUNCATED"
    values = read_payload(make_envelope(b"\0" * 16, 3), liftbridge.internal)
    assert drop_nulls(values | dict(op=0)) == dict(entries=b"")


# ---- entries


def test_entries_have_columns():
    table = liftbridge.entries(LOG)
    names = "start body offset timestamp leader_epoch magic attributes header_count parent"
    assert list_columns(table, names) == [
        (0, 28, 5, 9, 1, 1, 0, 2, -1),
        (71, 28, 8, 0, 0, 1, 0, 0, -1),
        (115, 28, 9, 0, 0, 1, 0, 0, -1),
    ]
    assert [tuple(map(copy_bytes, row)) for row in table] == [
        (b"k", b"v"),
        (None, b""),
        (b"", None),
    ]
    assert list_headers(table) == [[(b"subject", b"s"), (b"reply", None)], [], []]
    assert table.name == "liftbridge.entries"
    assert table.dtype.itemsize == 80
    assert table.stop == (0, len(LOG), 0)
    checksums = [int.from_bytes(LOG[at + 28 : at + 32], "big") for at in (0, 71, 115)]
    assert table["crc"].tolist() == checksums


def test_entries_hold_extreme_numbers():
    raw = make_record(offset=-(2**63), timestamp=-1, leader_epoch=2**64 - 1, attributes=-1)
    (row,) = liftbridge.entries(raw)
    assert row.offset == -(2**63)
    assert row.timestamp == -1
    assert row.leader_epoch == 2**64 - 1
    assert row.attributes == -1


def list_faults(raw, **options):
    table = liftbridge.entries(raw, errors="mark", **options)
    return [Fault(fault).name for fault in table["fault"].tolist()]


def make_payload_of_size(size):
    return LOG[:24] + struct.pack(">I", size) + LOG[28:]


NEXT = make_record(b"next", b"x" * 30, offset=99)
RECORDS = {
    "another magic": (seal_record(make_entry_message(magic=0)), "BAD_MAGIC"),
    "magic -1": (seal_record(make_entry_message(magic=-1)), "BAD_MAGIC"),
    "a key of -2": (seal_record(b"\1\0" + b"\xff\xff\xff\xfe" + bytes(6)), "BAD_NULL"),
    "a value of -2**31": (seal_record(b"\1\0" + bytes(4) + b"\x80\0\0\0" + bytes(2)), "BAD_NULL"),
    "a key beyond the record": (seal_record(b"\1\0" + b"\0\0\0\7" + bytes(6)), "TRUNCATED"),
    "a value beyond the record": (
        seal_record(b"\1\0" + bytes(4) + b"\x7f\xff\xff\xff" + bytes(2)),
        "TRUNCATED",
    ),
    "headers beyond the record": (seal_record(make_entry_message()[:-2] + b"\0\1"), "TRUNCATED"),
    "a name beyond the record": (
        seal_record(make_entry_message()[:-2] + b"\0\1\0\x20name"),
        "TRUNCATED",
    ),
    "a header's value of -2": (
        seal_record(make_entry_message()[:-2] + b"\0\1\0\1n\xff\xff\xff\xfe"),
        "BAD_NULL",
    ),
    "a header's value beyond the record": (
        seal_record(make_entry_message()[:-2] + b"\0\1\0\1n\0\0\0\1"),
        "TRUNCATED",
    ),
    "a byte behind": (seal_record(make_entry_message(more=b"\0")), "LEFTOVER"),
    "fewer headers than there are": (
        seal_record(make_entry_message(more=b"\0\0\xff\xff\xff\xff")),
        "LEFTOVER",
    ),
}


@pytest.mark.parametrize("raw, fault", RECORDS.values(), ids=RECORDS)
def test_bad_records_have_faults(raw, fault):
    assert list_faults(NEXT + raw + NEXT) == ["OK", fault, "OK"]
    with pytest.raises(FrameError, match=fault) as caught:
        liftbridge.entries(NEXT + raw)
    assert caught.value.offset == len(NEXT)
    for check in (True, False):
        entries = PACKAGES["liftbridge.entries"]
        laws.keeps_every_law(entries, NEXT + raw + NEXT, [30, 90], check=check)
    envelopes = liftbridge.scan([make_envelope(make_response(NEXT + raw + NEXT), 3)])
    whole = liftbridge.entries(envelopes, errors="mark")
    assert [Fault(number).name for number in whole["fault"].tolist()] == ["OK", fault, "OK"]


@pytest.mark.parametrize("size", [0, 1, 15, 2**31, 2**32 - 1])
def test_impossible_sizes_of_records(size):
    """The next record is recognized by its checksum."""
    assert list_faults(NEXT + make_payload_of_size(size) + NEXT) == [
        "OK",
        "BAD_LENGTH",
        "OK",
        "OK",
        "OK",
    ]
    with pytest.raises(FrameError, match="BAD_LENGTH") as caught:
        liftbridge.entries(NEXT + make_payload_of_size(size) + NEXT)
    assert caught.value.offset == len(NEXT)
    laws.keeps_every_law(
        PACKAGES["liftbridge.entries"], NEXT + make_payload_of_size(size) + NEXT, [30, 90]
    )


def test_a_size_past_the_end_is_a_fault_if_records_follow():
    assert list_faults(make_payload_of_size(10_000)) == ["BAD_LENGTH", "OK", "OK"]
    assert liftbridge.entries(make_payload_of_size(10_000)[:71]).stop[:2] == (Fault.SHORT, 0)


def test_wrong_checksums_are_faults():
    for at in range(28, 71):
        raw = bytearray(LOG)
        raw[at] ^= 1
        assert list_faults(raw) == ["BAD_CHECKSUM", "OK", "OK"]
    raw = LOG[:28] + bytes(4) + LOG[32:]
    assert list_faults(raw, check=False) == ["OK", "OK", "OK"]
    for at in range(24):  # the checksum does not cover the fields that a server sets
        raw = bytearray(LOG)
        raw[at] ^= 1
        assert list_faults(raw) == ["OK", "OK", "OK"]


def test_logs_end_with_cuts_or_zeros():
    for cut in range(71, len(LOG)):
        table = liftbridge.entries(LOG[:cut])
        fault = Fault.OK if cut in (71, 115) else Fault.SHORT
        assert table.stop[:2] == (fault, 71 if cut < 115 else 115)
    assert liftbridge.entries(LOG + bytes(28)).stop[:2] == (Fault.ZEROS, len(LOG))
    assert liftbridge.entries(LOG + bytes(27)).stop[:2] == (Fault.SHORT, len(LOG))
    assert list_faults(LOG + bytes(100) + b"\1") == ["OK", "OK", "OK", "BAD_LENGTH"]
    assert list_faults(LOG + bytes(100) + NEXT) == ["OK", "OK", "OK", "BAD_LENGTH", "OK"]


def test_responses_hold_entries():
    raw = [
        b"plain",
        make_envelope(make_response(LOG, 3, 7), 3),
        make_envelope(make_response(), 3),
        make_envelope(make_response(NEXT + LOG[:90]), 3, crc=True),
        make_envelope(bytes(15), 3),
        make_envelope(make_response(NEXT), 3, flags=1, header=bytes(4)),
        make_envelope(make_response(bytes(30)), 3),
    ]
    envelopes = liftbridge.scan(raw, errors="mark")
    table = liftbridge.entries(envelopes, errors="mark")
    assert table["parent"].tolist() == [1, 1, 1, 3, 3, 3, 4, 5, 6]
    assert table.outer is envelopes
    names = [Fault(fault).name for fault in table["fault"].tolist()]
    assert names == [*5 * ["OK"], "TRUNCATED", "TRUNCATED", "BAD_CHECKSUM", "TRUNCATED"]
    assert table["offset"].tolist()[:5] == [5, 8, 9, 99, 5]
    rows = reference.read_response_entries(envelopes.buffers[0], laws.list_rows(envelopes))
    assert laws.list_rows(table) == rows
    data = bytes(envelopes.buffers[0])
    headers = []
    for i, row in enumerate(rows):
        headers += reference.read_entry_headers(data, row, i)
    assert laws.list_rows(liftbridge.headers(table, errors="mark")) == headers
    with pytest.raises(FrameError, match="TRUNCATED"):
        liftbridge.entries(envelopes[:5], errors="strict")


def test_entries_have_headers():
    with_headers = seal_record(make_entry_message(headers=[(b"", b""), (b"n", None)]))
    raw = LOG + with_headers + RECORDS["a byte behind"][0]
    entries = liftbridge.entries(raw, errors="mark")
    table = liftbridge.headers(entries, errors="mark")
    assert [tuple(map(copy_bytes, row)) for row in table] == [
        (b"subject", b"s"),
        (b"reply", None),
        (b"", b""),
        (b"n", None),
        (None, None),
    ]
    assert table["parent"].tolist() == [0, 0, 3, 3, 4]
    assert table.name == "liftbridge.headers"
    names = "start size body key_at key_size value_at value_size"
    assert list_columns(table[:1], names) == [(46, 14, 2, 2, 7, 13, 1)]
    headers = []
    for i, row in enumerate(laws.list_rows(entries)):
        headers += reference.read_entry_headers(raw, row, i)
    assert laws.list_rows(table) == headers


def test_values_that_look_like_an_envelope():
    """A server stores a message that it cannot read as it came."""
    (row,) = liftbridge.entries(make_record(value=make_envelope(BODY, 1)))
    assert bytes(row.value) == make_envelope(BODY, 1)


# ---- laws, rows, pickles


@pytest.mark.parametrize("payload", GOLDEN.values(), ids=GOLDEN)
@checked
def test_golden_payloads_keep_the_laws(payload, check):
    raw = make_pub(payload) + make_hmsg(payload)
    for name in ("liftbridge", "liftbridge.acks", "liftbridge.internal"):
        laws.keeps_every_law(PACKAGES[name], raw, list(range(0, len(raw), 23)), check=check)


def test_forged_rows_do_no_harm():
    """Forged rows raise an error, or their byte columns lie inside their frames."""
    envelopes = liftbridge.scan([*GOLDEN.values()])
    messages = liftbridge.messages(envelopes)
    entries = liftbridge.entries(LOG)
    reads = liftbridge.messages, liftbridge.acks, liftbridge.internal, liftbridge.entries
    inner = (messages, liftbridge.headers), (entries, liftbridge.headers)
    for table, read in [*((envelopes, read) for read in reads), *inner]:
        for column in table.dtype.names:
            for value in (-1, 1, 3, 40, 255, 10**4, 2**31 - 1, 2**32 - 1):
                rows = table.rows.copy()
                bounds = np.iinfo(rows.dtype[column])
                rows[column] = min(max(value, bounds.min), bounds.max)
                try:
                    for row in read(replace(table, rows=rows), errors="mark"):
                        assert all(len(string) <= row.size for string in row if string is not None)
                except (ValueError, IndexError):
                    continue


def test_pickled_tables_have_the_same_rows():
    table = liftbridge.headers(liftbridge.messages(liftbridge.scan([make_envelope(SAMPLE)])))
    assert laws.describe_rows(pickle.loads(pickle.dumps(table))) == laws.describe_rows(table)
