"""Liftbridge encoders: examples by hand, comparison with a plain writer, and reading back."""

import numpy as np
import polars
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import liftbridge as strategies
from tests.support.encoded_columns import flatten_pairs as lists_of
from tests.support.encoded_columns import split_strings as split_payloads
from tests.support.examples import read_example_count
from wirescan import liftbridge, nats
from wirescan.core.pairs import Pairs
from wirescan.core.strings import ByteStrings
from wirescan.liftbridge.constants import AckError, AckPolicy, Kind
from wirescan.liftbridge.encode import (
    encode_ack,
    encode_acks,
    encode_entries,
    encode_entry,
    encode_envelope,
    encode_internal,
    encode_message,
    encode_messages,
    encode_replication_response,
)
from wirescan.liftbridge.writer import write_entries, write_messages
from wirescan.nats.encode import encode_pubs
from wirescan.testing.guarded_memory import GuardedMemory

quiet = settings(max_examples=read_example_count(30), deadline=None)
I64 = st.sampled_from((0, 0, -1, 1, 127, 128, 2**31, 2**63 - 1, -(2**63))) | st.integers(
    -(2**63), 2**63 - 1
)
I32 = st.sampled_from((0, -1, 1, 2**31 - 1, -(2**31))) | st.integers(-(2**31), 2**31 - 1)
U63 = st.integers(0, 2**63 - 1)
U64 = st.sampled_from((0, 1, 2**63, 2**64 - 1)) | st.integers(0, 2**64 - 1)
STRINGS = (None, b"", b"a", b"\xb9\x0eC\xb4", bytes(127), bytes(128), bytes(20_000))
BYTES = st.sampled_from(STRINGS) | st.binary(max_size=20)
KEYS = st.sampled_from((b"", b"subject", b"\xff", bytes(200)))
PAIRS = st.lists(st.tuples(KEYS, BYTES), max_size=3)
MESSAGE = {
    "value": BYTES,
    "key": BYTES,
    "offset": I64,
    "timestamp": I64,
    "stream": BYTES,
    "partition": I32,
    "subject": BYTES,
    "reply_subject": BYTES,
    "headers": PAIRS,
    "ack_inbox": BYTES,
    "correlation_id": BYTES,
    "ack_policy": st.integers(0, 2),
}
ACK = {
    "stream": BYTES,
    "partition_subject": BYTES,
    "msg_subject": BYTES,
    "offset": I64,
    "ack_inbox": BYTES,
    "correlation_id": BYTES,
    "ack_policy": st.integers(0, 2),
    "reception_timestamp": I64,
    "commit_timestamp": I64,
    "ack_error": st.integers(0, 4),
}
MESSAGES = st.fixed_dictionaries(MESSAGE)
ACKS = st.fixed_dictionaries(ACK)
ENTRIES = st.tuples(U63, I64, U64, BYTES, BYTES, PAIRS)
NUMBERS = (
    "offset",
    "timestamp",
    "partition",
    "ack_policy",
    "reception_timestamp",
    "commit_timestamp",
    "ack_error",
)


def write_plainly(write, fields):
    """Write Protobuf with a function of the strategies, which omits a number if it is None."""
    omitted = {name: None for name in NUMBERS if name in fields and not fields[name]}
    return write(**{**fields, **omitted})


def values_of(row, fields):
    """Return the named fields of a row; views become bytes, null is None."""
    values = {}
    for name in fields:
        value = getattr(row, name)
        is_view = name not in NUMBERS and value is not None
        values[name] = bytes(value) if is_view else value
    return values


def headers_of(table):
    headers = [[] for _ in table]
    for header in liftbridge.headers(table):
        views = (header.key, header.value)
        pair = tuple(None if view is None else bytes(view) for view in views)
        headers[header.parent].append(pair)
    return headers


# ---- by hand


def test_envelopes_have_the_expected_bytes():
    assert encode_envelope(b"hi") == b"\xb9\x0eC\xb4\0\x08\0\0hi"
    assert encode_envelope(bytearray(), Kind.ACK) == b"\xb9\x0eC\xb4\0\x08\0\1"
    check = b"\xe3\x06\x92\x83"  # the example in the definition of CRC-32C
    raw = encode_envelope(memoryview(b"123456789"), np.uint8(14), crc=True)
    assert raw == b"\xb9\x0eC\xb4\0\x0c\1\x0e" + check + b"123456789"


def test_messages_have_the_expected_bytes():
    assert encode_message(None) == b"\xb9\x0eC\xb4\0\x08\0\0"
    assert encode_message(b"hi", envelope=False) == b"\x1a\2hi"
    assert encode_message("hi", offset=0, envelope=False) == b"\x1a\2hi"
    assert encode_message(b"", key=b"", envelope=False) == b"\x12\0\x1a\0"  # empty, not omitted
    minus = b"\xff" * 9 + b"\1"
    raw = encode_message(
        b"v",
        key="k",
        offset=-1,
        partition=-1,
        headers={"é": b"1"},
        ack_inbox="in",
        correlation_id="id",
        ack_policy=AckPolicy.NONE,
        envelope=False,
    )
    assert raw == (
        b"\x08" + minus + b"\x12\1k\x1a\1v\x30" + minus + b"J\7\n\2\xc3\xa9\x12\0011R\2inZ\2id`\2"
    )
    raw = encode_message(b"v", headers=[("a", None), ("a", b"")], envelope=False)
    assert raw == b"\x1a\1vJ\3\n\1aJ\5\n\1a\x12\0"
    raw = encode_ack(stream="s", offset=300, ack_error=AckError.TOO_LARGE)
    assert raw == b"\xb9\x0eC\xb4\0\x08\0\1\n\1s\x20\xac\2\x50\3"
    payloads = split_payloads(encode_messages([b"hi", None]))
    assert payloads == [encode_message(b"hi"), encode_message(None)]


def test_replication_has_the_expected_bytes():
    assert encode_replication_response(2**64 - 1, -1) == (b"\xb9\x0eC\xb4\0\x08\0\3" + b"\xff" * 16)
    head = b"\0\0\0\0\0\0\0\5\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\1\0\0\0\x18"
    body = b"\1\0\xff\xff\xff\xff\0\0\0\1v\0\1\0\1k\0\0\0\0"
    written = encode_entry(5, -1, 1, None, b"v", {"k": b""})
    assert written == head + crc32c(body).to_bytes(4, "big") + body
    assert encode_entries(5, -1, 1, None, [b"v"], {"k": b""}) == written
    response = strategies.make_envelope(strategies.make_response(written, 1, 2), 3, crc=True)
    assert encode_replication_response(1, 2, written, crc=True) == response


INTERNAL = {
    2: dict(id="a", offset=7, leader_epoch=3),
    4: dict(id=b"a", host="host"),
    5: dict(error="no"),
    6: dict(leader_epoch=5),
    7: dict(end_offset=-1),
    10: dict(id="a"),
    11: dict(id="a", host="host", port=9292),
    12: dict(stream="s", partition=1),
    13: dict(exists=True, is_leader=True),
    14: dict(stream="s", partition=1),
}


@pytest.mark.parametrize("kind", INTERNAL)
def test_internal_payloads_read_back(kind):
    for crc in (False, True):
        raw = encode_internal(kind, crc=crc, **INTERNAL[kind])
        assert raw == strategies.make_envelope(strategies.INTERNAL[kind], kind, crc=crc)
        row = liftbridge.internal(liftbridge.scan(raw))[0]
        for name, expected in INTERNAL[kind].items():
            value = getattr(row, name)
            if isinstance(expected, int):
                assert value == expected
            elif isinstance(expected, str):
                assert bytes(value) == expected.encode()
            else:
                assert bytes(value) == expected
        assert encode_internal(kind) == strategies.make_envelope(b"", kind)


# ---- comparison with a plain writer


@quiet
@given(MESSAGES, st.booleans())
def test_a_message_reads_back(fields, crc):
    payload = write_plainly(strategies.make_message, fields)
    assert encode_message(**fields, envelope=False) == payload
    raw = encode_message(**fields, crc=crc)
    assert raw == strategies.make_envelope(payload, crc=crc)
    assert raw == encode_envelope(payload, crc=crc)
    envelopes = liftbridge.scan(raw)
    table = liftbridge.messages(envelopes)
    pairs = fields.pop("headers")
    assert values_of(table[0], fields) == fields
    assert headers_of(table) == [pairs]
    assert envelopes["flags"][0] == crc


@quiet
@given(ACKS, st.booleans())
def test_an_ack_reads_back(fields, crc):
    payload = write_plainly(strategies.make_ack, fields)
    assert encode_ack(**fields, envelope=False) == payload
    raw = encode_ack(**fields, crc=crc)
    assert raw == strategies.make_envelope(payload, Kind.ACK, crc=crc)
    assert values_of(liftbridge.acks(liftbridge.scan(raw))[0], fields) == fields
    columns = {name: [value] for name, value in fields.items()}
    assert split_payloads(encode_acks(**columns, crc=crc)) == [raw]


@quiet
@given(st.lists(MESSAGES, max_size=5), st.booleans(), st.booleans())
def test_columns_of_messages_equal_single_messages(rows, crc, envelope):
    crc = crc and envelope
    wanted = [encode_message(**fields, crc=crc, envelope=envelope) for fields in rows]
    columns = {name: [fields[name] for fields in rows] for name in MESSAGE}
    headers = lists_of(columns.pop("headers"))
    written = encode_messages(
        columns.pop("value"),
        keys=columns.pop("key"),
        headers=headers,
        **columns,
        crc=crc,
        envelope=envelope,
    )
    assert split_payloads(written) == wanted
    envelopes = liftbridge.scan(written, bare=None if envelope else Kind.PUBLISH)
    table = liftbridge.messages(envelopes)
    assert headers_of(table) == [fields.pop("headers") for fields in rows]
    assert [values_of(row, fields) for row, fields in zip(table, rows)] == rows
    assert len(table) == len(rows)


@quiet
@given(st.lists(st.tuples(BYTES, BYTES, BYTES), min_size=1, max_size=5), MESSAGES)
def test_one_for_all_rows(rows, same):
    values, first, second = map(list, zip(*rows))
    del same["headers"], same["value"]
    wanted = []
    for value, first_value, second_value in rows:
        pairs = (("One", first_value), (b"same", b"x"), ("One", second_value))
        headers = [(key, text) for key, text in pairs if text is not None]
        wanted.append(encode_message(value, **same, headers=headers))
    written = encode_messages(
        values,
        keys=same.pop("key"),
        **same,
        headers=[("One", first), (b"same", "x"), ("One", second), ("none", None)],
    )
    assert split_payloads(written) == wanted


@quiet
@given(st.lists(ENTRIES, max_size=5))
def test_columns_of_entries_equal_single_entries(rows):
    wanted = [
        strategies.make_record(key, value, pairs, offset, timestamp, epoch)
        for offset, timestamp, epoch, key, value, pairs in rows
    ]
    assert [encode_entry(*row) for row in rows] == wanted
    *columns, pairs = map(list, zip(*rows)) if rows else ([] for _ in range(6))
    columns[2] = np.array(columns[2], np.uint64)
    raw = encode_entries(*columns, lists_of(pairs))
    assert raw == b"".join(wanted)
    assert type(raw) is bytes
    table = liftbridge.entries(raw)
    for row, (offset, timestamp, epoch, key, value, _) in zip(table, rows):
        assert (row.offset, row.timestamp, row.leader_epoch) == (offset, timestamp, epoch)
        assert (row.key and bytes(row.key)) == key
        assert (row.value and bytes(row.value)) == value
    assert len(table) == len(rows)
    assert headers_of(table) == pairs
    response = liftbridge.scan(encode_replication_response(3, 4, raw, crc=True))
    assert len(liftbridge.entries(response)) == len(rows)


# ---- columns of every kind

VALUES = [b"one", b"", b"a longer value of many bytes"]
STAMPS = [1, -2, 10**18]


def make_values_of_every_kind():
    long = pa.array([b"before", *VALUES, b"after"])[1:4]
    yield np.array(VALUES, object)
    yield np.array(VALUES)
    yield np.array([0, 3, 3, 31]), b"".join(VALUES)
    yield long
    yield pa.chunked_array([long[:1], long[1:]])
    for kind in (pa.large_binary(), pa.string(), pa.binary_view()):
        yield pa.array(VALUES, pa.binary()).cast(kind)
    yield pa.array(VALUES).dictionary_encode()
    yield polars.Series([value.decode() for value in VALUES])


@pytest.mark.parametrize(
    "values", [*make_values_of_every_kind()], ids=lambda column: type(column).__name__
)
def test_values_of_every_kind(values):
    payloads = split_payloads(encode_messages(values, keys=values))
    assert payloads == [encode_message(value, key=value) for value in VALUES]
    entries = [encode_entry(i, 0, 0, value, value) for i, value in enumerate(VALUES)]
    assert encode_entries(0, 0, 0, values, values) == b"".join(entries)


@pytest.mark.parametrize(
    "stamps",
    [
        STAMPS,
        np.array(STAMPS),
        np.array([0, 1, 9, -2, 9, 10**18])[1::2],
        np.array(STAMPS, ">i8"),
        pa.array(STAMPS),
        pa.chunked_array([STAMPS[:1], STAMPS[1:]]),
        np.array(STAMPS, "M8[ns]"),
        pa.array([0, *STAMPS])[1:],
        pa.array(STAMPS, pa.timestamp("ns")),
        pa.array(STAMPS, pa.timestamp("ns", "UTC")),
        polars.Series(STAMPS),
    ],
    ids=lambda column: type(column).__name__,
)
def test_numbers_of_every_kind(stamps):
    payloads = split_payloads(encode_messages(VALUES, timestamp=stamps, ack_policy=np.uint8(2)))
    assert payloads == [
        encode_message(value, timestamp=stamp, ack_policy=2) for value, stamp in zip(VALUES, STAMPS)
    ]


def test_times_of_other_units_and_none():
    expected = [
        encode_message(value, timestamp=stamp)
        for value, stamp in zip(VALUES, (3 * 10**9, -(10**9), None))
    ]
    for stamps in (np.array([3, -1, "NaT"], "M8[s]"), pa.array([3, -1, None], pa.timestamp("s"))):
        assert split_payloads(encode_messages(VALUES, timestamp=stamps)) == expected
    data, _ = encode_messages(VALUES, timestamp=np.datetime64(3, "s"))
    assert data == encode_messages(VALUES, timestamp=3 * 10**9)[0]
    data, _ = encode_messages(VALUES, offset=pa.array([1, None, 0]))
    assert data == encode_messages(VALUES, offset=[1, 0, 0])[0]
    epochs = pa.array([0, 2**64 - 1, None], pa.uint64())
    entries = [
        encode_entry(7 + i, 0, epoch, None, value)
        for i, epoch, value in zip(range(3), (0, 2**64 - 1, 0), VALUES)
    ]
    assert encode_entries(7, 0, epochs, None, VALUES) == b"".join(entries)


def test_headers_of_every_kind():
    rows = [[(b"A", b"1"), (b"A", None)], [], [(b"", b"")]]
    structs = [[{"key": key, "value": value} for key, value in pairs] for pairs in rows]
    pair = pa.struct([("key", pa.binary()), ("value", pa.binary())])
    messages = [encode_message(value, headers=pairs) for value, pairs in zip(VALUES, rows)]
    entries = [
        encode_entry(i, 0, 0, None, value, pairs)
        for i, (value, pairs) in enumerate(zip(VALUES, rows))
    ]
    for headers in (
        lists_of(rows),
        pa.array([None, *structs], pa.list_(pair))[1:],
        pa.array(rows, pa.map_(pa.binary(), pa.binary())),
    ):
        assert split_payloads(encode_messages(VALUES, headers=headers)) == messages
        assert encode_entries(0, 0, 0, None, VALUES, headers) == b"".join(entries)


def test_payloads_in_nats_messages_read_back():
    data, offsets = encode_messages(VALUES, keys=b"k", crc=True)
    messages = nats.scan(encode_pubs("stream", (offsets, data)))
    table = liftbridge.messages(liftbridge.scan(messages))
    assert [bytes(row.value) for row in table] == VALUES
    assert {bytes(row.key) for row in table} == {b"k"}
    again = encode_messages((table, "value"), keys=(table, "key"), crc=True)
    assert again[0] == data
    assert (again[1] == offsets).all()


def test_no_rows_give_no_bytes():
    for headers in (None, {}, {"A": []}, ([], [], []), pa.array([], pa.map_("string", "string"))):
        data, offsets = encode_messages([], offset=[], timestamp=1, headers=headers)
        assert data == b""
        assert offsets.tolist() == [0]
        assert encode_entries([], 0, [], None, [], headers) == b""
    assert encode_entries(2**63 - 1, 0, 0, [], []) == b""
    assert encode_acks(correlation_id=[])[0] == b""


@pytest.mark.parametrize("size", [*range(1, 150), 4096])
def test_nothing_is_read_outside(size):
    guarded = GuardedMemory(size)
    for put in (guarded.place_at_end, guarded.place_at_beginning):
        data = put(b"x" * size)
        same = b"x" * size
        column = [0, size], data
        written, _ = encode_messages(column, keys=column, headers={"k": column}, crc=True)
        assert written == encode_message(same, key=same, headers={"k": same}, crc=True)
        written = encode_entries(0, 0, 0, column, column, {"k": column})
        assert written == encode_entry(0, 0, 0, same, same, {"k": same})
        del data, column


# ---- bad arguments

SURROGATE = "\ud800"
LONG = bytes(2**31 - 1)  # never written, so it takes no memory


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: encode_envelope(b"", 15), "kind must be from 0 to 14, not 15"),
        (lambda: encode_envelope(b"", Kind.PLAIN), "kind must be from 0 to 14"),
        (lambda: encode_envelope(b"", -1), "kind must be"),
        (lambda: encode_envelope(bytes(2**31)), "payload has 2147483648 bytes"),
        (lambda: encode_message(SURROGATE), "value has a surrogate at 0"),
        (lambda: encode_message(b"", headers={"a": SURROGATE}), "header b'a' has a surrogate"),
        (lambda: encode_message(b"", offset=2**63), "offset must be from"),
        (lambda: encode_message(b"", timestamp=-(2**63) - 1), "timestamp must be from"),
        (lambda: encode_message(b"", partition=2**31), "partition must be from"),
        (lambda: encode_message(b"", ack_policy=3), "ack_policy must be from 0 to 2, not 3"),
        (lambda: encode_message(b"", crc=True, envelope=False), "crc=True needs envelope=True"),
        (lambda: encode_message(LONG), "a message must have less than 2 GiB"),
        (lambda: encode_ack(ack_error=5), "ack_error must be from 0 to 4"),
        (lambda: encode_ack(crc=True, envelope=False), "crc=True needs envelope=True"),
        (lambda: encode_internal(Kind.PUBLISH), "cannot write kind PUBLISH"),
        (lambda: encode_internal(Kind.PROPAGATED_REQUEST), "PROPAGATED_REQUEST"),
        (lambda: encode_internal(99), "cannot write kind 99"),
        (lambda: encode_internal(256), "kind must be from 0 to 255"),
        (lambda: encode_internal(2, leader_epoch=-1), "leader_epoch must be from 0"),
        (lambda: encode_internal(13, exists=2), "exists must be from 0 to 1"),
        (
            lambda: encode_replication_response(2**64, 0),
            "leader_epoch must be from 0 to 18446744073709551615",
        ),
        (lambda: encode_replication_response(0, 2**63), "high_watermark must be from"),
        (lambda: encode_entry(-1, 0, 0, None, b""), "offset must be from 0"),
        (lambda: encode_entry(0, 2**63, 0, None, b""), "timestamp must be from"),
        (lambda: encode_entry(0, 0, -1, None, b""), "leader_epoch must be from"),
        (lambda: encode_entry(0, 0, 0, None, LONG), "the record has 2147483691 bytes"),
        (
            lambda: encode_entry(0, 0, 0, None, b"", {bytes(2**15): b""}),
            "a header's key has 32768 bytes",
        ),
        (
            lambda: encode_entry(0, 0, 0, None, b"", [("a", b"")] * 2**16),
            "the number of headers must be from 0 to 65535",
        ),
        (lambda: encode_messages(b"x"), "no column says how many rows"),
        (lambda: encode_messages([b"x"] * 2, keys=[b"k"]), "unequal length: 1 in key, 2 in value"),
        (lambda: encode_messages([b"x"], offset=[1, 2]), "unequal length: 2 in offset, 1 in value"),
        (
            lambda: encode_messages([b"x"], headers={"a": []}),
            "unequal length: 1 in value, 0 in header b'a'",
        ),
        (
            lambda: encode_messages([b"x"], headers=[("a", []), ("a", [b""])]),
            "0 in header b'a', 1 in header b'a'",
        ),
        (
            lambda: encode_messages([b"x"], headers=([1], [None], [b""])),
            "row 0: a header's key must not be null",
        ),
        (
            lambda: encode_messages([b"x"], headers=([2], [b"a"], [b""])),
            "the counts of headers do not fit",
        ),
        (lambda: encode_messages([b"x"], ack_policy=[3]), "ack_policy must be from 0 to 2, not 3"),
        (
            lambda: encode_messages([b"x"], offset=np.array([2**63], np.uint64)),
            "offset must be from",
        ),
        (
            lambda: encode_messages([b"x"], timestamp=np.array([2**62], "M8[s]")),
            "does not fit in 64 bits of nanoseconds",
        ),
        (
            lambda: encode_messages([b"x"], timestamp=pa.array([2**62], pa.timestamp("s"))),
            "does not fit in 64 bits of nanoseconds",
        ),
        (lambda: encode_messages([b"x"], crc=True, envelope=False), "crc=True needs envelope=True"),
        (
            lambda: encode_messages([b"", LONG]),
            "row 1: a message must have less than 2 GiB",
        ),
        (lambda: encode_messages([b""], headers=[("a", LONG)] * 2), "row 0: a message must have"),
        (lambda: encode_messages(([0, 9], b"")), "value: string 0"),
        (lambda: encode_acks(), "no column says how many rows"),
        (lambda: encode_acks(offset=[1], ack_error=[5]), "ack_error must be from 0 to 4"),
        (lambda: encode_entries(0, 0, 0, None, b"x"), "no column says how many rows"),
        (
            lambda: encode_entries([1], 0, 0, None, [b"x"] * 2),
            "unequal length: 1 in offset, 2 in value",
        ),
        (lambda: encode_entries([-1], 0, 0, None, [b"x"]), "offset must be from 0"),
        (
            lambda: encode_entries(2**63 - 1, 0, 0, None, [b"x"] * 2),
            "the last offset must be from 0",
        ),
        (lambda: encode_entries(0, 0, [-1], None, [b"x"]), "leader_epoch must be from 0"),
        (
            lambda: encode_entries(0, 0, 0, None, [b"", LONG]),
            "row 1: a record must have less than 2 GiB",
        ),
        (
            lambda: encode_entries(0, 0, 0, None, [b"", b""], {bytes(2**15): [None, b""]}),
            "row 1: a header's key has more",
        ),
        (
            lambda: encode_entries(0, 0, 0, None, [b""], ([2**16], *2 * [[b""] * 2**16])),
            "row 0: a record has more than 65535 headers",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_arguments_are_refused(call, words):
    with pytest.raises(ValueError, match=words) as caught:
        call()
    assert caught.type is ValueError


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: encode_envelope(None), "payload must be bytes or str, not NoneType"),
        (lambda: encode_envelope(b"", "PUBLISH"), "kind must be an integer"),
        (lambda: encode_message(7), "value must be bytes or str, not int"),
        (lambda: encode_message(b"", offset=1.0), "offset must be an integer, not 1.0"),
        (lambda: encode_message(b"", ack_policy="all"), "ack_policy must be an integer"),
        (lambda: encode_message(b"", headers=7), "headers are a mapping or pairs"),
        (
            lambda: encode_message(b"", headers={"a": 1}),
            "header b'a' must be bytes or str, not int",
        ),
        (lambda: encode_message(b"", headers={None: b""}), "a header's key must be bytes or str"),
        (lambda: encode_ack(stream=1), "stream must be bytes or str, not int"),
        (
            lambda: encode_internal(2, stream="s"),
            "REPLICATION_REQUEST has no stream, only id, offset, leader_epoch",
        ),
        (lambda: encode_internal("2"), "kind must be an integer"),
        (lambda: encode_replication_response(None, 0), "leader_epoch must be an integer"),
        (lambda: encode_replication_response(0, 0, None), "entries must be bytes or str"),
        (lambda: encode_entry("0", 0, 0, None, b""), "offset must be an integer"),
        (lambda: encode_entry(0, 0, 0, 1, b""), "key must be bytes or str, not int"),
        (lambda: encode_messages(["x"]), "value: string 0 must be bytes or None, not str"),
        (lambda: encode_messages([b"x"], offset=[1.5]), "offset must be integers"),
        (
            lambda: encode_messages([b"x"], offset=[[1]]),
            "offset must be integers in an array of one dimension",
        ),
        (
            lambda: encode_messages([b"x"], offset=[[1], [2, 3]]),
            "offset must be integers in an array of one dimension, not list of sequences",
        ),
        (lambda: encode_messages([b"x"], offset="1"), "offset must be an integer"),
        (lambda: encode_messages([b"x"], offset=[True]), "offset must be integers"),
        (
            lambda: encode_messages([b"x"], offset=np.ma.array([1], mask=[True])),
            "offset: a masked array",
        ),
        (
            lambda: encode_messages([b"x"], offset=pa.array(["a"])),
            "offset in Arrow are integers or timestamps",
        ),
        (lambda: encode_messages([b"x"], headers=7), "headers are a mapping or list"),
        (lambda: encode_entries(None, 0, 0, None, ["x"]), "value: string 0"),
        (lambda: encode_entries(0, 0, 0, None, 7), "value: byte strings are"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_of_another_type(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_kernels_refuse_columns_that_do_not_fit():
    three = ByteStrings([b"a"] * 3)
    zero = np.zeros(1, np.int64)
    for column in (
        three,
        np.zeros(3, np.int64),
        Pairs.of_columns([b"k"], [three], 3),
        ByteStrings([b"a"]),
    ):
        with pytest.raises(ValueError, match="columns of unequal length"):
            write_messages([(1, column)], 2, b"", crc=False)
    pairs = Pairs.of_columns([], [], 2)
    for call in (
        lambda: write_entries(zero, zero, zero, three, ByteStrings([b"a"] * 2)),
        lambda: write_entries(np.zeros(2, np.int64), zero, zero, three, three),
        lambda: write_entries(zero, zero, zero, three, three, pairs),
    ):
        with pytest.raises(ValueError, match="columns of unequal length"):
            call()
