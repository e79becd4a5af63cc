"""Kafka's own Java reader: kafka-clients in a separate process, which makes passes on request."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.peers.programs import broker

WARM_UP = 5  # passes until the compiler has optimized the code
JVM = ["-Xmx1g", "-XX:+UseSerialGC", "-XX:-UsePerfData"]


class Iterate:
    """Passes over the records of a segment, timed by Java's own clock.

    Raises RuntimeError if the process ends or finds another number of records.
    """

    def __init__(self, segment: Path, records: int):
        source = Path(__file__).with_name("Iterate.java")
        self.records = records
        self.process = subprocess.Popen(
            [broker.find_java(), *JVM, "-cp", broker.find_classpath(), str(source), str(segment)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(WARM_UP):
            self.seconds(check=False)
            self.seconds(check=True)

    def seconds(self, *, check: bool) -> float:
        """Return the seconds of a pass. check: verify checksums."""
        self.process.stdin.write("check\n" if check else "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer or int(answer[0]) != self.records:
            raise RuntimeError(
                f"Java read {answer[0] if answer else 'none'} of {self.records} records"
            )
        return int(answer[1]) / 1e9

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def read_client_version() -> str:
    """Return the version of kafka-clients on the class path."""
    jar = next(broker.fetch_jars().glob("kafka-clients-*.jar"))
    return jar.stem.removeprefix("kafka-clients-")
