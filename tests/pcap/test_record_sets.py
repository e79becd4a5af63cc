"""Record sets, batches and records in the messages of a capture: those of each side alone."""

import numpy as np
import pyarrow.parquet as pq
import pytest

import wirescan
from tests.support.captured_conversations import CASES, converse, fetch, produce, simulate
from tests.support.command import run
from wirescan import Fault, FrameError, kafka, pcap
from wirescan.reading.chunked import iter_tables

PAIRS = CASES["kafka.requests"][0]


def list_records(table):
    """Return the values of records, with those of their headers."""
    columns = ["offset", "timestamp", "key", "value", "headers"]
    return [tuple(map(repr, row.values())) for row in table.to_arrow(columns).to_pylist()]


def read_alone(asked, answered):
    """Return the records that each side of a connection sent, opened body by body."""
    requests = kafka.requests(asked, errors="mark")
    responses = kafka.responses(answered, requests, errors="mark")
    produced = kafka.body(requests, "Produce", errors="mark").open("topic_data")
    fetched = kafka.body(responses, "Fetch", errors="mark").open("responses")
    sides = (produced.open("partition_data"), fetched.open("partitions"))
    return [list_records(kafka.records(kafka.scan(side), errors="mark")) for side in sides]


def test_records_are_those_of_each_side_alone():
    capture = simulate(PAIRS, 9092, piece=1 << 20)
    table = wirescan.scan(capture.to_pcap(), "kafka.records", errors="mark")
    connections, directions = table["connection"], table["direction"]
    seen = 0
    for number, pair in enumerate(PAIRS):
        for direction, expected in zip(pcap.Direction, read_alone(*pair)):
            rows = np.flatnonzero((connections == number) & (directions == direction))
            assert list_records(table[rows]) == expected
            seen += len(expected)
    assert seen == len(table) > 100


@pytest.mark.parametrize("piece", [700, 5000, 1 << 20])
def test_pieces_have_the_records_of_the_whole(piece, tmp_path):
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate(PAIRS[:12], 9092, piece=1 << 20).to_pcap())
    whole = wirescan.scan(path, "kafka.records", errors="mark")
    spec = "kafka.records?capture=true"
    tables = iter_tables(str(path), format=spec, piece=piece, errors="mark")
    columns = ["time", "time_end", "client", "direction", "topic", "partition", "offset", "value"]
    found = [
        repr(row) for table in tables if len(table) for row in table.to_arrow(columns).to_pylist()
    ]
    expected = [repr(row) for row in whole.to_arrow(columns).to_pylist()]
    assert sorted(found) == sorted(expected)
    assert len(found) > 20


def test_records_have_the_columns_of_their_messages():
    batch = kafka.encode_batch([{"key": b"k", "value": b"v"}])
    request, response = fetch(7, batch)
    capture = converse((0, produce(7, batch)), (0, request), (1, response), port=9092)
    table = wirescan.scan(capture.to_pcap(), "kafka.records")
    rows = table.to_arrow().to_pylist()
    assert [row["topic"] for row in rows] == [b"orders"] * 2
    assert [row["partition"] for row in rows] == [3, 3]
    assert [row["direction"] for row in rows] == ["TO_SERVER", "TO_CLIENT"]
    assert [kafka.ApiKey(row["api_key"]).name for row in rows] == ["PRODUCE", "FETCH"]
    assert {row["client"] for row in rows} == {"10.0.0.1:40000"}
    requests = wirescan.scan(capture.to_pcap(), "kafka.requests")
    assert table["time"][0] == requests["time"][0]
    assert "packet" not in rows[0] and table["packet"][0] == requests["packet"][0]


def test_record_sets_that_are_empty_or_null_have_no_row():
    capture = converse((0, produce(7, b"")), (0, produce(7, None)), port=9092)
    assert len(wirescan.scan(capture.to_pcap(), "kafka.record_sets")) == 0


def test_a_response_without_its_request_has_no_records():
    batch = kafka.encode_batch([{"value": b"v"}])
    _, response = fetch(7, batch)
    capture = converse((0, produce(7, batch)), (1, response), port=9092)
    table = wirescan.scan(capture.to_pcap(), "kafka.records")
    assert table["direction"].tolist() == [pcap.Direction.TO_SERVER]


def test_a_broker_may_cut_the_last_batch():
    batch = kafka.encode_batch([{"value": b"v"}])
    request, response = fetch(7, batch + batch[:30])
    capture = converse((0, request), (1, response), port=9092)
    assert len(wirescan.scan(capture.to_pcap(), "kafka.records")) == 1


def test_damage_is_a_bad_row():
    batch = bytearray(kafka.encode_batch([{"value": b"v"}]))
    batch[-1] ^= 1
    whole = bytearray(produce(7, kafka.encode_batch([{"value": b"v"}])))
    whole[-70:] = b"\xff" * 70  # the count of partitions is among them
    capture = converse((0, produce(7, bytes(batch))), (0, whole), port=9092)
    table = wirescan.scan(capture.to_pcap(), "kafka.records", errors="mark")
    assert Fault.BAD_CHECKSUM in table["_fault" if "_fault" in table.columns else "fault"].tolist()
    assert len(wirescan.scan(capture.to_pcap(), "kafka.records", errors="skip")) == 0
    sets = wirescan.scan(capture.to_pcap(), "kafka.record_sets", errors="mark")
    assert sets.bad.tolist() == [False, True]
    with pytest.raises(FrameError):
        wirescan.scan(capture.to_pcap(), "kafka.records")


def test_a_bad_message_is_a_bad_row():
    batch = kafka.encode_batch([{"value": b"v"}])
    capture = converse((0, produce(7, batch)), (0, b"\xff" * 20), port=9092)
    sets = wirescan.scan(capture.to_pcap(), "kafka.record_sets", errors="mark")
    assert sets["fault"].tolist() == [0, Fault.BAD_LENGTH]
    assert sets.positions.tolist() == [0, len(produce(7, batch))]
    with pytest.raises(FrameError) as caught:
        wirescan.scan(capture.to_pcap(), "kafka.records")
    assert caught.value.offset == len(produce(7, batch))


def test_the_command_prints_the_record_sets_of_a_capture(tmp_path):
    """The column that pads their rows is not printed."""
    path = tmp_path / "kafka.pcap"
    path.write_bytes(simulate(PAIRS, 9092, piece=1 << 20).to_pcap())
    result = run("scan", path, "--format", "kafka.record_sets", "--limit", "1")
    assert result.exit_code == 0, result.output
    names = result.stdout.splitlines()[0].split()
    assert names[-5:] == ["topic", "topic_id", "records", "partition", "api_key"]


def test_the_command_converts_the_records_of_a_capture(tmp_path):
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate(PAIRS[:12], 9092, piece=1 << 20).to_pcap())
    result = run("convert", path, tmp_path / "out.parquet", "--format", "kafka.records")
    assert result.exit_code == 0, result.output
    table = wirescan.scan(path, "kafka.records")
    rows = pq.read_table(tmp_path / "out.parquet")
    assert rows.num_rows == len(table)
    assert set(rows["topic"].to_pylist()) == set(table.to_arrow(["topic"])["topic"].to_pylist())
