"""Files that are known again: by what was read of them, whatever they are called by now.

A file is the same one as long as it holds what it held when it was read, as the checksums of the first and the last
bytes of that tell; the inode says where to look. One of another inode has to agree in more than a few bytes; and one
that holds something else is another file, even under the same name.
"""
from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple
from zlib import crc32

from wirescan.catalog import Format
from wirescan.source import GLOB, expand, found, ranges
from wirescan.store import URL

MARK = 1024                 # bytes at either end of those read, by which a file is known again
SECOND = 1_000_000_000      # nanoseconds
RECENT = 2 * SECOND         # in which a file may change twice and bear the same time

Read = Callable[[int, int], memoryview]
Offset = Mapping[str, Any]


class State(NamedTuple):
    """What a listing tells of a file: bytes, inode, time of change and device; 0 for an object."""
    size: int
    node: int = 0
    time: int = 0
    device: int = 0


class Known(NamedTuple):
    """How far a file was read.

    path: what it was called. end: bytes that were read. head, tail: crc32 of the first and the last MARK of these.
    node: its inode. left: more of it could have been read. cut: it became shorter than what was read, and what it holds
    by now counts as read."""
    path: str
    end: int
    head: int
    tail: int
    node: int = 0
    left: bool = False
    cut: bool = False

    def is_as_far(self, other: Known | None) -> bool:
        """Whether the same bytes were read of another file, as far as one can tell."""
        return other is not None and self[1:4] == other[1:4]


def known_in(offset: Offset) -> dict[str, Known]:
    """The files of an offset, by their paths."""
    return {path: Known(path, **told) for path, told in offset.get("files", {}).items()}


def offset_of(known: Mapping[str, Known]) -> Offset:
    """{"files": {path: {"end": bytes, "head": crc32, "tail": crc32, "node": inode}}}; "left" and "cut" where true."""
    files = {}
    for path in sorted(known):
        told = known[path]._asdict()
        files[path] = {name: told[name] for name in ("end", "head", "tail", "node")}
        files[path] |= {name: True for name in ("left", "cut") if told[name]}
    return {"files": files}


def marks(read: Read, end: int) -> tuple[int, int]:
    """The checksums of the first and the last bytes of those before an end."""
    return crc32(read(0, min(end, MARK))), crc32(read(max(end - MARK, 0), end))


def gone(what: str, path: str) -> FileNotFoundError:
    """The error for a file that was lost."""
    return FileNotFoundError(errno.ENOENT, what, path)


class Files:
    """The files of some paths, globs, directories and URLs, as they come, go and get other names."""

    def __init__(self, paths: Sequence[str], format: Format):
        self._paths, self._format = list(paths), format
        self._settled: dict[str, tuple[State, int]] = {}

    def there(self, known: Mapping[str, Known]) -> dict[str, State]:
        """The files that are read, and those among the known ones that got names under which none is read otherwise.

        Raises FileNotFoundError for a path that is not there, and never was; OSError."""
        out: dict[str, State] = {}
        for source in self._paths:
            try:
                if URL.match(source):
                    out |= {one.path: State(one.size) for one in found(
                        source, files=self._format.files, ignore=self._format.ignore)}
                    continue
                names = self._listed(source)
            except FileNotFoundError:
                if not (known or GLOB.search(source) or os.path.isdir(source) or source[-1:] == "/"):
                    raise
                continue                            # there may be files later
            for name in names:
                try:
                    out[name] = _state(name)
                except FileNotFoundError:
                    if name == source and not known:
                        raise
        nodes = {state.node for state in out.values()}
        astray = {one.node for one in known.values() if one.node and one.node not in nodes}
        for folder in {os.path.dirname(one.path) or "." for one in known.values() if one.node in astray}:
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for name in [entry.path for entry in entries if entry.inode() in astray]:
                    with suppress(OSError):
                        out[name] = _state(name)
        self._settled = {path: settled for path, settled in self._settled.items() if path in out}
        return out

    def claimed(self, olds: Sequence[Known], there: Mapping[str, State],
                places: Mapping[str, str] | None = None) -> tuple[dict[str, Known], list[Known]]:
        """Which of the files that are there each old one is: by its path, and those that are none of them. places: the
        paths under which files are read, where they are other ones."""
        out: dict[str, Known] = {}
        nodes = {state.node: path for path, state in there.items() if state.node}

        def by_node(one: Known) -> Iterable[str | None]:
            same = there.get(one.path)
            return [one.path if same and same.node == one.node else nodes.get(one.node)]

        def by_path(one: Known) -> Iterable[str]:
            return [one.path] if one.end >= MARK else []

        @cache
        def begun() -> dict[int, list[str]]:
            """The files that are none of the old ones so far, by the checksum of their first bytes."""
            heads: dict[int, list[str]] = {}
            for path, state in there.items():
                if state.node and state.size >= MARK and path not in out:
                    with suppress(FileNotFoundError), ranges((places or {}).get(path, path)) as read:
                        heads.setdefault(crc32(read(0, MARK)), []).append(path)
            return heads

        def by_content(one: Known) -> Iterable[str]:
            return begun().get(one.head, []) if one.end >= MARK and one.node else []

        for candidates in by_node, by_path, by_content:
            astray = []
            for one in olds:
                for path in candidates(one):
                    if path in there and path not in out and self._is(one, path, there[path], (places or {}).get(path)):
                        out[path] = one._replace(path=path, node=there[path].node)
                        break
                else:
                    astray.append(one)
            olds = astray
        return out, astray

    def begins_as(self, one: Known, state: State) -> bool:
        """Whether what bears the name of a file, and its inode, begins as that did."""
        if state.node != one.node or state.size < min(one.end, MARK):
            return False
        with ranges(one.path) as read:
            return crc32(read(0, min(one.end, MARK))) == one.head

    def place(self, one: Known) -> str | None:
        """What a file is called now; None where it is gone."""
        return self.places([one]).get(one)

    def places(self, several: Iterable[Known]) -> dict[Known, str]:
        """What files are called now; without those that are gone."""
        out: dict[Known, str] = {}
        astray: dict[tuple[Any, ...], list[Known]] = {}
        for one in several:
            with suppress(FileNotFoundError):
                if URL.match(one.path) or self._is(one, one.path, State(os.stat(one.path).st_size, one.node)):
                    out[one] = one.path
                    continue
            astray.setdefault(one[1:4], []).append(one)
        if olds := [one for alike in astray.values() for one in alike]:
            claimed, _ = self.claimed(olds, self.there({one.path: one for one in olds}))
            out |= {astray[one[1:4]].pop(): path for path, one in claimed.items()}
        return out

    @contextmanager
    def opened(self, one: Known) -> Iterator[tuple[str, Read]]:
        """What a file is called now, and what reads it: whatever happens to its name then. Raises FileNotFoundError."""
        for _ in range(3):                  # it may get another name between the two
            place = self.place(one)
            if place is None:
                break
            with ExitStack() as stack:
                try:
                    read = stack.enter_context(ranges(place))
                    is_it = URL.match(place) or marks(read, one.end) == (one.head, one.tail)
                except FileNotFoundError:
                    continue
                if is_it:
                    yield place, read
                    return
        raise gone("gone before it was read", one.path)

    def settle(self, path: str, state: State, end: int) -> None:
        """Note that, as long as a file is in that state, it is the known one and has no whole frame behind that end."""
        if state.time and time.time_ns() - state.time > RECENT:
            self._settled[path] = state, end

    def is_settled(self, path: str, state: State, end: int) -> bool:
        """Whether that was noted."""
        return self._settled.get(path) == (state, end)

    def _is(self, one: Known, path: str, state: State, place: str | None = None) -> bool:
        """Whether the file at `place`, listed as `path`, is this one."""
        if state.size < one.end:
            return False
        if not state.node and path == one.path and state.size == one.end or self.is_settled(path, state, one.end):
            return True
        with suppress(FileNotFoundError), ranges(place or path) as read:
            if crc32(read(0, min(one.end, MARK))) != one.head or marks(read, one.end)[1] != one.tail:
                return False
            if state.size == one.end:
                self.settle(path, state, one.end)
            return True
        return False

    def _listed(self, source: str) -> list[str]:
        try:
            return expand(source, files=self._format.files, ignore=self._format.ignore)
        except FileNotFoundError:                   # perhaps since a folder went meanwhile
            return expand(source, files=self._format.files, ignore=self._format.ignore)


def _state(path: str) -> State:
    state = os.stat(path)
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.ESPIPE, "not a regular file, so it cannot be read in parts", path)
    return State(state.st_size, state.st_ino, state.st_mtime_ns, state.st_dev)
