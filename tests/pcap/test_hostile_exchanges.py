"""Hostile exchanges and record sets: damaged messages, answers in odd orders, times, cost."""

import numpy as np
import pytest

import wirescan
from tests.support import many_streams
from tests.support.captured_conversations import (
    INFO,
    acknowledge,
    converse,
    fetch,
    list_values,
    make_window,
    produce,
    publish,
    read_in_pieces,
)
from wirescan import Fault, FrameError, kafka, lumberjack, nats, pcap
from wirescan.cli.support.latencies import round_times
from wirescan.cli.support.quantiles import Quantiles
from wirescan.pcap.extraction import waiting_frames
from wirescan.reading.chunked import iter_tables
from wirescan.testing.cost import assert_linear

LATER = 0x51525354  # no damage to one byte makes another id from it
BATCH = bytes(kafka.encode_batch([{"key": b"k", "value": b"v"}]))


def ask(number):
    return kafka.encode_request("ApiVersions", 0, correlation_id=number)


def answer(number):
    return kafka.encode_response("ApiVersions", 0, correlation_id=number)


KAFKA = [(0, produce(7, BATCH)), *zip((0, 1), fetch(7, BATCH)), (0, ask(LATER)), (1, answer(LATER))]
NATS = [
    (1, INFO),
    (0, nats.encode_pub("a", b"1", reply="in.1")),
    (1, nats.encode_msg("in.1", "9", b"2")),
]
# Formats, port, turns.
CASES = {
    "kafka": (("kafka.exchanges", "kafka.record_sets", "kafka.records"), 9092, KAFKA),
    "nats": (("nats.exchanges",), 4222, NATS),
    "liftbridge": (
        ("liftbridge.exchanges",),
        4222,
        [(1, INFO), (0, publish(b"v", "one")), (1, acknowledge(7, "one"))],
    ),
    "lumberjack": (
        ("lumberjack.exchanges",),
        5044,
        [(0, b"".join(make_window(2))), (1, lumberjack.encode_ack(2))],
    ),
}


def change_turns(turns, stride):
    """Yield the turns with one message changed, cut or doubled."""
    for number, (side, data) in enumerate(turns):
        data = bytes(data)
        changed = list(many_streams.replace_bytes(data, lambda old: {0, 0xFF, old ^ 1}, stride))
        changed += [data[:cut] for cut in many_streams.sample_positions(len(data), stride)]
        changed.append(data * 2)
        for other in changed:
            yield [*turns[:number], (side, other), *turns[number + 1 :]]


def compare(path, name, piece):
    """Assert that pieces have the rows of the whole, and that every mode ends well."""
    whole = wirescan.scan(path, name, errors="mark")
    spec = f"{name}?capture=true" if name == "kafka.records" else name
    found = read_in_pieces(path, spec, piece)
    assert sorted(map(repr, found)) == sorted(map(repr, list_values(whole)))
    tables = [whole]
    while tables[-1].outer is not None and tables[-1].outer.dtype != pcap.STREAM:
        tables.append(tables[-1].outer)
    is_damaged = any(table.bad.any() for table in tables)
    skipped = wirescan.scan(path, name, errors="skip")
    assert not skipped.bad.any()
    try:
        wirescan.scan(path, name)
    except FrameError as error:
        assert is_damaged and str(error)
    else:
        assert not is_damaged


@pytest.mark.parametrize("case", CASES)
def test_damaged_messages_end_well_in_pieces_too(case, tmp_path, stride):
    names, port, turns = CASES[case]
    path = tmp_path / "capture.pcap"
    for changed in change_turns(turns, 2 * stride + 1):
        path.write_bytes(converse(*changed, port=port).to_pcap())
        for name in names:
            compare(path, name, 150)


def test_responses_in_another_order_have_their_requests(tmp_path):
    path = tmp_path / "capture.pcap"
    turns = [*((0, ask(n)) for n in (1, 2, 3)), (1, answer(3)), (0, ask(4)), (0, ask(5))]
    turns += [(1, answer(1)), (1, answer(4))]
    path.write_bytes(converse(*turns, port=9092).to_pcap())
    whole = wirescan.scan(path, "kafka.exchanges")
    assert (whole["response_size"] > 0).tolist() == [True, False, True, True, False]
    compare(path, "kafka.exchanges", 100)


def test_a_partial_ack_ends_no_window(tmp_path):
    path = tmp_path / "capture.pcap"
    turns = [(0, b"".join(make_window(3))), (1, lumberjack.encode_ack(2))]
    path.write_bytes(converse(*turns, port=5044).to_pcap())
    assert wirescan.scan(path, "lumberjack.exchanges")["sequence"].tolist() == [0]
    compare(path, "lumberjack.exchanges", 60)


def test_a_message_whose_body_is_bad_is_a_bad_row():
    raw = bytearray(produce(7, BATCH))
    raw[raw.index(b"orders") - 3] = 0  # the number of topics, so bytes are left after them
    capture = converse((0, produce(7, BATCH)), (0, bytes(raw)), port=9092).to_pcap()
    sets = wirescan.scan(capture, "kafka.record_sets", errors="mark")
    assert sets["fault"].tolist() == [0, Fault.LEFTOVER]
    assert sets["api_key"].tolist() == [kafka.ApiKey.PRODUCE] * 2
    with pytest.raises(FrameError):
        wirescan.scan(capture, "kafka.records")


def test_only_the_headers_of_requests_of_kafka_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(waiting_frames, "WAITING_BYTES", 1000)
    path = tmp_path / "capture.pcap"
    asked = [(0, produce(7, bytes(5000), correlation_id=number)) for number in range(9)]
    answered = [(1, kafka.encode_response("Produce", 7, correlation_id=n)) for n in range(9)]
    path.write_bytes(converse(*asked, *answered, port=9092).to_pcap())
    tables = [t for t in iter_tables(str(path), format="kafka.exchanges", piece=1000) if len(t)]
    assert all((table["response_size"] > 0).all() for table in tables)
    assert sum(map(len, tables)) == 9


def test_the_bytes_of_waiting_requests_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(waiting_frames, "WAITING_BYTES", 1000)
    path = tmp_path / "capture.pcap"
    turns = [(0, nats.encode_pub("a", bytes(300), reply=f"in.{n}")) for n in range(6)]
    turns += [(1, nats.encode_msg(f"in.{n}", "9", b"")) for n in (0, 5)]
    path.write_bytes(converse((1, INFO), *turns).to_pcap())
    tables = [t for t in iter_tables(str(path), format="nats.exchanges", piece=100) if len(t)]
    answered = {
        value: size > 0
        for table in tables
        for value, size in zip(table["reply"].to_pylist(), table["response_size"].tolist())
    }
    assert [value for value, is_answered in answered.items() if is_answered] == [b"in.5"]
    assert len(answered) == 6


def test_extreme_times_have_quantiles():
    times = [2**63 - 1, 2**62, 0, -5, -(2**63)]
    assert round_times(np.array(times)).tolist() == [922 * 10**16, 461 * 10**16, 0, -5, -(2**63)]
    quantiles = Quantiles()
    quantiles.add(np.array([2**62] * 4))
    assert quantiles.make_summary()["total"] == 2**64


COSTS = {
    "waiting requests": ("kafka.exchanges", 9092, lambda n: [(0, bytes(ask(1)) * n)]),
    "one correlation id": (
        "kafka.exchanges",
        9092,
        lambda n: [(0, bytes(ask(1)) * n), (1, bytes(answer(1)) * n)],
    ),
    "passed requests": (
        "kafka.exchanges",
        9092,
        lambda n: [
            (0, b"".join(bytes(ask(k)) for k in range(n))),
            (1, b"".join(bytes(answer(n - k)) for k in range(n))),
        ],
    ),
    "tiny windows": (
        "lumberjack.exchanges",
        5044,
        lambda n: [(0, bytes(lumberjack.encode_window(1)) * n), (1, lumberjack.encode_ack(0) * n)],
    ),
    "subjects": (
        "nats.exchanges",
        4222,
        lambda n: [
            (1, INFO),
            (0, b"".join(b"PUB a b%d 0\r\n\r\n" % k for k in range(n))),
            (1, b"".join(b"MSG b%d 1 0\r\n\r\n" % k for k in reversed(range(n)))),
        ],
    ),
    "record sets": (
        "kafka.record_sets",
        9092,
        lambda n: [(0, bytes(produce(7, BATCH)) * n)],
    ),
}


@pytest.mark.parametrize("case", COSTS)
def test_cost_is_linear(case):
    name, port, make_turns = COSTS[case]
    few, many = (converse(*make_turns(n), port=port).to_pcap() for n in (1500, 12_000))
    assert_linear(
        lambda: wirescan.scan(few, name, errors="mark"),
        lambda: wirescan.scan(many, name, errors="mark"),
    )
