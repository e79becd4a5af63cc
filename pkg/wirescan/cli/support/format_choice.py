"""Chooses the format of a command without --format: `wirescan.detect` finds it in the files.

A capture of packets is read in the one format that its connections show. First frames that show a
format are stronger than usual ports.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from wirescan.cli.input import is_pipe, read_first_contents
from wirescan.cli.output import format_path, print_message
from wirescan.cli.support.tally import find_counted_format
from wirescan.files.source import URL
from wirescan.frames.conversation import ConnectionGroup
from wirescan.frames.format import Format
from wirescan.frames.registry import format_of
from wirescan.frames.value_text import format_count
from wirescan.reading.captures import find_exchanges, is_of_captures
from wirescan.reading.detect import Candidate, detect_path, find_inner, is_beside

SAMPLED_PATHS = 16  # of the arguments
LIVE_SCHEME = "kafka://"  # begins the address of a topic, which is not a file


def find_candidates(path: str) -> list[Candidate]:
    """Return the formats that a path or standard input may have, as `wirescan.detect` does.

    Compressed files are decompressed, and the bytes of pipes are not lost. Of a pipe with a capture
    no more bytes are awaited than identify it. Raises OSError and ValueError for a path that cannot
    be read.
    """
    is_stream = path == "-" or is_pipe(path)
    return detect_path(path, read_first_contents, reads_more=not is_stream)


def choose_format(
    paths: Sequence[str],
    default: Format,
    *,
    reads_pipes: bool = True,
    reads_connections: bool = False,
    reads_exchanges: bool = False,
    opens_frames: bool = False,
) -> Format:
    """Return the format to read paths in, and print a message if it is not `default`.

    Args:
        paths: files, directories, globs, URLs, or "-" for standard input.
        default: the format where no other one fits, and where nothing but names fit it. If it is
            inside others, the format inside those that are found is chosen too.
        reads_pipes: look at the first bytes of pipes. Otherwise they have the default.
        reads_connections: the format of captures is that of their connections, if there is one.
        reads_exchanges: ... or that of the exchanges of the connections, if there are some.
        opens_frames: the command counts what is inside frames. Then exchanges are not chosen for
            frames that contain others.

    Raises:
        ValueError: if the format is in doubt, or the paths have different formats. The message
            names the formats, and says why.
    """
    found, groups = _find_formats(paths, default, reads_pipes=reads_pipes)
    if len(found) > 1:
        parts = [f"{format_path(path)} holds {name}" for name, (path, _) in found.items()]
        raise ValueError(
            f"the paths have different formats: {', '.join(parts)}: read them one by one, or give "
            "--format"
        )
    for name, (path, candidate) in found.items():
        if name != default.outermost.name and candidate is not None:
            chosen = _select_level(candidate, default)
            reason = candidate.reason
            counts = _count_connections(groups) if reads_connections else {}
            if len(counts) == 1:
                (protocol,) = counts
                chosen = _select_in_connections(
                    format_of(protocol),
                    default,
                    reads_exchanges=reads_exchanges,
                    opens_frames=opens_frames,
                )
                reason = _describe_choice(protocol, groups)
            elif counts:
                reason = f"its TCP connections have several formats: {_list_counts(counts)}"
            print_message(
                f"wirescan: {format_path(path)} is read as {chosen} (--format chooses another "
                f"format): {reason}"
            )
            return format_of(chosen)
    return default


def _find_formats(
    paths: Sequence[str], default: Format, *, reads_pipes: bool
) -> tuple[dict[str, tuple[str, Candidate | None]], list[ConnectionGroup]]:
    """Return the outermost formats of some paths, each with its first path, and the connections.

    The arguments and the errors are those of `choose_format`.
    """
    found: dict[str, tuple[str, Candidate | None]] = {}
    groups: list[ConnectionGroup] = []
    for path in _sample(paths):
        if (path == "-" or is_pipe(path)) and not reads_pipes:
            continue
        try:
            candidates = find_candidates(path)
        except (OSError, ValueError):
            continue  # the command reports it
        name = _decide(path, candidates, default)
        if name is not None:
            candidate = next((item for item in candidates if item.format == name), None)
            found.setdefault(name, (path, candidate))
            groups += candidate.connections if candidate is not None else ()
    return found, groups


def _select_in_connections(
    protocol: Format, default: Format, *, reads_exchanges: bool, opens_frames: bool
) -> str:
    """Return the name of the format to read connections of a protocol in.

    The arguments are those of `choose_format`.
    """
    is_opened = opens_frames and find_counted_format(protocol) is not None
    if reads_exchanges and not is_opened:
        exchanges = find_exchanges(protocol)
        if exchanges is not None:
            return exchanges.name
    return protocol.name if default.within is None else find_inner(protocol).name


def _count_connections(groups: Sequence[ConnectionGroup]) -> dict[str, int]:
    """Return the formats that connections have, with the number of connections.

    Usual ports count only if no frames show a format, and if there are bytes.
    """
    for rule in ("frames", "port"):
        counts: Counter[str] = Counter()
        for group in groups:
            if group.rule == rule and group.protocol is not None and group.bytes:
                counts[group.protocol] += group.connections
        if counts:
            return dict(counts.most_common())
    return {}


def _describe_choice(protocol: str, groups: Sequence[ConnectionGroup]) -> str:
    """Return why captures are read in the format of connections."""
    counts = Counter[str]()
    for group in groups:
        counts[group.protocol or "unknown"] += group.connections
    others = {name: count for name, count in counts.items() if name != protocol}
    reason = f"{format_count(counts[protocol], 'TCP connection')} of {protocol} in its first bytes"
    return f"{reason}, beside {_list_counts(others)}" if others else reason


def _list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name} ({format_count(count, 'connection')})" for name, count in counts.items()
    )


def hint_at_format(paths: Sequence[str], format: Format) -> str:
    """Return a hint if paths have another format than the one they are read in, or "".

    paths: files or directories, of which the first one is looked at. URLs and pipes are not.
    """
    for path in paths[:1]:
        if is_of_captures(format):
            continue  # the frames of any format may be in a capture
        if path == "-" or URL.match(path) or is_pipe(path):
            continue
        try:
            candidates = find_candidates(path)
        except (OSError, ValueError):
            continue
        names = [candidate.format for candidate in candidates]
        is_certain = names and candidates[0].verdict == "certain"
        if names and format.name not in names[: 1 if is_certain else None]:
            return f"; they may hold {' or '.join(names[: 1 if is_certain else None])} (--format)"
    return ""


def _sample(paths: Sequence[str]) -> list[str]:
    """Return the paths to look at: not all of many, and no indexes from a shell's `*`."""
    paths = [path for path in paths if not path.startswith(LIVE_SCHEME)]
    if len(paths) > 1:
        paths = [path for path in paths if os.path.isdir(path) or not is_beside(path)]
    places = np.linspace(0, len(paths) - 1, min(SAMPLED_PATHS, len(paths))).astype(int)
    return [paths[place] for place in places.tolist()]


def _decide(path: str, candidates: Sequence[Candidate], default: Format) -> str | None:
    """Return the name of the outermost format of a path; None if no format fits it.

    Raises ValueError if it is in doubt.
    """
    if not candidates:
        return None
    if candidates[0].verdict == "certain":
        return candidates[0].format
    usual = default.outermost.name
    possible = [candidate for candidate in candidates if candidate.verdict == "possible"]
    by_name = [candidate.format for candidate in candidates if candidate.verdict == "named"]
    if usual in by_name or all(candidate.format == usual for candidate in possible or candidates):
        return usual
    if not possible and len(by_name) == 1:
        return by_name[0]
    choose = partial(_select_level, default=default)
    fitting = ", or ".join(f"{choose(item)} ({item.reason})" for item in candidates)
    options = " or ".join(f"--format {choose(item)}" for item in candidates)
    raise ValueError(
        f"{format_path(path)}: the format is in doubt. It may be {fitting}. Give {options}"
    )


def _select_level(candidate: Candidate, default: Format) -> str:
    """Return the name of the format that a command with this default reads."""
    return candidate.format if default.within is None else candidate.inner
