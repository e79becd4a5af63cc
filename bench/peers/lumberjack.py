"""Other readers and writers of Lumberjack: Python loops, pylogbeat, and Java: Apache Camel's decoder.

Logstash's own BeatsParser is in no registry of Java packages, so that Camel's decoder stands for it; that one parses
the JSON too, and cannot be told not to. A loop of ours shows what Java needs without.
"""
from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

from pylogbeat import PyLogBeatClient

from bench.peers.java import JVM, WARM_UP
from tests.peers import broker
from tests.peers.cache import kept, twice

HERE = Path(__file__).parent
POM = HERE / "camel" / "pom.xml"
WINDOW, DATA, JSON = b"WDJ"
_two, _one = struct.Struct(">II").unpack_from, struct.Struct(">I").unpack_from


def json_events(data: bytes) -> list[tuple[int, bytes]]:
    """(sequence, JSON text) of W and J frames."""
    at, end, events = 0, len(data), []
    while at < end:
        kind = data[at + 1]
        if kind == JSON:
            sequence, size = _two(data, at + 2)
            at += 10
            events.append((sequence, data[at:at + size]))
            at += size
        elif kind == WINDOW:
            at += 6
        else:
            raise ValueError(f"an unknown frame at {at}")
    return events


def data_events(data: bytes) -> list[tuple[int, dict[bytes, bytes]]]:
    """(sequence, its pairs) of W and D frames."""
    at, end, events = 0, len(data), []
    while at < end:
        kind = data[at + 1]
        if kind == DATA:
            sequence, count = _two(data, at + 2)
            at += 10
            event = {}
            for _ in range(count):
                size, = _one(data, at)
                key = data[at + 4:at + 4 + size]
                at += 4 + size
                size, = _one(data, at)
                event[key] = data[at + 4:at + 4 + size]
                at += 4 + size
            events.append((sequence, event))
        elif kind == WINDOW:
            at += 6
        else:
            raise ValueError(f"an unknown frame at {at}")
    return events


def parsed(documents: list[bytes]) -> list[Any]:
    return [json.loads(document) for document in documents]


def pylogbeat_windows(documents: list[bytes], window: int, compress: bool) -> list[bytes]:
    """What pylogbeat sends behind each W: J frames, in a C where `compress` (its level is 6, and it always does)."""
    client, out = PyLogBeatClient("", 0), []
    for first in range(0, len(documents), window):
        frames = client._factor_payload(documents[first:first + window])
        out.append(client._compress_payload(frames) if compress else frames)
    return out


def camel() -> Path:
    """The directory of Camel's jars, filled by Maven at the first call (about 12 MB)."""
    def fetch(target: Path) -> None:
        twice("mvn", "-q", "-B", "-f", POM, "dependency:copy-dependencies", "-DincludeScope=runtime",
              f"-DoutputDirectory={target}")

    return kept("camel", POM.read_bytes(), fetch)


def camel_version() -> str:
    jar = next(camel().glob("camel-lumberjack-*.jar"))
    return jar.stem.removeprefix("camel-lumberjack-")


class Java:
    """Passes over a file in a process of its own. Raises RuntimeError where that ends, or finds other events."""

    def __init__(self, path: Path, events: int):
        self.events = events
        self.process = subprocess.Popen(
            [broker.java(), *JVM, "-cp", f"{camel()}/*", HERE / "Decode.java", path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def warm_up(self, how: str) -> None:
        """Until the compiler has done its work."""
        for _ in range(WARM_UP):
            self.seconds(how)

    def seconds(self, how: str) -> float:
        """The seconds of a pass, with "camel" or "loop"."""
        self.process.stdin.write(how + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer or int(answer[0]) != self.events:
            raise RuntimeError(f"Java read {answer[0] if answer else 'none'} of {self.events} events")
        return int(answer[1]) / 1e9

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
