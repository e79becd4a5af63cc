"""`wirescan fetch`: copies a topic of a live cluster to segments or Parquet, and can continue."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from wirescan.cli.common_options import (
    DEFAULT_COMPRESSION,
    PARQUET_COLUMNS,
    PARQUET_COMPRESSION,
    check_option,
    columns_option,
    compression_option,
    count_option,
    errors_option,
    json_option,
    parse_names,
)
from wirescan.cli.completion import complete_directory
from wirescan.cli.exit_codes import DAMAGE, Damage, Failure
from wirescan.cli.output import dump_json, format_path, print_message
from wirescan.cli.progress import Progress
from wirescan.cli.support.cluster_options import (
    check_topic,
    cluster_argument,
    cluster_options,
    identify_topic,
    report_broker_errors,
)
from wirescan.cli.support.fetch_store import (
    LARGEST_OFFSET,
    End,
    Ledger,
    ParquetParts,
    Segments,
    Store,
    check_name,
    find_parts_end,
    find_segments_end,
    has_partition,
    make_file_name,
)
from wirescan.frames.value_text import format_bytes, format_count
from wirescan.kafka.constants import ISOLATIONS

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.progress import ProgressColumn

    from wirescan.kafka.client import Client
    from wirescan.kafka.client.decode import Part
    from wirescan.kafka.client.topic_ranges import ClusterAddress, OffsetRange

SEGMENT_BYTES = 1 << 30
FETCH_BYTES = 8 << 20
SIDE_BY_SIDE = 4  # partitions fetched at the same time
SHORTEST_TIME = 1e-3  # seconds, so that a rate has no division by zero
VERSION = 1  # of the directory's layout

HELP = """Copy a topic of a live cluster into DIR, as segments in Kafka's own format or as Parquet.

\b
Examples:
  wirescan fetch 127.0.0.1:9092 orders --to copy      what is there now
  wirescan stat copy/orders-0                         as a broker's files
  wirescan fetch 127.0.0.1:9092 orders --to out --as parquet
  wirescan fetch 127.0.0.1:9092 orders --to day \\
                 --start 2026-01-31 --stop 2026-02-01

The same command again continues where the last run ended, even if that was killed. When it is done,
DIR holds each batch (segments) or record (Parquet) of the range exactly once. Segments hold whole
batches, so the first and the last may extend beyond the range.

Offsets that the cluster deleted before they were fetched are damage, like bad bytes. strict stops
there. mark and skip report them and continue after them.

Exit codes: 0 good, 1 damage was found (not with --errors skip), 2 cannot be done.
"""


class LogPoint(NamedTuple):
    """A point in a log: an offset, "earliest", "latest", or a time in milliseconds since 1970.

    text: as the user wrote it. bound: an offset or a name. time: replaces `bound` if given.
    """

    text: str
    bound: int | str
    time: int | None = None


def parse_log_point(context: click.Context, option: click.Parameter, text: str) -> LogPoint:
    """Return the value of --start or --stop. Raises click.BadParameter."""
    if text in ("earliest", "latest"):
        return LogPoint(text, text)
    if text.isdecimal() and text.isascii():
        if len(text) > len(str(LARGEST_OFFSET)) or int(text) > LARGEST_OFFSET:
            raise click.BadParameter(f"offsets are at most {LARGEST_OFFSET}")
        return LogPoint(text, int(text))
    from wirescan.kafka.client.topic_ranges import to_milliseconds

    try:
        moment = to_milliseconds(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no offset, no time such as 2026-01-31T12:00, and not earliest or latest"
        ) from None
    assert moment is not None  # text always has a time
    assert isinstance(option.default, str)
    if moment < 0:
        raise click.BadParameter(f"{text} is before 1970")
    return LogPoint(text, option.default, moment)


def parse_partitions(
    context: click.Context, option: click.Parameter, text: str | None
) -> list[int] | None:
    """Return the partitions in the value of --partitions. Raises click.BadParameter."""
    if text is None:
        return None
    if not re.fullmatch(r" *\d{1,10} *(, *\d{1,10} *)*", text, re.ASCII):
        raise click.BadParameter(f"partitions are numbers with commas between them, not {text!r}")
    return sorted({int(number) for number in text.split(",")})


def _list_columns() -> list[str]:
    """Return the columns of Parquet. Raises ModuleNotFoundError without pyarrow."""
    from wirescan.kafka.client.topic_batches import COLUMNS

    return COLUMNS


@click.command(help=HELP, short_help="Copy a topic of a live cluster to segments or Parquet.")
@cluster_argument
@click.argument("topic")
@click.option(
    "--to",
    "directory",
    metavar="DIR",
    required=True,
    shell_complete=complete_directory,
    help="The directory to write to.",
)
@click.option(
    "--as",
    "kind",
    type=click.Choice(["segments", "parquet"]),
    default="segments",
    help="What to write: Kafka's own files, or Parquet.",
)
@click.option(
    "--partitions",
    metavar="0,1",
    callback=parse_partitions,
    help="Fetch these partitions only.",
)
@click.option(
    "--start",
    default="earliest",
    metavar="WHERE",
    callback=parse_log_point,
    help="The first record: an offset, a time (ISO 8601, UTC by default), earliest or latest.",
)
@click.option(
    "--stop",
    default="latest",
    metavar="WHERE",
    callback=parse_log_point,
    help="The end, written like --start. The record there is not fetched.",
)
@click.option(
    "--isolation",
    type=click.Choice(ISOLATIONS),
    default=ISOLATIONS[0],
    help="read_committed stops before an open transaction. Parquet then has no aborted records; "
    "segments keep them, with the markers that identify them.",
)
@errors_option("strict")
@check_option
@count_option(
    "--segment-bytes",
    default=SEGMENT_BYTES,
    help="Approximate bytes in a segment, or of the records in a Parquet file.",
)
@columns_option(PARQUET_COLUMNS, lambda context: _list_columns())
@compression_option(help=PARQUET_COMPRESSION)
@cluster_options
@json_option()
@click.pass_context
def fetch(
    context: click.Context,
    *,
    cluster: ClusterAddress,
    topic: str,
    directory: str,
    kind: str,
    partitions: list[int] | None,
    start: LogPoint,
    stop: LogPoint,
    isolation: str,
    errors: str,
    check: bool,
    segment_bytes: int,
    columns: str | None,
    compression: str | None,
    as_json: bool,
) -> None:
    """Run `wirescan fetch`."""
    from wirescan.kafka.client.topic_ranges import plan_ranges

    check_topic(topic)
    destination = _choose_destination(directory, kind, segment_bytes, columns, compression, errors)
    with report_broker_errors(), ExitStack() as stack:
        client = stack.enter_context(cluster.make_client())
        requested = plan_ranges(
            client,
            [topic],
            partitions,
            start=start.bound,
            stop=stop.bound,
            start_time=start.time,
            stop_time=stop.time,
            isolation=isolation,
        )
        settings = {
            "version": VERSION,
            "kind": kind,
            "start": start.text,
            "isolation": isolation,
            **destination.settings,
            **identify_topic(client, topic),
        }
        ledger = stack.enter_context(Ledger(destination.folder, topic, settings, check=check))
        ends = find_ends(ledger, destination.folder, requested, kind)
        remaining = find_remaining(client, ledger, requested, ends, isolation, errors)
        unfinished = [part for part in remaining if len(part)]
        stores = make_stores(destination, unfinished, ends)
        options = _make_fetch_options(destination, isolation, check=check)
        report = Copying(topic, unfinished, stores).fetch(client, options)
    lost_offsets = sum(part.deleted for part in remaining)
    report = {"to": directory, **report, "offsets_gone": lost_offsets}
    _print_report(report, len(remaining), is_marked=kind == "parquet", as_json=as_json)
    context.exit(DAMAGE if (lost_offsets or report["faults"]) and errors != "skip" else 0)


@dataclass(frozen=True)
class Destination:
    """Where the records go, and in which form.

    Attributes:
        folder: where the files go.
        kind: "segments" or "parquet".
        size: bytes of a segment, or of the records in a Parquet file.
        errors: "strict", "mark" or "skip".
        columns: of Parquet files.
        compression: of Parquet files.
        schema: of Parquet files; None for segments.
    """

    folder: Path
    kind: str
    size: int
    errors: str
    columns: Sequence[str] = ()
    compression: str = ""
    schema: pa.Schema | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What a later run into the same directory has to repeat."""
        if self.kind == "segments":
            return {}
        return {"columns": self.columns, "compression": self.compression}


def _choose_destination(
    directory: str, kind: str, size: int, columns: str | None, compression: str | None, errors: str
) -> Destination:
    """Return the destination that the options describe. Raises click.UsageError."""
    if kind == "segments":
        if columns or compression:
            raise click.UsageError("--columns and --compression are for --as parquet")
        return Destination(Path(directory), kind, size, errors)
    # Parquet needs pyarrow; segments do not.
    from wirescan.kafka.client.topic_batches import make_schema

    names = parse_names(columns, _list_columns()) or _list_columns()
    return Destination(
        Path(directory),
        kind,
        size,
        errors,
        names,
        compression or DEFAULT_COMPRESSION,
        make_schema(names),
    )


def _make_fetch_options(destination: Destination, isolation: str, *, check: bool) -> dict[str, Any]:
    """Return the arguments of `Client.fetch` that do not depend on the ranges."""
    options: dict[str, Any] = {
        "errors": destination.errors,
        "check": check,
        "fetch_bytes": min(FETCH_BYTES, destination.size),
    }
    if destination.kind == "parquet":
        return options | {"isolation": isolation}
    # Segments hold all transactions: their markers identify aborted ones.
    return options | {"records": False}


def _print_report(
    report: dict[str, Any], partitions: int, *, is_marked: bool, as_json: bool
) -> None:
    """Print the counts of `Copying.fetch`.

    Args:
        report: the counts, in the order of JSON.
        partitions: how many were requested.
        is_marked: bad frames are rows of the output; otherwise they were dropped.
        as_json: print one JSON object.
    """
    if as_json:
        click.echo(dump_json(report))
    else:
        click.echo(
            f"wrote {format_path(report['to'])}: {format_count(report['records'], 'record')}, "
            f"{format_bytes(report['bytes'])} of {format_count(partitions, 'partition')} in "
            f"{report['seconds']:.1f} s"
        )
    if report["faults"]:
        result = "marked in the column fault" if is_marked else "dropped"
        print_message(f"wirescan: {format_count(report['faults'], 'bad frame')}, {result}")


def find_ends(
    ledger: Ledger, folder: Path, requested: Sequence[OffsetRange], kind: str
) -> dict[int, End]:
    """Return how the files of each partition end, for partitions that have files.

    Nothing that could be of use is changed.

    Raises:
        Failure: if the files are not in the ledger, or a file name would be too long.
        Damage: as `find_segments_end`.
    """
    ends = {}
    for part in requested:
        check_name(folder, part.name if kind == "segments" else make_file_name(part.name, 0, 0))
        if part.partition in ledger.starts:
            if kind == "segments":
                end = find_segments_end(folder, part.name, check=ledger.check)
            else:
                end = find_parts_end(folder, part.name)
            if end is not None:
                ends[part.partition] = end
        elif has_partition(folder, part.name):
            raise Failure(
                f"{format_path(str(folder))} holds {part.name} already, and no fetch wrote it"
            )
    return ends


def find_remaining(
    client: Client,
    ledger: Ledger,
    requested: Sequence[OffsetRange],
    ends: Mapping[int, End],
    isolation: str,
    errors: str,
) -> list[OffsetRange]:
    """Return what is not fetched yet of each requested range, and add its start to the ledger.

    Raises Damage if the cluster no longer has some of the offsets.
    """
    from wirescan.kafka.client.topic_ranges import clip_ranges

    starts = ledger.starts | {number: end.offset for number, end in ends.items()}
    unfetched = []
    for part in requested:
        begin = starts.get(part.partition, part.start)
        # Segments may extend beyond the stop.
        unfetched.append(replace(part, start=begin, stop=max(begin, part.stop)))
    remaining = clip_ranges(client, unfetched, isolation)
    for part in remaining:
        if part.ahead and part.partition in ends:
            raise Damage(
                f"{part.name} ends before offset {part.start}, up to which it was fetched: its "
                "log was truncated"
            )
        if part.deleted:
            lost = f"offsets {part.start - part.deleted} to {part.start - 1}"
            message = f"{part.name}: {lost} are gone from the cluster"
            if errors == "strict":
                raise Damage(f"{message}; --errors mark continues after them")
            print_message(f"wirescan: {message}")
        offsets = f"nothing from offset {part.start} on"
        if len(part):
            offsets = f"offsets {part.start} to {part.stop - 1}"
        continued = ", where an earlier run ended" if part.partition in ends else ""
        print_message(f"{part.name}: {offsets}{continued}")
    ledger.add_starts(
        {part.partition: part.start for part in remaining if part.partition not in starts}
    )
    return remaining


def make_stores(
    destination: Destination, unfinished: Sequence[OffsetRange], ends: Mapping[int, End]
) -> dict[int, Store]:
    """Return a store for each range, by its partition.

    Args:
        destination: where the files go, and in which form.
        unfinished: the ranges to fetch.
        ends: how the files of each partition end.
    """
    stores: dict[int, Store] = {}
    for part in unfinished:
        if destination.schema is None:
            stores[part.partition] = Segments(
                destination.folder / part.name, destination.size, ends.get(part.partition)
            )
        else:
            stores[part.partition] = ParquetParts(
                destination.folder,
                part.name,
                part.start,
                destination.schema,
                destination.size,
                destination.compression,
                destination.errors,
                min(len(unfinished), SIDE_BY_SIDE),
            )
    return stores


class Copying:
    """Fetches ranges into the stores of their partitions, and counts what it wrote.

    Args:
        topic: the topic's name.
        unfinished: the ranges to fetch.
        stores: partition -> its store; a complete one is closed and removed.
    """

    def __init__(self, topic: str, unfinished: Sequence[OffsetRange], stores: dict[int, Store]):
        self._topic = topic
        self._started = time.perf_counter()
        self._open_stores = stores
        self._all_stores = list(stores.values())
        self._positions = {part.partition: part.start for part in unfinished}
        self._stops = {part.partition: part.stop for part in unfinished}
        self._offset_count = sum(map(len, unfinished))
        self._faults = 0

    def fetch(self, client: Client, options: Mapping[str, Any]) -> dict[str, Any]:
        """Fetch all ranges, and return the counts for the report.

        Args:
            client: of the cluster.
            options: further arguments of `Client.fetch`.
        """
        with FetchProgress(self._offset_count, self._topic) as progress, ExitStack() as stack:
            parts = stack.enter_context(
                client.fetch(
                    self._topic,
                    partitions=list(self._stops),
                    start=dict(self._positions),
                    stop=self._stops,
                    side_by_side=SIDE_BY_SIDE,
                    **options,
                )
            )
            stack.callback(client.close)  # runs first: threads may be waiting for an answer
            try:
                for part in parts:
                    count = self._store(part)
                    progress(count, f"{self._topic}: {self._describe()}")
            finally:
                for store in self._open_stores.values():
                    store.close()
        return {
            "partitions": len(self._positions),
            "records": self._sum_stores("records"),
            "bytes": self._sum_stores("bytes"),
            "files": self._sum_stores("files"),
            "faults": self._faults,
            "seconds": round(time.perf_counter() - self._started, 3),
        }

    def _store(self, part: Part) -> int:
        """Write a part to its store, and return the number of offsets that it covers."""
        number = part.partition
        # A store that fails is not closed: its file lacks what its name states.
        store = self._open_stores.pop(number)
        store.add(part)
        if part.next_offset < self._stops[number]:
            self._open_stores[number] = store
        else:
            store.close()
        table = part.batches if part.records is None else part.records
        self._faults += int(np.count_nonzero(table.bad))
        count = part.next_offset - self._positions[number]
        self._positions[number] = part.next_offset
        return count

    def _describe(self) -> str:
        """Return the counts and the rate so far, as text for people."""
        size = self._sum_stores("bytes")
        seconds = max(time.perf_counter() - self._started, SHORTEST_TIME)
        return (
            f"{self._sum_stores('records'):,} records, {format_bytes(size)}, "
            f"{format_bytes(size / seconds)}/s"
        )

    def _sum_stores(self, name: str) -> int:
        return sum(getattr(store, name) for store in self._all_stores)


class FetchProgress(Progress):
    """A progress bar over offsets."""

    def make_columns(self) -> list[ProgressColumn]:
        """Return what the bar shows."""
        from rich import progress

        return [
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(),
        ]
