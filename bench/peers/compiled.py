"""Readers of Kafka records in C, Go and Rust: built once, and run as separate processes.

A program makes a pass for every line of its input. It prints what it read, and the nanoseconds of
the pass. Each pass must read the same records as wirescan.

    franz-go          decode and consume: Go, see franz-go/go.mod for the versions
    kafka-protocol    decode: Rust, see kafka-protocol/Cargo.lock
    librdkafka (C)    consume: consume.c, with the library in the wheel of confluent-kafka
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.peers.programs import GO, make_once, run_with_retry
from wirescan.frames.table import FrameTable

HERE = Path(__file__).parent
GO_SOURCE = HERE / "franz-go"
RUST_SOURCE = HERE / "kafka-protocol"
C_SOURCE = HERE / "consume.c"
FRANZ_GO = "franz-go"
KAFKA_PROTOCOL = "kafka-protocol (Rust)"
LIBRDKAFKA = "librdkafka (C)"
ALWAYS_CHECKS = {KAFKA_PROTOCOL}  # decoders that cannot skip checksums
ONE_THREAD = {"GOMAXPROCS": "1"}  # for Go's decoder and its garbage collector
WARM_UP = 2  # passes that are not timed


class Totals(NamedTuple):
    """What a pass read: the number of records, bytes of keys and of values, largest offset."""

    records: int
    key_bytes: int
    value_bytes: int
    last_offset: int


def sum_records(tables: Iterable[FrameTable]) -> Totals:
    """Return the totals of tables of wirescan's records. Null keys and values have no bytes."""
    records = 0
    key_bytes = 0
    value_bytes = 0
    last_offset = -1
    for table in tables:
        records += len(table)
        key_bytes += int(np.maximum(table["key_size"], 0).sum(dtype=np.int64))
        value_bytes += int(np.maximum(table["value_size"], 0).sum(dtype=np.int64))
        last_offset = max(last_offset, int(table["offset"].max(initial=-1)))
    return Totals(records, key_bytes, value_bytes, last_offset)


class Program:
    """A running program that makes passes.

    name: for tables and errors. command: the program and its arguments. expected: what each pass
    has to read. environment: variables that are set for it.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        expected: Totals,
        environment: dict[str, str] | None = None,
    ):
        self.name = name
        self.expected = expected
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | (environment or {}),
        )
        try:
            for _ in range(WARM_UP):
                self.seconds()
        except RuntimeError:
            self.close()
            raise

    def seconds(self, *, check: bool = True) -> float:
        """Return the seconds of a pass. check: verify checksums, for decoders that can skip them.

        Raises RuntimeError if the program ends, or reads other records than wirescan.
        """
        assert self.process.stdin and self.process.stdout and self.process.stderr
        try:
            self.process.stdin.write("check\n" if check else "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"{self.name} ended: {self.process.stderr.read().strip()}")
        *numbers, nanoseconds = map(int, answer.split())
        totals = Totals(*numbers)
        if totals != self.expected:
            raise RuntimeError(f"{self.name} reads {totals}, and wirescan reads {self.expected}")
        return nanoseconds / 1e9

    def close(self) -> None:
        """End the program."""
        self.process.communicate()


class MissingPeerError(Exception):
    """A program cannot be built here. The message says why."""


@dataclass
class Built:
    """The programs of one kind that can run here, by name.

    missing: a sentence for each of the others.
    """

    paths: dict[str, Path] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)


@functools.cache
def build_decoders() -> Built:
    """Build the programs that decode record batches in memory."""
    return _build_all({FRANZ_GO: lambda: build_go() / "decode", KAFKA_PROTOCOL: build_rust})


@functools.cache
def build_consumers() -> Built:
    """Build the programs that consume a topic."""
    return _build_all({LIBRDKAFKA: build_c, FRANZ_GO: lambda: build_go() / "consume"})


def _build_all(builders: dict[str, Callable[[], Path]]) -> Built:
    built = Built()
    for name, build in builders.items():
        try:
            built.paths[name] = build()
        except MissingPeerError as error:
            built.missing.append(f"{name} takes no part: {error}.")
    return built


def start_decoders(segment: Path, expected: Totals) -> list[Program]:
    """Start the decoders of a segment of magic 2. The caller closes them."""
    return _start_all(build_decoders(), [str(segment)], expected, ONE_THREAD)


def start_consumers(address: str, topic: str, partitions: int, expected: Totals) -> list[Program]:
    """Start the consumers of a topic. The caller closes them."""
    arguments = [address, topic, str(partitions), str(expected.records)]
    return _start_all(build_consumers(), arguments, expected, {})


def _start_all(
    built: Built, arguments: list[str], expected: Totals, environment: dict[str, str]
) -> list[Program]:
    programs: list[Program] = []
    try:
        for name, path in built.paths.items():
            programs.append(Program(name, [str(path), *arguments], expected, environment))
    except BaseException:
        for program in programs:
            program.close()
        raise
    return programs


def list_versions(built: Built) -> list[str]:
    """Return the pinned versions of the libraries of built programs, as the report names them."""
    versions = []
    if FRANZ_GO in built.paths:
        version = _find(r"twmb/franz-go v(\S+)", GO_SOURCE / "go.mod")
        versions.append(f"franz-go {version}")
    if KAFKA_PROTOCOL in built.paths:
        version = _find(r'kafka-protocol = "=(\S+)"', RUST_SOURCE / "Cargo.toml")
        versions.append(f"kafka-protocol {version}")
    if LIBRDKAFKA in built.paths:
        import confluent_kafka

        versions.append(f"librdkafka {confluent_kafka.libversion()[0]}")
    return versions


def _find(pattern: str, path: Path) -> str:
    match = re.search(pattern, path.read_text())
    if match is None:
        raise ValueError(f"{path} has no version ({pattern})")
    return match[1]


def build_go() -> Path:
    """Return the directory with franz-go's decode and consume. Raises MissingPeerError."""
    _require("go", "Go is not installed")

    def build(target: Path) -> None:
        command = ["go", "build", "-o", f"{target}/", "./decode", "./consume"]
        run_with_retry(*command, cwd=GO_SOURCE, env=os.environ | GO)

    return _make("franz-go", GO_SOURCE, build)


def build_rust() -> Path:
    """Return the path of kafka-protocol's decode. Raises MissingPeerError."""
    _require("cargo", "cargo (Rust) is not installed")

    def build(target: Path) -> None:
        scratch = target / "scratch"
        manifest = RUST_SOURCE / "Cargo.toml"
        options = ["--quiet", "--release", "--locked", "--target-dir", scratch]
        run_with_retry("cargo", "build", *options, "--manifest-path", manifest)
        shutil.move(scratch / "release" / "decode", target / "decode")
        shutil.rmtree(scratch)

    return _make("kafka-protocol", RUST_SOURCE, build) / "decode"


def build_c() -> Path:
    """Return the path of the consumer with librdkafka. Raises MissingPeerError."""
    _require("gcc", "gcc is not installed")
    library = find_librdkafka()
    command = ["gcc", "-O2", str(C_SOURCE), str(library), f"-Wl,-rpath,{library.parent}"]

    def build(target: Path) -> None:
        subprocess.run([*command, "-o", target / "consume"], check=True)

    return _make("librdkafka", C_SOURCE, build, repr(command)) / "consume"


def find_librdkafka() -> Path:
    """Return the path of the library in the wheel of confluent-kafka. Raises MissingPeerError."""
    import confluent_kafka

    libraries = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    path = next(libraries.glob("librdkafka*.so*"), None)
    if path is None:
        raise MissingPeerError(
            f"{libraries} has no librdkafka: install the wheel of confluent-kafka"
        )
    return path


def _require(command: str, message: str) -> None:
    if shutil.which(command) is None:
        raise MissingPeerError(message)


def _make(name: str, source: Path, build: Callable[[Path], None], more: str = "") -> Path:
    """Return the directory of a built program.

    source: a file, or a directory with all sources. more: further text that the program depends on.
    """
    files = sorted(path for path in [source, *source.rglob("*")] if path.is_file())
    recipe = b"".join(path.read_bytes() for path in files) + more.encode()
    try:
        return make_once(name, recipe, build)
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingPeerError(f"it cannot be built here ({error})") from error
