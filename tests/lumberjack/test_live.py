"""Lumberjack's server and client over sockets: acks only after `keep`, bounds, errors, TLS."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from tests.support.lumberjack_server import (
    PATIENCE,
    TLS,
    ServerThread,
    make_documents,
    receive_bytes,
    wait_until,
)
from wirescan import FrameError, Limits, lumberjack
from wirescan.lumberjack.encode import (
    encode_ack,
    encode_batch,
    encode_compressed,
    encode_json,
    encode_window,
)
from wirescan.lumberjack.live.client import Client
from wirescan.lumberjack.live.server import Bounds
from wirescan.lumberjack.live.server_connection import KEEP_ALIVE, Turns


def is_closed(sock: socket.socket) -> bool:
    """Wait until the server closes the connection; ignore all bytes before that."""
    try:
        while sock.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


# ---- server and client


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"level": 3},
        {"window": 7},
        {"window": 1, "pipelining": 9},
        {"version": 1, "frames": "json"},
        {"pipelining": 1, "level": 0},
    ],
)
def test_sent_events_are_kept(options):
    sent = make_documents(100)
    with ServerThread() as running:
        with running.client(**options) as client:
            client.send(sent[:60])
            client.send(sent[60:])
        assert client.acknowledged == 100
        assert client.connections == 1
        assert running.documents == sent
    assert running.server.totals.events == 100
    assert running.server.totals.refused == 0
    assert running.lines == []
    assert running.server.totals.bytes == sum(map(len, running.stored))


def test_many_writers_lose_no_event():
    with ServerThread() as running:

        def write(number: int) -> None:
            with running.client(window=10) as client:
                for first in range(0, 300, 25):
                    client.send(make_documents(25, 1000 * number + first))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        expected = [
            document for number in range(20) for document in make_documents(300, 1000 * number)
        ]
        assert sorted(running.documents) == sorted(expected)
        assert running.server.totals.windows == 20 * 36
        assert running.server.totals.connections == 20
        assert wait_until(lambda: running.server.open == 0)


def test_data_frames_are_received():
    with ServerThread() as running, running.client(version=1, level=6) as client:
        client.send([{"line": "one", "host": "a"}, {b"line": b"\xff"}])
        client.flush()
        table = lumberjack.events(lumberjack.scan(running.stored[0]))
        assert [[(bytes(key), bytes(value)) for key, value in row.pairs] for row in table] == [
            [(b"line", b"one"), (b"host", b"a")],
            [(b"line", b"\xff")],
        ]


def test_acks_come_only_after_keep():
    with ServerThread() as running:
        running.go.clear()
        with running.connect() as sock:
            sock.settimeout(0.3)
            sock.sendall(encode_batch(make_documents(3)))
            with pytest.raises(TimeoutError, match="timed out"):
                sock.recv(1)
            assert running.stored == []
            running.go.set()
            sock.settimeout(PATIENCE)
            assert receive_bytes(sock, 6) == encode_ack(3)


def test_waiting_windows_are_kept_in_one_call_and_acked_in_order():
    with ServerThread() as running:
        running.go.clear()
        with running.connect() as first, running.connect() as second:
            first.sendall(encode_batch(make_documents(1)))
            assert wait_until(lambda: running.calls == [1])  # the writer is busy now
            for size in (4, 2, 0, 3):
                first.sendall(encode_batch(make_documents(size), version=2))
            second.sendall(encode_batch(make_documents(5), version=1, frames="json"))
            time.sleep(0.3)
            running.go.set()
            assert receive_bytes(first, 30) == b"".join(map(encode_ack, (1, 4, 2, 0, 3)))
            assert receive_bytes(second, 6) == encode_ack(5, version=1)
        assert running.calls == [1, 5]


def test_a_waiting_writer_gets_keep_alives(monkeypatch):
    monkeypatch.setattr("wirescan.lumberjack.live.server_connection.KEEP_ALIVE", 0.1)
    assert KEEP_ALIVE == 3.0
    with ServerThread() as running:
        running.go.clear()
        with running.connect() as sock, running.connect() as old, running.connect() as idle:
            sock.sendall(encode_batch(make_documents(3)))
            old.sendall(encode_batch(make_documents(3), version=1, frames="json"))
            assert receive_bytes(sock, 12) == encode_ack(0) * 2
            # Version 1 may count a keep-alive as an ack. The idle connection waits for no ack.
            for silent in (old, idle):
                silent.settimeout(0.3)
                with pytest.raises(TimeoutError, match="timed out"):
                    silent.recv(1)
            running.go.set()
            old.settimeout(PATIENCE)
            assert receive_bytes(old, 6) == encode_ack(3, version=1)


def test_stop_keeps_and_acks_received_windows():
    running = ServerThread()
    with running:
        running.go.clear()
        with running.connect() as sock, running.connect() as silent:
            sock.sendall(encode_batch(make_documents(2)))
            assert wait_until(lambda: running.calls)
            running.server.loop.call_soon_threadsafe(running.server.stop)
            assert is_closed(silent)
            with pytest.raises(OSError, match="refused|reset"):
                running.connect().close()
            running.go.set()
            assert receive_bytes(sock, 7) == encode_ack(2)
            running.stop()
    assert running.documents == make_documents(2)
    assert running.error is None


def test_a_keep_that_fails_ends_the_server_and_acks_nothing():
    def keep(windows):
        raise OSError(28, "no space left on device")

    with ServerThread(keep) as running, running.connect() as sock:
        sock.sendall(encode_batch(make_documents(2)))
        assert receive_bytes(sock, 1) == b""
        assert wait_until(lambda: running.error is not None)
    assert "no space" in str(running.error)


# ---- bounds


def test_a_connection_is_not_read_while_too_much_waits():
    window = encode_batch([b'"%s"' % (b"x" * 100_000)])
    with ServerThread(bounds=Bounds(waiting=500_000)) as running:
        running.go.clear()
        with running.connect() as sock, running.connect() as other:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
            sock.settimeout(0.5)
            sent = 0
            with pytest.raises(TimeoutError, match="timed out"):
                while True:
                    sent += sock.send(window[sent % len(window) :])
            connection = max(running.server.connections, key=lambda connection: connection._waiting)
            assert 500_000 < connection._waiting < 1_500_000
            other.sendall(encode_batch(make_documents(1)))  # other connections are still read
            assert wait_until(lambda: running.server._waiting > connection._waiting)
            running.go.set()
            assert receive_bytes(other, 6) == encode_ack(1)
            sock.settimeout(PATIENCE)
            sock.sendall(window[sent % len(window) :])
            count = sent // len(window) + 1
            assert receive_bytes(sock, 6 * count) == encode_ack(1) * count
        assert len(running.stored) == count + 1


def test_no_connection_is_read_while_too_much_waits_in_all():
    window = encode_batch([b'"%s"' % (b"x" * 100_000)])
    with ServerThread(bounds=Bounds(all_waiting=150_000)) as running:
        running.go.clear()
        with running.connect() as first, running.connect() as second, running.connect() as third:
            first.sendall(window)
            second.sendall(window)
            assert wait_until(lambda: running.server.is_full)
            third.sendall(window)
            time.sleep(0.2)
            assert running.server._waiting < 250_000
            running.go.set()
            assert [receive_bytes(sock, 6) for sock in (first, second, third)] == [
                encode_ack(1)
            ] * 3


@pytest.mark.slow
def test_a_writer_that_reads_no_acks_is_closed():
    with ServerThread(bounds=Bounds(idle=0.3)) as running, running.connect() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        # A slow server takes long to read a flood, and the acks of several fill the buffers.
        sock.settimeout(PATIENCE)
        flood = encode_batch(make_documents(1)) * 5000
        try:
            while True:
                sock.sendall(flood)
        except ConnectionError:
            pass
        assert running.wait_for_line("it read no ack for 0.3 s")
        assert wait_until(lambda: running.server.open == 0)


def test_too_many_connections_are_closed():
    with ServerThread(bounds=Bounds(connections=2)) as running:
        with running.connect(), running.connect() as second:
            assert wait_until(lambda: running.server.open == 2)
            with running.connect() as third:
                assert is_closed(third)
            assert running.wait_for_line("refused: 2 connections are open")
            second.sendall(encode_batch(make_documents(1)))
            assert receive_bytes(second, 6) == encode_ack(1)
        assert wait_until(lambda: running.server.open == 0)
        with running.client() as client:
            client.send(make_documents(1))
    assert running.server.totals.refused == 1
    assert running.server.totals.connections == 3


def test_idle_connections_are_closed_and_waiting_ones_are_not():
    with ServerThread(bounds=Bounds(idle=0.3)) as running:
        running.go.clear()
        with running.connect() as idle, running.connect() as half, running.connect() as waiting:
            half.sendall(encode_batch(make_documents(2))[:-1])
            waiting.sendall(encode_batch(make_documents(1)))
            assert is_closed(idle)
            assert is_closed(half)
            assert running.wait_for_line("it sent nothing for 0.3 s within a window")
            assert len(running.lines) == 1
            time.sleep(0.7)
            assert running.server.open == 1
            running.go.set()
            assert receive_bytes(waiting, 6) == encode_ack(1)


def test_a_slow_window_is_kept_in_parts_and_a_slow_frame_is_refused():
    with ServerThread(bounds=Bounds(window_seconds=0.5)) as running:
        with running.connect() as slow, running.connect() as loris:
            slow.sendall(encode_window(3) + encode_json(1, b"1") + encode_json(2, b"2"))
            loris.sendall(encode_window(3) + encode_json(1, b"1")[:-1])
            assert receive_bytes(slow, 6) == encode_ack(2)  # a partial ack
            assert running.documents == [b"1", b"2"]
            slow.sendall(encode_json(3, b"3"))
            assert receive_bytes(slow, 6) == encode_ack(3)
            assert is_closed(loris)
        assert running.wait_for_line("no event of it came in 0.5 s")
        assert running.documents == [b"1", b"2", b"3"]


def test_unfinished_windows_take_bounded_memory():
    events = encode_json(1, b'"%s"' % (b"x" * 50_000)) * 4
    with ServerThread(bounds=Bounds(window=1 << 20, all_windows=1_000_000)) as running:
        socks = [running.connect() for _ in range(20)]
        for sock in socks:
            sock.sendall(encode_window(1_000_000) + events)
        assert wait_until(lambda: len(running.documents) >= 60)
        assert running.server._held <= 1_000_000
        assert running.lines == []
        for sock in socks:
            sock.close()
    assert running.server.totals.refused == 0


def test_unfinished_frames_are_refused_above_the_bound():
    with ServerThread(bounds=Bounds(all_windows=350_000)) as running:
        socks = [running.connect() for _ in range(4)]
        for sock in socks:
            sock.sendall(encode_window(1) + encode_json(1, b"x" * 200_000)[:100_000])
        assert running.wait_for_line("too many bytes")
        assert wait_until(lambda: running.server.open == 3 and running.server._held < 350_000)
        for sock in socks:
            sock.close()


def test_turns_go_to_the_connection_with_the_least_work_done():
    """Costly work of one connection does not delay the cheap work of others."""
    done = []

    class Writer:
        def __init__(self, name, cost, pieces):
            self.name = name
            self.cost = cost
            self.rest = pieces
            self.time = 0.0

        def work(self):
            time.sleep(self.cost)
            self.rest -= 1
            done.append(self.name)

    async def main():
        turns = Turns(asyncio.get_running_loop())
        turns.add(Writer("costly", 0.05, 4))
        turns.add(Writer("also costly", 0.05, 4))
        turns.add(Writer("cheap", 0.001, 20))
        while len(done) < 28:
            await asyncio.sleep(0)

    asyncio.run(main())
    last = max(turn for turn, name in enumerate(done) if name == "cheap")
    assert sum(name != "cheap" for name in done[:last]) <= 3


# ---- errors and lost connections


@pytest.mark.parametrize(
    "data, message",
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (b"<34>1 2003-10-11T22:14:15.003Z host su - - - x", "syslog"),
        (b'{"message":"x"}\n', "JSON"),
        (b"2W\0\0\0\1" + b"2J\0\0\0\1\xff\xff\xff\xff", "BAD_LENGTH"),
        (encode_window(1) + encode_compressed(b"")[:6] + b"garbage!", "BAD_COMPRESSION"),
        (encode_window(1) + encode_compressed(encode_json(1, b" " * (3 << 20))), "TOO_LARGE"),
    ],
)
def test_bad_bytes_end_a_connection_and_no_other(data, message):
    with (
        ServerThread(limits=Limits(inflated=2 << 20)) as running,
        running.connect() as good,
        running.connect() as bad,
    ):
        if message == "BAD_LENGTH":
            bad.sendall(encode_batch(make_documents(1)))
            assert receive_bytes(bad, 6) == encode_ack(1)  # the window before the bad bytes
        bad.sendall(data)
        assert is_closed(bad)
        assert running.wait_for_line(message)
        assert running.wait_for_line(f"{bad.getsockname()[1]}: closed:")
        good.sendall(encode_batch(make_documents(1)))
        assert receive_bytes(good, 6) == encode_ack(1)
    assert running.server.totals.refused == 1


def test_a_refused_frame_leaves_nothing_in_memory():
    """A refused compressed frame with 200,000 windows leaves no windows and no tables in memory."""
    many = encode_compressed(encode_window(0) * 200_000, level=9)
    with ServerThread() as running:

        def memory() -> int:
            return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        socks = []
        for number in range(60):
            socks.append(running.connect())
            socks[-1].sendall(many)
            assert receive_bytes(socks[-1], 1) == b""
            if number == 9:
                before = memory()
        assert memory() - before < 150 << 20  # 50 connections would hold 8 MB each
        assert wait_until(lambda: running.server.totals.refused == 60)
        assert running.stored == []
        assert all("LIMIT" in line for line in running.lines)
        for sock in socks:
            sock.close()


def test_a_strict_server_closes_bad_connections():
    with ServerThread(strict=True) as running, running.connect() as sock:
        sock.sendall(encode_json(1, b"{}"))
        assert is_closed(sock)
        assert running.wait_for_line("NO_WINDOW")


@pytest.mark.parametrize("incomplete", [False, True])
def test_a_writer_that_disconnects_within_a_window(incomplete):
    with ServerThread(incomplete=incomplete) as running:
        with running.connect() as sock:
            sock.sendall(encode_batch(make_documents(2)) + encode_batch(make_documents(3, 2))[:-1])
            sock.shutdown(socket.SHUT_WR)
            assert receive_bytes(sock, 100) == encode_ack(2)  # and no second ack
        assert running.wait_for_line("2 of the 3 events of a window")
        assert wait_until(lambda: running.server.open == 0)
    assert running.documents == make_documents(4 if incomplete else 2)
    assert running.server.totals.incomplete == 2


def test_a_writer_that_disconnects_before_its_ack():
    with ServerThread() as running:
        running.go.clear()
        with running.connect() as sock:
            sock.sendall(encode_batch(make_documents(2)))
            assert wait_until(lambda: running.calls)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        assert wait_until(lambda: running.server.open == 0)
        running.go.set()
    assert running.documents == make_documents(2)
    assert running.error is None


# ---- the client


class Unreliable:
    """A server that acknowledges some windows and closes connections at random."""

    def __init__(self, seed: int, answers=None):
        self._random = random.Random(seed)
        self.events = []
        self._answers = answers
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
                    is_closed(sock)
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
                window = table[: count + 1]
                part = count // 2 if chance < 0.4 else count
                events = lumberjack.events(window)[:part]
                self.events += [bytes(row.json) for row in events]
                sock.sendall(encode_ack(0) + encode_ack(part))
                if part < count:
                    return
                del data[: int(window["size"].sum())]

    def close(self):
        self._listener.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_client_resends_unacknowledged_events(seed, monkeypatch):
    monkeypatch.setattr("wirescan.lumberjack.live.client.FIRST_DELAY", 0.001)
    server = Unreliable(seed)
    sent = make_documents(400)
    with Client(*server.address, window=10, pipelining=3, attempts=50) as client:
        client.send(sent)
    server.close()
    assert client.acknowledged == 400
    assert client.connections > 2
    # In order. An event comes twice if its ack was lost with the connection.
    assert list(dict.fromkeys(server.events)) == sent
    assert len(server.events) < len(sent) + 10 * client.connections


def test_a_client_gives_up(monkeypatch):
    monkeypatch.setattr("wirescan.lumberjack.live.client.FIRST_DELAY", 0.001)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(ConnectionError, match="acks nothing, after 3 attempts.*refused") as caught:
        Client(*address, attempts=3).send(make_documents(1))
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)

    silent = Unreliable(0, answers=b"")
    with (
        pytest.raises(ConnectionError, match="after 2 attempts: timed out"),
        Client(*silent.address, attempts=2, timeout=0.1) as client,
    ):
        client.send(make_documents(1))
    silent.close()


@pytest.mark.parametrize(
    "answer, message",
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"), (encode_ack(7), "ACK_BEYOND")],
)
def test_a_client_refuses_another_protocol(answer, message):
    server = Unreliable(0, answers=answer)
    with (
        pytest.raises(ConnectionError, match=f"does not speak Lumberjack: .*{message}") as caught,
        Client(*server.address) as client,
    ):
        client.send(make_documents(1))
    server.close()
    assert isinstance(caught.value.__cause__, FrameError)
    assert server.connections == 1


def test_arguments_of_a_client():
    for events in ({"message": "x"}, b"{}", "{}"):
        with pytest.raises(TypeError, match="not one"):
            Client("127.0.0.1", 1).send(events)
    with pytest.raises(TypeError, match="tls must be"):
        Client("127.0.0.1", 1, tls=3)
    with pytest.raises(ValueError, match="pipelining"):
        Client("127.0.0.1", 1, pipelining=0)


@pytest.mark.parametrize("host", ["a..b", ".", "a" * 64, "\u00e9" * 70])
def test_a_client_refuses_what_is_no_name_of_a_host(host):
    with pytest.raises(ValueError, match="is no name of a host: ") as raised:
        Client(host, 5044)
    assert type(raised.value) is ValueError
    with pytest.raises(TypeError, match="host must be a str, not bytes"):
        Client(host.encode(), 5044)


def test_a_client_whose_block_fails_does_not_wait():
    with ServerThread() as running:
        running.go.clear()
        with pytest.raises(KeyError, match="a mistake"), running.client() as client:
            client.send(make_documents(1))
            raise KeyError("a mistake")
        assert client.acknowledged == 0


# ---- TLS


def make_server_context(*, client_ca: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cafile=TLS / "authority.pem" if client_ca else None
    )
    context.load_cert_chain(TLS / "server.pem", TLS / "server.key")
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def make_client_context(*, certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=TLS / "authority.pem")
    if certificate:
        context.load_cert_chain(TLS / "client.pem", TLS / "client.key")
    return context


def test_tls_carries_events(caplog):
    sent = make_documents(5000)
    with ServerThread(tls=make_server_context()) as running:
        with running.client(tls=str(TLS / "authority.pem"), level=1) as client:
            client.send(sent)
        with running.client(tls=str(TLS / "authority.pem"), window=10) as client:
            client.send(sent)
        assert running.documents == 2 * sent
        assert wait_until(lambda: running.server.open == 0)
    assert running.lines == []
    assert caplog.records == []


def test_tls_with_certificates_of_writers():
    with_certificate = make_client_context(certificate=True)
    without_certificate = make_client_context()
    with ServerThread(tls=make_server_context(client_ca=True)) as running:
        with running.client(tls=with_certificate) as client:
            client.send(make_documents(3))
        with (
            pytest.raises(OSError, match="acks nothing, after 2 attempts|TLS with .* fails"),
            running.client(tls=without_certificate, attempts=2) as client,
        ):
            client.send(make_documents(1, 3))
        assert running.wait_for_line("TLS fails")
        assert wait_until(lambda: running.server.open == 0)
    assert running.documents == make_documents(3)


def test_untrusted_tls_is_refused():
    with ServerThread(tls=make_server_context()) as running:
        with pytest.raises(PermissionError, match="TLS with .* fails"):
            running.client(tls=True).send(make_documents(1))
        assert running.wait_for_line("TLS fails")


def test_a_tls_server_refuses_plain_bytes_and_silence():
    bounds = Bounds(handshake=0.5)
    with ServerThread(tls=make_server_context(), bounds=bounds) as running:
        with running.connect() as plain, running.connect() as silent:
            plain.sendall(encode_batch(make_documents(1)))
            assert is_closed(plain)
            assert is_closed(silent)
        assert wait_until(lambda: len(running.lines) == 2)
        assert all("does the writer speak TLS" in line for line in running.lines)
        assert wait_until(lambda: running.server.open == 0)


def test_a_plain_server_refuses_tls():
    context = make_client_context()
    with ServerThread() as running:
        with pytest.raises(OSError, match="acks nothing, after 1 attempt|TLS with .* fails"):
            running.client(tls=context, attempts=1).send(make_documents(1))
        assert running.wait_for_line("TLS")


def test_a_client_waits_for_a_slow_receiver():
    """The timeout is for silence, not for the time that all bytes take."""
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
        start = time.monotonic()
        client.send([b'"' + b"x" * 1_000_006 + b'"'] * 4)
        client.flush()
        assert client.connections == 1
        assert time.monotonic() - start > 0.5
