"""Compare wirescan_resp with hiredis, the parser of Redis in C, in one run and in turns.

Run it where both are installed: `pip install hiredis`, then `python benchmark.py`.
"""

import statistics
import time

import hiredis

import wirescan_resp as resp

ROUNDS = 15
COUNT = 100_000
CHUNK = 16384  # bytes that a client of Redis receives at a time


def read_with_hiredis(raw):
    """Read all frames into Python objects, from chunks: hiredis moves the bytes that it holds."""
    reader = hiredis.Reader()
    count = 0
    for start in range(0, len(raw), CHUNK):
        reader.feed(raw[start : start + CHUNK])
        while reader.gets() is not False:
            count += 1
    assert count == COUNT


def read_frames(raw):
    """Read all frames into a table."""
    assert len(resp.scan(raw)) == COUNT


def read_values(raw):
    """Read all frames, and all values in them, into tables."""
    assert len(resp.values(resp.scan(raw)).outer) == COUNT


def measure(call, raw):
    """Return the seconds of a call."""
    start = time.perf_counter()
    call(raw)
    return time.perf_counter() - start


def compare(name, raw):
    """Print the time of each program for one frame, and its ratio to that of wirescan's tables."""
    calls = (read_frames, read_values, read_with_hiredis)
    rounds = [[measure(call, raw) for call in calls] for _ in range(ROUNDS + 1)][1:]
    print(f"{name}: {len(raw) / COUNT:.0f} bytes in a frame")
    for i, call in enumerate(calls):
        seconds = statistics.median(times[i] for times in rounds)
        ratio = statistics.median(times[i] / times[1] for times in rounds)
        print(
            f"  {call.__name__:18} {seconds / COUNT * 1e9:7.0f} ns  {ratio:6.2f} times read_values"
        )


keys = [b"key:%d" % i for i in range(COUNT)]
compare("commands", resp.encode_commands("SET", keys, b"x" * 40))
compare("bulk strings", resp.encode(b"x" * 40) * COUNT)
compare("nested arrays", resp.encode([[b"1-1", [b"name", b"value"]], [b"1-2", [1, 2]]]) * COUNT)
