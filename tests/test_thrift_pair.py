"""thrift.pair: which reply answers which call, against a reading with queues."""
from collections import defaultdict, deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.thrift import framed, header, message, transformed
from wirescan import thrift
from wirescan.thrift.pairing import PAIR

CALL, REPLY, EXCEPTION, ONEWAY = thrift.MessageType
NEAR = st.integers(-2, 2) | st.sampled_from((-1 << 31, (1 << 31) - 1))


def table_of(*connections):
    """thrift.messages of [(type, seqid)], a buffer for each list."""
    return thrift.messages(thrift.scan([b"".join(framed(message(b"m", int(type), seqid)) for type, seqid in one)
                                        for one in connections]))


def expected(calls, replies):
    """[(call, reply)] of two lists of (type, connection and seqid)."""
    waiting = defaultdict(deque)
    for row, (type, key) in enumerate(replies):
        if type in (REPLY, EXCEPTION):
            waiting[key].append(row)
    return [(row, waiting[key].popleft() if type == CALL and waiting[key] else -1)
            for row, (type, key) in enumerate(calls) if type in (CALL, ONEWAY)]


def pairs_of(found):
    return list(zip(found["call"].tolist(), found["reply"].tolist()))


directions = st.lists(st.tuples(st.sampled_from(thrift.MessageType), NEAR), max_size=12)


@given(st.lists(st.tuples(directions, directions), max_size=3))
def test_against_queues(connections):
    sides = [[one[side] for one in connections] for side in (0, 1)]
    keyed = [[(type, (number, seqid)) for number, one in enumerate(side) for type, seqid in one] for side in sides]
    found = thrift.pair(*(table_of(*side) for side in sides))
    assert found.dtype == PAIR and pairs_of(found) == expected(*keyed)
    assert (found["latency"] == -1).all()


@given(directions, directions, st.data())
def test_connections_that_are_given(asked, answered, data):
    lines = st.sampled_from((-1 << 63, -1, 0, 5, (1 << 63) - 1))
    ours, theirs = (data.draw(st.lists(lines, min_size=len(side), max_size=len(side))) for side in (asked, answered))
    keyed = [[(type, (line, seqid)) for (type, seqid), line in zip(side, numbers)]
             for side, numbers in ((asked, ours), (answered, theirs))]
    found = thrift.pair(table_of(asked), table_of(answered), connections=(ours, np.array(theirs, np.int64)))
    assert pairs_of(found) == expected(*keyed)


def test_one_table_of_both_directions():
    both = table_of([(CALL, 1), (REPLY, 1), (CALL, 2), (CALL, 1), (EXCEPTION, 2), (ONEWAY, 3), (REPLY, 9)])
    found = thrift.pair(both, both)
    assert pairs_of(found) == [(0, 1), (2, 4), (3, -1), (5, -1)]
    replies = np.flatnonzero(~both.bad & np.isin(both["kind"], (REPLY, EXCEPTION)))
    assert np.setdiff1d(replies, found["reply"]).tolist() == [6]                # as the docstring says


def test_seqids_that_come_again():
    """thriftpy2's clients number all calls 0."""
    calls, replies = table_of([(CALL, 0)] * 5), table_of([(REPLY, 0)] * 4)
    assert thrift.pair(calls, replies)["reply"].tolist() == [0, 1, 2, 3, -1]


def test_latency():
    calls, replies = table_of([(CALL, 1), (CALL, 2), (ONEWAY, 3), (CALL, 4)]), table_of([(REPLY, 4), (REPLY, 1)])
    found = thrift.pair(calls, replies, call_times=[1000, 1100, 1200, 1300], reply_times=np.array([1250, 1000], "u8"))
    assert found["latency"].tolist() == [0, -1, -1, -1]
    found = thrift.pair(calls, replies, call_times=np.arange(4, dtype=np.uint8), reply_times=[10**18, 200])
    assert found["latency"].tolist() == [200, -1, -1, 10**18 - 3]
    begun = np.array(["2026-01-01", "NaT", "2026-01-01", "2026-01-01"], "M8[ms]")
    ended = np.array(["2026-01-01T00:00:01", "2026-01-01T00:00:00.000005"], "M8[us]")
    found = thrift.pair(calls, replies, call_times=begun, reply_times=ended)
    assert found["latency"].tolist() == [5000, -1, -1, 10**9]


def test_bad_messages_are_in_no_row():
    raw = b"".join(framed(message(b"m", 1, seqid)) for seqid in range(3))
    frames = thrift.scan(raw.replace(framed(message(b"m", 1, 1)), framed(message(b"m", 1, 1)[:12])), errors="mark")
    calls = thrift.messages(frames, errors="mark")
    assert calls.bad.tolist() == [False, True, False]
    assert pairs_of(thrift.pair(calls, table_of([(REPLY, 1), (REPLY, 2)]))) == [(0, -1), (2, 1)]


def test_inflated_messages_are_of_their_connection():
    """They lie in other buffers than their frames."""
    def frames(kind, seqids):
        return b"".join(header(transformed(message(b"m", kind, seqid), ids), transforms=ids)
                        for seqid, ids in zip(seqids, ([1], [], [5])))
    calls = thrift.messages(thrift.scan([frames(1, (1, 2, 3)), frames(1, (1, 2, 3))]))
    replies = thrift.messages(thrift.scan([frames(2, (3, 1)), frames(2, (2, 1, 3))]))
    assert len(set(calls["buffer"].tolist())) > 2
    assert thrift.pair(calls, replies)["reply"].tolist() == [1, -1, 0, 3, 2, 4]
    assert thrift.pair(thrift.messages(thrift.plain(calls.outer)), replies)["reply"].tolist() == [1, -1, 0, 3, 2, 4]


def test_nothing():
    none = table_of()
    for found in (thrift.pair(none, none), thrift.pair(none, none, connections=([], []), call_times=[], reply_times=[]),
                  thrift.pair(table_of([]), table_of([(REPLY, 1)]))):
        assert found.dtype == PAIR and not len(found)
    assert pairs_of(thrift.pair(table_of([(CALL, 1)]), table_of([]))) == [(0, -1)]


def test_many():
    count = 20_000
    seqids = np.random.default_rng(1).permutation(count)
    calls, replies = table_of([(CALL, seqid) for seqid in seqids]), table_of([(REPLY, seqid) for seqid in range(count)])
    assert thrift.pair(calls, replies)["reply"].tolist() == seqids.tolist()


MASKED = np.ma.masked_array([1, 2], [True, False])


@pytest.mark.parametrize("options, error, text", [
    ({"connections": ([1], [1, 2])}, ValueError, "1 numbers for 2 rows"),
    ({"connections": [1, 2]}, TypeError, "integers"),
    ({"connections": ([1, 2],)}, TypeError, "two arrays"),
    ({"connections": 3}, TypeError, "two arrays"),
    ({"connections": ([1, 2], MASKED)}, TypeError, "integers"),
    ({"call_times": [1, 2]}, ValueError, "times of both"),
    ({"reply_times": [1, 2]}, ValueError, "times of both"),
    ({"call_times": [1, 2], "reply_times": [1]}, ValueError, "reply_times: 1 numbers for 2 rows"),
    ({"call_times": [1.5, 2.5], "reply_times": [1, 2]}, TypeError, "call_times are arrays of integers"),
    ({"call_times": ["a", "b"], "reply_times": [1, 2]}, TypeError, "integers"),
])
def test_unfit_arguments(options, error, text):
    with pytest.raises(error, match=text):
        thrift.pair(table_of([(CALL, 1), (CALL, 2)]), table_of([(REPLY, 1), (REPLY, 2)]), **options)


def test_buffers_that_do_not_match():
    calls, replies = table_of([(CALL, 1)], [(CALL, 1)]), table_of([(REPLY, 1)])
    with pytest.raises(ValueError, match="2 buffers, and replies of 1"):
        thrift.pair(calls, replies)
    assert thrift.pair(calls, replies, connections=([8, 9], [9]))["reply"].tolist() == [-1, 0]


@pytest.mark.parametrize("other", [None, [], thrift.scan(b"")], ids=repr)
def test_other_tables(other):
    for tables in ((other, table_of()), (table_of(), other)):
        with pytest.raises(TypeError, match="pair takes tables of thrift.messages"):
            thrift.pair(*tables)


def test_rows_that_point_outside_the_frames():
    calls = table_of([(CALL, 1)])
    for parent in (-1, 1):
        rows = calls.rows.copy()
        rows["parent"] = parent
        with pytest.raises(ValueError, match="outside the table around it"):
            thrift.pair(replace(calls, rows=rows), calls)
