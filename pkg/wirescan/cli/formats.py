"""`wirescan formats`: the catalogue."""
from __future__ import annotations

from typing import Any

import click

from wirescan.catalog import Format
from wirescan.catalog import formats as catalogue
from wirescan.cli.output import dump
from wirescan.cli.rows import names_of
from wirescan.table import places


@click.command(short_help="The kinds of frames that can be read.")
@click.option("--json", "as_json", is_flag=True, help="JSON lines, with every column and its type.")
def formats(as_json: bool) -> None:
    """The kinds of frames that can be read.

    \b
    Examples:
      wirescan formats
      wirescan formats --json | jq .columns
    """
    known = list(catalogue().values())
    if as_json:
        for one in known:
            click.echo(dump(_described(one)))
        return
    width = max(len(one.name) for one in known)
    for one in known:
        inside = f"; inside {one.within}" if one.within else ""
        click.echo(f"{one.name:<{width}}  {one.about}")
        click.echo(f"{'':<{width}}  {len(names_of(one.dtype))} columns, {one.dtype.itemsize} bytes a row{inside}")


def _described(one: Format) -> dict[str, Any]:
    columns = {name: one.dtype[name].str.lstrip("<|") for name in names_of(one.dtype)}
    return {"name": one.name, "about": one.about, "within": one.within, "bytes_per_row": one.dtype.itemsize,
            "columns": columns, "places": list(places(one.dtype)), "children": list(one.children),
            "times": list(one.times), "nanoseconds": list(one.nanoseconds)}
