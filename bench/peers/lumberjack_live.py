"""Lumberjack over loopback: a writer that costs next to nothing, wirescan's receiver in a process of its own, and
go-lumber's client.

    python -m bench.peers.lumberjack_live       wirescan's server, which keeps nothing, until SIGTERM
"""
from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bench import data
from tests.peers.lumberjack import TstSend
from wirescan import lumberjack
from wirescan.lumberjack.client import Client
from wirescan.lumberjack.server import Server

PIPELINING = 2              # windows in flight, as libbeat has them
PATIENCE = 60               # seconds for an ack
WARM_UP = 16                # windows
ACK = 6                     # bytes


class Receive:
    """A receiver of wirescan on `address`. A context manager.

    sink: "frames" or "parquet", as of `wirescan receive --as`; "nothing" is its server alone, which keeps nothing.
    """

    def __init__(self, sink: str):
        self._home = tempfile.TemporaryDirectory(dir=data.directory())
        command = [__name__] if sink == "nothing" else [
            "wirescan", "receive", "lumberjack", "--listen", "127.0.0.1:0", "--to", self._home.name, "--as", sink,
            "--json"]
        self._process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True)
        said = self._process.stderr.readline()
        found = re.search(r"listening on (\S+)", said)
        if not found:
            self.__exit__()
            raise RuntimeError(f"the receiver says {said!r}")
        self.address = found[1]

    def stop(self, events: int) -> None:
        """Ends it, when all is kept. Raises RuntimeError where it did not get so many events."""
        self._process.terminate()
        said, failed = self._process.communicate()
        if self._process.returncode or json.loads(said)["events"] != events:
            raise RuntimeError(f"the receiver was sent {events} events, and ends with {said}{failed}")

    def __enter__(self) -> Receive:
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.kill()
        self._process.communicate()
        self._home.cleanup()


def received(sink: str, windows: Sequence[memoryview]) -> float:
    """The seconds until a new receiver has acked windows; with "parquet" until all files are written, too."""
    with Receive(sink) as receiver:
        replay(receiver.address, windows[:WARM_UP])
        begun = time.perf_counter()
        replay(receiver.address, windows)
        acked = time.perf_counter() - begun
        receiver.stop(data.IN_WINDOW * (len(windows) + len(windows[:WARM_UP])))
        return time.perf_counter() - begun if sink == "parquet" else acked


def windows_of(stream: bytes) -> list[memoryview]:
    """The windows of a stream of data.py, each with its W."""
    frames = lumberjack.scan(stream)
    starts = frames["start"][frames["kind"] == lumberjack.Kind.WINDOW].tolist()
    return [memoryview(stream)[start:end] for start, end in zip(starts, [*starts[1:], len(stream)])]


def replay(address: str, windows: Sequence[memoryview]) -> float:
    """The seconds of a connection on which windows of data.py are sent, until all are acked.

    Raises RuntimeError for other acks than theirs.
    """
    host, port = address.split(":")
    begun = time.perf_counter()
    with socket.create_connection((host, int(port)), PATIENCE) as connection:
        waiting = 0
        for window in windows:
            if waiting == PIPELINING:
                await_ack(connection)
                waiting -= 1
            connection.sendall(window)
            waiting += 1
        for _ in range(waiting):
            await_ack(connection)
    return time.perf_counter() - begun


def await_ack(connection: socket.socket) -> None:
    """Reads the ack of one window, and the keep-alives before it."""
    while True:
        ack = connection.recv(ACK, socket.MSG_WAITALL)
        number = int.from_bytes(ack[2:], "big")
        if len(ack) < ACK or ack[1:2] != b"A" or number not in (0, data.IN_WINDOW):
            raise RuntimeError(f"the receiver answers {ack!r}")
        if number:
            return


def synced(windows: Sequence[memoryview]) -> float:
    """The seconds to write windows into a file that is synced behind as many as are in flight: what the disk takes."""
    with tempfile.NamedTemporaryFile(dir=data.directory(), buffering=0) as file:
        begun = time.perf_counter()
        for number, window in enumerate(windows, 1):
            file.write(window)
            if number % PIPELINING == 0:
                os.fsync(file.fileno())
        return time.perf_counter() - begun


def go_lumber(address: str, events: int, seconds: float) -> float:
    """The seconds that go-lumber's client, uncompressed, takes for so many events, as it went for some seconds."""
    with TstSend(address, level=0, batch=data.IN_WINDOW, pipeline=PIPELINING) as client:
        client.await_true(lambda: client.acknowledged() > 0)
        time.sleep(seconds / 4)
        first, begun = client.acknowledged(), time.perf_counter()
        time.sleep(seconds)
        last, took = client.acknowledged(), time.perf_counter() - begun
        if last <= first:
            raise RuntimeError(f"{address} acks nothing")
        return took * events / (last - first)


def go_lumber_to_nothing(events: int, seconds: float) -> float:
    """... to wirescan's server."""
    with Receive("nothing") as receiver:
        return go_lumber(receiver.address, events, seconds)


def client(texts: pa.Array) -> float:
    """The seconds until wirescan's client has sent JSON texts to wirescan's server, and all are acked."""
    with Receive("nothing") as receiver:
        host, port = receiver.address.split(":")
        begun = time.perf_counter()
        with Client(host, int(port), window=data.IN_WINDOW, pipelining=PIPELINING) as sender:
            sender.send(texts)
        taken = time.perf_counter() - begun
        receiver.stop(len(texts))
        return taken


async def serve() -> None:
    server = Server(lambda windows: None)
    await server.start("127.0.0.1", 0)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    print("listening on {}:{}".format(*server.addresses[0]), file=sys.stderr, flush=True)
    await server.run()
    print(json.dumps({"events": server.totals.events}))


if __name__ == "__main__":
    asyncio.run(serve())
