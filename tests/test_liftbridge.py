"""Liftbridge tables: envelopes and their faults, messages, acks, what servers say to each other, entries, headers."""
import pickle
import struct
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import laws
import wirescan
from reference import liftbridge as reference
from rooms import ROOMS, as_bytes
from strategies.liftbridge import (
    GOLDEN, INTERNAL, LOG, MAGIC, SAMPLE, ack, entry_message, envelope, field, fields, fixed, group, message, pair,
    record, response, sealed, tag, varint)
from strategies.nats import hmsg, hpub, msg, pub
from wirescan import Fault, FrameError, Limits, liftbridge, nats
from wirescan.catalog import format_of
from wirescan.core.loop import HEAD
from wirescan.liftbridge import AckError, AckPolicy, Kind

ROOM = ROOMS["liftbridge"]
checked = pytest.mark.parametrize("check", [True, False], ids=["check", "no check"])


def columns(table, names):
    return table.rows[names.split()].tolist()


def headers_of(table):
    return [[tuple(map(as_bytes, pair)) for pair in row.headers] for row in table]


def opened(payload, read=liftbridge.messages, **options):
    """The one row of a payload, as a dict of what it says, places as bytes; or the name of its fault."""
    table = read(liftbridge.scan([payload], errors="mark", **options), errors="mark")
    row, = table
    if row.fault:
        assert all(getattr(row, name) is None for name in table.places)
        assert not any(value for name, value in laws.rows_of(table)[0].items() if name not in HEAD.names)
        return Fault(row.fault).name
    return {name: as_bytes(getattr(row, name)) if name in table.places else int(getattr(row, name))
            for name in (*table.places, *table.dtype.names)
            if name not in ("start", "size", "body", "parent", "buffer", "kind", "fault", "headers_at")
            and not name.endswith(("_at", "_size"))}


def set_in(said):
    """What is not 0 or null."""
    return {name: value for name, value in said.items() if value not in (0, None)}


def protobuf(body):
    """What a message says, or why it is bad; the laws hold too."""
    laws.agrees_with_the_reference(ROOM, pub(envelope(body)))
    said = opened(envelope(body))
    return said if isinstance(said, str) else set_in(said)


# ------------------------------------------------------------------------------------------- envelopes

def test_envelopes():
    payloads = [envelope(b"\x1a\1v"), envelope(b"", 1, crc=True), b"LIFT\x1a\1v", b"plain", b""]
    raw = b"PING\r\n" + pub(payloads[0]) + msg(payloads[1]) + hpub(payloads[2]) + hmsg(payloads[3]) + pub(payloads[4])
    outer = nats.scan(raw)
    table = liftbridge.scan(outer)
    assert columns(table, "kind parent size body crc version header_size flags") == [
        (Kind.PUBLISH, 1, 11, 8, 0, 0, 8, 0), (Kind.ACK, 2, 12, 12, 0, 0, 12, 1), (Kind.LIFT, 3, 7, 4, 0, 0, 0, 0),
        (Kind.PLAIN, 4, 5, 0, 0, 0, 0, 0), (Kind.PLAIN, 5, 0, 0, 0, 0, 0, 0)]
    assert laws.frames_of(table) == payloads and table.outer is outer and table.buffers == outer.buffers
    assert [bytes(table.payload(i)) for i in range(5)] == [b"\x1a\1v", b"", b"\x1a\1v", b"plain", b""]
    assert table.name == "liftbridge.envelopes" and table.dtype.itemsize == 32
    assert laws.meaning(wirescan.scan(raw, "liftbridge.envelopes")) == laws.meaning(table)


def test_names_of_numbers():
    kinds = format_of("liftbridge.envelopes").kinds
    assert [kinds[number] for number in (0, 1, 2, 3, 9, 14, 254, 255)] == [
        "PUBLISH", "ACK", "REPLICATION_REQUEST", "REPLICATION_RESPONSE", "PROPAGATED_RESPONSE",
        "PARTITION_NOTIFICATION", "LIFT", "PLAIN"]
    assert len(kinds) == 17 and [policy.name for policy in AckPolicy] == ["LEADER", "ALL", "NONE"]
    assert [error.name for error in AckError] == ["OK", "UNKNOWN", "INCORRECT_OFFSET", "TOO_LARGE", "ENCRYPTION"]


BODY = message(value=b"v")
ENVELOPES = {
    "eight bytes": (envelope(), Kind.PUBLISH), "a checksum": (envelope(BODY, crc=True), Kind.PUBLISH),
    "a checksum of nothing": (envelope(b"", crc=True), Kind.PUBLISH),
    "unknown flags": (envelope(BODY, flags=0xFE), Kind.PUBLISH),
    "unknown flags and a checksum": (envelope(BODY, crc=True, flags=0x80), Kind.PUBLISH),
    "a header of 12 without a checksum": (envelope(BODY, header=b"junk"), Kind.PUBLISH),
    "the longest header": (envelope(BODY, header=bytes(247)), Kind.PUBLISH),
    "the last kind": (envelope(b"", 14), Kind.PARTITION_NOTIFICATION),
    "no bytes": (b"", Kind.PLAIN), "three bytes of the magic": (MAGIC[:3], Kind.PLAIN),
    "a byte before the magic": (b"\0" + envelope(), Kind.PLAIN),
    "another magic": (b"\xb9\x0e\x43\xb5" + bytes(4), Kind.PLAIN),
    "the cookie": (b"LIFT", Kind.LIFT), "half a cookie": (b"LIF", Kind.PLAIN),
    "a cookie in lower case": (b"lift", Kind.PLAIN),
    "the magic alone": (MAGIC, "TRUNCATED"), "seven bytes": (MAGIC + bytes(3), "TRUNCATED"),
    "a header beyond the payload": (MAGIC + b"\0\x09\0\0", "TRUNCATED"),
    "a checksum beyond the payload": (MAGIC + b"\0\x0c\1\0\0\0\0", "TRUNCATED"),
    "version 1": (envelope(BODY, version=1), "BAD_VERSION"),
    "version 1, and all else wrong": (MAGIC + b"\1\7\1\xff", "BAD_VERSION"),
    "a header of no bytes": (MAGIC + bytes(4), "BAD_HEADER"),
    "a header of 7": (MAGIC + b"\0\7\0\0" + BODY, "BAD_HEADER"),
    "a checksum in a header of 8": (envelope(BODY, flags=1), "BAD_HEADER"),
    "a checksum in a header of 13": (envelope(BODY, flags=1, header=bytes(5)), "BAD_HEADER"),
    "kind 15": (envelope(BODY, 15), "BAD_KIND"), "kind 255": (envelope(BODY, 255), "BAD_KIND"),
    "kind 15 and a wrong checksum": (envelope(BODY, 15, flags=1, header=bytes(4)), "BAD_KIND"),
    "a wrong checksum": (envelope(BODY, flags=1, header=bytes(4)), "BAD_CHECKSUM"),
    "a damaged payload": (envelope(BODY, crc=True)[:-1] + b"w", "BAD_CHECKSUM"),
}


@pytest.mark.parametrize("payload, outcome", ENVELOPES.values(), ids=ENVELOPES)
def test_what_an_envelope_is(payload, outcome):
    table = liftbridge.scan([payload, b"next"], errors="mark")
    fault = isinstance(outcome, str)
    assert Fault(table["fault"][0]).name == (outcome if fault else "OK") and table["kind"][1] == Kind.PLAIN
    assert bytes(table.frame(0)) == payload and len(liftbridge.scan([payload, b"next"], errors="skip")) == 2 - fault
    if fault:
        with pytest.raises(FrameError, match=outcome):
            liftbridge.scan([payload])
    else:
        assert table["kind"][0] == outcome
    for name in ("liftbridge", "liftbridge.acks", "liftbridge.internal"):
        for check in (True, False):
            laws.agrees_with_the_reference(ROOMS[name], pub(payload) + msg(b"next"), check)


def test_without_a_check_the_checksum_is_not_looked_at():
    wrong = envelope(BODY, flags=1, header=b"\1\2\3\4")
    table = liftbridge.scan([wrong], check=False)
    assert columns(table, "crc body fault") == [(0x01020304, 12, 0)]
    assert set_in(opened(wrong, check=False)) == dict(value=b"v")


def test_the_checksum_is_not_one_of_the_header():
    good = bytearray(envelope(ack(), 1, crc=True))
    good[6], good[7] = 0xFF, 4
    assert liftbridge.scan([good])["kind"].tolist() == [Kind.RAFT_JOIN_REQUEST]


# ------------------------------------------------------------------------------------------- where payloads lie

PAYLOADS = [envelope(BODY), b"", b"plain", envelope(ack(), 1, crc=True)]


def sources():
    data, offsets = b"".join(PAYLOADS), np.cumsum([0, *map(len, PAYLOADS)])
    yield "a list", PAYLOADS
    yield "a tuple", tuple(map(bytearray, PAYLOADS))
    yield "a pair", (data, offsets)
    yield "a pair of lists", (data, offsets.tolist())
    for type_ in (pa.binary(), pa.large_binary()):
        yield str(type_), pa.array(PAYLOADS, type_)
        yield f"part of {type_}", pa.array([b"before", *PAYLOADS, b"behind"], type_)[1:-1]
        yield f"chunks of {type_}", pa.chunked_array([pa.array(PAYLOADS[:1], type_), pa.array(PAYLOADS[1:], type_)])
    yield "messages", nats.scan(b"".join(map(pub, PAYLOADS)))


@pytest.mark.parametrize("source", [source for _, source in sources()], ids=[name for name, _ in sources()])
def test_sources(source):
    table = liftbridge.scan(source)
    assert laws.frames_of(table) == PAYLOADS
    assert table["kind"].tolist() == [Kind.PUBLISH, Kind.PLAIN, Kind.PLAIN, Kind.ACK]
    assert [as_bytes(row.value) for row in liftbridge.messages(table)] == [b"v", b"", b"plain"]
    assert liftbridge.messages(table)["parent"].tolist() == [0, 1, 2]


def test_one_payload_and_nulls():
    assert laws.frames_of(liftbridge.scan(PAYLOADS[0])) == PAYLOADS[:1]
    table = liftbridge.scan(pa.array([None, b"x", None]))
    assert columns(table, "kind size fault") == [(Kind.PLAIN, 0, 0), (Kind.PLAIN, 1, 0), (Kind.PLAIN, 0, 0)]
    assert len(liftbridge.scan([])) == 0 == len(liftbridge.scan(pa.array([], pa.binary())))


def test_bare_values():
    """As gRPC has them: what would be an envelope is none."""
    table = liftbridge.scan([BODY, b"", b"\x07", b"LIFT"], bare=Kind.PUBLISH)
    assert columns(table, "kind body header_size fault") == [(Kind.PUBLISH, 0, 0, 0)] * 4
    found = liftbridge.messages(table, errors="mark")
    assert found["fault"].tolist() == [0, 0, Fault.BAD_FIELD, Fault.BAD_FIELD]
    assert as_bytes(found.bytes(0, "value")) == b"v"
    table = liftbridge.acks(liftbridge.scan([ack(b"name")], bare=Kind.ACK))
    assert as_bytes(table.bytes(0, "stream")) == b"name"
    for kind in (Kind.PLAIN, Kind.LIFT, Kind.REPLICATION_REQUEST, 7):
        with pytest.raises(ValueError, match="bare"):
            liftbridge.scan([b""], bare=kind)


@pytest.mark.parametrize("source, error", [
    (7, TypeError), ([7], TypeError), ("text", TypeError), (pa.array([1]), TypeError), (pa.array(["x"]), TypeError),
    ((b"abc", [0, 4]), ValueError), ((b"abc", [2, 1]), ValueError), ((b"abc", [-1, 2]), ValueError),
    ((b"abc", []), ValueError), ((b"abc", [0.0, 1.0]), TypeError)], ids=lambda value: type(value).__name__)
def test_no_sources(source, error):
    with pytest.raises(error):
        liftbridge.scan(source)


def test_arguments():
    envelopes, messages = liftbridge.scan(PAYLOADS), liftbridge.messages(liftbridge.scan(PAYLOADS))
    for call in (liftbridge.messages, liftbridge.acks, liftbridge.internal):
        for table in (messages, nats.scan(b"PING\r\n"), b""):
            with pytest.raises(TypeError, match="liftbridge.envelopes"):
                call(table)
    for call, table in ((liftbridge.headers, envelopes), (liftbridge.entries, messages), (liftbridge.scan, messages)):
        with pytest.raises(TypeError):
            call(table)
    for call in (liftbridge.scan, liftbridge.entries):
        with pytest.raises(ValueError, match="errors"):
            call(b"", errors="loud")
    for call in (lambda limits: liftbridge.scan(PAYLOADS, limits=limits),
                 lambda limits: liftbridge.entries(LOG, limits=limits),
                 lambda limits: liftbridge.messages(envelopes, limits=limits)):
        with pytest.raises(FrameError, match="LIMIT"):
            call(Limits(rows=2))


# ------------------------------------------------------------------------------------------- messages and acks

def test_messages():
    envelopes = liftbridge.scan([envelope(SAMPLE), b"LIFT" + BODY, envelope(ack(), 1), b"whole", envelope()])
    table = liftbridge.messages(envelopes)
    assert columns(table, "kind parent size body offset timestamp partition ack_policy header_count") == [
        (Kind.PUBLISH, 0, len(SAMPLE), 0, -1, 9, 2, 1, 2), (Kind.LIFT, 1, 3, 0, 0, 0, 0, 0, 0),
        (Kind.PLAIN, 3, 5, 0, 0, 0, 0, 0, 0), (Kind.PUBLISH, 4, 0, 0, 0, 0, 0, 0, 0)]
    assert [tuple(map(as_bytes, row)) for row in table] == [
        (b"k", b"v", b"s", b"s.2", b"r", b"in", b"id"), (None, b"v", *5 * [None]), (None, b"whole", *5 * [None]),
        7 * (None,)]
    assert table.places == ("key", "value", "stream", "subject", "reply_subject", "ack_inbox", "correlation_id")
    assert table.name == "liftbridge.messages" and table.dtype.itemsize == 112 and table.outer is envelopes
    assert headers_of(table) == [[(b"a", b"1"), (b"a", b"2")], [], [], []]


def test_acks():
    body = ack(b"s", b"p", b"m", -1, b"in", b"id", 2, 5, 6, 3)
    envelopes = liftbridge.scan([b"plain", envelope(body, 1), envelope(b"", 1), envelope(BODY)])
    table = liftbridge.acks(envelopes)
    assert columns(table, "kind parent offset reception_timestamp commit_timestamp ack_policy ack_error") == [
        (Kind.ACK, 1, -1, 5, 6, AckPolicy.NONE, AckError.TOO_LARGE), (Kind.ACK, 2, 0, 0, 0, 0, 0)]
    assert [tuple(map(as_bytes, row)) for row in table] == [(b"s", b"p", b"m", b"in", b"id"), 5 * (None,)]
    assert table.name == "liftbridge.acks" and table.dtype.itemsize == 96 and table.outer is envelopes


def test_columns_in_the_catalog():
    raw = b"".join(map(pub, GOLDEN.values()))
    for name, read in (("messages", liftbridge.messages), ("acks", liftbridge.acks), ("internal", liftbridge.internal)):
        table = wirescan.scan(raw, f"liftbridge.{name}")
        assert laws.meaning(table) == laws.meaning(read(liftbridge.scan(nats.scan(raw)))) and len(table)
    assert format_of("liftbridge.envelopes").values is not None
    assert "timestamp" in format_of("liftbridge.messages").nanoseconds


def test_a_bad_envelope_is_a_bad_row_of_what_it_holds():
    wrong = [envelope(BODY, kind, flags=1, header=bytes(4)) for kind in (0, 1, 2)]
    envelopes = liftbridge.scan(wrong, errors="mark")
    for i, read in enumerate((liftbridge.messages, liftbridge.acks, liftbridge.internal)):
        table = read(envelopes, errors="mark")
        assert columns(table, "parent fault kind") == [(i, Fault.BAD_CHECKSUM, i)]
        assert len(read(envelopes, errors="skip")) == 0
        with pytest.raises(FrameError, match="BAD_CHECKSUM"):
            read(envelopes)


NEGATIVE = b"\xff" * 9 + b"\1"
RULES = {
    "nothing": (b"", {}),
    "a negative offset": (b"\x08" + NEGATIVE, dict(offset=-1)),
    "the least offset": (b"\x08" + b"\x80" * 9 + b"\1", dict(offset=-2**63)),
    "a negative partition of ten bytes": (b"\x30" + NEGATIVE, dict(partition=-1)),
    "a negative partition of five bytes": (b"\x30\xff\xff\xff\xff\x0f", dict(partition=-1)),
    "a partition of 33 bits": (b"\x30" + varint(2**32 + 7), dict(partition=7)),
    "an unknown policy": (field(12, 77), dict(ack_policy=77)),
    "a varint that is longer than it has to be": (b"\x08" + varint(5, 10), dict(offset=5)),
    "a tag that is longer than it has to be": (b"\x88\x80\x80\x80\0\5", dict(offset=5)),
    "a length that is longer than it has to be": (b"\x1a\x82\x80\x80\x80\0hi", dict(value=b"hi")),
    "the last one wins": (message(b"k", b"v") + message(b"", b"w", offset=3) + field(1, 4),
                          dict(key=b"", value=b"w", offset=4)),
    "the last one is 0": (field(1, 5) + field(1, 0), {}),
    "any order": (field(11, b"c") + field(3, b"v") + field(1, 1), dict(correlation_id=b"c", value=b"v", offset=1)),
    "empty is not null": (field(2, b"") + field(3, b""), dict(key=b"", value=b"")),
    "not UTF-8": (field(5, b"\xff\xfe"), dict(stream=b"\xff\xfe")),
    "unknown fields": (field(13, 1) + field(99, b"x") + fixed(100) + fixed(101, 4) + field(2**29 - 1, b"") + BODY,
                       dict(value=b"v")),
    "a group": (group(20, field(3, b"no")) + BODY, dict(value=b"v")),
    "groups in groups": (group(1, group(3) + group(3, fixed(2, 4)) + field(3, b"x")) + BODY, dict(value=b"v")),
    "100 groups": (tag(9, 3) * 100 + tag(9, 4) * 100 + BODY, dict(value=b"v")),
    "an integer where bytes should be": (field(3, 5), {}), "bytes where an integer should be": (field(1, b"x"), {}),
    "64 bits where a varint should be": (fixed(1) + fixed(4), {}), "32 bits where bytes should be": (fixed(3, 4), {}),
    "a group where bytes should be": (group(3, field(3, b"x")), {}),
    "a header that is a varint": (field(9, 1), {}), "an empty header": (pair(), dict(header_count=1)),
    "headers between fields": (pair(b"a") + field(1, 1) + pair(b"b", b""), dict(header_count=2, offset=1)),
    "101 groups": (tag(9, 3) * 101 + tag(9, 4) * 101, "NESTED"),
    "field number 0": (b"\0\0", "BAD_FIELD"), "field number 0 in a group": (tag(5, 3) + b"\0" + tag(5, 4), "BAD_FIELD"),
    "wire type 6": (b"\x0e\0", "BAD_FIELD"), "wire type 7": (b"\x0f\0", "BAD_FIELD"),
    "wire type 7 in a group": (group(5, b"\x0f"), "BAD_FIELD"),
    "the end of no group": (tag(1, 4), "BAD_FIELD"), "the end of another group": (tag(1, 3) + tag(2, 4), "BAD_FIELD"),
    "a group that is not ended": (tag(1, 3), "TRUNCATED"), "a group cut in a field": (tag(1, 3) + b"\x08", "TRUNCATED"),
    "a varint of eleven bytes": (b"\x08" + b"\x80" * 10 + b"\0", "BAD_VARINT"),
    "a varint of 65 bits": (b"\x08" + b"\xff" * 9 + b"\2", {"offset": 2 ** 63 - 1}),
    "an unknown varint of eleven bytes": (b"\x78" + b"\x80" * 10 + b"\0", "BAD_VARINT"),
    "a tag of 33 bits": (b"\x88\x80\x80\x80\x10\0", "BAD_VARINT"),
    "a length of 33 bits": (b"\x1a\xff\xff\xff\xff\x10v", "BAD_VARINT"),
    "a tag without an end": (b"\x88", "TRUNCATED"), "a varint without an end": (b"\x08\xff", "TRUNCATED"),
    "no varint": (b"\x08", "TRUNCATED"), "no length": (b"\x1a", "TRUNCATED"),
    "a length beyond the end": (b"\x1a\2v", "TRUNCATED"),
    "a length of 4 GiB": (b"\x1a\xff\xff\xff\xff\x0fv", "TRUNCATED"),
    "an unknown length beyond": (b"\x7a\2v", "TRUNCATED"),
    "three bytes of four": (fixed(20, 4)[:-1], "TRUNCATED"), "seven bytes of eight": (fixed(20)[:-1], "TRUNCATED"),
    "good fields, and then a bad one": (SAMPLE + b"\x07", "BAD_FIELD"),
    "a bad field in a header": (field(9, b"\x0a\1k\0"), "BAD_FIELD"),
    "a header that is cut": (field(9, b"\x0a\5k"), "TRUNCATED"),
}


@pytest.mark.parametrize("body, outcome", RULES.values(), ids=RULES)
def test_protocol_buffers(body, outcome):
    assert protobuf(body) == outcome


@pytest.mark.parametrize("read, kind", [(liftbridge.acks, 1), (liftbridge.internal, 2), (liftbridge.internal, 14)])
def test_the_same_rules_for_all_payloads(read, kind):
    for body, outcome in RULES.values():
        said = opened(envelope(body, kind), read)
        good = isinstance(outcome, dict) or body[:1] == tag(9, 2)       # only a message has headers to look into
        assert isinstance(said, dict) if good else said == outcome


def test_a_lift_message_is_read_as_another():
    assert opened(b"LIFT" + SAMPLE) == opened(envelope(SAMPLE)) and opened(b"LIFT\x07") == "BAD_FIELD"
    assert set_in(opened(b"\x07")) == dict(value=b"\x07")


# ------------------------------------------------------------------------------------------- headers

def test_headers_of_messages():
    raw = [envelope(pair(b"k", b"v") + field(1, 5) + pair(b"", None) + pair(None, b"") + pair(b"k", b"w")), b"plain",
           envelope(field(9, field(2, b"v") + field(1, b"a") + field(3, 1) + field(1, b"k")), crc=True)]
    messages = liftbridge.messages(liftbridge.scan(raw))
    table = liftbridge.headers(messages)
    assert [tuple(map(as_bytes, row)) for row in table] == [
        (b"k", b"v"), (b"", None), (None, b""), (b"k", b"w"), (b"k", b"v")]
    assert table["parent"].tolist() == [0, 0, 0, 0, 2] and table.outer is messages
    assert columns(table[:2], "start size body key_at key_size value_at value_size") == [
        (8, 8, 2, 4, 1, 7, 1), (18, 4, 2, 4, 0, 0, -1)]
    assert table.name == "liftbridge.headers" and table.dtype.itemsize == 40
    for payload in raw:
        laws.all_of_them(ROOM, pub(payload), [5, 9])


def test_headers_of_bad_messages():
    messages = liftbridge.messages(liftbridge.scan([envelope(pair(b"k") + b"\0"), envelope(pair(b"k"))]), errors="mark")
    table = liftbridge.headers(messages, errors="mark")
    assert columns(table, "parent fault size") == [(0, Fault.BAD_FIELD, 6), (1, 0, 5)]
    with pytest.raises(FrameError, match="BAD_FIELD"):
        liftbridge.headers(messages)


# ------------------------------------------------------------------------------------------- between servers

SAID = {
    2: dict(id=b"a", offset=7, leader_epoch=3), 3: dict(leader_epoch=3, high_watermark=-1, entries=LOG),
    4: dict(id=b"a", host=b"host"), 5: dict(error=b"no"), 6: dict(leader_epoch=5), 7: dict(end_offset=-1),
    8: dict(op=4, operation=fields(b"s", 1, b"r", b"l", 2), stream=b"s", partition=1, replica=b"r", leader=b"l",
            leader_epoch=2),
    9: dict(op=1, error_code=13, error=b"no", coordinator=b"c", epoch=2),
    10: dict(id=b"a"), 11: dict(id=b"a", host=b"host", port=9292), 12: dict(stream=b"s", partition=1),
    13: dict(exists=1, is_leader=1), 14: dict(stream=b"s", partition=1)}


@pytest.mark.parametrize("kind", INTERNAL)
def test_internal(kind):
    said = opened(envelope(INTERNAL[kind], kind), liftbridge.internal)
    assert said.pop("op") == SAID[kind].get("op", -1)
    assert set_in(said) == {name: value for name, value in SAID[kind].items() if name != "op"}
    empty = envelope(b"", kind)
    assert opened(empty, liftbridge.internal) == "TRUNCATED" if kind == Kind.REPLICATION_RESPONSE else not set_in(
        opened(empty, liftbridge.internal) | dict(op=0))
    laws.all_of_them(ROOMS["liftbridge.internal"], pub(envelope(INTERNAL[kind], kind)), [9, 20])


OPERATIONS = {
    2: (fields(fields(b"s", b"subject")), dict(stream=b"s")),
    3: (fields(b"s", 1, b"r", b"l", 2), dict(stream=b"s", partition=1, replica=b"r", leader=b"l", leader_epoch=2)),
    5: (fields(b"s", 1, b"r"), dict(stream=b"s", partition=1, replica=b"r")),
    6: (fields(b"s"), dict(stream=b"s")), 7: (fields(b"s", b"\0\1", 1), dict(stream=b"s")),
    8: (fields(b"s", b"\0"), dict(stream=b"s")), 9: (fields(b"s", b"\0", 1), dict(stream=b"s")),
    10: (fields(b"g", b"c", b"s"), dict(group=b"g", consumer=b"c")),
    11: (fields(b"g", b"c", 1), dict(group=b"g", consumer=b"c")),
    12: (fields(b"g", b"c", b"o", 4), dict(group=b"g", consumer=b"c", coordinator=b"o", epoch=4)), 13: (b"x", {})}


@pytest.mark.parametrize("number", OPERATIONS)
def test_operations(number):
    inside, said = OPERATIONS[number]
    payload = envelope(fields(9) + field(number, inside), 8)
    operation = dict(operation=inside) if number < 13 else {}
    assert set_in(opened(payload, liftbridge.internal)) == dict(op=9) | operation | said


def test_an_operation_that_16_bits_do_not_hold():
    """It is no other operation."""
    for op in 0x8000, 65_535, 65_541, 2 ** 32 + 5, 2 ** 64 - 1:
        assert opened(envelope(field(1, op), 9), liftbridge.internal)["op"] == 0x7FFF


def test_only_kinds_between_servers_are_internal():
    table = liftbridge.internal(liftbridge.scan([*GOLDEN.values()]))
    assert table["kind"].tolist() == list(range(2, 15)) and table.name == "liftbridge.internal"
    assert opened(envelope(b"\0" * 15, 3), liftbridge.internal) == "TRUNCATED"
    assert set_in(opened(envelope(b"\0" * 16, 3), liftbridge.internal) | dict(op=0)) == dict(entries=b"")


# ------------------------------------------------------------------------------------------- entries

def test_entries():
    table = liftbridge.entries(LOG)
    assert columns(table, "start body offset timestamp leader_epoch magic attributes header_count parent") == [
        (0, 28, 5, 9, 1, 1, 0, 2, -1), (71, 28, 8, 0, 0, 1, 0, 0, -1), (115, 28, 9, 0, 0, 1, 0, 0, -1)]
    assert [tuple(map(as_bytes, row)) for row in table] == [(b"k", b"v"), (None, b""), (b"", None)]
    assert headers_of(table) == [[(b"subject", b"s"), (b"reply", None)], [], []]
    assert table.name == "liftbridge.entries" and table.dtype.itemsize == 80 and table.stop == (0, len(LOG), 0)
    assert table["crc"].tolist() == [int.from_bytes(LOG[at + 28:at + 32], "big") for at in (0, 71, 115)]


def test_numbers_of_entries():
    row, = liftbridge.entries(record(offset=-2**63, timestamp=-1, leader_epoch=2**64 - 1, attributes=-1))
    assert (row.offset, row.timestamp, row.leader_epoch, row.attributes) == (-2**63, -1, 2**64 - 1, -1)


def faults(raw, **options):
    return [Fault(fault).name for fault in liftbridge.entries(raw, errors="mark", **options)["fault"].tolist()]


def with_size(size):
    return LOG[:24] + struct.pack(">I", size) + LOG[28:]


NEXT = record(b"next", b"x" * 30, offset=99)
RECORDS = {
    "another magic": (sealed(entry_message(magic=0)), "BAD_MAGIC"),
    "magic -1": (sealed(entry_message(magic=-1)), "BAD_MAGIC"),
    "a key of -2": (sealed(b"\1\0" + b"\xff\xff\xff\xfe" + bytes(6)), "BAD_NULL"),
    "a value of -2**31": (sealed(b"\1\0" + bytes(4) + b"\x80\0\0\0" + bytes(2)), "BAD_NULL"),
    "a key beyond the record": (sealed(b"\1\0" + b"\0\0\0\7" + bytes(6)), "TRUNCATED"),
    "a value beyond the record": (sealed(b"\1\0" + bytes(4) + b"\x7f\xff\xff\xff" + bytes(2)), "TRUNCATED"),
    "headers beyond the record": (sealed(entry_message()[:-2] + b"\0\1"), "TRUNCATED"),
    "a name beyond the record": (sealed(entry_message()[:-2] + b"\0\1\0\x20name"), "TRUNCATED"),
    "a header's value of -2": (sealed(entry_message()[:-2] + b"\0\1\0\1n\xff\xff\xff\xfe"), "BAD_NULL"),
    "a header's value beyond the record": (sealed(entry_message()[:-2] + b"\0\1\0\1n\0\0\0\1"), "TRUNCATED"),
    "a byte behind": (sealed(entry_message(more=b"\0")), "LEFTOVER"),
    "fewer headers than there are": (sealed(entry_message(more=b"\0\0\xff\xff\xff\xff")), "LEFTOVER"),
}


@pytest.mark.parametrize("raw, fault", RECORDS.values(), ids=RECORDS)
def test_bad_records(raw, fault):
    assert faults(NEXT + raw + NEXT) == ["OK", fault, "OK"]
    with pytest.raises(FrameError, match=fault) as caught:
        liftbridge.entries(NEXT + raw)
    assert caught.value.offset == len(NEXT)
    for check in (True, False):
        laws.all_of_them(ROOMS["liftbridge.entries"], NEXT + raw + NEXT, [30, 90], check)
    whole = liftbridge.entries(liftbridge.scan([envelope(response(NEXT + raw + NEXT), 3)]), errors="mark")
    assert [Fault(one).name for one in whole["fault"].tolist()] == ["OK", fault, "OK"]


@pytest.mark.parametrize("size", [0, 1, 15, 2**31, 2**32 - 1])
def test_sizes_that_no_record_has(size):
    """The next record is known by its checksum."""
    assert faults(NEXT + with_size(size) + NEXT) == ["OK", "BAD_LENGTH", "OK", "OK", "OK"]
    with pytest.raises(FrameError, match="BAD_LENGTH") as caught:
        liftbridge.entries(NEXT + with_size(size) + NEXT)
    assert caught.value.offset == len(NEXT)
    laws.all_of_them(ROOMS["liftbridge.entries"], NEXT + with_size(size) + NEXT, [30, 90])


def test_a_size_that_is_too_large_is_no_tail_where_records_follow():
    assert faults(with_size(10_000)) == ["BAD_LENGTH", "OK", "OK"]
    assert liftbridge.entries(with_size(10_000)[:71]).stop[:2] == (Fault.SHORT, 0)


def test_checksums():
    for at in range(28, 71):
        raw = bytearray(LOG)
        raw[at] ^= 1
        assert faults(raw) == ["BAD_CHECKSUM", "OK", "OK"]
    raw = LOG[:28] + bytes(4) + LOG[32:]
    assert faults(raw, check=False) == ["OK", "OK", "OK"]
    for at in range(24):                    # what a server fills in is not part of it
        raw = bytearray(LOG)
        raw[at] ^= 1
        assert faults(raw) == ["OK", "OK", "OK"]


def test_how_logs_end():
    for cut in range(71, len(LOG)):
        table = liftbridge.entries(LOG[:cut])
        assert table.stop[:2] == ((Fault.OK, cut) if cut in (71, 115) else (Fault.SHORT, 71 if cut < 115 else 115))
    assert liftbridge.entries(LOG + bytes(28)).stop[:2] == (Fault.ZEROS, len(LOG))
    assert liftbridge.entries(LOG + bytes(27)).stop[:2] == (Fault.SHORT, len(LOG))
    assert faults(LOG + bytes(100) + b"\1") == ["OK", "OK", "OK", "BAD_LENGTH"]
    assert faults(LOG + bytes(100) + NEXT) == ["OK", "OK", "OK", "BAD_LENGTH", "OK"]


def test_entries_of_responses():
    raw = [b"plain", envelope(response(LOG, 3, 7), 3), envelope(response(), 3),
           envelope(response(NEXT + LOG[:90]), 3, crc=True), envelope(bytes(15), 3),
           envelope(response(NEXT), 3, flags=1, header=bytes(4)), envelope(response(bytes(30)), 3)]
    envelopes = liftbridge.scan(raw, errors="mark")
    table = liftbridge.entries(envelopes, errors="mark")
    assert table["parent"].tolist() == [1, 1, 1, 3, 3, 3, 4, 5, 6] and table.outer is envelopes
    assert [Fault(fault).name for fault in table["fault"].tolist()] == [
        *5 * ["OK"], "TRUNCATED", "TRUNCATED", "BAD_CHECKSUM", "TRUNCATED"]
    assert table["offset"].tolist()[:5] == [5, 8, 9, 99, 5]
    rows = reference.response_entries(envelopes.buffers[0], laws.rows_of(envelopes))
    assert laws.rows_of(table) == rows
    data = bytes(envelopes.buffers[0])
    headers = [one for i, row in enumerate(rows) for one in reference.entry_headers(data, row, i)]
    assert laws.rows_of(liftbridge.headers(table, errors="mark")) == headers
    with pytest.raises(FrameError, match="TRUNCATED"):
        liftbridge.entries(envelopes[:5])


def test_headers_of_entries():
    raw = LOG + sealed(entry_message(headers=[(b"", b""), (b"n", None)])) + RECORDS["a byte behind"][0]
    entries = liftbridge.entries(raw, errors="mark")
    table = liftbridge.headers(entries, errors="mark")
    assert [tuple(map(as_bytes, row)) for row in table] == [
        (b"subject", b"s"), (b"reply", None), (b"", b""), (b"n", None), (None, None)]
    assert table["parent"].tolist() == [0, 0, 3, 3, 4] and table.name == "liftbridge.headers"
    assert columns(table[:1], "start size body key_at key_size value_at value_size") == [(46, 14, 2, 2, 7, 13, 1)]
    want = [one for i, row in enumerate(laws.rows_of(entries)) for one in reference.entry_headers(raw, row, i)]
    assert laws.rows_of(table) == want


def test_values_that_look_like_an_envelope():
    """What a server could not read it has stored as it came."""
    row, = liftbridge.entries(record(value=envelope(BODY, 1)))
    assert bytes(row.value) == envelope(BODY, 1)


# ------------------------------------------------------------------------------------------- laws, rows, pickles

@pytest.mark.parametrize("payload", GOLDEN.values(), ids=GOLDEN)
@checked
def test_laws_of_golden(payload, check):
    raw = pub(payload) + hmsg(payload)
    for name in ("liftbridge", "liftbridge.acks", "liftbridge.internal"):
        laws.all_of_them(ROOMS[name], raw, list(range(0, len(raw), 9)), check)


def test_rows_of_anybodys_make():
    """Rows that point anywhere: an error of ours, or places that lie in their frames."""
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
                    found = read(replace(table, rows=rows), errors="mark")
                    for row in found:
                        assert all(len(string) <= row.size for string in row if string is not None)
                except (ValueError, IndexError):
                    continue


def test_pickles():
    table = liftbridge.headers(liftbridge.messages(liftbridge.scan([envelope(SAMPLE)])))
    assert laws.meaning(pickle.loads(pickle.dumps(table))) == laws.meaning(table)
