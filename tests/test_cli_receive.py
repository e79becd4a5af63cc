"""`wirescan receive` and `wirescan send`: what is left in the directory whatever happens, and what they tell."""
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
from test_lumberjack_live import PATIENCE, TLS, Running, documents, eventually, received
from wirescan import lumberjack
from wirescan.cli import main
from wirescan.cli.common import Failure
from wirescan.cli.receive import Lines
from wirescan.cli.spool import NAME, Spool
from wirescan.lumberjack.client import Client
from wirescan.lumberjack.encode import (
    encode_ack, encode_batch, encode_batches, encode_compressed, encode_data, encode_json, encode_window)

PACKAGE = Path(wirescan.__file__).parents[1]


class Receiver:
    """`wirescan receive` in a process of its own."""

    def __init__(self, directory: Path, *arguments: object, port: int = 0):
        command = [sys.executable, "-m", "wirescan", "receive", "lumberjack", "--to", str(directory), "--listen",
                   f"127.0.0.1:{port}", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "PYTHONPATH": str(PACKAGE)})
        self.lines: list[str] = []
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.fullmatch(r"wirescan: listening on (.*):(\d+)\n", line):
                self.address = found[1], int(found[2])
                break
        else:
            raise AssertionError("".join(self.lines))
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr))
        self._reader.start()

    def stop(self, number: int = signal.SIGTERM) -> str:
        """What it printed, at its end."""
        self.process.send_signal(number)
        out = self.process.stdout.read()
        self.code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()
        return out

    @property
    def peak(self) -> int:
        """Bytes of memory that it had at the most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


@contextmanager
def receiving(directory: Path, *arguments: object, port: int = 0):
    receiver = Receiver(directory, *arguments, port=port)
    try:
        yield receiver
    finally:
        if receiver.process.poll() is None:
            receiver.stop(signal.SIGKILL)


def run(*arguments: object, code: int = 0, **options):
    done = CliRunner().invoke(main, [*map(str, arguments)], **options)
    assert done.exit_code == code, (done.output, done.exception)
    return done


def send(address: tuple[str, int], *arguments: object, **options):
    return run("send", "lumberjack", f"{address[0]}:{address[1]}", *arguments, **options)


def kept(directory: Path, partial: bool = False) -> list[bytes]:
    """The JSON texts in a directory, in the order of file names; those in files that are not complete too, or not."""
    while True:
        try:
            return kept_now(directory, partial)
        except FileNotFoundError:                   # one got its name, meanwhile
            pass


def kept_now(directory: Path, partial: bool) -> list[bytes]:
    found = []
    for path in sorted(directory.iterdir(), key=lambda path: path.name.lstrip("_")):
        if path.name.startswith("_") and not partial:
            continue
        if path.suffix == ".parquet" and not path.name.startswith("_"):
            found += pyarrow.dataset.dataset(path).to_table(columns=["json"])["json"].to_pylist()
        elif path.suffix == ".lumberjack":
            found += [bytes(row.json) for row in lumberjack.events(lumberjack.scan(path))]
    return found


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


# --- what is left ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["frames", "parquet"])
def test_what_is_sent_is_in_the_directory(tmp_path, kind):
    sent, out = documents(20_000), tmp_path / "out"
    with receiving(out, "--as", kind, "--roll-bytes", 100_000, "--json") as receiver:
        with Client(*receiver.address, window=500) as client:
            client.send(sent)
        assert set(kept(out, partial=True)) <= set(sent)
        report = json.loads(receiver.stop())
    assert kept(out) == sent and receiver.code == 0
    assert len(names(out)) == report["files"] > 3
    assert all(NAME.fullmatch(name)[2] == {"frames": "lumberjack", "parquet": "parquet"}[kind] for name in names(out))
    assert report["events"] == 20_000 and report["windows"] == 40 and report["connections"] == 1
    assert report["bytes"] == len(bytes(encode_batches(sent, window=500))) and report["faults"] == 0
    if kind == "frames":
        assert run("verify", out, "--format", "lumberjack.events").exit_code == 0
    else:
        table = pyarrow.dataset.dataset(out).to_table()
        assert table["sequence"].to_pylist() == list(range(1, 501)) * 40 and set(table["version"].to_pylist()) == {2}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_well(tmp_path, number):
    with receiving(tmp_path) as receiver:
        with Client(*receiver.address) as client:
            client.send(documents(3))
        out = receiver.stop(number)
    assert receiver.code == 0 and kept(tmp_path) == documents(3)
    assert re.fullmatch(rf"wrote {tmp_path}: 3 events, 57 bytes of 1 connection in 1 file and .* s\n", out)


def test_files_roll_by_time_and_appear_when_they_are_complete(tmp_path):
    with receiving(tmp_path, "--roll-seconds", 0.5) as receiver, Client(*receiver.address) as client:
        client.send(documents(3))
        client.flush()
        assert len(names(tmp_path)) == 1 and names(tmp_path)[0].startswith("_") and kept(tmp_path, True) == documents(3)
        assert eventually(lambda: kept(tmp_path) == documents(3))           # though nothing more comes
        client.send(documents(2, 3))
        client.flush()
        assert eventually(lambda: kept(tmp_path) == documents(5) and len(names(tmp_path)) == 2)


def test_data_frames_to_parquet(tmp_path):
    options = ("--as", "parquet", "--columns", "version,pairs,json", "--compression", "snappy")
    with receiving(tmp_path, *options) as receiver:
        with Client(*receiver.address, version=1, level=3) as client:
            client.send([{"line": "a"}, {"line": "b", "host": "c"}])
        receiver.stop()
    table = pyarrow.dataset.dataset(tmp_path).to_table()
    assert table.column_names == ["version", "pairs", "json"]
    assert table.to_pylist() == [
        {"version": 1, "pairs": [{"key": b"line", "value": b"a"}], "json": None},
        {"version": 1, "pairs": [{"key": b"line", "value": b"b"}, {"key": b"host", "value": b"c"}], "json": None}]


def test_what_only_some_readers_take_reaches_parquet(tmp_path):
    """Zlib data without its Adler-32 is acked, so its events are there."""
    frame = encode_compressed(encode_json(1, b"{}"))
    cut = frame[:2] + (len(frame) - 10).to_bytes(4, "big") + frame[6:-4]
    with receiving(tmp_path, "--as", "parquet") as receiver:
        with socket.create_connection(receiver.address) as sock:
            sock.sendall(encode_window(1) + cut + encode_json(9, b"[]"))
            assert received(sock, 12) == encode_ack(1) + encode_ack(9)
        receiver.stop()
    assert kept(tmp_path) == [b"{}", b"[]"]


# --- recovery -------------------------------------------------------------------------------------------------


def window(count: int, first: int = 0):
    raw = encode_batch(documents(count, first))
    table = lumberjack.events(lumberjack.scan(raw))
    return SimpleNamespace(raw=(memoryview(raw),), events=table)


def left_behind(directory: Path, data: bytes, number: int = 1, suffix: str = "lumberjack") -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / f"_20260101T000000.000000Z-{number:06}.{suffix}"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", ["frames", "parquet"])
@pytest.mark.parametrize("torn", [b"", b"2", b"2W\0", encode_batch(documents(2, 3))[:-1], bytes(4096)])
def test_what_a_process_left_that_died(tmp_path, kind, torn):
    left_behind(tmp_path, encode_batch(documents(3)) + torn)
    left_behind(tmp_path, b"PAR1", suffix="parquet")
    left_behind(tmp_path, b"", number=2)
    with Spool(tmp_path, kind, 1 << 20, 60) as spool:
        spool.keep([window(2, 3)])
    whole = documents(5) if len(torn) in (0, 1, 3, 4096) else [*documents(3), *documents(1, 3), *documents(2, 3)]
    assert kept(tmp_path) == whole
    assert not [name for name in names(tmp_path) if name.startswith("_")] and len(names(tmp_path)) == 2


def test_a_spool_whose_parquet_is_there_is_removed(tmp_path):
    with Spool(tmp_path, "parquet", 1, 60) as spool:
        spool.keep([window(3)])
    (done,) = tmp_path.iterdir()
    (tmp_path / f"_{done.stem}.lumberjack").write_bytes(encode_batch(documents(3)))
    with Spool(tmp_path, "parquet", 1, 60):
        pass
    assert list(tmp_path.iterdir()) == [done] and kept(tmp_path) == documents(3)


def test_what_is_damaged_is_not_touched(tmp_path):
    data = encode_batch(documents(3)) + b"garbage" + encode_batch(documents(3))
    path = left_behind(tmp_path, data)
    with pytest.raises(Failure, match=f"no frame at byte {len(encode_batch(documents(3)))}, and nothing was changed"):
        with Spool(tmp_path, "frames", 1, 60):
            pass
    assert path.read_bytes() == data and names(tmp_path) == [path.name]


def test_other_files_are_left_alone(tmp_path):
    for name in ("_SUCCESS", "_orders.json", "notes.txt", ".hidden", "x.lumberjack", "_x.lumberjack"):
        (tmp_path / name).write_text(name)
    before = names(tmp_path)
    with Spool(tmp_path, "frames", 1, 60) as spool:
        spool.keep([window(1)])
    assert len(names(tmp_path)) == len(before) + 1 and all((tmp_path / name).read_text() == name for name in before)


def test_names_sort_though_the_clock_is_set_back(tmp_path, monkeypatch):
    monkeypatch.setattr("wirescan.cli.spool.time", SimpleNamespace(time=lambda: next(clock), monotonic=time.monotonic))
    clock = iter([2e9, 1e9, 1e9, 1.5e9, 3e9])
    for first in range(0, 4, 2):
        with Spool(tmp_path, "frames", 1, 60) as spool:
            spool.keep([window(1, first)])
            spool.keep([window(1, first + 1)])
    assert kept(tmp_path) == documents(4)


def test_two_receivers_never_share_a_directory(tmp_path):
    with Spool(tmp_path, "frames", 1, 60):
        done = run("receive", "lumberjack", "--to", tmp_path, "--listen", "127.0.0.1:0", code=2)
        assert "another receiver writes to it" in done.stderr


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    write, room = os.writev, 30

    def full(handle, views):
        nonlocal room
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        done = os.write(handle, b"".join(views)[:room])
        room -= done
        return done

    with pytest.raises(OSError, match="No space"):
        with Spool(tmp_path, "frames", 1 << 20, 60) as spool:
            spool.keep([window(3)])
            monkeypatch.setattr(os, "writev", full)
            spool.keep([window(3, 3)])
    monkeypatch.setattr(os, "writev", write)
    assert kept(tmp_path) == documents(3)           # and no torn frame
    assert not [name for name in names(tmp_path) if name.startswith("_")]


def test_writes_that_the_system_cuts_short(tmp_path, monkeypatch):
    rng, write = random.Random(5), os.writev
    monkeypatch.setattr(os, "writev", lambda handle, views: os.write(handle, b"".join(views)[:rng.randrange(1, 90)]))
    with Spool(tmp_path, "frames", 1 << 20, 60) as spool:
        spool.keep([window(5, first) for first in range(0, 500, 5)])
    assert kept(tmp_path) == documents(500) and spool.events == 500
    monkeypatch.setattr(os, "writev", write)
    with Spool(tmp_path / "many", "frames", 1 << 20, 60) as spool:          # more than one call takes
        spool.keep([window(1, first) for first in range(3000)])
    assert kept(tmp_path / "many") == documents(3000)


def test_a_conversion_that_fails_ends_it_and_loses_nothing(tmp_path, monkeypatch):
    def fail(*_, **options):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("wirescan.parquet.write", fail)
    with pytest.raises(OSError, match="Input/output"):
        with Spool(tmp_path, "parquet", 1, 60) as spool:
            spool.keep([window(3)])
            assert eventually(lambda: spool._error)
            spool.keep([window(3)])
    monkeypatch.undo()
    with Spool(tmp_path, "parquet", 1, 60):
        pass
    assert kept(tmp_path) == documents(3)


@pytest.mark.parametrize("kind", ["frames", "parquet"])
def test_a_killed_receiver_loses_nothing_that_was_acked(tmp_path, kind):
    """One kill -9 while a writer waits for acks of its last windows, one part of them on the disk."""
    sent = [b'{"n":%d,"text":"%s"}' % (number, b"x" * 200) for number in range(6000)]
    options = ("--as", kind, "--roll-bytes", 300_000)
    with receiving(tmp_path, *options) as receiver:
        with Client(*receiver.address, window=100, pipelining=4, attempts=1000) as client:
            client.send(sent[:3000])
            receiver.stop(signal.SIGKILL)
            acked = client.acknowledged             # windows are acked in order, so these are the first events
            with receiving(tmp_path, *options, port=receiver.address[1]) as second:
                assert 0 < acked and set(sent[:acked]) <= set(kept(tmp_path, partial=True))
                client.send(sent[3000:])
                client.flush()
                second.stop()
    assert client.acknowledged == len(sent) and client.connections == 2 and second.code == 0
    found = kept(tmp_path)
    assert set(found) == set(sent) and len(found) <= len(sent) + 4 * 100
    assert not [name for name in names(tmp_path) if name.startswith("_")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["frames", "parquet"])
def test_kill_9_loses_nothing_that_was_acked(tmp_path, kind):
    """A receiver is killed again and again while a writer sends; what was acked is there each time."""
    rng, sent = random.Random(kind), [b'{"n":%d,"text":"%s"}' % (number, b"x" * 200) for number in range(60_000)]
    options = ("--as", kind, "--roll-bytes", 300_000)
    receiver = Receiver(tmp_path, *options)
    port, failure, twice = receiver.address[1], [], threading.Event()
    client = Client(*receiver.address, window=100, pipelining=4, attempts=1000)

    def write() -> None:
        try:
            with client:
                for first in range(0, len(sent), 1000):
                    if first == 50_000:
                        twice.wait(3 * PATIENCE)        # on a busy machine kills are slow
                    client.send(sent[first:first + 1000])
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
        acked = client.acknowledged                 # windows are acked in order, so these are the first events
        receiver = Receiver(tmp_path, *options, port=port)
        assert set(sent[:acked]) <= set(kept(tmp_path, partial=True))
    writer.join(3 * PATIENCE)
    receiver.stop()
    assert not failure and client.acknowledged == len(sent) and kills >= 2 and client.connections > 1
    found = kept(tmp_path)
    assert set(found) == set(sent) and len(found) < len(sent) + client.connections * 4 * 100
    assert not [name for name in names(tmp_path) if name.startswith("_")] and receiver.code == 0


# --- hostile writers ------------------------------------------------------------------------------------------


def hostile(kind: int, sock: socket.socket, stop: threading.Event) -> None:
    """What one of many does until it is closed."""
    largest = encode_window((1 << 32) - 1)

    def forever(data: bytes) -> None:
        while not stop.is_set():
            sock.sendall(data)

    def drip(data: bytes) -> None:
        for i in range(len(data)):
            sock.sendall(data[i:i + 1])
            if stop.wait(0.02):
                return

    [lambda: drip(encode_window(9) + encode_json(1, b'"%s"' % (b"x" * 10_000))),
     lambda: drip(encode_window(9) + encode_data(1, {b"key %d" % number: b"value" for number in range(1000)})),
     lambda: forever(largest + BOMB),
     lambda: sock.sendall(encode_window(1) + encode_compressed(BOMB)),
     lambda: sock.sendall(encode_window(1) + random.Random(kind).randbytes(50_000)),
     lambda: sock.sendall(encode_window(1) + b"2J\0\0\0\1\xff\xff\xff\xff"),
     lambda: sock.sendall(encode_window(1) + b"2C\xff\xff\xff\xff"),
     lambda: (sock.sendall(encode_window(1) + b"2J\0\0\0\1\0\x3f\xff\xff"), forever(bytes(100_000))),
     lambda: sock.sendall(largest),
     lambda: forever(encode_window(0) * 10_000),
     lambda: sock.sendall(encode_compressed(encode_window(0) * 100_000)),
     ][kind % 11]()
    stop.wait(2)


BOMB = encode_compressed(encode_json(1, b'"%s"' % (b" " * (40 << 20))), level=9)


@pytest.mark.parametrize("writers, events, warm_up", [
    pytest.param(11, 2000, 0.1, id="one of each kind"),
    pytest.param(200, 10_000, 1, id="200", marks=pytest.mark.slow)])
def test_hostile_writers(tmp_path, capsys, writers, events, warm_up):
    """A good writer is served among them, and memory stays bounded: by what Bounds says, about."""
    stop, served = threading.Event(), []
    with receiving(tmp_path, "--max-connections", 250, "--json") as receiver:
        before = receiver.peak

        def attack(number: int) -> None:
            while not stop.is_set():
                try:
                    with socket.create_connection(receiver.address, 5) as sock:
                        sock.settimeout(5)
                        hostile(number, sock, stop)
                except OSError:
                    pass

        threads = [threading.Thread(target=attack, args=(number,)) for number in range(writers)]
        for thread in threads:
            thread.start()
        time.sleep(warm_up)
        begun = time.monotonic()
        with Client(*receiver.address, window=500) as client:
            for first in range(0, events, 500):
                client.send([b'{"good":%d}' % number for number in range(first, first + 500)])
        took = time.monotonic() - begun
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
        peak = receiver.peak
        served += [document for document in kept(tmp_path, partial=True) if document.startswith(b'{"good"')]
        report = json.loads(receiver.stop())
    assert served == [b'{"good":%d}' % number for number in range(events)] and client.connections == 1
    assert receiver.code == 0 and report["refused"] > writers * 0.4
    with capsys.disabled():
        print(f" [{events:,} events in {took:.1f} s, at most {peak >> 20} MiB, {before >> 20} before]", end="")
    assert peak < 700 << 20
    assert sum(" closed: " in line for line in receiver.lines) < 5 * (took + 30)        # so many lines a second


def test_lines_are_limited(capsys, monkeypatch):
    now = 100.0
    monkeypatch.setattr("wirescan.cli.receive.time", SimpleNamespace(monotonic=lambda: now))
    lines = Lines()
    for number in range(8):
        lines(f"line {number}\x1b")
    now = 101.5
    lines("later")
    told = capsys.readouterr().err.splitlines()
    assert told[:5] == [f"wirescan: line {number}\\x1b" for number in range(5)]
    assert told[5:] == ["wirescan: 3 more lines like these", "wirescan: later"]


def test_hints(tmp_path):
    with receiving(tmp_path) as receiver:
        with socket.create_connection(receiver.address) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert sock.recv(1) == b""
        assert eventually(lambda: any("the peer speaks HTTP" in line for line in receiver.lines))


# --- TLS ------------------------------------------------------------------------------------------------------


def test_tls(tmp_path):
    pair, lines = ("--tls", TLS / "server.pem", TLS / "server.key"), tmp_path / "lines"
    lines.write_text("one\n")
    with receiving(tmp_path / "out", *pair, "--client-ca", TLS / "authority.pem") as receiver:
        trust = ("--lines", "text", "--tls-ca", TLS / "authority.pem")
        send(receiver.address, lines, *trust, "--tls-cert", TLS / "client.pem", TLS / "client.key")
        send(receiver.address, lines, *trust, "--attempts", 1, code=2)
        done = send(receiver.address, lines, "--lines", "text", "--tls", code=2)
        assert "TLS with" in done.stderr and "events acked before: 0" in done.stderr
        receiver.stop()
    assert kept(tmp_path / "out") == [b'{"message":"one"}']


@pytest.mark.parametrize("files", [("missing", "server.key"), ("server.pem", "client.key"),
                                   ("server.key", "server.key")])
def test_tls_files_that_do_not_fit(tmp_path, files):
    done = run("receive", "lumberjack", "--to", tmp_path, "--tls", *(TLS / name for name in files), code=2)
    assert done.stderr.startswith("wirescan: TLS: ")
    done = run("send", "lumberjack", "127.0.0.1:1", __file__, "--tls-cert", *(TLS / name for name in files), code=2)
    assert done.stderr.startswith("wirescan: TLS: ")


# --- wirescan send --------------------------------------------------------------------------------------------


def test_frames_are_sent_again(tmp_path):
    """A capture of both versions, compressed or not, in other windows: the same frames but for their numbers."""
    path = tmp_path / "capture.lumberjack"
    path.write_bytes(encode_batch(documents(7)) + encode_batch(documents(5, 7), level=3)
                     + encode_batch([{"a": "b"}] * 3, version=1) + encode_batch(documents(4, 12)) + b"2W\0")
    with Running() as running:
        done = send(running.address, path, "--window", 5, "--json")
        assert json.loads(done.stdout)["events"] == 19 and "cut frame" in done.stderr
        found = [lumberjack.scan(raw) for raw in running.kept]
        assert [table["count"][0] for table in found] == [5, 5, 2, 3, 4]
        assert [table["version"][0] for table in found] == [2, 2, 2, 1, 2]
        assert [chr(table["kind"][1]) for table in found] == ["J", "J", "J", "D", "J"]
        assert [list(table["sequence"][1:]) for table in found] == [[*range(1, n + 1)] for n in (5, 5, 2, 3, 4)]
    with Running() as running:
        send(running.address, path, "--compress", 9, "--version", 2)
        assert [chr(kind) for raw in running.kept for kind in lumberjack.scan(raw)["kind"]] == ["W", "C"] * 3
        events = lumberjack.events(lumberjack.scan(b"".join(running.kept)))
        assert set(events["version"]) == {2} and len(events) == 19


def test_what_receive_left_is_sent(tmp_path):
    sent = documents(3000)
    for number, first in enumerate(range(0, 3000, 1000)):
        path = tmp_path / f"20260101T000000.000000Z-{number:06}.lumberjack"
        path.write_bytes(encode_batches(sent[first:first + 1000], window=300))
    with Running() as running:
        done = send(running.address, tmp_path)
        assert running.documents == sent and done.stdout.startswith("sent 3,000 events of 3 files, ")


def test_damaged_frames(tmp_path):
    path = tmp_path / "x.lumberjack"
    path.write_bytes(encode_batch(documents(3)) + b"garbage")
    with Running() as running:
        done = send(running.address, path, code=1)
        assert "NOT_A_FRAME" in done.stderr and "events acked before: 3" in done.stderr
        done = send(running.address, path, "--errors", "skip")
        assert running.documents[-3:] == documents(3) and "1 bad frame left out" in done.stderr


def test_lines_of_text(tmp_path):
    path = tmp_path / "access.log"
    path.write_bytes('one "quoted"\r\n\ntwo é\n\xff\n'.encode("latin-1") + b"last, without an end")
    wanted = ['one "quoted"', "two \ufffd", "\ufffd", "last, without an end"]
    with Running() as running:
        send(running.address, path, "--lines", "text")
        assert [json.loads(document)["message"] for document in running.documents] == wanted
    with Running() as running:
        send(running.address, "-", "--lines", "text", "--version", 1, input=path.read_bytes())
        events = lumberjack.events(lumberjack.scan(b"".join(running.kept)))
        assert [bytes(value) for row in events for _, value in row.pairs] == [
            b'one "quoted"', b"two \xe9", b"\xff", b"last, without an end"]


def test_lines_of_json(tmp_path, monkeypatch):
    monkeypatch.setattr("wirescan.cli.send.PIECE", 7)
    path = tmp_path / "events.json"
    path.write_bytes(b'{"a": 1}\n\n {"b":"\\n"}\r\n[1]\n{"c":\n{}')
    with Running() as running:
        done = send(running.address, path, "--lines", "json", code=1)
        assert "line 4 is no JSON object: [1]" in done.stderr
        done = send(running.address, path, "--lines", "json", "--errors", "skip")
        assert running.documents[-3:] == [b'{"a": 1}', b' {"b":"\\n"}', b"{}"] and "2 lines left out" in done.stderr
    monkeypatch.setattr("wirescan.cli.send.LONGEST_LINE", 100)
    path.write_bytes(b'{}\n{"' + b"x" * 200)
    with Running() as running:
        assert "line 2 has more than 100 bytes" in send(running.address, path, "--lines", "json", code=1).stderr


def test_large_files_go_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("wirescan.cli.send.PIECE", 1000)
    path, sent = tmp_path / "large.lumberjack", documents(5000)
    path.write_bytes(encode_batches(sent, window=64, level=1))
    with Running() as running:
        send(running.address, path, "--window", 10)
        assert running.documents == sent


@pytest.mark.parametrize("arguments, told", [
    (("receive", "lumberjack"), "--to"),
    (("receive", "kafka", "--to", "x"), "lumberjack"),
    (("receive", "lumberjack", "--to", "x", "--listen", "5044"), "is not HOST:PORT"),
    (("receive", "lumberjack", "--to", "x", "--listen", "::1:5044"), "is not HOST:PORT"),
    (("receive", "lumberjack", "--to", "x", "--listen", "127.0.0.1:70000"), "is not HOST:PORT"),
    (("receive", "lumberjack", "--to", "x", "--columns", "json"), "--as parquet"),
    (("receive", "lumberjack", "--to", "x", "--as", "parquet", "--columns", "no"), "there is no column 'no'"),
    (("receive", "lumberjack", "--to", "x", "--client-ca", "y"), "is for --tls"),
    (("receive", "lumberjack", "--to", __file__), "exists"),
    (("send", "lumberjack", "localhost", __file__), "is not HOST:PORT"),
    (("send", "lumberjack", "127.0.0.1:1", "missing"), "no such file"),
    (("send", "lumberjack", "127.0.0.1:1", __file__, "--lines", "json", "--version", "1"), "is for version 2"),
    (("send", "lumberjack", "127.0.0.1:1", __file__, "--lines", "text", "--attempts", 2), "acks nothing, after 2"),
])
def test_what_cannot_be_done(tmp_path, monkeypatch, arguments, told):
    monkeypatch.chdir(tmp_path)
    assert told in run(*arguments, code=2).stderr


def test_a_port_that_is_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = run("receive", "lumberjack", "--to", tmp_path, "--listen", f"127.0.0.1:{port}", code=2)
        assert "in use" in done.stderr and names(tmp_path) == []


def test_a_terminal_shows_totals(tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "wirescan", "receive", "lumberjack", "--to", tmp_path, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stderr=theirs, stdout=theirs,
                               env={**os.environ, "PYTHONPATH": str(PACKAGE), "TERM": "xterm", "COLUMNS": "120"})
    os.close(theirs)
    shown: list[str] = []

    def read() -> None:
        with suppress(OSError):                     # the end of a terminal
            while data := os.read(ours, 1 << 16):
                shown.append(data.decode(errors="replace"))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert eventually(lambda: "listening on" in "".join(shown))
        port = int(re.search(r"listening on 127.0.0.1:(\d+)", "".join(shown))[1])
        with Client("127.0.0.1", port) as client:
            client.send(documents(1234))
            client.flush()
            assert eventually(lambda: "1 connection, 1,234 events, " in "".join(shown))
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(b"SSH-2.0-x\r\n")
            assert eventually(lambda: "\nwirescan: 127.0.0.1" in re.sub(r"\x1b\[2K|\r", "\n", "".join(shown)))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
        reader.join(PATIENCE)
        os.close(ours)
    assert "1,234 events, " in "".join(shown).splitlines()[-1] and process.returncode == 0


# --- what goes wrong in the directory -------------------------------------------------------------------------


@pytest.mark.parametrize("kind, option", [("frames", "--max-frame"), ("parquet", "--max-inflated")])
def test_recovery_keeps_what_an_earlier_run_took_with_larger_limits(tmp_path, kind, option):
    large = b'"%s"' % (b" " * 2_000_000)
    left_behind(tmp_path, encode_window(2) + encode_compressed(encode_json(1, b"{}") + encode_json(2, large))
                + encode_window(1) + encode_json(1, large))
    with receiving(tmp_path, "--as", kind, option, 1 << 20) as receiver:
        with Client(*receiver.address) as client:
            client.send(documents(1))
        receiver.stop()
    assert receiver.code == 0 and kept(tmp_path) == [b"{}", large, large, *documents(1)]
    assert {Path(name).suffix for name in names(tmp_path)} == {".lumberjack" if kind == "frames" else ".parquet"}


@pytest.mark.parametrize("recovered", [False, True])
def test_frames_stay_where_not_all_of_them_can_be_read_again(tmp_path, capsys, recovered):
    """And what follows them is received all the same."""
    damaged = bytearray(encode_compressed(encode_json(2, b"[]"), level=6))
    damaged[-1] ^= 1
    raw = encode_batch(documents(2)) + encode_window(1) + bytes(damaged)
    if recovered:
        left_behind(tmp_path, raw)
    with Spool(tmp_path, "parquet", 1, 60) as spool:
        if not recovered:
            spool.keep([SimpleNamespace(raw=(memoryview(raw),), events=documents(3))])
        spool.keep([window(3, 2)])
    first, second = sorted(tmp_path.iterdir())
    assert first.suffix == ".lumberjack" and first.read_bytes() == raw and second.suffix == ".parquet"
    assert not first.name.startswith("_")
    assert pyarrow.dataset.dataset(second).to_table()["json"].to_pylist() == documents(3, 2)
    assert f"{first.name}: frames stay as they came" in capsys.readouterr().err
    assert spool.files == 2 and spool.faults == 1


def test_a_directory_that_is_removed_is_told_before_anything_is_acked(tmp_path):
    with pytest.raises(OSError, match=r"it was removed while it was written to.*\.lumberjack"):
        with Spool(tmp_path / "out", "frames", 1 << 20, 60) as spool:
            spool.keep([window(3)])
            shutil.rmtree(tmp_path / "out")
            spool.keep([window(3, 3)])
    assert spool.events == 3


@pytest.mark.parametrize("kind", ["frames", "parquet"])
def test_a_first_write_that_fails_leaves_no_file(tmp_path, monkeypatch, kind):
    def full(handle, views):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(OSError, match=r"No space left on device.*_.*\.lumberjack"):
        with Spool(tmp_path, kind, 1 << 20, 60) as spool:
            spool.keep([window(3)])
    assert names(tmp_path) == [] and spool.files == 0


def test_what_is_cut_off_is_on_the_disk_before_the_file_gets_its_name(tmp_path, monkeypatch):
    path, calls = left_behind(tmp_path, encode_batch(documents(3)) + b"2W"), []
    inode, fsync, rename = path.stat().st_ino, os.fsync, os.rename

    def synced(handle):
        if os.fstat(handle).st_ino == inode:
            calls.append(os.fstat(handle).st_size)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", lambda old, new: calls.append("rename") or rename(old, new))
    with Spool(tmp_path, "frames", 1 << 20, 60):
        pass
    assert calls == [len(encode_batch(documents(3))), "rename"]


def trace_system_calls(monkeypatch) -> list[str]:
    """Writes, syncs, renames and removals from now on, each with the name of its file."""
    calls: list[str] = []

    def traced(name: str, name_file):
        original = getattr(os, name)

        def call(*arguments, **options):
            calls.append(f"{name} {Path(name_file(*arguments)).name}")
            return original(*arguments, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("writev", "fdatasync", "fsync"):
        traced(name, lambda handle, *_: os.readlink(f"/proc/self/fd/{handle}"))
    traced("rename", lambda old, new: new)
    traced("unlink", lambda path: path)
    return calls


def test_frames_are_on_the_disk_before_they_are_acknowledged(tmp_path, monkeypatch):
    calls = trace_system_calls(monkeypatch)
    with Spool(tmp_path / "outer" / "inner", "frames", 1 << 20, 60) as spool:
        # The entries of the new directories are synced, then the directory that was recovered.
        assert sorted(calls[:2]) == sorted(["fsync outer", f"fsync {tmp_path.name}"])
        assert calls[2:] == ["fsync inner"]
        calls.clear()
        spool.keep([window(3)])
        calls.append("acknowledged")
    (name,) = names(tmp_path / "outer" / "inner")
    kept_first = ["fsync inner", f"writev _{name}", f"fdatasync _{name}", "acknowledged"]
    assert calls == [*kept_first, f"rename {name}", "fsync inner"]


def test_parquet_is_on_the_disk_before_its_frames_are_removed(tmp_path, monkeypatch):
    calls = trace_system_calls(monkeypatch)
    directory = tmp_path / "out"
    with Spool(directory, "parquet", 1 << 20, 60) as spool:
        spool.keep([window(3)])
        calls.clear()
    (name,) = names(directory)
    frames = f"_{Path(name).stem}.lumberjack"
    assert calls == [f"fsync _{name}", f"rename {name}", "fsync out", f"unlink {frames}", "fsync out"]


def test_frames_stay_where_parquet_has_fewer_events(tmp_path, monkeypatch):
    from wirescan import parquet
    write = parquet.write

    def write_fewer(*arguments, **options):
        done = write(*arguments, **options)
        return replace(done, records=done.records - 1)

    monkeypatch.setattr(parquet, "write", write_fewer)
    with Spool(tmp_path, "parquet", 1 << 20, 60) as spool:
        spool.keep([window(3)])
    (name,) = names(tmp_path)
    assert name.endswith(".lumberjack")
