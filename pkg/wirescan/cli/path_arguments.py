"""The files of PATH arguments: directories, globs and URLs are expanded."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import click

from wirescan.cli.exit_codes import Failure, describe_error
from wirescan.cli.foreign_files import HEAD, describe_foreign_file
from wirescan.cli.format_command import FOUND
from wirescan.cli.input import read_head
from wirescan.cli.output import format_path, print_message
from wirescan.cli.support.format_choice import hint_at_format
from wirescan.files.file_pattern import include_left_out
from wirescan.files.source import SIDECAR, expand, get_size, get_sizes, read_ahead
from wirescan.frames.format import Format
from wirescan.frames.value_text import format_count


def resolve_paths(
    paths: Sequence[str],
    format: Format,
    report_failure: Callable[[str], None] | None = None,
    *,
    all_files: bool = False,
) -> list[str]:
    """Return the files of PATH arguments, in order; "-" is standard input.

    Several arguments may come from a shell's `*`. Then files that a format never reads, such as
    indexes, are skipped with a message.

    Args:
        paths: files, directories, globs, URLs or "-".
        format: the format that the files are read as.
        report_failure: takes the message about a path that cannot be read. Without it, the first
            such path raises.
        all_files: read also the files that `FilePattern` leaves out, as those of Kafka's own
            topics.

    Raises:
        Failure: if a path cannot be read, if no file is left, or if "-" is given twice.
    """
    top = format.outermost
    if all_files:
        storage = replace(top.storage, files=include_left_out(top.storage.files))
        top = replace(top, storage=storage)
    fail = report_failure or _raise_failure
    selected = list(paths)
    if len(paths) > 1:
        # The user named the folder that all paths share. Only what follows can come from a shell.
        shared = len(os.path.commonprefix(paths).rpartition("/")[0])
        selected = [path for path in paths if not _is_ignored(path, shared, top)]
    files: list[str] = []
    for path in selected:
        if path == "-":
            files.append(path)
            continue
        try:
            for file in _list_readable_files(path, top, fail):
                files.append(file)  # one by one: a later file of the path may raise
        except (OSError, ValueError) as error:
            message = describe_error(error, path)
            if isinstance(error, FileNotFoundError) and os.path.isdir(path):
                message += hint_at_format([path], top)
            fail(message)
    if skipped := len(paths) - len(selected):
        count = format_count(skipped, "file")
        print_message(f"wirescan: skipped {count} without frames, such as indexes")
    if not files and report_failure is None:
        raise Failure(f"none of the given files holds {top.name}")
    context = click.get_current_context(silent=True)
    is_found = context is not None and FOUND in context.meta
    hint = "" if is_found else hint_at_format(files, top)
    if hint:
        print_message(f"wirescan: the files are read as {top.name}{hint}")
    if files.count("-") > 1:
        raise Failure("standard input (-) can be given only once")
    return files


def _raise_failure(message: str) -> None:
    raise Failure(message) from None


def _is_ignored(path: str, shared: int, format: Format) -> bool:
    """Return whether a path names a file that a format never reads.

    shared: the number of characters that it shares with the other paths, up to a slash.
    """
    ignore = format.storage.ignore
    is_named = path.endswith(SIDECAR) or (
        ignore is not None and re.search(ignore, path[shared:]) is not None
    )
    return is_named and path != "-" and not os.path.isdir(path)


def _list_readable_files(path: str, format: Format, fail: Callable[[str], None]) -> Iterator[str]:
    """Yield the files of a path; `fail` takes messages about those without frames.

    Raises OSError and ValueError for a path that cannot be read.
    """
    text_format = None if format.parser.scan is None else format  # lines of text need no scan
    files = expand(path, files=format.storage.files, ignore=format.storage.ignore)
    for file in read_ahead(files, head=HEAD):
        get_size(file)
        message = describe_foreign_file(read_head(file), file, text_format)
        if message is None:
            yield file
        else:
            fail(message)


def refuse_input_as_output(output: str, files: Iterable[str]) -> None:
    """Raise Failure if the output file is one of the files to read."""
    if not os.path.exists(output):
        return
    if any(os.path.exists(file) and os.path.samefile(file, output) for file in files):
        raise Failure(f"{format_path(output)}: would be replaced while it is read")


def compute_total_size(files: Iterable[str]) -> int | None:
    """Return the bytes in all files together; None if one of them is standard input."""
    files = list(files)
    return None if "-" in files else sum(get_sizes(files))
