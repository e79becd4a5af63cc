"""`wirescan index`: writes boundary indexes, so that later jobs need not scan for boundaries."""

from __future__ import annotations

import os

import click

from wirescan.cli.common_options import max_frame_option, paths_argument
from wirescan.cli.completion import complete_directory
from wirescan.cli.exit_codes import Failure
from wirescan.cli.format_command import DEFAULT_OUTERMOST_FORMAT, FormatCommand, format_option
from wirescan.cli.input import is_compressed, is_pipe
from wirescan.cli.output import format_path, print_message
from wirescan.cli.path_arguments import compute_total_size, resolve_paths
from wirescan.cli.progress import Progress
from wirescan.files import boundary_index
from wirescan.files.source import URL, get_size
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import formats
from wirescan.frames.value_text import format_count

HELP = """Note where frames begin, so that later jobs can cut large files without scanning them.

\b
Examples:
  wirescan index /data/events
  wirescan index 's3://bucket/captures/*.nats'
  wirescan index /data/rpc --format thrift.messages --to /var/tmp/indexes

Writes FILE.frames.json beside each file, or under DIR with --to. It holds byte positions about a
MiB apart. It is used as long as the file only grows; a file of the same size must have the same
time of change. It is never read as data. Set the environment variable WIRESCAN_INDEX_DIR to DIR to
use the indexes there. Jobs that read frames above 100 MiB need an index with the same --max-frame.
Segments of Kafka and Liftbridge have their own indexes and need none.
"""


@click.command(
    cls=FormatCommand,
    reads_pipes=False,
    help=HELP,
    short_help="Note where frames begin, for later jobs.",
)
@paths_argument
@format_option(DEFAULT_OUTERMOST_FORMAT)
@max_frame_option()
@click.option(
    "--to",
    "directory",
    metavar="DIR",
    shell_complete=complete_directory,
    help="Write into DIR instead of beside the files.",
)
def index(
    *, paths: tuple[str, ...], format_name: Format, max_frame: int, directory: str | None
) -> None:
    """Run `wirescan index`."""
    limits = Limits(frame=max_frame)
    files = resolve_paths(paths, format_name)
    _check_files(files)
    if directory is None:
        _warn_of_brokers(files)
    with Progress(compute_total_size(files), "indexing") as progress:
        for path in files:
            starts = boundary_index.write(path, format_name.spec, directory, limits=limits)
            size = get_size(path)
            written = format_path(boundary_index.make_sidecar_path(path, directory))
            start_count = format_count(len(starts), "start")
            click.echo(f"wrote {written}: {start_count} in {format_count(size, 'byte')}")
            if size - starts[-1] > 2 * boundary_index.STEP:
                print_message(
                    f"wirescan: {format_path(path)}: no frame is known to begin after byte "
                    f"{starts[-1]}: the rest is one frame, a frame above --max-frame follows, or "
                    "it is damaged (wirescan verify)"
                )
            progress(size)


def _check_files(files: list[str]) -> None:
    """Raise Failure for standard input, pipes, devices and compressed files."""
    if "-" in files:
        raise Failure("standard input (-) cannot be indexed: an index is written beside a file")
    for path in files:
        if is_pipe(path):
            raise Failure(
                f"{format_path(path)}: only a file can be indexed, not a pipe or a device"
            )
        if is_compressed(path):
            raise Failure(
                f"{format_path(path)}: a compressed file cannot be cut, so an index is of no use: "
                "decompress it first"
            )


def _warn_of_brokers(files: list[str]) -> None:
    """Print a message for each directory of a broker into which an index would be written."""
    names = {
        name
        for format in formats().values()
        if format.storage.log is not None
        for name in format.storage.log.directory_files
    }
    for folder in sorted({os.path.dirname(path) for path in files if not URL.match(path)}):
        if any(os.path.exists(os.path.join(folder, name)) for name in names):
            print_message(
                f"wirescan: {format_path(folder or '.')} belongs to a broker, and index files are "
                "written into it; --to writes elsewhere"
            )
