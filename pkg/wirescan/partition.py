"""Cut sources into slices on frame boundaries: what a task of a parallel job reads. numpy only."""
from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from wirescan.catalog import format_of
from wirescan.source import expand, seekable_size

SLICE_BYTES = 128 << 20


@dataclass(frozen=True)
class Slice:
    """The bytes of a file from `start` to `stop`; both are frame boundaries, or the file's ends.

    last: the file ended at `stop` when it was planned, so a frame that is cut there is a tail; it may have grown since.
    """
    path: str
    start: int
    stop: int
    last: bool = field(default=False, compare=False)

    def __len__(self) -> int:
        return self.stop - self.start


def plan(sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], size: int = SLICE_BYTES,
         format: str = "kafka.records") -> list[Slice]:
    """Slices of about `size` bytes that cover all files of the sources, in their order.

    sources: paths, globs, directories or URLs. Files are cut where their indexes say a frame begins, or where a walk
    over the headers finds one; a file without either, or with damage in its headers, stays whole from there on.
    Raises ValueError for an unknown format or a size below 1, OSError.
    """
    if size < 1:
        raise ValueError(f"a slice has at least 1 byte, not {size}")
    top = format_of(format).outermost
    slices = []
    for source in [sources] if isinstance(sources, (str, os.PathLike)) else sources:
        for path in expand(source, files=top.files, ignore=top.ignore):
            end = seekable_size(path)
            parts = -(-end // size) or 1
            # Even, so that no task is left to run alone.
            starts = top.cuts(path, -(-end // parts)) if top.cuts else [0]
            slices += [Slice(path, start, stop, stop == end) for start, stop in zip(starts, [*starts[1:], end])
                       if start < stop]
    return slices


def groups(slices: Sequence[Slice], size: int = SLICE_BYTES) -> list[list[Slice]]:
    """Slices side by side, in their order, so that each group has about `size` bytes: small files share a task."""
    out: list[list[Slice]] = []
    room = 0
    for one in slices:
        if not out or len(one) > room:
            out.append([])
            room = size
        out[-1].append(one)
        room -= len(one)
    return out
