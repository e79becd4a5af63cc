"""Bad blocks of captures, for commands that read the frames in their packets."""

from __future__ import annotations

from collections import Counter

from wirescan.cli.output import print_message
from wirescan.frames.fault_names import FaultMeaning
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import format_count


class BadBlocks:
    """Counts the bad blocks of captures, which are in no frame of their packets."""

    def __init__(self) -> None:
        self._faults: Counter[tuple[int, FaultMeaning]] = Counter()

    @property
    def is_damaged(self) -> bool:
        """Whether a block was bad."""
        return bool(self._faults)

    def add(self, blocks: FrameTable) -> None:
        """Count the bad rows of a table of pcap.blocks."""
        for number, count in Counter(blocks["fault"][blocks.bad].tolist()).items():
            self._faults[number, blocks.describe_fault(number)] += count

    def report(self, *, dropped: bool = False) -> None:
        """Print the faults to standard error. dropped: the mode drops bad blocks."""
        suffix = " (dropped)" if dropped else ""
        for (_, fault), count in sorted(self._faults.items()):
            blocks = f"{format_count(count, 'bad block')} of the capture{suffix}"
            print_message(f"wirescan: {blocks}: {fault.name}, {fault.meaning}")
