"""Who is the client of a connection whose beginning a capture does not have."""

import pytest

import wirescan
from tests.support.captured_conversations import INFO, list_values
from tests.support.damaged_captures import find_packet_borders
from tests.support.simulated_capture import Connection, SimulatedCapture
from wirescan import kafka, lumberjack, nats, thrift
from wirescan.frames.conversation import make_opening
from wirescan.pcap.assembly.assembler import Assembler
from wirescan.reading.chunked import iter_tables

CLIENT = (bytes([10, 0, 0, 1]), 2000)  # below the port of the server
SERVER = bytes([10, 0, 0, 2])
PORT = 45_000  # an unusual one


def make_call(kind, compact=False):
    protocol = thrift.Protocol.COMPACT if compact else thrift.Protocol.BINARY
    message = thrift.encode_message("add", kind, 7, protocol=protocol)
    return thrift.encode_framed(message)


CALL, REPLY = thrift.MessageType.CALL, thrift.MessageType.REPLY
# Name: the side that sends first, and its bytes.
FIRST = {
    "kafka request": (0, kafka.encode_request("Metadata", 5, client_id="app")),
    "kafka produce": (0, kafka.encode_request("Produce", 7, client_id="app")),
    "nats info": (1, INFO),
    "nats connect": (0, b'CONNECT {"verbose":false}\r\n'),
    "nats pub": (0, nats.encode_pub("a", b"b")),
    "nats msg": (1, nats.encode_msg("a", "1", b"b")),
    "lumberjack window": (0, lumberjack.encode_window(3)),
    "lumberjack json": (0, lumberjack.encode_json(1, {"a": 1})),
    "lumberjack ack": (1, lumberjack.encode_ack(3)),
    "thrift call": (0, make_call(CALL)),
    "thrift reply": (1, make_call(REPLY)),
    "thrift one-way call": (0, make_call(thrift.MessageType.ONEWAY)),
    "thrift exception": (1, make_call(thrift.MessageType.EXCEPTION)),
    "thrift unframed call": (0, thrift.encode_message("add", CALL, 7)),
    "thrift unframed reply": (1, thrift.encode_message("add", REPLY, 7)),
    "thrift compact call": (0, make_call(CALL, compact=True)),
    "thrift compact reply": (1, make_call(REPLY, compact=True)),
    "hello of a client": (0, bytes.fromhex("16030100050100000100")),
    "hello of a server": (1, bytes.fromhex("16030300050200000100")),
}


def capture_inside(turns, port=PORT, client=CLIENT):
    """Return a capture that begins inside a connection. turns: (side, bytes)."""
    capture = SimulatedCapture()
    connection = Connection(client, (SERVER, port))
    for side, data in turns:
        capture.send(connection, side, bytes(data))
    return capture


def find_servers(capture):
    return wirescan.scan(capture.to_pcap(), "pcap.flows")["server"].to_pylist()


@pytest.mark.parametrize("name", FIRST)
def test_the_first_bytes_say_who_is_the_client(name):
    assert find_servers(capture_inside([FIRST[name]])) == [f"10.0.0.2:{PORT}"]
    side, data = FIRST[name]
    assert find_servers(capture_inside([(1 - side, data)])) == ["10.0.0.1:2000"]


def test_other_bytes_before_them_say_nothing():
    noise = [(1, b"\xee" * 10), (0, b"\xdd" * 10)]
    assert find_servers(capture_inside([*noise, FIRST["nats info"]])) == [f"10.0.0.2:{PORT}"]
    assert find_servers(capture_inside(noise)) == ["10.0.0.1:2000"]


def test_few_packets_are_looked_at():
    noise = [(1, b"\xee")]
    assert find_servers(capture_inside([*noise * 7, FIRST["nats info"]])) == [f"10.0.0.2:{PORT}"]
    assert find_servers(capture_inside([*noise * 8, FIRST["nats info"]])) == ["10.0.0.1:2000"]


@pytest.mark.parametrize("port", [9092, 9093, 9094, 5043, 5044, 4222, 9090])
def test_a_usual_port_is_that_of_the_server(port):
    noise = [(1, b"\xee" * 10)]
    assert find_servers(capture_inside(noise, port)) == [f"10.0.0.2:{port}"]
    # It is so although the bytes say something else.
    assert find_servers(capture_inside([FIRST["nats info"]], port)) == [f"10.0.0.2:{port}"]
    swapped = [(0, FIRST["nats info"][1])]
    assert find_servers(capture_inside(swapped, port)) == [f"10.0.0.2:{port}"]


def test_two_usual_ports_say_nothing():
    assert find_servers(capture_inside([FIRST["thrift call"]], 9092, (CLIENT[0], 4222))) == [
        "10.0.0.2:9092"
    ]


def test_the_syn_says_who_is_the_client():
    capture = SimulatedCapture()
    connection = Connection((CLIENT[0], 9092), (SERVER, 45_000))
    capture.connect(connection)
    capture.send(connection, 1, bytes(FIRST["nats pub"][1]))
    assert find_servers(capture) == ["10.0.0.2:45000"]
    capture.packets = capture.packets[1:]  # the answer of the server
    assert find_servers(capture) == ["10.0.0.2:45000"]


CONVERSATIONS = {
    "kafka.exchanges": [
        (1, b"\xee" * 10),
        (0, kafka.encode_request("Metadata", 1, correlation_id=1, client_id="app")),
        (1, kafka.encode_response("Metadata", 1, correlation_id=1)),
    ],
    "nats.exchanges": [
        (1, nats.encode_msg("a", "1", b"", reply="in")),
        (0, nats.encode_pub("in", b"")),
    ],
    "lumberjack.exchanges": [
        (1, lumberjack.encode_ack(1)),
        (0, lumberjack.encode_window(1) + lumberjack.encode_json(1, {"a": 1})),
        (1, lumberjack.encode_ack(1)),
    ],
    "thrift.exchanges": [(0, make_call(CALL)), (1, make_call(REPLY))],
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_exchanges_have_the_right_client_in_pieces_too(name):
    capture = capture_inside(CONVERSATIONS[name])
    raw = capture.to_pcap()
    whole = wirescan.scan(raw, name, errors="mark")
    good = whole.where(~whole.bad)
    assert good["client"].to_pylist() == ["10.0.0.1:2000"]
    assert (good["response_size"] > 0).all()
    expected = sorted(map(repr, list_values(whole)))
    for piece in (50, find_packet_borders(capture)[0]):
        tables = iter_tables(raw, format=name, piece=piece, errors="mark")
        found = [repr(row) for table in tables if len(table) for row in list_values(table)]
        assert sorted(found) == expected


def test_streams_wait_for_the_packet_that_decides():
    capture = capture_inside([(1, b"\xee" * 10), FIRST["nats info"]])
    tables = iter_tables(capture.to_pcap(), format="pcap.streams", piece=50)
    kinds = {kind for table in tables if len(table) for kind in table["kind"].tolist()}
    assert kinds == {wirescan.pcap.Direction.TO_CLIENT}


def test_openings_have_any_bytes_and_ranges():
    opening = make_opening("server", b"ab", 2, (1, 5))
    assert opening == ("server", b"ab\0\0\1", b"ab\xff\xff\5")
    with pytest.raises(ValueError, match="16 bytes"):
        Assembler("first", openings=[(True, bytes(17), bytes(17))])
    with pytest.raises(ValueError, match="64 openings"):
        Assembler("first", openings=[(True, b"a", b"a")] * 65)
