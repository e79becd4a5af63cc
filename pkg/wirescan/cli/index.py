"""`wirescan index`: note beside files where their frames begin, so that later jobs need not walk over them."""
from __future__ import annotations

import os

import click

from wirescan import sidecar
from wirescan.catalog import Format
from wirescan.cli.common import Failure, collect, format_option, paths_argument, total_size
from wirescan.cli.output import counted, name_of, say
from wirescan.cli.progress import Progress
from wirescan.source import URL, size_of


@click.command(short_help="Note where frames begin, for later jobs.")
@paths_argument
@format_option("kafka.batches")
def index(paths: tuple[str, ...], format_name: Format) -> None:
    """Note where frames begin, so that jobs can cut large files without walking over them.

    \b
    Examples:
      wirescan index /data/events --format lumberjack.events
      wirescan index 's3://bucket/captures/*.nats' --format nats.messages

    Writes FILE.frames.json beside each file: offsets about a MiB apart. It is used as long as the file only grows,
    and never read as data. Segments of Kafka and Liftbridge have their own indexes and need none.
    """
    files = collect(paths, format_name)
    if "-" in files:
        raise Failure("there is no place beside standard input (-)")
    for path in files:
        if not URL.match(path) and os.path.exists(path) and not os.path.isfile(path):
            raise Failure(f"{name_of(path)}: only a file can be indexed, not a pipe or a device")
    with Progress(total_size(files), "indexing") as progress:
        for path in files:
            starts, size = sidecar.write(path, format_name.name), size_of(path)
            click.echo(f"{name_of(sidecar.path_of(path))}: {counted(len(starts), 'start')} in {counted(size, 'byte')}")
            if size - starts[-1] > 2 * sidecar.STEP:
                say(f"wirescan: {name_of(path)}: no frame is known to begin after byte {starts[-1]:,}: it is one "
                    "frame, or damaged (wirescan verify)")
            progress(size)
