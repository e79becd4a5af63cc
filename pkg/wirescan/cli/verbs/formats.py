"""`wirescan formats`: lists all formats."""

from __future__ import annotations

from typing import Any

import click

from wirescan.cli.common_options import json_option
from wirescan.cli.output import dump_json
from wirescan.frames import registry
from wirescan.frames.column_meanings import explain_column
from wirescan.frames.columns import list_columns, list_computed, list_places
from wirescan.frames.format import Format

HELP = """List the formats of frames that can be read.

\b
Examples:
  wirescan formats
  wirescan formats --json | jq .columns
"""


@click.command(help=HELP, short_help="List the formats of frames that can be read.")
@json_option("Print JSON lines, with every column, its type and its meaning.")
def formats(*, as_json: bool) -> None:
    """Run `wirescan formats`."""
    all_formats = list(registry.formats().values())
    if as_json:
        for format in all_formats:
            click.echo(dump_json(_describe(format)))
        return
    width = max(len(format.name) for format in all_formats)
    for format in all_formats:
        inside = f"; inside {registry.format_of(format.within).name}" if format.within else ""
        columns = len(list_columns(format.dtype))
        click.echo(f"{format.name:<{width}}  {format.about}")
        click.echo(
            f"{'':<{width}}  {columns} columns, {format.dtype.itemsize} bytes per row{inside}"
        )


def _describe(format: Format) -> dict[str, Any]:
    """Return what a format declares, as values for JSON."""
    names = list_columns(format.dtype)
    return {
        "name": format.name,
        "about": format.about,
        "within": None if format.within is None else registry.format_of(format.within).name,
        "bytes_per_row": format.dtype.itemsize,
        "columns": {name: format.dtype[name].str.lstrip("<|") for name in names},
        "places": list(list_places(format.dtype)),
        "meanings": {
            name: explain_column(format, name)
            for name in format.all_columns
            if format.describe_column(name) is not None
        },
        "computed": [*list_computed(format.dtype, format.columns), *_list_texts(format)],
        "children": list(format.children),
        "times": [name for name, column in format.columns.items() if column.unit == "ms"],
        "nanoseconds": [name for name, column in format.columns.items() if column.unit == "ns"],
    }


def _list_texts(format: Format) -> list[str]:
    """Return the names of the columns of texts that are computed from the rows."""
    return [name for name, column in format.columns.items() if column.compute_texts is not None]
