"""`wirescan report`: writes one page about what is in files, and what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from wirescan.cli.common_options import check_option, limits_option, paths_argument
from wirescan.cli.exit_codes import DAMAGE, FAILED
from wirescan.cli.file_ends import FileEnds
from wirescan.cli.format_command import DEFAULT_OUTERMOST_FORMAT, FormatCommand, format_option
from wirescan.cli.input import read_input
from wirescan.cli.output import print_message
from wirescan.cli.path_arguments import compute_total_size, refuse_input_as_output, resolve_paths
from wirescan.cli.progress import Progress
from wirescan.cli.support.bad_blocks import BadBlocks
from wirescan.cli.support.report_numbers import ReportNumbers
from wirescan.cli.support.report_page import render_html, render_markdown
from wirescan.cli.support.report_scripts import load_plotly
from wirescan.files.source import read_ahead
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.reading.chunked import scan_outermost

HELP = """Write one page about what is in files, and what is damaged.

\b
Examples:
  wirescan report orders-0 -o report.html
  wirescan report orders-0 --markdown -o ticket.md

The page loads nothing, so it works offline. The script that draws its charts is in it, and has 4.8
MB. The page has the counts of `wirescan stat`, a map of each file, rates and sizes, what `wirescan
verify --shallow` finds, and the first bytes of each fault. Lists are bounded, and each total is
stated. --deep reads what is inside the frames too.

Captures of packets are read as `wirescan stat` reads them. Without --format the page is about
exchanges, which are requests with their responses, and it has the times between them.

Exit codes are those of `wirescan verify`: 0 clean, 1 damage was found, 2 cannot be done.
"""


@click.command(
    cls=FormatCommand,
    reads_connections=True,
    reads_exchanges=True,
    help=HELP,
    short_help="Write one page about counts and damage.",
)
@paths_argument
@format_option(DEFAULT_OUTERMOST_FORMAT)
@check_option
@limits_option
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False), help="The file to write."
)
@click.option(
    "--deep",
    is_flag=True,
    help="Also read what is inside the frames: the most frequent keys, and what other codecs would "
    "make of a sample.",
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
    deep: bool,
    output: str,
    markdown: bool,
) -> None:
    """Run `wirescan report`."""
    failed = False
    plotly = "" if markdown else load_plotly()  # without it, nothing is read

    def fail(message: str) -> None:
        nonlocal failed
        failed = True
        print_message(f"wirescan: {message}")

    files = resolve_paths(paths, format_name)
    refuse_input_as_output(output, files)
    top = format_name.outermost
    options: dict[str, Any] = {"check": check, "limits": limits}
    numbers = ReportNumbers(top, fail, deep=deep, **options)
    ends = FileEnds()
    bad_blocks = BadBlocks()
    with Progress(compute_total_size(files), "counting") as progress:
        for path in read_ahead(files):
            numbers.start_file(path)
            allowance = numbers.allowance
            pieces = read_input(path, progress, allowance=allowance)
            tables = scan_outermost(
                pieces,
                top,
                errors="mark",
                allowance=allowance,
                inspect_blocks=bad_blocks.add,
                **options,
            )
            for piece in tables:
                numbers.add_piece(piece)
            numbers.end_file(piece)
            ends.add(piece, path)
    data = numbers.finish()
    text = render_markdown(data) if markdown else render_html(data, plotly)
    # A file name may hold bytes that are not UTF-8.
    Path(output).write_text(text, encoding="utf-8", errors="backslashreplace")
    ends.report()
    bad_blocks.report()
    if failed:
        context.exit(FAILED)
    is_damaged = numbers.damage or ends.is_damaged or bad_blocks.is_damaged
    context.exit(DAMAGE if is_damaged else 0)
