"""A bad network between two network namespaces of this machine, for the TCP of the kernel.

    with LossyLink(Conditions(family=4, mtu=576, loss=0.05)) as link:
        listener = link.far.listen(9092)            # servers are at the far end
        link.near.call(use_kafka, link.far.address) # clients are at the near end
    link.to_server, link.to_client                  # what happened to the packets: Counts

relay.py loses, delays and doubles packets between the ends. So the kernel's TCP sends segments
again, and acknowledges others selectively. The root namespace has no device, address or route of
the link. The link ends with the block and with this process: see relay.py.

It needs Linux, root, /dev/net/tun and the command ip. `python -m tests.peers.lossy_link` makes a
link and sends bytes over it. It fails, and says why, where that is impossible.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from .relay import ADDRESSES, CLONE_NEWNET, DEVICE, Conditions, call_libc

RELAY = Path(__file__).with_name("relay.py")
SECONDS = 20  # the most that the relay takes to start or to end
TUN = Path("/dev/net/tun")
P = ParamSpec("P")
T = TypeVar("T")


class Counts(NamedTuple):
    """Packets of one direction: those that the relay received, and what it did to them."""

    received: int
    lost: int
    duplicated: int
    late: int


def find_obstacle() -> str | None:
    """Return why this machine cannot have a lossy link, or None if it can."""
    if not sys.platform.startswith("linux"):
        return "a lossy link needs Linux"
    if os.geteuid():
        return "a lossy link needs root"
    if not shutil.which("ip"):
        return "a lossy link needs the command ip (Debian's iproute2)"
    if not TUN.exists():
        return f"a lossy link needs {TUN}"
    try:
        with LossyLink(Conditions()):
            return None
    except OSError as error:
        return f"a lossy link is impossible here: {error}"


class End:
    """One end of a link: a network namespace with the device `interface` and an address.

    `peer` is the address of the other end.
    """

    interface = DEVICE

    def __init__(self, namespace: str, address: str, peer: str):
        self.address = address
        self.peer = peer
        self.family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._namespace = namespace

    def call(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call a function in the namespace, and return its result.

        The sockets that it makes, and the threads and processes that it starts, are there too.
        """
        result: Future[T] = Future()

        def run() -> None:
            try:
                enter_namespace(self._namespace)
                result.set_result(function(*arguments, **options))
            except BaseException as error:
                result.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return result.result()

    def listen(self, port: int = 0) -> socket.socket:
        """Return a listening socket. Each link has ports of its own."""
        return self.call(socket.create_server, (self.address, port), family=self.family)


def enter_namespace(path: str) -> None:
    """Move the calling thread into a network namespace."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        call_libc("setns", descriptor, CLONE_NEWNET)
    finally:
        os.close(descriptor)


class LossyLink:
    """Two namespaces with a relay between them. `near` and `far` are the ends.

    Raises OSError if the link cannot be made. After the block, `to_server` has the counts of the
    packets from the near end to the far one, and `to_client` those of the others.
    """

    def __init__(self, conditions: Conditions):
        self.conditions = conditions

    def __enter__(self) -> "LossyLink":
        # An interrupt of the terminal must not end the relay before the programs at its ends.
        self.process = subprocess.Popen(
            [sys.executable, RELAY, json.dumps(self.conditions._asdict())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            line = self.process.stdout.readline()
            if not line:
                _, log = self.process.communicate(timeout=SECONDS)
                raise OSError((log.splitlines() or ["the relay ended"])[-1])
            near, far = ADDRESSES[self.conditions.family]
            paths = [f"/proc/{self.process.pid}/fd/{number}" for number in json.loads(line)]
            self.near = End(paths[0], near, far)
            self.far = End(paths[1], far, near)
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, *_) -> None:
        try:
            # This ends the standard input of the relay.
            output, log = self.process.communicate(timeout=SECONDS)
        finally:
            self._kill()
        if self.process.returncode:
            raise RuntimeError(f"the relay failed:\n{log}")
        self.to_server, self.to_client = (Counts(**counts) for counts in json.loads(output))

    def _kill(self) -> None:
        """Kill the relay if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


def send_bytes(link: LossyLink, listener: socket.socket, data: bytes) -> bytes:
    """Send bytes from the near end to a listening socket of the far one. Return what arrives."""
    address = listener.getsockname()[:2]
    client = link.near.call(socket.create_connection, address, timeout=SECONDS)
    server, _ = listener.accept()
    with client, server:
        server.settimeout(SECONDS)

        def send() -> None:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        received = bytearray()
        while chunk := server.recv(1 << 16):
            received += chunk
        sender.join()
        return bytes(received)


def main() -> None:
    obstacle = find_obstacle()
    if obstacle:
        sys.exit(obstacle)
    data = bytes(range(256)) * 400
    for family in ADDRESSES:
        conditions = Conditions(family=family, loss=0.05, late=0.05, duplicate=0.05)
        with LossyLink(conditions) as link, link.far.listen() as listener:
            received = send_bytes(link, listener, data)
        if received != data or not link.to_server.lost:
            sys.exit(f"the lossy link of IPv{family} does not work: {link.to_server}")
        print(f"IPv{family}: {link.to_server}")


if __name__ == "__main__":
    main()
