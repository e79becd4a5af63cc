"""How much longer work takes here than on the machine on which the limits of tests were set."""

import os
import time

# The sanitizers' build takes several times as long.
SANITIZERS = 10 if "ASAN_OPTIONS" in os.environ else 1
ORDINARY = 0.016  # processor time of the loop on that machine, in seconds


def measure_loop() -> float:
    """Return the processor time of a loop, in seconds."""
    begun = time.process_time()
    total = 0
    for i in range(200_000):
        total += i
    return time.process_time() - begun


def measure_slowness() -> float:
    """Return the factor by which work takes longer here, at least 1."""
    return SANITIZERS * max(1.0, min(measure_loop() for _ in range(3)) / ORDINARY)


SLOWNESS = measure_slowness()
