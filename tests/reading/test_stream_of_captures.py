"""`wirescan.stream` with formats of captures: the frames of the whole, however it is cut."""

import re

import pytest

import wirescan
from tests.support.captured_conversations import CASES, simulate
from wirescan import Fault, FrameError, Limits, pcap

PAIRS = CASES["kafka.requests"][0][:6]
NAMES = [
    "kafka.requests?capture=true",
    "kafka.responses?capture=true",
    "kafka.metadata_response.topics?capture=true",
    "kafka.records?capture=true",
    "kafka.exchanges",
    "pcap.flows",
    "pcap.packets",
]


def make_capture(port=9092):
    return simulate(PAIRS, port, piece=1 << 20)


def feed(stream, data, size):
    """Return the tables of a stream, of which the last one is that of `close`."""
    tables = [stream.feed(data[at : at + size]) for at in range(0, len(data), size)]
    return [*tables, stream.close()]


def list_rows(tables):
    """Return what exports have of all rows, but the numbers of requests in their table."""
    rows = [row for table in tables for row in table.to_arrow().to_pylist()]
    return sorted(repr([value for name, value in row.items() if name != "request"]) for row in rows)


@pytest.mark.parametrize("size", [61, 3000, 1 << 20])
@pytest.mark.parametrize("name", NAMES)
def test_chunks_of_a_capture_have_the_frames_of_the_whole(name, size):
    data = make_capture().to_pcap()
    whole = wirescan.scan(data, name, errors="mark")
    tables = feed(wirescan.stream(name, errors="mark"), data, size)
    assert len(whole) > 0
    assert list_rows(tables) == list_rows([whole])
    assert {table.format.spec for table in tables} == {name}


def test_frames_come_with_the_chunk_that_completes_them():
    data = make_capture().to_pcap()
    tables = feed(wirescan.stream("kafka.requests?capture=true"), data, 500)
    assert sum(len(table) > 0 for table in tables) > 4
    assert len(tables[-1]) == 0
    first = next(table for table in tables if len(table))
    assert first.to_arrow(["time", "client", "server", "api_key"]).num_rows == len(first)


def test_a_bad_frame_ends_a_strict_stream():
    capture = make_capture()
    del capture.packets[18]  # bytes inside a request of the second connection
    stream = wirescan.stream("kafka.requests?capture=true")
    with pytest.raises(FrameError) as caught:
        feed(stream, capture.to_pcap(), 1000)
    with pytest.raises(FrameError) as again:
        stream.close()
    assert again.value.args == caught.value.args
    assert caught.value.__notes__[0].startswith("the position is that in the bytes from")


def test_damage_of_the_capture_is_passed_over():
    data = make_capture().to_pcap()
    middle = int(pcap.scan(data)["start"][30])
    damaged = data[:middle] + b"\xff" * 40 + data[middle + 40 :]
    with pytest.raises(FrameError):
        feed(wirescan.stream("pcap.packets"), damaged, 1000)
    with pytest.raises(FrameError):
        feed(wirescan.stream("kafka.requests?capture=true"), damaged, 1000)
    whole = wirescan.scan(damaged, "kafka.requests", errors="skip")
    tables = feed(wirescan.stream("kafka.requests?capture=true", errors="skip"), damaged, 1000)
    assert list_rows(tables) == list_rows([whole])
    assert sum(map(len, tables)) > 0


def test_a_packet_that_the_end_cuts_is_held_until_the_end():
    data = make_capture().to_pcap()
    stream = wirescan.stream("kafka.requests?capture=true", errors="mark")
    stream.feed(data[:-10])
    assert 0 < stream.held < 100
    assert stream.offset + stream.held == len(data) - 10
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.feed(data)


def test_an_empty_stream_of_a_capture_has_an_empty_table():
    table = wirescan.stream("kafka.requests?capture=true").close()
    assert len(table) == 0
    assert table["time"].tolist() == []
    assert len(table.tail) == 0


def test_limits_are_those_of_the_frames():
    stream = wirescan.stream("kafka.requests?capture=true", limits=Limits(rows=200))
    assert sum(map(len, feed(stream, make_capture().to_pcap(), 1 << 20))) > 0
    stream = wirescan.stream("kafka.requests?capture=true", limits=Limits(frame=2000, rows=3))
    with pytest.raises(FrameError) as caught:
        feed(stream, make_capture().to_pcap(), 1 << 20)
    assert caught.value.fault == Fault.LIMIT


@pytest.mark.parametrize("size", [2, 1000])
def test_a_format_without_the_option_says_what_to_use(size):
    data = make_capture().to_pcap()
    expected = re.escape('use wirescan.stream("kafka.requests?capture=true")')
    with pytest.raises(FrameError, match=expected):
        feed(wirescan.stream("kafka.requests"), data, size)
    with pytest.raises(FrameError, match="not sent over connections"):
        feed(wirescan.stream("kafka.redpanda_batches"), data, size)


def test_an_option_of_captures_needs_a_capture(tmp_path):
    pytest.importorskip("cryptography")
    path = tmp_path / "keys.txt"
    path.write_text("CLIENT_RANDOM " + "00" * 32 + " " + "00" * 48 + "\n")
    with pytest.raises(ValueError, match="keylog is for captures"):
        wirescan.stream(f"kafka.requests?keylog={path}")
    stream = wirescan.stream(f"kafka.requests?keylog={path}&capture=true")
    assert sum(map(len, feed(stream, make_capture().to_pcap(), 3000))) > 0


def test_a_stream_of_blocks_needs_no_option():
    data = make_capture().to_pcap()
    assert sum(map(len, feed(wirescan.stream("pcap.blocks"), data, 700))) == len(pcap.scan(data))
