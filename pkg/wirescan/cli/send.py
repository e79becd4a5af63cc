"""`wirescan send`: files to a receiver, until all of it is acked."""
from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import click
import numpy as np

from wirescan.catalog import Format, format_of
from wirescan.cli.common import Damage, Failure, collect, paths_argument, problem, tail_of, total_size
from wirescan.cli.output import bytes_of, counted, dump, name_of, say, shown
from wirescan.cli.pieces import chunks
from wirescan.cli.progress import Progress
from wirescan.cli.receive import ROOMS, address_of, refuse_password
from wirescan.errors import FrameError, error_of
from wirescan.limits import Limits
from wirescan.pieces import opened, outermost
from wirescan.table import FrameTable

PIECE = 4 << 20                 # bytes read at a time
LONGEST_LINE = Limits().frame
VERSIONS = ("1", "2")
LINES = Format("lines", "", np.dtype([]), read=FrameTable)


@click.command(short_help="Files to a receiver of Lumberjack (Logstash, wirescan).")
@click.argument("protocol", type=click.Choice(ROOMS))
@click.argument("address", metavar="HOST:PORT", callback=address_of)
@paths_argument
@click.option("--lines", type=click.Choice(["json", "text"]),
              help="The files hold lines, not frames: json: each is an event, a JSON object. text: each becomes the "
                   "field \"message\" of one.")
@click.option("--version", type=click.Choice(VERSIONS),
              help="Of the protocol. Unless given: for lines 2, for frames the version that each has.")
@click.option("--window", type=click.IntRange(1, (1 << 32) - 1), default=2048, show_default=True, metavar="N",
              help="Events of a window; many receivers take up to 10000.")
@click.option("--pipelining", type=click.IntRange(min=1), default=2, show_default=True, metavar="N",
              help="Windows that may wait for their ack.")
@click.option("--compress", "level", type=click.IntRange(0, 9), metavar="0-9", help="Compress with zlib.")
@click.option("--errors", type=click.Choice(["strict", "skip"]), default="strict", show_default=True,
              help="Damage, or a line that is no JSON object: stop there, or leave it out.")
@click.option("--tls", is_flag=True, help="Talk TLS, and trust the authorities of this system.")
@click.option("--tls-ca", metavar="FILE", help="Talk TLS, and trust the authorities in FILE (PEM).")
@click.option("--tls-cert", nargs=2, metavar="CERT KEY", help="This side's certificate and its key (PEM).")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=30, show_default=True, metavar="SECONDS",
              help="For a receiver that says nothing.")
@click.option("--attempts", type=click.IntRange(min=1), default=8, show_default=True, metavar="N",
              help="Connections in a row over which nothing is acked, until it is given up.")
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
def send(protocol: str, address: tuple[str, int], paths: tuple[str, ...], lines: str | None,
         version: str | None, window: int, pipelining: int, level: int | None, errors: str, tls: bool,
         tls_ca: str | None, tls_cert: tuple[str, str] | None, timeout: float, attempts: int, as_json: bool) -> None:
    """Send the events in files to a receiver of Lumberjack, and wait until it has acked them all.

    \b
    Examples:
      wirescan send lumberjack 127.0.0.1:5044 events             what `wirescan receive` kept
      wirescan send lumberjack 127.0.0.1:5044 access.log --lines text
      jq -c .doc hits.json | wirescan send lumberjack logs:5044 - --lines json --compress 3
      wirescan send lumberjack logs:5044 *.log --lines text --tls-ca authority.pem

    The events of frames (captures too) are sent as they are, numbered anew and in new windows. Of a directory, the
    files *.lumberjack are sent; with --lines, all. A line of text that is not UTF-8 has U+FFFD in the place of its bad
    bytes, but with --version 1 it is sent as it is. Connections that are lost are made again, and what was not acked is
    sent again: an event may arrive twice, after that, but each arrives.

    Exit codes: 0 all is acked, 1 damage was met (not with --errors skip), 2 cannot be done.
    """
    from wirescan.lumberjack.client import Client
    if lines == "json" and version == "1":
        raise click.UsageError("--lines json is for version 2: version 1 has fields of text")
    found = collect(paths, format_of(f"{protocol}.frames") if lines is None else LINES)
    begun, told = time.perf_counter(), Told()
    client = Client(*address, tls=context_of(tls, tls_ca, tls_cert), timeout=timeout, attempts=attempts, window=window,
                    pipelining=pipelining, level=level, version=int(version) if version else None)
    try:
        with Progress(total_size(found), "sending") as progress, client:
            try:
                for path in found:
                    pieces = chunks(path, partial(told.read, progress), PIECE)
                    for part in (frames(path, pieces, protocol, errors, told) if lines is None else
                                 texts(path, pieces, lines, version, errors, told)):
                        client.send(part)
            except (FrameError, Damage):
                client.flush()              # what precedes the damage
                raise
    except (OSError, FrameError, Damage) as error:
        text = error.message if isinstance(error, Damage) else problem(error)
        if isinstance(error, FrameError) and error.offset == 0 and not error.inflated:
            text += "; lines of JSON or text need --lines"
        text += f"; events acked before: {client.acknowledged:,}"
        raise (Failure if isinstance(error, OSError) else Damage)(text) from None
    seconds = time.perf_counter() - begun
    if as_json:
        click.echo(dump({"files": len(found), "events": client.acknowledged, "bytes": told.bytes,
                         "faults": told.faults, "connections": client.connections, "seconds": round(seconds, 3)}))
    else:
        click.echo(f"sent {counted(client.acknowledged, 'event')} of {counted(len(found), 'file')}, "
                   f"{bytes_of(told.bytes)}, in {seconds:.1f} s")
    if told.replaced:
        say(f"wirescan: {counted(told.replaced, 'line')} not in UTF-8, with U+FFFD in the place of what was not")
    if told.faults:
        say(f"wirescan: {counted(told.faults, 'bad frame' if lines is None else 'line')} left out")


class Told:
    """What was read: bytes, the bad frames or lines that were left out, and lines that are no UTF-8."""
    bytes = 0
    faults = 0
    replaced = 0

    def read(self, progress: Progress, count: int) -> None:
        self.bytes += count
        progress(count)

    def text(self, line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.replaced += 1
            return line.decode(errors="replace")


def frames(path: str, pieces: Iterable[memoryview], protocol: str, errors: str, told: Told) -> Iterator[FrameTable]:
    """The events in a file of frames, in tables. Raises FrameError, behind those that precede what is bad; a frame that
    the file's end cuts is told."""
    events = format_of(f"{protocol}.events")
    for table in outermost(pieces, events.outermost, errors="mark", source=path):
        for part in opened(table, events, errors="mark", source=path):
            error = None
            if errors == "strict" and part.bad.any():
                row = int(part.bad.argmax())
                part, error = part[:row], error_of(part, row)
                error.source = path
            told.faults += int(np.count_nonzero(part.bad))
            part = part.where(~part.bad)
            ends = np.flatnonzero(np.diff(part["version"])) + 1     # one version in a window
            for first, stop in zip([0, *ends], [*ends, len(part)]):
                yield part[first:stop]
            if error is not None:
                raise error
    tail, _ = tail_of(table, path)
    if tail:
        say(f"wirescan: {tail}, left out")


def texts(path: str, pieces: Iterable[memoryview], kind: str, version: str | None, errors: str,
          told: Told) -> Iterator[list[Any]]:
    """The lines of a file as events, empty ones left out. Raises Damage for one that is no JSON object, or too long."""
    held, number = b"", 0
    for piece in chain(pieces, [b"\n"]):
        *whole, held = (held + bytes(piece)).split(b"\n")
        if len(held) > LONGEST_LINE:
            raise Damage(f"{name_of(path)}: line {number + len(whole) + 1:,} has more than {LONGEST_LINE:,} bytes")
        found = []
        for number, line in enumerate(whole, number + 1):
            line = line.removesuffix(b"\r")
            if kind == "text" and line:
                found.append({"message": line if version == "1" else told.text(line)})
            elif kind == "json" and line.strip():
                if is_object(line):
                    found.append(line)
                elif errors == "strict":
                    yield found
                    raise Damage(f"{name_of(path)}: line {number:,} is no JSON object: {shown(line[:40])}")
                else:
                    told.faults += 1
        yield found


def is_object(line: bytes) -> bool:
    """Whether a line is what readers take for an event."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def context_of(tls: bool, authorities: str | None, certificate: tuple[str, str] | None) -> ssl.SSLContext | None:
    """The context of a client with these files. Raises Failure."""
    if not (tls or authorities or certificate):
        return None
    try:
        context = ssl.create_default_context(cafile=authorities)
        if certificate:
            context.load_cert_chain(*certificate, password=partial(refuse_password, certificate[1]))
    except OSError as error:                        # those of ssl among them
        files = ", ".join(map(name_of, filter(None, [authorities, *(certificate or ())])))
        raise Failure(f"TLS: {problem(error)} ({files})") from None
    return context
