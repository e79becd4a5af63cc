"""`wirescan convert`: writes frames as Parquet, in this process or with Spark."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirescan.cli.common_options import (
    DEFAULT_COMPRESSION,
    check_option,
    columns_option,
    compression_option,
    errors_option,
    json_option,
    limits_option,
    parse_names,
    paths_argument,
)
from wirescan.cli.completion import complete_directory
from wirescan.cli.exit_codes import DAMAGE, Damage, Failure, describe_error
from wirescan.cli.file_ends import FileEnds
from wirescan.cli.foreign_files import HEAD
from wirescan.cli.format_command import DEFAULT_FORMAT, FormatCommand, format_option
from wirescan.cli.input import is_compressed, is_pipe, read_input
from wirescan.cli.output import dump_json, format_path, print_message
from wirescan.cli.path_arguments import compute_total_size, resolve_paths
from wirescan.cli.payload_options import decode_option
from wirescan.cli.progress import Progress, show_spinner
from wirescan.cli.support.row_choice import plan_rows
from wirescan.cli.support.selection import Selection
from wirescan.cli.support.selection_options import selection_options
from wirescan.files.source import URL, get_size, read_ahead
from wirescan.frames.columns import FAULT
from wirescan.frames.format import Format
from wirescan.frames.limits import Limits
from wirescan.frames.registry import format_of
from wirescan.frames.row_values import list_all_columns
from wirescan.frames.value_text import format_bytes, format_count
from wirescan.reading.allowance import Allowance
from wirescan.reading.chunked import scan_outermost
from wirescan.reading.chunks import read_chunks
from wirescan.reading.splits import SLICE_BYTES

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from wirescan.export.hive_layout import Layout
    from wirescan.export.parquet import Summary
    from wirescan.frames.table import FrameTable

FRAME_ERROR = re.compile(r"(?:Frame|Expansion)Error: (.*)")

HELP = """Write frames as Parquet. OUT becomes a directory of part files, complete or not at all.

\b
Examples:
  wirescan convert orders-0 orders.parquet
  wirescan convert orders-0 orders.parquet --engine spark --overwrite
  wirescan convert broken.log out --errors mark       bad frames stay, as rows
  wirescan convert *.log out --columns offset,timestamp,key
  wirescan convert orders-0 out --since 3d --where 'key ~ "^eu-"'
  wirescan convert calls out --format thrift.messages --partition-by kind
  wirescan convert orders-0 out --decode value=json   JSON as typed columns

Both engines write the same rows and print the same report: the counts, and a first query on the
result. With --errors mark and skip, the table OUT.faults says where each bad frame is and what is
wrong with it. It is written only if there are bad frames.

Exit codes: 0 good, 1 damage was found (not with --errors skip), 2 cannot be done.
"""


@click.command(
    cls=FormatCommand,
    reads_connections=True,
    writes_columns=True,
    help=HELP,
    short_help="Write frames as Parquet, in this process or with Spark.",
)
@paths_argument
@click.argument("out", shell_complete=complete_directory)
@format_option(DEFAULT_FORMAT)
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    help="Use threads of this process, or a local Spark.",
)
@errors_option("strict")
@check_option
@limits_option
@selection_options()
@columns_option()
@decode_option()
@click.option(
    "--partition-by",
    metavar="A,B",
    help="Write directories by the values of these columns, such as kind=CALL. Times are grouped "
    "by year, month, day or hour: timestamp:day. Text that is too long for a directory name is "
    "shortened, but not with --errors strict.",
)
@compression_option()
@click.option("--overwrite", is_flag=True, help="Replace an earlier output in OUT.")
@click.option(
    "--query/--no-query",
    default=True,
    help="Run a first query on the result, or do not.",
)
@json_option()
@click.pass_context
def convert(
    context: click.Context,
    *,
    paths: tuple[str, ...],
    out: str,
    format_name: Format,
    engine: str,
    errors: str,
    check: bool,
    limits: Limits,
    selection: Selection,
    columns: str | None,
    decode: dict[str, str],
    partition_by: str | None,
    compression: str | None,
    overwrite: bool,
    query: bool,
    as_json: bool,
) -> None:
    """Run `wirescan convert`."""
    names = parse_names(columns, [*list_all_columns(format_name), FAULT])
    partitions = [name.strip() for name in (partition_by or "").split(",") if name.strip()]
    layout = _make_layout(format_name, names, partitions)
    _check_output(out, overwrite=overwrite)
    if engine == "spark" and selection.has_choice:
        raise click.UsageError("--limit, --tail and --sample need --engine local")
    given_files = selection.select_files(resolve_paths(paths, format_name))
    with _spool_files(given_files, limits) as files:
        if any(os.path.realpath(file).startswith(os.path.realpath(out) + os.sep) for file in files):
            raise Failure(f"{format_path(out)}: the directory holds files that would be read")
        options: dict[str, Any] = {
            "format": format_name.spec,
            "columns": names,
            "partition_by": partitions,
            "compression": compression or DEFAULT_COMPRESSION,
            "errors": errors,
            "check": check,
            "limits": limits,
            "overwrite": overwrite,
            "filters": selection.conditions,
        }
        names_of_files = dict(zip(files, given_files))
        if selection.has_choice:
            # The filters are applied before.
            files, options["chooser"] = plan_rows(selection, files, errors, limits, check=check)
        if decode:
            options["decode"] = decode
        schema = _make_query_schema(layout, decode) if query else None
        with _show_work(engine, compute_total_size(files) or 0) as progress:
            if isinstance(progress, Progress):
                options["advance"] = progress
            summary, answer = _run_engine(engine, files, out, options, schema)
            ends = _describe_ends(names_of_files, files, summary, format_name, limits, check=check)
    _print_report(out, summary, answer, format_name, as_json=as_json)
    _report_faults(summary.faults, out, errors)
    ends.report()
    is_damaged = summary.faults or ends.is_damaged
    context.exit(DAMAGE if is_damaged and errors != "skip" else 0)


def _show_work(engine: str, size: int) -> AbstractContextManager[Any]:
    """Return what shows the progress of an engine: a `Progress`, or a spinner for Spark."""
    if engine == "local":
        return Progress(size, "converting")
    return show_spinner(f"converting {format_bytes(size)} with {engine}")


def _run_engine(
    engine: str, files: list[str], out: str, options: dict[str, Any], schema: pa.Schema | None
) -> tuple[Summary, dict[str, Any] | None]:
    """Convert with an engine; return the counts and the answer of the first query.

    Args:
        engine: "local" for threads of this process, or "spark".
        files: what to convert.
        out: the output directory.
        options: further arguments of `parquet.convert`.
        schema: of the output; None for no query.
    """
    from wirescan.export import parquet

    try:
        with _start_spark() if engine == "spark" else nullcontext() as spark:
            if spark is None:
                summary = parquet.convert(files, out, **options)
            else:
                from wirescan.spark import to_parquet

                summary = to_parquet(spark, files, out, **options)
            if schema is None or not summary.records:
                return summary, None
            from wirescan.cli.support.query import Query

            query = Query(schema, format_of(options["format"]))
            if spark is None:
                return summary, query.run_with_arrow(out)
            return summary, query.run_with_spark(spark, os.path.abspath(out))
    except OSError as error:
        if _is_about(error, out):
            raise OSError(error.errno, error.strerror, out) from None
        raise


@contextmanager
def _start_spark() -> Iterator[SparkSession]:
    """Start a local Spark that stops with the context.

    Raises Damage for a bad frame, and Failure for any other error of Spark.
    """
    warnings.filterwarnings("ignore", module="pyspark", category=FutureWarning)
    from wirescan.spark import JavaNotFound, session

    try:
        spark = session("wirescan convert")
    except JavaNotFound as error:
        raise Failure(str(error)) from None
    from pyspark.errors import PySparkException

    spark.sparkContext.setLogLevel("OFF")  # errors are reported below, in one line
    try:
        yield spark
    except PySparkException as error:
        messages = FRAME_ERROR.findall(str(error))
        if messages:
            raise Damage(messages[-1]) from None
        raise Failure(describe_error(error)) from None
    finally:
        spark.stop()


def _describe_ends(
    names: Mapping[str, str],
    files: Sequence[str],
    summary: Summary,
    format: Format,
    limits: Limits,
    *,
    check: bool,
) -> FileEnds:
    """Return how files end.

    Args:
        names: file -> its name in messages.
        files: the files that were read.
        summary: the counts of the conversion.
        format: the format that was read.
        limits: bounds on rows and bytes.
        check: verify checksums.
    """
    ends = FileEnds()
    for file in read_ahead(files, head=None if summary.tail else 0):
        name = names[file]
        if summary.tail or not get_size(file):
            ends.add(_find_last_table(file, format.outermost, limits, check=check), name)
    return ends


def _report_faults(count: int, out: str, errors: str) -> None:
    """Print the number of bad frames, if there are some, and where they are listed."""
    if not count:
        return
    result = "dropped" if errors == "skip" else "marked in the column fault"
    bad_frames = format_count(count, "bad frame")
    table = format_path(_show_faults_path(out))
    print_message(f"wirescan: {bad_frames}, {result}; {table} lists them")


def _make_layout(format: Format, columns: list[str] | None, partition_by: list[str]) -> Layout:
    """Return the columns and directories of the output. Raises click.UsageError."""
    from wirescan.export.hive_layout import Layout

    try:
        return Layout.from_columns(format.spec, columns, partition_by)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _make_query_schema(layout: Layout, decode: Iterable[str]) -> pa.Schema:
    """Return the columns that the first query may use: those that are not decoded."""
    schema = layout.stored_schema
    for name in decode:
        if name in schema.names:
            schema = schema.remove(schema.get_field_index(name))
    return schema


def _find_last_table(path: str, top: Format, limits: Limits, *, check: bool) -> FrameTable:
    """Return the last table of a file's outermost frames.

    Engines count the bytes after the last frame, but do not say what they are.
    """
    find_boundaries = top.storage.boundaries
    start = find_boundaries(path, SLICE_BYTES, limits=limits)[-1] if find_boundaries else 0
    tables = scan_outermost(
        read_chunks(path, start, get_size(path)),
        top,
        errors="mark",
        check=check,
        limits=limits,
        offset=start,
    )
    return deque(tables, maxlen=1)[0]


def _is_about(error: OSError, out: str) -> bool:
    """Return whether an error is about `out`, a directory above it, or a file in it."""
    if not isinstance(error.filename, str):
        return False
    paths = [os.path.abspath(error.filename), os.path.abspath(out)]
    return os.path.commonpath(paths) in paths


def _print_report(
    out: str, summary: Summary, answer: dict[str, Any] | None, format: Format, *, as_json: bool
) -> None:
    """Print the counts, and the answer of the first query."""
    counts = {
        "files": summary.files,
        "frames": summary.frames,
        "records": summary.records,
        "bytes": summary.bytes,
        "faults": summary.faults,
        "tail": summary.tail,
        "bytes_written": summary.written,
        "seconds": round(summary.seconds, 3),
    }
    if answer is not None:
        from wirescan.cli.support.query import make_answer_lines, make_json_answer
    if as_json:
        result = None if answer is None else make_json_answer(answer, format)
        click.echo(dump_json({"out": out, **counts, "query": result}))
        return
    click.echo(f"wrote {format_path(out)}")
    _print_table([(name.replace("_", " "), f"{count:,}") for name, count in counts.items()])
    if answer is not None:
        click.echo("\nfirst query")
        _print_table(make_answer_lines(answer, format))


def _print_table(lines: Sequence[tuple[str, str]]) -> None:
    """Print pairs of a label and a text in two columns."""
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        click.echo(f"  {label:<{width}}  {text}")


def _check_output(out: str, *, overwrite: bool) -> None:
    """Raise Failure if `out`, or the place of its faults table, cannot be written.

    A directory that is not empty must be an earlier output, and needs `overwrite`.
    """
    if URL.match(out):
        raise Failure(
            f"{format_path(out)}: the Parquet files go to a directory on this machine, not to a URL"
        )
    from wirescan.export.parquet_writer import find_foreign_file

    for folder in (out, _show_faults_path(out)):
        if not os.path.lexists(folder):
            continue
        if not os.path.isdir(folder):
            raise Failure(f"{format_path(folder)}: a file with this name exists")
        if os.listdir(folder) and not overwrite:
            raise Failure(
                f"{format_path(folder)}: the directory is not empty; --overwrite replaces an "
                "earlier output"
            )
        if other := find_foreign_file(Path(folder)):
            raise Failure(
                f"{format_path(folder)}: will not overwrite a directory that holds "
                f"{format_path(str(other.relative_to(folder)))}"
            )


def _show_faults_path(out: str) -> str:
    """Return the path of an output's faults table, relative if `out` is."""
    from wirescan.export.parquet_writer import make_faults_path

    return make_faults_path(out) if os.path.isabs(out) else os.path.relpath(make_faults_path(out))


@contextmanager
def _spool_files(files: list[str], limits: Limits) -> Iterator[list[str]]:
    """Copy standard input, pipes and compressed files to temporary files.

    The engines read slices, and read a file more than once. The result is all files, in order.

    Raises ExpansionError if a compressed file has more contents than the limits allow.
    """
    with ExitStack() as stack:
        paths = []
        for file in read_ahead(files, head=HEAD):
            is_copied = file == "-" or is_pipe(file) or is_compressed(file)
            paths.append(_spool(file, limits, stack) if is_copied else file)
        yield paths


def _spool(path: str, limits: Limits, stack: ExitStack) -> str:
    """Copy a file to a temporary one, and return its path; `stack` removes it."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="wirescan-"))
    copy = os.path.join(folder, "stdin" if path == "-" else os.path.basename(path))
    with open(copy, "wb") as file:
        for piece in read_input(path, allowance=Allowance(limits)):
            file.write(piece)
    return copy
