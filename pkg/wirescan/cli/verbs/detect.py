"""`wirescan detect`: says which format files and directories have, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from wirescan.cli.common_options import json_option, paths_argument
from wirescan.cli.exit_codes import DAMAGE, FAILED, describe_error
from wirescan.cli.foreign_files import describe_foreign_file
from wirescan.cli.input import read_head
from wirescan.cli.output import colour, dump_json, format_path, print_message
from wirescan.cli.support.format_choice import find_candidates
from wirescan.frames.conversation import ConnectionGroup
from wirescan.frames.text_table import align_cells
from wirescan.reading.detect import Candidate

HELP = """Say which format files and directories have, and why.

\b
Examples:
  wirescan detect /var/lib/liftbridge/orders-0
  wirescan detect captures/*
  cat capture.bin | wirescan detect -
  wirescan detect capture.bin --json | jq -r '.formats[0].format'

The first bytes are scanned in each format, at most 1 MiB, and good frames are weighed by how
unlikely they are in other bytes. Names of files, and the indexes beside them, decide where the
bytes do not. Of a directory, at most four files of each format are looked at. gzip and zstd files
are decompressed.

Of a capture of packets, the TCP connections in the first 2 MiB are listed (of a pipe, in its first
64 KiB): the protocol that their first bytes show, how many there are, the server, the client of the
first one, the bytes of both sides, and what decided the protocol.

\b
certain    the bytes have this format
possible   the bytes leave a doubt, or the files of a directory have several formats
named      only the name of the file fits, or the indexes beside it

Other commands do the same if --format is not given. If no format is certain, they read files with
the names of Kafka's segments as such. In doubt, they end with exit code 2.

Exit codes: 0 the format of each path is found, 1 a format is in doubt or none fits, 2 cannot be
done.
"""

HEADINGS = ("protocol", "connections", "server", "first client", "bytes", "reason")
ALIGNED_RIGHT = (False, True, False, False, True, False)
INDENT = " " * 4  # of the connections of a capture


@click.command(help=HELP, short_help="Say which format files have, and why.")
@paths_argument
@json_option("Print JSON lines, one for each path.")
@click.pass_context
def detect(context: click.Context, *, paths: tuple[str, ...], as_json: bool) -> None:
    """Run `wirescan detect`."""
    has_failed = False
    is_in_doubt = False
    for path in paths:
        try:
            candidates = find_candidates(path)
            foreign = None if candidates else describe_foreign_file(read_head(path), path)
        except (OSError, ValueError) as error:
            has_failed = True
            print_message(f"wirescan: {describe_error(error, path)}")
            continue
        is_in_doubt |= not _is_found(candidates)
        if as_json:
            formats = [_list_fields(candidate) for candidate in candidates]
            click.echo(
                dump_json({"path": path, "found": _is_found(candidates), "formats": formats})
            )
        else:
            _print_candidates(path, candidates)
        if foreign is not None:
            print_message(f"wirescan: {foreign}")
    if has_failed:
        context.exit(FAILED)
    context.exit(DAMAGE if is_in_doubt else 0)


def _is_found(candidates: Sequence[Candidate]) -> bool:
    """Return whether exactly one format fits well."""
    if len(candidates) == 1:
        return candidates[0].verdict != "possible"
    return bool(candidates) and candidates[0].verdict == "certain"


def _list_fields(candidate: Candidate) -> dict[str, Any]:
    """Return the fields of a candidate for JSON. Only captures have `connections`."""
    fields = asdict(candidate)
    del fields["connections"]
    if candidate.connections:
        fields["connections"] = [
            {**asdict(group), "reason": group.reason} for group in candidate.connections
        ]
    return fields


def _print_candidates(path: str, candidates: Sequence[Candidate]) -> None:
    """Print a path, and a line for each format that it may have."""
    click.echo(colour(format_path(path), bold=True))
    for candidate in candidates:
        inside = f", with {candidate.inner} inside" if candidate.inner != candidate.format else ""
        click.echo(f"  {candidate.verdict:<8}  {candidate.format}{inside}: {candidate.reason}")
        _print_connections(candidate.connections)
    if not candidates:
        click.echo("  no format fits")


def _print_connections(groups: Sequence[ConnectionGroup]) -> None:
    """Print a table of connections, one line for each group."""
    if not groups:
        return
    lines = [HEADINGS]
    lines += [
        (
            group.protocol or "unknown",
            f"{group.connections:,}",
            group.server or "other servers",
            group.client or "",
            f"{group.bytes:,}",
            group.reason,
        )
        for group in groups
    ]
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        click.echo(INDENT + align_cells(line, widths, ALIGNED_RIGHT, None).rstrip())
