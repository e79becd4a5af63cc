"""`wirescan receive`: serves writers of Lumberjack, and keeps what they send before it acks it."""
from __future__ import annotations

import asyncio
import re
import resource
import signal
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirescan.catalog import format_of
from wirescan.cli.common import Failure, columns_option, listed, problem
from wirescan.cli.convert import COMPRESSIONS
from wirescan.cli.output import bytes_of, counted, dump, name_of, printable, say
from wirescan.cli.progress import Progress
from wirescan.cli.rows import columns_of
from wirescan.cli.spool import Spool
from wirescan.limits import Limits

if TYPE_CHECKING:
    from wirescan.lumberjack.server import Server

ROOMS = ("lumberjack",)
OTHER_FILES = 64                # that are open beside the connections
LINES = 5                       # messages about connections in a second
ROWS = 1 << 18                  # of a window, and of what is read at once
REFRESH = 0.5                   # seconds between two looks at the totals


def address_of(context: click.Context, option: click.Parameter, text: str) -> tuple[str, int]:
    """HOST:PORT; [::1]:5044 for an address with colons."""
    found = re.fullmatch(r"(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})", text, re.ASCII)
    if found is None or int(found[3]) > 65535:
        raise click.BadParameter(f"{printable(text)!r} is not HOST:PORT, such as 127.0.0.1:5044 or [::1]:5044")
    return found[1] or found[2], int(found[3])


@click.command(short_help="Serve writers (Beats, Logstash), and keep what they send.")
@click.argument("protocol", type=click.Choice(ROOMS))
@click.option("--listen", "address", default="127.0.0.1:5044", show_default=True, metavar="HOST:PORT",
              callback=address_of, help="Port 0: any that is free.")
@click.option("--to", "directory", metavar="DIR", required=True, help="Where it goes.")
@click.option("--as", "kind", type=click.Choice(["frames", "parquet"]), default="frames", show_default=True,
              help="The frames as they came, or their events as Parquet.")
@click.option("--tls", nargs=2, metavar="CERT KEY", help="Talk TLS: files of the certificate and its key (PEM).")
@click.option("--client-ca", metavar="FILE", help="Only writers with a certificate of an authority in FILE (PEM).")
@click.option("--roll-bytes", type=click.IntRange(min=1), default=128 << 20, show_default=True, metavar="N",
              help="Begin a new file when one has so many bytes,")
@click.option("--roll-seconds", type=click.FloatRange(min=0.01), default=60, show_default=True,
              metavar="SECONDS", help="... or is so old.")
@click.option("--strict", is_flag=True, help="Refuse what not every reader takes.")
@click.option("--keep-incomplete", is_flag=True,
              help="Keep the events of a window that its writer left incomplete, though they are not acked.")
@click.option("--max-connections", type=click.IntRange(min=1), default=1000, show_default=True, metavar="N",
              help="Open at a time; more are refused.")
@click.option("--max-frame", type=click.IntRange(16, (1 << 32) - 1), default=64 << 20, show_default=True, metavar="N",
              help="Bytes of a frame.")
@click.option("--max-inflated", type=click.IntRange(16, (1 << 31) - 1), default=64 << 20, show_default=True,
              metavar="N", help="Bytes that a compressed frame may have inside.")
@click.option("--max-window", type=click.IntRange(min=16), default=64 << 20, show_default=True, metavar="N",
              help="Bytes of memory for a window that is not complete; of a larger one, parts are kept.")
@click.option("--idle", type=click.FloatRange(min=0.1), default=60, show_default=True, metavar="SECONDS",
              help="Close connections that are silent for so long.")
@columns_option
@click.option("--compression", type=click.Choice(COMPRESSIONS), help="Parquet: zstd, unless given.")
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
def receive(protocol: str, address: tuple[str, int], directory: str, kind: str, tls: tuple[str, str] | None,
            client_ca: str | None, roll_bytes: int, roll_seconds: float, strict: bool, keep_incomplete: bool,
            max_connections: int, max_frame: int, max_inflated: int, max_window: int, idle: float,
            columns: str | None, compression: str | None, as_json: bool) -> None:
    """Serve writers of Lumberjack, such as Filebeat, until SIGINT or SIGTERM, and keep what they send in DIR.

    \b
    Examples:
      wirescan receive lumberjack --to events                on 127.0.0.1:5044
      wirescan receive lumberjack --to events --as parquet
      wirescan receive lumberjack --to events --listen 0.0.0.0:5044 \\
                       --tls server.pem server.key --client-ca clients.pem
      wirescan scan events --format lumberjack.events        what is in it

    What is acked is on the disk: nothing of it is lost, whatever ends this process. Writers send again what was not
    acked, so events may be there twice after a failure (at least once).

    DIR gets files of frames, as they came, or of Parquet; names sort by time. A file that is written to has a name
    that begins with _, which all that reads DIR passes over; it loses the _ when it is complete: at --roll-bytes, at
    --roll-seconds, or when this process is stopped. If the process dies, the next run in the same DIR completes it.

    Exit codes: 0 stopped by a signal, 2 cannot be done.
    """
    from wirescan.lumberjack.server import Bounds, Server
    if kind == "frames" and (columns or compression):
        raise click.UsageError("--columns and --compression are for --as parquet")
    if client_ca and not tls:
        raise click.UsageError("--client-ca is for --tls")
    names = listed(columns, columns_of(format_of(f"{protocol}.events")))
    limits = Limits(frame=max_frame, inflated=max_inflated)
    spool = Spool(Path(directory), kind, roll_bytes, roll_seconds, names, compression or "zstd")
    allow_files(max_connections + OTHER_FILES)
    begun = time.perf_counter()
    progress, context = Received(None, ""), context_of(tls, client_ca)
    server = Server(
        spool.keep, tls=context, strict=strict, incomplete=keep_incomplete, tell=Lines(progress.say),
        bounds=Bounds(connections=max_connections, window=max_window, idle=idle), limits=replace(limits, rows=ROWS))
    with spool, progress:
        asyncio.run(serve(server, address, progress))
    totals = server.totals
    report = {"to": directory, "events": totals.events, "windows": totals.windows, "bytes": totals.bytes,
              "files": spool.files, "connections": totals.connections, "refused": totals.refused,
              "incomplete": totals.incomplete, "faults": spool.faults,
              "seconds": round(time.perf_counter() - begun, 3)}
    if as_json:
        click.echo(dump(report))
    else:
        click.echo(f"wrote {name_of(directory)}: {counted(totals.events, 'event')}, {bytes_of(totals.bytes)} of "
                   f"{counted(totals.connections, 'connection')} in {counted(spool.files, 'file')} and "
                   f"{report['seconds']:.1f} s")


async def serve(server: Server, address: tuple[str, int], progress: Received) -> None:
    """Serves until a signal comes; a second one of the same kind does what it always does."""
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        loop.remove_signal_handler(number)
        server.stop()

    await server.start(*address)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    for host, port in server.addresses:
        say(f"wirescan: listening on {f'[{host}]' if ':' in host else host}:{port}")
    watching = loop.create_task(watch(server, progress))
    try:
        await server.run()
    finally:
        watching.cancel()


async def watch(server: Server, progress: Received) -> None:
    """Shows the totals."""
    before = 0
    while True:
        await asyncio.sleep(REFRESH)
        now, totals = server.totals.bytes, server.totals
        progress.told(f"{counted(server.open, 'connection')}, {totals.events:,} events, {bytes_of(now)}, "
                      f"{bytes_of((now - before) / REFRESH)}/s")
        before = now


def context_of(tls: tuple[str, str] | None, client_ca: str | None) -> ssl.SSLContext | None:
    """The context of a server with these files. Raises Failure."""
    if tls is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(*tls, password=partial(refuse_password, tls[1]))
        if client_ca:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:                        # those of ssl among them
        files = ", ".join(map(name_of, filter(None, [*tls, client_ca])))
        raise Failure(f"TLS: {problem(error)} ({files})") from None
    return context


def allow_files(count: int) -> None:
    """Lets this process have so many files and sockets open, if the system's hard limit does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def refuse_password(path: str) -> str:
    raise Failure(f"{name_of(path)} asks for a password; give a key that is not encrypted")


class Lines:
    """Says lines, so many in a second at the most; how many more there were is told with the next."""

    def __init__(self, say: Callable[[str], None] = say):
        self._say, self._second, self._said, self._left_out = say, 0, 0, 0

    def __call__(self, line: str) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._said = second, 0
        if self._said == LINES:
            self._left_out += 1
            return
        if self._left_out:
            self._say(f"wirescan: {counted(self._left_out, 'more line')} like these")
            self._left_out = 0
        self._said += 1
        self._say(f"wirescan: {printable(line)}")


class Received(Progress):
    """Totals that grow, without an end to be seen."""

    def told(self, about: str) -> None:
        self._about = about
        if self._bar is not None:
            self._bar.update(self._task, description=about)
        self(0)

    def say(self, line: str) -> None:
        """A line above what is shown."""
        if self._bar is None:
            say(line)
        else:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _start(self) -> None:
        from rich import progress
        from rich.console import Console
        self._bar = progress.Progress(
            progress.SpinnerColumn(), progress.TextColumn("{task.description}"), progress.TimeElapsedColumn(),
            console=Console(stderr=True), transient=True, redirect_stderr=False, redirect_stdout=False)
        self._task = self._bar.add_task(self._about, total=None)
        self._bar.start()
