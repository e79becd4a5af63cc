"""Kafka clients over TLS, captured with tcpdump: the frames are those that tshark decrypts."""

import ssl

import pytest

import wirescan
from wirescan import pcap
from wirescan.frames.registry import make_spec
from wirescan.reading.chunked import iter_tables

from . import tshark
from .capture import Capture, Form
from .producers import SENDERS, make_orders
from .readers import consume_aiokafka, consume_kafka_python

pytestmark = pytest.mark.peers

READERS = {"kafka-python": consume_kafka_python, "aiokafka": consume_aiokafka}
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
