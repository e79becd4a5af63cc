"""`wirescan diff`: compares two copies of a log by offset."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from wirescan.cli.common_options import count_option, json_option, limits_option
from wirescan.cli.exit_codes import DAMAGE, FAILED, Failure
from wirescan.cli.file_ends import FileEnds
from wirescan.cli.format_command import DEFAULT_FORMAT, FormatCommand, format_option
from wirescan.cli.output import dump_json
from wirescan.cli.progress import Progress
from wirescan.cli.support.cluster_options import login_options
from wirescan.cli.support.compared_logs import estimate_bytes, open_log, pair_logs
from wirescan.frames.errors import FrameError
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.value_text import encode, escape_bytes
from wirescan.kafka.protocol.error_codes import BrokerError
from wirescan.seglog.log_diff import DIFFERENT, Difference, Example, LogDiff

if TYPE_CHECKING:
    from wirescan.kafka.client.topic_ranges import ClusterAddress

LONGEST_VALUE = 60  # characters of a value in the text

HELP = """Compare two copies of a log by offset: replicas of a partition, or a log and its backup.

\b
Examples:
  wirescan diff broker1/orders-0 broker2/orders-0
  wirescan diff orders-0 backup/orders-0 --json | jq .kind
  wirescan diff orders-0 kafka://127.0.0.1:9092/orders/0      a partition of a live topic
  wirescan diff backup kafka://127.0.0.1:9092/orders          all partitions: backup/orders-N

Records are compared by key, value, timestamp and headers. Segments, batches and compression may
differ; --exact compares the batches too, with all fields of their headers. Batches with equal
headers, sizes and checksums are equal, and are not opened.

Records that compaction or retention removed from one copy are missing in it. A live topic is read
up to the end that it has at the start.

Exit codes: 0 equal, 1 different, 2 cannot be done, for example because a log is damaged.
"""


@click.command(
    cls=FormatCommand,
    path_names=("left", "right"),
    reads_pipes=False,
    help=HELP,
    short_help="Compare two copies of a log by offset.",
)
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
@format_option(DEFAULT_FORMAT)
@limits_option
@click.option("--exact", is_flag=True, help="Compare the batches too, with all header fields.")
@count_option("--examples", default=10, help="Show so many of the records that differ.", smallest=0)
@login_options
@json_option("Print JSON lines: each range that differs, a summary.")
@click.pass_context
def diff(
    context: click.Context,
    *,
    left: str,
    right: str,
    format_name: Format,
    limits: Limits,
    exact: bool,
    examples: int,
    make_address: Callable[[str], ClusterAddress],
    as_json: bool,
) -> None:
    """Run `wirescan diff`."""
    counts: dict[str, int] = {}
    unit = "batch" if exact else "record"
    ends = FileEnds()
    try:
        with ExitStack() as stack:
            logs = [open_log(log, make_address, format_name, stack) for log in (left, right)]
            pairs = list(pair_logs(*logs))
            progress = stack.enter_context(
                Progress(estimate_bytes(pairs, format_name), "comparing")
            )
            for pair in pairs:
                for difference in LogDiff(
                    pair.left,
                    pair.right,
                    format=format_name.spec,
                    exact=exact,
                    examples=examples,
                    limits=limits,
                    advance=progress,
                    inspect_end=ends.add,
                ):
                    counts[difference.kind] = counts.get(difference.kind, 0) + difference.records
                    if as_json:
                        click.echo(dump_json(_make_fields(difference, pair.partition)))
                    else:
                        _print_difference(difference, unit, pair.partition)
    except (FrameError, BrokerError) as error:
        raise Failure(str(error)) from None
    if as_json:
        click.echo(dump_json({"kind": "summary", "equal": not counts, "counts": counts}))
    elif not counts:
        click.echo("equal")
    ends.report()
    context.exit(FAILED if ends.is_damaged else DAMAGE if counts else 0)


def _print_difference(difference: Difference, unit: str, partition: int | None) -> None:
    """Print a range, and the examples in it.

    unit: what is counted. partition: the partition, if several are compared.
    """
    many = unit + ("es" if unit.endswith("ch") else "s")
    count = f"{difference.records:,} {unit if difference.records == 1 else many}"
    prefix = "" if partition is None else f"partition {partition}: "
    offsets = f"offsets {difference.first} to {difference.last}"
    click.echo(f"{prefix}{offsets}: {count} {difference.kind}")
    for example in difference.examples:
        click.echo(f"  offset {example.offset}")
        for side, values in (("A", example.left), ("B", example.right)):
            text = ", ".join(f"{name} {_format(value)}" for name, value in values.items())
            click.echo(f"    {side}: {text}")


def _format(value: Any) -> str:
    """Return a value of a record as text of a bounded length."""
    if isinstance(value, list):
        text = " ".join(f"{_format(key)}={_format(item)}" for key, item in value) or "none"
    elif isinstance(value, bytes):
        text = f"'{escape_bytes(value[: LONGEST_VALUE + 1])}'"
    else:
        text = "null" if value is None else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def _make_fields(difference: Difference, partition: int | None) -> dict[str, Any]:
    """Return a difference as an object for JSON.

    partition: the partition, if several are compared.
    """
    fields: dict[str, Any] = {} if partition is None else {"partition": partition}
    fields |= difference._asdict()
    examples = fields.pop("examples")
    if difference.kind == DIFFERENT:
        fields["examples"] = [_make_example(example) for example in examples]
    return fields


def _make_example(example: Example) -> dict[str, Any]:
    sides = {"A": example.left, "B": example.right}
    return {
        "offset": example.offset,
        **{
            side: {name: _to_json(value) for name, value in values.items()}
            for side, values in sides.items()
        },
    }


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return encode(value, "utf8")
    if isinstance(value, list):
        return [[_to_json(item) for item in pair] for pair in value]
    return value
