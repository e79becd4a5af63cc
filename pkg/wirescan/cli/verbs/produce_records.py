"""`wirescan produce`: writes records from lines, JSON lines or segments to a live topic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from wirescan.cli.common import (
    DEFAULT_FORMAT,
    Damage,
    Failure,
    compute_total_size,
    describe_error,
    json_option,
    paths_argument,
    resolve_paths,
)
from wirescan.cli.output import dump_json, print_message
from wirescan.cli.progress import Progress
from wirescan.cli.support.cluster_options import (
    check_topic,
    cluster_argument,
    cluster_options,
    report_broker_errors,
)
from wirescan.cli.support.record_readers import (
    LineReader,
    RestoreReader,
    parse_json_line,
    parse_text_line,
)
from wirescan.cli.verbs.send import LINES
from wirescan.frames.errors import FrameError
from wirescan.frames.registry import format_of
from wirescan.frames.similar_names import hint_at_names
from wirescan.frames.value_text import DECODABLE, escape_text, format_bytes, format_count

if TYPE_CHECKING:
    from wirescan.cli.support.record_readers import Headers
    from wirescan.kafka.client.topic_ranges import ClusterAddress

ACKS = {"all": -1, "1": 1, "0": 0}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONERS = ("murmur2", "consistent", "consistent_random", "round_robin", "sticky")
BYTES_COLUMNS = ("key", "value", "headers")
LARGEST_PARTITION = (1 << 31) - 1

HELP = """Write records to a topic of a live Kafka cluster: from segments, lines or JSON lines.

\b
Examples:
  wirescan produce 127.0.0.1:9092 orders orders-0             restore a partition
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
with --acks 1. The same command again writes all records again.

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
    as_json: bool,
) -> None:
    """Run `wirescan produce`."""
    check_topic(topic)
    if partition is not None and partitioner is not None:
        raise click.UsageError("--partition and --partitioner exclude each other")
    files = resolve_paths(paths, format_of(DEFAULT_FORMAT) if lines is None else LINES)
    keeps_partitions = lines is None and partition is None and partitioner is None
    reader: LineReader | RestoreReader
    if lines is None:
        _refuse_options(key_separator, headers, encoding)
        reader = RestoreReader(files, errors, keeps_partitions=keeps_partitions)
    else:
        reader = _make_line_reader(lines, key_separator, headers, encoding, errors)
    options = {
        "acks": ACKS[acks],
        "codec": compression,
        "partitioner": partitioner or PARTITIONERS[0],
    }
    started = time.perf_counter()
    written = Written(topic, partition, partitioner, options)
    with report_broker_errors():
        written.write_files(cluster, files, reader)
    report = {
        "topic": topic,
        "files": len(files),
        "records": written.records,
        "bytes": reader.counts.bytes,
        "faults": reader.counts.faults,
        "excluded": reader.counts.excluded,
        "seconds": round(time.perf_counter() - started, 3),
        "partitions": written.list_partitions(),
    }
    _print_report(report, "bad frame" if lines is None else "line", as_json=as_json)


class Written:
    """Writes records, and notes which offsets they got.

    Args:
        topic: the topic.
        partition: where all records go; None: where the blocks or the partitioner say.
        partitioner: replaces the partitions of the blocks, if it is not None.
        options: further arguments of `Client.send`.

    Attributes:
        records: how many are written.
    """

    def __init__(
        self, topic: str, partition: int | None, partitioner: str | None, options: dict[str, Any]
    ):
        self._topic = topic
        self._partition = partition
        self._is_chosen = partition is not None or partitioner is not None
        self._options = options
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
                for path in files:
                    for block in reader.read(path, progress):
                        partition = self._partition if self._is_chosen else block.partition
                        self._add(
                            client.send(
                                self._topic, **block.columns, partition=partition, **self._options
                            )
                        )
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
