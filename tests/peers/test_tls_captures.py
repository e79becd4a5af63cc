"""TLS of real programs, captured with tcpdump: the frames are those that tshark decrypts."""

import asyncio
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

import wirescan
from tests.support.paths import CORPUS
from tests.support.tls_connections import make_identity
from wirescan import pcap
from wirescan.frames.registry import make_spec
from wirescan.reading.chunked import iter_tables

from . import tshark
from .capture import Capture, Form
from .certificates import make_certificates
from .make_nats import converse
from .nats import NatsServer
from .openssl import OpensslConnection, is_listening
from .ports import find_free_ports
from .producers import SENDERS, make_orders
from .readers import consume_aiokafka, consume_kafka_python

pytestmark = pytest.mark.peers

STREAMS = CORPUS / "kafka-streams" / "java-4"
READERS = {"kafka-python": consume_kafka_python, "aiokafka": consume_aiokafka}
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
SUITES = {
    "1.3": (ssl.TLSVersion.TLSv1_3, None),
    "1.2 AES-128": (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256"),
    "1.2 AES-256": (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-GCM-SHA384"),
    "1.2 ChaCha20": (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-CHACHA20-POLY1305"),
}


def make_context(broker, keylog, version, cipher):
    context = ssl.create_default_context(cafile=str(broker.authority))
    context.minimum_version = context.maximum_version = version
    if cipher is not None:
        context.set_ciphers(cipher)
    context.keylog_filename = str(keylog)
    return context


def list_frames(table):
    """Return (number of the connection, direction) -> the bytes of its frames."""
    frames = {}
    sides = table["direction"].tolist()
    for row, (number, side) in enumerate(zip(table["connection"].tolist(), sides)):
        frames.setdefault((number, side), []).append(bytes(table.frame(row)))
    return frames


@pytest.mark.parametrize("client", READERS)
@pytest.mark.parametrize("suite", SUITES)
def test_frames_are_those_that_tshark_decrypts(broker_4, client, suite, tmp_path):
    version, cipher = SUITES[suite]
    keylog = tmp_path / "keys.txt"
    file = tmp_path / "tls.pcap"
    address = broker_4.addresses["SSL"]
    topic = f"tls-{client}-{suite.replace(' ', '-')}"
    broker_4.create_topic(topic)
    rows = make_orders(200, seed=1, big=False, null_headers=client != "kafka-python")
    config = {
        "security_protocol": "SSL",
        "ssl_context": make_context(broker_4, keylog, version, cipher),
    }
    with Capture(file, [int(address.rpartition(":")[2])], Form.PCAP_NANOSECONDS):
        SENDERS[client](address, topic, rows, "none", **config)
        assert len(READERS[client](address, topic, **config)) == len(rows)
    expected = tshark.read_tls_streams(file, keylog, address)
    assert any(to_server for to_server, _ in expected)
    for format, side in (("kafka.requests", 0), ("kafka.responses", 1)):
        spec = make_spec(format, keylog=str(keylog))
        table = wirescan.scan(file, spec)
        found = list_frames(table)
        direction = pcap.Direction.TO_CLIENT if side else pcap.Direction.TO_SERVER
        for number, sides in enumerate(expected):
            assert b"".join(found.get((number, direction), [])) == sides[side]
        pieces = [
            item
            for item in iter_tables(str(file), format=make_spec(spec, capture="true"), piece=5000)
            if len(item)
        ]
        times = [time for item in pieces for time in item["time"].tolist()]
        assert sorted(times) == sorted(table["time"].tolist())
        assert table["fault"].tolist() == [0] * len(table)
    connections = wirescan.scan(file, make_spec("pcap.tls", keylog=str(keylog)))
    assert len(connections) == len(expected)
    assert set(connections["kind"].tolist()) == {pcap.Decryption.DECRYPTED}
    assert connections["is_complete"].all()


def test_tables_of_connections_agree_with_tshark(broker_4, tmp_path):
    keylog = tmp_path / "keys.txt"
    file = tmp_path / "tls.pcap"
    address = broker_4.addresses["SSL"]
    broker_4.create_topic("tls-table")
    context = make_context(broker_4, keylog, *SUITES["1.3"])
    config = {"security_protocol": "SSL", "ssl_context": context}
    port = int(address.rpartition(":")[2])
    with Capture(file, [port]):
        SENDERS["kafka-python"](address, "tls-table", make_orders(5, seed=2), "none", **config)
    fields = [
        "tcp.stream",
        "tls.handshake.ciphersuite",
        "tls.handshake.extensions.supported_version",
    ]
    rows = tshark.read_fields(file, fields, options=["-Y", "tls.handshake.type == 2"])
    expected = {
        int(stream[0]): (int(suite[0], 16), int(version[0], 16)) for stream, suite, version in rows
    }
    table = wirescan.scan(file, "pcap.tls")
    found = zip(table["cipher_suite"].tolist(), table["version"].tolist())
    assert dict(zip(table["connection"].tolist(), found)) == expected
    fields = ["tls.record.opaque_type", "tls.record.length", "tcp.srcport"]
    lengths = {True: 0, False: 0}
    for kinds, sizes, (source,) in tshark.read_fields(file, fields, options=["-Y", "tls.app_data"]):
        # Only records of application data have this field in TLS 1.3.
        if kinds and len(kinds) == len(sizes):
            lengths[int(source) == port] += sum(map(int, sizes))
    assert table["data_to_client"].sum() >= lengths[True] > 0
    assert table["data_to_server"].sum() >= lengths[False] > 0


# ---- suites of OpenSSL

ASKED, ANSWERED = (
    sorted(STREAMS.glob(f"*.{name}*"))[0].read_bytes() for name in ("requests", "responses")
)
EC = (
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE-ECDSA-AES256-SHA384",
    "ECDHE-ECDSA-AES128-CCM",
    "ECDHE-ECDSA-AES256-CCM",
    "ECDHE-ECDSA-AES128-CCM8",
    "ECDHE-ECDSA-AES256-CCM8",
)
RSA = (
    "AES128-SHA",
    "AES256-SHA",
    "AES128-SHA256",
    "AES256-SHA256",
    "ECDHE-RSA-AES128-SHA256",
    "ECDHE-RSA-AES256-SHA384",
    "DHE-RSA-AES256-SHA256",
    "AES128-CCM",
    "AES256-CCM8",
)
PSK = (
    "PSK-AES128-CBC-SHA256",
    "PSK-AES256-CBC-SHA384",
    "ECDHE-PSK-AES256-CBC-SHA384",
    "DHE-PSK-AES128-CCM8",
    "PSK-AES256-GCM-SHA384",
)
OLD = ("ECDHE-ECDSA-AES256-SHA", "AES128-SHA", "PSK-AES256-CBC-SHA384")
# Version and extension -> the suites.
GROUPS = {
    ("1_2", "-no_etm"): (*EC[:4], *RSA[:7], *PSK[:3]),
    ("1_2", ""): (*EC, *RSA, *PSK),
    ("1_3", ""): [f"TLS_AES_128_{mode}_SHA256" for mode in ("CCM", "CCM_8", "GCM")],
    ("1", "-no_etm"): OLD,
    ("1", ""): OLD,
    ("1_1", "-no_etm"): OLD,
    ("1_1", ""): OLD,
}


def converse_with_openssl(directory, port, keylog, version, suite, etm):
    """Send ASKED and ANSWERED over a connection of OpenSSL, twice."""
    identity = directory / f"{suite}.pem"
    identity.write_bytes(make_identity("ec" if "ECDSA" in suite else "rsa"))
    ciphers = ["-cipher", f"{suite}:@SECLEVEL=0"]
    if version == "1_3":
        ciphers = ["-ciphersuites", suite]
    options = [f"-tls{version}", *ciphers, *(["-psk", "a1b2c3"] if "PSK" in suite else [])]
    client_options = [*options, etm] if etm else options
    with OpensslConnection(identity, port, keylog, options, client_options) as connection:
        for _ in range(2):
            connection.send(0, ASKED)
            connection.send(1, ANSWERED)


@pytest.mark.parametrize("version, etm", GROUPS)
def test_every_suite_of_openssl_is_decrypted(version, etm, tmp_path):
    keylog = tmp_path / "keys.txt"
    file = tmp_path / "tls.pcap"
    suites = GROUPS[version, etm]
    (port,) = find_free_ports(1)
    with Capture(file, [port]):
        for suite in suites:
            converse_with_openssl(tmp_path, port, keylog, version, suite, etm)
    streams = tshark.read_tls_streams(file, keylog, f"127.0.0.1:{port}")
    assert streams == len(suites) * [(2 * ASKED, 2 * ANSWERED)]
    for format, sent in (("kafka.requests", 2 * ASKED), ("kafka.responses", 2 * ANSWERED)):
        table = wirescan.scan(file, make_spec(format, keylog=str(keylog)))
        frames = list_frames(table).values()
        assert [b"".join(of_side) for of_side in frames] == len(suites) * [sent]
    table = wirescan.scan(file, make_spec("pcap.tls", keylog=str(keylog)))
    assert table["kind"].tolist() == len(suites) * [pcap.Decryption.DECRYPTED]
    assert not table.bad.any()
    expected = tshark.read_fields(
        file, ["tls.handshake.ciphersuite"], options=["-Y", "tls.handshake.type == 2"]
    )
    numbers = table["cipher_suite"].tolist()
    assert len(set(numbers)) == len(suites)
    assert [[[f"0x{number:04x}"]] for number in numbers] == expected
    for number, suite in zip(numbers, suites, strict=True):
        assert number in set(pcap.CipherSuite) or "PSK" in suite


# ---- secrets inside the capture


@pytest.mark.parametrize("suite", ["ECDHE-ECDSA-AES128-SHA256", "TLS_AES_128_GCM_SHA256"])
def test_secrets_that_editcap_injects_are_used(suite, tmp_path):
    keylog = tmp_path / "keys.txt"
    plain, injected = tmp_path / "plain.pcapng", tmp_path / "injected.pcapng"
    (port,) = find_free_ports(1)
    with Capture(plain, [port], Form.PCAPNG):
        version = "1_3" if suite.startswith("TLS") else "1_2"
        converse_with_openssl(tmp_path, port, keylog, version, suite, "")
    command = ["editcap", "--inject-secrets", f"tls,{keylog}", plain, injected]
    subprocess.run(command, check=True, timeout=60)
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    ((to_server, _),) = tshark.read_tls_streams(injected, empty, f"127.0.0.1:{port}")
    assert to_server == 2 * ASKED
    table = wirescan.scan(injected, "kafka.requests")
    assert b"".join(bytes(table.frame(row)) for row in range(len(table))) == to_server
    for piece in (500, 1 << 20):
        tables = iter_tables(str(injected), format="kafka.requests", piece=piece)
        frames = [bytes(item.frame(row)) for item in tables for row in range(len(item))]
        assert b"".join(frames) == to_server
    (row,) = wirescan.scan(injected, "pcap.tls")
    assert row.kind == pcap.Decryption.DECRYPTED
    assert len(wirescan.scan(plain, "kafka.requests")) == 0


def test_secrets_that_are_written_are_those_that_tshark_uses(tmp_path):
    keylog = tmp_path / "keys.txt"
    file, written = tmp_path / "tls.pcap", tmp_path / "written.pcapng"
    (port,) = find_free_ports(1)
    with Capture(file, [port], Form.PCAP_NANOSECONDS):
        converse_with_openssl(tmp_path, port, keylog, "1_3", "TLS_AES_128_GCM_SHA256", "")
    packets = pcap.packets(pcap.scan(file))
    captured = [
        (time, bytes(packets.frame(row))) for row, time in enumerate(packets["time"].tolist())
    ]
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    for big_endian in (False, True):
        written.write_bytes(
            pcap.encode_pcapng(captured, secrets=keylog.read_bytes(), big_endian=big_endian)
        )
        found = tshark.read_tls_streams(written, empty, f"127.0.0.1:{port}")
        assert found == [(2 * ASKED, 2 * ANSWERED)]


# ---- NATS


def make_server_configuration(home: Path) -> str:
    make_certificates(home)
    return f'tls {{cert_file: "{home}/broker.pem", key_file: "{home}/broker.key"}}'


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_messages_of_nats_over_tls(version, tmp_path):
    keylog = tmp_path / "keys.txt"
    file = tmp_path / "nats.pcap"
    with NatsServer(make_server_configuration(tmp_path)) as server:
        context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        context.minimum_version = context.maximum_version = VERSIONS[version]
        context.keylog_filename = str(keylog)
        with Capture(file, [int(server.address.rpartition(":")[2])]):
            client = asyncio.run(converse(server.address, tls=context))
    spec = make_spec("nats.messages", keylog=str(keylog))
    table = wirescan.scan(file, spec)
    to_client = table[table["direction"] == pcap.Direction.TO_CLIENT]
    to_server = table[table["direction"] == pcap.Direction.TO_SERVER]
    assert bytes(to_client.frame(0)).startswith(b"INFO {")
    assert bytes(to_server.frame(0)).startswith(b"CONNECT {")
    kinds = wirescan.nats.Kind
    for sent, kept in ((to_server, client.published), (to_client, client.received)):
        chosen = (sent["kind"] == kinds.PUB) | (sent["kind"] == kinds.HPUB)
        chosen |= (sent["kind"] == kinds.MSG) | (sent["kind"] == kinds.HMSG)
        messages = sent[chosen]
        found = [
            (bytes(messages.bytes(row, "subject")).decode(), bytes(messages.bytes(row, "payload")))
            for row in range(len(messages))
        ]
        expected = [(item["subject"], bytes.fromhex(item["payload"])) for item in kept]
        assert len(found) == len(expected)
        assert sorted(found) == sorted(expected)
    exchanges = wirescan.scan(file, make_spec("nats.exchanges", keylog=str(keylog)))
    assert (exchanges["latency"] > 0).sum() >= 3  # the requests that were answered
    pieces = [item for item in iter_tables(str(file), format=spec, piece=1000) if len(item)]
    times = [time for item in pieces for time in item["time"].tolist()]
    assert sorted(times) == sorted(table["time"].tolist())
    (row,) = wirescan.scan(file, make_spec("pcap.tls", keylog=str(keylog)))
    assert (row.kind, row.fault, row.is_complete) == (pcap.Decryption.DECRYPTED, 0, 1)


def test_the_wait_for_openssl_does_not_take_its_port():
    (port,) = find_free_ports(1)
    ended = Event()

    def look_again_and_again():
        while not ended.is_set():
            is_listening(port)

    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(look_again_and_again)
        try:
            for _ in range(300):
                with socket.socket() as server:
                    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    server.bind(("127.0.0.1", port))
                    server.listen()
                    assert is_listening(port)
        finally:
            ended.set()
    assert not is_listening(port)
