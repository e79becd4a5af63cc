"""`wirescan receive` and `wirescan send`: the files in the directory, and the messages.

Acked events are in the directory after a kill, a full disk or a failed conversion.
"""

from __future__ import annotations

import errno
import json
import os
import pty
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow.dataset
import pytest
from click.testing import CliRunner

import wirescan
from tests.support.lumberjack_server import (
    PATIENCE,
    TLS,
    ServerThread,
    make_documents,
    receive_bytes,
    wait_until,
)
from wirescan import Limits, lumberjack
from wirescan.cli.exit_codes import Failure
from wirescan.cli.main import main
from wirescan.cli.support.spool import NAME, Spool
from wirescan.cli.verbs.receive import MessageLimiter
from wirescan.lumberjack.encode import (
    encode_ack,
    encode_batch,
    encode_batches,
    encode_compressed,
    encode_data,
    encode_json,
    encode_window,
)
from wirescan.lumberjack.live.client import Client

PACKAGE = Path(wirescan.__file__).parents[1]


class Receiver:
    """`wirescan receive` in a process of its own."""

    def __init__(self, directory: Path, *arguments: object, port: int = 0):
        command = [
            sys.executable,
            "-m",
            "wirescan",
            "receive",
            "lumberjack",
            "--to",
            str(directory),
            "--listen",
            f"127.0.0.1:{port}",
            *map(str, arguments),
        ]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        )
        self.lines: list[str] = []
        for line in self.process.stderr:
            self.lines.append(line)
            if match := re.fullmatch(r"wirescan: listening on (.*):(\d+)\n", line):
                self.address = match[1], int(match[2])
                break
        else:
            raise AssertionError("".join(self.lines))
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr))
        self._reader.start()

    def stop(self, number: int = signal.SIGTERM) -> str:
        """End the process with a signal and return its output."""
        self.process.send_signal(number)
        out = self.process.stdout.read()
        self.code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()
        return out

    @property
    def peak(self) -> int:
        """Maximum resident memory of the process in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


@contextmanager
def start_receiver(directory: Path, *arguments: object, port: int = 0):
    receiver = Receiver(directory, *arguments, port=port)
    try:
        yield receiver
    finally:
        if receiver.process.poll() is None:
            receiver.stop(signal.SIGKILL)


def run(*arguments: object, code: int = 0, **options):
    result = CliRunner().invoke(main, [*map(str, arguments)], **options)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def send(address: tuple[str, int], *arguments: object, **options):
    return run("send", "lumberjack", f"{address[0]}:{address[1]}", *arguments, **options)


def read_documents(
    directory: Path, partial: bool = False, largest: int | None = None
) -> list[bytes]:
    """Return the JSON texts in a directory, in the order of file names.

    partial: also read files that are not complete.
    largest: maximum decompressed size of a frame in bytes. Larger frames are skipped.
    """
    while True:
        try:
            return read_documents_once(directory, partial, largest)
        except FileNotFoundError:  # a file was renamed meanwhile
            pass


def read_documents_once(directory: Path, partial: bool, largest: int | None) -> list[bytes]:
    options = {}
    if largest is not None:
        # After many large frames, the limits of the whole call must not refuse a small one.
        options = {
            "errors": "skip",
            "limits": Limits(inflated=largest, inflated_total=1 << 50, ratio_total=5000),
        }
    events = []
    for path in sorted(directory.iterdir(), key=lambda path: path.name.lstrip("_")):
        if path.name.startswith("_") and not partial:
            continue
        if path.suffix == ".parquet" and not path.name.startswith("_"):
            events += pyarrow.dataset.dataset(path).to_table(columns=["json"])["json"].to_pylist()
        elif path.suffix == ".lumberjack":
            events += [
                bytes(row.json) for row in lumberjack.events(lumberjack.scan(path), **options)
            ]
    return events


def list_names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


# --- received files


@pytest.mark.parametrize("kind", ["frames", "parquet"])
def test_sent_events_are_in_the_directory(tmp_path, kind):
    sent = make_documents(20_000)
    out = tmp_path / "out"
    suffix = {"frames": "lumberjack", "parquet": "parquet"}[kind]
    with start_receiver(out, "--as", kind, "--roll-bytes", 100_000, "--json") as receiver:
        with Client(*receiver.address, window=500) as client:
            client.send(sent)
        assert set(read_documents(out, partial=True)) <= set(sent)
        report = json.loads(receiver.stop())
    assert read_documents(out) == sent
    assert receiver.code == 0
    assert len(list_names(out)) == report["files"] > 3
    assert all(NAME.fullmatch(name)[2] == suffix for name in list_names(out))
    assert report["events"] == 20_000
    assert report["windows"] == 40
    assert report["connections"] == 1
    assert report["bytes"] == len(bytes(encode_batches(sent, window=500)))
    assert report["faults"] == 0
    if kind == "frames":
        assert run("verify", out, "--format", "lumberjack.events").exit_code == 0
    else:
        table = pyarrow.dataset.dataset(out).to_table()
        assert table["sequence"].to_pylist() == list(range(1, 501)) * 40
        assert set(table["version"].to_pylist()) == {2}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_receiver_cleanly(tmp_path, number):
    with start_receiver(tmp_path) as receiver:
        with Client(*receiver.address) as client:
            client.send(make_documents(3))
        out = receiver.stop(number)
    assert receiver.code == 0
    assert read_documents(tmp_path) == make_documents(3)
    assert re.fullmatch(
        rf"wrote {tmp_path}: 3 events, 57 bytes of 1 connection in 1 file and .* s\n", out
    )


@pytest.mark.slow
def test_files_roll_by_time_and_appear_when_they_are_complete(tmp_path):
    with (
        start_receiver(tmp_path, "--roll-seconds", 0.5) as receiver,
        Client(*receiver.address) as client,
    ):
        client.send(make_documents(3))
        client.flush()
        assert len(list_names(tmp_path)) == 1
        assert list_names(tmp_path)[0].startswith("_")
        assert read_documents(tmp_path, partial=True) == make_documents(3)
        # The file is completed without further events.
        assert wait_until(lambda: read_documents(tmp_path) == make_documents(3))
        client.send(make_documents(2, 3))
        client.flush()
        assert wait_until(
            lambda: read_documents(tmp_path) == make_documents(5) and len(list_names(tmp_path)) == 2
        )


def test_data_frames_to_parquet(tmp_path):
    options = ("--as", "parquet", "--columns", "version,pairs,json", "--compression", "snappy")
    with start_receiver(tmp_path, *options) as receiver:
        with Client(*receiver.address, version=1, level=3) as client:
            client.send([{"line": "a"}, {"line": "b", "host": "c"}])
        receiver.stop()
    table = pyarrow.dataset.dataset(tmp_path).to_table()
    assert table.column_names == ["version", "pairs", "json"]
    assert table.to_pylist() == [
        {"version": 1, "pairs": [{"key": b"line", "value": b"a"}], "json": None},
        {
            "version": 1,
            "pairs": [{"key": b"line", "value": b"b"}, {"key": b"host", "value": b"c"}],
            "json": None,
        },
    ]


@pytest.mark.slow
def test_zlib_data_without_its_checksum_reaches_parquet(tmp_path):
    """Zlib data without its Adler-32 is acked, so its events are written."""
    frame = encode_compressed(encode_json(1, b"{}"))
    cut = frame[:2] + (len(frame) - 10).to_bytes(4, "big") + frame[6:-4]
    with start_receiver(tmp_path, "--as", "parquet") as receiver:
        with socket.create_connection(receiver.address) as sock:
            sock.sendall(encode_window(1) + cut + encode_json(9, b"[]"))
            assert receive_bytes(sock, 12) == encode_ack(1) + encode_ack(9)
        receiver.stop()
    assert read_documents(tmp_path) == [b"{}", b"[]"]


# --- recovery


def make_window(count: int, first: int = 0):
    raw = encode_batch(make_documents(count, first))
    table = lumberjack.events(lumberjack.scan(raw))
    return SimpleNamespace(raw=(memoryview(raw),), events=table)


def write_leftover(
    directory: Path, data: bytes, number: int = 1, suffix: str = "lumberjack"
) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / f"_20260101T000000.000000Z-{number:06}.{suffix}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", ["frames", "parquet"])
@pytest.mark.parametrize(
    "torn", [b"", b"2", b"2W\0", encode_batch(make_documents(2, 3))[:-1], bytes(4096)]
)
def test_files_of_a_dead_process_are_recovered(tmp_path, kind, torn):
    write_leftover(tmp_path, encode_batch(make_documents(3)) + torn)
    write_leftover(tmp_path, b"PAR1", suffix="parquet")
    write_leftover(tmp_path, b"", number=2)
    with Spool(tmp_path, kind, 1 << 20, 60) as spool:
        spool.store([make_window(2, 3)])
    whole = (
        make_documents(5)
        if len(torn) in (0, 1, 3, 4096)
        else [*make_documents(3), *make_documents(1, 3), *make_documents(2, 3)]
    )
    assert read_documents(tmp_path) == whole
    assert not [name for name in list_names(tmp_path) if name.startswith("_")]
    assert len(list_names(tmp_path)) == 2


def test_frames_that_are_already_in_parquet_are_removed(tmp_path):
    with Spool(tmp_path, "parquet", 1, 60) as spool:
        spool.store([make_window(3)])
    (published,) = tmp_path.iterdir()
    (tmp_path / f"_{published.stem}.lumberjack").write_bytes(encode_batch(make_documents(3)))
    with Spool(tmp_path, "parquet", 1, 60):
        pass
    assert list(tmp_path.iterdir()) == [published]
    assert read_documents(tmp_path) == make_documents(3)


def test_a_damaged_file_is_not_changed(tmp_path):
    data = encode_batch(make_documents(3)) + b"garbage" + encode_batch(make_documents(3))
    path = write_leftover(tmp_path, data)
    position = len(encode_batch(make_documents(3)))
    message = f"no frame at byte {position}, and nothing was changed"
    with pytest.raises(Failure, match=message), Spool(tmp_path, "frames", 1, 60):
        pass
    assert path.read_bytes() == data
    assert list_names(tmp_path) == [path.name]


def test_other_files_are_not_changed(tmp_path):
    for name in (
        "_SUCCESS",
        "_orders.json",
        "notes.txt",
        ".hidden",
        "x.lumberjack",
        "_x.lumberjack",
    ):
        (tmp_path / name).write_text(name)
    before = list_names(tmp_path)
    with Spool(tmp_path, "frames", 1, 60) as spool:
        spool.store([make_window(1)])
    assert len(list_names(tmp_path)) == len(before) + 1
    assert all((tmp_path / name).read_text() == name for name in before)


def test_names_sort_though_the_clock_is_set_back(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "wirescan.cli.support.spool.time",
        SimpleNamespace(time=lambda: next(clock), monotonic=time.monotonic),
    )
    clock = iter([2e9, 1e9, 1e9, 1.5e9, 3e9])
    for first in range(0, 4, 2):
        with Spool(tmp_path, "frames", 1, 60) as spool:
            spool.store([make_window(1, first)])
            spool.store([make_window(1, first + 1)])
    assert read_documents(tmp_path) == make_documents(4)


def test_two_receivers_never_share_a_directory(tmp_path):
    with Spool(tmp_path, "frames", 1, 60):
        result = run("receive", "lumberjack", "--to", tmp_path, "--listen", "127.0.0.1:0", code=2)
        assert "another receiver writes to it" in result.stderr


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    write = os.writev
    free = 30

    def write_until_full(handle, views):
        nonlocal free
        if free <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = os.write(handle, b"".join(views)[:free])
        free -= written
        return written

    no_space = pytest.raises(OSError, match="No space")
    with no_space, Spool(tmp_path, "frames", 1 << 20, 60) as spool:
        spool.store([make_window(3)])
        monkeypatch.setattr(os, "writev", write_until_full)
        spool.store([make_window(3, 3)])
    monkeypatch.setattr(os, "writev", write)
    assert read_documents(tmp_path) == make_documents(3)  # without a torn frame
    assert not [name for name in list_names(tmp_path) if name.startswith("_")]


def test_writes_that_the_system_cuts_short(tmp_path, monkeypatch):
    rng = random.Random(5)
    write = os.writev

    def write_a_part(handle, views):
        return os.write(handle, b"".join(views)[: rng.randrange(1, 90)])

    monkeypatch.setattr(os, "writev", write_a_part)
    with Spool(tmp_path, "frames", 1 << 20, 60) as spool:
        spool.store([make_window(5, first) for first in range(0, 500, 5)])
    assert read_documents(tmp_path) == make_documents(500)
    assert spool.events == 500
    monkeypatch.setattr(os, "writev", write)
    # More buffers than one call of writev accepts.
    with Spool(tmp_path / "many", "frames", 1 << 20, 60) as spool:
        spool.store([make_window(1, first) for first in range(3000)])
    assert read_documents(tmp_path / "many") == make_documents(3000)


def test_a_failed_conversion_ends_the_run_and_loses_nothing(tmp_path, monkeypatch):
    def fail(*_, **options):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("wirescan.export.parquet.write", fail)
    failure = pytest.raises(OSError, match="Input/output")
    with failure, Spool(tmp_path, "parquet", 1, 60) as spool:
        spool.store([make_window(3)])
        assert wait_until(lambda: spool._error)
        spool.store([make_window(3)])
    monkeypatch.undo()
    with Spool(tmp_path, "parquet", 1, 60):
        pass
    assert read_documents(tmp_path) == make_documents(3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["frames", "parquet"])
def test_a_killed_receiver_loses_nothing_that_was_acked(tmp_path, kind):
    """One kill -9 while a writer waits for acks, and a part of its windows is on the disk."""
    sent = [b'{"n":%d,"text":"%s"}' % (number, b"x" * 200) for number in range(6000)]
    options = ("--as", kind, "--roll-bytes", 300_000)
    with (
        start_receiver(tmp_path, *options) as receiver,
        Client(*receiver.address, window=100, pipelining=4, attempts=1000) as client,
    ):
        client.send(sent[:3000])
        receiver.stop(signal.SIGKILL)
        acked = client.acknowledged  # windows are acked in order, so these are the first events
        with start_receiver(tmp_path, *options, port=receiver.address[1]) as second:
            assert acked > 0
            assert set(sent[:acked]) <= set(read_documents(tmp_path, partial=True))
            client.send(sent[3000:])
            client.flush()
            second.stop()
    assert client.acknowledged == len(sent)
    assert client.connections == 2
    assert second.code == 0
    received_documents = read_documents(tmp_path)
    assert set(received_documents) == set(sent)
    assert len(received_documents) <= len(sent) + 4 * 100
    assert not [name for name in list_names(tmp_path) if name.startswith("_")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["frames", "parquet"])
def test_kill_9_loses_nothing_that_was_acked(tmp_path, kind):
    """A receiver is killed repeatedly while a writer sends. Acked events are on the disk each time.

    Events that were not acked are sent again, so some may be stored twice.
    """
    rng = random.Random(kind)
    sent = [b'{"n":%d,"text":"%s"}' % (number, b"x" * 200) for number in range(60_000)]
    options = ("--as", kind, "--roll-bytes", 300_000)
    receiver = Receiver(tmp_path, *options)
    port = receiver.address[1]
    failure = []
    twice = threading.Event()  # set after two kills
    client = Client(*receiver.address, window=100, pipelining=4, attempts=1000)

    def write() -> None:
        try:
            with client:
                for first in range(0, len(sent), 1000):
                    if first == 50_000:
                        twice.wait(3 * PATIENCE)  # kills are slow on a busy machine
                    client.send(sent[first : first + 1000])
                    time.sleep(0.02)
        except BaseException as error:
            failure.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    kills = 0
    while writer.is_alive() and kills < 5:
        time.sleep(rng.uniform(0.1, 0.6))
        receiver.stop(signal.SIGKILL)
        kills += 1
        if kills == 2:
            twice.set()
        acked = client.acknowledged  # windows are acked in order, so these are the first events
        receiver = Receiver(tmp_path, *options, port=port)
        assert set(sent[:acked]) <= set(read_documents(tmp_path, partial=True))
    writer.join(3 * PATIENCE)
    receiver.stop()
    assert not failure
    assert client.acknowledged == len(sent)
    assert kills >= 2
    assert client.connections > 1
    received_documents = read_documents(tmp_path)
    assert set(received_documents) == set(sent)
    assert len(received_documents) < len(sent) + client.connections * 4 * 100
    assert not [name for name in list_names(tmp_path) if name.startswith("_")]
    assert receiver.code == 0


# --- hostile writers


def write_hostile_bytes(kind: int, sock: socket.socket, stop: threading.Event) -> None:
    """Send hostile bytes of one kind until the connection is closed."""
    largest = encode_window((1 << 32) - 1)

    def forever(data: bytes) -> None:
        while not stop.is_set():
            sock.sendall(data)

    def drip(data: bytes) -> None:
        for i in range(len(data)):
            sock.sendall(data[i : i + 1])
            if stop.wait(0.02):
                return

    [
        lambda: drip(encode_window(9) + encode_json(1, b'"%s"' % (b"x" * 10_000))),
        lambda: drip(
            encode_window(9)
            + encode_data(1, {b"key %d" % number: b"value" for number in range(1000)})
        ),
        lambda: forever(largest + BOMB),
        lambda: sock.sendall(encode_window(1) + encode_compressed(BOMB)),
        lambda: sock.sendall(encode_window(1) + random.Random(kind).randbytes(50_000)),
        lambda: sock.sendall(encode_window(1) + b"2J\0\0\0\1\xff\xff\xff\xff"),
        lambda: sock.sendall(encode_window(1) + b"2C\xff\xff\xff\xff"),
        lambda: (
            sock.sendall(encode_window(1) + b"2J\0\0\0\1\0\x3f\xff\xff"),
            forever(bytes(100_000)),
        ),
        lambda: sock.sendall(largest),
        lambda: forever(encode_window(0) * 10_000),
        lambda: sock.sendall(encode_compressed(encode_window(0) * 100_000)),
    ][kind % 11]()
    stop.wait(2)


BOMB = encode_compressed(encode_json(1, b'"%s"' % (b" " * (40 << 20))), level=9)


@pytest.mark.parametrize(
    "writers, events, warm_up",
    [
        pytest.param(11, 2000, 0.1, id="one of each kind", marks=pytest.mark.slow),
        pytest.param(200, 5_000, 1, id="200", marks=[pytest.mark.slow, pytest.mark.nightly]),
    ],
)
def test_hostile_writers_do_not_disturb_a_good_one(tmp_path, capsys, writers, events, warm_up):
    """A good writer is served among hostile ones, and memory stays near the limits of `Bounds`."""
    stop = threading.Event()
    served = []
    # On a slow machine connections whose writer has gone wait to be closed, so there may be many
    # more connections than writers.
    with start_receiver(tmp_path, "--max-connections", 5 * writers, "--json") as receiver:
        before = receiver.peak

        def attack(number: int) -> None:
            while not stop.is_set():
                try:
                    with socket.create_connection(receiver.address, 5) as sock:
                        sock.settimeout(5)
                        write_hostile_bytes(number, sock, stop)
                except OSError:
                    pass

        threads = [threading.Thread(target=attack, args=(number,)) for number in range(writers)]
        for thread in threads:
            thread.start()
        try:
            time.sleep(warm_up)
            begun = time.monotonic()
            # On a slow machine an ack may take longer than the client waits by default.
            with Client(*receiver.address, window=500, timeout=120) as client:
                for first in range(0, events, 500):
                    client.send([b'{"good":%d}' % number for number in range(first, first + 500)])
            took = time.monotonic() - begun
        finally:
            # Without this, the threads of a failed test would run until the process is killed.
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)
        peak = receiver.peak
        served += [
            document
            for document in read_documents(tmp_path, partial=True, largest=1 << 20)
            if document.startswith(b'{"good"')
        ]
        report = json.loads(receiver.stop())
    assert served == [b'{"good":%d}' % number for number in range(events)]
    assert client.connections == 1
    assert receiver.code == 0
    assert report["refused"] > writers * 0.4
    memory = f"at most {peak >> 20} MiB, {before >> 20} before"
    with capsys.disabled():
        print(f" [{events:,} events in {took:.1f} s, {memory}]", end="")
    assert peak < 700 << 20
    closed_lines = sum(" closed: " in line for line in receiver.lines)
    assert closed_lines < 5 * (took + 30)  # at most 5 lines a second


def test_messages_are_limited(capsys, monkeypatch):
    now = 100.0
    monkeypatch.setattr("wirescan.cli.verbs.receive.time", SimpleNamespace(monotonic=lambda: now))
    lines = MessageLimiter()
    for number in range(8):
        lines(f"line {number}\x1b")
    now = 101.5
    lines("later")
    output = capsys.readouterr().err.splitlines()
    assert output[:5] == [f"wirescan: line {number}\\x1b" for number in range(5)]
    assert output[5:] == ["wirescan: 3 more lines like these", "wirescan: later"]


def test_other_protocols_are_named(tmp_path):
    with start_receiver(tmp_path) as receiver:
        with socket.create_connection(receiver.address) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert sock.recv(1) == b""
        assert wait_until(lambda: any("the peer speaks HTTP" in line for line in receiver.lines))


# --- TLS


@pytest.mark.slow
def test_tls_needs_a_trusted_certificate(tmp_path):
    pair = ("--tls", TLS / "server.pem", TLS / "server.key")
    lines = tmp_path / "lines"
    lines.write_text("one\n")
    with start_receiver(tmp_path / "out", *pair, "--client-ca", TLS / "authority.pem") as receiver:
        trust = ("--lines", "text", "--tls-ca", TLS / "authority.pem")
        send(receiver.address, lines, *trust, "--tls-cert", TLS / "client.pem", TLS / "client.key")
        send(receiver.address, lines, *trust, "--attempts", 1, code=2)
        result = send(receiver.address, lines, "--lines", "text", "--tls", code=2)
        assert "TLS with" in result.stderr
        assert "events acked before: 0" in result.stderr
        receiver.stop()
    assert read_documents(tmp_path / "out") == [b'{"message":"one"}']


@pytest.mark.parametrize(
    "files", [("missing", "server.key"), ("server.pem", "client.key"), ("server.key", "server.key")]
)
def test_tls_files_that_do_not_fit(tmp_path, files):
    result = run(
        "receive", "lumberjack", "--to", tmp_path, "--tls", *(TLS / name for name in files), code=2
    )
    assert result.stderr.startswith("wirescan: TLS: ")
    lines = tmp_path / "lines"
    lines.write_text("one\n")
    certificate = ("--tls-cert", *(TLS / name for name in files))
    result = run(
        "send", "lumberjack", "127.0.0.1:1", lines, "--lines", "text", *certificate, code=2
    )
    assert result.stderr.startswith("wirescan: TLS: ")


# --- wirescan send


def test_frames_are_sent_again(tmp_path):
    """A capture is sent in other windows: only the sequence numbers of the frames change.

    The capture has both versions, with and without compression.
    """
    path = tmp_path / "capture.lumberjack"
    path.write_bytes(
        encode_batch(make_documents(7))
        + encode_batch(make_documents(5, 7), level=3)
        + encode_batch([{"a": "b"}] * 3, version=1)
        + encode_batch(make_documents(4, 12))
        + b"2W\0"
    )
    with ServerThread() as running:
        result = send(running.address, path, "--window", 5, "--json")
        assert json.loads(result.stdout)["events"] == 19
        assert "cut frame" in result.stderr
        tables = [lumberjack.scan(raw) for raw in running.stored]
        assert [table["count"][0] for table in tables] == [5, 5, 2, 3, 4]
        assert [table["version"][0] for table in tables] == [2, 2, 2, 1, 2]
        assert [chr(table["kind"][1]) for table in tables] == ["J", "J", "J", "D", "J"]
        sequences = [[*range(1, n + 1)] for n in (5, 5, 2, 3, 4)]
        assert [list(table["sequence"][1:]) for table in tables] == sequences
    with ServerThread() as running:
        send(running.address, path, "--compress", 9, "--version", 2)
        kinds = [chr(kind) for raw in running.stored for kind in lumberjack.scan(raw)["kind"]]
        assert kinds == ["W", "C"] * 3
        events = lumberjack.events(lumberjack.scan(b"".join(running.stored)))
        assert set(events["version"]) == {2}
        assert len(events) == 19


def test_files_of_receive_are_sent(tmp_path):
    sent = make_documents(3000)
    for number, first in enumerate(range(0, 3000, 1000)):
        path = tmp_path / f"20260101T000000.000000Z-{number:06}.lumberjack"
        path.write_bytes(encode_batches(sent[first : first + 1000], window=300))
    with ServerThread() as running:
        result = send(running.address, tmp_path)
        assert running.documents == sent
        assert result.stdout.startswith("sent 3,000 events of 3 files, ")


def test_send_refuses_damaged_frames(tmp_path):
    path = tmp_path / "x.lumberjack"
    path.write_bytes(encode_batch(make_documents(3)) + b"garbage")
    with ServerThread() as running:
        result = send(running.address, path, code=1)
        assert "NOT_A_FRAME" in result.stderr
        assert "events acked before: 3" in result.stderr
        result = send(running.address, path, "--errors", "skip")
        assert running.documents[-3:] == make_documents(3)
        assert "1 bad frame dropped" in result.stderr


def test_send_reads_lines_of_text(tmp_path):
    path = tmp_path / "access.log"
    path.write_bytes('one "quoted"\r\n\ntwo é\n\xff\n'.encode("latin-1") + b"last, without an end")
    expected = ['one "quoted"', "two \ufffd", "\ufffd", "last, without an end"]
    with ServerThread() as running:
        send(running.address, path, "--lines", "text")
        assert [json.loads(document)["message"] for document in running.documents] == expected
    with ServerThread() as running:
        send(running.address, "-", "--lines", "text", "--version", 1, input=path.read_bytes())
        events = lumberjack.events(lumberjack.scan(b"".join(running.stored)))
        values = [bytes(value) for row in events for _, value in row.pairs]
        assert values == [b'one "quoted"', b"two \xe9", b"\xff", b"last, without an end"]


def test_send_reads_lines_of_json(tmp_path, monkeypatch):
    monkeypatch.setattr("wirescan.cli.verbs.send.PIECE", 7)
    path = tmp_path / "events.json"
    path.write_bytes(b'{"a": 1}\n\n {"b":"\\n"}\r\n[1]\n{"c":\n{}')
    with ServerThread() as running:
        result = send(running.address, path, "--lines", "json", code=1)
        assert "line 4 is no JSON object: [1]" in result.stderr
        result = send(running.address, path, "--lines", "json", "--errors", "skip")
        assert running.documents[-3:] == [b'{"a": 1}', b' {"b":"\\n"}', b"{}"]
        assert "2 lines dropped" in result.stderr
    monkeypatch.setattr("wirescan.cli.support.line_blocks.LONGEST_LINE", 100)
    path.write_bytes(b'{}\n{"' + b"x" * 200)
    with ServerThread() as running:
        result = send(running.address, path, "--lines", "json", code=1)
        assert "line 2 has more than 100 bytes" in result.stderr


@pytest.mark.parametrize(
    "line, is_sent",
    [
        (b'{"a":' + b"1" * 5000 + b"}", True),
        (b'{"a":NaN}', False),
        (b'{"a":[-Infinity]}', False),
        (b'\xef\xbb\xbf{"a":1}', False),
        ('{"a":1}'.encode("utf-16-le"), False),
        (b'{"a":"\xff"}', False),
        (b'{"a":"\xed\xa0\x80"}', False),
    ],
    ids=("a long number", "NaN", "infinity", "a BOM", "UTF-16", "no UTF-8", "a surrogate"),
)
def test_send_refuses_lines_that_are_no_json_in_utf_8(tmp_path, line, is_sent):
    """A strict receiver would close the connection, again after each attempt."""
    path = tmp_path / "events.json"
    path.write_bytes(line)
    with ServerThread() as running:
        result = send(running.address, path, "--lines", "json", code=0 if is_sent else 1)
        assert running.documents == [line] * is_sent
        assert ("line 1 is no JSON object: " in result.stderr) != is_sent


def test_large_files_are_sent_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("wirescan.cli.verbs.send.PIECE", 1000)
    path = tmp_path / "large.lumberjack"
    sent = make_documents(5000)
    path.write_bytes(encode_batches(sent, window=64, level=1))
    with ServerThread() as running:
        send(running.address, path, "--window", 10)
        assert running.documents == sent


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("receive", "lumberjack"), "--to"),
        (("receive", "kafka", "--to", "x"), "lumberjack"),
        (("receive", "lumberjack", "--to", "x", "--listen", "5044"), "is not HOST:PORT"),
        (("receive", "lumberjack", "--to", "x", "--listen", "::1:5044"), "is not HOST:PORT"),
        (("receive", "lumberjack", "--to", "x", "--listen", "127.0.0.1:70000"), "is not HOST:PORT"),
        (("receive", "lumberjack", "--to", "x", "--columns", "json"), "--as parquet"),
        (
            ("receive", "lumberjack", "--to", "x", "--as", "parquet", "--columns", "no"),
            "there is no column 'no'",
        ),
        (("receive", "lumberjack", "--to", "x", "--client-ca", "y"), "is for --tls"),
        (("receive", "lumberjack", "--to", __file__), "exists"),
        (("receive", "lumberjack", "--to", "x", "--listen", "a..b:1"), "is no name of a host"),
        (("send", "lumberjack", "localhost", __file__), "is not HOST:PORT"),
        (("send", "lumberjack", "a..b:1", __file__), "'a..b' is no name of a host"),
        (("send", "lumberjack", "127.0.0.1:1", "missing"), "no such file"),
        (
            ("send", "lumberjack", "127.0.0.1:1", __file__, "--lines", "json", "--version", "1"),
            "is for version 2",
        ),
        (
            ("send", "lumberjack", "127.0.0.1:1", __file__, "--lines", "text", "--attempts", 2),
            "acks nothing, after 2",
        ),
    ],
)
def test_unfit_arguments_of_receive_and_send(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in run(*arguments, code=2).stderr


def test_a_port_in_use_is_reported(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = run(
            "receive", "lumberjack", "--to", tmp_path, "--listen", f"127.0.0.1:{port}", code=2
        )
        assert "in use" in result.stderr
        assert list_names(tmp_path) == []


@pytest.mark.slow
def test_a_terminal_shows_totals(tmp_path):
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "wirescan",
        "receive",
        "lumberjack",
        "--to",
        tmp_path,
        "--listen",
        "127.0.0.1:0",
    ]
    process = subprocess.Popen(
        command,
        stderr=theirs,
        stdout=theirs,
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(theirs)
    output: list[str] = []

    def read_terminal() -> None:
        with suppress(OSError):  # the end of a terminal
            while data := os.read(ours, 1 << 16):
                output.append(data.decode(errors="replace"))

    reader = threading.Thread(target=read_terminal)
    reader.start()
    try:
        assert wait_until(lambda: "listening on" in "".join(output))
        port = int(re.search(r"listening on 127.0.0.1:(\d+)", "".join(output))[1])
        with Client("127.0.0.1", port) as client:
            client.send(make_documents(1234))
            client.flush()
            assert wait_until(lambda: "1 connection, 1,234 events, " in "".join(output))
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(b"SSH-2.0-x\r\n")
            assert wait_until(
                lambda: "\nwirescan: 127.0.0.1" in re.sub(r"\x1b\[2K|\r", "\n", "".join(output))
            )
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
        reader.join(PATIENCE)
        os.close(ours)
    assert "1,234 events, " in "".join(output).splitlines()[-1]
    assert process.returncode == 0


# --- errors of the directory


@pytest.mark.slow
@pytest.mark.parametrize("kind, option", [("frames", "--max-frame"), ("parquet", "--max-inflated")])
def test_recovery_keeps_frames_of_an_earlier_run_with_larger_limits(tmp_path, kind, option):
    large = b'"%s"' % (b" " * 2_000_000)
    write_leftover(
        tmp_path,
        encode_window(2)
        + encode_compressed(encode_json(1, b"{}") + encode_json(2, large))
        + encode_window(1)
        + encode_json(1, large),
    )
    with start_receiver(tmp_path, "--as", kind, option, 1 << 20) as receiver:
        with Client(*receiver.address) as client:
            client.send(make_documents(1))
        receiver.stop()
    assert receiver.code == 0
    assert read_documents(tmp_path) == [b"{}", large, large, *make_documents(1)]
    suffix = ".lumberjack" if kind == "frames" else ".parquet"
    assert {Path(name).suffix for name in list_names(tmp_path)} == {suffix}


@pytest.mark.parametrize("recovered", [False, True])
def test_frames_stay_if_some_cannot_be_read_again(tmp_path, capsys, recovered):
    """Events after them are still received."""
    damaged = bytearray(encode_compressed(encode_json(2, b"[]"), level=6))
    damaged[-1] ^= 1
    raw = encode_batch(make_documents(2)) + encode_window(1) + bytes(damaged)
    if recovered:
        write_leftover(tmp_path, raw)
    with Spool(tmp_path, "parquet", 1, 60) as spool:
        if not recovered:
            spool.store([SimpleNamespace(raw=(memoryview(raw),), events=make_documents(3))])
        spool.store([make_window(3, 2)])
    first, second = sorted(tmp_path.iterdir())
    assert first.suffix == ".lumberjack"
    assert first.read_bytes() == raw
    assert second.suffix == ".parquet"
    assert not first.name.startswith("_")
    assert pyarrow.dataset.dataset(second).to_table()["json"].to_pylist() == make_documents(3, 2)
    assert f"{first.name}: frames stay as they came" in capsys.readouterr().err
    assert spool.files == 2
    assert spool.faults == 1


def test_a_removed_directory_is_reported_before_any_ack(tmp_path):
    removed = pytest.raises(OSError, match=r"it was removed while it was written to.*\.lumberjack")
    with removed, Spool(tmp_path / "out", "frames", 1 << 20, 60) as spool:
        spool.store([make_window(3)])
        shutil.rmtree(tmp_path / "out")
        spool.store([make_window(3, 3)])
    assert spool.events == 3


@pytest.mark.parametrize("kind", ["frames", "parquet"])
def test_a_first_write_that_fails_leaves_no_file(tmp_path, monkeypatch, kind):
    def refuse(handle, views):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "writev", refuse)
    no_space = pytest.raises(OSError, match=r"No space left on device.*_.*\.lumberjack")
    with no_space, Spool(tmp_path, kind, 1 << 20, 60) as spool:
        spool.store([make_window(3)])
    assert list_names(tmp_path) == []
    assert spool.files == 0


def test_a_truncation_is_on_the_disk_before_the_rename(tmp_path, monkeypatch):
    path = write_leftover(tmp_path, encode_batch(make_documents(3)) + b"2W")
    calls = []
    inode = path.stat().st_ino
    fsync = os.fsync
    rename = os.rename

    def note_sync(handle):
        if os.fstat(handle).st_ino == inode:
            calls.append(os.fstat(handle).st_size)
        fsync(handle)

    def note_rename(old, new):
        calls.append("rename")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "rename", note_rename)
    with Spool(tmp_path, "frames", 1 << 20, 60):
        pass
    assert calls == [len(encode_batch(make_documents(3))), "rename"]


def trace_system_calls(monkeypatch) -> list[str]:
    """Return a list that gets each write, sync, rename and removal from now on.

    An item has the name of the call and the name of its file.
    """
    calls: list[str] = []

    def trace(name: str, name_file):
        original = getattr(os, name)

        def call(*arguments, **options):
            calls.append(f"{name} {Path(name_file(*arguments)).name}")
            return original(*arguments, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("writev", "fdatasync", "fsync"):
        trace(name, lambda handle, *_: os.readlink(f"/proc/self/fd/{handle}"))
    trace("rename", lambda old, new: new)
    trace("unlink", lambda path: path)
    return calls


def test_frames_are_on_the_disk_before_they_are_acknowledged(tmp_path, monkeypatch):
    calls = trace_system_calls(monkeypatch)
    with Spool(tmp_path / "outer" / "inner", "frames", 1 << 20, 60) as spool:
        # The parents of the new directories are synced, then the recovered directory itself.
        assert sorted(calls[:2]) == sorted(["fsync outer", f"fsync {tmp_path.name}"])
        assert calls[2:] == ["fsync inner"]
        calls.clear()
        spool.store([make_window(3)])
        calls.append("acknowledged")
    (name,) = list_names(tmp_path / "outer" / "inner")
    kept_first = ["fsync inner", f"writev _{name}", f"fdatasync _{name}", "acknowledged"]
    assert calls == [*kept_first, f"rename {name}", "fsync inner"]


def test_parquet_is_on_the_disk_before_its_frames_are_removed(tmp_path, monkeypatch):
    calls = trace_system_calls(monkeypatch)
    directory = tmp_path / "out"
    with Spool(directory, "parquet", 1 << 20, 60) as spool:
        spool.store([make_window(3)])
        calls.clear()
    (name,) = list_names(directory)
    frames = f"_{Path(name).stem}.lumberjack"
    assert calls == [
        f"fsync _{name}",
        f"rename {name}",
        "fsync out",
        f"unlink {frames}",
        "fsync out",
    ]


@pytest.mark.parametrize("kind", ["frames", "parquet"])
def test_one_trace_from_the_writer_to_the_published_file(tmp_path, monkeypatch, kind):
    """The order of write, sync, ack, rename and removal, over a real connection."""
    calls = trace_system_calls(monkeypatch)
    send = socket.socket.send

    def note_ack(sock, data, *flags):
        if bytes(data) == encode_ack(3):
            calls.append("send ack")
        return send(sock, data, *flags)

    monkeypatch.setattr(socket.socket, "send", note_ack)
    directory = tmp_path / "out"
    with Spool(directory, kind, 1 << 20, 60) as spool:
        calls.clear()
        with ServerThread(spool.store) as running, running.client() as client:
            client.send(make_documents(3))
        assert running.error is None
    (name,) = list_names(directory)
    frames = f"_{Path(name).stem}.lumberjack"
    kept_first = ["fsync out", f"writev {frames}", f"fdatasync {frames}", "send ack"]
    published = {
        "frames": [f"rename {name}", "fsync out"],
        "parquet": [
            f"fsync _{name}",
            f"rename {name}",
            "fsync out",
            f"unlink {frames}",
            "fsync out",
        ],
    }
    assert calls == kept_first + published[kind]


def test_frames_stay_where_parquet_has_fewer_events(tmp_path, monkeypatch):
    from wirescan.export import parquet

    write = parquet.write

    def write_fewer(*arguments, **options):
        result = write(*arguments, **options)
        return replace(result, records=result.records - 1)

    monkeypatch.setattr(parquet, "write", write_fewer)
    with Spool(tmp_path, "parquet", 1 << 20, 60) as spool:
        spool.store([make_window(3)])
    (name,) = list_names(tmp_path)
    assert name.endswith(".lumberjack")
