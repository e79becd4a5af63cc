"""Other readers and writers of Lumberjack: Python loops, pylogbeat, and Apache Camel's decoder.

Logstash's own BeatsParser is in no registry of Java packages, so Camel's decoder takes its place.
It always parses the JSON. A Java loop shows the time without that.
"""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

from pylogbeat import PyLogBeatClient

from bench.peers.java import JVM, WARM_UP
from bench.peers.programs import broker, make_once, run_with_retry

HERE = Path(__file__).parent
POM = HERE / "camel" / "pom.xml"
WINDOW, DATA, JSON = b"WDJ"
_two, _one = struct.Struct(">II").unpack_from, struct.Struct(">I").unpack_from


def read_json_events(data: bytes) -> list[tuple[int, bytes]]:
    """Return (sequence, JSON text) of W and J frames."""
    at = 0
    end = len(data)
    events = []
    while at < end:
        kind = data[at + 1]
        if kind == JSON:
            sequence, size = _two(data, at + 2)
            at += 10
            events.append((sequence, data[at : at + size]))
            at += size
        elif kind == WINDOW:
            at += 6
        else:
            raise ValueError(f"an unknown frame at {at}")
    return events


def read_data_events(data: bytes) -> list[tuple[int, dict[bytes, bytes]]]:
    """Return (sequence, pairs) of W and D frames."""
    at = 0
    end = len(data)
    events = []
    while at < end:
        kind = data[at + 1]
        if kind == DATA:
            sequence, count = _two(data, at + 2)
            at += 10
            event = {}
            for _ in range(count):
                (size,) = _one(data, at)
                key = data[at + 4 : at + 4 + size]
                at += 4 + size
                (size,) = _one(data, at)
                event[key] = data[at + 4 : at + 4 + size]
                at += 4 + size
            events.append((sequence, event))
        elif kind == WINDOW:
            at += 6
        else:
            raise ValueError(f"an unknown frame at {at}")
    return events


def parse_json(documents: list[bytes]) -> list[Any]:
    return [json.loads(document) for document in documents]


def encode_windows(documents: list[bytes], window: int, *, compress: bool) -> list[bytes]:
    """Return the bytes of pylogbeat after each W frame: J frames, or a C frame around them.

    pylogbeat itself always compresses, at level 6.
    """
    client = PyLogBeatClient("", 0)
    out = []
    for first in range(0, len(documents), window):
        frames = client._factor_payload(documents[first : first + window])
        out.append(client._compress_payload(frames) if compress else frames)
    return out


def fetch_camel() -> Path:
    """Return the directory of Camel's jars. Maven fills it at the first call (about 12 MB)."""

    def fetch(target: Path) -> None:
        run_with_retry(
            "mvn",
            "-q",
            "-B",
            "-f",
            POM,
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={target}",
        )

    return make_once("camel", POM.read_bytes(), fetch)


def read_camel_version() -> str:
    jar = next(fetch_camel().glob("camel-lumberjack-*.jar"))
    return jar.stem.removeprefix("camel-lumberjack-")


class Java:
    """Passes over a file in a separate Java process.

    Raises RuntimeError if the process ends or finds another number of events.
    """

    def __init__(self, path: Path, events: int):
        self.events = events
        self.process = subprocess.Popen(
            [broker.find_java(), *JVM, "-cp", f"{fetch_camel()}/*", HERE / "Decode.java", path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def warm_up(self, how: str) -> None:
        """Make passes until the compiler has optimized the code."""
        for _ in range(WARM_UP):
            self.seconds(how)

    def seconds(self, how: str) -> float:
        """Return the seconds of a pass. how: "camel" or "loop"."""
        self.process.stdin.write(how + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer or int(answer[0]) != self.events:
            raise RuntimeError(
                f"Java read {answer[0] if answer else 'none'} of {self.events} events"
            )
        return int(answer[1]) / 1e9

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
