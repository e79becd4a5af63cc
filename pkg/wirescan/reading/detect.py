"""`wirescan.detect`: which format the frames of a file, a directory or some bytes have.

The first bytes are scanned in each outermost format, and the good frames are weighed:
`wirescan.frames.evidence` describes the weights. Bytes identify a format if they reach CERTAIN
bits. Names of files, and the files beside them, decide where the bytes do not. The scan is bounded
by HEADS and LARGEST_ROWS, whatever the bytes are, and nothing but a part of the payloads of Thrift
is decompressed.

Of a capture of packets, CONNECTION_BYTES are read, and the connections in them are listed with
their protocols: `Storage.find_connections` finds them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wirescan.core.fault import Fault
from wirescan.core.stop import Stop
from wirescan.files.source import (
    SIDECAR,
    URL,
    expand,
    get_file_name,
    make_sibling_path,
    read_range,
    to_plain_path,
    view_of,
)
from wirescan.frames.conversation import ConnectionGroup, merge_groups
from wirescan.frames.errors import FrameError
from wirescan.frames.escape import make_visible
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of, formats
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import format_count

CERTAIN = 32  # bits: random bytes reach them once in four billion files
POSSIBLE = 16  # bits
NAMED = 16  # bits that the name of a file is worth, if it has good frames
GAP = 20  # bits: a search after damage tries many positions
MARGIN = 16  # bits by which the best format must exceed the second best
HALF = 0.5  # of the bytes: good frames must cover this share
# Bytes that are looked at: more of them only if fewer do not identify a format.
HEADS = (64 << 10, 1 << 20)
CONNECTION_BYTES = 2 << 20  # of a capture, in which its connections are found
LARGEST_ROWS = 1 << 16
WEIGHED_FRAMES = 256
SAMPLED_FILES = 4  # of a directory or glob, for each format, if the first ones are not certain
# Reads the first bytes of a file: path, number of bytes -> the bytes, fewer if the file ends.
ReadHead = Callable[[str, int], memoryview]


@dataclass(frozen=True)
class Candidate:
    """A format that bytes may have.

    Attributes:
        format: the name of the outermost format, such as "kafka.batches".
        inner: the name of the format that a summary counts inside these frames, such as
            "kafka.records"; `format` if there is none.
        verdict: "certain": the bytes are in this format. There is at most one such candidate, the
            first one. "possible": the bytes or the names of several files leave a doubt. "named":
            only the name of the file, or files beside it, fit.
        bits: how unlikely the good frames are in other bytes. Random bytes reach n bits once in
            2**n times.
        reason: the reason in words.
        connections: for a capture of packets, the connections in its first bytes, in groups of the
            same server and protocol.
    """

    format: str
    inner: str
    verdict: str
    bits: int
    reason: str
    connections: tuple[ConnectionGroup, ...] = ()


@dataclass(frozen=True)
class _Scan:
    """What a format finds in bytes."""

    format: Format
    frames: int  # good ones
    damaged: int
    start: int  # position of the first good frame
    is_named: bool  # the file has a name of the format
    covered: int  # bytes in good frames
    size: int  # bytes before a tail of zeros or of a cut frame
    bits: int

    @property
    def is_proven(self) -> bool:
        """Whether good frames identify the format, if they identify no other one.

        Frames of one format may be inside those of another. So they have to begin with the bytes
        and to cover half of them, unless the name of the file fits.
        """
        explains_bytes = self.start == 0 and self.covered >= HALF * self.size
        return self.bits >= CERTAIN and (explains_bytes or self.is_named)

    @property
    def rank(self) -> tuple[bool, bool]:
        """The order of scans, before their bits: later frames may be inside other ones."""
        return self.is_proven, self.start == 0


def detect(source: Any) -> list[Candidate]:
    """Return the formats that a source may have, the best one first.

    Args:
        source: a path, directory, glob or URL, or a bytes-like object. At most 1 MiB of a file is
            read, or 2 MiB of a capture, and at most four files of a directory for each format.
            Compressed files are not decompressed.

    Returns:
        The candidates. The list is empty if no format fits: random bytes, text and zeros have none.
        If the first candidate is "certain", the source has its format. Otherwise the source is in
        doubt, and the reasons say why.

    Raises:
        OSError: the file or directory cannot be read, or the directory is empty.
        TypeError: the source is neither a path nor bytes-like.
        ValueError: a URL of an unknown store.
    """
    if isinstance(source, (str, os.PathLike)):
        return detect_path(os.fspath(source))
    view = view_of(source)
    return _judge(lambda path, size: view[:size], "", ())


def read_first(path: str, size: int) -> memoryview:
    """Return the first bytes of a file or object, at most `size`. Raises OSError."""
    return read_range(path, 0, size)


def detect_path(
    path: str, read_head: ReadHead = read_first, *, reads_more: bool = True
) -> list[Candidate]:
    """Return the candidates of a path: see `detect`, which has the other arguments and errors.

    read_head: reads the first bytes of a file. reads_more: read more bytes of a capture, to find
    its connections. Otherwise those are used that identified it.
    """
    named = find_files(path)
    owners = {name: set(files) for name, files in named.items() if name}
    judged: dict[str, list[Candidate]] = {}
    for name, files in named.items():
        for file in _sample(files):
            if file not in judged:
                owning = [format_of(owner) for owner, owned in owners.items() if file in owned]
                judged[file] = _judge(read_head, file, owning, reads_more=reads_more)
            if name and _is_certain(judged[file]) and not judged[file][0].connections:
                break  # files without a usual name may have several formats, and so do captures
    file_count = len({file for files in named.values() for file in files})
    return _combine(judged) if file_count > 1 else list(*judged.values())


def _is_certain(candidates: Sequence[Candidate]) -> bool:
    return bool(candidates) and candidates[0].verdict == "certain"


def find_files(path: str) -> dict[str, list[str]]:
    """Return the files that each outermost format reads in a path: name of the format -> files.

    A file is in the list of each format whose files have such names. If there is no such file, the
    key "" has all files but indexes and the like. Raises OSError and ValueError.
    """
    path = to_plain_path(path)
    all_files = expand(path)
    names = [get_file_name(file) for file in all_files]
    if os.path.isdir(path):
        names = [file[len(os.path.join(path, "")) :] for file in all_files]
    named: dict[str, list[str]] = {}
    for format in formats().values():
        pattern = format.storage.files
        if format.within is None and pattern is not None:
            files = [file for file, name in zip(all_files, names) if re.search(pattern, name)]
            named |= {format.name: files} if files else {}
    if named:
        return named
    return {"": [file for file in all_files if not is_beside(file)] or all_files}


def is_beside(path: str) -> bool:
    """Return whether a file belongs to the files of a format and has no frames: an index, say."""
    patterns = {format.storage.ignore for format in formats().values()} - {None}
    name = get_file_name(path)
    return name.endswith(SIDECAR) or any(re.search(str(ignore), name) for ignore in patterns)


def find_inner(outer: Format) -> Format:
    """Return the format that a summary counts inside the frames of `outer`; `outer` without any."""
    for format in formats().values():
        is_counted = format.display.counted_as is not None and format.within == outer.name
        if is_counted and format.read in outer.children.values():
            return format
    return outer


def _sample(files: Sequence[str]) -> list[str]:
    """Return a few files: the first one, the last one, and others between them."""
    places = np.linspace(0, len(files) - 1, min(SAMPLED_FILES, len(files))).astype(int)
    return [files[place] for place in places.tolist()]


def _judge(
    read_head: ReadHead, path: str, named: Sequence[Format], *, reads_more: bool = True
) -> list[Candidate]:
    """Return the candidates of one file.

    named: the formats whose files have such names. reads_more: as in `detect_path`.
    """
    candidates: list[Candidate] = []
    for size in HEADS:
        view = view_of(read_head(path, size))
        scans = [_scan(view, format) for format in formats().values() if format.within is None]
        is_whole = len(view) < size
        candidates = _rank(scans, named, len(view) if is_whole else None)
        if is_whole or _is_certain(candidates):
            break
    found = {candidate.format for candidate in candidates}
    is_certain = _is_certain(candidates)
    if is_certain and format_of(candidates[0].format).storage.find_connections is not None:
        if reads_more and not is_whole:
            view = view_of(read_head(path, CONNECTION_BYTES))
            is_whole = len(view) < CONNECTION_BYTES
        candidates[0] = _add_connections(candidates[0], view, is_whole=is_whole)
    by_name = [] if is_certain else _decide_by_siblings(path, named)
    reason = "the file has a name of this format"
    content = _describe_content(view)
    for format in by_name:
        if format.name in found:
            continue
        scan = next(scan for scan in scans if scan.format is format)
        # A format that weighs no frames is not found in bytes, but they may agree with the name.
        is_good = scan.frames > 0 and format.storage.weigh is None and not scan.damaged
        frames = _describe(scan, len(view) if is_whole else None)
        text = f"{reason}: {frames}" if is_good else f"{reason}, but {content}"
        candidates.append(_make(format, "named", 0, text))
    return candidates


def _add_connections(candidate: Candidate, view: memoryview, *, is_whole: bool) -> Candidate:
    """Return the candidate of a capture with its connections.

    view: the first bytes of the capture. is_whole: no bytes follow.
    """
    find_connections = format_of(candidate.format).storage.find_connections
    assert find_connections is not None
    groups = find_connections(view, is_whole=is_whole)
    extent = "all" if is_whole else "the first"
    count = format_count(sum(group.connections for group in groups), "TCP connection")
    reason = f"{candidate.reason}; {count} in {extent} {len(view):,} bytes"
    return replace(candidate, reason=reason, connections=groups)


def _scan(view: memoryview, format: Format) -> _Scan:
    """Scan bytes in an outermost format, and weigh its good frames."""
    assert format.parser.scan is not None  # every outermost format has it
    limits = Limits(rows=LARGEST_ROWS)
    rows, _, fault, position = format.parser.scan(view, check=True, resync=True, limits=limits)
    table = FrameTable((view,), rows, (Stop(fault, position),), format, checked=True, errors="mark")
    bad = table.bad & ~np.isin(table["fault"], format.readable)
    good = table[np.flatnonzero(~bad)]
    ends = (0, Fault.SHORT, Fault.ZEROS, Fault.FILLER, Fault.LIMIT)
    is_stopped = fault not in ends
    size = len(view) if is_stopped else position
    weighed = good[:WEIGHED_FRAMES]
    bits = 0
    if len(weighed) and format.storage.weigh is not None:
        try:
            bits = int(format.storage.weigh(weighed).sum())
        except FrameError:  # larger than the limits
            bits = 0
    last = int(weighed["start"][-1]) if len(weighed) else 0
    damaged = bad & (table["start"] < last)
    bits -= GAP * int(damaged.sum())
    return _Scan(
        format,
        frames=len(good),
        damaged=int(bad.sum()) + is_stopped,
        start=int(good["start"][0]) if len(good) else len(view),
        is_named=False,
        covered=int(good["size"].sum(dtype=np.int64)),
        size=size,
        bits=bits,
    )


def _rank(
    scans: Iterable[_Scan], named: Sequence[Format], file_size: int | None
) -> list[Candidate]:
    """Return the candidates that the bytes of a file support, the best one first.

    file_size: bytes in the whole file; None if only its first bytes were scanned.
    """
    judged = []
    for scan in scans:
        if scan.bits > 0 and scan.format in named:
            scan = replace(scan, bits=scan.bits + NAMED, is_named=True)
        if scan.bits >= POSSIBLE:
            judged.append(scan)
    judged.sort(key=lambda scan: (*scan.rank, scan.bits), reverse=True)
    candidates = []
    for place, scan in enumerate(judged):
        rivals = [other for other in judged if other is not scan and other.rank >= scan.rank]
        is_clear = all(scan.bits - other.bits >= MARGIN for other in rivals)
        is_certain = not place and scan.is_proven and is_clear
        verdict = "certain" if is_certain else "possible"
        candidates.append(_make(scan.format, verdict, scan.bits, _describe(scan, file_size)))
    return candidates


def _make(format: Format, verdict: str, bits: int, reason: str) -> Candidate:
    return Candidate(format.name, find_inner(format).name, verdict, bits, reason)


def _describe(scan: _Scan, file_size: int | None) -> str:
    """Return the reason for a candidate."""
    extent = "all" if scan.size == file_size else "the first"
    count = f"{scan.frames:,} frame{'s' * (scan.frames != 1)}"
    text = f"{count} in {extent} {scan.size:,} bytes"
    if scan.start:
        text += f", from byte {scan.start} on"
    if scan.damaged:
        places = f"{scan.damaged:,} place{'s' * (scan.damaged != 1)}"
        text += f", with damage at {places}"
    return f"{text}; {scan.format.storage.evidence}"


def _describe_content(view: memoryview) -> str:
    """Return what bytes without frames are."""
    if not len(view):
        return "it is empty"
    if not np.frombuffer(view, np.uint8).any():
        return "it begins with zeros"
    return f"no format is certain in its first {len(view):,} bytes"


def _decide_by_siblings(path: str, named: Sequence[Format]) -> list[Format]:
    """Return those of the formats that the files beside a file do not contradict.

    If the files contradict all of them, all are returned.
    """
    if len(named) < 2 or URL.match(path):
        return list(named)
    endings = {ending for format in named for ending in format.storage.beside}
    sizes = {ending: _get_sibling_size(path, ending) for ending in endings}
    present = {ending: size for ending, size in sizes.items() if size is not None}
    fitting = [
        format
        for format in named
        if all(_fits(ending, size, format.storage.beside) for ending, size in present.items())
    ]
    return fitting or list(named)


def _fits(ending: str, size: int, beside: Mapping[str, int]) -> bool:
    entry = beside.get(ending)
    return entry is not None and (not entry or size % entry == 0)


def _get_sibling_size(path: str, ending: str) -> int | None:
    """Return the size of a file beside a file; None if there is none."""
    if ending.startswith("."):
        sibling = make_sibling_path(path, ending)
    else:
        sibling = os.path.join(os.path.dirname(path), ending)
    try:
        return os.stat(sibling).st_size
    except OSError:
        return None


def _combine(judged: Mapping[str, Sequence[Candidate]]) -> list[Candidate]:
    """Return the candidates of several files.

    judged: the files that were looked at, and their candidates.
    """
    best: dict[str, list[tuple[str, Candidate]]] = {}
    others: dict[str, Candidate] = {}
    for file, candidates in judged.items():
        for candidate in candidates:
            if candidate.verdict == "certain":
                best.setdefault(candidate.format, []).append((file, candidate))
            elif candidate.bits >= others.get(candidate.format, candidate).bits:
                others[candidate.format] = candidate
    combined = []
    for files in best.values():
        file, candidate = files[0]
        file = make_visible(get_file_name(file))
        reason = f"{file}: {candidate.reason}"
        if len(judged) > 1:
            count = f"{len(files)} of {len(judged)} files that were looked at"
            reason = f"{count}, such as {reason}"
        connections = merge_groups(group for _, item in files for group in item.connections)
        verdict = "certain"
        if len(best) > 1:
            verdict = "possible"
            reason = f"files of several formats; {reason}"
        combined.append(replace(candidate, verdict=verdict, reason=reason, connections=connections))
    rest = [candidate for name, candidate in others.items() if name not in best]
    rest.sort(key=lambda candidate: (candidate.verdict == "possible", candidate.bits), reverse=True)
    return combined + rest
