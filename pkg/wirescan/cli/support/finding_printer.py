"""Prints what `wirescan verify` finds, as text or JSON lines, and counts it: `FindingPrinter`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias

import click

from wirescan.cli.exit_codes import Failure, describe_error
from wirescan.cli.output import colour, dump_json, format_path, name_path
from wirescan.cli.support.checked_frames import CheckedFrames
from wirescan.cli.support.losses import LossTotals, Lost, describe_loss
from wirescan.frames.errors import NEAR
from wirescan.frames.value_text import format_count

Line: TypeAlias = str | dict[str, Any]

SHOWN_GAPS = 20  # gaps in the offsets that the text lists for a file


class FileFinding(NamedTuple):
    """Damage at a place of a file, or information about it.

    path: the file.
    fault: its name.
    meaning: what it means.
    at: byte position in the file.
    size: bytes that are affected.
    near: the bytes from `at` on; the first NEAR are printed.
    kind: "damage" or "info".
    inside: the format of a bad frame inside the frame at `at`.
    inflated: its byte position in the decompressed payload.
    lost: what is lost.
    """

    path: str
    fault: str
    meaning: str
    at: int = 0
    size: int = 0
    near: bytes | memoryview = b""
    kind: str = "damage"
    inside: str | None = None
    inflated: int | None = None
    lost: Lost | None = None

    @property
    def is_damage(self) -> bool:
        """Whether the finding is damage, and not information."""
        return self.kind == "damage"


class FileGap(NamedTuple):
    """Offsets first..last are missing before byte `at` of a file. lost: if damage explains it."""

    path: str
    at: int
    first: int
    last: int
    lost: Lost | None = None


@dataclass
class FileCounts:
    """What was verified. empty: the number of files that are empty or hold only zeros."""

    files: int = 0
    bytes: int = 0
    frames: int = 0
    records: int = 0
    empty: int = 0

    def subtract(self, before: FileCounts) -> FileCounts:
        """Return what was added to earlier counts."""
        return FileCounts(
            files=self.files - before.files,
            bytes=self.bytes - before.bytes,
            frames=self.frames - before.frames,
            records=self.records - before.records,
            empty=self.empty - before.empty,
        )


class FindingPrinter:
    """Prints findings and gaps, a line for each file, and a summary.

    Call `start_file` for each file, then `print_finding` and `print_gap`, then `end_file`.

    Args:
        write: takes each line: text, or with `as_json` a dict of JSON values.
        as_json: print JSON lines.

    Attributes:
        damage: the number of findings that are damage.
        gaps: the number of gaps.
    """

    def __init__(self, write: Callable[[Line], None], *, as_json: bool):
        self._write = write
        self._json = as_json
        self.damage = 0
        self.gaps = 0
        self._damage_before = 0  # `damage` before the file in progress
        self._gaps_before = 0

    def start_file(self) -> None:
        """Announce that the next findings and gaps are those of another file."""
        self._damage_before = self.damage
        self._gaps_before = self.gaps

    def print_finding(self, finding: FileFinding) -> None:
        """Print a finding."""
        self.damage += finding.is_damage
        self._write(_make_finding_json(finding) if self._json else _format_finding(finding))

    def print_gap(self, gap: FileGap) -> None:
        """Print a gap. The text has the first SHOWN_GAPS of a file, and those with losses."""
        self.gaps += 1
        if self._json:
            self._write(_make_gap_json(gap))
        elif self.gaps - self._gaps_before <= SHOWN_GAPS or gap.lost:
            self._write(_format_gap(gap))

    def end_file(self, path: str, counts: FileCounts) -> None:
        """Print the line of a file that was verified. counts: of this file."""
        gaps = self.gaps - self._gaps_before
        if self._json:
            numbers = _make_counts_json(counts, self.damage - self._damage_before, gaps)
            del numbers["files"]
            self._write({"kind": "file", "file": name_path(path), **numbers})
        elif gaps > SHOWN_GAPS:
            other_gaps = format_count(gaps - SHOWN_GAPS, "more gap")
            self._write(f"  and {other_gaps} in the offsets (--json lists all)")

    def print_summary(
        self,
        counts: FileCounts,
        losses: LossTotals,
        checked: CheckedFrames | None,
        *,
        has_records: bool,
    ) -> None:
        """Print the counts of all files, the verdict, and what is lost.

        Args:
            counts: of all files.
            losses: of all logs.
            checked: counts the selected rows; None if the user selected nothing.
            has_records: the text has the number of records.
        """
        if self._json:
            self._write(
                {
                    "kind": "summary",
                    "clean": not self.damage,
                    **_make_counts_json(counts, self.damage, self.gaps),
                    "lost_records": losses.records,
                    "lost_ranges": losses.ranges,
                    "bound": losses.bound,
                    **({} if checked is None else checked.to_json_fields()),
                }
            )
            return
        parts = [format_count(counts.files, "file"), format_count(counts.frames, "frame")]
        if has_records:
            parts.append(format_count(counts.records, "record"))
        parts.append(format_count(counts.bytes, "byte"))
        gaps = f"; {format_count(self.gaps, 'gap')} in the offsets" if self.gaps else ""
        self._write(f"{', '.join(parts)}: {self._choose_verdict(counts)}{gaps}")
        if checked is not None:
            self._write(str(checked))
        if losses.ranges:
            ranges = format_count(losses.ranges, "range")
            loss = describe_loss(losses.records, losses.bound)
            self._write(f"lost: {loss} in {ranges} of offsets")
        if losses.unknown:
            places = format_count(losses.unknown, "damaged place")
            self._write(f"lost: {places} at the end of a log, with an unknown number of records")

    def _choose_verdict(self, counts: FileCounts) -> str:
        """Return whether the files are clean, damaged or empty, as text."""
        if self.damage:
            text = f"{format_count(self.damage, 'finding')} of damage"
            return colour(text, fg="red", bold=True)
        if not counts.files:
            return "nothing was selected"
        if counts.empty == counts.files:
            return "empty"
        clean = colour("clean", fg="green", bold=True)
        if not counts.empty:
            return clean
        return f"{clean}, {format_count(counts.empty, 'file')} empty"


def _make_counts_json(counts: FileCounts, damage: int, gaps: int) -> dict[str, int]:
    """Return counts as fields for JSON."""
    fields = asdict(counts)
    empty = fields.pop("empty")
    return {**fields, "damage": damage, "gaps": gaps, "empty": empty}


def _make_finding_json(finding: FileFinding) -> dict[str, Any]:
    """Return a finding as a line for JSON. Fields that do not apply are missing."""
    line = {
        "kind": finding.kind,
        "file": name_path(finding.path),
        "offset": finding.at,
        "size": finding.size,
        "fault": finding.fault,
        "meaning": finding.meaning,
        "near": bytes(finding.near[:NEAR]).hex(" "),
        "inside": finding.inside,
        "inflated_offset": finding.inflated,
    }
    line |= finding.lost.to_json_fields() if finding.lost else {}
    return {name: value for name, value in line.items() if value is not None}


def _format_finding(finding: FileFinding) -> str:
    """Return a finding as text: a line, and one with the bytes near it."""
    at = finding.at
    has_position = bool(finding.size or at)
    digits = bytes(finding.near[:NEAR]).hex(" ")
    place = format_path(finding.path)
    place += f": byte {at}" if has_position else ""
    place += f", {finding.inside} in it" if finding.inside else ""
    place += f", decompressed byte {finding.inflated}" if finding.inflated is not None else ""
    place += f", {format_count(finding.size, 'byte')}" if has_position else ""
    label = colour(finding.fault, fg="red" if finding.is_damage else None, bold=True)
    loss = f"; {finding.lost}" if finding.lost else ""
    bytes_line = f"\n  near {digits}" if digits else ""
    return f"{place}: {label}, {finding.meaning}{loss}{bytes_line}"


def _make_gap_json(gap: FileGap) -> dict[str, Any]:
    """Return a gap as a line for JSON."""
    line = {
        "kind": "gap",
        "file": name_path(gap.path),
        "offset": gap.at,
        "first": gap.first,
        "last": gap.last,
        "missing": gap.last - gap.first + 1,
    }
    return line | (gap.lost.to_json_fields() if gap.lost else {})


def _format_gap(gap: FileGap) -> str:
    """Return a gap as a line of text."""
    missing = format_count(gap.last - gap.first + 1, "offset")
    loss = f"; {gap.lost}" if gap.lost else ""
    text = f"{missing} missing, {gap.first} to {gap.last}{loss}"
    return f"{format_path(gap.path)}: gap before byte {gap.at}: {text}"


def print_line(line: Line) -> None:
    """Print a line of text, or an object as a line of JSON.

    Raises Failure for an error of the output, so that it is not taken for one of the file that is
    read.
    """
    try:
        click.echo(dump_json(line) if isinstance(line, dict) else line)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(describe_error(error)) from None
