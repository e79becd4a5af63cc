"""The argument PATH and the options that several verbs share, such as --json and --columns.

`format_command.py` has --format, and `support/selection_options.py` the options that select frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import click

from wirescan.cli.completion import complete_file, complete_list
from wirescan.cli.format_command import Command, list_columns_of_format
from wirescan.frames.limits import Limits
from wirescan.frames.similar_names import hint_at_names

SMALLEST_LIMIT = 16  # bytes
LARGEST_FRAME = (1 << 32) - 1
LARGEST_PAYLOAD = (1 << 31) - 1
COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "none")  # codecs of Parquet
DEFAULT_COMPRESSION = COMPRESSIONS[0]
# The help of --columns and --compression, in commands that refuse them without --as parquet.
PARQUET_COLUMNS = "Parquet: write these columns, in this order. An unknown name lists all columns."
PARQUET_COMPRESSION = f"Parquet: the compression codec. The default is {DEFAULT_COMPRESSION}."

paths_argument = click.argument(
    "paths",
    nargs=-1,
    required=True,
    metavar="PATH...",
    shell_complete=complete_file,
)
check_option = click.option("--check/--no-check", default=True, help="Verify checksums, or do not.")


def columns_option(
    help: str = "Write these columns, in this order. An unknown name lists all columns.",
    list_columns: Callable[[click.Context], Sequence[str]] | None = None,
) -> Callable[[Command], Command]:
    """Return a decorator that adds --columns. `parse_names` reads the value.

    list_columns: returns the columns that the shell offers. None, the default: those of --format.
    """
    list_offered = list_columns or list_columns_of_format
    return click.option(
        "--columns",
        metavar="A,B",
        help=help,
        shell_complete=lambda context, _, incomplete: complete_list(
            list_offered(context), incomplete
        ),
    )


def parse_names(value: str | None, columns: Iterable[str]) -> list[str] | None:
    """Return the column names in the value of --columns; None if it is not given.

    Raises click.UsageError for a name that is not in `columns`, for no name and for a repeated one.
    """
    if value is None:
        return None
    names = [name.strip() for name in value.split(",") if name.strip()]
    columns = list(columns)
    for name in names:
        if name not in columns:
            raise click.UsageError(f"there is no column {name!r}{hint_at_names(name, columns)}")
    if not names:
        raise click.UsageError("--columns needs at least one name")
    if len(set(names)) < len(names):
        raise click.UsageError("--columns names a column twice")
    return names


def compression_option(
    help: str = f"The compression codec of Parquet. The default is {DEFAULT_COMPRESSION}.",
) -> Callable[[Command], Command]:
    """Return a decorator that adds --compression.

    The option has no default, so that a command can refuse it for output that is not Parquet.
    """
    return click.option("--compression", type=click.Choice(COMPRESSIONS), help=help)


def json_option(help: str = "Print the report as one JSON object.") -> Callable[[Command], Command]:
    """Return a decorator that adds --json, whose value is `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def errors_option(default: str) -> Callable[[Command], Command]:
    """Return a decorator that adds --errors, whose value is one of the three modes."""
    return click.option(
        "--errors",
        type=click.Choice(["strict", "mark", "skip"]),
        default=default,
        help="On damage: stop (strict), keep the bad frames as rows (mark), or drop them (skip).",
    )


def count_option(
    name: str,
    *,
    default: int | None,
    help: str,
    smallest: int = 1,
    largest: int | None = None,
) -> Callable[[Command], Command]:
    """Return a decorator that adds an option with a number from `smallest` to `largest`."""
    number = click.IntRange(smallest, largest)
    return click.option(name, type=number, default=default, metavar="N", help=help)


def seconds_option(
    name: str, default: float, help: str, *, smallest: float
) -> Callable[[Command], Command]:
    """Return a decorator that adds an option with a time of at least `smallest` seconds."""
    number = click.FloatRange(smallest)
    return click.option(name, type=number, default=default, metavar="SECONDS", help=help)


def max_frame_option(
    default: int = Limits().frame,
    help: str = "Maximum bytes in one frame. A longer frame is a fault.",
) -> Callable[[Command], Command]:
    """Return a decorator that adds --max-frame."""
    return count_option(
        "--max-frame", default=default, help=help, smallest=SMALLEST_LIMIT, largest=LARGEST_FRAME
    )


def max_inflated_option(default: int = Limits().inflated) -> Callable[[Command], Command]:
    """Return a decorator that adds --max-inflated."""
    return count_option(
        "--max-inflated",
        default=default,
        help="Maximum bytes in the decompressed payload of one frame.",
        smallest=SMALLEST_LIMIT,
        largest=LARGEST_PAYLOAD,
    )


def limits_option(command: Command) -> Command:
    """Add the options that make one `Limits`, and pass it to the command as `limits`."""

    @max_frame_option()
    @max_inflated_option()
    @count_option(
        "--max-row-bytes",
        default=None,
        help="Maximum bytes of memory for the rows that are made at once. The default is the "
        "largest of 256 MiB, 3 times the bytes that hold the frames, and 16 times those beyond "
        "256 MiB.",
    )
    @count_option(
        "--max-expansion",
        default=Limits().expansion,
        help="Maximum decompressed bytes per byte of a file; a row counts as 512 bytes. Small "
        "files may have N times 512 KiB. 0 means no maximum.",
        smallest=0,
    )
    @wraps(command)
    def run(
        *arguments: Any,
        max_frame: int,
        max_inflated: int,
        max_row_bytes: int | None,
        max_expansion: int,
        **options: Any,
    ) -> Any:
        limits = Limits(
            frame=max_frame,
            inflated=max_inflated,
            row_bytes=max_row_bytes,
            expansion=max_expansion or None,
        )
        return command(*arguments, limits=limits, **options)

    return run
