"""The options that select frames, such as --where and --offset, and their values.

A verb adds them with a decorator and gets one `Selection`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import wraps
from typing import Any

import click

from wirescan.cli.common_options import count_option
from wirescan.cli.format_command import DEFAULT_FORMAT, Command
from wirescan.cli.support.selection import Selection, list_format_levels
from wirescan.frames.columns import UNITS, ColumnKind
from wirescan.frames.format import Format
from wirescan.frames.registry import format_of
from wirescan.reading.expression import parse_expression, parse_time
from wirescan.reading.filters import Condition, Filter, check_filters

OPTION_NAMES = (
    "offset",
    "partition",
    "where",
    "since",
    "until",
    "key",
    "limit",
    "tail",
    "sample",
    "seed",
)
LARGEST_SAMPLE = 1_000_000  # rows of --sample N, whose numbers are held
KEY = "key"  # the column of --key
CAPTURE_TIME = "time"  # when the first packet of a frame was captured; other times follow it
RELATIVE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
OFFSETS = re.compile(r"([0-9]{1,19})?(:)?([0-9]{1,19})?")


def selection_options(
    *,
    outermost: bool = False,
    by_number: bool = True,
    choose_level: Callable[[Format, Mapping[str, Any]], Format] | None = None,
) -> Callable[[Command], Command]:
    """Return a decorator that adds the options to a command with --format.

    The command gets `selection`, a `Selection`.

    Args:
        outermost: the command reads only the outermost frames of the format, and counts bad ones.
        by_number: the command also has the options that select by number or at random.
        choose_level: a function of the command's format and its other options that returns the
            format of the rows to select. None, the default: the format, or with `outermost` its
            outermost one.
    """
    options = [*_make_file_options(), *_make_row_options()]
    if by_number:
        options += _make_number_options()

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*arguments: Any, format_name: Format, **others: Any) -> Any:
            values = {name: others.pop(name, None) for name in OPTION_NAMES}
            format = format_name.outermost if outermost else format_name
            if choose_level is not None:
                format = choose_level(format_name, others)
            selection = make_selection(format, **values)
            selection = replace(selection, keeps_bad=outermost)
            return command(*arguments, format_name=format_name, selection=selection, **others)

        decorated: Command = run
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def record_selection_options(command: Command) -> Command:
    """Add options that select the records of a command without --format, such as `produce`.

    --partition belongs to the command itself, so the partitions to read are --partitions. The
    command gets `selection`, a `Selection` of records in the default format.
    """

    @wraps(command)
    def run(*arguments: Any, partitions: str | None, **others: Any) -> Any:
        names = [name for name in OPTION_NAMES if name != "partition"]
        values = {name: others.pop(name, None) for name in names}
        selection = make_selection(format_of(DEFAULT_FORMAT), partition=partitions, **values)
        return command(*arguments, selection=selection, **others)

    decorated: Command = run
    by_partition: Callable[[Command], Command] = click.option(
        "--partitions",
        metavar="N,M",
        help="Select the files of these partitions, by the names of their directories.",
    )
    offset, _ = _make_file_options()
    limit = count_option("--limit", default=None, help="Stop after N records.", smallest=0)
    options = [offset, by_partition, *_make_row_options(), limit]
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def _make_file_options() -> list[Callable[[Command], Command]]:
    return [
        click.option(
            "--offset",
            metavar="A:B",
            help="Select offsets from A on and before B. Either may be missing, and A alone is "
            "one offset.",
        ),
        click.option(
            "--partition",
            metavar="N,M",
            help="Select the files of these partitions, by the names of their directories.",
        ),
    ]


def _make_row_options() -> list[Callable[[Command], Command]]:
    return [
        click.option(
            "--since",
            metavar="TIME",
            help="Select times from TIME on: a date or time of ISO 8601 (UTC), or an age: 30m, 2h, "
            "3d.",
        ),
        click.option("--until", metavar="TIME", help="Select times before TIME."),
        click.option(
            "--key", multiple=True, metavar="TEXT", help="Select this key. May be repeated."
        ),
        click.option(
            "--where",
            multiple=True,
            metavar="CONDITION",
            help="Select what a condition is true of: 'size > 1000 and key ~ \"^a\"'. "
            "docs/command-line.md has the grammar.",
        ),
    ]


def _make_number_options() -> list[Callable[[Command], Command]]:
    return [
        count_option("--limit", default=None, help="Stop after N frames.", smallest=0),
        count_option("--tail", default=None, help="Select the last N frames.", smallest=0),
        click.option(
            "--sample",
            metavar="FRACTION|N",
            help="Select each frame with a probability, such as 0.01, or N frames of all.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(0),
            default=0,
            metavar="N",
            help="Seed of --sample. The same seed selects the same frames.",
        ),
    ]


def make_selection(
    format: Format,
    *,
    offset: str | None = None,
    partition: str | None = None,
    where: Sequence[str] | None = None,
    since: str | None = None,
    until: str | None = None,
    key: Sequence[str] | None = None,
    limit: int | None = None,
    tail: int | None = None,
    sample: str | None = None,
    seed: int | None = None,
) -> Selection:
    """Return the selection that the values of the options ask for. Raises click.UsageError.

    format: the format of the rows. The other arguments are the texts of the options.
    """
    if tail is not None and (limit is not None or sample is not None):
        raise click.UsageError("--tail excludes --limit and --sample")
    conditions: list[Condition] = []
    if offset is not None:
        conditions += _make_offset_filters(format, offset)
    conditions += _make_time_filters(format, since, until)
    if key:
        conditions += _make_key_filters(format, key)
    for text in where or ():
        try:
            conditions += parse_expression(text, format)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--where") from None
    return Selection(
        format,
        tuple(conditions),
        None if partition is None else _parse_partitions(partition),
        limit,
        tail,
        None if sample is None else _parse_sample(sample),
        seed or 0,
    )


def _make_offset_filters(format: Format, text: str) -> tuple[Condition, ...]:
    """Return the filters of --offset: frames that hold offsets of a range."""
    match = OFFSETS.fullmatch(text)
    if match is None or text in ("", ":"):
        raise click.BadParameter(
            f"{text!r} is not A:B, A:, :B or A, with offsets from 0 on", param_hint="--offset"
        )
    low = None if match[1] is None else int(match[1])
    high = None if match[3] is None else int(match[3])
    if match[2] is None and low is not None:
        high = low + 1
    log = next(
        (level.storage.log for level in list_format_levels(format) if level.storage.log), None
    )
    if log is None:
        raise click.UsageError(f"--offset: {format.name} has no offsets")
    filters = []
    if low is not None:
        filters.append((log.last, ">=", low))
    if high is not None:
        filters.append((log.first, "<", high))
    return check_filters(filters, format)


def _make_time_filters(
    format: Format, since: str | None, until: str | None
) -> tuple[Condition, ...]:
    filters = []
    for option, op, text in (("--since", ">=", since), ("--until", "<", until)):
        if text is None:
            continue
        column, unit = _find_time_column(format, option)
        filters.append((column, op, _parse_moment(text, option) * UNITS[unit]))
    return check_filters(filters, format)


def _find_time_column(format: Format, option: str) -> tuple[str, str]:
    """Return the column of times of a format, or of the nearest one around it, and its unit."""
    for level in list_format_levels(format):
        times = {name: column.unit for name, column in level.columns.items() if column.unit}
        # In a capture these frames are no log. They have the same times.
        log = level.storage.log or format_of(level.name).storage.log
        if log is not None and log.time is not None:
            times = {log.time: times[log.time]}
        elif CAPTURE_TIME in times:
            times = {CAPTURE_TIME: times[CAPTURE_TIME]}
        if len(times) > 1:
            raise click.UsageError(
                f"{option}: {format.name} has several times ({', '.join(times)}); use --where"
            )
        for name, unit in times.items():
            return name, unit
    raise click.UsageError(f"{option}: {format.name} has no times")


def _parse_moment(text: str, option: str) -> Fraction:
    """Return the seconds since 1970 of a time of ISO 8601, or of an age such as "2h"."""
    if match := RELATIVE.fullmatch(text):
        return Fraction(time.time()) - Fraction(match[1]) * SECONDS[match[2]]
    try:
        return parse_time(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}, or an age such as 2h", param_hint=option) from None


def _make_key_filters(format: Format, keys: Sequence[str]) -> tuple[Condition, ...]:
    column = format.describe_column(KEY)
    if column is None or column.kind is not ColumnKind.BYTES:
        raise click.UsageError(f"--key: {format.name} has no keys")
    # An argument that is not UTF-8 has its bytes as surrogates.
    values = [key.encode(errors="surrogateescape") for key in keys]
    return check_filters([Filter(KEY, "in", values)], format)


def _parse_partitions(text: str) -> tuple[int, ...]:
    numbers = text.split(",")
    if not all(re.fullmatch(r"\s*[0-9]{1,10}\s*", number) for number in numbers):
        raise click.BadParameter(f"{text!r} is not N or N,M", param_hint="--partition")
    return tuple(map(int, numbers))


def _parse_sample(text: str) -> int | Fraction:
    """Return a number of rows, or a fraction of them, which is written with a point."""
    if re.fullmatch(r"[0-9]{1,9}", text) and 0 < int(text) <= LARGEST_SAMPLE:
        return int(text)
    if re.fullmatch(r"[0-9]?\.[0-9]{1,20}", text) and 0 < Fraction(text) <= 1:
        return Fraction(text)
    raise click.BadParameter(
        f"{text!r} is neither a fraction, such as 0.01, nor a number of frames from 1 to "
        f"{LARGEST_SAMPLE:,}",
        param_hint="--sample",
    )
