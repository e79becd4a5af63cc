"""Runs programs in processes of their own. They may crash, or have a limit on their memory."""

import os
import pickle
import subprocess
import sys


def run_scans(program: str, *arguments: int) -> int:
    """Run a program that scans bytes beside unreadable pages (guard.py). It must not crash.

    Return the number that it prints.
    """
    process = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.returncode == 0, (process.returncode, process.stderr)
    return int(process.stdout)


def run_in_little_memory(
    program: str, raw: bytes, megabytes: int, *more: int
) -> tuple[list[str], float]:
    """Run a program with a memory limit. Return the words that it prints and its CPU seconds.

    The first argument of the program is the limit. It reads `raw` from standard input, and prints
    the CPU seconds as its last word.
    """
    process = subprocess.run(
        [sys.executable, "-c", program, *map(str, (megabytes, *more))],
        input=raw,
        capture_output=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr.decode()
    *words, seconds = process.stdout.decode().split()
    return words, float(seconds)


FORKING_PROGRAM = """
import io, os, pickle, sys
from wirescan import kafka, liftbridge, lumberjack, nats, thrift
program, raws = pickle.load(sys.stdin.buffer)
code = compile(program, "<child>", "exec")
for raw in raws:
    child = os.fork()
    if not child:
        sys.stdin = io.TextIOWrapper(io.BytesIO(raw))
        exec(code, {})
        print(flush=True)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        sys.exit(f"the child for {raw[:100]} ended with status {status}")
"""


def run_each_in_little_memory(
    program: str, inputs: dict[str, bytes], megabytes: int, *more: int
) -> dict[str, tuple[list[str], float]]:
    """Return the result of `run_in_little_memory` for each input, by the name of the input.

    One process imports the package. It forks a child for each input, which saves time.
    """
    process = subprocess.run(
        [sys.executable, "-c", FORKING_PROGRAM, *map(str, (megabytes, *more))],
        input=pickle.dumps((program, list(inputs.values()))),
        capture_output=True,
        timeout=100,
    )
    assert process.returncode == 0, process.stderr.decode()
    lines = [line.split() for line in process.stdout.decode().splitlines() if line]
    results = [(words, float(seconds)) for *words, seconds in lines]
    return dict(zip(inputs, results, strict=True))
