"""`wirescan verify`: reports what is damaged, where, and what is lost."""

from __future__ import annotations

import click

from wirescan.cli.common import (
    DAMAGE,
    DEFAULT_OUTERMOST_FORMAT,
    FAILED,
    FormatCommand,
    check_option,
    compute_total_size,
    describe_error,
    format_option,
    json_option,
    limits_option,
    paths_argument,
    resolve_paths,
)
from wirescan.cli.foreign_files import CompressionError
from wirescan.cli.output import print_message
from wirescan.cli.progress import Progress
from wirescan.cli.support.findings import Report
from wirescan.cli.support.selection import Selection, selection_options
from wirescan.core.fault import Fault
from wirescan.files.translated import find_translator
from wirescan.frames.errors import FrameError
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits

HELP = """Report what is damaged, where, and what is lost. Reads everything, and reports every fault
and every gap.

\b
Examples:
  wirescan verify /var/lib/kafka/orders-0
  wirescan verify --shallow *.log && echo clean
  wirescan verify orders-0 --json | jq 'select(.kind == "damage")'

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

--offset and --partition select whole files, by their names. There is no --where here: a damaged
frame has no value that can be trusted, so a condition would hide damage.

Exit codes: 0 clean, 1 damage was found, 2 a file cannot be read.
"""


@click.command(
    cls=FormatCommand, help=HELP, short_help="Report what is damaged, where, and what is lost."
)
@paths_argument
@format_option(DEFAULT_OUTERMOST_FORMAT)
@check_option
@limits_option
@selection_options(files_only=True)
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
    failed = False

    def fail(message: str) -> None:
        nonlocal failed
        failed = True
        print_message(f"wirescan: {message}")

    files = selection.select_files(resolve_paths(paths, format_name, fail, all_files=True))
    report = Report(
        format_name, fail, check=check, deep=deep, log_only=log_only, as_json=as_json, limits=limits
    )
    with Progress(compute_total_size(files), "verifying") as progress:
        for path in files:
            try:
                report.verify_file(path, progress)
            except BrokenPipeError:
                raise
            except CompressionError as error:
                report.report_bad_compression(str(error))
            except (OSError, EOFError) as error:
                fail(describe_error(error, path))
            except FrameError as error:
                # All other damage is a row. A limit ends the command.
                if find_translator(path) is None or error.fault == Fault.LIMIT:
                    raise
                report.report_bad_storage(error)
    if files:
        report.end_log()
        report.print_summary()
    if failed:
        context.exit(FAILED)
    context.exit(DAMAGE if report.damage else 0)
