"""`wirescan receive`: serves writers of Lumberjack, and stores what they send before it acks it."""

from __future__ import annotations

import asyncio
import re
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirescan.cli.common_options import (
    DEFAULT_COMPRESSION,
    PARQUET_COLUMNS,
    PARQUET_COMPRESSION,
    SMALLEST_LIMIT,
    columns_option,
    compression_option,
    count_option,
    json_option,
    max_frame_option,
    max_inflated_option,
    parse_names,
    seconds_option,
)
from wirescan.cli.completion import complete_directory, complete_file
from wirescan.cli.output import dump_json, format_path, print_message
from wirescan.cli.progress import Progress
from wirescan.cli.support.spool import Spool
from wirescan.cli.support.tls import make_server_context
from wirescan.core.arguments import check_host
from wirescan.frames.escape import make_visible
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.row_values import list_all_columns
from wirescan.frames.value_text import escape_text, format_bytes, format_count

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from wirescan.lumberjack.live.server import Server

PROTOCOLS = ("lumberjack",)
LARGEST_PORT = 65535
DEFAULT_BYTES = 64 << 20  # of a frame, a decompressed payload, and a window
ROLL_BYTES = 128 << 20
OTHER_FILES = 64  # open files besides the connections
MESSAGES = 5  # about connections, in a second
ROWS = 1 << 18  # in a window, and in what is read at once
REFRESH = 0.5  # seconds between two updates of the totals

HELP = """Serve writers of Lumberjack, such as Filebeat, until SIGINT or SIGTERM, and store what
they send in DIR.

\b
Examples:
  wirescan receive lumberjack --to events                on 127.0.0.1:5044
  wirescan receive lumberjack --to events --as parquet
  wirescan receive lumberjack --to events --listen 0.0.0.0:5044 \\
                   --tls server.pem server.key --client-ca clients.pem
  wirescan scan events --format lumberjack.events        what is in it

What is acked is on disk: none of it is lost, whatever ends this process. Writers send again what
was not acked, so events may be stored twice after a failure (at least once).

DIR gets files of frames as received, or of Parquet. Their names sort by time. The name of a file in
progress begins with _, and every command ignores such files in DIR. A file loses the _ when it is
complete: at --roll-bytes, at --roll-seconds, or when this process is stopped. If the process dies,
the next run in the same DIR completes the file.

Exit codes: 0 stopped by a signal, 2 cannot be done.
"""


def parse_address(context: click.Context, option: click.Parameter, text: str) -> tuple[str, int]:
    """Return (host, port) of HOST:PORT; [::1]:5044 is an address with colons.

    Raises click.BadParameter.
    """
    match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})", text, re.ASCII)
    if match is None or int(match[3]) > LARGEST_PORT:
        raise click.BadParameter(
            f"{escape_text(text)!r} is not HOST:PORT, such as 127.0.0.1:5044 or [::1]:5044"
        )
    host = match[1] or match[2]
    try:
        check_host(host)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return host, int(match[3])


def _list_columns(protocol: str) -> list[str]:
    """Return the columns of the events of a protocol."""
    return list_all_columns(format_of(f"{protocol}.events"))


def _list_all_columns() -> list[str]:
    """Return the columns of all protocols, for the shell: click does not say which one is given."""
    return list(dict.fromkeys(name for protocol in PROTOCOLS for name in _list_columns(protocol)))


@click.command(help=HELP, short_help="Serve writers (Beats, Logstash), and store what they send.")
@click.argument("protocol", type=click.Choice(PROTOCOLS))
@click.option(
    "--listen",
    "address",
    default="127.0.0.1:5044",
    metavar="HOST:PORT",
    callback=parse_address,
    help="The address to serve. Port 0 is any free port.",
)
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
    type=click.Choice(["frames", "parquet"]),
    default="frames",
    help="Write the frames as received, or their events as Parquet.",
)
@click.option(
    "--tls",
    nargs=2,
    metavar="CERT KEY",
    shell_complete=complete_file,
    help="Use TLS, with these files of the certificate and its key (PEM).",
)
@click.option(
    "--client-ca",
    metavar="FILE",
    shell_complete=complete_file,
    help="Accept only writers with a certificate of an authority in FILE (PEM).",
)
@count_option("--roll-bytes", default=ROLL_BYTES, help="Begin a new file when one has N bytes.")
@seconds_option("--roll-seconds", 60, "Begin a new file when one has this age.", smallest=0.01)
@click.option("--strict", is_flag=True, help="Refuse what not every receiver accepts.")
@click.option(
    "--keep-incomplete",
    is_flag=True,
    help="Store the events of a window that its writer left incomplete. They are not acked.",
)
@count_option("--max-connections", default=1000, help="Maximum open connections. More are refused.")
@max_frame_option(DEFAULT_BYTES, "Maximum bytes in a frame.")
@max_inflated_option(DEFAULT_BYTES)
@count_option(
    "--max-window",
    default=DEFAULT_BYTES,
    help="Maximum bytes of memory for an incomplete window. A larger one is stored in parts.",
    smallest=SMALLEST_LIMIT,
)
@seconds_option("--idle", 60, "Close connections that are silent for this time.", smallest=0.1)
@columns_option(PARQUET_COLUMNS, lambda context: _list_all_columns())
@compression_option(help=PARQUET_COMPRESSION)
@json_option()
def receive(
    *,
    protocol: str,
    address: tuple[str, int],
    directory: str,
    kind: str,
    tls: tuple[str, str] | None,
    client_ca: str | None,
    roll_bytes: int,
    roll_seconds: float,
    strict: bool,
    keep_incomplete: bool,
    max_connections: int,
    max_frame: int,
    max_inflated: int,
    max_window: int,
    idle: float,
    columns: str | None,
    compression: str | None,
    as_json: bool,
) -> None:
    """Run `wirescan receive`."""
    from wirescan.lumberjack.live.server import Bounds, Server

    if kind == "frames" and (columns or compression):
        raise click.UsageError("--columns and --compression are for --as parquet")
    if client_ca and not tls:
        raise click.UsageError("--client-ca is for --tls")
    names = parse_names(columns, _list_columns(protocol))
    limits = Limits(frame=max_frame, inflated=max_inflated)
    spool = Spool(
        Path(directory), kind, roll_bytes, roll_seconds, names, compression or DEFAULT_COMPRESSION
    )
    raise_file_limit(max_connections + OTHER_FILES)
    started = time.perf_counter()
    progress = ReceiveProgress(None, "")
    server = Server(
        spool.store,
        tls=make_server_context(tls, client_ca),
        strict=strict,
        incomplete=keep_incomplete,
        tell=MessageLimiter(progress.show_message),
        bounds=Bounds(connections=max_connections, window=max_window, idle=idle),
        limits=replace(limits, rows=ROWS),
    )
    with spool, progress:
        asyncio.run(serve(server, address, progress))
    _print_report(directory, server, spool, time.perf_counter() - started, as_json=as_json)


def _print_report(
    directory: str, server: Server, spool: Spool, seconds: float, *, as_json: bool
) -> None:
    """Print the counts of a run; `directory` is as the user wrote it."""
    totals = server.totals
    if as_json:
        report = {
            "to": directory,
            "events": totals.events,
            "windows": totals.windows,
            "bytes": totals.bytes,
            "files": spool.files,
            "connections": totals.connections,
            "refused": totals.refused,
            "incomplete": totals.incomplete,
            "faults": spool.faults,
            "seconds": round(seconds, 3),
        }
        click.echo(dump_json(report))
        return
    click.echo(
        f"wrote {format_path(directory)}: {format_count(totals.events, 'event')}, "
        f"{format_bytes(totals.bytes)} of {format_count(totals.connections, 'connection')} in "
        f"{format_count(spool.files, 'file')} and {seconds:.1f} s"
    )


async def serve(server: Server, address: tuple[str, int], progress: ReceiveProgress) -> None:
    """Serve until a signal arrives; a second signal of the same kind has its usual effect."""
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        loop.remove_signal_handler(number)
        server.stop()

    await server.start(*address)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    for host, port in server.addresses:
        shown_host = f"[{host}]" if ":" in host else host
        print_message(f"wirescan: listening on {shown_host}:{port}")
    totals_task = loop.create_task(show_totals(server, progress))
    try:
        await server.run()
    finally:
        totals_task.cancel()


async def show_totals(server: Server, progress: ReceiveProgress) -> None:
    """Show the totals at regular intervals, until the task is cancelled."""
    bytes_before = 0
    while True:
        await asyncio.sleep(REFRESH)
        totals = server.totals
        bytes_now = totals.bytes
        rate = (bytes_now - bytes_before) / REFRESH
        progress(
            0,
            f"{format_count(server.open, 'connection')}, {totals.events:,} events, "
            f"{format_bytes(bytes_now)}, {format_bytes(rate)}/s",
        )
        bytes_before = bytes_now


def raise_file_limit(count: int) -> None:
    """Raise this process's limit on open files and sockets to `count`, or to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        limit = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


class MessageLimiter:
    """Prints at most MESSAGES messages in a second, and counts those that it drops."""

    def __init__(self, output: Callable[[str], None] = print_message):
        self._output = output
        self._second = 0
        self._printed = 0  # in that second
        self._dropped = 0

    def __call__(self, message: str) -> None:
        """Print a message, or drop it. The next message to be printed reports the dropped ones."""
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._printed = 0
        if self._printed == MESSAGES:
            self._dropped += 1
            return
        if self._dropped:
            self._output(f"wirescan: {format_count(self._dropped, 'more line')} like these")
            self._dropped = 0
        self._printed += 1
        self._output(make_visible(f"wirescan: {message}"))


class ReceiveProgress(Progress):
    """Totals that grow without a known end."""

    def show_message(self, message: str) -> None:
        """Print a message, above the totals if they are shown."""
        if self._bar is None:
            print_message(message)
        else:
            self._bar.console.print(message, markup=False, highlight=False, soft_wrap=True)

    def make_columns(self) -> list[ProgressColumn]:
        """Return what the line of totals shows."""
        from rich import progress

        return [
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}"),
            progress.TimeElapsedColumn(),
        ]
