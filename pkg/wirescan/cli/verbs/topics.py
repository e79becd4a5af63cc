"""`wirescan topics`: the log directory of a broker at a glance."""

from __future__ import annotations

import os
from itertools import groupby
from typing import Any

import click

from wirescan.cli.common_options import json_option
from wirescan.cli.completion import complete_directory
from wirescan.cli.exit_codes import DAMAGE, Failure
from wirescan.cli.format_command import DEFAULT_OUTERMOST_FORMAT
from wirescan.cli.output import colour, dump_json
from wirescan.frames.registry import format_of
from wirescan.frames.value_text import escape_text, format_bytes, format_count, format_time
from wirescan.kafka.log.data_directory import (
    PartitionSummary,
    list_partitions,
    summarize_partition,
)
from wirescan.reading.chunked import iter_tables

SHOWN_PROBLEMS = 3  # of a partition, in the text

HELP = """Print the topics in the log directory of a Kafka broker: partitions, sizes, offsets, times
and damage at a glance. Kafka's internal topics follow the others.

\b
Examples:
  wirescan topics /var/lib/kafka
  wirescan topics /var/lib/kafka --deep
  wirescan topics /var/lib/kafka --json | jq 'select(.problems != [])'

Only file names, sizes and a few batches of each partition are read: the first one and the last
ones. So damage elsewhere is not seen. --deep scans every segment and verifies its checksums;
`wirescan verify` also says what is lost. Times are the highest times of the first and the last
batch.

Exit codes: 0 good, 1 damage was found, 2 cannot be done.
"""


@click.command(help=HELP, short_help="Print the topics in the log directory of a broker.")
@click.argument("directory", metavar="DIR", shell_complete=complete_directory)
@click.option("--deep", is_flag=True, help="Scan every segment, and verify the checksums.")
@click.option("--partitions", is_flag=True, help="Print a line for each partition too.")
@json_option("Print JSON lines: one for each partition.")
@click.pass_context
def topics(
    context: click.Context, *, directory: str, deep: bool, partitions: bool, as_json: bool
) -> None:
    """Run `wirescan topics`."""
    paths = list_partitions(directory)
    if not paths:
        raise Failure(
            f"{escape_text(directory)} holds no directory named <topic>-<partition>: name the "
            "log.dirs of a broker"
        )
    summaries = []
    for path in paths:
        summary = summarize_partition(path)
        if deep:
            summary = summary._replace(problems=(*summary.problems, *_verify(path)))
        summaries.append(summary)
    summaries.sort(key=lambda summary: summary.is_internal)  # stable: topics stay in order
    if as_json:
        for summary in summaries:
            fields = {**summary._asdict(), "internal": summary.is_internal}
            click.echo(dump_json(fields))
    else:
        _print_table(summaries, partitions=partitions)
    context.exit(DAMAGE if any(summary.problems for summary in summaries) else 0)


def _verify(path: str) -> list[str]:
    """Return the damage in the segments of a partition, one line for each file."""
    storage = format_of(DEFAULT_OUTERMOST_FORMAT).storage
    assert storage.log is not None and storage.log.segments is not None
    problems = []
    for name in sorted(os.listdir(path)):
        if storage.log.segments.parse(name) is None:
            continue
        file = os.path.join(path, name)
        bad = 0
        for table in iter_tables(file, format=DEFAULT_OUTERMOST_FORMAT, errors="mark", tail=True):
            bad += int(table.bad.sum())
        if bad:
            problems.append(f"{name}: {format_count(bad, 'damaged piece')}")
    return problems


def _print_table(summaries: list[PartitionSummary], *, partitions: bool) -> None:
    """Print a line for each topic, and the problems of its partitions."""
    rows: list[tuple[str, ...]] = [
        ("topic", "partitions", "segments", "size", "records", "from", "to")
    ]
    groups = [
        list(group)
        for _, group in groupby(summaries, key=lambda item: (item.is_internal, item.topic))
    ]
    lines: list[tuple[tuple[str, ...], list[PartitionSummary]]] = []
    for group in groups:
        lines.append((_make_row(group[0].topic, group), [] if partitions else group))
        if partitions:
            lines += [(_make_row(f"  {item.partition}", [item]), [item]) for item in group]
    rows += [row for row, _ in lines]
    widths = [max(map(len, column)) for column in zip(*rows)]
    click.echo(_format_row(rows[0], widths))
    for row, items in lines:
        click.echo(_format_row(row, widths))
        for item in items:
            for problem in item.problems[:SHOWN_PROBLEMS]:
                name = escape_text(f"{item.topic}-{item.partition}")
                click.echo(f"  {colour(name, fg='red')}: {escape_text(problem)}")
            if len(item.problems) > SHOWN_PROBLEMS:
                click.echo(f"  and {len(item.problems) - SHOWN_PROBLEMS} more (--json lists all)")
    count = format_count(len(summaries), "partition")
    size = format_bytes(sum(item.size for item in summaries))
    click.echo(f"{format_count(len(groups), 'topic')}, {count}, {size}")


def _make_row(name: str, group: list[PartitionSummary]) -> tuple[str, ...]:
    """Return the cells of a topic, or of a partition."""
    size = sum(item.size for item in group)
    records = sum(
        item.last - item.first + 1
        for item in group
        if item.last is not None and item.first is not None
    )
    starts = [item.first_time for item in group if item.first_time is not None]
    ends = [item.last_time for item in group if item.last_time is not None]
    return (
        escape_text(name),
        str(len(group)),
        str(sum(item.segments for item in group)),
        format_bytes(size),
        f"{records:,}",
        format_time(min(starts)) if starts else "",
        format_time(max(ends)) if ends else "",
    )


def _format_row(row: tuple[Any, ...], widths: list[int]) -> str:
    name, *cells = row
    padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:])]
    return "  ".join([name.ljust(widths[0]), *padded]).rstrip()
