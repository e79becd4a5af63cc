"""thrift.resolve: headers that persist on a connection. The reference uses dictionaries."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.thrift import (
    make_big_frame,
    make_block,
    make_double_frame,
    make_framed,
    make_header_frame,
    make_message,
)
from wirescan import Fault, FrameError, Limits, thrift

KEYVALUE, PKEYVALUE = thrift.InfoKind
# Two keys differ neither at the start nor at the end.
MIDDLE = b"the same %c and the same"
SHORT_KEYS = [b"", b"a", b"a\0", b"\0a", b"b"]
KEYS = [*SHORT_KEYS, b"client_metadata", MIDDLE % b"1", MIDDLE % b"2", b"k" * 300]
PRECEDENCES = ("normal", "persistent")
PAYLOAD = make_message()


def expected(frames, connections, precedence):
    """Return [(frame, kind, key, value)] of [[(kind, pairs)]].

    The readers of fbthrift keep the headers in dictionaries like these.
    """
    persistent_headers = {}
    out = []
    for number, (blocks, connection) in enumerate(zip(frames, connections)):
        persistent = persistent_headers.setdefault(connection, {})
        own = {}
        for kind, pairs in blocks:
            for key, value in pairs:
                if kind == KEYVALUE:
                    own.pop(key, None)
                (persistent if kind == PKEYVALUE else own)[key] = value
        hidden = (own, {}) if precedence == "normal" else ({}, persistent)
        for kind, pairs, other in zip((PKEYVALUE, KEYVALUE), (persistent, own), hidden):
            out += [(number, kind, key, value) for key, value in pairs.items() if key not in other]
    return out


def headers_of(table):
    return [(row.parent, row.kind, bytes(row.key), bytes(row.value)) for row in table]


def frame_of(blocks, shape=make_header_frame):
    return shape(PAYLOAD, b"".join(make_block(int(kind), *pairs) for kind, pairs in blocks))


def make_conversation(*frames):
    """A table of thrift.frames of one connection. frames: (normal pairs, persistent pairs)."""
    raws = [
        frame_of([(PKEYVALUE, persistent), (KEYVALUE, normal)]) for normal, persistent in frames
    ]
    return thrift.scan(b"".join(raws))


pairs = st.lists(st.tuples(st.sampled_from(KEYS), st.binary(max_size=3)), max_size=4)
blocks = st.lists(st.tuples(st.sampled_from((KEYVALUE, KEYVALUE, PKEYVALUE)), pairs), max_size=3)


@given(
    st.lists(
        st.tuples(
            blocks,
            st.integers(0, 2),
            st.sampled_from((make_header_frame, make_big_frame, make_double_frame)),
        ),
        max_size=12,
    ),
    st.sampled_from(PRECEDENCES),
)
def test_headers_equal_those_of_dictionaries(drawn, precedence):
    frames = [blocks for blocks, _, _ in drawn]
    connections = [connection for _, connection, _ in drawn]
    table = thrift.scan(b"".join(frame_of(blocks, shape) for blocks, _, shape in drawn))
    numbers = np.array(connections, np.int64) * 10**12 - 10**12
    resolved = thrift.resolve(table, connections=numbers, precedence=precedence)
    assert headers_of(resolved) == expected(frames, connections, precedence)
    resolved = thrift.resolve(table, precedence=precedence)
    assert headers_of(resolved) == expected(frames, [0] * len(frames), precedence)


@given(st.lists(st.lists(blocks, max_size=5), max_size=4), st.sampled_from(PRECEDENCES))
def test_each_buffer_is_a_connection(connections, precedence):
    table = thrift.scan([b"".join(map(frame_of, frames)) for frames in connections])
    numbers = [number for number, frames in enumerate(connections) for _ in frames]
    resolved = thrift.resolve(table, precedence=precedence)
    assert headers_of(resolved) == expected(sum(connections, []), numbers, precedence)
    assert resolved["buffer"].tolist() == table["buffer"][resolved["parent"]].tolist()


def test_a_connection_can_have_several_buffers():
    first = frame_of([(PKEYVALUE, [(b"k", b"1")])])
    second = frame_of([(KEYVALUE, [(b"n", b"2")])])
    table = thrift.resolve(thrift.scan([first, second]), connections=[7, 7])
    assert headers_of(table) == [(0, 2, b"k", b"1"), (1, 2, b"k", b"1"), (1, 1, b"n", b"2")]
    assert table["buffer"].tolist() == [0, 0, 1]


@pytest.mark.parametrize("precedence", PRECEDENCES)
def test_many_pairs_are_resolved(precedence):
    """Few pairs are compared each with each. Many are not."""
    many = [(b"%d" % (i % 70), b"%d" % i) for i in range(100)]
    for frames in (
        [
            [(PKEYVALUE, many), (KEYVALUE, many[50:])],
            [(KEYVALUE, many[40:60])],
            [(PKEYVALUE, many[60:])],
        ],
        [
            [(KEYVALUE, many)],
            [(KEYVALUE, many[:70])],
            [(KEYVALUE, many[60:]), (KEYVALUE, many[:3])],
        ],
    ):
        table = thrift.scan(b"".join(map(frame_of, frames)))
        resolved = thrift.resolve(table, precedence=precedence)
        assert headers_of(resolved) == expected(frames, [0] * 3, precedence)


def test_without_persistent_headers_the_result_equals_the_infos():
    frames = make_conversation(*([([(b"a", b"1"), (b"b", b"2")], [])] * 50))
    resolved = thrift.resolve(frames)
    infos = thrift.infos(frames)
    assert (resolved.rows == infos.rows).all()
    assert resolved.format is infos.format
    assert resolved.outer is frames
    assert resolved.errors == "strict"
    assert resolved.dtype == thrift.INFO


def test_one_header_holds_for_many_frames():
    frames = make_conversation(
        ([], [(b"client_metadata", b"{}")]), *([([(b"n", b"1")], [])] * 9999)
    )
    resolved = thrift.resolve(frames)
    assert len(resolved) == 10_000 + 9_999
    assert np.bincount(resolved["parent"]).tolist() == [1, *[2] * 9_999]
    assert not resolved.rows.flags.writeable
    assert len(set(resolved["start"][resolved["kind"] == PKEYVALUE].tolist())) == 1


def test_a_persistent_block_can_come_first():
    """Readers of Apache Thrift stop at such a block and have no headers (facts 3.3)."""
    table = make_conversation(([(b"n1", b"1"), (b"n2", b"2")], [(b"p", b"3")]))
    assert [key for _, _, key, _ in headers_of(thrift.resolve(table))] == [b"p", b"n1", b"n2"]


def test_only_header_frames_have_headers():
    raw = frame_of([(PKEYVALUE, [(b"p", b"1")])]) + make_framed(PAYLOAD) + PAYLOAD + frame_of([])
    assert [frame for frame, *_ in headers_of(thrift.resolve(thrift.scan(raw)))] == [0, 3]


def test_damaged_headers_change_nothing():
    """A frame with an unknown transform has headers. A frame with a damaged header has none."""
    unknown = make_header_frame(PAYLOAD, make_block(2, (b"p", b"1")), transforms=[7])
    cut = make_header_frame(PAYLOAD, b"\x02\x01\x01p\x7f")
    frames = thrift.scan(unknown + cut + frame_of([(KEYVALUE, [(b"n", b"2")])]), errors="mark")
    assert frames["fault"].tolist() == [Fault.BAD_CODEC, Fault.TRUNCATED, Fault.OK]
    table = thrift.resolve(frames)
    assert headers_of(table) == [(0, 2, b"p", b"1"), (2, 2, b"p", b"1"), (2, 1, b"n", b"2")]
    assert table.errors == "mark"


def test_no_frames_have_no_headers():
    assert len(thrift.resolve(thrift.scan(b""))) == 0
    assert len(thrift.resolve(thrift.scan(PAYLOAD), connections=[1])) == 0
    assert len(thrift.resolve(thrift.scan(b""), connections=[])) == 0


def test_the_limit_on_rows():
    frames = make_conversation(*([([], [(b"%d" % i, b"")]) for i in range(20)]))
    assert len(thrift.resolve(frames, limits=Limits(rows=210))) == 210
    with pytest.raises(FrameError) as raised:
        thrift.resolve(frames, limits=Limits(rows=209))
    assert raised.value.fault == Fault.LIMIT
    with pytest.raises(FrameError, match="LIMIT"):
        thrift.resolve(frames, limits=Limits(rows=19))


def test_rows_are_counted_before_memory_is_allocated():
    """3,000 frames with 70 persistent headers each have 315 million rows."""
    pairs = [[(b"%d/%d" % (i, j), b"") for j in range(70)] for i in range(3000)]
    frames = make_conversation(*[([], persistent) for persistent in pairs])
    with pytest.raises(FrameError, match="LIMIT"):
        thrift.resolve(frames, limits=Limits(rows=300_000_000))


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"precedence": "last"}, ValueError, "precedence"),
        ({"connections": [1]}, ValueError, "1 numbers for 2 rows"),
        ({"connections": [1.0, 2.0]}, TypeError, "integers"),
        ({"connections": [[1], [2]]}, TypeError, "integers"),
        ({"connections": np.ma.masked_array([1, 2], [True, False])}, TypeError, "integers"),
        ({"connections": ["a", "b"]}, TypeError, "integers"),
        ({"limits": 5}, TypeError, "Limits"),
    ],
)
def test_invalid_arguments_are_refused(options, error, text):
    with pytest.raises(error, match=text):
        thrift.resolve(make_conversation(([], []), ([], [])), **options)


@pytest.mark.parametrize("table", [None, b"", thrift.infos(thrift.scan(b""))], ids=repr)
def test_other_tables_are_rejected(table):
    with pytest.raises(TypeError, match="resolve takes a table of thrift.frames"):
        thrift.resolve(table)


def test_invalid_rows_are_never_read_outside_the_buffers():
    """Rows may come from a user. They give ValueError or rows."""
    frames = make_conversation(([(b"n", b"1")], [(b"p", b"2")]), ([], []))
    chance = np.random.default_rng(1)
    for _ in range(300):
        rows = frames.rows.copy()
        flat = rows.view(np.uint8).reshape(-1)
        flat[chance.integers(0, len(flat), 3)] = chance.integers(0, 256, 3)
        with suppress(ValueError):
            headers_of(thrift.resolve(replace(frames, rows=rows, errors="mark")))
