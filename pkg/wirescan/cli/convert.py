"""`wirescan convert`: frames to Parquet, in this process or with Spark."""
from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirescan.catalog import FAULT, Format
from wirescan.cli.common import (
    DAMAGE, Damage, Failure, check_option, collect, columns_option, errors_option, format_option, listed,
    paths_argument, problem, tail_of, total_size)
from wirescan.cli.output import bytes_of, counted, dump, name_of, printable, say
from wirescan.cli.pieces import chunks
from wirescan.cli.progress import waiting
from wirescan.cli.rows import columns_of
from wirescan.partition import SLICE_BYTES
from wirescan.pieces import chunks as ranges
from wirescan.pieces import outermost
from wirescan.source import URL, size_of

if TYPE_CHECKING:
    import pyarrow as pa

    from wirescan.layout import Layout
    from wirescan.parquet import Summary
    from wirescan.table import FrameTable

COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")
FRAME_ERROR = re.compile(r"FrameError: (.*)")


@click.command(short_help="To Parquet, in this process or with Spark.")
@paths_argument
@click.argument("out")
@format_option("kafka.records")
@click.option("--engine", type=click.Choice(["local", "spark"]), default="local", show_default=True,
              help="Threads of this process, or a local Spark.")
@errors_option("strict")
@check_option
@columns_option
@click.option("--partition-by", metavar="A,B", help="Directories by the values of these columns, as kind=CALL; of "
              "times by year, month, day or hour: timestamp:day.")
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="zstd", show_default=True)
@click.option("--overwrite", is_flag=True, help="Replace an earlier output in OUT.")
@click.option("--query/--no-query", default=True,
              help="Run a first query on the result (the default), or do not.")
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
@click.pass_context
def convert(context: click.Context, paths: tuple[str, ...], out: str, format_name: Format, engine: str,
            errors: str, check: bool, columns: str | None, partition_by: str | None, compression: str, overwrite: bool,
            query: bool, as_json: bool) -> None:
    """Frames to Parquet: OUT becomes a directory of part files, complete or not at all.

    \b
    Examples:
      wirescan convert orders-0 orders.parquet
      wirescan convert orders-0 orders.parquet --engine spark --overwrite
      wirescan convert broken.log out --errors mark       bad frames stay, as rows
      wirescan convert *.log out --columns offset,timestamp,key
      wirescan convert calls out --format thrift.messages --partition-by kind

    Both engines write the same and print the same: what was done, and a first query on the result. With --errors mark
    and skip the table OUT/_faults tells of each bad frame where it is, and what is wrong with it.

    Exit codes: 0 good, 1 damage was met (not with --errors skip), 2 cannot be done.
    """
    names = listed(columns, [*columns_of(format_name), FAULT])
    by = [name.strip() for name in (partition_by or "").split(",") if name.strip()]
    layout = _layout(format_name, names, by)
    _refuse(out, overwrite)
    given = collect(paths, format_name)
    with _on_disk(given) as files:
        if any(os.path.realpath(file).startswith(os.path.realpath(out) + os.sep) for file in files):
            raise Failure(f"{name_of(out)}: the files to read lie in it")
        options = {"format": format_name.name, "columns": names, "partition_by": by, "compression": compression,
                   "errors": errors, "check": check, "overwrite": overwrite}
        with waiting(f"converting {bytes_of(total_size(files) or 0)} with {engine}"):
            run = _with_spark if engine == "spark" else _with_threads
            try:
                summary, answer = run(files, out, options, layout.schema if query else None)
            except OSError as error:
                if _is_of(error, out):
                    raise OSError(error.errno, error.strerror, out) from None
                raise
            ends = [tail_of(_last(file, format_name.outermost, check), name) for file, name in zip(files, given)
                    if summary.tail]
    _report(out, summary, answer, as_json)
    if summary.faults:
        left = "left out" if errors == "skip" else "marked in the column fault"
        told = name_of(os.path.join(out, "_faults"))
        say(f"wirescan: {counted(summary.faults, 'bad frame')}, {left}; {told} tells where")
    for tail, _ in ends:
        if tail:
            say(f"wirescan: {tail}")
    damage = summary.faults or any(bad for _, bad in ends)
    context.exit(DAMAGE if damage and errors != "skip" else 0)


def _layout(format: Format, columns: list[str] | None, partition_by: list[str]) -> Layout:
    from wirescan.layout import Layout
    try:
        return Layout.of(format.name, columns, partition_by)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _with_threads(files: list[str], out: str, options: dict[str, Any],
                  schema: pa.Schema | None) -> tuple[Summary, dict[str, Any] | None]:
    from wirescan import parquet
    summary = parquet.convert(files, out, **options)
    if schema is None or not summary.records:
        return summary, None
    from wirescan.cli.query import Query
    return summary, Query(schema).with_arrow(out)


def _with_spark(files: list[str], out: str, options: dict[str, Any],
                schema: pa.Schema | None) -> tuple[Summary, dict[str, Any] | None]:
    warnings.filterwarnings("ignore", module="pyspark", category=FutureWarning)
    from wirescan import spark as on_spark
    try:
        session = on_spark.session("wirescan convert")
    except on_spark.JavaNotFound as error:
        raise Failure(str(error)) from None
    from pyspark.errors import PySparkException
    session.sparkContext.setLogLevel("OFF")             # what goes wrong is told here, in one line
    try:
        summary = on_spark.to_parquet(session, files, out, **options)
        if schema is None or not summary.records:
            return summary, None
        from wirescan.cli.query import Query
        return summary, Query(schema).with_spark(session, os.path.abspath(out))
    except PySparkException as error:
        found = FRAME_ERROR.findall(str(error))
        if found:
            raise Damage(printable(found[-1])) from None
        raise Failure(problem(error)) from None
    finally:
        session.stop()


def _last(path: str, top: Format, check: bool) -> FrameTable:
    """The last table of the outermost frames in a file: engines count the bytes behind it, but not what they are."""
    start = top.cuts(path, SLICE_BYTES)[-1] if top.cuts else 0
    for last in outermost(ranges(path, start, size_of(path)), top, errors="mark", check=check, offset=start):
        pass
    return last


def _is_of(error: OSError, out: str) -> bool:
    """Whether an error is about `out`: about a directory above it, or a file in it whose name nobody gave."""
    if not isinstance(error.filename, str):
        return False
    ends = [os.path.abspath(error.filename), os.path.abspath(out)]
    return os.path.commonpath(ends) in ends


def _report(out: str, summary: Summary, answer: dict[str, Any] | None, as_json: bool) -> None:
    counts = {"files": summary.files, "frames": summary.frames, "records": summary.records,
              "bytes": summary.bytes, "faults": summary.faults, "tail": summary.tail, "bytes_written": summary.written,
              "seconds": round(summary.seconds, 3)}
    if answer is not None:
        from wirescan.cli import query
    if as_json:
        click.echo(dump({"out": out, **counts, "query": answer and query.as_json(answer)}))
        return
    click.echo(f"wrote {name_of(out)}")
    _table([(name.replace("_", " "), f"{count:,}") for name, count in counts.items()])
    if answer is not None:
        click.echo("\nfirst query")
        _table(query.lines(answer))


def _table(lines: Sequence[tuple[str, str]]) -> None:
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        click.echo(f"  {label:<{width}}  {text}")


def _refuse(out: str, overwrite: bool) -> None:
    """Refuse a directory that has files in it, and to overwrite any that is not an earlier output."""
    if URL.match(out):
        raise Failure(f"{name_of(out)}: the Parquet files go to a directory on this machine, not to a URL")
    if not os.path.isdir(out):
        if os.path.lexists(out):
            raise Failure(f"{name_of(out)}: there is a file of that name")
        return
    if os.listdir(out) and not overwrite:
        raise Failure(f"{name_of(out)}: the directory is not empty; --overwrite replaces an earlier output")
    from wirescan.sink import stranger
    if other := stranger(Path(out)):
        raise Failure(f"{name_of(out)}: will not overwrite a directory that holds "
                      f"{name_of(str(other.relative_to(out)))}")


@contextmanager
def _on_disk(files: list[str]) -> Iterator[list[str]]:
    """The files, with standard input and pipes in temporary ones: engines read slices, and more than once."""
    with ExitStack() as stack:
        yield [_spooled(one, stack) if one == "-" or _is_pipe(one) else one for one in files]


def _is_pipe(path: str) -> bool:
    return not URL.match(path) and os.path.exists(path) and not os.path.isfile(path)


def _spooled(path: str, stack: ExitStack) -> str:
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="wirescan-"))
    copy = os.path.join(folder, "stdin" if path == "-" else os.path.basename(path))
    with open(copy, "wb") as file:
        for piece in chunks(path):
            file.write(piece)
    return copy
