"""The option --decode, which turns payloads into typed columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from wirescan.cli.completion import complete_decoders
from wirescan.cli.format_command import find_completed_format

HELP = """Decode the payloads in a column of bytes, such as value=json or key=long. DECODER is
json[:FILE], msgpack[:FILE], avro:FILE, avro:registry=URL, protobuf:FILE,message=NAME,
protobuf:registry=URL, thrift:FILE,struct=NAME, short, int, long, float, double, uuid or string. A
payload that cannot be decoded is null; the column COLUMN_fault says why. Can be given for several
columns."""


def decode_option() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds --decode, whose value is `decode`: {column: decoder}."""
    return click.option(
        "--decode",
        metavar="COLUMN=DECODER",
        multiple=True,
        callback=lambda context, option, values: parse_assignments(values),
        shell_complete=lambda context, option, incomplete: complete_decoders(
            find_completed_format(context), incomplete
        ),
        help=" ".join(HELP.split()),
    )


def parse_assignments(values: Sequence[str]) -> dict[str, str]:
    """Return the columns and decoders in the values of --decode. Raises click.BadParameter."""
    decode: dict[str, str] = {}
    for value in values:
        column, equals, decoder = value.partition("=")
        if not equals or not column or not decoder:
            raise click.BadParameter(f"{value!r} is not COLUMN=DECODER, such as value=json")
        if column in decode:
            raise click.BadParameter(f"column {column} is named twice")
        decode[column] = decoder
    return decode
