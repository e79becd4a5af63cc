"""Programs that run in a process of their own: they may die of what they read, or have little room for it."""
import os
import subprocess
import sys


def scanned(program: str) -> int:
    """The number that a program prints, which scans in front of unreadable pages (guard.py): it has to end well."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, (done.returncode, done.stderr)
    return int(done.stdout)


def in_a_small_room(program: str, raw: bytes, megabytes: int, *more: int) -> tuple[list[str], float]:
    """What a program that may take that much memory says of some bytes: words, and the CPU seconds that it took."""
    done = subprocess.run([sys.executable, "-c", program, *map(str, (megabytes, *more))], input=raw,
                          capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    *said, seconds = done.stdout.decode().split()
    return said, float(seconds)
