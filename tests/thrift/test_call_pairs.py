"""thrift.pair matches replies to calls. The reference here uses queues."""

from collections import defaultdict, deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.thrift import apply_transforms, make_framed, make_header_frame, make_message
from wirescan import thrift
from wirescan.thrift.call_pairs import PAIR

CALL, REPLY, EXCEPTION, ONEWAY = thrift.MessageType
SEQIDS = st.integers(-2, 2) | st.sampled_from((-1 << 31, (1 << 31) - 1))


def table_of(*connections):
    """Return thrift.messages of lists of (type, seqid). Each list has its own buffer."""
    buffers = [
        b"".join(make_framed(make_message(b"m", int(type), seqid)) for type, seqid in connection)
        for connection in connections
    ]
    return thrift.messages(thrift.scan(buffers))


def expected_pairs(calls, replies):
    """Return [(call, reply)] of two lists of (type, (connection, seqid))."""
    waiting = defaultdict(deque)
    for row, (type, key) in enumerate(replies):
        if type in (REPLY, EXCEPTION):
            waiting[key].append(row)
    return [
        (row, waiting[key].popleft() if type == CALL and waiting[key] else -1)
        for row, (type, key) in enumerate(calls)
        if type in (CALL, ONEWAY)
    ]


def pairs_of(table):
    return list(zip(table["call"].tolist(), table["reply"].tolist()))


directions = st.lists(st.tuples(st.sampled_from(thrift.MessageType), SEQIDS), max_size=12)


@given(st.lists(st.tuples(directions, directions), max_size=3))
def test_pairs_equal_those_of_queues(connections):
    sides = [[connection[side] for connection in connections] for side in (0, 1)]
    keyed = [
        [
            (type, (number, seqid))
            for number, messages in enumerate(side)
            for type, seqid in messages
        ]
        for side in sides
    ]
    pairs = thrift.pair(*(table_of(*side) for side in sides))
    assert pairs.dtype == PAIR
    assert pairs_of(pairs) == expected_pairs(*keyed)
    assert (pairs["latency"] == -1).all()


@given(directions, directions, st.data())
def test_given_connection_numbers_are_used(calls, replies, data):
    number = st.sampled_from((-1 << 63, -1, 0, 5, (1 << 63) - 1))
    call_numbers, reply_numbers = (
        data.draw(st.lists(number, min_size=len(side), max_size=len(side)))
        for side in (calls, replies)
    )
    keyed = [
        [(type, (connection, seqid)) for (type, seqid), connection in zip(side, numbers)]
        for side, numbers in ((calls, call_numbers), (replies, reply_numbers))
    ]
    pairs = thrift.pair(
        table_of(calls),
        table_of(replies),
        connections=(call_numbers, np.array(reply_numbers, np.int64)),
    )
    assert pairs_of(pairs) == expected_pairs(*keyed)


def test_one_table_can_hold_both_directions():
    both = table_of(
        [(CALL, 1), (REPLY, 1), (CALL, 2), (CALL, 1), (EXCEPTION, 2), (ONEWAY, 3), (REPLY, 9)]
    )
    pairs = thrift.pair(both, both)
    assert pairs_of(pairs) == [(0, 1), (2, 4), (3, -1), (5, -1)]
    # The docstring of thrift.pair finds replies without a call like this.
    replies = np.flatnonzero(~both.bad & np.isin(both["kind"], (REPLY, EXCEPTION)))
    assert np.setdiff1d(replies, pairs["reply"]).tolist() == [6]


def test_calls_of_one_seqid_are_answered_in_order():
    """Clients of thriftpy2 give all calls the seqid 0."""
    calls = table_of([(CALL, 0)] * 5)
    replies = table_of([(REPLY, 0)] * 4)
    assert thrift.pair(calls, replies)["reply"].tolist() == [0, 1, 2, 3, -1]


def test_pairs_have_a_latency():
    calls = table_of([(CALL, 1), (CALL, 2), (ONEWAY, 3), (CALL, 4)])
    replies = table_of([(REPLY, 4), (REPLY, 1)])
    pairs = thrift.pair(
        calls,
        replies,
        call_times=[1000, 1100, 1200, 1300],
        reply_times=np.array([1250, 1000], "u8"),
    )
    assert pairs["latency"].tolist() == [0, -1, -1, -1]
    small = np.arange(4, dtype=np.uint8)
    pairs = thrift.pair(calls, replies, call_times=small, reply_times=[10**18, 200])
    assert pairs["latency"].tolist() == [200, -1, -1, 10**18 - 3]
    call_times = np.array(["2026-01-01", "NaT", "2026-01-01", "2026-01-01"], "M8[ms]")
    reply_times = np.array(["2026-01-01T00:00:01", "2026-01-01T00:00:00.000005"], "M8[us]")
    pairs = thrift.pair(calls, replies, call_times=call_times, reply_times=reply_times)
    assert pairs["latency"].tolist() == [5000, -1, -1, 10**9]


def test_times_of_packets_and_of_records():
    """The docstring describes both: the packets of a stream, and records that hold frames."""
    raws = [
        make_header_frame(apply_transforms(make_message(b"m", 1, number), [1]), transforms=[1])
        for number in range(5)
    ]
    calls = thrift.messages(thrift.scan(b"".join(raws)))
    packet_starts = np.array([0, len(raws[0]) - 3, len(raws[0]) + 5])
    packet_times = np.array([10, 20, 30])
    packets = np.searchsorted(packet_starts, calls.positions, "right") - 1
    assert packet_times[packets].tolist() == [10, 20, 30, 30, 30]
    calls = thrift.messages(thrift.scan([raws[0] * 2, raws[1]]))
    record_times = np.array([10, 20])
    assert record_times[calls.outer["buffer"][calls["parent"]]].tolist() == [10, 10, 20]


def test_bad_messages_are_in_no_row():
    raw = b"".join(make_framed(make_message(b"m", 1, seqid)) for seqid in range(3))
    damaged = raw.replace(
        make_framed(make_message(b"m", 1, 1)), make_framed(make_message(b"m", 1, 1)[:12])
    )
    calls = thrift.messages(thrift.scan(damaged, errors="mark"), errors="mark")
    assert calls.bad.tolist() == [False, True, False]
    replies = table_of([(REPLY, 1), (REPLY, 2)])
    assert pairs_of(thrift.pair(calls, replies)) == [(0, -1), (2, 1)]


def test_decompressed_messages_keep_their_connection():
    """The bytes of a decompressed message are in another buffer than its frame."""

    def frames(kind, seqids):
        return b"".join(
            make_header_frame(
                apply_transforms(make_message(b"m", kind, seqid), ids), transforms=ids
            )
            for seqid, ids in zip(seqids, ([1], [], [5]))
        )

    calls = thrift.messages(thrift.scan([frames(1, (1, 2, 3)), frames(1, (1, 2, 3))]))
    replies = thrift.messages(thrift.scan([frames(2, (3, 1)), frames(2, (2, 1, 3))]))
    assert len(set(calls["buffer"].tolist())) > 2
    expected = [1, -1, 0, 3, 2, 4]
    assert thrift.pair(calls, replies)["reply"].tolist() == expected
    plain_calls = thrift.messages(thrift.plain(calls.outer))
    assert thrift.pair(plain_calls, replies)["reply"].tolist() == expected


def test_tables_without_rows_have_no_pairs():
    empty = table_of()
    for pairs in (
        thrift.pair(empty, empty),
        thrift.pair(empty, empty, connections=([], []), call_times=[], reply_times=[]),
        thrift.pair(table_of([]), table_of([(REPLY, 1)])),
    ):
        assert pairs.dtype == PAIR
        assert not len(pairs)
    assert pairs_of(thrift.pair(table_of([(CALL, 1)]), table_of([]))) == [(0, -1)]


def test_many_calls_are_paired():
    count = 20_000
    seqids = np.random.default_rng(1).permutation(count)
    calls = table_of([(CALL, seqid) for seqid in seqids])
    replies = table_of([(REPLY, seqid) for seqid in range(count)])
    assert thrift.pair(calls, replies)["reply"].tolist() == seqids.tolist()


MASKED = np.ma.masked_array([1, 2], [True, False])


@pytest.mark.parametrize(
    "options, error, text",
    [
        ({"connections": ([1], [1, 2])}, ValueError, "1 numbers for 2 rows"),
        ({"connections": [1, 2]}, TypeError, "integers"),
        ({"connections": ([1, 2],)}, TypeError, "two arrays"),
        ({"connections": 3}, TypeError, "two arrays"),
        ({"connections": ([1, 2], MASKED)}, TypeError, "integers"),
        ({"call_times": [1, 2]}, ValueError, "times of both"),
        ({"reply_times": [1, 2]}, ValueError, "times of both"),
        (
            {"call_times": [1, 2], "reply_times": [1]},
            ValueError,
            "reply_times: 1 numbers for 2 rows",
        ),
        (
            {"call_times": [1.5, 2.5], "reply_times": [1, 2]},
            TypeError,
            "call_times must be integers in one dimension",
        ),
        (
            {"call_times": [1, 2], "reply_times": np.array(["3020-01-01"] * 2, "M8[s]")},
            ValueError,
            "reply_times: a time of .* does not fit",
        ),
        ({"call_times": ["a", "b"], "reply_times": [1, 2]}, TypeError, "integers"),
    ],
)
def test_invalid_arguments_are_refused(options, error, text):
    calls = table_of([(CALL, 1), (CALL, 2)])
    replies = table_of([(REPLY, 1), (REPLY, 2)])
    with pytest.raises(error, match=text):
        thrift.pair(calls, replies, **options)


def test_buffer_counts_must_match():
    calls = table_of([(CALL, 1)], [(CALL, 1)])
    replies = table_of([(REPLY, 1)])
    with pytest.raises(ValueError, match="from 2 buffers and replies from 1"):
        thrift.pair(calls, replies)
    pairs = thrift.pair(calls, replies, connections=([8, 9], [9]))
    assert pairs["reply"].tolist() == [-1, 0]


@pytest.mark.parametrize("other", [None, [], thrift.scan(b"")], ids=repr)
def test_other_tables_are_rejected(other):
    for tables in ((other, table_of()), (table_of(), other)):
        with pytest.raises(TypeError, match="pair takes tables of thrift.messages"):
            thrift.pair(*tables)


def test_rows_outside_the_frames_are_rejected():
    calls = table_of([(CALL, 1)])
    for parent in (-1, 1):
        rows = calls.rows.copy()
        rows["parent"] = parent
        with pytest.raises(ValueError, match="outside the table around it"):
            thrift.pair(replace(calls, rows=rows), calls)
