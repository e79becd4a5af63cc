"""What the verbs share: their arguments, the files that those stand for, and how errors become exit codes."""
from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from wirescan.catalog import Format, format_of, formats
from wirescan.cli.output import counted, name_of, say
from wirescan.core.fault import Fault
from wirescan.source import SIDECAR, expand, size_of
from wirescan.table import FrameTable

DAMAGE, FAILED, INTERRUPTED, CLOSED_PIPE = 1, 2, 130, 141
ENDS = {Fault.SHORT: "cut frame", Fault.FILLER: "overflow filler"}     # tails that are told
RESPONSES = "kafka.responses"
Command = Callable[..., Any]


class Failure(click.ClickException):
    """It cannot be done: one line on standard error, and exit code 2."""
    exit_code = FAILED

    def show(self, file: Any = None) -> None:
        say(f"wirescan: {self.message}")


class Damage(Failure):
    """Damage was met, and it was not to be passed over: one line on standard error, and exit code 1."""
    exit_code = DAMAGE


def paths_argument(command: Command) -> Command:
    return click.argument("paths", nargs=-1, required=True, metavar="PATH...")(command)


def format_option(default: str) -> Callable[[Command], Command]:
    return click.option("--format", "format_name", default=default, show_default=True, metavar="NAME",
                        callback=lambda context, option, name: _format(name),
                        help="What the frames are; `wirescan formats` lists the names.")


def check_option(command: Command) -> Command:
    return click.option("--check/--no-check", default=True,
                        help="Verify checksums (the default), or do not.")(command)


def columns_option(command: Command) -> Command:
    return click.option("--columns", metavar="A,B",
                        help="These columns, in this order; an unknown one lists them.")(command)


def errors_option(default: str) -> Callable[[Command], Command]:
    return click.option("--errors", type=click.Choice(["strict", "mark", "skip"]), default=default,
                        show_default=True,
                        help="Damage: stop there (strict), show it among the rest (mark), "
                             "or leave it out (skip).")


def _format(name: str) -> Format:
    try:
        found = format_of(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if found.within is not None and found.outermost.name == RESPONSES:
        raise click.BadParameter(f"only the requests tell what responses are: read {name} in Python")
    return found


def collect(paths: Sequence[str], format: Format, failed: Callable[[str], None] | None = None) -> list[str]:
    """The files that arguments stand for, in order; "-" is standard input.

    Among several arguments, such as a shell makes of a `*`, files that a format never reads (indexes) are
    left out.
    failed: takes the message about a path that cannot be read; without it, that raises Failure.
    """
    outermost, ignored = format.outermost, 0
    found: list[str] = []
    shared = len(os.path.commonprefix(paths).rpartition("/")[0])       # of every path: named, not found by a shell
    for path in paths:
        if path == "-":
            found.append(path)
            continue
        beside = len(paths) > 1 and (path.endswith(SIDECAR)
                                     or outermost.ignore and re.search(outermost.ignore, path[shared:]))
        if beside and not os.path.isdir(path):
            ignored += 1
            continue
        try:
            files = expand(path, files=outermost.files, ignore=outermost.ignore)
            for file in files:
                size_of(file)
            found += files
        except (OSError, ValueError) as error:
            message = problem(error, path)
            if isinstance(error, FileNotFoundError) and os.path.isdir(path):
                message += _hint([os.path.join(path, name) for name in os.listdir(path)], outermost)
            if failed is None:
                raise Failure(message) from None
            failed(message)
    if ignored:
        say(f"wirescan: left out {counted(ignored, 'file')} without frames (indexes and the like)")
    if not found and failed is None:
        raise Failure(f"none of the files given holds {outermost.name}")
    if hint := _hint(found, outermost):
        say(f"wirescan: these are read as {outermost.name}{hint}")
    if found.count("-") > 1:
        raise Failure("standard input (-) can be read once only")
    return found


def _hint(files: Iterable[str], format: Format) -> str:
    """What files hold that are named as those of another format are, and none as those of this one; or nothing."""
    files = [os.path.basename(name) for name in files]
    named = [one.name for one in formats().values() if one.files and any(re.search(one.files, name) for name in files)]
    return f"; by their names they may hold {' or '.join(named)} (--format)" if (
        named and format.name not in named) else ""


def total_size(files: Iterable[str]) -> int | None:
    """Bytes in all files together; None where one is standard input."""
    files = list(files)
    return None if "-" in files else sum(size_of(path) for path in files)


def tail_of(last: FrameTable, path: str) -> tuple[str, bool]:
    """How a file ends, in one line ("": with a whole frame, or in zeros), and whether that is damage: a cut frame is
    what a broker leaves at the end of the newest segment when it dies, but not where no frame comes before it.

    last: the last table of the file's outermost frames.
    """
    end = ENDS.get(Fault(last.stop.fault))
    if end is None:
        return "", False
    at = last.origins[0] + last.stop.offset
    alone = ", with no frame before it" if at == 0 else ""
    return f"tail: {counted(len(last.tail), 'byte')}, {end} at byte {at:,} of {name_of(path)}{alone}", at == 0


def problem(error: BaseException, path: str | None = None) -> str:
    """An error of the system in one line for people."""
    if isinstance(error, OSError) and error.strerror:
        path = path or (os.fsdecode(error.filename) if error.filename else None)
        return f"{name_of(path)}: {error.strerror.lower()}" if path else error.strerror.lower()
    return name_of(" ".join(str(error).split())) or type(error).__name__


def listed(value: str | None, known: Iterable[str]) -> list[str] | None:
    """A comma-separated option as a list of names, each of them known."""
    if value is None:
        return None
    names, known = [name.strip() for name in value.split(",") if name.strip()], list(known)
    for name in names:
        if name not in known:
            raise click.UsageError(f"there is no column {name!r}; there are {', '.join(known)}")
    if not names:
        raise click.UsageError("--columns needs a name at least")
    if len(set(names)) < len(names):
        raise click.UsageError("--columns names a column twice")
    return names
