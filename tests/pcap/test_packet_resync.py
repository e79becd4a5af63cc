"""Frames after lost bytes, and in connections whose beginning a capture does not have."""

import random
import struct
from dataclasses import replace

import numpy as np
import pytest

import wirescan
from tests.support.captured_conversations import CLIENT, INFO, SERVER, publish
from tests.support.packet_follower import count_connections
from tests.support.paths import CORPUS
from tests.support.simulated_capture import Connection, SimulatedCapture
from wirescan import Fault, FrameError, Limits, kafka, lumberjack, nats, pcap
from wirescan.frames.registry import format_of
from wirescan.pcap.extraction import packet_resync
from wirescan.pcap.extraction.packet_resync import NEEDED, WEIGHED
from wirescan.reading.chunked import iter_tables
from wirescan.testing.cost import assert_linear

API_VERSIONS = bytes(kafka.encode_request("ApiVersions", 0))
SIZE = 1000  # bytes of a packet
GAP, BEGIN = "gap", "begin"


def make_request(number, size=100):
    """Return a Produce request of about some bytes."""
    body = {"acks": 1, "timeout_ms": 1, "topic_data": []}
    plain = bytes(kafka.encode_request("Produce", 7, body, correlation_id=number))
    padding = bytes(random.Random(number).randbytes(size))
    return struct.pack(">I", len(plain) - 4 + size) + plain[4:] + padding


def make_response(number, size=100):
    return struct.pack(">Ii", 4 + size, number) + random.Random(number).randbytes(size)


def make_pub(number, size=100):
    return bytes(nats.encode_pub("events", random.Random(number).randbytes(size)))


def make_json(number, size=100):
    return bytes(lumberjack.encode_json(number, {"message": "x" * size}))


def make_published(number, size=100):
    return bytes(publish(random.Random(number).randbytes(size), b"%d" % number))


def make_call(number, size=100):
    """Return a framed call of Thrift: a struct with one string."""
    name = b"call"
    text = random.Random(number).randbytes(size)
    message = struct.pack(">II4si", 0x80010001, len(name), name, number)
    message += struct.pack(">bhI", 11, 1, len(text)) + text + b"\0"
    return struct.pack(">I", len(message)) + message


# format: (the function that makes a frame, the port, the side that sends)
FORMATS = {
    "kafka.requests": (make_request, 9092, 0),
    "kafka.responses": (make_response, 9092, 1),
    "nats.messages": (make_pub, 4222, 0),
    "lumberjack.frames": (make_json, 5044, 0),
    "liftbridge.messages": (make_published, 4222, 0),
    "thrift.messages": (make_call, 9090, 0),
}


def make_capture(frames, port, side, *, lost=(), size=SIZE, is_connected=True):
    """Return a capture of one side, in which each frame begins a packet.

    lost: numbers of packets that are not captured.
    """
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, port))
    capture.connect(connection)
    if not is_connected:
        capture.packets = []
    first = len(capture.packets)
    for frame in frames:
        capture.send(connection, side, bytes(frame), size=size)
    packets = capture.packets
    capture.packets = [p for number, p in enumerate(packets) if number - first not in lost]
    capture.add(connection, 1 - side, 16)
    return capture


def list_faults(table):
    return table["fault"].tolist()


def read_in_pieces(capture, format, piece):
    """Return the rows of a capture that is read in pieces: (position, size, fault)."""
    spec = f"{format}?capture=true"
    tables = iter_tables(capture.to_pcap(), format=spec, piece=piece, errors="mark")
    return [row for table in tables if len(table) for row in list_frames(table)]


def list_frames(table):
    """Return the position, the size and the fault of each row."""
    return list(zip(table.positions.tolist(), table["size"].tolist(), list_faults(table)))


def make_case(format, where):
    """Return the frames of a format, and a capture that lost the first packet of a large one."""
    make, port, side = FORMATS[format]
    sizes = [100, 100, 3500, 100, 5000, 100, 100]
    frames = [make(number, size) for number, size in enumerate(sizes)]
    lost = {2} if where == GAP else {0, 1, 2}
    return frames, make_capture(frames, port, side, lost=lost, is_connected=where == GAP)


@pytest.mark.parametrize("where", [GAP, BEGIN])
@pytest.mark.parametrize("format", FORMATS)
def test_frames_follow_a_gap_from_the_next_packet_with_a_frame_on(format, where):
    frames, capture = make_case(format, where)
    table = wirescan.scan(capture.to_pcap(), format, errors="mark")
    good = table.where(~table.bad)
    expected = [len(frame) for frame in (frames if where == GAP else frames[3:])]
    if where == GAP:
        del expected[2]
    if format == "liftbridge.messages":
        assert len(good) == len(expected)
    elif format == "thrift.messages":
        assert good["size"].tolist() == [size - 4 for size in expected]
    else:
        assert good["size"].tolist() == expected


@pytest.mark.parametrize("piece", [97, 1500, 4000])
@pytest.mark.parametrize("where", [GAP, BEGIN])
@pytest.mark.parametrize("format", FORMATS)
def test_pieces_have_the_rows_of_the_whole(format, where, piece):
    _, capture = make_case(format, where)
    whole = wirescan.scan(capture.to_pcap(), format, errors="mark")
    assert Fault.LOST in list_faults(whole) or where == BEGIN
    assert read_in_pieces(capture, format, piece) == list_frames(whole)


def test_the_bytes_before_the_next_frame_are_one_bad_row():
    frames, capture = make_case("kafka.requests", GAP)
    sizes = [len(frame) for frame in frames]
    table = wirescan.scan(capture.to_pcap(), "kafka.requests", errors="mark")
    assert list_faults(table) == [0, 0, Fault.LOST, Fault.NOT_A_FRAME, 0, 0, 0, 0]
    assert table["size"].tolist() == [*sizes[:2], 0, sizes[2] - SIZE, *sizes[3:]]
    assert table.positions.tolist()[3] == sum(sizes[:2]) + SIZE
    with pytest.raises(FrameError, match="LOST"):
        wirescan.scan(capture.to_pcap(), "kafka.requests")


def test_a_capture_that_begins_inside_a_frame_says_so():
    _, capture = make_case("kafka.requests", BEGIN)
    with pytest.raises(FrameError, match="NOT_A_FRAME"):
        wirescan.scan(capture.to_pcap(), "kafka.requests")


@pytest.mark.parametrize("where", [GAP, BEGIN])
def test_frames_of_thrift_inside_a_cut_frame_are_none(where):
    """A text in the cut frame has a whole call. The next call begins a packet."""
    inner = make_call(7)
    text = bytes(SIZE + 100) + inner + bytes(300)
    outer = struct.pack(">II4si", 0x80010001, 4, b"call", 1)
    outer += struct.pack(">bhI", 11, 1, len(text)) + text + b"\0"
    frames = [make_call(1), struct.pack(">I", len(outer)) + outer, make_call(2), make_call(3)]
    lost = {1} if where == GAP else {0, 1}
    capture = make_capture(frames, 9090, 0, lost=lost, is_connected=where == GAP)
    table = wirescan.scan(capture.to_pcap(), "thrift.frames", errors="mark")
    faults = [0, Fault.LOST, Fault.NOT_A_FRAME, 0, 0]
    assert list_faults(table) == (faults if where == GAP else faults[2:])
    assert table["size"].tolist()[-3] == len(frames[1]) - SIZE
    for piece in (97, 1500):
        assert read_in_pieces(capture, "thrift.frames", piece) == list_frames(table)


def test_damage_after_a_gap_ends_at_the_next_packet_with_a_frame():
    frames = [make_request(number) for number in range(6)]
    frames[3] = b"\xff" * 500
    capture = make_capture(frames, 9092, 0, lost={1})
    table = wirescan.scan(capture.to_pcap(), "kafka.requests", errors="mark")
    assert list_faults(table) == [0, Fault.LOST, 0, Fault.BAD_LENGTH, 0, 0]
    assert table["size"].tolist()[3] == 500
    # Without lost bytes nothing shows that the bytes are Kafka's from there on.
    whole = make_capture(frames, 9092, 0)
    table = wirescan.scan(whole.to_pcap(), "kafka.requests", errors="mark")
    assert list_faults(table) == [0, 0, 0, Fault.BAD_LENGTH]


@pytest.mark.parametrize("format", ["kafka.responses", "kafka.requests", "lumberjack.frames"])
def test_a_large_frame_is_found_by_its_end(format):
    make, port, side = FORMATS[format]
    large = packet_resync.WINDOW * 10
    frames = [make(number, size) for number, size in enumerate([3000, large, 100])]
    capture = make_capture(frames, port, side, lost={0})
    table = wirescan.scan(capture.to_pcap(), format, errors="mark")
    good = table.where(~table.bad)
    assert good["size"].tolist() == [len(frame) for frame in frames[1:]]


@pytest.mark.parametrize("size", [900, packet_resync.WINDOW * 3])
def test_a_frame_inside_a_first_frame_that_a_piece_cuts_is_none(size):
    """A packet inside the first frame begins with a frame too."""
    inner = make_request(2, 80)
    outer = bytearray(make_request(1, size))
    outer[300 : 300 + len(inner)] = inner
    capture = make_capture([b"\xee" * 300, outer], 9092, 0, size=100, is_connected=False)
    whole = wirescan.scan(capture.to_pcap(), "kafka.requests", errors="mark")
    assert list_frames(whole)[1:] == [(300, len(outer), 0)]
    assert read_in_pieces(capture, "kafka.requests", 200) == list_frames(whole)


@pytest.mark.parametrize("size", [2500, packet_resync.WINDOW * 3])
@pytest.mark.parametrize("format", ["kafka.responses", "kafka.requests", "lumberjack.frames"])
def test_a_first_frame_that_a_piece_cuts_is_waited_for(format, size):
    make, port, side = FORMATS[format]
    frames = [make(number, size) for number, size in enumerate([3000, size, 100])]
    capture = make_capture(frames, port, side, lost={0}, is_connected=False)
    whole = wirescan.scan(capture.to_pcap(), format, errors="mark")
    assert list_faults(whole) == [Fault.NOT_A_FRAME, 0, 0]
    assert read_in_pieces(capture, format, 200) == list_frames(whole)


def test_a_large_frame_must_end_where_a_packet_ends(monkeypatch):
    """The first bytes of the second packet state a size, and nothing ends there."""
    garbage = struct.pack(">I", 9000) + b"\xee" * 12_345
    frames = [b"\xee" * SIZE, garbage, make_response(1), make_response(2)]
    table = wirescan.scan(
        make_capture(frames, 9092, 1, lost={0}).to_pcap(), "kafka.responses", errors="mark"
    )
    assert list_faults(table) == [Fault.LOST, Fault.NOT_A_FRAME, 0, 0]
    monkeypatch.setattr(packet_resync, "NEEDED", 8)
    table = wirescan.scan(
        make_capture(frames, 9092, 1, lost={0}).to_pcap(), "kafka.responses", errors="mark"
    )
    assert table["size"].tolist()[1] == 9004


def test_frames_in_full_packets_are_found_by_several_of_them():
    """A busy client fills its packets, so that no frame ends with one."""
    requests = b"".join(make_request(number, 91) for number in range(200))
    cut = requests[50:]  # the first packet begins inside a frame
    sizes = [len(make_request(number, 91)) for number in range(200)]
    period = sizes[0]
    assert set(sizes) == {period}
    capture = make_capture([cut], 9092, 0, lost={0}, size=7 * period - 50 + 0)
    table = wirescan.scan(capture.to_pcap(), "kafka.requests", errors="mark")
    assert Fault.LOST in list_faults(table)
    assert (table["fault"] == 0).sum() == 200 - 7


def test_lost_bytes_are_no_response_to_the_first_request():
    """Rows of lost bytes have the correlation id 0."""
    frames = [make_response(number) for number in range(3)]
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 9092))
    capture.connect(connection)
    for number in range(3):
        capture.send(connection, 0, make_request(number))
    first = len(capture.packets)
    for frame in frames:
        capture.send(connection, 1, frame)
    del capture.packets[first]
    capture.add(connection, 0, 16)
    table = wirescan.scan(capture.to_pcap(), "kafka.responses", errors="mark")
    assert list_faults(table) == [Fault.LOST, 0, 0]
    assert table["request"].tolist() == [-1, 1, 2]
    exchanges = wirescan.scan(capture.to_pcap(), "kafka.exchanges", errors="mark")
    times = exchanges["response_time"][exchanges["fault"] == 0].tolist()
    assert times == [0, *table["time"][1:].tolist()]


def test_lost_bytes_do_not_take_the_response_of_another_frame():
    """The first response is lost, and the request after it has the correlation id 0."""
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 9092))
    capture.connect(connection)
    for number in (5, 0):
        capture.send(connection, 0, make_request(number))
    for number in (5, 0):
        capture.send(connection, 1, make_response(number))
    del capture.packets[5]
    table = wirescan.scan(capture.to_pcap(), "kafka.responses", errors="mark")
    assert list_faults(table) == [Fault.LOST, 0]
    assert table["request"].tolist() == [-1, 1]
    assert table["latency"].tolist()[0] == -1


def test_lost_bytes_answer_no_token():
    """The response to the raw token of SASL is lost."""
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 9092))
    capture.connect(connection)
    capture.send(connection, 0, b"\0\0\0\5\0a\0bc")
    for number in (5, 0):
        capture.send(connection, 1, make_response(number))
    del capture.packets[4]
    table = wirescan.scan(capture.to_pcap(), "kafka.responses", errors="mark")
    assert list_faults(table)[0] == Fault.LOST
    assert table["request"].tolist()[0] == -1


def list_sent(table):
    """Return {the sender, position and size of each good frame: its first and last time}."""
    table = table.where(~table.bad)
    columns = ("direction", "connection", "size", "time", "time_end")
    direction, connection, size, begin, end = (table[name].tolist() for name in columns)
    sent = zip(direction, connection, table.positions.tolist(), size)
    return dict(zip(sent, zip(begin, end)))


@pytest.mark.parametrize(
    "file, format",
    [
        ("kafka.pcap", "kafka.requests"),
        ("kafka.pcap", "kafka.responses"),
        ("nats.pcapng", "nats.messages"),
        ("lumberjack.pcap", "lumberjack.frames"),
        ("thrift.pcapng", "thrift.frames"),
    ],
)
def test_a_lost_packet_of_a_recorded_capture_costs_only_its_own_frames(file, format):
    blocks = pcap.scan(CORPUS / "pcap" / file)
    expected = list_sent(wirescan.scan(CORPUS / "pcap" / file, format))
    gaps = 0
    for lost in range(2, len(blocks)):
        packets = pcap.packets(blocks[np.arange(len(blocks)) != lost])
        streams = pcap.streams(pcap.flows(packets), errors="mark")
        if not streams.bad.any():
            continue
        gaps += 1
        found = list_sent(pcap.frames(streams, format, errors="mark"))
        assert not found.keys() - expected.keys()
        for frame in expected.keys() - found.keys():
            begin, end = expected[frame]
            assert begin <= blocks["time"][lost] <= end
    assert gaps > 3


def make_lossy_capture(format, seed, *, port=None):
    """Return a capture of frames of many sizes, of which packets are lost, also the first ones."""
    chance = random.Random(seed)
    make, usual_port, side = FORMATS[format]
    frames = [
        make(number, chance.choice([1, 10, 500, 4000, 9000]))
        for number in range(chance.randrange(4, 30))
    ]
    if chance.random() < 0.5:  # frames that begin inside packets, and packets of garbage
        frames = [b"".join(frames[at : at + 3]) for at in range(0, len(frames), 3)]
        frames.insert(chance.randrange(len(frames)), chance.randbytes(3000))
    lost = {number for number in range(200) if chance.random() < 0.15}
    return make_capture(
        frames,
        port or usual_port,
        side,
        lost=lost,
        size=chance.choice([100, SIZE]),
        is_connected=chance.random() < 0.5,
    )


@pytest.mark.parametrize("are_bounds_small", [False, True])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("format", FORMATS)
def test_any_pieces_of_lossy_captures_have_the_rows_of_the_whole(
    format, seed, are_bounds_small, monkeypatch
):
    if are_bounds_small:
        monkeypatch.setattr(packet_resync, "LARGEST", 3000)
        monkeypatch.setattr(packet_resync, "WINDOW", 300)
    capture = make_lossy_capture(format, seed)
    whole = wirescan.scan(capture.to_pcap(), format, errors="mark")
    for piece in (random.Random(seed).randrange(60, 5000), 1 << 20):
        assert read_in_pieces(capture, format, piece) == list_frames(whole)


def make_long_frames(kind):
    """Return frames, of which the first ones are long and state no size in their first bytes."""
    if kind == "line":
        return [b'INFO {"name":"' + b"x" * size + b'"}\r\n' for size in (3000, 100, 5000, 50)]
    return [
        bytes(lumberjack.encode_data(number, {b"key": b"x" * size, b"other": b"y"}))
        for number, size in enumerate([3000, 100, 5000, 50])
    ]


@pytest.mark.parametrize("piece", [700, 1 << 20])
@pytest.mark.parametrize(
    ("format", "kind"), [("nats.messages", "line"), ("lumberjack.frames", "pairs")]
)
def test_long_frames_without_a_size_are_not_found_in_any_pieces(format, kind, piece):
    _, port, side = FORMATS[format]
    frames = make_long_frames(kind)
    capture = make_capture(frames, port, side, size=400, is_connected=False)
    assert read_in_pieces(capture, format, piece) == [
        (0, len(frames[0]), Fault.NOT_A_FRAME),
        (len(frames[0]), len(frames[1]), 0),
        (len(frames[0]) + len(frames[1]), len(frames[2]), 0),
        (sum(map(len, frames[:3])), len(frames[3]), 0),
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("format", FORMATS)
def test_streams_without_damage_have_the_rows_of_a_search(format, seed, monkeypatch):
    capture = make_lossy_capture(format, seed)
    rows = list_frames(wirescan.scan(capture.to_pcap(), format, errors="mark"))
    monkeypatch.setattr(
        packet_resync.GapTracker,
        "_find_intact",
        lambda tracker, streams, rows, ends, chosen, **columns: np.zeros(len(chosen), bool),
    )
    assert list_frames(wirescan.scan(capture.to_pcap(), format, errors="mark")) == rows


def test_an_unlikely_first_frame_is_none_in_any_pieces():
    """The first bytes state the size of a response, which ends inside a packet."""
    garbage = struct.pack(">I", 1200) + b"\xee" * 1200 + struct.pack(">I", 9000) + b"\xee" * 2000
    frames = [garbage, *map(make_response, range(4))]
    capture = make_capture(frames, 9092, 1, is_connected=False)
    whole = wirescan.scan(capture.to_pcap(), "kafka.responses", errors="mark")
    assert list_faults(whole) == [Fault.NOT_A_FRAME, 0, 0, 0, 0]
    assert read_in_pieces(capture, "kafka.responses", 2100) == list_frames(whole)


@pytest.mark.parametrize("format", ["kafka.requests", "lumberjack.frames", "nats.messages"])
def test_streams_that_begin_with_a_frame_are_not_searched(format, monkeypatch):
    make, port, side = FORMATS[format]
    frames = [make(number, 2000) for number in range(5)]
    capture = make_capture(frames, port, side, is_connected=False)
    monkeypatch.setattr(packet_resync.GapScanner, "scan", None)
    table = wirescan.scan(capture.to_pcap(), format)
    assert table["size"].tolist() == [len(frame) for frame in frames]


@pytest.mark.parametrize("chosen", [[0], [1], [0, 1]])
def test_only_first_frames_of_the_same_stream_are_weighed(chosen):
    """A frame counts one bit here, and 16 bits more if it ends with its packet."""
    capture = SimulatedCapture()
    for number, count in enumerate((3 * NEEDED, WEIGHED)):
        connection = Connection((CLIENT[0], CLIENT[1] + number), (SERVER, 4222))
        capture.connect(connection)
        capture.send(connection, 0, b"PING\r\n" * count)
    streams = wirescan.scan(capture.to_pcap(), "pcap.streams")
    format = format_of("nats.messages")
    conversation = replace(
        format.conversation, weigh_after_gap=lambda messages: np.ones(len(messages))
    )
    scanner = packet_resync.GapScanner(
        replace(format, conversation=conversation), check=True, limits=Limits()
    )
    rows = pcap.frames(streams, "nats.messages").rows
    begin = scanner.begin_with_frames(streams, rows, np.array(chosen))
    assert begin.tolist() == [number == 1 for number in chosen]


@pytest.mark.parametrize("format", ["kafka.requests", "kafka.responses", "nats.messages"])
@pytest.mark.parametrize("seed", range(8))
def test_every_byte_after_a_gap_is_in_one_row(format, seed):
    capture = make_lossy_capture(format, seed)
    capture.packets = capture.packets[:-1]
    data = capture.to_pcap()
    streams = wirescan.scan(data, "pcap.streams", errors="mark")
    table = pcap.frames(streams, format, errors="mark")
    for row in np.flatnonzero(~streams.bad).tolist():
        chosen = np.flatnonzero(table["parent"] == row)
        starts = table["start"][chosen]
        stops = starts + table["size"][chosen]
        if not len(chosen):
            continue
        assert starts[0] == streams["start"][row]
        assert starts[1:].tolist() == stops[:-1].tolist()
        is_last = row == len(streams) - 1
        assert is_last or stops[-1] == streams["start"][row] + streams["size"][row]


def test_streams_without_rows_for_gaps_have_the_same_frames():
    capture = make_lossy_capture("kafka.requests", 3)
    marked = wirescan.scan(capture.to_pcap(), "pcap.streams", errors="mark")
    skipped = wirescan.scan(capture.to_pcap(), "pcap.streams", errors="skip")
    assert len(skipped) < len(marked)
    expected = pcap.frames(marked, "kafka.requests", errors="skip")
    found = pcap.frames(skipped, "kafka.requests", errors="skip")
    assert found["size"].tolist() == expected["size"].tolist()


def test_a_gap_counts_until_frames_show_the_format():
    """The port is unusual. What shows the format comes in a piece after that of the gap."""
    capture = SimulatedCapture()
    connection = Connection(CLIENT, (SERVER, 5555))
    capture.connect(connection)
    for payload in (b"lost", b"\xee" * 300, make_pub(1)):
        capture.send(connection, 0, payload)
    del capture.packets[3]
    for _ in range(100):  # the receiver has the lost bytes
        capture.add(connection, 1, 16)
    capture.send(connection, 1, INFO)
    capture.send(connection, 0, make_pub(2))
    whole = wirescan.scan(capture.to_pcap(), "nats.messages", errors="mark")
    assert list_faults(whole) == [Fault.LOST, Fault.NOT_A_FRAME, 0, 0, 0]
    pieces = read_in_pieces(capture, "nats.messages", 200)
    assert sorted(pieces) == sorted(list_frames(whole))


def test_frames_after_a_gap_count_for_the_limits():
    """Those of one side without a gap and of one with a gap, which are scanned one by one."""
    frames = [make_request(number, 10) for number in range(30)]
    capture = make_capture([b"\xee" * SIZE, *frames], 9092, 0, is_connected=False)
    other = Connection((CLIENT[0], 50_000), (SERVER, 9092))
    capture.connect(other)
    capture.send(other, 0, b"".join(frames))
    streams = wirescan.scan(capture.to_pcap(), "pcap.streams", errors="mark")
    table = pcap.frames(streams, "kafka.requests", errors="mark", limits=Limits(rows=61))
    assert len(table) == 61
    for rows in (1, 20, 29, 45, 60):
        with pytest.raises(FrameError) as caught:
            pcap.frames(streams, "kafka.requests", errors="mark", limits=Limits(rows=rows))
        assert caught.value.fault == Fault.LIMIT


@pytest.mark.parametrize("name", ["kafka.responses?capture=true", "kafka.exchanges"])
def test_released_connections_are_forgotten(name):
    reader = wirescan.frames.registry.format_of(name).outermost.make_reader(
        errors="mark", check=True, limits=Limits()
    )
    capture = SimulatedCapture()
    for number in range(200):
        connection = Connection((bytes([10, 0, 1, number]), 40_000), (SERVER, 9092))
        for side, data in ((0, API_VERSIONS[3:]), (1, make_response(1)), (0, API_VERSIONS)):
            capture.send(connection, side, data)
        capture.close(connection)
        capture.now += 2 * 10**9
    blocks = pcap.scan(capture.to_pcap())
    for first in range(0, len(blocks), 100):
        reader.feed(blocks[first : first + 100])
    assert count_connections(reader._assembler) < 60
    scanner = reader._scanner._scanner  # that of the decrypted streams
    asked = scanner._asked if name.startswith("kafka.responses") else scanner._requests
    for scanner_of_side in (asked, scanner._answers):
        assert 0 < len(scanner_of_side._gaps._states) < 60


# ---- hostile bytes


def make_garbage(count):
    return [b"\xee" * 60] * count


def make_sizes(count):
    """Return packets that seem to begin frames whose ends never come."""
    return [struct.pack(">Ihhih", 4_000_000, 3, 1, 7, 4) + b"\xee" * 60] * count


def make_tiny_frames(count):
    """Return packets of frames that are too weak to count, and damage behind them."""
    return [struct.pack(">II", 4, 7) * 30 + b"\xff" * 9] * count


def make_damaged_frames(count):
    """Return packets that begin with a frame, with damage behind it."""
    return [make_request(7, 20) + b"\xff" * 20] * count


def make_pairs(count):
    """Return packets that seem to begin a large frame of pairs, which states no size."""
    return [b"2D" + struct.pack(">II", 1, 100_000) + struct.pack(">IcIc", 1, b"k", 1, b"v") * 6] * (
        count
    )


@pytest.mark.parametrize("format", ["kafka.requests", "kafka.responses", "lumberjack.frames"])
@pytest.mark.parametrize(
    "make", [make_garbage, make_sizes, make_tiny_frames, make_damaged_frames, make_pairs]
)
def test_hostile_packets_after_a_gap_take_linear_time(format, make):
    _, port, side = FORMATS[format]
    streams = [
        wirescan.scan(
            make_capture([b"lost", *make(count)], port, side, lost={0}).to_pcap(),
            "pcap.streams",
            errors="mark",
        )
        for count in (500, 4000)
    ]

    def read(number):
        pcap.frames(streams[number], format, errors="mark")

    assert_linear(lambda: read(0), lambda: read(1))


def test_hostile_packets_in_pieces_take_linear_time():
    captures = [
        make_capture(make_sizes(count), 9092, 1, is_connected=False) for count in (500, 4000)
    ]
    data = [capture.to_pcap() for capture in captures]

    def read(number):
        spec = "kafka.responses?capture=true"
        for _ in iter_tables(data[number], format=spec, piece=20_000, errors="mark"):
            pass

    assert_linear(lambda: read(0), lambda: read(1))


def test_a_packet_is_judged_once_in_any_pieces(monkeypatch):
    judged = []
    judge = packet_resync.GapScanner._judge

    def note(scanner, streams, packets, candidates):
        judged.append(len(candidates))
        return judge(scanner, streams, packets, candidates)

    monkeypatch.setattr(packet_resync.GapScanner, "_judge", note)
    capture = make_capture(make_garbage(3000), 9092, 1, is_connected=False)
    spec = "kafka.responses?capture=true"
    tables = list(iter_tables(capture.to_pcap(), format=spec, piece=5000, errors="mark"))
    assert sum(map(len, tables)) == 1
    assert len(judged) > 20
    assert sum(judged) <= 3000


def test_a_search_goes_on_in_the_next_bad_row(monkeypatch):
    """A bad row ends after enough bytes, at any packet of those that are judged together."""
    monkeypatch.setattr(packet_resync, "LARGEST", 1000)
    garbage, frames = [b"\xee" * 300] * 50, [make_request(1), make_request(2)]
    capture = make_capture([*garbage, *frames], 9092, 0, is_connected=False)
    whole = wirescan.scan(capture.to_pcap(), "kafka.requests", errors="mark")
    size = len(frames[0])
    expected = [(at, 1200, Fault.NOT_A_FRAME) for at in range(0, 14_400, 1200)]
    expected += [(14_400, 600, Fault.NOT_A_FRAME), (15_000, size, 0), (15_000 + size, size, 0)]
    assert list_frames(whole) == expected
    for piece in (700, 5000):
        assert read_in_pieces(capture, "kafka.requests", piece) == expected


def test_a_search_holds_bounded_bytes(monkeypatch):
    monkeypatch.setattr(packet_resync, "LARGEST", 100_000)
    format = wirescan.frames.registry.format_of("kafka.responses?capture=true")
    reader = format.outermost.make_reader(errors="mark", check=True, limits=Limits())
    capture = make_capture(make_garbage(20_000), 9092, 1, is_connected=False)
    blocks = pcap.scan(capture.to_pcap())
    held = []
    for first in range(0, len(blocks), 500):
        reader.feed(blocks[first : first + 500])
        held.append(reader._assembler.waiting_bytes)
    assert max(held) < 600_000
    assert max(held) > 100_000
