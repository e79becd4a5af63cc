"""thrift.resolve: headers that persist on a connection, against a reading with dictionaries."""
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.thrift import big, block, double, framed, header, message
from wirescan import Fault, FrameError, Limits, thrift

KEYVALUE, PKEYVALUE = thrift.InfoKind
ALIKE = b"the same " + b"%c" + b" and the same"           # what differs is neither at the begin nor at the end
KEYS = [b"", b"a", b"a\0", b"\0a", b"b", b"client_metadata", ALIKE % b"1", ALIKE % b"2", b"k" * 300]
PRECEDENCES = ("normal", "persistent")
PAYLOAD = message()


def expected(frames, lines, precedence):
    """[(frame, kind, key, value)] of [[(kind, pairs)]]: as the readers of fbthrift keep them, in dictionaries."""
    state, out = {}, []
    for number, (blocks, line) in enumerate(zip(frames, lines)):
        persistent, own = state.setdefault(line, {}), {}
        for kind, pairs in blocks:
            for key, value in pairs:
                if kind == KEYVALUE:
                    own.pop(key, None)
                (persistent if kind == PKEYVALUE else own)[key] = value
        hidden = (own, {}) if precedence == "normal" else ({}, persistent)
        for kind, pairs, other in zip((PKEYVALUE, KEYVALUE), (persistent, own), hidden):
            out += [(number, kind, key, value) for key, value in pairs.items() if key not in other]
    return out


def found(table):
    return [(row.parent, row.kind, bytes(row.key), bytes(row.value)) for row in table]


def frame_of(blocks, shape=header):
    return shape(PAYLOAD, b"".join(block(int(kind), *pairs) for kind, pairs in blocks))


def conversation(*frames):
    """A table of thrift.frames of one connection; of each frame normal and persistent pairs."""
    return thrift.scan(b"".join(frame_of([(PKEYVALUE, persistent), (KEYVALUE, normal)])
                                for normal, persistent in frames))


pairs = st.lists(st.tuples(st.sampled_from(KEYS), st.binary(max_size=3)), max_size=4)
blocks = st.lists(st.tuples(st.sampled_from((KEYVALUE, KEYVALUE, PKEYVALUE)), pairs), max_size=3)


@given(st.lists(st.tuples(blocks, st.integers(0, 2), st.sampled_from((header, big, double))), max_size=12),
       st.sampled_from(PRECEDENCES))
def test_against_dictionaries(drawn, precedence):
    frames, lines = [one for one, _, _ in drawn], [line for _, line, _ in drawn]
    table = thrift.scan(b"".join(frame_of(one, shape) for one, _, shape in drawn))
    numbers = np.array(lines, np.int64) * 10**12 - 10**12
    assert found(thrift.resolve(table, connections=numbers, precedence=precedence)) == expected(
        frames, lines, precedence)
    assert found(thrift.resolve(table, precedence=precedence)) == expected(frames, [0] * len(frames), precedence)


@given(st.lists(st.lists(blocks, max_size=5), max_size=4), st.sampled_from(PRECEDENCES))
def test_each_buffer_is_a_connection(connections, precedence):
    table = thrift.scan([b"".join(map(frame_of, one)) for one in connections])
    lines = [number for number, one in enumerate(connections) for _ in one]
    resolved = thrift.resolve(table, precedence=precedence)
    assert found(resolved) == expected(sum(connections, []), lines, precedence)
    assert resolved["buffer"].tolist() == table["buffer"][resolved["parent"]].tolist()


def test_a_connection_of_several_buffers():
    first, second = ([(PKEYVALUE, [(b"k", b"1")])], [(KEYVALUE, [(b"n", b"2")])])
    table = thrift.resolve(thrift.scan([frame_of(first), frame_of(second)]), connections=[7, 7])
    assert found(table) == [(0, 2, b"k", b"1"), (1, 2, b"k", b"1"), (1, 1, b"n", b"2")]
    assert table["buffer"].tolist() == [0, 0, 1]


@pytest.mark.parametrize("precedence", PRECEDENCES)
def test_more_pairs_than_are_compared_each_with_each(precedence):
    many = [(b"%d" % (i % 70), b"%d" % i) for i in range(100)]
    for frames in ([[(PKEYVALUE, many), (KEYVALUE, many[50:])], [(KEYVALUE, many[40:60])], [(PKEYVALUE, many[60:])]],
                   [[(KEYVALUE, many)], [(KEYVALUE, many[:70])], [(KEYVALUE, many[60:]), (KEYVALUE, many[:3])]]):
        table = thrift.scan(b"".join(map(frame_of, frames)))
        assert found(thrift.resolve(table, precedence=precedence)) == expected(frames, [0] * 3, precedence)


def test_without_persistent_headers_they_are_the_infos():
    frames = conversation(*([([(b"a", b"1"), (b"b", b"2")], [])] * 50))
    resolved, infos = thrift.resolve(frames), thrift.infos(frames)
    assert (resolved.rows == infos.rows).all() and resolved.format is infos.format and resolved.outer is frames
    assert resolved.errors == "strict" and resolved.dtype == thrift.INFO


def test_one_header_of_many_frames():
    frames = conversation(([], [(b"client_metadata", b"{}")]), *([([(b"n", b"1")], [])] * 9999))
    resolved = thrift.resolve(frames)
    assert len(resolved) == 10_000 + 9_999
    assert np.bincount(resolved["parent"]).tolist() == [1, *[2] * 9_999]
    assert not resolved.rows.flags.writeable
    assert len(set(resolved["start"][resolved["kind"] == PKEYVALUE].tolist())) == 1


def test_what_readers_of_apache_lose():
    """Where the persistent block comes first they stop, and have none (facts 3.3): here all three are there."""
    table = conversation(([(b"n1", b"1"), (b"n2", b"2")], [(b"p", b"3")]))
    assert [key for _, _, key, _ in found(thrift.resolve(table))] == [b"p", b"n1", b"n2"]


def test_other_frames_have_none():
    raw = frame_of([(PKEYVALUE, [(b"p", b"1")])]) + framed(PAYLOAD) + PAYLOAD + frame_of([])
    assert [frame for frame, *_ in found(thrift.resolve(thrift.scan(raw)))] == [0, 3]


def test_bad_frames():
    """Of an unknown transform the headers are known; of a damaged header nothing is."""
    unknown = header(PAYLOAD, block(2, (b"p", b"1")), transforms=[7])
    cut = header(PAYLOAD, b"\x02\x01\x01p\x7f")
    frames = thrift.scan(unknown + cut + frame_of([(KEYVALUE, [(b"n", b"2")])]), errors="mark")
    assert frames["fault"].tolist() == [Fault.BAD_CODEC, Fault.TRUNCATED, Fault.OK]
    table = thrift.resolve(frames)
    assert found(table) == [(0, 2, b"p", b"1"), (2, 2, b"p", b"1"), (2, 1, b"n", b"2")]
    assert table.errors == "mark"


def test_no_frames():
    assert len(thrift.resolve(thrift.scan(b""))) == 0
    assert len(thrift.resolve(thrift.scan(PAYLOAD), connections=[1])) == 0
    assert len(thrift.resolve(thrift.scan(b""), connections=[])) == 0


def test_the_limit_on_rows():
    frames = conversation(*([([], [(b"%d" % i, b"")]) for i in range(20)]))
    assert len(thrift.resolve(frames, limits=Limits(rows=210))) == 210
    with pytest.raises(FrameError) as raised:
        thrift.resolve(frames, limits=Limits(rows=209))
    assert raised.value.fault == Fault.LIMIT
    with pytest.raises(FrameError, match="LIMIT"):
        thrift.resolve(frames, limits=Limits(rows=19))


def test_rows_that_would_not_fit_any_memory():
    """3,000 frames with 70 headers each: the rows are counted before there is room for them."""
    frames = conversation(*([([], [(b"%d/%d" % (i, j), b"") for j in range(70)]) for i in range(3000)]))
    with pytest.raises(FrameError, match="LIMIT"):
        thrift.resolve(frames, limits=Limits(rows=300_000_000))


@pytest.mark.parametrize("options, error, text", [
    ({"precedence": "last"}, ValueError, "precedence"),
    ({"connections": [1]}, ValueError, "1 numbers for 2 rows"),
    ({"connections": [1.0, 2.0]}, TypeError, "integers"),
    ({"connections": [[1], [2]]}, TypeError, "integers"),
    ({"connections": np.ma.masked_array([1, 2], [True, False])}, TypeError, "integers"),
    ({"connections": ["a", "b"]}, TypeError, "integers"),
    ({"limits": 5}, TypeError, "Limits"),
])
def test_unfit_arguments(options, error, text):
    with pytest.raises(error, match=text):
        thrift.resolve(conversation(([], []), ([], [])), **options)


@pytest.mark.parametrize("table", [None, b"", thrift.infos(thrift.scan(b""))], ids=repr)
def test_other_tables(table):
    with pytest.raises(TypeError, match="resolve takes a table of thrift.frames"):
        thrift.resolve(table)


def test_rows_that_point_anywhere():
    """Rows of anybody's make end in ValueError, or in rows; never beyond the buffers."""
    frames = conversation(([(b"n", b"1")], [(b"p", b"2")]), ([], []))
    chance = np.random.default_rng(1)
    for _ in range(300):
        rows = frames.rows.copy()
        flat = rows.view(np.uint8).reshape(-1)
        flat[chance.integers(0, len(flat), 3)] = chance.integers(0, 256, 3)
        try:
            found(thrift.resolve(replace(frames, rows=rows, errors="mark")))
        except ValueError:
            pass
