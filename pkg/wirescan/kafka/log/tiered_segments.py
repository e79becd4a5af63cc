"""Segments of tiered storage (KIP-405): which files are read, and batches that several files have.

A broker gives a segment a new id each time it copies it. So a copy that failed leaves a file with
the same base offset, which may be cut. After a change of the leader, a segment may begin with the
batches that end another segment. The storage does not say which segments are in use: a broker keeps
that in its topic __remote_log_metadata.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wirescan.files.source import get_file_name, get_size, list_directory_names
from wirescan.frames.table import FrameTable
from wirescan.kafka.files import SEGMENTS


def choose_segments(paths: Sequence[str]) -> list[str]:
    """Return the paths without segments of the same directory and base offset as a larger file.

    paths: of files or objects. Of equal files the first one stays. Raises OSError.
    """
    chosen: dict[tuple[str, ...] | str, str] = {}
    for path in paths:
        name = SEGMENTS.parse(get_file_name(path))
        key = path if name is None else (str(name.base), *list_directory_names(path))
        other = chosen.setdefault(key, path)
        if other != path and get_size(path) > get_size(other):
            chosen[key] = path
    kept = set(chosen.values())
    return [path for path in paths if path in kept]


def find_logs(paths: Sequence[str]) -> np.ndarray:
    """Return i8 array: for each path of a segment a number, the same for those of one directory."""
    numbers: dict[tuple[str, ...], int] = {}
    directories = [tuple(list_directory_names(path)) for path in paths]
    return np.array([numbers.setdefault(name, len(numbers)) for name in directories], np.int64)


def drop_copies(batches: FrameTable, logs: np.ndarray) -> FrameTable:
    """Return the batches without those that are copies of an earlier batch of the same log.

    batches: a table of kafka.batches, each log in the order of its segments.
    logs: for each buffer of the table, the number of its log.

    A copy has the same offsets, size and checksum. Bad rows stay.
    """
    log = logs[batches["buffer"]] if len(batches) else np.empty(0, np.int64)
    last = batches["last_offset"]
    rises = (last[1:] > last[:-1]) & (log[1:] == log[:-1])
    if (rises | (log[1:] > log[:-1])).all():
        return batches
    names = ("base_offset", "last_offset", "size", "crc")
    keys = np.stack([log, *(batches[name].astype(np.int64) for name in names)], axis=1)
    good = np.flatnonzero(~batches.bad)
    _, first = np.unique(keys[good], axis=0, return_index=True)
    keep = batches.bad.copy()
    keep[good[first]] = True
    return batches if keep.all() else batches.where(keep)
