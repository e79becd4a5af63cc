"""NATS tables: operations, columns, lenient syntax, faults, headers, options, credentials."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wirescan
from tests.laws.cases import steady
from tests.laws.packages import PACKAGES
from tests.reference import nats as reference
from tests.strategies import nats as strategies
from tests.strategies.nats import (
    CONNECT,
    GOLDEN,
    INFO,
    make_block,
    make_hmsg,
    make_hpub,
    make_line,
    make_msg,
    make_pub,
)
from tests.support.tables import list_columns
from wirescan import Fault, FrameError, Limits, Parser, nats
from wirescan.frames.registry import format_of
from wirescan.nats import Kind
from wirescan.nats.formats import KINDS
from wirescan.reading.stream import Stream
from wirescan.testing import laws

PACKAGE = PACKAGES["nats"]
BLOCK = make_block((b"A", b"1"), (b"b", b"x y"))


def list_outcomes(raw, **options):
    """Return (operation, non-null columns) of a good message, the fault's name of a bad one."""
    table = nats.scan(raw, errors="mark", **options)
    outcomes = []
    for i, row in enumerate(table):
        if row.fault:
            outcomes.append(Fault(row.fault).name)
            continue
        views = {name: table.bytes(i, name) for name in table.places}
        texts = {name: bytes(view) for name, view in views.items() if view is not None}
        outcomes.append((KINDS.get(row.kind), texts))
    return outcomes


# ---- operations and columns

EXAMPLES = {
    "INFO": (b'INFO {"a":1}\r\n', dict(payload=b'{"a":1}')),
    "INFO with a blank at its end": (b'INFO {"a": 1} \r\n', dict(payload=b'{"a": 1}')),
    "INFO of nothing": (b"INFO \r\n", dict(payload=b"")),
    "CONNECT": (CONNECT, {}),
    "PUB": (b"PUB a.b 5\r\nhello\r\n", dict(subject=b"a.b", payload=b"hello")),
    "PUB with a reply": (
        b"PUB a in.1 2\r\nhi\r\n",
        dict(subject=b"a", reply=b"in.1", payload=b"hi"),
    ),
    "PUB of nothing": (b"PUB a 0\r\n\r\n", dict(subject=b"a", payload=b"")),
    "HPUB": (make_hpub(b"x", BLOCK), dict(subject=b"a", headers=BLOCK, payload=b"x")),
    "HPUB with a reply": (
        make_hpub(b"", BLOCK, b"s", b"r"),
        dict(subject=b"s", reply=b"r", headers=BLOCK, payload=b""),
    ),
    "MSG": (b"MSG a.b 9 5\r\nhello\r\n", dict(subject=b"a.b", sid=b"9", payload=b"hello")),
    "MSG with a reply": (
        b"MSG a 9 r 1\r\nx\r\n",
        dict(subject=b"a", sid=b"9", reply=b"r", payload=b"x"),
    ),
    "MSG with a sid of letters": (
        make_msg(b"", b"a", b"abc3"),
        dict(subject=b"a", sid=b"abc3", payload=b""),
    ),
    "HMSG": (make_hmsg(b"x", BLOCK), dict(subject=b"a", sid=b"1", headers=BLOCK, payload=b"x")),
    "HMSG with a reply": (
        make_hmsg(b"x", BLOCK, reply=b"r"),
        dict(subject=b"a", sid=b"1", reply=b"r", headers=BLOCK, payload=b"x"),
    ),
    "SUB": (b"SUB a.* 1\r\n", dict(subject=b"a.*", sid=b"1")),
    "SUB with a queue": (
        b"SUB a.> workers 17\r\n",
        dict(subject=b"a.>", queue=b"workers", sid=b"17"),
    ),
    "UNSUB": (b"UNSUB 1\r\n", dict(sid=b"1")),
    "UNSUB with a maximum": (b"UNSUB 1 5\r\n", dict(sid=b"1")),
    "PING": (b"PING\r\n", {}),
    "PONG": (b"PONG\r\n", {}),
    "+OK": (b"+OK\r\n", {}),
    "-ERR": (b"-ERR 'Slow Consumer'\r\n", dict(payload=b"'Slow Consumer'")),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_operations_have_places(name):
    raw, places = EXAMPLES[name]
    assert list_outcomes(raw + make_pub()) == [
        (name.split()[0], places),
        ("PUB", dict(subject=b"a", payload=b"")),
    ]


def test_messages_have_columns():
    message = make_hmsg(b"x", make_block((b"A", b"1"), status=b" 503 none"), reply=b"r")
    raw = INFO + message + b"UNSUB 7 30\r\nPING\r\n"
    table = nats.scan(raw)
    assert list_columns(table, "kind start size body count status header_count") == [
        (Kind.INFO, 0, 40, 5, 0, 0, 0),
        (Kind.HMSG, 40, 48, 45, 0, 503, 1),
        (Kind.UNSUB, 88, 12, 12, 30, 0, 0),
        (Kind.PING, 100, 6, 6, 0, 0, 0),
    ]
    names = "subject_at sid_at reply_at headers_at headers_size payload_at payload_size"
    assert list_columns(table[1:2], names) == [(5, 7, 9, 18, 27, 45, 1)]
    assert table.name == "nats.messages"
    assert table.dtype.itemsize == 80
    assert not table.bad.any()
    assert (table["parent"] == -1).all()
    assert (table["buffer"] == 0).all()
    assert table.stop == (0, len(raw), 0)
    assert table.places == ("subject", "sid", "reply", "queue", "headers", "payload")
    assert [bytes(table.payload(i)) for i in range(4)] == [
        b'{"server_id":"S","headers":true} \r\n',
        b"x\r\n",
        b"",
        b"",
    ]


def test_kinds_have_their_numbers():
    assert {kind.name: kind.value for kind in Kind} == dict(
        INFO=1,
        CONNECT=2,
        PUB=3,
        HPUB=4,
        SUB=5,
        UNSUB=6,
        MSG=7,
        HMSG=8,
        PING=9,
        PONG=10,
        OK=11,
        ERR=12,
    )
    names = " ".join(KINDS[number] for number in range(1, 13))
    assert names == "INFO CONNECT PUB HPUB SUB UNSUB MSG HMSG PING PONG +OK -ERR"


def test_both_directions_are_read():
    up = CONNECT + b"PING\r\nSUB a 1\r\n" + make_pub(b"hello") + make_hpub(b"hello", BLOCK)
    down = INFO + b"PONG\r\n+OK\r\n" + make_msg(b"hello") + make_hmsg(b"hello", BLOCK) + INFO
    for raw in (up, down, up + down):
        assert b"".join(laws.list_frames(nats.scan(raw))) == raw


HELLO = ("PUB", dict(subject=b"a", payload=b"hello"))
LENIENT = {
    "lower case": (b"pub a 5\r\nhello\r\n", HELLO),
    "mixed case": (b"PuB a 5\r\nhello\r\n", HELLO),
    "tabs": (b"PUB\ta\t5\r\nhello\r\n", HELLO),
    "many blanks": (b"PUB  \t a \t\t 5  \t\r\nhello\r\n", HELLO),
    "a line of LF alone": (b"PUB a 5\nhello\r\n", HELLO),
    "a blank before LF": (b"PUB a 5 \nhello\r\n", HELLO),
    "zeros before the size": (b"PUB a 000000005\r\nhello\r\n", HELLO),
    "nine digits": (b"PUB a 000000000\r\n\r\n", ("PUB", dict(subject=b"a", payload=b""))),
    "lower case and LF alone": (b"ping\n", ("PING", {})),
    "an operation and more": (b"PING x y\r\n", ("PING", {})),
    "lower case with a sign": (b"-err 'x'\n", ("-ERR", dict(payload=b"'x'"))),
    "a CR in a word": (b"SUB a\rb 1\r\n", ("SUB", dict(subject=b"a\rb", sid=b"1"))),
    "zeros before both sizes": (
        b"HPUB a 012 00012\r\n" + make_block() + b"\r\n",
        ("HPUB", dict(subject=b"a", headers=make_block(), payload=b"")),
    ),
    "a subject that is an operation": (
        b"PUB PUB 0\r\n\r\n",
        ("PUB", dict(subject=b"PUB", payload=b"")),
    ),
    "a reply that is a number": (
        b"PUB a 5 0\r\n\r\n",
        ("PUB", dict(subject=b"a", reply=b"5", payload=b"")),
    ),
    "a line of 10,000 bytes": (
        b"SUB " + b"a" * 10_000 + b" 1\r\n",
        ("SUB", dict(subject=b"a" * 10_000, sid=b"1")),
    ),
}


@pytest.mark.parametrize("raw, message", LENIENT.values(), ids=LENIENT)
def test_lenient_syntax_is_accepted(raw, message):
    assert list_outcomes(raw + b"PING\r\n") == [message, ("PING", {})]
    laws.keeps_every_law(PACKAGE, raw, list(range(0, len(raw), 5)))


PAYLOADS = (
    b"PING\r\n",
    b"\r\n",
    b"\r\n\r\nMSG a 1 5\r\nhello\r\n",
    b"PUB a 100\r\n",
    b"\n",
    bytes(9),
    b"\r",
    b"5\r\n",
)


@pytest.mark.parametrize("payload", PAYLOADS, ids=repr)
def test_payloads_that_look_like_protocol(payload):
    raw = (
        make_pub(payload)
        + make_msg(payload)
        + make_hpub(payload, BLOCK)
        + make_hmsg(payload, BLOCK)
    )
    table = nats.scan(raw)
    assert [bytes(row.payload) for row in table] == 4 * [payload]
    assert table["kind"].tolist() == [Kind.PUB, Kind.MSG, Kind.HPUB, Kind.HMSG]


# ---- faults

HARD = {
    "an unknown operation": (b"PUBX a 0\r\n\r\n", "NOT_A_FRAME"),
    "an operation of routes": (b"RMSG $G a 0\r\n\r\n", "NOT_A_FRAME"),
    "HTTP": (b"GET / HTTP/1.1\r\n", "NOT_A_FRAME"),
    "TLS": (b"\x16\3\1\2\0\1\0\1", "NOT_A_FRAME"),
    "an empty line": (b"\r\n", "NOT_A_FRAME"),
    "an empty line of LF alone": (b"\n", "NOT_A_FRAME"),
    "a blank first": (b" PING\r\n", "NOT_A_FRAME"),
    "a tab first": (b"\tPING\r\n", "NOT_A_FRAME"),
    "CR twice": (b"PING\r\r\n", "NOT_A_FRAME"),
    "CR alone": (b"PING\rPING\r\n", "NOT_A_FRAME"),
    "no size": (b"PUB a\r\n", "NOT_A_FRAME"),
    "no word": (b"PUB\r\n", "NOT_A_FRAME"),
    "a word too many": (b"PUB a b c 0\r\n\r\n", "NOT_A_FRAME"),
    "many words too many": (b"PUB a" + b" b" * 99 + b" 0\r\n\r\n", "NOT_A_FRAME"),
    "MSG without a sid": (b"MSG a 0\r\n\r\n", "NOT_A_FRAME"),
    "MSG with too much": (b"MSG a 1 r q 0\r\n\r\n", "NOT_A_FRAME"),
    "HPUB with one size": (b"HPUB a 0\r\n\r\n", "NOT_A_FRAME"),
    "HMSG with one size": (b"HMSG a 1 0\r\n\r\n", "NOT_A_FRAME"),
    "HMSG with too much": (b"HMSG a 1 r q 12 12\r\n", "NOT_A_FRAME"),
    "ten digits": (b"PUB a 0000000005\r\nhello\r\n", "BAD_LENGTH"),
    "more than 64 bits": (b"PUB a 18446744073709551621\r\nhello\r\n", "BAD_LENGTH"),
    "a sign": (b"PUB a +5\r\nhello\r\n", "BAD_LENGTH"),
    "a size below 0": (b"PUB a -1\r\nhello\r\n", "BAD_LENGTH"),
    "no digits": (b"PUB a 5x\r\nhello\r\n", "BAD_LENGTH"),
    "the largest size that is possible, and not usual": (
        b"PUB a 999999999\r\nhello\r\n",
        "BAD_LENGTH",
    ),
    "ten digits of headers": (b"HPUB a 0000000012 12\r\n" + make_block() + b"\r\n", "BAD_LENGTH"),
    "no number of headers": (b"HMSG a 1 x 12\r\n" + make_block() + b"\r\n", "BAD_LENGTH"),
    "a payload that is longer": (b"PUB a 4\r\nhello\r\n", "BAD_LENGTH"),
    "a payload that is shorter": (b"PUB a 6\r\nhello\r\nPING\r\n", "BAD_LENGTH"),
    "a payload and LF alone": (b"PUB a 5\r\nhello\nPING\r\n", "BAD_LENGTH"),
    "headers above the size, and no CRLF": (
        b"HPUB a 13 12\r\n" + make_block() + b"..",
        "BAD_LENGTH",
    ),
    "HPUB with headers above the size": (
        b"HPUB a 13 12\r\n" + make_block() + b"\r\n",
        "BAD_LENGTH",
    ),
    "HPUB whose payload looks like a message": (
        b"HPUB foo.a 20 8\r\nPING\r\n\r\n\r\n",
        "BAD_LENGTH",
    ),
    "HPUB with headers above the size, and no payload yet": (b"HPUB foo.a 20 10\r\n", "BAD_LENGTH"),
    "HMSG with headers above the size": (b"HMSG a 1 r 999999999 0\r\n\r\n", "BAD_LENGTH"),
}


@pytest.mark.parametrize("raw, fault", HARD.values(), ids=HARD)
def test_faults_that_end_the_scan(raw, fault):
    """The rest of the stream is one bad row. A strict scan reports its position and fault."""
    assert list_outcomes(b"PING\r\n" + raw + b"PONG\r\n") == [("PING", {}), fault]
    assert nats.scan(b"PING\r\n" + raw + b"PONG\r\n", errors="skip")["kind"].tolist() == [Kind.PING]
    with pytest.raises(FrameError, match=fault) as caught:
        nats.scan(b"PING\r\n" + raw)
    assert (caught.value.offset, caught.value.row) == (6, 1)
    assert caught.value.near == raw[:16]
    laws.keeps_every_law(PACKAGE, b"PING\r\n" + raw + b"PONG\r\n", [3, 9, 11])


def test_headers_above_the_size_are_bad_at_the_end_of_their_line():
    stream = wirescan.stream("nats.messages")
    with pytest.raises(FrameError, match="BAD_LENGTH"):
        stream.feed(b"HPUB foo.a 20 10\r\n")
    assert nats.scan(b"HPUB foo.a 20 10\r", errors="mark").stop.fault == Fault.SHORT


def test_a_header_block_is_a_column_too():
    table = nats.scan(make_hpub(b"payload", make_block((b"A", b"b"))))
    assert bytes(table.bytes(0, "headers")) == make_block((b"A", b"b"))
    assert [tuple(map(bytes, pair)) for pair in table[0].headers] == [(b"A", b"b")]


SOFT = {
    "SUB of nothing": (b"SUB\r\n", "BAD_COUNT"),
    "SUB without a sid": (b"SUB a\r\n", "BAD_COUNT"),
    "SUB with too much": (b"SUB a q 1 2\r\n", "BAD_COUNT"),
    "UNSUB of nothing": (b"UNSUB\r\n", "BAD_COUNT"),
    "UNSUB with too much": (b"UNSUB 1 2 3\r\n", "BAD_COUNT"),
    "UNSUB of no number": (b"UNSUB 1 x\r\n", "BAD_COUNT"),
    "UNSUB of ten digits": (b"UNSUB 1 0000000001\r\n", "BAD_COUNT"),
}


@pytest.mark.parametrize("raw, fault", SOFT.values(), ids=SOFT)
def test_faults_after_which_the_scan_continues(raw, fault):
    """The message is one bad row with its kind and no other column. The scan continues after it."""
    assert list_outcomes(b"PING\r\n" + raw + b"PONG\r\n") == [("PING", {}), fault, ("PONG", {})]
    table = nats.scan(b"PING\r\n" + raw, errors="mark")
    assert bytes(table.frame(1)) == raw
    assert table[1:]["kind"] == Kind[raw.split()[0].decode()]
    assert all(table.bytes(1, name) is None for name in table.places)
    names = "body count status header_count subject_size payload_size"
    assert list_columns(table[1:], names) == [(0, 0, 0, 0, 0, 0)]
    with pytest.raises(FrameError, match=fault):
        nats.scan(raw)
    laws.keeps_every_law(PACKAGE, b"PING\r\n" + raw + b"PONG\r\n", [3, 9, 11])


@pytest.mark.parametrize("raw", GOLDEN.values(), ids=GOLDEN)
def test_a_cut_message_is_short(raw):
    ends = np.cumsum([0, *nats.scan(raw)["size"].tolist()]).tolist()
    for cut in range(len(raw)):
        table = nats.scan(raw[:cut])
        whole = max(end for end in ends if end <= cut)
        assert table.stop[:2] == ((Fault.OK if cut == whole else Fault.SHORT), whole)
        assert b"".join(laws.list_frames(table)) + bytes(table.tail) == raw[:cut]


def test_frames_beyond_the_limit():
    raw = make_pub(bytes(2000))
    for following in (b"", raw, b"PING\r\n"):
        assert not nats.scan(raw + following, limits=Limits(frame=len(raw))).bad.any()
    for cut in (len(raw), len(raw) - 1):
        with pytest.raises(FrameError, match="BAD_LENGTH"):
            nats.scan(raw[:cut], limits=Limits(frame=len(raw) - 1))
    with pytest.raises(FrameError, match="LIMIT"):
        nats.scan(b"PING\r\n" * 11, limits=Limits(rows=10))


def test_other_protocols_are_refused_at_once():
    for raw in (b"GET /", b"\x16\3\1", b"PUBX", b"PINGS", b" ", b"\n", b"+ok!", b"PING\rx"):
        stream = wirescan.stream("nats.messages")
        stream.feed(b"PING\r\n")
        with pytest.raises(FrameError, match="NOT_A_FRAME") as caught:
            for i in range(len(raw)):
                stream.feed(raw[i : i + 1])
        assert caught.value.offset == 6


def test_a_cut_operation_is_short():
    for name in reference.OPERATIONS:
        for size in range(1, len(name) + 1):
            table = nats.scan(name[:size].lower())
            assert (len(table), *table.stop[:2]) == (0, Fault.SHORT, 0)


# ---- credentials


def test_credentials_only_on_request():
    raw = CONNECT + b'CONNECT {"jwt":"x"}\r\n'
    hidden = nats.scan(raw)
    shown = nats.scan(raw, credentials=True)
    assert [row.payload for row in hidden] == [None, None]
    assert hidden["payload_size"].tolist() == [-1, -1]
    assert [bytes(row.payload) for row in shown] == [raw[8:53], b'{"jwt":"x"}']
    assert hidden["size"].tolist() == shown["size"].tolist()
    assert "secret" not in repr(hidden)
    assert [bytes(hidden.payload(i)) for i in (0, 1)] == [b"", b""]


def test_options_have_no_credentials():
    credentials = b'"nkey":1,"sig":2,"jwt":3,"auth_token":4,"pass":5'
    raw = INFO + CONNECT + b"PING\r\n"
    raw += b"connect\t{" + credentials + b',"lang":"go"} \n'
    raw += b"INFO [1]\r\nINFO {\r\nINFO\r\nINFO \xff\r\nCONNECT " + b"[" * 100_000 + b"\r\n"
    table = nats.scan(raw)
    without_credentials = [
        dict(server_id="S", headers=True),
        dict(verbose=False),
        None,
        dict(lang="go"),
        *5 * [None],
    ]
    assert nats.options(table) == without_credentials
    complete = nats.options(table, credentials=True)
    assert complete[1] == json.loads(CONNECT[8:])
    assert complete[3] == dict(nkey=1, sig=2, jwt=3, auth_token=4, lang="go") | {"pass": 5}
    assert nats.options(nats.scan(raw, credentials=True)) == without_credentials
    with pytest.raises(TypeError, match="nats.messages"):
        nats.options(nats.headers(table))


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"-Infinity", b'[1, {"b": NaN}]'])
def test_options_that_are_no_json_are_none(value):
    raw = b'INFO {"a":%b}\r\nCONNECT {"a":%b}\r\nINFO {"a":"NaN"}\r\n' % (value, value)
    assert nats.options(nats.scan(raw)) == [None, None, dict(a="NaN")]


def test_options_of_a_row_without_bytes_are_none():
    """Rows may come from a user."""
    table = nats.scan(INFO)
    rows = table.rows.copy()
    rows["size"] = 0
    assert nats.options(wirescan.FrameTable(table.buffers, rows, (), table.format)) == [None]


# ---- headers


def list_pairs(raw, errors="mark"):
    """Return the pair of each good header, and the fault's name of each bad header."""
    table = nats.headers(nats.scan(raw), errors=errors)
    return [Fault(row.fault).name if row.fault else tuple(map(bytes, row)) for row in table]


def test_headers_have_columns():
    raw = (
        make_pub()
        + make_hpub(b"x", make_block((b"A", b"1"), (b"Key", b"a b")))
        + make_hmsg(b"", make_block((b"A", b"")))
    )
    messages = nats.scan(raw)
    table = nats.headers(messages)
    assert list_columns(table, "parent start size key_at key_size value_at value_size") == [
        (1, 35, 6, 0, 1, 3, 1),
        (1, 41, 10, 0, 3, 5, 3),
        (2, 82, 5, 0, 1, 3, 0),
    ]
    assert table.name == "nats.headers"
    assert table.dtype.itemsize == 40
    assert table.outer is messages
    assert [[tuple(map(bytes, pair)) for pair in row.headers] for row in messages] == [
        [],
        [(b"A", b"1"), (b"Key", b"a b")],
        [(b"A", b"")],
    ]
    assert laws.describe_rows(wirescan.scan(raw, "nats.headers")) == laws.describe_rows(table)


HEADED = {
    "none": (make_block(), []),
    "a status": (make_block(status=b" 503"), []),
    "the same name again, and in another case": (
        make_block((b"A", b"1"), (b"A", b"2"), (b"a", b"3")),
        [(b"A", b"1"), (b"A", b"2"), (b"a", b"3")],
    ),
    "blanks around a value": (b"NATS/1.0\r\nA: \t x y \t\r\n\r\n", [(b"A", b"x y")]),
    "blanks alone": (b"NATS/1.0\r\nA: \t \r\n\r\n", [(b"A", b"")]),
    "no blank": (b"NATS/1.0\r\nA:1\r\n\r\n", [(b"A", b"1")]),
    "a name stands as it is": (b"NATS/1.0\r\n A :1\r\n\r\n", [(b" A ", b"1")]),
    "colons in a value": (make_block((b"A", b"b:c:")), [(b"A", b"b:c:")]),
    "not UTF-8": (make_block((b"\xff", b"\xfe")), [(b"\xff", b"\xfe")]),
    "a CR in a value": (make_block((b"A", b"b\rc")), [(b"A", b"b\rc")]),
    "no colon": (b"NATS/1.0\r\nA\r\nB: 1\r\n\r\n", ["BAD_FIELD", (b"B", b"1")]),
    "no name": (b"NATS/1.0\r\n: 1\r\nB: 1\r\n\r\n", ["BAD_FIELD", (b"B", b"1")]),
    "an empty line between": (
        b"NATS/1.0\r\nA: 1\r\n\r\nB: 1\r\n\r\n",
        [(b"A", b"1"), "BAD_FIELD", (b"B", b"1")],
    ),
    "no bytes": (b"", ["BAD_MAGIC"]),
    "another version": (b"NATS/2.0\r\nA: 1\r\n\r\n", ["BAD_MAGIC"]),
    "another case": (b"nats/1.0\r\n\r\n", ["BAD_MAGIC"]),
    "no empty line": (b"NATS/1.0\r\nA: 1\r\n", ["TRUNCATED"]),
    "no line at all": (b"NATS/1.0\r\n", ["TRUNCATED"]),
    "no end of a line": (b"NATS/1.0", ["TRUNCATED"]),
    "bytes behind": (make_block((b"A", b"1")) + b"x", ["TRUNCATED"]),
}


@pytest.mark.parametrize("headers, expected", HEADED.values(), ids=HEADED)
def test_a_bad_header_block_leaves_its_message_good(headers, expected):
    """Servers pass on any block that a client sent, so a bad block leaves its message good."""
    for raw in (make_hpub(b"x\r\n\r\n", headers), make_hmsg(b"", headers)):
        messages = nats.scan(raw + make_pub())
        assert not messages.bad.any()
        assert messages["header_count"].tolist() == [len(expected), 0]
        assert bytes(messages[:1].bytes(0, "headers")) == headers
        assert list_pairs(raw + make_pub()) == expected
        laws.keeps_every_law(PACKAGE, raw, list(range(0, len(raw), 5)))
        whole = nats.headers(messages, errors="mark")
        if expected in (["BAD_MAGIC"], ["TRUNCATED"]):
            assert laws.list_frames(whole) == [headers]
        faults = [header for header in expected if isinstance(header, str)]
        if faults:
            with pytest.raises(FrameError, match=faults[0]):
                nats.headers(messages)


@pytest.mark.parametrize(
    "text, status",
    [
        (b"", 0),
        (b" 503", 503),
        (b" 100 Idle Heartbeat", 100),
        (b"  \t404  No Messages", 404),
        (b" 65535", 65535),
        (b" 65536", 0),
        (b" 99999", 0),
        (b" 4294967799", 0),
        (b" no", 0),
        (b" -1", 0),
        (b"503", 0),
    ],
    ids=repr,
)
def test_a_status_is_a_number(text, status):
    assert nats.scan(make_hmsg(b"", make_block(status=text)))["status"].tolist() == [status]
    laws.agrees_with_the_reference(PACKAGE, make_hmsg(b"", make_block((b"A", b"1"), status=text)))


def test_headers_of_bad_messages():
    messages = nats.scan(b"SUB\r\n" + make_hpub(b"", BLOCK) + b"?", errors="mark")
    table = nats.headers(messages, errors="mark")
    assert list_columns(table, "parent fault") == [
        (0, Fault.BAD_COUNT),
        (1, 0),
        (1, 0),
        (2, Fault.NOT_A_FRAME),
    ]


# ---- arguments, rows, streams


def test_wrong_arguments_are_refused():
    for call in (nats.headers, nats.options):
        with pytest.raises(TypeError, match="nats.messages"):
            call(b"PING\r\n")
    with pytest.raises(ValueError, match="errors"):
        nats.scan(b"", errors="loud")
    with pytest.raises(TypeError, match="neither a path nor a bytes-like object: int"):
        nats.scan(7)
    with pytest.raises(ValueError, match="into"):
        nats.scan([b"", b""], into=np.empty(1, nats.MESSAGE))
    into = np.empty(9, nats.MESSAGE)
    table = nats.scan(b"PING\r\nPONG\r\n", into=into)
    assert np.shares_memory(table.rows, into)
    assert table["kind"].tolist() == [Kind.PING, Kind.PONG]
    assert len(nats.scan(b"")) == 0 == len(nats.headers(nats.scan(b"")))


def test_forged_rows_do_no_harm():
    """Forged rows raise an error, or their byte columns lie inside their frames."""
    messages = nats.scan(make_hpub(b"x", BLOCK) + make_hmsg(b"", b"NATS/1.0\r\n"))
    for column in messages.dtype.names:
        for value in (1, 40, 255, 10**4, 2**31 - 1):
            rows = messages.rows.copy()
            rows[column] = min(value, np.iinfo(rows.dtype[column]).max)
            try:
                table = nats.headers(replace(messages, rows=rows), errors="mark")
                for row in table:
                    assert all(len(string) <= row.size for string in row if string is not None)
            except (ValueError, IndexError):
                continue
    for column in ("headers_at", "headers_size"):
        rows = messages.rows.copy()
        rows[column] = -1 if column == "headers_size" else 2**32 - 1
        with pytest.raises(ValueError, match="outside"):
            nats.headers(replace(messages, rows=rows))


def test_pickled_tables_have_the_same_rows():
    table = nats.headers(nats.scan(make_hpub(b"x", BLOCK)))
    assert laws.describe_rows(pickle.loads(pickle.dumps(table))) == laws.describe_rows(table)


def feed_stream(raw, size):
    """Feed `raw` in pieces; return (tables, calls of `bytes_needed`, bytes scanned)."""
    message_format = format_of("nats.messages")
    calls = []
    scanned = []

    def bytes_needed(held, *state):
        calls.append(len(held))
        return message_format.parser.bytes_needed(held, *state)

    def scan(view, *arguments, **options):
        scanned.append(len(view))
        return message_format.parser.scan(view, *arguments, **options)

    stream = Stream(replace(message_format, parser=Parser(scan=scan, bytes_needed=bytes_needed)))
    tables = [stream.feed(raw[at : at + size]) for at in range(0, len(raw), size)]
    tables.append(stream.close())
    return [table for table in tables if len(table)], len(calls), sum(scanned)


def test_large_messages_in_small_pieces_cost_linear_work():
    for raw in (make_pub(bytes(100_000)), b"INFO {" + b" " * 100_000 + b"}\r\n"):
        tables, _, scanned = feed_stream(raw, 100)
        assert [table["size"].tolist() for table in tables] == [[len(raw)]]
        assert scanned <= 3 * len(raw)


@steady
@given(
    strategies.damaged_streams() | strategies.streams(least=1),
    st.lists(st.integers(0, 300), max_size=4),
)
def test_an_incomplete_message_needs_more_bytes(raw, cuts):
    bytes_needed = format_of("nats.messages").parser.bytes_needed
    state = ()
    try:
        size = reference.read_message(raw, 0)["size"]
    except reference.BadBytesError as bad:
        size = None if bad.fault == Fault.SHORT else 0
    for cut in sorted({*(cut % (len(raw) + 1) for cut in cuts), len(raw)}):
        if size != 0 and cut:
            least, *state = bytes_needed(raw[:cut], *state)
            if size is None or cut < size:
                assert least > cut
            else:
                assert least <= cut


def test_directories_are_read_by_file_name(tmp_path):
    raw = b"".join(GOLDEN.values())
    (tmp_path / "one.nats").write_bytes(raw)
    (tmp_path / "_two.nats").write_bytes(raw)
    assert laws.describe_rows(wirescan.scan(tmp_path, "nats.messages")) == laws.describe_rows(
        nats.scan(raw)
    )


def test_builders_write_the_protocol():
    """The builders of these tests write the protocol's syntax."""
    assert make_line(b"PUB", b"a", None, 0) == b"PUB a 0\r\n"
    assert make_block((b"A", b"1")) == b"NATS/1.0\r\nA: 1\r\n\r\n"
    assert (
        make_hmsg(b"x", make_block(), b"s", b"9", b"r")
        == b"HMSG s 9 r 12 13\r\nNATS/1.0\r\n\r\nx\r\n"
    )


@pytest.mark.parametrize(
    "name", ["PASS", "Pass", "paſſ", "AUTH_TOKEN", "Jwt", "NKey", "nKey", "SIG", "uſer"]
)
def test_credentials_in_upper_and_lower_case(name):
    """Servers accept these names, because Go's JSON reader ignores case."""
    table = nats.scan(f'CONNECT {{"{name}":"x","lang":"y"}}\r\n'.encode())
    assert nats.options(table) == [dict(lang="y")]
    assert nats.options(table, credentials=True) == [{name: "x", "lang": "y"}]


def test_more_header_lines_than_are_counted():
    raw = make_hpub(b"", b"NATS/1.0\r\n" + 70_000 * b"a:\n" + b"\r\n")
    table = nats.scan(raw)
    assert table["header_count"].tolist() == [65_535]
    assert len(nats.headers(table)) == 70_000
