"""`wirescan verify`: is anything damaged, and where?"""
from __future__ import annotations

from typing import Any

import click
import numpy as np

from wirescan.catalog import Format, format_of, formats
from wirescan.cli.common import (
    DAMAGE, FAILED, Failure, check_option, collect, format_option, paths_argument, problem, total_size)
from wirescan.cli.offsets import LOGS, Offsets, first_offsets, learn
from wirescan.cli.output import colour, counted, dump, fault_name, name_of, say
from wirescan.cli.pieces import chunks
from wirescan.cli.progress import Progress
from wirescan.cli.rows import names_of, outer_of
from wirescan.core.fault import Fault
from wirescan.errors import MEANING, NEAR
from wirescan.pieces import opened, outermost
from wirescan.table import FrameTable

SHOWN = 20                      # gaps in offsets told one by one in the text for a file
COVERED = ("thrift.plain",)     # formats of which another one, of the same frames, tells every fault
ORDER = "OFFSET_ORDER"
ORDER_MEANING = "the offset is not above that of the frame before"


@click.command(short_help="Is anything damaged, and where?")
@paths_argument
@format_option("kafka.batches")
@check_option
@click.option("--deep/--shallow", default=True,
              help="Inflate and read what is inside the frames too (the default), or the frames only.")
@click.option("--json", "as_json", is_flag=True,
              help="JSON lines: each finding, a line for each file, a summary.")
@click.pass_context
def verify(context: click.Context, paths: tuple[str, ...], format_name: Format, check: bool, deep: bool,
           as_json: bool) -> None:
    """Is anything damaged? Reads everything, and tells every fault and every gap.

    \b
    Examples:
      wirescan verify /var/lib/kafka/orders-0
      wirescan verify --shallow *.log && echo clean
      wirescan verify orders-0 --json | jq 'select(.kind == "damage")'

    Damage: a frame with a fault, bytes that are no frame, a cut tail, offsets out of order. Information:
    missing offsets (compaction and aborted producers leave such gaps) and a tail of zeros (a preallocated
    segment).

    A cut tail is a frame that the end of the file cuts. At the end of the newest segment that is normal: a
    broker that was stopped there cuts it off. So every command tells of it, and to this one alone it is
    damage. A file that holds nothing but such a tail is damage to all of them.

    Exit codes: 0 clean, 1 damage found, 2 a file cannot be read.
    """
    failed = False

    def fail(message: str) -> None:
        nonlocal failed
        failed = True
        say(f"wirescan: {message}")

    files = collect(paths, format_name, fail)
    report = Report(format_name, check, deep, as_json)
    with Progress(total_size(files), "verifying") as progress:
        for path in files:
            try:
                report.file(path, progress)
            except BrokenPipeError:
                raise
            except (OSError, EOFError) as error:
                fail(problem(error, path))
    if files:
        report.end()
    if failed:
        context.exit(FAILED)
    context.exit(DAMAGE if report.damage else 0)


class Report:
    """What was found in the files verified so far; `damage` counts the findings that are damage."""

    def __init__(self, format: Format, check: bool, deep: bool, as_json: bool):
        self._outermost, self._asked = format.outermost, set[str]()
        while format.within is not None:
            self._asked.add(format.name)
            format = format_of(format.within)
        self._check, self._deep, self._json = check, deep, as_json
        self._offsets = Offsets()
        self._count = dict.fromkeys(("files", "bytes", "frames", "records", "damage", "gaps"), 0)

    @property
    def damage(self) -> int:
        return self._count["damage"]

    def file(self, path: str, progress: Progress) -> None:
        """Verify one file and print what is found. Raises OSError."""
        self._path, self._gaps = path, 0
        before = dict(self._count)
        self._offsets.turn(path)
        for piece in outermost(chunks(path, progress), self._outermost, errors="mark", check=self._check):
            self._piece(piece)
        self._tail(piece)
        self._count["files"] += 1
        here = {name: self._count[name] - before[name] for name in self._count if name != "files"}
        if self._json:
            _print({"kind": "file", "file": path, **here})
        elif self._gaps > SHOWN:
            _print(f"  and {counted(self._gaps - SHOWN, 'more gap')} in the offsets (--json tells all)")

    def end(self) -> None:
        """Print the summary."""
        count = self._count
        clean = not count["damage"]
        if self._json:
            _print({"kind": "summary", "clean": clean, **count})
            return
        read = (f"{counted(count['files'], 'file')}, {counted(count['frames'], 'frame')}, "
                + (f"{counted(count['records'], 'record')}, " if self._deep else "")
                + counted(count["bytes"], "byte"))
        gaps = f"; {counted(count['gaps'], 'gap')} in the offsets" if count["gaps"] else ""
        _print(f"{read}: " + (colour("clean", fg="green", bold=True) if clean else
                              colour(f"{counted(count['damage'], 'finding')} of damage", fg="red",
                                     bold=True)) + gaps)

    def _piece(self, table: FrameTable) -> None:
        starts = table.positions
        self._count["frames"] += int(np.count_nonzero(~table.bad))
        for i in np.flatnonzero(table.bad).tolist():
            self._fault(int(starts[i]), int(table["size"][i]), int(table["fault"][i]), table.frame(i))
        ordered = table.name in LOGS
        first = first_offsets(table) if ordered else np.empty(0)
        pairs = [self._outermost.children[name] for name in self._outermost.lists]
        for format in self._within(self._outermost):
            at = 0
            for inner in opened(table, format, errors="mark", check=self._check):
                self._count["records"] += 0 if format.read in pairs else int(np.count_nonzero(~inner.bad))
                self._inside(inner)
                if ordered:
                    learn(first, inner, at)
                at += len(outer_of(inner))
        if ordered:
            self._order(table, first)

    def _within(self, outer: Format) -> list[Format]:
        """What lies in frames of a format: all that it knows of, and what was asked for, perhaps of another room."""
        return [one for one in formats().values() if one.name not in COVERED and (
                one.read in outer.children.values() or one.within == outer.name and one.name in self._asked)
                ] if self._deep else []

    def _inside(self, inner: FrameTable) -> None:
        """Tell the bad rows, unless the frame around them is what is bad, and open the good ones in turn."""
        bad = np.flatnonzero(inner.bad)
        bad = bad[outer_of(inner)["fault"][inner["parent"][bad]] == 0]
        if "enclosing" in names_of(inner.dtype):            # those around one that has no kind have its fault
            bad = bad[inner["kind"][bad] == 0]
        if len(bad):
            for i, at, inflated in zip(bad.tolist(), inner.positions[bad].tolist(), _inflated(inner, bad)):
                self._fault(at, int(inner["size"][i]), int(inner["fault"][i]), inner.frame(i), inner.name,
                            inflated)
        for format in self._within(inner.format):
            self._inside(format.read(inner, errors="mark", check=self._check))

    def _order(self, table: FrameTable, first: np.ndarray) -> None:
        starts = table.positions
        gaps, disorder = self._offsets.follow(table, first)
        for row, before in disorder:
            offset = int(table[LOGS[table.name][0]][row])
            self._found("damage", int(starts[row]), int(table["size"][row]), ORDER,
                        f"{ORDER_MEANING} ({offset:,} after {before:,})", table.frame(row))
        for gap in gaps:
            self._gaps += 1
            self._count["gaps"] += 1
            missing = gap.last - gap.first + 1
            at = int(starts[gap.row])
            if self._json:
                _print({"kind": "gap", "file": self._path, "offset": at, "first": gap.first, "last": gap.last,
                        "missing": missing})
            elif self._gaps <= SHOWN:
                lost = f"{counted(missing, 'offset')} missing, {gap.first:,} to {gap.last:,}"
                _print(f"{name_of(self._path)}: gap before byte {at:,}: {lost}")

    def _tail(self, table: FrameTable) -> None:
        stop, left = table.stop, len(table.tail)
        at = table.origins[0] + stop.offset
        self._count["bytes"] += at + left
        if stop.fault == Fault.ZEROS:
            self._found("info", at, left, fault_name(stop.fault), MEANING[Fault.ZEROS], b"")
        elif stop.fault:
            kind = "info" if stop.fault == Fault.FILLER and at else "damage"
            self._found(kind, at, left, fault_name(stop.fault), MEANING[Fault(stop.fault)],
                        table.tail)

    def _fault(self, at: int, size: int, fault: int, near: Any, inside: str | None = None,
               inflated: int | None = None) -> None:
        self._found("damage", at, size, fault_name(fault), MEANING[Fault(fault)], near, inside, inflated)

    def _found(self, kind: str, at: int, size: int, fault: str, meaning: str, near: Any,
               inside: str | None = None, inflated: int | None = None) -> None:
        self._count["damage"] += kind == "damage"
        near = bytes(near[:NEAR]).hex(" ")
        if self._json:
            line = {"kind": kind, "file": self._path, "offset": at, "size": size, "fault": fault,
                    "meaning": meaning, "near": near, "inside": inside, "inflated_offset": inflated}
            _print({name: value for name, value in line.items() if value is not None})
            return
        where = f"{name_of(self._path)}: byte {at:,}"
        where += f", {inside} in it" if inside else ""
        where += f", inflated byte {inflated:,}" if inflated is not None else ""
        label = colour(fault, fg="red" if kind == "damage" else None, bold=True)
        _print(f"{where}, {counted(size, 'byte')}: {label}, {meaning}" + (f"\n  near {near}" if near else ""))


def _inflated(inner: FrameTable, rows: np.ndarray) -> list[int | None]:
    """Where rows begin in the inflated payload of their outermost frame; None where nothing is inflated."""
    records, at = inner, rows
    while outer_of(records).outer is not None:
        records, at = outer_of(records), records["parent"][at]
    parents = np.ascontiguousarray(records["parent"])
    firsts = np.searchsorted(parents, parents[at])
    places = (inner["start"][rows] - records["start"][firsts]).tolist()
    inflated = (records["buffer"][at] >= len(outer_of(records).buffers)).tolist()
    return [place if one else None for place, one in zip(places, inflated)]


def _print(line: str | dict[str, Any]) -> None:
    try:
        click.echo(dump(line) if isinstance(line, dict) else line)
    except BrokenPipeError:
        raise
    except OSError as error:                            # of the output, not of the file that is read
        raise Failure(problem(error)) from None
