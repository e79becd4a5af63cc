"""Bytes, names and numbers as text that is safe to print, and as JSON that loses nothing.

What comes from a file may be meant to harm: no control character, and nothing that turns the direction of the
text, reaches a terminal as it is. In JSON every byte string can be told and turned back:

    utf8      text where it is valid UTF-8, else {"base64": "..."}      (the default)
    base64, hex, escape     text in that notation, always
"""
from __future__ import annotations

import binascii
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, BinaryIO, Literal

import click
import numpy as np

from wirescan.core.fault import Fault

ENCODINGS = ("utf8", "base64", "hex", "escape")
NAMED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
ESCAPED = [NAMED.get(chr(b)) or (chr(b) if 32 <= b < 127 else f"\\x{b:02x}") for b in range(256)]


def escaped(data: Any) -> str:
    """Bytes as printable ASCII: \\n, \\r, \\t, \\\\ and \\xNN; Python's unicode_escape turns it back."""
    return "".join([ESCAPED[byte] for byte in bytes(data)])


def printable(text: str) -> str:
    """Text with every character escaped that a terminal would not simply print; bytes of a file name that are
    not text (surrogate escapes) as \\xNN."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(_character(c) for c in text)


def name_of(path: str) -> str:
    """A file name as it can be shown."""
    return "(standard input)" if path == "-" else printable(path)


def shown(data: Any, encoding: str = "utf8") -> str:
    """Bytes as text for people."""
    if encoding != "utf8":
        return str(encode(data, encoding))
    return printable(bytes(data).decode("utf-8", "surrogateescape"))


def encode(data: Any, encoding: str) -> Any:
    """Bytes as what JSON holds for them."""
    data = bytes(data)
    if encoding == "hex":
        return data.hex()
    if encoding == "escape":
        return escaped(data)
    if encoding == "utf8":
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": _base64(data)}
    return _base64(data)


def time_of(value: int, unit: Literal["ms", "ns"] = "ms") -> str:
    """Milliseconds, or nanoseconds, since 1970 as UTC in ISO 8601."""
    return str(np.datetime_as_string(np.datetime64(value, unit), timezone="UTC"))


def bytes_of(count: float) -> str:
    """A number of bytes for people: 8.2 MiB."""
    units = ["bytes", "KiB", "MiB", "GiB"]
    while abs(count) >= 1024 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{number_of(count) if units[0] == 'bytes' else f'{count:,.1f}'} {units[0]}"


def number_of(count: float) -> str:
    """A number for people: 12,345 or 12.3 or 0.0123."""
    return f"{count:,.0f}" if abs(count) >= 100 or count == int(count) else f"{count:.3g}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """1 file, 2 files; 1 batch, 2 batches."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def fault_name(number: int) -> str:
    return Fault(number).name


def dump(value: Any) -> str:
    """One line of JSON in ASCII."""
    return json.dumps(value, separators=(",", ":"))


def colour(text: str, error: bool = False, **style: Any) -> str:
    """Text in a colour, where it goes to a terminal and NO_COLOR is not set."""
    stream = sys.stderr if error else sys.stdout
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()
    return click.style(text, **style) if wanted else text


def say(message: str) -> None:
    """A message to the user, on standard error, if that takes any: exit codes tell the same."""
    with suppress(OSError):
        click.echo(message, err=True)


@contextmanager
def opened_output(path: str | None, binary: bool = False) -> Iterator[BinaryIO]:
    """Where data goes: standard output, or a file that appears under its name when it is complete.

    What is there and is no regular file, such as a device or a named pipe, is written to as it is, and never
    replaced.
    binary: refuse a terminal. Raises OSError, which names the path and not the file that is not complete yet.
    """
    if path is None or path == "-":
        _refuse_terminal(sys.stdout, binary)
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    named, path = path, os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:
            _refuse_terminal(file, binary)
            yield file
        return
    with _naming(named):
        handle, made = tempfile.mkstemp(dir=os.path.dirname(path), prefix="." + os.path.basename(path) + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        with _naming(named):
            os.chmod(made, 0o666 & ~_umask())
            os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise


@contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def _refuse_terminal(stream: IO[Any], binary: bool) -> None:
    if binary and stream.isatty():
        raise click.UsageError("binary output does not go to a terminal; use -o FILE, or a pipe")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _character(c: str) -> str:
    if c == "\\" or c in NAMED:
        return NAMED[c]
    if c.isprintable():
        return c
    code = ord(c)
    if 0xDC80 <= code <= 0xDCFF:                        # a byte that was not text
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()
