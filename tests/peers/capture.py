"""Captures with tcpdump and dumpcap: of the loopback interface, and of an end of a lossy link.

    with Proxy() as proxy, Capture(Path("kafka.pcap"), [proxy.port]):
        proxy.target = broker.address
        ...                                 # clients connect to proxy.address
        connections = proxy.take()
    # now kafka.pcap has every packet of the connections

tcpdump writes pcap files, with times in microseconds or nanoseconds. dumpcap writes pcapng files.
Both need the right to capture, which root has. No packet is missing: the block begins when the
program has captured a marker, and ends when the program has captured another one. A marker is a UDP
packet with random bytes. The markers are removed from the file. So are the options of a pcapng file
that describe the machine.

A captured packet may be larger than the interface's MTU, and its checksum may be wrong, because the
kernel leaves both tasks to the network card.
"""

import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from .lossy_link import End

SECTION = 0x0A0D0D0A
INTERFACE = 1
HARDWARE, SYSTEM = 2, 3  # options of a section
INTERFACE_SYSTEM = 12  # option of an interface
SECTION_SIZE = 24  # bytes of a section block before its options
INTERFACE_SIZE = 16  # bytes of an interface block before its options
FILE_HEADER = 24  # bytes of a pcap file before its first record
RECORD_HEADER = 16


class Form(Enum):
    """The form of a capture file. The value is the command that writes it."""

    # In the immediate mode each packet takes a slot of 256 KiB in the buffer, here of 64 MiB.
    PCAP = ("tcpdump", "-n", "-U", "--immediate-mode", "-B", "65536")
    PCAP_NANOSECONDS = (*PCAP, "--time-stamp-precision=nano")
    PCAPNG = ("dumpcap", "-q", "-B", "64")


# No packet of a lossy link is larger. So 8 MiB have thousands of slots.
SMALL_PACKETS = ["-s", "2048", "-B", "8192"]
DROPS = re.compile(r"(\d+) packets dropped by kernel|received/dropped on .*: \d+/(\d+)")


class Block(NamedTuple):
    """The bytes of one record of a pcap file, or of one block of a pcapng file."""

    kind: int  # the type of a pcapng block, 0 in a pcap file
    data: bytes


class Capture:
    """Captures the packets of some TCP ports on the loopback interface until the block ends.

    file: the capture file. ports: TCP ports of either side. form: the form of the file. interface:
    "lo", or "any" for the link type of Linux's cooked captures. end: captures the device of this
    end of a lossy link instead.
    """

    def __init__(
        self,
        file: Path,
        ports: Iterable[int],
        form: Form = Form.PCAP,
        *,
        interface: str = "lo",
        end: End | None = None,
        timeout: float = 20,
    ):
        self.file = file
        self._ports = list(ports)
        self._form = form
        self._interface = end.interface if end else interface
        self._end = end
        self._timeout = timeout

    def __enter__(self) -> "Capture":
        self._token = os.urandom(16)
        self._home = tempfile.TemporaryDirectory(prefix="wirescan-capture-")
        self._raw = Path(self._home.name, "raw")
        self._log = Path(self._home.name, "log")
        self._socket = self._call(make_marker_socket, self._end)
        marker_port = self._socket.getsockname()[1]
        # Over a link, the marker is captured where it leaves. It need not arrive.
        host = self._end.peer if self._end else "127.0.0.1"
        self._marker_target = (host, marker_port)
        terms = [f"tcp port {port}" for port in self._ports] + [f"udp port {marker_port}"]
        command = [*self._form.value, "-i", self._interface, "-w", str(self._raw)]
        if self._form is Form.PCAPNG:
            command += ["-f", " or ".join(terms)]
        else:
            command += SMALL_PACKETS if self._end else []
            command += [" or ".join(terms)]
        with self._log.open("wb") as log:
            self._process = self._call(
                subprocess.Popen, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self._await_marker(b"first", repeat=True)
        except BaseException:
            self._stop()
            self._close()
            raise
        return self

    def _call(self, function: Callable, *arguments: object, **options: object):
        """Call a function where the packets are captured: in the namespace of the end."""
        if self._end is None:
            return function(*arguments, **options)
        return self._end.call(function, *arguments, **options)

    def __exit__(self, error: type | None, *_) -> None:
        try:
            if error is None:
                self._await_marker(b"last", repeat=False)
            self._stop()
            if error is None:
                self._check_drops()
                self.file.write_bytes(clean(self._raw.read_bytes(), self._token))
        finally:
            self._stop()
            self._close()

    def _await_marker(self, name: bytes, *, repeat: bool) -> None:
        """Send a marker and wait until the file has it.

        repeat: send it until then, because the program may not capture yet. Raises RuntimeError if
        the program ends, and TimeoutError if the marker does not arrive in time.
        """
        marker = self._token + name
        until = time.monotonic() + self._timeout
        sent = False
        while not self._raw.exists() or marker not in self._raw.read_bytes():
            if self._process.poll() is not None:
                raise RuntimeError(f"{self._form.value[0]} ended:\n{self._log.read_text()}")
            if time.monotonic() > until:
                raise TimeoutError(f"{self._form.value[0]} does not capture a marker")
            if repeat or not sent:
                self._socket.sendto(marker, self._marker_target)
                sent = True
            time.sleep(0.05)

    def _check_drops(self) -> None:
        """Raise RuntimeError if the ended program does not report that it has every packet."""
        log = self._log.read_text()
        drops = DROPS.search(log)
        if drops is None or int(drops[1] or drops[2]):
            raise RuntimeError(f"{self._form.value[0]} lacks packets:\n{log}")

    def _stop(self) -> None:
        """End the program, which completes its file. More calls do nothing."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _close(self) -> None:
        self._socket.close()
        self._home.cleanup()


def make_marker_socket(end: End | None) -> socket.socket:
    """Return a socket of UDP that sends markers. end: as for Capture."""
    marker = socket.socket(end.family if end else socket.AF_INET, socket.SOCK_DGRAM)
    marker.bind((end.address if end else "127.0.0.1", 0))
    return marker


def clean(data: bytes, token: bytes) -> bytes:
    """Remove the packets that contain `token`, and the machine's description, from a file."""
    if struct.unpack_from("<I", data)[0] != SECTION:
        records = [block.data for block in split_pcap(data) if token not in block.data]
        return data[:FILE_HEADER] + b"".join(records)
    blocks = [block for block in split_pcapng(data) if token not in block.data]
    return b"".join(map(remove_description, blocks))


def split_pcap(data: bytes) -> Iterator[Block]:
    """Yield the records of a little-endian pcap file."""
    position = FILE_HEADER
    while position < len(data):
        (size,) = struct.unpack_from("<I", data, position + 8)
        stop = position + RECORD_HEADER + size
        yield Block(0, data[position:stop])
        position = stop


def split_pcapng(data: bytes) -> Iterator[Block]:
    """Yield the blocks of a little-endian pcapng file."""
    position = 0
    while position < len(data):
        kind, size = struct.unpack_from("<II", data, position)
        yield Block(kind, data[position : position + size])
        position += size


def remove_description(block: Block) -> bytes:
    """Return a pcapng block without its options for hardware and operating system."""
    if block.kind == SECTION:
        return remove_options(block.data, SECTION_SIZE, {HARDWARE, SYSTEM})
    if block.kind == INTERFACE:
        return remove_options(block.data, INTERFACE_SIZE, {INTERFACE_SYSTEM})
    return block.data


def remove_options(block: bytes, position: int, codes: set[int]) -> bytes:
    """Return a block without some options. position: where its options start."""
    kept = [block[8:position]]
    while position < len(block) - 4:
        code, size = struct.unpack_from("<HH", block, position)
        stop = position + 4 + (size + 3 & ~3)  # options are padded to 4 bytes
        if code not in codes:
            kept.append(block[position:stop])
        position = stop
    body = b"".join(kept)
    size = struct.pack("<I", len(body) + 12)
    return block[:4] + size + body + size
