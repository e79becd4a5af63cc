"""Measures the CPU time of calls. Other load on the machine has little effect on it."""

import time
from collections.abc import Callable


def measure_cpu_seconds(call: Callable[[], object], times: int = 1) -> float:
    """Return the CPU seconds of a call: the smallest of several measurements."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def assert_linear(few: Callable[[], object], many: Callable[[], object]) -> None:
    """Assert that `many` takes at most thirty times the CPU time of `few`.

    `many` does eight times the work of `few`. Times below 0.2 s are too short to be compared. The
    first measurement may be disturbed, so a time that is too long is measured again.
    """
    most = max(30 * measure_cpu_seconds(few, times=3), 0.2)
    seconds = measure_cpu_seconds(many)
    if seconds >= most:
        seconds = measure_cpu_seconds(many, times=3)
    assert seconds < most, f"{seconds:.3f} s for eight times the work, at most {most:.3f} s allowed"
