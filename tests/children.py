"""Programs that run in a process of their own: they may die of what they read, or have little room for it."""
import os
import pickle
import subprocess
import sys


def scanned(program: str, *arguments: int) -> int:
    """The number that a program prints, which scans in front of unreadable pages (guard.py): it has to end well."""
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True,
                          timeout=100, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, (done.returncode, done.stderr)
    return int(done.stdout)


def in_a_small_room(program: str, raw: bytes, megabytes: int, *more: int) -> tuple[list[str], float]:
    """What a program that may take that much memory says of some bytes: words, and the CPU seconds that it took."""
    done = subprocess.run([sys.executable, "-c", program, *map(str, (megabytes, *more))], input=raw,
                          capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    *said, seconds = done.stdout.decode().split()
    return said, float(seconds)


MANY = """
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


def in_small_rooms(program: str, raws: list[bytes], megabytes: int, *more: int) -> list[tuple[list[str], float]]:
    """What `in_a_small_room` gives, for each of many bytes: one process imports the package and forks for each."""
    done = subprocess.run([sys.executable, "-c", MANY, *map(str, (megabytes, *more))],
                          input=pickle.dumps((program, raws)), capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    lines = [line.split() for line in done.stdout.decode().splitlines() if line]
    assert len(lines) == len(raws)
    return [(said, float(seconds)) for *said, seconds in lines]
