"""Connections between `openssl s_server` and `openssl s_client` on 127.0.0.1.

connection = OpensslConnection(identity, port, keylog, ["-tls1_2"], ["-cipher", "AES128-SHA"])
with connection:
    connection.send(0, b"question")     # of the client; returns when the server has it
    connection.send(1, b"answer")
"""

import os
import select
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

SECONDS = 20


def is_listening(port: int) -> bool:
    """Return whether a server listens on the port, without a connection to it.

    A server that sets SO_REUSEADDR, as `openssl s_server` does, can bind the port meanwhile.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


class OpensslConnection:
    """A connection that is open until the block ends.

    identity: a PEM file with the key and certificate of the server. keylog: the client adds its
    secrets to this file. server_options, client_options: further ones of the programs.
    """

    def __init__(
        self,
        identity: Path,
        port: int,
        keylog: Path,
        server_options: Sequence[str],
        client_options: Sequence[str],
    ):
        address = f"127.0.0.1:{port}"
        self._port = port
        self._commands = (
            ["s_client", "-connect", address, "-keylogfile", str(keylog), *client_options],
            ["s_server", "-accept", address, "-cert", str(identity), *server_options],
        )
        self._processes: list[subprocess.Popen | None] = [None, None]

    def __enter__(self) -> "OpensslConnection":
        try:
            self._start(1)
            self._wait_for_server()
            self._start(0)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        for process in self._processes:
            if process is not None:
                process.terminate()
                process.communicate(timeout=SECONDS)

    def send(self, side: int, data: bytes) -> None:
        """Send bytes, and wait until the other side has them. side: 0 for the client."""
        sender, receiver = self._processes[side], self._processes[1 - side]
        assert sender is not None and receiver is not None
        sender.stdin.write(data)
        sender.stdin.flush()
        received = b""
        end = time.monotonic() + SECONDS
        while len(received) < len(data):
            ready, _, _ = select.select([receiver.stdout], [], [], max(end - time.monotonic(), 0))
            chunk = os.read(receiver.stdout.fileno(), 1 << 16) if ready else b""
            if not chunk:
                raise RuntimeError(f"{len(received)} of {len(data)} bytes came: {received[-200:]}")
            received += chunk
        assert received == data

    def _start(self, side: int) -> None:
        self._processes[side] = subprocess.Popen(
            ["openssl", *self._commands[side], "-quiet"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def _wait_for_server(self) -> None:
        end = time.monotonic() + SECONDS
        while not is_listening(self._port):
            server = self._processes[1]
            if server is None or server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"openssl does not listen: {self._commands[1]}")
            time.sleep(0.01)
