"""`wirescan verify`: reports what is damaged, where, and what is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from wirescan.cli.common_options import check_option, json_option, limits_option, paths_argument
from wirescan.cli.exit_codes import DAMAGE, FAILED, describe_error
from wirescan.cli.foreign_files import CompressionError
from wirescan.cli.format_command import (
    DEFAULT_OUTERMOST_FORMAT,
    FOUND,
    FormatCommand,
    format_option,
)
from wirescan.cli.output import print_message
from wirescan.cli.path_arguments import compute_total_size, resolve_paths
from wirescan.cli.progress import Progress
from wirescan.cli.support.checked_frames import CheckedFrames
from wirescan.cli.support.row_choice import plan_parts
from wirescan.cli.support.selection import FilePart, Selection
from wirescan.cli.support.selection_options import selection_options
from wirescan.cli.support.verifier import Verifier
from wirescan.core.fault import Fault
from wirescan.files.translated import find_translator
from wirescan.frames.errors import FrameError
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.reading.detect import find_inner

HELP = """Report what is damaged, where, and what is lost. Everything is read,
unless options select a part, and every fault and every gap is reported.

\b
Examples:
  wirescan verify /var/lib/kafka/orders-0
  wirescan verify --shallow *.log && echo clean
  wirescan verify orders-0 --json | jq 'select(.kind == "damage")'
  wirescan verify orders-0 --since 2h
  wirescan verify orders-0 --where 'codec == zstd' --tail 100000

Damage is: a frame with a fault, bytes that are no frame, a cut tail, offsets out of order, a
missing segment. Information is: missing offsets that compaction may explain, a tail of zeros (a
preallocated segment), and files that are empty or hold only zeros.

Of a Kafka partition, the files beside the segments are verified too. Indexes and snapshots are
damage if they are damaged, cut or missing, or do not agree with the log (--log-only ignores them).

A .timeindex that is cut between two entries is damaged, unless its segment is the newest one. An
.index that is cut between two entries is damaged if more than 2 MiB of the log have no entry. If
its segment is not the newest one, it is also damaged if the .timeindex has more than 32 entries
after its last entry.

Lost records are counted from the headers of damaged batches and from the offsets around them. At
the end of a log, the files beside it count too. "At most" means that the log is compacted, so not
every offset had a record. "At least" means the end of a log, which may have continued.

A cut tail is a frame that the end of the file cuts. It is normal at the end of the newest segment:
a broker that was stopped there truncates it. Every command reports it, and only this one calls it
damage. A file that holds only such a tail is damage to every command.

The options that select, such as --where and --offset, verify what `wirescan scan` would read with
them. Names, indexes and headers exclude files, parts of files and outermost frames, such as
batches, and are trusted. What they do not exclude is verified whole, also the rows that are not
selected. A frame that is itself damaged is never excluded. The summary says how many good rows
are selected, and how many the verified frames have.

With a selection, the files beside a segment are verified only if the whole segment is read, and
snapshots and missing segments only if all segments are. Offsets are compared within what is read
without a break. --limit ends after the frame with the last selected row, and --tail begins at most
about 1 MiB before the first one. --sample is refused: it would exclude no frame.

Exit codes: 0 clean, 1 damage was found, 2 a file cannot be read.
"""


def _choose_level(format: Format, options: Mapping[str, Any]) -> Format:
    """Return the format of the rows that are selected: that which `wirescan scan` reads."""
    if not options["deep"]:
        return format.outermost
    is_found = FOUND in click.get_current_context().meta
    if not is_found:
        return format
    inner = find_inner(format_of(format.name))
    return format_of(f"{inner.name}?{format.options}" if format.options else inner.name)


@click.command(
    cls=FormatCommand, help=HELP, short_help="Report what is damaged, where, and what is lost."
)
@paths_argument
@format_option(DEFAULT_OUTERMOST_FORMAT)
@check_option
@limits_option
@selection_options(choose_level=_choose_level)
@click.option(
    "--deep/--shallow",
    default=True,
    help="Decompress and read what is inside the frames too, or the frames only.",
)
@click.option(
    "--log-only",
    is_flag=True,
    help="Kafka: verify the segments only, not the indexes and snapshots beside them.",
)
@json_option("Print JSON lines: each finding, a line for each file, a summary.")
@click.pass_context
def verify(
    context: click.Context,
    *,
    paths: tuple[str, ...],
    format_name: Format,
    check: bool,
    limits: Limits,
    selection: Selection,
    deep: bool,
    log_only: bool,
    as_json: bool,
) -> None:
    """Run `wirescan verify`."""
    if selection.sample is not None:
        raise click.UsageError(
            "--sample has no meaning here: frames are verified whole, and a sample of their rows "
            "excludes none of them. Use --limit, --tail or a condition"
        )
    failed = False

    def fail(message: str) -> None:
        nonlocal failed
        failed = True
        print_message(f"wirescan: {message}")

    files = resolve_paths(paths, format_name, fail, all_files=True)
    selected = selection.select_files(files)
    finder = _PartFinder(selection, selected, limits, check=check)
    verifier = Verifier(
        format_name,
        fail,
        check=check,
        deep=deep,
        log_only=log_only,
        as_json=as_json,
        limits=limits,
        files=files,
        checked=finder.checked,
    )
    for path in set(files) - set(selected):
        verifier.exclude_file(path)
    with Progress(compute_total_size(selected), "verifying") as progress:
        for path in selection.read_ahead(selected):
            _verify_file(path, verifier, finder, fail, progress)
    if files:
        verifier.end_log()
        verifier.print_summary()
    if failed:
        context.exit(FAILED)
    context.exit(DAMAGE if verifier.damage else 0)


def _verify_file(
    path: str,
    verifier: Verifier,
    finder: _PartFinder,
    fail: Callable[[str], None],
    progress: Progress,
) -> None:
    """Verify the selected part of a file. `fail` takes the message if it cannot be read."""
    try:
        part = finder.find(path)
        if part is None:
            verifier.exclude_file(path)
        else:
            verifier.verify_part(part, progress)
    except BrokenPipeError:
        raise
    except CompressionError as error:
        verifier.report_bad_compression(str(error))
    except (OSError, EOFError) as error:
        fail(describe_error(error, path))
    except FrameError as error:
        # All other damage is a row. A limit ends the command.
        if find_translator(path) is None or error.fault == Fault.LIMIT:
            raise
        verifier.report_bad_storage(error)


class _PartFinder:
    """Finds the parts of files to verify. The arguments are those of `plan_parts`.

    Attributes:
        checked: chooses the frames to verify; None for all frames of the files.
    """

    def __init__(self, selection: Selection, files: list[str], limits: Limits, *, check: bool):
        self._selection = selection
        self._limits = limits
        self.checked: CheckedFrames | None = None
        self._parts: dict[str, FilePart] | None = None  # of --tail
        if not selection.conditions and not selection.has_choice:
            return
        # Damage has no values, so it does not count as a row.
        plan = plan_parts(selection, files, "skip", limits, check=check)
        if selection.tail is not None:
            self._parts = {part.path: part for part in plan.parts}
        self.checked = CheckedFrames(selection, plan.chooser, check=check, limits=limits)

    def find(self, path: str) -> FilePart | None:
        """Return the part of a file to verify; None if there is none. Raises OSError."""
        if self.checked is not None and self.checked.is_done:
            return None
        if self._parts is not None:
            return self._parts.get(path)
        try:
            return self._selection.find_part(path, self._limits)
        except FrameError:
            return FilePart(path)  # the damage is reported where the whole file is read
