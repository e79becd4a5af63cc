"""`wirescan report`: writes one page about what is in files, and what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wirescan.cli.common import (
    DAMAGE,
    DEFAULT_OUTERMOST_FORMAT,
    FileEnds,
    FormatCommand,
    check_option,
    compute_total_size,
    format_option,
    limits_option,
    paths_argument,
    resolve_paths,
)
from wirescan.cli.input import read_input
from wirescan.cli.progress import Progress
from wirescan.cli.support.report_page import (
    MAX_FAULTS,
    NEAR,
    ListedFault,
    ReportData,
    render_html,
    render_markdown,
)
from wirescan.cli.support.tally import Tally, count_piece
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.table import FrameTable
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import scan_outermost

HELP = """Write one page about what is in files, and what is damaged.

\b
Examples:
  wirescan report orders-0 -o report.html
  wirescan report orders-0 --markdown -o ticket.md

The page loads nothing, so it works offline. It has the counts of `wirescan stat`, a map of the
faults in each file, and the first bytes of each fault. At most 500 faults are listed, and the
total is stated. Only outermost frames are read: `wirescan verify` also reads what is inside.

Exit codes: 0 good, 1 damage was found, 2 cannot be done.
"""


@click.command(cls=FormatCommand, help=HELP, short_help="Write one page about counts and damage.")
@paths_argument
@format_option(DEFAULT_OUTERMOST_FORMAT)
@check_option
@limits_option
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False), help="The file to write."
)
@click.option("--markdown", is_flag=True, help="Write markdown, for a ticket.")
@click.pass_context
def report(
    context: click.Context,
    *,
    paths: tuple[str, ...],
    format_name: Format,
    check: bool,
    limits: Limits,
    output: str,
    markdown: bool,
) -> None:
    """Run `wirescan report`."""
    files = resolve_paths(paths, format_name)
    top = format_name.outermost
    total = Tally(top)
    data = ReportData(top.name, {}, [])
    ends = FileEnds()
    with Progress(compute_total_size(files), "counting") as progress:
        for path in files:
            file_tally = Tally(top)
            tallies = [file_tally, total]
            for tally in tallies:
                tally.start_file(path)
            allowance = Allowance(limits)
            options: dict[str, Any] = {"errors": "mark", "check": check, "limits": limits}
            pieces = read_input(path, progress, allowance=allowance)
            for piece in scan_outermost(pieces, top, allowance=allowance, **options):
                count_piece(tallies, piece, ())
                _list_faults(data, piece, path)
            size = piece.origins[0] + len(piece.buffers[0])
            for tally in tallies:
                tally.end_file(size, piece.stop.fault, len(piece.tail))
            ends.add(piece, path)
            data.files.append({"file": path, **file_tally.make_summary()})
    data.total = total.make_summary()
    text = render_markdown(data) if markdown else render_html(data)
    # A file name may hold bytes that are not UTF-8.
    Path(output).write_text(text, encoding="utf-8", errors="backslashreplace")
    ends.report()
    context.exit(DAMAGE if total.faults or ends.is_damaged else 0)


def _list_faults(data: ReportData, piece: FrameTable, path: str) -> None:
    """List the faults of a piece, until `MAX_FAULTS` are listed."""
    bad = piece.where(piece.bad)
    data.fault_count += len(bad)
    rows = bad.rows[: MAX_FAULTS - len(data.faults)]
    for row in rows:
        buffer, start, size = int(row["buffer"]), int(row["start"]), int(row["size"])
        near = bytes(piece.buffers[buffer][start : start + min(size, NEAR)])
        name = bad.describe_fault(int(row["fault"])).name
        position = piece.origins[buffer] + start
        data.faults.append(ListedFault(path, name, position, size, near.hex()))
