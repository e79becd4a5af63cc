"""Files that grow: how far each of them was read, and what can be read since then; without Spark.

An offset tells how many bytes of each file were read, all of them whole frames, and by what the file is known again:
see `wirescan.following`. It is made of what JSON has.
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

from wirescan.catalog import format_of
from wirescan.errors import FrameError, check_mode
from wirescan.following import SECOND, Files, Known, Offset, Read, State, gone, known_in, marks, offset_of
from wirescan.limits import Limits
from wirescan.partition import SLICE_BYTES
from wirescan.pieces import PIECE, in_pieces, opened, outermost
from wirescan.source import ranges
from wirescan.stream import Stream
from wirescan.table import FrameTable

FILES = 1000                # in a task, at the most
INDEXED = 64 << 20          # bytes from which on indexes are asked where the last of the frames begin
OLD = 60 * SECOND           # since its last change, when what no frame begins with is damage, not the rest of a frame

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """The bytes from start to stop of a file, which are whole frames."""
    file: Known
    start: int
    stop: int


class Tail:
    """The files of some paths, as they grow. For one thread.

    paths: files, globs, directories and URLs. size: bytes of files for one task, about. lossless: that files are gone
    or cut which were not read to their end raises FileNotFoundError or EOFError; else it is logged. The other arguments
    are as of `wirescan.scan`. Raises ValueError for an unknown format or mode.
    """

    def __init__(self, paths: Sequence[str], format: str = "kafka.records", *, errors: str = "strict",
                 check: bool = True, limits: Limits = Limits(), size: int = SLICE_BYTES, lossless: bool = True):
        check_mode(errors, limits)
        self._format, self._size, self._lossless = format_of(format), size, lossless
        self._options: dict[str, Any] = {"errors": errors, "check": check, "limits": limits}
        self._files = Files(paths, self._format.outermost)
        self._waiting: dict[str, State] = {}        # not begun yet, for the limits
        self._turn = ("", 0)                        # the file whose turn it is, until so much of it is read
        self._cap: dict[tuple[int, int] | str, int] | None = None

    def stop_growing(self) -> None:
        """What the files hold from now on is not read."""
        self._cap = {_key(path, state): state.size for path, state in self._files.there({}).items()}

    def latest(self, start: Offset, most_bytes: float = math.inf, most_files: float = math.inf) -> Offset:
        """The offset behind the whole frames that can be read after `start`; that itself where there are none.

        most_bytes: of these frames, but one at the least; most_files: that they lie in. Files take turns, in order of
        their names: each is read to the end that it had when its turn came. Under "strict" the offset ends before
        damage; then, where that is next, FrameError is raised. Else damage is read when a frame follows it, or when the
        file has not changed for a minute. Raises OSError, and see `lossless`.
        """
        known = known_in(start)
        there = self._files.there(known)
        self._check_waiting(there)
        out = self._followed(known, there)
        self._waiting, turn = {}, ("", 0)
        for path in self._in_turn(there, out):
            state, one = there[path], out.get(path)
            begin, size = one.end if one else 0, state.size
            if self._cap is not None:               # files that are followed under other names were not listed then
                size = min(size, self._cap.setdefault(_key(path, state), size if one else 0))
            if size <= begin or self._files.is_settled(path, state, begin):
                continue
            if one and one.cut and one != known.get(path):
                continue                            # the next offset goes on behind that
            if most_bytes <= 0 or most_files <= 0:
                turn = turn if turn[0] else (path, size)
                if one:
                    out[path] = one._replace(left=True)
                else:
                    self._waiting[path] = state
                continue
            with suppress(FileNotFoundError), ranges(path) as read:         # gone since: the next listing tells
                if one and marks(read, begin) != (one.head, one.tail):
                    continue
                is_old = size == state.size and time.time_ns() - state.time > OLD
                end, seen = self._whole(path, read, begin, size, begin + most_bytes, is_old)
                if end > begin:
                    out[path] = Known(path, end, *marks(read, end), state.node, seen < size)
                    most_bytes, most_files = most_bytes - (end - begin), most_files - 1
                elif one:
                    out[path] = one._replace(left=False)
                if end == begin and seen == state.size:
                    self._files.settle(path, state, begin)
                if seen < size:
                    turn, most_bytes = (path, self._turn[1] if path == self._turn[0] else size), 0
        self._turn = turn
        # That files are gone is no news: should they be back, they are known.
        return start if all(known.get(path) == one for path, one in out.items()) else offset_of(out)

    def parts(self, start: Offset, end: Offset) -> list[list[Part]]:
        """What each task reads of the frames between two offsets; small files share one. Raises OSError, and see
        `lossless`."""
        before, after = known_in(start), known_in(end)
        news = {path: one for path, one in after.items() if not one.cut and not one.is_as_far(before.get(path))}
        olds: dict[tuple[Any, ...], list[Known]] = {}
        for path, one in before.items():
            if not one.is_as_far(after.get(path)):
                olds.setdefault(one[1:4], []).append(one)
        for path, one in list(news.items()):
            if olds.get(one[1:4]):
                olds[one[1:4]].pop()                # it only has another name
                del news[path]
        there, places = self._files.places(news.values()), dict[str, str]()
        for path, one in news.items():
            if one in there:
                places[path] = there[one]
            else:
                self._lost(gone("gone, and a part of it was to be read", path))
        begins, _ = self._files.claimed([one for several in olds.values() for one in several], {
            path: State(news[path].end, news[path].node) for path in places}, places)
        out: list[list[Part]] = []
        room = 0
        for path, place in places.items():
            begin, stop = begins[path].end if path in begins else 0, news[path].end
            cuts = [at for at in self._cuts(place, begin, stop, self._size) if begin < at < stop]
            for first, last in zip([begin, *cuts], [*cuts, stop]):
                if not out or last - first > room:
                    out.append([])
                    room = self._size
                out[-1].append(Part(news[path], first, last))
                room -= max(last - first, self._size // FILES)
        return out

    def tables(self, part: Part, piece: int = PIECE) -> Iterator[tuple[str, FrameTable]]:
        """The frames of a part in tables of about `piece` bytes of it, each with what the file is called now.

        Raises FrameError with the file and the offset in it, OSError, and see `lossless`."""
        try:
            with self._files.opened(part.file) as (path, read):
                chunks = in_pieces(read, path, part.start, part.stop, piece)
                for table in outermost(chunks, self._format, source=path, offset=part.start, tail=False,
                                       **self._options):
                    for inner in opened(table, self._format, source=path, **self._options):
                        yield path, inner
        except (FileNotFoundError, EOFError) as error:
            self._lost(error)

    def _followed(self, known: Mapping[str, Known], there: Mapping[str, State]) -> dict[str, Known]:
        """The known files by what they are called now."""
        out, astray = self._files.claimed(list(known.values()), there)
        for one in astray:
            path, state = one.path, there.get(one.path)
            if state and path not in out and self._files.begins_as(one, state):
                self._lost(EOFError(f"{path} has {state.size} bytes now, and is not what it was when {one.end} of them "
                                    "were read"))
                with ranges(path) as read:
                    end, _ = self._whole(path, read, 0, state.size, math.inf)
                    if end:
                        out[path] = Known(path, end, *marks(read, end), state.node, cut=True)
            elif one.left:
                self._lost(gone(f"gone, and only {one.end} bytes of it were read", path))
        return out

    def _check_waiting(self, there: Mapping[str, State]) -> None:
        keys = {_key(path, state) for path, state in there.items()}
        for path, state in self._waiting.items():
            if path not in there and _key(path, state) not in keys:
                self._lost(gone("gone before any of it was read", path))

    def _in_turn(self, there: Mapping[str, State], known: Mapping[str, Known]) -> list[str]:
        path, goal = self._turn
        names = sorted(there)
        first = bisect_left(names, path)
        if path in there and path in known and known[path].end >= goal:
            first += 1
        return names[first:] + names[:first]

    def _lost(self, error: OSError | EOFError) -> None:
        if self._lossless:
            raise error
        logger.warning("%s", error)

    def _whole(self, path: str, read: Read, start: int, stop: int, enough: float,
               is_old: bool = False) -> tuple[int, int]:
        """Where the last good frame between two offsets ends, and up to where was looked: not much farther than
        `enough`, unless there is no frame before. is_old: the file ended at `stop` long ago: damage counts too.

        What is wrong with a frame may only show in what follows it, so no part ends with damage elsewhere."""
        strict = self._options["errors"] == "strict"
        at = end = start if enough < stop else self._cuts(path, start, stop, INDEXED)[-1]
        # What a scan takes for a frame after damage depends on the checksums.
        stream = Stream(self._format.outermost, errors="strict" if strict else "mark",
                        check=self._options["check"] and not strict, limits=self._options["limits"], source=path,
                        offset=end)
        try:
            while at < stop and (at < enough or end == start):
                data = read(at, int(min(at + PIECE, enough if at < enough else stop, stop)))
                if not len(data):
                    break
                at += len(data)
                table = stream.feed(data)
                good = np.flatnonzero(~table.bad)
                if len(good):
                    end = _end(table, good[0 if at > enough else -1])
                    if at > enough:
                        return end, end
            if is_old and at == stop and not strict:
                table = stream.close()
                return _end(table, -1) if len(table) else stream.offset, at
        except FrameError as error:
            if error.offset <= start:
                raise
            return error.offset, stop
        return end, at

    def _cuts(self, path: str, start: int, stop: int, size: int) -> list[int]:
        """Offsets from `start` on, before `stop`, at which a frame begins, about `size` bytes apart."""
        top = self._format.outermost
        if top.cuts is None or stop - start <= size:
            return [start]
        return [at for at in top.cuts(path, size, start) if at < stop]


def _key(path: str, state: State) -> tuple[int, int] | str:
    """What names a file while it is there: device and inode, or the URL."""
    return (state.device, state.node) if state.node else path


def _end(table: FrameTable, row: int) -> int:
    """Where the frame of a row ends in its file."""
    return int(table.positions[row]) + int(table["size"][row])
