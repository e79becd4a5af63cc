"""How errors become messages and exit codes."""

from __future__ import annotations

import os
from typing import Any

import click

from wirescan.cli.output import format_path, print_message
from wirescan.frames.escape import make_visible

# Exit codes of the commands.
DAMAGE = 1
FAILED = 2
INTERRUPTED = 130
CLOSED_PIPE = 141


class Failure(click.ClickException):
    """The command cannot be done: one line on standard error, and exit code 2."""

    exit_code = FAILED

    def show(self, file: Any = None) -> None:
        """Print the message."""
        print_message(f"wirescan: {self.message}")


class Damage(Failure):
    """Damage that ends the command: one line on standard error, and exit code 1."""

    exit_code = DAMAGE


def describe_error(error: BaseException, path: str | None = None) -> str:
    """Return an error as one line for people; `path` replaces the file name of an OSError."""
    if isinstance(error, OSError) and error.strerror:
        path = path or (os.fsdecode(error.filename) if error.filename else None)
        reason = error.strerror[:1].lower() + error.strerror[1:]
        return f"{format_path(path)}: {reason}" if path else reason
    return make_visible(" ".join(str(error).split())) or type(error).__name__
