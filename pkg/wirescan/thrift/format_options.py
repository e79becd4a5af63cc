"""Options of Thrift's formats, for callers that name a format and do not call its functions.

option              meaning                                            formats
non_strict=true     accept binary messages without a version word      every format of Thrift
idl=calc.thrift     add a column `name`, the names of fields           thrift.fields
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from wirescan.files.boundaries import find_cuts_at_frames
from wirescan.frames.format import Format, Parser
from wirescan.frames.options import FormatOption
from wirescan.frames.registry import make_spec
from wirescan.thrift.idl import make_named_dtype
from wirescan.thrift.scan import bytes_needed, scan_stream, scan_streams


def _accept_non_strict(format: Format, value: str) -> Format:
    """Return a format that accepts binary messages without a version word; `value` is "true"."""
    if format.within is not None:
        return replace(format, within=make_spec(format.within, non_strict=value))
    scan = partial(scan_stream, versions=False)
    return replace(
        format,
        read=partial(format.read, non_strict=True),
        parser=Parser(
            scan=scan,
            spans=partial(scan_streams, versions=False),
            bytes_needed=partial(bytes_needed, versions=False),
        ),
        storage=replace(format.storage, boundaries=partial(find_cuts_at_frames, scan=scan)),
    )


def _add_names(format: Format, idl: str) -> Format:
    """Return thrift.fields with the column `name`. Raises as `thrift.fields`."""
    shown = format.display.shown
    before_id = shown.index("id")
    return replace(
        format,
        dtype=make_named_dtype(idl),
        read=partial(format.read, idl=idl),
        display=replace(format.display, shown=(*shown[:before_id], "name", *shown[before_id:])),
    )


NON_STRICT = FormatOption(
    "non_strict",
    bool,
    "Thrift: also accept binary messages that do not begin with a version.",
    _accept_non_strict,
)
IDL = FormatOption(
    "idl",
    Path,
    "thrift.fields: add a column name, with the names of fields in this IDL.",
    _add_names,
    adds_columns=True,
)
