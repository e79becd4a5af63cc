"""Instructions per frame of the kernels, under callgrind: `python -m bench.instructions`.

    python -m bench.instructions            compare with bench/instructions.json; exit 1 if one is
                                            more than 5 % higher
    python -m bench.instructions --write    write bench/instructions.json

Each kernel runs over a fixed workload, REPEATS times and half as often. The difference of the two
counts excludes what does not grow with the repeats. Counts start after the interpreter has started.
valgrind shows the processor without AVX-512, so kernels take the paths for AVX2 everywhere. Other
compilers make other instructions: the file names the compiler, and with another one the counts are
printed only.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.peers.programs import make_once

TABLE = Path(__file__).with_name("instructions.json")
SOURCE = Path(__file__).parent / "peers" / "callgrind.c"
FRAMES = 10_000
SEGMENT = 1 << 20  # bytes of Kafka records whose times ascend, in batches of 128
REPEATS = 4
TOLERANCE = 0.05


def make_kernels() -> dict[str, tuple[Callable[[], object], int]]:
    """Return the calls, and the number of frames that each one reads."""
    from bench.workloads import nats_messages, thrift_calls
    from bench.workloads.irregular_records import make_segment
    from bench.workloads.records_and_events import make_frames, write_segment
    from wirescan import kafka, lumberjack, nats, thrift
    from wirescan.export.batches import iter_batches
    from wirescan.frames.to_arrow import to_batch

    columns = ["offset", "timestamp", "key", "value"]
    kernels: dict[str, tuple[Callable[[], object], int]] = {}
    for shape in ("regular", "lognormal", "nulls", "headers"):
        raw, count = make_segment(shape, FRAMES)
        batches = kafka.scan(raw)
        records = kafka.records(batches)
        kernels |= {
            f"kafka.scan, checksums: {shape}": (lambda raw=raw: kafka.scan(raw), count),
            f"kafka.records: {shape}": (
                lambda batches=batches: kafka.records(batches, check=False),
                count,
            ),
            f"to_batch: {shape}": (lambda records=records: to_batch(records, columns), count),
            f"iter_batches: {shape}": (
                lambda raw=raw: list(
                    iter_batches(
                        raw, format="kafka.records", columns=columns, binary="view", workers=1
                    )
                ),
                count,
            ),
        }
    segment = write_segment(2, "none", SEGMENT)
    ascending = kafka.scan(segment.path)
    kernels["kafka.records: ascending times"] = (
        lambda: kafka.records(ascending, check=False),
        segment.records,
    )
    messages = write_segment(1, "none", SEGMENT)
    kernels["iter_batches: magic 1"] = (
        lambda: list(
            iter_batches(
                messages.path, format="kafka.records", columns=columns, binary="view", workers=1
            )
        ),
        messages.records,
    )
    calls = thrift_calls.make_header_frames(FRAMES)
    kernels["thrift.scan"] = (lambda: thrift.scan(calls), FRAMES)
    chunk = next(nats_messages.make_chunks("capture", FRAMES))
    published = nats_messages.join_rows(nats_messages.make_message_frames("capture", chunk))
    kernels["nats.scan"] = (lambda: nats.scan(published), FRAMES)
    events = b"".join(make_frames("json", number) for number in range(10))
    count = len(lumberjack.events(lumberjack.scan(events)))
    kernels["lumberjack.events"] = (lambda: lumberjack.events(lumberjack.scan(events)), count)
    return kernels


def run_kernels() -> None:
    """Run each kernel and dump callgrind's count after each measurement. Runs under valgrind."""
    library = build_requests()
    for call, _ in make_kernels().values():
        call()
        for repeats in (REPEATS, REPEATS // 2):
            library.start_count()
            for _ in range(repeats):
                call()
            library.dump_count()


def build_requests() -> ctypes.CDLL:
    command = ["gcc", "-O2", "-shared", "-fPIC", str(SOURCE)]

    def make(target: Path) -> None:
        subprocess.run([*command, "-o", target / "peer.so"], check=True, capture_output=True)

    return ctypes.CDLL(str(make_once("callgrind", SOURCE.read_bytes(), make) / "peer.so"))


def measure() -> dict[str, float]:
    """Return the instructions per frame of each kernel."""
    build_requests()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        environment = os.environ | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
        subprocess.run(
            [*command, sys.executable, "-m", "bench.instructions", "--kernels"],
            check=True,
            capture_output=True,
            env=environment,
        )
        counts = []
        number = 1
        while (part := Path(f"{out}.{number}")).exists():
            counts.append(int(re.search(r"^(?:summary|totals): (\d+)", part.read_text(), re.M)[1]))
            number += 1
    kernels = make_kernels()
    if len(counts) < 2 * len(kernels):
        raise RuntimeError(f"callgrind wrote {len(counts)} counts for {len(kernels)} kernels")
    pairs = zip(counts[::2], counts[1::2])
    return {
        name: (full - half) / (REPEATS - REPEATS // 2) / frames
        for (name, (_, frames)), (full, half) in zip(kernels.items(), pairs)
    }


def describe_compiler() -> str:
    version = subprocess.run(["gcc", "-dumpversion"], check=True, capture_output=True, text=True)
    return f"{platform.machine()}, gcc {version.stdout.strip()}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions")
    parser.add_argument("--write", action="store_true", help="write bench/instructions.json")
    parser.add_argument("--kernels", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.kernels:
        run_kernels()
        return
    compiler = describe_compiler()
    measured = measure()
    if arguments.write:
        rounded = {name: round(value, 2) for name, value in measured.items()}
        TABLE.write_text(json.dumps({"compiler": compiler, "kernels": rounded}, indent=2) + "\n")
        return
    table = json.loads(TABLE.read_text())
    is_comparable = table["compiler"] == compiler
    if not is_comparable:
        print(f"{TABLE.name} is of {table['compiler']}, and this is {compiler}: no comparison")
    stored = table["kernels"]
    worse = []
    for name, value in measured.items():
        change = value / stored[name] - 1 if name in stored else float("inf")
        print(f"{name:40} {value:10.2f} per frame {change:+8.2%}")
        if change > TOLERANCE:
            worse.append(name)
    if worse and is_comparable:
        raise SystemExit(f"more than {TOLERANCE:.0%} above {TABLE.name}: {', '.join(worse)}")


if __name__ == "__main__":
    main()
