"""How long the files of a job take to read, estimated from their first bytes.

A byte of a compressed file takes longer than one of a plain file, and a file of small records takes
longer than one of large records. `wirescan.reading.splits` divides the estimated work over tasks.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean

from wirescan.files.source import URL, File, read_range
from wirescan.frames.format import Format

HEAD_BYTES = 64 << 10  # bytes of a file that are read to estimate its work
# The largest files are looked at, at most so many. The others are like those beside them.
SAMPLED_FILES = 1000
SAMPLED_OBJECTS = 100  # of a store; each needs a request
THREADS = 16
DEFAULT_WORK = 3.0  # nanoseconds of one core for a byte whose work is not known


def estimate_densities(files: Sequence[File], format: Format) -> dict[str, float]:
    """Return path -> nanoseconds of one core that a byte of the file takes, approximately.

    files: with the bytes of each that are read. format: an outermost format. The result is empty if
    the format has no estimate. Files that cannot be read, or whose first bytes are not known, count
    as DEFAULT_WORK. No OSError is raised: reading the file reports it.
    """
    estimate = format.storage.estimate_work
    if estimate is None:
        return {}

    def sample(file: File) -> float | None:
        try:
            return estimate(read_range(file.path, 0, HEAD_BYTES))
        except OSError:
            return None

    sampled: list[File] = []
    most = {True: SAMPLED_OBJECTS, False: SAMPLED_FILES}
    for file in sorted(files, key=lambda file: -file.size):
        is_object = bool(URL.match(file.path))
        if most[is_object] > 0:
            most[is_object] -= 1
            sampled.append(file)
    with ThreadPoolExecutor(THREADS) as pool:
        found = dict(zip((file.path for file in sampled), pool.map(sample, sampled)))
    by_folder: defaultdict[str, list[float]] = defaultdict(list)
    for path, density in found.items():
        if density is not None:
            by_folder[os.path.dirname(path)].append(density)
    means = {folder: fmean(densities) for folder, densities in by_folder.items()}
    out = {}
    for file in files:
        density = means.get(os.path.dirname(file.path))
        if file.path in found:
            density = found[file.path]
        out[file.path] = density or DEFAULT_WORK
    return out
