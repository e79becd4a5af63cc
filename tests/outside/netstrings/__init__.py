"""The public names of the package: `scan`, `Content`, and the registered format.

The entry point in setup.py names this module. So wirescan imports it when it looks for a format
that it does not know.
"""

from enum import IntEnum

from netstrings.scan import NETSTRING, scan_netstrings, scan_streams
from wirescan import Column, Display, FaultMeaning, Format, FrameTable, Limits, Parser, register
from wirescan.files.whole_source import scan_carried, scan_source
from wirescan.frames.errors import resolve_mode
from wirescan.frames.summary_columns import SummaryColumns

FAULTS = {
    64: FaultMeaning("LEADING_ZERO", "the size begins with a zero"),
    192: FaultMeaning("LONG_SIZE", "the size has more than 9 digits"),
}


class Content(IntEnum):
    """The numbers of the column `content`."""

    NOTHING = 0
    ASCII = 1
    BINARY = 2


def scan(source, *, errors=None, check=True, limits=Limits()):
    """Return the netstrings in a source as a table of dtype NETSTRING, with the place `text`.

    A table whose rows have a place `records` is a source too: netstrings may be in other messages.
    """
    errors = resolve_mode(errors, source, limits)
    if isinstance(source, FrameTable):
        return scan_carried(source, NETSTRINGS, errors=errors, check=check, limits=limits)
    return scan_source(source, NETSTRINGS, errors=errors, check=check, limits=limits)


NETSTRINGS = Format(
    "netstrings",
    "byte strings with their size in decimal",
    NETSTRING,
    scan,
    columns={"content": Column(names=Content)},
    parser=Parser(scan=scan_netstrings, spans=scan_streams, writes_columns=True),
    display=Display(shown=("_start", "size", "text"), summary=SummaryColumns(values=("body",))),
    faults=FAULTS,
)
register(NETSTRINGS)
