"""How files end: cut tails and empty files, for messages at the end of a command."""

from __future__ import annotations

from wirescan.cli.output import format_path, print_message
from wirescan.core.fault import Fault
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import format_count

# Tails to report.
TAIL_NAMES: dict[int, str] = {Fault.SHORT: "cut frame", Fault.FILLER: "overflow filler"}
NAMED_FILES = 5  # empty files that a message names


def describe_tail(last: FrameTable, path: str) -> str:
    """Return how a file ends, as one line; an empty string for an ordinary end.

    An end after a whole frame or in zeros is ordinary.

    Args:
        last: the last table of the file's outermost frames.
        path: the path of the file, for the message.
    """
    name = TAIL_NAMES.get(last.stop.fault)
    if name is None:
        return ""
    at = find_end(last)
    alone = ", with no frame before it" if at == 0 else ""
    count = format_count(len(last.tail), "byte")
    return f"tail: {count}, {name} at byte {at} of {format_path(path)}{alone}"


def find_end(last: FrameTable) -> int:
    """Return the byte after a file's last frame; `last` is as for `describe_tail`."""
    return last.origins[0] + last.stop.offset


def is_empty(last: FrameTable) -> bool:
    """Return whether a file holds no byte other than zero; `last` is as for `describe_tail`."""
    return find_end(last) == 0 and (not len(last.tail) or last.stop.fault == Fault.ZEROS)


class FileEnds:
    """Collects how files end, for messages at the end of a command.

    Attributes:
        is_damaged: whether an end is damage. A cut frame is not: a broker that dies leaves one at
            the end of the newest segment. It is damage if no frame precedes it.
    """

    def __init__(self) -> None:
        self.is_damaged = False
        self._tails: list[str] = []
        self._empty: list[str] = []

    def add(self, last: FrameTable, path: str) -> None:
        """Note how a file ends; the arguments are those of `describe_tail`."""
        if tail := describe_tail(last, path):
            self._tails.append(tail)
            self.is_damaged |= find_end(last) == 0
        if is_empty(last):
            self._empty.append(format_path(path))

    def report(self) -> None:
        """Print the empty files, and the tails that are not ordinary ends, to standard error."""
        if self._empty:
            names = ", ".join(self._empty[:NAMED_FILES])
            unnamed = len(self._empty) - NAMED_FILES
            unnamed_files = f" and {format_count(unnamed, 'more file')}" if unnamed > 0 else ""
            print_message(f"wirescan: empty: {names}{unnamed_files}")
        for tail in self._tails:
            print_message(f"wirescan: {tail}")
