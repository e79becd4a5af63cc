"""Finished files of a stream, so that an offset does not list each of them.

A file is finished if it was read to its end and its name says that it will not grow: a segment of a
log with a later segment beside it, or a file that its format declares finished. An offset has one
`SealedDirectory` for the finished files of a directory. All files there are read whose last change
is not after its time `until`, except those that the offset lists.

The last change is the later one of the times mtime and ctime. The system sets the ctime of a file
that is created, renamed or moved, and nobody else can set it. So a file that comes into the
directory later is new, whatever its mtime is. `files` and `nodes` verify this: a directory cannot
have more old files than were counted, and files whose ctime changes, as by chown, are known again
if none of the counted files is missing.

`wirescan.reading.growing` uses it.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from wirescan.files.file_identity import (
    RECENT,
    FileProgress,
    Offset,
    State,
    compute_checksums,
)
from wirescan.files.source import open_ranges
from wirescan.frames.escape import make_visible
from wirescan.frames.format import Format

NODES_MODULO = 1 << 53  # JSON readers keep whole numbers below it
MIX = 0x9E3779B97F4A7C15  # an odd number: different sets of inodes rarely have the same sum


class SealedDirectory(NamedTuple):
    """The finished files of a directory.

    until: no finished file changed after it; nanoseconds since 1970. files: their number. nodes: a
    checksum of their inodes. unread: names of files that are as old and have no bytes to read.
    added: names of the files that this offset counts for the first time.
    """

    until: int
    files: int
    nodes: int
    unread: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


class SealedFile(NamedTuple):
    """A finished file as it was last listed. progress: None if it is from an earlier process."""

    path: str
    state: State
    progress: FileProgress | None


def parse_sealed(offset: Offset) -> dict[str, SealedDirectory]:
    """Return the finished files of an offset by their directories."""
    return {
        folder: SealedDirectory(
            **(fields | {name: tuple(fields.get(name, ())) for name in ("unread", "added")})
        )
        for folder, fields in offset.get("sealed", {}).items()
    }


def add_sealed(offset: Offset, sealed: Mapping[str, SealedDirectory]) -> Offset:
    """Return an offset with the finished files of directories, which `parse_sealed` returns."""
    if not sealed:
        return offset
    out: dict[str, Any] = {}
    for folder, directory in sorted(sealed.items()):
        fields = directory._asdict()
        out[folder] = {name: value for name, value in fields.items() if value != ()}
    return {**offset, "sealed": out}


def list_added(sealed: Mapping[str, SealedDirectory]) -> set[str]:
    """Return the paths of the files that an offset counts as finished for the first time."""
    return {
        os.path.join(folder, name)
        for folder, directory in sealed.items()
        for name in directory.added
    }


class SealedFiles:
    """Tells finished files from the others. It remembers them while the process runs.

    format: an outermost format. report_loss: called with an error if files may be lost.
    """

    def __init__(self, format: Format, report_loss: Callable[[OSError | EOFError], None]):
        log = format.storage.log
        self._segments = log.segments if log else None
        finished = format.storage.finished
        self._finished = re.compile(finished) if finished else None
        self._report_loss = report_loss
        self._remembered: dict[tuple[int, int], SealedFile] = {}

    def split(
        self,
        states: Mapping[str, State],
        progress: Mapping[str, FileProgress],
        sealed: Mapping[str, SealedDirectory],
    ) -> tuple[dict[str, State], dict[str, FileProgress]]:
        """Return the files that are not finished, and those of them that had been.

        The latter are files that changed after they were finished, or were renamed.

        states: the present files by their paths. progress, sealed: of an offset.
        """
        if not sealed:
            return dict(states), {}
        nodes = {file.node for file in progress.values() if file.node}
        unfinished: dict[str, State] = {}
        finished: defaultdict[str, list[str]] = defaultdict(list)
        for path, state in states.items():
            folder, name = os.path.split(path)
            directory = sealed.get(folder)
            is_listed = path in progress or state.node in nodes
            is_old = directory is not None and state.last_change <= directory.until
            if is_listed or not is_old or (directory and name in directory.unread):
                unfinished[path] = state
            else:
                finished[folder].append(path)
        restored = self._restore(unfinished, progress, nodes)
        for folder, directory in sealed.items():
            paths = finished[folder]
            self._check_count(folder, directory, len(paths))
            for path in self._find_changed(folder, directory, paths, states, unfinished):
                if path not in progress and path not in restored:
                    restored |= self._make_progress(path, states[path].size, states[path])
        for paths in finished.values():
            self._remember(paths, states, {})
        return unfinished, restored

    def _check_count(self, folder: str, directory: SealedDirectory, count: int) -> None:
        """Report a loss if a directory has more finished files than were counted."""
        if count > directory.files:
            self._report_loss(
                EOFError(
                    f"{make_visible(folder)} has {count} files from before the last offset, which "
                    f"counted {directory.files}: a file came with an old time, so it is not known "
                    "which of them were read"
                )
            )

    @staticmethod
    def _find_changed(
        folder: str,
        directory: SealedDirectory,
        paths: list[str],
        states: Mapping[str, State],
        unfinished: Mapping[str, State],
    ) -> list[str]:
        """Return the finished files of which only the ctime changed, if these can be told."""
        missing = directory.files - len(paths)
        if missing <= 0:
            return []
        candidates = [
            path
            for path, state in unfinished.items()
            if os.path.dirname(path) == folder and state.time <= directory.until < state.changed
        ]
        nodes = _sum_nodes(states[path].node for path in (*paths, *candidates))
        return candidates if len(candidates) == missing and nodes == directory.nodes else []

    def _restore(
        self,
        unfinished: Mapping[str, State],
        progress: Mapping[str, FileProgress],
        nodes: set[int],
    ) -> dict[str, FileProgress]:
        """Return the progress of files that were finished when this process last listed them."""
        out: dict[str, FileProgress] = {}
        for path, state in unfinished.items():
            remembered = self._remembered.get((state.device, state.node))
            if remembered is None or path in progress or state.node in nodes:
                continue
            if remembered.progress is not None:
                out[path] = remembered.progress._replace(path=path)
                continue
            before = remembered.state
            # Its checksums are not known, and another file may have its inode.
            if (state.size, state.time) == (before.size, before.time):
                out |= self._make_progress(path, before.size, state)
        return out

    @staticmethod
    def _make_progress(path: str, end: int, state: State) -> dict[str, FileProgress]:
        """Return the progress of a file whose first `end` bytes were read; none if it is gone."""
        with suppress(FileNotFoundError), open_ranges(path) as read:
            return {path: FileProgress(path, end, *compute_checksums(read, end), state.node)}
        return {}

    def _remember(
        self,
        paths: Iterable[str],
        states: Mapping[str, State],
        progress: Mapping[str, FileProgress],
    ) -> None:
        for path in paths:
            state = states[path]
            before = self._remembered.get((state.device, state.node))
            file = progress.get(path)
            if file is None and before is not None and before.state == state:
                file = before.progress
            self._remembered[state.device, state.node] = SealedFile(path, state, file)

    def seal(
        self,
        files: dict[str, FileProgress],
        before: Mapping[str, FileProgress],
        states: Mapping[str, State],
        unfinished: Mapping[str, State],
        sealed: Mapping[str, SealedDirectory],
        listed_at: int,
        has_no_bytes: Callable[[str, State], bool],
    ) -> dict[str, SealedDirectory]:
        """Remove finished files from the progress of files, and return them by their directories.

        files: the progress of the next offset, which is changed. before: that of the previous one;
            only a file that has not changed since then is finished.
        states: all present files by their paths. unfinished: those of `split`.
        sealed: of the previous offset.
        listed_at: a time before the files were listed, in nanoseconds since 1970.
        has_no_bytes: whether a file that is not in `files` was searched to its end in vain.
        """
        finished = {
            path for path in files if files[path] == before.get(path) and not files[path].left
        }
        finished = self._select_finished(finished, files, states, listed_at - RECENT)
        by_folder: defaultdict[str, list[str]] = defaultdict(list)
        for path in states:
            by_folder[os.path.dirname(path)].append(path)
        out: dict[str, SealedDirectory] = {}
        for folder in {*sealed, *map(os.path.dirname, finished)}:
            directory = sealed.get(folder, SealedDirectory(0, 0, 0))
            paths = [path for path in by_folder[folder] if path not in files]
            old = [path for path in paths if path not in unfinished]
            unread: dict[str, int] = {}
            limit = listed_at
            for path in paths:
                state = states[path]
                if path not in unfinished:
                    continue
                if state.last_change <= directory.until or has_no_bytes(path, state):
                    unread[os.path.basename(path)] = state.last_change
                else:
                    limit = min(limit, state.last_change - 1)
            added = [
                path
                for path in by_folder[folder]
                if path in finished and states[path].last_change <= limit
            ]
            if not old and not added:
                continue
            until = max([directory.until, *(states[path].last_change for path in added)])
            out[folder] = SealedDirectory(
                until,
                len(old) + len(added),
                _sum_nodes(states[path].node for path in (*old, *added)),
                tuple(sorted(name for name, changed in unread.items() if changed <= until)),
                tuple(sorted(map(os.path.basename, added))),
            )
            self._remember(added, states, files)
            for path in added:
                del files[path]
        self._forget(states)
        return out

    def _forget(self, states: Mapping[str, State]) -> None:
        """Forget the files that are gone."""
        present = {(state.device, state.node) for state in states.values()}
        self._remembered = {key: file for key, file in self._remembered.items() if key in present}

    def _select_finished(
        self,
        paths: Iterable[str],
        files: Mapping[str, FileProgress],
        states: Mapping[str, State],
        latest: int,
    ) -> set[str]:
        """Return those of some paths whose files were read to their end and will not grow.

        latest: the files have not changed after this time.
        """
        newest: dict[str, int] = {}
        bases: dict[str, int] = {}
        if self._segments is not None:
            for path in states:
                name = self._segments.parse(path)
                if name is not None:
                    bases[path] = name.base
                    newest[name.prefix] = max(newest.get(name.prefix, -1), name.base)
        out = set()
        for path in paths:
            state = states.get(path)
            if state is None or not state.node or files[path].end != state.size:
                continue
            if state.last_change >= latest:
                continue
            is_segment = path in bases and bases[path] < newest[path[: path.rfind("/") + 1]]
            if is_segment or (self._finished is not None and self._finished.search(path)):
                out.add(path)
        return out


def _sum_nodes(nodes: Iterable[int]) -> int:
    """Return a checksum of inodes, which does not depend on their order."""
    return sum((node * MIX ^ node >> 7) % NODES_MODULO for node in nodes) % NODES_MODULO
