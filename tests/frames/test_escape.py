"""Text from the wire and names of files are safe to print and to log in every message."""

import asyncio
import logging
import ssl

import pytest
from click.testing import CliRunner

from tests.support.kafka_answers import NODE, greet_cluster, make_cluster
from wirescan import FrameError, kafka, lumberjack
from wirescan.cli.exit_codes import Failure, describe_error
from wirescan.cli.main import main
from wirescan.cli.output import print_message
from wirescan.core.fault import Fault
from wirescan.files.source import MappedFile
from wirescan.frames.escape import make_bytes_visible, make_visible
from wirescan.kafka.client.connection import make_connect_error, make_connection_lost_error
from wirescan.kafka.client.effects import Node
from wirescan.kafka.client.sasl import login
from wirescan.kafka.protocol.error_codes import BrokerError
from wirescan.reading.chunks import read_open_file
from wirescan.reading.growing import GrowingFiles
from wirescan.reading.splits import Plan, Slice

# A control sequence in 7 and 8 bits, line breaks, a turned direction, a space without width.
EVIL = "\x1b[2J\x9b31m\r\n\u2028\u202e\u200b\ufeff"
SHOWN = r"\x1b[2J\u009b31m\r\n\u2028\u202e\u200b\ufeff"


def is_safe(text):
    return SHOWN in text and text.isprintable()


def test_what_is_escaped():
    assert make_visible(EVIL) == SHOWN and make_visible(SHOWN) == SHOWN
    assert make_visible("plain \u00fc \\ \U0001f600") == "plain \u00fc \\ \U0001f600"
    assert (
        make_visible("\0\t\x7f\x80\udc80\udcff\ud800\U000e0001")
        == r"\x00\t\x7f\u0080\x80\xff\ud800\U000e0001"
    )
    assert make_visible(ValueError(EVIL)) == SHOWN
    assert make_bytes_visible(memoryview(EVIL.encode() + b"\xff")) == SHOWN + r"\xff"
    assert make_visible("".join(map(chr, range(0x3100)))).isprintable()


def test_mechanisms_that_a_broker_offers():
    fake = make_cluster()
    fake.users = {}
    fake.hook = lambda node, api, version, body: (
        body | {"error_code": 33, "mechanisms": [{"name": EVIL}]}
        if api == "SaslHandshake"
        else body
    )
    with pytest.raises(BrokerError, match="which offers") as caught:
        greet_cluster(fake, ("PLAIN", "a", "b"))
    assert is_safe(str(caught.value)) and caught.value.where.isprintable()


def test_what_the_library_of_scram_quotes(monkeypatch):
    scramp = pytest.importorskip("scramp")

    def refuse(client, message):
        raise scramp.ScramException(f"not understood: {message}")

    monkeypatch.setattr(scramp.ScramClient, "set_server_first", refuse)
    steps = login("SCRAM-SHA-256", "alice", "secret", str(NODE))
    next(steps)
    with pytest.raises(PermissionError, match="not understood") as caught:
        steps.send(EVIL.encode())
    assert is_safe(str(caught.value))


def test_names_that_brokers_give_each_other():
    node = Node(1, "b" + EVIL, 9092)
    assert is_safe(str(node)) and node.host == "b" + EVIL
    for error in (
        make_connect_error(node, OSError(EVIL), 1),
        make_connect_error(node, ssl.SSLError(1, EVIL), 1),
        make_connection_lost_error(NODE, ConnectionResetError(EVIL)),
        BrokerError(3, f"{EVIL}-0 at {NODE}"),
    ):
        assert is_safe(str(error)), error


def test_names_of_files_are_escaped(tmp_path, caplog):
    name = str(tmp_path / (EVIL + ".log"))
    assert is_safe(str(FrameError(Fault.BAD_LENGTH, 0, 0, b"", name)))
    assert is_safe(str(Plan([[Slice(name, 0, 9)]], size=1)).split("\n")[1])
    with open(name, "wb") as file:
        file.write(kafka.encode_batch([b"value"]))
    with pytest.raises(EOFError, match="bytes now") as caught:
        MappedFile(name, 1000)
    assert is_safe(str(caught.value))
    with pytest.raises(EOFError, match="was cut") as caught:
        list(read_open_file(lambda start, stop: memoryview(b""), name, 0, 9, 9))
    assert is_safe(str(caught.value))
    GrowingFiles([name], "kafka.records", lossless=False)._report_loss(EOFError(name))
    assert is_safe(caplog.messages[-1])


def test_messages_of_the_command(tmp_path, capsys):
    print_message(f"wirescan: {EVIL}")
    Failure(EVIL).show()
    lines = capsys.readouterr().err.split("\n")
    assert len(lines) == 3 and all(map(is_safe, lines[:2]))
    assert describe_error(ValueError("\x1b" + make_visible("\x1b"))) == r"\x1b\x1b"
    path = tmp_path / (EVIL + ".log")
    path.write_bytes(kafka.encode_batch([b"value"]))
    done = CliRunner().invoke(main, ["scan", str(path), "--columns", "_file,offset"])
    assert done.exit_code == 0, done.output
    assert SHOWN in done.stdout and all(map(str.isprintable, done.stdout.split("\n")))


def test_documents_that_are_refused():
    name = r"\u001b[2J\u202e"
    events = lumberjack.events(
        lumberjack.scan(
            lumberjack.encode_batch([b'{"%s": 1}' % name.encode(), b'{"%s": "x"}' % name.encode()])
        )
    )
    with pytest.raises(ValueError, match="is refused") as caught:
        lumberjack.documents(events)
    assert r"\x1b[2J\u202e" in str(caught.value) and str(caught.value).isprintable()
    why = lumberjack.documents(events, errors="mark")["refused"].to_pylist()
    assert r"\x1b[2J\u202e" in why[1] and why[1].isprintable()


def test_what_a_server_of_nats_says(caplog):
    nats = pytest.importorskip("nats")
    from wirescan import liftbridge

    async def test():
        async def refuse(reader, writer):
            writer.write(b"INFO {}\r\n")
            await reader.readline()
            writer.write(b"-ERR '" + EVIL.replace("\r\n", "").encode() + b"'\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            client = liftbridge.Client(
                f"nats://127.0.0.1:{port}", allow_reconnect=False, connect_timeout=2
            )
            with pytest.raises(nats.errors.Error, match="nats") as caught:
                await client.connect()
        return caught.value

    with caplog.at_level(logging.WARNING):
        error = asyncio.run(test())
    assert r"\x1b[2J" in str(error) and str(error).isprintable()
    assert any(r"\x1b[2J" in message for message in caplog.messages)
    assert all(map(str.isprintable, caplog.messages))
