"""`wirescan receive` and `wirescan send` with the real programs, in both directions, versions 1 and 2, plain and TLS,
compressed and not; and killed at work."""
import contextlib
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wirescan import lumberjack

from .lumberjack import (Authority, Filebeat, Program, Receive, TstLj, TstSend, lines, lumberjack_client_send,
                         lumberjack_protocol_send, pylogbeat_send, send)
from .make_lumberjack import RECORDED, events, messages, pairs, ship
from .ports import free_ports
from .test_lumberjack_streams import CASES, decoded

pytestmark = pytest.mark.peers

FACTOR, LARGE = 3 ** 197, 1 << 320
WIRESCAN = [sys.executable, "-m", "wirescan"]


class Receiver(Program):
    """`wirescan receive lumberjack` into `directory`, on `address`."""

    def __init__(self, directory: Path, *options: object, address: str = "127.0.0.1:0"):
        self.directory = directory
        super().__init__([*WIRESCAN, "receive", "lumberjack", "--listen", address, "--to", directory, "--json",
                          *options])

    def await_ready(self) -> None:
        self.await_true(lambda: "listening on" in self.log.read_text(), 30)
        self.address = self.log.read_text().split("listening on ")[1].split()[0]

    def stop(self) -> dict:
        """Ask it to end: everything has its name then. Returns its report."""
        self.process.terminate()
        assert self.process.wait(60) == 0, self.log.read_text()
        return json.loads(self.output.read_text())


def named(directory: Path) -> list[dict]:
    """The events in the files of frames that are complete."""
    files = sorted(directory.glob("[!_]*.lumberjack"))
    return decoded(lumberjack.events(lumberjack.scan(files))) if files else []


def kept(directory: Path) -> list[dict]:
    """The events in a directory of frames whose receiver has ended."""
    assert not list(directory.glob("_*"))
    return named(directory)


def documents(directory: Path) -> list[bytes]:
    """The JSON of the events in a directory of Parquet."""
    import pyarrow.parquet

    assert {path.suffix for path in directory.iterdir()} == {".parquet"} and not list(directory.glob("_*"))
    columns = [pyarrow.parquet.read_table(path, columns=["json"])["json"] for path in sorted(directory.iterdir())]
    return [document for column in columns for document in column.to_pylist()]


def numbered(count: int) -> bytes:
    """JSON lines of so many numbered events of about 150 bytes, which zlib makes half of."""
    return b"".join(b'{"@timestamp":"2026-03-01T10:00:00.000Z","number":%d,"message":"%080x"}\n' % (
        i, i * FACTOR % LARGE) for i in range(count))


@pytest.fixture(scope="module")
def authority():
    with Authority() as authority:
        authority.server, authority.shipper = authority.identity("server"), authority.identity("shipper")
        yield authority


@pytest.fixture
def directory(tmp_path) -> Path:
    return tmp_path / "kept"


def tls(authority):
    """(options of our receiver, options of a real client, options of our sender, options of a real server)"""
    own, theirs = authority.server, authority.shipper
    return (("--tls", own, own, "--client-ca", authority.file), {"authority": authority.file, "identity": theirs},
            ("--tls-ca", authority.file, "--tls-cert", theirs, theirs), {"authority": authority.file, "identity": own})


@pytest.fixture(params=["plain", "tls"])
def secured(request, authority):
    """The same four, with certificates on both sides, and without TLS."""
    return tls(authority) if request.param == "tls" else ((), {}, (), {})


def compression(level: int | None) -> list[object]:
    return [] if level is None else ["--compress", level]


# ------------------------------------------------------------------------------- real clients, our receiver

@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("pipeline", [0, 2])
def test_receive_from_go_lumber(directory, secured, level, pipeline):
    given = events(5000)
    options, client, _, _ = secured
    with Receiver(directory, *options) as receiver:
        said = send(receiver.address, given, batch=700, level=level, pipeline=pipeline, **client)
        receiver.stop()
    assert said == {"events": 5000, "connections": 1, "windows": 8} and kept(directory) == given


@pytest.mark.parametrize("level", [0, 3])
def test_receive_from_tst_send(directory, level):
    """go-lumber's own program, which sends for ever, is stopped at work: what it saw acknowledged is there."""
    with Receiver(directory) as receiver:
        with TstSend(receiver.address, batch=100, level=level, pipeline=2) as client:
            client.await_true(lambda: client.acknowledged() >= 20_000)
            acknowledged = client.acknowledged()
        report = receiver.stop()
    found = kept(directory)
    assert acknowledged <= report["events"] == len(found) and len(found) % 100 == 0
    assert {event["type"] for event in found} == {"filebeat"}


def test_receive_from_pylogbeat(directory, secured):
    """Its sequence numbers go on from window to window, and the windows of none hold a C of nothing."""
    given = events(50)
    options, client, _, _ = secured
    with Receiver(directory, *options) as receiver:
        pylogbeat_send(receiver.address, [given[:20], given[20:21], given[21:]], **client)
        pylogbeat_send(receiver.address, [[], given[:3]], **client)
        receiver.stop()
    assert kept(directory) == given + given[:3]


@pytest.mark.parametrize("is_secured", [False, True])
def test_receive_from_lumberjack_client(directory, authority, is_secured):
    given = events(30)
    options = ("--tls", authority.server, authority.server) if is_secured else ()
    with Receiver(directory, *options) as receiver:
        lumberjack_client_send(receiver.address, given, first=20, authority=authority.file if is_secured else None)
        receiver.stop()
    assert kept(directory) == given


def test_receive_from_lumberjack_protocol(directory, authority):
    """Version 1 and TLS; the client takes no ack but one of version 1."""
    given = pairs(1000)
    with Receiver(directory, "--tls", authority.server, authority.server) as receiver:
        lumberjack_protocol_send(receiver.address, given, authority.file, window=1000, acknowledged=1000)
        receiver.stop()
    assert kept(directory) == given


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_window_that_is_never_complete(directory, authority, is_kept):
    """lumberjack-protocol announces 1000 events and sends 20: they are not acked, and kept only on request."""
    given = pairs(20)
    options = ["--keep-incomplete"] if is_kept else []
    with Receiver(directory, "--tls", authority.server, authority.server, *options) as receiver:
        lumberjack_protocol_send(receiver.address, given, authority.file)
        receiver.await_true(lambda: "20 of the 1,000 events of a window" in receiver.log.read_text())
        assert receiver.stop()["incomplete"] == 20
    assert kept(directory) == (given if is_kept else [])


@pytest.mark.parametrize("level", [0, 3])
def test_receive_from_filebeat(directory, secured, level):
    given = messages(3000)
    options, client, _, _ = secured
    with Receiver(directory, *options, "--roll-seconds", "0.2") as receiver:
        ship(receiver.address, given, lambda: len(named(directory)) >= len(given), level=level, **client)
        receiver.stop()
    found = kept(directory)
    assert [{"message": event["message"]} for event in found] == given
    assert {event["@metadata"]["beat"] for event in found} == {"filebeat"}


def test_a_writer_without_a_certificate(directory, authority):
    options, client, _, _ = tls(authority)
    with Receiver(directory, *options) as receiver:
        with pytest.raises(RuntimeError):
            send(receiver.address, events(10), authority=authority.file)
        with pytest.raises(RuntimeError):
            send(receiver.address, events(10))
        send(receiver.address, events(10), **client)  # and it goes on serving
        assert receiver.stop()["events"] == 10


# ------------------------------------------------------------------------------------ our sender, a real server

def wirescan_send(address: str, *arguments: object) -> dict:
    """The report of `wirescan send`, which must end well."""
    done = subprocess.run([*WIRESCAN, "send", "lumberjack", address, *map(str, arguments), "--json"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("level", [None, 3])
def test_send_json_to_go_lumber(tmp_path, secured, level):
    given = events(5000)
    (tmp_path / "events.jsonl").write_bytes(lines(given))
    _, _, options, server = secured
    with Receive(**server) as real:
        report = wirescan_send(real.address, tmp_path / "events.jsonl", "--lines", "json", "--window", 700, *options,
                               *compression(level))
        windows = real.windows()
    assert report["events"] == 5000 and report["connections"] == 1
    assert [len(window) for window in windows] == [700] * 7 + [100] and sum(windows, []) == given


def test_send_to_tst_lj(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(numbered(10_000))
    with TstLj() as real:
        wirescan_send(real.address, tmp_path / "events.jsonl", "--lines", "json", "--window", 3000, "--compress", 1)
        real.await_true(lambda: real.windows() == [3000, 3000, 3000, 1000])


@pytest.mark.parametrize("level", [None, 6])
@pytest.mark.parametrize("version", [1, 2])
def test_send_text_to_go_lumber(tmp_path, secured, version, level):
    """Lines as fields of data frames, and as JSON."""
    given = messages(3000)
    (tmp_path / "orders.log").write_text("".join(event["message"] + "\n" for event in given))
    _, _, options, server = secured
    with Receive(**server) as real:
        wirescan_send(real.address, tmp_path / "orders.log", "--lines", "text", "--version", version, *options,
                      *compression(level))
        assert real.events() == given


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("level", [None, 3])
def test_send_what_was_recorded_to_go_lumber(name, level):
    """Captures of every client, windows that go-lumber's server would not take as they are among them."""
    given = [json.loads(line) for line in (RECORDED / f"{name}.events.jsonl").read_text().splitlines()]
    with Receive() as real:
        report = wirescan_send(real.address, RECORDED / f"{name}.sent.bin", *compression(level))
        found = real.events()
    assert report["events"] == len(given)
    assert [{"message": event["message"]} for event in found] == given if name.startswith("filebeat") else (
        found == given)


def test_send_again_what_a_killed_server_did_not_ack(tmp_path):
    """go-lumber's server is killed twice at work: every event arrives, and none twice but those that were in flight."""
    count, window, kills = 100_000, 500, 2
    (tmp_path / "events.jsonl").write_bytes(numbered(count))
    address = "127.0.0.1:%d" % free_ports(1)[0]
    found = []
    with ThreadPoolExecutor() as pool:
        with Receive(address=address, hold=0.005) as real:
            sending = pool.submit(wirescan_send, address, tmp_path / "events.jsonl", "--lines", "json",
                                  "--window", window)
            real.await_true(lambda: len(real.windows()) > 20)
            real.kill()
            found += real.events()
        with Receive(address=address, hold=0.005) as real:
            real.await_true(lambda: len(real.windows()) > 20)
            real.kill()
            found += real.events()
        with Receive(address=address) as real:
            report = sending.result(120)
            found += real.events()
    assert report["events"] == count and report["connections"] >= 1 + kills
    times = Counter(event["number"] for event in found)
    assert set(times) == set(range(count)) and len(found) - count <= kills * 2 * window


# --------------------------------------------------------------------------------- many events, and kill -9

@pytest.mark.parametrize("count", [200_000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
def test_many_events_exactly_once(directory, count):
    """From go-lumber's client to Parquet, in several files."""
    with Receiver(directory, "--as", "parquet", "--roll-bytes", 64 * count) as receiver:
        assert send(receiver.address, numbered(count), pipeline=2)["connections"] == 1
        report = receiver.stop()
    found = [json.loads(text)["number"] for text in documents(directory)]
    assert report["events"] == count and report["files"] == len(list(directory.iterdir())) >= 2
    assert found == list(range(count))


@pytest.mark.parametrize("count, kills", [(350_000, 1), pytest.param(1_000_000, 3, marks=pytest.mark.nightly)])
def test_at_least_once_with_a_receiver_that_is_killed(directory, count, kills):
    """The receiver is killed with SIGKILL while many events come, compressed, and started again: all are in Parquet,
    and none twice but those in flight at such a moment."""
    window = 2048
    address = "127.0.0.1:%d" % free_ports(1)[0]
    options = ("--as", "parquet", "--roll-bytes", 3 << 20)
    with ThreadPoolExecutor() as pool:
        for number in range(kills):
            with Receiver(directory, *options, address=address) as receiver:
                if number == 0:
                    sending = pool.submit(send, address, numbered(count), batch=window, level=3, pipeline=2, retry=True)
                published = len(list(directory.glob("[!_]*.parquet")))
                receiver.await_true(lambda: len(list(directory.glob("[!_]*.parquet"))) >= published + 2)
                receiver.kill()
                assert not sending.done()
        with Receiver(directory, *options, address=address) as receiver:
            said = sending.result(120)
            receiver.stop()
    times = Counter(json.loads(text)["number"] for text in documents(directory))
    assert set(times) == set(range(count)) and said["events"] == count and said["connections"] >= 1 + kills
    again = times.total() - count
    assert again <= kills * 4 * window  # two windows in flight, one that waits for room, one that is being written


def test_filebeat_outlives_its_receiver(directory, tmp_path):
    """A log file of 30,000 lines; the receiver is killed at work, and started again."""
    given = messages(30_000)
    address = "127.0.0.1:%d" % free_ports(1)[0]
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Receiver(directory, address=address))
        (tmp_path / "orders.log").write_text("".join(event["message"] + "\n" for event in given))
        filebeat = stack.enter_context(Filebeat(address, tmp_path / "orders.log", batch=200))
        first.await_true(lambda: any(path.stat().st_size > 100_000 for path in directory.iterdir()))
        first.kill()
        second = stack.enter_context(Receiver(directory, "--roll-seconds", "0.2", address=address))
        wanted = {event["message"] for event in given}
        filebeat.await_true(lambda: wanted <= {event["message"] for event in named(directory)}, poll=0.5)
        filebeat.end()
        second.stop()
    assert {event["message"] for event in kept(directory)} == wanted
