"""The server and the client of Lumberjack over sockets: acks after `keep` alone, bounds, ends of every kind, TLS."""
from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from wirescan import FrameError, Limits, lumberjack
from wirescan.lumberjack.client import Client
from wirescan.lumberjack.connection import KEEP_ALIVE, Turns
from wirescan.lumberjack.encode import encode_ack, encode_batch, encode_compressed, encode_json, encode_window
from wirescan.lumberjack.server import Bounds, Server

TLS = Path(__file__).parent / "tls"
PATIENCE = 20               # seconds after which a test has failed


class Running:
    """A server in a thread. kept: raw bytes of each window, in order; hold: `keep` waits for this; lines: told."""

    def __init__(self, keep=None, **options):
        self.kept, self.calls, self.lines, self.error = [], [], [], None
        self.go = threading.Event()
        self.go.set()
        self._keep, self._options, self._ready = keep, options, threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))

    def keep(self, windows):
        self.calls.append(len(windows))
        assert self.go.wait(PATIENCE)
        if self._keep is not None:
            self._keep(windows)
        self.kept += [b"".join(window.raw) for window in windows]

    async def _main(self):
        self.server = Server(self.keep, tell=self.lines.append, **self._options)
        await self.server.start("127.0.0.1", 0)
        self.address = self.server.addresses[0]
        self._ready.set()
        try:
            await self.server.run()
        except Exception as error:
            self.error = error

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(PATIENCE)
        return self

    def __exit__(self, *_):
        self.go.set()
        self.stop()

    def stop(self):
        if self._thread.is_alive():
            self.server.loop.call_soon_threadsafe(self.server.stop)
            self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, PATIENCE)

    def client(self, **options) -> Client:
        return Client(*self.address, **options)

    @property
    def documents(self) -> list[bytes]:
        """The events that were kept, of JSON frames."""
        table = lumberjack.events(lumberjack.scan(b"".join(self.kept), errors="skip"), errors="skip")
        return [bytes(row.json) for row in table]

    def said(self, text: str) -> bool:
        return eventually(lambda: any(text in line for line in self.lines))


def eventually(condition) -> bool:
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def documents(count: int, first: int = 0) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(first, first + count)]


def received(sock: socket.socket, size: int) -> bytes:
    """So many bytes, or what came before the end."""
    data = b""
    while len(data) < size and (more := sock.recv(size - len(data))):
        data += more
    return data


def ended(sock: socket.socket) -> bool:
    """Whether the server closes the connection, whatever it says before."""
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


# --- both together --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"level": 3}, {"window": 7}, {"window": 1, "pipelining": 9},
                                     {"version": 1, "frames": "json"}, {"pipelining": 1, "level": 0}])
def test_what_is_sent_is_kept(options):
    sent = documents(100)
    with Running() as running:
        with running.client(**options) as client:
            client.send(sent[:60])
            client.send(sent[60:])
        assert client.acknowledged == 100 and client.connections == 1
        assert running.documents == sent
    assert running.server.totals.events == 100 and running.server.totals.refused == 0 and running.lines == []
    assert running.server.totals.bytes == sum(map(len, running.kept))


def test_many_writers():
    with Running() as running:
        def write(number: int) -> None:
            with running.client(window=10) as client:
                for first in range(0, 300, 25):
                    client.send(documents(25, 1000 * number + first))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        wanted = [document for number in range(20) for document in documents(300, 1000 * number)]
        assert sorted(running.documents) == sorted(wanted)
        assert running.server.totals.windows == 20 * 36 and running.server.totals.connections == 20
        assert eventually(lambda: running.server.open == 0)


def test_data_frames():
    with Running() as running, running.client(version=1, level=6) as client:
        client.send([{"line": "one", "host": "a"}, {b"line": b"\xff"}])
        client.flush()
        table = lumberjack.events(lumberjack.scan(running.kept[0]))
        assert [[(bytes(key), bytes(value)) for key, value in row.pairs] for row in table] == [
            [(b"line", b"one"), (b"host", b"a")], [(b"line", b"\xff")]]


def test_acks_come_after_keep_alone():
    with Running() as running:
        running.go.clear()
        with running.connect() as sock:
            sock.settimeout(0.3)
            sock.sendall(encode_batch(documents(3)))
            with pytest.raises(TimeoutError):
                sock.recv(1)
            assert running.kept == []
            running.go.set()
            sock.settimeout(PATIENCE)
            assert received(sock, 6) == encode_ack(3)


def test_what_waits_is_kept_in_one_call_and_acked_in_order():
    with Running() as running:
        running.go.clear()
        with running.connect() as one, running.connect() as other:
            one.sendall(encode_batch(documents(1)))
            assert eventually(lambda: running.calls == [1])         # the writer is busy now
            for size in (4, 2, 0, 3):
                one.sendall(encode_batch(documents(size), version=2))
            other.sendall(encode_batch(documents(5), version=1, frames="json"))
            time.sleep(0.3)
            running.go.set()
            assert received(one, 30) == b"".join(map(encode_ack, (1, 4, 2, 0, 3)))
            assert received(other, 6) == encode_ack(5, version=1)
        assert running.calls == [1, 5]


def test_a_writer_that_waits_is_kept_alive(monkeypatch):
    monkeypatch.setattr("wirescan.lumberjack.connection.KEEP_ALIVE", 0.1)
    assert KEEP_ALIVE == 3.0
    with Running() as running:
        running.go.clear()
        with running.connect() as sock, running.connect() as old, running.connect() as idle:
            sock.sendall(encode_batch(documents(3)))
            old.sendall(encode_batch(documents(3), version=1, frames="json"))
            assert received(sock, 12) == encode_ack(0) * 2
            for silent in (old, idle):          # version 1 takes any ack for its own; nothing waits in the other
                silent.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    silent.recv(1)
            running.go.set()
            old.settimeout(PATIENCE)
            assert received(old, 6) == encode_ack(3, version=1)


def test_stop_keeps_and_acks_what_arrived():
    running = Running()
    with running:
        running.go.clear()
        with running.connect() as sock, running.connect() as silent:
            sock.sendall(encode_batch(documents(2)))
            assert eventually(lambda: running.calls)
            running.server.loop.call_soon_threadsafe(running.server.stop)
            assert ended(silent)
            with pytest.raises(OSError):
                running.connect().close()
            running.go.set()
            assert received(sock, 7) == encode_ack(2)
            running.stop()
    assert running.documents == documents(2) and running.error is None


def test_a_keep_that_fails_ends_the_server_and_acks_nothing():
    def keep(windows):
        raise OSError(28, "no space left on device")

    with Running(keep) as running, running.connect() as sock:
        sock.sendall(encode_batch(documents(2)))
        assert received(sock, 1) == b""
        assert eventually(lambda: running.error is not None)
    assert "no space" in str(running.error)


# --- bounds ---------------------------------------------------------------------------------------------------


def test_a_connection_is_not_read_while_too_much_waits():
    window = encode_batch([b'"%s"' % (b"x" * 100_000)])
    with Running(bounds=Bounds(waiting=500_000)) as running:
        running.go.clear()
        with running.connect() as sock, running.connect() as other:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
            sock.settimeout(0.5)
            sent = 0
            with pytest.raises(TimeoutError):
                while True:
                    sent += sock.send(window[sent % len(window):])
            connection = max(running.server.connections, key=lambda one: one._waiting)
            assert 500_000 < connection._waiting < 1_500_000
            other.sendall(encode_batch(documents(1)))           # which does not stop the others
            assert eventually(lambda: running.server._waiting > connection._waiting)
            running.go.set()
            assert received(other, 6) == encode_ack(1)
            sock.settimeout(PATIENCE)
            sock.sendall(window[sent % len(window):])
            count = sent // len(window) + 1
            assert received(sock, 6 * count) == encode_ack(1) * count
        assert len(running.kept) == count + 1


def test_all_connections_stop_where_too_much_waits_in_all():
    window = encode_batch([b'"%s"' % (b"x" * 100_000)])
    with Running(bounds=Bounds(all_waiting=150_000)) as running:
        running.go.clear()
        with running.connect() as one, running.connect() as two, running.connect() as three:
            one.sendall(window)
            two.sendall(window)
            assert eventually(lambda: running.server.is_full)
            three.sendall(window)
            time.sleep(0.2)
            assert running.server._waiting < 250_000
            running.go.set()
            assert [received(sock, 6) for sock in (one, two, three)] == [encode_ack(1)] * 3


def test_a_writer_that_reads_no_acks_is_not_read_and_closed():
    with Running(bounds=Bounds(idle=0.3)) as running, running.connect() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.settimeout(0.6)
        flood = encode_batch(documents(1)) * 5000
        try:
            while True:
                sock.sendall(flood)
        except (TimeoutError, ConnectionError):
            pass
        assert running.said("it read no ack for 0.3 s")
        assert eventually(lambda: running.server.open == 0)


def test_too_many_connections():
    with Running(bounds=Bounds(connections=2)) as running:
        with running.connect(), running.connect() as second:
            assert eventually(lambda: running.server.open == 2)
            with running.connect() as third:
                assert ended(third)
            assert running.said("refused: 2 connections are open")
            second.sendall(encode_batch(documents(1)))
            assert received(second, 6) == encode_ack(1)
        assert eventually(lambda: running.server.open == 0)
        with running.client() as client:
            client.send(documents(1))
    assert running.server.totals.refused == 1 and running.server.totals.connections == 3


def test_idle_connections_are_closed_and_waiting_ones_are_not():
    with Running(bounds=Bounds(idle=0.3)) as running:
        running.go.clear()
        with running.connect() as idle, running.connect() as half, running.connect() as waiting:
            half.sendall(encode_batch(documents(2))[:-1])
            waiting.sendall(encode_batch(documents(1)))
            assert ended(idle) and ended(half)
            assert running.said("it fell silent within a window, for 0.3 s") and len(running.lines) == 1
            time.sleep(0.7)
            assert running.server.open == 1
            running.go.set()
            assert received(waiting, 6) == encode_ack(1)


def test_a_slow_window_is_kept_in_parts_and_a_slow_frame_is_refused():
    with Running(bounds=Bounds(window_seconds=0.5)) as running:
        with running.connect() as slow, running.connect() as loris:
            slow.sendall(encode_window(3) + encode_json(1, b"1") + encode_json(2, b"2"))
            loris.sendall(encode_window(3) + encode_json(1, b"1")[:-1])
            assert received(slow, 6) == encode_ack(2)           # a partial ack
            assert running.documents == [b"1", b"2"]
            slow.sendall(encode_json(3, b"3"))
            assert received(slow, 6) == encode_ack(3)
            assert ended(loris)
        assert running.said("no event of it came in 0.5 s") and running.documents == [b"1", b"2", b"3"]


def test_unfinished_windows_in_bounded_memory():
    events = encode_json(1, b'"%s"' % (b"x" * 50_000)) * 4
    with Running(bounds=Bounds(window=1 << 20, all_windows=1_000_000)) as running:
        socks = [running.connect() for _ in range(20)]
        for sock in socks:
            sock.sendall(encode_window(1_000_000) + events)
        assert eventually(lambda: len(running.documents) >= 60)
        assert running.server._held <= 1_000_000 and running.lines == []
        for sock in socks:
            sock.close()
    assert running.server.totals.refused == 0


def test_frames_that_never_end_are_refused_where_there_is_no_room():
    with Running(bounds=Bounds(all_windows=350_000)) as running:
        socks = [running.connect() for _ in range(4)]
        for sock in socks:
            sock.sendall(encode_window(1) + encode_json(1, b"x" * 200_000)[:100_000])
        assert running.said("no more room")
        assert eventually(lambda: running.server.open == 3 and running.server._held < 350_000)
        for sock in socks:
            sock.close()


def test_turns_go_to_who_took_least():
    """Work of one that is dear does not come before that of those that are cheap."""
    done = []

    class Writer:
        def __init__(self, name, cost, pieces):
            self.name, self.cost, self.rest, self.time = name, cost, pieces, 0.0

        def work(self):
            time.sleep(self.cost)
            self.rest -= 1
            done.append(self.name)

    async def main():
        turns = Turns(asyncio.get_running_loop())
        for writer in (Writer("dear", 0.05, 4), Writer("also dear", 0.05, 4), Writer("cheap", 0.001, 20)):
            turns.add(writer)
        while len(done) < 28:
            await asyncio.sleep(0)

    asyncio.run(main())
    last = max(place for place, name in enumerate(done) if name == "cheap")
    assert sum(name != "cheap" for name in done[:last]) <= 3


# --- how conversations end --------------------------------------------------------------------------------------


@pytest.mark.parametrize("data, told", [
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
    (b"<34>1 2003-10-11T22:14:15.003Z host su - - - x", "syslog"),
    (b'{"message":"x"}\n', "JSON"),
    (b"2W\0\0\0\1" + b"2J\0\0\0\1\xff\xff\xff\xff", "BAD_LENGTH"),
    (encode_window(1) + encode_compressed(b"")[:6] + b"garbage!", "BAD_COMPRESSION"),
    (encode_window(1) + encode_compressed(encode_json(1, b" " * (3 << 20))), "TOO_LARGE"),
])
def test_bad_bytes_end_a_connection_and_no_other(data, told):
    with Running(limits=Limits(inflated=2 << 20)) as running, running.connect() as good, running.connect() as bad:
        bad.sendall(encode_batch(documents(1)) if told == "BAD_LENGTH" else b"")
        if told == "BAD_LENGTH":
            assert received(bad, 6) == encode_ack(1)            # what came before is acked
        bad.sendall(data)
        assert ended(bad) and running.said(told) and running.said(f"{bad.getsockname()[1]}: closed:")
        good.sendall(encode_batch(documents(1)))
        assert received(good, 6) == encode_ack(1)
    assert running.server.totals.refused == 1


def test_what_is_refused_leaves_nothing_behind():
    """Windows by the hundred thousand in some bytes are not even counted out, and an error holds no tables."""
    many = encode_compressed(encode_window(0) * 200_000, level=9)
    with Running() as running:
        def memory() -> int:
            return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        socks = []
        for number in range(60):
            socks.append(running.connect())
            socks[-1].sendall(many)
            assert received(socks[-1], 1) == b""
            if number == 9:
                before = memory()
        assert memory() - before < 150 << 20            # 8 MB for each of 50, were they held
        assert eventually(lambda: running.server.totals.refused == 60) and running.kept == []
        assert all("LIMIT" in line for line in running.lines)
        for sock in socks:
            sock.close()


def test_strict():
    with Running(strict=True) as running, running.connect() as sock:
        sock.sendall(encode_json(1, b"{}"))
        assert ended(sock) and running.said("NO_WINDOW")


@pytest.mark.parametrize("incomplete", [False, True])
def test_a_writer_that_hangs_up_within_a_window(incomplete):
    with Running(incomplete=incomplete) as running:
        with running.connect() as sock:
            sock.sendall(encode_batch(documents(2)) + encode_batch(documents(3, 2))[:-1])
            sock.shutdown(socket.SHUT_WR)
            assert received(sock, 100) == encode_ack(2)         # and no other ack
        assert running.said("2 of the 3 events of a window")
        assert eventually(lambda: running.server.open == 0)
    assert running.documents == documents(4 if incomplete else 2)
    assert running.server.totals.incomplete == 2


def test_a_writer_that_is_gone_before_its_ack():
    with Running() as running:
        running.go.clear()
        with running.connect() as sock:
            sock.sendall(encode_batch(documents(2)))
            assert eventually(lambda: running.calls)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")      # a reset
        assert eventually(lambda: running.server.open == 0)
        running.go.set()
    assert running.documents == documents(2) and running.error is None


# --- the client ----------------------------------------------------------------------------------------------


class Unreliable:
    """A server of this test that acks some windows, and closes connections as a seed says."""

    def __init__(self, seed: int, answers=None):
        self._random, self.taken, self._answers = random.Random(seed), [], answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self.connections = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with sock:
                if self._answers is not None:
                    sock.sendall(self._answers)
                    ended(sock)
                    continue
                self._converse(sock)

    def _converse(self, sock):
        data = bytearray()
        while more := sock.recv(1 << 16):
            data += more
            while len(data) >= 6:
                table = lumberjack.scan(bytes(data))
                count = int(table["count"][0])
                if len(table) <= count:
                    break
                chance = self._random.random()
                if chance < 0.2:
                    return
                window = table[:count + 1]
                part = count // 2 if chance < 0.4 else count
                events = lumberjack.events(window)[:part]
                self.taken += [bytes(row.json) for row in events]
                sock.sendall(encode_ack(0) + encode_ack(part))
                if part < count:
                    return
                del data[:int(window["size"].sum())]

    def close(self):
        self._listener.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_client_sends_again_what_was_not_acked(seed, monkeypatch):
    monkeypatch.setattr("wirescan.lumberjack.client.FIRST_DELAY", 0.001)
    server, sent = Unreliable(seed), documents(400)
    with Client(*server.address, window=10, pipelining=3, attempts=50) as client:
        client.send(sent)
    server.close()
    assert client.acknowledged == 400 and client.connections > 2
    assert list(dict.fromkeys(server.taken)) == sent        # in order; twice, where an ack was lost with its connection
    assert len(server.taken) < len(sent) + 10 * client.connections


def test_a_client_gives_up(monkeypatch):
    monkeypatch.setattr("wirescan.lumberjack.client.FIRST_DELAY", 0.001)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(ConnectionError, match="acks nothing, after 3 attempts.*refused") as caught:
        Client(*address, attempts=3).send(documents(1))
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)

    silent = Unreliable(0, answers=b"")
    with pytest.raises(ConnectionError, match="after 2 attempts: timed out"):
        with Client(*silent.address, attempts=2, timeout=0.1) as client:
            client.send(documents(1))
    silent.close()


@pytest.mark.parametrize("answer, told", [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"), (encode_ack(7), "ACK_BEYOND")])
def test_a_client_meets_something_else(answer, told):
    server = Unreliable(0, answers=answer)
    with pytest.raises(ConnectionError, match=f"does not speak Lumberjack: .*{told}") as caught:
        with Client(*server.address) as client:
            client.send(documents(1))
    server.close()
    assert isinstance(caught.value.__cause__, FrameError) and server.connections == 1


def test_arguments_of_a_client():
    for events in ({"message": "x"}, b"{}", "{}"):
        with pytest.raises(TypeError, match="not one"):
            Client("127.0.0.1", 1).send(events)
    with pytest.raises(TypeError, match="tls must be"):
        Client("127.0.0.1", 1, tls=3)
    with pytest.raises(ValueError, match="pipelining"):
        Client("127.0.0.1", 1, pipelining=0)


def test_a_client_whose_block_fails_does_not_wait():
    with Running() as running:
        running.go.clear()
        with pytest.raises(KeyError), running.client() as client:
            client.send(documents(1))
            raise KeyError
        assert client.acknowledged == 0


# --- TLS -----------------------------------------------------------------------------------------------------


def server_context(client_ca: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=TLS / "authority.pem" if client_ca else None)
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextmanager
def trusting(certificate: bool = False):
    context = ssl.create_default_context(cafile=TLS / "authority.pem")
    if certificate:
        context.load_cert_chain(TLS / "client.pem", TLS / "client.key")
    yield context


def test_tls(caplog):
    sent = documents(5000)
    with Running(tls=server_context()) as running:
        with running.client(tls=str(TLS / "authority.pem"), level=1) as client:
            client.send(sent)
        with running.client(tls=str(TLS / "authority.pem"), window=10) as client:
            client.send(sent)
        assert running.documents == 2 * sent
        assert eventually(lambda: running.server.open == 0)
    assert running.lines == [] and caplog.records == []


def test_tls_with_certificates_of_writers():
    with Running(tls=server_context(client_ca=True)) as running, trusting(True) as good, trusting() as none:
        with running.client(tls=good) as client:
            client.send(documents(3))
        with pytest.raises(OSError):
            with running.client(tls=none, attempts=2) as client:
                client.send(documents(1, 3))
        assert running.said("TLS fails")
        assert eventually(lambda: running.server.open == 0)
    assert running.documents == documents(3)


def test_tls_that_is_not_trusted():
    with Running(tls=server_context()) as running:
        with pytest.raises(PermissionError, match="TLS with .* fails"):
            running.client(tls=True).send(documents(1))
        assert running.said("TLS fails")


def test_a_server_of_tls_meets_plain_bytes_and_silence():
    bounds = Bounds(handshake=0.5)
    with Running(tls=server_context(), bounds=bounds) as running:
        with running.connect() as plain, running.connect() as silent:
            plain.sendall(encode_batch(documents(1)))
            assert ended(plain) and ended(silent)
        assert eventually(lambda: len(running.lines) == 2 and all("does the writer speak TLS" in line
                                                                  for line in running.lines))
        assert eventually(lambda: running.server.open == 0)


def test_a_plain_server_meets_tls():
    with Running() as running, trusting() as context:
        with pytest.raises(OSError):
            running.client(tls=context, attempts=1).send(documents(1))
        assert running.said("TLS")


def test_a_slow_receiver_is_waited_for():
    """The timeout is for silence, not for all that is sent."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    size = 6 + 4 * (10 + 1_000_008)

    def serve():
        connection, _ = listener.accept()
        with connection:
            left = size
            while left > 0:
                left -= len(connection.recv(1 << 16))
                connection.sendall(encode_ack(0))
                time.sleep(0.01)
            connection.sendall(encode_ack(4))
            connection.recv(1)

    threading.Thread(target=serve, daemon=True).start()
    with listener, Client(*listener.getsockname(), timeout=0.3, attempts=1) as client:
        begun = time.monotonic()
        client.send([b'"' + b"x" * 1_000_006 + b'"'] * 4)
        client.flush()
        assert client.connections == 1 and time.monotonic() - begun > 0.5
