"""Which segments the user gave to `wirescan verify`, and which of them are not read."""

from __future__ import annotations

from collections.abc import Iterable

from wirescan.frames.format import Format
from wirescan.frames.logs import SegmentName
from wirescan.seglog.frame_offsets import parse_segment


class SegmentScope:
    """Knows the segments that the user gave, and those of them that a selection excludes.

    Args:
        format: the outermost format of the files.
        files: all files that the user gave. Those that are no segments are ignored.
    """

    def __init__(self, format: Format, files: Iterable[str]):
        self._format = format
        segments = [parse_segment(format, path) for path in files]
        self._given = {(name.prefix, name.base) for name in segments if name is not None}
        self._excluded: dict[str, set[int]] = {}  # prefix -> base offsets of segments not read

    def exclude_file(self, path: str) -> None:
        """Note that a file is not read."""
        segment = parse_segment(self._format, path)
        if segment is not None:
            self._excluded.setdefault(segment.prefix, set()).add(segment.base)

    def is_given(self, prefix: str | None, base: int) -> bool:
        """Return whether the user gave a segment of a log."""
        return (prefix, base) in self._given

    def is_partly_excluded(self, prefix: str | None) -> bool:
        """Return whether a segment of a log is not read."""
        return prefix in self._excluded

    def has_excluded_before(self, segment: SegmentName) -> bool:
        """Return whether a segment of the same log, with a lower base offset, is not read."""
        excluded = self._excluded.get(segment.prefix, ())
        return any(base < segment.base for base in excluded)

    def has_excluded_between(self, previous: int, segment: SegmentName) -> bool:
        """Return whether a segment that is not read is between two others of its log.

        previous: the base offset of the segment that was read before `segment`.
        """
        excluded = self._excluded.get(segment.prefix, ())
        return any(previous <= base < segment.base for base in excluded)
