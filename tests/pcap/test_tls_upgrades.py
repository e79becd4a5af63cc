"""Connections that begin in plain text, and become TLS at the start of a packet."""

import struct

import pytest

import wirescan
from tests.support.frame_values import list_values
from tests.support.paths import CORPUS
from tests.support.simulated_capture import SimulatedCapture
from tests.support.tls_connections import (
    CLIENT,
    SERVER,
    RecordedTls,
    make_connection,
    record_tls,
    simulate_tls,
)
from tests.support.tls_frames import PAIRS, describe
from wirescan import Fault, pcap
from wirescan.frames.registry import make_spec
from wirescan.pcap.decryption.tls_records import PLAIN_SIZE
from wirescan.reading.chunked import iter_tables
from wirescan.testing.cost import MANY_TIMES, assert_linear

NATS = CORPUS / "nats" / "recorded"
ASKED = (NATS / "nats-py.client.bin").read_bytes()
ANSWERED = (NATS / "nats-py.server.bin").read_bytes()
INFO = ANSWERED[: ANSWERED.index(b"\r\n") + 2]
PORTS = [4222, 5555]
PIECES = (61, 300, 1000, 1 << 20)
every_version = pytest.mark.parametrize("version", ["1.2", "1.3"])


def record_nats(directory, **options):
    """Record a connection of NATS that becomes TLS after the first line of the server."""
    messages = [(CLIENT, ASKED), (SERVER, ANSWERED[len(INFO) :])]
    return record_tls(directory, messages, greetings=[(SERVER, INFO)], **options)


def list_messages(directory, data):
    path = directory / "data.bin"
    path.write_bytes(data)
    return list_values(wirescan.nats.scan(path).rows)


def read_pieces(path, spec, piece):
    tables = iter_tables(str(path), format=spec, piece=piece, errors="mark")
    return sorted(row for table in tables if len(table) for row in describe(table))


@every_version
@pytest.mark.parametrize("port", PORTS)
def test_messages_behind_a_plain_line_are_decrypted(version, port, tmp_path):
    talk = record_nats(tmp_path, version=version)
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate_tls([talk], port, size=200).to_pcap())
    table = wirescan.scan(path, make_spec("nats.messages", keylog=str(talk.keylog)))
    for direction, data in (
        (pcap.Direction.TO_SERVER, ASKED),
        (pcap.Direction.TO_CLIENT, ANSWERED),
    ):
        of_side = table[table["direction"] == direction]
        assert list_values(of_side.rows) == list_messages(tmp_path, data)
        # Positions count the plain bytes and the decrypted ones.
        assert of_side.positions.tolist()[0] == 0
        sizes = of_side["size"].tolist()
        assert of_side.positions.tolist() == [sum(sizes[:at]) for at in range(len(sizes))]
    (row,) = wirescan.scan(path, make_spec("pcap.tls", keylog=str(talk.keylog)))
    assert (row.kind, row.fault, row.is_complete) == (pcap.Decryption.DECRYPTED, 0, 1)
    spec = make_spec("nats.messages", keylog=str(talk.keylog), capture="true")
    for piece in PIECES:
        assert read_pieces(path, spec, piece) == describe(table)
    exchanges = make_spec("nats.exchanges", keylog=str(talk.keylog))
    whole = wirescan.scan(path, exchanges)
    assert len(whole) and (whole["latency"] > 0).any()
    found = [
        row
        for piece in iter_tables(str(path), format=exchanges, piece=300)
        if len(piece)
        for row in piece["request_end"].tolist()
    ]
    assert sorted(found) == sorted(whole["request_end"].tolist())


def test_a_plain_line_is_read_without_secrets(tmp_path):
    talk = record_nats(tmp_path)
    path = tmp_path / "capture.pcap"
    for raw in (simulate_tls([talk], 4222).to_pcap(), simulate_tls([talk], 4222).to_pcapng()):
        path.write_bytes(raw)
        table = wirescan.scan(path, "nats.messages")
        assert [bytes(table.frame(row)) for row in range(len(table))] == [INFO]
        for piece in PIECES:
            found = read_pieces(path, "nats.messages?capture=true", piece)
            assert found == describe(table)
        (row,) = wirescan.scan(path, "pcap.tls")
        assert (row.kind, row.fault) == (pcap.Decryption.NOT_TRIED, 0)
        assert (row.version, row.is_complete) == (0x0304, 1)


@pytest.mark.parametrize("piece", PIECES)
def test_hellos_that_are_captured_in_another_order_are_found(piece, tmp_path):
    """The capture has the answer of the server before the hello of the client."""
    for greetings in ([(SERVER, INFO)], [(CLIENT, b"PING\r\n"), (SERVER, INFO)]):
        messages = [(CLIENT, ASKED), (SERVER, ANSWERED[len(INFO) :])]
        talk = record_tls(tmp_path, messages, greetings=greetings)
        at = len(greetings)
        flights = talk.flights
        flights[at], flights[at + 1] = flights[at + 1], flights[at]
        path = tmp_path / "capture.pcap"
        path.write_bytes(simulate_tls([talk], 5555, size=400).to_pcap())
        spec = make_spec("nats.messages", keylog=str(talk.keylog))
        table = wirescan.scan(path, spec)
        sent = b"".join(data for side, data in greetings if side == CLIENT)
        expected = len(list_messages(tmp_path, sent + ASKED)) + len(
            list_messages(tmp_path, ANSWERED)
        )
        assert len(table) == expected
        assert read_pieces(path, make_spec(spec, capture="true"), piece) == describe(table)
        for item in iter_tables(str(path), format="pcap.tls", piece=piece):
            assert item["fault"].tolist() == len(item) * [0]


def test_a_client_may_send_a_line_first(tmp_path):
    """As a proxy does that names the client of the connection, and the server answers in TLS."""
    line = b"PROXY TCP4 10.0.0.7 10.0.0.8 1234 4222\r\n"
    talk = record_tls(tmp_path, [], greetings=[(CLIENT, line)])
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate_tls([talk], 5555).to_pcap())
    for piece in PIECES:
        (table,) = [
            item for item in iter_tables(str(path), format="pcap.tls", piece=piece) if len(item)
        ]
        assert (table["fault"].tolist(), table["version"].tolist()) == ([0], [0x0304])
    assert wirescan.scan(path, "pcap.tls")["is_complete"].tolist() == [1]


@pytest.mark.parametrize("port", PORTS)
def test_both_sides_may_begin_in_plain_text(port, tmp_path):
    """The client asks for TLS first, as that of PostgreSQL does."""
    asked, answered = PAIRS[0]
    greetings = [(CLIENT, struct.pack(">II", 8, 80_877_103)), (SERVER, b"S")]
    messages = [(CLIENT, asked), (SERVER, answered)]
    talk = record_tls(tmp_path, messages, greetings=greetings)
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate_tls([talk], port).to_pcap())
    for spec in ("pcap.tls", make_spec("pcap.tls", keylog=str(talk.keylog))):
        (row,) = wirescan.scan(path, spec)
        assert (row.fault, row.is_complete, row.version) == (0, 1, 0x0304)
        for piece in PIECES:
            tables = [
                item for item in iter_tables(str(path), format=spec, piece=piece) if len(item)
            ]
            names = [name for name in tables[0].dtype.names if name not in ("parent", "reserved")]
            assert [item.rows[names].tolist() for item in tables] == [
                wirescan.scan(path, spec).rows[names].tolist()
            ]


def make_late_hello(talk, answer):
    """Return a connection in which only the client sends a hello behind plain text."""
    hello = talk.flights[0][1]
    flights = [(CLIENT, ASKED[:100]), (SERVER, INFO), (CLIENT, hello), (SERVER, answer)]
    return RecordedTls(flights, (b"", b""), talk.keylog)


@pytest.mark.parametrize("answer", [b"", b"PONG\r\n", b"PONG\r\n" * 20_000])
def test_a_hello_without_an_answer_is_plain_text(answer, tmp_path):
    talk = record_tls(tmp_path, [])
    plain = make_late_hello(talk, answer)
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate_tls([plain], 4222).to_pcap())
    spec = make_spec("nats.messages", keylog=str(talk.keylog))
    table = wirescan.scan(path, spec, errors="mark")
    of_server = table[table["direction"] == pcap.Direction.TO_CLIENT]
    assert len(of_server) == 1 + answer.count(b"PONG") and not of_server.bad.any()
    of_client = table[table["direction"] == pcap.Direction.TO_SERVER]
    assert of_client.bad.any()  # the hello is no message
    assert len(wirescan.scan(path, "pcap.tls")) == 0
    for piece in (61, 5000, 1 << 20):
        captured = make_spec("nats.messages", keylog=str(talk.keylog), capture="true")
        if len(answer) < 1000 or piece > 61:
            assert read_pieces(path, captured, piece) == describe(table)
        assert sum(map(len, iter_tables(str(path), format="pcap.tls", piece=piece))) == 0


def test_a_hello_that_begins_late_is_plain_text(tmp_path):
    talk = record_tls(tmp_path, [])
    for size, count in ((PLAIN_SIZE - 1, 1), (PLAIN_SIZE, 0)):
        greeting = [(CLIENT, bytes(size)), (SERVER, b"S")]
        late = RecordedTls(greeting + talk.flights, (b"", b""), talk.keylog)
        raw = simulate_tls([late], 5555).to_pcap()
        assert len(wirescan.scan(raw, "pcap.tls")) == count


def test_a_hello_inside_a_packet_is_plain_text(tmp_path):
    talk = record_tls(tmp_path, [])
    (_, hello), (_, answer) = talk.flights[:2]
    flights = [(CLIENT, b"x" + hello), (SERVER, b"S"), (SERVER, answer)]
    raw = simulate_tls([RecordedTls(flights, (b"", b""), talk.keylog)], 5555).to_pcap()
    assert len(wirescan.scan(raw, "pcap.tls")) == 0


def test_lost_bytes_before_the_hello_are_a_row(tmp_path):
    talk = record_nats(tmp_path)
    capture = simulate_tls([talk], 4222, size=50)
    # Without the second packet of the server's first line.
    first = next(at for at, (_, packet) in enumerate(capture.packets) if INFO[:20] in packet)
    del capture.packets[first + 1]
    path = tmp_path / "capture.pcap"
    path.write_bytes(capture.to_pcap())
    spec = make_spec("nats.messages", keylog=str(talk.keylog))
    table = wirescan.scan(path, spec, errors="mark")
    faults = table["fault"][table["direction"] == pcap.Direction.TO_CLIENT].tolist()
    assert faults[:2] == [Fault.SHORT, Fault.LOST]
    of_client = table[table["direction"] == pcap.Direction.TO_SERVER]
    assert list_values(of_client.rows) == list_messages(tmp_path, ASKED)
    captured = make_spec("nats.messages", keylog=str(talk.keylog), capture="true")
    for piece in PIECES:
        assert read_pieces(path, captured, piece) == describe(table)


def test_a_server_that_refuses_tls_sends_an_alert(tmp_path):
    talk = record_nats(tmp_path)
    alert = b"\x15\3\3\0\2\2\x28"
    refused = RecordedTls([*talk.flights[:2], (SERVER, alert)], (b"", b""), talk.keylog)
    raw = simulate_tls([refused], 4222).to_pcap()
    table = wirescan.scan(raw, "nats.messages")
    assert [bytes(table.frame(row)) for row in range(len(table))] == [INFO]
    (row,) = wirescan.scan(raw, "pcap.tls")
    assert (row.fault, row.is_complete) == (0, 0)


def test_many_late_hellos_cost_linear_time(tmp_path):
    hello = record_tls(tmp_path, []).flights[0][1][:60]

    def make(count):
        capture = SimulatedCapture()
        for number in range(count):
            connection = make_connection(number, 5555)
            capture.connect(connection)
            capture.send(connection, CLIENT, b"x")
            for _ in range(4):
                capture.send(connection, CLIENT, hello)
            capture.send(connection, SERVER, b"y" * 100, size=20)
        return capture.to_pcap()

    few, many = (
        pcap.streams(pcap.flows(pcap.packets(pcap.scan(make(300 * times)))))
        for times in (1, MANY_TIMES)
    )
    assert len(pcap.tls(few)) == 0
    assert_linear(lambda: pcap.tls(few), lambda: pcap.tls(many))
