"""Files that grow: what was read of each file, and what can be read since then.

Spark's streaming source uses `GrowingFiles`. This module does not import Spark.

An offset states how many bytes of each file were read, all of them whole frames, and how the file
is recognized later: see `wirescan.files.file_identity`. Finished files are not listed one by one:
see `wirescan.files.sealed_files`. An offset consists of JSON values.
"""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from wirescan.files.file_identity import (
    SECOND,
    FileProgress,
    Files,
    Offset,
    Read,
    State,
    compute_checksums,
    make_lost_file_error,
    make_offset,
    parse_offset,
)
from wirescan.files.sealed_files import SealedFiles, add_sealed, list_added, parse_sealed
from wirescan.files.source import open_ranges
from wirescan.frames.errors import FrameError, check_mode
from wirescan.frames.escape import make_visible
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.reading.chunked import scan_nested
from wirescan.reading.chunks import CHUNK_BYTES, read_open_file
from wirescan.reading.splits import SLICE_BYTES
from wirescan.reading.stream import Stream

FILES_PER_TASK = 1000  # at most
INDEX_FROM = 64 << 20  # bytes; from this size on an index is asked where the last frames start
# Nanoseconds since the last change of a file. From then on, nothing follows its last byte.
OLD = 60 * SECOND

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class GrownSlice:
    """The bytes from `start` to `stop` of a file. They are whole frames."""

    file: FileProgress
    start: int
    stop: int

    @property
    def path(self) -> str:
        """The path of the file when the part was planned."""
        return self.file.path


@dataclass
class _Search:
    """A search for whole frames after an offset.

    files: how far each file is read. max_bytes, max_files: what may still be read. turn: the file
    that is read first in the next search, and up to which position.
    """

    files: dict[str, FileProgress]
    max_bytes: float
    max_files: float
    turn: tuple[str, int] = ("", 0)


class GrowingFiles:
    """The files of some paths, as they grow. For one thread.

    Args:
        paths: files, globs, directories and URLs.
        format: the name of a format.
        errors: "strict", "mark" or "skip".
        check: verify checksums.
        limits: bounds on rows and bytes.
        size: bytes of files per task.
        lossless: raise FileNotFoundError or EOFError if a file was deleted or cut before all of
            it was read. With False, the loss is logged.

    Raises:
        ValueError: an unknown format or mode, or the frames of a capture.
    """

    def __init__(
        self,
        paths: Sequence[str],
        format: str,
        *,
        errors: str = "strict",
        check: bool = True,
        limits: Limits = Limits(),
        size: int = SLICE_BYTES,
        lossless: bool = True,
    ):
        check_mode(errors, limits)
        self._format = format_of(format)
        if self._format.outermost.make_reader is not None:
            raise ValueError(
                f"{self._format.name} of a capture are not read as it grows: a connection may be "
                "anywhere in it. Pipe the capture into `wirescan scan -`"
            )
        self._size = size
        self._lossless = lossless
        self._options: dict[str, Any] = {"errors": errors, "check": check, "limits": limits}
        self._files = Files(paths, self._format.outermost)
        self._sealed_files = SealedFiles(self._format.outermost, self._report_loss)
        self._waiting: dict[str, State] = {}  # files that are not begun yet because of the limits
        self._turn = ("", 0)  # the file that is read next, and up to which position
        self._cap: dict[tuple[int, int] | str, int] | None = None

    def measure_backlog(self, offset: Offset) -> dict[str, int]:
        """Return how much of the files an offset leaves unread.

        The result is {"files": their number, "bytes": their size now, "backlog": the bytes that
        are not read yet}. The backlog includes an incomplete frame at the end of a file.

        Raises OSError.
        """
        progress = parse_offset(offset)
        sealed = parse_sealed(offset)
        states = self._files.list_present(progress, was_read=bool(sealed))
        unfinished, _ = self._sealed_files.split(states, progress, sealed)
        size = sum(state.size for state in states.values())
        read = sum(state.size for path, state in states.items() if path not in unfinished)
        read += sum(
            min(progress[path].end, state.size)
            for path, state in unfinished.items()
            if path in progress
        )
        return {"files": len(states), "bytes": size, "backlog": size - read}

    def stop_growing(self) -> None:
        """Ignore the bytes that are added to the files from now on."""
        self._cap = {
            _identify(path, state): state.size
            for path, state in self._files.list_present({}).items()
        }

    def find_latest(
        self, start: Offset, max_bytes: float = math.inf, max_files: float = math.inf
    ) -> Offset:
        """Return the offset after the whole frames that can be read after `start`.

        It is `start` itself if there are none. Files take turns in the order of their names. Each
        file is read to the end that it had when its turn began.

        Under "strict" the offset stops before damage. If damage is next, FrameError is raised.
        In other modes damage is read when a frame follows it, or when the file has not changed
        for a minute. In every mode, such a file counts as complete. Frames and damage that only its
        end shows are read then.

        start: an earlier offset.
        max_bytes: the bytes of these frames, at most; one frame is always read.
        max_files: the number of files that contain these frames, at most.

        Raises FrameError under "strict" if damage is next, and OSError if a file cannot be read.
        See also `lossless`.
        """
        progress = parse_offset(start)
        sealed = parse_sealed(start)
        listed_at = time.time_ns()
        present = self._files.list_present(progress, was_read=bool(sealed))
        self._check_waiting(present)
        states, restored = self._sealed_files.split(present, progress, sealed)
        search = _Search(self._follow(progress | restored, states), max_bytes, max_files)
        for path in restored.keys() & search.files.keys():
            # The previous offset does not list it, so only the next one may continue it.
            search.files[path] = search.files[path]._replace(cut=True)
        self._waiting = {}
        for path in self._list_in_turn(states, search.files):
            state = states[path]
            file = search.files.get(path)
            begin = file.end if file else 0
            size = self._limit_size(path, state, is_known=file is not None)
            if size <= begin or self._files.is_verified(
                path, state, begin, stays_so=_is_old(state)
            ):
                continue
            if file and file.cut and file != progress.get(path):
                continue  # the next offset continues after that position
            if search.max_bytes <= 0 or search.max_files <= 0:
                self._postpone(search, path, state, size)
                continue
            # The next listing notices a file that was deleted since this one.
            with suppress(FileNotFoundError):
                self._search_file(search, path, state, size)
        self._turn = search.turn
        if all(progress.get(path) == file for path, file in search.files.items()):
            # Deleted files alone make no new offset: if they come back, they are recognized.
            return start
        sealed = self._sealed_files.seal(
            search.files, progress, present, states, sealed, listed_at, self._has_no_bytes
        )
        return add_sealed(make_offset(search.files), sealed)

    def _has_no_bytes(self, path: str, state: State) -> bool:
        """Return whether a file of which nothing was read has no whole frame."""
        return not state.size or self._files.is_verified(path, state, 0)

    def _limit_size(self, path: str, state: State, *, is_known: bool) -> int:
        """Return the size of a file; after `stop_growing`, its size at that time.

        is_known: some of the file was read.
        """
        if self._cap is None:
            return state.size
        # A file that is followed under another name was not listed at that time.
        cap = self._cap.setdefault(_identify(path, state), state.size if is_known else 0)
        return min(state.size, cap)

    def _postpone(self, search: _Search, path: str, state: State, size: int) -> None:
        """Leave the bytes of a file up to `size` to the next search."""
        if not search.turn[0]:
            search.turn = (path, size)
        if path in search.files:
            search.files[path] = search.files[path]._replace(left=True)
        else:
            self._waiting[path] = state

    def _search_file(self, search: _Search, path: str, state: State, size: int) -> None:
        """Add the whole frames in the unread bytes of a file, up to `size`, to a search.

        Raises FrameError for damage under "strict", and OSError.
        """
        file = search.files.get(path)
        begin = file.end if file else 0
        with open_ranges(path) as read:
            if file and compute_checksums(read, begin) != (file.head, file.tail):
                return
            is_old = size == state.size and _is_old(state)
            end, searched = self._find_end(
                path, read, begin, size, begin + search.max_bytes, is_old=is_old
            )
            if end > begin:
                search.files[path] = FileProgress(
                    path, end, *compute_checksums(read, end), state.node, searched < size
                )
                search.max_bytes -= end - begin
                search.max_files -= 1
            elif file:
                search.files[path] = file._replace(left=False)
            if end == begin and searched == state.size:
                # When the file is old, its end shows more.
                self._files.note_verified(path, state, begin, stays_so=is_old)
            if searched < size:
                search.turn = (path, self._turn[1] if path == self._turn[0] else size)
                search.max_bytes = 0

    def plan_tasks(self, start: Offset, end: Offset) -> list[list[GrownSlice]]:
        """Return what each task reads of the frames between two offsets. Small files share a task.

        Raises OSError. See also `lossless`.
        """
        before = parse_offset(start)
        for path in list_added(parse_sealed(end)):
            before.pop(path, None)  # it did not change
        grown, earlier = self._match(before, parse_offset(end))
        present_paths = self._files.find_paths(grown.values())
        read_paths: dict[str, str] = {}
        for path, file in grown.items():
            if file in present_paths:
                read_paths[path] = present_paths[file]
            else:
                self._report_loss(make_lost_file_error("gone before a part of it was read", path))
        begins, _ = self._files.match_files(
            earlier,
            {path: State(grown[path].end, grown[path].node) for path in read_paths},
            read_paths,
        )
        out: list[list[GrownSlice]] = []
        free_bytes = 0  # that the last task may still get
        for path, read_path in read_paths.items():
            begin = begins[path].end if path in begins else 0
            stop = grown[path].end
            cuts = [
                at
                for at in self._find_cuts(read_path, begin, stop, self._size)
                if begin < at < stop
            ]
            for first, last in zip([begin, *cuts], [*cuts, stop]):
                if not out or last - first > free_bytes:
                    out.append([])
                    free_bytes = self._size
                out[-1].append(GrownSlice(grown[path], first, last))
                free_bytes -= max(last - first, self._size // FILES_PER_TASK)
        return out

    @staticmethod
    def _match(
        before: Mapping[str, FileProgress], after: Mapping[str, FileProgress]
    ) -> tuple[dict[str, FileProgress], list[FileProgress]]:
        """Return the files with new bytes by their paths, and earlier progress without a match.

        A file that was only renamed between two offsets is in neither.
        """
        grown = {
            path: file
            for path, file in after.items()
            if not file.cut and not file.has_same_content(before.get(path))
        }
        unmatched: dict[tuple[Any, ...], list[FileProgress]] = {}
        for path, file in before.items():
            if not file.has_same_content(after.get(path)):
                unmatched.setdefault(file.content, []).append(file)
        for path, file in list(grown.items()):
            if unmatched.get(file.content):
                unmatched[file.content].pop()
                del grown[path]
        return grown, [file for same_content in unmatched.values() for file in same_content]

    def read_tables(
        self, part: GrownSlice, chunk_bytes: int = CHUNK_BYTES
    ) -> Iterator[tuple[str, FrameTable]]:
        """Yield the frames of a part in tables, each with the current path of the file.

        part: an element of the result of `plan_tasks`.
        chunk_bytes: bytes of the file per table.

        Raises FrameError with the path and the position in the file, and OSError if the file cannot
        be read. See also `lossless`.
        """
        try:
            with self._files.open(part.file) as (path, read):
                tables = scan_nested(
                    read_open_file(read, path, part.start, part.stop, chunk_bytes),
                    self._format,
                    offset=part.start,
                    allow_cut=False,
                    source=path,
                    **self._options,
                )
                yield from ((path, table) for table in tables)
        except (FileNotFoundError, EOFError) as error:
            self._report_loss(error)

    def _follow(
        self, progress: Mapping[str, FileProgress], states: Mapping[str, State]
    ) -> dict[str, FileProgress]:
        """Return the known files by their current paths."""
        out, unmatched = self._files.match_files(list(progress.values()), states)
        for file in unmatched:
            path = file.path
            # The file may have changed since it was listed. Bytes that follow are new ones.
            state = self._files.refresh(path, states.get(path))
            if state and path not in out and self._files.has_same_head(file, state):
                self._report_loss(
                    EOFError(
                        f"{make_visible(path)} has {state.size} bytes now, "
                        f"and is not what it was when {file.end} of them were read"
                    )
                )
                with open_ranges(path) as read:
                    end, _ = self._find_end(path, read, 0, state.size, math.inf)
                    if end:
                        out[path] = FileProgress(
                            path, end, *compute_checksums(read, end), state.node, cut=True
                        )
            elif file.left:
                self._report_loss(
                    make_lost_file_error(f"gone, and only {file.end} bytes of it were read", path)
                )
        return out

    def _check_waiting(self, states: Mapping[str, State]) -> None:
        keys = {_identify(path, state) for path, state in states.items()}
        for path, state in self._waiting.items():
            if path not in states and _identify(path, state) not in keys:
                self._report_loss(make_lost_file_error("gone before any of it was read", path))

    def _list_in_turn(
        self, states: Mapping[str, State], progress: Mapping[str, FileProgress]
    ) -> list[str]:
        """Return the paths in the order of their turns."""
        path, goal = self._turn
        names = sorted(states)
        first = bisect_left(names, path)
        if path in states and path in progress and progress[path].end >= goal:
            first += 1
        return names[first:] + names[:first]

    def _report_loss(self, error: OSError | EOFError) -> None:
        if self._lossless:
            raise error
        logger.warning("%s", make_visible(error))

    def _find_end(
        self,
        path: str,
        read: Read,
        start: int,
        stop: int,
        enough: float,
        *,
        is_old: bool = False,
    ) -> tuple[int, int]:
        """Return the end of the last good frame in a range, and how far the search went.

        The search does not go much farther than `enough`, unless no frame ends before it.

        A fault of a frame may show only in the bytes that follow it, so no part ends with damage
        elsewhere.

        path: the path that an error names.
        read: the function that reads a range of the file.
        start: the first byte of the range.
        stop: the end of the range.
        enough: the position after which the search may end.
        is_old: the file ended at `stop` long ago, so its last frame or damage ends there too.
        """
        strict = self._options["errors"] == "strict"
        at = end = start if enough < stop else self._find_cuts(path, start, stop, INDEX_FROM)[-1]
        # The checksums decide what a scan accepts as a frame after damage.
        stream = Stream(
            self._format.outermost,
            errors="strict" if strict else "mark",
            check=self._options["check"] and not strict,
            limits=self._options["limits"],
            source=path,
            offset=end,
        )
        try:
            while at < stop and (at < enough or end == start):
                goal = enough if at < enough else stop
                data = read(at, int(min(at + CHUNK_BYTES, goal, stop)))
                if not len(data):
                    break
                at += len(data)
                table = stream.feed(data)
                good = np.flatnonzero(~table.bad)
                if len(good):
                    end = _find_frame_end(table, good[0 if at > enough else -1])
                    if at > enough:
                        return end, end
            if is_old and at == stop:
                table = stream.close()
                return _find_frame_end(table, -1) if len(table) else stream.offset, at
        except FrameError as error:
            if error.offset <= start:
                raise
            return error.offset, stop
        return end, at

    def _find_cuts(self, path: str, start: int, stop: int, size: int) -> list[int]:
        """Return positions from `start` to before `stop` at which frames start.

        They are about `size` bytes apart.
        """
        top = self._format.outermost
        find_boundaries = top.storage.boundaries
        if find_boundaries is None or stop - start <= size:
            return [start]
        limits = self._options["limits"]
        return [at for at in find_boundaries(path, size, start, limits=limits) if at < stop]


def _is_old(state: State) -> bool:
    """Return whether the bytes of a file have not changed for some time."""
    return time.time_ns() - state.time > OLD


def _identify(path: str, state: State) -> tuple[int, int] | str:
    """Return the identity of a file while it exists: device and inode, or the URL."""
    return (state.device, state.node) if state.node else path


def _find_frame_end(table: FrameTable, row: int) -> int:
    """Return where the frame of a row ends in its file."""
    return int(table.positions[row]) + int(table["size"][row])
