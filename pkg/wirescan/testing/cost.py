"""What a few bytes may cost: time, and memory for rows."""

from __future__ import annotations

import time
from collections.abc import Callable

from wirescan.core.fault import Fault
from wirescan.frames.errors import FrameError
from wirescan.frames.limits import Limits
from wirescan.reading.by_name import scan
from wirescan.testing.laws import ProtocolPackage, list_tables

FEW_BYTES = 25_000
MANY_TIMES = 8  # so many times more work
MOST_TIMES = 30  # so many times more CPU time may it take
SHORTEST = 0.2  # seconds: shorter times are not compared


def measure_cpu_seconds(call: Callable[[], object], times: int = 1) -> float:
    """Return the CPU seconds of a call: the smallest of several measurements.

    Other load on the machine has little effect on it.
    """
    seconds = []
    for _ in range(times):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def assert_linear(few: Callable[[], object], many: Callable[[], object]) -> None:
    """Assert that `many` takes at most MOST_TIMES the CPU time of `few`.

    `many` does MANY_TIMES the work of `few`. Times below SHORTEST are too short to be compared. The
    first measurement may be disturbed, so a time that is too long is measured again.
    """
    most = max(MOST_TIMES * measure_cpu_seconds(few, times=3), SHORTEST)
    seconds = measure_cpu_seconds(many)
    if seconds >= most:
        seconds = measure_cpu_seconds(many, times=3)
    assert seconds < most, (
        f"{seconds:.3f} s for {MANY_TIMES} times the work, at most {most:.3f} s allowed"
    )


def time_is_linear(package: ProtocolPackage, raw: bytes) -> None:
    """Many bytes take no more time for each byte than few bytes do.

    The bytes are repeated, whole and cut. So are single bytes.
    """
    for part in {raw, raw[: len(raw) // 2], raw[:1], raw[-1:], b"\0", b"\xff"} - {b""}:
        few = part * (FEW_BYTES // len(part) + 1)

        def read(repeated: bytes) -> None:
            try:
                scan(repeated, package.formats[-1], errors="mark")
            except FrameError as error:
                if error.fault != Fault.LIMIT:
                    raise

        try:
            assert_linear(lambda: read(few), lambda: read(few * MANY_TIMES))  # noqa: B023
        except AssertionError as error:
            error.add_note(f"The bytes are {part!r}, repeated.")
            raise


def row_limits_hold(package: ProtocolPackage, raw: bytes) -> None:
    """`Limits.row_bytes` bounds the rows of all levels together.

    Each level may have one row under any limit, so only levels of several rows are checked.

    raw: whole frames.
    """
    for name in package.formats:
        table = scan(raw, name)
        if len(table) < 2:
            continue
        used = sum(level.rows.nbytes for level in list_tables(table))
        assert len(scan(raw, name, limits=Limits(row_bytes=used))) == len(table)
        try:
            scan(raw, name, limits=Limits(row_bytes=used - 1))
        except FrameError as error:
            assert error.fault == Fault.LIMIT, f"{error} is raised, not LIMIT"
            continue
        raise AssertionError(f"{name}: rows take more than Limits.row_bytes allows")
