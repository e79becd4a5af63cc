"""Lines of text in files and pipes, in blocks, with their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from wirescan.cli.exit_codes import Damage
from wirescan.cli.output import format_path
from wirescan.frames.limits import Limits

LONGEST_LINE = Limits().frame  # bytes


def iter_line_blocks(path: str, pieces: Iterable[memoryview]) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the lines that end in each piece of a file, as lists of (number, line).

    The first number is 1. Lines have no line end: neither LF nor CR LF.

    Args:
        path: the file, for messages.
        pieces: its bytes.

    Raises:
        Damage: for a line of more than LONGEST_LINE bytes.
    """
    pending = b""
    number = 1
    for piece in chain(pieces, [b"\n"]):
        *complete, pending = (pending + bytes(piece)).split(b"\n")
        if len(pending) > LONGEST_LINE:
            raise Damage(
                f"{format_path(path)}: line {number + len(complete):,} has more than "
                f"{LONGEST_LINE:,} bytes"
            )
        yield [(number + i, line.removesuffix(b"\r")) for i, line in enumerate(complete)]
        number += len(complete)
