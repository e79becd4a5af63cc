"""`wirescan produce`: writes records from lines, JSON lines or segments to a live topic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from wirescan.cli.common_options import json_option, paths_argument
from wirescan.cli.exit_codes import Damage, Failure, describe_error
from wirescan.cli.format_command import DEFAULT_FORMAT
from wirescan.cli.output import dump_json, format_path, print_message
from wirescan.cli.path_arguments import compute_total_size, resolve_paths
from wirescan.cli.progress import Progress
from wirescan.cli.support.cluster_options import (
    check_topic,
    cluster_argument,
    cluster_options,
    identify_topic,
    report_broker_errors,
)
from wirescan.cli.support.record_readers import (
    LineReader,
    RestoreReader,
    get_directory,
    is_stream,
    parse_json_line,
    parse_text_line,
)
from wirescan.cli.support.resume_file import ResumeFile
from wirescan.cli.support.selection import Selection
from wirescan.cli.support.selection_options import record_selection_options
from wirescan.cli.verbs.send import LINES
from wirescan.files.source import read_ahead
from wirescan.frames.errors import FrameError
from wirescan.frames.registry import format_of
from wirescan.frames.similar_names import hint_at_names
from wirescan.frames.value_text import DECODABLE, escape_text, format_bytes, format_count

if TYPE_CHECKING:
    from wirescan.cli.support.record_readers import Headers, RecordBlock
    from wirescan.kafka.client import Client
    from wirescan.kafka.client.topic_ranges import ClusterAddress

ACKS = {"all": -1, "1": 1, "0": 0}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONERS = ("murmur2", "consistent", "consistent_random", "round_robin", "sticky")
BYTES_COLUMNS = ("key", "value", "headers")
LARGEST_PARTITION = (1 << 31) - 1
RESUME_RECORDS = 10_000  # records that may be written twice after an interruption

HELP = """Write records to a topic of a live Kafka cluster: from segments, lines or JSON lines.

\b
Examples:
  wirescan produce 127.0.0.1:9092 orders orders-0             restore a partition
  wirescan produce 127.0.0.1:9092 orders backup/orders-* --resume progress
  wirescan produce 127.0.0.1:9092 orders orders-0 --since 2026-01-31 --where 'key ~ "^a"'
  wirescan produce 127.0.0.1:9092 orders copy/orders-* --compression zstd
  wirescan scan orders-0 --json | jq -c 'select(.key != null)' |
    wirescan produce 127.0.0.1:9092 orders - --lines json
  wirescan produce 127.0.0.1:9092 log app.log --lines text
  tail -f app.log | wirescan produce 127.0.0.1:9092 log - --lines text --key-separator :

Records of segments keep their order, key, value, headers and timestamp, and get new offsets. Each
goes to the partition that its directory is named after. Control records, and records of
transactions that were aborted or have no end, are not written.

A JSON line has the fields of `wirescan scan --json`: "key", "value", "headers", "timestamp", and
perhaps "partition". Other fields are ignored. A record without a timestamp gets the current time.

Each record is written once, if the cluster does not lose what it acknowledged, or at least once
with --acks 1. The same command again writes all records again. With --resume FILE it continues:
the file has the offset up to which each directory is written. The records that were on the way when
a run ended, at most 10,000, may be written twice.

Exit codes: 0 all is written, 1 damage was found (not with --errors skip), 2 cannot be done.
"""


@click.command(help=HELP, short_help="Write lines, JSON lines or segments to a live topic.")
@cluster_argument
@click.argument("topic")
@paths_argument
@click.option(
    "--lines",
    type=click.Choice(["json", "text"]),
    help="Read lines instead of segments. json: what `wirescan scan --json` writes. text: each "
    "line is a value.",
)
@click.option(
    "--key-separator",
    metavar="TEXT",
    help="With --lines text: the first TEXT of a line ends the key. A line without it has no key.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --lines text: a header of each record. The option may be repeated.",
)
@click.option(
    "--encoding",
    default="utf8",
    metavar="NAME,COLUMN=NAME",
    help="With --lines json: the notation of bytes: utf8, base64, hex or escape.",
)
@click.option(
    "--partition",
    type=click.IntRange(0, LARGEST_PARTITION),
    metavar="N",
    help="Write all records to this partition.",
)
@click.option(
    "--partitioner",
    type=click.Choice(PARTITIONERS),
    help="Choose the partition of each record anew. The default for lines is murmur2, as in Java.",
)
@click.option("--acks", type=click.Choice([*ACKS]), default="all", help="Which replicas confirm.")
@click.option("--compression", type=click.Choice(CODECS), default="none", help="The codec.")
@click.option(
    "--errors",
    type=click.Choice(["strict", "skip"]),
    default="strict",
    help="On damage, or a line that is no record: stop (strict) or drop it (skip).",
)
@record_selection_options
@click.option(
    "--resume",
    "resume_path",
    metavar="FILE",
    help="Note in FILE what is written. The same command again continues after it.",
)
@cluster_options
@json_option()
def produce(
    *,
    cluster: ClusterAddress,
    topic: str,
    paths: tuple[str, ...],
    lines: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    encoding: str,
    partition: int | None,
    partitioner: str | None,
    acks: str,
    compression: str,
    errors: str,
    selection: Selection,
    resume_path: str | None,
    as_json: bool,
) -> None:
    """Run `wirescan produce`."""
    check_topic(topic)
    if partition is not None and partitioner is not None:
        raise click.UsageError("--partition and --partitioner exclude each other")
    if lines is None:
        _refuse_options(key_separator, headers, encoding)
    else:
        _refuse_segment_options(selection, resume_path)
    if resume_path is not None and not ACKS[acks]:
        raise click.UsageError("--resume needs acknowledgements: --acks all or 1")
    files = resolve_paths(paths, format_of(DEFAULT_FORMAT) if lines is None else LINES)
    options = {
        "acks": ACKS[acks],
        "codec": compression,
        "partitioner": partitioner or PARTITIONERS[0],
    }
    started = time.perf_counter()
    with report_broker_errors(), ExitStack() as stack:
        resume = None
        if resume_path is not None:
            destination = {"partition": partition, "partitioner": partitioner}
            settings = _make_settings(cluster, topic, selection, destination)
            resume = stack.enter_context(ResumeFile(resume_path, settings))
        reader: LineReader | RestoreReader
        if lines is None:
            keeps_partitions = partition is None and partitioner is None
            reader = _make_restore_reader(
                files, errors, selection, resume, keeps_partitions=keeps_partitions
            )
            files = reader.files
        else:
            reader = _make_line_reader(lines, key_separator, headers, encoding, errors)
        written = Written(topic, partition, partitioner, options, resume)
        written.write_files(cluster, files, reader)
    report = _make_report(topic, files, written, reader, time.perf_counter() - started)
    _print_report(report, "bad frame" if lines is None else "line", as_json=as_json)


def _make_report(
    topic: str,
    files: Sequence[str],
    written: Written,
    reader: LineReader | RestoreReader,
    seconds: float,
) -> dict[str, Any]:
    """Return what was written, for `_print_report`."""
    return {
        "topic": topic,
        "files": len(files),
        "records": written.records,
        "bytes": reader.counts.bytes,
        "faults": reader.counts.faults,
        "excluded": reader.counts.excluded,
        "seconds": round(seconds, 3),
        "partitions": written.list_partitions(),
    }


class Written:
    """Writes records, and notes which offsets they got.

    Args:
        topic: the topic.
        partition: where all records go; None: where the blocks or the partitioner say.
        partitioner: replaces the partitions of the blocks, if it is not None.
        options: further arguments of `Client.send`.
        resume: notes what is written; optional.

    Attributes:
        records: how many are written.
    """

    def __init__(
        self,
        topic: str,
        partition: int | None,
        partitioner: str | None,
        options: dict[str, Any],
        resume: ResumeFile | None = None,
    ):
        self._topic = topic
        self._partition = partition
        self._is_chosen = partition is not None or partitioner is not None
        self._options = options
        self._resume = resume
        self._partitions: dict[int, tuple[int, int, int]] = {}
        self.records = 0

    def write_files(
        self, cluster: ClusterAddress, files: Sequence[str], reader: LineReader | RestoreReader
    ) -> None:
        """Write the records of files, in order.

        Raises Damage and Failure with the number of records that were written before.
        """
        from wirescan.kafka.client import ProduceError

        progress = Progress(compute_total_size(files), f"writing to {escape_text(self._topic)}")
        try:
            with cluster.make_client() as client, progress:
                for path in read_ahead(files):
                    for block in reader.read(path, progress):
                        self._write_block(client, block)
        except KeyboardInterrupt:
            print_message(f"wirescan: {self._describe_written()}")
            raise
        except ProduceError as error:
            self._add(error.sent)
            raise Failure(self._describe_failure(str(error))) from None
        except FrameError as error:
            raise Damage(self._describe_failure(describe_error(error))) from None
        except Damage as error:
            raise Damage(self._describe_failure(error.message)) from None
        except (OSError, ValueError) as error:
            raise Failure(self._describe_failure(describe_error(error))) from None

    def _write_block(self, client: Client, block: RecordBlock) -> None:
        """Write a block, and note how much of it is written. Raises as `Client.send`."""
        from wirescan.kafka.client import ProduceError

        if self._resume is not None:
            _check_order(block, self._resume)
        partition = self._partition if self._is_chosen else block.partition
        try:
            sent = client.send(self._topic, **block.columns, partition=partition, **self._options)
        except ProduceError as error:
            # The rows before the first one that is not known to be written.
            count = int(np.concatenate([error.unknown, error.unsent]).min(initial=block.count))
            self._note_progress(block, count)
            raise
        self._add(sent)
        self._note_progress(block, block.count)

    def _note_progress(self, block: RecordBlock, count: int) -> None:
        """Note that the first records of a block are written."""
        if self._resume is None or not count:
            return
        assert block.log is not None
        assert block.offsets is not None
        self._resume.add(block.log, int(block.offsets[count - 1]) + 1, count)

    def list_partitions(self) -> list[dict[str, int | None]]:
        """Return the records and the offsets of each partition, for JSON."""
        return [
            {
                "partition": number,
                "records": count,
                "first_offset": None if first < 0 else first,
                "last_offset": None if last < 0 else last,
            }
            for number, (count, first, last) in sorted(self._partitions.items())
        ]

    def _add(self, sent: np.ndarray) -> None:
        """Note the result of `Client.send`."""
        for number, count, first, last in sent.tolist():
            earlier, start, _ = self._partitions.get(number, (0, first, last))
            self._partitions[number] = earlier + count, start, last
            self.records += count

    def _describe_failure(self, reason: str) -> str:
        """Return why writing ended, and what is written."""
        return f"{reason}; {self._describe_written()}"

    def _describe_written(self) -> str:
        """Return what is written, as text for people."""
        offsets = ", ".join(
            f"partition {item['partition']} to offset {item['last_offset']}"
            for item in self.list_partitions()
            if item["last_offset"] is not None
        )
        count = f"records acknowledged: {self.records:,}"
        return f"{count} ({offsets})" if offsets else count


def _check_order(block: RecordBlock, resume: ResumeFile) -> None:
    """Raise Failure for a block that is before the progress in its log."""
    assert block.log is not None
    assert block.offsets is not None
    previous = np.concatenate([[resume.next_offsets.get(block.log, 0) - 1], block.offsets[:-1]])
    if (block.offsets <= previous).any():
        raise Failure(
            f"{format_path(block.log)}: the offsets do not rise, so --resume cannot note what is "
            "written: give the segments in order, or salvage the log first"
        )


def _make_settings(
    cluster: ClusterAddress, topic: str, selection: Selection, destination: dict[str, Any]
) -> dict[str, Any]:
    """Return what every run with the same --resume has to repeat. Raises BrokerError, OSError."""
    with cluster.make_client() as client:
        ids = identify_topic(client, topic)
    conditions = [repr(condition) for condition in selection.conditions]
    return {"topic": topic, **ids, **destination, "conditions": conditions}


def _make_restore_reader(
    files: Sequence[str],
    errors: str,
    selection: Selection,
    resume: ResumeFile | None,
    *,
    keeps_partitions: bool,
) -> RestoreReader:
    """Return the reader of segments. Raises Failure for what cannot be written or continued."""
    if resume is None:
        return RestoreReader(
            files,
            errors,
            keeps_partitions=keeps_partitions,
            selection=selection,
            next_offsets={},
        )
    for path in files:
        if is_stream(path):
            raise Failure(f"{format_path(path)}: --resume needs files, not a pipe")
    for log in sorted({get_directory(path) for path in files} & resume.next_offsets.keys()):
        print_message(f"{format_path(log)}: continues at offset {resume.next_offsets[log]}")
    if selection.limit is not None:
        selection = replace(selection, limit=max(selection.limit - resume.records, 0))
    return RestoreReader(
        files,
        errors,
        keeps_partitions=keeps_partitions,
        selection=selection,
        next_offsets=dict(resume.next_offsets),
        most=RESUME_RECORDS,
    )


def _refuse_segment_options(selection: Selection, resume_path: str | None) -> None:
    """Raise click.UsageError for options that are only for segments."""
    is_given = selection.conditions or selection.partitions is not None or selection.has_choice
    if is_given or resume_path is not None:
        raise click.UsageError("the options that select records, and --resume, are for segments")


def _refuse_options(key_separator: str | None, headers: Sequence[str], encoding: str) -> None:
    """Raise click.UsageError for options that are only for lines."""
    if key_separator is not None or headers:
        raise click.UsageError("--key-separator and --header are for --lines text")
    if encoding != DECODABLE[0]:
        raise click.UsageError("--encoding is for --lines json")


def _make_line_reader(
    lines: str, key_separator: str | None, headers: Sequence[str], encoding: str, errors: str
) -> LineReader:
    """Return the reader of lines that the options describe. Raises click.UsageError."""
    if lines == "json":
        if key_separator is not None or headers:
            raise click.UsageError("--key-separator and --header are for --lines text")
        return LineReader(partial(parse_json_line, encodings=_parse_encodings(encoding)), errors)
    if encoding != DECODABLE[0]:
        raise click.UsageError("--encoding is for --lines json")
    if key_separator == "":
        raise click.UsageError("--key-separator needs a text")
    pairs: Headers = []
    for header in headers:
        name, equals, value = header.partition("=")
        if not equals:
            raise click.UsageError(f"a header is NAME=VALUE, not {escape_text(header)!r}")
        pairs.append((_to_bytes(name), _to_bytes(value)))
    separator = None if key_separator is None else _to_bytes(key_separator)
    return LineReader(partial(parse_text_line, key_separator=separator, headers=pairs), errors)


def _to_bytes(text: str) -> bytes:
    """Return an argument of the command line as the bytes that the user gave."""
    return text.encode("utf-8", "surrogateescape")


def _parse_encodings(option: str) -> dict[str, str]:
    """Return the encoding of each column of bytes. Raises click.UsageError."""
    encodings = dict.fromkeys(BYTES_COLUMNS, DECODABLE[0])
    chosen: dict[str, str] = {}
    for item in option.split(","):
        column, equals, name = (part.strip() for part in item.rpartition("="))
        if name not in DECODABLE:
            hint = hint_at_names(name, DECODABLE)
            raise click.UsageError(f"bytes cannot be read from the encoding {name!r}{hint}")
        if not equals:
            encodings = dict.fromkeys(BYTES_COLUMNS, name)
        elif column in BYTES_COLUMNS:
            chosen[column] = name
        else:
            hint = hint_at_names(column, BYTES_COLUMNS)
            raise click.UsageError(f"there is no column {column!r} with bytes{hint}")
    return encodings | chosen


def _print_report(report: dict[str, Any], dropped: str, *, as_json: bool) -> None:
    """Print the report of `produce`.

    Args:
        report: the counts, in the order of JSON.
        dropped: the noun for what was dropped, such as "bad frame".
        as_json: print one JSON object.
    """
    if as_json:
        click.echo(dump_json(report))
    else:
        for item in report["partitions"]:
            offsets = ""
            if item["first_offset"] is not None:
                offsets = f", offsets {item['first_offset']} to {item['last_offset']}"
            count = format_count(item["records"], "record")
            click.echo(f"{report['topic']}-{item['partition']}: {count}{offsets}")
        click.echo(
            f"wrote {format_count(report['records'], 'record')} of "
            f"{format_count(report['files'], 'file')}, {format_bytes(report['bytes'])}, in "
            f"{report['seconds']:.1f} s"
        )
    if excluded := report["excluded"]:
        count = f"{excluded:,} batch" + ("es" if excluded > 1 else "")
        print_message(
            f"wirescan: {count} of transactions not written: markers, and data that was not "
            "committed"
        )
    if report["faults"]:
        print_message(f"wirescan: {format_count(report['faults'], dropped)} dropped")
