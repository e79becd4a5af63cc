"""NATS encoders: examples by hand, comparison with a plain writer, and reading back."""

import numpy as np
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import nats as strategies
from tests.support.examples import read_example_count
from wirescan import nats
from wirescan.core.pairs import Pairs
from wirescan.core.strings import ByteStrings
from wirescan.nats.encode import encode_msg, encode_msgs, encode_pub, encode_pubs
from wirescan.nats.writer import write_messages
from wirescan.testing.guarded_memory import GuardedMemory

quiet = settings(max_examples=read_example_count(30), deadline=None)
NAMES = st.sampled_from((b"A", b"Nats-Msg-Id", b"x y", b"\xff"))
VALUES = st.sampled_from((b"", b"1", b" a b ", b"a:b", b"\xff"))
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=3)
ROWS = st.lists(
    st.tuples(
        strategies.PLAIN_WORDS,
        strategies.PLAIN_WORDS,
        strategies.PLAIN_OPTIONAL,
        strategies.PAYLOADS,
        PAIRS,
    ),
    max_size=6,
)


def pub(subject, reply, payload, pairs=()):
    if not pairs:
        return strategies.make_pub(payload, subject, reply)
    return strategies.make_hpub(payload, strategies.make_block(*pairs), subject, reply)


def msg(subject, sid, reply, payload, pairs=(), status=b""):
    if not pairs and not status:
        return strategies.make_msg(payload, subject, sid, reply)
    return strategies.make_hmsg(
        payload, strategies.make_block(*pairs, status=status), subject, sid, reply
    )


def lists_of(rows):
    """Return the pairs of rows as (counts, names, values)."""
    counts = [len(pairs) for *_, pairs in rows]
    flat = [pair for *_, pairs in rows for pair in pairs]
    return counts, [key for key, _ in flat], [value for _, value in flat]


def read(raw):
    """Return [(kind, subject, sid, reply, payload, [(name, value)])]; a bad message raises."""
    messages = nats.scan(raw)
    assert messages.consumed == len(raw)
    pairs = [[] for _ in messages]
    for header in nats.headers(messages):
        pairs[header.parent].append((bytes(header.key), bytes(header.value)))
    rows = []
    for message, headers in zip(messages, pairs):
        views = (message.subject, message.sid, message.reply, message.payload)
        texts = [None if view is None else bytes(view) for view in views]
        rows.append((message.kind, *texts, headers))
    return rows


# ---- by hand


def test_messages_have_the_expected_bytes():
    assert encode_pub("a.b", b"hi") == b"PUB a.b 2\r\nhi\r\n"
    assert encode_pub(b"a", "é", reply="_INBOX.1") == b"PUB a _INBOX.1 2\r\n\xc3\xa9\r\n"
    assert encode_pub("a", b"", headers={}) == b"PUB a 0\r\n\r\n"
    assert encode_pub("a", b"", headers=[]) == b"PUB a 0\r\n\r\n"
    assert encode_pub("a", b"x", headers={"K": "é", b"k": b""}) == (
        b"HPUB a 24 25\r\nNATS/1.0\r\nK: \xc3\xa9\r\nk: \r\n\r\nx\r\n"
    )
    assert encode_msg("a", 7, b"x", reply="r") == b"MSG a 7 r 1\r\nx\r\n"
    assert encode_msg("a", "7", b"x", reply="r") == b"MSG a 7 r 1\r\nx\r\n"
    raw = encode_msg("a", np.int32(7), b"", status=503)
    assert raw == b"HMSG a 7 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"
    headers = [("A", "1"), ("A", "2")]
    raw = encode_msg("a", 7, b"", status=404, description="No Messages", headers=headers)
    assert raw == b"HMSG a 7 40 40\r\nNATS/1.0 404 No Messages\r\nA: 1\r\nA: 2\r\n\r\n\r\n"


def test_columns_have_the_expected_bytes():
    assert encode_pubs("a", [b"1", b""]) == b"PUB a 1\r\n1\r\nPUB a 0\r\n\r\n"
    headers = {"K": [b"v", None], "Z": None}
    raw = encode_pubs([b"a", b"b"], "same", replies=[None, b"r"], headers=headers)
    assert raw == b"HPUB a 18 22\r\nNATS/1.0\r\nK: v\r\n\r\nsame\r\nPUB b r 4\r\nsame\r\n"
    assert encode_msgs("a", 7, [b"x"]) == b"MSG a 7 1\r\nx\r\n"
    assert encode_msgs("a", np.int64(7), [b"x"]) == b"MSG a 7 1\r\nx\r\n"
    assert type(encode_pubs("a", [b"1"])) is bytes


def test_sizes_of_every_number_of_digits():
    for size in (0, 9, 10, 99, 100, 999, 1000, 99_999, 100_000, 1_234_567):
        payload = bytes(size)
        raw = b"PUB a %d\r\n%b\r\n" % (size, payload)
        assert encode_pub("a", payload) == raw
        assert encode_pubs("a", [payload]) == raw
        length = max(size - 16, 1)  # the header block has `size` bytes, or a few more
        block = strategies.make_block((b"K", b"v" * length))
        assert encode_pubs("a", [b"x"], headers={"K": "v" * length}) == strategies.make_hpub(
            b"x", block
        )


# ---- comparison with a plain writer


@quiet
@given(ROWS)
def test_messages_one_by_one(rows):
    for subject, sid, reply, payload, pairs in rows:
        raw = encode_pub(subject, payload, reply=reply, headers=pairs)
        assert raw == pub(subject, reply, payload, pairs)
        raw = encode_msg(subject, sid, payload, reply=reply, headers=pairs)
        assert raw == msg(subject, sid, reply, payload, pairs)


@quiet
@given(ROWS)
def test_columns_equal_single_messages(rows):
    subjects, sids, replies, payloads, _ = map(list, zip(*rows)) if rows else ([] for _ in range(5))
    options = dict(replies=replies, headers=lists_of(rows))
    raw = encode_pubs(subjects, payloads, **options)
    assert raw == b"".join(
        pub(subject, reply, payload, pairs) for subject, _, reply, payload, pairs in rows
    )
    raw += encode_msgs(subjects, sids, payloads, **options)
    assert raw.endswith(b"".join(msg(*row) for row in rows))
    wanted = [
        (subject, sid, reply, payload, [(key, value.strip(b" \t")) for key, value in pairs])
        for subject, sid, reply, payload, pairs in rows
    ]
    kinds = [(nats.Kind.PUB + bool(row[-1]), row[0], None, *row[2:]) for row in wanted]
    assert read(raw) == kinds + [(nats.Kind.MSG + bool(row[-1]), *row) for row in wanted]


@quiet
@given(st.lists(st.tuples(strategies.PAYLOADS, st.none() | VALUES, st.none() | VALUES), max_size=6))
def test_columns_of_headers_equal_single_messages(rows):
    payloads, first, second = map(list, zip(*rows)) if rows else ([], [], [])
    columns = [("One", first), (b"same", "value"), ("One", second), ("none", None)]
    wanted = b""
    for payload, first_value, second_value in rows:
        pairs = ((b"One", first_value), (b"same", b"value"), (b"One", second_value))
        block = strategies.make_block(*[(key, value) for key, value in pairs if value is not None])
        wanted += strategies.make_hpub(payload, block)
    assert encode_pubs("a", payloads, headers=columns) == wanted


PAYLOADS = [b"one", b"", b"a longer payload of many bytes"]


def make_columns_of_every_kind():
    long = pa.array([b"before", *PAYLOADS, b"after"])[1:4]
    data = b"".join(PAYLOADS)
    yield PAYLOADS
    yield np.array(PAYLOADS, object)
    yield np.array(PAYLOADS)
    yield np.array([0, 3, 3, len(data)]), data
    yield long
    yield pa.chunked_array([long[:1], long[1:]])
    for kind in (
        pa.large_binary(),
        pa.string(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
    ):
        yield pa.array(PAYLOADS, pa.binary()).cast(kind)
    yield pa.array(PAYLOADS).dictionary_encode()
    yield polars.Series([payload.decode() for payload in PAYLOADS])
    yield nats.scan(b"".join(map(strategies.make_pub, PAYLOADS))), "payload"


@pytest.mark.parametrize(
    "payloads", [*make_columns_of_every_kind()], ids=lambda column: type(column).__name__
)
def test_columns_of_every_kind(payloads):
    assert encode_pubs("a", payloads) == b"".join(map(strategies.make_pub, PAYLOADS))


def test_headers_of_every_kind():
    rows = [[(b"A", b"1"), (b"A", b"2")], [], [(b"B", b"")]]
    expected = b"".join(pub(b"a", None, b"x", pairs) for pairs in rows)
    flat = [pair for pairs in rows for pair in pairs]
    structs = [[{"key": key, "value": value} for key, value in pairs] for pairs in rows]
    pair = pa.struct([("key", pa.binary()), ("value", pa.binary())])
    whole = pa.array([[], *structs, None], pa.list_(pair))
    for headers in (
        ([2, 0, 1], [key for key, _ in flat], [value for _, value in flat]),
        (
            np.array([2, 0, 1], np.uint8),
            pa.array([key for key, _ in flat]),
            np.array([b"1", b"2", b""]),
        ),
        whole[1:4],
        pa.chunked_array([whole[1:2], whole[2:4]]),
        pa.array(structs, pa.large_list(pair)),
        pa.array([rows[0], None, rows[2]], pa.map_(pa.binary(), pa.string())),
    ):
        assert encode_pubs("a", [b"x"] * 3, headers=headers) == expected
        assert encode_pubs("a", "x", headers=headers) == expected
    messages = nats.scan(expected)
    headers = nats.headers(messages)
    again = encode_pubs(
        (messages, "subject"),
        (messages, "payload"),
        replies=(messages, "reply"),
        headers=(messages["header_count"], (headers, "key"), (headers, "value")),
    )
    assert again == expected


def test_no_rows_give_no_bytes():
    for headers in (
        None,
        {},
        {"A": []},
        ([], [], []),
        pa.array([], pa.map_("string", "string")),
        pa.chunked_array([], pa.map_("string", "string")),
    ):
        assert encode_pubs("a", [], headers=headers) == b""
        assert encode_msgs([], "1", [], headers=headers) == b""


@pytest.mark.parametrize("size", [*range(1, 150), 4096])
def test_nothing_is_read_outside(size):
    guarded = GuardedMemory(size)
    for put in (guarded.place_at_end, guarded.place_at_beginning):
        text = b"x" * size
        data = put(text)
        column = [0, size], data
        expected = strategies.make_hpub(text, strategies.make_block((b"k", text)), text)
        assert encode_pubs(column, column, headers={"k": column}) == expected
        del data, column


# ---- bad arguments

SURROGATE = "\ud800"
# Never written, so they take no memory.
LONG = bytes(999_999_999)
LONGER = bytes(10**9)


@pytest.mark.parametrize("word", [b"", b" ", b"a b", b"a\tb", b"a\r", b"\na"])
def test_bad_words_are_refused(word):
    for encode_one, encode_many in (
        (lambda: encode_pub(word, b""), lambda: encode_pubs([b"a", word], "x")),
        (
            lambda: encode_pub("a", b"", reply=word),
            lambda: encode_pubs("a", "x", replies=[None, word]),
        ),
        (lambda: encode_msg("a", word, b""), lambda: encode_msgs("a", [b"1", word], "x")),
    ):
        message = "^(subject|sid|reply) must not be null, empty, or hold a space"
        with pytest.raises(ValueError, match=message):
            encode_one()
        with pytest.raises(ValueError, match="^row 1: (subject|sid|reply) must not"):
            encode_many()
    with pytest.raises(ValueError, match="^row 0: subject must not"):
        encode_pubs(word, [b""] * 3)


@pytest.mark.parametrize(
    "key, value",
    [
        (b"", b""),
        (b"a:", b""),
        (b"a: b", b""),
        (b"a\r", b""),
        (b"\n", b""),
        (b"a", b"\r"),
        (b"a", b"b\nc"),
    ],
)
def test_bad_headers_are_refused(key, value):
    for headers in ({key: value}, [("A", "1"), (key, value)]):
        with pytest.raises(ValueError, match="^header .* must have a name without colon"):
            encode_pub("a", b"", headers=headers)
    for headers in ({"A": [b"", b""], key: [None, value]}, ([0, 1], [key], [value])):
        with pytest.raises(ValueError, match="^row 1: a header must have a name without colon"):
            encode_pubs("a", "x", headers=headers)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: encode_pub(SURROGATE, b""), "subject has a surrogate at 0"),
        (lambda: encode_pub("a", b"", headers={"a": SURROGATE}), "header b'a' has a surrogate"),
        (lambda: encode_pub("a", LONGER), "the message has 1000000000 bytes"),
        (lambda: encode_pub("a", LONG, headers={"a": ""}), "the message has 1000000016 bytes"),
        (lambda: encode_msg("a", -1, b""), "sid must be from 0"),
        (lambda: encode_msg("a", 1, b"", status=99), "status must be from 100 to 999, not 99"),
        (lambda: encode_msg("a", 1, b"", status=1000), "status must be"),
        (lambda: encode_msg("a", 1, b"", description="gone"), "must have a status"),
        (lambda: encode_msg("a", 1, b"", status=404, description="a\nb"), "not hold CR or LF"),
        (lambda: encode_pubs("a", b"x"), "no column says how many rows"),
        (lambda: encode_pubs("a", b"x", headers={"a": "b"}), "no column says how many rows"),
        (lambda: encode_pubs([b"a"], [b"x"] * 2), "unequal length: 1 in subject, 2 in payload"),
        (
            lambda: encode_pubs("a", [b"x"] * 2, headers={"K": [b""]}),
            "unequal length: 2 in payload, 1 in header b'K'",
        ),
        (
            lambda: encode_pubs("a", [b"x"] * 2, headers=([1], [b"a"], [b"b"])),
            "unequal length: 2 in payload, 1 in headers",
        ),
        (lambda: encode_pubs("a", [b"x", None]), "row 1: a payload must not be null"),
        (lambda: encode_pubs(None, [b"x"]), "row 0: subject must not be null"),
        (lambda: encode_msgs("a", [b"1", None], "x"), "row 1: sid must not be null"),
        (lambda: encode_msgs("a", -1, [b"x"]), "sid must be from 0"),
        (
            lambda: encode_pubs("a", [b"", LONGER]),
            "row 1: a message has at most 999999999 bytes",
        ),
        (lambda: encode_pubs("a", [LONG], headers={"a": ""}), "row 0: a message has at most"),
        (lambda: encode_pubs("a", [b""], headers=[("a", LONG), ("b", LONG)]), "row 0: a message"),
        (lambda: encode_pubs("a", ([0, 9], b"")), "payload: string 0"),
        (
            lambda: encode_pubs("a", [b"x"], headers=([1], [None], [b""])),
            "row 0: a header's key must not be null",
        ),
        (
            lambda: encode_pubs("a", [b"x"], headers=([1], [b"a"], [None])),
            "row 0: a header must have",
        ),
        (
            lambda: encode_pubs("a", [b"x"], headers=([2], [b"a"], [b""])),
            "the counts of headers do not fit",
        ),
        (
            lambda: encode_pubs("a", [b"x"], headers=([1], [b"a"], [])),
            "the counts of headers do not fit",
        ),
        (
            lambda: encode_pubs("a", [b"x"] * 2, headers=([2, -1], [b"a"], [b""])),
            "the counts of headers must be from 0",
        ),
        (
            lambda: encode_pubs("a", [b"x"], headers=([2**62], [b"a"], [b""])),
            "the counts of headers must be from 0",
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
        (lambda: encode_pub(None, b""), "subject must be bytes or str, not NoneType"),
        (lambda: encode_pub("a", None), "payload must be bytes or str, not NoneType"),
        (lambda: encode_pub("a", b"", reply=7), "reply must be bytes or str, not int"),
        (lambda: encode_pub("a", b"", headers="a: b"), "headers are a mapping or pairs"),
        (lambda: encode_pub("a", b"", headers=7), "headers are a mapping or pairs"),
        (lambda: encode_pub("a", b"", headers=["ab"]), "a header is"),
        (
            lambda: encode_pub("a", b"", headers={"a": None}),
            "header b'a' must be bytes or str, not NoneType",
        ),
        (
            lambda: encode_pub("a", b"", headers={1: ""}),
            "a header's key must be bytes or str, not int",
        ),
        (lambda: encode_msg("a", 1.5, b""), "sid must be an integer, not 1.5"),
        (lambda: encode_msg("a", None, b""), "sid must be an integer"),
        (lambda: encode_msg("a", 1, b"", status="503"), "status must be an integer"),
        (lambda: encode_pubs("a", ["x"]), "payload: string 0 must be bytes or None, not str"),
        (lambda: encode_pubs("a", pa.array([1])), "payload: byte strings in Arrow"),
        (lambda: encode_pubs("a", 7), "payload: byte strings are"),
        (lambda: encode_msgs("a", 1.5, [b"x"]), "sid: byte strings are"),
        (lambda: encode_pubs("a", [b"x"], headers="a"), "headers are a mapping or list"),
        (lambda: encode_pubs("a", [b"x"], headers=(1, 2)), "headers are a mapping or list"),
        (
            lambda: encode_pubs("a", [b"x"], headers=([1.5], [b"a"], [b""])),
            "the counts of headers must be integers",
        ),
        (
            lambda: encode_pubs("a", [b"x"], headers=([1], [1], [b""])),
            "the headers' keys: string 0",
        ),
        (lambda: encode_pubs("a", [b"x"], headers={"a": [1]}), "header b'a': string 0"),
        (lambda: encode_pubs("a", [b"x"], headers=pa.array([[1]])), "headers in Arrow are of type"),
        (
            lambda: encode_pubs("a", [b"x"], headers=pa.array([{"key": "a"}])),
            "headers in Arrow are of type",
        ),
        (
            lambda: encode_pubs("a", [b"x"], headers=pa.array([[{"key": "a", "v": "b"}]])),
            "headers in Arrow are of type",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arguments_of_another_type(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_kernels_refuse_columns_that_do_not_fit():
    three = ByteStrings([b"a"] * 3)
    two = ByteStrings([b"b"] * 2)
    for call in (
        lambda: write_messages(b"PUB", [two], three),
        lambda: write_messages(b"PUB", [three] * 4, three),
        lambda: write_messages(b"PUB", [three], three, Pairs.of_columns([b"k"], [two], 2)),
        lambda: Pairs.of_columns([b"k"], [two], 3),
        lambda: Pairs.of_columns([b"k"], [], 3),
    ):
        with pytest.raises(ValueError, match="columns of unequal length"):
            call()
    for first, counts in (
        ([0], [4]),
        ([-1], [1]),
        ([3], [1]),
        ([0], [-1]),
        ([0, 0], [3, 1]),
        ([0], [1, 1]),
    ):
        with pytest.raises(ValueError, match="do not fit"):
            Pairs.of_lists(np.array(first), np.array(counts), three, three)
