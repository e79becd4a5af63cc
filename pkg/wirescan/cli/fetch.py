"""`wirescan fetch`: a topic of a live cluster, to segments or Parquet; a second run goes on where the first ended."""
from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from wirescan.cli.common import DAMAGE, Damage, Failure, check_option, errors_option, listed
from wirescan.cli.convert import COMPRESSIONS
from wirescan.cli.output import bytes_of, counted, dump, name_of, say
from wirescan.cli.progress import Progress
from wirescan.cli.store import (
    LARGEST_OFFSET,
    End,
    Ledger,
    Parts,
    Segments,
    Store,
    check_name,
    is_there,
    part_name,
    parts_end,
    segments_end,
)
from wirescan.kafka.client.sasl import MECHANISMS
from wirescan.kafka.errors import BrokerError, ErrorCode
from wirescan.kafka.transactions import ISOLATIONS

if TYPE_CHECKING:
    from wirescan.kafka.client import Client
    from wirescan.topic import Range

TOPIC = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")         # what brokers take for a name
PASSWORD = "WIRESCAN_PASSWORD"
SEGMENT_BYTES = 1 << 30
FETCH_BYTES = 8 << 20
SIDE_BY_SIDE = 4                # partitions that are fetched at a time
VERSION = 1                     # of what lies in the directory


class Place(NamedTuple):
    """Where in a log to begin or to end: an offset, "earliest", "latest", or a time in milliseconds since 1970."""
    text: str
    where: int | str
    time: int | None = None


def place_of(context: click.Context, option: click.Parameter, text: str) -> Place:
    if text in ("earliest", "latest"):
        return Place(text, text)
    if text.isdecimal() and text.isascii():
        if len(text) > len(str(LARGEST_OFFSET)) or int(text) > LARGEST_OFFSET:
            raise click.BadParameter(f"offsets are {LARGEST_OFFSET} at the most")
        return Place(text, int(text))
    from wirescan.topic import milliseconds
    try:
        time = milliseconds(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no offset, no time such as 2026-01-31T12:00, and not earliest or "
                                 "latest") from None
    if time < 0:
        raise click.BadParameter(f"{text} is before 1970")
    return Place(text, option.default, time)


def numbers_of(context: click.Context, option: click.Parameter, text: str | None) -> list[int] | None:
    if text is None:
        return None
    if not re.fullmatch(r" *\d{1,10} *(, *\d{1,10} *)*", text, re.ASCII):
        raise click.BadParameter(f"partitions are numbers with commas between them, not {text!r}")
    return sorted({int(number) for number in text.split(",")})


@click.command(short_help="A topic of a live cluster, to segments or Parquet.")
@click.argument("bootstrap", metavar="HOST:PORT[,...]")
@click.argument("topic")
@click.option("--to", "directory", metavar="DIR", required=True, help="Where it goes.")
@click.option("--as", "kind", type=click.Choice(["segments", "parquet"]), default="segments", show_default=True)
@click.option("--partitions", metavar="0,1", callback=numbers_of, help="These partitions, not all.")
@click.option("--start", default="earliest", show_default=True, metavar="WHERE", callback=place_of,
              help="An offset, a time (ISO 8601, UTC unless it says), earliest or latest.")
@click.option("--stop", default="latest", show_default=True, metavar="WHERE", callback=place_of,
              help="The same; the record there is not fetched any more.")
@click.option("--isolation", type=click.Choice(ISOLATIONS), default=ISOLATIONS[0], show_default=True,
              help="read_committed: nothing behind an open transaction; Parquet leaves aborted ones out, segments "
                   "keep them, with the markers that say so.")
@errors_option("strict")
@check_option
@click.option("--segment-bytes", type=click.IntRange(min=1), default=SEGMENT_BYTES, show_default=True, metavar="N",
              help="Bytes of a segment, or of the records in a Parquet file, about.")
@click.option("--columns", metavar="A,B", help="Parquet: these columns, in this order; an unknown one lists them.")
@click.option("--compression", type=click.Choice(COMPRESSIONS), help="Parquet: zstd, unless given.")
@click.option("--tls", is_flag=True, help="Talk TLS, and trust the authorities of this system.")
@click.option("--tls-ca", metavar="FILE", help="Talk TLS, and trust the authorities in FILE (PEM).")
@click.option("--sasl", type=click.Choice(MECHANISMS), help="Log in.")
@click.option("--user", metavar="NAME")
@click.option("--password-file", metavar="FILE", help=f"Its first line; or set {PASSWORD}.")
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
@click.pass_context
def fetch(context: click.Context, bootstrap: str, topic: str, directory: str, kind: str, partitions: list[int] | None,
          start: Place, stop: Place, isolation: str, errors: str, check: bool, segment_bytes: int, columns: str | None,
          compression: str | None, tls: bool, tls_ca: str | None, sasl: str | None, user: str | None,
          password_file: str | None, as_json: bool) -> None:
    """A topic of a live cluster, into DIR: as segments in Kafka's own format, or as Parquet.

    \b
    Examples:
      wirescan fetch 127.0.0.1:9092 orders --to copy      what is there now
      wirescan stat copy/orders-0                         as a broker's files
      wirescan fetch 127.0.0.1:9092 orders --to out --as parquet
      wirescan fetch 127.0.0.1:9092 orders --to day \\
                     --start 2026-01-31 --stop 2026-02-01

    The same command again goes on where the last run ended, however it ended, kill -9 among the ways. When it is done,
    DIR holds each batch (segments) or record (Parquet) of the range once: none twice, none left out. Segments hold
    whole batches, so the first and the last may reach beyond the range.

    Offsets that the cluster has deleted before they were fetched are damage, like bad bytes: strict stops, mark and
    skip go on behind them, and tell.

    Exit codes: 0 good, 1 damage was met (not with --errors skip), 2 cannot be done.
    """
    from wirescan.topic import COLUMNS, Cluster, ranges, schema
    if not TOPIC.fullmatch(topic):
        raise click.UsageError(f"no topic can be named {name_of(topic)!r}")
    if kind == "segments" and (columns or compression):
        raise click.UsageError("--columns and --compression are for --as parquet")
    names = listed(columns, COLUMNS) or COLUMNS
    compression = compression or "zstd"
    cluster = Cluster(bootstrap, tls_ca or tls, login_of(sasl, user, password_file))
    held = {"version": VERSION, "kind": kind, "start": start.text, "isolation": isolation}
    if kind == "parquet":
        held |= {"columns": names, "compression": compression}
    folder = Path(directory)
    with told(), ExitStack() as stack:
        client = stack.enter_context(cluster.client())
        asked = ranges(client, [topic], partitions, start=start.where, stop=stop.where, start_time=start.time,
                       stop_time=stop.time, isolation=isolation)
        metadata = client.metadata([topic])
        if topic not in metadata.topics:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)
        held |= {"cluster": metadata.cluster_id, "topic id": metadata.topics[topic].id.hex()}
        ledger = stack.enter_context(Ledger(folder, topic, held, check))
        ends = kept(ledger, folder, asked, kind)
        found = remaining(client, ledger, asked, ends, isolation, errors)
        todo = [one for one in found if len(one)]
        stores: dict[int, Store] = {}
        for one in todo:
            stores[one.partition] = (
                Segments(folder / one.name, segment_bytes, ends.get(one.partition)) if kind == "segments" else
                Parts(folder, one.name, one.start, schema(names), segment_bytes, compression, errors,
                      min(len(todo), SIDE_BY_SIDE)))
        # Segments take all that lies before the end, whatever became of it: markers tell, as in a broker's.
        options: dict[str, Any] = {"isolation": isolation} if kind == "parquet" else {"records": False}
        options |= {"errors": errors, "check": check, "fetch_bytes": min(FETCH_BYTES, segment_bytes)}
        report = copied(client, topic, todo, stores, options)
    gone = sum(one.gone for one in found)
    if as_json:
        click.echo(dump({"to": directory, **report, "offsets_gone": gone}))
    else:
        click.echo(f"wrote {name_of(directory)}: {counted(report['records'], 'record')}, {bytes_of(report['bytes'])} "
                   f"of {counted(len(found), 'partition')} in {report['seconds']:.1f} s")
    if report["faults"]:
        left = "marked in the column fault" if kind == "parquet" else "left out"
        say(f"wirescan: {counted(report['faults'], 'bad frame')}, {left}")
    context.exit(DAMAGE if (gone or report["faults"]) and errors != "skip" else 0)


def login_of(sasl: str | None, user: str | None, password_file: str | None) -> tuple[str, str, str] | None:
    if sasl is None:
        if user or password_file:
            raise click.UsageError("--user and --password-file are for --sasl")
        return None
    if user is None:
        raise click.UsageError("--sasl needs --user")
    if password_file is not None:
        try:
            with open(password_file, encoding="utf-8") as file:
                return sasl, user, file.readline().rstrip("\r\n")
        except UnicodeDecodeError:
            raise Failure(f"{name_of(password_file)} is not UTF-8") from None
    if PASSWORD not in os.environ:
        raise click.UsageError(f"--sasl needs --password-file, or {PASSWORD} in the environment")
    return sasl, user, os.environ[PASSWORD]


@contextmanager
def told() -> Iterator[None]:
    """What a broker answers, as an exit code and a line."""
    try:
        yield
    except BrokerError as error:
        raise (Damage if error.code == ErrorCode.OFFSET_OUT_OF_RANGE else Failure)(str(error)) from None


def kept(ledger: Ledger, folder: Path, asked: Sequence[Range], kind: str) -> dict[int, End]:
    """How each partition ends of which there is something on the disk. Changes nothing that could be of use.

    Raises Failure where it is not in the ledger, or where a name is too long; Damage as `segments_end`."""
    ends = {}
    for one in asked:
        check_name(folder, one.name if kind == "segments" else part_name(one.name, 0, 0))
        if one.partition in ledger.starts:
            end = segments_end(folder, one.name, ledger.check) if kind == "segments" else parts_end(folder, one.name)
            if end is not None:
                ends[one.partition] = end
        elif is_there(folder, one.name):
            raise Failure(f"{name_of(str(folder))} holds {one.name} already, and no fetch put it there")
    return ends


def remaining(client: Client, ledger: Ledger, asked: Sequence[Range], ends: Mapping[int, End], isolation: str,
              errors: str) -> list[Range]:
    """What is to be fetched yet of the ranges asked for. Raises Damage where offsets are gone."""
    from wirescan.topic import there
    starts = ledger.starts | {number: end.offset for number, end in ends.items()}
    wanted = [replace(one, start=begin, stop=max(begin, one.stop))      # segments may reach beyond the stop
              for one in asked for begin in [starts.get(one.partition, one.start)]]
    found = there(client, wanted, isolation)
    for one in found:
        if one.ahead and one.partition in ends:
            raise Damage(f"{one.name} ends before offset {one.start:,}, up to which it was fetched: its log was cut")
        if one.gone:
            message = f"{one.name}: offsets {one.start - one.gone:,} to {one.start - 1:,} are gone from the cluster"
            if errors == "strict":
                raise Damage(f"{message}; --errors mark goes on behind them")
            say(f"wirescan: {message}")
        what = f"offsets {one.start:,} to {one.stop - 1:,}" if len(one) else f"nothing from offset {one.start:,} on"
        say(f"{one.name}: {what}{', where an earlier run ended' if one.partition in ends else ''}")
    ledger.begin({one.partition: one.start for one in found if one.partition not in starts})
    return found


def copied(client: Client, topic: str, todo: Sequence[Range], stores: dict[int, Store],
           options: Mapping[str, Any]) -> dict[str, Any]:
    """Fetches the ranges into the stores, and counts."""
    begun, every, faults = time.perf_counter(), list(stores.values()), 0
    at, stops = {one.partition: one.start for one in todo}, {one.partition: one.stop for one in todo}

    def total(name: str) -> int:
        return sum(getattr(store, name) for store in every)

    with ExitStack() as stack:
        progress = stack.enter_context(Fetched(sum(map(len, todo)), topic))
        parts = stack.enter_context(client.fetch(topic, partitions=list(at), start=dict(at), stop=stops,
                                                 side_by_side=SIDE_BY_SIDE, **options))
        stack.callback(client.close)            # first of all: threads may be waiting for an answer
        try:
            for part in parts:
                number, table = part.partition, part.batches if part.records is None else part.records
                store = stores.pop(number)      # should this fail, it is not closed: it does not hold what it says
                store.add(part)
                if part.next_offset < stops[number]:
                    stores[number] = store
                else:
                    store.close()
                faults += int(np.count_nonzero(table.bad))
                seconds = max(time.perf_counter() - begun, 1e-3)
                progress.told(part.next_offset - at[number],
                              f"{topic}: {total('records'):,} records, {bytes_of(total('bytes'))}, "
                              f"{bytes_of(total('bytes') / seconds)}/s")
                at[number] = part.next_offset
        finally:
            for store in stores.values():
                store.close()
    return {"partitions": len(todo), "records": total("records"), "bytes": total("bytes"), "files": total("files"),
            "faults": faults, "seconds": round(time.perf_counter() - begun, 3)}


class Fetched(Progress):
    """A bar over offsets."""

    def told(self, count: int, about: str) -> None:
        """So many offsets more, and what to say beside the bar."""
        self._about = about
        if self._bar is not None:
            self._bar.update(self._task, description=about)
        self(count)

    def _start(self) -> None:
        from rich import progress
        from rich.console import Console
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"), progress.BarColumn(), progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(), console=Console(stderr=True), transient=True, redirect_stderr=False,
            redirect_stdout=False)
        self._task = self._bar.add_task(self._about, total=self._total)
        self._bar.start()
