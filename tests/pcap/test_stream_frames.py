"""Frames of other formats in captures: the same as in the bytes of each side alone."""

from dataclasses import replace

import numpy as np
import pytest

import wirescan
from tests.support.captured_conversations import CASES, converse, produce, read_in_pieces, simulate
from tests.support.frame_values import PLACE_NAMES, list_values, scan_alone
from tests.support.simulated_capture import ACK, PSH, STEP, Connection, SimulatedCapture
from wirescan import Fault, FrameError, FrameTable, Limits, kafka, liftbridge, nats, pcap
from wirescan.frames.registry import format_of
from wirescan.pcap.endpoints import format_endpoints
from wirescan.reading.chunked import iter_tables

MESSAGES = "liftbridge.messages"
API_VERSIONS = bytes(kafka.encode_request("ApiVersions", 0))
BATCH = bytes(kafka.encode_batch([{"key": b"k", "value": b"v"}]))


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("format", CASES)
def test_frames_are_those_of_each_side_alone(format, seed, tmp_path):
    pairs, port, side = CASES[format]
    path = tmp_path / "capture.pcapng"
    path.write_bytes(simulate(pairs, port, seed=seed).to_pcapng())
    table = wirescan.scan(path, format, errors="mark")
    is_chosen = table["direction"] == (pcap.Direction.TO_SERVER if side == 0 else 0)
    connections = table["connection"]
    found = [
        list_values(table.rows[is_chosen & (connections == number)]) for number in range(len(pairs))
    ]
    assert found == scan_alone(format, pairs, side)


def test_a_row_has_the_times_of_the_column(tmp_path):
    pairs, port, _ = CASES["kafka.requests"]
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate(pairs, port, seed=1).to_pcap())
    table = wirescan.scan(path, "kafka.requests")
    assert len(set(table["time"].tolist())) > 1 and (table["time"] < table["time_end"]).any()
    for name in ("time", "time_end", "packet"):
        assert [getattr(row, name) for row in table] == table[name].tolist()


@pytest.mark.parametrize("piece", [61, 1000, 1 << 20])
@pytest.mark.parametrize("seed, port", [(None, 9092), (3, 9092), (None, 5555)])
def test_pieces_of_a_file_have_the_frames_of_the_whole(piece, seed, port, tmp_path):
    pairs, _, _ = CASES["kafka.requests"]
    path = tmp_path / "capture.pcap"
    # No response may come before its request.
    path.write_bytes(simulate(pairs[:8], port, seed=seed, piece=1 << 20).to_pcap())
    for format in ("kafka.requests", "kafka.responses", "kafka.fetch_response.partitions"):
        whole = wirescan.scan(path, format, errors="mark")
        spec = f"{format}?capture=true"
        tables = [
            table
            for table in iter_tables(str(path), format=spec, piece=piece, errors="mark")
            if len(table)
        ]
        found = [
            (*values, *times)
            for table in tables
            for values, times in zip(_list_stable(table), _list_times(table))
        ]
        expected = [(*v, *t) for v, t in zip(_list_stable(whole), _list_times(whole))]
        assert sorted(found) == sorted(expected)


def _list_stable(table: FrameTable) -> list[tuple]:
    names = [
        name
        for name in table.dtype.names
        if name not in (*PLACE_NAMES, "request", "reserved") and table.dtype[name].shape == ()
    ]
    return table.rows[names].tolist()


def _list_times(table: FrameTable) -> list[tuple]:
    columns = [table[name].tolist() for name in ("time", "time_end", "connection", "direction")]
    return list(zip(*columns, table.positions.tolist()))


def test_a_large_response_before_the_first_request_decides_nothing(tmp_path):
    """The capture begins inside a response, and the port is unusual."""
    pairs, _, _ = CASES["kafka.requests"]
    asked, answered = pairs[0]
    path = tmp_path / "capture.pcap"
    first = Connection((bytes([10, 0, 0, 1]), 40_000), (bytes([10, 0, 0, 2]), 5555))
    capture = SimulatedCapture()
    capture.send(first, 1, bytes(100_000))
    capture.send(first, 0, asked)
    capture.send(first, 1, answered)
    path.write_bytes(capture.to_pcap())
    tables = iter_tables(str(path), format="kafka.requests?capture=true", piece=3000, errors="mark")
    found = [size for table in tables if len(table) for size in table["size"].tolist()]
    assert found == kafka.requests(asked, errors="mark")["size"].tolist()


def test_responses_have_the_apis_of_their_requests(tmp_path):
    pairs, port, _ = CASES["kafka.requests"]
    path = tmp_path / "capture.pcap"
    # No response may come before its request.
    path.write_bytes(simulate(pairs, port, piece=1 << 20).to_pcap())
    table = wirescan.scan(path, "kafka.responses", errors="mark")
    for number, (asked, answered) in enumerate(pairs):
        alone = kafka.responses(answered, kafka.requests(asked, errors="mark"), errors="mark")
        chosen = table.rows[table["connection"] == number]
        for name in ("api_key", "api_version", "correlation_id", "kind", "fault"):
            assert chosen[name].tolist() == alone[name].tolist()


def test_times_are_those_of_the_packets_with_the_first_and_the_last_byte():
    asked = CASES["kafka.requests"][0][0][0]
    capture = SimulatedCapture()
    connection = Connection((bytes([10, 0, 0, 1]), 40_000), (bytes([10, 0, 0, 2]), 9092))
    capture.connect(connection)
    sizes = kafka.requests(asked, errors="mark")["size"][:2].tolist()
    begins = []
    for size in sizes:
        begins.append(capture.now)
        at = len(connection.sent[0])
        capture.send(connection, 0, asked[at : at + size], size=10)
    table = wirescan.scan(capture.to_pcap(), "kafka.requests")
    packets = [-(-size // 10) for size in sizes]
    assert table["time"].tolist() == begins
    assert table["time_end"].tolist() == [
        begin + (count - 1) * STEP for begin, count in zip(begins, packets)
    ]
    assert table["packet"].tolist() == [4, 4 + packets[0]]


def test_latency_is_the_time_from_the_request_to_the_response(tmp_path):
    pairs, port, _ = CASES["kafka.requests"]
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate(pairs[:3], port, piece=1 << 20).to_pcap())
    requests = wirescan.scan(path, "kafka.requests", errors="mark")
    responses = wirescan.scan(path, "kafka.responses", errors="mark")
    answered = responses[np.flatnonzero(responses["request"] >= 0)]
    ends = requests["time_end"][answered["request"]]
    assert answered["latency"].tolist() == (answered["time"] - ends).tolist()
    assert (answered["latency"] > 0).all()
    assert responses["latency"][responses["request"] < 0].tolist() == [-1] * int(
        (responses["request"] < 0).sum()
    )
    arrow = responses.to_arrow(["latency"])
    assert arrow["latency"].null_count == int((responses["request"] < 0).sum())
    tables = iter_tables(str(path), format="kafka.responses?capture=true", piece=500, errors="mark")
    found = [value for table in tables if len(table) for value in table["latency"].tolist()]
    assert sorted(found) == sorted(responses["latency"].tolist())


def test_streams_in_another_order_have_the_same_latencies():
    pairs, port, _ = CASES["kafka.requests"]
    streams = wirescan.scan(simulate(pairs[:3], port).to_pcap(), "pcap.streams")
    responses = pcap.frames(streams, "kafka.responses", errors="mark")
    others = pcap.frames(streams[::-1], "kafka.responses", errors="mark")
    assert (responses["latency"] > 0).any()
    assert sorted(others["latency"].tolist()) == sorted(responses["latency"].tolist())


def test_a_response_that_another_one_passed_over_has_its_request(tmp_path):
    """In pieces too: the request waits although a later one is answered."""
    turns = [(0, kafka.encode_request("ApiVersions", 0, correlation_id=n)) for n in (1, 2)]
    turns += [(1, kafka.encode_response("ApiVersions", 0, correlation_id=n)) for n in (2, 1)]
    path = tmp_path / "capture.pcap"
    path.write_bytes(converse(*turns, port=9092).to_pcap())
    whole = wirescan.scan(path, "kafka.responses")
    assert whole["latency"].tolist() == [STEP, 3 * STEP]
    found = read_in_pieces(path, "kafka.responses", 61)
    assert found == list_columns(whole)


def test_tokens_are_answered_in_the_order_of_the_wire(tmp_path):
    """Their responses have no id. A token before an answered request is not answered any more."""
    token = b"\0\0\0\5\0a\0bc"
    asked = [kafka.encode_request("ApiVersions", 0, correlation_id=n) for n in range(4)]
    answered = [kafka.encode_response("ApiVersions", 0, correlation_id=n) for n in range(4)]
    turns = [
        *((0, asked[1]), (0, token), (1, answered[1]), (1, b"\0\0\0\0")),
        *((0, token), (0, asked[2]), (1, b"\0\0\0\x06token!"), (1, answered[2])),
        *((0, asked[3]), (0, token), (0, asked[0]), (1, answered[0]), (1, answered[3])),
        *((0, asked[1]), (1, answered[1])),
    ]
    path = tmp_path / "capture.pcap"
    path.write_bytes(converse(*turns, port=9092).to_pcap())
    whole = wirescan.scan(path, "kafka.responses", errors="mark")
    assert whole["request"].tolist() == [0, 1, 2, 3, 6, 4, 7]
    for piece in (61, 200, 1 << 20):
        assert read_in_pieces(path, "kafka.responses", piece) == list_columns(whole)


def list_columns(table):
    """Return what exports have of each row."""
    return [tuple(row.values()) for row in table.to_arrow().to_pylist()]


def test_columns_of_captures_are_exported():
    pairs, port, _ = CASES["kafka.requests"]
    table = wirescan.scan(simulate(pairs[:1], port).to_pcap(), "kafka.requests", errors="mark")
    arrow = table.to_arrow()
    assert {"time", "time_end", "connection", "direction", "client", "server"} <= {
        *arrow.column_names
    }
    assert set(arrow["client"].to_pylist()) == {"10.0.0.1:40000"}
    assert set(arrow["direction"].to_pylist()) == {"TO_SERVER"}


def test_messages_of_liftbridge_are_read_in_the_messages_of_nats():
    pub = nats.encode_pub("a", bytes(liftbridge.encode_message(b"value")))
    table = wirescan.scan(simulate([(bytes(pub) * 3, b"+OK\r\n" * 3)], 4222).to_pcap(), MESSAGES)
    assert len(table) == 3
    assert {"time", "client", "direction"} <= {*table.columns}
    assert set(table["direction"].tolist()) == {pcap.Direction.TO_SERVER}


def test_frames_inside_have_the_columns_by_their_names():
    pairs, port, _ = CASES["kafka.requests"]
    data = simulate(pairs, port).to_pcap()
    table = wirescan.scan(data, "kafka.metadata_response", errors="mark")
    table_of_requests = wirescan.scan(data, "kafka.requests", errors="mark")
    requests = table_of_requests.open("metadata_request")
    assert requests["time"].tolist() == table_of_requests["time"][requests["parent"]].tolist()
    assert "time" in requests.columns
    topics = table.open("topics")
    assert "time" in topics.columns
    assert topics["time"].tolist() == table["time"][topics["parent"]].tolist()
    assert len(topics) > 0


@pytest.mark.parametrize("buffer", [1, 2, 65_535])
def test_streams_in_a_buffer_without_bytes_are_refused(buffer):
    packets = wirescan.scan(converse((0, API_VERSIONS)).to_pcap(), "pcap.packets")
    streams = packets.open("flows").open("streams")
    rows = streams.rows.copy()
    rows["buffer"][0] = buffer
    with pytest.raises(ValueError, match="in a buffer that has no bytes of streams"):
        pcap.frames(replace(streams, rows=rows), "kafka.requests")


def test_addresses_outside_a_buffer_are_none():
    packets = wirescan.scan(converse((0, API_VERSIONS)).to_pcap(), "pcap.packets")
    flows = packets.open("flows")
    rows = flows.rows.copy()
    rows["start"][0] = (1 << 63) - 17
    assert format_endpoints(replace(flows, rows=rows), "server") != format_endpoints(
        flows, "server"
    )


def test_other_connections_are_not_read():
    pairs, _, _ = CASES["kafka.requests"]
    other = (b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n")
    capture = simulate([*pairs[:2], other], 5555)
    table = wirescan.scan(capture.to_pcap(), "kafka.requests", errors="mark")
    assert set(table["connection"].tolist()) == {0, 1}
    # The port of a broker is read as Kafka, whatever the bytes are.
    capture = simulate([*pairs[:2], other], 9092)
    table = wirescan.scan(capture.to_pcap(), "kafka.requests", errors="mark")
    assert set(table["connection"][table.bad].tolist()) >= {2}


def test_lost_bytes_are_a_bad_row_of_the_frames():
    capture = simulate([CASES["thrift.frames"][0][0]], 9090)
    del capture.packets[3]
    table = wirescan.scan(capture.to_pcap(), "thrift.frames", errors="mark")
    assert Fault.LOST in table["fault"].tolist()
    with pytest.raises(FrameError) as caught:
        wirescan.scan(capture.to_pcap(), "thrift.frames")
    assert caught.value.__notes__ == [
        "the position is that in the bytes from 10.0.0.1:40000 to 10.0.0.2:9090"
    ]


def test_errors_give_the_position_in_the_stream():
    requests = CASES["kafka.requests"][0][0][0]
    first = int(kafka.requests(requests, errors="mark").rows["size"][0])
    damaged = requests[:first] + b"\xff\xff\xff\xff" + bytes(40)
    capture = simulate([(requests, b""), (damaged, b"")], 9092)
    with pytest.raises(FrameError) as caught:
        wirescan.scan(capture.to_pcap(), "kafka.requests")
    assert (caught.value.offset, caught.value.fault) == (first, Fault.BAD_LENGTH)
    assert not caught.value.inflated


def test_formats_that_are_not_sent_are_refused():
    capture = simulate(CASES["kafka.requests"][0][:1], 9092)
    with pytest.raises(ValueError, match="kafka.redpanda_batches are not sent over connections"):
        wirescan.scan(capture.to_pcap(), "kafka.redpanda_batches")


def test_frames_are_read_from_chosen_streams():
    pairs, port, _ = CASES["kafka.requests"]
    packets = pcap.packets(pcap.scan(simulate(pairs[:3], port).to_pcap()))
    flows = pcap.flows(packets)
    streams = pcap.streams(flows[flows["connection"] == 1])
    table = pcap.frames(streams, "kafka.requests", errors="mark")
    assert list_values(table.rows) == scan_alone("kafka.requests", pairs, 0)[1]
    assert set(table["connection"].tolist()) == {1}


def test_limits_bound_the_frames():
    capture = simulate(CASES["kafka.requests"][0][:3], 9092)
    streams = wirescan.scan(capture.to_pcap(), "pcap.streams")
    with pytest.raises(FrameError) as caught:
        pcap.frames(streams, "kafka.requests", limits=Limits(rows=3))
    assert caught.value.fault == Fault.LIMIT


def test_a_table_of_another_format_is_a_type_error():
    with pytest.raises(TypeError):
        pcap.frames(pcap.scan(simulate([], 9092).to_pcap()), "kafka.requests")


def test_a_capture_without_packets_has_no_frames():
    table = wirescan.scan(simulate([], 9092).to_pcap(), "kafka.requests")
    assert len(table) == 0
    assert table["time"].dtype == np.int64


@pytest.mark.parametrize("order", ["non_strict=true&capture=true", "capture=true&non_strict=true"])
def test_options_of_formats_apply_to_pieces_of_captures(order, tmp_path):
    pairs, port, _ = CASES["thrift.frames"]
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate(pairs, port).to_pcap())
    whole = wirescan.scan(path, "thrift.messages?non_strict=true", errors="mark")
    tables = iter_tables(str(path), format=f"thrift.messages?{order}", piece=999, errors="mark")
    found = [value for table in tables if len(table) for value in table["time"].tolist()]
    assert sorted(found) == sorted(whole["time"].tolist())
    assert len(found) > 0


def test_rows_have_the_columns_that_are_computed_or_of_enclosing_frames():
    capture = converse((0, produce(7, BATCH)), port=9092).to_pcap()
    packets = pcap.packets(pcap.scan(capture))
    assert packets[3].source == packets["source"].to_pylist()[3] == "10.0.0.1:40000"
    record = wirescan.scan(capture, "kafka.records")[0]
    assert (record.client, bytes(record.topic), record.direction) == (
        "10.0.0.1:40000",
        b"orders",
        pcap.Direction.TO_SERVER,
    )
    assert record.time == wirescan.scan(capture, "kafka.requests")["time"][0]
    assert {"client", "topic", "time"} <= set(dir(record))
    with pytest.raises(AttributeError, match="has no 'sourc'; did you mean source?"):
        packets[0].sourc  # noqa: B018


def test_formats_that_a_capture_carries_are_named_in_the_hint():
    capture = converse((0, produce(7, BATCH)), port=9092).to_pcap()
    for scan, hint in (
        (kafka.scan, r'use wirescan.scan\(source, "kafka.batches"\)'),
        (kafka.requests, r'use wirescan.scan\(source, "kafka.requests"\)'),
        (kafka.scan_redpanda, "kafka.redpanda_batches are not sent over connections"),
    ):
        with pytest.raises(FrameError, match=hint):
            scan(capture)


@pytest.mark.parametrize("name", ["kafka.batches", "pcap.blocks", "pcap.tls", "kafka.exchanges"])
@pytest.mark.parametrize("value", ["true", "false"])
def test_only_the_parts_of_captures_are_tolerant(name, value):
    with pytest.raises(ValueError, match=f"{name} has no option"):
        format_of(f"{name}?tolerant={value}")


def test_tolerant_streams_have_lost_bytes_in_every_mode():
    capture = SimulatedCapture()
    connection = Connection((bytes([10, 0, 0, 1]), 40_000), (bytes([10, 0, 0, 2]), 9092))
    capture.connect(connection)
    capture.add(connection, 0, PSH | ACK, position=5, payload=b"after lost bytes")
    raw = capture.to_pcap()
    assert wirescan.scan(raw, "pcap.streams?tolerant=true")["fault"].tolist() == [Fault.LOST, 0]
    with pytest.raises(FrameError):
        wirescan.scan(raw, "pcap.streams")
    with pytest.raises(ValueError, match="pcap.streams has no option"):
        format_of("pcap.streams?other=true")
