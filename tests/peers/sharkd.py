"""sharkd: Wireshark's reading of captures, as a service. One process reads many captures.

    with Sharkd() as sharkd:
        sharkd.load(capture)
        sharkd.read_fields(["frame.len", "tcp.seq_raw"])    # values of each packet
        sharkd.follow(0)                                    # the bytes of a TCP connection

Its results are those of tshark, which needs a quarter of a second to start. Debian's package of
tshark has both. Requests and responses are lines of JSON.
"""

import base64
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

MOST_COLUMNS = 30  # of a request
SECONDS = 30  # after which a request fails


class Followed(NamedTuple):
    """The bytes of a TCP connection.

    client: the address and port that Wireshark takes for the client's. Where acknowledged bytes are
    missing, both sides have the sentence that `describe_gap` returns.
    """

    client: tuple[str, int]
    to_server: bytes
    to_client: bytes


def describe_gap(size: int) -> bytes:
    """Return what Wireshark writes in place of missing bytes."""
    return b"[%d bytes missing in capture file]\0" % size


class Sharkd:
    """A process with the default settings of Wireshark. It ends with the block."""

    def __enter__(self) -> "Sharkd":
        self._home = tempfile.TemporaryDirectory(prefix="wirescan-sharkd-")
        self._process = subprocess.Popen(
            ["sharkd", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": self._home.name},
        )
        return self

    def __exit__(self, *_) -> None:
        self._process.kill()
        self._process.communicate()
        self._home.cleanup()

    def request(self, method: str, **parameters: object) -> Any:
        """Return the result of a request. Raises RuntimeError for an error, or no answer."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        timer = threading.Timer(SECONDS, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        answer = json.loads(line) if line else {"error": "no answer"}
        if "result" not in answer:
            raise RuntimeError(f"sharkd: {method} {parameters}: {answer['error']}")
        return answer["result"]

    def load(self, capture: Path) -> None:
        """Read a capture. The next requests are about it."""
        self.request("load", file=str(capture))

    def read_fields(self, names: Sequence[str]) -> list[dict[str, str]]:
        """Return the first value of each field in each packet, "" where there is none."""
        packets: list[dict[str, str]] = []
        for at in range(0, len(names), MOST_COLUMNS):
            part = names[at : at + MOST_COLUMNS]
            columns = {f"column{number}": f"{name}:1" for number, name in enumerate(part)}
            rows = self.request("frames", **columns)
            packets = packets or [{} for _ in rows]
            for packet, row in zip(packets, rows, strict=True):
                packet |= zip(part, row["c"], strict=True)
        return packets

    def follow(self, number: int) -> Followed:
        """Return the bytes of a connection. number: the field tcp.stream."""
        result = self.request("follow", follow="TCP", filter=f"tcp.stream=={number}")
        sides = [b"", b""]
        for part in result.get("payloads", ()):
            sides[part.get("s", 0)] += base64.b64decode(part["d"])
        return Followed((result["chost"], int(result["cport"])), *sides)
