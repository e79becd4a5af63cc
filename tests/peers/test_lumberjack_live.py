"""`wirescan receive` and `wirescan send` with the real programs.

The tests cover versions 1 and 2, plain and TLS, compressed and uncompressed, and killed processes.
"""

import contextlib
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wirescan import lumberjack

from .lumberjack import (
    Authority,
    Filebeat,
    Program,
    Receive,
    TstLj,
    TstSend,
    format_lines,
    send,
    send_with_lumberjack_client,
    send_with_lumberjack_protocol,
    send_with_pylogbeat,
)
from .lumberjack_corpus import CASES, decode_events
from .make_lumberjack import RECORDED, make_events, make_messages, make_pairs, ship
from .ports import find_free_ports

pytestmark = pytest.mark.peers

# i * FACTOR % LARGE gives 80 hexadecimal digits that look random.
FACTOR = 3**197
LARGE = 1 << 320
WIRESCAN = [sys.executable, "-m", "wirescan"]


class Receiver(Program):
    """`wirescan receive lumberjack` into `directory`, on `address`."""

    def __init__(self, directory: Path, *options: object, address: str = "127.0.0.1:0"):
        self.directory = directory
        super().__init__(
            [
                *WIRESCAN,
                "receive",
                "lumberjack",
                "--listen",
                address,
                "--to",
                directory,
                "--json",
                *options,
            ]
        )

    def await_ready(self) -> None:
        self.await_true(lambda: "listening on" in self.log.read_text(), 30)
        self.address = self.log.read_text().split("listening on ")[1].split()[0]

    def stop(self) -> dict:
        """Stop the process, after which every file has its final name. Return its report."""
        self.process.terminate()
        assert self.process.wait(60) == 0, self.log.read_text()
        return json.loads(self.output.read_text())


def read_complete(directory: Path) -> list[dict]:
    """The events in the complete files of frames."""
    files = sorted(directory.glob("[!_]*.lumberjack"))
    return decode_events(lumberjack.events(lumberjack.scan(files))) if files else []


def read_directory(directory: Path) -> list[dict]:
    """The events in a directory of frames after the end of its receiver."""
    assert not list(directory.glob("_*"))
    return read_complete(directory)


def read_documents(directory: Path) -> list[bytes]:
    """The JSON documents of the events in a directory of Parquet files."""
    import pyarrow.parquet

    assert {path.suffix for path in directory.iterdir()} == {".parquet"}
    assert not list(directory.glob("_*"))
    columns = [
        pyarrow.parquet.read_table(path, columns=["json"])["json"]
        for path in sorted(directory.iterdir())
    ]
    return [document for column in columns for document in column.to_pylist()]


def make_numbered_lines(count: int) -> bytes:
    """JSON lines of numbered events of about 150 bytes. zlib halves their size."""
    return b"".join(
        b'{"@timestamp":"2026-03-01T10:00:00.000Z","number":%d,"message":"%080x"}\n'
        % (i, i * FACTOR % LARGE)
        for i in range(count)
    )


@pytest.fixture(scope="module")
def authority():
    with Authority() as authority:
        authority.server = authority.identity("server")
        authority.shipper = authority.identity("shipper")
        yield authority


@pytest.fixture
def directory(tmp_path) -> Path:
    return tmp_path / "kept"


def make_tls_options(authority):
    """The TLS options of (our receiver, a real client, our sender, a real server).

    Both sides have certificates.
    """
    server_identity, client_identity = authority.server, authority.shipper
    return (
        ("--tls", server_identity, server_identity, "--client-ca", authority.file),
        {"authority": authority.file, "identity": client_identity},
        ("--tls-ca", authority.file, "--tls-cert", client_identity, client_identity),
        {"authority": authority.file, "identity": server_identity},
    )


@pytest.fixture(params=["plain", "tls"])
def secured(request, authority):
    """The options of `tls_options`, and the same without TLS."""
    return make_tls_options(authority) if request.param == "tls" else ((), {}, (), {})


def make_compression_options(level: int | None) -> list[object]:
    return [] if level is None else ["--compress", level]


# ---- real clients and wirescan's receiver


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("pipeline", [0, 2])
def test_receive_from_go_lumber(directory, secured, level, pipeline):
    events = make_events(5000)
    options, client, _, _ = secured
    with Receiver(directory, *options) as receiver:
        counts = send(receiver.address, events, batch=700, level=level, pipeline=pipeline, **client)
        receiver.stop()
    assert counts == {"events": 5000, "connections": 1, "windows": 8}
    assert read_directory(directory) == events


@pytest.mark.parametrize("level", [0, 3])
def test_receive_from_tst_send(directory, level):
    """go-lumber's endless program is stopped while it sends.

    All events that it saw acknowledged are in the directory.
    """
    with Receiver(directory) as receiver:
        with TstSend(receiver.address, batch=100, level=level, pipeline=2) as client:
            client.await_true(lambda: client.acknowledged() >= 20_000)
            acknowledged = client.acknowledged()
        report = receiver.stop()
    received = read_directory(directory)
    assert acknowledged <= report["events"] == len(received)
    assert len(received) % 100 == 0
    assert {event["type"] for event in received} == {"filebeat"}


def test_receive_from_pylogbeat(directory, secured):
    """pylogbeat's sequence numbers continue from window to window.

    An empty window has an empty compressed frame.
    """
    events = make_events(50)
    options, client, _, _ = secured
    with Receiver(directory, *options) as receiver:
        send_with_pylogbeat(receiver.address, [events[:20], events[20:21], events[21:]], **client)
        send_with_pylogbeat(receiver.address, [[], events[:3]], **client)
        receiver.stop()
    assert read_directory(directory) == events + events[:3]


@pytest.mark.parametrize("is_secured", [False, True])
def test_receive_from_lumberjack_client(directory, authority, is_secured):
    events = make_events(30)
    options = ("--tls", authority.server, authority.server) if is_secured else ()
    with Receiver(directory, *options) as receiver:
        send_with_lumberjack_client(
            receiver.address, events, first=20, authority=authority.file if is_secured else None
        )
        receiver.stop()
    assert read_directory(directory) == events


def test_receive_from_lumberjack_protocol(directory, authority):
    """Version 1 and TLS. The client accepts only acks of version 1."""
    events = make_pairs(1000)
    with Receiver(directory, "--tls", authority.server, authority.server) as receiver:
        send_with_lumberjack_protocol(
            receiver.address, events, authority.file, window=1000, acknowledged=1000
        )
        receiver.stop()
    assert read_directory(directory) == events


@pytest.mark.parametrize("is_kept", [False, True])
def test_an_incomplete_window_is_not_acknowledged(directory, authority, is_kept):
    """lumberjack-protocol announces 1000 events and sends 20.

    The receiver does not acknowledge them, and keeps them only with an option.
    """
    events = make_pairs(20)
    options = ["--keep-incomplete"] if is_kept else []
    with Receiver(directory, "--tls", authority.server, authority.server, *options) as receiver:
        send_with_lumberjack_protocol(receiver.address, events, authority.file)
        receiver.await_true(
            lambda: "20 of the 1,000 events of a window" in receiver.log.read_text()
        )
        assert receiver.stop()["incomplete"] == 20
    assert read_directory(directory) == (events if is_kept else [])


@pytest.mark.parametrize("level", [0, 3])
def test_receive_from_filebeat(directory, secured, level):
    events = make_messages(3000)
    options, client, _, _ = secured
    with Receiver(directory, *options, "--roll-seconds", "0.2") as receiver:
        ship(
            receiver.address,
            events,
            lambda: len(read_complete(directory)) >= len(events),
            level=level,
            **client,
        )
        receiver.stop()
    received = read_directory(directory)
    assert [{"message": event["message"]} for event in received] == events
    assert {event["@metadata"]["beat"] for event in received} == {"filebeat"}


def test_a_client_without_a_certificate_is_refused(directory, authority):
    options, client, _, _ = make_tls_options(authority)
    with Receiver(directory, *options) as receiver:
        with pytest.raises(RuntimeError, match="send ended with"):
            send(receiver.address, make_events(10), authority=authority.file)
        with pytest.raises(RuntimeError, match="send ended with"):
            send(receiver.address, make_events(10))
        send(receiver.address, make_events(10), **client)  # the receiver still serves
        assert receiver.stop()["events"] == 10


# ---- wirescan's sender and real servers


def send_with_wirescan(address: str, *arguments: object) -> dict:
    """Run `wirescan send`, which must succeed, and return its report."""
    completed = subprocess.run(
        [*WIRESCAN, "send", "lumberjack", address, *map(str, arguments), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


@pytest.mark.parametrize("level", [None, 3])
def test_send_json_to_go_lumber(tmp_path, secured, level):
    events = make_events(5000)
    (tmp_path / "events.jsonl").write_bytes(format_lines(events))
    _, _, options, server = secured
    with Receive(**server) as real:
        report = send_with_wirescan(
            real.address,
            tmp_path / "events.jsonl",
            "--lines",
            "json",
            "--window",
            700,
            *options,
            *make_compression_options(level),
        )
        windows = real.windows()
    assert (report["events"], report["connections"]) == (5000, 1)
    assert [len(window) for window in windows] == [700] * 7 + [100]
    assert sum(windows, []) == events


def test_send_to_tst_lj(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(make_numbered_lines(10_000))
    with TstLj() as real:
        send_with_wirescan(
            real.address,
            tmp_path / "events.jsonl",
            "--lines",
            "json",
            "--window",
            3000,
            "--compress",
            1,
        )
        real.await_true(lambda: real.windows() == [3000, 3000, 3000, 1000])


@pytest.mark.parametrize("level", [None, 6])
@pytest.mark.parametrize("version", [1, 2])
def test_send_text_to_go_lumber(tmp_path, secured, version, level):
    """Lines are sent as fields of data frames in version 1, and as JSON in version 2."""
    events = make_messages(3000)
    (tmp_path / "orders.log").write_text("".join(event["message"] + "\n" for event in events))
    _, _, options, server = secured
    with Receive(**server) as real:
        send_with_wirescan(
            real.address,
            tmp_path / "orders.log",
            "--lines",
            "text",
            "--version",
            version,
            *options,
            *make_compression_options(level),
        )
        assert real.events() == events


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("level", [None, 3])
def test_send_recorded_streams_to_go_lumber(name, level):
    """Captures of every client are sent to go-lumber's server.

    Some of their windows would not be accepted without a change.
    """
    events = [
        json.loads(line) for line in (RECORDED / f"{name}.events.jsonl").read_text().splitlines()
    ]
    with Receive() as real:
        report = send_with_wirescan(
            real.address, RECORDED / f"{name}.sent.bin", *make_compression_options(level)
        )
        received = real.events()
    assert report["events"] == len(events)
    if name.startswith("filebeat"):
        received = [{"message": event["message"]} for event in received]
    assert received == events


def test_unacknowledged_windows_are_sent_again(tmp_path):
    """go-lumber's server is killed twice while it receives.

    Every event arrives. Only events in flight arrive twice.
    """
    count = 100_000
    window = 500
    kills = 2
    (tmp_path / "events.jsonl").write_bytes(make_numbered_lines(count))
    address = f"127.0.0.1:{find_free_ports(1)[0]}"
    received = []
    with ThreadPoolExecutor() as pool:
        with Receive(address=address, hold=0.005) as real:
            sending = pool.submit(
                send_with_wirescan,
                address,
                tmp_path / "events.jsonl",
                "--lines",
                "json",
                "--window",
                window,
            )
            real.await_true(lambda: len(real.windows()) > 20)
            real.kill()
            received += real.events()
        with Receive(address=address, hold=0.005) as real:
            real.await_true(lambda: len(real.windows()) > 20)
            real.kill()
            received += real.events()
        with Receive(address=address) as real:
            report = sending.result(120)
            received += real.events()
    assert report["events"] == count
    assert report["connections"] >= 1 + kills
    times = Counter(event["number"] for event in received)
    assert set(times) == set(range(count))
    assert len(received) - count <= kills * 2 * window


# ---- many events, and kill -9


@pytest.mark.parametrize("count", [200_000, pytest.param(1_000_000, marks=pytest.mark.nightly)])
def test_many_events_arrive_once(directory, count):
    """go-lumber's client sends the events, and the receiver writes several Parquet files."""
    with Receiver(directory, "--as", "parquet", "--roll-bytes", 64 * count) as receiver:
        assert send(receiver.address, make_numbered_lines(count), pipeline=2)["connections"] == 1
        report = receiver.stop()
    numbers = [json.loads(text)["number"] for text in read_documents(directory)]
    assert report["events"] == count
    assert report["files"] == len(list(directory.iterdir())) >= 2
    assert numbers == list(range(count))


@pytest.mark.parametrize(
    "count, kills", [(350_000, 1), pytest.param(1_000_000, 3, marks=pytest.mark.nightly)]
)
def test_a_killed_receiver_loses_no_event(directory, count, kills):
    """The receiver is killed with SIGKILL while it receives compressed events, and started again.

    All events are in Parquet. Only those in flight at a kill are there twice.
    """
    window = 2048
    address = f"127.0.0.1:{find_free_ports(1)[0]}"
    options = ("--as", "parquet", "--roll-bytes", 3 << 20)
    with ThreadPoolExecutor() as pool:
        for number in range(kills):
            with Receiver(directory, *options, address=address) as receiver:
                if number == 0:
                    sending = pool.submit(
                        send,
                        address,
                        make_numbered_lines(count),
                        batch=window,
                        level=3,
                        pipeline=2,
                        retry=True,
                    )
                published = len(list(directory.glob("[!_]*.parquet")))
                receiver.await_true(
                    lambda: len(list(directory.glob("[!_]*.parquet"))) >= published + 2
                )
                receiver.kill()
                assert not sending.done()
        with Receiver(directory, *options, address=address) as receiver:
            counts = sending.result(120)
            receiver.stop()
    times = Counter(json.loads(text)["number"] for text in read_documents(directory))
    assert set(times) == set(range(count))
    assert counts["events"] == count
    assert counts["connections"] >= 1 + kills
    duplicates = times.total() - count
    # At each kill two windows are in flight, one waits in the queue, and one is being written.
    assert duplicates <= kills * 4 * window


def test_filebeat_sends_all_lines_to_a_restarted_receiver(directory, tmp_path):
    """The receiver is killed while it receives a log file of 30,000 lines, and started again."""
    events = make_messages(30_000)
    address = f"127.0.0.1:{find_free_ports(1)[0]}"
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Receiver(directory, address=address))
        (tmp_path / "orders.log").write_text("".join(event["message"] + "\n" for event in events))
        filebeat = stack.enter_context(Filebeat(address, tmp_path / "orders.log", batch=200))
        first.await_true(lambda: any(path.stat().st_size > 100_000 for path in directory.iterdir()))
        first.kill()
        second = stack.enter_context(Receiver(directory, "--roll-seconds", "0.2", address=address))
        expected = {event["message"] for event in events}

        def has_all_messages() -> bool:
            return expected <= {event["message"] for event in read_complete(directory)}

        filebeat.await_true(has_all_messages, poll=0.5)
        filebeat.end()
        second.stop()
    assert {event["message"] for event in read_directory(directory)} == expected
