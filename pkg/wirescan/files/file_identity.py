"""Identity of files across renames and rotation, by checksums of the part already read.

A file is the same if the first and the last EDGE_BYTES of the bytes already read are the same.
Their checksums decide that; a change between them is not noticed. The inode is only a hint. A file
with another inode must have at least EDGE_BYTES of the same bytes. A file with other bytes is
another file, even under the same name. An object of a store is the same if its URL and size are.
`wirescan.reading.growing` follows growing files with it, for Spark's stream source.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple
from zlib import crc32

from wirescan.files.object_store import URL
from wirescan.files.source import GLOB, expand, list_files, open_ranges, stat_file
from wirescan.frames.format import Format

EDGE_BYTES = 1024  # bytes at each end of the bytes already read, which a checksum covers
SECOND = 1_000_000_000  # nanoseconds
RECENT = 2 * SECOND  # within this time a file may change twice and keep its time of change
OPEN_ATTEMPTS = 3  # a file may be renamed between the search for it and its opening

Read = Callable[[int, int], memoryview]
Offset = Mapping[str, Any]  # how far all files were read, as JSON


class State(NamedTuple):
    """What a listing reports of a file.

    size: bytes. node: inode. time: time of the last change of its bytes, in nanoseconds since 1970.
    device: its device. changed: time of the last change of the file or its name, as the system sets
    it (ctime). node, time, device and changed are 0 for an object of a store.
    """

    size: int
    node: int = 0
    time: int = 0
    device: int = 0
    changed: int = 0

    @property
    def last_change(self) -> int:
        """The time of the last change of any kind."""
        return max(self.time, self.changed)


class FileProgress(NamedTuple):
    """How far a file was read.

    path: its path at that time. end: the number of bytes that were read. head, tail: crc32 of the
    first and the last EDGE_BYTES of these bytes. node: its inode. left: reading stopped before the
    end. cut: the file became shorter than `end`, and its present bytes count as read.
    """

    path: str
    end: int
    head: int
    tail: int
    node: int = 0
    left: bool = False
    cut: bool = False

    @property
    def content(self) -> tuple[int, int, int]:
        """The number of bytes that were read, and their checksums."""
        return self.end, self.head, self.tail

    def has_same_content(self, other: FileProgress | None) -> bool:
        """Return whether another file has the same number of bytes read, and their checksums."""
        return other is not None and self.content == other.content


def parse_offset(offset: Offset) -> dict[str, FileProgress]:
    """Return the progress of the files of an offset by their paths."""
    return {path: FileProgress(path, **fields) for path, fields in offset.get("files", {}).items()}


def make_offset(files: Mapping[str, FileProgress]) -> Offset:
    """Return the progress of files as an offset, which JSON can hold.

    The offset is {"files": {path: {"end": bytes, "head": crc32, "tail": crc32, "node": inode}}}. It
    holds "left" and "cut" only where they are true.

    files: the progress of files by their paths.
    """
    out = {}
    for path in sorted(files):
        fields = files[path]._asdict()
        out[path] = {name: fields[name] for name in ("end", "head", "tail", "node")}
        out[path] |= {name: True for name in ("left", "cut") if fields[name]}
    return {"files": out}


def compute_checksums(read: Read, end: int) -> tuple[int, int]:
    """Return the crc32 of the first and of the last EDGE_BYTES of the bytes before `end`."""
    head = crc32(read(0, min(end, EDGE_BYTES)))
    return head, crc32(read(max(end - EDGE_BYTES, 0), end))


def make_lost_file_error(message: str, path: str) -> FileNotFoundError:
    """Return the error for a lost file. message: what happened to it."""
    return FileNotFoundError(errno.ENOENT, message, path)


class Files:
    """The files of some paths, globs, directories and URLs, while they appear, vanish and move."""

    def __init__(self, paths: Sequence[str], format: Format):
        self._paths = list(paths)
        self._format = format
        self._verified: dict[str, tuple[State, int, bool]] = {}

    def list_present(
        self, progress: Mapping[str, FileProgress], *, was_read: bool = False
    ) -> dict[str, State]:
        """Return the states of the present files by their paths.

        They include known files that were renamed, in the same folder, to names that are otherwise
        not read.

        progress: the progress of the files that were already read, by their paths. was_read: files
        were read that are not in it. Raises FileNotFoundError for a path without a file if no file
        was read, and OSError.
        """
        was_read = was_read or bool(progress)
        out: dict[str, State] = {}
        for source in self._paths:
            try:
                if URL.match(source):
                    out |= self._list_objects(source)
                    continue
                names = self._list_names(source)
            except FileNotFoundError:
                if not (
                    was_read or GLOB.search(source) or os.path.isdir(source) or source[-1:] == "/"
                ):
                    raise
                continue  # files may appear later
            for name in names:
                try:
                    out[name] = _stat_file(name)
                except FileNotFoundError:
                    if name == source and not was_read:
                        raise
        out |= _find_renamed(progress.values(), {state.node for state in out.values()})
        self._verified = {path: entry for path, entry in self._verified.items() if path in out}
        return out

    def refresh(self, path: str, state: State | None) -> State | None:
        """Return the state of a listed file now; None if it is gone, or was not listed.

        path: of the file. state: as it was listed. Objects of stores are not asked for again.
        """
        if state is None or not state.node:
            return state
        try:
            return _stat_file(path)
        except OSError:
            return None

    def match_files(
        self,
        files: Sequence[FileProgress],
        present: Mapping[str, State],
        read_paths: Mapping[str, str] | None = None,
    ) -> tuple[dict[str, FileProgress], list[FileProgress]]:
        """Return known files by the paths of the present files, and the known files without one.

        A present file is matched by inode first, then by path, then by the checksum of its first
        bytes.

        files: the progress of files. present: the states of the present files by their paths.
        read_paths: by these paths, the paths to read the files from; default: the same paths.
        """
        out: dict[str, FileProgress] = {}
        nodes = {state.node: path for path, state in present.items() if state.node}

        def list_by_node(file: FileProgress) -> Iterable[str]:
            state = present.get(file.path)
            path = file.path if state and state.node == file.node else nodes.get(file.node)
            return [] if path is None else [path]

        def list_by_path(file: FileProgress) -> Iterable[str]:
            return [file.path] if file.end >= EDGE_BYTES else []

        @cache
        def group_by_head() -> dict[int, list[str]]:
            """Return the files that have no match yet, by the checksum of their first bytes."""
            heads: dict[int, list[str]] = {}
            for path, state in present.items():
                if state.node and state.size >= EDGE_BYTES and path not in out:
                    with (
                        suppress(FileNotFoundError),
                        open_ranges((read_paths or {}).get(path, path)) as read,
                    ):
                        heads.setdefault(crc32(read(0, EDGE_BYTES)), []).append(path)
            return heads

        def list_by_content(file: FileProgress) -> Iterable[str]:
            return (
                group_by_head().get(file.head, []) if file.end >= EDGE_BYTES and file.node else []
            )

        for list_candidates in list_by_node, list_by_path, list_by_content:
            unmatched = []
            for file in files:
                for path in list_candidates(file):
                    if path not in present or path in out:
                        continue
                    if self._is_same(file, path, present[path], (read_paths or {}).get(path)):
                        out[path] = file._replace(path=path, node=present[path].node)
                        break
                else:
                    unmatched.append(file)
            files = unmatched
        return out, unmatched

    def has_same_head(self, file: FileProgress, state: State) -> bool:
        """Return whether the file at the path of a known file has its inode and its first bytes.

        file: the known file. state: the present state of the file at its path.
        """
        if state.node != file.node or state.size < min(file.end, EDGE_BYTES):
            return False
        with open_ranges(file.path) as read:
            return crc32(read(0, min(file.end, EDGE_BYTES))) == file.head

    def find_path(self, file: FileProgress) -> str | None:
        """Return the present path of a known file; None where the file is gone."""
        return self.find_paths([file]).get(file)

    def find_paths(self, files: Iterable[FileProgress]) -> dict[FileProgress, str]:
        """Return the present paths of known files, without the files that are gone."""
        out: dict[FileProgress, str] = {}
        unmatched: dict[tuple[int, int, int], list[FileProgress]] = {}
        for file in files:
            with suppress(FileNotFoundError):
                if URL.match(file.path) or self._is_same(
                    file, file.path, State(os.stat(file.path).st_size, file.node)
                ):
                    out[file] = file.path
                    continue
            unmatched.setdefault(file.content, []).append(file)
        if lost := [file for same_content in unmatched.values() for file in same_content]:
            present = self.list_present({file.path: file for file in lost})
            matches, _ = self.match_files(lost, present)
            out |= {unmatched[file.content].pop(): path for path, file in matches.items()}
        return out

    @contextmanager
    def open(self, file: FileProgress) -> Iterator[tuple[str, Read]]:
        """Open a known file, and give its present path and a function that reads its bytes.

        The function reads this file even if it is renamed meanwhile. Raises FileNotFoundError.
        """
        for _ in range(OPEN_ATTEMPTS):
            path = self.find_path(file)
            if path is None:
                break
            with ExitStack() as stack:
                try:
                    read = stack.enter_context(open_ranges(path))
                    is_same = URL.match(path) or (
                        compute_checksums(read, file.end) == (file.head, file.tail)
                    )
                except FileNotFoundError:
                    continue
                if is_same:
                    yield path, read
                    return
        raise make_lost_file_error("gone before it was read", file.path)

    def note_verified(self, path: str, state: State, end: int, *, stays_so: bool = True) -> None:
        """Remember that a file in this state is the known file, without a whole frame after `end`.

        A file that changed recently is not remembered: it may change again without a new time.

        stays_so: no frame is found after `end` later either, if the file does not change.
        """
        if state.time and time.time_ns() - state.time > RECENT:
            self._verified[path] = state, end, stays_so

    def is_verified(self, path: str, state: State, end: int, *, stays_so: bool = False) -> bool:
        """Return whether `note_verified` had these arguments, and remembers them.

        stays_so: only if it had `stays_so` too.
        """
        known_state, known_end, known_to_stay = self._verified.get(path, (None, 0, False))
        return (known_state, known_end) == (state, end) and (known_to_stay or not stays_so)

    def _is_same(
        self, file: FileProgress, path: str, state: State, read_path: str | None = None
    ) -> bool:
        """Return whether the file at `read_path`, listed as `path`, is a known file."""
        if state.size < file.end:
            return False
        is_same_object = not state.node and path == file.path and state.size == file.end
        if is_same_object or self.is_verified(path, state, file.end):
            return True
        with suppress(FileNotFoundError), open_ranges(read_path or path) as read:
            head = crc32(read(0, min(file.end, EDGE_BYTES)))
            if head != file.head or compute_checksums(read, file.end)[1] != file.tail:
                return False
            if state.size == file.end:
                self.note_verified(path, state, file.end)
            return True
        return False

    def _list_objects(self, url: str) -> dict[str, State]:
        storage = self._format.storage
        files = list_files(url, files=storage.files, ignore=storage.ignore)
        return {file.path: State(file.size) for file in files}

    def _list_names(self, source: str) -> list[str]:
        storage = self._format.storage
        try:
            return expand(source, files=storage.files, ignore=storage.ignore)
        except FileNotFoundError:  # a folder may have vanished during the listing: try again
            return expand(source, files=storage.files, ignore=storage.ignore)


def _find_renamed(files: Iterable[FileProgress], nodes: set[int]) -> dict[str, State]:
    """Return files with the inode of a known file, in its folder, if `nodes` lacks that inode."""
    lost = [file for file in files if file.node and file.node not in nodes]
    lost_nodes = {file.node for file in lost}
    out: dict[str, State] = {}
    for folder in {os.path.dirname(file.path) or "." for file in lost}:
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for path in [entry.path for entry in entries if entry.inode() in lost_nodes]:
                with suppress(OSError):
                    out[path] = _stat_file(path)
    return out


def _stat_file(path: str) -> State:
    state = stat_file(path)
    return State(state.st_size, state.st_ino, state.st_mtime_ns, state.st_dev, state.st_ctime_ns)
