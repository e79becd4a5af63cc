"""Lumberjack over loopback: a cheap writer, wirescan's receiver in a process, and go-lumber.

    python -m bench.peers.lumberjack_live

starts wirescan's server without storage, and runs until SIGTERM.
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

from bench.peers.programs import TstSend
from bench.workloads import records_and_events
from wirescan import lumberjack
from wirescan.lumberjack.live.client import Client
from wirescan.lumberjack.live.server import Server

PIPELINING = 2  # windows in flight, like libbeat
PATIENCE = 60  # seconds for an ack
WARM_UP = 16  # windows
ACK = 6  # bytes


class Receive:
    """A receiver of wirescan on `address`, as a context manager.

    sink: "frames" or "parquet", as for `wirescan receive --as`; or "nothing" for the server alone,
    without storage.
    """

    def __init__(self, sink: str):
        self._home = tempfile.TemporaryDirectory(dir=records_and_events.find_directory())
        command = ["wirescan", "receive", "lumberjack", "--listen", "127.0.0.1:0"]
        command += ["--to", self._home.name, "--as", sink, "--json"]
        if sink == "nothing":
            command = [__name__]
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self._process.stderr.readline()
        match = re.search(r"listening on (\S+)", line)
        if not match:
            self.__exit__()
            raise RuntimeError(f"the receiver does not listen, and prints {line!r}")
        self.address = match[1]

    def stop(self, events: int) -> None:
        """End the receiver after its files are complete.

        Raises RuntimeError if it received another number of events.
        """
        self._process.terminate()
        output, errors = self._process.communicate()
        if self._process.returncode or json.loads(output)["events"] != events:
            raise RuntimeError(
                f"the receiver was sent {events} events, and ends with {output}{errors}"
            )

    def __enter__(self) -> Receive:
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.kill()
        self._process.communicate()
        self._home.cleanup()


def time_receiver(sink: str, windows: Sequence[memoryview]) -> float:
    """Return the seconds until a new receiver has acked all windows.

    With "parquet", the time includes writing all files.
    """
    with Receive(sink) as receiver:
        replay(receiver.address, windows[:WARM_UP])
        begun = time.perf_counter()
        replay(receiver.address, windows)
        acked = time.perf_counter() - begun
        window_count = len(windows) + len(windows[:WARM_UP])
        receiver.stop(records_and_events.IN_WINDOW * window_count)
        return time.perf_counter() - begun if sink == "parquet" else acked


def split_windows(stream: bytes) -> list[memoryview]:
    """Return the windows of a workload's stream, each with its W frame."""
    frames = lumberjack.scan(stream)
    starts = frames["start"][frames["kind"] == lumberjack.Kind.WINDOW].tolist()
    return [memoryview(stream)[start:end] for start, end in zip(starts, [*starts[1:], len(stream)])]


def replay(address: str, windows: Sequence[memoryview]) -> float:
    """Send windows on a new connection, and return the seconds until all are acked.

    Raises RuntimeError for an unexpected ack.
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
    """Read the ack of one window, and the keep-alives before it."""
    while True:
        ack = connection.recv(ACK, socket.MSG_WAITALL)
        number = int.from_bytes(ack[2:], "big")
        if len(ack) < ACK or ack[1:2] != b"A" or number not in (0, records_and_events.IN_WINDOW):
            raise RuntimeError(f"the receiver answers {ack!r}")
        if number:
            return


def time_file(windows: Sequence[memoryview]) -> float:
    """Return the seconds to write windows to a file, with a sync after every PIPELINING windows."""
    with tempfile.NamedTemporaryFile(dir=records_and_events.find_directory(), buffering=0) as file:
        begun = time.perf_counter()
        for number, window in enumerate(windows, 1):
            file.write(window)
            if number % PIPELINING == 0:
                os.fsync(file.fileno())
        return time.perf_counter() - begun


def time_go_lumber(address: str, events: int, seconds: float) -> float:
    """Return the seconds of go-lumber's uncompressed client per `events` events.

    The rate is measured for some seconds.
    """
    with TstSend(
        address, level=0, batch=records_and_events.IN_WINDOW, pipeline=PIPELINING
    ) as client:
        client.await_true(lambda: client.acknowledged() > 0)
        time.sleep(seconds / 4)
        first = client.acknowledged()
        begun = time.perf_counter()
        time.sleep(seconds)
        last = client.acknowledged()
        took = time.perf_counter() - begun
        if last <= first:
            raise RuntimeError(f"{address} acks nothing")
        return took * events / (last - first)


def time_go_lumber_to_wirescan(events: int, seconds: float) -> float:
    """Return the seconds of go-lumber's client with wirescan's server, without storage."""
    with Receive("nothing") as receiver:
        return time_go_lumber(receiver.address, events, seconds)


def time_client(texts: pa.Array) -> float:
    """Return the seconds until wirescan's server has acked JSON texts of wirescan's client."""
    with Receive("nothing") as receiver:
        host, port = receiver.address.split(":")
        begun = time.perf_counter()
        with Client(
            host, int(port), window=records_and_events.IN_WINDOW, pipelining=PIPELINING
        ) as sender:
            sender.send(texts)
        seconds = time.perf_counter() - begun
        receiver.stop(len(texts))
        return seconds


async def serve() -> None:
    server = Server(lambda windows: None)
    await server.start("127.0.0.1", 0)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    print("listening on {}:{}".format(*server.addresses[0]), file=sys.stderr, flush=True)
    await server.run()
    print(json.dumps({"events": server.totals.events}))


if __name__ == "__main__":
    asyncio.run(serve())
