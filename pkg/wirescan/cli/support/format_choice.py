"""Chooses the format of a command without --format: `wirescan.detect` finds it in the files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

import numpy as np

from wirescan.cli.input import is_pipe, read_first_contents
from wirescan.cli.output import format_path, print_message
from wirescan.files.source import URL
from wirescan.frames.format import Format
from wirescan.frames.registry import format_of
from wirescan.reading.captures import is_of_captures
from wirescan.reading.detect import Candidate, detect_path, is_beside

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


def choose_format(paths: Sequence[str], default: Format, *, reads_pipes: bool = True) -> Format:
    """Return the format to read paths in, and print a message if it is not `default`.

    Args:
        paths: files, directories, globs, URLs, or "-" for standard input.
        default: the format where no other one fits, and where nothing but names fit it. If it is
            inside others, the format inside those that are found is chosen too.
        reads_pipes: look at the first bytes of pipes. Otherwise they have the default.

    Raises:
        ValueError: if the format is in doubt, or the paths have different formats. The message
            names the formats, and says why.
    """
    found: dict[str, tuple[str, Candidate | None]] = {}
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
    if len(found) > 1:
        parts = [f"{format_path(path)} holds {name}" for name, (path, _) in found.items()]
        raise ValueError(
            f"the paths have different formats: {', '.join(parts)}: read them one by one, or give "
            "--format"
        )
    for name, (path, candidate) in found.items():
        if name != default.outermost.name and candidate is not None:
            chosen = _select_level(candidate, default)
            print_message(
                f"wirescan: {format_path(path)} is read as {chosen} (--format chooses another "
                f"format): {candidate.reason}"
            )
            return format_of(chosen)
    return default


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
