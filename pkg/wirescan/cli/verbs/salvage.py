"""`wirescan salvage`: writes the intact frames of damaged logs as valid segments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from wirescan.cli.common_options import json_option, limits_option, paths_argument
from wirescan.cli.completion import complete_directory
from wirescan.cli.exit_codes import DAMAGE, Failure
from wirescan.cli.format_command import DEFAULT_OUTERMOST_FORMAT, FormatCommand, format_option
from wirescan.cli.input import read_input
from wirescan.cli.output import colour, dump_json, format_path, name_path
from wirescan.cli.path_arguments import compute_total_size, resolve_paths
from wirescan.cli.progress import Progress
from wirescan.cli.support.losses import LogLosses, combine_bounds, describe_loss
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.value_text import format_count
from wirescan.seglog.log_salvage import (
    Event,
    LostRange,
    Omission,
    OpenEnd,
    SalvagedSegment,
    salvage_files,
)

PASSES = 2  # over each file; a third one follows where frames overlap

HELP = """Write the intact record batches of damaged logs as valid segments with new indexes.

\b
Examples:
  wirescan salvage /var/lib/kafka/orders-0 --to repaired
  wirescan salvage /var/lib/kafka/orders-* --to repaired
  wirescan salvage orders-0 --to repaired --dry-run --json

Each log gets a directory in DIR. A batch whose header and checksum are right is copied byte for
byte, and offsets stay as they are. A segment keeps its name, also if its first batches are lost:
brokers accept that, because compaction leaves such segments too. The indexes are those that a
broker writes when it recovers a segment. Producer snapshots, checkpoints and partition.metadata are
not written.

No checksum covers offsets. Of batches whose offsets contradict each other, as many as possible are
kept, and the others are left out. So a wrong offset is found only if another batch contradicts it.

DIR must not exist, or be empty. It appears when all of it is on disk, or not at all. The sources
are read two or three times, so they must not change meanwhile: copy the directory of a running
broker first.

The report lists what is not in DIR. `wirescan verify DIR` reports the offsets that were lost at the
end of a segment once more, as a missing segment.

Exit codes: 0 everything was intact, 1 something was left out, 2 cannot be done.
"""


@click.command(
    cls=FormatCommand,
    reads_pipes=False,
    help=HELP,
    short_help="Write the intact batches of damaged logs as segments.",
)
@paths_argument
@click.option(
    "--to",
    "target",
    metavar="DIR",
    required=True,
    shell_complete=complete_directory,
    help="The new directory.",
)
@format_option(DEFAULT_OUTERMOST_FORMAT)
@limits_option
@click.option(
    "--deep",
    is_flag=True,
    help="Also leave out intact batches whose records cannot be decompressed or read.",
)
@click.option("--dry-run", is_flag=True, help="Report what would be left out, and write nothing.")
@json_option("Print JSON lines: everything that is left out or lost, each segment, a summary.")
@click.pass_context
def salvage(
    context: click.Context,
    *,
    paths: tuple[str, ...],
    target: str,
    format_name: Format,
    limits: Limits,
    deep: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run `wirescan salvage`."""
    if format_name.within is not None:
        raise Failure(f"{format_name.name} are inside {format_name.outermost.name}: salvage those")
    files = resolve_paths(paths, format_name, all_files=True)
    if "-" in files:
        raise Failure("salvage reads its input several times, so it cannot be standard input (-)")
    report = SalvagePrinter(as_json=as_json)
    size = compute_total_size(files)
    with Progress(size and size * PASSES, "salvaging") as progress:
        events = salvage_files(
            files,
            target,
            format=format_name,
            deep=deep,
            limits=limits,
            read=partial(_read_quietly, progress),
            writes=not dry_run,
        )
        for event in events:
            report.add(event)
    report.print_summary(None if dry_run else target)
    context.exit(DAMAGE if report.is_damaged else 0)


def _read_quietly(advance: Callable[[int], None], path: str) -> Any:
    return read_input(path, advance)


class SalvagePrinter:
    """Prints what is left out, and sums it up.

    as_json: print JSON lines.
    """

    def __init__(self, *, as_json: bool):
        self._json = as_json
        self._log = LogLosses()  # counts what is lost
        self._segments = 0
        self._frames = 0
        self._bytes = 0
        self._omitted = 0
        self._omitted_bytes = 0

    @property
    def is_damaged(self) -> bool:
        """Whether something is not in the result."""
        return bool(self._omitted)

    def add(self, event: Event) -> None:
        """Print an event."""
        if isinstance(event, Omission):
            self._add_omission(event)
        elif isinstance(event, LostRange):
            self._add_loss(event)
        elif isinstance(event, SalvagedSegment):
            self._add_segment(event)
        elif isinstance(event, OpenEnd):
            self._print(
                f"{format_path(event.log)}: {event.meaning}",
                {"kind": "open", "log": event.log, "meaning": event.meaning},
            )

    def _print(self, text: str, fields: dict[str, Any]) -> None:
        click.echo(dump_json(fields) if self._json else text)

    def _add_omission(self, event: Omission) -> None:
        self._omitted += 1
        self._omitted_bytes += event.size
        fields = {
            "kind": "omitted",
            "file": name_path(event.path),
            "offset": event.position,
            "size": event.size,
            "fault": event.fault,
            "meaning": event.meaning,
        }
        claim = ""
        if event.claim is not None:
            first, last, records = event.claim
            fields |= {"first": first, "last": last, "records": records}
            claim = f"; its header states offsets {first} to {last}"
        place = f"{format_path(event.path)}: byte {event.position}"
        size = format_count(event.size, "byte")
        fault = colour(event.fault, fg="red", bold=True)
        self._print(f"{place}, {size} left out: {fault}, {event.meaning}{claim}", fields)

    def _add_loss(self, event: LostRange) -> None:
        lost = self._log.add_loss(event.first, event.last, event.claims, at_end=event.at_end)
        fields = {"kind": "lost", "file": name_path(event.path), "offset": event.position}
        place = f"{format_path(event.path)}: before byte {event.position}"
        self._print(f"{place}: {lost}", fields | lost.to_json_fields())

    def _add_segment(self, event: SalvagedSegment) -> None:
        self._segments += 1
        self._frames += event.frames
        self._bytes += event.size
        fields = {
            "kind": "segment",
            "file": name_path(event.source),
            "name": event.name,
            "base": event.base,
            "first": event.first,
            "last": event.last,
            "frames": event.frames,
            "bytes": event.size,
        }
        text = (
            f"{format_path(event.name)}: {format_count(event.frames, 'frame')}, "
            f"{format_count(event.size, 'byte')}, offsets {event.first} to {event.last}"
        )
        self._print(text, fields)

    def print_summary(self, target: str | None) -> None:
        """Print the sums. target: the directory that was written; None for none."""
        records = sum(lost.records for lost in self._log.lost)
        bound = combine_bounds(lost.bound for lost in self._log.lost)
        fields = {
            "kind": "summary",
            "to": target,
            "segments": self._segments,
            "frames": self._frames,
            "bytes": self._bytes,
            "omitted": self._omitted,
            "omitted_bytes": self._omitted_bytes,
            "lost_records": records,
            "lost_ranges": len(self._log.lost),
            "bound": bound,
        }
        segments = format_count(self._segments, "segment")
        frames = format_count(self._frames, "frame")
        verdict = "nothing was left out"
        if self._omitted:
            places = format_count(self._omitted, "piece")
            verdict = f"{places} left out, {format_count(self._omitted_bytes, 'byte')}"
            verdict = colour(verdict, fg="red", bold=True)
        done = "nothing written; it would be " if target is None else ""
        where = "" if target is None else f" in {format_path(target)}"
        text = f"{done}{segments}, {frames}, {format_count(self._bytes, 'byte')}{where}: {verdict}"
        if self._log.lost:
            ranges = format_count(len(self._log.lost), "range")
            text += f"\nlost: {describe_loss(records, bound)} in {ranges} of offsets"
        self._print(text, fields)
