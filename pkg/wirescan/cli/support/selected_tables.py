"""The tables of frames that a command prints: files, a few frames at a time, and a selection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wirescan.cli.file_ends import FileEnds
from wirescan.cli.input import is_pipe, read_part
from wirescan.cli.output import print_message
from wirescan.cli.progress import Progress
from wirescan.cli.support.bad_blocks import BadBlocks
from wirescan.cli.support.row_choice import RowChooser, plan_parts
from wirescan.cli.support.selection import Selection
from wirescan.frames.errors import FrameError, make_frame_error
from wirescan.frames.fault_names import FaultMeaning
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.lookup import find_bad_frames
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import format_count
from wirescan.reading.allowance import Allowance
from wirescan.reading.captures import is_of_captures
from wirescan.reading.chunked import scan_outermost
from wirescan.reading.nested_groups import open_nested


class SelectedTables:
    """Iterates over the tables of frames in files, as (table, path).

    Damage in the lists of a row, such as its headers, counts even if they are not shown. So does
    damage in frames that were read and are not selected.

    Args:
        files: what to read.
        format: the format of the frames.
        errors: "strict" raises FrameError, "mark" keeps bad frames, "skip" drops them.
        selection: which frames to iterate over.
        progress: called with the bytes read.
        limits: for reading.
        check: verify checksums.
        flush: called when what was iterated over should be shown, because more may not come soon.

    Attributes:
        damage: whether damage was found so far.
    """

    def __init__(
        self,
        files: Sequence[str],
        format: Format,
        errors: str,
        selection: Selection,
        progress: Progress,
        limits: Limits,
        *,
        check: bool,
        flush: Callable[[], None],
    ):
        self._options: dict[str, Any] = {"errors": "mark", "check": check, "limits": limits}
        self._files = files
        self._format = format
        self._errors = errors
        self._selection = selection
        self._progress = progress
        self._flush = flush
        self._seen = 0
        self._has_frames = False  # also those that are not selected
        self._is_complete = False  # all files were read
        self.damage = False
        self._faults: Counter[tuple[int, FaultMeaning]] = Counter()
        self._ends = FileEnds()
        self._bad_blocks = BadBlocks()

    def __iter__(self) -> Iterator[tuple[FrameTable, str]]:
        selection = self._selection
        limits = self._options["limits"]
        plan = plan_parts(
            selection, self._files, self._errors, limits, check=self._options["check"]
        )
        if plan.chooser.is_done:
            return
        for path, start, stop in plan.parts:
            allowance = Allowance(limits)
            options = {"allowance": allowance, **self._options}
            chunks = read_part(path, start, stop, self._progress, allowance)
            tables = scan_outermost(
                chunks,
                self._format,
                offset=start,
                source="(standard input)" if path == "-" else path,
                block_errors="strict" if self._errors == "strict" else "mark",
                inspect_blocks=self._bad_blocks.add,
                **options,
            )
            for frames in tables:
                self._has_frames |= len(frames) > 0
                self.damage |= self._bad_blocks.is_damaged
                pruned = selection.prune(frames, path)
                max_rows = plan.chooser.max_rows
                for table in open_nested(pruned, self._format, max_rows=max_rows, **options):
                    yield from self._apply_mode(table, path, plan.chooser)
                    if plan.chooser.is_done:
                        return
                if path == "-" or is_pipe(path):
                    self._flush()
            self._ends.add(frames, path)
            self.damage |= self._ends.is_damaged
        self._is_complete = True

    def report(self) -> None:
        """Print empty files, captures without frames, cut tails and bad frames."""
        self._ends.report()
        if self._is_complete and not self._has_frames and is_of_captures(self._format):
            print_message(
                f"wirescan: no {self._format.name} in the captures: `wirescan detect` lists their "
                "connections"
            )
        self._bad_blocks.report(dropped=self._errors == "skip")
        for (_, fault), count in sorted(self._faults.items()):
            dropped = " (dropped)" if self._errors == "skip" else ""
            frames = format_count(count, "bad frame")
            print_message(f"wirescan: {frames}{dropped}: {fault.name}, {fault.meaning}")

    def _apply_mode(
        self, table: FrameTable, path: str, chooser: RowChooser
    ) -> Iterator[tuple[FrameTable, str]]:
        """Yield what the mode and the selection leave of a table, and count its damage."""
        chosen = chooser.choose(table, path)
        selected = table if len(chosen) == len(table) else table[chosen]
        if chooser.is_done and self._errors != "skip":
            table = table[: int(chosen[-1]) + 1 if len(chosen) else 0]
        damaged = find_bad_frames(table)
        if damaged and self._errors == "strict":
            bad, rows = min(damaged, key=lambda item: int(item[1][0]))
            first = int(rows[0])
            before = chosen[chosen < first]
            if len(before):
                yield table[before], path
            raise _make_error(bad, self._seen + first, path)
        for bad, _ in damaged:
            self.damage = True
            for number, count in Counter(bad["fault"].tolist()).items():
                self._faults[number, bad.describe_fault(number)] += count
        self._seen += len(table)
        if len(selected):
            yield selected, path


def _make_error(table: FrameTable, row: int, path: str) -> FrameError:
    """Return the error for damage in a scanned row.

    Args:
        table: its first row is the damage: the scanned row, or a part of it.
        row: the number of the scanned row.
        path: the file.
    """
    i = 0
    while table.outer is not None and table.outer["fault"][table["parent"][i]]:
        # The enclosing frame is what is bad.
        i = int(table["parent"][i])
        table = table.outer
    error = make_frame_error(table, i)
    error.row = row
    error.source = "(standard input)" if path == "-" else path
    return error
