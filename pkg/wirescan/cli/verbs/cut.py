"""`wirescan cut`: writes a part of a log as a valid segment."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from wirescan.cli.common import (
    DEFAULT_FORMAT,
    Failure,
    FormatCommand,
    format_option,
    is_compressed,
    is_pipe,
    limits_option,
    paths_argument,
    resolve_paths,
)
from wirescan.cli.input import read_input
from wirescan.cli.output import format_count, format_path, open_output, print_message
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.seglog.log_cut import SegmentFile, cut_to_directory, select_frames

HELP = """Write a part of a log as a valid segment: whole batches, byte for byte.

\b
Examples:
  wirescan cut orders-0 --offset 1000:2000 -o part.log
  wirescan cut orders-0 --since 2026-03-01 --until 2026-03-02T12:00 --to part
  wirescan cut orders-0 --offset 5000: -o - | wirescan scan -

A batch is written if it holds any selected record, so records around the selected ones may be
written too. --to writes a directory with a segment for each file, and its indexes.

Exit codes: 0 good, 1 damage was found (`wirescan salvage` leaves it out), 2 cannot be done.
"""


def parse_offsets(text: str | None) -> list[tuple[Any, ...]]:
    """Return the bounds of a value of --offset, such as "100:200", "100:" or "100", as filters.

    Each filter is (operator, number). Raises click.BadParameter.
    """
    if text is None:
        return []
    first, colon, stop = text.partition(":")
    try:
        low = int(first) if first else None
        high = int(stop) if stop else None
    except ValueError:
        raise click.BadParameter(f"{text!r} is not A:B, A: or :B", param_hint="--offset") from None
    if low is None and high is None:
        raise click.BadParameter("give A:B, A: or :B", param_hint="--offset")
    if low is not None and not colon:
        high = low + 1
    bounds: list[tuple[Any, ...]] = []
    if low is not None:
        bounds.append((">=", low))
    if high is not None:
        bounds.append(("<", high))
    return bounds


def parse_time(text: str, option: str) -> datetime | int:
    """Return a time: ISO 8601 (UTC without a zone), or a number in the unit of the log.

    Raises click.BadParameter.
    """
    if text.isdecimal():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time, such as 2026-03-01 or 2026-03-01T12:00:00Z", param_hint=option
        ) from None


def make_filters(
    format: Format, offset: str | None, since: str | None, until: str | None
) -> list[tuple[Any, ...]]:
    """Return the filters that the options ask for. Raises click.UsageError without any."""
    log = format.storage.log
    if log is None or format.outermost.storage.log is None:
        raise click.UsageError(f"{format.name} has no log offsets")
    times = [name for name, column in format.columns.items() if column.unit is not None]
    filters: list[tuple[Any, ...]] = [(log.first, *bound) for bound in parse_offsets(offset)]
    if since is not None:
        filters.append((times[0], ">=", parse_time(since, "--since")))
    if until is not None:
        filters.append((times[0], "<", parse_time(until, "--until")))
    if not filters:
        raise click.UsageError("say which part: --offset, --since or --until")
    return filters


@click.command(cls=FormatCommand, help=HELP, short_help="Write a part of a log as a valid segment.")
@paths_argument
@format_option(DEFAULT_FORMAT)
@limits_option
@click.option("--offset", metavar="A:B", help="Records with A <= offset < B; A: and :B are open.")
@click.option("--since", metavar="TIME", help="Records of this time (UTC) or later.")
@click.option("--until", metavar="TIME", help="Records before this time (UTC).")
@click.option("--output", "-o", metavar="FILE", help="The new segment; - is standard output.")
@click.option("--to", "target", metavar="DIR", help="A new directory, for segments with indexes.")
def cut(
    *,
    paths: tuple[str, ...],
    format_name: Format,
    limits: Limits,
    offset: str | None,
    since: str | None,
    until: str | None,
    output: str | None,
    target: str | None,
) -> None:
    """Run `wirescan cut`."""
    if (output is None) == (target is None):
        raise click.UsageError("give either -o FILE or --to DIR")
    filters = make_filters(format_name, offset, since, until)
    files = resolve_paths(paths, format_name)
    if target is not None:
        frames = cut_to_directory(
            files, target, format_name, filters, limits=limits, select=_select
        )
        print_message(f"wirescan: {format_count(frames, 'frame')} in {format_path(target)}")
        return
    with open_output(output, binary=True) as file:
        segment = SegmentFile(file)
        for path in files:
            for table in _select(path, format_name, filters, limits=limits):
                segment.add(table)
        if not segment.frames:
            raise Failure("no record is selected, so nothing is written")
    size = format_count(segment.size, "byte")
    where = format_path(output or "-") if output != "-" else "standard output"
    print_message(f"wirescan: {format_count(segment.frames, 'frame')}, {size} in {where}")


def _select(
    path: str, format: Format, filters: list[tuple[Any, ...]], *, limits: Limits
) -> Iterator[FrameTable]:
    """Yield the selected frames of a file, which may be compressed, or a pipe."""
    is_streamed = path == "-" or is_pipe(path) or is_compressed(path)
    pieces = read_input(path) if is_streamed else None
    return select_frames(path, format, filters, limits=limits, pieces=pieces)
