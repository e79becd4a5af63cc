"""How the frames of a log follow each other, and how the files beside its segments are verified.

A `Format` whose frames have log offsets declares a `LogColumns`. Summaries and `wirescan verify`
read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from wirescan.frames.table import FrameTable

OFFSET_END = 1 << 63  # log offsets are below it


class SegmentName(NamedTuple):
    """The parts of a segment's path: all before the digits, the offset that they are, and the id.

    id: what follows the digits before the suffix; "" for most segments.
    options: of a URL, such as "?region=eu"; "" for none.
    """

    prefix: str
    base: int
    id: str = ""
    options: str = ""


@dataclass(frozen=True)
class SegmentNames:
    """How the files of a log are named: the first offset of the segment, then a suffix.

    digits: of the offset, with leading zeros. suffix: such as ".log".
    id: regular expression of what may be between both; "" for nothing. New segments have no id.
    """

    digits: int
    suffix: str
    id: str = ""

    def parse(self, path: str) -> SegmentName | None:
        """Return the parts of a segment's path or URL; None for the path of another file."""
        suffix = re.escape(self.suffix)
        pattern = rf"(?s)([0-9]{{{self.digits}}})((?:{self.id})?){suffix}(\?\w+=.*)?\Z"
        match = re.search(pattern, path)
        if match is None or match[3] and "://" not in path[: match.start()]:
            return None
        return SegmentName(path[: match.start()], int(match[1]), match[2], match[3] or "")

    def make_path(self, prefix: str, base: int) -> str:
        """Return the path of the segment that begins with the offset `base`."""
        return f"{prefix}{base:0{self.digits}}{self.suffix}"


class Claim(NamedTuple):
    """The offsets first..last and the number of records that a damaged frame's header states."""

    first: int
    last: int
    records: int


class Finding(NamedTuple):
    """Damage in a file beside a segment. at, size: in bytes, in that file."""

    path: str
    at: int
    size: int
    fault: str
    meaning: str
    near: bytes = b""


class Reach(NamedTuple):
    """The last offset that a log had at some time, and the path of the file that states it."""

    offset: int
    path: str


class LogState(Protocol):
    """What is known of a log while its segments are verified in order.

    prefix: of the paths of its segments; None for a file that is not named as a segment.
    options: of the URLs of its segments, such as "?region=eu"; "" for paths.
    names: of the files in the directory, and bases: of its segments; None where it cannot be
    listed.
    verified: bases of the segments that were verified. compacted: whether there are signs of
    compaction. damaged: whether damage follows the last good frame.
    memory: what the check of one segment keeps for the check of the next one. It is the object
    that `SideFiles.make_memory` returned for this log. Only the functions of the same `SideFiles`
    use it.
    """

    prefix: str | None
    options: str
    names: list[str] | None
    bases: list[int] | None
    verified: list[int]
    memory: Any
    compacted: bool
    damaged: bool


class SegmentCheck(Protocol):
    """Compares the files beside one segment with its frames."""

    def check_frames(self, table: FrameTable) -> Iterable[Finding]:
        """Compare the next frames of the segment."""

    def end(self) -> Iterable[Finding]:
        """Report what is wrong once the segment was read to its end."""


class IndexWriter(Protocol):
    """Writes the indexes beside the segments of one log, one segment after another."""

    def start_segment(self, path: str) -> None:
        """Begin the indexes of a new segment. Its name is its base offset. Raises OSError."""

    def add(self, frames: FrameTable, position: int) -> None:
        """Add entries for good frames of the segment, in their order. Raises OSError.

        The frames are one after another in the segment, from the byte `position` on.
        """

    def end_segment(self) -> None:
        """Complete the indexes of the segment. Raises OSError."""

    def describe_end(self) -> list[str]:
        """Return what the end of the log leaves open, as lines for people."""


def keep_nothing() -> None:
    """Return None: the memory of checks that do not depend on each other."""


@dataclass(frozen=True)
class SideFiles:
    """The checks of the files beside the segments of a log. Each of them raises OSError.

    check_segment: path of a segment, state of its log -> the check of that segment's files.
    check_snapshots: state -> findings in files that belong to the log and not to a segment.
    find_orphans: state -> base offset and the files that belong to a segment which is not there.
    find_reaches: state -> how far the log has reached by these files, in rising order.
    make_memory: returns a new object for `LogState.memory`. It is called once for each log.
    """

    check_segment: Callable[[str, LogState], SegmentCheck]
    check_snapshots: Callable[[LogState], Iterable[Finding]]
    find_orphans: Callable[[LogState], dict[int, list[str]]]
    find_reaches: Callable[[LogState], list[Reach]]
    make_memory: Callable[[], Any] = keep_nothing


@dataclass(frozen=True)
class LogColumns:
    """How the frames of a log follow each other.

    The formats of outermost frames declare all of it. The format of the records inside them
    declares `time`, and `first` and `last`, which are the same column.

    first, last: the columns of the first and the last log offset in a frame.
    time: the column of the time of a frame; the latest one if a frame has several. Optional.
    claim: the bytes from a damaged frame on -> what its header claims, None if that is not
        plausible; optional.
    side_files: the checks of the files beside the segments; optional.
    segments: how the files of a log are named; None if files do not continue each other.
    directory_files: names of files by which a server's own directory is recognized.
    make_index_writer: returns a new writer of the indexes of a log; optional.
    """

    first: str
    last: str
    claim: Callable[[memoryview], Claim | None] | None = None
    side_files: SideFiles | None = None
    segments: SegmentNames | None = None
    directory_files: tuple[str, ...] = ()
    make_index_writer: Callable[[], IndexWriter] | None = None
    time: str | None = None
