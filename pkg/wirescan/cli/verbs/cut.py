"""`wirescan cut`: writes a part of a log as a valid segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import click

from wirescan.cli.common_options import limits_option, paths_argument
from wirescan.cli.completion import complete_directory, complete_file
from wirescan.cli.exit_codes import DAMAGE, Failure
from wirescan.cli.file_ends import FileEnds
from wirescan.cli.format_command import DEFAULT_FORMAT, FormatCommand, format_option
from wirescan.cli.input import is_compressed, is_pipe, read_input
from wirescan.cli.output import format_path, open_output, print_message
from wirescan.cli.path_arguments import refuse_input_as_output, resolve_paths
from wirescan.cli.support.selection import Selection
from wirescan.cli.support.selection_options import selection_options
from wirescan.files.source import read_ahead
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import format_count
from wirescan.reading.filters import Condition
from wirescan.seglog.log_cut import SegmentFile, cut_to_directory, select_frames

HELP = """Write a part of a log as a valid segment: whole batches, byte for byte.

\b
Examples:
  wirescan cut orders-0 --offset 1000:2000 -o part.log
  wirescan cut orders-0 --since 2026-03-01 --until 2026-03-02T12:00 --to part
  wirescan cut orders-0 --offset 5000: -o - | wirescan scan -
  wirescan cut orders-0 --where 'key ~ "^user-7"' -o part.log

A batch is written if it holds any selected record, so records around the selected ones may be
written too. --to writes a directory with a segment for each file, and its indexes.

Exit codes: 0 good, 1 damage was found (`wirescan salvage` leaves it out), 2 cannot be done.
"""


@click.command(cls=FormatCommand, help=HELP, short_help="Write a part of a log as a valid segment.")
@paths_argument
@format_option(DEFAULT_FORMAT)
@limits_option
@selection_options(by_number=False)
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    shell_complete=complete_file,
    help="The new segment; - is standard output.",
)
@click.option(
    "--to",
    "target",
    metavar="DIR",
    shell_complete=complete_directory,
    help="A new directory, for segments with indexes.",
)
@click.pass_context
def cut(
    context: click.Context,
    *,
    paths: tuple[str, ...],
    format_name: Format,
    limits: Limits,
    selection: Selection,
    output: str | None,
    target: str | None,
) -> None:
    """Run `wirescan cut`."""
    if (output is None) == (target is None):
        raise click.UsageError("give either -o FILE or --to DIR")
    filters = selection.conditions
    if format_name.outermost.storage.log is None:
        raise click.UsageError(f"{format_name.name} has no log offsets")
    if not filters and selection.partitions is None:
        raise click.UsageError("say which part: --offset, --since, --until, --key or --where")
    files = selection.select_files(resolve_paths(paths, format_name))
    ends = FileEnds()
    select = partial(_select, ends)
    try:
        if target is None:
            _write_file(output or "-", files, select, format_name, filters, limits)
        else:
            frames = cut_to_directory(
                files, target, format_name, filters, limits=limits, select=select
            )
            print_message(f"wirescan: {format_count(frames, 'frame')} in {format_path(target)}")
    finally:
        ends.report()
    context.exit(DAMAGE if ends.is_damaged else 0)


def _write_file(
    output: str,
    files: Sequence[str],
    select: Callable[..., Iterator[FrameTable]],
    format: Format,
    filters: Sequence[Condition],
    limits: Limits,
) -> None:
    """Write the selected frames of files to one file. select: `_select` with its first argument."""
    refuse_input_as_output(output, files)
    with open_output(output, binary=True) as file:
        segment = SegmentFile(file)
        for path in read_ahead(files, head=0):
            for table in select(path, format, filters, limits=limits):
                segment.add(table)
        if not segment.frames:
            raise Failure("no record is selected, so nothing is written")
    size = format_count(segment.size, "byte")
    where = format_path(output) if output != "-" else "standard output"
    print_message(f"wirescan: {format_count(segment.frames, 'frame')}, {size} in {where}")


def _select(
    ends: FileEnds, path: str, format: Format, filters: Sequence[Condition], *, limits: Limits
) -> Iterator[FrameTable]:
    """Yield the selected frames of a file, which may be compressed, or a pipe.

    ends: collects how the file ends.
    """
    is_streamed = path == "-" or is_pipe(path) or is_compressed(path)
    pieces = read_input(path) if is_streamed else None
    return select_frames(
        path,
        format,
        filters,
        limits=limits,
        pieces=pieces,
        inspect_end=lambda last: ends.add(last, path),
    )
