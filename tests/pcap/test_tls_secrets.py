"""Secrets inside pcapng captures, and how many secrets are kept."""

import dataclasses
import logging
import sys

import pytest

import wirescan
from tests.support.captured_conversations import fetch
from tests.support.frame_values import list_values, scan_alone
from tests.support.packet_follower import count_connections
from tests.support.simulated_capture import SimulatedCapture
from tests.support.tls_connections import (
    CLIENT,
    SERVER,
    RecordedTls,
    make_connection,
    record_tls,
    simulate_tls,
)
from tests.support.tls_frames import PAIRS, describe, record_pair
from wirescan import Fault, kafka, pcap
from wirescan.frames.registry import make_spec
from wirescan.pcap.decryption.tls_keys import KeyLog
from wirescan.reading.chunked import iter_tables

PORT = 9092
UNUSUAL = 5555
ASKED = scan_alone("kafka.requests", PAIRS[:1], 0)[0]
every_version = pytest.mark.parametrize("version", ["1.2", "1.3"])


def read_pieces(path, format, piece, keylog=None):
    spec = make_spec(format, keylog=keylog, capture="true")
    tables = iter_tables(str(path), format=spec, piece=piece, errors="mark")
    return sorted(row for table in tables if len(table) for row in describe(table))


def write(directory, raw):
    path = directory / "capture.pcapng"
    path.write_bytes(raw)
    return path


@every_version
@pytest.mark.parametrize("big_endian", [False, True])
def test_secrets_of_a_capture_are_used(version, big_endian, tmp_path):
    talk = record_pair(tmp_path, version=version)
    secrets = talk.keylog.read_text()
    raw = simulate_tls([talk], PORT).to_pcapng(secrets=secrets, big_endian=big_endian)
    path = write(tmp_path, raw)
    table = wirescan.scan(path, "kafka.requests")
    assert list_values(table.rows) == ASKED
    for piece in (61, 400, 1 << 20):
        assert read_pieces(path, "kafka.requests", piece) == describe(table)
    (row,) = wirescan.scan(path, "pcap.tls")
    assert (row.kind, row.fault) == (pcap.Decryption.DECRYPTED, 0)
    (table,) = [item for item in iter_tables(str(path), format="pcap.tls") if len(item)]
    assert table["kind"].tolist() == [pcap.Decryption.DECRYPTED]
    exchanges = wirescan.scan(path, "kafka.exchanges")
    assert len(exchanges) and (exchanges["latency"] > 0).all()


def test_a_capture_without_secrets_has_no_frames_of_tls(tmp_path):
    talk = record_pair(tmp_path)
    for raw in (
        simulate_tls([talk], PORT).to_pcapng(),
        simulate_tls([talk], PORT).to_pcap(),
        # Those of another connection.
        simulate_tls([talk], PORT).to_pcapng(secrets=f"CLIENT_RANDOM {'00' * 32} {'11' * 48}\n"),
    ):
        path = write(tmp_path, raw)
        for piece in (61, 400, 1 << 20):
            assert read_pieces(path, "kafka.requests", piece) == []
        assert len(wirescan.scan(path, "kafka.requests", errors="mark")) == 0
        (row,) = wirescan.scan(path, "pcap.tls")
        assert row.fault == 0
        tried = pcap.Decryption.NO_SECRET if b"CLIENT_RANDOM" in raw else pcap.Decryption.NOT_TRIED
        assert row.kind == tried
        (table,) = [item for item in iter_tables(str(path), format="pcap.tls") if len(item)]
        assert table["kind"].tolist() == [tried]


def test_secrets_of_the_file_and_of_the_capture_count(tmp_path):
    talks = [record_pair(tmp_path, pair, name=f"{at}.txt") for at, pair in enumerate(PAIRS[:2])]
    raw = simulate_tls(talks, PORT).to_pcapng(secrets=talks[0].keylog.read_bytes())
    path = write(tmp_path, raw)
    assert set(wirescan.scan(path, "kafka.requests")["connection"].tolist()) == {0}
    keylog = str(talks[1].keylog)
    table = wirescan.scan(path, make_spec("kafka.requests", keylog=keylog))
    assert set(table["connection"].tolist()) == {0, 1}
    assert table["fault"].tolist() == [0] * len(table)
    for piece in (61, 1 << 20):
        assert read_pieces(path, "kafka.requests", piece, keylog) == describe(table)


def test_secrets_between_packets_are_used(tmp_path):
    """The secrets of a connection come after its ClientHello, and before its data."""
    talks = [record_pair(tmp_path, pair, name=f"{at}.txt") for at, pair in enumerate(PAIRS[:2])]
    raw = b""
    capture = SimulatedCapture()
    for number, talk in enumerate(talks):
        connection = make_connection(number, PORT)
        capture.connect(connection)
        capture.send(connection, *talk.flights[0])
        raw += capture.to_pcapng()
        capture.packets.clear()
        for side, data in talk.flights[1:]:
            capture.send(connection, side, data)
        raw += capture.to_pcapng(secrets=talk.keylog.read_bytes())
        capture.packets.clear()
    path = write(tmp_path, raw)
    table = wirescan.scan(path, "kafka.requests")
    assert set(table["connection"].tolist()) == {0, 1}
    for piece in (61, 400, 1 << 20):
        assert read_pieces(path, "kafka.requests", piece) == describe(table)


def read_answers(path, piece, keylog=None):
    """Return the latencies of responses, and the number of records in them."""
    specs = [make_spec(name, keylog=keylog) for name in ("kafka.responses", "kafka.records")]
    tables = [list(iter_tables(str(path), format=spec, piece=piece)) for spec in specs]
    latencies = [time for table in tables[0] if len(table) for time in table["latency"].tolist()]
    return latencies, sum(map(len, tables[1]))


@pytest.fixture(params=["1.2", "1.3"])
def fetching(request, tmp_path):
    """A connection in which one record is fetched."""
    batch = bytes(kafka.encode_batch([{"key": b"k", "value": b"v"}]))
    return record_tls(tmp_path, list(enumerate(fetch(7, batch))), version=request.param)


def test_a_response_does_not_come_before_a_request_that_waits_for_secrets(fetching, tmp_path):
    connection = make_connection(0, PORT)
    capture = SimulatedCapture()
    capture.connect(connection)
    for side, data in fetching.flights[:-1]:
        capture.send(connection, side, data)
    raw = capture.to_pcapng()
    raw += SimulatedCapture().to_pcapng(secrets=fetching.keylog.read_bytes())
    capture.packets.clear()
    capture.send(connection, *fetching.flights[-1])
    path = write(tmp_path, raw + capture.to_pcapng())
    whole = read_answers(path, 1 << 20)
    assert whole[0][0] > 0 and whole[1] == 1
    for piece in (61, 400, len(raw)):
        assert read_answers(path, piece) == whole


def test_a_response_does_not_come_before_a_request_that_waits_for_a_hello(fetching, tmp_path):
    connection = make_connection(0, PORT)
    capture = SimulatedCapture()
    capture.connect(connection)
    for sender in (CLIENT, SERVER):
        for side, data in fetching.flights:
            if side == sender:
                capture.send(connection, side, data)
    path = write(tmp_path, capture.to_pcapng())
    whole = read_answers(path, 1 << 20, str(fetching.keylog))
    assert whole[1] == 1
    for piece in (61, 400, 1500):
        assert read_answers(path, piece, str(fetching.keylog)) == whole


@pytest.mark.parametrize("times, is_read", [(1, True), (400, True), (800, False)])
def test_secrets_after_all_packets_are_used_for_64_kib_of_a_side(tmp_path, times, is_read):
    """A whole scan finds them behind more bytes too, and so does one piece."""
    talk = record_pair(tmp_path, (PAIRS[0][0] * times, PAIRS[0][1]))
    raw = simulate_tls([talk], PORT).to_pcapng()
    raw += SimulatedCapture().to_pcapng(secrets=talk.keylog.read_bytes())
    path = write(tmp_path, raw)
    whole = describe(wirescan.scan(path, "kafka.requests", errors="mark"))
    assert len(whole) == times * len(ASKED)
    assert (read_pieces(path, "kafka.requests", 4000) == whole) == is_read
    if not is_read:
        tables = list(iter_tables(str(path), format="pcap.tls", piece=4000, errors="mark"))
        kinds = [kind for table in tables if len(table) for kind in table["kind"].tolist()]
        assert kinds == [pcap.Decryption.NO_SECRET]
    assert read_pieces(path, "kafka.requests", 1 << 20) == whole


def test_other_secrets_and_damaged_blocks_are_ignored(tmp_path):
    talk = record_pair(tmp_path)
    secrets = talk.keylog.read_bytes()
    raw = simulate_tls([talk], PORT).to_pcapng(secrets=secrets)
    kind = raw.index(b"KSLT")
    assert len(wirescan.scan(raw, "kafka.requests"))
    # Secrets of WireGuard.
    other = raw[:kind] + b"LKGW" + raw[kind + 4 :]
    assert len(wirescan.scan(other, "kafka.requests")) == 0
    # The size of the secrets is larger than the block: all of the block counts.
    large = raw[: kind + 4] + b"\xff\xff\xff\x7f" + raw[kind + 8 :]
    assert len(wirescan.scan(large, "kafka.requests")) == len(ASKED)
    damaged = raw[:kind] + raw[kind:].replace(b"CLIENT", b"CL\xff\0NT").replace(
        b"SERVER", b"\n\r\t\n\r\t"
    )
    for data in (damaged, raw[: kind + 8] + bytes(len(secrets)) + raw[kind + 8 + len(secrets) :]):
        assert len(wirescan.scan(data, "kafka.requests", errors="mark")) == 0
        (row,) = wirescan.scan(data, "pcap.tls")
        assert row.kind == pcap.Decryption.NOT_TRIED


def test_faults_of_a_connection_with_secrets_are_rows(tmp_path):
    talk = record_pair(tmp_path)
    data = talk.join(CLIENT)
    raw = simulate_tls([talk], PORT).to_pcapng(secrets=talk.keylog.read_bytes())
    at = raw.index(data[-40:])
    damaged = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
    table = wirescan.scan(damaged, "kafka.requests", errors="mark")
    assert table["fault"].tolist() == [Fault.BAD_CHECKSUM]


def test_secrets_of_a_capture_need_the_package(tmp_path, monkeypatch, caplog):
    talk = record_pair(tmp_path)
    raw = simulate_tls([talk], PORT).to_pcapng(secrets=talk.keylog.read_bytes())
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with caplog.at_level(logging.WARNING):
        assert len(wirescan.scan(raw, "kafka.requests")) == 0
    assert "the secrets in the capture are not used" in caplog.text
    assert "wirescan[tls]" in caplog.text
    (row,) = wirescan.scan(raw, "pcap.tls")
    assert row.kind == pcap.Decryption.NOT_TRIED


def test_the_secrets_that_are_kept_are_bounded(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("wirescan.pcap.decryption.tls_keys.MOST_SECRETS", 10)
    path = tmp_path / "keys.txt"
    path.write_text("")
    keylog = KeyLog(str(path))
    randoms = [bytes([number]) * 32 for number in range(1, 100)]
    with caplog.at_level(logging.WARNING):
        for random in randoms:
            with path.open("a") as file:
                file.write(f"CLIENT_RANDOM {random.hex()} {bytes(48).hex()}\n")
            assert keylog.find(b"CLIENT_RANDOM", random) == bytes(48)
            assert len(keylog) <= 10
    found = [random for random in randoms if keylog.find(b"CLIENT_RANDOM", random)]
    assert found == randoms[-len(found) :]
    assert 5 <= len(found) <= 10
    assert caplog.text.count("the first ones are forgotten") == 1


# ---- memory


def feed(reader, capture):
    return reader.feed(pcap.scan(capture.to_pcap()))


def make_reader(talk, format="thrift.frames"):
    spec = make_spec(format, keylog=str(talk.keylog), capture="true")
    if format == "pcap.tls":
        spec = make_spec(format, keylog=str(talk.keylog))
    format = wirescan.frames.registry.format_of(spec)
    return format.make_reader(errors="mark", check=True, limits=wirescan.Limits())


def record_cut_frame(directory, size):
    """Record a connection that sends the beginning of a frame of Thrift: `size` bytes."""
    frame = (10 * size).to_bytes(4) + b"\x82\x21\x01" + bytes(size - 7)
    return record_tls(directory, [(CLIENT, frame)])


def test_decrypted_bytes_that_wait_release_idle_connections(tmp_path, monkeypatch):
    talks = [record_cut_frame(tmp_path, 100_000) for _ in range(6)]
    reader = make_reader(talks[0])
    monkeypatch.setattr("wirescan.pcap.flow_tables.MOST_WAITING", 320_000)
    most = 0
    faults = []
    for number, talk in enumerate(talks):
        capture = SimulatedCapture()
        capture.now += number * 10**9
        connection = make_connection(number, 9090)
        capture.connect(connection)
        for side, data in talk.flights:
            capture.send(connection, side, data)
        for _ in range(2):  # connections are released with the next packets
            table = feed(reader, capture)
            faults += zip(table["connection"].tolist(), table["fault"].tolist())
            capture.packets = capture.packets[-1:]
        most = max(most, reader._scanner.held_bytes)
    assert 200_000 < most < 460_000
    # The oldest connections ended inside their frames.
    assert faults == [(number, Fault.SHORT) for number in range(len(faults))]
    assert 2 <= len(faults) <= 4
    assert reader._scanner.held_bytes >= 200_000
    reader.close()


def test_the_table_of_connections_keeps_no_decrypted_bytes(tmp_path):
    talk = record_cut_frame(tmp_path, 300_000)
    reader = make_reader(talk, "pcap.tls")
    feed(reader, simulate_tls([talk], 9090, is_closed=False))
    assert 0 < reader._follower.held_bytes < 10_000
    table = reader.close()
    assert table["kind"].tolist() == [pcap.Decryption.DECRYPTED]


def test_connections_that_are_forgotten_count_no_bytes(tmp_path):
    talk = record_pair(tmp_path)
    reader = make_reader(talk, "kafka.requests")
    feed(reader, simulate_tls([talk], PORT))
    assert reader._scanner.held_bytes > 0
    capture = SimulatedCapture()
    capture.now += 100 * 10**9
    other = make_connection(9, UNUSUAL)
    capture.connect(other)
    for _ in range(70):
        capture.send(other, SERVER, b"x")
    feed(reader, capture)
    assert count_connections(reader._assembler) == 1
    assert reader._scanner.held_bytes == 0


def make_reader_without_secrets():
    format = wirescan.frames.registry.format_of(make_spec("kafka.requests", capture="true"))
    return format.make_reader(errors="mark", check=True, limits=wirescan.Limits())


def test_connections_without_secrets_cost_no_memory_of_their_own(tmp_path):
    """The server's hello comes with later packets."""
    talk = record_pair(tmp_path)
    reader = make_reader_without_secrets()
    capture = SimulatedCapture()
    connection = make_connection(0, PORT)
    capture.connect(connection)
    for side, data in talk.flights:
        capture.send(connection, side, data)
        feed(reader, capture)
        capture.packets.clear()
    assert reader._scanner.held_bytes == 0
    assert reader._scanner._follower.connections == {}


def test_connections_that_cannot_be_decrypted_are_not_followed(tmp_path, monkeypatch):
    """The records of connections without secrets are not read, in pieces or in a whole capture."""
    talk = record_pair(tmp_path)
    capture = simulate_tls([talk, talk], PORT, is_closed=False)
    monkeypatch.setattr("wirescan.pcap.decryption.tls_streams.TlsConnection", None)
    reader = make_reader_without_secrets()
    assert len(feed(reader, capture)) == 0
    assert reader._scanner.held_bytes == 0
    assert len(reader.close()) == 0
    one_side = dataclasses.replace(talk, flights=talk.flights[:1])
    capture = simulate_tls([talk, one_side], PORT)
    for raw in (capture.to_pcap(), capture.to_pcapng()):
        assert len(wirescan.scan(raw, "kafka.requests")) == 0


@pytest.mark.parametrize("piece", [61, 400, 1 << 20])
def test_a_plain_answer_to_a_hello_is_read_without_secrets(piece, tmp_path):
    """The client sends a hello, and the server answers in plain text: the answer is read."""
    hello = record_pair(tmp_path).flights[0]
    info = b"INFO {}\r\n"
    talk = RecordedTls([hello, (SERVER, info)], (b"", b""), tmp_path / "keys.txt")
    path = write(tmp_path, simulate_tls([talk], 4222).to_pcap())
    table = wirescan.scan(path, "nats.messages")
    assert [bytes(table.frame(row)) for row in range(len(table))] == [info]
    assert read_pieces(path, "nats.messages", piece) == describe(table)
