"""The face of the room: `scan`, and its entry in the catalogue."""
from netstrings.scan import NETSTRING, scan_netstrings
from wirescan import Format, FrameTable, Limits, join, open, register
from wirescan.errors import apply, check_mode
from wirescan.table import Stop


def scan(source, *, errors="strict", check=True, limits=Limits()):
    """The netstrings in a source, as a table of dtype NETSTRING; place: text."""
    check_mode(errors)
    tables = []
    for buffer in open(source):
        rows, bad, fault, offset = scan_netstrings(buffer, check, errors != "strict", limits)
        tables.append(apply(FrameTable((buffer,), rows, (Stop(fault, offset),), NETSTRINGS), errors, bad))
    return join(tables)


NETSTRINGS = Format("netstrings", "byte strings with their size in decimal", NETSTRING, scan, scan=scan_netstrings)
register(NETSTRINGS)
