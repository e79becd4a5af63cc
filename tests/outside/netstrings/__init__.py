"""The public names of the package: `scan`, `Content`, and the registered format.

The entry point in setup.py names this module. So wirescan imports it when it looks for a format
that it does not know.
"""

from enum import IntEnum

from netstrings.scan import NETSTRING, scan_netstrings
from wirescan import FaultMeaning, Format, FrameTable, Limits, join, open, register
from wirescan.frames.errors import check_mode, enforce_mode
from wirescan.frames.summary_columns import SummaryColumns
from wirescan.frames.table import Stop

FAULTS = {
    64: FaultMeaning("LEADING_ZERO", "the size begins with a zero"),
    192: FaultMeaning("LONG_SIZE", "the size has more than 9 digits"),
}


class Content(IntEnum):
    """The numbers of the column `content`."""

    NOTHING = 0
    ASCII = 1
    BINARY = 2


def scan(source, *, errors="strict", check=True, limits=Limits()):
    """Return the netstrings in a source as a table of dtype NETSTRING, with the place `text`."""
    check_mode(errors)
    tables = []
    for buffer in open(source):
        rows, bad, fault, position = scan_netstrings(
            buffer, check=check, resync=errors != "strict", limits=limits
        )
        table = FrameTable((buffer,), rows, (Stop(fault, position),), NETSTRINGS)
        tables.append(enforce_mode(table, errors, bad))
    return join(tables)


NETSTRINGS = Format(
    "netstrings",
    "byte strings with their size in decimal",
    NETSTRING,
    scan,
    scan=scan_netstrings,
    shown=("_start", "size", "text"),
    enums={"content": Content},
    faults=FAULTS,
    summary=SummaryColumns(values=("body",)),
)
register(NETSTRINGS)
