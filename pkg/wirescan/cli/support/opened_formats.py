"""The formats that `wirescan verify` opens inside frames, and those that it counts as records."""

from __future__ import annotations

from wirescan.cli.support.tally import find_counted_format
from wirescan.frames.format import Format
from wirescan.frames.registry import format_of, formats


class OpenedFormats:
    """Lists the formats to open inside the frames of an outermost format.

    Args:
        format: the format of the files that the user requested. It may be of another protocol
            than the frames around it.
        deep: False: nothing is opened.
    """

    def __init__(self, format: Format, *, deep: bool):
        self._outermost = format.outermost
        self._deep = deep
        self._requested: set[str] = set()  # the format and those around it, but the outermost
        while format.within is not None:
            self._requested.add(format.name)
            format = format_of(format.within)

    def list_inside(self, outer: Format) -> list[Format]:
        """Return the formats to open in frames of `outer`.

        These are its children, and the requested format, which may be of another protocol.
        """
        if not self._deep:
            return []
        return [
            format
            for format in formats().values()
            if not format.display.repeats
            and (
                format.read in outer.children.values()
                or format.within == outer.name
                and format.name in self._requested
            )
        ]

    def list_counted(self) -> list[Format]:
        """Return the formats inside the outermost frames that count as records."""
        lists = [self._outermost.children[name] for name in self._outermost.lists]
        counted = find_counted_format(self._outermost)
        return [
            format
            for format in self.list_inside(self._outermost)
            if format.read not in lists and counted in (None, format)
        ]
