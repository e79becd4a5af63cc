"""A partition directory as a source of batches, and where a segment can be cut.

    <base offset, 20 digits>.log         entries one after another, and perhaps zeros behind them

index.py draws the files beside a segment. Source: Apache Kafka, "Log" of the documentation, LogSegment and LocalLog.
"""
from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Any

import numpy as np

from wirescan.kafka.directory import PartitionLog
from wirescan.kafka.index import read_index
from wirescan.kafka.scan import scan_batches
from wirescan.limits import Limits
from wirescan.source import beside, name_of, ranges, size_of
from wirescan.table import FrameTable
from wirescan.walk import Sized, cuts_at_headers

# Segments that a broker is about to delete or to put in place hold records twice, and so do directories on the move.
IGNORE = r"\.(deleted|cleaned|swap|index|timeindex|txnindex|snapshot|metadata)$|[.-]checkpoint$|-(delete|future|stray)/"
FILES = r"(?s)^(?!.*-(delete|future|stray)/).*(^|/)\d{20}\.log\Z"
SEGMENT = re.compile(r"(\d{20})\.log$")

HEADER_SIZE = 27            # bytes of a batch up to its last offset delta
SMALLEST = (26, 34, 61)     # bytes of a batch of magic 0, 1 and 2 that holds nothing
SIZED = Sized(header=17, length_at=8, overhead=12, smallest=SMALLEST, kind_at=16)
INTERVAL = 4096             # bytes between the entries of an index, unless a broker is told otherwise


def open_log(directory: str | os.PathLike[str], *, start: int | None = None, stop: int | None = None,
             start_time: int | None = None, stop_time: int | None = None, isolation: str = "read_uncommitted",
             checkpoints: bool = False, **options: Any) -> FrameTable:
    """The batches of a partition directory, its segments in order, as one table of kafka.batches.

    start, stop: the offsets from `start` on and before `stop`. start_time, stop_time: from the first record whose
    timestamp, in milliseconds, is not below the one, and before the first that is not below the other, as Kafka's
    ListOffsets turns times into offsets. Only the parts of the segments that hold these are read; batches come whole:
    `kafka.within` picks the records.
    isolation: "read_committed" leaves out control batches and those of aborted transactions, and ends before the first
    transaction that is still open.
    checkpoints: leave out what lies before the log start or from the high watermark on, by the checkpoints in the
    directory around this one; where these do not tell, nothing is left out: `PartitionLog` has both, or None.

    Without any of these all segments under the directory are read; with one, those in it: then bytes left over at the
    end of a segment that is not the newest, other than zeros, are a bad row (BAD_LENGTH) and not a tail. Files with the
    suffixes .deleted, .cleaned and .swap are left out. options: errors, check and limits, and without these also into,
    as of `kafka.scan`.
    Raises NotADirectoryError, FileNotFoundError where there is no segment, and as `kafka.scan`.
    """
    from wirescan.kafka import scan
    if not os.path.isdir(directory):
        raise NotADirectoryError(f"not a directory: {os.fspath(directory)}")
    if (start, stop, start_time, stop_time, isolation, checkpoints) == (None, None, None, None, "read_uncommitted",
                                                                        False):
        return scan(directory, **options)
    log = PartitionLog(directory, limits=options.pop("limits", Limits()))
    return log.read(start, stop, start_time=start_time, stop_time=stop_time, isolation=isolation,
                    checkpoints=checkpoints, **options)


def cuts(path: str, size: int, start: int = 0) -> list[int]:
    """Offsets in a file at which a batch begins, about `size` bytes apart; the first is `start`.

    Taken from the `.index` beside a segment where it is there and every entry used is confirmed by the batch that it
    points to; else by a walk from header to header, which ends at the first that cannot be one: who reads the slice
    tells what is wrong there.
    """
    total = size_of(path)
    if total - start <= size:
        return [start]
    if SEGMENT.search(name_of(path)):
        with suppress(OSError, ValueError):     # whatever is wrong with an index, the segment can be walked
            found = _cuts_by_index(path, read_index(beside(path, ".index"), total // SMALLEST[0]), size, total)
            if found is not None:
                return [start, *(at for at in found if at >= start + size)]
    return cuts_at_headers(path, size, start, SIZED, _is_intact)


def _cuts_by_index(path: str, entries: np.ndarray, size: int, total: int) -> list[int] | None:
    targets = np.arange(size, total, size)
    places = np.searchsorted(entries["position"], targets)
    chosen = np.unique(places[places < len(entries)])
    if not len(chosen) or np.diff(entries["position"][chosen], prepend=0, append=total).max() > 2 * size + INTERVAL:
        return None                     # there are parts of the segment that the index does not know
    positions = entries["position"][chosen].tolist()
    with ranges(path) as read:
        headers = [bytes(read(position, position + HEADER_SIZE)) for position in positions]
    if list(map(_last_offset, headers)) != entries["offset"][chosen].tolist():
        return None
    return [0, *positions]


def _last_offset(header: bytes) -> int | None:
    if len(header) < HEADER_SIZE or header[16] > 2:
        return None
    base = int.from_bytes(header[:8], "big", signed=True)
    return base + int.from_bytes(header[23:27], "big", signed=True) if header[16] == 2 else base


def _is_intact(batch: memoryview) -> bool:
    _, bad, _, used = scan_batches(batch, True, False, Limits())
    return bool(used == len(batch) and not bad)
