"""Kafka's own Java reader: kafka-clients in a process of its own, which makes one pass whenever it is asked to."""
from __future__ import annotations

import subprocess
from pathlib import Path

from tests.peers import broker

WARM_UP = 5         # passes, until the compiler has done its work
JVM = ["-Xmx1g", "-XX:+UseSerialGC", "-XX:-UsePerfData"]


class Iterate:
    """Passes over the records of a segment. `seconds()` makes one and tells how long it took, by its own clock.

    Raises RuntimeError where the process ends or finds another number of records.
    """

    def __init__(self, segment: Path, records: int):
        source = Path(__file__).with_name("Iterate.java")
        self.records = records
        self.process = subprocess.Popen(
            [broker.java(), *JVM, "-cp", broker.classpath(), str(source), str(segment)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(WARM_UP):
            self.seconds(False)
            self.seconds(True)

    def seconds(self, check: bool) -> float:
        self.process.stdin.write("check\n" if check else "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer or int(answer[0]) != self.records:
            raise RuntimeError(f"Java read {answer[0] if answer else 'none'} of {self.records} records")
        return int(answer[1]) / 1e9

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def client_version() -> str:
    """The version of kafka-clients on the class path."""
    jar = next(broker.jars().glob("kafka-clients-*.jar"))
    return jar.stem.removeprefix("kafka-clients-")
