"""What the commands print and write: JSON lines, messages, colours and complete files.

`wirescan.frames.value_text` makes values and bytes safe to print.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, BinaryIO

import click

from wirescan.files.object_store import URL, redact_url
from wirescan.frames.escape import make_visible
from wirescan.frames.value_text import escape_text

# Made once: making one takes as long as a row.
_JSON = json.JSONEncoder(separators=(",", ":"))
_JSON_TEXT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
FILE_MODE = 0o666  # of a new file, before the umask is applied


def name_path(path: str) -> str:
    """Return a path or URL for output; "-" becomes "(standard input)".

    A URL is without its credentials and options.
    """
    if path == "-":
        return "(standard input)"
    return redact_url(path) if URL.match(path) else path


def format_path(path: str) -> str:
    """Return what `name_path` returns, as safe text."""
    return escape_text(name_path(path))


def dump_json(value: Any) -> str:
    """Return a value as one line of JSON in ASCII."""
    return _JSON.encode(value)


def dump_text(value: Any) -> str:
    """Return a value as one line of JSON in Unicode. `make_visible` makes it safe to print."""
    return _JSON_TEXT.encode(value)


def colour(text: str, **style: Any) -> str:
    """Return text with a click style, if standard output is a terminal and NO_COLOR is not set."""
    is_terminal = os.environ.get("TERM") != "dumb" and sys.stdout.isatty()
    wants_colour = is_terminal and not os.environ.get("NO_COLOR")
    return click.style(text, **style) if wants_colour else text


def print_message(message: str) -> None:
    """Print a message for the user as one line on standard error.

    An unwritable standard error is ignored: the exit code carries the result too.
    """
    with suppress(OSError):
        click.echo(make_visible(message), err=True)


@contextmanager
def open_output(path: str | None, *, binary: bool = False) -> Iterator[BinaryIO]:
    """Open standard output, or a file that gets its name only when it is complete.

    A path that exists and is not a regular file, such as a device or a named pipe, is opened for
    writing and never replaced.

    Args:
        path: where data goes; None or "-" is standard output.
        binary: refuse a terminal.

    Raises:
        OSError: with `path`, never with the name of the incomplete file.
        click.UsageError: if binary data would go to a terminal.
    """
    if path is None or path == "-":
        _refuse_terminal(sys.stdout, binary=binary)
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    given_path = path
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            _refuse_terminal(file, binary=binary)
            yield file
        return
    with _name_path_in_errors(given_path):
        handle, temporary = tempfile.mkstemp(
            dir=os.path.dirname(path), prefix="." + os.path.basename(path) + "."
        )
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        with _name_path_in_errors(given_path):
            os.chmod(temporary, FILE_MODE & ~_read_umask())
            os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def _name_path_in_errors(path: str) -> Iterator[None]:
    """Replace the file name in every OSError by `path`."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def _refuse_terminal(stream: IO[Any], *, binary: bool) -> None:
    """Raise click.UsageError if binary data would go to a terminal."""
    if binary and stream.isatty():
        raise click.UsageError("binary output does not go to a terminal; use -o FILE, or a pipe")


def _read_umask() -> int:
    """Return the process's umask, which can be read only by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
