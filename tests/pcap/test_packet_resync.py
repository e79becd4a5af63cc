"""Frames after lost bytes, and in connections whose beginning a capture does not have."""

import random
import struct

import numpy as np
import pytest

import wirescan
from tests.support.captured_conversations import CASES, CLIENT, SERVER, publish
from tests.support.simulated_capture import Connection, SimulatedCapture
from wirescan import Fault, FrameError, Limits, kafka, liftbridge, lumberjack, nats, pcap
from wirescan.pcap import packet_resync
from wirescan.reading.chunked import iter_tables
from wirescan.testing.cost import assert_linear

API_VERSIONS = struct.pack(">IhhihB", 12, 18, 3, 7, -1, 0) + b"\1"
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
