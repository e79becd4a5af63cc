"""TLS in captures: the table of connections, and frames that are decrypted."""

import contextlib
import dataclasses
import hmac
import logging
import os
import ssl

import pytest

import wirescan
from tests.support.command import run
from tests.support.frame_values import list_values, scan_alone
from tests.support.simulated_capture import SimulatedCapture, shuffle_packets
from tests.support.tls_connections import (
    CLIENT,
    HOST,
    SERVER,
    RecordedTls,
    make_connection,
    record_tls,
    simulate_tls,
)
from tests.support.tls_frames import PAIRS, describe, record_pair
from wirescan import Fault, FrameError, kafka, pcap
from wirescan.frames.registry import make_spec
from wirescan.pcap.decryption.tls_ciphers import SUITES as SUITES_BY_VERSION
from wirescan.pcap.decryption.tls_ciphers import CbcCipher, expand_label, make_old_ciphers
from wirescan.pcap.decryption.tls_hello import HandshakeReader, HelloError
from wirescan.pcap.decryption.tls_keys import KeyLog
from wirescan.pcap.decryption.tls_records import LARGEST_LENGTH, Recognition, recognize
from wirescan.reading.chunked import iter_tables

PORT = 9092
UNUSUAL = 5555
CAMELLIA = "ECDHE-ECDSA-CAMELLIA128-SHA256"
every_version = pytest.mark.parametrize("version", ["1.2", "1.3"])


def list_records(data):
    """Return (position, type, size with the header) of each record in bytes."""
    records = []
    at = 0
    while at < len(data):
        size = 5 + int.from_bytes(data[at + 3 : at + 5])
        records.append((at, data[at], size))
        at += size
    return records


def change_byte(talk, side, position):
    """Return a connection in which one byte of a side is changed."""
    flights = []
    passed = 0
    for sender, data in talk.flights:
        if sender == side and passed <= position < passed + len(data):
            at = position - passed
            data = data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]
        passed += len(data) if sender == side else 0
        flights.append((sender, data))
    return RecordedTls(flights, talk.sent, talk.keylog)


def read_frames(raw, talk, format="kafka.requests", errors="mark"):
    return wirescan.scan(raw, make_spec(format, keylog=str(talk.keylog)), errors=errors)


def read_pieces(path, talk, format, piece):
    is_captured = format in ("kafka.exchanges", "kafka.record_sets")
    spec = make_spec(format, keylog=str(talk.keylog), capture=None if is_captured else "true")
    tables = iter_tables(str(path), format=spec, piece=piece, errors="mark")
    return sorted(row for table in tables if len(table) for row in describe(table))


# ---- the table of connections


@every_version
def test_connections_are_listed(version, tmp_path):
    talk = record_pair(tmp_path, version=version, alpn=["other", "kafka"])
    table = wirescan.scan(simulate_tls([talk], UNUSUAL).to_pcap(), "pcap.tls")
    (row,) = table
    assert (row.server_name, row.offered_alpn) == (HOST.encode(), b"other,kafka")
    # TLS 1.3 encrypts the protocol that the server chose.
    assert row.alpn == (b"other" if version == "1.2" else None)
    assert row.version == (0x0303 if version == "1.2" else 0x0304)
    assert pcap.CipherSuite(row.cipher_suite).name.startswith("TLS_")
    assert (row.is_complete, row.kind, row.is_begun_earlier) == (1, pcap.Decryption.NOT_TRIED, 0)
    for side, name in ((CLIENT, "data_to_server"), (SERVER, "data_to_client")):
        sizes = [size - 5 for _, kind, size in list_records(talk.join(side)) if kind == 23]
        assert table[name].tolist() == [sum(sizes)]
    assert table["client"].to_pylist() == ["10.0.0.1:40000"]
    assert table["server"].to_pylist() == ["10.0.0.2:5555"]


def test_the_key_shows_the_protocol_of_tls_1_3(tmp_path):
    talk = record_pair(tmp_path, alpn=["kafka"])
    (row,) = read_frames(simulate_tls([talk], PORT).to_pcap(), talk, "pcap.tls")
    assert (row.alpn, row.kind) == (b"kafka", pcap.Decryption.DECRYPTED)


@every_version
def test_a_connection_without_names_has_nulls(version, tmp_path):
    talk = record_pair(tmp_path, version=version, host=None)
    (row,) = wirescan.scan(simulate_tls([talk], PORT).to_pcap(), "pcap.tls")
    assert (row.server_name, row.alpn, row.offered_alpn) == (None, None, None)


@every_version
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_handshake_that_is_cut_is_not_complete(version, count, tmp_path):
    talk = record_pair(tmp_path, version=version)
    talk.flights = talk.flights[:count]
    (row,) = wirescan.scan(simulate_tls([talk], PORT).to_pcap(), "pcap.tls")
    # The third flight ends the client's handshake: in TLS 1.3 it is the end of all.
    assert row.is_complete == (version == "1.3" and count == 3)
    assert row.version == (0 if count == 1 else 0x0303 if version == "1.2" else 0x0304)


@every_version
@pytest.mark.parametrize("piece", [61, 500, 1 << 20])
def test_pieces_have_the_connections_of_the_whole(version, piece, tmp_path):
    talks = [record_pair(tmp_path, pair, version=version) for pair in PAIRS]
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate_tls(talks, PORT, size=100).to_pcap())
    for keylog in (None, str(talks[0].keylog)):
        spec = make_spec("pcap.tls", keylog=keylog)
        whole = wirescan.scan(path, spec)
        tables = iter_tables(str(path), format=spec, piece=piece)
        (found,) = [table for table in tables if len(table)]
        names = [name for name in whole.dtype.names if name not in ("parent", "reserved")]
        assert found.rows[names].tolist() == whole.rows[names].tolist()


def test_a_capture_that_begins_at_a_record_has_the_connection(tmp_path):
    talk = record_pair(tmp_path)
    data = talk.join(SERVER)
    start, _, size = list_records(data)[-2]
    capture = SimulatedCapture()
    connection = make_connection(0, PORT)
    capture.send(connection, SERVER, data[start:])
    (row,) = wirescan.scan(capture.to_pcap(), "pcap.tls")
    assert (row.is_begun_earlier, row.version, row.is_complete, row.fault) == (1, 0, 0, 0)
    # One record alone proves nothing.
    capture = SimulatedCapture()
    capture.send(make_connection(0, PORT), SERVER, data[start : start + size])
    assert len(wirescan.scan(capture.to_pcap(), "pcap.tls")) == 0


@every_version
def test_a_side_that_is_no_tls_is_a_bad_row(version, tmp_path):
    """The server answers with other bytes, before or after the hello."""
    talk = record_pair(tmp_path, version=version)
    hello = talk.flights[0]
    answer = (SERVER, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    path = tmp_path / "capture.pcap"
    for flights in ([hello, answer], [answer, hello]):
        other = RecordedTls(flights, (b"", b""), talk.keylog)
        path.write_bytes(simulate_tls([other], UNUSUAL).to_pcap())
        table = wirescan.scan(path, "pcap.tls", errors="mark")
        assert table["fault"].tolist() == [Fault.NOT_A_FRAME]
        for piece in (61, 200, 1 << 20):
            tables = iter_tables(str(path), format="pcap.tls", piece=piece, errors="mark")
            faults = [fault for item in tables if len(item) for fault in item["fault"].tolist()]
            assert faults == [Fault.NOT_A_FRAME]


def test_other_connections_are_not_listed():
    capture = SimulatedCapture()
    sent = [
        b"GET / HTTP/1.1\r\n",
        b"\x16\x04\x01\x00\x05abcdefgh",
        b"\x16\x03",
        b"\x17\x03\x03\0\0",
    ]
    for number, data in enumerate(sent):
        connection = make_connection(number, PORT)
        capture.connect(connection)
        capture.send(connection, CLIENT, data)
    assert len(wirescan.scan(capture.to_pcap(), "pcap.tls")) == 0


def test_the_first_bytes_decide(tmp_path):
    hello = record_pair(tmp_path).join(CLIENT)
    for size in range(11):
        assert recognize(hello, 0, size) is Recognition.UNDECIDED
    assert recognize(hello, 0, 11) is Recognition.TLS
    record = b"\x17\x03\x03\x00\x03abc"
    assert recognize(record, 0, 8) is Recognition.UNDECIDED
    assert recognize(record + record[:5], 0, 13) is Recognition.TLS
    assert recognize(record + b"\x17\x03\x09\0\3", 0, 13) is Recognition.OTHER
    assert recognize(b"\x17\x03\x03\xff\xff", 0, 5) is Recognition.OTHER
    longest = b"\x17\x03\x03" + LARGEST_LENGTH.to_bytes(2) + bytes(LARGEST_LENGTH)
    assert recognize(longest + record, 0, len(longest) + 8) is Recognition.TLS


def test_what_is_no_record_is_a_bad_row(tmp_path):
    talk = record_pair(tmp_path, version="1.2")
    position, _, _ = list_records(talk.join(SERVER))[-1]
    raw = simulate_tls([change_byte(talk, SERVER, position)], PORT).to_pcap()
    table = wirescan.scan(raw, "pcap.tls", errors="mark")
    assert table["fault"].tolist() == [Fault.BAD_LENGTH]
    assert table["position"].tolist() == [position]
    assert table["client"].to_pylist() == ["10.0.0.1:40000"]
    with pytest.raises(FrameError) as caught:
        wirescan.scan(raw, "pcap.tls")
    assert (caught.value.offset, caught.value.fault) == (position, Fault.BAD_LENGTH)
    assert caught.value.__notes__ == ["the connection is that from 10.0.0.1:40000 to 10.0.0.2:9092"]


def test_a_hello_whose_fields_do_not_fit_is_a_bad_row(tmp_path):
    talk = record_pair(tmp_path)
    # The length of the session id.
    raw = simulate_tls([change_byte(talk, CLIENT, 5 + 4 + 2 + 32)], PORT).to_pcap()
    table = wirescan.scan(raw, "pcap.tls", errors="mark")
    assert table["fault"].tolist() == [Fault.TRUNCATED]
    assert table["server_name"].to_pylist() == [None]


def test_handshake_messages_are_found_wherever_records_cut_them():
    messages = b"\x01\0\0\3abc" + b"\x0b\0\0\5ABCDE" + b"\x01\0\0\0"
    for size in range(1, len(messages) + 1):
        reader = HandshakeReader(frozenset({1}))
        found = []
        for at in range(0, len(messages), size):
            found += reader.read(messages[at : at + size])
        assert found == [(1, b"abc"), (11, b""), (1, b"")]
        assert reader.is_between_messages
    with pytest.raises(HelloError):
        HandshakeReader(frozenset({1})).read(b"\x01\xff\xff\xff")


def test_tables_of_other_formats_are_type_errors():
    with pytest.raises(TypeError):
        pcap.tls(pcap.scan(SimulatedCapture().to_pcap()))


def test_streams_without_connections_are_refused(tmp_path):
    talk = record_pair(tmp_path)
    streams = wirescan.scan(simulate_tls([talk], PORT).to_pcap(), "pcap.streams")
    with pytest.raises(ValueError, match="these streams have no connections"):
        pcap.tls(dataclasses.replace(streams, outer=None))
    assert len(pcap.tls(dataclasses.replace(streams[:0], outer=None))) == 0


# ---- keys


def test_expanded_labels_are_those_of_rfc_8448():
    # RFC 8448, 3: the server's handshake traffic secret, and its key and iv.
    secret = bytes.fromhex("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38")
    assert expand_label("sha256", secret, b"key", 16).hex() == "3fce516009c21727d0f2e4e86ee403bc"
    assert expand_label("sha256", secret, b"iv", 12).hex() == "5d313eb2671276ee13000b30"


def test_a_keylog_may_grow_and_have_other_lines(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text("")
    keylog = KeyLog(str(path))
    assert keylog.find(b"CLIENT_RANDOM", bytes(32)) is None
    with path.open("a") as file:
        file.write("# a comment\nRSA 00 00\nCLIENT_RANDOM zz\n\n")
        file.write(f"CLIENT_RANDOM {bytes(32).hex()} {bytes(range(48)).hex()}")
    assert keylog.find(b"CLIENT_RANDOM", bytes(32)) == bytes(range(48))
    assert keylog.find(b"CLIENT_RANDOM", b"x" * 32) is None


def test_files_that_are_no_keylog_are_refused(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_bytes(os.urandom(5000))
    with pytest.raises(ValueError, match="has no secret of TLS"):
        wirescan.scan(b"", f"kafka.requests?keylog={path}")
    with pytest.raises(FileNotFoundError):
        wirescan.scan(b"", f"kafka.requests?keylog={path}.other")


def test_formats_that_are_not_sent_have_no_keylog(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text("")
    for format in ("kafka.redpanda_batches", "kafka.redpanda_records"):
        message = "kafka.redpanda_batches are not sent over connections"
        with pytest.raises(ValueError, match=message):
            wirescan.scan(b"", f"{format}?keylog={path}")
    with pytest.raises(ValueError, match="pcap.flows has no option 'keylog'"):
        wirescan.scan(b"", f"pcap.flows?keylog={path}")


def test_a_keylog_is_for_captures(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text("")
    spec = f"kafka.requests?keylog={path}"
    with pytest.raises(ValueError, match="the option keylog is for captures of packets"):
        wirescan.scan(PAIRS[0][0], spec)
    file = tmp_path / "requests.bin"
    file.write_bytes(PAIRS[0][0])
    result = run("scan", file, "--format", "kafka.requests", "--keylog", path)
    assert result.exit_code != 0
    assert "the option keylog is for captures of packets" in result.stderr


# ---- decrypted frames

SUITES = [
    ("1.2", "ECDHE-ECDSA-AES128-GCM-SHA256", "ec"),
    ("1.2", "ECDHE-ECDSA-AES256-GCM-SHA384", "ec"),
    ("1.2", "ECDHE-ECDSA-CHACHA20-POLY1305", "ec"),
    ("1.2", "ECDHE-RSA-AES256-GCM-SHA384", "rsa"),
    ("1.2", "AES128-GCM-SHA256", "rsa"),
    ("1.2", "ECDHE-ECDSA-AES128-CCM", "ec"),
    ("1.2", "ECDHE-ECDSA-AES256-CCM8", "ec"),
    ("1.2", "AES256-CCM", "rsa"),
    ("1.3", None, "ec"),
]
BLOCK_SUITES = [
    ("1.2", "ECDHE-ECDSA-AES128-SHA256", "ec"),
    ("1.2", "ECDHE-RSA-AES256-SHA384", "rsa"),
    ("1.2", "AES256-SHA256", "rsa"),
    ("1.2", "ECDHE-ECDSA-AES256-SHA", "ec"),
    ("1.1", "ECDHE-ECDSA-AES128-SHA", "ec"),
    ("1.0", "AES256-SHA", "rsa"),
]
every_order = pytest.mark.parametrize("encrypts_then_macs", [True, False])


@pytest.mark.parametrize("port", [PORT, UNUSUAL])
@pytest.mark.parametrize("version, cipher, key", SUITES)
def test_frames_are_those_of_the_plain_bytes(version, cipher, key, port, tmp_path):
    talks = [record_pair(tmp_path, pair, version=version, cipher=cipher, key=key) for pair in PAIRS]
    capture = simulate_tls(talks, port, size=300)
    for format, side in (("kafka.requests", 0), ("kafka.responses", 1)):
        table = read_frames(capture.to_pcap(), talks[0], format, errors="strict")
        connections = table["connection"]
        found = [list_values(table.rows[connections == number]) for number in range(len(PAIRS))]
        if side == 0:
            assert found == scan_alone(format, PAIRS, side)
        else:
            assert sum(map(len, found)) == sum(len(rows) for rows in scan_alone(format, PAIRS, 1))
        assert (table["time_end"] >= table["time"]).all()


@every_order
@pytest.mark.parametrize("version, cipher, key", BLOCK_SUITES)
def test_frames_of_suites_with_blocks(version, cipher, key, encrypts_then_macs, tmp_path):
    options = {"version": version, "cipher": cipher, "key": key}
    options["encrypts_then_macs"] = encrypts_then_macs
    asked, answered = PAIRS[0]
    messages = [(CLIENT, asked), (SERVER, answered), (CLIENT, asked), (CLIENT, asked[:50])]
    talk = record_tls(tmp_path, [*messages, (CLIENT, asked[50:])], **options)
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate_tls([talk], UNUSUAL, size=100).to_pcap())
    table = read_frames(path, talk, errors="strict")
    assert list_values(table.rows) == 3 * scan_alone("kafka.requests", PAIRS[:1], 0)[0]
    (row,) = read_frames(path, talk, "pcap.tls", errors="strict")
    assert (row.kind, row.fault) == (pcap.Decryption.DECRYPTED, 0)
    assert pcap.TlsVersion(row.version).name == f"TLS_{version.replace('.', '_')}"
    assert pcap.CipherSuite(row.cipher_suite).name.startswith("TLS_")
    for piece in (61, 1000):
        assert read_pieces(path, talk, "kafka.requests", piece) == describe(table)


@every_order
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_every_changed_byte_of_a_block_is_a_fault(version, encrypts_then_macs, tmp_path):
    """Each byte of the first block, of the plain bytes, of the MAC and of the padding counts."""
    asked, _ = PAIRS[0]
    options = {"version": version, "cipher": "ECDHE-ECDSA-AES128-SHA"}
    options["encrypts_then_macs"] = encrypts_then_macs
    talk = record_tls(tmp_path, [(CLIENT, asked)], **options)
    last, _, size = list_records(talk.join(CLIENT))[-1]
    for position in range(last + 5, last + size):
        raw = simulate_tls([change_byte(talk, CLIENT, position)], PORT).to_pcap()
        table = read_frames(raw, talk)
        assert table["fault"].tolist() == [Fault.BAD_CHECKSUM]
        (row,) = read_frames(raw, talk, "pcap.tls")
        assert (row.kind, row.fault) == (pcap.Decryption.DAMAGED, Fault.BAD_CHECKSUM)
        assert row.position == last


def seal_with_blocks(padding, *, is_mac_last):
    """Return a record with CBC and SHA-1 whose plain bytes are b"plain", and its cipher."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    suite = SUITES_BY_VERSION[0x0303][0xC009]
    key, mac_key, iv = b"k" * 16, b"m" * 20, b"i" * 16
    plain = b"plain"

    def compute_mac(data):
        header = bytes(8) + b"\x17\3\3" + len(data).to_bytes(2)
        return hmac.digest(mac_key, header + data, "sha1")

    inner = plain + (b"" if is_mac_last else compute_mac(plain)) + padding
    encryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    data = iv + encryptor.update(inner) + encryptor.finalize()
    data += compute_mac(data) if is_mac_last else b""
    header = b"\x17\3\3" + len(data).to_bytes(2)
    return header, data, CbcCipher(suite, key, mac_key, b"", is_mac_last=is_mac_last)


@pytest.mark.parametrize("is_mac_last", [False, True])
def test_padding_has_its_length_in_every_byte(is_mac_last):
    before = 5 if is_mac_last else 25
    for blocks in (2, 3, 16):
        size = 16 * blocks - before
        good = bytes([size - 1]) * size
        header, data, cipher = seal_with_blocks(good, is_mac_last=is_mac_last)
        assert cipher.open(header, memoryview(data)) == b"plain"
        for bad in (b"\0" + good[1:], good[:-1] + b"\xff", bytes(size - 1) + bytes([size - 1])):
            header, data, cipher = seal_with_blocks(bad, is_mac_last=is_mac_last)
            assert cipher.open(header, memoryview(data)) is None
            assert cipher.sequence == 0


@pytest.mark.parametrize("is_mac_last", [False, True])
def test_records_that_are_no_blocks_do_not_authenticate(is_mac_last):
    size = 32 - (5 if is_mac_last else 25)
    good = bytes([size - 1]) * size
    header, data, cipher = seal_with_blocks(good, is_mac_last=is_mac_last)
    for length in range(len(data)):
        assert cipher.open(header, memoryview(data[:length])) is None


@pytest.mark.parametrize("server_curve", ["secp521r1"])
def test_a_second_hello_changes_nothing(server_curve, tmp_path):
    talk = record_pair(tmp_path, groups=server_curve)
    raw = simulate_tls([talk], UNUSUAL).to_pcap()
    assert len(read_frames(raw, talk)) == len(scan_alone("kafka.requests", PAIRS[:1], 0)[0])
    (row,) = wirescan.scan(raw, "pcap.tls")
    assert (row.version, row.is_complete) == (0x0304, 1)


@every_version
@pytest.mark.parametrize("piece", [61, 300, 1 << 20])
@pytest.mark.parametrize("seed", [None, 1])
def test_pieces_have_the_frames_of_the_whole(version, piece, seed, tmp_path):
    talks = [record_pair(tmp_path, pair, version=version) for pair in PAIRS]
    packets = SimulatedCapture()
    for number, talk in enumerate(talks):
        alone = SimulatedCapture(now=packets.now)
        connection = make_connection(number, UNUSUAL)
        alone.connect(connection)
        for side, data in talk.flights:
            alone.send(connection, side, data, size=150)
        alone.close(connection)
        packets.packets += (
            alone.packets if seed is None else shuffle_packets(alone.packets, seed + number)
        )
        packets.now = alone.now
    path = tmp_path / "capture.pcap"
    path.write_bytes(packets.to_pcap())
    for format in (
        "kafka.requests",
        "kafka.responses",
        "kafka.metadata_response.topics",
        "kafka.exchanges",
        "kafka.record_sets",
        "kafka.records",
    ):
        whole = read_frames(path, talks[0], format)
        if format != "kafka.metadata_response.topics":
            assert len(whole)
        assert read_pieces(path, talks[0], format, piece) == describe(whole)


def test_a_large_frame_in_pieces_is_one_frame(tmp_path):
    """More decrypted bytes than are always given again wait for the rest of the frame."""
    size = 600_000
    frame = (size - 4).to_bytes(4) + b"\x82\x21\x01" + os.urandom(size - 7)
    talk = record_tls(tmp_path, [(CLIENT, frame)])
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate_tls([talk], 9090).to_pcap())
    whole = read_frames(path, talk, "thrift.frames")
    assert whole["size"].tolist()[:1] == [size]
    assert read_pieces(path, talk, "thrift.frames", 5000) == describe(whole)


def test_times_are_those_of_the_packets_with_the_encrypted_bytes(tmp_path):
    messages = [(CLIENT, PAIRS[0][0]), (SERVER, PAIRS[0][1])]
    talk = record_tls(tmp_path, messages)
    capture = SimulatedCapture()
    connection = make_connection(0, PORT)
    capture.connect(connection)
    for side, data in talk.flights:
        capture.send(connection, side, data, size=50)
    sent = [
        (time, len(packet) - 54)
        for time, packet in capture.packets
        if packet[34:36] == b"\x9c\x40" and len(packet) > 54
    ]
    record, _, _ = list_records(talk.join(CLIENT))[-1]
    positions = [0]
    for _, size in sent:
        positions.append(positions[-1] + size)
    table = read_frames(capture.to_pcap(), talk)
    starts = [record + 5 + position for position in table.positions.tolist()]
    expected = [
        next(time for (time, _), stop in zip(sent, positions[1:]) if start < stop)
        for start in starts
    ]
    assert table["time"].tolist() == expected


@every_version
def test_small_records_are_read(version, tmp_path):
    asked = PAIRS[0][0]
    messages = [(CLIENT, asked[at : at + 7]) for at in range(0, len(asked), 7)]
    talk = record_tls(tmp_path, messages, version=version)
    table = read_frames(simulate_tls([talk], UNUSUAL).to_pcap(), talk)
    assert list_values(table.rows) == scan_alone("kafka.requests", PAIRS[:1], 0)[0]


@every_version
def test_frames_that_records_cut_are_the_same_in_pieces(version, tmp_path):
    asked = PAIRS[0][0] * 20
    messages = [(CLIENT, asked[at : at + 70]) for at in range(0, len(asked), 70)]
    talk = record_tls(tmp_path, messages, version=version)
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate_tls([talk], PORT, size=40).to_pcap())
    whole = read_frames(path, talk)
    assert len(set(whole["time"].tolist())) > 20
    for piece in (61, 150, 400, 1000):
        assert read_pieces(path, talk, "kafka.requests", piece) == describe(whole)


@every_version
def test_a_record_that_does_not_authenticate_is_a_bad_row(version, tmp_path):
    asked, answered = PAIRS[0]
    talk = record_tls(tmp_path, [(CLIENT, asked), (CLIENT, asked)], version=version)
    position, _, size = list_records(talk.join(CLIENT))[-1]
    raw = simulate_tls([change_byte(talk, CLIENT, position + size - 1)], PORT).to_pcap()
    table = read_frames(raw, talk)
    good = scan_alone("kafka.requests", PAIRS[:1], 0)[0]
    assert list_values(table.rows[~table.bad]) == good
    assert table["fault"].tolist() == [0] * len(good) + [Fault.BAD_CHECKSUM]
    assert table.positions.tolist()[-1] == len(asked)
    assert table["time"].tolist()[-1] > table["time"].tolist()[0]
    (row,) = read_frames(raw, talk, "pcap.tls")
    assert (row.kind, row.fault) == (pcap.Decryption.DAMAGED, Fault.BAD_CHECKSUM)
    assert row.position == position
    with pytest.raises(FrameError) as caught:
        read_frames(raw, talk, errors="strict")
    assert (caught.value.fault, caught.value.offset) == (Fault.BAD_CHECKSUM, len(asked))
    path = tmp_path / "capture.pcap"
    path.write_bytes(raw)
    for piece in (61, 1 << 20):
        assert read_pieces(path, talk, "kafka.requests", piece) == describe(table)


@every_version
def test_lost_bytes_inside_a_record_lose_that_record(version, tmp_path):
    asked, _ = PAIRS[0]
    talk = record_tls(tmp_path, [(CLIENT, asked)] * 3, version=version)
    position, _, size = list_records(talk.join(CLIENT))[-2]
    raw = lose(talk, position + 10, position + 50)
    table = read_frames(raw, talk)
    good = scan_alone("kafka.requests", PAIRS[:1], 0)[0]
    assert table["fault"].tolist() == [*[0] * len(good), Fault.LOST, *[0] * len(good)]
    assert table.positions.tolist()[len(good) + 1] == 2 * len(asked)
    (row,) = read_frames(raw, talk, "pcap.tls")
    assert (row.kind, row.fault) == (pcap.Decryption.DECRYPTED, 0)
    path = tmp_path / "capture.pcap"
    path.write_bytes(raw)
    for piece in (61, 1 << 20):
        assert read_pieces(path, talk, "kafka.requests", piece) == describe(table)


@every_version
@pytest.mark.parametrize("before, after", [(10, 0), (-5, -3), (0, -40)])
def test_lost_ends_of_records_end_the_reading(version, before, after, tmp_path):
    """The bytes from before the last-but-one record to after its end are lost."""
    asked, _ = PAIRS[0]
    talk = record_tls(tmp_path, [(CLIENT, asked)] * 3, version=version)
    position, _, size = list_records(talk.join(CLIENT))[-2]
    raw = lose(talk, position - before, position + size - after)
    table = read_frames(raw, talk)
    assert table["fault"].tolist()[-1] == Fault.LOST
    assert np_count(table["fault"], 0) < 3 * len(scan_alone("kafka.requests", PAIRS[:1], 0)[0])
    (row,) = read_frames(raw, talk, "pcap.tls")
    assert (row.kind, row.fault) == (pcap.Decryption.LOST, Fault.LOST)
    path = tmp_path / "capture.pcap"
    path.write_bytes(raw)
    for piece in (61, 1 << 20):
        assert read_pieces(path, talk, "kafka.requests", piece) == describe(table)


def np_count(column, value):
    return column.tolist().count(value)


def lose(talk, start, stop):
    """Return a capture without the client's bytes from `start` to `stop`."""
    capture = SimulatedCapture()
    connection = make_connection(0, PORT)
    capture.connect(connection)
    sent = 0
    for side, data in talk.flights:
        pieces = [data]
        if side == CLIENT:
            cuts = [0, *(at - sent for at in (start, stop) if sent < at < sent + len(data))]
            pieces = [data[a:b] for a, b in zip(cuts, [*cuts[1:], len(data)])]
        for piece in pieces:
            if side == CLIENT and start <= sent < stop:
                connection.sent[CLIENT] += piece
            else:
                capture.send(connection, side, piece)
            sent += len(piece) if side == CLIENT else 0
    capture.close(connection)
    return capture.to_pcap()


@pytest.mark.parametrize("reason", ["NO_SECRET", "UNSUPPORTED", "NO_HANDSHAKE"])
def test_connections_that_cannot_be_decrypted_are_reported(reason, tmp_path, caplog):
    options = {"version": "1.2", "cipher": CAMELLIA} if reason == "UNSUPPORTED" else {}
    talk = record_pair(tmp_path, **options)
    if reason == "NO_SECRET":
        talk.keylog.write_text("")
    if reason == "NO_HANDSHAKE":
        talk.flights = talk.flights[1:]
    raw = simulate_tls([talk], PORT).to_pcap()
    (row,) = read_frames(raw, talk, "pcap.tls")
    assert row.kind == pcap.Decryption[reason]
    with caplog.at_level(logging.WARNING):
        table = read_frames(raw, talk)
    assert "1 of 1 TLS connections cannot be decrypted" in caplog.text
    assert table["fault"].tolist() == [Fault.NOT_A_FRAME]
    path = tmp_path / "capture.pcap"
    path.write_bytes(raw)
    for piece in (61, 1 << 20):
        assert read_pieces(path, talk, "kafka.requests", piece) == describe(table)


@every_order
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_lost_bytes_inside_a_block_lose_that_record(version, encrypts_then_macs, tmp_path):
    asked, _ = PAIRS[0]
    options = {"version": version, "cipher": "ECDHE-ECDSA-AES128-SHA"}
    options["encrypts_then_macs"] = encrypts_then_macs
    talk = record_tls(tmp_path, [(CLIENT, asked)] * 3, **options)
    # TLS 1.0 sends an empty record before each one.
    records = list_records(talk.join(CLIENT))
    position = [start for start, kind, size in records if kind == 23 and size > len(asked)][-2]
    raw = lose(talk, position + 10, position + 50)
    table = read_frames(raw, talk)
    good = scan_alone("kafka.requests", PAIRS[:1], 0)[0]
    is_chained = version == "1.0"
    # TLS 1.0 cannot be read after a record that is missing.
    after = [] if is_chained else [0] * len(good)
    assert table["fault"].tolist() == [*[0] * len(good), Fault.LOST, *after]
    (row,) = read_frames(raw, talk, "pcap.tls")
    kind = pcap.Decryption.LOST if is_chained else pcap.Decryption.DECRYPTED
    assert (row.kind, row.fault) == (kind, Fault.LOST if is_chained else 0)
    if not is_chained:
        # The padding of a lost record is not known, so its place is only known to a block.
        assert 2 * len(asked) <= table.positions.tolist()[len(good) + 1] < 2 * len(asked) + 16
    path = tmp_path / "capture.pcap"
    path.write_bytes(raw)
    for piece in (61, 1 << 20):
        assert read_pieces(path, talk, "kafka.requests", piece) == describe(table)


def test_a_renegotiation_ends_the_reading(tmp_path):
    """The client sends another hello in an encrypted record."""
    talk = record_pair(tmp_path, version="1.2", cipher="ECDHE-ECDSA-AES128-GCM-SHA256")
    client_hello, server_hello = talk.join(CLIENT), talk.join(SERVER)
    randoms = [data[11:43] for data in (client_hello, server_hello)]
    master = KeyLog(str(talk.keylog)).find(b"CLIENT_RANDOM", randoms[0])
    suite = SUITES_BY_VERSION[0x0303][0xC02B]
    cipher, _ = make_old_ciphers(suite, 0x0303, master, randoms[1] + randoms[0])
    hello = client_hello[5:]
    hello = hello[: 4 + int.from_bytes(hello[1:4])]
    # Finished and one record of data were sent.
    record = encrypt_for_1_2(cipher, 2, 22, hello)
    talk.flights.append((CLIENT, record))
    raw = simulate_tls([talk], PORT).to_pcap()
    (row,) = read_frames(raw, talk, "pcap.tls")
    assert (row.kind, row.fault) == (pcap.Decryption.RENEGOTIATED, 0)
    table = read_frames(raw, talk)
    good = scan_alone("kafka.requests", PAIRS[:1], 0)[0]
    assert table["fault"].tolist() == [0] * len(good) + [Fault.BAD_KIND]


def encrypt_for_1_2(cipher, sequence, kind, plain):
    """Return a record of AES-GCM in TLS 1.2, with the key of a RecordCipher."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key = cipher._decrypt.__self__
    assert isinstance(key, AESGCM)
    explicit = sequence.to_bytes(8)
    header = bytes([kind, 3, 3])
    data = explicit + header + len(plain).to_bytes(2)
    sealed = key.encrypt(cipher._salt + explicit, plain, data)
    return header + (8 + len(sealed)).to_bytes(2) + explicit + sealed


# Number of a suite of TLS 1.3 with AES-128 -> the size of its tag, and whether it is CCM.
TAGS = {0x1301: (16, False), 0x1304: (16, True), 0x1305: (8, True)}


class Sender:
    """Encrypts the records of one side of TLS 1.3, with a suite of TAGS."""

    def __init__(self, secret, suite=0x1301):
        self.secret = secret
        self.sequence = 0
        self.tag_size, self.is_ccm = TAGS[suite]

    def seal(self, kind, plain, padding=0):
        from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM

        key = expand_label("sha256", self.secret, b"key", 16)
        iv = int.from_bytes(expand_label("sha256", self.secret, b"iv", 12))
        inner = plain + bytes([kind]) + bytes(padding)
        header = b"\x17\x03\x03" + (len(inner) + self.tag_size).to_bytes(2)
        nonce = (iv ^ self.sequence).to_bytes(12)
        self.sequence += 1
        cipher = AESCCM(key, self.tag_size) if self.is_ccm else AESGCM(key)
        return header + cipher.encrypt(nonce, inner, header)

    def change(self, secret):
        self.secret = secret
        self.sequence = 0


def make_message(kind, body):
    return bytes([kind]) + len(body).to_bytes(3) + body


def craft_tls_1_3(directory, early, *, accepts_early, suite=0x1301):
    """Return a connection with early data and a key update of the client; it sends PAIRS[0][0]."""
    secrets = [bytes([number]) * 32 for number in range(4)]
    random = b"r" * 32
    labels = (
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
    )
    keylog = directory / "crafted.txt"
    lines = [f"{label} {random.hex()} {secret.hex()}\n" for label, secret in zip(labels, secrets)]
    keylog.write_text("".join(lines))
    early_data = b"\0\x2a\0\0"
    number = suite.to_bytes(2)
    client_hello = b"\3\3" + random + b"\0" + b"\0\2" + number + b"\1\0" + b"\0\4" + early_data
    version = b"\0\x2b\0\2\3\4"
    server_hello = b"\3\3" + b"s" * 32 + b"\0" + number + b"\0" + b"\0\6" + version
    client, server = Sender(secrets[0], suite), Sender(secrets[1], suite)
    finished = make_message(20, bytes(32))
    extensions = early_data if accepts_early else b""
    encrypted = make_message(8, len(extensions).to_bytes(2) + extensions)

    def make_plain(kind, body):
        message = make_message(kind, body)
        return b"\x16\x03\x01" + len(message).to_bytes(2) + message

    asked = PAIRS[0][0]
    flights = [(CLIENT, make_plain(1, client_hello) + Sender(b"early" * 6, suite).seal(23, early))]
    flights.append((SERVER, make_plain(2, server_hello) + server.seal(22, encrypted + finished)))
    # The message is cut by a record.
    sent = client.seal(22, finished[:5]) + client.seal(22, finished[5:], padding=9)
    client.change(secrets[2])
    sent += client.seal(23, asked[:20], padding=3) + client.seal(22, make_message(24, b"\0"))
    client.change(expand_label("sha256", secrets[2], b"traffic upd", 32))
    sent += client.seal(23, asked[20:])
    flights.append((CLIENT, sent))
    return RecordedTls(flights, (asked, b""), keylog)


@pytest.mark.parametrize("suite", TAGS)
@pytest.mark.parametrize("accepts_early", [False, True])
def test_key_updates_padding_and_early_data(accepts_early, suite, tmp_path):
    talk = craft_tls_1_3(tmp_path, b"x" * 30, accepts_early=accepts_early, suite=suite)
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate_tls([talk], PORT, size=50).to_pcap())
    table = read_frames(path, talk)
    assert list_values(table.rows[~table.bad]) == scan_alone("kafka.requests", PAIRS[:1], 0)[0]
    assert table["fault"].tolist()[:2] == ([Fault.LOST, 0] if accepts_early else [0, 0])
    assert table.positions.tolist()[-2] == (30 if accepts_early else 0)
    (row,) = read_frames(path, talk, "pcap.tls")
    assert (row.kind, row.fault) == (pcap.Decryption.DECRYPTED, 0)
    for piece in (61, 1 << 20):
        assert read_pieces(path, talk, "kafka.requests", piece) == describe(table)


def test_plain_connections_beside_tls_are_read_too(tmp_path):
    talk = record_pair(tmp_path)
    capture = simulate_tls([talk], PORT)
    plain = make_connection(7, PORT)
    capture.connect(plain)
    capture.send(plain, CLIENT, PAIRS[1][0])
    capture.send(plain, SERVER, PAIRS[1][1])
    capture.close(plain)
    path = tmp_path / "capture.pcap"
    path.write_bytes(capture.to_pcap())
    for format in ("kafka.requests", "kafka.responses"):
        table = read_frames(path, talk, format, errors="strict")
        assert set(table["connection"].tolist()) == {0, 1}
        for piece in (61, 300, 1 << 20):
            assert read_pieces(path, talk, format, piece) == describe(table)


def test_cut_frames_of_plain_connections_are_theirs(tmp_path):
    """One ends inside a frame, and one after bytes that may be the beginning of a record."""
    talk = record_pair(tmp_path)
    capture = simulate_tls([talk], PORT)
    for number, data in ((1, PAIRS[1][0][:-3]), (2, b"\x16\x03")):
        connection = make_connection(number, PORT)
        capture.connect(connection)
        capture.send(connection, CLIENT, data)
        capture.close(connection)
    path = tmp_path / "capture.pcap"
    path.write_bytes(capture.to_pcap())
    table = read_frames(path, talk)
    assert table["connection"][table["fault"] == Fault.SHORT].tolist() == [1, 2]
    for piece in (61, 300, 1 << 20):
        assert read_pieces(path, talk, "kafka.requests", piece) == describe(table)


def test_the_command_decrypts(tmp_path):
    talk = record_pair(tmp_path)
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate_tls([talk], PORT).to_pcap())
    result = run("scan", path, "--format", "pcap.tls")
    assert result.exit_code == 0, result.stderr
    assert HOST in result.stdout
    options = ("--keylog", talk.keylog)
    result = run("scan", path, "--format", "kafka.requests", *options, "--columns", "api_key")
    assert result.exit_code == 0, result.stderr
    assert "api_versions" in result.stdout
    for format in ("kafka.requests", "pcap.tls"):
        out = tmp_path / f"{format}.parquet"
        result = run("convert", path, out, "--format", format, *options, "--engine", "local")
        assert result.exit_code == 0, result.stderr
    result = run("scan", path, "--format", "pcap.flows", *options)
    assert result.exit_code != 0
    assert "has no option 'keylog'" in result.stderr
    assert "choose one with --format" not in result.stderr
    for verb in ("scan", "stat", "exchanges"):
        result = run(verb, path, *options)  # the bytes of TLS show no format
        assert result.exit_code == 2
        message = " ".join(result.stderr.split())
        assert "The connections of the capture show no single format: choose one with" in message


# ---- hostile bytes


@every_version
def test_every_changed_or_missing_byte_is_an_error_or_a_bad_row(version, tmp_path, stride):
    talk = record_tls(tmp_path, [(CLIENT, PAIRS[0][0][:60]), (SERVER, b"x" * 40)], version=version)
    raw = simulate_tls([talk], PORT).to_pcap()
    formats = [f"kafka.requests?keylog={talk.keylog}", f"pcap.tls?keylog={talk.keylog}", "pcap.tls"]
    damaged = [
        raw[:at] + bytes([raw[at] ^ bit]) + raw[at + 1 :]
        for at in range(24, len(raw), max(stride, 2))
        for bit in (0x01, 0x80)
    ]
    damaged += [raw[:at] for at in range(4, len(raw), max(stride, 3))]
    for data in damaged:
        for format in formats:
            with contextlib.suppress(FrameError):
                wirescan.scan(data, format)
            if len(data) >= 24:  # the header of the file
                wirescan.scan(data, format, errors="mark")


@every_version
def test_every_changed_byte_of_a_side_ends_its_frames(version, tmp_path):
    talk = record_tls(tmp_path, [(CLIENT, PAIRS[0][0])], version=version)
    good = scan_alone("kafka.requests", PAIRS[:1], 0)[0]
    last, _, size = list_records(talk.join(CLIENT))[-1]
    for position in range(last, last + size, 3):
        raw = simulate_tls([change_byte(talk, CLIENT, position)], PORT).to_pcap()
        table = read_frames(raw, talk)
        assert table.bad.any() or len(table) == 0
        assert list_values(table.rows[~table.bad]) != good


def test_python_has_the_versions_that_are_tested():
    assert ssl.HAS_TLSv1_2 and ssl.HAS_TLSv1_3


@every_version
def test_a_response_waits_for_the_end_of_its_request(version, tmp_path):
    topics = {"topics": [{"name": "x" * 30_000} for _ in range(3)]}
    request = kafka.encode_request("Metadata", 1, topics, correlation_id=9)
    response = kafka.encode_response("Metadata", 1, correlation_id=9)
    talk = record_tls(tmp_path, [(CLIENT, request), (SERVER, response)], version=version)
    path = tmp_path / "capture.pcap"
    path.write_bytes(simulate_tls([talk], PORT).to_pcap())
    spec = make_spec("kafka.exchanges", keylog=str(talk.keylog))
    whole = wirescan.scan(path, spec)
    assert whole["latency"].tolist()[0] > 0
    for piece in (1500, 3100, 5000):
        tables = iter_tables(str(path), format=spec, piece=piece, errors="mark")
        found = [value for table in tables if len(table) for value in table["latency"].tolist()]
        assert found == whole["latency"].tolist()


def test_joined_streams_are_read(tmp_path):
    talks = [record_pair(tmp_path, pair) for pair in PAIRS[:2]]
    raw = simulate_tls(talks, PORT).to_pcap()
    flows = pcap.flows(pcap.packets(pcap.scan(raw)))
    joined = wirescan.join([pcap.streams(flows[:1]), pcap.streams(flows[1:])])
    assert pcap.tls(joined)["connection"].tolist() == [0, 1]
    for name in ("kafka.requests", make_spec("kafka.requests", keylog=str(talks[0].keylog))):
        whole = wirescan.scan(raw, name, errors="mark")
        assert describe(pcap.frames(joined, name, errors="mark")) == describe(whole)


def test_streams_without_rows_for_gaps_have_the_same_frames(tmp_path):
    talk = record_pair(tmp_path)
    capture = simulate_tls([talk], PORT)
    sizes = [len(packet) for _, packet in capture.packets]
    del capture.packets[max(range(len(sizes) - 12, len(sizes) - 4), key=sizes.__getitem__)]
    spec = make_spec("kafka.requests", keylog=str(talk.keylog))
    flows = pcap.flows(pcap.packets(pcap.scan(capture.to_pcap())))
    marked = pcap.frames(pcap.streams(flows, errors="mark"), spec)
    skipped = pcap.frames(pcap.streams(flows, errors="skip"), spec, errors="mark")
    assert pcap.streams(flows, errors="mark").bad.any()
    assert marked.bad.any()
    assert describe(skipped) == describe(marked)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("parent", 7),
        ("parent", -1),
        ("first_segment", -(1 << 63)),
        ("first_segment", 1 << 62),
        ("segment_count", (1 << 32) - 1),
    ],
)
def test_rows_without_connections_or_packets_are_refused(name, value, tmp_path):
    talk = record_pair(tmp_path)
    packets = wirescan.scan(simulate_tls([talk], PORT).to_pcap(), "pcap.packets")
    streams = packets.open("flows").open("streams")
    rows = streams.rows.copy()
    rows[name][0] = value
    damaged = dataclasses.replace(streams, rows=rows)
    for format in ("kafka.requests", "thrift.messages"):
        with pytest.raises(ValueError, match="a row (is of none of|has other packets than)"):
            pcap.frames(damaged, format)
