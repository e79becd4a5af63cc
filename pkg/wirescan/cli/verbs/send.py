"""`wirescan send`: sends the events in files to a receiver, until it has acked them all."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from wirescan.cli.common_options import count_option, json_option, paths_argument, seconds_option
from wirescan.cli.completion import complete_file
from wirescan.cli.exit_codes import Damage, Failure, describe_error
from wirescan.cli.file_ends import describe_tail
from wirescan.cli.input import read_input
from wirescan.cli.output import dump_json, format_path, print_message
from wirescan.cli.path_arguments import compute_total_size, resolve_paths
from wirescan.cli.progress import Progress
from wirescan.cli.support.line_blocks import iter_line_blocks
from wirescan.cli.support.tls import make_client_context
from wirescan.cli.verbs.receive import PROTOCOLS, parse_address
from wirescan.files.source import read_ahead
from wirescan.frames.errors import FrameError, make_frame_error
from wirescan.frames.format import Format
from wirescan.frames.registry import format_of
from wirescan.frames.table import FrameTable
from wirescan.frames.value_text import format_bytes, format_count, show_bytes
from wirescan.reading.chunked import scan_outermost
from wirescan.reading.nested_groups import open_nested

if TYPE_CHECKING:
    from wirescan.lumberjack.live.client import Client

PIECE = 4 << 20  # bytes read at a time
SHOWN_BYTES = 40  # of a bad line
LARGEST_WINDOW = (1 << 32) - 1  # events
VERSIONS = ("1", "2")
LINES = Format("lines", "", np.dtype([]), read=FrameTable)  # the format of files of lines

HELP = """Send the events in files to a receiver of Lumberjack, and wait until all are acked.

\b
Examples:
  wirescan send lumberjack 127.0.0.1:5044 events             what `wirescan receive` kept
  wirescan send lumberjack 127.0.0.1:5044 access.log --lines text
  jq -c .doc hits.json | wirescan send lumberjack logs:5044 - --lines json --compress 3
  wirescan send lumberjack logs:5044 *.log --lines text --tls-ca authority.pem

The events of frames, also of captures, are sent unchanged, with new numbers and in new windows. In
a directory, the files *.lumberjack are sent; with --lines, all files. In a line of text that is not
UTF-8, U+FFFD replaces the bad bytes; with --version 1 the line is sent unchanged. Lost connections
are made again, and events that were not acked are sent again. Each event arrives at least once.

Exit codes: 0 all is acked, 1 damage was found (not with --errors skip), 2 cannot be done.
"""


@click.command(help=HELP, short_help="Send files to a receiver of Lumberjack, such as Logstash.")
@click.argument("protocol", type=click.Choice(PROTOCOLS))
@click.argument("address", metavar="HOST:PORT", callback=parse_address)
@paths_argument
@click.option(
    "--lines",
    type=click.Choice(["json", "text"]),
    help="Read lines instead of frames. json: each line is an event, a JSON object. text: each "
    'line becomes the field "message" of an event.',
)
@click.option(
    "--version",
    type=click.Choice(VERSIONS),
    help="Use this version of the protocol. The default is 2 for lines, and for frames the version "
    "of each frame.",
)
@count_option(
    "--window",
    default=2048,
    help="Maximum events in a window. Many receivers accept up to 10000.",
    largest=LARGEST_WINDOW,
)
@count_option("--pipelining", default=2, help="Maximum windows that wait for their ack.")
@click.option(
    "--compress",
    "level",
    type=click.IntRange(0, 9),
    metavar="0-9",
    help="Compress with zlib, at this level.",
)
@click.option(
    "--errors",
    type=click.Choice(["strict", "skip"]),
    default="strict",
    help="On damage, or a line that is no JSON object: stop (strict) or drop it (skip).",
)
@click.option("--tls", is_flag=True, help="Use TLS, and trust the authorities of this system.")
@click.option(
    "--tls-ca",
    metavar="FILE",
    shell_complete=complete_file,
    help="Use TLS, and trust the authorities in FILE (PEM).",
)
@click.option(
    "--tls-cert",
    nargs=2,
    metavar="CERT KEY",
    help="Use TLS, with this client certificate and its key (PEM).",
)
@seconds_option("--timeout", 30, "Maximum time for a silent receiver.", smallest=0.1)
@count_option("--attempts", default=8, help="Give up after N connections in a row without an ack.")
@json_option()
def send(
    *,
    protocol: str,
    address: tuple[str, int],
    paths: tuple[str, ...],
    lines: str | None,
    version: str | None,
    window: int,
    pipelining: int,
    level: int | None,
    errors: str,
    tls: bool,
    tls_ca: str | None,
    tls_cert: tuple[str, str] | None,
    timeout: float,
    attempts: int,
    as_json: bool,
) -> None:
    """Run `wirescan send`."""
    from wirescan.lumberjack.live.client import Client

    if lines == "json" and version == "1":
        raise click.UsageError("--lines json is for version 2: version 1 has fields of text")
    files = resolve_paths(paths, format_of(f"{protocol}.frames") if lines is None else LINES)
    started = time.perf_counter()
    reader = EventReader(protocol, lines, version, errors)
    client = Client(
        *address,
        tls=make_client_context(tls_ca, tls_cert, use_tls=tls),
        timeout=timeout,
        attempts=attempts,
        window=window,
        pipelining=pipelining,
        level=level,
        version=int(version) if version else None,
    )
    try:
        _send_files(files, reader, client)
    except (OSError, FrameError, Damage) as error:
        text = _describe_failure(error, client.acknowledged)
        raise (Failure if isinstance(error, OSError) else Damage)(text) from None
    report = {
        "files": len(files),
        "events": client.acknowledged,
        "bytes": reader.bytes,
        "faults": reader.faults,
        "connections": client.connections,
        "seconds": round(time.perf_counter() - started, 3),
    }
    _print_report(
        report, reader.replaced, "bad frame" if lines is None else "line", as_json=as_json
    )


def _send_files(files: Sequence[str], reader: EventReader, client: Client) -> None:
    """Send the events in files, and wait until all are acked.

    Raises FrameError and Damage after the events that precede the damage are acked, and OSError.
    """
    with Progress(compute_total_size(files), "sending") as progress, client:
        try:
            for path in read_ahead(files):
                for part in reader.read(path, progress):
                    client.send(part)
        except (FrameError, Damage):
            client.flush()  # sends what precedes the damage
            raise


def _describe_failure(error: OSError | FrameError | Damage, acknowledged: int) -> str:
    """Return why sending ended, as one line for people; `acknowledged` counts the events before."""
    text = error.message if isinstance(error, Damage) else describe_error(error)
    if isinstance(error, FrameError) and error.offset == 0 and not error.inflated:
        text += "; lines of JSON or text need --lines"
    return f"{text}; events acked before: {acknowledged:,}"


def _print_report(report: dict[str, Any], replaced: int, dropped: str, *, as_json: bool) -> None:
    """Print the report of `send`.

    Args:
        report: the counts, in the order of JSON.
        replaced: lines that are not UTF-8.
        dropped: the noun for what was dropped, such as "bad frame".
        as_json: print one JSON object.
    """
    if as_json:
        click.echo(dump_json(report))
    else:
        click.echo(
            f"sent {format_count(report['events'], 'event')} of "
            f"{format_count(report['files'], 'file')}, {format_bytes(report['bytes'])}, in "
            f"{report['seconds']:.1f} s"
        )
    if replaced:
        print_message(
            f"wirescan: {format_count(replaced, 'line')} not in UTF-8: U+FFFD replaces the "
            "bad bytes"
        )
    if report["faults"]:
        print_message(f"wirescan: {format_count(report['faults'], dropped)} dropped")


class EventReader:
    """Reads events from files, and counts what it reads.

    Args:
        protocol: one of PROTOCOLS.
        lines: "json" or "text" for files of lines; None for files of frames.
        version: of the protocol, for lines; "1" takes bytes instead of text.
        errors: "strict" raises an error for a bad frame, or for a line that is no JSON object,
            after the events before it; "skip" drops them.

    Attributes:
        bytes: all bytes of the files.
        faults: bad frames or lines that were dropped.
        replaced: lines that are not UTF-8.
    """

    def __init__(self, protocol: str, lines: str | None, version: str | None, errors: str):
        self._format = format_of(f"{protocol}.events")
        self._lines = lines
        self._version = version
        self._errors = errors
        self.bytes = 0
        self.faults = 0
        self.replaced = 0

    def read(self, path: str, progress: Progress) -> Iterator[Any]:
        """Yield the events in a file, in parts that `Client.send` takes.

        Raises:
            FrameError: for a bad frame.
            Damage: for a line that is no JSON object, or is too long.
        """

        def advance(count: int) -> None:
            self.bytes += count
            progress(count)

        pieces = read_input(path, advance, PIECE)
        read = self._read_frames if self._lines is None else self._read_lines
        return read(path, pieces)

    def _read_frames(self, path: str, pieces: Iterable[memoryview]) -> Iterator[FrameTable]:
        """Yield the events in a file of frames, in tables with one protocol version each.

        A frame that the file's end cuts is dropped, with a message.
        """
        options: dict[str, Any] = {"errors": "mark", "source": path}
        for table in scan_outermost(pieces, self._format.outermost, **options):
            for part in open_nested(table, self._format, **options):
                error = None
                if self._errors == "strict" and part.bad.any():
                    row = int(part.bad.argmax())
                    error = make_frame_error(part, row)
                    error.source = path
                    part = part[:row]
                self.faults += int(np.count_nonzero(part.bad))
                part = part.where(~part.bad)
                ends = np.flatnonzero(np.diff(part["version"])) + 1  # a window has one version
                for first, stop in zip([0, *ends], [*ends, len(part)]):
                    yield part[first:stop]
                if error is not None:
                    raise error
        if tail := describe_tail(table, path):
            print_message(f"wirescan: {tail}, dropped")

    def _read_lines(self, path: str, pieces: Iterable[memoryview]) -> Iterator[list[Any]]:
        """Yield the lines of a file as lists of events, without empty lines."""
        for block in iter_line_blocks(path, pieces):
            events: list[Any] = []
            for number, line in block:
                if self._lines == "text" and line:
                    events.append({"message": line if self._version == "1" else self._decode(line)})
                elif self._lines == "json" and line.strip():
                    if is_json_object(line):
                        events.append(line)
                    elif self._errors == "strict":
                        yield events
                        raise Damage(
                            f"{format_path(path)}: line {number:,} is no JSON object: "
                            f"{show_bytes(line[:SHOWN_BYTES])}"
                        )
                    else:
                        self.faults += 1
            yield events

    def _decode(self, line: bytes) -> str:
        """Return a line as text, with U+FFFD in place of bytes that are not UTF-8."""
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.replaced += 1
            return line.decode(errors="replace")


def is_json_object(line: bytes) -> bool:
    """Return whether a line is a JSON object in UTF-8, which receivers accept as an event.

    A byte order mark and the numbers NaN and Infinity are no JSON. A number may be of any size.
    """
    try:
        value = STRICT_JSON.decode(line.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number of JSON")


# `json` refuses integers of many digits. `json.loads` makes a new decoder in each call.
STRICT_JSON = json.JSONDecoder(parse_int=float, parse_constant=_refuse_constant)
